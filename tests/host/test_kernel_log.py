"""Kernel logs in every form, from real programs, real files and this host's own dmesg."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.host.faults import Moment, scan
from harness.host.kernel_lines import parse_lines
from harness.host.kernel_log import KernelLog, boot_id, now, read_kernel_log
from tests.host.fault_lines import BENIGN, FAULTS, FIRST

SINCE = Moment(boot_id="b", monotonic_ns=100 * 10**9, realtime_ns=1_000 * 10**9)


def texts(data: str, **options: object) -> list[tuple[str, int | None, int | None]]:
    return [tuple(line) for line in parse_lines(data.encode(), **options).lines]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "text", "monotonic", "realtime"),
    [
        ("<6>[   12.345678] xe a", "xe a", 12_345_678, None),
        ("[12001.1] xe a", "xe a", 12_001_100_000, None),
        ("<4>[    0.000000][    T0] xe a", "xe a", 0, None),
        ("2023-11-14T22:13:20,123456+00:00 xe a", "xe a", None, 1_700_000_000_123_456),
        ("2023-11-14T23:13:20+0100 host kernel: xe a", "host kernel: xe a", None, 1_700_000_000_000_000),
        (
            "2023-11-14T22:13:20.5Z host kernel: [ 7.25] xe a",
            "host kernel: [ 7.25] xe a",
            7_250_000,
            1_700_000_000_500_000,
        ),
        ("no time at all", "no time at all", None, None),
        ("2023-99-14T22:13:20+00:00 no date", "2023-99-14T22:13:20+00:00 no date", None, None),
    ],
)
def test_forms(line: str, text: str, monotonic: int | None, realtime: int | None) -> None:
    ((found, mono, real),) = texts(line + "\n")
    assert (found, mono) == (text, monotonic)
    assert (real is None) == (realtime is None)
    assert realtime is None or abs((real or 0) - realtime) <= 1


def test_forms_in_local_time() -> None:
    local = time.localtime(time.time() - 3600)
    for form in ("[%a %b %d %H:%M:%S %Y] xe a", "%b %d %H:%M:%S host kernel: xe a"):
        ((_, _, realtime),) = texts(time.strftime(form, local))
        assert realtime == int(time.mktime(local)) * 10**6


def test_a_line_without_a_time_has_that_of_the_line_before_it() -> None:
    assert texts("[ 5.0] xe a\n more\n") == [("xe a", 5_000_000, None), (" more", 5_000_000, None)]


def test_only_the_last_boot_of_a_log_with_several() -> None:
    parsed = parse_lines(b"[ 900.0] xe old\n[ 0.0] Linux version\n[ 5.0] xe a\n[ 4.999] xe b\n")
    assert ([line.text for line in parsed.lines], parsed.foreign) == (["Linux version", "xe a", "xe b"], 1)


def journal_line(message: object, *, boot: str = "aa", monotonic: int = 5, **more: object) -> str:
    entry = {
        "MESSAGE": message,
        "_BOOT_ID": boot,
        "__MONOTONIC_TIMESTAMP": str(monotonic),
        "__REALTIME_TIMESTAMP": "7",
        **more,
    }
    return json.dumps(entry) + "\n"


def test_journal_lines() -> None:
    data = (
        journal_line("xe a")
        + journal_line(list(b"xe \xff b"))
        + journal_line(["xe c", "xe d"])
        + journal_line("xe old", boot="bb")
        + journal_line(None)
        + journal_line([300, -1])
        + journal_line({})
        + "{half a li"
    )
    parsed = parse_lines(data.encode(), boot="aa")
    assert [line.text for line in parsed.lines] == ["xe a", "xe � b", "xe c\nxe d"]
    assert {line[1:] for line in parsed.lines} == {(5, 7)}
    assert (parsed.foreign, parsed.unreadable, parsed.timed) == (1, 4, True)


@given(st.binary(max_size=2000))
def test_junk_is_lines_or_nothing(data: bytes) -> None:
    for prefix in (b"", b"{", b"[ 5.0] ", b"Nov 31 25:61:00 ", b"9999-12-31T23:59:59-23:59 "):
        parsed = parse_lines(prefix + data)
        scan(parsed.lines, SINCE)
        assert len(parsed.lines) <= data.count(b"\n") + 1


# Sources


def program(tmp_path: Path, name: str, script: str) -> str:
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def stamp(seconds_ago: float) -> str:
    return f"[{time.monotonic() - seconds_ago:.6f}]"


@pytest.fixture
def began() -> Moment:
    """A minute ago."""
    moment = now()
    if moment.monotonic_ns < 120 * 10**9:
        pytest.skip("this host has only just started")
    shift = 60 * 10**9
    return moment.model_copy(
        update={"monotonic_ns": moment.monotonic_ns - shift, "realtime_ns": moment.realtime_ns - shift}
    )


@pytest.fixture
def read(tmp_path: Path) -> object:
    """Reads with a journal and a dmesg that are real programs, written by the test."""

    def run(since: Moment | None, *, journal: str = "exit 1", dmesg: str = "exit 1", **options: object) -> KernelLog:
        return read_kernel_log(
            since,
            journalctl=program(tmp_path, "journalctl", journal),
            dmesg=program(tmp_path, "dmesg", dmesg),
            **options,  # type: ignore[arg-type]
        )

    return run


def journal_of(*lines: str) -> str:
    """Prints the last line for ``-n 1``, all of them else."""
    quoted = "".join(lines).replace("'", "'\\''")
    return f"case \"$*\" in *'-n 1'*) printf '%s\\n' '{lines[-1].strip()}';; *) printf '%s' '{quoted}';; esac"


def here(message: str, seconds_ago: float, *, boot: str | None = None) -> str:
    micros = int((time.monotonic() - seconds_ago) * 1e6)
    return journal_line(message, boot=(boot or boot_id()).replace("-", ""), monotonic=micros)


def test_journal_since_the_start(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    old, new = [*FAULTS][:2]
    log = read(began, journal=journal_of(here(old, 90), here(new, 10), here(BENIGN, 5)))
    assert (log.state, log.source, log.why) == ("measured", "journal", "")
    assert [fault.text for fault in log.faults()] == [new]


STEP_S = 3600


def test_a_clock_that_was_set_forward_hides_no_line(read, began: Moment, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The line was dated by the clock of then, an hour behind; the journal gives what its --since asks for."""
    began = began.model_copy(update={"realtime_ns": began.realtime_ns - STEP_S * 10**9})
    dated = began.realtime_ns // 10**9 + 20
    asked = "since=${*##*--since=@}; since=${since%% *}"
    show = f"[ $since -le {dated} ] && printf '%s' '{here(FIRST, 40)}'; printf '%s' '{here(BENIGN, 1)}'"
    journal = f"case \"$*\" in *'-n 1'*) printf '%s' '{here(BENIGN, 1)}';; *) {asked}; {show};; esac"
    log = read(began, journal=journal)
    assert (log.state, [fault.text for fault in log.faults()]) == ("measured", [FIRST])
    before, after = (time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(dated + shift)) for shift in (-30, 0))
    path = saved(tmp_path, f"{before} host kernel: quiet", f"{after} host kernel: {FIRST}")
    assert [fault.what for fault in read_kernel_log(began, file=path).faults()] == ["fault response"]


