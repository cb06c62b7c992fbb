"""The socket transport against real sockets: every ending, kernel times, many connections at once."""

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h11
import pytest

import harness.wire.transport as transport_module
from harness.errors import BenchError, Interrupted, UsageError
from harness.wire.capture import Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.completion import Reason, parse_completion
from harness.wire.exchange import Ending, Exchange
from harness.wire.request import http_request
from harness.wire.scheduling import NORMAL, REALTIME
from harness.wire.transport import SO_TIMESTAMPNS, Clock, Deadlines, NoSink, Sink, SocketTransport
from tests.wire.build import DONE, GOOD, HEAD, chunk, chunked, sized, until_close, usage
from tests.wire.scripted import (
    ScriptedServer,
    Told,
    act,
    half_close,
    hold,
    meet,
    request,
    reset,
    send,
    send_bytewise,
    serving,
    wait,
)

ANSWER = b"".join(chunked(GOOD))
SHORT = Deadlines(connect_s=0.3, first_byte_s=0.3, idle_s=0.3, total_s=10.0)
linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel timestamps are read on Linux only")


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
    assert 0 < exchange.connected_ns <= exchange.sent_ns < exchange.at_ns[0] <= exchange.end_ns
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


# Endings


def test_connect_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        exchange = SocketTransport("127.0.0.1", port).exchange(http_request("/", b"", host="127.0.0.1", port=port))
    assert exchange.ending is Ending.CONNECT_FAILED
    assert "refused" in exchange.detail
    assert (exchange.connected_ns, exchange.sent_ns, exchange.sizes) == (None, None, [])
    assert parse_completion(exchange).reason is Reason.CONNECT_FAILED


@linux
def test_an_address_that_cannot_be_reached() -> None:
    exchange = SocketTransport("255.255.255.255", 80, deadlines=SHORT).exchange(b"x")  # refused before any packet
    assert exchange.ending is Ending.CONNECT_FAILED
    assert exchange.detail


@linux
def test_connect_timeout() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        stack.enter_context(socket.create_connection(listener.getsockname()))
        for _ in range(4):  # the queue is full: these and the one below get no answer
            extra = stack.enter_context(socket.socket())
            extra.setblocking(False)
            extra.connect_ex(listener.getsockname())
        exchange = SocketTransport("127.0.0.1", listener.getsockname()[1], deadlines=SHORT).exchange(b"x")
    assert (exchange.ending, exchange.detail) == (Ending.CONNECT_TIMEOUT, "0.3 s")
    assert exchange.connected_ns is None
    assert parse_completion(exchange).reason is Reason.CONNECT_TIMEOUT


def test_first_byte_timeout() -> None:
    with serving([request, hold]) as server:
        exchange = ask(server, deadlines=SHORT)
    assert (exchange.ending, exchange.detail) == (Ending.FIRST_BYTE_TIMEOUT, "no byte within 0.3 s")
    assert exchange.sent_ns is not None
    assert exchange.end_mono_ns - exchange.t0_mono_ns >= 300_000_000


def test_a_request_that_is_never_taken() -> None:
    done = threading.Event()
    with serving([wait(done)]) as server:
        exchange = ask(server, deadlines=SHORT, body=b"x" * 16_000_000)
        done.set()
    assert exchange.ending is Ending.FIRST_BYTE_TIMEOUT
    assert "bytes were taken" in exchange.detail
    assert exchange.sent_ns is None


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200", b"".join(chunked(GOOD[:2], last=False))])
def test_idle_timeout(sent: bytes) -> None:
    with serving([request, send(sent), hold]) as server:
        exchange = ask(server, deadlines=SHORT)
    assert (exchange.ending, exchange.detail) == (Ending.IDLE_TIMEOUT, "no byte for 0.3 s")
    assert exchange.data == sent
    assert parse_completion(exchange).reason is Reason.IDLE_TIMEOUT


def test_total_timeout_under_bytes_that_keep_coming() -> None:
    def drip(peer: object) -> None:
        while True:
            peer.sock.sendall(b": ping\n\n")  # type: ignore[attr-defined]
            threading.Event().wait(0.01)

    with serving([request, send(b"".join(until_close([]))), drip]) as server:
        exchange = ask(server, deadlines=replace(SHORT, total_s=0.5))
    assert (exchange.ending, exchange.detail) == (Ending.TOTAL_TIMEOUT, "0.5 s in all")
    assert exchange.data.count(b": ping") > 2


