"""What a page shows of a campaign that is held back as a whole, and of a rate beside a ceiling."""

import re
from typing import Any

import pytest

from harness.publish.page import page_view, render
from harness.publish.page_view import Chip, Sentences, Table
from tests.publish.pages import (
    attached,
    changed_to,
    coverage,
    html_of,
    projection,
    stored,
    taken_apart,
)

FAILED = {"name": "G3", "subject": "mtp0-b vs mtp0-a", "passed": False, "failures": ["G3: one differs"]}


def fault(name: str) -> list[Any]:
    """Its attempts, the last with a gate of its own that failed."""
    attempts = stored(name)["attempts"]
    gate = {"name": "canaries", "subject": "mtp0", "passed": False, "failures": ["canaries: one differs"]}
    return [*attempts[:-1], attempts[-1] | {"gates": [*attempts[-1]["gates"], gate]}]


WHOLE = {
    "oracle gate": (
        lambda: changed_to("ladder0", status="withheld", withheld=True, gates=[FAILED], reasons=FAILED["failures"]),
        "withheld",
        "G3: one differs",
    ),
    "canary": (
        lambda: changed_to("ladder0", status="withheld", withheld=True, attempts=fault("ladder0")),
        "withheld",
        "canaries: one differs",
    ),
    "reason alone": (
        lambda: changed_to("ladder0", status="withheld", withheld=True, reasons=["the host was throttled"]),
        "withheld",
        "the host was throttled",
    ),
    "invalid": (
        lambda: changed_to("ladder0", status="invalid", withheld=True, reasons=["the server died"]),
        "no verdict",
        "the server died",
    ),
    "attached": (lambda: attached("ladder0"), "no verdict", "bench did not start this server"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_ladder_that_is_held_back_as_a_whole_shows_no_rung(case: str) -> None:
    make, word, why = WHOLE[case]
    source = make()
    view = page_view([source])
    found = taken_apart(render(view))
    points = [a for _, a in found.tags if "data-users" in a]
    assert len(points) == 2 * len(stored("ladder0")["rungs"])
    assert {point["class"] for point in points} == {"point withheld"}
    (campaign_,) = view.campaigns
    (rungs,) = (section for section in campaign_.sections if section.id == "rungs")
    (shown,) = (block for block in rungs.blocks if isinstance(block, Table))
    assert [row.cells[1] for row in shown.rows] == [(Chip(word, "bad"),)] * len(shown.rows)
    assert {row.tone for row in shown.rows} == {"bad"}
    assert isinstance(rungs.blocks[0], Sentences) and rungs.blocks[0].tone == "bad"
    assert rungs.blocks[0].items[0].startswith("No rung may be shown, because the whole ladder is ")
    assert why in rungs.blocks[0].items[0]
    assert "Exact in every pass" in stored("ladder0")["scope"] and "Exact in every pass" not in found.text
    assert campaign_.hero.number is None and campaign_.hero.why_none
    (row,) = coverage(view).rows
    (entry,) = row[2][0]
    assert entry.status.text == word and entry.status.tone != "good"
    assert "exact:" not in "".join(getattr(part, "text", str(part)) for part in entry.figure)


def test_a_rung_beside_a_miss_stays_shown_and_a_fault_beside_a_miss_hides_all() -> None:
    raw = stored("ladder0")
    why = ["c8: 23/24 answers equal their oracle"]
    rungs = [*raw["rungs"][:-1], raw["rungs"][-1] | {"withheld": True, "exact": 23, "why": why}]
    for reasons, kinds in ((why, {"point shown", "point withheld"}), ([*why, "a canary differs"], {"point withheld"})):
        source = changed_to("ladder0", rungs=rungs, status="withheld", withheld=True, reasons=reasons)
        points = [a for _, a in taken_apart(html_of(source)).tags if "data-users" in a]
        assert {point["class"] for point in points} == kinds


PROJECTED = {
    "passed": (lambda: changed_to("tiny"), "", ""),
    "withheld": (lambda: changed_to("tiny", status="withheld", withheld=True, gates=[FAILED]), "withheld", "G3 of"),
    "rejected": (lambda: changed_to("tiny", status="rejected", withheld=True, gates=[FAILED]), "rejected", "G3 of"),
    "attached": (lambda: attached("tiny"), "no verdict", "bench did not start"),
    "interrupted": (lambda: changed_to("tiny", status="interrupted", withheld=True), "no verdict", "it has not ended"),
}


@pytest.mark.parametrize("case", PROJECTED)
def test_a_rate_beside_a_ceiling_carries_what_keeps_it_back(case: str) -> None:
    make, word, why = PROJECTED[case]
    source = make()
    found, section = projection(source)
    chips = re.findall(r'<span class="chip (?:bad|warn)">(withheld|rejected|no verdict)</span>', section)
    assert chips == ([word] * 4 if word else []), "at the rate and at the share of both pairs"
    notes = [items for items in found.words if items.startswith("The rate beside this ceiling is not to be published")]
    assert len(notes) == (2 if word else 0) and all(why in note for note in notes)
    said = [words for words in found.words if words.startswith("These speeds were measured and are not to be pub")]
    assert len(said) == (1 if word else 0) and all(why in note for note in said)
