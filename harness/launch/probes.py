"""Do the cards still compute, and still talk to each other: programs whose right answer is known beforehand.

Asked for before a campaign may start on a boot whose kernel log has a fault (contract section 8). They run in
containers of the campaign's own image, with the devices and the environment of its servers, and are limited in time.
"""

import glob
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from docker import DockerClient
from docker.types import Mount, Ulimit

from harness.errors import LaunchError
from harness.lanes import Container
from harness.launch.probed import ProbeResult
from harness.launch.programs import Call, Ended, run_program
from harness.plan import CACHE_VARIABLES, ServerPlan

Device = Literal["xpu", "cpu"]
SIZE, ROUNDS, SEED = 512, 20, 1
LENGTH = 1 << 20
"""floats that are added up"""
TARGET = "VLLM_TARGET_DEVICE"
TIMEOUT_S = 180.0
"""The first use of a card compiles kernels"""
SIDES = {"float32": SIZE, "float16": SIZE, "bfloat16": 256}


@dataclass(frozen=True)
class Probe:
    """A call, and how its answer is judged."""

    name: str
    call: Call
    digests: dict[str, str]
    """what every digest must be, by the name the program gives it"""


def compute_probe(name: str, call: Call, *, device: Device, rounds: int = ROUNDS, seed: int = SEED) -> Probe:
    """Matrix products of one device against those of numpy. ``call`` says where it runs."""
    arguments = (device, str(SIZE), str(rounds), str(seed))
    return Probe(name, _with(call, "compute.py", arguments), {kind: product(side) for kind, side in SIDES.items()})


def all_reduce_probe(
    name: str, call: Call, *, device: Device, processes: int, rounds: int = ROUNDS, seed: int = SEED
) -> Probe:
    """The sum over all processes, as each of them got it."""
    arguments = (device, str(processes), str(LENGTH), str(rounds), str(seed))
    digests = {str(rank): total(processes) for rank in range(processes)}
    return Probe(name, _with(call, "all_reduce.py", arguments), digests)


def _with(call: Call, program: str, arguments: Sequence[str]) -> Call:
    return replace(call, program=program, arguments=arguments)


def product(size: int, seed: int = SEED) -> str:
    """sha256 of the product as int32, row by row."""
    row, column = np.arange(size, dtype=np.int64).reshape(-1, 1), np.arange(size, dtype=np.int64).reshape(1, -1)
    left, right = ((row * f + column * (f + 4) + row * column + seed) % 3 - 1 for f in (7, 11))
    return hashlib.sha256((left @ right).astype(np.int32).tobytes()).hexdigest()


def total(processes: int, seed: int = SEED, length: int = LENGTH) -> str:
    """sha256 of the sum over the processes as int32."""
    index = np.arange(length, dtype=np.int64)
    summed = sum(((index * (rank + 3) + seed) % 61 for rank in range(processes)), np.zeros(length, np.int64))
    return hashlib.sha256(summed.astype(np.int32).tobytes()).hexdigest()


def run_probe(client: DockerClient, image_id: str, probe: Probe, *, campaign: str) -> ProbeResult:
    """Run and judge one; what can't be run has not passed. Never raises LaunchError."""
    try:
        ended = run_program(client, image_id, probe.call, campaign=campaign, label="probe")
    except LaunchError as error:
        return ProbeResult(name=probe.name, passed=False, seconds=0.0, why=str(error))
    told, why = judge(probe, ended)
    return ProbeResult(name=probe.name, passed=not why, seconds=round(ended.seconds, 3), why=why, told=told)


def judge(probe: Probe, ended: Ended) -> tuple[dict[str, Any], str]:
    """What the program told beside its digests, and why it hasn't passed; an empty sentence when it has."""
    if ended.state == "timed out":
        why = f"it gave no answer within {probe.call.timeout_s:g} s"
        return {}, why if ended.gone else f"{why}, and its container could not be removed"
    last = next((line.strip() for line in reversed(ended.errors.splitlines()) if line.strip()), "no message")
    if ended.exit_code != 0:
        return {}, f"it ended with exit code {ended.exit_code}: {last[:300]}"
    try:
        said = json.loads(ended.output.splitlines()[-1])
        found = said.pop("digests")
        named = found if isinstance(found, dict) else {str(at): digests for at, digests in enumerate(found)}
        answers = {str(name): list(digests) for name, digests in named.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}, "its answer can't be read"
    if said.get("devices", 1) != 1:
        return said, f"it saw {said['devices']} devices where one was to be chosen"
    if answers.keys() != probe.digests.keys():
        return said, f"it answered for {', '.join(sorted(answers)) or 'nothing'}, not for all that was asked"
    wrong = [name for name, digests in answers.items() if digests != [probe.digests[name]]]
    if wrong:
        ways = max(len(answers[name]) for name in wrong)
        also = f", in {ways} different ways" if ways > 1 else ""
        return said, f"its result is wrong ({', '.join(wrong)}{also})"
    return said, ""


def card_probes(
    plan: ServerPlan,
    card_env: str,
    *,
    image_env: Mapping[str, str],
    cards: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> list[Probe]:
    """One compute probe for each card of the plan, and an all-reduce over all of them where there are several.

    They run on what the servers run on: xpu where the launcher or its image (``image_env``) sets VLLM_TARGET_DEVICE so.
    Else the CPU, but never where the plan has real cards (``cards``: their addresses, or devices of the container): a
    probe that doesn't touch a card says nothing of it. Raises LaunchError.
    """
    plan = plan.given
    target = {**image_env, **plan.env}.get(TARGET, "")
    device: Device = "xpu" if target.strip().lower() == "xpu" else "cpu"
    settings, mask = plan.container, plan.env[card_env]
    if settings is None:
        raise LaunchError(f"server {plan.label} runs in no container, so no probe can")
    if device != "xpu" and (cards or settings.devices):
        raise LaunchError(
            f"server {plan.label} is given cards, but {TARGET} is {target or 'not set'}, so a probe would "
            f"compute on the CPU; set {TARGET} to xpu in the launcher"
        )
    env = {name: value for name, value in plan.env.items() if name not in CACHE_VARIABLES}
    # Not killed while it may still be in a collective, as a server isn't.
    call = Call("", (), env, host_config(settings), settings.memory, timeout_s, plan.limits.stop_s)
    indices = mask.split(",")
    probes = [
        compute_probe(f"compute on card {card} ({device})", replace(call, env={**env, card_env: card}), device=device)
        for card in indices
    ]
    if len(indices) > 1:
        name = f"all-reduce over {len(indices)} cards ({device})"
        probes.append(all_reduce_probe(name, call, device=device, processes=len(indices)))
    return probes


def host_config(settings: Container) -> dict[str, Any]:
    """The devices, groups, mounts and limits of a launcher's servers; its network stays out."""
    nodes = glob.glob(settings.group_of) if settings.group_of else []  # noqa: PTH207 - an absolute pattern
    return {
        "devices": [f"{device}:{device}:rwm" for device in settings.devices],
        "group_add": [str(gid) for gid in sorted({os.stat(node).st_gid for node in nodes})],  # noqa: PTH116
        "cap_add": settings.cap_add,
        "security_opt": settings.security_opt,
        "ulimits": [Ulimit(name=limit, soft=value, hard=value) for limit, value in settings.ulimits.items()],
        "ipc_mode": settings.ipc,
        "shm_size": settings.shm_size,
        "mounts": [Mount(b.target, b.source, type="bind", read_only=b.read_only) for b in settings.binds],
    }
