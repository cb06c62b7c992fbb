"""A strict campaign on the page: pairs, classes, prompts, arrivals, identity, drafts."""

from collections.abc import Sequence

from harness.evidence.schema import Attempt, Evidence
from harness.measure.rows import Row as Measured
from harness.publish import plots
from harness.publish.page_common import sentences
from harness.publish.page_view import (
    Block,
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
    share,
    table,
)

RATE = "tokens/s"
METRIC = (
    "Decode rate over tokens 1 to 100 of one stream, 99 / (o[99] − o[0]); median of each class's prompts, median of "
    "the six classes; center of two fresh servers."
)


def latest(evidence: Evidence) -> dict[str, Attempt]:
    """The attempt that counts for each label, as in the evidence: its last one."""
    return {attempt.label: attempt for attempt in evidence.attempts}


def strict_hero(evidence: Evidence, n: Numbers, why: Sequence[str]) -> Hero:
    """The center of the measured pair with both servers and their spread, or why there is none."""
    plan = evidence.start.plan
    what = f"MTP{plan.depth} · TP{plan.tensor_parallel} · {plan.lane}"
    gates: tuple[tuple[Part, ...], ...] = tuple(
        (Chip(gate.name, "good" if gate.passed else "bad"), n(f"gates.{at}.exact", gate.exact, 0), "/",
         n(f"gates.{at}.total", gate.total, 0), f" {gate.subject}")
        for at, gate in enumerate(evidence.gates)
    )  # fmt: skip
    pair = next((item for item in evidence.pairs if item.depth == plan.depth), None)
    if not why and (pair is None or pair.center is None):
        why = ["the measured pair has no center, because one of its servers has no median"]
    if why or pair is None:
        return Hero(what, None, gates=gates, why_none=tuple(why))
    path = f"pairs.{pair.name}"
    return Hero(
        what,
        n(f"{path}.center", pair.center),
        unit=RATE,
        meaning=METRIC,
        servers=(("server a", n(f"{path}.a", pair.a)), ("server b", n(f"{path}.b", pair.b))),
        spread=share(n, f"{path}.spread", pair.spread),
        gates=gates,
        caution=" ".join(pair.notes),
    )


def strict_sections(evidence: Evidence, n: Numbers, mark: Mark, prefix: str, why: Sequence[str]) -> list[Section]:
    """Everything that the rows of a strict campaign say. ``why``: why none of it may be published."""
    attempts = list(latest(evidence).values())
    return [
        _pairs_section(evidence, n, why),
        _classes_section(attempts, n),
        _prompts_section(attempts, n, mark, prefix),
        _timeline_section(attempts, mark, prefix),
        _ttft_section(attempts, n, mark, prefix),
        _identity_section(evidence, n, mark, prefix),
        _drafts_section(attempts, n),
    ]


def _pairs_section(evidence: Evidence, n: Numbers, why: Sequence[str]) -> Section:
    rows = []
    for pair in evidence.pairs:
        path = f"pairs.{pair.name}"
        rows.append(
            Row(
                (
                    pair.name.upper(),
                    n(f"{path}.center", pair.center),
                    n(f"{path}.a", pair.a),
                    n(f"{path}.b", pair.b),
                    share(n, f"{path}.spread", pair.spread),
                    n(f"{path}.burst_exact_center", pair.burst_exact_center),
                    n(f"{path}.ttft_a_ms", pair.ttft_a_ms, 1, "ms"),
                    n(f"{path}.ttft_b_ms", pair.ttft_b_ms, 1, "ms"),
                    share(n, f"{path}.acceptance_rate", pair.acceptance_rate, 1),
                    n(f"{path}.mean_acceptance_length", pair.mean_acceptance_length),
                )
            )
        )
    head = ("pair", "center", "server a", "server b", "spread", "burst-exact", "TTFT a", "TTFT b", "accepted", "length")
    blocks: list[Block] = [_withheld_note(evidence, why)] if evidence.withheld or why else []
    blocks.append(table(head, rows, f"{RATE} unless a unit stands beside the figure"))
    blocks += sentences([note for pair in evidence.pairs for note in pair.notes], "warn", "notes")
    lead = (
        "Each pair is two fresh servers of one configuration. Burst-exact is the same center without the tokens that "
        "the published definition drops where several arrive at once."
    )
    return Section("speed", "Speed of each pair", tuple(blocks), lead)


def _withheld_note(evidence: Evidence, why: Sequence[str]) -> Sentences:
    were = "simulated" if evidence.simulated else "measured"
    because = "; ".join(why) or f"the campaign is {evidence.status}"
    return Sentences((f"These speeds were {were} and are not to be published: {because}.",), "bad")


