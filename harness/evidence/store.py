"""The campaign directory: creation, atomic replacement, the manifest, the cache listings."""

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from harness.errors import EvidenceError
from harness.evidence.files import read_regular
from harness.evidence.schema import CacheListing
from harness.plan import CACHE_VARIABLES
from harness.unwritable import sync, sync_folder, unwritable

EVIDENCE = "evidence.json"
MANIFEST = "manifest.json"
SEAL, KEYLESS_SEAL = "seal.dsse.json", "seal.sigstore.json"
"""Signed over the manifest, so that they can't stand in it"""
SUITE = "suite.json"
ATTEMPTS = "attempts"
CAPTURE = "capture.jsonl.zst"
SERVER = "server.json"
LOG = "server.log"
TELEMETRY = "telemetry.jsonl"
MAX_JSON = 256 * 1024 * 1024
MAX_FILE = 2 * 1024 * 1024 * 1024
MAX_FILES = 20_000
"""A directory from anyone is read whole, so its size is bounded; a campaign has some twenty files"""


def write_atomic(
    path: Path,
    data: bytes,
    *,
    keep_mode: bool = False,
    advice: str | None = None,
) -> None:
    """Replace a file whole: readers see the old or the new one, also after a power cut. Raises RecordError.

    ``keep_mode``: a file of the user's own keeps its mode. ``advice`` ends the error's sentence; without it that is for
    a file of a campaign.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if keep_mode and path.exists() else None
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if keep_mode else os.O_TRUNC)
        # Nobody else may read it before it has the mode of the file it replaces.
        with os.fdopen(os.open(temporary, flags, 0o666 if mode is None else 0o600), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error, advice=advice) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def dump_json(value: object) -> bytes:
    """The one way evidence is written: UTF-8, indented, no NaN."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path, limit: int = MAX_JSON) -> Any:
    """Bounded, strict JSON of a regular file. Raises EvidenceError in one sentence."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(read_regular(path, limit), parse_constant=refuse)
    except OSError as error:
        raise EvidenceError(f"{path.name} can't be read ({error.strerror}); check the directory") from None
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{path.name} is not whole JSON ({error}); get the original file") from None


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def campaign_files(directory: Path) -> dict[str, Path]:
    """Regular files by relative POSIX name. Raises EvidenceError for links and other things that aren't files."""
    found: dict[str, Path] = {}
    for folder, folders, files in os.walk(directory, followlinks=False):
        folders[:] = sorted(name for name in folders if (Path(folder), name) != (directory, "caches"))
        for name in [*files, *folders]:
            path = Path(folder) / name
            mode = path.lstat().st_mode
            relative = path.relative_to(directory).as_posix()
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise EvidenceError(f"{relative} is a link or a device; a campaign holds regular files only, remove it")
            if not (name.startswith(".") and name.endswith(".tmp")):
                found[relative] = path
                if path.lstat().st_size > MAX_FILE:
                    raise EvidenceError(f"{relative} is larger than {MAX_FILE >> 30} GiB; it is no evidence of ours")
                if len(found) > MAX_FILES:
                    raise EvidenceError(f"there are more than {MAX_FILES} files; this is no campaign directory")
    return dict(sorted(found.items()))


def build_manifest(directory: Path) -> dict[str, Any]:
    """sha256 and size of every file of the campaign, but the manifest itself and its seal."""
    apart = (MANIFEST, SEAL, KEYLESS_SEAL)
    files = {name: path for name, path in campaign_files(directory).items() if name not in apart}
    entries = {name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in files.items()}
    return {"schema": "b70-bench.manifest/1", "files": entries}


def write_manifest(directory: Path) -> None:
    """Write manifest.json, last."""
    write_atomic(directory / MANIFEST, dump_json(build_manifest(directory)))


def list_caches(cache: Path) -> CacheListing:
    """Files under one server's cache directory; the process engine's home and tmp count too, nothing is skipped."""
    folders = dict.fromkeys(CACHE_VARIABLES.values(), 0)
    size = 0
    for root, _, files in os.walk(cache, followlinks=False):
        relative = Path(root).relative_to(cache).parts
        top = relative[0] if relative else "."
        for name in files:
            folders[top] = folders.get(top, 0) + 1
            size += (Path(root) / name).lstat().st_size
    return CacheListing(entries=sum(folders.values()), bytes=size, folders=folders)
