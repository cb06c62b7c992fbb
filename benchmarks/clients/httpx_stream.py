"""httpx, asynchronous, ``aiter_bytes``: how most Python clients read a stream."""

import asyncio
import time

import httpx

from benchmarks.clients.job import HOST, PATH, Events, Job, Stream, parsed


class Client:
    """Connections are kept between rounds, as httpx does."""

    timestamps = "when aiter_bytes hands the piece out"
    version = httpx.__version__
    parse = staticmethod(parsed)

    def __init__(self, job: Job) -> None:
        self._job, self._body = job, job.body()
        self._url = f"http://{HOST}:{job.port}{PATH}"
        self._runner = asyncio.Runner()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(timeout=300, limits=limits, trust_env=False)

    def round(self) -> list[Stream]:
        """See Client."""
        return self._runner.run(self._all())

    async def _all(self) -> list[Stream]:
        return await asyncio.gather(*(self._one() for _ in range(self._job.streams)))

    async def _one(self) -> Stream:
        events = Events(time.time_ns())
        headers = {"content-type": "application/json"}
        async with self._client.stream("POST", self._url, content=self._body, headers=headers) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                events.feed(time.time_ns(), piece)
        return events.stream()

    def close(self) -> None:
        """See Client."""
        self._runner.run(self._client.aclose())
        self._runner.close()
