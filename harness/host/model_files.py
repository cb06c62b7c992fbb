"""A model directory: its files hashed, its headers read, and both checked against a manifest (contract section 2)."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import BenchError, UsageError
from harness.model_shape import Tensor, architecture_of, elements, weights_of
from harness.models import Architecture, FileEntry, Manifest, Weights, combined_sha256
from harness.strangers import read_given, real

CONFIG, INDEX, SUFFIX = "config.json", "model.safetensors.index.json", ".safetensors"
MAX_HEADER = 100_000_000
"""bytes of a safetensors header, the format's own limit"""
MAX_JSON = 64 * 1024 * 1024
BLOCK = 1 << 20
SIZES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
"""bytes of an element by safetensors type; types of less than a byte are taken as their header says"""

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes of it that are read, and its size"""

Signature = tuple[int, int, int, int]


def quiet(_name: str, _done: int, _size: int) -> None:
    """A progress that says nothing."""


@dataclass(frozen=True)
class Listing:
    """The regular files of a directory, links followed, and what hinders the others."""

    files: dict[str, Signature]
    """by name, in the order they are hashed in: device, inode, size, time of last change"""
    problems: dict[str, str]
    """one sentence by name"""


def called(directory: Path) -> str:
    """The directory's name for a sentence."""
    return real(directory).name or str(directory)


def list_files(directory: Path) -> Listing:
    """Every file under ``directory``. A link to a regular file counts as that file, wherever it leads."""
    files: dict[str, Signature] = {}
    problems: dict[str, str] = {}

    def refused(error: OSError) -> None:
        where = Path(error.filename).relative_to(directory).as_posix()
        problems[where] = f"model folder {where} can't be read ({error.strerror}); check its permissions"

    for folder, folders, names in os.walk(directory, onerror=refused, followlinks=False):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for entry in [*names, *links]:
            path = Path(folder) / entry
            name = path.relative_to(directory).as_posix()
            try:
                name.encode()
                found = path.stat()
            except UnicodeEncodeError:
                problems[name] = f"model file {name!r} has a name that is not UTF-8; rename it"
            except FileNotFoundError:
                problems[name] = f"model file {name} is a dangling link; download the file or remove the link"
            except OSError as error:
                problems[name] = f"model file {name} can't be read ({error.strerror}); check it"
            else:
                if stat.S_ISREG(found.st_mode):
                    files[name] = _signature(found)
                elif stat.S_ISDIR(found.st_mode):
                    problems[name] = f"model file {name} is a link to a folder; put the files there, or remove the link"
                else:
                    problems[name] = f"model file {name} is a pipe, socket or device, not a file; remove it"
    ordered = sorted(files, key=lambda name: name.split("/"))
    return Listing({name: files[name] for name in ordered}, dict(sorted(problems.items())))


def _signature(found: os.stat_result) -> Signature:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def check_model_directory(directory: Path) -> None:
    """Raises UsageError for a path that can't hold a model's weights."""
    name = called(directory)
    if not directory.is_dir():
        raise UsageError(f"model directory {name} doesn't exist; give the directory of the weights")
    if not (directory / CONFIG).is_file():
        raise UsageError(f"model directory {name} has no config.json; give the directory of the weights")


def read_files(directory: Path, progress: Progress = quiet, listing: Listing | None = None) -> list[FileEntry]:
    """Size and sha256 of every file of a model directory.

    Raises UsageError for what can't be hashed, BenchError when the directory changes meanwhile.
    """
    check_model_directory(directory)
    before = list_files(directory) if listing is None else listing
    for sentence in before.problems.values():
        raise UsageError(sentence)
    files = [hash_file(directory, name, before.files[name], progress) for name in before.files]
    _unchanged(directory, before)
    return files


def _unchanged(directory: Path, before: Listing) -> None:
    now = list_files(directory)
    for name in sorted({*before.files, *now.files, *now.problems}):
        if before.files.get(name) != now.files.get(name):
            raise _changed(name)


