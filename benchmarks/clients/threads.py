"""One thread a stream with ``http.client``, ``read1``: no event loop, the standard library alone."""

import platform
import threading
import time
from http.client import HTTPConnection

from benchmarks.clients.job import HOST, PATH, Events, Job, Stream, parsed


class Client:
    """Connections are kept between rounds; a round's threads leave a barrier together."""

    timestamps = "when read1 returns"
    version = f"http.client of Python {platform.python_version()}"
    parse = staticmethod(parsed)

    def __init__(self, job: Job) -> None:
        self._body = job.body()
        self._connections = [HTTPConnection(HOST, job.port) for _ in range(job.streams)]

    def round(self) -> list[Stream]:
        """See Client."""
        streams: list[Stream] = []
        barrier = threading.Barrier(len(self._connections))
        threads = [
            threading.Thread(target=self._one, args=(connection, streams, barrier)) for connection in self._connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return streams

    def _one(self, connection: HTTPConnection, streams: list[Stream], barrier: threading.Barrier) -> None:
        barrier.wait()
        events = Events(time.time_ns())
        connection.request("POST", PATH, self._body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        while piece := response.read1(1 << 16):
            events.feed(time.time_ns(), piece)
        streams.append(events.stream())

    def close(self) -> None:
        """See Client."""
        for connection in self._connections:
            connection.close()
