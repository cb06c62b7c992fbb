"""SSE decoding at every awkward split."""

import time
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire import sse
from harness.wire.sse import BadUtf8, Event, LineTooLong, SseDecoder, SseError


def decode(*reads: bytes, **options: int) -> list[tuple[str, str]]:
    decoder = SseDecoder(**options)
    return [(event.kind, event.data) for read in reads for event in decoder.feed(read, 0)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [("message", "a")]),
        (b"data:a\n\n", [("message", "a")]),
        (b"data:  a \n\n", [("message", " a ")]),
        (b"data: a\ndata: b\n\n", [("message", "a\nb")]),
        (b"data: a\ndata\ndata:\n\n", [("message", "a\n\n")]),
        (b"data:\n\n", [("message", "")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [("error", "a"), ("message", "b")]),
        (b"event: lost\n\ndata: b\n\n", [("message", "b")]),
        (b"id: 1\nretry: 5\n: ping\nunknown: x\nunknown\ndata: a\n\n", [("message", "a")]),
        (b": ping\n\n:\n\n\n\n", []),
        (b"data: a: b\n\n", [("message", "a: b")]),
        (b"Data: a\n data: b\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("message", "b")]),
        (b"data: \xef\xbb\xbfa\n\n", [("message", "\ufeffa")]),
        (b"data: a\n\ndata: b", [("message", "a")]),
        (b"data: a\n\ndata: b\n", [("message", "a")]),
        (b"data: a\x00b\n\n", [("message", "a\x00b")]),
        (
            "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\n\n".encode(),
            [("message", "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh")],
        ),
        ("data: \ufffd\n\n".encode(), [("message", "\ufffd")]),
        (b"", []),
    ],
)
def test_rules_of_the_event_stream_whole_and_byte_by_byte(stream: bytes, expected: list[tuple[str, str]]) -> None:
    assert decode(stream) == expected
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == expected


@pytest.mark.parametrize(
    "stream",
    [
        b"data: a\r\n\r\ndata: b\r\ndata: c\r\n\r\n",
        b"data: a\r\rdata: b\rdata: c\r\r",
        b"data: a\n\r\ndata: b\r\ndata: c\n\r",
        b"data: a\r\n\ndata: b\ndata: c\r\r\n",
    ],
)
def test_24_line_ends_of_every_kind_at_every_pair_of_splits(stream: bytes) -> None:
    for first, second in combinations(range(len(stream) + 1), 2):
        reads = (stream[:first], stream[first:second], stream[second:])
        assert decode(*reads) == [("message", "a"), ("message", "b\nc")], reads


def test_a_crlf_split_over_an_empty_read_is_one_line_end() -> None:
    assert decode(b"data: a\r", b"", b"\ndata: b\r\n", b"\r\n") == [("message", "a\nb")]


def test_21_an_event_has_the_time_of_the_read_that_ended_it() -> None:
    decoder = SseDecoder()
    stream = b"data: ab\n\ndata: c\n\n"
    events = [
        event for at, place in enumerate(range(len(stream))) for event in decoder.feed(stream[place : place + 1], at)
    ]
    assert events == [Event(9, "message", "ab"), Event(len(stream) - 1, "message", "c")]


def test_two_events_of_one_read_share_its_time() -> None:
    assert [event.at_ns for event in SseDecoder().feed(b"data: a\n\ndata: b\n\n", 7)] == [7, 7]


def test_22_a_character_split_over_reads_stays_whole() -> None:
    assert decode(b"data: \xc3", b"\xa9\n\n") == [("message", "é")]
    assert decode(b"data: \xf0\x9f", b"\x98", b"\x80\n\n") == [("message", "😀")]


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
@pytest.mark.parametrize("line", [b"data: %s\n", b": %s\n", b"event: %s\n"])
def test_bad_utf8_is_an_error_that_carries_the_events_before_it(bad: bytes, line: bytes) -> None:
    decoder = SseDecoder()
    with pytest.raises(BadUtf8) as caught:
        decoder.feed(b"data: a\n\n" + line % bad + b"\ndata: b\n\n", 3)
    assert caught.value.events == [Event(3, "message", "a")]
    with pytest.raises(BadUtf8) as again:
        decoder.feed(b"data: c\n\n", 4)
    assert again.value.events == []


def test_bad_utf8_is_judged_per_line_so_an_unfinished_line_is_no_error() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: \xff", 0) == [Event(0, "message", "a")]
    assert decoder.finish().unfinished


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("prefix", [b"data: ", b": "])
def test_line_limit_does_not_depend_on_the_cut(size: int, prefix: bytes) -> None:
    fits = prefix + b"x" * (50 - len(prefix))
    for ending in (b"\n", b"\r\n", b"\r"):
        stream = fits + ending + b"\n"
        decode(*(stream[i : i + size] for i in range(0, len(stream), size)), max_bytes=50)
        stream = b"data: ok\n\n" + fits + b"x" + ending + ending
        events = []
        decoder = SseDecoder(max_bytes=50)
        with pytest.raises(LineTooLong) as caught:
            for i in range(0, len(stream), size):
                events += decoder.feed(stream[i : i + size], 0)
        assert [event.data for event in events + caught.value.events] == ["ok"]


