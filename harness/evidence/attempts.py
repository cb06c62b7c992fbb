"""One attempt's files → what evidence says of it: rows, canaries, client, medians and the gates of one server."""

import json
from collections.abc import Sequence
from typing import Any

from harness.evidence.compilations import compilations
from harness.evidence.fresh import counters, fresh_gate, server_proof
from harness.evidence.host_gate import host_gate, is_fault
from harness.evidence.loading import AttemptFiles
from harness.evidence.power_use import power_use
from harness.evidence.schema import Attempt, AttemptStatus, ClientFacts, SuiteFacts
from harness.evidence.stream_canary import stream_canary, with_stream_canary
from harness.host.facts import Host
from harness.measure import gates, metrics, rates
from harness.measure.gates import Gate
from harness.measure.identity import divergence
from harness.measure.rows import Row, build_row, chunk_gaps_ms, kernel_lags_us, mark_cold
from harness.plan import ServerPlan
from harness.wire.capture import Capture, Tag
from harness.wire.completion import parse_completion
from harness.wire.exchange import Exchange
from harness.wire.http import decode_response
from harness.workloads import canaries, strict
from harness.workloads.canaries import CanaryRequest, CanaryVerdict


def canary_requests(plan: ServerPlan) -> list[CanaryRequest]:
    """The canaries a server is asked, by its plan."""
    if plan.canaries == "repeat":
        return canaries.repeat_canaries(plan.served_model_name)
    return canaries.chat_canaries(
        plan.served_model_name, max_tokens=plan.canary_max_tokens, enable_thinking=plan.canary_thinking
    )


def request_body(exchange: Exchange) -> Any:
    """The JSON body that was sent; None when it can't be read back."""
    _, _, body = exchange.request.partition(b"\r\n\r\n")
    try:
        return json.loads(body)
    except ValueError:
        return None


def answer_body(exchange: Exchange) -> bytes | None:
    """The whole body of a 200 answer; None otherwise."""
    response = decode_response(exchange)
    if response.status != 200 or not response.complete:
        return None
    return b"".join(piece for _, piece in response.body)


def row_of(tag: Tag, exchange: Exchange, index: int, suite: SuiteFacts) -> Row:
    """The row of one captured suite request; its prompt is the one that was sent, not the one that should have been."""
    body = request_body(exchange)
    prompt = body.get("prompt") if isinstance(body, dict) else None
    text = prompt if isinstance(prompt, str) else ""
    known = {item.id: item.prompt_class for item in suite.prompts}
    return build_row(
        index=index,
        prompt_id=tag.name,
        prompt_class=known.get(tag.name, "unknown"),
        prompt_sha256=strict.sha256(text),
        request_id=tag.request_id,
        completion=parse_completion(exchange),
        exchange=exchange,
    )


def derive_attempt(
    files: AttemptFiles,
    suite: SuiteFacts,
    plan: ServerPlan,
    host: Host,
    probes: Sequence[Row] = (),
    *,
    stream: bool = False,
) -> Attempt:
    """Everything evidence says of one attempt. Pure: from loaded files only.

    ``probes`` are its boundary probes; ``stream``: the campaign asks the stream canary.
    """
    capture = files.capture
    sent = capture.of_kind("suite") if capture is not None else []
    rows = mark_cold([row_of(tag, exchange, index, suite) for index, (tag, exchange) in enumerate(sent)])
    # A server that died, changed or was another one by the end proves no rate, however whole its answers are.
    ended_well = files.status is AttemptStatus.COMPLETE
    complete = ended_well and len(rows) == len(suite.prompts) and all(row.complete for row in rows)
    medians = _class_medians(rows) if complete else {}
    exact = _class_balanced([(row.prompt_class, row.tok_s_burst_exact) for row in rows]) if complete else None
    chunks = sum(len(row.chunks) for row in rows)
    before, after = canaries_of(plan, capture, "before"), canaries_of(plan, capture, "after")
    client = client_facts([[exchange] for _, exchange in sent], capture) if capture is not None and sent else None
    attempt = Attempt(
        label=files.label,
        directory=files.directory,
        status=files.status,
        error=files.error,
        depth=plan.depth,
        server=files.server,
        rows=rows,
        canaries_before=before,
        canaries_after=after,
        acceptance=acceptance_between(capture, "metrics-suite-start", "metrics-suite-end"),
        client=client,
        class_medians=medians,
        class_balanced_median=rates.class_balanced_median(medians) if medians else None,
        class_balanced_median_burst_exact=exact,
        median_ttft_ms=rates.median_ttft_ms([row.ttft_ms for row in rows]) if complete else None,
        ids_per_chunk=sum(len(row.token_ids) for row in rows) / chunks if chunks else None,
        probes=list(probes),
        power_use=power_use(files, [exchange for _, exchange in sent], _tokens(rows)),
        proof=server_proof(files.server, capture, files.log),
        compile_lines=compilations(files),
        stream_canary=stream_canary(files, rows, plan.served_model_name) if stream else None,
        gates=[],
    )
    if files.status is AttemptStatus.INTERRUPTED:
        fault = host_gate(files.label, host, files.server)
        return attempt.model_copy(update={"gates": [fault]}) if is_fault(fault) else attempt
    found = _gates(attempt, files, suite, host, sent)
    if stream:
        again = attempt.stream_canary
        found = [with_stream_canary(gate, again, files.status) if gate.name == "canaries" else gate for gate in found]
    if files.status is AttemptStatus.INVALID:
        found = [gate for gate in found if (gate.name == "stream" and rows) or is_fault(gate)]
    return attempt.model_copy(update={"gates": found})


