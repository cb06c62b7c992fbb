"""Lane + options → the servers of a campaign, exactly as they will be asked for, and the hash of that plan.

A plan names host paths by role (``<model>``, ``<cache>``) and the port as ``<port>``: each engine puts its own in.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from harness.errors import UsageError
from harness.lanes import Container, EngineName, Image, Lane, Limits, Strict, image_with_feature
from harness.redact import DROPPED, Redactor, home_roles, is_secret

CACHE_VARIABLES = {
    "VLLM_CACHE_ROOT": "vllm",
    "XDG_CACHE_HOME": "xdg",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "NEO_CACHE_DIR": "neo",
    "SYCL_CACHE_DIR": "sycl",
}
"""All six compile caches and their folder inside the one cache directory of a server (contract section 2)."""

SPECULATIVE_FLAG = "--speculative-config"
DEV_MODE = "VLLM_SERVER_DEV_MODE"

CANARY_MAX_TOKENS, SHORT_CANARY_MAX_TOKENS = 512, 96
"""Of a chat canary, which may begin with reasoning; the second where the context holds no more"""
ROOMY_CONTEXT = 1024

HIGH_SHAPE = "ladder-high"
"""The shape for rungs above 64 users"""

MEASUREMENT_VERSION = 1
"""Goes into the plan's hash: raised whenever what is sent or how it is judged changes."""


class ServerPlan(Strict):
    """One server as it is asked for."""

    label: str
    """mtp0-a, mtp0-b, mtp3-a, …"""
    depth: int
    """MTP depth; 0 has no speculative config at all"""
    tensor_parallel: int
    engine: EngineName
    image: str | None
    """name of the image file"""
    image_id: str | None
    """id of the image on this host; part of the plan, so that a resume can't mix images"""
    served_model_name: str
    arguments: list[str]
    """server arguments after the entrypoint, with roles for paths"""
    env: dict[str, str]
    container: Container | None
    canaries: str
    """"chat" or "repeat" """
    canary_thinking: bool | None
    canary_max_tokens: int = CANARY_MAX_TOKENS
    compiles: bool
    """false with --enforce-eager: the compile-log proof is not applicable"""
    classpad: bool
    limits: Limits
    url: str | None = None
    """attach only: where the server is"""
    dev_mode: bool = False
    _given: "ServerPlan | None" = PrivateAttr(default=None)

    @property
    def given(self) -> "ServerPlan":
        """The same as the launcher and the site file have it: what an engine starts. Never recorded."""
        return self._given or self

    def recorded(self) -> "ServerPlan":
        """The plan that may be kept and hashed: secrets dropped by name, this host's paths by role; see ``given``."""
        redactor = Redactor(home_roles())
        changes: dict[str, Any] = {
            "env": {name: DROPPED if is_secret(name) else redactor.text(value) for name, value in self.env.items()},
            "arguments": redactor.arguments(self.arguments),
        }
        if self.container is not None:
            binds = [bind.model_copy(update={"source": redactor.text(bind.source)}) for bind in self.container.binds]
            changes["container"] = self.container.model_copy(update={"binds": binds})
        found = self.model_copy(update=changes)
        if found == self:
            return self
        found._given = self
        return found


class LadderPlan(Strict):
    """What a ladder sends (contract section 5)."""

    rungs: list[int]
    """concurrent users, ascending"""
    passes: int
    stagger_ms: float
    """0: all requests at the barrier"""
    verbatim: bool
    """prompts word for word, repeated over the slots, instead of one suffix each"""
    shape: str
    ceiling: int | None
    """tokens up to which graphs are captured; null without graphs"""
    workers: int
    """client processes"""
    direct: bool
    """the container's own address instead of the published port"""
    oracle: str | None
    """sha256 of the oracle answers taken from an earlier campaign; null when measured here"""


class ContextPrompt(Strict):
    """A prompt given as token ids (contract section 7)."""

    id: str
    text: str
    """name of the text whose ids it is made of"""
    tokens: int
    """its exact length"""
    max_tokens: int
    what: str
    """what its length stands for: the context, or 1, 2, K, 1+K, 2+K, full"""
    skip: int = 0
    """so many ids of the text's stand behind it"""


class ContextPlan(Strict):
    """What a long-context campaign, the boundary probes, or a strict suite's last stage sends."""

    shape: str
    max_model_len: int
    texts: dict[str, str]
    """sha256 of each text's bytes, by name"""
    prompts: list[ContextPrompt] = Field(min_length=1)
    """in the order sent"""
    left_out: list[str] = Field(default_factory=list)
    """boundary probes that the launcher doesn't let be asked, by what their length stands for"""


