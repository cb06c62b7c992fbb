"""The wall clock is set while a campaign runs: of the real ``bench`` process alone, by a library before its libc's.

The machine's clock is untouched. The kernel's receive times are by that one, so they then differ from the process's own
clock: as in the moment at which a host's clock is set between the arrival of bytes and the read of them, but for good.
libfaketime won't do: it also bends the sleeps of the process, which end in EINVAL under it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.verify import verify
from tests.bench import campaign_of, command, environment, evidence_of, servers_left, write_launcher

SOURCE = Path(__file__).with_name("wall_clock.c")
MINUTE_MS = 60_000.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloads a library as Linux does")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) for the clock's library")
    built = tmp_path_factory.mktemp("clock") / "wall_clock.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


class Faked:
    """``bench strict --json`` with a wall clock of its own; the monotonic one, and every server, have the host's."""

    def __init__(self, home: Path, library: Path, launcher: Path) -> None:
        self._clock = home / "clock"
        self._clock.write_bytes(bytes(8))
        added = {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self._clock)}
        self.process = subprocess.Popen(
            command("strict", "--json", "--mtp", "0", "--launcher", launcher),
            cwd=home,
            env=environment(home) | added,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def set(self, seconds: int) -> None:
        with self._clock.open("r+b", buffering=0) as file:
            file.write((seconds * 1_000_000_000).to_bytes(8, sys.byteorder, signed=True))

    def event(self, name: str, **fields: object) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == name and all(event[key] == value for key, value in fields.items()):
                return event
        raise AssertionError(f"bench ended before {name}")

    def within_a_stream(self, home: Path) -> None:
        """Wait until a stream that is read goes to the capture, which happens while it is open."""
        path = campaign_of(home) / "attempts" / "mtp0-a" / "capture.jsonl.zst"
        size = path.stat().st_size
        while path.stat().st_size == size:
            assert self.process.poll() is None

    def finish(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@contextmanager
def faked(home: Path, library: Path, **launcher: Any) -> Iterator[Faked]:
    campaign = Faked(home, library, write_launcher(home, **launcher))
    try:
        yield campaign
    finally:
        if campaign.process.poll() is None:
            campaign.process.kill()
        campaign.process.communicate()


def judged(home: Path, code: int, errors: str, *, problem: str = "") -> Any:
    """Evidence of the campaign: it verifies, no server is left, and no time in it is negative.

    ``problem`` is how every sentence ends that ``verify`` may say of it.
    """
    assert errors == ""
    campaign = campaign_of(home)
    evidence = evidence_of(campaign)
    found = verify(campaign).problems
    assert found == [] or (problem and all(said.endswith(problem) for said in found)), found
    assert servers_left(campaign) == []
    assert code == evidence["exit_code"]
    for attempt in evidence["attempts"]:
        for row in attempt["rows"]:
            assert all(row[name] is None or row[name] >= 0 for name in ("first_byte_ms", "first_event_ms", "ttft_ms"))
            if row["complete"]:
                # A minute in 99 intervals would give less than two tokens a second.
                assert row["ttft_ms"] < MINUTE_MS / 2 and row["tok_s_1_100"] > 3
    return evidence


def test_a_faked_clock_that_is_not_set_changes_nothing(library: Path, tmp_path: Path) -> None:
    """Else the tests below would show the library, not the clock."""
    with faked(tmp_path, library) as campaign:
        code, errors = campaign.finish()
    evidence = judged(tmp_path, code, errors)
    assert all(row["complete"] for attempt in evidence["attempts"] for row in attempt["rows"])
    assert [gate["passed"] for gate in evidence["gates"]] == [True]


@pytest.mark.parametrize("seconds", [60, -60])
def test_a_clock_that_is_set_during_a_stream_is_the_rows_reason(library: Path, tmp_path: Path, seconds: int) -> None:
    with faked(tmp_path, library, step_us=12_000) as campaign:
        campaign.event("row", label="mtp0-a", index=2)
        campaign.within_a_stream(tmp_path)
        campaign.set(seconds)
        campaign.event("row", label="mtp0-a", index=3)
        campaign.set(0)
        code, errors = campaign.finish()
    evidence = judged(tmp_path, code, errors)
    rows = evidence["attempts"][0]["rows"]
    stepped = [row for row in rows if row["reason"] == "clock-step"]
    assert rows[3]["index"] == 3 and rows[3] in stepped
    assert abs(abs(rows[3]["clock_step_ms"]) - MINUTE_MS) < 1000
    assert "the wall clock moved by " in rows[3]["detail"] and " ms against the monotonic clock" in rows[3]["detail"]
    assert {row["reason"] for row in rows} <= {None, "clock-step"} and len(stepped) <= 2
    assert (code, evidence["status"]) == (1, "invalid")
    assert evidence["attempts"][0]["class_balanced_median"] is None
    assert any("is incomplete (clock-step)" in said for said in evidence["reasons"])


@pytest.mark.parametrize("seconds", [60, -60])
def test_a_clock_that_is_set_and_set_back_within_a_stream_is_seen(library: Path, tmp_path: Path, seconds: int) -> None:
    """At both ends the clocks agree: only the reads between tell."""
    with faked(tmp_path, library, step_us=12_000) as campaign:
        campaign.event("row", label="mtp0-a", index=2)
        for offset in (seconds, 0):
            campaign.within_a_stream(tmp_path)
            campaign.set(offset)
        row = campaign.event("row", label="mtp0-a", index=3)
        code, errors = campaign.finish()
    evidence = judged(tmp_path, code, errors)
    kept = evidence["attempts"][0]["rows"][3]
    assert (row["complete"], kept["reason"]) == (False, "clock-step"), kept["detail"]
    assert (code, evidence["status"]) == (1, "invalid")


@pytest.mark.parametrize("seconds", [60, -60])
def test_a_clock_that_is_set_between_servers_never_passes_a_wrong_number(
    library: Path, tmp_path: Path, seconds: int
) -> None:
    """For good: from then on the kernel's receive times are a minute from ours, so no row of it can be believed."""
    with faked(tmp_path, library) as campaign:
        campaign.event("attempt-ended", label="mtp0-a")
        campaign.set(seconds)
        code, errors = campaign.finish()
    # The server has the host's clock, and a server whose clock isn't the client's is none of its host.
    evidence = judged(tmp_path, code, errors, problem="(check process); get the original files")
    first, second = evidence["attempts"]
    assert all(row["complete"] for row in first["rows"])
    assert {row["reason"] for row in second["rows"]} == {"clock-step"}
    assert second["class_balanced_median"] is None and evidence["pairs"][0]["center"] is None
    assert (code, evidence["status"]) == (1, "invalid")


@pytest.mark.parametrize("seconds", [60, -60])
@pytest.mark.parametrize("stage", ["starting", "stopping"])
def test_a_clock_that_is_set_beside_the_suite_still_verifies(
    library: Path, tmp_path: Path, stage: str, seconds: int
) -> None:
    """While a server starts, so that none of its times can be believed; or while the last one stops."""
    with faked(tmp_path, library) as campaign:
        campaign.event("stage", label="mtp0-b", text=stage)
        campaign.set(seconds)
        code, errors = campaign.finish()
    evidence = judged(tmp_path, code, errors)
    reasons = {row["reason"] for row in evidence["attempts"][1]["rows"]}
    assert reasons == ({"clock-step"} if stage == "starting" else {None})
    assert all(row["complete"] for row in evidence["attempts"][0]["rows"])


def test_moments_of_the_journal_may_go_back(library: Path, tmp_path: Path) -> None:
    """A campaign whose clock was set back by a minute between two servers, and forward again before the second one."""
    with faked(tmp_path, library) as campaign:
        campaign.event("attempt-ended", label="mtp0-a")
        campaign.set(-60)
        campaign.event("attempt", label="mtp0-b")
        campaign.set(0)
        code, errors = campaign.finish()
    evidence = judged(tmp_path, code, errors)
    assert all(row["complete"] for attempt in evidence["attempts"] for row in attempt["rows"])
    assert [gate["passed"] for gate in evidence["gates"]] == [True]
