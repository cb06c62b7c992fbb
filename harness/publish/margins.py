"""How far apart two ids are for a server: exact tie, near tie, or a real difference. Pure."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

NEAR_TIE = 0.125
"""Nats up to which two ids are a near tie. A difference of log-probabilities is one of logits, and bfloat16 keeps 8
significant bits: between 16 and 32, where the largest logit of a vocabulary tends to lie, two neighbouring values are
2**(4-7) = 0.125 apart. So this is the least difference that bfloat16 can show there, and eight steps of float16, as
much as another order of summation over the layers moves. One rounding there can't turn a larger gap."""

Way = Literal["decoded", "in one piece"]
Kind = Literal["exact tie", "near tie", "real difference", "unknown"]


class Frozen(BaseModel):
    """Base of what an explanation holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Candidate(Frozen):
    """One id that a server put among its likeliest."""

    id: int
    text: str | None
    """null where the server gave no text that is the id's alone"""
    logprob: float
    """natural logarithm"""


class Said(Frozen):
    """What the asked server answered to the exact prefix of a site."""

    chosen: int
    """its own greedy id"""
    top: list[Candidate]
    """the likeliest first"""
    named: list[Candidate] = []
    """ids below the top that it was asked for by name"""


class Margin(Frozen):
    """How far apart the two ids of a site are for the asked server."""

    way: Way
    """how the server came to the position: decoding the prompt's answer anew, as the oracle did, or reading all ids
    before the site at once, which rounds otherwise"""
    kind: Kind
    gap: float | None
    """logprob(oracle id) - logprob(other id), nats; negative when the other id is the likelier; null when not known"""
    at_least: float | None
    """nats: the gap is more than this, because the other id is below the asked server's top N"""
    oracle_logprob: float | None
    other_logprob: float | None
    chosen: int
    """the id that the asked server itself prefers"""
    disagrees: bool
    """it prefers another id than the oracle's recorded one, so here it is not the oracle"""
    top: list[Candidate]
    sentence: str


def named(said: Said, texts: Mapping[int, str]) -> Said:
    """With these texts for its ids."""

    def each(items: list[Candidate]) -> list[Candidate]:
        return [item.model_copy(update={"text": texts.get(item.id)}) for item in items]

    return said.model_copy(update={"top": each(said.top), "named": each(said.named)})


def margin_of(oracle_id: int | None, other_id: int | None, said: Said, way: Way = "in one piece") -> Margin:
    """The margin between the two ids of a site by what a server said there; None is an answer that had ended."""
    by_id = {item.id: item.logprob for item in (*said.named, *said.top)}
    oracle = by_id.get(oracle_id) if oracle_id is not None else None
    other = by_id.get(other_id) if other_id is not None else None
    lowest = min(item.logprob for item in said.top)
    gap = at_least = None
    kind: Kind = "unknown"
    if oracle_id is None or other_id is None:
        words = "no margin: one of the two answers had ended"
    elif oracle is None:
        words = f"no margin: the oracle's id {oracle_id} is below the asked server's top {len(said.top)}"
    elif other is None:
        at_least = oracle - lowest
        kind = "real difference" if at_least > NEAR_TIE else "unknown"
        words = f"{other_id} is below the top {len(said.top)}, gap > {at_least:.4g} nat"
        words = f"a real difference ({words})" if at_least > NEAR_TIE else f"{words}: ask for more with --top"
    else:
        gap = oracle - other
        if gap == 0:
            kind, words = "exact tie", "exact tie (gap 0)"
        elif abs(gap) <= NEAR_TIE:
            kind, words = "near tie", f"near tie (gap {gap:.4g} nat)"
        else:
            kind, words = "real difference", f"a real difference (gap {gap:.4g} nat)"
    level = sum(item.logprob == said.top[0].logprob for item in said.top)
    if level > 1:
        least = "at least " if level == len(said.top) else ""
        words += f", {least}{level} ids stand level at the top"
    return Margin(
        way=way,
        kind=kind,
        gap=gap,
        at_least=at_least,
        oracle_logprob=oracle,
        other_logprob=other,
        chosen=said.chosen,
        disagrees=oracle_id is not None and said.chosen != oracle_id,
        top=said.top,
        sentence=words,
    )


def told(best: Margin, in_one_piece: Margin) -> Margin:
    """With what follows from the ids that the server prefers: that it is the oracle, or that it is not."""
    if best.disagrees:
        words = f"{best.sentence}; the asked server itself prefers {best.chosen}, so here it is not the recorded oracle"
    elif best.way == "decoded" and in_one_piece.disagrees:
        words = (
            f"{best.sentence}; decoding, it chooses the recorded {best.chosen}, and reading the same ids in one piece "
            f"{in_one_piece.chosen}: the order of computing turns it"
        )
    else:
        words = f"{best.sentence}; the asked server chooses the recorded {best.chosen}"
    return best.model_copy(update={"sentence": words})
