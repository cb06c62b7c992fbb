"""The order of servers and gates of a campaign, its resume and its end (contract sections 2 to 5)."""

import contextlib
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from harness.attempt import CACHES, Attempt, Surroundings, mask_killed
from harness.beginning import begin, existing, new_directory
from harness.depth_work import ContextWork, PromptBook
from harness.errors import BenchError, EvidenceError, ExitCode, Interrupted, LaunchError, RecordError, UsageError
from harness.evidence import journal, store
from harness.evidence.derive import derive
from harness.evidence.host_gate import is_fault
from harness.evidence.ladder import ORACLE_LABEL, ladder_slots, sequential_answers
from harness.evidence.ladder_attempts import load_answers
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.last_write import last_write_failed
from harness.evidence.schema import AttemptStatus, Start, Status, SuiteFacts, SuitePrompt
from harness.evidence.sentences import without_paths
from harness.host.facts import tool_facts
from harness.host.lock import Locks, card_locks
from harness.host_guard import HostGuard, watch
from harness.ladder_work import LadderWork, SequentialWork
from harness.leftovers import reap
from harness.measure.selftest import Proxy, SelfTest
from harness.plan import CampaignPlan, ServerPlan, oracle_differences
from harness.preparing import Options, Prepared, campaign_name, prepare
from harness.preparing_context import texts_facts
from harness.selftest.run import USERS, self_test
from harness.sender import Access
from harness.session import Work
from harness.signals import SignalGuard
from harness.strict_work import StrictWork
from harness.surveying import survey
from harness.watching import Watcher


def run_campaign(options: Options, watcher: Watcher, *, resume: Path | None = None) -> AnyEvidence:
    """Measure a whole campaign, strict or ladder, or go on with one. Returns its evidence; raises BenchError.

    Whatever ends it, every server of ours is gone and everything recorded so far is in the directory.
    """
    guard = SignalGuard()
    with guard.installed():
        prepared = prepare(options, watcher.note)
        with Locks(card_locks(_cards(prepared), options.roots.locks)):
            host = _watch(options, prepared, watcher) if resume is None else None
            asked = None if host is None else _start(options, prepared, _self_test(prepared, watcher), host)
            # From here on a signal waits for the places where one is heard, so that what has begun also has an end.
            with guard.quiet(), Locks([directory := _directory(options, prepared, resume)]):
                if host is not None and asked is not None:
                    start, done = asked.model_copy(update={"campaign_id": directory.name}), list[str]()
                    begin(directory, prepared, start)
                else:
                    recorded = _recorded(directory, prepared)
                    start, done, refusal = recorded.start, _done(recorded), _refusal(recorded, directory.name)
                    if refusal is not None:
                        if not last_write_failed(directory):
                            raise UsageError(refusal)
                        watcher.campaign(directory, start, done)
                        watcher.ended(evidence := _write(directory), directory)
                        return evidence
                    with guard.listening():
                        reap(prepared.plan.engine, start.campaign_id, directory / CACHES, watcher.note)
                        host = _watch(options, prepared, watcher, start)
                    # What a killed run left there: its servers are gone, and no attempt uses the directory of another.
                    shutil.rmtree(directory / CACHES, ignore_errors=True)
                    for name in journal.unended(journal.load(directory)):
                        mask_killed(directory / store.ATTEMPTS / name)
                    journal.append(directory, journal.Event(at=journal.now_utc(), event="campaign-resumed"))
                watcher.campaign(directory, start, done)
                return _run(options, prepared, start, directory, done, watcher, guard, host)


def _watch(options: Options, prepared: Prepared, watcher: Watcher, start: Start | None = None) -> HostGuard:
    """The host before the first server of this run; raises BenchError for a boot with a fault whose probes fail."""
    name, begun = (campaign_name(prepared.plan), None) if start is None else (start.campaign_id, start.moment)
    first = prepared.plan.servers[0]
    return watch(prepared.lane, first, prepared.image, options.roots, watcher.note, campaign=name, begun=begun)


def _cards(prepared: Prepared) -> str | None:
    variable = prepared.lane.card_env
    return None if variable is None else prepared.plan.servers[0].env.get(variable)


