"""A campaign that was ended: killed, asked to stop, or broken off by its server; and how it goes on."""

import hashlib
import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import journal, store
from harness.evidence.derive import derive
from harness.evidence.verify import headline, verify
from tests.bench import (
    Done,
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

SLOW_US = 2000
"""Step of the servers that are to be caught in the middle"""


def hashes(campaign: Path) -> dict[str, str]:
    files = [path for path in campaign.rglob("*") if path.is_file()]
    return {path.relative_to(campaign).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kill_at(tmp_path: Path, launcher: Path, line: str, *words: str, depth: int = 0) -> Path:
    """kill -9 of ``bench`` once it has said ``line``; its campaign, after its servers have gone too."""
    with running("strict", "--mtp", str(depth), "--launcher", launcher, *words, cwd=tmp_path) as process:
        wait_for_line(process, line)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    campaign = campaign_of(tmp_path)
    until(lambda: servers_left(campaign) == [])
    return campaign


def resume(tmp_path: Path, launcher: Path, campaign: Path, *words: str, depth: int = 0) -> Done:
    return strict(tmp_path, launcher, *words, "--resume", campaign, depth=depth)


@pytest.mark.parametrize(
    ("line", "broken", "kept"),
    [
        (r"mtp0-a: starting", "mtp0-a", []),
        (r"mtp0-a:  4/12 ", "mtp0-a", []),
        (r"mtp0-b: canaries before", "mtp0-b", ["mtp0-a"]),
        (r"mtp0-b: stopping", "mtp0-b", ["mtp0-a"]),
    ],
)
def test_kill_9_then_verify_then_resume(tmp_path: Path, line: str, broken: str, kept: list[str]) -> None:
    launcher = write_launcher(tmp_path, step_us=SLOW_US)
    campaign = kill_at(tmp_path, launcher, line)
    left = hashes(campaign)

    found = verify(campaign)
    assert found.problems == []
    assert headline(found).startswith("verifies as far as it goes: MTP0 TP1 on fast: interrupted")
    assert found.evidence is not None
    assert [(a.label, a.status) for a in found.evidence.attempts] == [
        *((label, "complete") for label in kept),
        (broken, "interrupted"),
    ]

    done = resume(tmp_path, launcher, campaign)
    evidence = evidence_of(campaign)
    assert {gate["name"] for gate in evidence["gates"]} == {"G1"} and evidence["gates"][0]["exact"] == 12
    assert (evidence["status"], done.code) in [("passed", 0), ("withheld", 1)], "by the client gate of this machine"
    assert len(evidence["resumed"]) == 1
    directories = [(a["label"], a["directory"], a["status"]) for a in evidence["attempts"]]
    assert (broken, broken, "interrupted") in directories
    assert (broken, f"{broken}.2", "complete") in directories
    assert f"already complete: {', '.join(kept)}" in done.out if kept else "already complete" not in done.out
    after = hashes(campaign)
    moved = {name for name in left if after.get(name) != left[name] and not name.startswith("caches/")}
    assert moved <= {"journal.jsonl", "evidence.json", "manifest.json"}, "what a killed run recorded stays as it was"
    assert not (campaign / "caches").exists()
    assert verify(campaign).problems == []
    assert servers_left(campaign) == []


def test_verify_of_a_killed_campaign_still_sees_tampering(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path, step_us=500)
    campaign = kill_at(tmp_path, launcher, r"mtp0-b:  2/12 ")
    evidence = json.loads((campaign / "evidence.json").read_text())
    evidence["attempts"][0]["rows"][3]["tok_s_1_100"] += 1
    (campaign / "evidence.json").write_text(json.dumps(evidence))
    found = verify(campaign)
    assert len(found.problems) == 1 and "attempts[0].rows[3].tok_s_1_100 is " in found.problems[0]

    log = campaign / "attempts" / "mtp0-a" / "server.log"
    log.write_bytes(log.read_bytes() + b"x")
    assert any(problem.startswith("attempts/mtp0-a/server.log ") for problem in verify(campaign).problems)


def test_engine_death_is_resumed_on_a_fresh_server(tmp_path: Path) -> None:
    """The first server of two dies; the flag that killed it is part of the plan, so the resume dies again, apart."""
    launcher = write_launcher(tmp_path)
    assert strict(tmp_path, launcher, "--fault", "engine-dies").code == 2
    campaign = campaign_of(tmp_path)
    before = hashes(campaign)
    assert resume(tmp_path, launcher, campaign, "--fault", "engine-dies").code == 2
    evidence = evidence_of(campaign)
    assert [(a["directory"], a["status"]) for a in evidence["attempts"]] == [
        ("mtp0-a", "invalid"),
        ("mtp0-a.2", "invalid"),
    ]
    assert all(hashes(campaign)[name] == before[name] for name in before if name.startswith("attempts/"))
    assert verify(campaign).problems == []


@pytest.mark.parametrize(
    ("words", "depth", "difference"),
    [
        (["--fault", "tie:1"], 0, "mtp0-a.arguments: "),
        ([], 1, "depth: 0 then, 1 now"),
        (["--tp", "2"], 0, "tensor_parallel: 1 then, 2 now"),
    ],
)
def test_resume_with_another_flag_names_the_difference(
    tmp_path: Path, words: list[str], depth: int, difference: str
) -> None:
    launcher = write_launcher(tmp_path)
    strict(tmp_path, launcher, "--fault", "dies-at-start")
    campaign = campaign_of(tmp_path)
    left = hashes(campaign)
    base = [] if "--fault" in words else ["--fault", "dies-at-start"]
    done = resume(tmp_path, launcher, campaign, *base, *words, depth=depth)
    assert done.code == 64
    assert done.sentence.startswith(f"{campaign.name} was measured by another plan ({difference}")
    assert done.sentence.endswith("resume with the options it was started with, or start anew")
    assert hashes(campaign) == left, "a refused resume changes nothing"


def test_resume_of_a_finished_campaign_is_refused(passed: Path, tmp_path: Path) -> None:
    launcher = passed.parents[1] / "fast.toml"
    words = ["strict", "--mtp", "3", "--launcher", launcher, "--resume", passed]
    done = bench(*words, cwd=tmp_path)
    assert done.code == 64
    assert done.sentence == f"{passed.name} has ended (passed), there is nothing to resume; start anew"
    assert verify(passed).problems == []


Torn = Callable[[Path, bytes, bytes], None]


def neither(campaign: Path, evidence: bytes, manifest: bytes) -> None:
    (campaign / "evidence.json").write_bytes(evidence)
    (campaign / "manifest.json").write_bytes(manifest)


def no_manifest(campaign: Path, evidence: bytes, manifest: bytes) -> None:
    (campaign / "manifest.json").write_bytes(manifest)


@pytest.mark.parametrize("torn", [neither, no_manifest])
def test_last_write_that_failed_is_made_up_for_by_a_resume(
    passed: Path, tampered: Callable[[], Path], tmp_path: Path, torn: Torn
) -> None:
    campaign = tampered()
    whole = hashes(campaign)
    torn(campaign, *earlier(campaign, tmp_path))
    found = verify(campaign)
    assert (found.problems, found.evidence and found.evidence.status) == ([], "interrupted")
    assert headline(found).startswith("verifies as far as it goes: it was cut off while its last evidence was written")
    done = again(passed, campaign, tmp_path)
    assert (done.code, done.err) == (0, "")
    assert verify(campaign).problems == [] and hashes(campaign) == whole


@pytest.mark.parametrize("file", ["evidence.json", "manifest.json", "attempts/mtp0-a/server.log"])
def test_what_somebody_changed_is_not_made_up_for(
    passed: Path, tampered: Callable[[], Path], tmp_path: Path, file: str
) -> None:
    campaign = tampered()
    neither(campaign, *earlier(campaign, tmp_path))
    path = campaign / file
    data = path.read_bytes()
    at = re.search(rb'"sha256": "[0-9a-f]{64}"|"exit_code": 2|GET', data)
    assert at is not None
    path.write_bytes(
        data[: at.end() - 2] + b"zz" + data[at.end() :] if b"sha" in at[0] else data.replace(at[0], b"PUT")
    )
    left = hashes(campaign)
    done = again(passed, campaign, tmp_path)
    assert done.code != 0
    assert hashes(campaign) == left


def earlier(campaign: Path, tmp_path: Path) -> tuple[bytes, bytes]:
    """Evidence and manifest as they were when the last attempt had ended and the campaign had not."""
    before = Path(shutil.copytree(campaign, tmp_path / "before" / campaign.name))
    lines = (before / journal.NAME).read_bytes().splitlines(keepends=True)
    (before / journal.NAME).write_bytes(b"".join(lines[:-1]))
    found = derive(before).model_dump(mode="json", by_alias=True)
    (before / "evidence.json").write_bytes(store.dump_json(found))
    store.write_manifest(before)
    return (before / "evidence.json").read_bytes(), (before / "manifest.json").read_bytes()


def again(passed: Path, campaign: Path, cwd: Path) -> Done:
    launcher = passed.parents[1] / "fast.toml"
    return bench("strict", "--mtp", "3", "--launcher", launcher, "--resume", campaign, cwd=cwd)


def test_resume_of_something_else_is_refused(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        done = resume(tmp_path, launcher, Path(name))
        assert done.code == 64
        assert done.sentence == (
            f"{name} is no campaign directory (it has no journal.jsonl); give the one that was interrupted"
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_server_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    launcher = write_launcher(tmp_path, step_us=SLOW_US)
    words = ["strict", "--mtp", "0", "--launcher", launcher]
    with running(*words, cwd=tmp_path) as process:
        wait_for_line(process, r"mtp0-a:  2/12 ")
        campaign = campaign_of(tmp_path)
        assert servers_left(campaign), "so that there is one to be gone"
        process.send_signal(number)
        process.send_signal(number)  # an impatient user's second one changes nothing
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (2, "")
    assert servers_left(campaign) == []
    evidence = evidence_of(campaign)
    assert (evidence["status"], evidence["exit_code"]) == ("interrupted", 2)
    assert evidence["attempts"][0]["status"] == "interrupted"
    assert evidence["attempts"][0]["server"]["stop"]["gone"] is True
    assert evidence["reasons"][0] == f"mtp0-a: interrupted by {number.name}"
    line = f"next: bench strict --mtp 0 --launcher {launcher} --resume experiments/{campaign.name}"
    assert out.splitlines()[-1] == line
    assert verify(campaign).problems == []


def test_signal_while_a_server_starts(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path, "never-ready")
    with running("strict", "--mtp", "0", "--launcher", launcher, cwd=tmp_path) as process:
        wait_for_line(process, r"mtp0-a: starting")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    campaign = campaign_of(tmp_path)
    assert process.returncode == 2
    assert servers_left(campaign) == []
    assert evidence_of(campaign)["status"] == "interrupted"


def test_broken_last_line_of_a_journal_does_not_spoil_the_next(tmp_path: Path) -> None:
    first = journal.Event(at="2026-01-01T00:00:00.000+00:00", event="campaign-started", start={"plan": 1})
    journal.append(tmp_path, first)
    whole = (tmp_path / journal.NAME).read_bytes()
    for torn in (b'{"at":"2026-01-01', b"x" * 200_000):
        (tmp_path / journal.NAME).write_bytes(whole + torn)
        assert journal.load(tmp_path) == [first]
        second = journal.Event(at="2026-01-01T00:00:01.000+00:00", event="campaign-resumed")
        journal.append(tmp_path, second)
        assert journal.load(tmp_path) == [first, second]


def test_captures_of_a_broken_attempt_are_kept_as_evidence(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path, step_us=SLOW_US)
    campaign = kill_at(tmp_path, launcher, r"mtp0-a:  3/12 ")
    found: Any = verify(campaign).evidence
    rows = found.attempts[0].rows
    assert len(rows) >= 3 and all(row.complete for row in rows[:3])
    assert found.attempts[0].class_balanced_median is None and found.pairs[0].center is None
    assert found.attempts[0].gates == []
