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
_SIDE = re.compile(r"(.+)[ -]([ab])")
"""``t1 mtp3-a`` → the arm and the server of it"""
_ARM = re.compile(r"\bmtp\d+")


@dataclass(frozen=True)
class GradeReport:
    """What the rules make of one packet's grade."""

    packet: str
    in_file: str
    by_rule: str
    reasons: tuple[str, ...]
    basis: str
    """verified, claimed, the file's own entries, no evidence given: what the pairs rest on"""


@dataclass
class _Shown:
    """What is shown for one packet, by whom."""

    words: set[str] = field(default_factory=set)
    cards: set[int] = field(default_factory=set)
    depths: set[int] = field(default_factory=set)
    verified: Counter[int] = field(default_factory=Counter)
    """gated pairs of verified campaigns by card count; a letter is written from these alone"""
    entries: Counter[int] = field(default_factory=Counter)
    """of entries that nothing given was shown for"""
    claimed: Counter[int] = field(default_factory=Counter)
    rejected: set[int] = field(default_factory=set)
    """card counts on which a campaign of ours rejects a configuration: no claim speaks for them"""
    paths: list[str] = field(default_factory=list)
    by_claim: dict[str, str] = field(default_factory=dict)
    """coverage word → path of the import that claims it"""
    claimed_depths: dict[int, str] = field(default_factory=dict)


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
        if entry["id"] not in matched and _gated(entry):
            found.entries[cards] += len(entry["metrics"].get("decode_tok_s", [])) // 2
    for item in material.beside:
        if (item.key.revision, item.key.quantization) == own:
            _beside(found, item)
    for groups in (material.measured, material.rejected_base, material.rejected_depth):
        for key, group in groups.items():
            if (key.revision, key.quantization) == own:
                found.paths += [item.evidence for item in group]
                if groups is material.measured:
                    found.verified[key.tp] += sum(not item.failed for item in group)
                else:
                    found.rejected.add(key.tp)
    for path, evidence in material.imported:
        if model_of(draft.file, evidence) == packet["revision"]:
            _claimed_servers(found, path, evidence)
            _claimed_users(found, path, evidence)
        elif unnamed(evidence) and len(draft.file["packets"]) == 1:
            _claimed_users(found, path, evidence)
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


def _claimed_servers(found: _Shown, path: str, evidence: ImportedEvidence) -> None:
    """Pairs that imported results claim: they support what stands, by claim, and never add to it."""
    sides: dict[tuple[int, int, str], set[str]] = {}
    for server in evidence.servers:
        cards, depth = server.tensor_parallel, server.depth
        if server.class_balanced_median is None or cards is None or depth is None:
            continue
        for word in (f"TP{cards}", DECODE, *((TTFT,) if server.ttft_ms is not None else ())):
            found.by_claim.setdefault(word, path)
        found.claimed_depths.setdefault(depth, path)
        if named := _SIDE.fullmatch(server.label):
            sides.setdefault((cards, depth, named[1]), set()).add(named[2])
    if not all(gate.passed for gate in evidence.gates):
        return
    for (cards, depth, arm), both in sides.items():
        campaign = _ARM.sub("", arm).strip()
        gates = {name for gate in evidence.gates if _of(campaign, gate.subject) for name in gate.name.split("/")}
        if both == {"a", "b"} and ({"G2", "G3"} if depth else {"G1"}) <= gates:
            found.claimed[cards] += 1


def _of(campaign: str, subject: str) -> bool:
    """Whether a gate is of a campaign of the import: one with a name names it first (``t1``, ``t1 mtp0-a vs …``)."""
    return subject.split(" ", maxsplit=1)[0] == campaign if campaign else bool(_ARM.match(subject))


