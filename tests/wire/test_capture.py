"""The capture file: what is written loads again, whatever happens to the writer or to the file."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import harness.wire.capture as capture_module
from harness.wire.capture import FORMAT, MAX_LINE, Capture, Control, Tag, find_control, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Ending, Exchange
from tests.wire.build import GOOD, chunked, cut, exchange
from tests.wire.captures import CONTROL, HEADER, growing, plain, refused
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
