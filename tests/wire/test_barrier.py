"""The held start of a ladder's batch, over real sockets: connect all, meet, release in order, record it."""

import socket
import threading
import time
from pathlib import Path

import pytest

from harness.errors import Interrupted
from harness.wire.capture import Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Ending, Exchange
from harness.wire.transport import Deadlines, NoSink, SocketTransport
from tests.wire.scripted import Peer, ScriptedServer, Step, hold, meet, request, reset, send, serving, wait

ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"
"""Whole at the end of file only, so that no slow close is taken for a connection left open"""


def released(exchanges: list[Exchange]) -> list[int]:
    found = [exchange.released_ns for exchange in exchanges]
    assert None not in found
    return [item for item in found if item is not None]


def transport(server: ScriptedServer, **options: object) -> SocketTransport:
    return SocketTransport(server.host, server.port, **options)  # type: ignore[arg-type]


def silent_until(event: threading.Event, early: list[int]) -> Step:
    """Nothing may come before ``event``; the number of a connection on which something did is kept."""

    def step(peer: Peer) -> None:
        peer.sock.setblocking(False)
        while not event.is_set():
            try:
                # What is there once the event is set may have been sent after it.
                if peer.sock.recv(1, socket.MSG_PEEK) and not event.is_set():
                    early.append(peer.number)
                    break
            except BlockingIOError:
                time.sleep(0.001)
        peer.sock.setblocking(True)

    return step


def test_no_byte_is_sent_before_every_connection_stands() -> None:
    """The barrier is held until the server has all connections, and it has read nothing until then."""
    users, opened, early = 32, threading.Event(), list[int]()
    with serving([silent_until(opened, early), request, send(ANSWER)]) as server:
        asked: list[int] = []

        def barrier() -> int:
            deadline = time.monotonic() + 20
            while len(server.peers) < users and time.monotonic() < deadline:
                time.sleep(0.001)
            asked.append(len(server.peers))
            opened.set()
            return time.monotonic_ns()

        found = transport(server).exchange_all([server.request()] * users, releases_ns=[0] * users, barrier=barrier)
    assert asked == [users] and server.peak == users
    assert early == []
    assert [exchange.data for exchange in found] == [ANSWER] * users
    assert all(exchange.ending is Ending.CLOSED for exchange in found)


def test_requests_are_released_in_order_at_their_times_and_never_early() -> None:
    """Asked in another order than they stand; every answer waits for all, so that none is on its way meanwhile."""
    releases = [12_000_000, 0, 6_000_000, 3_000_000, 9_000_000]
    together = threading.Barrier(len(releases))
    with serving([request, meet(together), send(ANSWER)]) as server:
        requests = [server.request(b'{"number":%d}' % number) for number in range(len(releases))]
        found = transport(server).exchange_all(requests, releases_ns=releases)
    real = released(found)
    assert all(at >= asked for at, asked in zip(real, releases, strict=True))
    assert sorted(range(5), key=lambda i: real[i]) == sorted(range(5), key=lambda i: releases[i])
    assert [exchange.request for exchange in found] == requests
    starts = [exchange.t0_mono_ns - at for exchange, at in zip(found, real, strict=True)]
    assert len(set(starts)) == 1, "one barrier for all, by the monotonic clock"
    for exchange in found:
        assert exchange.sent_ns is not None and exchange.sent_ns >= 0
        assert exchange.connected_ns is not None and exchange.connected_ns <= 0, "it stood before its clock started"
        assert min(exchange.at_ns) > 0


def test_barrier_in_the_future_is_waited_for() -> None:
    start = 0

    def barrier() -> int:
        nonlocal start
        start = time.monotonic_ns() + 30_000_000
        return start

    with serving([request, send(ANSWER)]) as server:
        found = transport(server).exchange_all([server.request()] * 3, releases_ns=[0, 0, 0], barrier=barrier)
    assert all(exchange.t0_mono_ns >= start for exchange in found)
    assert all(at == exchange.t0_mono_ns - start for at, exchange in zip(released(found), found, strict=True))


def test_reset_of_a_held_connection_does_not_stop_the_others() -> None:
    gone = threading.Event()

    def vanish(peer: Peer) -> None:
        reset(peer)
        gone.set()

    with serving([vanish], [request, send(ANSWER)]) as server:

        def barrier() -> int:
            assert gone.wait(20)
            return time.monotonic_ns()

        found = transport(server).exchange_all([server.request()] * 4, releases_ns=[0] * 4, barrier=barrier)
    assert [exchange.ending for exchange in found[1:]] == [Ending.CLOSED] * 3
    assert found[0].ending in (Ending.RESET, Ending.SEND_FAILED) and found[0].data == b""


