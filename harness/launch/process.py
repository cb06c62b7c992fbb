"""The process engine: ``vllm serve`` without a container, in a session of its own, held by a guard."""

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import LaunchError, UsageError
from harness.lanes import Image, Limits
from harness.launch import guard
from harness.launch.proof import roles_in_arguments
from harness.launch.roles import LOOPBACK, filled, host_port, make_cache, model_directory, remove_cache, utc_now
from harness.launch.server import Applied, Endpoint, ImageFacts, Places, ServerState, StopRecord, Within
from harness.plan import ServerPlan
from harness.redact import Redactor, dropped_names, environment_of, home_roles

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_S = 30.0
"""How long the guard may take to start a program."""
REPORT_S = 2.0
"""How long the guard may take to tell an exit code."""

LISTEN = "0A"
LOCAL_ADDRESSES = ("0100007F", "0000000000000000FFFF00000100007F")
ANY_ADDRESSES = ("00000000", "0" * 32)


@dataclass(frozen=True)
class Program:
    """What stands before a server's arguments."""

    words: list[str]
    entrypoint: list[str]
    """the same as ``Applied.entrypoint`` shows it, without host paths"""
    path: str
    """PATH"""
    cwd: str


def vllm_program(places: Places) -> Program:
    """``places.vllm``, or the vllm on PATH. Raises LaunchError when there is none."""
    found = shutil.which(places.vllm or "vllm")
    if found is None:
        if places.vllm is None:
            raise LaunchError("no vllm is on PATH; give the executable with --vllm")
        raise LaunchError(f"{places.vllm} is not an executable; correct --vllm")
    vllm = Path(found).absolute()
    return Program([str(vllm), "serve"], ["vllm", "serve"], f"{vllm.parent}:{SYSTEM_PATH}", "/")


def listening_inodes(port: int) -> set[str]:
    """Inodes of the sockets that get a connection to 127.0.0.1:``port``; an exact address goes before a wildcard."""
    exact, wildcard = set(), set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                address, _, number = fields[1].partition(":")
                if fields[3] == LISTEN and int(number, 16) == port:
                    exact |= {fields[9]} if address in LOCAL_ADDRESSES else set()
                    wildcard |= {fields[9]} if address in ANY_ADDRESSES else set()
    return exact or wildcard


def socket_inodes(pid: int) -> set[str]:
    """Inodes of a process's sockets. Raises PermissionError for somebody else's process."""
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def split_words(text: str) -> list[str]:
    """The words of such a file, each of which ends in a NUL."""
    return text.removesuffix("\0").split("\0") if text else []


