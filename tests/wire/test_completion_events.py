"""Completions from hostile events, by the numbers of the hostile cases."""

from typing import Any

import pytest

from harness.wire.completion import Reason, parse_completion
from tests.wire.build import (
    DONE,
    ERROR,
    GOOD,
    GOOD_TEXT,
    answer,
    chunk,
    chunked,
    cut,
    event,
    exchange,
    inserted,
    parse,
    replaced,
    sized,
    until_close,
)

# B. SSE and HTTP parsing


@pytest.mark.parametrize(
    "make", [chunked, lambda pieces: sized(b"".join(pieces)), until_close], ids=["chunked", "sized", "close"]
)
def test_20_21_every_split_point_gives_the_same_completion(make: Any) -> None:
    data = b"".join(
        make(answer(chunk([1], "the"), chunk([2], " the\u00e9\u2028"), chunk([3], " ", finish="stop"), n=3))
    )
    for place in range(1, len(data)):
        got = parse_completion(exchange(cut(data, [place])))
        assert (got.complete, got.token_ids, got.text) == (True, (1, 2, 3), "the the\u00e9\u2028 "), place


def test_21_an_event_is_stamped_when_its_last_byte_came() -> None:
    data = b"".join(chunked(GOOD))
    got = parse_completion(exchange(cut(data, range(len(data))), at_ms=[float(i) for i in range(len(data))]))
    ends = [data.index(piece) + len(piece) - 1 for piece in GOOD[:3]]
    assert got.complete
    assert got.chunk_ns == tuple(end * 1_000_000 for end in ends)


def test_22_a_character_split_over_reads_is_whole() -> None:
    data = b"".join(chunked(answer(chunk([1], "é", finish="stop"), n=1)))
    got = parse_completion(exchange(cut(data, [data.index(b"\xc3") + 1])))
    assert (got.complete, got.text) == (True, "é")


def test_22_the_servers_own_replacement_character_is_kept() -> None:
    assert parse(answer(chunk([1], "\ufffd", finish="stop"), n=1)).text == "\ufffd"


def test_22_bytes_that_are_not_utf8_are_an_invalid_row_with_what_came_before() -> None:
    got = parse(inserted(2, b"data: \xff\n\n"))
    assert (got.reason, got.token_ids) == (Reason.BAD_UTF8, (5, 6, 7))
    whole = parse([b"".join(inserted(2, b"data: \xff\n\n"))])
    assert (whole.reason, whole.token_ids) == (Reason.BAD_UTF8, (5, 6, 7))


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x7f", "\u00a0"])
def test_23_unicode_line_ends_inside_json_end_nothing(char: str) -> None:
    got = parse(answer(chunk([1], f"a{char}b", finish="stop"), n=1))
    assert (got.complete, got.text) == (True, f"a{char}b")


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c"])
def test_23_raw_control_characters_are_one_event_of_bad_json(char: str) -> None:
    raw = chunk([6, 7], "b c").replace(b"b c", f"b{char}c".encode())
    got = parse(replaced(1, raw))
    assert (got.reason, got.token_ids) == (Reason.BAD_JSON, (5, 8))
    assert "event 2 " in got.detail


@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_24_every_line_end_is_accepted_at_every_split(end: bytes) -> None:
    data = b"".join(chunked([piece.replace(b"\n", end) for piece in GOOD]))
    for place in range(1, len(data)):
        got = parse_completion(exchange(cut(data, [place])))
        assert (got.complete, got.text) == (True, GOOD_TEXT)


def test_25_all_fields_of_the_sse_rules_are_accepted() -> None:
    first = GOOD[0].replace(b"data: ", b": ping\n\nid: 1\nretry: 5\nevent: chunk\ndata:")
    second = GOOD[1].replace(b', "object"', b',\ndata: "object"')
    assert second != GOOD[1]
    got = parse([b"\xef\xbb\xbf", first, second, *GOOD[2:]])
    assert (got.complete, got.text) == (True, GOOD_TEXT)


