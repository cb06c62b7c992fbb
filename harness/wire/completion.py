"""A captured exchange → a :class:`Completion`: ids, times, usage, and either *complete* or exactly one reason."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a row is invalid (contract section 3). A completion that isn't complete has exactly one."""

    CONNECT_FAILED = "connect-failed"
    CONNECT_TIMEOUT = "connect-timeout"
    SEND_FAILED = "send-failed"
    FIRST_BYTE_TIMEOUT = "first-byte-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    TOTAL_TIMEOUT = "total-timeout"
    RESET = "connection-reset"
    INTERRUPTED = "interrupted"
    CLOCK_STEP = "clock-step"
    """wall and monotonic clocks drifted apart by more than 0.5 ms during the request (contract section 6)"""
    BAD_HTTP = "bad-http"
    HTTP_STATUS = "http-status"
    NOT_EVENT_STREAM = "not-event-stream"
    CONTENT_ENCODING = "content-encoding"
    TRUNCATED_BODY = "truncated-body"
    """the HTTP body ended before its Content-Length or its last chunk"""
    LINE_TOO_LONG = "line-too-long"
    BAD_UTF8 = "bad-utf8"
    BAD_JSON = "bad-json"
    BAD_EVENT = "bad-event"
    """valid JSON of another shape than a completion chunk"""
    ERROR_EVENT = "error-event"
    MANY_STREAM_IDS = "many-stream-ids"
    MANY_CHOICES = "many-choices"
    AFTER_DONE = "after-done"
    NO_TOKENS = "no-tokens"
    IDS_MISSING = "ids-missing"
    """text came but token_ids was null or absent"""
    STREAM_CUT = "stream-cut"
    """end of file in mid-stream: neither finish_reason nor [DONE]"""
    FINISH_MISSING = "finish-missing"
    """[DONE] without any finish_reason"""
    FINISH_UNEXPECTED = "finish-unexpected"
    """a finish_reason other than stop or length, or two different ones"""
    DONE_MISSING = "done-missing"
    """finish_reason came, [DONE] didn't"""
    USAGE_MISSING = "usage-missing"
    USAGE_CONFLICT = "usage-conflict"
    """two final usage objects that disagree"""
    USAGE_IDS_MISMATCH = "usage-ids-mismatch"
    """len(token_ids) != usage.completion_tokens"""


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's own count. ``cached_tokens`` is None when the server didn't say (which is never read as 0)."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


@dataclass(frozen=True, slots=True)
class Completion:
    """What one streamed answer says. Times are nanoseconds after t0; chunk ``i`` brought ``chunk_sizes[i]`` ids
    (≥ 1; chunks without ids aren't listed) at ``chunk_ns[i]``, the arrival of the last byte of its event."""

    reason: Reason | None
    detail: str
    """one sentence for the reason, empty when complete"""
    status: int | None
    stream_id: str | None
    token_ids: tuple[int, ...]
    chunk_ns: tuple[int, ...]
    chunk_sizes: tuple[int, ...]
    prompt_token_ids: tuple[int, ...] | None
    text: str
    usage: Usage | None
    finish_reason: str | None
    first_byte_ns: int | None
    """first byte of the HTTP answer"""
    first_event_ns: int | None
    """first SSE event, with or without ids"""
    end_ns: int
    """arrival of the last byte"""
    notes: tuple[str, ...] = ()
    """named observations that leave the row valid, each ``name: sentence``"""

    @property
    def complete(self) -> bool:
        """Whether the row may enter a median (contract section 3)."""
        return self.reason is None
