"""Sockets and kernel timestamps: send requests over new connections and keep every read as it came (contract 3 and 6).

The hot path is ``recvmsg`` and three appends. Literal addresses only, no proxy, no retry, no parsing.
"""

import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.errors import BenchError
from harness.wire.connection import Connection
from harness.wire.exchange import Ending, Exchange, level_reads
from harness.wire.poller import IN, OUT, Poller
from harness.wire.request import sendable_headers
from harness.wire.scheduling import NORMAL, prompt_wakeups

SO_TIMESTAMPNS = 35
"""Linux, all architectures vLLM runs on; the socket module has no name for it before Python 3.13"""

READ_SIZE = 64 * 1024
"""Bytes; from twice that on the allocator may map and unmap memory at every read, which costs more than the read"""
ANCILLARY_SIZE = socket.CMSG_SPACE(16) if hasattr(socket, "CMSG_SPACE") else 0
TICK_S = 0.05
"""How often deadlines are looked at"""
BURST_NS = 50_000
FEW = 8
"""When fewer than one in so many streams is ready, and so soon after the reads before, a burst is under way"""
PAUSE_S = 0.0001
"""In a burst, for more of it to come: the kernel stamps it meanwhile, the server is not interrupted at every write, and
one call finds more to read. It is in the lag of contract section 6, and in no arrival time"""
GRACE_S = 0.25
"""How long after a seeming end a connection is still read"""
MAX_ANSWER = 64 * 1024 * 1024
"""Bytes after which an answer is no longer read: a hundred times the longest that a suite can cause"""
STOPPED = "we stopped reading"


@dataclass(frozen=True)
class Deadlines:
    """Contract section 3, seconds."""

    connect_s: float = 10.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0
    total_s: float = 900.0


@dataclass(frozen=True)
class Clock:
    """The two clocks, as parameters so that a test can step them."""

    wall_ns: Callable[[], int] = time.time_ns
    mono_ns: Callable[[], int] = time.monotonic_ns


class Sink(Protocol):
    """Where bytes go as they come. Called between reads, never from inside one."""

    def begin(self, exchange: Exchange, number: int) -> None:
        """A connection is about to be opened."""

    def drain(self, exchange: Exchange, number: int) -> None:
        """New reads may have been appended since the last call."""

    def end(self, exchange: Exchange, number: int) -> None:
        """Reading stopped; ``exchange`` is final."""


class NoSink:
    """Keeps nothing."""

    def begin(self, exchange: Exchange, number: int) -> None:
        """See Sink."""

    def drain(self, exchange: Exchange, number: int) -> None:
        """See Sink."""

    def end(self, exchange: Exchange, number: int) -> None:
        """See Sink."""


