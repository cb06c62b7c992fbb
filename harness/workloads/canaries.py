"""Canaries around a suite: what is asked, and whether the *answer alone* is right (contract section 3). Pure."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.workloads.strict import SEED

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
REPEATS = 8
CHAT_MAX_TOKENS = 512
"""reasoning may come first; a shape whose max-model-len is smaller passes its own cap"""
REPEAT_MAX_TOKENS = 32
PULSE_MAX_TOKENS = 64
"""fits a ladder's short context"""

REPEAT_QUESTION = "Which four colours does the bench canary flag have, if you may choose them yourself? One line."
ARITHMETIC_QUESTION = "Calculate 47 × 89 and reply with the resulting number."
COPY_SENTENCE = "The harbour crane lifted nineteen blue containers before the tide turned."
COPY_QUESTION = f"Reply with an exact copy of the next line and with nothing else.\n{COPY_SENTENCE}"
JSON_QUESTION = 'Reply with one JSON object only: the key "name" holds a bird\'s name as a string, "count" an integer.'
REPEAT_PROMPT = "Bench canary, repeated: the lighthouse keeper opened the log book and"

Check = Literal["repeat", "arithmetic", "copy", "json"]

_SPACE = " \u00a0\u2009\u202f"
_NUMBER_4183 = re.compile(
    r"(?<![^\W_])(?<!\d[.,])(?<![-−])"
    rf"(?:4183|4,183|(?<!\d[{_SPACE}])4[{_SPACE}]183(?![{_SPACE}]\d{{3}}(?!\d)))"
    r"(?![^\W_])(?![.,]\d)"
)
_THINK_CLOSE = re.compile(r"<\s*/\s*think(?:ing)?\s*>", re.IGNORECASE)
_THINK_OPEN = re.compile(r"<\s*think(?:ing)?\s*>", re.IGNORECASE)
_PREAMBLE = re.compile(r"\W*(?:here(?:['’]s| is) (?:a|the|my) )?thinking process\b", re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}


@dataclass(frozen=True)
class CanaryRequest:
    """One canary: POST ``body`` as JSON to ``path``. ``check`` says what its answer is judged by."""

    name: str
    check: Check
    path: str
    body: dict[str, Any]


class CanaryCheck(BaseModel):
    """One verdict over one answer, or over all repeats together."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    passed: bool
    sentence: str
    """what was found"""
    answer: str
    """excerpt of the answer alone, reasoning removed; empty when there is none"""


class CanaryVerdict(BaseModel):
    """All checks of one round of canaries; it passes only if every check of its mode is there and passes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    mode: Literal["chat", "repeat"]
    """``repeat`` for a server without a chat template or too small to answer (contract section 3)"""
    passed: bool
    checks: list[CanaryCheck]


class _NoAnswer(Exception):  # noqa: N818 - not an error of the program: a server's answer that holds none
    """Why a body holds no answer, as the end of a sentence."""


def chat_canaries(
    model: str, *, max_tokens: int = CHAT_MAX_TOKENS, enable_thinking: bool | None = None
) -> list[CanaryRequest]:
    """The same question eight times, then arithmetic, copy and JSON, over the chat endpoint.

    ``enable_thinking`` is handed to the chat template when it is not None: a model that reasons by default may spend
    the whole cap before it answers, which fails.
    """
    asked: list[tuple[str, Check, str]] = [(f"repeat-{n}", "repeat", REPEAT_QUESTION) for n in range(1, REPEATS + 1)]
    asked += [("arithmetic", "arithmetic", ARITHMETIC_QUESTION), ("copy", "copy", COPY_QUESTION)]
    asked += [("json", "json", JSON_QUESTION)]
    template = {} if enable_thinking is None else {"chat_template_kwargs": {"enable_thinking": enable_thinking}}
    return [
        CanaryRequest(
            name,
            check,
            CHAT_PATH,
            {
                "model": model,
                "messages": [{"role": "user", "content": question}],
                "max_tokens": max_tokens,
                "temperature": 0,
                "seed": SEED,
                "stream": False,
                **template,
            },
        )
        for name, check, question in asked
    ]


