"""The ``fresh`` gate (contract 2): what runs is what was asked, ours, empty, alone, and of the depth it claims."""

from collections.abc import Sequence

from harness.evidence.schema import CensusLine, ServerProof, ServerRecord
from harness.launch import proof
from harness.launch.resolved import LOG, SERVER_INFO, Resolved, resolve, resolved_differences
from harness.launch.within import within_differences
from harness.measure.gates import Gate
from harness.measure.metrics import Counters, acceptance, exclusive_use, parse_metrics
from harness.wire.capture import Capture, Control, find_control

NO_COMPILATION = "the log shows no compilation, so empty caches are not proven"
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
            census = proof.classpad_census(log)
            failures += proof.classpad_failures(census)
            if record.within is not None:
                notes.append(proof.census_sentence(census))
    use_failures, use_notes = _use(record, capture, requests, tokens)
    info_failures, info_notes = _resolved(record, capture, log)
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
        if plan.engine == "docker":
            failures += proof.lifetime_failures(record.applied, record.inspect or {})
    failures += within_failures(record)
    memory = record.host.memory if record.host is not None else None
    if memory is not None:
        failures += [f"before its start, card {said}" for said in memory.held]
        notes += [
            f"memory of card {card.card} before the start: unknown ({card.why})"
            for card in memory.cards
            if card.used_bytes is None
        ]
    if record.within is not None and record.within.unknown:
        notes.append(f"words of the process within: unknown ({record.within.unknown})")
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
        return [f"the log tells of a compiled graph that was in the cache ({found.loaded} times)"], notes
    return [NO_COMPILATION], notes


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


def _resolved(record: ServerRecord, capture: Capture, log: bytes) -> tuple[list[str], list[str]]:
    """The server's own resolved configuration, where it shows one."""
    resolved = resolved_of(record, capture.controls, log)
    failures = resolved_differences(record.requested, resolved)
    if SERVER_INFO in resolved.sources:
        notes = ["resolved configuration: read from /server_info (dev mode, loopback only)"]
    else:
        control = find_control(capture.controls, "server-info")
        shown = control is not None and control.status == 200
        why = "/server_info has another shape" if shown else "/server_info is not exposed"
        notes = [f"resolved configuration: unknown ({why})"]
    if record.within is not None:
        if SERVER_INFO not in resolved.sources and LOG in resolved.sources:
            notes = ["resolved configuration: read from the server's log"]
        if resolved.sources and resolved.unknown:
            notes.append(f"resolved configuration, unknown: {', '.join(resolved.unknown)}")
    return failures, notes


def resolved_of(record: ServerRecord, controls: Sequence[Control], log: bytes) -> Resolved:
    """What the server says of its own configuration, by /server_info and its log."""
    control = find_control(controls, "server-info")
    body = control.body if control is not None and control.status == 200 else None
    return resolve(body, log, record.requested.env)


def within_failures(record: ServerRecord) -> list[str]:
    """What the process that serves was given and wasn't asked, or the other way round."""
    if record.within is None or record.applied is None or record.requested.engine == "attach":
        return []
    image_env = record.applied.image_env if record.image is None else record.image.env
    arguments = proof.requested_arguments(record.requested)
    return within_differences(arguments, proof.requested_environment(record.requested, image_env), record.within)


def known_before_prompts(record: ServerRecord, controls: Sequence[Control], log: bytes) -> list[str]:
    """Every failure of ``fresh`` that a server which has just become ready can show (docs/contract.md, section 2)."""
    found = within_failures(record) + resolved_differences(record.requested, resolved_of(record, controls, log))
    if record.requested.engine == "attach":
        return found
    failures, _ = _compile_log(record, log)
    found += failures
    if record.requested.classpad:
        found += proof.classpad_failures(proof.classpad_census(log))
    before = counters(controls, "metrics-before")
    served = 0 if isinstance(before, str) else round(before.totals.get("vllm:request_success_total", 0))
    if served > READY_REQUESTS:
        found.append(f"the server had answered {served} requests before the suite, ours was {READY_REQUESTS}")
    return found


def server_proof(record: ServerRecord | None, capture: Capture | None, log: bytes) -> ServerProof | None:
    """The server's own words, typed; None where the process was not read, as in evidence from before it was."""
    if record is None or capture is None or record.within is None:
        return None
    findings = proof.compile_log_findings(log, record.requested.compiles)
    return ServerProof(
        resolved=resolved_of(record, capture.controls, log),
        compiled=findings.compiled,
        loaded=findings.loaded,
        compilation=findings.verdict,
        classpad=[
            CensusLine(shape=item.shape, dtype=item.dtype, verdict=item.verdict, line=item.line)
            for item in proof.classpad_census(log)
        ],
    )
