"""Canaries judge the answer alone, and nothing a server sends makes them raise."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.suites import load_suite
from harness.workloads import canaries, strict
from harness.workloads.canaries import chat_canaries, judge, repeat_canaries

ROOT = Path(__file__).resolve().parents[2]
CHAT, REPEAT = chat_canaries("m"), repeat_canaries("m")
GOOD = {"repeat": "red, blue, green, white", "arithmetic": "4183", "copy": canaries.COPY_SENTENCE}
GOOD["json"] = '{"name": "wren", "count": 3}'


def chat(content, **fields) -> bytes:
    message = {"role": "assistant", "content": content, **fields}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def completion(ids, text="x") -> bytes:
    return json.dumps({"choices": [{"index": 0, "text": text, "token_ids": ids}]}).encode()


def answers(**changed) -> list:
    texts = {**GOOD, **changed}
    return [chat(texts[request.check]) for request in CHAT]


def verdict_of(check: str, content: str) -> bool:
    verdict = judge(CHAT, answers(**{check: content}))
    one = {each.name: each for each in verdict.checks}[check]
    assert verdict.passed == one.passed
    assert one.sentence.endswith(".")
    return one.passed


def test_chat_requests_are_the_contracts():
    assert [request.name for request in CHAT] == [f"repeat-{n}" for n in range(1, 9)] + ["arithmetic", "copy", "json"]
    for request in CHAT:
        assert request.path == "/v1/chat/completions"
        assert request.body["messages"][0]["role"] == "user"
        assert {key: request.body[key] for key in ("model", "temperature", "seed", "stream", "max_tokens")} == {
            "model": "m",
            "temperature": 0,
            "seed": 42,
            "stream": False,
            "max_tokens": 512,
        }
        assert "chat_template_kwargs" not in request.body
    assert all(request.body == CHAT[0].body for request in CHAT[:8])
    assert len({json.dumps(request.body) for request in CHAT}) == 4


def test_a_small_context_and_thinking_can_be_set():
    for request in chat_canaries("m", max_tokens=96, enable_thinking=False):
        assert request.body["max_tokens"] == 96
        assert request.body["chat_template_kwargs"] == {"enable_thinking": False}


def test_repeat_requests_ask_for_ids_without_a_chat_template():
    assert len(REPEAT) == 8
    for request in REPEAT:
        assert request.path == "/v1/completions"
        assert request.body == REPEAT[0].body
        assert request.body["return_token_ids"] is True and request.body["stream"] is False
        assert (request.body["temperature"], request.body["seed"], request.body["max_tokens"]) == (0, 42, 32)


def test_right_answers_pass():
    verdict = judge(CHAT, answers())
    assert verdict.passed and verdict.mode == "chat"
    assert [check.name for check in verdict.checks] == ["repeat", "arithmetic", "copy", "json"]
    assert verdict.checks[1].answer == "4183"


@pytest.mark.parametrize(
    "reasoning",
    ["<think>Let me see.</think>\n\n", "Thinking Process:\n\n1. Look.\n</think>\n\n", "<think>\n\n</think>"],
)
def test_closed_reasoning_before_right_answers_passes(reasoning):
    assert judge(CHAT, answers(**{name: reasoning + text for name, text in GOOD.items()})).passed


@pytest.mark.parametrize(
    "reasoning",
    ["<think>", "<think>Hm. ", "Thinking Process:\n\n", "**Thinking Process:**\n", "Here's a thinking process:\n"],
)
def test_unclosed_reasoning_is_no_answer(reasoning):
    verdict = judge(CHAT, answers(**{name: reasoning + text for name, text in GOOD.items()}))
    assert [check.passed for check in verdict.checks] == [False] * 4
    assert all("reasoning" in check.sentence for check in verdict.checks)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_answer_in_a_reasoning_field_only_fails(field, content):
    bodies = [chat(content, **{field: GOOD[request.check]}) for request in CHAT]
    assert [check.passed for check in judge(CHAT, bodies).checks] == [False] * 4


@pytest.mark.parametrize("check", ["arithmetic", "copy", "json"])
def test_a_right_answer_inside_the_reasoning_does_not_count(check):
    assert not verdict_of(check, f"<think>{GOOD[check]}</think>I don't know.")
    assert not verdict_of(check, f"{GOOD[check]}</think>I don't know.")
    assert not verdict_of(check, f"<think>a<think>b</think>{GOOD[check]}</think>I don't know.")
    assert not verdict_of(check, f"<THINK>{GOOD[check]}</THINK >I don't know.")


def test_an_echoed_prompt_passes_no_check():
    echoed = [chat(request.body["messages"][0]["content"]) for request in CHAT]
    by_name = {check.name: check.passed for check in judge(CHAT, echoed).checks}
    assert by_name == {"repeat": True, "arithmetic": False, "copy": False, "json": False}


@pytest.mark.parametrize(
    "answer",
    [
        "4183",
        "47 × 89 = 4183.",
        "**4183**",
        "4,183",
        "It is 4 183.",
        "4\u00a0183",
        "4\u202f183",
        "\\boxed{4183}",
        "=4183,",
        "_4183_",
    ],
)
def test_the_product_in_any_usual_writing_passes(answer):
    assert verdict_of("arithmetic", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "41830",
        "14183",
        "4183.5",
        "0.4183",
        "4,183,000",
        "4 183 000",
        "14 183",
        "1,4183",
        "-4183",
        "4184",
        "418 3",
        "4.183",
        "x4183",
        "4,1830",
        "4183,5",
    ],
)
def test_other_numbers_fail(answer):
    assert not verdict_of("arithmetic", answer)


@pytest.mark.parametrize("left,right", [("", ""), ('"', '"'), ("'", "'"), ("“", "”"), ("\n ", " \n"), (' "', '"\n')])
def test_the_copied_sentence_may_stand_in_one_pair_of_quotes(left, right):
    assert verdict_of("copy", left + canaries.COPY_SENTENCE + right)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s[:-1],
        lambda s: s + "!",
        str.lower,
        lambda s: f'""{s}""',
        lambda s: f'"{s}',
        lambda s: s.replace(" ", "  ", 1),
        lambda s: "Sure: " + s,
    ],
)
def test_an_inexact_copy_fails(change):
    assert not verdict_of("copy", change(canaries.COPY_SENTENCE))


@pytest.mark.parametrize(
    "answer",
    [
        '{"name":"a","count":0}',
        '```json\n{"name": "a",\n "count": -2}\n```',
        '```\n{"name": "```", "count": 1}\n```',
        '{"name": "a", "count": 1, "more": null}',
    ],
)
def test_json_with_both_keys_passes(answer):
    assert verdict_of("json", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        "[]",
        '{"name": "a", "count": true}',
        '{"name": "a", "count": 1.0}',
        '{"name": "a", "count": "1"}',
        '{"name": 1, "count": 1}',
        '{"name": "a", "count": 1} Done.',
        'Here: {"name": "a", "count": 1}',
        '```json\n```json\n{"name": "a", "count": 1}\n```\n```',
        '```json\n{"name": "a", "count": 1}\n``` Done.',
        '{"name": "a", "count": 1, "x": NaN}',
        "{'name': 'a', 'count': 1}",
        '{"name": "a", "count": ' + "9" * 5000 + "}",
        "[" * 100_000,
        "```json",
    ],
)
def test_other_json_fails(answer):
    assert not verdict_of("json", answer)


def test_one_differing_repeat_fails():
    bodies = answers()
    bodies[5] = chat("red, blue, green, black")
    verdict = judge(CHAT, bodies)
    assert not verdict.passed and "2 distinct texts" in verdict.checks[0].sentence


def test_repeat_mode_compares_ids_and_not_text():
    verdict = judge(REPEAT, [completion([5, 6], text=str(n)) for n in range(8)])
    assert verdict.passed and verdict.mode == "repeat" and [check.name for check in verdict.checks] == ["repeat"]
    differing = [completion([5, 6])] * 7 + [completion([5, 7])]
    assert not judge(REPEAT, differing).passed


@pytest.mark.parametrize("ids", [None, [], [1, None], [True], ["1"], [1.0], {}, "12"])
def test_repeat_mode_without_ids_fails(ids):
    assert not judge(REPEAT, [completion(ids)] * 8).passed


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [1]}',
        b'{"choices": [{"message": []}]}',
        b'{"choices": [{"message": {"content": [{"type": "text", "text": "4183"}]}}]}',
        b'{"choices": [{"message": {"content": "4183"}}, {"message": {"content": "4183"}}]}',
        b'{"error": {"message": "EngineDeadError"}, "choices": [{"message": {"content": "4183"}}]}',
        b'{"error": ' + b"[" * 500 + b"]" * 500 + b"}",
        b"[" * 100_000,
        b"<html>4183</html>",
    ],
)
def test_a_missing_or_malformed_answer_fails_with_a_sentence(body):
    for position, name in ((0, "repeat"), (8, "arithmetic"), (10, "json")):
        bodies = answers()
        bodies[position] = body
        verdict = judge(CHAT, bodies)
        failed = [check for check in verdict.checks if not check.passed]
        assert [check.name for check in failed] == [name]
        assert failed[0].sentence.endswith(".") and "answered" in failed[0].sentence
    assert not judge(REPEAT, [body] * 8).passed


def test_the_servers_error_is_quoted():
    bodies = answers()
    bodies[8] = b'{"error": {"message": "Engine\\ndead \\ud800"}}'
    assert "Engine dead ?" in judge(CHAT, bodies).checks[1].sentence


def test_missing_requests_and_unmatched_answers_fail():
    assert not judge([], []).passed
    assert not judge(CHAT, []).passed
    assert not judge(CHAT, answers()[:-1]).passed
    assert not judge(CHAT[:-1], answers()[:-1]).passed
    assert not judge(CHAT[1:], answers()[1:]).passed
    assert not judge(CHAT, [*answers(), chat("more")]).passed
    assert not judge(REPEAT[:7], [completion([1])] * 7).passed
    assert not judge([*REPEAT, CHAT[8]], [*[completion([1])] * 8, chat("4183")]).passed


def test_canary_and_readiness_prompts_are_in_no_suite():
    paths = sorted((ROOT / "suites").glob("*.json")) + sorted((ROOT.parent / "shared" / "lab").glob("*suite*.json"))
    assert paths
    asked = {request.body["messages"][0]["content"] for request in CHAT} | {
        REPEAT[0].body["prompt"],
        strict.READY_PROMPT,
    }
    asked.add(canaries.COPY_SENTENCE)
    assert len(asked) == 7
    for path in paths:
        for prompt in load_suite(str(path), need_classes=False).prompts:
            assert not any(one in prompt.text or prompt.text in one for one in asked)
            # A shared opening would be a shared prefix for a cache.
            assert not any(one[:16] == prompt.text[:16] for one in asked)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(list(GOOD.values())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
near_answers = st.fixed_dictionaries(
    {},
    optional={
        "error": json_values,
        "choices": json_values
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "message": json_values | st.fixed_dictionaries({"content": json_values}),
                    "token_ids": st.lists(st.integers()) | json_values,
                    "text": json_values,
                },
            ),
            min_size=1,
            max_size=2,
        ),
    },
)
bodies_of_any_kind = (
    st.none() | st.binary() | (json_values | near_answers).map(lambda value: json.dumps(value).encode())
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([CHAT, REPEAT]), st.lists(bodies_of_any_kind, max_size=13))
def test_no_answers_make_it_raise_and_its_verdict_can_be_written(requests, bodies):
    verdict = judge(requests, bodies)
    assert type(verdict).model_validate_json(verdict.model_dump_json()) == verdict
    assert verdict.passed == all(check.passed for check in verdict.checks)
    assert len(bodies) == len(requests) or not verdict.passed


fragments = st.sampled_from(
    ["<think>", "</think>", "4183", "Thinking Process:", " ", "\n", "4,183", "```json\n", "{", "\ud800", "a"]
)


@given(st.lists(fragments).map("".join))
def test_what_stands_before_the_last_close_never_reaches_the_answer(content):
    answer = canaries.answer_alone(content)
    assert content.endswith(answer)
    assert "</think>" not in answer and "<think>" not in answer
    assert canaries.answer_alone(content + "</think>") == ""
    assert canaries.answer_alone(f"{content}</think>done") == "done"
    verdict = judge(CHAT, answers(arithmetic=content, json=content, copy=content))
    verdict.model_dump_json()


@given(st.sampled_from(["arithmetic", "copy", "json"]), st.text(max_size=40))
def test_any_reasoning_before_a_right_answer_leaves_it_right(check, reasoning):
    assert verdict_of(check, f"<think>{reasoning}</think>{GOOD[check]}")
