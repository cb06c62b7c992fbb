"""Every way in which two campaigns can be unlike is named, and only what was declared is let through."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import UsageError
from harness.evidence.schema import Evidence, ModelFacts, Start
from harness.host.cards import Card
from harness.host.facts import Fact, Host
from harness.publish.likeness import Likeness, depth_pairs, likeness
from harness.surveying import named
from tests.publish import made

SPEEDS = {"mtp0-a": [100.0], "mtp0-b": [101.0], "mtp3-a": [200.0], "mtp3-b": [202.0]}
Change = Callable[[Start], Start]


def same(start: Start) -> Start:
    return start


def campaign(change: Change = same, **options: Any) -> Evidence:
    return made.strict(options.pop("speeds", SPEEDS), change=change, **options)


def sentences(found: Likeness) -> list[str]:
    return [item.sentence() for item in found.undeclared]


def servers(**changes: Any) -> Change:
    """Every server of the plan with fields set."""

    def change(start: Start) -> Start:
        plans = [plan.model_copy(update=changes) for plan in start.plan.servers]
        return start.model_copy(update={"plan": start.plan.model_copy(update={"servers": plans})})

    return change


def plan(**changes: Any) -> Change:
    return lambda start: start.model_copy(update={"plan": start.plan.model_copy(update=changes)})


def start(**changes: Any) -> Change:
    return lambda found: found.model_copy(update=changes)


def arguments(*words: str, drop: str = "") -> Change:
    def change(start: Start) -> Start:
        plans = []
        for server in start.plan.servers:
            kept = [*server.arguments]
            if drop:
                at = kept.index(drop)
                del kept[at : at + 2]
            plans.append(server.model_copy(update={"arguments": [*kept, *words]}))
        return start.model_copy(update={"plan": start.plan.model_copy(update={"servers": plans})})

    return change


def model(sha256: str) -> ModelFacts:
    return ModelFacts(repository="R", revision=None, files=[], sha256=sha256)


def test_one_configuration_twice_is_like() -> None:
    assert likeness(campaign(), campaign(name="d"), []) == Likeness([], [], [], [])


CASES: list[tuple[str, Change, list[str]]] = [
    ("measurement", plan(measurement_version=2), ["measurement version is 1 in A and 2 in B"]),
    ("lane", plan(lane="other"), ["lane is simulated in A and other in B"]),
    (
        "suite",
        start(suite=campaign().start.suite.model_copy(update={"sha256": "1" * 64})),
        ["suite is s 000000000000 "],
    ),
    ("model", start(model=model("f" * 64)), ["model sha256 is none in A and ffffffffffff in B"]),
    ("boot", start(host=made.host(boot_id="boot-2")), ["host boot_id is boot-1 in A and boot-2 in B"]),
    (
        "cards",
        start(host=made.host(cards=["0000:0b:00.0"])),
        ["host cards is ['0000:03:00.0'] in A and ['0000:0b:00.0"],
    ),
    ("hostname", start(host=made.host(hostname="other")), ["host hostname is rig in A and other in B"]),
    ("classpad", servers(classpad=True), ["CLASSPAD is False in A and True in B"]),
    ("image", servers(image="r304"), ["image is None in A and r304 in B"]),
    ("image id", servers(image_id="sha256:x"), ["image id is sha256:image in A and sha256:x in B"]),
    (
        "shape",
        arguments("--max-model-len", "2048", drop="--max-model-len"),
        ["shape --max-model-len is '1024' in A and '2048' in B"],
    ),
    ("argument", arguments("--dtype=float16"), ["argument --dtype is unset in A and 'float16' in B"]),
    ("flag", arguments("--enforce-eager"), ["argument --enforce-eager is unset in A and '' in B"]),
]


@pytest.mark.parametrize(("change", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_difference_is_named(change: Change, said: list[str]) -> None:
    found = sentences(likeness(campaign(), campaign(change), []))
    assert len(found) == len(said)
    for whole, begin in zip(found, said, strict=True):
        assert whole.startswith(begin)
    mirrored = likeness(campaign(change), campaign(), []).undeclared
    assert [(item.b, item.a) for item in mirrored] == [
        (item.a, item.b) for item in likeness(campaign(), campaign(change), []).undeclared
    ]


def test_an_applied_variable_is_what_counts() -> None:
    a, b = campaign(env={"VLLM_X": "1"}), campaign(env={"VLLM_X": "0", "VLLM_Y": ""})
    found = likeness(a, b, [])
    assert sentences(found) == [
        "environment: VLLM_X is '1' in A and '0' in B",
        "environment: VLLM_Y is unset in A and '' in B",
    ]
    declared = likeness(a, b, ["env:VLLM_X"])
    assert [item.name for item in declared.subject] == ["environment: VLLM_X"]
    assert [item.name for item in declared.undeclared] == ["environment: VLLM_Y"]


def test_a_variable_that_the_image_brings_goes_with_the_image() -> None:
    a, b = campaign(env={"PATH": "/a"}), campaign(servers(image_id="sha256:x"), env={"PATH": "/b"})
    found = likeness(a, b, ["image"])
    assert [item.name for item in found.subject] == ["image id", "environment: PATH"]
    assert found.undeclared == [] and found.idle == []
    # but not one that a plan asks for
    asked = servers(image_id="sha256:x", env={"VLLM_X": "2"})
    assert sentences(likeness(campaign(servers(env={"VLLM_X": "1"})), campaign(asked), ["image"])) == [
        "environment: VLLM_X is '1' in A and '2' in B"
    ]


def test_caches_and_the_home_of_a_server_are_no_difference() -> None:
    a, b = (campaign(env={"VLLM_CACHE_ROOT": path, "HOME": path, "HOSTNAME": path}) for path in ("/1", "/2"))
    assert likeness(a, b, []).undeclared == []


def test_unknown_is_never_equal() -> None:
    nowhere = start(host=Host(facts={**made.host().facts, "hostname": Fact(state="unknown")}))
    found = likeness(campaign(nowhere), campaign(nowhere), [])
    assert sentences(found) == ["host hostname is unknown in A and unknown in B"]
    absent = start(host=Host(facts={}))
    assert len(likeness(campaign(absent), campaign(absent), []).undeclared) == 7
    assert likeness(campaign(absent), campaign(absent), ["host"]).undeclared == []
    real = plan(engine="docker")
    assert sentences(likeness(campaign(real), campaign(real), [])) == ["model sha256 is unknown in A and unknown in B"]


CARD = "card 0000:03:00.0"


@pytest.mark.parametrize(
    "name",
    [
        *(f"{CARD} {fact}" for fact in ("guc_version", "huc_version", "xe_srcversion", "driver", "power_cap_watts")),
        *(f"{CARD} {fact}" for fact in ("frequency_maximum_mhz", "bar_full", "link_width")),
        *("docker_version", "docker_storage_driver", "docker_cgroup_version", "docker_swap_limit"),
        *("swap_bytes", "clocksource"),
    ],
)
def test_cards_and_docker_are_of_the_host(name: str) -> None:
    a, b = (campaign(start(host=made.host(**{name: value}))) for value in ("1", "2"))
    assert likeness(a, a, []).undeclared == []
    assert sentences(likeness(a, b, [])) == [f"host {name} is 1 in A and 2 in B"]
    found = likeness(a, b, ["host"])
    assert [item.name for item in found.subject] == [f"host {name}"] and found.undeclared == found.idle == []
    assert sentences(likeness(a, campaign(), [])) == [f"host {name} is 1 in A and unknown in B"]


@pytest.mark.parametrize(
    "name",
    [
        *(f"{CARD} {fact}" for fact in ("energy_joules", "temperature_package_c", "temperature_vram_c", "fan_rpm")),
        *(f"{CARD} {fact}" for fact in ("frequency_actual_mhz", "frequency_requested_mhz", "throttled")),
        *(f"{CARD} throttle_reasons", "memory_available_bytes"),
    ],
)
def test_a_reading_of_the_moment_is_no_difference(name: str) -> None:
    a, b = (campaign(start(host=made.host(**{name: value}))) for value in (1, 2))
    assert likeness(a, b, []).undeclared == likeness(a, campaign(), []).undeclared == []


def test_every_fact_of_a_card_is_compared_or_a_reading() -> None:
    """A fact that the survey gains is compared until someone calls it a reading."""
    facts = named([Card(address="0000:03:00.0", facts={"new": Fact(state="measured", value=1)})])
    host = Host(facts={**made.host().facts, **facts})
    assert sentences(likeness(campaign(), campaign(start(host=host)), [])) == [
        f"host {CARD} new is unknown in A and 1 in B"
    ]


def test_firmware_that_neither_boot_tells_may_have_changed() -> None:
    def unread(boot: str) -> Evidence:
        facts = {**made.host(boot_id=boot).facts, f"{CARD} guc_version": Fact(state="unknown", note="root")}
        return campaign(start(host=Host(facts=facts)))

    same_boot = likeness(unread("1"), unread("1"), [])
    assert same_boot.undeclared == [] and f"host {CARD} guc_version is unknown in A and B" in same_boot.notes
    assert f"host {CARD} guc_version is unknown in A and unknown in B" in sentences(
        likeness(unread("1"), unread("2"), [])
    )


def test_what_does_not_apply_on_both_sides_is_equal() -> None:
    no_cards = start(host=Host(facts={**made.host().facts, "cards": Fact(state="not applicable")}))
    assert likeness(campaign(no_cards), campaign(no_cards), []).undeclared == []
    assert sentences(likeness(campaign(), campaign(no_cards), [])) == [
        "host cards is ['0000:03:00.0'] in A and not applicable in B"
    ]


def test_depth_as_the_subject_takes_its_own_words_and_variables_along() -> None:
    three = campaign(start(depth_env=["DRAFT"]))
    base = campaign(start(depth_env=["DRAFT"]), speeds={"mtp0-a": [100.0], "mtp0-b": [101.0]})
    found = likeness(base, three, [])
    assert [item.name for item in found.undeclared] == ["MTP depth", "argument --speculative-config"]
    assert likeness(base, three, ["depth"]).undeclared == []
    assert depth_pairs(base, three) == [(0, 0), (0, 3)]
    assert depth_pairs(three, three) == [(0, 0), (3, 3)]


def test_a_variable_of_the_depth_is_no_subject_of_its_own() -> None:
    def drafting(found: Start) -> Start:
        plans = [
            item.model_copy(update={"env": {**item.env, **({"DRAFT": "1"} if item.depth else {})}})
            for item in found.plan.servers
        ]
        changed = found.plan.model_copy(update={"servers": plans})
        return found.model_copy(update={"plan": changed, "depth_env": ["DRAFT"]})

    base = campaign(drafting, speeds={"mtp0-a": [100.0], "mtp0-b": [101.0]})
    found = likeness(base, campaign(drafting), ["depth"])
    assert found.undeclared == [] and "environment: DRAFT" in [item.name for item in found.subject]


def test_two_cards_bring_their_variables() -> None:
    def change(found: Start) -> Start:
        env = {"CCL_SEND": "direct", "ZE_AFFINITY_MASK": "0,1"}
        return plan(tensor_parallel=2)(servers(tensor_parallel=2, env=env)(found))

    a = campaign(servers(env={"ZE_AFFINITY_MASK": "0"}))
    assert likeness(a, campaign(change), ["tp"]).undeclared == []
    other_card = campaign(servers(env={"ZE_AFFINITY_MASK": "1"}))
    assert sentences(likeness(a, other_card, [])) == ["environment: ZE_AFFINITY_MASK is '0' in A and '1' in B"]


def test_classpad_brings_its_variable_and_no_other() -> None:
    off = campaign(servers(env={"VLLM_XPU_FP16_LINEAR_CLASSPAD": "0"}))
    on = {"VLLM_XPU_FP16_LINEAR_CLASSPAD": "1", "VLLM_XPU_FP16_LINEAR_CLASSPAD_MAXM": "9"}
    found = likeness(off, campaign(servers(env=on, classpad=True)), ["classpad"])
    assert sentences(found) == ["environment: VLLM_XPU_FP16_LINEAR_CLASSPAD_MAXM is unset in A and '9' in B"]


@pytest.mark.parametrize("name", ["image", "depth", "classpad", "tp", "host", "env:VLLM_X"])
def test_a_knob_that_reached_neither_is_said(name: str) -> None:
    found = likeness(campaign(), campaign(), [name, name])
    assert found.idle == [name] and found.subject == []


@pytest.mark.parametrize("name", ["", "env:", "env", "images", "env:A B", "suite", "Image"])
def test_what_cannot_vary_is_a_wrong_option(name: str) -> None:
    with pytest.raises(UsageError, match="is nothing that can vary; use one of image, depth"):
        likeness(campaign(), campaign(), [name])


def test_versions_of_the_tool_are_notes() -> None:
    tool = campaign().start.tool
    older = start(tool=tool.model_copy(update={"version": "0.0", "dependencies": {"numpy": "1"}}))
    assert likeness(campaign(), campaign(older, name="d"), []).notes == [
        "bench version is 0 in A and 0.0 in B",
        "numpy is absent in A and 1 in B",
    ]


def test_a_campaign_and_itself() -> None:
    assert likeness(campaign(), campaign(), []).notes == ["A and B are one campaign"]


def test_ladders_differ_in_what_is_sent() -> None:
    rates = {1: [50.0, 60.0], 2: [90.0, 100.0]}
    plain = made.ladder(rates)

    def change(found: Start) -> Start:
        assert found.plan.ladder is not None
        other = found.plan.ladder.model_copy(update={"stagger_ms": 5.0, "passes": 9})
        return plan(ladder=other)(found)

    found = likeness(plain, made.ladder(rates, name="m", change=change), [])
    assert sentences(found) == ["ladder stagger_ms is 0.0 in A and 5.0 in B"]
    assert found.notes == ["passes are 2 in A and 9 in B: only what both have is compared"]