def _self_test(prepared: Prepared, watcher: Watcher) -> SelfTest | str | None:
    """What this machine's client does, before a ladder's first server; a sentence when it can't be found out."""
    ladder, image = prepared.plan.ladder, prepared.image_file
    if ladder is None:
        return None
    top, proxy, why = ladder.rungs[-1], None, "not applicable: the server is in no container of ours"
    if ladder.direct:
        why = "not applicable: --direct goes around it"
    elif prepared.plan.engine == "docker" and image is not None:
        from harness.selftest.proxy import measure_proxy

        def proxy() -> Proxy:
            return measure_proxy(image)

    try:
        users = sorted({top, *(count for count in USERS if count < top)})
        return self_test(users=users, proxy=proxy, no_proxy=why, progress=watcher.note)
    except LaunchError as error:
        return f"client self-test: unknown ({error})"


def _directory(options: Options, prepared: Prepared, resume: Path | None) -> Path:
    return new_directory(options.out, prepared.plan) if resume is None else existing(resume)


def _start(options: Options, prepared: Prepared, tested: SelfTest | str | None, guard: HostGuard) -> Start:
    """All but the name of the directory, which is made last: a host that is slow to tell leaves none behind."""
    host = survey(options.roots, docker=prepared.plan.engine == "docker")
    return Start(
        campaign_id="",
        lane_title=prepared.lane.title,
        simulated=prepared.plan.engine == "simulated",
        plan=prepared.plan,
        plan_sha256=prepared.plan.sha256(),
        suite=_suite_facts(prepared),
        image=prepared.image,
        model=prepared.model,
        host=host,
        tool=tool_facts(),
        command=options.command,
        depth_env=sorted(oracle_differences(prepared.lane)[0]),
        unknown=[*_unknown(prepared), *([tested] if isinstance(tested, str) else [])],
        self_test=None if isinstance(tested, str) else tested,
        moment=guard.since,
    )


def _suite_facts(prepared: Prepared) -> SuiteFacts:
    suite, context = prepared.suite, prepared.plan.context
    if suite is None:
        return texts_facts({} if context is None else context.texts)
    prompts = [SuitePrompt(id=item.id, prompt_class=item.prompt_class, sha256=item.sha256) for item in suite.prompts]
    return SuiteFacts(id=suite.suite_id, version=suite.version, sha256=suite.sha256, prompts=prompts)


def _unknown(prepared: Prepared) -> list[str]:
    found = []
    checked = prepared.model is not None and prepared.model.manifest_sha256 is not None
    if prepared.plan.engine in ("docker", "process") and prepared.lane.model.directory_needed and not checked:
        found.append("model: its files were hashed, but no manifest says what they should be")
    if prepared.plan.engine == "attach":
        found.append("image, environment and caches: unknown (attached server)")
    if prepared.plan.context is not None and prepared.plan.context.left_out:
        lengths = ", ".join(prepared.plan.context.left_out)
        found.append(f"boundary probes {lengths}: unknown (launcher {prepared.lane.name} leaves them out)")
    return found


def _recorded(directory: Path, prepared: Prepared) -> AnyEvidence:
    """What is recorded so far. Raises UsageError where it was measured by another plan."""
    evidence = derive(directory)
    if evidence.start.plan_sha256 != prepared.plan.sha256():
        raise UsageError(
            f"{directory.name} was measured by another plan ({_first_difference(evidence.start.plan, prepared.plan)}); "
            "resume with the options it was started with, or start anew"
        )
    return evidence


def _done(evidence: AnyEvidence) -> list[str]:
    """The labels that are complete, each once."""
    done = [attempt.label for attempt in evidence.attempts if attempt.status is AttemptStatus.COMPLETE]
    if isinstance(evidence, LadderEvidence) and not _ladder_done(evidence):
        done = [label for label in done if label == ORACLE_LABEL]
    return list(dict.fromkeys(done))


