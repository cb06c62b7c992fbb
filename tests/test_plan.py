"""The plan of a server against contract section 2: every argument, every variable, nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.lanes import load_image, load_lane
from harness.plan import (
    CampaignPlan,
    ServerPlan,
    canonical_json,
    cards_mask,
    check_choice,
    check_image,
    oracle_differences,
    server_plan,
    strict_labels,
)

LANE = load_lane("qwen35-4b-w4a16")
BASE_ENV = """
VLLM_TARGET_DEVICE=xpu VLLM_WORKER_MULTIPROC_METHOD=spawn VLLM_XPU_ENABLE_XPU_GRAPH=1 VLLM_USE_V2_MODEL_RUNNER=0
VLLM_BATCH_INVARIANT=0 VLLM_XPU_FP16_LINEAR_CLASSPAD=0 VLLM_XPU_FP16_LINEAR_CLASSPAD_MAXM=512
VLLM_XPU_FP16_LINEAR_ROWCHUNK=32 VLLM_XPU_GDN_SPLIT_MIXED=1 VLLM_XPU_GDN_SPEC_GROUP=16 VLLM_XPU_W4A16_DETERMINISM_PAD=0
VLLM_XPU_QWEN_GEMMA_RMSNORM_PACKED_SERIAL_EXACT=1 TORCHINDUCTOR_DETERMINISTIC=1 VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE=0
VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING=0 PYTHONHASHSEED=0 PYTORCH_ALLOC_CONF=expandable_segments:True
"""
DRAFT_ENV = """
VLLM_XPU_DRAFT_LM_HEAD_INT4=1 VLLM_XPU_DRAFT_LM_HEAD_INT4_GROUP_SIZE=128 VLLM_XPU_DRAFT_LM_HEAD_INT4_SCALE_DTYPE=bf16
VLLM_XPU_DRAFT_LM_HEAD_INT4_CHUNK_ROWS=2048
"""
CACHES = {
    "VLLM_CACHE_ROOT": "<cache>/vllm",
    "XDG_CACHE_HOME": "<cache>/xdg",
    "TORCHINDUCTOR_CACHE_DIR": "<cache>/inductor",
    "TRITON_CACHE_DIR": "<cache>/triton",
    "NEO_CACHE_DIR": "<cache>/neo",
    "SYCL_CACHE_DIR": "<cache>/sycl",
}
THRESHOLDS = ("ALLREDUCE", "ALLGATHERV", "REDUCE_SCATTER")
SITE = {
    "CCL_ATL_TRANSPORT": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "lo",
    "CCL_ZE_IPC_EXCHANGE": "pidfd",
    "CCL_SEND": "direct",
    "CCL_RECV": "direct",
    "CCL_TOPO_P2P_ACCESS": "1",
    **{f"CCL_SYCL_{name}_SIMPLE_THRESHOLD": "4294967296" for name in THRESHOLDS},
}


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


def plan(depth: int = 0, tensor_parallel: int = 1, **options: Any) -> ServerPlan:
    values: dict[str, Any] = {"label": "x", "shape": "strict", "engine": "docker", "image": load_image("r293")}
    if tensor_parallel == 2:
        values["site_env"] = SITE
    return server_plan(LANE, depth=depth, tensor_parallel=tensor_parallel, **{**values, **options})


@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("depth", [0, 3])
def test_arguments_are_those_of_the_contract_in_its_order(depth: int, tensor_parallel: int) -> None:
    arguments = plan(depth, tensor_parallel).arguments
    compilation = json.loads(arguments.pop())
    expected = (
        "--model <model> --served-model-name qwen35-4b-w4a16 --host 0.0.0.0 --port <port> "
        f"--tensor-parallel-size {tensor_parallel} --dtype float16 --quantization compressed-tensors "
        "--kv-cache-dtype auto --gpu-memory-utilization 0.95 --block-size 64 --no-enable-prefix-caching "
        "--enable-prompt-tokens-details --language-model-only --max-model-len 1024 --max-num-seqs 1 "
        "--max-num-batched-tokens 1024"
    ).split()
    if depth:
        expected += ["--speculative-config", '{"method":"qwen3_5_mtp","num_speculative_tokens":3}']
    assert arguments == [*expected, "--compilation-config"]
    assert compilation == {
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": [1, 2, 3, 4, 5, 6, 8, 10, 15, 16, 20, 25, 30, 32, 40, 50, 60, 64],
        "max_cudagraph_capture_size": 64,
        "splitting_ops": [],
        "inductor_compile_config": {
            "combo_kernels": False,
            "benchmark_combo_kernel": False,
            "deterministic": True,
            "split_reductions": False,
            "triton.autotune_pointwise": False,
            "benchmark_epilogue_fusion": False,
        },
    }


@pytest.mark.parametrize("classpad", [False, True])
@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("depth", [0, 3])
def test_environment_is_that_of_the_contract_and_nothing_else(depth: int, tensor_parallel: int, classpad: bool) -> None:
    expected = variables(BASE_ENV) | CACHES
    expected["VLLM_XPU_FP16_LINEAR_CLASSPAD"] = "1" if classpad else "0"
    expected |= variables(DRAFT_ENV) if depth else {}
    expected |= SITE if tensor_parallel == 2 else {}
    expected["ZE_AFFINITY_MASK"] = "0,1" if tensor_parallel == 2 else "0"
    expected["VLLM_SERVER_DEV_MODE"] = "1"  # the one addition: /server_info, by the launcher's dev_mode
    assert plan(depth, tensor_parallel, classpad=classpad).env == expected


def test_oracle_differs_by_what_is_declared_and_by_nothing_else() -> None:
    base, arm = plan(0), plan(3)
    env, flag = oracle_differences(LANE)
    assert {name for name in {*base.env, *arm.env} if base.env.get(name) != arm.env.get(name)} == set(env)
    at = arm.arguments.index(flag)
    assert [*arm.arguments[:at], *arm.arguments[at + 2 :]] == base.arguments
    assert env == set(variables(DRAFT_ENV))


def test_order_of_a_strict_campaign() -> None:
    assert strict_labels(3) == [("mtp0-a", 0), ("mtp0-b", 0), ("mtp3-a", 3), ("mtp3-b", 3)]
    assert strict_labels(0) == [("mtp0-a", 0), ("mtp0-b", 0)]


def test_other_engines_listen_on_loopback_and_have_no_container() -> None:
    process = plan(engine="process", image=None)
    assert process.arguments[process.arguments.index("--host") + 1] == "127.0.0.1"
    assert process.container is None and plan().container == LANE.container


def refused(words: str, **options: Any) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_tp2_needs_the_site_file() -> None:
    refused(
        "TP2 on launcher qwen35-4b-w4a16 needs this host's own values of CCL_ATL_TRANSPORT, FI_",
        tensor_parallel=2,
        site_env={},
    )
    some = {name: value for name, value in SITE.items() if name != "CCL_SEND"}
    refused("needs this host's own values of CCL_SEND; write them", tensor_parallel=2, site_env=some)


def test_site_file_can_not_override_unseen() -> None:
    """A later -e that wins silently is how arms became identical (contract section 9, 1)."""
    refused("the site file sets VLLM_USE_V2_MODEL_RUNNER, which launcher", site_env={"VLLM_USE_V2_MODEL_RUNNER": "1"})
    refused("ONEAPI_DEVICE_SELECTOR and ZE_AFFINITY_MASK are applied one", site_env={"ONEAPI_DEVICE_SELECTOR": "gpu:0"})
    assert plan(site_env={"http_timeout": "5"}).env["http_timeout"] == "5"


@pytest.mark.parametrize("name", ["ZE_AFFINITY_MASK", "VLLM_CACHE_ROOT", "NEO_CACHE_DIR"])
def test_site_file_can_not_set_what_the_plan_sets(name: str) -> None:
    refused(f"the site file sets {name}", site_env={name: "1"})


def test_site_file_can_not_set_dev_mode_where_the_launcher_does() -> None:
    with pytest.raises(UsageError, match="the site file sets VLLM_SERVER_DEV_MODE, which launcher simulated sets"):
        server_plan(
            load_lane("simulated"),
            label="x",
            depth=0,
            tensor_parallel=1,
            shape="strict",
            engine="simulated",
            site_env={"VLLM_SERVER_DEV_MODE": "0"},
        )


def test_site_variables_of_tp2_stay_out_of_tp1() -> None:
    assert not set(SITE) & set(plan(site_env=SITE).env)


def test_cards() -> None:
    assert [cards_mask(None, 1), cards_mask(None, 2), cards_mask("3", 1), cards_mask("1,0", 2)] == [
        "0",
        "0,1",
        "3",
        "1,0",
    ]
    for cards, count, words in (
        ("0,1", 1, "--card 0,1 names 2 cards, but --tp 1 needs 1"),
        ("0", 2, "--card 0 names 1 cards, but --tp 2 needs 2"),
        ("0,0", 2, "--card 0,0 names 1 cards, one twice, but --tp 2 needs 2"),
        ("0,0", 1, "--card 0,0 names 1 cards, one twice, but --tp 1 needs 1"),
        ("0,00", 2, "--card 0,00 names 1 cards, one twice, but --tp 2 needs 2"),
        ("gpu", 1, "--card gpu is not a list of card numbers"),
        ("0, 1", 2, "is not a list of card numbers"),
    ):
        with pytest.raises(UsageError, match=words):
            cards_mask(cards, count)
    with pytest.raises(UsageError, match="launcher simulated has no cards to choose; leave --card out"):
        server_plan(
            load_lane("simulated"), label="x", depth=0, tensor_parallel=1, shape="strict", engine="simulated", cards="0"
        )


def test_choices() -> None:
    check_choice(LANE, engine="docker", depth=3, tensor_parallel=2)
    for changes, words in (
        (
            {"engine": "simulated"},
            "launcher qwen35-4b-w4a16 has no engine simulated; use one of docker, process, attach",
        ),
        ({"depth": 9}, "launcher qwen35-4b-w4a16 has no MTP depth 9; use one of 0, 1, 2, 3, 4, 5, 6"),
        ({"tensor_parallel": 4}, "launcher qwen35-4b-w4a16 has no TP4; use one of 1, 2"),
    ):
        choice: dict[str, Any] = {"engine": "docker", "depth": 0, "tensor_parallel": 1, **changes}
        with pytest.raises(UsageError, match=words):
            check_choice(LANE, **choice)


def test_images() -> None:
    check_image(LANE, load_image("r293"), classpad=True, depth=3)
    words = "image R276 has no classpad, which --classpad needs; use --image r293"
    with pytest.raises(UsageError, match=words):
        check_image(LANE, load_image("r276"), classpad=True, depth=3)
    with pytest.raises(UsageError, match="doesn't accept image vllm-cpu; use one of r276, r293, r294b, r304"):
        check_image(LANE, load_image("vllm-cpu"), classpad=False, depth=0)
    with pytest.raises(UsageError, match="starts no image, so --classpad can't be proven; leave it out"):
        check_image(load_lane("simulated"), None, classpad=True, depth=0)


def test_shape_that_the_launcher_lacks() -> None:
    refused("launcher qwen35-4b-w4a16 has no [shapes.marathon] table; add one", shape="marathon")


def campaign(**changes: Any) -> CampaignPlan:
    values: dict[str, Any] = {
        "kind": "strict",
        "lane": "l",
        "engine": "docker",
        "suite_id": "s",
        "suite_sha256": "0" * 64,
        "depth": 0,
        "tensor_parallel": 1,
        "servers": [plan()],
    }
    return CampaignPlan(**{**values, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"depth": 1},
        {"suite_sha256": "1" * 64},
        {"model_sha256": "2" * 64},
        {"engine": "process"},
        {"servers": [plan(3)]},
        {"servers": [plan(classpad=True)]},
        {"servers": [plan(image_id="sha256:x")]},
        {"servers": [plan(), plan()]},
        {"measurement_version": 99},
    ],
)
def test_hash_knows_every_difference(changes: dict[str, Any]) -> None:
    assert campaign().sha256() == campaign().sha256()
    assert campaign(**changes).sha256() != campaign().sha256()


def test_hash_survives_a_file() -> None:
    again = CampaignPlan.model_validate_json(campaign().model_dump_json())
    assert again.sha256() == campaign().sha256()


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers())))
def test_canonical_json_is_one_text_for_one_value(value: dict[str, Any]) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(dict(reversed(value.items()))) == text


def test_canonical_json_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": float("nan")})
