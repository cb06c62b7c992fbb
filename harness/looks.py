"""Looks at /metrics while a batch is open: how many requests the server runs at once, without disturbing a stream."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Self

from harness.evidence.looks import look_name
from harness.launch.server import Endpoint
from harness.wire.capture import Control

FIRST_S, EVERY_S = 0.1, 0.5
"""After the batch's begin, and after the look before"""
MOST = 20
"""Looks at one batch: the peak is at its begin, and a capture has room for so many"""
ANSWER_S = 2.0
"""How long a look may take"""
MAX_BODY = 16 * 1024 * 1024
_GAUGE = re.compile(
    rb"^(vllm:num_requests_(?:running|waiting))(?:\{[^\n]*\})? ([0-9]{1,9}(?:\.[0-9]{1,6})?)\r?$", re.MULTILINE
)
"""One series of a gauge. Its labels aren't kept, nor what else /metrics says"""


class Looks:
    """A thread of ordinary rank that looks while the ``with`` statement lasts. What was seen is recorded after it.

    It is started before the reading thread takes its rank, and between two short looks it sleeps: what it takes from
    the streams stands in the lag of contract section 6 like all else.
    """

    def __init__(self, endpoint: Endpoint, headers: Sequence[tuple[str, str]], stage: str) -> None:
        self._endpoint, self._headers, self._stage = endpoint, dict(headers), stage
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)
        self.controls: list[Control] = []
        """in order; complete once the ``with`` statement is over"""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(ANSWER_S + 1)

    def _run(self) -> None:
        wait = FIRST_S
        while len(self.controls) < MOST and not self._over.wait(wait):
            self.controls.append(look(self._endpoint, self._headers, look_name(self._stage)))
            wait = EVERY_S


def look(endpoint: Endpoint, headers: Mapping[str, str], name: str) -> Control:
    """One look at /metrics, of which the two gauges alone are kept; whatever goes wrong stands in it."""
    at, connection = time.time_ns(), HTTPConnection(endpoint.host, endpoint.port, timeout=ANSWER_S)
    try:
        connection.request("GET", f"{endpoint.base_path}/metrics", headers={"Connection": "close", **headers})
        response = connection.getresponse()
        series = _GAUGE.findall(response.read(MAX_BODY))
        body = "".join(f"{gauge.decode()} {value.decode()}\n" for gauge, value in series)
        return Control(name, "/metrics", at, response.status, body)
    except (OSError, HTTPException) as error:
        return Control(name, "/metrics", at, None, "", f"{type(error).__name__}: {error}")
    finally:
        connection.close()
