"""Completions from hostile endings and other answers, by the numbers of the hostile cases."""

from typing import Any

import pytest

from harness.wire.completion import Completion, Reason, Usage, parse_completion
from harness.wire.exchange import Ending
from tests.wire.build import (
    DONE,
    ERROR,
    GOOD,
    GOOD_TEXT,
    HEAD,
    answer,
    chunk,
    chunked,
    counts,
    event,
    exchange,
    inserted,
    named,
    page,
    parse,
    replaced,
    sized,
    until_close,
    usage,
)


def test_29_finish_without_done() -> None:
    assert parse(GOOD[:3]).reason is Reason.DONE_MISSING
    got = parse(GOOD[:4])
    assert (got.reason, got.usage) == (Reason.DONE_MISSING, Usage(3, 4, 0))


def test_29_a_done_without_its_blank_line_is_no_done() -> None:
    assert parse([*GOOD[:4], DONE[:-1]]).reason is Reason.DONE_MISSING
    assert parse([*GOOD[:4], b"data: [DONE]"]).reason is Reason.DONE_MISSING


def test_29_end_of_file_in_mid_stream() -> None:
    for pieces in (GOOD[:2], [*GOOD[:2], GOOD[2][:30]]):
        got = parse(pieces)
        assert (got.reason, got.token_ids, got.text) == (Reason.STREAM_CUT, (5, 6, 7), GOOD_TEXT)
        assert parse_completion(exchange(until_close(pieces))).reason is Reason.STREAM_CUT


def test_29_an_empty_stream_is_cut() -> None:
    assert parse([]).reason is Reason.STREAM_CUT


def test_29_done_without_finish_reason() -> None:
    assert parse(replaced(2, chunk([8], ""))).reason is Reason.FINISH_MISSING


def test_29_reset_in_mid_stream() -> None:
    got = parse_completion(
        exchange(chunked(GOOD[:2], last=False), ending=Ending.RESET, detail="Connection reset by peer")
    )
    assert (got.reason, got.token_ids) == (Reason.RESET, (5, 6, 7))
    assert "Connection reset by peer" in got.detail


@pytest.mark.parametrize("kept", [0, 2, 3, 5])
def test_29_a_chunked_body_without_its_last_chunk_is_truncated(kept: int) -> None:
    got = parse_completion(exchange(chunked(GOOD[:kept], last=False)))
    assert got.reason is Reason.TRUNCATED_BODY


def test_29_half_a_last_chunk_is_no_last_chunk() -> None:
    writes = [*chunked(GOOD, last=False), b"0\r\n"]
    assert parse_completion(exchange(writes)).reason is Reason.TRUNCATED_BODY
    assert parse_completion(exchange([*writes, b"\r\n"])).complete


def test_29_vllms_normal_ending_is_no_false_alarm() -> None:
    merged = answer(chunk([1, 2], "ab", finish="length"), n=2)
    apart = answer(chunk([1, 2], "ab"), chunk([], "", finish="length"), n=2)
    null = answer(chunk([1, 2], "ab"), chunk(None, "", finish="length"), n=2)
    for pieces in (merged, apart, null):
        assert parse(pieces).complete


@pytest.mark.parametrize("finish", ["abort", "tool_calls", "", "content_filter", "Stop"])
def test_29_only_stop_and_length_are_endings(finish: str) -> None:
    got = parse(replaced(2, chunk([8], "", finish=finish)))
    assert (got.reason, got.finish_reason) == (Reason.FINISH_UNEXPECTED, finish)


def test_29_two_finish_reasons_must_agree() -> None:
    assert parse(inserted(3, chunk([], "", finish="length"))).reason is Reason.FINISH_UNEXPECTED
    assert parse(inserted(3, chunk([], "", finish="stop"))).complete


@pytest.mark.parametrize(
    "writes", [chunked(GOOD), chunked(GOOD, last=False), until_close(GOOD), sized(b"".join(GOOD), length=9999)]
)
def test_30_a_connection_left_open_after_done_is_complete_with_a_note(writes: list[bytes]) -> None:
    got = parse_completion(exchange(writes, ending=Ending.DONE))
    assert got.complete
    assert named(got, "left-open")


