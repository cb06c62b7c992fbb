"""The sheet that every plot is drawn on, and its way to one SVG string that a page can hold (contract section 1).

Matplotlib draws with sentinel colours; on the way out they become CSS variables, so that one drawing serves light, dark
and paper. The text stays text, and nothing outside the string is needed to show it.
"""

import functools
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, ParamSpec
from xml.etree import ElementTree as ET

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

P = ParamSpec("P")

WIDTH: Final = 400.0
"""units across; narrow enough that text of 11 units is readable on a phone"""
LEFT: Final = 4.0
"""where a sheet's text begins"""
EM: Final = 0.6
"""width of a usual glyph as a share of the font size, on the wide side"""

INK, PAPER, MUTED, GRID, BAD = "#a10001", "#a10002", "#a10003", "#a10004", "#a10005"
"""sentinels: no colour is ever seen as these"""
SERIES = ("#a10011", "#a10012", "#a10013", "#a10014", "#a10015", "#a10016")
MARKERS = ("o", "s", "^", "D", "v", "P")
"""of the series, so that none is told by its colour alone"""


def color_of(at: int) -> str:
    """The colour of the series at this place."""
    return SERIES[at % 6]


def marker_of(at: int) -> str:
    """The marker of the series at this place; beyond six series a colour comes with another marker."""
    return MARKERS[(at + at // 6) % 6]


_LIGHT = {
    "ink": "#1a1a1a",
    "paper": "#ffffff",
    "muted": "#5c5f66",
    "grid": "#d9dce1",
    "series-1": "#0067b1",
    "series-2": "#c24f00",
    "series-3": "#00795a",
    "series-4": "#a3407f",
    "series-5": "#7a6200",
    "series-6": "#4a4fb5",
    "bad": "#b3261e",
}
_DARK = {
    "ink": "#ececec",
    "paper": "#14161a",
    "muted": "#a4a8b0",
    "grid": "#3a3e46",
    "series-1": "#62b6ff",
    "series-2": "#ff9c57",
    "series-3": "#3fd0a2",
    "series-4": "#eb9bd0",
    "series-5": "#e0cc4a",
    "series-6": "#b3b6ff",
    "bad": "#ff7a70",
}


def _root(colours: Mapping[str, str]) -> str:
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in colours.items()) + "}"


STYLE: Final = (
    f"{_root(_LIGHT)}\n"
    f"@media screen and (prefers-color-scheme:dark){{{_root(_DARK)}}}\n"
    ".plot{display:block;width:100%;max-width:38rem;height:auto;"
    "font-family:var(--plot-font,system-ui,-apple-system,'Segoe UI',Roboto,sans-serif)}\n"
    ".plot .point:hover{opacity:.7}\n"
    "@media print{.plot{max-width:13cm;break-inside:avoid}}\n"
)
"""CSS of the plots: their colours for light (paper too) and dark, and their size. A page includes it once."""

_VARIABLES = {
    sentinel: f"var(--{name}, {_LIGHT[name]})"
    for sentinel, name in zip(
        (INK, PAPER, MUTED, GRID, BAD, *SERIES),
        ("ink", "paper", "muted", "grid", "bad", *(f"series-{number}" for number in range(1, 7))),
        strict=True,
    )
}
_SETTINGS: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "b70-bench",
    "svg.image_inline": True,
    "path.simplify": False,
    "path.snap": False,
    "text.parse_math": False,  # a prompt id with a dollar sign is no formula
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
}
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


