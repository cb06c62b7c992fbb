"""A ladder's files → evidence: passes over servers, the tie to MTP0, statuses, classification, scope."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EvidenceError
from harness.evidence.journal import Event
from harness.evidence.ladder import ORACLE, ORACLE_LABEL, derive_ladder
from harness.evidence.ladder_attempts import (
    answers_sha256,
    load_answers,
)
from harness.evidence.ladder_passes import Passes
from harness.evidence.ladder_schema import LadderAttempt, LadderEvidence
from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import AttemptStatus, Status
from tests.evidence.ladders import (
    IDS,
    OTHER,
    SLOTS,
    SUITE,
    answered,
    attempt,
    captured_of,
    complete,
    ladder_plan,
    rung,
    sequential,
    start_of,
    whole,
)
from tests.measure.test_ladder import away, request
from tests.measure.test_ladder import batch as batch_of

# passes over servers


def test_passes_are_whole_on_one_server_and_without_a_hole() -> None:
    cut = attempt("mtp0", *whole(1), *whole(2)[:2], status=AttemptStatus.INTERRUPTED)
    assert Passes(ladder_plan(), []).done == 0
    assert Passes(ladder_plan(), [cut]).done == 1
    assert Passes(ladder_plan(), [attempt("mtp0", *whole(2, 3))]).done == 0
    assert Passes(ladder_plan(), [attempt("mtp0", *whole(1, 3))]).done == 1
    # The rungs of pass 2 on two servers are no whole pass.
    assert Passes(ladder_plan(), [cut, attempt("mtp0.2", *whole(1), whole(2)[2])]).done == 1
    assert Passes(ladder_plan(), [cut, attempt("mtp0.2", *whole(1, 2, 3))]).done == 3


def test_resumed_ladder_counts_each_pass_once() -> None:
    cut = attempt("mtp0", *whole(1, rate=10), *whole(2, rate=20)[:2], status=AttemptStatus.INTERRUPTED)
    passes = Passes(ladder_plan(), [cut, attempt("mtp0.2", *whole(1, rate=11), *whole(2, rate=21), *whole(3, rate=31))])
    rungs = passes.rungs(0, [])
    assert [(item.rung, item.exact, item.total, item.passes) for item in rungs] == [
        (1, 3, 3, 3),
        (2, 6, 6, 3),
        (4, 12, 12, 3),
    ]
    assert all(item.tok_s_per_pass == [10, 21, 31] and item.tok_s == 26 for item in rungs)
    assert not any(item.withheld for item in rungs)
    assert passes.unproven() == [
        "mtp0: pass 1 was measured on a server that was interrupted: its exclusive use is not proven"
    ]


def test_miss_in_the_repeated_warm_up_or_the_cut_pass_is_not_forgotten() -> None:
    bad = batch_of([request("a"), request("b", away(3))], 2)
    cut = attempt("mtp0", *whole(1), whole(2)[0], bad, status=AttemptStatus.INVALID)
    rungs = {item.rung: item for item in Passes(ladder_plan(), [cut, attempt("mtp0.2", *whole(1, 2, 3))]).rungs(0, [])}
    assert [users for users, item in rungs.items() if item.withheld] == [2]
    assert (rungs[2].exact, rungs[2].total) == (6, 6)
    assert "1/2 answers equal their oracle in a pass 2 that enters no figure" in rungs[2].why[0]


def test_servers_whose_passes_count_are_named() -> None:
    first = attempt("mtp0", *whole(1, 2), status=AttemptStatus.INVALID)
    second = attempt("mtp0.2", *whole(1)[:1], status=AttemptStatus.INTERRUPTED)
    assert Passes(ladder_plan(), [first, second, attempt("mtp0.3", *whole(1, 3))]).unproven() == [
        "mtp0: passes 1 to 2 were measured on a server that failed: its exclusive use is not proven"
    ]


# the whole campaign


STARTED = Event(at="2026-01-01T00:00:00.000+00:00", event="campaign-started")
ENDED = Event(at="2026-01-01T01:00:00.000+00:00", event="campaign-ended", status="ended")


def campaign(
    tmp_path: Path, files: Sequence[AttemptFiles], *, depth: int = 0, events: Any = (STARTED, ENDED), **plan: Any
) -> LadderEvidence:
    return derive_ladder(tmp_path, start_of(depth, ladder_plan(**plan)), list(events), list(files), SUITE)


def test_depth_3_that_equals_mtp0(tmp_path: Path) -> None:
    found = campaign(
        tmp_path, [complete(ORACLE_LABEL), complete("mtp3", rung(1, 1), rung(2, 1), rung(4, 1))], depth=3, passes=1
    )
    (gate,) = found.gates
    assert (gate.name, gate.subject, gate.passed, gate.exact, gate.total) == (
        "oracle",
        "mtp3 vs mtp0-oracle, sequential",
        True,
        4,
        4,
    )
    assert (found.oracle.source, found.oracle.exact, found.oracle.total) == ("server", 4, 4)
    assert [(item.exact, item.exact_own, item.exact_mtp0) for item in found.rungs] == [(1, 1, 1), (2, 2, 2), (4, 4, 4)]
    assert found.attempts[0].batches == []


def test_depth_3_that_agrees_with_itself_only(tmp_path: Path) -> None:
    files = [
        complete(ORACLE_LABEL),
        complete("mtp3", rung(1, 1, OTHER), rung(2, 1, OTHER), rung(4, 1, OTHER), ids=OTHER),
    ]
    found = campaign(tmp_path, files, depth=3, passes=1)
    (gate,) = found.gates
    assert (gate.passed, gate.exact, gate.total, len(gate.divergences)) == (False, 0, 4, 4)
    assert gate.failures[0] == f"oracle: {SLOTS[0].id} differs at token 39: 411 against {IDS[39]} (128 and 128 ids)"
    assert all(
        item.withheld and (item.exact, item.exact_own, item.exact_mtp0) == (0, item.total, 0) for item in found.rungs
    )
    assert (found.status, found.exit_code, found.classification) == (Status.WITHHELD, 1, None)


def test_oracle_that_is_the_same_server_is_none(tmp_path: Path) -> None:
    oracle, arm = complete(ORACLE_LABEL, directory="same"), complete("mtp3", rung(1, 1), directory="same")
    (gate,) = campaign(tmp_path, [oracle, arm], depth=3, rungs=[1, 4], passes=1).gates
    assert not gate.passed and "are the same server" in gate.failures[0]


def test_oracle_that_speculates_is_none(tmp_path: Path) -> None:
    oracle = complete(ORACLE_LABEL)
    assert oracle.server is not None and oracle.server.applied is not None
    oracle.server.applied.arguments += ["--speculative-config", "{}"]
    (gate,) = campaign(tmp_path, [oracle, complete("mtp3")], depth=3).gates
    assert any("has depth 0 and a speculative config, so it is no oracle" in failure for failure in gate.failures)


def test_broken_oracle_slot_is_no_agreement(tmp_path: Path) -> None:
    oracle = complete(ORACLE_LABEL)
    assert oracle.capture is not None
    oracle.capture.exchanges[2] = (oracle.capture.exchanges[2][0], answered(SLOTS[2], IDS[:50]))
    (gate,) = campaign(tmp_path, [oracle, complete("mtp3")], depth=3).gates
    assert (gate.exact, gate.total, gate.passed) == (3, 4, False)


def test_fresh_mtp0_server_of_a_resumed_ladder_is_compared_with_the_first(tmp_path: Path) -> None:
    first, second = (
        complete("mtp0", rung(1, 1)),
        complete("mtp0", rung(1, 1, OTHER), rung(1, 2, OTHER), directory="mtp0.2", ids=OTHER),
    )
    found = campaign(tmp_path, [first, second], rungs=[1, 4], passes=2)
    assert found.oracle.source == "own"
    (gate,) = found.gates
    assert (gate.subject, gate.exact, gate.passed) == ("mtp0.2 vs mtp0, sequential", 0, False)


def test_interrupted_sequential_oracle_is_no_difference(tmp_path: Path) -> None:
    arm = captured_of("mtp3", sequential(count=2))
    found = campaign(tmp_path, [complete(ORACLE_LABEL), arm], depth=3, events=[STARTED])
    assert (found.status, found.exit_code, found.gates, found.passes_done) == (Status.INTERRUPTED, 2, [], 0)


def test_lent_oracle_is_read_and_its_hash_checked(tmp_path: Path) -> None:
    lent = json.dumps({slot.id: IDS for slot in SLOTS}).encode()
    (tmp_path / ORACLE).write_bytes(lent)
    digest = answers_sha256(load_answers(lent))
    arm = complete("mtp3", rung(1, 1))
    found = campaign(tmp_path, [arm], depth=3, rungs=[1, 4], passes=1, oracle=digest)
    assert (found.oracle.source, found.oracle.exact, found.oracle.total) == ("evidence", 4, 4)
    assert found.gates[0].subject == "mtp3 vs MTP0, sequential"
    (tmp_path / ORACLE).write_bytes(lent.replace(b"1000", b"1001", 1))
    with pytest.raises(EvidenceError, match=r"oracle\.json isn't the oracle that was given"):
        campaign(tmp_path, [arm], depth=3, rungs=[1, 4], passes=1, oracle=digest)
    (tmp_path / ORACLE).unlink()
    with pytest.raises(EvidenceError, match=r"oracle\.json of c can't be read"):
        campaign(tmp_path, [arm], depth=3, rungs=[1, 4], passes=1, oracle=digest)


@pytest.mark.parametrize("text", ["[]", '{"a": "b"}', '{"a": [1, true]}', '{"a": [1.5]}', "{", "null"])
def test_what_is_no_set_of_answers(text: str) -> None:
    with pytest.raises(ValueError):
        load_answers(text.encode())


def test_attempt_that_the_plan_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="has an attempt mtp7, which the plan doesn't know"):
        campaign(tmp_path, [captured_of("mtp7", [])])


def judged(*attempts: LadderAttempt, events: Any = (STARTED, ENDED), **plan: Any) -> LadderEvidence:
    from harness.evidence import ladder
    from harness.evidence.ladder_schema import OracleFacts

    wanted = ladder_plan(**plan)
    passes = Passes(wanted, list(attempts))
    return ladder._evidence(
        start_of(0, wanted), list(events), wanted, list(attempts), OracleFacts(source="own"), [], passes, []
    )


def test_exact_ladder_at_a_barrier_is_qualified_and_staggered_is_certified() -> None:
    done = attempt("mtp0", *whole(1, 2, 3))
    barrier, staggered = judged(done), judged(done, stagger_ms=5.0)
    assert (barrier.status, barrier.exit_code, barrier.classification) == (
        Status.PASSED,
        0,
        "output-identity-qualified",
    )
    assert (staggered.status, staggered.classification) == (Status.PASSED, "harness-certified")
    assert "all at a barrier, 3 passes (pass 1 is warm-up and in no published rate)" in barrier.scope
    assert "5 ms stagger" in staggered.scope and staggered.scope.endswith("Exact in every pass: c1, c2, c4.")
    assert SUITE.suite_id in barrier.scope, "exactness depends on the suite, so every sentence names it"
    assert barrier.conclusion.startswith(
        "SIMULATED, no measurement: MTP0 TP1 ladder on simulated: output-identity-qualified"
    )
    assert "12/12 exact (divergence below 22.092% at 95 %)" in barrier.conclusion


def test_one_miss_withholds_the_rung_and_the_word() -> None:
    bad = batch_of([request("a"), request("b", away(39, 411))], 3, 54.5)
    found = judged(attempt("mtp0", *whole(1, 2), whole(3)[0], bad, whole(3)[2]), stagger_ms=5.0)
    assert (found.status, found.exit_code, found.classification, found.withheld) == (Status.WITHHELD, 1, None, True)
    assert found.scope.endswith("Exact in every pass: c1, c4. Measured but withheld: c2 77.2 (5/6).")
    assert [(s.slot, s.index, s.other_id) for s in found.rungs[1].sites] == [("b", 39, 411)]
    assert "c2: 5/6 answers equal their oracle" in found.reasons


@pytest.mark.parametrize(
    ("attempts", "events", "expected"),
    [
        ([], [STARTED], (Status.STARTED, 2)),
        ([attempt("mtp0", *whole(1, 2, 3))], [STARTED], (Status.INTERRUPTED, 2)),
        ([attempt("mtp0", *whole(1), status=AttemptStatus.INTERRUPTED)], [STARTED, ENDED], (Status.INTERRUPTED, 2)),
        ([attempt("mtp0", *whole(1), status=AttemptStatus.INVALID)], [STARTED, ENDED], (Status.INVALID, 2)),
        ([attempt("mtp0", *whole(1, 2))], [STARTED, ENDED], (Status.INVALID, 2)),
        ([attempt("mtp0", *whole(1, 2, 3))], [STARTED, ENDED.model_copy(update={"error": "x"})], (Status.INVALID, 2)),
        ([], [STARTED, ENDED], (Status.INVALID, 2)),
    ],
)
def test_campaign_without_a_verdict(attempts: Any, events: Any, expected: Any) -> None:
    found = judged(*attempts, events=events)
    assert (found.status, found.exit_code) == expected
    assert found.classification is None and found.withheld


def test_server_that_failed_and_was_replaced_does_not_spoil_the_verdict_but_is_told() -> None:
    died = attempt("mtp0", *whole(1), status=AttemptStatus.INVALID, error="mtp0: the server has ended")
    found = judged(died, attempt("mtp0.2", *whole(1, 2, 3)))
    assert (found.status, found.classification) == (Status.PASSED, "output-identity-qualified")
    assert any("measured on a server that failed" in sentence for sentence in found.unknown)


def test_canary_that_was_wrong_before_a_server_was_replaced_is_not_forgotten() -> None:
    poisoned = attempt(
        "mtp0", *whole(1), status=AttemptStatus.INVALID, pulse_problems=["canary after c004-p01: the answer changed"]
    )
    found = judged(poisoned, attempt("mtp0.2", *whole(1, 2, 3)))
    assert (found.status, found.exit_code, found.classification) == (Status.WITHHELD, 1, None)
    assert "mtp0: canary after c004-p01: the answer changed" in found.reasons


def test_one_pass_has_no_published_rate() -> None:
    found = judged(attempt("mtp0", *whole(1)), passes=1)
    assert found.status is Status.PASSED
    assert "one pass only, so no published rate" in found.scope and "no published rate" in found.conclusion


def test_every_rung_says_whether_it_ran_in_graphs() -> None:
    assert [item.captured for item in judged(attempt("mtp0", *whole(1, 2, 3)), ceiling=2).rungs] == [True, True, False]
    assert [item.captured for item in judged(attempt("mtp0", *whole(1, 2, 3)), ceiling=None).rungs] == [None] * 3


def test_evidence_is_its_own_json() -> None:
    found = judged(attempt("mtp0", *whole(1, 2, 3)))
    assert LadderEvidence.model_validate_json(found.model_dump_json(by_alias=True)) == found
