"""Claims and typed numbers support what stands in a family file, and never add to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EvidenceError
from harness.evidence.imported import Basis, Figure, ImportedEvidence, ImportedGate, ImportedLadder, ImportedServer
from harness.evidence.imported import ImportedRung as Rung
from harness.publish.campaigns import Imported
from harness.publish.family import Promotion, promote
from harness.publish.family_measured import Given
from harness.publish.family_new import first
from tests.publish.families import recorded

LETTER = "packets[tiny-cpu].grades.evidence.grade"
STRICT = (("G1", "mtp0-a vs mtp0-b"), ("G2", "mtp3-a vs mtp3-b"), ("G3", "mtp3-a vs mtp0-a"))
MODEL = {"repository": "a/model", "revision": "1"}
PAIRS = ("mtp0-a", "mtp0-b", "mtp3-a", "mtp3-b")


def gates(*named: tuple[str, str]) -> list[ImportedGate]:
    return [
        ImportedGate(name=name, subject=subject, basis=Basis.CLAIMED, exact=12, total=12, passed=True)
        for name, subject in named
    ]


def claim(servers: tuple[str, ...] = PAIRS, named: tuple[tuple[str, str], ...] = STRICT, **more: Any) -> Given:
    """An import of the recorded campaign's model, on two cards."""
    rate = Figure(value=9.0, basis=Basis.CLAIMED, file="r.json", field="rate")
    evidence = ImportedEvidence.model_validate(
        {
            "schema": "b70-bench.imported/1",
            "import_id": "i",
            "conclusion": "Imported.",
            "sources": [],
            "model": MODEL,
            "gates": gates(*named),
            "servers": [
                ImportedServer(
                    label=label,
                    depth=int(label.split("mtp")[1][0]),
                    tensor_parallel=2,
                    class_balanced_median=rate,
                    ttft_ms=rate,
                )
                for label in servers
            ],
            **more,
        }
    )
    return Given(Imported(Path("i"), evidence), "imported/i")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    found = json.loads(first("f.json", [recorded("tiny")], []).data)
    assert isinstance(found, dict)
    found["weight_revisions"][0] |= MODEL
    return found


def file(made: dict[str, Any], letter: str, cards: list[int]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(made))
    value["packets"][0]["topologies"] = cards
    value["packets"][0]["grades"]["evidence"] |= {"grade": letter, "basis": "A person's sentence.", "reviewed_at": "x"}
    return value


def promoted(value: dict[str, Any], *given: Given) -> Promotion:
    return promote(json.dumps(value).encode(), "f.json", list(given))


def grade(found: Promotion) -> dict[str, Any]:
    known = json.loads(found.data)["packets"][0]["grades"]["evidence"]
    return {name: known[name] for name in ("grade", "basis", "reviewed_at")}


def test_typed_entries_raise_no_letter(made: dict[str, Any]) -> None:
    value = file(made, "D", [1])
    stood = {"grade": "D", "basis": "A person's sentence.", "reviewed_at": "x"}
    found = promoted(value, recorded("ladder0"))
    assert grade(found) == stood
    assert (LETTER, "the file's own entries would give B; no verified campaign shows it") in found.no_evidence
    found = promoted(value, claim())
    assert grade(found) == stood
    assert (LETTER, "imported claims would give B; no verified campaign shows it") in found.no_evidence
    assert not [report for report in found.grades if report.by_rule != "D"]
    assert grade(promoted(value, recorded("tiny")))["grade"] == "B", "a verified campaign does raise it"


def test_claims_raise_no_letter_and_support_the_one_that_stands(made: dict[str, Any]) -> None:
    for letter, said in (("D", "D"), ("C", "C"), ("B", "B"), ("A", "D")):
        found = promoted(file(made, letter, [1, 2]), recorded("tiny"), claim())
        assert grade(found)["grade"] == said, letter
        assert (LETTER, "imported claims would give B; no verified campaign shows it") in found.no_evidence
    found = promoted(file(made, "B", [1, 2]), recorded("tiny"))
    assert grade(found)["grade"] == "D" and "TP2: no fresh-server pair" in grade(found)["basis"]


@pytest.mark.parametrize(
    ("servers", "named", "letter"),
    [
        (PAIRS, STRICT, "B"),
        (PAIRS, (("cache-zero", "mtp0-a"),), "D"),
        (PAIRS, STRICT[:1], "C"),
        (PAIRS, STRICT[:2], "C"),
        (PAIRS, STRICT[1:], "C"),
        (("mtp0-a", "mtp3-a"), STRICT, "D"),
        (("mtp0-a", "mtp0-b", "mtp3-a"), STRICT, "C"),
        (("t1 mtp0-a", "t1 mtp0-b", "t3 mtp0-a", "t3 mtp0-b"), (("G1", "t1"), ("G1", "t3 mtp0-a vs mtp0-b")), "B"),
        (("t1 mtp0-a", "t1 mtp0-b", "t3 mtp0-a", "t3 mtp0-b"), (("G1", "t1"),), "C"),
        (("t1 mtp0-a", "t3 mtp0-b"), (("G1", "t1"), ("G1", "t3")), "D"),
    ],
)
def test_a_claimed_pair_has_both_servers_and_its_own_gates(
    made: dict[str, Any], servers: tuple[str, ...], named: tuple[tuple[str, str], ...], letter: str
) -> None:
    value = file(made, "B", [2])
    (report,) = promoted(value, claim(servers, named)).grades
    said = {"B": "B"}.get(letter, "not derived")
    assert report.by_rule == said and report.basis == ("claimed" if letter == "B" else "no evidence given")
    listed = dict(promoted(file(made, "A", [2]), claim(servers, named)).no_evidence).get(LETTER, "would give D")
    assert f"would give {letter}" in listed


@pytest.mark.parametrize(
    "more", [{"simulated": True}, {"not_publishable": ["it is simulated: nothing in it is a measurement"]}]
)
def test_an_import_that_is_no_measurement_is_refused(made: dict[str, Any], more: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError, match=r"i: it is simulated: nothing in it is a measurement"):
        promoted(made, recorded("tiny"), claim(**more))


def test_claims_add_no_coverage_word_and_support_those_that_stand(made: dict[str, Any]) -> None:
    rungs = [Rung(rung=2, tok_s=1.0, exact=2, total=2, withheld=False)]
    ladder = ImportedLadder(
        label="l", depth=0, tensor_parallel=2, classpad=True, stagger_ms=5.0, rungs=rungs, file="r.json"
    )
    servers = (*PAIRS, "mtp5-a")
    given = claim(servers, ladders=[ladder])
    before = made["packets"][0]["coverage"]
    found = promoted(made, recorded("tiny"), given)
    assert json.loads(found.data)["packets"][0]["coverage"] == before and found.changes == []
    value = json.loads(json.dumps(made))
    words = ["decode", "TTFT", "TP1", "TP2", "MTP0/3/5", "cache-zero strict suite", "stagger-exact concurrency"]
    value["packets"][0]["coverage"] = words
    found = promoted(value, recorded("tiny"), given)
    assert json.loads(found.data)["packets"][0]["coverage"] == words
    claimed = [line for line in found.claims if line.endswith("rests on imported/i alone")]
    assert [line.split("'")[1] for line in claimed] == ["TP2", "MTP0/3/5", "stagger-exact concurrency"]
    assert not [name for name, _ in found.no_evidence if "coverage[" in name]
