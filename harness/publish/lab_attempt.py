"""A strict attempt of the lab: performance.json (or an extract of it), campaign-identity, canaries, comparisons.

Rows are re-derived from their chunk times and ids; what the files say of them stands beside and is compared.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.evidence.imported import Basis, Figure, ImportedGate, ImportedRow, ImportedServer
from harness.measure import rates
from harness.measure.gates import CAP, MIN_CLASSES, degeneration
from harness.measure.identity import MIN_IDS, Divergence, divergence
from harness.measure.rows import BURST_DIFFERENCE
from harness.plan import canonical_json
from harness.publish.lab_draft import Draft, claimed, label_of
from harness.publish.lab_read import Document, boolean, get, integer, items, mapping, number, text
from harness.publish.lab_result import CLASS_BALANCED
from harness.suites import CLASS_BY_ID

MAX_IDS = 100_000
"""ids of one row that are believed"""
PUBLISHED = ("tok_s_1_100_intervals_after_ttft",)
LEGACY = ("tok_s_1_100_after_ttft_legacy_inclusive_events", "tok_s_1_100_after_ttft")


def read_performance(doc: Document, draft: Draft) -> None:
    """One server: its rows re-derived, its medians re-derived as far as all their rows are here."""
    data = doc.data
    run = mapping(get(data, "run")) or mapping(data)
    model = text(run.get("model"))
    label, depth = label_of(model, text(get(data, "extract_of")), doc.name) or (doc.name, None)
    speculative = integer(get(run, "speculative", "num_speculative_tokens"))
    if depth is not None and speculative is not None and speculative != depth:
        draft.stale(doc.name, "run.speculative.num_speculative_tokens", f"is {speculative} on a server called {label}")
    draft.model.setdefault("served_as", model or None)
    draft.image_id = draft.image_id or text(run.get("image")) or None
    host = mapping(run.get("measuring_host"))
    if cpu := text(host.get("cpu")):
        draft.hosts.append(cpu)
    if name := text(host.get("hostname")):
        draft.host_names.add(name)
    summary = mapping(get(data, "published_summary")) or mapping(get(data, "summary"))
    balanced = mapping(summary.get(CLASS_BALANCED))
    rows = [found for at, row in enumerate(items(get(data, "rows"))) if (found := _row(doc, draft, label, at, row))]
    draft.rows += rows
    server = _server(doc, draft, label, depth, summary, balanced, rows)
    draft.servers[label] = server
    _whole_run(doc, draft, label, data, run, rows)


def _chunks(row: Any) -> list[tuple[float, int]]:
    """(seconds, ids) of each chunk: run-length coded, or one offset an id."""
    coded = items(get(row, "token_chunks_first_100"))
    pairs = [(number(pair[0]), integer(pair[1])) for pair in coded if isinstance(pair, list) and len(pair) == 2]
    if not coded:
        pairs = [(number(offset), 1) for offset in items(get(row, "token_id_offsets_s"))]
    found: list[tuple[float, int]] = []
    for time, size in pairs:
        if time is None or size is None or not 0 < size <= MAX_IDS or (found and time < found[-1][0]):
            return []
        found.append((time, size))
    return found


def _row(doc: Document, draft: Draft, label: str, at: int, row: Any) -> ImportedRow | None:
    prompt = text(get(row, "prompt_id"))
    chunks = _chunks(row)
    if not prompt:
        draft.problems.append(f"{doc.name}: rows[{at}] has no prompt_id, so it is left out")
        return None
    if sum(size for _, size in chunks) > MAX_IDS:
        draft.problems.append(f"{doc.name}: {prompt} claims more ids than a row can have, so it is left out")
        return None
    where = f"{doc.name}: {prompt}"
    offsets = [time for time, size in chunks for _ in range(size)]
    published, exact = rates.tok_s_1_100(offsets), rates.tok_s_burst_exact(chunks)
    first = rates.ttft(offsets)
    warnings = _row_warnings(published, exact, chunks)
    if not chunks:
        draft.problems.append(f"{where} has no usable times, so its rate can't be derived")
    end, tokens = number(get(row, "elapsed_s")), integer(get(row, "completion_tokens"))
    checks: list[tuple[tuple[str, ...], float | None]] = [
        (PUBLISHED, published),
        (LEGACY, rates.tok_s_1_100_after_ttft(offsets)),
        (("ttft_s",), first),
    ]
    if end is not None:
        checks.append((("tok_s_after_ttft_full",), rates.tok_s_after_ttft_full(tokens, first, end)))
        checks.append((("tok_s_wall_full",), rates.tok_s_wall_full(tokens, 0.0, end)))
    for names, ours in checks:
        for name in names:
            theirs = number(get(row, name))
            if ours is not None and theirs is not None and abs(ours - theirs) > 1e-9 * abs(ours):
                draft.stale(doc.name, f"rows[{at}].{name}", f"is {theirs!r} where the row's own times give {ours!r}")
                draft.problems.append(f"{where}: {name} is claimed as {theirs!r} and its times give {ours!r}")
    reasons = items(get(row, "finish_reasons"))
    return ImportedRow(
        server=label,
        file=doc.name,
        prompt_id=prompt,
        prompt_class=text(get(row, "prompt_class")) or CLASS_BY_ID.get(prompt, ""),
        prompt_tokens=integer(get(row, "prompt_tokens")),
        completion_tokens=tokens,
        cached_tokens=integer(get(row, "cached_tokens")),
        finish_reason=text(reasons[0]) if reasons else text(get(row, "finish_reason")) or None,
        ttft_ms=None if first is None else first * 1e3,
        tok_s_1_100=_figure(published, doc, f"rows[{at}] times", number(get(row, PUBLISHED[0]))),
        tok_s_burst_exact=exact,
        ids_sha256=_ids(where, draft, label, prompt, row, tokens),
        warnings=warnings,
    )


def _figure(value: float | None, doc: Document, field: str, said: float | None) -> Figure | None:
    return (
        None if value is None else Figure(value=value, basis=Basis.REDERIVED, file=doc.name, field=field, claimed=said)
    )


def _row_warnings(published: float | None, exact: float | None, chunks: Sequence[tuple[float, int]]) -> list[str]:
    if published is None or exact is None:
        return ["no-rate: fewer than 100 ids with times"]
    warnings = []
    if abs(published / exact - 1) > BURST_DIFFERENCE:
        difference = f"{100 * (published / exact - 1):+.1f} %"
        warnings.append(f"burst-difference: published {published:.2f} is {difference} beside burst-exact {exact:.2f}")
    if len(chunks) > 2 and chunks[1][0] - chunks[0][0] < (chunks[-1][0] - chunks[0][0]) / (len(chunks) - 1) / 2:
        warnings.append("merged-first-read: the second chunk came with the first, so the window may be a step short")
    return warnings


def _ids(where: str, draft: Draft, label: str, prompt: str, row: Any, tokens: int | None) -> str | None:
    ids = items(get(row, "token_ids"))
    if not ids:
        return None
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in ids):
        draft.problems.append(f"{where}: token_ids holds something that is no id")
        return None
    if tokens is not None and len(ids) != tokens:
        draft.problems.append(f"{where}: {len(ids)} ids where usage counts {tokens}, so the answer isn't complete")
        return None
    if bad := degeneration(ids):
        draft.problems.append(f"{where} {bad}: degenerate output")
    draft.ids.setdefault(label, {})[prompt] = list(ids)
    found = hashlib.sha256(canonical_json(ids).encode()).hexdigest()
    said = text(get(row, "token_ids_sha256"))
    if said and said != found:
        draft.problems.append(f"{where}: token_ids_sha256 isn't that of token_ids")
    return found


def _server(
    doc: Document,
    draft: Draft,
    label: str,
    depth: int | None,
    summary: Any,
    balanced: Any,
    rows: Sequence[ImportedRow],
) -> ImportedServer:
    said = mapping(balanced.get("class_medians"))
    # Which rows make a class whole is the suite's to say: a file's own count would let any part of it pass as all.
    classes = dict.fromkeys(draft.prompts.values())
    by_class = {name: [row for row in rows if row.prompt_class == name] for name in dict.fromkeys([*classes, *said])}
    complete = {name for name in classes if _is_whole(by_class[name], draft.prompts, name)}
    if missing := [name for name in classes if name not in complete]:
        draft.unknown.append(
            f"{doc.name}: the rows of {', '.join(missing)} are not each prompt of the suite once, so what they give "
            "together can't be derived again"
        )
    medians: dict[str, Figure] = {}
    for name, of_class in by_class.items():
        values = [row.tok_s_1_100.value for row in of_class if row.tok_s_1_100 is not None]
        theirs = number(said.get(name))
        if name in complete and len(values) == len(of_class):
            middle = rates.median(values)
            if middle is not None:
                medians[name] = Figure(
                    value=middle,
                    basis=Basis.REDERIVED,
                    file=doc.name,
                    field=f"{len(values)} rows of class {name}",
                    claimed=theirs,
                )
                if theirs is not None and abs(middle - theirs) > 1e-9 * middle:
                    draft.problems.append(
                        f"{doc.name}: class {name} is claimed as {theirs!r} and its rows give {middle!r}"
                    )
        elif (figure := claimed(theirs, doc.name, f"class_medians.{name}")) is not None:
            medians[name] = figure
    middle, theirs = (
        rates.class_balanced_median({k: v.value for k, v in medians.items()}),
        number(balanced.get("median")),
    )
    whole = classes.keys() <= medians.keys() and all(item.basis is Basis.REDERIVED for item in medians.values())
    whole = whole and _once_each(rows, draft.prompts)
    best = None
    if middle is not None and len(medians) >= MIN_CLASSES:
        if theirs is not None and abs(middle - theirs) > 1e-9 * middle:
            draft.problems.append(
                f"{doc.name}: the class-balanced median is claimed as {theirs!r}, its classes give {middle!r}"
            )
        basis = Basis.REDERIVED if whole else Basis.CLAIMED
        best = Figure(value=middle, basis=basis, file=doc.name, field="median of the class medians", claimed=theirs)
    else:
        best = claimed(theirs, doc.name, f"{CLASS_BALANCED}.median")
    ttfts = [row.ttft_ms for row in rows]
    ours = rates.median_ttft_ms(ttfts) if whole else None
    said_ttft = claimed(mapping(summary.get("ttft_ms")).get("median"), doc.name, "ttft_ms.median")
    if ours is not None:
        claim = None if said_ttft is None else said_ttft.value
        said_ttft = Figure(
            value=ours, basis=Basis.REDERIVED, file=doc.name, field=f"{len(rows)} rows' first ids", claimed=claim
        )
    return ImportedServer(
        label=label,
        depth=depth,
        tensor_parallel=None,
        class_balanced_median=best,
        ttft_ms=said_ttft,
        class_medians=medians,
        rows=len(rows),
    )


def _is_whole(rows: Sequence[ImportedRow], prompts: Mapping[str, str], name: str) -> bool:
    """Whether these are the suite's prompts of one class, each once."""
    return sorted(row.prompt_id for row in rows) == sorted(prompt for prompt in prompts if prompts[prompt] == name)


