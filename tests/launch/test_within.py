"""The words of the process that serves, behind a container's: pure rules, and real containers whose entrypoint lies."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.lanes import Image
from harness.launch.docker import DockerEngine, connect
from harness.launch.proof import differences, requested_arguments, requested_environment
from harness.launch.server import Places, Within
from harness.launch.within import (
    DOCKER_PATH,
    Words,
    exec_words,
    host_words,
    parse_dump,
    within_differences,
    within_of,
    words_of,
)
from harness.redact import Redactor
from tests.launch.conftest import BASE, SERVER, SETTINGS, healthy, tiny_plan, until

PLAN = tiny_plan("docker")
ASKED = [word.replace("<model>", "/model").replace("<port>", "8000") for word in PLAN.arguments]
ENV = [f"{name}={value.replace('<cache>', '/cache')}" for name, value in PLAN.env.items()]
SHELL = ["HOSTNAME=c1", "HOME=/root", "PWD=/", "SHLVL=1", "_=/usr/bin/env"]


def found(*processes: Words) -> Within:
    return within_of(processes, "host /proc", PLAN, Redactor())


def told(within: Within) -> list[str]:
    return within_differences(requested_arguments(PLAN), requested_environment(PLAN, {}), within)


def test_equal_words_are_no_difference() -> None:
    within = found(Words(1, ["python3", "/server.py", *ASKED], [*SHELL, *ENV]))
    assert (within.arguments, within.unknown) == (PLAN.arguments, "")
    assert told(within) == []


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (["PYTHONHASHSEED=1"], "variable within the container PYTHONHASHSEED is requested as '0' but is '1'"),
        (["UNASKED=1"], "environment variable within the container UNASKED is '1' but was not requested"),
    ],
)
def test_a_variable_that_a_script_exported(env: list[str], sentence: str) -> None:
    within = found(Words(1, ["vllm", *ASKED], [*SHELL, *ENV, *env]))
    (difference,) = told(within)
    assert sentence in difference


def test_a_variable_that_a_script_unset() -> None:
    within = found(Words(1, ["vllm", *ASKED], [entry for entry in ENV if not entry.startswith("PYTHONHASHSEED")]))
    assert told(within) == [
        "environment variable within the container PYTHONHASHSEED is requested as '0' but the server has none"
    ]


def test_a_script_that_waits_is_not_the_server() -> None:
    script = Words(1, ["sh", "/entry.sh", *ASKED], ENV)
    child = Words(8, ["python3", "/server.py", *ASKED], [*ENV, "PYTHONHASHSEED=9"])
    helper = Words(9, ["python3", "-c", "helper"], [])
    assert len(told(found(script, child, helper))) == 1


def test_arguments_that_a_script_added() -> None:
    within = found(Words(1, ["vllm", *ASKED, "--more", "2"], ENV))
    assert told(within) == ["within the container, argument --more 2 is there but was not requested"]


@pytest.mark.parametrize(
    ("processes", "unknown"),
    [
        ([], "its processes can't be read"),
        ([Words(1, ["VLLM::APIServer"], [])], "no process shows the server's arguments"),
        ([Words(1, ["vllm", *ASKED], [])], "can't be read, or its title was written over it"),
    ],
)
def test_what_can_not_be_read_is_unknown(processes: list[Words], unknown: str) -> None:
    within = found(*processes)
    assert unknown in within.unknown
    assert within.env is None
    assert told(within) == []


def test_secrets_never_leave() -> None:
    within = found(Words(1, ["vllm", *ASKED], [*ENV, "HF_TOKEN=hf_abc"]))
    assert "hf_abc" not in within.model_dump_json()
    assert told(within) == []


WORDS = st.lists(st.text(st.characters(exclude_characters="\0\1\2", exclude_categories=["Cs"]), min_size=1), max_size=4)


@given(st.dictionaries(st.integers(1, 99999), st.tuples(WORDS, WORDS), max_size=4))
def test_dump_reads_back(processes: dict[int, tuple[list[str], list[str]]]) -> None:
    def joined(words: list[str]) -> bytes:
        return "".join(f"{word}\0" for word in words).encode()

    dump = b"".join(
        b"\1%d\2%s\2%s" % (pid, joined(cmdline), joined(environ)) for pid, (cmdline, environ) in processes.items()
    )
    wanted = [words_of(pid, joined(c), joined(e)) for pid, (c, e) in sorted(processes.items())]
    assert parse_dump(dump) == wanted
    assert [words.arguments for words in wanted] == [c for _, (c, _) in sorted(processes.items())]


@given(st.binary())
def test_any_dump_is_read(data: bytes) -> None:
    assert isinstance(parse_dump(data), list)


EXPORT = "#!/bin/sh\nexport PYTHONHASHSEED=7\n"
SCRIPTS = {
    "exec": EXPORT + 'exec python3 /server.py "$@"\n',
    "child": EXPORT + "trap 'kill $child' TERM\npython3 /server.py \"$@\" &\nchild=$!\nwait $child\nwait $child\n",
    "argument": '#!/bin/sh\nexec python3 /server.py "$@" --added 1\n',
    "honest": '#!/bin/sh\nexec python3 /server.py "$@"\n',
}


@pytest.fixture(scope="module")
def lying_image(docker_client: Any) -> Iterator[Any]:
    """Builds images with such an entrypoint, and removes them."""
    tags = []

    def build(kind: str) -> Image:
        tag = f"b70-bench-launch-test:within-{kind}"
        dockerfile = f'FROM {BASE}\nCOPY server.py entry.sh /\nENTRYPOINT ["sh", "/entry.sh"]\n'
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            files = {"Dockerfile": dockerfile.encode(), "server.py": SERVER.read_bytes()}
            for name, data in {**files, "entry.sh": SCRIPTS[kind].encode()}.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        context.seek(0)
        docker_client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
        tags.append(tag)
        values: dict[str, Any] = {"schema": 1, "name": "lying", "title": "", "version": "0", "obtain": "build it"}
        return Image(**values, references=[tag], entrypoint=["sh", "/entry.sh"])

    yield build
    for tag in tags:
        docker_client.images.remove(tag, force=True)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("exec", "environment variable within the container PYTHONHASHSEED is requested as '0' but is '7'"),
        ("child", "environment variable within the container PYTHONHASHSEED is requested as '0' but is '7'"),
        ("argument", "within the container, argument --added 1 is there but was not requested"),
        ("honest", None),
    ],
)
def test_an_entrypoint_that_changes_what_docker_shows(
    docker_client: Any, lying_image: Any, places: Places, kind: str, wrong: str | None
) -> None:
    engine = DockerEngine(connect)
    facts = engine.image(lying_image(kind))
    plan = tiny_plan("docker", image_id=facts.id, container=SETTINGS)
    server = engine.start(plan, places, facts)
    try:
        until(lambda: healthy(server.endpoint))
        assert differences(plan, server.applied(), facts) == [], "docker inspect shows what was asked"
        asked = requested_arguments(plan), requested_environment(plan, facts.env)
        within = server.within(plan)
        assert within.unknown == ""
        assert within_differences(*asked, within) == ([] if wrong is None else [wrong])
        # The way for an engine elsewhere, or a user who may not read it here, comes to the same.
        other = exec_words(docker_client, server.server_id)
        redactor = Redactor({str(places.cache): "<cache>", str(places.model): "<model>"})
        assert within_differences(*asked, within_of(other, "docker exec", plan, redactor)) == (
            [] if wrong is None else [wrong]
        )
        assert host_words("0" * 64, docker_client.api.inspect_container(server.server_id)["State"]["Pid"]) == []
    finally:
        assert server.stop().gone
    assert server.within(plan).unknown == "its processes can't be read"


def test_the_path_that_docker_sets_where_an_image_has_none() -> None:
    def wrong(path: str, asked: dict[str, str]) -> list[str]:
        within = Within(source="docker exec", arguments=None, env={"PATH": path, **asked})
        return within_differences([], asked, within)

    assert wrong(DOCKER_PATH, {}) == []
    assert wrong("/opt/bin", {}) == [
        "environment variable within the container PATH is '/opt/bin' but was not requested"
    ]
    within = Within(source="docker exec", arguments=None, env={"PATH": DOCKER_PATH})
    assert within_differences([], {"PATH": "/opt/bin"}, within) == [
        f"environment variable within the container PATH is requested as '/opt/bin' but is '{DOCKER_PATH}'"
    ]


def test_this_process_is_in_no_container_of_that_name() -> None:
    assert host_words("f" * 64, 1) == []
    assert host_words("f" * 64, 0) == []
    assert Path("/proc/self/cgroup").exists()
