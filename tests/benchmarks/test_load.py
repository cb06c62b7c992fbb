"""The load benchmark's rule, its account, and its command line."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.loads.account import Account, account_for, compare
from benchmarks.loads.campaign import AMOUNTS
from benchmarks.loads.drive import Order, one_round
from benchmarks.loads.growth import LEAST, Tolerance, judge_amount, judge_count, level
from benchmarks.loads.kinds import MODES, asks
from benchmarks.source import Schedule, Sent, build, read_ledger, serving
from harness.wire.capture import Capture, load_capture

ROOT = Path(__file__).resolve().parents[2]
PATHS = ["sink", "batch", "workers"]


def rounds(count: int) -> list[str]:
    return [PATHS[number % 3] for number in range(count)]


# the rule


@given(st.integers(0, 10**6), st.integers(LEAST, 60), st.data())
def test_a_count_is_equal_after_each_round_or_grows(start: int, count: int, data: st.DataObject) -> None:
    assert judge_count("descriptors", [start] * count).grows == ""
    at = data.draw(st.integers(1, count - 1))
    more = judge_count("descriptors", [start] * at + [start + 1] * (count - at))
    assert more.grows == f"descriptors: {start} after the first round, {start + 1} {at} rounds later"
    once = judge_count("threads", [start] * at + [start + 1] + [start] * (count - at - 1))
    assert once.grows != "", "also what goes again: every round must leave what it found"


@given(st.integers(LEAST, 90), st.floats(1, 1e6), st.integers(0, 10**6))
def test_noise_without_a_trend_is_let_pass_and_a_megabyte_a_round_is_not(count: int, base: float, seed: int) -> None:
    chance = random.Random(seed)
    level_kib, tolerance = 60_000 + base, Tolerance(64, 0.1)
    noise = [level_kib + chance.uniform(-500, 500) for _ in range(count)]
    assert judge_amount("rss", noise, rounds(count), tolerance).grows == ""
    leak = [value + 1024 * number for number, value in enumerate(noise)]
    bound = max(64, 0.1 * sorted(leak)[count // 2] / count)
    if bound < 900:  # below that many rounds a tenth of what is held is more than a megabyte a round
        assert "rss: " in judge_amount("rss", leak, ["all"] * count, tolerance).grows
    # What is in use is exact, so that six rounds are enough for it.
    assert judge_amount("in_use", [20_000.0] * count, [], AMOUNTS["in_use"]).grows == ""
    used = [20_000.0 + 1024 * number for number in range(count)]
    assert judge_amount("in_use", used, [], AMOUNTS["in_use"]).grows != ""
    blocks = [250_000.0 + number for number in range(count)]
    assert judge_amount("blocks", blocks, [], AMOUNTS["blocks"]).grows != "", "one block a round"


def test_a_leak_now_and_then_is_found_by_the_thirds() -> None:
    steps = [20_000.0 + 1000 * (number // 12) for number in range(36)]
    found = judge_amount("in_use", steps, ["all"] * 36, Tolerance(64))
    assert found.grows != "" and found.last_third - found.second_third == 1000


def test_one_wild_round_is_no_growth() -> None:
    values = [20_000.0] * 20
    values[15] = 90_000
    assert judge_amount("rss", values, ["all"] * 20, Tolerance(64)).grows == ""


def test_paths_that_need_more_are_levelled_unless_too_few_rounds_tell() -> None:
    values = [{"sink": 10.0, "batch": 50.0, "workers": 20.0}[path] for path in rounds(12)]
    assert level(values, rounds(12)) == [20.0] * 12
    assert level([1.0, 2.0, 3.0], PATHS) == [1.0, 2.0, 3.0], "one of each: its own median would hide everything"


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 6 are needed"):
        judge_amount("rss", [1.0] * 5, rounds(5), Tolerance(1))


# the account


@given(st.lists(st.integers(0, 5)), st.data())
def test_compare_counts_each_id_once(ids: list[int], data: st.DataObject) -> None:
    assert compare(ids, ids) == (0, 0, False)
    if ids:
        at = data.draw(st.integers(0, len(ids) - 1))
        assert compare(ids, ids[:at] + ids[at + 1 :]) == (1, 0, False)
        assert compare(ids, [*ids[:at], 9, *ids[at:]]) == (0, 1, False)
        assert compare(ids, [*ids[:at], 9, *ids[at + 1 :]]) == (1, 1, False)
    turned = ids[::-1]
    assert compare(ids, turned) == (0, 0, turned != ids)


@pytest.fixture(scope="module", params=["C", "Python"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Sent]]:
    """A round of every kind of stream on a real source: its capture, and the source's ledger."""
    folder = tmp_path_factory.mktemp("load")
    program = build(folder, python_asked=request.param == "Python")
    if not program.kind.startswith(request.param):
        pytest.skip("no C compiler is installed")
    file = folder / "capture.jsonl.zst"
    with serving(program, Schedule(), folder / "ledger") as source:
        one_round(Order(str(file), "mixed", "batch", 8, 0.5), source.port)
    lines, end = read_ledger(folder / "ledger")
    assert (folder / "ledger").stat().st_size == end and read_ledger(folder / "ledger", end) == ([], end)
    return file, lines


