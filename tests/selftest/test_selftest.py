"""The self-test's source keeps its schedule, and the client's figures account for everything it sent."""

import json
import math
import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest

from harness.errors import LaunchError
from harness.lanes import load_image
from harness.measure.selftest import Proxy, SelfTest
from harness.selftest import run
from harness.selftest.run import EVENTS, GAP_MS, TTFT_MS, ask, compare_paths, local_source, measure, self_test, stamped
from harness.wire.completion import parse_completion
from harness.wire.exchange import Ending
from tests.bench import bench

ROOT = Path(__file__).resolve().parents[2]


def test_source_answers_like_a_completions_endpoint() -> None:
    with local_source(ttft_ms=5, gap_ms=1, ids=3) as port:
        (exchange,), transport = ask("127.0.0.1", port, 1, events=20)
    completion = parse_completion(exchange)
    assert completion.complete and completion.finish_reason == "length"
    assert completion.token_ids == tuple(range(10, 70))
    assert completion.chunk_sizes == (3,) * 20
    assert completion.usage is not None
    assert (completion.usage.completion_tokens, completion.usage.cached_tokens) == (60, 0)
    assert transport.timestamp_source in ("SO_TIMESTAMPNS", "user-space clock")


def test_source_never_sends_before_its_schedule_and_we_never_read_before_it_sends() -> None:
    """Event i is due at arrival + ttft + i x gap; the request can't have arrived before it was released."""
    users, events = 8, 40
    with local_source(ttft_ms=20, gap_ms=2) as port:
        exchanges, _ = ask("127.0.0.1", port, users, events=events)
    for exchange in exchanges:
        assert exchange.ending is Ending.CLOSED
        pairs = stamped(exchange)
        assert len(pairs) == events
        for number, (ours, theirs) in enumerate(pairs):
            assert theirs >= exchange.t0_wall_ns + (20 + 2 * number) * 1_000_000
            assert ours >= theirs


def test_requests_of_another_length_are_answered_so() -> None:
    with local_source(ttft_ms=1, gap_ms=0.1) as port:
        for events in (1, 2, 300):
            (exchange,), _ = ask("127.0.0.1", port, 1, events=events)
            assert len(parse_completion(exchange).token_ids) == events


def test_512_streams_at_once_lose_nothing() -> None:
    with local_source(ttft_ms=100, gap_ms=5) as port:
        exchanges, _ = ask("127.0.0.1", port, 512, events=4)
    assert [exchange.ending for exchange in exchanges] == [Ending.CLOSED] * 512
    assert sum(len(stamped(exchange)) for exchange in exchanges) == 512 * 4


def test_every_figure_of_a_point_is_there() -> None:
    with local_source() as port:
        point, _ = measure("127.0.0.1", port, 16)
    assert (point.users, point.events, point.lost) == (16, 16 * EVENTS, 0)
    assert all(value is not None and math.isfinite(value) for value in point.model_dump().values())
    floor_s = (TTFT_MS + (EVENTS - 1) * GAP_MS) / 1e3
    assert point.events_per_s is not None and 0 < point.events_per_s <= 16 * EVENTS / floor_s
    assert point.cpu_us_per_event is not None and point.cpu_us_per_event > 0
    assert point.ttft_error_p50_ms is not None and point.ttft_error_max_ms is not None
    assert 0 <= point.ttft_error_p50_ms <= point.ttft_error_max_ms
    assert point.timestamp_error_p50_us is not None and point.timestamp_error_p99_us is not None
    assert 0 <= point.timestamp_error_p50_us <= point.timestamp_error_p99_us
    assert point.lag_p99_us is not None and point.lag_p99_us >= 0
    assert 0 <= point.coalesced < point.events


def test_lost_events_are_counted() -> None:
    """The source is killed in the middle."""
    with local_source(ttft_ms=1, gap_ms=20) as port:
        (pid,) = (
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and str(run.SOURCE).encode() in _cmdline(entry) and _parent(entry) == os.getpid()
        )
        threading.Timer(0.4, os.kill, (pid, signal.SIGKILL)).start()
        point, _ = measure("127.0.0.1", port, 2)
    assert point.lost == 2 * EVENTS - point.events > 0


