"""httpx's own path through a proxy that is given, and never through the environment's. Real sockets."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from harness.wire.completion import parse_completion
from harness.wire.exchange import Ending
from tests.wire.asking import ANSWER
from tests.wire.asking import ask_library as ask
from tests.wire.build import GOOD, until_close
from tests.wire.scripted import PATIENCE_S, Peer, hold, request, send, serving


def relay(peer: Peer) -> None:
    """A proxy for one connection: CONNECT tunnels, and plain requests with the whole address in their first line."""
    request(peer)
    method, target, _ = peer.request.split(b" ", 2)
    host, _, port = target.removeprefix(b"http://").split(b"/")[0].partition(b":")
    with socket.create_connection((host.decode(), int(port)), timeout=PATIENCE_S) as far:
        if method == b"CONNECT":
            peer.sock.sendall(b"HTTP/1.1 200 Established\r\n\r\n")
        else:
            far.sendall(peer.request)

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

        up = threading.Thread(target=pump, args=(peer.sock, far), daemon=True)
        up.start()
        pump(far, peer.sock)
        up.join(PATIENCE_S)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_given_is_used(scheme: str, tls: ssl.SSLContext, certificate: Path) -> None:
    with serving([request, send(ANSWER)], tls=tls if scheme == "https" else None) as server, serving([relay]) as proxy:
        exchange = ask(
            server, scheme=scheme, verify=str(certificate), proxy=f"http://127.0.0.1:{proxy.port}", body=b'{"n": 1}'
        )
    assert exchange.ending is Ending.CLOSED
    assert parse_completion(exchange).token_ids == (5, 6, 7, 8)
    assert len(proxy.peers) == len(server.peers) == 1
    assert server.peers[0].request.endswith(b'{"n": 1}')
    begun = proxy.peers[0].request.split(b"\r\n")[0]
    origin = b"127.0.0.1:%d" % server.port
    assert (
        begun
        == {
            "https": b"CONNECT " + origin + b" HTTP/1.1",
            "http": b"POST http://" + origin + b"/v1/completions HTTP/1.1",
        }[scheme]
    )
    assert exchange.connected_ns is not None and exchange.sent_ns is not None
    assert exchange.connected_ns < exchange.sent_ns < exchange.at_ns[0]


def test_an_end_is_noticed_through_a_proxy(tls: ssl.SSLContext, certificate: Path) -> None:
    with serving([request, send(b"".join(until_close(GOOD))), hold], tls=tls) as server, serving([relay]) as proxy:
        exchange = ask(server, scheme="https", verify=str(certificate), proxy=f"http://127.0.0.1:{proxy.port}")
    assert exchange.ending is Ending.DONE


def test_a_proxy_that_refuses_is_a_failed_connection(certificate: Path) -> None:
    with serving([request, send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")]) as proxy:
        exchange = ask(proxy, scheme="https", verify=str(certificate), proxy=f"http://127.0.0.1:{proxy.port}")
    assert exchange.ending is Ending.CONNECT_FAILED
    assert "403" in exchange.detail


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_environments_proxy_is_never_used(
    scheme: str, tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving([request]) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with serving([request, send(ANSWER)], tls=tls if scheme == "https" else None) as server:
            exchange = ask(server, scheme=scheme, verify=str(certificate))
    assert exchange.ending is Ending.CLOSED
    assert proxy.peers == []
