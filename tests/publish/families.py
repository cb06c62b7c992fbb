"""Recorded campaigns opened once, and variants of them made by hand, as material for a family file."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.evidence.schema import Evidence, Status
from harness.lanes import load_image, load_lane
from harness.measure.gates import Gate
from harness.plan import server_plan, strict_labels
from harness.publish.campaigns import Campaign, open_campaign
from harness.publish.family_measured import Given
from harness.publish.family_words import LAB_SUITE
from tests.recorded import campaign

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@functools.cache
def opened(name: str) -> Campaign:
    """A recorded campaign, verified once a run."""
    return open_campaign(campaign(name))


def recorded(name: str) -> Given:
    return Given(opened(name), f"campaigns/{name}")


def strict(name: str = "tiny") -> Evidence:
    evidence = opened(name).evidence
    assert isinstance(evidence, Evidence)
    return evidence


def variant(name: str, evidence: Evidence) -> Given:
    """A campaign made by hand, under its own name and id."""
    own = evidence.model_copy(
        update={
            "campaign_id": name,
            "start": evidence.start.model_copy(update={"campaign_id": name}),
        }
    )
    return Given(Campaign(Path(name), own), f"campaigns/{name}")


def at_rates(evidence: Evidence, day: str, factor: float) -> Evidence:
    """Another campaign of the same configuration: another day, other rates."""
    pairs = []
    for pair in evidence.pairs:
        assert pair.a is not None and pair.b is not None and pair.center is not None
        scaled = {"a": pair.a * factor, "b": pair.b * factor, "center": pair.center * factor}
        pairs.append(pair.model_copy(update=scaled))
    update = {"pairs": pairs, "started_at": f"{day}T01:00:00.000+00:00", "ended_at": f"{day}T02:00:00.000+00:00"}
    return evidence.model_copy(update=update)


def unequal(evidence: Evidence, name: str, exact: int) -> Evidence:
    """A campaign of which a gate found ``exact`` equal answers; a failed G1 ends it, as contract section 4 says."""
    divergence = strict("ties").gates[-1].divergences[0]
    gates = [
        Gate(
            name=gate.name,
            subject=gate.subject,
            passed=False,
            failures=[f"{gate.name}: an answer differs"],
            exact=exact,
            total=gate.total,
            divergences=[divergence],
        )
        if gate.name == name
        else gate
        for gate in evidence.gates
    ]
    rejected = name == "G1"
    update: dict[str, Any] = {
        "gates": gates[:1] if rejected else gates,
        "status": Status.REJECTED if rejected else Status.WITHHELD,
        "withheld": True,
        "exit_code": 1,
    }
    return evidence.model_copy(update=update)


def planned(evidence: Evidence, **server: Any) -> Evidence:
    """The same with another word in the plan of every server."""
    servers = [plan.model_copy(update=server) for plan in evidence.start.plan.servers]
    plan = evidence.start.plan.model_copy(update={"servers": servers})
    return evidence.model_copy(update={"start": evidence.start.model_copy(update={"plan": plan})})


def under(given: Given, path: str) -> Given:
    return replace(given, path=path)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every scalar with its path."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def put(document: Any, path: tuple[str | int, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def on_a_card(
    evidence: Evidence, *, image_id: str, classpad: bool = False, tp: int = 1, model: tuple[str, str] | None = None
) -> Evidence:
    """A campaign as the lab's one-card lane would record it: its model, suite, image and server arguments."""
    lane = load_lane("qwen35-4b-w4a16")
    servers = []
    for label, depth in strict_labels(3):
        plan = server_plan(
            lane,
            label=label,
            depth=depth,
            tensor_parallel=tp,
            shape="strict",
            engine="docker",
            image=load_image("r293" if classpad else "r276"),
            image_id=image_id,
            classpad=classpad,
            site_env=dict.fromkeys(lane.site_env_tp2, "site") if tp > 1 else {},
        )
        servers.append(plan)
    old = evidence.start
    assert old.model is not None
    repository, revision = model or (lane.model.repository, lane.model.revision)
    facts = old.model.model_copy(update={"repository": repository, "revision": revision})
    plan = old.plan.model_copy(update={"servers": servers, "tensor_parallel": tp, "lane": lane.name})
    suite = old.suite.model_copy(update={"id": "lab", "sha256": LAB_SUITE})
    start = old.model_copy(update={"plan": plan, "model": facts, "suite": suite})
    return evidence.model_copy(update={"start": start, "attempts": []})


def with_figures(evidence: Evidence, figures: dict[int, tuple[float, float, float, float]]) -> Evidence:
    """Other rates and TTFTs by depth: (a, b, TTFT a, TTFT b)."""
    pairs = []
    for pair in evidence.pairs:
        a, b, ttft_a, ttft_b = figures[pair.depth]
        center = (a + b) / 2
        update = {"a": a, "b": b, "center": center, "spread": abs(a - b) / center}
        pairs.append(pair.model_copy(update=update | {"ttft_a_ms": ttft_a, "ttft_b_ms": ttft_b}))
    return evidence.model_copy(update={"pairs": pairs})