def _claimed_users(found: _Shown, path: str, evidence: ImportedEvidence) -> None:
    """Ladders and depth profiles that imported results claim. They rarely name a model, and support words alone."""
    for point in evidence.depth_points:
        found.by_claim.setdefault(f"TP{point.tensor_parallel}", path)
        found.claimed_depths.setdefault(point.depth, path)
    for ladder in evidence.ladders:
        exact = any(rung.withheld is False and rung.rung > 1 for rung in ladder.rungs)
        if exact and (ladder.stagger_ms or 0) > 0:
            found.by_claim.setdefault(STAGGER, path)
        if exact and ladder.classpad:
            found.by_claim.setdefault(CLASSPAD, path)


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
    """The words in their order: depths corrected, what is shown added, what nothing shows named and kept.

    A claim supports a word that stands, and is named beside it; it never adds one.
    """
    depths = f"MTP{'/'.join(map(str, sorted(shown.depths)))}" if shown.depths else ""
    supported = {*shown.words, *(f"TP{cards}" for cards in shown.cards), *([depths] if depths else [])}
    by_claim = {word: by for word, by in shown.by_claim.items() if word not in supported}
    for word in words:
        if _DEPTHS.fullmatch(word) and word != depths and (by := _depths_claimed(word, shown)):
            by_claim[word] = by
    said = [depths if depths and _DEPTHS.fullmatch(word) and word not in by_claim else word for word in words]
    said = list(dict.fromkeys(said))
    stand = any(_DEPTHS.fullmatch(word) for word in said)
    for word in _vocabulary(shown.cards, depths):
        if word in supported and word not in said and not (word == depths and stand):
            at = _place(said, word)
            said.insert(at, word)
    for at, word in enumerate(said):
        field = (*path, "coverage", at)
        if word in by_claim:
            draft.claimed.append(f"claimed: {draft.name(field)} {word!a} rests on {by_claim[word]} alone")
        elif word not in supported:
            draft.no_evidence[field] = f"nothing given shows {word!a}"
    return said


def _depths_claimed(word: str, shown: _Shown) -> str:
    """The import by which a depth word that stands holds all shown depths and no other but claimed ones."""
    said = {int(depth) for depth in word.removeprefix("MTP").split("/")}
    more = said - shown.depths
    if not more or not shown.depths <= said or not more <= shown.claimed_depths.keys():
        return ""
    return shown.claimed_depths[min(more)]


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
    own = grades.grade(shown.verified, claimed)
    # The file's own entry and an imported claim may be one pair, so the larger of both counts, never their sum.
    claims = Counter({cards: count for cards, count in shown.claimed.items() if cards not in shown.rejected})
    other = grades.grade(shown.verified + (shown.entries | claims), claimed)
    source = "claimed" if claims else "the file's own entries"
    report = GradeReport(packet["id"], known["grade"], own.letter, own.reasons, "verified")
    if not _stands(known["grade"], own.letter, other.letter, shown):
        _written(draft, at, known, own, day)
        if other.letter != own.letter:
            draft.no_evidence[*at, "grade"] = f"{_but(source)} would give {other.letter}; no verified campaign shows it"
    else:
        missing = [f"TP{n}" for n in claimed if not shown.verified[n] + shown.entries[n] + claims[n]]
        why = f"{_but(source)} would give {other.letter}; no verified campaign shows it"
        if missing:
            why = f"nothing given shows a gated pair on {', '.join(missing)}"
        draft.no_evidence[*at, "grade"] = why
        if str(known.get("basis", "")).startswith(grades.BASIS_PREFIX):
            draft.no_evidence[*at, "basis"] = "no verified campaign of it was given"
        supports = other.letter == known["grade"]
        reasons = tuple(f"{source}: {reason}" for reason in other.reasons) if supports else (why,)
        letter, basis = (other.letter, source) if supports else ("not derived", "no evidence given")
        report = GradeReport(packet["id"], known["grade"], letter, reasons, basis)
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


def _stands(letter: str, own: str, other: str, shown: _Shown) -> bool:
    """Whether a letter better than what is verified is kept: nothing of ours was given, or claims support it.

    An A is never taken on trust, and no claim makes a letter better than the one that stands.
    """
    if letter not in grades.LETTERS[1:] or own <= letter:
        return False
    return not shown.paths or other <= letter


def _but(source: str) -> str:
    return "imported claims" if source == "claimed" else source


def _written(
    draft: Draft, at: tuple[str | int, ...], known: dict[str, Any], own: grades.Grade, day: str | None
) -> None:
    draft.put((*at, "grade"), own.letter, "; ".join(own.reasons))
    derived = str(known.get("basis", "")).startswith(grades.BASIS_PREFIX)
    if (derived or own.letter != known["grade"]) and day is not None:
        draft.put((*at, "basis"), grades.basis(own, day))
        if derived or "reviewed_at" in known:
            draft.put((*at, "reviewed_at"), day if own.letter != known["grade"] else known.get("reviewed_at", day))
