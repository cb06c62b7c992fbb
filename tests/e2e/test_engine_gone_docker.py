"""The Docker engine itself goes away in mid-campaign: a real one, which the test starts for itself."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import (
    BENCH,
    Bench,
    Benches,
    Event,
    assert_verifies,
    containers,
    failed_but_for_load,
    failed_gates,
    gates,
)
from tests.e2e.conftest import QuickLane
from tests.e2e.engine_faults import host_port, idle, stopped, up
from tests.e2e.own_docker import OwnDocker, why_not
from tests.launch.conftest import until

pytestmark = pytest.mark.docker

BEGIN_S = 120.0
END_S = 300.0
STEP_US = 2000
AWAY = "the Docker engine doesn't answer ("


@pytest.fixture(scope="module")
def own(docker_client: Any) -> Iterator[OwnDocker]:
    if why := why_not():
        pytest.skip(why)
    engine = OwnDocker()
    try:
        engine.begin()
        engine.load()
        yield engine
    finally:
        engine.end()


@pytest.fixture
def engine(own: OwnDocker, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnDocker]:
    """It runs, and is the one that campaigns of this test are told to use."""
    monkeypatch.setenv("DOCKER_HOST", own.url)
    own.up()
    yield own
    own.send(signal.SIGCONT)
    own.up()


@pytest.fixture
def client(engine: OwnDocker) -> Iterator[Any]:
    client = engine.client()
    yield client
    client.close()


@pytest.fixture
def bench(engine: OwnDocker, client: Any) -> Iterator[Benches]:
    benches = Benches(client)
    yield benches
    engine.send(signal.SIGCONT)
    engine.up(live_restore=engine.live_restore)
    benches.close()


@pytest.fixture
def quick(engine: OwnDocker, tmp_path: Path) -> QuickLane:
    return QuickLane(tmp_path / "lane", engine.image, name=f"sim-gone-{os.getpid()}")


def limited(quick: QuickLane, stop_s: int, gone_s: int) -> None:
    lane = quick.folder / "lane.toml"
    text = lane.read_text()
    assert "stop_s = 20\ngone_s = 30" in text
    lane.write_text(text.replace("stop_s = 20\ngone_s = 30", f"stop_s = {stop_s}\ngone_s = {gone_s}"))


def invalid(campaign: Bench, label: str) -> tuple[str, Event]:
    """It has ended for its engine: (the sentence, the last attempt)."""
    assert campaign.finish(END_S) == 2
    last, attempt = campaign.events[-1], campaign.evidence["attempts"][-1]
    assert (last["event"], last["exit_code"], last["status"]) == ("ended", 2, "invalid")
    assert (attempt["label"], attempt["status"], attempt["class_balanced_median"]) == (label, "invalid", None)
    assert attempt["error"].splitlines()[0] in last["conclusion"]
    assert_verifies(campaign.directory, "invalid")
    return attempt["error"], attempt


def passes(campaign: Bench, complete: list[str]) -> Event:
    """It has ended with verdicts, and these attempts are complete."""
    code, evidence = campaign.finish(END_S), campaign.evidence
    done = [attempt for attempt in evidence["attempts"] if attempt["status"] == "complete"]
    assert [attempt["directory"] for attempt in done] == complete
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert failed_but_for_load({"attempts": done}) == []
    assert all(attempt["server"]["stop"]["gone"] for attempt in done)
    assert code == evidence["exit_code"]
    assert_verifies(campaign.directory, evidence["status"])
    return evidence


def resume_passes(bench: Benches, client: Any, campaign: Bench, options: list[str], complete: list[str]) -> None:
    passes(bench(campaign.out, *options, "--resume", str(campaign.directory)), complete)
    assert containers(client, campaign.out) == []


def clean(out: Path) -> tuple[int, list[Event]]:
    words = [BENCH, "clean", "--json", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["items"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_that_goes_in_mid_prompt_and_comes_back(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path, number: signal.Signals
) -> None:
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    campaign.event("row", BEGIN_S, label="mtp0-a", index=1)
    engine.down(number)
    campaign.event("stage", BEGIN_S, label="mtp0-a", text="stopping")  # it has noticed, and waits for the engine
    engine.up()
    error, attempt = invalid(campaign, "mtp0-a")
    # By SIGTERM the engine ends its containers first, and the campaign may see that before the engine is away.
    ending = number is signal.SIGTERM and ("the server has ended" in error or "the engine is dead" in error)
    assert AWAY in error or ending, error
    assert not attempt["rows"][-1]["complete"]
    stop = attempt["server"]["stop"]
    assert (stop["state"]["running"], stop["gone"], stop["killed"]) == (False, True, False)
    assert containers(client, campaign.out) == []
    resume_passes(bench, client, campaign, options, ["mtp0-a.2", "mtp0-b"])


def test_an_engine_that_restarts_while_a_server_starts(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    options = [*quick("--fault", "slow-start:10"), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    campaign.line(lambda line: '"starting, ' in line, BEGIN_S)
    engine.down(signal.SIGTERM)
    engine.up()
    error, attempt = invalid(campaign, "mtp0-a")
    assert AWAY in error or "the server has ended" in error, error
    assert attempt["rows"] == []
    assert attempt["server"]["stop"]["gone"] is True
    assert containers(client, campaign.out) == []
    resume_passes(bench, client, campaign, options, ["mtp0-a.2", "mtp0-b"])


def test_an_engine_that_goes_while_it_is_asked_to_start_a_server(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """Whether it has made the container by then is chance; nothing is forgotten either way."""
    options = [*quick(), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    campaign.event("stage", BEGIN_S, label="mtp0-b", text="starting")
    engine.down(signal.SIGKILL)
    error, attempt = invalid(campaign, "mtp0-b")
    assert "Docker can't start server mtp0-b: " in error or AWAY in error
    assert attempt["rows"] == []
    assert (attempt["server"]["stop"] or {"gone": False})["gone"] is False
    if attempt["server"]["stop"] is None:
        assert "whether its container is left is unknown, bench clean removes it" in error
    engine.up()
    code, _ = clean(campaign.out)
    assert code == 0
    assert containers(client, campaign.out) == []
    resume_passes(bench, client, campaign, options, ["mtp0-a", "mtp0-b.2"])


def test_an_engine_that_restarts_while_a_server_stops(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """All was measured by then, and the server is seen to be gone: its number stands."""
    options = [*quick("--fault", "ignores-term"), "--mtp", "0"]
    limited(quick, 6, 30)
    campaign = bench(tmp_path / "out", *options)
    campaign.event("stage", BEGIN_S, label="mtp0-a", text="stopping")
    engine.down(signal.SIGKILL)
    engine.up()
    evidence = passes(campaign, ["mtp0-a", "mtp0-b"])
    assert evidence["attempts"][0]["server"]["stop"]["state"]["running"] is False
    assert containers(client, campaign.out) == []


def test_an_engine_that_never_comes_back_in_mid_prompt(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """It dies and its container lives on: unknown to the campaign, and never said to be gone."""
    engine.up(live_restore=True)
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    limited(quick, 2, 2)
    campaign = bench(tmp_path / "out", *options)
    campaign.event("row", BEGIN_S, label="mtp0-b", index=1)
    (ours,) = containers(client, campaign.out)
    pid = client.containers.get(ours.id).attrs["State"]["Pid"]
    engine.down(signal.SIGKILL)
    error, attempt = invalid(campaign, "mtp0-b")
    assert "whether the server runs is unknown, because the Docker engine doesn't answer (" in error
    stop = attempt["server"]["stop"]
    assert (stop["state"]["running"], stop["state"]["exit_code"], stop["gone"]) == (None, None, False)
    assert stop["note"].startswith("the log may miss its last lines") and f"unknown: {AWAY}" in stop["note"]
    assert Path(f"/proc/{pid}").exists(), "the server lives on without its engine"
    assert (campaign.directory / "caches" / "mtp0-b").is_dir(), "the container may still write there"

    code, items = clean(campaign.out)
    assert code == 2
    kept = {item["what"]: (item["state"], item["why"]) for item in items}
    assert kept["containers"][0] == "stuck"
    assert kept["containers"][1].startswith("the Docker engine can't be reached (")
    assert kept["compile caches"][0] == "kept"
    resumed = bench(tmp_path / "out", *options, "--resume", str(campaign.directory))
    assert resumed.finish(END_S) == 2
    assert "the Docker engine can't be reached (" in resumed.stderr
    assert_verifies(campaign.directory, "invalid")

    engine.up(live_restore=True)
    assert [(left.id, left.running) for left in containers(client, campaign.out)] == [(ours.id, True)]
    code, items = clean(campaign.out)
    assert code == 0
    assert {(item["what"], item["state"]) for item in items} == {
        (f"container {ours.id[:12]} (mtp0-b)", "removed"),
        ("compile caches", "removed"),
    }
    assert containers(client, campaign.out) == []
    assert not Path(f"/proc/{pid}").exists()
    resume_passes(bench, client, campaign, options, ["mtp0-a", "mtp0-b.2"])


def test_an_engine_that_never_comes_back_while_a_server_stops(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """All was measured, but nobody saw the end of its server: no verdict, and the resume removes what is left."""
    engine.up(live_restore=True)
    options = [*quick("--fault", "ignores-term"), "--mtp", "0"]
    limited(quick, 3, 2)
    campaign = bench(tmp_path / "out", *options)
    campaign.event("stage", BEGIN_S, label="mtp0-a", text="stopping")
    engine.down(signal.SIGKILL)
    error, attempt = invalid(campaign, "mtp0-a")
    assert f"the end of its server is unknown, because {AWAY}" in error
    assert "then --resume, which removes what is left" in error
    assert [row["complete"] for row in attempt["rows"]] == [True] * quick.prompts
    stop = attempt["server"]["stop"]
    assert (stop["state"]["running"], stop["gone"]) == (None, False)
    engine.up(live_restore=True)
    (left,) = containers(client, campaign.out)
    assert left.running
    client.containers.get(left.id).kill()  # else the resume would wait three minutes for a server deaf to SIGTERM
    assert [one.id for one in containers(client, campaign.out)] == [left.id]
    resume_passes(bench, client, campaign, options, ["mtp0-a.2", "mtp0-b"])


def test_an_engine_away_for_a_moment_between_two_prompts(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """With live-restore the container is the same process before and after, so every number stands."""
    engine.up(live_restore=True)
    options = [*quick(step_us=STEP_US), "--mtp", "0"]
    campaign = bench(tmp_path / "out", *options)
    campaign.event("row", BEGIN_S, label="mtp0-a", index=1)
    (ours,) = containers(client, campaign.out)
    port = host_port(client.containers.get(ours.id))
    with stopped(campaign):
        until(lambda: idle(port))
        engine.down(signal.SIGKILL)
        engine.up(live_restore=True)
        until(lambda: up(port))
    evidence = passes(campaign, ["mtp0-a", "mtp0-b"])
    log = (campaign.directory / "attempts" / "mtp0-a" / "server.log").read_bytes()
    assert b"Starting vLLM server" in log
    assert evidence["attempts"][0]["server"]["stop"]["state"]["exit_code"] == 0
    assert containers(client, campaign.out) == []


def test_an_engine_that_hangs_for_a_while(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """It holds every connection and says nothing; the server goes on, and what was asked is answered later."""
    campaign = bench(tmp_path / "out", *quick(step_us=STEP_US), "--mtp", "0")
    campaign.event("row", BEGIN_S, label="mtp0-a", index=1)
    engine.send(signal.SIGSTOP)
    campaign.line(lambda line: '"canaries after' in line, BEGIN_S)
    assert not engine.answers()
    engine.send(signal.SIGCONT)
    passes(campaign, ["mtp0-a", "mtp0-b"])
    assert containers(client, campaign.out) == []


def test_82_a_container_that_no_signal_ends(
    bench: Benches, engine: OwnDocker, client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    """Frozen by the kernel, above where Docker could thaw it: not even SIGKILL ends it."""
    if not os.access(engine.freezer, os.W_OK):
        pytest.skip("needs the freezer of cgroup v1: in v2 a frozen process can be killed")
    options = [*quick("--fault", "ignores-term"), "--mtp", "0"]
    limited(quick, 3, 3)
    campaign = bench(tmp_path / "out", *options)
    campaign.event("stage", BEGIN_S, label="mtp0-a", text="stopping")
    (container,) = containers(client, campaign.out)
    engine.freezer.write_text("FROZEN")
    try:
        code, evidence = campaign.finish(END_S), campaign.evidence
        (attempt,) = evidence["attempts"]  # none was started beside it
        stop = attempt["server"]["stop"]
        assert (stop["killed"], stop["gone"], stop["state"]["running"]) == (True, False, True)
        assert "the container could not be removed" in stop["note"]
        assert any("fresh: " in said and "was not gone after its stop" in said for said in failed_gates(evidence))
        assert "bench clean removes what is left of it" in " ".join([evidence["conclusion"], *evidence["reasons"]])
        assert code == evidence["exit_code"] == 2
        assert_verifies(campaign.directory, evidence["status"])
        assert [left.id for left in containers(client, campaign.out)] == [container.id]
    finally:
        engine.freezer.write_text("THAWED")
    code, _ = clean(campaign.out)
    assert code == 0
    assert containers(client, campaign.out) == []
