"""Made-up files in the lab's formats, and where its published ones lie."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.imported import ImportedEvidence
from harness.publish.lab import gather, rederive_import, write_imports
from harness.suites import CLASS_BY_ID

LAB = Path(__file__).resolve().parents[2].parent / "shared" / "lab"


def lab_file(name: str) -> Path:
    path = LAB / name
    if not path.exists():
        pytest.skip(f"the lab's published {name} isn't beside this checkout")
    return path


def write(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def imported(tmp_path: Path, *paths: Path, asked: dict[str, str] | None = None) -> list[ImportedEvidence]:
    """Import, then derive again from what was written."""
    written = write_imports(gather(paths), tmp_path / "out", asked or {})
    return [rederive_import(path) for path in written]


def ids_of(index: int, count: int = 128) -> list[int]:
    return [1000 + 7 * index + (at * 31) % 503 for at in range(count)]


def performance(label: str, *, step_s: float = 0.01, ids: dict[str, list[int]] | None = None) -> dict[str, Any]:
    """A performance.json of one server: 12 rows, one id every ``step_s``, summaries as the lab computes them."""
    rows = []
    for index, (prompt, prompt_class) in enumerate(CLASS_BY_ID.items()):
        answer = (ids or {}).get(prompt, ids_of(index))
        offsets = [0.05 + step_s * (1 + index / 100) * at for at in range(len(answer))]
        rows.append(
            {
                "prompt_id": prompt,
                "prompt_class": prompt_class,
                "prompt_tokens": 60,
                "completion_tokens": len(answer),
                "cached_tokens": 0,
                "finish_reasons": ["length"],
                "ttft_s": offsets[0],
                "token_id_offsets_s": offsets,
                "token_ids": answer,
                "tok_s_1_100_intervals_after_ttft": 99 / (offsets[99] - offsets[0]),
            }
        )
    return {
        "run": {"model": f"model-w4a16-{label}", "max_tokens": 512, "image": "sha256:" + "ab" * 32},
        "summary": {"ttft_ms": {"median": 50.0}},
        "rows": rows,
    }


def campaign_root(root: Path, **of_label: dict[str, list[int]]) -> Path:
    """Four strict attempts as the lab leaves them in a campaign's folder."""
    for label, step in (("mtp0-a", 0.02), ("mtp0-b", 0.0201), ("mtp3-a", 0.01), ("mtp3-b", 0.0101)):
        folder = root / label / "strict"
        write(folder / "performance.json", performance(label, step_s=step, ids=of_label.get(label.replace("-", "_"))))
        write(folder / "canaries.json", {"repeat_8x": {"pass": True, "unique_outputs": 1}, "pass_all": True})
        write(
            folder / "campaign-identity.json",
            {
                "schema": "neural.download.some-strict-attempt.v1",
                "attempt": label,
                "suite_sha256": "cd" * 32,
                "performance_contract": {"max_tokens": 512, "metric_intervals": 99},
            },
        )
    return root
