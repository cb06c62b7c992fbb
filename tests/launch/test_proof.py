"""Requested = inspected in both directions, compile logs, and the CLASSPAD census."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.launch.proof import (
    applied_from_inspect,
    classpad_census,
    classpad_failures,
    compile_log_findings,
    container_changes,
    differences,
    lifetime_failures,
    requested_environment,
)
from harness.launch.server import Applied, ImageFacts
from harness.plan import ServerPlan
from harness.redact import Redactor, environment_of
from tests.launch.conftest import SETTINGS, tiny_plan

PLAN = tiny_plan("docker", image_id="sha256:aa")
IMAGE = ImageFacts(
    name="tiny",
    id="sha256:aa",
    repo_digests=[],
    storage_driver="overlay2",
    labels={},
    entrypoint=["vllm", "serve"],
    env={"PATH": "/usr/bin"},
)
APPLIED = Applied(
    server_id="c1",
    image_id="sha256:aa",
    entrypoint=["vllm", "serve"],
    arguments=PLAN.arguments,
    env={**PLAN.env, "PATH": "/usr/bin"},
    image_env={"PATH": "/usr/bin"},
    mounts=["<cache>:/cache:rw", "<model>:/model:ro"],
    devices=["/dev/full"],
    group_add=["44"],
    cap_add=["CAP_SYS_PTRACE"],
    security_opt=["label=disable"],
    ulimits={"core": 0},
    ipc="host",
    shm_size=SETTINGS.shm_size,
    memory=SETTINGS.memory,
    memory_swap=SETTINGS.memory,
    ports=["127.0.0.1:<port>:8000"],
    privileged=False,
    restart_count=0,
    started_at="2026-01-01T00:00:00Z",
)


FIRST: dict[str, Any] = {
    "State": {"StartedAt": APPLIED.started_at, "Paused": False, "Pid": 7},
    "HostConfig": {"Memory": APPLIED.memory, "MemorySwap": APPLIED.memory, "NanoCpus": 0, "Binds": None},
}
"""Of ``docker inspect``"""


@pytest.mark.parametrize(
    ("state", "host", "sentence"),
    [
        ({}, {}, ""),
        ({"Pid": 0}, {"Binds": [], "CpuQuota": 0}, ""),  # an engine that was restarted writes nothing otherwise
        (
            {"StartedAt": "2026-01-02"},
            {},
            "its container was started again at 2026-01-02, so it is no longer the fresh",
        ),
        ({"Paused": True}, {}, "its container is paused"),
        ({}, {"NanoCpus": 5, "Memory": 1}, "its container's settings were changed after its start (Memory, NanoCpus)"),
    ],
)
def test_what_was_done_to_a_container(state: dict[str, Any], host: dict[str, Any], sentence: str) -> None:
    last = {"State": {**FIRST["State"], **state}, "HostConfig": {**FIRST["HostConfig"], **host}}
    found = container_changes(FIRST, last)
    assert found.startswith(sentence) and bool(found) == bool(sentence)


@pytest.mark.parametrize(
    ("inspect", "found"),
    [
        (FIRST, []),
        ({}, []),
        ({"State": {"OOMKilled": True}}, ["a process of the server was killed for memory"]),
        ({"State": {"StartedAt": "x"}}, ["its container was started again at x, so it is not one fresh server"]),
        ({"RestartCount": 1}, ["its container was started again at None, so it is not one fresh server"]),
        ({"HostConfig": {"Memory": 5}}, [f"its memory limits became 5 and {APPLIED.memory} bytes while it ran"]),
    ],
)
def test_the_last_inspect_speaks_against_one_fresh_server(inspect: dict[str, Any], found: list[str]) -> None:
    assert lifetime_failures(APPLIED, inspect) == found


def test_equal_is_empty() -> None:
    assert differences(PLAN, APPLIED, IMAGE) == []
    assert differences(PLAN.model_copy(update={"image_id": None}), APPLIED, IMAGE) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"env": {**APPLIED.env, "PYTHONHASHSEED": "1"}}, "variable PYTHONHASHSEED is requested as '0' but is '1'"),
        ({"env": {**APPLIED.env, "X": "1"}}, "environment variable X is '1' but was not requested"),
        ({"env": PLAN.env}, "environment variable PATH is requested as '/usr/bin' but the server has none"),
        ({"arguments": [*PLAN.arguments, "--extra"]}, "argument --extra is there but was not requested"),
        ({"arguments": PLAN.arguments[2:]}, "argument --model <model> is requested but the server has none"),
        ({"arguments": [*PLAN.arguments[2:], *PLAN.arguments[:2]]}, "repeated or in another order"),
        ({"arguments": [*PLAN.arguments, *PLAN.arguments[:2]]}, "repeated or in another order"),
        ({"image_id": "sha256:bb"}, "the image id is requested as 'sha256:aa' but is 'sha256:bb'"),
        ({"image_id": None}, "the image id is requested as 'sha256:aa' but is None"),
        ({"entrypoint": ["sh"]}, "the entrypoint is requested as ['vllm', 'serve'] but is ['sh']"),
        ({"mounts": ["<cache>:/cache:rw", "<model>:/model:rw"]}, "mount <model>:/model:ro is requested but"),
        ({"mounts": [*APPLIED.mounts, "<path>:/root:rw"]}, "mount <path>:/root:rw is there but was not requested"),
        ({"devices": []}, "device /dev/full is requested but the server has none"),
        ({"devices": ["/dev/full", "/dev/kvm"]}, "device /dev/kvm is there but was not requested"),
        ({"group_add": []}, "the numeric group of /dev/full is requested but"),
        ({"group_add": ["render"]}, "the added groups are ['render']"),
        ({"cap_add": []}, "capability SYS_PTRACE is requested but the server has none"),
        ({"cap_add": ["SYS_PTRACE", "CAP_SYS_ADMIN"]}, "capability SYS_ADMIN is there but was not requested"),
        ({"security_opt": []}, "security option label=disable is requested but the server has none"),
        ({"security_opt": ["label=disable", "seccomp=unconfined"]}, "security option seccomp=unconfined is there but"),
        ({"ulimits": {}}, "ulimit core is requested as 0 but the server has none"),
        ({"ulimits": {"core": 0, "core (hard)": -1}}, "ulimit core (hard) is -1 but was not requested"),
        ({"ipc": "private"}, "the IPC mode is requested as 'host' but is 'private'"),
        ({"shm_size": 1}, "the shared memory size in bytes is requested"),
        ({"memory": 1, "memory_swap": 1}, "the memory limit in bytes is requested"),
        ({"memory_swap": 2 * SETTINGS.memory}, "a container that may swap makes the xe driver fault"),
        ({"memory_swap": None}, "a container that may swap makes the xe driver fault"),
        ({"memory": None, "memory_swap": None}, "a container that may swap makes the xe driver fault"),
        ({"ports": ["0.0.0.0:<port>:8000"]}, "published port 0.0.0.0:<port>:8000 is there but was not requested"),
        ({"ports": []}, "published port 127.0.0.1:<port>:8000 is requested but"),
        ({"privileged": True}, "the container is privileged"),
        ({"privileged": None}, "the container is privileged"),
        ({"restart_count": 1}, "the container was restarted 1 times"),
        ({"restart_count": None}, "the container was restarted None times"),
    ],
)
def test_every_difference_is_found(change: dict[str, Any], sentence: str) -> None:
    found = differences(PLAN, APPLIED.model_copy(update=change), IMAGE)
    assert [text for text in found if sentence in text]


def test_what_was_not_asked_must_not_be() -> None:
    bare = SETTINGS.model_copy(update={"group_of": None, "security_opt": [], "ipc": None})
    plan = PLAN.model_copy(update={"container": bare})
    assert differences(plan, APPLIED, IMAGE) == [
        "group 44 is added but was not requested",
        "security option label=disable is there but was not requested",
        "the IPC mode is requested as None but is 'host'",
    ]
    quiet = {"group_add": [], "security_opt": [], "ipc": "private"}
    assert differences(plan, APPLIED.model_copy(update=quiet), IMAGE) == []


def test_docker_needs_an_image_and_settings_to_compare_with() -> None:
    assert differences(PLAN, APPLIED, None)
    assert differences(PLAN.model_copy(update={"container": None}), APPLIED, IMAGE)


@given(
    st.dictionaries(st.sampled_from("ABCDE"), st.sampled_from("01")),
    st.dictionaries(st.sampled_from("ABCDE"), st.sampled_from("01")),
)
def test_environments_differ_in_both_directions(asked: dict[str, str], real: dict[str, str]) -> None:
    plan, applied = PLAN.model_copy(update={"env": asked}), APPLIED.model_copy(update={"env": {**IMAGE.env, **real}})
    expected = {name for name in {*asked, *real} if asked.get(name) != real.get(name)}
    found = differences(plan, applied, IMAGE)
    assert len(found) == len(expected)
    assert {sentence.split()[2] for sentence in found} == expected


def test_the_plan_overlays_the_image() -> None:
    plan = PLAN.model_copy(update={"env": {"A": "plan", "HF_TOKEN": "x", "P": "/home/bob/x"}})
    assert requested_environment(plan, {"A": "image", "B": "image"}) == {"A": "plan", "B": "image", "P": "<path>"}


@pytest.fixture
def published() -> dict[str, Any]:
    """A real inspect of the lab, with its published launcher's swap."""
    file = Path(__file__).resolve().parents[2].parent / "shared" / "lab" / "container-inspect.extract.json"
    if not file.exists():
        pytest.skip("the lab's data is not beside the project")
    inspect: dict[str, Any] = json.loads(file.read_text())[0]
    return inspect


