"""One look at the kernel log before or after a server, as evidence keeps it (contract section 8)."""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.host.faults import FaultLine, Moment
from harness.host.kernel_log import now, read_kernel_log
from harness.host.roots import Roots

MOST_FAULTS = 40
"""A wedged card writes thousands of lines; the first ones tell what happened"""
MOST_CHARACTERS = 400

Seen = set[tuple[str, float | None, str]]
"""Faults by text, moment of the boot and date"""


class LogCheck(BaseModel):
    """The faults that one reading of the kernel log found."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    state: Literal["measured", "unknown", "not applicable"]
    """measured: every line was read, so no fault means none"""
    why: str = ""
    """of unknown and not applicable"""
    source: str = ""
    """journal, dmesg or file; empty when there was none"""
    since: Moment | None = None
    """only what came after it; null: the whole boot"""
    at: Moment | None = None
    """just before the log was read; null when it wasn't"""
    faults: list[FaultLine] = []
    """the first ones, each once in a campaign"""
    more: int = 0
    """faults beyond these"""


def check_log(roots: Roots, since: Moment | None, *, known: Seen | None = None) -> LogCheck:
    """Read the log. Faults in ``known`` are left out, and those that are found are added to it. Never raises."""
    seen: Seen = set() if known is None else known
    moment = now(roots.proc)
    log = read_kernel_log(since, file=roots.kernel_log, proc=roots.proc)
    fresh = [fault for fault in log.faults() if key(fault) not in seen]
    seen.update(map(key, fresh))
    return LogCheck(
        state=log.state,
        why=log.why,
        source=log.source,
        since=since,
        at=moment,
        faults=[fault.model_copy(update={"text": fault.text[:MOST_CHARACTERS]}) for fault in fresh[:MOST_FAULTS]],
        more=max(0, len(fresh) - MOST_FAULTS),
    )


def key(fault: FaultLine) -> tuple[str, float | None, str]:
    """By which a fault is known again."""
    return fault.text[:MOST_CHARACTERS], fault.monotonic_s, fault.at


def not_applicable(why: str) -> LogCheck:
    """Of a server that uses no card."""
    return LogCheck(state="not applicable", why=why)


def told(faults: Iterable[FaultLine]) -> list[str]:
    """One phrase a fault: what, when, and the line."""
    return [f"{fault.what}{_when(fault)}: {fault.text}" for fault in faults]


def _when(fault: FaultLine) -> str:
    if fault.at:
        return f" at {fault.at}"
    return f" {fault.monotonic_s:.0f} s after the boot" if fault.monotonic_s is not None else ""
