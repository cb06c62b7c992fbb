"""Exchanges made from bytes: what a server could have sent, cut and timed as a test wants it."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from harness.wire.completion import Completion, parse_completion
from harness.wire.exchange import Ending, Exchange

DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"


def event(value: Any) -> bytes:
    """One SSE event with ``value`` as JSON, characters kept raw."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(
    ids: Sequence[int] | None = None,
    text: str = "",
    *,
    finish: str | None = None,
    usage: dict[str, Any] | None = None,
    stream_id: str = "cmpl-1",
    prompt_ids: Sequence[int] | None = None,
) -> bytes:
    """One completion chunk in the shape of vLLM."""
    choice = {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "prompt_token_ids": None if prompt_ids is None else list(prompt_ids),
        "token_ids": None if ids is None else list(ids),
    }
    value = {"id": stream_id, "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    return event(value if usage is None else {**value, "usage": usage})


def counts(completion: int, prompt: int = 3, cached: Any = 0) -> dict[str, Any]:
    """A usage object."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def usage(completion: int, prompt: int = 3, cached: Any = 0) -> bytes:
    """The final chunk: usage alone, ``choices: []``."""
    return event(
        {"id": "cmpl-1", "object": "text_completion", "choices": [], "usage": counts(completion, prompt, cached)}
    )


def answer(*pieces: bytes, n: int) -> list[bytes]:
    """``pieces`` (chunks with ``n`` ids in all, finish_reason in the last) and the ending that vLLM gives them."""
    return [*pieces, usage(n), DONE]


def chunked(pieces: Sequence[bytes], *, head: bytes = HEAD, last: bool = True) -> list[bytes]:
    """An HTTP answer in writes: the headers, one HTTP chunk for each piece, the last chunk."""
    writes = [head + b"transfer-encoding: chunked\r\n\r\n"]
    writes += [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece]
    return [*writes, b"0\r\n\r\n"] if last else writes


def sized(body: bytes, *, head: bytes = HEAD, length: int | None = None) -> list[bytes]:
    """An HTTP answer with a Content-Length, ``length`` when it should lie."""
    return [head + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length), body]


def until_close(pieces: Sequence[bytes], *, head: bytes = HEAD) -> list[bytes]:
    """An HTTP answer whose end is the end of file."""
    return [head + b"connection: close\r\n\r\n", *pieces]


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """``data`` in reads that end at ``places``; places outside of it or named twice don't matter."""
    bounds = [0, *sorted({place for place in places if 0 < place < len(data)}), len(data)]
    return [data[start:stop] for start, stop in pairwise(bounds) if stop > start]


def exchange(
    reads: Sequence[bytes],
    *,
    at_ms: Sequence[float] | None = None,
    ending: Ending = Ending.CLOSED,
    detail: str = "",
    shift_ns: int = 0,
    clock_step_ns: int = 0,
    framing: str = "http",
    status: int | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> Exchange:
    """An exchange whose reads are ``reads``, at ``at_ms`` milliseconds (else 10 ms apart, from 10)."""
    times = [10.0 * (place + 1) for place in range(len(reads))] if at_ms is None else at_ms
    at_ns = [round(ms * 1e6) + shift_ns for ms in times]
    assert len(at_ns) == len(reads)
    end_ns = (at_ns[-1] if at_ns else shift_ns) + 1_000_000
    return Exchange(
        request=b"POST /v1/completions HTTP/1.1\r\n\r\n",
        t0_wall_ns=1_700_000_000_000_000_000,
        t0_mono_ns=5_000_000_000,
        ending=ending,
        detail=detail,
        data=b"".join(reads),
        sizes=[len(read) for read in reads],
        at_ns=at_ns,
        user_ns=[at + 20_000 for at in at_ns],
        kernel=[True] * len(reads),
        end_ns=end_ns,
        end_wall_ns=1_700_000_000_000_000_000 + end_ns + clock_step_ns,
        end_mono_ns=5_000_000_000 + end_ns,
        framing=framing,
        status=status,
        headers=list(headers),
    )


GOOD = answer(chunk([5], "a", prompt_ids=[1, 2, 3]), chunk([6, 7], "b c"), chunk([8], "", finish="stop"), n=4)
"""A whole answer of four ids in three chunks."""
GOOD_TEXT = "ab c"
ERROR = event({"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}})


def parse(pieces: Sequence[bytes], **options: Any) -> Completion:
    """The completion of SSE ``pieces``, each an HTTP chunk in a read of its own."""
    return parse_completion(exchange(chunked(pieces), **options))


def replaced(place: int, piece: bytes) -> list[bytes]:
    """GOOD with another piece at ``place``."""
    return [*GOOD[:place], piece, *GOOD[place + 1 :]]


def inserted(place: int, piece: bytes) -> list[bytes]:
    """GOOD with one more piece before ``place``."""
    return [*GOOD[:place], piece, *GOOD[place:]]


def page(status: str, kind: str, body: bytes, *extra: str) -> list[bytes]:
    """An HTTP answer of any status and type."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", *extra]
    return sized(body, head="".join(f"{line}\r\n" for line in lines).encode())


def named(completion: Completion, name: str) -> bool:
    """Whether the completion has a note of that name."""
    return any(note.startswith(f"{name}: ") for note in completion.notes)
