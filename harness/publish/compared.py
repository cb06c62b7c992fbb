"""The figures of a comparison, as values: each with its unit, both sides, the ratio and what must stand beside it."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from harness.measure.bootstrap import Ratio


class Value(BaseModel):
    """Base of a comparison's values."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Compared(Value):
    """One figure on both sides."""

    name: str
    a: float | None
    b: float | None
    unit: str
    """tokens/s or ms"""
    ratio: Ratio | None
    """B / A; null when a side has none"""
    marks_a: list[str]
    """what must stand beside A's value: simulated, attached, withheld, rejected, invalid, interrupted"""
    marks_b: list[str]
    why: str = ""
    """why there is no ratio, or no interval"""

    def mark(self) -> str:
        """`` (A simulated, B withheld)`` for a sentence that holds the ratio; empty when nothing must be said."""
        said = [f"{side} {mark}" for side, marks in (("A", self.marks_a), ("B", self.marks_b)) for mark in marks]
        return f" ({', '.join(said)})" if said else ""


class Identity(Value):
    """Whether A and B gave the same answers."""

    equal: int
    """prompts (slots of a rung) whose complete token-id arrays are equal on every server (in every pass) of both"""
    total: int
    """prompts that stand on either side"""
    differences: list[str]
    """where the others first differ, one sentence each"""


class Pair(Value):
    """One depth of two strict campaigns."""

    name: str
    """mtp3, or ``mtp3 in A, mtp4 in B``"""
    servers_a: int
    servers_b: int
    spread_a: float | None
    """|a - b| / center of A's two servers"""
    spread_b: float | None
    center: Compared
    ttft: Compared
    classes: list[Compared]
    """class medians, averaged over servers"""
    prompts: list[Compared]
    """rates of single prompts, averaged over servers; their intervals draw servers alone"""
    identity: Identity
    verdict: str
    """one sentence"""


class Rung(Value):
    """One number of concurrent users of two ladders."""

    rung: int
    rate: Compared
    """median of aggregate_tok_s_wall over passes 2 and later"""
    passes_a: int
    """in that median"""
    passes_b: int
    spread_a: float | None
    """(largest - smallest) / median of those passes; null with one"""
    spread_b: float | None
    exact_a: str
    """requests equal to their oracle of all, over all passes: ``95/96``"""
    exact_b: str
    withheld_a: bool
    """for its own miss, or because the whole ladder is held back"""
    withheld_b: bool
    identity: Identity
    verdict: str


def verdict(figure: Compared, spreads: Sequence[float | None], of: str) -> str:
    """``B is 1.034 times A (95 % 1.021 to 1.046), larger than the spread of a pair (0.4 %)``, with every mark.

    A difference counts as one when it is larger than the larger spread of the two sides; ``of`` names what spreads.
    """
    if figure.ratio is None:
        return f"{figure.name}: no ratio, {figure.why}"
    text = f"B is {figure.ratio.value:.3f} times A ({figure.ratio.interval()})"
    known = [spread for spread in spreads if spread is not None]
    if len(known) < len(spreads):
        said = f"{text}; the spread of {of} is unknown on a side, so nothing says whether that is a difference"
    elif abs(figure.ratio.value - 1) > max(known):
        said = f"{text}, larger than the spread of {of} ({max(known):.1%})"
        low, high = figure.ratio.low, figure.ratio.high
        if low is not None and high is not None and low <= 1 <= high:
            said += ", but the interval holds 1"
    else:
        said = f"no difference larger than the spread of {of} ({max(known):.1%}): {text}"
    return f"{figure.name}: {said}{figure.mark()}"
