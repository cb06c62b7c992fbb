"""Ladders against the real simulated server: ties at a barrier, none with a stagger, oracles, faults, shapes."""

import json
import shutil
from pathlib import Path

import pytest

from harness.evidence.verify import verify
from harness.suites import load_suite
from tests.bench import (
    Done,
    bench,
    campaign_of,
    evidence_of,
)
from tests.ladders import PATIENT_US, ladder, launcher, options, rungs_of, without_client

# ties


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """All requests at a barrier on a server whose crowded answers always leave their oracle."""
    home = tmp_path_factory.mktemp("tied")
    done, _ = ladder(home, launcher(home, "--tie-rate", "1"))
    return done, campaign_of(home)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same server with a stagger."""
    for step_us in PATIENT_US:
        home = tmp_path_factory.mktemp("certified")
        path = launcher(home, "--tie-rate", "1", step_us=step_us)
        done, evidence = ladder(home, path, "--stagger-ms", "5", rungs="1,4")
        if done.code == 0:
            return campaign_of(home)
        assert without_client(evidence["reasons"]) == [], done.out
    pytest.skip("this machine is too busy for a client gate to pass")


def test_barrier_diverges_and_its_rungs_are_withheld_with_counts_and_sites(tied: tuple[Done, Path]) -> None:
    done, campaign = tied
    evidence = evidence_of(campaign)
    assert (done.code, evidence["status"], evidence["classification"]) == (1, "withheld", None)
    rungs = rungs_of(evidence)
    assert (rungs[1]["exact"], rungs[1]["total"]) == (2, 2), "one request at a time never diverges"
    for users in (2, 4):
        rung = rungs[users]
        assert rung["withheld"] and rung["exact"] < rung["total"] == 2 * users
        assert rung["tok_s"] > 0, "a failed gate never deletes a speed"
        assert f"c{users}: {rung['exact']}/{rung['total']} answers equal their oracle" in rung["why"]
        assert f"c{users} {rung['tok_s']:.1f} ({rung['exact']}/{rung['total']})" in evidence["scope"]
        assert sum(site["times"] for site in rung["sites"]) == rung["total"] - rung["exact"]
        assert all(site["oracle_id"] != site["other_id"] for site in rung["sites"])
        assert 1 >= rung["divergence_bound"] >= 1 - rung["exact"] / rung["total"]
        assert sum(rung["exact_per_pass"]) == rung["exact"] and len(rung["tok_s_per_pass"]) == 2
    site = rungs[4]["sites"][0]
    assert (
        f"{site['slot']} at token {site['index']}: {site['oracle_id']} in the oracle, {site['other_id']} her"
        in done.out
    )
    assert "Measured but withheld: " in done.out and "SIMULATED" in done.out


def test_prompts_that_diverged_become_a_suite_that_loads(tied: tuple[Done, Path], tmp_path: Path) -> None:
    _, campaign = tied
    evidence = evidence_of(campaign)
    missed = {site["slot"] for rung in evidence["rungs"] for site in rung["sites"]}
    done = bench("ties", campaign, "-o", "ties.json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"ties.json: {len(missed)} prompts that left their oracle in {campaign.name}\n"
    raw = json.loads((tmp_path / "ties.json").read_text())
    assert set(raw) == {"suite_id", "version", "description", "metric", "source", "prompts"}
    assert raw["source"]["campaign_id"] == campaign.name
    assert set(raw["source"]["rates"]) == set(raw["source"]["sites"]) == missed
    rates = list(raw["source"]["rates"].values())
    assert rates == sorted(rates, reverse=True) and all(0 < rate <= 1 for rate in rates)
    suite = load_suite(str(tmp_path / "ties.json"), need_classes=False)
    assert {prompt.id for prompt in suite.prompts} == missed
    assert all(f"(case {prompt.id[-3:]})" in prompt.text for prompt in suite.prompts), "the text that was sent"
    again = bench("ties", campaign, "-o", "ties.json", cwd=tmp_path)
    assert (again.code, again.sentence) == (64, "ties.json exists already; choose another --out, or remove it first")

    path = launcher(tmp_path, "--tie-rate", "1")
    count = len(missed)
    _, evidence = ladder(tmp_path, path, "--suite", "ties.json", "--verbatim", rungs=f"1,{2 * count}", passes=1)
    assert f"suite {raw['suite_id']} verbatim" in evidence["scope"]
    rung = rungs_of(evidence)[2 * count]
    assert rung["copy_groups"] == count and rung["exact"] < rung["total"]
    # A verbatim ladder's ties are its prompts again, not one for each of their slots.
    done = bench("ties", campaign_of(tmp_path), "-o", "again.json", cwd=tmp_path)
    second = json.loads((tmp_path / "again.json").read_text())
    assert {entry["id"] for entry in second["prompts"]} <= missed


def test_stagger_is_certified_on_the_server_that_diverges_at_a_barrier(certified: Path) -> None:
    evidence = evidence_of(certified)
    assert (evidence["status"], evidence["classification"]) == ("passed", "harness-certified")
    assert [(rung["exact"], rung["total"], rung["withheld"]) for rung in evidence["rungs"]] == [
        (2, 2, False),
        (8, 8, False),
    ]
    assert "5 ms stagger" in evidence["scope"] and evidence["scope"].endswith("Exact in every pass: c1, c4.")
    (attempt,) = evidence["attempts"]
    assert attempt["sequential"] == {"slots": 4, "answered": 4, "problems": [], "warnings": []}
    assert attempt["pulses"] == 4 and [batch["number"] for batch in attempt["batches"]] == [1, 1, 2, 2]
    for batch in attempt["batches"]:
        for position, request in enumerate(batch["requests"]):
            assert request["asked_release_ms"] == 5 * position <= request["released_ms"]
            assert request["ttft_ms"] < request["first_id_ms"] <= request["last_byte_ms"]
    assert all(gate["passed"] for gate in attempt["gates"])
    result = evidence["start"]["self_test"]
    assert [(point["users"], point["lost"]) for point in result["points"]] == [(1, 0), (4, 0)]
    assert result["proxy"] is None and "no container" in result["proxy_note"]


def test_ladder_without_a_tie_has_no_tie_suite(certified: Path, passed: Path, tmp_path: Path) -> None:
    done = bench("ties", certified, "-o", "t.json", cwd=tmp_path)
    assert done.code == 64 and "left its oracle, so there is no tie site to write" in done.sentence
    done = bench("ties", passed, "-o", "t.json", cwd=tmp_path)
    assert done.code == 64 and "is no ladder, so it has no tie sites" in done.sentence
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    "name", ["capture", "evidence.json", "suite.json", "journal.jsonl", "manifest.json", "server.log"]
)
def test_one_flipped_byte_fails_verify(certified: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(certified, tmp_path / certified.name))
    (path,) = (item for item in copy.rglob("*") if item.is_file() and item.name.startswith(name))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert verify(copy).problems != []
    assert verify(certified).problems == []


# the oracle


def test_depth_3_starts_its_mtp0_oracle_first(tmp_path: Path) -> None:
    _, evidence = ladder(tmp_path, launcher(tmp_path), depth=3, rungs="1,3", passes=1)
    assert [attempt["label"] for attempt in evidence["attempts"]] == ["mtp0-oracle", "mtp3"]
    assert [(g["name"], g["subject"], g["exact"], g["total"], g["passed"]) for g in evidence["gates"]] == [
        ("oracle", "mtp3 vs mtp0-oracle, sequential", 3, 3, True)
    ]
    assert evidence["oracle"] == {"source": "server", "campaign_id": None, "exact": 3, "total": 3}
    oracle, arm = evidence["attempts"]
    assert oracle["batches"] == [] and oracle["acceptance"] is None and arm["acceptance"]["rate"] > 0.5
    assert without_client(evidence["reasons"]) == []
    assert all(rung["exact_mtp0"] == rung["exact_own"] == rung["total"] for rung in evidence["rungs"])
    servers = [attempt["server"]["applied"]["server_id"] for attempt in evidence["attempts"]]
    assert len(set(servers)) == 2


def test_depth_3_that_differs_from_mtp0_is_withheld_although_it_agrees_with_itself(tmp_path: Path) -> None:
    done, evidence = ladder(tmp_path, launcher(tmp_path), "--fault", "tie:3", depth=3, rungs="1,4")
    assert (done.code, evidence["status"]) == (1, "withheld")
    (gate,) = evidence["gates"]
    assert (gate["exact"], gate["total"], gate["passed"]) == (1, 4, False)
    assert [at["first_divergence_token_zero_based"] for at in gate["divergences"]] == [57, 57, 57]
    rungs = rungs_of(evidence)
    assert [(r["exact_own"], r["exact_mtp0"], r["total"]) for r in rungs.values()] == [(2, 0, 2), (8, 2, 8)]
    assert all(rung["withheld"] and rung["sites"][0]["index"] == 57 for rung in rungs.values())
    assert "oracle 1/4 (mtp3 vs mtp0-oracle, sequential)" in done.out


def test_oracle_of_an_earlier_ladder_is_taken_and_checked(certified: Path, tmp_path: Path) -> None:
    path = certified.parents[1] / "fast.toml"
    done, evidence = ladder(tmp_path, path, "--stagger-ms", "5", "--oracle", certified, depth=1, rungs="1,4", passes=1)
    assert [attempt["label"] for attempt in evidence["attempts"]] == ["mtp1"]
    assert (evidence["oracle"]["source"], evidence["oracle"]["exact"], evidence["oracle"]["total"]) == (
        "evidence",
        4,
        4,
    )
    assert without_client(evidence["reasons"]) == [] and "oracle 4/4 (mtp1 vs MTP0, sequential)" in done.out
    campaign = campaign_of(tmp_path)
    assert str(certified.parent) not in (campaign / "evidence.json").read_text()
    lent = campaign / "oracle.json"
    lent.write_bytes(lent.read_bytes().replace(b"[", b"[9,", 1))
    assert any("oracle.json" in problem for problem in verify(campaign).problems)


def refused(cwd: Path, path: Path, oracle: Path, *words: str, rungs: str = "1,4", depth: int = 1) -> str:
    done = bench(*options(path, depth, rungs, 1), "--oracle", oracle, *words, cwd=cwd)
    assert done.code == 64, (done.out, done.err)
    assert not (cwd / "experiments").exists(), "nothing was started"
    return done.sentence


def test_oracle_that_does_not_fit_is_refused_before_anything_starts(
    certified: Path, tied: tuple[Done, Path], passed: Path, tmp_path: Path
) -> None:
    path, name = certified.parents[1] / "fast.toml", certified.name
    suite = json.loads((certified / "suite.json").read_text())
    suite["prompts"].reverse()
    (tmp_path / "other.json").write_text(json.dumps(suite))
    assert refused(tmp_path, path, certified, "--suite", "other.json").startswith(
        f"--oracle {name} asked other prompts"
    )
    assert refused(tmp_path, path, certified, "--verbatim").startswith(f"--oracle {name} asked other prompts")
    assert refused(tmp_path, path, certified, rungs="1,65").startswith(f"--oracle {name} has another shape (")
    assert refused(tmp_path, path, certified, "--tp", "2").startswith(f"--oracle {name} has another tensor parallel (1")
    assert refused(tmp_path, path, certified, rungs="1,8").startswith(f"--oracle {name} has no answer of ")
    said = refused(tmp_path, launcher(tmp_path / "elsewhere", "--seed-text", "other", step_us=2000), certified)
    assert said.startswith(f"--oracle {name} has another set of arguments (") and "'--seed-text', 'other'" in said
    assert "is no ladder" in refused(tmp_path, path, passed)
    assert "has no journal.jsonl" in refused(tmp_path, path, tmp_path)
    journal = certified / "journal.jsonl"
    cut = tmp_path / "cut" / name
    shutil.copytree(certified, cut)
    (cut / "journal.jsonl").write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    assert refused(tmp_path, path, cut) == f"--oracle {name} is no finished MTP0 ladder (interrupted); give one that is"


# faults


@pytest.mark.parametrize(
    ("fault", "why", "sequential"),
    [
        ("short", "c2: 2 requests are incomplete, the first ignore-eos-not-honoured", "60 of 128 ids came"),
        ("cached-tokens", "c2: 2 requests have no cached_tokens of 0", "16 prompt tokens came from a cache"),
        ("cached-missing", "c2: 2 requests have no cached_tokens of 0", "no cached_tokens was reported"),
        ("error-event", "c2: 2 requests are incomplete, the first error-event", "error-event: "),
    ],
)
def test_broken_answers_withhold_every_rung(tmp_path: Path, fault: str, why: str, sequential: str) -> None:
    done, evidence = ladder(tmp_path, launcher(tmp_path), "--fault", fault, rungs="2", passes=1)
    assert (done.code, evidence["status"], evidence["classification"]) == (1, "withheld", None)
    assert why in rungs_of(evidence)[2]["why"]
    (attempt,) = evidence["attempts"]
    assert len(attempt["sequential"]["problems"]) == 2 and sequential in attempt["sequential"]["problems"][0]
    gate = next(gate for gate in attempt["gates"] if gate["name"] == "sequential")
    assert not gate["passed"]
    if not fault.startswith("cached"):
        assert rungs_of(evidence)[2]["tok_s"] is None and attempt["batches"][0]["aggregate_tok_s_wall"] is None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("garbage", "mtp0: queue-c000: a degenerate answer; the server is poisoned"),
        ("engine-dies", "error-event: the server sent the error: EngineCore encountered an issue"),
        ("engine-vanishes", "backup-c002: connection-reset"),
        ("bad-canary", "the server is poisoned and isn't asked again"),
        ("dies-at-start", "mtp0: the server has ended with exit code 1"),
    ],
)
def test_server_that_is_poisoned_or_dead_ends_the_run(tmp_path: Path, fault: str, words: str) -> None:
    done, evidence = ladder(tmp_path, launcher(tmp_path), "--fault", fault, rungs="1,3")
    assert (done.code, evidence["status"], evidence["passes_done"]) == (2, "invalid", 0)
    (attempt,) = evidence["attempts"]
    assert attempt["status"] == "invalid" and words in attempt["error"], attempt["error"]
    assert len(attempt["batches"]) <= 1, "it isn't asked again"
    assert done.out.splitlines()[-1].startswith("next: bench ladder --mtp 0 ")
    assert " --resume experiments/" in done.out.splitlines()[-1]


# shapes


def test_rungs_above_64_choose_the_high_shape_and_say_so(tmp_path: Path) -> None:
    done, evidence = ladder(tmp_path, launcher(tmp_path), "--fault", "dies-at-start", rungs="2,65")
    assert "c65 is above 64 users, so all rungs run on the shape ladder-high" in done.out
    assert evidence["start"]["plan"]["ladder"]["shape"] == "ladder-high" and "shape ladder-high" in evidence["scope"]
    words = evidence["start"]["plan"]["servers"][0]["arguments"]
    assert words[words.index("--max-num-seqs") + 1] == "128"
    low = bench(*options(tmp_path / "fast.toml", 0, "1,64", 1), "--dry-run", cwd=tmp_path)
    assert "ladder-high" not in low.out and "--max-num-seqs 64" in low.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rungs", "129"], "a rung of 129 users has no shape; the highest is 128"),
        (["--rungs", "4,2"], "--rungs 4,2 must ascend from 1 on, each once; sort the list"),
        (["--suite", "nothing"], "no suite named 'nothing'"),
    ],
)
def test_wrong_options_start_nothing(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = bench("ladder", "--launcher", launcher(tmp_path), *words, cwd=tmp_path)
    assert done.code == 64 and done.sentence.startswith(sentence)
    assert not (tmp_path / "experiments").exists()
