"""A packet's coverage words and its evidence grade."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.imported import ImportedEvidence
from harness.publish import grades
from harness.publish.family_cells import measured_entries
from harness.publish.family_draft import Draft
from harness.publish.family_measured import Beside, Material

DECODE, TTFT, STRICT = "decode", "TTFT", "cache-zero strict suite"
STAGGER, CLASSPAD = "stagger-exact concurrency", "CLASSPAD many-user mode"
_TP = re.compile(r"TP(\d+)")
_DEPTHS = re.compile(r"MTP\d+(?:/\d+)*")


@dataclass(frozen=True)
class GradeReport:
    """What the rules make of one packet's grade."""

    packet: str
    in_file: str
    by_rule: str
    reasons: tuple[str, ...]
    basis: str
    """verified, claimed, file: what the pairs rest on"""


@dataclass
class _Shown:
    """What is shown for one packet, by whom."""

    words: set[str] = field(default_factory=set)
    cards: set[int] = field(default_factory=set)
    depths: set[int] = field(default_factory=set)
    verified: Counter[int] = field(default_factory=Counter)
    """gated pairs of verified campaigns by card count"""
    entries: Counter[int] = field(default_factory=Counter)
    """of entries that nothing given was shown for"""
    claimed: Counter[int] = field(default_factory=Counter)
    paths: list[str] = field(default_factory=list)


def packets(draft: Draft, material: Material, matched: Mapping[str, int]) -> list[GradeReport]:
    """Coverage and grade of every packet. ``matched``: campaigns behind each entry that evidence was given for."""
    reports = []
    for at, packet in enumerate(draft.file["packets"]):
        shown = _shown(draft, material, packet, matched)
        path = ("packets", at)
        draft.put((*path, "coverage"), _coverage(draft, path, packet["coverage"], shown), "what is measured")
        report = _grade(draft, path, packet, shown, material.newest())
        if report is not None:
            reports.append(report)
    return reports


def _shown(draft: Draft, material: Material, packet: dict[str, Any], matched: Mapping[str, int]) -> _Shown:
    own = (packet["revision"], packet["quantization"])
    found = _Shown()
    for entry in measured_entries(draft):
        if (entry["revision"], entry["quantization"]) != own:
            continue
        cards = entry["config"]["tp"]
        found.cards.add(cards)
        found.depths.add(entry["config"]["mtp"])
        found.words |= {DECODE} if entry["metrics"].get("decode_tok_s") else set()
        found.words |= {TTFT} if entry["metrics"].get("ttft_ms") else set()
        found.words |= {STRICT} if "cache zero" in entry.get("workload", "") else set()
        into = found.verified if entry["id"] in matched else found.entries
        into[cards] += len(entry["metrics"].get("decode_tok_s", [])) // 2 if _gated(entry) else 0
    for item in material.beside:
        if (item.key.revision, item.key.quantization) == own:
            _beside(found, item)
    for groups in (material.measured, material.rejected_base, material.rejected_depth):
        for key, group in groups.items():
            if (key.revision, key.quantization) == own:
                found.paths += [item.evidence for item in group]
    for _, evidence in material.imported:
        if model_of(draft.file, evidence) == packet["revision"]:
            _claimed_servers(found, evidence)
            _claimed_users(found, evidence)
        elif unnamed(evidence) and len(draft.file["packets"]) == 1:
            _claimed_users(found, evidence)
    return found


def _gated(entry: dict[str, Any]) -> bool:
    counts = re.findall(r"(\d+)/(\d+)", entry.get("quality_scope", ""))
    return bool(counts) and all(exact == total for exact, total in counts)


def _beside(found: _Shown, item: Beside) -> None:
    found.cards.add(item.key.tp)
    found.depths.add(item.key.mtp)
    found.paths.append(item.evidence)
    if item.certified and item.stagger_ms > 0:
        found.words.add(STAGGER)
    if item.classpad and any(rung > 1 for rung in item.exact_rungs):
        found.words.add(CLASSPAD)


def _claimed_servers(found: _Shown, evidence: ImportedEvidence) -> None:
    """Pairs that imported results claim: they support words and a grade by claim, and never make an entry."""
    for server in evidence.servers:
        if server.class_balanced_median is None or server.tensor_parallel is None or server.depth is None:
            continue
        found.cards.add(server.tensor_parallel)
        found.depths.add(server.depth)
        found.words |= {DECODE, *({TTFT} if server.ttft_ms is not None else ())}
    if evidence.gates and all(gate.passed for gate in evidence.gates):
        for cards in sorted({server.tensor_parallel for server in evidence.servers if server.tensor_parallel}):
            servers = [server for server in evidence.servers if server.tensor_parallel == cards]
            found.claimed[cards] += len(servers) // 2


