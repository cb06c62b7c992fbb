"""What long-context prompts and boundary probes are made of and how they are asked for (contract section 7). Pure.

A prompt is so many token ids of one text. Of a profile, all prompts of a text end at the same id of it, so that each
begins at another place: no two share a prefix, none repeats itself, and at every length the same text is gone on with.
Of the probes, each has a place of its own: two short prompts in a row would else have one answer, and a server that
answers the second one out of what the first one left behind would look exact.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.plan import ContextPrompt

CLASSES = ("technical-prose", "python-code", "structured-documents")
"""Content classes, each a text file of that name"""
DEPTHS = (2048, 4096, 8192, 16384, 24576, 32768)
"""Prompt tokens, where a launcher names no others"""
MAX_TOKENS = 128
PROBE_CLASS = CLASSES[0]
PROBE_TOKENS = 64
"""Asked of a probe: some twenty draft steps at depth 3, and no rate"""
SEED = 1
FULL = "full"
EQUALS = " = "
"""Between the names of lengths that coincide"""
MAX_PIECE = 16 * 1024
"""Bytes of text in one request to /tokenize"""
REPEAT_WINDOW = 64
REPEAT_SHARE = 0.1
"""A text in which more of its windows of so many ids came before is no unrepeated one"""


def parse_depths(text: str) -> tuple[int, ...]:
    """``"2048,4096"`` → (2048, 4096). Raises UsageError for anything but ascending token counts."""
    if not re.fullmatch(r"[0-9]{1,7}(,[0-9]{1,7})*", text):
        raise UsageError(f"--depths {text} is no list of token counts; write for example --depths 2048,4096")
    depths = tuple(int(word) for word in text.split(","))
    if depths[0] < 1 or any(left >= right for left, right in itertools.pairwise(depths)):
        raise UsageError(f"--depths {text} must ascend from 1 on, each once; sort the list")
    return depths


def depth_prompts(depths: Sequence[int], max_model_len: int) -> list[ContextPrompt]:
    """One prompt per depth and class, in the order sent. Raises UsageError where the answer doesn't fit behind it."""
    if max(depths) + MAX_TOKENS > max_model_len:
        raise UsageError(
            f"a context of {max(depths)} tokens and {MAX_TOKENS} more don't fit into the launcher's max-model-len of "
            f"{max_model_len}; leave that depth out of --depths, or enlarge [shapes.depth]"
        )
    return [
        ContextPrompt(id=f"{name}-{tokens}", text=name, tokens=tokens, max_tokens=MAX_TOKENS, what=str(tokens))
        for tokens in depths
        for name in CLASSES
    ]


def probe_prompts(depth: int, max_model_len: int) -> list[ContextPrompt]:
    """The boundary probes at MTP depth K: 1, 2, K, 1+K, 2+K tokens, and contexts full to their last token.

    Every short length is asked in each class; lengths that coincide are asked once. Which tokens the last steps of a
    full context draft depends on where a step begins, so it is filled K+1 times, each with one more token generated:
    one of them meets every place that there is.
    Raises UsageError for a context that holds no such prompts.
    """
    full = max_model_len - PROBE_TOKENS
    if full - depth <= 2 + depth:
        raise UsageError(
            f"a max-model-len of {max_model_len} holds no boundary probes at depth {depth}; enlarge the shape"
        )
    names: dict[int, list[str]] = {}
    for tokens, name in ((1, "1"), (2, "2"), (depth, "K"), (1 + depth, "1+K"), (2 + depth, "2+K")):
        # At depth 0 nothing is drafted, so there is no boundary beyond the shortest prompts.
        if tokens and (depth or "K" not in name):
            names.setdefault(tokens, []).append(name)
    probes, skip = list[ContextPrompt](), 0
    for tokens in sorted(names):
        what = EQUALS.join(names[tokens])
        probes += [
            ContextPrompt(
                id=f"probe-{tokens}-{text}", text=text, tokens=tokens, max_tokens=PROBE_TOKENS, what=what, skip=skip
            )
            for text in CLASSES
        ]
        skip += tokens
    for more in range(depth + 1):
        tokens, generated = full - more, PROBE_TOKENS + more
        probes.append(
            ContextPrompt(id=f"probe-{FULL}-{more}", text=PROBE_CLASS, tokens=tokens, max_tokens=generated, what=FULL)
        )
    return probes


