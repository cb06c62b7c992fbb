"""A fault of the cards counts also when its attempt ended early and was measured anew (contract sections 4 and 8)."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.evidence import journal
from harness.evidence.derive import derive
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.loading import load_attempts
from harness.evidence.schema import AttemptStatus, HostRecord
from harness.host.faults import FaultLine
from harness.host.flight import LogCheck
from tests import recorded

EARLY = (AttemptStatus.INVALID, AttemptStatus.INTERRUPTED)
WEDGED = "xe 0000:03:00.0: [drm] device wedged"
CLEAN = LogCheck(state="measured", source="journal")


def with_an_early_attempt(campaign: Path, label: str, status: AttemptStatus, *, faulted: bool) -> AnyEvidence:
    """What is derived where an attempt that ended early, on a card that ``faulted``, stands before ``label``'s."""
    events = journal.load(campaign)
    files = load_attempts(campaign, events)
    place = next(number for number, item in enumerate(files) if item.label == label)
    server = files[place].server
    assert server is not None
    fault = FaultLine(at="", monotonic_s=1.0, card="0000:03:00.0", what="wedged", text=WEDGED)
    after = CLEAN.model_copy(update={"faults": [fault] if faulted else []})
    host = HostRecord(cards=["0000:03:00.0"], boot=CLEAN, probes=[], before=CLEAN, after=after)
    early = replace(
        files[place],
        directory=f"{label}.early",
        status=status,
        error="it ended early",
        capture=None,
        server=server.model_copy(update={"host": host}),
    )
    return derive(campaign, events, [*files[:place], early, *files[place:]])


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize(("name", "label"), [("tiny", "mtp3-b"), ("tiny", "mtp0-a"), ("ladder0", "mtp0")])
def test_a_fault_before_a_resume_withholds_what_was_measured_after_it(
    name: str, label: str, status: AttemptStatus
) -> None:
    campaign = recorded.campaign(name)
    assert with_an_early_attempt(campaign, label, status, faulted=False).status == "passed"
    evidence = with_an_early_attempt(campaign, label, status, faulted=True)
    assert (evidence.status, evidence.exit_code, evidence.withheld) == ("withheld", 1, True)
    assert [reason for reason in evidence.reasons if WEDGED in reason]
    assert WEDGED in evidence.conclusion
    early = next(item for item in evidence.attempts if item.directory == f"{label}.early")
    assert [(gate.name, gate.passed) for gate in early.gates] == [("host", False)]


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize(
    ("label", "gate", "verdict"),
    [("mtp3-b", "G3", "withheld"), ("mtp0-b", "G1", "rejected"), ("mtp0-a", "G1", "rejected")],
)
def test_a_difference_seen_before_a_resume_stays_one(
    label: str, gate: str, verdict: str, status: AttemptStatus
) -> None:
    """The captures of two campaigns stand for a server that once answered otherwise: no selection."""
    campaign = recorded.campaign("tiny")
    events = journal.load(campaign)
    files = load_attempts(campaign, events)
    place = next(number for number, item in enumerate(files) if item.label == label)
    same = replace(files[place], directory=f"{label}.early", status=status)
    assert derive(campaign, events, [*files[:place], same, *files[place:]]).status == "passed"

    other = load_attempts(recorded.campaign("ties"), journal.load(recorded.campaign("ties")))
    # On that model MTP3 differs from MTP0, and both from this campaign's.
    early = replace(same, capture=next(item.capture for item in other if item.label == label))
    evidence = derive(campaign, events, [*files[:place], early, *files[place:]])
    assert (evidence.status, evidence.withheld) == (verdict, True)
    failed = [item for item in evidence.gates if not item.passed]
    assert [item.name for item in failed] == [gate]
    assert failed[0].exact == failed[0].total == 12, "what was measured anew keeps its counts"
    assert all(said.startswith(f"{gate} {label}.early, which ended early: ") for said in failed[0].failures)
    assert set(failed[0].failures) <= set(evidence.reasons)
