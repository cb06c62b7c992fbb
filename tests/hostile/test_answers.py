"""Sections A, B and D of the hostile cases, each played by a real socket server and read the whole way to its row."""

import gzip
import threading
from pathlib import Path

import pytest

from harness.measure.gates import cache_zero_gate, stream_gate
from harness.measure.rows import attempt_median, chunk_gaps_ms, mark_cold
from harness.wire.completion import Reason
from harness.wire.exchange import Ending
from harness.wire.transport import Deadlines
from tests.hostile.server import Played, good_answer, play, trickle
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

FIRST = chunk([5], "a", prompt_ids=[1, 2, 3])


def sent(pieces: list[bytes], **options: bool) -> Step:
    """All of an answer at once."""
    return send(b"".join(chunked(pieces, **options)))


def apart(pieces: list[bytes]) -> list[Step]:
    """An answer in one write an event."""
    return [send(write) for write in chunked(pieces)]


def held_back(folder: Path, first: bytes, rest: list[bytes]) -> Played:
    """``first`` is seen by the client before the server goes on: the times of the two differ for certain."""
    writes = chunked([first, *rest])
    return play(
        folder,
        *(send(writes[0]), send(writes[1])),
        marker=writes[1],
        after=lambda seen: [wait(seen), send(b"".join(writes[2:]))],
    )


def reason_of(played: Played) -> Reason:
    """The one reason, after what must hold of every row that isn't complete."""
    row, reason = played.row, played.completion.reason
    assert reason is not None
    assert (row.complete, row.reason) == (False, reason.value) and row.detail
    assert not stream_gate("hostile", [row]).passed
    assert attempt_median([row]) is None, "never in a median"
    return reason


def complete(played: Played) -> Played:
    """The same, which must be whole."""
    assert played.row.complete, played.row.detail
    return played


BURSTS = {"no-rate", "burst-difference", "burst-read", "merged-first-read"}
"""Warnings about ids that came in bursts"""


# A. first token and token accounting


@pytest.mark.parametrize("ids", [[], None], ids=["no ids", "null ids"])
def test_01_an_early_chunk_without_ids_is_a_first_byte_and_no_first_token(
    ids: list[int] | None, tmp_path: Path
) -> None:
    row = complete(held_back(tmp_path, chunk(ids, ""), GOOD)).row
    assert row.first_byte_ms is not None and row.first_event_ms is not None and row.ttft_ms is not None
    assert row.first_byte_ms <= row.first_event_ms < row.ttft_ms == row.chunks[0][0] / 1e6


def test_02_an_early_empty_chunk_makes_no_gap_between_tokens(tmp_path: Path) -> None:
    played = complete(held_back(tmp_path, chunk([], ""), GOOD))
    times, row = [ns / 1e6 for ns, _ in played.row.chunks], played.row
    assert [size for _, size in row.chunks] == [1, 2, 1], "the empty one is no chunk of ids"
    assert row.first_event_ms is not None and times[0] > row.first_event_ms
    assert sum(chunk_gaps_ms([row])) == pytest.approx(times[-1] - times[0], abs=1e-9), "the wait is in no gap"


def test_03_empty_text_with_ids_is_a_first_token(tmp_path: Path) -> None:
    pieces = answer(chunk([151, 233], "", prompt_ids=[1, 2, 3]), chunk([7], "é", finish="stop"), n=3)
    row = complete(held_back(tmp_path, pieces[0], pieces[1:])).row
    assert (row.token_ids, row.text, [size for _, size in row.chunks]) == ([151, 233, 7], "é", [2, 1])
    assert row.ttft_ms is not None and row.ttft_ms < row.chunks[1][0] / 1e6


def test_04_an_answer_of_done_alone_is_no_zero(tmp_path: Path) -> None:
    played = play(tmp_path, sent([DONE]))
    assert reason_of(played) is Reason.NO_TOKENS
    assert played.row.ttft_ms is None and played.row.tok_s_wall_full is None and played.row.completion_tokens is None


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_05_a_stream_of_reasoning_is_refused_by_name(field: str, tmp_path: Path) -> None:
    deltas = [{"index": 0, "delta": {field: "hm"}, "finish_reason": None}] * 50
    deltas += [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]
    played = play(tmp_path, sent([*(event({"id": "c", "choices": [delta]}) for delta in deltas), DONE]))
    assert reason_of(played) is Reason.BAD_EVENT and "only /v1/completions is measured" in played.row.detail


@pytest.mark.parametrize("sizes", [[3] * 40, [1, 4, 2, 4] * 11], ids=["three each", "one, four, two, four"])
def test_06_07_rates_count_ids_over_the_chunks_own_instants(sizes: list[int], tmp_path: Path) -> None:
    pieces = [chunk([9] * size, "x", prompt_ids=None if at else [1, 2, 3]) for at, size in enumerate(sizes)]
    pieces.append(chunk([], "", finish="length"))
    row = complete(play(tmp_path, *apart(answer(*pieces, n=sum(sizes))))).row
    assert row.ids_per_chunk == sum(sizes) / len(sizes)
    assert [size for _, size in row.chunks] == sizes
    offsets = [ns for ns, size in row.chunks for _ in range(size)]
    window = offsets[99] - offsets[0]
    assert row.tok_s_1_100 == (pytest.approx(99e9 / window) if window else None)


