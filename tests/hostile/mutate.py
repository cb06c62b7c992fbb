"""Mutations of a captured answer that know its structure: HTTP head, chunks, events, JSON. Seeded, nothing else."""

import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from harness.wire.exchange import Ending, Exchange

HEAD_END = b"\r\n\r\n"
_EVENT = re.compile(rb"\n\n|\r\n\r\n|\r\r")

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**53, 2**63, 10**400, 0.5, -0.0, 1e308, "", "0", "stop", "error"),
    *("\ud800", "é", "\u2028\u2029\x85", "\x00\x1b[2J", "a" * 5000, [], [[]], {}, {"": None}, [0], [1, None], [True]),
    *([-1], [2**31], ["7"], {"message": "died"}, {"prompt_tokens": 1}, "length", "[DONE]"),
]
RAW: list[bytes] = [
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 5000, b"[" * 20_000, b'{"a":' * 20_000, b"'", b"undefined"),
    *(b'"\\ud83d"', b'"\\ude00\\ud83d"', b'"\\', b"", b",", b"01", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"//"),
]
EVENTS: list[bytes] = [
    *(b"data: [DONE]", b"data:[DONE]", b"data: [DONE] ", b": ping", b"", b"data", b"data:", b"data: ", b"id: 1\x00"),
    *(b"retry: x", b"event: error", b'event: error\ndata: {"message":"x"}', b'data: {"error":{"message":"died"}}'),
    *(b'data: {"error":null}', b"data: null", b"data: 1", b"data: []", b"data: {}", b'data: {"object":"error"}'),
    *(b'data: {"choices":[]}', b'data: {"choices":[{}]}', b'data: {"choices":[{},{}]}', b"\xef\xbb\xbf", b" data: x"),
    *(b'data: {"choices":[{\ndata: "token_ids":[5]}]}', b'data: {"choices":[{"delta":{"content":"x"}}]}'),
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
]
HEADERS: list[bytes] = [
    *(b"content-length: 5", b"Content-Length: 0", b"content-length: -1", b"content-length: 5, 5", b"content-length: x"),
    *(
        b"content-length: " + b"9" * 30,
        b"transfer-encoding: gzip",
        b"transfer-encoding: chunked",
        b"x: " + b"y" * 70_000,
    ),
    *(
        b"Transfer-Encoding: Chunked",
        b"content-encoding: gzip",
        b"content-encoding: identity",
        b"content-type: text/html",
    ),
    *(b"content-type: text/event-stream; charset=latin-1", b"content-type: TEXT/EVENT-STREAM", b"retry-after: 1"),
    *(b" folded", b"no colon", b": no name", b"x: \xff", b"x: \x00", b"connection: keep-alive", b"set-cookie: a=b"),
]
STATUS: list[bytes] = [
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable", b"HTTP/1.1 429 Too Many Requests", b"HTTP/1.0 200 OK"),
    *(
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 101 Switching",
        b"HTTP/1.1 999",
        b"HTTP/2 200",
    ),
    *(b"ICY 200 OK", b"HTTP/1.1 2000 X", b"HTTP/1.1 -1 X", b"", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"),
]


def parts(data: bytes) -> tuple[bytes, list[bytes], str]:
    """(head, events, framing) of an answer; what can't be read so is one event."""
    head, end, body = data.partition(HEAD_END)
    if not end:
        return b"", [data], "none"
    framing = "close"
    if b"chunked" in head.lower():
        framing, body = "chunked", unchunk(body)
    elif b"content-length" in head.lower():
        framing = "sized"
    return head, _EVENT.split(body), framing


def shortened(data: bytes, events: int) -> bytes:
    """A long answer as a short one that is as whole: the first events and the ending, counted again."""
    head, found, _ = parts(data)
    if len(found) <= events + 3:
        return data
    kept = found[:events] + found[-4:]
    count = sum(
        len(choice.get("token_ids") or []) for event in kept for choice in (_json_of(event) or {}).get("choices", [])
    )
    kept = [re.sub(rb'"completion_tokens": ?\d+', b'"completion_tokens":%d' % count, event) for event in kept]
    pieces = [event + b"\n\n" for event in kept if event]
    return head + HEAD_END + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def unchunk(body: bytes) -> bytes:
    """The data of plain chunks, as far as they can be read."""
    found = bytearray()
    while True:
        size, end, rest = body.partition(b"\r\n")
        if not end or not re.fullmatch(rb"[0-9A-Fa-f]{1,6}", size) or not int(size, 16):
            return bytes(found)
        found += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]


