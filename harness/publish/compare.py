"""Two campaigns of one configuration, figure by figure: ratios B/A with intervals, exactness, gates, one verdict each.

Simulated and withheld evidence is compared like any other, and every figure carries its marks.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.errors import ExitCode, UsageError
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Evidence, Status
from harness.measure.gates import Gate
from harness.publish.campaigns import Campaign
from harness.publish.compare_held import attached, failed_gates, marks_of
from harness.publish.compare_ladder import compare_ladders
from harness.publish.compare_strict import compare_strict
from harness.publish.compared import Compared, Pair, Rung
from harness.publish.likeness import Difference, Likeness, check_names, likeness

INTERVALS = (
    "intervals are percentile bootstraps of 10,000 draws, seeded by the two campaign ids: servers are drawn again on "
    "each side, prompts within their classes, the same for both sides; a ladder's passes 2 and later"
)
TWO_SERVERS = (
    "with two servers a side a draw can only repeat those two, so an interval over servers is what two can give, and a "
    "third may lie outside it"
)
ONE_SERVER = "a ladder has one server a side: its intervals know the passes and nothing of other servers"


class Side(BaseModel):
    """One of the two campaigns."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    campaign_id: str
    directory: str
    """its name"""
    status: str
    conclusion: str
    marks: list[str]


class GateRow(BaseModel):
    """One gate on both sides."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    a: str
    b: str


class FailBelow(BaseModel):
    """What ``--fail-below`` found."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: float
    exit_code: int
    """1: a gate of B failed, or a point estimate is below the limit. 2: there is no verdict, because a side is invalid,
    interrupted, attached or simulated beside a measured one, because A's own gates failed, or a figure has no ratio. 0:
    none of these."""
    sentences: list[str]
    """what decides before any speed, then each figure"""


class Comparison(BaseModel):
    """Everything that ``bench compare`` says."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    a: Side
    b: Side
    kind: str
    subject: list[Difference]
    undeclared: list[Difference]
    idle: list[str]
    """declared to vary, and equal"""
    notes: list[str]
    pairs: list[Pair]
    rungs: list[Rung]
    gates: list[GateRow]
    intervals: list[str]
    """how they were made and what they can't know"""
    fail_below: FailBelow | None


def refusal(found: Likeness) -> list[str]:
    """Why A and B aren't compared, one sentence each; empty when they are."""
    return [
        *(item.sentence() for item in found.undeclared),
        *(f"{name} was declared with --vary and is equal in A and B: the same arm twice" for name in found.idle),
    ]


def like(a: Campaign, b: Campaign, vary: Sequence[str]) -> Likeness:
    """How alike they are. Raises UsageError for a wrong --vary, and for kinds that have no figure in common."""
    check_names(vary)
    kinds = [campaign.evidence.kind for campaign in (a, b)]
    if kinds[0] != kinds[1] or not isinstance(a.evidence, Evidence | LadderEvidence):
        raise UsageError(f"A is {kinds[0]} and B is {kinds[1]}; give two strict campaigns or two ladders")
    return likeness(a.evidence, b.evidence, vary)


def compare(a: Campaign, b: Campaign, found: Likeness, fail_below: float | None = None) -> Comparison:
    """All figures that both have. ``found`` is what ``like`` said of them."""
    one, two = a.evidence, b.evidence
    pairs, rungs = list[Pair](), list[Rung]()
    intervals = [INTERVALS]
    if isinstance(one, LadderEvidence) and isinstance(two, LadderEvidence):
        rungs = compare_ladders(one, two)
        intervals.append(ONE_SERVER)
    elif isinstance(one, Evidence) and isinstance(two, Evidence):
        pairs = compare_strict(one, two)
        intervals.append(TWO_SERVERS)
    return Comparison(
        a=_side(a),
        b=_side(b),
        kind=one.kind,
        subject=found.subject,
        undeclared=found.undeclared,
        idle=found.idle,
        notes=found.notes,
        pairs=pairs,
        rungs=rungs,
        gates=_gates(one, two),
        intervals=intervals,
        fail_below=None if fail_below is None else _fail_below(fail_below, one, two, pairs, rungs),
    )


def _side(campaign: Campaign) -> Side:
    evidence = campaign.evidence
    return Side(
        campaign_id=evidence.campaign_id,
        directory=campaign.directory.name,
        status=evidence.status,
        conclusion=evidence.conclusion.splitlines()[0],
        marks=marks_of(evidence),
    )


