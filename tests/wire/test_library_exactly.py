"""The library transport, where hardly a server leads: what is sent, what is counted, and a signal in mid-read."""

import itertools
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import harness.wire.library as library_module
from harness.errors import UsageError
from harness.wire.exchange import Ending, Exchange
from harness.wire.library import LibraryTransport, _ending, _Watch
from harness.wire.transport import Clock, Deadlines, NoSink
from tests.wire.asking import ask_library as ask
from tests.wire.asking import consistent
from tests.wire.build import DONE, GOOD, chunked, exchange, until_close
from tests.wire.scripted import Handed, Told, act, hold, request, send, serving, wait


def test_every_header_is_sent_but_those_that_belong_to_the_address_and_the_body() -> None:
    """The recorded request may have been made for another address; what goes out fits the one it goes to."""
    asked = b"POST /x HTTP/1.1\r\nX-First:  1 \r\nHost: another:1\r\nContent-Length: 999\r\nX-Last: a:b\r\n\r\n{}"
    with serving([request, send(b"".join(chunked(GOOD)))]) as server:
        found = LibraryTransport().exchange(asked, url=f"http://127.0.0.1:{server.port}/v1/completions")
        port, sent = server.port, server.peers[0].request
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /v1/completions http/1.1"
    assert {b"x-first: 1", b"x-last: a:b", b"content-length: 2", b"host: 127.0.0.1:%d" % port} <= set(lines)
    assert len([line for line in lines if line.startswith((b"host:", b"content-length:"))]) == 2 and body == b"{}"
    assert (found.ending, found.request, found.scheduling) == (Ending.CLOSED, asked, "normal")


def test_times_and_cpu_are_those_of_the_exchange() -> None:
    with serving([request, send(b"".join(chunked(GOOD)))]) as server:
        found = ask(server)
    assert found.end_ns == found.end_wall_ns - found.t0_wall_ns > 0
    spent = found.end_mono_ns - found.t0_mono_ns
    assert 0 < found.cpu_ns <= spent + 20_000_000
    assert 0 < (found.connected_ns or 0) < spent and abs(found.clock_step_ns) < 100_000_000


class Interrupting(list[int]):
    """A list whose second append is where a signal comes."""

    def append(self, value: int) -> None:
        if len(self) == 1:
            raise KeyboardInterrupt
        super().append(value)


class Handing(NoSink):
    """Puts a list in the place of one of the exchange's, and keeps it."""

    def __init__(self, name: str) -> None:
        self.name, self.ended = name, list[Exchange]()

    def begin(self, exchange: Exchange, number: int) -> None:
        setattr(exchange, self.name, Interrupting())

    def end(self, exchange: Exchange, number: int) -> None:
        self.ended.append(exchange)


@pytest.mark.parametrize("name", ["user_ns", "at_ns", "kernel", "sizes"])
def test_a_signal_between_two_notes_of_a_read_leaves_whole_reads(name: str) -> None:
    sink = Handing(name)

    class Both(Told):
        def begin(self, exchange: Exchange, number: int) -> None:
            sink.begin(exchange, number)

        def end(self, exchange: Exchange, number: int) -> None:
            sink.end(exchange, number)

    seen = Both(GOOD[0])
    writes = until_close(GOOD)
    script = [request, send(writes[0] + writes[1]), wait(seen.seen), send(b"".join(writes[2:]))]
    with serving(script) as server, pytest.raises(KeyboardInterrupt):
        ask(server, sink=seen)
    (found,) = sink.ended
    assert (found.ending, found.detail) == (Ending.INTERRUPTED, "we stopped reading")
    assert consistent(found) and found.data == GOOD[0] and len(found.sizes) == 1


@pytest.mark.parametrize(("limit", "ending"), [(1000, Ending.CLOSED), (999, Ending.INTERRUPTED)])
def test_an_answer_may_be_exactly_so_long(limit: int, ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "MAX_ANSWER", limit)
    with serving([request, send(b"".join(until_close([b"x" * 1000])))]) as server:
        found = ask(server)
    assert found.ending is ending
    assert found.detail == ("" if ending is Ending.CLOSED else "the answer is longer than 999 bytes")