def together(rng: random.Random, head: bytes, events: Sequence[bytes], framing: str) -> bytes:
    """The bytes of an answer again, framed as asked."""
    end = rng.choice([b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r"])
    pieces = [event + end for event in events[:-1]] + [events[-1]] if events else []
    body = b"".join(pieces)
    if framing == "none":
        return body
    lines = [line for line in head.split(b"\r\n") if not re.match(rb"(?i)(content-length|transfer-encoding)\s*:", line)]
    if framing == "sized":
        lines.append(b"content-length: %d" % (len(body) + rng.choice([0] * 9 + [1, -1])))
    if framing == "chunked":
        lines.append(b"transfer-encoding: chunked")
        sizes = pieces if rng.random() < 0.7 else cuts(rng, body, 8)
        framed = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in sizes if piece]
        if framed and rng.random() < 0.1:
            at = rng.randrange(len(framed))
            framed[at] = odd_chunk(rng, framed[at].partition(b"\r\n")[2][:-2])
        last = rng.choice(
            [b"0\r\n\r\n"] * 30 + [b"", b"0\r\n", b"0\r\nx: y\r\n\r\n", b"0;a=b\r\n\r\n", b"00\r\n\r\nmore"]
        )
        body = b"".join(framed) + last
    return b"\r\n".join(lines) + HEAD_END + body


def odd_chunk(rng: random.Random, piece: bytes) -> bytes:
    """One HTTP chunk, framed oddly or wrongly."""
    size, end = b"%x" % len(piece), b"\r\n"
    what = rng.randrange(3)
    if what == 0:
        size = rng.choice([size.upper(), b"0" + size, size + b";ext=1", size + b" ", b"-1", b"", b"f" * 17, b"g"])
    elif what == 1:
        size = b"%x" % (len(piece) + rng.choice([-1, 1, 7]) if piece else 1)
    else:
        end = rng.choice([b"\n", b"\r", b"", b"\r\r\n"])
    return size + b"\r\n" + piece + end


def cuts(rng: random.Random, data: bytes, most: int) -> list[bytes]:
    """``data`` in up to ``most`` + 1 pieces."""
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(most + 1)))
    bounds = [0, *places, len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(bounds) if stop > start]


# what is done to an answer


def _json_of(event: bytes) -> Any:
    try:
        return json.loads(event.partition(b"data:")[2])
    except (ValueError, RecursionError):
        return None


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside of ``value``."""
    for key in range(len(value)) if isinstance(value, list) else list(value):
        found.append((value, key))
        if isinstance(value[key], list | dict):
            _places(value[key], found)
    return found


def _value(rng: random.Random, events: list[bytes]) -> None:
    at = rng.randrange(len(events))
    value = _json_of(events[at])
    if not isinstance(value, list | dict) or not value:
        return
    container, key = rng.choice(_places(value, []))
    what = rng.random()
    if what < 0.6:
        container[key] = rng.choice(ODD)
    elif what < 0.8:
        del container[key]
    else:
        container[key] = [container[key], container[key]]
    try:
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    except ValueError:
        return
    events[at] = b"data: " + text.encode("utf-8", "surrogatepass")


def _raw_value(rng: random.Random, events: list[bytes]) -> None:
    """Something in place of a number or a word, as no JSON library would write it."""
    at = rng.randrange(len(events))
    found = list(re.finditer(rb"-?\d+|null|true|\"[^\"]*\"", events[at]))
    if found:
        spot = rng.choice(found)
        events[at] = events[at][: spot.start()] + rng.choice(RAW) + events[at][spot.end() :]


def _drop(rng: random.Random, events: list[bytes]) -> None:
    del events[rng.randrange(len(events))]


def _twice(rng: random.Random, events: list[bytes]) -> None:
    at = rng.randrange(len(events))
    events.insert(rng.randrange(len(events) + 1), events[at])


def _swap(rng: random.Random, events: list[bytes]) -> None:
    a, b = rng.randrange(len(events)), rng.randrange(len(events))
    events[a], events[b] = events[b], events[a]


def _insert(rng: random.Random, events: list[bytes]) -> None:
    events.insert(rng.randrange(len(events) + 1), rng.choice(EVENTS))


def _join(rng: random.Random, events: list[bytes]) -> None:
    at = rng.randrange(len(events))
    events[at : at + 2] = [rng.choice([b"\n", b"", b"\r", b"\n\r"]).join(events[at : at + 2])]


def _cut_event(rng: random.Random, events: list[bytes]) -> None:
    at = rng.randrange(len(events))
    events[at] = events[at][: rng.randrange(len(events[at]) + 1)]


def _prefix(rng: random.Random, events: list[bytes]) -> None:
    at = rng.randrange(len(events))
    lead = rng.choice(
        [b"data:", b"data:  ", b"DATA: ", b"event: error\ndata: ", b"data: ", b"\xef\xbb\xbfdata: ", b"data :"]
    )
    events[at] = lead + events[at].removeprefix(b"data: ")


EVENT_CHANGES: list[Callable[[random.Random, list[bytes]], None]] = [
    *([_value] * 6),
    *([_raw_value] * 2),
    *(_drop, _twice, _swap, _insert, _insert, _join, _cut_event, _prefix),
]


def _head(rng: random.Random, head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    what = rng.random()
    if what < 0.3:
        lines[0] = rng.choice(STATUS)
    elif what < 0.7:
        lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(HEADERS))
    elif what < 0.85 and len(lines) > 1:
        del lines[rng.randrange(1, len(lines))]
    else:
        lines.insert(1, rng.choice(lines))
    return b"\r\n".join(lines)


def _bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A change that knows no structure."""
    a = rng.randrange(len(data) + 1)
    b = min(len(data), a + rng.choice([0, 1, 1, 2, 16, 300]))
    what = rng.randrange(5)
    if what == 0:
        return data[:a] + bytes(rng.randrange(256) for _ in range(rng.randrange(4))) + data[b:]
    if what == 1:
        return data[:a]
    if what == 2:
        return data[:b] + data[a:]
    if what == 3:
        return data[:a] + other[rng.randrange(len(other) + 1) :]
    return (
        data[:a]
        + rng.choice([b"\r", b"\n", b"\r\n", b"\x00", b"\xff", b"\xe2\x80\xa8", b"\xc2\x85", b"}", b'"'])
        + data[b:]
    )


