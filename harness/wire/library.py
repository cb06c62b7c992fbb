"""https and proxied endpoints: through httpx, with the user-space clock and the HTTP framing removed by the library."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from harness.errors import UsageError
from harness.wire.answer_end import AnswerEnd
from harness.wire.exchange import Ending, Exchange, level_reads
from harness.wire.request import sendable_headers
from harness.wire.scheduling import NORMAL
from harness.wire.transport import GRACE_S, MAX_ANSWER, STOPPED, Clock, Deadlines, NoSink, Sink


class LibraryTransport:
    """The same ``exchange`` as the socket transport's; the body's pieces are what httpx hands out, undecoded.

    ``verify`` is a file with the certificates to trust instead of the usual ones. Raises UsageError when it isn't.
    """

    timestamp_source = "user-space clock (httpx)"

    def __init__(
        self,
        *,
        deadlines: Deadlines | None = None,
        clock: Clock | None = None,
        sink: Sink | None = None,
        drain_s: float = 0.5,
        secret_headers: Sequence[tuple[str, str]] = (),
        proxy: str | None = None,
        verify: bool | str = True,
    ) -> None:
        self._deadlines = deadlines or Deadlines()
        self._clock = clock or Clock()
        self._sink: Sink = sink or NoSink()
        self._drain_s = drain_s
        self._secret = sendable_headers(secret_headers)
        self._proxy = proxy
        self._verify: bool | ssl.SSLContext = _trusting(verify) if isinstance(verify, str) else verify

    def exchange(self, request: bytes, *, url: str) -> Exchange:
        """Send the recorded request's body and headers to ``url`` over a new connection. Never raises for a server."""
        limits, clock = self._deadlines, self._clock
        connect_s = min(limits.connect_s, limits.total_s)
        timeout = httpx.Timeout(connect_s, read=limits.first_byte_s, write=limits.first_byte_s)
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]]
        kept = [(name, value.strip()) for name, _, value in lines if name.lower() not in ("host", "content-length")]
        with httpx.Client(timeout=timeout, trust_env=False, proxy=self._proxy, verify=self._verify) as client:
            mono, wall = clock.mono_ns(), clock.wall_ns()
            exchange = Exchange(request, t0_wall_ns=wall, t0_mono_ns=mono, ending=Ending.INTERRUPTED, framing="body")
            exchange.scheduling, exchange.detail = NORMAL, STOPPED
            watch = _Watch(exchange, clock)
            parts: list[bytes] = []
            cpu = time.thread_time_ns()
            try:
                self._sink.begin(exchange, 0)
                send = client.build_request("POST", url, content=body, headers=[*kept, *self._secret])
                send.extensions["trace"] = watch.follow
                with watch.limit(limits.total_s, Ending.TOTAL_TIMEOUT, f"{limits.total_s:g} s in all"):
                    response = client.send(send, stream=True)
                    with contextlib.closing(response):
                        self._read(exchange, response, parts, watch)
            except httpx.HTTPError as error:
                exchange.ending, exchange.detail = _ending(error, exchange), str(error) or type(error).__name__
            finally:
                exchange.cpu_ns = time.thread_time_ns() - cpu
                exchange.end_wall_ns, exchange.end_mono_ns = clock.wall_ns(), clock.mono_ns()
                exchange.end_ns = exchange.end_wall_ns - wall
                exchange.data = b"".join(parts)
                if watch.verdict:
                    exchange.ending, exchange.detail = watch.verdict
                elif exchange.ending is Ending.INTERRUPTED:
                    level_reads(exchange)
                self._sink.end(exchange, 0)
        return exchange

    def _read(self, exchange: Exchange, response: httpx.Response, parts: list[bytes], watch: "_Watch") -> None:
        clock, limits = self._clock, self._deadlines
        exchange.status = response.status_code
        exchange.headers = [(name, value) for name, value in response.headers.multi_items() if name != "set-cookie"]
        # From here on the wait is one between bytes; the library looks at this when the first piece is asked for.
        response.request.extensions["timeout"] = httpx.Timeout(limits.idle_s).as_dict()
        end, size, next_drain = AnswerEnd(framed=False), 0, clock.mono_ns()
        with contextlib.ExitStack() as grace:
            for piece in response.iter_raw():
                at = clock.wall_ns() - exchange.t0_wall_ns
                grace.close()
                exchange.user_ns.append(at)
                exchange.at_ns.append(at)
                exchange.kernel.append(False)
                exchange.sizes.append(len(piece))
                parts.append(piece)
                size += len(piece)
                if size > MAX_ANSWER:
                    exchange.detail = f"the answer is longer than {MAX_ANSWER} bytes"
                    return
                if end.feed(piece):
                    grace.enter_context(watch.limit(GRACE_S, Ending.DONE, "the server kept the connection open"))
                now = clock.mono_ns()
                if now >= next_drain:
                    next_drain = now + int(self._drain_s * 1e9)
                    exchange.data = b"".join(parts)
                    parts[:] = [exchange.data]
                    self._sink.drain(exchange, 0)
        exchange.ending, exchange.detail = Ending.CLOSED, ""


class _Watch:
    """Ends a connection from outside: the library limits single waits only, so a server that sends a byte now and
    then, or leaves the connection open after the answer, would be waited for without end."""

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        self.verdict: tuple[Ending, str] | None = None
        self._exchange = exchange
        self._clock = clock
        self._socket: socket.socket | None = None

    def follow(self, event: str, info: dict[str, Any]) -> None:
        """The library's trace of a request (``trace`` extension): when it connected, sent, and over which socket."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._exchange.connected_ns is None:
                self._exchange.connected_ns = self._clock.wall_ns() - self._exchange.t0_wall_ns
            if self.verdict:
                self._shut()
        elif event.endswith("send_request_body.complete"):
            # A proxy's CONNECT comes first; the last one is the request's.
            self._exchange.sent_ns = self._clock.wall_ns() - self._exchange.t0_wall_ns
        elif event.endswith("send_request_body.started"):
            self._exchange.sent_ns = None

    @contextlib.contextmanager
    def limit(self, seconds: float, ending: Ending, detail: str) -> Iterator[None]:
        """The connection ends so when the block takes longer."""
        timer = threading.Timer(seconds, self._end, (ending, detail))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self, ending: Ending, detail: str) -> None:
        self.verdict = self.verdict or (ending, detail)
        self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Past the TLS layer, which belongs to the reading thread.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _trusting(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"the certificates to trust can't be read ({why}); give a PEM file") from None


def _ending(error: httpx.HTTPError, exchange: Exchange) -> Ending:
    if isinstance(error, httpx.ConnectTimeout):
        return Ending.CONNECT_TIMEOUT
    if isinstance(error, httpx.ConnectError | httpx.ProxyError | httpx.UnsupportedProtocol):
        return Ending.CONNECT_FAILED
    if isinstance(error, httpx.WriteError | httpx.WriteTimeout):
        return Ending.SEND_FAILED
    if isinstance(error, httpx.ReadTimeout):
        return Ending.FIRST_BYTE_TIMEOUT if exchange.status is None else Ending.IDLE_TIMEOUT
    return Ending.SEND_FAILED if exchange.sent_ns is None else Ending.RESET
