"""The token source of ``source.c`` in Python, for machines without a C compiler: same options, answers and schedule.

It costs some 40 µs an event instead of 6, so late events at high rates are its own; the figures say which was used.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

JSON_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
STREAM_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
MODEL = {"id": "source", "object": "model", "created": 1700000000, "owned_by": "source", "max_model_len": 32768}


def chunk(event: str) -> bytes:
    return f"{len(event):x}\r\n{event}\r\n".encode()


def opening(serial: int, chat: bool) -> str:
    kind, name = ("chat.completion.chunk", "chatcmpl") if chat else ("text_completion", "cmpl")
    return (
        f'data: {{"id":"{name}-{serial}","object":"{kind}","created":1700000000,"created_ns":{time.time_ns()},'
        '"model":"source",'
    )


def event(serial: int, chat: bool, first: int, ids: list[int], last: bool) -> bytes:
    text = '"delta":{"content":" tick"}' if chat else '"text":" tick"'
    finish, prompt = '"length"' if last else "null", "null" if first else "[1,2,3,4]"
    rest = f'"finish_reason":{finish},"stop_reason":null'
    listed = ",".join(map(str, ids))
    rest += f',"prompt_token_ids":{prompt},"token_ids":[{listed}]'
    return chunk(f'{opening(serial, chat)}"choices":[{{"index":0,{text},"logprobs":null,{rest}}}]}}\n\n')


@dataclass
class Sent:
    """What the ledger says of one streamed answer."""

    serial: int
    tokens: int
    ids: int = 0
    events: int = 0
    sent_bytes: int = 0
    writes: int = 0
    whole: bool = False

    async def write(self, writer: asyncio.StreamWriter, data: bytes, most: int) -> None:
        """At most ``most`` bytes a write, the streams in turn after each; 0: all at once."""
        for at in range(0, len(data), most or len(data)):
            piece = data[at : at + most] if most else data
            writer.write(piece)
            self.sent_bytes += len(piece)
            self.writes += 1
            await writer.drain()
            if most:
                await asyncio.sleep(0)


class Source:
    def __init__(self, ttft_us: int, gap_us: int, ids_per_event: int, ledger: TextIO | None) -> None:
        self._ttft_ns, self._gap_us, self._ids = ttft_us * 1000, gap_us, ids_per_event
        self._requests = 0
        self._ledger = ledger

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                closing = "connection: close\r\n" if fields.get("connection", "").lower() == "close" else ""
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                await self._answer(lines[0].split(" ")[:2], body, closing, writer)
                if closing:
                    break
        with suppress(ConnectionError):
            writer.close()

    async def _answer(self, line: list[str], body: bytes, closing: str, writer: asyncio.StreamWriter) -> None:
        if line in (["POST", "/v1/completions"], ["POST", "/v1/chat/completions"]):
            request = json.loads(body)
            self._requests += 1
            tokens = int(request.get("max_tokens") or request.get("max_completion_tokens") or 16)
            sent = Sent(self._requests, tokens)
            try:
                await self._stream(writer, sent, "chat" in line[1], closing, request)
            finally:
                if self._ledger is not None:
                    counts = (
                        sent.serial,
                        sent.tokens,
                        sent.ids,
                        sent.events,
                        sent.sent_bytes,
                        sent.writes,
                        int(sent.whole),
                    )
                    self._ledger.write(" ".join(map(str, counts)) + "\n")
                    self._ledger.flush()
            return
        known = {"/health": "", "/version": '{"version":"source"}'}
        known["/v1/models"] = json.dumps({"object": "list", "data": [MODEL]})
        text = known.get(line[1])
        head = JSON_HEAD if text is not None else JSON_HEAD.replace("200 OK", "404 Not Found")
        writer.write(f"{head}{closing}content-length: {len(text or '')}\r\n\r\n{text or ''}".encode())

    async def _stream(
        self, writer: asyncio.StreamWriter, sent: Sent, chat: bool, closing: str, request: dict[str, int]
    ) -> None:
        serial, tokens, due = sent.serial, sent.tokens, time.monotonic_ns() + self._ttft_ns
        gap_us, most = request.get("source_gap_us", self._gap_us), request.get("source_write_bytes", 0)
        pause_every, pause_us = request.get("source_pause_every", 0), request.get("source_pause_us", 0)
        await sent.write(writer, f"{STREAM_HEAD}{closing}transfer-encoding: chunked\r\n\r\n".encode(), most)
        for first in range(0, tokens, self._ids):
            await asyncio.sleep((due - time.monotonic_ns()) / 1e9)
            ids = [(n * 31 + 7) % 997 for n in range(first, min(first + self._ids, tokens))]
            sent.ids, sent.events = first + len(ids), sent.events + 1
            await sent.write(writer, event(serial, chat, first, ids, sent.ids == tokens), most)
            due += gap_us * 1000
            if pause_every and sent.events % pause_every == 0:
                due += pause_us * 1000
        counts = f'"prompt_tokens":4,"total_tokens":{4 + tokens},"completion_tokens":{tokens}'
        usage = f'"choices":[],"usage":{{{counts},"prompt_tokens_details":{{"cached_tokens":0}}}}}}\n\n'
        end = chunk(opening(serial, chat) + usage) + chunk("data: [DONE]\n\n") + b"0\r\n\r\n"
        await sent.write(writer, end, most)
        sent.whole = True


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    for name, default in (("--ttft-us", 50_000), ("--gap-us", 10_000), ("--ids-per-event", 1)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--ledger", type=argparse.FileType("a"))
    options = parser.parse_args()
    source = Source(options.ttft_us, options.gap_us, options.ids_per_event, options.ledger)
    server = await asyncio.start_server(source.connection, "127.0.0.1", options.port, backlog=4096)
    sys.stdout.write(f"listening on {server.sockets[0].getsockname()[1]} normal\n")
    sys.stdout.flush()
    gc.freeze()
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
