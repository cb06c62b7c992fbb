"""Everything a killed campaign may leave: containers, compile caches, half-written files, lock files."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from docker import DockerClient

from harness.attempt import CACHES
from harness.errors import BenchError, EvidenceError, LaunchError
from harness.evidence import journal
from harness.host.lock import remove_free_locks
from harness.launch.docker import connect
from harness.leftovers import Leftover, find_leftovers, remove

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Item:
    """One thing that was found."""

    what: str
    campaign: str
    """empty where it belongs to none"""
    state: Literal["removed", "would go", "kept", "stuck"]
    """stuck: it should go and couldn't be removed"""
    why: str

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def clean(
    out: Path, *, only: Sequence[str] = (), dry_run: bool, progress: Progress, locks: Path | None = None
) -> list[Item]:
    """Remove what belongs to campaigns that aren't running; list what is kept, and why.

    ``only`` names the campaigns to look at; empty means all, and the lock files of cards too.
    A campaign's caches go only once it has no container any more, because a container may still write there.
    """
    items, docker = list[Item](), True
    try:
        client = connect()
        try:
            items += _containers(client, out, only, dry_run, progress)
        finally:
            client.close()
    except LaunchError as error:
        items.append(Item("containers", "", "kept", str(error)))
        docker = False
    still = {item.campaign for item in items if item.state in ("kept", "stuck")}
    for directory in sorted(out.iterdir()) if out.is_dir() else []:
        if (directory / journal.NAME).is_file() and (not only or directory.name in only):
            items += _files(directory, still, docker=docker, dry_run=dry_run)
    if not dry_run and not only:
        items += [Item(name, "", "removed", "no campaign holds it") for name in remove_free_locks(locks)]
    return items


def _containers(client: DockerClient, out: Path, only: Sequence[str], dry_run: bool, progress: Progress) -> list[Item]:
    home, items = out if out.is_dir() else None, []
    for left in find_leftovers(client, out=home):
        if only and left.campaign not in only:
            continue
        what = f"container {left.id[:12]} ({left.label})"
        if left.campaign_running is not False:
            items.append(Item(what, left.campaign, "kept", left.why))
        elif dry_run:
            items.append(Item(what, left.campaign, "would go", left.why))
        else:
            if left.container_running:
                progress(f"stopping {what} of {left.campaign}, which may take three minutes")
            items.append(_remove(client, left, home, what))
    return items


def _remove(client: DockerClient, left: Leftover, out: Path | None, what: str) -> Item:
    try:
        gone = remove(client, left, out=out)
    except BenchError as error:
        return Item(what, left.campaign, "kept", str(error))
    if gone:
        return Item(what, left.campaign, "removed", left.why)
    return Item(what, left.campaign, "stuck", "Docker didn't remove it; look at Docker's log")


def _files(directory: Path, still: set[str], *, docker: bool, dry_run: bool) -> list[Item]:
    """Caches and half-written files of one campaign, removed while its lock is held, so that none can begin."""
    caches = directory / CACHES
    partial = [path for path in sorted(directory.rglob(".*.tmp")) if path.is_file() and not path.is_symlink()]
    if not caches.is_dir() and not partial:
        return []
    name, what = directory.name, "compile caches" if caches.is_dir() else "half-written files"
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return [Item(what, name, "kept", f"its directory can't be opened ({error.strerror})")]
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return [Item(what, name, "kept", "its campaign directory is in use")]
        if name in still or (not docker and _engine(directory) == "docker"):
            return [Item(what, name, "kept", "a container of this campaign may still write there")]
        if dry_run:
            return [Item(what, name, "would go", "no campaign uses its directory")]
        shutil.rmtree(caches, ignore_errors=True)
        for path in partial:
            with contextlib.suppress(OSError):
                path.unlink()
        if caches.exists():
            return [Item(what, name, "stuck", "it holds files of a container's root; remove caches/ there as root")]
        return [Item(what, name, "removed", "no campaign uses its directory")]
    finally:
        os.close(handle)


def _engine(directory: Path) -> str:
    """Which engine the campaign has; docker where that can't be told, which is the careful answer."""
    try:
        start = journal.load(directory)[0].start or {}
        return str(start["plan"]["engine"])
    except (EvidenceError, LookupError, TypeError):
        return "docker"
