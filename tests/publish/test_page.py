"""The page says what the evidence says, escapes it, and quotes nothing that may not be quoted."""

import re
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.evidence.ladder_schema import LadderEvidence
from harness.evidence.schema import Evidence, ServerRecord
from harness.publish.campaigns import Campaign
from harness.publish.page import page_view
from harness.publish.page_across import names
from harness.publish.page_common import environment_rows
from harness.publish.page_ladder import median_ttft_ms
from harness.publish.page_view import Chip, Code, Sentences, Table, aloud, byte_words, numbers, share
from tests.publish.pages import (
    HOSTILE,
    NAMES,
    Figure,
    Page,
    at,
    changed_to,
    coverage,
    hostile,
    html_of,
    modelled,
    page_of,
    projection,
    recorded,
    simulated,
    stored,
    taken_apart,
    view_of,
)
from tests.publish.test_projection import served


@pytest.fixture(scope="module")
def page() -> Page:
    return taken_apart(page_of(*NAMES))


def figures_of(page: Page, name: str) -> dict[str, Figure]:
    return {figure.field: figure for figure in page.figures if figure.campaign == stored(name)["campaign_id"]}


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_the_one_of_the_evidence(page: Page, name: str) -> None:
    found = [figure for figure in page.figures if figure.campaign == stored(name)["campaign_id"]]
    assert len(found) > 80
    for figure in found:
        said = at(stored(name), figure.field)
        assert figure.value == ("" if said is None else str(said)), figure
        shown = figure.text.strip()
        if said is None:
            assert shown == "–", figure
            continue
        digits = len(shown.partition(".")[2])
        assert shown in (f"{said:.{digits}f}", f"{100 * said:.{digits}f}"), figure


def expected_strict(evidence: Any) -> Iterator[str]:
    for pair in evidence["pairs"]:
        yield from (f"pairs.{pair['name']}.{key}" for key in ("center", "a", "b", "spread", "burst_exact_center"))
    for attempt in evidence["attempts"]:
        path = f"attempts.{attempt['directory']}"
        yield from (f"{path}.class_balanced_median", f"{path}.median_ttft_ms", f"{path}.client.lag_p99_us")
        yield from (f"{path}.class_medians.{name}" for name in attempt["class_medians"])
        for row in attempt["rows"]:
            keys = ("tok_s_1_100", "tok_s_burst_exact", "ttft_ms")
            yield from (f"{path}.rows.{row['prompt_id']}.{key}" for key in keys)
    for number, gate in enumerate(evidence["gates"]):
        yield from (f"gates.{number}.exact", f"gates.{number}.total")
        for place in range(len(gate["divergences"])):
            yield f"gates.{number}.divergences.{place}.first_divergence_token_zero_based"


def expected_ladder(evidence: Any) -> Iterator[str]:
    for rung in evidence["rungs"]:
        keys = ("tok_s", "steady_tok_s", "warm_up_tok_s", "exact", "total", "divergence_bound", "minority_share")
        yield from (f"rungs.c{rung['rung']}.{key}" for key in keys)
        for number in range(rung["passes"]):
            yield from (f"rungs.c{rung['rung']}.{key}.{number}" for key in ("tok_s_per_pass", "exact_per_pass"))
        for number in range(len(rung["sites"])):
            yield f"rungs.c{rung['rung']}.sites.{number}.index"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_measurement_is_left_out(page: Page, name: str) -> None:
    evidence = stored(name)
    expected = set((expected_ladder if evidence["kind"] == "ladder" else expected_strict)(evidence))
    assert len(expected) > 20
    assert expected <= set(figures_of(page, name))
    for sentence in [*evidence["reasons"], *evidence["unknown"]]:
        assert sentence in page.text
    for words in (evidence["start"]["plan_sha256"], evidence["campaign_id"], evidence["start"]["command"]):
        assert words in page.text
    assert f"bench verify {evidence['campaign_id']}" in page.text
    if evidence["kind"] == "ladder":
        assert evidence["scope"] in page.text


def test_the_hero_is_the_center_or_says_why_there_is_none() -> None:
    passed, withheld, ladder, missed = view_of(*NAMES).campaigns
    tiny = stored("tiny")["pairs"][-1]
    assert passed.hero.number is not None and passed.hero.number.value == tiny["center"]
    assert [number.value for _, number in passed.hero.servers] == [tiny["a"], tiny["b"]]
    assert passed.hero.spread is not None and passed.hero.spread.value == tiny["spread"]
    assert "29.53% is above 1%" in passed.hero.caution
    assert withheld.hero.number is None
    assert withheld.hero.why_none == ("a gate failed: G3 of mtp3-a vs mtp0-a, G3 of mtp3-b vs mtp0-a",)
    top = stored("ladder0")["rungs"][-1]
    assert ladder.hero.number is not None and ladder.hero.number.value == top["tok_s"]
    assert missed.hero.number is None and "a gate failed: oracle" in missed.hero.why_none[0]
    assert "Measured but withheld: c1 190.1 (0/3)" in missed.hero.scope


