"""Commands that judge what is recorded: verify, show, ties, schema."""

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import EvidenceError, ExitCode, UsageError


def verify(
    directory: Annotated[Path, typer.Argument(help="A campaign directory.")],
    signed_by: Annotated[
        str | None, typer.Option(metavar="FILE|KEYID", help="Also check its seal: public key (PEM), or the key's id.")
    ] = None,
    issuer: Annotated[
        str | None, typer.Option(metavar="URL", help="Who vouches for the identity of --signed-by, of a keyless seal.")
    ] = None,
    seal: Annotated[Path | None, typer.Option(help="The seal, where it isn't seal.dsse.json of the campaign.")] = None,
    json_: JsonOption = False,
) -> None:
    """Re-derive every number and gate of a campaign from the captured bytes."""
    from harness.evidence.verify import headline
    from harness.evidence.verify import verify as check

    directory = directory if directory.name else directory.resolve()  # "." has no name to say
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    if (seal is not None or issuer is not None) and signed_by is None:
        raise UsageError("--seal and --issuer say how a seal is checked; add --signed-by FILE, or leave them out")
    if _imported(directory):
        if signed_by is not None:
            raise UsageError(f"{directory.name} was imported, and imports have no seal; leave --signed-by out")
        _verify_import(directory, json_=json_)
    result, said = check(directory), None
    if signed_by is not None:
        from harness.commands.seal import signed

        try:
            said = signed(directory, seal, signed_by, issuer, result)
        except EvidenceError as error:
            result.problems.append(str(error))
    if json_:
        out_json(
            {
                "ok": result.ok,
                "problems": result.problems,
                "status": None if result.evidence is None else result.evidence.status,
                "files": result.files,
                "rows": result.rows,
                "token_ids": result.ids,
                "gates": result.gates,
                **({} if signed_by is None else {"seal": None if said is None else said.model_dump(mode="json")}),
            }
        )
    else:
        typer.echo(f"{directory.name} {headline(result)}")
        for problem in result.problems[1:20]:
            typer.echo(f"- {problem}")
        if result.ok:
            typer.echo(
                f"checked: {result.files} files by sha256, {result.rows} rows, {result.ids} token ids, "
                f"{result.gates} gates re-derived"
            )
        if said is not None:
            typer.echo(f"sealed: at {said.sealed_at} by {said.sealed_by}, as {said.status}; the signature holds")
    raise typer.Exit(ExitCode.OK if result.ok else ExitCode.GATE_FAILED)


def show(
    directory: Annotated[Path, typer.Argument(help="A campaign directory.")],
    svg: Annotated[Path | None, typer.Option(help="Also draw it as an SVG file.")] = None,
    manifest: Annotated[
        str | None, typer.Option(help="Manifest of the model: adds what memory bandwidth would allow, projected.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="GB/s of one card, for that projection; 608 on a B70, else not known.")
    ] = None,
) -> None:
    """Print a campaign's closing summary again, after re-deriving it; nothing that doesn't verify is shown."""
    from harness.commands.model import projection_manifest, projection_parts
    from harness.console import console
    from harness.evidence.verify import headline
    from harness.evidence.verify import verify as check
    from harness.summary import drawn, summary

    directory = directory if directory.name else directory.resolve()  # "." has no name to say
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    if _imported(directory):
        from harness.commands.lab import print_import
        from harness.publish.lab import rederive_import

        if svg is not None:
            raise UsageError(
                f"{directory.name} was imported and has no summary to draw; leave out --svg, or use bench report"
            )
        print_import(rederive_import(directory), directory)
        raise typer.Exit(ExitCode.OK)
    result = check(directory)
    if not result.ok or result.evidence is None:
        raise EvidenceError(f"{directory.name} {headline(result)}")
    pinned = projection_manifest(manifest, bandwidth)
    screen = console(record=svg is not None, width=None if sys.stdout.isatty() else 150)
    for part in summary(result.evidence, directory, result.evidence.start.command):
        screen.print(part)
    for part in projection_parts(result.evidence, pinned, bandwidth) if pinned is not None else []:
        screen.print(part)
    if svg is not None:
        try:
            svg.write_text(drawn(screen, directory.name), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{svg.name} can't be written ({error.strerror}); choose another --svg") from None
    raise typer.Exit(result.evidence.exit_code)


def _imported(directory: Path) -> bool:
    """Also where evidence.json is damaged: an import has sources and no journal."""
    from harness.publish.campaigns import is_imported

    if (directory / "sources").is_dir() and not (directory / "journal.jsonl").exists():
        return True
    return is_imported(directory)


def _verify_import(directory: Path, *, json_: bool) -> NoReturn:
    """Derive imported results from their sources again; what is claimed stays claimed."""
    from harness.publish.lab import verify_import

    problems, evidence = verify_import(directory)
    if json_:
        files = 0 if evidence is None else len(evidence.sources)
        out_json({"ok": not problems, "problems": problems, "status": "imported", "files": files})
    elif problems or evidence is None:
        typer.echo(f"{directory.name} DOES NOT VERIFY: {problems[0]}")
        for problem in problems[1:20]:
            typer.echo(f"- {problem}")
    else:
        typer.echo(f"{directory.name} verifies: {len(evidence.sources)} source files by sha256, evidence derived again")
        typer.echo(evidence.conclusion)
    raise typer.Exit(ExitCode.GATE_FAILED if problems else ExitCode.OK)


def ties(
    directory: Annotated[Path, typer.Argument(help="The campaign directory of a ladder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The suite file to write; it must not exist.")],
) -> None:
    """Write the prompts whose answers left their oracle as a suite, for --suite FILE --verbatim."""
    from harness.evidence.store import dump_json, write_atomic
    from harness.evidence.ties import tie_suite
    from harness.unwritable import OUTPUT

    directory = directory if directory.name else directory.resolve()  # "." has no name to say
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a ladder")
    if out.exists():
        raise UsageError(f"{out.name} exists already; choose another --out, or remove it first")
    suite = tie_suite(directory)
    write_atomic(out, dump_json(suite), advice=OUTPUT)
    typer.echo(f"{out}: {len(suite['prompts'])} prompts that left their oracle in {directory.name}")


def schema(
    what: Annotated[
        str, typer.Argument(help="evidence, ladder, depth, server, launcher, image or model.")
    ] = "evidence",
) -> None:
    """Print the JSON Schema of a file format."""
    from harness.evidence.context_schema import ContextEvidence
    from harness.evidence.ladder_schema import LadderEvidence
    from harness.evidence.schema import Evidence, ServerRecord
    from harness.lanes import Image, Lane
    from harness.models import Manifest

    models: dict[str, Any] = {
        "evidence": Evidence,
        "ladder": LadderEvidence,
        "depth": ContextEvidence,
        "server": ServerRecord,
        "launcher": Lane,
        "image": Image,
        "model": Manifest,
    }
    if what not in models:
        raise UsageError(f"there is no schema {what!r}; use one of {', '.join(models)}")
    out_json(models[what].model_json_schema(by_alias=True))
