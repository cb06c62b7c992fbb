"""Plots of a rate over active context or MTP depth, and of telemetry over time. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.measure import rates
from harness.publish.plots_axes import draw_points, frame, join, label_ticks, line_key, log_limits, top
from harness.publish.plots_svg import BAD, INK, PAPER, SERIES, Key, color_of, drawable, drawn, figures, finish

MOST_SAMPLES: Final = 400
"""buckets of a telemetry line: more can't be told apart on a sheet"""


@drawn
def depth_profile(points: Mapping[str, Sequence[tuple[int, float]]], *, prefix: str) -> str:
    """tokens/s over active context tokens, log2, a line for each arm. "" without a value.

    Nothing is interpolated: a line runs only between two depths that are neighbours among all that were measured.
    """
    arms = {
        label: sorted((depth, rate) for depth, rate in found if depth > 0 and drawable(rate) and rate >= 0)
        for label, found in points.items()
    }
    depths = sorted({depth for found in arms.values() for depth, _ in found})
    if not depths:
        return ""
    keys = [line_key(label, at) for at, label in enumerate(arms)]
    sheet, axes = frame("depth", keys, [], "tokens/s", "active context, tokens (log scale)")
    log_limits(axes, depths)
    top(axes, [rate for found in arms.values() for _, rate in found])
    label_ticks(axes, depths, depths[::-1], {depth: f"{depth:,}" for depth in depths})
    for at, found in enumerate(arms.values()):
        several = Counter(depth for depth, _ in found)
        rate_of = dict(found)
        join(axes, [(d, rate_of.get(d) if several[d] == 1 else None) for d in depths], color_of(at))
        draw_points(axes, found, at)
    words = "; ".join(
        f"{label} {figures(found[0][1])} at {found[0][0]:,} and {figures(found[-1][1])} at {found[-1][0]:,}"
        for label, found in arms.items()
        if found
    )
    return finish(
        sheet,
        prefix=prefix,
        title="Long-context profile",
        description=f"Tokens/s over active context, only measured depths: {words}.",
    )


@drawn
def mtp_depth(points: Sequence[tuple[int, Sequence[float], bool]], *, prefix: str) -> str:
    """Decode rate over MTP depth, of (depth, rate of each server, withheld): a mark per server, a line of the centers.

    A withheld entry is hollow, has no center and breaks the line. Of several entries of one depth all are drawn and
    none is joined: nothing is selected. "" without a rate.
    """
    entries = [(depth, [rate for rate in found if drawable(rate)], held) for depth, found, held in points]
    entries = sorted((depth, found, held) for depth, found, held in entries if found)
    if not entries:
        return ""
    held_any = any(held for _, _, held in entries)
    keys: list[Key] = [
        ("one server", {"color": SERIES[0], "marker": "o", "markersize": 6, "linestyle": "none"}),
        ("center", {"color": SERIES[1], "marker": "_", "markersize": 12, "markeredgewidth": 2, "linestyle": "none"}),
    ]
    if held_any:
        look: dict[str, object] = {"color": SERIES[0], "markerfacecolor": PAPER, "marker": "o", "markersize": 6}
        keys.append(("withheld", look | {"linestyle": "none"}))
    sheet, axes = frame("mtp", keys, [], "tok_s_1_100, tokens/s", "MTP depth")
    depths = sorted({depth for depth, _, _ in entries})
    axes.set_xlim(depths[0] - 0.6, depths[-1] + 0.6)
    top(axes, [rate for _, found, _ in entries for rate in found])
    label_ticks(axes, [], depths, {depth: str(depth) for depth in depths})
    several = Counter(depth for depth, _, _ in entries)
    centers: list[tuple[float, float | None]] = []
    for depth, found, held in entries:
        # both servers of a pair agree within a percent: side by side, else one hides the other
        beside = [depth + 0.12 * (number - (len(found) - 1) / 2) for number in range(len(found))]
        draw_points(axes, list(zip(beside, found, strict=True)), 0, hollow=held)
        center = sum(found) / len(found)
        centers.append((depth, None if held or several[depth] > 1 else center))
        x, y = axes.transData.transform((depth, min(found) if held else max(found)))
        words = "withheld" if held else figures(center)
        sheet.text(
            float(x),
            sheet.height - float(y) + (16 if held else -9),
            words,
            size=9.5,
            color=BAD if held else INK,
            anchor="center",
        )
        if not held:
            axes.plot([depth - 0.2, depth + 0.2], [center, center], color=SERIES[1], linewidth=2)
    join(axes, centers, SERIES[1])
    words = "; ".join(f"MTP{d} {figures(sum(r) / len(r))}{' (withheld)' if held else ''}" for d, r, held in entries)
    return finish(
        sheet, prefix=prefix, title="Rate over MTP depth", description=f"Center of the servers, tokens/s: {words}."
    )


@drawn
def telemetry(series: Mapping[str, Sequence[tuple[float, float]]], *, prefix: str, unit: str) -> str:
    """A value over time, (seconds, value), a line for each card. "" without a sample.

    Where there are more samples than a sheet can show, the lowest and the highest of each stretch are drawn.
    """
    cards = {
        label: sorted((time, value) for time, value in found if drawable(time) and drawable(value))
        for label, found in series.items()
    }
    everything = [sample for found in cards.values() for sample in found]
    if not everything:
        return ""
    lines: list[Key] = [
        (label, {"color": color_of(at), "linestyle": ("-", "--", ":", "-.")[at % 4], "linewidth": 1.6})
        for at, label in enumerate(cards)
    ]
    sheet, axes = frame("telemetry", lines, [], unit, "time, s")
    start, end = min(time for time, _ in everything), max(time for time, _ in everything)
    axes.set_xlim(start, end if end > start else start + 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figures(value)))
    values = [value for _, value in everything]
    least, most = min(values), max(values)
    air = (most - least) * 0.1 or abs(most) * 0.1 or 1.0
    axes.set_ylim(least - air if least < 0 or least > most / 2 else 0, most + air)
    for (_, style), found in zip(lines, cards.values(), strict=True):
        if found:
            xs, ys = zip(*_thinned(found), strict=True)
            marker = "o" if len(found) == 1 else None
            axes.plot(xs, ys, marker=marker, markersize=4, **style)  # type: ignore[arg-type]
    words = "; ".join(
        f"{label} {figures(min(v for _, v in found))} to {figures(max(v for _, v in found))},"
        f" median {figures(rates.median(v for _, v in found) or 0.0)}"
        for label, found in cards.items()
        if found
    )
    return finish(sheet, prefix=prefix, title=f"Telemetry, {unit}", description=f"Over time, {unit}: {words}.")


def _thinned(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lowest and the highest sample of each bucket, in order of time."""
    if len(samples) <= 2 * MOST_SAMPLES:
        return list(samples)
    size = -(-len(samples) // MOST_SAMPLES)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(samples), size):
        bucket = samples[start : start + size]
        kept += sorted({min(bucket, key=lambda item: item[1]), max(bucket, key=lambda item: item[1])})
    return kept
