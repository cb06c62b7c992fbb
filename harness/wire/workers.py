"""More streams than one core carries: the same transport in several processes with one barrier (contract 5, 6)."""

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from harness.errors import BenchError
from harness.wire.exchange import Exchange
from harness.wire.transport import Deadlines, SocketTransport

LEAD_NS = 20_000_000
"""From the moment at which every worker's connections stand to the barrier"""
CONNECT_EXTRA_S = 30.0
"""How much longer than the connect limit a worker may take to start"""


@dataclass(frozen=True)
class Spread:
    """Where and how requests are sent by several processes."""

    host: str
    port: int
    workers: int
    deadlines: Deadlines
    secret_headers: tuple[tuple[str, str], ...] = ()


def exchange_spread(spread: Spread, requests: Sequence[bytes], releases_ns: Sequence[int]) -> list[Exchange]:
    """Request i is sent ``releases_ns[i]`` after a barrier that all workers share; worker w has requests w, w + n, ….

    With one worker everything happens in this process. Raises BenchError when a worker dies.
    """
    count = min(spread.workers, len(requests))
    if count <= 1:
        transport = SocketTransport(
            spread.host, spread.port, deadlines=spread.deadlines, secret_headers=spread.secret_headers
        )
        return transport.exchange_all(requests, releases_ns=releases_ns)
    context = multiprocessing.get_context("spawn")
    running: list[tuple[BaseProcess, Connection]] = []
    try:
        for worker in range(count):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_work, args=(spread, worker, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        limit = spread.deadlines.connect_s + CONNECT_EXTRA_S
        for worker, (process, pipe) in enumerate(running):
            # Its requests are no arguments: those are written into a pipe whose other end is held here too, so that
            # a worker which dies at its start would leave us writing for ever.
            _receive(process, pipe, limit, "start")
            _send(process, pipe, (list(requests[worker::count]), list(releases_ns[worker::count])))
        for process, pipe in running:
            _receive(process, pipe, limit, "connect")
        start = time.monotonic_ns() + LEAD_NS
        for process, pipe in running:
            _send(process, pipe, start)
        exchanges: list[Exchange | None] = [None] * len(requests)
        left = list(range(count))
        while left:
            # Whichever comes first: one that dies must not be noticed only when those before it have read to the end.
            ready = wait([running[worker][1] for worker in left])
            for worker in [worker for worker in left if running[worker][1] in ready]:
                left.remove(worker)
                for position, exchange in enumerate(_receive(*running[worker], None, "end")):
                    exchanges[worker + position * count] = exchange
        return [exchange for exchange in exchanges if exchange is not None]
    finally:
        for process, pipe in running:
            pipe.close()
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()


def _receive(process: BaseProcess, pipe: Connection, limit_s: float | None, what: str) -> list[Exchange]:
    try:
        if limit_s is None or pipe.poll(limit_s):
            received: list[Exchange] = pipe.recv()
            return received
    except (EOFError, OSError):  # the latter in the middle of a message, or when the worker left one unread
        raise _dead(process) from None
    raise BenchError(f"client worker {process.name} did not {what} within {limit_s:g} s")


def _send(process: BaseProcess, pipe: Connection, message: Any) -> None:
    try:
        pipe.send(message)
    except OSError:
        raise _dead(process) from None


def _dead(process: BaseProcess) -> BenchError:
    process.join(1.0)
    return BenchError(f"client worker {process.name} ended with exit code {process.exitcode}")


def _work(spread: Spread, worker: int, pipe: Connection) -> None:
    """One worker process: say so, take the requests, connect, say so, wait for the barrier's time, send, read, hand
    everything back. It ends without a word when its parent has gone."""

    # Ctrl-C reaches every process of a terminal; the parent hears it and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def barrier() -> int:
        pipe.send([])
        start: int = pipe.recv()
        return start

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send([])
        requests, releases_ns = pipe.recv()
        transport = SocketTransport(
            spread.host, spread.port, deadlines=spread.deadlines, secret_headers=spread.secret_headers
        )
        exchanges = transport.exchange_all(requests, releases_ns=releases_ns, barrier=barrier)
        for exchange in exchanges:
            exchange.worker = worker
        pipe.send(exchanges)
