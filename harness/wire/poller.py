"""Which sockets are ready, asked as cheaply as Python can: epoll itself where the system has it, else poll."""

import select
import socket
import time
from collections.abc import Callable
from typing import Generic, TypeVar

IN, OUT = select.POLLIN, select.POLLOUT
FD_SETSIZE = 1024
"""select() takes no descriptor from here on"""

T = TypeVar("T")


class Poller(Generic[T]):
    """Sockets and what belongs to each. Level-triggered; an error or a hang-up counts as what the socket waits for."""

    def __init__(self) -> None:
        self.owners: dict[int, T] = {}
        """by descriptor"""
        self._waits: dict[int, int] = {}
        self._number = FD_SETSIZE
        self._poll: select.epoll | select.poll
        self.ready: Callable[[float], list[tuple[int, int]]]
        """Descriptors and what each is ready for, after at most so many seconds; what else than IN the latter may
        mean is said by :meth:`events`"""
        if hasattr(select, "epoll"):
            epoll = select.epoll()
            self._poll, self._number, self.ready, self.close = epoll, epoll.fileno(), epoll.poll, epoll.close
        else:
            poll = select.poll()
            self._poll, self.ready, self.close = poll, lambda seconds: poll.poll(seconds * 1000), lambda: None

    def register(self, sock: socket.socket, events: int, owner: T) -> None:
        """Wait for ``events`` (IN, OUT or both)."""
        number = sock.fileno()
        self._poll.register(number, events)
        self._waits[number], self.owners[number] = events, owner

    def modify(self, sock: socket.socket, events: int) -> None:
        """Wait for other events."""
        self._poll.modify(sock.fileno(), events)
        self._waits[sock.fileno()] = events

    def unregister(self, sock: socket.socket) -> None:
        """Wait no longer; nothing happens when it didn't."""
        number = sock.fileno()
        if self.owners.pop(number, None) is not None:
            self._poll.unregister(number)
            del self._waits[number]

    def events(self, number: int, mask: int) -> int:
        """IN, OUT or both, of what was waited for."""
        return (mask if mask in (IN, OUT) else IN | OUT) & self._waits[number]

    def wait(self, seconds: float) -> None:
        """Wait for an event or a time: select() keeps microseconds where the others' timeouts are milliseconds."""
        if self._number < FD_SETSIZE:
            select.select([self._number], [], [], seconds)
        else:
            time.sleep(min(seconds, 1e-4))
