"""The LocalMaxxing payload of a strict campaign: a file, nothing is sent.

Names are those of the lab's public queue payloads (a list of ``label`` and ``payload``) and of the script that writes
them. The service's own schema isn't public; which fields it requires and the names inside ``hardware`` are known from a
public description of its interface by a user. What this campaign doesn't know is left out and listed in ``unknown``
beside the payload, never guessed.
"""

import hashlib
from typing import Any

from harness.evidence.schema import Attempt, Evidence
from harness.measure import rates
from harness.plan import canonical_json
from harness.publish.configuration import argument, cards_of, configuration_of, measured_plan, why_unpublishable
from harness.publish.lab_export import latest_attempts

SCHEMA = "b70-bench.localmaxxing-queue/1"
REQUIRED = ("hfId", "quantization", "engineName", "hardware", "tokSOut")


def payload_document(evidence: Evidence, attestation_sha256: str) -> list[dict[str, Any]]:
    """One entry of the queue, of the pair of the greatest depth."""
    configuration, pair = configuration_of(evidence), evidence.pairs[-1]
    start, depth = evidence.start, configuration.depth
    latest = latest_attempts(evidence)
    sides = [latest[f"{pair.name}-{side}"] for side in "ab"]
    words, valid = measured_plan(start).arguments, not why_unpublishable(evidence)
    payload = {
        "hfId": configuration.model_repository,
        "modelRevision": configuration.model_revision,
        "engineName": "vllm",
        "engineVersion": _engine(evidence),
        "backend": "xpu" if cards_of(evidence).present else "cpu",
        "quantization": None if configuration.quantization == "none" else configuration.quantization,
        "hardware": _hardware(evidence),
        "contextLength": configuration.context,
        "batchSize": 1,
        "promptTokens": _whole(_over_rows(sides, "prompt_tokens")),
        "outputTokens": 512,
        "tokSOut": pair.center,
        "tokSTotal": _over_rows(sides, "tok_s_wall_full"),
        "ttftMs": None
        if pair.ttft_a_ms is None or pair.ttft_b_ms is None
        else rates.center(pair.ttft_a_ms, pair.ttft_b_ms),
        "engineFlags": {
            "apiMode": "completions",
            "benchmarkJson": "evidence.json",
            "promotionAttestation": "attestation.json",
            "promotionAttestationSha256": attestation_sha256,
            "freshResponseHeadlineValid": valid,
            "freshResponseValidity": _validity(evidence),
            "headlineUse": "fresh-realistic-suite",
            "historyAccelerated": False,
            "responseReuse": False,
            "prefixCaching": False,
            "concurrency": 1,
            "specDecoding": depth > 0,
            "mtpEnabled": depth > 0,
            "specNumTokens": depth,
            "targetModelVerifiedAcceptedTokens": depth == 0 or all(g.passed for g in evidence.gates if g.name == "G3"),
            "tensorParallelSize": configuration.tensor_parallel,
            "maxRunningSeqs": configuration.max_num_seqs,
            "kvCacheDtype": configuration.kv,
            "metricWindowGeneratedTokens": 100,
            "metricWindowIntervals": 99,
            "outputTokenIdsSha256": [_ids_sha256(row.token_ids) for row in sides[0].rows],
            "realisticPromptTokenCounts": [row.prompt_tokens for row in sides[0].rows],
            "realisticOutputTokenCounts": [row.completion_tokens for row in sides[0].rows],
            "realisticSuiteCachedTokens": [row.cached_tokens for row in sides[0].rows],
            "realisticSuiteCachedTokensAllZero": all(row.cached_tokens == 0 for side in sides for row in side.rows),
            "realisticSuiteGatePassed": valid,
            "realisticSuiteId": configuration.suite_id,
            "realisticSuiteSha256": configuration.suite_sha256,
            "temperature": 0,
            "tokenTimingSource": "openai_stream_token_ids_chunk_timestamp",
            "primaryMetricName": "median_of_prompt_class_medians_tok_s_1_100_intervals_after_ttft",
            "primaryMetricAccounting": "inter-token-intervals",
            "primaryMetricAggregation": "median-of-prompt-class-medians",
            "servers": [pair.a, pair.b],
            "spread": pair.spread,
            "commandSnippet": start.command,
            "max_model_len": argument(words, "--max-model-len"),
            "max_num_batched_tokens": argument(words, "--max-num-batched-tokens"),
            "max_num_seqs": argument(words, "--max-num-seqs"),
            "imageId": configuration.image_id,
        },
    }
    unknown = [name for name, value in payload.items() if value is None]
    if cards_of(evidence).present and not cards_of(evidence).b70:
        unknown += ["hardware.gpuName", "hardware.vramGb"]
    known = {name: value for name, value in payload.items() if value is not None}
    return [{"schema": SCHEMA, "label": evidence.campaign_id, "unknown": unknown, "payload": known}]


def _engine(evidence: Evidence) -> str:
    configuration = configuration_of(evidence)
    speculation = f"; MTP depth {configuration.depth}" if configuration.depth else ""
    version = configuration.vllm or "of unknown version"
    return f"vllm {version}; image {configuration.image}; graphs {configuration.graph}{speculation}"


def _hardware(evidence: Evidence) -> dict[str, Any]:
    host, tp = evidence.start.host, evidence.start.plan.tensor_parallel
    memory = host.value("memory_bytes")
    found: dict[str, Any] = {"cpuName": host.value("cpu_model"), "ramGb": round(memory / 2**30) if memory else None}
    cards = cards_of(evidence)
    if cards.b70:
        found |= {"hwClass": "DISCRETE_GPU", "gpuName": "Intel Arc Pro B70", "gpuCount": tp, "vramGb": 32}
    elif cards.present:
        found |= {"hwClass": "DISCRETE_GPU", "gpuCount": tp}
    else:
        found |= {"hwClass": "CPU_ONLY"}
    return {name: value for name, value in found.items() if value is not None}


def _over_rows(sides: list[Attempt], name: str) -> float | None:
    """Mean of both servers' medians of a row's figure."""
    both = []
    for side in sides:
        values = [getattr(row, name) for row in side.rows]
        middle = None if None in values else rates.median(values)
        if middle is None:
            return None
        both.append(middle)
    return rates.center(both[0], both[1])


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _ids_sha256(ids: list[int]) -> str:
    return hashlib.sha256(canonical_json(ids).encode()).hexdigest()


def _validity(evidence: Evidence) -> str:
    pair = evidence.pairs[-1]
    exact = ", ".join(f"{gate.name} {gate.exact}/{gate.total} ({gate.subject})" for gate in evidence.gates)
    prompts = len(evidence.start.suite.prompts)
    return (
        f"Two fresh servers at MTP depth {pair.depth} ({pair.a:.3f}/{pair.b:.3f} tok/s); all {prompts} prompts of the "
        f"suite once each, 512-token cap, cached_tokens 0, canaries before and after; complete token arrays: {exact}."
    )
