"""Log-probabilities of the simulated model: what ``logprobs`` on ``/v1/completions`` gives after a token-id prefix.

The model has no weights, so its margins are made up, and made so that they fit its faults: where a tie can fall either
way, the two ids are as good as equally likely.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from harness.simulated import model
from harness.simulated.shapes import ApiError

LIMIT = 20
"""vLLM's max_logprobs"""
BEST = -0.75
"""of the answer's own id, nats"""
NEAR_GAP = 0.0625
"""by which the other side of a tie site is less likely"""
REAL_GAP = 2.0
"""by which the first id that plays no part is less likely; each further one by half a nat more"""
UNLIKELY = -40.0
OTHERS = tuple(dict.fromkeys(model.tokenize(" the a of and to in is it on for as at by be or an not are was so")))
"""ids that play no part"""


def logprobs_of(
    body: dict[str, Any], seed_text: str, prompt: list[int], limit: int, *, stream: bool
) -> tuple[list[int], list[dict[str, float]]] | None:
    """(the ``limit`` ids after ``prompt``, what is likeliest at each by name), or None where nothing was asked for.

    The order is the server's: its own id first. Raises ApiError.
    """
    count, wanted = body.get("logprobs"), body.get("logprob_token_ids")
    if count is None:
        return None
    if type(count) is not int or not 0 <= count <= LIMIT:
        raise ApiError(
            400,
            f"Requested sample logprobs of {count}, which is greater than max allowed: {LIMIT}",
            "logprobs",
        )
    if stream:
        raise ApiError(400, "The simulated server gives logprobs in whole answers only.", "logprobs")
    as_ids = body.get("return_tokens_as_token_ids") is True
    start = start_of_answer(seed_text, prompt)
    key, first = model.prompt_key(seed_text, prompt[:start]), len(prompt) - start
    ids, tops = [], []
    for index, (token, _) in enumerate(itertools.islice(model.answer(key), first, first + limit), first):
        ranked = ranking(key, index, token)
        if wanted:
            known = dict(ranked)
            shown = [ranked[0], *((other, known.get(other, UNLIKELY)) for other in wanted if other != token)]
        else:
            shown = ranked[: max(count, 1)]
        ids.append(token)
        tops.append({(f"token_id:{one}" if as_ids else model.detokenize([one])): value for one, value in shown})
    return ids, tops


def as_object(tops: list[dict[str, float]]) -> dict[str, Any]:
    """The ``logprobs`` object of a choice with as many ids as ``tops``."""
    firsts = [next(iter(top.items())) for top in tops]
    offsets = itertools.accumulate((len(name) for name, _ in firsts), initial=0)
    return {
        "text_offset": list(itertools.islice(offsets, len(firsts))),
        "token_logprobs": [value for _, value in firsts],
        "tokens": [name for name, _ in firsts],
        "top_logprobs": tops,
    }


def ranking(key: bytes, index: int, token: int) -> list[tuple[int, float]]:
    """The likeliest ids at ``index`` of an answer with their log-probabilities, its own id ``token`` first."""

    def at(answer: Iterator[tuple[int, float]]) -> int:
        return next(itertools.islice(answer, index, None))[0]

    found = {token: BEST}
    if index == model.TIE_INDEX:
        found.setdefault(at(model.diverging(key, b"tie")), BEST)
        found.setdefault(at(model.diverging(key, b"batch")), BEST - NEAR_GAP)
    if index == model.tie_site(key):
        found.setdefault(at(model.diverging(key, b"site", index)), BEST - NEAR_GAP)
    for place, other in enumerate(OTHERS):
        found.setdefault(other, BEST - REAL_GAP - place / 2)
    return sorted(found.items(), key=lambda item: -item[1])


def start_of_answer(seed_text: str, prompt: list[int]) -> int:
    """Where the prompt ends and the beginning of its own answer starts; the length when there is no such place."""
    for start in range(1, len(prompt)):
        answer = model.answer(model.prompt_key(seed_text, prompt[:start]))
        if all(token == given for given, (token, _) in zip(prompt[start:], answer, strict=False)):
            return start
    return len(prompt)
