"""Captures made by hand: good records, and files of any records."""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from harness.errors import EvidenceError
from harness.wire.capture import FORMAT, Capture, load_capture
from harness.wire.exchange import Ending, Exchange


def plain(path: Path) -> bytes:
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        return bytes(reader.read())


def pack(*records: Any) -> bytes:
    lines = b"".join(
        (record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n" for record in records
    )
    return zstandard.compress(lines)


HEADER = {"kind": "header", "format": FORMAT}


BEGIN = {"kind": "begin", "n": 0, "for": "suite", "name": "a", "stage": "", "request_id": "r", "t0_wall_ns": 1}


READS = {"kind": "reads", "n": 0, "after_ns": [5, 5], "lag_ns": [1, 1], "size": [1, 2], "kernel": True, "text": "abc"}


END = {"kind": "end", "n": 0, "ending": "closed", "detail": "", "connected_ns": 1, "sent_ns": 2, "end_ns": 12}


CONTROL = {
    "kind": "control",
    "name": "health",
    "path": "/health",
    "at_wall_ns": 1,
    "status": 200,
    "body": "",
    "error": "",
}


RECORDS = {"begin": BEGIN, "reads": READS, "end": END, "control": CONTROL}


def load(data: bytes, tmp_path: Path) -> Capture:
    path = tmp_path / "made-up.jsonl.zst"
    path.write_bytes(data)
    return load_capture(path)


def refused(data: bytes, tmp_path: Path) -> str:
    """The sentence with which ``data`` is refused."""
    with pytest.raises(EvidenceError) as caught:
        load(data, tmp_path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith("made-up.jsonl.zst ")
    return sentence


def growing(whole: Exchange, reads: int) -> Exchange:
    """The same exchange when only so many reads have come."""
    size = sum(whole.sizes[:reads])
    return Exchange(
        whole.request,
        whole.t0_wall_ns,
        whole.t0_mono_ns,
        Ending.INTERRUPTED,
        data=whole.data[:size],
        sizes=whole.sizes[:reads],
        at_ns=whole.at_ns[:reads],
        user_ns=whole.user_ns[:reads],
        kernel=whole.kernel[:reads],
        framing=whole.framing,
    )
