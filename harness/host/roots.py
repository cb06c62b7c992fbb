"""Where a host is read: its real roots, or a written tree that stands for another host."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Roots:
    """Places of the kernel's files."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    kernel_log: Path | None = None
    """a file to read instead of the journal and dmesg"""
    locks: Path | None = None
    """folder of the cards' lock files; the system's own for temporary files when None"""

    @property
    def meminfo(self) -> Path:
        """What /proc/meminfo is."""
        return self.proc / "meminfo"
