"""Imported results on the page: every figure says whether it was re-derived here or is only claimed."""

from dataclasses import replace

from harness.evidence.imported import Basis, ImportedEvidence, ImportedLadder
from harness.evidence.imported import Figure as ImportedFigure
from harness.publish.page_common import sentences
from harness.publish.page_view import (
    Block,
    CampaignView,
    Cell,
    Chip,
    Code,
    Command,
    Facts,
    Hero,
    Mark,
    Num,
    Part,
    Row,
    Section,
    Sentences,
    Tone,
    all_aloud,
    aloud,
    byte_words,
    numbers,
    share,
    table,
)


def mark_of(evidence: ImportedEvidence, basis: Basis = Basis.CLAIMED) -> Mark:
    """What stands at a number: its basis, and that it is simulated where a source says so."""
    if evidence.simulated:
        return "simulated, claimed" if basis is Basis.CLAIMED else "simulated, re-derived"
    return "claimed" if basis is Basis.CLAIMED else "re-derived"


def not_publishable(evidence: ImportedEvidence) -> list[str]:
    """Why its numbers may not be published, worded for beside them."""
    return [f"Not to be published: {why}" for why in evidence.not_publishable]


def figure(path: str, found: ImportedFigure | None, of: ImportedEvidence, digits: int = 2, unit: str = "") -> Num:
    """One imported number with its basis."""
    if found is None:
        return Num(path, None, "–")
    return numbers(mark_of(of, found.basis))(f"{path}.value", found.value, digits, unit)


def imported_view(evidence: ImportedEvidence, anchor: str, directory: str) -> CampaignView:
    """An import from its sources to what they leave unsaid."""
    why = "imported: bench has not measured this; each figure below is marked claimed or re-derived"
    whys = [why, *not_publishable(evidence)]
    sections = tuple(_sections(evidence, directory))
    if evidence.simulated:
        whys.insert(0, "it is simulated: nothing in it is a measurement")
        sections = tuple(replace(item, blocks=all_aloud(item.blocks)) for item in sections)
    conclusion = aloud(evidence.conclusion, simulated=evidence.simulated)
    return CampaignView(
        id=evidence.import_id,
        anchor=anchor,
        title=str(evidence.model.get("repository") or evidence.image or evidence.import_id),
        kind="imported",
        status=Chip("imported", "warn"),
        conclusion=conclusion,
        hero=Hero(evidence.import_id, None, why_none=tuple(whys), scope=conclusion),
        sections=sections,
        simulated=evidence.simulated,
    )


def _sections(evidence: ImportedEvidence, directory: str) -> list[Section]:
    found = [_speed(evidence), _gates(evidence)]
    if evidence.ladders:
        found.append(_ladders(evidence))
    if evidence.depth_points:
        found.append(_depth(evidence))
    return [*found, _problems(evidence), _identity(evidence), _unknown(evidence), _check(evidence, directory)]


def _speed(evidence: ImportedEvidence) -> Section:
    rows = [
        Row(
            (
                item.label,
                "–" if item.tensor_parallel is None else f"TP{item.tensor_parallel}",
                figure(f"servers.{at}.class_balanced_median", item.class_balanced_median, evidence),
                figure(f"servers.{at}.ttft_ms", item.ttft_ms, evidence),
                str(item.rows),
            )
        )
        for at, item in enumerate(evidence.servers)
    ]
    blocks: list[Block] = _beside(evidence)
    centers = []
    for name, center in evidence.centers.items():
        spread = share(numbers(mark_of(evidence, center.basis)), f"spreads.{name}", evidence.spreads.get(name))
        centers.append(Row((name.upper(), figure(f"centers.{name}", center, evidence), spread)))
    if centers:
        blocks.append(table(("pair", "center, tokens/s", "spread"), centers))
    if rows:
        head = ("server", "cards", "median, tokens/s", "TTFT, ms", "raw rows here")
        blocks.append(table(head, rows, left=(0, 1)))
    classes = list(dict.fromkeys(name for item in evidence.servers for name in item.class_medians))
    if classes:
        per_class = [
            Row(
                (
                    name,
                    *(
                        figure(f"servers.{at}.class_medians.{name}", item.class_medians.get(name), evidence)
                        for at, item in enumerate(evidence.servers)
                    ),
                )
            )
            for name in classes
        ]
        blocks.append(table(("class", *(item.label for item in evidence.servers)), per_class, "tokens/s"))
    if not centers and not rows and not classes:
        return Section("speed", "Speed", (Sentences(("The files hold no speed.",), "muted"),))
    return Section("speed", "Speed", tuple(blocks))


def _beside(evidence: ImportedEvidence) -> list[Block]:
    """What must be read before a number."""
    said = not_publishable(evidence)
    return [Sentences(tuple(said), "bad")] if said else []


