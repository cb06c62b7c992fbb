"""What the tests of kills and signals share: points to strike at, and what must hold after every one of them."""

import ctypes
import errno
import hashlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.evidence import journal
from harness.evidence.derive import derive
from harness.launch import guard
from harness.launch.docker import LABEL, list_ours, remove_ours
from tests.e2e.bench import Bench, Event, containers, failed_but_for_load, gates, processes
from tests.e2e.conftest import QuickLane
from tests.ladders import SHAPES

STEP_US = 3000
"""Of the servers: a client beside two others still keeps up with them nearly always, and campaigns pass"""
SHORT = ("--fault", "short:110")
"""The fewest ids that can be judged, so that a campaign takes some 10 s"""
END_S = 180.0
"""A campaign takes some 10 s; with others at its side, some 20"""


# --- where a process is struck ---------------------------------------------------------------------------------------

Kind = Literal["moment", "line", "file", "docker"]


@dataclass(frozen=True)
class Point:
    """``at`` seconds after the start (moment), or after so many lines, file events or Docker events; then a delay."""

    kind: Kind
    at: float
    delay_s: float = 0.0

    def __str__(self) -> str:
        where = f"{self.at:.3f} s" if self.kind == "moment" else f"{self.kind} event {self.at:.0f}"
        return f"{where} + {self.delay_s * 1e6:.0f} µs"


class Tree:
    """Counts what is made, closed after writing, renamed and removed below a directory (inotify)."""

    _MADE, _CLOSED, _MOVED, _DELETED, _FOLDER = 0x100, 0x008, 0x080, 0x200, 0x40000000

    def __init__(self, top: Path) -> None:
        self._c = ctypes.CDLL(None, use_errno=True)
        self._fd = self._c.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())
        self._paths: dict[int, Path] = {}
        top.mkdir(parents=True, exist_ok=True)
        for folder, _, _ in os.walk(top):
            self._watch(Path(folder))

    def _watch(self, folder: Path) -> None:
        mask = self._MADE | self._CLOSED | self._MOVED | self._DELETED
        number = self._c.inotify_add_watch(self._fd, os.fsencode(folder), mask)
        if number >= 0:
            self._paths[number] = folder
        else:
            assert ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR)  # it has gone again

    def news(self, seconds: float) -> int:
        """How many events came within that time; returns with the first."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return 0
        data, count = os.read(self._fd, 65536), 0
        while data:
            number, mask, _, length = struct.unpack_from("iIII", data)
            name, data = data[16 : 16 + length].rstrip(b"\0"), data[16 + length :]
            count += 1
            if mask & self._FOLDER and mask & self._MADE:
                self._watch(self._paths[number] / os.fsdecode(name))
        return count

    def close(self) -> None:
        os.close(self._fd)


class Striker:
    """Sends SIGKILL to one ``bench`` at a point; made before its start, so that no event is missed."""

    def __init__(self, client: Any, out: Path, point: Point) -> None:
        self._client, self._point = client, point
        self._tree = Tree(out) if point.kind == "file" else None
        self._begun = time.time()
        self._over = threading.Event()

    def strike(self, start: Callable[[], Bench], number: signal.Signals = signal.SIGKILL) -> tuple[Bench, int]:
        """Start it, and strike. Returns it and its exit code, which says whether it was struck or had ended before."""
        self._begun, clock = time.time(), time.monotonic()
        bench = start()
        wait = {"moment": self._moment, "line": self._line, "file": self._file, "docker": self._docker}
        thread = threading.Thread(target=self._then, args=(bench, wait[self._point.kind], clock, number), daemon=True)
        thread.start()
        try:
            return bench, bench.finish(END_S)
        finally:
            self._over.set()
            thread.join(30)
            assert not thread.is_alive()
            if self._tree is not None:
                self._tree.close()

    def _then(self, bench: Bench, wait: Callable[[Bench, float], bool], clock: float, number: signal.Signals) -> None:
        if wait(bench, clock):
            until = time.perf_counter() + self._point.delay_s
            while (left := until - time.perf_counter()) > 0:
                if left > 0.002:
                    time.sleep(left - 0.002)
            bench.send(number)

    def _moment(self, bench: Bench, clock: float) -> bool:
        return not self._over.wait(max(0.0, clock + self._point.at - time.monotonic()))

    def _line(self, bench: Bench, clock: float) -> bool:
        return bench.lines(int(self._point.at))

    def _file(self, bench: Bench, clock: float) -> bool:
        assert self._tree is not None
        seen = 0
        while seen < self._point.at and not self._over.is_set():
            seen += self._tree.news(0.2)
        return seen >= self._point.at

    def _docker(self, bench: Bench, clock: float) -> bool:
        seen = 0
        while not self._over.is_set():
            seen = docker_events(self._client, bench.pid, self._begun, time.time() + 0.25, int(self._point.at))
            if seen >= self._point.at:
                return True
        return False


def docker_events(client: Any, pid: int, since: float, until: float, enough: int) -> int:
    """How many events the containers of one ``bench`` had; returns at once when there are ``enough``."""
    stream = client.events(since=since, until=until, filters={"type": "container", "label": f"{LABEL}pid={pid}"})
    count = 0
    with suppress(StopIteration):
        while count < enough:
            next(stream)
            count += 1
    stream.close()
    return count


# --- what must hold afterwards ---------------------------------------------------------------------------------------


class Commands:
    """``bench`` commands that nobody disturbs, in forks of a process with the imports behind it: one a thread."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._all: list[subprocess.Popen[str]] = []

    def _zygote(self) -> "subprocess.Popen[str]":
        if not hasattr(self._mine, "process"):
            words, root = [sys.executable, "-m", "tests.e2e.zygote"], Path(__file__).resolve().parents[2]
            pipe = subprocess.PIPE
            self._mine.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=root)
            self._all.append(self._mine.process)
        process: subprocess.Popen[str] = self._mine.process
        return process

    def __call__(self, *words: str | Path) -> tuple[int, Any, str]:
        """``bench WORDS --json``: its exit code, what it printed, its standard error."""
        process = self._zygote()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([*map(str, words), "--json"]) + "\n")
        process.stdin.flush()
        done = json.loads(process.stdout.readline())
        assert "Traceback" not in done["err"], done["err"]
        return done["code"], json.loads(done["out"]) if done["out"] else None, done["err"]

    def close(self) -> None:
        for process in self._all:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
        self.__init__()  # type: ignore[misc]


