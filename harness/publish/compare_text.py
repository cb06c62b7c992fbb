"""A comparison as a person reads it: differences above the numbers, tables, verdicts, what the intervals know."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.publish.compare import Comparison, Side
from harness.publish.compared import Compared, Identity
from harness.publish.likeness import Difference

SHOWN_DIFFERENCES = 6
"""Of the answers that differ, at each depth or rung"""


def comparison_text(found: Comparison, next_command: str) -> list[RenderableType]:
    """Everything, in reading order."""
    parts: list[RenderableType] = [*_headline(found)]
    if found.kind == "ladder":
        parts += _rungs(found)
    else:
        parts += _pairs(found)
    parts.append(_gates(found))
    parts += [Text(f"note: {note}", style="dim") for note in found.notes]
    parts += [Text(sentence, style="dim") for sentence in found.intervals]
    if found.fail_below is not None:
        colour = {0: "green", 1: "bold red"}.get(found.fail_below.exit_code, "bold yellow")
        rule = f"--fail-below {found.fail_below.limit:g}: gates decide first, then the point estimate"
        parts.append(Text(rule, style=colour))
        parts += [Text(f"- {sentence}", style=colour) for sentence in found.fail_below.sentences]
    parts.append(Text(f"next: {next_command}"))
    return parts


def side_line(letter: str, side: Side) -> Text:
    """``A  NAME: passed, …`` with its marks."""
    mark = f" ({', '.join(side.marks)})" if side.marks else ""
    return Text(f"{letter}  {side.directory}{mark}: {side.conclusion}", style="bold yellow" if side.marks else "bold")


def _headline(found: Comparison) -> list[Text]:
    parts = []
    if found.undeclared or found.idle:
        parts.append(Text("UNLIKE: A and B are not one configuration; shown because of --anyway", style="bold red"))
        parts += [Text(f"- {item.sentence()}", style="red") for item in found.undeclared]
        parts += [Text(f"- {name} was declared to vary and is equal in A and B", style="red") for name in found.idle]
    parts += [side_line("A", found.a), side_line("B", found.b)]
    parts.append(Text(subject_line(found.subject), style="bold"))
    return parts


def subject_line(subject: Sequence[Difference]) -> str:
    """What this is a comparison of."""
    if not subject:
        return "subject: none; nothing was declared to differ"
    return f"subject: {'; '.join(item.sentence() for item in subject)}"


def _marked(text: str, marks: Sequence[str]) -> str:
    return f"{text} ({', '.join(marks)})" if marks else text


def _cell(value: float | None, unit: str, marks: Sequence[str]) -> str:
    return "–" if value is None else _marked(f"{value:.2f} {unit}", marks)


def _ratio_cells(figure: Compared) -> list[str]:
    if figure.ratio is None:
        return ["–", "–"]
    marks = list(dict.fromkeys([*figure.marks_a, *figure.marks_b]))
    low, high = figure.ratio.low, figure.ratio.high
    interval = "–" if low is None or high is None else _marked(f"{low:.4f} to {high:.4f}", marks)
    return [_marked(f"{figure.ratio.value:.4f}", marks), interval]


def _row(figure: Compared) -> list[str]:
    unit = figure.unit
    a, b = _cell(figure.a, unit, figure.marks_a), _cell(figure.b, unit, figure.marks_b)
    return [figure.name, a, b, *_ratio_cells(figure)]


def _table(title: str, *more: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", "A", "B", "B / A", "95 %", *more):
        table.add_column(name, justify="right" if name else "left")
    return table


def _pairs(found: Comparison) -> list[RenderableType]:
    parts: list[RenderableType] = []
    table = _table("class-balanced median of tokens 1 to 100, center of each pair", "spread A / B", "equal answers")
    for pair in found.pairs:
        spreads = " / ".join("–" if value is None else f"{value:.1%}" for value in (pair.spread_a, pair.spread_b))
        table.add_row(*_row(pair.center), spreads, f"{pair.identity.equal}/{pair.identity.total}")
        table.add_row(*_row(pair.ttft), "", "")
    parts.append(table)
    parts += [Text(pair.verdict, style="bold") for pair in found.pairs]
    for pair in found.pairs:
        parts += _identity(pair.name, pair.identity)
    for pair in found.pairs:
        if pair.prompts:
            table = _table(f"{pair.name}: classes and prompts, mean of the servers")
            for figure in pair.classes:
                table.add_row(*_row(figure), style="bold")
            table.add_section()
            for figure in pair.prompts:
                table.add_row(*_row(figure))
            parts.append(table)
    return parts


def _rungs(found: Comparison) -> list[RenderableType]:
    table = _table(
        "aggregate tokens/s, median of passes 2 and later",
        "passes A / B",
        "exact A",
        "exact B",
        "shown",
        "equal answers",
    )
    for rung in found.rungs:
        missed = [side for side, hidden in (("A", rung.withheld_a), ("B", rung.withheld_b)) if hidden]
        table.add_row(
            *_row(rung.rate),
            f"{rung.passes_a} / {rung.passes_b}",
            rung.exact_a,
            rung.exact_b,
            f"withheld in {' and '.join(missed)}" if missed else "yes",
            f"{rung.identity.equal}/{rung.identity.total}",
        )
    parts: list[RenderableType] = [table, *(Text(rung.verdict, style="bold") for rung in found.rungs)]
    for rung in found.rungs:
        parts += _identity(rung.rate.name, rung.identity)
    return parts


def _identity(name: str, identity: Identity) -> list[RenderableType]:
    if not identity.differences:
        return []
    left = len(identity.differences) - SHOWN_DIFFERENCES
    said = [f"- {name}: {sentence}" for sentence in identity.differences[:SHOWN_DIFFERENCES]]
    if left > 0:
        said.append(f"- {name}: and {left} more, all of them with --json")
    return [Text(line, style="yellow") for line in said]


def _gates(found: Comparison) -> Table:
    table = Table(title="gates", title_justify="left")
    for name in ("gate", "A", "B"):
        table.add_column(name)
    for row in found.gates:
        table.add_row(
            row.name, *(Text(said, style="red" if said.endswith("FAILED") else "") for said in (row.a, row.b))
        )
    return table
