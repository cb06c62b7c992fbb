"""Sentences as they may enter evidence: without the host's paths, users and secrets."""

import re
from collections.abc import Mapping

from harness.launch.redact import Redactor

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


def _shown(found: re.Match[str]) -> str:
    name = found.group(1).rstrip(".")
    return f"<path>/{name}" if _FILE.fullmatch(name) else "<path>"