def _classes_section(attempts: Sequence[Attempt], n: Numbers) -> Section:
    classes = list(dict.fromkeys(row.prompt_class for item in attempts for row in item.rows))
    rows = [
        Row(
            (
                name,
                *(
                    n(f"attempts.{item.directory}.class_medians.{name}", item.class_medians.get(name))
                    for item in attempts
                ),
            )
        )
        for name in classes
    ]
    medians = (n(f"attempts.{item.directory}.class_balanced_median", item.class_balanced_median) for item in attempts)
    rows.append(Row(("class-balanced median", *medians)))
    head = ("class", *(item.directory for item in attempts))
    return Section("classes", "Rates by class", (table(head, rows, f"Median of each class, {RATE}"),))


def _by_prompt(attempts: Sequence[Attempt]) -> dict[str, tuple[str, list[Measured | None]]]:
    """Prompt id → (class, its row of each attempt), in the order sent."""
    found = [{row.prompt_id: row for row in item.rows} for item in attempts]
    named = {row.prompt_id: row.prompt_class for item in attempts for row in item.rows}
    return {name: (cls, [rows.get(name) for rows in found]) for name, cls in named.items()}


def _prompts_section(attempts: Sequence[Attempt], n: Numbers, mark: Mark, prefix: str) -> Section:
    rows, exact = [], []
    for name, (cls, measured) in _by_prompt(attempts).items():
        paths = [f"attempts.{item.directory}.rows.{name}" for item in attempts]
        rates = [None if row is None else row.tok_s_1_100 for row in measured]
        bursts = [None if row is None else row.tok_s_burst_exact for row in measured]
        whole = all(row is not None and row.complete for row in measured)
        tone = "plain" if whole else "bad"
        cells = (n(f"{path}.tok_s_1_100", rate) for path, rate in zip(paths, rates, strict=True))
        rows.append(Row((name, cls, *cells), "plain" if whole else "bad"))
        cells = (n(f"{path}.tok_s_burst_exact", rate) for path, rate in zip(paths, bursts, strict=True))
        exact.append(Row((name, cls, *cells), "plain" if tone == "plain" else "bad"))
    head = ("prompt", "class", *(item.directory for item in attempts))
    warnings = [
        f"{item.directory}, {row.prompt_id}: {text}" for item in attempts for row in item.rows for text in row.warnings
    ]
    broken = [
        f"{item.directory}, {row.prompt_id}: {row.reason}: {row.detail}"
        for item in attempts
        for row in item.rows
        if not row.complete
    ]
    blocks: list[Block] = [
        drawing("Rate of each prompt", plots.rates_by_prompt(attempts, prefix=f"{prefix}r"), "", mark)
    ]
    blocks += sentences(broken, "bad", "incomplete rows")
    blocks.append(table(head, rows, f"Tokens 1 to 100, {RATE}", left=(0, 1)))
    blocks.append(Fold("Burst-exact rate of each prompt", (table(head, exact, RATE, left=(0, 1)),)))
    if warnings:
        blocks.append(Fold(f"{len(warnings)} named warnings on rows", (Sentences(tuple(warnings), "warn"),)))
    return Section("prompts", "Rates by prompt", tuple(blocks))


def _timeline_section(attempts: Sequence[Attempt], mark: Mark, prefix: str) -> Section:
    blocks: list[Block] = []
    drawn = [item for item in attempts if item.rows]
    deepest = max((item.depth for item in drawn), default=0)
    shown = next((item for item in drawn if item.depth == deepest), None)
    for at, item in enumerate(drawn):
        figure = drawing(f"Arrivals on {item.directory}", plots.timeline(item.rows, prefix=f"{prefix}t{at}"), "", mark)
        per_chunk = "–" if item.ids_per_chunk is None else f"{item.ids_per_chunk:.2f}"
        words = f"{item.directory}: {per_chunk} ids a chunk"
        blocks.append(Fold(words, (figure,), open=item is shown))
    lead = (
        "Each mark is one chunk as it reached the client, by the kernel's clock; several ids in one chunk are a burst."
    )
    return Section("arrivals", "When tokens arrived", tuple(blocks) or (Sentences(("No row.",), "warn"),), lead)


