"""What makes a reader slow: it is stopped for moments, and its processors are taken by others of its own rank."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from harness.wire.scheduling import prompt_wakeups

ROOT = Path(__file__).resolve().parents[2]
STOP_S = (0.02, 0.4)
RUN_S = (0.1, 0.4)
BURN_S = 0.2
REST_S = 0.3


def _family(pid: int) -> list[int]:
    """Its child processes, one generation."""
    with suppress(OSError):
        return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]
    return []


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


class Stops(threading.Thread):
    """SIGSTOP and SIGCONT for a process and its children, by a seeded chance."""

    def __init__(self, pid: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._chance = pid, random.Random(seed)  # noqa: S311 - no secret
        self._over = threading.Event()
        self.stops = 0
        self.stopped_s = 0.0

    def run(self) -> None:
        """Until :meth:`end`."""
        while not self._over.wait(self._chance.uniform(*RUN_S)):
            began = time.monotonic()
            # The parent first: while it stands still nobody waits for its children, so that their numbers stay theirs.
            _signal([self._pid], signal.SIGSTOP)
            children = _family(self._pid)
            try:
                _signal(children, signal.SIGSTOP)
                self._over.wait(self._chance.uniform(*STOP_S))
            finally:
                _signal([*children, self._pid], signal.SIGCONT)
            self.stops += 1
            self.stopped_s += time.monotonic() - began

    def end(self) -> None:
        """The process runs when this returns."""
        self._over.set()
        self.join()


@contextmanager
def slow_reader(pid: int, seed: int) -> Iterator[Stops]:
    """Stops for a process, and a burner a processor."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-m", __name__], cwd=ROOT))
            stack.callback(burner.kill)
        stops = Stops(pid, seed)
        stops.start()
        stack.callback(stops.end)
        yield stops


def main() -> None:
    """Burn and rest in turns, at the reader's own rank, while whoever started it lives."""
    parent = os.getppid()
    with prompt_wakeups():
        while os.getppid() == parent:
            until = time.monotonic() + BURN_S
            while time.monotonic() < until:
                pass
            time.sleep(REST_S)


if __name__ == "__main__":
    main()
