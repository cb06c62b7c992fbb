"""The capture file: what is written loads again, whatever happens to the writer or to the file."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

import harness.wire.capture as capture_module
from harness.errors import EvidenceError
from harness.wire.capture import FORMAT, MAX_LINE, Capture, Control, Tag, find_control, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Ending, Exchange
from tests.wire.build import GOOD, chunked, cut, exchange
from tests.wire.scripted import hold, request, send, serving

TIMES = st.integers(-(2**53), 2**53)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TAGS = st.builds(Tag, WORDS, WORDS, WORDS, WORDS)
CONTROLS = st.builds(Control, WORDS, WORDS, TIMES, st.none() | st.integers(100, 599), WORDS, WORDS)
UTF8 = st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """Any exchange: reads of any bytes, cut anywhere, times of any order."""
    data = draw(st.binary(max_size=60) | UTF8)
    reads = cut(data, draw(st.lists(st.integers(0, 60), max_size=8)))
    times = draw(st.lists(TIMES, min_size=len(reads), max_size=len(reads)))
    lags = draw(st.lists(TIMES, min_size=len(reads), max_size=len(reads)))
    body, held = draw(st.booleans()), draw(st.booleans())
    return Exchange(
        request=draw(st.binary(max_size=40)),
        t0_wall_ns=draw(TIMES),
        t0_mono_ns=draw(TIMES),
        ending=draw(st.sampled_from(Ending)),
        detail=draw(WORDS),
        data=data,
        sizes=[len(read) for read in reads],
        at_ns=times,
        user_ns=[at + lag for at, lag in zip(times, lags, strict=True)],
        kernel=draw(st.lists(st.booleans(), min_size=len(reads), max_size=len(reads))),
        connected_ns=draw(st.none() | TIMES),
        sent_ns=draw(st.none() | TIMES),
        end_ns=draw(TIMES),
        cpu_ns=draw(TIMES),
        scheduling=draw(WORDS),
        end_wall_ns=draw(TIMES),
        end_mono_ns=draw(TIMES),
        framing="body" if body else "http",
        status=draw(st.none() | st.integers(0, 999)) if body else None,
        headers=draw(st.lists(st.tuples(WORDS, WORDS), max_size=3)) if body else [],
        released_ns=draw(TIMES) if held else None,
        worker=draw(st.integers(0, 64)) if held else 0,
    )


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


def write(path: Path, items: Sequence[tuple[Tag, Exchange]], drains: Sequence[int] = (), *, close: bool = True) -> None:
    """All of ``items`` at once, each handed over after so many reads as ``drains`` says, in turns."""
    writer = CaptureWriter(path, {"label": "a"})
    writer.tags = [tag for tag, _ in items]
    for number, (_, item) in enumerate(items):
        writer.begin(item, number)
    for reads in sorted(drains):
        for number, (_, item) in enumerate(items):
            writer.drain(growing(item, min(reads, len(item.sizes))), number)
    for number, (_, item) in enumerate(items):
        writer.end(item, number)
    if close:
        writer.close()
        writer.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(TAGS, exchanges()), max_size=4),
    st.lists(st.integers(0, 8), max_size=4),
    st.lists(CONTROLS, max_size=2),
)
def test_what_is_written_loads_again(
    items: list[tuple[Tag, Exchange]], drains: list[int], controls: list[Control]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.jsonl.zst"
        write(path, items, drains)
        capture = load_capture(path)
        assert capture == Capture({"kind": "header", "format": FORMAT, "label": "a"}, items)
        other = Path(folder) / "other.jsonl.zst"
        writer = CaptureWriter(other, {})
        for control in controls:
            writer.control(control)
        writer.close()
        assert load_capture(other).controls == controls


def test_a_read_that_ends_inside_a_character_is_kept_as_it_came(tmp_path: Path) -> None:
    data = "é二\U0001f600".encode()
    for place in range(1, len(data)):
        item = exchange([data[:place], data[place:]])
        path = tmp_path / f"{place}.zst"
        write(path, [(Tag("suite", "a"), item)], [1])
        assert load_capture(path).exchanges[0][1] == item


def test_a_long_answer_is_written_in_lines_that_load(tmp_path: Path) -> None:
    """NUL bytes are the worst case: six characters of JSON each."""
    item = exchange([b"\0" * 200_000] * 60, at_ms=[0] * 60)
    many = exchange([b"x"] * 40_000, at_ms=[0] * 40_000)
    path = tmp_path / "capture.jsonl.zst"
    write(path, [(Tag("suite", "a"), item), (Tag("suite", "b"), many)])
    capture = load_capture(path)
    assert [loaded for _, loaded in capture.exchanges] == [item, many]
    lengths = [len(line) for line in plain(path).split(b"\n")]
    assert max(lengths) < MAX_LINE / 4


def test_of_kind_and_find_control(tmp_path: Path) -> None:
    items = [(Tag("canary", "a", "before"), exchange([b"x"])), (Tag("suite", "a"), exchange([b"y"]))]
    path = tmp_path / "capture.jsonl.zst"
    write(path, items)
    capture = load_capture(path)
    assert capture.of_kind("suite") == items[1:]
    assert capture.of_kind("canary", "before") == items[:1]
    assert capture.of_kind("canary") == []
    controls = [Control("health", "/health", n, 200, str(n)) for n in range(3)]
    assert find_control(controls, "health") == controls[2]
    assert find_control(controls, "version") is None


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    path.write_bytes(b"x")
    with pytest.raises(FileExistsError):
        CaptureWriter(path, {})
    assert path.read_bytes() == b"x"


# Files that were cut, damaged or made up


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
BEGIN |= {"t0_mono_ns": 1, "request": {"text": "POST"}}
READS = {"kind": "reads", "n": 0, "after_ns": [5, 5], "lag_ns": [1, 1], "size": [1, 2], "kernel": True, "text": "abc"}
END = {"kind": "end", "n": 0, "ending": "closed", "detail": "", "connected_ns": 1, "sent_ns": 2, "end_ns": 12}
END |= {"end_wall_ns": 13, "end_mono_ns": 13, "cpu_ns": 1, "scheduling": "normal"}
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


# Bombs


def bomb(path: Path, line: bytes, times: int) -> None:
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as stream:
        stream.write(json.dumps(HEADER).encode() + b"\n")
        for _ in range(times):
            stream.write(line)


def peak_of_loading(path: Path, limit: int) -> tuple[str, int]:
    """(error, peak memory growth in bytes) of loading in a process of its own."""
    code = (
        "import sys, resource; from pathlib import Path; import harness.wire.capture as capture\n"
        "capture.MAX_TOTAL = int(sys.argv[2]); from harness.errors import EvidenceError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: capture.load_capture(Path(sys.argv[1])); said = 'loaded'\n"
        "except EvidenceError as error: said = str(error)\n"
        "print(said); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(path), str(limit)], capture_output=True, text=True, check=True, timeout=60
    )
    said, grown = run.stdout.splitlines()
    return said, int(grown) * 1024


def test_a_line_that_decompresses_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    bomb(path, b"\0" * (1 << 20), 1024)
    assert path.stat().st_size < 200_000
    said, grown = peak_of_loading(path, capture_module.MAX_TOTAL)
    assert "has a line over 64 MiB" in said
    assert grown < 400 << 20


def test_lines_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    bomb(path, json.dumps(CONTROL).encode() + b"\n", 400_000)
    said, grown = peak_of_loading(path, 8 << 20)
    assert "decompresses to more than" in said
    assert grown < 200 << 20


def test_empty_lines_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    bomb(path, b"\n" * (1 << 20), 256)
    said, grown = peak_of_loading(path, capture_module.MAX_TOTAL)
    assert "is not a capture record" in said
    assert grown < 200 << 20


def test_a_frame_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(json.dumps(HEADER).encode() + b"\n") + compressor.flush()
    assert "damaged" in refused(data, tmp_path)


# The writer's death

VICTIM = """
import sys
from pathlib import Path
from harness.wire.capture import Tag
from harness.wire.capture_writer import CaptureWriter
from harness.wire.transport import SocketTransport
writer = CaptureWriter(Path(sys.argv[1]), {"label": "a"})
writer.tags = [Tag("suite", "a")]
class Sink:
    begin, end = writer.begin, writer.end
    def drain(self, exchange, number):
        writer.drain(exchange, number)
        print(len(exchange.data), flush=True)
