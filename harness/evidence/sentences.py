"""Sentences as they may enter evidence: without the host's paths, users and secrets."""

import json
import re
from collections.abc import Mapping

from harness.redact import Redactor

_INNER = ("v1/", "dev/", "sys/", "proc/", "model/", "cache/")
"""URL paths, kernel paths, and places inside a container: the same on every host"""
_PATH = re.compile(
    r"(?<![\w.<>/:\-])/(?!"
    + "|".join(map(re.escape, _INNER))
    + r")(?:[^\s/:;,\"'<>|=()\[\]]+/)+([^\s/:;,\"'<>|=()\[\]]*)"
)
_FILE = re.compile(r"[\w\-]+\.[A-Za-z]\w{0,5}")


def without_paths(text: str, roles: Mapping[str, str]) -> str:
    """Known paths by role, every other absolute path as ``<path>``, with the name of a file kept (``<path>/core.py``).

    ``roles`` maps absolute paths to roles, e.g. ``<campaign>``.
    """
    return _PATH.sub(_shown, Redactor(roles).text(text))


def answer_without_paths(body: str, roles: Mapping[str, str]) -> str:
    """A control answer (JSON, or text such as /metrics) as it may be kept: a server tells its model's path."""
    redactor = Redactor(roles)
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return redactor.text(body)
    reduced = redactor.tree(answer)
    return body if reduced == answer else json.dumps(reduced, ensure_ascii=False)


def log_without_paths(log: bytes, roles: Mapping[str, str], *, generic: bool = True) -> bytes:
    """A server's log with known paths by role; every other byte stays, UTF-8 or not.

    ``generic``: also what lies below /home, /root and so on, which inside a container is nobody's.
    """
    as_bytes = {path.encode("utf-8", "surrogateescape").decode("latin-1"): role for path, role in roles.items()}
    redactor, text = Redactor(as_bytes), log.decode("latin-1")
    return (redactor.text(text) if generic else redactor.known(text)).encode("latin-1")


def _shown(found: re.Match[str]) -> str:
    name = found.group(1).rstrip(".")
    return f"<path>/{name}" if _FILE.fullmatch(name) else "<path>"
