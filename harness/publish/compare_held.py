"""What holds a campaign back as a whole: no single pair, rung or context of it may then be shown as if it stood."""

from harness.evidence.context_schema import ContextEvidence
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Evidence, Status
from harness.measure.gates import Gate
from harness.publish.configuration import counting_gates

NO_VERDICT = "no verdict"


def attached(evidence: AnyEvidence) -> bool:
    """Whether it was measured on a server that bench did not start (contract section 3)."""
    return evidence.start.plan.engine == "attach"


def failed_gates(evidence: AnyEvidence) -> list[Gate]:
    """Of those that the campaign's status follows from."""
    return [gate for gate in counting_gates(evidence) if not gate.passed]


def held(evidence: AnyEvidence) -> str:
    """``withheld``, ``rejected`` or ``no verdict`` for all of it; empty where its parts speak for themselves.

    A ladder is withheld as a whole by a host fault, a canary or the oracle's gate, not by the miss of one rung. That
    something is simulated holds nothing back: it is marked.
    """
    if evidence.status is Status.REJECTED:
        return "rejected"
    if evidence.status not in (Status.PASSED, Status.WITHHELD) or attached(evidence):
        return NO_VERDICT
    if not isinstance(evidence, ContextEvidence) and failed_gates(evidence):
        return "withheld"
    if evidence.status is Status.PASSED:
        return ""
    if isinstance(evidence, Evidence):
        return "withheld"
    parts = evidence.rungs if isinstance(evidence, LadderEvidence) else evidence.points
    own = {why for part in parts if part.withheld for why in part.why}
    others = isinstance(evidence, LadderEvidence) and set(evidence.reasons) - own
    return "withheld" if others or not any(part.withheld for part in parts) else ""


def held_why(evidence: AnyEvidence) -> str:
    """One clause that says why ``held``: the first gate that failed, or the first reason."""
    failed = failed_gates(evidence)
    if failed:
        return failed[0].failures[0] if failed[0].failures else f"{failed[0].name} of {failed[0].subject} failed"
    if evidence.reasons:
        return evidence.reasons[0].splitlines()[0]
    if attached(evidence):
        return "bench did not start this server, so its freshness isn't proven"
    return f"the campaign is {evidence.status}"


def marks_of(evidence: AnyEvidence) -> list[str]:
    """What must stand beside every number of a campaign."""
    marks = ["simulated"] if evidence.simulated else []
    marks += ["attached"] if attached(evidence) else []
    return marks if evidence.status is Status.PASSED else [*marks, evidence.status.value]
