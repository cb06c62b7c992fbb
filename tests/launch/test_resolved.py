"""The server's own configuration: /server_info bodies and logs of vLLM 0.32, shortened, and every contradiction."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.launch.proof import compile_log_findings
from harness.launch.resolved import FACTS, Resolved, asked_value, resolve, resolved_differences
from harness.plan import ServerPlan
from tests.launch.conftest import tiny_plan

DATA = Path(__file__).with_name("data")
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_CACHE_ROOT": "<cache>/vllm", "OTHER": "x"}
ARGUMENTS = [
    *("--tensor-parallel-size", "1", "--dtype", "bfloat16", "--no-enable-prefix-caching", "--max-model-len", "1024"),
    *("--max-num-seqs", "1", "--max-num-batched-tokens", "1024", "--kv-cache-dtype", "auto"),
]
MTP3 = ["--speculative-config", '{"method":"qwen3_5_mtp","num_speculative_tokens":3}']
INDUCTOR = '{"cudagraph_mode":"NONE","inductor_compile_config":{"epilogue_fusion":true,"cpp.dynamic_threads":true}}'


def plan(depth: int = 0, *, compiles: bool = False, more: list[str] | None = None, **changes: Any) -> ServerPlan:
    arguments = [*ARGUMENTS, *(MTP3 if depth else []), *([] if compiles else ["--enforce-eager"]), *(more or [])]
    values: dict[str, Any] = {"depth": depth, "compiles": compiles, "arguments": arguments, "env": ENV} | changes
    return tiny_plan("docker", **values)


def body(name: str) -> dict[str, Any]:
    return dict(json.loads((DATA / f"server-info-{name}.json").read_text(encoding="utf-8")))


def log(name: str) -> bytes:
    return (DATA / f"server-{name}.log").read_bytes()


def shown(info: dict[str, Any], text: bytes = b"") -> Resolved:
    return resolve(json.dumps(info), text, ENV)


class TestReal:
    """What real servers said."""

    def test_mtp3(self) -> None:
        found = shown(body("mtp3-eager"), log("mtp3-eager"))
        assert (found.sources, found.unknown) == (["/server_info", "log"], [])
        assert (found.speculative_method, found.speculative_depth) == ("mtp", 3)
        assert (found.rejection_sample_method, found.model_runner) == ("standard", "V1")
        assert (found.cudagraph_mode, found.compilation_mode, found.enforce_eager) == ("NONE", "NONE", True)
        assert (found.dtype, found.quantization, found.max_num_batched_tokens) == ("bfloat16", "none", 1024)
        assert found.environment == {
            "VLLM_CACHE_ROOT": "/cache/vllm", "VLLM_CPU_KVCACHE_SPACE": 1, "VLLM_SERVER_DEV_MODE": True
        }  # fmt: skip
        assert resolved_differences(plan(3), found) == [], "qwen3_5_mtp is reported as mtp"

    def test_mtp0_without_its_log_has_no_model_runner(self) -> None:
        found = shown(body("mtp0-eager"))
        assert (found.speculative_method, found.speculative_depth) == ("none", 0)
        assert found.unknown == ["model_runner"]
        assert resolved_differences(plan(0), found) == []

    def test_compiled(self) -> None:
        found = shown(body("mtp0-compiled"), log("mtp0-compiled"))
        assert (found.compilation_mode, found.cudagraph_mode, found.enforce_eager) == (
            "DYNAMO_TRACE_ONCE",
            "NONE",
            False,
        )
        asked = plan(0, compiles=True, more=["--compilation-config", INDUCTOR])
        assert resolved_differences(asked, found) == []
        assert resolved_differences(plan(0), found) == [
            "the server's enforce_eager is False, asked was --enforce-eager"
        ]

    def test_the_log_alone(self) -> None:
        found = resolve(None, log("mtp3-eager"), ENV)
        assert found.sources == ["log"]
        assert (found.speculative_depth, found.dtype, found.prefix_caching) == (3, "bfloat16", False)
        assert (found.tensor_parallel, found.max_model_len, found.quantization) == (1, 1024, "none")
        assert (found.cudagraph_capture_sizes, found.inductor) == ([], {"enable_auto_functionalized_v2": False})
        assert found.unknown == ["rejection_sample_method", "max_num_seqs", "max_num_batched_tokens", "environment"]
        chunked = b"INFO [scheduler.py:307] Chunked prefill is enabled with max_num_batched_tokens=1024.\n"
        assert resolve(None, chunked + log("mtp3-eager"), ENV).max_num_batched_tokens == 1024
        assert resolved_differences(plan(3), found) == []
        assert resolved_differences(plan(0), found) == ["the server has a speculative config, asked was none"]

    def test_the_log_of_a_compiled_one_says_how(self) -> None:
        found = resolve(None, log("mtp0-compiled"), {})
        assert (found.compilation_mode, found.speculative_depth) == ("DYNAMO_TRACE_ONCE", 0)

    def test_compile_lines_of_a_fresh_and_of_a_used_cache(self) -> None:
        fresh = compile_log_findings(log("mtp0-compiled"), compiles=True)
        assert (fresh.compiled, fresh.loaded, fresh.verdict) == (1, 0, "fresh")
        used = compile_log_findings(log("mtp0-used-cache"), compiles=True)
        assert (used.compiled, used.loaded, used.verdict) == (1, 1, "not fresh")


CHANGES = [
    ("model_config", "dtype", "torch.float16", "the server's dtype is float16, asked was bfloat16"),
    ("model_config", "max_model_len", 2048, "the server's max-model-len is 2048, asked was 1024"),
    ("model_config", "enforce_eager", False, "the server's enforce_eager is False, asked was --enforce-eager"),
    ("cache_config", "enable_prefix_caching", True, "the server has prefix caching on, which must be off"),
    ("parallel_config", "tensor_parallel_size", 2, "the server runs TP2, asked was TP1"),
    ("scheduler_config", "max_num_seqs", 256, "the server's max-num-seqs is 256, asked was 1"),
    ("scheduler_config", "max_num_batched_tokens", 8192, "the server's max-num-batched-tokens is 8192, asked was 1024"),
    ("speculative_config", "num_speculative_tokens", 1, "the server's speculative depth is 1, asked was 3"),
    ("speculative_config", "method", "ngram", "the server speculates by ngram, asked was qwen3_5_mtp"),
    (
        *("speculative_config", "rejection_sample_method", "synthetic"),
        "the server accepts drafts synthetically (rejection_sample_method), which measures nothing",
    ),
]


@pytest.mark.parametrize(("part", "name", "value", "sentence"), CHANGES)
def test_every_contradiction_is_found(part: str, name: str, value: object, sentence: str) -> None:
    info = body("mtp3-eager")
    info["vllm_config"][part][name] = value
    assert resolved_differences(plan(3), shown(info)) == [sentence]


@pytest.mark.parametrize(("part", "name"), [change[:2] for change in CHANGES])
def test_what_is_not_shown_is_unknown_and_contradicts_nothing(part: str, name: str) -> None:
    info = body("mtp3-eager")
    del info["vllm_config"][part][name]
    found = shown(info)
    assert len(found.unknown) == 2, "this one, and the model runner"
    assert resolved_differences(plan(3), found) == []


SYNTHETIC = "the server accepts drafts synthetically (rejection_sample_method), which measures nothing"


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"num_speculative_tokens": None}, []),
        ({"num_speculative_tokens": None, "method": None}, []),
        ({"num_speculative_tokens": 1}, ["the server's speculative depth is 1, asked was 3"]),
        (
            {"num_speculative_tokens": None, "method": "ngram"},
            ["the server speculates by ngram, asked was qwen3_5_mtp"],
        ),
    ],
)
def test_synthetic_acceptance_is_found_whatever_else_is_shown(changes: dict[str, Any], more: list[str]) -> None:
    info = body("mtp3-eager")
    info["vllm_config"]["speculative_config"] |= changes | {"rejection_sample_method": "synthetic"}
    assert resolved_differences(plan(3), shown(info)) == [*more, SYNTHETIC]


def test_speculation_that_is_gone() -> None:
    info = body("mtp3-eager")
    info["vllm_config"]["speculative_config"] = None
    assert resolved_differences(plan(3), shown(info)) == ["the server's speculative depth is None, asked was 3"]


def test_quantization_is_compared_where_it_is_asked() -> None:
    info = body("mtp0-eager")
    info["vllm_config"]["model_config"]["quantization"] = "compressed-tensors"
    assert resolved_differences(plan(), shown(info)) == []
    asked = plan(more=["--quantization", "compressed-tensors"])
    assert resolved_differences(asked, shown(info)) == []
    assert resolved_differences(asked, shown(body("mtp0-eager"))) == [
        "the server's quantization is none, asked was compressed-tensors"
    ]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0, "NONE"),
        ([2, 0], "FULL_DECODE_ONLY"),
        ([2, 1], "FULL_AND_PIECEWISE"),
        ("FULL_DECODE_ONLY", "FULL_DECODE_ONLY"),
    ],
)
def test_cudagraph_mode(value: object, name: str) -> None:
    info = body("mtp0-compiled")
    info["vllm_config"]["compilation_config"]["cudagraph_mode"] = value
    found = shown(info)
    assert found.cudagraph_mode == name
    asked = plan(compiles=True, more=["--compilation-config", '{"cudagraph_mode":"FULL_DECODE_ONLY"}'])
    wrong = [] if name == "FULL_DECODE_ONLY" else [f"the server's cudagraph_mode is {name}, asked was FULL_DECODE_ONLY"]
    assert resolved_differences(asked, found) == wrong


WORKER = b"(Worker_TP0 pid=77) WARNING 01-01 00:00:00 [compilation.py:1459] "
NOT_ALWAYS = WORKER + b"CUDAGraphMode.FULL_DECODE_ONLY is not supported with "
DOWNGRADES = [
    (NOT_ALWAYS + b"X backend (support: NEVER); setting cudagraph_mode=PIECEWISE because attention is\n", "PIECEWISE"),
    (NOT_ALWAYS + b"spec-decode for attention backend X (support: Y); setting cudagraph_mode=NONE\n", "NONE"),
    (
        NOT_ALWAYS + b"X; setting cudagraph_mode=FULL_AND_PIECEWISE\n" + NOT_ALWAYS + b"setting cudagraph_mode=NONE",
        "NONE",
    ),
    (
        WORKER + b"at runtime. Overriding cudagraph_mode from FULL_DECODE_ONLY to PIECEWISE for reliability.\n",
        "PIECEWISE",
    ),
    (WORKER + b"Pooling models do not support it. Overriding cudagraph_mode to PIECEWISE.\n", "PIECEWISE"),
    (WORKER + b"Runner V2. Overriding cudagraph_mode FULL_DECODE_ONLY to NONE.\n", "NONE"),
    (
        WORKER + b"Cudagraph mode CUDAGraphMode.FULL_DECODE_ONLY requires it. Overriding to CUDAGraphMode.NONE.\n",
        "NONE",
    ),
    (WORKER + b"Setting cudagraph_mode to NONE. Hint: consider setting cudagraph_mode to FULL.\n", "NONE"),
    (WORKER + b"XPU Graph is not supported in the current PyTorch version, disabling cudagraph_mode.\n", "NONE"),
    (WORKER + b"Skipping CUDA graph capture. To turn on CUDA graph capture, ensure `cudagraph_mode` was not\n", "NONE"),
    (WORKER + b"Skipping encoder and decoder CUDA graph capture. To enable encoder capture\n", "NONE"),
    (WORKER + b"This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none\n", "FULL_DECODE_ONLY"),
    (
        WORKER + b"not supported; please try cudagraph_mode=PIECEWISE. Overriding max_num_seqs to 3\n",
        "FULL_DECODE_ONLY",
    ),
]


@pytest.mark.parametrize(("line", "mode"), DOWNGRADES)
def test_a_graph_mode_that_the_worker_replaced(line: bytes, mode: str) -> None:
    """``/server_info`` and the engine's line still show what was asked."""
    info = body("mtp0-compiled")
    info["vllm_config"]["compilation_config"]["cudagraph_mode"] = [2, 0]
    engine = log("mtp0-compiled").replace(b"<CUDAGraphMode.NONE", b"<CUDAGraphMode.FULL_DECODE_ONLY")
    asked = plan(compiles=True, more=["--compilation-config", '{"cudagraph_mode":"FULL_DECODE_ONLY"}'])
    wrong = [] if mode == "FULL_DECODE_ONLY" else [f"the server's cudagraph_mode is {mode}, asked was FULL_DECODE_ONLY"]
    for found in (shown(info, engine + line), resolve(None, engine + line, ENV), shown(info, line)):
        assert found.cudagraph_mode == mode
        assert resolved_differences(asked, found) == wrong
    # What came before the engine's own line is in that line already.
    assert shown(info, line + b"\n" + engine).cudagraph_mode == "FULL_DECODE_ONLY"


