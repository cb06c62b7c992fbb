"""Edits of recorded campaigns, and a manifest made anew over them."""

import json
from pathlib import Path
from typing import Any

import zstandard

from harness.evidence import journal, store
from harness.evidence.crosscheck import cross_checks
from harness.evidence.derive import derive
from harness.evidence.loading import load_attempts, load_start
from harness.evidence.verify import verify


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a capture."""
    with path.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read()
    return [json.loads(line) for line in data.splitlines()]


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """What an editor of a capture does: the same records, one of them changed."""
    text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    path.write_bytes(zstandard.ZstdCompressor(level=1, write_checksum=True).compress(text.encode()))


def repaired(campaign: Path) -> list[str]:
    """What ``verify`` says after the editor has derived evidence.json anew and written the manifest anew."""
    (campaign / "evidence.json").write_bytes(store.dump_json(derive(campaign).model_dump(mode="json", by_alias=True)))
    store.write_manifest(campaign)
    return verify(campaign).problems


def problems_of(campaign: Path) -> list[str]:
    """The cross-checks alone, of files that nothing else would refuse."""
    events = journal.load(campaign)
    return cross_checks(load_start(events), events, load_attempts(campaign, events))


def shifted(record: dict[str, Any], seconds: float) -> None:
    for name in ("t0_wall_ns", "t0_mono_ns", "end_wall_ns", "end_mono_ns", "at_wall_ns"):
        if name in record:
            record[name] += int(seconds * 1e9)
