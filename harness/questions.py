"""Questions for log-probabilities after an exact token-id prefix, put to one server, and its answers read."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.attempts import answer_body
from harness.publish.explain import Site
from harness.publish.margins import Candidate, Said, named
from harness.sender import Sender
from harness.wire.capture import Tag
from harness.wire.http import decode_response
from harness.workloads.strict import PATH, SEED

KIND = "explain"
_ID = "token_id:"

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """What is asked of one position: the likeliest ids after ``prompt`` and ``before``, and those of ``wanted``."""

    prompt: Prefix
    before: Prefix
    """the oracle's ids between the prompt and the position"""
    wanted: frozenset[int]

    @property
    def prefix(self) -> Prefix:
        """Every id before the position."""
        return self.prompt + self.before


@dataclass
class Asked:
    """What came of asking."""

    by: str
    """which server, for a person"""
    said: dict[Prefix, Said] = field(default_factory=dict)
    """after a prefix read in one piece"""
    decoded: dict[Prefix, Said] = field(default_factory=dict)
    """after the same ids, decoded from the prompt; missing where the server left them before the position"""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Unanswered(Exception):  # noqa: N818 - never leaves this module
    """A question without a usable answer; the message is one sentence."""

    def __init__(self, sentence: str, *, final: bool) -> None:
        super().__init__(sentence)
        self.final = final
        """no other question will fare better"""


def questions_of(sites: Sequence[Site]) -> list[Question]:
    """One question for each position that can be asked about; sites that share it share it."""
    wanted: dict[tuple[Prefix, Prefix], set[int]] = {}
    for site in sites:
        if site.prefix is not None and site.oracle_id is not None and site.other_id is not None:
            place = tuple(site.prefix[: site.prompt_ids]), tuple(site.prefix[site.prompt_ids :])
            wanted.setdefault(place, set()).update((site.oracle_id, site.other_id))
    return [Question(prompt, before, frozenset(ids)) for (prompt, before), ids in wanted.items()]


def margin_body(prompt: Sequence[int], model: str, top: int, *, tokens: int = 1, as_ids: bool = True) -> dict[str, Any]:
    """``tokens`` greedy ones after exactly these ids, with the ``top`` likeliest at each; named by id, or by text."""
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "top_p": 1,
        "seed": SEED,
        "stream": False,
        "logprobs": top,
        "return_token_ids": True,
        "return_tokens_as_token_ids": as_ids,
    }


def read_said(body: bytes, prompt: Sequence[int], before: Sequence[int] = ()) -> Said | None:
    """The answer to ``prompt`` → what it says after ``before``; None when it left these ids earlier.

    Raises ValueError with a sentence for an answer of another shape.
    """
    place = len(before)
    try:
        choice = json.loads(body)["choices"][0]
        ids, tops, read = choice["token_ids"], choice["logprobs"]["top_logprobs"], choice.get("prompt_token_ids")
        same, chosen, named = ids[:place] == list(before), ids[place], tops[place]
        pairs = [(int(name.removeprefix(_ID)), float(value)) for name, value in named.items() if name.startswith(_ID)]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError("the answer holds no log-probabilities by token id, as vLLM gives them") from None
    if not all(math.isfinite(value) for _, value in pairs):
        raise ValueError("the answer holds a log-probability that is no finite number")
    if not pairs or len(pairs) != len(named) or type(chosen) is not int:
        raise ValueError("the answer names its log-probabilities otherwise than by token id")
    if read is not None and read != list(prompt):
        raise ValueError("the server read other prompt ids than were sent, so nothing it says is about this prefix")
    # As the server lists them; ``_ranked`` puts the likeliest first.
    return Said(chosen=chosen, top=[Candidate(id=i, text=None, logprob=value) for i, value in pairs]) if same else None


