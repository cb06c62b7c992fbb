"""Captures exactly at a limit and just beyond it, and lines that a block ends in the middle of."""

import random
from pathlib import Path

import pytest
import zstandard

from harness.errors import EvidenceError
from harness.wire import capture as capture_module
from harness.wire import capture_writer
from harness.wire.capture import Control, Tag, load_capture
from tests.wire.captures import BEGIN, CONTROL, END, HEADER, READS, load, pack, plain, refused


def test_these_are_the_limits() -> None:
    """Bounds for files from strangers; a campaign is far below them."""
    found = capture_module
    assert (found.MAX_LINE, found.MAX_TOTAL, found.MAX_WINDOW) == (67_108_864, 1_073_741_824, 8_388_608)
    assert (found.MAX_EXCHANGES, found.MAX_READS) == (250_000, 4_000_000)
    assert (capture_writer.RECORD_SIZE, capture_writer.RECORD_READS) == (1_048_576, 32_768)


def test_what_is_not_said_is_empty() -> None:
    assert (Tag("suite", "p").stage, Tag("suite", "p").request_id) == ("", "")
    assert Control("health", "/health", 1, None, "").error == ""


RECORDS = [HEADER, BEGIN, READS, END, CONTROL, {**BEGIN, "n": 1}]


@pytest.mark.parametrize(("name", "most"), [("MAX_EXCHANGES", 3), ("MAX_READS", 2)])
def test_as_many_as_may_be_are_loaded(name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, name, most)
    assert len(load(pack(*RECORDS), tmp_path).exchanges) == 2
    monkeypatch.setattr(capture_module, name, most - 1)
    assert "it's no capture of ours" in refused(pack(*RECORDS), tmp_path)


def test_as_many_bytes_as_may_be_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(*RECORDS)
    load(data, tmp_path)
    size = len(plain(tmp_path / "made-up.jsonl.zst"))
    monkeypatch.setattr(capture_module, "MAX_TOTAL", size)
    load(data, tmp_path)
    monkeypatch.setattr(capture_module, "MAX_TOTAL", size - 1)
    assert "decompresses to more than" in refused(data, tmp_path)


def test_a_line_that_was_cut_may_be_as_long_as_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plain_of(pack(HEADER))
    data = zstandard.compress(whole + b'{"kind": "control"')
    monkeypatch.setattr(capture_module, "MAX_LINE", 18)
    assert load(data, tmp_path).truncated
    monkeypatch.setattr(capture_module, "MAX_LINE", 17)
    assert "has a line over" in refused(data, tmp_path)


def plain_of(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def test_a_line_end_may_come_first_in_what_is_read_next(tmp_path: Path) -> None:
    """Files are read in blocks of 1024 bytes: here one ends before the line end that the next one begins with."""
    for seed in range(2000):
        rng = random.Random(seed)
        compressor = zstandard.ZstdCompressor(level=6, write_content_size=False).compressobj()
        pad = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1220 + seed % 300))
        line = b'{"kind":"header","format":"b70-bench.capture/1","pad":"' + pad.encode() + b'"}'
        first = compressor.compress(line) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        if len(first) == 1024:
            rest = compressor.compress(b"\n" + plain_of(pack(CONTROL))) + compressor.flush()
            break
    else:
        pytest.fail("no header takes exactly 1024 bytes")
    capture = load(first + rest, tmp_path)
    assert (capture.header["pad"], len(capture.controls), capture.truncated) == (pad, 1, False)


def test_the_line_that_is_wrong_is_told_by_its_number(tmp_path: Path) -> None:
    assert "made-up.jsonl.zst line 3 is not a capture record" in refused(pack(HEADER, CONTROL, {}), tmp_path)


def test_reads_of_nothing_load_and_flags_are_flags(tmp_path: Path) -> None:
    found = load(pack(HEADER, BEGIN, {**READS, "size": [0, 3]}, END), tmp_path).exchanges[0][1]
    assert (found.sizes, len(found.data)) == ([0, 3], 3)
    empty = {**READS, "size": [], "after_ns": [], "lag_ns": [], "text": ""}
    assert load(pack(HEADER, BEGIN, empty, END), tmp_path).exchanges[0][1].sizes == []
    assert "kernel is not a list" in refused(pack(HEADER, BEGIN, {**READS, "kernel": [True, 1]}), tmp_path)


def test_a_framing_that_is_said_needlessly_is_fine(tmp_path: Path) -> None:
    for framing in ("http", "body"):
        assert load(pack(HEADER, {**BEGIN, "framing": framing}), tmp_path).exchanges[0][1].framing == framing


def test_nothing_at_all_is_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "empty.zst"
    for data in (b"", zstandard.compress(b"")[:-1], zstandard.compress(b'{"kind')):
        path.write_bytes(data)
        with pytest.raises(EvidenceError, match=r"empty\.zst is empty"):
            load_capture(path)
