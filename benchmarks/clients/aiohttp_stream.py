"""aiohttp, ``content.iter_any``: its cheapest way to read a stream; most load generators stand on it."""

import asyncio
import time
from typing import Any

import aiohttp

from benchmarks.clients.job import HOST, PATH, Events, Job, parsed


class Client:
    """Connections are kept between rounds, as aiohttp does."""

    timestamps = "when iter_any hands the piece out"
    version = aiohttp.__version__
    parse: Any = staticmethod(parsed)

    def __init__(self, job: Job) -> None:
        self._job, self._body = job, job.body()
        self._url = f"http://{HOST}:{job.port}{PATH}"
        self._runner = asyncio.Runner()
        self._session = self._runner.run(self._open())

    async def _open(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    def round(self) -> list[Any]:
        """See Client."""
        return self._runner.run(self._all())

    async def _all(self) -> list[Any]:
        return await asyncio.gather(*(self._one() for _ in range(self._job.streams)))

    async def _one(self) -> Any:
        events = Events(time.time_ns())
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=self._body, headers=headers) as response:
            response.raise_for_status()
            async for piece in response.content.iter_any():
                events.feed(time.time_ns(), piece)
        return events.stream()

    def close(self) -> None:
        """See Client."""
        self._runner.run(self._session.close())
        self._runner.close()
