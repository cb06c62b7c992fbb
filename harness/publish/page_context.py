"""A long-context profile, or boundary probes, on the page (contract section 7)."""

from collections.abc import Sequence

from harness.evidence.context_schema import ContextEvidence, Point
from harness.publish import plots
from harness.publish.compare_held import held, held_why
from harness.publish.page_common import sentences
from harness.publish.page_view import (
    Block,
    Cell,
    Chip,
    Fold,
    Hero,
    Mark,
    Numbers,
    Part,
    Row,
    Section,
    Sentences,
    drawing,
    table,
)

METRIC = (
    "Decode rate over tokens 1 to 100 of one stream after a prompt of exactly that many tokens, median of the content "
    "classes; no value is interpolated."
)


def context_hero(evidence: ContextEvidence, n: Numbers, why: Sequence[str]) -> Hero:
    """The rate at the longest context that is shown, or why there is none."""
    plan = evidence.start.plan
    what = f"MTP{plan.depth} · TP{plan.tensor_parallel} · {plan.lane}"
    gates: tuple[tuple[Part, ...], ...] = tuple(
        (
            Chip(gate.name, "good" if gate.passed else "bad"),
            n(f"gates.{at}.exact", gate.exact, 0),
            "/",
            n(f"gates.{at}.total", gate.total, 0),
            f" {gate.subject}",
        )
        for at, gate in enumerate(evidence.gates)
    )
    shown = [
        (at, point)
        for at, point in enumerate(evidence.points)
        if point.depth == plan.depth and not point.withheld and point.tok_s is not None
    ]
    if not why and evidence.kind == "probe":
        why = ["boundary probes compare answers and have no rate"]
    if not why and evidence.status not in ("passed", "withheld"):
        why = [f"the campaign is {evidence.status}: {evidence.conclusion}"]
    if not why and held(evidence):
        why = [f"the campaign is {held(evidence)} as a whole: {held_why(evidence)}"]
    if not why and not shown:
        why = [sentence for point in evidence.points for sentence in point.why][:4] or ["no context has a rate"]
    if why:
        return Hero(what, None, gates=gates, why_none=tuple(why), scope=evidence.scope)
    at, top = max(shown, key=lambda item: item[1].context)
    others = tuple(
        (f"{point.context} tokens", n(f"points.{place}.tok_s", point.tok_s))
        for place, point in shown
        if point is not top
    )
    return Hero(
        f"{what}, {top.context} tokens of context",
        n(f"points.{at}.tok_s", top.tok_s),
        unit="tokens/s",
        meaning=METRIC,
        servers=others,
        gates=gates,
        scope=evidence.scope,
    )


def context_sections(evidence: ContextEvidence, n: Numbers, mark: Mark, prefix: str) -> list[Section]:
    """Everything that the rows of a depth or probe campaign say."""
    found = [_points_section(evidence, n, mark, prefix)] if evidence.points else []
    found += [_probes_section(evidence, n)] if evidence.probes else []
    return [*found, *_rows_sections(evidence, n, mark, prefix)]


def drawn_points(evidence: ContextEvidence) -> list[Point]:
    """The points as a curve draws them: none is shown where the campaign is held back as a whole."""
    if not held(evidence):
        return evidence.points
    return [point.model_copy(update={"withheld": True}) for point in evidence.points]


def arms_of(points: Sequence[Point]) -> dict[str, list[tuple[int, float]]]:
    """Label → (context, tokens/s) of the points that may be shown; a withheld one is in the table and the scope."""
    arms: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        if point.tok_s is not None and not point.withheld:
            arms.setdefault(point.label.upper(), []).append((point.context, point.tok_s))
    return arms