def test_closed_port_fails_every_request_and_calls_the_barrier_once() -> None:
    with serving([request]) as server:
        port = server.port
    calls: list[int] = []

    def barrier() -> int:
        calls.append(1)
        return time.monotonic_ns()

    found = SocketTransport("127.0.0.1", port).exchange_all([b"x"] * 3, releases_ns=[0] * 3, barrier=barrier)
    assert [exchange.ending for exchange in found] == [Ending.CONNECT_FAILED] * 3
    assert [exchange.released_ns for exchange in found] == [None] * 3, "what was never released has no release time"
    assert calls == [1], "a worker that waits for the barrier must not wait for ever"


def test_held_request_has_no_deadline_before_its_release() -> None:
    """The first-byte limit is shorter than the stagger."""
    limits = Deadlines(connect_s=10, first_byte_s=0.15, idle_s=0.15, total_s=0.2)
    with serving([request, send(ANSWER)]) as server:
        found = transport(server, deadlines=limits).exchange_all([server.request()] * 2, releases_ns=[0, 400_000_000])
    assert [exchange.ending for exchange in found] == [Ending.CLOSED] * 2
    assert released(found)[1] >= 400_000_000


def test_deadline_counts_from_the_release() -> None:
    limits = Deadlines(first_byte_s=0.1)
    with serving([request, hold]) as server:
        found = transport(server, deadlines=limits).exchange_all([server.request()] * 2, releases_ns=[0, 100_000_000])
    assert [exchange.ending for exchange in found] == [Ending.FIRST_BYTE_TIMEOUT] * 2
    assert all(exchange.end_ns >= 90_000_000 for exchange in found)


def test_interruption_while_held_closes_every_connection_and_sends_nothing() -> None:
    with serving([hold]) as server:

        def barrier() -> int:
            raise Interrupted("interrupted by SIGINT")

        with pytest.raises(Interrupted):
            transport(server).exchange_all([server.request()] * 3, releases_ns=[0] * 3, barrier=barrier)
    assert all(peer.closed_by_client and peer.request == b"" for peer in server.peers)


class Stop(NoSink):
    """Raises when the first answer has come, while others are held."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, Ending]] = []

    def end(self, exchange: Exchange, number: int) -> None:
        self.ended.append((number, exchange.ending))
        if exchange.ending is Ending.CLOSED:
            raise Interrupted("interrupted by SIGTERM")


def test_interruption_between_releases_keeps_what_came() -> None:
    sink = Stop()
    with serving([request, send(ANSWER)], [hold]) as server, pytest.raises(Interrupted):
        transport(server, sink=sink).exchange_all([server.request()] * 3, releases_ns=[0, 10**11, 10**11])
    assert sorted(sink.ended) == [(0, Ending.CLOSED), (1, Ending.INTERRUPTED), (2, Ending.INTERRUPTED)]
    assert all(peer.request == b"" for peer in server.peers[1:])


def test_capture_keeps_release_and_worker(tmp_path: Path) -> None:
    release = threading.Event()
    with serving([request, send(ANSWER[:30]), wait(release), send(ANSWER[30:])]) as server:
        threading.Timer(0.02, release.set).start()
        found = transport(server).exchange_all([server.request()] * 3, releases_ns=[0, 2_000_000, 4_000_000])
    for number, exchange in enumerate(found):
        exchange.worker = number
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "mtp0"})
    tags = [Tag("batch", f"a-c{number:03d}", "c003-p02", f"id-{number}") for number in range(3)]
    for tag, exchange in zip(tags, found, strict=True):
        writer.whole(tag, exchange)
    writer.sync()
    killed = load_capture(path)
    writer.close()
    whole = load_capture(path)
    assert killed.truncated and not whole.truncated
    for capture in (killed, whole):
        assert [tag for tag, _ in capture.exchanges] == tags
        assert [exchange for _, exchange in capture.exchanges] == found
    assert released([exchange for _, exchange in whole.exchanges])[2] >= 4_000_000


def test_strict_request_has_no_release_in_its_capture(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "capture.jsonl.zst", {"label": "mtp0-a"})
    writer.tags = [Tag("suite", "a")]
    with serving([request, send(ANSWER)]) as server:
        transport(server, sink=writer).exchange(server.request())
    writer.close()
    ((_, exchange),) = load_capture(tmp_path / "capture.jsonl.zst").exchanges
    assert (exchange.released_ns, exchange.worker) == (None, 0)
