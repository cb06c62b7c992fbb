"""A file of ours that can't be written, in one sentence: the cause decides what to do about it."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from harness.errors import RecordError

OUTPUT = "free space or choose another --out"
"""What to do for a file that a command gives away, where no campaign goes on"""

_FREE = "free space or choose another --out, then --resume"
_ADVICE = {
    errno.EROFS: "make its file system writable again (the kernel log may say why it isn't), then --resume",
    errno.EACCES: "give this user the right to write there, then --resume",
    errno.EPERM: "give this user the right to write there, then --resume",
    errno.ENOENT: "its directory was removed while the campaign ran, so start anew",
    errno.ENOTDIR: "its directory was replaced while the campaign ran, so start anew",
    errno.ESTALE: "its file system went away while the campaign ran; bring it back, then --resume",
    errno.EIO: "its disk fails (see the kernel log): copy what is there, and choose another --out",
}
LOCAL = (*_ADVICE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of errors that come from writing a file of this host, not from a connection"""
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EACCES)
"""What file systems say that have nothing to sync, or no sync of directories"""


def unwritable(path: Path, error: OSError, *, advice: str | None = None, label: str = "") -> RecordError:
    """The error to raise for ``path``; ``label`` of the server it belongs to stands before it."""
    what = f"{label}: {path.name}" if label else path.name
    return RecordError(f"{what} can't be written ({error.strerror or error}); {advice or _advice(path, error)}")


def _advice(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        with suppress(OSError):
            room = os.statvfs(path.parent)
            if room.f_files and not room.f_ffree:
                return (
                    "its file system takes no further file (df -i): remove some or choose another --out, then --resume"
                )
    return _ADVICE.get(error.errno or 0, _FREE)


def sync(handle: int) -> None:
    """``fsync``; a file system that has none is none of our faults. Raises OSError for a disk that fails or is full."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """The entries of a directory; one that can't be opened, or not synced, is left to the file system."""
    with suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(handle)
        finally:
            os.close(handle)
