"""Long-context profiles against the real simulated server: exact, withheld, inconclusive, resumed, edited."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from harness.evidence import journal
from harness.evidence.derive import derive
from harness.evidence.loading import load_attempts
from harness.evidence.schema import AttemptStatus
from harness.evidence.verify import headline, verify
from harness.wire.capture import load_capture
from harness.workloads.context import CLASSES
from tests.bench import bench, campaign_of, evidence_of, running, servers_left, until, wait_for_line
from tests.contexts import DEPTHS, PATIENT_US, failed, launcher, options, run
from tests.evidence.test_earlier_faults import EARLY, WEDGED, with_an_early_attempt


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile at depth 3 that passed; read only."""
    for step_us in PATIENT_US:
        home = tmp_path_factory.mktemp("exact")
        done, evidence = run("depth", home, launcher(home, step_us=step_us))
        if done.code == 0:
            (home / "output.txt").write_text(done.out)
            return campaign_of(home)
        assert failed(evidence) == set(), done.out
    pytest.skip("this machine is too busy for a client gate to pass")


@pytest.fixture
def copied(exact: Path, tmp_path: Path) -> Callable[[], Path]:
    count = iter(range(100))
    return lambda: Path(shutil.copytree(exact, tmp_path / str(next(count)) / exact.name))


def points(evidence: Any, label: str = "mtp3") -> dict[int, Any]:
    return {point["context"]: point for point in evidence["points"] if point["label"] == label}


# exact


@pytest.mark.parametrize("label", ["mtp0", "mtp3"])
@pytest.mark.parametrize("status", EARLY)
def test_a_fault_before_a_resume_withholds_what_was_measured_after_it(
    exact: Path, label: str, status: AttemptStatus
) -> None:
    assert with_an_early_attempt(exact, label, status, faulted=False).status == "passed"
    evidence = with_an_early_attempt(exact, label, status, faulted=True)
    assert (evidence.status, evidence.exit_code, evidence.withheld) == ("withheld", 1, True)
    assert [reason for reason in evidence.reasons if WEDGED in reason]


def test_every_class_at_every_depth_equals_mtp0(exact: Path) -> None:
    evidence = evidence_of(exact)
    assert (evidence["schema"], evidence["kind"]) == ("b70-bench.depth/1", "depth")
    assert (evidence["status"], evidence["exit_code"], evidence["withheld"]) == ("passed", 0, False)
    assert [server["label"] for server in evidence["start"]["plan"]["servers"]] == ["mtp0", "mtp3"]
    (gate,) = evidence["gates"]
    assert (gate["name"], gate["subject"], gate["exact"], gate["total"]) == ("context", "mtp3 vs mtp0", 9, 9)
    for label, count in (("mtp0", None), ("mtp3", 3)):
        found = points(evidence, label)
        assert list(found) == DEPTHS
        assert all((point["exact"], point["total"], point["withheld"]) == (count, 3, False) for point in found.values())
    names = {gate["name"] for attempt in evidence["attempts"] for gate in attempt["gates"]}
    assert names == {"workload", "stream", "cache-zero", "canaries", "degenerate", "fresh", "host", "client"}


def test_a_point_is_the_median_of_three_classes_and_nothing_else(exact: Path) -> None:
    evidence = evidence_of(exact)
    for attempt in evidence["attempts"]:
        rows = {row["prompt_id"]: row for row in attempt["rows"]}
        for tokens, point in points(evidence, attempt["label"]).items():
            three = [rows[f"{name}-{tokens}"] for name in CLASSES]
            assert point["tok_s"] == median(row["tok_s_1_100"] for row in three)
            assert point["tok_s_burst_exact"] == median(row["tok_s_burst_exact"] for row in three)
            assert point["ttft_ms"] == median(row["ttft_ms"] for row in three)
            assert [item["tok_s"] for item in point["classes"]] == [row["tok_s_1_100"] for row in three]


