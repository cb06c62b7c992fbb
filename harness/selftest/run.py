"""The self-test: our client on a source with a known schedule, and on the same source behind Docker's port proxy."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.errors import LaunchError
from harness.measure import rates
from harness.measure.rows import kernel_lags_us
from harness.measure.selftest import Point, Proxy, SelfTest
from harness.wire.completion import parse_completion
from harness.wire.exchange import Exchange
from harness.wire.http import decode_response
from harness.wire.request import http_request
from harness.wire.sse import SseDecoder
from harness.wire.transport import SocketTransport

SOURCE = Path(__file__).with_name("source.py")
TTFT_MS, GAP_MS = 50.0, 10.0
EVENTS = 64
USERS = (1, 16, 64)
PROXY_REQUESTS = 20
_CREATED = re.compile(r'"created_ns":(\d+)')


@contextlib.contextmanager
def local_source(ttft_ms: float = TTFT_MS, gap_ms: float = GAP_MS, ids: int = 1) -> Iterator[int]:
    """Run the source as a process; gives its port. Raises LaunchError when it doesn't start."""
    command = [sys.executable, "-I", "-S", str(SOURCE), "0", str(ttft_ms), str(gap_ms), str(ids)]
    # The pipe at its standard input tells it that we are gone, by whatever way.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line.strip().isdigit():
                raise LaunchError(
                    "the self-test's source didn't start; run it by hand: python harness/selftest/source.py"
                )
            yield int(line)
        finally:
            process.kill()


def ask(host: str, port: int, users: int, events: int = EVENTS) -> tuple[list[Exchange], SocketTransport]:
    """``users`` streams at once, released together."""
    body = json.dumps({"model": "selftest", "prompt": "x", "max_tokens": events, "stream": True}).encode()
    transport = SocketTransport(host, port)
    request = http_request("/v1/completions", body, host=host, port=port)
    return transport.exchange_all([request] * users, releases_ns=[0] * users), transport


def stamped(exchange: Exchange) -> list[tuple[int, int]]:
    """(our time, the source's own time) of each event, wall clock nanoseconds."""
    found, decoder = [], SseDecoder()
    for at, piece in decode_response(exchange).body:
        for event in decoder.feed(piece, at):
            created = _CREATED.search(event.data)
            if created is not None:
                found.append((exchange.t0_wall_ns + event.at_ns, int(created[1])))
    return found


def measure(host: str, port: int, users: int) -> tuple[Point, SocketTransport]:
    """One point."""
    exchanges, transport = ask(host, port, users)
    completions = [parse_completion(exchange) for exchange in exchanges]
    times = [pair for exchange in exchanges for pair in stamped(exchange)]
    errors = [(ours - theirs) / 1e3 for ours, theirs in times]
    ttft = [item.chunk_ns[0] / 1e6 - TTFT_MS for item in completions if item.chunk_ns]
    lags = [lag for exchange in exchanges for lag in kernel_lags_us(exchange)]
    wall = max(e.end_wall_ns for e in exchanges) - min(e.t0_wall_ns for e in exchanges)
    cpu = max(exchange.cpu_ns for exchange in exchanges)
    point = Point(
        users=users,
        events=len(times),
        lost=users * EVENTS - len(times),
        events_per_s=len(times) / (wall / 1e9) if wall > 0 else None,
        cpu_us_per_event=cpu / 1e3 / len(times) if times else None,
        ttft_error_p50_ms=rates.median(ttft),
        ttft_error_max_ms=max(ttft, default=None),
        timestamp_error_p50_us=rates.median(errors),
        timestamp_error_p99_us=rates.p99_or_max(errors),
        lag_p99_us=rates.p99_or_max(lags),
        coalesced=sum(len(item.chunk_ns) - len(set(item.chunk_ns)) for item in completions),
    )
    return point, transport


def delay_p50_us(host: str, port: int, requests: int = PROXY_REQUESTS) -> float:
    """Median of event time less created_ns over single streams, microseconds. Raises LaunchError without an event."""
    errors = []
    for _ in range(requests):
        exchanges, _ = ask(host, port, 1, events=8)
        errors += [(ours - theirs) / 1e3 for ours, theirs in stamped(exchanges[0])]
    middle = rates.median(errors)
    if middle is None:
        raise LaunchError(f"the self-test's source at {host}:{port} sent no event")
    return middle


def compare_paths(published: tuple[str, int], direct: tuple[str, int]) -> Proxy:
    """The published port of a container against its own address."""
    through, straight = delay_p50_us(*published), delay_p50_us(*direct)
    return Proxy(published_p50_us=through, direct_p50_us=straight, added_p50_us=through - straight)


def self_test(
    *,
    users: Sequence[int] = USERS,
    proxy: Callable[[], Proxy] | None = None,
    no_proxy: str = "not applicable: no container",
    progress: Callable[[str], None] = lambda _: None,
) -> SelfTest:
    """Measure this machine's client at each number of streams; about 0.7 s each.

    ``proxy`` measures Docker's port proxy where a container can be started; ``no_proxy`` says why there is none.
    Raises LaunchError when the source doesn't start.
    """
    points, transport = [], None
    with local_source() as port:
        for count in users:
            progress(f"self-test: {count} streams")
            point, transport = measure("127.0.0.1", port, count)
            points.append(point)
    added, note = None, no_proxy
    if proxy is not None:
        progress("self-test: Docker's port proxy")
        try:
            added, note = proxy(), "what Docker's port proxy adds to each event's arrival; --direct goes around it"
        except LaunchError as error:
            note = f"unknown: {error}"
    return SelfTest(
        timestamp_source=transport.timestamp_source if transport is not None else "unknown",
        scheduling=transport.scheduling if transport is not None else "unknown",
        points=points,
        proxy=added,
        proxy_note=note,
    )
