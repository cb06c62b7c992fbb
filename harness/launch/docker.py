"""The docker engine: a fresh container from a pinned image, with everything the plan asks (contract section 2)."""

import glob
import os
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker import DockerClient
from docker.errors import NotFound
from docker.types import LogConfig, Mount, Ulimit

from harness.errors import LaunchError
from harness.lanes import Bind, Image
from harness.lanes import Container as Settings
from harness.launch.container import FAULTS, Container, Ours, explain
from harness.launch.docker_server import DockerServer
from harness.launch.proof import CONTAINER_PORT, CONTAINER_ROLES
from harness.launch.roles import LOOPBACK, filled, host_port, make_cache, model_directory, remove_cache
from harness.launch.runs import mark
from harness.launch.server import Endpoint, ImageFacts, Places
from harness.plan import ServerPlan
from harness.redact import Redactor, environment_of, hide_environment, home_roles, is_secret

CLIENT_TIMEOUT_S = 240
"""Above the longest stop limit of the lanes, so that no request of ours ends before what it waits for."""

LABEL = "b70-bench."
ROLES = {role: path for path, role in CONTAINER_ROLES.items()} | {"<port>": str(CONTAINER_PORT)}

LOG_DRIVER = "local"
LOG_OPTIONS = {"max-size": "1024g", "max-file": "2", "compress": "false", "mode": "blocking"}
"""``local`` keeps bytes (``json-file`` replaces what is not UTF-8), never rotates here, and never drops a line."""


def connect(timeout_s: int = CLIENT_TIMEOUT_S) -> DockerClient:
    """A client of the engine that DOCKER_HOST or the usual socket names. Raises LaunchError."""
    try:
        return docker.from_env(timeout=timeout_s)
    except FAULTS as error:
        raise LaunchError(
            f"the Docker engine can't be reached ({explain(error)}); start Docker and give this user its socket"
        ) from None


