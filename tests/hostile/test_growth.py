"""Load (issue's item 5) at a small scale: 512 streams of every mode, nothing lost, nothing that grows.

``benchmarks/load.py`` runs the same for minutes; docs/load.md holds what it found.
"""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.loads.account import Account
from benchmarks.loads.campaign import COUNTED, Driver, Load, failures, run, verdicts
from benchmarks.loads.drive import Order
from benchmarks.loads.growth import Tolerance, judge_amount, judge_count
from benchmarks.loads.kinds import MODES, PATHS
from benchmarks.source import Program, Schedule, build, serving
from harness.wire.completion import parse_completion
from harness.wire.request import http_request
from harness.wire.transport import SocketTransport
from tests.bench import command, environment
from tests.ladders import launcher, options
from tests.simulated.rig import free_port

STREAMS = 512


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The source in C where there is a compiler, else in Python."""
    return build(tmp_path_factory.mktemp("source"))


def test_512_streams_in_every_mode_lose_no_event_and_leave_nothing(program: Program, tmp_path: Path) -> None:
    load = Load(STREAMS, MODES, 0, 0.5, rounds=10, warm_turns=1)
    rounds = run(program, load, tmp_path)
    assert failures(load, rounds) == []
    assert {row["mode"] for row in rounds} == set(MODES) and {row["path"] for row in rounds} == set(PATHS)
    accounts = [Account(**row["account"]) for row in rounds]
    assert [account.whole for account in accounts] == [STREAMS] * len(rounds)
    assert all(account.events_sent == account.events_captured > 0 for account in accounts)
    assert all(account.bytes_sent == account.bytes_captured for account in accounts)
    bytewise = [account for row, account in zip(rounds, accounts, strict=True) if row["mode"] == "one-byte"]
    assert all(account.writes == account.bytes_sent for account in bytewise), "every byte was a write of its own"
    slow = [(row, account) for row, account in zip(rounds, accounts, strict=True) if row["mode"] == "slow-reader"]
    assert sum(row["stops"] for row, _ in slow) > 0, "the reader was stopped"
    assert all(account.reads < account.writes for _, account in slow), "and bytes have piled up meanwhile"
    assert len(verdicts(rounds, load.warm)) == len(COUNTED) + 4, "memory was judged too"
    assert list(tmp_path.iterdir()) == [tmp_path / "ledger"], "each capture was accounted for and removed"


def test_a_leak_of_each_kind_is_found(program: Program, tmp_path: Path) -> None:
    """One descriptor, one thread, one megabyte a round: else the test above could not fail."""
    with ExitStack() as stack:
        source = stack.enter_context(serving(program, Schedule(ttft_us=1000, gap_us=1000)))
        driver = Driver(stack, source.port)
        still = {"source_descriptors": 0, "path": "batch", "mode": "steady"}
        leaking = [
            still
            | driver.round(Order(str(tmp_path / str(n)), "steady", "batch", 8, 0.05, leak="descriptor thread memory"))
            for n in range(9)
        ]
    found = {verdict.name for verdict in verdicts(leaking, 2) if verdict.grows}
    assert {"descriptors", "threads", "in_use", "rss"} <= found
    assert found.isdisjoint({"children", "source_descriptors"})


def of_process(pid: int) -> tuple[int, int, int]:
    """(descriptors, threads, resident KiB)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), int(values["Threads"]), int(values["VmRSS"].split()[0])


def test_the_simulated_server_does_not_grow_with_its_requests() -> None:
    """A connection kept with its request is some 5 KiB. Its memory settles only after thousands of requests, when the
    oldest generation of garbage has been collected a few times; a kibibyte of each request is let pass until then."""
    port, users, words = free_port(), 64, ["--step-us", "100", "--ttft-ms", "1", "--max-num-seqs", "64"]
    server = [sys.executable, "-m", "harness.simulated", "--port", str(port), *words]
    body = b'{"model":"simulated","prompt":"Say a number.","max_tokens":24,"stream":true,"ignore_eos":true}'
    after = []
    with subprocess.Popen(server, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any("startup complete" in line for line in process.stderr), "it started"
            with ExitStack() as stack:
                drain = stack.enter_context(subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL))
                stack.callback(drain.kill)
                requests = [http_request("/v1/completions", body, host="127.0.0.1", port=port)] * users
                for _ in range(20):
                    for _ in range(3):
                        exchanges = SocketTransport("127.0.0.1", port).exchange_all(requests)
                        assert all(parse_completion(exchange).status == 200 for exchange in exchanges)
                    after.append(of_process(process.pid))
        finally:
            process.kill()
    descriptors, threads, memory = map(list, zip(*after[6:], strict=True))
    assert judge_count("descriptors", descriptors).grows == ""
    assert judge_count("threads", threads).grows == ""
    assert judge_amount("rss", memory, ["all"] * len(memory), Tolerance(3 * users)).grows == ""


def test_a_ladder_keeps_of_a_pass_its_rows_alone(tmp_path: Path) -> None:
    """A pass of 64 users brings 2.5 MB, some 10 MB as exchanges; less than a tenth of a megabyte of it may stay."""
    passes, seen = 11, list[tuple[int, int, int]]()
    words = command(*options(launcher(tmp_path, step_us=300), 0, "64", passes))
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as bench:
        assert bench.stdout is not None
        for line in bench.stdout:
            if "c64: " in line and "exact" in line:
                seen.append(of_process(bench.pid))
    assert len(seen) == passes
    descriptors, threads, memory = map(list, zip(*seen[4:], strict=True))
    # The next canary (two descriptors) or batch may be under way already when a line is read.
    assert min(descriptors[-4:]) <= min(descriptors[:4]) + 2, "one more a pass would be four"
    assert judge_count("threads", threads).grows == ""
    assert judge_amount("rss", memory, ["all"] * len(memory), Tolerance(100)).grows == ""