class SocketTransport:
    """Requests to one literal address. ``drain_s`` is how often the sink may be called while streams are open."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        deadlines: Deadlines | None = None,
        clock: Clock | None = None,
        sink: Sink | None = None,
        drain_s: float = 0.5,
        secret_headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._address = (host, port)
        self._deadlines = deadlines or Deadlines()
        self._clock = clock or Clock()
        self._sink: Sink = sink or NoSink()
        self._drain_s = drain_s
        lines = [f"{name}: {value}\r\n" for name, value in sendable_headers(secret_headers)]
        self._secret = "".join(lines).encode("ascii")
        self.timestamp_source = "SO_TIMESTAMPNS" if sys.platform == "linux" else "user-space clock"
        self.scheduling = NORMAL
        self._barrier_ns = 0

    def exchange(self, request: bytes) -> Exchange:
        """One request on one new connection."""
        return self.exchange_all([request])[0]

    def exchange_all(
        self,
        requests: Sequence[bytes],
        *,
        releases_ns: Sequence[int] | None = None,
        barrier: Callable[[], int] | None = None,
    ) -> list[Exchange]:
        """All at once, each on a new connection; returns when every one has ended.

        With ``releases_ns`` all connections are opened first, and request i is sent ``releases_ns[i]`` after the
        barrier (contract section 5): the moment at which every connection stands, or the monotonic time that
        ``barrier`` gives when it is called then. Its t0 is that release.

        Never raises for what servers do; an exception of the caller's (a signal, a sink) closes all connections, and
        the exchanges that were open reach the sink with the ending ``interrupted`` before it goes on. Raises
        BenchError when this process may not open so many sockets.
        """
        poller: Poller[Connection] = Poller()
        with prompt_wakeups() as self.scheduling, contextlib.closing(poller):
            cpu = time.thread_time_ns()
            connections: list[Connection] = []
            try:
                for request in requests:
                    self._open(poller, connections, request, held=releases_ns is not None)
                held: list[tuple[int, Connection]] = []
                if releases_ns is not None:
                    self._connect_all(poller, connections, cpu)
                    start = self._clock.mono_ns() if barrier is None else barrier()
                    due = [(start + release, connections[i]) for i, release in enumerate(releases_ns)]
                    held = sorted((item for item in due if item[1].open), key=lambda item: -item[0])
                    self._barrier_ns = start
                self._loop(poller, connections, held, cpu)
            except BaseException:
                for connection in connections:
                    if connection.open:
                        # The first exception is the one to tell, and no connection may stay open for a second.
                        with contextlib.suppress(Exception):
                            self._finish(poller, connection, Ending.INTERRUPTED, STOPPED, cpu)
                raise
        return [connection.exchange for connection in connections]

    def _open(self, poller: Poller[Connection], connections: list[Connection], request: bytes, *, held: bool) -> None:
        number = len(connections)
        try:
            sock = socket.socket(self._family, socket.SOCK_STREAM)
        except OSError as error:
            raise BenchError(
                f"no socket for connection {number + 1} ({error.strerror}); raise the limit of open files (ulimit -n)"
            ) from None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.timestamp_source == "SO_TIMESTAMPNS":
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        mono, wall = self._clock.mono_ns(), self._clock.wall_ns()
        exchange = Exchange(request, t0_wall_ns=wall, t0_mono_ns=mono, ending=Ending.INTERRUPTED)
        head, separator, body = request.partition(b"\r\n\r\n")
        outgoing = head + b"\r\n" + self._secret + b"\r\n" + body if self._secret and separator else request
        connection = Connection(number, sock, exchange, outgoing, last_ns=mono, held=held)
        connections.append(connection)
        if not held:
            self._sink.begin(exchange, number)
        try:
            sock.connect(self._address)
        except BlockingIOError:
            pass
        except OSError as error:
            self._close(connection, Ending.CONNECT_FAILED, str(error), 0)
            return
        poller.register(sock, OUT, connection)

    def _connect_all(self, poller: Poller[Connection], connections: list[Connection], cpu: int) -> None:
        """Wait until every connection stands or has failed."""
        while any(connection.open and not connection.connected for connection in connections):
            for number, _ in poller.ready(TICK_S):
                connection = poller.owners[number]
                if self._connected(poller, connection, cpu):
                    poller.unregister(connection.sock)
            now = self._clock.mono_ns()
            for connection in connections:
                if connection.open:
                    self._check_deadlines(poller, connection, now, cpu)

    def _release(self, poller: Poller[Connection], connection: Connection, cpu: int) -> None:
        """Send a held request: its clock starts now."""
        exchange, clock = connection.exchange, self._clock
        connected = exchange.t0_wall_ns + (exchange.connected_ns or 0)
        mono, wall = clock.mono_ns(), clock.wall_ns()
        exchange.t0_mono_ns, exchange.t0_wall_ns = mono, wall
        exchange.connected_ns, exchange.released_ns = connected - wall, mono - self._barrier_ns
        connection.held, connection.last_ns = False, mono
        self._sink.begin(exchange, connection.number)
        poller.register(connection.sock, IN, connection)
        self._write(poller, connection, cpu)

    def _loop(
        self,
        poller: Poller[Connection],
        connections: list[Connection],
        held: list[tuple[int, Connection]],
        cpu: int,
    ) -> None:
        """``held`` are requests to release with their monotonic times, the latest first."""
        open_count = sum(connection.open for connection in connections)
        owners, draining = poller.owners, type(self._sink) is not NoSink
        wall_ns, mono_ns = self._clock.wall_ns, self._clock.mono_ns
        now = next_tick = next_drain = 0
        total_ns = int(self._deadlines.total_s * 1e9)
        while open_count:
            if held:
                left = held[-1][0] - mono_ns()
                if left <= 0:
                    connection = held.pop()[1]
                    self._release(poller, connection, cpu)
                    open_count -= not connection.open
                    continue
                poller.wait(min(left / 1e9, TICK_S))
                ready = poller.ready(0)
            else:
                ready = poller.ready(TICK_S)
            woken = mono_ns()
            for number, mask in ready:
                connection = owners[number]
                if mask == IN:
                    # The hot path: one call, one clock, one append; all else waits until a stream is over.
                    try:
                        data, ancillary, _, _ = connection.receive(READ_SIZE, ANCILLARY_SIZE)
                    except BlockingIOError:
                        continue
                    except OSError as error:
                        self._failed(poller, connection, error, cpu)
                    else:
                        if data:
                            connection.raw.append((data, ancillary, wall_ns()))
                            connection.received += len(data)
                            continue
                        self._ended(poller, connection, cpu)
                    open_count -= not connection.open
                    continue
                events = mask if mask == IN else poller.events(number, mask)
                if events & IN:
                    self._read(poller, connection, cpu)
                if connection.open and events & OUT:
                    self._write(poller, connection, cpu)
                open_count -= not connection.open
            if woken - now < BURST_NS and 0 < len(ready) < open_count // FEW and not held:
                time.sleep(PAUSE_S)
            now = mono_ns()
            if now >= next_tick:
                next_tick = now + int(TICK_S * 1e9)
                for connection in connections:
                    # Most have been read since: only the whole of the answer could be too long or too late.
                    received = connection.received
                    if connection.noted != received <= MAX_ANSWER and now - connection.exchange.t0_mono_ns <= total_ns:
                        connection.noted, connection.last_ns = received, now
                    elif connection.open:
                        self._check_deadlines(poller, connection, now, cpu)
                open_count = sum(connection.open for connection in connections)
            if draining and now >= next_drain:
                next_drain = now + int(self._drain_s * 1e9)
                for connection in connections:
                    if connection.open:
                        self._hand_over(connection)

    def _write(self, poller: Poller[Connection], connection: Connection, cpu: int) -> None:
        exchange = connection.exchange
        if not connection.connected and not self._connected(poller, connection, cpu):
            return
        try:
            connection.sent += connection.sock.send(memoryview(connection.outgoing)[connection.sent :])
        except BlockingIOError:
            return
        except OSError as error:
            connection.broken = str(error)
            poller.modify(connection.sock, IN)
            return
        connection.last_ns = self._clock.mono_ns()
        if connection.sent == len(connection.outgoing):
            exchange.sent_ns = self._clock.wall_ns() - exchange.t0_wall_ns
            poller.modify(connection.sock, IN)
        else:
            poller.modify(connection.sock, IN | OUT)

    def _connected(self, poller: Poller[Connection], connection: Connection, cpu: int) -> bool:
        """Whether the connection that became writable stands; one that failed is finished."""
        code = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            reason = str(OSError(code, os.strerror(code)))
            # A closed port refuses; only a connection that already stood can be reset.
            ending = Ending.SEND_FAILED if code == errno.ECONNRESET else Ending.CONNECT_FAILED
            self._finish(poller, connection, ending, reason, cpu)
            return False
        connection.connected = True
        connection.exchange.connected_ns = self._clock.wall_ns() - connection.exchange.t0_wall_ns
        return True

    def _read(self, poller: Poller[Connection], connection: Connection, cpu: int) -> None:
        """One read of a connection that also did something else than become readable."""
        try:
            data, ancillary, _, _ = connection.receive(READ_SIZE, ANCILLARY_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(poller, connection, error, cpu)
            return
        if not data:
            self._ended(poller, connection, cpu)
            return
        connection.raw.append((data, ancillary, self._clock.wall_ns()))
        connection.received += len(data)

    def _failed(self, poller: Poller[Connection], connection: Connection, error: OSError, cpu: int) -> None:
        ending = Ending.RESET if connection.sent == len(connection.outgoing) else Ending.SEND_FAILED
        self._finish(poller, connection, ending, str(error), cpu)

    def _ended(self, poller: Poller[Connection], connection: Connection, cpu: int) -> None:
        ending = Ending.SEND_FAILED if connection.broken else Ending.CLOSED
        self._finish(poller, connection, ending, connection.broken, cpu)

    def _check_deadlines(self, poller: Poller[Connection], connection: Connection, now: int, cpu: int) -> None:
        exchange, limits = connection.exchange, self._deadlines
        if connection.held and connection.connected:
            return
        if connection.received != connection.noted:
            connection.noted, connection.last_ns = connection.received, now
        waited = (now - connection.last_ns) / 1e9
        total = (now - exchange.t0_mono_ns) / 1e9
        if waited > GRACE_S and connection.seems_ended():
            self._finish(poller, connection, Ending.DONE, "the server kept the connection open", cpu)
        elif total > limits.total_s:
            self._finish(poller, connection, Ending.TOTAL_TIMEOUT, f"{limits.total_s:g} s in all", cpu)
        elif not connection.connected:
            if total > limits.connect_s:
                self._finish(poller, connection, Ending.CONNECT_TIMEOUT, f"{limits.connect_s:g} s", cpu)
        elif not connection.received:
            if waited > limits.first_byte_s:
                detail = f"no byte within {limits.first_byte_s:g} s"
                if exchange.sent_ns is None:
                    detail += f", and only {connection.sent} of {len(connection.outgoing)} bytes were taken"
                self._finish(poller, connection, Ending.FIRST_BYTE_TIMEOUT, detail, cpu)
        elif waited > limits.idle_s:
            detail = f"no byte for {limits.idle_s:g} s"
            self._finish(poller, connection, Ending.IDLE_TIMEOUT, detail, cpu)
        elif connection.received > MAX_ANSWER:
            detail = f"the answer is longer than {MAX_ANSWER} bytes"
            self._finish(poller, connection, Ending.INTERRUPTED, detail, cpu)

    def _hand_over(self, connection: Connection) -> None:
        exchange = connection.exchange
        if len(exchange.data) == connection.received:
            return
        connection.take_apart()
        exchange.data = b"".join(connection.parts)
        connection.parts = [exchange.data]
        self._sink.drain(exchange, connection.number)

    def _finish(
        self, poller: Poller[Connection], connection: Connection, ending: Ending, detail: str, cpu: int
    ) -> None:
        poller.unregister(connection.sock)
        self._close(connection, ending, detail, time.thread_time_ns() - cpu)

    def _close(self, connection: Connection, ending: Ending, detail: str, cpu_ns: int) -> None:
        exchange = connection.exchange
        exchange.end_wall_ns, exchange.end_mono_ns = self._clock.wall_ns(), self._clock.mono_ns()
        connection.sock.close()
        connection.open = False
        connection.take_apart()
        exchange.data = b"".join(connection.parts)
        if ending is Ending.INTERRUPTED:
            level_reads(exchange)
        exchange.ending, exchange.detail, exchange.cpu_ns = ending, detail, cpu_ns
        exchange.scheduling = self.scheduling
        exchange.end_ns = exchange.end_wall_ns - exchange.t0_wall_ns
        self._sink.end(exchange, connection.number)
