"""The ``fresh`` gate (contract 2): what runs is what was asked, ours, empty, alone, and of the depth it claims."""

import json
from collections.abc import Sequence
from typing import Any

from harness.evidence.schema import ServerRecord
from harness.launch import proof
from harness.measure.gates import Gate
from harness.measure.metrics import Counters, acceptance, exclusive_use, parse_metrics
from harness.wire.capture import Capture, Control, find_control

READY_REQUESTS = 1
"""Model calls a fresh server has answered before its canaries: the disclosed one-token request"""


def counters(controls: Sequence[Control], name: str) -> Counters | str:
    """The counters of a recorded /metrics answer, or a sentence that says why there are none."""
    control = find_control(controls, name)
    if control is None or control.status != 200:
        why = "was not asked" if control is None else control.error or f"answered HTTP {control.status}"
        return f"/metrics {why} ({name}), so exclusive use is not proven"
    try:
        return parse_metrics(control.body)
    except ValueError as error:
        return f"{error} ({name}), so exclusive use is not proven"


def fresh_gate(record: ServerRecord, capture: Capture, log: bytes, *, requests: int, tokens: int | None) -> Gate:
    """Every proof of freshness for one attempt.

    ``requests`` and ``tokens`` are what we sent and received between the two scrapes (tokens None when an answer
    didn't say how many).
    """
    failures, notes = _started_by_us(record)
    if record.requested.engine != "attach":
        failures += _caches(record)
        compile_failures, compile_notes = _compile_log(record, log)
        failures += compile_failures
        notes += compile_notes
        if record.requested.classpad:
            failures += proof.classpad_failures(proof.classpad_census(log))
    use_failures, use_notes = _use(record, capture, requests, tokens)
    info_failures, info_notes = _resolved(record, capture)
    failures += [*use_failures, *info_failures]
    notes += [*use_notes, *info_notes]
    label = record.label
    said = [f"{label}: {failure}" for failure in failures]
    return Gate(name="fresh", subject=label, passed=not said, failures=said, notes=notes)


def _started_by_us(record: ServerRecord) -> tuple[list[str], list[str]]:
    plan = record.requested
    if plan.engine == "attach":
        return ["someone else started this server, so it is never fresh and never promotable"], []
    failures, notes = [], []
    if record.applied is None:
        failures.append("what runs was not read back")
    else:
        failures += proof.differences(plan, record.applied, record.image)
    if record.readiness is None:
        failures.append("the server did not become ready")
    elif record.readiness.owns_port is False:
        failures.append("the port belongs to another server")
    elif record.readiness.owns_port is None:
        notes.append("owner of the port: unknown")
    if record.stop is None:
        failures.append("the end of the server was not recorded")
    elif not record.stop.gone:
        failures.append(f"the server was not gone after its stop ({record.stop.note or 'no reason given'})")
    elif record.stop.killed:
        notes.append(f"the server had to be killed after {record.stop.seconds:.0f} s")
    return failures, notes


def _caches(record: ServerRecord) -> list[str]:
    before = record.cache_before
    if before is None:
        return ["the cache directory was not listed before the start"]
    if before.entries or before.bytes:
        return [f"the compile caches held {before.entries} files ({before.bytes} bytes) before the start"]
    return []


def _compile_log(record: ServerRecord, log: bytes) -> tuple[list[str], list[str]]:
    found = proof.compile_log_findings(log, record.requested.compiles)
    after = record.cache_after
    notes = [] if after is None else [f"compile caches after the stop: {after.entries} files, {after.bytes} bytes"]
    if found.verdict == "not applicable":
        return [], [*notes, "compile log: not applicable (--enforce-eager)"]
    if found.verdict == "fresh":
        return [], [*notes, f"compile log: {found.compiled} compilations, nothing loaded from a cache"]
    if found.loaded:
        return [f"the log says a compiled graph was loaded from a cache ({found.loaded} times)"], notes
    return ["the log shows no compilation, so empty caches are not proven"], notes


def _use(record: ServerRecord, capture: Capture, requests: int, tokens: int | None) -> tuple[list[str], list[str]]:
    before, after = counters(capture.controls, "metrics-before"), counters(capture.controls, "metrics-after")
    problems = [item for item in (before, after) if isinstance(item, str)]
    if isinstance(before, str) or isinstance(after, str):
        return problems, []
    if tokens is None:
        return ["an answer did not say how many tokens it had, so exclusive use is not proven"], []
    failures = exclusive_use(before, after, requests=requests, tokens=tokens)
    served = round(before.totals.get("vllm:request_success_total", -1))
    if record.requested.engine != "attach" and served != READY_REQUESTS:
        failures.append(f"the server had answered {served} requests before the suite, ours was {READY_REQUESTS}")
    depth = record.requested.depth
    if depth == 0 and after.speculative:
        failures.append("an MTP0 server reports spec_decode metrics, so it speculates")
    if depth and not after.speculative:
        failures.append(f"the server reports no spec_decode metrics, so MTP depth {depth} never reached it")
    notes = []
    used = acceptance(before, after)
    if depth and used is not None:
        if len(used.per_position) not in (0, depth):
            failures.append(f"the server drafts {len(used.per_position)} tokens a step, asked were {depth}")
        if used.rate in (0.0, 1.0):
            notes.append(f"acceptance: warning, {used.rate:.0%} of {used.draft_tokens} drafts were accepted")
    return failures, notes


def _resolved(record: ServerRecord, capture: Capture) -> tuple[list[str], list[str]]:
    """The server's own resolved configuration, where it shows one."""
    control = find_control(capture.controls, "server-info")
    if control is None or control.status != 200:
        return [], ["resolved configuration: unknown (/server_info is not exposed)"]
    try:
        config: dict[str, Any] = json.loads(control.body)["vllm_config"]
        speculative = config["speculative_config"]
        tensor_parallel = config["parallel_config"]["tensor_parallel_size"]
    except (ValueError, KeyError, TypeError):
        return [], ["resolved configuration: unknown (/server_info has another shape)"]
    plan = record.requested
    failures = []
    if tensor_parallel != plan.tensor_parallel:
        failures.append(f"the server runs TP{tensor_parallel}, asked was TP{plan.tensor_parallel}")
    if plan.depth == 0 and speculative is not None:
        failures.append("the server has a speculative config, asked was none")
    if plan.depth:
        resolved = speculative.get("num_speculative_tokens") if isinstance(speculative, dict) else None
        if resolved != plan.depth:
            failures.append(f"the server's speculative depth is {resolved}, asked was {plan.depth}")
        elif "synthetic" in str(speculative.get("rejection_sample_method")):
            failures.append("the server accepts drafts synthetically (rejection_sample_method), which measures nothing")
    return failures, ["resolved configuration: read from /server_info (dev mode, loopback only)"]
