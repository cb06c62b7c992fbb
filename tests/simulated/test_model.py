from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.simulated import model
from harness.simulated.canary import reply
from harness.simulated.completions import Text

text = st.text(st.characters(exclude_categories=["Cs"]))


@given(text)
def test_tokenize_loses_nothing(value: str) -> None:
    ids = model.tokenize(value)
    assert model.detokenize(ids) == value
    assert all(0 <= token < model.VOCABULARY for token in ids)


def test_a_work_like_prompt_has_about_as_many_ids_as_with_a_real_tokenizer() -> None:
    prompt = "Summarise what changed in the deployment procedure between the two releases, and list the open risks."
    assert len(prompt.split()) <= len(model.tokenize(prompt)) <= 2 * len(prompt.split())


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert model.detokenize(model.tokenize("a\ud800b")) == "a\ufffdb"


@given(st.lists(st.integers(0, model.VOCABULARY - 1)), st.data())
def test_text_in_pieces_is_the_text_at_once(ids: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(ids)))
    pieces, whole = Text(), Text()
    assert pieces.add(ids[:cut]) + pieces.add(ids[cut:]) == whole.add(ids)


@given(st.lists(st.integers(0, model.VOCABULARY - 1), min_size=1), text)
def test_an_answer_depends_on_prompt_and_model_only(prompt: list[int], seed_text: str) -> None:
    key = model.prompt_key(seed_text, prompt)
    first = list(islice(model.answer(key), 120))
    assert first == list(islice(model.answer(key), 120))
    assert first != list(islice(model.answer(model.prompt_key(seed_text, [*prompt, 7])), 120))
    assert first != list(islice(model.answer(model.prompt_key(seed_text + "x", prompt)), 120))
    assert all(0 < token < 4000 and 0 <= draw < 1 for token, draw in first)


def test_a_third_of_the_answers_ends_between_300_and_512() -> None:
    ends = [model.eos_index(model.prompt_key("", [n])) for n in range(600)]
    some = [end for end in ends if end is not None]
    assert 120 < len(some) < 280
    assert min(some) >= 300
    assert max(some) < 511
    key = model.prompt_key("", [next(n for n, end in enumerate(ends) if end is not None)])
    ids = [token for token, _ in islice(model.answer(key), 600)]
    assert ids.index(model.EOS) == model.eos_index(key)
    assert ids.count(model.EOS) == 1


@given(st.integers(0, 10**9))
def test_diverging_answers_differ_exactly_from_the_tie_on(number: int) -> None:
    key = model.prompt_key("", [number % model.VOCABULARY])
    usual = [token for token, _ in islice(model.answer(key), 100)]
    strange = [token for token, _ in islice(model.diverging(key, b"salt"), 100)]
    assert usual[: model.TIE_INDEX] == strange[: model.TIE_INDEX]
    assert usual[model.TIE_INDEX] != strange[model.TIE_INDEX]


def test_answers_hold_empty_ids_split_characters_and_escapes() -> None:
    ids = [token for token, _ in islice(model.answer(model.prompt_key("", [1])), 2000)]
    assert any(token in model.EMPTY for token in ids)
    assert any(0xC3 <= token - 16 <= 0xD1 for token in ids)
    shown = model.detokenize(ids)
    assert {'"', "\\", "\n"} <= set(shown)
    assert any(ord(character) > 127 for character in shown)
    assert "\ufffd" not in shown


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 12 times 34? Answer in one sentence.", "12 × 34 = 408."),
        ("Multiply 12 by 34.", "12 × 34 = 408."),
        (
            'Copy this sentence exactly: "Seven times 3 grey ships, 4 of them late."',
            "Seven times 3 grey ships, 4 of them late.",
        ),
        ("Repeat exactly: The harbour is closed.", "The harbour is closed."),
        (
            'Give JSON with a string "name" that is "bolt" and an integer "count" of 12.',
            '{"name": "bolt", "count": 12}',
        ),
        ("Reply with a JSON object having name and count only.", '{"name": "sample", "count": 3}'),
        ('Return this JSON: {"name": "nut", "count": 5}', '{"name": "nut", "count": 5}'),
        ("Who are you?", None),
    ],
)
def test_canary_answers(question: str, answer: str | None) -> None:
    assert reply(question, wrong=False) == answer


def test_a_wrong_product_is_wrong_by_one() -> None:
    assert reply("12 × 34?", wrong=True) == "12 × 34 = 409."