class Sheet:
    """One figure, measured in units from its top left corner. Made within ``drawn``."""

    def __init__(self, name: str, height: float, width: float = WIDTH) -> None:
        self.name = name
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        self.figure.patch.set_visible(False)
        self.tags: dict[str, dict[str, str]] = {}
        """attributes for the artists with these gids; ``title`` becomes a tooltip"""
        self.over = self.axes(0, 0, width, height)
        """the whole sheet: x to the right, y down, both in units"""
        self.over.axis("off")
        self.over.set_xlim(0, width)
        self.over.set_ylim(height, 0)
        self.over.set_zorder(5)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at a place of the sheet, with a bottom line only."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box)
        axes.patch.set_visible(False)
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=3, labelsize=10.5)
        return axes

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 10.5,
        color: str = INK,
        anchor: Literal["left", "center", "right"] = "left",
        bold: bool = False,
    ) -> None:
        """One line of text, its baseline at y."""
        weight = "bold" if bold else "normal"
        self.over.text(x, y, plain(words), fontsize=size, color=color, ha=anchor, va="baseline", fontweight=weight)

    def lines(self, y: float, lines: Sequence[str], *, size: float = 10) -> None:
        """A muted note, its first baseline at y."""
        for number, line in enumerate(lines):
            self.text(LEFT, y + number * 13, line, size=size, color=MUTED)


def drawn(function: Callable[P, str]) -> Callable[P, str]:
    """A plot drawn with our settings alone, whatever the user's matplotlibrc says; they are put back afterwards."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> str:
        # Glyphs that our measuring font lacks are drawn by the reader's own fonts: nothing to warn about.
        with (
            warnings.catch_warnings(),
            matplotlib.style.context("default", after_reset=True),
            matplotlib.rc_context(_SETTINGS),  # type: ignore[arg-type]
        ):
            warnings.simplefilter("ignore")
            return function(*args, **kwargs)

    return run


def plain(text: str) -> str:
    """Text on one line, of characters that XML may hold and that don't turn the reading direction of what follows."""
    return _DIRECTION.sub("\ufffd", _ILLEGAL.sub("\ufffd", " ".join(text.split())))


def width_of(text: str, size: float) -> float:
    """Units that a line takes, about."""
    return len(text) * size * EM


def fit(text: str, width: float, size: float) -> str:
    """The text, cut with an ellipsis to about the width in units."""
    text, room = plain(text), max(int(width / (size * EM)), 2)
    return text if len(text) <= room else text[: room - 1] + "…"


def wrap(text: str, *, size: float = 10, width: float = WIDTH - 2 * LEFT, most: int = 6) -> list[str]:
    """The words in lines that fit the width; what is beyond the last line is cut with an ellipsis."""
    lines: list[str] = []
    for word in plain(text).split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(fit(word, width, size))
    if len(lines) > most:
        lines = [*lines[: most - 1], fit(f"{lines[most - 1]} …", width, size)]
    return lines


def drawable(value: float | None) -> bool:
    """Whether a value can stand on an axis."""
    return value is not None and math.isfinite(value) and abs(value) < 1e12


def ms(value: float) -> str:
    """Milliseconds as a person reads them: 31.3, 577, 3,439."""
    return f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}"


