"""Proofs about a server, all pure: requested = inspected, fresh compile caches, CLASSPAD (contract section 2)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.launch.server import Applied, ImageFacts
from harness.plan import ServerPlan
from harness.redact import Redactor, environment_of

CONTAINER_PORT = 8000
CONTAINER_ROLES = {"/model": "<model>", "/cache": "<cache>"}
"""Where a container finds what the plan calls by role."""

OWN_ENTRYPOINTS = {"process": ["vllm", "serve"], "simulated": ["python", "-m", "harness.simulated"]}
"""Entrypoints that engines without an image bring."""

_PLAIN = Redactor()


def roles_in_arguments(arguments: Sequence[str], port: int) -> list[str]:
    """The value of ``--port`` back to ``<port>`` when it is ``port``, so that servers on different ports compare."""
    pairs = zip(["", *arguments], arguments, strict=False)
    return ["<port>" if before == "--port" and argument == str(port) else argument for before, argument in pairs]


def requested_mounts(plan: ServerPlan) -> list[str]:
    """The mounts a container of this plan must have, as in ``Applied.mounts``."""
    binds = [] if plan.container is None else plan.container.binds
    model = ["<model>:/model:ro"] if needs_model(plan) else []
    return sorted(
        [*model, "<cache>:/cache:rw"]
        + [f"{_PLAIN.source(b.source)}:{b.target}:{'ro' if b.read_only else 'rw'}" for b in binds]
    )


def requested_arguments(plan: ServerPlan) -> list[str]:
    """The plan's arguments, reduced as those that are read back."""
    return _PLAIN.arguments(plan.arguments)


def needs_model(plan: ServerPlan) -> bool:
    """Whether the plan speaks of a model directory at all."""
    return any("<model>" in text for text in [*plan.arguments, *plan.env.values()])


def requested_environment(plan: ServerPlan, image_env: Mapping[str, str]) -> dict[str, str]:
    """The whole environment the server must have: the image's own, overlaid by the plan's; secrets dropped by name."""
    return _PLAIN.environment({**image_env, **plan.env})


def applied_from_inspect(
    inspect: Mapping[str, Any], redactor: Redactor, *, image_env: Mapping[str, str], host_port: int | None = None
) -> Applied:
    """``docker inspect`` of one container → what really runs. ``redactor`` knows the host's paths.

    ``host_port`` is written as ``<port>`` where it is published, so that servers on different ports compare.
    """
    config, host = inspect["Config"], inspect["HostConfig"]
    inside = redactor.extended(CONTAINER_ROLES)
    entrypoint = [*(config.get("Entrypoint") or [])]
    command = [inspect["Path"], *inspect["Args"]]
    if entrypoint != command[: len(entrypoint)]:  # overridden behind the back: report what runs
        entrypoint = command[:1]
    state, arguments = inspect["State"], inside.arguments(command[len(entrypoint) :])
    return Applied(
        server_id=inspect["Id"],
        image_id=inspect["Image"],
        entrypoint=inside.arguments(entrypoint),
        arguments=roles_in_arguments(arguments, CONTAINER_PORT),
        env=inside.environment(environment_of(config.get("Env") or [])),
        image_env=_PLAIN.environment(image_env),
        mounts=sorted(_mounts(inspect, redactor)),
        devices=[_device(device, redactor) for device in host.get("Devices") or []],
        group_add=[str(group) for group in host.get("GroupAdd") or []],
        cap_add=list(host.get("CapAdd") or []),
        security_opt=list(host.get("SecurityOpt") or []),
        ulimits=_ulimits(host.get("Ulimits") or []),
        ipc=host.get("IpcMode"),
        shm_size=host.get("ShmSize"),
        memory=host.get("Memory") or None,
        memory_swap=host.get("MemorySwap") or None,
        ports=sorted(_ports(inspect, host_port)),
        privileged=host.get("Privileged", False),
        restart_count=inspect.get("RestartCount"),
        started_at=state["StartedAt"],
    )


def _mounts(inspect: Mapping[str, Any], redactor: Redactor) -> Iterable[str]:
    if inspect.get("Mounts"):
        for mount in inspect["Mounts"]:
            source = redactor.source(mount["Source"]) if mount.get("Type", "bind") == "bind" else mount["Type"]
            yield f"{source}:{mount['Destination']}:{'rw' if mount['RW'] else 'ro'}"
        return
    for bind in inspect["HostConfig"].get("Binds") or []:
        source, target, *mode = redactor.bind(bind).split(":")
        yield f"{source}:{target}:{'ro' if 'ro' in ','.join(mode).split(',') else 'rw'}"


def _device(device: Mapping[str, str], redactor: Redactor) -> str:
    source, target = redactor.source(device["PathOnHost"]), device["PathInContainer"]
    rights = device.get("CgroupPermissions", "rwm")
    return source if (target, rights) == (source, "rwm") else f"{source}:{target}:{rights}"


