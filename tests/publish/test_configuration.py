"""What may be published, and on which cards it ran: contract sections 4, 5 and 8."""

from typing import Any

import pytest

from harness.evidence.ladder_schema import LadderEvidence
from harness.evidence.schema import AttemptStatus, Evidence, Status
from harness.host.facts import Fact
from harness.measure.gates import Gate
from harness.publish.campaigns import open_campaign
from harness.publish.configuration import cards_of, why_unpublishable
from harness.publish.lab_export import cards_words
from harness.publish.lab_package import package_document
from harness.publish.localmaxxing import payload_document
from harness.publish.projection import bandwidth_of
from tests.recorded import campaign


@pytest.fixture(scope="module")
def ladder() -> LadderEvidence:
    evidence = open_campaign(campaign("ladder0")).evidence
    assert isinstance(evidence, LadderEvidence)
    return evidence


@pytest.fixture(scope="module")
def tiny() -> Evidence:
    evidence = open_campaign(campaign("tiny")).evidence
    assert isinstance(evidence, Evidence)
    return evidence


def missed(ladder: LadderEvidence, **changes: Any) -> LadderEvidence:
    """Its last rung with a miss, and nothing else wrong."""
    why = "c8: 23/24 answers equal their oracle"
    rungs = [*ladder.rungs[:-1], ladder.rungs[-1].model_copy(update={"withheld": True, "exact": 23, "why": [why]})]
    whole = {"rungs": rungs, "status": Status.WITHHELD, "withheld": True, "reasons": [why]}
    return ladder.model_copy(update=whole | changes)


@pytest.mark.parametrize("status", [Status.INVALID, Status.REJECTED, Status.STARTED, Status.INTERRUPTED])
def test_a_ladder_without_a_verdict_is_refused(ladder: LadderEvidence, status: Status) -> None:
    attempt = ladder.attempts[-1].model_copy(update={"status": AttemptStatus.INVALID, "error": "it died", "gates": []})
    broken = ladder.model_copy(update={"status": status, "withheld": True, "attempts": [attempt]})
    assert len(why_unpublishable(broken)) == 1
    assert why_unpublishable(ladder) == []


def test_a_failed_gate_of_an_earlier_server_that_counts_is_not_forgotten(ladder: LadderEvidence) -> None:
    first = ladder.attempts[-1]
    gate = Gate(name="canaries", subject=first.label, passed=False, failures=["canaries: 1 of 8 differs"])
    attempts = [first.model_copy(update={"gates": [gate]}), first.model_copy(update={"directory": "mtp0-2"})]
    both = ladder.model_copy(
        update={"status": Status.WITHHELD, "withheld": True, "attempts": attempts, "reasons": gate.failures}
    )
    assert why_unpublishable(both) == ["a gate failed: canaries of mtp0"]


def test_a_reason_that_is_no_rungs_own_withholds_the_ladder(ladder: LadderEvidence) -> None:
    pulse = "mtp0: canary after c4 pass 2: its answer changed"
    found = missed(ladder)
    assert why_unpublishable(found.model_copy(update={"reasons": [pulse, *found.reasons]})) == [
        f"it is withheld as a whole: {pulse}"
    ]


def test_a_missed_rung_alone_leaves_the_others_exportable(ladder: LadderEvidence) -> None:
    found = missed(ladder)
    assert why_unpublishable(found) == []
    (profile,) = package_document(found, {})["performance_profiles"]
    assert [point["concurrent_sequences"] for point in profile["points"]] == [rung.rung for rung in found.rungs[:-1]]
    assert "Measured but withheld: c8" in profile["scope"] and "(23/24)" in profile["scope"]


def on(evidence: Evidence, target: str, ids: list[str | None]) -> Evidence:
    """As if it came from a host with these cards, with the servers started for ``target``."""
    raw = evidence.model_dump(mode="json", by_alias=True)
    names = [f"0000:{at:02x}:00.0" for at in range(len(ids))]
    facts = raw["start"]["host"]["facts"]
    facts["cards"] = Fact(state="measured", value=names).model_dump(mode="json")
    for name, found in zip(names, ids, strict=True):
        fact = Fact(state="unknown") if found is None else Fact(state="measured", value=found)
        facts[f"card {name} device_id"] = fact.model_dump(mode="json")
    for attempt in raw["attempts"]:
        attempt["server"]["applied"]["env"] |= {"VLLM_TARGET_DEVICE": target}
    return Evidence.model_validate(raw)


@pytest.mark.parametrize(
    ("target", "ids", "words", "name"),
    [
        ("cpu", ["0xe223"], "no card, engine process (TP1)", None),
        ("xpu", [], "no card, engine process (TP1)", None),
        ("xpu", ["0xe223"], "one B70 (TP1)", "Intel Arc Pro B70"),
        ("xpu", ["0xe20b"], "one Intel card (device id 0xe20b) (TP1)", None),
        ("xpu", ["0xe223", "0xe20b"], "one Intel card (device id 0xe20b or 0xe223) (TP1)", None),
        ("xpu", [None], "one Intel card of unknown kind (device id not recorded) (TP1)", None),
        ("xpu", ["0xe223", None], "one Intel card of unknown kind (device id not recorded) (TP1)", None),
    ],
)
def test_only_a_recorded_card_is_called_a_b70(
    tiny: Evidence, target: str, ids: list[str | None], words: str, name: str | None
) -> None:
    found = on(tiny, target, ids)
    assert cards_words(found, 1).replace("engine docker", "engine process") == words
    (entry,) = payload_document(found, "a" * 64)
    payload = entry["payload"]
    present = not words.startswith("no card")
    assert payload["backend"] == ("xpu" if present else "cpu")
    assert payload["hardware"]["hwClass"] == ("DISCRETE_GPU" if present else "CPU_ONLY")
    assert payload["hardware"].get("gpuName") == name
    assert ("hardware.gpuName" in entry["unknown"]) is (present and name is None)
    assert words.split(" (")[0].split(",")[0] in package_document(found, {})["performance_profiles"][0]["scope"]


def test_a_simulated_server_ran_on_no_card(tiny: Evidence) -> None:
    found = on(tiny, "xpu", ["0xe223"])
    plan = found.start.plan.model_copy(update={"engine": "simulated"})
    simulated = found.model_copy(update={"start": found.start.model_copy(update={"plan": plan})})
    assert cards_of(found).b70 and not cards_of(simulated).present


def test_the_bandwidth_is_that_of_the_recorded_card(tiny: Evidence) -> None:
    known, assumed = bandwidth_of(on(tiny, "xpu", ["0xe223"])), bandwidth_of(on(tiny, "xpu", [None]))
    assert known is not None and "assumed" not in known[1]
    assert assumed is not None and assumed[1].endswith("that the cards are B70s is assumed, no device id is recorded")
    assert bandwidth_of(on(tiny, "xpu", ["0xe20b"])) is None
    assert bandwidth_of(on(tiny, "xpu", ["0xe223", "0xe20b"])) is None
    assert bandwidth_of(on(tiny, "cpu", ["0xe223"])) is None
