"""What the tests of failing servers in real containers share: what holds for each, and ways to strike unnoticed."""

import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.launch.server import Endpoint
from tests.e2e.bench import Bench, Benches, Event, assert_verifies, containers, failed_but_for_load, gates
from tests.launch.conftest import healthy

BEGIN_S = 120.0
END_S = 300.0
NAME = f"sim-faults-{os.getpid()}"
"""In the name of its campaigns, by which their containers are known: other runs begin in the same second"""
STEP_US = 2000
"""A suite answer lasts about half a second, so that what is done after a row comes in the middle of the next one"""
PORT = "8000/tcp"


def ours(client: Any, campaign: Bench) -> Any:
    """The one container of the campaign, as the engine describes it."""
    (container,) = containers(client, campaign.out)
    return client.containers.get(container.id)


def after_row(campaign: Bench, index: int = 1) -> None:
    campaign.event("row", BEGIN_S, label="mtp0-a", index=index)


def ended_invalid(campaign: Bench, client: Any) -> tuple[str, Event]:
    """What holds for every server that failed: (the sentence, the attempt's evidence)."""
    assert campaign.finish(END_S) == 2
    last, evidence = campaign.events[-1], campaign.evidence
    assert (last["event"], last["exit_code"], last["status"]) == ("ended", 2, "invalid")
    (attempt,) = evidence["attempts"]
    assert (attempt["status"], attempt["class_balanced_median"]) == ("invalid", None)
    assert attempt["error"].startswith("mtp0-a: ")
    assert attempt["error"].splitlines()[0] in last["conclusion"]
    assert attempt["server"]["stop"]["gone"] is True
    assert containers(client, campaign.out) == []
    assert_verifies(campaign.directory, "invalid")
    return attempt["error"], attempt


def resume_passes(bench: Benches, client: Any, campaign: Bench, options: list[str]) -> None:
    """The same campaign goes on with a fresh server, beside the one that failed, to its verdict."""
    resumed = bench(campaign.out, *options, "--resume", str(campaign.directory))
    code = resumed.finish(END_S)
    evidence = resumed.evidence
    assert [(attempt["directory"], attempt["status"]) for attempt in evidence["attempts"]] == [
        ("mtp0-a", "invalid"),
        ("mtp0-a.2", "complete"),
        ("mtp0-b", "complete"),
    ]
    assert gates(evidence) == [("G1", "mtp0-a vs mtp0-b", True)]
    assert failed_but_for_load({"attempts": evidence["attempts"][1:]}) == []
    assert code == evidence["exit_code"]
    assert_verifies(campaign.directory, evidence["status"])
    assert containers(client, campaign.out) == []


@contextmanager
def stopped(campaign: Bench) -> Iterator[None]:
    """The campaign sleeps meanwhile, so that nothing is asked of its server; what was asked waits in the socket."""
    campaign.send(signal.SIGSTOP)
    try:
        yield
    finally:
        campaign.send(signal.SIGCONT)


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def idle(port: int) -> bool:
    """Whether the server has answered all that it was asked."""
    return " 0.0\n" in metrics(port).partition("vllm:num_requests_running{")[2][:80]


def host_port(container: Any) -> int:
    container.reload()
    return int(container.attrs["NetworkSettings"]["Ports"][PORT][0]["HostPort"])


def up(port: int) -> bool:
    return healthy(Endpoint("127.0.0.1", port))
