"""A concurrency ladder on the page: rungs, what is withheld and why, sites, the oracle's own tie to MTP0."""

import statistics
from collections.abc import Sequence

from harness.evidence.ladder_schema import LadderAttempt, LadderEvidence
from harness.evidence.looks import look_notes, looked
from harness.measure.ladder import Rung
from harness.publish import plots
from harness.publish.compare_held import held, held_why
from harness.publish.page_common import sentences
from harness.publish.page_view import (
    Block,
    Cell,
    Chip,
    Facts,
    Fold,
    Hero,
    Mark,
    Numbers,
    Part,
    Row,
    Section,
    Sentences,
    drawing,
    share,
    table,
)

RATE = "tokens/s, all users together"
METRIC = (
    "Sum of all completion tokens over the time from the barrier to the last byte, prefill and ramp included; median "
    "of passes 2 and later."
)
EXACT = "Exact in every pass:"
"""What a scope says of the rungs without a miss"""
HELD = {"withheld": "withheld", "rejected": "rejected", "no verdict": "without a verdict"}
MANY_SITES = 24
MANY_PASSES = 6
"""whose rates still fit beside the number"""


def ladder_name(evidence: LadderEvidence) -> str:
    """The configuration in a few words."""
    plan = evidence.start.plan
    return f"MTP{plan.depth} · TP{plan.tensor_parallel} · {plan.lane}"


def ladder_hero(evidence: LadderEvidence, n: Numbers, why: Sequence[str]) -> Hero:
    """The rate of the largest rung that was exact in every pass, or why there is none."""
    shown = [rung for rung in evidence.rungs if not rung.withheld and rung.tok_s is not None]
    if not why and evidence.status not in ("passed", "withheld"):
        why = [f"the ladder is {evidence.status}: {evidence.conclusion}"]
    if not why and held(evidence):
        why = [f"the ladder is {held(evidence)} as a whole: {held_why(evidence)}"]
    if not why and not shown:
        why = [sentence for rung in evidence.rungs for sentence in rung.why][:4] or ["no rung has a published rate"]
    gates: list[tuple[Part, ...]] = []
    for at, gate in enumerate(evidence.gates):
        counts = (n(f"gates.{at}.exact", gate.exact, 0), "/", n(f"gates.{at}.total", gate.total, 0))
        gates.append((Chip(gate.name, "good" if gate.passed else "bad"), *counts, f" {gate.subject}"))
    if why:
        return Hero(ladder_name(evidence), None, gates=tuple(gates), why_none=tuple(why), scope=scope_words(evidence))
    top = shown[-1]
    path = f"rungs.c{top.rung}"
    exact: tuple[Part, ...] = (
        Chip("exact", "good"),
        n(f"{path}.exact", top.exact, 0),
        "/",
        n(f"{path}.total", top.total, 0),
        " answers, divergence below ",
        share(n, f"{path}.divergence_bound", top.divergence_bound, 3),
        " at 95 %",
    )
    passes = [value for value in top.tok_s_per_pass[1:] if value is not None]
    servers = tuple(
        (f"pass {at}", n(f"{path}.tok_s_per_pass.{at - 1}", value, 1))
        for at, value in enumerate(top.tok_s_per_pass, 1)
        if at > 1
    )
    return Hero(
        f"{ladder_name(evidence)}, {top.rung} users at once",
        n(f"{path}.tok_s", top.tok_s, 1),
        unit="tokens/s together",
        meaning=METRIC,
        servers=servers if len(passes) <= MANY_PASSES else (),
        gates=(exact, *gates),
        scope=evidence.scope,
    )


def ladder_sections(evidence: LadderEvidence, n: Numbers, mark: Mark, prefix: str) -> list[Section]:
    """Everything that the batches of a ladder say."""
    return [
        _rungs_section(evidence, n, mark, prefix),
        _passes_section(evidence, n),
        _sites_section(evidence, n),
        _oracle_section(evidence, n),
        _ttft_section(evidence, n, mark, prefix),
        _client_section(evidence, n),
    ]


def drawn_rungs(evidence: LadderEvidence) -> list[Rung]:
    """The rungs as a curve draws them: all of them hollow where the ladder is held back as a whole."""
    if not held(evidence):
        return evidence.rungs
    return [rung.model_copy(update={"withheld": True}) for rung in evidence.rungs]


def scope_words(evidence: LadderEvidence) -> str:
    """The scope; of a ladder that is held back as a whole it says so before it names any rung."""
    word = held(evidence)
    if not word:
        return evidence.scope
    said = evidence.scope.replace(EXACT, "Equal to their own oracle in every pass, and not to be shown:")
    return f"No rung may be shown, because the whole ladder is {HELD[word]}: {held_why(evidence)}. {said}"


