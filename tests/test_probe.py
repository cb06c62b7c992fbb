"""Boundary probes against the real simulated server: both known faults found, in ``strict`` too."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.verify import verify
from harness.wire.capture import load_capture
from harness.workloads.context import PROBE_TOKENS
from tests.bench import (
    bench,
    campaign_of,
    evidence_of,
    running,
    servers_left,
    strict,
    until,
    wait_for_line,
    write_launcher,
)
from tests.contexts import NAMES, failed, launcher, options, run, texts
from tests.recorded import campaign


def probes(evidence: Any, label: str) -> dict[str, Any]:
    return {probe["prompt_id"]: probe for probe in evidence["probes"] if probe["label"] == label}


def test_every_boundary_equals_mtp0(tmp_path: Path) -> None:
    done, evidence = run("probe", tmp_path, launcher(tmp_path))
    assert (done.code, evidence["status"], evidence["kind"]) == (0, "passed", "probe")
    found = probes(evidence, "mtp3")
    assert [(probe["tokens"], probe["what"]) for probe in found.values()] == [
        *((tokens, what) for tokens, what in enumerate(("1", "2", "K", "1+K", "2+K"), 1) for _ in NAMES),
        *((1024 - PROBE_TOKENS - more, "full") for more in range(4)),
    ]
    assert all(probe["exact"] is True and probe["problems"] == [] for probe in found.values())
    assert all(probe["exact"] is None for probe in probes(evidence, "mtp0").values())
    (gate,) = evidence["gates"]
    assert (gate["name"], gate["subject"], gate["exact"], gate["total"]) == ("probes", "mtp3 vs mtp0", 19, 19)
    full = [row for row in evidence["attempts"][1]["rows"] if row["prompt_id"].startswith("probe-full")]
    assert [row["prompt_tokens"] + len(row["token_ids"]) for row in full] == [1024] * 4
    assert all(row["tok_s_1_100"] is None for attempt in evidence["attempts"] for row in attempt["rows"])
    assert "probes 19/19" in done.out


@pytest.mark.parametrize(
    ("fault", "sites"),
    [
        ("boundary", {f"probe-4-{name}": 0 for name in NAMES}),
        ("last-position", {f"probe-full-{more}": PROBE_TOKENS - 1 + more for more in range(4)}),
    ],
)
def test_the_known_faults_are_found_at_their_place_and_nowhere_else(
    tmp_path: Path, fault: str, sites: dict[str, int]
) -> None:
    done, evidence = run("probe", tmp_path, launcher(tmp_path, fault))
    assert (done.code, evidence["status"], failed(evidence)) == (1, "withheld", {"probes"})
    found = {name: probe for name, probe in probes(evidence, "mtp3").items() if not probe["exact"]}
    assert {name: probe["divergence"]["first_divergence_token_zero_based"] for name, probe in found.items()} == sites
    assert all((probe["degenerate"] is not None) == (fault == "boundary") for probe in found.values())
    which, token = next(iter(sites.items()))
    assert re.search(rf"differs at token {token}: \d+ against \d+", done.out)
    assert f"probes mtp3 vs mtp0: {which} differs at token {token}: " in evidence["conclusion"]


def test_the_boundary_moves_with_the_depth_and_equal_lengths_are_asked_once(tmp_path: Path) -> None:
    done, evidence = run("probe", tmp_path, launcher(tmp_path, "boundary"), depth=1)
    found = probes(evidence, "mtp1")
    assert [(probe["tokens"], probe["what"]) for probe in found.values()][:9:3] == [
        (1, "1 = K"),
        (2, "2 = 1+K"),
        (3, "2+K"),
    ]
    assert done.code == 1
    assert [name for name, probe in found.items() if not probe["exact"]] == [f"probe-2-{name}" for name in NAMES]


def test_a_depth_profile_is_blind_to_both(tmp_path: Path) -> None:
    """Why there are probes at all."""
    path = launcher(tmp_path, "boundary", "last-position")
    _, evidence = run("depth", tmp_path, path, "--depths", "64")
    assert failed(evidence) == set() and evidence["gates"][0]["exact"] == 3


def test_at_mtp0_there_is_nothing_to_compare_so_probes_are_refused(tmp_path: Path) -> None:
    done = bench(*options("probe", tmp_path, launcher(tmp_path), 0), cwd=tmp_path)
    assert done.code == 64
    assert done.sentence == (
        "probes compare a server that drafts with MTP0, and at MTP0 there is nothing to compare; give --mtp 1 or more"
    )
    assert not (tmp_path / "experiments").exists()


def test_kill_9_then_resume_keeps_the_oracle(tmp_path: Path) -> None:
    path = launcher(tmp_path, step_us=1500)
    words = options("probe", tmp_path, path, 3)
    with running(*words, cwd=tmp_path) as process:
        wait_for_line(process, r"mtp3:  1/19")
        process.send_signal(signal.SIGKILL)
        process.wait()
    directory = campaign_of(tmp_path)
    until(lambda: servers_left(directory) == [])
    done = bench(*words, "--resume", directory, cwd=tmp_path)
    assert (done.code, done.err) == (0, "") and "already complete: mtp0" in done.out
    assert [item["directory"] for item in evidence_of(directory)["attempts"]] == ["mtp0", "mtp3", "mtp3.2"]
    assert verify(directory).problems == []


def test_one_changed_byte_is_found(tmp_path: Path) -> None:
    run("probe", tmp_path, launcher(tmp_path))
    path = campaign_of(tmp_path) / "prompts.json"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert any("prompts.json" in problem for problem in verify(campaign_of(tmp_path)).problems)


# strict --probes


def test_strict_with_probes_asks_them_last_and_lets_no_rate_see_them(tmp_path: Path) -> None:
    done = strict(tmp_path, write_launcher(tmp_path), "--probes", "--texts", texts(tmp_path / "texts"))
    assert done.err == "", done.err
    directory = campaign_of(tmp_path)
    assert verify(directory).problems == []
    evidence = evidence_of(directory)
    assert failed(evidence) == set()
    (gate,) = [gate for gate in evidence["gates"] if gate["name"] == "probes"]
    assert (gate["subject"], gate["exact"], gate["total"]) == ("mtp0-b vs mtp0-a", 7, 7)
    for attempt in evidence["attempts"]:
        assert [len(row["token_ids"]) for row in attempt["probes"]] == [PROBE_TOKENS] * 7
        assert len(attempt["rows"]) == 12
        folder = directory / "attempts" / attempt["directory"]
        kinds = [tag.kind for tag, _ in load_capture(folder / "capture.jsonl.zst").exchanges]
        assert kinds == ["ready", *["canary"] * 11, *["suite"] * 12, *["probe"] * 7, *["canary"] * 11]
        rates = [row["tok_s_1_100"] for row in attempt["rows"]]
        assert min(rates) <= attempt["class_balanced_median"] <= max(rates)
    assert "probes 7/7" in done.out


def test_strict_with_probes_is_withheld_by_a_fault_that_its_suite_cannot_see(tmp_path: Path) -> None:
    words = ["--probes", "--texts", texts(tmp_path / "texts")]
    done = strict(tmp_path, write_launcher(tmp_path, "boundary", step_us=1500), *words, depth=1)
    directory = campaign_of(tmp_path)
    evidence = evidence_of(directory)
    assert (done.code, evidence["status"], failed(evidence)) == (1, "withheld", {"probes"})
    gates = [(gate["name"], gate["exact"], gate["total"]) for gate in evidence["gates"]]
    suite = [("G1", 12, 12), ("G2", 12, 12), ("G3", 12, 12), ("G3", 12, 12)]
    assert gates == [*suite, ("probes", 8, 11), ("probes", 8, 11)]
    assert verify(directory).problems == []
    assert evidence["pairs"][1]["center"] > 0, "a failed gate never deletes a speed"


def test_texts_without_probes_are_refused(tmp_path: Path) -> None:
    done = strict(tmp_path, write_launcher(tmp_path), "--texts", texts(tmp_path / "texts"))
    said = "--texts says what the boundary probes are made of; add --probes, or leave it out"
    assert (done.code, done.sentence) == (64, said)


def test_a_launcher_leaves_out_what_kills_its_server_and_the_evidence_says_so(tmp_path: Path) -> None:
    path = launcher(tmp_path)
    path.write_text(path.read_text().replace("dev_mode = true", "dev_mode = true\nprobes_left_out = ['1', 'K']"))
    done, evidence = run("probe", tmp_path, path)
    assert done.code == 0
    asked = [probe["what"] for probe in probes(evidence, "mtp3").values()]
    assert asked == [what for what in ("2", "1+K", "2+K") for _ in NAMES] + ["full"] * 4
    assert evidence["start"]["plan"]["context"]["left_out"] == ["1", "K"]
    assert "boundary probes 1, K: unknown (launcher fast leaves them out)" in evidence["unknown"]
    assert "without the probes 1, K, which the launcher leaves out" in evidence["scope"]


@pytest.mark.parametrize("name", ["tiny", "ties", "ladder0", "ladder3ties"])
def test_what_was_recorded_before_probes_keeps_its_bytes_and_its_plan(name: str) -> None:
    directory = campaign(name)
    result = verify(directory)
    assert result.problems == [] and result.evidence is not None
    start = json.loads((directory / "journal.jsonl").read_text().splitlines()[0])["start"]
    assert result.evidence.start.plan.sha256() == start["plan_sha256"]
    derived = result.evidence.model_dump(mode="json", by_alias=True)
    assert "context" not in derived["start"]["plan"]
    assert all("probes" not in attempt for attempt in derived["attempts"])
