"""Margins asked of real servers over real sockets: the simulated one that runs, and a fresh one by a recorded plan."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.asking import ask_url
from harness.errors import UsageError
from harness.publish.margins import NEAR_TIE
from harness.questions import margin_body, read_said
from tests.questions import after, url_of
from tests.simulated.rig import PROMPTS, Sim, free_port, ready


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("sim") / "log") as running:
        yield running


def answered(sim: Sim, prompt: str) -> tuple[list[int], list[int]]:
    """(prompt ids, ids of the answer)."""
    answer = sim.stream(prompt, max_tokens=120)
    return answer.choices[0]["prompt_token_ids"], answer.ids


# a running server


def test_the_server_continues_the_exact_prefix(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[0])
    questions = [after(*prompt, before=ids[:index]) for index in (0, 1, 57, 99)]
    asked = ask_url(url_of(sim), questions, "simulated", 5)
    assert asked.problems == [] and set(asked.said) == set(asked.decoded) == {item.prefix for item in questions}
    for item in questions:
        said = asked.said[item.prefix]
        assert said.chosen == ids[len(item.before)]
        assert len(said.top) == 5
        assert [one.logprob for one in said.top] == sorted((one.logprob for one in said.top), reverse=True)
        assert asked.decoded[item.prefix] == said, "the simulated model rounds nothing"
    assert "runs already" in asked.notes[0]


def test_a_server_that_leaves_the_ids_before_the_place_did_not_decode_them(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[1])
    strange = after(*prompt, before=[*ids[:5], ids[5] + 1, *ids[6:9]])
    asked = ask_url(url_of(sim), [strange], "simulated", 3)
    assert asked.problems == [] and set(asked.said) == {strange.prefix} and asked.decoded == {}


def test_ids_that_tie_are_exactly_level_and_named(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[3])
    place = after(*prompt, before=ids[:57])
    said = ask_url(url_of(sim), [place], "simulated", 5).said[place.prefix]
    level = [item for item in said.top if item.logprob == said.top[0].logprob]
    assert len(level) == 2 and ids[57] in {item.id for item in level}
    assert 0 < level[0].logprob - said.top[2].logprob <= NEAR_TIE
    texts = {item.id: item.text for item in said.top}
    assert sum(text is not None for text in texts.values()) >= 3
    for token, text in texts.items():
        status, body = sim.post("/detokenize", {"tokens": [token]})
        assert status == 200 and text in (None, body["prompt"])


def test_an_id_below_the_top_is_asked_for_by_name(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[2])
    place = after(*prompt, before=ids[:30], wanted=(ids[30], 5))
    asked = ask_url(url_of(sim), [place], "simulated", 2)
    for said in (asked.said[place.prefix], asked.decoded[place.prefix]):
        assert [item.id for item in said.named] == [5] and len(said.top) == 2
        assert said.named[0].logprob < said.top[-1].logprob


def test_a_server_that_speculates_is_said_to_be_no_oracle(tmp_path: Path) -> None:
    with ready(tmp_path / "log", "--depth", "3") as speculating:
        asked = ask_url(url_of(speculating), [after(300, 301)], "simulated", 2)
    assert "speculates (spec_decode metrics), so it is no MTP0 oracle" in asked.notes[1]
    assert len(asked.said) == 1


def test_nobody_there_is_a_problem() -> None:
    asked = ask_url(f"http://127.0.0.1:{free_port()}", [after(1, 2), after(3, 4)], "simulated", 5)
    assert asked.said == {}
    (problem,) = asked.problems
    assert "can't be asked (connect-failed: " in problem


def test_a_refusal_is_told_in_the_servers_words(sim: Sim) -> None:
    asked = ask_url(url_of(sim), [after(300, 301)], "another", 5)
    assert asked.said == {} and "HTTP 404, The model `another` does not exist" in asked.problems[0]
    asked = ask_url(url_of(sim), [after(*[300] * 1024), after(300, 301)], "simulated", 5)
    assert len(asked.problems) == 1 and "maximum context length is 1024" in asked.problems[0]
    assert list(asked.said) == [(300, 301)], "one question that can't be answered doesn't end the others"


def test_what_is_no_url_is_usage() -> None:
    with pytest.raises(UsageError, match=r"^--ask needs http:// or https://"):
        ask_url("localhost:8000", [after(1)], "simulated", 5)


# servers that answer otherwise


@contextmanager
def serving(*bodies: object) -> Iterator[str]:
    """A server that gives each POST the next of ``bodies`` (or of (status, body)), the last one for ever."""
    left = list(bodies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            given = left.pop(0) if len(left) > 1 else left[0]
            status, answer = given if isinstance(given, tuple) else (200, given)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def body(top: object, chosen: object = (7,), prompt: Sequence[int] | None = (1, 2)) -> dict[str, Any]:
    choice: dict[str, Any] = {"token_ids": chosen, "logprobs": {"top_logprobs": [top]}}
    return {"choices": [choice | ({} if prompt is None else {"prompt_token_ids": list(prompt)})]}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"choices": []}, "holds no log-probabilities by token id"),
        (body(None), "holds no log-probabilities by token id"),
        ([1], "holds no log-probabilities by token id"),
        (body({"token_id:7": "much"}), "holds no log-probabilities by token id"),
        (body({" the": -0.5}), "otherwise than by token id"),
        (body({}), "otherwise than by token id"),
        (body({"token_id:7": float("nan")}), "no finite number"),
        (body({"token_id:7": -0.5}, prompt=(1, 3)), "read other prompt ids than were sent"),
    ],
)
def test_an_answer_of_another_shape_is_a_problem(answer: object, sentence: str) -> None:
    with serving(answer) as url:
        asked = ask_url(url, [after(1, 2), after(1, 3)], "m", 2)
    assert asked.said == {} and len(asked.problems) == 1 and sentence in asked.problems[0]


def test_names_that_fit_two_ids_name_none() -> None:
    by_id = body({"token_id:7": -0.5, "token_id:8": -0.5, "token_id:9": -2.0})
    with serving(by_id, body({" a": -0.5, " b": -2.0})) as url:
        collided = ask_url(url, [after(1, 2)], "m", 3).said[1, 2]
    assert [(item.id, item.text) for item in collided.top] == [(7, None), (8, None), (9, None)]
    with serving(by_id, body({" a": -0.5, "\ufffd": -0.5, " c": -2.0})) as url:
        named = ask_url(url, [after(1, 2)], "m", 3).said[1, 2]
    assert [(item.id, item.text) for item in named.top] == [(7, " a"), (8, None), (9, " c")]


def test_the_likeliest_stand_first_however_the_server_lists_them() -> None:
    with serving(body({"token_id:9": -0.5, "token_id:7": -0.25, "token_id:8": -0.5}, prompt=None)) as url:
        said = ask_url(url, [after(1, 2)], "m", 3).said[1, 2]
    assert [item.id for item in said.top] == [7, 8, 9] and said.chosen == 7


def test_the_question_is_the_suites_greedy_one() -> None:
    asked = margin_body((1, 2), "m", 5)
    assert asked["prompt"] == [1, 2]
    assert (asked["max_tokens"], asked["temperature"], asked["seed"], asked["logprobs"]) == (1, 0, 42, 5)
    assert asked["return_token_ids"] and asked["return_tokens_as_token_ids"]


def test_a_field_that_an_older_server_refuses_leaves_the_bound() -> None:
    refused = {"error": {"message": "unknown field"}}
    with serving(body({"token_id:7": -0.5}), (400, refused), body({" a": -0.5})) as url:
        asked = ask_url(url, [after(1, 2, wanted=(7, 9))], "m", 1)
    assert asked.problems == [] and asked.said[1, 2].named == []
    assert [item.text for item in asked.said[1, 2].top] == [" a"]


def test_only_the_ids_of_the_answer_decide_whether_it_came_there() -> None:
    raw = json.dumps(
        {"choices": [{"token_ids": [5, 6, 7], "logprobs": {"top_logprobs": [{}, {}, {"token_id:7": -0.5}]}}]}
    ).encode()
    said = read_said(raw, (1, 2), (5, 6))
    assert said is not None and said.chosen == 7
    assert read_said(raw, (1, 2), (5, 5)) is None


def test_the_simulated_server_refuses_what_it_has_no_log_probabilities_for(sim: Sim) -> None:
    for fields in ({"max_tokens": 1, "stream": True}, {"max_tokens": 1, "logprobs": 21}):
        status, answer = sim.post("/v1/completions", {"prompt": [300], "logprobs": 5} | fields)
        assert status == 400 and answer["error"]["param"] == "logprobs"
    assert sim.get("/health")[0] == 200
