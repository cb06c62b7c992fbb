"""A ladder's directory → LadderEvidence (contract section 5). Pure but for reading the files it is given."""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import EvidenceError, ExitCode
from harness.evidence import journal, store
from harness.evidence.arms import arm_of
from harness.evidence.compilations import compile_unknown
from harness.evidence.host_gate import is_fault
from harness.evidence.ladder_attempts import (
    Answers,
    LadderAnswers,
    answers_sha256,
    derive_ladder_attempt,
    load_answers,
)
from harness.evidence.ladder_passes import Passes
from harness.evidence.ladder_schema import LadderAttempt, LadderEvidence, OracleFacts
from harness.evidence.loading import AttemptFiles, ending, load_attempts, load_start
from harness.evidence.power_use import telemetry_unknown
from harness.evidence.schema import AttemptStatus, Start, Status
from harness.measure.gates import Gate, setup_failures
from harness.measure.identity import divergence
from harness.measure.ladder import Rung, RungClient, withheld_sentence
from harness.plan import SPECULATIVE_FLAG, LadderPlan
from harness.suites import Suite, load_suite
from harness.workloads.ladder import Slot, slots

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
    base = next((item for item in reversed(every) if item.attempt.label == ORACLE_LABEL), None)
    facts, gates = _ties(start, source, base, mtp0, measured, [slot.id for slot in known])
    passes = Passes(plan, [item.attempt for item in measured])
    clients = [client for item in measured for client in item.attempt.clients]
    return _evidence(start, events, plan, [item.attempt for item in every], facts, gates, passes, clients)


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


def _ties(
    start: Start,
    source: str,
    base: LadderAnswers | None,
    mtp0: Answers | None,
    measured: Sequence[LadderAnswers],
    ids: Sequence[str],
) -> tuple[OracleFacts, list[Gate]]:
    """The sequential answers of every measured server against MTP0's: more than a ladder that agrees with itself.

    At MTP0 a server is its own oracle; the fresh ones of a resumed campaign are compared with the first.
    """
    asked = [item for item in measured if item.attempt.sequential.slots == len(ids)]
    if source == "own":
        gates = [_tie(start, item, asked[0], asked[0].sequential, ids) for item in asked[1:]]
        return OracleFacts(source="own"), gates
    facts = OracleFacts(source="server" if source == "server" else "evidence")
    if mtp0 is None:
        return facts, []
    gates = [_tie(start, item, base, mtp0, ids) for item in asked]
    if gates:
        facts = facts.model_copy(update={"exact": gates[-1].exact, "total": len(ids)})
    return facts, gates


def _tie(
    start: Start, measured: LadderAnswers, base: LadderAnswers | None, answers: Answers, ids: Sequence[str]
) -> Gate:
    """One server's sequential answers against the oracle's; ``base`` is the oracle's server, where it was ours."""
    attempt, failures = measured.attempt, list[str]()
    if base is not None:
        plans = {server.label: server for server in start.plan.servers}
        left, right = (
            arm_of(start, item.attempt.directory, item.attempt.server, plans[item.attempt.label])
            for item in (measured, base)
        )
        declared = attempt.depth != base.attempt.depth
        env = frozenset(start.depth_env) if declared else frozenset[str]()
        failures += setup_failures(left, right, env, frozenset({SPECULATIVE_FLAG}) if declared else frozenset())
    found = [divergence(slot, measured.sequential.get(slot, ()), answers.get(slot, ())) for slot in ids]
    missed = [item for item in found if item is not None]
    failures += [item.sentence() for item in missed]
    other = "MTP0" if base is None else base.attempt.directory
    return Gate(
        name="oracle",
        subject=f"{attempt.directory} vs {other}, sequential",
        passed=not failures,
        failures=[f"oracle: {failure}" for failure in failures],
        exact=len(ids) - len(missed),
        total=len(ids),
        divergences=missed,
    )


def _evidence(
    start: Start,
    events: Sequence[journal.Event],
    plan: LadderPlan,
    attempts: Sequence[LadderAttempt],
    oracle: OracleFacts,
    gates: list[Gate],
    passes: Passes,
    clients: Sequence[RungClient],
) -> LadderEvidence:
    ended = ending(events)
    rungs = passes.rungs(start.plan.depth, clients)
    valid = [item for item in attempts if item.status is not AttemptStatus.INTERRUPTED]
    done = passes.done
    of_servers = [gate for item in attempts for gate in item.gates]
    failures = [failure for gate in [*of_servers, *gates] for failure in gate.failures]
    # A complete server's are in its gate; what another one answered before it ended counts too.
    unfinished = [item for item in attempts if item.status is not AttemptStatus.COMPLETE]
    failures += [f"{item.directory}: {problem}" for item in unfinished for problem in item.pulse_problems]
    why = [sentence for rung in rungs for sentence in rung.why]
    last = {item.label: item for item in attempts}
    faulted = any(is_fault(gate) for gate in of_servers)
    status, code = _status(start, ended, last, done, plan, failures, why, faulted=faulted)
    reasons = [*(last[item].error for item in last if last[item].error), *failures, *why]
    if ended is not None and ended.error and ended.error not in reasons:
        # What ended it is what a person asks first; an attempt that was interrupted says so itself.
        reasons.insert(0 if ended.status == Status.INTERRUPTED else len(reasons), ended.error)
    classification: str | None = None
    if status is Status.PASSED:
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
        unknown=[*_unknown(start, valid), *passes.unproven()],
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
    *,
    faulted: bool,
) -> tuple[Status, int]:
    if ended is None:
        return (Status.INTERRUPTED if last else Status.STARTED), ExitCode.INFRASTRUCTURE
    if ended.status == Status.INTERRUPTED or any(a.status is AttemptStatus.INTERRUPTED for a in last.values()):
        return Status.INTERRUPTED, ExitCode.INFRASTRUCTURE
    if ended.error or any(item.status is AttemptStatus.INVALID for item in last.values()):
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    if faulted:
        return Status.WITHHELD, ExitCode.GATE_FAILED
    if set(last) != {server.label for server in start.plan.servers} or done < plan.passes:
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    if failures or why:
        return Status.WITHHELD, ExitCode.GATE_FAILED
    if any(server.engine == "attach" for server in start.plan.servers):
        # Its freshness can't be shown, so there is no verdict, as in a strict campaign.
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    return Status.PASSED, ExitCode.OK


def _scope(start: Start, plan: LadderPlan, rungs: Sequence[Rung], done: int) -> str:
    what = start.plan
    suite = f"{what.suite_id}{' verbatim' if plan.verbatim else ''}"
    stagger = f"{plan.stagger_ms:g} ms stagger" if plan.stagger_ms else "all at a barrier"
    warm = "pass 1 is warm-up and in no published rate" if done > 1 else "one pass only, so no published rate"
    clients = f", {plan.workers} client processes" if plan.workers > 1 else ""
    sentence = (
        f"MTP{what.depth} TP{what.tensor_parallel} on {what.lane}, suite {suite}, {stagger}, {done} passes ({warm}), "
        f"128 tokens a request, shape {plan.shape}{clients}."
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
    return [*found, *compile_unknown(attempts), *telemetry_unknown(attempts)]


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
        return f"{simulated}{what}: {said}"
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
    if start.plan.kind != "ladder":
        raise EvidenceError(f"{directory.name} is no ladder; give the directory of one")
    suite = load_suite(str(directory / store.SUITE), need_classes=False)
    evidence = derive_ladder(directory, start, events, load_attempts(directory, events), suite)
    return evidence, sequential_answers(directory, ladder_label(start.plan.depth)) or {}
