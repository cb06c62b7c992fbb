"""The ladder of readiness against real little HTTP servers, each stuck on another rung."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from harness.errors import FreshnessError, LaunchError
from harness.lanes import Limits
from harness.launch.control import ControlClient
from harness.launch.readiness import Readiness, last_lines, wait_ready
from harness.launch.server import Endpoint, ServerState
from harness.plan import ServerPlan
from harness.wire.capture import Control
from tests.launch.conftest import tiny_plan


class Little(ThreadingHTTPServer):
    """Answers from a table of (status, body); ``None`` closes the connection without a word."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str] | None] = {
            "/health": (200, ""),
            "/v1/models": (200, json.dumps({"data": [{"id": "tiny"}]})),
            "/version": (200, '{"version": "0.1"}'),
        }
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Little

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answer = self.server.answers.get(self.path, (404, "{}"))
        if answer is None:
            self.close_connection = True
            return
        status, body = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


class Held:
    """A RunningServer around it, whose life and log a test decides."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.server_id = "held"
        self.running = True
        self.owner: bool | None = True
        self.log = b""

    def state(self) -> ServerState:
        return ServerState(running=True) if self.running else ServerState(running=False, exit_code=7, oom_killed=True)

    def log_bytes(self) -> int:
        return len(self.log)

    def owns_port(self) -> bool | None:
        return self.owner


@pytest.fixture
def little() -> Iterator[Little]:
    with Little() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def held(little: Little) -> Held:
    return Held(Endpoint("127.0.0.1", little.server_address[1]))


def wait(
    held: Held,
    plan: ServerPlan | None = None,
    token: Callable[[], str | None] = lambda: None,
    records: list[Control] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Readiness:
    control = ControlClient(held.endpoint, record=None if records is None else records.append, timeout_s=5)
    server: Any = held
    try:
        return wait_ready(
            server,
            plan or tiny_plan("process"),
            control,
            read_log=lambda: held.log,
            ask_one_token=token,
            progress=progress,
            poll_s=0.01,
        )
    finally:
        control.close()


def test_ready(little: Little, held: Held) -> None:
    records: list[Control] = []
    found = wait(held, records=records)
    assert (found.models, found.version, found.owns_port) == (["tiny"], "0.1", True)
    assert 0 <= found.health_s <= found.ready_s
    assert little.asked == ["/health", "/health", "/v1/models", "/version"]
    assert [control.name for control in records] == ["health", "models", "version"], "polls that failed aren't kept"


def test_waits_while_health_is_bad_and_the_log_grows(little: Little, held: Held) -> None:
    little.answers["/health"] = (503, "")
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        held.log += b"loading\n"
        if len(said) == 5:
            little.answers["/health"] = (200, "")

    assert wait(held, progress=progress).models == ["tiny"]
    assert said[0] == "starting, 0 s, 0 KiB of log" and said[-1] == "asking for one token"


def test_stale_server_on_the_port(held: Held) -> None:
    held.owner = False
    with pytest.raises(FreshnessError, match=r"^mtp0-a: port \d+ answers, but not from the server that was started"):
        wait(held)


def test_owner_that_can_not_be_known_is_said_to_be_unknown(held: Held) -> None:
    held.owner = None
    assert wait(held).owns_port is None


def test_healthy_engine_that_gives_no_token(held: Held) -> None:
    """Health is 200 while the engine is dead: only an answer proves it (hostile case 89)."""
    with pytest.raises(LaunchError, match=r"^mtp0-a: healthy, but its first token never came: first-byte-timeout"):
        wait(held, token=lambda: "first-byte-timeout")


def test_wrong_model(little: Little, held: Held) -> None:
    little.answers["/v1/models"] = (200, '{"data": [{"id": "a"}, {"id": "b"}]}')
    with pytest.raises(FreshnessError, match=r"^mtp0-a: the server on this port serves a, b, not tiny; it isn't ours$"):
        wait(held)


@pytest.mark.parametrize("answer", [(500, "oops"), (200, "<html>"), (200, '{"data": 1}'), (200, "[]"), None])
def test_no_list_of_models(little: Little, held: Held, answer: tuple[int, str] | None) -> None:
    little.answers["/v1/models"] = answer
    with pytest.raises(LaunchError, match=r"^mtp0-a: /v1/models gave no list of models "):
        wait(held)


def test_version_is_not_needed(little: Little, held: Held) -> None:
    little.answers["/version"] = (404, "")
    assert wait(held).version is None


def test_stall(little: Little, held: Held) -> None:
    little.answers["/health"] = None
    held.log = b"line one\nline two\n"
    plan = tiny_plan("process", limits=Limits(stall_s=0.2, ready_s=30))
    with pytest.raises(LaunchError, match=r"^mtp0-a: stalled, no new log line for 0.2 s and not ready") as caught:
        wait(held, plan)
    assert str(caught.value).endswith("its last log lines:\nline one\nline two")


def test_too_late(little: Little, held: Held) -> None:
    little.answers["/health"] = (503, "")
    plan = tiny_plan("process", limits=Limits(stall_s=30, ready_s=0.2))
    began = time.monotonic()
    with pytest.raises(LaunchError, match=r"^mtp0-a: not ready within 0.2 s \(/health: HTTP 503\)"):
        wait(held, plan)
    assert time.monotonic() - began < 10


def test_dead_ends_the_wait_at_once(little: Little, held: Held) -> None:
    little.answers["/health"] = (503, "")
    held.log = b"".join(b"line %d\n" % number for number in range(40))

    def progress(_: str) -> None:
        held.running = False

    with pytest.raises(LaunchError) as caught:
        wait(held, progress=progress)
    first, *rest = str(caught.value).splitlines()
    said = "the server has ended with exit code 7, a process of it killed for memory"
    assert first == f"mtp0-a: {said}; its last log lines:"
    assert rest == [f"line {number}" for number in range(28, 40)]


def test_death_at_the_first_token_is_told_as_death(held: Held) -> None:
    def token() -> str:
        held.running = False
        return "connection-reset"

    with pytest.raises(LaunchError, match="the server has ended with exit code 7"):
        wait(held, token=token)


def test_nobody_listens() -> None:
    held = Held(Endpoint("127.0.0.1", 9))
    plan = tiny_plan("process", limits=Limits(stall_s=30, ready_s=0.1))
    with pytest.raises(LaunchError, match=r"not ready within 0.1 s \(/health: ConnectError"):
        wait(held, plan)


def test_control_takes_no_proxy_and_follows_no_redirect(
    little: Little, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    little.answers["/health"] = (302, "moved")
    control = ControlClient(held.endpoint)
    answer = control.get("health")
    control.close()
    assert (answer.status, answer.body, answer.error) == (302, "moved", "")


def test_last_lines_are_bounded() -> None:
    assert last_lines(b"") == ""
    assert last_lines(b"\n\n  \na\xff\n") == "a\ufffd"
    assert len(last_lines(b"x" * 10_000)) == 300
