"""A family file follows from evidence: every derived number is checked, everything else keeps its bytes."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import BenchError, EvidenceError, UsageError
from harness.evidence.ladder_schema import LadderEvidence
from harness.evidence.schema import Status
from harness.publish.campaigns import Campaign
from harness.publish.family import Promotion, promote
from harness.publish.family_draft import Draft
from harness.publish.family_measured import Given
from harness.publish.family_new import first
from tests.publish.families import (
    at_rates,
    leaves,
    opened,
    planned,
    put,
    recorded,
    strict,
    unequal,
    variant,
)

CHOSEN = re.compile(r"packets\[[^]]*\]\.topologies|coverage_views\[[^]]*\]\.fixed_selectors")
"""Numbers that a person chooses: what a packet claims, and what a view holds still. Others follow from them."""
DERIVED_TEXT = re.compile(
    r"\.(label|quality_scope|workload|evidence|basis|grade|state)$|coverage\[|measurement_ids|\.config\."
)
PROSE = re.compile(r"packets\[[^]]*\]\.label|series\[\d+\]\.label|_axis\.label|weight_revisions|views\[[^]]*\]\.label")


@pytest.fixture(scope="module")
def made() -> Promotion:
    return first("f.json", [recorded("tiny")], [])


def document(result: Promotion) -> dict[str, Any]:
    found = json.loads(result.data)
    assert isinstance(found, dict)
    return found


def dumped(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def again(value: Any) -> Promotion:
    return promote(dumped(value), "f.json", [recorded("tiny")])


def entries(result: Promotion) -> list[dict[str, Any]]:
    found = document(result)["run_measurements"]
    assert isinstance(found, list)
    return found


def cells(result: Promotion) -> dict[str, Any]:
    found = document(result)["coverage_views"][0]["cells"]
    assert isinstance(found, dict)
    return found


def test_a_first_file_is_what_its_evidence_gives(made: Promotion) -> None:
    found = promote(made.data, "f.json", [recorded("tiny")])
    assert found.changes == [] and found.data == made.data and found.entries == 2
    base, fast = strict().pairs
    zero, three = entries(made)
    assert three["metrics"] == {
        "decode_tok_s": [round(fast.a or 0, 3), round(fast.b or 0, 3)],
        "ttft_ms": [round(fast.ttft_a_ms or 0, 2), round(fast.ttft_b_ms or 0, 2)],
    }
    assert three["center"] == {"decode_tok_s": [round(fast.center or 0, 3)]}
    assert (zero["quality_scope"], three["quality_scope"]) == ("G1 12/12", "G1/G2/G3 12/12")
    assert zero["evidence"] == "campaigns/tiny/evidence.json"
    suite = strict().start.suite
    assert zero["workload"] == (
        f"strict 12-prompt six-class suite {suite.id} (sha256 {suite.sha256[:12]}) over the completions API, 512-token "
        "cap, cache zero, class-balanced median tok/s over tokens 1-100 after TTFT, two fresh servers, repeat canary "
        "alone"
    )
    assert [cell["label"] for cell in cells(made).values()] == [f"D{base.center:.2f}", f"D{fast.center:.2f}"]
    view = document(made)["views"][0]
    assert view["series"][0]["measurement_ids"] == [zero["id"], three["id"]]
    packet = document(made)["packets"][0]
    assert packet["coverage"] == ["decode", "TTFT", "TP1", "MTP0/3", "cache-zero strict suite"]
    assert packet["grades"]["evidence"]["grade"] == "B"
    assert document(made)["updated_at"] == (strict().ended_at or "")[:10]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_number_that_is_edited_by_hand_is_found_and_named(made: Promotion, data: st.DataObject) -> None:
    value = document(made)
    numbers = [(path, old) for path, old in leaves(value) if isinstance(old, int | float) and not isinstance(old, bool)]
    assert len(numbers) > 20
    path, old = data.draw(st.sampled_from(numbers))
    kind = st.integers(0, 10**6) if isinstance(old, int) else st.floats(0.001, 1e6).map(lambda x: round(x, 4))
    new = data.draw(kind.filter(lambda x: x != old))
    put(value, path, new)
    _found_and_named(value, path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_digit_of_a_derived_text_too(made: Promotion, data: st.DataObject) -> None:
    value = document(made)
    texts = [
        (path, text)
        for path, text in leaves(value)
        if isinstance(text, str)
        and any(char.isdigit() for char in text)
        and DERIVED_TEXT.search(name := Draft(value).name(path))
        and not PROSE.search(name)
    ]
    assert len(texts) > 10
    path, text = data.draw(st.sampled_from(texts))
    at = data.draw(st.sampled_from([at for at, char in enumerate(text) if char.isdigit()]))
    digit = data.draw(st.sampled_from([char for char in "0123456789" if char != text[at]]))
    put(value, path, text[:at] + digit + text[at + 1 :])
    _found_and_named(value, path)


def _found_and_named(value: Any, path: tuple[str | int, ...]) -> None:
    found = again(value)
    name = Draft(value).name(path)
    assert found.changes, name
    if not CHOSEN.match(name):
        assert any(name.startswith(change.field) for change in found.changes), (name, found.changes)
        if not name.endswith(".id"):
            assert promote(found.data, "f.json", [recorded("tiny")]).changes == []


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_broken_file_ends_in_one_sentence_and_a_strange_one_comes_to_rest(
    made: Promotion, data: st.DataObject
) -> None:
    value = document(made)
    branches = [path for path, _ in leaves(value)]
    path = data.draw(st.sampled_from(branches))
    path = path[: data.draw(st.integers(1, len(path)))]
    junk = (
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5) | st.just([]) | st.just({}) | st.just([{}])
    )
    put(value, path, data.draw(junk))
    try:
        found = again(value)
    except BenchError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return
    assert promote(found.data, "f.json", [recorded("tiny")]).changes == []


def test_prose_keeps_its_bytes_and_is_listed(made: Promotion) -> None:
    odd = made.data.decode().replace('"summary": ""', '"summary":   "a \\u00b7 b \\/ c"')
    odd = odd.replace('"publisher": ""', '"publisher" : "É"').replace(
        '"model_signals": {}', '"model_signals": { "n":1.50 }'
    )
    rates = entries(made)[0]["metrics"]["decode_tok_s"]
    edited = odd.replace(f"     {rates[0]},\n", "     1.5,\n", 1)
    assert len({made.data.decode(), odd, edited}) == 3
    found = promote(edited.encode(), "f.json", [recorded("tiny")])
    assert found.data.decode() == odd
    assert [change.field.rpartition(".")[2] for change in found.changes] == ["decode_tok_s[0]"]
    assert {"summary", "publisher", "transfer_scope", "model_signals"} <= set(found.kept)
    assert not [name for name in found.kept if "metrics" in name and name.startswith("run_measurements")]


def test_updated_at_follows_only_a_change(made: Promotion) -> None:
    value = document(made)
    value["updated_at"] = "2026-01-01"
    assert again(value).changes == []
    value["run_measurements"][0]["quality_scope"] = "G1 11/12"
    assert [change.field.rpartition(".")[2] for change in again(value).changes] == ["updated_at", "quality_scope"]
    value["updated_at"] = "2999-01-01"
    assert [change.field.rpartition(".")[2] for change in again(value).changes] == ["quality_scope"]


def test_a_day_that_nothing_shows_is_kept_and_named(made: Promotion) -> None:
    value = document(made)
    value["updated_at"] = "2999-01-01"
    found = again(value)
    newest = (strict().ended_at or "")[:10]
    assert found.changes == [] and "updated_at" not in found.kept
    assert ("updated_at", f"the newest evidence that was given is of {newest}") in found.no_evidence
    assert "updated_at" not in [name for name, _ in again(document(made)).no_evidence]


def test_all_campaigns_of_a_configuration_are_shown(made: Promotion) -> None:
    later = variant("later", at_rates(strict(), "2027-01-02", 2.0))
    between = variant("between", at_rates(strict(), "2027-01-01", 1.5))
    found = promote(made.data, "f.json", [later, recorded("tiny"), between])
    base = strict().pairs[0]
    zero = entries(found)[0]
    factors = (1, 1, 1.5, 1.5, 2, 2)
    pair = [base.a or 0, base.b or 0] * 3
    assert zero["metrics"]["decode_tok_s"] == [round(rate * f, 3) for rate, f in zip(pair, factors, strict=True)]
    assert zero["center"]["decode_tok_s"] == [round((base.center or 0) * factor, 3) for factor in (1, 1.5, 2)]
    assert zero["evidence"] == [f"campaigns/{name}/evidence.json" for name in ("tiny", "between", "later")]
    assert "six fresh servers" in zero["workload"] and zero["quality_scope"] == "G1 12/12"
    assert next(iter(cells(found).values()))["label"] == f"D{(base.center or 0) * 1.5:.2f} (mean of 3 centers)"
    assert document(found)["updated_at"] == "2027-01-02"
    assert promote(found.data, "f.json", [later, recorded("tiny"), between]).changes == []


def test_unlike_campaigns_are_not_put_into_one_entry(made: Promotion) -> None:
    env = {**strict().start.plan.servers[0].env, "VLLM_CPU_KVCACHE_SPACE": "2"}
    other = variant("other", at_rates(planned(strict(), env=env), "2027-01-01", 1))
    with pytest.raises(EvidenceError, match="VLLM_CPU_KVCACHE_SPACE is 1 in one and 2 in the other"):
        promote(made.data, "f.json", [recorded("tiny"), other])
    with pytest.raises(UsageError, match="tiny is given twice"):
        promote(made.data, "f.json", [recorded("tiny"), recorded("tiny")])


def test_two_hosts_are_said_aloud(made: Promotion) -> None:
    there = strict().start.host.facts
    facts = {**there, "hostname": there["hostname"].model_copy(update={"value": "another"})}
    host = strict().start.host.model_copy(update={"facts": facts})
    start = strict().start.model_copy(update={"host": host})
    other = variant("other", at_rates(strict().model_copy(update={"start": start}), "2027-01-01", 1))
    found = promote(made.data, "f.json", [recorded("tiny"), other])
    assert ", four fresh servers on two hosts, " in entries(found)[0]["workload"]
    assert any("ran on 2 hosts" in note for note in found.notes)


def test_another_suite_is_another_entry(made: Promotion) -> None:
    suite = strict().start.suite.model_copy(update={"id": "mine", "sha256": "ab" * 32})
    start = strict().start.model_copy(update={"suite": suite})
    other = variant("other", at_rates(strict().model_copy(update={"start": start}), "2027-01-01", 3))
    found = promote(made.data, "f.json", [recorded("tiny"), other])
    assert [("suite mine (sha256 abababababab)" in entry["workload"]) for entry in entries(found)] == [0, 0, 1, 1]
    assert any("fit it too" in note for note in found.notes)
    assert any("stands in no view" in note for note in found.notes)


@pytest.mark.parametrize("name", ["ties", "ladder3ties"])
def test_a_failed_gate_is_refused_and_named(made: Promotion, name: str) -> None:
    with pytest.raises(EvidenceError, match=f"{name}: a gate failed: .*--rejected"):
        promote(made.data, "f.json", [recorded("tiny"), recorded(name)])


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"simulated": True}, "it is simulated"),
        ({"status": Status.INTERRUPTED}, "it has not ended"),
        ({"status": Status.INVALID}, "it has no verdict"),
    ],
)
def test_no_measurement_is_refused(made: Promotion, update: dict[str, Any], said: str) -> None:
    with pytest.raises(EvidenceError, match=said):
        promote(made.data, "f.json", [variant("odd", strict().model_copy(update=update))])


def test_another_model_is_refused(made: Promotion) -> None:
    value = document(made)
    value["weight_revisions"][0]["model_sha256"] = "00" * 32
    with pytest.raises(UsageError, match="none of the family's weight_revisions"):
        again(value)


def test_a_rejected_base_shows_its_counts_and_what_was_not_run() -> None:
    pairs = [("a", 11), ("b", 9), ("c", 11)]
    fallen = [
        variant(name, at_rates(unequal(strict(), "G1", exact), f"2027-01-0{day}", 1))
        for day, (name, exact) in enumerate(pairs, 1)
    ]
    found = first("f.json", [], list(reversed(fallen)))
    assert entries(found) == []
    value = document(found)
    (row,) = value["coverage_views"][0]["rows"]
    value["coverage_views"][0]["columns"] = [0, 3]
    found = promote(dumped(value), "f.json", [], fallen)
    assert cells(found) == {
        f"{row}:0": {
            "state": "missing",
            "label": "rejected: not repeat-exact (11/12, 9/12, 11/12)",
            "evidence": [f"campaigns/{name}/evidence.json" for name in "abc"],
        },
        f"{row}:3": {"state": "missing", "label": "not run: base gate failed"},
    }


def test_a_passing_campaign_beside_a_failing_one_is_no_number(made: Promotion) -> None:
    fell = variant("fell", at_rates(unequal(strict(), "G1", 11), "2027-01-01", 1))
    with pytest.raises(EvidenceError, match="tiny passed and fell failed G1 on one configuration"):
        promote(made.data, "f.json", [recorded("tiny")], [fell])
    found = promote(made.data, "f.json", [], [recorded("tiny"), fell])
    labels = [cell["label"] for cell in cells(found).values()]
    assert labels == ["rejected: not repeat-exact (12/12, 11/12)", "not run: base gate failed"]
    zero, three = entries(found)
    assert (zero["state"], three["state"]) == ("rejected", "rejected")
    assert zero["quality_scope"] == "G1 12/12, 11/12"
    assert (zero["promotion_status"], three["promotion_status"]) == ("rejected", "rejected")
    assert document(found)["views"][0]["series"][0]["measurement_ids"] == [], "a rejected speed is not plotted"
    assert promote(found.data, "f.json", [], [recorded("tiny"), fell]).changes == []
    back = entries(promote(found.data, "f.json", [recorded("tiny")]))
    assert [entry["promotion_status"] for entry in back] == ["measured, MTP0 oracle", "measured"]
    assert zero["metrics"] == entries(made)[0]["metrics"], "a failed gate never deletes a speed"
    assert document(found)["packets"][0]["grades"]["evidence"]["grade"] == "D"
    with pytest.raises(UsageError, match="tiny passed its gates"):
        promote(made.data, "f.json", [], [recorded("tiny")])


def test_a_withheld_depth_shows_its_own_counts() -> None:
    found = first("f.json", [recorded("tiny")], [recorded("ties")])
    view = document(found)["coverage_views"][0]
    tiny, ties = view["rows"]
    assert {name: cell["label"][:9] for name, cell in view["cells"].items()} == {
        f"{tiny}:0": view["cells"][f"{tiny}:0"]["label"][:9],
        f"{tiny}:3": view["cells"][f"{tiny}:3"]["label"][:9],
        f"{ties}:0": "withheld:",
        f"{ties}:3": "rejected:",
    }
    exact = next(gate for gate in strict("ties").gates if gate.name == "G3")
    assert view["cells"][f"{ties}:3"]["label"] == (
        f"rejected: not equal to the MTP0 oracle (G3 {exact.exact}/{exact.total})"
    )
    assert promote(found.data, "f.json", [recorded("tiny")], [recorded("ties")]).changes == []


def test_what_says_nothing_of_exactness_rejects_nothing(made: Promotion) -> None:
    broken = strict("ties").model_copy(update={"status": Status.INVALID})
    with pytest.raises(EvidenceError, match="it is invalid, which is no verdict"):
        promote(made.data, "f.json", [], [variant("odd", broken)])
    with pytest.raises(UsageError, match="is no strict campaign"):
        promote(made.data, "f.json", [], [recorded("ladder3ties")])


def test_a_ladder_supports_a_packet_and_makes_no_entry(made: Promotion) -> None:
    found = promote(made.data, "f.json", [recorded("tiny"), recorded("ladder0")])
    assert [change.field for change in found.changes] == ["packets[tiny-cpu].grades.evidence.evidence"]
    assert opened("ladder0").evidence.kind == "ladder" and len(entries(found)) == 2


def test_a_certified_ladder_and_a_classpad_one_give_their_words(made: Promotion) -> None:
    ladder = opened("ladder0").evidence
    assert isinstance(ladder, LadderEvidence) and ladder.start.plan.ladder is not None
    staggered = ladder.start.plan.ladder.model_copy(update={"stagger_ms": 5.0})
    servers = [plan.model_copy(update={"classpad": True}) for plan in ladder.start.plan.servers]
    plan = ladder.start.plan.model_copy(update={"ladder": staggered, "servers": servers})
    start = ladder.start.model_copy(update={"plan": plan, "campaign_id": "users"})
    update = {"start": start, "campaign_id": "users", "classification": "harness-certified"}
    users = Given(Campaign(Path("users"), ladder.model_copy(update=update)), "campaigns/users")
    words = document(promote(made.data, "f.json", [recorded("tiny"), users]))["packets"][0]["coverage"]
    assert words[-3:] == ["cache-zero strict suite", "stagger-exact concurrency", "CLASSPAD many-user mode"]
    value = document(made)
    value["packets"][0]["coverage"] = ["TTFT", "a person's word", "MTP0/1/2"]
    found = again(value)
    assert document(found)["packets"][0]["coverage"] == [
        *("decode", "TTFT", "TP1", "a person's word", "MTP0/3", "cache-zero strict suite")
    ]
    assert ("packets[tiny-cpu].coverage[3]", 'nothing given shows "a person\'s word"') in found.no_evidence


def test_a_cell_without_an_entry_is_missing(made: Promotion) -> None:
    value = document(made)
    gone = value["run_measurements"].pop()
    value["views"][0]["series"][0]["measurement_ids"].remove(gone["id"])
    found = promote(dumped(value), "f.json", [recorded("ladder0")])
    assert list(cells(found).values())[1] == {"state": "missing", "label": "not measured"}
    back = again(copy.deepcopy(value))
    assert [entry["id"] for entry in entries(back)][1] == gone["id"], "the id of a configuration is the same every time"


def test_a_grade_above_the_evidence_is_taken_back(made: Promotion) -> None:
    value = document(made)
    grade = value["packets"][0]["grades"]["evidence"]
    grade |= {"grade": "A", "basis": "A person's sentence."}
    found = again(value)
    fields = {change.field.rpartition(".")[2]: change.evidence for change in found.changes}
    assert fields["grade"] == "B" and fields["basis"].startswith("By rule B")
    grade["grade"] = "B"
    kept = again(value)
    assert kept.changes == [] and "packets[tiny-cpu].grades.evidence.basis" in kept.kept


def test_a_person_s_word_of_a_rejected_entry_is_named_and_other_speeds_stay_plotted(made: Promotion) -> None:
    value = document(made)
    zero, three = value["run_measurements"]
    zero["promotion_status"] = "promoted headline"
    series = value["views"][0]["series"][0]
    series["x_from"] = "config.none"
    value["run_measurements"].append({**three, "id": "other", "runtime": "another"})
    series["measurement_ids"].append("other")
    fell = variant("fell", at_rates(unequal(strict(), "G1", 11), "2027-01-01", 1))
    found = promote(dumped(value), "f.json", [], [fell])
    assert document(found)["views"][0]["series"][0]["measurement_ids"] == ["other"]
    assert entries(found)[0]["promotion_status"] == "promoted headline"
    named = [name for name, _ in found.no_evidence]
    assert f"run_measurements[{zero['id']}].promotion_status" in named
