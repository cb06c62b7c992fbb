"""Imported results on the page: each figure says on which basis it stands, and none of them is a hero."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.imported import (
    Basis,
    Figure,
    ImportedDepthPoint,
    ImportedEvidence,
    ImportedGate,
    ImportedLadder,
    ImportedRung,
    ImportedServer,
    NamedField,
    SourceFile,
)
from harness.publish.campaigns import Campaign, Imported
from harness.publish.page import page_view, render
from harness.publish.page_view import Chip, Matrix, PageView, Sentences
from tests.publish.pages import recorded, taken_apart

HOSTILE = "<script>alert(1)</script>\"'"


def figure(value: float, basis: Basis = Basis.CLAIMED) -> Figure:
    return Figure(value=value, basis=basis, file="result.json", field="x")


def server(label: str, depth: int | None, cards: int | None, median: Figure | None) -> ImportedServer:
    return ImportedServer(
        label=label, depth=depth, tensor_parallel=cards, class_balanced_median=median, ttft_ms=None, class_medians={}
    )


def evidence(**changes: Any) -> ImportedEvidence:
    rungs = [
        ImportedRung(rung=16, tok_s=1000.5, exact=16, total=16, withheld=False),
        ImportedRung(rung=24, tok_s=1354.9, exact=95, total=96, withheld=True),
        ImportedRung(rung=64, tok_s=2163.6, exact=None, total=None, withheld=None),
    ]
    given: dict[str, Any] = {
        "import_id": "lab-1",
        "conclusion": "Imported: mtp3 177.29 tokens/s (claimed).",
        "sources": [SourceFile(name="result.json", bytes=2048, sha256="ab" * 32, format="b70-lab.result.v1")],
        "model": {"repository": "some/model"},
        "servers": [
            server("mtp3-a", 3, 1, figure(177.406)),
            server("mtp3-b", 3, 1, figure(177.168, Basis.REDERIVED)),
            server("mtp0-a", 0, 2, figure(102.5)),
        ],
        "centers": {"mtp3": figure(177.287)},
        "spreads": {"mtp3": 0.0013},
        "gates": [
            ImportedGate(name="G1", subject="mtp0", basis=Basis.CLAIMED, exact=12, total=12, passed=True),
            ImportedGate(name="G3", subject="mtp3", basis=Basis.REDERIVED, exact=None, total=None, passed=None),
        ],
        "ladders": [
            ImportedLadder(
                label="r293", depth=0, tensor_parallel=1, classpad=True, stagger_ms=None, rungs=rungs, file="r.json"
            )
        ],
        "depth_points": [
            ImportedDepthPoint(active_context_tokens=2048, depth=3, tensor_parallel=1, tok_s=180.1, file="d.json")
        ],
        "null_fields": [NamedField(file="result.json", field="a.b", why="it is null")],
        "unknown": ["the host isn't named"],
    }
    return ImportedEvidence(**(given | changes))


def view(*more: Campaign, **changes: Any) -> PageView:
    return page_view([Imported(Path("lab-1"), evidence(**changes)), *more])


def test_every_figure_says_its_basis_and_none_is_a_hero() -> None:
    found = taken_apart(render(view()))
    values = [item for item in found.figures if item.value]
    assert {item.mark for item in values} == {"claimed", "re-derived"}
    marks = {(item.field, item.value): item.mark for item in values}
    assert marks["servers.0.class_balanced_median.value", "177.406"] == "claimed"
    assert marks["servers.1.class_balanced_median.value", "177.168"] == "re-derived"
    assert marks["ladders.0.rungs.1.tok_s", "1354.9"] == "claimed"
    assert marks["depth_points.0.tok_s", "180.1"] == "claimed"
    assert not [attrs for _, attrs in found.tags if "hero-number" in (attrs.get("class") or "")]
    assert "Imported, not measured here" in found.text
    for words in ("it is null", "the host isn't named", "ab" * 32, "A claimed pass is no pass of bench's."):
        assert words in found.text


def test_a_claimed_pass_never_looks_like_one_of_ours() -> None:
    html = render(view())
    assert '<span class="chip warn">passes</span>' in html
    assert '<span class="chip good">' not in html


def test_an_import_stands_in_its_cells_of_the_coverage() -> None:
    (block,) = view().across[0].blocks
    assert isinstance(block, Matrix)
    assert block.columns == ("MTP0 · TP1", "MTP3 · TP1", "MTP0 · TP2", "MTP3 · TP2")
    ((name, empty, cells),) = block.rows
    assert (name, empty) == ("some/model · imported", "not in this import")
    assert [[entry.status.text for entry in entries] for entries in cells] == [
        ["claimed"],
        ["claimed"],
        ["claimed"],
        [],
    ]
    assert cells[0][0].figure == ("1 ladder, c16 to c64",)


def test_cards_that_no_file_names_have_a_column_of_their_own() -> None:
    unnamed = [server("mtp3-a", 3, None, figure(100.0))]
    (block,) = view(servers=unnamed, centers={}, ladders=[], depth_points=[]).across[0].blocks
    assert isinstance(block, Matrix) and block.columns == ("MTP3 · cards not said",)


def test_curves_tell_shown_withheld_and_unknown_apart() -> None:
    found = taken_apart(render(view()))
    points = {a["data-users"]: a["class"] for _, a in found.tags if "data-users" in a}
    assert points == {"16": "point shown", "24": "point withheld", "64": "point unknown"}


def test_beside_a_campaign_of_ours_only_the_import_is_marked() -> None:
    found = taken_apart(render(view(*recorded("ladder0"))))
    marks: dict[str, set[str]] = {}
    for item in found.figures:
        if item.value:
            marks.setdefault(item.campaign, set()).add(item.mark)
    ours = recorded("ladder0")[0].evidence.campaign_id
    assert marks == {"lab-1": {"claimed", "re-derived"}, ours: {""}}


@pytest.mark.parametrize(
    "field", ["null_fields", "stale_fields", "problems", "unknown", "model", "environment", "conclusion"]
)
def test_imported_words_are_escaped(field: str) -> None:
    given: dict[str, Any] = {
        "null_fields": [NamedField(file=HOSTILE, field=HOSTILE, why=HOSTILE)],
        "stale_fields": [NamedField(file=HOSTILE, field=HOSTILE, why=HOSTILE)],
        "model": {HOSTILE: HOSTILE, "repository": HOSTILE},
        "environment": {HOSTILE: HOSTILE},
        "conclusion": HOSTILE,
    }
    html = render(view(**{field: given.get(field, [HOSTILE])}))
    assert "<script" not in html
    assert HOSTILE in taken_apart(html).text


def test_an_import_of_a_suite_alone_has_nothing_to_cover() -> None:
    found = view(servers=[], centers={}, spreads={}, gates=[], ladders=[], depth_points=[])
    assert [section.id for section in found.across] == []
    assert {section.id for section in found.after} == {"projection", "coverage", "mtp", "ladders", "context"}


def test_a_simulated_import_is_marked_like_a_simulated_campaign() -> None:
    html = render(view(simulated=True, conclusion="SIMULATED: mtp3 177.29 tokens/s (claimed)."))
    found = taken_apart(html)
    assert 'class="simulated-all"' in html and "Nothing on this page is a measurement of any card." in found.text
    assert 'class="hero imported simulated"' in html and 'class="campaign simulated"' in html
    values = [item for item in found.figures if item.value]
    assert {item.mark for item in values} == {"sim, claimed", "sim, re-derived"}
    assert "it is simulated: nothing in it is a measurement" in found.text
    chips = [entry.status.text for row in view(simulated=True).across[0].blocks[0].rows  # type: ignore[union-attr]
             for cell in row[2] for entry in cell]  # fmt: skip
    assert chips and all(text.startswith("simulated, ") for text in chips)
    titles = re.findall(r'<div class="figure-title">(.*?)</div>', html)
    assert len(titles) == 2 and all('<span class="chip warn">simulated, claimed</span>' in title for title in titles)


def test_beside_a_measured_campaign_a_simulated_import_is_part_of_the_page() -> None:
    found = taken_apart(render(view(*recorded("ladder0"), simulated=True)))
    assert "Part of this page is simulated" in found.text
    ours = recorded("ladder0")[0].evidence.campaign_id
    assert {item.mark for item in found.figures if item.value and item.campaign == ours} == {""}


def test_what_its_writers_may_not_publish_is_said_at_its_numbers() -> None:
    said = "result.json says that speed_withheld is true"
    page = view(not_publishable=[said])
    (imported,) = page.campaigns
    wanted = f"Not to be published: {said}"
    assert wanted in imported.hero.why_none
    with_numbers = [section for section in imported.sections if section.id in ("speed", "rungs", "depth")]
    assert len(with_numbers) == 3
    for section in with_numbers:
        assert isinstance(section.blocks[0], Sentences) and section.blocks[0] == Sentences((wanted,), "bad")
    for section in page.across:
        if section.id in ("ladders", "context"):
            assert Sentences((f"(1) {wanted}",)) in section.blocks
    (matrix,) = page.across[0].blocks
    assert isinstance(matrix, Matrix)
    entries = [entry for row in matrix.rows for cell in row[2] for entry in cell]
    assert entries and all(entry.figure[-1] == Chip("not to be published", "bad") for entry in entries)
    assert "not to be published" not in render(view()).lower()
