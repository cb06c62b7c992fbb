"""Holds a server process for a harness, and ends it when the harness is gone. Standard library only: it runs alone.

stdin: one JSON line ``{"argv", "env", "cwd", "log", "tmp", "stop_s"}``; then it stays open, and its end means that the
harness has died, by whatever way. stdout: JSON lines ``{"pid", "started"}`` or ``{"error"}``, later ``{"exit"}``.
The directory ``tmp`` is deleted when the server has ended.
The guard adopts the orphans of its server (subreaper), so that workers in sessions of their own are found too.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
KILL_S = 10.0
EXEC_WAIT_S = 1.0
"""How long killed processes may take to be gone."""


class Stat(NamedTuple):
    """Of /proc/PID/stat."""

    state: str
    parent: int
    session: int
    started: int
    """clock ticks after boot: with it a process id is never mistaken for a later one"""

    @property
    def alive(self) -> bool:
        """A zombie is not."""
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - no pathlib, for a fast start
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def family(root: int, session: int) -> list[int]:
    """Living processes of ``session``, and living descendants of ``root``, which is not one of them itself."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    found = {pid: entry for pid in pids if (entry := stat(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, entry in found.items():
        children.setdefault(entry.parent, []).append(pid)
    ours = {pid for pid, entry in found.items() if entry.session == session}
    ahead = [root, *ours]
    while ahead:
        for child in children.get(ahead.pop(), []):
            if child not in ours:
                ours.add(child)
                ahead.append(child)
    return sorted(pid for pid in ours - {root, os.getpid()} if found[pid].alive)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def end_family(server: int, root: int, stop_s: float, reap: Callable[[], None] = lambda: None) -> bool:
    """SIGTERM to the server alone, as ``docker stop`` does; then to what it leaves behind; SIGKILL after ``stop_s``.

    The workers are not signalled while their server lives: one that ends inside a collective wedges a card.
    Returns whether it came to a kill.
    """
    deadline = time.monotonic() + stop_s
    asked: set[int] = set()
    killed = False
    while left := family(root, server):
        if time.monotonic() >= deadline + (KILL_S if killed else 0.0):
            if killed:
                break
            killed = True
        if killed:
            _send(left, signal.SIGKILL)  # again and again: a process may have been forked in between
        else:
            due = [server] if server in left else left
            _send([pid for pid in due if pid not in asked], signal.SIGTERM)
            asked.update(due)
        reap()
        time.sleep(POLL_S)
    return killed


def _report(**fact: object) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fact).encode() + b"\n")


def _launch(spec: dict[str, Any]) -> int:
    guard, libc = os.getpid(), ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def die_with_guard() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)

    with open(spec["log"], "ab", buffering=0) as log:  # noqa: PTH123
        server = subprocess.Popen(
            spec["argv"],
            env=spec["env"],
            cwd=spec["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_guard,  # noqa: PLW1509 - this process has one thread
        )
    return server.pid


def main() -> int:
    """Start the server, report, and hold it until it has ended, or until the harness has."""
    ended: list[int] = []
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Handlers, not SIG_IGN: what is ignored stays ignored in the server.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.append(1))
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            return 1
        line += piece
    spec = json.loads(line)
    try:
        return _hold(spec, ended, wake_read)
    finally:
        shutil.rmtree(spec["tmp"], ignore_errors=True)


def _proc_text(pid: int, name: str) -> str:
    """A file of /proc/<pid>; empty when it can't be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def words_of(pid: int) -> dict[str, str]:
    """``cmdline`` and ``environ`` of one program; empty when they can't be read, or the process has ended.

    Both are empty for a moment in an exec: the kernel sets up the stack where they stand after the old program is gone
    (and after Popen has returned); ``#!/usr/bin/env python3`` is two of them. So they are read until they hold
    something, and stand for the same program.
    """
    deadline = time.monotonic() + EXEC_WAIT_S
    while True:
        words = {name: _proc_text(pid, name) for name in ("cmdline", "environ")}
        if all(words.values()) and words["cmdline"] == _proc_text(pid, "cmdline"):
            return words
        entry = stat(pid)
        if entry is None or not entry.alive or time.monotonic() > deadline:
            return words
        time.sleep(0.001)


def _hold(spec: dict[str, Any], ended: list[int], wake: int) -> int:
    try:
        server = _launch(spec)
    except OSError as error:
        _report(error=error.strerror or str(error))
        return 1
    # Read at once and here: a server that sets its title overwrites both in its own memory.
    first = words_of(server)
    entry = stat(server)
    _report(pid=server, started=0 if entry is None else entry.started, **first)

    def reap() -> None:
        with contextlib.suppress(ChildProcessError):
            while (status := os.waitpid(-1, os.WNOHANG))[0]:
                if status[0] == server:
                    _report(exit=os.waitstatus_to_exitcode(status[1]))

    while True:
        reap()
        if stat(server) is None and not family(os.getpid(), server):
            return 0
        ready = select.select([0, wake], [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
        if ended or (0 in ready and not os.read(0, 4096)):
            end_family(server, os.getpid(), float(spec["stop_s"]), reap)
            reap()
            return 0


if __name__ == "__main__":
    sys.exit(main())
