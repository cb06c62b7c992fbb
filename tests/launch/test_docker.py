"""The docker engine against a real Docker engine and real containers."""

import dataclasses
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from harness.errors import FreshnessError, LaunchError
from harness.lanes import Bind, Image, Limits
from harness.launch.docker import DockerEngine, connect, list_ours, remove_ours
from harness.launch.proof import applied_from_inspect, differences
from harness.launch.server import Endpoint, ImageFacts, Places, RunningServer
from harness.plan import ServerPlan
from harness.redact import Redactor
from tests.launch.conftest import BASE, MEBI, SETTINGS, TAG, healthy, tiny_plan, until

pytestmark = pytest.mark.docker


@pytest.fixture
def engine(docker_client: Any) -> DockerEngine:
    return DockerEngine(connect=lambda: docker_client)


@pytest.fixture
def facts(engine: DockerEngine, tiny_image: Image) -> ImageFacts:
    return engine.image(tiny_image)


@pytest.fixture
def start(engine: DockerEngine, facts: ImageFacts, places: Places) -> Iterator[Any]:
    started: list[RunningServer] = []

    def begin(plan: ServerPlan, where: Places = places) -> RunningServer:
        started.append(engine.start(plan, where, facts))
        return started[-1]

    yield begin
    for server in started:
        assert server.stop().gone


