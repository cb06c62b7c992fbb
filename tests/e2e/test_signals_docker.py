"""SIGINT, SIGTERM, SIGHUP, Ctrl-C of a terminal and SIGKILL at every stage of a campaign on real containers.

Each of them ends it as contract section 4 says, leaves nothing running, and the campaign goes on by ``--resume``.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import BENCH, Bench
from tests.e2e.crashes import (
    END_S,
    Case,
    assert_goes_on,
    assert_nothing_left,
    assert_recorded,
    campaign_below,
    command,
    hashes,
    session_of,
)
from tests.launch.conftest import until

pytestmark = pytest.mark.docker

BEGIN_S = 90.0


@dataclass(frozen=True)
class Blow:
    """What is sent, and whether to the whole process group, as a terminal does it with Ctrl-C."""

    name: str
    number: signal.Signals
    group: bool = False

    def strike(self, bench: Bench) -> None:
        (bench.send_all if self.group else bench.send)(self.number)


BLOWS = (
    Blow("SIGINT", signal.SIGINT),
    Blow("SIGTERM", signal.SIGTERM),
    Blow("SIGHUP", signal.SIGHUP),
    Blow("Ctrl-C", signal.SIGINT, group=True),
    Blow("SIGKILL", signal.SIGKILL),
)


def said(event: str, label: str = "mtp0-a", **fields: object) -> Callable[[Bench], None]:
    def wait(bench: Bench) -> None:
        bench.event(event, BEGIN_S, label=label, **fields)

    return wait


def stage(text: str, label: str = "mtp0-a") -> Callable[[Bench], None]:
    def wait(bench: Bench) -> None:
        bench.line(lambda line: f'"label": "{label}", "text": "{text}' in line, BEGIN_S)

    return wait


STAGES: dict[str, Callable[[Bench], None]] = {
    "starting": stage("starting"),
    "waiting for readiness": stage("starting, "),
    "canaries before": stage("canaries before the suite, 3/"),
    "a prompt": said("row", index=1),
    "canaries after": stage("canaries after the suite, 3/"),
    "stopping": stage("stopping"),
    "between the servers": said("attempt-ended"),
    "a prompt of the second server": said("row", "mtp0-b", index=1),
    "stopping the second server": stage("stopping", "mtp0-b"),
}


@pytest.fixture(autouse=True)
def commands() -> Iterator[None]:
    yield
    command.close()


def at_once(check: Callable[[Blow], None]) -> None:
    """Every signal in a campaign of its own, three at a time."""
    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(check, blow) for blow in BLOWS]:
            job.result()


def assert_interrupted(bench: Bench, blow: Blow, status: str = "interrupted") -> None:
    """One sentence, exit code 2, and nothing left without any clean-up."""
    assert (bench.finish(END_S), bench.stderr) == (2, "")
    last, evidence = bench.events[-1], bench.evidence
    assert (last["event"], last["status"], last["exit_code"]) == ("ended", status, 2)
    assert "\n" not in last["conclusion"] and f"interrupted by {blow.number.name}" in last["conclusion"]
    assert (evidence["status"], evidence["exit_code"], evidence["withheld"]) == (status, 2, True)
    servers = [attempt["server"] for attempt in evidence["attempts"] if attempt["server"]]
    assert all(server["stop"]["gone"] for server in servers if server["applied"])


def assert_goes_on_after(case: Case, bench: Bench) -> None:
    directory = bench.directory
    assert assert_recorded(bench, directory) == "interrupted"
    kept = hashes(directory)
    resumed = case.start("--resume", str(directory))
    assert_goes_on(resumed, resumed.finish(END_S), kept)
    assert_nothing_left(case.client, case.out, *case.pids)


@pytest.mark.parametrize("name", STAGES)
def test_90_signal(docker_client: Any, simulated_image: str, tmp_path: Path, name: str) -> None:
    def check(blow: Blow) -> None:
        slow = ("--fault", "slow-start:2") if name == "waiting for readiness" else ()
        with Case(docker_client, tmp_path / blow.name, simulated_image, *slow) as case:
            bench = case.start()
            STAGES[name](bench)
            blow.strike(bench)
            if blow.number is signal.SIGKILL:
                assert bench.finish(END_S) == -signal.SIGKILL
                assert_recorded(bench, campaign_below(case.out))
                case.clean()
            else:
                assert_interrupted(bench, blow)
                assert_nothing_left(docker_client, case.out, bench.pid)
            assert_goes_on_after(case, bench)

    at_once(check)


def test_90_a_signal_while_the_last_evidence_is_written(
    docker_client: Any, simulated_image: str, tmp_path: Path
) -> None:
    """Everything is measured by then, so the campaign may also reach its verdict; it never ends without one."""

    def check(blow: Blow) -> None:
        with Case(docker_client, tmp_path / blow.name, simulated_image) as case:
            bench = case.start()
            said("attempt-ended", "mtp0-b")(bench)
            blow.strike(bench)
            code = bench.finish(END_S)
            if code in (0, 1):
                assert_goes_on(bench, code, {})
                assert_nothing_left(docker_client, case.out, *case.pids)
                return
            if code == 2:
                assert_interrupted(bench, blow)
            else:
                assert code == -blow.number == -signal.SIGKILL
                case.clean()
            assert_goes_on_after(case, bench)

    at_once(check)


def caught(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    return bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("late_s", [0.0, 0.2, 0.5])
def test_90_a_signal_before_the_directory_leaves_none(
    docker_client: Any, simulated_image: str, tmp_path: Path, late_s: float
) -> None:
    def check(blow: Blow) -> None:
        with Case(docker_client, tmp_path / blow.name, simulated_image, options=weights(tmp_path / blow.name)) as case:
            bench = case.start()
            # Python itself handles SIGINT from its start on; the command is there once it hears the others too.
            until(lambda: caught(bench.pid, signal.SIGTERM), 30)
            time.sleep(late_s)
            blow.strike(bench)
            code = bench.finish(END_S)
            if blow.number is signal.SIGKILL:
                assert code == -signal.SIGKILL
            else:
                assert (code, bench.stderr) == (2, f"bench: interrupted by {blow.number.name}\n")
            assert campaign_below(case.out) is None
            assert_nothing_left(docker_client, case.out, bench.pid)

    at_once(check)


def weights(folder: Path) -> list[str]:
    """Options for a model whose files take seconds to be hashed, before anything else happens."""
    folder.mkdir(exist_ok=True)
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "none"}')
    with (model / "model.safetensors").open("wb") as file:
        file.truncate(16 << 30)
    return ["--model-dir", str(model)]


def test_90_further_signals_while_it_stops_change_nothing(
    docker_client: Any, simulated_image: str, tmp_path: Path
) -> None:
    def check(blow: Blow) -> None:
        if blow.number is signal.SIGKILL:
            return
        with Case(docker_client, tmp_path / blow.name, simulated_image) as case:
            bench = case.start()
            said("row", index=1)(bench)
            blow.strike(bench)
            stage("stopping")(bench)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, blow.number):
                bench.send(number)
                time.sleep(0.05)
            assert_interrupted(bench, blow)
            assert_nothing_left(docker_client, case.out, bench.pid)
            assert_goes_on_after(case, bench)

    at_once(check)


def test_90_a_ladder(docker_client: Any, simulated_image: str, tmp_path: Path) -> None:
    words = ["--rungs", "1,2", "--passes", "2"]

    def check(blow: Blow) -> None:
        with Case(docker_client, tmp_path / blow.name, simulated_image, command="ladder") as case:
            bench = case.start(*words)
            bench.event("batch", BEGIN_S, rung=2, number=1)
            blow.strike(bench)
            if blow.number is signal.SIGKILL:
                assert bench.finish(END_S) == -signal.SIGKILL
                case.clean()
            else:
                assert_interrupted(bench, blow)
            assert_nothing_left(docker_client, case.out, bench.pid)
            code, found, _ = command("verify", bench.directory)
            assert (code, found["problems"], found["status"]) == (0, [], "interrupted")
            resumed = case.start(*words, "--resume", str(bench.directory))
            code = resumed.finish(END_S)
            evidence = resumed.evidence
            assert evidence["passes_done"] == 2
            assert [reason for reason in evidence["reasons"] if "the client" not in reason] == []
            assert (evidence["status"], code) in [("passed", 0), ("withheld", 1)]
            assert command("verify", bench.directory)[0] == 0
            assert_nothing_left(docker_client, case.out, *case.pids)

    at_once(check)


def test_90_kill_9_in_the_self_test_leaves_no_source(tmp_path: Path) -> None:
    """Of a ladder, or ``bench selftest``: the source of known tokens is a process of its own."""
    words = [BENCH, "selftest", "--users", "64"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True, cwd=tmp_path) as process:
        until(lambda: len(session_of(process.pid)) == 2, 30)
        process.kill()
    until(lambda: session_of(process.pid) == [], 10)