command = Commands()


def campaign_below(out: Path) -> Path | None:
    found = list(out.iterdir()) if out.is_dir() else []
    assert len(found) < 2, found
    return found[0] if found else None


def journal_events(directory: Path | None) -> list[Event]:
    """The whole lines of the journal as plain JSON; none where there is none."""
    path = None if directory is None else directory / journal.NAME
    data = path.read_bytes() if path is not None and path.is_file() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def half_written(directory: Path) -> list[str]:
    """What was begun under a name of its own and never took its place."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.suffix in (".tmp", ".part"))


def hashes(directory: Path) -> dict[str, str]:
    """Every file of the attempts, and what was sent."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.suffix not in (".tmp", ".part")]
    kept = {path.relative_to(directory).as_posix(): path for path in files}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in kept.items()
        if name not in (journal.NAME, "evidence.json", "manifest.json") and not name.startswith("caches/")
    }


def stage_of(lines: Sequence[Event], directory: Path | None) -> str:
    """Where a campaign was when its process died, by what it had said and written."""
    if directory is None:
        return "before the directory"
    if not journal_events(directory):
        return "directory, nothing recorded"
    last = next((line for line in reversed(lines) if line["event"] not in ("note", "campaign")), None)
    if last is None:
        return "before the first server"
    if last["event"] == "stage":
        text = str(last["text"])
        words = ("starting,", "starting", "asking", "canaries before", "prompt", "canaries after", "stopping")
        word = next((word for word in words if text.startswith(word)), text.split(" ")[0])
        return {"starting,": "waiting for readiness", "asking": "waiting for readiness"}.get(word, word)
    ends = {"attempt": "before a server", "row": "prompt", "gate": "end", "ended": "end"}
    return ends.get(last["event"], "between servers, writing evidence")


def containers_of(client: Any, campaign: str, *pids: int) -> list[str]:
    """Labels of servers of a campaign, or of these processes, that still exist."""
    return [item.label for item in list_ours(client) if item.campaign == campaign or item.pid in pids]


