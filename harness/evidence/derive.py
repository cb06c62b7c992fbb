"""A campaign directory → Evidence. The same function writes evidence.json and verifies it."""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import EvidenceError, ExitCode
from harness.evidence import journal
from harness.evidence.arms import arm_of
from harness.evidence.attempts import derive_attempt, divergences_before, failed_by
from harness.evidence.compilations import compile_unknown
from harness.evidence.context import derive_context
from harness.evidence.context_attempts import PROBE, Answer, answers_of, compare_gate, tokenize_problem
from harness.evidence.host_gate import is_fault
from harness.evidence.ladder import derive_ladder
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.loading import AttemptFiles, ending, load_attempts, load_start
from harness.evidence.power_use import telemetry_unknown
from harness.evidence.prompts import Ids, load_prompts
from harness.evidence.schema import (
    Attempt,
    AttemptStatus,
    Evidence,
    Pair,
    Start,
    Status,
)
from harness.evidence.store import SUITE
from harness.measure import rates
from harness.measure.gates import Gate, identity_gate
from harness.plan import SPECULATIVE_FLAG
from harness.suites import load_suite

SPREAD_LIMIT = 0.01
"""Above it the report asks for another pair and quotes all servers (contract section 3)"""


def derive(
    directory: Path, events: Sequence[journal.Event] | None = None, files: Sequence[AttemptFiles] | None = None
) -> AnyEvidence:
    """Everything evidence.json says, from the journal and the attempts' files. Raises EvidenceError.

    ``events`` are those of the journal up to the moment that is asked for; all of them by default. ``files`` are the
    attempts that these events name, where they are loaded already.
    """
    events = journal.load(directory) if events is None else events
    start = load_start(events)
    files = load_attempts(directory, events) if files is None else files
    if start.plan.kind == "ladder":
        return derive_ladder(directory, start, events, files, load_suite(str(directory / SUITE), need_classes=False))
    if start.plan.kind in ("depth", "probe"):
        return derive_context(directory, start, events, files)
    ids = None if start.plan.context is None else load_prompts(directory, events, start.plan.context)
    return _derive_strict(start, events, files, ids)


def _derive_strict(
    start: Start, events: Sequence[journal.Event], files: Sequence[AttemptFiles], ids: Ids | None
) -> Evidence:
    plans, context = {plan.label: plan for plan in start.plan.servers}, start.plan.context
    attempts, probed = list[Attempt](), dict[str, list[Answer]]()
    for item in files:
        if item.label not in plans:
            raise EvidenceError(f"{journal.NAME} has an attempt {item.label}, which the plan doesn't know")
        probes = list[Answer]()
        if context is not None:
            name = plans[item.label].served_model_name
            probes = probed[item.label] = answers_of(item.capture, PROBE, context, ids, name)
        rows = [answer.row for answer in probes]
        stream = start.plan.stream_canary
        attempts.append(derive_attempt(item, start.suite, plans[item.label], start.host, rows, stream=stream))
    valid = _latest(attempts)
    gates = [*_identity_gates(start, valid), *_probe_gates(start, valid, probed, files, ids)]
    gates = [failed_by(gate, _before(gate, attempts, valid)) for gate in gates]
    ended = ending(events)
    pairs = _pairs(start, valid)
    without_rate = _without_rate(valid)
    status, exit_code = _status(start, attempts, valid, gates, ended, rated=not without_rate)
    # A stream that broke off explains the short row, the missing usage and whatever else fails with it.
    of_servers = sorted(
        (gate for item in valid.values() for gate in item.gates), key=lambda gate: gate.name != "stream"
    )
    # A card that has faulted may not be what it was, so the fault of an attempt that was measured anew counts too.
    of_servers += [g for item in attempts if item is not valid[item.label] for g in item.gates if is_fault(g)]
    failures = [failure for gate in of_servers for failure in gate.failures]
    reasons = [item.error for item in valid.values() if item.error] + failures
    reasons += [failure for gate in gates for failure in gate.failures] + without_rate
    if ended is not None and ended.error and ended.error not in reasons:
        # What ended it is what a person asks first; an attempt that was interrupted says so itself.
        reasons.insert(0 if ended.status == Status.INTERRUPTED else len(reasons), ended.error)
    withheld = status is not Status.PASSED
    evidence = Evidence(
        campaign_id=start.campaign_id,
        kind="strict",
        status=status,
        exit_code=exit_code,
        conclusion="",
        simulated=start.simulated,
        withheld=withheld,
        reasons=reasons,
        start=start,
        started_at=events[0].at,
        ended_at=None if ended is None else ended.at,
        resumed=[event.at for event in events if event.event == "campaign-resumed"],
        pairs=pairs,
        gates=gates,
        attempts=attempts,
        unknown=_unknown(start, valid),
    )
    return evidence.model_copy(update={"conclusion": _conclusion(evidence)})


