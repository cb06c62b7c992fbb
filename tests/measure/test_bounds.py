"""Figures exactly at a bound and just beyond it; verdicts that nobody can change afterwards."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from harness.measure.gates import client_gate, degenerate_gate, stream_gate, undeclared, workload_gate
from harness.measure.identity import compare_rows, divergence
from harness.measure.ladder import Arrivals, batch_rates, copy_groups, minority_share, summarise_rung
from harness.measure.rates import bursts, p99_or_max, tok_s_after_ttft_full, tok_s_wall_full
from tests.measure.factory import SUITE, make_completion, make_ids, make_row, make_rows
from tests.measure.test_ladder import ORACLE, away, batch, exact_rung, request


@pytest.mark.parametrize(
    ("step_ns", "passed"), [(500_000, True), (-500_000, True), (500_100, False), (-500_100, False)]
)
def test_a_clock_step_of_half_a_millisecond_is_the_most(step_ns: int, passed: bool) -> None:
    assert stream_gate("a", [make_row(0, clock_step_ns=step_ns)]).passed is passed


@pytest.mark.parametrize(("share", "passed"), [(0.8, True), (0.801, False)])
def test_four_fifths_of_a_core_are_the_most(share: float, passed: bool) -> None:
    assert client_gate("a", make_rows(), [1.0], [10.0], share, "kernel").passed is passed


@pytest.mark.parametrize(("lag_us", "passed"), [(1000.0, True), (1000.1, False)])
def test_a_tenth_of_the_gap_is_the_most(lag_us: float, passed: bool) -> None:
    assert client_gate("a", make_rows(), [lag_us], [10.0], 0.1, "kernel").passed is passed


def test_five_classes_are_the_least() -> None:
    classes = ["a", "b", "c", "d", "e"]
    for count, passed in ((5, True), (4, False)):
        suite = [(name, classes[at % count], sha256) for at, (name, _, sha256) in enumerate(SUITE)]
        rows = [row.model_copy(update={"prompt_class": suite[at][1]}) for at, row in enumerate(make_rows())]
        assert workload_gate("a", rows, suite).passed is passed


def test_a_prompt_that_stands_twice_in_the_suite_is_told_even_where_it_ran_once() -> None:
    said = workload_gate("a", make_rows(), [*SUITE, SUITE[0]]).failures
    assert "a: prompt-00 stands twice in the suite" in said


@pytest.mark.parametrize(("same", "passed"), [(63, True), (64, False)])
def test_sixty_four_alike_at_the_end_are_degenerate(same: int, passed: bool) -> None:
    assert degenerate_gate("a", [make_row(0, token_ids=[*make_ids(1, 200), *[7] * same])]).passed is passed
    short = make_row(0, token_ids=[1, 2])
    assert degenerate_gate("a", [short]).passed, "exactly half is no majority"
    assert not degenerate_gate("a", [make_row(0, token_ids=[1, 2, 2])]).passed


def test_the_least_number_of_ids_is_never_below_one() -> None:
    one = [make_row(0, token_ids=[5])]
    for least in (-1, 0, 1):
        found = compare_rows(one, one, min_ids=least)
        assert (found.exact, found.problems) == (1, [])
    assert compare_rows(one, one, min_ids=2).exact == 0
    none = [make_row(0, token_ids=[])]
    assert compare_rows(none, none, min_ids=0).exact == 0


def test_two_of_one_prompt_are_a_group() -> None:
    pair = [request("a", prompt="p"), request("b", away(3), prompt="p"), request("c", prompt="q")]
    assert copy_groups(pair) == (1, 1)
    assert copy_groups([pair[0], pair[0]]) == (1, 0) and copy_groups([pair[0], pair[2]]) == (0, 0)
    assert minority_share([batch(pair)]) == 0.5
    assert minority_share([batch([pair[0]])]) is None


VALUES: list[tuple[BaseModel, str, Any]] = [
    (stream_gate("a", make_rows()), "passed", True),
    (compare_rows(make_rows(), make_rows()), "exact", 12),
    (divergence("p", [1], [2]) or make_row(), "left_id", 2),
    (exact_rung(1), "exact", 5),
    (make_row(), "complete", True),
]


@pytest.mark.parametrize(("value", "name", "other"), VALUES, ids=lambda item: type(item).__name__)
def test_a_verdict_is_never_changed_in_place(value: BaseModel, name: str, other: Any) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(value, name, other)
    assert type(value).model_validate(value.model_dump()) == value
    with pytest.raises(ValidationError, match="Extra inputs"):
        type(value).model_validate({**value.model_dump(), "stray": 1})


def test_a_completion_is_never_changed_in_place() -> None:
    whole = make_completion(token_ids=[1], chunk_ns=[1], chunk_sizes=[1])
    with pytest.raises(FrozenInstanceError):
        whole.reason = None  # type: ignore[misc]
    assert whole.usage is not None
    with pytest.raises(FrozenInstanceError):
        whole.usage.cached_tokens = 0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["--model", "m", "--speculative-config", "{}", "--port", "1"], ["--model", "m", "--port", "1"]),
        (["--speculative-config={}", "x", "--a"], ["x", "--a"]),
        (["--speculative-config", "--a", "b"], ["--a", "b"]),
        (["--speculative-config", "{}", "c", "d"], ["c", "d"]),
        (["m", "--speculative-config"], ["m"]),
    ],
)
def test_a_declared_option_goes_with_its_own_value_and_no_other(arguments: list[str], kept: list[str]) -> None:
    assert undeclared(arguments, frozenset({"--speculative-config"})) == kept
    assert undeclared(arguments, frozenset()) == arguments


def test_ids_of_one_instant_are_added_up() -> None:
    assert bursts([(1.0, 2), (1.0, 3), (2.0, 1), (2.0, 0), (3.0, 4)]) == [(1.0, 5), (2.0, 1), (3.0, 4)]


def test_a_rung_counts_the_answers_equal_to_mtp0() -> None:
    answers = [request("a", mtp0=ORACLE), request("b", mtp0=ORACLE), request("c", mtp0=away(5))]
    rung = summarise_rung(3, [batch(answers)], [], captured=None)
    assert (rung.exact, rung.exact_own, rung.exact_mtp0, rung.total) == (2, 3, 2, 3)
    assert summarise_rung(1, [exact_rung(1)], [], captured=None).exact_mtp0 is None


def test_figures_of_a_batch_are_finite_or_null() -> None:
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValidationError, match="finite"):
            exact_rung(1, rate=wrong)


def test_a_batch_that_takes_no_time_has_no_rate() -> None:
    assert batch_rates([Arrivals(chunks=[(0.0, 5)], last_byte_ms=0.0)]) == (None, None)
    assert batch_rates([]) == (None, None)


def test_full_rates_of_the_shortest_answers() -> None:
    assert tok_s_after_ttft_full(1, 1.0, 3.0) is None
    assert tok_s_after_ttft_full(2, 1.0, 3.0) == 1.0
    assert tok_s_wall_full(10, 1.0, 3.0) == 5.0


def test_the_client_gate_tells_its_figures() -> None:
    notes = client_gate("a", make_rows(), [20.0, 40.0], [10.0, 12.0], 0.25, "kernel").notes
    assert notes == [
        "timestamps: kernel",
        "client lag: largest lag 40.0 µs over 2 reads, median gap 11.000 ms",
        "client CPU: 0.25 of a core",
    ]
    assert "lag p99 20.0 µs over 100 reads" in client_gate("a", make_rows(), [20.0] * 100, [10.0], 0.1, "k").notes[1]


def test_a_hundred_values_have_a_99th_percentile_and_99_a_maximum() -> None:
    values = [float(value) for value in range(100)]
    assert p99_or_max(values) == pytest.approx(98.01)
    assert p99_or_max(values[1:]) == 99.0
