"""The sampling thread on real files that a second thread plays, and its series on the disk."""

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import EvidenceError
from harness.host.telemetry import PERIOD_S, Sample, Series, Telemetry, load_series
from harness.measure.power import summarise
from tests.host.trees import Tree, link, put, two_cards

FAST_S = 0.01
LONG_S = 30.0
"""Far above what anything here takes; never what makes a test right"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return two_cards(tmp_path)


@contextmanager
def running(tree: Tree, **options: object) -> Iterator[Telemetry]:
    telemetry = Telemetry(tree.sys, **{"period_s": FAST_S, **options})  # type: ignore[arg-type]
    telemetry.start()
    try:
        yield telemetry
    finally:
        telemetry.stop()


def more(telemetry: Telemetry, ticks: int = 2) -> None:
    """Wait until whole ticks have been taken after this moment (the one under way may have begun before)."""
    done = len(telemetry.series().samples) // max(1, len(telemetry.cards))
    assert telemetry.wait_for(done + 1 + ticks, LONG_S)


def replace(path: Path, value: object) -> None:
    """At once, as sysfs does it: nobody reads half a number."""
    new = path.with_name(path.name + ".new")
    put(new, value)
    new.rename(path)


def test_every_number_of_every_card(tree: Tree) -> None:
    tree.throttle(1, "pl1", "thermal")
    with running(tree) as telemetry:
        more(telemetry)
    series = telemetry.series()
    assert series.cards == tree.addresses
    assert len(series.samples) % 2 == 0
    for sample in series.of("0000:03:00.0"):
        assert sample == Sample(
            sample.t_ns, "0000:03:00.0", 5_000_000_001, 290_000_000, 47_001, 52_000, 1180, 400, False, ()
        )
    for sample in series.of("0000:83:00.0"):
        assert (sample.energy_uj, sample.throttled, sample.reasons) == (5_000_000_000, True, ("pl1", "thermal"))
    assert series.errors == ()
    assert series.cpu_s_per_sample is not None


def test_the_contracts_period() -> None:
    assert PERIOD_S == 0.25


def test_a_chosen_card_alone(tree: Tree) -> None:
    with running(tree, cards=["0000:83:00.0"]) as telemetry:
        more(telemetry)
    assert {sample.card for sample in telemetry.series().samples} == {"0000:83:00.0"}


def test_deadlines_stand_on_one_grid(tree: Tree) -> None:
    """However late single samples are, those after them aren't shifted: no sample is before its own deadline."""
    with running(tree) as telemetry:
        assert telemetry.wait_for(60, LONG_S)
    series = telemetry.series()
    moments = [sample.t_ns for sample in series.of(tree.addresses[0])]
    period = round(FAST_S * 1e9)
    slots = [(moment - moments[0] + period // 2) // period for moment in moments]
    assert moments == sorted(moments)
    # Kept and missed deadlines together fill the time from the first to the last.
    assert abs(len(moments) - 1 + series.missed - slots[-1]) <= 2


def test_missed_deadlines_are_counted(tree: Tree, tmp_path: Path) -> None:
    """The file is a full pipe: the thread stands in its write until somebody reads."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    with running(tree, file=pipe, period_s=0.002) as telemetry:
        stuck, since = -1, time.monotonic()
        while time.monotonic() - since < 0.2:  # no tick for a hundred periods: it stands
            if (ticks := len(telemetry.series().samples)) != stuck:
                stuck, since = ticks, time.monotonic()
        before = telemetry.series().missed
        while len(telemetry.series().samples) < stuck + 20:
            try:
                os.read(reader, 1 << 16)
            except BlockingIOError:
                time.sleep(0.001)
        after = telemetry.series().missed
        os.close(reader)
    assert after - before >= 90


def test_a_file_that_goes_is_unknown_and_comes_back(tree: Tree) -> None:
    with running(tree) as telemetry:
        more(telemetry)
        for name in ("temp3_input", "fan1_input"):
            (tree.hwmon(1) / name).unlink()
        gone = time.monotonic_ns()
        more(telemetry)
        put(tree.hwmon(1) / "fan1_input", 900)
        back = time.monotonic_ns()
        more(telemetry)
    first = telemetry.series().of(tree.addresses[1])
    between = [sample for sample in first if gone < sample.t_ns]
    assert {sample.vram_mc for sample in between} == {None}
    assert [sample.fan_rpm for sample in between if sample.t_ns > back][-1] == 900
    assert {sample.fan_rpm for sample in first} == {1180, None, 900}
    assert {sample.energy_uj for sample in first} == {5_000_000_000}
    assert telemetry.series().errors == ()


@pytest.mark.parametrize("junk", ["", "ENODATA", "12 34", "1e9", "0x10", "-"])
def test_what_is_no_number_is_unknown(tree: Tree, junk: str) -> None:
    put(tree.hwmon() / "energy1_input", junk)
    put(tree.freq() / "act_freq", junk)
    put(tree.freq() / "throttle/status", junk)
    with running(tree) as telemetry:
        more(telemetry)
    samples = telemetry.series().of(tree.addresses[0])
    assert {(sample.energy_uj, sample.act_mhz, sample.throttled) for sample in samples} == {(None, None, None)}


def test_a_driver_loaded_again_is_found_by_name_at_its_new_number(tree: Tree) -> None:
    with running(tree) as telemetry:
        more(telemetry)
        old = tree.hwmon(0)
        old.rename(old.with_name("hwmon99"))
        put(tree.hwmon(0) / "fan1_input", 77)
        more(telemetry)
    assert telemetry.series().of(tree.addresses[0])[-1].fan_rpm == 77


def test_a_card_that_falls_off_the_bus(tree: Tree) -> None:
    with running(tree) as telemetry:
        more(telemetry)
        device = tree.device(0)
        shutil.rmtree(device.resolve())
        device.unlink()
        more(telemetry)
    last = telemetry.series().of(tree.addresses[0])[-1]
    assert last == Sample(last.t_ns, tree.addresses[0])
    assert telemetry.series().of(tree.addresses[1])[-1].act_mhz == 400


def test_a_played_counter_gives_the_watts_it_was_played_with(tree: Tree) -> None:
    """A writer thread raises the counter by the clock at 150 W; whatever the machine does, the mean is near it."""
    stop, path = threading.Event(), tree.hwmon(0) / "energy1_input"
    begun = time.monotonic_ns()

    def play() -> None:
        while not stop.is_set():
            replace(path, (time.monotonic_ns() - begun) * 150 // 1000)

    writer = threading.Thread(target=play)
    writer.start()
    try:
        with running(tree, cards=[tree.addresses[0]]) as telemetry:
            more(telemetry)
            t0 = time.monotonic_ns()
            more(telemetry, 150)
            t1 = time.monotonic_ns()
            more(telemetry)
    finally:
        stop.set()
        writer.join()
    series = telemetry.series()
    power = summarise({card: series.of(card) for card in series.cards}, t0, t1, tokens=1000)
    assert power.mean_watts is not None
    assert power.mean_watts == pytest.approx(150, rel=0.25)
    assert power.tokens_per_joule == pytest.approx(1000 / power.joules)  # type: ignore[operator]
    assert power.throttled == "no"
    assert power.cards[0].samples >= 150


def test_odd_files_are_unknown_and_the_thread_goes_on(tree: Tree) -> None:
    """A link that leads to itself is an error of its own kind; so is a directory where a file should be."""
    (tree.freq(0) / "act_freq").unlink()
    link(tree.freq(0) / "act_freq", tree.freq(0) / "act_freq")
    (tree.hwmon(0) / "fan1_input").unlink()
    (tree.hwmon(0) / "fan1_input").mkdir()
    with running(tree) as telemetry:
        more(telemetry, 5)
    sample = telemetry.series().of(tree.addresses[0])[-1]
    assert (sample.act_mhz, sample.fan_rpm, sample.energy_uj) == (None, None, 5_000_000_001)


def test_no_driver_no_cards_no_error(tmp_path: Path) -> None:
    with Telemetry(tmp_path, period_s=FAST_S) as telemetry:
        assert telemetry.wait_for(3, LONG_S)
    assert telemetry.series() == Series((), (), FAST_S, telemetry.series().missed, None, ())


def test_a_driver_that_cannot_be_listed_is_an_error_on_record(tmp_path: Path) -> None:
    put(tmp_path / "bus/pci/drivers/xe", "")
    telemetry = Telemetry(tmp_path)
    assert telemetry.cards == ()
    assert telemetry.stop().errors == ("the cards can't be listed (Not a directory)",)


def test_stop_ends_at_once_and_twice(tree: Tree) -> None:
    telemetry = Telemetry(tree.sys, period_s=3600)
    telemetry.start()
    assert telemetry.wait_for(1, LONG_S)
    begun = time.monotonic()
    assert len(telemetry.stop().samples) == 2
    assert telemetry.stop() == telemetry.series()
    assert time.monotonic() - begun < 60
    with pytest.raises(RuntimeError):
        telemetry.start()
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}


def test_the_file_holds_the_series(tree: Tree, tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    tree.throttle(0, "pl2")
    put(tree.hwmon(1) / "fan1_input", "")
    with running(tree, file=file) as telemetry:
        more(telemetry)
    lines = file.read_text().splitlines(keepends=True)
    assert load_series(lines) == list(telemetry.series().samples)
    assert load_series([*lines[:-1], lines[-1][:-1]]) == list(telemetry.series().samples)[:-1]
    assert load_series([]) == []
    head = json.loads(lines[0])
    assert (head["cards"], head["period_s"]) == (list(tree.addresses), FAST_S)


@pytest.mark.parametrize("change", ["{}", "[]", "[1, 5, 0, 0, 0, 0, 0, 0, null, []]", "null", "[1, 0, 1.5]"])
def test_a_file_that_is_none_is_one_sentence(tree: Tree, tmp_path: Path, change: str) -> None:
    file = tmp_path / "telemetry.jsonl"
    with running(tree, file=file) as telemetry:
        more(telemetry)
    lines = file.read_text().splitlines(keepends=True)
    for number in (1, 2):
        spoilt = [*lines[: number - 1], change + "\n", *lines[number:]]
        with pytest.raises(EvidenceError, match=f"telemetry line {number} is no sample"):
            load_series(spoilt)


def test_a_file_that_cannot_be_written_is_on_record_and_sampling_goes_on(tree: Tree, tmp_path: Path) -> None:
    with running(tree, file=tmp_path / "absent/telemetry.jsonl") as telemetry:
        more(telemetry)
    assert telemetry.series().errors == ("the samples can't be written (No such file or directory)",)
    full = Telemetry(tree.sys, period_s=FAST_S, file=Path("/dev/full"))
    with full:
        assert full.wait_for(3, LONG_S)
    assert full.series().errors == ("the samples can't be written (No space left on device)",)
    assert len(full.series().samples) >= 6


def test_a_sample_costs_little(tree: Tree) -> None:
    """At four a second, 2 ms would be 0.8 % of a core; some 0.15 ms are usual."""
    with running(tree, period_s=0.001) as telemetry:
        assert telemetry.wait_for(200, LONG_S)
    cost = telemetry.series().cpu_s_per_sample
    assert cost is not None
    assert 0 < cost < 0.002
