import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from harness.simulated import model
from tests.simulated.rig import PROMPTS, Sim, ready

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "vllm-cpu" / "samples"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("plain") / "log", "--max-num-seqs", "4") as sim:
        yield sim


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("drafting") / "log", "--depth", "3", "--max-num-seqs", "4") as sim:
        yield sim


def sample(name: str) -> str:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"no vLLM sample {name} beside the project")
    return path.read_text()


def test_a_stream_is_complete(plain: Sim) -> None:
    answer = plain.stream(PROMPTS[0])
    assert (answer.status, answer.ending, answer.whole) == (200, "closed", True)
    assert answer.data[-1] == "[DONE]"
    assert {chunk["id"] for chunk in answer.chunks} == {"cmpl-bench-1"}
    assert answer.sizes == [1] * len(answer.ids)
    assert len(answer.ids) == answer.usage["completion_tokens"]
    assert answer.usage["prompt_tokens"] == len(answer.choices[0]["prompt_token_ids"])
    assert answer.usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert [choice["finish_reason"] for choice in answer.choices[:-1]] == [None] * (len(answer.choices) - 1)
    assert all(choice["prompt_token_ids"] is None for choice in answer.choices[1:])
    assert "cmpl-bench-1" in plain.log


def test_ids_are_independent_of_depth_and_lengths_are_natural(plain: Sim, drafting: Sim) -> None:
    ends = []
    for prompt in PROMPTS:
        slow, fast = plain.stream(prompt), drafting.stream(prompt)
        assert slow.ids == fast.ids
        assert slow.text == fast.text
        assert slow.finish == fast.finish
        assert len(fast.choices) < len(slow.choices)
        assert fast.sizes[0] == 1
        assert max(fast.sizes) == 4
        ends.append((slow.finish, len(slow.ids)))
    assert {finish for finish, _ in ends} == {"stop", "length"}
    assert all(length == 512 if finish == "length" else 300 < length < 512 for finish, length in ends)


def test_a_stream_equals_the_answer_at_once(drafting: Sim) -> None:
    streamed = drafting.stream(PROMPTS[3])
    body = {"model": "simulated", "prompt": PROMPTS[3], "max_tokens": 512, "return_token_ids": True}
    status, whole = drafting.post("/v1/completions", body, **{"X-Request-Id": "abc"})
    assert status == 200
    assert whole["id"] == "cmpl-abc"
    assert whole["choices"][0]["text"] == streamed.text
    assert whole["choices"][0]["token_ids"] == streamed.ids
    assert whole["choices"][0]["prompt_token_ids"] == streamed.choices[0]["prompt_token_ids"]
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_prompts_as_ids_and_as_text_are_the_same(plain: Sim) -> None:
    _, shown = plain.post("/tokenize", {"model": "simulated", "prompt": PROMPTS[0]})
    assert shown["count"] == len(shown["tokens"])
    assert plain.stream(shown["tokens"], max_tokens=20).ids == plain.stream([PROMPTS[0]], max_tokens=20).ids
    assert plain.post("/detokenize", {"tokens": shown["tokens"]}) == (200, {"prompt": PROMPTS[0]})


def test_ignore_eos_goes_on_to_the_cap(plain: Sim) -> None:
    prompt = next(p for p in PROMPTS if model.eos_index(model.prompt_key("", model.tokenize(p))) is not None)
    assert plain.stream(prompt).finish == "stop"
    answer = plain.stream(prompt, ignore_eos=True)
    assert (answer.finish, len(answer.ids)) == ("length", 512)
    assert model.EOS in answer.ids


