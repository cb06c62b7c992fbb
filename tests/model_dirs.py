"""Model directories made of nothing but headers: real safetensors files whose data is a hole, and a config.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.host.model_files import SIZES
from harness.model_shape import Tensor

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "mtp_num_hidden_layers": 1,
    "tie_word_embeddings": True,
}

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "model.embed_tokens.weight": ("BF16", (100, 64)),
    "model.layers.0.linear_attn.in_proj_qkv.weight": ("BF16", (64, 64)),
    "model.layers.1.self_attn.q_proj.weight": ("BF16", (64, 64)),
    "model.norm.weight": ("BF16", (64,)),
    "mtp.layers.0.mlp.up_proj.weight": ("BF16", (64, 32)),
}


def tensors(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[Tensor]:
    found = []
    for name, (dtype, shape) in shapes.items():
        count = 1
        for size in shape:
            count *= size
        found.append(Tensor(name, dtype, shape, count * SIZES[dtype]))
    return found


def write_safetensors(path: Path, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in tensors(shapes):
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.bytes]}
        at += tensor.bytes
    data = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(data).to_bytes(8, "little") + data)
        file.truncate(8 + len(data) + at)


def write_model(folder: Path, config: Mapping[str, Any] | None = None) -> Path:
    """A directory with a config and one safetensors file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    write_safetensors(folder / "model.safetensors", SHAPES)
    return folder
