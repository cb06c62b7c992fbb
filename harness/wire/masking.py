"""An attempt's capture with stars for secrets, where a server sent one: same sizes, same times, other bytes.

It is done when the server has gone: looking for values while streams are open would cost the client's lag, and a value
may be cut by any read.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

from harness.hidden import masked, masked_bytes
from harness.unwritable import sync, unwritable
from harness.wire.capture import _lines, _unpack, load_capture
from harness.wire.capture_writer import LEVEL, _pack


def mask_capture(path: Path, also: Sequence[str] = ()) -> bool:
    """Replace the file by one without secrets and the paths ``also``; whether it had any.

    Raises RecordError, and EvidenceError for what is no capture.
    """
    if not path.is_file() or path.stat().st_size == 0:
        return False
    capture = load_capture(path)
    answers = [masked_bytes(exchange.data, also) for _, exchange in capture.exchanges]
    pairs = zip(capture.exchanges, answers, strict=True)
    plain = all(
        exchange.data == answer
        and masked_bytes(exchange.request, also) == exchange.request
        and masked(words := f"{exchange.detail}\n{exchange.headers}") == words
        for (_, exchange), answer in pairs
    )
    bodies = (f"{item.body}\n{item.error}".encode("utf-8", "surrogatepass") for item in capture.controls)
    if plain and all(masked_bytes(body, also) == body for body in bodies):
        return False
    _rewrite(path, answers, also)
    return True


def _rewrite(path: Path, answers: list[bytes], also: Sequence[str]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    orders: dict[int, int] = {}
    """number of an exchange in the file → its place"""
    written = [0] * len(answers)
    try:
        with temporary.open("wb") as file:
            compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
            with compressor.stream_writer(file, closefd=False) as stream:
                for line in _lines(path):
                    if line is not None:
                        record = _masked(json.loads(line), answers, orders, written, also)
                        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
                        stream.write(text.encode() + b"\n")
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _masked(
    record: dict[str, Any], answers: list[bytes], orders: dict[int, int], written: list[int], also: Sequence[str]
) -> dict[str, Any]:
    kind = record["kind"]
    if kind == "begin":
        orders[record["n"]] = len(orders)
        return record | {"request": _pack(masked_bytes(_unpack(record["request"]), also))}
    if kind == "reads":
        place, size = orders[record["n"]], sum(record["size"])
        start = written[place]
        written[place] += size
        kept = {name: value for name, value in record.items() if name not in ("text", "base64")}
        return kept | _pack(answers[place][start : start + size])
    if kind == "control":
        return record | {name: masked_bytes(record[name].encode(), also).decode() for name in ("body", "error")}
    if kind == "end":
        record["detail"] = masked(record["detail"])
        if "headers" in record:
            record["headers"] = [[masked(name), masked(value)] for name, value in record["headers"]]
    return record
