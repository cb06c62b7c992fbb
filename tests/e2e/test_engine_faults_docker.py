"""Campaigns whose server, in a real container, dies, hangs, is killed for memory, is deaf, or isn't ours."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Benches, assert_verifies, containers, failed_but_for_load, gates
from tests.e2e.conftest import QuickLane
from tests.e2e.engine_faults import (
    END_S,
    NAME,
    PORT,
    STEP_US,
    after_row,
    ended_invalid,
    metrics,
    ours,
    resume_passes,
    up,
)
from tests.launch.conftest import until
from tests.simulated.rig import free_port

pytestmark = pytest.mark.docker

HASTY = (sys.executable, str(Path(__file__).with_name("hasty.py")))


@pytest.fixture
def quick(tmp_path: Path, simulated_image: str) -> QuickLane:
    return QuickLane(tmp_path / "lane", simulated_image, name=NAME)


def test_49_a_server_killed_in_mid_stream(bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path) -> None:
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    after_row(campaign)
    ours(docker_client, campaign).kill("SIGKILL")
    error, attempt = ended_invalid(campaign, docker_client)
    assert "the server has ended with exit code 137" in error
    state = attempt["server"]["stop"]["state"]
    assert (state["running"], state["exit_code"], state["oom_killed"]) == (False, 137, False)
    assert [row["complete"] for row in attempt["rows"]] == [True] * (len(attempt["rows"]) - 1) + [False]
    assert b"Received request" in (campaign.directory / "attempts" / "mtp0-a" / "server.log").read_bytes()
    resume_passes(bench, docker_client, campaign, options)


def test_49_a_server_that_hangs_in_mid_stream(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *quick("--fault", "hangs:40"), "--mtp", "0", program=HASTY)
    error, attempt = ended_invalid(campaign, docker_client)
    assert "the server hangs (" in error
    assert attempt["rows"][0]["reason"] == "idle-timeout"
    assert attempt["server"]["stop"]["state"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("calls", "sentence"), [(0, "healthy, but its first token never came: "), (15, "the server hangs (")]
)
def test_89_health_is_200_while_completions_hang(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path, calls: int, sentence: str
) -> None:
    campaign = bench(tmp_path / "out", *quick("--fault", f"mute:{calls}"), "--mtp", "0", program=HASTY)
    error, attempt = ended_invalid(campaign, docker_client)
    assert sentence in error
    assert "first-byte-timeout" in error
    whole = [row["complete"] for row in attempt["rows"]]
    assert whole == ([] if calls == 0 else [True] * (len(whole) - 1) + [False])


@pytest.mark.parametrize("number", [0, 3])
def test_a_server_killed_for_memory_by_its_own_limit(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path, number: int
) -> None:
    """At its start, and during the third prompt."""
    words = quick("--fault", f"eats-memory:{number}", step_us=STEP_US)
    campaign = bench(tmp_path / "out", *words, "--mtp", "0")
    error, attempt = ended_invalid(campaign, docker_client)
    assert "the server has ended with exit code 137, killed for memory" in error
    state = attempt["server"]["stop"]["state"]
    assert (state["exit_code"], state["oom_killed"]) == (137, True)
    assert attempt["server"]["inspect"]["State"]["OOMKilled"] is True
    assert attempt["server"]["applied"]["memory"] == 256 * 1024**2
    # Memory is taken while answers go on: how far that goes until the limit is reached is the host's affair.
    whole = [row["complete"] for row in attempt["rows"]]
    assert whole == ([] if number == 0 else [True] * (len(whole) - 1) + [False])
    assert number == 0 or len(whole) >= number


def test_83_a_server_that_exits_at_once(bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path) -> None:
    campaign = bench(tmp_path / "out", *quick("--fault", "dies-at-start"), "--mtp", "0")
    error, attempt = ended_invalid(campaign, docker_client)
    assert "the server has ended with exit code 1; its last log lines:" in error
    assert "Engine core initialization failed" in error
    assert attempt["server"]["stop"]["state"]["exit_code"] == 1
    assert b"RuntimeError" in (campaign.directory / "attempts" / "mtp0-a" / "server.log").read_bytes()


def test_81_a_server_deaf_to_sigterm_is_killed_and_its_number_stands(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    words = quick("--fault", "ignores-term")
    lane = quick.folder / "lane.toml"
    lane.write_text(lane.read_text().replace("stop_s = 20", "stop_s = 2"))
    campaign = bench(tmp_path / "out", *words, "--mtp", "0")
    code = campaign.finish(END_S)
    evidence = campaign.evidence
    assert failed_but_for_load(evidence) == []
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert code == evidence["exit_code"]
    for attempt in evidence["attempts"]:
        stop = attempt["server"]["stop"]
        assert (stop["killed"], stop["gone"], stop["state"]["exit_code"]) == (True, True, 137)
        assert stop["seconds"] >= 2
        (fresh,) = [gate for gate in attempt["gates"] if gate["name"] == "fresh"]
        assert any("had to be killed after" in note for note in fresh["notes"])
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, evidence["status"])


def test_a_container_paused_by_somebody_else(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options, program=HASTY)
    after_row(campaign)
    ours(docker_client, campaign).pause()
    error, attempt = ended_invalid(campaign, docker_client)
    assert "the server hangs (" in error
    assert "the server is running, but its container is paused" in error
    assert attempt["rows"][-1]["reason"] == "idle-timeout"
    resume_passes(bench, docker_client, campaign, options)


def test_a_container_removed_by_somebody_else(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    after_row(campaign)
    ours(docker_client, campaign).remove(force=True)
    error, attempt = ended_invalid(campaign, docker_client)
    # Removing begins with a SIGKILL, and the campaign may look in between.
    found = attempt["server"]["stop"]["state"]["exit_code"]
    assert found in (None, 137)
    words = ("an unknown exit code: the container is gone", "exit code 137")
    assert any(f"the server has ended with {word}" in error for word in words), error
    resume_passes(bench, docker_client, campaign, options)


@contextmanager
def stale_process(port: int, quick: QuickLane) -> Iterator[Callable[[], bool]]:
    """Another healthy server of this host, with the right model's name and the right answers."""
    words = [sys.executable, "-m", "harness.simulated", "--served-model-name", "sim", "--port", str(port)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            yield lambda: process.poll() is None
        finally:
            process.kill()


@contextmanager
def stale_container(port: int, quick: QuickLane) -> Iterator[Callable[[], bool]]:
    """The same in a container of somebody else."""
    import docker

    client = docker.from_env()
    words = ["--host", "0.0.0.0", "--port", "8000", "--served-model-name", "sim"]
    stranger = client.containers.run(quick.image, words, detach=True, ports={PORT: ("127.0.0.1", port)})
    try:
        yield lambda: stranger.reload() is None and stranger.status == "running"
    finally:
        stranger.remove(force=True)
        client.close()


@pytest.mark.parametrize("stale", [stale_process, stale_container])
def test_79_a_stale_server_with_the_right_name_on_the_port(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path, stale: Any
) -> None:
    port = free_port()
    options = [*quick(), "--mtp", "0", "--port", str(port)]
    with stale(port, quick) as lives:
        until(lambda: up(port))
        asked = metrics(port)
        campaign = bench(tmp_path / "out", *options)
        assert campaign.finish(END_S) == 2
        assert (
            f"port {port} on 127.0.0.1 is already taken by another server; stop it" in campaign.events[-1]["conclusion"]
        )
        assert [event for event in campaign.events if event["event"] == "row"] == []
        assert metrics(port) == asked, "it was asked something"
        assert lives(), "it isn't ours to end"
        assert containers(docker_client, campaign.out) == []
        assert_verifies(campaign.directory, "invalid")
    resume_passes(bench, docker_client, campaign, options)
