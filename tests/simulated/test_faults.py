"""Each fault does what its line in the table says, and leaves the readiness probe and other streams alone."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.simulated.faults import FAULTS, parse_faults
from tests.simulated.rig import PROMPTS, Answer, Sim, free_port, ready, started

A = PROMPTS[0]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("healthy") / "log", "--depth", "3") as sim:
        yield sim


@pytest.fixture
def faulty(tmp_path: Path) -> Callable[..., object]:
    """``faulty("tie:2")``: a ready server of depth 3 with that fault."""

    @contextmanager
    def start(fault: str, *arguments: str) -> Iterator[Sim]:
        with ready(
            tmp_path / f"log-{len(list(tmp_path.iterdir()))}", "--depth", "3", *arguments, "--fault", fault
        ) as sim:
            probe = sim.stream("Are you there?", max_tokens=1)
            assert (probe.status, probe.ending, probe.finish, probe.data[-1]) == (200, "closed", "length", "[DONE]")
            yield sim

    return start


def without_finish(answer: Answer) -> list[dict[str, object]]:
    return [{k: v for k, v in choice.items() if k != "finish_reason"} for choice in answer.choices]


def first_difference(a: list[int], b: list[int]) -> int:
    return next(index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


@given(st.text(max_size=8), st.text(max_size=8))
def test_a_fault_parses_or_is_refused(name: str, argument: str) -> None:
    with pytest.raises(UsageError):
        parse_faults([f"{name}-:{argument}"])


def test_every_fault_parses_with_the_argument_it_wants() -> None:
    for name, line in FAULTS.items():
        required, optional = line[1:2] == ":", line.startswith("[")
        if optional or not required:
            assert name in parse_faults([name])
        else:
            with pytest.raises(UsageError, match="needs a number"):
                parse_faults([name])
        if optional or required:
            assert parse_faults([f"{name}:2"]) == {name: 2}
        else:
            with pytest.raises(UsageError, match="takes no number"):
                parse_faults([f"{name}:2"])


@pytest.mark.parametrize("text", ["tie:x", "tie:-1", "tie:nan", "tie:1.5", "tie:", "slow-start:inf"])
def test_wrong_numbers_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_faults([text])


def test_an_unknown_fault_lists_all() -> None:
    with pytest.raises(UsageError) as caught:
        parse_faults(["nope"])
    assert all(name in str(caught.value) for name in FAULTS)


def test_tie_changes_the_first_prompts_with_drafts_only(faulty: Callable, healthy: Sim) -> None:
    with faulty("tie:2") as first, faulty("tie:2") as second, faulty("tie:2", "--depth", "0") as undrafted:
        for number, prompt in enumerate(PROMPTS[:3]):
            truth, ids = healthy.stream(prompt).ids, first.stream(prompt).ids
            assert second.stream(prompt).ids == ids
            assert undrafted.stream(prompt).ids == truth
            if number < 2:
                assert first_difference(ids, truth) == 57
            else:
                assert ids == truth
        assert first.stream(PROMPTS[0]).ids != healthy.stream(PROMPTS[0]).ids


def test_unstable_differs_between_two_servers_at_any_depth(faulty: Callable, healthy: Sim) -> None:
    with faulty("unstable:1", "--depth", "0") as first, faulty("unstable:1", "--depth", "0") as second:
        a, b = first.stream(A).ids, second.stream(A).ids
        assert a[:57] == b[:57] == healthy.stream(A).ids[:57]
        assert a != b
        assert first.stream(A).ids == a
        assert first.stream(PROMPTS[1]).ids == second.stream(PROMPTS[1]).ids == healthy.stream(PROMPTS[1]).ids


def test_batch_tie_changes_who_comes_while_another_runs(faulty: Callable, healthy: Sim) -> None:
    with faulty("batch-tie", "--max-num-seqs", "4", "--step-us", "2000") as sim:
        truth = healthy.stream(A, max_tokens=100).ids
        assert sim.stream(A, max_tokens=100).ids == truth
        body = json.dumps({"prompt": PROMPTS[1], "max_tokens": 900, "ignore_eos": True}).encode()
        with socket.create_connection(("127.0.0.1", sim.port), timeout=10) as other:
            other.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            while sim.metrics()["vllm:num_requests_running"] != 1:
                pass
            assert first_difference(sim.stream(A, max_tokens=100).ids, truth) == 57


@pytest.mark.parametrize(
    ("fault", "details"),
    [
        ("cached-tokens", {"cached_tokens": 16}),
        ("cached-tokens:3", {"cached_tokens": 3}),
        ("cached-missing", None),
    ],
)
def test_cached_tokens(fault: str, details: object, faulty: Callable) -> None:
    with faulty(fault) as sim:
        assert sim.stream(A).usage.get("prompt_tokens_details") == details
        assert sim.metrics()["vllm:prefix_cache_hits_total"] == 0


def test_engine_dies_in_the_third_suite_request(faulty: Callable, healthy: Sim) -> None:
    with faulty("engine-dies") as sim:
        assert [sim.stream(prompt).finish is None for prompt in PROMPTS[:2]] == [False, False]
        answer = sim.stream(PROMPTS[2])
        assert (answer.status, answer.ending, answer.whole) == (200, "closed", True)
        assert answer.data[-1] == "[DONE]"
        assert json.loads(answer.data[-2])["error"]["message"].startswith("EngineCore encountered an issue")
        assert answer.ids == healthy.stream(PROMPTS[2]).ids[:40]
        assert answer.finish is None
        assert sim.process.wait(5) == 1
        assert "EngineDeadError" in sim.log
        with pytest.raises(ConnectionRefusedError):
            sim.get("/health")


def test_engine_vanishes_in_the_third_suite_request(faulty: Callable) -> None:
    with faulty("engine-vanishes:5") as sim:
        assert [sim.stream(prompt).ending for prompt in PROMPTS[:2]] == ["closed", "closed"]
        answer = sim.stream(PROMPTS[2])
        assert (answer.ending, answer.whole) == ("reset", False)
        assert sim.process.wait(5) == 137


def test_hangs_keeps_the_socket(faulty: Callable) -> None:
    with faulty("hangs:7") as sim:
        answer = sim.stream(A, timeout=0.3)
        assert (answer.ending, len(answer.ids), answer.finish) == ("open", 7, None)
        assert sim.get("/health")[0] == 200


def test_mute_takes_requests_and_answers_none(faulty: Callable) -> None:
    with faulty("mute:2") as sim:  # the probe of the fixture is the first
        assert sim.stream(A).ending == "closed"
        for prompt in PROMPTS[:2]:
            assert sim.stream(prompt, timeout=0.3).raw == b""
        assert sim.get("/health")[0] == 200


def test_ignores_term(faulty: Callable) -> None:
    with faulty("ignores-term") as sim:
        sim.process.terminate()
        assert sim.stream(A).ending == "closed"
        with pytest.raises(subprocess.TimeoutExpired):
            sim.process.wait(0.3)
        sim.process.kill()


@pytest.mark.parametrize("number", [0, 1])
def test_eats_memory_up_to_the_limit(tmp_path: Path, number: int) -> None:
    """Here the limit is one of address space, which ends it with an exception; a container's ends it by a signal."""
    limit = ("prlimit", f"--as={512 * 1024**2}", sys.executable, "-m", "harness.simulated")
    port = str(free_port())
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*limit, "--port", port, "--fault", f"eats-memory:{number}"], stderr=log)
    if number:
        sim = Sim(int(port), process, tmp_path / "log")
        wait_for(lambda: not refused(sim))
        assert sim.stream(A).ending in ("closed", "reset")
    assert process.wait(20) == 1
    assert b"MemoryError" in (tmp_path / "log").read_bytes()


