"""Launcher ("lane") and image files: TOML from launchers/ and images/ → typed values (contract section 2)."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.data import find, names
from harness.errors import UsageError
from harness.strangers import read_toml

EngineName = Literal["docker", "process", "attach", "simulated"]

UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


def parse_bytes(value: object) -> object:
    """``"8g"`` → 8589934592, Docker's binary units; integers pass through."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,15}[kmgKMG]", value):
        return int(value[:-1]) * UNITS[value[-1].lower()]
    return value


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0, lt=1 << 62)]
"""Docker counts them in 64 bits"""


class Strict(BaseModel):
    """Base of everything that is read from a file: unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )


Seconds = Annotated[float, Field(ge=0, le=30 * 86400)]
Environment = dict[Annotated[str, Field(pattern=r"^[^=\x00]+\z")], str]
"""Variables by name; a name with a = would become another variable"""


class Bind(Strict):
    """A bind mount of a host path that is the same on every host."""

    source: str
    target: str
    read_only: bool = True


class Container(Strict):
    """What the docker engine adds around the server (contract section 2, "Container")."""

    devices: list[str] = []
    """host device paths, given to the container under the same name"""
    binds: list[Bind] = []
    group_of: str | None = None
    """glob of a device node whose numeric group is added (the name may not exist in the image)"""
    cap_add: list[str] = []
    security_opt: list[str] = []
    ulimits: dict[str, int] = {}
    """soft = hard limit"""
    ipc: str | None = None
    shm_size: Bytes
    """bytes"""
    memory: Bytes
    """bytes"""
    memory_swap: Bytes | None = None
    """bytes of memory + swap as Docker counts them; must equal ``memory``, which is its default here"""

    @property
    def swap_total(self) -> int:
        """memory + swap in bytes, as handed to Docker."""
        return self.memory if self.memory_swap is None else self.memory_swap


Count = Annotated[int, Field(gt=0, lt=1 << 31)]


class Shape(Strict):
    """One row of the shape table of contract section 2."""

    max_model_len: Count
    max_num_seqs: Count
    max_num_batched_tokens: Count


class Model(Strict):
    """Where the weights come from; the directory itself is given with ``--model-dir``."""

    repository: str | None = None
    revision: str | None = None
    directory_needed: bool = True
    manifest: str | None = None
    """name or path of a model manifest that the directory must match; a relative path starts at this file's folder"""


class Limits(Strict):
    """Deadlines of a server's life, seconds (contract section 2, Ready and Stop)."""

    ready_s: Seconds = 1800
    stall_s: Seconds = 300
    """without a new log line"""
    stop_s: Seconds = 180
    """between the stop signal and a kill"""
    gone_s: Seconds = 120
    """between the end of the server and its container being gone"""


class Lane(Strict):
    """A launcher file: one model on one kind of host, everything that is asked of its servers."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str
    engine: EngineName
    """the default engine"""
    engines: list[EngineName]
    images: list[str] = []
    """image files this lane accepts, the default first"""
    served_model_name: str
    tensor_parallel: list[int]
    mtp_depths: list[int]
    speculative_method: str
    canaries: Literal["chat", "repeat"] = "chat"
    """contract section 3: "repeat" only for a server without a chat template or a model too small to answer"""
    canary_thinking: bool | None = None
    """for the chat template of canaries only: a model that reasons by default spends its cap before it answers"""
    min_mem_available: Bytes | None = None
    """bytes of MemAvailable to wait for before a server starts"""
    model: Model = Model()
    container: Container | None = None
    arguments: list[str] = []
    """server arguments that are the same for every shape and depth"""
    eager: bool = False
    """--enforce-eager: no graphs, no compilation, and the second freshness proof is not applicable"""
    compilation: dict[str, Any] | None = None
    """value of --compilation-config"""
    compilation_high: dict[str, Any] | None = None
    """keys of ``compilation`` that the shape for rungs above 64 replaces"""
    env: Environment = {}
    env_mtp: Environment = {}
    """only with depth > 0"""
    env_classpad: Environment | None = None
    """with --classpad; null where the lane knows no CLASSPAD"""
    card_env: str | None = None
    """the variable that chooses cards, e.g. ZE_AFFINITY_MASK"""
    site_env_tp2: list[str] = []
    """variables that must come from the site file for TP2: right on one rig, wrong on another, so without default"""
    shapes: dict[str, Shape]
    depths: list[Count] | None = None
    """prompt tokens that bench depth measures, ascending; null: those of contract section 7"""
    probes_left_out: list[Literal["1", "2", "K", "1+K", "2+K", "full"]] = []
    """boundary probes that aren't asked, because this server is known to die of them; evidence says so"""
    limits: Limits = Limits()
    dev_mode: bool = False
    """VLLM_SERVER_DEV_MODE=1: /server_info shows the resolved configuration; the port is on loopback only"""


class Image(Strict):
    """An image file: what an image must be."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    title: str
    ids: list[str] = []
    """accepted pins; each matches the local Id or a repository digest, because stores differ in which they show"""
    references: list[str] = []
    """names to look the image up by when it isn't found by a pin"""
    labels: dict[str, str] = {}
    """labels it must carry"""
    files: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = {}
    """files it must hold, by absolute path, and their sha256; bench doctor reads them inside a container of it"""
    version: str
    """vLLM's version in it"""
    features: list[str] = []
    entrypoint: list[str]
    obtain: str
    """one sentence: how to get it onto this host"""


def _load(kind: Literal["images", "launchers"], name_or_path: str) -> tuple[Path, dict[str, Any]]:
    path = find(kind, name_or_path, ".toml")
    what = kind[:-1]
    return path, read_toml(path, f"{what} file", f"give a {what} file")


def _explain(what: str, path: Path, error: ValidationError) -> UsageError:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the top level"
    hint = "remove or correct that key" if first["type"] == "extra_forbidden" else "correct that value"
    return UsageError(f"{what} file {path.name}: {where}: {first['msg'].lower()}; {hint}")


def load_lane(name_or_path: str) -> Lane:
    """Load ``launchers/NAME.toml`` or the file at a path. Raises UsageError in one sentence."""
    path, raw = _load("launchers", name_or_path)
    try:
        lane = Lane.model_validate(raw)
    except ValidationError as error:
        raise _explain("launcher", path, error) from None
    beside = path.parent / lane.model.manifest if lane.model.manifest is not None else None
    if beside is not None and beside.is_file():
        lane = lane.model_copy(update={"model": lane.model.model_copy(update={"manifest": str(beside)})})
    if lane.container is not None and lane.container.swap_total != lane.container.memory:
        raise UsageError(
            f"launcher file {path.name}: container.memory_swap ({lane.container.memory_swap}) must equal "
            f"container.memory ({lane.container.memory}), because a container that may swap makes the xe driver fault; "
            "remove memory_swap"
        )
    if lane.engine == "docker" and lane.container is None:
        raise UsageError(f"launcher file {path.name}: the docker engine needs a [container] table; add one")
    return lane


def load_image(name_or_path: str) -> Image:
    """Load ``images/NAME.toml`` or the file at a path. Raises UsageError in one sentence."""
    path, raw = _load("images", name_or_path)
    try:
        return Image.model_validate(raw)
    except ValidationError as error:
        raise _explain("image", path, error) from None


def image_with_feature(feature: str, among: list[str]) -> str | None:
    """The first image name in ``among`` that has ``feature``; for error messages."""
    known = [name for name in among if name in names("images", ".toml")]
    return next((name for name in known if feature in load_image(name).features), None)
