"""b70-lab.result.v1 in the variants that were published: a strict pair, a replication, a depth ladder, staggered arms.

The format has no description; its fields are known from the lab's published files and the script that writes the
strict variant. Everything in it is claimed: it holds no rows.
"""

from itertools import pairwise
from typing import Any

from harness.evidence.imported import (
    ImportedDepthPoint,
    ImportedLadder,
    ImportedRung,
    ImportedServer,
)
from harness.measure.intervals import divergence_upper_bound
from harness.publish.lab_draft import COUNT, Draft, claimed, config_words, count_of, label_of, tensor_parallel_of
from harness.publish.lab_read import Document, digits, get, integer, items, mapping, number, text

SCHEMA = "b70-lab.result.v1"
CLASS_BALANCED = "class_balanced_tok_s_1_100_intervals_after_ttft"


def read_result(doc: Document, draft: Draft) -> None:
    """Append what the file claims."""
    data, words = doc.data, config_words(text(get(doc.data, "campaign_config")))
    tp = _tensor_parallel(data, words)
    _identity(doc, draft)
    servers = len(draft.servers)
    _strict(doc, draft, tp)
    _replication(doc, draft, tp)
    _depths(doc, draft)
    _arms(doc, draft, tp)
    _full_suite(doc, draft, tp)
    if len(draft.servers) == servers and not draft.ladders and not draft.depth_points:
        draft.unknown.append(f"{doc.name}: it has no figure in a place that is known here")


def _tensor_parallel(data: Any, words: dict[str, str]) -> int | None:
    if (said := digits(words.get("TP", ""))) is not None:
        return said
    texts = [get(data, "config"), get(data, "measurement", "config"), get(data, "status")]
    return tensor_parallel_of(*map(text, texts))


def _identity(doc: Document, draft: Draft) -> None:
    data = doc.data
    model = get(data, "model")
    if isinstance(model, str):
        repository, _, revision = model.partition(" ")
        draft.model |= {"repository": repository, "revision": revision or None}
    elif isinstance(model, dict):
        draft.model |= {
            "repository": text(model.get("hf_id")) or None,
            "revision": text(model.get("revision")) or None,
            "served_as": text(model.get("served_as")) or None,
            "sha256": text(model.get("sha256")) or None,
        }
    image = text(get(data, "image"))
    draft.image_id = text(get(data, "image_id")) or (image.split()[-1] if "sha256:" in image else None)
    draft.image = text(get(data, "image_tag")) or image or None
    if boot := text(get(data, "boot_id")):
        draft.hosts.append(f"boot {boot}")
    for name, value in mapping(get(data, "runtime_env")).items():
        draft.environment[name] = value if isinstance(value, str) else None
    draft.suite_sha256 = draft.suite_sha256 or text(get(data, "suite", "sha256")) or None
    draft.runtime = draft.runtime or text(get(data, "runtime_version")) or None
    for source in (get(data, "gates_passed"), get(data, "gates")):
        for name, value in mapping(source).items():
            _gates(draft, name, value)
    if not draft.model.get("repository"):
        draft.unknown.append(f"{doc.name}: the model isn't named in a field of its own")
    if draft.image_id is None:
        draft.unknown.append(f"{doc.name}: no image id is recorded")


def _gates(draft: Draft, name: str, value: Any) -> None:
    """``"G1 mtp0-a vs mtp0-b": "12/12"``, or a campaign's gates under its name."""
    if isinstance(value, dict):
        for inner, counts in value.items():
            gate, _, subject = inner.partition(" ")
            draft.claim_gate(gate, f"{name} {subject}".strip(), counts)
    elif name.startswith("G") and count_of(value):
        gate, _, subject = name.partition(" ")
        draft.claim_gate(gate, subject, value)


def _strict(doc: Document, draft: Draft, tp: int | None) -> None:
    depth = integer(get(doc.data, "speculative_config", "num_speculative_tokens"))
    for label, figures in mapping(get(doc.data, "performance_evidence")).items():
        at = f"performance_evidence.{label}"
        known = label_of(label)
        draft.servers[label] = ImportedServer(
            label=label,
            depth=known[1] if known else depth,
            tensor_parallel=tp,
            class_balanced_median=claimed(get(figures, CLASS_BALANCED), doc.name, f"{at}.{CLASS_BALANCED}"),
            ttft_ms=claimed(get(figures, "ttft_ms"), doc.name, f"{at}.ttft_ms"),
            class_medians={
                name: figure
                for name, value in mapping(get(figures, "class_medians")).items()
                if (figure := claimed(value, doc.name, f"{at}.class_medians.{name}")) is not None
            },
        )
    for name, value in mapping(get(doc.data, "centers")).items():
        if (figure := claimed(value, doc.name, f"centers.{name}")) is not None:
            draft.centers[name.split("_")[0]] = figure
    for arm in list(draft.centers):
        if f"{arm}-a" in draft.servers and f"{arm}-b" in draft.servers:
            draft.add_pair(arm, f"{arm}-a", f"{arm}-b", doc.name)


