"""One server's files → its answers to prompts of token ids, and the gates of them (contract section 7)."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.evidence.attempts import (
    acceptance_between,
    canaries_of,
    canary_gate,
    client_facts,
    fresh_of,
    request_body,
)
from harness.evidence.compilations import compilations
from harness.evidence.context_schema import ContextAttempt
from harness.evidence.fresh import server_proof
from harness.evidence.host_gate import host_gate, is_fault
from harness.evidence.loading import AttemptFiles
from harness.evidence.power_use import power_use
from harness.evidence.prompts import Ids, first_other, tokenized
from harness.evidence.schema import AttemptStatus
from harness.host.facts import Host
from harness.measure import gates
from harness.measure.gates import Arm, Gate
from harness.measure.identity import divergence
from harness.measure.rows import Row, build_row, chunk_gaps_ms, kernel_lags_us, mark_cold
from harness.plan import ContextPlan, ContextPrompt, ServerPlan, canonical_json
from harness.wire.capture import Capture, Tag
from harness.wire.completion import parse_completion
from harness.wire.exchange import Exchange
from harness.workloads.context import context_body, cut

CONTEXT = "context"
PROBE = "probe"
"""Kinds of exchanges in a capture"""


@dataclass(frozen=True)
class Answer:
    """One answer to a prompt of token ids."""

    row: Row
    echoed: bool
    """the server returned the prompt's ids as they were sent"""
    problems: list[str]
    """why it isn't the planned prompt or not answered whole, one sentence each"""


def capture_kind(kind: str) -> str:
    """Kind of the exchanges of a campaign of that kind: probes are probes in a strict campaign too."""
    return CONTEXT if kind == "depth" else PROBE


def answers_of(capture: Capture | None, kind: str, plan: ContextPlan, ids: Ids | None, model: str) -> list[Answer]:
    """Every answer in a capture, in the order sent; ``kind`` is of the capture, ``ids`` those of prompts.json."""
    sent = capture.of_kind(kind) if capture is not None else []
    prompts = {prompt.id: prompt for prompt in plan.prompts}
    known = {} if ids is None else cut(plan.prompts, ids)
    found = [
        answer_of(tag, exchange, number, prompts.get(tag.name), known.get(tag.name, ()), model)
        for number, (tag, exchange) in enumerate(sent)
    ]
    rows = _cold([answer.row for answer in found], prompts)
    return [Answer(row, answer.echoed, answer.problems) for answer, row in zip(found, rows, strict=True)]


def answer_of(
    tag: Tag, exchange: Exchange, number: int, prompt: ContextPrompt | None, ids: Sequence[int], model: str
) -> Answer:
    """The answer in one captured exchange; its prompt is the one that was sent, not the one that should have been."""
    body = request_body(exchange)
    given = body.get("prompt") if isinstance(body, dict) else None
    completion = parse_completion(exchange)
    row = build_row(
        index=number,
        prompt_id=tag.name,
        prompt_class=prompt.text if prompt is not None else "unknown",
        prompt_sha256=hashlib.sha256(canonical_json(given).encode("utf-8", "surrogatepass")).hexdigest(),
        request_id=tag.request_id,
        completion=completion,
        exchange=exchange,
    )
    back = completion.prompt_token_ids
    problems = _problems(row, body, prompt, ids, model)
    if back is not None and list(back) != given:
        problems.append(f"the server read other prompt ids ({len(back)} of them) than were sent")
    warnings = row.warnings
    if prompt is not None and prompt.max_tokens < 100:
        warnings = [warning for warning in warnings if not warning.startswith("no-rate:")]
    # The ids of long prompts stand in prompts.json once, not in every row.
    row = row.model_copy(update={"prompt_token_ids": None, "warnings": warnings})
    return Answer(row, back is not None and list(back) == given, problems)


