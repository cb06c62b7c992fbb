"""Lines of a server's log that tell of a compilation: harmless before it is measured, a latency spike after. Pure."""

import re

WORDINGS: tuple[tuple[bytes, str], ...] = (
    (rb"JIT compilation during inference: ", "vLLM's kernel monitor for Triton, TileLang and CuTe, once a kernel"),
    (rb"Triton autotuning for function ", "Triton's autotuner, which that monitor lets print"),
    (rb"Compiling a graph for |torch\.compile (?:took|takes) |saved AOT compiled function to ", "vLLM's torch.compile"),
    (rb"\bAUTOTUNE \w+\(", "Inductor's choice between kernels"),
    (rb"\bRecompiling function |torch\._dynamo hit config\.\w*(?:recompile|cache_size)_limit", "Dynamo"),
    (rb"recompiling the kernel using large GRF mode", "Triton's XPU driver (with TRITON_DEBUG)"),
    (rb"TileLang begins to compile kernel ", "TileLang"),
)
"""(pattern, who writes it). Taken from vLLM 0.32 (vllm/utils/jit_monitor.py, vllm/compilation/backends.py; public
threads vllm#40137, #45631, #46167), PyTorch (torch/_dynamo, torch/_inductor/select_algorithm.py), Triton
(runtime/autotuner.py), TileLang (jit/kernel.py) and intel-xpu-backend-for-triton#2385. A kernel that is compiled
without a word, as the GPU driver's own compiler does it, is seen by its time alone."""

_ANY = re.compile(b"|".join(b"(?:" + pattern + b")" for pattern, _ in WORDINGS))
_STAMP = re.compile(r"^(?:\([^()]{1,60}\) )?(?:[A-Z]+ )?\d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\[\]]{1,80}\] )?")
SHOWN = 160
"""Characters of a line that evidence keeps"""


def compile_lines(log: bytes) -> list[tuple[int, str]]:
    """(number of the line from 0, its words without vLLM's stamp) of every line that tells of a compilation."""
    return [(number, _words(line)) for number, line in enumerate(log.split(b"\n")) if _ANY.search(line)]


def _words(line: bytes) -> str:
    text = _STAMP.sub("", line.decode("utf-8", "replace").strip())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
