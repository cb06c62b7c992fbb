"""The capture file: every byte that a server sent, as it came, in an append-only ``capture.jsonl.zst``.

One JSON object a line; zstd blocks are flushed as exchanges go on and end, so that a killed run leaves a file whose
whole lines load. Three kinds of line follow the header: ``begin``/``reads``/``end`` of an exchange, and ``control``
for a control request (health, models, metrics) with its whole answer.
"""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from harness.errors import EvidenceError
from harness.wire.exchange import Ending, Exchange

FORMAT = "b70-bench.capture/1"
MAX_LINE = 64 * 1024 * 1024
"""Bytes; a longer line is no capture of ours"""
MAX_TOTAL = 4 * 1024 * 1024 * 1024
"""Decompressed bytes after which loading stops, against a decompression bomb"""
LEVEL = 6


@dataclass(frozen=True, slots=True)
class Tag:
    """What an exchange was for."""

    kind: str
    """suite, canary, ready"""
    name: str
    """prompt id or canary name"""
    stage: str = ""
    """"before" or "after" for canaries"""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Control:
    """A control request and its whole answer; ``status`` is None when there was no answer."""

    name: str
    """health, models, version, metrics-before, metrics-after, server-info"""
    path: str
    at_wall_ns: int
    status: int | None
    body: str
    error: str = ""


@dataclass(slots=True)
class Capture:
    """A loaded capture file, in the order of the file."""

    header: dict[str, Any]
    exchanges: list[tuple[Tag, Exchange]] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    truncated: bool = False
    """the file ends inside a line or a zstd frame: the run was killed"""

    def of_kind(self, kind: str, stage: str = "") -> list[tuple[Tag, Exchange]]:
        """Exchanges of one kind, in order."""
        return [(tag, exchange) for tag, exchange in self.exchanges if tag.kind == kind and tag.stage == stage]


def find_control(controls: Sequence[Control], name: str) -> Control | None:
    """The last control answer of that name."""
    return next((item for item in reversed(controls) if item.name == name), None)


