"""aiohttp again, with the pieces kept and parsed after the streams have ended, as ours does it.

Its users don't do that; it stands here so that reading can be compared with reading alone.
"""

import time
from typing import Any

from benchmarks.clients import aiohttp_stream
from benchmarks.clients.job import Heard, parse_pieces


class Client(aiohttp_stream.Client):
    """Like the other, but for the parsing."""

    parse = staticmethod(parse_pieces)

    async def _one(self) -> Any:
        heard = Heard(time.time_ns())
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=self._body, headers=headers) as response:
            response.raise_for_status()
            async for piece in response.content.iter_any():
                heard.pieces.append((time.time_ns(), piece))
        return heard
