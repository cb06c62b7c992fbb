"""Completions: tokens, usage and shapes, by the numbers of the hostile cases."""

import json
from pathlib import Path

import pytest

from harness.wire.completion import PRECEDENCE, Reason, Usage, parse_completion
from harness.wire.exchange import Ending
from tests.wire.build import (
    DONE,
    GOOD,
    GOOD_TEXT,
    answer,
    chunk,
    chunked,
    counts,
    event,
    exchange,
    inserted,
    named,
    parse,
    replaced,
    until_close,
    usage,
)

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "vllm-cpu" / "samples"


def test_a_whole_answer_is_complete_with_ids_times_and_usage() -> None:
    got = parse(GOOD, at_ms=[10, 20, 30, 40, 41, 42, 43])
    assert (got.complete, got.reason, got.detail, got.notes) == (True, None, "", ())
    assert (got.status, got.stream_id, got.finish_reason) == (200, "cmpl-1", "stop")
    assert (got.token_ids, got.prompt_token_ids, got.text) == ((5, 6, 7, 8), (1, 2, 3), GOOD_TEXT)
    assert (got.chunk_ns, got.chunk_sizes) == ((20_000_000, 30_000_000, 40_000_000), (1, 2, 1))
    assert got.usage == Usage(3, 4, 0)
    assert (got.first_byte_ns, got.first_event_ns, got.end_ns) == (10_000_000, 20_000_000, 43_000_000)


def test_precedence_names_every_reason_once() -> None:
    assert sorted(PRECEDENCE) == sorted(Reason)


# A. first token and token accounting


def test_01_an_empty_first_chunk_is_the_first_event_and_not_the_first_token() -> None:
    got = parse([chunk([], ""), *GOOD], at_ms=[1, 10, 200, 210, 220, 221, 222, 223])
    assert (got.complete, got.first_event_ns, got.chunk_ns[0]) == (True, 10_000_000, 200_000_000)


def test_02_an_early_empty_chunk_makes_no_gap() -> None:
    got = parse([chunk([], ""), *GOOD], at_ms=[1, 2, 5002, 5003, 5004, 5005, 5006, 5007])
    assert got.chunk_ns == (5_002_000_000, 5_003_000_000, 5_004_000_000)


def test_03_empty_text_with_ids_counts() -> None:
    got = parse(answer(chunk([151, 233], ""), chunk([7], "é", finish="stop"), n=3))
    assert (got.complete, got.token_ids, got.chunk_sizes, got.text) == (True, (151, 233, 7), (2, 1), "é")


def test_04_only_done_has_no_tokens() -> None:
    got = parse([DONE])
    assert (got.reason, got.token_ids, got.usage) == (Reason.NO_TOKENS, (), None)


def test_04_a_clean_ending_without_ids_or_text_has_no_tokens() -> None:
    assert parse([chunk([], "", finish="stop"), usage(0), DONE]).reason is Reason.NO_TOKENS


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "content"])
def test_05_a_chat_stream_is_refused_by_name(field: str) -> None:
    piece = event({"id": "chat", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {field: "x"}}]})
    got = parse([piece] * 50 + [DONE])
    assert got.reason is Reason.BAD_EVENT
    assert "delta" in got.detail


def test_06_07_several_ids_in_a_chunk_share_its_instant() -> None:
    sizes = [1, 4, 2, 4]
    chunks = [chunk(range(k), "x", finish="length" if i == 3 else None) for i, k in enumerate(sizes)]
    got = parse(answer(*chunks, n=11), at_ms=[0, 30, 60, 90, 120, 121, 122, 123])
    assert (got.complete, got.chunk_sizes) == (True, (1, 4, 2, 4))
    assert got.chunk_ns == (30_000_000, 60_000_000, 90_000_000, 120_000_000)


def test_08_chunks_without_ids_and_without_usage_are_never_counted_as_tokens() -> None:
    got = parse([chunk(None, "five of them"), chunk(None, "more", finish="stop"), DONE])
    assert (got.reason, got.token_ids, got.text) == (Reason.IDS_MISSING, (), "five of themmore")


def test_09_a_first_chunk_of_four_ids_stays_one_chunk() -> None:
    got = parse(
        answer(chunk([1, 2, 3, 4], "x"), *[chunk([i], "y") for i in range(7)], chunk([9], "z", finish="stop"), n=12)
    )
    assert (got.complete, got.chunk_sizes) == (True, (4, *[1] * 8))


