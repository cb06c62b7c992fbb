"""What reaches a terminal: every text of evidence passes ``printable``, whoever prints it.

A terminal obeys what it is sent: an escape sequence in a campaign's name could clear the screen, rewrite the line that
says *does not verify*, or put text into the clipboard, and a bidirectional mark can turn a number round. ``guard``
puts one filter before standard output and error, so that no command can forget it.
"""

import codecs
import io
import os
import sys
import unicodedata
from typing import Any

from harness.hidden import masked
from harness.redact import hide_environment

KEPT = "\n\t\u200c\u200d"
"""Two of layout, and the joiners that some scripts and emoji are written with"""


def printable(text: str) -> str:
    """``text`` with every character that isn't shown as itself as ``\\uXXXX``, which inside JSON means the same."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(char if _is_shown(char) else _escaped(char) for char in text)


def one_line(text: str) -> str:
    """``printable`` without line breaks: what stands in a sentence can't begin a line of its own."""
    return printable(text).replace("\n", "\\u000a").replace("\t", "\\u0009")


def _is_shown(char: str) -> bool:
    return char.isprintable() or char in KEPT or unicodedata.category(char) == "Zs"


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


class Guarded(io.TextIOWrapper):
    """A text stream that writes what is printable, without the secrets that this process knows."""

    def write(self, text: str, /) -> int:
        """Write ``text``, made printable; the number of characters of it."""
        super().write(printable(masked(text)))
        return len(text)

    def write_styled(self, text: str) -> int:
        """Write as it is: for a console that cleaned its content and adds colours of its own."""
        return super().write(text)


class Styled:
    """The stream of ``harness.console.console``: its own colours pass, its content was cleaned before."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write to the stream, around its filter where it has one."""
        write = getattr(self._stream, "write_styled", self._stream.write)
        return int(write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard() -> None:
    """Put the filter before standard output and error, once; it knows the secrets of this process's environment."""
    hide_environment(os.environ)
    sys.stdout = _guarded(sys.stdout)
    sys.stderr = _guarded(sys.stderr)


def _guarded(stream: Any) -> Any:
    if type(stream) is not io.TextIOWrapper:
        return stream  # guarded already, closed, or replaced by whoever runs a command inside his own process
    encoding = codecs.lookup(stream.encoding).name
    line, through = stream.line_buffering, stream.write_through
    stream.flush()
    # An ASCII stream would be replaced by the command line library, and the filter with it.
    return Guarded(
        stream.detach(),
        encoding="utf-8" if encoding == "ascii" else encoding,
        errors="backslashreplace",
        line_buffering=line,
        write_through=through,
    )