class CampaignPlan(Strict):
    """Everything that decides what a campaign measures."""

    measurement_version: int = MEASUREMENT_VERSION
    kind: str
    """strict, ladder, depth or probe"""
    lane: str
    engine: EngineName
    suite_id: str
    suite_sha256: str
    depth: int
    tensor_parallel: int
    model_sha256: str | None = None
    """sha256 over the sorted list of the model's files (name, size, sha256); null when there is no model directory"""
    ladder: LadderPlan | None = None
    context: ContextPlan | None = None
    """prompts of token ids: all of a depth or probe campaign, the last stage of a strict one with --probes"""
    stream_canary: bool = False
    """one prompt of the strict suite once more and not as a stream, after it, on each server"""
    servers: list[ServerPlan] = Field(min_length=1)

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what isn't asked for: evidence from before it could be must keep its bytes."""
        dumped: dict[str, Any] = handler(self)
        for name in ("context", "stream_canary"):
            if not dumped.get(name, True):
                del dumped[name]
        return dumped

    def sha256(self) -> str:
        """The key that a resume must match. Defaults are left out, so that a field added later keeps older keys."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json", exclude_defaults=True)).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def strict_labels(depth: int) -> list[tuple[str, int]]:
    """Label and depth of the servers of a strict campaign, in order (contract section 2)."""
    pair = [("mtp0-a", 0), ("mtp0-b", 0)]
    return pair if depth == 0 else [*pair, (f"mtp{depth}-a", depth), (f"mtp{depth}-b", depth)]


def check_choice(lane: Lane, *, engine: EngineName, depth: int, tensor_parallel: int) -> None:
    """Refuse what the lane doesn't offer. Raises UsageError."""
    if engine not in lane.engines:
        raise UsageError(f"launcher {lane.name} has no engine {engine}; use one of {', '.join(lane.engines)}")
    if depth not in lane.mtp_depths:
        raise UsageError(f"launcher {lane.name} has no MTP depth {depth}; use one of {_listed(lane.mtp_depths)}")
    if tensor_parallel not in lane.tensor_parallel:
        raise UsageError(f"launcher {lane.name} has no TP{tensor_parallel}; use one of {_listed(lane.tensor_parallel)}")


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def check_image(lane: Lane, image: Image | None, *, classpad: bool, depth: int) -> None:
    """Refuse an image that the lane doesn't accept or that lacks a needed feature. Raises UsageError."""
    if image is None:
        if classpad:
            raise UsageError(f"launcher {lane.name} starts no image, so --classpad can't be proven; leave it out")
        return
    if lane.images and image.name not in lane.images:
        raise UsageError(f"launcher {lane.name} doesn't accept image {image.name}; use one of {', '.join(lane.images)}")
    needed = [("mtp", depth > 0, f"--mtp {depth}"), ("classpad", classpad, "--classpad")]
    for feature, wanted, option in needed:
        if wanted and feature not in image.features:
            other = image_with_feature(feature, lane.images)
            advice = f"use --image {other}" if other else f"leave {option} out"
            raise UsageError(f"image {image.name.upper()} has no {feature}, which {option} needs; {advice}")


def server_plan(
    lane: Lane,
    *,
    label: str,
    depth: int,
    tensor_parallel: int,
    shape: str,
    engine: EngineName,
    image: Image | None = None,
    image_id: str | None = None,
    classpad: bool = False,
    cards: str | None = None,
    site_env: Mapping[str, str] | None = None,
    url: str | None = None,
    extra_arguments: Sequence[str] = (),
) -> ServerPlan:
    """The server that ``lane`` asks for. ``cards`` is the value of the lane's card variable, e.g. ``"0,1"``.

    Raises UsageError for a shape the lane lacks, for --classpad where it knows none, and for missing site settings.
    """
    if shape not in lane.shapes:
        raise UsageError(f"launcher {lane.name} has no [shapes.{shape}] table; add one to measure {shape} on it")
    if classpad and lane.env_classpad is None:
        raise UsageError(f"launcher {lane.name} knows no CLASSPAD; leave --classpad out")
    sizes = lane.shapes[shape]
    host = "0.0.0.0" if engine == "docker" else "127.0.0.1"  # noqa: S104 - inside the container; published on loopback
    arguments = [
        *(["--model", "<model>"] if lane.model.directory_needed else []),
        *("--served-model-name", lane.served_model_name, "--host", host, "--port", "<port>"),
        *("--tensor-parallel-size", str(tensor_parallel)),
        *lane.arguments,
        *("--max-model-len", str(sizes.max_model_len), "--max-num-seqs", str(sizes.max_num_seqs)),
        *("--max-num-batched-tokens", str(sizes.max_num_batched_tokens)),
    ]
    if depth:
        config = {"method": lane.speculative_method, "num_speculative_tokens": depth}
        arguments += [SPECULATIVE_FLAG, json.dumps(config, separators=(",", ":"))]
    if lane.eager:
        arguments.append("--enforce-eager")
    elif lane.compilation is not None:
        compilation = lane.compilation | ((lane.compilation_high or {}) if shape == HIGH_SHAPE else {})
        arguments += ["--compilation-config", json.dumps(compilation, separators=(",", ":"))]
    return ServerPlan(
        label=label,
        depth=depth,
        tensor_parallel=tensor_parallel,
        engine=engine,
        image=None if image is None else image.name,
        image_id=image_id,
        served_model_name=lane.served_model_name,
        arguments=[*arguments, *extra_arguments],
        env=_environment(lane, depth, tensor_parallel, classpad=classpad, cards=cards, site_env=site_env or {}),
        container=lane.container if engine == "docker" else None,
        canaries=lane.canaries,
        canary_thinking=lane.canary_thinking,
        canary_max_tokens=CANARY_MAX_TOKENS if sizes.max_model_len >= ROOMY_CONTEXT else SHORT_CANARY_MAX_TOKENS,
        compiles=not lane.eager,
        classpad=classpad,
        limits=lane.limits,
        url=url,
        dev_mode=lane.dev_mode,
    )


