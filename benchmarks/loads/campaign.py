"""Rounds of streams until they were open for so long: the source, the measured process, and the account of it all."""

import itertools
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.loads.account import Account
from benchmarks.loads.disturb import slow_reader
from benchmarks.loads.drive import Order
from benchmarks.loads.growth import LEAST, Tolerance, Verdict, judge_amount, judge_count
from benchmarks.loads.kinds import PATHS, STOPPED
from benchmarks.source import Program, Running, Schedule, read_ledger, serving

ROOT = Path(__file__).resolve().parents[2]
COUNTED = ("descriptors", "threads", "children", "source_descriptors")
AMOUNTS = {
    "blocks": Tolerance(0.5),
    "in_use": Tolerance(16),
    "rss": Tolerance(64, 0.1),
    "peak": Tolerance(64, 0.25),
}
"""Blocks, and KiB. What is in use is exact. What the system has handed out and not got back moves with the rounds: its
pages go back only when all on them is free, so each round that reads more than any before leaves some"""


@dataclass(frozen=True)
class Load:
    """What is run, until streams were open for ``seconds`` in sum and there were ``rounds`` at the least."""

    streams: int
    modes: tuple[str, ...]
    """in turns"""
    seconds: float
    round_s: float
    paths: tuple[str, ...] = PATHS
    rounds: int = 0
    leak: str = ""
    warm_turns: int = 2
    """how often each path goes first: imports, caches and the allocator's own store fill up"""

    @property
    def warm(self) -> int:
        """Rounds before the judged ones."""
        return self.warm_turns * len(self.paths)


ROUND_LIMIT_S, ROUND_LIMIT_TIMES = 120, 20
"""How long a round may take; the client's own deadlines end every stream long before"""


class LoadError(RuntimeError):
    """The measured process or the account ended; the sentence says how."""


class Driver:
    """The measured process, kept for all rounds; it ends with ``stack``."""

    def __init__(self, stack: ExitStack, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.loads.drive", str(port)]
        pipe = subprocess.PIPE
        self._process = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True))
        stack.callback(self._process.kill)
        self.pid = self._process.pid

    def round(self, order: Order) -> dict[str, Any]:
        """Figures of one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        limit = ROUND_LIMIT_S + ROUND_LIMIT_TIMES * order.seconds
        if not select.select([self._process.stdout], [], [], limit)[0]:
            raise LoadError(f"a round on the path {order.path} of {order.mode} is not over after {limit:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise LoadError(f"the measured process ended with code {self._process.wait()}; its error stands above")
        figures: dict[str, Any] = json.loads(line)
        return figures


class _Accountant:
    """Accounts for one capture while the next round runs, then removes the capture."""

    def __init__(self, capture: Path, ledger: Path, start: int) -> None:
        lines, self.next = read_ledger(ledger, start)
        self._capture = capture
        command = [sys.executable, "-m", "benchmarks.loads.account", str(capture)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin is not None
        json.dump([asdict(line) for line in lines], self._process.stdin)
        self._process.stdin.close()

    def result(self) -> Account:
        """Waits for it."""
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        self._process.stdout.close()
        if self._process.wait():
            raise LoadError(f"the account of {self._capture.name} failed; its error stands above")
        self._capture.unlink()
        return Account(**json.loads(said))


def _source_memory(source: Running) -> dict[str, int]:
    proc = Path(f"/proc/{source.pid}")
    rss = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS:"))
    return {"source_descriptors": len(os.listdir(proc / "fd")), "source_rss": int(rss.split()[1])}  # noqa: PTH208


def run(
    program: Program, load: Load, folder: Path, progress: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """The rounds, each with its order, its figures and its account. Raises LoadError when a process of ours ends."""
    rounds: list[dict[str, Any]] = []
    ledger, at = folder / "ledger", 0
    waiting: _Accountant | None = None
    with ExitStack() as stack:
        source = stack.enter_context(serving(program, Schedule(gap_us=10_000), ledger))
        driver = Driver(stack, source.port)
        for number in itertools.count():
            if number >= load.rounds and sum(row["open_s"] for row in rounds) >= load.seconds:
                break
            path, mode = load.paths[number % len(load.paths)], load.modes[number % len(load.modes)]
            disturbed = mode in STOPPED
            order = Order(
                str(folder / f"{number}.jsonl.zst"),
                mode,
                path,
                load.streams,
                load.round_s,
                small_buffers=disturbed,
                leak=load.leak,
            )
            with slow_reader(driver.pid, number) if disturbed else nullcontext() as stops:
                figures = driver.round(order)
            figures |= {"number": number, "mode": mode, "path": path, "stops": 0 if stops is None else stops.stops}
            figures["stopped_s"] = 0.0 if stops is None else stops.stopped_s
            figures |= _source_memory(source)
            if waiting is not None:
                rounds[-1]["account"] = asdict(waiting.result())
            waiting = _Accountant(Path(order.capture), ledger, at)
            at = waiting.next
            rounds.append(figures)
            progress(f"round {number + 1}: {mode}, {path}, {figures['open_s']:.1f} s, {figures['rss']:,} KiB")
        if waiting is not None:
            rounds[-1]["account"] = asdict(waiting.result())
    return rounds


def verdicts(rounds: Sequence[dict[str, Any]], warm: int) -> list[Verdict]:
    """What was counted and what was estimated, over the rounds after the first ``warm``."""
    judged = rounds[warm:]
    found = [judge_count(name, [row[name] for row in judged]) for name in COUNTED if judged]
    if len(judged) >= LEAST:
        groups = [row["path"] for row in judged]
        found += [
            judge_amount(name, [row[name] for row in judged], groups if allowed.in_all else [], allowed)
            for name, allowed in AMOUNTS.items()
        ]
    return found


def failures(load: Load, rounds: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences; none when every event is accounted for and nothing grows."""
    said = []
    for row in rounds:
        account = Account(**row["account"])
        where = f"round {row['number'] + 1} ({row['mode']}, {row['path']})"
        if account.streams != load.streams:
            said.append(f"{where}: {account.streams} streams in the capture, {load.streams} were opened")
        if not account.right:
            counts = f"{account.lost} lost, {account.doubled} doubled, {account.early} early"
            said.append(f"{where}: {counts}, {account.moved} streams out of order; {'; '.join(account.problems)}")
    return said + [verdict.grows for verdict in verdicts(rounds, load.warm) if verdict.grows]
