"""Rates and medians of contract section 3, as functions of plain numbers.

Times are float seconds after t0 (integer nanoseconds / 1e9). What can't be computed is None: no function returns NaN,
infinity or a rate over an empty window. Divisions stand in the order that gives published values to the last bit.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

WINDOW_IDS = 100
"""ids in the window of the published metric"""


def _rate(count: int, seconds: float) -> float | None:
    if count <= 0 or not math.isfinite(seconds) or seconds <= 0:
        return None
    rate = count / seconds
    return rate if math.isfinite(rate) else None


def token_offsets(chunk_ns: Sequence[int], chunk_sizes: Sequence[int]) -> list[float]:
    """o of section 3: seconds after t0 of each id, every id having the arrival of its chunk.

    ``chunk_ns[i]`` is the arrival in nanoseconds after t0 of a chunk with ``chunk_sizes[i]`` ids. ValueError when the
    two lengths differ.
    """
    return [ns / 1e9 for ns, size in zip(chunk_ns, chunk_sizes, strict=True) for _ in range(size)]


def ttft(offsets: Sequence[float]) -> float | None:
    """Seconds after t0 of the first id (section 3); None without ids."""
    return offsets[0] if offsets else None


def _window(offsets: Sequence[float]) -> float:
    return offsets[WINDOW_IDS - 1] - offsets[0] if len(offsets) >= WINDOW_IDS else 0.0


def tok_s_1_100(offsets: Sequence[float]) -> float | None:
    """Published metric (section 3), tokens/s: 99 / (o[99] - o[0]); None below 100 ids."""
    return _rate(WINDOW_IDS - 1, _window(offsets))


def tok_s_1_100_after_ttft(offsets: Sequence[float]) -> float | None:
    """Legacy metric (section 3), tokens/s: 100 / (o[99] - o[0]), 1.01 % above the published one."""
    return _rate(WINDOW_IDS, _window(offsets))


def bursts(chunks: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Chunks (time, ids) with neighbours of equal time joined: what came in one read came at one instant."""
    joined: list[tuple[float, int]] = []
    for time, size in chunks:
        if joined and joined[-1][0] == time:
            joined[-1] = (time, joined[-1][1] + size)
        else:
            joined.append((time, size))
    return joined


def tok_s_burst_exact(chunks: Sequence[tuple[float, int]]) -> float | None:
    """Burst-exact rate (section 3), tokens/s: (n_J - n_1) / (t_J - t_1), J the first chunk with n_J >= 100.

    ``chunks`` are (seconds after t0, ids). Chunks of one instant count as one, so that a first read that merged two
    chunks doesn't count the second one's ids as arrived after it. None below 100 ids, or when one burst holds them all.
    """
    joined = bursts(chunks)
    total = 0
    for time, size in joined:
        total += size
        if total >= WINDOW_IDS:
            first_time, first_size = joined[0]
            return _rate(total - first_size, time - first_time)
    return None


def tok_s_after_ttft_full(completion_tokens: int | None, first_s: float | None, end_s: float) -> float | None:
    """Legacy metric (section 3), tokens/s: completion_tokens / (end - first); None below two tokens."""
    if completion_tokens is None or completion_tokens < 2 or first_s is None:
        return None
    return _rate(completion_tokens, end_s - first_s)


def tok_s_wall_full(completion_tokens: int | None, start_s: float, end_s: float) -> float | None:
    """Legacy metric (section 3), tokens/s: completion_tokens / (end - start)."""
    return None if completion_tokens is None else _rate(completion_tokens, end_s - start_s)


def median(values: Iterable[float]) -> float | None:
    """Plain median, the mean of the two middle values for an even count; None without values.

    ValueError for a value that isn't finite: a NaN would sort anywhere.
    """
    ordered = list(values)
    _refuse_non_finite("the median", ordered)
    return statistics.median(ordered) if ordered else None


def median_ttft_ms(ttfts_ms: Iterable[float | None]) -> float | None:
    """Plain median of the rows' TTFT, milliseconds (section 3); None when any row has none, or without rows."""
    known: list[float] = []
    for value in ttfts_ms:
        if value is None:
            return None
        known.append(value)
    return median(known)


def class_medians(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Median of each class's (class, value) pairs (section 3), classes in order of first appearance."""
    by_class: dict[str, list[float]] = {}
    for name, value in rows:
        by_class.setdefault(name, []).append(value)
    return {name: middle for name, values in by_class.items() if (middle := median(values)) is not None}


def class_balanced_median(medians: Mapping[str, float]) -> float | None:
    """Median of the class medians (section 3): every class weighs the same; None without classes."""
    return median(medians.values())


def center(a: float, b: float) -> float:
    """Center of a pair (section 3): the arithmetic mean of its two values."""
    return (a + b) / 2


def spread(a: float, b: float) -> float | None:
    """Spread of a pair (section 3) as a fraction: abs(a - b) / center; None when the center is zero."""
    middle = center(a, b)
    return abs(a - b) / middle if middle else None


def percentile(values: Sequence[float], q: float) -> float:
    """q-th percentile (0 < q < 100), linear between ranks.

    ValueError when the sample is too small to hold it: below 1 / (1 - q/100) values (1 / (q/100) for q < 50) it would
    be the extreme under another name, so p99 needs 100 values and p90 needs 10. ValueError too for a value that isn't
    finite.
    """
    if not 0 < q < 100:
        raise ValueError(f"percentile {q:g} doesn't exist; ask for one above 0 and below 100")
    needed = math.ceil(100 / min(q, 100 - q) - 1e-9)
    if len(values) < needed:
        raise ValueError(f"p{q:g} was asked of {len(values)} values and needs {needed}; report the maximum instead")
    _refuse_non_finite(f"p{q:g}", values)
    return float(np.percentile(np.asarray(values, dtype=np.float64), q))


def p99_or_max(values: Sequence[float]) -> float | None:
    """99th percentile, or the maximum below 100 values; None without values. ValueError for a value not finite."""
    if not values:
        return None
    if len(values) >= 100:
        return percentile(values, 99)
    _refuse_non_finite("the maximum", values)
    return float(max(values))


def _refuse_non_finite(what: str, values: Sequence[float]) -> None:
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"{what} was asked of a value that isn't a finite number; drop or explain that value first")
