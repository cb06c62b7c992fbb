"""The library transport against a real TLS server, real proxies and real timeouts."""

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import harness.wire.library as library_module
from harness.errors import UsageError
from harness.wire.capture import Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.completion import Reason, parse_completion
from harness.wire.exchange import Ending, Exchange
from harness.wire.library import LibraryTransport
from harness.wire.transport import Deadlines, SocketTransport
from tests.wire.asking import ANSWER, SHORT, consistent
from tests.wire.asking import ask_library as ask
from tests.wire.build import DONE, GOOD, GOOD_TEXT, HEAD, chunked, sized, until_close
from tests.wire.scripted import (
    PATIENCE_S,
    Peer,
    Step,
    Told,
    half_close,
    hold,
    request,
    reset,
    send,
    send_bytewise,
    serving,
    wait,
)

# Streams


@pytest.mark.parametrize("how", [send, send_bytewise], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(
    "writes", [chunked(GOOD), sized(b"".join(GOOD)), until_close(GOOD)], ids=["chunked", "sized", "until close"]
)
def test_the_same_stream_gives_the_same_tokens_over_tls(
    writes: list[bytes], how: Callable[[bytes], Step], tls: ssl.SSLContext, certificate: Path
) -> None:
    data = b"".join(writes)
    with serving([request, how(data)], tls=tls) as server:
        by_library = ask(server, scheme="https", verify=str(certificate))
        library_request = server.peers[0].request
    with serving([request, how(data)]) as server:
        by_socket = SocketTransport("127.0.0.1", server.port).exchange(server.request())
        socket_request = server.peers[0].request
    assert (by_library.ending, by_library.detail, by_library.framing) == (Ending.CLOSED, "", "body")
    assert by_library.data == b"".join(GOOD)
    assert consistent(by_library)
    assert not any(by_library.kernel)
    assert by_library.user_ns == by_library.at_ns == sorted(by_library.at_ns)
    assert by_library.connected_ns is not None and by_library.sent_ns is not None
    assert 0 < by_library.connected_ns < by_library.sent_ns < by_library.at_ns[0] <= by_library.end_ns
    assert by_library.cpu_ns > 0
    mine, theirs = parse_completion(by_library), parse_completion(by_socket)
    assert mine.reason is theirs.reason is None
    assert (mine.token_ids, mine.text, mine.usage, mine.status) == (theirs.token_ids, GOOD_TEXT, theirs.usage, 200)
    ours, those = sorted(library_request.lower().split(b"\r\n")), sorted(socket_request.lower().split(b"\r\n"))
    no_host = [[line for line in lines if not line.startswith(b"host:")] for lines in (ours, those)]
    assert no_host[0] == no_host[1]


def test_the_source_of_the_times_is_named() -> None:
    assert LibraryTransport.timestamp_source == "user-space clock (httpx)"


def test_a_certificate_that_is_not_trusted_is_a_failed_connection(tls: ssl.SSLContext) -> None:
    with serving([request, send(ANSWER)], tls=tls) as server:
        exchange = ask(server, scheme="https")
    assert exchange.ending is Ending.CONNECT_FAILED
    assert "certificate" in exchange.detail.lower()
    assert exchange.status is None


def test_a_plain_server_behind_an_https_address(certificate: Path) -> None:
    with serving([send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), hold]) as server:
        exchange = ask(server, scheme="https", verify=str(certificate))
    assert exchange.ending is Ending.CONNECT_FAILED


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    for path in (broken, tmp_path / "absent.pem"):
        with pytest.raises(UsageError, match="certificates to trust can't be read"):
            LibraryTransport(verify=str(path))


def test_secrets_are_sent_and_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {})
    writer.tags = [Tag("suite", "a")]
    answer = b"".join(chunked(GOOD, head=HEAD + b"set-cookie: s3cr3t-cookie=1\r\nx-twice: 1\r\nx-twice: 2\r\n"))
    with serving([request, send(answer)]) as server:
        exchange = ask(server, sink=writer, secret_headers=[("Authorization", "Bearer s3cr3t")])
    writer.close()
    assert b"authorization: bearer s3cr3t\r\n" in server.peers[0].request.lower()
    assert "s3cr3t" not in repr(exchange)
    assert [value for name, value in exchange.headers if name == "x-twice"] == ["1", "2"]
    ((tag, loaded),) = load_capture(path).exchanges
    assert tag == Tag("suite", "a")
    assert loaded == exchange
    assert parse_completion(loaded).reason is None


