"""Real servers that die, never come up or aren't ours, and a real campaign that somebody changed."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.data import find
from harness.evidence.schema import Evidence
from harness.launch.server import Endpoint
from harness.summary import next_command
from harness.wire.capture import load_capture
from tests.e2e.bench import Bench, Benches, assert_verifies, containers, verify
from tests.e2e.conftest import START_S
from tests.launch.conftest import SERVER, healthy, until
from tests.simulated.rig import free_port

pytestmark = [pytest.mark.docker, pytest.mark.vllm]

KILL_ENGINE = """
import os, pathlib, signal
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"VLLM::EngineCore"):
        os.kill(int(entry.name), signal.SIGKILL)
        print("killed")
"""


def said(campaign: Bench) -> tuple[str, str]:
    """Status and conclusion of the last event."""
    last = campaign.events[-1]
    assert last["event"] == "ended"
    assert last["exit_code"] == 2
    return last["status"], last["conclusion"]


def test_an_engine_killed_in_mid_stream(
    real_vllm: None, bench: Benches, docker_client: Any, tiny_model: Path, tmp_path: Path
) -> None:
    options = ("--launcher", "tiny-cpu", "--model-dir", str(tiny_model), "--tp", "1")
    campaign = bench(tmp_path / "out", *options, "--mtp", "0")
    campaign.event("row", START_S, label="mtp0-a", index=1)
    (ours,) = containers(docker_client, campaign.out)
    done = docker_client.containers.get(ours.id).exec_run(["python3", "-c", KILL_ENGINE])
    assert done.output.decode().split() == ["killed"]

    assert campaign.finish(120) == 2
    status, conclusion = said(campaign)
    assert status == "invalid"
    assert "mtp0-a: " in conclusion
    assert any(words in conclusion for words in ("the engine is dead", "the server has ended")), conclusion
    assert containers(docker_client, campaign.out) == []

    evidence = Evidence.model_validate(campaign.evidence)
    (attempt,) = evidence.attempts
    assert attempt.status == "invalid"
    assert attempt.class_balanced_median is None
    assert [row.complete for row in attempt.rows][:2] == [True, True]
    assert not attempt.rows[-1].complete
    assert attempt.rows[-1].reason is not None
    kept = load_capture(campaign.directory / "attempts" / "mtp0-a" / "capture.jsonl.zst").of_kind("suite")
    assert len(kept) == len(attempt.rows)
    assert kept[-1][1].data.startswith(b"HTTP/1.1 200")  # it had begun to answer: the bytes that came are evidence
    assert b"EngineCore" in (campaign.directory / "attempts" / "mtp0-a" / "server.log").read_bytes()
    assert_verifies(campaign.directory, "invalid")

    assert " --resume " in next_command(evidence, campaign.directory, "bench strict --mtp 0")
    other = bench(tmp_path / "other", *options, "--mtp", "1", "--resume", str(campaign.directory))
    assert other.finish(60) == 64  # it can be resumed, by the options it was started with only
    assert "was measured by another plan (depth: 0 then, 1 now)" in other.stderr


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        (("ready_s = 900", "ready_s = 3"), "mtp0-a: not ready within 3 s (/health: "),
        (("stall_s = 300", "stall_s = 2"), "mtp0-a: stalled, no new log line for 2 s and not ready after "),
    ],
)
def test_a_server_that_is_not_ready_in_time(
    real_vllm: None,
    bench: Benches,
    docker_client: Any,
    tiny_model: Path,
    tmp_path: Path,
    limit: tuple[str, str],
    sentence: str,
) -> None:
    lane = find("launchers", "tiny-cpu", ".toml").read_text(encoding="utf-8")
    # vLLM hears no stop signal before it is up, so the whole of stop_s is waited for.
    short = ("stop_s = 180", "stop_s = 5")
    assert lane.count(limit[0]) == lane.count(short[0]) == 1
    launcher = tmp_path / "tiny-cpu.toml"
    launcher.write_text(lane.replace(*limit).replace(*short), encoding="utf-8")
    campaign = bench(tmp_path / "out", "--launcher", str(launcher), "--model-dir", str(tiny_model), plain=True)
    assert campaign.finish(START_S) == 2
    assert sentence in campaign.stdout
    assert "next: bench strict " in campaign.stdout
    assert f"--resume {campaign.directory.name}" in campaign.stdout.replace("\n", " ")
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, "invalid")


def test_a_server_that_its_memory_limit_ends_while_it_loads(
    real_vllm: None, bench: Benches, docker_client: Any, tiny_model: Path, tmp_path: Path
) -> None:
    """The kernel ends the first process of the container, or the engine's, after which the first one gives up."""
    lane = find("launchers", "tiny-cpu", ".toml").read_text(encoding="utf-8")
    limit, short = ('memory = "8g"', 'memory = "600m"'), ("stop_s = 180", "stop_s = 5")
    assert lane.count(limit[0]) == lane.count(short[0]) == 1
    launcher = tmp_path / "tiny-cpu.toml"
    launcher.write_text(lane.replace(*limit).replace(*short), encoding="utf-8")
    campaign = bench(tmp_path / "out", "--launcher", str(launcher), "--model-dir", str(tiny_model), "--mtp", "0")
    assert campaign.finish(2 * START_S) == 2
    status, conclusion = said(campaign)
    assert status == "invalid"
    assert "mtp0-a: the server has ended with exit code " in conclusion
    assert "killed for memory" in conclusion
    evidence = Evidence.model_validate(campaign.evidence)
    (attempt,) = evidence.attempts
    assert attempt.rows == []
    assert attempt.server is not None and attempt.server.stop is not None and attempt.server.applied is not None
    assert attempt.server.stop.state.oom_killed is True
    assert attempt.server.stop.state.exit_code not in (0, None)
    assert attempt.server.applied.memory == attempt.server.applied.memory_swap
    assert attempt.server.stop.gone
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, "invalid")


