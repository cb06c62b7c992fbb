"""What only several campaigns together say: coverage, MTP depth, ladders side by side, context, the projection."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.evidence.context_schema import ContextEvidence
from harness.evidence.imported import ImportedEvidence
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Evidence
from harness.publish import plots
from harness.publish.compare_held import NO_VERDICT, held, held_why
from harness.publish.configuration import Configuration, configuration_of
from harness.publish.page_context import arms_of, drawn_points
from harness.publish.page_imported import figure, mark_of, not_publishable
from harness.publish.page_ladder import drawn_rungs, scope_words
from harness.publish.page_view import (
    Block,
    Chip,
    Entry,
    Link,
    Mark,
    Matrix,
    Numbers,
    Part,
    Section,
    Sentences,
    aloud,
    drawing,
    numbers,
)

UNIT = " tokens/s"
ARM = re.compile(r"\bmtp(\d+)$")
IMPORTED = " · imported"
UNSAID = 0
"""cards, where a file doesn't say how many"""
MOST_CURVES = 5
"""in one drawing; more can't be told apart"""


@dataclass(frozen=True)
class Placed:
    """Evidence with its place on the page."""

    evidence: AnyEvidence | ImportedEvidence
    anchor: str
    name: str
    """lane and quantization, with whatever tells it from the others"""
    why: tuple[str, ...] = ()
    """why no number of it may be published; of imports nothing"""


TELLING = ("model", "image", "vllm", "classpad", "graph", "kv", "draft_head", "suite_id", "engine", "host")
"""What two results of one lane may differ in; the plan's own words for it"""


def names(found: Sequence[AnyEvidence]) -> dict[str, str]:
    """Campaign id → lane and quantization, and every setting in which two campaigns of that lane and kind differ.

    Depth and cards are left out: they are the columns of the coverage, and the axis of the depth chart. The head of the
    draft goes with the depth, so it tells only among equal depths.
    """
    groups: dict[tuple[str, str], list[tuple[str, Configuration]]] = {}
    for evidence in found:
        item = configuration_of(evidence)
        groups.setdefault((item.lane, item.kind), []).append((evidence.campaign_id, item))
    said = {}
    for members in groups.values():
        for name, item in members:
            others = [other for _, other in members]
            alike = [other for other in others if other.depth == item.depth]
            differing = [
                key
                for key in TELLING
                if len({_setting(other, key) for other in (alike if key == "draft_head" else others)}) > 1
            ]
            words = [f"{key.removesuffix('_id').replace('_', ' ')} {_setting(item, key)}" for key in differing]
            said[name] = " · ".join([item.lane, _quantization(item.quantization), *words])
    return said


def _setting(item: Configuration, key: str) -> str:
    if key == "model":
        return f"{item.model_repository or ''} {(item.model_revision or item.model_sha256 or 'unknown')[:8]}".strip()
    return str(getattr(item, key))


Cells = dict[tuple[str, int, int], list[Entry]]
"""(row, MTP depth, cards) → entries"""


def coverage_section(placed: Sequence[Placed]) -> Section:
    """Lane and quantization × MTP × TP of all given campaigns."""
    cells: Cells = {}
    for item in placed:
        if isinstance(item.evidence, ImportedEvidence):
            _imported_cells(cells, item, item.evidence)
        elif isinstance(item.evidence, LadderEvidence):
            _ladder_cells(cells, item, item.evidence)
        elif isinstance(item.evidence, ContextEvidence):
            _context_cells(cells, item, item.evidence)
        else:
            _strict_cells(cells, item, item.evidence)
    depths, cards = sorted({key[1] for key in cells}), sorted({key[2] for key in cells})
    columns = [(depth, tp) for tp in cards for depth in depths]
    rows = tuple(
        (
            name,
            "not in this import" if name.endswith(IMPORTED) else "not measured",
            tuple(tuple(cells.get((name, *column), ())) for column in columns),
        )
        for name in dict.fromkeys(key[0] for key in cells)
    )
    heads = tuple(f"MTP{depth} · {f'TP{tp}' if tp else 'cards not said'}" for depth, tp in columns)
    lead = (
        "Every given campaign stands in its cell, and none is selected. Not measured means: by none of the campaigns "
        "given for this page."
    )
    if not cells:
        return Section(
            "coverage", "Coverage", (Sentences(("No given evidence names a configuration.",), "muted"),), lead
        )
    return Section("coverage", "Coverage", (Matrix(heads, rows),), lead)


