"""Equality of complete token-id arrays, and where two arrays first differ (contract section 4)."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from harness.measure.rows import Row

MIN_IDS = 100
"""fewest ids of an array that a gate may compare"""


class Divergence(BaseModel):
    """Where the answers to one prompt first differ. Equality is of whole arrays, never a prefix, never text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    prompt_id: str
    first_divergence_token_zero_based: int
    """first unequal index, or the shorter length"""
    left_id: int | None
    """left's id there; null when left had ended"""
    right_id: int | None
    """right's id there; null when right had ended"""
    left_length: int
    right_length: int

    def sentence(self) -> str:
        """One sentence with the place, both ids and both lengths."""
        left, right = ("the end" if x is None else str(x) for x in (self.left_id, self.right_id))
        return (
            f"{self.prompt_id} differs at token {self.first_divergence_token_zero_based}: {left} against {right}"
            f" ({self.left_length} and {self.right_length} ids)"
        )


class Comparison(BaseModel):
    """Two attempts compared prompt by prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    exact: int
    """prompts whose arrays are equal as a whole and fit to be compared"""
    total: int
    """prompts that stand on either side"""
    divergences: list[Divergence]
    problems: list[str]
    """one sentence for each prompt that can't be compared"""


def first_divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first unequal id, or the shorter length; None when the arrays are equal.

    Two empty arrays are never equal: they differ at 0.
    """
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return None if len(a) == len(b) > 0 else min(len(a), len(b))


def divergence(prompt_id: str, a: Sequence[int], b: Sequence[int]) -> Divergence | None:
    """The first difference of two arrays with what stands there; None when they are equal and not empty."""
    index = first_divergence(a, b)
    if index is None:
        return None
    return Divergence(
        prompt_id=prompt_id,
        first_divergence_token_zero_based=index,
        left_id=a[index] if index < len(a) else None,
        right_id=b[index] if index < len(b) else None,
        left_length=len(a),
        right_length=len(b),
    )


def _by_prompt(side: str, rows: Sequence[Row], problems: list[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        if row.prompt_id in found:
            problems.append(f"{row.prompt_id} stands twice on the {side} side")
        found.setdefault(row.prompt_id, row)
    return found


def _unfit(left: Row, right: Row, min_ids: int) -> list[str]:
    """Why two rows of one prompt can't be compared."""
    name = left.prompt_id
    problems = []
    for side, row in (("left", left), ("right", right)):
        if not row.complete:
            problems.append(f"{name} is incomplete on the {side} side ({row.reason or 'no reason given'})")
        if len(row.token_ids) < min_ids:
            problems.append(f"{name} has {len(row.token_ids)} ids on the {side} side, fewer than {min_ids}")
        if not row.prompt_token_ids:
            problems.append(f"{name} has no prompt_token_ids on the {side} side")
    if left.prompt_sha256 != right.prompt_sha256:
        problems.append(f"{name} has another prompt text on each side")
    if left.prompt_token_ids and right.prompt_token_ids and left.prompt_token_ids != right.prompt_token_ids:
        at = first_divergence(left.prompt_token_ids, right.prompt_token_ids)
        problems.append(
            f"{name} was read as other prompt_token_ids on each side, first at {at}"
            f" ({len(left.prompt_token_ids)} and {len(right.prompt_token_ids)} ids)"
        )
    return problems


def compare_rows(left: Sequence[Row], right: Sequence[Row], *, min_ids: int = MIN_IDS) -> Comparison:
    """Compare the complete arrays of two attempts, matched by prompt id (contract section 4).

    A prompt is exact when both rows are complete, both arrays have at least ``min_ids`` ids (never fewer than 1), both
    servers read the same prompt ids, and the arrays are equal. A missing, repeated, incomplete or short row is a
    problem; a difference between complete rows is a divergence, short or not.
    """
    min_ids = max(min_ids, 1)
    problems: list[str] = []
    lefts, rights = _by_prompt("left", left, problems), _by_prompt("right", right, problems)
    divergences: list[Divergence] = []
    exact = 0
    names = list(dict.fromkeys([*lefts, *rights]))
    if not names:
        problems.append("there is no row to compare on either side")
    for name in names:
        if name not in lefts or name not in rights:
            problems.append(f"{name} is missing on the {'left' if name not in lefts else 'right'} side")
            continue
        a, b = lefts[name], rights[name]
        unfit = _unfit(a, b, min_ids)
        problems += unfit
        found = divergence(name, a.token_ids, b.token_ids)
        if found is None:
            exact += not unfit
        elif a.complete and b.complete:
            divergences.append(found)
    return Comparison(exact=exact, total=len(names), divergences=divergences, problems=problems)
