"""One ladder server's files → its sequential answers, batches, canaries, client and gates (contract section 5)."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.evidence.attempts import (
    acceptance_between,
    answer_body,
    canaries_of,
    canary_gate,
    client_facts,
    cpu_and_wall,
    fresh_of,
    request_body,
)
from harness.evidence.compilations import compilations
from harness.evidence.fresh import server_proof
from harness.evidence.host_gate import host_gate, is_fault
from harness.evidence.ladder_schema import LadderAttempt, RungLooks, Sequential
from harness.evidence.loading import AttemptFiles
from harness.evidence.looks import rung_looks
from harness.evidence.power_use import power_use, rung_power
from harness.evidence.schema import AttemptStatus
from harness.host.facts import Host
from harness.measure import gates, ladder, rates
from harness.measure.gates import Gate
from harness.measure.rows import kernel_lags_us
from harness.plan import LadderPlan, ServerPlan, canonical_json
from harness.wire.capture import Capture, Tag
from harness.wire.completion import Completion, parse_completion
from harness.wire.exchange import Ending, Exchange
from harness.wire.http import arrivals_ns
from harness.workloads.canaries import judge_pulse, pulse
from harness.workloads.ladder import MAX_TOKENS, Slot, ladder_body, parse_stage, stage_name

SEQUENTIAL = "sequential"
BATCH = "batch"
PULSE = "pulse"
"""Kinds of exchanges in a ladder's capture"""

Answers = Mapping[str, Sequence[int]]
"""Slot id → complete id array of its sequential answer"""


@dataclass
class LadderAnswers:
    """What an attempt's capture holds, parsed once."""

    attempt: LadderAttempt
    sequential: dict[str, tuple[int, ...]] = field(default_factory=dict)


def is_degenerate(ids: Sequence[int]) -> bool:
    """One id in more than half of an answer, or alone in its last 64 (contract section 3)."""
    return gates.degeneration(ids) is not None


def problem_of(completion: Completion) -> str | None:
    """Why an answer isn't a whole ladder answer: incomplete, not 128 ids, or degenerate; None when it is."""
    if completion.reason is not None:
        return f"{completion.reason.value}: {completion.detail}"
    if len(completion.token_ids) != MAX_TOKENS:
        return f"{len(completion.token_ids)} of {MAX_TOKENS} ids came, so ignore_eos was not honoured"
    if completion.finish_reason != "length":
        return f"finish_reason {completion.finish_reason}, so ignore_eos was not honoured"
    return None


def derive_ladder_attempt(
    files: AttemptFiles,
    slots: Sequence[Slot],
    plan: ServerPlan,
    ladder_plan: LadderPlan,
    host: Host,
    mtp0: Answers | None,
) -> LadderAnswers:
    """Everything evidence says of one server of a ladder; ``mtp0`` are the oracle's answers, None at MTP0."""
    capture = files.capture
    by_id = {slot.id: slot for slot in slots}
    sequential, own, counts = _sequential(capture, by_id, plan)
    grouped = _grouped(capture)
    batches = [
        derive_batch(rung, number, items, by_id, plan, ladder_plan, own, mtp0)
        for (rung, number), items in grouped.items()
    ]
    right, wrong = _pulses(plan, capture, files.status)
    sent = [item for item in capture.exchanges if item[0].kind in (SEQUENTIAL, BATCH)] if capture is not None else []
    attempt = LadderAttempt(
        label=files.label,
        directory=files.directory,
        status=files.status,
        error=files.error,
        depth=plan.depth,
        server=files.server,
        sequential=sequential,
        batches=batches,
        clients=_clients(grouped, batches),
        canaries_before=canaries_of(plan, capture, "before"),
        canaries_after=canaries_of(plan, capture, "after"),
        pulses=right,
        pulse_problems=wrong,
        acceptance=acceptance_between(capture, "metrics-suite-start", "metrics-suite-end"),
        client=client_facts(_together(sent), capture) if capture is not None and sent else None,
        power_use=power_use(files, [exchange for _, exchange in sent], _tokens(counts, batches)),
        rung_power=rung_power(
            files,
            {place: [exchange for _, exchange in items] for place, items in grouped.items()},
            {(batch.rung, batch.number): sum(item.tokens for item in batch.requests) for batch in batches},
        ),
        proof=server_proof(files.server, capture, files.log),
        compile_lines=compilations(files),
        rung_looks=_looks(capture, grouped),
        gates=[],
    )
    if files.status is AttemptStatus.COMPLETE:
        counts += [item.tokens if item.complete else None for batch in batches for item in batch.requests]
        found = _gates(attempt, files, host, counts)
        attempt = attempt.model_copy(update={"gates": found})
    elif is_fault(gate := host_gate(files.label, host, files.server)):
        attempt = attempt.model_copy(update={"gates": [gate]})
    return LadderAnswers(attempt, own)


