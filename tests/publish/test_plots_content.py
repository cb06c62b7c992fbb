"""What a plot shows equals the evidence: hollow points, counts, marks, breaks in lines."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.evidence.derive import derive
from harness.evidence.imported import ImportedRung
from harness.evidence.ladder_schema import LadderEvidence
from harness.evidence.schema import Evidence
from harness.publish import plots
from tests.publish.plot_inputs import LADDER, SVG, attempt, batch, joins_of, long_row, points_of, row, rung, words_of
from tests.recorded import campaign


def test_a_withheld_rung_is_hollow_with_its_count_and_not_joined() -> None:
    svg = plots.ladder_curve({"TP1 MTP0": LADDER}, prefix="p")
    assert points_of(svg, "shown") == [("1", "95.8", "4/4"), ("2", "183.1", "8/8"), ("32", "1624.5", "128/128")]
    assert points_of(svg, "withheld") == [("24", "1354.9", "95/96")]
    root = ET.fromstring(svg)
    fills = {
        item.attrib["data-users"]: re.findall(r"fill: var\(--([a-z0-9-]+)", ET.tostring(item, encoding="unicode"))[-1]
        for item in root.iter()
        if item.get("class", "").startswith("point ")
    }
    assert fills == {"1": "series-1", "2": "series-1", "24": "paper", "32": "series-1"}
    texts = [item.text for item in root.iter(f"{SVG}text")]
    assert "95/96" in texts and "4/4" not in texts
    assert joins_of(svg) == ["series-1"], "only c1 and c2 are neighbours that are shown"


def test_imported_rungs_say_what_they_know() -> None:
    rungs = [
        ImportedRung(rung=64, tok_s=2163.6, exact=255, total=256, withheld=None),
        ImportedRung(rung=1, tok_s=95.8, exact=None, total=None, withheld=None),
        ImportedRung(rung=2, tok_s=183.1, exact=8, total=8, withheld=False),
        ImportedRung(rung=4, tok_s=None, exact=None, total=None, withheld=True),
    ]
    svg = plots.ladder_curve({"R293": plots.rungs_of_imported(rungs)}, prefix="p")
    assert points_of(svg, "unknown") == [("1", "95.8", "")]
    assert points_of(svg, "shown") == [("2", "183.1", "8/8")]
    assert points_of(svg, "withheld") == [("64", "2163.6", "255/256")]
    assert "No rate: R293 c4." in words_of(svg)


@given(
    st.lists(
        st.builds(
            ImportedRung,
            rung=st.integers(-1, 10**9),
            tok_s=st.none() | st.floats(),
            exact=st.none() | st.integers(0, 999),
            total=st.none() | st.integers(0, 999),
            withheld=st.none() | st.booleans(),
        ),
        max_size=20,
    )
)
@settings(max_examples=25, deadline=None)
def test_any_ladder_is_drawn_whole(rungs: list[ImportedRung]) -> None:
    svg = plots.ladder_curve({"l": plots.rungs_of_imported(rungs)}, prefix="p")
    can = [r for r in rungs if r.rung > 0 and r.tok_s is not None and 0 <= r.tok_s < 1e12]
    found = [point for kind in ("shown", "withheld", "unknown") for point in points_of(svg, kind)] if svg else []
    assert sorted((int(users), float(rate)) for users, rate, _ in found) == sorted((r.rung, r.tok_s) for r in can)


def test_the_timeline_marks_bursts_the_first_id_and_the_hundredth() -> None:
    svg = plots.timeline([long_row("bursty", step_ms=5.0, start_ms=25.0, burst=4)], prefix="p")
    words = words_of(svg)
    # id 99 is in the 25th chunk: 25 + 24 × 20 ms
    assert "TTFT 25.0 ms, 100th 505 ms" in words and "at most 4" in words
    ticks = next(d for d in re.findall(r' d="([^"]*)"', svg) if d.count("M") > 9)
    assert ticks.count("M") == 128, "one tick for each chunk"


def test_tick_heights_follow_the_ids_of_the_chunk() -> None:
    svg = plots.timeline([row("p", [(10_000_000 * at, size) for at, size in enumerate((4, 2, 4, 2), 1)])], prefix="p")
    ticks = next(d for d in re.findall(r' d="([^"]*)"', svg) if d.count("M") == 4)
    numbers = [[float(x) for x in re.findall(r"-?[\d.]+", part)] for part in ticks.split("M")[1:]]
    heights = [abs(y1 - y0) for _, y0, _, y1 in numbers]
    assert heights[0] == pytest.approx(2 * heights[1]) == pytest.approx(2 * heights[3])


def test_rates_have_a_mark_for_each_server_and_name_what_has_none() -> None:
    rows = [long_row("one"), long_row("two", step_ms=5.0), row("three")]
    svg = plots.rates_by_prompt([attempt("mtp0-a", rows), attempt("mtp0-b", rows)], prefix="p")
    marks = [item for item in ET.fromstring(svg).iter(f"{SVG}use") if "--series-" in item.get("style", "")]
    # two prompts with a rate and one legend entry for each server
    assert len(marks) == 2 * 2 + 2
    assert "no rate: mtp0-a, mtp0-b" in words_of(svg)


def test_the_identity_map_counts_from_the_arrays() -> None:
    oracle = [row("a", ids=range(200)), row("b", ids=range(300))]
    other = [row("a", ids=range(200)), row("b", ids=[*range(57), 999, *range(58, 300)])]
    svg = plots.identity_map(oracle, {"mtp3-a": other, "mtp3-b": [row("a", ids=range(150))]}, prefix="p")
    words = words_of(svg)
    assert "200/200" in words and "57/300" in words and "150/200" in words and "no row" in words
    assert "1 of 3 answers equal" in words
    assert "incomplete" in words_of(plots.identity_map(oracle, {"x": [row("a", complete=False)]}, prefix="p"))


def test_a_depth_that_was_not_measured_breaks_the_line() -> None:
    whole = [(2048, 96.0), (4096, 95.0), (8192, 92.0)]
    svg = plots.depth_profile({"mtp0": whole, "mtp3": [whole[0], whole[2]]}, prefix="p")
    assert joins_of(svg) == ["series-1", "series-1"]


def test_a_withheld_depth_is_hollow_and_has_no_center() -> None:
    svg = plots.mtp_depth([(0, [96.0, 97.0], False), (3, [168.2, 167.8], True), (4, [150.0], False)], prefix="p")
    words = words_of(svg)
    assert "MTP0 96.5" in words and "MTP3 168 (withheld)" in words and "withheld" in words
    assert joins_of(svg) == []
    every = [(0, [96.0], False), (3, [168.0], False), (4, [150.0], False)]
    assert joins_of(plots.mtp_depth(every, prefix="p")) == ["series-2", "series-2"]
    assert joins_of(plots.mtp_depth([*every, (3, [167.0], False)], prefix="p")) == [], "nothing is selected"


def test_telemetry_keeps_the_extremes_of_many_samples() -> None:
    samples = [(at / 4, 150.0) for at in range(20_000)]
    samples[7777] = (7777 / 4, 250.0)
    svg = plots.telemetry({"0000:03:00.0": samples}, prefix="p", unit="power, W")
    assert "150 to 250, median 150" in words_of(svg)
    assert len(svg) < 60_000
    path = max(re.findall(r' d="([^"]*)"', svg), key=len)
    heights = [float(y) for y in re.findall(r"[\d.]+ ([\d.]+)", path)]
    assert min(heights) < 0.6 * max(heights), "the one high sample is drawn"


def test_ttft_has_the_median_of_each_server() -> None:
    rows = [long_row(str(at), start_ms=at) for at in (10.0, 20.0, 90.0)]
    assert "median 20.0, 10.0 to 90.0" in words_of(plots.ttft([attempt("a", rows)], prefix="p"))
    wide = [*rows, long_row("cold", start_ms=4000.0)]
    assert "log scale" in words_of(plots.ttft([attempt("a", wide)], prefix="p"))


def test_arrivals_of_a_ladder_leave_out_the_warm_up() -> None:
    words = words_of(plots.arrivals_of_rungs([batch(2, 1, [900.0, 901.0]), batch(2, 2, [10.0, 12.0])], prefix="p"))
    assert "median 11.0, 10.0 to 12.0" in words and "90" not in words


def test_nothing_to_draw_is_an_empty_string() -> None:
    nothing = attempt("a", [])
    assert plots.timeline([], prefix="p") == plots.rates_by_prompt([nothing], prefix="p") == ""
    assert plots.ttft([nothing, attempt("b", [row("x", [])])], prefix="p") == plots.ttft([], prefix="p") == ""
    assert plots.arrivals_of_rungs([batch(2, 1, [1.0]), batch(2, 2, [None])], prefix="p") == ""
    assert plots.ladder_curve({}, prefix="p") == plots.ladder_curve({"a": [rung(1, None, 1, 1)]}, prefix="p") == ""
    assert plots.depth_profile({"a": []}, prefix="p") == plots.mtp_depth([(3, [], False)], prefix="p") == ""
    assert plots.telemetry({"a": [(0.0, float("nan"))]}, prefix="p", unit="W") == ""
    assert plots.identity_map([], {"a": [row()]}, prefix="p") == plots.identity_map([row()], {}, prefix="p") == ""


def test_recorded_ladder_has_a_hollow_point_for_each_withheld_rung() -> None:
    evidence = derive(campaign("ladder3ties"))
    assert isinstance(evidence, LadderEvidence)
    svg = plots.ladder_curve({"mtp3": evidence.rungs}, prefix="p")
    for kind, held in (("withheld", True), ("shown", False)):
        expected = [(str(r.rung), repr(r.tok_s), f"{r.exact}/{r.total}") for r in evidence.rungs if r.withheld is held]
        assert points_of(svg, kind) == expected
    assert any(r.withheld for r in evidence.rungs)


def test_recorded_campaign_is_drawn_with_the_counts_of_its_gates() -> None:
    evidence = derive(campaign("ties"))
    assert isinstance(evidence, Evidence)
    rows = {item.label: item.rows for item in evidence.attempts}
    g3 = next(gate for gate in evidence.gates if gate.name == "G3")
    svg = plots.identity_map(rows["mtp0-a"], {"mtp3-a": rows["mtp3-a"]}, prefix="p")
    assert f"{g3.exact} of {g3.total} answers equal" in words_of(svg)
    assert words_of(plots.timeline(rows["mtp3-a"], prefix="p")).count("100th") == len(rows["mtp3-a"]) + 1
