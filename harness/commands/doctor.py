"""``bench doctor``: what a campaign needs of this host, one line each, and what to do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli_options import (
    EXPERIMENTS,
    ImageOption,
    JsonOption,
    KernelLog,
    ModelDir,
    ModelManifest,
    Out,
    Port,
    out_json,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.doctor import Findings

LAUNCHER = "qwen35-4b-w4a16"
COLOURS = {"ok": "green", "warning": "yellow", "failure": "bold red", "unknown": "magenta", "not applicable": "dim"}

LauncherToCheck = Annotated[str, typer.Option(help="Launcher name or TOML file.")]
Root = Annotated[Path | None, typer.Option(hidden=True)]


def doctor(
    launcher: LauncherToCheck = LAUNCHER,
    image: ImageOption = None,
    model_dir: ModelDir = None,
    model_manifest: ModelManifest = None,
    port: Port = None,
    out: Out = EXPERIMENTS,
    kernel_log: KernelLog = None,
    sys_root: Root = None,
    dev_root: Root = None,
    proc_root: Root = None,
    json_: JsonOption = False,
) -> None:
    """Look at this host before a campaign: Docker, image, model, cards, memory, faults, leftovers.

    Exit code 0 when nothing hinders a campaign (warnings included), 2 when something does.
    """
    from harness.commands.model import hashing_progress
    from harness.doctor import Asked, examine
    from harness.host.roots import Roots

    roots = Roots(sys_root or Path("/sys"), dev_root or Path("/dev"), proc_root or Path("/proc"), kernel_log)
    with hashing_progress() as progress:
        findings = examine(Asked(launcher, image, model_dir, model_manifest, port, out, roots), progress)
    if json_:
        out_json(
            {
                "ok": not findings.exit_code,
                "exit_code": int(findings.exit_code),
                "lines": [line.as_json() for line in findings.lines],
                "host": None if findings.host is None else findings.host.model_dump(mode="json")["facts"],
            }
        )
    else:
        import sys

        from harness.console import console

        screen = console(width=None if sys.stdout.isatty() else 160, highlight=False)
        for part in table(findings):
            screen.print(part)
        typer.echo(closing(findings, launcher))
    raise typer.Exit(findings.exit_code)


def table(findings: "Findings") -> list["RenderableType"]:
    """One row a finding."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for column in ("", "state", "found", "what to do"):
        shown.add_column(column, overflow="fold")
    for line in findings.lines:
        shown.add_row(line.name, Text(line.state, COLOURS[line.state]), Text(line.what), Text(line.do))
    return [shown]


def closing(findings: "Findings", launcher: str) -> str:
    """How many of each, and what comes next."""
    counted = {state: sum(line.state == state for line in findings.lines) for state in COLOURS}
    said = ", ".join(f"{count} {state}" for state, count in counted.items() if count)
    if findings.exit_code:
        first = next(line for line in findings.lines if line.bad)
        return f"{said}. A campaign would fail here; begin with {first.name}: {first.do or first.what}"
    return f"{said}. next: bench strict --launcher {launcher} --model-dir DIR"