def test_a_quiet_journal_is_clean_only_when_it_can_be_read(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    assert read(began, journal=journal_of(here("quiet", 90))).state == "measured"
    empty = read(began, journal="exit 0")
    assert (empty.state, empty.lines) == ("unknown", ())
    assert empty.why.startswith("journal: it shows no kernel line of this boot; join the group")


def test_a_journal_of_another_boot_is_unknown(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    log = read(began, journal=journal_of(here("quiet", 10, boot="0" * 32)))
    assert (log.state, log.lines) == ("unknown", ())
    assert "journal: its lines are of another boot" in log.why


def test_a_journal_with_a_line_that_is_none_is_unknown_but_told(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    fault = FIRST
    log = read(began, journal=journal_of("{half\n", here(fault, 10)))
    assert log.state == "unknown"
    assert [found.text for found in log.faults()] == [fault]


def test_a_journal_that_does_not_reach_back_to_the_boot(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    late = here("quiet", 1)
    early = journal_line("Linux version", boot=boot_id().replace("-", ""), monotonic=2_000_000)
    assert read(None, journal=journal_of(early, late)).state == "measured"
    if time.monotonic() > 400:
        assert read(None, journal=journal_of(late)).state == "unknown"


def test_no_permission_and_no_command(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    refused = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    log = read(began, journal="echo 'No journal files were opened' >&2; exit 1", dmesg=refused)
    assert (log.state, log.lines) == ("unknown", ())
    assert log.why == (
        "journal: No journal files were opened; dmesg: dmesg: read kernel buffer failed: Operation not permitted"
    )
    absent = read_kernel_log(began, journalctl="/nowhere/journalctl", dmesg="/nowhere/dmesg")
    assert (absent.state, absent.why) == (
        "unknown",
        "journal: there is no such command; dmesg: there is no such command",
    )


def test_dmesg_where_there_is_no_journal(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    old, new = [*FAULTS][:2]
    log = read(began, dmesg=f"echo '<3>{stamp(90)} {old}'; echo '<3>{stamp(10)} {new}'; printf '\\377\\000junk\\n'")
    assert (log.state, log.source) == ("measured", "dmesg")
    assert [fault.text for fault in log.faults()] == [new]


def test_a_ring_that_lost_its_first_lines_is_unknown(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    log = read(began, dmesg=f"echo '<3>{stamp(10)} quiet'")
    assert log.state == ("unknown" if time.monotonic() > 400 else "measured")
    assert read(began, dmesg="exit 0").why.endswith("dmesg: it shows no line")


def test_another_boot_is_unknown(read, began: Moment, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    other = began.model_copy(update={"boot_id": "00000000-0000-0000-0000-000000000000"})
    assert read(other, journal=journal_of(here("quiet", 10))).why.startswith("the host has been started again")
    assert read(began, proc=tmp_path).why == "this host doesn't tell one boot from another"


def test_more_than_the_limit_is_unknown(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    endless = f"while echo '<3>{stamp(90)} {FIRST}'; do :; done"
    log = read(began, dmesg=endless, max_bytes=1 << 20)
    assert (log.state, log.why.split("; ")[-1]) == ("unknown", "dmesg: it is larger than 1 MiB")


def test_a_program_that_never_ends_is_unknown(read, began: Moment) -> None:  # type: ignore[no-untyped-def]
    log = read(began, journal="exec sleep 600", timeout_s=0.2)
    assert "journal: it gave no end within 0.2 s" in log.why


def test_this_hosts_own_log(began: Moment) -> None:
    """Whatever this machine allows: measured with lines that are its own, or unknown with a reason."""
    log = read_kernel_log(began)
    assert (log.state == "unknown") == bool(log.why)
    for line in log.lines:
        assert line.monotonic_us is not None
        assert line.monotonic_us <= time.monotonic_ns() / 1000 + 2_000_000


# Files


def saved(tmp_path: Path, *lines: str, age_s: float = 0) -> Path:
    path = tmp_path / "kern.log"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def iso(seconds_ago: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S,000000+00:00", time.gmtime(time.time() - seconds_ago))


def test_a_file_in_dmesg_iso_form(tmp_path: Path, began: Moment) -> None:
    old, new = [*FAULTS][:2]
    log = read_kernel_log(began, file=saved(tmp_path, f"{iso(90)} {old}", f"{iso(10)} {new}", f"{iso(5)} {BENIGN}"))
    assert (log.state, log.source) == ("measured", "file")
    assert [fault.text for fault in log.faults()] == [new]


@pytest.mark.parametrize(
    ("lines", "age_s", "why"),
    [
        ([], 0, "it has no line of this boot"),
        (["\x00\x01\x02"], 0, "none of its lines has a time"),
        (["quiet"], 0, "none of its lines has a time"),
        ([iso(90) + " quiet"], 70, "it was last written before the campaign began"),
        (["2020-01-01T00:00:00+00:00 quiet"], 0, "it has no line of this boot"),
        (["{half", iso(90) + " quiet"], 0, "1 of its lines can't be read"),
    ],
)
def test_files_that_prove_nothing(tmp_path: Path, began: Moment, lines: list[str], age_s: float, why: str) -> None:
    log = read_kernel_log(began, file=saved(tmp_path, *lines, age_s=age_s))
    assert (log.state, log.why) == ("unknown", f"file kern.log: {why}")


def test_a_fault_in_a_file_that_proves_nothing_is_still_told(tmp_path: Path, began: Moment) -> None:
    log = read_kernel_log(began, file=saved(tmp_path, FIRST))
    assert (log.state, len(log.faults())) == ("unknown", 1)


def test_a_file_that_is_too_large_keeps_its_end(tmp_path: Path, began: Moment) -> None:
    fault = FIRST
    path = saved(tmp_path, *[f"{iso(90)} quiet"] * 2000, f"{iso(10)} {fault}")
    log = read_kernel_log(began, file=path, max_bytes=4096)
    assert (log.state, [found.text for found in log.faults()]) == ("measured", [fault])


@pytest.mark.parametrize("name", ["missing", "."])
def test_no_file(tmp_path: Path, name: str) -> None:
    log = read_kernel_log(file=tmp_path / name)
    assert (log.state, log.lines) == ("unknown", ())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_the_right_to_read_it(tmp_path: Path, began: Moment) -> None:
    path = saved(tmp_path, f"{iso(90)} quiet")
    path.chmod(0)
    assert read_kernel_log(began, file=path).why == "file kern.log: Permission denied"


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_kernel_log(file=tmp_path / "pipe").why == "file pipe: it is no file"
