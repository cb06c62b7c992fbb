"""Runs the ``bench`` command as a user does, in a process of its own, and watches what it says."""

import json
import os
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.launch.docker import list_ours, remove_ours

BENCH = str(Path(sysconfig.get_path("scripts")) / "bench")
Event = dict[str, Any]


class Bench:
    """One ``bench strict``, or another command that measures. With ``plain`` its lines are text, else JSON events."""

    def __init__(
        self,
        out: Path,
        *arguments: str,
        plain: bool = False,
        command: str = "strict",
        program: Sequence[str] = (BENCH,),
    ) -> None:
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        self._plain = plain
        self._lines: list[str] = []
        self._errors = ""
        self._ended = 0
        self._news = threading.Condition()
        words = [*program, command, *([] if plain else ["--json"]), "--out", str(out), *arguments]
        # Not in a checkout: launchers, images and suites must be found from anywhere.
        self._process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=out,
            start_new_session=True,
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_lines, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> str:
        with self._news:
            return "\n".join(self._lines)

    @property
    def stderr(self) -> str:
        """All of it once the process has ended."""
        return self._errors

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = 1
            self._news.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors = self._process.stderr.read()

    def _said(self) -> str:
        return f"bench said:\n{self.stdout[-4000:]}\nand on stderr:\n{self._errors[-4000:]}"

    def line(self, wanted: Callable[[str], bool], seconds: float) -> str:
        """The first line that is ``wanted``; it fails the test when none comes in time or at all."""
        deadline, seen = time.monotonic() + seconds, 0
        with self._news:
            while True:
                for line in self._lines[seen:]:
                    if wanted(line):
                        return line
                seen = len(self._lines)
                left = deadline - time.monotonic()
                assert not self._ended, f"bench ended before the line came; {self._said()}"
                assert left > 0, f"no such line within {seconds:g} s; {self._said()}"
                self._news.wait(left)

    def event(self, name: str, seconds: float, **fields: object) -> Event:
        """The first event of that name with those fields."""

        def wanted(line: str) -> bool:
            event = json.loads(line)
            return event["event"] == name and all(event[key] == value for key, value in fields.items())

        return dict(json.loads(self.line(wanted, seconds)))

    def running(self) -> bool:
        return self._process.poll() is None

    def lines(self, count: int) -> bool:
        """Whether that many lines come before it ends."""
        with self._news:
            self._news.wait_for(lambda: self._ended or len(self._lines) >= count)
            return len(self._lines) >= count

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """To its whole process group, as a terminal does it."""
        os.killpg(self._process.pid, number)

    def finish(self, seconds: float) -> int:
        """Its exit code; it fails the test when it goes on for longer."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"bench has not ended after {seconds:g} s; {self._said()}") from None
        for reader in self._readers:
            reader.join(30)
        assert "Traceback" not in self._errors, self._said()
        return self._process.returncode

    @property
    def events(self) -> list[Event]:
        with self._news:
            return [json.loads(line) for line in self._lines]

    @property
    def directory(self) -> Path:
        """The only campaign below ``out``."""
        (campaign,) = self.out.iterdir()
        return campaign

    @property
    def evidence(self) -> Event:
        return dict(json.loads((self.directory / "evidence.json").read_text(encoding="utf-8")))

    def close(self) -> None:
        """After a test that failed halfway."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
            self._process.kill()
            self._process.wait()


class Benches:
    """Starts campaigns and, at the end of a test, takes away what a failed one left: only what is its own."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._started: list[Bench] = []

    def __call__(
        self,
        out: Path,
        *arguments: str,
        plain: bool = False,
        command: str = "strict",
        program: Sequence[str] = (BENCH,),
    ) -> Bench:
        self._started.append(Bench(out, *arguments, plain=plain, command=command, program=program))
        return self._started[-1]

    def close(self) -> None:
        for bench in self._started:
            bench.close()
            for container in containers(self._client, bench.out) if self._client is not None else []:
                remove_ours(self._client, container.id, stop_s=5, gone_s=30)


def containers(client: Any, out: Path) -> list[Any]:
    """What still exists of the containers of the campaigns below ``out``, running or not."""
    campaigns = {entry.name for entry in out.iterdir()}
    return [container for container in list_ours(client) if container.campaign in campaigns]


def processes(out: Path) -> list[int]:
    """Processes on this host that were told a path below ``out``, in their environment or their arguments."""
    text, found = os.fsencode(out), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for name in ("environ", "cmdline"):
                with suppress(OSError):
                    if text in (entry / name).read_bytes():
                        found.append(int(entry.name))
    return sorted(set(found))


def verify(directory: Path) -> tuple[int, Event]:
    """``bench verify --json``: its exit code and what it found."""
    words = [BENCH, "verify", str(directory), "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def assert_verifies(directory: Path, status: str) -> Event:
    """Everything in the campaign follows from its bytes, and says ``status``."""
    code, found = verify(directory)
    assert (code, found["ok"], found["problems"], found["status"]) == (0, True, [], status)
    return found


def gates(evidence: Event) -> list[tuple[str, str, bool]]:
    """Name, subject and verdict of the gates between attempts."""
    return [(gate["name"], gate["subject"], gate["passed"]) for gate in evidence["gates"]]


def failed_gates(evidence: Event) -> list[str]:
    """Sentences of every gate of one server that failed."""
    return [
        f"{gate['name']}: {gate['failures']}" for attempt in evidence["attempts"] for gate in attempt["gates"]
        if not gate["passed"]
    ]  # fmt: skip


def failed_but_for_load(evidence: Event) -> list[str]:
    """The same without ``client``, which rightly fails while other work keeps this host's cores busy.

    For tests whose subject is the life of servers; it is no licence to publish.
    """
    return [sentence for sentence in failed_gates(evidence) if not sentence.startswith("client:")]