def test_error_event_leaves_the_server_alive(faulty: Callable) -> None:
    with faulty("error-event") as sim:
        for _ in range(2):
            answer = sim.stream(A)
            assert (len(answer.ids), answer.data[-1], answer.whole) == (40, "[DONE]", True)
            assert "error" in json.loads(answer.data[-2])
        assert sim.metrics()['vllm:request_success_total{finished_reason="error"}'] == 2
        assert sim.stream("still there?", max_tokens=1).finish == "length"


def test_endings_that_lack_one_thing(faulty: Callable, healthy: Sim) -> None:
    truth = healthy.stream(A)
    with faulty("no-done") as sim:
        answer = sim.stream(A)
        assert "[DONE]" not in answer.data
        assert (answer.whole, answer.usage) == (True, truth.usage)
        assert answer.choices == truth.choices
    with faulty("no-finish") as sim:
        answer = sim.stream(A)
        assert (answer.finish, answer.usage, answer.data[-1]) == (None, truth.usage, "[DONE]")
        assert without_finish(answer) == without_finish(truth)
    with faulty("no-usage") as sim:
        answer = sim.stream(A)
        assert (answer.usage, answer.data[-1]) == (None, "[DONE]")
        assert answer.choices == truth.choices


def test_garbage(faulty: Callable) -> None:
    with faulty("garbage") as sim:
        answer = sim.stream(A)
        assert answer.ids == [0] * 512
        assert answer.text == "!" * 512


