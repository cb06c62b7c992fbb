"""The capture file: every byte that a server sent, as it came, in an append-only ``capture.jsonl.zst``.

One JSON object a line; zstd blocks are flushed as exchanges go on and end, so that a killed run leaves a file whose
whole lines load. Three kinds of line follow the header: ``begin``/``reads``/``end`` of an exchange, and ``control``
for a control request (health, models, metrics) with its whole answer.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from harness.errors import EvidenceError
from harness.wire.exchange import Ending, Exchange

FORMAT = "b70-bench.capture/1"
MAX_LINE = 64 * 1024 * 1024
"""Bytes; a longer line is no capture of ours"""
MAX_TOTAL = 1024 * 1024 * 1024
"""Decompressed bytes after which loading stops, against a decompression bomb"""
MAX_EXCHANGES = 250_000
MAX_READS = 4_000_000
"""In one file: what is loaded takes many times its place in the file, and a campaign has some thousand exchanges"""
MAX_WINDOW = 8 * 1024 * 1024
"""Bytes of history a frame may ask for; ours ask for a quarter"""


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


def _unpack(record: dict[str, Any]) -> bytes:
    if "text" in record:
        return _text(record, "text").encode("utf-8")
    return base64.b64decode(_text(record, "base64"), validate=True)


def _text(record: dict[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    value.encode("utf-8")  # half a surrogate pair would break whoever prints it
    return value


def _is_int(value: object) -> bool:
    return type(value) is int and abs(value) < 1 << 62


def _int(record: dict[str, Any], name: str) -> int:
    value = record[name]
    if not _is_int(value):
        raise TypeError(f"{name} is not an integer")
    return int(value)


def _optional(record: dict[str, Any], name: str) -> int | None:
    return None if record[name] is None else _int(record, name)


def _ints(record: dict[str, Any], name: str) -> list[int]:
    values = record[name]
    if not isinstance(values, list) or not all(map(_is_int, values)):
        raise TypeError(f"{name} is not a list of integers")
    return values


def _lines(path: Path) -> Iterator[bytes | None]:
    """Whole lines; None at the end when the file stops in mid-line or in mid-frame. Raises EvidenceError."""
    pending: list[bytes] = []
    size = total = 0
    # A decompressobj, not a reader: it tells a frame that ended from one that was cut.
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
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
                start = 0
                while (stop := data.find(b"\n", start)) >= 0:
                    yield b"".join([*pending, data[start:stop]])
                    pending, size, start = [], 0, stop + 1
                pending.append(data[start:])
                size += len(data) - start
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
    reads = 0
    for number, line in enumerate(_lines(path), 1):
        if line is None:
            if capture is None:
                break
            capture.truncated = True
            continue
        try:
            record = json.loads(line.decode("utf-8"))
            if capture is None:
                if record["kind"] != "header" or record["format"] != FORMAT:
                    raise EvidenceError(f"{path.name} isn't a {FORMAT} file; use the version that wrote it")
                capture = Capture(header=record)
                continue
            _apply(capture, open_exchanges, record)
            reads += len(record["size"]) if record["kind"] == "reads" else 0
            if len(capture.exchanges) + len(capture.controls) > MAX_EXCHANGES or reads > MAX_READS:
                raise EvidenceError(
                    f"{path.name} has more than {MAX_EXCHANGES} exchanges or {MAX_READS} reads; it's no capture of ours"
                )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
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
        capture.controls.append(
            Control(
                name=_text(record, "name"),
                path=_text(record, "path"),
                at_wall_ns=_int(record, "at_wall_ns"),
                status=_optional(record, "status"),
                body=_text(record, "body"),
                error=_text(record, "error"),
            )
        )
    elif kind == "begin":
        request, n = _unpack(record["request"]), _int(record, "n")
        exchange = Exchange(request, _int(record, "t0_wall_ns"), _int(record, "t0_mono_ns"), Ending.INTERRUPTED)
        if "framing" in record:
            exchange.framing = _text(record, "framing")
            if exchange.framing not in ("http", "body"):
                raise ValueError(f"unknown framing {exchange.framing!r}")
        if n in open_:
            raise ValueError(f"exchange {n} begins twice")
        tag = Tag(*(_text(record, name) for name in ("for", "name", "stage", "request_id")))
        capture.exchanges.append((tag, exchange))
        open_[n] = (exchange, [])
    elif kind == "reads":
        exchange, parts = open_[_int(record, "n")]
        _apply_reads(exchange, record)
        parts.append(_unpack(record))
        if sum(record["size"]) != len(parts[-1]):
            raise ValueError("sizes don't add up to the data")
    elif kind == "end":
        exchange, parts = open_.pop(_int(record, "n"))
        exchange.data = b"".join(parts)
        exchange.ending, exchange.detail = Ending(_text(record, "ending")), _text(record, "detail")
        exchange.connected_ns, exchange.sent_ns = _optional(record, "connected_ns"), _optional(record, "sent_ns")
        exchange.end_ns, exchange.cpu_ns = _int(record, "end_ns"), _int(record, "cpu_ns")
        exchange.scheduling = _text(record, "scheduling")
        if "released_ns" in record:
            exchange.released_ns, exchange.worker = _int(record, "released_ns"), _int(record, "worker")
        exchange.end_wall_ns, exchange.end_mono_ns = _int(record, "end_wall_ns"), _int(record, "end_mono_ns")
        if "headers" in record:
            exchange.status = _optional(record, "status")
            exchange.headers = [(_text({"": name}, ""), _text({"": value}, "")) for name, value in record["headers"]]
    else:
        raise ValueError(f"unknown kind {kind!r}")


def _apply_reads(exchange: Exchange, record: dict[str, Any]) -> None:
    after, lag, sizes, kernel = (
        _ints(record, "after_ns"),
        _ints(record, "lag_ns"),
        _ints(record, "size"),
        record["kernel"],
    )
    if isinstance(kernel, bool):
        kernel = [kernel] * len(sizes)
    if not isinstance(kernel, list) or not all(isinstance(flag, bool) for flag in kernel):
        raise TypeError("kernel is not a list of true and false")
    if min(sizes, default=0) < 0:
        raise ValueError("a size is negative")
    at = exchange.at_ns[-1] if exchange.at_ns else 0
    for wait, late, size, flag in zip(after, lag, sizes, kernel, strict=True):
        at += wait
        exchange.at_ns.append(at)
        exchange.user_ns.append(at + late)
        exchange.sizes.append(size)
        exchange.kernel.append(flag)
