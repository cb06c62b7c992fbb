"""Containers that a killed campaign left behind: found by label, removed only when their campaign isn't running.

(contract section 8)
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from harness.errors import BenchError, LaunchError, UsageError
from harness.launch.container import Container, Ours
from harness.launch.docker import connect, list_ours, remove_ours
from harness.launch.runs import is_alive

LATE_S = 3.0
"""How long a container is waited for that a killed process had asked for"""
YOUNG_S = 60.0
"""Age up to which a cache directory may belong to such a container"""


@dataclass(frozen=True)
class Leftover:
    """A container of ours, which may still be in use."""

    id: str
    campaign: str
    label: str
    """of its server: mtp0-a and so on"""
    container_running: bool
    campaign_running: bool | None
    """null when it can't be told from here; then it is not removed"""
    why: str
    """how ``campaign_running`` is known, or why it isn't"""


def is_running(campaign: str, containers: Sequence[Ours], out: Path | None = None) -> tuple[bool | None, str]:
    """Whether a campaign still runs, and how that is known. ``containers``: all of ours; ``out``: where campaigns are.

    It runs while a process that started one of its containers lives, or while its directory is locked (a campaign that
    was resumed by another process). It does not when all those processes are gone. Else it can't be told.
    """
    alive = [is_alive(container.run) for container in containers if container.campaign == campaign]
    if True in alive:
        return True, "the process that started it is running"
    locked = None if out is None else _locked(out / campaign)
    if locked:
        return True, "its campaign directory is in use"
    if not alive or None in alive:
        return None, "whether the process that started it is running can't be told from here"
    if locked is None and out is not None and (out / campaign).is_dir():
        return None, "whether its campaign directory is in use can't be told by this user"
    return False, "the process that started it has ended"


def find_leftovers(client: DockerClient, *, out: Path | None = None) -> list[Leftover]:
    """Every container with our label, by campaign and label. Raises LaunchError when Docker doesn't answer."""
    ours = list_ours(client)
    verdicts = {campaign: is_running(campaign, ours, out) for campaign in {container.campaign for container in ours}}
    return sorted(
        (
            Leftover(
                container.id, container.campaign, container.label, container.running, *verdicts[container.campaign]
            )
            for container in ours
        ),
        key=lambda left: (left.campaign, left.label, left.id),
    )


def remove(
    client: DockerClient, leftover: Leftover, *, out: Path | None = None, stop_s: float = 180, gone_s: float = 120
) -> bool:
    """Stop and remove one, after looking again; one that is gone meanwhile is gone. Returns whether it is gone.

    Raises UsageError when its campaign is running or may be, and for a container that isn't ours.
    """
    now = next((left for left in find_leftovers(client, out=out) if left.id == leftover.id), None)
    if now is None:
        look = Container(client, leftover.id).look()
        if look == "unreachable":
            raise LaunchError("the Docker engine doesn't answer; look at Docker's log")
        if look != "gone":
            raise UsageError(f"container {leftover.id[:12]} is not one of ours; it is left alone")
        return True
    if now.campaign_running is not False:
        raise UsageError(
            f"container {now.id[:12]} belongs to campaign {now.campaign}, and {now.why}; "
            "end that campaign first, or remove the container by hand"
        )
    return remove_ours(client, now.id, stop_s=stop_s, gone_s=gone_s)


def wait_for_late(client: DockerClient, campaign: str, caches: Path) -> None:
    """Docker goes on with what a killed process had asked for: wait for a container that may not be there yet.

    Only where a server's cache directory was made moments ago (``caches`` holds it until its server is gone) and no
    container of the campaign is there. Raises LaunchError when Docker doesn't answer.
    """
    deadline = time.monotonic() + LATE_S
    while _is_young(caches) and time.monotonic() < deadline:
        if any(container.campaign == campaign for container in list_ours(client)):
            return
        time.sleep(0.1)


def _is_young(caches: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(abs(time.time() - entry.stat().st_mtime) < YOUNG_S for entry in os.scandir(caches))
    return False


def reap(engine: str, campaign: str, caches: Path, note: Callable[[str], None]) -> None:
    """Before a resume that holds the campaign's directory: end the containers that its killed runs left.

    Raises BenchError when one can't be removed, because it would hold the card; one whose process may live is kept.
    """
    if engine != "docker":
        return
    client = connect()
    try:
        wait_for_late(client, campaign, caches)
        for container in list_ours(client):
            if container.campaign != campaign:
                continue
            if is_alive(container.run) is not False:
                note(f"container {container.id[:12]} of this campaign is kept: its process may still run")
                continue
            note(f"removing container {container.id[:12]} ({container.label}), which a killed run left")
            if not remove_ours(client, container.id):
                raise BenchError(
                    f"container {container.id[:12]} of this campaign can't be removed; remove it by hand, then resume"
                )
    finally:
        client.close()


def _locked(directory: Path) -> bool | None:
    """Whether a campaign holds its directory; None when there is none, or it can't be opened.

    A shared lock, held for a moment: two that look at once don't see each other.
    """
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False
