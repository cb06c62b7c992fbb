"""Rows and suites for tests, built the way a campaign builds them: Completion and Exchange through ``build_row``."""

import hashlib
from collections.abc import Sequence
from typing import Any

from harness.measure.rows import Row, build_row
from harness.wire.completion import Completion, Reason, Usage
from harness.wire.exchange import Ending, Exchange

SUITE = [
    (f"prompt-{number:02d}", cls, hashlib.sha256(f"prompt {number}".encode()).hexdigest())
    for number, cls in enumerate(
        ["operations"] * 3
        + ["analysis"] * 3
        + ["code"] * 2
        + ["prose"] * 2
        + ["documentation"]
        + ["structured-writing"]
    )
]
"""Twelve (id, class, sha256) in six classes, as in contract section 3."""


def make_ids(seed: int, count: int) -> list[int]:
    """Ids that aren't degenerate and differ between seeds."""
    return [1000 + (seed * 7919 + place * 31) % 5003 for place in range(count)]


def make_exchange(
    *, at_ns: Sequence[int] = (), lag_ns: int = 20_000, kernel: bool = True, clock_step_ns: int = 0, **changes: Any
) -> Exchange:
    """One read per time in ``at_ns``, each returned ``lag_ns`` after it."""
    end_ns = (at_ns[-1] if at_ns else 0) + lag_ns
    wall, mono = 1_700_000_000_000_000_000, 5_000_000_000
    fields: dict[str, Any] = {
        "request": b"",
        "t0_wall_ns": wall,
        "t0_mono_ns": mono,
        "ending": Ending.CLOSED,
        "data": b"x" * len(at_ns),
        "sizes": [1] * len(at_ns),
        "at_ns": list(at_ns),
        "user_ns": [ns + lag_ns for ns in at_ns],
        "kernel": [kernel] * len(at_ns),
        "end_ns": end_ns,
        "end_wall_ns": wall + end_ns + clock_step_ns,
        "end_mono_ns": mono + end_ns,
    }
    return Exchange(**(fields | changes))


def make_completion(
    *,
    token_ids: Sequence[int],
    chunk_ns: Sequence[int],
    chunk_sizes: Sequence[int],
    reason: Reason | None = None,
    **changes: Any,
) -> Completion:
    """A complete answer, or with ``reason`` an incomplete one."""
    first_ns = chunk_ns[0] if chunk_ns else None
    fields: dict[str, Any] = {
        "reason": reason,
        "detail": "" if reason is None else f"the row is invalid as {reason.value}",
        "status": 200,
        "stream_id": "cmpl-0",
        "token_ids": tuple(token_ids),
        "chunk_ns": tuple(chunk_ns),
        "chunk_sizes": tuple(chunk_sizes),
        "prompt_token_ids": (1, 2, 3),
        "text": "text",
        "usage": Usage(prompt_tokens=3, completion_tokens=len(token_ids), cached_tokens=0),
        "finish_reason": "stop",
        "first_byte_ns": first_ns,
        "first_event_ns": first_ns,
        "end_ns": (chunk_ns[-1] if chunk_ns else 0) + 100_000,
    }
    return Completion(**(fields | changes))


def split_sizes(count: int, sizes: Sequence[int]) -> list[int]:
    """``sizes`` repeated until they hold exactly ``count``."""
    taken: list[int] = []
    while (left := count - sum(taken)) > 0:
        taken.append(min(sizes[len(taken) % len(sizes)], left))
    return taken


def make_row(
    index: int = 0,
    *,
    token_ids: Sequence[int] | None = None,
    count: int = 128,
    sizes: Sequence[int] = (1,),
    first_ns: int = 50_000_000,
    step_ns: int = 10_000_000,
    reason: Reason | None = None,
    lag_ns: int = 20_000,
    kernel: bool = True,
    clock_step_ns: int = 0,
    completion: dict[str, Any] | None = None,
    **changes: Any,
) -> Row:
    """The row of prompt ``index`` of :data:`SUITE`: ``count`` ids in chunks of ``sizes`` (repeated), one every
    ``step_ns``, first at ``first_ns``. ``completion`` changes fields of the Completion; every other keyword sets a
    field of the finished Row (validated again)."""
    prompt_id, prompt_class, sha256 = SUITE[index % len(SUITE)]
    ids = list(token_ids) if token_ids is not None else make_ids(index, count)
    chunk_sizes = split_sizes(len(ids), sizes)
    chunk_ns = [first_ns + step_ns * number for number in range(len(chunk_sizes))]
    answer: dict[str, Any] = {
        "token_ids": ids,
        "chunk_ns": chunk_ns,
        "chunk_sizes": chunk_sizes,
        "reason": reason,
        "stream_id": f"cmpl-{index}",
        "prompt_token_ids": (10 + index, 2, 3),
        "finish_reason": "length" if len(ids) == 512 else "stop",
    }
    row = build_row(
        index=index,
        prompt_id=prompt_id,
        prompt_class=prompt_class,
        prompt_sha256=sha256,
        request_id=f"bench-test-{index:02d}-{prompt_id}",
        completion=make_completion(**(answer | (completion or {}))),
        exchange=make_exchange(at_ns=chunk_ns, lag_ns=lag_ns, kernel=kernel, clock_step_ns=clock_step_ns),
    )
    return Row.model_validate(row.model_dump() | changes)


def make_rows(**changes: Any) -> list[Row]:
    """A good attempt: the twelve rows of :data:`SUITE`."""
    return [make_row(index, **changes) for index in range(len(SUITE))]


def replace_row(rows: Sequence[Row], index: int, /, **changes: Any) -> list[Row]:
    """The rows with fields of row ``index`` set."""
    changed = Row.model_validate(rows[index].model_dump() | changes)
    return [changed if at == index else row for at, row in enumerate(rows)]
