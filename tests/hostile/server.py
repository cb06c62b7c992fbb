"""A hostile engine: the scripted socket server with vLLM's other endpoints around it, for whole campaigns.

A script is a list of steps of ``tests.wire.scripted`` (send bytes, wait for an event, close, half-close, reset), and of
:func:`trickle`: every wait is for an event, nothing sleeps. What was asked, by whom and how many at once is kept.
"""

import hashlib
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.measure.rows import Row, build_row
from harness.wire.capture import Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.completion import Completion, parse_completion
from harness.wire.exchange import Exchange
from harness.wire.transport import Deadlines, SocketTransport
from harness.workloads.canaries import COPY_SENTENCE
from tests.wire.build import DONE, chunk, chunked, counts, event
from tests.wire.scripted import Peer, ScriptedServer, Step, request, send

MODEL = "model"
Script = Sequence[Step]


def trickle(data: bytes, places: Sequence[int]) -> Step:
    """Send ``data`` in writes that end at ``places``, each once the kernel has taken the one before."""

    def step(peer: Peer) -> None:
        bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
        for start, stop in itertools.pairwise(bounds):
            peer.sock.sendall(data[start:stop])

    return step


# one answer, the whole way


class Watched(CaptureWriter):
    """A capture that tells when the client holds a marker, so that a script can go on at that moment."""

    def __init__(self, path: Path, marker: bytes = b"") -> None:
        super().__init__(path, {"label": "hostile", "timestamp_source": "SO_TIMESTAMPNS"})
        self.marker = marker
        self.seen = threading.Event()

    def drain(self, exchange: Exchange, number: int) -> None:
        """See harness.wire.transport.Sink."""
        super().drain(exchange, number)
        if self.marker in exchange.data:
            self.seen.set()


@dataclass(frozen=True)
class Played:
    """What became of one scripted answer."""

    exchange: Exchange
    completion: Completion
    row: Row


def play(
    folder: Path,
    *script: Step,
    marker: bytes = b"",
    after: Callable[[threading.Event], Script] | None = None,
    deadlines: Deadlines | None = None,
) -> Played:
    """Server → transport → capture → parse_completion → row. What is parsed is what the capture file gives back.

    ``after(seen)`` are further steps, which may wait for ``seen``: the client then holds ``marker``.
    """
    path = folder / "capture.jsonl.zst"
    path.unlink(missing_ok=True)
    sink = Watched(path, marker)
    steps = [request, *script, *(after(sink.seen) if after else ())]
    server = ScriptedServer([steps])
    try:
        sink.tags = [Tag("suite", "prompt", request_id="bench-test-00-a")]
        transport = SocketTransport("127.0.0.1", server.port, deadlines=deadlines, sink=sink, drain_s=0.01)
        live = transport.exchange(server.request())
    finally:
        sink.close()
        server.close()
    ((_, kept),) = load_capture(path).exchanges
    assert kept == live, "the capture gives back what the transport read"
    completion = parse_completion(kept)
    row = build_row(
        index=0,
        prompt_id="prompt",
        prompt_class="code",
        prompt_sha256=hashlib.sha256(b"prompt").hexdigest(),
        request_id="bench-test-00-a",
        completion=completion,
        exchange=kept,
    )
    Row.model_validate_json(row.model_dump_json())
    return Played(kept, completion, row)


# a whole server


class Engine(ScriptedServer):
    """Looks like vLLM to a campaign that is attached to it; ``completion`` gives the script of a measured request.

    ``completion(body, number)`` gets the request's JSON and its place among those that ask for a stream.
    Canaries and the readiness request are answered well, so that a campaign comes as far as the fault.
    """

    def __init__(self, completion: Callable[[dict[str, Any], int], Script]) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """(path, body) of every model call, in order of arrival"""
        self.at_once = 0
        """most streams that were open together"""
        self.tokens = 0
        self._completion = completion
        self._streams = 0
        self._now = 0
        self._guard = threading.Lock()
        self.healthy = True
        super().__init__([[request, self._dispatch]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _dispatch(self, peer: Peer) -> None:
        head, _, raw = peer.request.partition(b"\r\n\r\n")
        verb, target, _ = head.decode().split(" ", 2)
        path = target.partition("?")[0]
        if verb == "GET":
            send(_page(*self._get(path)))(peer)
            return
        body = json.loads(raw)
        with self._guard:
            self.asked.append((path, body))
        if not body.get("stream"):
            self.tokens += 1
            send(_page(200, json.dumps(_whole(path, body))))(peer)
            return
        with self._guard:
            number, self._streams = self._streams, self._streams + 1
            self._now += 1
            self.at_once = max(self.at_once, self._now)
        try:
            for step in self._completion(body, number):
                step(peer)
        finally:
            with self._guard:
                self._now -= 1

    def _get(self, path: str) -> tuple[int, str]:
        if path == "/health":
            return (200 if self.healthy else 503), ""
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": MODEL}]})
        if path == "/version":
            return 200, json.dumps({"version": "0.0.hostile"})
        return 404, json.dumps({"detail": "Not Found"})

    def calls(self) -> Counter[tuple[str, str]]:
        """(path, body as JSON) of every model call."""
        return Counter((path, json.dumps(body, sort_keys=True)) for path, body in self.asked)


@contextmanager
def engine(completion: Callable[[dict[str, Any], int], Script]) -> Iterator[Engine]:
    """An engine for the block."""
    server = Engine(completion)
    try:
        yield server
    finally:
        server.close()


def good_answer(ids: int = 110, *, start: int = 7, stream_id: str = "cmpl-1", finish: str = "stop") -> list[bytes]:
    """The writes of a whole answer of ``ids`` tokens, one a chunk."""
    pieces = [
        chunk(
            [start + n % 50],
            "w",
            finish=finish if n == ids - 1 else None,
            prompt_ids=None if n else [1, 2, 3],
            stream_id=stream_id,
        )
        for n in range(ids)
    ]
    final = {"id": stream_id, "object": "text_completion", "choices": [], "usage": counts(ids)}
    return chunked([*pieces, event(final), DONE])


def _page(status: int, body: str) -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\nconnection: close\r\n"
    )
    return head.encode() + b"\r\n" + data


_ANSWERS = {
    "Calculate": "4183",
    "Reply with an exact copy": COPY_SENTENCE,
    "Reply with one JSON": '{"name": "wren", "count": 3}',
}


def _whole(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A good answer that isn't streamed."""
    usage = {
        "prompt_tokens": 3,
        "total_tokens": 4,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    if path.endswith("/chat/completions"):
        question = body["messages"][-1]["content"]
        text = next((said for start, said in _ANSWERS.items() if question.startswith(start)), "red, blue, green, white")
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
    else:
        choice = {"index": 0, "text": "w", "token_ids": [7], "finish_reason": "length"}
    return {"id": "cmpl-0", "object": "text_completion", "model": MODEL, "choices": [choice], "usage": usage}
