"""Several client processes with one barrier, over real sockets."""

import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BenchError
from harness.wire import workers
from harness.wire.exchange import Ending
from harness.wire.transport import Deadlines
from harness.wire.workers import Spread, _receive, _send, exchange_spread
from tests.wire.scripted import PATIENCE_S, Peer, hold, request, send, serving

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_come_back_in_the_order_of_the_requests(count: int) -> None:
    users = 7
    with serving([echo]) as server:
        requests = [server.request(b'{"number":%d}' % number) for number in range(users)]
        releases = [number * 1_000_000 for number in range(users)]
        found = exchange_spread(Spread(server.host, server.port, count, Deadlines()), requests, releases)
    assert [exchange.request for exchange in found] == requests
    assert [exchange.data for exchange in found] == [HEAD + b'{"number":%d}' % number for number in range(users)]
    assert [exchange.ending for exchange in found] == [Ending.CLOSED] * users
    assert [exchange.worker for exchange in found] == [number % count for number in range(users)]
    # One barrier: the monotonic clock is the machine's, so every request's release leads back to the same moment.
    starts = {exchange.t0_mono_ns - (exchange.released_ns or 0) for exchange in found}
    assert len(starts) == 1
    assert all((exchange.released_ns or 0) >= asked for exchange, asked in zip(found, releases, strict=True))
    stood = [exchange.t0_mono_ns + (exchange.connected_ns or 0) for exchange in found]
    assert max(stood) <= min(starts), "every connection stood before it"
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


def test_one_worker_is_this_process() -> None:
    class Here(Deadlines):
        """Can't be sent to another process, because nothing else can import it."""

    with serving([echo]) as server:
        (exchange,) = exchange_spread(Spread(server.host, server.port, 1, Here()), [server.request(b"{}")], [0])
    assert exchange.ending is Ending.CLOSED


class Sleepy(Deadlines):
    """Whoever unpickles it sleeps."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.sleep, (PATIENCE_S,)


def test_worker_that_does_not_start_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CONNECT_EXTRA_S", 0.05)
    with pytest.raises(BenchError, match=r"client worker SpawnProcess-\d+ did not start within 0\.06 s"):
        exchange_spread(Spread("127.0.0.1", 1, 2, Sleepy(connect_s=0.01)), [b"x"] * 2, [0, 0])
    assert multiprocessing.active_children() == [] and children() == set()


def test_secret_headers_reach_the_server_and_not_the_exchange() -> None:
    with serving([echo]) as server:
        spread = Spread(server.host, server.port, 2, Deadlines(), (("Authorization", "Bearer key-of-a-test"),))
        found = exchange_spread(spread, [server.request(b"{}")] * 2, [0, 0])
        assert all(b"Bearer key-of-a-test" in peer.request for peer in server.peers)
    assert all(b"key-of-a-test" not in exchange.request for exchange in found)


@pytest.mark.parametrize("which", [min, max], ids=["first", "last"])
def test_worker_that_dies_ends_the_batch_in_one_sentence_and_leaves_nothing(which: Callable[[set[int]], int]) -> None:
    """Killed while its streams are open; the other worker's are closed too."""
    killed: list[int] = []

    def kill_one() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ready = [peer for peer in server.peers if peer.request]
            if len(ready) == 4:
                killed.append(which(children()))
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    with serving([request, send(HEAD), hold]) as server:
        killer = threading.Thread(target=kill_one)
        killer.start()
        began = time.monotonic()
        with pytest.raises(BenchError, match=r"client worker \S+ ended with exit code -9") as error:
            exchange_spread(Spread(server.host, server.port, 2, Deadlines()), [server.request(b"{}")] * 4, [0] * 4)
        took = time.monotonic() - began
        killer.join()
    assert took < PATIENCE_S / 2, "the other worker is not waited for until its server gives up"
    assert len(killed) == 1 and "\n" not in str(error.value)
    assert multiprocessing.active_children() == [] and children() == set()


class Fatal(Deadlines):
    """Whoever unpickles it ends, as a worker does that is killed, or can't import what it needs, at its start."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_worker_that_dies_at_its_start_is_told_although_its_requests_fill_a_pipe() -> None:
    """Two workers have a megabyte to take; the parent must not wait for somebody to read it."""
    script = "import sys; from tests.wire.test_workers import with_fatal; with_fatal()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "client worker SpawnProcess-1 ended with exit code 3\n", done.stderr


def with_fatal() -> None:
    """Prints what is told; in a process of its own, because it would have to be killed if it hung."""
    with pytest.raises(BenchError) as error:
        exchange_spread(Spread("127.0.0.1", 1, 2, Fatal()), [b"x" * 500_000] * 4, [0] * 4)
    assert multiprocessing.active_children() == []
    sys.stdout.write(f"{error.value}\n")


def test_worker_that_dies_while_it_hands_over_is_told() -> None:
    """In the middle of a message, which is no end of file."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=os._exit, args=(4,), name="reader-1")
    process.start()
    with ours:
        os.write(theirs.fileno(), struct.pack("!i", 1000) + b"part")
        theirs.close()
        with pytest.raises(BenchError, match="client worker reader-1 ended with exit code 4"):
            _receive(process, ours, None, "end")


def test_worker_that_died_before_it_was_told_to_start_is_named() -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=os._exit, args=(5,), name="reader-1")
    process.start()
    theirs.close()
    with ours, pytest.raises(BenchError, match="client worker reader-1 ended with exit code 5"):
        _send(process, ours, 0)


def test_closed_port_comes_back_as_failed_exchanges() -> None:
    with serving([echo]) as server:
        port = server.port
    found = exchange_spread(Spread("127.0.0.1", port, 2, Deadlines()), [b"x", b"y", b"z"], [0, 0, 0])
    assert [exchange.ending for exchange in found] == [Ending.CONNECT_FAILED] * 3
