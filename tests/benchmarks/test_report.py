"""What the client benchmark makes of its figures, and of the files that the load generators write."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, tools
from benchmarks.clients.job import Job, Stream, figures
from benchmarks.source import Schedule, expected_ids

MS = 1_000_000


def stream(t0: int, *, first_late: int = 0, tokens: int = 4) -> Stream:
    """Sent on time, 10 ms apart after 50; stamped 0.05 ms later, the first event by ``first_late`` more."""
    created = [t0 + (50 + 10 * n) * MS for n in range(tokens)]
    at = [sent + 50_000 for sent in created]
    at[0] += first_late
    return Stream(t0, at, created, expected_ids(tokens), True)


JOB = Job(port=1, streams=2, rounds=2, tokens=4, ids_per_event=1, ttft_us=50_000)


def test_figures() -> None:
    rounds = [[stream(0), stream(2 * MS)], [stream(200 * MS, first_late=5 * MS), stream(201 * MS)]]
    found = figures(JOB, rounds, expected_ids(4), (16e-6, 32e-6))
    assert (found["events"], found["events_lost"], found["streams_incomplete"]) == (16, 0, 0)
    assert found["wall_s"] == pytest.approx((82.05 + 81.05) / 1000)
    assert found["events_per_s"] == pytest.approx(16 / found["wall_s"])
    assert (found["cpu_read_us_per_event"], found["cpu_parse_us_per_event"]) == (pytest.approx(1), pytest.approx(2))
    assert (found["ttft_error_ms"]["p50"], found["ttft_error_ms"]["p99"]) == (pytest.approx(0.05), pytest.approx(5.05))
    assert (found["timestamp_error_us"]["p50"], found["timestamp_error_us"]["max"]) == (50, 5050)
    assert found["gap_ms"]["p50"] == 10
    assert found["release_spread_ms"] == 1.5


@pytest.mark.parametrize("fault", ["lost", "moved", "incomplete"])
def test_a_stream_with_a_fault_is_lost(fault: str) -> None:
    bad = stream(MS, tokens=3 if fault == "lost" else 4)
    if fault == "moved":
        bad.ids[1:3] = reversed(bad.ids[1:3])
    bad.complete = fault != "incomplete"
    found = figures(JOB, [[stream(0), bad], [stream(0), stream(0)]], expected_ids(4), (0, 0))
    assert (found["events"], found["events_lost"], found["streams_incomplete"]) == (12, 4, 1)


def result(**ours: Any) -> dict[str, Any]:
    """The least of a result, with our figures at the very bounds of the goals."""
    mine: dict[str, Any] = {"cpu_read_us_per_event": 10.0, "cpu_parse_us_per_event": 10.0, "events_lost": 0}
    mine |= {"ttft_error_ms": {"p50": 1.0, "p99": 3.0}, "timestamp_error_us": {"p50": 5.0, "p99": 200.0}} | ours
    theirs = {"httpx": 80.0, "aiohttp": 40.0}
    clients: dict[str, Any] = {
        name: {"scheduled": {"128": {"cpu_read_us_per_event": cpu, "cpu_parse_us_per_event": 0.0}}}
        for name, cpu in theirs.items()
    }
    clients["ours"] = {"scheduled": {"128": mine}, "full_speed": {"events_per_s": 50_000.0, "events_lost": 0}}
    return {"settings": {"quick": False}, "clients": clients, "many_streams": {"events_lost": 0}}


def test_goals_are_met_at_their_bounds() -> None:
    assert [goal["met"] for goal in report.goals(result())] == [True] * 9


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        ({"cpu_read_us_per_event": 10.1}, [0, 1]),
        ({"ttft_error_ms": {"p50": 1.1, "p99": 3.1}}, [2, 3]),
        ({"ttft_error_ms": {"p50": -1.1, "p99": -0.5}}, [2]),
        ({"timestamp_error_us": {"p99": 201.0}}, [4]),
        ({"events_lost": 1}, [5]),
    ],
)
def test_goals_are_missed_beyond_them(ours: dict[str, Any], missed: list[int]) -> None:
    goals = report.goals(result(**ours))
    assert [number for number, goal in enumerate(goals) if goal["met"] is False] == missed


def test_a_peer_that_is_absent_leaves_its_goal_open() -> None:
    without = result()
    without["clients"]["aiohttp"] = {"scheduled": {}}
    assert [goal["met"] for goal in report.goals(without)] == [True, None, *[True] * 7]
    assert report.ratios(without)["with parsing"] == {"httpx": 4.0}


REPORTS: dict[str, tuple[str, Any]] = {
    "vllm bench serve": (
        "result.json",
        {
            "p50_ttft_ms": 60.5,
            "p99_ttft_ms": 70.0,
            "p50_itl_ms": 10.0,
            "p99_itl_ms": 13.5,
            "output_throughput": 1500.0,
            "total_output_tokens": 512,
        },
    ),
    "aiperf": (
        "profile_export_aiperf.json",
        {
            "time_to_first_token": {"unit": "ms", "p50": 60.5, "p99": 70.0},
            "inter_chunk_latency": {"unit": "ms", "p50": 10.0, "p99": 13.5},
            "output_token_throughput": {"avg": 1500.0},
            "total_output_tokens": {"avg": 512.0},
        },
    ),
    "guidellm": (
        "result.json",
        {
            "benchmarks": [
                {
                    "metrics": {
                        "time_to_first_token_ms": {"successful": {"median": 60.5, "percentiles": {"p99": 70.0}}},
                        "inter_token_latency_ms": {"successful": {"median": 10.0, "percentiles": {"p99": 13.5}}},
                        "output_token_count": {"successful": {"total_sum": 512.0}},
                        "output_tokens_per_second": {"successful": {"mean": 1500.0}},
                    }
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("tool", tools.TOOLS, ids=lambda tool: tool.program)
def test_what_a_load_generator_reports_is_read(tool: tools.Tool, tmp_path: Path) -> None:
    file, content = REPORTS[tool.name]
    (tmp_path / file).write_text(json.dumps(content))
    found = tool.read(tmp_path)
    assert found["ttft_ms"] == {"p50": 60.5, "p99": 70.0}
    assert found["gap_ms"] == {"p50": 10.0, "p99": 13.5}
    assert (found["events_per_s"], found["events"]) == (1500.0, 512)


def program(directory: Path, text: str) -> str:
    path = directory / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_load_generator_that_fails_says_why(tmp_path: Path) -> None:
    failing = program(tmp_path, "echo 'Error: no such model | at all' >&2; exit 3")
    load = tools.Load(1, 1, 1, 4, Schedule())
    with pytest.raises(RuntimeError, match=r"exit code 3, no result \(FileNotFoundError\): Error: no such model / at"):
        tools.run(tools.TOOLS[0], failing, load, "")


def test_an_executable_is_found_beside_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tools.TOOLS[1]
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv(tool.environment, raising=False)
    assert tools.find(tool, None) is None
    made = tmp_path / tool.program
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    assert tools.find(tool, str(tmp_path / "python3")) == str(made)
    monkeypatch.setenv(tool.environment, str(made))
    assert tools.find(tool, None) == str(made)