def test_inductor_settings_and_a_compilation_that_is_off() -> None:
    info = body("mtp0-compiled")
    config = info["vllm_config"]["compilation_config"]
    config["inductor_compile_config"]["epilogue_fusion"] = False
    config["mode"] = 0
    assert resolved_differences(plan(compiles=True, more=["--compilation-config", INDUCTOR]), shown(info)) == [
        "the server's compilation mode is NONE, asked was to compile",
        "the server's inductor setting epilogue_fusion is False, asked was True",
    ]


@pytest.mark.parametrize(
    ("asked", "read", "same"),
    [
        ("0", False, True), ("1", True, True), ("0", True, False), ("true", True, True), ("2", True, True),
        ("4", 4, True), ("4", 4.0, True), ("5", 4, False), ("x", 4, False), ("nobind", "nobind", True),
        ("nobind", "auto", False), ("XPU", "xpu", True),
    ],
)  # fmt: skip
def test_variables_as_the_server_read_them(asked: str, read: bool | int | float | str, *, same: bool) -> None:
    info = body("mtp0-eager")
    info["vllm_env"] = {"VLLM_KNOB": read, "VLLM_UNASKED": 7}
    wanted = plan(env={"VLLM_KNOB": asked})
    found = resolve(json.dumps(info), b"", wanted.env)
    assert found.environment == {"VLLM_KNOB": read}
    differences = resolved_differences(wanted, found)
    assert differences == ([] if same else [f"the server read VLLM_KNOB as {read!r}, asked was {asked!r}"])


