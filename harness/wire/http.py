"""HTTP/1.1 framing of a captured exchange, offline: the answer's status, headers and body pieces with their times.

h11 reads the framing. Pure: any bytes whatever end in a :class:`HttpResponse`, never in an exception.
"""

import bisect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import h11

from harness.wire.exchange import Ending, Exchange

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")

MAX_HEAD_BYTES = 64 * 1024
"""Longest status line with headers, interim answers included, in bytes."""


@dataclass(slots=True)
class HttpResponse:
    """One answer. ``headers`` have lower-case names; ``body`` holds (arrival in ns after t0, bytes) in order."""

    status: int | None = None
    """None when no final status line with its headers came"""
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: list[tuple[int, bytes]] = field(default_factory=list)
    complete: bool = False
    """the body ended as its framing says: last chunk, Content-Length reached, or end of file where that is the end"""
    trailing: bytes = b""
    """bytes after the end of the message"""
    error: str = ""
    """why the bytes aren't HTTP/1.1, empty when they are"""

    def values(self, name: str) -> list[str]:
        """All values of a header, ``name`` in lower case."""
        return [value for key, value in self.headers if key == name]


def decode_response(exchange: Exchange) -> HttpResponse:
    """The final answer in ``exchange`` (1xx answers are skipped). A piece of body keeps the time of its own read."""
    ended = exchange.ending in (Ending.CLOSED, Ending.DONE)
    if exchange.framing == "body":
        headers = [(name.lower(), value) for name, value in exchange.headers]
        error = "no status was recorded" if ended and exchange.status is None else ""
        return HttpResponse(exchange.status, headers, list(_reads(exchange)), complete=ended, error=error)

    regular = read_regular(exchange)
    return read_by_h11(exchange) if regular is None else regular


def read_by_h11(exchange: Exchange) -> HttpResponse:
    """The whole framing by h11: right for everything, 8 µs an event."""
    ended = exchange.ending in (Ending.CLOSED, Ending.DONE)
    response = HttpResponse()
    try:
        _read(exchange, response)
    except h11.ProtocolError as error:
        response.error = _words(exchange.data, str(error))
        response.complete = False
    if response.error or response.complete:
        return response
    if response.status is None:
        if ended:
            what = "after part of the headers" if exchange.data else "without an answer"
            response.error = f"the connection ended {what}"
    elif not (response.values("content-length") or response.values("transfer-encoding")):
        # neither header: the end of file is the end of the body (RFC 9112 section 6.3, rule 8)
        response.complete = exchange.ending is Ending.CLOSED
    return response


def read_regular(exchange: Exchange) -> HttpResponse | None:
    """The usual answer, ten times faster: one head, plain chunks, the last chunk; None for anything else.

    h11 reads the head here too. A ladder of twenty passes has 300,000 events, whose framing is always the same.
    """
    data = exchange.data
    start = data.find(b"\r\n\r\n") + 4
    if start < 4 or start > MAX_HEAD_BYTES or sum(exchange.sizes) != len(data):
        return None
    head = HttpResponse()
    try:
        _read(Exchange(b"", 0, 0, exchange.ending, data=data[:start], sizes=[start], at_ns=[0]), head)
    except h11.ProtocolError:
        return None
    if head.status is None or head.complete or head.values("content-length"):
        return None
    if [value.lower() for value in head.values("transfer-encoding")] != ["chunked"]:
        return None
    ends, times = list(itertools.accumulate(exchange.sizes)), arrivals_ns(exchange)
    read, body = bisect.bisect_right(ends, start), head.body
    while True:
        size_line = _SIZE_LINE.match(data, start)
        if size_line is None:
            return None
        start, size = size_line.end(), int(size_line[1], 16)
        end = start + size
        if data[end : end + 2] != b"\r\n":
            return None
        if not size:
            head.complete, head.trailing = True, data[end + 2 :]
            return head
        while start < end:
            while ends[read] <= start:
                read += 1
            cut = min(end, ends[read])
            body.append((times[read], data[start:cut]))
            start = cut
        start = end + 2


def arrivals_ns(exchange: Exchange) -> list[int]:
    """When each read's bytes were there: none before what precedes it.

    What came behind a lost segment waits for it, though the kernel keeps its own, earlier stamp.
    """
    return list(itertools.accumulate(exchange.at_ns, max))


def _reads(exchange: Exchange) -> Iterator[tuple[int, bytes]]:
    """Reads that brought bytes, each with its time; bytes without a recorded read count as the last one's."""
    start = 0
    for size, at_ns in zip(exchange.sizes, arrivals_ns(exchange), strict=False):
        if size > 0:
            yield at_ns, exchange.data[start : start + size]
            start += size
    if start < len(exchange.data):
        yield exchange.end_ns, exchange.data[start:]


def _read(exchange: Exchange, response: HttpResponse) -> None:
    # The head check below and the capture itself bound what is unfinished; h11's own bound would make the verdict
    # depend on how the bytes were cut into reads.
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 62)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "server"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    reads = _reads(exchange)
    body = response.body
    fed = 0
    for at_ns, data in reads:
        fed += len(data)
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if type(event) is h11.Data:
                body.append((at_ns, bytes(event.data)))
            elif type(event) is h11.Response:
                _check_head(fed - len(connection.trailing_data[0]))
                response.status = event.status_code
                response.headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers]
            elif type(event) is h11.EndOfMessage:
                response.complete = True
                response.trailing = connection.trailing_data[0] + b"".join(rest for _, rest in reads)
                return
            elif type(event) is not h11.InformationalResponse:
                break
        if response.status is None:
            _check_head(fed)


def _words(data: bytes, words: str) -> str:
    """What h11 says of bytes that came in one read: what it says of several depends on where they were cut."""
    try:
        _read(Exchange(b"", 0, 0, Ending.CLOSED, data=data, sizes=[len(data)], at_ns=[0]), HttpResponse())
    except h11.ProtocolError as error:
        words = str(error)
    return words


def _check_head(size: int) -> None:
    if size > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError(f"the headers are longer than {MAX_HEAD_BYTES} bytes")
