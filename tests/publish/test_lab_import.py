"""The lab's published files, imported: figures to the last bit, nulls and stale fields by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EvidenceError, UsageError
from harness.evidence.imported import Basis, ImportedEvidence
from harness.publish.campaigns import Imported, open_any
from harness.publish.lab import gather, rederive_import, verify_import, write_imports
from tests.publish.labs import LAB, campaign_root, ids_of, imported, lab_file, write


def one(tmp_path: Path, name: str) -> ImportedEvidence:
    (found,) = imported(tmp_path, lab_file(name))
    return found


def stale(evidence: ImportedEvidence) -> dict[str, str]:
    return {item.field: item.why for item in evidence.stale_fields}


def attempt_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "attempt"
    folder.mkdir()
    for name in (
        "performance.extract.json",
        "campaign-identity.json",
        "canaries.json",
        "compare-mtp3-a-vs-mtp0-a.json",
        "container-inspect.extract.json",
        "realistic-suite-v1.json",
    ):
        (folder / name).write_bytes(lab_file(name).read_bytes())
    return folder


def test_strict_attempt_is_rederived_where_its_rows_are(tmp_path: Path) -> None:
    (evidence,) = imported(tmp_path, attempt_folder(tmp_path))
    server = next(item for item in evidence.servers if item.label == "mtp3-a")
    code, prose = server.class_medians["code"], server.class_medians["prose"]
    assert (code.value, code.basis, code.claimed) == (111.0183483740926, Basis.REDERIVED, 111.0183483740926)
    assert prose.basis is Basis.CLAIMED, "one of its two rows is not in the extract"
    assert server.class_balanced_median is not None
    assert (server.class_balanced_median.value, server.class_balanced_median.basis) == (
        123.81560056918119,
        Basis.CLAIMED,
    )
    rates = {
        row.prompt_id: (row.tok_s_1_100.value, row.tok_s_1_100.claimed, round(row.tok_s_burst_exact or 0, 2))
        for row in evidence.rows
        if row.tok_s_1_100 is not None
    }
    assert len(rates) == 4 and all(ours == theirs for ours, theirs, _ in rates.values())
    assert (rates["code-review"][2], rates["sql-debugging"][2]) == (113.09, 114.54)
    warned = {row.prompt_id: [text.split(":")[0] for text in row.warnings] for row in evidence.rows}
    assert warned["code-review"] == ["burst-difference"] and warned["incident-retrospective"] == ["merged-first-read"]
    assert [(suite.prompts, suite.classes["operations"]) for suite in evidence.suites] == [(12, 3)]


def test_requested_against_applied_and_the_swap_are_problems(tmp_path: Path) -> None:
    folder = attempt_folder(tmp_path)
    (evidence,) = imported(tmp_path, folder, asked={"VLLM_XPU_FP8_BLOCK_W8A16": "0"})
    said = "\n".join(evidence.problems)
    assert "VLLM_XPU_FP8_BLOCK_W8A16 was asked as '0' and runs as '1'" in said
    assert "memory limit is 12 GiB and memory+swap 20 GiB: refused" in said
    (tmp_path / "again").mkdir()
    (without,) = imported(tmp_path / "again", folder)
    assert "VLLM_XPU_FP8_BLOCK_W8A16 runs as '1' on a W4A16 server, where it should be off" in "\n".join(
        without.problems
    )


def test_nothing_of_a_host_reaches_the_evidence(tmp_path: Path) -> None:
    (evidence,) = imported(tmp_path, attempt_folder(tmp_path))
    written = (tmp_path / "out" / "evidence.json").read_text()
    assert "b70-host" not in written and "/home" not in written and "bench-results" not in written
    assert evidence.hosts == ["AMD EPYC 9015 8-Core Processor"]


def test_strict_result_names_its_null_and_stale_fields(tmp_path: Path) -> None:
    evidence = one(tmp_path, "qwen35-9b-w4a16-20260912-r304-strict-result.json")
    assert {arm: figure.value for arm, figure in evidence.centers.items()} == {
        "mtp3": 123.53588304330694,
        "mtp0": 64.32202547430212,
    }
    assert [item.field for item in evidence.null_fields] == ["compilation_config", "runtime_env.QUANTIZATION"]
    found = stale(evidence)
    assert found.keys() >= {
        "runtime_env.VLLM_XPU_FP8_BLOCK_W8A16",
        "runtime_env.QUANTIZATION",
        "compilation_config",
        "performance_evidence.mtp3-*",
        "centers.mtp0_class_balanced_tok_s",
        "gates_passed.G1 mtp0-a vs mtp0-b",
        "gates_passed.G3 mtp3-a vs mtp0-a",
        "output_sha256",
        "identity_claim",
        "notes",
        "oracle_root",
        "attempts.mtp3-a",
        "attempts.mtp3-b",
        "campaign_config",
        "model.served_as",
    }
    assert "gates_passed.G2 mtp3-a vs mtp3-b" not in found, "both lists of hashes stand in the file and are equal"
    assert "image_id" not in found and "status" not in found
    assert all(gate.basis is Basis.CLAIMED for gate in evidence.gates)
    assert evidence.model["revision"] == "a398088c4228b0ae0c8c78df88fd1e4bf445f068"


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("status", "Qwen3.5-4B W4A16, one B70 (TP1), MTP depth 3", "status"),
        ("status", "Qwen3.5-9B FP8-dynamic, one B70 (TP1), MTP depth 3", "status"),
        ("status", "Qwen3.5-9B W4A16, one B70 (TP2), MTP depth 3", "status"),
        ("status", "Qwen3.5-9B W4A16, one B70 (TP1), MTP depth 2", "status"),
        ("image_id", "sha256:" + "0" * 64, "image_id"),
        ("centers", {"mtp3_class_balanced_tok_s": 125.0}, "centers.mtp3_class_balanced_tok_s"),
        ("campaign_id", "qwen35-4b-w4a16-20260912-r304", "campaign_id"),
        ("speculative_config", {"num_speculative_tokens": 2}, "speculative_config.num_speculative_tokens"),
    ],
)
def test_a_field_that_is_made_to_contradict_is_named(tmp_path: Path, field: str, value: Any, name: str) -> None:
    data = json.loads(lab_file("qwen35-9b-w4a16-20260912-r304-strict-result.json").read_text())
    (before,) = imported(tmp_path, write(tmp_path / "a.json", data))
    (tmp_path / "second").mkdir()
    (after,) = imported(tmp_path / "second", write(tmp_path / "b.json", data | {field: value}))
    assert name not in stale(before)
    assert name in stale(after)


def test_replication_keeps_every_server_and_flags_the_pair(tmp_path: Path) -> None:
    evidence = one(tmp_path, "2026-09-09-qwen35-4b-tp2-replication.json")
    rates = {
        server.label: server.class_balanced_median.value for server in evidence.servers if server.class_balanced_median
    }
    assert len(rates) == 8 and rates["t1 mtp3-b"] == 227.533318664104
    assert {server.tensor_parallel for server in evidence.servers} == {2}
    assert {arm: round(100 * spread, 2) for arm, spread in evidence.spreads.items()} == {
        "t1 mtp3": 5.59,
        "t3 mtp3": 0.13,
        "t1 mtp0": 0.08,
        "t3 mtp0": 0.19,
    }
    assert any("t1 mtp3" in problem and "measure another pair" in problem for problem in evidence.problems)
    assert any("240.9 leaves out one of 4 servers" in problem for problem in evidence.problems)
    assert stale(evidence).keys() >= {
        "campaign_id",
        "question",
        "finding.statement",
        "scaling.depth3",
        "campaign_roots.t1",
    }


def test_long_context_points(tmp_path: Path) -> None:
    evidence = one(tmp_path, "2026-09-09-qwen35-4b-tp2-long-context.json")
    points = {(p.active_context_tokens, p.tensor_parallel, p.depth): p.tok_s for p in evidence.depth_points}
    assert len(points) == 24
    assert (points[2048, 1, 0], points[32768, 2, 3]) == (99.6, 222.0)
    assert not any(name.startswith("table") for name in stale(evidence)), "its ratios are those of its rows"


def test_staggered_arms_have_their_bounds(tmp_path: Path) -> None:
    evidence = one(tmp_path, "2026-09-09-qwen35-4b-staggered-admission-is-exact.json")
    arms = {ladder.label: ladder for ladder in evidence.ladders}
    first, third = arms["g1 thread barrier"], arms["g3 25 ms per-index stagger"]
    assert (first.depth, first.tensor_parallel, first.stagger_ms, third.stagger_ms) == (0, 1, 0.0, 25.0)
    rung = first.rungs[0]
    assert (rung.rung, rung.exact, rung.total, rung.withheld, rung.tok_s) == (64, 1245, 1280, True, 1719.0)
    assert round(100 * (rung.divergence_bound or 0), 2) == 3.61
    assert (third.rungs[0].exact, third.rungs[0].withheld) == (1280, False)
    assert any(ladder.stagger_ms == 5.0 and ladder.rungs[0].tok_s == 1701.5 for ladder in evidence.ladders)
    assert arms["GENERALISES_TO_THE_FULL_SUITE barrier_f1"].rungs[0].exact == 1271
    assert stale(evidence).keys() >= {
        "measurement.cost",
        "how_much_to_believe.unreplicated",
        "how_much_to_believe.suite_specific",
        "how_much_to_believe.not_tested_elsewhere",
        "next",
        "headline",
        "THE_COST_IS_1_PERCENT_NOT_14.dose_response_mtp0_c64[3].tok_s",
    }


def test_withheld_rungs_are_told_apart(tmp_path: Path) -> None:
    evidence = one(tmp_path, "ladder-rungs.extract.json")
    ladders = {ladder.label: {rung.rung: rung for rung in ladder.rungs} for ladder in evidence.ladders}
    r293 = ladders["r293 tp1_mtp0"]
    assert {rung: item.withheld for rung, item in r293.items()} == {
        **dict.fromkeys((1, 2, 4, 8, 12, 16, 20, 32), False),
        **dict.fromkeys((24, 64), True),
    }
    assert (r293[24].tok_s, r293[24].exact, r293[24].total) == (1354.9, 95, 96)
    two = ladders["r293 tp2_depth3"]
    assert [rung for rung, item in two.items() if item.withheld] == [2, 4, 12, 16]
    assert [rung for rung, item in two.items() if item.withheld is None] == [20, 24, 32, 64]
    assert all(item.withheld is None for item in ladders["r224_matrix tp1_mtp0"].values())
    assert len(ladders["r224_matrix tp2_mtp0"]) == 12, "null rates are no rungs"
    assert {ladder.classpad for ladder in evidence.ladders if ladder.label.startswith("r293")} == {True}
    assert [item.field for item in evidence.null_fields] == ["r224_matrix.rows[][]"]


def test_family_file(tmp_path: Path) -> None:
    evidence = one(tmp_path, "family-qwen-4b.json")
    assert {arm: round(figure.value, 3) for arm, figure in evidence.centers.items()} == {
        "mtp0": 102.501,
        "mtp3": 177.287,
    }
    found = stale(evidence)
    assert "the first server (177.406); the center of both is 177.29" in found["coverage_views[].cells.W4A16:3.label"]
    assert found.keys() >= {
        "coverage_views[].cells.FP8-dynamic:0.state",
        "dimensions.tp",
        "run_measurements[0].profile_id",
    }


def test_the_whole_folder(tmp_path: Path) -> None:
    lab_file("README.md")
    given = gather([LAB])
    written = write_imports(given, tmp_path / "out", {})
    assert given.unknown == {"README.md": "not JSON, left out"}
    files = [source.name for path in written for source in rederive_import(path).sources]
    assert sorted(files) == sorted(path.name for path in LAB.glob("*.json")), "every file became something, once"
    for path in written:
        for source in (path / "sources").iterdir():
            assert source.read_bytes() == (LAB / source.name).read_bytes()


def test_campaign_root_gives_gates_from_ids(tmp_path: Path) -> None:
    changed = {"code-review": [*ids_of(6)[:57], 7, *ids_of(6)[58:]]}
    (evidence,) = imported(tmp_path, campaign_root(tmp_path / "root", mtp3_b=changed))
    gates = {(gate.name, gate.subject): gate for gate in evidence.gates if gate.basis is Basis.REDERIVED}
    assert gates["G1", "mtp0-a vs mtp0-b"].passed
    for name, subject in (("G2", "mtp3-a vs mtp3-b"), ("G3", "mtp3-b vs mtp0-a")):
        gate = gates[name, subject]
        assert (gate.exact, gate.total, gate.passed) == (11, 12, False)
        site = gate.divergences[0]
        assert (site.prompt_id, site.first_divergence_token_zero_based) == ("code-review", 57)
    assert {arm: figure.basis for arm, figure in evidence.centers.items()} == {
        "mtp0": Basis.REDERIVED,
        "mtp3": Basis.REDERIVED,
    }
    assert all(len(server.class_medians) == 6 and server.rows == 12 for server in evidence.servers)


@pytest.mark.parametrize("equal", [True, False])
def test_some_arrays_are_no_gate(tmp_path: Path, equal: bool) -> None:
    """One pair of twelve: equal it proves nothing, different it fails the gate."""
    changed = {} if equal else {"code-review": [9, *ids_of(6)[1:]]}
    root = campaign_root(tmp_path / "root", mtp3_a=changed)
    for label in ("mtp0-a", "mtp3-a"):
        path = root / label / "strict" / "performance.json"
        data = json.loads(path.read_text())
        for row in data["rows"]:
            if row["prompt_id"] != "code-review":
                row["token_ids"] = None
        write(path, data)
    (evidence,) = imported(tmp_path, root)
    gates = [gate for gate in evidence.gates if (gate.name, gate.subject) == ("G3", "mtp3-a vs mtp0-a")]
    if equal:
        assert gates == []
        assert "G3 mtp3-a vs mtp0-a: 1 of 12 pairs of arrays are here, 1 are equal" in evidence.unknown
    else:
        assert [(gate.exact, gate.total, gate.passed) for gate in gates] == [(0, 12, False)]


def test_a_claim_that_its_rows_do_not_meet_is_a_problem(tmp_path: Path) -> None:
    root = campaign_root(tmp_path / "root")
    path = root / "mtp3-a" / "strict" / "performance.json"
    data = json.loads(path.read_text())
    data["rows"][3]["tok_s_1_100_intervals_after_ttft"] *= 1.02
    data["rows"][4]["completion_tokens"] = 500
    write(path, data)
    (evidence,) = imported(tmp_path, root)
    said = "\n".join(evidence.problems)
    assert "tok_s_1_100_intervals_after_ttft is claimed as" in said
    assert "128 ids where usage counts 500" in said


def test_ladder_json_counts_are_rederived(tmp_path: Path) -> None:
    oracle = [{"prompt_sha256": name, "token_ids": ids_of(index)} for index, name in enumerate("ab")]
    wrong = {"prompt_sha256": "b", "token_ids": [*ids_of(1)[:9], 5]}
    batches = [
        {
            "concurrency": 2,
            "repeat": repeat,
            "aggregate_tok_s_wall": rate,
            "oracle_exact_count": 2,
            "oracle_exact_total": 2,
            "rows": rows,
        }
        for repeat, rate, rows in ((1, 50.0, oracle), (2, 90.0, oracle), (3, 94.0, [oracle[0], wrong]))
    ]
    (evidence,) = imported(tmp_path, write(tmp_path / "ladder.json", {"oracle": {"rows": oracle}, "batches": batches}))
    rung = evidence.ladders[0].rungs[0]
    assert (rung.rung, rung.tok_s, rung.exact, rung.total, rung.withheld) == (2, 92.0, 5, 6, True)
    assert any("c2 is claimed as 2/2 exact, its ids give 1/2" in problem for problem in evidence.problems)


def test_every_changed_byte_is_named(tmp_path: Path) -> None:
    campaign_root(tmp_path / "root")
    (written,) = write_imports(gather([tmp_path / "root"]), tmp_path / "out", {})
    assert verify_import(written)[0] == []
    opened = open_any(written)
    assert isinstance(opened, Imported) and opened.evidence == rederive_import(written)
    victim = written / "sources" / "mtp0-b" / "strict" / "performance.json"
    original = victim.read_bytes()
    victim.write_bytes(original.replace(b"0.05", b"0.06", 1))
    problems, _ = verify_import(written)
    assert problems[0].startswith("sources/mtp0-b/strict/performance.json isn't the file that was imported")
    with pytest.raises(EvidenceError, match=r"performance\.json isn't the file"):
        open_any(written)
    victim.write_bytes(original)
    evidence = written / "evidence.json"
    evidence.write_text(evidence.read_text().replace('"imported"', '"imported" '))
    assert verify_import(written)[0][0].startswith("evidence.json isn't the file")
    evidence.write_text("{")
    problems, found = verify_import(written)
    assert problems[0].startswith("evidence.json isn't the file") and found is not None


def test_a_manifest_made_anew_does_not_hide_a_changed_value(tmp_path: Path) -> None:
    from harness.evidence import store

    campaign_root(tmp_path / "root")
    (written,) = write_imports(gather([tmp_path / "root"]), tmp_path / "out", {})
    path = written / "evidence.json"
    data = json.loads(path.read_text())
    data["centers"]["mtp3"]["value"] += 1
    path.write_bytes(store.dump_json(data))
    store.write_manifest(written)
    assert verify_import(written)[0] == ["evidence.json says something else than its sources give"]


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    campaign_root(tmp_path / "root")
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        write_imports(gather([tmp_path / "root"]), tmp_path / "out", {})
    assert list((tmp_path / "out").iterdir()) == []
