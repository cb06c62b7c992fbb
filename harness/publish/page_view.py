"""The page as a typed value: what stands where, already worded and rounded. HTML is made of it and of nothing else.

Text of any kind is untrusted until the template escapes it; only ``Figure.svg`` is markup, and ``plots`` escapes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Tone = Literal["good", "bad", "warn", "muted", "plain"]
Mark = Literal["", "simulated", "claimed", "re-derived", "simulated, claimed", "simulated, re-derived"]


@dataclass(frozen=True)
class Num:
    """One figure: rounded for a reader, and unrounded with its place in the evidence for who checks it."""

    field: str
    """dotted path in the campaign's evidence; an entry of a list is named by its label, directory, id or place"""
    value: float | int | None
    """unrounded; None stands as a dash"""
    text: str
    unit: str = ""
    mark: Mark = ""


@dataclass(frozen=True)
class Chip:
    """A word that is a verdict."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Code:
    """Something to be read letter by letter: an id, a variable, a command."""

    text: str


@dataclass(frozen=True)
class Link:
    """To another place of the same page."""

    text: str
    anchor: str


Part = str | Num | Chip | Code | Link
Cell = Part | tuple[Part, ...]


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    cells: tuple[Cell, ...]
    tone: Tone = "plain"
    campaign: str = ""
    """whose figures stand in it, where that is not the article's campaign"""


@dataclass(frozen=True)
class Table:
    """``right`` are the columns of figures."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A drawing, or the reason why there is none."""

    title: str
    svg: str
    caption: str = ""
    mark: Mark = ""


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    items: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True)
class Sentences:
    """One paragraph, or a list of sentences."""

    items: tuple[str, ...]
    tone: Tone = "plain"


@dataclass(frozen=True)
class Command:
    """What to type."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Closed on a screen, open on paper."""

    summary: str
    blocks: tuple["Block", ...]
    open: bool = False


@dataclass(frozen=True)
class Entry:
    """What one campaign says to one cell of the coverage matrix."""

    status: Chip
    figure: tuple[Part, ...]
    link: Link
    campaign: str


@dataclass(frozen=True)
class Matrix:
    """Coverage; a row is its name, what an empty cell of it means, and its cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[Entry, ...], ...]], ...]


Block = Table | Figure | Facts | Sentences | Command | Fold | Matrix


@dataclass(frozen=True)
class Section:
    """One question and what the evidence says to it."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    projected: bool = False
    """not measured: set apart by its look"""


@dataclass(frozen=True)
class Hero:
    """The number people quote, or why there is none."""

    what: str
    """the configuration in a few words"""
    number: Num | None
    under: str = ""
    """kind, date and what tells it from the others"""
    unit: str = ""
    meaning: str = ""
    """how the number is defined"""
    servers: tuple[tuple[str, Num], ...] = ()
    spread: Num | None = None
    gates: tuple[tuple[Part, ...], ...] = ()
    why_none: tuple[str, ...] = ()
    caution: str = ""
    """what a reader must know before quoting it"""
    scope: str = ""


@dataclass(frozen=True)
class CampaignView:
    """One campaign, or one import, from its verdict to how it is checked."""

    id: str
    anchor: str
    title: str
    kind: str
    status: Chip
    conclusion: str
    hero: Hero
    sections: tuple[Section, ...]
    simulated: bool = False


@dataclass(frozen=True)
class PageView:
    """Everything on the page."""

    title: str
    campaigns: tuple[CampaignView, ...]
    across: tuple[Section, ...]
    """before the campaigns"""
    after: tuple[Section, ...]
    """behind them: what is projected, and what is not on the page"""
    tool: str
    simulated: Literal["none", "some", "all"] = "none"


Numbers = Callable[..., Num]


def numbers(mark: Mark) -> Numbers:
    """A maker of figures that all carry ``mark``: n(field, value, digits=2, unit="")."""

    def make(path: str, value: float | int | None, digits: int = 2, unit: str = "") -> Num:
        return Num(path, value, "–" if value is None else f"{value:.{digits}f}", unit, mark)

    return make


def share(n: Numbers, path: str, value: float | None, digits: int = 2) -> Num:
    """A ratio from 0 to 1 as per cent; ``data-value`` keeps the ratio."""
    made = n(path, value, digits)
    return made if value is None else Num(path, value, f"{100 * value:.{digits}f}", "%", made.mark)


def table(
    head: tuple[str, ...], rows: list[Row] | tuple[Row, ...], caption: str = "", *, left: tuple[int, ...] = (0,)
) -> Table:
    """A table whose columns are figures but for ``left``."""
    return Table(head, tuple(rows), caption, frozenset(range(len(head))) - frozenset(left))


def aloud(text: str, *, simulated: bool) -> str:
    """A sentence that says itself when its figures are simulated."""
    marked = text.startswith("SIMULATED") or text.endswith("(simulated)")
    return text if not text or not simulated or marked else f"{text} (simulated)"


def all_aloud(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks of a simulated campaign: every sentence with a figure in it says so."""
    said: list[Block] = []
    for block in blocks:
        if isinstance(block, Sentences):
            items = (aloud(text, simulated=any(letter.isdigit() for letter in text)) for text in block.items)
            said.append(replace(block, items=tuple(items)))
        elif isinstance(block, Fold):
            said.append(replace(block, blocks=all_aloud(block.blocks)))
        else:
            said.append(block)
    return tuple(said)


def drawing(title: str, svg: str, caption: str = "", mark: Mark = "") -> Block:
    """A figure, or one sentence where there was nothing to draw."""
    return Figure(title, svg, caption, mark) if svg else Sentences((f"{title}: there is nothing to draw.",), "muted")


def byte_words(value: float | int | None) -> str:
    """Bytes as a person says them."""
    if value is None:
        return "–"
    size = float(value)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