def _ulimits(limits: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Soft limits by name; a hard limit that differs gets an entry of its own, so that it can't hide."""
    found = {limit["Name"]: limit["Soft"] for limit in limits}
    return found | {f"{limit['Name']} (hard)": limit["Hard"] for limit in limits if limit["Hard"] != limit["Soft"]}


def _ports(inspect: Mapping[str, Any], host_port: int | None) -> Iterable[str]:
    published = inspect.get("NetworkSettings", {}).get("Ports") or inspect["HostConfig"].get("PortBindings") or {}
    for inner, bindings in published.items():
        for binding in bindings or []:
            outer = "<port>" if binding["HostPort"] == str(host_port) else binding["HostPort"]
            yield f"{binding['HostIp'] or '0.0.0.0'}:{outer}:{inner.removesuffix('/tcp')}"  # noqa: S104 - what it means


def differences(plan: ServerPlan, applied: Applied, image: ImageFacts | None) -> list[str]:
    """What was asked and isn't so, and what is so and wasn't asked, one sentence each; empty means equal.

    Which fields count is decided by the engine, never by a field being null. An attached server can't be read back at
    all: the answer is empty and proves nothing.
    """
    if plan.engine == "attach":
        return []
    image_env = applied.image_env if image is None else image.env
    found = argument_differences(requested_arguments(plan), applied.arguments)
    found += mapping_differences("environment variable", requested_environment(plan, image_env), applied.env)
    if plan.engine != "docker":
        return found + _one("the entrypoint", OWN_ENTRYPOINTS[plan.engine], applied.entrypoint)
    if plan.container is None or image is None:
        return [*found, "a container runs, but the plan has no container settings or no image to compare it with"]
    asked = plan.container
    wanted_id = image.id if plan.image_id is None else plan.image_id
    found += _one("the image id", wanted_id, applied.image_id)
    found += _one("the entrypoint", image.entrypoint, applied.entrypoint)
    found += _list_differences("mount", requested_mounts(plan), applied.mounts)
    found += _list_differences("device", asked.devices, applied.devices)
    found += _group_differences(asked.group_of, applied.group_add)
    found += _list_differences("capability", map(_capability, asked.cap_add), map(_capability, applied.cap_add))
    # Docker itself adds label=disable to a container that shares the host's IPC.
    implied = [option for option in applied.security_opt if asked.ipc == "host" and option == "label=disable"]
    found += _list_differences("security option", {*asked.security_opt, *implied}, applied.security_opt)
    found += mapping_differences("ulimit", asked.ulimits, applied.ulimits)
    if asked.ipc is not None or applied.ipc not in ("", "private", "shareable", None):
        found += _one("the IPC mode", asked.ipc, applied.ipc)
    found += _one("the shared memory size in bytes", asked.shm_size, applied.shm_size)
    found += _one("the memory limit in bytes", asked.memory, applied.memory)
    if applied.memory is None or applied.memory != applied.memory_swap:
        found.append(
            f"memory is {applied.memory} bytes and memory+swap {applied.memory_swap}: they must be equal, "
            "because a container that may swap makes the xe driver fault"
        )
    found += _list_differences("published port", [f"127.0.0.1:<port>:{CONTAINER_PORT}"], applied.ports)
    if applied.privileged is not False:
        found.append("the container is privileged, which was not requested")
    if applied.restart_count != 0:
        found.append(f"the container was restarted {applied.restart_count} times, so it is not one fresh server")
    return found


def container_changes(first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """What was done to a container between two answers of ``docker inspect``, in half a sentence; empty for nothing."""
    began, begins = (inspect.get("State", {}).get("StartedAt") for inspect in (first, last))
    if began != begins:
        return f"its container was started again at {begins}, so it is no longer the fresh server"
    if last.get("State", {}).get("Paused"):
        return "its container is paused"
    before, now = ({k: v for k, v in (i.get("HostConfig") or {}).items() if v} for i in (first, last))
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        return f"its container's settings were changed after its start ({', '.join(changed)})"
    return ""


def lifetime_failures(applied: Applied, inspect: Mapping[str, Any]) -> list[str]:
    """What the last ``docker inspect`` of a container says against one fresh server with the limits it began with."""
    state, host = inspect.get("State") or {}, inspect.get("HostConfig") or {}
    found = []
    if state.get("StartedAt", applied.started_at) != applied.started_at or inspect.get("RestartCount"):
        found.append(f"its container was started again at {state.get('StartedAt')}, so it is not one fresh server")
    if state.get("OOMKilled"):
        found.append("a process of the server was killed for memory")
    limits = host.get("Memory", applied.memory), host.get("MemorySwap", applied.memory_swap)
    if limits != (applied.memory, applied.memory_swap):
        found.append(f"its memory limits became {limits[0]} and {limits[1]} bytes while it ran")
    return found


def _one(what: str, requested: object, inspected: object) -> list[str]:
    return [] if requested == inspected else [f"{what} is requested as {requested!r} but is {inspected!r}"]


def mapping_differences(what: str, requested: Mapping[str, object], inspected: Mapping[str, object]) -> list[str]:
    """Names missing, unasked, or of another value, one sentence each."""
    found = []
    for name in sorted({*requested, *inspected}):
        if name not in inspected:
            found.append(f"{what} {name} is requested as {requested[name]!r} but the server has none")
        elif name not in requested:
            found.append(f"{what} {name} is {inspected[name]!r} but was not requested")
        elif requested[name] != inspected[name]:
            found.append(f"{what} {name} is requested as {requested[name]!r} but is {inspected[name]!r}")
    return found


def _list_differences(what: str, requested: Iterable[str], inspected: Iterable[str]) -> list[str]:
    wanted, real = list(requested), list(inspected)
    missing = [f"{what} {item} is requested but the server has none" for item in sorted({*wanted} - {*real})]
    extra = [f"{what} {item} is there but was not requested" for item in sorted({*real} - {*wanted})]
    return missing + extra


def argument_differences(requested: list[str], inspected: list[str]) -> list[str]:
    """Flags with their values that are missing or unasked, one sentence each."""
    if requested == inspected:
        return []
    wanted, real = _flags(requested), _flags(inspected)
    missing = [f"argument {item} is requested but the server has none" for item in wanted if item not in real]
    extra = [f"argument {item} is there but was not requested" for item in real if item not in wanted]
    return missing + extra or ["the arguments are the requested ones, but repeated or in another order"]


def _flags(arguments: list[str]) -> list[str]:
    """Every flag with its values as one text."""
    grouped: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--") or not grouped:
            grouped.append([argument])
        else:
            grouped[-1].append(argument)
    return [" ".join(group) for group in grouped]


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _group_differences(group_of: str | None, groups: list[str]) -> list[str]:
    if group_of is None:
        return [f"group {group} is added but was not requested" for group in groups]
    if groups and all(group.isdigit() for group in groups):
        return []
    return [f"the numeric group of {group_of} is requested but the added groups are {groups!r}"]


@dataclass(frozen=True)
class CompileFindings:
    """What a server's log says of compilation: the second proof of an empty cache."""

    compiled: int
    """lines that tell of a compilation"""
    loaded: int
    """lines that tell of a compiled graph in a cache, taken or not"""
    verdict: Literal["fresh", "not fresh", "not applicable", "unknown"]


# The last is all that vLLM's CPU backend says: it compiles by one Dynamo trace, which its monitor doesn't report.
_COMPILED = re.compile(rb"Compiling a graph|torch\.compile (?:took|takes)|saved AOT compiled function to")
# A failed load is no proof of freshness either: what could not be loaded was there.
_LOADED = re.compile(
    rb"Directly load (?:the compiled graph|AOT compilation|the \S+-th graph)"
    rb"|Compiling model again due to a load failure"
)


def compile_log_findings(log: bytes, compiles: bool) -> CompileFindings:
    """A compilation and no loaded graph is ``fresh``; neither is ``unknown``; eager is ``not applicable``."""
    lines = log.splitlines()
    compiled = sum(1 for line in lines if _COMPILED.search(line))
    loaded = sum(1 for line in lines if _LOADED.search(line))
    if not compiles:
        return CompileFindings(compiled, loaded, "not applicable")
    if loaded:
        return CompileFindings(compiled, loaded, "not fresh")
    return CompileFindings(compiled, loaded, "fresh" if compiled else "unknown")


@dataclass(frozen=True)
class ClasspadLine:
    """One line of the CLASSPAD census."""

    shape: str
    """``<N>x<K>``"""
    dtype: str
    verdict: str
    """empty when the line has none"""
    line: str


_CENSUS = re.compile(rb"R\d+ classpad census .*")
_FALLBACK = "fallback-r224-pieces"
NO_CENSUS = "the server's log has no CLASSPAD census, so nothing proves that CLASSPAD is on"


def classpad_census(log: bytes) -> list[ClasspadLine]:
    """Every census line of a log, in order; with two cards each worker prints its own."""
    texts = [match.group().decode("utf-8", "replace").rstrip() for match in _CENSUS.finditer(log)]
    return [_census_line(text) for text in texts]


def _census_line(text: str) -> ClasspadLine:
    fields = dict(re.findall(r"(\w+)=(\S+)", text))
    return ClasspadLine(fields.get("shape", ""), fields.get("dtype", ""), fields.get("verdict", ""), text)


def census_sentence(census: Sequence[ClasspadLine]) -> str:
    """How many shapes the census told of, and how many had which verdict."""
    verdicts = sorted({entry.verdict or "none" for entry in census})
    counts = [f"{sum((entry.verdict or 'none') == verdict for entry in census)} {verdict}" for verdict in verdicts]
    return f"CLASSPAD census: {len({(entry.shape, entry.dtype) for entry in census})} shapes ({', '.join(counts)})"


def classpad_failures(census: Sequence[ClasspadLine]) -> list[str]:
    """Why CLASSPAD is not proven, one sentence each; empty means proven."""
    if not census:
        return [NO_CENSUS]
    fallen = [
        f"shape {entry.shape} ({entry.dtype}) fell back: verdict={_FALLBACK}"
        for entry in census
        if entry.verdict == _FALLBACK
    ]
    silent = [
        f"a CLASSPAD census line has no shape or verdict: {e.line!r}" for e in census if not (e.shape and e.verdict)
    ]
    return fallen + silent
