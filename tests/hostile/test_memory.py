"""No line and no event of a stream costs 16 MB, whatever it holds: neither while it is cut nor as values."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from harness.wire.chunks import MAX_COST, Stream
from harness.wire.reason import Reason
from harness.wire.sse import MAX_BYTES, LineTooLong, SseDecoder

LIMIT = 16_000_000
READ = 64 * 1024
ROOM = MAX_BYTES - 64
WIDE = '"😀",'.encode()
"""makes four bytes of every character of its line"""

UNITS = {
    "letters": b"x",
    "characters": "😀".encode(),
    "escapes": rb"\ud83d\ude00",
    "lists": b"[],",
    "nesting": b"[",
    "objects": b"{},",
    "keys": b'{"a":1},',
    "strings": b'"ab",',
    "small numbers": b"1,",
    "numbers": b"999,",
    "fractions": b"1.5,",
    "powers": b"1e9,",
    "nulls": b"null,",
    "long numbers": b"9" * 999 + b",",
}


def filled(unit: bytes, room: int = ROOM) -> bytes:
    return (unit * (room // len(unit))).rstrip(b",")


def cost(stream: Stream, body: bytes) -> int:
    """Most memory held while it is read. Raises what the decoder raises."""
    decoder = SseDecoder()
    pieces = [body[start : start + READ] for start in range(0, len(body), READ)]
    gc.collect()
    tracemalloc.start()
    try:
        for piece in pieces:
            for event in decoder.feed(piece, 0):
                stream.take(event)
        return tracemalloc.get_traced_memory()[1]
    except LineTooLong as error:
        stream.fault(Reason.LINE_TOO_LONG, str(error))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bodies(unit: bytes, wide: bytes) -> Iterator[bytes]:
    """It in one line, in some and in many."""
    yield b"data: [" + wide + filled(unit, ROOM - len(wide)) + b"]\n\n"
    for lines in (2, 10, 1000):
        room = MAX_BYTES // lines - 8 - len(wide)
        yield (b"data:" + wide + filled(unit, room) + b"\n") * lines + b"\n"


@pytest.mark.parametrize("wide", [b"", WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_longest_event_of_anything(unit: bytes, wide: bytes) -> None:
    for body in bodies(unit, wide):
        stream = Stream()
        assert cost(stream, body) < LIMIT
        assert stream.faults, "none of them is an answer"


def context(ids: int, tail: bytes = b"") -> bytes:
    """A first chunk with so many prompt ids of six digits, without spaces, as vLLM writes them."""
    prompt = b",".join([b"248319"] * ids)
    return b'data: {"choices":[{"text":"","prompt_token_ids":[' + prompt + b'],"token_ids":[7]}' + tail + b"]}\n\n"


def test_a_whole_context_of_262_144_ids_is_read() -> None:
    stream = Stream()
    assert cost(stream, context(262_144)) < LIMIT
    assert stream.faults == {} and stream.ids == [7]
    assert stream.prompt_ids is not None and len(stream.prompt_ids) == 262_144


def test_what_would_cost_more_as_values_is_refused_before_it_is_read() -> None:
    stream = Stream()
    assert cost(stream, context(262_144, WIDE.join([b",", b"1"]))) < LIMIT
    assert set(stream.faults) == {Reason.LINE_TOO_LONG}
    assert stream.faults[Reason.LINE_TOO_LONG] == f"event 1 would take {16} MiB to read"
    assert MAX_COST < 16 << 20


def test_a_long_text_of_many_quotes_is_an_answer() -> None:
    """As a server that keeps everything back until its end sends it."""
    stream = Stream()
    text = rb"\"quoted\", and [so] on; " * 4000
    assert cost(stream, b'data: {"choices":[{"text":"' + text + b'","token_ids":[1]}]}\n\n') < LIMIT
    assert stream.faults == {} and len(stream.texts[0]) == len(text) - 2 * 4000
