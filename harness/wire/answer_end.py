"""Guess, cheaply and while bytes arrive, that an answer may have ended although the server keeps the socket open.

Nothing is parsed in the hot path. The guess only starts a short grace period; a wrong guess is taken back by the next
byte, and the verdict on completeness is the offline parser's alone.
"""

import re

TAIL = 256
"""Bytes kept from earlier reads: a [DONE] line that arrives one byte per HTTP chunk fits"""

HEAD_LIMIT = 64 * 1024

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\](?:\r\n|\r|\n)")
_CHUNK_FRAME = re.compile(rb"\r\n[0-9A-Fa-f]{1,8}(?:;[^\r\n]*)?\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_USUAL = (b"}\n\n\r\n", b"}\n\n", b"}\r\n\r\n")


class AnswerEnd:
    """``feed`` every read of one connection; true means the answer may be over."""

    __slots__ = ("_head", "_left", "_tail")

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._left: int | None = None
        self._tail = b""

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
        self._tail = (self._tail + data)[-TAIL:]
        if self._tail.endswith(b"0\r\n\r\n"):
            return True
        return b"]" in self._tail and _DONE.search(_CHUNK_FRAME.sub(b"", self._tail)) is not None

    def _feed_head(self, data: bytes) -> bool:
        head = (self._head or b"") + data
        end = head.find(b"\r\n\r\n")
        if end < 0:
            # A head that never ends is left to the timeouts; its bytes are captured either way.
            self._head = head if len(head) < HEAD_LIMIT else None
            return False
        self._head = None
        length = _LENGTH.search(head[: end + 2])
        if length is not None:
            self._left = int(length[1]) if len(length[1]) < 16 else None
        rest = head[end + 4 :]
        return self.feed(rest) if rest or self._left == 0 else False
