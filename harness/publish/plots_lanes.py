"""Plots with a lane for each prompt or server: token arrivals, rates by prompt, TTFT, the identity map. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.evidence.schema import Attempt
from harness.measure import rates
from harness.measure.identity import first_divergence
from harness.measure.ladder import Batch
from harness.measure.rows import Row
from harness.publish.plots_svg import (
    BAD,
    GRID,
    INK,
    LEFT,
    MUTED,
    PAPER,
    SERIES,
    WIDTH,
    Key,
    Sheet,
    color_of,
    draw_legend,
    drawable,
    drawn,
    figures,
    finish,
    fit,
    legend_rows,
    marker_of,
    ms,
    width_of,
)

HUNDREDTH: Final = 99
"""index of the 100th id"""
RIGHT: Final = 18.0
BELOW: Final = 34.0
"""units below the lanes, for the axis"""


def lanes_axes(sheet: Sheet, top: float, height: float, *, left: float = LEFT, right: float = RIGHT) -> Axes:
    """Axes whose y is units down from ``top``, so that lanes and text share one measure."""
    axes = sheet.axes(left, top, sheet.width - left - right, height)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figures(value)))
    return axes


def name_axis(sheet: Sheet, words: str, right: float = RIGHT) -> None:
    """What x is and its unit, below the axis at the right."""
    sheet.text(sheet.width - right, sheet.height - 4, words, color=MUTED, anchor="right")


@drawn
def timeline(rows: Sequence[Row], *, prefix: str) -> str:
    """Token arrivals: a lane per prompt, milliseconds after t0 across, a tick per chunk as high as its ids.

    Marks the first id (TTFT) and the 100th. An incomplete row says so; "" without a row.
    """
    if not rows:
        return ""
    most = max((size for row in rows for _, size in row.chunks), default=1)
    ends = [ns / 1e6 for row in rows for ns, _ in row.chunks if drawable(ns / 1e6)]
    pitch = 30.0 if len(rows) <= 40 else 24.0
    sizes = "its ids" if most <= 1 else f"its ids, at most {most}"
    keys: list[Key] = [
        (f"one chunk, as high as {sizes}", {"color": SERIES[0], "marker": "|", "markersize": 9, "linestyle": "none"}),
        ("first id (TTFT)", {"color": SERIES[1], "marker": "v", "markersize": 5, "linestyle": "none"}),
        ("100th id", {"color": SERIES[3], "marker": "D", "markersize": 4.5, "linestyle": "none"}),
    ]
    legend = legend_rows(keys)
    top = 15.0 * len(legend) + 8
    height = pitch * len(rows) + 4
    sheet = Sheet("timeline", top + height + BELOW)
    draw_legend(sheet, legend, 0)
    axes = lanes_axes(sheet, top, height)
    axes.set_xlim(0, max([*ends, 1.0]) * 1.01)
    firsts: list[tuple[float, float]] = []
    hundredths: list[tuple[float, float]] = []
    for number, row in enumerate(rows):
        base = pitch * (number + 1)
        axes.plot([0, axes.get_xlim()[1]], [base, base], color=GRID, linewidth=0.6)
        _lane_heading(sheet, row, top + base - pitch + 12)
        times = [(ns / 1e6, size) for ns, size in row.chunks if drawable(ns / 1e6)]
        heights = [(time, max((pitch - 18) * size / most, 2.0)) for time, size in times]
        xs = [value for time, _ in heights for value in (time, time, None)]
        ys = [value for _, tall in heights for value in (base, base - tall, None)]
        if times:
            axes.plot(xs, ys, color=SERIES[0], linewidth=0.8, solid_capstyle="butt")  # type: ignore[arg-type]
            firsts.append((times[0][0], base - 3))
        offsets = [time for time, size in times for _ in range(size)][: HUNDREDTH + 1]
        if len(offsets) > HUNDREDTH:
            hundredths.append((offsets[HUNDREDTH], base))
    _marks(axes, firsts, marker="v", color=SERIES[1], size=5)
    _marks(axes, hundredths, marker="D", color=SERIES[3], size=4.5)
    name_axis(sheet, "time after t0, ms")
    ttft = sorted(x for x, _ in firsts)
    found = f"; first ids after {ttft[0]:.1f} to {ttft[-1]:.1f} ms, {most} ids at most in a chunk" if ttft else ""
    return finish(
        sheet,
        prefix=prefix,
        title="Token arrival timeline",
        description=f"{len(rows)} prompts, one lane each, time after t0 in milliseconds{found}.",
    )


def _lane_heading(sheet: Sheet, row: Row, y: float) -> None:
    offsets = rates.token_offsets([ns for ns, _ in row.chunks], [size for _, size in row.chunks])
    said, color = "", MUTED
    if not row.complete:
        said, color = f"incomplete: {row.reason or 'no reason given'}", BAD
    elif row.ttft_ms is None:
        said = "no ids"
    else:
        said = f"TTFT {ms(row.ttft_ms)} ms"
        if len(offsets) > HUNDREDTH:
            said += f", 100th {ms(offsets[HUNDREDTH] * 1e3)} ms"
    said = fit(said, WIDTH / 2, 9.5)
    sheet.text(WIDTH - RIGHT, y, said, size=9.5, color=color, anchor="right")
    sheet.text(LEFT, y, fit(row.prompt_id, WIDTH - width_of(said, 9.5) - 20, 10.5))


def _marks(axes: Axes, places: Sequence[tuple[float, float]], *, marker: str, color: str, size: float) -> None:
    if places:
        xs, ys = zip(*places, strict=True)
        axes.plot(
            xs,
            ys,
            linestyle="none",
            marker=marker,
            color=color,
            markersize=size,
            markeredgecolor=PAPER,
            markeredgewidth=0.6,
            clip_on=False,
            zorder=4,
        )


def _server_keys(labels: Sequence[str]) -> list[Key]:
    return [
        (label, {"color": color_of(at), "marker": marker_of(at), "markersize": 5.5, "linestyle": "none"})
        for at, label in enumerate(labels)
    ]


@drawn
def rates_by_prompt(attempts: Sequence[Attempt], *, prefix: str) -> str:
    """tok_s_1_100 of each prompt, grouped by class, a mark per server; each server's class median as an upright tick.

    An incomplete row is a cross and enters no median, a row without a rate is named; "" without a row.
    """
    classes: dict[str, dict[str, dict[int, Row]]] = {}
    for at, attempt in enumerate(attempts):
        for row in attempt.rows:
            classes.setdefault(row.prompt_class, {}).setdefault(row.prompt_id, {})[at] = row
    if not classes:
        return ""
    legend = legend_rows(
        [
            *_server_keys([attempt.label for attempt in attempts]),
            ("class median", {"color": INK, "marker": "|", "markersize": 11, "linestyle": "none"}),
        ]
    )
    step = 4.0
    pitch = 17.0 + step * len(attempts)
    gap = 20.0
    top = 15.0 * len(legend) + 4
    height = sum(gap + pitch * len(prompts) for prompts in classes.values()) + 6
    sheet = Sheet("rates", top + height + BELOW)
    draw_legend(sheet, legend, 0)
    axes = lanes_axes(sheet, top, height)
    values = [row.tok_s_1_100 for attempt in attempts for row in attempt.rows if drawable(row.tok_s_1_100)]
    axes.set_xlim(0, max((value for value in values if value is not None), default=1.0) * 1.06 or 1.0)
    marks: dict[tuple[int, bool], list[tuple[float, float]]] = {}
    y = 0.0
    for name, prompts in classes.items():
        sheet.text(LEFT, top + y + 14, fit(name, WIDTH - 2 * LEFT, 11), size=11, bold=True)
        y += gap
        for at, attempt in enumerate(attempts):
            median = attempt.class_medians.get(name)
            if median is not None and drawable(median):
                span = [y + 12, y + pitch * len(prompts) - 1]
                axes.plot([median, median], span, color=color_of(at), linewidth=1.6, alpha=0.6)
        for prompt_id, rows in prompts.items():
            said = [at for at, row in rows.items() if not drawable(row.tok_s_1_100)]
            words = ", ".join(attempts[at].label for at in said)
            words = fit(f"no rate: {words}", WIDTH / 2, 9.5) if said else ""
            sheet.text(WIDTH - RIGHT, top + y + 9, words, size=9.5, color=BAD, anchor="right")
            sheet.text(LEFT, top + y + 9, fit(prompt_id, WIDTH - 20 - width_of(words, 9.5), 10.5))
            for at, row in rows.items():
                if row.tok_s_1_100 is not None and drawable(row.tok_s_1_100):
                    place = (row.tok_s_1_100, y + 14 + step * (at + 0.5))
                    marks.setdefault((at, row.complete), []).append(place)
            axes.plot(axes.get_xlim(), [y + pitch - 0.5] * 2, color=GRID, linewidth=0.6)
            y += pitch
    for (at, complete), places in sorted(marks.items()):
        color, marker = (color_of(at), marker_of(at)) if complete else (BAD, "X")
        _marks(axes, places, marker=marker, color=color, size=5.5)
    name_axis(sheet, "tok_s_1_100, tokens/s")
    medians = [
        f"{attempt.label} {attempt.class_balanced_median:.2f}"
        for attempt in attempts
        if attempt.class_balanced_median is not None
    ]
    total = sum(len(prompts) for prompts in classes.values())
    found = f" Class-balanced medians: {', '.join(medians)} tokens/s." if medians else ""
    return finish(
        sheet,
        prefix=prefix,
        title="Rate of each prompt, by class",
        description=f"{total} prompts in {len(classes)} classes on {len(attempts)} servers, tokens/s.{found}",
    )


def _strips(name: str, lanes: Sequence[tuple[str, Sequence[float]]], axis: str) -> Sheet | None:
    """A lane of dots for each label, its median as a tick; a log axis where one value would hide the rest."""
    kept = [(label, [value for value in values if drawable(value) and value >= 0]) for label, values in lanes]
    everything = [value for _, values in kept for value in values]
    if not everything:
        return None
    legend = legend_rows(
        [
            ("one request", {"color": SERIES[0], "marker": "o", "markersize": 4.5, "linestyle": "none"}),
            (
                "median",
                {"color": SERIES[1], "marker": "|", "markersize": 11, "markeredgewidth": 2, "linestyle": "none"},
            ),
        ]
    )
    pitch, top = 32.0, 15.0 * len(legend) + 6
    sheet = Sheet(name, top + pitch * len(kept) + 4 + BELOW)
    draw_legend(sheet, legend, 0)
    axes = lanes_axes(sheet, top, pitch * len(kept) + 4)
    least, most = min(everything), max(everything)
    log = least > 0 and most / least > 30
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figures(value)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
        axes.set_xlim(least / 1.3, most * 1.3)
    else:
        axes.set_xlim(0, most * 1.06 or 1.0)
    for number, (label, values) in enumerate(kept):
        y = pitch * number
        axes.plot(axes.get_xlim(), [y + 22, y + 22], color=GRID, linewidth=0.6)
        middle = rates.median(values)
        said = "none" if middle is None else f"median {ms(middle)}, {ms(min(values))} to {ms(max(values))}"
        sheet.text(WIDTH - RIGHT, top + y + 12, said, size=9.5, color=MUTED, anchor="right")
        sheet.text(LEFT, top + y + 12, fit(label, WIDTH - 20 - width_of(said, 9.5), 10.5))
        axes.plot(
            values, [y + 22] * len(values), linestyle="none", marker="o", markersize=5, color=SERIES[0], alpha=0.6
        )
        if middle is not None:
            axes.plot([middle, middle], [y + 16, y + 28], color=SERIES[1], linewidth=2)
    name_axis(sheet, axis + (" (log scale)" if log else ""))
    return sheet


@drawn
def ttft(attempts: Sequence[Attempt], *, prefix: str) -> str:
    """Time to the first id of each prompt, milliseconds after t0, a lane per server with its median. "" without any."""
    lanes = [(item.label, [row.ttft_ms for row in item.rows if row.ttft_ms is not None]) for item in attempts]
    sheet = _strips("ttft", lanes, "TTFT, ms")
    if sheet is None:
        return ""
    words = ", ".join(f"{label} {rates.median(values):.1f}" for label, values in lanes if values)
    description = f"One dot for each prompt. Medians: {words} ms."
    return finish(sheet, prefix=prefix, title="Time to first token", description=description)


@drawn
def arrivals_of_rungs(batches: Sequence[Batch], *, prefix: str) -> str:
    """TTFT of each request of a ladder, milliseconds after its own release, a lane per rung over passes >= 2.

    "" without any; pass 1 is the warm-up and not drawn.
    """
    rungs: dict[int, list[float]] = {}
    for batch in batches:
        if batch.number >= 2:
            values = rungs.setdefault(batch.rung, [])
            values += [item.ttft_ms for item in batch.requests if item.ttft_ms is not None]
    lanes = [(f"{users} users" if users > 1 else "1 user", rungs[users]) for users in sorted(rungs)]
    sheet = _strips("arrivals", lanes, "TTFT after the request's release, ms")
    if sheet is None:
        return ""
    words = ", ".join(f"{label} {rates.median(values):.1f}" for label, values in lanes if values)
    description = f"One dot for each request of passes 2 and later. Medians: {words} ms."
    return finish(sheet, prefix=prefix, title="Time to first token by users", description=description)


@drawn
def identity_map(rows_oracle: Sequence[Row], others: Mapping[str, Sequence[Row]], *, prefix: str) -> str:
    """Prompt by token index: a strip for each compared server, as long as its answer.

    Full height: equal to the oracle; from the first divergence on: half height and another tone. Upright ticks are the
    ends of the answers. At the right how many ids are equal. "" without an oracle's row or without a server.
    """
    if not rows_oracle or not others:
        return ""
    found = {label: {row.prompt_id: row for row in rows} for label, rows in others.items()}
    oracle = {row.prompt_id: row for row in rows_oracle}
    extra = {row.prompt_id: None for rows in others.values() for row in rows if row.prompt_id not in oracle}
    legend = legend_rows(
        [
            ("equal to the oracle", {"color": SERIES[0], "linewidth": 7, "linestyle": "-"}),
            ("from the first divergence on", {"color": BAD, "linewidth": 4, "linestyle": "-"}),
            ("end of the answer", {"color": INK, "marker": "|", "markersize": 10, "linestyle": "none"}),
            ("end of the oracle's", {"color": MUTED, "marker": "d", "markersize": 5, "linestyle": "none"}),
        ]
    )
    strip, gap = 12.0, 17.0
    name_width = min(max(width_of(label, 9.5) for label in others), 110.0)
    left, right = LEFT + name_width + 8, 82.0
    pitch = gap + strip * len(others) + 3
    top = 15.0 * len(legend) + 4
    height = pitch * (len(oracle) + len(extra)) + 4
    sheet = Sheet("identity", top + height + BELOW)
    draw_legend(sheet, legend, 0)
    axes = lanes_axes(sheet, top, height, left=left, right=right)
    everything = [*rows_oracle, *(row for rows in others.values() for row in rows)]
    axes.set_xlim(0, max([*(len(row.token_ids) for row in everything), 1]) * 1.01)
    equal, compared = 0, 0
    ends: list[tuple[float, float]] = []
    oracle_ends: list[tuple[float, float]] = []
    for number, prompt_id in enumerate([*oracle, *extra]):
        y = pitch * number
        base = oracle.get(prompt_id)
        sheet.text(LEFT, top + y + 12, fit(prompt_id, WIDTH - right - LEFT, 10.5))
        if base is not None and base.token_ids:
            oracle_ends.append((len(base.token_ids), y + gap - 3))
        for at, label in enumerate(others):
            middle = y + gap + strip * (at + 0.5)
            sheet.text(LEFT, top + middle + 3.5, fit(label, name_width + 6, 9.5), size=9.5, color=MUTED)
            row = found[label].get(prompt_id)
            words, color, same, length = _verdict(base, row)
            compared += base is not None and row is not None
            equal += color == MUTED
            sheet.text(WIDTH - right + 6, top + middle + 3.5, fit(words, right - 6, 9.5), size=9.5, color=color)
            if same:
                axes.barh(middle, same, height=8, color=SERIES[0], linewidth=0)
            if length > same:
                axes.barh(middle, length - same, left=same, height=4, color=BAD, linewidth=0)
            if length:
                ends.append((length, middle))
    _upright(axes, ends, half=5.5, color=INK)
    _marks(axes, oracle_ends, marker="d", color=MUTED, size=5.5)
    sheet.text(WIDTH - right + 6, sheet.height - BELOW + 13, "equal/all ids", size=9.5, color=MUTED)
    name_axis(sheet, "token index", right)
    return finish(
        sheet,
        prefix=prefix,
        title="Identity map",
        description=f"{equal} of {compared} answers equal the oracle's whole array; {', '.join(others)} compared.",
    )


def _verdict(oracle: Row | None, row: Row | None) -> tuple[str, str, int, int]:
    """The words at the right, their colour, ids equal to the oracle's, and the answer's length."""
    if row is None:
        return "no row", BAD, 0, 0
    length = len(row.token_ids)
    if oracle is None:
        return "no oracle", BAD, 0, length
    if not length:
        return "no ids", BAD, 0, 0
    at = first_divergence(oracle.token_ids, row.token_ids)
    if not (row.complete and oracle.complete):
        return "incomplete", BAD, length if at is None else at, length
    if at is None:
        return f"{length}/{length}", MUTED, length, length
    return f"{at}/{len(oracle.token_ids)}", BAD, at, length


def _upright(axes: Axes, places: Sequence[tuple[float, float]], *, half: float, color: str) -> None:
    xs = [value for x, _ in places for value in (x, x, None)]
    ys = [value for _, y in places for value in (y - half, y + half, None)]
    if xs:
        axes.plot(xs, ys, color=color, linewidth=1.4, clip_on=False)  # type: ignore[arg-type]
