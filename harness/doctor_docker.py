"""Findings about Docker: the engine, the image and what is in it, and containers that a campaign left."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docker import DockerClient

from harness.doctor_lines import Line, failure, ok, skipped, unknown, warning
from harness.errors import BenchError, LaunchError
from harness.lanes import Image, Lane
from harness.launch.docker import DockerEngine
from harness.launch.programs import Call, Ended, run_program
from harness.launch.server import ImageFacts
from harness.leftovers import Leftover, find_leftovers

FILES_TIMEOUT_S = 120.0
CLEAN = "bench clean removes it"


def engine_lines(info: Mapping[str, Any] | str, lane: Lane) -> list[Line]:
    """``info`` is what ``docker info`` says, or why it says nothing."""
    if isinstance(info, str):
        return [failure("docker", info, "start Docker, and give this user its socket")]
    lines = [ok("docker", f"version {info.get('ServerVersion')}, storage driver {info.get('Driver')}")]
    return [*lines, swap_line(info, lane)]


def swap_line(info: Mapping[str, Any], lane: Lane) -> Line:
    """Whether memory + swap of a container can be held to its memory (contract section 2)."""
    name = "container memory"
    if lane.container is None:
        return skipped(name, f"launcher {lane.name} has no container")
    size = f"{lane.container.memory / 2**30:g} GiB of memory"
    if info.get("MemoryLimit") is False:
        return failure(name, "this host's Docker can't limit a container's memory", "switch on the memory cgroup")
    if info.get("SwapLimit") is False:
        return failure(
            name,
            f"this host's Docker can't keep a container of {size} from swapping, which makes the xe driver fault",
            "boot with swapaccount=1, or use cgroup 2",
        )
    return ok(name, f"{size}, and no swap: memory and memory+swap are equal")


def image_lines(client: DockerClient, image: Image, *, campaign: str) -> tuple[list[Line], ImageFacts | None]:
    """The image as its file says, and what a throw-away container of it reads inside."""
    name = f"image {image.name}"
    try:
        facts = DockerEngine(lambda: client).image(image)
    except LaunchError as error:
        return [failure(name, str(error).removesuffix(f"; {image.obtain}"), image.obtain)], None
    digests = ", ".join(facts.repo_digests) or "none"
    lines = [ok(name, f"id {facts.id}, repository digests {digests}, labels and entrypoint as its file says")]
    call = Call("read_image.py", tuple(image.files), timeout_s=FILES_TIMEOUT_S)
    try:
        ended = run_program(client, facts.id, call, campaign=campaign, label="doctor")
    except LaunchError as error:
        return [*lines, unknown(f"{name} version", str(error), "look at Docker's log", needed=True)], facts
    return [*lines, *inside_lines(image, ended)], facts


def inside_lines(image: Image, ended: Ended) -> list[Line]:
    """The version of vLLM and the required files, as ``read_image.py`` told them."""
    name = f"image {image.name}"
    try:
        if ended.state != "ended" or ended.exit_code != 0:
            raise ValueError
        told = json.loads(ended.output)
        version, files = told["vllm"], dict(told["files"])
    except (ValueError, LookupError, TypeError):
        how = "gave no answer in time" if ended.state == "timed out" else f"ended with exit code {ended.exit_code}"
        return [unknown(f"{name} version", f"a container of it {how}", image.obtain, needed=True)]
    lines = [_version(f"{name} version", image, version)]
    for path, sha256 in image.files.items():
        found = files.get(path, {})
        what, is_it = f"{path} has sha256 {found.get('sha256')}", found.get("sha256") == sha256
        if "error" in found:
            what = f"{path} can't be read ({found['error']})"
        lines.append(
            ok(f"{name} file", what)
            if is_it
            else failure(f"{name} file", f"{what}, its file says {sha256}", image.obtain)
        )
    return lines


def _version(name: str, image: Image, version: str | None) -> Line:
    if version is None:
        return failure(name, "no vLLM is installed in it", image.obtain)
    public = version.partition("+")[0]
    if public != image.version.partition("+")[0]:
        return failure(name, f"vLLM {version}, its file says {image.version}", image.obtain)
    return ok(name, f"vLLM {version}")


def leftover_lines(client: DockerClient, out: Path) -> list[Line]:
    """Containers of ours that exist."""
    try:
        found = find_leftovers(client, out=out if out.is_dir() else None)
    except BenchError as error:
        return [unknown("leftovers", str(error), "look at Docker's log")]
    return [_leftover(left) for left in found] or [ok("leftovers", "no container of an earlier campaign")]


def _leftover(left: Leftover) -> Line:
    what = (
        f"container {left.id[:12]} ({left.label}) of {left.campaign} {'runs' if left.container_running else 'exists'}"
    )
    if left.campaign_running is False:
        return failure("leftovers", f"{what}; {left.why}", CLEAN)
    if left.campaign_running is None:
        return warning("leftovers", f"{what}; {left.why}", "end that campaign, or remove the container by hand")
    return warning("leftovers", f"{what}; {left.why}", "wait for that campaign before you start another")
