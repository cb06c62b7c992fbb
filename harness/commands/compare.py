"""``bench compare``: two campaigns of one configuration, or of two that differ in what was declared."""

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from harness.publish.likeness import Difference


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The campaign to compare with.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The campaign that is compared: ratios are B / A.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(help="What is meant to differ: image, depth, classpad, tp, host or env:NAME; repeatable."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare unlike campaigns, their differences on top.")
    ] = False,
    fail_below: Annotated[
        float | None,
        typer.Option(
            help="Exit 1 when a gate of B failed (wrong answers are fast), or when the point estimate of any pair's "
            "or rung's B / A is below this; intervals are shown and decide nothing. Exit 2, no verdict: a side is "
            "invalid, interrupted, attached, or simulated beside a measured one, A's own gates failed, or a figure has "
            "no ratio. Two simulated campaigns may pass, and it says SIMULATED."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Compare two campaigns: ratios with intervals, answers, gates. Unlike ones are refused with 64.

    64 and not 2, because nothing is inconclusive: another command line (--vary, --anyway, another B) is what helps.
    """
    from harness.publish import compare as comparing
    from harness.publish.campaigns import open_campaign
    from harness.publish.likeness import check_names

    if fail_below is not None and not (math.isfinite(fail_below) and fail_below > 0):
        raise UsageError(f"--fail-below {fail_below} is no ratio; write for example --fail-below 0.98")
    check_names(vary or [])
    one, two = open_campaign(a), open_campaign(b)
    found = comparing.like(one, two, vary or [])
    why = comparing.refusal(found)
    if why and not anyway:
        if json_:
            out_json(
                {
                    "like": False,
                    "undeclared": comparing.differences_json(found.undeclared),
                    "idle": found.idle,
                    "subject": comparing.differences_json(found.subject),
                }
            )
        else:
            typer.echo("\n".join(f"- {sentence}" for sentence in why))
        raise UsageError(_refused(found.undeclared, found.idle))
    result = comparing.compare(one, two, found, fail_below)
    next_command = f"bench report {shlex.quote(str(a))} {shlex.quote(str(b))} -o compare.html"
    if json_:
        out_json({"like": not why, **comparing.as_json(result), "next": next_command})
    else:
        from harness.console import console
        from harness.publish.compare_text import comparison_text

        screen = console(width=None if sys.stdout.isatty() else 180)
        for part in comparison_text(result, next_command):
            screen.print(part)
    raise typer.Exit(ExitCode.OK if result.fail_below is None else result.fail_below.exit_code)


def _refused(undeclared: "list[Difference]", idle: list[str]) -> str:
    """One sentence: what differs or how much, and what would declare it."""
    if not undeclared:
        return f"{', '.join(idle)} was declared with --vary and is equal in A and B; correct --vary, or give --anyway"
    what = f": {undeclared[0].sentence()}" if len(undeclared) == 1 else f" in {len(undeclared)} things"
    names = dict.fromkeys(item.vary[0] for item in undeclared if item.vary)
    declare = f"declare what is meant to differ ({' '.join(f'--vary {name}' for name in names)}), or " if names else ""
    return f"A and B are unlike{what}; {declare}compare them with --anyway"
