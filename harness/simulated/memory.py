"""Fault ``eats-memory``: take memory as a leak does, until the kernel's limit ends the process."""

import time

from harness.simulated.loop import Loop

PIECE = 16 * 1024 * 1024
MOST = 256
"""pieces, 4 GiB in all: where nothing limits it, the fault must not bring a host down"""


class Eater:
    """Holds what was taken."""

    def __init__(self) -> None:
        self._taken: list[bytes] = []

    def eat(self) -> bool:
        """Take one piece, and write to every page of it. Returns whether there is more to take."""
        self._taken.append(b"\1" * PIECE)
        return len(self._taken) < MOST

    def eat_on(self, loop: Loop) -> None:
        """A piece each 5 ms, while the server goes on."""
        if self.eat():
            loop.at(time.monotonic_ns() + 5_000_000, lambda: self.eat_on(loop))