def divergences_before(directory: str, rows: Sequence[Row], oracle: Sequence[Row]) -> list[str]:
    """Where whole answers of an attempt that ended early differ from the oracle's, one sentence each.

    It was measured anew, and a difference that was seen stays one (contract section 9, case 8: no selection).
    """
    base = {row.prompt_id: row for row in oracle if row.complete}
    found = [
        divergence(row.prompt_id, row.token_ids, base[row.prompt_id].token_ids)
        for row in rows
        if row.complete and row.prompt_id in base and row.prompt_sha256 == base[row.prompt_id].prompt_sha256
    ]
    return [f"{directory}, which ended early: {item.sentence()}" for item in found if item is not None]


def failed_by(gate: Gate, before: Sequence[str]) -> Gate:
    """The gate with what ``divergences_before`` found beside its own comparison, which keeps its counts."""
    failures = [*gate.failures, *(f"{gate.name} {sentence}" for sentence in before)]
    return gate.model_copy(update={"failures": failures, "passed": not failures})


def _tokens(rows: Sequence[Row]) -> int | None:
    """Of all rows; None when one didn't say."""
    counts = [row.completion_tokens for row in rows if row.completion_tokens is not None]
    return sum(counts) if len(counts) == len(rows) else None


def _class_medians(rows: Sequence[Row]) -> dict[str, float]:
    values = [(row.prompt_class, row.tok_s_1_100) for row in rows]
    known = [(name, value) for name, value in values if value is not None]
    return rates.class_medians(known) if len(known) == len(values) else {}


def _class_balanced(values: Sequence[tuple[str, float | None]]) -> float | None:
    known = [(name, value) for name, value in values if value is not None]
    if not known or len(known) != len(values):
        return None
    return rates.class_balanced_median(rates.class_medians(known))


def canaries_of(plan: ServerPlan, capture: Capture | None, stage: str) -> CanaryVerdict | None:
    """Judge a round by what was asked of whom; None when it wasn't begun."""
    asked = capture.of_kind("canary", stage) if capture is not None else []
    if not asked:
        return None
    wanted = canary_requests(plan)
    answers = [
        answer_body(exchange) if tag.name == request.name and request_body(exchange) == request.body else None
        for request, (tag, exchange) in zip(wanted, asked, strict=False)
    ]
    return canaries.judge(wanted, answers)


def acceptance_between(capture: Capture | None, first: str, last: str) -> metrics.Acceptance | None:
    """Acceptance between two recorded scrapes; None at MTP0 and where /metrics didn't answer."""
    if capture is None:
        return None
    before, after = counters(capture.controls, first), counters(capture.controls, last)
    if isinstance(before, str) or isinstance(after, str):
        return None
    return metrics.acceptance(before, after)


def cpu_and_wall(batch: Sequence[Exchange]) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of streams that were open together: their clocks aren't added up.

    ``cpu_ns`` counts from the batch's start, so the last stream of a client process holds the whole of it; with
    several processes it is the busiest one's, since the bound is on one core.
    """
    by_worker: dict[int, int] = {}
    for exchange in batch:
        by_worker[exchange.worker] = max(by_worker.get(exchange.worker, 0), exchange.cpu_ns)
    if not by_worker:
        return 0.0, 0.0
    wall = max(item.t0_mono_ns + item.end_ns for item in batch) - min(item.t0_mono_ns for item in batch)
    return max(by_worker.values()) / 1e9, wall / 1e9


def client_facts(batches: Sequence[Sequence[Exchange]], capture: Capture) -> ClientFacts:
    """The client's own truth over batches of streams that were open together, in the order sent."""
    exchanges = [exchange for batch in batches for exchange in batch]
    lags = [lag for exchange in exchanges for lag in kernel_lags_us(exchange)]
    reads = sum(len(exchange.sizes) for exchange in exchanges)
    spent = [cpu_and_wall(batch) for batch in batches]
    cpu, wall = sum(item[0] for item in spent), sum(item[1] for item in spent)
    ends = [max(item.end_mono_ns for item in batch) for batch in batches]
    starts = [min(item.t0_mono_ns for item in batch) for batch in batches]
    pauses = [(start - end) / 1e6 for end, start in zip(ends, starts[1:], strict=False)]
    return ClientFacts(
        timestamp_source=str(capture.header.get("timestamp_source", "unknown")),
        scheduling=", ".join(sorted({item.scheduling for item in exchanges})),
        reads=reads,
        kernel_stamped=len(lags),
        lag_p50_us=rates.median(lags),
        lag_p99_us=rates.p99_or_max(lags),
        lag_max_us=max(lags, default=None),
        cpu_s=cpu,
        wall_s=wall,
        cpu_share=cpu / wall if wall > 0 else None,
        cpu_us_per_read=cpu * 1e6 / reads if reads else None,
        clock_step_max_ms=max((abs(item.clock_step_ns) / 1e6 for item in exchanges), default=0.0),
        gap_between_requests_max_ms=max(pauses, default=None),
    )