def test_ids_that_lack(faulty: Callable, healthy: Sim) -> None:
    truth = healthy.stream(A)
    with faulty("null-ids") as sim:
        answer = sim.stream(A)
        assert [choice["token_ids"] for choice in answer.choices] == [None] * len(truth.choices)
        assert (answer.text, answer.usage) == (truth.text, truth.usage)
    with faulty("drops-id") as sim:
        answer = sim.stream(A)
        assert answer.ids == truth.ids[:30] + truth.ids[31:]
        assert (answer.text, answer.usage) == (truth.text, truth.usage)


def test_short(faulty: Callable, healthy: Sim) -> None:
    with faulty("short") as sim:
        answer = sim.stream(A, ignore_eos=True)
        assert answer.ids == healthy.stream(A).ids[:60]
        assert (answer.finish, answer.usage["completion_tokens"]) == ("stop", 60)
        assert sim.metrics()["vllm:generation_tokens_total"] == 61


def test_loses_end_is_of_streams_that_stop_alone(faulty: Callable, healthy: Sim) -> None:
    with faulty("loses-end", "--fault", "short:60") as sim:
        answer = sim.stream(A)
        assert answer.ids == healthy.stream(A).ids[:59]
        assert (answer.finish, answer.usage["completion_tokens"], answer.data[-1]) == ("stop", 59, "[DONE]")
        assert sim.metrics()["vllm:generation_tokens_total"] == 60
        cut = sim.stream(A, max_tokens=30)
        assert (len(cut.ids), cut.finish) == (30, "length")
        body = {"model": "simulated", "prompt": A, "max_tokens": 512, "temperature": 0, "return_token_ids": True}
        whole = sim.post("/v1/completions", body)[1]["choices"][0]
        assert whole["token_ids"][:59] == answer.ids and len(whole["token_ids"]) == 60


def test_jit_delays_the_first_request_of_each_batch_size_and_says_so(faulty: Callable) -> None:
    with faulty("jit:800") as sim:
        took = []
        for _ in range(2):
            began = time.monotonic()
            sim.stream(A, max_tokens=2)
            took.append(time.monotonic() - began)
        assert took[0] > 0.8 > took[1]
        log = sim.log
        assert log.count("Triton kernel JIT compilation during inference: simulated_kernel_b1. ") == 1


def test_left_open(faulty: Callable, healthy: Sim) -> None:
    with faulty("left-open") as sim:
        answer = sim.stream(A, timeout=0.5)
        assert (answer.ending, answer.whole, answer.data[-1]) == ("open", True, "[DONE]")
        assert answer.choices == healthy.stream(A).choices