@pytest.mark.parametrize(
    ("text", "read", "runner"),
    [
        (b"INFO Using V2 Model Runner\n", None, "V2"),
        (b"Model Runner V2 requires Triton; using the V1 model runner instead.", None, "V1"),
        (b"", False, "V1"),
        (b"", True, "V2"),
        (b"INFO Using V2 Model Runner\n", False, "V2"),
        (b"", None, None),
    ],
)
def test_model_runner(text: bytes, read: bool | None, runner: str | None) -> None:
    info = body("mtp0-eager")
    info["vllm_env"] = {"VLLM_USE_V2_MODEL_RUNNER": read}
    wanted = plan(env={"VLLM_USE_V2_MODEL_RUNNER": "0"})
    found = resolve(json.dumps(info), text, wanted.env)
    assert found.model_runner == runner
    said = " ".join(resolved_differences(wanted, found))
    assert ("the server uses model runner V2, asked was V1" in said) is (runner == "V2")


def test_an_attached_server_is_asked_less() -> None:
    info = copy.deepcopy(body("mtp3-eager"))
    info["vllm_config"]["model_config"] |= {"max_model_len": 4096, "dtype": "torch.float16", "enforce_eager": False}
    attached = plan(3).model_copy(update={"engine": "attach"})
    assert resolved_differences(attached, shown(info)) == []
    info["vllm_config"]["speculative_config"]["num_speculative_tokens"] = 2
    assert resolved_differences(attached, shown(info)) == ["the server's speculative depth is 2, asked was 3"]


