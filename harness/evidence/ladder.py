"""A ladder's directory → LadderEvidence (contract section 5). Pure but for reading the files it is given."""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import EvidenceError, ExitCode
from harness.evidence import journal, store
from harness.evidence.ladder_attempts import (
    Answers,
    LadderAnswers,
    answers_sha256,
    derive_ladder_attempt,
    load_answers,
)
from harness.evidence.ladder_schema import LadderAttempt, LadderEvidence, OracleFacts
from harness.evidence.loading import AttemptFiles, ending, load_attempts, load_start
from harness.evidence.schema import AttemptStatus, Start, Status
from harness.measure.gates import Gate
from harness.measure.identity import divergence
from harness.measure.ladder import Batch, Rung, RungClient, summarise_rung, withheld_sentence
from harness.plan import LadderPlan
from harness.suites import Suite, load_suite
from harness.workloads.ladder import Slot, captured, slots

ORACLE = "oracle.json"
"""Sequential answers taken from an earlier MTP0 campaign"""
ORACLE_LABEL = "mtp0-oracle"


def ladder_label(depth: int) -> str:
    """Label of the server whose rungs are measured."""
    return f"mtp{depth}"


def ladder_slots(suite: Suite, plan: LadderPlan) -> tuple[Slot, ...]:
    """Every slot of a campaign."""
    return slots(suite, max(plan.rungs), verbatim=plan.verbatim)


def derive_ladder(
    directory: Path, start: Start, events: Sequence[journal.Event], files: Sequence[AttemptFiles], suite: Suite
) -> LadderEvidence:
    """Everything evidence.json says of a ladder. Raises EvidenceError."""
    plan = start.plan.ladder
    if plan is None:
        raise EvidenceError(f"{journal.NAME}: a ladder without its rungs; get the original file")
    plans = {server.label: server for server in start.plan.servers}
    every, known = [], ladder_slots(suite, plan)
    mtp0, source = _external_oracle(directory, start, plan), "evidence"
    oracle = [item for item in files if item.label == ORACLE_LABEL]
    if mtp0 is None:
        source = "server" if ORACLE_LABEL in plans else "own"
    for item in oracle:
        found = derive_ladder_attempt(item, known, plans[item.label], plan, start.host, None)
        every.append(found)
        if item.status is AttemptStatus.COMPLETE:
            mtp0 = found.sequential
    own = source == "own"
    measured: list[LadderAnswers] = []
    for item in files:
        if item.label != ORACLE_LABEL:
            server = plans.get(item.label)
            if server is None:
                raise EvidenceError(f"{journal.NAME} has an attempt {item.label}, which the plan doesn't know")
            answers = None if own else (mtp0 or {})
            measured.append(derive_ladder_attempt(item, known, server, plan, start.host, answers))
    every += measured
    attempts = [item.attempt for item in every]
    tied = next((item.sequential for item in reversed(measured) if item.sequential), None)
    facts, gate = _tie(start, source, mtp0, tied, [slot.id for slot in known])
    batches = [batch for item in measured for batch in item.attempt.batches]
    clients = [client for item in measured for client in item.attempt.clients]
    rungs = _rungs(plan, start.plan.depth, batches, clients)
    return _evidence(start, events, plan, attempts, facts, gate, batches, rungs)


