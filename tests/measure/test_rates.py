import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure import rates

MS = 1_000_000

sizes_lists = st.lists(st.integers(1, 6), min_size=1, max_size=150)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    sizes = draw(sizes_lists)
    gaps = draw(st.lists(st.integers(0, 50 * MS), min_size=len(sizes), max_size=len(sizes)))
    times, now = [], 0
    for gap in gaps:
        now += gap
        times.append(now)
    return times, sizes


def test_every_id_has_the_arrival_of_its_chunk() -> None:
    assert rates.token_offsets([5 * MS, 9 * MS], [2, 3]) == [0.005, 0.005, 0.009, 0.009, 0.009]
    with pytest.raises(ValueError, match="zip"):
        rates.token_offsets([1, 2], [1])


def test_published_and_legacy_rate_of_one_id_every_ten_ms() -> None:
    offsets = [0.5 + place / 100 for place in range(120)]
    assert rates.tok_s_1_100(offsets) == pytest.approx(100)
    assert rates.tok_s_1_100_after_ttft(offsets) == pytest.approx(100 * 100 / 99)
    assert rates.ttft(offsets) == 0.5


def test_first_chunk_with_four_ids_leaves_its_ids_out_of_the_burst_exact_rate() -> None:
    chunks = [(0.0, 4)] + [((place + 1) / 100, 1) for place in range(96)]
    assert rates.tok_s_burst_exact(chunks) == pytest.approx(100)


def test_burst_exact_keeps_the_surplus_of_the_burst_that_holds_token_100() -> None:
    chunks = [(0.0, 1)] + [((place + 1) / 10, 4) for place in range(30)]
    assert rates.tok_s_burst_exact(chunks) == pytest.approx(40)
    assert rates.tok_s_1_100([time for time, size in chunks for _ in range(size)]) == pytest.approx(99 / 2.5)


def test_chunks_of_one_instant_are_one_burst() -> None:
    tail = [((place + 1) / 10, 4) for place in range(30)]
    assert rates.tok_s_burst_exact([(0.0, 1), (0.0, 4), *tail]) == rates.tok_s_burst_exact([(0.0, 5), *tail])


def test_exactly_100_ids_have_a_rate_and_the_first_time_is_taken_off() -> None:
    offsets = [3.0 + place / 100 for place in range(100)]
    assert rates.tok_s_1_100(offsets) == pytest.approx(100)
    assert rates.tok_s_burst_exact([(time, 1) for time in offsets]) == pytest.approx(100)


def test_one_token_is_a_count_and_none_is_no_rate() -> None:
    assert rates.tok_s_wall_full(1, 0.0, 2.0) == 0.5
    assert rates.tok_s_wall_full(0, 0.0, 2.0) is None


@pytest.mark.parametrize("count", [0, 1, 99])
def test_below_100_ids_there_is_no_rate(count: int) -> None:
    offsets = [place / 100 for place in range(count)]
    assert rates.tok_s_1_100(offsets) is None
    assert rates.tok_s_1_100_after_ttft(offsets) is None
    assert rates.tok_s_burst_exact([(time, 1) for time in offsets]) is None


def test_an_answer_that_came_at_one_instant_has_no_rate() -> None:
    assert rates.tok_s_1_100([0.3] * 512) is None
    assert rates.tok_s_burst_exact([(0.3, 512)]) is None
    assert rates.tok_s_burst_exact([(0.3, 1)] * 512) is None


def test_full_rates_need_tokens_and_a_window() -> None:
    assert rates.tok_s_after_ttft_full(512, 1.0, 5.0) == 128.0
    assert rates.tok_s_wall_full(512, 0.0, 4.0) == 128.0
    for count, first in ((None, 1.0), (0, 1.0), (1, 1.0), (512, None), (512, 5.0), (512, 6.0), (512, math.nan)):
        assert rates.tok_s_after_ttft_full(count, first, 5.0) is None
    for count, end in ((None, 4.0), (0, 4.0), (5, 0.0), (5, -1.0), (5, math.inf)):
        assert rates.tok_s_wall_full(count, 0.0, end) is None
    assert rates.tok_s_wall_full(512, 0.0, 5e-324) is None


@given(arrivals(), st.integers(0, 900 * 10**9))
def test_a_later_start_leaves_every_rate(times_sizes: tuple[list[int], list[int]], delay: int) -> None:
    times, sizes = times_sizes
    later = [time + delay for time in times]
    here, there = rates.token_offsets(times, sizes), rates.token_offsets(later, sizes)
    near = pytest.approx(here[-1] - here[0], abs=1e-12)
    assert there[-1] - there[0] == near
    for rate in (rates.tok_s_1_100, rates.tok_s_1_100_after_ttft):
        a, b = rate(here), rate(there)
        if a is not None and b is not None and a < 1e6:
            assert b == pytest.approx(a, rel=1e-6)


