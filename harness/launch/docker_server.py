"""A server in a container, from its start to its stop record (contract section 2)."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from docker import DockerClient

from harness.errors import LaunchError
from harness.lanes import Limits
from harness.launch.container import Container, LogCopy, Look
from harness.launch.proof import CONTAINER_PORT, applied_from_inspect, container_changes
from harness.launch.roles import utc_now
from harness.launch.server import Applied, Endpoint, ImageFacts, ServerState, StopRecord, Within
from harness.launch.within import exec_words, host_words, within_of
from harness.plan import ServerPlan
from harness.redact import Redactor, dropped_names, environment_of

KILLED = 137
"""Exit code of a process that SIGKILL ended"""


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
        self._first = container.inspect
        self._image = image
        self._limits = limits
        self._endpoint = endpoint
        self._cache = cache
        self._redactor = redactor
        self._oom: bool | None = None
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
            if self._oom is None:
                self._oom = self._late_oom()
        return self._state(look)

    def _late_oom(self) -> bool:
        state = self._container.inspect["State"]
        ours = self._asked is not None
        return (
            not ours
            and state.get("ExitCode") == KILLED
            and not state.get("OOMKilled")
            and (self._container.out_of_memory())
        )

    def _state(self, look: Look) -> ServerState:
        if look == "unreachable":
            return ServerState(running=None, error=f"the Docker engine doesn't answer ({self._container.fault})")
        state = self._container.inspect.get("State", {})
        if look == "gone":
            oom = state.get("OOMKilled") or None
            return ServerState(running=False, oom_killed=oom, error="the container is gone")
        running = look == "running"
        return ServerState(
            running=running,
            exit_code=None if running else state.get("ExitCode"),
            oom_killed=bool(state.get("OOMKilled") or self._oom),
            error=state.get("Error") or ("its container is paused" if state.get("Paused") else ""),
        )

    def changed(self) -> str:
        """What was done to the container since its start, by the engine's own record."""
        return container_changes(self._first, self._container.inspect) if self._container.look() == "running" else ""

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
        if self._log_note != "":  # not yet, or not wholly
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
        # By what was seen then: the engine that told it may be on its way out.
        state = self._state(self._container.last)
        # An engine that was waited for as long as it takes to stop a server is asked once more, not as long again.
        patience = 0.0 if state.running is None else self._limits.gone_s
        self._container.wait_until(("running", "ended", "gone"), patience)
        self._finish_log()
        gone = self._container.remove(patience)
        left = "the container could not be removed" if state.running is not None else f"unknown: {state.error}"
        notes = [self._log_note or "", "" if gone else left, self._foreign_files()]
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
