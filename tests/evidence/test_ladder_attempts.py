"""One server of a ladder: its requests against their oracles, its sequential answers, batches that were cut."""

from collections.abc import Sequence
from typing import Any

import pytest

from harness.evidence.ladder_attempts import (
    BATCH,
    derive_batch,
    derive_ladder_attempt,
    is_degenerate,
)
from harness.wire.capture import Tag
from harness.wire.exchange import Ending, Exchange
from tests.evidence.ladders import HOST, IDS, OTHER, SLOTS, answered, captured_of, ladder_plan, rung, sequential, server
from tests.wire.build import exchange

# one request


def one_batch(exchanges: Sequence[Exchange], own: Any = None, mtp0: Any = None, **plan: Any) -> Any:
    sent = [(Tag(BATCH, slot.id, "c002-p02"), item) for slot, item in zip(SLOTS, exchanges, strict=False)]
    own = {slot.id: IDS for slot in SLOTS} if own is None else own
    by_id = {slot.id: slot for slot in SLOTS}
    return derive_batch(len(sent), 2, sent, by_id, server("mtp0", 0), ladder_plan(**plan), own, mtp0)


def test_batch_times_count_from_the_barrier_and_ttft_from_the_release() -> None:
    """Both streams have their first id 20 ms after their release; the second was released 5.2 ms after the barrier."""
    found = one_batch(
        [answered(SLOTS[0], released_ns=100_000), answered(SLOTS[1], released_ns=5_200_000)], stagger_ms=5
    )
    first, second = found.requests
    assert (first.ttft_ms, second.ttft_ms) == (20.0, 20.0)
    assert (first.first_id_ms, second.first_id_ms) == pytest.approx((20.1, 25.2))
    assert (first.asked_release_ms, second.asked_release_ms) == (0.0, 5.0)
    assert (first.released_ms, second.released_ms) == pytest.approx((0.1, 5.2))
    assert found.release_error_max_ms == pytest.approx(0.2)
    last = max(item.last_byte_ms for item in found.requests)
    assert found.aggregate_tok_s_wall == pytest.approx(256 / last * 1e3)
    assert (found.exact, found.exact_own, found.exact_mtp0) == (2, 2, None)


def test_batch_against_both_oracles() -> None:
    """The second answer equals its own server's and not MTP0's: a ladder compared only with itself would miss it."""
    own = {SLOTS[0].id: IDS, SLOTS[1].id: OTHER}
    mtp0 = {SLOTS[0].id: IDS, SLOTS[1].id: IDS}
    found = one_batch([answered(SLOTS[0]), answered(SLOTS[1], OTHER)], own, mtp0)
    assert (found.exact, found.exact_own, found.exact_mtp0) == (1, 2, 1)
    at = found.requests[1].divergence
    assert (at.first_divergence_token_zero_based, at.left_id, at.right_id) == (39, 411, IDS[39])


def test_oracle_without_an_answer_is_no_agreement() -> None:
    found = one_batch([answered(SLOTS[0]), answered(SLOTS[1])], {}, {SLOTS[0].id: IDS})
    assert (found.exact, found.exact_own, found.exact_mtp0) == (0, 0, 1)


def test_no_rate_over_survivors() -> None:
    broken = exchange([], ending=Ending.CONNECT_FAILED)
    broken.request = answered(SLOTS[1]).request
    found = one_batch([answered(SLOTS[0]), broken])
    assert (found.aggregate_tok_s_wall, found.steady_tok_s) == (None, None)
    assert found.requests[1].reason == "connect-failed" and not found.requests[1].exact


@pytest.mark.parametrize("ids", [IDS[:60], IDS[:127], (*IDS, 5)])
def test_ignore_eos_that_was_not_honoured(ids: tuple[int, ...]) -> None:
    found = one_batch([answered(SLOTS[0], ids)], {SLOTS[0].id: ids})
    (item,) = found.requests
    assert (item.complete, item.reason, item.exact) == (False, "ignore-eos-not-honoured", False)
    assert item.detail == f"{len(ids)} of 128 ids came, so ignore_eos was not honoured"


def test_request_that_was_not_the_slots() -> None:
    found = one_batch([answered(SLOTS[2])])
    (item,) = found.requests
    assert (item.complete, item.reason) == (False, "not-asked")


@pytest.mark.parametrize(("cached", "said"), [(0, 0), (16, 16), (None, None)])
def test_cached_tokens_are_kept(cached: Any, said: Any) -> None:
    assert one_batch([answered(SLOTS[0], cached=cached)]).requests[0].cached_tokens == said


@pytest.mark.parametrize(
    ("ids", "degenerate"),
    [
        ((), True),
        ((0,) * 128, True),
        (IDS, False),
        ((7,) * 65 + IDS[:63], True),
        ((7,) * 64 + tuple(range(100, 164)), False),
        (tuple(range(64)) + (9,) * 64, True),
        (tuple(range(65)) + (9,) * 63, False),
    ],
)
def test_degenerate_answers(ids: tuple[int, ...], degenerate: bool) -> None:
    """One id in more than half of the places, or alone in the last 64."""
    assert is_degenerate(ids) is degenerate


# one server


def derived(entries: Sequence[tuple[Tag, Exchange]], mtp0: Any = None) -> Any:
    return derive_ladder_attempt(captured_of("mtp0", entries), SLOTS, server("mtp0", 0), ladder_plan(), HOST, mtp0)


def test_batch_that_was_cut_short_was_never_measured() -> None:
    cut = rung(4, 1)
    cut[2][1].ending = Ending.INTERRUPTED
    entries = [*sequential(), *rung(1, 1), *rung(2, 1), *cut, *rung(2, 2, sent=1)]
    found = derived(entries).attempt
    assert [(item.rung, item.number) for item in found.batches] == [(1, 1), (2, 1)]
    assert [client.rung for client in found.clients] == [1, 2]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ids": (0,) * 128}, "a degenerate answer"),
        ({"ids": IDS[:60]}, "60 of 128 ids came, so ignore_eos was not honoured"),
        ({"cached": 16}, "16 prompt tokens came from a cache"),
        ({"cached": None}, "no cached_tokens was reported"),
    ],
)
def test_sequential_answer_that_is_no_oracle(change: dict[str, Any], problem: str) -> None:
    found = derived([*sequential(count=3), *sequential(**change)[3:]])
    assert found.attempt.sequential.problems == [f"{SLOTS[3].id}: {problem}"]
    assert (found.attempt.sequential.slots, found.attempt.sequential.answered) == (4, 3)
    assert SLOTS[3].id not in found.sequential
