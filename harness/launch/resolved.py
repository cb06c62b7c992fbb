"""What a server says it resolved its arguments to, and where that contradicts the plan (contract section 2). All pure.

Two sources: ``/server_info`` (dev mode only) and the line in which vLLM's engine logs its configuration. The first goes
before the second; what neither shows is *unknown*, by name, and never taken for what was asked.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from harness.launch.server import Record
from harness.plan import SPECULATIVE_FLAG, ServerPlan

SERVER_INFO, LOG = "/server_info", "log"
V2_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
COMPILATION_FLAG = "--compilation-config"
NONE = "none"
"""The server says that it has none; null is what it doesn't say."""

CUDAGRAPH_MODES = {
    "0": "NONE",
    "1": "PIECEWISE",
    "2": "FULL",
    "[2, 0]": "FULL_DECODE_ONLY",
    "[2, 1]": "FULL_AND_PIECEWISE",
}
"""vLLM's JSON has the values of its enumeration, its log the names."""
COMPILATION_MODES = {"0": "NONE", "1": "STOCK_TORCH_COMPILE", "2": "DYNAMO_TRACE_ONCE", "3": "VLLM_COMPILE"}

MTP_METHODS = re.compile(r"mtp|\w+_mtp")
"""``qwen3_5_mtp`` and its like are asked, ``mtp`` is reported."""
DTYPES = {"half": "float16", "float": "float32"}


class Resolved(Record):
    """The server's own configuration. Null is unknown; a text ``none`` is the server's own word."""

    sources: list[str]
    """/server_info (dev mode), log; empty: the server shows nothing"""
    unknown: list[str]
    """names of the fields below that the server doesn't show"""
    tensor_parallel: int | None = None
    speculative_method: str | None = None
    """as reported: ``mtp`` where ``qwen3_5_mtp`` was asked"""
    speculative_depth: int | None = None
    """0: no speculative config"""
    rejection_sample_method: str | None = None
    """``none`` without speculation"""
    model_runner: str | None = None
    """V1 or V2"""
    cudagraph_mode: str | None = None
    cudagraph_capture_sizes: list[int] | None = None
    """after vLLM's own rounding, which depends on the depth: recorded, not compared"""
    compilation_mode: str | None = None
    enforce_eager: bool | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefix_caching: bool | None = None
    inductor: dict[str, Any] | None = None
    """the keys of inductor_compile_config"""
    environment: dict[str, bool | int | float | str] | None = None
    """variables of the plan as the server read them"""


FACTS = [name for name in Resolved.model_fields if name not in ("sources", "unknown")]


GRAPH_LINES = re.compile(
    rb"\bsetting cudagraph_mode=(?P<a>\w+)"
    rb"|\bSetting cudagraph_mode to (?P<b>\w+)"
    rb"|\bOverriding cudagraph_mode (?:\(?(?:from )?[\w.]+\)? )?to (?:CUDAGraphMode\.)?(?P<c>\w+)"
    rb"|\b[Cc]udagraph mode [^\n]{,300}\bOverriding to (?:CUDAGraphMode\.)?(?P<d>\w+)"
    rb"|\bcudagraph_mode will be set to (?P<e>\w+)"
    rb"|disabling cudagraph_mode|Disabling CUDA Graphs|Skipping (?:encoder and decoder )?CUDA graph capture\."
)
"""A mode that vLLM takes in place of the one of its configuration; the last ones mean NONE."""


def resolve(body: str | None, log: bytes, asked_env: Mapping[str, str]) -> Resolved:
    """A ``/server_info`` body (null where it wasn't answered) and a log → what they show. Never raises."""
    info = _json(body)
    config = info.get("vllm_config")
    found = dict[str, Any]()
    sources = []
    if isinstance(config, dict) and config:
        sources.append(SERVER_INFO)
        found = _from_config(config)
    line = _engine_line(log)
    if line is not None:
        sources.append(LOG)
        said = _from_line(line)
        batched = _BATCHED.search(log)
        if batched is not None:
            said["max_num_batched_tokens"] = int(batched.group(1))
        found = {**said, **{name: value for name, value in found.items() if value is not None}}
    # The worker's own word of the mode comes after the configuration was logged, and is in no other source.
    graph = _graph_mode(log)
    if graph is not None:
        found["cudagraph_mode"] = graph
        if LOG not in sources:
            sources.append(LOG)
    shown = info.get("vllm_env")
    env = shown if isinstance(shown, dict) else {}
    found["model_runner"] = _runner(env, log)
    if env:
        found["environment"] = {
            name: env[name] for name in sorted(asked_env) if isinstance(env.get(name), bool | int | float | str)
        }
    known = {name: value for name, value in found.items() if value is not None}
    return Resolved(sources=sources, unknown=[name for name in FACTS if name not in known], **known)


