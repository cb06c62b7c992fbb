"""What a read or a write finds may be gone when it comes: readiness that was true a moment ago, played for real.

A second descriptor of the client's own socket takes bytes, or fills its buffer, between the moment at which the kernel
said *ready* and the call. The moment is one at which the transport asks for the time, through its clock.
"""

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.wire.completion import Reason, parse_completion
from harness.wire.exchange import Ending
from harness.wire.transport import Clock, SocketTransport
from tests.wire.build import GOOD, chunked
from tests.wire.scripted import PATIENCE_S, Peer, act, request, reset, send, serving, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")
WHOLE = b"".join(chunked(GOOD))


class Moment:
    """Does ``action`` when the transport next asks for the wall clock, in its thread; once."""

    def __init__(self) -> None:
        self.action: Callable[[], None] | None = None

    @property
    def clock(self) -> Clock:
        return Clock(wall_ns=self._wall)

    def _wall(self) -> int:
        action, self.action = self.action, None
        if action is not None:
            action()
        return time.time_ns()


@contextmanager
def descriptors(port: int) -> Iterator[dict[int, socket.socket]]:
    """Second descriptors of this process's connections to ``port``, by their own port."""
    found: dict[int, socket.socket] = {}
    for entry in Path("/proc/self/fd").iterdir():
        number = -1
        try:
            number = os.dup(int(entry.name))
            copy = socket.socket(fileno=number)
        except OSError:  # no socket, or gone
            if number >= 0:
                os.close(number)
            continue
        try:
            mine = copy.getpeername()[1] == port
        except (OSError, IndexError):
            mine = False
        if mine:
            found[copy.getsockname()[1]] = copy
        else:
            copy.close()
    try:
        yield found
    finally:
        for copy in found.values():
            copy.close()


def awaited(sock: socket.socket, events: int) -> None:
    """Until the socket is ready for all of ``events``."""
    poll = select.poll()
    poll.register(sock.fileno(), events)
    deadline = time.monotonic() + PATIENCE_S
    while (poll.poll(1000) or [(0, 0)])[0][1] & events != events:
        assert time.monotonic() < deadline, "it never became ready"


def at(peer: Peer) -> int:
    """The client's own port of a connection."""
    return int(peer.sock.getpeername()[1])


@pytest.mark.parametrize("way", ["stolen", "reset"])
def test_bytes_that_were_there_a_moment_ago(way: str) -> None:
    """Both connections are readable; while one is read, the other's bytes go, and perhaps the connection too."""
    moment, asked, over = Moment(), threading.Barrier(3), threading.Event()
    taken: list[tuple[int, bytes]] = []

    def both_ready() -> None:
        with descriptors(server.port) as copies:
            for peer in server.peers:
                peer.sock.sendall(WHOLE[:40])
                awaited(copies[at(peer)], select.POLLIN)
        moment.action = take

    def take() -> None:
        with descriptors(server.port) as copies:
            for number, peer in enumerate(list(server.peers)):
                copy = copies[at(peer)]
                if select.select([copy], [], [], 0)[0]:
                    taken.append((number, copy.recv(65536)))
                    if way == "reset":
                        reset(peer)
                        awaited(copy, select.POLLERR)
        over.set()

    def begin() -> None:
        asked.wait(PATIENCE_S)
        moment.action = both_ready
        server.peers[0].sock.sendall(b"HTTP/1.1 ")

    meet_and_wait = [request, act(lambda: asked.wait(PATIENCE_S)), wait(over)]
    with serving(meet_and_wait) as server:
        threading.Thread(target=begin, daemon=True).start()
        exchanges = SocketTransport("127.0.0.1", server.port, clock=moment.clock).exchange_all([server.request()] * 2)
    ((_, stolen),) = taken
    assert stolen == WHOLE[:40]
    endings = sorted(str(exchange.ending) for exchange in exchanges)
    assert endings == ["closed", "closed" if way == "stolen" else "reset"]
    assert sorted(len(exchange.data) for exchange in exchanges) in ([0, 49], [9, 40]), "nothing is made up"
    assert all(
        exchange.data == b"".join([exchange.data]) and not parse_completion(exchange).complete for exchange in exchanges
    )