@pytest.mark.parametrize("value", ["s3cr3t\r\nX: 1", "s3cr3t\x00", "s3cr3t é"])
def test_a_secret_that_cannot_be_sent_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        LibraryTransport(secret_headers=[("X-Key", value)])
    assert "s3cr3t" not in str(caught.value)


def test_reads_are_handed_over_while_the_answer_goes_on(tmp_path: Path) -> None:
    """What a killed run leaves: the pieces so far, as a body without framing."""
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {})
    writer.tags = [Tag("suite", "a")]
    told = Told(GOOD[1])
    copies: list[bytes] = []

    class Both:
        begin, end = writer.begin, writer.end

        def drain(self, exchange: Exchange, number: int) -> None:
            writer.drain(exchange, number)
            told.drain(exchange, number)
            copies.append(path.read_bytes())

    writes = chunked(GOOD)
    with serving([request, send(b"".join(writes[:3])), wait(told.seen), send(b"".join(writes[3:]))]) as server:
        ask(server, sink=Both())
    writer.close()
    killed = tmp_path / "killed.jsonl.zst"
    killed.write_bytes(copies[1])
    ((_, exchange),) = load_capture(killed).exchanges
    assert (exchange.ending, exchange.framing) == (Ending.INTERRUPTED, "body")
    completion = parse_completion(exchange)
    assert (completion.reason, completion.token_ids) == (Reason.INTERRUPTED, (5, 6, 7))


def test_an_answer_of_20_megabytes() -> None:
    body = b": " + b"x" * 1022 + b"\n\n"
    body = body * 20_000 + b"".join(GOOD)
    with serving([request, *[send(write) for write in until_close([body])]]) as server:
        transport = LibraryTransport()
        exchange = transport.exchange(server.request(), url=f"http://127.0.0.1:{server.port}/")
    assert exchange.data == body
    assert consistent(exchange)
    assert exchange.ending is Ending.CLOSED


def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "MAX_ANSWER", 3_000_000)

    def flood(peer: Peer) -> None:
        while True:
            peer.sock.sendall(b"x" * 100_000)

    with serving([request, send(b"".join(until_close([]))), flood]) as server:
        exchange = ask(server)
    assert exchange.ending is Ending.INTERRUPTED
    assert "longer than" in exchange.detail
    assert len(exchange.data) < 4_000_000


# Endings


def test_connect_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        exchange = LibraryTransport().exchange(b"POST / HTTP/1.1\r\n\r\n", url=url)
    assert exchange.ending is Ending.CONNECT_FAILED
    assert "refused" in exchange.detail
    assert (exchange.connected_ns, exchange.sent_ns) == (None, None)


def test_a_handshake_that_never_comes_is_a_connect_timeout(certificate: Path) -> None:
    with serving([hold]) as server:
        exchange = ask(server, scheme="https", verify=str(certificate), deadlines=SHORT)
    assert exchange.ending is Ending.CONNECT_TIMEOUT
    assert exchange.detail


def test_first_byte_timeout() -> None:
    with serving([request, hold]) as server:
        exchange = ask(server, deadlines=replace(SHORT, idle_s=5.0))
    assert exchange.ending is Ending.FIRST_BYTE_TIMEOUT
    assert exchange.sent_ns is not None
    assert exchange.detail


@pytest.mark.parametrize("count", [0, 2], ids=["after the head", "after two events"])
def test_idle_timeout(count: int) -> None:
    """The wait between bytes has its own limit, not that of the first byte."""
    part = b"".join(chunked(GOOD[:count], last=False))
    with serving([request, send(part), hold]) as server:
        exchange = ask(server, deadlines=replace(SHORT, first_byte_s=PATIENCE_S))
    assert exchange.ending is Ending.IDLE_TIMEOUT
    assert exchange.data == b"".join(GOOD[:count])
    assert exchange.end_mono_ns - exchange.t0_mono_ns < 10e9
    assert parse_completion(exchange).reason is Reason.IDLE_TIMEOUT


