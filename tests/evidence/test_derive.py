"""The pure parts of a derivation: statuses, pairs, the conclusion."""

from typing import Any

import pytest

from harness.evidence import derive
from harness.evidence.journal import Event
from harness.evidence.schema import Attempt, AttemptStatus, Evidence, Start, Status, SuiteFacts
from harness.host.facts import Fact, Host, Tool
from harness.lanes import load_lane
from harness.measure.gates import Gate
from harness.measure.metrics import Acceptance
from harness.plan import CampaignPlan, server_plan, strict_labels
from tests.measure.factory import make_rows

ENDED = Event(at="2026-01-01T01:00:00.000+00:00", event="campaign-ended", status="ended")


def gate(name: str, subject: str, *failures: str) -> Gate:
    compares = {"exact": 12 - len(failures), "total": 12} if name.startswith("G") else {}
    return Gate(name=name, subject=subject, passed=not failures, failures=list(failures), **compares)


def start_of(depth: int = 3, engine: Any = "simulated") -> Start:
    lane = load_lane("attach" if engine == "attach" else "simulated")
    servers = [
        server_plan(lane, label=label, depth=d, tensor_parallel=1, shape="strict", engine=engine)
        for label, d in strict_labels(depth)
    ]
    plan = CampaignPlan(
        kind="strict",
        lane=lane.name,
        engine=engine,
        suite_id="s",
        suite_sha256="0" * 64,
        depth=depth,
        tensor_parallel=1,
        servers=servers,
    )
    fact = Fact(state="unknown")
    return Start(
        campaign_id="c",
        lane_title="t",
        simulated=True,
        plan=plan,
        plan_sha256=plan.sha256(),
        suite=SuiteFacts(id="s", version=1, sha256="0" * 64, prompts=[]),
        image=None,
        model=None,
        host=Host(facts={}),
        tool=Tool(version="0", commit=fact, dirty=fact, dependencies={}),
        command="bench strict",
        depth_env=[],
    )


def attempt(label: str, rate: float | None = 100.0, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "label": label,
        "directory": label,
        "status": AttemptStatus.COMPLETE,
        "error": "",
        "depth": int(label[3]),
        "server": None,
        "rows": make_rows(),
        "canaries_before": None,
        "canaries_after": None,
        "acceptance": None,
        "client": None,
        "class_medians": {},
        "class_balanced_median": rate,
        "class_balanced_median_burst_exact": rate,
        "median_ttft_ms": 50.0,
        "ids_per_chunk": 1.0,
        "gates": [gate("stream", label)],
    }
    return Attempt(**{**values, **changes})


FOUR = {label: attempt(label) for label in ("mtp0-a", "mtp0-b", "mtp3-a", "mtp3-b")}
GATES = [
    gate("G1", "mtp0-a vs mtp0-b"),
    gate("G2", "mtp3-a vs mtp3-b"),
    gate("G3", "mtp3-a vs mtp0-a"),
    gate("G3", "mtp3-b vs mtp0-a"),
]


def status(
    attempts: dict[str, Attempt] | None = None,
    gates: list[Gate] | None = None,
    ended: Event | None = ENDED,
    start: Start | None = None,
    rated: bool = True,
) -> tuple[Status, int]:
    valid = FOUR if attempts is None else attempts
    found = GATES if gates is None else gates
    return derive._status(start or start_of(), list(valid.values()), valid, found, ended, rated=rated)


def but(**changed: Attempt) -> dict[str, Attempt]:
    return {**FOUR, **{label.replace("_", "-"): item for label, item in changed.items()}}


def test_statuses_of_contract_section_4() -> None:
    assert status() == (Status.PASSED, 0)
    failed = gate("client", "mtp0-a", "mtp0-a: too slow")
    withheld = but(mtp0_a=attempt("mtp0-a", gates=[failed]))
    assert status(withheld) == (Status.WITHHELD, 1)
    assert status(gates=[*GATES[:3], gate("G3", "mtp3-b vs mtp0-a", "G3: x")]) == (Status.WITHHELD, 1)
    assert status(gates=[gate("G1", "mtp0-a vs mtp0-b", "G1: x")]) == (Status.REJECTED, 1)
    broken = but(mtp3_a=attempt("mtp3-a", gates=[gate("stream", "mtp3-a", "mtp3-a: cut")]))
    assert status(broken) == (Status.INVALID, 1), "an invalid row is no verdict, and the evidence is written"
    dead = but(mtp3_a=attempt("mtp3-a", status=AttemptStatus.INVALID, error="dead"))
    assert status(dead) == (Status.INVALID, 2)
    stopped = but(mtp3_a=attempt("mtp3-a", status=AttemptStatus.INTERRUPTED))
    assert status(stopped) == (Status.INTERRUPTED, 2)


def test_no_end_is_an_interruption_and_no_attempt_a_start() -> None:
    assert status(ended=None) == (Status.INTERRUPTED, 2)
    assert status({}, [], ended=None) == (Status.STARTED, 2)