def _problems(row: Row, body: object, prompt: ContextPrompt | None, ids: Sequence[int], model: str) -> list[str]:
    if prompt is None:
        return ["the plan has no such prompt"]
    found = []
    if not ids or body != context_body(ids, prompt.max_tokens, model):
        found.append("the request that was sent isn't the planned one")
    if row.prompt_tokens is not None and row.prompt_tokens != prompt.tokens:
        found.append(f"the server counts {row.prompt_tokens} prompt tokens, sent were {prompt.tokens}")
    if len(row.token_ids) != prompt.max_tokens:
        found.append(f"{len(row.token_ids)} of {prompt.max_tokens} ids came")
    elif row.finish_reason != "length":
        found.append(f"finish_reason {row.finish_reason}, so ignore_eos was not honoured")
    return found


def _cold(rows: Sequence[Row], prompts: Mapping[str, ContextPrompt]) -> list[Row]:
    """Marked among rows of one length only: a longer prompt takes longer."""

    def length(row: Row) -> int:
        return prompts[row.prompt_id].tokens if row.prompt_id in prompts else 0

    return [row for _, group in itertools.groupby(rows, length) for row in mark_cold(list(group))]


def derive_context_attempt(
    files: AttemptFiles, kind: str, context: ContextPlan, ids: Ids | None, plan: ServerPlan, host: Host
) -> tuple[ContextAttempt, list[Answer]]:
    """Everything evidence says of one server of a depth or probe campaign, and its answers."""
    capture = files.capture
    answers = answers_of(capture, capture_kind(kind), context, ids, plan.served_model_name)
    sent = capture.of_kind(capture_kind(kind)) if capture is not None else []
    counts = [answer.row.completion_tokens for answer in answers if answer.row.completion_tokens is not None]
    tokens = sum(counts) if len(counts) == len(answers) else None
    attempt = ContextAttempt(
        label=files.label,
        directory=files.directory,
        status=files.status,
        error=files.error,
        depth=plan.depth,
        server=files.server,
        rows=[answer.row for answer in answers],
        echoed=sum(answer.echoed for answer in answers),
        canaries_before=canaries_of(plan, capture, "before"),
        canaries_after=canaries_of(plan, capture, "after"),
        acceptance=acceptance_between(capture, "metrics-suite-start", "metrics-suite-end"),
        client=client_facts([[exchange] for _, exchange in sent], capture) if capture is not None and sent else None,
        power_use=power_use(files, [exchange for _, exchange in sent], tokens),
        proof=server_proof(files.server, capture, files.log),
        compile_lines=compilations(files),
        gates=[],
    )
    if files.status is AttemptStatus.INTERRUPTED:
        fault = host_gate(files.label, host, files.server)
        return (attempt.model_copy(update={"gates": [fault]}) if is_fault(fault) else attempt), answers
    found = _gates(attempt, files, kind, context, ids, answers, host)
    if files.status is AttemptStatus.INVALID:
        found = [gate for gate in found if (gate.name == "stream" and answers) or is_fault(gate)]
    return attempt.model_copy(update={"gates": found}), answers


def _gates(
    attempt: ContextAttempt,
    files: AttemptFiles,
    kind: str,
    context: ContextPlan,
    ids: Ids | None,
    answers: Sequence[Answer],
    host: Host,
) -> list[Gate]:
    label, rows, client = attempt.label, attempt.rows, attempt.client
    found = [
        workload_gate(label, context, answers, tokenize_problem(files.capture, context, ids)),
        gates.stream_gate(label, rows),
        gates.cache_zero_gate(label, rows),
        canary_gate(label, attempt.canaries_before, attempt.canaries_after),
    ]
    if kind == "depth":
        found.append(gates.degenerate_gate(label, rows))
    found.append(fresh_of(label, files, [row.completion_tokens for row in rows]))
    if kind == "depth":
        # Probes have no rate, and what follows a prompt of one token may well repeat itself on every server.
        sent = files.capture.of_kind(CONTEXT) if files.capture is not None else []
        found.append(
            gates.client_gate(
                label,
                rows,
                [lag for _, exchange in sent for lag in kernel_lags_us(exchange)],
                chunk_gaps_ms(rows),
                client.cpu_share if client is not None else None,
                client.timestamp_source if client is not None else "unknown",
            )
        )
    return [*found, host_gate(label, host, files.server)]


