"""Our client beside its peers, against one source of known schedule, in one run.

``python benchmarks/client.py`` prints the tables; ``--json FILE`` keeps everything, ``--markdown`` prints the README's.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import report, tools  # noqa: E402 - a script finds its package only now
from benchmarks.clients.job import Job  # noqa: E402
from benchmarks.source import Program, Schedule, built, serving  # noqa: E402
from harness.host.facts import host_facts, tool_facts  # noqa: E402

FORMAT = "b70-bench.client-benchmark/1"
MODULES = {
    "ours": "ours",
    "httpx": "httpx_stream",
    "aiohttp": "aiohttp_stream",
    "aiohttp, parsing after": "aiohttp_kept",
    "http.client threads": "threads",
}
FULL_SPEED = Schedule(ttft_us=0, gap_us=0)
FULL_SPEED_STREAMS = 128
MANY_STREAMS = 512
CLIENT_LIMIT_S = 300
WIDTH = 160
"""Columns where the output is no terminal"""
KEPT_FACTS = ("cpu_model", "cpu_threads", "memory_bytes", "kernel", "clocksource", "python")
"""No host name and no boot id: the file may be shown"""

app = typer.Typer(add_completion=False)
progress = Console(stderr=True)


class Bench:
    """One run of the benchmark."""

    def __init__(self, program: Program, *, schedule: Schedule, tokens: int, rounds: int, full_tokens: int) -> None:
        self.program, self.schedule = program, schedule
        self.tokens, self.rounds, self.full_tokens = tokens, rounds, full_tokens
        self.source_scheduling = ""

    def client(self, module: str, streams: int, schedule: Schedule, *, rounds: int, tokens: int) -> dict[str, Any]:
        """Figures of one of our own small clients; ``absent`` or ``failed`` with a reason otherwise."""
        with serving(self.program, schedule) as source:
            self.source_scheduling = source.scheduling
            job = Job(source.port, streams, rounds, tokens, schedule.ids_per_event, schedule.ttft_us)
            command = [sys.executable, "-m", "benchmarks.clients.run", module, json.dumps(asdict(job))]
            try:
                done = subprocess.run(
                    command, cwd=ROOT, capture_output=True, text=True, timeout=CLIENT_LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return {"failed": f"not done after {CLIENT_LIMIT_S} s"}
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def tool(self, tool: tools.Tool, program: str, streams: int, schedule: Schedule, tokenizer: str) -> dict[str, Any]:
        """What a tool reports of itself; ``failed`` with a reason otherwise."""
        with serving(self.program, schedule) as source:
            load = tools.Load(source.port, streams, self.rounds, self.tokens, schedule)
            try:
                return tools.run(tool, program, load, tokenizer)
            except RuntimeError as error:
                return {"failed": str(error)}


def _unmeasured(state: str, note: str) -> dict[str, Any]:
    return {"state": state, "note": note, "version": "", "timestamps": "", "scheduled": {}, "full_speed": None}


def _middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median CPU per event; a run that failed or lost events is shown before any other."""
    worst = max(runs, key=lambda run: (run.keys() & {"failed", "absent"} != set(), run.get("events_lost", 0)))
    if "failed" in worst or "absent" in worst or worst["events_lost"]:
        return worst
    ordered = sorted(runs, key=lambda run: float(run["cpu_read_us_per_event"]))
    cpu = [run["cpu_read_us_per_event"] for run in ordered]
    return ordered[(len(ordered) - 1) // 2] | {"cpu_read_us_per_event_of_each_run": cpu}


def _fill(client: dict[str, Any]) -> dict[str, Any]:
    """Version and kind of timestamps from the runs to the client; a client that is absent says only that."""
    runs = [*client["scheduled"].values(), client["full_speed"]]
    for run in runs:
        if "absent" in run:
            return _unmeasured("not installed", run["absent"])
        client["version"] = run.pop("version", "") or client["version"]
        client["timestamps"] = run.pop("timestamps", "") or client["timestamps"]
    return client


def _small_clients(bench: Bench, names: list[str], concurrency: list[int], repeats: int) -> dict[str, dict[str, Any]]:
    """Runs of the clients take turns, so that what else the machine does falls on all of them."""
    clients = {name: _unmeasured("measured", "") for name in names}
    for streams in concurrency:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for repeat in range(repeats):
            for name in names:
                progress.print(f"{streams} streams, {repeat + 1} of {repeats}: {name}")
                runs[name].append(
                    bench.client(MODULES[name], streams, bench.schedule, rounds=bench.rounds, tokens=bench.tokens)
                )
        for name in names:
            clients[name]["scheduled"][str(streams)] = _middle(runs[name])
    for name in names:
        progress.print(f"full speed: {name}")
        clients[name]["full_speed"] = bench.client(
            MODULES[name], FULL_SPEED_STREAMS, FULL_SPEED, rounds=1, tokens=bench.full_tokens
        )
    return {name: _fill(client) for name, client in clients.items()}


def _tool(
    bench: Bench, tool: tools.Tool, given: str | None, tokenizer: str, install_in: Path | None, concurrency: list[int]
) -> dict[str, Any]:
    program = tools.find(tool, given)
    if program is None and install_in is not None and tool.package is not None:
        progress.print(f"{tool.name}: installing")
        try:
            program = tools.install(tool, install_in)
        except RuntimeError as error:
            return _unmeasured("not installed", str(error))
    if program is None:
        return _unmeasured("not installed", f"no {tool.program} on PATH, and neither option nor ${tool.environment}")
    if not tokenizer and tool.name != "aiperf":
        return _unmeasured("not run", "it needs a tokenizer: give --tokenizer DIR")

    client = _unmeasured("measured", "")
    for streams in concurrency:
        progress.print(f"{streams} streams: {tool.name}")
        client["scheduled"][str(streams)] = bench.tool(tool, program, streams, bench.schedule, tokenizer)
    progress.print(f"full speed: {tool.name}")
    client["full_speed"] = bench.tool(tool, program, FULL_SPEED_STREAMS, FULL_SPEED, tokenizer)
    client["version"] = tools.version(program, tool.package or tool.program)
    client["timestamps"] = "its own report"
    return client


def _numbers(text: str) -> list[int]:
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = []
    if not values or values[0] < 1 or values[-1] > 2048:
        raise typer.BadParameter(f"{text!r} isn't a list of stream counts; write for example 1,16,128 (at most 2048)")
    return values


@app.command()
def main(
    quick: Annotated[bool, typer.Option(help="One short round, no load generators: shows that all works.")] = False,
    concurrency: Annotated[str, typer.Option(help="Numbers of streams at once.")] = "1,16,64,128,256",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
    markdown: Annotated[bool, typer.Option(help="Print the README's table at the end.")] = False,
    peers: Annotated[bool, typer.Option(help="Measure the peers too.")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds of a run.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each client, in turns; the median is shown.")] = 3,
    tokenizer: Annotated[
        str,
        typer.Option(envvar="B70_BENCH_TOKENIZER", help="Directory of a tokenizer, which the load generators need."),
    ] = "",
    vllm: Annotated[str | None, typer.Option(help="The vllm executable, or its Python.")] = None,
    aiperf_python: Annotated[str | None, typer.Option(help="Python, or executable, of aiperf's environment.")] = None,
    guidellm_python: Annotated[str | None, typer.Option(help="Python, or executable, of guidellm's.")] = None,
    install_peers: Annotated[
        bool, typer.Option("--install-peers", help="Install aiperf and guidellm into temporary environments.")
    ] = False,
) -> None:
    """Measure our client beside its peers against one source of known schedule."""
    counts = _numbers(concurrency)
    given = {"vllm": vllm, "aiperf": aiperf_python, "guidellm": guidellm_python}
    with ExitStack() as stack:
        program = stack.enter_context(built())
        install_in = Path(stack.enter_context(tempfile.TemporaryDirectory())) if install_peers else None
        bench = Bench(
            program,
            schedule=Schedule(gap_us=1000) if quick else Schedule(),
            tokens=32 if quick else 128,
            rounds=1 if quick else rounds,
            full_tokens=16 if quick else 1024,
        )
        host = host_facts()
        result: dict[str, Any] = {
            "format": FORMAT,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "source": program.kind,
            "host": {name: host.value(name) for name in KEPT_FACTS},
            "tool": tool_facts().model_dump(mode="json"),
            "load_before": os.getloadavg()[0],
            "settings": {
                "concurrency": counts,
                "schedule": asdict(bench.schedule),
                "tokens": bench.tokens,
                "rounds": bench.rounds,
                "warm_rounds": 1,
                "repeats": 1 if quick else repeats,
                "full_speed_streams": FULL_SPEED_STREAMS,
                "full_speed_tokens": bench.full_tokens,
                "many_streams": MANY_STREAMS,
                "quick": quick,
            },
            "clients": {},
        }
        clients = result["clients"]
        names = list(MODULES) if peers else ["ours"]
        measured = _small_clients(bench, names, counts, 1 if quick else repeats)
        for name in MODULES:
            clients[name] = measured.get(name) or _unmeasured("not run", "--no-peers")
        progress.print(f"ours: {MANY_STREAMS} streams")
        result["many_streams"] = bench.client(
            "ours", MANY_STREAMS, bench.schedule, rounds=min(2, bench.rounds), tokens=bench.tokens
        )
        for tool in tools.TOOLS:
            if peers and not quick:
                tokens_from = str(Path(tokenizer).resolve()) if tokenizer else ""
                clients[tool.name] = _tool(bench, tool, given[tool.program], tokens_from, install_in, counts)
            else:
                clients[tool.name] = _unmeasured("not run", "--quick" if quick else "--no-peers")
    result["source_scheduling"] = bench.source_scheduling
    result["load_after"] = os.getloadavg()[0]
    result["goals"] = report.goals(result)
    result["ratios"] = report.ratios(result)
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(report.table(result))
    if result["goals"]:
        console.print(report.goal_table(result))
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=1) + "\n")
    if markdown:
        sys.stdout.write(report.markdown(result) + "\n")


if __name__ == "__main__":
    app()
