"""``bench clean``: what killed campaigns left, listed with its campaign, and removed where that isn't running."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import EXPERIMENTS, JsonOption, Out, out_json
from harness.errors import ExitCode

if TYPE_CHECKING:
    from harness.cleaning import Item


def clean(
    campaigns: Annotated[
        list[str] | None, typer.Argument(help="Only these campaigns, by name; all by default.")
    ] = None,
    out: Out = EXPERIMENTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List, and remove nothing.")] = False,
    json_: JsonOption = False,
) -> None:
    """Remove containers, compile caches and locks of campaigns that aren't running; never anything else's.

    Exit code 0, or 2 when something that should go couldn't be removed.
    """
    from harness.cleaning import clean as run

    said: Any = (lambda text: None) if json_ else typer.echo
    found = run(out, only=campaigns or (), dry_run=dry_run, progress=said)
    stuck = [item for item in found if item.state == "stuck"]
    if json_:
        out_json({"ok": not stuck, "dry_run": dry_run, "items": [item.as_json() for item in found]})
    else:
        _print(found, dry_run=dry_run)
    raise typer.Exit(ExitCode.INFRASTRUCTURE if stuck else ExitCode.OK)


def _print(found: "list[Item]", *, dry_run: bool) -> None:
    import sys

    from rich.table import Table

    from harness.console import console

    if not found:
        typer.echo("nothing is left of any campaign")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("what", "campaign", "done", "why"):
        table.add_column(column, overflow="fold")
    for item in found:
        table.add_row(item.what, item.campaign, item.state, item.why)
    console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    if dry_run and any(item.state == "would go" for item in found):
        typer.echo("next: bench clean removes what would go")