class TestPublishedInspect:
    """The lab's own container, fed to the same functions."""

    @staticmethod
    def read(inspect: dict[str, Any]) -> tuple[Applied, ServerPlan, ImageFacts]:
        source, cache = (bind.split(":")[0] for bind in inspect["HostConfig"]["Binds"])
        image_env = {"VIRTUAL_ENV": "/opt/venv"}
        redactor = Redactor({source: "<model>", cache: "<cache>"})
        applied = applied_from_inspect(inspect, redactor, image_env=image_env, host_port=18131)
        env = {k: v for k, v in environment_of(inspect["Config"]["Env"]).items() if k not in image_env}
        settings = SETTINGS.model_copy(
            update={"devices": ["/dev/dri"], "group_of": "/dev/dri/renderD*", "shm_size": 8 << 30, "memory": 12 << 30}
        )
        plan = PLAN.model_copy(
            update={
                "arguments": applied.arguments,
                "env": env | {"VLLM_XPU_FP8_BLOCK_W8A16": "0"},
                "container": settings,
                "image_id": inspect["Image"],
            }
        )
        return applied, plan, IMAGE.model_copy(update={"env": image_env, "id": inspect["Image"]})

    def test_its_faults_are_found_and_nothing_else(self, published: dict[str, Any]) -> None:
        applied, plan, image = self.read(published)
        assert differences(plan, applied, image) == [
            "environment variable VLLM_XPU_FP8_BLOCK_W8A16 is requested as '0' but is '1'",
            "mount <cache>:/cache:rw is requested but the server has none",
            "mount <cache>:/root/.cache/vllm:rw is there but was not requested",
            "the numeric group of /dev/dri/renderD* is requested but the added groups are ['render']",
            "memory is 12884901888 bytes and memory+swap 21474836480: they must be equal, "
            "because a container that may swap makes the xe driver fault",
        ]

    def test_what_it_reads(self, published: dict[str, Any]) -> None:
        applied, _, _ = self.read(published)
        assert applied.entrypoint == ["vllm", "serve"]
        assert applied.arguments[:2] == ["--model", "<model>"]
        assert applied.arguments[applied.arguments.index("--port") + 1] == "<port>"
        assert applied.ports == ["127.0.0.1:<port>:8000"]
        assert (applied.memory, applied.memory_swap) == (12 << 30, 20 << 30)
        assert applied.env["VLLM_XPU_MTP_SUPPRESS_BONUS_TOKEN"] == "0"
        assert len(applied.env) == len(published["Config"]["Env"])
        assert "/home" not in applied.model_dump_json()

    def test_an_entrypoint_put_over_the_image_s_is_what_runs(self, published: dict[str, Any]) -> None:
        published["Path"] = "python3"
        applied, plan, image = self.read(published)
        assert applied.entrypoint == ["python3"]
        assert "the entrypoint is requested as" in " ".join(differences(plan, applied, image))


