"""Percentile bootstrap of a ratio of two sides, each a table of servers by prompts (or of passes). Pure and seeded.

What is drawn again: the servers of each side on their own, and the prompts within their classes, the same for both
sides, because both answered the same prompts. With n servers a side the draws hold n values and no others: an interval
over two servers spans what these two gave, not what a third might.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

RESAMPLES = 10_000
CONFIDENCE = 0.95

Table = npt.NDArray[np.float64]
Draws = npt.NDArray[np.intp]
Middle = Callable[[Table, Sequence[Draws]], Table]
"""Values over prompts (last axis) and each class's columns → one value for each server"""


class Ratio(BaseModel):
    """A ratio with its interval."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    value: float
    """point estimate, B / A"""
    low: float | None
    """2.5th percentile of the resampled ratios; null where nothing could be drawn again"""
    high: float | None
    """97.5th percentile"""

    def interval(self) -> str:
        """``95 % 1.021 to 1.046``."""
        return "no interval" if self.low is None or self.high is None else f"95 % {self.low:.3f} to {self.high:.3f}"


def seed_of(*names: str) -> int:
    """A seed from campaign ids and the name of the figure: the same comparison always draws the same."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big")


def median_of_prompts(values: Table, groups: Sequence[Draws]) -> Table:
    """Plain median over the last axis (TTFT, contract section 3)."""
    return np.asarray(np.median(values, axis=-1), dtype=np.float64)


def class_balanced(values: Table, groups: Sequence[Draws]) -> Table:
    """Median of the class medians over the last axis (contract section 3); ``groups`` are each class's columns."""
    medians = [np.median(values[..., columns], axis=-1) for columns in groups]
    return np.asarray(np.median(np.stack(medians, axis=-1), axis=-1), dtype=np.float64)


def groups_of(classes: Sequence[str]) -> list[Draws]:
    """The columns of each class, classes in order of first appearance."""
    return [
        np.array([at for at, found in enumerate(classes) if found == name], dtype=np.intp)
        for name in dict.fromkeys(classes)
    ]


def ratio_of_tables(
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    classes: Sequence[str],
    middle: Middle,
    seed: int,
    *,
    resamples: int = RESAMPLES,
) -> Ratio:
    """B / A of ``middle`` over prompts, averaged over servers, with its 95 % percentile interval.

    ``a`` and ``b`` are servers by prompts, positive and finite, columns in the order of ``classes``. ValueError for
    tables of another shape, and for a value that isn't a positive finite number. No interval where each side has one
    server and each class one prompt.
    """
    left, right = (_checked(side, len(classes)) for side in (a, b))
    groups = groups_of(classes)
    value = float(middle(right, groups).mean() / middle(left, groups).mean())
    if len(left) == len(right) == 1 and len(groups) == len(classes):
        return Ratio(value=value, low=None, high=None)
    random = np.random.default_rng(seed)
    prompts = np.empty((resamples, len(classes)), dtype=np.intp)
    for columns in groups:
        prompts[:, columns] = columns[random.integers(len(columns), size=(resamples, len(columns)))]
    drawn = []
    for side in (left, right):
        servers = random.integers(len(side), size=(resamples, len(side)))
        drawn.append(middle(side[servers[:, :, None], prompts[:, None, :]], groups).mean(axis=1))
    return _with_interval(value, drawn[1] / drawn[0])


def ratio_of_medians(a: Sequence[float], b: Sequence[float], seed: int, *, resamples: int = RESAMPLES) -> Ratio:
    """median(b) / median(a) with its interval, each side's values drawn again on their own: the passes of a rung.

    ValueError without values, and for one that isn't a positive finite number. No interval where each side has one.
    """
    left, right = (_checked([side], len(side))[0] for side in (a, b))
    value = float(np.median(right) / np.median(left))
    if len(left) == len(right) == 1:
        return Ratio(value=value, low=None, high=None)
    random = np.random.default_rng(seed)
    drawn = [np.median(side[random.integers(len(side), size=(resamples, len(side)))], axis=1) for side in (left, right)]
    return _with_interval(value, drawn[1] / drawn[0])


def _checked(table: Sequence[Sequence[float]], columns: int) -> Table:
    found = np.asarray(table, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] < 1 or found.shape[1] != columns or columns < 1:
        raise ValueError(f"a side has the shape {found.shape} where servers by {columns} prompts are needed")
    if not np.all(np.isfinite(found) & (found > 0)):
        raise ValueError("a side holds a value that isn't a positive finite number; leave that row out by name")
    return found


def _with_interval(value: float, drawn: Table) -> Ratio:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Ratio(value=value, low=float(low), high=float(high))
