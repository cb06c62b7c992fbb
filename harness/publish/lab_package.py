"""``performance_profiles`` of a package (b70-model-package-v1), and the promotion attestation.

Field names of a profile are those of a published package: id, label, metric, unit, x_metric, x_label, scope, evidence,
points of concurrent_sequences, value, samples, per_user_value. A withheld rung is no point: its rate and count stand in
the scope sentence. The attestation is neural.download.promotion-attestation.v1 as its public description has it: a gate
without bound evidence is never true, so what this evidence can't show stays null and authorises nothing.
"""

from collections.abc import Mapping
from typing import Any

from harness.evidence.context_schema import ContextEvidence
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Evidence
from harness.measure.gates import Gate
from harness.measure.ladder import withheld_sentence
from harness.publish.configuration import Configuration, configuration_of
from harness.publish.lab_export import WRITER, cards_words, config_line

ATTESTATION = "neural.download.promotion-attestation.v1"
PACKAGE = "b70-bench.package-profiles/1"
QUALITY_GATES = (
    "varied_task_quality_passed",
    "exact_or_target_oracle_passed",
    "deterministic_repeats_passed",
    "fresh_server_repeat_passed",
    "target_model_unchanged",
    "no_quality_loss",
)


def package_document(evidence: AnyEvidence, digests: Mapping[str, str]) -> dict[str, Any]:
    """The profiles of one campaign, for ``performance_profiles`` of a package."""
    if isinstance(evidence, Evidence):
        profiles = [_strict_profile(evidence)]
    elif isinstance(evidence, LadderEvidence):
        profiles = [_ladder_profile(evidence)]
    else:
        profiles = [
            _context_profile(evidence, label) for label in dict.fromkeys(point.label for point in evidence.points)
        ]
    document: dict[str, Any] = {
        "schema": PACKAGE,
        "format": "b70-model-package-v1",
        "written_by": f"{WRITER} {evidence.start.tool.version}",
        "campaign_id": evidence.campaign_id,
        "evidence_sha256": digests.get("evidence.json"),
        "performance_profiles": profiles,
    }
    if isinstance(evidence, Evidence):
        document["featured_metric"] = _featured(evidence)
    return document


def _arm(configuration: Configuration) -> str:
    speculation = f"MTP depth {configuration.depth}" if configuration.depth else "no speculation"
    return f"{speculation}{', CLASSPAD=1' if configuration.classpad else ''}"


def _prefix(configuration: Configuration) -> str:
    classpad = "-classpad" if configuration.classpad else ""
    return f"http-{configuration.lane}-mtp{configuration.depth}{classpad}-tp{configuration.tensor_parallel}"


def _scope(evidence: AnyEvidence, configuration: Configuration, said: str) -> str:
    shape = (
        f"max-model-len {configuration.context}, max-num-seqs {configuration.max_num_seqs}, "
        f"max-num-batched-tokens {configuration.max_num_batched_tokens}"
    )
    where = cards_words(evidence, configuration.tensor_parallel)
    image = f"image {configuration.image}" if configuration.image else f"engine {configuration.engine}"
    return f"Campaign {evidence.campaign_id} ({evidence.started_at[:10]}): {where}, {image}, {shape}. {said}"


def _ladder_profile(evidence: LadderEvidence) -> dict[str, Any]:
    configuration = configuration_of(evidence)
    shown = [rung for rung in evidence.rungs if not rung.withheld and rung.tok_s is not None]
    missed = withheld_sentence(evidence.rungs)
    said = evidence.scope if not missed or missed in evidence.scope else f"{evidence.scope} {missed}."
    return {
        "id": f"{_prefix(configuration)}-identity-qualified-aggregate-vs-concurrent-users",
        "label": (
            f"{evidence.start.lane_title}, TP{configuration.tensor_parallel}, {_arm(configuration)}: "
            "identity-qualified aggregate decode vs concurrent users"
        ),
        "metric": "aggregate_decode",
        "unit": "tok/s",
        "x_metric": "concurrent_sequences",
        "x_label": "Concurrent HTTP users",
        "scope": _scope(evidence, configuration, said),
        "evidence": evidence.campaign_id,
        "classification": evidence.classification,
        "points": [
            {
                "concurrent_sequences": rung.rung,
                "value": rung.tok_s,
                "samples": rung.passes - 1,
                "per_user_value": (rung.tok_s or 0.0) / rung.rung,
                "exact": f"{rung.exact}/{rung.total}",
                "divergence_bound_95": rung.divergence_bound,
            }
            for rung in shown
        ],
    }


def _context_profile(evidence: ContextEvidence, label: str) -> dict[str, Any]:
    """One server's decode rate over the active context; withheld points stand in the scope alone."""
    configuration = configuration_of(evidence)
    points = [point for point in evidence.points if point.label == label]
    depth = points[0].depth
    arm = f"MTP depth {depth}" if depth else "no speculation"
    return {
        "id": f"http-{configuration.lane}-mtp{depth}-tp{configuration.tensor_parallel}-decode-vs-active-context",
        "label": (f"{evidence.start.lane_title}, TP{configuration.tensor_parallel}, {arm}: decode over active context"),
        "metric": "decode",
        "unit": "tok/s",
        "x_metric": "context_tokens",
        "x_label": "Actual prompt / active context tokens",
        "scope": _scope(evidence, configuration, evidence.scope),
        "evidence": evidence.campaign_id,
        "points": [
            {"context_tokens": point.context, "value": point.tok_s, "samples": point.total, "ttft_ms": point.ttft_ms}
            for point in points
            if not point.withheld and point.tok_s is not None
        ],
    }


