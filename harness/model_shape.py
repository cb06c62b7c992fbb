"""config.json and tensor headers → what a decoding step reads. What they don't say is missing by name, not guessed."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.models import Architecture, Role, Weights

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
KV_DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""--kv-cache-dtype → bytes of one element"""
VISION = {"visual", "vision_tower", "vision_model", "vision_encoder", "multi_modal_projector", "mm_projector"}
EMBEDDING = {"embed_tokens", "wte", "word_embeddings", "tok_embeddings"}
HEAD = {"lm_head", "embed_out"}
FINAL_NORM = {"norm", "ln_f", "final_layernorm"}
UNKNOWN_KINDS = ("kv_lora_rank", "hybrid_override_pattern", "layers_block_type", "attn_layer_period", "sliding_window")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
KV = "kv_bytes_per_token"
LIMIT = 2**40
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    """as stored"""


def role_of(name: str, layers: int | None) -> Role:
    """The part of the model that a tensor belongs to; layers numbered from ``layers`` of config.json on are MTP's."""
    parts = set(name.split("."))
    numbered = LAYER.search(name)
    beyond = layers is not None and numbered is not None and int(numbered[1]) >= layers
    if parts & VISION:
        return "vision"
    if parts & {"mtp", "nextn"} or beyond:
        if parts & EMBEDDING:
            return "mtp_embedding"
        return "mtp_head" if parts & (HEAD | {"shared_head"}) else "mtp"
    if parts & EMBEDDING:
        return "embedding"
    if parts & HEAD:
        return "lm_head"
    if numbered is not None or (parts & FINAL_NORM and name.count(".") <= 3):
        return "layers"
    return "other"


def weights_of(tensors: Iterable[Tensor], config: Mapping[str, Any]) -> Weights:
    """Bytes by role and type."""
    layers = _positive(text_config(config), "num_hidden_layers")
    found: dict[Role, dict[str, int]] = {}
    count = 0
    for tensor in tensors:
        count += 1
        types = found.setdefault(role_of(tensor.name, layers), {})
        types[tensor.dtype] = types.get(tensor.dtype, 0) + tensor.bytes
    return Weights(
        tensors=count,
        bytes_by_role={role: dict(sorted(types.items())) for role, types in sorted(found.items())},
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of config.json."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def architecture_of(
    config: Mapping[str, Any], weights: Weights | None, tensors: Iterable[Tensor]
) -> tuple[Architecture, dict[str, str]]:
    """What config.json says, checked against the tensors where there are any; second, what it doesn't say and why."""
    text = text_config(config)
    missing: dict[str, str] = {}
    found: dict[str, Any] = {"model_type": _text(text, "model_type")}
    found["dtype"] = _text(text, "dtype") or _text(text, "torch_dtype")
    if found["dtype"] not in DTYPE_BYTES:
        missing["dtype"] = f"config.json has no dtype known here (it says {found['dtype']})"
        found["dtype"] = None
    quantized = config.get("quantization_config", text.get("quantization_config"))
    if quantized is not None:
        found["quantization"] = _text(quantized, "quant_method") if isinstance(quantized, dict) else None
        if found["quantization"] is None:
            missing["quantization"] = "config.json has a quantization_config without quant_method"
    for name, key in (("hidden_size", "hidden_size"), ("vocab_size", "vocab_size"), ("layers", "num_hidden_layers")):
        found[name] = _needed(text, key, name, missing)
    found["tied"] = _tied(text, weights, missing)
    layer = [LAYER.search(tensor.name) for tensor in tensors if role_of(tensor.name, found["layers"]) == "layers"]
    numbers = {int(hit[1]) for hit in layer if hit is not None}
    if found["layers"] is not None and weights is not None and len(numbers) != found["layers"]:
        missing["layers"] = f"config.json says {found['layers']} layers, the files hold {len(numbers)}"
        found["layers"] = None
    experts = next((key for key in EXPERTS if (_positive(text, key) or 0) > 1), None)
    if experts is not None:
        missing["experts"] = (
            f"config.json has {experts} {text[experts]}, and which of them a step reads depends on its text"
        )
    _attention(text, quantized, found, missing)
    _state(text, found, missing)
    return Architecture(**found), missing


def _tied(text: Mapping[str, Any], weights: Weights | None, missing: dict[str, str]) -> bool | None:
    said = text.get("tie_word_embeddings")
    if isinstance(said, bool):
        return said
    if weights is not None and weights.total("lm_head"):
        return False
    missing["tied"] = "config.json has no tie_word_embeddings, and no file holds an lm_head"
    return None


