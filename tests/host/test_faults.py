"""The fault pattern on written lines, and kernel logs from real programs, real files and this host's own dmesg."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.host.faults import PATTERN, KernelLine, Moment, fault_in, is_after, plain, scan
from tests.host.fault_lines import BENIGN, FAULTS, NEAR, XE


def test_every_alternative_of_the_pattern_has_a_line() -> None:
    words = "fault response|CAT error|engine reset|trying reset|gt reset|gt0: reset|GPU reset|coredump|timedout job"
    more = "timed out|hung|wedged|device lost|drivers/gpu/drm/xe/|soft lockup|hard lockup"
    for word in f"{words}|{more}".lower().split("|"):
        assert any(word in what for what in FAULTS.values()), word
    assert PATTERN.count("|") == 14


def test_the_pattern_is_the_contracts() -> None:
    contract = Path(__file__).resolve().parents[2].parent / "shared/contract.md"
    if not contract.is_file():
        pytest.skip("the contract is not beside this checkout")
    assert f"`{PATTERN}`" in contract.read_text()


@pytest.mark.parametrize("line", FAULTS)
@pytest.mark.parametrize("change", [str, str.upper, str.lower])
def test_every_fault_is_found(line: str, change: type[str]) -> None:
    (fault,) = scan([change(line)])
    assert fault.what == FAULTS[line]
    assert fault.text == change(line)
    assert fault.card == (line.split()[1].rstrip(":") if line.startswith("xe ") else None)


@pytest.mark.parametrize("line", NEAR)
def test_near_misses_are_not(line: str) -> None:
    assert scan([line]) == []


@given(st.text(), st.text())
def test_a_benign_line_is_never_a_fault(before: str, after: str) -> None:
    line = (before + BENIGN + after).replace("\n", " ")[-4000:]
    if "coredump has been deleted" in line:
        assert fault_in(line) is None


PIECES = [
    "xe 0",
    "xe 0000:03:00.0",
    "drm]",
    "hung",
    "wedged",
    "gt0: trying reset",
    "gt",
    "reset",
    "GPU reset",
    "timed out",
]
PIECES += ["soft lockup", "drivers/gpu/drm/xe/", "Device Lost", "x", " ", ":", "0", "\r", "\u2028", "\u017f"]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_linear_time_changes_no_verdict(pieces: list[str]) -> None:
    line = "".join(pieces)
    assert (fault_in(line) is None) == (re.search(PATTERN, line, re.IGNORECASE) is None)


@given(st.text(), st.sampled_from(sorted(FAULTS)))
def test_a_fault_behind_anything_of_its_line_is_found(before: str, line: str) -> None:
    before = before.replace("\n", " ")
    if "has been deleted" not in before:
        assert len(scan([before + line])) == 1


@given(st.lists(st.one_of(st.sampled_from([*FAULTS, *NEAR]), st.text(alphabet="ab \x1b\0"))))
def test_the_number_of_faults_is_that_of_the_lines_in_any_order(lines: list[str]) -> None:
    assert [fault.text for fault in scan(lines)] == [line for line in lines if line in FAULTS]


def test_two_faults_in_one_record_are_two() -> None:
    record = KernelLine("\n".join([*[*FAULTS][:2], BENIGN]), 5_000_000, 1_700_000_000_000_000)
    assert [(fault.monotonic_s, fault.at) for fault in scan([record])] == [(5.0, "2023-11-14T22:13:20.000+00:00")] * 2


def test_a_terminal_is_not_commanded() -> None:
    (fault,) = scan([XE + "\x1b[2Jwedged\x07\x9b31m"])
    assert fault.text == XE + " [2Jwedged  31m"
    assert plain("\r\n\t\x00") == ""


def test_a_line_of_junk_is_looked_at_quickly() -> None:
    begun = time.process_time()
    lines = ["xe 0 drm] " * 900, "xe " + "0" * 9_000, "wedged " * 1_300 + "xe 0"]
    assert scan(lines * 200) == []
    assert time.process_time() - begun < 5


SINCE = Moment(boot_id="b", monotonic_ns=100 * 10**9, realtime_ns=1_000 * 10**9)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (KernelLine("", 99_999_999), False),
        (KernelLine("", 100_000_000), True),
        (KernelLine("", None, 999_999_999), False),
        (KernelLine("", None, 1_000_000_000), True),
        (KernelLine("", 100_000_000, 0), True),  # the wall clock was set
        (KernelLine("", 99_000_000, 2_000_000_000), False),
        (KernelLine(""), True),
    ],
)
def test_since_by_either_clock(line: KernelLine, after: bool) -> None:
    assert is_after(line, SINCE) is after
    assert is_after(line, None)
