"""What telemetry means over a window: energy, power, clocks, heat, throttling (contract section 8).

Unknown is never clean: an energy that can't be told is null with a reason, and a window that was not watched from end
to end is not called unthrottled.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

GAP_NS = 1_000_000_000
"""A card that was not looked at for longer was not watched; four periods of 250 ms."""
MAX_WATTS = 2000.0
"""More than a card's plugs carry: a counter that rises faster has jumped."""
WRAPS_UJ = (2**32, 2**32 * 1_000_000 >> 14, 2**63, 2**64)
"""Where energy counters begin again: in microjoules, and in the hardware's own unit of 2^-14 J"""

Throttled = Literal["yes", "no", "unknown"]


class Reading(Protocol):
    """One card at one moment; None is unknown. See harness.host.telemetry.Sample."""

    @property
    def t_ns(self) -> int: ...
    @property
    def energy_uj(self) -> int | None: ...
    @property
    def power_cap_uw(self) -> int | None: ...
    @property
    def package_mc(self) -> int | None: ...
    @property
    def vram_mc(self) -> int | None: ...
    @property
    def act_mhz(self) -> int | None: ...
    @property
    def throttled(self) -> bool | None: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...


class Summary(BaseModel):
    """Base of the summaries."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class CardPower(Summary):
    """One card over one window. Null is unknown."""

    card: str
    """PCI address"""
    samples: int
    """in the window"""
    joules: float | None
    """rise of energy1_input, read off at both ends between the two samples beside each"""
    mean_watts: float | None
    """joules / length of the window"""
    energy_note: str
    """why they are null; else empty"""
    power_cap_watts_min: float | None
    power_cap_watts_max: float | None
    frequency_mhz_min: int | None
    frequency_mhz_max: int | None
    temperature_package_c_max: float | None
    temperature_vram_c_max: float | None
    throttled: Throttled
    """no only when the card was looked at all through the window and never was"""
    throttle_reasons: dict[str, int]
    """by name: samples in which it was active"""


class Power(Summary):
    """All cards over one window."""

    seconds: float
    cards: list[CardPower]
    joules: float | None
    """of all cards; null when one of them is unknown, or there is none"""
    mean_watts: float | None
    tokens: int | None
    tokens_per_joule: float | None
    throttled: Throttled


def summarise(series: dict[str, Sequence[Reading]], t0_ns: int, t1_ns: int, *, tokens: int | None = None) -> Power:
    """Card -> its readings in order of time; the window is [t0, t1] on the readings' clock, t0 before t1."""
    if t1_ns <= t0_ns:
        raise ValueError("a window has a length")
    cards = [card_power(card, readings, t0_ns, t1_ns) for card, readings in series.items()]
    energies = [card.joules for card in cards]
    joules = math.fsum(value for value in energies if value is not None) if cards and None not in energies else None
    seconds = (t1_ns - t0_ns) / 1e9
    seen = {card.throttled for card in cards}
    return Power(
        seconds=seconds,
        cards=cards,
        joules=joules,
        mean_watts=None if joules is None else joules / seconds,
        tokens=tokens,
        tokens_per_joule=None if tokens is None or not joules else tokens / joules,
        throttled="yes" if "yes" in seen else "no" if seen == {"no"} else "unknown",
    )


def card_power(card: str, readings: Sequence[Reading], t0_ns: int, t1_ns: int) -> CardPower:
    """One card over [t0, t1]."""
    inside = [reading for reading in readings if t0_ns <= reading.t_ns <= t1_ns]
    joules, note = window_joules(readings, t0_ns, t1_ns)
    caps = [reading.power_cap_uw for reading in inside if reading.power_cap_uw is not None]
    clocks = [reading.act_mhz for reading in inside if reading.act_mhz is not None]
    package = [reading.package_mc for reading in inside if reading.package_mc is not None]
    vram = [reading.vram_mc for reading in inside if reading.vram_mc is not None]
    return CardPower(
        card=card,
        samples=len(inside),
        joules=joules,
        mean_watts=None if joules is None else joules / ((t1_ns - t0_ns) / 1e9),
        energy_note=note,
        power_cap_watts_min=min(caps) / 1e6 if caps else None,
        power_cap_watts_max=max(caps) / 1e6 if caps else None,
        frequency_mhz_min=min(clocks, default=None),
        frequency_mhz_max=max(clocks, default=None),
        temperature_package_c_max=max(package) / 1000 if package else None,
        temperature_vram_c_max=max(vram) / 1000 if vram else None,
        throttled=_throttled(inside, t0_ns, t1_ns),
        throttle_reasons=dict(sorted(Counter(name for reading in inside for name in set(reading.reasons)).items())),
    )


def _throttled(inside: Sequence[Reading], t0_ns: int, t1_ns: int) -> Throttled:
    if any(reading.throttled for reading in inside):
        return "yes"
    looks = [t0_ns, *(reading.t_ns for reading in inside if reading.throttled is False), t1_ns]
    watched = len(looks) > 2 and all(later - sooner <= GAP_NS for sooner, later in pairwise(looks))
    return "no" if watched else "unknown"


def window_joules(readings: Sequence[Reading], t0_ns: int, t1_ns: int) -> tuple[float | None, str]:
    """Energy over [t0, t1], or None and why."""
    known = [(reading.t_ns, reading.energy_uj) for reading in readings if reading.energy_uj is not None]
    first = max((at for at, (t, _) in enumerate(known) if t <= t0_ns), default=None)
    last = min((at for at, (t, _) in enumerate(known) if t >= t1_ns), default=None)
    if not known:
        return None, "no sample has the energy counter"
    if first is None or last is None:
        return None, "the energy was not read before the window's start and after its end"
    used = known[first : last + 1]
    if used[1][0] - used[0][0] > GAP_NS or used[-1][0] - used[-2][0] > GAP_NS:
        return None, f"the energy was not read within {GAP_NS / 1e9:g} s of the window's ends"
    total = 0.0
    moved = False
    for (sooner, before), (later, after) in pairwise(used):
        rise = counter_rise(before, after, later - sooner)
        if rise is None:
            way = "went back" if after < before else "jumped"
            return None, f"the energy counter {way}, as after a reset of the card or its driver"
        moved = moved or rise > 0
        inside = min(later, t1_ns) - max(sooner, t0_ns)
        total += rise * inside / (later - sooner)
    if not moved:  # a card that is switched on draws something
        return None, "the energy counter stood still"
    return total / 1e6, ""


def counter_rise(before: int, after: int, ns: int) -> int | None:
    """Microjoules between two reads ``ns`` apart; None when the counter jumped or began anew.

    A counter that went back has wrapped only if the rise over its end is one that a card can draw.
    """
    if ns <= 0:
        return None
    most = MAX_WATTS * ns / 1000 + 1_000_000
    if after >= before:
        return after - before if after - before <= most else None
    wrapped = [end - before + after for end in WRAPS_UJ if end > before]
    return next((rise for rise in wrapped if rise <= most), None)