def test_metrics_count_our_requests_and_tokens(drafting: Sim) -> None:
    before = drafting.metrics()
    answers = [drafting.stream(prompt) for prompt in PROMPTS[:4]]
    tokens = sum(len(answer.ids) for answer in answers)
    prompt_tokens = sum(answer.usage["prompt_tokens"] for answer in answers)
    after = drafting.metrics()
    delta = {name: after[name] - before[name] for name in after}
    for reason in ("stop", "length"):
        count = sum(answer.finish == reason for answer in answers)
        assert delta[f'vllm:request_success_total{{finished_reason="{reason}"}}'] == count
    assert delta["vllm:generation_tokens_total"] == tokens
    assert delta["vllm:prompt_tokens_total"] == prompt_tokens
    steps = sum(len(answer.choices) - 1 for answer in answers)
    assert delta["vllm:spec_decode_num_drafts_total"] == steps
    assert delta["vllm:spec_decode_num_draft_tokens_total"] == 3 * steps
    positions = [delta[f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{k}"}}'] for k in range(3)]
    assert sum(positions) == delta["vllm:spec_decode_num_accepted_tokens_total"]
    # Accepted drafts beyond the end of an answer are counted but not sent, as in vLLM: at most 3 an answer.
    assert 0 <= sum(positions) + steps + len(answers) - tokens <= 3 * len(answers)
    assert 0.7 < positions[0] / steps < 0.95
    assert positions[0] > positions[1] > positions[2] > 0
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert after["vllm:prefix_cache_queries_total"] == 0


def test_there_are_no_spec_decode_families_without_drafts(plain: Sim) -> None:
    assert not any("spec_decode" in name for name in plain.metrics())


@pytest.mark.parametrize("depth", [0, 3])
def test_every_metric_line_is_in_vllms_own_words(depth: int, plain: Sim, drafting: Sim) -> None:
    theirs = sample(f"mtp{depth}-metrics-after.prom").splitlines()
    _, body = (drafting if depth else plain).get("/metrics")
    for line in body.decode().splitlines():
        if line.startswith("#"):
            assert line in theirs
        else:
            name = line.rsplit(" ", 1)[0].replace('"simulated"', '"tiny"')
            assert any(other.startswith(name + " ") for other in theirs), name


def keys(value: object) -> object:
    """The skeleton of a JSON value: keys in order, without values."""
    if isinstance(value, dict):
        return [(key, keys(item)) for key, item in value.items()]
    return [keys(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def test_chunks_have_vllms_keys_in_vllms_order(plain: Sim) -> None:
    theirs = [json.loads(line[6:]) for line in sample("mtp0-stream.sse").splitlines() if line.startswith("data: {")]
    ours = plain.stream(PROMPTS[0], max_tokens=24).chunks
    assert len(ours) == len(theirs)
    assert [keys(chunk) for chunk in ours] == [keys(chunk) for chunk in theirs]


def test_whole_answers_models_and_errors_have_vllms_keys(plain: Sim) -> None:
    body = {"model": "simulated", "prompt": "Hello", "return_token_ids": True}
    assert keys(plain.post("/v1/completions", body)[1]) == keys(json.loads(sample("mtp0-nonstream-ids.json")))
    assert keys(json.loads(plain.get("/v1/models")[1])) == keys(json.loads(sample("mtp0-v1_models.json")))
    wrong = plain.post("/v1/completions", {"model": "nope", "prompt": "Hello"})[1]
    assert json.dumps(wrong, separators=(",", ":")) == sample("mtp0-err-model.json").strip().replace(
        "tiny", "simulated"
    ).replace('": ', '":')
    long = plain.post("/v1/completions", {"prompt": [7] * 1025})[1]
    assert long == json.loads(sample("mtp0-err-toolong.json"))


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nope", "prompt": "x"}, 404, "model"),
        ({"prompt": [7] * 1024}, 400, "input_tokens"),
        ({"prompt": [7] * 1000, "max_tokens": 25}, 400, "input_tokens"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": [-1]}, 400, "prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({}, 400, "prompt"),
        (b"{", 400, None),
        (b"[]", 400, None),
    ],
)
def test_wrong_requests(plain: Sim, body: object, status: int, param: str | None) -> None:
    got, error = plain.post("/v1/completions", body)
    assert (got, error["error"]["code"], error["error"]["param"]) == (status, status, param)
    assert error["error"]["message"]


def test_a_prompt_fills_the_context_to_the_last_token(plain: Sim) -> None:
    assert len(plain.stream([7] * 1000, max_tokens=24).ids) == 24


def test_small_endpoints(drafting: Sim) -> None:
    assert drafting.get("/health") == (200, b"")
    assert json.loads(drafting.get("/version")[1]) == {"version": "0.0.0+simulated"}
    config = json.loads(drafting.get("/server_info?config_format=json")[1])["vllm_config"]
    assert config["speculative_config"]["num_speculative_tokens"] == 3
    assert config["scheduler_config"] == {"max_num_seqs": 4}
    assert config["simulated"] is True
    assert drafting.get("/nothing")[0] == 404


def test_connections_are_kept_alive_and_closed_when_asked(plain: Sim) -> None:
    connection = HTTPConnection("127.0.0.1", plain.port, timeout=10)
    connection.connect()
    sock = connection.sock
    for _ in range(2):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True}))
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
        assert connection.sock is sock
    connection.request("GET", "/health", headers={"Connection": "close"})
    response = connection.getresponse()
    assert response.getheader("connection") == "close"
    response.read()
    assert sock is not None
    connection.close()


def test_a_request_in_single_bytes_and_two_requests_in_one_write(plain: Sim) -> None:
    request = b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 14\r\n\r\n" + b'{"prompt":"a"}'
    last = b"GET /version HTTP/1.1\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            sock.sendall(bytes([byte]))
        sock.sendall(request + last)
        raw = b""
        while data := sock.recv(65536):
            raw += data
    assert raw.count(b"HTTP/1.1 200 OK") == 3
    assert raw.count(b'"count":1') == 2
    assert raw.endswith(b'{"version":"0.0.0+simulated"}')


