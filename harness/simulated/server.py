"""The HTTP face of the simulated server: routes, checks, and the life of the process."""

import json
import os
import socket
import time
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any
from uuid import uuid4

from harness.simulated import log, model
from harness.simulated.canary import reply
from harness.simulated.completions import Order, StreamedAnswer, WholeAnswer, faults_of
from harness.simulated.connection import Connection, Request
from harness.simulated.engine import Engine, Sequence
from harness.simulated.logprobs import logprobs_of
from harness.simulated.loop import Loop
from harness.simulated.memory import Eater
from harness.simulated.metrics import Counters
from harness.simulated.settings import Settings
from harness.simulated.shapes import ApiError, UsageShape, dumps, model_list

FOREIGN_TOKENS = 7
"""fault ``foreign-request``: prompt tokens, and generated tokens, of each foreign request"""
_TEXT = "text/plain; version=1.0.0; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"


class Server:
    """One simulated vLLM server on a bound socket; :meth:`listen` opens it."""

    def __init__(self, settings: Settings, loop: Loop, listener: socket.socket) -> None:
        self.settings = settings
        self.exit_code = 0
        self._loop = loop
        self._listener = listener
        self._listening = False
        self._counters = Counters([0] * settings.depth)
        self._engine = Engine(settings, loop, self._counters)
        self._seen: dict[bytes, int] = {}
        """key of each suite prompt → its number, from 0"""
        self._suite_streams = 0
        self._warm: set[int] = set()
        """batch sizes at which a suite-like request has run"""
        self._calls = 0
        """model calls of any kind"""
        self._random = os.urandom(16)
        cached = None if "cached-missing" in settings.faults else int(settings.faults.get("cached-tokens", 0))
        self._usage = UsageShape(cached)
        self._created = int(time.time())

    def listen(self) -> None:
        """Accept connections from now on."""
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self._listening = True
        self._loop.watch(self._listener, self._accept)

    def shut_down(self, code: int, grace_ns: int) -> None:
        """Stop accepting now; end with ``code`` when no request runs or ``grace_ns`` have passed."""
        if self._listening:
            self._loop.forget(self._listener)
            self._listening = False
        self._listener.close()
        self.exit_code = code
        deadline = time.monotonic_ns() + grace_ns

        def look() -> None:
            now = time.monotonic_ns()
            if not self._engine.busy or now >= deadline:
                self._loop.stop()
            else:
                self._loop.at(min(now + 20_000_000, deadline), look)

        # The answer that has just ended may still have bytes to send.
        self._loop.at(time.monotonic_ns() + 20_000_000, look)

    def _accept(self, _: int) -> None:
        for _ in range(64):
            try:
                sock, (host, port, *_rest) = self._listener.accept()
            except OSError:
                return
            Connection(self._loop, sock, f"{host}:{port}", self._on_request)

    def _on_request(self, connection: Connection, request: Request) -> None:
        status = 200
        try:
            self._route(connection, request)
        except ApiError as error:
            status = error.status
            connection.respond(status, dumps(error.body).encode())
        if not (request.path.endswith("completions") and status == 200):
            log.raw(f'INFO:     {connection.peer} - "{request.method} {request.path} HTTP/1.1" {status}')

    def _route(self, connection: Connection, request: Request) -> None:
        route = request.method, request.path
        if route == ("POST", "/v1/completions"):
            self._answer(connection, request, chat=False)
        elif route == ("POST", "/v1/chat/completions"):
            self._answer(connection, request, chat=True)
        elif route == ("GET", "/health"):
            ready = "never-ready" not in self.settings.faults
            connection.respond(200 if ready else 503, b"", "")
        elif route == ("GET", "/metrics"):
            if "foreign-request" in self.settings.faults:
                self._counters.finished["length"] += 1
                self._counters.prompt_tokens += FOREIGN_TOKENS
                self._counters.generation_tokens += FOREIGN_TOKENS
            connection.respond(200, self._counters.render(self.settings.name).encode(), _TEXT)
        elif route == ("GET", "/version"):
            connection.respond(200, b'{"version":"0.0.0+simulated"}')
        elif route == ("GET", "/v1/models"):
            listed = self.settings.name + ("-other" if "wrong-model" in self.settings.faults else "")
            connection.respond(200, dumps(model_list(listed, self.settings.max_model_len, self._created)).encode())
        elif route == ("GET", "/server_info"):
            connection.respond(200, dumps(self._info()).encode())
        elif route == ("POST", "/tokenize"):
            tokens = self._prompt(_body(request))
            if self.settings.depth and "other-tokenizer" in self.settings.faults:
                tokens = [model.BANG if place % 100 == 99 else token for place, token in enumerate(tokens)]
            shown = {"count": len(tokens), "max_model_len": self.settings.max_model_len, "tokens": tokens}
            connection.respond(200, dumps(shown | {"token_strs": None}).encode())
        elif route == ("POST", "/detokenize"):
            tokens = self._token_list(_body(request).get("tokens"), "tokens")
            connection.respond(200, dumps({"prompt": model.detokenize(tokens)}).encode())
        else:
            connection.respond(404, b'{"detail":"Not Found"}')

    def _answer(self, connection: Connection, request: Request, *, chat: bool) -> None:
        body, faults = _body(request), self.settings.faults
        self._calls += 1
        if self._calls > faults.get("mute", self._calls):
            return
        name = body.get("model", self.settings.name)
        if name != self.settings.name:
            raise ApiError(404, f"The model `{name}` does not exist. Valid aliases: {self.settings.name}.", "model")
        if body.get("n", 1) != 1:
            raise ApiError(400, "The simulated server gives one answer per prompt: n must be 1.", "n")
        prompt, question = self._chat_prompt(body) if chat else (self._prompt(body), "")
        limit = self._limit(body, len(prompt), chat=chat)
        stream = body.get("stream") is True
        given_id = request.headers.get("x-request-id") or uuid4().hex[:16]
        asked = None if chat else logprobs_of(body, self.settings.seed_text, prompt, limit, stream=stream)
        suite_like = not chat and limit > 1 and asked is None
        key = model.prompt_key(self.settings.seed_text, prompt)
        if suite_like:
            self._seen.setdefault(key, len(self._seen))
            self._suite_streams += stream
            if self._suite_streams == faults.get("eats-memory"):
                Eater().eat_on(self._loop)
        order = Order(
            chat=chat,
            request_id=("chatcmpl-" if chat else "cmpl-") + given_id,
            model=self.settings.name,
            prompt=prompt,
            max_tokens=limit,
            ignore_eos=body.get("ignore_eos") is True,
            stream=stream,
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            return_token_ids=body.get("return_token_ids") is True,
            faults=faults_of(faults, suite_like=suite_like, suite_number=self._suite_streams),
            tops=None if asked is None else asked[1],
        )
        log.line(
            f"Received request {order.request_id}: {len(prompt)} prompt tokens, max_tokens {limit}",
            source="logger.py:1",
        )
        answer: WholeAnswer | StreamedAnswer
        if stream:
            answer = StreamedAnswer(
                connection,
                order,
                self._usage,
                end=lambda reason: self._engine.remove(sequence, reason),
                die=lambda: self.shut_down(1, grace_ns=0),
            )
        else:
            answer = WholeAnswer(connection, order, self._usage)
        if asked is not None:
            ids: Iterator[tuple[int, float]] = chain(((token, 0.0) for token in asked[0]), repeat((model.EOS, 0.0)))
        else:
            at_edge = self._at_edge(key, len(prompt), limit) if suite_like else None
            ids = self._chat_ids(key, question) if chat else at_edge or self._ids(key, suite_like=suite_like)
        sequence = Sequence(
            prompt_tokens=len(prompt),
            ids=ids,
            max_tokens=limit,
            ignore_eos=order.ignore_eos,
            stop_after=int(faults["short"]) if suite_like and "short" in faults else None,
            on_step=answer.step,
            arrived_ns=request.arrived_ns,
            tied_ids=(lambda: model.diverging(key, b"site", model.tie_site(key))) if suite_like else None,
            warming=self._warming if suite_like and "jit" in faults else None,
            loses_end="loses-end" in faults and suite_like and stream,
        )
        connection.on_lost = lambda: self._engine.remove(sequence, "abort")
        self._engine.submit(sequence)

    def _warming(self, running: int) -> int:
        """Fault ``jit``: what a batch of this size waits for its kernel, nanoseconds; said as vLLM's monitor does."""
        if running in self._warm:
            return 0
        self._warm.add(running)
        log.line(
            f"Triton kernel JIT compilation during inference: simulated_kernel_b{running}. This causes a latency "
            "spike; consider extending warmup to cover this shape/config.",
            level="WARNING",
            role="EngineCore",
            source="jit_monitor.py:1",
        )
        return round(self.settings.faults["jit"] * 1e6)

    def _at_edge(self, key: bytes, prompt_tokens: int, limit: int) -> Iterator[tuple[int, float]] | None:
        """The ids where a fault strikes at the shortest prompts or at the end of the context."""
        settings, faults = self.settings, self.settings.faults
        if settings.depth and "boundary" in faults and prompt_tokens == 1 + settings.depth:
            return repeat((model.BANG, 0.0))
        if settings.depth and "last-position" in faults and prompt_tokens + limit == settings.max_model_len:
            return model.diverging(key, b"full", limit - 1)
        return None

    def _ids(self, key: bytes, *, suite_like: bool) -> Iterator[tuple[int, float]]:
        """The ids of a completion, with the faults that change ids."""
        faults = self.settings.faults
        if "garbage" in faults:
            return repeat((model.BANG, 0.0))
        if suite_like:
            number = self._seen[key]
            if self.settings.depth and number < faults.get("tie", 0):
                return model.diverging(key, b"tie")
            if number < faults.get("unstable", 0):
                return model.diverging(key, self._random)
            if "batch-tie" in faults and self._engine.next_place > faults["batch-tie"]:
                return model.diverging(key, b"batch")
        return model.answer(key)

    def _chat_ids(self, key: bytes, question: str) -> Iterator[tuple[int, float]]:
        text = reply(question, wrong="bad-canary" in self.settings.faults) or model.sentence(key)
        draws = (draw for _, draw in model.answer(key))
        return zip(chain(model.tokenize(text), repeat(model.EOS)), draws, strict=False)

    def _chat_prompt(self, body: dict[str, Any]) -> tuple[list[int], str]:
        """The ids of a conversation, and the user's last message."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise ApiError(400, "messages: give a non-empty list of objects.", "messages")
        question = rendered = ""
        for message in messages:
            content = message.get("content") or ""
            if isinstance(content, list):
                content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
            rendered += f"<{message.get('role')}>\n{content}\n"
            if message.get("role") == "user":
                question = str(content)
        return model.tokenize(rendered + "<assistant>\n"), question

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        if isinstance(prompt, str) and prompt:
            return model.tokenize(prompt)
        return self._token_list(prompt, "prompt")

    @staticmethod
    def _token_list(tokens: object, param: str) -> list[int]:
        if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
            raise ApiError(400, f"{param}: give a non-empty text or list of token ids.", param)
        if not all(0 <= token < model.VOCABULARY for token in tokens):
            raise ApiError(400, f"Token id {max(tokens)} is out of vocabulary", param)
        return tokens

    def _limit(self, body: dict[str, Any], prompt_tokens: int, *, chat: bool) -> int:
        """max_tokens of a request, checked against the context."""
        context = self.settings.max_model_len
        given = body.get("max_completion_tokens") or body.get("max_tokens")
        if given is None and "max_tokens" in body and body["max_tokens"] == 0:
            given = 0
        if given is not None and (type(given) is not int or given < 1):
            raise ApiError(400, f"max_tokens must be at least 1, got {given}.", "max_tokens")
        if prompt_tokens >= context:
            raise ApiError(
                400,
                f"This model's maximum context length is {context} tokens. However, your prompt contains at least "
                f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce "
                f"the length of the input prompt. (parameter=input_tokens, value={prompt_tokens})",
                "input_tokens",
            )
        if given is None:
            return context - prompt_tokens if chat else min(16, context - prompt_tokens)
        if prompt_tokens + given > context:
            raise ApiError(
                400,
                f"This model's maximum context length is {context} tokens. However, you requested {given} output "
                f"tokens and your prompt contains at least {prompt_tokens} input tokens, for a total of at least "
                f"{prompt_tokens + given} tokens. Please reduce the length of the input prompt or the number of "
                f"requested output tokens. (parameter=input_tokens, value={prompt_tokens})",
                "input_tokens",
            )
        return given

    def _info(self) -> dict[str, Any]:
        settings = self.settings
        speculative = {
            "method": "mtp",
            "num_speculative_tokens": settings.depth,
            "rejection_sample_method": "standard",
        }
        return {
            "vllm_config": {
                "model_config": {
                    "served_model_name": settings.name,
                    "max_model_len": settings.max_model_len,
                    "enforce_eager": settings.enforce_eager,
                },
                "parallel_config": {"tensor_parallel_size": settings.tensor_parallel_size},
                "speculative_config": speculative if settings.depth else None,
                "scheduler_config": {"max_num_seqs": settings.max_num_seqs},
                "simulated": True,
            }
        }


def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError as error:
        # A lone JSON error has a short, stable sentence; vLLM's is pydantic's.
        raise ApiError(
            400, f"[{{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'ctx': {error}}}]"
        ) from None
    if not isinstance(body, dict):
        raise ApiError(
            400, "[{'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary'}]"
        )
    return body
