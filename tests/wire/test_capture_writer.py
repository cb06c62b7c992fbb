"""What the writer puts on the disk, when, and what it says of a disk that takes no more."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from harness.errors import RecordError
from harness.wire import capture_writer as capture_module
from harness.wire.capture import Control, Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from tests.wire.build import GOOD, chunked, exchange

REQUEST = "POST /v1/completions HTTP/1.1\r\n\r\n"
WALL, MONO = 1_700_000_000_000_000_000, 5_000_000_000
BEGIN = {"kind": "begin", "n": 0, "for": "canary", "name": "p", "stage": "before", "request_id": "r"}
BEGIN |= {"t0_wall_ns": WALL, "t0_mono_ns": MONO}
END: dict[str, Any] = {"kind": "end", "n": 0, "ending": "closed", "detail": "", "connected_ns": 3, "sent_ns": 4}
END |= {"end_ns": 21_000_000, "end_wall_ns": WALL + 21_000_000, "end_mono_ns": MONO + 21_000_000}
END |= {"cpu_ns": 0, "scheduling": "unknown"}
READS: dict[str, Any] = {"kind": "reads", "n": 0, "after_ns": [10_000_000, 10_000_000], "lag_ns": [20_000, 20_000]}
READS |= {"size": [2, 1], "kernel": True}


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a capture whose frame need not have ended."""
    lines = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).decode().split("\n")
    assert lines.pop() == ""
    return [json.loads(line) for line in lines]


def written(path: Path, **changes: Any) -> list[dict[str, Any]]:
    """The records of one exchange of two reads."""
    item = replace(exchange([b"ab", b"c"]), connected_ns=3, sent_ns=4, **changes)
    writer = CaptureWriter(path, {"label": "x"})
    writer.whole(Tag("canary", "p", "before", "r"), item)
    writer.close()
    assert [found for _, found in load_capture(path).exchanges] == [item]
    return records(path)


def test_these_are_its_lines(tmp_path: Path) -> None:
    """Files with these lines exist: what reads them must go on reading them."""
    assert written(tmp_path / "c") == [
        {"kind": "header", "format": "b70-bench.capture/1", "label": "x"},
        {**BEGIN, "request": {"text": REQUEST}},
        {**READS, "text": "abc"},
        END,
    ]


def test_a_body_without_framing_has_its_status_and_headers(tmp_path: Path) -> None:
    found = written(tmp_path / "c", framing="body", status=200, headers=[("a", "b")])
    assert found[1] == {**BEGIN, "framing": "body", "request": {"text": REQUEST}}
    assert found[3] == {**END, "status": 200, "headers": [["a", "b"]]}


def test_a_released_request_has_its_release_and_worker(tmp_path: Path) -> None:
    assert written(tmp_path / "c", released_ns=7, worker=2)[3] == {**END, "released_ns": 7, "worker": 2}


def test_flags_of_reads_are_one_where_they_are_alike(tmp_path: Path) -> None:
    assert written(tmp_path / "c", kernel=[True, False])[2] == {**READS, "kernel": [True, False], "text": "abc"}
    assert written(tmp_path / "d", kernel=[False, False])[2] == {**READS, "kernel": False, "text": "abc"}
    assert written(tmp_path / "e", data=b"ab\xff")[2] == {**READS, "base64": "YWL/"}


def test_exchanges_are_numbered_from_zero(tmp_path: Path) -> None:
    path = tmp_path / "c"
    writer = CaptureWriter(path, {})
    for _ in range(3):
        writer.whole(Tag("suite", "p"), exchange([]))
    writer.close()
    assert [record["n"] for record in records(path) if record["kind"] == "end"] == [0, 1, 2]


@pytest.mark.parametrize(("limit", "lines"), [(3, [3, 3, 1]), (4, [4, 3]), (7, [7]), (8, [7])])
def test_a_line_has_so_many_reads(
    limit: int, lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "RECORD_READS", limit)
    path = tmp_path / "c"
    writer = CaptureWriter(path, {})
    item = exchange([b"x"] * 7)
    writer.whole(Tag("suite", "p"), item)
    writer.close()
    assert [len(record["size"]) for record in records(path) if record["kind"] == "reads"] == lines
    assert load_capture(path).exchanges[0][1] == item