def _latest(attempts: Sequence[Attempt]) -> dict[str, Attempt]:
    """The attempt that counts for each label: its last one (a complete one is never followed by another)."""
    return {attempt.label: attempt for attempt in attempts}


def _before(gate: Gate, attempts: Sequence[Attempt], valid: dict[str, Attempt]) -> list[str]:
    """What attempts that were measured anew had answered otherwise than mtp0-a, each said by one gate."""
    left, right = gate.subject.split(" vs ")
    oracle, found = valid["mtp0-a"], list[str]()
    for item in attempts:
        # G1 speaks for both of its servers, and G2 has no oracle.
        mine = gate.name != "G2" and item.label in ((left, right) if gate.name == "G1" else (left,))
        if mine and item is not valid[item.label]:
            rows, base = (item.probes, oracle.probes) if gate.name == "probes" else (item.rows, oracle.rows)
            found += divergences_before(item.directory, rows, base)
    return found


def _unknown(start: Start, attempts: dict[str, Attempt]) -> list[str]:
    found = [*start.unknown, *(f"host fact {name}: unknown" for name in start.host.unknown())]
    for attempt in attempts.values():
        found += [f"{attempt.label}: {note}" for gate in attempt.gates for note in gate.notes if "unknown" in note]
    return [*found, *compile_unknown(attempts.values()), *telemetry_unknown(attempts.values())]


def _without_rate(attempts: dict[str, Attempt]) -> list[str]:
    """Why an attempt of complete rows has no median: all ids of a row at one instant, for example."""
    return [
        f"{attempt.label}: {row.prompt_id} has no rate, so there is no median ({', '.join(row.warnings)})"
        for attempt in attempts.values()
        if attempt.status is AttemptStatus.COMPLETE and all(row.complete for row in attempt.rows)
        for row in attempt.rows
        if row.tok_s_1_100 is None
    ]


def _identity_gates(start: Start, attempts: dict[str, Attempt]) -> list[Gate]:
    depth = start.plan.depth
    arms = {
        plan.label: arm_of(start, plan.label, attempts[plan.label].server, plan, attempts[plan.label].rows)
        for plan in start.plan.servers
        if plan.label in attempts and attempts[plan.label].status is AttemptStatus.COMPLETE
    }
    asked = [("G1", "mtp0-a", "mtp0-b"), ("G2", f"mtp{depth}-a", f"mtp{depth}-b")]
    asked += [("G3", f"mtp{depth}-a", "mtp0-a"), ("G3", f"mtp{depth}-b", "mtp0-a")]
    found = []
    for name, left, right in asked[:1] if depth == 0 else asked:
        if left in arms and right in arms:
            declared = name == "G3"
            found.append(
                identity_gate(
                    name,
                    arms[left],
                    arms[right],
                    allowed_env=frozenset(start.depth_env) if declared else frozenset(),
                    allowed_args=frozenset({SPECULATIVE_FLAG}) if declared else frozenset(),
                    expected_total=len(start.suite.prompts),
                )
            )
    return found


def _probe_gates(
    start: Start,
    attempts: dict[str, Attempt],
    probed: dict[str, list[Answer]],
    files: Sequence[AttemptFiles],
    ids: Ids | None,
) -> list[Gate]:
    """``probes``: the last stage of each depth-D server, at depth 0 of the second one, against mtp0-a's."""
    depth, context = start.plan.depth, start.plan.context
    if context is None:
        return []
    plans, captures = {plan.label: plan for plan in start.plan.servers}, {item.label: item.capture for item in files}
    found = []
    for label in ("mtp0-b",) if depth == 0 else (f"mtp{depth}-a", f"mtp{depth}-b"):
        both = [name for name in (label, "mtp0-a") if name in attempts and name in plans]
        if len(both) < 2 or any(attempts[name].status is not AttemptStatus.COMPLETE for name in both):
            continue
        left, right = (
            (arm_of(start, name, attempts[name].server, plans[name], attempts[name].probes), probed[name])
            for name in both
        )
        gate = compare_gate(
            "probes",
            context,
            left,
            right,
            allowed_env=frozenset(start.depth_env) if depth else frozenset(),
            allowed_args=frozenset({SPECULATIVE_FLAG}) if depth else frozenset(),
        )
        told = [(name, tokenize_problem(captures[name], context, ids)) for name in both]
        failures = [*gate.failures, *(f"probes {name}: {problem}" for name, problem in told if problem is not None)]
        found.append(gate.model_copy(update={"failures": failures, "passed": not failures}))
    return found


