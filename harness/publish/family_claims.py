"""Imported results beside a family file: their claims are compared with its figures, and never become one of them."""

import re
from collections.abc import Iterator
from typing import Any

from harness.evidence.imported import Figure, ImportedEvidence, ImportedServer
from harness.publish.family_draft import Draft
from harness.publish.family_entries import Rounding
from harness.publish.family_measured import Material
from harness.publish.family_packets import model_of, unnamed


def claims(draft: Draft, material: Material, rounding: Rounding) -> list[str]:
    """One sentence for each figure of an imported result that an entry has, equal or not."""
    found: list[str] = []
    for path, evidence in material.imported:
        revision = model_of(draft.file, evidence)
        if "revisions" in evidence.model:
            found += _of_file(draft, path, evidence, rounding)
            continue
        if revision is None and unnamed(evidence):
            users = evidence.ladders or evidence.depth_points
            said = "its ladders and depths support coverage words alone" if users else "nothing is compared with it"
            found.append(f"{path}: it names no model, so {said}")
            continue
        if revision is None:
            what = evidence.model.get("repository") or "a model without a name"
            found.append(f"{path}: it measured {what}, none of the family's weights: nothing is compared with it")
            continue
        found += _of(draft, path, evidence, revision, rounding)
    return found


def _of(draft: Draft, path: str, evidence: ImportedEvidence, revision: str, rounding: Rounding) -> Iterator[str]:
    beside = False
    for entry in draft.file["run_measurements"]:
        if entry["revision"] != revision or not _image_fits(entry["runtime"], evidence.image_id):
            continue
        for server in evidence.servers:
            if (server.tensor_parallel, server.depth) != (entry["config"]["tp"], entry["config"]["mtp"]):
                continue
            for sentence in _figures(entry, server, path, rounding):
                beside = True
                yield sentence
    if not beside:
        yield f"{path}: {evidence.conclusion} No entry of the file has one of its configurations."


def _of_file(draft: Draft, path: str, evidence: ImportedEvidence, rounding: Rounding) -> Iterator[str]:
    """An imported family file: its servers carry the id of their entry."""
    for entry in draft.file["run_measurements"]:
        for server in evidence.servers:
            if server.label.rpartition(" ")[0] == entry["id"]:
                yield from _figures(entry, server, path, rounding)


def _figures(entry: dict[str, Any], server: ImportedServer, path: str, rounding: Rounding) -> Iterator[str]:
    for metric, figure, places in (
        ("decode_tok_s", server.class_balanced_median, rounding.rates),
        ("ttft_ms", server.ttft_ms, rounding.ms),
    ):
        if figure is not None:
            yield _compared(entry, metric, figure, places, f"{path}: {server.label}")


def _image_fits(runtime: str, image_id: str | None) -> bool:
    named = re.search(r"image ([0-9a-f]{8,64})", runtime)
    return image_id is None or named is None or image_id.removeprefix("sha256:").startswith(named.group(1))


def _compared(entry: dict[str, Any], metric: str, figure: Figure, places: int, where: str) -> str:
    value = round(figure.value, places)
    listed: list[float] = entry["metrics"].get(metric, [])
    field = f"run_measurements[{entry['id']}].metrics.{metric}"
    if value in listed:
        return f"{figure.basis}, equal: {field}[{listed.index(value)}] is {value} ({where})"
    return f"{figure.basis}, differs: {field} is {listed}, {where} says {value}; a claim changes nothing"
