"""``bench import`` and ``bench export``: the lab's formats, both ways."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from harness.evidence.imported import ImportedEvidence

SHOWN = 12
"""lines of one kind in the plain output; --json has all"""


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Published files, or directories of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to write; it must not exist.")],
    asked: Annotated[
        list[str] | None,
        typer.Option("--asked", help="NAME=VALUE that the campaign asked for, to hold against what ran; repeatable."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Import published results of the lab: re-derived where raw rows exist, otherwise claimed.

    Known: b70-lab.result.v1, strict attempts (performance, campaign-identity, canaries, comparison, container-inspect),
    ladders, rung extracts, family files and suites. Everything of strict attempts under one PATH is one import, every
    other result is one of its own.
    """
    from harness.publish.lab import gather, rederive_import, write_imports

    given = gather(paths)
    written = write_imports(given, out, _asked(asked or []))
    evidence = [rederive_import(path) for path in written]
    if json_:
        imports = [
            {"directory": str(path), **item.model_dump(mode="json", by_alias=True)}
            for path, item in zip(written, evidence, strict=True)
        ]
        out_json({"imports": imports, "left_out": given.unknown})
        return
    for path, item in zip(written, evidence, strict=True):
        print_import(item, path)
    for name, why in given.unknown.items():
        typer.echo(f"{name}: {why}")
    typer.echo(f"next: bench verify {written[0]}   or   bench report {written[0]} -o page.html")


def _asked(words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--asked {word[:60]!r} is no NAME=VALUE; write for example --asked VLLM_XPU_ENABLE_XPU_GRAPH=1"
            )
        found[name] = value
    return found


def print_import(evidence: "ImportedEvidence", directory: Path) -> None:
    """What an imported directory holds, as plain lines and a table of its servers."""
    typer.echo(f"{directory}\n  {evidence.conclusion}")
    for source in evidence.sources:
        typer.echo(f"  {source.name}: {source.format}, {source.bytes} bytes, sha256 {source.sha256[:12]}")
    if evidence.servers:
        typer.echo(f"  {'server':44} {'tokens/s':>12} {'TTFT ms':>9}  basis")
    for server in evidence.servers[:SHOWN]:
        figure, ttft = server.class_balanced_median, server.ttft_ms
        rate, wait = ("–" if f is None else f"{f.value:.3f}" for f in (figure, ttft))
        typer.echo(f"  {server.label[:44]:44} {rate:>12} {wait:>9}  {'–' if figure is None else figure.basis}")
        rederived = {k: v.value for k, v in server.class_medians.items() if v.basis == "re-derived"}
        for name, value in rederived.items():
            typer.echo(f"    class {name}: {value!r} tokens/s re-derived from its rows")
    for row in evidence.rows[:SHOWN]:
        rate = "–" if row.tok_s_1_100 is None else f"{row.tok_s_1_100.value:.2f}"
        exact = "–" if row.tok_s_burst_exact is None else f"{row.tok_s_burst_exact:.2f}"
        typer.echo(f"    row {row.prompt_id}: {rate} tokens/s re-derived, burst-exact {exact}")
    for ladder in evidence.ladders[:SHOWN]:
        typer.echo(f"  ladder {ladder.label}: {rungs_line(ladder.rungs)}")
    for point in evidence.depth_points[: 2 * SHOWN]:
        where = f"TP{point.tensor_parallel} MTP{point.depth}"
        typer.echo(f"  {where} at {point.active_context_tokens} tokens of context: {point.tok_s:.1f} tokens/s claimed")
    gates = [f"{gate.name} {gate_words(gate)} ({gate.subject}, {gate.basis})" for gate in evidence.gates]
    _listed("gates", gates)
    for what, fields in (("null fields", evidence.null_fields), ("stale fields", evidence.stale_fields)):
        for file in dict.fromkeys(item.file for item in fields):
            _listed(
                f"{what} of {file}", [f"{item.field}: {item.why}" for item in fields if item.file == file], 2 * SHOWN
            )
    _listed("problems", evidence.problems, 2 * SHOWN)
    _listed("unknown", evidence.unknown)


def gate_words(gate: Any) -> str:
    """``12/12``, or what is claimed in its place."""
    if gate.total is not None:
        return f"{gate.exact}/{gate.total}"
    return {True: "said passed", False: "said failed", None: "not said"}[gate.passed]


def rungs_line(rungs: list[Any]) -> str:
    """``c16 1052.3, c24 1354.9 (withheld 95/96)``."""
    said = []
    for rung in rungs:
        rate = "no rate" if rung.tok_s is None else f"{rung.tok_s:.1f}"
        counts = "" if rung.total is None else f" {rung.exact}/{rung.total}"
        if rung.withheld:
            said.append(f"c{rung.rung} {rate} (withheld{counts})")
        elif rung.withheld is None:
            said.append(f"c{rung.rung} {rate} (?)")
        else:
            said.append(f"c{rung.rung} {rate}{f' ({counts.strip()})' if counts else ''}")
    return ", ".join(said)


def _listed(what: str, lines: list[str], most: int = SHOWN) -> None:
    if lines:
        typer.echo(f"  {what}:")
    for line in lines[:most]:
        typer.echo(f"    {line}")
    if len(lines) > most:
        typer.echo(f"    … and {len(lines) - most} more (--json has all)")


def export(
    directory: Annotated[Path, typer.Argument(help="A campaign directory.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, or with --format all a new directory.")],
    format_: Annotated[
        str, typer.Option("--format", help="result, comparison, attestation, package, localmaxxing or all.")
    ] = "all",
    json_: JsonOption = False,
) -> None:
    """Write a verified campaign in the lab's formats; what may not be published is refused with its reason."""
    from harness.publish.lab_write import FORMATS, export_campaign

    if format_ not in (*FORMATS, "all"):
        raise UsageError(f"there is no format {format_!r}; use one of {', '.join((*FORMATS, 'all'))}")
    outcome = export_campaign(directory, format_, out)
    if json_:
        out_json(
            {"written": [str(path) for path in outcome.written], "refused": outcome.refused, "notes": outcome.notes}
        )
    else:
        for path in outcome.written:
            typer.echo(f"written: {path}")
        for name, reasons in outcome.refused.items():
            for reason in reasons:
                typer.echo(f"refused: {name}: {reason}")
        for note in outcome.notes:
            typer.echo(f"note: {note}")
        if outcome.written and format_ in ("result", "comparison", "all"):
            typer.echo(f"next: bench import {out} -o imported   to see what others will read in it")
    raise typer.Exit(ExitCode.GATE_FAILED if outcome.refused else ExitCode.OK)