ERRORS = {
    "object": ERROR,
    "words": event({"error": "EngineCore died"}),
    "old vllm": event({"object": "error", "message": "EngineCore died", "code": 500}),
    "event field": b"event: error\ndata: EngineCore died\n\n",
    "event field with json": b'event: error\ndata: {"message": "EngineCore died"}\n\n',
    "inside a chunk": event({"id": "cmpl-1", "choices": [], "error": {"message": "EngineCore died"}}),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("tokens", [0, 2])
@pytest.mark.parametrize("ending", [[DONE], [], GOOD[2:]], ids=["done", "cut", "goes on"])
def test_27_an_error_event_fails_the_row_and_its_message_is_kept(
    error: bytes, tokens: int, ending: list[bytes]
) -> None:
    for last in (True, False):
        got = parse_completion(exchange(chunked([*GOOD[:tokens], error, *ending], last=last)))
        assert got.reason is Reason.ERROR_EVENT
        assert "EngineCore died" in got.detail
        assert got.token_ids == (5, 6, 7)[: 3 if tokens else 0] + ((8,) if ending == GOOD[2:] else ())


def test_27_an_error_after_done_is_an_error() -> None:
    assert parse([*GOOD, ERROR]).reason is Reason.ERROR_EVENT


def test_27_the_finish_reason_error_is_an_error() -> None:
    assert parse(replaced(2, chunk([8], "", finish="error"))).reason is Reason.ERROR_EVENT


def test_27_a_long_error_message_is_bounded_and_has_no_control_characters() -> None:
    got = parse([event({"error": {"message": "\x1b[2J bad\n" + "y" * 10**6}}), DONE])
    assert len(got.detail) == 300
    assert got.detail.isprintable()
    assert "bad yyy" in got.detail


def test_27_a_null_error_is_none() -> None:
    value = {
        "id": "cmpl-1",
        "error": None,
        "choices": [{"index": 0, "text": "a", "token_ids": [1], "finish_reason": "stop"}],
    }
    assert parse(answer(event(value), n=1)).complete


BAD_JSON = {
    "cut": b'data: {"choices":[{\n\n',
    "empty": b"data:\n\n",
    "nan": GOOD[1].replace(b'"created": 1', b'"created": NaN'),
    "infinity": GOOD[1].replace(b'"created": 1', b'"created": -Infinity'),
    "deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "deep and closed": b"data: " + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n\n",
    "endless number": b"data: " + b"9" * 5000 + b"\n\n",
    "two values": b"data: {}{}\n\n",
    "python": b"data: {'choices': []}\n\n",
    "done in lower case": b"data: [done]\n\n",
}


@pytest.mark.parametrize("piece", BAD_JSON.values(), ids=BAD_JSON)
def test_28_malformed_json_is_an_invalid_row_and_good_events_are_kept(piece: bytes) -> None:
    got = parse(inserted(1, piece))
    assert (got.reason, got.token_ids, got.text) == (Reason.BAD_JSON, (5, 6, 7, 8), GOOD_TEXT)
    assert "event 2 " in got.detail


def with_choice(**fields: Any) -> bytes:
    return event({"id": "cmpl-1", "choices": [{"index": 0, "text": "", "token_ids": [1], **fields}]})


BAD_EVENT = {
    "number": event(5),
    "string": event("[DONE]"),
    "null": event(None),
    "list": event([1]),
    "no choices": event({"id": "cmpl-1"}),
    "choices null": event({"id": "cmpl-1", "choices": None}),
    "choices object": event({"id": "cmpl-1", "choices": {}}),
    "choice number": event({"id": "cmpl-1", "choices": [1]}),
    "ids string": with_choice(token_ids="12"),
    "ids empty string": with_choice(token_ids=""),
    "ids object": with_choice(token_ids={"1": 2}),
    "ids false": with_choice(token_ids=False),
    "id float": with_choice(token_ids=[1.0]),
    "id true": with_choice(token_ids=[True]),
    "id null": with_choice(token_ids=[None]),
    "id string": with_choice(token_ids=["1"]),
    "id list": with_choice(token_ids=[[1]]),
    "id negative": with_choice(token_ids=[-1]),
    "id huge": with_choice(token_ids=[10**30]),
    "prompt ids": with_choice(prompt_token_ids=[-1]),
    "text number": with_choice(text=1),
    "text list": with_choice(text=[]),
    "half a surrogate pair": b'data: {"id":"cmpl-1","choices":[{"index":0,"text":"\\ud83d","token_ids":[1]}]}\n\n',
    "finish number": with_choice(finish_reason=1),
    "index string": with_choice(index="0"),
    "index true": with_choice(index=True),
    "stream id number": event({"id": 1, "choices": []}),
    "usage list": event({"id": "cmpl-1", "choices": [], "usage": []}),
    "usage empty": event({"id": "cmpl-1", "choices": [], "usage": {}}),
    "usage true": event({"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": True}}),
    "usage float": event({"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1.5}}),
    "usage negative": event({"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": 1}}),
}


@pytest.mark.parametrize("piece", BAD_EVENT.values(), ids=BAD_EVENT)
def test_28_json_of_another_shape_is_a_bad_event(piece: bytes) -> None:
    # without a first good chunk, so that nothing but the shape can be wrong
    got = parse([piece, *answer(chunk([1], "a", finish="stop"), n=2)])
    assert got.reason is Reason.BAD_EVENT
    assert got.text.encode()
