"""``bench doctor``: everything a campaign needs of this host, looked at before one is started. Nothing is changed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.doctor_cards import card_lines
from harness.doctor_docker import engine_lines, image_lines, leftover_lines
from harness.doctor_host import kernel_line, log_lines, memory_lines, model_lines, port_line
from harness.doctor_lines import Line, exit_code, failure, ok, skipped
from harness.errors import ExitCode, LaunchError, UsageError
from harness.host.facts import Host
from harness.host.kernel_log import read_kernel_log
from harness.host.model_files import Progress, quiet
from harness.host.roots import Roots
from harness.lanes import Lane, load_image, load_lane
from harness.launch.docker import connect
from harness.models import LoadedManifest, load_manifest
from harness.surveying import docker_info, survey


@dataclass(frozen=True)
class Asked:
    """What to look at."""

    launcher: str
    image: str | None = None
    """the launcher's first one where it is None"""
    model_dir: Path | None = None
    model_manifest: str | None = None
    port: int | None = None
    out: Path = Path("experiments")
    roots: Roots = field(default_factory=Roots)


@dataclass(frozen=True)
class Findings:
    """What was found."""

    lines: list[Line]
    host: Host | None
    """the facts that a campaign would record; null where the launcher file can't be used"""

    @property
    def exit_code(self) -> ExitCode:
        """See harness.doctor_lines."""
        return exit_code(self.lines)


def examine(asked: Asked, progress: Progress = quiet) -> Findings:
    """Look at everything. Raises UsageError for a launcher, image or manifest that doesn't exist."""
    try:
        lane = load_lane(asked.launcher)
    except UsageError as error:
        if "file" not in str(error).split(":", 1)[0]:
            raise
        return Findings([failure("launcher", str(error), "correct the launcher file")], None)
    manifest = _manifest(asked, lane)
    host = survey(asked.roots, docker=lane.engine == "docker")
    log = read_kernel_log(file=asked.roots.kernel_log, proc=asked.roots.proc)
    lines = [ok("launcher", f"{lane.name}: {lane.title}"), kernel_line(host), *memory_lines(host, lane)]
    lines += _docker(asked, lane)
    lines += model_lines(lane, asked.model_dir, manifest, progress)
    lines += card_lines(lane, asked.roots, log.lines)
    lines += log_lines(log, lane)
    lines.append(port_line(asked.port))
    return Findings(lines, host)


def _manifest(asked: Asked, lane: Lane) -> LoadedManifest | None:
    named = asked.model_manifest or (lane.model.manifest if asked.model_dir is not None else None)
    if asked.model_manifest is not None and asked.model_dir is None:
        raise UsageError("--model-manifest says what --model-dir must hold; give both, or leave it out")
    return None if named is None else load_manifest(named)


def _docker(asked: Asked, lane: Lane) -> Iterator[Line]:
    if "docker" not in lane.engines:
        yield skipped("docker", f"launcher {lane.name} starts no container")
        return
    info = docker_info()
    yield from engine_lines(info, lane)
    name = asked.image or (lane.images[0] if lane.images else None)
    image = None if name is None else load_image(name)
    if isinstance(info, str):
        return
    try:
        client = connect()
    except LaunchError as error:
        yield failure("docker", str(error), "start Docker")
        return
    try:
        if image is not None:
            yield from image_lines(client, image, campaign="doctor")[0]
        yield from leftover_lines(client, asked.out)
    finally:
        client.close()
