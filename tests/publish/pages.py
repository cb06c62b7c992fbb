"""Reading pages back: what stands in the HTML, and what the evidence says at the place a figure names."""

import functools
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Evidence
from harness.publish.campaigns import Campaign
from harness.publish.page import page_view, render
from harness.publish.page_ladder import median_ttft_ms
from harness.publish.page_view import Matrix, PageView
from tests.publish.test_projection import served
from tests.recorded import campaign

NAMES = ("tiny", "ties", "ladder0", "ladder3ties")
VOID = {"meta", "link", "br", "img", "input", "hr"}


@functools.cache
def stored(name: str) -> Any:
    """evidence.json of a recorded campaign."""
    return json.loads((campaign(name) / "evidence.json").read_text())


def modelled(raw: Any) -> AnyEvidence:
    return (LadderEvidence if raw["kind"] == "ladder" else Evidence).model_validate(raw)


@functools.cache
def _recorded(name: str) -> Campaign:
    return Campaign(campaign(name), modelled(stored(name)))


def recorded(*names: str) -> list[Campaign]:
    """Recorded campaigns as they stand in their evidence.json; that it is derived is tested elsewhere."""
    return [_recorded(name) for name in names]


def html_of(*sources: Campaign, **options: Any) -> str:
    return render(page_view(sources, **options))


@functools.cache
def view_of(*names: str) -> PageView:
    """What the page of recorded campaigns says, made once."""
    return page_view(recorded(*names))


@functools.cache
def page_of(*names: str) -> str:
    """The page of recorded campaigns, made once."""
    return render(view_of(*names))


@dataclass
class Figure:
    """One number in a page."""

    campaign: str
    field: str
    value: str
    text: str = ""
    mark: str = ""


@dataclass
class Page(HTMLParser):
    """A page taken apart by the standard library's parser."""

    figures: list[Figure] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    _open: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag in VOID:
            return
        self._open.append((tag, found))
        name = found.get("data-field")
        if name is not None:
            owner = next(a["data-campaign"] for _, a in reversed(self._open) if "data-campaign" in a)
            self.figures.append(Figure(owner or "", name, found["data-value"] or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            opened, _ = self._open.pop()
            assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1][0] != "style":
            self.words.append(data)
        if self._open and "data-field" in self._open[-1][1]:
            self.figures[-1].text += data
        elif self._open and self._open[-1][0] == "sup":
            self.figures[-1].mark += data

    @property
    def text(self) -> str:
        return "".join(self.words)


def taken_apart(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    assert page._open == []
    return page


def at(evidence: Any, path: str) -> Any:
    """What evidence.json says at a figure's place. Raises LookupError where there is nothing."""
    if path.startswith("derived.c"):
        rung, _, name = path.removeprefix("derived.c").partition(".")
        assert name == "ttft_ms"
        (found,) = (item for item in recorded(*NAMES) if item.evidence.campaign_id == evidence["campaign_id"])
        assert isinstance(found.evidence, LadderEvidence)
        return median_ttft_ms(found.evidence.attempts, int(rung))
    here = evidence
    for part in path.split("."):
        here = _entry(here, part) if isinstance(here, list) else here[part]
    return here


def _entry(items: list[Any], part: str) -> Any:
    if part.isdigit() and not any(isinstance(item, dict) and "rung" in item and "passes" in item for item in items):
        return items[int(part)]
    for key in ("directory", "label", "prompt_id", "name"):
        named = [item for item in items if isinstance(item, dict) and item.get(key) == part]
        if len(named) == 1:
            return named[0]
    return next(item for item in items if f"c{item['rung']}" == part)


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;{{ 7*7 }}"


def hostile(raw: Any) -> Any:
    """The evidence with markup in everything that a file of the user's, a server or a host decides."""
    text = {"lane_title", "command", "lane", "suite_id", "served_model_name", "hostname", "detail", "note", "error"}
    prompts = {item["id"] for item in raw["start"]["suite"]["prompts"]}

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if key in ("env", "image_env", "labels"):
                return dict.fromkeys(value, HOSTILE) | {HOSTILE: HOSTILE}
            return {name: walk(item, name) for name, item in value.items()}
        if isinstance(value, list):
            if key in ("failures", "notes", "reasons", "unknown", "differences", "warnings", "repo_digests", "why"):
                return [HOSTILE, *value] if key != "failures" or value else value
            if key == "arguments":
                return [*value, HOSTILE]
            return [walk(item, key if key != "servers" else "") for item in value]
        if isinstance(value, str) and (key in text or (key in ("prompt_id", "slot", "id") and value in prompts)):
            return f"{HOSTILE}{value}"
        return value

    return walk(raw)


def simulated(name: str) -> Campaign:
    raw = stored(name)
    changed = raw | {"simulated": True, "start": raw["start"] | {"simulated": True}}
    return Campaign(recorded(name)[0].directory, modelled(changed))


def coverage(view: PageView) -> Matrix:
    (block,) = view.across[0].blocks
    assert isinstance(block, Matrix)
    return block


def changed_to(name: str, **changes: Any) -> Campaign:
    return Campaign(recorded(name)[0].directory, modelled(stored(name) | changes))


def attached(name: str, **changes: Any) -> Campaign:
    start = stored(name)["start"]
    return changed_to(name, start=start | {"plan": start["plan"] | {"engine": "attach"}}, **changes)


def projection(source: Campaign) -> tuple[Page, str]:
    html = html_of(source, manifest=served(source.evidence), bandwidth=50e9)
    (section,) = re.findall(r'<section id="all-projection".*?</section>', html, re.DOTALL)
    return taken_apart(html), section
