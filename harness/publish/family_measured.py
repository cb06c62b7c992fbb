"""Verified campaigns → what a family file may say of them: measured pairs, ladders, and rejected configurations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import EvidenceError, UsageError
from harness.evidence.imported import ImportedEvidence
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Evidence, Pair, Status
from harness.measure.gates import Gate
from harness.plan import CACHE_VARIABLES, ServerPlan
from harness.publish.campaigns import Campaign, Imported
from harness.publish.configuration import Configuration, configuration_of, why_unpublishable
from harness.publish.family_words import Key, key_of, workload

SITE_PREFIXES = ("CCL_", "FI_", "ZE_AFFINITY_MASK")
"""Variables that are right on one rig and wrong on another (contract section 2): two campaigns may differ in them"""
IDENTITY = ("G1", "G2", "G3")


@dataclass(frozen=True)
class Given:
    """One directory of the command line."""

    opened: Campaign | Imported
    path: str
    """as the family file names it"""

    @property
    def name(self) -> str:
        """Of the directory."""
        return self.opened.directory.name


@dataclass(frozen=True)
class Measured:
    """One fresh-server pair of one verified campaign."""

    key: Key
    campaign: str
    evidence: str
    """path of its evidence.json, as the family file names it"""
    at: str
    """UTC, when the campaign started"""
    ended: str
    rates: tuple[float, float]
    """class-balanced medians of both servers, tokens/s"""
    ttft_ms: tuple[float, float]
    center: float
    """tokens/s"""
    spread: float
    gates: dict[str, str]
    """``G1`` → ``12/12``"""
    failed: tuple[str, ...]
    """identity gates that failed"""
    host: str
    prompts: int
    classes: int
    suite_id: str
    suite_sha256: str
    repeat_canary: bool
    asked: Mapping[str, Any] = field(hash=False)
    """everything that was asked of its servers, but for what belongs to one rig"""


@dataclass(frozen=True)
class Beside:
    """A ladder, depth or probe campaign: it supports a packet's words and grade, and makes no entry."""

    key: Key
    campaign: str
    evidence: str
    at: str
    ended: str
    stagger_ms: float
    classpad: bool
    certified: bool
    """every batch exact under a stagger"""
    exact_rungs: tuple[int, ...]
    """numbers of users with a rate that may be shown"""


@dataclass
class Material:
    """Everything that was given, sorted."""

    measured: dict[Key, list[Measured]] = field(default_factory=dict)
    """by configuration, in order of date; all of them, none selected"""
    rejected_base: dict[Key, list[Measured]] = field(default_factory=dict)
    """MTP0 configurations of which a G1 failed: every campaign that was given of them"""
    rejected_depth: dict[Key, list[Measured]] = field(default_factory=dict)
    """depth-D configurations of which a G2 or G3 failed"""
    beside: list[Beside] = field(default_factory=list)
    imported: list[tuple[str, ImportedEvidence]] = field(default_factory=list)
    """path and what is claimed there"""

    def newest(self) -> str | None:
        """The day of the newest evidence of ours."""
        groups = [*self.measured.values(), *self.rejected_base.values(), *self.rejected_depth.values()]
        ends = [item.ended for group in groups for item in group] + [item.ended for item in self.beside]
        return max(ends)[:10] if ends else None


def gather(family: dict[str, Any], plain: Sequence[Given], rejected: Sequence[Given]) -> Material:
    """Sort what was given. Raises EvidenceError for what may not be published, UsageError for another family's."""
    _given_once([*plain, *rejected])
    refused = [f"{given.name}: {', '.join(why)}" for given in plain if (why := _why_not(given))]
    if refused:
        raise EvidenceError(
            f"nothing is promoted, because of {len(refused)} of {len(plain)}: {'; '.join(refused)}; leave it out, or "
            "give a campaign whose G1, G2 or G3 failed with --rejected"
        )
    found = Material()
    for given in plain:
        opened = given.opened
        if isinstance(opened, Imported):
            found.imported.append((given.path, opened.evidence))
        elif isinstance(opened.evidence, Evidence):
            for item in _pairs(family, given, opened.evidence):
                found.measured.setdefault(item.key, []).append(item)
        else:
            found.beside.append(_beside(family, given, opened.evidence))
    for group in found.measured.values():
        group.sort(key=lambda item: (item.at, item.campaign))
        _alike(group)
    found.beside.sort(key=lambda item: (item.at, item.campaign))
    _reject(family, found, rejected)
    return found


