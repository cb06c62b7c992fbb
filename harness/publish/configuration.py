"""What a campaign measured, as one comparable value: two results stand side by side only if these are equal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.context_schema import ContextAttempt
from harness.evidence.ladder_schema import AnyEvidence, LadderAttempt, LadderEvidence
from harness.evidence.schema import Attempt, AttemptStatus, Evidence, Start, Status
from harness.measure.gates import Gate
from harness.plan import CACHE_VARIABLES, ServerPlan

KV_TYPES = {"float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32"}
"""By dtype; other words are vLLM's own and stand as they are"""


@dataclass(frozen=True)
class Configuration:
    """The configuration of a campaign's measured servers (those of the greatest depth)."""

    kind: str
    """strict, ladder, …"""
    lane: str
    engine: str
    image: str | None
    image_id: str | None
    vllm: str | None
    """version as the server answered it; null when it didn't"""
    model_repository: str | None
    model_revision: str | None
    model_sha256: str | None
    suite_id: str
    suite_sha256: str
    tensor_parallel: int
    depth: int
    graph: str
    """"on" or "off" """
    kv: str
    context: int
    """max-model-len"""
    max_num_seqs: int
    max_num_batched_tokens: int
    classpad: bool
    draft_head: str
    """"draft INT4", "model's own" or "n/a" at depth 0"""
    quantization: str
    """as asked with --quantization; "none" without it"""
    host: str
    boot_id: str
    environment: Mapping[str, str] = field(hash=False)
    """as applied where it was read back, without caches, ports and cards"""
    arguments: tuple[str, ...] = ()


B70_ID = "0xe223"
"""PCI device id of an Arc Pro B70, as sysfs writes it"""


@dataclass(frozen=True)
class Cards:
    """The kind of cards that the servers of a campaign ran on."""

    present: bool
    """the servers were started for xpu, on a host with cards of the xe driver"""
    ids: frozenset[str]
    """PCI device ids of the host's cards; empty unless every one's is recorded"""

    @property
    def b70(self) -> bool:
        """Whether every card of the host is recorded as a B70."""
        return self.present and self.ids == {B70_ID}

    def words(self, count: int) -> str:
        """``one B70``, ``2 B70s``, or what else is known of them."""
        if not self.present:
            return "no card"
        if self.b70:
            return "one B70" if count == 1 else f"{count} B70s"
        what = "one Intel card" if count == 1 else f"{count} Intel cards"
        if not self.ids:
            return f"{what} of unknown kind (device id not recorded)"
        return f"{what} (device id {' or '.join(sorted(self.ids))})"


def argument(words: list[str], name: str) -> str | None:
    """The word after ``name``; None without it. The last one wins, as in vLLM."""
    found = [words[at + 1] for at, word in enumerate(words[:-1]) if word == name]
    return found[-1] if found else None


def measured_plan(start: Start) -> ServerPlan:
    """The plan of the first server of the measured depth."""
    plan = start.plan
    return next((server for server in plan.servers if server.depth == plan.depth), plan.servers[-1])


def attempts_of(evidence: AnyEvidence) -> list[Attempt] | list[LadderAttempt] | list[ContextAttempt]:
    """All attempts, the interrupted ones too."""
    return evidence.attempts


def configuration_of(evidence: AnyEvidence) -> Configuration:
    """See ``Configuration``; what isn't recorded is None, or its name with "unknown"."""
    start = evidence.start
    plan = measured_plan(start)
    words = plan.arguments
    server = next((item.server for item in evidence.attempts if item.label == plan.label and item.server), None)
    applied = server.applied if server is not None else None
    readiness = server.readiness if server is not None else None
    env = dict(applied.env if applied is not None else plan.env)
    for name in (*CACHE_VARIABLES, "HOME", "TMPDIR", "HOSTNAME"):
        env.pop(name, None)
    compilation: Any = json.loads(argument(words, "--compilation-config") or "{}")
    graph = compilation.get("cudagraph_mode", "NONE") not in ("NONE", 0, None) and "--enforce-eager" not in words
    model = start.model
    return Configuration(
        kind=evidence.kind,
        lane=start.plan.lane,
        engine=start.plan.engine,
        image=plan.image,
        image_id=plan.image_id or (applied.image_id if applied is not None else None),
        vllm=readiness.version if readiness is not None else None,
        model_repository=model.repository if model is not None else None,
        model_revision=model.revision if model is not None else None,
        model_sha256=model.sha256 if model is not None else None,
        suite_id=start.suite.id,
        suite_sha256=start.suite.sha256,
        tensor_parallel=plan.tensor_parallel,
        depth=plan.depth,
        graph="on" if graph else "off",
        kv=kv_type(words),
        context=int(argument(words, "--max-model-len") or 0),
        max_num_seqs=int(argument(words, "--max-num-seqs") or 0),
        max_num_batched_tokens=int(argument(words, "--max-num-batched-tokens") or 0),
        classpad=plan.classpad,
        draft_head="n/a" if not plan.depth else _draft_head(env),
        quantization=argument(words, "--quantization") or "none",
        host=str(start.host.value("hostname") or "unknown"),
        boot_id=str(start.host.value("boot_id") or "unknown"),
        environment=env,
        arguments=tuple(words),
    )