def tokenize_problem(capture: Capture | None, context: ContextPlan, ids: Ids | None) -> str | None:
    """Whether the server's own /tokenize gave the ids that were sent, from its answers; a sentence if not."""
    if ids is None:
        return "no prompts were kept"
    given = tokenized(capture.controls if capture is not None else [], context)
    if isinstance(given, str):
        return given
    other = first_other(ids, given)
    return None if other is None else f"its /tokenize disagrees with the prompts that were sent: {other}"


def workload_gate(label: str, context: ContextPlan, answers: Sequence[Answer], said: str | None) -> Gate:
    """``workload``: every planned prompt once and in order, of exactly its length, answered with as many ids as asked.

    ``said`` is what is wrong with the ids that the server's /tokenize gave.
    """
    failures = [] if said is None else [said]
    names, wanted = [answer.row.prompt_id for answer in answers], [prompt.id for prompt in context.prompts]
    failures += [f"{name} ran {names.count(name)} times" for name in dict.fromkeys(names) if names.count(name) > 1]
    failures += [f"{name} did not run" for name in wanted if name not in names]
    if not failures and names != wanted:
        failures.append("the prompts did not run in the plan's order")
    failures += [f"{answer.row.prompt_id}: {problem}" for answer in answers for problem in answer.problems]
    requests = [answer.row.request_id for answer in answers]
    failures += [f"request id {name} was sent twice" for name in dict.fromkeys(requests) if requests.count(name) > 1]
    if not answers:
        failures.append("there is no row")
    echoed = sum(answer.echoed for answer in answers)
    notes = (
        [] if echoed == len(answers) else [f"prompt ids returned by the server: unknown for {len(answers) - echoed}"]
    )
    said_failures = [f"{label}: {failure}" for failure in failures]
    return Gate(name="workload", subject=label, passed=not failures, failures=said_failures, notes=notes)


def compare_gate(
    name: str,
    context: ContextPlan,
    left: tuple[Arm, Sequence[Answer]],
    right: tuple[Arm, Sequence[Answer]],
    *,
    allowed_env: frozenset[str],
    allowed_args: frozenset[str],
) -> Gate:
    """``context`` or ``probes``: whole arrays equal between a measured server and its oracle, every planned prompt.

    An answer that is incomplete or not the planned one can't be compared, and fails.
    """
    failures = gates.setup_failures(left[0], right[0], allowed_env, allowed_args)
    sides = [{answer.row.prompt_id: answer for answer in side[1]} for side in (left, right)]
    exact, divergences = 0, []
    for prompt in context.prompts:
        unfit = []
        for arm, found in zip((left[0], right[0]), sides, strict=True):
            answer = found.get(prompt.id)
            unfit += [f"{prompt.id} on {arm.label}: {problem}" for problem in whole_problems(answer)]
        failures += unfit
        a, b = (side.get(prompt.id) for side in sides)
        if a is None or b is None:
            continue
        at = divergence(prompt.id, a.row.token_ids, b.row.token_ids)
        if at is None:
            exact += not unfit
        elif a.row.complete and b.row.complete:
            divergences.append(at)
    failures += [at.sentence() for at in divergences]
    return Gate(
        name=name,
        subject=f"{left[0].label} vs {right[0].label}",
        passed=not failures,
        failures=[f"{name} {left[0].label} vs {right[0].label}: {failure}" for failure in failures],
        exact=exact,
        total=len(context.prompts),
        divergences=divergences,
    )


def whole_problems(answer: Answer | None) -> list[str]:
    """Why an answer can't be compared; empty when it can."""
    if answer is None:
        return ["it did not run"]
    row = answer.row
    if not row.complete:
        return [f"it is incomplete ({row.reason or 'no reason given'})"]
    cached = [] if row.cached_tokens == 0 else [f"cached_tokens is {row.cached_tokens}, not 0"]
    return [*answer.problems, *cached]
