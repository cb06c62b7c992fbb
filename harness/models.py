"""Model manifests: what a model directory must hold, and what a decoding step reads of it (contract 2, "Model")."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

from pydantic import Field, ValidationError, model_validator

from harness.data import find
from harness.errors import UsageError
from harness.lanes import Strict
from harness.plan import canonical_json
from harness.strangers import parse_json, read_given

SCHEMA = "b70-bench.model/1"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Larger files are refused unread."""

Role = Literal["embedding", "layers", "lm_head", "mtp", "mtp_embedding", "mtp_head", "vision", "other"]

ROLES: dict[Role, str] = {
    "embedding": "one row a token",
    "layers": "every step, with the final norm",
    "lm_head": "every step",
    "mtp": "once for each drafted token",
    "mtp_embedding": "one row a drafted token",
    "mtp_head": "once for each drafted token",
    "vision": "never while text is decoded",
    "other": "not known, so not counted",
}
"""What each part of the weights is to a decoding step."""


class FileEntry(Strict):
    """One file of the model directory."""

    name: str
    """relative to the directory, with slashes"""
    size: int
    """bytes"""
    sha256: str


def combined_sha256(files: Iterable[FileEntry]) -> str:
    """One sha256 for a directory: over the list of (name, size, sha256), sorted by the parts of the name."""
    ordered = sorted(files, key=lambda file: file.name.split("/"))
    return hashlib.sha256(canonical_json([[f.name, f.size, f.sha256] for f in ordered]).encode()).hexdigest()


class Weights(Strict):
    """The tensors of the safetensors files that vLLM loads."""

    tensors: int
    bytes_by_role: dict[Role, dict[str, int]]
    """bytes as stored, by role and by the tensor's type as safetensors names it (BF16, I32, …)"""

    def of(self, role: Role) -> dict[str, int]:
        """Bytes by type; empty when there are none."""
        return self.bytes_by_role.get(role, {})

    def total(self, *roles: Role) -> int:
        """Bytes as stored."""
        return sum(sum(self.of(role).values()) for role in roles)


class Architecture(Strict):
    """What config.json says of a decoding step; null where it doesn't, with the reason under the manifest's missing."""

    model_type: str | None = None
    dtype: str | None = None
    """of the unquantized weights: bfloat16, float16, …"""
    quantization: str | None = None
    """quant_method of the files; null when they aren't quantized"""
    hidden_size: int | None = None
    vocab_size: int | None = None
    tied: bool | None = None
    """the head reads the embedding's matrix"""
    layers: int | None = None
    full_attention_layers: int | None = None
    """these keep keys and values of every token"""
    linear_attention_layers: int | None = None
    """these keep a state of fixed size"""
    mtp_layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_element_bytes: dict[str, int] | None = None
    """by --kv-cache-dtype"""
    kv_bytes_per_token: dict[str, int] | None = None
    """over all full-attention layers, by --kv-cache-dtype"""
    mtp_kv_bytes_per_token: dict[str, int] | None = None
    """of one MTP layer, by --kv-cache-dtype"""
    state_bytes: int | None = None
    """of all linear-attention layers, one sequence: recurrent and convolution state"""


class Manifest(Strict):
    """A model directory: its files, and what a decoding step reads of them."""

    schema_version: Literal["b70-bench.model/1"] = Field("b70-bench.model/1", alias="schema")
    repository: str | None = None
    """as whoever pinned it said"""
    revision: str | None = None
    sha256: str
    """over the sorted list of (name, size, sha256); equals the model's sha256 in evidence"""
    files: list[FileEntry] = Field(min_length=1)
    weights: Weights | None = None
    architecture: Architecture = Architecture()
    missing: dict[str, str] = Field(default_factory=dict)
    """what the files don't say, by its name above, and why"""

    @model_validator(mode="after")
    def _consistent(self) -> "Manifest":
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("a file is listed twice")
        for file in self.files:
            path = PurePosixPath(file.name)
            if path.is_absolute() or ".." in path.parts or str(path) != file.name or file.name == ".":
                raise ValueError(f"{file.name!r} is no name inside the directory")
            if file.size < 0 or len(file.sha256) != 64 or set(file.sha256) - set("0123456789abcdef"):
                raise ValueError(f"the size or the sha256 of {file.name!r} can't be")
        if combined_sha256(self.files) != self.sha256:
            raise ValueError("sha256 isn't the hash of the list of files, so the list was edited")
        return self

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.size for file in self.files)

    def as_json(self) -> dict[str, Any]:
        """What is written to a file."""
        return self.model_dump(mode="json", by_alias=True)


@dataclass(frozen=True)
class LoadedManifest:
    """A manifest and the file it came from."""

    manifest: Manifest
    name: str
    """the file's name, without its directory"""
    sha256: str
    """of the file's bytes"""


def load_manifest(name_or_path: str | Path) -> LoadedManifest:
    """Load ``models/NAME.json`` or the file at a path. Raises UsageError in one sentence."""
    word = str(name_or_path)
    path = Path(word) if Path(word).is_file() else find("models", word, ".json")

    def refuse(why: str) -> NoReturn:
        raise UsageError(f"model manifest {path.name} can't be used because {why}; write one with bench model pin")

    data = read_given(path, MAX_MANIFEST_BYTES, "model manifest", "give a manifest")
    raw = parse_json(data, refuse)
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != SCHEMA:
        raise UsageError(
            f"model manifest {path.name} has no schema {SCHEMA}, the one read here; write one with bench model pin"
        )
    try:
        return LoadedManifest(Manifest.model_validate(raw), path.name, hashlib.sha256(data).hexdigest())
    except ValidationError as error:
        raise UsageError(f"model manifest {path.name}: {_first(error)}; write one with bench model pin") from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return f"{where}: {said.lower()}" if where else said
