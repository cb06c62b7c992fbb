import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.identity import compare_rows, divergence, first_divergence
from harness.wire.completion import Reason
from tests.measure.factory import make_ids, make_row, make_rows, replace_row

ids = st.lists(st.integers(0, 3), max_size=12)


@given(ids, ids)
def test_first_divergence_against_brute_force(a: list[int], b: list[int]) -> None:
    padded = [(a[i] if i < len(a) else None, b[i] if i < len(b) else None) for i in range(max(len(a), len(b)))]
    expected = next((i for i, (x, y) in enumerate(padded) if x != y), None)
    if not a and not b:
        expected = 0
    assert first_divergence(a, b) == first_divergence(b, a) == expected


@given(ids.filter(bool), st.data())
def test_one_flipped_id_is_found_where_it_is(a: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(a) - 1))
    b = [*a[:at], a[at] + 1, *a[at + 1 :]]
    found = divergence("p", a, b)
    assert found is not None
    assert (found.first_divergence_token_zero_based, found.left_id, found.right_id) == (at, a[at], a[at] + 1)


def test_two_empty_arrays_are_never_equal() -> None:
    assert first_divergence([], []) == 0
    empty = [make_row(0, count=0)]
    compared = compare_rows(empty, empty, min_ids=0)
    assert compared.exact == 0
    assert len(compared.problems) == 2


def test_a_prefix_is_not_equal() -> None:
    a = make_ids(0, 512)
    found = divergence("code-review", a[:100], a)
    assert found is not None
    assert found.sentence() == f"code-review differs at token 100: the end against {a[100]} (100 and 512 ids)"


def test_equal_attempts_are_exact() -> None:
    compared = compare_rows(make_rows(), make_rows())
    assert (compared.exact, compared.total) == (12, 12)
    assert compared.divergences == compared.problems == []


def test_one_flip_leaves_eleven_of_twelve_with_its_place() -> None:
    rows = make_rows()
    other = list(rows[6].token_ids)
    other[57] = 815
    compared = compare_rows(rows, replace_row(rows, 6, token_ids=other))
    assert (compared.exact, compared.total, compared.problems) == (11, 12, [])
    (found,) = compared.divergences
    assert found.prompt_id == rows[6].prompt_id
    assert (found.first_divergence_token_zero_based, found.left_id, found.right_id) == (57, rows[6].token_ids[57], 815)
    assert (found.left_length, found.right_length) == (128, 128)


def test_same_text_with_other_ids_is_a_divergence() -> None:
    rows = make_rows()
    other = [*rows[0].token_ids[:-1], 5]
    assert compare_rows(rows, replace_row(rows, 0, token_ids=other, text=rows[0].text)).exact == 11


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"complete": False, "reason": Reason.STREAM_CUT.value}, "is incomplete on the {side} side (stream-cut)"),
        ({"token_ids": make_ids(4, 99)}, "has 99 ids on the {side} side, fewer than 100"),
        ({"token_ids": []}, "has 0 ids on the {side} side, fewer than 100"),
        ({"prompt_token_ids": None}, "has no prompt_token_ids on the {side} side"),
        ({"prompt_token_ids": [14, 2, 4]}, "other prompt_token_ids on each side, first at 2 (3 and 3 ids)"),
        ({"prompt_sha256": "00" * 32}, "has another prompt text on each side"),
        ({"prompt_id": "stray"}, "prompt-04 is missing on the {side} side"),
        ({"prompt_id": "prompt-03"}, "prompt-03 stands twice on the {side} side"),
    ],
)
def test_a_prompt_unfit_on_one_side_is_a_problem_and_not_exact(
    side: str, changes: dict[str, object], said: str
) -> None:
    rows = make_rows()
    changed = replace_row(rows, 4, **changes)
    compared = compare_rows(changed, rows) if side == "left" else compare_rows(rows, changed)
    assert compared.exact <= 11
    assert any(said.format(side=side) in problem for problem in compared.problems)


def test_a_cut_answer_is_a_problem_and_no_divergence() -> None:
    rows = make_rows()
    cut = replace_row(rows, 0, complete=False, reason="stream-cut", token_ids=rows[0].token_ids[:110])
    assert compare_rows(rows, cut).divergences == []


def test_no_rows_are_a_problem() -> None:
    compared = compare_rows([], [])
    assert (compared.exact, compared.total) == (0, 0)
    assert compared.problems
