"""The socket transport against real sockets: every ending, kernel times, many connections at once."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest

import harness.wire.transport as transport_module
from harness.errors import BenchError, UsageError
from harness.wire.capture import Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.completion import Reason, parse_completion
from harness.wire.exchange import Ending
from harness.wire.scheduling import NORMAL, REALTIME
from harness.wire.transport import SO_TIMESTAMPNS, Clock, Deadlines, SocketTransport
from tests.wire.asking import ANSWER, SHORT, ask, consistent, linux
from tests.wire.build import GOOD, HEAD, chunk, chunked, until_close
from tests.wire.scripted import (
    ScriptedServer,
    Told,
    act,
    hold,
    meet,
    request,
    reset,
    send,
    send_bytewise,
    serving,
    wait,
)


@pytest.fixture
def stamping() -> Iterator[None]:
    """The kernel stamps packets as long as one socket asks for it, and begins a moment after the first has asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as near:
        near.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        with far:
            for _ in range(10_000):
                far.sendall(b"x")
                if near.recvmsg(1, 64)[1]:
                    break
            else:
                pytest.skip("the kernel gives no timestamps")
            yield


# Times


@linux
def test_reads_have_kernel_times(stamping: None) -> None:
    told = Told(GOOD[0])
    writes = chunked(GOOD)
    with serving([request, send(b"".join(writes[:2])), wait(told.seen), send(b"".join(writes[2:]))]) as server:
        transport = SocketTransport("127.0.0.1", server.port, sink=told, drain_s=0.0)
        exchange = transport.exchange(server.request())
    assert transport.timestamp_source == "SO_TIMESTAMPNS"
    assert exchange.ending is Ending.CLOSED
    assert exchange.data == ANSWER
    assert len(exchange.sizes) >= 2
    assert consistent(exchange)
    assert all(exchange.kernel)
    lags = [user - at for user, at in zip(exchange.user_ns, exchange.at_ns, strict=True)]
    assert all(0 <= lag < 1_000_000_000 for lag in lags)
    assert exchange.at_ns == sorted(exchange.at_ns)
    assert exchange.connected_ns is not None and exchange.sent_ns is not None
    # The server may answer before our thread, back from its send, has read the clock.
    assert 0 < exchange.connected_ns < exchange.at_ns[0] <= exchange.end_ns
    assert exchange.connected_ns <= exchange.sent_ns <= exchange.user_ns[0]
    assert parse_completion(exchange).token_ids == (5, 6, 7, 8)


def test_t0_is_before_the_connection_is_opened() -> None:
    accepted: list[int] = []
    with serving([act(lambda: accepted.append(time.monotonic_ns())), request, send(ANSWER)]) as server:
        before = time.monotonic_ns()
        exchange = ask(server)
    assert before <= exchange.t0_mono_ns < accepted[0]
    assert exchange.end_mono_ns >= accepted[0]


def test_cpu_and_scheduling_are_recorded() -> None:
    with serving([request, send(ANSWER)]) as server:
        transport = SocketTransport("127.0.0.1", server.port)
        exchange = transport.exchange(server.request())
    assert 0 < exchange.cpu_ns <= exchange.end_mono_ns - exchange.t0_mono_ns + 20_000_000
    assert exchange.scheduling == transport.scheduling
    assert exchange.scheduling in (NORMAL, REALTIME)


@linux
def test_the_scheduling_from_before_comes_back() -> None:
    before = os.sched_getscheduler(0)
    with transport_module.prompt_wakeups() as obtained:
        assert (os.sched_getscheduler(0) == os.SCHED_RR) == (obtained == REALTIME)
    assert os.sched_getscheduler(0) == before


@pytest.mark.parametrize(
    ("step_ns", "reason"), [(2_000_000, Reason.CLOCK_STEP), (-2_000_000, Reason.CLOCK_STEP), (0, None)]
)
def test_a_clock_that_is_set_during_a_request_is_noticed(step_ns: int, reason: Reason | None) -> None:
    told = Told(GOOD[0])
    offset = 0

    def set_clock() -> None:
        nonlocal offset
        offset = step_ns

    clock = Clock(wall_ns=lambda: time.time_ns() + offset)
    script = [request, send(ANSWER[:-5]), wait(told.seen), act(set_clock), send(ANSWER[-5:])]
    with serving(script) as server:
        transport = SocketTransport("127.0.0.1", server.port, clock=clock, sink=told, drain_s=0.0)
        exchange = transport.exchange(server.request())
    assert abs(exchange.clock_step_ns - step_ns) < 400_000
    completion = parse_completion(exchange)
    assert completion.reason is reason
    assert completion.token_ids == (5, 6, 7, 8)


# What is sent