def _ttft_section(attempts: Sequence[Attempt], n: Numbers, mark: Mark, prefix: str) -> Section:
    rows = []
    for name, (_, measured) in _by_prompt(attempts).items():
        cells = (
            n(f"attempts.{item.directory}.rows.{name}.ttft_ms", None if row is None else row.ttft_ms, 1)
            for item, row in zip(attempts, measured, strict=True)
        )
        rows.append(Row((name, *cells)))
    medians = (n(f"attempts.{item.directory}.median_ttft_ms", item.median_ttft_ms, 1) for item in attempts)
    rows.append(Row(("median", *medians)))
    head = ("prompt", *(item.directory for item in attempts))
    figure = drawing("Time to first token", plots.ttft(attempts, prefix=f"{prefix}f"), "", mark)
    return Section("ttft", "Time to first token", (figure, Fold("In figures", (table(head, rows, "milliseconds"),))))


def _identity_section(evidence: Evidence, n: Numbers, mark: Mark, prefix: str) -> Section:
    rows = []
    for at, gate in enumerate(evidence.gates):
        for place, item in enumerate(gate.divergences):
            path = f"gates.{at}.divergences.{place}"
            rows.append(
                Row(
                    (
                        gate.name,
                        gate.subject,
                        item.prompt_id,
                        n(f"{path}.first_divergence_token_zero_based", item.first_divergence_token_zero_based, 0),
                        n(f"{path}.left_id", item.left_id, 0),
                        n(f"{path}.right_id", item.right_id, 0),
                        n(f"{path}.left_length", item.left_length, 0),
                        n(f"{path}.right_length", item.right_length, 0),
                    ),
                    "bad",
                )
            )
    attempts = latest(evidence)
    oracle = attempts.get("mtp0-a")
    others = [item for label, item in attempts.items() if label != "mtp0-a" and item.rows]
    blocks: list[Block] = []
    if oracle is not None and oracle.rows and others:
        svg = plots.identity_map(oracle.rows, {item.directory: item.rows for item in others}, prefix=f"{prefix}i")
        blocks.append(drawing("Where answers leave the oracle mtp0-a", svg, "", mark))
    else:
        blocks.append(Sentences(("There are no two servers to compare.",), "warn"))
    if rows:
        head = ("gate", "compares", "prompt", "index", "left id", "right id", "left length", "right length")
        blocks.append(table(head, rows, "First unequal token, from 0", left=(0, 1, 2)))
        blocks.append(Sentences(("bench explain says by what margin the model chose otherwise.",), "muted"))
    elif evidence.gates and all(gate.passed for gate in evidence.gates):
        blocks.append(Sentences(("Every compared array is equal to the last id.",), "good"))
    blocks += _once_more(evidence.attempts)
    lead = "Whole arrays of token ids, prompt by prompt. After the first difference nothing is comparable."
    return Section("identity", "Are the answers the same?", tuple(blocks), lead)


def _once_more(attempts: Sequence[Attempt]) -> tuple[Block, ...]:
    """What --stream-canary asked, where it was given."""
    asked = [(item.directory, item.stream_canary) for item in attempts if item.stream_canary is not None]
    wrong = [f"{name}: {canary.prompt_id}" for name, canary in asked if not canary.exact]
    if not asked:
        return ()
    prompts = ", ".join(dict.fromkeys(canary.prompt_id for _, canary in asked))
    said = f"Each server was asked one prompt once more and not as a stream ({prompts})"
    if wrong:
        return (Sentences((f"{said}; the answer was another one than its stream on {'; '.join(wrong)}.",), "bad"),)
    return (Sentences((f"{said}: the same ids as in its stream.",), "good"),)


def _drafts_section(attempts: Sequence[Attempt], n: Numbers) -> Section:
    rows = []
    for item in attempts:
        found, path = item.acceptance, f"attempts.{item.directory}.acceptance"
        if found is None:
            continue
        positions: list[Part] = []
        for at, value in enumerate(found.per_position):
            positions += [*([" "] if at else []), share(n, f"{path}.per_position.{at}", value, 1)]
        rows.append(
            Row(
                (
                    item.directory,
                    n(f"{path}.drafts", found.drafts, 0),
                    share(n, f"{path}.rate", found.rate, 1),
                    n(f"{path}.mean_acceptance_length", found.mean_acceptance_length),
                    tuple(positions) or "–",
                )
            )
        )
    if not rows:
        said = "No draft was made: every server ran without speculation, or its counters could not be read."
        return Section("drafts", "Speculation", (Sentences((said,), "muted"),))
    head = ("server", "drafts", "accepted", "mean length", "accepted at position 1, 2, …")
    lead = "Mean length = 1 + accepted / drafts: the tokens one step of the model brought."
    return Section("drafts", "Speculation", (table(head, rows, left=(0, 4)),), lead)
