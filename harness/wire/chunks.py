"""Completion chunks of one answer: the events in order → ids with their times, text, usage, faults and notes.

Pure. Field rules: contract section 3.
"""

import json
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from harness.wire.reason import Reason
from harness.wire.sse import Event

_MAX_ID = 2**31
_MAX_COUNT = 2**53
MAX_WORDS = 300
"""longest sentence taken from a server, in characters"""
_BURST_MIN_IDS = 8
_LARGE = 64 * 1024
"""characters from which on it is looked at what a chunk would cost; the chunks of a stream have some hundred"""
MAX_COST = 12 * 1024 * 1024
"""bytes that one chunk may take as values: 262,144 prompt ids do with their text"""


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's own count. ``cached_tokens`` is None when the server didn't say (which is never read as 0)."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    """A chunk of another shape; the message says which field."""


class Stream:
    """The events of one answer so far. ``faults`` holds the first sentence of every reason that applies."""

    def __init__(self) -> None:
        self.faults: dict[Reason, str] = {}
        self.ids: list[int] = []
        self.chunk_ns: list[int] = []
        self.chunk_sizes: list[int] = []
        self.prompt_ids: tuple[int, ...] | None = None
        self.texts: list[str] = []
        self.stream_id: str | None = None
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.first_event_ns: int | None = None
        self.done = False
        self.observed: list[str] = []
        self._events = 0
        self._finals = 0
        self._buffered = 0

    def fault(self, reason: Reason, detail: str) -> None:
        self.faults.setdefault(reason, words(detail))

    def take(self, event: Event) -> None:
        """One event, in order."""
        self._events += 1
        if self.first_event_ns is None:
            self.first_event_ns = event.at_ns
        data = event.data
        if self.done:
            self.fault(Reason.AFTER_DONE, f"event {self._events} came after [DONE]: {data}")
        elif data == "[DONE]":
            self.done = True
            return
        if len(data) > _LARGE and (cost := _cost(data)) > MAX_COST:
            self.fault(Reason.LINE_TOO_LONG, f"event {self._events} would take {cost >> 20} MiB to read")
            return
        try:
            chunk = _JSON.decode(data)
        except (ValueError, RecursionError) as error:
            if event.kind == "error":
                self.fault(Reason.ERROR_EVENT, f"the server sent the error: {data}")
            elif not self.done:
                why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
                self.fault(Reason.BAD_JSON, f"event {self._events} isn't JSON: {why}")
            return
        said = _error_of(event.kind, chunk)
        if said is not None:
            self.fault(Reason.ERROR_EVENT, f"the server sent the error: {said}")
        elif not self.done:
            try:
                self._chunk(event.at_ns, chunk)
            except _Wrong as wrong:
                self.fault(Reason.BAD_EVENT, f"event {self._events} isn't a completion chunk: {wrong}")

    def _chunk(self, at_ns: int, chunk: Any) -> None:
        if type(chunk) is not dict:
            raise _Wrong("it is not a JSON object")
        stream_id = chunk.get("id")
        if stream_id != self.stream_id and stream_id is not None:
            self._name(stream_id)
        choices = chunk.get("choices")
        if type(choices) is not list:
            raise _Wrong("choices is not a list")
        if len(choices) > 1:
            self.fault(Reason.MANY_CHOICES, f"event {self._events} has {len(choices)} choices")
        for choice in choices:
            if type(choice) is not dict:
                raise _Wrong("a choice is not a JSON object")
            index = choice.get("index", 0)
            if type(index) is not int:
                raise _Wrong("index is not an integer")
            if index != 0:
                self.fault(Reason.MANY_CHOICES, f"event {self._events} belongs to choice {index}")
                continue
            self._choice(at_ns, choice)
        usage = chunk.get("usage")
        if usage is not None:
            self._count(_usage(usage), final=not choices)

    def _choice(self, at_ns: int, choice: dict[str, Any]) -> None:
        if "delta" in choice:
            raise _Wrong("it has choices[0].delta, as chat answers have; only /v1/completions is measured")
        if self.prompt_ids is None and choice.get("prompt_token_ids") is not None:
            self.prompt_ids = tuple(_ids(choice["prompt_token_ids"], "prompt_token_ids"))
        text = choice.get("text")
        ids = choice.get("token_ids")
        if text is not None and type(text) is not str:
            raise _Wrong("text is not a string")
        if ids:
            self.ids += _ids(ids, "token_ids")
            self.chunk_ns.append(at_ns)
            self.chunk_sizes.append(len(ids))
        elif ids is not None and type(ids) is not list:
            raise _Wrong("token_ids is not a list")
        if text:
            self.texts.append(text)
            if ids is None:
                self.fault(Reason.IDS_MISSING, f"event {self._events} brought text but no token_ids")
        finish = choice.get("finish_reason")
        if finish is not None:
            self._finish(finish)

    def _name(self, stream_id: Any) -> None:
        if type(stream_id) is not str:
            raise _Wrong("id is not a string")
        stream_id = sound(stream_id)
        if self.stream_id is None:
            self.stream_id = stream_id
        elif self.stream_id != stream_id:
            self.fault(
                Reason.MANY_STREAM_IDS, f"the stream is {self.stream_id} and, from event {self._events}, {stream_id}"
            )

    def _finish(self, finish: Any) -> None:
        if type(finish) is not str:
            raise _Wrong("finish_reason is not a string")
        finish = sound(finish)
        if finish == "error":
            self.fault(Reason.ERROR_EVENT, "the server ended the answer with finish_reason error")
        elif finish not in ("stop", "length"):
            self.fault(Reason.FINISH_UNEXPECTED, f"finish_reason is {finish}, neither stop nor length")
        elif self.finish is not None and self.finish != finish:
            self.fault(Reason.FINISH_UNEXPECTED, f"finish_reason was {self.finish}, then {finish}")
        if self.finish is None:
            self.finish = finish

    def _count(self, usage: Usage, *, final: bool) -> None:
        """Running usage stands in a chunk with a choice; the final object stands alone (``choices: []``)."""
        last = self.usage
        if last is not None:
            if self._finals and usage == last:
                self.observed.append("usage-repeated: the final usage object came more than once, equal each time")
            elif (
                self._finals
                or usage.completion_tokens < last.completion_tokens
                or usage.prompt_tokens != last.prompt_tokens
            ):
                self.fault(Reason.USAGE_CONFLICT, f"two usage objects disagree: {_told(last)}, then {_told(usage)}")
        if not final and usage.completion_tokens > len(self.ids):
            self._buffered += 1
        self._finals += final
        self.usage = usage

    def judge(self) -> None:
        """The rules that need the whole stream."""
        if not self.ids and Reason.IDS_MISSING not in self.faults:
            self.fault(Reason.NO_TOKENS, f"{self._events} events came and none brought a token id")
        if self.finish is None:
            self.fault(Reason.FINISH_MISSING, "no finish_reason came")
        if not self.done:
            self.fault(Reason.DONE_MISSING, "[DONE] never came")
        if self.usage is None:
            self.fault(Reason.USAGE_MISSING, "no usage object came")
        elif self.usage.completion_tokens != len(self.ids):
            said = self.usage.completion_tokens
            self.fault(Reason.USAGE_IDS_MISMATCH, f"{len(self.ids)} token ids came, usage says {said}")
        if not _is_sound("".join(self.texts)):
            self.fault(Reason.BAD_EVENT, "the text holds half of a surrogate pair")

    def notes(self) -> list[str]:
        notes = list(dict.fromkeys(self.observed))
        if self._buffered:
            notes.append(f"buffered: in {self._buffered} chunks usage counts tokens whose ids hadn't come")
        total = len(self.ids)
        if len(self.chunk_ns) > 1 and total >= _BURST_MIN_IDS:
            per_read: dict[int, int] = {}
            for at_ns, size in zip(self.chunk_ns, self.chunk_sizes, strict=True):
                per_read[at_ns] = per_read.get(at_ns, 0) + size
            most = max(per_read.values())
            if 2 * most > total:
                notes.append(f"burst-read: {most} of {total} ids arrived in one read")
        return notes


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} isn't a JSON value")


def _cost(data: str) -> int:
    """Bytes of memory that reading it may take, in the mean of CPython's own sizes: the text, numbers, the rest."""
    others = sum(map(data.count, '[{":'))
    return data.__sizeof__() + 36 * data.count(",") + 72 * others