def test_a_guess_that_was_wrong_ends_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes take it back: how long the answer goes on after them says nothing."""
    monkeypatch.setattr(library_module, "GRACE_S", 1.0)
    first, second = Told(DONE), threading.Event()
    script = [request, send(b"".join(until_close(GOOD))), wait(first.seen), send(GOOD[0])]
    timer = threading.Timer(1.4, second.set)
    with serving([*script, act(timer.start), wait(second), send(GOOD[1])]) as server:
        found = ask(server, sink=first)
    assert (found.ending, found.data) == (Ending.CLOSED, b"".join([*GOOD, *GOOD[:2]]))


@pytest.mark.parametrize(("drain_s", "calls"), [(0.0, [1, 2, 3, 4, 5, 6, 7, 8]), (3.0, [1, 4, 7]), (60.0, [1])])
def test_the_sink_is_called_as_often_as_was_asked(drain_s: float, calls: list[int]) -> None:
    """By a clock that goes on by a second at each look."""
    looks, sizes = itertools.count(), list[int]()

    class Counting(NoSink):
        def drain(self, exchange: Exchange, number: int) -> None:
            sizes.append(len(exchange.data))

    with serving([request, send(b"".join(chunked([b"x"] * 8)))]) as server:
        clock = Clock(mono_ns=lambda: next(looks) * 1_000_000_000)
        transport = LibraryTransport(sink=Counting(), clock=clock, drain_s=drain_s)
        found = transport.exchange(server.request(), url=f"http://127.0.0.1:{server.port}/")
    assert (found.data, sizes) == (b"x" * 8, calls)


def test_an_answer_of_done_alone_is_an_end_too() -> None:
    with serving([request, send(b"".join(until_close([DONE]))), hold]) as server:
        found = ask(server, deadlines=Deadlines(idle_s=15.0))
    assert (found.ending, found.detail) == (Ending.DONE, "the server kept the connection open")


ENDINGS: list[tuple[httpx.HTTPError, dict[str, Any], Ending]] = [
    (httpx.ConnectTimeout("x"), {}, Ending.CONNECT_TIMEOUT),
    (httpx.ConnectError("x"), {}, Ending.CONNECT_FAILED),
    (httpx.ProxyError("x"), {}, Ending.CONNECT_FAILED),
    (httpx.UnsupportedProtocol("x"), {}, Ending.CONNECT_FAILED),
    (httpx.WriteError("x"), {"sent_ns": 1}, Ending.SEND_FAILED),
    (httpx.WriteTimeout("x"), {"sent_ns": 1}, Ending.SEND_FAILED),
    (httpx.ReadTimeout("x"), {}, Ending.FIRST_BYTE_TIMEOUT),
    (httpx.ReadTimeout("x"), {"status": 200}, Ending.IDLE_TIMEOUT),
    (httpx.ReadError("x"), {}, Ending.SEND_FAILED),
    (httpx.ReadError("x"), {"sent_ns": 1}, Ending.RESET),
    (httpx.RemoteProtocolError("x"), {"sent_ns": 1}, Ending.RESET),
]


@pytest.mark.parametrize(("error", "known", "ending"), ENDINGS)
def test_each_error_of_the_library_is_one_ending(error: httpx.HTTPError, known: dict[str, Any], ending: Ending) -> None:
    bare = Exchange(b"", 0, 0, Ending.INTERRUPTED)
    for name, value in known.items():
        setattr(bare, name, value)
    assert _ending(error, bare) is ending


def test_times_are_of_the_first_connection_and_the_last_request() -> None:
    """Through a proxy there are two of each: to the proxy, and inside the tunnel."""
    now = 1_000
    item = exchange([])
    item.t0_wall_ns = 400
    watch = _Watch(item, Clock(wall_ns=lambda: now))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch.follow("connection.connect_tcp.complete", {"return_value": Handed(ours)})
        now = 2_000
        watch.follow("http11.send_request_body.complete", {})
        assert (item.connected_ns, item.sent_ns) == (600, 1_600)
        now = 3_000
        watch.follow("proxy.start_tls.complete", {"return_value": Handed(ours)})
        watch.follow("http11.send_request_body.started", {})
        assert (item.connected_ns, item.sent_ns) == (600, None)
        now = 4_000
        watch.follow("http11.receive_response_headers.started", {})
        assert item.sent_ns is None
        watch.follow("http11.send_request_body.complete", {})
        assert (item.connected_ns, item.sent_ns) == (600, 3_600)
        ours.send(b"x")
        assert theirs.recv(1) == b"x", "nothing was shut"


def test_a_limit_that_is_left_in_time_ends_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = _Watch(exchange([]), Clock())
        watch.follow("connection.connect_tcp.complete", {"return_value": Handed(ours)})
        with watch.limit(3600.0, Ending.TOTAL_TIMEOUT, "x"):
            timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
            assert timers and all(timer.daemon for timer in timers), "none keeps the program from ending"
        deadline = time.monotonic() + 20
        while any(timer.is_alive() for timer in timers) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not any(timer.is_alive() for timer in timers) and watch.verdict is None


def test_a_connection_that_is_gone_already_is_shut_without_a_word() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    watch = _Watch(exchange([]), Clock())
    watch.follow("connection.connect_tcp.complete", {"return_value": Handed(ours)})
    watch._end(Ending.DONE, "x")
    assert watch.verdict == (Ending.DONE, "x")


def test_limits_are_those_of_the_contract_where_nothing_else_is_said() -> None:
    transport = LibraryTransport()
    assert transport._deadlines == Deadlines() == Deadlines(10.0, 120.0, 60.0, 900.0)
    assert transport._drain_s == 0.5 and transport._verify is True and transport._clock == Clock()
    assert isinstance(LibraryTransport(verify=ssl.get_default_verify_paths().openssl_cafile)._verify, ssl.SSLContext)


def test_certificates_that_are_not_there_are_told_in_the_system_s_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        LibraryTransport(verify=str(tmp_path / "none.pem"))
    assert str(caught.value) == ("the certificates to trust can't be read (No such file or directory); give a PEM file")
