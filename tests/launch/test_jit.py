"""The wordings of a compilation in a server's log, as those who write them do."""

import re

import pytest

from harness.launch.jit import SHOWN, WORDINGS, compile_lines
from tests.recorded import FOLDER

STAMP = "(EngineCore pid=350) WARNING 06-15 01:59:47 [jit_monitor.py:97] "
REAL = [
    f"{STAMP}Triton kernel JIT compilation during inference: _zero_kv_blocks_kernel. This causes a latency spike; …",
    f"{STAMP}CuTeDSL JIT compilation during inference: FlashAttentionForwardSm100. This causes a latency spike; …",
    "(Worker pid=9) Triton autotuning for function chunk_fwd_kernel,",
    "INFO 12-01 10:00:00 [backends.py:398] Compiling a graph for compile range (1, 512) takes 9.51 s",
    "(EngineCore pid=7) INFO 12-01 10:00:00 [monitor.py:53] torch.compile took 13.01 s in total",
    "AUTOTUNE mm(4096x16384, 16384x4096)",
    "V1103 02:48:08.805986 34281 torch/_dynamo/guards.py:2813] [__recompiles] Recompiling function forward in <path>",
    "W1021 10:44:18.989000 29 torch/_dynamo/convert_frame.py:1355] [0/8] torch._dynamo hit config.recompile_limit (8)",
    "(I): Detected 9472 spills, recompiling the kernel using large GRF mode",
    "2026-03-19 10:14:52  [TileLang:tilelang.jit.kernel:INFO]: TileLang begins to compile kernel `decode` with",
]
OTHER = [
    "INFO 06-01 21:56:43 [jit_monitor.py:54] Kernel JIT monitor activated; monitored JIT compilations "
    "during inference will use mode=warn.",
    "WARNING 11-30 16:39:40 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and "
    "JIT kernel warmup.",
    "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
    'INFO:     127.0.0.1:59940 - "POST /v1/completions HTTP/1.1" 200 OK',
]


@pytest.mark.parametrize("line", REAL)
def test_41_every_wording_is_seen(line: str) -> None:
    ((number, words),) = compile_lines(f"first\n{line}\nlast\n".encode())
    assert number == 1 and len(words) <= SHOWN
    assert not words.startswith(("(EngineCore", "INFO", "WARNING")), "vLLM's own stamp is left out"


@pytest.mark.parametrize("line", OTHER)
def test_41_what_only_speaks_of_compilations_is_none(line: str) -> None:
    assert compile_lines(line.encode()) == []


def test_41_every_pattern_of_the_table_is_tried_above() -> None:
    assert all(any(re.search(pattern, line.encode()) for line in REAL) for pattern, _ in WORDINGS)


def test_41_no_recorded_server_compiled_after_it_was_ready() -> None:
    for log in sorted(FOLDER.glob("*/attempts/*/server.log")):
        data = log.read_bytes()
        assert compile_lines(data[data.find(b"Application startup complete") :]) == []
