"""Two campaigns on one host at once: one waits outside where they would disturb each other, else both are whole.

Card indices are of no card of this machine: a lock needs none, and no other campaign here holds them.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.launch.docker import list_ours
from tests.e2e.bench import BENCH, Bench, Benches, assert_verifies, containers, failed_but_for_load, gates
from tests.e2e.conftest import QuickLane

pytestmark = pytest.mark.docker

BEGIN_S = 240.0
END_S = 300.0
FIRST, SECOND = "71", "72"

Lane = Callable[..., list[str]]


@pytest.fixture
def lane(quick: QuickLane) -> Lane:
    """The options of a lane with cards; ``step_us`` and ``card`` are the campaign's own."""
    named = replace(quick, name=f"two-{os.getpid()}")

    def options(card: str, *server: str, step_us: int = 2000, folder: str = "lane") -> list[str]:
        words = replace(named, folder=quick.folder.with_name(folder))(*server, step_us=step_us)
        path = quick.folder.with_name(folder) / "lane.toml"
        text = path.read_text().replace('canaries = "chat"', 'canaries = "chat"\ncard_env = "ZE_AFFINITY_MASK"')
        path.write_text(text.replace("tensor_parallel = [1]", "tensor_parallel = [1, 2]"))
        log = quick.folder.with_name("kern.log")
        log.write_text("[    0.000000] Linux version 7.0.0\n")
        tp = str(len(card.split(",")))
        return [*words, "--mtp", "0", "--card", card, "--tp", tp, "--kernel-log", str(log)]

    return options


def assert_verdict(campaign: Bench) -> dict[str, Any]:
    code = campaign.finish(END_S)
    evidence = campaign.evidence
    assert failed_but_for_load(evidence) == []
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert (code, evidence["status"]) in [(0, "passed"), (1, "withheld")], "by the client gate of this machine"
    assert_verifies(campaign.directory, evidence["status"])
    return evidence


def assert_refused(campaign: Bench, sentence: str) -> None:
    assert campaign.finish(BEGIN_S) == 2
    assert campaign.stderr == f"bench: {sentence}\n"


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [(FIRST, FIRST, FIRST), (f"{FIRST},{SECOND}", SECOND, SECOND), (SECOND, f"{FIRST},{SECOND}", SECOND)],
)
def test_70_one_campaign_per_card(
    bench: Benches, docker_client: Any, lane: Lane, tmp_path: Path, first: str, second: str, taken: str
) -> None:
    running = bench(tmp_path / "one", *lane(first))
    running.event("row", BEGIN_S, label="mtp0-a", index=0)
    refused = bench(tmp_path / "two", *lane(second, folder="other"))
    words = f"b70-bench-card-{taken} is in use by another campaign (pid {running.pid}); wait for it, or stop it first"
    assert_refused(refused, words)
    assert list(refused.out.iterdir()) == [], "nothing was started"
    assert_verdict(running)
    assert containers(docker_client, running.out) == []

    # The one that was refused held nothing back, of either card.
    again = bench(tmp_path / "two", *lane(second, folder="other"))
    again.event("row", BEGIN_S, label="mtp0-a", index=0)
    again.send(signal.SIGTERM)
    assert again.finish(END_S) == 2
    assert containers(docker_client, again.out) == []


def test_70_same_out_and_same_second(bench: Benches, docker_client: Any, lane: Lane, tmp_path: Path) -> None:
    """Started together on two cards: two directories, two sets of containers, and no name that both have."""
    out = tmp_path / "out"
    both = [bench(out, *lane(card)) for card in (FIRST, SECOND)]
    told = [campaign.event("campaign", BEGIN_S) for campaign in both]
    directories = [Path(event["directory"]) for event in told]
    assert len({event["id"] for event in told}) == 2 and len(set(directories)) == 2
    ended = [campaign.finish(END_S) for campaign in both]
    ids: list[set[str]] = []
    for directory, code in zip(directories, ended, strict=True):
        evidence = json.loads((directory / "evidence.json").read_text())
        assert failed_but_for_load(evidence) == [] and code == evidence["exit_code"]
        assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
        assert_verifies(directory, evidence["status"])
        ids.append({attempt["server"]["applied"]["server_id"] for attempt in evidence["attempts"]})
    assert [len(found) for found in ids] == [2, 2] and not ids[0] & ids[1]
    assert containers(docker_client, out) == []