def test_chunks_cut(faulty: Callable, healthy: Sim) -> None:
    truth = healthy.stream(A)
    with faulty("chunks-cut", "--step-us", "2000") as sim:
        answer = sim.stream(A)
        assert (answer.choices, answer.usage, answer.data[-1]) == (truth.choices, truth.usage, "[DONE]")
        assert answer.whole
        # The halves may meet in one read on a busy machine, not all of them.
        assert answer.reads > 1.2 * len(answer.choices)


def test_one_read(faulty: Callable, healthy: Sim) -> None:
    truth = healthy.stream(A)
    with faulty("one-read", "--step-us", "1000") as sim:
        answer = sim.stream(A)
        assert (answer.choices, answer.usage, answer.whole) == (truth.choices, truth.usage, True)
        assert answer.reads <= 5


def test_spec_off(faulty: Callable, healthy: Sim) -> None:
    with faulty("spec-off") as sim:
        answer = sim.stream(A)
        assert answer.ids == healthy.stream(A).ids
        assert set(answer.sizes) == {1}
        assert not any("spec_decode" in name for name in sim.metrics())
        assert json.loads(sim.get("/server_info?config_format=json")[1])["vllm_config"]["speculative_config"] is None


def test_warm_cache(tmp_path: Path) -> None:
    with ready(tmp_path / "log", "--fault", "warm-cache", env={"VLLM_CACHE_ROOT": str(tmp_path / "cache")}) as sim:
        assert "Directly load the compiled graph" in sim.log
        assert "Compiling a graph" not in sim.log


def test_bad_canary(faulty: Callable, healthy: Sim) -> None:
    body = {"messages": [{"role": "user", "content": "What is 36 times 69?"}], "max_tokens": 50}

    def ask(sim: Sim) -> str:
        return sim.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]

    with faulty("bad-canary") as sim:
        assert "2484" in ask(healthy)
        assert "2485" in ask(sim)


def test_wrong_model_and_foreign_request(faulty: Callable) -> None:
    with faulty("wrong-model") as sim:
        assert json.loads(sim.get("/v1/models")[1])["data"][0]["id"] == "simulated-other"
    with faulty("foreign-request") as sim:
        before, after = sim.metrics(), sim.metrics()
        changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        assert changed == {
            'vllm:request_success_total{finished_reason="length"}': 1,
            "vllm:generation_tokens_total": 7,
            "vllm:prompt_tokens_total": 7,
        }


def refused(sim: Sim) -> bool:
    try:
        sim.get("/health")
    except ConnectionRefusedError:
        return True
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_slow_start_refuses_before_it_is_ready(tmp_path: Path) -> None:
    began = time.monotonic()
    with started(tmp_path / "log", "--fault", "slow-start:0.7") as sim:
        wait_for(lambda: "Loading weights:" in sim.log)
        assert refused(sim)
        wait_for(lambda: not refused(sim))
        assert time.monotonic() - began >= 0.7


def test_never_ready_goes_on_logging(tmp_path: Path) -> None:
    with started(tmp_path / "log", "--fault", "never-ready") as sim:
        wait_for(lambda: not refused(sim))
        assert sim.get("/health")[0] == 503
        wait_for(lambda: sim.log.count("Waiting for 1 local") == 2)
        assert sim.get("/health")[0] == 503


def test_silent_start_says_nothing_and_ends_on_sigterm(tmp_path: Path) -> None:
    with started(tmp_path / "log", "--fault", "silent-start") as sim:
        with pytest.raises(subprocess.TimeoutExpired):
            sim.process.wait(0.5)
        assert refused(sim)
        assert sim.log == ""
        sim.process.terminate()
        assert sim.process.wait(5) == 0


def test_dies_at_start() -> None:
    command = [sys.executable, "-m", "harness.simulated", "--port", str(free_port()), "--fault", "dies-at-start"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
