"""What every engine gives: a started server that can be read back, watched, and stopped (contract section 2)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from harness.lanes import Image
from harness.plan import ServerPlan


class Record(BaseModel):
    """Base of what engines report; unknown keys are errors when it is read back from a file."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


@dataclass(frozen=True)
class Endpoint:
    """Where a server answers. ``base_path`` comes before /v1 and is empty or starts with a slash."""

    host: str
    port: int
    tls: bool = False
    base_path: str = ""

    @property
    def url(self) -> str:
        """Without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.base_path}"


@dataclass(frozen=True)
class Places:
    """Host paths and numbers an engine puts into a plan's roles."""

    campaign_id: str
    model: Path | None
    """<model>: the directory of the weights"""
    cache: Path
    """<cache>: does not exist yet; the engine makes it and refuses an existing one"""
    log: Path
    """where the server's log is written, as bytes, while it runs"""
    port: int | None = None
    """host port; None lets the engine find a free one"""
    vllm: str | None = None
    """process engine: the vllm executable"""
    cache_made: Callable[[Path], None] = lambda _: None
    """called with the new cache directory before anything is started, so that its emptiness is on record"""


class ImageFacts(Record):
    """The image as this host reports it. Id and digests are both kept because stores differ in which they show."""

    name: str
    """name of the image file"""
    id: str
    repo_digests: list[str]
    storage_driver: str
    labels: dict[str, str]
    entrypoint: list[str]
    env: dict[str, str]
    """the image's own environment"""


class Applied(Record):
    """What really runs, read back from the engine; paths reduced to roles, secrets dropped by name."""

    server_id: str
    """container id, or pid with its start time: never the same for two servers"""
    image_id: str | None
    entrypoint: list[str]
    arguments: list[str]
    env: dict[str, str]
    """the whole environment of the server"""
    image_env: dict[str, str]
    """the part of it that the image (or the harness's own minimum for a process) brings"""
    mounts: list[str]
    """``<model>:/model:ro`` and the like, sorted"""
    devices: list[str]
    group_add: list[str]
    cap_add: list[str]
    security_opt: list[str]
    ulimits: dict[str, int]
    ipc: str | None
    shm_size: int | None
    """bytes"""
    memory: int | None
    """bytes; null where nothing limits it"""
    memory_swap: int | None
    """bytes of memory + swap"""
    ports: list[str]
    """``127.0.0.1:<port>:8000``"""
    privileged: bool | None
    restart_count: int | None
    started_at: str
    """UTC, as the engine reports it"""


class Within(Record):
    """Words of the process that serves, read when the server was ready; null with a reason where they are unknown."""

    source: str
    """host /proc, docker exec, or the engine's own reading; empty where nothing was read"""
    arguments: list[str] | None
    """with roles for paths, as in the plan"""
    env: dict[str, str] | None
    """paths reduced, secrets dropped by name"""
    unknown: str = ""
    """why something of it is null"""


class ServerState(Record):
    """Alive or not, and why not."""

    running: bool | None
    """null when the engine didn't answer: then nothing is known of it"""
    exit_code: int | None = None
    oom_killed: bool | None = None
    """null where the engine can't know"""
    error: str = ""

    def sentence(self) -> str:
        """What a person needs to know of a server that isn't running."""
        if self.running is None:
            return f"whether the server runs is unknown, because {self.error}"
        if self.running:
            return f"the server is running{', but ' + self.error if self.error else ''}"
        code = "an unknown exit code" if self.exit_code is None else f"exit code {self.exit_code}"
        # Of a container's processes the kernel may take another than the first, which then gives up by itself.
        whole = self.exit_code in (137, None)
        oom = f", {'' if whole else 'a process of it '}killed for memory" if self.oom_killed else ""
        return f"the server has ended with {code}{oom}{': ' + self.error if self.error else ''}"


LOG_UNWRITABLE = "server.log can't be written"
"""How the note of a stop begins where the host's disk took the log no longer"""


class StopRecord(Record):
    """How a server ended."""

    asked_at: str
    """UTC"""
    seconds: float
    """from the stop signal to the end of the server"""
    killed: bool
    """true when it had to be killed after the stop limit"""
    state: ServerState
    gone: bool
    """container removed, or process group empty"""
    note: str = ""


class RunningServer(Protocol):
    """A server that was started."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it answers."""

    def direct_endpoint(self) -> Endpoint | None:
        """Its own address where ``endpoint`` goes through a proxy of the engine's; None where it doesn't."""

    @property
    def server_id(self) -> str:
        """See Applied.server_id."""

    def applied(self) -> Applied:
        """Read back what runs. Raises LaunchError when the engine can't say."""

    def within(self, plan: ServerPlan) -> Within:
        """What the process that serves was given, past any script before it. Never raises."""

    def last_inspect(self) -> dict[str, object]:
        """The engine's own full description, with paths reduced to roles and secrets dropped; for server.json."""

    def state(self) -> ServerState:
        """Cheap enough to be asked every second. Never raises for a server that has gone."""

    def changed(self) -> str:
        """What shows that it is no longer the server that was started; empty when nothing does. Never raises."""

    def log_bytes(self) -> int:
        """Bytes of log written so far; a server whose log doesn't grow is stalled."""

    def owns_port(self) -> bool | None:
        """Whether the listening socket at the endpoint belongs to this server; None where that can't be known."""

    def stop(self) -> StopRecord:
        """Stop, wait, kill only after the limit, remove, and finish the log file. Idempotent; never raises."""


class Engine(Protocol):
    """One way to start servers."""

    def image(self, image: Image) -> ImageFacts:
        """Find the image on this host. Raises LaunchError when it is absent or not what its file says."""

    def start(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> RunningServer:
        """Start it, with a fresh cache directory. Raises LaunchError; leaves nothing behind when it does."""

    def command(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> str:
        """The equivalent shell command (``docker run …``), for --dry-run."""
