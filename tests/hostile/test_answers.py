"""Sections B, C and D of the hostile cases, each played by a real socket server and read the whole way to its row."""

import gzip
import threading
from pathlib import Path

import pytest

from harness.measure.gates import cache_zero_gate
from harness.measure.rows import mark_cold
from harness.wire.completion import Reason
from harness.wire.exchange import Ending
from harness.wire.transport import Deadlines
from tests.hostile.played import apart, complete, reason_of, sent
from tests.hostile.server import good_answer, play, trickle
from tests.wire.build import (
    DONE,
    ERROR,
    GOOD,
    HEAD,
    answer,
    chunk,
    chunked,
    counts,
    event,
    inserted,
    named,
    page,
    replaced,
    sized,
    until_close,
    usage,
)
from tests.wire.scripted import Peer, Step, half_close, hold, reset, send, send_bytewise, wait

# B. SSE and HTTP


def awkward(data: bytes) -> list[int]:
    """Where clients broke: after ``data:``, before a space of the text, inside a character, inside a CRLF."""
    marks = [b"data:", b'" the', b"\xc3", b"\xe2\x80", b"\r", b"[DO", b"\n", b"data: [DONE]\n"]
    return [data.index(mark) + len(mark) for mark in marks if mark in data]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("way", ["awkward", "bytewise"])
def test_20_21_22_24_no_cut_changes_what_is_read(way: str, end: bytes, tmp_path: Path) -> None:
    pieces = [chunk([5], "é", prompt_ids=[1, 2, 3]), chunk([6, 7], " the  end "), chunk([8], "\u2028", finish="stop")]
    pieces = [piece.replace(b"\n", end) for piece in answer(*pieces, n=4)]
    data = b"".join(chunked(pieces))
    step = send_bytewise(data) if way == "bytewise" else trickle(data, awkward(data))
    cut, whole = complete(play(tmp_path, step)), complete(play(tmp_path, send(data)))
    assert cut.row.text == "é the  end \u2028" and cut.row.token_ids == [5, 6, 7, 8]
    assert cut.row.model_dump(include={"text", "token_ids", "usage"}) == whole.row.model_dump(
        include={"text", "token_ids", "usage"}
    )


def test_21_an_event_is_stamped_when_its_last_byte_came(tmp_path: Path) -> None:
    piece = GOOD[0]
    head, *_ = chunked([])
    framed = b"%x\r\n" % len(piece) + piece
    played = complete(
        play(
            tmp_path,
            *(send(head), send(framed[:-1])),
            marker=framed[:-1],
            after=lambda seen: [wait(seen), send(framed[-1:] + b"\r\n" + b"".join(chunked(GOOD[1:])[1:]))],
        )
    )
    ends, first = 0, played.row.chunks[0][0]
    for size, at in zip(played.exchange.sizes, played.exchange.at_ns, strict=True):
        ends += size
        if ends >= len(head) + len(framed):
            assert at == first
            break
    assert played.row.first_byte_ms is not None and played.row.first_byte_ms < first / 1e6


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85"])
def test_23_unicode_line_ends_end_no_event(char: str, tmp_path: Path) -> None:
    row = complete(play(tmp_path, sent(replaced(1, chunk([6, 7], f"b{char}c"))))).row
    assert row.text == f"ab{char}c"


@pytest.mark.parametrize("char", ["\v", "\f"])
def test_23_other_breaks_raw_in_a_string_are_one_event_of_bad_json(char: str, tmp_path: Path) -> None:
    broken = chunk([6, 7], "b c").replace(b"b c", f"b{char}c".encode())
    played = play(tmp_path, sent(replaced(1, broken)))
    assert reason_of(played) is Reason.BAD_JSON and "event 2" in played.row.detail
    assert played.row.token_ids == [5, 8], "one event, and the others stand"


def test_25_every_field_of_the_rules_is_accepted(tmp_path: Path) -> None:
    odd = [
        b": ping\n\n",
        b"event: message\nid: 1\nretry: 10\n" + GOOD[0],
        b"data:" + GOOD[1].removeprefix(b"data: "),
        GOOD[2].replace(b', "choices"', b',\ndata: "choices"'),
        *GOOD[3:],
    ]
    assert complete(play(tmp_path, sent(odd))).row.token_ids == [5, 6, 7, 8]


@pytest.mark.parametrize(
    "pieces",
    [[ERROR, DONE], [*GOOD[:2], ERROR, DONE], [*GOOD[:2], b'event: error\ndata: {"message": "EngineCore died"}\n\n']],
    ids=["before the first token", "after some", "as an event of its own"],
)
def test_27_an_error_in_a_200_is_a_failure_with_its_words(pieces: list[bytes], tmp_path: Path) -> None:
    played = play(tmp_path, sent(pieces))
    assert reason_of(played) is Reason.ERROR_EVENT and "EngineCore died" in played.row.detail


