import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.measure import rates
from harness.measure.rows import Row, attempt_median, build_row, chunk_gaps_ms, kernel_lags_us, mark_cold
from harness.wire.completion import Completion, Reason, Usage
from tests.measure.factory import make_completion, make_exchange, make_row, make_rows, replace_row

IDENTITY: dict[str, Any] = {
    "index": 3,
    "prompt_id": "p",
    "prompt_class": "code",
    "prompt_sha256": "ab" * 32,
    "request_id": "bench-x-03-p",
}


def named(row: Row, name: str) -> list[str]:
    return [warning for warning in row.warnings if warning.split(":")[0] == name]


def test_a_row_carries_the_completion_and_its_rates() -> None:
    row = make_row(count=128, first_ns=50_000_000, step_ns=10_000_000)
    assert row.complete and row.reason is None
    assert row.ttft_ms == row.first_byte_ms == 50.0
    assert row.tok_s_1_100 == pytest.approx(100) == row.tok_s_burst_exact
    assert row.tok_s_1_100_after_ttft == pytest.approx(100 * 100 / 99)
    assert row.end_ms == pytest.approx(50 + 1270 + 0.1)
    assert row.tok_s_wall_full == pytest.approx(128 / 1.3201)
    assert row.tok_s_after_ttft_full == pytest.approx(128 / 1.2701)
    assert row.ids_per_chunk == 1.0
    assert (row.reads, row.lag_p99_us) == (128, 20.0)
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (3, 128, 0)
    assert row.warnings == []


def test_rates_stand_beside_an_invalid_row_but_never_in_a_median() -> None:
    rows = make_rows()
    middle = attempt_median(rows)
    assert middle == pytest.approx(100)
    broken = [*rows[:-1], make_row(11, reason=Reason.USAGE_IDS_MISMATCH)]
    assert broken[-1].tok_s_1_100 == pytest.approx(100)
    assert not broken[-1].complete and broken[-1].reason == "usage-ids-mismatch"
    assert attempt_median(broken) is None
    assert attempt_median([]) is None
    assert attempt_median([*rows[:-1], make_row(11, count=99)]) is None


def test_missing_usage_and_ids_leave_nulls() -> None:
    row = make_row(count=0, reason=Reason.NO_TOKENS, completion={"usage": None, "prompt_token_ids": None})
    rates_of_row = {name for name in Row.model_fields if name.startswith("tok_s_")}
    others = {"ttft_ms", "ids_per_chunk", "completion_tokens", "cached_tokens", "prompt_tokens", "lag_p99_us"}
    nulls = {name for name, value in row.model_dump().items() if value is None}
    assert rates_of_row | others | {"prompt_token_ids"} <= nulls
    assert named(row, "no-rate") == ["no-rate: tok_s_1_100 is null because the row has 0 of 100 ids"]


def test_one_token_answer_has_null_rates_with_their_reason() -> None:
    row = make_row(count=1)
    assert row.ttft_ms == 50.0
    assert row.tok_s_1_100 is row.tok_s_burst_exact is row.tok_s_after_ttft_full is None
    assert "has 1 of 100 ids" in named(row, "no-rate")[0]


def test_answer_held_back_to_one_instant_says_why_it_has_no_rate() -> None:
    row = make_row(count=512, sizes=(512,))
    assert row.tok_s_1_100 is None
    assert "came at one instant" in named(row, "no-rate")[0]


def test_burst_difference_names_both_rates_and_the_percentage() -> None:
    row = make_row(count=512, sizes=(4,))
    published, ours = row.tok_s_1_100, row.tok_s_burst_exact
    assert published is not None and ours is not None
    assert published / ours == pytest.approx(99 / 96)
    (warning,) = named(row, "burst-difference")
    assert f"{published:.2f}" in warning and f"{ours:.2f}" in warning
    assert f"{100 * (published / ours - 1):+.1f} %" in warning


def test_one_id_per_chunk_has_no_burst_difference() -> None:
    assert named(make_row(count=512), "burst-difference") == []


def test_first_read_that_merged_two_chunks_is_seen() -> None:
    """Two events at one instant, then one id per step: 99 intervals are claimed where 98 were waited for."""
    times = [50_000_000, *(50_000_000 + 10_000_000 * place for place in range(40))]
    sizes = [3, 3] + [3] * 39
    completion = make_completion(token_ids=range(1000, 1000 + sum(sizes)), chunk_ns=times, chunk_sizes=sizes)
    row = build_row(**IDENTITY, completion=completion, exchange=make_exchange(at_ns=times))
    assert row.tok_s_burst_exact == pytest.approx(300)
    assert len(named(row, "burst-difference")) == 1


