"""``bench model pin`` and ``bench model check``: a model directory and the manifest that says what it must hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import ExitCode, UsageError
from harness.strangers import real

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.evidence.ladder_schema import AnyEvidence
    from harness.host.model_files import Progress
    from harness.models import Manifest

model = typer.Typer(help="Model directories: pin one to its files.", no_args_is_help=True, rich_markup_mode=None)

Directory = Annotated[Path, typer.Argument(help="The directory of the weights.")]
QUIET_S = 2.0
"""seconds of hashing before a progress bar appears"""


@model.command()
def pin(
    directory: Directory,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The manifest to write; NAME.model.json here by default.")
    ] = None,
    repository: Annotated[str | None, typer.Option(help="Where the files are from, for example ORG/NAME.")] = None,
    revision: Annotated[str | None, typer.Option(help="Their revision there.")] = None,
    json_: JsonOption = False,
) -> None:
    """Write a manifest of a directory you trust: every file with size and sha256, and what a decoding step reads.

    With --json the manifest is printed, and written only where --out says.
    """
    import shlex

    from harness.evidence.store import dump_json, write_atomic
    from harness.host.model_files import called, check_model_directory
    from harness.host.model_files import pin as pinned
    from harness.unwritable import OUTPUT

    check_model_directory(directory)
    path = out if out is not None or json_ else Path(f"{called(directory)}.model.json")
    if path is not None:
        _check_target(path, directory)
    with hashing_progress() as progress:
        manifest = pinned(directory, repository=repository, revision=revision, progress=progress)
    if path is not None:
        write_atomic(path, dump_json(manifest.as_json()), advice=OUTPUT)
    if json_:
        out_json(manifest.as_json())
        return
    from harness.console import console

    screen = console()
    for part in manifest_tables(manifest, called(directory)):
        screen.print(part)
    there, file = shlex.quote(str(directory)), shlex.quote(str(path))
    typer.echo(f"{path}: {len(manifest.files)} files, {_size(manifest.bytes)}, sha256 {manifest.sha256}")
    typer.echo(f"next: bench model check {there} {file}, or bench strict --model-dir {there} --model-manifest {file} …")


def _check_target(path: Path, directory: Path) -> None:
    if path.exists():
        raise UsageError(f"{path.name} exists already; choose another --out, or remove it first")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"{path.absolute().parent.name} is no directory, so {path.name} can't be written; make it first"
        )
    if real(path).is_relative_to(real(directory)):
        raise UsageError(f"{path.name} would stand inside the directory that it pins; choose another --out")


@model.command()
def check(
    directory: Directory,
    manifest: Annotated[str, typer.Argument(help="The manifest: a name or a JSON file.")],
    json_: JsonOption = False,
) -> None:
    """Name every file of a directory that is missing, extra or changed. Exit code 0 when there is none, 1 otherwise."""
    from harness.host.model_files import called
    from harness.host.model_files import check as differences
    from harness.models import load_manifest

    loaded = load_manifest(manifest)
    with hashing_progress() as progress:
        problems = differences(directory, loaded.manifest, progress)
    files, size = len(loaded.manifest.files), loaded.manifest.bytes
    if json_:
        out_json(
            {"ok": not problems, "problems": problems, "files": files, "bytes": size, "sha256": loaded.manifest.sha256}
        )
    elif problems:
        typer.echo(f"{called(directory)} isn't what {loaded.name} says:")
        for problem in problems:
            typer.echo(f"- {problem}")
    else:
        said = f"{files} files, {_size(size)}, sha256 {loaded.manifest.sha256}"
        typer.echo(f"{called(directory)} is what {loaded.name} says: {said}")
    raise typer.Exit(ExitCode.GATE_FAILED if problems else ExitCode.OK)


@contextmanager
def hashing_progress() -> Iterator["Progress"]:
    """A bar on a terminal's standard error, once hashing has taken two seconds."""
    import sys
    import time

    if not sys.stderr.isatty():
        yield lambda _name, _done, _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from harness.console import console

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console(stderr=True), transient=True)
    begun, task, shown = time.monotonic(), bar.add_task("", total=None), ""

    def report(name: str, done: int, size: int) -> None:
        nonlocal shown
        if not bar.live.is_started:
            if time.monotonic() - begun < QUIET_S:
                return
            bar.start()
        if name != shown:
            shown = name
            bar.reset(task, description=name, total=size)
        bar.update(task, completed=done)

    try:
        yield report
    finally:
        bar.stop()


