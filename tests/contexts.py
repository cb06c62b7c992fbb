"""The real ``bench depth`` and ``bench probe`` as processes, on simulated servers that answer in seconds."""

import random
from pathlib import Path
from typing import Any

from harness.evidence.verify import verify
from tests.bench import Done, bench, campaign_of, evidence_of, servers_left, write_launcher

SHAPES = """
[shapes.depth]
max_model_len = 512
max_num_seqs = 1
max_num_batched_tokens = 512
"""
DEPTHS = [64, 128, 256]
NAMES = ("technical-prose", "python-code", "structured-documents")
PATIENT_US = (2000, 8000)
"""Steps of a server whose client is to pass its gate, the second for a machine that is very busy"""
FAST_US = 200


def launcher(folder: Path, *faults: str, step_us: int = FAST_US) -> Path:
    """A launcher file with depths of its own and a shape that holds them."""
    folder.mkdir(exist_ok=True, parents=True)
    path = write_launcher(folder, *faults, ids=None, step_us=step_us)
    path.write_text(path.read_text().replace("dev_mode = true", f"dev_mode = true\ndepths = {DEPTHS}") + SHAPES)
    return path


def texts(folder: Path, words: int = 1500) -> Path:
    """A directory of three texts that repeat nothing; each has some 1.5 tokens a word."""
    folder.mkdir(exist_ok=True, parents=True)
    for seed, name in enumerate(NAMES):
        draw = random.Random(seed)
        said = ["".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 9))) for _ in range(words)]
        lines = [" ".join(said[at : at + 12]) for at in range(0, words, 12)]
        (folder / f"{name}.txt").write_text("\n\n".join(lines))
    return folder


def options(command: str, home: Path, path: Path, depth: int) -> list[str | Path]:
    return [command, "--mtp", str(depth), "--launcher", path, "--texts", texts(home / "texts")]


def run(command: str, home: Path, path: Path, *words: str | Path, depth: int = 3) -> tuple[Done, Any]:
    """A campaign that ended and verifies; (command, evidence)."""
    done = bench(*options(command, home, path, depth), *words, cwd=home)
    assert done.err == "", done.err
    campaign = campaign_of(home)
    assert verify(campaign).problems == []
    assert servers_left(campaign) == [] and not (campaign / "caches").exists()
    return done, evidence_of(campaign)


def failed(evidence: Any) -> set[str]:
    """Names of the failed gates, but for the one that says how busy this machine is."""
    gates = [*evidence["gates"], *(gate for attempt in evidence["attempts"] for gate in attempt["gates"])]
    return {gate["name"] for gate in gates if not gate["passed"]} - {"client"}
