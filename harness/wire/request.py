"""The bytes of a request, and which secret headers may go into one."""

import re
from collections.abc import Sequence

from harness.errors import UsageError

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def http_request(
    path: str, body: bytes, *, host: str, port: int, request_id: str | None = None, accept: str = "text/event-stream"
) -> bytes:
    """The bytes of one POST over a connection of its own (``Connection: close``)."""
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: [{host}]:{port}" if ":" in host else f"Host: {host}:{port}",
        "User-Agent: b70-bench",
        f"Accept: {accept}",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"X-Request-Id: {request_id}"] if request_id else []),
    ]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def sendable_headers(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Secret headers, checked. Raises UsageError, whose sentence holds neither a name nor a value."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or not value.isascii() or not value.isprintable() or value != value.strip():
            raise UsageError(
                "a secret header can't be sent: its name must be a header name and its value one line of printable "
                "ASCII without spaces around it; check where it is set"
            )
    return list(headers)