def session_of(pid: int) -> list[int]:
    """Living processes of the session that ``pid`` began."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [one for one in pids if (entry := guard.stat(one)) is not None and entry.session == pid and entry.alive]


def assert_nothing_left(client: Any, out: Path, *pids: int) -> None:
    """No process, no container, no cache, no half-written file."""
    directory = campaign_below(out)
    assert containers_of(client, directory.name if directory is not None else "", *pids) == []
    assert processes(out) == [] and [one for pid in pids for one in session_of(pid)] == []
    if directory is not None:
        assert not (directory / "caches").exists()
        assert half_written(directory) == []


def assert_recorded(bench: Bench, directory: Path | None, *, struck: str = "interrupted") -> str:
    """What was recorded before a process died is there and verifies; its status, empty where nothing was recorded."""
    if directory is None:
        return ""
    events = journal_events(directory)
    code, found, errors = command("verify", directory)
    assert errors == ""
    if not events:
        (problem,) = found["problems"]
        assert (code, found["ok"]) == (1, False)
        assert "nothing was recorded" in problem and "start anew" in problem and "\n" not in problem
        return ""
    assert (code, found["ok"], found["problems"]) == (0, True, []), found
    started = any(event["event"] == "attempt-started" for event in events)
    if events[-1]["event"] != "campaign-ended":
        assert found["status"] == (struck if started else "started"), found
    evidence = json.loads(derive(directory).model_dump_json())
    attempts = {attempt["directory"]: attempt for attempt in evidence["attempts"]}
    current = {}
    for line in bench.events:
        if line["event"] == "attempt":
            current[line["label"]] = line["directory"]
        elif line["event"] == "row":
            row = attempts[current[line["label"]]]["rows"][line["index"]]
            assert (row["prompt_id"], len(row["token_ids"]), row["reason"]) == (
                line["prompt_id"],
                line["tokens"],
                line["reason"],
            )
        elif line["event"] == "attempt-ended":
            assert attempts[current[line["label"]]]["status"] == line["status"]
    return str(found["status"])


def assert_goes_on(bench: Bench, code: int, kept: dict[str, str]) -> bool:
    """A campaign that was resumed, or started anew, came to its verdict; whether only ``client`` kept it from passing.

    ``kept``: hashes of what was recorded before, which nobody may have touched since.
    """
    evidence, directory = bench.evidence, bench.directory
    assert failed_but_for_load(evidence) == []
    if evidence["kind"] == "ladder":
        assert [reason for reason in evidence["reasons"] if "the client" not in reason] == []
        assert evidence["passes_done"] == evidence["start"]["plan"]["ladder"]["passes"]
    else:
        assert [(name, passed) for name, _, passed in gates(evidence)] == [("G1", True)]
    busy = evidence["status"] == "withheld"
    assert (evidence["status"], code) == (("withheld", 1) if busy else ("passed", 0)), evidence["conclusion"]
    now = hashes(directory)
    assert {name: now.get(name) for name in kept} == kept
    code, found, _ = command("verify", directory)
    assert (code, found["problems"], found["status"]) == (0, [], evidence["status"])
    return bool(busy)


class Case:
    """One campaign in a place of its own, with a launcher of its own name; ``server`` are arguments of its servers."""

    def __init__(
        self,
        client: Any,
        home: Path,
        image: str,
        *server: str,
        options: Sequence[str] = (),
        command: str = "strict",
    ) -> None:
        self.client, self.out, self._command = client, home / "out", command
        home.mkdir(exist_ok=True)
        lane = QuickLane(home / "lane", image, name=f"kill-{os.getpid()}-{home.name.lower()}")
        words = lane(*server, *(SHORT if command == "strict" else ()), step_us=STEP_US)
        if command == "ladder":
            words = words[:4]  # with the suite of all ladders
            path = home / "lane" / "lane.toml"
            path.write_text(path.read_text() + SHAPES)
        self._options = [*words, *options, "--mtp", "0"]
        self.pids: list[int] = []
        self._started: list[Bench] = []

    def __enter__(self) -> "Case":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *words: str) -> Bench:
        bench = Bench(self.out, *self._options, *words, command=self._command)
        self._started.append(bench)
        self.pids.append(bench.pid)
        return bench

    def clean(self) -> list[Any]:
        """``bench clean`` of this campaign leaves nothing; what it has removed."""
        directory, items = campaign_below(self.out), list[Any]()
        if self._command == "ladder":  # the container of its self-test, which is no campaign's
            command("clean", "--out", self.out)
        if directory is not None:
            code, found, errors = command("clean", directory.name, "--out", self.out)
            items = found["items"]
            assert (code, errors, found["ok"]) == (0, "", True)
            assert {item["state"] for item in items} <= {"removed"}, items
        assert_nothing_left(self.client, self.out, *self.pids)
        return items

    def close(self) -> None:
        """After a failed test: end and remove what is its own."""
        for bench in self._started:
            bench.close()
        for left in containers(self.client, self.out) if self.out.is_dir() else []:
            remove_ours(self.client, left.id, stop_s=5, gone_s=30)
