"""What the ``fresh`` proof is for, made to happen: a used compile cache, and servers that aren't what was asked."""

import io
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.data import find
from harness.errors import FreshnessError
from harness.evidence.fresh import NO_COMPILATION, known_before_prompts
from harness.evidence.schema import ServerRecord
from harness.lanes import load_image, load_lane
from harness.launch import docker as docker_module
from harness.launch.control import ControlClient
from harness.launch.docker import DockerEngine, connect
from harness.launch.proof import compile_log_findings
from harness.launch.readiness import wait_ready
from harness.launch.resolved import resolve
from harness.launch.server import Places
from harness.plan import ServerPlan, server_plan
from harness.wire.capture import load_capture
from tests.e2e.bench import Bench, Benches, assert_verifies, containers
from tests.e2e.conftest import SIMULATED, QuickLane, model
from tests.launch.conftest import BASE

pytestmark = [pytest.mark.docker, pytest.mark.vllm]

COMPILED_START_S = 1500.0
"""A compiled start takes one to three minutes on two idle cores, and they are seldom idle."""


def ended_before_the_first_prompt(campaign: Bench, sentence: str, seconds: float) -> dict[str, Any]:
    """The record of its only server, after the checks that every such campaign must pass."""
    assert campaign.finish(seconds) == 2
    evidence = campaign.evidence
    assert (evidence["status"], [a["label"] for a in evidence["attempts"]]) == ("invalid", ["mtp0-a"])
    assert sentence in evidence["conclusion"]
    path = campaign.directory / "attempts" / "mtp0-a" / "capture.jsonl.zst"
    assert not path.exists() or load_capture(path).of_kind("suite") == []
    assert_verifies(campaign.directory, "invalid")
    return dict(evidence["attempts"][0]["server"])


class Meddler:
    """Docker's socket with somebody behind it who rewrites what the launcher asks for, byte for byte."""

    def __init__(self, path: Path, asked: bytes, given: bytes) -> None:
        assert len(asked) == len(given), "the length of a request's body stays"
        self.path, self._swap, self.swapped = path, (asked, given), 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(50)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect("/var/run/docker.sock")
                threading.Thread(target=self._copy, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near, False), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if asking and self._swap[0] in data:
                    self.swapped += 1
                    data = data.replace(*self._swap)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def meddler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Meddler]:
    if not Path("/var/run/docker.sock").exists():
        pytest.skip("Docker is not reached by the usual socket")
    meddler = Meddler(tmp_path / "d.sock", b"PYTHONHASHSEED=0", b"PYTHONHASHSEED=7")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{meddler.path}")
    yield meddler
    meddler.close()


def with_variable(options: list[str]) -> list[str]:
    """The quick lane, which then asks for a variable."""
    lane = Path(options[options.index("--launcher") + 1])
    lane.write_text(lane.read_text() + '[env]\nPYTHONHASHSEED = "0"\n')
    return options


def test_a_variable_changed_on_the_way_to_docker(
    bench: Benches, docker_client: Any, quick: QuickLane, meddler: Meddler, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *with_variable(quick()), "--mtp", "0")
    said = "environment variable PYTHONHASHSEED is requested as '0' but is '7'"
    server = ended_before_the_first_prompt(campaign, said, 120)
    assert meddler.swapped == 1
    assert server["differences"] == [said]
    assert server["applied"]["env"]["PYTHONHASHSEED"] == "7"
    assert server["readiness"] is None, "it is refused before it is waited for"
    assert containers(docker_client, campaign.out) == []


def built(client: Any, tag: str, dockerfile: str, files: dict[str, bytes]) -> str:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, data in {"Dockerfile": dockerfile.encode(), **files}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
    return tag


