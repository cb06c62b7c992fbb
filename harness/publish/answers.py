"""A campaign's captures → the answers that were compared, with the text of each chunk, for ``bench explain``."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.errors import EvidenceError
from harness.evidence import journal, store
from harness.evidence.context_attempts import CONTEXT, PROBE
from harness.evidence.context_schema import ContextAttempt, ContextEvidence
from harness.evidence.ladder import ORACLE, ORACLE_LABEL, ladder_slots
from harness.evidence.ladder_attempts import SEQUENTIAL as SEQUENTIAL_KIND
from harness.evidence.ladder_attempts import load_answers, whole_batches
from harness.evidence.ladder_schema import LadderAttempt, LadderEvidence
from harness.evidence.loading import AttemptFiles, load_attempts
from harness.evidence.prompts import load_prompts
from harness.evidence.schema import Attempt, AttemptStatus, Evidence
from harness.publish.campaigns import Campaign
from harness.publish.explain import BATCH, SEQUENTIAL, Answer, Compared, Stage
from harness.suites import load_suite
from harness.wire.completion import parse_completion
from harness.wire.exchange import Exchange
from harness.wire.http import decode_response
from harness.wire.sse import SseDecoder, SseError
from harness.workloads.context import cut
from harness.workloads.ladder import Slot

MTP0 = "MTP0 oracle"
OWN = "own sequential answer"
LENT = "lent MTP0 oracle"
KINDS = {"context": CONTEXT, "probes": PROBE}
"""Gate → kind of the exchanges it compares, where that isn't the suite"""


@dataclass
class Comparisons:
    """Everything that was compared in a campaign."""

    differing: list[Compared] = field(default_factory=list)
    asked: dict[str, list[Stage]] = field(default_factory=lambda: defaultdict(list))
    """every comparison by prompt, the equal ones too"""
    sources: list[Answer] = field(default_factory=list)
    """answers whose chunks tell the texts of ids"""


def pieces_of(exchange: Exchange) -> tuple[tuple[int, str], ...]:
    """(ids, text) of each chunk of a streamed completion that brought ids or text; chunks that aren't ours are skipped.

    The text of a chunk without ids belongs to the ids before it.
    """
    found: list[tuple[int, str]] = []
    decoder = SseDecoder()
    try:
        events = [event for at_ns, piece in decode_response(exchange).body for event in decoder.feed(piece, at_ns)]
    except SseError as error:
        events = list(error.events)
    for event in events:
        try:
            choice = json.loads(event.data)["choices"][0]
            size, text = len(choice.get("token_ids") or ()), choice.get("text") or ""
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
        if size or not found:
            found.append((size, text))
        elif text:
            found[-1] = found[-1][0], found[-1][1] + text
    return tuple(found)


