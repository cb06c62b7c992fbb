"""Files of strangers: refused in one sentence or read for what they are, never a crash, nothing half written."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.publish.lab import derive_import, gather, write_imports
from harness.publish.lab_read import MAX_DEPTH, parse
from tests.publish.labs import performance, write

RESULT: dict[str, Any] = {
    "schema": "b70-lab.result.v1",
    "campaign_id": "m-1",
    "status": "M-4B W4A16, one B70 (TP1), MTP depth 3: strict pair 1.500000/1.600000 tok/s",
    "image_id": "sha256:00",
    "compilation_config": None,
    "speculative_config": {"num_speculative_tokens": 3},
    "campaign_config": "LANE=m TP=1 DEPTH=3 GRAPH=1 QUANT=q image=sha256:00 model=/home/somebody/model",
    "model": {"hf_id": "a/M-4B-w4a16", "revision": "r"},
    "runtime_env": {"VLLM_XPU_FP8_BLOCK_W8A16": "1", "HF_TOKEN": "hf_x"},
    "gates_passed": {"G1 mtp0-a vs mtp0-b": "12/12"},
    "centers": {"mtp3_class_balanced_tok_s": 1.55},
    "performance_evidence": {
        f"mtp3-{side}": {"class_balanced_tok_s_1_100_intervals_after_ttft": rate, "ttft_ms": 60.0}
        for side, rate in (("a", 1.5), ("b", 1.6))
    },
    "output_sha256": {"mtp3-a": ["0"], "mtp3-b": ["0"]},
    "measurements": {"depth3": [{"campaign": "t", "arm": "mtp3-a", "class_balanced_median_tok_s": 2.0}]},
    "measurement": {"config": "TP1, MTP0, c64", "arms": [{"arm": "g", "admission": "5 ms", "divergent": "1/9"}]},
    "table": [{"active_context_tokens": 2048, "tp1_mtp0": 9.5, "tp2_mtp0": 14.0, "tp2_over_tp1_mtp0": 1.47}],
    "THE_COST_IS_1_PERCENT_NOT_14": {"dose_response_mtp0_c64": [{"admission": "5 ms", "exact": "9/9", "tok_s": 2.0}]},
}
INSPECT: dict[str, Any] = {
    "Id": "x",
    "Image": "sha256:00",
    "Args": ["--quantization", "compressed-tensors"],
    "RestartCount": 0,
    "HostConfig": {"Memory": 1, "MemorySwap": 2, "GroupAdd": ["render"], "Binds": ["/home/somebody/m:/model"]},
    "Config": {"Env": ["A=1", "VLLM_XPU_FP8_BLOCK_W8A16=1"]},
}
COMPARISON: dict[str, Any] = {
    "schema": "neural.download.strict-attempt-output-comparison.v1",
    "suite_sha256": "00",
    "left": {"attempt": "mtp3-a", "artifacts": {"performance": {"path": "/b/c/d", "sha256": "11"}}},
    "right": {"attempt": "mtp0-a", "class_balanced_median_tok_s": 3.5},
    "comparison": {"exact_prompts": 12, "total_prompts": 12, "complete_token_arrays_exact": True},
}
FAMILY: dict[str, Any] = {
    "format": "neural-download-model-family-v1",
    "summary": "on one card",
    "dimensions": {"tp": [1, 2], "runtime": ["r"]},
    "run_measurements": [
        {
            "id": "x",
            "quantization": "W4A16",
            "profile_id": "fp8",
            "config": {"mtp": 3, "tp": 1},
            "quality_scope": "G1/G2 12/12",
            "metrics": {"decode_tok_s": [1.5, 1.6], "ttft_ms": [1.0, 2.0]},
        }
    ],
    "coverage_views": [{"cells": {"a:0": {"state": "missing", "label": "D1.50", "evidence_id": "x"}}}],
    "packets": [{"topologies": [1, 2], "runtime": "q"}],
}
RUNGS: dict[str, Any] = {
    "sources": {"r": "CLASSPAD=1"},
    "m": {"columns": ["concurrency", "tp1_mtp0"], "rows": [[1, 5.5], [2, None]]},
    "r": {
        "tp1_mtp0": {"tok_s": {"1": 5.5, "2": 9.0}, "identity": "exact c1; c2 7/8", "divergence_pct": {"2": 1.5}},
        "strict_tp1": {"mtp0": [1.5, 1.6], "gates": "12/12 all"},
        "stagger_tp1_c64": {"mtp0": "9/9 at 5.5"},
    },
}
CANARIES: dict[str, Any] = {"repeat_8x": {"pass": True, "sample": "Thinking Process: x"}, "pass_all": True}
LADDER: dict[str, Any] = {
    "oracle": {"rows": [{"prompt_sha256": "a", "token_ids": [1, 2]}]},
    "batches": [{"concurrency": 1, "repeat": 1, "rows": [{"prompt_sha256": "a", "token_ids": [1, 2]}]}],
}
SEEDS: dict[str, Callable[[], Any]] = {
    "result": lambda: copy.deepcopy(RESULT),
    "inspect": lambda: copy.deepcopy(INSPECT),
    "comparison": lambda: copy.deepcopy(COMPARISON),
    "family": lambda: copy.deepcopy(FAMILY),
    "rungs": lambda: copy.deepcopy(RUNGS),
    "canaries": lambda: copy.deepcopy(CANARIES),
    "ladder": lambda: copy.deepcopy(LADDER),
    "performance": lambda: {**performance("mtp3-a"), "rows": performance("mtp3-a")["rows"][:1]},
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        ["12/12", "13/12", "0/0", "mtp3-a", "²/³", "\ud800", "/home/somebody/x", "TP=9", "c64", "\x1b[31m"]
    ),
    st.just([]),
    st.just({}),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.none(), max_size=2),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value inside."""
    found: list[tuple[Any, Any]] = []
    entries = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, child in entries[:40]:
        found += [(value, key), *places(child)]
    return found