def _status(
    start: Start,
    attempts: Sequence[Attempt],
    valid: dict[str, Attempt],
    gates: Sequence[Gate],
    ended: journal.Event | None,
    *,
    rated: bool,
) -> tuple[Status, int]:
    """Contract section 4; what the journal says of the end is believed only for an interruption or an error."""
    if ended is None:
        return (Status.INTERRUPTED if attempts else Status.STARTED), ExitCode.INFRASTRUCTURE
    if ended.status == Status.INTERRUPTED or any(a.status is AttemptStatus.INTERRUPTED for a in valid.values()):
        return Status.INTERRUPTED, ExitCode.INFRASTRUCTURE
    if ended.error or any(item.status is AttemptStatus.INVALID for item in valid.values()):
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    of_servers = [gate for item in valid.values() for gate in item.gates]
    if any(gate.name == "stream" and not gate.passed for gate in of_servers):
        return Status.INVALID, ExitCode.GATE_FAILED
    if any(gate.name == "G1" and not gate.passed for gate in gates):
        return Status.REJECTED, ExitCode.GATE_FAILED
    faulted = any(is_fault(gate) for item in attempts for gate in item.gates)
    if faulted or not all(gate.passed for gate in [*of_servers, *gates]):
        return Status.WITHHELD, ExitCode.GATE_FAILED
    expected = 1 if start.plan.depth == 0 else 4
    if start.plan.context is not None:
        expected += 1 if start.plan.depth == 0 else 2
    whole = set(valid) == {plan.label for plan in start.plan.servers} and len(gates) == expected
    if not whole or not rated or any(plan.engine == "attach" for plan in start.plan.servers):
        return Status.INVALID, ExitCode.INFRASTRUCTURE
    return Status.PASSED, ExitCode.OK


def _pairs(start: Start, attempts: dict[str, Attempt]) -> list[Pair]:
    depths = dict.fromkeys(plan.depth for plan in start.plan.servers)
    return [_pair(depth, attempts.get(f"mtp{depth}-a"), attempts.get(f"mtp{depth}-b")) for depth in depths]


def _both(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else rates.center(a, b)


def _pair(depth: int, left: Attempt | None, right: Attempt | None) -> Pair:
    sides = [left, right]
    a, b = (None if side is None else side.class_balanced_median for side in sides)
    exact = [None if side is None else side.class_balanced_median_burst_exact for side in sides]
    ttft = [None if side is None else side.median_ttft_ms for side in sides]
    accepted = [None if side is None or side.acceptance is None else side.acceptance.rate for side in sides]
    length = [
        None if side is None or side.acceptance is None else side.acceptance.mean_acceptance_length for side in sides
    ]
    center = _both(a, b)
    spread = rates.spread(a, b) if a is not None and b is not None else None
    notes = []
    if spread is not None and a is not None and b is not None and spread > SPREAD_LIMIT:
        notes.append(
            f"spread {spread:.2%} is above {SPREAD_LIMIT:.0%}: measure another pair and quote all servers "
            f"({a:.2f} and {b:.2f} tokens/s)"
        )
    return Pair(
        name=f"mtp{depth}",
        depth=depth,
        a=a,
        b=b,
        center=center,
        spread=spread,
        burst_exact_center=_both(exact[0], exact[1]),
        ttft_a_ms=ttft[0],
        ttft_b_ms=ttft[1],
        acceptance_rate=_both(accepted[0], accepted[1]),
        mean_acceptance_length=_both(length[0], length[1]),
        notes=notes,
    )


def verdict(evidence: Evidence) -> str:
    """What was measured and, in a few words, what came of it; the reasons stand apart."""
    plan = evidence.start.plan
    words = {
        Status.PASSED: "every gate passed",
        Status.WITHHELD: "speeds are recorded, but the number is withheld",
        Status.REJECTED: "rejected, the base is not repeat-exact",
        Status.INVALID: "no verdict",
        Status.INTERRUPTED: "interrupted",
        Status.STARTED: "started",
    }
    return f"MTP{plan.depth} TP{plan.tensor_parallel} on {plan.lane}: {words[evidence.status]}"


def _conclusion(evidence: Evidence) -> str:
    plan = evidence.start.plan
    what = f"MTP{plan.depth} TP{plan.tensor_parallel} on {plan.lane}"
    if evidence.status is Status.PASSED:
        pair = evidence.pairs[-1]
        exact = " ".join(f"{gate.name} {gate.exact}/{gate.total}" for gate in evidence.gates)
        simulated = "SIMULATED, no measurement: " if evidence.simulated else ""
        return (
            f"{simulated}{what}: {pair.center:.2f} tokens/s, center of two fresh servers "
            f"({pair.a:.2f} and {pair.b:.2f}, spread {pair.spread:.2%}); {exact}"
        )
    first = evidence.reasons[0].splitlines()[0] if evidence.reasons else "the campaign did not reach its end"
    if len(evidence.reasons) > 1:
        first += f" (and {len(evidence.reasons) - 1} more)"
    return f"{verdict(evidence)}: {first}"