def _tokens(sequential: Sequence[int | None], batches: Sequence[ladder.Batch]) -> int | None:
    """Of all answers; None when a sequential one didn't say."""
    known = [count for count in sequential if count is not None]
    if len(known) < len(sequential):
        return None
    return sum(known) + sum(item.tokens for batch in batches for item in batch.requests)


def _together(sent: Sequence[tuple[Tag, Exchange]]) -> list[list[Exchange]]:
    """Exchanges that were open together: a batch each, and each sequential one alone."""
    groups: dict[str, list[Exchange]] = {}
    for number, (tag, exchange) in enumerate(sent):
        groups.setdefault(tag.stage if tag.kind == BATCH else f"{tag.kind} {number}", []).append(exchange)
    return list(groups.values())


def _sequential(
    capture: Capture | None, slots: Mapping[str, Slot], plan: ServerPlan
) -> tuple[Sequential, dict[str, tuple[int, ...]], list[int | None]]:
    """What the sequential answers were, the whole ones by slot, and the tokens that the server counted for each."""
    counts: list[int | None] = []
    answers: dict[str, tuple[int, ...]] = {}
    problems, warnings, asked = [], [], 0
    for tag, exchange in capture.of_kind(SEQUENTIAL, "seq") if capture is not None else []:
        asked += 1
        completion = parse_completion(exchange)
        counts.append(completion.usage.completion_tokens if completion.usage is not None else None)
        problem = _unasked(tag, exchange, slots, plan) or problem_of(completion)
        if problem is None and is_degenerate(completion.token_ids):
            problem = "a degenerate answer"
        cached = completion.usage.cached_tokens if completion.usage is not None else None
        if problem is None and cached != 0:
            problem = "no cached_tokens was reported" if cached is None else f"{cached} prompt tokens came from a cache"
        if problem is None:
            answers[tag.name] = completion.token_ids
        else:
            problems.append(f"{tag.name}: {problem}")
        warnings += [f"{tag.name}: {note}" for note in completion.notes]
    return Sequential(slots=asked, answered=len(answers), problems=problems, warnings=warnings), answers, counts


def _unasked(tag: Tag, exchange: Exchange, slots: Mapping[str, Slot], plan: ServerPlan) -> str | None:
    """Whether the request that was sent is the slot's; a sentence when it isn't."""
    slot = slots.get(tag.name)
    if slot is None or request_body(exchange) != ladder_body(slot.text, plan.served_model_name):
        return "the request that was sent isn't the ladder's"
    return None


def _grouped(capture: Capture | None) -> dict[tuple[int, int], list[tuple[Tag, Exchange]]]:
    """Whole batches by (rung, pass), in the order sent."""
    grouped: dict[tuple[int, int], list[tuple[Tag, Exchange]]] = {}
    for tag, exchange in capture.exchanges if capture is not None else []:
        place = parse_stage(tag.stage) if tag.kind == BATCH else None
        if place is not None:
            grouped.setdefault(place, []).append((tag, exchange))
    # A kill in mid-batch leaves fewer requests, or one without an end: that batch was never measured.
    return {
        (rung, number): sent
        for (rung, number), sent in grouped.items()
        if len(sent) == rung and all(exchange.ending is not Ending.INTERRUPTED for _, exchange in sent)
    }


def whole_batches(capture: Capture | None) -> dict[tuple[int, int], list[tuple[Tag, Exchange]]]:
    """(rung, pass) → the exchanges of each batch that was sent whole, in the order sent."""
    return _grouped(capture)