def _changed(name: str) -> BenchError:
    return BenchError(f"model file {name} changed while it was read; wait until nothing writes there, then try again")


def hash_file(directory: Path, name: str, expected: Signature, progress: Progress = quiet) -> FileEntry:
    """One file. Raises UsageError when it can't be read, BenchError when it isn't what the listing said."""
    digest, done, size = hashlib.sha256(), 0, expected[2]
    block = memoryview(bytearray(BLOCK))
    try:
        with (directory / name).open("rb", buffering=0) as file:
            progress(name, 0, size)
            while count := file.readinto(block):
                digest.update(block[:count])
                done += count
                progress(name, done, size)
            if done != size or _signature(os.fstat(file.fileno())) != expected:
                raise _changed(name)
    except FileNotFoundError:
        raise _changed(name) from None
    except OSError as error:
        raise UsageError(f"model file {name} can't be read ({error.strerror}); check its permissions") from None
    return FileEntry(name=name, size=size, sha256=digest.hexdigest())


def pin(
    directory: Path, *, repository: str | None = None, revision: str | None = None, progress: Progress = quiet
) -> Manifest:
    """The manifest of a directory that the user trusts. Raises UsageError or BenchError in one sentence."""
    check_model_directory(directory)
    listing = list_files(directory)
    for sentence in listing.problems.values():
        raise UsageError(sentence)
    weights, architecture, missing = describe(directory, listing)
    files = read_files(directory, progress, listing)
    return Manifest(
        repository=repository,
        revision=revision,
        sha256=combined_sha256(files),
        files=files,
        weights=weights,
        architecture=architecture,
        missing=missing,
    )


def describe(directory: Path, listing: Listing) -> tuple[Weights | None, Architecture, dict[str, str]]:
    """What a decoding step reads, from config.json and the headers of the files that vLLM loads; raises UsageError."""
    config = _json_object(directory / CONFIG)
    names = [name for name in listing.files if name.endswith(SUFFIX) and "/" not in name]
    absent: dict[str, str] = {}
    if INDEX in listing.files:
        placed = _json_object(directory / INDEX).get("weight_map")
        listed = {str(name) for name in placed.values()} if isinstance(placed, dict) else set()
        gone = sorted(listed - set(names))
        if gone:
            raise UsageError(f"model file {gone[0]} is named in {INDEX} and missing; download it")
        names = [name for name in names if name in listed]
    tensors: dict[str, Tensor] = {}
    for name in names:
        for tensor in read_header(directory / name):
            tensors.setdefault(tensor.name, tensor)
    weights = weights_of(tensors.values(), config) if tensors else None
    if weights is None:
        absent["weights"] = "there is no safetensors file that could be read"
    architecture, missing = architecture_of(config, weights, tensors.values())
    return weights, architecture, {**absent, **missing}


def _json_object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(read_given(path, MAX_JSON, "model file", "get the original file"))
    except (ValueError, RecursionError):
        raise UsageError(f"model file {path.name} is not JSON; get the original file") from None
    if not isinstance(value, dict):
        raise UsageError(f"model file {path.name} is no JSON object; get the original file")
    return value


def read_header(path: Path) -> list[Tensor]:
    """The tensors of a safetensors file, from its header. Raises UsageError when the file isn't whole."""

    def broken(why: str) -> UsageError:
        return UsageError(f"model file {path.name} is no whole safetensors file ({why}); download it again")

    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise broken(f"its header would be {length} bytes of {size}")
            raw = json.loads(file.read(length))
    except OSError as error:
        raise UsageError(f"model file {path.name} can't be read ({error.strerror}); check its permissions") from None
    except (ValueError, RecursionError):
        raise broken("its header is not JSON") from None
    if not isinstance(raw, dict):
        raise broken("its header is no JSON object")
    held, tensors = size - 8 - length, []
    for name, entry in raw.items():
        if name != "__metadata__":
            tensor = _tensor(name, entry, held)
            if tensor is None:
                raise broken(f"the entry of {name[:80]!r} doesn't fit its {held} bytes of data")
            tensors.append(tensor)
    if sum(tensor.bytes for tensor in tensors) != held:
        raise broken(f"it holds {held} bytes of data and names {sum(tensor.bytes for tensor in tensors)}")
    return tensors