def _status(item: Placed, evidence: AnyEvidence) -> Chip:
    if evidence.simulated:
        return Chip("simulated", "warn")
    if evidence.status in ("withheld", "rejected"):
        return Chip(evidence.status, "bad")
    if item.why or evidence.status != "passed":
        return Chip("no verdict", "warn")
    return Chip("measured", "good")


def held_chip(word: str) -> Chip:
    """A word of ``held`` as a verdict."""
    return Chip(word, "warn" if word == NO_VERDICT else "bad")


def _strict_cells(cells: Cells, item: Placed, evidence: Evidence) -> None:
    found = configuration_of(evidence)
    n, status = _numbers(evidence), _status(item, evidence)
    for pair in evidence.pairs:
        if pair.a is None and pair.b is None and not any(a.depth == pair.depth for a in evidence.attempts):
            continue
        parts: list[Part] = [n(f"pairs.{pair.name}.center", pair.center), UNIT] if pair.center is not None else []
        if status.text in ("rejected", "withheld"):
            for at, gate in enumerate(evidence.gates):
                if f"mtp{pair.depth}-" in gate.subject and gate.exact is not None:
                    counts = (n(f"gates.{at}.exact", gate.exact, 0), "/", n(f"gates.{at}.total", gate.total, 0))
                    parts += [*([" · "] if parts else []), f"{gate.name} ", *counts]
        key = (f"{item.name} · strict", pair.depth, found.tensor_parallel)
        cells.setdefault(key, []).append(_entry(item, evidence, status, parts))


def _ladder_cells(cells: Cells, item: Placed, evidence: LadderEvidence) -> None:
    found, n = configuration_of(evidence), _numbers(evidence)
    shown = [rung for rung in evidence.rungs if not rung.withheld]
    missed = [rung for rung in evidence.rungs if rung.withheld]
    key = (f"{item.name} · ladder", found.depth, found.tensor_parallel)
    if shown and (not missed or evidence.simulated or not item.why):
        top, status = shown[-1], _status(item, evidence)
        whole = held(evidence)
        if whole and not evidence.simulated:
            status = held_chip(whole)
        elif status.text == "withheld" and not item.why:
            status = Chip("measured", "good")
        equal = f"exact: {', '.join(f'c{rung.rung}' for rung in shown)}"
        words = f"not to be shown, {whole}: {held_why(evidence)}" if whole else equal
        rate = (n(f"rungs.c{top.rung}.tok_s", top.tok_s, 1), f"{UNIT} at c{top.rung}; {words}")
        cells.setdefault(key, []).append(_entry(item, evidence, status, list(rate)))
    if missed or not shown:
        counts: list[Part] = []
        for rung in missed:
            path = f"rungs.c{rung.rung}"
            exact, total = n(f"{path}.exact", rung.exact, 0), n(f"{path}.total", rung.total, 0)
            counts += [*([", "] if counts else []), f"c{rung.rung} ", exact, "/", total]
        status = Chip("withheld" if missed else "no verdict", "bad")
        if evidence.simulated:
            status = Chip("simulated, withheld", "warn")
        cells.setdefault(key, []).append(_entry(item, evidence, status, counts or [evidence.status]))


def _context_cells(cells: Cells, item: Placed, evidence: ContextEvidence) -> None:
    n = _numbers(evidence)
    cards = evidence.start.plan.tensor_parallel
    for depth in dict.fromkeys(attempt.depth for attempt in evidence.attempts):
        mine = [(at, point) for at, point in enumerate(evidence.points) if point.depth == depth]
        parts: list[Part] = []
        for at, point in mine:
            rate = n(f"points.{at}.tok_s", point.tok_s)
            counts = "" if point.exact is None else f" ({point.exact}/{point.total})"
            words = f" withheld{counts}" if point.withheld else ""
            parts += [*([", "] if parts else []), f"{point.context}: ", rate, words]
        for at, gate in enumerate(evidence.gates if not mine else []):
            counted = (n(f"gates.{at}.exact", gate.exact, 0), "/", n(f"gates.{at}.total", gate.total, 0))
            parts += [*([", "] if parts else []), f"{gate.name} ", *counted]
        key = (f"{item.name} · {evidence.kind}", depth, cards)
        cells.setdefault(key, []).append(_entry(item, evidence, _status(item, evidence), parts))


