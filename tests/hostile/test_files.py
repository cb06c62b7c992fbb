"""Section E, clocks apart: numbers that do not exist, records and outputs that a disk does not take."""

import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.errors import RecordError
from harness.evidence import journal, store
from harness.measure import rates
from harness.measure.rows import attempt_median
from harness.wire.capture import Control, load_capture
from harness.wire.capture_writer import CaptureWriter
from tests.bench import bench, command, environment, write_launcher
from tests.e2e.disks import Disk, need_root, tmpfs
from tests.measure.factory import make_rows, replace_row
from tests.recorded import copy

FULL = "No space left on device"


class Odd:
    """As a number of an array library: it prints as one, and JSON has no word for it."""

    def __repr__(self) -> str:
        return "200"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    need_root()
    with tmpfs(tmp_path / "disk") as made:
        yield made


@pytest.mark.parametrize("failed", [1, 3, 12])
def test_65_no_median_over_the_rows_that_survived(failed: int) -> None:
    rows = make_rows()
    assert attempt_median(rows) is not None
    for index in range(failed):
        rows = replace_row(rows, index, complete=False, reason="connection-reset")
    assert attempt_median(rows) is None


def test_66_twelve_values_have_no_99th_percentile() -> None:
    values = [float(value) for value in range(12)]
    with pytest.raises(ValueError, match="p99 was asked of 12 values and needs 100"):
        rates.percentile(values, 99)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_67_a_number_that_is_none_reaches_no_file(tmp_path: Path, bad: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        store.dump_json({"rate": bad})
    started = journal.Event(at=journal.now_utc(), event="campaign-started", start={"rate": bad})
    with pytest.raises(ValueError, match="JSON compliant"):
        journal.append(tmp_path, started)
    assert list(tmp_path.iterdir()) == []


def test_68_a_record_that_can_not_be_written_fails_as_it_happens(tmp_path: Path) -> None:
    """Not at the end of a campaign: what was recorded before it is whole, and so is what comes after."""
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "mtp0-a"})
    writer.control(Control("health", "/health", 1, 200, "first"))
    with pytest.raises(TypeError, match="not JSON serializable"):
        writer.control(Control("health", "/health", 2, cast("Any", Odd()), "odd"))
    assert [control.body for control in load_capture(path).controls] == ["first"]
    writer.control(Control("health", "/health", 3, 200, "second"))
    writer.close()
    assert [control.body for control in load_capture(path).controls] == ["first", "second"]

    journal.append(tmp_path, journal.Event(at=journal.now_utc(), event="campaign-started", start={}))
    with pytest.raises(TypeError, match="not JSON serializable"):
        journal.append(
            tmp_path, journal.Event(at=journal.now_utc(), event="campaign-ended", start=cast("Any", {"rate": Odd()}))
        )
    assert [event.event for event in journal.load(tmp_path)] == ["campaign-started"]


def test_69_a_capture_whose_disk_was_full_for_a_moment_has_no_gap(disk: Disk) -> None:
    """What came after a lost block would spoil what stands before it, so nothing does."""
    path = disk.path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "mtp0-a"})
    for number in range(3):
        writer.control(Control("health", "/health", number, 200, f"before {number}"))
    disk.fill()
    with pytest.raises(RecordError, match=rf"^capture.jsonl.zst can't be written \({FULL}\); free space or choose "):
        for number in range(10_000):
            writer.control(Control("health", "/health", number, 200, os.urandom(2000).hex()))
    disk.free()
    with pytest.raises(RecordError, match=FULL):
        writer.control(Control("health", "/health", 0, 200, "after"))
    writer.close()
    loaded = load_capture(path)
    assert [control.body for control in loaded.controls][:3] == ["before 0", "before 1", "before 2"]
    assert loaded.truncated and "after" not in [control.body for control in loaded.controls]


def test_69_a_journal_whose_disk_was_full_for_a_moment_goes_on(disk: Disk) -> None:
    journal.append(disk.path, journal.Event(at=journal.now_utc(), event="campaign-started", start={}))
    disk.fill()
    written = 1
    with pytest.raises(RecordError, match=rf"^journal.jsonl can't be written \({FULL}\); free space"):
        for _ in range(1000):
            journal.append(disk.path, journal.Event(at=journal.now_utc(), event="campaign-resumed"))
            written += 1
    assert len(journal.load(disk.path)) == written
    disk.free()
    journal.append(disk.path, journal.Event(at=journal.now_utc(), event="campaign-ended"))
    assert [event.event for event in journal.load(disk.path)][written:] == ["campaign-ended"]


