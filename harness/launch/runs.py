"""Which process started a container, so that a later one can tell whether it still runs."""

import os
from pathlib import Path

from harness.launch import guard


def mark() -> str:
    """This process: boot id, process id namespace, pid and start in clock ticks; with them it is never mistaken.

    Parts that the host doesn't tell are "?".
    """
    entry = guard.stat(os.getpid())
    return f"{_boot()} {_namespace()} {os.getpid()} {'?' if entry is None else entry.started}"


def is_alive(run: str) -> bool | None:
    """Whether the process of a ``mark`` still runs; None when that can't be told from here."""
    words = run.split(" ")
    if len(words) != 4 or "?" in words or not (words[2].isdecimal() and words[3].isdecimal()):
        return None
    boot, namespace, pid, started = words[0], words[1], int(words[2]), int(words[3])
    if _boot() == "?" or _namespace() == "?":
        return None
    if boot != _boot():
        return False
    if namespace != _namespace() or not 0 < pid < 2**31:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it exists and is somebody else's
    entry = guard.stat(pid)
    if entry is None:
        return None  # hidden from this user, or just gone
    return entry.started == started and entry.alive


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or "?"
    except (OSError, ValueError):
        return "?"


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink()).replace(" ", "")
    except OSError:
        return "?"