class DockerEngine:
    """See ``Engine``. Connects at the first need, so that a dry run works without Docker."""

    def __init__(self, connect: Callable[[], DockerClient] = connect) -> None:
        self._connect = connect
        self._client: DockerClient | None = None

    @property
    def client(self) -> DockerClient:
        """The connected client. Raises LaunchError."""
        if self._client is None:
            self._client = self._connect()
        return self._client

    def image(self, image: Image) -> ImageFacts:
        """By pin (local Id or any repository digest), then by reference; labels and entrypoint must be the file's."""
        client = self.client
        try:
            inspect = self._by_pin(client, image) or self._by_reference(client, image)
            driver = str(client.info().get("Driver", ""))
        except FAULTS as error:
            raise LaunchError(f"Docker can't list its images ({explain(error)}); look at Docker's log") from None
        if inspect is None:
            pins = f" (pinned id {' or '.join(image.ids)})" if image.ids else ""
            raise LaunchError(f"image {image.name}{pins} is not on this host; {image.obtain}")
        config = inspect.get("Config") or {}
        env = environment_of(config.get("Env") or [])
        hide_environment({**(config.get("Labels") or {}), **env})
        labels, entrypoint = config.get("Labels") or {}, config.get("Entrypoint") or []
        for name, value in image.labels.items():
            if labels.get(name) != value:
                raise LaunchError(
                    f"image {image.name} ({inspect['Id']}) has label {name} = {labels.get(name)!r}, "
                    f"but {value!r} is needed; {image.obtain}"
                )
        if entrypoint != image.entrypoint:
            raise LaunchError(
                f"image {image.name} ({inspect['Id']}) has entrypoint {entrypoint}, "
                f"but {image.entrypoint} is needed; {image.obtain}"
            )
        return ImageFacts(
            name=image.name,
            id=inspect["Id"],
            repo_digests=list(inspect.get("RepoDigests") or []),
            storage_driver=driver,
            labels=Redactor(home_roles()).environment(labels),
            entrypoint=entrypoint,
            env=Redactor(home_roles()).environment(env),
        )

    @staticmethod
    def _by_pin(client: DockerClient, image: Image) -> dict[str, Any] | None:
        pins = set(image.ids)
        for summary in client.api.images() if pins else []:
            digests = {digest.rpartition("@")[2] for digest in summary.get("RepoDigests") or []}
            if pins & {summary["Id"], *digests}:
                return dict(client.images.get(summary["Id"]).attrs)
        return None

    @staticmethod
    def _by_reference(client: DockerClient, image: Image) -> dict[str, Any] | None:
        for reference in image.references:
            try:
                inspect = dict(client.images.get(reference).attrs)
            except NotFound:
                continue
            if image.ids:
                raise LaunchError(
                    f"image {image.name}: {reference} on this host has id {inspect['Id']}, "
                    f"which is not the pinned one; {image.obtain}"
                )
            return inspect
        return None

    def start(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> DockerServer:
        """Create and start one container; ``/cache`` is made and mounted, port 8000 is published on loopback only."""
        plan = plan.given
        settings = _settings(plan)
        if image is None:
            raise LaunchError(f"server {plan.label} has no image to start; choose one with --image")
        model = model_directory(plan, places)
        groups = _groups(settings)
        if settings.group_of and not groups:
            raise LaunchError(
                f"no render node {settings.group_of} on this host, but this launcher needs a card; "
                "run it on a host with one, or choose another --launcher"
            )
        missing = [path for path in [*settings.devices, *(b.source for b in settings.binds)] if not Path(path).exists()]
        if missing:
            raise LaunchError(
                f"this host has no {', '.join(missing)}, which this launcher hands to its server; "
                "load the card's driver, or choose another --launcher"
            )
        client, port = self.client, host_port(places.port)
        make_cache(places)
        name = _name(plan, places)
        try:
            container = _run(client, name, plan, places, image=image, model=model, groups=groups, port=port)
            return DockerServer(
                container,
                log_client=self._connect,
                image=image,
                limits=plan.limits,
                endpoint=Endpoint(LOOPBACK, port),
                log=places.log,
                cache=places.cache,
                redactor=_redactor(places, model),
            )
        except BaseException as error:  # also an interrupt between two requests: the name is enough to remove it
            gone = Container(client, name).remove(min(10.0, plan.limits.gone_s))
            if gone:
                remove_cache(places)
            left = "" if gone else "; whether its container is left is unknown, bench clean removes it"
            if isinstance(error, FAULTS):
                raise LaunchError(f"Docker can't start server {plan.label}: {explain(error)}{left}") from None
            if left and isinstance(error, LaunchError):
                raise LaunchError(f"{error}{left}") from None
            raise

    def command(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> str:
        """``docker run`` that starts the same container (without --rm, because its log and inspect are kept)."""
        plan = plan.given
        settings = _settings(plan)
        model = None if places.model is None else places.model.absolute()
        arguments, env = filled(plan, ROLES)
        groups = _groups(settings) or ([f"<gid of {settings.group_of}>"] if settings.group_of else [])
        options: list[tuple[str, str]] = [
            ("--name", _name(plan, places)),
            *(("--label", f"{name}={value}") for name, value in own_labels(places.campaign_id, plan.label).items()),
            ("--network", "bridge"),
            ("--publish", f"{LOOPBACK}:{'' if places.port is None else places.port}:{CONTAINER_PORT}"),
            *(("--mount", _mount_option(bind)) for bind in _binds(settings, places, model)),
            *(("--device", device) for device in settings.devices),
            *(("--group-add", group) for group in groups),
            *(("--cap-add", capability) for capability in settings.cap_add),
            *(("--security-opt", option) for option in settings.security_opt),
            *(("--ulimit", f"{name}={value}:{value}") for name, value in settings.ulimits.items()),
            *([("--ipc", settings.ipc)] if settings.ipc else []),
            ("--shm-size", str(settings.shm_size)),
            ("--memory", str(settings.memory)),
            ("--memory-swap", str(settings.memory)),
            ("--log-driver", LOG_DRIVER),
            *(("--log-opt", f"{name}={value}") for name, value in LOG_OPTIONS.items()),
            *(("--env", name if is_secret(name) else f"{name}={value}") for name, value in env.items()),
        ]
        words = ["docker", "run", "--detach", "--no-healthcheck", *(word for option in options for word in option)]
        return shlex.join([*words, f"<image {plan.image}>" if image is None else image.id, *arguments])


def _settings(plan: ServerPlan) -> Settings:
    if plan.container is None:
        raise LaunchError(f"server {plan.label} has no container settings; add a [container] table to its launcher")
    return plan.container


def _run(
    client: DockerClient,
    name: str,
    plan: ServerPlan,
    places: Places,
    *,
    image: ImageFacts,
    model: Path | None,
    groups: list[str],
    port: int,
) -> Container:
    settings = _settings(plan)
    arguments, env = filled(plan, ROLES)
    host = client.api.create_host_config(
        devices=[f"{device}:{device}:rwm" for device in settings.devices],
        group_add=groups,
        cap_add=settings.cap_add,
        security_opt=settings.security_opt,
        ulimits=[Ulimit(name=limit, soft=value, hard=value) for limit, value in settings.ulimits.items()],
        ipc_mode=settings.ipc,
        shm_size=settings.shm_size,
        mem_limit=settings.memory,
        memswap_limit=settings.memory,  # equal on purpose: no swap
        port_bindings={CONTAINER_PORT: (LOOPBACK, port)},
        # As mounts, not as binds: Docker would silently make a bind's missing source.
        mounts=[
            Mount(bind.target, bind.source, type="bind", read_only=bind.read_only)
            for bind in _binds(settings, places, model)
        ],
        network_mode="bridge",
        log_config=LogConfig(type=LOG_DRIVER, config=LOG_OPTIONS),
    )
    created = client.api.create_container(
        image.id,
        arguments,
        name=name,
        environment=env,
        ports=[CONTAINER_PORT],
        labels=own_labels(places.campaign_id, plan.label),
        host_config=host,
        healthcheck={"test": ["NONE"]},  # an image's own would ask the server while it is measured
        use_config_proxy=False,  # the client's configuration must not add variables
    )
    container = Container(client, created["Id"])
    client.api.start(container.id)
    if container.look() == "running":
        published = container.inspect["NetworkSettings"]["Ports"].get(f"{CONTAINER_PORT}/tcp")
        if published != [{"HostIp": LOOPBACK, "HostPort": str(port)}]:
            raise LaunchError(
                f"Docker published server {plan.label} at {published}, not only at {LOOPBACK}:{port}; "
                "look at Docker's network settings"
            )
    return container


def _groups(settings: Settings) -> list[str]:
    """Numeric, because a group's name may not exist in the image."""
    nodes = glob.glob(settings.group_of) if settings.group_of else []  # noqa: PTH207 - an absolute pattern
    return [str(gid) for gid in sorted({os.stat(node).st_gid for node in nodes})]  # noqa: PTH116


def _binds(settings: Settings, places: Places, model: Path | None) -> list[Bind]:
    ours = [Bind(source=str(places.cache.absolute()), target="/cache", read_only=False)]
    if model is not None:
        ours.insert(0, Bind(source=str(model), target="/model"))
    return [*ours, *settings.binds]


def _mount_option(bind: Bind) -> str:
    """``--mount`` takes a CSV line."""
    source = f"source={bind.source}"
    quoted = '"' + source.replace('"', '""') + '"' if set(source) & set(',"') else source
    return f"type=bind,{quoted},target={bind.target}{',readonly' if bind.read_only else ''}"


def _name(plan: ServerPlan, places: Places) -> str:
    words = "".join(c if c.isalnum() and c.isascii() else "-" for c in f"{places.campaign_id}-{plan.label}")
    return f"{LABEL[:-1]}-{words}-{secrets.token_hex(4)}"


def own_labels(campaign: str, label: str) -> dict[str, str]:
    """What every container of ours carries, so that it can be found and its campaign be known."""
    return {
        f"{LABEL}campaign": campaign,
        f"{LABEL}label": label,
        f"{LABEL}pid": str(os.getpid()),
        f"{LABEL}run": mark(),
    }


def _redactor(places: Places, model: Path | None) -> Redactor:
    roles = {str(places.cache.absolute()): "<cache>", **home_roles()}
    return Redactor(roles if model is None else {**roles, str(model): "<model>"})


def list_ours(client: DockerClient) -> list[Ours]:
    """Every container that any campaign of this harness started and that still exists. Raises LaunchError."""
    try:
        found = client.api.containers(all=True, filters={"label": f"{LABEL}campaign"})
    except FAULTS as error:
        raise LaunchError(f"Docker can't list its containers ({explain(error)}); look at Docker's log") from None
    ours = []
    for container in found:
        labels = container["Labels"]
        pid = labels.get(f"{LABEL}pid", "")
        ours.append(
            Ours(
                id=container["Id"],
                campaign=labels[f"{LABEL}campaign"],
                label=labels.get(f"{LABEL}label", ""),
                running=container["State"] == "running",
                pid=int(pid) if pid.isdigit() else None,
                run=labels.get(f"{LABEL}run", ""),
            )
        )
    return ours


def remove_ours(client: DockerClient, container_id: str, *, stop_s: float = 180, gone_s: float = 120) -> bool:
    """Stop (kill only after ``stop_s``) and remove one of ``list_ours``. Returns whether it is gone."""
    container = Container(client, container_id)
    container.end(stop_s, gone_s)
    return container.remove(gone_s)
