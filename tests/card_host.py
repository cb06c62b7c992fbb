"""A written host with two cards that lives: counters that rise and a kernel log that grows, for whole campaigns."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.campaign import run_campaign
from harness.face import PlainFace
from harness.host.roots import Roots
from harness.preparing import Options
from tests.bench import campaign_of, evidence_of, write_launcher
from tests.host.trees import Tree, memory_in_use, two_cards

PERIOD_S = 0.02
WATTS = (100.0, 5.0)


@dataclass
class CardHost:
    """``lines`` are appended to the kernel log by whoever has something to say."""

    tree: Tree
    log: Path
    home: Path
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def roots(self) -> Roots:
        return Roots(sys=self.tree.sys, dev=self.tree.dev, kernel_log=self.log, locks=self.home)

    def say(self, text: str, *, uptime: float | None = None) -> None:
        moment = time.monotonic() if uptime is None else uptime
        with self.log.open("a") as file:
            file.write(f"[{moment:12.6f}] {text}\n")

    def _live(self, watts: tuple[float, ...]) -> None:
        begun = time.monotonic()
        first = [int((self.tree.hwmon(card) / "energy1_input").read_text()) for card in range(len(watts))]
        while not self.stop.wait(PERIOD_S):
            seconds = time.monotonic() - begun
            for card, power in enumerate(watts):
                replace(self.tree.hwmon(card) / "energy1_input", first[card] + round(seconds * power * 1e6))
            self.say("usb 1-1: nothing new")


def replace(path: Path, value: object) -> None:
    """A reader sees the old or the new number, as in sysfs."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(f"{value}\n")
    temporary.replace(path)


def still_host(home: Path) -> CardHost:
    """One whose counters stand still."""
    home.mkdir(exist_ok=True)
    host = CardHost(two_cards(home / "host"), home / "kern.log", home)
    for card in range(2):
        memory_in_use(host.tree, card, 32 * 2**20)
    host.say("Linux version 7.0.0", uptime=0.0)
    return host


@contextmanager
def card_host(home: Path, *, watts: tuple[float, ...] = WATTS) -> Iterator[CardHost]:
    host = still_host(home)
    thread = threading.Thread(target=host._live, args=(watts,), daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.stop.set()
        thread.join()


class Watching(PlainFace):
    """A face that does something when a prompt or a rung was answered, or (0) when a sequential oracle begins."""

    def __init__(self, at: Callable[[str, int], None], stage: Callable[[str, str], None]) -> None:
        super().__init__(io.StringIO(), "bench strict")
        self._at, self._on_stage = at, stage

    def row(self, label: str, row: Any, total: int) -> None:
        super().row(label, row, total)
        self._at(label, row.index)

    def batch(self, label: str, batch: Any, passes: int) -> None:
        super().batch(label, batch, passes)
        self._at(label, batch.rung)

    def stage(self, label: str, text: str) -> None:
        super().stage(label, text)
        self._on_stage(label, text)
        if text.startswith("sequential oracle 1/"):
            self._at(label, 0)


def launcher(home: Path, **changes: Any) -> Path:
    """A launcher of simulated servers that are given cards."""
    path = write_launcher(home, **changes)
    path.write_text(path.read_text().replace('canaries = "chat"', 'canaries = "chat"\ncard_env = "ZE_AFFINITY_MASK"'))
    return path


def measure(
    host: CardHost,
    roots: Roots | None = None,
    *,
    at: Callable[[str, int], None] = lambda label, index: None,
    stage: Callable[[str, str], None] = lambda label, text: None,
    depth: int = 0,
    path: Path | None = None,
    resume: Path | None = None,
    **changes: Any,
) -> Any:
    """A campaign on this host, in this process, strict unless ``ladder`` says otherwise; its evidence as JSON."""
    options = Options(
        launcher=str(path or launcher(host.home, step_us=600)),
        depth=depth,
        tensor_parallel=1,
        out=host.home / "experiments",
        roots=roots or host.roots,
        **changes,
    )
    run_campaign(options, Watching(at, stage), resume=resume)
    return evidence_of(campaign_of(host.home))
