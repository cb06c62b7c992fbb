"""https and proxied endpoints: through httpx, with the user-space clock and the HTTP framing removed by the library."""

import time
from collections.abc import Sequence

import httpx

from harness.wire.exchange import Ending, Exchange
from harness.wire.transport import NORMAL, Clock, Deadlines, NoSink, Sink


class LibraryTransport:
    """The same ``exchange`` as the socket transport's; the body's pieces are what httpx hands out, undecoded."""

    timestamp_source = "user-space clock (httpx)"

    def __init__(
        self,
        *,
        deadlines: Deadlines | None = None,
        clock: Clock | None = None,
        sink: Sink | None = None,
        secret_headers: Sequence[tuple[str, str]] = (),
        proxy: str | None = None,
        verify: bool | str = True,
    ) -> None:
        self._deadlines = deadlines or Deadlines()
        self._clock = clock or Clock()
        self._sink: Sink = sink or NoSink()
        self._secret = list(secret_headers)
        self._proxy = proxy
        self._verify = verify

    def exchange(self, request: bytes, *, url: str) -> Exchange:
        """Send the recorded request's body and headers to ``url`` over a new connection. Never raises for a server."""
        limits, clock = self._deadlines, self._clock
        timeout = httpx.Timeout(limits.connect_s, read=limits.first_byte_s, write=limits.first_byte_s)
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]]
        kept = [(name, value.strip()) for name, _, value in lines if name.lower() not in ("host", "content-length")]
        with httpx.Client(timeout=timeout, trust_env=False, proxy=self._proxy, verify=self._verify) as client:
            mono, wall = clock.mono_ns(), clock.wall_ns()
            exchange = Exchange(request, t0_wall_ns=wall, t0_mono_ns=mono, ending=Ending.INTERRUPTED, framing="body")
            exchange.scheduling = NORMAL
            self._sink.begin(exchange, 0)
            cpu = time.thread_time_ns()
            try:
                with client.stream("POST", url, content=body, headers=[*kept, *self._secret]) as response:
                    self._read(exchange, response)
            except httpx.HTTPError as error:
                exchange.ending, exchange.detail = _ending(error, exchange), str(error) or type(error).__name__
            finally:
                exchange.cpu_ns = time.thread_time_ns() - cpu
                exchange.end_wall_ns, exchange.end_mono_ns = clock.wall_ns(), clock.mono_ns()
                exchange.end_ns = exchange.end_wall_ns - wall
                self._sink.end(exchange, 0)
        return exchange

    def _read(self, exchange: Exchange, response: httpx.Response) -> None:
        clock, limits = self._clock, self._deadlines
        exchange.status = response.status_code
        exchange.headers = [(name, value) for name, value in response.headers.items() if name != "set-cookie"]
        exchange.sent_ns = clock.wall_ns() - exchange.t0_wall_ns
        # From here on the wait is one between bytes.
        response.request.extensions["timeout"] = httpx.Timeout(limits.idle_s).as_dict()
        parts = []
        for piece in response.iter_raw():
            at = clock.wall_ns() - exchange.t0_wall_ns
            exchange.at_ns.append(at)
            exchange.user_ns.append(at)
            exchange.kernel.append(False)
            exchange.sizes.append(len(piece))
            parts.append(piece)
            exchange.data = b"".join(parts) if len(parts) == 1 else exchange.data + piece
            if at > limits.total_s * 1e9:
                exchange.ending, exchange.detail = Ending.TOTAL_TIMEOUT, f"{limits.total_s:g} s in all"
                return
        exchange.ending = Ending.CLOSED


def _ending(error: httpx.HTTPError, exchange: Exchange) -> Ending:
    if isinstance(error, httpx.ConnectTimeout):
        return Ending.CONNECT_TIMEOUT
    if isinstance(error, httpx.ConnectError | httpx.ProxyError | httpx.UnsupportedProtocol):
        return Ending.CONNECT_FAILED
    if isinstance(error, httpx.WriteError | httpx.WriteTimeout):
        return Ending.SEND_FAILED
    if isinstance(error, httpx.ReadTimeout):
        return Ending.IDLE_TIMEOUT if exchange.sizes else Ending.FIRST_BYTE_TIMEOUT
    return Ending.RESET