def _given_once(every: Sequence[Given]) -> None:
    ids = [
        item.opened.evidence.import_id if isinstance(item.opened, Imported) else item.opened.evidence.campaign_id
        for item in every
    ]
    twice = next((item.name for item, own in zip(every, ids, strict=True) if ids.count(own) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice; give each campaign once, because every server of it is shown")


def _why_not(given: Given) -> list[str]:
    if isinstance(given.opened, Imported):
        claimed = given.opened.evidence
        simulated = ["it is simulated: nothing in it is a measurement"] if claimed.simulated else []
        return [*simulated, *claimed.not_publishable]
    evidence = given.opened.evidence
    why = why_unpublishable(evidence)
    if not why and evidence.status not in (Status.PASSED, Status.WITHHELD):
        why = [f"it has no verdict: {evidence.conclusion}"]
    return why


def _pairs(family: dict[str, Any], given: Given, evidence: Evidence) -> list[Measured]:
    """The pairs of a strict campaign: MTP0's, and that of its depth."""
    found = configuration_of(evidence)
    return [
        item
        for pair in evidence.pairs
        if (item := _measured(key_of(family, found, pair.depth, given.name), given, evidence, found, pair)) is not None
    ]


def _measured(key: Key, given: Given, evidence: Evidence, found: Configuration, pair: Pair) -> Measured | None:
    values = (pair.a, pair.b, pair.center, pair.spread, pair.ttft_a_ms, pair.ttft_b_ms)
    a, b, center, spread, ttft_a, ttft_b = (0.0 if value is None else value for value in values)
    gates = evidence.gates if pair.depth else [gate for gate in evidence.gates if gate.name == "G1"]
    if not gates or (pair.depth and all(gate.name == "G1" for gate in gates)):
        return None  # the campaign ended at its base
    suite = evidence.start.suite
    plan = next(server for server in evidence.start.plan.servers if server.depth == pair.depth)
    return Measured(
        key=key,
        campaign=given.name,
        evidence=f"{given.path}/evidence.json",
        at=evidence.started_at,
        ended=evidence.ended_at or evidence.started_at,
        rates=(a, b),
        ttft_ms=(ttft_a, ttft_b),
        center=center,
        spread=spread,
        gates=_counts(gates),
        failed=tuple(dict.fromkeys(gate.name for gate in gates if not gate.passed)),
        host=found.host,
        prompts=len(suite.prompts),
        classes=len({prompt.prompt_class for prompt in suite.prompts}),
        suite_id=suite.id,
        suite_sha256=suite.sha256,
        repeat_canary=plan.canaries == "repeat",
        asked=_asked(evidence, plan),
    )


def _counts(gates: Sequence[Gate]) -> dict[str, str]:
    """``12/12`` by gate; a gate of two comparisons that differ shows both."""
    said: dict[str, list[str]] = {}
    for gate in gates:
        said.setdefault(gate.name, []).append(f"{gate.exact}/{gate.total}")
    return {name: counts[0] if len(set(counts)) == 1 else ", ".join(counts) for name, counts in said.items()}


def _asked(evidence: Evidence, plan: ServerPlan) -> dict[str, Any]:
    env = {
        name: value
        for name, value in plan.env.items()
        if name not in CACHE_VARIABLES and not name.startswith(SITE_PREFIXES)
    }
    model = evidence.start.model
    weights = None if model is None else model.sha256
    return {"weights": weights, "image": plan.image_id, "server arguments": " ".join(plan.arguments), **env}


def _beside(family: dict[str, Any], given: Given, evidence: AnyEvidence) -> Beside:
    found = configuration_of(evidence)
    plan = evidence.start.plan.ladder
    ladder = evidence if isinstance(evidence, LadderEvidence) else None
    rungs = [] if ladder is None else ladder.rungs
    return Beside(
        key=key_of(family, found, found.depth, given.name),
        campaign=given.name,
        evidence=f"{given.path}/evidence.json",
        at=evidence.started_at,
        ended=evidence.ended_at or evidence.started_at,
        stagger_ms=0.0 if plan is None else plan.stagger_ms,
        classpad=found.classpad,
        certified=ladder is not None and ladder.classification == "harness-certified",
        exact_rungs=tuple(rung.rung for rung in rungs if not rung.withheld and rung.tok_s is not None),
    )


def _alike(group: Sequence[Measured]) -> None:
    """Campaigns that would stand as one configuration must be of one. Raises EvidenceError."""
    first = group[0]
    for other in group[1:]:
        for name in sorted({*first.asked, *other.asked}):
            left, right = first.asked.get(name), other.asked.get(name)
            if left != right:
                raise EvidenceError(
                    f"{first.campaign} and {other.campaign} would stand as one configuration ({first.key.words()}), "
                    f"but {name} is {left} in one and {right} in the other; give one of them"
                )


def _reject(family: dict[str, Any], found: Material, rejected: Sequence[Given]) -> None:
    """``--rejected``: configurations whose G1, G2 or G3 failed, with the counts of all campaigns given of them."""
    pairs: list[Measured] = []
    for given in rejected:
        opened = given.opened
        if isinstance(opened, Imported) or not isinstance(opened.evidence, Evidence):
            raise UsageError(
                f"{given.name} is no strict campaign, so it rejects no configuration; give it without --rejected"
            )
        why = _no_rejection(opened.evidence)
        if why:
            raise EvidenceError(f"{given.name} rejects nothing: {why}; leave it out")
        pairs += _pairs(family, given, opened.evidence)
    pairs.sort(key=lambda item: (item.at, item.campaign))
    bases = {item.key for item in pairs if not item.key.mtp and "G1" in item.failed}
    depths = {item.key for item in pairs if item.key.mtp and {"G2", "G3"} & {*item.failed}} - {
        item.key for item in pairs if item.key.base() in bases
    }
    used = set()
    for item in pairs:
        into = found.rejected_base if item.key in bases else found.rejected_depth if item.key in depths else None
        if into is not None:
            into.setdefault(item.key, []).append(item)
            used.add(item.campaign)
    for group in (*found.rejected_base.values(), *found.rejected_depth.values()):
        _alike(group)
    idle = next((given.name for given in rejected if given.name not in used), None)
    if idle is not None:
        raise UsageError(
            f"{idle} passed its gates, and no other campaign rejects its configuration; give it without --rejected"
        )
    for key, group in found.measured.items():
        if key in bases or key.base() in bases or key in depths:
            where = key if key in depths else key.base()
            fell = next(item for item in pairs if item.key == where and item.failed)
            raise EvidenceError(
                f"{group[0].campaign} passed and {fell.campaign} failed {' and '.join(fell.failed)} on one "
                f"configuration ({where.words()}), and no campaign is selected: give both with --rejected, so that all "
                "counts are shown"
            )


def _no_rejection(evidence: Evidence) -> str:
    """Why a campaign can't show that a configuration isn't exact; empty when it can, or passed."""
    if evidence.simulated:
        return "it is simulated"
    if evidence.start.plan.engine == "attach":
        return "it was measured on a server that bench did not start"
    if evidence.status not in (Status.PASSED, Status.REJECTED, Status.WITHHELD):
        return f"it is {evidence.status}, which is no verdict"
    others = sorted({g.name for attempt in evidence.attempts for g in attempt.gates if not g.passed})
    if others:
        return f"{', '.join(others)} failed, so its answers say nothing about the configuration"
    unequal = any(not gate.passed and gate.divergences for gate in evidence.gates)
    if evidence.status is not Status.PASSED and not unequal:
        return "its identity gates failed without an answer that differs"
    return ""


def counts(group: Sequence[Measured], gate: str) -> str:
    """``11/12, 9/12, 11/12``, in order of date."""
    return ", ".join(item.gates[gate] for item in group if gate in item.gates)


def rejected_label(group: Sequence[Measured]) -> str:
    """The label of a rejected cell, with the counts of every campaign that was given."""
    failed = {name for item in group for name in item.failed}
    if "G1" in failed:
        return f"rejected: not repeat-exact ({counts(group, 'G1')})"
    said = []
    if "G2" in failed:
        said.append(f"not repeat-exact (G2 {counts(group, 'G2')})")
    if "G3" in failed:
        said.append(f"not equal to the MTP0 oracle (G3 {counts(group, 'G3')})")
    return f"rejected: {' and '.join(said)}"


def quality_scope(group: Sequence[Measured]) -> str:
    """``G1 12/12`` or ``G1/G2/G3 12/12``; gates with different counts are named apart."""
    said = {name: counts(group, name) for name in IDENTITY if any(name in item.gates for item in group)}
    every = {count for item in group for count in item.gates.values()}
    if len(every) == 1:
        return f"{'/'.join(said)} {every.pop()}"
    return ", ".join(f"{name} {count}" for name, count in said.items())


def workload_of(group: Sequence[Measured]) -> str:
    """The sentence of ``family_words.workload`` for all campaigns of a configuration."""
    first = group[0]
    return workload(
        prompts=first.prompts,
        classes=first.classes,
        suite_id=first.suite_id,
        suite_sha256=first.suite_sha256,
        servers=2 * len(group),
        hosts=len({item.host for item in group}),
        repeat_canary=first.repeat_canary,
    )
