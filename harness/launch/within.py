"""What the process that serves was really given: behind ``docker inspect`` an entrypoint script can still change it.

The kernel keeps a program's words as they were at its exec: its arguments, and the environment handed to it. They are
read from this host's /proc where the engine's processes are on this host, else from within the container; a server that
writes its title over them (vLLM's workers do) makes them unknown, never clean.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from harness.launch.proof import (
    CONTAINER_PORT,
    CONTAINER_ROLES,
    argument_differences,
    mapping_differences,
    requested_arguments,
    roles_in_arguments,
)
from harness.launch.server import Within
from harness.plan import ServerPlan
from harness.redact import Redactor, environment_of

FAULTS = (DockerException, RequestException, HTTPError, OSError)

SHELL_VARIABLES = frozenset(("HOSTNAME", "HOME", "PWD", "OLDPWD", "SHLVL", "_"))
"""Docker sets the first two, a shell before the server the others; they say nothing of what was asked."""

DOCKER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What Docker sets PATH to where an image has none; ``docker inspect`` doesn't show it."""

DUMP = (
    "for p in /proc/[0-9]*; do printf '\\001%s\\002' \"${p#/proc/}\"; cat $p/cmdline 2>/dev/null; printf '\\002'; "
    "cat $p/environ 2>/dev/null; done"
)
"""Prints every process of the container it runs in: ``\\1 pid \\2 cmdline \\2 environ``"""


@dataclass(frozen=True)
class Words:
    """One process."""

    pid: int
    arguments: list[str]
    env: list[str]
    """NAME=value; empty when its owner may not read it, or it was written over"""


def words_of(pid: int, cmdline: bytes, environ: bytes) -> Words:
    """From the bytes of /proc/PID/cmdline and environ, each word of which ends in a NUL."""

    def split(data: bytes) -> list[str]:
        return data.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0") if data else []

    return Words(pid, split(cmdline), [word for word in split(environ) if "=" in word])


def host_words(container_id: str, pid: int) -> list[Words]:
    """Of every process of a container of this host, by age; empty when ``pid`` is none of it (an engine elsewhere)."""
    if not _in_container(pid, container_id):
        return []
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found = []
    for one in pids:
        with suppress(OSError):
            if one == pid or _in_container(one, container_id):
                folder = Path(f"/proc/{one}")
                found.append(words_of(one, (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()))
    return found


def _in_container(pid: int, container_id: str) -> bool:
    try:
        return pid > 0 and container_id in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def exec_words(client: DockerClient, container_id: str) -> list[Words]:
    """The same from within; empty when the image has no shell or the engine says no."""
    try:
        job = client.api.exec_create(container_id, ["sh", "-c", DUMP], stderr=False)
        output = client.api.exec_start(job["Id"])
    except FAULTS:
        return []
    return parse_dump(output) if isinstance(output, bytes) else []


def parse_dump(output: bytes) -> list[Words]:
    """What ``DUMP`` prints, by process id."""
    found = []
    for entry in output.split(b"\1")[1:]:
        fields = entry.split(b"\2")
        if len(fields) == 3 and fields[0].isdigit():
            found.append(words_of(int(fields[0]), fields[1], fields[2]))
    return sorted(found, key=lambda words: words.pid)


def within_of(processes: Sequence[Words], source: str, plan: ServerPlan, redactor: Redactor) -> Within:
    """The process that serves: the youngest with the asked arguments, so that a wrapper script is not taken for it."""
    inside, asked = redactor.extended(CONTAINER_ROLES), requested_arguments(plan)
    best: tuple[Words, list[str]] | None = None
    exact = False
    for words in processes:
        arguments = roles_in_arguments(inside.arguments(words.arguments), CONTAINER_PORT)
        if asked and arguments[-len(asked) :] == asked:
            best, exact = (words, asked), True
        elif not exact and asked and asked[0] in arguments:
            best = words, arguments[arguments.index(asked[0]) :]
    if best is None:
        why = "no process shows the server's arguments" if processes else "its processes can't be read"
        return Within(source=source if processes else "", arguments=None, env=None, unknown=why)
    found, arguments = best
    if not found.env:
        why = "the environment of the process that serves can't be read, or its title was written over it"
        return Within(source=source, arguments=arguments, env=None, unknown=why)
    return Within(source=source, arguments=arguments, env=inside.environment(environment_of(found.env)))


def within_differences(requested_arguments: list[str], requested_env: dict[str, str], within: Within) -> list[str]:
    """What the process was given and what was asked, in both directions, one sentence each."""
    found = []
    if within.arguments is not None and within.arguments != requested_arguments:
        told = argument_differences(requested_arguments, within.arguments)
        found += [f"within the container, {difference}" for difference in told]
    if within.env is not None:
        by_docker = {} if "PATH" in requested_env else {"PATH": DOCKER_PATH}
        given = {name: value for name, value in within.env.items() if by_docker.get(name) != value}
        real = {name: value for name, value in given.items() if _counts(name, requested_env)}
        asked = {name: value for name, value in requested_env.items() if _counts(name, within.env)}
        found += mapping_differences("environment variable within the container", asked, real)
    return found


def _counts(name: str, other: Iterable[str]) -> bool:
    return name not in SHELL_VARIABLES or name in other
