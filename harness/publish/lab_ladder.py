"""Ladders of the lab: the extract of published rungs, and a ladder.json with its batches and rows."""

import re
from typing import Any

from harness.evidence.imported import Basis, Figure, ImportedLadder, ImportedRung, ImportedServer
from harness.measure import rates
from harness.measure.intervals import divergence_upper_bound
from harness.publish.lab_draft import Draft, count_of
from harness.publish.lab_read import Document, boolean, digits, get, integer, items, mapping, number, text

_ARM = re.compile(r"tp(\d)_(?:mtp|depth)(\d{1,3})")
_COUNTED = re.compile(r"\bc(\d{1,6}) (\d{1,7})/(\d{1,7})\b")
_CALLED = re.compile(r"(?<![\w-])exact\b", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:not|never|no|nothing|none|nor|isn|aren|wasn|weren|un)\b|\binexact|\bnon-?exact", re.IGNORECASE
)
"""A part that also denies exactness calls nothing exact"""
_EXACT = re.compile(r"\bc(\d{1,6})(?:-c?(\d{1,6}))?")


def read_rungs(doc: Document, draft: Draft) -> None:
    """An extract of published rungs: rates, and exactness as far as a word or a count says it."""
    for name, block in mapping(doc.data).items():
        columns = [text(column) for column in items(get(block, "columns"))]
        if columns:
            _matrix(doc, draft, name, columns, items(get(block, "rows")))
            continue
        for arm, part in mapping(block).items():
            found = _ARM.fullmatch(arm)
            if found is not None and mapping(get(part, "tok_s")):
                _arm(doc, draft, f"{name} {arm}", int(found[2]), int(found[1]), part, classpad=_classpad(doc, name))
            elif arm.startswith("strict_tp"):
                _strict(doc, draft, name, arm, part)
            elif arm.startswith("stagger"):
                _stagger(doc, draft, name, arm, part)


def _classpad(doc: Document, name: str) -> bool | None:
    said = text(get(doc.data, "sources", name))
    return True if "CLASSPAD=1" in said else False if "CLASSPAD absent" in said or "CLASSPAD=0" in said else None


def _matrix(doc: Document, draft: Draft, name: str, columns: list[str], rows: Any) -> None:
    for at, column in enumerate(columns):
        found = _ARM.fullmatch(column)
        if found is None:
            continue
        rungs = [
            ImportedRung(
                rung=rung,
                tok_s=number(row[at]),
                exact=None,
                total=None,
                withheld=None,
                note="the file doesn't say whether it was exact",
            )
            for row in rows
            if isinstance(row, list)
            and len(row) == len(columns)
            and (rung := integer(row[0]))
            and number(row[at]) is not None
        ]
        draft.ladders.append(
            ImportedLadder(
                label=f"{name} {column}",
                depth=int(found[2]),
                tensor_parallel=int(found[1]),
                classpad=_classpad(doc, name),
                stagger_ms=None,
                rungs=rungs,
                file=doc.name,
            )
        )
    draft.unknown.append(f"{doc.name}: {name} has rates and no exactness, so none of its rungs can be shown as exact")


def _arm(doc: Document, draft: Draft, label: str, depth: int, tp: int, part: Any, *, classpad: bool | None) -> None:
    said = text(get(part, "identity"))
    counted = {int(c): (int(n), int(m)) for c, n, m in _COUNTED.findall(said) if int(n) <= int(m) and int(m)}
    shares = _by_rung(get(part, "divergence_pct"))
    known = _by_rung(get(part, "tok_s"))
    exact = _exact_rungs(said, sorted(known))
    rungs = []
    for rung, value in sorted(known.items()):
        counts, share = counted.get(rung), shares.get(rung)
        withheld: bool | None = None
        note = "the file doesn't say whether it was exact"
        if counts is not None:
            withheld, note = counts[0] < counts[1], ""
        elif share is not None:
            withheld, note = share > 0, f"{share:g} % divergent, count not in the file"
        elif rung in exact:
            withheld, note = False, "called exact, count not in the file"
        rungs.append(
            ImportedRung(
                rung=rung,
                tok_s=value,
                exact=counts[0] if counts else None,
                total=counts[1] if counts else None,
                withheld=withheld,
                divergence_bound=divergence_upper_bound(counts[1] - counts[0], counts[1]) if counts else None,
                note=note,
            )
        )
    draft.ladders.append(
        ImportedLadder(
            label=label, depth=depth, tensor_parallel=tp, classpad=classpad, stagger_ms=0.0, rungs=rungs, file=doc.name
        )
    )


def _by_rung(block: Any) -> dict[int, float]:
    """``{"16": 1052.3}`` → numbers by rung."""
    found: dict[int, float] = {}
    for key, value in mapping(block).items():
        rung, known = digits(key), number(value)
        if rung and known is not None:
            found[rung] = known
    return found


def _exact_rungs(said: str, known: list[int]) -> set[int]:
    """``exact c1-c20 and c32; c24 95/96`` or ``c1 exact, c2 7/8`` → the rungs that are called exact."""
    found: set[int] = set()
    for part in re.split(r"[;,]", _COUNTED.sub("", said)):
        if _CALLED.search(part) and not _DENIED.search(part):
            for low, high in _EXACT.findall(part):
                found |= {rung for rung in known if int(low) <= rung <= int(high or low)}
    return found


