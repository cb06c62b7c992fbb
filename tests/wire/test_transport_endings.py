"""How an exchange ends: refused, timed out, reset, cut, or left open by the server. Real sockets."""

import contextlib
import socket
import threading
from dataclasses import replace

import pytest

import harness.wire.transport as transport_module
from harness.wire.completion import Reason, parse_completion
from harness.wire.exchange import Ending
from harness.wire.request import http_request
from harness.wire.transport import SocketTransport
from tests.wire.asking import SHORT, ask, linux
from tests.wire.build import DONE, GOOD, chunked, sized, until_close, usage
from tests.wire.scripted import Told, half_close, hold, request, reset, send, send_bytewise, serving, wait


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
