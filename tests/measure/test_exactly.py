"""Figures exactly at their bounds, and what stands beside them: what a mutation run found no test for."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from pydantic import ValidationError

from harness.host.telemetry import Sample
from harness.measure.bootstrap import (
    Ratio,
    _with_interval,
    class_balanced,
    groups_of,
    median_of_prompts,
    ratio_of_medians,
    ratio_of_tables,
)
from harness.measure.gates import Arm, client_gate, stream_gate
from harness.measure.ladder import sites, summarise_rung, withheld_sentence
from harness.measure.power import card_power, counter_rise, summarise, window_joules
from tests.measure.factory import make_row, make_rows, replace_row
from tests.measure.test_ladder import ORACLE, away, batch, exact_rung, request

S = 1_000_000_000

# the bootstrap


def test_a_ratio_without_an_interval_says_so() -> None:
    assert Ratio(value=1.0, low=None, high=None).interval() == "no interval"
    assert Ratio(value=1.0, low=None, high=1.0).interval() == "no interval"
    assert Ratio(value=1.0, low=1.021, high=1.0456).interval() == "95 % 1.021 to 1.046"


def test_a_ratio_is_finite_and_never_changed() -> None:
    found = Ratio(value=1.0, low=None, high=None)
    with pytest.raises(ValidationError, match="frozen"):
        found.value = 2.0  # type: ignore[misc]
    with pytest.raises(ValidationError, match="finite"):
        Ratio(value=float("nan"), low=None, high=None)


def test_medians_are_over_prompts_also_of_many_drawn_tables() -> None:
    tables = np.array([[[1.0, 2.0, 9.0], [4.0, 5.0, 6.0]], [[7.0, 1.0, 3.0], [8.0, 8.0, 1.0]]])
    groups = groups_of(["a", "b", "a"])
    assert median_of_prompts(tables, groups).tolist() == [[2.0, 5.0], [3.0, 8.0]]
    assert class_balanced(tables, groups).tolist() == [[3.5, 5.0], [3.0, 6.25]]


def test_the_ratio_of_medians_is_b_over_a_with_its_interval() -> None:
    found = ratio_of_medians([2.0, 2.0, 2.0], [3.0, 3.0], 1)
    assert (found.value, found.low, found.high) == (1.5, 1.5, 1.5)


def test_the_interval_is_from_the_2_5th_to_the_97_5th_percentile() -> None:
    found = _with_interval(1.0, np.arange(1001) / 1000)
    assert (found.low, found.high) == (pytest.approx(0.025), pytest.approx(0.975))


def test_ten_thousand_are_drawn_where_nothing_else_is_said() -> None:
    a, b = [[1.0, 2.0, 4.0]], [[3.0, 5.0, 4.0]]
    usual = ratio_of_tables(a, b, ["c"] * 3, median_of_prompts, 7)
    assert usual == ratio_of_tables(a, b, ["c"] * 3, median_of_prompts, 7, resamples=10_000)
    many = [float(value) for value in range(1, 40)]
    usual = ratio_of_medians(many, many, 7)
    assert usual == ratio_of_medians(many, many, 7, resamples=10_000)
    assert usual != ratio_of_medians(many, many, 7, resamples=10_001)


# gates


def test_a_row_without_a_detail_is_named_with_its_reason_alone() -> None:
    rows = replace_row([make_row(0)], 0, complete=False, reason="no-tokens", detail="")
    assert stream_gate("a", rows).failures == ["a: prompt-00 is incomplete (no-tokens)"]


def test_a_row_that_ended_by_length_is_whole() -> None:
    row = make_row(0, count=512)
    assert row.finish_reason == "length" and stream_gate("a", [row]).passed


def test_figures_that_are_none_fail_the_client_gate_by_its_name() -> None:
    found = client_gate("a", make_rows(), [float("nan")], [1.0], 0.1, "kernel")
    assert (found.name, found.passed) == ("client", False)


def test_an_arm_is_never_changed_in_place() -> None:
    arm = Arm("a", [], "server", "image", "suite", {}, [], 0)
    with pytest.raises(FrozenInstanceError):
        arm.server_id = "another"  # type: ignore[misc]


# the ladder


def test_sites_are_sorted_by_their_times_then_slot_then_index() -> None:
    answers = [request("a", away(9, 1)), request("b", away(3, 1)), request("b", away(2, 7)), request("b", away(1, 7))]
    found = [(site.slot, site.index, site.times) for site in sites([batch([*answers, answers[2]])])]
    assert found == [("b", 2, 2), ("a", 9, 1), ("b", 1, 1), ("b", 3, 1)]


def test_sites_are_not_sorted_by_ids() -> None:
    """An oracle's ids rise and fall; ORACLE's only rise."""
    first, second = request("a", away(1)), request("a", away(3))
    assert first.divergence is not None
    there = first.divergence.model_copy(update={"right_id": 900})
    first = first.model_copy(update={"divergence": there})
    assert [site.index for site in sites([batch([second, first])])] == [1, 3]


def test_answers_with_and_without_mtp0_in_one_rung_are_counted() -> None:
    rung = summarise_rung(2, [batch([request("a", mtp0=ORACLE), request("b")])], [], captured=None)
    assert (rung.exact, rung.exact_mtp0) == (2, 1)


def test_withheld_rungs_are_named_with_rate_and_count() -> None:
    missed = summarise_rung(2, [batch([request("a"), request("b", away(5))])], [], captured=None)
    unrated = summarise_rung(1, [batch([request("a", away(5))], number=1)], [], captured=None)
    shown = summarise_rung(1, [exact_rung(1)], [], captured=None)
    assert withheld_sentence([shown, missed, unrated]) == "Measured but withheld: c2 100.0 (1/2), c1 – (0/1)"
    assert withheld_sentence([shown]) == ""


# power


def look(t_ns: int, energy_uj: int | None = None, throttled: bool | None = False) -> Sample:
    return Sample(t_ns, "a", energy_uj, throttled=throttled)


MOST = 2_001_000_000
"""Microjoules in one second: 2000 W, and one joule for the reading"""


@pytest.mark.parametrize("ns", [1, 1000, S])
def test_two_thousand_watts_and_a_joule_are_the_most(ns: int) -> None:
    most = 2 * ns + 1_000_000
    assert counter_rise(5, 5 + most, ns) == most
    assert counter_rise(5, 6 + most, ns) is None
    assert counter_rise(5, 5, 0) is None


@pytest.mark.parametrize("end", [4_294_967_296, 262_144_000_000, 9_223_372_036_854_775_808, 18_446_744_073_709_551_616])
def test_a_counter_wraps_at_these_ends(end: int) -> None:
    assert counter_rise(end - 10, 5, S) == 15
    assert counter_rise(end - MOST, 0, S) == MOST
    assert counter_rise(end - MOST - 1, 0, S) is None
    assert counter_rise(end, 5, S) is None, "a counter never stands at its end"


def test_one_look_within_a_second_of_both_ends_is_enough() -> None:
    assert card_power("a", [look(S)], 0, 2 * S).throttled == "no"
    assert card_power("a", [look(S)], 0, 2 * S + 1).throttled == "unknown"
    assert card_power("a", [], 0, S).throttled == "unknown"


@pytest.mark.parametrize(("first", "last", "known"), [(0, 3 * S, True), (-1, 3 * S, False), (0, 3 * S + 1, False)])
def test_energy_read_a_second_from_each_end_is_known(first: int, last: int, known: bool) -> None:
    readings = [look(first, 0), look(S, 100_000_000), look(2 * S, 200_000_000), look(last, 300_000_000)]
    joules, note = window_joules(readings, S // 2, 2 * S + S // 2)
    assert (joules is not None) is known
    assert note == ("" if known else "the energy was not read within 1 s of the window's ends")


def test_two_readings_of_one_moment_tell_no_energy() -> None:
    readings = [look(0, 1), look(S // 2, 5), look(S // 2, 5), look(S, 9)]
    assert window_joules(readings, 0, S) == (
        None,
        "the energy counter jumped, as after a reset of the card or its driver",
    )


def test_figures_of_power_are_finite_and_never_changed() -> None:
    power = summarise({"a": [look(0, 0), look(S, 100_000_000)]}, 0, S)
    with pytest.raises(ValidationError, match="frozen"):
        power.joules = 1.0  # type: ignore[misc]
    with pytest.raises(ValidationError, match="finite"):
        type(power).model_validate({**power.model_dump(), "joules": float("inf")})
