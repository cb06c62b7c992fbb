"""Sites, how often they come, the texts around them, and margins: examples and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.publish.explain import (
    BATCH,
    SEQUENTIAL,
    Answer,
    Compared,
    Site,
    Stage,
    around,
    sites,
    vocabulary,
    with_margins,
)
from harness.publish.margins import NEAR_TIE, Candidate, Margin, Said, margin_of

WORDS = {1: " one", 2: " two", 3: " three", 4: " four", 5: "\n", 6: "é"}


def answer(*chunks: tuple[int, ...]) -> Answer:
    """Ids in chunks, with the text that a server with WORDS would send."""
    ids = tuple(token for chunk in chunks for token in chunk)
    return Answer(ids, tuple((len(chunk), "".join(WORDS[token] for token in chunk)) for chunk in chunks))


ORACLE = answer((1,), (2,), (3,), (4,))
OTHER = answer((1, 2), (4, 4))


def strict(prompt: str, stage: Stage, other: Answer = OTHER, oracle: Answer = ORACLE) -> Compared:
    return Compared(prompt, (90, 91), stage, "mtp0-a", oracle, other)


def one_site(oracle: Answer = ORACLE, other: Answer = OTHER, words: dict[int, str] | None = None) -> Site:
    stage = Stage("G3", "G3 mtp3-a vs mtp0-a")
    (site,) = sites([strict("p", stage, other, oracle)], {"p": [stage]}, WORDS if words is None else words)
    return site


def batch(number: int, rung: int, slot: str) -> Stage:
    return Stage(BATCH, f"mtp3 c{rung} pass {number}", slot, rung, number)


# texts


def test_text_before_comes_from_the_side_whose_chunks_cut_there() -> None:
    site = one_site()
    assert (site.index, site.oracle_id, site.other_id) == (2, 3, 4)
    assert (site.before, site.before_ids) == (" one two", 2)
    assert (site.oracle_after, site.other_after) == (" three four", " four four")
    assert site.prefix == [90, 91, 1, 2]


def test_chunks_that_do_not_cut_there_are_said_with_the_ids_that_are_covered() -> None:
    oracle, other = answer((1, 2, 3), (4,)), answer((1,), (2, 4), (4,))
    assert around(oracle, other, 2, {}) == (" one", 1)
    site = one_site(oracle, other, words={})
    assert (site.oracle_after, site.other_after) == (" two three four", " two four four")
    assert (site.oracle_text, site.other_text) == (None, None)


def test_known_ids_lengthen_the_text_up_to_the_site() -> None:
    assert around(answer((1, 2, 3), (4,)), answer((1,), (2, 4)), 2, {2: " two"}) == (" one two", 2)
    # A word that isn't what the server sent is no text of this answer.
    assert around(answer((1, 2, 3), (4,)), answer((1,), (2, 4)), 2, {2: " zwei"}) == (" one", 1)


def test_an_answer_of_ids_alone_has_no_text() -> None:
    site = one_site(Answer((1, 2, 3)), Answer((1, 2, 4)))
    assert (site.before, site.oracle_after, site.other_after) == (None, None, None)
    lent = one_site(Answer((1, 2, 3, 4)), OTHER)
    assert (lent.before, lent.oracle_after, lent.other_after) == (" one two", None, " four four")


def test_an_answer_that_ended_has_no_id_there() -> None:
    site = one_site(answer((1,), (2,)), OTHER)
    assert (site.oracle_id, site.other_id, site.oracle_text, site.oracle_after) == (None, 4, None, "")
    assert "the end → 4" in site.sentence
    assert margin_of(None, 4, said((4, -0.1), (3, -3.0))).sentence == "no margin: one of the two answers had ended"


def test_vocabulary_takes_no_text_that_may_hold_an_earlier_id() -> None:
    held = Answer((1, 7, 8, 2, 3, 9), ((1, " one"), (1, ""), (1, "é"), (2, " two three"), (1, "?")))
    assert vocabulary([held]) == {1: " one"}
    assert vocabulary([ORACLE, Answer((2,), ((1, " TWO"),))]) == {1: " one", 3: " three", 4: " four"}


# grouping


def test_one_place_in_both_comparisons_is_always_there() -> None:
    stages = [Stage("G3", f"G3 mtp3-{name} vs mtp0-a") for name in "ab"]
    (site,) = sites([strict("p", stage) for stage in stages], {"p": [Stage("G1", "G1"), *stages]}, {})
    assert site.sentence == "always p at token 2, 3 → 4, in 2 of 2 comparisons of G3"
    assert site.places == [2] and site.stages == [stage.label for stage in stages]


def test_two_places_are_not_always_the_same() -> None:
    stages = [Stage("G3", f"G3 mtp3-{name} vs mtp0-a") for name in "ab"]
    found = sites([strict("p", stages[0]), strict("p", stages[1], answer((4,), (2,)))], {"p": stages}, {})
    assert [site.index for site in found] == [0, 2]
    assert found[0].sentence == (
        "not always the same: p at token 0, 1 → 4, one of 2 places (0, 2), in 1 of 2 comparisons of G3"
    )


def test_a_ladder_counts_passes_rungs_answers_and_the_sequential_one() -> None:
    own = Stage(SEQUENTIAL, "mtp3 sequential", "p-s000")
    asked = [batch(number, rung, "p-s000") for number in (1, 2, 3, 4) for rung in (1, 2, 4)]
    missed = [stage for stage in asked if stage.rung != 1 and stage.number != 4]
    twice = [strict("p", stage) for stage in (own, *missed)] + [
        Compared("p", (90,), stage, "own", ORACLE, OTHER) for stage in missed
    ]
    (site,) = sites(twice, {"p": [own, *asked]}, {})
    assert site.sentence == (
        "always p at token 2, 3 → 4, in the sequential answer and in 3 of 4 passes (c2 c4; 6 of 12 answers)"
    )
    assert site.against == ["mtp0-a", "own"]
    assert (site.rungs, site.rungs_asked, site.passes) == ([2, 4], [1, 2, 4], [1, 2, 3])


def test_equal_answers_are_no_site() -> None:
    stage = Stage("G1", "G1")
    assert sites([strict("p", stage, ORACLE)], {"p": [stage]}, {}) == []


# margins


def said(*pairs: tuple[int, float], chosen: int | None = None) -> Said:
    top = [Candidate(id=token, text=None, logprob=value) for token, value in pairs]
    return Said(chosen=top[0].id if chosen is None else chosen, top=top)


@pytest.mark.parametrize(
    ("gap", "kind", "sentence"),
    [
        (0.0, "exact tie", "exact tie (gap 0)"),
        (0.0625, "near tie", "near tie (gap 0.0625 nat)"),
        (NEAR_TIE, "near tie", "near tie (gap 0.125 nat)"),
        (0.25, "real difference", "a real difference (gap 0.25 nat)"),
    ],
)
def test_margin(gap: float, kind: str, sentence: str) -> None:
    margin = margin_of(3, 4, said((3, -0.5), (4, -0.5 - gap), (8, -20)))
    if gap == 0:
        sentence += ", 2 ids stand level at the top"
    assert (margin.kind, margin.gap, margin.sentence, margin.disagrees) == (kind, gap, sentence, False)


def test_below_the_top_is_a_bound() -> None:
    margin = margin_of(3, 4, said((3, -0.5), (8, -1.5)))
    assert (margin.kind, margin.gap, margin.at_least) == ("real difference", None, 1.0)
    assert margin.sentence == "a real difference (4 is below the top 2, gap > 1 nat)"
    close = margin_of(3, 4, said((3, -0.5), (8, -0.5625)))
    assert (close.kind, close.at_least) == ("unknown", 0.0625)
    assert close.sentence == "4 is below the top 2, gap > 0.0625 nat: ask for more with --top"


def test_ids_that_stand_level_are_counted() -> None:
    margin = margin_of(3, 4, said((3, -0.5), (4, -0.5), (8, -0.5), (9, -1.0)))
    assert margin.sentence == "exact tie (gap 0), 3 ids stand level at the top"
    assert "at least 2 ids stand level" in margin_of(3, 4, said((3, -0.5), (4, -0.5))).sentence


def test_an_id_below_the_top_that_was_asked_for_by_name_has_its_gap() -> None:
    named = said((3, -0.5), (8, -1.5)).model_copy(update={"named": [Candidate(id=4, text=None, logprob=-9.5)]})
    margin = margin_of(3, 4, named)
    assert (margin.kind, margin.gap, margin.at_least) == ("real difference", 9.0, None)
    assert margin.sentence == "a real difference (gap 9 nat)"


def told(in_one_piece: Said, decoded: Said | None = None) -> Margin:
    site = one_site()
    prefix = tuple(site.prefix or ())
    (found,) = with_margins([site], {prefix: in_one_piece}, {} if decoded is None else {prefix: decoded}, WORDS)
    assert found.margin is not None and found.margin_in_one_piece is not None
    assert found.margin_in_one_piece.way == "in one piece"
    return found.margin


def test_a_server_that_prefers_another_id_is_not_the_oracle() -> None:
    margin = told(said((4, -0.5), (3, -0.5625)))
    assert (margin.gap, margin.chosen, margin.disagrees, margin.way) == (-0.0625, 4, True, "in one piece")
    assert margin.sentence == (
        "near tie (gap -0.0625 nat); the asked server itself prefers 4, so here it is not the recorded oracle"
    )
    stranger = told(said((8, -0.5), (9, -1.0)))
    assert stranger.kind == "unknown" and "id 3 is below the asked server's top 2" in stranger.sentence


def test_the_oracles_own_way_comes_before_the_ids_read_in_one_piece() -> None:
    margin = told(said((4, -0.5), (3, -0.5625)), said((3, -0.5), (4, -0.5)))
    assert (margin.way, margin.kind, margin.disagrees) == ("decoded", "exact tie", False)
    assert margin.sentence == (
        "exact tie (gap 0), at least 2 ids stand level at the top; decoding, it chooses the recorded 3, and reading "
        "the same ids in one piece 4: the order of computing turns it"
    )
    same = told(said((3, -0.5), (4, -1.0)), said((3, -0.5), (4, -1.0)))
    assert same.sentence == "a real difference (gap 0.5 nat); the asked server chooses the recorded 3"
    other = told(said((3, -0.5), (4, -1.0)), said((4, -0.5), (3, -1.0)))
    assert other.sentence.endswith("prefers 4, so here it is not the recorded oracle")


def test_the_server_names_ids_that_no_chunk_named() -> None:
    site = one_site(words={3: " three"})
    top = [Candidate(id=3, text="x", logprob=-0.5), Candidate(id=4, text=" four", logprob=-0.5)]
    (named,) = with_margins([site], {tuple(site.prefix or ()): Said(chosen=3, top=top)}, {}, {3: " three"})
    assert (named.oracle_text, named.other_text) == (" three", " four")
    assert named.margin is not None and named.margin.kind == "exact tie"
    assert [item.text for item in named.margin.top] == [" three", " four"], "what chunks told comes first"
    assert with_margins([site], {}, {}, {}) == [site]


# properties

ids = st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=12)


@st.composite
def chunked(draw: st.DrawFn, tokens: list[int]) -> Answer:
    chunks, rest = [], tokens
    while rest:
        size = draw(st.integers(1, len(rest)))
        chunks.append(tuple(rest[:size]))
        rest = rest[size:]
    return answer(*chunks)


@given(st.data(), ids, ids, ids)
def test_before_and_after_are_each_side_whole(
    data: st.DataObject, shared: list[int], left: list[int], right: list[int]
) -> None:
    oracle = data.draw(chunked([*shared, *left]))
    other = data.draw(chunked([*shared, *right]))
    stage = Stage("G3", "G3")
    words = vocabulary([oracle, other])
    assert all(WORDS[token] == text for token, text in words.items())
    found = sites([strict("p", stage, other, oracle)], {"p": [stage]}, words)
    assert bool(found) == (oracle.ids != other.ids)
    for site in found:
        assert site.before is not None and site.before_ids <= site.index
        assert site.before == "".join(WORDS[token] for token in oracle.ids[: site.before_ids])
        assert site.before + (site.oracle_after or "") == oracle.text
        assert site.before + (site.other_after or "") == other.text


@given(st.floats(-30, 0), st.floats(-30, 0))
def test_exactly_one_verdict_by_the_size_of_the_gap(oracle: float, other: float) -> None:
    margin = margin_of(3, 4, said(*sorted([(3, oracle), (4, other)], key=lambda pair: -pair[1])))
    assert margin.gap == oracle - other
    wanted = "exact tie" if oracle == other else "near tie" if abs(oracle - other) <= NEAR_TIE else "real difference"
    # A gap that rounds to nothing is none.
    assert margin.kind == ("exact tie" if oracle - other == 0 else wanted)
