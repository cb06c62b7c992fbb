"""Telemetry on the page: energy, power, clocks and heat of the cards, where recorded (contract section 8)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from harness.evidence import store
from harness.evidence.ladder_schema import AnyEvidence, LadderAttempt
from harness.evidence.schema import PowerUse
from harness.host.telemetry import Sample, load_series
from harness.publish import plots
from harness.publish.page_view import (
    Block,
    Cell,
    Chip,
    Fold,
    Mark,
    Numbers,
    Row,
    Section,
    Sentences,
    Tone,
    drawing,
    table,
)

Samples = Mapping[str, Sequence[Sample]]
"""Attempt directory → its samples"""
THROTTLED: Mapping[str, Tone] = {"yes": "bad", "no": "good", "unknown": "warn"}
NOT_RECORDED = "Not recorded: no power, frequency, throttle reason or temperature of a card stands in this evidence."


def samples_of(directory: Path, evidence: AnyEvidence) -> dict[str, list[Sample]]:
    """What telemetry.jsonl of each attempt holds; nothing where there is no such file. Raises EvidenceError."""
    found = {}
    for attempt in evidence.attempts:
        path = directory / store.ATTEMPTS / attempt.directory / store.TELEMETRY
        if path.is_file():
            with path.open(encoding="utf-8", newline="\n") as lines:
                found[attempt.directory] = load_series(lines)
    return found


def telemetry_section(evidence: AnyEvidence, samples: Samples, n: Numbers, mark: Mark, prefix: str) -> Section:
    """What the cards drew and did; "not recorded" where nothing was."""
    rows, cards, rungs = [], [], []
    notes: list[str] = []
    for attempt in evidence.attempts:
        use, path = attempt.power_use, f"attempts.{attempt.directory}"
        if use is not None:
            rows.append(_server_row(attempt.directory, use, n))
            cards += _card_rows(attempt.directory, use, n)
            notes += [f"{attempt.directory}: {note}" for note in use.notes]
        if isinstance(attempt, LadderAttempt):
            for at, rung in enumerate(attempt.rung_power):
                place = f"{path}.rung_power.{at}"
                cells: tuple[Cell, ...] = (
                    attempt.directory,
                    f"c{rung.rung}",
                    n(f"{place}.joules", rung.joules, 1, "J"),
                    n(f"{place}.mean_watts", rung.mean_watts, 1, "W"),
                    n(f"{place}.tokens_per_joule", rung.tokens_per_joule, 3),
                    Chip(rung.throttled, THROTTLED[rung.throttled]),
                )
                rungs.append(Row(cells))
    blocks: list[Block] = []
    if rows:
        head = ("server", "window", "energy", "mean power", "tokens a joule", "throttled")
        blocks.append(table(head, rows, "From the first measured request to the end of the last", left=(0, 5)))
        names = ("server", "card", "energy", "mean power", "clock", "package", "memory", "throttled")
        blocks.append(table(names, cards, "Each card", left=(0, 1, 7)))
    if rungs:
        blocks.append(
            table(("server", "users", "energy", "mean power", "tokens a joule", "throttled"), rungs, left=(0, 1, 5))
        )
    if notes:
        blocks.append(Sentences(tuple(notes), "warn"))
    for at, (label, series) in enumerate(samples.items()):
        figures = tuple(_figures(series, f"{prefix}w{at}", mark))
        if figures:
            blocks.append(Fold(f"{label}: {len(series)} samples", figures))
    if not blocks:
        blocks.append(Sentences((NOT_RECORDED,), "warn"))
    return Section("telemetry", "Telemetry", tuple(blocks))


def _server_row(label: str, use: PowerUse, n: Numbers) -> Row:
    path, power = f"attempts.{label}.power_use.power", use.power
    cells: tuple[Cell, ...] = (
        label,
        n(f"{path}.seconds", power.seconds, 1, "s"),
        n(f"{path}.joules", power.joules, 1, "J"),
        n(f"{path}.mean_watts", power.mean_watts, 1, "W"),
        n(f"{path}.tokens_per_joule", power.tokens_per_joule, 3),
        Chip(power.throttled, THROTTLED[power.throttled]),
    )
    return Row(cells)


def _card_rows(label: str, use: PowerUse, n: Numbers) -> list[Row]:
    rows = []
    for kind, cards in (("power.cards", use.power.cards), ("other_cards", use.other_cards)):
        for at, card in enumerate(cards):
            path = f"attempts.{label}.power_use.{kind}.{at}"
            why = ", ".join(card.throttle_reasons)
            cells: tuple[Cell, ...] = (
                label,
                card.card if kind == "power.cards" else f"{card.card}, not this server's",
                n(f"{path}.joules", card.joules, 1, "J"),
                n(f"{path}.mean_watts", card.mean_watts, 1, "W"),
                (
                    n(f"{path}.frequency_mhz_min", card.frequency_mhz_min, 0),
                    " to ",
                    n(f"{path}.frequency_mhz_max", card.frequency_mhz_max, 0, "MHz"),
                ),
                n(f"{path}.temperature_package_c_max", card.temperature_package_c_max, 0, "°C"),
                n(f"{path}.temperature_vram_c_max", card.temperature_vram_c_max, 0, "°C"),
                (Chip(card.throttled, THROTTLED[card.throttled]), f" {why}" if why else ""),
            )
            rows.append(Row(cells, "plain" if kind == "power.cards" else "muted"))
    return rows


def watts(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """(seconds after the first sample, mean W since the one before); a step with no or a falling energy is left out."""
    found = []
    for one, other in pairwise(samples):
        known = one.energy_uj is not None and other.energy_uj is not None
        if known and other.t_ns > one.t_ns and (rise := (other.energy_uj or 0) - (one.energy_uj or 0)) >= 0:
            found.append(((other.t_ns - samples[0].t_ns) / 1e9, rise * 1e3 / (other.t_ns - one.t_ns)))
    return found


def _figures(samples: Sequence[Sample], prefix: str, mark: Mark) -> list[Block]:
    if not samples:
        return []
    cards = {card: [item for item in samples if item.card == card] for card in dict.fromkeys(s.card for s in samples)}
    start = samples[0].t_ns

    def read(value: Callable[[Sample], int | None], scale: float) -> dict[str, list[tuple[float, float]]]:
        return {
            card: [((item.t_ns - start) / 1e9, found / scale) for item in items if (found := value(item)) is not None]
            for card, items in cards.items()
        }

    drawn = (
        ("Power", {card: watts(items) for card, items in cards.items()}, "W"),
        ("Clock", read(lambda item: item.act_mhz, 1), "MHz"),
        ("Package", read(lambda item: item.package_mc, 1e3), "°C"),
        ("Memory", read(lambda item: item.vram_mc, 1e3), "°C"),
    )
    return [
        drawing(f"{name}, {unit}", svg, "", mark)
        for at, (name, series, unit) in enumerate(drawn)
        if (svg := plots.telemetry(series, prefix=f"{prefix}-{at}", unit=unit))
    ]