def _imported_cells(cells: Cells, item: Placed, evidence: ImportedEvidence) -> None:
    name = f"{evidence.model.get('repository') or evidence.import_id}{IMPORTED}"

    def add(depth: int | None, cards: int | None, status: Chip, figures: tuple[Part, ...]) -> None:
        if depth is not None:
            if evidence.simulated:
                status = Chip(f"simulated, {status.text}", "warn")
            if evidence.not_publishable:
                figures = (*figures, " ", Chip("not to be published", "bad"))
            entry = Entry(status, figures, Link("imported", item.anchor), evidence.import_id)
            cells.setdefault((name, depth, cards or UNSAID), []).append(entry)

    quoted = set()
    for arm, center in evidence.centers.items():
        found = ARM.search(arm)
        depth = None if found is None else int(found[1])
        cards = {server.tensor_parallel for server in evidence.servers if server.depth == depth}
        of_arm = {server.tensor_parallel for server in evidence.servers if server.label.startswith(f"{arm}-")}
        known = of_arm or cards
        only = next(iter(known)) if len(known) == 1 else None
        quoted.add((depth, only))
        words = "" if arm == f"mtp{depth}" else f" ({arm})"
        add(
            depth,
            only,
            Chip(center.basis.value, "warn"),
            (figure(f"centers.{arm}", center, of=evidence), f"{UNIT}{words}"),
        )
    for at, server in enumerate(evidence.servers):
        median = server.class_balanced_median
        if median is not None and (server.depth, server.tensor_parallel) not in quoted:
            figures = (
                figure(f"servers.{at}.class_balanced_median", median, of=evidence),
                f"{UNIT}, server {server.label}",
            )
            add(server.depth, server.tensor_parallel, Chip(median.basis.value, "warn"), figures)
    rungs: dict[tuple[int | None, int | None], list[list[int]]] = {}
    for ladder in evidence.ladders:
        users = [rung.rung for rung in ladder.rungs]
        rungs.setdefault((ladder.depth, ladder.tensor_parallel), []).append(users)
    for (depth, cards_), ladders in rungs.items():
        every = sorted({users for ladder in ladders for users in ladder})
        span = f"c{every[0]}" + (f" to c{every[-1]}" if len(every) > 1 else "") if every else "no rung"
        words = f"{len(ladders)} ladder{'s' if len(ladders) > 1 else ''}, {span}"
        add(depth, cards_, Chip("claimed", "warn"), (words,))


def _entry(item: Placed, evidence: AnyEvidence, status: Chip, parts: list[Part]) -> Entry:
    return Entry(status, tuple(parts), Link(evidence.started_at[:10], item.anchor), evidence.campaign_id)


def _numbers(evidence: AnyEvidence) -> Numbers:
    return numbers("simulated" if evidence.simulated else "")


def _quantization(name: str) -> str:
    return "unquantized" if name == "none" else name


def depth_section(placed: Sequence[Placed]) -> Section:
    """Rate over MTP depth, one drawing for each lane and number of cards."""
    groups: dict[tuple[str, bool], list[tuple[int, list[float], bool]]] = {}
    for item in placed:
        evidence = item.evidence
        if isinstance(evidence, Evidence):
            found = configuration_of(evidence)
            name = f"{item.name} · TP{found.tensor_parallel}"
            hollow = bool(held(evidence))
            for pair in evidence.pairs:
                rates = [rate for rate in (pair.a, pair.b) if rate is not None]
                groups.setdefault((name, evidence.simulated), []).append((pair.depth, rates, hollow))
    blocks = [
        drawing(name, plots.mtp_depth(points, prefix=f"all-m{at}"), "", "simulated" if simulated else "")
        for at, ((name, simulated), points) in enumerate(groups.items())
    ]
    lead = "Strict pairs only: a mark for each server. Hollow is withheld. Nothing between two depths was measured."
    said = Sentences(("No strict campaign was given.",), "muted")
    return Section("mtp", "Rate over MTP depth", tuple(blocks) or (said,), lead)


