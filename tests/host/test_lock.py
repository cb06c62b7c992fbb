"""Locks that end with their process, between two real processes."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import BenchError
from harness.host import lock as lock_module
from harness.host.lock import Locks, card_locks

HOLD = """
import sys
from pathlib import Path
from harness.host.lock import Locks
with Locks([Path(name) for name in sys.argv[1:]]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(*paths: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the locks until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *map(str, paths)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_card_is_taken_once(tmp_path: Path) -> None:
    lock = tmp_path / "b70-bench-card-0.lock"
    with holder(lock) as other:
        words = rf"^b70-bench-card-0 is in use by another campaign \(pid {other.pid}\); wait for it, or stop it first$"
        with pytest.raises(BenchError, match=words), Locks([lock]):
            raise AssertionError("not reached")
        other.communicate("")
    with Locks([lock]):
        assert lock.read_text() == f"pid {os.getpid()}"


def test_killed_holder_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "card.lock"
    with holder(lock) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        with Locks([lock]):
            pass


def test_all_or_nothing(tmp_path: Path) -> None:
    """Of two cards one is taken: the free one is let go again."""
    free, taken = tmp_path / "a.lock", tmp_path / "b.lock"
    with holder(taken):
        with pytest.raises(BenchError, match=r"^b is in use"), Locks([taken, free]):
            raise AssertionError("not reached")
        with Locks([free]):
            pass


def test_directory_is_its_own_lock_and_keeps_its_name(tmp_path: Path) -> None:
    campaign = tmp_path / "2026-tp1-mtp3.2"
    campaign.mkdir()
    with holder(campaign):
        words = r"^2026-tp1-mtp3\.2 is in use by another campaign \(unnamed\)"
        with pytest.raises(BenchError, match=words), Locks([campaign]):
            raise AssertionError("not reached")
    with Locks([campaign, campaign]):
        assert list(campaign.iterdir()) == []


def test_a_listing_that_looks_for_a_moment_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends exactly within the wait, so that no clock decides the test."""
    listing = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(listing, fcntl.LOCK_SH | fcntl.LOCK_NB)
    waits: list[float] = []

    def ends(seconds: float) -> None:
        waits.append(seconds)
        os.close(listing)

    monkeypatch.setattr(lock_module, "sleep", ends)
    with Locks([tmp_path]):
        assert waits == [0.05]


def test_a_card_that_is_taken_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(lock_module, "sleep", waits.append)
    for path, count in ((tmp_path / "card.lock", 0), (tmp_path, 1)):
        with Locks([path]), pytest.raises(BenchError, match="is in use"), Locks([path]):
            raise AssertionError("not reached")
        assert len(waits) == count


def test_lock_that_can_not_be_opened(tmp_path: Path) -> None:
    (tmp_path / "link.lock").symlink_to(tmp_path / "target")
    with pytest.raises(BenchError, match=r"^lock link.lock can't be opened"), Locks([tmp_path / "link.lock"]):
        raise AssertionError("not reached")
    with pytest.raises(BenchError, match="No such file or directory"), Locks([tmp_path / "absent" / "x.lock"]):
        raise AssertionError("not reached")


def test_lock_file_of_another_user_is_lockable(tmp_path: Path) -> None:
    lock = tmp_path / "card.lock"
    lock.write_text("pid 1")
    lock.chmod(0o444)
    with Locks([lock]):
        assert lock.exists()


def test_cards_of_a_mask() -> None:
    assert card_locks(None) == []
    assert [path.name for path in card_locks("0,3")] == ["b70-bench-card-0.lock", "b70-bench-card-3.lock"]
