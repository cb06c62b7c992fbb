"""A family file on its way to what the evidence gives: what is derived, what differs, what is kept."""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UsageError
from harness.publish.family_text import same

FORMAT = "neural-download-model-family-v1"

Path = tuple[str | int, ...]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


class _Revision(_Part):
    id: str
    label: str = ""
    repository: str | None = None
    revision: str | None = None
    model_sha256: str | None = None


class _Config(_Part):
    tp: int
    mtp: int
    graph: str = ""
    kv: str = ""
    configured_max_context_tokens: int = 0
    draft_head: str = ""


class _Metrics(_Part):
    decode_tok_s: list[float | int] = []
    ttft_ms: list[float | int] = []


class _Measurement(_Part):
    id: str
    state: str
    revision: str
    quantization: str
    runtime: str
    config: _Config
    variant: str = ""
    quality_scope: str = ""
    workload: str = ""
    metrics: _Metrics


class _Grade(_Part):
    grade: str
    evidence: list[str] = []


class _Grades(_Part):
    evidence: _Grade | None = None


class _Packet(_Part):
    id: str
    revision: str
    quantization: str
    topologies: list[int]
    coverage: list[str]
    grades: _Grades = _Grades()


class _Series(_Part):
    measurement_ids: list[str]
    x_from: str = ""


class _View(_Part):
    id: str
    series: list[_Series]


class _Axis(_Part):
    key: str


class _Cell(_Part):
    state: str
    label: str


class _CoverageView(_Part):
    id: str
    row_axis: _Axis
    column_axis: _Axis
    fixed_selectors: dict[str, Any]
    rows: list[str | int]
    columns: list[str | int]
    cells: dict[str, _Cell]


class _Family(_Part):
    """The parts of a family file that are read here; everything else in it is kept unread."""

    id: str
    updated_at: str
    dimensions: dict[str, list[Any]]
    weight_revisions: list[_Revision]
    run_measurements: list[_Measurement]
    packets: list[_Packet]
    views: list[_View]
    coverage_views: list[_CoverageView]


def checked(document: Any, name: str) -> dict[str, Any]:
    """The document as it is, when it is a family file. Raises UsageError in one sentence."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        said = document.get("format") if isinstance(document, dict) else None
        raise UsageError(f"{name} has format {repr(said)[:60]}, not {FORMAT!r}; give a family file")
    try:
        _Family.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"])
        raise UsageError(f"{name}: {where!a}: {first['msg'].lower()}; correct that value") from None
    for part in ("run_measurements", "packets", "weight_revisions"):
        ids = [item["id"] for item in document[part]]
        twice = next((item for item in ids if ids.count(item) > 1), None)
        if twice is not None:
            raise UsageError(f"{name}: {part} has the id {twice[:80]!a} twice; give each its own")
    return document


class Absent:
    """What stands where nothing does."""

    def __repr__(self) -> str:
        return "(not there)"


ABSENT = Absent()


@dataclass(frozen=True)
class Change:
    """One field whose value isn't what the evidence gives."""

    field: str
    file: Any
    evidence: Any
    why: str = ""

    def line(self) -> str:
        """``field: value in the file, value by the evidence``, on one line."""
        why = f" ({self.why})" if self.why else ""
        return f"{self.field}: {_short(self.file)} in the file, {_short(self.evidence)} by the evidence{why}"


def _short(value: Any) -> str:
    if value is ABSENT:
        return "not there"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    text = text if isinstance(value, str) or text.isascii() else ascii(value)
    return text if len(text) <= 240 else text[:240] + "…"


@dataclass
class Draft:
    """The file's document and what becomes of it."""

    file: dict[str, Any]
    doc: dict[str, Any] = field(init=False)
    derived: set[Path] = field(default_factory=set)
    no_evidence: dict[Path, str] = field(default_factory=dict)
    """what could be derived, and nothing given shows"""
    why: dict[Path, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)
    """what stands on imported claims alone, one sentence each"""

    def __post_init__(self) -> None:
        self.doc = copy.deepcopy(self.file)

    def put(self, path: Path, value: Any, why: str = "") -> None:
        """Set what the evidence gives at a path; an index beyond the end of a list appends."""
        parent: Any = self.doc
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, list) and path[-1] == len(parent):
            parent.append(value)
        else:
            parent[path[-1]] = value
        self.derived.add(path)
        if why:
            self.why[path] = why

    def changes(self) -> list[Change]:
        """Every difference, one a field."""
        return list(self._differences((), self.file, self.doc))

    def _differences(self, path: Path, old: Any, new: Any) -> Iterator[Change]:
        if same(old, new):
            return
        if isinstance(old, dict) and isinstance(new, dict):
            for key in [*new, *(key for key in old if key not in new)]:
                yield from self._differences((*path, key), old.get(key, ABSENT), new.get(key, ABSENT))
            return
        both = isinstance(old, list) and isinstance(new, list)
        if both and (len(old) == len(new) or any(isinstance(item, dict) for item in new)):
            for at in range(max(len(old), len(new))):
                left, right = (side[at] if at < len(side) else ABSENT for side in (old, new))
                yield from self._differences((*path, at), left, right)
            return
        why = next((self.why[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.why), "")
        yield Change(self.name(path), old, new, why)

    def name(self, path: Path) -> str:
        """``run_measurements[ID].metrics.decode_tok_s[0]``: list items by their id where they have one."""
        said, here = "", self.doc
        for key in path:
            here = _below(here, key)
            if isinstance(key, int):
                own = here.get("id") if isinstance(here, dict) else None
                said += f"[{own if isinstance(own, str) and own.isprintable() else key}]"
            elif re.fullmatch(r"[\w:/. -]+", key):
                said += f".{key}" if said else key
            else:
                said += f"[{key!a}]"
        return said

    def kept(self) -> list[str]:
        """What stands as it stood because nothing derives it, whole branches by one name."""
        return [self.name(path) for path in self._kept((), self.file)]

    def _kept(self, path: Path, value: Any) -> Iterator[Path]:
        if path in self.derived or path in self.no_evidence:
            return
        inside = any(known[: len(path)] == path for known in [*self.derived, *self.no_evidence])
        if not inside:
            yield path
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from self._kept((*path, key), item)
        elif isinstance(value, list):
            for at, item in enumerate(value):
                yield from self._kept((*path, at), item)


def _below(value: Any, key: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    return value[key] if isinstance(value, list) and isinstance(key, int) and key < len(value) else None