def test_first_two_chunks_close_together_are_seen_although_the_rates_agree() -> None:
    times = [50_000_000, 50_140_000] + [50_140_000 + 20_500_000 * place for place in range(1, 40)]
    sizes = [1, 3] + [3] * 39
    completion = make_completion(token_ids=range(1000, 1000 + sum(sizes)), chunk_ns=times, chunk_sizes=sizes)
    row = build_row(**IDENTITY, completion=completion, exchange=make_exchange(at_ns=times))
    assert row.tok_s_1_100 == row.tok_s_burst_exact
    (warning,) = named(row, "merged-first-read")
    assert "0.14 ms" in warning and "20.50 ms" in warning and "3.1 %" in warning


def test_notes_of_the_completion_are_carried_over() -> None:
    row = make_row(completion={"notes": ("buffered: usage grew without text",)})
    assert row.warnings == ["buffered: usage grew without text"]
    assert row.complete


def test_lag_is_of_kernel_stamped_reads_only() -> None:
    exchange = make_exchange(at_ns=[1000, 2000, 3000], lag_ns=500)
    exchange.kernel = [True, False, True]
    exchange.user_ns[1] += 10_000_000
    assert kernel_lags_us(exchange) == [0.5, 0.5]
    assert make_row(kernel=False).lag_p99_us is None


def test_lag_of_few_reads_is_the_largest_and_of_many_the_99th_percentile() -> None:
    few = make_exchange(at_ns=list(range(0, 50_000, 1000)), lag_ns=100)
    few.user_ns[7] += 9_900
    row = build_row(**IDENTITY, completion=make_completion(token_ids=[], chunk_ns=[], chunk_sizes=[]), exchange=few)
    assert row.lag_p99_us == 10.0
    many = make_exchange(at_ns=list(range(0, 1_000_000, 1000)), lag_ns=100)
    many.user_ns[7] += 9_900
    row = build_row(**IDENTITY, completion=make_completion(token_ids=[], chunk_ns=[], chunk_sizes=[]), exchange=many)
    assert row.lag_p99_us == pytest.approx(0.1)


def test_gaps_are_between_instants_of_one_row() -> None:
    row = make_row(count=4).model_copy(update={"chunks": [(0, 1), (2_000_000, 1), (2_000_000, 1), (5_000_000, 1)]})
    assert chunk_gaps_ms([row, row]) == [2.0, 3.0, 2.0, 3.0]
    assert chunk_gaps_ms([make_row(count=0, reason=Reason.NO_TOKENS)]) == []


def test_cold_row_is_marked_once() -> None:
    rows = [make_row(0, first_ns=2_050_000_000), *make_rows()[1:]]
    marked = mark_cold(rows)
    assert [bool(named(row, "cold")) for row in marked] == [True] + [False] * 11
    assert "2050.0 ms" in named(marked[0], "cold")[0] and "50.0 ms" in named(marked[0], "cold")[0]
    assert mark_cold(marked) == marked
    assert mark_cold(replace_row(rows, 0, ttft_ms=250.0))[0].warnings == []
    assert mark_cold([]) == []


def test_lone_surrogates_in_an_answer_still_become_json() -> None:
    row = make_row(completion={"text": "a\ud800b\udc00 \U0001f600\ufeff", "stream_id": "\udfff"})
    assert json.loads(row.model_dump_json())["text"] == "a\ufffdb\ufffd \U0001f600\ufeff"


def test_a_row_refuses_a_number_that_json_has_not() -> None:
    fields = make_row().model_dump()
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValidationError, match="finite"):
            Row.model_validate(fields | {"tok_s_1_100": bad})


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    sizes = draw(st.lists(st.integers(1, 40), max_size=30))
    gaps = draw(st.lists(st.integers(0, 10**10), min_size=len(sizes), max_size=len(sizes)))
    times = [sum(gaps[: place + 1]) for place in range(len(sizes))]
    usage = draw(st.none() | st.builds(Usage, st.integers(0, 99), st.integers(0, 10**6), st.none() | st.integers(0, 5)))
    return make_completion(
        token_ids=[7] * sum(sizes),
        chunk_ns=times,
        chunk_sizes=sizes,
        reason=draw(st.none() | st.sampled_from(list(Reason))),
        usage=usage,
        end_ns=draw(st.integers(0, 10**12)),
        text=draw(st.text(st.characters())),
    )


def _no_constants(name: str) -> None:
    raise AssertionError(f"{name} stands in the JSON")


@given(completions())
def test_json_of_any_row_is_strict_and_loads_back(completion: Completion) -> None:
    row = build_row(**IDENTITY, completion=completion, exchange=make_exchange(at_ns=completion.chunk_ns))
    said = row.model_dump_json()
    json.loads(said, parse_constant=_no_constants)
    json.dumps(row.model_dump(mode="json"), allow_nan=False)
    assert Row.model_validate_json(said) == row
    assert row.complete == (completion.reason is None)


