"""One connection of the socket transport, while it is read."""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.wire.answer_end import AnswerEnd
from harness.wire.exchange import Exchange

_TIMESPEC = struct.Struct("@ll")


def _kernel_ns(stamp: bytes) -> int:
    seconds, nanoseconds = _TIMESPEC.unpack_from(stamp)
    return int(seconds * 1_000_000_000 + nanoseconds)


@dataclass(slots=True)
class Connection:
    """What is known of it. ``parts`` are the reads since the last hand-over, the first one all before."""

    number: int
    sock: socket.socket
    exchange: Exchange
    outgoing: bytes
    raw: list[tuple[bytes, list[tuple[int, int, bytes]], int]] = field(default_factory=list)
    """reads as they came: bytes, ancillary data, wall clock; taken apart when there is time"""
    parts: list[bytes] = field(default_factory=list)
    sent: int = 0
    connected: bool = False
    open: bool = True
    last_ns: int = 0
    """monotonic time of the last progress; that of a read is noted by the next look at the deadlines"""
    received: int = 0
    """bytes of the answer so far"""
    noted: int = 0
    """of these, by the last look at the deadlines"""
    judged: int = 0
    """of these, seen by ``end``"""
    held: bool = False
    """connected and waiting for its release"""
    broken: str = ""
    """why sending failed; what the server said before is still read"""
    end: AnswerEnd = field(default_factory=AnswerEnd)
    maybe_ended: bool = False
    receive: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        self.receive = self.sock.recvmsg

    def take_apart(self) -> None:
        """Move the reads as they came into the exchange: their kernel times, or the clock's where there is none."""
        raw, self.raw = self.raw, []
        if not raw:
            return
        exchange, t0 = self.exchange, self.exchange.t0_wall_ns
        parts, ancillaries, walls = zip(*raw, strict=True)
        users = [wall - t0 for wall in walls]
        stamps = [ancillary[0][2] if ancillary else b"" for ancillary in ancillaries]
        if all(stamps):
            times = _TIMESPEC.iter_unpack(b"".join(stamps))
            exchange.at_ns += [seconds * 1_000_000_000 + nanoseconds - t0 for seconds, nanoseconds in times]
        else:
            exchange.at_ns += [
                _kernel_ns(stamp) - t0 if stamp else user for stamp, user in zip(stamps, users, strict=True)
            ]
        exchange.kernel += map(bool, stamps)
        exchange.user_ns += users
        exchange.sizes += map(len, parts)
        self.parts += parts

    def seems_ended(self) -> bool:
        """Whether the answer may be over. For a connection that has fallen silent: reads needn't pay for it."""
        if self.judged != self.received:
            self.take_apart()
            self.parts = [b"".join(self.parts)]
            self.maybe_ended = self.end.feed(self.parts[0][self.judged :])
            self.judged = self.received
        return self.maybe_ended
