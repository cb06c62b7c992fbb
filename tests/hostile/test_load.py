"""Sections D: many connections at once, slow and impolite ones, on the transport that batches use."""

import itertools
import socket
import threading
from collections.abc import Sequence

import pytest

from harness.measure.gates import client_gate
from harness.measure.ladder import Arrivals, batch_rates
from harness.measure.rows import kernel_lags_us
from harness.wire.completion import Completion, parse_completion
from harness.wire.exchange import Exchange
from harness.wire.transport import SocketTransport
from tests.hostile.server import good_answer
from tests.wire.build import GOOD, chunk, chunked, usage
from tests.wire.scripted import PATIENCE_S, Peer, Step, meet, request, send, serving, wait


def batch(port: int, request_bytes: bytes, users: int) -> list[Exchange]:
    """So many requests behind one barrier."""
    return SocketTransport("127.0.0.1", port).exchange_all([request_bytes] * users, releases_ns=[0] * users)


def parsed(exchanges: Sequence[Exchange]) -> list[Completion]:
    """Complete, each of them."""
    completions = [parse_completion(exchange) for exchange in exchanges]
    assert [completion.detail for completion in completions] == [""] * len(exchanges)
    return completions


def test_53_55_a_server_that_answers_only_a_full_house_of_128(users: int = 128) -> None:
    together = threading.Barrier(users)
    with serving([request, meet(together), send(b"".join(chunked(GOOD)))]) as server:
        exchanges = batch(server.port, server.request(), users)
    parsed(exchanges)
    assert server.peak == len(server.peers) == users
    assert all(exchange.released_ns is not None and exchange.released_ns >= 0 for exchange in exchanges)


def test_54_time_in_the_servers_queue_is_in_the_ttft_and_the_release_stands_apart() -> None:
    """A server that takes one at a time, four of them: each next one starts when the one before has been read."""
    users, turn = 4, threading.Lock()

    def take(peer: Peer) -> None:
        assert turn.acquire(timeout=PATIENCE_S)

    def step_by_step(peer: Peer) -> None:
        for write in good_answer(20):
            peer.sock.sendall(write)
        turn.release()

    with serving([request, take, step_by_step]) as server:
        exchanges = batch(server.port, server.request(), users)
    order = sorted(zip(exchanges, parsed(exchanges), strict=True), key=lambda pair: pair[1].chunk_ns[0])
    absolute = [[item.t0_wall_ns + ns for ns in answer.chunk_ns] for item, answer in order]
    for earlier, later in itertools.pairwise(absolute):
        assert later[0] >= earlier[-1], "it began after the other's last id, and its TTFT counts from its own release"
    spread = max(item.released_ns or 0 for item in exchanges)
    assert all(
        item.t0_mono_ns - (item.released_ns or 0) == exchanges[0].t0_mono_ns - (exchanges[0].released_ns or 0)
        for item in exchanges
    )
    assert spread < min(answer.chunk_ns[0] for _, answer in order[-1:]), (
        "the last one waited for the server, not for us"
    )


def test_56_a_throttled_batch_has_the_rate_of_its_tokens_over_its_wall() -> None:
    users, places = 32, threading.Semaphore(8)

    def take(peer: Peer) -> None:
        assert places.acquire(timeout=PATIENCE_S)

    def leave(peer: Peer) -> None:
        places.release()

    with serving([request, take, *(send(write) for write in good_answer(40)), leave]) as server:
        exchanges = batch(server.port, server.request(), users)
    arrivals = []
    for item, answer in zip(exchanges, parsed(exchanges), strict=True):
        after = (item.released_ns or 0) / 1e6
        chunks = [(after + ns / 1e6, size) for ns, size in zip(answer.chunk_ns, answer.chunk_sizes, strict=True)]
        arrivals.append(Arrivals(chunks=chunks, last_byte_ms=after + answer.end_ns / 1e6))
    aggregate, _ = batch_rates(arrivals)
    alone = [
        40 / (item.chunks[-1][0] - item.chunks[0][0]) * 1e3
        for item in arrivals
        if item.chunks[-1][0] > item.chunks[0][0]
    ]
    assert aggregate == pytest.approx(40 * users / max(item.last_byte_ms for item in arrivals) * 1e3)
    assert not alone or aggregate < users * max(alone), "not the rate of one by the number of users"


def test_57_two_small_writes_of_a_server_with_nagle_meet_no_delayed_ack() -> None:
    """A connection that is reused would delay the second write by 40 ms; ours are all new, so the kernel acknowledges
    at once. The least of several gaps, because a busy machine only ever adds."""

    def nagle(peer: Peer) -> None:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    head, first, *rest = chunked(GOOD)
    gaps = []
    with serving([nagle, request, send(head + first), send(rest[0]), send(b"".join(rest[1:]))]) as server:
        for _ in range(8):
            (answer,) = parsed([SocketTransport("127.0.0.1", server.port).exchange(server.request())])
            gaps.append((answer.chunk_ns[1] - answer.chunk_ns[0]) / 1e6)
        assert len(server.peers) == 8, "a connection of its own for each"
    assert min(gaps) < 20


def test_60_a_client_that_is_flooded_says_so() -> None:
    """64 streams that bring 200 KB in their first chunk, all at one instant, then a token now and then."""
    users = 64
    together = threading.Barrier(users)
    flood = chunk([5], "x" * 200_000, prompt_ids=[1, 2, 3])
    writes = chunked([flood, *(chunk([n], "") for n in range(6, 12)), chunk([], "", finish="stop"), usage(7), GOOD[-1]])
    with serving([request, meet(together), *(send(write) for write in writes)]) as server:
        exchanges = batch(server.port, server.request(), users)
    answers = parsed(exchanges)
    assert all(len(answer.text) == 200_000 and len(answer.token_ids) == 7 for answer in answers), "nothing is lost"
    lags = [lag for exchange in exchanges for lag in kernel_lags_us(exchange)]
    assert len(lags) == sum(len(exchange.sizes) for exchange in exchanges), "every read has its kernel time"
    # What the meter is held against is the model's gap; at 1 ms the flood is far beyond it.
    gate = client_gate("flood", [], lags, [1.0], None, "SO_TIMESTAMPNS")
    assert any("exceeds a tenth of the median inter-chunk gap" in failure for failure in gate.failures)


def test_a_batch_of_servers_that_fail_in_every_way_keeps_the_good_ones() -> None:
    """One batch, four servers' faces: what one stream does leaves the others alone."""
    go = threading.Event()
    whole = b"".join(chunked(GOOD))

    def unblock(peer: Peer) -> None:
        go.set()

    scripts: list[list[Step]] = [
        [request, send(whole)],
        [request, send(whole[:300])],
        [request],
        [request, wait(go), send(whole)],
    ]
    scripts[1].append(unblock)
    with serving(*scripts) as server:
        exchanges = batch(server.port, server.request(), 4)
    reasons = sorted(str(parse_completion(exchange).reason) for exchange in exchanges)
    assert reasons == ["None", "None", "bad-http", "truncated-body"]