def _pack(data: bytes) -> dict[str, str]:
    """Text where the bytes are UTF-8 (they nearly always are), base64 where a read cut a character."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _unpack(record: dict[str, Any]) -> bytes:
    if "text" in record:
        return str(record["text"]).encode("utf-8")
    return base64.b64decode(record["base64"], validate=True)


class CaptureWriter:
    """Appends to a new capture file. As a transport's sink it writes an exchange while it goes on.

    ``tag`` must be set before each exchange; with several at once, one tag per number.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._file: BinaryIO = path.open("xb")
        self._stream = zstandard.ZstdCompressor(level=LEVEL).stream_writer(self._file, closefd=False)
        self._exchange = 0
        self._open: dict[int, tuple[int, int, int]] = {}
        self.tags: list[Tag] = []
        self._write({"kind": "header", "format": FORMAT, **header})
        self.sync()

    def control(self, control: Control) -> None:
        """Record a control request."""
        self._write(
            {"kind": "control", "name": control.name, "path": control.path, "at_wall_ns": control.at_wall_ns}
            | {"status": control.status, "body": control.body, "error": control.error}
        )
        self.sync()

    def begin(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        tag = self.tags[number]
        self._open[number] = (self._exchange, 0, 0)
        self._write(
            {"kind": "begin", "n": self._exchange, "for": tag.kind, "name": tag.name, "stage": tag.stage}
            | {"request_id": tag.request_id, "t0_wall_ns": exchange.t0_wall_ns, "t0_mono_ns": exchange.t0_mono_ns}
            | {"request": _pack(exchange.request)}
        )
        self._exchange += 1

    def drain(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        if self._reads(exchange, number):
            self._stream.flush(zstandard.FLUSH_BLOCK)
            self._file.flush()

    def end(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        self._reads(exchange, number)
        record: dict[str, Any] = {"kind": "end", "n": self._open.pop(number)[0], "ending": exchange.ending.value}
        record |= {"detail": exchange.detail, "connected_ns": exchange.connected_ns, "sent_ns": exchange.sent_ns}
        record |= {"end_ns": exchange.end_ns, "end_wall_ns": exchange.end_wall_ns, "end_mono_ns": exchange.end_mono_ns}
        record |= {"cpu_ns": exchange.cpu_ns, "scheduling": exchange.scheduling}
        if exchange.framing != "http":
            record |= {"framing": exchange.framing, "status": exchange.status, "headers": exchange.headers}
        self._write(record)
        self.sync()

    def _reads(self, exchange: Exchange, number: int) -> bool:
        n, reads, size = self._open[number]
        new = len(exchange.sizes)
        if new == reads:
            return False
        at = exchange.at_ns[reads:new]
        previous = exchange.at_ns[reads - 1] if reads else 0
        record: dict[str, Any] = {
            "kind": "reads",
            "n": n,
            "after_ns": [now - before for now, before in zip(at, [previous, *at[:-1]], strict=True)],
            "lag_ns": [user - now for user, now in zip(exchange.user_ns[reads:new], at, strict=True)],
            "size": exchange.sizes[reads:new],
        }
        kernel = exchange.kernel[reads:new]
        record["kernel"] = kernel[0] if len(set(kernel)) == 1 else kernel
        total = sum(record["size"])
        self._write(record | _pack(exchange.data[size : size + total]))
        self._open[number] = (n, new, size + total)
        return True

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        self._stream.write(line.encode("utf-8") + b"\n")

    def sync(self) -> None:
        """Everything written so far is on the disk and loads."""
        self._stream.flush(zstandard.FLUSH_BLOCK)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End the zstd frame; idempotent."""
        if not self._file.closed:
            self._stream.flush(zstandard.FLUSH_FRAME)
            os.fsync(self._file.fileno())
            self._file.close()


def _lines(path: Path) -> Iterator[bytes | None]:
    """Whole lines; None at the end when the file stops in mid-line or in mid-frame. Raises EvidenceError."""
    pending: list[bytes] = []
    size = total = 0
    # A decompressobj, not a reader: it tells a frame that ended from one that was cut.
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    try:
        with path.open("rb") as file:
            # Small blocks bound what one call can decompress to (zstd reaches 32,000 to 1).
            while block := file.read(1024):
                if decompressor.eof:
                    raise EvidenceError(f"{path.name} goes on after its end; it was edited or joined, get the original")
                data = decompressor.decompress(block)
                total += len(data)
                if total > MAX_TOTAL:
                    raise EvidenceError(f"{path.name} decompresses to more than {MAX_TOTAL >> 30} GiB; it's no capture")
                *whole, rest = data.split(b"\n")
                for line in whole:
                    yield b"".join([*pending, line])
                    pending, size = [], 0
                pending.append(rest)
                size += len(rest)
                if size > MAX_LINE:
                    raise EvidenceError(f"{path.name} has a line over {MAX_LINE >> 20} MiB; it's no capture of ours")
            if decompressor.unused_data:
                raise EvidenceError(f"{path.name} goes on after its end; it was edited or joined, get the original")
    except OSError as error:
        raise EvidenceError(f"{path.name} can't be read ({error.strerror}); check the directory") from None
    except zstandard.ZstdError as error:
        raise EvidenceError(f"{path.name} is not a zstd file or is damaged ({error}); get the original") from None
    if not decompressor.eof or size:
        yield None


def load_capture(path: Path) -> Capture:
    """Load a capture, whole or cut short by a kill. Raises EvidenceError for anything that isn't a capture.

    An exchange without its ``end`` gets the ending ``interrupted``.
    """
    capture: Capture | None = None
    open_exchanges: dict[int, tuple[Exchange, list[bytes]]] = {}
    for number, line in enumerate(_lines(path), 1):
        if line is None:
            if capture is None:
                break
            capture.truncated = True
            continue
        try:
            record = json.loads(line)
            if capture is None:
                if record["kind"] != "header" or record["format"] != FORMAT:
                    raise EvidenceError(f"{path.name} isn't a {FORMAT} file; use the version that wrote it")
                capture = Capture(header=record)
                continue
            _apply(capture, open_exchanges, record)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            problem = f"{type(error).__name__} {error}"
            raise EvidenceError(
                f"{path.name} line {number} is not a capture record ({problem}); get the original"
            ) from None
    if capture is None:
        raise EvidenceError(f"{path.name} is empty: nothing was captured before the run was killed")
    for exchange, parts in open_exchanges.values():
        exchange.data = b"".join(parts)
        exchange.detail = "the capture ends here"
        if exchange.user_ns:
            exchange.end_ns = exchange.user_ns[-1]
        exchange.end_wall_ns = exchange.t0_wall_ns + exchange.end_ns
        exchange.end_mono_ns = exchange.t0_mono_ns + exchange.end_ns
    return capture


def _apply(capture: Capture, open_: dict[int, tuple[Exchange, list[bytes]]], record: dict[str, Any]) -> None:
    kind = record["kind"]
    if kind == "control":
        item = Control(
            record["name"], record["path"], record["at_wall_ns"], record["status"], record["body"], record["error"]
        )
        capture.controls.append(item)
    elif kind == "begin":
        exchange = Exchange(_unpack(record["request"]), record["t0_wall_ns"], record["t0_mono_ns"], Ending.INTERRUPTED)
        tag = Tag(record["for"], record["name"], record["stage"], record["request_id"])
        capture.exchanges.append((tag, exchange))
        open_[record["n"]] = (exchange, [])
    elif kind == "reads":
        exchange, parts = open_[record["n"]]
        at = exchange.at_ns[-1] if exchange.at_ns else 0
        kernel = record["kernel"]
        data = _unpack(record)
        if sum(record["size"]) != len(data):
            raise ValueError("sizes don't add up to the data")
        for index, (after, lag, size) in enumerate(
            zip(record["after_ns"], record["lag_ns"], record["size"], strict=True)
        ):
            at += after
            exchange.at_ns.append(at)
            exchange.user_ns.append(at + lag)
            exchange.sizes.append(size)
            exchange.kernel.append(kernel if isinstance(kernel, bool) else kernel[index])
        parts.append(data)
    elif kind == "end":
        exchange, parts = open_.pop(record["n"])
        exchange.data = b"".join(parts)
        exchange.ending, exchange.detail = Ending(record["ending"]), record["detail"]
        exchange.connected_ns, exchange.sent_ns = record["connected_ns"], record["sent_ns"]
        exchange.end_ns, exchange.cpu_ns = record["end_ns"], record["cpu_ns"]
        exchange.scheduling = record["scheduling"]
        exchange.end_wall_ns, exchange.end_mono_ns = record["end_wall_ns"], record["end_mono_ns"]
        exchange.framing = record.get("framing", "http")
        exchange.status = record.get("status")
        exchange.headers = [(str(name), str(value)) for name, value in record.get("headers", [])]
    else:
        raise ValueError(f"unknown kind {kind!r}")
