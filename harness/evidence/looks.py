"""What a ladder's looks at /metrics say: how many requests a server ran at once beside how many were asked."""

import re
from collections.abc import Iterable, Mapping, Sequence

from harness.evidence.ladder_schema import LadderAttempt, RungLooks
from harness.measure.metrics import RUNNING, WAITING
from harness.wire.capture import Control

PREFIX = "running "
"""Before the name of the batch, in the name of a look"""
_LINE = re.compile(r"^(\S+) (\d+(?:\.\d+)?)$", re.MULTILINE)


def look_name(stage: str) -> str:
    """The name of a look at a batch, in the capture."""
    return PREFIX + stage


def counts_of(control: Control) -> tuple[float, float] | None:
    """(running, waiting) at one look; None for an answer that says neither."""
    found: dict[str, float] = {}
    for name, value in _LINE.findall(control.body) if control.status == 200 else []:
        found[name] = found.get(name, 0.0) + float(value)
    return (found[RUNNING], found[WAITING]) if RUNNING in found and WAITING in found else None


def rung_looks(controls: Sequence[Control], stages: Mapping[int, Sequence[str]]) -> list[RungLooks]:
    """Of each rung with its whole batches' names; nothing for one at which nobody looked."""
    made = []
    for rung, names in stages.items():
        wanted = {look_name(name) for name in names}
        asked = [control for control in controls if control.name in wanted]
        if asked:
            made.append(_looks(rung, [found for found in map(counts_of, asked) if found is not None]))
    return made


def _looks(rung: int, counts: Iterable[tuple[float, float]]) -> RungLooks:
    seen = [(round(running), round(waiting)) for running, waiting in counts if running or waiting]
    peak = max((running for running, _ in seen), default=None)
    waiting = max((others for _, others in seen), default=None)
    note = ""
    # Twice at its peak with others waiting: one look may have met a server that was still taking them in.
    if peak is not None and peak < rung and sum(running == peak and others > 0 for running, others in seen) > 1:
        note = (
            f"c{rung}: the server ran {peak} of {rung} requests at a time at most, and up to {waiting} waited in its "
            f"queue ({len(seen)} looks at /metrics)"
        )
    return RungLooks(rung=rung, looks=len(seen), peak=peak, waiting=waiting, note=note)


def looked(attempts: Sequence[LadderAttempt], rung: int) -> tuple[str, RungLooks] | None:
    """(path in evidence, looks) of the server that ran most of a rung's requests at once; None without a look."""
    found = [
        (f"attempts.{attempt.directory}.rung_looks.{place}", item)
        for attempt in attempts
        for place, item in enumerate(attempt.rung_looks)
        if item.rung == rung and item.peak is not None
    ]
    return max(found, key=lambda entry: entry[1].peak or 0, default=None)


def look_notes(attempts: Sequence[LadderAttempt]) -> list[str]:
    """One sentence for each rung of which a server ran fewer at a time."""
    return [f"{attempt.directory}: {item.note}" for attempt in attempts for item in attempt.rung_looks if item.note]
