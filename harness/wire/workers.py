"""More streams than one core carries: the same transport in several processes with one barrier (contract 5, 6)."""

import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

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
            mine = (list(requests[worker::count]), list(releases_ns[worker::count]))
            process: BaseProcess = context.Process(target=_work, args=(spread, worker, *mine, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        limit = spread.deadlines.connect_s + CONNECT_EXTRA_S
        for process, pipe in running:
            _receive(process, pipe, limit)
        start = time.monotonic_ns() + LEAD_NS
        for _, pipe in running:
            pipe.send(start)
        exchanges: list[Exchange | None] = [None] * len(requests)
        for worker, (process, pipe) in enumerate(running):
            for position, exchange in enumerate(_receive(process, pipe, None)):
                exchanges[worker + position * count] = exchange
        return [exchange for exchange in exchanges if exchange is not None]
    finally:
        for process, pipe in running:
            pipe.close()
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()


def _receive(process: BaseProcess, pipe: Connection, limit_s: float | None) -> list[Exchange]:
    try:
        if limit_s is not None and not pipe.poll(limit_s):
            raise BenchError(f"client worker {process.name} did not connect within {limit_s:g} s")
        received: list[Exchange] = pipe.recv()
    except EOFError:
        process.join(1.0)
        raise BenchError(f"client worker {process.name} ended with exit code {process.exitcode}") from None
    return received


def _work(spread: Spread, worker: int, requests: list[bytes], releases_ns: list[int], pipe: Connection) -> None:
    """One worker process: connect, say so, wait for the barrier's time, send, read, hand everything back."""

    # Ctrl-C reaches every process of a terminal; the parent hears it and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def barrier() -> int:
        pipe.send([])
        start: int = pipe.recv()
        return start

    transport = SocketTransport(
        spread.host, spread.port, deadlines=spread.deadlines, secret_headers=spread.secret_headers
    )
    exchanges = transport.exchange_all(requests, releases_ns=releases_ns, barrier=barrier)
    for exchange in exchanges:
        exchange.worker = worker
    pipe.send(exchanges)
