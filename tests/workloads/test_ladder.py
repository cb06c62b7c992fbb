"""Slots, requests and names of a concurrency ladder; the suites it sends."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.suites import load_suite
from harness.wire.capture import MAX_READS, MAX_TOTAL
from harness.workloads.ladder import (
    DEFAULT_RUNGS,
    EVENT_BYTES,
    EVENTS,
    MAX_TOKENS,
    check_passes,
    ladder_body,
    ladder_request_id,
    parse_rungs,
    parse_stage,
    shape_for,
    slots,
    stage_name,
)

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
OURS = str(ROOT / "suites" / "ladder-v1.json")
CONTEXT = 256


RUNGS = st.sets(st.integers(1, 128), min_size=1, max_size=12).map(lambda found: tuple(sorted(found)))


@given(RUNGS, st.integers(1, 1000))
def test_what_passes_the_check_fits_into_a_capture_that_loads(rungs: tuple[int, ...], passes: int) -> None:
    answers = max(rungs) + (passes + 1) * sum(rungs)
    fits = answers * EVENTS <= MAX_READS and answers * EVENTS * EVENT_BYTES <= MAX_TOTAL
    if fits:
        check_passes(rungs, passes)
    else:
        with pytest.raises(UsageError, match=r"more than one capture holds; ask for (at most [1-9]|fewer rungs)"):
            check_passes(rungs, passes)


def test_too_many_passes_are_refused_with_the_number_that_can_be_had() -> None:
    high = (1, 2, 4, 8, 16, 32, 64, 128)
    with pytest.raises(UsageError) as refused:
        check_passes(high, 200)
    most = int(str(refused.value).split("at most ")[1].split()[0])
    assert str(refused.value) == (
        f"200 passes over 255 users are more than one capture holds; ask for at most {most} passes, or for fewer rungs"
    )
    check_passes(high, most)
    assert most > 50
    check_passes((1,), 1000)


def lab_suite(name: str) -> str:
    path = SHARED / "lab" / name
    if not path.is_file():
        pytest.skip("the lab's suites are not here")
    return str(path)


def test_expanded_slots_cycle_over_the_bases_with_a_suffix_each() -> None:
    suite = load_suite(OURS, need_classes=False)
    made = slots(suite, 128, verbatim=False)
    assert [slot.id for slot in made[:9]] == [
        *(f"{prompt.id}-c{index:03d}" for index, prompt in enumerate(suite.prompts)),
        f"{suite.prompts[0].id}-c008",
    ]
    assert len({slot.id for slot in made}) == len({slot.text for slot in made}) == len({s.sha256 for s in made}) == 128
    for index, slot in enumerate(made):
        assert slot.base == suite.prompts[index % 8].id
        assert slot.text.startswith(suite.prompts[index % 8].text) and f"{index:03d}" in slot.text


def test_a_rung_uses_the_first_slots_whatever_the_others_are() -> None:
    suite = load_suite(OURS, need_classes=False)
    every = slots(suite, 128, verbatim=False)
    assert all(slots(suite, rung, verbatim=False) == every[:rung] for rung in DEFAULT_RUNGS)


def test_verbatim_slots_repeat_the_prompts_word_for_word() -> None:
    suite = load_suite(OURS, need_classes=False)
    made = slots(suite, 64, verbatim=True)
    assert made[11].id == f"{suite.prompts[3].id}-s011"
    assert len({slot.id for slot in made}) == 64
    for index, slot in enumerate(made):
        assert (slot.text, slot.sha256) == (suite.prompts[index % 8].text, suite.prompts[index % 8].sha256)


def test_lab_suites_load_without_classes() -> None:
    small = load_suite(lab_suite("smallctx-suite.json"), need_classes=False)
    assert len(small.prompts) == 8 and slots(small, 64, verbatim=False)[0].id == "cache-c000"
    fragile = load_suite(lab_suite("2026-09-09-qwen35-4b-fragile-suite-c64.json"), need_classes=False)
    made = slots(fragile, 64, verbatim=True)
    assert len(fragile.prompts) == 16 and len({slot.text for slot in made}) == 16
    assert [slot.id for slot in made[::16]] == [f"{fragile.prompts[0].id}-s{i:03d}" for i in (0, 16, 32, 48)]
    with pytest.raises(UsageError, match="has no class"):
        load_suite(lab_suite("smallctx-suite.json"))


def test_our_suite_leaves_room_for_the_answer_in_the_ladders_context() -> None:
    suite = load_suite(OURS, need_classes=False)
    assert len(suite.prompts) == 8
    texts = [slot.text for slot in slots(suite, 128, verbatim=False)]
    limit = CONTEXT - MAX_TOKENS
    # A tokenizer of bytes has no more ids than bytes; where the real one can be had it is asked.
    assert max(len(text.encode()) for text in texts) <= limit
    path = SHARED / "vllm-cpu" / "tiny-qwen35" / "tokenizer.json"
    if path.is_file():
        tokenizers = pytest.importorskip(
            "tokenizers", reason="the tokenizers package is not here; the bound by bytes held"
        )
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        assert max(len(tokenizer.encode(text).ids) for text in texts) <= limit


def test_suite_shares_no_prompt_with_the_readiness_request() -> None:
    from harness.workloads.strict import ready_body

    asked = ready_body("m")["prompt"]
    assert all(asked not in slot.text for slot in slots(load_suite(OURS, need_classes=False), 128, verbatim=False))


# rungs and shapes


@pytest.mark.parametrize("text", ["1", "1,2,4", "64", "12,20,24,40,48,96,128"])
def test_rungs(text: str) -> None:
    assert parse_rungs(text) == tuple(int(word) for word in text.split(","))


@pytest.mark.parametrize("text", ["", ",", "1,", "a", "1;2", "-1", "1.5", "1, 2", "12345", "1,2,x", "１"])
def test_what_is_no_list_of_rungs(text: str) -> None:
    with pytest.raises(UsageError, match="write for example --rungs 1,2,4,8"):
        parse_rungs(text)


@pytest.mark.parametrize("text", ["0", "0,1", "2,1", "4,4", "1,2,2"])
def test_rungs_that_do_not_ascend(text: str) -> None:
    with pytest.raises(UsageError, match="must ascend from 1 on, each once; sort the list"):
        parse_rungs(text)


def test_shape_is_chosen_by_the_highest_rung() -> None:
    assert shape_for((1, 64)) == "ladder"
    assert shape_for((1, 65)) == "ladder-high"
    assert shape_for((128,)) == "ladder-high"
    with pytest.raises(UsageError, match="a rung of 129 users has no shape; the highest is 128"):
        shape_for((1, 129))


# requests


def test_request_is_the_contracts() -> None:
    body = ladder_body("Say it.", "name")
    assert body == {
        "model": "name",
        "prompt": "Say it.",
        "max_tokens": 128,
        "ignore_eos": True,
        "temperature": 0,
        "top_p": 1,
        "seed": 42,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    json.dumps(body)


def test_request_ids_differ_between_passes_rungs_and_slots() -> None:
    suite = load_suite(OURS, need_classes=False)
    made = slots(suite, 16, verbatim=True)
    stages = ["seq", *(stage_name(rung, number) for rung in (8, 16) for number in (1, 2))]
    found = {ladder_request_id(suite, stage, slot) for stage in stages for slot in made}
    assert len(found) == len(stages) * 16
    assert all(re.fullmatch(r"bench-[A-Za-z0-9._-]+", name) for name in found)
    assert ladder_request_id(suite, "seq", made[0]) == f"bench-{suite.suite_id}-seq-{made[0].id}"


@given(st.integers(1, 9999), st.integers(1, 1000))
def test_stage_names_come_back(rung: int, number: int) -> None:
    assert parse_stage(stage_name(rung, number)) == (rung, number)


@pytest.mark.parametrize("stage", ["seq", "", "before", "c1-p1", "c001-p1x", "c001", "p01", "c00001-p01"])
def test_other_stages_are_no_batches(stage: str) -> None:
    assert parse_stage(stage) is None