class _Told:
    """One captured answer, parsed when it is needed."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @cached_property
    def answer(self) -> Answer:
        ids, pieces = parse_completion(self._exchange).token_ids, pieces_of(self._exchange)
        return Answer(ids, pieces if sum(size for size, _ in pieces) == len(ids) else ())

    @cached_property
    def prompt_ids(self) -> tuple[int, ...] | None:
        return parse_completion(self._exchange).prompt_token_ids


def comparisons(campaign: Campaign) -> Comparisons:
    """The answers that were compared, from the captures. Raises EvidenceError."""
    events = journal.load(campaign.directory)
    files = {item.directory: item for item in load_attempts(campaign.directory, events)}
    if isinstance(campaign.evidence, LadderEvidence):
        return _ladder(campaign, campaign.evidence, files)
    context = campaign.evidence.start.plan.context
    ids = load_prompts(campaign.directory, events, context) if context is not None else None
    prompts = cut(context.prompts, ids) if context is not None and ids is not None else {}
    return _suites(campaign.evidence, files, prompts)


def _suites(
    evidence: Evidence | ContextEvidence, files: Mapping[str, AttemptFiles], prompts: Mapping[str, Sequence[int]]
) -> Comparisons:
    """Attempts that sent the same prompts, compared by gates; ``prompts`` are those given as ids, by name."""
    found = Comparisons()
    latest = {attempt.label: attempt for attempt in evidence.attempts}
    answers = {label: _suite_answers(files.get(attempt.directory)) for label, attempt in latest.items()}
    for gate in evidence.gates:
        left, _, right = gate.subject.partition(" vs ")
        # The base of a pair is its first server; elsewhere it is the oracle, which the gate names second.
        base, arm = (left, right) if gate.name in ("G1", "G2") else (right, left)
        if base not in answers or arm not in answers:
            continue
        told = {label: answers[label].get(KINDS.get(gate.name, "suite"), {}) for label in (base, arm)}
        stage = Stage(gate.name, f"{gate.name} {gate.subject}")
        for prompt in told[base]:
            if prompt in told[arm]:
                found.asked[prompt].append(stage)
        for item in gate.divergences:
            name = item.prompt_id
            if name in told[base] and name in told[arm]:
                row = tuple(prompts[name]) if name in prompts else _row(latest[base], name)
                oracle, other = told[base][name].answer, told[arm][name].answer
                found.differing.append(Compared(name, row or None, stage, base, oracle, other))
    if found.differing:
        every = [told for kinds in answers.values() for told in kinds.values()]
        found.sources = [item.answer for told in every for item in told.values()]
    return found


def _row(attempt: Attempt | ContextAttempt, prompt: str) -> tuple[int, ...] | None:
    return next((tuple(row.prompt_token_ids or ()) for row in attempt.rows if row.prompt_id == prompt), None) or None


def _suite_answers(files: AttemptFiles | None) -> dict[str, dict[str, _Told]]:
    """Kind of exchange → prompt → answer."""
    capture = files.capture if files is not None else None
    if capture is None:
        return {}
    kinds = ("suite", *KINDS.values())
    return {kind: {tag.name: _Told(exchange) for tag, exchange in capture.of_kind(kind)} for kind in kinds}


def _ladder(campaign: Campaign, evidence: LadderEvidence, files: Mapping[str, AttemptFiles]) -> Comparisons:
    plan = evidence.start.plan.ladder
    if plan is None:
        raise EvidenceError(f"{campaign.directory.name} is a ladder without its rungs; get the original files")
    suite = load_suite(str(campaign.directory / store.SUITE), need_classes=False)
    slots = {slot.id: slot for slot in ladder_slots(suite, plan)}

    def name(slot: str) -> str:
        known: Slot | None = slots.get(slot)
        return known.base if plan.verbatim and known is not None else slot

    found = Comparisons()
    mtp0, whose = _mtp0(campaign, evidence, files)
    for attempt in evidence.attempts:
        if attempt.label == ORACLE_LABEL:
            continue
        own = _sequential(files[attempt.directory])
        _attempt(found, attempt, files[attempt.directory], own, mtp0, whose, name)
        if found.differing:
            found.sources += [item.answer for item in own.values()]
    if found.differing and mtp0 is not None:
        found.sources += [item.answer for item in mtp0.values()]
    return found


@dataclass(frozen=True)
class _Lent:
    """An answer of which only the ids are known."""

    answer: Answer


_Answers = Mapping[str, _Told | _Lent]


def _mtp0(
    campaign: Campaign, evidence: LadderEvidence, files: Mapping[str, AttemptFiles]
) -> tuple[_Answers | None, str]:
    if evidence.oracle.source == "evidence":
        lent = load_answers((campaign.directory / ORACLE).read_bytes())
        return {slot: _Lent(Answer(tuple(ids))) for slot, ids in lent.items()}, LENT
    if evidence.oracle.source == "own":
        return None, MTP0
    complete = [
        item for item in evidence.attempts if item.label == ORACLE_LABEL and item.status is AttemptStatus.COMPLETE
    ]
    return (_sequential(files[complete[-1].directory]) if complete else {}), MTP0


def _sequential(files: AttemptFiles) -> dict[str, _Told]:
    sent = files.capture.of_kind(SEQUENTIAL_KIND, "seq") if files.capture is not None else []
    return {tag.name: _Told(exchange) for tag, exchange in sent}


def _attempt(
    found: Comparisons,
    attempt: LadderAttempt,
    files: AttemptFiles,
    own: Mapping[str, _Told],
    mtp0: _Answers | None,
    whose: str,
    name: Callable[[str], str],
) -> None:
    """Every comparison of one measured server."""

    def add(slot: str, stage: Stage, other: Answer, against: str, oracle: Answer) -> None:
        prompt_ids = own[slot].prompt_ids if slot in own else None
        if oracle.ids and other.ids != oracle.ids:
            found.differing.append(Compared(name(slot), prompt_ids, stage, against, oracle, other))

    for slot, item in own.items() if mtp0 is not None else ():
        if mtp0 is not None and slot in mtp0:
            stage = Stage(SEQUENTIAL, f"{attempt.directory} sequential", slot)
            found.asked[name(slot)].append(stage)
            add(slot, stage, item.answer, whose, mtp0[slot].answer)
    sent = whole_batches(files.capture)
    for batch in attempt.batches:
        exchanges = {tag.name: exchange for tag, exchange in sent.get((batch.rung, batch.number), ())}
        for request in batch.requests:
            if not request.complete:
                continue
            slot = request.slot
            label = f"{attempt.directory} c{batch.rung} pass {batch.number}"
            stage = Stage(BATCH, label, slot, batch.rung, batch.number)
            found.asked[name(slot)].append(stage)
            if request.exact or slot not in exchanges:
                continue
            other = _Told(exchanges[slot]).answer
            if mtp0 is not None and slot in mtp0:
                add(slot, stage, other, whose, mtp0[slot].answer)
            if slot in own:
                add(slot, stage, other, OWN, own[slot].answer)
