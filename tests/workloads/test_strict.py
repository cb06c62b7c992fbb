"""The strict request is exactly the contract's, and its id fits a header."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.suites import Suite, load_suite
from harness.workloads import strict

ROOT = Path(__file__).resolve().parents[2]


def test_the_body_is_the_contracts_request():
    assert strict.strict_body("Say this.", "m") == {
        "model": "m",
        "prompt": "Say this.",
        "max_tokens": 512,
        "temperature": 0,
        "top_p": 1,
        "seed": 42,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


def test_request_ids_of_our_suite():
    suite = load_suite("strict-v1")
    ids = [strict.request_id(suite, n, prompt.id) for n, prompt in enumerate(suite.prompts)]
    assert ids[0] == "bench-b70-bench-strict-v1-00-restore-drill"
    assert ids[11].startswith("bench-b70-bench-strict-v1-11-")
    assert len(set(ids)) == 12


@given(suite_id=st.text(min_size=1), first=st.text(min_size=1), second=st.text(min_size=1), n=st.integers(0, 500))
def test_any_id_is_safe_in_a_header_and_unique(suite_id, first, second, n):
    suite = Suite(suite_id, 1, "any", "", ())
    one, other = strict.request_id(suite, n, first), strict.request_id(suite, n + 1, second)
    assert re.fullmatch(r"bench-[A-Za-z0-9._-]+", one)
    assert len(one) == len(f"bench-{suite_id}-{n:02d}-{first}")
    assert one != other or first != second


def test_the_readiness_request_is_one_token_and_its_prompt_is_in_no_suite():
    body = strict.ready_body("m")
    assert (body["model"], body["max_tokens"], body["temperature"], body["stream"]) == ("m", 1, 0, False)
    for path in sorted((ROOT / "suites").glob("*.json")):
        for prompt in load_suite(str(path), need_classes=False).prompts:
            assert body["prompt"] not in prompt.text and prompt.text not in body["prompt"]


def test_the_readiness_prompt_is_not_the_labs():
    folder = ROOT.parent / "shared" / "lab"
    paths = sorted(folder.glob("*suite*.json"))
    if not paths:
        pytest.skip("the lab's suites are not here")
    assert len(paths) >= 3
    for path in paths:
        for prompt in json.loads(path.read_bytes())["prompts"]:
            assert not prompt["prompt"].startswith(strict.READY_PROMPT[:12])