class ProcessEngine:
    """See ``Engine``."""

    def __init__(self, program: Callable[[Places], Program] = vllm_program) -> None:
        self._program = program

    def image(self, image: Image) -> ImageFacts:
        """There is none. Raises UsageError."""
        raise UsageError(f"image {image.name} can only be started by the docker engine; leave --image out")

    def start(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> "ProcessServer":
        """Start the program with exactly the plan's environment and a minimal base."""
        if image is not None:
            raise UsageError(f"the {plan.engine} engine starts no image; leave --image out")
        program, model = self._program(places), model_directory(plan, places)
        port = host_port(places.port)
        make_cache(places)
        try:
            return ProcessServer(plan, places, program, model, port)
        except BaseException as error:
            remove_cache(places)
            if isinstance(error, OSError):
                raise LaunchError(
                    f"server {plan.label} can't be started ({error}); see whether this Python "
                    "runs in an empty environment"
                ) from None
            raise

    def command(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> str:
        """``env -i NAME=value … vllm serve …``."""
        del image
        program = self._program(places)
        arguments, env = _filled(plan, places, places.model, "<port>" if places.port is None else str(places.port))
        base = _base(program, places, "/tmp")  # noqa: S108 - a started server gets one of its own
        variables = [f"{name}={value}" for name, value in {**base, **env}.items()]
        return shlex.join(["env", "-i", *variables, *program.words, *arguments])


def _filled(plan: ServerPlan, places: Places, model: Path | None, port: str) -> tuple[list[str], dict[str, str]]:
    where = "<model>" if model is None else str(model.absolute())
    return filled(plan, {"<model>": where, "<cache>": str(places.cache.absolute()), "<port>": port})


def _base(program: Program, places: Places, tmp: str) -> dict[str, str]:
    """All that a server gets beyond its plan; what knows no cache variable caches below HOME.

    TMPDIR is not in the cache directory, because vLLM makes sockets there, whose paths may have 107 bytes at most.
    """
    return {"PATH": program.path, "HOME": f"{places.cache.absolute()}/home", "LANG": "C.UTF-8", "TMPDIR": tmp} | (
        library_path()
    )


def library_path() -> dict[str, str]:
    """Where this host's shared libraries are, when that is set: a Python, or oneAPI's, may not start without it."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if os.environ.get(name)}


class Guard:
    """The guard process and what it reports."""

    def __init__(self, spec: dict[str, object], end_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            env=library_path(),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._facts: dict[str, int | str] = {}
        self._rest = b""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(spec).encode() + b"\n")
            self._process.stdin.flush()
            if "error" in self.facts(("pid", "error"), START_S):
                raise LaunchError(f"the server's program can't be started: {self._facts['error']}; correct --vllm")
            if "pid" not in self._facts:
                raise LaunchError("the guard of the server didn't start it; look at this host's load and memory")
        except BaseException:
            self.close(end_s)
            raise

    def facts(self, wanted: tuple[str, ...], seconds: float) -> dict[str, int | str]:
        """What was reported, after waiting at most ``seconds`` for one of ``wanted``."""
        deadline = time.monotonic() + seconds
        out = self._process.stdout
        while out is not None and not out.closed and not any(name in self._facts for name in wanted):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([out], [], [], left)[0]:
                break
            piece = os.read(out.fileno(), 65536)
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._facts.update(json.loads(line))
            if not piece:
                break
        return self._facts

    def close(self, seconds: float) -> None:
        """Let it go: it ends what is left of its server, then itself."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


KILL_WAIT_S = guard.KILL_S + REPORT_S


class ProcessServer:
    """A server process; see ``RunningServer``."""

    def __init__(self, plan: ServerPlan, places: Places, program: Program, model: Path | None, port: int) -> None:
        plan = plan.given
        self._program = program
        self._limits: Limits = plan.limits
        self._log = places.log
        self._endpoint = Endpoint(LOOPBACK, port)
        self._tmp = tmp = tempfile.mkdtemp(prefix="b70-")
        roles = {str(places.cache.absolute()): "<cache>", tmp: "<tmp>", str(Path(program.words[0]).parent): "<program>"}
        roles = home_roles() | roles
        self._redactor = Redactor(roles if model is None else {**roles, str(model): "<model>"})
        self._base = _base(program, places, tmp)
        self._asked: tuple[str, float] | None = None
        self._stopped: StopRecord | None = None
        arguments, env = _filled(plan, places, model, str(port))
        spec: dict[str, object] = {"argv": [*program.words, *arguments], "env": {**self._base, **env}, "tmp": tmp}
        spec |= {"cwd": program.cwd, "log": str(places.log.absolute()), "stop_s": plan.limits.stop_s}
        try:
            (places.cache / "home").mkdir()
            places.log.parent.mkdir(parents=True, exist_ok=True)
            places.log.write_bytes(b"")
            self._guard = Guard(spec, plan.limits.stop_s + KILL_WAIT_S)
        except BaseException:
            shutil.rmtree(tmp, ignore_errors=True)
            raise
        facts = self._guard.facts(("pid",), 0)
        self._pid, self._started = int(facts["pid"]), int(facts["started"])
        self._started_at = utc_now()
        # As the guard saw them first: a server that sets its title (vLLM's workers do) overwrites both.
        self._first = split_words(str(facts["cmdline"])), split_words(str(facts["environ"]))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        self._server_id = f"pid:{self._pid}:{self._started}:{boot}"

    @property
    def endpoint(self) -> Endpoint:
        """The port given with ``--port``."""
        return self._endpoint

    def direct_endpoint(self) -> Endpoint | None:
        """None: nothing stands between."""
        return None

    @property
    def server_id(self) -> str:
        """``pid:<pid>:<start in clock ticks>:<boot id>``."""
        return self._server_id

    def _alive(self) -> bool:
        entry = guard.stat(self._pid)
        return entry is not None and entry.alive and entry.started == self._started

    def _family(self) -> list[int]:
        return guard.family(self._guard.pid, self._pid)

    def _read_back(self) -> tuple[list[str], list[str]]:
        """Command line and environment of the process that listens, else of the one we started, else as it began."""
        inodes = listening_inodes(self._endpoint.port)
        with suppress(PermissionError):
            for pid in [p for p in self._family() if inodes & socket_inodes(p)] + [self._pid]:
                found = guard.words_of(pid)
                words = split_words(found["cmdline"])
                if self._program.words[-1] in words:
                    return words, split_words(found["environ"])
        return self._first

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Entrypoint and arguments. An interpreter before the program (``#!``) is part of neither."""
        own = self._program.words
        for start in range(min(4, len(words))):
            if words[start : start + len(own)] == own:
                return self._program.entrypoint, words[start + len(own) :]
        if own[-1] in words:  # a wrapper script gave way to another program
            at = words.index(own[-1])
            return self._program.entrypoint, words[at + 1 :]
        return words[:1], words[1:]

    def applied(self) -> Applied:
        """From /proc. Raises LaunchError when the process has ended."""
        if not self._alive():
            raise LaunchError(f"the server can't be read back, because {self.state().sentence()}; look at its log")
        words, environ = self._read_back()
        entrypoint, arguments = self._split(words)
        return Applied(
            server_id=self._server_id,
            image_id=None,
            entrypoint=self._redactor.arguments(entrypoint),
            arguments=roles_in_arguments(self._redactor.arguments(arguments), self._endpoint.port),
            env=self._redactor.environment(environment_of(environ)),
            image_env=self._redactor.environment(self._base),
            mounts=[],
            devices=[],
            group_add=[],
            cap_add=[],
            security_opt=[],
            ulimits={},
            ipc=None,
            shm_size=None,
            memory=None,
            memory_swap=None,
            ports=[],
            privileged=None,
            restart_count=None,
            started_at=self._started_at,
        )

    def within(self, plan: ServerPlan) -> Within:
        """As ``applied``, which reads the process itself, once more when it is ready."""
        del plan
        try:
            applied = self.applied()
        except LaunchError as error:
            return Within(source="", arguments=None, env=None, unknown=str(error))
        return Within(source="host /proc", arguments=applied.arguments, env=applied.env)

    def last_inspect(self) -> dict[str, object]:
        """What /proc tells, in the words of ``docker inspect`` where it has one."""
        words, environ = self._read_back()
        tree = self._redactor.extended({str(Path.home()): "<home>"}).tree({"Args": words, "Env": environ})
        facts: dict[str, object] = {"Id": self._server_id, "Pid": self._pid, "Family": self._family()}
        facts |= tree if isinstance(tree, dict) else {}
        return {**facts, "DroppedVariables": dropped_names(environment_of(environ))}

    def state(self) -> ServerState:
        """From /proc; the exit code from the guard. A signal n is shown as 128 + n, as containers do."""
        if self._stopped is not None:
            return self._stopped.state
        if self._alive():
            return ServerState(running=True)
        code = self._guard.facts(("exit",), REPORT_S).get("exit")
        if not isinstance(code, int):
            return ServerState(running=False, error="its guard is gone and told no exit code")
        if code < 0:
            return ServerState(running=False, exit_code=128 - code, error=f"ended by {signal.Signals(-code).name}")
        return ServerState(running=False, exit_code=code)

    def changed(self) -> str:
        """Nothing: a process can't be started again, and its id with its start says which one it is."""
        return ""

    def log_bytes(self) -> int:
        """Size of the log file, which the server writes itself."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def owns_port(self) -> bool | None:
        """Whether every socket listening at the endpoint is held by this server or its children."""
        inodes = listening_inodes(self._endpoint.port)
        try:
            ours = {inode for pid in self._family() for inode in socket_inodes(pid)}
        except PermissionError:
            return None
        return bool(inodes) and inodes <= ours

    def stop(self) -> StopRecord:
        """SIGTERM, at most ``stop_s``, SIGKILL, until nothing of its session and its children is left."""
        if self._stopped is not None:
            return self._stopped
        if self._asked is None:  # an interrupted stop goes on from its first signal
            self._asked = (utc_now(), time.monotonic())
        asked_at, begun = self._asked
        ended_before = not self._alive()
        killed = guard.end_family(self._pid, self._guard.pid, self._limits.stop_s)
        seconds = 0.0 if ended_before else time.monotonic() - begun
        state = self.state()
        left = self._family()
        self._guard.close(KILL_WAIT_S)
        shutil.rmtree(self._tmp, ignore_errors=True)  # the guard does it too, unless it was killed
        with suppress(OSError), self._log.open("rb") as log:
            os.fsync(log.fileno())
        self._stopped = StopRecord(
            asked_at=asked_at,
            seconds=round(seconds, 3),
            killed=killed,
            state=state,
            gone=not left,
            note=f"processes {', '.join(map(str, left))} could not be ended" if left else "",
        )
        return self._stopped
