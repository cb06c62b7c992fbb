"""A strict campaign of ours → b70-lab.result.v1 and the comparisons of its gates between servers.

Field names are those of the lab's published files and of the scripts that write them; both are written also when a
gate failed, with the failure in them. Every figure comes from evidence that was just re-derived. No function here
touches a file; ``digests`` are sha256 by file name, as in the campaign's manifest.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Attempt, Evidence, Start
from harness.measure import rates
from harness.measure.gates import Gate
from harness.measure.rows import Row
from harness.plan import canonical_json
from harness.publish.configuration import Configuration, argument, cards_of, configuration_of, why_unpublishable
from harness.publish.lab_beside import COMPARISON
from harness.publish.lab_result import CLASS_BALANCED, SCHEMA

WRITER = "b70-bench"
WORKLOAD = ("workload", "stream", "degenerate")
REQUIRED = "both attempts pass every gate on their own and all complete token arrays are equal"


def compilation_of(start: Start, depth: int) -> Any:
    """The compilation config that a server of this depth was started with; null without one."""
    words = next(plan.arguments for plan in start.plan.servers if plan.depth == depth)
    found = argument(words, "--compilation-config")
    return None if found is None else json.loads(found)


def latest_attempts(evidence: Evidence) -> dict[str, Attempt]:
    """The attempt that counts for each label: its last."""
    return {attempt.label: attempt for attempt in evidence.attempts}


def cards_words(evidence: AnyEvidence, tensor_parallel: int) -> str:
    """``one B70 (TP1)`` where the servers ran on recorded B70s, else what ran them."""
    cards = cards_of(evidence)
    engine = "" if cards.present else f", engine {evidence.start.plan.engine}"
    return f"{cards.words(tensor_parallel)}{engine} (TP{tensor_parallel})"


def _median(rows: list[Row], name: str) -> float | None:
    values = [getattr(row, name) for row in rows]
    return None if not values or None in values else rates.median(values)


def _figures(attempt: Attempt) -> dict[str, Any]:
    return {
        CLASS_BALANCED: attempt.class_balanced_median,
        "tok_s_1_100_after_ttft": _median(attempt.rows, "tok_s_1_100_after_ttft"),
        "tok_s_after_ttft_full": _median(attempt.rows, "tok_s_after_ttft_full"),
        "tok_s_wall_full": _median(attempt.rows, "tok_s_wall_full"),
        "ttft_ms": attempt.median_ttft_ms,
        "class_medians": attempt.class_medians,
        "class_balanced_tok_s_burst_exact": attempt.class_balanced_median_burst_exact,
        "status": attempt.status,
    }


def gate_name(gate: Gate) -> str:
    """``G3 mtp3-a vs mtp0-a``, as the lab's results name a gate."""
    return f"{gate.name} {gate.subject}"