def _gates(
    attempt: Attempt,
    files: AttemptFiles,
    suite: SuiteFacts,
    host: Host,
    sent: Sequence[tuple[Tag, Exchange]],
) -> list[gates.Gate]:
    label, rows = files.label, attempt.rows
    prompts = [(item.id, item.prompt_class, item.sha256) for item in suite.prompts]
    client = attempt.client
    found = [
        _as_sent(gates.workload_gate(label, rows, prompts), files, sent),
        gates.stream_gate(label, rows),
        gates.cache_zero_gate(label, rows),
        canary_gate(label, attempt.canaries_before, attempt.canaries_after),
        gates.degenerate_gate(label, rows),
        gates.client_gate(
            label,
            rows,
            [lag for _, exchange in sent for lag in kernel_lags_us(exchange)],
            chunk_gaps_ms(rows),
            client.cpu_share if client is not None else None,
            client.timestamp_source if client is not None else "unknown",
        ),
        host_gate(label, host, files.server),
    ]
    fresh = fresh_of(label, files, [row.completion_tokens for row in [*rows, *attempt.probes]])
    return [*found[:5], fresh, *found[5:]]


def fresh_of(label: str, files: AttemptFiles, counts: Sequence[int | None]) -> gates.Gate:
    """The fresh gate of one attempt; ``counts`` are the tokens of its measured requests, None where unsaid."""
    if files.server is None or files.capture is None:
        missing = f"{label}: the record of its server or its capture is missing"
        return gates.Gate(name="fresh", subject=label, passed=False, failures=[missing])
    requests, tokens = _sent_between_scrapes(files.capture, counts)
    return fresh_gate(files.server, files.capture, files.log, requests=requests, tokens=tokens)


def _as_sent(gate: gates.Gate, files: AttemptFiles, sent: Sequence[tuple[Tag, Exchange]]) -> gates.Gate:
    """The workload gate, which also fails when a request wasn't the one of contract section 3."""
    model = files.server.requested.served_model_name if files.server is not None else ""
    failures = list(gate.failures)
    for tag, exchange in sent:
        body = request_body(exchange)
        prompt = body.get("prompt") if isinstance(body, dict) else None
        if body != strict.strict_body(prompt if isinstance(prompt, str) else "", model):
            failures.append(f"{files.label}: the request of {tag.name} isn't the one of the strict suite")
    return gate.model_copy(update={"failures": failures, "passed": not failures})


def canary_gate(label: str, before: CanaryVerdict | None, after: CanaryVerdict | None) -> gates.Gate:
    """``canaries``: both rounds were asked and every check of both is right (contract section 3)."""
    failures = []
    for stage, verdict in (("before", before), ("after", after)):
        if verdict is None:
            failures.append(f"{label}: the canaries {stage} the suite were not asked")
        else:
            failures += [
                f"{label}: canary {check.name} {stage} the suite: {check.sentence}"
                for check in verdict.checks
                if not check.passed
            ]
    mode = next((verdict.mode for verdict in (before, after) if verdict is not None), "none")
    notes = ["canaries: the repeat check alone, by the launcher's choice"] if mode == "repeat" else []
    return gates.Gate(name="canaries", subject=label, passed=not failures, failures=failures, notes=notes)


def _sent_between_scrapes(capture: Capture, measured: Sequence[int | None]) -> tuple[int, int | None]:
    """Requests and tokens between metrics-before and metrics-after: what was measured and every canary."""
    counts = list(measured)
    for exchange in [exchange for tag, exchange in capture.exchanges if tag.kind in ("canary", "pulse")]:
        body = answer_body(exchange)
        try:
            count = json.loads(body)["usage"]["completion_tokens"] if body is not None else None
        except (ValueError, KeyError, TypeError):
            count = None
        counts.append(count if isinstance(count, int) else None)
    known = [count for count in counts if count is not None]
    return len(counts), sum(known) if len(known) == len(counts) else None
