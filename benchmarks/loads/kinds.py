"""What the streams of a round ask the source for, by mode."""

from dataclasses import dataclass

MODES = ("steady", "slow-reader", "slow-server", "one-byte", "mixed")
PATHS = ("sink", "batch", "workers")
"""Of the client: the capture written while streams are open; after them, as a ladder does; the same with workers"""
STOPPED = ("slow-reader", "mixed")
"""Modes whose reader is stopped and starved at moments, and takes little into its sockets"""


@dataclass(frozen=True)
class Ask:
    """One kind of stream; see ``source.c`` for the fields."""

    max_tokens: int
    source_gap_us: int
    source_write_bytes: int = 0
    source_pause_every: int = 0
    source_pause_us: int = 0


def steady(seconds: float) -> Ask:
    """A hundred events a second, as the client's benchmark has them."""
    return Ask(max(1, round(seconds / 0.01)), 10_000)


def slow(seconds: float) -> Ask:
    """Three events a second, and two long silences."""
    events = max(3, round(0.6 * seconds / 0.3))
    return Ask(events, 300_000, source_pause_every=-(-events // 3), source_pause_us=round(0.2e6 * seconds))


def bytewise(seconds: float) -> Ask:
    """An event each 0.8 s, every byte a write of its own."""
    return Ask(max(1, round(seconds / 0.8)), 800_000, source_write_bytes=1)


def bursts(seconds: float) -> Ask:
    """Fifty events at once each half second: 15 KB, more than a small socket buffer takes."""
    return Ask(50 * max(1, round(seconds / 0.5)), 0, source_pause_every=50, source_pause_us=500_000)


def asks(mode: str, streams: int, seconds: float) -> list[Ask]:
    """One for each stream of a round that lasts some ``seconds``."""
    kinds = {
        "steady": [steady],
        "slow-reader": [steady, bursts],
        "slow-server": [slow],
        "one-byte": [bytewise],
        "mixed": [steady, slow, bytewise, bursts],
    }[mode]
    return [kinds[number % len(kinds)](seconds) for number in range(streams)]