transport = SocketTransport("127.0.0.1", int(sys.argv[2]), sink=Sink(), drain_s=0.0)
transport.exchange(b"POST / HTTP/1.1\\r\\nContent-Length: 0\\r\\n\\r\\n")
"""


def test_a_killed_writer_leaves_what_it_had_handed_over(tmp_path: Path) -> None:
    part = b"".join(chunked(GOOD[:2], last=False))
    path = tmp_path / "capture.jsonl.zst"
    with serving([request, send(part), hold]) as server:
        command = [sys.executable, "-c", VICTIM, str(path), str(server.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:
            assert victim.stdout is not None
            for line in victim.stdout:
                if int(line) == len(part):
                    break
            victim.kill()
            assert victim.wait(20) == -signal.SIGKILL
    capture = load_capture(path)
    assert capture.truncated
    assert capture.header["label"] == "a"
    ((tag, item),) = capture.exchanges
    assert tag == Tag("suite", "a")
    assert item.data == part
    assert len(item.sizes) == len(item.at_ns) == len(item.kernel) > 0
    assert (item.ending, item.detail) == (Ending.INTERRUPTED, "the capture ends here")
    assert item.end_ns == item.user_ns[-1]
    assert item.clock_step_ns == 0


def test_a_control_without_a_sync_is_on_the_disk_with_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "c.zst"
    writer = CaptureWriter(path, {"label": "a"})
    before = path.stat().st_size
    writer.control(Control("look", "/metrics", 1, 200, "running 8"), sync=False)
    assert path.stat().st_size == before
    writer.control(Control("health", "/health", 2, 200, "fine"))
    assert [control.name for control in load_capture(path).controls] == ["look", "health"]
    writer.close()
