"""Requests through the transport on sockets to scripted servers, as many tests ask them."""

import sys
import threading

import pytest

from harness.wire.exchange import Exchange
from harness.wire.library import LibraryTransport
from harness.wire.transport import Deadlines, NoSink, Sink, SocketTransport
from tests.wire.build import GOOD, chunked
from tests.wire.scripted import ScriptedServer

ANSWER = b"".join(chunked(GOOD))
linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel timestamps are read on Linux only")
SHORT = Deadlines(connect_s=0.3, first_byte_s=0.3, idle_s=0.3, total_s=10.0)


def ask(
    server: ScriptedServer,
    *,
    deadlines: Deadlines | None = None,
    sink: Sink | None = None,
    body: bytes = b"{}",
    drain_s: float = 0.0,
) -> Exchange:
    transport = SocketTransport(server.host, server.port, deadlines=deadlines, sink=sink, drain_s=drain_s)
    return transport.exchange(server.request(body))


def consistent(exchange: Exchange) -> bool:
    lengths = {len(exchange.sizes), len(exchange.at_ns), len(exchange.user_ns), len(exchange.kernel)}
    return len(lengths) == 1 and sum(exchange.sizes) == len(exchange.data)


class Began(NoSink):
    """Tells what was called, and when an answer's bytes were handed over."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.seen = threading.Event()

    def begin(self, exchange: Exchange, number: int) -> None:
        self.calls.append(("begin", number))

    def drain(self, exchange: Exchange, number: int) -> None:
        self.calls.append(("drain", number))
        self.seen.set()

    def end(self, exchange: Exchange, number: int) -> None:
        self.calls.append(("end", number))


def ask_library(server: ScriptedServer, *, scheme: str = "http", body: bytes = b"{}", **options: object) -> Exchange:
    transport = LibraryTransport(drain_s=0.0, **options)  # type: ignore[arg-type]
    return transport.exchange(server.request(body), url=f"{scheme}://127.0.0.1:{server.port}/v1/completions")