@pytest.mark.parametrize("kind", SEEDS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere_is_survived(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Straight into the derivation, without the net around it."""
    document = SEEDS[kind]()
    for _ in range(data.draw(st.integers(1, 4))):
        spots = places(document)
        if not spots:
            break
        container, key = data.draw(st.sampled_from(range(len(spots))).map(lambda at: spots[at]))  # noqa: B023
        container[key] = data.draw(ODD)
    folder = tmp_path_factory.mktemp("sources")
    write(folder / f"{kind}.json", document)
    evidence = derive_import(folder)
    said = evidence.model_dump_json(by_alias=True)
    assert "somebody" not in said and "hf_x" not in said and "\\u001b" not in said
    assert derive_import(folder) == evidence


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "too large a number"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b"[" * 100_000, "nested deeper"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
        (b'{"a": ' + b"9" * 5000 + b"}", "strict JSON"),
    ],
)
def test_what_is_no_strict_json_is_refused(tmp_path: Path, raw: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse("some.json", raw)
    assert str(caught.value).startswith("'some.json' can't be imported") and "\n" not in str(caught.value)
    folder = tmp_path / "given"
    write(folder / "good.json", RESULT)
    (folder / "bad.json").write_bytes(raw)
    with pytest.raises(UsageError, match=r"bad\.json"):
        write_imports(gather([folder]), tmp_path / "out", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given"]


def test_unknown_formats(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    write(folder / "good.json", RESULT)
    write(folder / "other.json", {"hello": 1})
    (folder / "note.txt").write_text("x")
    (folder / "link.json").symlink_to(folder / "good.json")
    given_ = gather([folder])
    assert given_.unknown == {
        "note.txt": "not JSON, left out",
        "other.json": "JSON of no format that bench knows, left out",
    }
    assert [group.name for group in given_.groups] == ["good"]
    with pytest.raises(UsageError, match=r"other\.json has no format that bench knows"):
        gather([folder / "other.json"])
    with pytest.raises(UsageError, match="does not exist"):
        gather([tmp_path / "missing"])


def test_files_of_one_name_become_imports_of_their_own(tmp_path: Path) -> None:
    paths = [write(tmp_path / folder / "same.json", RESULT) for folder in "ab"]
    written = write_imports(gather(paths), tmp_path / "out", {})
    assert [path.name for path in written] == ["same", "same-2"]


def test_what_was_asked_needs_something_that_ran(tmp_path: Path) -> None:
    path = write(tmp_path / "good.json", RESULT)
    with pytest.raises(UsageError, match="no container-inspect"):
        write_imports(gather([path]), tmp_path / "out", {"A": "1"})
    assert not (tmp_path / "out").exists()


def test_secrets_are_dropped_by_name(tmp_path: Path) -> None:
    (written,) = write_imports(gather([write(tmp_path / "r.json", RESULT)]), tmp_path / "out", {})
    data = json.loads((written / "evidence.json").read_text())
    assert "HF_TOKEN" not in data["environment"] and "VLLM_XPU_FP8_BLOCK_W8A16" in data["environment"]