def test_a_round_of_every_kind_is_accounted_for(recorded: tuple[Path, list[Sent]]) -> None:
    file, lines = recorded
    account = account_for(load_capture(file), lines)
    assert account.right, account.problems
    asked = sum(ask.max_tokens for ask in asks("mixed", 8, 0.5))
    assert (account.streams, account.whole, account.events_sent, account.events_captured) == (8, 8, asked, asked)
    assert account.bytes_sent == account.bytes_captured == sum(line.sent_bytes for line in lines)
    bytewise = [line for line in lines if line.tokens == 1]
    assert len(bytewise) == 2 and all(line.writes == line.sent_bytes > 400 for line in bytewise)


def tampered(recorded: tuple[Path, list[Sent]], what: str) -> Account:
    file, lines = recorded
    capture = load_capture(file)
    tag, exchange = capture.exchanges[0]
    if what == "stream lost":
        del capture.exchanges[0]
    elif what == "stream doubled":
        capture.exchanges.append((tag, exchange))
    elif what == "event lost":
        lines = [replace(line, ids=line.ids + 1, events=line.events + 1, tokens=line.tokens) for line in lines]
    elif what == "byte lost":
        lines = [replace(line, sent_bytes=line.sent_bytes + 1) for line in lines]
    elif what == "cut":
        capture.truncated = True
    elif what == "early":
        exchange.at_ns = [at - 10**9 for at in exchange.at_ns]
    return account_for(capture, lines)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("stream lost", "is not in the capture"),
        ("stream doubled", "r0 stands 2 times in the capture"),
        ("event lost", "events sent, "),
        ("byte lost", "bytes sent, "),
        ("cut", "the capture is cut short"),
        ("early", ""),
    ],
)
def test_whatever_is_missing_or_too_much_is_told(recorded: tuple[Path, list[Sent]], what: str, sentence: str) -> None:
    account = tampered(recorded, what)
    assert not account.right
    assert sentence in "; ".join(account.problems)
    if what == "stream lost":
        assert account.lost == asks("mixed", 8, 0.5)[0].max_tokens
    if what == "event lost":
        assert account.lost == 8
    if what == "early":
        assert account.early > 0


def test_an_empty_capture_has_lost_everything() -> None:
    account = account_for(Capture({}), [Sent(1, 5, 5, 5, 100, 6, whole=True)])
    assert (account.lost, account.events_sent, account.events_captured, account.right) == (5, 5, 0, False)


# the command


def test_the_command_tells_of_a_leak_and_ends_with_1(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    words = ["--streams", "6", "--minutes", "0", "--mode", "steady", "--round-s", "0.2", "--rounds", "8"]
    command = [sys.executable, str(ROOT / "benchmarks" / "load.py"), *words, "--leak", "descriptor", "--markdown"]
    done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    assert file.exists(), done.stderr
    result = json.loads(file.read_text())
    assert len(result["failures"]) == 1 and result["failures"][0].startswith("descriptors: ")
    assert result["failures"][0] in done.stdout and "| descriptors |" in done.stdout
    assert result["totals"]["all"]["events_sent"] == result["totals"]["all"]["events_captured"] == 8 * 6 * 20
    assert set(MODES) == {"steady", "slow-reader", "slow-server", "one-byte", "mixed"}