@given(completions(), st.integers(-(10**17), 10**17), st.integers(-(10**9), 10**12))
def test_a_constant_shift_of_either_clock_changes_nothing(completion: Completion, wall: int, mono: int) -> None:
    here = make_exchange(at_ns=completion.chunk_ns, clock_step_ns=123_456)
    there = make_exchange(at_ns=completion.chunk_ns, clock_step_ns=123_456)
    there.t0_wall_ns, there.end_wall_ns = here.t0_wall_ns + wall, here.end_wall_ns + wall
    there.t0_mono_ns, there.end_mono_ns = here.t0_mono_ns + mono, here.end_mono_ns + mono
    rows = [build_row(**IDENTITY, completion=completion, exchange=exchange) for exchange in (here, there)]
    assert rows[0] == rows[1]
    assert rows[0].clock_step_ms == 0.123456


@given(completions())
def test_row_rates_are_those_of_its_own_chunks(completion: Completion) -> None:
    """What stands in evidence is enough to derive every rate again."""
    row = build_row(**IDENTITY, completion=completion, exchange=make_exchange(at_ns=completion.chunk_ns))
    offsets = rates.token_offsets([ns for ns, _ in row.chunks], [size for _, size in row.chunks])
    assert rates.tok_s_1_100(offsets) == row.tok_s_1_100
    assert rates.tok_s_burst_exact([(ns / 1e9, size) for ns, size in row.chunks]) == row.tok_s_burst_exact
    assert (row.tok_s_1_100 is None) == bool(named(row, "no-rate"))


S = 1_000_000_000


def row_of(times_ns: list[int], sizes: list[int]) -> Row:
    completion = make_completion(token_ids=range(1000, 1000 + sum(sizes)), chunk_ns=times_ns, chunk_sizes=sizes)
    return build_row(**IDENTITY, completion=completion, exchange=make_exchange(at_ns=times_ns))


def after(first_ns: int, gaps: list[float]) -> list[int]:
    return [first_ns + round(sum(gaps[:count]) * S) for count in range(len(gaps) + 1)]


@pytest.mark.parametrize(("gap", "seen"), [(0.25, True), (0.4, True), (0.5, False), (0.75, False)])
def test_a_first_gap_below_half_the_usual_is_seen(gap: float, seen: bool) -> None:
    row = row_of(after(100 * S, [gap, *[1.0] * 8]), [10] * 10)
    assert bool(named(row, "merged-first-read")) is seen


def test_a_short_first_gap_that_hardly_shortens_the_window_is_none() -> None:
    row = row_of(after(0, [0.25, *[1.0] * 69]), [30, *[1] * 70])
    assert named(row, "merged-first-read") == []


@pytest.mark.parametrize(("last", "seen"), [(1.75, False), (1.625, True)])
def test_a_short_first_gap_may_shorten_the_window_by_exactly_one_and_a_half_per_cent(last: float, seen: bool) -> None:
    """0.75 s of 50 s; what came behind the hundredth id is no part of it."""
    row = row_of(after(0, [0.25, *[1.0] * 48, last, 1.0]), [50, *[1] * 51])
    assert bool(named(row, "merged-first-read")) is seen


@pytest.mark.parametrize(("first", "seen"), [(2, False), (3, True)])
def test_rates_may_differ_by_one_and_a_half_per_cent(first: int, seen: bool) -> None:
    """99 intervals are claimed where 98 were waited for (1.0 %), or 97 (2.1 %)."""
    row = row_of(after(0, [1.0] * (100 - first)), [first, *[1] * (100 - first)])
    assert bool(named(row, "burst-difference")) is seen


def test_a_hundred_ids_of_one_instant_are_enough_and_too_close() -> None:
    assert "came at one instant" in named(row_of([5], [100]), "no-rate")[0]
    assert "has 99 of 100 ids" in named(row_of([5], [99]), "no-rate")[0]


def test_an_arrival_at_the_request_is_zero_and_one_before_it_is_unknown() -> None:
    assert (row_of([0], [1]).ttft_ms, row_of([1], [1]).ttft_ms, row_of([-1], [1]).ttft_ms) == (0.0, 1e-6, None)


def test_reads_that_brought_nothing_are_not_counted() -> None:
    completion = make_completion(token_ids=[], chunk_ns=[], chunk_sizes=[])
    row = build_row(**IDENTITY, completion=completion, exchange=make_exchange(at_ns=[1, 2, 3], sizes=[1, 0, 2]))
    assert row.reads == 2


@pytest.mark.parametrize(("ttft_ms", "cold"), [(250.0, False), (250.1, True)])
def test_five_times_the_median_is_not_cold_yet_and_other_warnings_stay(ttft_ms: float, cold: bool) -> None:
    rows = replace_row(make_rows(), 0, ttft_ms=ttft_ms, warnings=["buffered: usage grew"])
    (first, *_) = mark_cold(rows)
    assert bool(named(first, "cold")) is cold and first.warnings[0] == "buffered: usage grew"
