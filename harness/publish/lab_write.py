"""``bench export``: which documents a campaign may be written as, and writing them whole or not at all."""

import hashlib
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.evidence import store
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Evidence
from harness.publish.campaigns import open_campaign
from harness.publish.configuration import why_unpublishable
from harness.publish.lab_export import comparison_documents, result_document
from harness.publish.lab_package import attestation_document, package_document
from harness.publish.lab_read import get, mapping, text
from harness.publish.localmaxxing import REQUIRED, payload_document
from harness.unwritable import OUTPUT, unwritable

FORMATS = ("result", "comparison", "attestation", "package", "localmaxxing")
PUBLIC = ("attestation", "package", "localmaxxing")
"""what stands in public as a number: refused for what may not be published"""
NAMES = {name: f"{name}.json" for name in FORMATS if name != "comparison"}


@dataclass
class Outcome:
    """What was written, and what was refused with its reasons."""

    written: list[Path] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def export_campaign(directory: Path, wanted: str, out: Path) -> Outcome:
    """One format, or ``all`` into a new directory. Raises UsageError, EvidenceError for what doesn't verify."""
    if out.exists():
        raise UsageError(f"{out.name} exists already; choose another --out, or remove it first")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{out.parent} is not a directory; create it first, or choose another --out")
    evidence = open_campaign(directory).evidence
    strict = isinstance(evidence, Evidence)
    if wanted not in ("package", "all") and not strict:
        raise UsageError(f"{directory.name} is a {evidence.kind} campaign, which has no {wanted}; use --format package")
    formats = [wanted] if wanted != "all" else list(FORMATS if strict else ("package",))
    reasons, outcome = why_unpublishable(evidence), Outcome()
    outcome.refused = {name: reasons for name in formats if name in PUBLIC and reasons}
    documents = documents_of(evidence, [name for name in formats if name not in outcome.refused], _digests(directory))
    if (name := NAMES["localmaxxing"]) in documents:
        outcome.notes = _missing(documents[name])
    if documents and wanted in ("comparison", "all"):
        _write_directory(out, documents)
        outcome.written = [out / name for name in documents]
    elif documents:
        store.write_atomic(out, next(iter(documents.values())), advice=OUTPUT)
        outcome.written = [out]
    elif not outcome.refused:
        outcome.refused[wanted] = ["the campaign holds no gate between two servers"]
    return outcome


def _missing(document: bytes) -> list[str]:
    unknown = [name for name in json.loads(document)[0]["unknown"] if name in REQUIRED]
    if not unknown:
        return []
    return [f"localmaxxing: {', '.join(unknown)} unknown to this campaign, and the service requires it: add it by hand"]


def documents_of(evidence: AnyEvidence, formats: list[str], digests: dict[str, str]) -> dict[str, bytes]:
    """File contents by name. Pure, but for hashing."""
    made: dict[str, Any] = {}
    if isinstance(evidence, Evidence):
        if "result" in formats:
            made[NAMES["result"]] = result_document(evidence, digests)
        if "comparison" in formats:
            made |= comparison_documents(evidence, digests)
        if "attestation" in formats:
            made[NAMES["attestation"]] = attestation_document(evidence, digests)
        if "localmaxxing" in formats:
            attestation = store.dump_json(attestation_document(evidence, digests))
            made[NAMES["localmaxxing"]] = payload_document(evidence, hashlib.sha256(attestation).hexdigest())
    if "package" in formats:
        made[NAMES["package"]] = package_document(evidence, digests)
    return {name: store.dump_json(document) for name, document in made.items()}


def _digests(directory: Path) -> dict[str, str]:
    """sha256 by file name, from the manifest that was just verified."""
    files = mapping(get(store.read_json(directory / store.MANIFEST), "files"))
    return {name: text(get(entry, "sha256")) for name, entry in files.items()}


def _write_directory(out: Path, documents: dict[str, bytes]) -> None:
    parent = out.absolute().parent
    try:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=parent) as folder:
            whole = Path(folder) / "export"
            whole.mkdir()
            for name, data in documents.items():
                store.write_atomic(whole / name, data, advice=OUTPUT)
            whole.rename(out)
    except OSError as error:
        raise unwritable(out, error, advice=OUTPUT) from None
