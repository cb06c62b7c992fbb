"""Our client under load for minutes: many streams, slow readers and servers, one-byte writes; nothing lost, no growth.

``python benchmarks/load.py`` prints the tables; ``--json FILE`` keeps everything. It ends with 1 when an event of the
source is not in a capture, or when descriptors, threads, processes or memory grow from round to round.
"""

import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.loads import tables  # noqa: E402 - a script finds its package only now
from benchmarks.loads.campaign import AMOUNTS, Load, failures, run, verdicts  # noqa: E402
from benchmarks.loads.kinds import MODES, PATHS, asks  # noqa: E402
from benchmarks.source import built  # noqa: E402
from harness.host.facts import host_facts, tool_facts  # noqa: E402

FORMAT = "b70-bench.load-benchmark/1"
KEPT_FACTS = ("cpu_model", "cpu_threads", "memory_bytes", "kernel", "clocksource", "python")
"""No host name and no boot id: the file may be shown"""
WIDTH = 190
"""Columns where the output is no terminal"""

Mode = StrEnum("Mode", {mode: mode for mode in MODES})  # type: ignore[misc]
Leak = StrEnum("Leak", ["none", "descriptor", "thread", "memory"])
MIXED, NO_LEAK = Mode("mixed"), Leak("none")

app = typer.Typer(add_completion=False)
progress = Console(stderr=True)


def written(result: dict[str, Any]) -> str:
    """As JSON, a round a line."""
    lines = ",\n  ".join(json.dumps(row) for row in result["rounds"])
    return json.dumps(result | {"rounds": []}, indent=1)[: -len("[]\n}")] + f"[\n  {lines}\n ]\n}}\n"


@app.command()
def main(
    streams: Annotated[int, typer.Option(min=1, max=2048, help="Streams at once.")] = 512,
    minutes: Annotated[float, typer.Option(min=0, help="So long streams are open, in sum.")] = 10,
    mode: Annotated[Mode, typer.Option(help="What streams, servers and readers are like.")] = MIXED,
    round_s: Annotated[float, typer.Option(min=0.2, help="Seconds that the streams of one round last.")] = 6,
    rounds: Annotated[int, typer.Option(min=0, help="At least so many rounds.")] = 15,
    python_source: Annotated[bool, typer.Option("--python-source", help="Use the source in Python, not in C.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
    markdown: Annotated[bool, typer.Option(help="Print the tables for a page, too.")] = False,
    leak: Annotated[Leak, typer.Option(help="Leak one a round on purpose, to see that it is found.")] = NO_LEAK,
) -> None:
    """Drive our transport and capture writer, and account for every event."""
    load = Load(streams, (mode.value,), minutes * 60, round_s, PATHS, rounds, "" if leak == "none" else leak.value)
    host, load_before = host_facts(), os.getloadavg()[0]
    with ExitStack() as stack:
        program = stack.enter_context(built(python_asked=python_source))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="load-")))
        try:
            done = run(program, load, folder, progress.print)
        except RuntimeError as error:
            progress.print(str(error))
            raise typer.Exit(1) from None
    kinds = {json.dumps(asdict(ask)): asdict(ask) for ask in asks(mode.value, streams, round_s)}
    result: dict[str, Any] = {
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": program.kind,
        "host": {name: host.value(name) for name in KEPT_FACTS},
        "tool": tool_facts().model_dump(mode="json"),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "settings": asdict(load)
        | {
            "kinds": list(kinds.values()),
            "warm": load.warm,
            "let_pass": {name: asdict(allowed) for name, allowed in AMOUNTS.items()},
        },
        "totals": tables.totals(done),
        "growth": [asdict(verdict) for verdict in verdicts(done, load.warm)],
        "failures": failures(load, done),
        "rounds": done,
    }
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(tables.account_table(result))
    console.print(tables.growth_table(result))
    for sentence in result["failures"]:
        console.print(sentence, markup=False)
    if json_file is not None:
        json_file.write_text(written(result))
    if markdown:
        sys.stdout.write(tables.markdown(result) + "\n")
    if result["failures"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
