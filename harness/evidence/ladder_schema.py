"""What stands in evidence.json of a concurrency ladder (contract section 5); the rest is as in a strict campaign."""

from typing import Literal

from pydantic import Field

from harness.evidence.schema import AttemptStatus, ClientFacts, Evidence, Model, ServerRecord, Start, Status
from harness.measure.gates import Gate
from harness.measure.ladder import Batch, Rung, RungClient
from harness.measure.metrics import Acceptance
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
    gates: list[Gate]


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


AnyEvidence = Evidence | LadderEvidence
"""evidence.json of any campaign"""
