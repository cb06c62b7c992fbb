"""A family file on disk: replaced whole, with the mode it has."""

import contextlib
import os
import stat
from pathlib import Path

from harness.errors import BenchError


def save(path: Path, data: bytes) -> None:
    """Replace a family file whole and keep its mode; a new one gets the user's. Raises BenchError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        # Nobody else may read it before it has the mode of the file it replaces.
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(file, "wb") as out:
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise BenchError(
            f"{path.name} can't be written ({error.strerror}); free space, or make its folder writable"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
