"""What stands in evidence.json of a concurrency ladder (contract section 5); the rest is as in a strict campaign."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from harness.evidence.context_schema import ContextEvidence
from harness.evidence.schema import (
    AttemptStatus,
    ClientFacts,
    CompileLines,
    Evidence,
    Model,
    PowerUse,
    ServerProof,
    ServerRecord,
    Start,
    Status,
    as_recorded,
)
from harness.measure.gates import Gate
from harness.measure.ladder import Batch, Rung, RungClient
from harness.measure.metrics import Acceptance
from harness.measure.power import Throttled
from harness.workloads.canaries import CanaryVerdict

LADDER_SCHEMA = "b70-bench.ladder/1"


class Sequential(Model):
    """Every slot alone on one server."""

    slots: int
    """asked for"""
    answered: int
    """complete, with 128 ids"""
    problems: list[str]
    """incomplete or degenerate answers, one sentence each"""
    warnings: list[str]


class OracleFacts(Model):
    """Where the MTP0 sequential answers come from."""

    source: Literal["own", "server", "evidence"]
    """own: the ladder runs at MTP0; server: a fresh MTP0 server of this campaign; evidence: an earlier campaign's"""
    campaign_id: str | None = None
    """of the earlier campaign"""
    exact: int | None = None
    """slots whose depth-D sequential answer equals the oracle's, whole arrays; null for source own"""
    total: int | None = None


class RungPower(Model):
    """What the cards of this server drew while one rung ran, over the passes that count."""

    rung: int
    passes: list[int]
    """pass 1 is in it only where there is no other"""
    seconds: float
    """from the barrier to the last byte, added up"""
    joules: float | None
    mean_watts: float | None
    tokens: int
    tokens_per_joule: float | None
    throttled: Throttled
    notes: list[str]
    """why a figure is null"""


class RungLooks(Model):
    """What /metrics said while one rung's batches were open, over its passes on one server."""

    rung: int
    looks: int
    """answers that had a request running or waiting"""
    peak: int | None
    """most that ran at once at any look: the true peak or less; null without a look"""
    waiting: int | None
    """most that waited in the server's queue"""
    note: str
    """says so where the server runs fewer at a time than were asked; empty otherwise"""


class LadderAttempt(Model):
    """One server of a ladder: the MTP0 oracle, or the one whose rungs are measured."""

    label: str
    directory: str
    """under attempts/"""
    status: AttemptStatus
    error: str
    depth: int
    server: ServerRecord | None
    sequential: Sequential
    batches: list[Batch]
    """in the order sent"""
    clients: list[RungClient]
    """the client at each rung of this server"""
    canaries_before: CanaryVerdict | None
    canaries_after: CanaryVerdict | None
    pulses: int
    """short canaries that were right, one after each batch"""
    pulse_problems: list[str]
    acceptance: Acceptance | None
    client: ClientFacts | None
    power_use: PowerUse | None = None
    """from the first request of the sequential oracle to the end of the last batch"""
    rung_power: list[RungPower] = Field(default_factory=list)
    proof: ServerProof | None = None
    """null in evidence from before it was derived, and where the server never became ready"""
    compile_lines: CompileLines | None = None
    """null where no mark of the log was recorded"""
    rung_looks: list[RungLooks] = Field(default_factory=list)
    """empty where /metrics was not asked while batches were open"""
    gates: list[Gate]

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_recorded(handler(self), "power_use", "rung_power", "proof", "compile_lines", "rung_looks")


class LadderEvidence(Model):
    """evidence.json of a ladder campaign."""

    schema_version: Literal["b70-bench.ladder/1"] = Field("b70-bench.ladder/1", alias="schema")
    campaign_id: str
    kind: Literal["ladder"]
    status: Status
    exit_code: int
    conclusion: str
    """one sentence"""
    classification: Literal["output-identity-qualified", "harness-certified"] | None
    """every shown batch exact, cache zero and counts complete; certified is that word for a staggered run"""
    scope: str
    """what was measured, and ``Measured but withheld: …`` for rungs that may not be shown"""
    simulated: bool
    withheld: bool
    """true when any rung is withheld or a gate failed"""
    reasons: list[str]
    start: Start
    started_at: str
    """UTC"""
    ended_at: str | None
    resumed: list[str]
    passes_done: int
    """whole passes, over all servers of the measured depth"""
    rungs: list[Rung]
    oracle: OracleFacts
    gates: list[Gate]
    """between servers: ``oracle``"""
    attempts: list[LadderAttempt]
    unknown: list[str]


AnyEvidence = Evidence | LadderEvidence | ContextEvidence
"""evidence.json of any campaign"""
