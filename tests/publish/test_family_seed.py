"""The lab's own family file with the lab's own results: what can be derived equals it but for two labels."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.publish.campaigns import open_any
from harness.publish.family import Promotion, promote
from harness.publish.family_measured import Given
from harness.publish.lab import gather, write_imports
from tests.publish.families import SHARED, at_rates, leaves, on_a_card, put, strict, unequal, variant, with_figures

SEED = SHARED / "lab" / "family-qwen-4b.json"
LABEL = "coverage_views[qwen-4b-quant-by-mtp].cells.W4A16:{}.label"


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> list[Given]:
    if not SEED.is_file():
        pytest.skip("the lab's files aren't beside this checkout")
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(SHARED / "lab", folder / "lab")
    written = write_imports(gather([folder / "lab"]), folder / "imported", {})
    return [Given(open_any(path), f"imported/{path.name}") for path in written]


@pytest.fixture(scope="module")
def result(imports: list[Given]) -> Promotion:
    return promote(SEED.read_bytes(), SEED.name, imports)


def test_only_the_two_labels_differ_and_the_lab_rule_is_named(result: Promotion) -> None:
    assert {change.field: change.why for change in result.changes} == {
        LABEL.format(0): "label shows the first server 102.62; the center is 102.50",
        LABEL.format(3): "label shows the first server 177.41; the center is 177.29",
    }
    assert [(change.file, change.evidence) for change in result.changes] == [
        ("D102.62", "D102.50"),
        ("D177.41", "D177.29"),
    ]


def test_every_other_byte_is_kept(result: Promotion) -> None:
    before, after = SEED.read_text("utf-8"), result.data.decode()
    assert after == before.replace("D102.62", "D102.50").replace("D177.41", "D177.29")
    assert not before.endswith("\n") and "\\u00b7" in after


def test_what_cannot_be_derived_is_listed(result: Promotion) -> None:
    named = {name for name, _ in result.no_evidence}
    runs = ("q35-4b-w4a16-tp1-mtp0-graph-v1", "q35-4b-w4a16-tp1-mtp3-graph-int4head-v1")
    assert {f"run_measurements[{name}]" for name in runs} <= named
    assert {f"coverage_views[qwen-4b-quant-by-mtp].cells.FP8-dynamic:{depth}" for depth in (0, 3)} <= named
    assert {"name", "summary", "transfer_scope", "model_signals", "architecture"} <= set(result.kept)
    assert "packets[qwen35-4b-w4a16-b70].grades.evidence.basis" in result.kept
    assert not {f"packets[qwen35-4b-w4a16-b70].coverage[{at}]" for at in range(8)} & named


def test_every_leaf_is_derived_kept_or_without_evidence(result: Promotion) -> None:
    """Nothing falls between: each number of the file is in exactly one of the lists, or was compared."""
    file = json.loads(SEED.read_text("utf-8"))
    said = [*result.kept, *(name for name, _ in result.no_evidence)]
    assert len(said) == len(set(said))
    derived = [".coverage", "cells.W4A16", "dimensions", ".rows", ".columns", "measurement_ids", ".grade"]
    from harness.publish.family_draft import Draft

    draft = Draft(file)
    for path, _ in leaves(file):
        name = draft.name(path)
        assert any(name.startswith(listed) for listed in said) or any(word in name for word in derived), name


def test_claims_are_compared_and_named(result: Promotion) -> None:
    equal = [line for line in result.claims if line.startswith("claimed, equal: ")]
    assert len(equal) == 8 and any("decode_tok_s[0] is 177.406" in line for line in equal)
    assert any("Qwen3.5-9B" in line and "nothing is compared" in line for line in result.claims)
    (grade,) = result.grades
    assert (grade.in_file, grade.by_rule, grade.basis) == ("B", "B", "claimed")


def test_a_claim_never_becomes_a_number(imports: list[Given]) -> None:
    file: dict[str, Any] = json.loads(SEED.read_text("utf-8"))
    put(file, ("run_measurements", 1, "metrics", "decode_tok_s", 0), 200.0)
    found = promote(json.dumps(file, indent=1).encode(), "f.json", imports)
    assert json.loads(found.data)["run_measurements"][1]["metrics"]["decode_tok_s"] == [200.0, 177.168]
    assert any(line.startswith("claimed, differs: ") and "177.406" in line for line in found.claims)


def test_without_any_evidence_of_two_cards_the_letter_is_kept_and_an_a_is_not(imports: list[Given]) -> None:
    alone = [given for given in imports if Path(given.path).name == "family-qwen-4b"]
    assert len(alone) == 1
    found = promote(SEED.read_bytes(), SEED.name, alone)
    assert ("packets[qwen35-4b-w4a16-b70].grades.evidence.grade", "nothing given shows a gated pair on TP2") in (
        found.no_evidence
    )
    file = SEED.read_bytes().replace(b'"grade": "B"', b'"grade": "A"')
    found = promote(file, SEED.name, alone)
    changed = {change.field: change.evidence for change in found.changes}
    assert changed["packets[qwen35-4b-w4a16-b70].grades.evidence.grade"] == "D"


R276 = "sha256:521eb277c0733f8c2ce47aea1bb98ed576c6f1ad63bf5baf22d38fc07abf54ad"
R293 = "sha256:40d46730c9a24f9396cc67c0e5578dd80d11dfae7a4d23a55f97620140a0b3e6"
FIGURES = {0: (102.6251, 102.3759, 30.2101, 30.3199), 3: (177.4062, 177.1678, 44.9099, 45.0501)}
"""The seed's own, before they were rounded"""