def _environment(
    lane: Lane, depth: int, tensor_parallel: int, *, classpad: bool, cards: str | None, site_env: Mapping[str, str]
) -> dict[str, str]:
    """Everything the server's environment must hold beyond its image's own; later never overrides earlier unseen."""
    env = dict(lane.env)
    env |= lane.env_mtp if depth else {}
    env |= (lane.env_classpad or {}) if classpad else {}
    if tensor_parallel > 1 and lane.site_env_tp2:
        missing = [name for name in lane.site_env_tp2 if name not in site_env]
        if missing:
            raise UsageError(
                f"TP{tensor_parallel} on launcher {lane.name} needs this host's own values of {', '.join(missing)}; "
                "write them into a [env] table of a TOML file and give it with --site"
            )
    later = {*CACHE_VARIABLES, *([lane.card_env] if lane.card_env else []), *([DEV_MODE] if lane.dev_mode else [])}
    clash = sorted(set(site_env) & (set(env) | later) - set(lane.site_env_tp2))
    if clash:
        raise UsageError(
            f"the site file sets {', '.join(clash)}, which launcher {lane.name} sets itself; remove it there, "
            "because one of the two would win silently"
        )
    if tensor_parallel > 1:
        env |= {name: site_env[name] for name in lane.site_env_tp2 if name in site_env}
    env |= {name: value for name, value in site_env.items() if name not in lane.site_env_tp2}
    if lane.card_env is not None:
        if "ONEAPI_DEVICE_SELECTOR" in env:
            raise UsageError(
                "ONEAPI_DEVICE_SELECTOR and ZE_AFFINITY_MASK are applied one after the other and can hide every card; "
                "remove ONEAPI_DEVICE_SELECTOR from the site file and choose cards with --card"
            )
        env[lane.card_env] = cards_mask(cards, tensor_parallel)
    elif cards is not None:
        raise UsageError(f"launcher {lane.name} has no cards to choose; leave --card out")
    if lane.dev_mode:
        env[DEV_MODE] = "1"
    return env | {name: f"<cache>/{folder}" for name, folder in CACHE_VARIABLES.items()}


def cards_mask(cards: str | None, tensor_parallel: int) -> str:
    """``--card`` → the affinity mask; the first ``tensor_parallel`` cards when not given. Raises UsageError."""
    if cards is None:
        return ",".join(str(card) for card in range(tensor_parallel))
    if not re.fullmatch(r"\d+(,\d+)*", cards):
        raise UsageError(f"--card {cards} is not a list of card numbers; write for example --card 0 or --card 0,1")
    chosen = [int(card) for card in cards.split(",")]
    if len(chosen) != tensor_parallel or len(set(chosen)) != tensor_parallel:
        raise UsageError(
            f"--card {cards} names {len(set(chosen))} cards{', one twice' if len(set(chosen)) < len(chosen) else ''}, "
            f"but --tp {tensor_parallel} needs {tensor_parallel}; name exactly as many different cards"
        )
    return ",".join(map(str, chosen))


def oracle_differences(lane: Lane) -> tuple[frozenset[str], str]:
    """What may differ between a depth-D server and its MTP0 oracle: variable names, and the argument flag."""
    return frozenset(lane.env_mtp), SPECULATIVE_FLAG