@pytest.fixture
def stale_server() -> Iterator[int]:
    """Somebody else's server: healthy, and not ours."""
    port = free_port()
    command = [sys.executable, str(SERVER), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        until(lambda: healthy(Endpoint("127.0.0.1", port)))
        yield port
        assert process.poll() is None, "the other server was ended by the campaign"
        process.send_signal(signal.SIGKILL)


def test_a_port_that_a_healthy_server_holds(
    bench: Benches, docker_client: Any, tiny_model: Path, stale_server: int, tmp_path: Path
) -> None:
    options = ("--launcher", "tiny-cpu", "--model-dir", str(tiny_model), "--port", str(stale_server))
    campaign = bench(tmp_path / "out", *options)
    assert campaign.finish(60) == 2
    status, conclusion = said(campaign)
    assert status == "invalid"
    assert f"port {stale_server} on 127.0.0.1 is already taken by another server; stop it" in conclusion
    assert [event for event in campaign.events if event["event"] == "row"] == []
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, "invalid")


FILES = [
    "evidence.json",
    "manifest.json",
    "journal.jsonl",
    "suite.json",
    "attempts/mtp0-a/capture.jsonl.zst",
    "attempts/mtp3-b/capture.jsonl.zst",
    "attempts/mtp3-a/server.json",
    "attempts/mtp0-b/server.log",
]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_byte_is_found_and_its_file_named(real_campaign: Bench, tmp_path: Path, name: str) -> None:
    copy = tmp_path / real_campaign.directory.name
    shutil.copytree(real_campaign.directory, copy)
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    code, found = verify(copy)
    assert (code, found["ok"]) == (1, False)
    word = "manifest" if name == "manifest.json" else Path(name).name  # it is told by what it says of other files
    assert any(word in problem for problem in found["problems"]), found["problems"]


def test_every_file_of_the_real_campaign_is_flipped_somewhere(real_campaign: Bench) -> None:
    manifest = json.loads((real_campaign.directory / "manifest.json").read_text(encoding="utf-8"))
    kinds = {Path(name).name for name in [*manifest["files"], "manifest.json"]}
    assert kinds == {Path(name).name for name in FILES}