def ladders_section(placed: Sequence[Placed]) -> Section:
    """Every ladder in one drawing, measured ones and imported ones apart."""
    ours: dict[bool, dict[str, Sequence[plots.CurveRung]]] = {}
    claimed: dict[str, list[tuple[str, Sequence[plots.CurveRung]]]] = {}
    marks: dict[str, Mark] = {}
    scopes = []
    for at, item in enumerate(placed, 1):
        evidence = item.evidence
        if isinstance(evidence, LadderEvidence):
            plan = evidence.start.plan
            label = f"MTP{plan.depth} TP{plan.tensor_parallel} {plan.lane} ({at})"
            ours.setdefault(evidence.simulated, {})[label] = drawn_rungs(evidence)
            scopes.append(aloud(f"({at}) {scope_words(evidence)}", simulated=evidence.simulated))
        elif isinstance(evidence, ImportedEvidence):
            curves = [(item.label, plots.rungs_of_imported(item.rungs)) for item in evidence.ladders]
            claimed[evidence.import_id] = [curve for curve in curves if len(curve[1]) > 1]
            marks[evidence.import_id] = mark_of(evidence)
            scopes += [f"({at}) {sentence}" for sentence in not_publishable(evidence) if claimed[evidence.import_id]]
    blocks: list[Block] = []
    for simulated, rungs in ours.items():
        svg = plots.ladder_curve(rungs, prefix=f"all-l{int(simulated)}")
        blocks.append(drawing("Rate against users", svg, "Hollow is withheld.", "simulated" if simulated else ""))
    for place, (name, every) in enumerate(claimed.items()):
        for first in range(0, len(every), MOST_CURVES):
            svg = plots.ladder_curve(dict(every[first : first + MOST_CURVES]), prefix=f"all-lc{place}-{first}")
            blocks.append(
                drawing(f"As published in {name}", svg, "Hollow is withheld, or of unknown identity.", marks[name])
            )
    blocks += [Sentences((scope,)) for scope in scopes]
    said = Sentences(("No ladder was given: rates with several users are not on this page.",), "muted")
    return Section("ladders", "Many users at once", tuple(blocks) or (said,))


def context_section(placed: Sequence[Placed]) -> Section:
    """Rate over active context, measured and imported apart."""
    measured: dict[bool, dict[str, list[tuple[int, float]]]] = {}
    claimed: dict[Mark, dict[str, list[tuple[int, float]]]] = {}
    scopes = []
    for at, item in enumerate(placed, 1):
        evidence = item.evidence
        if isinstance(evidence, ImportedEvidence):
            for point in evidence.depth_points:
                label = f"MTP{point.depth} TP{point.tensor_parallel} ({at})"
                arms = claimed.setdefault(mark_of(evidence), {})
                arms.setdefault(label, []).append((point.active_context_tokens, point.tok_s))
            scopes += [f"({at}) {sentence}" for sentence in not_publishable(evidence) if evidence.depth_points]
        elif isinstance(evidence, ContextEvidence) and evidence.points:
            arms = measured.setdefault(evidence.simulated, {})
            for label, points in arms_of(drawn_points(evidence)).items():
                arms[f"{label} TP{evidence.start.plan.tensor_parallel} {evidence.start.plan.lane} ({at})"] = points
            scopes.append(aloud(f"({at}) {evidence.scope}", simulated=evidence.simulated))
    blocks: list[Block] = []
    for simulated, arms in measured.items():
        svg = plots.depth_profile(arms, prefix=f"all-d{int(simulated)}")
        blocks.append(drawing("Rate over active context", svg, "", "simulated" if simulated else ""))
    for place, (mark, arms) in enumerate(claimed.items()):
        blocks.append(drawing("As published", plots.depth_profile(arms, prefix=f"all-dc{place or ''}"), "", mark))
    blocks += [Sentences((scope,)) for scope in scopes]
    said = Sentences(("No long-context profile was given: the rate over active context is not on this page.",), "muted")
    return Section("context", "Rate over context", tuple(blocks) or (said,), "No value is interpolated.")
