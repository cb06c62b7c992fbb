"""What telemetry means over a window: pure."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.host.telemetry import Sample
from harness.measure.power import GAP_NS, MAX_WATTS, WRAPS_UJ, card_power, counter_rise, summarise, window_joules

MS = 1_000_000
STEP = 250 * MS


def steady(watts: int, count: int, *, start: int = 0, at: int = 0, **same: object) -> list[Sample]:
    """One sample each 250 ms at constant power."""
    values: dict[str, object] = {"throttled": False, "act_mhz": 2400, **same}
    return [
        Sample(at + number * STEP, "a", start + number * watts * 250_000, **values)  # type: ignore[arg-type]
        for number in range(count)
    ]


def test_a_window_between_samples() -> None:
    readings = steady(200, 9)
    power = summarise({"a": readings, "b": steady(100, 9)}, 100 * MS, 1_900 * MS, tokens=540)
    assert (power.joules, power.mean_watts, power.seconds) == (pytest.approx(540), pytest.approx(300), 1.8)
    assert power.tokens_per_joule == pytest.approx(1.0)
    assert [card.mean_watts for card in power.cards] == [pytest.approx(200), pytest.approx(100)]
    assert [card.samples for card in power.cards] == [7, 7]
    assert power.throttled == "no"


@given(
    watts=st.integers(1, 1500),
    count=st.integers(8, 60),
    start=st.integers(0, 2**40),
    cut=st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    shift=st.integers(-(10**15), 10**15),
)
def test_constant_power_is_that_power_in_every_window(
    watts: int, count: int, start: int, cut: tuple[int, int], shift: int
) -> None:
    readings = steady(watts, count, start=start, at=shift)
    end = (count - 1) * STEP
    t0 = shift + (end // 2 - 1) * cut[0] // 1000
    t1 = shift + end // 2 + (end // 2) * cut[1] // 1000
    power = summarise({"a": readings}, t0, t1)
    assert power.mean_watts == pytest.approx(watts, rel=1e-6)
    assert power.tokens_per_joule is None


rises = st.lists(st.integers(1, 400_000_000), min_size=4, max_size=30)


@given(rises, st.integers(0, 2**62), st.data())
def test_parts_of_a_window_add_up(steps: list[int], start: int, data: st.DataObject) -> None:
    """Whatever the power does: joules over [a, c] are those over [a, b] and [b, c]."""
    readings = played(steps, start)
    end = readings[-1].t_ns
    a, b, c = sorted(data.draw(st.lists(st.integers(0, end), min_size=3, max_size=3, unique=True)))
    whole = window_joules(readings, a, c)[0]
    parts = [window_joules(readings, a, b)[0], window_joules(readings, b, c)[0]]
    assert whole is not None
    assert whole == pytest.approx(sum(part for part in parts if part is not None), rel=1e-6, abs=1e-6)


def played(steps: Sequence[int], start: int = 0, *, end: int | None = None) -> list[Sample]:
    """A counter that rises by these microjoules, and begins anew at ``end``."""
    readings = [Sample(0, "a", start)]
    for number, step in enumerate(steps, 1):
        start += step
        readings.append(Sample(number * STEP, "a", start if end is None else start % end))
    return readings


@given(rises, st.sampled_from(WRAPS_UJ), st.integers(0, 2**31))
def test_a_counter_that_wraps_is_the_same_as_one_that_does_not(steps: list[int], end: int, before: int) -> None:
    start = end - 1 - before % (sum(steps) + 1)
    t1 = len(steps) * STEP
    assert window_joules(played(steps, start, end=end), 0, t1) == window_joules(played(steps, start % 2**60), 0, t1)


@given(rises, st.integers(1, 3), st.integers(0, 1000))
def test_a_counter_that_begins_anew_gives_no_energy(steps: list[int], at: int, fresh: int) -> None:
    """5 kJ up or more, then near zero: no wrap is near."""
    readings = played(steps, 10**10)
    reset = [
        *readings[:at],
        *(Sample(r.t_ns, "a", fresh + number) for number, r in enumerate(readings[at:])),
    ]
    joules, why = window_joules(reset, 0, readings[-1].t_ns)
    assert joules is None
    assert why == "the energy counter went back, as after a reset of the card or its driver"


@given(st.integers(0, 2**64), st.integers(0, 2**64), st.integers(-5, 10**11))
def test_a_rise_is_never_negative_and_never_more_than_a_card_draws(before: int, after: int, ns: int) -> None:
    rise = counter_rise(before, after, ns)
    assert rise is None or 0 <= rise <= MAX_WATTS * ns / 1000 + 10**6
    assert ns > 0 or rise is None


def test_a_jump_forward_is_no_energy() -> None:
    readings = steady(200, 9)
    jumped = [*readings[:4], *(Sample(r.t_ns, "a", (r.energy_uj or 0) + 10**12) for r in readings[4:])]
    assert window_joules(jumped, 0, 2_000 * MS)[1].startswith("the energy counter jumped")


def test_a_counter_that_stands_still_is_not_zero_watts() -> None:
    power = summarise({"a": steady(0, 9)}, 0, 2_000 * MS, tokens=10)
    assert (power.joules, power.mean_watts, power.tokens_per_joule) == (None, None, None)
    assert power.cards[0].energy_note == "the energy counter stood still"


@pytest.mark.parametrize(
    ("keep", "why"),
    [
        (lambda _: False, "no sample has the energy counter"),
        (lambda r: r.t_ns > 500 * MS, "the energy was not read before the window's start and after its end"),
        (lambda r: r.t_ns < 3_500 * MS, "the energy was not read before the window's start and after its end"),
        (lambda r: not 0 < r.t_ns < 1_500 * MS, "the energy was not read within 1 s of the window's ends"),
        (lambda r: not 2_500 * MS < r.t_ns < 4_000 * MS, "the energy was not read within 1 s of the window's ends"),
    ],
)
def test_missing_reads_at_the_ends_are_told(keep: object, why: str) -> None:
    readings = [r if keep(r) else Sample(r.t_ns, "a") for r in steady(200, 17)]  # type: ignore[operator]
    card = card_power("a", readings, 400 * MS, 3_600 * MS)
    assert (card.joules, card.mean_watts, card.energy_note) == (None, None, why)


def test_missing_reads_in_the_middle_lose_no_energy() -> None:
    readings = [r if not 1_000 * MS < r.t_ns < 3_000 * MS else Sample(r.t_ns, "a") for r in steady(200, 17)]
    card = card_power("a", readings, 400 * MS, 3_600 * MS)
    assert card.mean_watts == pytest.approx(200)
    assert card.throttled == "unknown"  # but nobody looked at it for two seconds


def test_throttled_is_yes_no_or_unknown() -> None:
    clean = steady(200, 17)
    yes = [
        *clean[:8],
        Sample(2_000 * MS, "a", clean[8].energy_uj, throttled=True, reasons=("pl1", "thermal")),
        *clean[9:],
    ]
    blind = [Sample(r.t_ns, "a", r.energy_uj) for r in clean]
    window = (400 * MS, 3_600 * MS)
    card = card_power("a", yes, *window)
    assert (card.throttled, card.throttle_reasons) == ("yes", {"pl1": 1, "thermal": 1})
    assert card_power("a", yes, 400 * MS, 1_900 * MS).throttled == "no"
    assert card_power("a", blind, *window).throttled == "unknown"
    for series, verdict in (
        ({"a": clean, "b": clean}, "no"),
        ({"a": clean, "b": yes}, "yes"),
        ({"a": blind, "b": yes}, "yes"),
        ({"a": clean, "b": blind}, "unknown"),
        ({}, "unknown"),
    ):
        assert summarise(series, *window).throttled == verdict  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 8_000), min_size=1, max_size=40, unique=True))
def test_no_needs_a_look_at_least_each_second(moments: list[int]) -> None:
    readings = [Sample(moment * MS, "a", throttled=False) for moment in sorted(moments)]
    inside = [0, *(moment for moment in sorted(moments) if moment <= 4_000), 4_000]
    watched = len(inside) > 2 and max(later - sooner for sooner, later in pairwise(inside)) * MS <= GAP_NS
    assert card_power("a", readings, 0, 4_000 * MS).throttled == ("no" if watched else "unknown")


def test_extremes_are_of_the_window_alone() -> None:
    readings = [
        Sample(0, "a", 0, 300_000_000, 90_000, 99_000, 100, 100, True, ("pl4",)),
        Sample(STEP, "a", 1, 290_000_000, 60_000, None, 100, 2_400, False),
        Sample(2 * STEP, "a", 2, None, 61_500, 70_000, 100, 2_800, False),
        Sample(3 * STEP, "a", 3, 280_000_000, None, 69_000, 100, None, False),
        Sample(4 * STEP, "a", 4, 300_000_000, 91_000, 99_000, 100, 50, True, ("pl4",)),
    ]
    card = card_power("a", readings, STEP, 3 * STEP)
    assert (card.power_cap_watts_min, card.power_cap_watts_max) == (280, 290)
    assert (card.frequency_mhz_min, card.frequency_mhz_max) == (2_400, 2_800)
    assert (card.temperature_package_c_max, card.temperature_vram_c_max) == (61.5, 70)
    assert (card.samples, card.throttled, card.throttle_reasons) == (3, "no", {})


def test_nothing_seen_is_nothing_known() -> None:
    card = card_power("a", [], 0, STEP)
    assert (card.samples, card.mean_watts, card.frequency_mhz_min, card.throttled) == (0, None, None, "unknown")
    power = summarise({}, 0, STEP, tokens=5)
    assert (power.joules, power.tokens_per_joule) == (None, None)


def test_a_card_without_energy_leaves_no_sum() -> None:
    power = summarise({"a": steady(200, 9), "b": []}, 0, 2_000 * MS, tokens=5)
    assert (power.joules, power.tokens_per_joule, power.cards[0].joules) == (None, None, pytest.approx(400))


def test_a_window_has_a_length() -> None:
    with pytest.raises(ValueError, match="length"):
        summarise({}, 5, 5)


@given(
    st.lists(
        st.builds(Sample, t_ns=st.integers(0, 10**10), card=st.just("a"), energy_uj=st.none() | st.integers(0, 2**64))
    )
)
def test_whatever_was_sampled_the_summary_can_be_written(readings: list[Sample]) -> None:
    readings = sorted(readings, key=lambda reading: reading.t_ns)
    text = summarise({"a": readings}, 10**9, 5 * 10**9, tokens=7).model_dump_json()
    assert "NaN" not in text
    assert "Infinity" not in text
