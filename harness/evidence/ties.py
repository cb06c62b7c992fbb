"""A ladder's evidence → the suite of its tie sites: prompts whose answers left their oracle (contract section 5)."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import EvidenceError, UsageError
from harness.evidence import store
from harness.evidence.derive import derive
from harness.evidence.ladder import ladder_slots
from harness.evidence.ladder_schema import LadderEvidence
from harness.measure.ladder import Batch, Request
from harness.suites import load_suite
from harness.workloads.ladder import Slot

MAX_ID = 100
"""Characters of a prompt's id in a suite file"""


def tie_suite(directory: Path) -> dict[str, Any]:
    """The suite file of the prompts that diverged in the ladder at ``directory``, re-derived from its captures.

    ``source.rates`` says for each prompt in which share of its measured answers it left its oracle, the highest first,
    and ``source.sites`` where. A verbatim ladder repeats a text over its slots: these are one prompt here, under its
    own id. Load the file with ``--suite FILE --verbatim``. Raises UsageError where nothing diverged or the campaign
    is no ladder, EvidenceError for a directory that can't be judged.
    """
    evidence = derive(directory)
    if not isinstance(evidence, LadderEvidence):
        raise UsageError(f"{directory.name} is no ladder, so it has no tie sites; give the directory of a ladder")
    plan = evidence.start.plan.ladder
    if plan is None:
        raise EvidenceError(f"{directory.name} is a ladder without its rungs; get the original files")
    suite = load_suite(str(directory / store.SUITE), need_classes=False)
    slots = {slot.id: slot for slot in ladder_slots(suite, plan)}
    batches = [batch for attempt in evidence.attempts for batch in attempt.batches]
    asked, missed = _answers(batches, slots, verbatim=plan.verbatim)
    if not missed:
        raise UsageError(
            f"no answer of {directory.name} left its oracle, so there is no tie site to write; measure more users or "
            "passes"
        )
    rates = {name: len(found) / asked[name] for name, found in missed.items()}
    ranked = sorted(rates, key=lambda name: (-rates[name], name))
    texts = {_name(slot, verbatim=plan.verbatim): slot.text for slot in slots.values()}
    return {
        "suite_id": f"ties-{evidence.campaign_id}"[:MAX_ID],
        "version": 1,
        "description": f"Prompts whose answers left their oracle in {_what(evidence)}.",
        "metric": "Share of answers that leave their oracle; send it word for word (--verbatim).",
        "source": {
            "campaign_id": evidence.campaign_id,
            "suite_id": suite.suite_id,
            "suite_sha256": suite.sha256,
            "rungs": plan.rungs,
            "passes": evidence.passes_done,
            "stagger_ms": plan.stagger_ms,
            "rates": {name: rates[name] for name in ranked},
            "sites": {name: _sites(missed[name]) for name in ranked},
        },
        "prompts": [{"id": name, "prompt": texts[name]} for name in ranked],
    }


def _name(slot: Slot, *, verbatim: bool) -> str:
    """The prompt's id: of its base where the text is the suite's own, of its slot where a suffix makes it unique."""
    suffix = slot.id[len(slot.base) :]
    return slot.base if verbatim else slot.base[: MAX_ID - len(suffix)] + suffix


def _answers(
    batches: Sequence[Batch], slots: Mapping[str, Slot], *, verbatim: bool
) -> tuple[Counter[str], dict[str, list[Request]]]:
    """(whole answers by prompt, those of them that diverged)."""
    asked: Counter[str] = Counter()
    missed: dict[str, list[Request]] = defaultdict(list)
    for batch in batches:
        for item in batch.requests:
            if item.complete and item.slot in slots:
                name = _name(slots[item.slot], verbatim=verbatim)
                asked[name] += 1
                if item.divergence is not None:
                    missed[name].append(item)
    return asked, dict(missed)


def _sites(missed: Sequence[Request]) -> list[dict[str, int | None]]:
    found = Counter(
        (item.divergence.first_divergence_token_zero_based, item.divergence.right_id, item.divergence.left_id)
        for item in missed
        if item.divergence is not None
    )
    return [
        {"index": index, "oracle_id": oracle, "other_id": other, "times": times}
        for (index, oracle, other), times in found.most_common()
    ]


def _what(evidence: LadderEvidence) -> str:
    plan = evidence.start.plan
    simulated = " (simulated)" if evidence.simulated else ""
    return f"{evidence.campaign_id}{simulated}, MTP{plan.depth} TP{plan.tensor_parallel} on {plan.lane}"
