"""Prompts of token ids: exact lengths, no shared prefix, nothing repeated; boundary probes; pieces of texts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.workloads.context import (
    CLASSES,
    DEPTHS,
    MAX_TOKENS,
    PROBE_TOKENS,
    REPEAT_WINDOW,
    context_body,
    context_request_id,
    cut,
    depth_prompts,
    needs,
    parse_depths,
    piece_bytes,
    pieces,
    probe_prompts,
    repeated_share,
    tokenize_body,
    without,
)


def test_the_contracts_depths_fit_into_its_shape() -> None:
    prompts = depth_prompts(DEPTHS, 33024)
    assert [prompt.tokens for prompt in prompts] == [tokens for tokens in DEPTHS for _ in CLASSES]
    assert [prompt.text for prompt in prompts[:3]] == list(CLASSES)
    assert {prompt.max_tokens for prompt in prompts} == {MAX_TOKENS}
    assert len({prompt.id for prompt in prompts}) == 18
    assert needs(prompts) == dict.fromkeys(CLASSES, 32768)


def test_a_depth_whose_answer_does_not_fit_is_refused() -> None:
    assert depth_prompts([384], 512)
    with pytest.raises(UsageError, match="385 tokens and 128 more don't fit into the launcher's max-model-len of 512"):
        depth_prompts([64, 385], 512)


@pytest.mark.parametrize("text", ["", "a", "2048,", "2048,2048", "4096,2048", "0", "-1", "1.5", "1, 2"])
def test_a_list_of_depths_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--depths"):
        parse_depths(text)


def test_a_list_of_depths() -> None:
    assert parse_depths("2048,4096,8192") == (2048, 4096, 8192)


@pytest.mark.parametrize(
    ("depth", "lengths"),
    [
        (0, {1: "1", 2: "2"}),
        (1, {1: "1 = K", 2: "2 = 1+K", 3: "2+K"}),
        (2, {1: "1", 2: "2 = K", 3: "1+K", 4: "2+K"}),
        (3, {1: "1", 2: "2", 3: "K", 4: "1+K", 5: "2+K"}),
        (6, {1: "1", 2: "2", 6: "K", 7: "1+K", 8: "2+K"}),
    ],
)
def test_probes_are_the_boundaries_each_once_and_a_full_context(depth: int, lengths: dict[int, str]) -> None:
    found = probe_prompts(depth, 1024)
    short, full = found[: 3 * len(lengths)], found[3 * len(lengths) :]
    assert {prompt.tokens: prompt.what for prompt in short} == lengths
    assert [prompt.tokens for prompt in short] == [tokens for tokens in sorted(lengths) for _ in CLASSES]
    assert {prompt.max_tokens for prompt in short} == {PROBE_TOKENS}
    assert [(prompt.what, prompt.tokens + prompt.max_tokens) for prompt in full] == [("full", 1024)] * (1 + depth)
    assert [prompt.max_tokens for prompt in full] == [PROBE_TOKENS + more for more in range(1 + depth)]
    assert len({prompt.id for prompt in found}) == len(found)
    assert PROBE_TOKENS >= 4 * (1 + 6), "several draft steps, even at depth 6"


@pytest.mark.parametrize("depth", range(7))
def test_short_probes_share_no_id_of_a_text_and_neighbours_are_of_different_texts(depth: int) -> None:
    prompts = probe_prompts(depth, 1024)
    ids = {name: range(10_000 * at, 10_000 * at + count) for at, (name, count) in enumerate(needs(prompts).items())}
    made = cut(prompts, ids)
    assert all(len(made[prompt.id]) == prompt.tokens for prompt in prompts)
    short = [prompt for prompt in prompts if prompt.what != "full"]
    used = [token for prompt in short for token in made[prompt.id]]
    assert len(used) == len(set(used))
    assert all(one.text != two.text for one, two in itertools.pairwise(short))


@pytest.mark.parametrize("depth", range(1, 7))
def test_full_contexts_end_on_every_place_of_a_step(depth: int) -> None:
    """Prefill gives one id, and then each step as many as it likes, up to 1+K: the last one is cut at every length."""
    generated = [prompt.max_tokens for prompt in probe_prompts(depth, 1024) if prompt.what == "full"]
    for step in range(1, 2 + depth):
        assert {(count - 1) % step for count in generated} == set(range(step))


def test_probes_are_left_out_by_what_their_length_stands_for() -> None:
    def kept(depth: int, *left_out: str) -> list[str]:
        return list(dict.fromkeys(prompt.what for prompt in without(probe_prompts(depth, 1024), left_out)))

    assert kept(3, "1", "full") == ["2", "K", "1+K", "2+K"]
    assert kept(1, "K") == ["2 = 1+K", "2+K", "full"]
    assert kept(3) == ["1", "2", "K", "1+K", "2+K", "full"]
    assert kept(0, "1+K") == ["1", "2", "full"]
    with pytest.raises(UsageError, match="probes_left_out leaves no boundary probe"):
        kept(0, "1", "2", "full")


def test_a_context_without_room_for_probes_is_refused() -> None:
    with pytest.raises(UsageError, match="max-model-len of 72 holds no boundary probes at depth 3"):
        probe_prompts(3, 72)
    assert probe_prompts(3, 73)[-1].tokens == 6


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6, unique=True).map(sorted))
def test_prompts_have_exactly_their_length_end_together_and_share_no_prefix(depths: list[int]) -> None:
    prompts = depth_prompts(depths, 512)
    ids = {name: range(1000 * at, 1000 * at + count) for at, (name, count) in enumerate(needs(prompts).items())}
    made = cut(prompts, ids)
    assert list(made) == [prompt.id for prompt in prompts]
    for prompt in prompts:
        found = made[prompt.id]
        assert len(found) == prompt.tokens == len(set(found))
        assert found[-1] == ids[prompt.text][-1]
    for name in CLASSES:
        firsts = [made[prompt.id][0] for prompt in prompts if prompt.text == name]
        assert len(set(firsts)) == len(depths)


@given(st.text(), st.integers(64, 200))
def test_pieces_are_the_text_whole_and_none_is_too_long(text: str, limit: int) -> None:
    found = list(pieces(text, limit))
    assert "".join(found) == text
    assert all(0 < len(piece.encode()) <= limit for piece in found)


@given(st.text("ab \n", max_size=600), st.integers(64, 200))
def test_pieces_end_at_a_line_or_a_word_where_there_is_one(text: str, limit: int) -> None:
    begin = 0
    for piece, after in itertools.pairwise(pieces(text, limit)):
        window = text[begin : begin + limit]
        if any(mark in window[limit // 2 + 1 :] for mark in ("\n", " ")):
            assert len(piece) > limit // 2
            assert piece.endswith("\n") or after.startswith(" ")
        else:
            assert len(piece) == limit
        begin += len(piece)


def test_a_paragraph_is_preferred_to_a_line_and_a_line_to_a_word() -> None:
    def first(text: str) -> str:
        return next(pieces(text + "z" * 100, 64))

    assert first("a" * 40 + "\n\n" + "b c\nd") == "a" * 40 + "\n\n"
    assert first("a" * 40 + "\n" + "b c") == "a" * 40 + "\n"
    assert first("a" * 40 + " b") == "a" * 40
    assert first("a" * 80) == "a" * 64


def test_a_piece_has_fewer_bytes_than_the_context_has_places() -> None:
    assert piece_bytes(2176) == 2175
    assert piece_bytes(33024) == 16 * 1024
    assert piece_bytes(10) == 64


def test_repetition_is_seen_and_its_absence_too() -> None:
    assert repeated_share(range(2000)) == 0.0
    assert repeated_share([*range(1000)] * 2) > 0.45
    assert repeated_share([7] * 500) > 0.99
    assert repeated_share(range(REPEAT_WINDOW - 1)) == 0.0


def test_the_request_is_greedy_streamed_and_of_ids() -> None:
    body = context_body((1, 2, 3), 128, "m")
    assert body == {
        "model": "m",
        "prompt": [1, 2, 3],
        "max_tokens": 128,
        "ignore_eos": True,
        "temperature": 0,
        "top_p": 1,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    assert tokenize_body("a b", "m") == {"model": "m", "prompt": "a b", "add_special_tokens": False}
    assert context_request_id("depth", 7, "python-code-2048") == "bench-depth-07-python-code-2048"