def repeat_canaries(model: str) -> list[CanaryRequest]:
    """One raw prompt eight times over the completions endpoint, for launchers with ``canaries = "repeat"``."""
    body = {
        "model": model,
        "prompt": REPEAT_PROMPT,
        "max_tokens": REPEAT_MAX_TOKENS,
        "temperature": 0,
        "seed": SEED,
        "stream": False,
        "return_token_ids": True,
    }
    return [CanaryRequest(f"repeat-{n}", "repeat", COMPLETIONS_PATH, dict(body)) for n in range(1, REPEATS + 1)]


def judge(requests: Sequence[CanaryRequest], answers: Sequence[bytes | None]) -> CanaryVerdict:
    """Judge response bodies (``answers[i]`` answers ``requests[i]``, None if none came). Never raises.

    Chat mode has the checks repeat, arithmetic, copy and json; repeat mode, in which every request goes to the
    completions endpoint, has repeat alone, over the token ids.
    """
    mode: Literal["chat", "repeat"] = (
        "repeat" if requests and all(request.path == COMPLETIONS_PATH for request in requests) else "chat"
    )
    wanted: list[Check] = ["repeat"] if mode == "repeat" else ["repeat", "arithmetic", "copy", "json"]
    bodies: dict[Check, list[bytes | None]] = {check: [] for check in wanted}
    for request, answer in zip_longest(requests, answers[: len(requests)]):
        bodies.setdefault(request.check, []).append(answer)
    checks = [_repeat(bodies["repeat"], mode)]
    checks += [_single(check, bodies[check]) for check in wanted if check != "repeat"]
    if len(answers) > len(requests):
        extra = f"{len(answers)} answers came for {len(requests)} requests, so none can be matched"
        checks.append(CanaryCheck(name="answers", passed=False, sentence=extra, answer=""))
    return CanaryVerdict(mode=mode, passed=all(check.passed for check in checks), checks=checks)


def answer_alone(content: str) -> str:
    """The text after all reasoning; empty when reasoning was opened, or evidently begun, and never closed."""
    closes = list(_THINK_CLOSE.finditer(content))
    rest = content[closes[-1].end() :] if closes else content
    if _THINK_OPEN.search(rest) or (not closes and _PREAMBLE.match(rest)):
        return ""
    return rest


def ids_of(body: bytes | None) -> list[int] | str:
    """The token ids of an answer of the completions endpoint, or why it has none, as the end of a sentence."""
    try:
        return _completion(body)[1]
    except _NoAnswer as why:
        return str(why)


def _repeat(bodies: list[bytes | None], mode: str) -> CanaryCheck:
    unit = "texts" if mode == "chat" else "token id arrays"
    texts: list[str] = []
    keys: list[str] = []
    for n, body in enumerate(bodies, 1):
        try:
            if mode == "chat":
                texts.append(_chat_answer(body))
                keys.append(texts[-1])
            else:
                text, ids = _completion(body)
                texts.append(text)
                keys.append(json.dumps(ids))
        except _NoAnswer as why:
            return _check("repeat", False, f"repeat {n} of {len(bodies)} {why}", "")
    if len(bodies) != REPEATS:
        return _check("repeat", False, f"{len(bodies)} of {REPEATS} repeats were asked", "")
    distinct = len(set(keys))
    return _check("repeat", distinct == 1, f"{REPEATS} repeats gave {distinct} distinct {unit}", texts[0])


def _single(check: Check, bodies: list[bytes | None]) -> CanaryCheck:
    if len(bodies) != 1:
        return _check(check, False, f"it was asked {len(bodies)} times instead of once", "")
    try:
        answer = _chat_answer(bodies[0]).strip()
    except _NoAnswer as why:
        return _check(check, False, f"the request {why}", "")
    fault = _JUDGES[check](answer)
    return _check(check, fault is None, fault or "the answer is right", answer)


def _arithmetic(answer: str) -> str | None:
    return None if _NUMBER_4183.search(answer) else "the answer does not contain the number 4183"