def test_no_figure_of_a_withheld_campaign_is_a_hero() -> None:
    found = taken_apart(page_of("ties", "ladder3ties"))
    assert not [attrs for _, attrs in found.tags if "hero-number" in (attrs.get("class") or "")]
    assert found.text.count("No number to quote") == 2


def test_the_largest_exact_rung_is_the_hero_beside_withheld_ones() -> None:
    raw = stored("ladder0")
    rungs = [dict(rung) for rung in raw["rungs"]]
    rungs[-1] |= {"withheld": True, "exact": 23, "why": ["c8: 23/24 answers equal their oracle"]}
    changed = raw | {"rungs": rungs, "status": "withheld", "withheld": True}
    hero = page_view([Campaign(recorded("ladder0")[0].directory, modelled(changed))]).campaigns[0].hero
    assert hero.number is not None and hero.number.field == "rungs.c4.tok_s"
    assert hero.number.value == rungs[-2]["tok_s"]


@pytest.mark.parametrize("status", ["invalid", "interrupted"])
def test_a_ladder_without_a_verdict_has_no_hero(status: str) -> None:
    changed = stored("ladder0") | {"status": status, "withheld": True}
    hero = page_view([Campaign(recorded("ladder0")[0].directory, modelled(changed))]).campaigns[0].hero
    assert hero.number is None and hero.why_none


@pytest.mark.parametrize("name", ["ties", "ladder3ties"])
def test_everything_from_the_evidence_is_escaped(name: str) -> None:
    directory = recorded(name)[0].directory
    plain = taken_apart(page_of(name))
    html = html_of(Campaign(directory, modelled(hostile(stored(name)))))
    found = taken_apart(html)
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags} | {"ul", "li"}
    assert not {"script", "img", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in found.tags}
    for tag, attributes in found.tags:
        assert not [key for key in attributes if key.startswith("on")], (tag, attributes)
    assert found.text.count(HOSTILE) > 20, "it stands there as text"
    assert "{{ 7*7 }}" in found.text
    assert "<script" not in html and "<img" not in html


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    for tag, attributes in page.tags:
        for key in ("src", "href", "srcset", "action", "poster", "data", "xlink:href"):
            target = attributes.get(key)
            assert target is None or target.startswith(("#", "data:,")), (tag, key, target)
    policies = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    (css,) = re.findall(r"<style>(.*?)</style>", page_of("tiny"), re.DOTALL)
    assert all(target.startswith(('"data:', "#")) for target in re.findall(r"url\(([^)]*)", css))
    assert "@import" not in css