def _attention(text: Mapping[str, Any], quantized: Any, found: dict[str, Any], missing: dict[str, str]) -> None:
    layers = found["layers"]
    kinds = text.get("layer_types")
    unknown = next((key for key in UNKNOWN_KINDS if text.get(key) not in (None, False)), None)
    if isinstance(kinds, list) and layers is not None and len(kinds) == layers:
        odd = next((kind for kind in kinds if kind not in ("full_attention", "linear_attention")), None)
        if odd is None:
            found["full_attention_layers"] = kinds.count("full_attention")
            found["linear_attention_layers"] = kinds.count("linear_attention")
        else:
            missing["full_attention_layers"] = (
                f"config.json has layers of type {str(odd)[:80]!r}, which isn't known here"
            )
    elif kinds is not None or layers is None:
        missing["full_attention_layers"] = "config.json's layer_types don't fit its number of layers"
    elif unknown is not None or any(key.startswith(("linear_", "mamba_", "ssm_")) for key in text):
        what = unknown or "linear or recurrent layers"
        missing["full_attention_layers"] = f"config.json has {what} and no layer_types"
    else:
        found["full_attention_layers"], found["linear_attention_layers"] = layers, 0
    found["kv_heads"] = _needed(text, "num_key_value_heads", "kv_heads", missing)
    heads, hidden = _positive(text, "num_attention_heads"), found["hidden_size"]
    found["head_dim"] = _positive(text, "head_dim")
    if found["head_dim"] is None and heads and hidden and hidden % heads == 0:
        found["head_dim"] = hidden // heads
    if found["head_dim"] is None:
        missing["head_dim"] = "config.json has neither head_dim nor what it follows from"
    found["mtp_layers"] = next(
        (text[key] for key in ("mtp_num_hidden_layers", "num_nextn_predict_layers") if _whole(text.get(key))), None
    )
    if found["mtp_layers"] is None:
        missing["mtp_layers"] = "config.json has no mtp_num_hidden_layers"
    elements = _kv_elements(quantized, found["dtype"], missing)
    if elements is None or found["kv_heads"] is None or found["head_dim"] is None:
        missing.setdefault(
            "kv_bytes_per_token", "it follows from kv_heads, head_dim and dtype, of which one is missing"
        )
        return
    found["kv_element_bytes"] = elements
    one = {dtype: 2 * found["kv_heads"] * found["head_dim"] * size for dtype, size in elements.items()}
    found["mtp_kv_bytes_per_token"] = one
    if found.get("full_attention_layers") is None:
        missing[KV] = "it follows from full_attention_layers, which is missing"
        return
    found["kv_bytes_per_token"] = {dtype: size * found["full_attention_layers"] for dtype, size in one.items()}


def _kv_elements(quantized: Any, dtype: str | None, missing: dict[str, str]) -> dict[str, int] | None:
    scheme = quantized.get("kv_cache_scheme") if isinstance(quantized, dict) else None
    if scheme is not None:
        bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
        if bits not in (8, 16):
            missing[KV] = "config.json has a kv_cache_scheme whose num_bits isn't known here"
            return None
        return {"auto": bits // 8, **KV_DTYPES}
    return None if dtype is None else {"auto": DTYPE_BYTES[dtype], **KV_DTYPES}


def _state(text: Mapping[str, Any], found: dict[str, Any], missing: dict[str, str]) -> None:
    """Recurrent and convolution state of gated-delta-net layers, as vLLM keeps them."""
    count = found.get("linear_attention_layers")
    if count is None:
        missing["state_bytes"] = "it follows from linear_attention_layers, which is missing"
        return
    if count == 0:
        found["state_bytes"] = 0
        return
    keys = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    sizes = [_positive(text, f"linear_{key}") for key in keys]
    absent = next((f"linear_{key}" for key, size in zip(keys, sizes, strict=True) if size is None), None)
    # Without mamba_ssm_dtype, vLLM's "auto" keeps the state in the model's own type.
    kept = _text(text, "mamba_ssm_dtype") or found["dtype"]
    if absent is not None or kept not in DTYPE_BYTES or found["dtype"] is None:
        missing["state_bytes"] = f"config.json has no {absent or 'dtype known here'}"
        return
    key_heads, value_heads, key_dim, value_dim, kernel = (size or 0 for size in sizes)
    recurrent = value_heads * key_dim * value_dim * DTYPE_BYTES[kept]
    convolved = (2 * key_heads * key_dim + value_heads * value_dim) * (kernel - 1) * DTYPE_BYTES[found["dtype"]]
    found["state_bytes"] = count * (recurrent + convolved)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LIMIT


def _positive(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and _whole(value) and value > 0 else None


def _needed(config: Mapping[str, Any], key: str, name: str, missing: dict[str, str]) -> int | None:
    value = _positive(config, key)
    if value is None:
        missing[name] = f"config.json has no {key}"
    return value


def _text(config: Mapping[str, Any], key: str) -> str | None:
    value = config.get(key)
    return value.removeprefix("torch.")[:80] if isinstance(value, str) else None


def elements(shape: Iterable[int]) -> int:
    """Of a tensor."""
    return math.prod(shape)
