"""A captured exchange → a :class:`Completion`: ids, times, usage, and either *complete* or exactly one reason.

Pure: any bytes whatever give a value, never an exception. Rules: contract section 3.
"""

from dataclasses import dataclass

from harness.wire.chunks import MAX_WORDS, Stream, Usage, sound
from harness.wire.exchange import Ending, Exchange
from harness.wire.http import HttpResponse, decode_response
from harness.wire.reason import PRECEDENCE, Reason
from harness.wire.sse import BadUtf8, SseDecoder, SseError

__all__ = ["PRECEDENCE", "Completion", "Reason", "Usage", "clock_fault", "parse_completion"]


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


_ENDINGS = {
    Ending.RESET: Reason.RESET,
    Ending.CONNECT_FAILED: Reason.CONNECT_FAILED,
    Ending.CONNECT_TIMEOUT: Reason.CONNECT_TIMEOUT,
    Ending.SEND_FAILED: Reason.SEND_FAILED,
    Ending.FIRST_BYTE_TIMEOUT: Reason.FIRST_BYTE_TIMEOUT,
    Ending.IDLE_TIMEOUT: Reason.IDLE_TIMEOUT,
    Ending.TOTAL_TIMEOUT: Reason.TOTAL_TIMEOUT,
    Ending.INTERRUPTED: Reason.INTERRUPTED,
}


CLOCK_STEP_LIMIT_NS = 500_000
"""Contract section 6"""


def parse_completion(exchange: Exchange, *, clock_step_limit_ns: int = CLOCK_STEP_LIMIT_NS) -> Completion:
    """What ``exchange`` says: complete, or exactly one reason, the first of :data:`PRECEDENCE` that applies.

    What came before a fault (ids, text, usage) is always kept. ``clock_step_limit_ns``: contract section 6.
    """
    response = decode_response(exchange)
    stream = Stream()
    _judge_http(response, stream)

    decoder = SseDecoder()
    try:
        for at_ns, piece in response.body:
            for event in decoder.feed(piece, at_ns):
                stream.take(event)
    except SseError as error:
        for event in error.events:
            stream.take(event)
        stream.fault(Reason.BAD_UTF8 if isinstance(error, BadUtf8) else Reason.LINE_TOO_LONG, str(error))
    rest = decoder.finish()
    if stream.done and (rest.stray or response.trailing):
        stream.fault(Reason.AFTER_DONE, "bytes came after [DONE]")

    _judge_ending(exchange, response, stream)
    stream.judge()
    if stepped := clock_fault(exchange, clock_step_limit_ns):
        stream.fault(Reason.CLOCK_STEP, stepped)

    reason = next((reason for reason in PRECEDENCE if reason in stream.faults), None)
    detail = stream.faults[reason] if reason else ""
    told = stream.faults.get(Reason.ERROR_EVENT)
    if told and reason is not Reason.ERROR_EVENT:
        detail = f"{detail}; {told}"
    return Completion(
        reason=reason,
        detail=detail,
        status=response.status,
        stream_id=stream.stream_id,
        token_ids=tuple(stream.ids),
        chunk_ns=tuple(stream.chunk_ns),
        chunk_sizes=tuple(stream.chunk_sizes),
        prompt_token_ids=stream.prompt_ids,
        text=sound("".join(stream.texts)),
        usage=stream.usage,
        finish_reason=stream.finish,
        first_byte_ns=exchange.at_ns[0] if exchange.data and exchange.at_ns else None,
        first_event_ns=stream.first_event_ns,
        end_ns=max(exchange.at_ns, default=exchange.end_ns),
        notes=tuple(stream.notes()),
    )


def clock_fault(exchange: Exchange, limit_ns: int = CLOCK_STEP_LIMIT_NS) -> str | None:
    """How the wall clock was set during the request, also where it was set back before the end; None for an honest one.

    The arrivals are by that clock, so what it can't have measured shows the step: a read that returned before its bytes
    came, one whose bytes came before the request, or one that returned before the read before it did. Arrivals alone
    may go back: what came after a lost segment keeps its time, and is read after the segment that was sent again.
    """
    step_ns = exchange.clock_step_ns
    if abs(step_ns) > limit_ns:
        return f"the wall clock moved by {step_ns / 1e6:.3f} ms against the monotonic clock"
    returned_ns = 0
    for at_ns, user_ns in zip(exchange.at_ns, exchange.user_ns, strict=True):
        if at_ns - user_ns > limit_ns:
            return f"a read returned {(at_ns - user_ns) / 1e6:.3f} ms before its bytes came, by the wall clock"
        back_ns = max(-at_ns, returned_ns - user_ns)
        if back_ns > limit_ns:
            return f"a read came {back_ns / 1e6:.3f} ms before what was before it, by the wall clock"
        returned_ns = user_ns
    return None


def _judge_http(response: HttpResponse, stream: Stream) -> None:
    if response.error:
        stream.fault(Reason.BAD_HTTP, f"the answer isn't HTTP/1.1: {response.error}")
    if response.status is None:
        return
    if response.status != 200:
        stream.fault(Reason.HTTP_STATUS, f"HTTP {response.status}: {_body_words(response)}")
    types = response.values("content-type")
    if not types or not all(_is_event_stream(value) for value in types):
        said = ", ".join(types) or "absent"
        stream.fault(Reason.NOT_EVENT_STREAM, f"Content-Type is {said}, not text/event-stream in UTF-8")
    codings = [coding.strip().lower() for value in response.values("content-encoding") for coding in value.split(",")]
    if any(coding not in ("", "identity") for coding in codings):
        stream.fault(Reason.CONTENT_ENCODING, f"Content-Encoding is {', '.join(codings)}, which wasn't asked for")


def _judge_ending(exchange: Exchange, response: HttpResponse, stream: Stream) -> None:
    so_far = f"after {len(exchange.data)} bytes and {len(stream.ids)} token ids"
    failed = _ENDINGS.get(exchange.ending)
    if exchange.ending is Ending.DONE:
        stream.observed.append("left-open: the server kept the connection open after the answer had ended")
    if response.complete:
        if failed:
            stream.observed.append(f"late-ending: {failed.value} came after the answer had ended")
        if not stream.done and stream.finish is None:
            stream.fault(Reason.STREAM_CUT, f"the stream ended {so_far}, with neither finish_reason nor [DONE]")
    elif failed:
        said = f": {exchange.detail}" if exchange.detail else ""
        stream.fault(failed, f"{failed.value} {so_far}{said}")
    elif not (stream.done and exchange.ending is Ending.DONE):
        # after [DONE] on a connection that stays open, we leave without waiting for the last chunk (hostile case 30)
        stream.fault(Reason.TRUNCATED_BODY, f"the HTTP body broke off {so_far}")


def _is_event_stream(content_type: str) -> bool:
    media, *parameters = content_type.split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            return False
    return media.strip().lower() == "text/event-stream"


def _body_words(response: HttpResponse) -> str:
    head = bytearray()
    for _, piece in response.body:
        head += piece[: 4 * MAX_WORDS]
        if len(head) > 4 * MAX_WORDS:
            break
    return head.decode(errors="backslashreplace") or "no body"
