"""Captures that were cut, damaged or made up: what was handed over is kept, everything else is refused."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.errors import EvidenceError
from harness.wire.capture import FORMAT, Capture, Control, Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Ending
from tests.wire.build import GOOD, chunked, exchange
from tests.wire.captures import BEGIN, CONTROL, END, HEADER, READS, RECORDS, growing, load, pack, refused

BEGIN |= {"t0_mono_ns": 1, "request": {"text": "POST"}}
END |= {"end_wall_ns": 13, "end_mono_ns": 13, "cpu_ns": 1, "scheduling": "normal"}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[tuple[int, int, int]], Capture]:
    """A capture, its (size, exchanges begun, reads in the file) after every hand-over, and what it holds."""
    path = tmp_path_factory.mktemp("sample") / "capture.jsonl.zst"
    items = [(Tag("suite", str(n)), exchange(chunked(GOOD))) for n in range(3)]
    marks = []
    writer = CaptureWriter(path, {"label": "a"})
    writer.control(Control("health", "/health", 1, 200, "fine"))
    for n, (tag, item) in enumerate(items):
        writer.tags = [tag]
        writer.begin(item, 0)
        for reads in (2, 5):
            writer.drain(growing(item, reads), 0)
            marks.append((path.stat().st_size, n + 1, n * len(item.sizes) + reads))
        writer.end(item, 0)
        marks.append((path.stat().st_size, n + 1, (n + 1) * len(item.sizes)))
    writer.close()
    return path.read_bytes(), marks, load_capture(path)


def test_a_file_cut_at_any_byte_keeps_what_was_handed_over(
    sample: tuple[bytes, list[tuple[int, int, int]], Capture], tmp_path: Path
) -> None:
    data, marks, whole = sample
    path = tmp_path / "capture.jsonl.zst"
    loadable = 0
    for size in range(len(data)):
        path.write_bytes(data[:size])
        try:
            capture = load_capture(path)
        except EvidenceError as error:
            assert size < marks[0][0], "all that was handed over must load"
            assert "\n" not in str(error)
            continue
        loadable += 1
        assert capture.truncated
        begun, reads = max(((begun, reads) for at, begun, reads in marks if at <= size), default=(0, 0))
        assert len(capture.exchanges) >= begun
        assert sum(len(item.sizes) for _, item in capture.exchanges) >= reads
        for (tag, item), (expected_tag, expected) in zip(capture.exchanges, whole.exchanges, strict=False):
            assert tag == expected_tag
            assert expected.data.startswith(item.data)
            assert item.at_ns == expected.at_ns[: len(item.at_ns)]
            assert item.user_ns == expected.user_ns[: len(item.at_ns)]
            assert item == expected or (item.ending, item.detail) == (Ending.INTERRUPTED, "the capture ends here")
    assert loadable > len(data) / 2


def test_any_flipped_bit_is_refused(sample: tuple[bytes, list[tuple[int, int, int]], Capture], tmp_path: Path) -> None:
    """The frame's checksum finds what still looks like a capture; a flip that hides the frame's end reads as cut."""
    data, _, whole = sample
    path = tmp_path / "capture.jsonl.zst"
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        try:
            capture = load_capture(path)
        except EvidenceError as error:
            assert "\n" not in str(error)
        else:
            assert capture.truncated or capture == whole


@pytest.mark.parametrize("extra", [b"x", b"\0" * 2000, pack(CONTROL), b"\x50\x2a\x4d\x18\x01\0\0\0x"])
def test_anything_after_the_end_is_refused(extra: bytes, tmp_path: Path) -> None:
    for filler in (0, 5000):  # with the end inside a block that is read, and far behind it
        noise = os.urandom(filler).hex()
        whole = pack({**HEADER, "noise": noise}, CONTROL)
        assert load(whole, tmp_path).controls
        assert "goes on after its end" in refused(whole + extra, tmp_path)


@pytest.mark.parametrize("data", [b"", b"x", b"{}", zstandard.compress(b""), pack(HEADER)[:-4][:9]])
def test_what_is_no_capture_is_refused(data: bytes, tmp_path: Path) -> None:
    refused(data, tmp_path)


def test_a_folder_or_nothing_at_all_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(EvidenceError, match="can't be read"):
            load_capture(path)


def test_a_last_line_without_its_end_is_cut(tmp_path: Path) -> None:
    capture = load(zstandard.compress(json.dumps(HEADER).encode() + b'\n{"kind'), tmp_path)
    assert capture.truncated


@pytest.mark.parametrize("other", ["b70-bench.capture/2", "", None, 1])
def test_another_format_is_refused(other: object, tmp_path: Path) -> None:
    assert FORMAT in refused(pack({**HEADER, "format": other}), tmp_path)


def test_the_records_are_good_unchanged(tmp_path: Path) -> None:
    capture = load(pack(HEADER, BEGIN, READS, END, CONTROL), tmp_path)
    assert capture.exchanges[0][1].at_ns == [5, 10]
    assert capture.exchanges[0][1].user_ns == [6, 11]
    assert not capture.truncated


BAD_VALUES = [
    None,
    True,
    1.5,
    "x",
    "\ud800",
    [],
    [1, "x", None],
    {},
    1 << 70,
    -(1 << 70),
    float("nan"),
    [1.5, 2],
    [-1, 4],
]
MAY_BE = {
    "connected_ns": [None],
    "sent_ns": [None],
    "status": [None],
    "kernel": [True],
    **{name: ["x"] for name in ("for", "name", "stage", "request_id", "detail", "path", "body", "error", "scheduling")},
    **{name: [[-1, 4]] for name in ("after_ns", "lag_ns")},
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in RECORDS for name in RECORDS[kind]])
def test_a_field_of_another_kind_or_without_value_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    before: dict[str, list[Any]] = {"begin": [], "reads": [BEGIN], "end": [BEGIN, READS], "control": []}
    record = RECORDS[kind]
    without = {key: value for key, value in record.items() if key != name}
    assert "is not a capture record" in refused(pack(HEADER, *before[kind], without), tmp_path)
    for value in BAD_VALUES:
        if value in MAY_BE.get(name, []) and type(value) in map(type, MAY_BE[name]):
            continue
        assert "is not a capture record" in refused(pack(HEADER, *before[kind], {**record, name: value}), tmp_path), (
            value
        )


STRANGE = {
    "an unknown kind": [{"kind": "note"}],
    "no object": [[1]],
    "text": ["x"],
    "no JSON": [b"{"],
    "nothing": [b""],
    "another encoding": [json.dumps(CONTROL).encode("utf-16")],
    "half a surrogate": [{**CONTROL, "body": "\ud800"}],
    "bytes that aren't UTF-8": [b'{"kind": "control\xff"}'],
    "deep nesting": [b"[" * 100_000],
    "a number without end": [b'{"kind": ' + b"1" * 10_000 + b"}"],
    "reads before begin": [READS],
    "end before begin": [END],
    "two ends": [BEGIN, END, END],
    "two begins": [BEGIN, BEGIN],
    "reads after end": [BEGIN, END, READS],
    "sizes that don't add up": [BEGIN, {**READS, "size": [1, 1]}],
    "sizes that only add up": [BEGIN, {**READS, "size": [-1, 4]}],
    "fewer times than sizes": [BEGIN, {**READS, "after_ns": [5]}],
    "fewer flags than sizes": [BEGIN, {**READS, "kernel": [True]}],
    "more flags than sizes": [BEGIN, {**READS, "kernel": [True] * 3}],
    "an unknown ending": [BEGIN, {**END, "ending": "perfect"}],
    "an unknown framing": [{**BEGIN, "framing": "smoke"}],
    "letters beside base64": [BEGIN, {**{k: v for k, v in READS.items() if k != "text"}, "base64": "YW*Jj"}],
    "bad base64": [BEGIN, {**{k: v for k, v in READS.items() if k != "text"}, "base64": "a"}],
    "headers that are none": [BEGIN, {**END, "status": 200, "headers": [["a"]]}],
    "headers of numbers": [BEGIN, {**END, "status": 200, "headers": [["a", 1]]}],
}


@pytest.mark.parametrize("what", STRANGE)
def test_strange_records_are_refused(what: str, tmp_path: Path) -> None:
    assert "is not a capture record" in refused(pack(HEADER, *STRANGE[what]), tmp_path)


@pytest.mark.parametrize("number", [(1 << 62) - 1, 1 - (1 << 62), 1 << 62, -(1 << 62)])
def test_integers_have_62_bits(number: int, tmp_path: Path) -> None:
    data = pack(HEADER, {**CONTROL, "at_wall_ns": number})
    if abs(number) < 1 << 62:
        assert load(data, tmp_path).controls[0].at_wall_ns == number
    else:
        assert "TypeError at_wall_ns is not an integer" in refused(data, tmp_path)


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    assert "TypeError body is not text" in refused(pack(HEADER, {**CONTROL, "body": 1}), tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([BEGIN, READS, END, CONTROL]), max_size=5), st.data())
@example([BEGIN, READS], None)
def test_no_record_raises_anything_else(records: list[dict[str, Any]], data: st.DataObject | None) -> None:
    if records and data is not None:
        place = data.draw(st.integers(0, len(records) - 1))
        name = data.draw(st.sampled_from(sorted(records[place])))
        records = [*records[:place], {**records[place], name: data.draw(JSON)}, *records[place + 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.jsonl.zst"
        path.write_bytes(pack(HEADER, *records))
        try:
            capture = load_capture(path)
        except EvidenceError:
            return
    for _, item in capture.exchanges:
        assert len(item.data) == sum(item.sizes)
        assert len(item.sizes) == len(item.at_ns) == len(item.user_ns) == len(item.kernel)
        assert isinstance(item.clock_step_ns, int)