def test_a_first_byte_may_come_later_than_the_wait_between_bytes() -> None:
    go = threading.Event()
    timer = threading.Timer(0.6, go.set)
    with serving([request, wait(go), send(ANSWER)]) as server:
        timer.start()
        exchange = ask(server, deadlines=Deadlines(first_byte_s=PATIENCE_S, idle_s=0.2))
    assert exchange.ending is Ending.CLOSED


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n", b"".join(until_close([]))], ids=["in the head", "in the body"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_total_timeout_under_bytes_that_keep_coming(
    scheme: str, head: bytes, tls: ssl.SSLContext, certificate: Path
) -> None:
    def drip(peer: Peer) -> None:
        while True:
            peer.sock.sendall(b"x")
            threading.Event().wait(0.01)

    with serving([request, send(head), drip], tls=tls if scheme == "https" else None) as server:
        deadlines = Deadlines(total_s=0.5)
        exchange = ask(server, scheme=scheme, verify=str(certificate), deadlines=deadlines)
    assert (exchange.ending, exchange.detail) == (Ending.TOTAL_TIMEOUT, "0.5 s in all")
    assert exchange.end_mono_ns - exchange.t0_mono_ns < 10e9
    assert parse_completion(exchange).reason is Reason.TOTAL_TIMEOUT


def test_reset_in_the_answer() -> None:
    told = Told(GOOD[1])
    with serving([request, send(b"".join(chunked(GOOD[:2], last=False))), wait(told.seen), reset]) as server:
        exchange = ask(server, sink=told)
    assert exchange.ending is Ending.RESET
    assert exchange.data == b"".join(GOOD[:2])
    assert parse_completion(exchange).token_ids == (5, 6, 7)


def test_a_body_that_breaks_off_is_never_complete() -> None:
    for part in (chunked(GOOD, last=False), sized(b"".join(GOOD), length=1_000_000)):
        with serving([request, send(b"".join(part)), half_close, hold]) as server:
            exchange = ask(server)
        assert exchange.data == b"".join(GOOD)
        assert exchange.ending is Ending.RESET
        assert not parse_completion(exchange).complete


def test_a_reset_before_the_request_was_taken_is_a_failed_send() -> None:
    with serving([lambda peer: peer.sock.recv(10), reset]) as server:
        exchange = ask(server, body=b"x" * 16_000_000)
    assert exchange.ending is Ending.SEND_FAILED


def test_a_request_that_is_never_taken() -> None:
    done = threading.Event()
    with serving([wait(done)]) as server:
        exchange = ask(server, deadlines=SHORT, body=b"x" * 16_000_000)
        done.set()
    assert exchange.ending is Ending.SEND_FAILED


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n"], ids=["nothing", "no HTTP"])
def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    with serving([request, send(answer)]) as server:
        exchange = ask(server)
    assert exchange.ending is Ending.RESET
    assert exchange.detail
    assert not parse_completion(exchange).complete


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_answer_that_ended_on_an_open_connection_is_left_soon(
    scheme: str, tls: ssl.SSLContext, certificate: Path
) -> None:
    for writes, ending in (
        (chunked(GOOD), Ending.CLOSED),
        (sized(b"".join(GOOD)), Ending.CLOSED),
        (chunked(GOOD, last=False), Ending.DONE),
        (until_close(GOOD), Ending.DONE),
    ):
        with serving([request, send(b"".join(writes)), hold], tls=tls if scheme == "https" else None) as server:
            exchange = ask(server, scheme=scheme, verify=str(certificate))
        assert exchange.ending is ending
        assert exchange.data == b"".join(GOOD)
        assert parse_completion(exchange).reason is None
        assert exchange.end_mono_ns - exchange.t0_mono_ns < 10e9


def test_bytes_after_a_seeming_end_are_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "GRACE_S", 10.0)  # a busy machine must not let it run out
    told = Told(DONE)
    with serving([request, send(b"".join(until_close(GOOD))), wait(told.seen), send(GOOD[0])]) as server:
        exchange = ask(server, sink=told)
    assert (exchange.ending, exchange.data) == (Ending.CLOSED, b"".join(GOOD) + GOOD[0])
    assert parse_completion(exchange).reason is Reason.AFTER_DONE


@pytest.mark.parametrize("when", ["begin", "drain", "end"])
def test_an_exception_of_the_sink_closes_the_connection(when: str) -> None:
    ended: list[Ending] = []

    class Failing:
        def begin(self, exchange: Exchange, number: int) -> None:
            if when == "begin":
                raise OSError(28, "No space left on device")

        def drain(self, exchange: Exchange, number: int) -> None:
            if when == "drain":
                raise OSError(28, "No space left on device")

        def end(self, exchange: Exchange, number: int) -> None:
            ended.append(exchange.ending)
            if when == "end":
                raise OSError(28, "No space left on device")

    with serving([request, send(ANSWER), hold]) as server, pytest.raises(OSError, match="No space"):
        ask(server, sink=Failing())
    assert ended == [Ending.CLOSED if when == "end" else Ending.INTERRUPTED]