def without(prompts: Sequence[ContextPrompt], left_out: Sequence[str]) -> list[ContextPrompt]:
    """The probes but for those whose length stands for something in ``left_out``. Raises UsageError for none left."""
    kept = [prompt for prompt in prompts if not set(prompt.what.split(EQUALS)) & set(left_out)]
    if not kept:
        raise UsageError("the launcher's probes_left_out leaves no boundary probe; shorten that list")
    return kept


def needs(prompts: Sequence[ContextPrompt]) -> dict[str, int]:
    """Ids needed of each text, so that it holds all its prompts."""
    found: dict[str, int] = {}
    for prompt in prompts:
        found[prompt.text] = max(found.get(prompt.text, 0), prompt.tokens + prompt.skip)
    return found


def cut(prompts: Sequence[ContextPrompt], ids: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Prompt id → its token ids; ``ids`` holds of each text as many as ``needs`` says."""
    ends = {prompt.id: len(ids[prompt.text]) - prompt.skip for prompt in prompts}
    return {prompt.id: tuple(ids[prompt.text][ends[prompt.id] - prompt.tokens : ends[prompt.id]]) for prompt in prompts}


def piece_bytes(max_model_len: int) -> int:
    """Largest piece of text that any byte-level tokenizer turns into fewer ids than the context holds."""
    return max(64, min(MAX_PIECE, max_model_len - 1))


def pieces(text: str, limit: int) -> Iterator[str]:
    """The text in pieces of at most ``limit`` UTF-8 bytes (64 or more), which end with a paragraph, line or word."""
    begin = 0
    while begin < len(text):
        # A character has a byte at least, so the cut is never beyond this.
        piece = text[begin : begin + limit]
        while len(piece.encode()) > limit:
            piece = piece[: max(1, len(piece) - max(1, (len(piece.encode()) - limit) // 4))]
        if begin + len(piece) < len(text):
            ends = ((piece.rfind(mark), mark) for mark in ("\n\n", "\n", " "))
            # A space opens the next piece, as it opens a token; line ends close this one.
            cuts = (end + len(mark.strip(" ")) for end, mark in ends if end > len(piece) // 2)
            piece = piece[: next(cuts, len(piece))]
        yield piece
        begin += len(piece)


def repeated_share(ids: Sequence[int]) -> float:
    """Share of the windows of 64 ids that had come before in ``ids``, from 0 to 1."""
    seen: set[tuple[int, ...]] = set()
    windows = len(ids) - REPEAT_WINDOW + 1
    for begin in range(windows):
        seen.add(tuple(ids[begin : begin + REPEAT_WINDOW]))
    return 1 - len(seen) / windows if windows > 0 else 0.0


def context_body(ids: Sequence[int], max_tokens: int, model: str) -> dict[str, Any]:
    """The measured request: greedy ids behind a prompt of ids, whatever the end-of-sequence id says."""
    return {
        "model": model,
        "prompt": list(ids),
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "top_p": 1,
        "seed": SEED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


def tokenize_body(piece: str, model: str) -> dict[str, Any]:
    """The request to /tokenize: of the text alone, without a special id before it."""
    return {"model": model, "prompt": piece, "add_special_tokens": False}


def context_request_id(kind: str, number: int, prompt_id: str) -> str:
    """The X-Request-Id: ``bench-<kind>-<nn>-<prompt>``."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"bench-{kind}-{number:02d}-{prompt_id}")
