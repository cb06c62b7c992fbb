"""Load generators that are programs of their own: how each is started, and what it reports of itself.

They see the same source and the same requests. What they don't report (CPU per event, the time of one event) stays
empty; their TTFT is read from the file that each of them writes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.source import Schedule

RUN_LIMIT_S = 240
INSTALL_LIMIT_S = 480


@dataclass(frozen=True)
class Load:
    """What a tool is asked to do."""

    port: int
    streams: int
    rounds: int
    tokens: int
    schedule: Schedule

    @property
    def url(self) -> str:
        """Base URL of the source."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> int:
        """Measured requests."""
        return self.streams * self.rounds


@dataclass(frozen=True)
class Tool:
    """One load generator."""

    name: str
    program: str
    """name of its executable"""
    environment: str
    """variable that may name the executable"""
    command: Callable[[str, Load, str, Path], list[str]]
    """executable, load, tokenizer directory, output directory → command line"""
    read: Callable[[Path], dict[str, Any]]
    """output directory → what it reports"""
    package: str | None
    """what ``pip install`` brings it; None when it isn't installed for a benchmark"""


def _vllm(program: str, load: Load, tokenizer: str, out: Path) -> list[str]:
    command = [program, "bench", "serve", "--backend", "vllm", "--base-url", load.url, "--model", "source"]
    command += ["--tokenizer", tokenizer, "--dataset-name", "random", "--random-input-len", "8"]
    command += ["--random-output-len", str(load.tokens), "--num-prompts", str(load.requests), "--ignore-eos"]
    command += ["--max-concurrency", str(load.streams), "--num-warmups", str(load.streams), "--disable-tqdm"]
    command += ["--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99"]
    return [*command, "--save-result", "--result-dir", str(out), "--result-filename", "result.json"]


def _read_vllm(out: Path) -> dict[str, Any]:
    result = json.loads((out / "result.json").read_text())
    found = {"ttft_ms": {"p50": result["p50_ttft_ms"], "p99": result["p99_ttft_ms"]}}
    found |= {"gap_ms": {"p50": result["p50_itl_ms"], "p99": result["p99_itl_ms"]}}
    return found | {"events_per_s": result["output_throughput"], "events": result["total_output_tokens"]}


def _aiperf(program: str, load: Load, tokenizer: str, out: Path) -> list[str]:
    command = [program, "profile", "--model", "source", "--url", load.url, "--endpoint-type", "completions"]
    command += ["--streaming", "--tokenizer", tokenizer or "builtin", "--use-server-token-count"]
    command += ["--concurrency", str(load.streams), "--request-count", str(load.requests), "--use-legacy-max-tokens"]
    command += ["--warmup-request-count", str(load.streams), "--isl", "8", "--isl-stddev", "0", "--osl-stddev", "0"]
    command += ["--osl", str(load.tokens), "--extra-inputs", "ignore_eos:true", "--ui", "none"]
    return [*command, "--artifact-dir", str(out), "--no-server-metrics", "--no-gpu-telemetry"]


def _read_aiperf(out: Path) -> dict[str, Any]:
    result = json.loads((out / "profile_export_aiperf.json").read_text())
    found: dict[str, Any] = {"ttft_ms": {q: result["time_to_first_token"][q] for q in ("p50", "p99")}}
    found |= {"gap_ms": {q: result["inter_chunk_latency"][q] for q in ("p50", "p99")}}
    events = result["total_output_tokens"]["avg"]
    return found | {"events_per_s": result["output_token_throughput"]["avg"], "events": round(events)}


def _guidellm(program: str, load: Load, tokenizer: str, out: Path) -> list[str]:
    command = [program, "run", "--profile", f"kind=concurrent,streams={load.streams}", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={load.url},model=source,request_format=/v1/completions"]
    command += ["--constraint", f"kind=max_requests,count={load.requests}"]
    command += ["--tokenizer", f"kind=hf_auto,model={tokenizer}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens=8,output_tokens={load.tokens}"]
    return [*command, "--output", f"kind=json,path={out / 'result.json'}"]


def _read_guidellm(out: Path) -> dict[str, Any]:
    metrics = json.loads((out / "result.json").read_text())["benchmarks"][0]["metrics"]
    first, gap = metrics["time_to_first_token_ms"]["successful"], metrics["inter_token_latency_ms"]["successful"]
    found: dict[str, Any] = {"ttft_ms": {"p50": first["median"], "p99": first["percentiles"]["p99"]}}
    found |= {"gap_ms": {"p50": gap["median"], "p99": gap["percentiles"]["p99"]}}
    found |= {"note": "its gaps are means of a request, not single ones"}
    events = metrics["output_token_count"]["successful"]["total_sum"]
    return found | {"events_per_s": metrics["output_tokens_per_second"]["successful"]["mean"], "events": round(events)}


TOOLS = (
    Tool("vllm bench serve", "vllm", "B70_BENCH_VLLM", _vllm, _read_vllm, None),
    Tool("aiperf", "aiperf", "B70_BENCH_AIPERF", _aiperf, _read_aiperf, "aiperf"),
    Tool("guidellm", "guidellm", "B70_BENCH_GUIDELLM", _guidellm, _read_guidellm, "guidellm"),
)


def find(tool: Tool, given: str | None) -> str | None:
    """Path of the executable: the given one (or that beside a given Python), the environment's, or PATH's."""
    named = given or os.environ.get(tool.environment)
    if named is None:
        return shutil.which(tool.program)
    path = Path(named)
    if path.name.startswith("python"):
        path = path.with_name(tool.program)
    return shutil.which(str(path))


def install(tool: Tool, directory: Path) -> str:
    """Install the tool into a new virtual environment; gives its executable. Raises RuntimeError with the reason."""
    place = directory / tool.program
    venv.create(place, with_pip=True)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", str(tool.package)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"pip took more than {INSTALL_LIMIT_S} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
    return str(place / "bin" / tool.program)


def version(program: str, package: str) -> str:
    """Version of the package in the environment of ``program``, read from the Python of its first line."""
    first = Path(program).read_text(errors="replace").partition("\n")[0]
    python = first.removeprefix("#!").strip() or sys.executable
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or "unknown"


def _why(log: Path) -> str:
    """The last line of a tool's log that names an error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["no word"]
    named = [line for line in lines if "error" in line.lower()]
    return (named or lines)[-1].strip("│ ")[:160].replace("|", "/")


def run(tool: Tool, program: str, load: Load, tokenizer: str) -> dict[str, Any]:
    """One run; what the tool reports. Raises RuntimeError with the reason of a failure."""
    with tempfile.TemporaryDirectory(prefix="client-benchmark-", ignore_cleanup_errors=True) as directory:
        out = Path(directory)
        environment = os.environ | {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        if tool.name == "aiperf":
            del environment["HF_HUB_OFFLINE"]  # with it, aiperf takes no directory for a tokenizer
        with (out / "log").open("wb") as log:
            # A session of its own: these start processes that may outlive them.
            process = subprocess.Popen(
                tool.command(program, load, tokenizer, out),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=out,
                env=environment,
                start_new_session=True,
            )
            try:
                code = process.wait(RUN_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"not done after {RUN_LIMIT_S} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        try:
            found = tool.read(out)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RuntimeError(f"exit code {code}, no result ({type(error).__name__}): {_why(out / 'log')}") from None
        first = load.schedule.ttft_us / 1e3
        found["ttft_error_ms"] = {q: value - first for q, value in found["ttft_ms"].items()}
        found["events_lost"] = load.requests * load.tokens - found["events"]
        return found