def _replication(doc: Document, draft: Draft, tp: int | None) -> None:
    for group, servers in mapping(get(doc.data, "measurements")).items():
        pairs: dict[str, dict[str, str]] = {}
        for at, server in enumerate(items(servers)):
            known = label_of(text(get(server, "arm")))
            value = get(server, "class_balanced_median_tok_s")
            if known is None or number(value) is None:
                continue
            campaign = text(get(server, "campaign"))
            label = f"{campaign} {known[0]}".strip()
            field = f"measurements.{group}[{at}].class_balanced_median_tok_s"
            draft.servers[label] = ImportedServer(
                label=label,
                depth=known[1],
                tensor_parallel=tp,
                class_balanced_median=claimed(value, doc.name, field),
                ttft_ms=None,
            )
            pairs.setdefault(f"{campaign} mtp{known[1]}".strip(), {})[known[0][-1]] = label
        for arm, pair in pairs.items():
            if {"a", "b"} <= pair.keys():
                draft.add_pair(arm, pair["a"], pair["b"], doc.name)


def _depths(doc: Document, draft: Draft) -> None:
    for row in items(get(doc.data, "table")):
        context = integer(get(row, "active_context_tokens"))
        for name, value in mapping(row).items():
            tp, _, arm = name.partition("_")
            depth = arm.removeprefix("mtp").removeprefix("depth")
            rate, cards, level = number(value), digits(tp[2:]), digits(depth)
            if context and rate is not None and tp[:2] == "tp" and cards is not None and level is not None:
                draft.depth_points.append(
                    ImportedDepthPoint(
                        active_context_tokens=context,
                        depth=level,
                        tensor_parallel=cards,
                        tok_s=rate,
                        file=doc.name,
                    )
                )


def _arms(doc: Document, draft: Draft, tp: int | None) -> None:
    """One rung an arm, from the arms' table and from the table of staggers."""
    config = text(get(doc.data, "measurement", "config"))
    depth, rung = _depth_of(config), _rung_of(config)
    for arm in items(get(doc.data, "measurement", "arms")):
        divergent = count_of(get(arm, "divergent"))
        if divergent is not None and rung is not None:
            exact = divergent[1] - divergent[0]
            label = f"{text(get(arm, 'arm'))} {text(get(arm, 'admission'))}".strip()
            _add_rung(
                draft, doc, label, depth, tp, text(get(arm, "admission")), rung, get(arm, "tok_s"), exact, divergent[1]
            )
    for name, value in mapping(doc.data).items():
        for key, rows in mapping(value).items():
            if not key.startswith("dose_response"):
                continue
            for row in items(rows):
                counts, at = count_of(get(row, "exact")), _rung_of(key) or rung
                admission = text(get(row, "admission"))
                if counts is not None and at is not None:
                    label = f"{name}.{key}: {admission}"
                    _add_rung(draft, doc, label, _depth_of(key), tp, admission, at, get(row, "tok_s"), *counts)


def _full_suite(doc: Document, draft: Draft, tp: int | None) -> None:
    """``"stagger_r2": "1280/1280, 0.00%, 1472.7 tok/s"`` under a name such as ``mtp0_c64``."""
    for name, block in mapping(doc.data).items():
        for key, arms in mapping(block).items():
            rung = _rung_of(key)
            for arm, said in mapping(arms).items():
                counts = count_of(said)
                if rung is None or counts is None:
                    continue
                words = [word for word in said.replace("tok/s", "").split(",") if not COUNT.search(word)]
                rate = next((word.strip() for word in words if "%" not in word), "")
                tok_s = _decimal(rate)
                stagger = text(get(block, "arm")) if "stagger" in arm else "barrier"
                _add_rung(draft, doc, f"{name} {arm}", _depth_of(key), tp, stagger, rung, tok_s, *counts)


def _add_rung(
    draft: Draft,
    doc: Document,
    label: str,
    depth: int | None,
    tp: int | None,
    admission: str,
    rung: int,
    tok_s: Any,
    exact: int,
    total: int,
) -> None:
    draft.ladders.append(
        ImportedLadder(
            label=label,
            depth=depth,
            tensor_parallel=tp,
            classpad=None,
            stagger_ms=_stagger_of(admission),
            rungs=[
                ImportedRung(
                    rung=rung,
                    tok_s=number(tok_s),
                    exact=exact,
                    total=total,
                    withheld=exact < total,
                    divergence_bound=divergence_upper_bound(total - exact, total),
                )
            ],
            file=doc.name,
        )
    )


def _stagger_of(admission: str) -> float | None:
    words = admission.split()
    for before, after in pairwise(words):
        if after == "ms" and (found := _decimal(before)) is not None:
            return found
    return 0.0 if "barrier" in admission else None


def _decimal(said: str) -> float | None:
    return float(said) if digits(said.replace(".", "", 1)) is not None else None


def _depth_of(said: str) -> int | None:
    for word in said.replace(",", " ").replace("_", " ").split():
        rest = word.lower().removeprefix("mtp").removeprefix("depth")
        if rest != word.lower() and (found := digits(rest)) is not None:
            return found
    return None


def _rung_of(said: str) -> int | None:
    for word in said.replace(",", " ").replace("_", " ").split():
        if word[:1] == "c" and len(word) < 6 and (found := digits(word[1:])):
            return found
    return None
