"""One campaign per card, and one per directory (contract section 8): advisory locks that end with their process."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import sleep
from types import TracebackType

from harness.errors import BenchError

RETRY_S = 0.05
"""A listing holds the shared lock of a campaign directory for less, to see whether it is in use."""


class Locks:
    """A context that holds several locks, taken in sorted order; raises BenchError naming the one that is taken."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = sorted(set(paths))
        self._held: list[int] = []

    def __enter__(self) -> "Locks":
        try:
            for path in self._paths:
                self._take(path)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _take(self, path: Path) -> None:
        # A campaign directory is its own lock: it leaves no file behind that the manifest would have to explain.
        folder = path.is_dir()
        flags = os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT
        try:
            try:
                handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except PermissionError:  # made by another user: a lock needs no right to write
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise BenchError(f"lock {path.name} can't be opened ({error.strerror}); check its directory") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not folder:
                    raise
                sleep(RETRY_S)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = "" if folder else os.read(handle, 200).decode("utf-8", "replace").strip()
            os.close(handle)
            name = path.name if folder else path.stem
            raise BenchError(
                f"{name} is in use by another campaign ({holder or 'unnamed'}); wait for it, or stop it first"
            ) from None
        except OSError as error:
            os.close(handle)
            raise BenchError(
                f"{path.name} can't be locked ({error.strerror}); choose an --out on a file system that has locks"
            ) from None
        if not folder and not _is(path, handle):  # removed by a clean-up between the two calls: take the new one
            os.close(handle)
            self._take(path)
            return
        self._held.append(handle)
        if not folder:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"pid {os.getpid()}".encode(), 0)

    def _release(self) -> None:
        while self._held:
            os.close(self._held.pop())


def _is(path: Path, handle: int) -> bool:
    """Whether the file under that name is still the one that was opened."""
    try:
        now, opened = path.stat(follow_symlinks=False), os.fstat(handle)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)


def lock_folder(folder: Path | None = None) -> Path:
    """Where the cards' lock files stand: the same for every user of a host, unless a test says otherwise."""
    return Path(tempfile.gettempdir()) if folder is None else folder


def card_locks(cards: str | None, folder: Path | None = None) -> list[Path]:
    """Lock files of the cards in an affinity mask, e.g. ``"0,1"``; none for lanes without cards."""
    if cards is None:
        return []
    return [lock_folder(folder) / f"b70-bench-card-{card}.lock" for card in cards.split(",")]


def remove_free_locks(folder: Path | None = None) -> list[str]:
    """Remove lock files that no campaign holds; their names. A file of another user that can't be removed stays."""
    removed = []
    for path in sorted(lock_folder(folder).glob("b70-bench-card-*.lock")):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(path, handle):
                path.unlink()
                removed.append(path.name)
        except OSError:
            continue
        finally:
            os.close(handle)
    return removed