def test_the_data_lines_of_one_event_are_bounded_together() -> None:
    with pytest.raises(LineTooLong):
        decode(b"data: xxxx\n" * 10, max_bytes=50)
    assert len(decode(b"data: xxxx\n\n" * 10, max_bytes=50)) == 10


@pytest.mark.parametrize(("size", "taken"), [(524_200, True), (524_416, False)])
def test_lines_of_wide_characters_are_bounded_by_what_they_take(size: int, taken: bool) -> None:
    """One wide character makes each of a line take four bytes: three such lines, and 6 MiB."""
    line = b"data: " + "\U0001f600".encode() + b"x" * (size - 1) + b"\n"
    if taken:
        assert len(decode(line * 3 + b"\n", line * 3 + b"\n")) == 2, "each event is counted anew"
    else:
        with pytest.raises(LineTooLong, match="one event take more than 6291456 bytes of memory"):
            decode(line * 3)


def test_a_single_line_may_take_what_it_takes() -> None:
    line = b"data: " + "\U0001f600".encode() + b"x" * 1_800_000
    assert len(decode(line + b"\n\n")) == 1


def test_an_endless_line_is_refused_in_bounded_memory() -> None:
    decoder = SseDecoder(max_bytes=1000)
    with pytest.raises(LineTooLong):
        for _ in range(1000):
            decoder.feed(b"x" * 10, 0)


@pytest.mark.parametrize(
    ("stream", "unfinished", "stray"),
    [
        (b"", False, False),
        (b"data: a\n\n", False, False),
        (b"data: a\n\n \n\t\n\r\n", False, False),
        (b"data: a\n\n  ", True, False),
        (b"data: a\n\n:\n", False, True),
        (b"data: a\n\n: ping\n\n", False, True),
        (b": ping\nid: 1\ndata: a\n\n", False, False),
        (b"data: a\n\nevent: x\n\n", False, True),
        (b"data: a\n\nx", True, True),
        (b"data: a\n", True, True),
        (b"data: a\n\ndata: b\n", True, True),
        (b"\xef\xbb", True, True),
        (b"\xef\xbb\xbf", False, False),
    ],
)
def test_what_remains_after_the_last_event(stream: bytes, unfinished: bool, stray: bool) -> None:
    for size in (1, 2, 100):
        decoder = SseDecoder()
        for i in range(0, len(stream), size):
            decoder.feed(stream[i : i + size], 0)
        assert decoder.finish() == (unfinished, stray)


def test_time_is_linear_in_a_long_line_fed_in_small_pieces() -> None:
    def seconds(kib: int) -> float:
        decoder = SseDecoder()
        started = time.process_time()
        decoder.feed(b"data: ", 0)
        for _ in range(kib * 16):
            decoder.feed(b"x" * 64, 0)
        (event,) = decoder.feed(b"\n\n", 0)
        assert len(event.data) == kib * 1024
        return time.process_time() - started

    small, large = min(seconds(64) for _ in range(3)), seconds(64 * 16)
    assert large < 16 * small * 6 + 0.05, "a quadratic buffer takes 256 times as long, not 16"


def test_a_line_of_two_mebibytes_in_one_read_is_accepted() -> None:
    body = b"x" * (2 * 1024 * 1024 - 6)
    ((_, data),) = decode(b"data: " + body + b"\n\n")
    assert len(data) == len(body)


lines = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"", b"data", b"data:", b"data: ", b":", b": ping", b"event: error", b"id: 1", b"retry: 1"]
        ),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8).map(
            lambda s: b"data: " + s.encode()
        ),
    ),
    max_size=12,
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(lines, st.data())
@settings(deadline=None)
def test_line_ends_and_cuts_never_change_the_events(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + data.draw(ends) for line in lines)
    plain = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reads = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert decode(*reads) == decode(plain) == decode(*(plain[i : i + 1] for i in range(len(plain))))


@given(st.lists(st.binary(max_size=30), max_size=10))
@settings(deadline=None)
def test_random_bytes_give_events_or_an_sse_error(reads: list[bytes]) -> None:
    decoder = SseDecoder(max_bytes=64)
    try:
        for read in reads:
            assert all(isinstance(event, Event) for event in decoder.feed(read, 0))
    except SseError as error:
        assert str(error)
    assert decoder.finish().stray in (True, False)


@pytest.mark.parametrize(
    ("line", "words"),
    [(b"\xff: a", "invalid start byte at its byte 0"), (b"data: a\xff", "invalid start byte at its byte 7")],
)
def test_bad_utf8_is_told_with_its_place(line: bytes, words: str) -> None:
    with pytest.raises(BadUtf8) as caught:
        decode(line + b"\n\n")
    assert str(caught.value) == f"a line isn't UTF-8: {words}"


def test_exactly_what_lines_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"data: ab\ndata: cd\n"
    takes = 2 * "ab".__sizeof__()
    monkeypatch.setattr(sse, "MAX_PIECES", takes)
    assert decode(lines + b"\n" + lines + b"\n") == [("message", "ab\ncd")] * 2
    monkeypatch.setattr(sse, "MAX_PIECES", takes - 1)
    with pytest.raises(LineTooLong, match=f"take more than {takes - 1} bytes"):
        decode(lines)
