"""prompts.json: the token ids that a campaign's prompts are made of, kept as the first server's /tokenize gave them.

``{"schema": "b70-bench.prompts/1", "ids": {text: [id, …]}}``; which of these ids a prompt has follows from the plan
(harness.workloads.context.cut). Its sha256 stands in the journal, the texts themselves in ``texts/``.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import EvidenceError
from harness.evidence import journal, store
from harness.measure.identity import first_divergence
from harness.plan import ContextPlan, canonical_json
from harness.wire.capture import Control
from harness.workloads.context import needs

PROMPTS = "prompts.json"
TEXTS = "texts"
PROMPTS_SCHEMA = "b70-bench.prompts/1"
TOKENIZE = "tokenize"
"""Beginning of the names under which a capture knows the answers of /tokenize"""

Ids = Mapping[str, Sequence[int]]
"""Name of a text → its first ids, as many as its longest prompt needs"""


def control_name(text: str, number: int) -> str:
    """Name of the answer to a text's piece, from 0."""
    return f"{TOKENIZE}-{text}-{number:04d}"


def dump_prompts(ids: Ids) -> bytes:
    """The bytes of prompts.json."""
    value = {"schema": PROMPTS_SCHEMA, "ids": {name: list(found) for name, found in ids.items()}}
    return (canonical_json(value) + "\n").encode()


def load_prompts(directory: Path, events: Sequence[journal.Event], plan: ContextPlan) -> dict[str, list[int]] | None:
    """The kept ids; None before the first server has given them. Raises EvidenceError for another file."""
    kept = next((event for event in events if event.event == "prompts-kept"), None)
    if kept is None:
        return None
    path = directory / PROMPTS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(f"{PROMPTS} can't be read ({error.strerror}); get the original file") from None
    if hashlib.sha256(data).hexdigest() != kept.sha256:
        raise EvidenceError(f"{PROMPTS} isn't the file that was kept: its sha256 differs from the journal's")
    raw = store.read_json(path)
    ids = raw.get("ids") if isinstance(raw, dict) else None
    if not isinstance(ids, dict) or raw.get("schema") != PROMPTS_SCHEMA:
        raise EvidenceError(f"{PROMPTS} holds no prompts of this version; get the original file")
    for name, count in needs(plan.prompts).items():
        found = ids.get(name)
        if not isinstance(found, list) or len(found) != count or not all(type(one) is int for one in found):
            raise EvidenceError(f"{PROMPTS} doesn't hold the {count} ids of {name} that the plan needs")
    return {name: ids[name] for name in needs(plan.prompts)}


def ids_of(control: Control) -> list[int] | str:
    """The ids in an answer of /tokenize, or why there are none, as the end of a sentence."""
    if control.status != 200:
        return f"answered {control.error or f'HTTP {control.status}'}"
    try:
        tokens = json.loads(control.body)["tokens"]
    except (ValueError, KeyError, TypeError, RecursionError):
        tokens = None
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        return "answered without a list of tokens"
    return tokens


def tokenized(controls: Sequence[Control], plan: ContextPlan) -> dict[str, list[int]] | str:
    """What a server's recorded /tokenize answers say of the plan's texts, or what is missing, as a sentence."""
    answers = {control.name: control for control in controls if control.name.startswith(f"{TOKENIZE}-")}
    found: dict[str, list[int]] = {}
    for name, count in needs(plan.prompts).items():
        ids, number = list[int](), 0
        while len(ids) < count:
            control = answers.get(control_name(name, number))
            if control is None:
                return f"/tokenize gave {len(ids)} ids of {name}, {count} are needed"
            piece = ids_of(control)
            if isinstance(piece, str):
                return f"/tokenize {piece}, asked for piece {number} of {name}"
            ids += piece
            number += 1
        found[name] = ids[:count]
    return found


def first_other(kept: Ids, given: Ids) -> str | None:
    """Where two servers' ids of the same texts first differ, as the end of a sentence; None when they don't."""
    for name, ids in kept.items():
        at = first_divergence(given.get(name, ()), ids)
        if at is not None:
            return f"{name} becomes other ids from token {at} on"
    return None
