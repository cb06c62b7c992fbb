"""How much faster could it get: a stated roofline beside a measurement, never mixed with it. Pure.

A decoding step reads its weights, keys and values and states once from a card's memory, and nothing else takes time:
that is the ceiling. A measured rate's share of it says what is left. See ``project`` for the bytes.
"""

import math
from collections.abc import Mapping
from typing import Literal

from harness.errors import UsageError
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Attempt, Evidence, Pair
from harness.lanes import Strict
from harness.models import Manifest, Weights
from harness.plan import ServerPlan
from harness.publish.configuration import argument, cards_of

LABEL: Literal["projected, not measured"] = "projected, not measured"
B70_BYTES_S = 608e9
"""memory bandwidth of one Arc Pro B70, bytes/s (contract section 1)"""
WINDOW = 100
"""tokens of a row that the published rate is taken over"""
NARROWED = {"F32": 2, "F64": 4}
"""types that a 16-bit server narrows when it loads them, and by how much"""
INT4_HEAD = "VLLM_XPU_DRAFT_LM_HEAD_INT4"


class BytesPerStep(Strict):
    """Bytes read in one decoding step of one sequence, over all cards."""

    layers: int
    head: int
    """lm_head of the served model, once"""
    embedding: int
    """one row for each token of the step"""
    kv: int
    """keys and values of the context"""
    state: int
    """of the linear-attention layers"""
    draft_layers: int
    """MTP layer, once for each drafted token"""
    draft_head: int
    """the draft's head, once for each drafted token"""
    draft_kv: int
    """the MTP layer's keys and values of the context, once for each drafted token"""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.model_dump().values())


class Projection(Strict):
    """A ceiling and what share of it was reached. ``label`` stands wherever a number of it does."""

    label: Literal["projected, not measured"] = LABEL
    pair: str
    """mtp0, mtp3, …"""
    depth: int
    tensor_parallel: int
    context_tokens: float
    tokens_per_step: float
    bytes_per_step: BytesPerStep
    bytes_per_step_and_card: float
    bandwidth_bytes_s: float
    """of one card"""
    step_s: float
    """seconds; the least a step can take"""
    ceiling_tok_s: float
    """tokens/s, projected"""
    measured_tok_s: float | None
    """tokens/s, measured; null where there is none"""
    share: float | None
    """measured / ceiling"""
    assumptions: list[str]


def missing_for(manifest: Manifest, *, depth: int, kv_dtype: str) -> list[str]:
    """Why nothing can be projected from a manifest, one sentence each; empty when something can."""
    weights, shape, said = manifest.weights, manifest.architecture, manifest.missing
    found = [said[key] for key in ("weights", "experts", "layers") if key in said]
    if weights is not None:
        if not weights.total("layers"):
            found.append("no tensor was recognised as part of a layer")
        if shape.tied is None:
            found.append(said.get("tied", "whether the head is the embedding isn't known"))
        elif not weights.total("embedding" if shape.tied else "lm_head"):
            found.append(f"no file holds the {'embedding' if shape.tied else 'lm_head'}")
        if depth and not weights.total("mtp"):
            found.append("no file holds an MTP head")
    elif "weights" not in said:
        found.append("the manifest has no weights")
    if shape.kv_bytes_per_token is None or (depth and shape.mtp_kv_bytes_per_token is None):
        found.append(said.get("full_attention_layers") or said.get("kv_bytes_per_token") or "the KV cache isn't known")
    elif kv_dtype not in shape.kv_bytes_per_token:
        found.append(f"the size of a KV element of type {kv_dtype} isn't known")
    if shape.state_bytes is None:
        found.append(said.get("state_bytes", "the state of linear-attention layers isn't known"))
    return list(dict.fromkeys(found))