def config_line(configuration: Configuration) -> str:
    """The campaign's settings as KEY=value words."""
    words = {
        "LANE": configuration.lane,
        "TP": configuration.tensor_parallel,
        "DEPTH": configuration.depth,
        "GRAPH": int(configuration.graph == "on"),
        "QUANT": configuration.quantization,
        "CLASSPAD": int(configuration.classpad),
        "image": configuration.image_id or "none",
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


def result_document(evidence: Evidence, digests: Mapping[str, str]) -> dict[str, Any]:
    """b70-lab.result.v1 of a strict campaign. ``gates_passed`` has the counts of every gate, also of failed ones."""
    start, configuration = evidence.start, configuration_of(evidence)
    depth, latest = configuration.depth, latest_attempts(evidence)
    every = [*evidence.gates, *(gate for attempt in latest.values() for gate in attempt.gates)]
    exact = ", ".join(f"{gate.name} {gate.exact}/{gate.total}" for gate in evidence.gates)
    values = [pair for pair in evidence.pairs if pair.depth == depth]
    pair = values[0] if values else None
    measured = "no pair" if pair is None or pair.a is None or pair.b is None else f"strict pair {pair.a!r}/{pair.b!r}"
    model = start.model
    return {
        "schema": SCHEMA,
        "written_by": f"{WRITER} {start.tool.version}",
        "campaign_id": evidence.campaign_id,
        "simulated": evidence.simulated,
        "status": (
            f"{evidence.status}: {start.lane_title}, {cards_words(evidence, configuration.tensor_parallel)}, "
            f"MTP depth {depth}: {measured} tok/s class-balanced median (tokens 1-100 after TTFT); {exact or 'no gate'}"
        ),
        "not_publishable": why_unpublishable(evidence),
        "image_id": configuration.image_id,
        "image_tag": configuration.image,
        "compilation_config": compilation_of(start, depth),
        "speculative_config": json.loads(_speculative(start, depth) or "null"),
        "oracle_root": "attempts/mtp0-a",
        "boot_id": configuration.boot_id,
        "repo_head_at_launch": start.tool.commit.value,
        "campaign_config": config_line(configuration),
        "model": {
            "hf_id": configuration.model_repository,
            "revision": configuration.model_revision,
            "sha256": None if model is None else model.sha256,
            "served_as": configuration.quantization,
        },
        "suite": {"suite_id": start.suite.id, "sha256": start.suite.sha256, "prompts": len(start.suite.prompts)},
        "runtime_env": {k: v for k, v in sorted(configuration.environment.items()) if k != "PATH"},
        "runtime_version": configuration.vllm,
        "gates_passed": {gate_name(gate): f"{gate.exact}/{gate.total}" for gate in evidence.gates},
        "gates_failed": {gate_name(gate): gate.failures for gate in every if not gate.passed},
        "attempts": {label: f"attempts/{attempt.directory}" for label, attempt in latest.items()},
        "centers": {
            f"{pair.name}_class_balanced_tok_s": pair.center for pair in evidence.pairs if pair.center is not None
        },
        "spreads": {pair.name: pair.spread for pair in evidence.pairs if pair.spread is not None},
        "performance_evidence": {label: _figures(attempt) for label, attempt in latest.items()},
        "output_sha256": {
            label: [hashlib.sha256(row.text.encode()).hexdigest() for row in attempt.rows]
            for label, attempt in latest.items()
        },
        "output_token_ids_sha256": {
            label: [hashlib.sha256(canonical_json(row.token_ids).encode()).hexdigest() for row in attempt.rows]
            for label, attempt in latest.items()
        },
        "evidence": {"path": "evidence.json", "sha256": digests.get("evidence.json")},
        "unknown": evidence.unknown,
    }


def _speculative(start: Start, depth: int) -> str | None:
    words = next(plan.arguments for plan in start.plan.servers if plan.depth == depth)
    return argument(words, "--speculative-config")


def comparison_documents(evidence: Evidence, digests: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """neural.download.strict-attempt-output-comparison.v1 by file name, one for each of G1, G2 and both G3."""
    latest = latest_attempts(evidence)
    found = {}
    for gate in evidence.gates:
        left, _, right = gate.subject.partition(" vs ")
        if left in latest and right in latest:
            name = f"compare-{left}-vs-{right}.json"
            found[name] = _comparison(evidence, gate, latest[left], latest[right], digests)
    return found


def _comparison(
    evidence: Evidence, gate: Gate, left: Attempt, right: Attempt, digests: Mapping[str, str]
) -> dict[str, Any]:
    sides = [left, right]
    failed = [failure for attempt in sides for own in attempt.gates if not own.passed for failure in own.failures]
    own_pass = all(attempt.gates for attempt in sides) and not failed
    return {
        "schema": COMPARISON,
        "written_by": f"{WRITER} {evidence.start.tool.version}",
        "simulated": evidence.simulated,
        "gate": gate.name,
        "suite_sha256": evidence.start.suite.sha256,
        "left": _side(evidence, left, digests),
        "right": _side(evidence, right, digests),
        "comparison": {
            "exact_prompts": gate.exact,
            "total_prompts": gate.total,
            "complete_token_arrays_exact": gate.passed,
            "divergent_prompts": [
                {
                    "prompt_id": site.prompt_id,
                    "first_divergence_token_zero_based": site.first_divergence_token_zero_based,
                    "left_token_count": site.left_length,
                    "right_token_count": site.right_length,
                    "left_token_id": site.left_id,
                    "right_token_id": site.right_id,
                }
                for site in gate.divergences
            ],
            "failures": gate.failures,
        },
        "qualification": {
            "all_workload_and_canary_gates_passed": own_pass,
            "strict_pair_qualified": own_pass and gate.passed,
            "required": REQUIRED,
            "failures": failed,
        },
    }


def _side(evidence: Evidence, attempt: Attempt, digests: Mapping[str, str]) -> dict[str, Any]:
    passed = {gate.name: gate.passed for gate in attempt.gates}
    files = {"identity": "server.json", "performance": "capture.jsonl.zst", "canaries": "capture.jsonl.zst"}
    paths = {name: f"attempts/{attempt.directory}/{file}" for name, file in files.items()}
    plan = evidence.start.plan
    return {
        "profile": f"{plan.lane}-tp{plan.tensor_parallel}-{attempt.label}",
        "attempt": attempt.label,
        "class_balanced_median_tok_s": attempt.class_balanced_median,
        "performance_gate_passed": all(passed.get(name, False) for name in WORKLOAD),
        "fresh_response_valid": all(passed.get(name, False) for name in ("stream", "cache-zero", "fresh")),
        "cached_tokens_all_zero": passed.get("cache-zero", False),
        "canaries_passed": passed.get("canaries", False),
        "artifacts": {name: {"path": path, "sha256": digests.get(path)} for name, path in paths.items()},
    }
