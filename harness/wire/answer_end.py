"""Guess, cheaply and while bytes arrive, that an answer may have ended although the server keeps the socket open.

Nothing is parsed in the hot path. The guess only starts a short grace period; a wrong guess is taken back by the next
byte, and the verdict on completeness is the offline parser's alone.
"""

import re

TAIL = 256
"""Bytes kept from earlier reads: a [DONE] line that arrives one byte per HTTP chunk fits"""

HEAD_LIMIT = 64 * 1024

_DONE = re.compile(rb"[\r\n]data: ?\[DONE\][\r\n]")
_CHUNK_FRAME = re.compile(rb"\r\n[0-9A-Fa-f]{1,8}(?:;[^\r\n]*)?\r\n|\r(?:\n[0-9A-Fa-f]{0,8}(?:;[^\r\n]*)?\r?)?\Z")
"""Between two chunks, or begun at the end of a read: its line end isn't one of the data"""
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1\d\d\b")
_CHUNKED = re.compile(rb"\ntransfer-encoding:", re.IGNORECASE)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d+)[ \t]*\r?\n", re.IGNORECASE)
_USUAL = (b"}\n\n\r\n", b"}\n\n", b"}\r\n\r\n")
_START = b"\n\r\n"
"""What a body follows: the end of a line for [DONE], the end of the head for a first chunk"""


class AnswerEnd:
    """``feed`` every read of one connection; true means the answer may be over. ``framed`` is false for a body that
    comes without HTTP framing."""

    __slots__ = ("_chunked", "_head", "_left", "_tail")

    def __init__(self, *, framed: bool = True) -> None:
        self._head: bytes | None = b"" if framed else None
        self._left: int | None = None
        self._chunked = False
        self._tail = _START

    def feed(self, data: bytes) -> bool:
        """Whether the answer may have ended with this read."""
        if self._head is not None:
            return self._feed_head(data)
        if self._left is not None:
            self._left -= len(data)
            return self._left <= 0
        if data.endswith(_USUAL):
            self._tail = data[-TAIL:]
            return False
        tail = self._tail = (self._tail + data)[-TAIL:]
        if self._chunked:
            if tail.endswith(_LAST_CHUNK):
                return True
            if b"]" in tail:
                tail = _CHUNK_FRAME.sub(b"", tail)
        return b"]" in tail and _DONE.search(tail) is not None

    def _feed_head(self, data: bytes) -> bool:
        head = (self._head or b"") + data
        end = _HEAD_END.search(head)
        while end is not None and _INTERIM.match(head):
            head = head[end.end() :]
            end = _HEAD_END.search(head)
        if end is None:
            # A head that never ends is left to the timeouts; its bytes are captured either way.
            self._head = head if len(head) < HEAD_LIMIT else None
            return False
        self._head = None
        lines = head[: end.end()]
        self._chunked = _CHUNKED.search(lines) is not None
        length = None if self._chunked else _LENGTH.search(lines)
        if length is not None:
            self._left = int(length[1]) if len(length[1]) < 16 else None
        rest = head[end.end() :]
        return self.feed(rest) if rest or self._left == 0 else False
