"""Options → what a depth or probe campaign, or a strict one's last stage, sends; and the texts for it (contract 7)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.data import find
from harness.errors import UsageError
from harness.evidence.context import context_label
from harness.evidence.schema import SuiteFacts, SuitePrompt
from harness.lanes import EngineName, Lane
from harness.plan import ContextPlan, ContextPrompt, canonical_json
from harness.strangers import read_given, text_of
from harness.workloads.context import DEPTHS, depth_prompts, needs, probe_prompts, without

if TYPE_CHECKING:
    from harness.preparing import Options

MAX_TEXT = 64 * 1024 * 1024
"""Bytes; a larger file is refused unread"""
SUITE_ID = "texts"


@dataclass(frozen=True)
class ContextOptions:
    """What ``bench depth``, ``bench probe`` or ``bench strict --probes`` asked for beyond every campaign's options."""

    kind: Literal["depth", "probe", "strict"]
    """of the campaign; strict: the suite with the probes as its last stage"""
    depths: tuple[int, ...] | None = None
    """prompt tokens; the launcher's own, or the contract's, where it is None"""
    texts: Path | None = None
    """directory of the user's own texts"""


def context_servers(options: "Options", engine: EngineName) -> list[tuple[str, int, str | None]]:
    """(label, depth, url): the MTP0 oracle, then the server of the depth that is asked for."""
    if options.depth == 0:
        if options.context is not None and options.context.kind == "probe":
            raise UsageError(
                "probes compare a server that drafts with MTP0, and at MTP0 there is nothing to compare; give --mtp 1 "
                "or more"
            )
        return [(context_label(0), 0, options.url)]
    if engine == "attach" and options.oracle_url is None:
        raise UsageError(
            f"an attached server of MTP depth {options.depth} needs its MTP0 oracle to compare with; give --oracle-url"
        )
    return [(context_label(0), 0, options.oracle_url), (context_label(options.depth), options.depth, options.url)]


def context_plan(lane: Lane, shape: str, depth: int, asked: ContextOptions) -> tuple[ContextPlan, dict[str, bytes]]:
    """What is sent, and the texts it is made of.

    Raises UsageError for a shape the lane lacks, depths that don't fit, and texts that are missing or too short.
    """
    if shape not in lane.shapes:
        raise UsageError(f"launcher {lane.name} has no [shapes.{shape}] table; add one to measure {shape} on it")
    context = lane.shapes[shape].max_model_len
    if asked.kind == "depth":
        prompts = depth_prompts(asked.depths or lane.depths or DEPTHS, context)
        left_out = list[str]()
    else:
        every = probe_prompts(depth, context)
        prompts = without(every, lane.probes_left_out)
        left_out = list(dict.fromkeys(prompt.what for prompt in every if prompt not in prompts))
    texts = load_texts(asked.texts, prompts)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in texts.items()}
    plan = ContextPlan(shape=shape, max_model_len=context, texts=hashes, prompts=prompts, left_out=left_out)
    return plan, texts


def load_texts(folder: Path | None, prompts: Sequence[ContextPrompt]) -> dict[str, bytes]:
    """The texts that ``prompts`` need, ours or those in ``folder``, as they are. Raises UsageError."""
    found = {}
    for name, count in needs(prompts).items():
        path = find("texts", name, ".txt") if folder is None else folder / f"{name}.txt"
        wanted = ", ".join(f"{one}.txt" for one in needs(prompts))
        data = read_given(path, MAX_TEXT, "text", f"--texts names a directory with {wanted}")
        text_of(data, f"text {path.name}")
        # No tokenizer makes more ids of a text than it has bytes.
        if len(data) < count:
            raise UsageError(
                f"text {path.name} has {len(data)} bytes, so at most as many tokens, and {count} are needed; give more "
                "text with --texts, or fewer --depths"
            )
        found[name] = data
    return found


def texts_facts(texts: Mapping[str, str]) -> SuiteFacts:
    """The texts as what was sent: their sha256 by name, and one over all."""
    sha256 = hashlib.sha256(canonical_json(dict(texts)).encode()).hexdigest()
    prompts = [SuitePrompt(id=name, prompt_class=name, sha256=found) for name, found in texts.items()]
    return SuiteFacts(id=SUITE_ID, version=1, sha256=sha256, prompts=prompts)
