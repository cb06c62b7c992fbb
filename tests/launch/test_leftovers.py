"""Leftovers of campaigns with a real Docker engine: listed, and removed only when their campaign isn't running."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness.errors import UsageError
from harness.host.lock import Locks
from harness.launch.container import Ours
from harness.launch.docker import LABEL, own_labels, remove_ours
from harness.launch.runs import mark
from harness.leftovers import Leftover, find_leftovers, is_running, remove
from tests.launch.conftest import BASE

TELL = "from harness.launch.runs import mark; print(mark())"


@pytest.fixture(scope="module")
def dead() -> str:
    """The mark of a process that has ended."""
    return subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True).stdout.strip()


def ours(run: str, campaign: str = "c", number: int = 0) -> Ours:
    return Ours(id=f"id-{number}", campaign=campaign, label="mtp0-a", running=True, pid=1, run=run)


def test_a_campaign_runs_while_any_process_of_its_containers_does(dead: str) -> None:
    assert is_running("c", [ours(dead), ours(mark())])[0] is True
    assert is_running("c", [ours(dead), ours(dead), ours(mark(), "other")])[0] is False
    assert is_running("c", [ours(dead), ours("")])[0] is None
    assert is_running("c", [ours("")])[0] is None
    assert is_running("c", [])[0] is None


def test_a_campaign_resumed_by_another_process_runs(dead: str, tmp_path: Path) -> None:
    directory = tmp_path / "c"
    assert is_running("c", [ours(dead)], tmp_path)[0] is False
    directory.mkdir()
    assert is_running("c", [ours(dead)], tmp_path)[0] is False
    with Locks([directory]):
        assert is_running("c", [ours(dead)], tmp_path) == (True, "its campaign directory is in use")
    assert is_running("c", [ours(dead)], tmp_path)[0] is False


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens every directory")
def test_a_directory_that_cannot_be_opened_decides_nothing(dead: str, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir(mode=0)
    assert is_running("c", [ours(dead)], tmp_path)[0] is None


@pytest.fixture
def campaign() -> str:
    """Not that of anybody else on this host."""
    return f"leftovers-{uuid4().hex[:12]}"


@pytest.fixture
def left(docker_client: Any, campaign: str) -> Iterator[Any]:
    """Makes a container with these labels; started, it waits to be stopped."""
    made: list[str] = []

    def make(labels: dict[str, str], *, start: bool = False) -> str:
        command = ["-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
        container = docker_client.containers.create(BASE, command, entrypoint=["sh"], labels=labels)
        made.append(container.id)
        if start:
            container.start()
        return str(container.id)

    yield make
    for container_id in made:
        assert remove_ours(docker_client, container_id, stop_s=2, gone_s=20)


def of(client: Any, campaign: str) -> list[Leftover]:
    return [found for found in find_leftovers(client) if found.campaign == campaign]


@pytest.mark.docker
@pytest.mark.parametrize("start", [True, False])
def test_a_dead_campaigns_container_is_listed_and_removed(
    docker_client: Any, left: Any, campaign: str, dead: str, start: bool
) -> None:
    container_id = left({**own_labels(campaign, "mtp3-b"), f"{LABEL}run": dead}, start=start)
    (found,) = of(docker_client, campaign)
    assert found == Leftover(container_id, campaign, "mtp3-b", start, False, "the process that started it has ended")
    assert remove(docker_client, found, stop_s=1, gone_s=20)
    assert of(docker_client, campaign) == []
    assert remove(docker_client, found)  # somebody was faster


@pytest.mark.docker
def test_a_running_campaigns_container_is_kept(docker_client: Any, left: Any, campaign: str, dead: str) -> None:
    left({**own_labels(campaign, "mtp0-a"), f"{LABEL}run": dead})
    left(own_labels(campaign, "mtp0-b"))  # by this process, which runs
    found = of(docker_client, campaign)
    assert [(one.label, one.campaign_running) for one in found] == [("mtp0-a", True), ("mtp0-b", True)]
    for one in found:
        with pytest.raises(UsageError, match=f"belongs to campaign {campaign}, and the process that started it is run"):
            remove(docker_client, one)
    assert of(docker_client, campaign) == found


@pytest.mark.docker
def test_a_verdict_of_before_is_not_trusted(
    docker_client: Any, left: Any, campaign: str, dead: str, tmp_path: Path
) -> None:
    left({**own_labels(campaign, "mtp0-a"), f"{LABEL}run": dead})
    (found,) = of(docker_client, campaign)
    (tmp_path / campaign).mkdir()
    with Locks([tmp_path / campaign]), pytest.raises(UsageError, match="its campaign directory is in use"):
        remove(docker_client, found, out=tmp_path)
    assert remove(docker_client, found, out=tmp_path, stop_s=2, gone_s=20)


@pytest.mark.docker
def test_a_container_that_does_not_tell_its_process_is_kept(docker_client: Any, left: Any, campaign: str) -> None:
    """As one of an older harness, or of one in another container."""
    left({f"{LABEL}campaign": campaign})
    (found,) = of(docker_client, campaign)
    assert (found.label, found.campaign_running) == ("", None)
    with pytest.raises(UsageError, match="can't be told from here"):
        remove(docker_client, found)


@pytest.mark.docker
def test_what_is_not_ours_is_neither_listed_nor_removed(docker_client: Any, left: Any, campaign: str) -> None:
    foreign = left({"somebody.elses": "1", "name": "b70-bench"})
    assert foreign not in {found.id for found in find_leftovers(docker_client)}
    with pytest.raises(UsageError, match="is not one of ours; it is left alone"):
        remove(docker_client, Leftover(foreign, campaign, "", True, False, ""))
    assert docker_client.api.inspect_container(foreign)["Id"] == foreign
