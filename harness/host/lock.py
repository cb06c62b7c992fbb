"""One campaign per card, and one per directory (contract section 8): advisory locks that end with their process."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from harness.errors import BenchError


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
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = "" if folder else os.read(handle, 200).decode("utf-8", "replace").strip()
            os.close(handle)
            name = path.name if folder else path.stem
            raise BenchError(
                f"{name} is in use by another campaign ({holder or 'unnamed'}); wait for it, or stop it first"
            ) from None
        self._held.append(handle)
        if not folder:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"pid {os.getpid()}".encode(), 0)

    def _release(self) -> None:
        while self._held:
            os.close(self._held.pop())


def card_locks(cards: str | None) -> list[Path]:
    """Lock files of the cards in an affinity mask, e.g. ``"0,1"``; none for lanes without cards."""
    if cards is None:
        return []
    folder = Path(tempfile.gettempdir())
    return [folder / f"b70-bench-card-{card}.lock" for card in cards.split(",")]
