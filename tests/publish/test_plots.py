"""Every plot: one string that needs nothing from outside, escaped, the same bytes again, and no input breaks it."""

import re
import time
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.publish import plots
from tests.publish.plot_inputs import LADDER, SVG, attempt, batch, long_row, points_of, row, rung, words_of

EVIL = '<script>alert("1")</script>&amp;$\\frac{1}{$ \x00\x1b\u202e"\' #a10001'


def all_of(name: str, prefix: str) -> dict[str, str]:
    """Every plot with the name wherever evidence may bring one."""
    rows = [
        long_row(name),
        long_row("other", prompt_class=name),
        row("short"),
        row("cut", complete=False),
        row("no", []),
    ]
    attempts = [attempt(name, rows), attempt("b", rows[:1])]
    return {
        "timeline": plots.timeline(rows, prefix=prefix),
        "rates": plots.rates_by_prompt(attempts, prefix=prefix),
        "ttft": plots.ttft(attempts, prefix=prefix),
        "arrivals": plots.arrivals_of_rungs([batch(2, 2, [3.0, None])], prefix=prefix),
        "identity": plots.identity_map(rows, {name: rows, "b": [row(name), row("extra")]}, prefix=prefix),
        "ladder": plots.ladder_curve({name: LADDER}, prefix=prefix),
        "depth": plots.depth_profile({name: [(2048, 96.0), (4096, 90.0)]}, prefix=prefix),
        "mtp": plots.mtp_depth([(0, [96.0, 96.4], False), (3, [168.0], True)], prefix=prefix),
        "telemetry": plots.telemetry({name: [(0.0, 150.0), (0.25, 161.0)]}, prefix=prefix, unit="power, W"),
    }


PLOTS = all_of("plain", "x")


def ids_of(root: ET.Element) -> list[str]:
    return [element.attrib["id"] for element in root.iter() if "id" in element.attrib]


