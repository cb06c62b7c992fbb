"""Whether the last write of a campaign failed: its evidence is whole, and as old as an earlier moment of its journal.

A full disk or a kill between the journal's last line and evidence.json, or between that and manifest.json, leaves it
so. Whatever else differs was changed by somebody and isn't written over.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.errors import EvidenceError
from harness.evidence import journal, store
from harness.evidence.derive import derive
from harness.evidence.prompts import PROMPTS

MOMENTS = 3
"""Of the journal, at which evidence is written, before its last line: one write may fail after another"""
WRITTEN_AFTER = ("attempt-ended", "campaign-resumed", "campaign-ended")
"""Events after which evidence is written, at a resume for the servers that are complete"""
MAX_MANIFEST = 16 * 1024 * 1024
"""Bytes; a larger one is none of ours"""


def last_write_failed(directory: Path) -> bool:
    """True where writing evidence and manifest anew completes what was begun. Raises EvidenceError."""
    events = journal.load(directory)
    written = [_evidence(directory, events)]
    if _size(directory / store.EVIDENCE) > 4 * len(written[0]):
        return False  # none of ours, and as large as somebody wanted it
    stored = _bytes(directory / store.EVIDENCE)
    present = store.build_manifest(directory)
    if stored == written[0] and _bytes(directory / store.MANIFEST) == store.dump_json(present):
        return False
    written += [_evidence(directory, events[:moment]) for moment in _moments(events)]
    first = sum(event.event == "attempt-ended" for event in events) <= 1
    if stored is None:
        # Without evidence.json there is nothing to judge the manifest by, and no write before this one is sure.
        return first and not (directory / store.MANIFEST).exists()
    return stored in written and _manifest_fits(directory, present["files"], events, written, first=first)


def _evidence(directory: Path, events: Sequence[journal.Event]) -> bytes:
    return store.dump_json(derive(directory, events).model_dump(mode="json", by_alias=True))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _moments(events: Sequence[journal.Event]) -> Iterator[int]:
    """Counts of events after which evidence was written, the last one first."""
    found = [count for count in range(len(events) - 1, 0, -1) if events[count - 1].event in WRITTEN_AFTER]
    yield from found[:MOMENTS]


def _manifest_fits(
    directory: Path, present: dict[str, Any], events: Sequence[journal.Event], written: Sequence[bytes], *, first: bool
) -> bool:
    """Whether manifest.json is of now or of such a moment, and every file it names but those two is as it was."""
    path = directory / store.MANIFEST
    if not path.exists():
        return first
    raw = store.read_json(path, MAX_MANIFEST)
    recorded = raw.get("files") if isinstance(raw, dict) else None
    if path.read_bytes() != store.dump_json(raw):
        return False  # whoever wrote it so was not this harness
    if not isinstance(recorded, dict):
        raise EvidenceError(f"{store.MANIFEST} is no manifest of this version; get the original file")
    for name, entry in recorded.items():
        if name == store.EVIDENCE:
            fits = any(entry == _entry(data) for data in written)
        elif name == journal.NAME:
            whole = (directory / name).read_bytes()
            end = entry.get("bytes") if isinstance(entry, dict) else None
            fits = type(end) is int and whole[:end].endswith(b"\n") and entry == _entry(whole[:end])
        else:
            fits = present.get(name) == entry
        if not fits:
            return False
    # What the moments since then added: the attempts of them, and the prompts that the first one kept.
    earliest = min(_moments(events), default=0)
    later = {event.directory for event in events[earliest - 1 :] if event.event.startswith("attempt-")}
    added = (name for name in present if name not in recorded and name not in (store.EVIDENCE, PROMPTS))
    return all(name.startswith(f"{store.ATTEMPTS}/") and name.split("/")[1] in later for name in added)


def _entry(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
