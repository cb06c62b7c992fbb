"""The socket transport, where hardly a server leads: its clocks, its limits, and what comes at one moment."""

import contextlib
import errno
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import harness.wire.transport as transport_module
from harness.wire.exchange import Ending
from harness.wire.transport import Clock, Deadlines, SocketTransport
from tests.hostile.test_races import WHOLE, Moment, at, awaited, descriptors
from tests.wire.asking import ANSWER, Began
from tests.wire.build import GOOD, until_close
from tests.wire.scripted import PATIENCE_S, Peer, act, hold, request, reset, send, serving, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")


class Skipping:
    """A monotonic clock that a test sets forward."""

    def __init__(self) -> None:
        self.ahead_ns = self.looks = 0

    @property
    def clock(self) -> Clock:
        return Clock(mono_ns=self._mono)

    def _mono(self) -> int:
        self.looks += 1
        return time.monotonic_ns() + self.ahead_ns

    def skip(self, seconds: float) -> None:
        self.ahead_ns += round(seconds * 1e9)

    def pass_ticks(self) -> None:
        """Until the transport has waited in vain some times, and so looked at its deadlines."""
        enough, deadline = self.looks + 10, time.monotonic() + PATIENCE_S
        while self.looks < enough and time.monotonic() < deadline:
            time.sleep(0.001)


# what is there without being said


def test_limits_are_those_of_the_contract() -> None:
    assert Deadlines() == Deadlines(connect_s=10.0, first_byte_s=120.0, idle_s=60.0, total_s=900.0)
    assert transport_module.MAX_ANSWER == 67_108_864
    fresh = SocketTransport("127.0.0.1", 1)
    assert (fresh.scheduling, fresh._drain_s) == ("normal", 0.5)
    assert transport_module.SO_TIMESTAMPNS == 35, "asm-generic/socket.h"


