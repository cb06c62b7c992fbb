"""Faults of the cards in kernel log lines (contract section 8). The log itself is read by harness.host.kernel_log."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

DEVICE = r"(xe [0-9a-f:.]+|drm\])"
WORDS = (
    r"(fault response|CAT error|engine reset|gt ?\d*:? ?(trying )?reset|GPU reset|coredump|timedout job|timed out"
    r"|\bhung\b|wedged|device lost)"
)
ALONE = r"drivers/gpu/drm/xe/|soft lockup|hard lockup"
PATTERN = f"{DEVICE}.*{WORDS}|{ALONE}"
"""Contract section 8, word for word; case is ignored. ``fault_in`` says the same in linear time, on any junk."""

_device = re.compile(DEVICE.replace("+", ""), re.IGNORECASE)
_words = re.compile(WORDS, re.IGNORECASE)
_alone = re.compile(ALONE, re.IGNORECASE)
BENIGN = re.compile(r"Xe device coredump has been deleted", re.IGNORECASE)
"""The driver forgets an old dump minutes after the fault that made it."""

CARD = re.compile(r"xe ([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
LINE_CHARACTERS = 8192
"""Longer than any line of the kernel; what comes after it isn't looked at."""


class KernelLine(NamedTuple):
    """One line with the moments its source knows; a line without any can't be told from one of now."""

    text: str
    monotonic_us: int | None = None
    """of this boot"""
    realtime_us: int | None = None


class Moment(BaseModel):
    """The start of a campaign, on both clocks of one boot."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    boot_id: str
    """empty where the host doesn't tell"""
    monotonic_ns: int
    realtime_ns: int


class FaultLine(BaseModel):
    """One fault."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    at: str
    """UTC; empty where the line has no date"""
    monotonic_s: float | None
    """seconds of this boot"""
    card: str | None
    """PCI address"""
    what: str
    """the words of the line that make it a fault, in small letters"""
    text: str
    """without control characters"""


def fault_in(text: str) -> str | None:
    """The words that make one line a fault, in small letters; None for every other line."""
    text = text[:LINE_CHARACTERS]
    device = _device.search(text)
    match = (None if device is None else _words.search(text, device.end())) or _alone.search(text)
    return None if match is None or BENIGN.search(text) else match[0].lower()


def is_after(line: KernelLine, since: Moment | None) -> bool:
    """Whether a line belongs to the campaign. The monotonic clock decides where the line has it: nobody sets it."""
    if since is None:
        return True
    if line.monotonic_us is not None:
        return line.monotonic_us * 1000 >= since.monotonic_ns
    return line.realtime_us is None or line.realtime_us * 1000 >= since.realtime_ns


def scan(lines: Iterable[KernelLine | str], since: Moment | None = None) -> list[FaultLine]:
    """Faults at or after ``since`` (None: all), in order. A line without a time counts as after it."""
    found = []
    for entry in lines:
        line = KernelLine(entry) if isinstance(entry, str) else entry
        for text in line.text.split("\n"):
            what = fault_in(text)
            if what is not None and is_after(line, since):
                card = CARD.search(text[:LINE_CHARACTERS])
                found.append(
                    FaultLine(
                        at=_utc(line.realtime_us),
                        monotonic_s=None if line.monotonic_us is None else line.monotonic_us / 1e6,
                        card=None if card is None else card[1].lower(),
                        what=what,
                        text=plain(text[:LINE_CHARACTERS]),
                    )
                )
    return found


def plain(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _utc(realtime_us: int | None) -> str:
    if realtime_us is None:
        return ""
    try:
        return datetime.fromtimestamp(realtime_us / 1e6, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""
