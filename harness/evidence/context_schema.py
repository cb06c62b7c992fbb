"""What stands in evidence.json of a depth or probe campaign (contract section 7); the rest is as in a strict one."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from harness.evidence.schema import (
    AttemptStatus,
    ClientFacts,
    CompileLines,
    Model,
    PowerUse,
    ServerProof,
    ServerRecord,
    Start,
    Status,
    as_recorded,
)
from harness.measure.gates import Gate
from harness.measure.identity import Divergence
from harness.measure.metrics import Acceptance
from harness.measure.rows import Row
from harness.workloads.canaries import CanaryVerdict

CONTEXT_SCHEMA = "b70-bench.depth/1"


class ClassPoint(Model):
    """One content class at one context."""

    prompt_class: str
    prompt_id: str
    tok_s: float | None
    """published metric (contract section 3), tokens/s"""
    tok_s_burst_exact: float | None
    """tokens/s"""
    ttft_ms: float | None
    exact: bool | None
    """whether the whole array equals the MTP0 server's; null on the MTP0 server"""
    divergence: Divergence | None


class Point(Model):
    """One server at one context."""

    label: str
    """mtp0, mtp3, …"""
    depth: int
    """MTP depth"""
    context: int
    """prompt tokens"""
    tok_s: float | None
    """median of the classes, tokens/s; null unless every class has a rate"""
    tok_s_burst_exact: float | None
    """the same of the burst-exact rate"""
    ttft_ms: float | None
    """median of the classes, milliseconds"""
    exact: int | None
    """classes whose arrays equal the MTP0 server's; null on the MTP0 server"""
    total: int
    withheld: bool
    """measured, and not to be published"""
    why: list[str]
    classes: list[ClassPoint]


class Probe(Model):
    """One boundary probe on one server."""

    label: str
    prompt_id: str
    prompt_class: str
    what: str
    """1, 2, K, 1+K, 2+K or full; several where lengths coincide"""
    tokens: int
    """of the prompt"""
    max_tokens: int
    """asked for, and generated where nothing is wrong"""
    exact: bool | None
    """against the MTP0 server; null on it"""
    divergence: Divergence | None
    problems: list[str]
    """why it is no whole answer to the planned prompt, one sentence each"""
    degenerate: str | None
    """how the answer repeats itself; after a prompt of a token or two that may be the model's own"""


class ContextAttempt(Model):
    """All prompts with their canaries on one server."""

    label: str
    directory: str
    """under attempts/"""
    status: AttemptStatus
    error: str
    depth: int
    server: ServerRecord | None
    rows: list[Row]
    """``prompt_sha256`` is of the ids as canonical JSON; ``prompt_token_ids`` are null, they stand in prompts.json"""
    echoed: int
    """rows whose prompt ids the server returned as they were sent"""
    canaries_before: CanaryVerdict | None
    canaries_after: CanaryVerdict | None
    acceptance: Acceptance | None
    """between the first and the last prompt; null at MTP0 or when /metrics didn't say"""
    client: ClientFacts | None
    power_use: PowerUse | None = None
    """from the first prompt to the end of the last; null where telemetry was not recorded"""
    proof: ServerProof | None = None
    """null where the server never became ready"""
    compile_lines: CompileLines | None = None
    """null where no mark of the log was recorded"""
    gates: list[Gate]

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_recorded(handler(self), "power_use", "proof", "compile_lines")


class ContextEvidence(Model):
    """evidence.json of a depth or probe campaign."""

    schema_version: Literal["b70-bench.depth/1"] = Field("b70-bench.depth/1", alias="schema")
    campaign_id: str
    kind: Literal["depth", "probe"]
    status: Status
    exit_code: int
    conclusion: str
    """one sentence"""
    scope: str
    """what was measured, and ``Measured but withheld: …`` for contexts that may not be shown"""
    simulated: bool
    withheld: bool
    """true: some number of this campaign may not be published"""
    reasons: list[str]
    start: Start
    started_at: str
    """UTC"""
    ended_at: str | None
    resumed: list[str]
    points: list[Point]
    """of a depth campaign, by server and context, ascending; nothing is interpolated"""
    probes: list[Probe]
    """of a probe campaign"""
    gates: list[Gate]
    """between servers: ``context`` or ``probes``"""
    attempts: list[ContextAttempt]
    unknown: list[str]