def test_anchors_lead_somewhere_and_ids_are_unique(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"}
    assert len(targets) > 40 and targets <= set(ids)


@pytest.mark.parametrize("name", ["tiny", "ladder0"])
def test_simulated_evidence_says_so_at_every_figure_and_is_no_hero(name: str) -> None:
    html = html_of(simulated(name))
    found = taken_apart(html)
    assert 'class="simulated-all"' in html and "Nothing on this page is a measurement of any card." in found.text
    assert not [attrs for _, attrs in found.tags if "hero-number" in (attrs.get("class") or "")]
    numbers_ = [figure for figure in found.figures if figure.value]
    assert len(numbers_) > 80 and all(figure.mark == "sim" for figure in numbers_)
    view = page_view([simulated(name)]).campaigns[0]
    assert view.hero.why_none[0] == "it is simulated: nothing in it is a measurement"
    said = [text for section in view.sections for block in section.blocks if isinstance(block, Sentences)
            for text in block.items if any(letter.isdigit() for letter in text)]  # fmt: skip
    assert said and all(text.startswith("SIMULATED") or text.endswith("(simulated)") for text in said)
    assert html.count('<div class="figure-title">') == html.count('<span class="chip warn">simulated</span></div>') > 0


def test_beside_a_measured_campaign_only_the_simulated_one_is_marked() -> None:
    found = taken_apart(html_of(simulated("tiny"), *recorded("ties")))
    marks: dict[str, set[str]] = {}
    for figure in found.figures:
        if figure.value:
            marks.setdefault(figure.campaign, set()).add(figure.mark)
    assert marks == {stored("tiny")["campaign_id"]: {"sim"}, stored("ties")["campaign_id"]: {""}}
    assert "Part of this page is simulated" in found.text


def test_withheld_rungs_are_hollow_in_the_drawing_and_carry_their_counts(page: Page) -> None:
    points = [a for _, a in page.tags if (a.get("class") or "").startswith("point") and "data-users" in a]
    for name, kind in (("ladder0", "point shown"), ("ladder3ties", "point withheld")):
        for rung in stored(name)["rungs"]:
            mine = [point for point in points if point["data-rate"] == str(rung["tok_s"])]
            assert len(mine) == 2, "in the campaign and among all ladders"
            for point in mine:
                assert point["class"] == kind
                assert point["data-exact"] == f"{rung['exact']}/{rung['total']}"


def test_a_rate_of_one_server_alone_is_named_as_that() -> None:
    raw = stored("tiny")
    pairs = [raw["pairs"][0], raw["pairs"][1] | {"center": None, "b": None, "spread": None}]
    _, section = projection(changed_to("tiny", pairs=pairs, status="invalid", withheld=True))
    values = dict(re.findall(r'data-field="(pairs\.[^"]*)" data-value="([^"]*)"', section))
    assert values == {"pairs.mtp0.center": str(pairs[0]["center"]), "pairs.mtp3.a": str(pairs[1]["a"])}


def test_coverage_has_every_campaign_in_its_cell_and_names_what_tells_them_apart() -> None:
    found = coverage(view_of(*NAMES))
    assert found.columns == ("MTP0 · TP1", "MTP3 · TP1")
    said = {name: [[entry.status.text for entry in entries] for entries in cells] for name, _, cells in found.rows}
    tiny, ties = (stored(name)["start"]["model"]["sha256"][:8] for name in ("tiny", "ties"))
    assert said == {
        f"tiny-cpu · unquantized · model {tiny} · strict": [["measured"], ["measured"]],
        f"tiny-cpu · unquantized · model {ties} · strict": [["withheld"], ["withheld"]],
        f"tiny-cpu · unquantized · model {tiny} · ladder": [["measured"], []],
        f"tiny-cpu · unquantized · model {ties} · ladder": [[], ["withheld"]],
    }
    assert page_of(*NAMES).count('<span class="none">not measured</span>') == 2


def test_a_rejected_base_is_a_rejected_cell_with_its_count() -> None:
    raw = stored("tiny")
    gate = raw["gates"][0] | {"passed": False, "failures": ["G1: one differs"], "exact": 11}
    changed = raw | {"status": "rejected", "withheld": True, "gates": [gate], "pairs": raw["pairs"][:1]}
    (row,) = coverage(page_view([Campaign(recorded("tiny")[0].directory, modelled(changed))])).rows
    entry = row[2][0][0]
    assert entry.status == Chip("rejected", "bad")
    assert [getattr(part, "text", part) for part in entry.figure][-4:] == ["G1 ", "11", "/", "12"]


def test_names_are_short_where_nothing_differs() -> None:
    found = names([item.evidence for item in recorded("tiny")])
    assert list(found.values()) == ["tiny-cpu · unquantized"]


def test_the_same_campaign_twice_or_none_is_refused() -> None:
    with pytest.raises(UsageError, match="was given twice; give each campaign once"):
        page_view(recorded("tiny", "tiny"))
    with pytest.raises(UsageError, match="give at least one campaign directory"):
        page_view([])


def test_same_evidence_same_page() -> None:
    assert html_of(*recorded("tiny")) == page_of("tiny")


def test_without_a_manifest_there_is_no_projection_and_with_one_it_stands_apart() -> None:
    (source,) = recorded("tiny")
    without = page_view([source]).after[0]
    assert without.projected and isinstance(without.blocks[0], Sentences)
    assert "--manifest FILE" in without.blocks[0].items[0]
    html = html_of(source, manifest=served(source.evidence), bandwidth=50e9)
    (section,) = re.findall(r'<section id="all-projection" class="question projected">.*?</section>', html, re.DOTALL)
    assert section.count("projected, not measured") == 3  # the heading, and each pair's ceiling
    assert "projection.mtp3.ceiling_tok_s" in section and "projection.mtp3.ceiling_tok_s" not in html.replace(
        section, ""
    )
    refused = html_of(source, manifest=served(recorded("ties")[0].evidence), bandwidth=50e9)
    assert "no projection, because the manifest is of other files" in refused


def test_telemetry_and_unknowns_are_said() -> None:
    for view in view_of(*NAMES).campaigns:
        sections = {section.id: section for section in view.sections}
        (told,) = sections["telemetry"].blocks
        assert isinstance(told, Sentences) and told.items[0].startswith("Not recorded")
        (unknown,) = sections["unknown"].blocks
        assert isinstance(unknown, Sentences) and unknown.items[-1].startswith("telemetry")


def test_differences_of_requested_and_applied_stand_out() -> None:
    raw = stored("tiny")["attempts"][0]["server"]
    asked = raw["requested"] | {"env": {"A": "1", "B": "1", "C": "1"}}
    applied = raw["applied"] | {"env": {"A": "1", "B": "0", "D": "1", "PATH": "/bin"}, "image_env": {"PATH": "/bin"}}
    rows = environment_rows(ServerRecord.model_validate(raw | {"requested": asked, "applied": applied}))
    said = {row.cells[0].text: row.cells[3].text for row in rows}  # type: ignore[union-attr]
    assert said == {"A": "as asked", "B": "differs", "C": "never arrived", "D": "not asked for", "PATH": "image's own"}
    assert [row.tone for row in rows] == ["plain", "bad", "bad", "bad", "muted"]


variables = st.dictionaries(st.text(min_size=1, max_size=4), st.text(max_size=3), max_size=6)


@given(asked=variables, runs=variables, image=variables)
def test_each_variable_stands_once_and_only_equal_ones_pass(
    asked: dict[str, str], runs: dict[str, str], image: dict[str, str]
) -> None:
    raw = stored("tiny")["attempts"][0]["server"]
    server = ServerRecord.model_validate(
        raw
        | {
            "requested": raw["requested"] | {"env": asked},
            "applied": raw["applied"] | {"env": runs, "image_env": image},
        }
    )
    rows = environment_rows(server)
    assert [row.cells[0] for row in rows] == [Code(name) for name in sorted({*asked, *runs})]
    for row in rows:
        name = row.cells[0].text  # type: ignore[union-attr]
        expected = asked.get(name, image.get(name))
        assert (row.tone == "bad") == (runs.get(name) != expected)


def test_ttft_of_a_rung_is_the_median_of_its_requests_after_the_warm_up() -> None:
    raw, found = stored("ladder0"), modelled(stored("ladder0"))
    assert isinstance(found, LadderEvidence)
    for rung in (1, 8):
        batches = [batch for item in raw["attempts"] for batch in item["batches"] if batch["rung"] == rung]
        values = [request["ttft_ms"] for batch in batches if batch["number"] > 1 for request in batch["requests"]]
        assert len(values) == 2 * rung
        assert median_ttft_ms(found.attempts, rung) == statistics.median(values)
    assert median_ttft_ms(found.attempts, 3) is None


def test_every_gate_of_every_server_has_a_verdict() -> None:
    (view,) = view_of("ties").campaigns
    gates = next(section for section in view.sections if section.id == "gates")
    between, of_servers = (block for block in gates.blocks if isinstance(block, Table))
    assert [row.cells[2] for row in between.rows] == [
        (Chip("passed", "good"),),
        (Chip("passed", "good"),),
        (Chip("failed", "bad"),),
        (Chip("failed", "bad"),),
    ]
    evidence = recorded("ties")[0].evidence
    assert isinstance(evidence, Evidence)
    assert of_servers.head[2:] == tuple(gate.name for gate in evidence.attempts[0].gates)
    assert len(of_servers.rows) == 4


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (8 << 30, "8.0 GiB"),
        (5 << 42, "20480.0 GiB"),
    ],
)
def test_byte_words(value: int | None, said: str) -> None:
    assert byte_words(value) == said


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9), st.integers(0, 4))
def test_a_figure_keeps_its_unrounded_value(value: float, digits: int) -> None:
    made = numbers("claimed")("a.b", value, digits, "ms")
    assert (made.value, made.mark, made.field) == (value, "claimed", "a.b")
    assert abs(float(made.text) - value) <= 0.5000001 * 10**-digits + abs(value) * 1e-12
    assert share(numbers(""), "a.b", value).value == value


def test_aloud_says_it_once() -> None:
    assert aloud("c4: 3/4", simulated=True) == "c4: 3/4 (simulated)"
    assert aloud("SIMULATED, no measurement: 3", simulated=True) == "SIMULATED, no measurement: 3"
    assert aloud("MTP0 on simulated: 3", simulated=True) == "MTP0 on simulated: 3 (simulated)"
    assert aloud("c4: 3/4", simulated=False) == "c4: 3/4"