def _looks(capture: Capture | None, grouped: Iterable[tuple[int, int]]) -> list[RungLooks]:
    stages: dict[int, list[str]] = {}
    for rung, number in grouped:
        stages.setdefault(rung, []).append(stage_name(rung, number))
    return [] if capture is None else rung_looks(capture.controls, stages)


def _clients(
    grouped: Mapping[tuple[int, int], Sequence[tuple[Tag, Exchange]]], batches: Sequence[ladder.Batch]
) -> list[ladder.RungClient]:
    """The client at each rung, over its passes: one late read of forty is no bottleneck, one in a hundred is."""
    made = []
    for rung in dict.fromkeys(batch.rung for batch in batches):
        passes = [[exchange for _, exchange in sent] for (users, _), sent in grouped.items() if users == rung]
        lags = [lag for batch in passes for exchange in batch for lag in kernel_lags_us(exchange)]
        gaps = [gap for batch in passes for exchange in batch for gap in read_gaps_ms(exchange)]
        spent = [cpu_and_wall(batch) for batch in passes]
        wall = sum(item[1] for item in spent)
        share = sum(item[0] for item in spent) / wall if wall > 0 else None
        gate = gates.client_gate(f"c{rung}", [], lags, gaps, share, "")
        made.append(
            ladder.RungClient(
                rung=rung,
                reads=sum(len(exchange.sizes) for batch in passes for exchange in batch),
                lag_p99_us=rates.p99_or_max(lags),
                median_gap_ms=rates.median(gaps),
                cpu_share=share,
                failures=[item for item in gate.failures if "there is no row" not in item],
            )
        )
    return made


def read_gaps_ms(exchange: Exchange) -> list[float]:
    """Gaps between the reads of one stream from its first event on, milliseconds; reads of one instant are one."""
    times = list(dict.fromkeys(arrivals_ns(exchange)))
    # The head comes before the first token; what follows it are chunks.
    return [(later - earlier) / 1e6 for earlier, later in itertools.pairwise(times[1:])]


def derive_batch(
    rung: int,
    number: int,
    sent: Sequence[tuple[Tag, Exchange]],
    slots: Mapping[str, Slot],
    plan: ServerPlan,
    ladder_plan: LadderPlan,
    own: Answers,
    mtp0: Answers | None,
) -> ladder.Batch:
    """One rung in one pass, from its exchanges in the order of the slots."""
    requests, arrivals, coalesced = [], [], 0
    for position, (tag, exchange) in enumerate(sent):
        completion = parse_completion(exchange)
        released = (exchange.released_ns or 0) / 1e6
        unasked = _unasked(tag, exchange, slots, plan)
        problem = unasked or problem_of(completion)
        exact_own, exact_mtp0, at = ladder.compare(
            tag.name, completion.token_ids, own.get(tag.name), None if mtp0 is None else mtp0.get(tag.name, ())
        )
        chunks = [(ns / 1e6 + released, size) for ns, size in _pairs(completion)]
        last = completion.end_ns / 1e6 + released
        arrivals.append(ladder.Arrivals(chunks=chunks, last_byte_ms=last))
        coalesced += len(completion.chunk_ns) - len(set(completion.chunk_ns))
        requests.append(
            ladder.Request(
                slot=tag.name,
                prompt_sha256=slots[tag.name].sha256 if tag.name in slots else "",
                complete=problem is None,
                reason=None if problem is None else _reason(completion, asked=unasked is None),
                detail=problem or "",
                tokens=len(completion.token_ids),
                ids_sha256=hashlib.sha256(canonical_json(list(completion.token_ids)).encode()).hexdigest(),
                cached_tokens=completion.usage.cached_tokens if completion.usage is not None else None,
                asked_release_ms=position * ladder_plan.stagger_ms,
                released_ms=released,
                ttft_ms=completion.chunk_ns[0] / 1e6 if completion.chunk_ns else None,
                first_id_ms=chunks[0][0] if chunks else None,
                last_byte_ms=last,
                exact_own=exact_own,
                exact_mtp0=exact_mtp0,
                divergence=at,
                degenerate=problem is None and is_degenerate(completion.token_ids),
                warnings=list(completion.notes),
            )
        )
    exchanges = [exchange for _, exchange in sent]
    complete = all(item.complete for item in requests)
    aggregate, steady = ladder.batch_rates(arrivals) if complete else (None, None)
    groups, disagreeing = ladder.copy_groups(requests)
    lags = [lag for exchange in exchanges for lag in kernel_lags_us(exchange)]
    reads = sum(len(exchange.sizes) for exchange in exchanges)
    cpu_s, wall_s = cpu_and_wall(exchanges)
    share = cpu_s / wall_s if wall_s > 0 else None
    return ladder.Batch(
        rung=rung,
        number=number,
        requests=requests,
        aggregate_tok_s_wall=aggregate,
        steady_tok_s=steady,
        exact=sum(item.exact for item in requests),
        exact_own=sum(item.exact_own for item in requests),
        exact_mtp0=None if mtp0 is None else sum(item.exact_mtp0 is True for item in requests),
        copy_groups=groups,
        copy_groups_disagreeing=disagreeing,
        lag_p99_us=rates.p99_or_max(lags),
        cpu_share=share,
        cpu_us_per_read=cpu_s * 1e6 / reads if reads else None,
        reads=reads,
        coalesced_reads=coalesced,
        release_error_max_ms=max((abs(r.released_ms - r.asked_release_ms) for r in requests), default=0.0),
    )


