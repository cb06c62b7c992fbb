"""Probe programs in real containers, their CPU variant: right, wrong, too late; nothing of them stays."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from harness.errors import LaunchError
from harness.lanes import load_lane
from harness.launch.docker import list_ours
from harness.launch.probes import (
    SIDES,
    TARGET,
    Probe,
    all_reduce_probe,
    card_probes,
    compute_probe,
    judge,
    product,
    run_probe,
    total,
)
from harness.launch.programs import Call, Ended, run_program
from harness.plan import server_plan
from tests.launch.conftest import BASE

CALL = Call("", (), {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}, {}, timeout_s=120)


@pytest.fixture(scope="module")
def image_id(docker_client: Any) -> str:
    return str(docker_client.images.get(BASE).id)


@pytest.fixture
def campaign() -> str:
    return f"probes-{uuid4().hex[:12]}"


def left(client: Any, campaign: str) -> list[str]:
    return [container.id for container in list_ours(client) if container.campaign == campaign]


@pytest.mark.docker
def test_compute_on_the_cpu(docker_client: Any, image_id: str, campaign: str) -> None:
    """The program multiplies other matrices for another seed, so one run shows a right and a wrong result."""
    probe = compute_probe("compute", CALL, device="cpu", rounds=2, seed=2)
    end = run_program(docker_client, image_id, probe.call, campaign=campaign, label="probe")
    told, why = judge(replace(probe, digests={kind: product(side, seed=2) for kind, side in SIDES.items()}), end)
    assert (why, told["name"]) == ("", "cpu")
    assert judge(probe, end)[1] == "its result is wrong (float32, float16, bfloat16)"
    assert left(docker_client, campaign) == []


@pytest.mark.docker
def test_all_reduce_on_the_cpu(docker_client: Any, image_id: str, campaign: str) -> None:
    probe = all_reduce_probe("all-reduce", CALL, device="cpu", processes=2, rounds=2)
    result = run_probe(docker_client, image_id, probe, campaign=campaign)
    assert (result.passed, result.why, result.told["backend"]) == (True, "", "gloo")
    assert set(probe.digests) == {"0", "1"}


@pytest.mark.docker
def test_a_program_without_end_is_stopped(docker_client: Any, image_id: str, campaign: str) -> None:
    probe = compute_probe("compute", replace(CALL, timeout_s=1.0), device="cpu", rounds=10**9)
    result = run_probe(docker_client, image_id, probe, campaign=campaign)
    assert (result.passed, result.why) == (False, "it gave no answer within 1 s")
    assert left(docker_client, campaign) == []


@pytest.mark.docker
def test_a_card_that_is_not_there_has_not_passed(docker_client: Any, image_id: str, campaign: str) -> None:
    """The same program, for xpu, in an image whose torch has none."""
    result = run_probe(
        docker_client, image_id, compute_probe("compute", CALL, device="xpu", rounds=1), campaign=campaign
    )
    assert not result.passed and result.why.startswith("it ended with exit code 1: ")


@pytest.mark.docker
def test_a_container_that_cannot_be_made_has_not_passed(docker_client: Any, campaign: str) -> None:
    probe = compute_probe("compute", CALL, device="cpu")
    result = run_probe(docker_client, f"sha256:{'0' * 64}", probe, campaign=campaign)
    assert not result.passed and result.why.startswith("Docker can't run compute.py in the image: ")


@pytest.mark.docker
def test_a_program_has_no_network_no_swap_and_no_right_to_write(
    docker_client: Any, image_id: str, campaign: str
) -> None:
    ended = run_program(
        docker_client, image_id, Call("read_image.py", ("/proc/net/dev",)), campaign=campaign, label="x"
    )
    assert ended.exit_code == 0 and ended.gone
    seen: list[Any] = []

    class Looking:
        """Reads each container back when it is made; everything else is the real client's."""

        def __init__(self, api: Any) -> None:
            self._api = api

        def __getattr__(self, name: str) -> Any:
            return getattr(self._api, name)

        def start(self, container: str) -> None:
            seen.append(self._api.inspect_container(container)["HostConfig"])
            self._api.start(container)

    class Client:
        api = Looking(docker_client.api)

    run_program(Client(), image_id, Call("read_image.py"), campaign=campaign, label="x")  # type: ignore[arg-type]
    (host,) = seen
    assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("none", True)
    assert host["Memory"] == host["MemorySwap"] > 0


def ended(output: str, **changes: Any) -> Ended:
    return Ended(
        **{"state": "ended", "exit_code": 0, "output": output, "errors": "", "seconds": 1.0, "gone": True} | changes
    )


