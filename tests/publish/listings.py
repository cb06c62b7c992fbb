"""Directories of campaigns, and their listings."""

import time
from pathlib import Path
from typing import Any

from harness.evidence import store
from harness.evidence.imported import Basis, Figure, ImportedEvidence, ImportedGate, ImportedServer
from harness.publish import index
from harness.publish.index import list_campaigns
from tests.publish import made

LATER_NS = time.time_ns() + 10**12
"""A moment at which every file of these tests has long been written"""


def listing(directory: Path, **options: Any) -> index.Listing:
    return list_campaigns(directory, now_ns=LATER_NS, **options)


def strict(**changes: Any) -> Any:
    speeds = {"mtp0-a": [100.0], "mtp0-b": [102.0], "mtp3-a": [200.0], "mtp3-b": [204.0]}
    return made.strict(speeds, **changes)


def imported() -> ImportedEvidence:
    figure = Figure(value=177.29, basis=Basis.CLAIMED, file="f.json", field="x")
    server = ImportedServer(label="mtp3-a", depth=3, tensor_parallel=1, class_balanced_median=figure, ttft_ms=None)
    gate = ImportedGate(name="G1", subject="a vs b", basis=Basis.CLAIMED, exact=12, total=12, passed=True)
    return ImportedEvidence(
        import_id="2026-08-01-lab",
        conclusion="",
        sources=[],
        model={"repository": "R/M"},
        servers=[server],
        centers={"mtp3": figure},
        gates=[gate],
    )


def write_imported(folder: Path, evidence: ImportedEvidence | None = None) -> None:
    folder.mkdir()
    dumped = (evidence or imported()).model_dump(mode="json", by_alias=True)
    (folder / store.EVIDENCE).write_bytes(store.dump_json(dumped))
