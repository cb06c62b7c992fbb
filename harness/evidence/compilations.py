"""Which lines of a server's log tell of a compilation while it was measured, by how long the log was at its marks."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import Attempt, AttemptStatus, CompileLines, LogMark
from harness.launch.jit import compile_lines

KEPT = 8
"""Lines of a log that evidence shows"""
UNPUBLISHED = {"sequential", "pass 1"}
"""Stages of a ladder whose times stand in no published rate"""
NOT_OURS = "compilations while it was measured are unknown, because the log of a server of others isn't ours to read"


class Attempted(Protocol):
    """An attempt of any kind of campaign."""

    @property
    def label(self) -> str: ...
    @property
    def directory(self) -> str: ...
    @property
    def compile_lines(self) -> CompileLines | None: ...


def compilations(files: AttemptFiles) -> CompileLines | None:
    """None where no mark was recorded. Lines have no usable time of their own: some have none, others no year or zone.

    Up to a mark the copy of the log is older than the mark. What follows it is later only where the copy was complete.
    """
    marks = [] if files.server is None else files.server.log_marks
    if not marks:
        return None
    if files.server is not None and files.server.requested.engine == "attach":
        return CompileLines(during={}, outside=0, unknown=0, lines=[], note=NOT_OURS)
    during, lines, outside, unknown = dict[str, int](), list[str](), 0, 0
    for number, words in compile_lines(files.log):
        stage = _stage(number, marks, ended=files.status is AttemptStatus.COMPLETE)
        if stage is None:
            unknown += 1
        elif stage:
            during[stage] = during.get(stage, 0) + 1
            lines.append(words)
        else:
            outside += 1
    return CompileLines(during=during, outside=outside, unknown=unknown, lines=lines[:KEPT])


def _stage(number: int, marks: Sequence[LogMark], *, ended: bool) -> str | None:
    """The stage in which a line came; empty outside of what was measured, None where that can't be told."""
    if number < marks[0].lines:
        return ""
    for before, mark in pairwise(marks):
        if number < mark.lines:
            return mark.stage if before.caught_up else None
    return "" if ended and marks[-1].caught_up else None


def compile_notes(attempts: Iterable[Attempted]) -> list[str]:
    """One sentence for each server that compiled while it was measured, or that may have."""
    found = []
    for attempt in attempts:
        told = attempt.compile_lines
        if told is None:
            continue
        count = sum(told.during.values())
        if count:
            where = ", ".join(f"{stage} {number}" for stage, number in told.during.items())
            warm = "; none in a published rate" if set(told.during) <= UNPUBLISHED else ""
            found.append(
                f"{attempt.directory}: its log tells of {count} compilation{'' if count == 1 else 's'} while it was "
                f"measured ({where}{warm}), first: {told.lines[0]}"
            )
        if told.unknown:
            found.append(
                f"{attempt.directory}: its log tells of {told.unknown} more, of which it is unknown whether it was "
                "measured then"
            )
    return found


def cold_notes(attempts: Iterable[Attempt]) -> list[str]:
    """Every row that is marked cold, one sentence each."""
    return [
        f"{attempt.directory}: {row.prompt_id} is {warning.replace('cold:', 'cold,', 1)}"
        for attempt in attempts
        for row in attempt.rows
        for warning in row.warnings
        if warning.startswith("cold:")
    ]


def compile_unknown(attempts: Iterable[Attempted]) -> list[str]:
    """What is unknown of the servers whose log isn't ours."""
    return [
        f"{item.label}: {item.compile_lines.note}"
        for item in attempts
        if item.compile_lines and item.compile_lines.note
    ]
