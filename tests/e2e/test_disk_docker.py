"""Campaigns on real containers whose disk fills up, turns read-only, or loses the campaign's directory.

The disk is a file system of the test's own. Each test fills it at an event of the campaign, so that one known file is
the first that can't be written, and then asks what a user asks: what happened, what is left, and how it goes on.
"""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import BENCH, Bench, Benches, assert_verifies, containers, failed_but_for_load, gates, verify
from tests.e2e.conftest import QuickLane
from tests.e2e.disks import Disk, FailingDisk, failing_disk, need_root, partial, slack, tmpfs

pytestmark = pytest.mark.docker

BEGIN_S = 240.0
END_S = 300.0
FULL = "No space left on device"


@pytest.fixture
def quick(quick: QuickLane) -> QuickLane:
    """Under a name of this run alone: campaigns are found by it."""
    return replace(quick, name=f"disk-{os.getpid()}")


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Callable[..., Disk]]:
    """Makes them; before ``bench`` in a test's arguments, so that they outlive its campaigns."""
    need_root()
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(tmpfs(tmp_path / "disk", **options))


@pytest.fixture
def disk(disks: Callable[..., Disk]) -> Disk:
    return disks()


@contextmanager
def paused(campaign: Bench) -> Iterator[None]:
    """The command stands still, so that what is done here comes before its next write."""
    campaign.send(signal.SIGSTOP)
    try:
        yield
    finally:
        campaign.send(signal.SIGCONT)


def assert_ended_in_one_sentence(campaign: Bench, begins: str, docker_client: Any) -> None:
    """Exit code 2, one line on stderr that begins so and says what to do, and no server left."""
    assert campaign.finish(END_S) == 2
    (sentence,) = campaign.stderr.splitlines()
    assert sentence.startswith(f"bench: {begins}"), sentence
    assert "; free space or choose another --out" in sentence, sentence
    assert containers(docker_client, campaign.out) == []


def goes_on(bench: Benches, docker_client: Any, campaign: Bench, options: list[str]) -> dict[str, Any]:
    """A resume to a verdict, and nothing half-written after a clean-up; its evidence."""
    resumed = bench(campaign.out, *options, "--resume", str(campaign.directory))
    code = resumed.finish(END_S)
    evidence = resumed.evidence
    last = [item for item in evidence["attempts"] if item["status"] == "complete"]
    assert failed_but_for_load({"attempts": last}) == []
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert (code, evidence["status"]) in [(0, "passed"), (1, "withheld")], "by the client gate of this machine"
    assert_verifies(campaign.directory, evidence["status"])
    clean(campaign.out)
    assert partial(campaign.out) == []
    assert containers(docker_client, campaign.out) == []
    return evidence


def clean(out: Path) -> None:
    done = subprocess.run([BENCH, "clean", "--out", str(out)], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def attempts(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["directory"], item["status"]) for item in evidence["attempts"]]


def test_69_full_while_the_capture_is_written(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    options = [*quick(step_us=4000), "--mtp", "0"]
    campaign = bench(disk.out, *options)
    campaign.event("row", BEGIN_S, label="mtp0-b", index=1)
    with paused(campaign):
        disk.fill()
    assert_ended_in_one_sentence(campaign, f"mtp0-b: capture.jsonl.zst can't be written ({FULL})", docker_client)
    assert_verifies(campaign.directory, "interrupted")
    disk.free()
    assert_verifies(campaign.directory, "interrupted")
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence)[0] == ("mtp0-a", "complete")
    assert attempts(evidence)[2] == ("mtp0-b.2", "complete")
    kept = evidence["attempts"][1]
    assert kept["status"] in ("invalid", "interrupted") and [row["complete"] for row in kept["rows"][:2]] == [True] * 2