@pytest.mark.parametrize("secrets", [(), (("Authorization", "Bearer s3cr3t-word"), ("X-Other-Key", "s3cr3t-too"))])
def test_the_request_is_well_formed(secrets: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    body = '{"prompt": "naïve — 二"}'.encode()
    with serving([request, send(ANSWER)]) as server:
        writer = CaptureWriter(tmp_path / "capture.jsonl.zst", {})
        writer.tags = [Tag("suite", "a")]
        transport = SocketTransport("127.0.0.1", server.port, sink=writer, secret_headers=secrets)
        exchange = transport.exchange(server.request(body))
        writer.close()
        port = server.port
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(server.peers[0].request)
    got = connection.next_event()
    assert isinstance(got, h11.Request)
    assert (got.method, got.target) == (b"POST", b"/v1/completions")
    headers = {name.decode(): value.decode() for name, value in got.headers}
    assert headers["host"] == f"127.0.0.1:{port}"
    assert headers["content-length"] == str(len(body))
    assert headers["x-request-id"] == "bench-test-00-a"
    assert headers["connection"] == "close"
    assert headers["accept-encoding"] == "identity"
    data = connection.next_event()
    assert isinstance(data, h11.Data) and data.data == body
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    assert connection.trailing_data == (b"", False)
    for name, value in secrets:
        assert headers[name.lower()] == value
    assert exchange.request == server.request(body)
    assert b"s3cr3t" not in exchange.request
    loaded = load_capture(tmp_path / "capture.jsonl.zst").exchanges[0][1]
    assert loaded == exchange


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Key", "s3cr3t\r\nX-Injected: 1"),
        ("X-Key", "s3cr3t\n"),
        ("X-Key", " s3cr3t"),
        ("X-Key", "s3cr3t‐é"),
        ("X Key s3cr3t", "v"),
        ("", "s3cr3t"),
    ],
)
def test_a_secret_header_that_would_break_the_request_is_refused_without_showing_it(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        SocketTransport("127.0.0.1", 1, secret_headers=[(name, value)])
    assert "s3cr3t" not in str(caught.value)


def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving([request, send(ANSWER)]) as server:
        assert ask(server).data == ANSWER


def test_ipv6() -> None:
    try:
        server = ScriptedServer([[request, send(ANSWER)]], host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here ({error})")
    exchange = ask(server)
    server.close()
    assert exchange.data == ANSWER
    assert b"\r\nHost: [::1]:%d\r\n" % server.port in server.peers[0].request


# Many at once


def test_128_connections_stand_at_once() -> None:
    count = 128
    barrier = threading.Barrier(count)
    with serving([request, meet(barrier), send(ANSWER)]) as server:
        transport = SocketTransport("127.0.0.1", server.port, deadlines=Deadlines(first_byte_s=30))
        requests = [server.request(b'{"n": %d}' % n) for n in range(count)]
        exchanges = transport.exchange_all(requests)
    assert server.peak == count
    assert sorted(peer.request for peer in server.peers) == sorted(requests)
    assert [exchange.request for exchange in exchanges] == requests
    for exchange in exchanges:
        assert (exchange.ending, exchange.data) == (Ending.CLOSED, ANSWER)
        assert consistent(exchange)
    assert max(exchange.t0_mono_ns for exchange in exchanges) < min(exchange.end_mono_ns for exchange in exchanges)


def test_one_that_fails_leaves_the_others_alone() -> None:
    scripts = [[request, reset], [request, send(ANSWER)], [request, hold]]
    with serving(*scripts) as server:
        transport = SocketTransport("127.0.0.1", server.port, deadlines=SHORT)
        endings = [exchange.ending for exchange in transport.exchange_all([server.request()] * 3)]
    assert sorted(endings) == sorted([Ending.RESET, Ending.CLOSED, Ending.FIRST_BYTE_TIMEOUT])


def test_no_requests() -> None:
    assert SocketTransport("127.0.0.1", 1).exchange_all([]) == []


def test_more_connections_than_files_may_be_open_are_refused_by_name() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving([hold]) as server:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 8, hard))
        try:
            with pytest.raises(BenchError, match="ulimit"):
                SocketTransport("127.0.0.1", server.port).exchange_all([server.request()] * 50)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# How bytes come


def test_writes_of_one_byte() -> None:
    with serving([request, send_bytewise(ANSWER)]) as server:
        exchange = ask(server)
    assert exchange.data == ANSWER
    assert consistent(exchange)
    assert parse_completion(exchange).reason is None


def test_an_answer_of_20_megabytes() -> None:
    events = [chunk([n], "x" * 2000) for n in range(5)]
    body = b"".join(events) * 2000
    answer = b"".join(until_close([body]))
    with serving([request, send(answer)]) as server:
        exchange = ask(server, drain_s=0.1)
    assert len(exchange.data) > 20_000_000
    assert exchange.data == answer
    assert consistent(exchange)
    assert exchange.ending is Ending.CLOSED


def test_an_answer_without_end_is_left() -> None:
    def flood(peer: object) -> None:
        block = b"x" * 1_000_000
        while True:
            peer.sock.sendall(block)  # type: ignore[attr-defined]

    with serving([request, send(b"".join(until_close([]))), flood]) as server:
        exchange = ask(server, drain_s=0.5)
    assert exchange.ending is Ending.INTERRUPTED
    assert "longer than" in exchange.detail
    assert len(exchange.data) < 2 * transport_module.MAX_ANSWER
    assert consistent(exchange)


def test_answers_of_the_head_alone() -> None:
    with serving([request, send(HEAD + b"content-length: 0\r\n\r\n"), hold]) as server:
        exchange = ask(server)
    assert exchange.ending is Ending.DONE
    assert parse_completion(exchange).reason is Reason.STREAM_CUT