@pytest.mark.parametrize("bad", [b'data: {"choices":[{\n\n', b"data: {'a':1}\n\n", b"data: \xff\n\n", b"data: x\n\n"])
def test_28_one_malformed_event_makes_the_row_invalid(bad: bytes, tmp_path: Path) -> None:
    played = play(tmp_path, sent(inserted(1, bad)))
    assert reason_of(played) in (Reason.BAD_JSON, Reason.BAD_UTF8) and 5 in played.row.token_ids


ENDINGS: list[tuple[str, list[Step], Reason]] = [
    ("finish, then end of file", [sent(GOOD[:3])], Reason.DONE_MISSING),
    ("finish and usage, then end of file", [sent(GOOD[:4])], Reason.DONE_MISSING),
    ("end of file in mid-stream", [sent(GOOD[:2])], Reason.STREAM_CUT),
    ("end of file in mid-chunk", [sent(GOOD[:2], last=False)], Reason.TRUNCATED_BODY),
    ("done without finish", [sent([*GOOD[:2], usage(3), DONE])], Reason.FINISH_MISSING),
    ("no last chunk", [sent(GOOD, last=False)], Reason.TRUNCATED_BODY),
    ("no last chunk, half closed", [sent(GOOD, last=False), half_close, hold], Reason.TRUNCATED_BODY),
    (
        "a length that lies",
        [send(b"".join(sized(b"".join(GOOD), length=9999))), half_close, hold],
        Reason.TRUNCATED_BODY,
    ),
    ("no answer at all", [], Reason.BAD_HTTP),
    ("usage missing", [sent([*GOOD[:3], DONE])], Reason.USAGE_MISSING),
    (
        "usage null",
        [sent([*GOOD[:3], event({"id": "cmpl-1", "choices": [], "usage": None}), DONE])],
        Reason.USAGE_MISSING,
    ),
    ("usage twice, not alike", [sent([*GOOD[:3], usage(4), usage(5), DONE])], Reason.USAGE_CONFLICT),
    ("two answers in one", [sent([*GOOD, *GOOD])], Reason.AFTER_DONE),
    ("a word after done", [sent([*GOOD, b"data: x\n\n"])], Reason.AFTER_DONE),
]


@pytest.mark.parametrize(("steps", "reason"), [case[1:] for case in ENDINGS], ids=[case[0] for case in ENDINGS])
def test_29_32_34_35_every_other_ending_has_a_reason_of_its_own(
    steps: list[Step], reason: Reason, tmp_path: Path
) -> None:
    played = play(tmp_path, *steps)
    assert reason_of(played) is reason
    if played.row.token_ids:
        assert played.row.token_ids[0] == 5 and played.row.text.startswith("a"), "what came is kept"


def test_29_35_a_reset_in_mid_stream_keeps_what_came(tmp_path: Path) -> None:
    start = b"".join(chunked(GOOD[:2], last=False))
    played = play(tmp_path, send(start), marker=start, after=lambda seen: [wait(seen), reset])
    assert reason_of(played) is Reason.RESET and played.row.token_ids == [5, 6, 7] and played.row.text == "ab c"


def test_29_32_vllms_own_ending_is_no_false_alarm(tmp_path: Path) -> None:
    pieces = [chunk([5], "a", prompt_ids=[1, 2, 3]), chunk([6], "b", finish="length"), usage(2), DONE]
    assert complete(play(tmp_path, *apart(pieces))).row.finish_reason == "length"
    assert complete(play(tmp_path, send(b"".join(until_close(pieces))))).row.completion_tokens == 2


@pytest.mark.parametrize("last", [True, False], ids=["ended", "without its last chunk"])
def test_30_an_answer_on_a_connection_left_open_ends_at_done(last: bool, tmp_path: Path) -> None:
    played = complete(play(tmp_path, sent(GOOD, last=last), hold))
    assert played.exchange.ending is Ending.DONE
    assert any(warning.startswith("left-open: ") for warning in played.row.warnings)


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"cached_tokens": 0}, 0),
        ({"cached_tokens": 16}, 16),
        ({"cached_tokens": None}, None),
        ({}, None),
        (None, None),
        ({"cached_tokens": "0"}, None),
        ({"cached_tokens": False}, None),
        ({"cached_tokens": 0.0}, None),
    ],
)
def test_34_38_cached_tokens_are_zero_only_when_they_are_the_integer_zero(
    details: object, cached: int | None, tmp_path: Path
) -> None:
    last = event({"id": "cmpl-1", "choices": [], "usage": {**counts(4), "prompt_tokens_details": details}})
    row = complete(play(tmp_path, sent([*GOOD[:3], last, DONE]))).row
    assert row.cached_tokens == cached
    assert cache_zero_gate("hostile", [row]).passed is (cached == 0)


