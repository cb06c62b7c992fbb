"""One thread a stream with ``http.client``, ``read1``: no event loop, the standard library alone."""

import platform
import threading
import time
from http.client import HTTPConnection

from benchmarks.clients.job import HOST, PATH, Heard, Job, parse_pieces


class Client:
    """Connections are kept between rounds; a round's threads leave a barrier together."""

    timestamps = "when read1 returns"
    version = f"http.client of Python {platform.python_version()}"
    parse = staticmethod(parse_pieces)

    def __init__(self, job: Job) -> None:
        self._body = job.body()
        self._connections = [HTTPConnection(HOST, job.port) for _ in range(job.streams)]

    def round(self) -> list[Heard]:
        """See Client."""
        heard = [Heard(0) for _ in self._connections]
        barrier = threading.Barrier(len(heard))
        pairs = zip(self._connections, heard, strict=True)
        threads = [threading.Thread(target=self._one, args=(*pair, barrier)) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return heard

    def _one(self, connection: HTTPConnection, heard: Heard, barrier: threading.Barrier) -> None:
        barrier.wait()
        heard.t0_ns = time.time_ns()
        connection.request("POST", PATH, self._body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        while piece := response.read1(1 << 16):
            heard.pieces.append((time.time_ns(), piece))

    def close(self) -> None:
        """See Client."""
        for connection in self._connections:
            connection.close()