@pytest.fixture
def shimmed(docker_client: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """An image whose entrypoint is asked for and shown as it should be, and whose program is another's."""
    base, program, real = request.param
    shim = f'#!/bin/sh\nexport PYTHONHASHSEED=7 VLLM_CPU_KVCACHE_SPACE=2\nexec {real} "$@"\n'
    path = "/opt/shim:/opt/vllm-cpu/bin:/usr/local/bin:/usr/bin:/bin"
    tag = built(
        docker_client,
        f"b70-bench-e2e-test:shim-{program}",
        f"FROM {base}\nCOPY shim /opt/shim/{program}\nENV PATH={path}\n",
        {"shim": shim.encode()},
    )
    yield tag
    docker_client.images.remove(tag, force=True)


@pytest.mark.parametrize("shimmed", [(SIMULATED, "python3", "/opt/vllm-cpu/bin/python3")], indirect=True)
def test_a_variable_changed_within_the_image(
    bench: Benches, docker_client: Any, quick: QuickLane, shimmed: str, tmp_path: Path
) -> None:
    options = with_variable(quick())
    image = Path(options[options.index("--image") + 1])
    image.write_text(image.read_text().replace(quick.image, shimmed))
    campaign = bench(tmp_path / "out", *options, "--mtp", "0")
    said = "environment variable within the container PYTHONHASHSEED is requested as '0' but is '7'"
    server = ended_before_the_first_prompt(campaign, said, 120)
    assert server["differences"] == [], "docker inspect shows what was asked"
    assert server["applied"]["env"]["PYTHONHASHSEED"] == "0"
    assert server["within"]["env"]["PYTHONHASHSEED"] == "7"
    assert containers(docker_client, campaign.out) == []


@pytest.mark.parametrize("shimmed", [(BASE, "vllm", "/opt/vllm-cpu/bin/vllm")], indirect=True)
def test_a_variable_changed_within_a_real_vllm(
    real_vllm: None, bench: Benches, docker_client: Any, tiny_model: Path, shimmed: str, tmp_path: Path
) -> None:
    text = find("images", "vllm-cpu", ".toml").read_text(encoding="utf-8")
    image = tmp_path / "vllm-cpu.toml"
    image.write_text(text.replace(BASE, shimmed), encoding="utf-8")
    options = ("--launcher", "tiny-cpu", "--model-dir", str(tiny_model), "--image", str(image), "--mtp", "0")
    campaign = bench(tmp_path / "out", *options)
    words = "environment variable within the container PYTHONHASHSEED is requested as '0' but is '7'"
    server = ended_before_the_first_prompt(campaign, words, COMPILED_START_S)
    assert server["applied"]["env"]["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert server["within"]["env"]["VLLM_CPU_KVCACHE_SPACE"] == "2"
    # What only vLLM reads is told by vLLM itself, where dev mode is on.
    resolved = campaign.evidence["attempts"][0]["proof"]["resolved"]
    assert resolved["environment"]["VLLM_CPU_KVCACHE_SPACE"] == 2
    assert containers(docker_client, campaign.out) == []


class Starts:
    """Starts servers of one plan by the engine itself, without a campaign."""

    def __init__(self, plan: ServerPlan, folder: Path, model: Path) -> None:
        self.plan, self._folder, self._model = plan, folder, model
        self._engine = DockerEngine(connect)
        self._facts = self._engine.image(load_image("vllm-cpu"))

    def __call__(self, name: str) -> tuple[ServerRecord, bytes, str]:
        """On the one cache directory: its record, its log when it was ready, and its /server_info."""
        log = self._folder / f"{name}.log"
        places = Places(f"proof-{name}", self._model, self._folder / "cache", log)
        server = self._engine.start(self.plan, places, self._facts)
        control = ControlClient(server.endpoint)
        try:
            ready = wait_ready(
                server,
                self.plan,
                control,
                read_log=log.read_bytes,
                ask_one_token=lambda: None,
                progress=lambda _: None,
            )
            record = ServerRecord(label=self.plan.label, requested=self.plan, readiness=ready, image=self._facts)
            record.applied, record.within = server.applied(), server.within(self.plan)
            info = control.get("server-info").body
        finally:
            control.close()
            stop = server.stop()
        assert stop.gone
        return record, log.read_bytes(), info


def test_a_used_compile_cache_is_refused_and_detected(
    real_vllm: None, docker_client: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = server_plan(
        load_lane("tiny-cpu-compiled"),
        label="mtp0-a",
        depth=0,
        tensor_parallel=1,
        shape="strict",
        engine="docker",
        image=load_image("vllm-cpu"),
    )
    start = Starts(plan, tmp_path, tiny_model)
    record, log, info = start("first")
    found = compile_log_findings(log, plan.compiles)
    assert (found.verdict, found.loaded) == ("fresh", 0)
    assert found.compiled >= 1
    assert known_before_prompts(record, [], log) == []
    resolved = resolve(info, log, plan.env)
    assert (resolved.compilation_mode, resolved.cudagraph_mode) == ("DYNAMO_TRACE_ONCE", "NONE")
    assert resolved.unknown == []
    assert any((tmp_path / "cache" / "vllm").rglob("model")), "the compiled model lies in the cache directory"

    with pytest.raises(FreshnessError, match="the cache directory cache exists already"):
        start("second")

    monkeypatch.setattr(docker_module, "make_cache", lambda _: None)  # by hand, what the launcher refuses
    record, log, _ = start("forced")
    found = compile_log_findings(log, plan.compiles)
    assert (found.verdict, found.loaded) == ("not fresh", 1)
    (sentence,) = known_before_prompts(record, [], log)
    assert sentence == "the log tells of a compiled graph that was in the cache (1 times)"
    assert known_before_prompts(record, [], b"") == [NO_COMPILATION]


@pytest.fixture(scope="module")
def compiled_campaign(real_vllm: None, docker_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The base pair of the compiled lane; finished."""
    benches = Benches(docker_client)
    out = tmp_path_factory.mktemp("compiled") / "experiments"
    directory = str(model("tiny-qwen35"))
    campaign = benches(out, "--launcher", "tiny-cpu-compiled", "--model-dir", directory, "--mtp", "0", "--tp", "1")
    try:
        campaign.finish(2 * COMPILED_START_S)
        yield campaign
    finally:
        benches.close()


def test_a_compiled_pair_is_exact_and_says_how_it_was_compiled(compiled_campaign: Bench) -> None:
    evidence = compiled_campaign.evidence
    assert [(gate["name"], gate["exact"], gate["total"]) for gate in evidence["gates"]] == [("G1", 12, 12)]
    for attempt in evidence["attempts"]:
        proof = attempt["proof"]
        assert (proof["compilation"], proof["loaded"], proof["resolved"]["unknown"]) == ("fresh", 0, [])
        assert proof["compiled"] >= 1
        (fresh,) = [gate for gate in attempt["gates"] if gate["name"] == "fresh"]
        assert fresh["passed"], json.dumps(fresh["failures"])
        assert attempt["server"]["within"]["unknown"] == ""
        assert attempt["server"]["cache_before"]["entries"] == 0 < attempt["server"]["cache_after"]["entries"]
    assert_verifies(compiled_campaign.directory, evidence["status"])
