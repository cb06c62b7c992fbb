"""Campaigns whose server is started again, changed or replaced: every answer may be whole, no number stands."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Benches
from tests.e2e.conftest import QuickLane
from tests.e2e.engine_faults import (
    NAME,
    PORT,
    STEP_US,
    after_row,
    ended_invalid,
    host_port,
    idle,
    ours,
    resume_passes,
    stopped,
    up,
)
from tests.launch.conftest import until

pytestmark = pytest.mark.docker


@pytest.fixture
def quick(tmp_path: Path, simulated_image: str) -> QuickLane:
    return QuickLane(tmp_path / "lane", simulated_image, name=NAME)


def test_a_container_started_again_in_mid_prompt(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    after_row(campaign)
    ours(docker_client, campaign).restart(timeout=5)
    error, _ = ended_invalid(campaign, docker_client)
    # What is seen first: it is about to end, it has ended, or another process answers already.
    assert any(words in error for words in ("the engine is dead", "the server has ended", "was started again at ")), (
        error
    )
    resume_passes(bench, docker_client, campaign, options)


def restart(container: Any, port: int) -> None:
    container.restart(timeout=5)
    until(lambda: up(port))


def change(container: Any, port: int) -> None:
    container.update(cpu_quota=20_000, cpu_period=100_000)


@pytest.mark.parametrize(
    ("act", "sentences"),
    [
        (restart, ["the process that serves was started again while it was measured"]),
        (change, ["its container's settings were changed after its start (", "CpuQuota"]),
    ],
)
def test_a_container_changed_between_two_prompts(
    bench: Benches,
    docker_client: Any,
    quick: QuickLane,
    tmp_path: Path,
    act: Callable[[Any, int], None],
    sentences: list[str],
) -> None:
    """No answer breaks off: every row is complete, and yet the attempt is invalid."""
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    after_row(campaign)
    container = ours(docker_client, campaign)
    port = host_port(container)
    with stopped(campaign):
        until(lambda: idle(port))
        act(container, port)
    error, attempt = ended_invalid(campaign, docker_client)
    assert all(sentence in error for sentence in sentences), error
    assert [row["complete"] for row in attempt["rows"]] == [True] * quick.prompts
    server = attempt["server"]
    again = server["inspect"]["State"]["StartedAt"] != server["applied"]["started_at"]
    assert again == (act is restart)
    resume_passes(bench, docker_client, campaign, options)


def test_a_container_replaced_by_another_healthy_one_between_two_prompts(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """The same port, model, answers and arguments; it is another server all the same."""
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    after_row(campaign)
    container = ours(docker_client, campaign)
    port = host_port(container)
    with stopped(campaign):
        until(lambda: idle(port))
        container.remove(force=True)
        stranger = docker_client.containers.run(
            quick.image, container.attrs["Args"][2:], detach=True, ports={PORT: ("127.0.0.1", port)}
        )
        try:
            until(lambda: up(port))
        except BaseException:
            stranger.remove(force=True)
            raise
    try:
        error, attempt = ended_invalid(campaign, docker_client)
        assert "the process that serves was started again" in error or "the container is gone" in error
        assert [row["complete"] for row in attempt["rows"]] == [True] * quick.prompts
        stranger.reload()
        assert stranger.status == "running", "it isn't ours to end"
    finally:
        stranger.remove(force=True)


@pytest.fixture
def supervised(docker_client: Any, quick: QuickLane) -> Iterator[QuickLane]:
    """A lane whose image starts its server again when that ends."""
    tag = f"{quick.image}-supervised"
    context = io.BytesIO()
    dockerfile = f'FROM {quick.image}\nCOPY supervisor.py /app/\nENTRYPOINT ["python3", "/app/supervisor.py"]\n'
    with tarfile.open(fileobj=context, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile)
        tar.addfile(info, io.BytesIO(dockerfile.encode()))
        tar.add(Path(__file__).with_name("supervisor.py"), "supervisor.py")
    context.seek(0)
    docker_client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
    yield QuickLane(quick.folder, tag, name=NAME)
    docker_client.images.remove(tag, force=True)


KILL_SERVER = """
import os, pathlib, signal
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit() and b"harness.simulated" in (entry / "cmdline").read_bytes().split(b"\\0"):
        os.kill(int(entry.name), signal.SIGKILL)
        print("killed")
"""


def under_supervision(lane: QuickLane) -> None:
    image = lane.folder / "image.toml"
    text = image.read_text()
    image.write_text(text.replace('["python3", "-m", "harness.simulated"]', '["python3", "/app/supervisor.py"]'))


def test_a_process_killed_for_memory_while_its_container_lives_on(
    bench: Benches, docker_client: Any, supervised: QuickLane, tmp_path: Path
) -> None:
    """Not the container's first process: another one, which is started again."""
    words = supervised("--fault", "eats-memory:3", step_us=STEP_US)
    under_supervision(supervised)
    campaign = bench(tmp_path / "out", *words, "--mtp", "0")
    _, attempt = ended_invalid(campaign, docker_client)
    assert not attempt["rows"][-1]["complete"]
    state = attempt["server"]["stop"]["state"]
    assert (state["exit_code"], state["oom_killed"]) == (0, True)


@pytest.mark.parametrize("between", [False, True])
def test_an_engine_that_its_supervisor_starts_again(
    bench: Benches, docker_client: Any, supervised: QuickLane, tmp_path: Path, between: bool
) -> None:
    """In mid-prompt, and between two prompts, where no answer breaks off and the container is the same."""
    options = [*supervised(step_us=STEP_US), "--mtp", "0"]
    under_supervision(supervised)
    campaign = bench(tmp_path / "out", *options)
    after_row(campaign)
    container = ours(docker_client, campaign)
    port = host_port(container)

    def kill() -> None:
        assert container.exec_run(["python3", "-c", KILL_SERVER]).output.split() == [b"killed"]

    if between:
        with stopped(campaign):
            until(lambda: idle(port))
            kill()
            until(lambda: up(port))
    else:
        kill()
    error, attempt = ended_invalid(campaign, docker_client)
    if between:
        assert [row["complete"] for row in attempt["rows"]] == [True] * supervised.prompts
        assert "process_start_time_seconds changed" in error
    else:
        assert any(not row["complete"] for row in attempt["rows"])
    server = attempt["server"]
    assert server["inspect"]["State"]["StartedAt"] == server["applied"]["started_at"]
    resume_passes(bench, docker_client, campaign, options)
