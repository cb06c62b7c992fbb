"""``bench strict`` on real vLLM servers with a tiny model: the number, the withheld number, and both engines."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Bench, Benches, assert_verifies, containers, failed_gates, gates, processes
from tests.e2e.conftest import SHARED, START_S, model

pytestmark = pytest.mark.vllm


def installed_vllm() -> str:
    """B70_BENCH_VLLM, or where the set-up script says it puts its environment; the name alone when neither tells."""
    given = os.environ.get("B70_BENCH_VLLM")
    script = SHARED / "setup.sh"
    places = re.findall(r"^VENV=(\S+)$", script.read_text(), re.MULTILINE) if script.is_file() else []
    return given or (f"{places[0]}/bin/vllm" if places else "vllm")


def attempts(bench: Bench, labels: list[str]) -> list[dict[str, Any]]:
    """The attempts, after seeing that each was whole and on a fresh server of its own."""
    found = bench.evidence["attempts"]
    assert [attempt["label"] for attempt in found] == labels
    assert {attempt["status"] for attempt in found} == {"complete"}
    for attempt in found:
        server = attempt["server"]
        assert server["differences"] == []
        assert server["cache_before"]["entries"] == 0
        assert server["readiness"]["version"].startswith("0.32.0")
        assert (server["stop"]["gone"], server["stop"]["killed"]) == (True, False)
        assert [row["index"] for row in attempt["rows"]] == list(range(12))
        assert all(100 <= len(row["token_ids"]) <= 512 for row in attempt["rows"])
        assert attempt["class_balanced_median"] > 0
        assert attempt["median_ttft_ms"] > 0
    assert len({attempt["server"]["applied"]["server_id"] for attempt in found}) == len(labels)
    assert not (bench.directory / "caches").exists()
    return list(found)


LABELS = ["mtp0-a", "mtp0-b", "mtp3-a", "mtp3-b"]
PAIRS = [("G1", "mtp0-a vs mtp0-b"), ("G2", "mtp3-a vs mtp3-b"), ("G3", "mtp3-a vs mtp0-a"), ("G3", "mtp3-b vs mtp0-a")]


@pytest.mark.docker
class TestPassed:
    """A model with wide margins: speculation changes nothing, so the number may be published."""

    def test_every_gate_passes(self, real_campaign: Bench) -> None:
        evidence = real_campaign.evidence
        assert failed_gates(evidence) == []
        assert gates(evidence) == [(name, subject, True) for name, subject in PAIRS]
        assert [(gate["exact"], gate["total"]) for gate in evidence["gates"]] == [(12, 12)] * 4
        assert (evidence["status"], evidence["withheld"], evidence["reasons"]) == ("passed", False, [])
        ended = real_campaign.events[-1]
        assert (ended["event"], ended["status"], ended["exit_code"]) == ("ended", "passed", 0)
        assert real_campaign.finish(0) == 0

    def test_speculation_was_real(self, real_campaign: Bench) -> None:
        base, other_base, *arms = attempts(real_campaign, LABELS)
        for attempt in (base, other_base):
            assert attempt["acceptance"] is None
            assert attempt["ids_per_chunk"] < 1.2
        for attempt in arms:
            assert attempt["ids_per_chunk"] > 2
            assert 0.5 < attempt["acceptance"]["rate"] < 0.95
            assert len(attempt["acceptance"]["per_position"]) == 3
            assert attempt["acceptance"]["mean_acceptance_length"] == pytest.approx(
                1 + attempt["acceptance"]["accepted_tokens"] / attempt["acceptance"]["drafts"]
            )
        pair = real_campaign.evidence["pairs"][1]
        assert pair["center"] == pytest.approx(sum(arm["class_balanced_median"] for arm in arms) / 2)

    def test_nothing_is_left(self, real_campaign: Bench, docker_client: Any) -> None:
        assert containers(docker_client, real_campaign.out) == []

    def test_it_verifies(self, real_campaign: Bench) -> None:
        found = assert_verifies(real_campaign.directory, "passed")
        assert (found["rows"], found["gates"]) == (48, 4 + 4 * 8)


@pytest.mark.docker
def test_a_model_with_ties_is_withheld(real_vllm: None, bench: Benches, docker_client: Any, tmp_path: Path) -> None:
    """G1 and G2 pass, because the same computation repeats; G3 fails, because speculation rounds otherwise."""
    weights = str(model("tiny-qwen35-ties"))
    campaign = bench(tmp_path / "out", "--launcher", "tiny-cpu", "--model-dir", weights, "--mtp", "3", "--tp", "1")
    assert campaign.finish(4 * START_S + 600) == 1
    evidence = campaign.evidence
    by_label = {attempt["label"]: attempt for attempt in attempts(campaign, LABELS)}
    assert gates(evidence) == [(name, subject, name != "G3") for name, subject in PAIRS]
    assert (evidence["status"], evidence["withheld"], evidence["exit_code"]) == ("withheld", True, 1)
    for gate in evidence["gates"][2:]:
        assert len(gate["divergences"]) == gate["total"] - gate["exact"] > 0
        left, right = (
            {row["prompt_id"]: row["token_ids"] for row in by_label[label]["rows"]}
            for label in gate["subject"].split(" vs ")
        )
        for divergence in gate["divergences"]:
            index = divergence["first_divergence_token_zero_based"]
            ours, theirs = left[divergence["prompt_id"]], right[divergence["prompt_id"]]
            assert ours[:index] == theirs[:index]
            assert divergence["left_id"] == (ours[index] if index < len(ours) else None)
            assert divergence["right_id"] == (theirs[index] if index < len(theirs) else None)
            assert divergence["left_id"] != divergence["right_id"]
    assert all(pair["center"] > 0 for pair in evidence["pairs"])
    assert "withheld" in evidence["conclusion"]
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, "withheld")


def test_the_process_engine_measures_the_same_way(real_vllm: None, bench: Benches, tmp_path: Path) -> None:
    vllm = installed_vllm()
    if shutil.which(vllm) is None:
        pytest.skip(f"no vllm at {vllm}: set B70_BENCH_VLLM to the executable")
    options = ("--launcher", "tiny-cpu", "--model-dir", str(model("tiny-qwen35")), "--engine", "process")
    campaign = bench(tmp_path / "out", *options, "--vllm", vllm, "--mtp", "0", "--tp", "1")
    code = campaign.finish(2 * START_S + 300)
    evidence = campaign.evidence
    assert failed_gates(evidence) == []
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert (evidence["gates"][0]["exact"], evidence["status"], code) == (12, "passed", 0)
    for attempt in attempts(campaign, ["mtp0-a", "mtp0-b"]):
        assert attempt["server"]["applied"]["server_id"].startswith("pid:")
        assert attempt["server"]["readiness"]["owns_port"] is True
    assert processes(tmp_path) == []
    assert_verifies(campaign.directory, evidence["status"])
