"""Plans and places for servers that are real but tiny, and an image that holds such a server."""

import io
import socket
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.lanes import Container, EngineName, Image, Limits
from harness.launch.server import Endpoint, Places
from harness.plan import CACHE_VARIABLES, ServerPlan

BASE = "bench-vllm-cpu:0.32.0"
TAG = "b70-bench-launch-test:tiny"
SERVER = Path(__file__).with_name("tiny_server.py")
MEBI = 1024**2
GROUP = "/dev/full"
SETTINGS = Container(
    devices=["/dev/full"],
    group_of=GROUP,
    cap_add=["SYS_PTRACE"],
    security_opt=["label=disable"],
    ulimits={"core": 0},
    ipc="host",
    shm_size=64 * MEBI,
    memory=96 * MEBI,
)


def tiny_plan(engine: EngineName, *, tiny: str = "", container: Container | None = None, **changes: Any) -> ServerPlan:
    host = "0.0.0.0" if engine == "docker" else "127.0.0.1"
    values: dict[str, Any] = {
        "label": "mtp0-a",
        "depth": 0,
        "tensor_parallel": 1,
        "engine": engine,
        "image": None,
        "image_id": None,
        "served_model_name": "tiny",
        "arguments": ["--model", "<model>", "--host", host, "--port", "<port>", "--config", '{"a":[1,2]}'],
        "env": {"TINY": tiny, "PYTHONHASHSEED": "0", "EMPTY": ""}
        | {name: f"<cache>/{folder}" for name, folder in CACHE_VARIABLES.items()},
        "container": container or (SETTINGS if engine == "docker" else None),
        "canaries": "repeat",
        "canary_thinking": None,
        "compiles": False,
        "classpad": False,
        "limits": Limits(stop_s=5, gone_s=10),
    }
    return ServerPlan(**{**values, **changes})


@pytest.fixture
def places(tmp_path: Path) -> Places:
    model = tmp_path / "weights"
    model.mkdir()
    (model / "weights").write_text("x")
    return Places("camp-1", model, tmp_path / "cache", tmp_path / "server.log", vllm=str(SERVER))


def until(true: Callable[[], object], seconds: float = 15.0) -> None:
    """Poll with a deadline; the wait is never what makes a test right."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


def healthy(endpoint: Endpoint) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint.url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="session")
def docker_client() -> Iterator[Any]:
    import docker
    from docker.errors import DockerException, ImageNotFound

    try:
        client = docker.from_env()
        client.images.get(BASE)
    except ImageNotFound:
        pytest.skip(f"image {BASE} is not on this host")
    except DockerException as error:
        pytest.skip(f"no Docker engine: {error}")
    yield client
    client.close()


def build_image(client: Any, tag: str, dockerfile: str, files: Mapping[str, Path]) -> None:
    """An image from a context that holds nothing but ``files``, by their names in it."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile)
        tar.addfile(info, io.BytesIO(dockerfile.encode()))
        for name, path in files.items():
            tar.add(path, name)
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)


@pytest.fixture(scope="session")
def tiny_image(docker_client: Any) -> Iterator[Image]:
    dockerfile = (
        f"FROM {BASE}\nCOPY server.py /server.py\nENV IMAGE_KNOB=1\n"
        'LABEL bench.test=tiny\nHEALTHCHECK CMD ["false"]\nENTRYPOINT ["python3", "/server.py"]\n'
    )
    build_image(docker_client, TAG, dockerfile, {"server.py": SERVER})
    yield Image(
        schema=1,
        name="tiny",
        title="tiny",
        references=["b70-bench-launch-test:absent", TAG],
        labels={"bench.test": "tiny"},
        version="0",
        entrypoint=["python3", "/server.py"],
        obtain="build it",
    )
    docker_client.images.remove(TAG, force=True)
