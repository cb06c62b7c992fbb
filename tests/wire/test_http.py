"""HTTP framing of captured bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire.exchange import Ending
from harness.wire.http import MAX_HEAD_BYTES, HttpResponse, decode_response
from tests.wire.build import HEAD, chunked, cut, exchange, sized, until_close


def body(response: HttpResponse) -> bytes:
    return b"".join(piece for _, piece in response.body)


@pytest.mark.parametrize(
    "writes",
    [chunked([b"hello ", b"world"]), sized(b"hello world"), until_close([b"hello ", b"world"])],
    ids=["chunked", "sized", "close"],
)
def test_every_framing_whole_and_byte_by_byte(writes: list[bytes]) -> None:
    data = b"".join(writes)
    for reads in (writes, [data], cut(data, range(len(data)))):
        response = decode_response(exchange(reads))
        assert (response.status, body(response), response.complete) == (200, b"hello world", True)
        assert response.values("content-type") == ["text/event-stream; charset=utf-8"]
        assert (response.trailing, response.error) == (b"", "")


def test_pieces_keep_the_time_of_their_own_read() -> None:
    reads = [HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc", b"\r\n4\r\nd", b"efg\r\n", b"0\r\n\r\n"]
    response = decode_response(exchange(reads, at_ms=[1, 2, 3, 4]))
    assert response.body == [(1_000_000, b"ab"), (1_000_000, b"c"), (2_000_000, b"d"), (3_000_000, b"efg")]


@pytest.mark.parametrize("make", [chunked, lambda pieces: sized(b"".join(pieces))])
def test_no_strict_prefix_of_a_framed_answer_is_complete(make) -> None:
    data = b"".join(make([b"hello ", b"world"]))
    for end in range(len(data)):
        response = decode_response(exchange([data[:end]] if end else []))
        assert not response.complete, data[:end]
        assert b"hello world".startswith(body(response))
        assert (response.status is None) == bool(response.error)


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.CLOSED])
def test_only_the_end_of_file_ends_a_body_without_framing(ending: Ending) -> None:
    assert not decode_response(exchange(until_close([b"x"]), ending=ending)).complete
    assert decode_response(exchange(chunked([b"x"]), ending=ending)).complete


def test_bytes_after_the_message_are_trailing() -> None:
    for reads in (
        [*chunked([b"x"]), b"HTTP", b"/1.1"],
        [*sized(b"x"), b"HTTP", b"/1.1"],
        [b"".join(chunked([b"x"])) + b"HTTP/1.1"],
    ):
        response = decode_response(exchange(reads))
        assert (response.complete, body(response), response.trailing) == (True, b"x", b"HTTP/1.1")


def test_interim_answers_are_skipped() -> None:
    writes = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", *sized(b"x")]
    for reads in (writes, [b"".join(writes)]):
        response = decode_response(exchange(reads))
        assert (response.status, body(response), response.complete) == (200, b"x", True)
        assert not response.values("link")


def test_header_names_come_in_lower_case_and_values_as_they_were() -> None:
    response = decode_response(
        exchange([b"HTTP/1.1 503 Busy\r\nRetry-AFTER: 5\r\nX-Odd: \xe9\r\nContent-Length: 0\r\n\r\n"])
    )
    assert response.headers == [("retry-after", "5"), ("x-odd", "é"), ("content-length", "0")]
    assert (response.status, response.complete) == (503, True)


def test_http_1_0_without_framing_ends_at_the_end_of_file() -> None:
    response = decode_response(exchange([b"HTTP/1.0 200 OK\r\n\r\n", b"x"]))
    assert (body(response), response.complete) == (b"x", True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"",
    ],
)
def test_what_is_no_http_answer_has_an_error_however_it_was_cut(data: bytes) -> None:
    for places in ([], range(0, len(data), 1 if len(data) < 1000 else 999)):
        response = decode_response(exchange(cut(data, places)))
        assert response.error
        assert (response.status, response.complete) == (None, False)


@pytest.mark.parametrize("bad", [b"zz\r\nx\r\n", b"1\r\nxx\r\n", b"\r\n", b"-1\r\n", b"123456789012345678901\r\n"])
def test_a_bad_chunk_keeps_what_came_before_it(bad: bytes) -> None:
    data = b"".join([*chunked([b"good"], last=False), bad])
    for reads in ([data], cut(data, range(len(data)))):
        response = decode_response(exchange(reads))
        assert response.error
        assert not response.complete
        assert body(response).startswith(b"good")


def test_a_head_of_the_greatest_length_is_accepted_however_it_was_cut() -> None:
    frame = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nx: %s\r\n\r\n"
    data = frame % (b"y" * (MAX_HEAD_BYTES - len(frame) + 2)) + b"x"
    for places in ([], range(0, len(data), 1000), [MAX_HEAD_BYTES]):
        assert decode_response(exchange(cut(data, places))).complete


def test_a_body_without_its_framing_is_taken_as_it_is() -> None:
    options = {"framing": "body", "status": 200, "headers": [("Content-Type", "text/event-stream")]}
    response = decode_response(exchange([b"a", b"b"], at_ms=[1, 2], **options))
    assert response.body == [(1_000_000, b"a"), (2_000_000, b"b")]
    assert (response.status, response.headers, response.complete) == (
        200,
        [("content-type", "text/event-stream")],
        True,
    )
    assert decode_response(exchange([b"a"], ending=Ending.DONE, **options)).complete
    assert not decode_response(exchange([b"a"], ending=Ending.RESET, **options)).complete
    assert decode_response(exchange([b"a"], framing="body")).error


def test_empty_reads_are_not_the_end_of_file() -> None:
    first, *rest = chunked([b"x", b"y"])
    assert body(decode_response(exchange([b"", first, b"", *rest, b""]))) == b"xy"


@given(st.one_of(st.binary(max_size=200), st.builds(lambda tail: HEAD + tail, st.binary(max_size=200))), st.data())
@settings(deadline=None)
def test_random_bytes_give_the_same_value_however_they_were_cut(data: bytes, draw: st.DataObject) -> None:
    places = draw.draw(st.lists(st.integers(0, len(data)), max_size=6))
    ending = draw.draw(st.sampled_from(Ending))
    whole = decode_response(exchange([data], ending=ending))
    parts = decode_response(exchange(cut(data, places), ending=ending))
    assert body(whole) == body(parts)
    for name in ("status", "headers", "complete", "trailing"):
        assert getattr(whole, name) == getattr(parts, name)
    assert bool(whole.error) == bool(parts.error)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=8), st.data())
@settings(deadline=None)
def test_chunks_come_back_as_they_were_sent(pieces: list[bytes], draw: st.DataObject) -> None:
    data = b"".join(chunked(pieces))
    reads = cut(data, draw.draw(st.lists(st.integers(0, len(data)), max_size=10)))
    response = decode_response(exchange(reads))
    assert (body(response), response.complete, response.error) == (b"".join(pieces), True, "")


def test_what_is_wrong_is_told_in_h11s_words_or_ours() -> None:
    answers = (b"", b"HTTP/1.1 2", b"SSH-2\r\n\r\n")
    said = {data: decode_response(exchange([data] if data else [])).error for data in answers}
    assert said == {
        b"": "the connection ended without an answer",
        b"HTTP/1.1 2": "the connection ended after part of the headers",
        b"SSH-2\r\n\r\n": "illegal status line: bytearray(b'SSH-2')",
    }


def test_a_body_without_framing_needs_a_status_only_when_it_ended() -> None:
    options = {"framing": "body", "headers": []}
    assert decode_response(exchange([b"a"], status=200, **options)).error == ""
    assert decode_response(exchange([b"a"], **options)).error == "no status was recorded"
    assert decode_response(exchange([], ending=Ending.CONNECT_FAILED, **options)).error == ""
    assert decode_response(exchange([], ending=Ending.RESET, status=200, **options)).error == ""


@pytest.mark.parametrize(("size", "taken"), [(65_536, True), (65_537, False)])
def test_a_head_may_have_64_kib(size: int, taken: bool) -> None:
    frame = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nx: %s\r\n\r\n"
    data = frame % (b"y" * (size - len(frame) + 2))
    assert len(data) == size
    for places in ([], [size], range(0, size, 1000)):
        response = decode_response(exchange(cut(data + b"x", places)))
        assert (response.complete, response.error) == (
            taken,
            "" if taken else "the headers are longer than 65536 bytes",
        )


def test_a_head_without_end_is_refused_for_its_length() -> None:
    reads = [b"HTTP/1.1 200 OK\r\n", *[b"x: " + b"y" * 1000 + b"\r\n"] * 70]
    assert decode_response(exchange(reads)).error == "the headers are longer than 65536 bytes"


def test_a_body_may_be_longer_than_a_head() -> None:
    head, whole = sized(b"x" * 100_000)
    response = decode_response(exchange([head, *cut(whole, range(0, 100_000, 10_000))]))
    assert (response.complete, len(body(response)), response.error) == (True, 100_000, "")
