"""telemetry.jsonl over the windows in which something was measured: per server, and per rung of a ladder."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from harness.evidence.ladder_schema import RungPower
from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import AttemptStatus, PowerUse, ServerRecord
from harness.host.telemetry import Sample
from harness.measure.power import Power, Throttled, card_power, summarise
from harness.wire.exchange import Exchange

Window = tuple[int, int]
"""Nanoseconds of CLOCK_MONOTONIC"""


def window_of(exchanges: Sequence[Exchange]) -> Window | None:
    """From the first start (a batch's barrier) to the last end; None when nothing has ended."""
    ended = [item for item in exchanges if item.end_mono_ns > item.t0_mono_ns]
    if not ended:
        return None
    return min(item.t0_mono_ns - (item.released_ns or 0) for item in ended), max(item.end_mono_ns for item in ended)


def power_use(files: AttemptFiles, exchanges: Sequence[Exchange], tokens: int | None) -> PowerUse | None:
    """Over what was sent; None where there is no telemetry, no card or no answer.

    A server is told its cards by index. Which card an index means isn't told by anything that we may read, so it is
    taken in the order of addresses; when a card that wasn't chosen drew more than one that was, the energy is unknown.
    """
    given, window = _given(files), window_of(exchanges)
    if given is None or files.telemetry is None or window is None:
        return None
    series = _series(files.telemetry)
    power = _summary(series, given, window, tokens)
    others = [card_power(card, readings, *window) for card, readings in series.items() if card not in given]
    notes = [f"card {card.card}: {card.energy_note}" for card in power.cards if card.energy_note]
    drawn = [card.joules for card in power.cards if card.joules is not None]
    more = [card.card for card in others if card.joules is not None and drawn and card.joules > min(drawn)]
    if more:
        notes.append(
            f"{more[0]} drew more than a card that this server was given, so which cards it used is unknown, and so is "
            "its energy"
        )
        power = _without_energy(power)
    return PowerUse(power=power, other_cards=others, notes=notes)


def rung_power(
    files: AttemptFiles, batches: Mapping[tuple[int, int], Sequence[Exchange]], tokens: Mapping[tuple[int, int], int]
) -> list[RungPower]:
    """(rung, pass) → its exchanges, and the tokens that came. Passes from 2 on, as in the published rate."""
    given, whole = _given(files), power_use(files, [item for batch in batches.values() for item in batch], None)
    if given is None or files.telemetry is None or whole is None:
        return []
    series, found = _series(files.telemetry), []
    doubtful = [note for note in whole.notes if "is unknown" in note]
    for rung in dict.fromkeys(users for users, _ in batches):
        every = [number for users, number in batches if users == rung]
        counted = [number for number in every if number > 1] or every
        windows = {number: window_of(batches[rung, number]) for number in counted}
        powers = [
            _summary(series, given, window, tokens.get((rung, number), 0))
            for number, window in windows.items()
            if window is not None
        ]
        found.append(_rung(rung, counted, powers, doubtful))
    return found


def _rung(rung: int, passes: list[int], powers: Sequence[Power], doubtful: Sequence[str]) -> RungPower:
    seconds = math.fsum(power.seconds for power in powers)
    known = [power.joules for power in powers if power.joules is not None]
    joules = math.fsum(known) if powers and len(known) == len(powers) and not doubtful else None
    tokens = sum(power.tokens or 0 for power in powers)
    notes = [f"card {card.card}: {card.energy_note}" for power in powers for card in power.cards if card.energy_note]
    seen: set[Throttled] = {power.throttled for power in powers}
    return RungPower(
        rung=rung,
        passes=passes,
        seconds=seconds,
        joules=joules,
        mean_watts=None if joules is None or not seconds else joules / seconds,
        tokens=tokens,
        tokens_per_joule=None if not joules else tokens / joules,
        throttled="yes" if "yes" in seen else "no" if seen == {"no"} else "unknown",
        notes=list(dict.fromkeys([*doubtful, *notes])),
    )


class Attempted(Protocol):
    """An attempt of any kind, as far as it is needed here."""

    @property
    def label(self) -> str: ...
    @property
    def status(self) -> AttemptStatus: ...
    @property
    def server(self) -> ServerRecord | None: ...
    @property
    def power_use(self) -> PowerUse | None: ...


def telemetry_unknown(attempts: Iterable[Attempted]) -> list[str]:
    """What isn't known of the cards of servers that had some, one sentence each: unknown is never clean."""
    found = []
    for attempt in attempts:
        record, use = attempt.server.host if attempt.server is not None else None, attempt.power_use
        if record is None or record.cards is None:
            continue
        said = [f"telemetry: unknown ({sentence})" for sentence in record.telemetry]
        if use is None and attempt.status is AttemptStatus.COMPLETE:
            said.append("telemetry: not recorded")
        if use is not None:
            said += [f"energy: unknown ({note})" for note in use.notes]
        if use is not None and use.power.throttled == "unknown":
            said.append("throttling: unknown (the cards were not watched all through the window)")
        found += [f"{attempt.label}: {sentence}" for sentence in said]
    return found


def _given(files: AttemptFiles) -> list[str] | None:
    record = files.server.host if files.server is not None else None
    return record.cards or None if record is not None else None


def _series(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    series: dict[str, list[Sample]] = {}
    for sample in samples:
        series.setdefault(sample.card, []).append(sample)
    return series


def _summary(series: Mapping[str, list[Sample]], cards: Sequence[str], window: Window, tokens: int | None) -> Power:
    return summarise({card: series.get(card, []) for card in cards}, *window, tokens=tokens)


def _without_energy(power: Power) -> Power:
    return power.model_copy(update={"joules": None, "mean_watts": None, "tokens_per_joule": None})