def mutated(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """``data`` after a few changes; ``other`` is an answer to take pieces from."""
    if rng.random() < 0.75:
        head, events, framing = parts(data)
        if rng.random() < 0.1:
            events[rng.randrange(len(events) + 1) :] = parts(other)[1]
        for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
            if events:
                rng.choice(EVENT_CHANGES)(rng, events)
        if rng.random() < 0.2:
            head = _head(rng, head)
        if rng.random() < 0.2 and framing != "none":
            framing = rng.choice(["close", "sized", "chunked"])
        data = together(rng, head, events, framing)
    if rng.random() < 0.35:
        for _ in range(rng.choice([1, 1, 2, 5])):
            data = _bytes(rng, data, other)
    return data


def exchange_of(rng: random.Random, data: bytes) -> Exchange:
    """``data`` as reads: cut anywhere, at times that never go back, ended in any way."""
    reads = cuts(rng, data, rng.choice([0, 3, 20, 200]))
    at, times = rng.choice([-50_000, 0, 5_000_000]), []
    for _ in reads:
        at += rng.choice([0, 0, 1, 900, 10_000_000, 2_000_000_000])
        times.append(at)
    ending = Ending.CLOSED if rng.random() < 0.7 else rng.choice(list(Ending))
    end, wall, mono = max(at, 0) + 20_000, 1_700_000_000_000_000_000, 5_000_000_000
    body = rng.random() < 0.05
    return Exchange(
        request=b"POST /v1/completions HTTP/1.1\r\n\r\n",
        t0_wall_ns=wall,
        t0_mono_ns=mono,
        ending=ending,
        data=data,
        sizes=[len(read) for read in reads],
        at_ns=times,
        user_ns=[time + rng.choice([0, 20_000]) for time in times],
        kernel=[rng.random() < 0.9 for _ in reads],
        end_ns=end,
        end_wall_ns=wall + end + rng.choice([0, 0, 0, 0, 600_000, -3_600_000_000_000]),
        end_mono_ns=mono + end,
        framing="body" if body else "http",
        status=rng.choice([None, 200, 200, 500]) if body else None,
        headers=[("Content-Type", "text/event-stream")] if body and rng.random() < 0.8 else [],
    )


def recut(rng: random.Random, exchange: Exchange) -> Exchange:
    """The same bytes, ending and clocks in other reads."""
    reads = cuts(rng, exchange.data, rng.choice([0, 5, 50]))
    at = exchange.at_ns[-1] if exchange.at_ns else 0
    return Exchange(
        request=exchange.request,
        t0_wall_ns=exchange.t0_wall_ns,
        t0_mono_ns=exchange.t0_mono_ns,
        ending=exchange.ending,
        data=exchange.data,
        sizes=[len(read) for read in reads],
        at_ns=[at] * len(reads),
        user_ns=[at] * len(reads),
        kernel=[True] * len(reads),
        end_ns=exchange.end_ns,
        end_wall_ns=exchange.end_wall_ns,
        end_mono_ns=exchange.end_mono_ns,
        framing=exchange.framing,
        status=exchange.status,
        headers=exchange.headers,
    )
