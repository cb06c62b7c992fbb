"""Grade rules A to D: what each needs, and that nothing grants an A by itself."""

from hypothesis import given
from hypothesis import strategies as st

from harness.publish.grades import BASIS_PREFIX, LETTERS, NO_REPLAY, basis, grade

PAIRS = st.dictionaries(st.integers(1, 4), st.integers(0, 5), max_size=4)
CLAIMED = st.lists(st.integers(1, 4), max_size=4)


def test_each_letter_has_its_rule() -> None:
    assert grade({}, [1]).letter == "D"
    assert grade({1: 1}, [1]).letter == "C"
    assert grade({1: 2}, [1]).letter == "B"
    assert grade({1: 2}, [1], clean_host_replay=True).letter == "A"
    assert grade({1: 2}, [1, 2]).letter == "D", "two cards are claimed and shown by nothing"
    assert grade({1: 4, 2: 1}, [1, 2]).letter == "C", "the weakest claimed card count decides"
    assert grade({1: 2}, []).letter == "D"


@given(pairs=PAIRS, claimed=CLAIMED)
def test_no_evidence_grants_an_a(pairs: dict[int, int], claimed: list[int]) -> None:
    found = grade(pairs, claimed)
    assert found.letter != "A"
    assert (NO_REPLAY in found.reasons) == (found.letter == "B")


@given(pairs=PAIRS, claimed=CLAIMED, replay=st.booleans())
def test_more_pairs_never_lower_a_grade_and_more_claims_never_raise_it(
    pairs: dict[int, int], claimed: list[int], replay: bool
) -> None:
    now = LETTERS.index(grade(pairs, claimed, clean_host_replay=replay).letter)
    more = {cards: pairs.get(cards, 0) + 1 for cards in range(1, 5)}
    assert LETTERS.index(grade(more, claimed, clean_host_replay=replay).letter) <= now
    if claimed:
        wider = grade(pairs, [*claimed, 4], clean_host_replay=replay)
        assert LETTERS.index(wider.letter) >= now


def test_the_derived_basis_says_the_rule_and_its_figures() -> None:
    said = basis(grade({1: 2, 2: 3}, [2, 1]), "2026-09-11")
    assert said.startswith(f"{BASIS_PREFIX}B: TP1: two fresh-server pairs with all gates passed; TP2: 3 ")
    assert said.endswith("Newest evidence of 2026-09-11.")
