"""Waiting for host memory before a server starts (contract section 8)."""

import time
from collections.abc import Callable
from pathlib import Path

from harness.errors import LaunchError

WAIT_S = 300.0
POLL_S = 1.0


def wait_for_memory(
    needed: int, progress: Callable[[str], None], *, meminfo: Path = Path("/proc/meminfo"), wait_s: float = WAIT_S
) -> None:
    """Wait until MemAvailable reaches ``needed`` bytes, at most ``wait_s`` seconds. Raises LaunchError.

    A host that doesn't say how much is available isn't waited for.
    """
    deadline = time.monotonic() + wait_s
    while True:
        available = _available(meminfo)
        if available is None or available >= needed:
            return
        if time.monotonic() >= deadline:
            raise LaunchError(
                f"only {available / 2**30:.1f} GiB of memory are available after {wait_s:g} s, the launcher "
                f"wants {needed / 2**30:.1f} GiB; end other programs"
            )
        progress(f"waiting for memory, {available / 2**30:.1f} of {needed / 2**30:.1f} GiB available")
        time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError, IndexError):
        return None