def _strict(doc: Document, draft: Draft, name: str, arm: str, part: Any) -> None:
    tp = digits(arm[-1:])
    for key, values in mapping(part).items():
        pair = [number(value) for value in items(values)]
        depth = digits(key[3:])
        if key.startswith("mtp") and depth is not None and len(pair) == 2 and None not in pair:
            labels = [f"{name} tp{tp} {key}-{side}" for side in "ab"]
            for label, value in zip(labels, pair, strict=True):
                draft.servers[label] = ImportedServer(
                    label=label,
                    depth=depth,
                    tensor_parallel=tp,
                    class_balanced_median=Figure(
                        value=value or 0.0, basis=Basis.CLAIMED, file=doc.name, field=f"{name}.{arm}.{key}"
                    ),
                    ttft_ms=None,
                )
            draft.add_pair(f"{name} tp{tp} {key}", labels[0], labels[1], doc.name)
    if said := text(get(part, "gates")):
        draft.claim_gate("G1/G2/G3", f"{name} {arm}", said)


def _stagger(doc: Document, draft: Draft, name: str, arm: str, part: Any) -> None:
    """``"mtp0": "1280/1280 at 2103.6"`` under a name that ends in the rung."""
    tp, rung = re.search(r"tp(\d)", arm), re.search(r"c(\d{1,6})$", arm)
    for key, said in mapping(part).items():
        counts = count_of(said)
        rate = re.search(r"at (\d{1,9}(?:\.\d{1,9})?)", text(said))
        depth = digits(key[3:])
        if counts is None or rung is None or not key.startswith("mtp") or depth is None:
            continue
        exact, total = counts
        draft.ladders.append(
            ImportedLadder(
                label=f"{name} {arm} {key}",
                depth=depth,
                tensor_parallel=int(tp[1]) if tp else None,
                classpad=_classpad(doc, name),
                stagger_ms=None,
                rungs=[
                    ImportedRung(
                        rung=int(rung[1]),
                        tok_s=float(rate[1]) if rate else None,
                        exact=exact,
                        total=total,
                        withheld=exact < total,
                        divergence_bound=divergence_upper_bound(total - exact, total),
                        note="staggered; by how much isn't in the file",
                    )
                ],
                file=doc.name,
            )
        )


def read_ladder(doc: Document, draft: Draft) -> None:
    """A ladder.json: batches of one rung and repeat each, counts re-derived where the rows hold their ids."""
    oracle = {
        text(get(row, "prompt_sha256")): items(get(row, "token_ids")) for row in items(get(doc.data, "oracle", "rows"))
    }
    by_rung: dict[int, list[tuple[int, float | None, int, int]]] = {}
    cached: set[int] = set()
    rederived = claims = 0
    for at, batch in enumerate(items(get(doc.data, "batches"))):
        rung = integer(get(batch, "concurrency"))
        if not rung:
            continue
        exact, total = integer(get(batch, "oracle_exact_count")), integer(get(batch, "oracle_exact_total"))
        counted = _counted(oracle, items(get(batch, "rows")))
        if counted is not None:
            rederived += 1
            if exact is not None and (exact, total) != counted:
                draft.stale(
                    doc.name,
                    f"batches[{at}].oracle_exact_count",
                    f"is {exact}/{total} where the ids give {counted[0]}/{counted[1]}",
                )
                draft.problems.append(
                    f"{doc.name}: c{rung} is claimed as {exact}/{total} exact, its ids give {counted[0]}/{counted[1]}"
                )
            exact, total = counted
        else:
            claims += 1
        if boolean(get(batch, "cached_tokens_all_zero")) is False:
            draft.problems.append(f"{doc.name}: c{rung} took prompt tokens from a cache")
            cached.add(rung)
        repeat = integer(get(batch, "repeat")) or 1
        if exact is not None and total is not None and 0 <= exact <= total and total:
            by_rung.setdefault(rung, []).append((repeat, number(get(batch, "aggregate_tok_s_wall")), exact, total))
    rungs = []
    for rung, passes in sorted(by_rung.items()):
        first = min(repeat for repeat, *_ in passes)
        later = [rate for repeat, rate, _, _ in passes if repeat > first and rate is not None]
        exact, total = sum(item[2] for item in passes), sum(item[3] for item in passes)
        note = f"{len(passes)} passes" if later else "no pass after the warm-up has a rate, so there is no rate"
        if rung in cached:
            note += "; withheld: prompt tokens came from a cache"
        rungs.append(
            ImportedRung(
                rung=rung,
                tok_s=rates.median(later) if later else None,
                exact=exact,
                total=total,
                withheld=exact < total or rung in cached,
                divergence_bound=divergence_upper_bound(total - exact, total),
                note=note,
            )
        )
    draft.ladders.append(
        ImportedLadder(
            label=doc.name, depth=None, tensor_parallel=None, classpad=None, stagger_ms=None, rungs=rungs, file=doc.name
        )
    )
    draft.unknown.append(
        f"{doc.name}: {rederived} batches' counts are re-derived from ids, {claims} are claimed; the oracle is the "
        "server's own, so nothing ties it to MTP0"
    )


def _counted(oracle: Any, rows: Any) -> tuple[int, int] | None:
    """(exact, requests) from the ids; None when a row or its oracle has none."""
    if not rows or not oracle:
        return None
    exact = 0
    for row in rows:
        ids, wanted = items(get(row, "token_ids")), oracle.get(text(get(row, "prompt_sha256")))
        if not ids or not wanted:
            return None
        exact += ids == wanted
    return exact, len(rows)