COMPILED = b"INFO [backends.py:399] Compiling a graph for compile range (1, 1024) takes 11.93 s\n"
TOOK = b"INFO [monitor.py:48] torch.compile took 17.73 s in total\n"
LOADED = b"INFO [backends.py:296] Directly load the compiled graph(s) for compile range (1, 1024) from the cache\n"
AOT = b"INFO [decorators.py:320] Directly load AOT compilation from path x\n"


@pytest.mark.parametrize(
    ("log", "compiles", "expected"),
    [
        (COMPILED, True, (1, 0, "fresh")),
        (TOOK, True, (1, 0, "fresh")),
        (TOOK.replace(b"took", b"takes") + COMPILED, True, (2, 0, "fresh")),
        (COMPILED + LOADED, True, (1, 1, "not fresh")),
        (LOADED, True, (0, 1, "not fresh")),
        (TOOK + AOT, True, (1, 1, "not fresh")),
        (b"nothing of the kind \xff\n", True, (0, 0, "unknown")),
        (b"", True, (0, 0, "unknown")),
        (b"", False, (0, 0, "not applicable")),
        (LOADED, False, (0, 1, "not applicable")),
    ],
)
def test_compile_log(log: bytes, compiles: bool, expected: tuple[int, int, str]) -> None:
    findings = compile_log_findings(log, compiles)
    assert (findings.compiled, findings.loaded, findings.verdict) == expected


