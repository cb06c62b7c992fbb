"""Bytes → server-sent events, by the WHATWG rules for ``text/event-stream``.

Pure: the caller brings the bytes and their times. Any cut of the same bytes into reads gives the same events; only
their times follow the cut.
"""

from typing import NamedTuple

MAX_BYTES = 2 * 1024 * 1024
"""Longest line, and longest event, that is accepted, in bytes: 262,144 prompt ids of six digits take 1.8 million"""
MAX_PIECES = 6 * 1024 * 1024
"""Memory for the lines of one event that has several, which are joined once more; a line may take four bytes a
character. With it no line or event costs 16 MB, whatever it holds"""

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One dispatched event: ``at_ns`` is the time of the read that brought the byte which ended it."""

    at_ns: int
    kind: str
    """the ``event`` field, ``message`` when there was none"""
    data: str
    """the data lines joined by a line feed"""


class SseError(Exception):
    """The stream can't be read on. ``events`` are those that the same read brought before the fault."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.events: list[Event] = []


class BadUtf8(SseError):  # noqa: N818 - named like its Reason
    """A line that isn't UTF-8."""


class LineTooLong(SseError):  # noqa: N818 - named like its Reason
    """A line, or the data lines of one event, above the limit."""


class Rest(NamedTuple):
    """What stood after the last dispatched event."""

    unfinished: bool
    """an event without its blank line, or a line without its end: not dispatched"""
    stray: bool
    """anything but white space, comments and fields without data included"""


class SseDecoder:
    """Reads one stream. Time is linear in the bytes, memory is bounded by ``max_bytes`` plus one read."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._started = False
        self._after_cr = False
        self._partial = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._held = 0
        self._kind = ""
        self._stray = False
        self._error: SseError | None = None

    def feed(self, data: bytes, at_ns: int) -> list[Event]:
        """The events that ``data``, arrived at ``at_ns``, ended. Raises :class:`SseError`, and from then on always."""
        if self._error is not None:
            self._error.events = []
            raise self._error
        if not self._started:
            data = self._drop_bom(data)
        if self._after_cr and data:
            # the line ended at the CR of the read before; this LF is the second half of the same line end
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial.clear()
        events: list[Event] = []
        try:
            for line in lines:
                if line:
                    self._take(line)
                    continue
                if self._data:
                    events.append(Event(at_ns, self._kind or "message", "\n".join(self._data)))
                    self._data.clear()
                    self._size = self._held = 0
                    self._stray = False
                self._kind = ""
            self._partial += rest
            if len(self._partial) > self._max:
                raise LineTooLong(f"a line is longer than {self._max} bytes")
        except SseError as error:
            error.events = events
            self._error = error
            raise
        return events

    def finish(self) -> Rest:
        """What remained: by the rules an event without its blank line is dropped, never dispatched."""
        unfinished = bool(self._data or self._partial)
        stray = bool(self._stray or self._data or self._partial.strip(b" \t"))
        return Rest(unfinished, stray)

    def _drop_bom(self, data: bytes) -> bytes:
        self._partial += data
        if len(self._partial) < len(_BOM) and _BOM.startswith(self._partial):
            return b""
        self._started = True
        head = bytes(self._partial).removeprefix(_BOM)
        self._partial.clear()
        return head

    def _take(self, line: bytes) -> None:
        """One line that isn't blank."""
        if len(line) > self._max:
            raise LineTooLong(f"a line is longer than {self._max} bytes")
        # Cut as bytes: a second copy of the characters could be four times as large.
        name, _, field = line.partition(b":")
        field = field.removeprefix(b" ")
        at = 0
        try:
            name.decode()
            at = len(line) - len(field)
            value = field.decode()
        except UnicodeDecodeError as error:
            raise BadUtf8(f"a line isn't UTF-8: {error.reason} at its byte {at + error.start}") from None
        if name != b"data":
            # comments, id and retry say nothing about the answer; they only may not follow [DONE]
            self._stray = self._stray or bool(line.strip(b" \t"))
            if name == b"event":
                self._kind = value
            return
        self._size += len(line)
        if self._size > self._max:
            raise LineTooLong(f"the data lines of one event are longer than {self._max} bytes")
        self._held += value.__sizeof__()
        if self._data and self._held > MAX_PIECES:
            raise LineTooLong(f"the data lines of one event take more than {MAX_PIECES} bytes of memory")
        self._data.append(value)
