"""A loop of sockets and timers in one thread, with timers accurate to some tens of microseconds.

``asyncio`` is not used: its epoll waits in whole milliseconds, a step of the simulated engine lasts 1.6.
"""

import heapq
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

SPIN_NS = 30_000
"""a timer this near is awaited by looking at the clock: a sleep would come back late"""


class Loop:
    """Timers on the monotonic clock, and callbacks for sockets that are ready."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._fileno: int = self._selector.fileno()  # type: ignore[attr-defined, unused-ignore]
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._stopped = False
        try:
            # The kernel rounds sleeps up by 50 µs unless a thread asks otherwise.
            Path("/proc/self/timerslack_ns").write_text("1")
        except OSError:
            pass

    def at(self, when_ns: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when ``time.monotonic_ns()`` has reached ``when_ns``."""
        heapq.heappush(self._timers, (when_ns, next(self._order), callback))

    def watch(self, sock: socket.socket, callback: Callable[[int], None], *, writing: bool = False) -> None:
        """Call ``callback(mask)`` when ``sock`` can be read, or written if ``writing``; replaces an earlier watch."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        if sock.fileno() in self._selector.get_map():
            self._selector.modify(sock, events, callback)
        else:
            self._selector.register(sock, events, callback)

    def forget(self, sock: socket.socket) -> None:
        """End the watch of ``sock``, which is still open."""
        self._selector.unregister(sock)

    def on_signal(self, numbers: tuple[int, ...], callback: Callable[[], None]) -> None:
        """Call ``callback`` inside the loop after one of these signals."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        for number in numbers:
            signal.signal(number, lambda *_: None)

        def wake(_: int) -> None:
            # The writer lives as long as this closure does.
            if reader.recv(64) and writer.fileno() >= 0:
                callback()

        self.watch(reader, wake)

    def stop(self) -> None:
        """Let :meth:`run` return."""
        self._stopped = True

    def run(self) -> None:
        """Run until :meth:`stop`."""
        timers = self._timers
        while not self._stopped:
            gap = timers[0][0] - time.monotonic_ns() if timers else None
            if gap is not None and 0 < gap <= SPIN_NS:
                while time.monotonic_ns() < timers[0][0]:
                    pass
            elif select.select([self._fileno], [], [], None if gap is None else max(0, gap - SPIN_NS) / 1e9)[0]:
                for key, mask in self._selector.select(0):
                    # An earlier callback of this round may have closed this socket.
                    if self._selector.get_map().get(key.fd) is key:
                        key.data(mask)
            now = time.monotonic_ns()
            while timers and timers[0][0] <= now and not self._stopped:
                heapq.heappop(timers)[2]()