def _gates(a: AnyEvidence, b: AnyEvidence) -> list[GateRow]:
    """Gates between servers by their subject, those of each server as how many servers passed."""
    sides = [_gate_words(evidence) for evidence in (a, b)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    return [GateRow(name=name, a=sides[0].get(name, "–"), b=sides[1].get(name, "–")) for name in names]


def _gate_words(evidence: AnyEvidence) -> dict[str, str]:
    said: dict[str, str] = {}
    for gate in evidence.gates:
        count = "" if gate.total is None else f"{gate.exact}/{gate.total} "
        said[f"{gate.name} {gate.subject}"] = f"{count}{'passed' if gate.passed else 'FAILED'}"
    servers: dict[str, list[Gate]] = {}
    # An attempt that a later one replaced says nothing of what was measured.
    latest = {attempt.label: attempt for attempt in evidence.attempts} if isinstance(evidence, Evidence) else {}
    for attempt in latest.values() or evidence.attempts:
        for gate in attempt.gates:
            servers.setdefault(gate.name, []).append(gate)
    for name, gates in servers.items():
        passed = sum(gate.passed for gate in gates)
        said[f"{name}, each server"] = f"{passed}/{len(gates)} {'passed' if passed == len(gates) else 'FAILED'}"
    return said


def _fail_below(
    limit: float, a: AnyEvidence, b: AnyEvidence, pairs: Sequence[Pair], rungs: Sequence[Rung]
) -> FailBelow:
    """Gates first, because wrong answers are fast (contract section 9, 18); then every point estimate and the limit.

    A side that never came to a verdict gives none here either. The interval decides nothing; whether it holds the limit
    is said beside the verdict.
    """
    unfinished, wrong, unlike = _unfinished(a, b), _wrong(b), _incomparable(a, b)
    figures: list[Compared] = [*(pair.center for pair in pairs), *(rung.rate for rung in rungs)]
    said = [*unfinished, *wrong, *unlike]
    if a.simulated and b.simulated:
        said.append("SIMULATED: A and B are both simulated, so this is no measurement of any card")
    below, missing = False, not figures
    for figure in figures:
        if figure.ratio is None:
            missing = True
            said.append(f"{figure.name} has no ratio: {figure.why}")
            continue
        fails = figure.ratio.value < limit
        below |= fails
        low, high = figure.ratio.low, figure.ratio.high
        holds = low is not None and high is not None and low <= limit <= high
        doubt = f"; the interval holds {limit:g}, so another campaign could say otherwise" if holds else ""
        said.append(
            f"{figure.name}: {figure.ratio.value:.4f} is {'below' if fails else 'not below'} {limit:g} "
            f"({figure.ratio.interval()}){doubt}{figure.mark()}"
        )
    if not figures:
        said.append("A and B have no figure in common")
    if unfinished:
        code = ExitCode.INFRASTRUCTURE
    elif wrong:
        code = ExitCode.GATE_FAILED
    elif unlike:
        code = ExitCode.INFRASTRUCTURE
    else:
        code = ExitCode.GATE_FAILED if below else ExitCode.INFRASTRUCTURE if missing else ExitCode.OK
    return FailBelow(limit=limit, exit_code=code, sentences=said)


def _unfinished(a: AnyEvidence, b: AnyEvidence) -> list[str]:
    """Sides without a verdict of their own."""
    return [
        f"{side} is {evidence.status}, so it has no verdict and neither has this comparison: measure it again"
        for side, evidence in (("A", a), ("B", b))
        if evidence.status in (Status.STARTED, Status.INTERRUPTED, Status.INVALID)
    ]


def _wrong(b: AnyEvidence) -> list[str]:
    """B's failed gates in one sentence."""
    names = list(dict.fromkeys(f"{gate.name} of {gate.subject}" for gate in failed_gates(b)))
    if not names and b.status not in (Status.WITHHELD, Status.REJECTED):
        return []
    what = f"a gate of B failed ({', '.join(names)})" if names else f"B is {b.status}: {b.conclusion.splitlines()[0]}"
    return [f"{what}; its speed may not be published, so no ratio passes"]


def _incomparable(a: AnyEvidence, b: AnyEvidence) -> list[str]:
    """Why the ratio of two ended sides decides nothing."""
    said = [
        f"{side} was measured on a server that bench did not start, so its freshness isn't proven and no ratio passes"
        for side, evidence in (("A", a), ("B", b))
        if attached(evidence)
    ]
    if a.simulated != b.simulated:
        sides = ("A", "B") if a.simulated else ("B", "A")
        said.append(f"{sides[0]} is simulated and {sides[1]} is measured, so their ratio says nothing of any card")
    if _wrong(a):
        said.append("A's own gates failed, so there is no speed to hold B to: give an A that passed")
    return said


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The whole comparison, differences with their sentences."""
    said = comparison.model_dump(mode="json")
    for key in ("subject", "undeclared"):
        said[key] = differences_json(getattr(comparison, key))
    return said


def differences_json(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Each difference as an object."""
    return [
        {"name": item.name, "a": item.a, "b": item.b, "vary": list(item.vary), "sentence": item.sentence()}
        for item in differences
    ]
