"""Writes the capture file of harness.wire.capture while exchanges go on; a killed run leaves whole lines that load."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from harness.errors import RecordError
from harness.unwritable import sync, unwritable
from harness.wire.capture import FORMAT, Control, Tag
from harness.wire.exchange import Exchange

RECORD_SIZE = 1024 * 1024
RECORD_READS = 32 * 1024
"""Most bytes and reads in one line we write: even escaped sixfold it stays far below MAX_LINE"""
LEVEL = 6


def _pack(data: bytes) -> dict[str, str]:
    """Text where the bytes are UTF-8 (they nearly always are), base64 where a read cut a character."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


class CaptureWriter:
    """Appends to a new capture file. As a transport's sink it writes an exchange while it goes on.

    ``tag`` must be set before each exchange; with several at once, one tag per number. Whatever writes raises
    RecordError when the disk takes it no longer, and nothing is written from then on: what came after a gap would spoil
    what stands before it.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._path = path
        self._failed: RecordError | None = None
        try:
            self._file: BinaryIO = path.open("xb")
        except FileExistsError:
            raise
        except OSError as error:
            raise unwritable(path, error) from None
        compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._stream = compressor.stream_writer(self._file, closefd=False)
        self._exchange = 0
        self._open: dict[int, tuple[int, int, int]] = {}
        self.tags: list[Tag] = []
        self._write({"kind": "header", "format": FORMAT, **header})
        self.sync()

    def control(self, control: Control, *, sync: bool = True) -> None:
        """Record a control request."""
        self._write(
            {"kind": "control", "name": control.name, "path": control.path, "at_wall_ns": control.at_wall_ns}
            | {"status": control.status, "body": control.body, "error": control.error}
        )
        if sync:
            self.sync()

    def begin(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        tag, n = self.tags[number], self._exchange
        self._exchange += 1
        record = {"kind": "begin", "n": n, "for": tag.kind, "name": tag.name, "stage": tag.stage}
        record |= {"request_id": tag.request_id, "t0_wall_ns": exchange.t0_wall_ns, "t0_mono_ns": exchange.t0_mono_ns}
        if exchange.framing != "http":
            record["framing"] = exchange.framing
        self._write(record | {"request": _pack(exchange.request)}, number, (n, 0, 0))

    def whole(self, tag: Tag, exchange: Exchange) -> None:
        """Record an exchange that has ended, without a sync: for batches, whose loop writes nothing."""
        self.tags = [tag]
        self.begin(exchange, 0)
        self._end(exchange, 0)

    def drain(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        if number in self._open and self._reads(exchange, number):
            with self._to_disk():
                self._stream.flush(zstandard.FLUSH_BLOCK)
                self._file.flush()

    def end(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        if number in self._open:  # else its begin never reached the file
            self._end(exchange, number)
            self.sync()

    def _end(self, exchange: Exchange, number: int) -> None:
        self._reads(exchange, number)
        n = self._open.pop(number)[0]
        record: dict[str, Any] = {"kind": "end", "n": n, "ending": exchange.ending.value}
        record |= {"detail": exchange.detail, "connected_ns": exchange.connected_ns, "sent_ns": exchange.sent_ns}
        record |= {"end_ns": exchange.end_ns, "end_wall_ns": exchange.end_wall_ns, "end_mono_ns": exchange.end_mono_ns}
        record |= {"cpu_ns": exchange.cpu_ns, "scheduling": exchange.scheduling}
        if exchange.framing != "http":
            record |= {"status": exchange.status, "headers": exchange.headers}
        if exchange.released_ns is not None:
            record |= {"released_ns": exchange.released_ns, "worker": exchange.worker}
        self._write(record)

    def _reads(self, exchange: Exchange, number: int) -> bool:
        """Write the reads that aren't in the file yet; whether there were any."""
        n, first, start = self._open[number]
        if first == len(exchange.sizes):
            return False
        while first < len(exchange.sizes):
            last, stop = first, start
            while last < len(exchange.sizes) and last - first < RECORD_READS:
                if last > first and stop + exchange.sizes[last] - start > RECORD_SIZE:
                    break
                stop += exchange.sizes[last]
                last += 1
            at, user = exchange.at_ns[first:last], exchange.user_ns[first:last]
            before = [exchange.at_ns[first - 1] if first else 0, *at[:-1]]
            kernel = exchange.kernel[first:last]
            record: dict[str, Any] = {
                "kind": "reads",
                "n": n,
                "after_ns": [now - previous for now, previous in zip(at, before, strict=True)],
                "lag_ns": [returned - now for returned, now in zip(user, at, strict=True)],
                "size": exchange.sizes[first:last],
                "kernel": kernel[0] if len(set(kernel)) == 1 else kernel,
            }
            self._write(record | _pack(exchange.data[start:stop]), number, (n, last, stop))
            first, start = last, stop
        return True

    def _write(self, record: dict[str, Any], number: int = 0, written: tuple[int, int, int] | None = None) -> None:
        line = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
        if self._failed is not None:
            raise self._failed
        try:
            # Not within _to_disk: a signal's exception could come between the try and the write.
            self._stream.write(line)
        except OSError as error:
            self._failed = unwritable(self._path, error)
            raise self._failed from None
        finally:
            # Noted even when a signal's exception comes out of the call: the line is in the stream by then, and
            # writing it again when the exchange is ended would spoil the file.
            if written is not None:
                self._open[number] = written

    @contextmanager
    def _to_disk(self) -> Iterator[None]:
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except OSError as error:
            self._failed = unwritable(self._path, error)
            raise self._failed from None

    def sync(self) -> None:
        """Everything written so far is on the disk and loads."""
        with self._to_disk():
            self._stream.flush(zstandard.FLUSH_BLOCK)
            self._file.flush()
            sync(self._file.fileno())

    def close(self) -> None:
        """End the zstd frame; idempotent. Where the disk took no more, that was told then, and it stays as it is."""
        if self._file.closed:
            return
        try:
            if self._failed is None:
                with self._to_disk():
                    self._stream.flush(zstandard.FLUSH_FRAME)
                    self._file.flush()
                    sync(self._file.fileno())
        finally:
            with suppress(OSError):
                self._file.close()
