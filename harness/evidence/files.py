"""Reading a file of a directory from anyone: a regular file, of bounded size, never waited for."""

import os
import stat
from pathlib import Path

from harness.errors import EvidenceError

FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""A pipe without a writer would keep an ordinary open waiting; a link would lead out of the directory"""


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes. Raises OSError, and EvidenceError in one sentence."""
    if path.is_symlink():
        raise EvidenceError(f"{path.name} is a link; a campaign holds regular files only, remove it")
    handle = os.open(path, FLAGS)
    with open(handle, "rb") as file:  # noqa: PTH123
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise EvidenceError(f"{path.name} is no regular file; a campaign holds regular files only, remove it")
        if found.st_size > limit:
            raise EvidenceError(f"{path.name} is larger than {limit >> 20} MiB; it is no evidence of ours")
        return file.read(limit + 1)
