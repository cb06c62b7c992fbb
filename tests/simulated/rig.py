"""Starts the real simulated server and talks to it over real sockets."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

QUICK = ("--step-us", "100", "--ttft-ms", "1")
PROMPTS = [f"Explain the plan number {n} of the report to a reader in a hurry." for n in range(12)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Answer:
    """Everything that came back on one connection, and how it ended: closed, reset or open (timed out)."""

    ending: str
    raw: bytes
    reads: int

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def body(self) -> bytes:
        """The body, without chunk framing; what is there of it."""
        head, _, rest = self.raw.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head:
            return rest
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return body

    @property
    def whole(self) -> bool:
        """Whether the chunked body has its last chunk."""
        return self.raw.endswith(b"\r\n0\r\n\r\n")

    @property
    def data(self) -> list[str]:
        """The data of the events."""
        events = self.body.decode().split("\n\n")
        assert events.pop() == ""
        assert all(event.startswith("data: ") for event in events)
        return [event[6:] for event in events]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0] for chunk in self.chunks if chunk.get("choices")]

    @property
    def ids(self) -> list[int]:
        return [token for choice in self.choices for token in choice["token_ids"]]

    @property
    def sizes(self) -> list[int]:
        return [len(choice["token_ids"]) for choice in self.choices]

    @property
    def text(self) -> str:
        return "".join(choice["text"] for choice in self.choices)

    @property
    def finish(self) -> str | None:
        return next((choice["finish_reason"] for choice in self.choices if choice["finish_reason"]), None)

    @property
    def usage(self) -> dict[str, Any] | None:
        return next((chunk["usage"] for chunk in self.chunks if not chunk.get("choices") and "usage" in chunk), None)


class Sim:
    """A running simulated server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.port, self.process, self._log = port, process, log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, Any]]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stream(self, prompt: object, *, path: str = "/v1/completions", timeout: float = 10, **fields: Any) -> Answer:
        """One request as contract section 3 sends it, on a connection of its own."""
        body = {"model": "simulated", "prompt": prompt, "max_tokens": 512, "temperature": 0, "seed": 42, "stream": True}
        body |= {"stream_options": {"include_usage": True}, "return_token_ids": True} | fields
        payload = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: sim\r\nX-Request-Id: bench-1\r\nConnection: close\r\n"
        raw, reads, ending = b"", 0, "closed"
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as sock:
            sock.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
            try:
                while data := sock.recv(65536):
                    raw += data
                    reads += 1
            except TimeoutError:
                ending = "open"
            except ConnectionResetError:
                ending = "reset"
        return Answer(ending, raw, reads)

    def metrics(self) -> dict[str, float]:
        """Samples without their ``model_name`` and ``engine`` labels, ``_created`` left out."""
        status, body = self.get("/metrics")
        assert status == 200
        samples = {}
        for line in body.decode().splitlines():
            if not line.startswith("#") and "_created" not in line:
                name, value = line.rsplit(" ", 1)
                samples[re.sub(r'(,?(engine|model_name)="[^"]*",?)+', "", name).replace("{}", "")] = float(value)
        return samples


@contextmanager
def started(log: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Sim]:
    """The process, ready or not; killed at the end."""
    port = free_port()
    command = [sys.executable, "-m", "harness.simulated", "--port", str(port), *QUICK, *arguments]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=env)
    try:
        yield Sim(port, process, log)
    finally:
        process.kill()
        process.wait()


def wait_ready(sim: Sim, deadline_s: float = 10) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        assert sim.process.poll() is None, sim.log
        try:
            if sim.get("/health")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.005)
    raise AssertionError(f"not ready after {deadline_s} s: {sim.log}")


@contextmanager
def ready(log: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Sim]:
    """The process once /health is 200."""
    with started(log, *arguments, env=env) as sim:
        wait_ready(sim)
        yield sim