def test_reset_in_the_answer() -> None:
    cut = b"".join(chunked(GOOD[:2], last=False))
    told = Told(GOOD[1])
    with serving([request, send(cut), wait(told.seen), reset]) as server:
        exchange = ask(server, sink=told)
    assert exchange.ending is Ending.RESET
    assert "reset" in exchange.detail
    assert exchange.data == cut
    completion = parse_completion(exchange)
    assert (completion.reason, completion.token_ids) == (Reason.RESET, (5, 6, 7))


def test_a_reset_before_the_request_was_taken_is_a_failed_send() -> None:
    with serving([lambda peer: peer.sock.recv(10), reset]) as server:
        exchange = ask(server, body=b"x" * 16_000_000)
    assert exchange.ending is Ending.SEND_FAILED
    assert exchange.detail
    assert exchange.sent_ns is None
    assert parse_completion(exchange).reason is Reason.SEND_FAILED


def test_what_a_server_says_before_it_refuses_the_rest_of_a_request_is_kept() -> None:
    told = Told(b"too large")
    refusal = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 9\r\n\r\ntoo large"
    with serving([lambda peer: peer.sock.recv(10), send(refusal), wait(told.seen), reset]) as server:
        exchange = ask(server, sink=told, body=b"x" * 16_000_000)
    assert exchange.ending is Ending.SEND_FAILED
    assert exchange.data == refusal
    completion = parse_completion(exchange)
    assert completion.reason is Reason.HTTP_STATUS
    assert "too large" in completion.detail


def test_closed_without_an_answer() -> None:
    with serving([request]) as server:
        exchange = ask(server)
    assert (exchange.ending, exchange.data) == (Ending.CLOSED, b"")
    assert parse_completion(exchange).reason is Reason.BAD_HTTP


def test_half_closed_in_mid_answer() -> None:
    part = b"".join(sized(b"".join(GOOD), length=1_000_000))
    with serving([request, send(part), half_close, hold]) as server:
        exchange = ask(server)
    assert (exchange.ending, exchange.data) == (Ending.CLOSED, part)
    assert parse_completion(exchange).reason is Reason.TRUNCATED_BODY


LEFT_OPEN = {
    "chunked": (chunked(GOOD), None),
    "chunked, without the last chunk": (chunked(GOOD, last=False), None),
    "chunked byte by byte": (chunked([bytes([byte]) for byte in b"".join(GOOD)], last=False), None),
    "content-length": (sized(b"".join(GOOD)), None),
    "content-length, an error page": (sized(b'{"error": "x"}', head=b"HTTP/1.1 500 No\r\n"), Reason.HTTP_STATUS),
    "until close, which never comes": (until_close(GOOD), None),
}


