"""A family file (neural-download-model-family-v1): its run_measurements as claims, and what in it disagrees."""

import re
from typing import Any

from harness.evidence.imported import Basis, Figure, ImportedServer
from harness.measure import rates
from harness.publish.lab_draft import COUNT, Draft, quoted
from harness.publish.lab_read import Document, get, integer, items, mapping, number, text

FORMAT = "neural-download-model-family-v1"


def read_family(doc: Document, draft: Draft) -> None:
    """Two servers a measurement, all claimed."""
    for revision in items(get(doc.data, "weight_revisions")):
        known = {key: text(get(revision, key)) for key in ("repository", "revision")}
        draft.model.setdefault("revisions", []).append(known)
    for at, run in enumerate(items(get(doc.data, "run_measurements"))):
        _measurement(doc, draft, at, run)
    draft.runtime = draft.runtime or text(get(doc.data, "run_measurements") and _last(doc, "runtime")) or None
    _disagreements(doc, draft)


def _last(doc: Document, name: str) -> Any:
    runs = items(get(doc.data, "run_measurements"))
    return get(runs[-1], name) if runs else None


def _measurement(doc: Document, draft: Draft, at: int, run: Any) -> None:
    name = text(get(run, "id")) or f"run_measurements[{at}]"
    depth, tp = integer(get(run, "config", "mtp")), integer(get(run, "config", "tp"))
    speeds = [number(value) for value in items(get(run, "metrics", "decode_tok_s"))]
    ttfts = [number(value) for value in items(get(run, "metrics", "ttft_ms"))]
    where = f"run_measurements[{at}].metrics"
    labels = []
    for side, speed in enumerate(speeds):
        if speed is None:
            continue
        ttft = ttfts[side] if side < len(ttfts) else None
        label = f"{name} {chr(ord('a') + side)}" if side < 26 else f"{name} {side}"
        labels.append(label)
        draft.servers[label] = ImportedServer(
            label=label,
            depth=depth,
            tensor_parallel=tp,
            class_balanced_median=Figure(
                value=speed, basis=Basis.CLAIMED, file=doc.name, field=f"{where}.decode_tok_s[{side}]"
            ),
            ttft_ms=None
            if ttft is None
            else Figure(value=ttft, basis=Basis.CLAIMED, file=doc.name, field=f"{where}.ttft_ms[{side}]"),
        )
    arm = f"mtp{depth}" if depth is not None and tp in (None, 1) else f"tp{tp} mtp{depth}"
    if len(labels) == 2:
        draft.add_pair(arm if arm not in draft.centers else name, labels[0], labels[1], doc.name)
    scope = text(get(run, "quality_scope"))
    if found := COUNT.search(scope):
        for gate in re.findall(r"G[123]", scope):
            draft.claim_gate(gate, name, found[0])
    quantization, profile = text(get(run, "quantization")), text(get(run, "profile_id"))
    if "fp8" in profile.lower() and quantization and "fp8" not in quantization.lower():
        draft.stale(
            doc.name,
            f"run_measurements[{at}].profile_id",
            f"is {quoted(profile)} on a {quantization} measurement: the profile of another quantization",
        )


def _disagreements(doc: Document, draft: Draft) -> None:
    data = doc.data
    runs = {text(get(run, "id")): run for run in items(get(data, "run_measurements"))}
    for view in items(get(data, "coverage_views")):
        for cell, entry in mapping(get(view, "cells")).items():
            field, label = f"coverage_views[].cells.{cell}", text(get(entry, "label"))
            speeds = [
                value
                for item in items(get(runs.get(text(get(entry, "evidence_id"))), "metrics", "decode_tok_s"))
                if (value := number(item)) is not None
            ]
            said = re.fullmatch(r"D(\d{1,9}(?:\.\d{1,9})?)", label)
            if said and len(speeds) == 2 and abs(rates.center(*speeds) - float(said[1])) > 0.0051:
                draft.stale(
                    doc.name,
                    f"{field}.label",
                    f"is {label}, the first server ({speeds[0]}); the center of both is {rates.center(*speeds):.2f}",
                )
            if text(get(entry, "state")) == "missing" and label.startswith("rejected"):
                draft.stale(
                    doc.name, f"{field}.state", "is missing where its label says that it was measured and rejected"
                )
    # Lists, because a stranger's value may be one that no set can hold.
    every = list(runs.values())
    measured: dict[str, list[Any]] = {
        "tp": [get(run, "config", "tp") for run in every],
        "mtp": [get(run, "config", "mtp") for run in every],
        "configured_max_context_tokens": [get(run, "config", "configured_max_context_tokens") for run in every],
        "runtime": [get(run, "runtime") for run in every],
        "weight_revision": [get(run, "revision") for run in every],
    }
    for name, known in measured.items():
        for value in items(get(data, "dimensions", name)):
            if runs and isinstance(value, str | int) and value not in known:
                draft.stale(
                    doc.name, f"dimensions.{name}", f"has {quoted(value)}, which no run_measurement of this file has"
                )
    for packet in items(get(data, "packets")):
        cards = [value for value in items(get(packet, "topologies")) if integer(value)]
        if cards and max(cards) > 1:
            for field in ("summary", "transfer_scope.status", "model_signals.b70_fit.band"):
                said_here = text(get(data, *field.split(".")))
                if re.search(r"\bone (?:Arc Pro B70|card)\b|one-card", said_here):
                    draft.stale(doc.name, field, f"says one card where the packet has topologies {cards}")
        runtimes = {text(get(run, "runtime")) for run in runs.values()}
        if runtimes and text(get(packet, "runtime")) not in runtimes:
            draft.stale(
                doc.name, "packets[].runtime", "is a runtime that no run_measurement of this file was made with"
            )