def _gates(evidence: ImportedEvidence) -> Section:
    rows, missed = [], []
    for at, gate in enumerate(evidence.gates):
        claimed = gate.basis is Basis.CLAIMED
        n = numbers(mark_of(evidence, gate.basis))
        says: Part = Chip("not said", "muted")
        if gate.passed is not None:
            says = Chip(
                "passes" if gate.passed else "fails",
                "warn" if gate.passed and (claimed or evidence.simulated) else _tone(gate.passed),
            )
        counts: Cell = "–"
        if gate.exact is not None and gate.total is not None:
            counts = (n(f"gates.{at}.exact", gate.exact, 0), "/", n(f"gates.{at}.total", gate.total, 0))
        rows.append(Row((gate.name, gate.subject, (says,), gate.basis.value, counts)))
        missed += [f"{gate.name}, {gate.subject}: {item.sentence()}" for item in gate.divergences]
    if not rows:
        return Section("gates", "Gates", (Sentences(("The files name no gate.",), "warn"),))
    head = ("gate", "compares", "says", "basis", "equal")
    blocks: list[Block] = [table(head, rows, left=(0, 1, 2, 3)), *sentences(missed, "bad", "differences")]
    return Section("gates", "Gates", tuple(blocks), "A claimed pass is no pass of bench's.")


def _tone(passed: bool) -> Tone:
    return "good" if passed else "bad"


def _ladders(evidence: ImportedEvidence) -> Section:
    blocks = [*_beside(evidence), *(_ladder(evidence, ladder, at) for at, ladder in enumerate(evidence.ladders))]
    return Section("rungs", "Users at once", tuple(blocks), "Rungs as published; no per-request rows are public.")


def _ladder(evidence: ImportedEvidence, ladder: ImportedLadder, place: int) -> Block:
    n, rows = numbers(mark_of(evidence)), []
    for at, rung in enumerate(ladder.rungs):
        path = f"ladders.{place}.rungs.{at}"
        state = {True: Chip("withheld", "bad"), False: Chip("shown", "muted"), None: Chip("not said", "warn")}[
            rung.withheld
        ]
        counts: Cell = "–"
        if rung.exact is not None and rung.total is not None:
            counts = (n(f"{path}.exact", rung.exact, 0), "/", n(f"{path}.total", rung.total, 0))
        rows.append(Row((f"c{rung.rung}", state, n(f"{path}.tok_s", rung.tok_s, 1), counts, rung.note)))
    return table(("users", "", "tokens/s", "equal", "note"), rows, ladder.label, left=(0, 1, 4))


def _depth(evidence: ImportedEvidence) -> Section:
    n = numbers(mark_of(evidence))
    rows = [
        Row(
            (
                str(point.active_context_tokens),
                f"MTP{point.depth}",
                f"TP{point.tensor_parallel}",
                n(f"depth_points.{at}.tok_s", point.tok_s),
            )
        )
        for at, point in enumerate(evidence.depth_points)
    ]
    return Section(
        "depth",
        "Rate over context",
        (*_beside(evidence), table(("active context, tokens", "depth", "cards", "tokens/s"), rows, left=(1, 2))),
    )


def _problems(evidence: ImportedEvidence) -> Section:
    blocks: list[Block] = list(sentences(evidence.problems, "bad", "problems"))
    for name, fields in (("says nothing", evidence.null_fields), ("contradicts another", evidence.stale_fields)):
        if fields:
            rows = [Row((item.file, Code(item.field), item.why)) for item in fields]
            blocks.append(table(("file", "field", "why"), rows, f"A field that {name}", left=(0, 1, 2)))
    return Section(
        "problems", "What makes a value doubtful", tuple(blocks) or (Sentences(("Nothing was found.",), "muted"),)
    )


def _identity(evidence: ImportedEvidence) -> Section:
    items: list[tuple[str, Cell]] = [(name, str(value)) for name, value in evidence.model.items()]
    items += [
        ("image", evidence.image or "not said"),
        ("image id", Code(evidence.image_id) if evidence.image_id else "not said"),
        ("runtime", evidence.runtime or "not said"),
        ("suite sha256", Code(evidence.suite_sha256) if evidence.suite_sha256 else "not said"),
        ("host", ", ".join(evidence.hosts) or "not said"),
    ]
    blocks: list[Block] = [Facts(tuple(items))]
    if evidence.environment:
        rows = [
            Row((Code(name), "–" if value is None else Code(value))) for name, value in evidence.environment.items()
        ]
        blocks.append(table(("variable", "value"), rows, "Environment as the files say", left=(0, 1)))
    return Section("host", "Host, image, model", tuple(blocks))


def _unknown(evidence: ImportedEvidence) -> Section:
    items = [*evidence.unknown, "telemetry (power, frequency, temperature of a card): not recorded"]
    return Section("unknown", "What is unknown", (Sentences(tuple(items), "warn"),))


def _check(evidence: ImportedEvidence, directory: str) -> Section:
    rows = [Row((item.name, item.format, byte_words(item.bytes), Code(item.sha256))) for item in evidence.sources]
    files = table(("file", "format", "size", "sha256"), rows, "Kept byte for byte", left=(0, 1, 3))
    lead = "The imported files are kept with their hashes; bench re-derived the figures from them for this page."
    return Section("check", "Check it yourself", (Command(f"bench report {directory} -o page.html"), files), lead)