def test_30_a_connection_left_open_before_done_is_not_complete() -> None:
    assert parse_completion(exchange(chunked(GOOD[:4], last=False), ending=Ending.DONE)).reason is Reason.TRUNCATED_BODY
    assert parse_completion(exchange(chunked(GOOD[:4]), ending=Ending.DONE)).reason is Reason.DONE_MISSING


AFTER = {
    "event": GOOD[1],
    "second done": DONE,
    "comment": b": bye\n\n",
    "garbage": b"x",
    "field": b"id: 1\n",
    "usage": usage(4),
}


@pytest.mark.parametrize("piece", AFTER.values(), ids=AFTER)
def test_30_anything_after_done_is_invalid(piece: bytes) -> None:
    got = parse([*GOOD, piece])
    assert (got.reason, got.token_ids, got.text) == (Reason.AFTER_DONE, (5, 6, 7, 8), GOOD_TEXT)
    assert parse_completion(exchange([*chunked(GOOD), piece])).reason is Reason.AFTER_DONE
    assert parse_completion(exchange(until_close([*GOOD, piece]))).reason is Reason.AFTER_DONE


def test_30_blank_lines_after_done_are_fine() -> None:
    assert parse([*GOOD, b"\n\r\n  \n"]).complete


def test_30_a_second_answer_on_the_connection_is_after_done() -> None:
    assert parse_completion(exchange([*chunked(GOOD), *chunked(GOOD)])).reason is Reason.AFTER_DONE


def test_32_a_usage_only_chunk_is_handled_and_null_usage_is_ignored() -> None:
    value = {
        "id": "cmpl-1",
        "choices": [{"index": 0, "text": "a", "token_ids": [1], "finish_reason": "stop"}],
        "usage": None,
    }
    assert parse(answer(event(value), n=1)).usage == Usage(3, 1, 0)


def test_34_missing_usage() -> None:
    assert parse([*GOOD[:3], DONE]).reason is Reason.USAGE_MISSING
    assert (
        parse([*GOOD[:3], event({"id": "cmpl-1", "choices": [], "usage": None}), DONE]).reason is Reason.USAGE_MISSING
    )


def test_34_repeated_usage_must_be_equal() -> None:
    same = parse(inserted(3, usage(4)))
    assert same.complete
    assert named(same, "usage-repeated")
    for other in (usage(3), usage(4, prompt=4), usage(4, cached=1), usage(4, cached=None)):
        assert parse(inserted(3, other)).reason is Reason.USAGE_CONFLICT


def test_34_running_usage_must_not_fall_or_change_its_prompt() -> None:
    def running(completion: int, prompt: int) -> Completion:
        return parse([*GOOD[:2], chunk([8], "", finish="stop", usage=counts(completion, prompt)), usage(4), DONE])

    assert running(4, 3).complete
    assert running(5, 3).reason is Reason.USAGE_CONFLICT
    assert running(4, 2).reason is Reason.USAGE_CONFLICT


@pytest.mark.parametrize("cached", [None, "0", 0.0, False, True, [], -1])
def test_34_cached_tokens_that_are_no_count_are_none_and_never_zero(cached: Any) -> None:
    got = parse([*GOOD[:3], usage(4, cached=cached), DONE])
    assert got.complete
    assert got.usage is not None
    assert got.usage.cached_tokens is None


@pytest.mark.parametrize(
    "details", [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}, {"prompt_tokens_details": []}]
)
def test_34_absent_cached_tokens_are_none(details: dict[str, Any]) -> None:
    value = {"prompt_tokens": 3, "completion_tokens": 4, **details}
    got = parse([*GOOD[:3], event({"id": "cmpl-1", "choices": [], "usage": value}), DONE])
    assert (got.complete, got.usage) == (True, Usage(3, 4, None))