def test_arguments() -> None:
    assert asked_value(["--a", "1", "--b", "2", "--a", "3"], "--a") == "3"
    assert asked_value(["--a", "1"], "--b") is None
    assert asked_value(["--b"], "--b") is None


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = [*body("mtp3-eager")["vllm_config"]]


@given(st.dictionaries(st.sampled_from(PARTS), ANY_JSON), ANY_JSON, st.sampled_from([None, "", "[]", "{", "null", "7"]))
def test_any_other_shape_is_unknown(config: dict[str, Any], env: object, text: str | None) -> None:
    for given_body in (json.dumps({"vllm_config": config, "vllm_env": env}), text):
        found = resolve(given_body, b"\xff", ENV)
        assert {*found.unknown} <= {*FACTS}
        assert all((getattr(found, name) is None) is (name in found.unknown) for name in FACTS)
        assert isinstance(resolved_differences(plan(3), found), list)


@given(st.sampled_from(CHANGES), st.integers(0, 1))
def test_a_part_of_another_shape_hides_its_facts_only(change: tuple[str, str, object, str], wrong: int) -> None:
    info = body("mtp3-eager")
    info["vllm_config"][change[0]] = [None, 7][wrong]
    found = shown(info)
    if change[0] != "speculative_config":
        assert found.speculative_depth == 3
        assert resolved_differences(plan(3), found) == []
