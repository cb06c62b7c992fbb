"""The guess of an answer's end, on bytes alone: found however the answer is cut, and taken back by more bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.wire.answer_end import HEAD_LIMIT, AnswerEnd
from tests.wire.build import DONE, GOOD, HEAD, chunked, cut, sized, until_close


def guesses(reads: list[bytes], *, framed: bool = True) -> list[bool]:
    end = AnswerEnd(framed=framed)
    return [end.feed(read) for read in reads]


def singly(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


CRLF_GOOD = [piece.replace(b"\n", b"\r\n") for piece in GOOD]
BYTE_CHUNKS = [bytes([byte]) for byte in b"".join(GOOD)]
WAYS = {
    "chunked": chunked(GOOD),
    "chunked, last chunk never sent": chunked(GOOD, last=False),
    "chunked byte by byte": chunked(BYTE_CHUNKS),
    "chunked byte by byte, last chunk never sent": chunked(BYTE_CHUNKS, last=False),
    "chunked with CRLF lines": chunked(CRLF_GOOD, last=False),
    "chunked with CR lines": chunked([piece.replace(b"\n", b"\r") for piece in GOOD], last=False),
    "chunked, no space": chunked([*GOOD[:-1], b"data:[DONE]\n\n"], last=False),
    "content-length": sized(b"".join(GOOD)),
    "until close": until_close(GOOD),
    "until close with CRLF lines": until_close(CRLF_GOOD),
    "after 100 Continue": [b"HTTP/1.1 100 Continue\r\n\r\n", *sized(b"{}")],
    "bare LF in the head": [b"HTTP/1.1 200 OK\ncontent-length: 2\n\n", b"{}"],
    "nothing but [DONE], chunked": chunked([DONE], last=False),
    "nothing but [DONE], until close": until_close([DONE]),
    "empty, by length": sized(b""),
    "empty, by its last chunk": chunked([]),
}
GUESSED_BEFORE_THE_LAST_BYTE = 20
"""the guess may come with the first line end after [DONE], within the frames of the last chunks"""


@pytest.mark.parametrize("way", WAYS)
def test_an_end_is_guessed_at_the_last_byte(way: str) -> None:
    assert guesses(WAYS[way])[-1]
    assert guesses([b"".join(WAYS[way])]) == [True]
    assert guesses(singly(b"".join(WAYS[way])))[-1]


@pytest.mark.parametrize("way", WAYS)
def test_no_end_is_guessed_before_the_last_event(way: str) -> None:
    data = b"".join(WAYS[way])
    marks = [data.rfind(mark) for mark in (b"[DONE]", b"]\r\n1\r\n\n") if mark in data]
    last = marks[0] + 6 if marks else len(data) - GUESSED_BEFORE_THE_LAST_BYTE
    for place, guess in enumerate(guesses(singly(data))):
        assert not (guess and place < last), data[: place + 1][-60:]


@given(st.sampled_from(sorted(WAYS)), st.lists(st.integers(1, 2000), max_size=30))
def test_an_end_is_guessed_however_the_answer_is_cut(way: str, places: list[int]) -> None:
    assert guesses(cut(b"".join(WAYS[way]), places))[-1]


def test_a_body_without_framing_ends_with_done() -> None:
    assert guesses(GOOD, framed=False) == [False] * (len(GOOD) - 1) + [True]
    assert guesses(singly(b"".join(GOOD)), framed=False)[-1]


LOOKALIKES = {
    "the words in a text": b'data: {"text": "then it sends data: [DONE]"}\n\n',
    "the words escaped in a text": b'data: {"text": "\\ndata: [DONE]\\n"}\n\n',
    "a comment": b": data: [DONE]\n\n",
    "another field": b"event: [DONE]\n\n",
    "more in the line": b"data: [DONE] not\n\n",
    "a digit before an empty line": b": ping 0\r\n\r\n",
    "a zero in a line of its own": b"\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("what", LOOKALIKES)
def test_what_only_looks_like_an_end_is_none(what: str) -> None:
    reads = until_close([*GOOD[:1], LOOKALIKES[what]])
    assert guesses(reads) == [False] * len(reads)
    assert not any(guesses(singly(b"".join(reads))))


def test_a_text_cut_by_chunks_after_the_word_is_no_end() -> None:
    pieces = [b'data: {"text": "x', b"data: [DONE]", b'"}\n\n']
    assert not any(guesses(singly(b"".join(chunked(pieces, last=False)))))


def test_a_length_beside_chunks_is_no_end() -> None:
    reads = chunked(GOOD, head=HEAD + b"content-length: 5\r\n")
    assert guesses(reads) == [False] * (len(GOOD)) + [True, True]


def test_a_guess_is_taken_back_by_more_bytes() -> None:
    end = AnswerEnd()
    assert end.feed(b"".join(until_close([DONE])))
    assert not end.feed(b"".join(GOOD[:2]))
    assert end.feed(DONE)


@pytest.mark.parametrize("length", [b"1e3", b"-1", b"99999999999999999999", b"x"])
def test_a_senseless_length_is_not_used(length: bytes) -> None:
    assert guesses([HEAD + b"content-length: " + length + b"\r\n\r\n", b"abc"]) == [False, False]


def test_an_answer_comes_with_its_framing_where_nothing_else_is_said() -> None:
    assert AnswerEnd().feed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert guesses([b"\r\n0\r\n\r\n"], framed=False) == [False], "no last chunk where there are no chunks"


def test_a_body_by_length_ends_with_its_last_byte() -> None:
    assert guesses([HEAD + b"content-length: 2\r\n\r\n", b"{", b"}"]) == [False, False, True]


@pytest.mark.parametrize(("digits", "used"), [(15, True), (16, False)])
def test_a_length_of_sixteen_digits_is_none(digits: int, used: bool) -> None:
    reads = sized(DONE, length=10 ** (digits - 1))
    assert guesses(reads) == [False, not used]


def test_a_line_that_ended_in_a_usual_piece_is_remembered() -> None:
    assert guesses([b'data: {"a"', b':"b"}\n\n', DONE], framed=False) == [False, False, True]


@pytest.mark.parametrize(("size", "kept"), [(65_535, True), (65_536, False)])
def test_a_head_is_kept_up_to_64_kib(size: int, kept: bool) -> None:
    start = b"HTTP/1.1 200 OK\r\nx: "
    rest = b"\r\ncontent-length: 0\r\n\r\n"
    assert guesses([start + b"y" * (size - len(start)), rest]) == [False, kept]


def test_a_head_without_end_is_not_kept_for_ever() -> None:
    end = AnswerEnd()
    assert not end.feed(b"HTTP/1.1 200 OK\r\n")
    for _ in range(HEAD_LIMIT // 1024 + 1):
        assert not end.feed(b"x" * 1024)
    assert end._head is None


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_no_bytes_make_it_fail(reads: list[bytes]) -> None:
    assert all(isinstance(guess, bool) for guess in guesses(reads))
    assert all(isinstance(guess, bool) for guess in guesses([HEAD + b"transfer-encoding: chunked\r\n\r\n", *reads]))