def _refusal(evidence: AnyEvidence, name: str) -> str | None:
    """Why there is nothing to go on with; None where there is."""
    verdicts = (Status.PASSED, Status.WITHHELD, Status.REJECTED)
    # A signal may come when the last server has ended and nothing but the evidence is left to be written.
    measured = evidence.status is not Status.INTERRUPTED and len(_done(evidence)) == len(evidence.start.plan.servers)
    finished = evidence.status in verdicts or measured
    if evidence.ended_at is not None and finished:
        return f"{name} has ended ({evidence.status}), there is nothing to resume; start anew"
    if evidence.ended_at is not None and evidence.exit_code == ExitCode.GATE_FAILED:
        return f"{name} has a failed gate ({evidence.status}); its numbers stay withheld, start anew"
    return None


def _ladder_done(evidence: LadderEvidence) -> bool:
    plan = evidence.start.plan.ladder
    return plan is not None and evidence.passes_done >= plan.passes


def _first_difference(recorded: CampaignPlan, asked: CampaignPlan) -> str:
    left, right = recorded.model_dump(mode="json"), asked.model_dump(mode="json")
    for key in {**left, **right}:
        if key != "servers" and left.get(key) != right.get(key):
            return f"{key}: {_cut(left.get(key))} then, {_cut(right.get(key))} now"
    for one, other in zip(recorded.servers, asked.servers, strict=False):
        before, now = one.model_dump(mode="json"), other.model_dump(mode="json")
        for key in before:
            if before[key] != now[key]:
                return f"{one.label}.{key}: {_short(before[key])} then, {_short(now[key])} now"
    return "other servers"


def _short(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) < 200 else text[:200] + "…"


def _run(
    options: Options,
    prepared: Prepared,
    start: Start,
    directory: Path,
    done: Sequence[str],
    watcher: Watcher,
    guard: SignalGuard,
    host: HostGuard,
) -> AnyEvidence:
    ladder = prepared.plan.ladder
    around = Surroundings(
        engine=prepared.engine,
        image=prepared.image,
        campaign_id=start.campaign_id,
        directory=directory,
        model=options.model_dir.resolve() if options.model_dir is not None else None,
        port=options.port,
        vllm=options.vllm,
        min_mem_available=prepared.lane.min_mem_available,
        access=Access(
            options.deadlines, options.secret_headers, options.proxy, 1 if ladder is None else ladder.workers
        ),
        direct=ladder is not None and ladder.direct,
        watcher=watcher,
        guard=guard,
        host=host,
    )
    status, error = "ended", ""
    shown: set[tuple[str, str]] = set()
    try:
        for plan in prepared.plan.servers:
            guard.check()
            ending = None if plan.label in done else _attempt(plan, around, directory, prepared, start)
            guard.check()
            evidence = _write(directory)
            _show_gates(evidence, shown, watcher)
            if ending is not None:
                status, error = ending
                break
            # The base isn't repeat-exact: nothing that follows could be compared with it (contract section 4).
            if any(gate.name == "G1" and not gate.passed for gate in evidence.gates):
                break
            # A card that has faulted may not be what it was; nothing that it measures now could be published.
            if any(is_fault(gate) for attempt in evidence.attempts for gate in attempt.gates):
                break
            # What is left of a server keeps its memory of the card and its part of every rate of the next one.
            if plan is not prepared.plan.servers[-1] and plan.label not in done and _stays(evidence, plan.label):
                error = (
                    f"{plan.label}: its server was not gone after its stop, so no further server is started beside it; "
                    "bench clean removes what is left of it, then start anew"
                )
                break
    except Interrupted as interruption:
        status, error = Status.INTERRUPTED, str(interruption)
    except RecordError:
        # As after a kill: what could be written stands, no end is in the journal, and a resume goes on from there.
        with guard.quiet(), contextlib.suppress(BenchError):
            _write(directory)
        raise
    except BaseException as failure:
        said = str(failure) if isinstance(failure, BenchError) else f"{type(failure).__name__}: {failure}"
        with guard.quiet(), contextlib.suppress(BenchError, OSError):
            _end(directory, "ended", without_paths(said, around.roles()))
        raise
    with guard.quiet():
        evidence = _end(directory, status, error)
    watcher.ended(evidence, directory)
    return evidence


def _stays(evidence: AnyEvidence, label: str) -> bool:
    """Whether the last server of ``label`` was stopped and is not gone. One of others is left running by design."""
    server = [attempt.server for attempt in evidence.attempts if attempt.label == label][-1]
    stop = None if server is None or server.requested.engine == "attach" else server.stop
    return stop is not None and not stop.gone