def _size(count: float) -> str:
    """Bytes in decimal units, as a memory's bandwidth is told."""
    units = ["B", "kB", "MB", "GB"]
    while abs(count) >= 1000 and len(units) > 1:
        count, _ = count / 1000, units.pop(0)
    return f"{count:.0f} {units[0]}" if units[0] == "B" else f"{count:.2f} {units[0]}"


def manifest_tables(manifest: "Manifest", directory: str) -> list["RenderableType"]:
    """What a decoding step reads of the directory, and what its files don't say."""
    from rich.table import Table
    from rich.text import Text

    from harness.models import ROLES

    parts: list[RenderableType] = []
    shape, weights = manifest.architecture, manifest.weights
    if weights is not None:
        table = Table(title=f"weights of {directory}", title_justify="left")
        for column in ("part", "stored", "types", "read"):
            table.add_column(column, justify="right" if column == "stored" else "left")
        for role, read in ROLES.items():
            types = weights.of(role)
            if types:
                table.add_row(role, _size(weights.total(role)), ", ".join(types), read)
            elif role == "lm_head" and shape.tied:
                table.add_row(role, "–", "", "every step: the embedding's matrix")
        parts.append(table)
    if shape.kv_bytes_per_token is not None and shape.state_bytes is not None:
        parts.append(
            Text(
                f"{shape.layers} layers: {shape.full_attention_layers} with a KV cache "
                f"({_size(shape.kv_bytes_per_token['auto'])} a token), {shape.linear_attention_layers} with a state "
                f"({_size(shape.state_bytes)})"
            )
        )
    parts += [Text(f"unknown: {name}: {why}", style="yellow") for name, why in manifest.missing.items()]
    return parts


def projection_parts(
    evidence: "AnyEvidence", manifest: "Manifest", bandwidth_gb_s: float | None
) -> list["RenderableType"]:
    """What ``bench show --manifest`` prints under the numbers: ceilings, apart from them and labelled."""
    from rich.table import Table
    from rich.text import Text

    from harness.publish.projection import LABEL, projection_of

    found = projection_of(evidence, manifest, None if bandwidth_gb_s is None else bandwidth_gb_s * 1e9)
    if isinstance(found, str):
        return [Text(f"no projection: {found}", style="yellow")]
    table = Table(title=f"ceiling of memory bandwidth: {LABEL}", title_justify="left")
    columns = ("pair", "read a step", "tokens a step", "step", "ceiling, projected", "measured", "share")
    for column in columns:
        table.add_column(column, justify="left" if column == "pair" else "right")
    for item in found:
        withheld = " (withheld)" if evidence.withheld and item.measured_tok_s is not None else ""
        table.add_row(
            item.pair,
            _size(item.bytes_per_step.total),
            f"{item.tokens_per_step:.2f}",
            f"{item.step_s * 1000:.3f} ms",
            f"{item.ceiling_tok_s:.2f} tokens/s",
            "–" if item.measured_tok_s is None else f"{item.measured_tok_s:.2f} tokens/s{withheld}",
            "–" if item.share is None else f"{item.share:.2%}",
        )
    parts: list[RenderableType] = [table, Text("a projection, which assumes:")]
    for said in dict.fromkeys(sentence for item in found for sentence in item.assumptions):
        pairs = [item.pair for item in found if said in item.assumptions]
        only = "" if len(pairs) == len(found) else f"{', '.join(pairs)}: "
        parts.append(Text(f"- {only}{said}", style="dim"))
    return parts


def projection_manifest(manifest: str | None, bandwidth: float | None) -> "Manifest | None":
    """The manifest that ``bench show --manifest`` names; None without one. Raises UsageError."""
    if manifest is None:
        if bandwidth is not None:
            raise UsageError("--bandwidth is for a projection, which needs --manifest; give both, or leave it out")
        return None
    if bandwidth is not None and not 0 < bandwidth < 1e9:
        raise UsageError("--bandwidth is in GB/s of one card and above 0; correct it")
    from harness.models import load_manifest

    return load_manifest(manifest).manifest
