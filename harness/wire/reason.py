"""Why a row is invalid, and which reason is given when several apply."""

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


PRECEDENCE: tuple[Reason, ...] = (
    # 1. the wire failed before the answer had ended
    Reason.CONNECT_FAILED,
    Reason.CONNECT_TIMEOUT,
    Reason.SEND_FAILED,
    Reason.FIRST_BYTE_TIMEOUT,
    Reason.IDLE_TIMEOUT,
    Reason.TOTAL_TIMEOUT,
    Reason.RESET,
    Reason.INTERRUPTED,
    # 2. not the kind of answer that was asked for
    Reason.BAD_HTTP,
    Reason.HTTP_STATUS,
    Reason.NOT_EVENT_STREAM,
    Reason.CONTENT_ENCODING,
    # 3. the server says itself that it failed
    Reason.ERROR_EVENT,
    # 4. unreadable events
    Reason.LINE_TOO_LONG,
    Reason.BAD_UTF8,
    Reason.BAD_JSON,
    Reason.BAD_EVENT,
    # 5. readable, but not one answer
    Reason.MANY_CHOICES,
    Reason.MANY_STREAM_IDS,
    Reason.AFTER_DONE,
    # 6. it broke off
    Reason.TRUNCATED_BODY,
    Reason.STREAM_CUT,
    # 7. it ended, without what a row needs
    Reason.NO_TOKENS,
    Reason.IDS_MISSING,
    Reason.FINISH_MISSING,
    Reason.FINISH_UNEXPECTED,
    Reason.DONE_MISSING,
    Reason.USAGE_MISSING,
    Reason.USAGE_CONFLICT,
    Reason.USAGE_IDS_MISMATCH,
    # 8. a whole answer, with times that can't be trusted
    Reason.CLOCK_STEP,
)
"""Every reason, in the order in which it is chosen when several apply: the first explains those behind it."""