def project(
    manifest: Manifest,
    *,
    tensor_parallel: int,
    context_tokens: float,
    mean_acceptance_length: float | None,
    depth: int,
    bandwidth_bytes_s: float,
    measured_tok_s: float | None,
    kv_dtype: str = "auto",
    draft_head_bytes: int | None = None,
    pair: str = "",
) -> Projection:
    """The ceiling of one sequence at ``context_tokens``; raises UsageError when something it follows from is missing.

    Read in a step: the layers and the head once, whatever the depth; keys and values of the context; the state; and at
    depth D, D times the MTP layer, its head (``draft_head_bytes``, or the model's own) and its keys and values. Time is
    those bytes / (bandwidth of a card × cards), and brings ``mean_acceptance_length`` tokens (None: unknown, so D + 1,
    the most there can be).
    """
    lacking = missing_for(manifest, depth=depth, kv_dtype=kv_dtype)
    if lacking or manifest.weights is None:
        raise UsageError(f"nothing can be projected from this manifest: {'; '.join(lacking)}")
    numbers = (
        context_tokens,
        bandwidth_bytes_s,
        *(x for x in (mean_acceptance_length, measured_tok_s) if x is not None),
    )
    if (
        tensor_parallel < 1
        or depth < 0
        or bandwidth_bytes_s <= 0
        or min(numbers) < 0
        or not all(map(math.isfinite, numbers))
    ):
        raise UsageError(
            "a projection needs at least one card, a bandwidth above 0 and no negative number; correct that"
        )
    if mean_acceptance_length is not None and not 1 <= mean_acceptance_length <= depth + 1:
        raise UsageError(
            f"a mean acceptance length of {mean_acceptance_length:g} can't be at MTP depth {depth}; check the evidence"
        )
    length = float(depth + 1) if mean_acceptance_length is None else mean_acceptance_length
    read = _bytes(manifest, manifest.weights, depth, context_tokens, kv_dtype, draft_head_bytes)
    step = read.total / (bandwidth_bytes_s * tensor_parallel)
    ceiling = length / step
    share = None if measured_tok_s is None else measured_tok_s / ceiling
    return Projection(
        pair=pair,
        depth=depth,
        tensor_parallel=tensor_parallel,
        context_tokens=context_tokens,
        tokens_per_step=length,
        bytes_per_step=read,
        bytes_per_step_and_card=read.total / tensor_parallel,
        bandwidth_bytes_s=bandwidth_bytes_s,
        step_s=step,
        ceiling_tok_s=ceiling,
        measured_tok_s=measured_tok_s,
        share=share,
        assumptions=_assumptions(
            manifest,
            manifest.weights,
            tensor_parallel=tensor_parallel,
            depth=depth,
            known_length=mean_acceptance_length is not None,
            draft_head=draft_head_bytes is not None,
            share=share,
        ),
    )


