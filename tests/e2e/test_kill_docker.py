"""Campaigns on real containers that are cut off: by signals, by kill -9, by a failed gate, by a dying server."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Benches, assert_verifies, containers, failed_but_for_load, gates
from tests.e2e.conftest import QuickLane

pytestmark = pytest.mark.docker

BEGIN_S = 60.0
END_S = 120.0


def test_a_whole_campaign(bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path) -> None:
    campaign = bench(tmp_path / "out", *quick(), "--mtp", "3")
    code = campaign.finish(END_S)
    evidence = campaign.evidence
    assert failed_but_for_load(evidence) == []
    assert [(name, passed) for name, _, passed in gates(evidence)] == [
        ("G1", True),
        ("G2", True),
        ("G3", True),
        ("G3", True),
    ]
    assert {gate["exact"] for gate in evidence["gates"]} == {quick.prompts}
    assert code == evidence["exit_code"]
    servers = [attempt["server"] for attempt in evidence["attempts"]]
    assert len({server["applied"]["server_id"] for server in servers}) == 4
    assert {server["stop"]["state"]["exit_code"] for server in servers} == {0}
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, evidence["status"])


@pytest.mark.parametrize(
    ("fault", "status", "verdicts"),
    [
        ("tie:2", "withheld", {"G1": True, "G2": True, "G3": False}),
        ("unstable:1", "rejected", {"G1": False}),
    ],
)
def test_a_failed_gate_leaves_no_container(
    bench: Benches,
    docker_client: Any,
    quick: QuickLane,
    tmp_path: Path,
    fault: str,
    status: str,
    verdicts: dict[str, bool],
) -> None:
    campaign = bench(tmp_path / "out", *quick("--fault", fault), "--mtp", "3")
    assert campaign.finish(END_S) == 1
    evidence = campaign.evidence
    assert evidence["status"] == status
    assert {name: passed for name, _, passed in gates(evidence)} == verdicts
    assert failed_but_for_load(evidence) == []
    assert all(pair["center"] > 0 for pair in evidence["pairs"][:1])
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, evidence["status"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_mid_attempt_leaves_no_container(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path, number: signal.Signals
) -> None:
    campaign = bench(tmp_path / "out", *quick(step_us=2000), "--mtp", "0")
    campaign.event("row", BEGIN_S, label="mtp0-a", index=0)
    campaign.send(number)
    assert campaign.finish(END_S) == 2
    evidence = campaign.evidence
    assert (evidence["status"], evidence["withheld"]) == ("interrupted", True)
    assert number.name in evidence["conclusion"]
    (attempt,) = evidence["attempts"]
    assert (attempt["status"], attempt["server"]["stop"]["gone"]) == ("interrupted", True)
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, evidence["status"])


def test_a_signal_while_a_server_starts_leaves_no_container(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *quick("--fault", "never-ready"), "--mtp", "0")
    campaign.line(lambda line: '"starting, ' in line, BEGIN_S)
    assert len(containers(docker_client, campaign.out)) == 1
    campaign.send(signal.SIGTERM)
    assert campaign.finish(END_S) == 2
    assert campaign.evidence["status"] == "interrupted"
    assert containers(docker_client, campaign.out) == []


def test_a_server_that_vanishes_leaves_no_container_and_offers_a_resume(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *quick("--fault", "engine-vanishes"), "--mtp", "0", plain=True)
    assert campaign.finish(END_S) == 2
    said = campaign.stdout.replace("\n", " ")
    assert "the server has ended" in said
    assert "next: bench strict " in said
    assert f"--resume {campaign.directory.name}" in said
    assert campaign.evidence["status"] == "invalid"
    assert containers(docker_client, campaign.out) == []


def test_after_kill_9_a_resume_removes_the_leftover_and_takes_a_fresh_server(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    options = [*quick(), "--mtp", "0"]
    killed = bench(tmp_path / "out", *options)
    killed.event("row", BEGIN_S, label="mtp0-b", index=1)
    killed.send(signal.SIGKILL)
    assert killed.finish(30) == -signal.SIGKILL
    (left,) = containers(docker_client, killed.out)
    assert (left.label, left.running, left.pid) == ("mtp0-b", True, killed.pid)
    assert left.campaign == killed.directory.name
    with pytest.raises(ProcessLookupError):
        os.kill(left.pid, 0)
    assert_verifies(killed.directory, "interrupted")

    resumed = bench(killed.out, *options, "--resume", str(killed.directory))
    assert resumed.event("campaign", BEGIN_S)["done"] == ["mtp0-a"]
    code = resumed.finish(END_S)
    evidence = resumed.evidence
    assert failed_but_for_load(evidence) == []
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert code == evidence["exit_code"]
    assert len(evidence["resumed"]) == 1
    assert [(attempt["directory"], attempt["status"]) for attempt in evidence["attempts"]] == [
        ("mtp0-a", "complete"),
        ("mtp0-b", "interrupted"),
        ("mtp0-b.2", "complete"),
    ]
    ids = [attempt["server"]["applied"]["server_id"] for attempt in evidence["attempts"]]
    assert ids[1] == left.id
    assert len(set(ids)) == 3
    assert_verifies(killed.directory, evidence["status"])

    # The resume ended what the killed run had left: it would hold the card and the port.
    assert containers(docker_client, killed.out) == []