def test_69_full_while_a_server_starts(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    """The record of what was started is the next file: server.json."""
    options = [*quick(), "--mtp", "0"]
    campaign = bench(disk.out, *options)
    campaign.line(lambda line: '"starting"' in line, BEGIN_S)
    with paused(campaign):
        disk.fill()
    assert_ended_in_one_sentence(campaign, f"mtp0-a: server.json can't be written ({FULL})", docker_client)
    assert_verifies(campaign.directory, "interrupted")
    disk.free()
    evidence = goes_on(bench, docker_client, campaign, options)
    assert [directory for directory, _ in attempts(evidence)] == ["mtp0-a", "mtp0-a.2", "mtp0-b"]


def test_69_full_while_a_server_stops(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    """The engine's own copy of the log is written first then, and no attempt is complete without its log."""
    options = [*quick(), "--mtp", "0"]
    campaign = bench(disk.out, *options)
    campaign.event("stage", BEGIN_S, label="mtp0-a", text="stopping")
    with paused(campaign):
        disk.fill()
    assert_ended_in_one_sentence(campaign, f"mtp0-a: server.log can't be written ({FULL})", docker_client)
    assert_verifies(campaign.directory, "interrupted")
    disk.free()
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence)[0][1] != "complete", "its record was not written whole"
    assert attempts(evidence)[1:] == [("mtp0-a.2", "complete"), ("mtp0-b", "complete")]


def test_69_full_when_evidence_is_written(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    options = [*quick(), "--mtp", "0"]
    campaign = bench(disk.out, *options)
    campaign.event("attempt-ended", BEGIN_S, label="mtp0-a")
    with paused(campaign):
        disk.fill()
    assert_ended_in_one_sentence(campaign, f"evidence.json can't be written ({FULL})", docker_client)
    assert_verifies(campaign.directory, "interrupted")
    disk.free()
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence) == [("mtp0-a", "complete"), ("mtp0-b", "complete")]


def test_69_full_at_the_very_last_write(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    options = [*quick(), "--mtp", "0"]
    campaign = bench(disk.out, *options)
    campaign.line(lambda line: '"gate"' in line, BEGIN_S)
    with paused(campaign):
        disk.fill()
    assert campaign.finish(END_S) == 2
    (sentence,) = campaign.stderr.splitlines()
    # The journal's last line may still find room in its page.
    assert sentence.startswith(tuple(f"bench: {name} can't be written ({FULL})" for name in (
        "evidence.json", "journal.jsonl"
    ))), sentence  # fmt: skip
    before = {path: path.read_bytes() for path in (campaign.directory / "attempts").rglob("*") if path.is_file()}
    _, found = verify(campaign.directory)
    assert all(problem.startswith(("evidence.json", "journal.jsonl", "manifest.json")) for problem in found["problems"])
    disk.free()
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence) == [("mtp0-a", "complete"), ("mtp0-b", "complete")]
    assert {path: path.read_bytes() for path in before} == before, "nothing is measured again"


def test_69_full_when_the_journal_goes_on(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    """A resume's first line, in a journal whose last page has no room for it."""
    options = [*quick(), "--mtp", "0"]
    lane = quick.folder / "lane.toml"
    whole, pad = lane.read_text(), 0
    for number in range(6):
        lane.write_text(whole.replace("Simulated server in a container", "Simulated server" + "." * pad))
        campaign = bench(disk.path / f"out{number}", *options)
        campaign.line(lambda line: '"starting"' in line, BEGIN_S)
        campaign.send(signal.SIGTERM)
        assert campaign.finish(END_S) == 2
        left = slack(campaign.directory / "journal.jsonl")
        if left < 60:
            break
        pad += left - 30
    assert left < 60
    disk.fill()
    resumed = bench(campaign.out, *options, "--resume", str(campaign.directory))
    assert_ended_in_one_sentence(resumed, f"journal.jsonl can't be written ({FULL})", docker_client)
    assert_verifies(campaign.directory, "interrupted")
    disk.free()
    assert_verifies(campaign.directory, "interrupted")
    goes_on(bench, docker_client, campaign, options)


@pytest.mark.parametrize("part", ["directory", "suite"])
def test_69_full_before_a_campaign_begins(
    disks: Callable[..., Disk], bench: Benches, docker_client: Any, quick: QuickLane, part: str
) -> None:
    """Nothing was started, so nothing is left: no directory that is no campaign."""
    disk = disks(inodes=20)
    options = [*quick(), "--mtp", "0"]
    disk.fill_inodes() if part == "directory" else disk.fill()
    campaign = bench(disk.out, *options)
    begins = f"{disk.out} can't hold a campaign" if part == "directory" else "suite.json can't be written"
    assert_ended_in_one_sentence(campaign, f"{begins} ({FULL})", docker_client)
    assert list(disk.out.iterdir()) == []
    disk.free()
    again = bench(disk.out, *options)
    again.event("row", BEGIN_S, label="mtp0-a", index=0)
    again.send(signal.SIGTERM)
    assert again.finish(END_S) == 2


def test_69_no_inode_left_for_the_manifest(
    disks: Callable[..., Disk], bench: Benches, docker_client: Any, quick: QuickLane
) -> None:
    disk = disks(inodes=80)
    options = [*quick(), "--mtp", "0"]
    campaign = bench(disk.out, *options)
    campaign.event("attempt-ended", BEGIN_S, label="mtp0-a")
    with paused(campaign):
        disk.fill_inodes(but=1)  # which evidence.json takes
    assert campaign.finish(END_S) == 2
    assert campaign.stderr.startswith(f"bench: manifest.json can't be written ({FULL}); its file system takes no ")
    assert containers(docker_client, campaign.out) == []
    assert campaign.evidence["attempts"][0]["status"] == "complete"
    assert_verifies(campaign.directory, "interrupted")
    disk.free()
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence) == [("mtp0-a", "complete"), ("mtp0-b", "complete")]


def test_69_server_that_logs_more_than_the_disk_holds(
    disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane
) -> None:
    campaign = bench(disk.out, *quick("--fault", f"chatty-log:{16 << 20}"), "--mtp", "0")
    assert campaign.finish(END_S) == 2
    (sentence,) = campaign.stderr.splitlines()
    assert sentence.startswith("bench: mtp0-a: ") and f" can't be written ({FULL}); free space" in sentence
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, "interrupted")
    clean(campaign.out)
    assert partial(campaign.out) == []


