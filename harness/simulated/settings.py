"""The command line of the simulated server → :class:`Settings`."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from harness.errors import ExitCode, UsageError
from harness.simulated.faults import parse_faults

NOMINAL_DEPTH = 3
"""the depth at which ``--ids-per-second`` is the rate of one stream"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one simulated server is. ``depth`` is the depth that runs: 0 under the fault ``spec-off``."""

    host: str
    port: int
    name: str
    max_model_len: int
    max_num_seqs: int
    depth: int
    seed_text: str
    """stands for the weights: another text is another model"""
    acceptance: float
    """probability that a draft is accepted, given that those before it were"""
    step_ns: int
    """time of a decode step with one running request"""
    ttft_ns: int
    batch_slope: float
    """each further running request makes a step longer by this fraction of ``step_ns``"""
    tie_rate: float
    """probability that a request which came within a millisecond of another leaves its answer at its tie site"""
    enforce_eager: bool
    tensor_parallel_size: int
    faults: dict[str, float]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}\n")


def _depth_of(text: str) -> int:
    """MTP depth of a ``--speculative-config``. Raises ValueError, which argparse turns into a sentence."""
    config = json.loads(text)
    depth = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    if not isinstance(depth, int) or isinstance(depth, bool) or config.get("method") != "mtp":
        raise ValueError("not a speculative config of method mtp")
    return depth


def step_ns(ids_per_second: float, acceptance: float) -> int:
    """Nanoseconds of a step, at any depth, with which a stream of depth 3 has ``ids_per_second`` in the mean."""
    ids_per_step = sum(acceptance**k for k in range(NOMINAL_DEPTH + 1))
    return round(ids_per_step / ids_per_second * 1e9)


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """The process's arguments, or ``arguments``. Ends the process with exit code 64 when they are wrong."""
    parser = _Parser(prog="python -m harness.simulated", description=__doc__, allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default="simulated")
    parser.add_argument("--model", help="accepted; the weights are --seed-text")
    parser.add_argument("--max-model-len", type=int, default=1024)
    parser.add_argument("--max-num-seqs", type=int, default=1)
    parser.add_argument(
        "--max-num-batched-tokens", type=int, default=1024, help="accepted; prefill takes no batch here"
    )
    parser.add_argument(
        "--speculative-config", type=_depth_of, dest="depth", default=0, metavar="JSON", help="vLLM's own option"
    )
    parser.add_argument("--depth", type=int, default=0, help="drafts per step (MTP depth)")
    parser.add_argument("--seed-text", default="", help="stands for the weights")
    parser.add_argument("--ids-per-second", type=float, default=2000.0, help="rate of one stream at depth 3")
    parser.add_argument("--acceptance", type=float, default=0.85, help="probability that a draft is accepted")
    parser.add_argument("--step-us", type=float, help="time of a step; overrides --ids-per-second")
    parser.add_argument("--ttft-ms", type=float, default=15.0)
    parser.add_argument("--batch-slope", type=float, default=0.11, help="growth of a step per further running request")
    parser.add_argument("--tie-rate", type=float, default=0.0, help="share of crowded requests that leave their answer")
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[:NUMBER]")
    given = parser.parse_args(arguments)
    for option, good in (
        ("port", 0 < given.port < 65536),
        ("max-model-len", given.max_model_len >= 2),
        ("max-num-seqs", given.max_num_seqs >= 1),
        ("depth", 0 <= given.depth <= 16),
        ("ids-per-second", given.ids_per_second > 0),
        ("acceptance", 0 <= given.acceptance <= 1),
        ("step-us", given.step_us is None or given.step_us > 0),
        ("ttft-ms", given.ttft_ms >= 0),
        ("batch-slope", given.batch_slope >= 0),
        ("tie-rate", 0 <= given.tie_rate <= 1),
        ("tensor-parallel-size", given.tensor_parallel_size >= 1),
    ):
        if not good:
            parser.error(f"--{option} {getattr(given, option.replace('-', '_'))}: the value is out of range")
    try:
        faults = parse_faults(given.fault)
    except UsageError as error:
        parser.error(str(error))
    return Settings(
        host=given.host,
        port=given.port,
        name=given.served_model_name,
        max_model_len=given.max_model_len,
        max_num_seqs=given.max_num_seqs,
        depth=0 if "spec-off" in faults else given.depth,
        seed_text=given.seed_text,
        acceptance=given.acceptance,
        step_ns=round(given.step_us * 1e3) if given.step_us else step_ns(given.ids_per_second, given.acceptance),
        ttft_ns=round(given.ttft_ms * 1e6),
        batch_slope=given.batch_slope,
        tie_rate=given.tie_rate,
        enforce_eager=given.enforce_eager,
        tensor_parallel_size=given.tensor_parallel_size,
        faults=faults,
    )