def test_10_usage_that_grows_without_ids_is_noted_as_buffered() -> None:
    pieces = [
        chunk([1], "", usage=counts(1)),
        chunk([], "", usage=counts(5)),
        chunk([], "", usage=counts(5)),
        chunk(range(8), "text", finish="stop", usage=counts(9)),
    ]
    got = parse(answer(*pieces, n=9))
    assert (got.complete, len(got.token_ids)) == (True, 9)
    assert named(got, "buffered")


def test_10_running_usage_that_keeps_step_with_the_ids_is_no_note() -> None:
    got = parse(
        answer(
            *[chunk([i], "x", usage=counts(i + 1)) for i in range(3)],
            chunk([3], "", finish="stop", usage=counts(4)),
            n=4,
        )
    )
    assert (got.complete, got.notes, got.usage) == (True, (), Usage(3, 4, 0))


@pytest.mark.parametrize("text", ["Hel", "lo", "x" * 1000, ""])
def test_12_13_text_length_says_nothing_about_tokens(text: str) -> None:
    got = parse(answer(chunk([1, 2], text, finish="length"), n=2))
    assert (got.complete, got.token_ids, got.text) == (True, (1, 2), text)


def test_14_prompt_ids_are_the_servers_own() -> None:
    got = parse(
        answer(chunk([], "", prompt_ids=[7, 8]), chunk([1], "a", prompt_ids=[9]), chunk([2], "", finish="stop"), n=2)
    )
    assert got.prompt_token_ids == (7, 8)
    assert parse(answer(chunk([1], "a", finish="stop"), n=1)).prompt_token_ids is None


def test_15_18_a_missing_id_is_a_mismatch() -> None:
    got = parse(replaced(1, chunk([6], "b c")))
    assert (got.reason, got.token_ids) == (Reason.USAGE_IDS_MISMATCH, (5, 6, 8))


def test_15_one_chunk_with_text_but_null_ids_is_missing_ids() -> None:
    got = parse(replaced(1, chunk(None, "b c")))
    assert (got.reason, got.token_ids, got.text) == (Reason.IDS_MISSING, (5, 8), GOOD_TEXT)


def test_16_null_ids_never_fall_back_to_text() -> None:
    got = parse(answer(chunk(None, "a"), chunk(None, "b", finish="stop"), n=2))
    assert (got.reason, got.token_ids, got.text) == (Reason.IDS_MISSING, (), "ab")


