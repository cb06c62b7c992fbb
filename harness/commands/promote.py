"""``bench promote``: a family file from verified evidence, or whether it is what the evidence gives."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import JsonOption, out_json
from harness.errors import ExitCode, UsageError
from harness.strangers import real

if TYPE_CHECKING:
    from harness.publish.family import Promotion


def promote(
    directories: Annotated[
        list[Path] | None, typer.Argument(metavar="DIR...", help="Campaigns and imported results; all are shown.")
    ] = None,
    family: Annotated[
        Path | None, typer.Option(help="The family file (JSON) to bring to what the evidence gives.")
    ] = None,
    new: Annotated[
        Path | None, typer.Option(help="Write a first family file from the template; it must not exist.")
    ] = None,
    rejected: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="A campaign whose G1, G2 or G3 failed: its cell shows the counts; repeatable."
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when the file isn't that.")] = False,
    json_: JsonOption = False,
) -> None:
    """Regenerate a family file from verified evidence; nothing else may stand in public as measured."""
    from harness.evidence.store import write_atomic
    from harness.publish.family import load, open_all
    from harness.publish.family import promote as derive

    plain, fallen = directories or [], rejected or []
    if (family is None) == (new is None):
        raise UsageError(
            "give either --family FILE, to bring a family file up to date, or --new FILE, to write a first one"
        )
    if new is not None and check:
        raise UsageError(
            "--check compares a file that is there; leave --check out with --new, then run it with --family"
        )
    if not plain and not fallen:
        raise UsageError("there is no evidence to promote; give the directories of campaigns or imported results")
    path = family if family is not None else new
    assert path is not None
    if new is not None:
        if new.exists():
            raise UsageError(f"{new.name} exists already; give it with --family, or choose another --new")
        if not new.absolute().parent.is_dir():
            raise UsageError(f"the folder of {new.name} isn't there; make it first, or choose another --new")
        from harness.publish.family_new import first

        result = first(new.name, open_all(plain, new), open_all(fallen, new))
    else:
        data = load(path)
        result = derive(data, path.name, open_all(plain, path), open_all(fallen, path))
    write = new is not None or (bool(result.changes) and not check)
    if write:
        write_atomic(real(path), result.data, keep_mode=True, advice="free space, or make its folder writable")
    again = shlex.join(
        ["bench", "promote", "--family", str(path), *map(str, plain)]
        + [word for item in fallen for word in ("--rejected", str(item))]
    )
    if json_:
        out_json(_machine(path, result, check=check, created=new is not None))
    else:
        _person(path, result, check=check, created=new is not None, again=again)
    raise typer.Exit(ExitCode.GATE_FAILED if check and result.changes else ExitCode.OK)


def _machine(path: Path, result: "Promotion", *, check: bool, created: bool) -> dict[str, Any]:
    from harness.publish.family_draft import ABSENT

    def plain(value: Any) -> Any:
        return None if value is ABSENT else value

    return {
        "file": path.name,
        "created": created,
        "written": not check and (created or bool(result.changes)),
        "ok": not (check and result.changes),
        "changes": [] if created else [
            {"field": c.field, "file": plain(c.file), "evidence": plain(c.evidence), "why": c.why}
            for c in result.changes
        ],
        "grades": [
            {"packet": g.packet, "file": g.in_file, "rule": g.by_rule, "reasons": list(g.reasons), "basis": g.basis}
            for g in result.grades
        ],
        "claims": result.claims,
        "no_evidence": [{"field": name, "why": why} for name, why in result.no_evidence],
        "kept": result.kept,
        "notes": result.notes,
        "rounding": result.rounding,
    }  # fmt: skip


def _person(path: Path, result: "Promotion", *, check: bool, created: bool, again: str) -> None:
    plural = "" if result.entries == 1 else "s"
    if created:
        _echo(f"{path.name}: written from the template, with {result.entries} measured configuration{plural}")
    elif not result.changes:
        _echo(
            f"{path.name} is what the evidence gives: {result.entries} configuration{plural} re-derived, no difference"
        )
    else:
        count = len(result.changes)
        what = "isn't what the evidence gives" if check else "is now what the evidence gives"
        _echo(f"{path.name} {what}: {count} field{'' if count == 1 else 's'} {'differ' if check else 'changed'}")
        for change in result.changes:
            _echo(f"  {change.line()}")
    _listed("grades", [f"{g.packet}: {g.by_rule} by rule ({g.basis}): {'; '.join(g.reasons)}" for g in result.grades])
    _listed("imported", result.claims)
    _listed("note", result.notes)
    _listed("no evidence given, kept as it stands", [f"{name}: {why}" for name, why in result.no_evidence])
    _listed("kept as it stands, because nothing derives it", _together(result.kept) or ["nothing"])
    _echo(result.rounding)
    if check and result.changes:
        _echo(f"to bring it up to date: {again}")
    elif not check:
        _echo(f"to check it in a CI: {again} --check")


def _together(fields: list[str]) -> list[str]:
    """Fields by the place they stand in, the ids of list items left out: the whole names are in --json."""
    places: dict[str, dict[str, None]] = {}
    for field in fields:
        place, _, last = re.sub(r"\[[^]]*\]", "[]", field).rpartition(".")
        places.setdefault(place, {})[last] = None
    return [f"{place}: {', '.join(names)}" if place else ", ".join(names) for place, names in places.items()]


def _echo(line: str) -> None:
    """A line in which a stranger's file can't steer the terminal."""
    typer.echo("".join(char if char.isprintable() else ascii(char)[1:-1] for char in line))


def _listed(title: str, lines: list[str]) -> None:
    if lines:
        _echo(f"{title}:")
        for line in lines:
            _echo(f"  {line}")
