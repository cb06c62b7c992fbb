"""One HTTP/1.1 connection: requests in, plain or chunked answers out, one at a time."""

import json
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from harness.simulated.loop import Loop

_MAX_HEAD = 64 * 1024
_MAX_BODY = 64 * 1024 * 1024
_TIMESTAMPS = sys.platform == "linux"
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_SIZE = socket.CMSG_SPACE(_TIMESPEC.size)
CUT_GAP_NS = 300_000
"""fault ``chunks-cut``: time between two writes"""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """lower-case names; of repeated headers the last"""
    body: bytes
    keep_alive: bool
    arrived_ns: int = 0
    """wall clock at which the kernel received its last byte"""


class Connection:
    """A socket with its unread and unsent bytes. ``on_lost`` is called once if the client goes during an answer."""

    def __init__(self, loop: Loop, sock: socket.socket, peer: str, on_request: Callable[["Connection", Request], None]):
        self.peer = peer
        self.on_lost: Callable[[], None] | None = None
        self.stay_open = False
        """fault ``left-open``: don't close, whatever the request says"""
        self.hold = False
        """fault ``one-read``: send nothing before the answer is complete"""
        self.cut = False
        """fault ``chunks-cut``: send each event in two writes"""
        self._loop = loop
        self._sock = sock
        self._on_request = on_request
        self._in = bytearray()
        self._out = bytearray()
        self._held = bytearray()
        self._request: Request | None = None
        self._closed = False
        self._closing = False
        self._cuts = 0
        self._pieces: deque[bytes | None] = deque()
        self._pacing = False
        self._arrived_ns = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _TIMESTAMPS:
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        loop.watch(sock, self._ready)

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """A whole answer. An empty ``content_type`` leaves the header out."""
        typed = f"content-type: {content_type}\r\n" if content_type else ""
        self._send(self._head(status, f"content-length: {len(body)}\r\n{typed}") + body)
        self.finish()

    def start_stream(self) -> None:
        """The head of a stream of events."""
        headers = "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
        self._send(self._head(200, headers))

    def send_event(self, data: str) -> None:
        """One event in one chunk."""
        event = f"data: {data}\n\n".encode()
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        if self.cut:
            at = _awkward(chunk, self._cuts)
            self._cuts += 1
            self._pace_out(chunk[:at], chunk[at:])
        else:
            self._send(chunk)

    def end_stream(self) -> None:
        """The last chunk; with ``cut`` after the pieces that are under way."""
        if self.cut:
            self._pace_out(None)
        else:
            self._send(b"0\r\n\r\n")
            self.finish()

    def _pace_out(self, *pieces: bytes | None) -> None:
        """Send pieces with a gap between any two; None stands for the end of the stream."""
        self._pieces += pieces
        if not self._pacing:
            self._pace()

    def _pace(self) -> None:
        self._pacing = bool(self._pieces)
        if not self._pieces:
            return
        piece = self._pieces.popleft()
        self._loop.at(time.monotonic_ns() + CUT_GAP_NS, self._pace)
        if piece is None:
            self.cut = False
            self.end_stream()
        else:
            self._send(piece)

    def finish(self) -> None:
        """The answer is complete: close, or look for the next request."""
        if self._closed or self._request is None:
            return
        keep_alive = self._request.keep_alive or self.stay_open
        self._request = self.on_lost = None
        if self._held:
            self._out += self._held
            self._held.clear()
            self._flush()
        self.hold = self.stay_open = False
        self._cuts = 0
        if keep_alive:
            self._parse()
        else:
            self._closing = True
            self._flush()

    def reset(self) -> None:
        """Close with a reset (RST) instead of an end."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    def _head(self, status: int, headers: str) -> bytes:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        last = "" if self._request and self._request.keep_alive else "connection: close\r\n"
        phrase = HTTPStatus(status).phrase
        return f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\nserver: simulated\r\n{headers}{last}\r\n".encode()

    def _send(self, data: bytes) -> None:
        if self._closed:
            return
        if self.hold:
            self._held += data
            return
        self._out += data
        if len(self._out) == len(data):
            self._flush()

    def _flush(self) -> None:
        if self._closed:
            return
        if self._out:
            try:
                del self._out[: self._sock.send(self._out)]
            except BlockingIOError:
                pass
            except OSError:
                self._close()
                return
            if self._out:
                self._loop.watch(self._sock, self._ready, writing=True)
        if self._closing and not self._out:
            self._close()

    def _ready(self, mask: int) -> None:
        if self._out:
            self._flush()
            if not self._out and not self._closed:
                self._loop.watch(self._sock, self._ready)
        if not mask & 1 or self._closed:
            return
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        self._in += data
        self._parse()

    def _receive(self) -> bytes:
        """What has come, with its kernel receive time: which requests came together mustn't hang on our own delays."""
        if not _TIMESTAMPS:
            self._arrived_ns = time.time_ns()
            return self._sock.recv(262_144)
        data, ancillary, _, _ = self._sock.recvmsg(262_144, _ANCILLARY_SIZE)
        if ancillary:
            seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary[0][2])
            self._arrived_ns = seconds * 1_000_000_000 + nanoseconds
        else:
            self._arrived_ns = time.time_ns()
        return data

    def _parse(self) -> None:
        if self._request is not None or self._closed or self._closing:
            return
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            if len(self._in) > _MAX_HEAD:
                self._refuse(431)
            return
        try:
            first, *lines = self._in[:end].decode("latin-1").split("\r\n")
            method, target, version = first.split(" ")
            headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
            length = int(headers.get("content-length", "0"))
        except ValueError:
            self._refuse(400)
            return
        if "transfer-encoding" in headers:
            self._refuse(411)
            return
        if not 0 <= length <= _MAX_BODY:
            self._refuse(413)
            return
        if len(self._in) < end + 4 + length:
            if headers.pop("expect", "").lower() == "100-continue" and len(self._in) == end + 4:
                self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._in[end + 4 : end + 4 + length])
        del self._in[: end + 4 + length]
        keep_alive = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        path, _, query = target.partition("?")
        self._request = Request(method, path, query, headers, body, keep_alive, self._arrived_ns)
        self._on_request(self, self._request)

    def _refuse(self, status: int) -> None:
        self._in.clear()
        self._request = Request("", "", "", {}, b"", keep_alive=False)
        self.respond(status, json.dumps({"detail": HTTPStatus(status).phrase}).encode())

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.forget(self._sock)
        self._sock.close()
        lost, self.on_lost = self.on_lost, None
        if lost:
            lost()


def _awkward(chunk: bytes, turn: int) -> int:
    """Where a chunk is cut: inside a character of several bytes if it has one, else in turn at a nasty place."""
    for at, byte in enumerate(chunk):
        if byte & 0xC0 == 0x80:
            return at
    places = (chunk.find(b"data:") + 5, 1, chunk.find(b'"text":"') + 9, len(chunk) - 3, chunk.find(b"token_ids") + 12)
    return min(max(places[turn % len(places)], 1), len(chunk) - 1)
