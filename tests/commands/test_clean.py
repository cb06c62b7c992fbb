"""``bench clean``: leftovers of killed campaigns go, what runs or isn't ours stays. Real processes and containers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness.cleaning import clean
from harness.host.lock import Locks, card_locks
from harness.launch.docker import LABEL, own_labels, remove_ours
from tests.bench import bench, campaign_of, running, servers_left, until, wait_for_line, write_launcher
from tests.launch.conftest import BASE, docker_client

__all__ = ["docker_client"]

TELL = "from harness.launch.runs import mark; print(mark())"


@pytest.fixture(scope="module")
def dead() -> str:
    """The mark of a process that has ended."""
    return subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True).stdout.strip()


def items(cwd: Path, *words: str) -> list[dict[str, str]]:
    done = bench("clean", *words, "--json", cwd=cwd)
    assert (done.code, done.err) == (0, ""), done
    return [item for item in json.loads(done.out)["items"] if item["what"] != NO_ENGINE["what"]]


NO_ENGINE = {"what": "containers", "campaign": "", "state": "kept"}
"""What stands in the list where no Docker engine answers, beside why"""


def test_without_an_engine_containers_are_unknown_and_said_so(tmp_path: Path) -> None:
    engine = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = bench("clean", "--json", f"none-{uuid4().hex}", cwd=tmp_path, env=engine)
    (item,) = json.loads(done.out)["items"]
    assert done.code == 0
    assert "the Docker engine can't be reached" in item.pop("why")
    assert item == NO_ENGINE


@pytest.mark.docker
def test_nothing(docker_client: Any, tmp_path: Path) -> None:
    done = bench("clean", f"none-{uuid4().hex}", cwd=tmp_path)
    assert (done.code, done.out) == (0, "nothing is left of any campaign\n")


def test_the_caches_of_a_killed_campaign(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path, step_us=2000)
    with running("strict", "--mtp", "0", "--launcher", launcher, cwd=tmp_path) as process:
        wait_for_line(process, "prompt 1/12|mtp0-a")
        campaign = campaign_of(tmp_path)
        until((campaign / "caches/mtp0-a").is_dir)
        (kept,) = items(tmp_path, campaign.name)
        assert (kept["what"], kept["state"], kept["why"]) == (
            "compile caches",
            "kept",
            "its campaign directory is in use",
        )
        assert (campaign / "caches").is_dir()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    until(lambda: not servers_left(campaign))
    (campaign / f".evidence.json.{process.pid}.tmp").write_text("half")
    (would,) = items(tmp_path, campaign.name, "--dry-run")
    assert (would["state"], (campaign / "caches").is_dir()) == ("would go", True)
    (gone,) = items(tmp_path, campaign.name)
    assert (gone["campaign"], gone["state"]) == (campaign.name, "removed")
    assert not (campaign / "caches").exists() and not list(campaign.glob(".*.tmp"))
    assert (campaign / "journal.jsonl").is_file()
    assert items(tmp_path, campaign.name) == []


@pytest.fixture
def left(docker_client: Any) -> Iterator[Any]:
    """Makes a container with these labels."""
    made: list[str] = []

    def make(labels: dict[str, str]) -> str:
        container = docker_client.containers.create(BASE, ["-c", "sleep 60"], entrypoint=["sh"], labels=labels)
        made.append(container.id)
        return str(container.id)

    yield make
    for container_id in made:
        assert remove_ours(docker_client, container_id, stop_s=2, gone_s=20)


def exists(client: Any, container_id: str) -> bool:
    return any(found["Id"] == container_id for found in client.api.containers(all=True))


@pytest.mark.docker
def test_containers(docker_client: Any, left: Any, dead: str, tmp_path: Path) -> None:
    name, running_one = f"clean-{uuid4().hex[:12]}", f"clean-{uuid4().hex[:12]}"
    ours = left({**own_labels(name, "mtp3-a"), f"{LABEL}run": dead})
    alive = left(own_labels(running_one, "mtp0-a"))
    foreign = left({"somebody.elses": name})
    assert [item["state"] for item in items(tmp_path, name, running_one, "--dry-run")] == ["would go", "kept"] or [
        item["state"] for item in items(tmp_path, name, running_one, "--dry-run")
    ] == ["kept", "would go"]
    assert exists(docker_client, ours)
    found = {item["campaign"]: item for item in items(tmp_path, name, running_one)}
    assert (found[name]["state"], found[name]["what"]) == ("removed", f"container {ours[:12]} (mtp3-a)")
    assert (found[running_one]["state"], found[running_one]["why"]) == (
        "kept",
        "the process that started it is running",
    )
    assert not exists(docker_client, ours)
    assert exists(docker_client, alive) and exists(docker_client, foreign)


@pytest.mark.docker
def test_caches_stay_while_a_container_may_write_there(docker_client: Any, left: Any, tmp_path: Path) -> None:
    campaign = tmp_path / "experiments" / f"clean-{uuid4().hex[:12]}"
    (campaign / "caches/mtp0-a").mkdir(parents=True)
    (campaign / "journal.jsonl").write_text("{}\n")
    left(own_labels(campaign.name, "mtp0-a"))
    container, caches = items(tmp_path, campaign.name)
    assert (container["state"], caches["state"]) == ("kept", "kept")
    assert caches["why"] == "a container of this campaign may still write there"


def test_a_folder_that_is_no_campaign_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "experiments/mine/caches").mkdir(parents=True)
    assert items(tmp_path, "mine") == []
    assert (tmp_path / "experiments/mine/caches").is_dir()


def test_lock_files(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    (locks / "b70-bench-card-0.lock").write_text("pid 1")
    (locks / "other.lock").write_text("")
    from harness.host.lock import remove_free_locks

    with Locks(card_locks("1", locks)):
        assert remove_free_locks(locks) == ["b70-bench-card-0.lock"]
        assert sorted(path.name for path in locks.iterdir()) == ["b70-bench-card-1.lock", "other.lock"]
    assert remove_free_locks(locks) == ["b70-bench-card-1.lock"]
    with Locks(card_locks("1", locks)):
        assert (locks / "b70-bench-card-1.lock").is_file()
    assert callable(clean)


def test_a_directory_in_which_nothing_was_recorded_goes(tmp_path: Path) -> None:
    """A campaign that is killed before the first line of its journal; whatever else lies in such a place stays."""
    name = "2026-01-01T000000Z-fast-strict-tp1-mtp0"
    campaign = tmp_path / "experiments" / name
    for journal_bytes in (None, b"", b'{"at": "2026'):
        campaign.mkdir(parents=True)
        (campaign / "suite.json").write_text("{}")
        (campaign / ".oracle.json.1.tmp").write_text("ha")
        if journal_bytes is not None:
            (campaign / "journal.jsonl").write_bytes(journal_bytes)
        told = bench("verify", campaign, cwd=tmp_path)
        assert told.code == 1 and "nothing was recorded before the campaign was ended; start anew" in told.out
        (would,) = items(tmp_path, name, "--dry-run")
        assert (would["state"], campaign.is_dir()) == ("would go", True)
        with Locks([campaign]):
            (kept,) = items(tmp_path, name)
            assert (kept["state"], campaign.is_dir()) == ("kept", True)
        (gone,) = items(tmp_path, name)
        assert (gone["what"], gone["state"]) == ("directory without a record", "removed")
        assert not campaign.exists()
    for other in ("notes.txt", "attempts"):
        campaign.mkdir()
        (campaign / other).mkdir()
        assert items(tmp_path, name) == [] and campaign.is_dir()
        (campaign / other).rmdir()
        campaign.rmdir()
    (tmp_path / "experiments" / "holiday").mkdir()
    assert items(tmp_path, "holiday") == [] and (tmp_path / "experiments" / "holiday").is_dir()


def test_a_resume_of_it_says_so(tmp_path: Path) -> None:
    campaign = tmp_path / "2026-01-01T000000Z-fast-strict-tp1-mtp0"
    campaign.mkdir()
    launcher = write_launcher(tmp_path)
    done = bench("strict", "--mtp", "0", "--launcher", launcher, "--resume", campaign, cwd=tmp_path)
    assert done.code == 64 and "nothing was recorded before the campaign was ended; start anew" in done.err