def _quality(gates: list[Gate]) -> str:
    return ", ".join(f"{gate.name} {gate.exact}/{gate.total} ({gate.subject})" for gate in gates)


def _strict_profile(evidence: Evidence) -> dict[str, Any]:
    configuration = configuration_of(evidence)
    said = (
        f"Center of two fresh-server class-balanced medians, tokens 1 to 100 after TTFT, suite "
        f"{configuration.suite_id}, 512-token cap, cache zero; {_quality(evidence.gates)}."
    )
    return {
        "id": f"{_prefix(configuration)}-strict-decode-vs-mtp-depth",
        "label": f"{evidence.start.lane_title}, TP{configuration.tensor_parallel}: strict suite by MTP depth",
        "metric": "decode",
        "unit": "tok/s",
        "x_metric": "mtp_depth",
        "x_label": "MTP depth",
        "scope": _scope(evidence, configuration, said),
        "evidence": evidence.campaign_id,
        "points": [
            {
                "mtp_depth": pair.depth,
                "value": pair.center,
                "samples": 2,
                "servers": [pair.a, pair.b],
                "spread": pair.spread,
                "ttft_ms": [pair.ttft_a_ms, pair.ttft_b_ms],
            }
            for pair in evidence.pairs
            if pair.center is not None
        ],
    }


def _featured(evidence: Evidence) -> dict[str, Any]:
    pair, configuration = evidence.pairs[-1], configuration_of(evidence)
    return {
        "value": pair.center,
        "unit": "tok/s",
        "label": f"{_arm(configuration)}, center of two fresh servers ({pair.a!r} / {pair.b!r})",
        "scope": _strict_profile(evidence)["scope"],
        "evidence": evidence.campaign_id,
    }


def attestation_document(evidence: Evidence, digests: Mapping[str, str]) -> dict[str, Any]:
    """What this campaign attests and what it can't: a gate that nothing here shows is null, with the reason."""
    configuration, pair = configuration_of(evidence), evidence.pairs[-1]
    depth = configuration.depth
    passed = {gate.name: all(g.passed for g in evidence.gates if g.name == gate.name) for gate in evidence.gates}
    oracle = "G3" if depth else "G1"
    verified = evidence.start.model is not None and not any(note.startswith("model:") for note in evidence.unknown)
    canaries = [gate for attempt in evidence.attempts for gate in attempt.gates if gate.name == "canaries"]
    shown: dict[str, bool] = {
        "exact_or_target_oracle_passed": passed.get(oracle, False),
        "deterministic_repeats_passed": bool(canaries) and all(gate.passed for gate in canaries),
        "fresh_server_repeat_passed": passed.get("G2" if depth else "G1", False),
        "target_model_unchanged": verified,
        "no_quality_loss": bool(depth) and passed.get("G3", False),
    }
    reasons = {
        "varied_task_quality_passed": "no task-quality evaluation is part of a strict campaign",
        "target_model_unchanged": "no manifest says what the model's files should be",
        "no_quality_loss": "at MTP depth 0 there is no other answer to compare with",
    }
    gates = {name: True if shown.get(name) else None for name in QUALITY_GATES}
    missing = [name for name, value in gates.items() if not value]
    return {
        "schema": ATTESTATION,
        "written_by": f"{WRITER} {evidence.start.tool.version}",
        "created_utc": evidence.ended_at,
        "profile_id": f"{_prefix(configuration)}-strict",
        "decision": "promote" if not missing else "pending",
        "promotion_authorized": not missing,
        "headline": {
            "value": pair.center,
            "unit": "tok/s",
            "aggregation": "mean of two fresh servers' medians of prompt-class medians, 99 intervals after TTFT",
            "metric_events": 100,
            "metric_intervals": 99,
            "servers": [pair.a, pair.b],
            "spread": pair.spread,
        },
        "performance_evidence": {"path": "evidence.json", "sha256": digests.get("evidence.json")},
        "identity": {
            "model_revision": configuration.model_revision or configuration.model_sha256,
            "runtime_revision": configuration.image_id,
            "optimization_identity": evidence.start.plan_sha256,
            "settings": config_line(configuration),
            "suite_sha256": configuration.suite_sha256,
        },
        "gates": gates,
        "not_shown": {name: reasons.get(name, "its gate did not pass") for name in missing},
        "quality_evidence": [
            {
                "path": name,
                "sha256": sha256,
                "supports": [gate for gate, value in gates.items() if value],
            }
            for name, sha256 in digests.items()
            if name == "evidence.json" or name.endswith("capture.jsonl.zst")
        ],
    }