@pytest.mark.parametrize("bytewise", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("way", LEFT_OPEN)
def test_an_answer_that_ended_on_an_open_connection_is_left_soon(way: str, bytewise: bool) -> None:
    writes, reason = LEFT_OPEN[way]
    data = b"".join(writes)
    with serving([request, (send_bytewise if bytewise else send)(data), hold]) as server:
        exchange = ask(server)
    assert (exchange.ending, exchange.detail) == (Ending.DONE, "the server kept the connection open")
    assert exchange.data == data
    assert exchange.end_ns - exchange.user_ns[-1] < 5_000_000_000
    assert parse_completion(exchange).reason is reason


@pytest.mark.parametrize("later", [GOOD[1], usage(4) + DONE], ids=["an event", "another end"])
def test_bytes_after_a_seeming_end_are_still_read(later: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "GRACE_S", 10.0)  # a busy machine must not let it run out
    told = Told(DONE)
    first = b"".join(until_close(GOOD))
    with serving([request, send(first), wait(told.seen), send(later)]) as server:
        exchange = ask(server, sink=told)
    assert (exchange.ending, exchange.data) == (Ending.CLOSED, first + later)
    assert parse_completion(exchange).reason is Reason.AFTER_DONE


def test_a_wrong_guess_does_not_end_a_stream() -> None:
    told = Told(b"[DONE]\n")
    lure = b'data: {"choices": []}\n\n: x\ndata: [DONE]\n'
    with serving([request, send(b"".join(until_close([lure]))), wait(told.seen), send(GOOD[0]), hold]) as server:
        exchange = ask(server, sink=told, deadlines=SHORT)
    assert exchange.ending is Ending.IDLE_TIMEOUT
    assert exchange.data.endswith(GOOD[0])


# Interruption


class Failing(NoSink):
    """A sink whose disk is full from some call on."""

    def __init__(self, when: str) -> None:
        self.when = when
        self.ended: list[Ending] = []

    def begin(self, exchange: Exchange, number: int) -> None:
        if self.when == "begin" and number == 2:
            raise OSError(28, "No space left on device")

    def drain(self, exchange: Exchange, number: int) -> None:
        if self.when == "drain" and exchange.data:
            raise OSError(28, "No space left on device")

    def end(self, exchange: Exchange, number: int) -> None:
        self.ended.append(exchange.ending)
        if self.when in ("end", "drain"):
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("when", ["begin", "drain", "end"])
def test_a_sink_that_fails_leaves_no_connection_open(when: str) -> None:
    answer = send(b"".join(chunked(GOOD[:1], last=False)))
    last = [half_close] if when == "end" else []
    sink = Failing(when)
    with serving([request, answer, *last, hold]) as server:
        transport = SocketTransport("127.0.0.1", server.port, sink=sink, drain_s=0.0)
        with pytest.raises(OSError, match="No space"):
            transport.exchange_all([server.request()] * 3)
    # leaving the block shows that the server saw every connection closed
    assert len(sink.ended) == 3
    assert sink.ended.count(Ending.INTERRUPTED) >= 2


def test_a_signal_ends_all_and_the_capture_says_so(tmp_path: Path) -> None:
    def stop(number: int, frame: object) -> None:
        raise Interrupted("interrupted by SIGUSR1")

    before = signal.signal(signal.SIGUSR1, stop)
    told = Told(GOOD[0])
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {})
    writer.tags = [Tag("suite", "a"), Tag("suite", "b")]

    class Both(NoSink):
        def begin(self, exchange: Exchange, number: int) -> None:
            writer.begin(exchange, number)

        def drain(self, exchange: Exchange, number: int) -> None:
            writer.drain(exchange, number)
            told.drain(exchange, number)

        def end(self, exchange: Exchange, number: int) -> None:
            writer.end(exchange, number)

    part = b"".join(chunked(GOOD[:1], last=False))
    kill = act(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        with serving([request, send(part), wait(told.seen), kill, hold], [request, hold]) as server:
            transport = SocketTransport("127.0.0.1", server.port, sink=Both(), drain_s=0.0)
            with pytest.raises(Interrupted):
                transport.exchange_all([server.request()] * 2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    writer.close()
    capture = load_capture(path)
    assert not capture.truncated
    assert [exchange.ending for _, exchange in capture.exchanges] == [Ending.INTERRUPTED] * 2
    assert [exchange.detail for _, exchange in capture.exchanges] == ["we stopped reading"] * 2
    assert sorted(exchange.data for _, exchange in capture.exchanges) == [b"", part]
    assert parse_completion(max((e for _, e in capture.exchanges), key=lambda e: e.data)).token_ids == (5,)


class _Stop(BaseException):
    """What a signal handler raises."""


def _interrupted_after(calls: int, path: Path) -> bool:
    """One captured exchange with an exception after so many calls, as a signal's handler raises it; whether it came."""
    files = {transport_module.__file__, sys.modules[CaptureWriter.__module__].__file__}
    left = calls

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename in files:  # type: ignore[attr-defined]
            left -= 1
            if left == 0:
                raise _Stop

    writer = CaptureWriter(path, {})
    writer.tags = [Tag("suite", "a")]
    came = False
    cut = b"".join(chunked(GOOD[:2], last=False))
    with serving([request, send(cut), half_close, hold]) as server:
        transport = SocketTransport("127.0.0.1", server.port, sink=writer, drain_s=0.0)
        wire = server.request()
        try:
            sys.setprofile(profile)
            transport.exchange(wire)
        except _Stop:
            came = True
        finally:
            sys.setprofile(None)
    writer.close()
    capture = load_capture(path)
    for _, exchange in capture.exchanges:
        assert consistent(exchange)
        assert cut.startswith(exchange.data)
        assert came or (exchange.ending, exchange.data) == (Ending.CLOSED, cut)
    assert came or len(capture.exchanges) == 1
    return came


def test_an_interruption_anywhere_leaves_a_capture_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of files; the disk isn't what is tried here
    policy = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    calls = 1
    while _interrupted_after(calls, tmp_path / f"{calls}.zst"):
        calls += 1
        assert policy is None or os.sched_getscheduler(0) == policy
    assert calls > 50


def test_answers_of_the_head_alone() -> None:
    with serving([request, send(HEAD + b"content-length: 0\r\n\r\n"), hold]) as server:
        exchange = ask(server)
    assert exchange.ending is Ending.DONE
    assert parse_completion(exchange).reason is Reason.STREAM_CUT
