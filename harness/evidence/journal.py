"""journal.jsonl: what the campaign did, appended and fsynced line by line; the only record besides the attempts'."""

import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import EvidenceError
from harness.evidence.files import read_regular
from harness.hidden import masked
from harness.unwritable import sync, unwritable

NAME = "journal.jsonl"
MAX_BYTES = 64 * 1024 * 1024
CAMPAIGN = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z-.")
"""How the directory of every campaign of ours begins; see preparing.campaign_name"""
NOTHING = "nothing was recorded before the campaign was ended; start anew (bench clean removes the directory)"
EventName = Literal[
    "campaign-started", "campaign-resumed", "attempt-started", "prompts-kept", "attempt-ended", "campaign-ended"
]


class Event(BaseModel):
    """One line of the journal."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    at: str
    """UTC"""
    monotonic_ns: int | None = None
    """of an attempt's start and end: CLOCK_MONOTONIC, which shows where the other clock was set"""
    event: EventName
    label: str = ""
    directory: str = ""
    """of an attempt, under attempts/"""
    status: str = ""
    """of the attempt or campaign that ended"""
    error: str = ""
    start: dict[str, Any] | None = None
    """campaign-started: see schema.Start"""
    sha256: str = ""
    """prompts-kept: of prompts.json"""


def now_utc() -> str:
    """The present moment as it stands in evidence."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def append(directory: Path, event: Event) -> None:
    """Append one event; it is on the disk when this returns. Raises RecordError when it can't be.

    Only its first event makes the file: a journal that was removed while the campaign ran isn't begun anew.
    """
    made = os.O_CREAT if event.event == "campaign-started" else 0
    line = masked(json.dumps(event.model_dump(exclude_defaults=True), ensure_ascii=False, allow_nan=False)) + "\n"
    try:
        handle = os.open(directory / NAME, os.O_RDWR | made | os.O_CLOEXEC, 0o644)
        try:
            # A write that a full disk or a power cut left without its end would spoil the line that follows it.
            end = _whole(handle)
            os.ftruncate(handle, end)
            data = line.encode()
            while data:
                written = os.pwrite(handle, data, end)
                data, end = data[written:], end + written
            sync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise unwritable(directory / NAME, error) from None


def _whole(handle: int) -> int:
    """Bytes up to the end of the last whole line."""
    size = os.fstat(handle).st_size
    while size and os.pread(handle, 1, size - 1) != b"\n":
        block = os.pread(handle, min(size, 65536), max(0, size - 65536))
        size = max(0, size - 65536) + block.rfind(b"\n") + 1
    return size


def load(directory: Path) -> list[Event]:
    """All whole lines; a last line without its end (a kill in mid-write) is left out. Raises EvidenceError."""
    path = directory / NAME
    try:
        lines = read_regular(path, MAX_BYTES).split(b"\n")[:-1]
    except FileNotFoundError:
        if CAMPAIGN.match(directory.name) and directory.is_dir():
            raise EvidenceError(f"{directory.name} has no {NAME}: {NOTHING}") from None
        raise EvidenceError(f"{directory.name} has no {NAME}; give the directory of a campaign") from None
    except OSError as error:
        raise EvidenceError(f"{NAME} can't be read ({error.strerror}); check the directory") from None
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError as error:
            what = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise EvidenceError(f"{NAME} line {number} is no journal line ({what}); get the original file") from None
    if not lines:
        raise EvidenceError(f"{directory.name}/{NAME} has no whole line: {NOTHING}")
    if events[0].event != "campaign-started" or events[0].start is None:
        raise EvidenceError(f"{NAME} doesn't begin with the start of a campaign; get the original file")
    return events


def unended(events: Sequence[Event]) -> list[str]:
    """Directories of the attempts that have no end: the run was killed."""
    ended = {event.directory for event in events if event.event == "attempt-ended"}
    return [event.directory for event in events if event.event == "attempt-started" and event.directory not in ended]
