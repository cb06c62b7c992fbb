"""``bench report``: one self-contained HTML page."""

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import BenchError, UsageError
from harness.strangers import real


def report(
    directories: Annotated[list[Path], typer.Argument(help="Campaign directories, or imported results.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write; an older one is replaced.")],
    title: Annotated[str | None, typer.Option(help="Heading of the page; the configuration by default.")] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="The served model's manifest (bench model pin), for the projection.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="Memory bandwidth of one card in GB/s, where it isn't known.", min=0.001)
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Write one self-contained HTML page of campaigns, each verified first."""
    _check(directories, out)
    if bandwidth is not None and manifest is None:
        raise UsageError("--bandwidth is for the projection; add --manifest FILE, or leave it out")
    with _opened(out) as file:
        from harness.models import load_manifest
        from harness.publish.campaigns import open_any
        from harness.publish.configuration import why_unpublishable

        known = None if manifest is None else load_manifest(manifest).manifest
        rate = None if bandwidth is None else bandwidth * 1e9
        sources = [open_any(directory) for directory in directories]
        # The drawing library is slow to load, and evidence that doesn't verify never needs it.
        from harness.publish.page import page_view, render

        view = page_view(sources, title=title, manifest=known, bandwidth=rate)
        data = render(view).encode()
        file.write(data)
    quotable = [campaign.id for campaign in view.campaigns if campaign.hero.number is not None]
    if json_:
        campaigns = [{"id": item.id, "kind": item.kind, "status": item.status.text} for item in view.campaigns]
        out_json({"page": str(out), "bytes": len(data), "campaigns": campaigns, "with_a_number_to_quote": quotable})
        return
    typer.echo(f"{out}: {len(data) / 1024:.0f} KiB, one file that needs no network")
    for campaign in view.campaigns:
        number = campaign.hero.number
        said = campaign.hero.why_none[0] if number is None else f"{number.text} {campaign.hero.unit}"
        typer.echo(f"- {campaign.id}: {campaign.status.text}, {said.splitlines()[0]}")
    for directory, source in zip(directories, sources, strict=True):
        evidence = source.evidence
        if evidence.kind != "imported" and not why_unpublishable(evidence):
            typer.echo(f"next: bench promote --family FILE {shlex.quote(str(directory))}")
            return
    typer.echo(f"next: bench verify {shlex.quote(str(directories[0]))}")


def _check(directories: list[Path], out: Path) -> None:
    """Refuse a page that would become part of what it is made from: its manifest would no longer hold."""
    for directory in directories:
        if real(out).is_relative_to(real(directory)):
            raise UsageError(f"{out} would lie inside {directory}, whose files are sealed; choose another --out")
    if out.is_dir():
        raise UsageError(f"{out} is a directory; give the file to write with --out, for example {out / 'page.html'}")


@contextlib.contextmanager
def _opened(out: Path) -> Iterator[BinaryIO]:
    """A file beside ``out`` that replaces it whole at the end; opened first, so that a bad path fails early."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise UsageError(f"{out} can't be written ({error.strerror}); choose another --out") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(out)
    except OSError as error:
        raise BenchError(f"{out} can't be written ({error.strerror}); free space, or choose another --out") from None
    finally:
        temporary.unlink(missing_ok=True)