def test_69_limit_on_the_size_of_one_file(bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path) -> None:
    """As a quota would: of all files only the server's log grows beyond it."""
    limit = 2 << 20
    options = [*quick("--fault", f"chatty-log:{limit + 65536}"), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    resource.prlimit(campaign.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    assert_ended_in_one_sentence(campaign, "mtp0-a: server.log can't be written (File too large)", docker_client)
    assert_verifies(campaign.directory, "interrupted")
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence)[1:] == [("mtp0-a.2", "complete"), ("mtp0-b", "complete")]


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[FailingDisk]:
    need_root()
    with failing_disk(tmp_path / "disk") as disk:
        yield disk


def test_69_read_only_in_mid_campaign(
    failing: FailingDisk, bench: Benches, docker_client: Any, quick: QuickLane
) -> None:
    """As the kernel does it after an error of the disk: files that are open for writing are no reason not to."""
    options = [*quick(step_us=4000), "--mtp", "0"]
    campaign = bench(failing.out, *options)
    campaign.event("row", BEGIN_S, label="mtp0-b", index=1)
    failing.fail()
    assert campaign.finish(END_S) == 2
    (sentence,) = campaign.stderr.splitlines()
    assert sentence.startswith("bench: mtp0-b: capture.jsonl.zst can't be written ("), sentence
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, "interrupted")
    resumed = bench(campaign.out, *options, "--resume", str(campaign.directory))
    assert resumed.finish(END_S) == 2
    assert resumed.stderr.startswith("bench: journal.jsonl can't be written (Read-only file system); make its ")
    assert containers(docker_client, campaign.out) == []
    failing.repair()
    evidence = goes_on(bench, docker_client, campaign, options)
    assert attempts(evidence)[0] == ("mtp0-a", "complete")


def test_69_directory_that_somebody_removes(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *quick(step_us=4000), "--mtp", "0")
    campaign.event("row", BEGIN_S, label="mtp0-a", index=1)
    name = campaign.directory.name
    left = [item for item in containers(docker_client, campaign.out) if item.campaign == name]
    assert len(left) == 1
    with paused(campaign):
        shutil.rmtree(campaign.directory)
    assert campaign.finish(END_S) == 2
    (sentence,) = campaign.stderr.splitlines()
    assert "(No such file or directory)" in sentence and "start anew" in sentence, sentence
    assert "can't be written" in sentence or "can't be read" in sentence
    assert [item.id for item in _ours(docker_client) if item.campaign == name] == []
    assert list(campaign.out.iterdir()) == [], "it isn't made anew without its beginning"


def _ours(client: Any) -> list[Any]:
    from harness.launch.docker import list_ours

    return list_ours(client)


def test_69_out_that_can_not_be_one(quick: QuickLane, tmp_path: Path) -> None:
    options = quick()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent" / "deeper")
    for out, code in ((tmp_path / "file", 64), (tmp_path / "file" / "below", 64)):
        words = [BENCH, "strict", "--mtp", "0", *options, "--out", str(out)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert done.stderr == f"bench: {out} is no directory, or leads through a file; choose another --out\n"
    assert (tmp_path / "file").read_text() == "mine"


def test_69_out_on_a_read_only_mount(disk: Disk, bench: Benches, docker_client: Any, quick: QuickLane) -> None:
    options = quick()
    disk.remount("ro")
    words = [BENCH, "strict", "--mtp", "0", *options, "--out", str(disk.out)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == (
        f"bench: {disk.out} can't hold a campaign (Read-only file system); free space or choose another --out\n"
    )
    disk.remount("rw")
    assert list(disk.out.iterdir()) == []
