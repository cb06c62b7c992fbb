"""Ladders that were killed, stopped or lost their server, and how they go on; what the client costs."""

import json
import os
import re
import signal
from pathlib import Path

from harness.evidence.verify import headline, verify
from tests.bench import (
    bench,
    campaign_of,
    evidence_of,
    running,
    servers_left,
    until,
    wait_for_line,
)
from tests.ladders import ladder, launcher, options, without_client


def test_engine_that_dies_in_a_batch_keeps_the_passes_before(tmp_path: Path) -> None:
    """A server killed from outside in pass 2: pass 1 stays, the next run goes on with pass 2."""
    path = launcher(tmp_path, step_us=1500)
    with running(*options(path, 0, "1,2", 3), cwd=tmp_path) as process:
        wait_for_line(process, r"pass 1/3 \(warm-up\) c2")
        for pid in servers_left(campaign_of(tmp_path)):
            os.kill(pid, signal.SIGKILL)
        err = process.communicate(timeout=60)[1]
    campaign = campaign_of(tmp_path)
    assert (process.returncode, err) == (2, "")
    evidence = evidence_of(campaign)
    assert (evidence["status"], evidence["passes_done"]) == ("invalid", 1)
    assert "the server has ended with" in evidence["attempts"][0]["error"]
    assert verify(campaign).problems == []


def test_kill_9_in_pass_2_then_resume_goes_on_at_that_pass(tmp_path: Path) -> None:
    path = launcher(tmp_path, step_us=1500)
    with running(*options(path, 0, "1,2", 3), cwd=tmp_path) as process:
        wait_for_line(process, r"pass 2/3 c1")
        process.send_signal(signal.SIGKILL)
        process.wait()
    campaign = campaign_of(tmp_path)
    until(lambda: servers_left(campaign) == [])
    capture = campaign / "attempts" / "mtp0" / "capture.jsonl.zst"
    left = capture.read_bytes()
    found = verify(campaign)
    assert found.problems == []
    assert headline(found).startswith("verifies as far as it goes: ")
    assert found.evidence is not None and found.evidence.passes_done == 1  # type: ignore[union-attr]

    done = bench(*options(path, 0, "1,2", 3), "--resume", campaign, cwd=tmp_path)
    assert done.err == ""
    lines = re.findall(r"mtp0: pass (\d)/3( \(warm-up\))? c(\d)", done.out)
    assert [(number, rung) for number, _, rung in lines] == [(n, c) for n in "123" for c in "12"]
    evidence = evidence_of(campaign)
    assert without_client(evidence["reasons"]) == [] and evidence["passes_done"] == 3
    assert [(a["directory"], a["status"]) for a in evidence["attempts"]] == [
        ("mtp0", "interrupted"),
        ("mtp0.2", "complete"),
    ]
    first = {(batch["number"], batch["rung"]) for batch in evidence["attempts"][0]["batches"]}
    assert {(1, 1), (1, 2), (2, 1)} <= first
    assert [(r["passes"], r["exact"], r["total"]) for r in evidence["rungs"]] == [(3, 3, 3), (3, 6, 6)]
    warm = [b["aggregate_tok_s_wall"] for b in evidence["attempts"][0]["batches"] if b["number"] == 1]
    assert [rung["warm_up_tok_s"] for rung in evidence["rungs"]] == warm, "the first server's, not the repeated one"
    assert evidence["gates"][0]["subject"] == "mtp0.2 vs mtp0, sequential" and evidence["gates"][0]["passed"]
    said = "mtp0: pass 1 was measured on a server that was interrupted: its exclusive use is not proven"
    assert said in evidence["unknown"]
    assert capture.read_bytes() == left, "what a killed run recorded stays as it was"
    assert verify(campaign).problems == []
    again = bench(*options(path, 0, "1,2", 3), "--resume", campaign, cwd=tmp_path)
    assert again.code == 64 and "there is nothing to resume" in again.sentence
    other = bench(*options(path, 0, "1,2", 4), "--resume", campaign, cwd=tmp_path)
    assert other.code == 64 and "was measured by another plan (ladder: " in other.sentence


def test_interrupted_ladder_says_how_to_go_on(tmp_path: Path) -> None:
    path = launcher(tmp_path, step_us=1500)
    with running(*options(path, 0, "1,2", 3), "--client-workers", "2", cwd=tmp_path) as process:
        wait_for_line(process, r"pass 1/3 \(warm-up\) c1")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    campaign = campaign_of(tmp_path)
    assert (process.returncode, err) == (2, "")
    assert evidence_of(campaign)["status"] == "interrupted" and servers_left(campaign) == []
    assert out.splitlines()[-1].endswith(f"--client-workers 2 --resume experiments/{campaign.name}")
    assert verify(campaign).problems == []


# the client


def test_client_workers_share_a_batch_and_the_evidence_says_how_many(tmp_path: Path) -> None:
    _, evidence = ladder(tmp_path, launcher(tmp_path, step_us=2000), "--client-workers", "2", rungs="1,4", passes=1)
    assert evidence["start"]["plan"]["ladder"]["workers"] == 2
    assert without_client(evidence["reasons"]) == []
    assert [(rung["exact"], rung["total"]) for rung in evidence["rungs"]] == [(1, 1), (4, 4)]
    assert "2 client processes" in evidence["scope"]


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1])  # type: ignore[index]


def test_memory_is_flat_from_pass_to_pass_and_captures_are_small(tmp_path: Path) -> None:
    """A pass brings 4,160 events; were they kept, ten passes would be some 20 MB."""
    path = launcher(tmp_path, "--batch-slope", "0.25", step_us=400)
    sizes = []
    with running(*options(path, 0, "1,32", 12), "--json", cwd=tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "batch" and event["rung"] == 32:
                sizes.append(resident_kib(process.pid))
    assert len(sizes) == 12
    assert max(sizes[2:]) - sizes[2] < 6 * 1024, sizes
    campaign = campaign_of(tmp_path)
    evidence = evidence_of(campaign)
    answers = sum(len(batch["requests"]) for batch in evidence["attempts"][0]["batches"]) + 32
    size = (campaign / "attempts" / "mtp0" / "capture.jsonl.zst").stat().st_size
    # 20 passes at 64 users with their 64 sequential answers may take 6 MB.
    assert size / answers < 6_000_000 / (21 * 64), size
    assert verify(campaign).problems == []