def _points_section(evidence: ContextEvidence, n: Numbers, mark: Mark, prefix: str) -> Section:
    classes = list(dict.fromkeys(item.prompt_class for point in evidence.points for item in point.classes))
    rows, whole = [], held(evidence)
    for at, point in enumerate(evidence.points):
        path = f"points.{at}"
        places = {item.prompt_class: (place, item.tok_s) for place, item in enumerate(point.classes)}
        counts: Cell = "–"
        if point.exact is not None:
            counts = (n(f"{path}.exact", point.exact, 0), "/", n(f"{path}.total", point.total, 0))
        by_class: list[Cell] = [
            n(f"{path}.classes.{places[name][0]}.tok_s", places[name][1]) if name in places else "–" for name in classes
        ]
        cells: tuple[Cell, ...] = (
            n(f"{path}.context", point.context, 0),
            point.label,
            Chip("withheld" if point.withheld else whole, "bad") if point.withheld or whole else Chip("shown", "good"),
            n(f"{path}.tok_s", point.tok_s),
            counts,
            n(f"{path}.tok_s_burst_exact", point.tok_s_burst_exact),
            n(f"{path}.ttft_ms", point.ttft_ms, 1, "ms"),
            *by_class,
        )
        rows.append(Row(cells, "bad" if point.withheld or whole else "plain"))
    head = ("context", "server", "", "median", "equal", "burst-exact", "TTFT", *classes)
    svg = plots.depth_profile(arms_of(drawn_points(evidence)), prefix=f"{prefix}d")
    blocks: list[Block] = [
        Sentences((evidence.scope,), "bad" if any(point.withheld for point in drawn_points(evidence)) else "plain"),
        drawing("Rate over active context", svg, "A withheld context is not drawn; its rate stands above.", mark),
        table(head, rows, "tokens/s", left=(1, 2)),
    ]
    blocks += sentences([why for point in evidence.points for why in point.why], "bad", "reasons")
    return Section("context", "Rate over context", tuple(blocks), METRIC)


def _probes_section(evidence: ContextEvidence, n: Numbers) -> Section:
    rows = []
    for at, probe in enumerate(evidence.probes):
        said = {True: Chip("equal", "good"), False: Chip("differs", "bad"), None: Chip("oracle", "muted")}[probe.exact]
        where = "" if probe.divergence is None else probe.divergence.sentence()
        words = "; ".join(text for text in (where, *probe.problems, probe.degenerate or "") if text)
        tokens, asked = n(f"probes.{at}.tokens", probe.tokens, 0), n(f"probes.{at}.max_tokens", probe.max_tokens, 0)
        rows.append(
            Row((probe.what, probe.label, said, tokens, asked, words), "bad" if probe.exact is False else "plain")
        )
    head = ("probe", "server", "", "prompt tokens", "generated", "")
    lead = (
        "Prompts at the edges, where a strict suite is blind: K is the MTP depth, full is a context to the last token."
    )
    body: tuple[Block, ...] = (Sentences((evidence.scope,)), table(head, rows, left=(0, 1, 2, 5)))
    return Section("probes", "Boundary probes", body, lead)


def _rows_sections(evidence: ContextEvidence, n: Numbers, mark: Mark, prefix: str) -> list[Section]:
    attempts = [attempt for attempt in {item.label: item for item in evidence.attempts}.values() if attempt.rows]
    if not attempts:
        return []
    lines: list[Block] = [
        Fold(item.directory, (drawing("Arrivals", plots.timeline(item.rows, prefix=f"{prefix}t{at}"), "", mark),))
        for at, item in enumerate(attempts)
    ]
    paths = [
        {row.prompt_id: (f"attempts.{a.directory}.rows.{row.prompt_id}", row.ttft_ms) for row in a.rows}
        for a in attempts
    ]
    ttft = [
        Row((name, *(n(f"{found[name][0]}.ttft_ms", found[name][1], 1) if name in found else "–" for found in paths)))
        for name in dict.fromkeys(name for found in paths for name in found)
    ]
    head = ("prompt", *(item.directory for item in attempts))
    sections = [
        Section("arrivals", "When tokens arrived", tuple(lines)),
        Section("ttft", "Time to first token", (table(head, ttft, "milliseconds"),)),
    ]
    oracle = next((item for item in attempts if item.depth == 0), None)
    others = {item.directory: item.rows for item in attempts if item.depth}
    if oracle is not None and others:
        svg = plots.identity_map(oracle.rows, others, prefix=f"{prefix}i")
        figure = drawing(f"Where answers leave the oracle {oracle.directory}", svg, "", mark)
        missed = [
            f"{gate.name}, {gate.subject}: {item.sentence()}" for gate in evidence.gates for item in gate.divergences
        ]
        sections.append(
            Section("identity", "Are the answers the same?", (figure, *sentences(missed, "bad", "differences")))
        )
    return sections
