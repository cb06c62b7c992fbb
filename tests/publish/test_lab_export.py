"""Real recorded campaigns in the lab's formats: every figure is the evidence's, nothing unpublishable gets out."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EvidenceError, UsageError
from harness.evidence.context_schema import ContextEvidence, Point
from harness.evidence.ladder_schema import LadderEvidence
from harness.evidence.schema import Evidence
from harness.publish.campaigns import open_campaign
from harness.publish.lab import gather, rederive_import, write_imports
from harness.publish.lab_export import comparison_documents, result_document
from harness.publish.lab_package import QUALITY_GATES, attestation_document, package_document
from harness.publish.lab_result import CLASS_BALANCED
from harness.publish.lab_write import export_campaign
from harness.publish.localmaxxing import payload_document
from tests.recorded import campaign, copy


@pytest.fixture(scope="module")
def tiny() -> Evidence:
    evidence = open_campaign(campaign("tiny")).evidence
    assert isinstance(evidence, Evidence)
    return evidence


@pytest.fixture(scope="module")
def ties() -> Evidence:
    evidence = open_campaign(campaign("ties")).evidence
    assert isinstance(evidence, Evidence)
    return evidence


@pytest.fixture(scope="module")
def ladder() -> LadderEvidence:
    evidence = open_campaign(campaign("ladder0")).evidence
    assert isinstance(evidence, LadderEvidence)
    return evidence


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def test_round_trip_gives_the_same_figures(tmp_path: Path, tiny: Evidence) -> None:
    assert export_campaign(campaign("tiny"), "result", tmp_path / "result.json").refused == {}
    (written,) = write_imports(gather([tmp_path / "result.json"]), tmp_path / "back", {})
    back = rederive_import(written)
    assert {arm: figure.value for arm, figure in back.centers.items()} == {
        pair.name: pair.center for pair in tiny.pairs
    }
    assert back.spreads == {pair.name: pair.spread for pair in tiny.pairs}
    servers = {server.label: server for server in back.servers}
    assert servers.keys() == {attempt.label for attempt in tiny.attempts}
    for attempt in tiny.attempts:
        server = servers[attempt.label]
        assert server.class_balanced_median is not None and server.ttft_ms is not None
        assert server.class_balanced_median.value == attempt.class_balanced_median
        assert server.ttft_ms.value == attempt.median_ttft_ms
        assert {name: figure.value for name, figure in server.class_medians.items()} == attempt.class_medians
        assert (server.depth, server.tensor_parallel) == (attempt.depth, 1)
    assert [(gate.name, gate.subject, gate.exact, gate.total) for gate in back.gates] == [
        (gate.name, gate.subject, gate.exact, gate.total) for gate in tiny.gates
    ]
    assert (back.image_id, back.suite_sha256) == (tiny.attempts[0].server.applied.image_id, tiny.start.suite.sha256)  # type: ignore[union-attr]
    contradicted = {item.field for item in back.stale_fields}
    assert contradicted == {"output_sha256"}, "nothing in our own result contradicts the rest of it"


def test_result_names_the_failed_gates(tmp_path: Path, ties: Evidence) -> None:
    outcome = export_campaign(campaign("ties"), "result", tmp_path / "result.json")
    assert outcome.refused == {}
    data = load(tmp_path / "result.json")
    g3 = [gate for gate in ties.gates if gate.name == "G3"]
    assert g3 and not any(gate.passed for gate in g3)
    for gate in g3:
        assert data["gates_passed"][f"G3 {gate.subject}"] == f"{gate.exact}/{gate.total}"
        assert data["gates_failed"][f"G3 {gate.subject}"] == gate.failures
    assert data["status"].startswith("withheld: ") and data["not_publishable"]
    (written,) = write_imports(gather([tmp_path / "result.json"]), tmp_path / "back", {})
    back = rederive_import(written)
    assert [gate.passed for gate in back.gates if gate.name == "G3"] == [False, False]
    assert any("may not publish" in problem for problem in back.problems)


def test_comparisons_stand_for_each_gate(ties: Evidence) -> None:
    digests = {f"attempts/{item.directory}/capture.jsonl.zst": item.label for item in ties.attempts}
    documents = comparison_documents(ties, digests)
    assert list(documents) == [
        "compare-mtp0-a-vs-mtp0-b.json",
        "compare-mtp3-a-vs-mtp3-b.json",
        "compare-mtp3-a-vs-mtp0-a.json",
        "compare-mtp3-b-vs-mtp0-a.json",
    ]
    gates = {f"compare-{gate.subject.replace(' vs ', '-vs-')}.json": gate for gate in ties.gates}
    for name, document in documents.items():
        gate, told = gates[name], document["comparison"]
        assert (told["exact_prompts"], told["total_prompts"]) == (gate.exact, gate.total)
        assert told["complete_token_arrays_exact"] is gate.passed
        assert document["qualification"]["strict_pair_qualified"] is gate.passed
        assert [site["prompt_id"] for site in told["divergent_prompts"]] == [
            site.prompt_id for site in gate.divergences
        ]
    broken = documents["compare-mtp3-a-vs-mtp0-a.json"]
    site = gates["compare-mtp3-a-vs-mtp0-a.json"].divergences[0]
    assert broken["comparison"]["divergent_prompts"][0] == {
        "prompt_id": site.prompt_id,
        "first_divergence_token_zero_based": site.first_divergence_token_zero_based,
        "left_token_count": site.left_length,
        "right_token_count": site.right_length,
        "left_token_id": site.left_id,
        "right_token_id": site.right_id,
    }
    assert broken["left"]["artifacts"]["performance"]["sha256"] == "mtp3-a"


def test_what_may_not_be_published_is_refused_and_the_rest_written(tmp_path: Path) -> None:
    outcome = export_campaign(campaign("ties"), "all", tmp_path / "out")
    assert outcome.refused.keys() == {"attestation", "package", "localmaxxing"}
    assert all("a gate failed: G3" in reasons[0] for reasons in outcome.refused.values())
    assert {path.name for path in outcome.written} == {path.name for path in (tmp_path / "out").iterdir()}
    assert "result.json" in {path.name for path in outcome.written} and len(outcome.written) == 5
    single = export_campaign(campaign("ties"), "localmaxxing", tmp_path / "one.json")
    assert single.written == [] and not (tmp_path / "one.json").exists()


def test_simulated_is_refused(tiny: Evidence) -> None:
    from harness.publish.configuration import why_unpublishable

    simulated = tiny.model_copy(update={"simulated": True})
    assert why_unpublishable(simulated) == ["it is simulated: nothing in it is a measurement"]
    document = result_document(simulated, {})
    assert document["simulated"] is True and document["not_publishable"]


def test_evidence_that_does_not_verify_gives_no_file(tmp_path: Path) -> None:
    directory = copy("tiny", tmp_path)
    evidence = directory / "evidence.json"
    evidence.write_text(evidence.read_text().replace('"passed"', '"passed" ', 1))
    with pytest.raises(EvidenceError):
        export_campaign(directory, "result", tmp_path / "result.json")
    assert not (tmp_path / "result.json").exists()


def test_attestation_claims_only_what_is_shown(tiny: Evidence) -> None:
    digests = {"evidence.json": "e" * 64, "attempts/mtp3-a/capture.jsonl.zst": "c" * 64, "suite.json": "s" * 64}
    document = attestation_document(tiny, digests)
    assert document["gates"].keys() == set(QUALITY_GATES)
    assert document["gates"]["varied_task_quality_passed"] is None, "no quality evaluation is in a strict campaign"
    assert document["gates"]["exact_or_target_oracle_passed"] is document["gates"]["no_quality_loss"] is True
    assert (document["decision"], document["promotion_authorized"]) == ("pending", False)
    assert document["not_shown"].keys() == {name for name, value in document["gates"].items() if not value}
    bound = {gate for entry in document["quality_evidence"] for gate in entry["supports"]}
    assert bound == {name for name, value in document["gates"].items() if value}, "every true gate is bound to a file"
    assert [entry["path"] for entry in document["quality_evidence"]] == [
        "evidence.json",
        "attempts/mtp3-a/capture.jsonl.zst",
    ]
    assert document["headline"]["value"] == tiny.pairs[-1].center
    assert document["identity"]["optimization_identity"] == tiny.start.plan_sha256


def test_a_base_attests_no_quality_of_a_draft(tiny: Evidence) -> None:
    plan = tiny.start.plan
    base = tiny.model_copy(
        update={
            "start": tiny.start.model_copy(
                update={"plan": plan.model_copy(update={"depth": 0, "servers": plan.servers[:2]})}
            ),
            "pairs": tiny.pairs[:1],
            "gates": tiny.gates[:1],
            "attempts": tiny.attempts[:2],
        }
    )
    gates = attestation_document(base, {})["gates"]
    assert gates["no_quality_loss"] is None and gates["exact_or_target_oracle_passed"] is True


def test_package_of_a_ladder(ladder: LadderEvidence) -> None:
    (profile,) = package_document(ladder, {})["performance_profiles"]
    assert [(point["concurrent_sequences"], point["value"]) for point in profile["points"]] == [
        (rung.rung, rung.tok_s) for rung in ladder.rungs
    ]
    assert profile["points"][-1]["per_user_value"] == ladder.rungs[-1].tok_s / ladder.rungs[-1].rung  # type: ignore[operator]
    assert ladder.scope in profile["scope"] and "withheld" not in profile["scope"]
    assert profile["metric"] == "aggregate_decode" and profile["x_metric"] == "concurrent_sequences"


def test_withheld_rungs_are_a_sentence_and_no_point(ladder: LadderEvidence) -> None:
    rungs = list(ladder.rungs)
    rungs[2] = rungs[2].model_copy(update={"withheld": True, "tok_s": 1354.94, "exact": 95, "total": 96})
    (profile,) = package_document(ladder.model_copy(update={"rungs": rungs}), {})["performance_profiles"]
    assert rungs[2].rung not in [point["concurrent_sequences"] for point in profile["points"]]
    assert len(profile["points"]) == len(rungs) - 1
    assert profile["scope"].endswith(f"Measured but withheld: c{rungs[2].rung} 1354.9 (95/96).")


def test_package_of_a_depth_profile(tiny: Evidence) -> None:
    """Shown contexts only, one profile a server; no recorded depth campaign is needed for what is arithmetic."""
    points = [
        Point(
            label=label,
            depth=depth,
            context=context,
            tok_s=rate,
            tok_s_burst_exact=rate,
            ttft_ms=9.5,
            exact=None,
            total=3,
            withheld=withheld,
            why=[],
            classes=[],
        )
        for label, depth, context, rate, withheld in (
            ("mtp0", 0, 2048, 99.5, False),
            ("mtp0", 0, 4096, 98.5, False),
            ("mtp3", 3, 2048, 177.5, False),
            ("mtp3", 3, 4096, 188.5, True),
        )
    ]
    evidence = ContextEvidence(
        campaign_id="c",
        kind="depth",
        status=tiny.status,
        exit_code=0,
        conclusion="",
        scope="Measured but withheld: 4096 188.5 (2/3).",
        simulated=False,
        withheld=True,
        reasons=[],
        start=tiny.start,
        started_at="2026-01-01T00:00:00+00:00",
        ended_at=None,
        resumed=[],
        points=points,
        probes=[],
        gates=[],
        attempts=[],
        unknown=[],
    )
    profiles = package_document(evidence, {})["performance_profiles"]
    assert [[(point["context_tokens"], point["value"]) for point in profile["points"]] for profile in profiles] == [
        [(2048, 99.5), (4096, 98.5)],
        [(2048, 177.5)],
    ]
    assert all(profile["scope"].endswith("Measured but withheld: 4096 188.5 (2/3).") for profile in profiles)


def test_package_of_a_strict_campaign(tiny: Evidence) -> None:
    document = package_document(tiny, {"evidence.json": "e"})
    (profile,) = document["performance_profiles"]
    assert [(point["mtp_depth"], point["value"], point["servers"]) for point in profile["points"]] == [
        (pair.depth, pair.center, [pair.a, pair.b]) for pair in tiny.pairs
    ]
    assert document["featured_metric"]["value"] == tiny.pairs[-1].center
    assert "G3 12/12 (mtp3-b vs mtp0-a)" in profile["scope"]


def test_localmaxxing_payload(tiny: Evidence) -> None:
    (entry,) = payload_document(tiny, "a" * 64)
    payload, pair = entry["payload"], tiny.pairs[-1]
    assert (payload["tokSOut"], payload["contextLength"], payload["outputTokens"]) == (pair.center, 1024, 512)
    assert payload["ttftMs"] == (pair.ttft_a_ms + pair.ttft_b_ms) / 2  # type: ignore[operator]
    assert entry["unknown"] == ["hfId", "modelRevision", "quantization"] and not entry["unknown"] & payload.keys()
    assert payload["hardware"]["hwClass"] == "CPU_ONLY" and payload["backend"] == "cpu"
    flags = payload["engineFlags"]
    assert (flags["specNumTokens"], flags["servers"]) == (3, [pair.a, pair.b])
    assert flags["realisticSuiteCachedTokens"] == [0] * 12
    assert str(tiny.start.host.value("hostname")) not in json.dumps(entry)


def test_payload_binds_the_attestation_that_stands_beside_it(tmp_path: Path) -> None:
    export_campaign(campaign("tiny"), "all", tmp_path / "out")
    (entry,) = load(tmp_path / "out" / "localmaxxing.json")
    attestation = (tmp_path / "out" / "attestation.json").read_bytes()
    assert entry["payload"]["engineFlags"]["promotionAttestationSha256"] == hashlib.sha256(attestation).hexdigest()
    said = json.loads(attestation)["performance_evidence"]
    recorded = (campaign("tiny") / said["path"]).read_bytes()
    assert said["sha256"] == hashlib.sha256(recorded).hexdigest()


def test_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ladder campaign, which has no result"):
        export_campaign(campaign("ladder0"), "result", tmp_path / "x.json")
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        export_campaign(campaign("tiny"), "all", tmp_path / "there")
    with pytest.raises(UsageError, match="create it first"):
        export_campaign(campaign("tiny"), "result", tmp_path / "no" / "x.json")
    assert (
        CLASS_BALANCED
        in result_document(open_campaign(campaign("tiny")).evidence, {})["performance_evidence"]["mtp0-a"]
    )  # type: ignore[arg-type]