def test_interruption_goes_before_every_gate() -> None:
    ended = ENDED.model_copy(update={"status": "interrupted"})
    assert status(gates=[gate("G1", "mtp0-a vs mtp0-b", "G1: x")], ended=ended) == (Status.INTERRUPTED, 2)


@pytest.mark.parametrize("missing", ["mtp0-a", "mtp0-b", "mtp3-a", "mtp3-b"])
def test_passed_needs_every_server_and_every_gate(missing: str) -> None:
    assert status({k: v for k, v in FOUR.items() if k != missing}) == (Status.INVALID, 2)
    assert status(gates=GATES[:3]) == (Status.INVALID, 2)
    assert status(gates=[]) == (Status.INVALID, 2)
    assert status(rated=False) == (Status.INVALID, 2)


def test_journal_is_not_believed_about_success() -> None:
    """``campaign-ended`` with any other word gives no passed status by itself."""
    assert status({}, [], ended=ENDED.model_copy(update={"status": "passed"})) == (Status.INVALID, 2)
    assert status(ended=ENDED.model_copy(update={"error": "disk full"})) == (Status.INVALID, 2)


def test_attached_servers_are_never_passed() -> None:
    assert status(start=start_of(engine="attach")) == (Status.INVALID, 2)


def test_depth_0_is_one_pair_and_one_gate() -> None:
    two = {label: FOUR[label] for label in ("mtp0-a", "mtp0-b")}
    assert status(two, GATES[:1], start=start_of(0)) == (Status.PASSED, 0)
    assert status(two, [], start=start_of(0)) == (Status.INVALID, 2)


def test_pair_is_the_arithmetic_center_with_its_spread() -> None:
    accepted = [
        Acceptance(drafts=1, draft_tokens=3, accepted_tokens=1, rate=r, mean_acceptance_length=m, per_position=[])
        for r, m in ((0.5, 2.5), (0.7, 3.1))
    ]
    sides = [
        attempt("mtp3-a", 100.0, acceptance=accepted[0], median_ttft_ms=40.0),
        attempt("mtp3-b", 103.0, acceptance=accepted[1], class_balanced_median_burst_exact=105.0),
    ]
    pair = derive._pair(3, *sides)
    assert (pair.name, pair.a, pair.b, pair.center) == ("mtp3", 100.0, 103.0, 101.5)
    assert pair.spread == pytest.approx(3 / 101.5)
    assert pair.burst_exact_center == 102.5
    assert (pair.ttft_a_ms, pair.ttft_b_ms) == (40.0, 50.0)
    assert (pair.acceptance_rate, pair.mean_acceptance_length) == (pytest.approx(0.6), pytest.approx(2.8))
    assert pair.notes == [
        "spread 2.96% is above 1%: measure another pair and quote all servers (100.00 and 103.00 tokens/s)"
    ]
    near = derive._pair(3, sides[0], attempt("mtp3-b", 100.9))
    assert near.notes == [], "0.90 % needs no other pair"


def test_half_a_pair_has_no_center() -> None:
    for left, right in (
        (attempt("mtp3-a"), None),
        (None, attempt("mtp3-b")),
        (attempt("mtp3-a"), attempt("mtp3-b", None)),
    ):
        pair = derive._pair(3, left, right)
        assert (pair.center, pair.spread, pair.acceptance_rate) == (None, None, None)


def test_latest_attempt_of_a_label_counts() -> None:
    first = attempt("mtp0-a", status=AttemptStatus.INTERRUPTED)
    second = attempt("mtp0-a", directory="mtp0-a.2")
    assert derive._latest([first, second]) == {"mtp0-a": second}


def evidence_of(status_: Status, reasons: list[str]) -> Evidence:
    start = start_of()
    return Evidence(
        campaign_id="c",
        kind="strict",
        status=status_,
        exit_code=0,
        conclusion="",
        simulated=True,
        withheld=True,
        reasons=reasons,
        start=start,
        started_at="",
        ended_at="",
        resumed=[],
        pairs=derive._pairs(start, FOUR),
        gates=GATES,
        attempts=[],
        unknown=[],
    )


def test_conclusion_is_one_line_and_names_the_number_or_the_reason() -> None:
    assert derive._conclusion(evidence_of(Status.PASSED, [])) == (
        "SIMULATED, no measurement: MTP3 TP1 on simulated: 100.00 tokens/s, center of two fresh servers "
        "(100.00 and 100.00, spread 0.00%); G1 12/12 G2 12/12 G3 12/12 G3 12/12"
    )
    said = derive._conclusion(evidence_of(Status.INVALID, ["dead; its last log lines:\nboom\nboom", "more", "more"]))
    assert said == "MTP3 TP1 on simulated: no verdict: dead; its last log lines: (and 2 more)"
    for other in Status:
        assert "\n" not in derive._conclusion(evidence_of(other, ["a\nb"]))
        if other is not Status.PASSED:
            assert "tokens/s" not in derive._conclusion(evidence_of(other, ["a"])), "no number without a verdict"


def test_error_in_front_of_a_gate_is_no_reason_twice() -> None:
    with pytest.raises(ValueError, match="says passed=True with 1 failures"):
        Gate(name="G1", subject="x", passed=True, failures=["no"])