_JSON = json.JSONDecoder(parse_constant=_refuse)


def _error_of(kind: str, chunk: Any) -> str | None:
    """The server's own words when an event tells of an error, else None."""
    error = chunk.get("error") if type(chunk) is dict else None
    if error is None:
        if kind != "error" and not (type(chunk) is dict and chunk.get("object") == "error"):
            return None
        error = chunk
    message = error.get("message") if type(error) is dict else error
    return message if type(message) is str else _plain(error)


def _plain(value: Any) -> str:
    """``value`` as JSON; what nests too deeply to be written back has no words."""
    try:
        return json.dumps(value)
    except RecursionError:
        return "(nested too deeply)"


def _ids(value: Any, name: str) -> list[int]:
    if type(value) is not list:
        raise _Wrong(f"{name} is not a list")
    for number in value:
        if type(number) is not int or not 0 <= number < _MAX_ID:
            raise _Wrong(f"{name} holds something that is not a token id")
    return value


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MAX_COUNT


def _usage(value: Any) -> Usage:
    if type(value) is not dict:
        raise _Wrong("usage is not a JSON object")
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    if not _is_count(prompt) or not _is_count(completion):
        raise _Wrong("usage lacks the integers prompt_tokens and completion_tokens")
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if type(details) is dict else None
    return Usage(prompt, completion, cached if _is_count(cached) else None)


def _told(usage: Usage) -> str:
    return f"{usage.prompt_tokens} + {usage.completion_tokens} tokens ({usage.cached_tokens} cached)"


def _is_sound(text: str) -> bool:
    """Whether ``text`` can be written as UTF-8: JSON escapes can spell half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sound(text: str) -> str:
    return text if _is_sound(text) else text.encode(errors="backslashreplace").decode()


def words(text: str) -> str:
    """A server's words on one line of at most 300 characters, nothing in it that moves a terminal's cursor."""
    line = "".join(char if char.isprintable() else " " for char in text[: 4 * MAX_WORDS])
    line = " ".join(line.split())
    return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"
