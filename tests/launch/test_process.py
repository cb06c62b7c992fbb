"""The process, simulated and attach engines against real processes and sockets."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import FreshnessError, LaunchError, UsageError
from harness.lanes import Image, Limits
from harness.launch import guard
from harness.launch.attach import AttachEngine, parse_url
from harness.launch.engines import create_engine
from harness.launch.process import ProcessEngine, ProcessServer, Program
from harness.launch.proof import differences
from harness.launch.roles import host_port
from harness.launch.server import Endpoint, Places
from harness.plan import ServerPlan
from tests.launch.conftest import SERVER, healthy, tiny_plan, until

IMAGE = Image(schema=1, name="r276", title="", version="0", entrypoint=[], obtain="")
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the process engine reads /proc")


@pytest.fixture
def start(places: Places) -> Iterator[Any]:
    started: list[ProcessServer] = []

    def begin(plan: ServerPlan, where: Places = places, engine: ProcessEngine | None = None) -> ProcessServer:
        started.append((engine or ProcessEngine()).start(plan, where, None))
        return started[-1]

    yield begin
    for server in started:
        assert server.stop().gone


def pid_of(server: ProcessServer) -> int:
    return int(server.server_id.split(":")[1])


@linux
class TestProcess:
    """A script in place of vllm."""

    def test_what_runs_is_what_was_asked(self, start: Any, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LEAKED", "from the user's shell")
        plan = tiny_plan("process")
        server = start(plan)
        until(lambda: healthy(server.endpoint))
        applied = server.applied()
        assert differences(plan, applied, None) == []
        assert applied.entrypoint == ["vllm", "serve"]
        assert applied.arguments[:2] == ["--model", "<model>"]
        assert applied.env["TMPDIR"] == applied.image_env["TMPDIR"] == "<tmp>"
        assert applied.env["HOME"] == "<cache>/home"
        assert applied.env["EMPTY"] == ""
        assert sorted(applied.image_env) == ["HOME", "LANG", "PATH", "TMPDIR"]
        assert "LEAKED" not in applied.env
        assert server.owns_port() is True
        assert str(places.cache.parent) not in str(server.last_inspect())
        assert os.getsid(pid_of(server)) == pid_of(server) != os.getsid(0)
        record = server.stop()
        assert (record.killed, record.gone, record.state.exit_code, record.note) == (False, True, 0, "")
        assert server.stop() == record
        assert not healthy(server.endpoint)
        assert places.log.read_text() == "starting\n"
        assert server.log_bytes() == len("starting\n")
        with pytest.raises(LaunchError, match="can't be read back"):
            server.applied()

    def test_its_temporary_directory_is_its_own_short_and_gone_with_it(self, start: Any) -> None:
        server = start(tiny_plan("process"))
        words = guard.words_of(pid_of(server))["environ"].split("\0")
        (tmp,) = (Path(word[7:]) for word in words if word.startswith("TMPDIR="))
        assert tmp.is_dir()
        assert len(str(tmp)) + 1 + len(str(uuid.uuid4())) < 107  # vLLM's sockets are named so
        server.stop()
        assert not tmp.exists()

    def test_the_command_starts_the_same_server(self, places: Places, taken_port: int) -> None:
        line = ProcessEngine().command(
            tiny_plan("process", tiny="exit"), dataclasses.replace(places, port=taken_port), None
        )
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (7, "starting\nlast words of this server\n")
        assert f"--model {places.model} --host 127.0.0.1 --port {taken_port} " in line

    def test_a_knob_that_did_not_arrive_is_found(self, start: Any) -> None:
        server = start(tiny_plan("process"))
        asked = tiny_plan("process")
        asked = asked.model_copy(
            update={"env": {**asked.env, "TINY": "other", "NEVER": "1"}, "arguments": [*asked.arguments, "--x", "1"]}
        )
        assert differences(asked, server.applied(), None) == [
            "argument --x 1 is requested but the server has none",
            "environment variable NEVER is requested as '1' but the server has none",
            "environment variable TINY is requested as 'other' but is ''",
        ]

    @pytest.mark.parametrize("how", ["exec", ""])
    def test_a_wrapper_script_that_changes_a_knob_is_found(
        self, start: Any, places: Places, tmp_path: Path, how: str
    ) -> None:
        wrapper = tmp_path / "vllm"
        wrapper.write_text(f'#!/bin/sh\nexport PYTHONHASHSEED=9\n{how} {sys.executable} {SERVER} "$@"\n')
        wrapper.chmod(0o755)
        plan = tiny_plan("process")
        server = start(plan, dataclasses.replace(places, vllm=str(wrapper)))
        until(lambda: healthy(server.endpoint))
        assert server.owns_port() is True
        found = differences(plan, server.applied(), None)
        assert "environment variable PYTHONHASHSEED is requested as '0' but is '9'" in found
        assert not [sentence for sentence in found if "argument" in sentence or "entrypoint" in sentence]

    def test_a_server_that_overwrites_its_title_is_known_as_it_began(self, start: Any) -> None:
        plan = tiny_plan("process", tiny="title")
        server = start(plan)
        until(lambda: b"VLLM::Title" in Path(f"/proc/{pid_of(server)}/cmdline").read_bytes())
        assert differences(plan, server.applied(), None) == []

    def test_deaf_to_the_stop_signal(self, start: Any) -> None:
        server = start(tiny_plan("process", tiny="ignore-term", limits=Limits(stop_s=0.3, gone_s=10)))
        until(lambda: healthy(server.endpoint))
        record = server.stop()
        assert (record.killed, record.gone, record.state.exit_code) == (True, True, 137)
        assert record.state.error == "ended by SIGKILL"
        assert record.seconds >= 0.3

    def test_a_worker_in_a_session_of_its_own_goes_too(self, start: Any) -> None:
        server = start(tiny_plan("process", tiny="orphan", limits=Limits(stop_s=0.3, gone_s=10)))
        until(lambda: healthy(server.endpoint))
        workers = [pid for pid in server.last_inspect()["Family"] if pid != pid_of(server)]
        assert len(workers) == 1
        record = server.stop()
        assert (record.killed, record.gone, record.state.exit_code) == (True, True, 0)
        assert guard.stat(workers[0]) is None

    def test_exits_at_once(self, start: Any, places: Places) -> None:
        server = start(tiny_plan("process", tiny="exit"))
        until(lambda: not server.state().running)
        assert server.state().exit_code == 7
        assert places.log.read_text() == "starting\nlast words of this server\n"
        record = server.stop()
        assert (record.killed, record.seconds, record.state.exit_code) == (False, 0.0, 7)

    def test_log_bytes_are_kept_as_they_came(self, start: Any, places: Places) -> None:
        server = start(tiny_plan("process", tiny="split"))
        until(lambda: healthy(server.endpoint))
        assert places.log.read_bytes() == b"starting\ncaf\xc3\xa9 \xff end\n"

    def test_a_taken_port(self, start: Any, places: Places, taken_port: int) -> None:
        with pytest.raises(
            LaunchError, match=f"port {taken_port} on 127.0.0.1 is already taken by another server; stop"
        ):
            start(tiny_plan("process"), dataclasses.replace(places, port=taken_port))
        assert not places.cache.exists()
        assert not places.log.exists()

    def test_a_port_that_is_none(self, start: Any, places: Places) -> None:
        with pytest.raises(UsageError, match="--port 70000 is not a port number"):
            start(tiny_plan("process"), dataclasses.replace(places, port=70000))

    def test_somebody_else_listens_at_its_port(self, start: Any, taken_port: int) -> None:
        server = start(tiny_plan("process", tiny="title"))  # never listens
        assert server.owns_port() is False
        server._endpoint = Endpoint("127.0.0.1", taken_port)
        assert server.owns_port() is False

    def test_an_existing_cache_is_refused_and_kept(self, start: Any, places: Places) -> None:
        places.cache.symlink_to(places.cache.with_name("nowhere"))
        with pytest.raises(FreshnessError, match="exists already"):
            start(tiny_plan("process"))
        assert places.cache.is_symlink()

    def test_programs_that_can_not_be_started(
        self, start: Any, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = tmp_path / "broken"
        broken.write_text("#!/no/such/interpreter\n")
        broken.chmod(0o755)
        for vllm, sentence in (
            (str(broken), "can't be started: No such file or directory; correct --vllm"),
            (str(tmp_path / "none"), "is not an executable; correct --vllm"),
            (None, "no vllm is on PATH; give the executable with --vllm"),
        ):
            monkeypatch.setenv("PATH", str(tmp_path / "empty"))
            with pytest.raises(LaunchError, match=sentence):
                start(tiny_plan("process"), dataclasses.replace(places, vllm=vllm))
            assert not places.cache.exists()
            assert not places.log.exists()

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_when_the_harness_is_killed_nothing_stays(self, places: Places, number: signal.Signals) -> None:
        script = f"""
            import sys, time
            from pathlib import Path
            from harness.launch.process import ProcessEngine
            from harness.launch.server import Places
            from harness.lanes import Image, Limits
            from tests.launch.conftest import tiny_plan
            places = Places("c", Path({str(places.model)!r}), Path({str(places.cache)!r}), Path({str(places.log)!r}),
                            vllm={places.vllm!r})
            server = ProcessEngine().start(
                tiny_plan("process", tiny="orphan,ignore-term", limits=Limits(stop_s=0.3)), places, None)
            print(server.endpoint.port, flush=True)
            for _ in sys.stdin:
                print(*server.last_inspect()["Family"], server._guard.pid, flush=True)
        """
        root = Path(__file__).parents[2]
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        ) as harness:
            assert harness.stdin is not None and harness.stdout is not None
            endpoint = Endpoint("127.0.0.1", int(harness.stdout.readline()))
            until(lambda: healthy(endpoint))
            harness.stdin.write("\n")
            pids = [int(word) for word in harness.stdout.readline().split()]
            assert len(pids) == 3  # server, worker, guard
            harness.send_signal(number)
        until(lambda: not any((entry := guard.stat(pid)) and entry.alive for pid in pids))
        assert not healthy(endpoint)

    def test_when_its_guard_is_killed_the_server_goes(self, start: Any) -> None:
        server = start(tiny_plan("process"))
        until(lambda: healthy(server.endpoint))
        os.kill(server._guard.pid, signal.SIGKILL)
        until(lambda: not server.state().running)
        assert server.stop().gone

    def test_an_image_is_refused(self) -> None:
        for engine in (create_engine("process"), create_engine("simulated"), create_engine("attach")):
            with pytest.raises(UsageError, match="leave --image out"):
                engine.image(IMAGE)


def test_the_simulated_engine_reads_back_what_was_asked(start: Any, places: Places) -> None:
    engine = create_engine("simulated")
    assert isinstance(engine, ProcessEngine)
    arguments = ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", "<port>", "--max-model-len", "256"]
    plan = tiny_plan("simulated", arguments=arguments)
    server = start(plan, dataclasses.replace(places, model=None, vllm=None), engine)
    until(lambda: healthy(server.endpoint))
    applied = server.applied()
    assert differences(plan, applied, None) == []
    assert applied.entrypoint == ["python", "-m", "harness.simulated"]
    assert server.owns_port() is True


def test_programs_are_told_apart_from_interpreters(places: Places) -> None:
    program = Program([sys.executable, "-c", "import time; time.sleep(600)"], ["x"], "/usr/bin:/bin", "/")
    server = ProcessEngine(lambda _: program).start(tiny_plan("process"), places, None)
    try:
        assert server.applied().entrypoint == ["x"]
        assert differences(tiny_plan("process"), server.applied(), None) == [
            "the entrypoint is requested as ['vllm', 'serve'] but is ['x']"
        ]
    finally:
        assert server.stop().gone


class TestAttach:
    """A server of somebody else."""

    @pytest.mark.parametrize(
        ("url", "endpoint"),
        [
            ("http://127.0.0.1:8000", Endpoint("127.0.0.1", 8000)),
            ("http://localhost:8000/v1/", Endpoint("127.0.0.1", 8000)),
            ("https://host.example/base/v1", Endpoint("host.example", 443, True, "/base")),
            ("http://[::1]:81", Endpoint("::1", 81)),
        ],
    )
    def test_urls(self, url: str, endpoint: Endpoint) -> None:
        assert parse_url(url) == endpoint
        assert parse_url(endpoint.url) == endpoint

    @pytest.mark.parametrize(
        "url",
        (
            *("", "127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://x:y", "http://[::1"),
            *("http://a b", "http://user:hunter2@x", "http://user:hunter2@x:y", "http://x/?key=1", "http://x/#here"),
        ),
    )
    def test_wrong_urls(self, url: str) -> None:
        with pytest.raises(UsageError, match=r"^--url .*; write for example http://127\.0\.0\.1:8000$") as caught:
            parse_url(url)
        assert "hunter2" not in str(caught.value)

    def test_nothing_is_started_stopped_or_claimed(self, places: Places, taken_port: int) -> None:
        plan = tiny_plan("attach", url=f"http://127.0.0.1:{taken_port}")
        server = AttachEngine().start(plan, places, None)
        assert not places.cache.exists()
        assert server.server_id == f"url:http://127.0.0.1:{taken_port}"
        assert server.state().running
        applied = server.applied()
        assert (applied.env, applied.arguments, applied.image_id, applied.privileged) == ({}, [], None, None)
        assert (server.owns_port(), server.log_bytes()) == (None, 0)
        record = server.stop()
        assert (record.killed, record.gone, record.note) == (False, False, "attached: left running")
        assert server.state().running

    def test_a_refused_connection_is_the_end(self, places: Places) -> None:
        endpoint = Endpoint("127.0.0.1", host_port(None))
        server = AttachEngine().start(tiny_plan("attach", url=endpoint.url), places, None)
        assert server.state().sentence().endswith(f"nothing listens at {endpoint.url}")

    def test_without_a_url(self, places: Places) -> None:
        with pytest.raises(UsageError, match="give it with --url"):
            AttachEngine().start(tiny_plan("attach"), places, None)


def test_engines_by_name_without_the_docker_sdk() -> None:
    code = (
        "import sys; from harness.launch.engines import create_engine\n"
        "for name in ('process', 'simulated', 'attach'): create_engine(name)\n"
        "assert 'docker' not in sys.modules\n"
        "create_engine('docker'); assert 'docker' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@linux
def test_a_program_that_is_in_exec_is_never_read_as_empty() -> None:
    step = 'if [ $1 -gt 0 ]; then exec /bin/sh -c "$0" "$0" $(($1 - 1)); fi; exec cat'
    with subprocess.Popen(
        ["/bin/sh", "-c", step, step, "200"], env={"A": "b"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        seen = [guard.words_of(process.pid) for _ in range(50)]
        until(lambda: guard.words_of(process.pid)["cmdline"] == "cat\0")
        process.communicate(b"")
    assert all(words["environ"].startswith("A=b") and words["cmdline"] for words in seen)