def _shown(evidence: LadderEvidence, rung: Rung) -> tuple[Part, ...]:
    if rung.withheld:
        return (Chip("withheld", "bad"),)
    return (Chip(held(evidence), "bad") if held(evidence) else Chip("shown", "good"),)


def _rungs_section(evidence: LadderEvidence, n: Numbers, mark: Mark, prefix: str) -> Section:
    rows, whole = [], held(evidence)
    any_look = any(looked(evidence.attempts, rung.rung) for rung in evidence.rungs)
    for rung in evidence.rungs:
        path = f"rungs.c{rung.rung}"
        graphs = {True: "captured", False: "not captured", None: "–"}[rung.captured]
        minority: Cell = share(n, f"{path}.minority_share", rung.minority_share)
        seen = looked(evidence.attempts, rung.rung)
        at_once: Cell = "–" if seen is None else n(f"{seen[0]}.peak", seen[1].peak, 0)
        rows.append(
            Row(
                (
                    f"c{rung.rung}",
                    _shown(evidence, rung),
                    n(f"{path}.tok_s", rung.tok_s, 1),
                    (n(f"{path}.exact", rung.exact, 0), "/", n(f"{path}.total", rung.total, 0)),
                    share(n, f"{path}.divergence_bound", rung.divergence_bound, 3),
                    n(f"{path}.steady_tok_s", rung.steady_tok_s, 1),
                    n(f"{path}.warm_up_tok_s", rung.warm_up_tok_s, 1),
                    minority,
                    graphs,
                    *((at_once,) if any_look else ()),
                ),
                "bad" if rung.withheld or whole else "plain",
            )
        )
    head: tuple[str, ...] = ("users", "", "rate", "equal", "bound 95 %", "steady", "warm-up", "min%", "graphs")
    head += ("ran at once",) if any_look else ()
    svg = plots.ladder_curve({ladder_name(evidence): drawn_rungs(evidence)}, prefix=f"{prefix}l")
    hollow = "A hollow point is withheld: an answer of that rung left its oracle, or the client was in the way."
    if whole:
        hollow = f"Every point is hollow, because the whole ladder is {HELD[whole]}."
    blocks: list[Block] = [
        Sentences((scope_words(evidence),), "bad" if any(rung.withheld for rung in drawn_rungs(evidence)) else "plain"),
        drawing("Rate against users", svg, hollow, mark),
        table(head, rows, RATE, left=(0, 1, 8)),
    ]
    blocks += sentences([why for rung in evidence.rungs for why in rung.why], "bad", "reasons")
    blocks += sentences(look_notes(evidence.attempts), "warn", "notes")
    return Section("rungs", "Users at once", tuple(blocks), METRIC)


def _passes_section(evidence: LadderEvidence, n: Numbers) -> Section:
    count = max((rung.passes for rung in evidence.rungs), default=0)
    rates, exact = [], []
    for rung in evidence.rungs:
        path = f"rungs.c{rung.rung}"
        missing = count - rung.passes
        cells: list[Cell] = [n(f"{path}.tok_s_per_pass.{at}", value, 1) for at, value in enumerate(rung.tok_s_per_pass)]
        rates.append(Row((f"c{rung.rung}", *cells, *["–"] * missing)))
        cells = [n(f"{path}.exact_per_pass.{at}", value, 0) for at, value in enumerate(rung.exact_per_pass)]
        exact.append(Row((f"c{rung.rung}", *cells, *["–"] * missing)))
    head = ("users", *("1, warm-up" if at == 1 else str(at) for at in range(1, count + 1)))
    blocks: tuple[Block, ...] = (
        Fold("Rate of each pass", (table(head, rates, RATE),)),
        Fold("Equal answers of each pass", (table(head, exact, "requests equal to every oracle"),)),
    )
    done = f"{evidence.passes_done} whole passes; pass 1 warms up and stands in no published rate."
    return Section("passes", "Pass by pass", blocks, done)