def test_room_that_was_there_a_moment_ago() -> None:
    """The connection stands and can be written to; then its buffer is full. The request goes out when there is room."""
    moment, filled = Moment(), threading.Event()

    def opened() -> None:
        moment.action = full

    def full() -> None:
        with descriptors(server.port) as copies:
            (copy,) = copies.values()
            try:
                while True:
                    copy.send(b"x" * 65536)
            except BlockingIOError:
                filled.set()

    def swallow(peer: Peer) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n{}"):
            data = data[-100:] + peer.sock.recv(1 << 20)

    with serving([wait(filled), swallow, send(WHOLE)]) as server:
        moment.action = opened
        exchange = SocketTransport("127.0.0.1", server.port, clock=moment.clock).exchange(server.request())
    assert parse_completion(exchange).complete and exchange.sent_ns is not None


@pytest.mark.parametrize("steal", [False, True], ids=["read", "stolen"])
def test_an_answer_that_begins_before_its_request_is_whole(steal: bool) -> None:
    """A connection that is readable and writable at once, in the middle of a long request."""
    moment, here, early, room, over = Moment(), *(threading.Event() for _ in range(4))
    asked = threading.Barrier(2)
    long = 24 << 20

    def both() -> None:
        short, big = server.peers
        with descriptors(server.port) as copies:
            early.set()
            awaited(copies[at(big)], select.POLLIN | select.POLLOUT)
            room.set()
            short.sock.sendall(WHOLE[9:])
            awaited(copies[at(short)], select.POLLIN)
        if steal:
            moment.action = take
        else:
            over.set()

    def take() -> None:
        with descriptors(server.port) as copies:
            assert copies[at(server.peers[1])].recv(9) == WHOLE[:9]
        over.set()

    def slow(peer: Peer) -> None:
        here.set()
        assert early.wait(PATIENCE_S)
        peer.sock.sendall(WHOLE[:9])
        left = len(big_request)
        while left > 0:
            left -= len(peer.sock.recv(1 << 18))
            if not room.is_set():
                continue
            assert over.wait(PATIENCE_S)
        peer.sock.sendall(WHOLE[9:])

    def arm() -> None:
        assert here.wait(PATIENCE_S)
        asked.wait(PATIENCE_S)
        moment.action = both
        server.peers[0].sock.sendall(WHOLE[:9])

    with serving([request, act(lambda: asked.wait(PATIENCE_S)), wait(over)], [slow]) as server:
        big_request = server.request(b"y" * long)
        threading.Thread(target=arm, daemon=True).start()
        short, big = SocketTransport("127.0.0.1", server.port, clock=moment.clock).exchange_all(
            [server.request(), big_request]
        )
    assert parse_completion(short).complete
    assert big.sent_ns is not None and big.ending is Ending.CLOSED
    assert big.data == (WHOLE[9:] if steal else WHOLE)
    assert parse_completion(big).reason is (Reason.BAD_HTTP if steal else None)


@pytest.mark.parametrize("answered", [False, True], ids=["at once", "after a word"])
def test_a_reset_in_the_middle_of_a_request_keeps_the_word_before_it(answered: bool) -> None:
    """The request no longer goes out; that is found by the read, or by the write after a read that brought a word."""
    moment, here, over = Moment(), threading.Event(), threading.Event()
    asked = threading.Barrier(2)

    def end() -> None:
        with descriptors(server.port) as copies:
            big = server.peers[1]
            copy = copies[at(big)]
            if answered:
                big.sock.sendall(WHOLE[:9])
            reset(big)
            awaited(copy, select.POLLERR)
        over.set()

    def arm() -> None:
        asked.wait(PATIENCE_S)
        assert here.wait(PATIENCE_S)
        poll = select.poll()
        with descriptors(server.port) as copies:
            poll.register(copies[at(server.peers[1])], select.POLLOUT)
            while poll.poll(0):
                time.sleep(0.001)
        moment.action = end
        server.peers[0].sock.sendall(WHOLE)

    full = [lambda peer: here.set(), wait(over)]
    with serving([request, act(lambda: asked.wait(PATIENCE_S)), wait(over)], full) as server:
        requests = [server.request(), server.request(b"y" * (24 << 20))]
        threading.Thread(target=arm, daemon=True).start()
        short, big = SocketTransport("127.0.0.1", server.port, clock=moment.clock).exchange_all(requests)
    assert parse_completion(short).complete
    assert (big.ending, big.sent_ns, big.data) == (Ending.SEND_FAILED, None, WHOLE[:9] if answered else b"")
    assert "reset" in big.detail.lower()
