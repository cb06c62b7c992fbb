"""The derived index of a directory of campaigns, as a file: a cache that may be lost, never a second truth."""

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

INDEX = ".bench-index.json"
SCHEMA = "b70-bench.index/1"
"""Raised whenever an entry would be read in another way"""
MAX_INDEX = 64 * 1024 * 1024
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Not blocking: a pipe of a known name would hold the list for ever"""


def json_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(data)
        return value if isinstance(value, dict) else None
    return None


def load_index(directory: Path) -> dict[str, Any]:
    """(key, entry) by name; empty when there is no index or it can't be used."""
    path = directory / INDEX
    try:
        handle = os.open(path, READ)
        with open(handle, "rb") as file:  # noqa: PTH123
            about = os.fstat(handle)
            raw = json_object(file.read()) if stat.S_ISREG(about.st_mode) and about.st_size <= MAX_INDEX else None
    except OSError:
        return {}
    entries = raw.get("entries") if raw is not None and raw.get("schema") == SCHEMA else None
    if not isinstance(entries, dict):
        return {}
    return {name: item for name, item in entries.items() if isinstance(item, list) and len(item) == 2}


def write_index(directory: Path, entries: dict[str, Any]) -> None:
    """Replace the index whole. A directory that can't be written simply has none."""
    temporary = directory / f"{INDEX}.{os.getpid()}.tmp"
    text = json.dumps({"schema": SCHEMA, "entries": entries}, ensure_ascii=True, separators=(",", ":"))
    with contextlib.suppress(OSError):
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with open(handle, "wb") as file:  # noqa: PTH123
                file.write(text.encode())
            os.replace(temporary, directory / INDEX)  # noqa: PTH105
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
