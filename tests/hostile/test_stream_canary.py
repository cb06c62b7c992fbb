"""Case 18: a stream that loses its last id while its usage agrees is seen by one answer that is no stream."""

from pathlib import Path
from typing import Any

import pytest

from harness.evidence.verify import verify
from tests.bench import Done, bench, campaign_of, evidence_of, gate_of, strict, write_launcher

WHOLE = 110


def run(cwd: Path, *faults: str, ids: int | None = WHOLE, asked: bool = True) -> tuple[Done, Any]:
    """A campaign with the canary; (command, evidence), verified."""
    done = strict(cwd, write_launcher(cwd, *faults, ids=ids), *(["--stream-canary"] if asked else []))
    assert verify(campaign_of(cwd)).problems == [] and done.err == ""
    return done, evidence_of(campaign_of(cwd))


def failed(evidence: Any) -> set[str]:
    """Names of gates that failed, but for the one that says how busy this machine is."""
    gates = [gate for attempt in evidence["attempts"] for gate in attempt["gates"]] + evidence["gates"]
    return {gate["name"] for gate in gates if not gate["passed"]} - {"client"}


def test_18_a_stream_that_loses_its_last_id_fails_the_canaries_and_no_other_gate(tmp_path: Path) -> None:
    done, evidence = run(tmp_path, "loses-end")
    assert done.code == evidence["exit_code"] == 1 and evidence["status"] == "withheld"
    assert failed(evidence) == {"canaries"}
    first = evidence["attempts"][0]["rows"][0]
    assert (len(first["token_ids"]), first["completion_tokens"]) == (WHOLE - 1, WHOLE - 1), (
        "usage agrees with the stream"
    )
    for attempt in evidence["attempts"]:
        canary = attempt["stream_canary"]
        assert (canary["exact"], canary["tokens"], canary["prompt_id"]) == (False, WHOLE, first["prompt_id"])
        place = canary["divergence"]
        assert (place["left_length"], place["right_length"]) == (WHOLE - 1, WHOLE)
        (failure,) = gate_of(evidence, "canaries", attempt["label"])["failures"]
        assert failure.startswith(
            f"{attempt['label']}: stream canary: the stream left the same prompt's whole answer, "
        )
        assert first["prompt_id"] in failure and failure in evidence["reasons"]
    assert bench("report", campaign_of(tmp_path), "--out", tmp_path / "page.html", cwd=tmp_path).code == 0
    page = (tmp_path / "page.html").read_text()
    assert "the answer was another one than its stream" in page


def test_18_without_the_canary_nobody_sees_it(tmp_path: Path) -> None:
    _, evidence = run(tmp_path, "loses-end", asked=False)
    assert failed(evidence) == set() and "stream_canary" not in evidence["start"]["plan"]
    assert all("stream_canary" not in attempt for attempt in evidence["attempts"])


def test_18_a_server_that_streams_what_it_says_passes_and_the_prompt_is_disclosed(tmp_path: Path) -> None:
    _, evidence = run(tmp_path, ids=None)
    assert failed(evidence) == set() and evidence["start"]["plan"]["stream_canary"] is True
    for attempt in evidence["attempts"]:
        canary = attempt["stream_canary"]
        stopped = [row["prompt_id"] for row in attempt["rows"] if row["finish_reason"] == "stop"]
        assert canary["exact"] and canary["prompt_id"] == (stopped or [attempt["rows"][0]["prompt_id"]])[0]
        notes = gate_of(evidence, "canaries", attempt["label"])["notes"]
        assert any(
            note.startswith(f"stream canary: {canary['prompt_id']} once more, not as a stream") for note in notes
        )


@pytest.mark.parametrize(
    ("fault", "problem"), [("cached-tokens:16", "it took 16 prompt tokens"), ("cached-missing", "no cached_tokens")]
)
def test_18_an_answer_from_a_cache_is_no_proof(tmp_path: Path, fault: str, problem: str) -> None:
    _, evidence = run(tmp_path, fault)
    assert {"canaries", "cache-zero"} <= failed(evidence)
    assert (
        problem in gate_of(evidence, "canaries")["failures"][0]
        and not evidence["attempts"][0]["stream_canary"]["exact"]
    )


def test_18_a_resume_without_the_option_is_another_plan(tmp_path: Path) -> None:
    done, _ = run(tmp_path)
    again = bench(
        "strict", "--mtp", "0", "--launcher", tmp_path / "fast.toml", "--resume", campaign_of(tmp_path), cwd=tmp_path
    )
    assert again.code == 64 and done.err == "" and again.sentence