@pytest.mark.parametrize(
    ("limit", "lines"), [(1, [[5], [2], [2], [4]]), (4, [[5], [2, 2], [4]]), (7, [[5, 2], [2, 4]])]
)
def test_a_line_has_so_many_bytes_or_one_read(
    limit: int, lines: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "RECORD_SIZE", limit)
    path = tmp_path / "c"
    writer = CaptureWriter(path, {})
    item = exchange([b"aaaaa", b"bb", b"cc", b"dddd"])
    writer.whole(Tag("suite", "p"), item)
    writer.close()
    assert [record["size"] for record in records(path) if record["kind"] == "reads"] == lines
    assert load_capture(path).exchanges[0][1] == item


def test_header_control_reads_and_end_are_on_the_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c"
    writer = CaptureWriter(path, {"label": "x"})
    assert load_capture(path).header["label"] == "x"
    writer.control(Control("health", "/health", 1, 200, ""))
    assert len(load_capture(path).controls) == 1
    writer.control(Control("models", "/v1/models", 1, 200, ""), sync=False)
    assert len(load_capture(path).controls) == 1, "this one waits for what comes next"
    item = exchange([b"ab", b"c"])
    writer.tags = [Tag("suite", "p")]
    writer.begin(item, 0)
    writer.drain(item, 0)
    assert load_capture(path).exchanges[0][1].data == b"abc"
    writer.drain(item, 0)
    writer.end(item, 0)
    assert load_capture(path).exchanges[0][1] == item and load_capture(path).truncated
    writer.end(item, 0)
    writer.drain(item, 0)
    writer.close()
    assert len(load_capture(path).exchanges) == 1 and not load_capture(path).truncated


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Files take no more than so many bytes: EFBIG, as a quota says it, and no need to fill a disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def long(number: int) -> Any:
    """An exchange of bytes that hardly compress."""
    text = "".join(chr(0x4E00 + (number * 7919 + place * place * 31) % 20_000) for place in range(20_000))
    return exchange([text.encode()])


@pytest.mark.parametrize("way", ["control", "whole", "begin", "drain", "end", "sync"])
def test_a_disk_that_takes_no_more_is_told_once_and_what_came_before_loads(way: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "x"})
    writer.whole(Tag("suite", "p0"), exchange(chunked(GOOD)))
    writer.sync()
    kept = path.stat().st_size
    writer.tags = [Tag("suite", "p1")]
    item = long(1)
    if way in ("drain", "end"):
        writer.begin(item, 0)

    def many(write: Callable[[int], None]) -> None:
        """What the compressor holds back is told with the first write that brings it to the disk."""
        for number in range(40):
            write(number)
            assert writer._failed is None

    does = {
        "control": lambda: writer.control(Control("models", "/v1/models", 1, 200, item.data.decode())),
        "whole": lambda: many(lambda number: writer.whole(Tag("suite", "p"), long(number))),
        "begin": lambda: many(lambda number: writer.begin(replace(item, request=long(number).data), 0)),
        "drain": lambda: writer.drain(item, 0),
        "end": lambda: writer.end(item, 0),
        "sync": lambda: (writer.whole(Tag("suite", "p"), item), writer.sync()),
    }[way]
    with disk_of(kept + 100), pytest.raises(RecordError, match=r"^capture\.jsonl\.zst can't be written \(File too"):
        does()
    size = path.stat().st_size
    other = Control("health", "/health", 1, 200, "")
    for again in (lambda: writer.control(other, sync=False), lambda: writer.control(other), writer.sync):
        with pytest.raises(RecordError, match=r"capture\.jsonl\.zst can't be written"):
            again()
    writer.close()
    writer.close()
    assert path.stat().st_size == size, "nothing is written after a gap"
    found = load_capture(path)
    assert found.truncated and found.exchanges[0] == (Tag("suite", "p0"), exchange(chunked(GOOD)))


def test_a_disk_that_is_full_at_the_close_is_told_and_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "x"})
    writer.whole(Tag("suite", "p"), long(1))
    with disk_of(path.stat().st_size), pytest.raises(RecordError, match="can't be written"):
        writer.close()
    writer.close()
    assert writer._file.closed
    assert load_capture(path).header["label"] == "x"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"^capture\.jsonl\.zst can't be written \(No such file"):
        CaptureWriter(tmp_path / "none" / "capture.jsonl.zst", {})
