"""Two ladders, rung by rung: rates over passes, exact counts side by side, and whether their answers are equal."""

from collections import defaultdict
from collections.abc import Sequence

from harness.evidence.ladder_schema import LadderEvidence
from harness.evidence.schema import Status
from harness.measure.bootstrap import Ratio, ratio_of_medians, seed_of
from harness.measure.ladder import Rung as Measured
from harness.publish.compare_held import held, marks_of
from harness.publish.compared import Compared, Identity, Rung, verdict


def compare_ladders(a: LadderEvidence, b: LadderEvidence) -> list[Rung]:
    """Every rung that both have."""
    right = {rung.rung: rung for rung in b.rungs}
    return [_rung(a, b, rung, right[rung.rung]) for rung in a.rungs if rung.rung in right]


def rung_marks(evidence: LadderEvidence, rung: Measured) -> list[str]:
    """What must stand beside a rung's rate: its own miss, and whatever withholds the whole ladder."""
    marks = marks_of(evidence)
    if evidence.status not in (Status.PASSED, Status.WITHHELD):
        return marks
    marks = [mark for mark in marks if mark != "withheld"]
    return [*marks, "withheld"] if rung.withheld or held(evidence) == "withheld" else marks


def _shown_passes(rung: Measured) -> list[float]:
    """Rates of passes 2 and later; empty when one of them has none, as for the published rate."""
    shown = rung.tok_s_per_pass[0 if rung.warm_up_tok_s is None else 1 :]
    return [value for value in shown if value is not None] if rung.tok_s is not None else []


def _spread(passes: Sequence[float], middle: float | None) -> float | None:
    return (max(passes) - min(passes)) / middle if len(passes) > 1 and middle else None


def _rung(a: LadderEvidence, b: LadderEvidence, one: Measured, two: Measured) -> Rung:
    passes = [_shown_passes(rung) for rung in (one, two)]
    ratio: Ratio | None = None
    why = ""
    if passes[0] and passes[1]:
        ratio = ratio_of_medians(passes[0], passes[1], seed_of(a.campaign_id, b.campaign_id, f"c{one.rung}"))
    else:
        sides = " and ".join(side for side, found in zip("AB", passes, strict=True) if not found)
        why = f"{sides} has no published rate, which takes passes 2 and later"
    rate = Compared(
        name=f"c{one.rung}",
        a=one.tok_s,
        b=two.tok_s,
        unit="tokens/s",
        ratio=ratio,
        marks_a=rung_marks(a, one),
        marks_b=rung_marks(b, two),
        why=why,
    )
    spreads = [_spread(found, rung.tok_s) for found, rung in zip(passes, (one, two), strict=True)]
    return Rung(
        rung=one.rung,
        rate=rate,
        passes_a=len(passes[0]),
        passes_b=len(passes[1]),
        spread_a=spreads[0],
        spread_b=spreads[1],
        exact_a=f"{one.exact}/{one.total}",
        exact_b=f"{two.exact}/{two.total}",
        withheld_a=one.withheld or bool(held(a)),
        withheld_b=two.withheld or bool(held(b)),
        identity=_identity(a, b, one.rung),
        verdict=verdict(rate, spreads, "the passes"),
    )


def _answers(evidence: LadderEvidence, rung: int) -> dict[str, set[tuple[str, str]]]:
    """By slot: every (prompt, answer) of a rung, over passes and servers, as hashes; an incomplete answer is none."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for attempt in evidence.attempts:
        for batch in attempt.batches:
            if batch.rung == rung:
                for item in batch.requests:
                    found[item.slot].add((item.prompt_sha256, item.ids_sha256 if item.complete else ""))
    return found


def _identity(a: LadderEvidence, b: LadderEvidence, rung: int) -> Identity:
    """A slot is equal when both sides gave it one and the same complete answer in every pass."""
    left, right = _answers(a, rung), _answers(b, rung)
    names = list(dict.fromkeys([*left, *right]))
    equal, said = 0, []
    for name in names:
        one, two = left.get(name, set()), right.get(name, set())
        if one == two and len(one) == 1 and all(answer for _, answer in one):
            equal += 1
        elif {prompt for prompt, _ in one} != {prompt for prompt, _ in two}:
            said.append(f"{name} was another prompt on each side")
        else:
            said.append(f"{name} gave {len(one)} answers in A and {len(two)} in B, {len(one & two)} of them in both")
    return Identity(equal=equal, total=len(names), differences=said)
