"""The roofline: against published figures, by its laws, and beside a recorded campaign."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.evidence.derive import derive
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Evidence
from harness.model_shape import architecture_of, weights_of
from harness.models import FileEntry, Manifest, combined_sha256
from harness.publish.projection import (
    B70_BYTES_S,
    LABEL,
    bandwidth_of,
    int4_head_bytes,
    missing_for,
    project,
    projection_of,
)
from tests.model_dirs import CONFIG, SHAPES, tensors
from tests.recorded import campaign

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
WHOLE = 5_542_033_615
"""bytes of the 4B model's three weight files (contract section 2)"""
DRAFT_ENV = {
    "VLLM_XPU_DRAFT_LM_HEAD_INT4": "1",
    "VLLM_XPU_DRAFT_LM_HEAD_INT4_GROUP_SIZE": "128",
    "VLLM_XPU_DRAFT_LM_HEAD_INT4_SCALE_DTYPE": "bf16",
}


def manifest_of(config: dict[str, Any], shapes: dict[str, tuple[str, tuple[int, ...]]]) -> Manifest:
    found = tensors(shapes)
    weights = weights_of(found, config)
    shape, missing = architecture_of(config, weights, found)
    files = [FileEntry(name="config.json", size=0, sha256="a" * 64)]
    return Manifest(sha256=combined_sha256(files), files=files, weights=weights, architecture=shape, missing=missing)


