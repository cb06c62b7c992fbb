"""A socket server in a thread that plays a script on every connection, one script after the other.

A step is a function of the :class:`Peer`. The connection is closed when its script has ended.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from harness.wire.request import http_request
from harness.wire.transport import NoSink

PATIENCE_S = 20.0
"""How long a step waits for what must come; reached only when a test fails"""


class Peer:
    """The server's side of one connection."""

    def __init__(self, server: "ScriptedServer", number: int, sock: socket.socket) -> None:
        self.server = server
        self.number = number
        self.sock = sock
        self.request = b""
        self.closed_by_client = False


Step = Callable[[Peer], Any]


def request(peer: Peer) -> None:
    """Read one request, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := peer.sock.recv(65536)):
            raise ConnectionError("the client closed before its request was whole")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    parts, left = [body], int(lengths[0]) - len(body) if lengths else 0
    while left > 0:
        if not (more := peer.sock.recv(65536)):
            raise ConnectionError("the client closed before its request was whole")
        parts.append(more)
        left -= len(more)
    peer.request = head + b"\r\n\r\n" + b"".join(parts)


def send(data: bytes) -> Step:
    """Send ``data`` at once."""
    return lambda peer: peer.sock.sendall(data)


def send_bytewise(data: bytes) -> Step:
    """Send ``data`` in writes of one byte."""

    def step(peer: Peer) -> None:
        for place in range(len(data)):
            peer.sock.sendall(data[place : place + 1])

    return step


def wait(event: threading.Event) -> Step:
    """Go on when ``event`` is set."""

    def step(peer: Peer) -> None:
        assert event.wait(PATIENCE_S), "the event never came"

    return step


def meet(barrier: threading.Barrier) -> Step:
    """Go on when so many connections have come this far."""
    return lambda peer: barrier.wait(PATIENCE_S)


def half_close(peer: Peer) -> None:
    """End of file to the client; reading goes on."""
    peer.sock.shutdown(socket.SHUT_WR)


def reset(peer: Peer) -> None:
    """Close with RST."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.sock.close()


def hold(peer: Peer) -> None:
    """Keep the connection open until the client closes it."""
    with suppress(OSError):
        while peer.sock.recv(65536):
            pass
    peer.closed_by_client = True


def act(function: Callable[[], Any]) -> Step:
    """Do anything else."""
    return lambda peer: function()


class ScriptedServer:
    """Listens on a free port. Connection ``i`` plays script ``i``; the last script serves all that follow."""

    def __init__(
        self, scripts: Sequence[Sequence[Step]], *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.scripts = scripts
        self.host = host
        self.peers: list[Peer] = []
        self.peak = 0
        """most connections open at once"""
        self.failures: list[BaseException] = []
        self._tls = tls
        self._open = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def request(self, body: bytes = b"{}", path: str = "/v1/completions") -> bytes:
        """The bytes of a request to this server."""
        return http_request(path, body, host=self.host, port=self.port, request_id="bench-test-00-a")

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(PATIENCE_S)
            with self._lock:
                peer = Peer(self, len(self.peers), sock)
                self.peers.append(peer)
                self._open += 1
                self.peak = max(self.peak, self._open)
            thread = threading.Thread(target=self._play, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, peer: Peer) -> None:
        try:
            if self._tls is not None:
                peer.sock = self._tls.wrap_socket(peer.sock, server_side=True)
            for step in self.scripts[min(peer.number, len(self.scripts) - 1)]:
                step(peer)
        except OSError:
            peer.closed_by_client = True
        except BaseException as failure:  # noqa: BLE001 - raised again by close
            self.failures.append(failure)
        finally:
            with self._lock:
                self._open -= 1
            peer.sock.close()

    def close(self) -> None:
        """Stop; every connection must have come to its end."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a connection was left open"
        if self.failures:
            raise self.failures[0]


@contextmanager
def serving(
    *scripts: Sequence[Step], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    """A server for the block."""
    server = ScriptedServer(scripts, host=host, tls=tls)
    try:
        yield server
    finally:
        server.close()


class Told(NoSink):
    """A sink that tells (sets ``seen``) when the answer so far holds ``marker``."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self.seen = threading.Event()

    def drain(self, exchange: Any, number: int) -> None:
        if self.marker in exchange.data:
            self.seen.set()


class Handed:
    """What httpx hands to a trace: something that has a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> Any:
        """The socket."""
        assert name == "socket"
        return self._sock