def _reason(completion: Completion, *, asked: bool) -> str:
    """The one word for a request that is no whole ladder answer."""
    if not asked:
        return "not-asked"
    return completion.reason.value if completion.reason is not None else "ignore-eos-not-honoured"


def _pairs(completion: Completion) -> list[tuple[int, int]]:
    return list(zip(completion.chunk_ns, completion.chunk_sizes, strict=True))


def _pulses(plan: ServerPlan, capture: Capture | None, status: AttemptStatus) -> tuple[int, list[str]]:
    """(right ones, sentences for wrong ones): the short canary after each batch.

    One that our own interruption cut off says nothing of the server.
    """
    right, wrong = 0, []
    first: bytes | None = None
    for tag, exchange in [item for item in capture.exchanges if item[0].kind == PULSE] if capture is not None else []:
        if status is AttemptStatus.INTERRUPTED and exchange.ending is Ending.INTERRUPTED:
            continue
        request = pulse(plan.served_model_name, plan.canaries, enable_thinking=plan.canary_thinking)
        body = answer_body(exchange)
        problem = judge_pulse(plan.canaries, body, first)
        first = first or body
        if request_body(exchange) != request.body:
            problem = "the request that was sent isn't the canary's"
        if problem is None:
            right += 1
        else:
            wrong.append(f"canary after {tag.name}: {problem}")
    return right, wrong


def _gates(attempt: LadderAttempt, files: AttemptFiles, host: Host, counts: Sequence[int | None]) -> list[Gate]:
    label = attempt.label
    canary = canary_gate(label, attempt.canaries_before, attempt.canaries_after)
    failures = [*canary.failures, *(f"{label}: {problem}" for problem in attempt.pulse_problems)]
    canary = canary.model_copy(update={"failures": failures, "passed": not failures})
    sequential = [f"{label}: sequential answer of {problem}" for problem in attempt.sequential.problems]
    if not attempt.sequential.slots:
        sequential.append(f"{label}: the sequential oracle was not asked")
    stream = Gate(name="sequential", subject=label, passed=not sequential, failures=sequential)
    return [canary, stream, fresh_of(label, files, counts), host_gate(label, host, files.server)]


def answers_sha256(answers: Answers) -> str:
    """Identity of a set of sequential answers."""
    return hashlib.sha256(canonical_json({slot: list(ids) for slot, ids in answers.items()}).encode()).hexdigest()


def load_answers(text: bytes) -> dict[str, tuple[int, ...]]:
    """``{"slot": [ids]}`` → answers. Raises ValueError for another shape."""
    raw = json.loads(text)
    if not isinstance(raw, dict) or not all(
        isinstance(ids, list) and all(type(token) is int for token in ids) for ids in raw.values()
    ):
        raise ValueError("not a set of sequential answers")
    return {str(slot): tuple(ids) for slot, ids in raw.items()}
