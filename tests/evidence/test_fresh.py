"""The ``fresh`` gate's reading of /metrics and /server_info, on recorded answers of vLLM where they are at hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.fresh import counters, fresh_gate
from harness.evidence.schema import ServerRecord
from harness.measure.gates import Gate
from harness.wire.capture import Capture, Control
from tests.launch.conftest import tiny_plan

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "vllm-cpu" / "samples"


def recorded(name: str) -> str:
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip(f"the recorded answer {name} isn't beside this checkout")
    return path.read_text()


def gate(controls: dict[str, str], depth: int, **plan: Any) -> Gate:
    answers = [Control(name, "/metrics", 0, 200, body) for name, body in controls.items()]
    record = ServerRecord(label="mtp3-a", requested=tiny_plan("process", depth=depth, **plan))
    return fresh_gate(record, Capture(header={}, controls=answers), b"", requests=1, tokens=52)


def test_acceptance_of_everything_is_a_warning() -> None:
    before, after = recorded("mtp3-metrics-before.prom"), recorded("mtp3-metrics-after.prom")
    found = gate({"metrics-before": before, "metrics-after": after}, 3)
    assert "acceptance: warning, 100% of 39 drafts were accepted" in found.notes
    found = gate({"metrics-before": before, "metrics-after": after}, 2)
    assert "mtp3-a: the server drafts 3 tokens a step, asked were 2" in found.failures


def test_depth_is_proven_by_the_families_of_metrics() -> None:
    plain = {
        "metrics-before": recorded("mtp0-metrics-before.prom"),
        "metrics-after": recorded("mtp0-metrics-after.prom"),
    }
    speculating = {
        "metrics-before": recorded("mtp3-metrics-before.prom"),
        "metrics-after": recorded("mtp3-metrics-after.prom"),
    }
    said = "mtp3-a: the server reports no spec_decode metrics, so MTP depth 3 never reached it"
    assert said in gate(plain, 3).failures
    assert said not in gate(speculating, 3).failures
    assert "mtp3-a: an MTP0 server reports spec_decode metrics, so it speculates" in gate(speculating, 0).failures


def test_scrape_that_is_missing_failed_or_no_metrics_proves_nothing() -> None:
    assert counters([], "metrics-before") == ("/metrics was not asked (metrics-before), so exclusive use is not proven")
    failed = Control("metrics-before", "/metrics", 0, 503, "")
    assert counters([failed], "metrics-before") == (
        "/metrics answered HTTP 503 (metrics-before), so exclusive use is not proven"
    )
    silent = Control("metrics-before", "/metrics", 0, None, "", "ConnectError: refused")
    assert "ConnectError: refused" in str(counters([silent], "metrics-before"))
    html = Control("metrics-before", "/metrics", 0, 200, "<html>")
    assert "did not answer in the Prometheus text format" in str(counters([html], "metrics-before"))
    found = gate({}, 0)
    assert not found.passed and "mtp3-a: what runs was not read back" in found.failures


@pytest.mark.parametrize(
    ("depth", "name", "failure"),
    [
        (3, "mtp0", "the server's speculative depth is None, asked was 3"),
        (0, "mtp3", "the server has a speculative config, asked was none"),
        (2, "mtp3", "the server's speculative depth is 3, asked was 2"),
    ],
)
def test_resolved_configuration_of_a_recorded_server(depth: int, name: str, failure: str) -> None:
    info = recorded(f"{name}-server_info_config_format_json.json")
    assert f"mtp3-a: {failure}" in gate({"server-info": info}, depth).failures
    good = gate({"server-info": info}, 3 if name == "mtp3" else 0).failures
    assert not any("speculative" in item for item in good)


def test_synthetic_acceptance_is_refused() -> None:
    config = {
        "speculative_config": {"num_speculative_tokens": 3, "rejection_sample_method": "synthetic"},
        "parallel_config": {"tensor_parallel_size": 2},
    }
    failures = gate({"server-info": json.dumps({"vllm_config": config})}, 3).failures
    assert "mtp3-a: the server runs TP2, asked was TP1" in failures
    assert any("accepts drafts synthetically (rejection_sample_method)" in failure for failure in failures)
    odd = gate({"server-info": '{"vllm_config": []}'}, 3)
    assert "resolved configuration: unknown (/server_info has another shape)" in odd.notes
