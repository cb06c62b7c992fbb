"""The token sources of the client benchmark, spoken to over real sockets."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.clients.job import Heard, Job, parse_pieces, percentile, stamps
from benchmarks.source import FALLBACK, Program, Schedule, build, compiler, expected_ids, serving
from harness.wire.completion import Completion, parse_completion
from harness.wire.exchange import Exchange
from harness.wire.request import http_request
from harness.wire.transport import SocketTransport

QUICK = Schedule(ttft_us=2000, gap_us=500)
Serve = Callable[[Schedule], int]


@pytest.fixture(scope="module", params=["C", "Python"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    if request.param == "Python":
        return Program((sys.executable, str(FALLBACK)), "Python")
    if compiler() is None:
        pytest.skip("no C compiler is installed")
    made = build(tmp_path_factory.mktemp("source"))
    assert made.kind == "C", made.kind
    return made


@pytest.fixture
def serve(program: Program) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda schedule: stack.enter_context(serving(program, schedule)).port


def ask(port: int, streams: int, tokens: int) -> list[tuple[Exchange, Completion]]:
    body = Job(port, streams, 1, tokens, 1, 0).body()
    request = http_request("/v1/completions", body, host="127.0.0.1", port=port)
    exchanges = SocketTransport("127.0.0.1", port).exchange_all([request] * streams)
    return [(exchange, parse_completion(exchange)) for exchange in exchanges]


def test_streams_are_complete_and_each_event_has_its_time(serve: Serve) -> None:
    answers = ask(serve(QUICK), 16, 40)
    assert len({completion.stream_id for _, completion in answers}) == 16
    for exchange, completion in answers:
        assert completion.complete, completion.detail
        assert list(completion.token_ids) == expected_ids(40)
        assert completion.chunk_sizes == (1,) * 40
        assert completion.usage is not None
        assert (completion.usage.completion_tokens, completion.usage.cached_tokens) == (40, 0)
        assert completion.prompt_token_ids == (1, 2, 3, 4)
        created = stamps(exchange.data)
        assert len(created) == 40
        assert created == sorted(created)


def test_no_event_is_early_or_older_than_its_arrival(serve: Serve) -> None:
    for exchange, completion in ask(serve(QUICK), 8, 40):
        slack = 500_000 + abs(exchange.clock_step_ns)
        for i, (sent, at) in enumerate(zip(stamps(exchange.data), completion.chunk_ns, strict=True)):
            assert sent >= exchange.t0_wall_ns + (2000 + 500 * i) * 1000 - slack
            assert exchange.t0_wall_ns + at >= sent - slack


def test_ids_per_event(serve: Serve) -> None:
    (_, completion), *_ = ask(serve(Schedule(0, 100, 4)), 1, 10)
    assert completion.complete
    assert completion.chunk_sizes == (4, 4, 2)
    assert list(completion.token_ids) == expected_ids(10)


def test_at_full_speed_nothing_is_lost(serve: Serve) -> None:
    for _, completion in ask(serve(Schedule(0, 0)), 4, 3000):
        assert completion.complete, completion.detail
        assert list(completion.token_ids) == expected_ids(3000)


def test_512_streams_at_once(serve: Serve) -> None:
    answers = ask(serve(Schedule(50_000, 10_000)), 512, 4)
    assert [list(completion.token_ids) for _, completion in answers if completion.complete] == [expected_ids(4)] * 512


def test_control_requests_and_kept_connections(serve: Serve) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{serve(QUICK)}", trust_env=False) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/v1/models").json()["data"][0]["id"] == "source"
        assert client.get("/nothing").status_code == 404
        for tokens in (3, 5):
            prompt = f'a prompt that says {{"max_tokens": 9, "stream": false}} {tokens}'
            request: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "stream": True}
            events = client.post("/v1/completions", json=request).text.split("\n\n")
            assert events[-2:] == ["data: [DONE]", ""]
            assert json.loads(events[-3].removeprefix("data: "))["usage"]["completion_tokens"] == tokens
            assert len(events) == tokens + 3


def test_chat_chunks(serve: Serve) -> None:
    request: dict[str, Any] = {"messages": [], "max_completion_tokens": 3, "stream": True}
    url = f"http://127.0.0.1:{serve(QUICK)}/v1/chat/completions"
    events = httpx.post(url, json=request, trust_env=False).text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:3]]
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == [" tick"] * 3
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]


def test_a_wrong_option_is_refused(program: Program) -> None:
    done = subprocess.run([*program.command, "--gap-us", "x"], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "x" in done.stderr


EVENTS = b"".join(
    b'data: {"created_ns":%d,"choices":[{"token_ids":[%d]}]}\n\n' % (1000 + n, id_)
    for n, id_ in enumerate(expected_ids(4))
)
ANSWER = EVENTS + b'data: {"created_ns":1,"choices":[],"usage":{"completion_tokens":4}}\n\ndata: [DONE]\n\n'


@given(st.sets(st.integers(1, len(ANSWER) - 1)))
def test_pieces_may_be_cut_anywhere(cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(ANSWER)]
    pieces = [(end, ANSWER[start:end]) for start, end in pairwise(edges)]
    stream = parse_pieces(Heard(0, pieces))
    assert stream.complete
    assert stream.ids == expected_ids(4)
    assert stream.created_ns == [1000, 1001, 1002, 1003] == stamps(ANSWER)
    ends = [EVENTS.index(b"\n\n", start) + 2 for start in (0, *(EVENTS.index(b"%d" % (1000 + n)) for n in (1, 2, 3)))]
    assert stream.at_ns == [min(edge for edge in edges if edge >= end) for end in ends]


def test_a_stream_without_done_is_not_complete() -> None:
    assert not parse_pieces(Heard(0, [(1, ANSWER.removesuffix(b"data: [DONE]\n\n"))])).complete
    assert not parse_pieces(Heard(0, [(1, ANSWER.replace(b'tokens":4', b'tokens":5'))])).complete


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.floats(0, 1))
def test_percentile_is_a_value_that_enough_of_them_do_not_exceed(values: list[float], q: float) -> None:
    found = percentile(values, q)
    assert found in values
    assert found is not None
    assert sum(value <= found for value in values) >= q * len(values) - 1e-9
    assert sum(value < found for value in values) <= q * len(values)