def _once_each(rows: Sequence[ImportedRow], prompts: Mapping[str, str]) -> bool:
    """Whether these are all of the suite's prompts, each once."""
    return sorted(row.prompt_id for row in rows) == sorted(prompts)


def _whole_run(doc: Document, draft: Draft, label: str, data: Any, run: Any, found: Sequence[ImportedRow]) -> None:
    """What is claimed of all rows, of which the file may hold some."""
    rows = len(found)
    every = mapping(get(data, "all_rows"))
    cached = items(every.get("cached_tokens")) or [get(row, "cached_tokens") for row in items(get(data, "rows"))]
    if cached:
        zero = sum(integer(value) == 0 for value in cached)
        whole = len(cached) == rows and _once_each(found, draft.prompts)
        basis = Basis.REDERIVED if whole else Basis.CLAIMED
        draft.gates.append(
            ImportedGate(
                name="cache-zero", subject=label, basis=basis, exact=zero, total=len(cached), passed=zero == len(cached)
            )
        )
    reasons = [reason for value in items(every.get("finish_reasons")) for reason in items(value)]
    capped = reasons.count("length")
    if boolean(run.get("require_natural_eos")) and capped:
        draft.stale(
            doc.name, "run.require_natural_eos", f"is true where {capped} of {len(reasons)} rows ended at the cap"
        )
    cap = integer(run.get("max_tokens"))
    if cap is not None and cap != CAP:
        draft.problems.append(
            f"{doc.name}: max_tokens was {cap} where the strict suite asks for {CAP}: a screening run"
        )
    counts = items(every.get("stream_token_id_counts"))
    if counts and len(counts) > rows:
        draft.unknown.append(f"{doc.name}: {rows} of {len(counts)} rows are here; the others can't be derived again")
    prompts = [text(value) for value in items(every.get("prompt_sha256s"))]
    if twice := [value for value, count in Counter(prompts).items() if count > 1]:
        draft.problems.append(f"{doc.name}: {len(twice)} prompts were sent more than once")