PROBE = Probe("p", CALL, {"float32": "a"})


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (ended('{"digests": {"float32": ["a"]}}'), ""),
        (ended('warning\n{"digests": {"float32": ["a"]}}'), ""),
        (ended('{"digests": {"float32": ["a", "b"]}}'), "its result is wrong (float32, in 2 different ways)"),
        (ended('{"digests": {"float32": []}}'), "its result is wrong (float32)"),
        (ended('{"digests": {}}'), "it answered for nothing, not for all that was asked"),
        (ended('{"digests": {"float32": ["a"]}, "devices": 2}'), "it saw 2 devices where one was to be chosen"),
        (ended('{"digests": {"float32": ["a"]}, "devices": 0}'), "it saw 0 devices where one was to be chosen"),
        (ended(""), "its answer can't be read"),
        (ended("{"), "its answer can't be read"),
        (ended("", exit_code=137), "it ended with exit code 137: no message"),
        (ended("", exit_code=1, errors="a\n RuntimeError: lost\n"), "it ended with exit code 1: RuntimeError: lost"),
        (ended("", state="timed out", exit_code=None), "it gave no answer within 120 s"),
    ],
)
def test_judgement(end: Ended, why: str) -> None:
    assert judge(PROBE, end)[1] == why


def test_what_is_right_is_known_without_torch() -> None:
    assert len({product(256), product(512), product(512, seed=2), total(1), total(2)}) == 5


def test_probes_of_two_cards() -> None:
    lane = load_lane("qwen35-4b-w4a16")
    site = dict.fromkeys(lane.site_env_tp2, "x")
    plan = server_plan(
        lane, label="mtp0-a", depth=0, tensor_parallel=2, shape="strict", engine="docker", cards="0,1", site_env=site
    )
    probes = card_probes(plan, "ZE_AFFINITY_MASK", image_env={TARGET: "cpu"}, cards=["0000:03:00.0", "0000:83:00.0"])
    assert [probe.name for probe in probes] == [
        "compute on card 0 (xpu)",
        "compute on card 1 (xpu)",
        "all-reduce over 2 cards (xpu)",
    ]
    assert [probe.call.env["ZE_AFFINITY_MASK"] for probe in probes] == ["0", "1", "0,1"]
    assert [probe.call.program for probe in probes] == ["compute.py", "compute.py", "all_reduce.py"]
    for probe in probes:
        assert probe.call.arguments[0] == "xpu"
        assert probe.call.host["devices"] == ["/dev/dri:/dev/dri:rwm"]
        assert probe.call.host["cap_add"] == ["SYS_PTRACE"] and probe.call.host["ipc_mode"] == "host"
        assert "CCL_ATL_TRANSPORT" in probe.call.env and "TRITON_CACHE_DIR" not in probe.call.env


@pytest.mark.parametrize(("target", "said"), [(None, "not set"), ("cpu", "cpu"), ("cuda", "cuda")])
def test_a_probe_reaches_the_card_or_is_none(target: str | None, said: str) -> None:
    """The target may stand in the image alone; without it no probe computes on the CPU in a card's name."""
    lane = load_lane("qwen35-4b-w4a16")
    plan = server_plan(lane, label="mtp0-a", depth=0, tensor_parallel=1, shape="strict", engine="docker", cards="0")
    env = {name: value for name, value in plan.env.items() if name != TARGET}
    bare = plan.model_copy(update={"env": env | ({} if target is None else {TARGET: target})})
    with pytest.raises(LaunchError, match=f"mtp0-a is given cards, but {TARGET} is {said}"):
        card_probes(bare, "ZE_AFFINITY_MASK", image_env={TARGET: "xpu"} if target else {})
    (probe,) = card_probes(plan.model_copy(update={"env": env}), "ZE_AFFINITY_MASK", image_env={TARGET: "xpu"})
    assert (probe.name, probe.call.arguments[0]) == ("compute on card 0 (xpu)", "xpu")
    assert plan.container is not None
    without = bare.model_copy(update={"container": plan.container.model_copy(update={"devices": []})})
    (probe,) = card_probes(without, "ZE_AFFINITY_MASK", image_env={})
    assert (probe.name, probe.call.arguments[0]) == ("compute on card 0 (cpu)", "cpu")
    with pytest.raises(LaunchError, match="is given cards"):
        card_probes(without, "ZE_AFFINITY_MASK", image_env={}, cards=["0000:03:00.0"])
