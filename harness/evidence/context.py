"""A depth or probe campaign's directory → ContextEvidence (contract section 7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EvidenceError, ExitCode
from harness.evidence import journal
from harness.evidence.arms import arm_of
from harness.evidence.attempts import divergences_before, failed_by
from harness.evidence.compilations import compile_unknown
from harness.evidence.context_attempts import Answer, compare_gate, derive_context_attempt, whole_problems
from harness.evidence.context_schema import ClassPoint, ContextAttempt, ContextEvidence, Point, Probe
from harness.evidence.host_gate import is_fault
from harness.evidence.loading import AttemptFiles, ending
from harness.evidence.power_use import telemetry_unknown
from harness.evidence.prompts import load_prompts
from harness.evidence.schema import AttemptStatus, Start, Status
from harness.measure import rates
from harness.measure.gates import Gate, cache_zero_gate, degenerate_gate, degeneration, stream_gate
from harness.measure.identity import Divergence, divergence
from harness.plan import SPECULATIVE_FLAG, ContextPlan, ContextPrompt, ServerPlan

OF_ROWS = ("workload", "stream", "cache-zero", "degenerate")
"""Gates of a server whose failures belong to single answers"""

NOT_COMPARED = "not compared (at MTP0 there is no other server to compare with)"

Measured = dict[str, tuple[ContextAttempt, list[Answer]]]
"""The attempt that counts for each label, its last one"""


def context_label(depth: int) -> str:
    """Label of the server of that MTP depth."""
    return f"mtp{depth}"


def derive_context(
    directory: Path, start: Start, events: Sequence[journal.Event], files: Sequence[AttemptFiles]
) -> ContextEvidence:
    """Everything evidence.json says of a depth or probe campaign. Raises EvidenceError."""
    context = start.plan.context
    if context is None:
        raise EvidenceError(f"{journal.NAME}: a {start.plan.kind} campaign without its prompts; get the original file")
    plans = {plan.label: plan for plan in start.plan.servers}
    ids = load_prompts(directory, events, context)
    every, last = list[ContextAttempt](), Measured()
    for item in files:
        if item.label not in plans:
            raise EvidenceError(f"{journal.NAME} has an attempt {item.label}, which the plan doesn't know")
        attempt, answers = derive_context_attempt(item, start.plan.kind, context, ids, plans[item.label], start.host)
        every.append(attempt)
        last[item.label] = attempt, answers
    gates = _gates(start, context, plans, last)
    oracle = last[context_label(0)][0].rows if context_label(0) in last else []
    again = [item for item in every if item is not last[item.label][0]]
    before = [said for item in again for said in divergences_before(item.directory, item.rows, oracle)]
    gates = [failed_by(gate, before) for gate in gates]
    depth = start.plan.kind == "depth"
    points = _points(context, last, gates, before) if depth else []
    probes = [] if depth else _probes(context, last)
    return _evidence(start, events, every, last, gates, points, probes)


def _gates(start: Start, context: ContextPlan, plans: Mapping[str, ServerPlan], last: Measured) -> list[Gate]:
    """The measured server against MTP0, once both are complete."""
    whole = [label for label, (attempt, _) in last.items() if attempt.status is AttemptStatus.COMPLETE]
    left, right = context_label(start.plan.depth), context_label(0)
    if start.plan.depth == 0 or left not in whole or right not in whole:
        return []
    sides = [
        (arm_of(start, label, last[label][0].server, plans[label], last[label][0].rows), last[label][1])
        for label in (left, right)
    ]
    return [
        compare_gate(
            "context" if start.plan.kind == "depth" else "probes",
            context,
            sides[0],
            sides[1],
            allowed_env=frozenset(start.depth_env),
            allowed_args=frozenset({SPECULATIVE_FLAG}),
        )
    ]


@dataclass(frozen=True)
class Against:
    """An answer beside the oracle's to the same prompt."""

    exact: bool | None
    """null where the oracle has none"""
    divergence: Divergence | None


def _against(answer: Answer, label: str, last: Measured) -> Against:
    """Compared also where one of the two servers ended early: then there is no gate, and still this answer."""
    oracle, name = last.get(context_label(0)), answer.row.prompt_id
    base = next((item for item in oracle[1] if item.row.prompt_id == name), None) if oracle is not None else None
    if base is None or label == context_label(0):
        return Against(None, None)
    at = divergence(name, answer.row.token_ids, base.row.token_ids)
    fit = not whole_problems(answer) and not whole_problems(base)
    return Against(fit and at is None, at if answer.row.complete and base.row.complete else None)


