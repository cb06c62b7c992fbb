"""Axes of the plots that show a value over something: their frame, ticks, lines and marks. Pure."""

import itertools
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from harness.publish.plots_svg import (
    LEFT,
    MUTED,
    PAPER,
    WIDTH,
    Key,
    Sheet,
    color_of,
    draw_legend,
    figures,
    legend_rows,
    marker_of,
    width_of,
)

TALL: Final = 260.0
"""units of the axes' height"""


def frame(name: str, keys: Sequence[Key], notes: Sequence[str], y_words: str, x_words: str) -> tuple[Sheet, Axes]:
    """A sheet with legend, axes and notes; the axes' names stand at their ends, where a phone has room for them."""
    legend = legend_rows(keys)
    top = 15.0 * len(legend) + 24
    below = 34.0 + 13 * len(notes)
    sheet = Sheet(name, top + TALL + below)
    draw_legend(sheet, legend, 0)
    axes = sheet.axes(48, top, WIDTH - 48 - 14, TALL)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figures(value)))
    sheet.text(LEFT, top - 10, y_words, color=MUTED)
    sheet.text(WIDTH - 14, top + TALL + 28, x_words, color=MUTED, anchor="right")
    sheet.lines(top + TALL + 42, notes)
    return sheet, axes


def label_ticks(axes: Axes, values: Sequence[float], wanted: Sequence[float], words: dict[float, str]) -> None:
    """A small tick at every value; a label at each wanted one that has room beside the labels before it."""
    least, most = axes.get_xlim()
    axes.set_xlim(least, most)
    taken: list[tuple[float, float]] = []
    labelled = []
    for value in wanted:
        middle = float(axes.transData.transform((value, 0))[0])
        half = width_of(words[value], 10.5) / 2 + 3
        if all(middle + half <= left or middle - half >= right for left, right in taken):
            taken.append((middle - half, middle + half))
            labelled.append(value)
    axes.xaxis.set_major_locator(FixedLocator(labelled))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.get(value, figures(value))))
    axes.xaxis.set_minor_locator(FixedLocator(list(values)) if values else NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=3)
    axes.tick_params(axis="x", which="major", length=5)


def top(axes: Axes, values: Sequence[float]) -> None:
    axes.set_ylim(0, max([*values, 0.0]) * 1.12 or 1.0)


def log_limits(axes: Axes, values: Sequence[float]) -> None:
    """A log2 axis with air at both ends, a single value in its middle."""
    axes.set_xscale("log", base=2)
    least, most = min(values), max(values)
    air = 1.18 if most > least else 2.0
    axes.set_xlim(least / air, most * air)


def line_key(label: str, at: int) -> Key:
    style = {"color": color_of(at), "marker": marker_of(at), "markersize": 5.5, "linestyle": "-", "linewidth": 1.4}
    return label, dict[str, object](style)


def join(axes: Axes, places: Sequence[tuple[float, float | None]], color: str) -> None:
    """Lines between neighbours that both have a value."""
    for (x, y), (next_x, next_y) in itertools.pairwise(places):
        if y is not None and next_y is not None:
            axes.plot([x, next_x], [y, next_y], color=color, linewidth=1.4, solid_capstyle="round")


def draw_points(axes: Axes, places: Sequence[tuple[float, float]], at: int, *, hollow: bool = False) -> None:
    if places:
        xs, ys = zip(*places, strict=True)
        color = color_of(at)
        axes.plot(
            xs,
            ys,
            linestyle="none",
            marker=marker_of(at),
            markersize=6,
            color=color,
            markerfacecolor=PAPER if hollow else color,
            markeredgewidth=1.4,
            zorder=4,
            clip_on=False,
        )