def _ranked(said: Said) -> Said:
    """The likeliest first, by id where they are level, since which of them comes first is the server's affair."""
    return said.model_copy(update={"top": sorted(said.top, key=lambda item: (-item.logprob, item.id))})


def _texts(body: bytes, said: Said) -> dict[int, str]:
    """Names by text, only where they stand for the same log-probabilities in the same order: so two ids with one text,
    or half a character, never name the wrong id."""
    try:
        (named,) = json.loads(body)["choices"][0]["logprobs"]["top_logprobs"]
        told = [(str(text), float(value)) for text, value in named.items()]
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    if [value for _, value in told] != [item.logprob for item in said.top]:
        return {}
    pairs = zip(said.top, told, strict=True)
    return {item.id: text for item, (text, _) in pairs if text and "\ufffd" not in text}


class Asker:
    """Puts questions to one server."""

    def __init__(self, sender: Sender, asked: Asked, model: str, top: int) -> None:
        self._sender, self._asked, self._model, self._top = sender, asked, model, top
        self._sent = 0

    def ask(self, questions: Sequence[Question]) -> None:
        """Every question; what can't be answered becomes a problem. A broken connection ends it."""
        for question in questions:
            try:
                self._one(question)
            except _Unanswered as unanswered:
                self._asked.problems.append(str(unanswered))
                if unanswered.final:
                    return

    def _one(self, question: Question) -> None:
        prefix, wanted = question.prefix, question.wanted
        said = self._said(prefix, (), wanted)
        if said is None:
            return
        texts = _texts(self._post(margin_body(prefix, self._model, self._top, as_ids=False)), said)
        self._asked.said[prefix] = named(_ranked(said), texts)
        if question.before:
            # The oracle decoded its way here, which rounds otherwise than reading all ids at once.
            again = self._said(question.prompt, question.before, wanted)
            if again is not None:
                self._asked.decoded[prefix] = named(_ranked(again), texts)
        else:
            self._asked.decoded[prefix] = self._asked.said[prefix]

    def _said(self, prompt: Prefix, before: Prefix, wanted: frozenset[int]) -> Said | None:
        body = margin_body(prompt, self._model, self._top, tokens=len(before) + 1)
        said = self._read(self._post(body), prompt, before)
        if said is None or wanted <= {item.id for item in said.top}:
            return said
        try:
            # A server that doesn't know the field gives its top again, and the bound is all there is.
            by_name = self._read(self._post({**body, "logprob_token_ids": sorted(wanted)}), prompt, before)
        except _Unanswered as unanswered:
            if unanswered.final:
                raise
            return said
        known = {item.id for item in said.top}
        below = [item for item in by_name.top if item.id in wanted - known] if by_name is not None else []
        return said.model_copy(update={"named": below})

    def _read(self, body: bytes, prompt: Prefix, before: Prefix) -> Said | None:
        try:
            return read_said(body, prompt, before)
        except ValueError as error:
            raise _Unanswered(f"{self._asked.by}: {error}; ask a vLLM server", final=True) from None

    def _post(self, body: Mapping[str, object]) -> bytes:
        self._sent += 1
        name = f"{self._sent:03d}"
        exchange = self._sender.post(Tag(KIND, name, request_id=f"bench-explain-{name}"), PATH, body)
        answer = answer_body(exchange)
        if answer is not None:
            return answer
        response, by = decode_response(exchange), self._asked.by
        if response.status is None or not response.complete:
            why = exchange.detail or response.error or "no answer"
            raise _Unanswered(f"{by} can't be asked ({exchange.ending.value}: {why}); look at that server", final=True)
        raise _Unanswered(f"{by} refused a question: {_refusal(response.status, response.body)}", final=False)


def _refusal(status: int, pieces: Sequence[tuple[int, bytes]]) -> str:
    body = b"".join(piece for _, piece in pieces)
    try:
        said = str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        said = body[:200].decode("utf-8", "replace")
    return f"HTTP {status}, {' '.join(said.split())[:300]}"