def test_prompts_are_ids_of_exactly_that_length_from_the_first_servers_tokenizer(exact: Path) -> None:
    kept = json.loads((exact / "prompts.json").read_text())["ids"]
    assert {name: len(ids) for name, ids in kept.items()} == dict.fromkeys(CLASSES, 256)
    journal = [json.loads(line) for line in (exact / "journal.jsonl").read_text().splitlines()]
    assert [event["label"] for event in journal if event["event"] == "prompts-kept"] == ["mtp0"]
    bodies = {}
    for label in ("mtp0", "mtp3"):
        capture = load_capture(exact / "attempts" / label / "capture.jsonl.zst")
        sent = [json.loads(exchange.request.partition(b"\r\n\r\n")[2]) for _, exchange in capture.of_kind("context")]
        assert [len(body["prompt"]) for body in sent] == [tokens for tokens in DEPTHS for _ in CLASSES]
        assert all(body["prompt"] == kept[name][256 - len(body["prompt"]) :]
                   for body, name in zip(sent, CLASSES * 3, strict=True))  # fmt: skip
        assert all((body["max_tokens"], body["seed"], body["ignore_eos"]) == (128, 1, True) for body in sent)
        bodies[label] = sent
    assert bodies["mtp0"] == bodies["mtp3"]
    for attempt in evidence_of(exact)["attempts"]:
        assert [row["prompt_tokens"] for row in attempt["rows"]] == [tokens for tokens in DEPTHS for _ in CLASSES]
        assert {len(row["token_ids"]) for row in attempt["rows"]} == {128}
        assert attempt["echoed"] == 9


def test_it_is_shown_and_listed_with_its_figures(exact: Path) -> None:
    evidence, out = evidence_of(exact), (exact.parents[1] / "output.txt").read_text()
    for tokens, point in points(evidence).items():
        assert re.search(rf"{tokens} │ mtp3 +│ +{point['tok_s']:.2f}", out)
    assert "context 9/9" in out and "SIMULATED" in out and "next: bench verify" in out
    shown = bench("show", exact, cwd=exact.parents[1])
    assert shown.code == 0 and f"{points(evidence)[256]['tok_s']:.2f}" in shown.out
    listed = bench("list", exact.parent, cwd=exact.parents[1])
    assert f"at 256 {points(evidence)[256]['tok_s']:.2f} tokens/s (simulated)" in listed.out
    assert "context 9/9" in listed.out


def test_a_difference_seen_before_a_resume_withholds_its_point(exact: Path) -> None:
    """One id of one answer of an early attempt is another: no selection."""
    events = journal.load(exact)
    files = load_attempts(exact, events)
    early = replace(files[-1], directory="mtp3.early", status=AttemptStatus.INTERRUPTED)
    assert derive(exact, events, [*files[:-1], early, files[-1]]).status == "passed"
    capture = load_capture(exact / "attempts" / files[-1].directory / "capture.jsonl.zst")
    asked = [exchange for tag, exchange in capture.exchanges if tag.name == "technical-prose-64"]
    for exchange in asked:
        found = re.findall(rb'"token_ids":\[(\d+)\]', exchange.data)
        at = exchange.data.rindex(b'"token_ids":[%s]' % found[-1]) + len(b'"token_ids":[')
        changed = b"1" if exchange.data[at : at + 1] != b"1" else b"2"
        exchange.data = exchange.data[:at] + changed + exchange.data[at + 1 :]
    evidence = derive(exact, events, [*files[:-1], replace(early, capture=capture), files[-1]])
    (reason,) = evidence.reasons
    assert reason.startswith("context mtp3.early, which ended early: technical-prose-64 differs at token ")
    assert (evidence.status, evidence.exit_code) == ("withheld", 1)
    withheld = [(p.label, p.context) for p in evidence.points if p.withheld]
    assert withheld == [("mtp3", 64)]


