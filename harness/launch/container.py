"""One container of ours: looked at, its log copied, ended by our own deadlines, and removed (contract section 2)."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from harness.unwritable import LOCAL, sync, unwritable

FAULTS = (DockerException, RequestException, HTTPError, OSError)
"""Whatever the SDK raises when the engine says no, doesn't answer, or goes away in the middle."""

POLL_S = 0.1
JOIN_S = 2.0
"""How long the end waits for the log's reader; the engine's own copy is complete without it."""
PATIENCE_S = 60
"""How long a look or a signal waits for an engine that has the connection and says nothing"""

Look = Literal["running", "ended", "gone", "unreachable"]


def explain(error: BaseException) -> str:
    """What an SDK error says, on one line."""
    text = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return " ".join(str(text).split()).rstrip(".")


class Container:
    """Looks and signals that never raise for a container that has gone or an engine that doesn't answer."""

    def __init__(self, client: DockerClient, container_id: str) -> None:
        self.client = client
        self.id = container_id
        self.inspect: dict[str, Any] = {}
        """the last answer; kept when the container is gone"""
        self.fault = ""
        self.last: Look = "unreachable"
        """what the last look saw"""

    def look(self) -> Look:
        """Ask the engine."""
        self.last = self._look()
        return self.last

    def _look(self) -> Look:
        try:
            with self.patience():
                self.inspect = dict(self.client.api.inspect_container(self.id))
        except NotFound:
            return "gone"
        except FAULTS as error:
            self.fault = explain(error)
            return "unreachable"
        return "running" if self.inspect["State"]["Running"] else "ended"

    def signal(self, signal: str) -> bool:
        """Send one. Returns whether the engine took it; a container that has just ended takes none.

        One that can't end (it hangs in the kernel, or is frozen) was sent it all the same, though the engine says 500.
        """
        try:
            with self.patience():
                self.client.api.kill(self.id, signal)
        except APIError as error:
            return error.is_server_error()
        except FAULTS:
            return False
        return True

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Shorter than a start may take: an engine that hangs must not hold a look as long."""
        api = self.client.api
        whole, api.timeout = api.timeout, min(PATIENCE_S, api.timeout)
        try:
            yield
        finally:
            api.timeout = whole

    def out_of_memory(self) -> bool:
        """Whether the engine is told so, by a second from now: its State misses it where the end was told before."""
        wanted, until = {"container": self.id, "event": "oom"}, int(time.time()) + 2
        with suppress(*FAULTS), self.patience():
            events = self.client.api.events(since=1, until=until, filters=wanted, decode=True)
            with closing(events):
                return any(True for _ in events)
        return False

    def wait_until(self, until: tuple[Look, ...], seconds: float) -> bool:
        """Look until one of these is seen. Returns whether it was, within ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.look() not in until:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def end(self, stop_s: float, gone_s: float) -> bool:
        """Stop signal, wait, kill only after ``stop_s``. Returns whether it was killed.

        Our own loop, because the SDK's ``stop`` and ``wait`` count HTTP time, not the container's. An engine that is
        away is waited for as long, and told when it is back; ``stop_s`` counts from when it took the signal.
        """
        ended, _ = self._send("", stop_s)
        if ended:
            return False
        _, killed = self._send("SIGKILL", gone_s)
        return killed

    def _send(self, signal: str, seconds: float) -> tuple[bool, bool]:
        """Whether the container ended in time, and whether the engine took the signal (its own stop signal if none)."""
        deadline, taken = time.monotonic() + seconds, False
        while (look := self.look()) not in ("ended", "gone"):
            if look == "running" and not taken:
                word = signal or self.inspect.get("Config", {}).get("StopSignal") or "SIGTERM"
                if taken := self.signal(word):
                    deadline = time.monotonic() + seconds
            if time.monotonic() >= deadline:
                return False, taken
            time.sleep(POLL_S)
        return True, taken

    def remove(self, gone_s: float) -> bool:
        """Remove it with its anonymous volumes. Returns whether it is gone within ``gone_s``."""
        deadline = time.monotonic() + gone_s
        while True:
            with suppress(*FAULTS), self.patience():
                self.client.api.remove_container(self.id, force=True, v=True)
            if self.wait_until(("gone",), min(5.0, gone_s)):
                return True
            if time.monotonic() >= deadline:
                return False


class LogCopy:
    """Copies a container's log to a file as bytes while it runs; chunks are neither lines nor whole characters."""

    def __init__(self, client: DockerClient, container: Container, path: Path) -> None:
        self._client = client
        """a client of its own: the reader holds a connection for as long as the server lives"""
        self._container = container
        self._path = path
        self._written = 0
        self._ended = threading.Event()
        self._stream: Any = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._thread = threading.Thread(target=self._run, name="server-log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._file:
            while not self._ended.is_set():
                try:
                    self._follow()
                    if not self._client.api.inspect_container(self._container.id)["State"]["Running"]:
                        return
                except NotFound:
                    return
                except FAULTS:
                    pass  # the engine restarts, or the disk is full: the end fetches what is missing
                self._ended.wait(1.0)

    def _follow(self) -> None:
        """One connection; after a broken one the engine tells the log from its start, so skip what is written."""
        skip = self._written
        self._stream = self._client.api.logs(self._container.id, stdout=True, stderr=True, stream=True, follow=True)
        for chunk in self._stream:
            fresh = chunk[skip:]
            skip -= len(chunk) - len(fresh)
            while fresh:  # a disk that fills up takes a part first
                taken = self._file.write(fresh)
                self._written += taken
                fresh = fresh[taken:]

    def finish(self) -> str:
        """Put the engine's own copy in place of the streamed one. Returns a note when that can't be done."""
        self._ended.set()
        with suppress(Exception):
            if self._thread.is_alive() and self._stream is not None:
                self._thread.join(JOIN_S)
                self._stream.close()
        self._thread.join(JOIN_S)
        complete = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            with complete.open("wb") as file, self._container.patience():
                for chunk in self._container.client.api.logs(self._container.id, stream=True, follow=False):
                    file.write(chunk)
                file.flush()
                sync(file.fileno())
            if complete.stat().st_size < self._written:
                complete.unlink()
                return "the engine kept less of the log than was read while it ran; the longer copy was kept"
            complete.replace(self._path)
        except FAULTS as error:
            with suppress(OSError):
                complete.unlink(missing_ok=True)
            if isinstance(error, OSError) and not isinstance(error, RequestException) and error.errno in LOCAL:
                return str(unwritable(self._path, error))
            return f"the log may miss its last lines, because the engine didn't give them again ({explain(error)})"
        return ""

    def bytes(self) -> int:
        """Size of the file."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


@dataclass(frozen=True)
class Ours:
    """A container that some campaign of this harness started."""

    id: str
    campaign: str
    label: str
    running: bool
    pid: int | None
    """of the harness that started it"""
    run: str
    """the same process as ``harness.launch.runs.mark`` tells it; empty where the container has no such label"""