def _external_oracle(directory: Path, start: Start, plan: LadderPlan) -> Answers | None:
    if plan.oracle is None:
        return None
    path = directory / ORACLE
    try:
        answers = load_answers(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{ORACLE} of {start.campaign_id} can't be read ({error}); get the original file") from None
    if answers_sha256(answers) != plan.oracle:
        raise EvidenceError(f"{ORACLE} isn't the oracle that was given: its sha256 differs from the plan's")
    return answers


def _tie(
    start: Start, source: str, mtp0: Answers | None, own: Answers | None, ids: Sequence[str]
) -> tuple[OracleFacts, list[Gate]]:
    """The sequential answers of depth D against MTP0's: the tie that makes the ladder more than self-consistent."""
    if source == "own":
        return OracleFacts(source="own"), []
    if mtp0 is None or own is None:
        return OracleFacts(source="server" if source == "server" else "evidence"), []
    found = [divergence(slot, own.get(slot, ()), mtp0.get(slot, ())) for slot in ids]
    missed = [item for item in found if item is not None]
    exact = len(ids) - len(missed)
    label = ladder_label(start.plan.depth)
    failures = [f"oracle: {item.sentence()}" for item in missed]
    gate = Gate(
        name="oracle",
        subject=f"{label} vs MTP0, sequential",
        passed=not failures,
        failures=failures,
        exact=exact,
        total=len(ids),
        divergences=missed,
    )
    facts = OracleFacts(source="server" if source == "server" else "evidence", exact=exact, total=len(ids))
    return facts, [gate]


def _rungs(plan: LadderPlan, depth: int, batches: Sequence[Batch], clients: Sequence[RungClient]) -> list[Rung]:
    made = []
    for rung in plan.rungs:
        mine = [batch for batch in batches if batch.rung == rung]
        if mine:
            seen = [client for client in clients if client.rung == rung]
            made.append(summarise_rung(rung, mine, seen, captured=captured(rung, depth, plan.ceiling)))
    return made


def passes_done(plan: LadderPlan, attempts: Sequence[LadderAttempt]) -> int:
    """Whole passes, from pass 1 on without a hole: every rung of the pass was measured on one server."""
    whole = set()
    for attempt in attempts:
        for number in range(1, plan.passes + 1):
            if {batch.rung for batch in attempt.batches if batch.number == number} == set(plan.rungs):
                whole.add(number)
    done = 0
    while done + 1 in whole:
        done += 1
    return done


def _evidence(
    start: Start,
    events: Sequence[journal.Event],
    plan: LadderPlan,
    attempts: Sequence[LadderAttempt],
    oracle: OracleFacts,
    gates: list[Gate],
    batches: Sequence[Batch],
    rungs: list[Rung],
) -> LadderEvidence:
    ended = ending(events)
    valid = [item for item in attempts if item.status is not AttemptStatus.INTERRUPTED]
    label = ladder_label(start.plan.depth)
    done = passes_done(plan, [item for item in attempts if item.label == label])
    of_servers = [gate for item in valid for gate in item.gates]
    failures = [failure for gate in [*of_servers, *gates] for failure in gate.failures]
    why = [sentence for rung in rungs for sentence in rung.why]
    errors = [item.error for item in valid if item.error and item.status is AttemptStatus.INVALID]
    last = {item.label: item for item in attempts}
    status, code = _status(start, ended, last, done, plan, failures, why)
    reasons = [*(last[item].error for item in last if last[item].error), *failures, *why]
    if ended is not None and ended.error and ended.error not in reasons:
        reasons.append(ended.error)
    shown = bool(rungs) and not why and not failures and not errors
    classification: str | None = None
    if shown and status is Status.PASSED:
        classification = "harness-certified" if plan.stagger_ms > 0 else "output-identity-qualified"
    evidence = LadderEvidence(
        campaign_id=start.campaign_id,
        kind="ladder",
        status=status,
        exit_code=code,
        conclusion="",
        classification=classification,
        scope=_scope(start, plan, rungs, done),
        simulated=start.simulated,
        withheld=status is not Status.PASSED,
        reasons=reasons,
        start=start,
        started_at=events[0].at,
        ended_at=None if ended is None else ended.at,
        resumed=[event.at for event in events if event.event == "campaign-resumed"],
        passes_done=done,
        rungs=rungs,
        oracle=oracle,
        gates=gates,
        attempts=list(attempts),
        unknown=_unknown(start, valid),
    )
    return evidence.model_copy(update={"conclusion": _conclusion(evidence, plan)})


def _status(
    start: Start,
    ended: journal.Event | None,
    last: dict[str, LadderAttempt],
    done: int,
    plan: LadderPlan,
    failures: Sequence[str],
    why: Sequence[str],
) -> tuple[Status, int]:
    if ended is None:
        return (Status.INTERRUPTED if last else Status.STARTED), ExitCode.INFRASTRUCTURE
    if ended.status == Status.INTERRUPTED or any(a.status is AttemptStatus.INTERRUPTED for a in last.values()):
        return Status.INTERRUPTED, ExitCode.INFRASTRUCTURE
    if ended.error or any(item.status is AttemptStatus.INVALID for item in last.values()):
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    if set(last) != {server.label for server in start.plan.servers} or done < plan.passes:
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    if failures or why:
        return Status.WITHHELD, ExitCode.GATE_FAILED
    return Status.PASSED, ExitCode.OK


def _scope(start: Start, plan: LadderPlan, rungs: Sequence[Rung], done: int) -> str:
    what = start.plan
    suite = f"{what.suite_id}{' verbatim' if plan.verbatim else ''}"
    stagger = f"{plan.stagger_ms:g} ms stagger" if plan.stagger_ms else "all at a barrier"
    warm = "pass 1 is warm-up and in no published rate" if done > 1 else "one pass only, so no published rate"
    sentence = (
        f"MTP{what.depth} TP{what.tensor_parallel} on {what.lane}, suite {suite}, {stagger}, {done} passes ({warm}), "
        f"128 tokens a request, shape {plan.shape}."
    )
    shown = [rung for rung in rungs if not rung.withheld]
    if shown:
        sentence += f" Exact in every pass: {', '.join(f'c{rung.rung}' for rung in shown)}."
    missed = withheld_sentence(rungs)
    return f"{sentence} {missed}." if missed else sentence


def _unknown(start: Start, attempts: Sequence[LadderAttempt]) -> list[str]:
    found = [*start.unknown, *(f"host fact {name}: unknown" for name in start.host.unknown())]
    for attempt in attempts:
        found += [f"{attempt.label}: {note}" for gate in attempt.gates for note in gate.notes if "unknown" in note]
    return found


def _conclusion(evidence: LadderEvidence, plan: LadderPlan) -> str:
    what = (
        f"MTP{evidence.start.plan.depth} TP{evidence.start.plan.tensor_parallel} ladder on {evidence.start.plan.lane}"
    )
    simulated = "SIMULATED, no measurement: " if evidence.simulated else ""
    if evidence.status is Status.PASSED and evidence.rungs:
        top = evidence.rungs[-1]
        rate = "no published rate" if top.tok_s is None else f"{top.tok_s:.1f} tokens/s"
        return (
            f"{simulated}{what}: {evidence.classification}, c{top.rung} {rate}, {top.exact}/{top.total} exact "
            f"(divergence below {top.divergence_bound:.3%} at 95 %)"
        )
    if evidence.status is Status.WITHHELD:
        missed = [rung for rung in evidence.rungs if rung.withheld]
        said = withheld_sentence(missed) or evidence.reasons[0]
        return f"{simulated}{what}: withheld: {said}"
    first = evidence.reasons[0].splitlines()[0] if evidence.reasons else "the campaign did not reach its end"
    return f"{simulated}{what}: {evidence.status}: {first}; {evidence.passes_done} of {plan.passes} passes are whole"


def sequential_answers(directory: Path, label: str) -> Answers | None:
    """The sequential answers of the last complete attempt of ``label``, or of its last one; None when there is none."""
    events = journal.load(directory)
    start = load_start(events)
    plan = start.plan.ladder
    if plan is None:
        raise EvidenceError(f"{directory.name} is no ladder; give the directory of one")
    known = ladder_slots(load_suite(str(directory / store.SUITE), need_classes=False), plan)
    servers = {server.label: server for server in start.plan.servers}
    mine = [item for item in load_attempts(directory, events) if item.label == label]
    complete = [item for item in mine if item.status is AttemptStatus.COMPLETE] or mine
    if not complete:
        return None
    return derive_ladder_attempt(complete[-1], known, servers[label], plan, start.host, None).sequential


def lent_answers(directory: Path) -> tuple[LadderEvidence, Answers]:
    """A ladder's evidence and the sequential answers of its measured server. Raises EvidenceError."""
    events = journal.load(directory)
    start = load_start(events)
    suite = load_suite(str(directory / store.SUITE), need_classes=False)
    evidence = derive_ladder(directory, start, events, load_attempts(directory, events), suite)
    return evidence, sequential_answers(directory, ladder_label(start.plan.depth)) or {}
