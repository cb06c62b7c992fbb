"""Manifests as files, and what config.json and tensor headers say of a decoding step."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.model_shape import Tensor, architecture_of, role_of, weights_of
from harness.models import FileEntry, Manifest, combined_sha256, load_manifest
from tests.model_dirs import CONFIG, SHAPES, tensors

FILES = [FileEntry(name="config.json", size=2, sha256="a" * 64), FileEntry(name="a/b", size=1, sha256="b" * 64)]


def manifest(**changes: Any) -> dict[str, Any]:
    whole = Manifest(sha256=combined_sha256(FILES), files=FILES).as_json()
    return whole | changes


def described(config: dict[str, Any], found: list[Tensor] | None = None) -> Any:
    found = tensors(SHAPES) if found is None else found
    return architecture_of(config, weights_of(found, config), found)


def test_combined_sha256_knows_no_order_and_sorts_by_parts() -> None:
    one, other, third = (FileEntry(name=name, size=1, sha256="c" * 64) for name in ("a/b", "a-b", "b"))
    assert combined_sha256([one, other, third]) == combined_sha256([third, other, one])
    # As pathlib sorts: a folder's files stand before what a character below "/" would put between.
    expected = '[["a","b"],["a-b"],["b"]]'
    assert sorted([["b"], ["a-b"], ["a", "b"]]) == json.loads(expected)
    changed = FileEntry(name="a/b", size=2, sha256="c" * 64)
    assert combined_sha256([changed, other, third]) != combined_sha256([one, other, third])


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(manifest(repository="org/name", revision="r1")))
    loaded = load_manifest(path)
    assert loaded.manifest.as_json() == manifest(repository="org/name", revision="r1")
    assert (loaded.name, len(loaded.sha256)) == ("m.json", 64)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "it is not "),
        ("[" * 100_000, "it is not "),
        ("[]", "has no schema b70-bench.model/1"),
        ('{"schema": "b70-bench.model/2"}', "has no schema b70-bench.model/1"),
        (json.dumps(manifest(extra=1)), "extra: extra inputs are not permitted"),
        (json.dumps(manifest(sha256="0" * 64)), "so the list was edited"),
        (json.dumps(manifest(files=[])), "files: list should have at least 1 item"),
        (json.dumps(manifest(files=[FILES[0].model_dump()] * 2)), "a file is listed twice"),
        (json.dumps(manifest(files=[{"name": "../x", "size": 1, "sha256": "a" * 64}])), "no name inside the directory"),
        (json.dumps(manifest(files=[{"name": "/x", "size": 1, "sha256": "a" * 64}])), "no name inside the directory"),
        (json.dumps(manifest(files=[{"name": "x", "size": -1, "sha256": "a" * 64}])), "can't be"),
        (json.dumps(manifest(files=[{"name": "x", "size": 1, "sha256": "A" * 64}])), "can't be"),
        (json.dumps(manifest(files=[{"name": "\ud800", "size": 1, "sha256": "a" * 64}])), "half of a surrogate pair"),
    ],
)
def test_a_manifest_that_can_not_be_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(content)
    with pytest.raises(UsageError) as refused:
        load_manifest(path)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
    assert "bench model pin" in str(refused.value)


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model manifest named 'nothing'"):
        load_manifest("nothing")
    with pytest.raises(UsageError, match=r"model manifest path .* is not a file"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("model.language_model.embed_tokens.weight", "embedding"),
        ("lm_head.weight", "lm_head"),
        ("model.layers.1.mlp.down_proj.weight_packed", "layers"),
        ("model.language_model.layers.0.linear_attn.A_log", "layers"),
        ("model.norm.weight", "layers"),
        ("model.language_model.norm.weight", "layers"),
        ("mtp.layers.0.self_attn.k_proj.weight", "mtp"),
        ("mtp.norm.weight", "mtp"),
        ("mtp.embed_tokens.weight", "mtp_embedding"),
        ("mtp.lm_head.weight", "mtp_head"),
        ("model.layers.2.mlp.up_proj.weight", "mtp"),
        ("model.layers.2.shared_head.head.weight", "mtp_head"),
        ("model.visual.blocks.0.norm1.weight", "vision"),
        ("visual.merger.norm.weight", "vision"),
        ("something.else", "other"),
    ],
)
def test_the_part_of_a_tensor_follows_from_its_name(name: str, role: str) -> None:
    assert role_of(name, 2) == role


def test_what_a_step_reads_is_counted_from_the_files() -> None:
    shape, missing = described(CONFIG)
    weights = weights_of(tensors(SHAPES), CONFIG)
    assert missing == {}
    assert weights.total("embedding") == 100 * 64 * 2
    assert weights.total("layers") == (64 * 64 * 2 + 64) * 2
    assert weights.total("mtp") == 64 * 32 * 2
    assert (shape.full_attention_layers, shape.linear_attention_layers, shape.tied) == (1, 1, True)
    assert shape.kv_bytes_per_token is not None and shape.mtp_kv_bytes_per_token is not None
    # Keys and values of 2 heads of 16 numbers, in one layer.
    assert shape.kv_bytes_per_token["auto"] == shape.kv_bytes_per_token["bfloat16"] == 2 * 2 * 16 * 2
    assert shape.kv_bytes_per_token["fp8"] == 2 * 2 * 16
    assert shape.mtp_kv_bytes_per_token["auto"] == 128
    # 4 heads of 8 × 8 numbers, and 3 columns of (2 × 2 × 8 + 4 × 8) before the convolution, two bytes each.
    assert shape.state_bytes == (4 * 8 * 8 + 3 * 64) * 2


def test_the_state_is_as_wide_as_config_says() -> None:
    shape, _ = described({**CONFIG, "mamba_ssm_dtype": "float32"})
    assert shape.state_bytes == 4 * 8 * 8 * 4 + 3 * 64 * 2


def test_a_text_config_is_where_a_multimodal_model_says_it() -> None:
    nested = {"architectures": ["X"], "text_config": CONFIG, "model_type": "outer"}
    assert described(nested) == described(CONFIG)


def test_a_plain_model_has_full_attention_everywhere() -> None:
    plain = {key: value for key, value in CONFIG.items() if not key.startswith(("linear_", "layer_types"))}
    shape, missing = described(plain)
    assert missing == {} and (shape.full_attention_layers, shape.state_bytes) == (2, 0)


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in CONFIG.items() if key not in keys}


@pytest.mark.parametrize(
    ("config", "what", "why"),
    [
        (without("num_key_value_heads"), "kv_heads", "config.json has no num_key_value_heads"),
        (without("layer_types"), "full_attention_layers", "and no layer_types"),
        ({**CONFIG, "layer_types": ["sliding_attention"] * 2}, "full_attention_layers", "'sliding_attention'"),
        ({**CONFIG, "layer_types": ["full_attention"]}, "full_attention_layers", "don't fit"),
        ({**without("layer_types"), "kv_lora_rank": 512}, "full_attention_layers", "kv_lora_rank"),
        (without("linear_key_head_dim"), "state_bytes", "linear_key_head_dim"),
        (without("dtype"), "dtype", "no dtype known here"),
        ({**CONFIG, "num_experts": 8}, "experts", "num_experts 8"),
        ({**CONFIG, "num_hidden_layers": 3}, "layers", "config.json says 3 layers, the files hold 2"),
        (without("tie_word_embeddings"), "tied", "no file holds an lm_head"),
        ({**CONFIG, "quantization_config": {"kv_cache_scheme": {"num_bits": 5}}}, "kv_bytes_per_token", "num_bits"),
        ({**CONFIG, "num_key_value_heads": True}, "kv_heads", "no num_key_value_heads"),
        ({**CONFIG, "head_dim": -1, "num_attention_heads": "x"}, "head_dim", "neither head_dim"),
    ],
)
def test_what_config_does_not_say_is_missing_with_its_reason(config: dict[str, Any], what: str, why: str) -> None:
    shape, missing = described(config)
    assert why in missing[what]
    assert getattr(shape, what, None) is None


def test_a_quantized_cache_is_as_narrow_as_the_files_say() -> None:
    shape, _ = described({**CONFIG, "quantization_config": {"quant_method": "q", "kv_cache_scheme": {"num_bits": 8}}})
    assert shape.quantization == "q" and shape.kv_bytes_per_token is not None
    assert shape.kv_bytes_per_token["auto"] == shape.kv_bytes_per_token["fp8"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(changes=st.dictionaries(st.sampled_from([*CONFIG, "text_config", "quantization_config", "num_experts"]), JSON))
def test_any_config_is_described_or_missing(changes: dict[str, Any]) -> None:
    shape, missing = described({**CONFIG, **changes})
    if shape.kv_bytes_per_token is None:
        assert "kv_bytes_per_token" in missing
    if shape.state_bytes is None:
        assert "state_bytes" in missing
    files = [FileEntry(name="config.json", size=0, sha256="a" * 64)]
    whole = Manifest(sha256=combined_sha256(files), files=files, architecture=shape, missing=missing)
    assert Manifest.model_validate(json.loads(json.dumps(whole.as_json()))) == whole
