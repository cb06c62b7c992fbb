"""``bench explain`` on campaigns recorded on real vLLM servers: every divergence, its texts, nothing asked."""

import json
from typing import Any

import pytest

from tests.bench import bench, evidence_of
from tests.recorded import campaign


def explained(name: str, tmp_path: Any) -> Any:
    done = bench("explain", campaign(name), "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_every_divergence_of_the_strict_campaign_is_one_site(tmp_path: Any) -> None:
    told, evidence = explained("ties", tmp_path), evidence_of(campaign("ties"))
    gates = [gate for gate in evidence["gates"] if gate["divergences"]]
    assert {gate["name"] for gate in gates} == {"G3"} and told["compared"] == 4 * 12
    wanted = {
        (item["prompt_id"], item["first_divergence_token_zero_based"], item["right_id"], item["left_id"])
        for gate in gates
        for item in gate["divergences"]
    }
    assert {(s["prompt"], s["index"], s["oracle_id"], s["other_id"]) for s in told["sites"]} == wanted
    assert len(wanted) == 10
    oracle, arm = ({row["prompt_id"]: row for row in evidence["attempts"][place]["rows"]} for place in (0, 2))
    for site in told["sites"]:
        ours, theirs = oracle[site["prompt"]], arm[site["prompt"]]
        assert site["sentence"].startswith("always ") and site["sentence"].endswith("in 2 of 2 comparisons of G3")
        assert (site["against"], site["before_ids"], site["margin"]) == (["mtp0-a"], site["index"], None)
        # The speculating server's chunks hold several ids; its text after the site is whole all the same.
        assert site["before"] + site["oracle_after"] == ours["text"]
        assert site["before"] + site["other_after"] == theirs["text"]
        assert site["oracle_after"].startswith(site["oracle_text"])
        assert site["other_after"].startswith(site["other_text"])
        assert site["oracle_text"] != site["other_text"]


def test_the_sites_of_the_ladder_are_those_of_its_rungs_and_of_its_sequential_answers(tmp_path: Any) -> None:
    told, evidence = explained("ladder3ties", tmp_path), evidence_of(campaign("ladder3ties"))
    times: dict[tuple[Any, ...], int] = {}
    for rung in evidence["rungs"]:
        for item in rung["sites"]:
            key = item["slot"], item["index"], item["oracle_id"], item["other_id"]
            times[key] = times.get(key, 0) + item["times"]
    batches = {
        (s["prompt"], s["index"], s["oracle_id"], s["other_id"]): seen["times"]
        for s in told["sites"]
        for seen in s["seen"]
        if seen["group"] == "batch"
    }
    assert batches == times != {}
    sequential = {s["prompt"] for s in told["sites"] if any(seen["group"] == "sequential" for seen in s["seen"])}
    (gate,) = [gate for gate in evidence["gates"] if gate["name"] == "oracle"]
    assert sequential == {item["prompt_id"] for item in gate["divergences"]}
    for site in told["sites"]:
        assert site["passes"] == site["passes_asked"] == [1, 2, 3] and site["places"] == [site["index"]]
        assert site["against"] == ["MTP0 oracle"] and set(site["rungs"]) <= set(site["rungs_asked"])


@pytest.mark.parametrize(("name", "compared"), [("tiny", 4 * 12), ("ladder0", (1 + 2 + 4 + 8) * 3)])
def test_a_campaign_without_divergence_says_so(name: str, compared: int, tmp_path: Any) -> None:
    told = explained(name, tmp_path)
    assert (told["sites"], told["compared"], told["problems"]) == ([], compared, [])


def test_a_person_reads_which_ids_stand_against_each_other(tmp_path: Any) -> None:
    done = bench("explain", campaign("ties"), cwd=tmp_path)
    assert done.code == 0
    assert "the ids 349 and 468 stand against each other at 9 of the 10 sites\n" in done.out
    assert all(len(line) <= 200 and line.isprintable() for line in done.out.splitlines())
