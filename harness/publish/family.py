"""A family file and the evidence it stands on → the file that the evidence gives, and what differs.

``neural-download-model-family-v1`` is the format of the lab's site. Derived are the entries of ``run_measurements``,
the members of ``views``, the cells of ``coverage_views``, the ``dimensions`` that measurements have, and of each packet
its ``coverage`` and grade; ``updated_at`` follows when one of them changes. The rest is kept byte for byte and named.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.publish.campaigns import open_any
from harness.publish.family_cells import coverage, dimensions, views
from harness.publish.family_claims import claims
from harness.publish.family_draft import Change, Draft, checked
from harness.publish.family_entries import measurements, rounding_of
from harness.publish.family_measured import Given, gather
from harness.publish.family_packets import GradeReport, packets
from harness.publish.family_text import MAX_BYTES, edited, read
from harness.strangers import read_given


@dataclass(frozen=True)
class Promotion:
    """What the evidence makes of a family file."""

    data: bytes
    """the file as it should be"""
    changes: list[Change]
    """empty when the file is what the evidence gives"""
    kept: list[str]
    """fields that nothing derives, as they stand"""
    no_evidence: list[tuple[str, str]]
    """(field, why): what could be derived, and nothing given shows"""
    claims: list[str]
    grades: list[GradeReport]
    notes: list[str]
    rounding: str
    entries: int
    """configurations that evidence was given for"""


def load(path: Path) -> bytes:
    """The bytes of a family file, known to be one. Raises UsageError."""
    if not path.exists():
        raise UsageError(f"{path.name} is not a file; give a family file, or write one with --new")
    data = read_given(path, MAX_BYTES, "family file", "give a family file, or write one with --new")
    checked(read(data, path.name)[1].value, path.name)
    return data


def open_all(directories: Sequence[Path], family: Path) -> list[Given]:
    """Open and re-derive every directory, with its path as the family file names it.

    That is relative to the repository of the family file (the nearest folder above it with a ``.git``), or to the
    file's own folder where there is none. A directory elsewhere is named by its last part alone: a path through a home
    directory has no place in a public file.
    """
    root = root_of(family)
    found = []
    for directory in directories:
        opened = open_any(directory)
        found.append(Given(opened, _below(directory, root)))
    return found


def _below(directory: Path, root: Path) -> str:
    for path in (Path(os.path.abspath(directory)), directory.resolve()):  # noqa: PTH100 - a link keeps its own name
        for above in (root, root.resolve()):
            if path.is_relative_to(above):
                return path.relative_to(above).as_posix()
    return directory.resolve().name


def root_of(family: Path) -> Path:
    """The folder that evidence paths are relative to."""
    folder = Path(os.path.abspath(family)).parent  # noqa: PTH100 - as the directories are named
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def promote(data: bytes, name: str, plain: Sequence[Given], rejected: Sequence[Given] = ()) -> Promotion:
    """What the evidence makes of a family file. Pure but for what was opened before.

    Raises UsageError for a file that is none and for campaigns of another family, EvidenceError for evidence that may
    not be published.
    """
    text, root = read(data, name)
    draft = Draft(checked(root.value, name))
    material = gather(draft.file, plain, rejected)
    rounding = rounding_of(text, root)
    behind = measurements(draft, material, rounding)
    dimensions(draft, material)
    views(draft)
    coverage(draft, material)
    reports = packets(draft, material, behind)
    compared = claims(draft, material, rounding)
    _updated(draft, material.newest())
    changes = draft.changes()
    return Promotion(
        data=edited(text, root, draft.doc).encode() if changes else data,
        changes=changes,
        kept=draft.kept(),
        no_evidence=[(draft.name(path), why) for path, why in draft.no_evidence.items()],
        claims=[*compared, *draft.claimed],
        grades=reports,
        notes=draft.notes,
        rounding=rounding.sentence(),
        entries=len(behind),
    )


def _updated(draft: Draft, newest: str | None) -> None:
    """``updated_at`` follows a change, to the day of the newest evidence; never back, and never on its own.

    A later day is kept, because evidence that isn't given here may be of it, and named, because nothing shows it.
    """
    before: Any = draft.file["updated_at"]
    if newest is None:
        draft.no_evidence["updated_at",] = "no campaign was given, so nothing shows this day"
    elif before > newest:
        draft.no_evidence["updated_at",] = f"the newest evidence that was given is of {newest}"
    elif draft.changes():
        draft.put(("updated_at",), newest, "the day of the newest evidence")