@pytest.mark.parametrize("raw", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n"])
def test_nonsense_is_refused(plain: Sim, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as sock:
        sock.sendall(raw)
        assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_is_an_abort(tmp_path: Path) -> None:
    with ready(tmp_path / "log", "--step-us", "20000") as sim:
        # Leaves in the middle of a stream of ten seconds.
        assert sim.stream(PROMPTS[0], timeout=0.01).ending == "open"
        assert sim.stream(PROMPTS[1], max_tokens=2).finish == "length"
        counted = sim.metrics()
        assert counted['vllm:request_success_total{finished_reason="abort"}'] == 1
        assert counted["vllm:num_requests_running"] == 0


def test_requests_beyond_max_num_seqs_wait(tmp_path: Path) -> None:
    with ready(tmp_path / "log", "--max-num-seqs", "2", "--step-us", "2000") as sim:
        threads = [threading.Thread(target=sim.stream, args=(p,), kwargs={"max_tokens": 200}) for p in PROMPTS[:3]]
        for thread in threads:
            thread.start()
        seen = set()
        while any(thread.is_alive() for thread in threads):
            counted = sim.metrics()
            seen.add((counted["vllm:num_requests_running"], counted["vllm:num_requests_waiting"]))
        assert (2, 1) in seen
        assert max(running for running, _ in seen) == 2
        assert sim.metrics()["vllm:generation_tokens_total"] == 600


def test_canaries_through_chat(plain: Sim) -> None:
    def ask(question: str) -> dict[str, object]:
        body = {"model": "simulated", "messages": [{"role": "user", "content": question}], "max_tokens": 200}
        status, answer = plain.post("/v1/chat/completions", body)
        assert status == 200
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        return answer

    assert "2484" in str(ask("What is 36 multiplied by 69?")["choices"][0]["message"]["content"])  # type: ignore[index]
    same = {json.dumps(ask("Say what a harbour is.")["choices"]) for _ in range(3)}
    assert len(same) == 1


def test_chat_streams(plain: Sim) -> None:
    messages = [{"role": "user", "content": 'Copy exactly: "Nine grey × ships."'}]
    answer = plain.stream(None, path="/v1/chat/completions", messages=messages)
    assert answer.choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in answer.choices) == "Nine grey × ships."
    assert answer.usage["completion_tokens"] == sum(len(choice.get("token_ids", [])) for choice in answer.choices)
    assert answer.data[-1] == "[DONE]"


def test_sigterm_ends_with_zero_even_during_an_answer(tmp_path: Path) -> None:
    with ready(tmp_path / "log", "--step-us", "50000") as sim:
        client = threading.Thread(target=sim.stream, args=(PROMPTS[0],))
        client.start()
        while not sim.metrics()["vllm:generation_tokens_total"]:
            pass
        began = time.monotonic()
        sim.process.send_signal(signal.SIGTERM)
        assert sim.process.wait(5) == 0
        assert time.monotonic() - began < 2
        client.join()


def test_a_taken_port_ends_with_one_and_uvicorns_words(plain: Sim) -> None:
    command = [sys.executable, "-m", "harness.simulated", "--port", str(plain.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 1
    assert "error while attempting to bind on address ('127.0.0.1'," in done.stderr
    assert "address already in use" in done.stderr


def test_the_compile_cache(tmp_path: Path) -> None:
    cache = {"VLLM_CACHE_ROOT": str(tmp_path / "cache")}
    with ready(tmp_path / "eager", "--enforce-eager", env=cache) as sim:
        assert "ompil" not in sim.log.replace("disabling torch.compile", "")
        assert not (tmp_path / "cache").exists()
    with ready(tmp_path / "first", env=cache) as sim:
        assert "Compiling a graph for dynamic shape" in sim.log
        assert "torch.compile took" in sim.log
        assert "Directly load" not in sim.log
        assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    with ready(tmp_path / "second", env=cache) as sim:
        assert "Directly load the compiled graph(s)" in sim.log
        assert "Compiling" not in sim.log


@pytest.mark.parametrize("arguments", [["--depth", "-1"], ["--fault", "nope"], ["--fault", "tie"], ["--what"]])
def test_wrong_arguments_end_with_64(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "harness.simulated", "--port", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 64
    assert arguments[-1] in done.stderr


def test_another_seed_text_is_another_model(tmp_path: Path, plain: Sim) -> None:
    with ready(tmp_path / "log", "--seed-text", "other") as sim:
        assert sim.stream(PROMPTS[0]).ids != plain.stream(PROMPTS[0]).ids
