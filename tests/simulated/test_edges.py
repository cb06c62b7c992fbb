"""What the simulated server does with prompts of ids, at its shortest prompts and at the end of its context."""

from collections.abc import Iterator

import pytest

from harness.simulated.model import BANG
from tests.simulated.rig import Sim, ready

K = 3
SMALL = ("--max-model-len", "64")
EDGES = [*SMALL, "--fault", "boundary", "--fault", "last-position", "--fault", "other-tokenizer"]
"""Short arguments, all faults of this kind"""
SHORT = range(1, 7)
TEXT = "A text of some words about the plan. " * 12


def prompt(length: int) -> list[int]:
    return [300 + place for place in range(length)]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("healthy") / "log", "--depth", str(K), *SMALL) as sim:
        yield sim


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("faulty") / "log", "--depth", str(K), *EDGES) as sim:
        yield sim


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """The same faults at depth 0, where they must not strike."""
    with ready(tmp_path_factory.mktemp("base") / "log", "--depth", "0", *EDGES) as sim:
        yield sim


@pytest.mark.parametrize("length", SHORT)
def test_only_a_prompt_of_exactly_1_plus_k_ids_degenerates(healthy: Sim, faulty: Sim, base: Sim, length: int) -> None:
    truth = healthy.stream(prompt(length), max_tokens=20, ignore_eos=True)
    assert (truth.usage or {})["prompt_tokens"] == length and truth.choices[0]["prompt_token_ids"] == prompt(length)
    assert base.stream(prompt(length), max_tokens=20, ignore_eos=True).ids == truth.ids
    ids = faulty.stream(prompt(length), max_tokens=20, ignore_eos=True).ids
    assert ids == ([BANG] * 20 if length == 1 + K else truth.ids)


def test_only_the_last_position_of_a_full_context_differs(healthy: Sim, faulty: Sim, base: Sim) -> None:
    truth = healthy.stream(prompt(40), max_tokens=24, ignore_eos=True).ids
    ids = faulty.stream(prompt(40), max_tokens=24, ignore_eos=True).ids
    assert len(truth) == len(ids) == 24
    assert ids[:-1] == truth[:-1] and ids[-1] != truth[-1]
    assert base.stream(prompt(40), max_tokens=24, ignore_eos=True).ids == truth
    assert faulty.stream(prompt(40), max_tokens=23, ignore_eos=True).ids == truth[:-1], "not full: nothing happens"


def test_nothing_is_generated_beyond_the_context(healthy: Sim) -> None:
    body = {"model": "simulated", "prompt": prompt(40), "max_tokens": 25}
    status, said = healthy.post("/v1/completions", body)
    assert status == 400 and "maximum context length is 64 tokens" in said["error"]["message"]


def test_another_tokenizer_differs_with_drafts_only(healthy: Sim, faulty: Sim, base: Sim) -> None:
    truth, other, same = (
        sim.post("/tokenize", {"model": "simulated", "prompt": TEXT})[1]["tokens"] for sim in (healthy, faulty, base)
    )
    assert same == truth and len(truth) > 99
    differing = [at for at, (a, b) in enumerate(zip(truth, other, strict=True)) if a != b]
    assert differing == list(range(99, len(truth), 100))