def test_08_chunks_of_text_without_ids_or_usage_have_no_rate(tmp_path: Path) -> None:
    played = play(tmp_path, *apart([*[chunk(None, "five of them ")] * 120, chunk(None, "", finish="stop"), DONE]))
    row = played.row
    assert reason_of(played) is Reason.IDS_MISSING
    assert row.tok_s_1_100 is row.tok_s_burst_exact is row.tok_s_wall_full is row.tok_s_after_ttft_full is None
    assert row.ids_per_chunk is None


def test_09_a_first_chunk_of_four_leaves_eight_intervals(tmp_path: Path) -> None:
    pieces = [chunk([1, 2, 3, 4], "", prompt_ids=[1, 2, 3]), *(chunk([n], "") for n in range(5, 13))]
    row = complete(play(tmp_path, *apart(answer(*pieces, chunk([], "", finish="stop"), n=12)))).row
    assert len(row.token_ids) == 12 and len(row.chunks) - 1 == 8


def test_10_usage_that_grows_before_the_ids_come_is_noted(tmp_path: Path) -> None:
    grown = [chunk([1], "a", usage=counts(1), prompt_ids=[1, 2, 3]), chunk([], "", usage=counts(5))]
    grown += [chunk([], "", usage=counts(9)), chunk(list(range(2, 10)), "b", usage=counts(9), finish="stop")]
    row = complete(play(tmp_path, sent(answer(*grown, n=9)))).row
    assert any(warning.startswith("buffered: ") for warning in row.warnings)
    assert [size for _, size in row.chunks] == [1, 8], "the ids alone have times"


@pytest.mark.parametrize("text", ["", "Hel", "lo" * 400], ids=["none", "short", "long"])
def test_12_13_how_long_the_text_is_says_nothing(text: str, tmp_path: Path) -> None:
    pieces = answer(*(chunk([n], text, prompt_ids=[1, 2, 3]) for n in range(120)), chunk([], "", finish="stop"), n=120)
    row = complete(play(tmp_path, sent(pieces))).row
    assert len(row.token_ids) == row.completion_tokens == 120 and row.text == text * 120


def test_13_usage_that_counts_more_than_came_is_invalid(tmp_path: Path) -> None:
    played = play(tmp_path, sent([*GOOD[:3], usage(512), DONE]))
    assert reason_of(played) is Reason.USAGE_IDS_MISMATCH and "4 token ids came, usage says 512" in played.row.detail


def test_14_the_prompt_is_what_the_server_says_it_read(tmp_path: Path) -> None:
    row = complete(play(tmp_path, sent(GOOD))).row
    assert row.prompt_token_ids == [1, 2, 3]


@pytest.mark.parametrize("missing", [0, 1, 2], ids=["first", "middle", "last"])
def test_15_18_an_id_missing_anywhere_is_invalid(missing: int, tmp_path: Path) -> None:
    pieces = [chunk([5 + n], "x", prompt_ids=None if n else [1, 2, 3]) for n in range(3)]
    pieces[missing] = chunk([], "x")
    played = play(tmp_path, sent(answer(*pieces, chunk([], "", finish="stop"), n=3)))
    assert reason_of(played) is Reason.USAGE_IDS_MISMATCH


def test_16_null_ids_never_fall_back_to_text(tmp_path: Path) -> None:
    played = play(tmp_path, sent(answer(chunk(None, "a"), chunk(None, "b", finish="stop"), n=2)))
    assert reason_of(played) is Reason.IDS_MISSING and played.row.token_ids == [] and played.row.text == "ab"


def test_18_escapes_are_read_by_a_json_parser_and_the_bytes_are_kept(tmp_path: Path) -> None:
    raw = rb'data: {"id":"cmpl-1","choices":[{"index":0,"text":"\"q\" \\ \n \u00e9 \ud83d\ude00","token_ids":[1,2,3]}]}'
    pieces = answer(raw + b"\n\n", chunk([], "", finish="stop"), n=3)
    played = complete(play(tmp_path, sent(pieces)))
    assert played.row.text == '"q" \\ \n é \U0001f600' and len(played.row.token_ids) == 3
    assert raw in played.exchange.data


def test_19_a_server_that_sends_ten_ids_at_a_time_is_on_the_record(tmp_path: Path) -> None:
    pieces = [chunk([9] * 10, "x", prompt_ids=None if n else [1, 2, 3]) for n in range(12)]
    writes = chunked(answer(*pieces, chunk([], "", finish="length"), n=120))
    script = [trickle(b"".join(writes), [sum(map(len, writes[: n + 1])) for n in range(len(writes))])]
    row = complete(play(tmp_path, *script)).row
    assert row.ids_per_chunk == 10.0
    assert row.warnings and {warning.partition(":")[0] for warning in row.warnings} <= BURSTS


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
