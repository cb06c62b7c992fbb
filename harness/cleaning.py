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
from harness.evidence import journal, store
from harness.evidence.files import read_regular
from harness.evidence.ladder import ORACLE
from harness.evidence.prompts import TEXTS
from harness.host.lock import remove_free_locks
from harness.launch.docker import connect
from harness.leftovers import Leftover, find_leftovers, remove, wait_for_late

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
    ours = [entry for entry in sorted(out.iterdir()) if _is_campaign(entry)] if out.is_dir() else []
    ours = [directory for directory in ours if not only or directory.name in only]
    try:
        client = connect()
        try:
            for directory in ours:
                if (directory / CACHES).is_dir() and _may_have_containers(directory):
                    wait_for_late(client, directory.name, directory / CACHES)
            items += _containers(client, out, only, dry_run, progress)
        finally:
            client.close()
    except LaunchError as error:
        # Whether a container of theirs is left is unknown, which is never said to be clean.
        may_be_left = any(_may_have_containers(directory) for directory in ours)
        items.append(Item("containers", "", "stuck" if may_be_left else "kept", str(error)))
        docker = False
    still = {item.campaign for item in items if item.state in ("kept", "stuck")}
    for directory in ours:
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


def _is_campaign(entry: Path) -> bool:
    """Whether it is the directory of a campaign, or of one that was ended before anything was recorded."""
    return not entry.is_symlink() and ((entry / journal.NAME).is_file() or _never_began(entry))


def _never_began(directory: Path) -> bool:
    """Whether it has the name of a campaign, no whole line of a journal, and nothing but what stands before that."""
    if not journal.CAMPAIGN.match(directory.name):
        return False
    try:
        others = {entry.name for entry in directory.iterdir() if not _is_partial(entry)}
        if not others <= {journal.NAME, store.SUITE, TEXTS, ORACLE}:
            return False
        return b"\n" not in read_regular(directory / journal.NAME, journal.MAX_BYTES)
    except FileNotFoundError:
        return directory.is_dir()
    except (OSError, EvidenceError):
        return False


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp") and path.is_file() and not path.is_symlink()


def _files(directory: Path, still: set[str], *, docker: bool, dry_run: bool) -> list[Item]:
    """Caches and half-written files of one campaign, removed while its lock is held, so that none can begin.

    The whole directory where nothing was recorded in it.
    """
    caches, empty = directory / CACHES, _never_began(directory)
    partial = [path for path in sorted(directory.rglob(".*.tmp")) if _is_partial(path)]
    if not caches.is_dir() and not partial and not empty:
        return []
    name, what = directory.name, "compile caches" if caches.is_dir() else "half-written files"
    if empty:
        what = "directory without a record"
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return [Item(what, name, "kept", f"its directory can't be opened ({error.strerror})")]
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return [Item(what, name, "kept", "its campaign directory is in use")]
        if name in still or (not docker and _may_have_containers(directory)):
            return [Item(what, name, "kept", "a container of this campaign may still write there")]
        if empty and not _never_began(directory):  # it has begun before its lock was taken here
            return []
        if dry_run:
            return [Item(what, name, "would go", "no campaign uses its directory")]
        shutil.rmtree(directory if empty else caches, ignore_errors=True)
        if empty:
            return [Item(what, name, "removed" if not directory.exists() else "stuck", "nothing was recorded in it")]
        for path in partial:
            with contextlib.suppress(OSError):
                path.unlink()
        if caches.exists():
            return [Item(what, name, "stuck", "it holds files of a container's root; remove caches/ there as root")]
        return [Item(what, name, "removed", "no campaign uses its directory")]
    finally:
        os.close(handle)


def _may_have_containers(directory: Path) -> bool:
    """Whether its servers are containers; yes where that can't be told, and no before its journal has a line."""
    if _never_began(directory):
        return False
    try:
        start = journal.load(directory)[0].start or {}
        return bool(start["plan"]["engine"] == "docker")
    except (EvidenceError, LookupError, TypeError):
        return True