def test_small_writes_go_out_at_once() -> None:
    found: list[int] = []

    def look(peer: Peer) -> None:
        with descriptors(server.port) as copies:
            found.append(copies[at(peer)].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with serving([request, look, send(WHOLE)]) as server:
        SocketTransport("127.0.0.1", server.port).exchange(server.request())
    assert found and found[0] != 0


def test_a_connection_that_is_refused_at_once_took_no_time_of_the_reading() -> None:
    found = SocketTransport("255.255.255.255", 80).exchange(b"x")
    assert (found.ending, found.cpu_ns) == (Ending.CONNECT_FAILED, 0)


# the held start


def test_a_held_request_has_its_times_from_its_release() -> None:
    looks: list[int] = []

    def wall() -> int:
        looks.append(time.time_ns())
        return looks[-1]

    sink = Began()
    with serving([request, send(WHOLE)]) as server:
        transport = SocketTransport("127.0.0.1", server.port, clock=Clock(wall_ns=wall), sink=sink)
        (found,) = transport.exchange_all([server.request()], releases_ns=[20_000_000])
    opened, connected, released = looks[:3]
    assert opened <= connected <= released and released - connected >= 15_000_000
    assert (found.t0_wall_ns, found.connected_ns) == (released, connected - released)
    assert sink.calls[0] == ("begin", 0) and sink.calls[-1] == ("end", 0) and len(sink.calls) <= 3


def test_a_sink_hears_of_held_requests_in_the_order_of_their_releases() -> None:
    sink = Began()
    with serving([request, send(WHOLE)]) as server:
        transport = SocketTransport("127.0.0.1", server.port, sink=sink)
        transport.exchange_all([server.request()] * 3, releases_ns=[4_000_000, 0, 2_000_000])
    assert [number for call, number in sink.calls if call == "begin"] == [1, 2, 0]


def test_releases_are_hardly_late_and_waiting_for_them_costs_little() -> None:
    """The best of some tries: a machine that does other things too makes any one late."""
    lateness, cpu = [], []
    for _ in range(5):
        releases = [200_000_000 + place * 5_000_000 for place in range(12)]
        together = threading.Event()
        with serving([request, wait(together), send(WHOLE)]) as server:
            threading.Timer(0.3, together.set).start()
            transport = SocketTransport("127.0.0.1", server.port)
            found = transport.exchange_all([server.request()] * 12, releases_ns=releases)
        lateness.append(max((item.released_ns or 0) - asked for item, asked in zip(found, releases, strict=True)))
        cpu.append(max(item.cpu_ns for item in found))
        if lateness[-1] < 30_000_000:
            break
    assert min(lateness) < 30_000_000, "nothing waits in whole ticks"
    assert min(cpu) < 150_000_000, "nothing turns in a circle"


@contextlib.contextmanager
def full(queue: int = 0) -> Iterator[socket.socket]:
    """A listener whose queue is full: what connects now gets no answer until something is accepted."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(queue)
        stack.enter_context(socket.create_connection(listener.getsockname()))
        yield listener


def test_a_held_connection_that_gets_no_answer_ends_by_its_own_limit() -> None:
    with full() as listener, contextlib.ExitStack() as stack:
        for _ in range(4):
            extra = stack.enter_context(socket.socket())
            extra.setblocking(False)
            extra.connect_ex(listener.getsockname())
        transport = SocketTransport("127.0.0.1", listener.getsockname()[1], deadlines=Deadlines(connect_s=0.3))
        (found,) = transport.exchange_all([b"x"], releases_ns=[0])
    assert (found.ending, found.detail) == (Ending.CONNECT_TIMEOUT, "0.3 s")


def test_connections_may_take_their_time_and_are_all_waited_for() -> None:
    """The second one is answered when its first try has been lost, a second later."""
    standing: list[int] = []

    def accept(listener: socket.socket) -> None:
        for _ in range(3):
            sock, _ = listener.accept()
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    def answer(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while not sock.recv(65536).endswith(b"{}"):
                pass
            sock.sendall(WHOLE)

    with full(1) as listener:  # so that the first one stands at once
        host, port = listener.getsockname()

        def barrier() -> int:
            with descriptors(port) as copies:
                standing.append(len(copies))
            return time.monotonic_ns()

        timer = threading.Timer(0.2, accept, (listener,))
        timer.daemon = True
        timer.start()
        transport = SocketTransport(host, port)
        found = transport.exchange_all([b"POST / HTTP/1.1\r\n\r\n{}"] * 2, releases_ns=[0, 0], barrier=barrier)
    assert [item.ending for item in found] == [Ending.CLOSED] * 2
    assert standing == [3], "both, and the one that filled the queue"


def test_a_connection_is_closed_at_its_end_while_others_go_on() -> None:
    """The one that the server keeps open: its peer sees our close before the other one is answered."""
    left = threading.Event()
    kept = [request, send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), hold, act(left.set)]
    with serving(kept, [request, wait(left), send(WHOLE)]) as server:
        found = SocketTransport(server.host, server.port).exchange_all([server.request()] * 2)
    assert [item.ending for item in found] == [Ending.DONE, Ending.CLOSED]


# limits


def limits(**changes: float) -> Deadlines:
    return Deadlines(**{"connect_s": 1000, "first_byte_s": 1000, "idle_s": 1000, "total_s": 1e6, **changes})


@pytest.mark.parametrize(
    ("given", "sent", "ending"),
    [
        ({}, b"", Ending.FIRST_BYTE_TIMEOUT),
        ({}, b"HTTP/1.1 200 OK\r\n", Ending.IDLE_TIMEOUT),
        ({"first_byte_s": 1e5, "total_s": 1000}, b"", Ending.TOTAL_TIMEOUT),
    ],
)
def test_a_limit_is_a_limit_to_the_twentieth(given: dict[str, float], sent: bytes, ending: Ending) -> None:
    clock, sink = Skipping(), Began()
    waits = [wait(sink.seen)] if sent else []
    with serving([request, send(sent), *waits, act(clock.pass_ticks), act(lambda: clock.skip(1050)), hold]) as server:
        transport = SocketTransport(
            "127.0.0.1", server.port, clock=clock.clock, deadlines=limits(**given), sink=sink, drain_s=0.0
        )
        found = transport.exchange(server.request())
    assert found.ending is ending


def test_a_limit_of_all_counts_while_bytes_keep_coming_too() -> None:
    clock, ended = Skipping(), threading.Event()

    def drip(peer: Peer) -> None:
        for place in range(1000):
            if place == 20:
                clock.skip(1050)
            peer.sock.sendall(b"x")
            if ended.wait(0.01):
                return

    with serving([request, send(b"".join(until_close([]))), drip]) as server:
        transport = SocketTransport("127.0.0.1", server.port, clock=clock.clock, deadlines=limits(total_s=1000))
        found = transport.exchange(server.request())
        ended.set()
    assert (found.ending, found.detail) == (Ending.TOTAL_TIMEOUT, "1000 s in all")


def test_a_request_that_goes_out_slowly_is_not_waited_for_in_all() -> None:
    """What counts is how long nothing moved: here 240 s pass, never 100 without a byte taken."""
    clock, step = Skipping(), 24 << 20

    def take(peer: Peer, left: int = step) -> None:
        while left > 0:
            left -= len(peer.sock.recv(min(left, 1 << 20)))

    jump = act(lambda: clock.skip(80))
    steps = [take, jump, take, jump, take, jump, lambda peer: take(peer, len(asked) - 3 * step), send(ANSWER)]
    with serving(steps) as server:
        asked = server.request(b"x" * (4 * step))
        transport = SocketTransport("127.0.0.1", server.port, clock=clock.clock, deadlines=limits(first_byte_s=100))
        found = transport.exchange(asked)
    assert found.ending is Ending.CLOSED and found.data == ANSWER


@pytest.mark.parametrize(("limit", "ending"), [(1000, Ending.IDLE_TIMEOUT), (999, Ending.INTERRUPTED)])
def test_an_answer_may_be_exactly_so_long(limit: int, ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_ANSWER", limit)
    with serving([request, send(b"x" * 1000), hold]) as server:
        transport = SocketTransport("127.0.0.1", server.port, deadlines=Deadlines(idle_s=0.5))
        found = transport.exchange(server.request())
    assert (found.ending, len(found.data)) == (ending, 1000)


def test_the_sink_is_called_no_more_often_than_was_asked() -> None:
    sink, between = Began(), threading.Event()
    writes = until_close(GOOD)
    script = [step for write in writes for step in (send(write), act(lambda: between.wait(0.03)))]
    with serving([request, *script]) as server:
        SocketTransport("127.0.0.1", server.port, sink=sink, drain_s=3600.0).exchange(server.request())
    assert [call for call, _ in sink.calls].count("drain") <= 1


# what comes at one moment


def test_bytes_and_a_reset_at_one_moment_are_bytes_and_a_reset() -> None:
    moment, over = Moment(), threading.Event()
    asked = threading.Barrier(3)

    def both() -> None:
        with descriptors(server.port) as copies:
            peer = server.peers[1]
            peer.sock.sendall(WHOLE[:40])
            awaited(copies[ports[1]], select.POLLIN)
            reset(peer)
            awaited(copies[ports[1]], select.POLLERR)
        over.set()

    ports: list[int] = []

    def begin() -> None:
        asked.wait(PATIENCE_S)
        ports.extend(at(peer) for peer in server.peers)
        moment.action = both
        server.peers[0].sock.sendall(WHOLE)

    with serving([request, act(lambda: asked.wait(PATIENCE_S)), wait(over)]) as server:
        threading.Thread(target=begin, daemon=True).start()
        transport = SocketTransport("127.0.0.1", server.port, clock=moment.clock)
        exchanges = transport.exchange_all([server.request()] * 2)
    kinds = sorted((str(item.ending), item.data) for item in exchanges)
    assert kinds == [("closed", WHOLE), ("reset", WHOLE[:40])]


def test_a_connection_that_is_reset_before_its_first_byte_goes_out() -> None:
    """It stood when it was asked; the first write finds the reset, and the reading ends it."""
    moment, accepted = Moment(), threading.Event()

    def opened() -> None:
        moment.action = gone

    def gone() -> None:
        assert accepted.wait(PATIENCE_S)
        with descriptors(server.port) as copies:
            (copy,) = copies.values()
            reset(server.peers[0])
            awaited(copy, select.POLLERR)

    with serving([act(accepted.set), lambda peer: threading.Event().wait(0.5)]) as server:
        moment.action = opened
        transport = SocketTransport("127.0.0.1", server.port, clock=moment.clock, deadlines=limits(total_s=5))
        found = transport.exchange(server.request())
    assert (found.ending, found.sent_ns, found.data) == (Ending.SEND_FAILED, None, b"")
    assert str(errno.ECONNRESET) in found.detail


def test_a_word_that_came_while_sending_counts_as_the_first_byte() -> None:
    """Read together with a write: the wait after it is one between bytes."""
    moment, here = Moment(), threading.Event()
    asked = threading.Barrier(2)

    def both() -> None:
        with descriptors(server.port) as copies:
            big = server.peers[1]
            big.sock.sendall(WHOLE[:9])
            left = 20 << 20
            while left > 0:
                left -= len(big.sock.recv(1 << 20))
                if select_out(copies[at(big)]):
                    break
            awaited(copies[at(big)], select.POLLIN | select.POLLOUT)

    def arm() -> None:
        asked.wait(PATIENCE_S)
        assert here.wait(PATIENCE_S)
        with descriptors(server.port) as copies:
            while select_out(copies[at(server.peers[1])]):
                time.sleep(0.001)
        moment.action = both
        server.peers[0].sock.sendall(WHOLE)

    over = threading.Event()
    with serving([request, act(lambda: asked.wait(PATIENCE_S)), wait(over)], [act(here.set), wait(over)]) as server:
        requests = [server.request(), server.request(b"y" * (48 << 20))]
        threading.Thread(target=arm, daemon=True).start()
        given = limits(idle_s=0.5, first_byte_s=PATIENCE_S)
        transport = SocketTransport("127.0.0.1", server.port, clock=moment.clock, deadlines=given)
        threading.Timer(1.5, over.set).start()
        short, big = transport.exchange_all(requests)
        over.set()
    assert short.data == WHOLE
    assert (big.ending, big.data) == (Ending.IDLE_TIMEOUT, WHOLE[:9])


def select_out(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(0))
