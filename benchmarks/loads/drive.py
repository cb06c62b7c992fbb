"""The measured process: our transport and capture writer, a round for each line of its input, and nothing else.

``python -m benchmarks.loads.drive PORT`` reads one order as JSON a line and answers each with one line of figures.
"""

import contextlib
import ctypes
import gc
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients.job import HOST, PATH
from benchmarks.loads.kinds import Ask, asks
from harness.launch.server import Endpoint
from harness.sender import Access, Sender
from harness.wire.capture import Tag
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Exchange
from harness.wire.request import http_request
from harness.wire.transport import Deadlines, SocketTransport

WORKERS = 2
SMALL_BUFFER = 4096
"""Bytes of SO_RCVBUF; the kernel doubles it"""
LEAK_BYTES = 1 << 20

kept: list[Any] = []
"""What an order leaks on purpose"""


@dataclass(frozen=True)
class Order:
    """One round."""

    capture: str
    mode: str
    path: str
    streams: int
    seconds: float
    small_buffers: bool = False
    leak: str = ""


@dataclass(frozen=True)
class Measured:
    """The process after a round, garbage collected. KiB where nothing else is said."""

    open_s: float
    """from the first request sent to the last stream's end"""
    cpu_s: float
    """of the process and of its workers, for the whole round"""
    scheduling: str
    descriptors: int
    threads: int
    children: int
    blocks: int
    """memory blocks that Python holds"""
    in_use: int
    """what was asked of malloc and not given back: what Python's own pools don't hold"""
    rss: int
    peak: int
    """most of it during this round"""
    capture_bytes: int


class SmallBuffers(SocketTransport):
    """A client whose sockets take little, so that the rest waits at the server."""

    def _open(self, *args: Any, **kwargs: Any) -> None:
        super()._open(*args, **kwargs)
        connection = args[1][-1]
        if connection.open:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"no {name} in /proc/self/status")


class _Mallinfo2(ctypes.Structure):
    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


_libc = ctypes.CDLL(None)
if hasattr(_libc, "mallinfo2"):
    _libc.mallinfo2.restype = _Mallinfo2


def _release() -> int:
    """Give the system back what glibc keeps of freed memory, in which a small leak would hide for many rounds.

    KiB that are in use; 0 where the library can't tell.
    """
    if not hasattr(_libc, "mallinfo2"):
        return 0
    _libc.malloc_trim(0)
    info = _libc.mallinfo2()
    return int(info.uordblks + info.hblkhd) // 1024


def children() -> int:
    """Processes that this one has started and not yet waited for."""
    return sum(len(file.read_text().split()) for file in Path("/proc/self/task").glob("*/children"))


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _bodies(streams: Sequence[Ask]) -> list[dict[str, object]]:
    fixed = {"model": "source", "prompt": "Count.", "temperature": 0, "seed": 42, "ignore_eos": True}
    fixed |= {"return_token_ids": True, "stream": True, "stream_options": {"include_usage": True}}
    return [fixed | asdict(ask) for ask in streams]


def _exchanges(order: Order, port: int) -> list[Exchange]:
    """One round on the order's path; its capture is closed when this returns."""
    bodies = _bodies(asks(order.mode, order.streams, order.seconds))
    tags = [Tag("batch", f"s{number}", "", f"r{number}") for number in range(order.streams)]
    file, header = Path(order.capture), {"server": "load"}
    if order.path != "sink":
        access = Access(Deadlines(), workers=WORKERS if order.path == "workers" else 1)
        sender = Sender(Endpoint(HOST, port), access, file, header)
        with contextlib.closing(sender.capture):
            return sender.post_batch(tags, PATH, bodies, [0] * len(bodies))
    requests = [
        http_request(PATH, json.dumps(body).encode(), host=HOST, port=port, request_id=tag.request_id)
        for body, tag in zip(bodies, tags, strict=True)
    ]
    writer = CaptureWriter(file, header)
    with contextlib.closing(writer):
        writer.tags = tags
        kind = SmallBuffers if order.small_buffers else SocketTransport
        return kind(HOST, port, sink=writer).exchange_all(requests)


def _leak(what: str) -> None:
    """``what`` names descriptor, thread, memory, or several of them."""
    if "descriptor" in what:
        kept.append(os.open("/dev/null", os.O_RDONLY))
    if "thread" in what:
        kept.append(threading.Thread(target=threading.Event().wait, daemon=True))
        kept[-1].start()
    if "memory" in what:
        kept.append(os.urandom(LEAK_BYTES))


def one_round(order: Order, port: int) -> Measured:
    """Do it, let everything go, and look what is left."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    cpu = _cpu_s()
    exchanges = _exchanges(order, port)
    open_s = (max(e.end_mono_ns for e in exchanges) - min(e.t0_mono_ns for e in exchanges)) / 1e9
    scheduling = exchanges[0].scheduling
    del exchanges
    _leak(order.leak)
    gc.collect()
    peak = _status("VmHWM")
    # Python's method cache keeps up to 4,096 names, which for a hundred rounds looks like a leak of blocks.
    sys._clear_type_cache()
    in_use = _release()
    return Measured(
        open_s=open_s,
        cpu_s=_cpu_s() - cpu,
        scheduling=scheduling,
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - iterdir's own descriptor would live on
        threads=_status("Threads"),
        children=children(),
        blocks=sys.getallocatedblocks(),
        in_use=in_use,
        rss=_status("VmRSS"),
        peak=peak,
        capture_bytes=Path(order.capture).stat().st_size,
    )


def main() -> None:
    """Rounds until the input ends."""
    port = int(sys.argv[1])
    for line in sys.stdin:
        began = time.monotonic()
        measured = one_round(Order(**json.loads(line)), port)
        sys.stdout.write(json.dumps(asdict(measured) | {"round_s": time.monotonic() - began}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