def test_35_a_truncated_body_keeps_its_partial_text() -> None:
    got = parse_completion(exchange(sized(b"".join(GOOD[:2]), length=9999)))
    assert (got.reason, got.token_ids, got.text) == (Reason.TRUNCATED_BODY, (5, 6, 7), GOOD_TEXT)
    assert parse_completion(exchange(sized(b"".join(GOOD), length=9999))).reason is Reason.TRUNCATED_BODY


STREAM = b"".join(GOOD)


@pytest.mark.parametrize(
    ("writes", "reason", "words"),
    [
        (page("200 OK", "text/html", b"<html>hello</html>"), Reason.NOT_EVENT_STREAM, "text/html"),
        (page("200 OK", "application/json", b'{"choices": []}'), Reason.NOT_EVENT_STREAM, "application/json"),
        (page("200 OK", "text/event-stream; charset=latin-1", STREAM), Reason.NOT_EVENT_STREAM, "latin-1"),
        (page("200 OK", "text/event-streams", STREAM), Reason.NOT_EVENT_STREAM, "text/event-streams"),
        (sized(STREAM, head=b"HTTP/1.1 200 OK\r\n"), Reason.NOT_EVENT_STREAM, "absent"),
        (page("200 OK", "text/event-stream", STREAM, "content-encoding: gzip"), Reason.CONTENT_ENCODING, "gzip"),
        (
            page("200 OK", "text/event-stream", b"\x1f\x8b\x08\x00\xff", "content-encoding: gzip"),
            Reason.CONTENT_ENCODING,
            "gzip",
        ),
        (page("200 OK", "text/event-stream", STREAM, "content-encoding: identity, br"), Reason.CONTENT_ENCODING, "br"),
        (page("503 Service Unavailable", "text/plain", b"loading"), Reason.HTTP_STATUS, "HTTP 503: loading"),
        (
            page("429 Too Many", "application/json", b'{"error":"slow down"}', "retry-after: 5"),
            Reason.HTTP_STATUS,
            "429",
        ),
        (page("400 Bad Request", "text/event-stream", STREAM), Reason.HTTP_STATUS, "400"),
        (page("201 Created", "text/event-stream", STREAM), Reason.HTTP_STATUS, "201"),
        (page("500 Oops", "text/html", b"\xff\x00\x1b[2J" * 10_000), Reason.HTTP_STATUS, "500"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], Reason.HTTP_STATUS, "204: no body"),
        ([b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"], Reason.HTTP_STATUS, "302"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], Reason.BAD_HTTP, "HTTP/1.1"),
        ([b"HTTP/1.1 200 OK\r\n"], Reason.BAD_HTTP, "part of the headers"),
        ([], Reason.BAD_HTTP, "without an answer"),
    ],
)
def test_36_answers_of_another_kind_are_named(writes: list[bytes], reason: Reason, words: str) -> None:
    got = parse_completion(exchange(writes))
    assert got.reason is reason
    assert words in got.detail
    assert len(got.detail) <= 300
    assert got.detail.isprintable()


@pytest.mark.parametrize(
    "kind", ["text/event-stream", "Text/Event-Stream;charset=UTF-8", 'text/event-stream; charset="utf8"; x=y']
)
def test_36_event_stream_with_parameters_is_accepted(kind: str) -> None:
    assert parse_completion(exchange(page("200 OK", kind, STREAM, "content-encoding: identity"))).complete


def test_36_a_503_and_then_a_200_on_one_connection_is_the_503() -> None:
    got = parse_completion(exchange([*page("503 Busy", "text/plain", b"x"), *chunked(GOOD)]))
    assert (got.reason, got.status, got.token_ids) == (Reason.HTTP_STATUS, 503, ())


def test_36_a_broken_chunk_keeps_the_ids_before_it() -> None:
    got = parse_completion(exchange([*chunked(GOOD[:2], last=False), b"zz\r\n"]))
    assert (got.reason, got.token_ids) == (Reason.BAD_HTTP, (5, 6, 7))


# D. hangs, death, connections


FAILED = {
    Ending.RESET: Reason.RESET,
    Ending.CONNECT_FAILED: Reason.CONNECT_FAILED,
    Ending.CONNECT_TIMEOUT: Reason.CONNECT_TIMEOUT,
    Ending.SEND_FAILED: Reason.SEND_FAILED,
    Ending.FIRST_BYTE_TIMEOUT: Reason.FIRST_BYTE_TIMEOUT,
    Ending.IDLE_TIMEOUT: Reason.IDLE_TIMEOUT,
    Ending.TOTAL_TIMEOUT: Reason.TOTAL_TIMEOUT,
    Ending.INTERRUPTED: Reason.INTERRUPTED,
}


@pytest.mark.parametrize("ending", FAILED)
def test_49_50_a_failed_ending_names_the_row_and_keeps_what_came(ending: Ending) -> None:
    got = parse_completion(exchange([], ending=ending, detail="in the system's words"))
    assert (got.reason, got.status, got.first_byte_ns) == (FAILED[ending], None, None)
    assert "in the system's words" in got.detail
    for kept in (0, 2, 5):
        got = parse_completion(exchange(chunked(GOOD[:kept], last=False), ending=ending))
        assert (got.reason, got.token_ids) == (FAILED[ending], (5, 6, 7, 8)[: (0, 1, 3, 4, 4, 4)[kept]])
    assert parse_completion(exchange(until_close(GOOD), ending=ending)).reason is FAILED[ending]


@pytest.mark.parametrize("ending", FAILED)
def test_49_a_failure_after_the_whole_answer_spoils_nothing(ending: Ending) -> None:
    got = parse_completion(exchange(chunked(GOOD), ending=ending))
    assert got.complete
    assert named(got, "late-ending")
    assert parse_completion(exchange(chunked(GOOD[:2]), ending=ending)).reason is Reason.STREAM_CUT
    assert parse_completion(exchange(page("503 Busy", "text/plain", b"x"), ending=ending)).reason is Reason.HTTP_STATUS


def test_49_a_reset_after_an_error_event_still_tells_the_error() -> None:
    got = parse_completion(exchange(chunked([GOOD[0], ERROR], last=False), ending=Ending.RESET))
    assert got.reason is Reason.RESET
    assert "EngineCore died" in got.detail


def test_51_a_first_byte_after_twelve_seconds_is_a_success() -> None:
    got = parse(GOOD, at_ms=[12_000, 12_001, 12_002, 12_003, 12_004, 12_005, 12_006])
    assert (got.complete, got.first_byte_ns) == (True, 12_000_000_000)


def test_59_a_burst_in_one_read_is_noted() -> None:
    chunks = [chunk([i], "x", finish="stop" if i == 9 else None) for i in range(10)]
    head, *rest = chunked(answer(*chunks, n=10))
    held = parse_completion(exchange([head, b"".join(rest)]))
    assert held.complete
    assert named(held, "burst-read")
    assert not named(parse_completion(exchange([head, b"".join(rest[:5]), b"".join(rest[5:])])), "burst-read")
    assert named(parse_completion(exchange([head, b"".join(rest[:4]), b"".join(rest[4:])])), "burst-read")
    assert not named(parse(answer(chunk(range(20), "x", finish="stop"), n=20)), "burst-read")


def test_a_failure_without_words_of_the_system_is_told_without() -> None:
    for detail, words in (("", "token ids"), ("peer", "token ids: peer")):
        cut_off = exchange(chunked(GOOD[:1], last=False), ending=Ending.RESET, detail=detail)
        assert parse_completion(cut_off).detail.endswith(words)


def test_one_content_type_of_two_is_not_enough() -> None:
    got = parse_completion(exchange(chunked(GOOD, head=HEAD + b"content-type: text/html\r\n")))
    assert got.reason is Reason.NOT_EVENT_STREAM
    assert got.detail == "Content-Type is text/event-stream; charset=utf-8, text/html, not text/event-stream in UTF-8"


@pytest.mark.parametrize("coding", [b"", b"identity", b" Identity ", b"identity, "])
def test_no_coding_in_any_spelling_is_none(coding: bytes) -> None:
    assert parse_completion(exchange(chunked(GOOD, head=HEAD + b"content-encoding:" + coding + b"\r\n"))).complete