class Relay:
    """Stands before Docker's socket, so that the engine can be made to go away and come back."""

    def __init__(self, path: Path, real: str) -> None:
        self.path, self._real = path, real
        self._open: list[socket.socket] = []
        self.up()

    def up(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(50)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._real)
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def down(self) -> None:
        self.path.unlink(missing_ok=True)
        for end in [self._listener, *self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open = []

    def connect(self) -> Any:
        return docker.DockerClient(base_url=f"unix://{self.path}", timeout=20)


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    real = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not real.startswith("unix://"):
        pytest.skip("Docker is not reached by a socket of this host")
    relay = Relay(tmp_path / "d.sock", real.removeprefix("unix://"))
    yield relay
    relay.down()


def ours(client: Any) -> list[Any]:
    return [container for container in list_ours(client) if container.campaign == "camp-1"]


def test_what_runs_is_what_was_asked(start: Any, facts: ImageFacts, places: Places, docker_client: Any) -> None:
    plan = tiny_plan("docker", tiny="write,spoil", image_id=facts.id)
    server = start(plan)
    until(lambda: healthy(server.endpoint))
    applied = server.applied()
    assert differences(plan, applied, facts) == []
    assert applied.mounts == ["<cache>:/cache:rw", "<model>:/model:ro"]
    assert applied.ports == ["127.0.0.1:<port>:8000"]
    assert applied.devices == ["/dev/full"]
    assert applied.group_add == [str(Path("/dev/full").stat().st_gid)]
    assert applied.memory == applied.memory_swap == 96 * MEBI
    assert applied.env["VLLM_CACHE_ROOT"] == "<cache>/vllm"
    assert applied.env["IMAGE_KNOB"] == applied.image_env["IMAGE_KNOB"] == "1"
    assert applied.arguments[1] == "<model>"
    assert server.owns_port() is True
    assert server.state().running
    (mine,) = ours(docker_client)
    assert (mine.id, mine.label, mine.running) == (server.server_id, "mtp0-a", True)
    assert (places.cache / "vllm" / "compiled").read_text() == "x"
    assert str(places.cache.parent) not in str(server.last_inspect())
    assert server.last_inspect()["Image"] == facts.id
    assert "Health" not in docker_client.api.inspect_container(server.server_id)["State"]

    record = server.stop()
    assert (record.killed, record.gone, record.state.exit_code, record.note) == (False, True, 0, "")
    assert server.stop() == record
    assert ours(docker_client) == []
    assert places.log.read_text() == "starting\nmodel: Read-only file system\n"
    assert (places.model / "weights").read_text() == "x"  # type: ignore[operator]
    assert server.state() == record.state
    with pytest.raises(LaunchError, match="can't be read back"):
        server.applied()


def port_of(inspect: dict[str, Any]) -> int:
    return int(inspect["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"])


def test_the_command_starts_the_same_container(
    engine: DockerEngine, facts: ImageFacts, places: Places, docker_client: Any
) -> None:
    spaced = places.cache.with_name("a cache, with a comma")
    spaced.mkdir()
    plan = tiny_plan("docker")
    line = engine.command(plan, dataclasses.replace(places, cache=spaced), facts)
    container_id = subprocess.run(shlex.split(line), capture_output=True, text=True, check=True).stdout.strip()
    try:
        inspect = docker_client.api.inspect_container(container_id)
        until(lambda: healthy(Endpoint("127.0.0.1", port_of(inspect))))
    finally:
        assert remove_ours(docker_client, container_id, stop_s=5, gone_s=10)
    assert "--rm" not in shlex.split(line)
    redactor = Redactor({str(spaced): "<cache>", str(places.model): "<model>"})
    applied = applied_from_inspect(inspect, redactor, image_env=facts.env, host_port=port_of(inspect))
    assert differences(plan, applied, facts) == []


def test_the_command_needs_no_docker_and_no_image(places: Places) -> None:
    line = DockerEngine(connect=lambda: pytest.fail("connected")).command(
        tiny_plan("docker", image="r276"), places, None
    )
    assert "'<image r276>'" in line
    assert "127.0.0.1::8000" in line


def test_a_knob_that_did_not_arrive_is_found(start: Any, facts: ImageFacts) -> None:
    server = start(tiny_plan("docker"))
    until(lambda: healthy(server.endpoint))
    asked = tiny_plan("docker")
    asked = asked.model_copy(update={"env": {**asked.env, "IMAGE_KNOB": "0", "NEVER": "1"}})
    assert differences(asked, server.applied(), facts) == [
        "environment variable IMAGE_KNOB is requested as '0' but is '1'",
        "environment variable NEVER is requested as '1' but the server has none",
    ]


def test_a_server_deaf_to_the_stop_signal_is_killed_and_recorded(start: Any) -> None:
    server = start(tiny_plan("docker", tiny="ignore-term", limits=Limits(stop_s=0.5, gone_s=10)))
    until(lambda: healthy(server.endpoint))
    record = server.stop()
    assert (record.killed, record.gone, record.state.exit_code) == (True, True, 137)
    assert record.seconds >= 0.5


def test_a_server_that_exits_at_once_tells_its_code_and_its_whole_log(start: Any, places: Places) -> None:
    server = start(tiny_plan("docker", tiny="exit"))
    until(lambda: not server.state().running)
    assert server.state().exit_code == 7
    assert places.log.read_text() == "starting\nlast words of this server\n"
    assert server.log_bytes() == places.log.stat().st_size
    assert server.owns_port() is False
    record = server.stop()
    assert (record.killed, record.seconds, record.state.exit_code) == (False, 0.0, 7)


def test_log_bytes_are_kept_as_they_came(start: Any, places: Places) -> None:
    server = start(tiny_plan("docker", tiny="split"))
    whole = b"starting\ncaf\xc3\xa9 \xff end\n"
    until(lambda: server.log_bytes() == len(whole))  # while it runs
    assert places.log.read_bytes() == whole
    server.stop()
    assert places.log.read_bytes() == whole
    assert [entry.name for entry in places.log.parent.iterdir() if "log" in entry.name] == ["server.log"]


def test_a_server_out_of_memory_says_so(start: Any) -> None:
    server = start(tiny_plan("docker", tiny="eat", container=SETTINGS.model_copy(update={"memory": 32 * MEBI})))
    until(lambda: not server.state().running)
    assert server.state().oom_killed is True
    assert "killed for memory" in server.state().sentence()


def test_a_container_removed_by_somebody_else_is_gone(start: Any, docker_client: Any) -> None:
    server = start(tiny_plan("docker"))
    docker_client.api.remove_container(server.server_id, force=True)
    assert server.state().sentence() == "the server has ended with an unknown exit code: the container is gone"
    assert server.owns_port() is False
    assert server.stop().gone


def test_an_engine_that_goes_away_and_comes_back(facts: ImageFacts, places: Places, relay: Relay) -> None:
    server = DockerEngine(connect=relay.connect).start(tiny_plan("docker", tiny="split"), places, facts)
    until(lambda: healthy(server.endpoint))
    relay.down()
    assert "the Docker engine doesn't answer" in server.state().error
    assert not server.state().running
    assert server.owns_port() is None
    with pytest.raises(LaunchError, match="can't be read back: the Docker engine doesn't answer"):
        server.applied()
    relay.up()
    assert server.state().running
    record = server.stop()
    assert (record.gone, record.state.exit_code) == (True, 0)
    assert places.log.read_bytes() == b"starting\ncaf\xc3\xa9 \xff end\n"


def test_a_broken_log_stream_is_taken_up_without_a_gap_or_a_double(
    facts: ImageFacts, places: Places, relay: Relay
) -> None:
    server = DockerEngine(connect=relay.connect).start(tiny_plan("docker", tiny="chatty"), places, facts)
    until(lambda: server.log_bytes() > 300)
    relay.down()
    before = server.log_bytes()
    relay.up()
    until(lambda: server.log_bytes() > before + 300)
    lines = places.log.read_bytes().splitlines()[1:-1]  # the last may be half written
    assert lines == [b"line %d" % number for number in range(len(lines))]
    assert server.stop().gone


def test_a_taken_port_is_one_sentence_and_leaves_nothing(
    start: Any, places: Places, taken_port: int, docker_client: Any
) -> None:
    with pytest.raises(
        LaunchError, match=f"port {taken_port} on 127.0.0.1 is already taken by another server; stop it"
    ):
        start(tiny_plan("docker"), dataclasses.replace(places, port=taken_port))
    assert not places.cache.exists()
    assert ours(docker_client) == []


def test_what_docker_refuses_leaves_nothing(start: Any, places: Places, docker_client: Any) -> None:
    for settings in ({"ulimits": {"nonsense": 1}}, {"devices": ["/dev"], "cap_add": ["NO_SUCH"]}):
        with pytest.raises(LaunchError, match="Docker can't start server mtp0-a: ") as caught:
            start(tiny_plan("docker", container=SETTINGS.model_copy(update=settings)))
        assert "\n" not in str(caught.value)
        assert not places.cache.exists()
        assert not places.log.exists()
        assert ours(docker_client) == []


def test_an_existing_cache_is_refused_and_kept(start: Any, places: Places, docker_client: Any) -> None:
    places.cache.mkdir()
    (places.cache / "graph").write_text("compiled")
    with pytest.raises(FreshnessError, match="exists already"):
        start(tiny_plan("docker"))
    assert (places.cache / "graph").read_text() == "compiled"
    assert ours(docker_client) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"group_of": "/dev/no-such-node*"}, "needs a card"),
        ({"devices": ["/dev/no-such-device"]}, "this host has no /dev/no-such-device"),
        ({"binds": [Bind(source="/dev/no-such-folder", target="/x")]}, "this host has no /dev/no-such-folder"),
    ],
)
def test_a_host_without_a_card_is_told_so(start: Any, places: Places, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LaunchError, match=sentence):
        start(tiny_plan("docker", container=SETTINGS.model_copy(update=change)))
    assert not places.cache.exists()