def kv_type(words: list[str]) -> str:
    """The KV cache's element type; ``auto`` is the model's own dtype, which only ``--dtype`` tells."""
    asked = argument(words, "--kv-cache-dtype") or "auto"
    if asked == "auto":
        asked = argument(words, "--dtype") or "auto"
    return KV_TYPES.get(asked, asked)


def _draft_head(env: Mapping[str, str]) -> str:
    return "draft INT4" if env.get("VLLM_XPU_DRAFT_LM_HEAD_INT4") == "1" else "model's own"


def why_unpublishable(evidence: AnyEvidence) -> list[str]:
    """Why no number of a verified campaign may be published, one sentence each; empty when it may.

    Simulated, attached, interrupted, or with a failed gate (contract section 4). Everything else is refused before,
    because it doesn't verify.
    """
    start = evidence.start
    reasons = []
    if evidence.simulated:
        reasons.append("it is simulated: nothing in it is a measurement")
    if start.plan.engine == "attach":
        reasons.append("it was measured on a server that bench did not start, so its freshness isn't proven")
    if evidence.status in ("started", "interrupted"):
        reasons.append("it has not ended")
    gates = [gate for gate in counting_gates(evidence) if not gate.passed]
    failed = sorted({f"{gate.name} of {gate.subject}" for gate in gates})
    if failed:
        reasons.append(f"a gate failed: {', '.join(failed)}")
    elif isinstance(evidence, Evidence):
        if evidence.withheld:
            reasons.append(f"its number is withheld: {evidence.conclusion}")
    elif evidence.status is Status.WITHHELD:
        # What withholds single rungs or contexts stands in the scope sentence; anything else withholds them all.
        parts = evidence.rungs if isinstance(evidence, LadderEvidence) else evidence.points
        own = {said for part in parts if part.withheld for said in part.why}
        if other := [said for said in evidence.reasons if said not in own]:
            more = f" (and {len(other) - 1} more)" if len(other) > 1 else ""
            reasons.append(f"it is withheld as a whole: {other[0]}{more}")
    elif evidence.status is not Status.PASSED and not reasons:
        reasons.append(f"it is {evidence.status}, which is no verdict: {evidence.conclusion}")
    return reasons


def counting_gates(evidence: AnyEvidence) -> list[Gate]:
    """The gates that a campaign's status follows from, after a resume too.

    A strict or context campaign is measured again as a whole server, so the last attempt of each label counts. Passes
    of a ladder count on the server that measured them, so every server that wasn't interrupted does.
    """
    every = attempts_of(evidence)
    if isinstance(evidence, LadderEvidence):
        counting = [attempt for attempt in every if attempt.status is not AttemptStatus.INTERRUPTED]
    else:
        counting = list({attempt.label: attempt for attempt in every}.values())
    return [*evidence.gates, *(gate for attempt in counting for gate in attempt.gates)]


def cards_of(evidence: AnyEvidence) -> Cards:
    """What ran a campaign, from the environment that was applied to its servers and the host's recorded facts."""
    host, engine = evidence.start.host, evidence.start.plan.engine
    servers = [attempt.server for attempt in attempts_of(evidence) if attempt.server is not None]
    environments = [server.applied.env for server in servers if server.applied is not None]
    on_xpu = bool(environments) and all(env.get("VLLM_TARGET_DEVICE") == "xpu" for env in environments)
    listed = host.value("cards")
    if engine not in ("docker", "process") or not on_xpu or not isinstance(listed, list) or not listed:
        return Cards(present=False, ids=frozenset())
    ids = [host.value(f"card {address} device_id") for address in listed]
    known = all(isinstance(found, str) for found in ids)
    return Cards(present=True, ids=frozenset(found.lower() for found in ids) if known else frozenset())