def _json(body: str | None) -> dict[str, Any]:
    try:
        info = json.loads(body or "")
    except (ValueError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    def part(name: str) -> dict[str, Any]:
        value = config.get(name)
        return value if isinstance(value, dict) else {}

    model, cache, compilation = part("model_config"), part("cache_config"), part("compilation_config")
    scheduler = part("scheduler_config")
    sizes, inductor = compilation.get("cudagraph_capture_sizes"), compilation.get("inductor_compile_config")
    return {
        **_speculation(config),
        "tensor_parallel": _whole(part("parallel_config").get("tensor_parallel_size")),
        "cudagraph_mode": _named(compilation, "cudagraph_mode", CUDAGRAPH_MODES),
        "cudagraph_capture_sizes": sizes if _whole_list(sizes) else None,
        "compilation_mode": _named(compilation, "mode", COMPILATION_MODES),
        "enforce_eager": _switch(model.get("enforce_eager")),
        "dtype": _dtype(model.get("dtype")),
        "quantization": _text_or_none(model, "quantization"),
        "kv_cache_dtype": _text_or_none(cache, "cache_dtype"),
        "max_model_len": _whole(model.get("max_model_len")),
        "max_num_seqs": _whole(scheduler.get("max_num_seqs")),
        "max_num_batched_tokens": _whole(scheduler.get("max_num_batched_tokens")),
        "prefix_caching": _switch(cache.get("enable_prefix_caching")),
        "inductor": inductor if isinstance(inductor, dict) else None,
    }


def _speculation(config: dict[str, Any]) -> dict[str, Any]:
    if "speculative_config" not in config:
        return {}
    speculative = config["speculative_config"]
    if not isinstance(speculative, dict):
        none = {"speculative_method": NONE, "speculative_depth": 0, "rejection_sample_method": NONE}
        return none if speculative is None else {}
    return {
        "speculative_method": _text(speculative.get("method")),
        "speculative_depth": _whole(speculative.get("num_speculative_tokens")),
        "rejection_sample_method": _text(speculative.get("rejection_sample_method")),
    }


_ENGINE_LINE = re.compile(rb"Initializing a V\d LLM engine .*? with config: (.*)")
_BATCHED = re.compile(rb"max_num_batched_tokens=(\d+)\.")


def _literal(text: str) -> dict[str, Any] | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) else None


_LOGGED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "tensor_parallel": (r"\btensor_parallel_size=(\d+)", int),
    "dtype": (r"\bdtype=torch\.(\w+)", str),
    "quantization": (r"\bquantization=([\w-]+)", lambda value: NONE if value == "None" else value),
    "kv_cache_dtype": (r"\bkv_cache_dtype=(\w+)", str),
    "max_model_len": (r"\bmax_seq_len=(\d+)", int),
    "prefix_caching": (r"\benable_prefix_caching=(True|False)", lambda value: value == "True"),
    "enforce_eager": (r"\benforce_eager=(True|False)", lambda value: value == "True"),
    "cudagraph_mode": (r"'cudagraph_mode': <CUDAGraphMode\.(\w+)", str),
    "compilation_mode": (r"'mode': <CompilationMode\.(\w+)", str),
    "cudagraph_capture_sizes": (r"'cudagraph_capture_sizes': (\[[\d, ]*\])", ast.literal_eval),
    "inductor": (r"'inductor_compile_config': (\{[^{}]*\})", _literal),
}


def _engine_line(log: bytes) -> str | None:
    match = _ENGINE_LINE.search(log)
    return None if match is None else match.group(1).decode("utf-8", "replace")


def _graph_mode(log: bytes) -> str | None:
    """What the last line that replaces the graph mode says; null where none came after the engine's own line."""
    engine = _ENGINE_LINE.search(log)
    found = list(GRAPH_LINES.finditer(log, 0 if engine is None else engine.end()))
    if not found:
        return None
    return next((mode for mode in found[-1].groups() if mode), b"NONE").decode("ascii", "replace").upper()


def _from_line(line: str) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, (pattern, read) in _LOGGED.items():
        match = re.search(pattern, line)
        if match is not None:
            found[name] = read(match.group(1))
    if re.search(r"\bspeculative_config=None", line):
        found |= {"speculative_method": NONE, "speculative_depth": 0, "rejection_sample_method": NONE}
    match = re.search(r"\bspeculative_config=SpeculativeConfig\(method='(\w+)'.*?num_spec_tokens=(\d+)", line)
    if match is not None:
        found |= {"speculative_method": match.group(1), "speculative_depth": int(match.group(2))}
    return found


def _runner(env: Mapping[str, Any], log: bytes) -> str | None:
    """The log goes first, because a variable that is not set leaves the choice to vLLM."""
    if b"Using V2 Model Runner" in log:
        return "V2"
    if b"using the V1 model runner" in log:
        return "V1"
    choice = env.get(V2_RUNNER)
    return None if not isinstance(choice, bool) else "V2" if choice else "V1"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole_list(value: object) -> bool:
    return isinstance(value, list) and all(_whole(item) is not None for item in value)


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text_or_none(part: Mapping[str, Any], name: str) -> str | None:
    return NONE if name in part and part[name] is None else _text(part.get(name))


def _dtype(value: object) -> str | None:
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _named(part: Mapping[str, Any], name: str, names: Mapping[str, str]) -> str | None:
    """A name of an enumeration, given by name or by value."""
    value = part.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.rpartition(".")[2].upper()
    return names.get(json.dumps(value), json.dumps(value))