def _claimed_users(found: _Shown, evidence: ImportedEvidence) -> None:
    """Ladders and depth profiles that imported results claim. They rarely name a model, and support words alone."""
    for point in evidence.depth_points:
        found.cards.add(point.tensor_parallel)
        found.depths.add(point.depth)
    for ladder in evidence.ladders:
        exact = any(rung.withheld is False and rung.rung > 1 for rung in ladder.rungs)
        found.words |= {STAGGER} if exact and (ladder.stagger_ms or 0) > 0 else set()
        found.words |= {CLASSPAD} if exact and ladder.classpad else set()


def unnamed(evidence: ImportedEvidence) -> bool:
    """Whether an import says nothing of its model: then it is of the family because it was given with it."""
    return not evidence.model


def model_of(family: dict[str, Any], evidence: ImportedEvidence) -> str | None:
    """The revision id of what was imported; None when it names no model of the family."""
    repository, revision = evidence.model.get("repository"), evidence.model.get("revision")
    for known in family["weight_revisions"]:
        if repository and revision and (known.get("repository"), known.get("revision")) == (repository, revision):
            return str(known["id"])
    return None


def _coverage(draft: Draft, path: tuple[str | int, ...], words: Sequence[str], shown: _Shown) -> list[str]:
    """The words in their order: depths corrected, what is shown added, what nothing shows named and kept."""
    depths = f"MTP{'/'.join(map(str, sorted(shown.depths)))}" if shown.depths else ""
    supported = {*shown.words, *(f"TP{cards}" for cards in shown.cards), *([depths] if depths else [])}
    said = [depths if depths and _DEPTHS.fullmatch(word) else word for word in words]
    said = list(dict.fromkeys(said))
    for word in _vocabulary(shown.cards, depths):
        if word in supported and word not in said:
            at = _place(said, word)
            said.insert(at, word)
    for at, word in enumerate(said):
        if word not in supported:
            draft.no_evidence[*path, "coverage", at] = f"nothing given shows {word!a}"
    return said


def _vocabulary(cards: set[int], depths: str) -> Iterator[str]:
    yield from (DECODE, TTFT, *(f"TP{count}" for count in sorted(cards)))
    if depths:
        yield depths
    yield from (STRICT, STAGGER, CLASSPAD)


def _rank(word: str) -> tuple[int, int]:
    if found := _TP.fullmatch(word):
        return 2, int(found[1])
    order = {DECODE: 0, TTFT: 1, STRICT: 4, STAGGER: 5, CLASSPAD: 6}
    return (3 if _DEPTHS.fullmatch(word) else order.get(word, 7)), 0


def _place(said: Sequence[str], word: str) -> int:
    """After the last word that comes before it in the seed's order."""
    before = [at for at, other in enumerate(said) if _rank(other) < _rank(word)]
    return before[-1] + 1 if before else 0


def _grade(
    draft: Draft, path: tuple[str | int, ...], packet: dict[str, Any], shown: _Shown, day: str | None
) -> GradeReport | None:
    at = (*path, "grades", "evidence")
    known = packet.get("grades", {}).get("evidence")
    if known is None:
        return None
    claimed = packet["topologies"]
    # The file's own entry and an imported claim may be one pair, so the larger of both counts, never their sum.
    found = grades.grade(shown.verified + (shown.entries | shown.claimed), claimed)
    own = grades.grade(shown.verified, claimed)
    basis = "verified" if own.letter == found.letter else "claimed" if shown.claimed else "the file's own entries"
    report = GradeReport(packet["id"], known["grade"], found.letter, found.reasons, basis)
    unshown = [cards for cards in claimed if not shown.verified[cards] + shown.entries[cards] + shown.claimed[cards]]
    if not shown.paths and unshown and known["grade"] != "A":
        # No campaign of this packet was given, so nothing speaks against the letter either; A is never taken on trust.
        missing = ", ".join(f"TP{cards}" for cards in unshown)
        draft.no_evidence[*at, "grade"] = f"nothing given shows a gated pair on {missing}"
        return GradeReport(packet["id"], known["grade"], "not derived", found.reasons, "no evidence given")
    draft.put((*at, "grade"), found.letter, "; ".join(found.reasons))
    derived_basis = str(known.get("basis", "")).startswith(grades.BASIS_PREFIX)
    if (derived_basis or found.letter != known["grade"]) and day is not None:
        draft.put((*at, "basis"), grades.basis(found, day))
        if derived_basis or "reviewed_at" in known:
            draft.put((*at, "reviewed_at"), day if found.letter != known["grade"] else known.get("reviewed_at", day))
    listed = known.get("evidence", [])
    added = [item for item in dict.fromkeys(shown.paths) if item not in listed]
    if added:
        draft.put((*at, "evidence"), [*listed, *added], "the campaigns behind it")
    for number, item in enumerate(listed):
        if item in shown.paths:
            draft.derived.add((*at, "evidence", number))
        else:
            draft.no_evidence[*at, "evidence", number] = "not among what was given"
    return report
