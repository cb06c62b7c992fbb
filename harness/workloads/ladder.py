"""What a concurrency ladder sends, in what order (contract section 5). Pure."""

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.errors import UsageError
from harness.suites import Prompt, Suite
from harness.wire.capture import MAX_READS, MAX_TOTAL
from harness.workloads.strict import SEED

MAX_TOKENS = 128
DEFAULT_RUNGS = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_PASSES = 4
LOW_CEILING = 64
"""Rungs above it need the shape with 128 sequences"""
HIGH_CEILING = 128
EVENTS = MAX_TOKENS + 2
"""Most reads of one answer when it comes as it is written: an event each id, the head, and the end"""
EVENT_BYTES = 512
"""Of one event in a capture, decompressed; vLLM's are some 360, and longer with the names of models"""
MAX_ANSWERS = min(MAX_READS // EVENTS, MAX_TOTAL // (EVENTS * EVENT_BYTES))
"""What one server's capture is sure to hold and to be loaded from again"""

Shape = Literal["ladder", "ladder-high"]


@dataclass(frozen=True)
class Slot:
    """One user of a ladder: always the same prompt, in every rung and pass."""

    id: str
    """``<base>-c<iii>`` expanded, ``<base>-s<iii>`` verbatim"""
    base: str
    text: str
    sha256: str
    """of the text's UTF-8 bytes"""


def parse_rungs(text: str, option: str = "--rungs") -> tuple[int, ...]:
    """``"1,2,4"`` → (1, 2, 4). Raises UsageError for anything but ascending counts of users."""
    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", text):
        raise UsageError(f"{option} {text} is no list of user counts; write for example {option} 1,2,4,8")
    rungs = tuple(int(word) for word in text.split(","))
    if rungs[0] < 1 or any(left >= right for left, right in itertools.pairwise(rungs)):
        raise UsageError(f"{option} {text} must ascend from 1 on, each once; sort the list")
    return rungs


def shape_for(rungs: Sequence[int]) -> Shape:
    """The shape of contract section 2 that holds these rungs. Raises UsageError above 128 users."""
    if max(rungs) > HIGH_CEILING:
        raise UsageError(f"a rung of {max(rungs)} users has no shape; the highest is {HIGH_CEILING}")
    return "ladder" if max(rungs) <= LOW_CEILING else "ladder-high"


def check_passes(rungs: Sequence[int], passes: int) -> None:
    """Raises UsageError for a ladder whose capture could be refused as too large when it is loaded again."""
    most = (MAX_ANSWERS - max(rungs)) // sum(rungs) - 1  # every slot alone first; a resumed server warms up once more
    if passes > most:
        fewer = f"at most {most} passes, or for fewer rungs" if most > 0 else "fewer rungs"
        raise UsageError(f"{passes} passes over {sum(rungs)} users are more than one capture holds; ask for {fewer}")


def captured(rung: int, depth: int, ceiling: int | None) -> bool | None:
    """Whether a rung runs in captured graphs: the ceiling counts tokens, 1 + depth of them a request.

    None for a server without graphs (eager).
    """
    return None if ceiling is None else rung <= ceiling // (1 + depth)


def slots(suite: Suite, count: int, *, verbatim: bool) -> tuple[Slot, ...]:
    """The first ``count`` slots: base prompts in turn, each with a suffix of its own, or word for word."""
    made = []
    for index in range(count):
        prompt = suite.prompts[index % len(suite.prompts)]
        made.append(_verbatim(prompt, index) if verbatim else _expanded(prompt, index))
    return tuple(made)


def _verbatim(prompt: Prompt, index: int) -> Slot:
    return Slot(f"{prompt.id}-s{index:03d}", prompt.id, prompt.text, prompt.sha256)


def _expanded(prompt: Prompt, index: int) -> Slot:
    text = f"{prompt.text} (case {index:03d})"
    return Slot(f"{prompt.id}-c{index:03d}", prompt.id, text, hashlib.sha256(text.encode()).hexdigest())


def ladder_body(prompt: str, model: str) -> dict[str, Any]:
    """The measured request: 128 greedy tokens whatever the end-of-sequence id says, with ids and usage."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "top_p": 1,
        "seed": SEED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


def ladder_request_id(suite: Suite, stage: str, slot: Slot) -> str:
    """The X-Request-Id: ``bench-<suite_id>-<stage>-<slot>``, stage ``seq`` or ``c064-p02``."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"bench-{suite.suite_id}-{stage}-{slot.id}")


def stage_name(rung: int, number: int) -> str:
    """Name of one batch in captures and request ids: rung and pass, passes from 1."""
    return f"c{rung:03d}-p{number:02d}"


def parse_stage(stage: str) -> tuple[int, int] | None:
    """(rung, pass) of a batch's name; None for another stage."""
    match = re.fullmatch(r"c([0-9]{3,4})-p([0-9]{2,4})", stage)
    return None if match is None else (int(match[1]), int(match[2]))