def resolved_differences(plan: ServerPlan, resolved: Resolved) -> list[str]:
    """Where the server's own word contradicts the plan, one sentence each. What is unknown contradicts nothing.

    Of an attached server only what the contract asks of every one: TP, speculation, and no cached prompts.
    """
    found = _speculation_differences(plan, resolved)
    if resolved.tensor_parallel not in (None, plan.tensor_parallel):
        found.insert(0, f"the server runs TP{resolved.tensor_parallel}, asked was TP{plan.tensor_parallel}")
    if resolved.prefix_caching:
        found.append("the server has prefix caching on, which must be off")
    if plan.engine == "attach":
        return found
    for flag, what, value in (
        ("--dtype", "dtype", resolved.dtype),
        ("--quantization", "quantization", resolved.quantization),
        ("--kv-cache-dtype", "KV cache dtype", resolved.kv_cache_dtype),
        ("--max-model-len", "max-model-len", resolved.max_model_len),
        ("--max-num-seqs", "max-num-seqs", resolved.max_num_seqs),
        ("--max-num-batched-tokens", "max-num-batched-tokens", resolved.max_num_batched_tokens),
    ):
        asked = asked_value(plan.arguments, flag)
        if asked not in (None, "auto") and value is not None and DTYPES.get(str(asked), asked) != str(value):
            found.append(f"the server's {what} is {value}, asked was {asked}")
    return found + _compilation_differences(plan, resolved) + _environment_differences(plan, resolved)


def _speculation_differences(plan: ServerPlan, resolved: Resolved) -> list[str]:
    depth = resolved.speculative_depth
    if plan.depth == 0:
        return ["the server has a speculative config, asked was none"] if depth or _speculates(resolved) else []
    found = []
    if depth is not None and depth != plan.depth:
        found.append(f"the server's speculative depth is {depth or None}, asked was {plan.depth}")
    if depth == 0:  # it has no speculative config, so no method either
        return found
    asked = _json(asked_value(plan.arguments, SPECULATIVE_FLAG)).get("method")
    if isinstance(asked, str) and resolved.speculative_method is not None:
        mine, its = (_method(asked), _method(resolved.speculative_method))
        if mine != its and plan.engine != "attach":
            found.append(f"the server speculates by {resolved.speculative_method}, asked was {asked}")
    if "synthetic" in (resolved.rejection_sample_method or ""):
        found.append("the server accepts drafts synthetically (rejection_sample_method), which measures nothing")
    return found


def _speculates(resolved: Resolved) -> bool:
    return resolved.speculative_method not in (None, NONE)


def _method(name: str) -> str:
    return "mtp" if MTP_METHODS.fullmatch(name) else name


def _compilation_differences(plan: ServerPlan, resolved: Resolved) -> list[str]:
    found = []
    if resolved.enforce_eager is not None and resolved.enforce_eager is plan.compiles:
        asked = "to compile" if plan.compiles else "--enforce-eager"
        found.append(f"the server's enforce_eager is {resolved.enforce_eager}, asked was {asked}")
    elif plan.compiles and resolved.compilation_mode == "NONE":
        found.append("the server's compilation mode is NONE, asked was to compile")
    asked_config = _json(asked_value(plan.arguments, COMPILATION_FLAG))
    mode = asked_config.get("cudagraph_mode")
    if isinstance(mode, str) and resolved.cudagraph_mode is not None and mode.upper() != resolved.cudagraph_mode:
        found.append(f"the server's cudagraph_mode is {resolved.cudagraph_mode}, asked was {mode}")
    inductor, shown = asked_config.get("inductor_compile_config"), resolved.inductor or {}
    for name, wanted in inductor.items() if isinstance(inductor, dict) else ():
        if name in shown and shown[name] != wanted:
            found.append(f"the server's inductor setting {name} is {shown[name]}, asked was {wanted}")
    return found


def _environment_differences(plan: ServerPlan, resolved: Resolved) -> list[str]:
    found = []
    for name, value in (resolved.environment or {}).items():
        asked = plan.env.get(name)
        if asked is not None and "<" not in asked and not _same(asked, value):
            found.append(f"the server read {name} as {value!r}, asked was {asked!r}")
    runner = {"0": "V1", "1": "V2"}.get(plan.env.get(V2_RUNNER, ""))
    if runner is not None and resolved.model_runner not in (None, runner):
        found.append(f"the server uses model runner {resolved.model_runner}, asked was {runner} ({V2_RUNNER})")
    return found


def _same(asked: str, read: bool | int | float | str) -> bool:
    """Whether a variable's text means the value that the server read from it."""
    text = asked.strip().lower()
    if isinstance(read, bool):
        return (text not in ("", "0", "false", "no", "off")) is read
    if isinstance(read, str):
        return text == read.strip().lower()
    try:
        return float(text) == float(read)
    except (ValueError, OverflowError):
        return False


def asked_value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag; null where it isn't given. The last of two counts, as it does for vLLM."""
    values = [after for before, after in pairwise(arguments) if before == flag]
    return values[-1] if values else None
