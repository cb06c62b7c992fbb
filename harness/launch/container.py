"""One container of ours: watched, its log copied, stopped by our own deadlines, and removed (contract section 2)."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from harness.errors import LaunchError
from harness.lanes import Limits
from harness.launch.proof import CONTAINER_PORT, applied_from_inspect
from harness.launch.redact import Redactor, dropped_names, environment_of
from harness.launch.roles import utc_now
from harness.launch.server import Applied, Endpoint, ImageFacts, ServerState, StopRecord, Within
from harness.launch.within import exec_words, host_words, within_of
from harness.plan import ServerPlan

FAULTS = (DockerException, RequestException, HTTPError, OSError)
"""Whatever the SDK raises when the engine says no, doesn't answer, or goes away in the middle."""

POLL_S = 0.1
JOIN_S = 2.0
"""How long the end waits for the log's reader; the engine's own copy is complete without it."""

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

    def look(self) -> Look:
        """Ask the engine."""
        try:
            self.inspect = dict(self.client.api.inspect_container(self.id))
        except NotFound:
            return "gone"
        except FAULTS as error:
            self.fault = explain(error)
            return "unreachable"
        return "running" if self.inspect["State"]["Running"] else "ended"

    def signal(self, signal: str) -> bool:
        """Send one. Returns whether the engine took it; a container that has just ended takes none."""
        try:
            self.client.api.kill(self.id, signal)
        except FAULTS:
            return False
        return True

    def _wait(self, until: tuple[Look, ...], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.look() not in until:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def end(self, stop_s: float, gone_s: float) -> bool:
        """Stop signal, wait, kill only after ``stop_s``. Returns whether it was killed.

        Our own loop, because the SDK's ``stop`` and ``wait`` count HTTP time, not the container's.
        """
        if self.look() in ("ended", "gone"):
            return False
        self.signal(self.inspect.get("Config", {}).get("StopSignal") or "SIGTERM")
        if self._wait(("ended", "gone"), stop_s):
            return False
        killed = self.signal("SIGKILL")
        self._wait(("ended", "gone"), gone_s)
        return killed

    def remove(self, gone_s: float) -> bool:
        """Remove it with its anonymous volumes. Returns whether it is gone within ``gone_s``."""
        deadline = time.monotonic() + gone_s
        while True:
            with suppress(*FAULTS):
                self.client.api.remove_container(self.id, force=True, v=True)
            if self._wait(("gone",), min(5.0, gone_s)):
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
            if fresh:
                self._file.write(fresh)
                self._written += len(fresh)

    def finish(self) -> str:
        """Put the engine's own copy in place of the streamed one. Returns a note when that can't be done."""
        self._ended.set()
        with suppress(Exception):
            if self._thread.is_alive() and self._stream is not None:
                self._thread.join(JOIN_S)
                self._stream.close()
        self._thread.join(JOIN_S)
        complete = self._path.with_name(self._path.name + ".part")
        try:
            with complete.open("wb") as file:
                for chunk in self._container.client.api.logs(self._container.id, stream=True, follow=False):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if complete.stat().st_size < self._written:
                complete.unlink()
                return "the engine kept less of the log than was read while it ran; the longer copy was kept"
            complete.replace(self._path)
        except FAULTS as error:
            with suppress(OSError):
                complete.unlink(missing_ok=True)
            return f"the log may miss its last lines, because the engine didn't give them again ({explain(error)})"
        return ""

    def bytes(self) -> int:
        """Size of the file."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


class DockerServer:
    """A server in a container; see ``RunningServer``."""

    def __init__(
        self,
        container: Container,
        *,
        log_client: Callable[[], DockerClient],
        image: ImageFacts,
        limits: Limits,
        endpoint: Endpoint,
        log: Path,
        cache: Path,
        redactor: Redactor,
    ) -> None:
        self._container = container
        self._image = image
        self._limits = limits
        self._endpoint = endpoint
        self._cache = cache
        self._redactor = redactor
        self._asked: tuple[str, float] | None = None
        self._log_note: str | None = None
        self._stopped: StopRecord | None = None
        self._log = LogCopy(log_client(), container, log)

    @property
    def endpoint(self) -> Endpoint:
        """The published port on loopback."""
        return self._endpoint

    def direct_endpoint(self) -> Endpoint | None:
        """The container's own address on Docker's bridge, which goes around the port proxy; None without one."""
        networks = self._container.inspect.get("NetworkSettings", {}).get("Networks", {})
        address = next((net.get("IPAddress") for net in networks.values() if net.get("IPAddress")), None)
        return None if address is None else Endpoint(str(address), CONTAINER_PORT)

    @property
    def server_id(self) -> str:
        """The container's id."""
        return self._container.id

    def applied(self) -> Applied:
        """From ``docker inspect``. Raises LaunchError when the container is gone or the engine doesn't answer."""
        if self._container.look() in ("gone", "unreachable"):
            raise LaunchError(f"the server's container can't be read back: {self.state().error}; look at Docker's log")
        return applied_from_inspect(
            self._container.inspect,
            self._redactor,
            image_env=self._image.env,
            host_port=self._endpoint.port,
        )

    def within(self, plan: ServerPlan) -> Within:
        """From this host's /proc; by an exec in the container where that can't be read, or the engine is elsewhere."""
        self._container.look()
        pid = self._container.inspect.get("State", {}).get("Pid") or 0
        found, source = host_words(self.server_id, pid), "host /proc"
        if not any(words.env for words in found):
            found, source = exec_words(self._container.client, self.server_id), "docker exec"
        return within_of(found, source, plan, self._redactor)

    def last_inspect(self) -> dict[str, object]:
        """``docker inspect``, redacted, with the names of the variables that were dropped."""
        self._container.look()
        inspect = self._container.inspect
        tree = self._redactor.extended({str(Path.home()): "<home>"}).tree(inspect)
        env = environment_of(inspect.get("Config", {}).get("Env") or [])
        return {**(tree if isinstance(tree, dict) else {}), "DroppedVariables": dropped_names(env)}

    def state(self) -> ServerState:
        """From the engine; a look at a server that has ended completes its log, because somebody will read it now."""
        if self._stopped is not None:
            return self._stopped.state
        look = self._container.look()
        if look == "ended":
            self._finish_log()
        return self._state(look)

    def _state(self, look: Look) -> ServerState:
        if look == "unreachable":
            return ServerState(running=False, error=f"the Docker engine doesn't answer ({self._container.fault})")
        state = self._container.inspect.get("State", {})
        if look == "gone":
            oom = state.get("OOMKilled") or None
            return ServerState(running=False, oom_killed=oom, error="the container is gone")
        running = look == "running"
        return ServerState(
            running=running,
            exit_code=None if running else state.get("ExitCode"),
            oom_killed=bool(state.get("OOMKilled")),
            error=state.get("Error") or "",
        )

    def log_bytes(self) -> int:
        """Size of the log file."""
        return self._log.bytes()

    def owns_port(self) -> bool | None:
        """Docker holds the host's port for exactly one running container; is it this one?"""
        look = self._container.look()
        if look == "unreachable":
            return None
        published = self._container.inspect.get("NetworkSettings", {}).get("Ports", {}).get(f"{CONTAINER_PORT}/tcp")
        ours = {"HostIp": self._endpoint.host, "HostPort": str(self._endpoint.port)}
        return look == "running" and published == [ours]

    def _finish_log(self) -> None:
        if self._log_note is None:
            self._log_note = self._log.finish()

    def stop(self) -> StopRecord:
        """Stop signal, at most ``stop_s``, kill, log, remove, gone within ``gone_s``."""
        if self._stopped is not None:
            return self._stopped
        if self._asked is None:  # an interrupted stop goes on from its first signal
            self._asked = (utc_now(), time.monotonic())
        asked_at, begun = self._asked
        ended_before = self._container.look() in ("ended", "gone")
        killed = self._container.end(self._limits.stop_s, self._limits.gone_s)
        seconds = 0.0 if ended_before else time.monotonic() - begun
        state = self._state(self._container.look())
        self._finish_log()
        gone = self._container.remove(self._limits.gone_s)
        notes = [self._log_note or "", "" if gone else "the container could not be removed", self._foreign_files()]
        self._stopped = StopRecord(
            asked_at=asked_at,
            seconds=round(seconds, 3),
            killed=killed,
            state=state,
            gone=gone,
            note="; ".join(note for note in notes if note),
        )
        return self._stopped

    def _foreign_files(self) -> str:
        """The container's root owns what it wrote; only root may delete it."""
        user = os.geteuid()
        with suppress(OSError):
            if user != 0 and any(entry.stat(follow_symlinks=False).st_uid != user for entry in os.scandir(self._cache)):
                return "the cache directory holds files of the container's root, which only root can delete"
        return ""


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