def test_at_mtp0_it_says_that_nothing_was_compared(tmp_path: Path) -> None:
    for step_us in PATIENT_US:
        home = tmp_path / str(step_us)
        _, evidence = run("depth", home, launcher(home, step_us=step_us), "--depths", "64", depth=0)
        if evidence["status"] == "passed":
            break
    assert failed(evidence) == set() and evidence["gates"] == []
    said = "not compared (at MTP0 there is no other server to compare with)"
    assert f"correctness of the answers: unknown, {said}" in evidence["unknown"]
    assert evidence["status"] != "passed" or evidence["conclusion"].endswith(f"; {said}")


def test_json_lines_end_with_the_points(tmp_path: Path) -> None:
    words = options("depth", tmp_path, launcher(tmp_path), 0)
    done = bench(*words, "--depths", "64,100", "--json", cwd=tmp_path)
    ended = json.loads(done.out.splitlines()[-1])
    assert [(point["context"], point["exact"]) for point in ended["points"]] == [(64, None), (100, None)]
    assert evidence_of(campaign_of(tmp_path))["gates"] == [], "at MTP0 there is no other server to compare with"


# withheld


def test_a_depth_with_a_miss_is_withheld_and_the_others_are_shown(tmp_path: Path) -> None:
    done, evidence = run("depth", tmp_path, launcher(tmp_path, "tie:2"))
    assert (done.code, evidence["status"], failed(evidence)) == (1, "withheld", {"context"})
    found = points(evidence)
    assert (found[64]["exact"], found[64]["withheld"]) == (1, True)
    assert found[64]["tok_s"] > 0, "a failed gate never deletes a speed"
    assert [item["exact"] for item in found[64]["classes"]] == [False, False, True]
    site = found[64]["classes"][0]["divergence"]
    assert (site["prompt_id"], site["first_divergence_token_zero_based"]) == ("technical-prose-64", 57)
    assert f"64 {found[64]['tok_s']:.1f} (1/3)" in evidence["scope"].partition("Measured but withheld: ")[2]
    client = {"client of mtp3 failed"}
    assert all(set(found[tokens]["why"]) <= client and found[tokens]["exact"] == 3 for tokens in (128, 256))
    assert not set(points(evidence, "mtp0")[64]["why"]) - {"client of mtp0 failed"}, "MTP0 itself lost nothing"


@pytest.mark.parametrize(
    ("fault", "gate", "status", "sentence"),
    [
        ("short:110", "workload", "withheld", "110 of 128 ids came"),
        ("cached-tokens:7", "cache-zero", "withheld", "took 7 prompt tokens from a cache"),
        ("garbage", "degenerate", "withheld", "has the id 0 in 128 of its 128 places"),
        ("bad-canary", "canaries", "withheld", "arithmetic"),
        ("no-usage", "stream", "invalid", "usage"),
    ],
)
def test_a_fault_of_one_server_withholds_by_its_gate(
    tmp_path: Path, fault: str, gate: str, status: str, sentence: str
) -> None:
    done, evidence = run("depth", tmp_path, launcher(tmp_path, fault), "--depths", "64", depth=0)
    assert (done.code, evidence["status"]) == (1, status)
    assert gate in failed(evidence)
    assert any(sentence in reason for reason in evidence["reasons"]), evidence["reasons"]
    assert points(evidence, "mtp0")[64]["withheld"]


def test_another_tokenizer_on_the_second_server_is_inconclusive(tmp_path: Path) -> None:
    done, evidence = run("depth", tmp_path, launcher(tmp_path, "other-tokenizer"), "--depths", "64,128")
    assert (done.code, evidence["status"]) == (2, "invalid")
    (reason,) = [reason for reason in evidence["reasons"] if "client" not in reason]
    assert reason.startswith("mtp3: its /tokenize disagrees with the prompts of this campaign (technical-prose becomes")
    assert "other ids from token 99 on" in reason
    assert evidence["attempts"][1]["rows"] == [], "nothing was measured on it"


def test_an_engine_that_dies_leaves_no_verdict(tmp_path: Path) -> None:
    done, evidence = run("depth", tmp_path, launcher(tmp_path, "engine-dies"), "--depths", "64", depth=0)
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert points(evidence, "mtp0")[64]["withheld"] and points(evidence, "mtp0")[64]["tok_s"] is None