def test_34_equal_usage_twice_is_noted_and_whole(tmp_path: Path) -> None:
    played = complete(play(tmp_path, sent([*GOOD[:3], usage(4), usage(4), DONE])))
    assert named(played.completion, "usage-repeated")


OTHER: list[tuple[str, bytes, Reason, str]] = [
    ("HTML", b"".join(page("200 OK", "text/html", b"<html>sign in</html>")), Reason.NOT_EVENT_STREAM, "text/html"),
    ("JSON", b"".join(page("200 OK", "application/json", b"{}")), Reason.NOT_EVENT_STREAM, "application/json"),
    (
        "503",
        b"".join(page("503 Service Unavailable", "text/plain", b"starting")),
        Reason.HTTP_STATUS,
        "HTTP 503: starting",
    ),
    (
        "429",
        b"".join(page("429 Too Many Requests", "text/plain", b"later", "Retry-After: 0")),
        Reason.HTTP_STATUS,
        "HTTP 429: later",
    ),
    (
        "gzip",
        b"".join(sized(gzip.compress(b"".join(GOOD), mtime=0), head=HEAD + b"content-encoding: gzip\r\n")),
        Reason.CONTENT_ENCODING,
        "gzip",
    ),
    (
        "latin-1",
        b"".join(page("200 OK", "text/event-stream; charset=iso-8859-1", b"".join(GOOD))),
        Reason.NOT_EVENT_STREAM,
        "iso-8859-1",
    ),
    ("no type", b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(GOOD), Reason.NOT_EVENT_STREAM, "absent"),
    ("another protocol", b"SSH-2.0-OpenSSH_9.2\r\n", Reason.BAD_HTTP, "HTTP/1.1"),
    ("TLS", b"\x15\x03\x01\x00\x02\x02\x46", Reason.BAD_HTTP, "HTTP/1.1"),
]


@pytest.mark.parametrize(("data", "reason", "words"), [case[1:] for case in OTHER], ids=[case[0] for case in OTHER])
def test_36_an_answer_of_another_kind_is_named(data: bytes, reason: Reason, words: str, tmp_path: Path) -> None:
    played = play(tmp_path, send(data))
    assert reason_of(played) is reason and words in played.row.detail


# C. warm-up


def test_41_a_first_request_that_pays_a_compilation_is_marked_cold(tmp_path: Path) -> None:
    rows = [complete(play(tmp_path, *apart(GOOD))).row for _ in range(3)]
    slow = rows[0].model_copy(update={"ttft_ms": 2000.0 + 6 * max(row.ttft_ms or 0.0 for row in rows)})
    marked = mark_cold([slow, *rows])
    assert [any(word.startswith("cold: ") for word in row.warnings) for row in marked] == [True, False, False, False]


# D. hangs and slowness

QUICK = Deadlines(connect_s=10, first_byte_s=0.3, idle_s=0.3, total_s=60)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"".join(good_answer(40)[:41]), Reason.IDLE_TIMEOUT),
        (HEAD, Reason.IDLE_TIMEOUT),
        (b"", Reason.FIRST_BYTE_TIMEOUT),
    ],
    ids=["after forty tokens", "inside the headers", "before the headers"],
)
def test_49_50_a_server_that_falls_silent_is_left(start: bytes, reason: Reason, tmp_path: Path) -> None:
    played = play(tmp_path, send(start), hold, deadlines=QUICK)
    assert reason_of(played) is reason
    assert len(played.row.token_ids) == (40 if b"data" in start else 0), "what came is kept"


def test_49_bytes_that_keep_coming_do_not_hide_a_stall_for_ever(tmp_path: Path) -> None:
    over = threading.Event()

    def pings(peer: object) -> None:
        while not over.wait(0.05):
            peer.sock.sendall(b"8\r\n: ping\n\n\r\n")  # type: ignore[attr-defined]

    deadlines = Deadlines(connect_s=10, first_byte_s=10, idle_s=10, total_s=0.6)
    try:
        played = play(tmp_path, send(chunked([])[0]), pings, deadlines=deadlines)
    finally:
        over.set()
    assert reason_of(played) is Reason.TOTAL_TIMEOUT


def test_51_a_first_byte_later_than_other_clients_wait_is_a_success(tmp_path: Path) -> None:
    go = threading.Event()

    def after_the_request(peer: Peer) -> None:
        threading.Timer(5.5, go.set).start()

    played = complete(play(tmp_path, after_the_request, wait(go), sent(GOOD)))
    assert played.row.ttft_ms is not None and played.row.ttft_ms > 5000
    assert Deadlines().first_byte_s >= 120, "the usual limit leaves a long prefill its time"


def test_59_an_answer_held_back_to_its_end_is_flagged(tmp_path: Path) -> None:
    row = complete(play(tmp_path, send(b"".join(good_answer(120))))).row
    assert any(warning.startswith(("no-rate: ", "burst-read: ")) for warning in row.warnings)
