"""Memory of the cards in use before a server starts: what an ended one left behind would be measured with the next.

Two sources. debugfs, as root: ``vram*_mm`` of a device or ``tile*/vram_mm``, with the lines ``size:`` and ``usage:`` in
bytes. Else what every process says of its own open devices: ``drm-pdev``, ``drm-client-id`` and
``drm-resident-vram*`` in /proc/PID/fdinfo (the kernel's DRM client usage stats, with xe's keys).
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.host.roots import Roots
from harness.host.sysfs import debugfs_folders

MOST_HELD = 2 * 2**30
"""Bytes. A desktop and its windows hold less, the smallest of a server's weights with its cache more"""
WAIT_S = 60.0
"""For a driver that is still giving back what an ended process held"""
POLL_S = 0.5
MOST_HOLDERS = 8
MM_LINE = re.compile(r"^\s*usage:\s*([0-9]{1,18})\s*$", re.MULTILINE)
RESIDENT = re.compile(r"^drm-resident-vram[0-9]*:\s*([0-9]{1,18})(?: (KiB|MiB))?\s*$", re.MULTILINE)
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20}
LONGEST = 64 * 1024


class _Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Holder(_Fact):
    """A process that has memory of a card."""

    pid: int
    name: str
    """its comm"""
    bytes: int
    """resident, of all its clients of the card's driver"""


class CardMemory(_Fact):
    """One card at one moment."""

    card: str
    """PCI address"""
    used_bytes: int | None
    """null is unknown"""
    source: Literal["debugfs", "fdinfo", ""]
    why: str = ""
    """of unknown"""
    holders: list[Holder] = []
    """who holds most, as far as that could be read; looked for when it is too much"""

    @property
    def too_much(self) -> bool:
        """Whether a server that starts now would share the card."""
        return self.used_bytes is not None and self.used_bytes > MOST_HELD


class MemoryCheck(_Fact):
    """The last look at the cards before a server."""

    cards: list[CardMemory]
    waited_s: float
    """for what was held to be given back"""

    @property
    def held(self) -> list[str]:
        """One phrase a card that holds too much."""
        return [_said(card) for card in self.cards if card.too_much]


def card_memory(card: str, roots: Roots) -> CardMemory:
    """Memory in use of one card. Never raises: what can't be read is unknown."""
    used = _from_debugfs(card, roots.sys / "kernel/debug/dri")
    if used is not None and used <= MOST_HELD:
        return CardMemory(card=card, used_bytes=used, source="debugfs")
    holders, hidden = _holders(card, roots.proc)
    most = holders[:MOST_HOLDERS]
    if used is not None:
        return CardMemory(card=card, used_bytes=used, source="debugfs", holders=most)
    known = sum(holder.bytes for holder in holders)
    if hidden and known <= MOST_HELD:
        why = "debugfs can't be read, and the processes of other users can't be looked into"
        return CardMemory(card=card, used_bytes=None, source="", why=why)
    return CardMemory(card=card, used_bytes=known, source="fdinfo", holders=most if known > MOST_HELD else [])


def wait_for_cards(
    cards: Sequence[str], roots: Roots, progress: Callable[[str], None], *, wait_s: float = WAIT_S
) -> MemoryCheck:
    """Look until no card holds too much, at most ``wait_s`` seconds; the last look, whatever it saw."""
    begun = time.monotonic()
    while True:
        looked = time.monotonic() - begun
        check = MemoryCheck(cards=[card_memory(card, roots) for card in cards], waited_s=round(looked, 3))
        if not check.held or looked >= wait_s:
            return check
        progress(f"waiting for the cards' memory, {check.held[0]}")
        time.sleep(min(POLL_S, max(0.0, wait_s - looked)))


def _said(card: CardMemory) -> str:
    held = f"{card.card} still holds {_gib(card.used_bytes or 0)}"
    if not card.holders:
        return held
    who = ", ".join(f"{holder.name} {holder.pid} with {_gib(holder.bytes)}" for holder in card.holders[:2])
    return f"{held} ({'processes' if len(card.holders) > 1 else 'process'} {who})"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _from_debugfs(card: str, dri: Path) -> int | None:
    for folder in debugfs_folders(card, dri):
        # Newer kernels keep the file in the tile's folder; where both are, they tell of the same memory.
        files = list(folder.glob("vram*_mm")) or list(folder.glob("tile*/vram*_mm"))
        used = [_usage(path) for path in files]
        known = [one for one in used if one is not None]
        if known and len(known) == len(used):
            return sum(known)
    return None


def _usage(path: Path) -> int | None:
    try:
        match = MM_LINE.search(path.read_text(encoding="utf-8", errors="replace")[:LONGEST])
    except OSError:
        return None
    return None if match is None else int(match[1])


def _holders(card: str, proc: Path) -> tuple[list[Holder], bool]:
    """Processes with memory of the card, most first; and whether any process could not be looked into."""
    hidden, found = False, list[Holder]()
    try:
        pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    except OSError:
        return [], True
    clients = set[str]()
    for pid in sorted(pids):
        home = proc / str(pid)
        try:
            numbers = os.listdir(home / "fdinfo")  # noqa: PTH208 - names are all that is wanted
        except PermissionError:
            hidden = True
            continue
        except OSError:  # it has ended since
            continue
        held = sum(_resident(home / "fdinfo" / number, card, clients) for number in numbers)
        if held:
            found.append(Holder(pid=pid, name=_comm(home), bytes=held))
    return sorted(found, key=lambda holder: -holder.bytes), hidden


def _resident(path: Path, card: str, clients: set[str]) -> int:
    """Bytes of one open file that is a client of the card; 0 of a client that was counted (a duplicate or a fork)."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:LONGEST]
    except OSError:
        return 0
    said = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("drm-") and ":" in line)
    client = said.get("drm-client-id", "").strip()
    if said.get("drm-pdev", "").strip().lower() != card or not client or client in clients:
        return 0
    clients.add(client)
    return sum(int(number) * UNITS[unit] for number, unit in RESIDENT.findall(text))


def _comm(home: Path) -> str:
    try:
        return (home / "comm").read_text(encoding="utf-8", errors="replace").strip()[:64] or "unnamed"
    except OSError:
        return "unnamed"