def _work(plan: ServerPlan, directory: Path, prepared: Prepared, start: Start, watcher: Watcher) -> Work:
    """What is measured on this server."""
    suite, ladder, context = prepared.suite, prepared.plan.ladder, prepared.plan.context
    book = None if context is None else PromptBook(directory, context, prepared.texts)
    if suite is None and book is not None:
        return ContextWork(start.plan.kind, book, watcher)
    assert suite is not None, "a plan without token-id prompts has a suite"
    if ladder is None:
        return StrictWork(suite, start.suite, watcher, book, stream_canary=start.plan.stream_canary)
    slots = ladder_slots(suite, ladder)
    if plan.label == ORACLE_LABEL:
        return SequentialWork(suite, slots, watcher)
    evidence = derive(directory)
    done = evidence.passes_done if isinstance(evidence, LadderEvidence) else 0
    mtp0 = sequential_answers(directory, ORACLE_LABEL) if prepared.plan.depth else None
    if prepared.oracle is not None:
        mtp0 = load_answers(prepared.oracle)
    return LadderWork(suite, slots, watcher, plan=ladder, first_pass=done + 1, mtp0=mtp0)


def _attempt(
    plan: ServerPlan, around: Surroundings, directory: Path, prepared: Prepared, start: Start
) -> tuple[str, str] | None:
    """One attempt in a directory of its own; None when it is complete, else how the campaign ends."""
    name = _attempt_directory(directory, plan.label)
    work = _work(plan, directory, prepared, start, around.watcher)
    around.watcher.attempt(plan.label, name)
    _journal(directory, "attempt-started", plan.label, name)
    status, error = AttemptStatus.INVALID, "the harness failed"
    unwritten: RecordError | None = None
    try:
        status, error = Attempt(plan, name, around, work).run()
    except (BenchError, Interrupted) as failure:
        error = str(failure)
        unwritten = failure if isinstance(failure, RecordError) else None
        raise
    finally:
        with around.guard.quiet():
            try:
                _journal(directory, "attempt-ended", plan.label, name, status, without_paths(error, around.roles()))
            except RecordError:
                if unwritten is None:  # else the first file that couldn't be written is the one to tell
                    raise
            around.watcher.attempt_ended(plan.label, status, error)
    if status is AttemptStatus.COMPLETE:
        return None
    return (Status.INTERRUPTED if status is AttemptStatus.INTERRUPTED else "ended"), without_paths(
        error, around.roles()
    )


def _show_gates(evidence: AnyEvidence, shown: set[tuple[str, str]], watcher: Watcher) -> None:
    for gate in evidence.gates:
        if (gate.name, gate.subject) not in shown:
            shown.add((gate.name, gate.subject))
            watcher.gate(gate)


def _attempt_directory(directory: Path, label: str) -> str:
    """``mtp0-a``, or ``mtp0-a.2`` and so on after an attempt that ended early: nothing recorded is overwritten."""
    number = 1
    while (directory / store.ATTEMPTS / (label if number == 1 else f"{label}.{number}")).exists():
        number += 1
    return label if number == 1 else f"{label}.{number}"


def _journal(
    directory: Path, event: journal.EventName, label: str, name: str, status: str = "", error: str = ""
) -> None:
    moment = journal.now_utc()
    entry = journal.Event(at=moment, event=event, label=label, directory=name, status=status, error=error)
    entry.monotonic_ns = time.monotonic_ns()
    journal.append(directory, entry)


def _write(directory: Path) -> AnyEvidence:
    try:
        evidence = derive(directory)
    except EvidenceError as error:
        raise RecordError(f"{error}; it was changed or removed while the campaign ran") from None
    store.write_atomic(directory / store.EVIDENCE, store.dump_json(evidence.model_dump(mode="json", by_alias=True)))
    store.write_manifest(directory)
    return evidence


def _end(directory: Path, status: str, error: str) -> AnyEvidence:
    event = journal.Event(at=journal.now_utc(), event="campaign-ended", status=status, error=error)
    journal.append(directory, event)
    return _write(directory)