CENSUS = (
    b"(Worker pid=7) INFO R291 classpad census shape=4096x2560 dtype=float16 classes=3 eligible=2 "
    b"canonical=64 largest=512 verdict=%s map={1: 64, 2: 64}\n"
)


class TestClasspad:
    """Census lines and what they prove."""

    def test_lines(self) -> None:
        log = b"\xff noise\n" + CENSUS % b"classpad" + b"classpad census\n" + CENSUS % b"fallback-r224-pieces"
        first, second = classpad_census(log)
        assert (first.shape, first.dtype, first.verdict) == ("4096x2560", "float16", "classpad")
        assert first.line.startswith("R291 classpad census shape=")
        assert first.line.endswith("map={1: 64, 2: 64}")
        assert second.verdict == "fallback-r224-pieces"

    def test_proven(self) -> None:
        assert classpad_failures(classpad_census(CENSUS % b"classpad" * 3)) == []

    @pytest.mark.parametrize(
        ("log", "sentence"),
        [
            (b"", "has no CLASSPAD census"),
            (CENSUS % b"classpad" + CENSUS % b"fallback-r224-pieces", "shape 4096x2560 (float16) fell back"),
            ((CENSUS % b"classpad").partition(b" verdict")[0], "has no shape or verdict"),
        ],
    )
    def test_failures(self, log: bytes, sentence: str) -> None:
        (failure,) = classpad_failures(classpad_census(log))
        assert sentence in failure