def _copy(answer: str) -> str | None:
    if len(answer) > 1 and _QUOTES.get(answer[0]) == answer[-1]:
        answer = answer[1:-1]
    return None if answer == COPY_SENTENCE else "the answer is not the sentence exactly"


def _json(answer: str) -> str | None:
    try:
        value = _loads(_unfenced(answer))
    except ValueError:
        return "the answer is not JSON"
    if not isinstance(value, dict):
        return "the answer is JSON but not an object"
    if not isinstance(value.get("name"), str):
        return 'the answer\'s "name" is not a string'
    if type(value.get("count")) is not int:
        return 'the answer\'s "count" is not an integer'
    return None


def _unfenced(answer: str) -> str:
    """The inside of the one code fence that is the whole answer; any other answer as it is."""
    first, newline, rest = answer.partition("\n")
    if newline and first.strip().lower() in ("```", "```json") and rest.endswith("```"):
        return rest.removesuffix("```")
    return answer


_JUDGES: dict[str, Callable[[str], str | None]] = {"arithmetic": _arithmetic, "copy": _copy, "json": _json}


def _chat_answer(body: bytes | None) -> str:
    message = _choice(body).get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if content is not None and not isinstance(content, str):
        raise _NoAnswer("was answered with a content that is not text")
    answer = answer_alone(content or "")
    if not answer.strip():
        raise _NoAnswer("was answered with reasoning alone" if content else "was answered with an empty text")
    return answer


def _completion(body: bytes | None) -> tuple[str, list[int]]:
    choice = _choice(body)
    ids = choice.get("token_ids")
    if not isinstance(ids, list) or any(type(one) is not int for one in ids):
        raise _NoAnswer("was answered without token_ids")
    if not ids:
        raise _NoAnswer("was answered with no token")
    text = choice.get("text")
    return text if isinstance(text, str) else "", ids


def _choice(body: bytes | None) -> dict[str, Any]:
    if body is None:
        raise _NoAnswer("was not answered")
    try:
        document = _loads(body.decode("utf-8"))
    except ValueError:
        raise _NoAnswer("was answered with something other than UTF-8 JSON") from None
    if not isinstance(document, dict):
        raise _NoAnswer("was answered with JSON that is not an object")
    if document.get("error") is not None:
        error = document["error"]
        message = error.get("message") if isinstance(error, dict) else error
        words = " ".join(_excerpt(message).split()) if isinstance(message, str) else "no message"
        raise _NoAnswer(f"was answered with an error ({words})")
    choices = document.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise _NoAnswer("was answered without exactly one choice")
    return choices[0]


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(literal: str) -> None:
    raise ValueError(f"{literal} is not JSON")


def _excerpt(text: str) -> str:
    # A lone surrogate is legal in JSON and can't be written to an evidence file.
    return text[:160].encode("utf-8", "replace").decode()


def _check(name: str, passed: bool, sentence: str, answer: str) -> CanaryCheck:
    return CanaryCheck(name=name, passed=passed, sentence=f"{sentence}.", answer=_excerpt(answer))


def pulse(model: str, mode: str, *, enable_thinking: bool | None = None) -> CanaryRequest:
    """The one short canary asked after each batch of a ladder: arithmetic over chat, or the repeat prompt once."""
    if mode == "repeat":
        return repeat_canaries(model)[0]
    asked = chat_canaries(model, enable_thinking=enable_thinking, max_tokens=PULSE_MAX_TOKENS)
    return next(request for request in asked if request.check == "arithmetic")


def judge_pulse(mode: str, body: bytes | None, first: bytes | None) -> str | None:
    """Why a pulse is wrong, None when it is right. In repeat mode it must equal the ``first`` pulse's ids."""
    if mode != "repeat":
        check = _single("arithmetic", [body])
        return None if check.passed else check.sentence
    try:
        _, ids = _completion(body)
        if first is not None and ids != _completion(first)[1]:
            return "the answer differs from the first one of this server"
    except _NoAnswer as error:
        return f"the answer {error}"
    return None
