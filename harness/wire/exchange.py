"""One request and everything that came back for it: bytes and their arrival times, nothing parsed.

Times are integer nanoseconds after ``t0``, which is taken just before the connection is opened (contract section 3).
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Ending(StrEnum):
    """Why reading stopped."""

    CLOSED = "closed"
    """the server closed the connection (end of file)"""
    DONE = "done"
    """the answer had ended and the server kept the connection open; we closed it after a short grace"""
    RESET = "reset"
    """the connection was reset"""
    CONNECT_FAILED = "connect-failed"
    CONNECT_TIMEOUT = "connect-timeout"
    SEND_FAILED = "send-failed"
    FIRST_BYTE_TIMEOUT = "first-byte-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    TOTAL_TIMEOUT = "total-timeout"
    INTERRUPTED = "interrupted"
    """we stopped: the campaign was ended, or the server was seen to be dead"""


@dataclass(slots=True)
class Exchange:
    """A request with the raw bytes of its answer.

    ``data`` is the concatenation of all reads; read ``i`` holds the next ``sizes[i]`` bytes, arrived at ``at_ns[i]``
    (kernel receive time where ``kernel[i]`` is true, else the time the read returned) and was returned to us at
    ``user_ns[i]``, in nanoseconds after ``t0``. ``framing`` is ``"http"`` when ``data`` is the byte stream of
    the connection, ``"body"`` when a library removed the HTTP framing (https and proxied endpoints); ``status`` and
    ``headers`` are given only then.
    """

    request: bytes
    t0_wall_ns: int
    """CLOCK_REALTIME at t0, nanoseconds since the epoch"""
    t0_mono_ns: int
    """CLOCK_MONOTONIC at t0, nanoseconds"""
    ending: Ending
    detail: str = ""
    """the operating system's words for a failed ending"""
    data: bytes = b""
    sizes: list[int] = field(default_factory=list)
    at_ns: list[int] = field(default_factory=list)
    user_ns: list[int] = field(default_factory=list)
    kernel: list[bool] = field(default_factory=list)
    connected_ns: int | None = None
    sent_ns: int | None = None
    """when the last byte of the request was handed to the kernel"""
    end_ns: int = 0
    """when reading stopped (user-space clock)"""
    cpu_ns: int = 0
    """CPU time of the reading thread from t0 to the end; shared when several exchanges ran at once"""
    released_ns: int | None = None
    """held starts only: t0 less the barrier, both by the monotonic clock; then t0 is the release, not the opening"""
    worker: int = 0
    """which client process read it"""
    scheduling: str = "unknown"
    """of the reading thread: "SCHED_RR" where the system allows it, else "normal" """
    end_wall_ns: int = 0
    end_mono_ns: int = 0
    framing: str = "http"
    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def clock_step_ns(self) -> int:
        """Change of the offset between the wall and the monotonic clock during the request, nanoseconds."""
        return (self.end_wall_ns - self.end_mono_ns) - (self.t0_wall_ns - self.t0_mono_ns)


def level_reads(exchange: Exchange) -> None:
    """Drop a read of which an exception, raised by a signal between two appends, kept only a part."""
    columns: list[list[int] | list[bool]] = [exchange.user_ns, exchange.at_ns, exchange.kernel, exchange.sizes]
    whole = min(map(len, columns))
    while sum(exchange.sizes[:whole]) > len(exchange.data):
        whole -= 1
    for column in columns:
        del column[whole:]
    exchange.data = exchange.data[: sum(exchange.sizes)]
