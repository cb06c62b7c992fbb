"""Several client processes with one barrier, over real sockets."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from harness.errors import BenchError
from harness.wire.exchange import Ending
from harness.wire.transport import Deadlines
from harness.wire.workers import Spread, exchange_spread
from tests.wire.scripted import Peer, hold, request, send, serving

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def echo(peer: Peer) -> None:
    """Answer with the request's own body."""
    request(peer)
    peer.sock.sendall(HEAD + peer.request.partition(b"\r\n\r\n")[2])


def children() -> set[int]:
    mine = os.getpid()
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) if entry.name.isdigit() else 0
            if parent == mine and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_answers_come_back_in_the_order_of_the_requests(workers: int) -> None:
    users = 7
    with serving([echo]) as server:
        requests = [server.request(b'{"number":%d}' % number) for number in range(users)]
        releases = [number * 1_000_000 for number in range(users)]
        found = exchange_spread(Spread(server.host, server.port, workers, Deadlines()), requests, releases)
    assert [exchange.request for exchange in found] == requests
    assert [exchange.data for exchange in found] == [HEAD + b'{"number":%d}' % number for number in range(users)]
    assert [exchange.ending for exchange in found] == [Ending.CLOSED] * users
    assert [exchange.worker for exchange in found] == [number % workers for number in range(users)]
    # One barrier: the monotonic clock is the machine's, so every request's release leads back to the same moment.
    starts = {exchange.t0_mono_ns - (exchange.released_ns or 0) for exchange in found}
    assert len(starts) == 1
    assert all((exchange.released_ns or 0) >= asked for exchange, asked in zip(found, releases, strict=True))
    assert multiprocessing.active_children() == [] and children() == set()


def test_every_connection_of_every_worker_stands_before_the_first_request() -> None:
    users, started = 6, threading.Barrier(6)

    def together(peer: Peer) -> None:
        started.wait(20)
        echo(peer)

    with serving([together]) as server:
        requests = [server.request(b"{}")] * users
        found = exchange_spread(Spread(server.host, server.port, 3, Deadlines()), requests, [0] * users)
        assert server.peak == users
    assert all(exchange.ending is Ending.CLOSED for exchange in found)


def test_more_workers_than_requests_are_not_started() -> None:
    with serving([echo]) as server:
        found = exchange_spread(Spread(server.host, server.port, 8, Deadlines()), [server.request(b"{}")] * 2, [0, 0])
    assert [exchange.worker for exchange in found] == [0, 1]


def test_secret_headers_reach_the_server_and_not_the_exchange() -> None:
    with serving([echo]) as server:
        spread = Spread(server.host, server.port, 2, Deadlines(), (("Authorization", "Bearer key-of-a-test"),))
        found = exchange_spread(spread, [server.request(b"{}")] * 2, [0, 0])
        assert all(b"Bearer key-of-a-test" in peer.request for peer in server.peers)
    assert all(b"key-of-a-test" not in exchange.request for exchange in found)


def test_worker_that_dies_ends_the_batch_in_one_sentence_and_leaves_nothing() -> None:
    """Killed while its streams are open; the other worker's are closed too."""
    killed: list[int] = []

    def kill_one() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ready = [peer for peer in server.peers if peer.request]
            if len(ready) == 4:
                killed.append(min(children()))
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    with serving([request, send(HEAD), hold]) as server:
        killer = threading.Thread(target=kill_one)
        killer.start()
        with pytest.raises(BenchError, match=r"client worker \S+ ended with exit code -9") as error:
            exchange_spread(Spread(server.host, server.port, 2, Deadlines()), [server.request(b"{}")] * 4, [0] * 4)
        killer.join()
    assert len(killed) == 1 and "\n" not in str(error.value)
    assert multiprocessing.active_children() == [] and children() == set()


def test_closed_port_comes_back_as_failed_exchanges() -> None:
    with serving([echo]) as server:
        port = server.port
    found = exchange_spread(Spread("127.0.0.1", port, 2, Deadlines()), [b"x", b"y", b"z"], [0, 0, 0])
    assert [exchange.ending for exchange in found] == [Ending.CONNECT_FAILED] * 3