def _cmdline(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def test_self_test_says_why_there_is_no_proxy() -> None:
    said: list[str] = []
    result = self_test(users=(1, 4), no_proxy="not applicable: --direct goes around it", progress=said.append)
    assert [point.users for point in result.points] == [1, 4]
    assert all(point.lost == 0 for point in result.points)
    assert (result.proxy, result.proxy_note) == (None, "not applicable: --direct goes around it")
    assert said == ["self-test: 1 streams", "self-test: 4 streams"]
    assert SelfTest.model_validate_json(result.model_dump_json()) == result


def test_proxy_that_cannot_be_measured_is_unknown_and_no_failure() -> None:
    def proxy() -> Proxy:
        raise LaunchError("there is no Docker here; start it")

    result = self_test(users=(1,), proxy=proxy)
    assert (result.proxy, result.proxy_note) == (None, "unknown: there is no Docker here; start it")


def test_two_paths_are_compared_by_their_medians() -> None:
    with local_source(ttft_ms=2, gap_ms=1) as port:
        found = compare_paths(("127.0.0.1", port), ("127.0.0.1", port))
    assert found.added_p50_us == found.published_p50_us - found.direct_p50_us
    assert found.published_p50_us > 0 and found.direct_p50_us > 0


def test_source_that_sends_nothing_is_named() -> None:
    with local_source() as port:
        pass
    with pytest.raises(LaunchError, match=f"the self-test's source at 127.0.0.1:{port} sent no event"):
        run.delay_p50_us("127.0.0.1", port, requests=2)


def test_source_runs_without_site_packages_and_on_an_old_python() -> None:
    """It runs inside images: no import beyond the standard library, no syntax after Python 3.9."""
    import ast

    tree = ast.parse(run.SOURCE.read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)


def test_command_prints_a_table(tmp_path: Path) -> None:
    done = bench("selftest", "--users", "1,2", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    rows = [re.findall(r"[^│┃\s][^│┃]*", line) for line in done.out.splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows] == ["1", "2"]
    assert [row[2].strip() for row in rows] == ["0", "0"]
    assert "Docker's port proxy: not applicable: no container" in done.out


def test_command_speaks_json(tmp_path: Path) -> None:
    done = bench("selftest", "--users", "3", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = SelfTest.model_validate(json.loads(done.out))
    assert [(point.users, point.events, point.lost) for point in result.points] == [(3, 3 * EVENTS, 0)]


def test_command_refuses_wrong_users(tmp_path: Path) -> None:
    done = bench("selftest", "--users", "0", cwd=tmp_path)
    assert done.code == 64 and done.err.startswith("bench: ") and done.err.count("\n") == 1
    assert "--users 0" in done.sentence


@pytest.mark.docker
def test_what_a_killed_self_test_leaves_ends_at_its_stop_signal() -> None:
    from harness.launch.container import Container
    from harness.launch.docker import DockerEngine
    from harness.selftest.proxy import _source

    try:
        found = DockerEngine().image(load_image(str(ROOT / "images" / "vllm-cpu.toml")))
    except LaunchError as error:
        pytest.skip(f"there is no Docker engine with the image here ({error})")
    with _source(found.id) as source:
        container = Container(source.client, str(source.id))
        assert container.wait_until(("running",), 30)
        assert container.end(stop_s=30, gone_s=30) is False, "it was killed only after 30 s"
        assert container.look() == "ended"


@pytest.mark.docker
def test_docker_proxy_is_measured_in_a_container_that_is_gone_afterwards() -> None:
    import docker
    from docker.errors import DockerException

    from harness.selftest.proxy import measure_proxy

    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        pytest.skip("there is no Docker engine here")
    try:
        found = measure_proxy(load_image(str(ROOT / "images" / "vllm-cpu.toml")))
    except LaunchError as error:
        if "image" in str(error):
            pytest.skip(f"the image is not here ({error})")
        raise
    left = client.containers.list(all=True, filters={"name": "b70-bench-selftest-"})
    client.close()
    assert left == []
    assert found.published_p50_us > 0 and found.direct_p50_us > 0
    assert found.added_p50_us == pytest.approx(found.published_p50_us - found.direct_p50_us)
