"""evidence.json of imported results: re-derived where raw rows exist, otherwise claimed by whoever published them."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from harness.evidence.schema import Model
from harness.measure.identity import Divergence

IMPORTED_SCHEMA = "b70-bench.imported/1"


class Basis(StrEnum):
    """Where an imported value comes from."""

    REDERIVED = "re-derived"
    """computed here from raw rows in the imported files"""
    CLAIMED = "claimed"
    """stands in an imported file; nothing here can check it"""


class Figure(Model):
    """One imported number."""

    value: float
    basis: Basis
    file: str
    """name under sources/"""
    field: str
    """where it stands in that file, dotted; of a re-derived one: what it was computed from"""
    claimed: float | None = None
    """what the file says where the value was re-derived; a difference is a problem"""


class SourceFile(Model):
    """One imported file, kept byte for byte under sources/."""

    name: str
    bytes: int
    sha256: str
    format: str
    """b70-lab.result.v1, strict-attempt, canaries, comparison, container-inspect, ladder, family, suite, unknown …"""


class NamedField(Model):
    """A field that says nothing, or something else than the rest of its file."""

    file: str
    field: str
    """dotted"""
    why: str
    """one sentence, "null" fields included"""


class ImportedServer(Model):
    """One server of an imported result."""

    label: str
    """mtp3-a, or as the file names it"""
    depth: int | None
    tensor_parallel: int | None
    class_balanced_median: Figure | None
    """tokens/s"""
    ttft_ms: Figure | None
    class_medians: dict[str, Figure] = Field(default_factory=dict)
    rows: int = 0
    """raw rows in the files"""


class ImportedRow(Model):
    """One raw row of an imported attempt: its rates are computed here, what the file says stands in ``claimed``."""

    server: str
    file: str
    prompt_id: str
    prompt_class: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    finish_reason: str | None
    ttft_ms: float | None
    tok_s_1_100: Figure | None
    """published metric, tokens/s"""
    tok_s_burst_exact: float | None
    """ours, tokens/s"""
    ids_sha256: str | None
    """of the complete id array as compact JSON; null when the file doesn't hold the whole array"""
    warnings: list[str] = Field(default_factory=list)


class ImportedSuite(Model):
    """A suite file that loads."""

    file: str
    suite_id: str
    version: int
    sha256: str
    prompts: int
    classes: dict[str, int]
    """prompts by class; empty for a ladder's suite"""


class ImportedGate(Model):
    """One gate of an imported result. A claimed pass is no pass of ours."""

    name: str
    """G1, G2, G3, canaries, cache-zero"""
    subject: str
    basis: Basis
    exact: int | None
    total: int | None
    passed: bool | None
    """null where the file doesn't say"""
    divergences: list[Divergence] = Field(default_factory=list)


class ImportedRung(Model):
    """One rung of an imported ladder."""

    rung: int
    tok_s: float | None
    exact: int | None
    """requests equal to their oracle, over all passes; null where only a word stands"""
    total: int | None
    withheld: bool | None
    """null where the file doesn't say whether it was exact"""
    divergence_bound: float | None = None
    """one-sided 95 % upper bound from the claimed counts, from 0 to 1"""
    note: str = ""


class ImportedLadder(Model):
    """A ladder of imported rungs, all claimed: the lab publishes no per-request rows."""

    label: str
    depth: int | None
    tensor_parallel: int | None
    classpad: bool | None
    stagger_ms: float | None
    rungs: list[ImportedRung]
    file: str


class ImportedDepthPoint(Model):
    """One claimed point of a long-context profile."""

    active_context_tokens: int
    depth: int
    tensor_parallel: int
    tok_s: float
    file: str


class ImportedEvidence(Model):
    """evidence.json of ``bench import``."""

    schema_version: Literal["b70-bench.imported/1"] = Field("b70-bench.imported/1", alias="schema")
    import_id: str
    kind: Literal["imported"] = "imported"
    conclusion: str
    """one sentence: what is here and on which basis; it begins with SIMULATED where a source says that it is"""
    simulated: bool = False
    """a source says that it is simulated: nothing in the import is a measurement"""
    not_publishable: list[str] = Field(default_factory=list)
    """why the writers of the sources may not publish them, one sentence each with its file"""
    sources: list[SourceFile]
    model: dict[str, Any] = Field(default_factory=dict)
    """repository, revision, quantization, as far as a file says"""
    image_id: str | None = None
    image: str | None = None
    """the tag or the words for it"""
    runtime: str | None = None
    suite_sha256: str | None = None
    hosts: list[str] = Field(default_factory=list)
    """boot ids and CPU models that the files name; no host name"""
    environment: dict[str, str | None] = Field(default_factory=dict)
    """as a file says that it ran; secrets dropped by name"""
    asked: dict[str, str] = Field(default_factory=dict)
    """variables that the importing user says were requested (``--asked``)"""
    servers: list[ImportedServer] = Field(default_factory=list)
    centers: dict[str, Figure] = Field(default_factory=dict)
    """by arm: mtp0, mtp3"""
    spreads: dict[str, float] = Field(default_factory=dict)
    """|a - b| / center by arm, of two servers of one campaign"""
    rows: list[ImportedRow] = Field(default_factory=list)
    suites: list[ImportedSuite] = Field(default_factory=list)
    gates: list[ImportedGate] = Field(default_factory=list)
    ladders: list[ImportedLadder] = Field(default_factory=list)
    depth_points: list[ImportedDepthPoint] = Field(default_factory=list)
    null_fields: list[NamedField] = Field(default_factory=list)
    stale_fields: list[NamedField] = Field(default_factory=list)
    """fields that contradict another field, another file or the rows, or that nothing here can check"""
    problems: list[str] = Field(default_factory=list)
    """what makes a value unusable, one sentence each: requested against applied, swap limit, a claim that isn't met"""
    unknown: list[str] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Imports from before these marks must keep their bytes, and those have neither.
        dumped: dict[str, Any] = handler(self)
        return {name: value for name, value in dumped.items() if value or name not in ("simulated", "not_publishable")}
