"""Answers to ``/v1/completions`` and ``/v1/chat/completions``, from the engine's steps to bytes on the connection."""

import codecs
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.simulated import log
from harness.simulated.connection import Connection
from harness.simulated.faults import CUTS, DEATHS
from harness.simulated.logprobs import as_object
from harness.simulated.model import token_bytes
from harness.simulated.shapes import ENGINE_DEAD, UsageShape, dumps


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request for an answer."""

    chat: bool
    request_id: str
    model: str
    prompt: list[int]
    max_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    return_token_ids: bool
    faults: dict[str, float]
    """those that strike this answer's stream"""
    tops: list[dict[str, float]] | None = None
    """what is likeliest at each id, where that was asked for"""


class Text:
    """Ids → text, piece by piece: bytes that don't end a character wait for the next id."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, ids: list[int]) -> str:
        """The text that ``ids`` completes."""
        return self._decoder.decode(b"".join(map(token_bytes, ids)))


class WholeAnswer:
    """Collects the ids and answers once."""

    def __init__(self, connection: Connection, order: Order, usage: UsageShape) -> None:
        self._connection, self._order, self._usage = connection, order, usage
        self._ids: list[int] = []

    def step(self, ids: list[int], finish: str | None) -> bool:
        """Take a step of the engine."""
        self._ids += ids
        if finish:
            self._connection.respond(200, dumps(self._body(finish)).encode())
        return True

    def _body(self, finish: str) -> dict[str, Any]:
        order = self._order
        text = Text().add(self._ids)
        prompt_ids = order.prompt if order.return_token_ids else None
        ids = self._ids if order.return_token_ids else None
        tops = None if order.tops is None else as_object(order.tops[: len(self._ids)])
        choice: dict[str, Any] = {"index": 0}
        if order.chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
            choice |= {"logprobs": None, "finish_reason": finish, "stop_reason": None, "token_ids": ids}
        else:
            choice |= {"text": text, "logprobs": tops, "finish_reason": finish, "stop_reason": None, "token_ids": ids}
            choice |= {"prompt_logprobs": None, "prompt_token_ids": prompt_ids, "routed_experts": None}
        body: dict[str, Any] = {
            "id": order.request_id,
            "object": "chat.completion" if order.chat else "text_completion",
            "created": int(time.time()),
            "model": order.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": "simulated",
            "usage": self._usage.make(len(order.prompt), len(self._ids), stream=False),
        }
        if order.chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": prompt_ids}
        return body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}


class StreamedAnswer:
    """Sends one event per step; plays the faults of the wire."""

    def __init__(
        self,
        connection: Connection,
        order: Order,
        usage: UsageShape,
        end: Callable[[str], None],
        die: Callable[[], None],
    ) -> None:
        """``end(reason)`` takes the request out of the engine, ``die()`` ends the process with exit code 1, soon."""
        self._connection, self._order, self._usage, self._end, self._die = connection, order, usage, end, die
        self._text = Text()
        self._made = 0
        kind = "chat.completion.chunk" if order.chat else "text_completion"
        self._prefix = (
            f'{{"id":{dumps(order.request_id)},"object":"{kind}","created":{int(time.time())},'
            f'"model":{dumps(order.model)},"choices":['
        )
        self._cut_at = next((int(order.faults[name]) for name in CUTS if name in order.faults), None)
        connection.hold = "one-read" in order.faults
        connection.cut = "chunks-cut" in order.faults
        connection.stay_open = "left-open" in order.faults
        connection.start_stream()

    def step(self, ids: list[int], finish: str | None) -> bool:
        """Take a step of the engine."""
        start = self._made
        self._made += len(ids)
        if self._cut_at is not None and self._made >= self._cut_at:
            kept = ids[: self._cut_at - start]
            if kept:
                self._send_ids(kept, start, None)
            return self._break_off(finish)
        self._send_ids(ids, start, finish)
        if finish:
            if self._order.include_usage and "no-usage" not in self._order.faults:
                usage = self._usage.make(len(self._order.prompt), self._made, stream=True)
                self._connection.send_event(
                    f'{self._prefix}],"usage":{dumps(usage)},"system_fingerprint":"simulated"}}'
                )
            if "no-done" not in self._order.faults:
                self._connection.send_event("[DONE]")
            self._connection.end_stream()
        return True

    def _send_ids(self, ids: list[int], start: int, finish: str | None) -> None:
        order, faults = self._order, self._order.faults
        text = dumps(self._text.add(ids))
        prompt = shown = None
        if order.return_token_ids:
            prompt = order.prompt if start == 0 else None
            missing = int(faults["drops-id"]) - start if "drops-id" in faults else -1
            shown = [token for position, token in enumerate(ids) if position != missing]
            if "null-ids" in faults:
                shown = None
        finish_text = "null" if finish is None or "no-finish" in faults else f'"{finish}"'
        if order.chat:
            if start == 0:
                role = '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
                self._connection.send_event(
                    f'{self._prefix}{role}],"prompt_token_ids":{dumps(prompt)},"prompt_text":null}}'
                )
            choice = f'{{"index":0,"delta":{{"content":{text}}},"logprobs":null,"finish_reason":{finish_text}'
            choice += f',"token_ids":{dumps(shown)}' if order.return_token_ids else ""
        else:
            choice = f'{{"index":0,"text":{text},"logprobs":null,"finish_reason":{finish_text},"stop_reason":null'
            choice += f',"prompt_token_ids":{dumps(prompt)},"token_ids":{dumps(shown)}'
        self._connection.send_event(f"{self._prefix}{choice}}}]}}")

    def _break_off(self, finish: str | None) -> bool:
        faults = self._order.faults
        if "engine-vanishes" in faults:
            self._connection.reset()
            os._exit(137)
        if "hangs" in faults:
            return False
        if not finish:
            self._end("error")
        if "engine-dies" in faults:
            log.line("AsyncLLM output_handler failed.", level="ERROR", source="async_llm.py:906")
            log.line(
                "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
                "See stack trace (above) for the root cause.",
                level="ERROR",
                source="async_llm.py:906",
            )
        self._connection.send_event(ENGINE_DEAD)
        self._connection.send_event("[DONE]")
        self._connection.end_stream()
        if "engine-dies" in faults:
            self._die()
        return False


def faults_of(faults: dict[str, float], *, suite_like: bool, suite_number: int) -> dict[str, float]:
    """Those of the server's faults that may strike the stream of one request (see harness.simulated.faults)."""
    if not suite_like:
        return {}
    return {name: number for name, number in faults.items() if name not in DEATHS or suite_number == 3}