def figures(value: float) -> str:
    """A number as a person reads it: 12,345, 168.2, 4.25."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


Key = tuple[str, dict[str, object]]
"""A legend entry: its words, and how its mark is drawn (Line2D's arguments)"""


def legend_rows(keys: Sequence[Key], size: float = 10, width: float = WIDTH) -> list[list[tuple[float, Key]]]:
    """Legend entries in rows that fit the width, each with its x."""
    rows: list[list[tuple[float, Key]]] = []
    x = math.inf
    for words, style in keys:
        short = fit(words, width - 30, size)
        room = 20 + width_of(short, size) + 6
        if x + room > width:
            rows.append([])
            x = LEFT
        rows[-1].append((x, (short, style)))
        x += room
    return rows


def draw_legend(sheet: Sheet, rows: Sequence[Sequence[tuple[float, Key]]], top: float) -> None:
    """The legend's rows, 15 units each, from ``top`` down."""
    for number, row in enumerate(rows):
        y = top + 11 + 15 * number
        for x, (words, style) in row:
            span = [x, x + 8, x + 16] if style.get("linestyle", "none") != "none" else [x + 8]
            mark = Line2D(span, [y - 3.5] * len(span), solid_capstyle="butt", **style)  # type: ignore[arg-type]
            mark.set_markevery([len(span) // 2])
            sheet.over.add_line(mark)
            sheet.text(x + 20, y, words, size=10)


def finish(sheet: Sheet, *, prefix: str, title: str, description: str) -> str:
    """The sheet as one ``<svg>`` element. Same sheet and words, same bytes."""
    stream = io.BytesIO()
    # no date, no creator with its version: the same input gives the same bytes
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(sheet.figure)
    sheet.figure.savefig(stream, format="svg", metadata=nothing)
    root = ET.fromstring(stream.getvalue())  # noqa: S314 - what Matplotlib just wrote here
    own = f"{_identifier(prefix)}-{sheet.name}"
    _clean(root, own, sheet.tags)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    heading, words = ET.Element(f"{_SVG}title", id=f"{own}-title"), ET.Element(f"{_SVG}desc", id=f"{own}-desc")
    heading.text, words.text = plain(title), plain(description)
    root[:0] = [heading, words]
    labelled = {"role": "img", "aria-labelledby": heading.attrib["id"], "aria-describedby": words.attrib["id"]}
    root.attrib |= {"class": f"plot plot-{sheet.name}", "width": "100%", **labelled}
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    return ET.tostring(_without_namespace(root), encoding="unicode")


def _identifier(prefix: str) -> str:
    """The prefix as part of an id; two prefixes never become one."""
    return "p" + re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", prefix)


def _clean(root: ET.Element, own: str, tags: Mapping[str, dict[str, str]]) -> None:
    """Colours to variables, ids to our own, and away with what only a file of its own needs."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
                parent.remove(child)
    used = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in used:
            element.set("id", f"{own}-{name}")
        _rewrite(element, own)
        if name in tags:
            tag = {key: plain(value) for key, value in tags[name].items()}
            tooltip = tag.pop("title", None)
            element.attrib |= tag
            if tooltip is not None:
                words = ET.Element(f"{_SVG}title")
                words.text = tooltip
                element.insert(0, words)
    # last, when no id is looked for any more: groups without any attribute of their own hold nothing together
    _unwrap(root)


def _references(element: ET.Element) -> Iterator[str]:
    for key, value in element.attrib.items():
        if key == _XLINK:
            yield value.removeprefix("#")
        yield from _REFERENCE.findall(value)


def _rewrite(element: ET.Element, own: str) -> None:
    element.tail = None
    if element.text is not None and not element.text.strip():
        element.text = None
    target = element.attrib.pop(_XLINK, None)
    if target is not None:
        element.set("href", f"#{own}-{target.removeprefix('#')}")
    for key in ("d", "x", "y", "transform"):
        if key in element.attrib:
            # a thousandth of a unit can't be seen
            rounded = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}", element.attrib[key])
            element.set(key, " ".join(rounded.split()))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if "clip-path" in element.attrib:
        element.set("clip-path", _REFERENCE.sub(rf"url(#{own}-\1)", element.attrib["clip-path"]))
    style = element.get("style")
    if style is not None:
        # the font's family comes from the page, for all text at once
        style = re.sub(r"font-family: [^;]*;? ?", "", style)
        style = re.sub(r"\bfont: (bold )?([\d.]+px) [^;]*", _font, style)
        style = re.sub(r"#a100\d\d", lambda found: _VARIABLES[found[0]], style)
        element.set("style", style.rstrip("; "))


def _font(found: re.Match[str]) -> str:
    weight = "; font-weight: bold" if found[1] else ""
    return f"font-size: {found[2]}{weight}"


def _unwrap(element: ET.Element) -> None:
    children: list[ET.Element] = []
    for child in list(element):
        _unwrap(child)
        if child.tag == f"{_SVG}g" and not child.attrib:
            children += list(child)
        else:
            children.append(child)
    element[:] = children


def _without_namespace(root: ET.Element) -> ET.Element:
    """Names as HTML has them; the root says its namespace, so that the string stands alone too."""
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    root.set("xmlns", "http://www.w3.org/2000/svg")
    return root
