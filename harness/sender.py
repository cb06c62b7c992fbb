"""Model calls to one server, every one of them into its capture."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.evidence.attempts import answer_body
from harness.launch.server import Endpoint
from harness.looks import Looks, look
from harness.wire.capture import Control, Tag
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Exchange
from harness.wire.library import LibraryTransport
from harness.wire.request import http_request
from harness.wire.transport import Deadlines, SocketTransport
from harness.wire.workers import Spread, exchange_spread


@dataclass(frozen=True)
class Access:
    """How a server is reached."""

    deadlines: Deadlines
    secret_headers: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    workers: int = 1
    """client processes for batches"""


class Sender:
    """Sends model calls to one server and keeps its control answers at hand."""

    def __init__(self, endpoint: Endpoint, access: Access, path: Path, header: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._access = access
        self._library = endpoint.tls or access.proxy is not None
        source = LibraryTransport.timestamp_source
        if not self._library:
            transport = SocketTransport(endpoint.host, endpoint.port)
            source = transport.timestamp_source
        self.capture = CaptureWriter(path, {**header, "timestamp_source": source})
        self.controls: list[Control] = []
        self.requests = 0
        """model calls so far"""
        self.canary_tokens = 0
        """tokens of canaries and pulses"""

    def _bytes(self, tag: Tag, path: str, body: Mapping[str, object], *, stream: bool) -> bytes:
        endpoint = self._endpoint
        raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        self.requests += 1
        return http_request(
            endpoint.base_path + path,
            raw,
            host=endpoint.host,
            port=endpoint.port,
            request_id=tag.request_id or None,
            accept="text/event-stream" if stream else "application/json",
        )

    def post(self, tag: Tag, path: str, body: Mapping[str, object], *, stream: bool = False) -> Exchange:
        """One POST over a new connection; parsed by nobody here."""
        endpoint, access = self._endpoint, self._access
        request = self._bytes(tag, path, body, stream=stream)
        self.capture.tags = [tag]
        if self._library:
            library = LibraryTransport(
                deadlines=access.deadlines,
                sink=self.capture,
                secret_headers=access.secret_headers,
                proxy=access.proxy,
            )
            exchange = library.exchange(request, url=endpoint.url + path)
        else:
            exchange = SocketTransport(
                endpoint.host,
                endpoint.port,
                deadlines=access.deadlines,
                sink=self.capture,
                secret_headers=access.secret_headers,
            ).exchange(request)
        if not stream:
            self.canary_tokens += _tokens(exchange) if tag.kind != "ready" else 0
        return exchange

    def post_batch(
        self, tags: Sequence[Tag], path: str, bodies: Sequence[Mapping[str, object]], releases_ns: Sequence[int]
    ) -> list[Exchange]:
        """All connections opened, then request i sent ``releases_ns[i]`` after the barrier; streams, kernel times.

        Nothing is parsed or written while a stream is open; the capture has them all when this returns.
        """
        access = self._access
        requests = [self._bytes(tag, path, body, stream=True) for tag, body in zip(tags, bodies, strict=True)]
        spread = Spread(
            self._endpoint.host, self._endpoint.port, access.workers, access.deadlines, access.secret_headers
        )
        exchanges = exchange_spread(spread, requests, releases_ns)
        for tag, exchange in zip(tags, exchanges, strict=True):
            self.capture.whole(tag, exchange)
        self.capture.sync()
        return exchanges

    def looks(self, stage: str) -> Looks:
        """Looks at /metrics while a batch is open; to be recorded once it has ended."""
        return Looks(self._endpoint, self._access.secret_headers, stage)

    def look(self, name: str) -> None:
        """Record one look at /metrics."""
        self.record(look(self._endpoint, dict(self._access.secret_headers), name))

    def looked(self, looks: Looks) -> None:
        """Keep what was seen, in the capture and at hand."""
        for control in looks.controls:
            self.controls.append(control)
            self.capture.control(control, sync=False)
        self.capture.sync()

    @property
    def kernel_times(self) -> bool:
        """Whether requests go over our own sockets; batches need that."""
        return not self._library

    def record(self, control: Control) -> None:
        """Keep a control answer, in the capture and at hand."""
        self.controls.append(control)
        self.capture.control(control)


def _tokens(exchange: Exchange) -> int:
    body = answer_body(exchange)
    try:
        count = json.loads(body)["usage"]["completion_tokens"] if body is not None else 0
    except (ValueError, KeyError, TypeError):
        return 0
    return count if isinstance(count, int) else 0
