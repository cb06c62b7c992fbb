"""``bench explain`` on a real G3 failure: margins from a fresh MTP0 server on real vLLM, by the recorded plan."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.launch.docker import list_ours
from harness.publish.margins import NEAR_TIE
from tests.e2e.bench import BENCH
from tests.e2e.conftest import START_S, model
from tests.recorded import campaign

ID = "2026-11-30T212501Z-tiny-cpu-strict-tp1-mtp3"
"""of the recorded campaign"""
pytestmark = [pytest.mark.vllm, pytest.mark.docker]


def explained(*words: str | Path) -> tuple[int, Any, str]:
    """(exit code, the explanation, what was said on stderr)."""
    command = [BENCH, "explain", *map(str, words), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        out, err = process.communicate(timeout=2 * START_S + 600)
    finally:
        # Asked to end, not killed: it must be able to stop its server.
        process.terminate()
        process.wait(START_S)
    assert "Traceback" not in err, err
    return process.returncode, json.loads(out) if out else None, err


def left(client: Any) -> list[str]:
    """Containers of explanations that still exist; other campaigns may be running."""
    return [found.campaign for found in list_ours(client) if found.campaign == f"explain-{ID}"]


def test_the_margins_of_a_real_g3_failure(real_vllm: None, docker_client: Any) -> None:
    """The ties model: what stands against each other is level, or one step of bfloat16 apart, for the oracle itself."""
    directory, weights = campaign("ties"), model("tiny-qwen35-ties")
    code, told, _ = explained(directory, "--ask", "fresh", "--model-dir", weights)
    assert (code, told["problems"]) == (0, [])
    assert left(docker_client) == []
    evidence = json.loads((directory / "evidence.json").read_text())
    assert evidence["campaign_id"] == ID
    failed = [gate for gate in evidence["gates"] if not gate["passed"]]
    assert {gate["name"] for gate in failed} == {"G3"}
    assert {(site["prompt"], site["index"], site["oracle_id"], site["other_id"]) for site in told["sites"]} == {
        (item["prompt_id"], item["first_divergence_token_zero_based"], item["right_id"], item["left_id"])
        for gate in failed
        for item in gate["divergences"]
    }
    rows = {row["prompt_id"]: row for row in evidence["attempts"][0]["rows"]}
    for site in told["sites"]:
        row, margin = rows[site["prompt"]], site["margin"]
        assert site["prefix"] == row["prompt_token_ids"] + row["token_ids"][: site["index"]]
        assert site["before"] + site["oracle_after"] == row["text"]
        assert site["oracle_text"] and site["other_text"] and site["oracle_text"] != site["other_text"]
        assert len(margin["top"]) == 5
        # The same plan on the same machine decodes the same ids: the asked server is the oracle.
        assert (margin["way"], margin["chosen"], margin["disagrees"]) == ("decoded", site["oracle_id"], False)
        assert margin["kind"] in ("exact tie", "near tie") and 0 <= margin["gap"] <= NEAR_TIE


def test_another_model_is_refused_before_anything_starts() -> None:
    code, told, err = explained(campaign("ties"), "--ask", "fresh", "--model-dir", model("tiny-qwen35"))
    assert (code, told) == (64, None)
    assert "model directory tiny-qwen35 is not the model that was measured" in err
    assert "starting" not in err
