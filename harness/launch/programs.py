"""A small program of ours in a throw-away container of an image: limited in time and memory, and gone afterwards."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal
from uuid import uuid4

from docker import DockerClient

from harness.errors import LaunchError
from harness.launch.container import FAULTS, Container, explain
from harness.launch.docker import own_labels

POLL_S = 0.1
GONE_S = 60.0
MOST_OUTPUT = 64 * 1024
"""bytes of output that are read"""
FOLDER = "probe_programs"


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    state: Literal["ended", "timed out"]
    exit_code: int | None
    """null when it timed out"""
    output: str
    """standard output, its last part"""
    errors: str
    """standard error, its last part"""
    seconds: float
    gone: bool
    """its container is removed"""


@dataclass(frozen=True)
class Call:
    """What to run."""

    program: str
    """file in ``probe_programs``; python3 of the image is given its text"""
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    """of ``create_host_config``: devices, groups, mounts"""
    memory: int = 2 * 1024**3
    """bytes; memory + swap is the same, so that nothing swaps"""
    timeout_s: float = 120.0
    stop_s: float = 10.0
    """between the stop signal and the kill of a program that ran out of time"""


def text_of(program: str) -> str:
    """The program's source."""
    return (resources.files("harness.launch") / FOLDER / program).read_text(encoding="utf-8")


def run_program(client: DockerClient, image_id: str, call: Call, *, campaign: str, label: str) -> Ended:
    """Run it without a network and without a right to write into the image. Raises LaunchError when it can't start."""
    container: Container | None = None
    name = f"b70-bench-{label}-{uuid4().hex[:8]}"
    try:
        host = client.api.create_host_config(
            **{"read_only": True, "network_mode": "none", "tmpfs": {"/tmp": "exec"}, **call.host},  # noqa: S108 - in there
            mem_limit=call.memory,
            memswap_limit=call.memory,
        )
        created = client.api.create_container(
            image_id,
            [text_of(call.program), *call.arguments],
            entrypoint=["python3", "-c"],
            name=name,
            environment={"HOME": "/tmp", **call.env},  # noqa: S108 - in there
            labels=own_labels(campaign, label),
            host_config=host,
            healthcheck={"test": ["NONE"]},
            use_config_proxy=False,
        )
        container = Container(client, created["Id"])
        client.api.start(container.id)
        return _watched(container, call)
    except FAULTS as error:
        raise LaunchError(f"Docker can't run {call.program} in the image: {explain(error)}") from None
    finally:
        with suppress(*FAULTS):
            Container(client, name if container is None else container.id).remove(GONE_S)


def _watched(container: Container, call: Call) -> Ended:
    """Wait for its end by our own deadline; after it stop, and kill only what doesn't obey."""
    begun = time.monotonic()
    while container.look() == "running":
        if time.monotonic() - begun > call.timeout_s:
            container.end(call.stop_s, GONE_S)
            output, errors = _said(container)
            return Ended("timed out", None, output, errors, time.monotonic() - begun, container.remove(GONE_S))
        time.sleep(POLL_S)
    seconds = time.monotonic() - begun
    if container.look() == "unreachable":
        raise LaunchError(f"the Docker engine doesn't answer ({container.fault}); look at Docker's log")
    code = container.inspect.get("State", {}).get("ExitCode")
    output, errors = _said(container)
    return Ended("ended", code, output, errors, seconds, container.remove(GONE_S))


def _said(container: Container) -> tuple[str, str]:
    """Both outputs; empty where the engine doesn't give them."""
    texts = ["", ""]
    with suppress(*FAULTS):
        for at, (out, err) in enumerate(((True, False), (False, True))):
            raw = container.client.api.logs(container.id, stdout=out, stderr=err, tail=400)
            texts[at] = raw[-MOST_OUTPUT:].decode("utf-8", "replace")
    return texts[0], texts[1]
