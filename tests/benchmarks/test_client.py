"""The client benchmark as a program. Its figures are for a quiet machine; here it must only run and be whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["ours", "httpx", "aiohttp", "aiohttp, parsing after", "http.client threads"]
NAMES += ["vllm bench serve", "aiperf", "guidellm"]
FIGURES = {
    "job",
    "events",
    "events_lost",
    "streams_incomplete",
    "wall_s",
    "events_per_s",
    "events_per_read",
    "cpu_read_us_per_event",
    "cpu_parse_us_per_event",
    "cpu_read_share_of_a_core",
    "ttft_ms",
    "ttft_error_ms",
    "ttft_error_to_stamp_ms",
    "timestamp_error_us",
    "gap_ms",
    "release_spread_ms",
    "memory_at_start_mib",
    "memory_peak_reading_mib",
    "memory_peak_mib",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "client.py"), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("B70_BENCH_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)


def test_client_smoke(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = run("--quick", "--concurrency", "4", "--json", str(file), "--markdown")
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert list(result["clients"]) == NAMES
    for name, client in result["clients"].items():
        assert f"| {name} |" in done.stdout
        if client["state"] != "measured":
            assert client["note"]
            continue
        assert client["version"]
        assert client["timestamps"]
        for figures in (client["scheduled"]["4"], client["full_speed"]):
            assert set(figures) - {"cpu_read_us_per_event_of_each_run"} == FIGURES
            assert figures["events_lost"] == figures["streams_incomplete"] == 0
            assert figures["events"] > 0
    assert result["clients"]["ours"]["state"] == result["clients"]["httpx"]["state"] == "measured"
    assert set(result["many_streams"]) >= FIGURES
    assert result["many_streams"]["job"]["streams"] == 512
    assert result["many_streams"]["events_lost"] == 0
    assert result["goals"] == []  # a quick run measures none
    assert result["host"]["cpu_threads"] == os.cpu_count()
    assert result["settings"]["quick"] is True


@pytest.mark.parametrize("counts", ["0", "x", "1,", "9999"])
def test_a_wrong_concurrency_is_refused(counts: str) -> None:
    done = run("--concurrency", counts)
    assert done.returncode == 2
    assert "stream" in done.stderr
