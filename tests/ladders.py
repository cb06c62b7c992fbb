"""The real ``bench ladder`` as a process, with a launcher whose simulated servers answer in seconds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.evidence.verify import verify
from tests.bench import (
    Done,
    bench,
    campaign_of,
    evidence_of,
    servers_left,
    write_launcher,
)

SHAPES = """
[shapes.ladder]
max_model_len = 256
max_num_seqs = 64
max_num_batched_tokens = 512

[shapes.ladder-high]
max_model_len = 256
max_num_seqs = 128
max_num_batched_tokens = 1024
"""
PATIENT_US = (2000, 8000)
"""Steps of a server whose client is to pass its gate, the second for a machine that is very busy"""


def launcher(folder: Path, *words: str, step_us: int = 300) -> Path:
    """A launcher file whose simulated servers take ``words`` too."""
    folder.mkdir(exist_ok=True, parents=True)
    path = write_launcher(folder, ids=None, step_us=step_us)
    text = path.read_text().replace('"--ttft-ms"', "".join(f'"{word}", ' for word in words) + '"--ttft-ms"')
    path.write_text(text + SHAPES)
    return path


def options(path: Path, depth: int, rungs: str, passes: int) -> list[str | Path]:
    return ["ladder", "--mtp", str(depth), "--launcher", path, "--rungs", rungs, "--passes", str(passes)]


def ladder(
    cwd: Path, path: Path, *words: str | Path, depth: int = 0, rungs: str = "1,2,4", passes: int = 2
) -> tuple[Done, Any]:
    """A ladder that ended and verifies; (command, evidence)."""
    done = bench(*options(path, depth, rungs, passes), *words, cwd=cwd)
    assert done.err == "", done.err
    campaign = campaign_of(cwd)
    assert verify(campaign).problems == []
    assert servers_left(campaign) == [] and not (campaign / "caches").exists()
    return done, evidence_of(campaign)


def without_client(sentences: Sequence[str]) -> list[str]:
    """Reasons but for those that say how busy this machine is."""
    return [sentence for sentence in sentences if "the client" not in sentence]


def rungs_of(evidence: Any) -> dict[int, Any]:
    return {rung["rung"]: rung for rung in evidence["rungs"]}
