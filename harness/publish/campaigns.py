"""Opening what is to be published: only evidence that verifies, and what kind of thing it is."""

from dataclasses import dataclass
from pathlib import Path

from harness.errors import EvidenceError, UsageError
from harness.evidence import store
from harness.evidence.files import read_regular
from harness.evidence.imported import IMPORTED_SCHEMA, ImportedEvidence
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.verify import headline, verify


@dataclass(frozen=True)
class Campaign:
    """A campaign directory whose evidence was just re-derived from its captured bytes."""

    directory: Path
    evidence: AnyEvidence


@dataclass(frozen=True)
class Imported:
    """A directory of imported results, just re-derived from the files it keeps."""

    directory: Path
    evidence: ImportedEvidence


def is_imported(directory: Path) -> bool:
    """Whether evidence.json says that it was imported; false where there is none."""
    path = directory / store.EVIDENCE
    if path.is_symlink() or not path.is_file():
        return False
    # Parsed only where the word is in it: evidence of a campaign is checked against what is derived, without a parser.
    try:
        if IMPORTED_SCHEMA.encode() not in read_regular(path, store.MAX_JSON):
            return False
    except OSError as error:
        raise EvidenceError(f"{path.name} can't be read ({error.strerror}); check the directory") from None
    raw = store.read_json(path)
    return isinstance(raw, dict) and raw.get("schema") == IMPORTED_SCHEMA


def open_campaign(directory: Path) -> Campaign:
    """A campaign of ours that verifies. Raises UsageError for what is none, EvidenceError for what doesn't verify."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    if is_imported(directory):
        raise UsageError(f"{directory.name} was imported, and holds no captured bytes; give a campaign of bench's own")
    result = verify(directory)
    if not result.ok or result.evidence is None:
        raise EvidenceError(f"{directory.name} {headline(result)}")
    return Campaign(directory, result.evidence)


def open_any(directory: Path) -> Campaign | Imported:
    """A campaign or imported results, re-derived now. Raises as ``open_campaign``."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    if is_imported(directory):
        from harness.publish.lab import rederive_import

        return Imported(directory, rederive_import(directory))
    return open_campaign(directory)
