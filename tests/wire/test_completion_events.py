"""Completions from hostile events, by the numbers of the hostile cases."""

from typing import Any

import pytest

from harness.wire import chunks
from harness.wire.completion import Reason, parse_completion
from tests.wire.build import (
    DONE,
    ERROR,
    GOOD,
    GOOD_TEXT,
    answer,
    chunk,
    chunked,
    counts,
    cut,
    event,
    exchange,
    inserted,
    parse,
    replaced,
    sized,
    until_close,
    usage,
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
    "deep": b"data: " + b"[" * 60_000 + b"\n\n",
    "deep and closed": b"data: " + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"\n\n",
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


@pytest.mark.parametrize(("lists", "read"), [(40_000, True), (116_500, False)])
def test_28_an_event_that_would_take_far_more_memory_than_bytes_is_not_read(lists: int, read: bool) -> None:
    """A list of empty lists takes thirty times its text."""
    data = b'data: {"choices": [' + b",".join([b"[]"] * lists) + b"]}\n\n"
    got = parse([data, *GOOD])
    assert got.reason is (Reason.BAD_EVENT if read else Reason.LINE_TOO_LONG)
    assert read or got.detail == "event 1 would take 12 MiB to read"
    assert got.token_ids == (5, 6, 7, 8), "what came beside it is kept"


@pytest.mark.parametrize(("lists", "read"), [(113_300, True), (113_400, False)])
def test_twelve_mebibytes_are_the_most_that_an_event_may_take(lists: int, read: bool) -> None:
    got = parse([b'data: {"choices": [' + b",".join([b"[]"] * lists) + b"]}\n\n", *GOOD])
    assert (got.reason is Reason.BAD_EVENT) is read


def test_the_cost_of_a_chunk_is_its_text_its_numbers_and_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"a":[1,2]}'
    assert chunks._cost(text) == text.__sizeof__() + 36 * 1 + 72 * 5
    long = GOOD[0].replace(b'"cmpl-1"', b'"' + b"x" * 70_000 + b'"')
    cost = chunks._cost(long[6:-2].decode())
    for most, read in ((cost, True), (cost - 1, False)):
        monkeypatch.setattr(chunks, "MAX_COST", most)
        assert (parse([long, *GOOD[1:]]).reason is Reason.LINE_TOO_LONG) is not read


@pytest.mark.parametrize(("token", "valid"), [(2**31 - 1, True), (2**31, False)])
def test_the_greatest_token_id(token: int, valid: bool) -> None:
    assert parse(answer(chunk([token], "a", finish="stop"), n=1)).complete is valid


@pytest.mark.parametrize(("count", "valid"), [(2**53 - 1, True), (2**53, False)])
def test_the_greatest_count(count: int, valid: bool) -> None:
    said = event({"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 4}})
    got = parse([*GOOD[:-2], said, DONE])
    assert got.complete is valid
    assert (got.usage is not None and got.usage.prompt_tokens == count) is valid


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (with_choice(token_ids="12"), "event 1 isn't a completion chunk: token_ids is not a list"),
        (with_choice(token_ids=[-1]), "event 1 isn't a completion chunk: token_ids holds something that is not"),
        (with_choice(prompt_token_ids=""), "event 1 isn't a completion chunk: prompt_token_ids is not a list"),
        (b"data: {\n\n", "event 1 isn't JSON: Expecting property name enclosed in double quotes"),
        (b"data: " + b"[" * 5000 + b"\n\n", "event 1 isn't JSON: it is nested too deeply"),
    ],
)
def test_28_what_is_wrong_is_told(piece: bytes, words: str) -> None:
    assert parse([piece, *GOOD]).detail.startswith(words)


def test_a_chunk_without_a_stream_id_belongs_to_the_stream() -> None:
    for nothing in (b'"id": null', b'"other": 1'):
        assert parse(replaced(1, GOOD[1].replace(b'"id": "cmpl-1"', nothing))).complete


def test_two_choices_of_one_index_are_many_and_both_are_kept() -> None:
    choice = {"index": 0, "text": "x", "token_ids": [1]}
    got = parse([event({"id": "cmpl-1", "choices": [choice, choice]}), *GOOD])
    assert got.reason is Reason.MANY_CHOICES and got.detail == "event 1 has 2 choices"
    assert got.token_ids == (1, 1, 5, 6, 7, 8)
    other = parse([event({"id": "cmpl-1", "choices": [{**choice, "index": 1}, choice]}), *GOOD])
    assert other.token_ids == (1, 5, 6, 7, 8), "what stands behind another choice is kept"


def test_what_is_buffered_is_counted_by_chunks() -> None:
    pieces = [chunk([], "a", usage=counts(1)), chunk([5], "", usage=counts(1)), chunk([6], "b", finish="stop")]
    assert parse(answer(*pieces, n=2)).notes == ("buffered: in 1 chunks usage counts tokens whose ids hadn't come",)


def test_usage_that_disagrees_is_told_with_both() -> None:
    got = parse([*GOOD[:-1], usage(4, cached=2), DONE])
    assert got.detail == "two usage objects disagree: 3 + 4 tokens (0 cached), then 3 + 4 tokens (2 cached)"


@pytest.mark.parametrize(("spaces", "said"), [(1198, "a b"), (1199, "a")])
def test_words_are_taken_from_the_first_1200_characters(spaces: int, said: str) -> None:
    assert chunks.words("a" + " " * spaces + "b") == said
