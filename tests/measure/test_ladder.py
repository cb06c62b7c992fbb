"""Rates, counts, shares and sites of hand-made batches; the lab's published rungs as our functions say them."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.ladder import (
    Arrivals,
    Batch,
    Request,
    Rung,
    RungClient,
    batch_rates,
    compare,
    copy_groups,
    minority_share,
    published_rate,
    sites,
    summarise_rung,
    withheld_sentence,
)
from harness.workloads.ladder import captured

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
ORACLE = tuple(range(100, 228))


def request(
    slot: str, ids: Sequence[int] = ORACLE, *, prompt: str = "", mtp0: Sequence[int] | None = None, **changes: Any
) -> Request:
    """An answer of ``slot``, compared with ORACLE (its own server's) and with ``mtp0``."""
    own, other, at = compare(slot, ids, ORACLE, mtp0)
    fields: dict[str, Any] = {
        "slot": slot,
        "prompt_sha256": prompt or slot,
        "complete": True,
        "reason": None,
        "detail": "",
        "tokens": len(ids),
        "ids_sha256": hashlib.sha256(repr(list(ids)).encode()).hexdigest(),
        "cached_tokens": 0,
        "asked_release_ms": 0.0,
        "released_ms": 0.1,
        "ttft_ms": 10.0,
        "first_id_ms": 10.1,
        "last_byte_ms": 100.0,
        "exact_own": own,
        "exact_mtp0": other,
        "divergence": at,
        "degenerate": False,
        "warnings": [],
    }
    return Request(**fields | changes)


def away(index: int, token: int = 9) -> tuple[int, ...]:
    """ORACLE with another id at ``index``."""
    return (*ORACLE[:index], token, *ORACLE[index + 1 :])


def batch(requests: Sequence[Request], number: int = 2, rate: float | None = 100.0) -> Batch:
    groups, disagreeing = copy_groups(requests)
    return Batch(
        rung=len(requests),
        number=number,
        requests=list(requests),
        aggregate_tok_s_wall=rate,
        steady_tok_s=None if rate is None else rate * 1.1,
        exact=sum(item.exact for item in requests),
        exact_own=sum(item.exact_own for item in requests),
        exact_mtp0=None,
        copy_groups=groups,
        copy_groups_disagreeing=disagreeing,
        lag_p99_us=None,
        cpu_share=None,
        cpu_us_per_read=None,
        reads=0,
        coalesced_reads=0,
        release_error_max_ms=0.1,
    )


def exact_rung(users: int, *, number: int = 2, rate: float | None = 100.0) -> Batch:
    return batch([request(f"a-c{index:03d}") for index in range(users)], number, rate)


# rates


def test_rates_of_two_staggered_streams() -> None:
    """First ids at 10 and 25 ms, one id each 10 ms; the window is from the last first token to the first finish."""
    one = Arrivals(chunks=[(10.0, 1), (20.0, 1), (30.0, 1), (40.0, 1)], last_byte_ms=41.0)
    two = Arrivals(chunks=[(25.0, 1), (35.0, 1), (45.0, 1), (55.0, 1)], last_byte_ms=56.0)
    aggregate, steady = batch_rates([one, two])
    assert aggregate == pytest.approx(8 / 0.056)
    # (25, 40]: ids at 30, 40 of the first and 35 of the second
    assert steady == pytest.approx(3 / 0.015)


def test_rates_count_ids_not_chunks() -> None:
    burst = Arrivals(chunks=[(10.0, 1), (20.0, 3), (30.0, 4)], last_byte_ms=30.0)
    assert batch_rates([burst]) == pytest.approx((8 / 0.030, 7 / 0.020))


def test_there_is_no_steady_window_when_one_ends_before_another_begins() -> None:
    one = Arrivals(chunks=[(10.0, 1), (20.0, 1)], last_byte_ms=20.0)
    two = Arrivals(chunks=[(30.0, 1), (40.0, 1)], last_byte_ms=40.0)
    assert batch_rates([one, two]) == (pytest.approx(4 / 0.040), None)
    assert batch_rates([one, Arrivals(chunks=[], last_byte_ms=50.0)]) == (pytest.approx(2 / 0.050), None)


def test_nothing_came() -> None:
    assert batch_rates([]) == (None, None)
    assert batch_rates([Arrivals(chunks=[], last_byte_ms=5.0)]) == (None, None)


CHUNKS = st.lists(st.tuples(st.floats(0.1, 1e4), st.integers(1, 5)), min_size=1, max_size=30).map(sorted)


@given(st.lists(CHUNKS, min_size=1, max_size=8))
def test_rates_are_tokens_over_time(streams: list[list[tuple[float, int]]]) -> None:
    arrivals = [Arrivals(chunks=chunks, last_byte_ms=chunks[-1][0]) for chunks in streams]
    aggregate, steady = batch_rates(arrivals)
    tokens, last = sum(size for chunks in streams for _, size in chunks), max(chunks[-1][0] for chunks in streams)
    assert aggregate == pytest.approx(tokens / last * 1e3)
    if steady is not None:
        assert steady > 0
        start, end = max(chunks[0][0] for chunks in streams), min(chunks[-1][0] for chunks in streams)
        assert steady * (end - start) / 1e3 <= tokens + 1e-6


def test_published_rate_leaves_the_warm_up_out() -> None:
    assert published_rate({1: 1.0, 2: 10.0, 3: 30.0, 4: 20.0}) == 20.0
    assert published_rate({1: 1.0, 2: 10.0, 3: 30.0}) == 20.0
    assert published_rate({1: 1.0}) is None
    assert published_rate({}) is None


def test_published_rate_is_no_median_over_survivors() -> None:
    assert published_rate({1: 5.0, 2: None, 3: 30.0}) is None
    assert published_rate({1: None, 2: 10.0}) == 10.0


# identity


def test_answer_equal_to_its_own_server_and_not_to_mtp0() -> None:
    item = request("a", mtp0=away(57))
    assert (item.exact_own, item.exact_mtp0, item.exact) == (True, False, False)
    assert item.divergence is not None
    assert (item.divergence.left_id, item.divergence.right_id) == (ORACLE[57], 9)


def test_answer_equal_to_mtp0_and_not_to_its_own_server() -> None:
    item = request("a", away(57), mtp0=away(57))
    assert (item.exact_own, item.exact_mtp0, item.exact) == (False, True, False)
    assert item.divergence is not None and item.divergence.first_divergence_token_zero_based == 57


@pytest.mark.parametrize(("own", "mtp0"), [(None, None), ((), ()), (None, ())])
def test_missing_oracle_is_no_agreement(own: Any, mtp0: Any) -> None:
    for ids in ((), ORACLE):
        exact_own, exact_mtp0, at = compare("a", ids, own, mtp0)
        assert not exact_own and not exact_mtp0 and at is not None


def test_prefix_is_no_equal_answer() -> None:
    item = request("a", ORACLE[:127])
    assert not item.exact_own and item.divergence is not None
    assert item.divergence.first_divergence_token_zero_based == 127


def test_copy_groups_as_the_lab_counts_them() -> None:
    """A verbatim suite of 16 prompts at 64 users: 4 copies of each, over 20 passes 320 groups."""
    passes = []
    for number in range(1, 21):
        requests = [request(f"p{i % 16}-s{i:03d}", prompt=f"p{i % 16}") for i in range(64)]
        if number == 7:
            requests[5] = request("p5-s005", away(39), prompt="p5")
        passes.append(batch(requests, number))
    rung = summarise_rung(64, passes, [], captured=True)
    assert (rung.copy_groups, rung.copy_groups_disagreeing) == (320, 1)
    assert (rung.exact, rung.total, rung.passes) == (1279, 1280, 20)
    assert rung.minority_share == 1 / 1280
    assert rung.exact_per_pass == [64] * 6 + [63] + [64] * 13


def test_copies_are_counted_in_a_batch_and_repeats_over_passes() -> None:
    """Unique prompts have no copies, but the same slot in another pass is the same prompt again."""
    first, second = (
        exact_rung(4, number=1),
        batch([request(f"a-c{i:03d}", away(3) if i == 0 else ORACLE) for i in range(4)]),
    )
    assert (first.copy_groups, second.copy_groups) == (0, 0)
    assert minority_share([first]) is None
    assert minority_share([first, second]) == 1 / 8


def test_minority_share_needs_no_oracle() -> None:
    """Where the oracle itself landed on the rare side, the divergence rate says 3/4 and min% says 1/4."""
    answers = [request(f"p-s{i:03d}", ORACLE if i == 0 else away(39, 411), prompt="p") for i in range(4)]
    assert sum(item.exact for item in answers) == 1
    assert minority_share([batch(answers)]) == 1 / 4


@given(st.lists(st.sampled_from("ab"), min_size=2, max_size=40))
def test_minority_share_is_at_most_a_half_of_two_answers(answers: list[str]) -> None:
    made = [request(f"p-s{i:03d}", away(3, ord(word)), prompt="p") for i, word in enumerate(answers)]
    share = minority_share([batch(made)])
    assert share == min(answers.count("a"), answers.count("b")) / len(answers)


def test_sites_name_slot_index_and_both_ids_the_most_frequent_first() -> None:
    rare, often = request("b-c001", away(12, 7)), request("a-c000", away(39, 411))
    found = sites([batch([often, rare]), batch([often, request("b-c001")], 3)])
    assert [(s.slot, s.index, s.oracle_id, s.other_id, s.times) for s in found] == [
        ("a-c000", 39, ORACLE[39], 411, 2),
        ("b-c001", 12, ORACLE[12], 7, 1),
    ]


# a rung's verdict


def test_exact_rung_is_shown() -> None:
    rung = summarise_rung(64, [exact_rung(64, number=n, rate=float(n)) for n in range(1, 21)], [], captured=True)
    assert (rung.withheld, rung.why, rung.exact, rung.total) == (False, [], 1280, 1280)
    assert f"{rung.divergence_bound:.3%}" == "0.234%"
    assert (rung.warm_up_tok_s, rung.tok_s) == (1.0, 11.0)
    assert rung.tok_s_per_pass == [float(n) for n in range(1, 21)]
    assert rung.steady_tok_s == pytest.approx(12.1)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (request("a", away(5)), "c2: 3/4 answers equal their oracle"),
        (request("a", mtp0=away(5)), "c2: 3/4 answers equal their oracle"),
        (
            request("a", complete=False, reason="connection-reset"),
            "c2: 1 requests are incomplete, the first connection-reset",
        ),
        (request("a", cached_tokens=16), "c2: 1 requests have no cached_tokens of 0"),
        (request("a", cached_tokens=None), "c2: 1 requests have no cached_tokens of 0"),
        (request("a", degenerate=True), "c2: a degenerate answer, the server is poisoned"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_one_miss_in_any_pass_withholds_the_rung(bad: Request, why: str, number: int) -> None:
    """Also in the warm-up: it is shown, in no published number."""
    passes = [exact_rung(2, number=1), exact_rung(2, number=2)]
    passes[number - 1] = batch([request("b"), bad], number)
    rung = summarise_rung(2, passes, [], captured=None)
    assert rung.withheld and why in rung.why
    assert rung.tok_s == 100.0, "a failed gate never deletes a speed"


def test_client_that_was_the_bottleneck_withholds_the_rung() -> None:
    slow = RungClient(
        rung=2, reads=9, lag_p99_us=900.0, median_gap_ms=1.0, cpu_share=0.1, failures=["c2: the client's lag"]
    )
    rung = summarise_rung(2, [exact_rung(2)], [slow], captured=None)
    assert rung.withheld and rung.why == ["c2: the client's lag"] and rung.exact == rung.total


def test_miss_in_a_batch_that_enters_no_figure_withholds_too() -> None:
    again = batch([request("a", away(3)), request("b")], 1)
    passes = [exact_rung(2, number=1), exact_rung(2, number=2)]
    rung = summarise_rung(2, passes, [], captured=None, beside=[again, exact_rung(2, number=2)])
    assert (rung.exact, rung.total, rung.passes, rung.withheld) == (4, 4, 2, True)
    assert rung.why[0].startswith("c2: 1/2 answers equal their oracle in a pass 1 that enters no figure")


def test_one_pass_has_no_published_rate() -> None:
    rung = summarise_rung(2, [exact_rung(2, number=1)], [], captured=None)
    assert (rung.tok_s, rung.warm_up_tok_s) == (None, 100.0)
    assert withheld_sentence([rung]) == ""


def test_graphs_are_captured_up_to_the_ceiling_by_tokens_not_users() -> None:
    """Ceiling 64: at depth 3 a request is four tokens, so only c1 to c16 run captured."""
    rungs = [1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96]
    assert [r for r in rungs if captured(r, 0, 64)] == rungs[:-1]
    assert [r for r in rungs if captured(r, 1, 64)] == [1, 2, 4, 8, 12, 16, 20, 24, 32]
    assert [r for r in rungs if captured(r, 3, 64)] == [1, 2, 4, 8, 12, 16]
    assert [r for r in rungs if captured(r, 3, 128)] == [1, 2, 4, 8, 12, 16, 20, 24, 32]
    assert captured(8, 3, None) is None


# the lab's published rungs


def lab() -> Any:
    path = SHARED / "lab" / "ladder-rungs.extract.json"
    if not path.is_file():
        pytest.skip("the lab's published rungs are not here")
    return json.loads(path.read_text())


def published_rung(users: int, rate: float, missed: int, passes: int) -> Rung:
    """Batches with the published rate and the published misses in the last pass."""
    batches = [exact_rung(users, number=number, rate=rate) for number in range(1, passes)]
    last = [request(f"a-c{i:03d}", away(39) if i < missed else ORACLE) for i in range(users)]
    return summarise_rung(users, [*batches, batch(last, passes, rate)], [], captured=True)


def published_ladder(profile: Any, passes: int = 4) -> list[Rung]:
    """The rungs of one profile, with the misses that its identity text tells."""
    counts = {int(c): (int(n), int(total)) for c, n, total in re.findall(r"c(\d+) (\d+)/(\d+)", profile["identity"])}
    made = []
    for word, rate in profile["tok_s"].items():
        users = int(word)
        exact, total = counts.get(users, (users * passes, users * passes))
        assert total == users * passes, "pooled over four passes, the warm-up included"
        made.append(published_rung(users, rate, total - exact, passes))
    return made


def test_lab_tp1_mtp0_is_withheld_where_it_was_published_as_withheld() -> None:
    rungs = published_ladder(lab()["r293"]["tp1_mtp0"])
    assert withheld_sentence(rungs) == "Measured but withheld: c24 1354.9 (95/96), c64 2163.6 (255/256)"
    shown = {rung.rung: rung.tok_s for rung in rungs if not rung.withheld}
    assert shown == {1: 95.8, 2: 183.1, 4: 347.3, 8: 637.5, 12: 827.0, 16: 1052.3, 20: 1198.5, 32: 1624.5}


@pytest.mark.parametrize(
    ("profile", "withheld"),
    [
        ("tp2_mtp0", {20: (78, 80), 24: (94, 96), 32: (126, 128), 64: (255, 256)}),
        ("tp2_depth3", {2: (7, 8), 4: (15, 16), 12: (46, 48), 16: (63, 64)}),
    ],
)
def test_lab_tp2_ladders(profile: str, withheld: dict[int, tuple[int, int]]) -> None:
    rungs = published_ladder(lab()["r293"][profile])
    assert {rung.rung: (rung.exact, rung.total) for rung in rungs if rung.withheld} == withheld


def test_lab_stagger_is_exact_at_mtp0_and_not_at_depth_3() -> None:
    said = lab()["r293"]["stagger_r5_tp1_c64"]
    for text, withheld in ((said["mtp0"], False), (said["mtp3"], True)):
        exact, total, rate = re.fullmatch(r"(\d+)/(\d+) at ([\d.]+)", text).groups()  # type: ignore[union-attr]
        missed = int(total) - int(exact)
        batches = [exact_rung(64, number=n, rate=float(rate)) for n in range(1, 21)]
        for number in range(20):
            here, missed = min(missed, 64), missed - min(missed, 64)
            slots = [request(f"a-c{i:03d}", away(9) if i < here else ORACLE) for i in range(64)]
            batches[number] = batch(slots, number + 1, float(rate))
        rung = summarise_rung(64, batches, [], captured=True)
        assert (rung.exact, rung.total, rung.withheld, rung.tok_s) == (int(exact), int(total), withheld, float(rate))