def seed() -> bytes:
    if not SEED.is_file():
        pytest.skip("the lab's files aren't beside this checkout")
    return SEED.read_bytes()


def test_our_campaign_of_the_lab_s_configuration_gives_the_seed_s_own_words_and_figures() -> None:
    ours = variant("ours", with_figures(on_a_card(strict(), image_id=R276), FIGURES))
    found = promote(seed(), SEED.name, [ours])
    cited = "campaigns/ours/evidence.json"
    runs = [f"run_measurements[{run['id']}]" for run in json.loads(seed())["run_measurements"]]
    fields = {change.field: change.evidence for change in found.changes}
    assert fields == {
        "updated_at": (strict().ended_at or "")[:10],
        **{f"{run}.evidence": cited for run in runs},
        LABEL.format(0): "D102.50",
        LABEL.format(3): "D177.29",
        "packets[qwen35-4b-w4a16-b70].grades.evidence.grade": "D",
        "packets[qwen35-4b-w4a16-b70].grades.evidence.basis": fields[
            "packets[qwen35-4b-w4a16-b70].grades.evidence.basis"
        ],
        "packets[qwen35-4b-w4a16-b70].grades.evidence.reviewed_at": (strict().ended_at or "")[:10],
        "packets[qwen35-4b-w4a16-b70].grades.evidence.evidence": [
            *json.loads(seed())["packets"][0]["grades"]["evidence"]["evidence"],
            cited,
        ],
    }
    assert promote(found.data, SEED.name, [ours]).changes == []


def test_two_cards_beside_it_keep_the_grade_and_the_person_s_sentence(imports: list[Given]) -> None:
    ours = variant("ours", with_figures(on_a_card(strict(), image_id=R276), FIGURES))
    two = variant("two", on_a_card(strict(), image_id=R276, tp=2))
    for beside in ([two], imports):
        found = promote(seed(), SEED.name, [ours, *beside])
        assert not [change for change in found.changes if change.field.endswith((".grade", ".basis", ".reviewed_at"))]
        assert found.grades[0].basis == ("verified" if beside == [two] else "claimed")
    runs = json.loads(promote(seed(), SEED.name, [ours, two]).data)["run_measurements"]
    assert [run["config"]["tp"] for run in runs] == [1, 1, 2, 2]
    assert all(run["evidence"] == "campaigns/two/evidence.json" for run in runs[2:])


def test_classpad_stands_in_the_runtime_s_words() -> None:
    padded = variant("padded", on_a_card(strict(), image_id=R293, classpad=True))
    found = promote(seed(), SEED.name, [padded])
    runs = json.loads(found.data)["run_measurements"]
    words = json.loads(seed())["dimensions"]["runtime"]
    assert [run["runtime"] for run in runs] == [words[0], words[0], words[1], words[1]]
    assert [run["quantization"] for run in runs] == ["W4A16"] * 4
    assert not [change for change in found.changes if change.field.startswith("dimensions")]
    plain = variant("plain", on_a_card(strict(), image_id=R293))
    runs = json.loads(promote(seed(), SEED.name, [plain]).data)["run_measurements"]
    assert runs[2]["runtime"] not in words, "the words that speak of CLASSPAD are not those of a run without it"


def test_the_rejected_build_s_cells_are_the_seed_s() -> None:
    fp8 = json.loads(seed())["weight_revisions"][1]
    base = on_a_card(strict(), image_id=R276, model=(fp8["repository"], fp8["revision"]))
    fallen = [
        variant(f"fp8-{day}", at_rates(unequal(base, "G1", exact), f"2026-09-0{day}", 1))
        for day, exact in enumerate((11, 9, 11), 1)
    ]
    found = promote(seed(), SEED.name, [], fallen)
    cells = "coverage_views[qwen-4b-quant-by-mtp].cells"
    assert {change.field: change.evidence for change in found.changes} == {
        f"{cells}.FP8-dynamic:0.evidence": [f"campaigns/fp8-{day}/evidence.json" for day in (1, 2, 3)],
        LABEL.format(0): "D102.50",
        LABEL.format(3): "D177.29",
    }, "the counts and the cell right of them are those that the lab typed; updated_at is no earlier day"
    view = json.loads(found.data)["coverage_views"][0]["cells"]
    assert view["FP8-dynamic:0"]["label"] == "rejected: not repeat-exact (11/12, 9/12, 11/12)"
    assert view["FP8-dynamic:3"] == {"state": "missing", "label": "not run: base gate failed"}
