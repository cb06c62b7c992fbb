"""vLLM's /metrics as text → counters, deltas, acceptance, and proof of exclusive use (contract section 2)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict

MAX_TEXT = 16 * 1024 * 1024
"""Characters; a longer answer isn't parsed"""

SUCCESS = "vllm:request_success_total"
GENERATED = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
SPEC_PREFIX = "vllm:spec_decode_"
PROCESS_START = "process_start_time_seconds"


@dataclass(frozen=True)
class Counters:
    """One scrape: sums over label sets by sample name (``_created`` left out), and accepted drafts by position."""

    totals: Mapping[str, float]
    accepted_at: Mapping[int, float]
    series: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
    """each series by itself, because a reset of one engine can hide in a sum"""
    process_start: float | None = None
    """when the process that answers began, seconds since the epoch; None where it doesn't say"""

    @property
    def speculative(self) -> bool:
        """Whether the server has any spec_decode family; their absence is the proof of MTP0."""
        return any(name.startswith(SPEC_PREFIX) for name in self.totals)


def parse_metrics(text: str) -> Counters:
    """Parse one answer of /metrics. Raises ValueError in one sentence for text that isn't the Prometheus format."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"/metrics answered more than {MAX_TEXT >> 20} MiB")
    totals: dict[str, float] = {}
    accepted_at: dict[int, float] = {}
    series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    process_start: float | None = None
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == PROCESS_START and not sample.labels:
                    process_start = sample.value
                if not sample.name.startswith("vllm:") or sample.name.endswith(("_created", "_bucket")):
                    continue
                if not math.isfinite(sample.value) and sample.name.endswith("_total"):
                    raise ValueError(f"{sample.name} is {sample.value}")
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
                series[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
                if sample.name == ACCEPTED_AT:
                    position = int(sample.labels["position"])
                    accepted_at[position] = accepted_at.get(position, 0.0) + sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"/metrics did not answer in the Prometheus text format ({error})") from None
    return Counters(totals, accepted_at, series, process_start)


def counter_resets(before: Counters, after: Counters) -> list[str]:
    """Names of counters that went down or vanished: such a scrape proves nothing."""
    names = {
        name
        for (name, labels), value in before.series.items()
        if name.endswith("_total") and after.series.get((name, labels), -1.0) < value
    }
    return sorted(names)


def restarted(before: Counters, after: Counters) -> str:
    """What shows that the server began anew between two scrapes; empty when nothing does."""
    if None not in (before.process_start, after.process_start) and before.process_start != after.process_start:
        return "the process that serves was started again while it was measured (process_start_time_seconds changed)"
    names = counter_resets(before, after)
    return f"the server was started again while it was measured (counter {names[0]} went down)" if names else ""


class Acceptance(BaseModel):
    """What speculative decoding did between two scrapes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    drafts: int
    """verification steps that had a draft"""
    draft_tokens: int
    accepted_tokens: int
    rate: float | None
    """accepted_tokens / draft_tokens, from 0 to 1; null without draft tokens"""
    mean_acceptance_length: float | None
    """1 + accepted_tokens / drafts (contract section 2); null without drafts"""
    per_position: list[float]
    """accepted at position i / drafts, from 0 to 1"""


def acceptance(before: Counters, after: Counters) -> Acceptance | None:
    """Acceptance between two scrapes; None for a server without speculative decoding (MTP0)."""
    if not after.speculative:
        return None

    def delta(name: str) -> int:
        return round(after.totals.get(name, 0.0) - before.totals.get(name, 0.0))

    drafts, proposed, accepted = delta(DRAFTS), delta(DRAFT_TOKENS), delta(ACCEPTED)
    positions = sorted(after.accepted_at)
    at = [after.accepted_at[position] - before.accepted_at.get(position, 0.0) for position in positions]
    return Acceptance(
        drafts=drafts,
        draft_tokens=proposed,
        accepted_tokens=accepted,
        rate=accepted / proposed if proposed > 0 else None,
        mean_acceptance_length=1 + accepted / drafts if drafts > 0 else None,
        per_position=[count / drafts for count in at] if drafts > 0 else [],
    )


def exclusive_use(before: Counters, after: Counters, *, requests: int, tokens: int) -> list[str]:
    """Sentences for everything that shows another client, or a server that counts otherwise; empty when exclusive."""
    problems = [
        f"counter {name} went down between the scrapes: the server restarted" for name in counter_resets(before, after)
    ]
    if not problems and (again := restarted(before, after)):
        problems.append(again)
    for name, expected, what in ((SUCCESS, requests, "requests"), (GENERATED, tokens, "tokens")):
        if name not in after.totals:
            problems.append(f"/metrics has no {name}, so exclusive use is not proven")
            continue
        counted = round(after.totals[name] - before.totals.get(name, 0.0))
        if counted != expected:
            problems.append(f"the server counted {counted} {what}, ours were {expected}")
    for when, counters in (("before", before), ("after", after)):
        for name, what in ((RUNNING, "running"), (WAITING, "waiting")):
            count = counters.totals.get(name)
            if count is None:
                problems.append(f"/metrics has no {name} {when} the attempt, so exclusive use is not proven")
            elif count:
                problems.append(f"{count:g} requests were {what} {when} the attempt")
    queries = after.totals.get(PREFIX_QUERIES, 0.0)
    if queries:
        problems.append(f"the prefix cache was asked {queries:g} times although caching is off")
    return problems


def settled(before: Counters, now: Counters, *, requests: int, tokens: int) -> bool:
    """Whether the server has finished counting what it was sent since ``before``."""
    return not exclusive_use(before, now, requests=requests, tokens=tokens)