def _read(weights: Weights, role: Literal["layers", "embedding", "lm_head", "mtp", "mtp_head"]) -> int:
    return sum(size // NARROWED.get(dtype, 1) for dtype, size in weights.of(role).items())


def _bytes(
    manifest: Manifest, weights: Weights, depth: int, context: float, kv_dtype: str, draft_head: int | None
) -> BytesPerStep:
    shape = manifest.architecture
    head = _read(weights, "embedding" if shape.tied else "lm_head")
    own_draft_head = _read(weights, "mtp_head") or head
    rows = _read(weights, "embedding") // shape.vocab_size if shape.vocab_size else 0
    kv = (shape.kv_bytes_per_token or {})[kv_dtype]
    mtp_kv = (shape.mtp_kv_bytes_per_token or {}).get(kv_dtype, 0)
    return BytesPerStep(
        layers=_read(weights, "layers"),
        head=head,
        embedding=rows * (depth + 1),
        kv=round(kv * context),
        state=shape.state_bytes or 0,
        draft_layers=depth * _read(weights, "mtp") // (shape.mtp_layers or 1),
        draft_head=depth * (own_draft_head if draft_head is None else draft_head),
        draft_kv=round(depth * mtp_kv * context),
    )


def _assumptions(
    manifest: Manifest,
    weights: Weights,
    *,
    tensor_parallel: int,
    depth: int,
    known_length: bool,
    draft_head: bool,
    share: float | None,
) -> list[str]:
    said = ["a step takes as long as its bytes take from memory; computing, launching and sampling take no time"]
    said.append("weights are read once a step, as they are stored; nothing of them stays in a cache between steps")
    said.append("what a step writes, and activations, are not counted")
    narrowed = [dtype for dtype in NARROWED if weights.of("layers").get(dtype) or weights.of("lm_head").get(dtype)]
    if narrowed:
        said.append(f"{' and '.join(narrowed)} weights are counted as 16 bits, as a 16-bit server loads them")
    if tensor_parallel > 1:
        said.append(f"{tensor_parallel} cards share the bytes evenly, and what they send each other takes no time")
    if depth:
        said.append(f"each of the {depth} drafted tokens reads the MTP layer and the draft's whole head")
        if draft_head:
            said.append("the draft's head is the INT4 copy that the environment asks for")
        if not known_length:
            said.append(f"the acceptance is unknown: every draft is taken as accepted, {depth + 1} tokens a step")
        else:
            said.append("the acceptance is the mean over whole answers, also for their first 100 tokens")
    if manifest.weights is not None and weights.total("other"):
        said.append(f"{weights.total('other')} bytes of tensors whose part isn't known are not counted")
    if share is not None and share > 1:
        said.append("the measured rate is above this ceiling, so one of these assumptions does not hold here")
    return said


def bandwidth_of(evidence: AnyEvidence) -> tuple[float, str] | None:
    """Bytes/s of one card and where that figure is from; None where the memory isn't a B70's."""
    cards = cards_of(evidence)
    if not cards.present or (cards.ids and not cards.b70):
        return None
    said = "608 GB/s a card, the figure of an Arc Pro B70, which was not measured here"
    return B70_BYTES_S, said if cards.b70 else f"{said}; that the cards are B70s is assumed, no device id is recorded"


def projection_of(evidence: AnyEvidence, manifest: Manifest, bandwidth: float | None = None) -> list[Projection] | str:
    """A projection for each pair of a strict campaign, or one sentence why there is none.

    ``bandwidth`` is of one card, bytes/s; None takes the figure of the card where it is known.
    """
    start = evidence.start
    if not isinstance(evidence, Evidence):
        return f"a projection is of one user's strict pairs, and this is a {evidence.kind} campaign"
    if start.model is None:
        return "this campaign read no model directory, so no manifest can belong to it"
    if start.model.sha256 != manifest.sha256:
        return (
            f"the manifest is of other files (sha256 {manifest.sha256[:12]}…) than were served "
            f"({start.model.sha256[:12]}…); give the manifest of that directory"
        )
    known = bandwidth_of(evidence) if bandwidth is None else (bandwidth, f"{bandwidth / 1e9:g} GB/s a card, as given")
    if known is None:
        return "the memory bandwidth of this host isn't known, and there is no default; give --bandwidth GB/s"
    found = []
    for pair in evidence.pairs:
        try:
            found.append(_project_pair(evidence, manifest, pair, *known))
        except UsageError as error:
            return f"{pair.name}: {error}"
    return found or "no pair was measured"


def _project_pair(evidence: Evidence, manifest: Manifest, pair: Pair, bandwidth: float, source: str) -> Projection:
    plan = next((server for server in evidence.start.plan.servers if server.depth == pair.depth), None)
    attempts = [attempt for attempt in evidence.attempts if attempt.depth == pair.depth and attempt.rows]
    if plan is None or not attempts:
        raise UsageError("no server of it has answered, so there is nothing to project beside")
    asked = argument(plan.arguments, "--quantization")
    if asked is not None and manifest.architecture.quantization is None:
        raise UsageError(
            f"the server quantizes while it loads (--quantization {asked}), so it doesn't read the files' bytes"
        )
    prompts = [row.prompt_tokens for attempt in attempts for row in attempt.rows if row.prompt_tokens is not None]
    if not prompts:
        raise UsageError("no answer says how many tokens its prompt had")
    context = sum(prompts) / len(prompts) + WINDOW / 2
    draft_head = int4_head_bytes(manifest, _environment(attempts, plan)) if pair.depth else None
    kv = argument(plan.arguments, "--kv-cache-dtype") or "auto"
    if kv == "auto" and argument(plan.arguments, "--dtype") == "float32":
        kv = "float32"
    projection = project(
        manifest,
        tensor_parallel=plan.tensor_parallel,
        context_tokens=context,
        mean_acceptance_length=pair.mean_acceptance_length if pair.depth else 1.0,
        depth=pair.depth,
        bandwidth_bytes_s=bandwidth,
        measured_tok_s=pair.center if pair.center is not None else pair.a,
        kv_dtype=kv,
        draft_head_bytes=draft_head,
        pair=pair.name,
    )
    said = (
        f"the context is {context:.0f} tokens: the mean prompt and half of the first {WINDOW} tokens, which are timed"
    )
    alone = ["one server alone stands for the pair, because the other has no rate"] if pair.center is None else []
    return projection.model_copy(update={"assumptions": [source, said, *alone, *projection.assumptions]})


def _environment(attempts: list[Attempt], plan: ServerPlan) -> Mapping[str, str]:
    """As applied where it was read back."""
    for attempt in attempts:
        if attempt.server is not None and attempt.server.applied is not None:
            return attempt.server.applied.env
    return plan.env


def int4_head_bytes(manifest: Manifest, env: Mapping[str, str]) -> int | None:
    """Bytes of the INT4 copy of the head that a draft reads where the environment asks for one, with its scales."""
    shape = manifest.architecture
    if env.get(INT4_HEAD) != "1" or shape.vocab_size is None or shape.hidden_size is None:
        return None
    group = env.get(f"{INT4_HEAD}_GROUP_SIZE", "")
    weights = shape.vocab_size * shape.hidden_size
    scale = 4 if env.get(f"{INT4_HEAD}_SCALE_DTYPE", "").lower() in ("fp32", "float32", "f32") else 2
    return weights // 2 + (weights // int(group) * scale if group.isdecimal() and int(group) else 0)