def outputs(campaign: Path, folder: Path) -> list[tuple[list[str], Path]]:
    """Commands that write a file a person keeps, and that file."""
    key = campaign.parent / "key.pem"
    return [
        (["report", str(campaign), "-o", str(folder / "page.html")], folder / "page.html"),
        (["export", str(campaign), "--format", "result", "-o", str(folder / "result.json")], folder / "result.json"),
        (["export", str(campaign), "--format", "all", "-o", str(folder / "all")], folder / "all"),
        (["seal", str(campaign), "--key", str(key), "-o", str(folder / "seal.json")], folder / "seal.json"),
        (["promote", "--new", str(folder / "family.json"), str(campaign)], folder / "family.json"),
    ]


@pytest.mark.parametrize("why", ["full", "read-only"])
def test_69_outputs_on_a_disk_that_takes_none(disk: Disk, tmp_path: Path, why: str) -> None:
    """One sentence and exit code 2, nothing half-written, and an old file stays whole."""
    campaign = copy("tiny", tmp_path)
    assert bench("seal", "--new-key", tmp_path / "key.pem", cwd=tmp_path).code == 0
    old = b"{}" * 100
    for number, (words, made) in enumerate(outputs(campaign, disk.out)):
        replaces = words[0] == "report"  # no other of these replaces a file
        if replaces:
            made.write_bytes(old)
        if why == "full":
            disk.fill()
        else:
            disk.remount("ro")
        done = bench(*words, cwd=tmp_path)
        if why != "full":
            disk.remount("rw")
        # A page is opened before its evidence is read: what can't even be made there is a wrong --out.
        assert done.code == (64 if words[0] == "report" and why != "full" else 2), (words, done.err)
        said = FULL if why == "full" else "Read-only file system"
        assert f"can't be written ({said})" in done.sentence, done.sentence
        assert "--resume" not in done.sentence, "no campaign goes on from it"
        assert [entry for entry in disk.out.iterdir() if entry.name.startswith(".")] == []
        assert made.read_bytes() == old if replaces else not made.exists()
        disk.free()
        made.unlink(missing_ok=True)
        again = bench(*words, cwd=tmp_path)
        assert (again.code, again.err) == (0, ""), (number, words)


def test_69_promote_leaves_the_old_family_file_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    campaign = copy("tiny", tmp_path)
    path = disk.out / "family.json"
    assert bench("promote", "--new", path, campaign, cwd=tmp_path).code == 0
    family = json.loads(path.read_bytes())
    family["run_measurements"][1]["metrics"]["decode_tok_s"][1] = 999.999
    path.write_text(json.dumps(family, indent=1))
    old = path.read_bytes()
    disk.fill()
    done = bench("promote", "--family", path, campaign, cwd=tmp_path)
    assert done.code == 2
    assert done.sentence == f"family.json can't be written ({FULL}); free space, or make its folder writable"
    assert path.read_bytes() == old and [entry.name for entry in disk.out.iterdir()] == ["family.json"]


def test_69_out_that_this_user_may_not_write(tmp_path: Path) -> None:
    need_root()
    user = shutil.which("setpriv")
    if user is None:
        pytest.skip("no setpriv to become another user")
    # With several workers a test's folder lies a level deeper.
    for folder in (tmp_path, *(parent for parent in tmp_path.parents if not parent.stat().st_mode & 1)):
        folder.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    words = command("strict", "--mtp", "0", "--launcher", write_launcher(tmp_path), "--out", out)
    other = [user, "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*other, *command("--version")], check=False, capture_output=True, cwd="/").returncode:
        pytest.skip("another user can't run this installation")
    done = subprocess.run(
        [*other, *words], check=False, capture_output=True, text=True, cwd="/", env=environment(tmp_path), timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"bench: {out} can't hold a campaign (Permission denied); free space or choose another --out\n"
    )
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "flock"])
def test_69_file_system_without_the_hard_features(tmp_path: Path, call: str) -> None:
    """Played by the kernel's tracer: no sync of directories and files is no fault; no locks is one sentence."""
    tracer = shutil.which("strace")
    if tracer is None:
        pytest.skip("no strace to let a system call fail")
    error = {"fsync": "EINVAL", "flock": "ENOLCK"}[call]
    trace = [tracer, "-f", "-qq", "--seccomp-bpf", "-o", os.devnull, "-e", f"trace={call}"]
    words = command("strict", "--mtp", "0", "--launcher", write_launcher(tmp_path))
    done = subprocess.run(
        [*trace, "-e", f"inject={call}:error={error}", *words],
        check=False, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), timeout=120,
    )  # fmt: skip
    if call == "fsync":
        assert done.stderr == "" and done.returncode in (0, 1)
        (campaign,) = (tmp_path / "experiments").iterdir()
        evidence = json.loads((campaign / "evidence.json").read_text())
        assert [attempt["status"] for attempt in evidence["attempts"]] == ["complete", "complete"]
        assert bench("verify", campaign, cwd=tmp_path).code == 0
    else:
        assert done.returncode == 2
        (sentence,) = done.stderr.splitlines()
        assert sentence.endswith(
            "can't be locked (No locks available); choose an --out on a file system that has locks"
        )