def _points(context: ContextPlan, last: Measured, gates: Sequence[Gate], before: Sequence[str]) -> list[Point]:
    """A point for every server and context that was asked; ``before`` are differences of attempts that ended early."""
    points = []
    # What a gate says of no single prompt is about the two servers: then nothing they gave can be compared.
    of_both = [
        said for gate in gates for said in gate.failures if not any(f": {item.id} " in said for item in context.prompts)
    ]
    for label, (attempt, answers) in last.items():
        by_id = {answer.row.prompt_id: answer for answer in answers}
        of_server = [
            f"{gate.name} of {label} failed" for gate in attempt.gates if not gate.passed and gate.name not in OF_ROWS
        ]
        for tokens in sorted({prompt.tokens for prompt in context.prompts}):
            prompts = [prompt for prompt in context.prompts if prompt.tokens == tokens]
            found = [by_id[prompt.id] for prompt in prompts if prompt.id in by_id]
            if found:
                compared = [_against(answer, label, last) for answer in found]
                of_prompts = [said for said in before if any(f": {prompt.id} " in said for prompt in prompts)]
                why = [*of_server, *([*of_both, *of_prompts] if attempt.depth else [])]
                points.append(_point(attempt, tokens, prompts, found, compared, why))
    return points


def _point(
    attempt: ContextAttempt,
    tokens: int,
    prompts: Sequence[ContextPrompt],
    answers: Sequence[Answer],
    compared: Sequence[Against],
    of_server: Sequence[str],
) -> Point:
    rows = [answer.row for answer in answers]
    whole = len(rows) == len(prompts) and all(answer.row.complete and not answer.problems for answer in answers)
    why = [f"{answer.row.prompt_id}: {problem}" for answer in answers for problem in answer.problems]
    for check in (stream_gate, cache_zero_gate, degenerate_gate):
        why += check(attempt.label, rows).failures
    why += [item.divergence.sentence() for item in compared if item.divergence is not None]
    if len(rows) < len(prompts):
        why.append(f"{len(rows)} of {len(prompts)} classes were asked")
    if attempt.status is not AttemptStatus.COMPLETE:
        why.append(f"{attempt.label} is {attempt.status}")
    exact = None
    if attempt.depth:
        exact = sum(item.exact is True for item in compared)
        if any(item.exact is None for item in compared):
            why.append("there is no answer of an MTP0 server to compare with")
        elif exact < len(prompts) and not why:
            why.append(f"{exact} of {len(prompts)} arrays equal the MTP0 server's")
    return Point(
        label=attempt.label,
        depth=attempt.depth,
        context=tokens,
        tok_s=_median([row.tok_s_1_100 for row in rows]) if whole else None,
        tok_s_burst_exact=_median([row.tok_s_burst_exact for row in rows]) if whole else None,
        ttft_ms=_median([row.ttft_ms for row in rows]) if whole else None,
        exact=exact,
        total=len(prompts),
        withheld=bool(why or of_server),
        why=[*why, *of_server],
        classes=[
            ClassPoint(
                prompt_class=row.prompt_class,
                prompt_id=row.prompt_id,
                tok_s=row.tok_s_1_100,
                tok_s_burst_exact=row.tok_s_burst_exact,
                ttft_ms=row.ttft_ms,
                exact=item.exact,
                divergence=item.divergence,
            )
            for row, item in zip(rows, compared, strict=True)
        ],
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return rates.median(known) if known and len(known) == len(values) else None


def _probes(context: ContextPlan, last: Measured) -> list[Probe]:
    prompts = {prompt.id: prompt for prompt in context.prompts}
    found = []
    for label, (_, answers) in last.items():
        for answer in answers:
            prompt, compared = prompts.get(answer.row.prompt_id), _against(answer, label, last)
            if prompt is not None:
                found.append(
                    Probe(
                        label=label,
                        prompt_id=prompt.id,
                        prompt_class=prompt.text,
                        what=prompt.what,
                        tokens=prompt.tokens,
                        max_tokens=prompt.max_tokens,
                        exact=compared.exact,
                        divergence=compared.divergence,
                        problems=whole_problems(answer),
                        degenerate=degeneration(answer.row.token_ids) if answer.row.token_ids else None,
                    )
                )
    return found


def _evidence(
    start: Start,
    events: Sequence[journal.Event],
    attempts: list[ContextAttempt],
    last: Measured,
    gates: list[Gate],
    points: list[Point],
    probes: list[Probe],
) -> ContextEvidence:
    ended = ending(events)
    valid = [attempt for attempt, _ in last.values()]
    without_rate = [
        f"{point.label}: there is no rate at {point.context} tokens of context"
        for point in points
        if point.tok_s is None and not point.why
    ]
    # A card that has faulted may not be what it was, so the fault of an attempt that was measured anew counts too.
    lost = [g for item in attempts if item is not last[item.label][0] for g in item.gates if is_fault(g)]
    status, code = _status(start, ended, valid, [*gates, *lost], rated=not without_rate)
    of_servers = sorted((gate for item in valid for gate in item.gates), key=lambda gate: gate.name != "stream")
    of_servers += lost
    reasons = [item.error for item in valid if item.error]
    reasons += [failure for gate in [*of_servers, *gates] for failure in gate.failures] + without_rate
    if ended is not None and ended.error and ended.error not in reasons:
        # What ended it is what a person asks first; an attempt that was interrupted says so itself.
        reasons.insert(0 if ended.status == Status.INTERRUPTED else len(reasons), ended.error)
    kind = "depth" if start.plan.kind == "depth" else "probe"
    unknown = [*start.unknown, *(f"host fact {name}: unknown" for name in start.host.unknown())]
    notes = [(item.label, note) for item in valid for gate in item.gates for note in gate.notes]
    evidence = ContextEvidence(
        campaign_id=start.campaign_id,
        kind=kind,
        status=status,
        exit_code=code,
        conclusion="",
        scope=_scope(start, points),
        simulated=start.simulated,
        withheld=status is not Status.PASSED,
        reasons=reasons,
        start=start,
        started_at=events[0].at,
        ended_at=None if ended is None else ended.at,
        resumed=[event.at for event in events if event.event == "campaign-resumed"],
        points=points,
        probes=probes,
        gates=gates,
        attempts=attempts,
        unknown=[
            *unknown,
            *([] if start.plan.depth else [f"correctness of the answers: unknown, {NOT_COMPARED}"]),
            *(f"{label}: {note}" for label, note in notes if "unknown" in note),
            *compile_unknown(valid),
            *telemetry_unknown(valid),
        ],
    )
    return evidence.model_copy(update={"conclusion": _conclusion(evidence)})


def _status(
    start: Start, ended: journal.Event | None, valid: Sequence[ContextAttempt], gates: Sequence[Gate], *, rated: bool
) -> tuple[Status, int]:
    """Contract section 4; what the journal says of the end is believed only for an interruption or an error."""
    if ended is None:
        return (Status.INTERRUPTED if valid else Status.STARTED), ExitCode.INFRASTRUCTURE
    if ended.status == Status.INTERRUPTED or any(item.status is AttemptStatus.INTERRUPTED for item in valid):
        return Status.INTERRUPTED, ExitCode.INFRASTRUCTURE
    if ended.error or any(item.status is AttemptStatus.INVALID for item in valid):
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    of_servers = [gate for item in valid for gate in item.gates]
    if any(gate.name == "stream" and not gate.passed for gate in of_servers):
        return Status.INVALID, ExitCode.GATE_FAILED
    if not all(gate.passed for gate in [*of_servers, *gates]):
        return Status.WITHHELD, ExitCode.GATE_FAILED
    whole = len(valid) == len(start.plan.servers) and len(gates) == (1 if start.plan.depth else 0)
    if not whole or not rated or any(plan.engine == "attach" for plan in start.plan.servers):
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    return Status.PASSED, ExitCode.OK


def _what(start: Start) -> str:
    name = {"depth": "long-context profile", "probe": "boundary probes"}.get(start.plan.kind, start.plan.kind)
    return f"MTP{start.plan.depth} TP{start.plan.tensor_parallel} {name} on {start.plan.lane}"


def _scope(start: Start, points: Sequence[Point]) -> str:
    context = start.plan.context
    if context is None:
        return ""
    texts = ", ".join(f"{name} {sha256[:12]}" for name, sha256 in context.texts.items())
    lengths = ", ".join(str(tokens) for tokens in sorted({prompt.tokens for prompt in context.prompts}))
    sentence = (
        f"{_what(start)}, texts {texts}; prompts of {lengths} tokens, "
        f"{context.prompts[0].max_tokens} tokens a request, one at a time, max-model-len {context.max_model_len}."
    )
    if context.left_out:
        sentence = f"{sentence[:-1]}; without the probes {', '.join(context.left_out)}, which the launcher leaves out."
    missed = [point for point in points if point.withheld and point.depth == start.plan.depth]
    if missed:
        said = ", ".join(
            f"{point.context} {'without a rate' if point.tok_s is None else f'{point.tok_s:.1f}'}"
            + ("" if point.exact is None else f" ({point.exact}/{point.total})")
            for point in missed
        )
        sentence += f" Measured but withheld: {said}."
    return sentence


def _conclusion(evidence: ContextEvidence) -> str:
    start, gates = evidence.start, evidence.gates
    what = f"{'SIMULATED, no measurement: ' if evidence.simulated else ''}{_what(start)}"
    exact = f"{gates[0].name} {gates[0].exact}/{gates[0].total}" if gates else NOT_COMPARED
    if evidence.status is Status.PASSED:
        mine = [point for point in evidence.points if point.depth == start.plan.depth and point.tok_s is not None]
        said = [f"{point.context} tokens {point.tok_s:.1f} tokens/s" for point in mine]
        return f"{what}: {'; '.join([*said, exact])}"
    first = evidence.reasons[0].splitlines()[0] if evidence.reasons else "the campaign did not reach its end"
    if len(evidence.reasons) > 1:
        first += f" (and {len(evidence.reasons) - 1} more)"
    return f"{what}: {evidence.status}: {first}"