class Tags(HTMLParser):
    """The elements that a browser finds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("svg", PLOTS.values(), ids=PLOTS)
def test_one_element_that_needs_nothing_from_outside(svg: str) -> None:
    assert svg.startswith("<svg ") and svg.endswith("</svg>")
    root = ET.fromstring(svg)
    assert root.attrib["width"] == "100%" and "height" not in root.attrib
    assert re.fullmatch(r"0 0 \d+ \d+(\.\d+)?", root.attrib["viewBox"])
    assert root.attrib["role"] == "img"
    by_id = {element.get("id"): element for element in root.iter()}
    assert by_id[root.attrib["aria-labelledby"]].tag == f"{SVG}title" and by_id[root.attrib["aria-labelledby"]].text
    assert by_id[root.attrib["aria-describedby"]].tag == f"{SVG}desc" and by_id[root.attrib["aria-describedby"]].text
    allowed = {"svg", "title", "desc", "g", "defs", "path", "use", "text", "clipPath", "rect"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert all(element.get("href", "#").startswith("#") for element in root.iter())
    assert svg.count("http") == 1, "the namespace only"


@pytest.mark.parametrize("svg", PLOTS.values(), ids=PLOTS)
def test_every_reference_is_met_and_ids_are_unique(svg: str) -> None:
    found = ids_of(ET.fromstring(svg))
    assert len(found) == len(set(found))
    asked = set(re.findall(r'href="#([^"]*)"', svg)) | set(re.findall(r"url\(#([^)]*)\)", svg))
    assert asked <= set(found)


def test_many_plots_stand_in_one_page() -> None:
    names = [
        name for prefix in ("a", "a b", "a_b") for svg in all_of("x", prefix).values()
        for name in ids_of(ET.fromstring(svg))
    ]  # fmt: skip
    assert len(names) == len(set(names)) > 100
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) for name in names)


@pytest.mark.parametrize("svg", PLOTS.values(), ids=PLOTS)
def test_every_colour_is_a_variable_that_the_style_knows(svg: str) -> None:
    fixed = re.findall(r"(?:fill|stroke): (#\w+|[a-z]+)(?=[;\"])", svg)
    assert set(fixed) <= {"none"}
    asked = set(re.findall(r"var\((--[a-z0-9-]+), #[0-9a-f]{6}\)", svg))
    assert asked and all(f"{name}:#" in plots.STYLE for name in asked)
    assert "a1000" not in svg and "a1001" not in svg, "a sentinel was left"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_series_have_contrast_in_both_schemes() -> None:
    schemes = [dict(re.findall(r"--([a-z0-9-]+):(#[0-9a-f]{6})", part)) for part in plots.STYLE.split("@media screen")]
    assert len(schemes) == 2 and set(schemes[0]) == set(schemes[1])
    for scheme in schemes:
        paper = luminance(scheme["paper"])
        for name in set(scheme) - {"paper", "grid"}:
            other = luminance(scheme[name])
            assert (max(paper, other) + 0.05) / (min(paper, other) + 0.05) >= 4.5, name


def test_same_input_same_bytes_whatever_the_settings_of_the_user() -> None:
    before = all_of("x", "p")
    kept = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert all_of("x", "p") == before
    assert dict(matplotlib.rcParams) == kept


def test_everything_from_evidence_is_escaped() -> None:
    for name, svg in all_of(EVIL, EVIL).items():
        parser = Tags()
        parser.feed(svg)
        parser.close()
        assert parser.found[0] == "svg" and "script" not in parser.found, name
        ET.fromstring(svg)
        assert "<script" not in svg
        assert "\u202e" not in svg, "no id turns the text after it around"
    assert '<script>alert("1")</script>&amp;$' in words_of(all_of(EVIL, "p")["ladder"])
    found = {element.get("data-ladder") for element in ET.fromstring(all_of(EVIL, "p")["ladder"]).iter()} - {None}
    assert len(found) == 1 and "#a10001" in found.pop(), "a label is no colour"


@given(
    st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60), st.booleans()), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 600)), max_size=5),
    st.text(max_size=5),
)
@settings(max_examples=10, deadline=None)
def test_any_name_and_any_arrival_is_drawn(
    names: list[tuple[str, str, bool]], chunks: list[tuple[int, int]], prefix: str
) -> None:
    rows = [row(a, chunks, prompt_class=b, complete=c) for a, b, c in names]
    attempts = [attempt(names[0][0], rows)]
    for svg in (
        plots.timeline(rows, prefix=prefix),
        plots.rates_by_prompt(attempts, prefix=prefix),
        plots.identity_map(rows, {names[0][1]: rows}, prefix=prefix),
        plots.ttft(attempts, prefix=prefix),
    ):
        assert not svg or ET.fromstring(svg).tag == f"{SVG}svg"


@given(
    st.lists(st.tuples(st.integers(-1, 10**9), st.floats()), max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.floats(), max_size=3), st.booleans()), max_size=5),
)
@settings(max_examples=10, deadline=None)
def test_any_value_is_drawn_or_left_out(
    values: list[tuple[int, float]], depths: list[tuple[int, list[float], bool]]
) -> None:
    for svg in (
        plots.depth_profile({"a": values}, prefix="p"),
        plots.mtp_depth(depths, prefix="p"),
        plots.telemetry({"a": [(float(x), y) for x, y in values]}, prefix="p", unit="°C"),
    ):
        assert not svg or ET.fromstring(svg).tag == f"{SVG}svg"


def test_128_lanes_and_a_long_ladder_are_drawn_in_time() -> None:
    rows = [long_row(f"prompt-{at:03}-with-a-rather-long-name-that-must-be-cut-somewhere") for at in range(128)]
    start = time.process_time()
    assert words_of(plots.timeline(rows, prefix="p")).count("TTFT") >= 128
    assert plots.identity_map(rows, {"b": rows}, prefix="p").count("512/512") == 128
    users = (1, 2, 4, 8, 12, 16, 20, 24, 32, 64)
    batches = [batch(u, number, [5.0 + at for at in range(u)]) for number in range(1, 21) for u in users]
    curves = {f"l{k}": [rung(u, 100.0 * u**0.7 + k, 20 * u - (u > 9), 20 * u) for u in users] for k in range(4)}
    assert plots.arrivals_of_rungs(batches, prefix="p").count("users") >= 9
    assert len(points_of(plots.ladder_curve(curves, prefix="p"), "withheld")) == 4 * 6
    assert time.process_time() - start < 6, "of this process alone; some 2 s on an idle core"