def _tensor(name: str, entry: Any, held: int) -> Tensor | None:
    """None when the entry can't be."""
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), _counts(entry.get("shape")), _counts(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        return None
    begin, end = offsets
    size = SIZES.get(dtype)
    if not begin <= end <= held or (size is not None and elements(shape) * size != end - begin):
        return None
    return Tensor(name, dtype, shape, end - begin)


def _counts(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and len(value) <= 64 and all(type(item) is int and item >= 0 for item in value):
        return tuple(value)
    return None


def check(directory: Path, manifest: Manifest, progress: Progress = quiet) -> list[str]:
    """Each missing, extra and changed file, one sentence each; empty when the directory is what the manifest says.

    Raises UsageError for a directory that can't be a model's, BenchError when it changes meanwhile.
    """
    check_model_directory(directory)
    listing = list_files(directory)
    problems = dict(quick_differences(listing, manifest))
    for entry in manifest.files:
        if entry.name in listing.files and entry.name not in problems:
            try:
                found = hash_file(directory, entry.name, listing.files[entry.name], progress)
            except UsageError as error:
                problems[entry.name] = str(error)
                continue
            if found != entry:
                problems[entry.name] = _other_content(found, entry)
    _unchanged(directory, listing)
    if not problems:
        weights, architecture, missing = describe(directory, listing)
        if (weights, architecture, missing) != (manifest.weights, manifest.architecture, manifest.missing):
            problems[""] = "what a step reads isn't what the files say; pin the directory again, with this version"
    return [problems[name] for name in sorted(problems)]


def quick_differences(listing: Listing, manifest: Manifest) -> dict[str, str]:
    """What differs by names and sizes alone, one sentence by name, before anything is hashed."""
    problems = dict(listing.problems)
    wanted = {entry.name: entry for entry in manifest.files}
    for name in wanted.keys() - listing.files.keys() - problems.keys():
        problems[name] = f"{name} is missing from the directory"
    for name, found in listing.files.items():
        if name not in wanted:
            problems[name] = f"{name} is not in the manifest"
        elif found[2] != wanted[name].size:
            problems[name] = f"{name} has {found[2]} bytes, the manifest says {wanted[name].size}"
    return dict(sorted(problems.items()))


def checked_files(directory: Path, manifest: Manifest, source: str, progress: Progress = quiet) -> list[FileEntry]:
    """``read_files`` of a directory that must be what a manifest says; ``source`` is the manifest's file name.

    Raises UsageError naming the first file that differs.
    """
    check_model_directory(directory)
    listing = list_files(directory)
    quick = quick_differences(listing, manifest)
    if quick:
        raise _refused(directory, source, next(iter(quick.values())), len(quick) - 1)
    files = read_files(directory, progress, listing)
    wanted = {entry.name: entry for entry in manifest.files}
    other = [_other_content(found, wanted[found.name]) for found in files if found != wanted[found.name]]
    if other:
        raise _refused(directory, source, other[0], len(other) - 1)
    return files


def _refused(directory: Path, source: str, first: str, more: int) -> UsageError:
    also = f" ({more} more differ)" if more else ""
    return UsageError(
        f"model directory {called(directory)} isn't what {source} says: {first}{also}; "
        "get the right files, or see all with bench model check"
    )


def _other_content(found: FileEntry, entry: FileEntry) -> str:
    return f"{entry.name} has other content: sha256 {found.sha256[:12]}…, the manifest says {entry.sha256[:12]}…"