def four_b() -> Manifest:
    """A model of the published 4B W4A16's dimensions: INT4 in groups of 128 in MLPs and full attention, else BF16."""
    hidden, ffn, vocab = 2560, 9216, 248320
    config = {
        **CONFIG,
        "hidden_size": hidden,
        "vocab_size": vocab,
        "num_hidden_layers": 32,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "quantization_config": {"quant_method": "compressed-tensors"},
    }
    mlp = {"mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}
    full = {
        "self_attn.q_proj": (8192, hidden),
        "self_attn.k_proj": (1024, hidden),
        "self_attn.v_proj": (1024, hidden),
        "self_attn.o_proj": (hidden, 4096),
    }
    linear = {
        "linear_attn.in_proj_qkv": (8192, hidden),
        "linear_attn.in_proj_z": (4096, hidden),
        "linear_attn.out_proj": (hidden, 4096),
    }
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.language_model.embed_tokens.weight": ("BF16", (vocab, hidden))
    }
    for at in range(32):
        for name, (rows, columns) in {**mlp, **(full if at % 4 == 3 else {})}.items():
            shapes[f"model.language_model.layers.{at}.{name}.weight_packed"] = ("I32", (rows, columns // 8))
            shapes[f"model.language_model.layers.{at}.{name}.weight_scale"] = ("BF16", (rows, columns // 128))
        if at % 4 != 3:
            for name, size in linear.items():
                shapes[f"model.language_model.layers.{at}.{name}.weight"] = ("BF16", size)
    for name, size in {**mlp, **full}.items():
        shapes[f"mtp.layers.0.{name}.weight"] = ("BF16", size)
    shapes["mtp.fc.weight"] = ("BF16", (hidden, 2 * hidden))
    rest = WHOLE - sum(tensor.bytes for tensor in tensors(shapes))
    shapes["model.visual.all"] = ("U8", (rest,))
    return manifest_of(config, shapes)


FOUR_B = four_b()
SMALL = manifest_of(CONFIG, SHAPES)


def ceiling(manifest: Manifest = SMALL, **changes: Any) -> Any:
    asked: dict[str, Any] = {
        "tensor_parallel": 1,
        "context_tokens": 128.0,
        "mean_acceptance_length": None,
        "depth": 0,
        "bandwidth_bytes_s": B70_BYTES_S,
        "measured_tok_s": None,
    }
    return project(manifest, **(asked | changes))


def test_the_synthetic_model_is_the_size_of_the_published_one() -> None:
    assert FOUR_B.weights is not None and FOUR_B.missing == {}
    roles = FOUR_B.weights.bytes_by_role
    assert FOUR_B.weights.total(*roles) == WHOLE
    # What is left for the vision tower is what a tower of some 0.3 billion BF16 weights takes.
    assert 0.4e9 < FOUR_B.weights.total("vision") < 0.9e9


@pytest.mark.parametrize(
    ("depth", "cards", "published"),
    [(0, 1, 102.625), (0, 2, 138.2), (3, 1, 177.406), (3, 2, 240.9)],
)
def test_no_published_figure_of_that_configuration_is_above_its_ceiling(
    depth: int, cards: int, published: float
) -> None:
    head = int4_head_bytes(FOUR_B, DRAFT_ENV) if depth else None
    found = ceiling(
        FOUR_B, depth=depth, tensor_parallel=cards, measured_tok_s=published, draft_head_bytes=head, context_tokens=150
    )
    assert published < found.ceiling_tok_s
    assert found.share is not None and 0.2 < found.share < 1
    assert found.label == LABEL == "projected, not measured"
    unknown = [line for line in found.assumptions if "the acceptance is unknown" in line]
    assert bool(unknown) == (depth > 0)
    assert found.tokens_per_step == depth + 1


def test_one_card_without_drafts_reaches_a_plausible_share() -> None:
    """102.6 tokens/s of memory-bound decoding is most of what 608 GB/s allow, and can't be all of it."""
    found = ceiling(FOUR_B, measured_tok_s=102.625, context_tokens=150)
    assert 4.4e9 < found.bytes_per_step.total < 5.0e9
    assert 0.7 < found.share < 0.9


def test_every_published_figure_of_the_family_is_below_its_ceiling() -> None:
    path = SHARED / "lab" / "family-qwen-4b.json"
    if not path.is_file():
        pytest.skip("the shared folder is not here")
    runs = json.loads(path.read_text())["run_measurements"]
    assert len(runs) > 1
    for run in runs:
        depth = run["config"]["mtp"]
        head = int4_head_bytes(FOUR_B, DRAFT_ENV) if depth else None
        found = ceiling(FOUR_B, depth=depth, tensor_parallel=run["config"]["tp"], draft_head_bytes=head)
        assert max(run["metrics"]["decode_tok_s"]) < found.ceiling_tok_s


def test_the_bytes_of_a_step_by_hand() -> None:
    found = ceiling(depth=3, mean_acceptance_length=2.5, context_tokens=10, tensor_parallel=2, bandwidth_bytes_s=1e6)
    read = found.bytes_per_step
    head, layers, mtp = 100 * 64 * 2, (64 * 64 * 2 + 64) * 2, 64 * 32 * 2
    state = (4 * 8 * 8 + 3 * 64) * 2
    assert (read.head, read.layers, read.state, read.kv) == (head, layers, state, 128 * 10)
    assert read.embedding == 4 * 64 * 2
    assert (read.draft_layers, read.draft_head, read.draft_kv) == (3 * mtp, 3 * head, 3 * 128 * 10)
    total = 4 * head + layers + state + 4 * 128 * 10 + 3 * mtp + 4 * 128
    assert read.total == total
    assert found.bytes_per_step_and_card == total / 2
    assert found.ceiling_tok_s == pytest.approx(2.5 * 2e6 / total)


def test_a_head_of_its_own_is_read_instead_of_the_embedding() -> None:
    own = {**SHAPES, "lm_head.weight": ("BF16", (100, 32)), "mtp.lm_head.weight": ("BF16", (100, 8))}
    found = ceiling(manifest_of({**CONFIG, "tie_word_embeddings": False}, own), depth=2)
    assert (found.bytes_per_step.head, found.bytes_per_step.draft_head) == (100 * 32 * 2, 2 * 100 * 8 * 2)


def test_wide_weights_are_counted_as_a_server_of_16_bits_reads_them() -> None:
    wide = {name: ("F32", shape) for name, (_, shape) in SHAPES.items()}
    found = ceiling(manifest_of(CONFIG, wide))
    assert found.bytes_per_step == ceiling().bytes_per_step
    assert any("counted as 16 bits" in line for line in found.assumptions)


def test_the_int4_copy_of_the_head() -> None:
    assert int4_head_bytes(SMALL, {}) is None
    assert int4_head_bytes(SMALL, DRAFT_ENV) == 100 * 64 // 2 + 100 * 64 // 128 * 2
    fp32 = {**DRAFT_ENV, "VLLM_XPU_DRAFT_LM_HEAD_INT4_SCALE_DTYPE": "fp32"}
    assert int4_head_bytes(SMALL, fp32) == 100 * 64 // 2 + 100 * 64 // 128 * 4
    assert int4_head_bytes(SMALL, {**DRAFT_ENV, "VLLM_XPU_DRAFT_LM_HEAD_INT4_GROUP_SIZE": "x"}) == 3200


RATES = st.floats(1e-3, 1e6)


@given(
    depth=st.integers(0, 6),
    cards=st.integers(1, 8),
    context=st.floats(0, 40_000),
    length=st.floats(1, 7),
    bandwidth=st.floats(1e6, 1e13),
    measured=RATES,
)
def test_the_laws_of_a_roofline(
    depth: int, cards: int, context: float, length: float, bandwidth: float, measured: float
) -> None:
    assume(length <= depth + 1)
    asked: dict[str, Any] = {
        "depth": depth,
        "tensor_parallel": cards,
        "context_tokens": context,
        "mean_acceptance_length": length,
        "bandwidth_bytes_s": bandwidth,
        "measured_tok_s": measured,
    }
    found = ceiling(**asked)
    assert found.share * found.ceiling_tok_s == pytest.approx(measured)
    assert ceiling(**asked | {"bandwidth_bytes_s": 2 * bandwidth}).ceiling_tok_s == pytest.approx(
        2 * found.ceiling_tok_s
    )
    assert ceiling(**asked | {"tensor_parallel": 2 * cards}).ceiling_tok_s == pytest.approx(2 * found.ceiling_tok_s)
    assert ceiling(**asked | {"context_tokens": context + 1}).ceiling_tok_s < found.ceiling_tok_s
    assert ceiling(**asked | {"mean_acceptance_length": None}).ceiling_tok_s >= found.ceiling_tok_s
    assert ceiling(**asked | {"kv_dtype": "fp8"}).ceiling_tok_s >= found.ceiling_tok_s
    assert any("above this ceiling" in line for line in found.assumptions) == (found.share > 1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tensor_parallel": 0}, "at least one card"),
        ({"bandwidth_bytes_s": 0.0}, "a bandwidth above 0"),
        ({"bandwidth_bytes_s": float("nan")}, "a bandwidth above 0"),
        ({"context_tokens": -1.0}, "no negative number"),
        ({"mean_acceptance_length": 1.5}, "a mean acceptance length of 1.5 can't be at MTP depth 0"),
        ({"mean_acceptance_length": 0.5, "depth": 3}, "a mean acceptance length of 0.5 can't be"),
        ({"kv_dtype": "int3"}, "the size of a KV element of type int3 isn't known"),
    ],
)
def test_what_can_not_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ceiling(**changes)


@pytest.mark.parametrize(
    ("config", "shapes", "sentence"),
    [
        ({**CONFIG, "num_experts": 8}, SHAPES, "config.json has num_experts 8"),
        ({**CONFIG, "num_hidden_layers": 3}, SHAPES, "config.json says 3 layers, the files hold 2"),
        ({**CONFIG, "tie_word_embeddings": False}, SHAPES, "no file holds the lm_head"),
        ({**CONFIG, "num_key_value_heads": None}, SHAPES, "kv_heads"),
        ({**CONFIG, "linear_conv_kernel_dim": None}, SHAPES, "linear_conv_kernel_dim"),
        (CONFIG, {name: entry for name, entry in SHAPES.items() if "mtp" not in name}, "no file holds an MTP head"),
    ],
)
def test_what_is_missing_is_named(config: dict[str, Any], shapes: Any, sentence: str) -> None:
    manifest = manifest_of(config, shapes)
    assert missing_for(manifest, depth=1, kv_dtype="auto")
    with pytest.raises(UsageError, match=r"nothing can be projected from this manifest: .*" + sentence):
        ceiling(manifest, depth=1)


@pytest.fixture(scope="module")
def tiny() -> Evidence:
    evidence = derive(campaign("tiny"))
    assert isinstance(evidence, Evidence)
    return evidence


def served(evidence: AnyEvidence) -> Manifest:
    """The small model's account under the files that were served."""
    model = evidence.start.model
    assert model is not None
    return SMALL.model_copy(update={"files": model.files, "sha256": model.sha256})


def test_a_recorded_campaign_has_a_projection_beside_each_pair(tiny: Evidence) -> None:
    found = projection_of(tiny, served(tiny), 20e9)
    assert not isinstance(found, str)
    assert [item.pair for item in found] == [pair.name for pair in tiny.pairs] == ["mtp0", "mtp3"]
    for item, pair in zip(found, tiny.pairs, strict=True):
        assert item.measured_tok_s == pair.center
        assert item.tokens_per_step == (pair.mean_acceptance_length if pair.depth else 1)
        prompts = [row.prompt_tokens for a in tiny.attempts if a.depth == pair.depth for row in a.rows]
        assert None not in prompts
        assert item.context_tokens == pytest.approx(sum(filter(None, prompts)) / len(prompts) + 50)
        assert item.assumptions[0] == "20 GB/s a card, as given"


def test_on_a_cpu_the_bandwidth_is_not_known(tiny: Evidence) -> None:
    assert bandwidth_of(tiny) is None
    assert projection_of(tiny, served(tiny)) == (
        "the memory bandwidth of this host isn't known, and there is no default; give --bandwidth GB/s"
    )


def on_cards(evidence: Evidence, **environment: str) -> Evidence:
    """The same evidence as if it came from a host with a card."""
    raw = evidence.model_dump(mode="json", by_alias=True)
    raw["start"]["host"]["facts"]["cards"] = {"state": "measured", "value": ["0000:03:00.0"], "note": ""}
    for attempt in raw["attempts"]:
        attempt["server"]["applied"]["env"] |= environment
    return Evidence.model_validate(raw)


def test_the_bandwidth_of_a_card_needs_a_card_and_the_applied_environment(tiny: Evidence) -> None:
    known = bandwidth_of(on_cards(tiny, VLLM_TARGET_DEVICE="xpu"))
    assert known is not None and known[0] == 608e9 and known[1].startswith("608 GB/s a card")
    assert bandwidth_of(on_cards(tiny, VLLM_TARGET_DEVICE="cpu")) is None
    assert bandwidth_of(on_cards(tiny)) is None
    found = projection_of(on_cards(tiny, VLLM_TARGET_DEVICE="xpu"), served(tiny))
    assert not isinstance(found, str) and found[0].bandwidth_bytes_s == 608e9


def test_a_manifest_of_other_files_is_refused(tiny: Evidence) -> None:
    said = projection_of(tiny, SMALL, 20e9)
    assert isinstance(said, str) and said.startswith("the manifest is of other files (sha256 ")


def test_without_a_model_directory_there_is_no_projection(tiny: Evidence) -> None:
    start = tiny.start.model_copy(update={"model": None})
    said = projection_of(tiny.model_copy(update={"start": start}), SMALL, 20e9)
    assert said == "this campaign read no model directory, so no manifest can belong to it"


def test_a_pair_that_can_not_be_projected_is_named(tiny: Evidence) -> None:
    bare = manifest_of(CONFIG, {name: entry for name, entry in SHAPES.items() if "mtp" not in name})
    manifest = served(tiny).model_copy(update={"weights": bare.weights})
    said = projection_of(tiny, manifest, 20e9)
    assert said == "mtp3: nothing can be projected from this manifest: no file holds an MTP head"


def test_a_ladder_has_no_projection() -> None:
    said = projection_of(derive(campaign("ladder3ties")), SMALL, 20e9)
    assert said == "a projection is of one user's strict pairs, and this is a ladder campaign"
