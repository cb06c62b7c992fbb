"""Whether something grows from round to round. Pure: series in, verdicts out.

Descriptors, threads and child processes are counted: each must be the same after every round. Memory is estimated: an
allocator keeps what it likes, so a series of it has to rise beyond its own noise to count.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import theilslopes

CONFIDENCE = 0.99
"""Of the interval that a slope must leave 0 with"""
LEAST = 6
"""Rounds after the warm-up with which memory can be judged"""
LEAST_OF_GROUP = 3
LEAST_OF_THIRD = 5
"""Rounds of which a median is no chance of which paths they were"""


@dataclass(frozen=True)
class Tolerance:
    """What is let pass: the greater of the two."""

    a_round: float
    in_all: float = 0.0
    """share of the series' own median, over all rounds"""


@dataclass(frozen=True)
class Verdict:
    """One series, judged over the rounds after the warm-up."""

    name: str
    first: float
    last: float
    second_third: float
    """median of the middle rounds"""
    last_third: float
    slope: float | None
    """per round, by Theil and Sen; None for what is counted"""
    slope_low: float | None
    """lower end of its interval"""
    bound: float
    """the slope up to which nothing is said; 0 for what is counted"""
    grows: str
    """one sentence; empty when it doesn't grow"""


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    third = max(1, len(values) // 3)
    middle = values[third : len(values) - third] or values
    return statistics.median(middle), statistics.median(values[len(values) - third :])


def level(values: Sequence[float], groups: Sequence[str]) -> list[float]:
    """Values less the median of their own group, plus that of all: what one kind of round needs more is no growth.

    Left as they are where a group is so small that its median would hide what grows.
    """
    if min(Counter(groups).values(), default=0) < LEAST_OF_GROUP:
        return list(values)
    pairs = list(zip(values, groups, strict=True))
    middle = {group: statistics.median(value for value, other in pairs if other == group) for group in set(groups)}
    centre = statistics.median(values)
    return [value - middle[group] + centre for value, group in pairs]


def judge_count(name: str, values: Sequence[int]) -> Verdict:
    """What must be equal after each round."""
    second, last = _thirds(values)
    other = next((place for place, value in enumerate(values) if value != values[0]), None)
    grows = "" if other is None else f"{name}: {values[0]} after the first round, {values[other]} {other} rounds later"
    return Verdict(name, values[0], values[-1], second, last, None, None, 0, grows)


def judge_amount(name: str, values: Sequence[float], groups: Sequence[str], tolerance: Tolerance) -> Verdict:
    """What may move, but not upwards. It grows when its slope is more than is let pass and its interval leaves 0, or
    when the median of the last third of enough rounds is as much above the second's as such a slope would lift it.

    ``groups`` levels the values; empty for what is the same in every group. Raises ValueError for fewer than LEAST.
    """
    if len(values) < LEAST:
        raise ValueError(f"{name}: {len(values)} rounds are too few to judge; at least {LEAST} are needed")
    flat = level(values, groups) if groups else list(values)
    bound = max(tolerance.a_round, tolerance.in_all * statistics.median(flat) / len(flat))
    slope, _, low, _ = map(float, theilslopes(flat, alpha=CONFIDENCE))
    second, last = _thirds(flat)
    grows = ""
    if slope > bound and low > 0:
        grows = f"{name}: {slope:,.1f} more each round (99 % sure of {low:,.1f}), where {bound:,.1f} is let pass"
    elif len(flat) >= 3 * LEAST_OF_THIRD and last - second > bound * len(flat) / 3:
        grows = f"{name}: {last:,.1f} in the last third of the rounds, {second:,.1f} in the second"
    return Verdict(name, values[0], values[-1], second, last, slope, low, bound, grows)
