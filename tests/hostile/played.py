"""Answers as the hostile server sends them, and what must hold of every row that comes of one."""

from pathlib import Path

from harness.measure.gates import stream_gate
from harness.measure.rows import attempt_median
from harness.wire.completion import Reason
from tests.hostile.server import Played, play
from tests.wire.build import (
    chunk,
    chunked,
)
from tests.wire.scripted import Step, send, wait

FIRST = chunk([5], "a", prompt_ids=[1, 2, 3])


def sent(pieces: list[bytes], **options: bool) -> Step:
    """All of an answer at once."""
    return send(b"".join(chunked(pieces, **options)))


def apart(pieces: list[bytes]) -> list[Step]:
    """An answer in one write an event."""
    return [send(write) for write in chunked(pieces)]


def held_back(folder: Path, first: bytes, rest: list[bytes]) -> Played:
    """``first`` is seen by the client before the server goes on: the times of the two differ for certain."""
    writes = chunked([first, *rest])
    return play(
        folder,
        *(send(writes[0]), send(writes[1])),
        marker=writes[1],
        after=lambda seen: [wait(seen), send(b"".join(writes[2:]))],
    )


def reason_of(played: Played) -> Reason:
    """The one reason, after what must hold of every row that isn't complete."""
    row, reason = played.row, played.completion.reason
    assert reason is not None
    assert (row.complete, row.reason) == (False, reason.value) and row.detail
    assert not stream_gate("hostile", [row]).passed
    assert attempt_median([row]) is None, "never in a median"
    return reason


def complete(played: Played) -> Played:
    """The same, which must be whole."""
    assert played.row.complete, played.row.detail
    return played


BURSTS = {"no-rate", "burst-difference", "burst-read", "merged-first-read"}
"""Warnings about ids that came in bursts"""
