"""What a published file may not make of itself: a measurement, a whole suite, a rate, an exact rung."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.imported import Basis
from harness.evidence.schema import Evidence
from harness.evidence.store import dump_json
from harness.publish.campaigns import open_campaign
from harness.publish.index import list_campaigns
from harness.publish.lab_export import comparison_documents, result_document
from harness.publish.lab_ladder import _exact_rungs
from tests.publish.labs import campaign_root, ids_of, imported, performance, write
from tests.recorded import campaign


def tiny(**changes: Any) -> Evidence:
    evidence = open_campaign(campaign("tiny")).evidence
    assert isinstance(evidence, Evidence)
    return evidence.model_copy(update=changes)


def test_a_simulated_result_keeps_its_mark(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    result = tmp_path / "in" / "result.json"
    result.write_bytes(dump_json(result_document(tiny(simulated=True), {})))
    (found,) = imported(tmp_path, result)
    assert found.simulated and found.conclusion.startswith("SIMULATED, no measurement: ")
    assert found.not_publishable == ["result.json: it is simulated: nothing in it is a measurement"]
    (entry,) = [item for item in list_campaigns(tmp_path).entries if item.status == "imported"]
    assert entry.marks[:2] == ("simulated", "withheld") and "claimed" in entry.marks


def test_a_simulated_comparison_keeps_its_mark(tmp_path: Path) -> None:
    name, document = next(iter(comparison_documents(tiny(simulated=True), {}).items()))
    (found,) = imported(tmp_path, write(tmp_path / name, document))
    assert found.simulated and found.conclusion.startswith("SIMULATED")


def test_a_withheld_result_keeps_its_reasons(tmp_path: Path) -> None:
    data = result_document(tiny(), {}) | {"not_publishable": ["a gate failed: G3 of a vs b"]}
    (found,) = imported(tmp_path, write(tmp_path / "r.json", data))
    assert not found.simulated and found.not_publishable == ["r.json: a gate failed: G3 of a vs b"]
    assert "its writer may not publish it" in found.conclusion


def test_what_may_be_published_has_no_mark(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, write(tmp_path / "r.json", result_document(tiny(), {})))
    assert not found.simulated and found.not_publishable == [] and found.conclusion.startswith("Imported: ")
    dumped = found.model_dump(mode="json", by_alias=True)
    assert not {"simulated", "not_publishable"} & dumped.keys(), "imports from before the marks keep their bytes"


def one_of_each_class(data: Any) -> None:
    seen: set[str] = set()
    data["rows"] = [
        row for row in data["rows"] if row["prompt_class"] not in seen and not seen.add(row["prompt_class"])
    ]
    data["summary"]["class_balanced_tok_s_1_100_intervals_after_ttft"] = {"class_prompt_counts": dict.fromkeys(seen, 1)}


def one_prompt_twice(data: Any) -> None:
    data["rows"][1]["prompt_id"] = data["rows"][0]["prompt_id"]


def one_row_more(data: Any) -> None:
    data["rows"].append(data["rows"][0] | {"prompt_id": "another", "prompt_class": "another"})


def prompts_of_its_own(data: Any) -> None:
    for at, row in enumerate(data["rows"]):
        row["prompt_id"] = f"p{at}"


@pytest.mark.parametrize("change", [one_of_each_class, one_prompt_twice, one_row_more, prompts_of_its_own])
def test_rows_that_are_not_the_suite_rederive_no_whole(tmp_path: Path, change: Any) -> None:
    root = campaign_root(tmp_path / "root")
    for path in root.rglob("performance.json"):
        data = json.loads(path.read_text())
        change(data)
        write(path, data)
    (found,) = imported(tmp_path, root)
    for server in found.servers:
        assert server.ttft_ms is None or server.ttft_ms.basis is Basis.CLAIMED
        best = server.class_balanced_median
        assert best is None or best.basis is Basis.CLAIMED or change is one_row_more
    assert not [gate for gate in found.gates if gate.basis is Basis.REDERIVED and gate.passed]
    assert any(said.startswith("G1 mtp0-a vs mtp0-b: ") for said in found.unknown)


def test_rows_of_the_suite_that_was_used_are_whole(tmp_path: Path) -> None:
    """Six prompts are all of a suite of six, once the suite itself is here and the attempt names it."""
    root = tmp_path / "root"
    data = performance("mtp0-a")
    one_of_each_class(data)
    prompts = [
        {"id": row["prompt_id"], "class": row["prompt_class"], "prompt": f"text {at}"}
        for at, row in enumerate(data["rows"])
    ]
    suite = write(root / "suite.json", {"suite_id": "six", "version": 1, "prompts": prompts})
    sha256 = hashlib.sha256(suite.read_bytes()).hexdigest()
    for label in ("mtp0-a", "mtp0-b"):
        write(root / label / "performance.json", performance(label) | {"rows": data["rows"]})
        identity = {"schema": "x.strict-attempt.v1", "attempt": label, "suite_sha256": sha256}
        write(root / label / "campaign-identity.json", identity)
    (found,) = imported(tmp_path, root)
    best = found.servers[0].class_balanced_median
    assert best is not None and best.basis is Basis.REDERIVED
    (g1,) = [gate for gate in found.gates if gate.name == "G1"]
    assert (g1.basis, g1.exact, g1.total, g1.passed) == (Basis.REDERIVED, 6, 6, True)


def batch(repeat: int, **changes: Any) -> dict[str, Any]:
    row = {"prompt_sha256": "a", "token_ids": ids_of(1)}
    return {"concurrency": 1, "repeat": repeat, "aggregate_tok_s_wall": 500.0, "rows": [row]} | changes


def rung_of(tmp_path: Path, *batches: dict[str, Any]) -> Any:
    oracle = {"rows": [{"prompt_sha256": "a", "token_ids": ids_of(1)}]}
    (found,) = imported(tmp_path, write(tmp_path / "ladder.json", {"oracle": oracle, "batches": list(batches)}))
    return found.ladders[0].rungs[0]


def test_the_warm_up_is_no_rate(tmp_path: Path) -> None:
    rung = rung_of(tmp_path, batch(1))
    assert (rung.tok_s, rung.exact, rung.withheld) == (None, 1, False)


def test_a_cache_hit_withholds_the_rung(tmp_path: Path) -> None:
    rung = rung_of(tmp_path, batch(1), batch(2, cached_tokens_all_zero=False), batch(3))
    assert (rung.tok_s, rung.exact, rung.total, rung.withheld) == (500.0, 3, 3, True)
    assert "cache" in rung.note


@pytest.mark.parametrize(
    ("said", "exact"),
    [
        ("c1 exact; c24 not exact; c32 inexact", {1}),
        ("exact c1-c24", {1, 24}),
        ("c1 isn't exact, c24 non-exact, c32 Exact", {32}),
        ("c1 exact c24 not exact", set()),
        ("exactly c1; c24 was never exact", set()),
    ],
)
def test_only_what_is_called_exact_is(said: str, exact: set[int]) -> None:
    assert _exact_rungs(said, [1, 24, 32]) == exact
