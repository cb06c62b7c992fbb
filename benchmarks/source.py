"""Starts the token source: ``source.c`` where a C compiler is found, else the slower one in Python."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
C_FILE = HERE / "source.c"
FALLBACK = HERE / "source_fallback.py"


@dataclass(frozen=True)
class Schedule:
    """When a stream's events are due: event i at ``ttft_us + i * gap_us`` microseconds after its request was read."""

    ttft_us: int = 50_000
    gap_us: int = 10_000
    """0: as fast as the socket takes it"""
    ids_per_event: int = 1


@dataclass(frozen=True)
class Program:
    """What can be started as a source: the start of its command line, and what it is."""

    command: tuple[str, ...]
    kind: str
    """"C", or "Python" with the reason why not C"""


@dataclass(frozen=True)
class Running:
    """A source that answers on 127.0.0.1."""

    port: int
    scheduling: str
    """SCHED_RR where the system allows it, else normal"""
    pid: int


@dataclass(frozen=True)
class Sent:
    """One line of a ledger: what the source says that it sent as one streamed answer."""

    serial: int
    """number of the request; the stream's id is cmpl- with it"""
    tokens: int
    """asked for"""
    ids: int
    events: int
    """with ids"""
    sent_bytes: int
    """of head and body; the C source counts what the kernel took"""
    writes: int
    whole: bool


def read_ledger(file: Path, start: int = 0) -> tuple[list[Sent], int]:
    """The lines from byte ``start`` on, and where the next ones will start."""
    data = file.read_bytes()[start:]
    data = data[: data.rfind(b"\n") + 1]
    rows = [[int(word) for word in line.split()] for line in data.splitlines()]
    return [Sent(a, b, c, d, e, f, whole=bool(g)) for a, b, c, d, e, f, g in rows], start + len(data)


def expected_ids(count: int) -> list[int]:
    """The ids of a stream of ``count``, as ``source.c`` defines them."""
    return [(n * 31 + 7) % 997 for n in range(count)]


def compiler() -> str | None:
    """Path of the C compiler: ``$CC``, cc, gcc or clang."""
    names = [os.environ.get("CC"), "cc", "gcc", "clang"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def build(directory: Path, *, python_asked: bool = False) -> Program:
    """Compile ``source.c`` into ``directory``; the source in Python when that can't be done, or is asked for."""
    python = (sys.executable, str(FALLBACK))
    if python_asked:
        return Program(python, "Python")
    cc = compiler()
    if cc is None:
        return Program(python, "Python (no C compiler was found)")
    target = directory / "source"
    done = subprocess.run([cc, "-std=gnu11", "-O2", "-o", target, C_FILE], capture_output=True, text=True, check=False)
    if done.returncode:
        words = next((line for line in done.stderr.splitlines() if "error" in line), f"{cc} exited {done.returncode}")
        return Program(python, f"Python (source.c can't be compiled: {words})")
    return Program((str(target),), "C")


@contextmanager
def built(*, python_asked: bool = False) -> Iterator[Program]:
    """A program in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="token-source-") as directory:
        yield build(Path(directory), python_asked=python_asked)


@contextmanager
def serving(program: Program, schedule: Schedule, ledger: Path | None = None) -> Iterator[Running]:
    """A running source, which appends to ``ledger``. Raises RuntimeError when it doesn't start."""
    command = [*program.command, "--ttft-us", str(schedule.ttft_us), "--gap-us", str(schedule.gap_us)]
    command += ["--ids-per-event", str(schedule.ids_per_event)]
    if ledger is not None:
        command += ["--ledger", str(ledger)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline().split()
            if said[:2] != ["listening", "on"]:
                raise RuntimeError(f"the token source ended with code {process.wait()}; its error stands above")
            yield Running(int(said[2]), said[3], process.pid)
        finally:
            process.kill()
