"""Clopper-Pearson bounds: the published ones, and what makes a bound one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from harness.measure.intervals import CONFIDENCE, divergence_upper_bound


@pytest.mark.parametrize(
    ("misses", "total", "percent", "digits"),
    [
        (0, 64, 4.57, 2),
        (0, 1280, 0.234, 3),
        (35, 1280, 3.61, 2),
        (24, 1280, 2.63, 2),
        (0, 1, 95.0, 6),
    ],
)
def test_published_bounds(misses: int, total: int, percent: float, digits: int) -> None:
    assert round(100 * divergence_upper_bound(misses, total), digits) == percent


def test_bound_without_a_miss_has_a_closed_form() -> None:
    for total in (1, 12, 64, 256, 1280, 10**6):
        assert divergence_upper_bound(0, total) == pytest.approx(1 - 0.05 ** (1 / total), rel=1e-9)


COUNTS = st.integers(1, 5000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(COUNTS)
def test_bound_is_where_the_binomial_tail_is_five_percent(counts: tuple[int, int]) -> None:
    misses, total = counts
    bound = divergence_upper_bound(misses, total)
    assert misses / total <= bound <= 1
    if misses == total:
        assert bound == 1
    else:
        assert binom.cdf(misses, total, bound) == pytest.approx(1 - CONFIDENCE, rel=1e-6)


@given(COUNTS, st.floats(0.5, 0.99))
def test_bound_grows_with_misses_and_confidence_and_falls_with_requests(
    counts: tuple[int, int], confidence: float
) -> None:
    misses, total = counts
    bound = divergence_upper_bound(misses, total, confidence)
    assert bound <= divergence_upper_bound(misses, total, 0.995)
    if misses < total:
        assert bound < divergence_upper_bound(misses + 1, total, confidence) or bound == 1
        assert divergence_upper_bound(misses, total + 1, confidence) < bound


@pytest.mark.parametrize(("misses", "total"), [(0, 0), (-1, 4), (5, 4), (1, -1)])
def test_counts_that_cannot_be(misses: int, total: int) -> None:
    with pytest.raises(ValueError, match="is no count of divergent requests"):
        divergence_upper_bound(misses, total)
