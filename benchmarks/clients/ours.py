"""The harness's own client: kernel timestamps while streams are open, parsing after they have ended."""

from benchmarks.clients.job import HOST, PATH, Job, Stream, stamps
from harness import __version__
from harness.wire.completion import parse_completion
from harness.wire.exchange import Exchange
from harness.wire.request import http_request
from harness.wire.transport import SocketTransport


class Client:
    """A new connection a request, all opened before the first is released, as a ladder does it."""

    version = __version__

    def __init__(self, job: Job) -> None:
        self._requests = [http_request(PATH, job.body(), host=HOST, port=job.port)] * job.streams
        self._transport = SocketTransport(HOST, job.port)
        self.timestamps = self._transport.timestamp_source

    def round(self) -> list[Exchange]:
        """See Client."""
        return self._transport.exchange_all(self._requests, releases_ns=[0] * len(self._requests))

    def parse(self, heard: Exchange) -> Stream:
        """See Client."""
        completion = parse_completion(heard)
        at = [heard.t0_wall_ns + ns for ns in completion.chunk_ns]
        return Stream(heard.t0_wall_ns, at, stamps(heard.data), list(completion.token_ids), completion.complete)

    def close(self) -> None:
        """Each round closes its own."""