@given(arrivals(), st.data())
def test_regrouping_at_fixed_arrivals_changes_no_rate_and_no_ttft(
    times_sizes: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    times, sizes = times_sizes
    split: list[tuple[int, int]] = []
    for time, size in zip(times, sizes, strict=True):
        first = data.draw(st.integers(0, size))
        split += [(time, part) for part in (first, size - first) if part]
    split_ns, split_parts = [time for time, _ in split], [part for _, part in split]
    whole, parts = rates.token_offsets(times, sizes), rates.token_offsets(split_ns, split_parts)
    assert parts == whole
    assert rates.tok_s_burst_exact([(ns / 1e9, k) for ns, k in split]) == rates.tok_s_burst_exact(
        [(ns / 1e9, k) for ns, k in zip(times, sizes, strict=True)]
    )


@given(arrivals(), st.integers(1, 8))
def test_holding_ids_back_delays_ttft_by_no_more_than_the_first_burst(
    times_sizes: tuple[list[int], list[int]], hold: int
) -> None:
    """A server that sends ``hold`` ids at a time: each group leaves when its last id is there."""
    times, sizes = times_sizes
    single = rates.token_offsets(times, sizes)
    groups = [single[start : start + hold] for start in range(0, len(single), hold)]
    grouped = [group[-1] for group in groups for _ in group]
    before, after = rates.ttft(single), rates.ttft(grouped)
    assert before is not None and after is not None
    assert 0 <= after - before <= groups[0][-1] - groups[0][0]


@given(arrivals())
def test_rates_are_finite_and_positive_or_none(times_sizes: tuple[list[int], list[int]]) -> None:
    times, sizes = times_sizes
    offsets = rates.token_offsets(times, sizes)
    found = [
        rates.tok_s_1_100(offsets),
        rates.tok_s_1_100_after_ttft(offsets),
        rates.tok_s_burst_exact([(ns / 1e9, k) for ns, k in zip(times, sizes, strict=True)]),
        rates.tok_s_after_ttft_full(len(offsets), rates.ttft(offsets), offsets[-1]),
        rates.tok_s_wall_full(len(offsets), 0.0, offsets[-1]),
    ]
    assert all(value is None or (math.isfinite(value) and value > 0) for value in found)
    if len(offsets) >= 100 and offsets[99] > offsets[0]:
        assert None not in found[:3]


def test_median_of_an_even_count_is_the_mean_of_the_middle_two() -> None:
    assert rates.median([4.0, 1.0, 3.0, 2.0]) == 2.5
    assert rates.median([]) is None
    with pytest.raises(ValueError, match="the median was asked of a value"):
        rates.median([1.0, math.nan])


def test_median_ttft_is_of_all_rows_or_not_at_all() -> None:
    assert rates.median_ttft_ms([50.0, 70.0, 60.0]) == 60.0
    assert rates.median_ttft_ms([50.0, None, 60.0]) is None
    assert rates.median_ttft_ms([]) is None


values = st.floats(1, 1000)
classed = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), values), min_size=1, max_size=30)


@given(classed, st.randoms())
def test_class_balanced_median_ignores_order(rows: list[tuple[str, float]], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert rates.class_balanced_median(rates.class_medians(shuffled)) == rates.class_balanced_median(
        rates.class_medians(rows)
    )


@given(classed, st.integers(2, 5))
def test_class_balanced_median_ignores_how_often_a_class_was_asked(rows: list[tuple[str, float]], times: int) -> None:
    """Repeating one class's rows must not pull the result towards it, as it does in a plain median."""
    more = rows + [row for row in rows if row[0] == rows[0][0]] * (2 * times)
    assert rates.class_balanced_median(rates.class_medians(more)) == pytest.approx(
        rates.class_balanced_median(rates.class_medians(rows))
    )


@given(classed)
def test_class_balanced_median_lies_between_the_extremes(rows: list[tuple[str, float]]) -> None:
    found = rates.class_balanced_median(rates.class_medians(rows))
    assert found is not None
    assert min(v for _, v in rows) <= found <= max(v for _, v in rows)
    assert rates.class_balanced_median({}) is None


def test_spread_is_over_the_center() -> None:
    assert rates.center(90.0, 110.0) == 100.0
    assert rates.spread(90.0, 110.0) == rates.spread(110.0, 90.0) == 0.2
    assert rates.spread(0.0, 0.0) is None


@pytest.mark.parametrize(
    ("q", "needed"), [(33.3, 4), (99, 100), (95, 20), (90, 10), (50, 2), (10, 10), (1, 100), (99.9, 1000)]
)
def test_percentile_needs_enough_values(q: float, needed: int) -> None:
    assert rates.percentile([1.0] * needed, q) == 1.0
    with pytest.raises(ValueError, match=f"was asked of {needed - 1} values and needs {needed}; report the maximum"):
        rates.percentile([1.0] * (needed - 1), q)


def test_percentile_refuses_what_has_no_answer() -> None:
    assert rates.percentile([float(place) for place in range(101)], 99) == 99.0
    for q in (0, 100, -1, 101):
        with pytest.raises(ValueError, match="doesn't exist"):
            rates.percentile([1.0] * 1000, q)
    with pytest.raises(ValueError, match="finite"):
        rates.percentile([math.inf] * 100, 99)


def test_p99_of_few_values_is_their_maximum() -> None:
    assert rates.p99_or_max([]) is None
    assert rates.p99_or_max([float(place) for place in range(99)]) == 98.0
    assert rates.p99_or_max([float(place) for place in range(101)]) == 99.0
    with pytest.raises(ValueError, match="finite"):
        rates.p99_or_max([math.nan, 1.0])