def test_a_missing_model_directory_is_told(start: Any, places: Places) -> None:
    for model, sentence in ((None, "needs a model directory"), (places.log, "doesn't exist")):
        with pytest.raises(LaunchError, match=sentence):
            start(tiny_plan("docker"), dataclasses.replace(places, model=model))


def test_a_leftover_of_a_killed_campaign_is_listed_and_removed(
    engine: DockerEngine, facts: ImageFacts, places: Places, docker_client: Any
) -> None:
    left = engine.start(tiny_plan("docker"), places, facts)
    until(lambda: healthy(left.endpoint))
    (mine,) = ours(docker_client)
    assert mine.running
    assert mine.pid is not None
    assert remove_ours(docker_client, mine.id, stop_s=5, gone_s=10)
    assert ours(docker_client) == []
    assert left.stop().gone


class TestImage:
    """Pins, references, labels, entrypoint."""

    def test_by_pin(self, engine: DockerEngine, tiny_image: Image, facts: ImageFacts) -> None:
        found = engine.image(tiny_image.model_copy(update={"ids": ["sha256:" + "0" * 64, facts.id], "references": []}))
        assert found.id == facts.id
        assert found.storage_driver
        assert found.env["IMAGE_KNOB"] == "1"

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (
                {"ids": ["sha256:" + "0" * 64], "references": []},
                r"image tiny \(pinned id sha256:0+\) is not on this host; build it",
            ),
            (
                {"ids": ["sha256:" + "0" * 64], "references": [TAG]},
                "has id sha256:[0-9a-f]{64}, which is not the pinned",
            ),
            (
                {"references": ["b70-bench-launch-test:absent"]},
                "image tiny is not on this host; build it",
            ),
            ({"references": [BASE]}, "label bench.test = None, but 'tiny' is needed"),
            ({"entrypoint": ["vllm", "serve"]}, "has entrypoint"),
        ],
    )
    def test_refused(self, engine: DockerEngine, tiny_image: Image, change: dict[str, Any], sentence: str) -> None:
        with pytest.raises(LaunchError, match=sentence):
            engine.image(tiny_image.model_copy(update=change))


def test_no_engine_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(LaunchError, match=r"the Docker engine can't be reached .*; start Docker"):
        connect()
