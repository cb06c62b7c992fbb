"""The curve of a concurrency ladder, withheld rungs hollow (contract section 5). Pure."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from matplotlib.axes import Axes

from harness.evidence.imported import ImportedRung
from harness.publish.plots_axes import frame, join, label_ticks, line_key, log_limits, top
from harness.publish.plots_svg import (
    INK,
    PAPER,
    WIDTH,
    Sheet,
    color_of,
    drawable,
    drawn,
    figures,
    finish,
    marker_of,
    width_of,
    wrap,
)

Box = tuple[float, float, float, float]
"""left, top, right, bottom in units"""


class CurveRung(Protocol):
    """What a curve needs of a rung: measured (``Rung``) or imported (``ImportedRung``)."""

    @property
    def rung(self) -> int: ...
    @property
    def tok_s(self) -> float | None: ...
    @property
    def exact(self) -> int | None: ...
    @property
    def total(self) -> int | None: ...
    @property
    def withheld(self) -> bool | None: ...


def rungs_of_imported(rungs: Sequence[ImportedRung]) -> list[ImportedRung]:
    """Imported rungs for a curve, by users; where only counts stand they say whether the rung is withheld."""
    found = []
    for item in sorted(rungs, key=lambda rung: rung.rung):
        missed = None if item.exact is None or item.total is None else item.exact < item.total
        found.append(item.model_copy(update={"withheld": missed}) if item.withheld is None else item)
    return found


def _kind(rung: CurveRung) -> str:
    """``shown``, ``withheld``, or ``unknown`` where nothing says whether the answers were exact."""
    return "unknown" if rung.withheld is None else "withheld" if rung.withheld else "shown"


def _count(rung: CurveRung) -> str:
    return "" if rung.exact is None or rung.total is None else f"{rung.exact}/{rung.total}"


@drawn
def ladder_curve(rungs_by_label: Mapping[str, Sequence[CurveRung]], *, prefix: str) -> str:
    """Aggregate tokens/s over concurrent users, log2: shown rungs filled and joined, withheld ones hollow.

    A hollow point has its count of exact answers beside it and breaks the line. A rung of which nothing says whether it
    was exact is hollow too, without a count. Elements: ``class="point shown|withheld|unknown"``, ``data-ladder``,
    ``data-users``, ``data-rate`` (tokens/s), ``data-exact`` ("95/96", empty where unknown). A rung without a rate is
    named below; "" when no rung has one.
    """
    curves = {
        label: [(rung, rung.tok_s) for rung in sorted(rungs, key=lambda item: item.rung) if rung.rung > 0]
        for label, rungs in rungs_by_label.items()
    }
    points = {
        label: [(rung, rate) for rung, rate in curve if rate is not None and drawable(rate) and rate >= 0]
        for label, curve in curves.items()
    }
    everything = [point for curve in points.values() for point in curve]
    if not everything:
        return ""
    missing = [
        f"{label} {', '.join(f'c{rung.rung}' for rung, rate in curve if (rung, rate) not in points[label])}"
        for label, curve in curves.items()
        if len(curve) > len(points[label])
    ]
    kinds = Counter(_kind(rung) for rung, _ in everything)
    keys = [line_key(label, at) for at, label in enumerate(points)]
    hollow: dict[str, object] = {"color": INK, "markerfacecolor": PAPER, "markersize": 6, "linestyle": "none"}
    if kinds["withheld"]:
        keys.append(("withheld: exact/all", hollow | {"marker": "o"}))
    if kinds["unknown"]:
        keys.append(("not known whether exact", hollow | {"marker": "o"}))
    notes = wrap(f"No rate: {'; '.join(missing)}.") if missing else []
    sheet, axes = frame("ladder", keys, notes, "aggregate, tokens/s", "concurrent users (log scale)")
    users = sorted({rung.rung for rung, _ in everything})
    log_limits(axes, users)
    top(axes, [rate for _, rate in everything])
    powers = [value for value in users if value & (value - 1) == 0]
    wanted = [*powers, *(value for value in users if value not in powers)]
    label_ticks(axes, users, wanted, {value: str(value) for value in users})
    for at, (label, curve) in enumerate(points.items()):
        join(axes, [(rung.rung, rate if _kind(rung) == "shown" else None) for rung, rate in curve], color_of(at))
        for number, (rung, rate) in enumerate(curve):
            _rung_point(sheet, axes, f"point-{at}-{number}", at, label, rung, rate)
    _counts(sheet, axes, points)
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    highest = [
        f"{label} {figures(max(rates_shown))}"
        for label, curve in points.items()
        if (rates_shown := [rate for rung, rate in curve if _kind(rung) == "shown"])
    ]
    found = f" Highest shown: {', '.join(highest)} tokens/s." if highest else ""
    return finish(
        sheet,
        prefix=prefix,
        title="Concurrency ladder",
        description=f"Aggregate tokens/s over concurrent users; {len(everything)} rungs: {parts}.{found}",
    )


def _rung_point(sheet: Sheet, axes: Axes, gid: str, at: int, label: str, rung: CurveRung, rate: float) -> None:
    kind, color = _kind(rung), color_of(at)
    axes.plot(
        [rung.rung],
        [rate],
        linestyle="none",
        marker=marker_of(at),
        markersize=6.5,
        color=color,
        markerfacecolor=color if kind == "shown" else PAPER,
        markeredgewidth=1.5,
        gid=gid,
        zorder=4,
        clip_on=False,
    )
    count = _count(rung)
    said = {"shown": "shown", "withheld": "withheld", "unknown": "not known whether exact"}[kind]
    sheet.tags[gid] = {
        "class": f"point {kind}",
        "data-ladder": label,
        "data-users": str(rung.rung),
        "data-rate": repr(rate),
        "data-exact": count,
        "title": f"{label}, {rung.rung} users: {rate:,.1f} tokens/s, {said}{f' ({count})' if count else ''}",
    }


def _counts(sheet: Sheet, axes: Axes, points: Mapping[str, Sequence[tuple[CurveRung, float]]]) -> None:
    """The count beside each hollow point, at the first place around it where it covers nothing."""

    def place(rung: CurveRung, rate: float) -> tuple[float, float]:
        x, y = axes.transData.transform((rung.rung, rate))
        return float(x), sheet.height - float(y)

    everything = [point for curve in points.values() for point in curve]
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in itertools.starmap(place, everything)]
    for at, curve in enumerate(points.values()):
        for rung, rate in curve:
            words = _count(rung)
            if words and _kind(rung) != "shown":
                x, y = place(rung, rate)
                box = _free(words, x, y, taken)
                taken.append(box)
                sheet.text(box[0], box[3] - 2, words, size=9, color=color_of(at))
                edge = box[3] if box[3] < y - 9 else box[1] if box[1] > y + 9 else None
                if edge is not None:
                    near = min(max(x, box[0]), box[2])
                    sheet.over.plot([x, near], [y, edge], color=color_of(at), linewidth=0.5, zorder=1)


def _free(words: str, x: float, y: float, taken: Sequence[Box]) -> Box:
    wide, tall = width_of(words, 9), 10.0
    corners = [(x - wide / 2, y - 7 - tall * (1 + step)) for step in (0, 0.8)]
    corners += [(x - wide / 2, y + 7 + tall * step) for step in (0, 0.8)]
    corners += [(x + 7, y + up) for up in (-tall / 2, -tall - 4, 4)]
    corners += [(x - 7 - wide, y + up) for up in (-tall / 2, -tall - 4, 4)]
    corners += [(x - wide / 2, y - 7 - tall * step) for step in (2.8, 3.8, 4.8, 5.8)]
    corners += [(x - wide / 2, y + 7 + tall * step) for step in (1.8, 2.8, 3.8)]
    boxes = [(left, up, left + wide, up + tall) for left, up in corners]
    # a label that would leave the sheet slides back onto it
    boxes = [(a - over, b, c - over, d) for a, b, c, d in boxes for over in [max(c - WIDTH + 1, 0.0)]]
    return min(boxes, key=lambda box: sum(_overlap(box, other) for other in taken))


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0
