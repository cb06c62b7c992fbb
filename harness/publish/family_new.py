"""A first family file: the template filled with what campaigns say of themselves, and then promoted like any other."""

import json
import string
from collections.abc import Sequence
from typing import Any

from harness.data import find
from harness.errors import UsageError
from harness.evidence.schema import Start
from harness.evidence.store import dump_json
from harness.publish import grades
from harness.publish.campaigns import Imported
from harness.publish.family import Promotion, promote
from harness.publish.family_entries import entry_id
from harness.publish.family_measured import Given, Material, gather
from harness.publish.family_words import Key

TEMPLATE = "template"


def first(name: str, plain: Sequence[Given], rejected: Sequence[Given]) -> Promotion:
    """The family file of these campaigns. Raises as ``promote``, and UsageError without a campaign of bench's own."""
    starts = [given.opened.evidence.start for given in [*plain, *rejected] if not isinstance(given.opened, Imported)]
    if not starts:
        raise UsageError("imported results make no entry, so there is nothing to write; give a campaign of bench's own")
    document = _skeleton(starts)
    material = gather(document, plain, rejected)
    _frame(document, material)
    return promote(dump_json(document), name, plain, rejected)


def _skeleton(starts: Sequence[Start]) -> dict[str, Any]:
    """The template with names from the newest campaign, and every model that was served."""
    newest = max(starts, key=lambda start: start.campaign_id)
    slug = newest.plan.lane
    words = {"id": slug, "packet_id": slug, "name": newest.lane_title, "day": "1970-01-01"}
    text = find("families", TEMPLATE, ".json").read_text(encoding="utf-8")
    document: dict[str, Any] = _filled(json.loads(text), words)
    revisions: dict[str, dict[str, Any]] = {}
    for start in starts:
        model = start.model
        if model is None:
            continue
        served = start.plan.servers[0].served_model_name
        label = model.repository or served
        own = f"{label.rpartition('/')[2].lower()}-{(model.revision or model.sha256)[:8]}"
        revisions[own] = {
            "id": own,
            "label": label,
            "role": "measured weights",
            "repository": model.repository,
            "revision": model.revision,
            "model_sha256": model.sha256,
        }
    document["weight_revisions"] = list(revisions.values())
    return document


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return string.Template(value).substitute(words)
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    return {key: _filled(item, words) for key, item in value.items()} if isinstance(value, dict) else value


def _frame(document: dict[str, Any], material: Material) -> None:
    """Packets, views and coverage views for what was given, empty: ``promote`` fills them."""
    day = material.newest()
    document["updated_at"] = day
    measured, fallen = list(material.measured), [*material.rejected_base, *material.rejected_depth]
    runtime = {(key.revision, key.quantization): key.runtime for key in measured}
    for (revision, quantization), words in runtime.items():
        cards = sorted({key.tp for key in measured if (key.revision, key.quantization) == (revision, quantization)})
        packet = f"{document['id']}-{revision}" if len(runtime) > 1 else document["id"]
        document["packets"].append(
            {
                "id": packet,
                "label": f"{revision} {quantization}",
                "revision": revision,
                "quantization": quantization,
                "runtime": words,
                "topologies": cards,
                "status": "candidate",
                "evidence_level": "measured strict pairs",
                "coverage": [],
                "grades": {
                    "evidence": {
                        "grade": grades.LETTERS[-1],
                        "scope": "strict fresh-server pairs with identity gates",
                        "basis": grades.BASIS_PREFIX,
                        "reviewed_at": day,
                        "evidence": [],
                    }
                },
            }
        )
    document["primary_packet_id"] = document["packets"][0]["id"] if document["packets"] else None
    if measured:
        document["views"].append(_depth_view(document["id"], measured))
    kinds = {key.quantization for key in [*measured, *fallen]}
    several = len({key.revision for key in [*measured, *fallen]}) > len(kinds)
    row = ("revision", "Weights") if several else ("variant", "Quantization")
    fixed = [{name: value for name, value in key.selectors().items() if name in _FIXED} for key in [*measured, *fallen]]
    for number, selectors in enumerate(item for at, item in enumerate(fixed) if item not in fixed[:at]):
        document["coverage_views"].append(
            {
                "id": f"{document['id']}-{row[0]}-by-mtp" + (f"-{number + 1}" if number else ""),
                "label": f"{row[1].lower()} × MTP",
                "fixed": ", ".join(f"{name} {value}" for name, value in selectors.items()),
                "row_axis": {"key": row[0], "label": row[1], "prefix": ""},
                "column_axis": {"key": "mtp", "label": "MTP", "prefix": "MTP"},
                "fixed_selectors": selectors,
                "rows": [],
                "columns": [],
                "cells": {},
            }
        )


_FIXED = ("runtime", "tp", "graph", "kv", "configured_max_context_tokens")


def _depth_view(family: str, measured: Sequence[Key]) -> dict[str, Any]:
    """One series for each configuration, over the depths it was measured at."""
    heads: dict[Key, Key] = {}
    for key in measured:
        heads.setdefault(key.base(), key)
    return {
        "id": f"{family}-mtp-depth",
        "title": "Speculative depth",
        "subtitle": "",
        "x_label": "MTP depth",
        "discrete": True,
        "metrics": ["decode_tok_s", "ttft_ms"],
        "series": [
            {
                "label": key.quantization if len(heads) == 1 else f"{key.quantization} TP{key.tp}, {key.runtime}",
                "measurement_ids": [entry_id(key)],
                "x_from": "config.mtp",
            }
            for key in heads.values()
        ],
    }
