"""Lines of a kernel log in the forms in which people and programs keep it. Never raises on junk."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from harness.host.faults import LINE_CHARACTERS, KernelLine

STAMPED = re.compile(r"(?:<[0-9]+>)?\[ *([0-9]{1,12})\.([0-9]{1,9})\](?:\[ *[TC][0-9]+\])? ?(.*)")
"""``dmesg`` and ``dmesg --raw``: seconds of the boot; some kernels tell the caller too"""
ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6})?(?:[+-][0-9]{2}:?[0-9]{2}|Z)) (.*)"
)
"""``dmesg --time-format iso``, ``journalctl -o short-iso``, rsyslog"""
HUMAN = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4})\] ?(.*)")
"""``dmesg -T``"""
SYSLOG = re.compile(r"([A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}) (.*)")
"""``journalctl``, /var/log/kern.log: local time without a year"""
INNER = re.compile(r"kernel: \[ *([0-9]{1,12})\.([0-9]{1,9})\]")
"""syslog daemons keep the kernel's own stamp behind theirs"""
RESTART_US = 1_000_000
"""Stamps of one boot may go back a little between processors; more is another boot."""


@dataclass
class Parsed:
    """What ``parse_lines`` found."""

    lines: list[KernelLine] = field(default_factory=list)
    """of this boot, as far as can be told; a line without a time has that of the line before it"""
    timed: bool = False
    foreign: int = 0
    """lines of another boot, left out"""
    unreadable: int = 0
    """journal lines that aren't whole or hold no text"""


def parse_lines(data: bytes, *, boot: str = "", not_before_us: int | None = None) -> Parsed:
    """Split and date the lines; ``boot`` is the running kernel's id without dashes, empty when it doesn't matter.

    Lines dated before ``not_before_us`` (wall clock) are of another boot.
    """
    found, last = Parsed(), KernelLine("")
    for raw in data.split(b"\n"):
        text = raw.decode("utf-8", "replace").rstrip("\r")[: 4 * LINE_CHARACTERS]
        if not text.strip():
            continue
        if text.startswith("{"):
            _journal_line(text, boot, found)
            continue
        line = _dated(text) or last._replace(text=text)
        here, before = line.monotonic_us, last.monotonic_us
        if here is not None and before is not None and here < before - RESTART_US:  # the kernel was started again
            found.foreign += len(found.lines)
            found.lines.clear()
        if not_before_us is not None and line.realtime_us is not None and line.realtime_us < not_before_us:
            found.foreign += 1
        else:
            found.lines.append(line)
        last = line
    found.timed = any(line.monotonic_us is not None or line.realtime_us is not None for line in found.lines)
    return found


def _journal_line(text: str, boot: str, found: Parsed) -> None:
    try:
        entry = json.loads(text)
        message = _message(entry["MESSAGE"])
        own = str(entry.get("_BOOT_ID", "")).replace("-", "")
        line = KernelLine(message, _micros(entry, "__MONOTONIC_TIMESTAMP"), _micros(entry, "__REALTIME_TIMESTAMP"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found.unreadable += 1
        return
    if boot and own and own != boot:
        found.foreign += 1
    else:
        found.lines.append(line)


def _message(value: Any) -> str:
    """Text; a list of bytes where it isn't UTF-8; a list of texts where there are several. Raises ValueError."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    if isinstance(value, list):
        return bytes(value).decode("utf-8", "replace")
    raise ValueError("no text")


def _micros(entry: dict[str, Any], name: str) -> int | None:
    value = entry.get(name)
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else None


def _dated(text: str) -> KernelLine | None:
    if match := STAMPED.match(text):
        return KernelLine(match[3], monotonic_us=_stamp(match[1], match[2]))
    try:
        if match := ISO.match(text):
            moment = datetime.fromisoformat(match[1].replace(",", ".").replace("Z", "+00:00"))
        elif match := HUMAN.match(text):
            moment = datetime.strptime(match[1], "%a %b %d %H:%M:%S %Y").astimezone()
        elif match := SYSLOG.match(text):
            moment = _this_year(match[1])
        else:
            return None
        realtime_us = int(moment.timestamp() * 1e6)
    except (ValueError, OverflowError, OSError):
        return None
    inner = INNER.search(text[:400])
    return KernelLine(match[2], _stamp(inner[1], inner[2]) if inner else None, realtime_us)


def _stamp(seconds: str, fraction: str) -> int:
    return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def _this_year(text: str) -> datetime:
    """The latest year in which this date isn't in the future."""
    today = datetime.now(UTC) + timedelta(days=1)
    for year in (today.year, today.year - 1):
        moment = datetime.strptime(f"{year} {text}", "%Y %b %d %H:%M:%S").astimezone()
        if moment <= today:
            return moment
    raise ValueError(text)