def _sites_section(evidence: LadderEvidence, n: Numbers) -> Section:
    rows = []
    for rung in evidence.rungs:
        for at, site in enumerate(rung.sites):
            path = f"rungs.c{rung.rung}.sites.{at}"
            ids = (n(f"{path}.oracle_id", site.oracle_id, 0), n(f"{path}.other_id", site.other_id, 0))
            cells = (n(f"{path}.index", site.index, 0), *ids, n(f"{path}.times", site.times, 0))
            rows.append(Row((f"c{rung.rung}", site.slot, *cells), "bad"))
    if not rows:
        return Section("sites", "Where answers differ", (Sentences(("Nowhere: no answer left its oracle.",), "good"),))
    head = ("users", "slot", "index", "oracle's id", "other id", "times")
    blocks: list[Block] = [table(head, rows[:MANY_SITES], "First unequal token, from 0", left=(0, 1))]
    if len(rows) > MANY_SITES:
        more = table(head, rows[MANY_SITES:], left=(0, 1))
        blocks.append(Fold(f"{len(rows) - MANY_SITES} more sites", (more,)))
    return Section("sites", "Where answers differ", tuple(blocks))


def _oracle_section(evidence: LadderEvidence, n: Numbers) -> Section:
    facts = evidence.oracle
    source = {
        "own": "the ladder runs at MTP0 and is its own oracle",
        "server": "a fresh MTP0 server of this campaign",
        "evidence": f"an earlier campaign{': ' + facts.campaign_id if facts.campaign_id else ''}",
    }[facts.source]
    items: list[tuple[str, Cell]] = [("MTP0 answers from", source)]
    if facts.exact is not None and facts.total is not None:
        items.append(
            (
                "sequential answers equal to MTP0's",
                (n("oracle.exact", facts.exact, 0), "/", n("oracle.total", facts.total, 0)),
            )
        )
    problems = [
        f"{item.directory}, alone: {text}"
        for item in evidence.attempts
        if item.sequential is not None
        for text in (*item.sequential.problems, *item.sequential.warnings)
    ]
    rows = [
        Row(
            (
                item.directory,
                n(f"attempts.{item.directory}.sequential.answered", item.sequential.answered, 0),
                n(f"attempts.{item.directory}.sequential.slots", item.sequential.slots, 0),
                n(f"attempts.{item.directory}.pulses", item.pulses, 0),
            )
        )
        for item in evidence.attempts
        if item.sequential is not None
    ]
    blocks: list[Block] = [Facts(tuple(items))]
    if rows:
        blocks.append(table(("server", "answered alone", "slots", "short canaries right"), rows))
    blocks += sentences(problems, "warn", "remarks")
    lead = "Every slot is first asked alone; what it answers in company must be the same."
    return Section("oracle", "The oracle", tuple(blocks), lead)


def median_ttft_ms(attempts: Sequence[LadderAttempt], rung: int) -> float | None:
    """Median TTFT of a rung's requests over passes 2 and later, milliseconds; None without any."""
    found = [
        request.ttft_ms
        for attempt in attempts
        for batch in attempt.batches
        if batch.rung == rung and batch.number >= 2
        for request in batch.requests
        if request.ttft_ms is not None
    ]
    return statistics.median(found) if found else None


def _ttft_section(evidence: LadderEvidence, n: Numbers, mark: Mark, prefix: str) -> Section:
    rows = [
        Row((f"c{rung.rung}", n(f"derived.c{rung.rung}.ttft_ms", median_ttft_ms(evidence.attempts, rung.rung), 1)))
        for rung in evidence.rungs
    ]
    lead = "Median over the requests of passes 2 and later, after each request's own release."
    batches = [batch for attempt in evidence.attempts for batch in attempt.batches]
    figure = drawing("Of each request", plots.arrivals_of_rungs(batches, prefix=f"{prefix}f"), "", mark)
    return Section("ttft", "Time to first token", (figure, table(("users", "TTFT, ms"), rows)), lead)


def _client_section(evidence: LadderEvidence, n: Numbers) -> Section:
    rows = []
    for item in evidence.attempts:
        for at, client in enumerate(item.clients):
            path = f"attempts.{item.directory}.clients.{at}"
            rows.append(
                Row(
                    (
                        item.directory,
                        f"c{client.rung}",
                        n(f"{path}.reads", client.reads, 0),
                        n(f"{path}.lag_p99_us", client.lag_p99_us, 0, "µs"),
                        n(f"{path}.median_gap_ms", client.median_gap_ms, 2, "ms"),
                        share(n, f"{path}.cpu_share", client.cpu_share, 1),
                    ),
                    "bad" if client.failures else "plain",
                )
            )
    head = ("server", "users", "reads", "lag p99", "median gap", "CPU of a core")
    lead = "A rung is withheld where the lag exceeds a tenth of the gap between chunks, or the client a core's 80 %."
    body: tuple[Block, ...] = (table(head, rows, left=(0, 1)),) if rows else (Sentences(("Not recorded.",), "warn"),)
    return Section("rung-clients", "Was the client in the way?", body, lead)
