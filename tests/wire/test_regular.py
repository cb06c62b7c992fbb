"""The fast way through regular framing says what h11 says, for every cut and every damage."""

import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st

from harness.wire.exchange import Ending, Exchange
from harness.wire.http import HttpResponse, decode_response, read_by_h11, read_regular
from tests.wire import build


def joined(response: HttpResponse) -> object:
    """Everything of a response, its body by the time of its bytes."""
    body: list[tuple[int, bytes]] = []
    for at, piece in response.body:
        if body and body[-1][0] == at:
            body[-1] = (at, body[-1][1] + piece)
        else:
            body.append((at, piece))
    return (response.status, response.headers, body, response.complete, response.trailing, response.error)


def exchange_of(data: bytes, cuts: list[int], ending: Ending) -> Exchange:
    """``data`` cut into reads, a millisecond apart."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    sizes = [right - left for left, right in itertools.pairwise(places)]
    times = [index * 1_000_000 for index in range(len(sizes))]
    return Exchange(b"", 0, 0, ending, data=data, sizes=sizes, at_ns=times, user_ns=times, kernel=[True] * len(sizes))


WHOLE = b"".join(build.chunked(build.GOOD))


@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=30), ending=st.sampled_from([Ending.CLOSED, Ending.DONE]))
def test_any_cut_of_a_regular_answer_reads_the_same(cuts: list[int], ending: Ending) -> None:
    exchange = exchange_of(WHOLE, cuts, ending)
    fast = read_regular(exchange)
    assert fast is not None
    assert joined(fast) == joined(read_by_h11(exchange))


@given(
    cuts=st.lists(st.integers(0, 1 << 20), max_size=6),
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(max_size=3), st.integers(0, 4)), max_size=4),
    ending=st.sampled_from(list(Ending)),
)
def test_a_damaged_answer_reads_as_h11_reads_it(
    cuts: list[int], damage: list[tuple[int, bytes, int]], ending: Ending
) -> None:
    data = WHOLE
    for place, new, gone in damage:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + gone :]
    exchange = exchange_of(data, cuts, ending)
    assert joined(decode_response(exchange)) == joined(read_by_h11(exchange))


def test_irregular_answers_are_left_to_h11() -> None:
    whole = exchange_of(WHOLE, [], Ending.CLOSED)
    assert read_regular(whole) is not None
    for damaged in (WHOLE[:-5], WHOLE.replace(b"chunked", b"identity"), b"", WHOLE.replace(b"\r\n\r\n", b"\r\n", 1)):
        assert read_regular(exchange_of(damaged, [], Ending.CLOSED)) is None
    assert read_regular(dataclasses.replace(whole, sizes=[])) is None


def test_a_head_that_says_more_than_chunked_is_left_to_h11() -> None:
    head, rest = WHOLE.split(b"\r\n\r\n", 1)
    for other in (
        head + b"\r\ncontent-length: 5",
        head.replace(b"200 OK", b"204 No Content"),
        head.replace(b"200 OK", b"100 Continue"),
    ):
        exchange = exchange_of(other + b"\r\n\r\n" + rest, [], Ending.CLOSED)
        assert read_regular(exchange) is None
        assert joined(decode_response(exchange)) == joined(read_by_h11(exchange))