# resume


def test_kill_9_in_the_second_server_then_resume_keeps_the_first(tmp_path: Path) -> None:
    path = launcher(tmp_path, step_us=1500)
    words = options("depth", tmp_path, path, 3)
    with running(*words, cwd=tmp_path) as process:
        wait_for_line(process, r"mtp3:  2/9")
        process.send_signal(signal.SIGKILL)
        process.wait()
    campaign = campaign_of(tmp_path)
    until(lambda: servers_left(campaign) == [])
    found = verify(campaign)
    assert found.problems == [] and headline(found).startswith("verifies as far as it goes: ")
    kept = {name: (campaign / name).read_bytes() for name in ("prompts.json", "attempts/mtp0/capture.jsonl.zst")}

    other = bench(*words, "--depths", "64", "--resume", campaign, cwd=tmp_path)
    assert other.code == 64 and "was measured by another plan (context: " in other.sentence
    done = bench(*words, "--resume", campaign, cwd=tmp_path)
    assert done.err == "" and "already complete: mtp0" in done.out
    evidence = evidence_of(campaign)
    assert [(item["directory"], item["status"]) for item in evidence["attempts"]] == [
        ("mtp0", "complete"),
        ("mtp3", "interrupted"),
        ("mtp3.2", "complete"),
    ]
    assert evidence["gates"][0]["exact"] == 9 and failed(evidence) == set()
    assert {name: (campaign / name).read_bytes() for name in kept} == kept
    journal = (campaign / "journal.jsonl").read_text()
    assert journal.count("prompts-kept") == 1
    assert verify(campaign).problems == []


# verify


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data and len(old) == len(new)
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize(
    "name", ["texts/python-code.txt", "prompts.json", "attempts/mtp3/capture.jsonl.zst", "attempts/mtp0/server.json"]
)
def test_one_changed_byte_is_found(copied: Callable[[], Path], name: str) -> None:
    campaign = copied()
    path = campaign / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    problems = verify(campaign).problems
    assert any(name in problem or name.rpartition("/")[2] in problem for problem in problems), problems


def test_an_edited_point_is_found_although_the_manifest_was_made_anew(copied: Callable[[], Path]) -> None:
    from harness.evidence.store import write_manifest

    campaign = copied()
    evidence = evidence_of(campaign)
    at = next(n for n, point in enumerate(evidence["points"]) if point["label"] == "mtp3")
    evidence["points"][at]["exact"] = 2
    (campaign / "evidence.json").write_text(json.dumps(evidence, indent=1, ensure_ascii=False) + "\n")
    write_manifest(campaign)
    assert verify(campaign).problems == [f"evidence.json: points[{at}].exact is 2, the captured bytes give 3"]


def test_prompts_that_no_server_gave_are_found_although_hash_and_manifest_fit(copied: Callable[[], Path]) -> None:
    """The ids in prompts.json must follow from the recorded answers of /tokenize."""
    import hashlib

    from harness.evidence.store import write_manifest

    campaign = copied()
    path, journal = campaign / "prompts.json", campaign / "journal.jsonl"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    kept = json.loads(path.read_text())
    kept["ids"]["python-code"][0] += 1
    path.write_text(json.dumps(kept, sort_keys=True, separators=(",", ":")) + "\n")
    journal.write_text(journal.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))
    write_manifest(campaign)
    result = verify(campaign)
    assert result.evidence is not None
    gates = {gate.name: gate.failures for gate in result.evidence.attempts[0].gates if not gate.passed}
    assert any(
        "its /tokenize disagrees with the prompts that were sent: python-code" in said for said in gates["workload"]
    )
    assert result.problems, "the evidence says that every gate passed"


def test_a_missing_text_is_found(copied: Callable[[], Path]) -> None:
    campaign = copied()
    (campaign / "texts" / "technical-prose.txt").unlink()
    assert "texts/technical-prose.txt is missing, so the prompts can't be checked" in verify(campaign).problems
