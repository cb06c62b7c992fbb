"""The page in a real browser: nothing is loaded, nothing complains, numbers are the evidence's, and it fits a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.publish.campaigns import Campaign
from tests.publish.chromium import Tab, executable, tab
from tests.publish.pages import NAMES, at, hostile, html_of, modelled, page_of, recorded, simulated, stored

pytestmark = pytest.mark.skipif(executable() is None, reason="no chromium on this machine: apt-get install chromium")

FIGURES = """
[...document.querySelectorAll('[data-field]')].map(e => [
  e.closest('[data-campaign]').dataset.campaign, e.dataset.field, e.dataset.value, e.textContent])
"""
POINTS = """
[...document.querySelectorAll('.point[data-users]')].map(e => {
  const style = getComputedStyle(e.querySelector('use'));
  return [e.getAttribute('class'), e.dataset.users, e.dataset.rate, e.dataset.exact, style.fill, style.stroke]})
"""
TOO_WIDE = """
[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg') &&
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5).map(e => e.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    path.write_text(page_of(*NAMES))
    return path


def complaints(browser: Tab) -> list[Any]:
    names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed")
    return [found for name in names for found in browser.named(name)]


def requests(browser: Tab) -> list[str]:
    return [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]


def test_no_complaint_and_no_request(browser: Tab, page: Path) -> None:
    browser.open(page)
    assert complaints(browser) == []
    assert requests(browser) == [page.as_uri()]
    assert browser.run("document.scripts.length") == 0


def test_every_number_on_the_screen_is_the_evidences(browser: Tab, page: Path) -> None:
    browser.open(page)
    by_id = {stored(name)["campaign_id"]: stored(name) for name in NAMES}
    found = browser.run(FIGURES)
    assert len(found) > 700 and {item[0] for item in found} == set(by_id)
    for name, field, value, text in found:
        said = at(by_id[name], field)
        if said is None:
            assert (value, text.strip()) == ("", "–"), field
        else:
            assert float(value) == said, field
            digits = len(text.partition(".")[2])
            assert text in (f"{said:.{digits}f}", f"{100 * said:.{digits}f}"), field


def test_withheld_points_are_hollow_and_shown_ones_full(browser: Tab, page: Path) -> None:
    for dark in (False, True):
        browser.open(page, dark=dark)
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        found = browser.run(POINTS)
        expected = {
            (str(rung["tok_s"]), f"{rung['exact']}/{rung['total']}"): rung["withheld"]
            for name in ("ladder0", "ladder3ties")
            for rung in stored(name)["rungs"]
        }
        assert {(rate, exact) for _, _, rate, exact, _, _ in found} == set(expected)
        for kind, _, rate, exact, fill, stroke in found:
            withheld = expected[rate, exact]
            assert kind == f"point {'withheld' if withheld else 'shown'}"
            assert (fill == paper) == withheld and stroke != paper


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_never_scrolls_sideways(browser: Tab, page: Path, width: int) -> None:
    browser.open(page, width=width, height=844)
    browser.run("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(TOO_WIDE) == []
    inside = "[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    assert browser.run(inside), "wide tables scroll in their own box"


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_readable(browser: Tab, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    paper = luminance(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert (paper < 0.05) == dark
    for selector in ("body", ".eyebrow", ".chip.good", ".chip.bad", ".unit", "nav a", "caption", "summary", ".caution"):
        colour = luminance(browser.run(f"getComputedStyle(document.querySelector({selector!r})).color"))
        contrast = (max(paper, colour) + 0.05) / (min(paper, colour) + 0.05)
        assert contrast >= 4.5, (selector, contrast)


def test_on_paper_everything_folded_is_open_and_light(browser: Tab, page: Path) -> None:
    browser.open(page, dark=True)
    closed = "[...document.querySelectorAll('details:not([open]) > .folded')].map(e => e.checkVisibility())"
    assert not any(browser.run(closed))
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    printed = browser.run(closed)
    assert len(printed) > 10 and all(printed)
    assert luminance(browser.run("getComputedStyle(document.documentElement).getPropertyValue('--paper') && "
                                 "getComputedStyle(document.body).backgroundColor")) > 0.9  # fmt: skip
    assert browser.paper().startswith(b"%PDF-")


@pytest.mark.parametrize("mode", ["screen", "print"])
def test_simulated_is_marked_across_the_page(browser: Tab, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_of(simulated("ladder0")))
    browser.open(path)
    assert complaints(browser) == []
    assert all(url == path.as_uri() or url.startswith("data:image/svg+xml,") for url in requests(browser))
    browser.call("Emulation.setEmulatedMedia", media="" if mode == "screen" else mode)
    mark = "getComputedStyle(document.body, '::before')"
    assert "SIMULATED" in browser.run(f"{mark}.backgroundImage")
    assert browser.run(f"{mark}.printColorAdjust") == "exact"
    whole = browser.run(f"[parseFloat({mark}.height), document.body.getBoundingClientRect().height]")
    assert abs(whole[0] - whole[1]) < 2
    assert browser.run("document.querySelector('.banner').checkVisibility()")
    unmarked = "[...document.querySelectorAll('data.num')].filter(e => !e.parentElement.querySelector('sup.mark'))"
    assert browser.run(f"{unmarked}.length") == 0 and browser.run("document.querySelectorAll('data.num').length") > 50


def test_planted_markup_never_runs(browser: Tab, tmp_path: Path) -> None:
    (source,) = recorded("ladder3ties")
    path = tmp_path / "page.html"
    path.write_text(html_of(Campaign(source.directory, modelled(hostile(stored("ladder3ties"))))))
    browser.open(path)
    assert browser.named("Page.javascriptDialogOpening") == []
    assert complaints(browser) == [] and requests(browser) == [path.as_uri()]
    assert browser.run("document.querySelectorAll('script, img, iframe').length") == 0
    assert browser.run("document.body.textContent.includes('<script>alert(1)</script>')")