def identity_between(draft: Draft) -> None:
    """G1, G2 and G3 from complete arrays, for every two servers of the import that have them.

    All prompts of both servers must be there; where only some are, equal ones are said beside the claim, which stays,
    and a difference fails the gate anyway.
    """
    names = sorted(draft.ids)
    for at, a in enumerate(names):
        for b in names[at + 1 :]:
            _between(draft, a, b)


def _between(draft: Draft, a: str, b: str) -> None:
    known = [label_of(a), label_of(b)]
    common = sorted(draft.ids[a].keys() & draft.ids[b].keys())
    if known[0] is None or known[1] is None or not common:
        return
    gate, left, right = gate_name(a, b, (known[0][1], known[1][1]))
    subject = f"{left} vs {right}"
    olds = [item for item in draft.gates if (item.name, item.subject) == (gate, subject)]
    sides = [[row for row in draft.rows if row.server == name] for name in (a, b)]
    prompts = {row.prompt_id for side in sides for row in side}
    total = max([len(prompts), len(draft.prompts), *(old.total or 0 for old in olds)])
    whole = len(common) == total and all(_once_each(side, draft.prompts) for side in sides)
    found: list[Divergence] = []
    for prompt in common:
        if (site := divergence(prompt, draft.ids[left][prompt], draft.ids[right][prompt])) is not None:
            found.append(site)
    short = [p for p in common if min(len(draft.ids[a][p]), len(draft.ids[b][p])) < MIN_IDS]
    exact = len(common) - len({site.prompt_id for site in found} | set(short))
    if not whole and not found:
        more = "" if len(common) < total else "; the rows are not each prompt of the suite once"
        draft.unknown.append(
            f"{gate} {subject}: {len(common)} of {total} pairs of arrays are here, {exact} are equal{more}"
        )
        return
    for old in olds:
        if old.exact is not None and (old.exact, old.total) != (exact, total):
            draft.problems.append(
                f"{gate} {subject} is claimed as {old.exact}/{old.total}, the ids give {exact}/{total}"
            )
        draft.gates.remove(old)
    draft.gates.append(
        ImportedGate(
            name=gate,
            subject=subject,
            basis=Basis.REDERIVED,
            exact=exact,
            total=total,
            passed=exact == total,
            divergences=found,
        )
    )


def gate_name(a: str, b: str, depths: tuple[int, int]) -> tuple[str, str, str]:
    """(gate, left, right) of two servers: the oracle stands on the right."""
    if depths[0] == depths[1]:
        return ("G1" if depths[0] == 0 else "G2", min(a, b), max(a, b))
    return ("G3", a, b) if depths[1] == 0 else ("G3", b, a)
