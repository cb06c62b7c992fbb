"""Control requests (health, models, version, metrics): httpx, literal addresses, explicit timeouts, never a proxy."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from harness.launch.server import Endpoint
from harness.wire.capture import Control

MAX_BODY = 16 * 1024 * 1024
"""Bytes kept of a control answer"""

PATHS = {
    "health": "/health",
    "models": "/v1/models",
    "version": "/version",
    "server-info": "/server_info?config_format=json",
}

SLOW_S = {"server-info": 60.0}
"""vLLM lists its packages and devices for it, which takes seconds on a busy host"""


class ControlClient:
    """Asks one server; every answer goes to ``record`` when given. Never raises for what a server does."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        record: Callable[[Control], None] | None = None,
        timeout_s: float = 10.0,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._client = httpx.Client(
            base_url=endpoint.url, timeout=timeout_s, trust_env=False, follow_redirects=False, headers=headers
        )
        self._record = record
        self._timeout_s = timeout_s

    def get(self, name: str, path: str | None = None, *, keep: bool = True) -> Control:
        """GET, under the name that the capture will know it by; ``keep=False`` for polls that failed."""
        path = PATHS[name] if path is None else path
        at = time.time_ns()
        try:
            with self._client.stream("GET", path, timeout=SLOW_S.get(name, self._timeout_s)) as response:
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MAX_BODY:
                        break
                text = bytes(body[:MAX_BODY]).decode("utf-8", "replace")
                control = Control(name, path, at, response.status_code, text)
        except httpx.HTTPError as error:
            control = Control(name, path, at, None, "", f"{type(error).__name__}: {error}")
        if keep and self._record is not None:
            self._record(control)
        return control

    def post(self, name: str, path: str, body: Mapping[str, Any]) -> Control:
        """POST a JSON body, under the name that the capture will know the answer by."""
        at = time.time_ns()
        try:
            response = self._client.post(path, json=body)
            control = Control(name, path, at, response.status_code, response.text[:MAX_BODY])
        except httpx.HTTPError as error:
            control = Control(name, path, at, None, "", f"{type(error).__name__}: {error}")
        if self._record is not None:
            self._record(control)
        return control

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()
