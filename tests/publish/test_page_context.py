"""Long-context profiles, boundary probes and telemetry on the page."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.context_schema import ContextEvidence
from harness.evidence.schema import Evidence, PowerUse
from harness.host.telemetry import FORMAT, Sample
from harness.measure.power import summarise
from harness.publish.campaigns import Campaign
from harness.publish.page import page_view, render
from harness.publish.page_context import arms_of
from harness.publish.page_telemetry import NOT_RECORDED, samples_of, watts
from harness.publish.page_view import Chip, Matrix, Sentences, Table
from tests.contexts import launcher, run
from tests.publish.pages import at, recorded, stored, taken_apart


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("depth")
    _, raw = run("depth", home, launcher(home))
    return raw


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("probe")
    _, raw = run("probe", home, launcher(home))
    return raw


def source(raw: Any, **changes: Any) -> Campaign:
    return Campaign(Path("campaign"), ContextEvidence.model_validate(raw | changes))


def measured(raw: Any, **changes: Any) -> Campaign:
    """As if it were no simulation and every gate had passed, which a busy client may prevent."""
    attempts = [
        item | {"gates": [gate | {"passed": True, "failures": []} for gate in item["gates"]]}
        for item in raw["attempts"]
    ]
    points = [point | {"withheld": False, "why": []} for point in raw["points"]]
    start = raw["start"] | {"simulated": False}
    whole = {
        "simulated": False,
        "start": start,
        "attempts": attempts,
        "points": points,
        "status": "passed",
        "withheld": False,
        "reasons": [],
    }
    return source(raw, **(whole | changes))


def test_every_figure_of_a_profile_is_the_one_of_the_evidence(profile: Any) -> None:
    found = taken_apart(render(page_view([source(profile)]))).figures
    names = {figure.field for figure in found}
    for place, point in enumerate(profile["points"]):
        assert {f"points.{place}.{key}" for key in ("context", "tok_s", "tok_s_burst_exact", "ttft_ms")} <= names
        assert {f"points.{place}.classes.{n}.tok_s" for n in range(len(point["classes"]))} <= names
    for figure in found:
        said = at(profile, figure.field)
        assert figure.value == ("" if said is None else str(said)), figure
        assert figure.mark == ("sim" if figure.value else "")


def test_the_hero_of_a_profile_is_its_longest_shown_context(profile: Any) -> None:
    view = page_view([measured(profile)])
    last = profile["points"][-1]
    assert (last["label"], last["context"]) == ("mtp3", 256)
    hero = view.campaigns[0].hero
    assert hero.number is not None and hero.number.value == last["tok_s"]
    points = [point | {"withheld": False, "why": []} for point in profile["points"]]
    points[-1] |= {"withheld": True, "exact": 2, "why": ["256: one differs"]}
    missed = measured(profile, points=points, status="withheld", withheld=True)
    hero = page_view([missed]).campaigns[0].hero
    assert hero.number is not None and hero.number.value == points[-2]["tok_s"]
    (block,) = page_view([missed]).across[0].blocks
    assert isinstance(block, Matrix)
    words = "".join(getattr(part, "text", part) for part in block.rows[0][2][1][0].figure)
    assert words.endswith(f"256: {points[-1]['tok_s']:.2f} withheld (2/3)")


def test_a_withheld_context_is_in_no_curve(profile: Any) -> None:
    found = source(profile).evidence
    assert isinstance(found, ContextEvidence)
    points = [point.model_copy(update={"withheld": point.context == 128}) for point in found.points]
    assert {label: [context for context, _ in arm] for label, arm in arms_of(points).items()} == {
        "MTP0": [64, 256],
        "MTP3": [64, 256],
    }


def test_simulated_profiles_and_probes_have_no_hero(profile: Any, probes: Any) -> None:
    for raw in (profile, probes):
        hero = page_view([source(raw)]).campaigns[0].hero
        assert hero.number is None and hero.why_none[0] == "it is simulated: nothing in it is a measurement"
    assert page_view([measured(probes)]).campaigns[0].hero.why_none == (
        "boundary probes compare answers and have no rate",
    )


def test_every_probe_stands_in_its_table(probes: Any) -> None:
    (view,) = page_view([source(probes)]).campaigns
    section = next(item for item in view.sections if item.id == "probes")
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row.cells[0] for row in table.rows] == [probe["what"] for probe in probes["probes"]]
    said = {True: Chip("equal", "good"), False: Chip("differs", "bad"), None: Chip("oracle", "muted")}
    assert [row.cells[2] for row in table.rows] == [said[probe["exact"]] for probe in probes["probes"]]


def series(seconds: int = 8) -> list[Sample]:
    return [
        Sample(t_ns=n * 250_000_000, card="0000:03:00.0", energy_uj=n * 25_000_000, act_mhz=2400, package_mc=61_500,
               vram_mc=70_000, throttled=False)
        for n in range(seconds * 4)
    ]  # fmt: skip


def powered() -> Evidence:
    (tiny,) = recorded("tiny")
    assert isinstance(tiny.evidence, Evidence)
    power = summarise({"0000:03:00.0": series()}, 1_000_000_000, 6_000_000_000, tokens=512)
    first = tiny.evidence.attempts[0].model_copy(
        update={"power_use": PowerUse(power=power, other_cards=[], notes=["card <b>: energy unknown"])}
    )
    return tiny.evidence.model_copy(update={"attempts": [first, *tiny.evidence.attempts[1:]]})


def test_power_and_series_of_the_cards_are_shown(tmp_path: Path) -> None:
    evidence = powered()
    folder = tmp_path / "attempts" / "mtp0-a"
    folder.mkdir(parents=True)
    names = [field.name for field in fields(Sample)]
    head = {"format": FORMAT, "fields": names, "cards": ["0000:03:00.0"]}
    rows = [[0 if name == "card" else asdict(item)[name] for name in names] for item in series()]
    (folder / "telemetry.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [head, *rows]))
    assert samples_of(tmp_path, evidence) == {"mtp0-a": series()}
    html = render(page_view([Campaign(tmp_path, evidence)]))
    found = taken_apart(html)
    dumped = evidence.model_dump(mode="json", by_alias=True)
    power = [figure for figure in found.figures if "power_use" in figure.field]
    assert {figure.field.rpartition(".")[2] for figure in power} >= {"joules", "mean_watts", "tokens_per_joule"}
    for figure in power:
        assert figure.value == str(at(dumped, figure.field))
    assert html.count("plot-telemetry") >= 4 and NOT_RECORDED not in found.text
    assert "card <b>: energy unknown" in found.text and "<b>" not in html
    assert "telemetry (power" not in found.text, "it is no unknown any more"


def test_watts_are_energy_over_time_and_never_from_a_counter_that_fell() -> None:
    found = watts(series(2))
    assert len(found) == 7 and all(value == pytest.approx(100.0) for _, value in found)
    broken = [
        Sample(t_ns=0, card="a", energy_uj=5),
        Sample(t_ns=10, card="a", energy_uj=3),
        Sample(t_ns=20, card="a", energy_uj=None),
        Sample(t_ns=30, card="a", energy_uj=9),
    ]
    assert watts(broken) == []
    assert watts([]) == []


def test_without_telemetry_the_section_says_so() -> None:
    (view,) = page_view(recorded("tiny")).campaigns
    section = next(item for item in view.sections if item.id == "telemetry")
    assert section.blocks == (Sentences((NOT_RECORDED,), "warn"),)
    assert "power_use" not in stored("tiny")["attempts"][0]


@pytest.mark.parametrize(("status", "word"), [("invalid", "no verdict"), ("interrupted", "no verdict")])
def test_a_profile_without_a_verdict_shows_no_context(profile: Any, status: str, word: str) -> None:
    view = page_view([measured(profile, status=status, withheld=True)])
    (section,) = (item for item in view.campaigns[0].sections if item.id == "context")
    (points,) = (block for block in section.blocks if isinstance(block, Table))
    assert [row.cells[2] for row in points.rows] == [Chip(word, "bad")] * len(profile["points"])
    assert "Rate over active context: there is nothing to draw." in taken_apart(render(view)).text
