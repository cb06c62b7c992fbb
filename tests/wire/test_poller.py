"""The poller over epoll and over poll, which must not be told apart."""

import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from harness.wire.exchange import Ending
from harness.wire.poller import FD_SETSIZE, IN, OUT, Poller
from harness.wire.transport import SocketTransport
from tests.wire.build import GOOD, chunked
from tests.wire.scripted import request, reset, send, serving

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["epoll", "poll"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if not hasattr(select, request.param):
        pytest.skip(f"the system has no {request.param}")
    if request.param == "poll":
        monkeypatch.delattr(select, "epoll", raising=False)
    return str(request.param)


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.fixture
def poller(kind: str) -> Iterator[Poller[str]]:
    made: Poller[str] = Poller()
    assert (made._number < FD_SETSIZE) == (kind == "epoll")
    yield made
    made.close()


def seen(poller: Poller[str], seconds: float = 0) -> list[tuple[str, int]]:
    return [(poller.owners[number], poller.events(number, mask)) for number, mask in poller.ready(seconds)]


def test_only_what_is_waited_for(poller: Poller[str], pair: Pair) -> None:
    near, far = pair
    assert poller.ready(0) == []
    poller.register(near, IN, "near")
    assert seen(poller) == []
    far.send(b"x")
    assert poller.ready(10) == [(near.fileno(), IN)]
    poller.modify(near, IN | OUT)
    assert seen(poller, 10) == [("near", IN | OUT)]
    poller.modify(near, OUT)
    assert seen(poller, 10) == [("near", OUT)]
    poller.modify(near, IN)
    near.recv(1)
    assert seen(poller) == []


@pytest.mark.parametrize("waits", [IN, OUT, IN | OUT])
def test_a_hang_up_is_what_is_waited_for(poller: Poller[str], pair: Pair, waits: int) -> None:
    near, far = pair
    poller.register(near, waits, "near")
    far.close()
    assert seen(poller, 10) == [("near", waits)]


def test_unregistered_sockets_are_forgotten(poller: Poller[str], pair: Pair) -> None:
    near, far = pair
    poller.register(near, IN, "near")
    far.send(b"x")
    poller.unregister(near)
    poller.unregister(near)
    assert poller.ready(0) == []
    assert (poller.owners, poller._waits) == ({}, {})
    poller.register(near, IN, "again")
    assert seen(poller, 10) == [("again", IN)]


def test_a_wait_ends_with_the_event(poller: Poller[str], pair: Pair) -> None:
    near, far = pair
    poller.register(near, IN, "near")
    poller.wait(1e-4)
    far.send(b"x")
    poller.wait(1e-4)
    assert seen(poller) == [("near", IN)]


def test_exchanges(kind: str) -> None:
    answer = b"".join(chunked(GOOD))
    with serving([request, send(answer)], [request, reset], [request, send(answer)]) as server:
        exchanges = SocketTransport("127.0.0.1", server.port).exchange_all([server.request()] * 3)
    assert sorted(exchange.ending for exchange in exchanges) == [Ending.CLOSED, Ending.CLOSED, Ending.RESET]
    assert sorted(exchange.data for exchange in exchanges) == [b"", answer, answer]


def seconds_of(call: Callable[[], object]) -> float:
    before = time.monotonic()
    call()
    return time.monotonic() - before


def test_a_look_lasts_as_long_as_was_asked(poller: Poller[str], pair: Pair) -> None:
    poller.register(pair[0], IN, "near")
    assert seconds_of(lambda: poller.ready(0.05)) >= 0.049


def test_a_wait_without_an_event_ends_in_time(poller: Poller[str], pair: Pair) -> None:
    """select() waits so long; where it can't be used, a tenth of a millisecond at a time."""
    poller.register(pair[0], IN, "near")
    took = min(seconds_of(lambda: poller.wait(0.02)) for _ in range(20))
    assert took >= 0.0199 if poller._number < FD_SETSIZE else 1e-4 <= took < 0.009


def test_a_plain_answer_is_taken_at_its_word(poller: Poller[str], pair: Pair) -> None:
    near, _ = pair
    poller.register(near, IN | OUT, "near")
    number = near.fileno()
    assert [poller.events(number, mask) for mask in (IN, OUT, IN | OUT)] == [IN, OUT, IN | OUT]
    assert poller.events(number, select.POLLHUP) == IN | OUT


def test_select_takes_descriptors_below_1024() -> None:
    assert FD_SETSIZE == 1024
    with pytest.raises(ValueError, match="out of range"):
        select.select([FD_SETSIZE], [], [], 0)