def test_70_campaigns_on_two_cards_see_their_own_containers(
    bench: Benches, docker_client: Any, lane: Lane, tmp_path: Path
) -> None:
    slow = bench(tmp_path / "one", *lane(FIRST, step_us=4000))
    slow.event("row", BEGIN_S, label="mtp0-a", index=0)
    quick = bench(tmp_path / "two", *lane(SECOND, folder="other"))
    quick.event("row", BEGIN_S, label="mtp0-a", index=0)
    (mine,), (other,) = containers(docker_client, slow.out), containers(docker_client, quick.out)
    assert mine.id != other.id and (mine.pid, other.pid) == (slow.pid, quick.pid)
    quick.send(signal.SIGTERM)
    assert quick.finish(END_S) == 2
    assert containers(docker_client, quick.out) == []
    assert mine.id in {container.id for container in list_ours(docker_client)}, "the other's end is none of its own"
    assert_verdict(slow)


def test_70_two_resumes_of_one_directory(bench: Benches, docker_client: Any, lane: Lane, tmp_path: Path) -> None:
    """Without cards, so that nothing but the directory keeps them apart; one goes on and the other is refused."""
    words = [word for word in lane(FIRST) if word not in ("--card", FIRST)]
    path = tmp_path / "lane" / "lane.toml"
    path.write_text(path.read_text().replace('card_env = "ZE_AFFINITY_MASK"\n', ""))
    campaign = bench(tmp_path / "out", *words)
    campaign.event("row", BEGIN_S, label="mtp0-b", index=0)
    campaign.send(signal.SIGTERM)
    assert campaign.finish(END_S) == 2
    name = campaign.directory.name

    both = [bench(campaign.out, *words, "--resume", str(campaign.directory)) for _ in range(2)]
    codes = [resumed.finish(END_S) for resumed in both]
    refused = [resumed for resumed in both if resumed.stderr]
    assert [resumed.stderr for resumed in refused] == [
        f"bench: {name} is in use by another campaign (unnamed); wait for it, or stop it first\n"
    ]
    assert codes[both.index(refused[0])] == 2
    evidence = campaign.evidence
    assert len(evidence["resumed"]) == 1, "the refused one wrote nothing"
    assert [attempt["directory"] for attempt in evidence["attempts"]] == ["mtp0-a", "mtp0-b", "mtp0-b.2"]
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert_verifies(campaign.directory, evidence["status"])
    assert containers(docker_client, campaign.out) == []


def test_70_resume_with_an_edited_flag(bench: Benches, docker_client: Any, lane: Lane, tmp_path: Path) -> None:
    campaign = bench(tmp_path / "out", *lane(FIRST))
    campaign.event("row", BEGIN_S, label="mtp0-a", index=0)
    campaign.send(signal.SIGTERM)
    assert campaign.finish(END_S) == 2
    left = {path: path.read_bytes() for path in campaign.directory.rglob("*") if path.is_file()}
    edits: list[tuple[Callable[[], list[str]], str]] = [
        (lambda: lane(FIRST, step_us=1000), "mtp0-a.arguments: "),
        (lambda: lane(SECOND), "mtp0-a.env: "),
        (lambda: [*lane(FIRST), "--mtp", "3"], "depth: 0 then, 3 now"),
    ]
    for edited, difference in edits:
        resumed = bench(campaign.out, *edited(), "--resume", str(campaign.directory))
        assert resumed.finish(BEGIN_S) == 64
        (sentence,) = resumed.stderr.splitlines()
        name = campaign.directory.name
        assert sentence.startswith(f"bench: {name} was measured by another plan ({difference}"), sentence
        assert sentence.endswith("resume with the options it was started with, or start anew")
    assert {path: path.read_bytes() for path in campaign.directory.rglob("*") if path.is_file()} == left
    assert containers(docker_client, campaign.out) == []


def test_70_clean_during_a_run_keeps_its_containers(
    bench: Benches, docker_client: Any, lane: Lane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *lane(FIRST, step_us=8000))
    campaign.event("row", BEGIN_S, label="mtp0-a", index=0)
    (server,) = containers(docker_client, campaign.out)
    name = campaign.directory.name
    words = [BENCH, "clean", name, "--out", str(campaign.out), "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    items = json.loads(done.stdout)["items"]
    assert {(item["campaign"], item["state"]) for item in items} == {(name, "kept")}
    assert f"container {server.id[:12]} (mtp0-a)" in [item["what"] for item in items]
    assert any(item["why"] == "the process that started it is running" for item in items)
    assert_verdict(campaign)
    assert containers(docker_client, campaign.out) == []
