"""``bench list``: a table of campaigns."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import EXPERIMENTS, JsonOption, out_json
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.publish.index import Entry, Listing

HEADINGS = ("date (UTC)", "status", "kind", "lane", "MTP", "TP", "center", "gates", "directory")
TO_THE_RIGHT = ("MTP", "TP", "center")


def list_(
    directory: Annotated[Path, typer.Argument(help="A directory of campaigns.")] = EXPERIMENTS,
    status: Annotated[list[str] | None, typer.Option(help="Only this status; repeatable.")] = None,
    lane: Annotated[list[str] | None, typer.Option(help="Only this lane; repeatable.")] = None,
    mtp: Annotated[int | None, typer.Option(help="Only this MTP depth.", min=0)] = None,
    tp: Annotated[int | None, typer.Option(help="Only this tensor parallel.", min=1)] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind: strict, ladder, …; repeatable.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only those started on this date or later, e.g. 2026-09-12.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """List the campaigns of a directory, the newest first; nothing is verified."""
    from harness.publish import index

    unknown = sorted(set(status or ()) - set(index.STATUSES))
    if unknown:
        raise UsageError(f"there is no status {unknown[0]!r}; use one of {', '.join(index.STATUSES)}")
    if since is not None and index.parse_date(since) is None:
        raise UsageError(f"--since {since} is no date; write for example --since 2026-09-12")
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory that campaigns are kept in")
    if (directory / index.EVIDENCE).is_file() or (directory / index.JOURNAL).is_file():
        raise UsageError(f"{directory} is itself a campaign; look at it with bench show, or list the one above it")
    try:
        listing = index.list_campaigns(directory)
    except OSError as error:
        raise UsageError(f"{directory} can't be read ({error.strerror}); check its permissions") from None
    asked = {"status": status, "lane": lane, "depth": mtp, "tensor_parallel": tp, "kind": kind}
    shown = [entry for entry in listing.entries if _matches(entry, asked) and _is_since(entry, since)]
    if json_:
        out_json(
            {
                "directory": str(directory),
                "verified": False,
                "campaigns": [_as_json(entry) for entry in shown],
                "hidden": len(listing.entries) - len(shown),
                "other_directories": listing.others,
            }
        )
        return
    # One write: a line each would cost more than reading the campaigns.
    typer.echo("\n".join([*table(shown), *_footer(directory, listing, shown)]))


def _matches(entry: "Entry", asked: dict[str, Any]) -> bool:
    """Whether an entry has what every filter asks for; what it doesn't say, it hasn't."""
    for name, wanted in asked.items():
        value = getattr(entry, name)
        if isinstance(wanted, list):
            if wanted and value not in wanted:
                return False
        elif wanted is not None and value != wanted:
            return False
    return True


def _is_since(entry: "Entry", since: str | None) -> bool:
    from harness.publish.index import parse_date

    if since is None:
        return True
    begin, moment = parse_date(since), parse_date(entry.date)
    return begin is not None and moment is not None and moment >= begin


def _as_json(entry: "Entry") -> dict[str, Any]:
    """The entry as an object, its number never without its unit and its marks."""
    from dataclasses import asdict

    said = asdict(entry)
    value, of, marks = (said.pop(name) for name in ("center", "of", "marks"))
    said["center"] = None if value is None else {"value": value, "unit": "tokens/s", "of": of, "marks": list(marks)}
    return said


def table(entries: "list[Entry]") -> list[str]:
    """Aligned lines. A drawn table of ten thousand rows would take longer than reading them."""
    rows = [HEADINGS, *(_cells(entry) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    lines = []
    for row in rows:
        cells = [
            row[at].rjust(width) if HEADINGS[at] in TO_THE_RIGHT else row[at].ljust(width)
            for at, width in enumerate(widths)
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines


def _cells(entry: "Entry") -> tuple[str, ...]:
    date = "–" if entry.date is None else entry.date[:16].replace("T", " ")
    if entry.problem:
        return (date, entry.status, "–", "–", "–", "–", "–", "–", f"{entry.directory}: {entry.problem}")
    center = "–"
    if entry.center is not None:
        mark = f" ({', '.join(entry.marks)})" if entry.marks else ""
        center = f"{entry.of} {entry.center:.2f} tokens/s{mark}"
    numbers = ["–" if value is None else str(value) for value in (entry.depth, entry.tensor_parallel)]
    words = (entry.kind or "–", entry.lane or "–", *numbers, center, entry.gates or "–")
    return (date, entry.status, *words, entry.directory)


def _footer(directory: Path, listing: "Listing", shown: "list[Entry]") -> list[str]:
    hidden = len(listing.entries) - len(shown)
    lines = [f"{len(shown)} of {len(listing.entries)} campaigns" if hidden else f"{len(shown)} campaigns"]
    broken = sum(entry.status in ("broken", "unreadable") for entry in listing.entries)
    if broken:
        lines[0] += f", {broken} of all can't be read"
    if listing.others:
        lines[0] += f"; {listing.others} other directories hold none"
    if any(entry.status in ("started", "interrupted") for entry in shown):
        lines.append("started and interrupted are also said of a campaign that still runs")
    usable = next((entry for entry in shown if not entry.problem), None)
    lines.append("nothing here was verified: the table repeats what each evidence.json says")
    if usable is not None:
        lines.append(f"next: bench verify {shlex.quote(str(directory / usable.directory))}")
    elif not listing.entries:
        lines.append("next: bench strict --launcher simulated")
    else:
        lines.append("next: bench list --help" if hidden else "next: bench verify DIRECTORY")
    return lines