def test_16_absent_ids_without_text_are_fine() -> None:
    prompt_only = event({"id": "cmpl-1", "choices": [{"index": 0, "text": "", "prompt_token_ids": [1]}]})
    ending = event({"id": "cmpl-1", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    got = parse([prompt_only, chunk([1], "a"), ending, usage(1), DONE])
    assert (got.complete, got.prompt_token_ids) == (True, (1,))


def test_18_escapes_in_a_delta_are_read_by_a_json_parser() -> None:
    text = 'a"b\\c\nd\u00e9\U0001f600/\t'
    for ensure_ascii in (True, False):
        value = {
            "id": "cmpl-1",
            "choices": [{"index": 0, "text": text, "token_ids": [1, 2, 3], "finish_reason": "stop"}],
        }
        raw = b"data: " + json.dumps(value, ensure_ascii=ensure_ascii).encode() + b"\n\n"
        got = parse(answer(raw, n=3))
        assert (got.complete, got.text, got.chunk_sizes) == (True, text, (3,))


def test_19_ten_ids_a_chunk_stand_on_the_record() -> None:
    got = parse(answer(chunk(range(10), "x"), chunk(range(10), "y", finish="length"), n=20))
    assert (got.complete, got.chunk_sizes, got.notes) == (True, (10, 10), ())


# structure, clock, library framing


def test_more_than_one_choice_is_refused() -> None:
    other = event({"id": "cmpl-1", "choices": [{"index": 1, "text": "z", "token_ids": [9]}]})
    got = parse(inserted(1, other))
    assert (got.reason, got.token_ids, got.text) == (Reason.MANY_CHOICES, (5, 6, 7, 8), GOOD_TEXT)
    both = event({"id": "cmpl-1", "choices": [{"index": 0, "text": "", "token_ids": []}, {"index": 1, "text": ""}]})
    assert parse(inserted(1, both)).reason is Reason.MANY_CHOICES


def test_more_than_one_stream_id_is_refused() -> None:
    got = parse(replaced(1, chunk([6, 7], "b c", stream_id="cmpl-2")))
    assert (got.reason, got.stream_id) == (Reason.MANY_STREAM_IDS, "cmpl-1")


@pytest.mark.parametrize(("step_ns", "valid"), [(500_000, True), (500_001, False), (-500_000, True), (-500_001, False)])
def test_a_clock_step_above_half_a_millisecond_is_invalid(step_ns: int, valid: bool) -> None:
    got = parse(GOOD, clock_step_ns=step_ns)
    assert got.reason is (None if valid else Reason.CLOCK_STEP)
    assert parse_completion(exchange(chunked(GOOD), clock_step_ns=step_ns), clock_step_limit_ns=10**6).complete
    assert parse(GOOD[:3], clock_step_ns=step_ns).reason is Reason.DONE_MISSING


def test_an_exchange_without_its_framing_is_read_alike() -> None:
    options = {"framing": "body", "status": 200, "headers": [("Content-Type", "text/event-stream")]}
    assert parse_completion(exchange(GOOD, **options)).token_ids == (5, 6, 7, 8)
    assert parse_completion(exchange(GOOD, **options)).complete
    assert parse_completion(exchange(GOOD, ending=Ending.IDLE_TIMEOUT, **options)).reason is Reason.IDLE_TIMEOUT
    assert parse_completion(exchange(GOOD, **{**options, "status": 500})).reason is Reason.HTTP_STATUS
    assert parse_completion(exchange(GOOD, framing="body")).reason is Reason.BAD_HTTP


def test_a_line_above_two_mebibytes_is_refused() -> None:
    got = parse_completion(exchange(until_close([*GOOD[:2], b"data: " + b"x" * (2 * 1024 * 1024)])))
    assert (got.reason, got.token_ids) == (Reason.LINE_TOO_LONG, (5, 6, 7))


# real answers of vLLM


def sample(name: str) -> bytes:
    if not SAMPLES.is_dir():
        pytest.skip("the recorded vLLM answers aren't beside this checkout")
    body = (SAMPLES / f"{name}.sse").read_bytes()
    # what curl wrote behind the stream is none of it
    return body[: body.rindex(DONE) + len(DONE)]


@pytest.mark.parametrize(
    ("name", "prompt", "tokens", "chunks", "finish"),
    [
        ("mtp0-stream", 15, 24, 24, "length"),
        ("mtp3-stream", 15, 24, 7, "length"),
        ("mtp0-stream-contusage-logprobs", 3, 8, 8, "length"),
        ("mtp3-stream-contusage-logprobs", 3, 8, 3, "length"),
    ],
)
def test_real_streams_are_complete(name: str, prompt: int, tokens: int, chunks: int, finish: str) -> None:
    pieces = [piece + b"\n\n" for piece in sample(name).split(b"\n\n")[:-1]]
    got = parse(pieces)
    assert (got.complete, got.detail, got.notes) == (True, "", ())
    assert (len(got.token_ids), len(got.chunk_ns), got.finish_reason) == (tokens, chunks, finish)
    assert got.usage == Usage(prompt, tokens, 0)
    assert got.prompt_token_ids is not None
    assert len(got.prompt_token_ids) == prompt


def test_27_a_real_engine_death_is_an_error_event_with_its_ids() -> None:
    got = parse([sample("mtp3-engine-killed-midstream")])
    assert (got.reason, got.status, got.usage, got.finish_reason) == (Reason.ERROR_EVENT, 200, None, None)
    assert "EngineCore encountered an issue" in got.detail
    assert len(got.token_ids) == sum(got.chunk_sizes) > 100


def test_05_a_real_chat_stream_is_refused_by_name() -> None:
    assert parse([sample("mtp0-chat-stream")]).reason is Reason.BAD_EVENT


@pytest.mark.parametrize(("early_ns", "valid"), [(500_000, True), (500_001, False)])
def test_a_read_that_returned_before_its_bytes_came_shows_a_step(early_ns: int, valid: bool) -> None:
    stepped = exchange(chunked(GOOD))
    stepped.user_ns[2] = stepped.at_ns[2] - early_ns
    got = parse_completion(stepped)
    assert got.complete is valid
    assert valid or got.detail == "a read returned 0.500 ms before its bytes came, by the wall clock"
    assert parse_completion(stepped, clock_step_limit_ns=500_001).complete


@pytest.mark.parametrize(("back_ns", "valid"), [(500_000, True), (500_001, False)])
def test_a_read_that_came_before_the_request_or_the_read_before_it_shows_a_step(back_ns: int, valid: bool) -> None:
    before = exchange(chunked(GOOD))
    before.at_ns[0] = before.user_ns[0] = -back_ns
    back = exchange(chunked(GOOD))
    back.user_ns[2] = back.at_ns[2] = back.user_ns[1] - back_ns
    for stepped in (before, back):
        got = parse_completion(stepped)
        assert got.complete is valid
        assert valid or got.detail == "a read came 0.500 ms before what was before it, by the wall clock"
