"""Edits that a forger repairs as far as he can: each is refused, and the sentence says what and where."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harness.evidence import journal, store
from harness.evidence.crosscheck import CHECKS, cross_checks
from harness.evidence.derive import derive
from harness.evidence.loading import load_attempts, load_start
from harness.evidence.schema import Status
from harness.evidence.verify import verify
from tests import recorded
from tests.evidence.tampering import lines_of, problems_of, repaired, shifted, write_lines

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("tiny", "ties", "ladder0", "ladder3ties")
SEED = 20261130
SUITE = "mtp0-a/capture.jsonl.zst"


@pytest.mark.parametrize("name", NAMES)
def test_recorded_campaigns_contradict_nothing(name: str) -> None:
    assert problems_of(recorded.campaign(name)) == []


def test_any_byte_of_any_file_of_any_recorded_campaign(tmp_path: Path) -> None:
    """By its hash: the file is named. (That the derivation finds it without a manifest, too, is in test_verify.)"""
    chance = random.Random(SEED)
    for name in NAMES:
        campaign = recorded.copy(name, tmp_path)
        recorded_files = json.loads((campaign / store.MANIFEST).read_text())["files"]
        for file in store.campaign_files(campaign):
            path = campaign / file
            whole = path.read_bytes()
            offsets = {0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(6))} if whole else set()
            for offset in offsets:
                data = bytearray(whole)
                data[offset] ^= 1 << chance.randrange(8)
                path.write_bytes(data)
                if file == store.MANIFEST:
                    assert path.read_bytes() != store.dump_json(store.build_manifest(campaign))
                else:
                    assert store.build_manifest(campaign)["files"][file] != recorded_files[file], (file, offset)
            path.write_bytes(whole)
        assert store.dump_json(store.build_manifest(campaign)) == (campaign / store.MANIFEST).read_bytes()


@settings(max_examples=12, deadline=None, phases=(Phase.generate,))
@given(data=st.data())
def test_one_byte_through_the_whole_of_verify(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    campaign = recorded.copy("ladder0", tmp_path_factory.mktemp("edit"))
    file = data.draw(st.sampled_from(sorted(store.campaign_files(campaign))))
    path = campaign / file
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    found = verify(campaign).problems
    # An edited manifest may name a file that never was: that one is then said to be missing.
    assert found and (file == store.MANIFEST or any(path.name in problem for problem in found)), (file, found)
    assert not any("\n" in problem for problem in found)
    shutil.rmtree(campaign)


def test_capture_swapped_between_attempts(tmp_path: Path) -> None:
    """Its name is the first thing it says; with that corrected, its times are those of the other attempt."""
    campaign = recorded.copy("tiny", tmp_path)
    one, other = (campaign / "attempts" / label / store.CAPTURE for label in ("mtp0-a", "mtp0-b"))
    first, second = lines_of(one), lines_of(other)
    write_lines(one, second)
    write_lines(other, first)
    store.write_manifest(campaign)
    assert verify(campaign).problems == ["mtp0-a/capture.jsonl.zst is the capture of mtp0-b; get the original"]
    first[0]["label"], second[0]["label"] = "mtp0-b", "mtp0-a"
    write_lines(one, second)
    write_lines(other, first)
    found = repaired(campaign)
    assert found[0].startswith("mtp0-a/server.json: the stop of the server is ")
    assert found[0].endswith("(check place); get the original files")
    assert any(problem.endswith("(check process); get the original files") for problem in found)
    assert any(problem.startswith("mtp0-b/capture.jsonl.zst: it began before mtp0-a had ended") for problem in found)


def test_attempt_copied_within_the_campaign(tmp_path: Path) -> None:
    """A server measured once and shown twice: G1 would compare it with itself."""
    campaign = recorded.copy("tiny", tmp_path)
    for name in (store.CAPTURE, store.SERVER, store.LOG):
        shutil.copyfile(campaign / "attempts/mtp0-a" / name, campaign / "attempts/mtp0-b" / name)
    capture, server = (campaign / "attempts/mtp0-b" / name for name in (store.CAPTURE, store.SERVER))
    records = lines_of(capture)
    records[0]["label"] = "mtp0-b"
    write_lines(capture, records)
    server.write_text(server.read_text().replace('"mtp0-a"', '"mtp0-b"'))
    found = repaired(campaign)
    assert "mtp0-b/server.json: its server is the one of mtp0-a (check once); get the original files" in found
    assert any(": the answer to one-token is the one of mtp0-a/one-token (check once)" in problem for problem in found)


def test_attempt_copied_from_another_campaign(tmp_path: Path) -> None:
    """Same lane, same labels, same suite: a directory that loads as if it belonged here."""
    campaign = recorded.copy("ties", tmp_path)
    shutil.rmtree(campaign / "attempts/mtp0-b")
    shutil.copytree(recorded.campaign("tiny") / "attempts/mtp0-b", campaign / "attempts/mtp0-b")
    found = repaired(campaign)
    assert any(
        problem.startswith("mtp0-b/server.json: the start of the server is ")
        and problem.endswith("s before the start of the attempt (check place); get the original files")
        for problem in found
    ), found
    assert (
        "mtp0-b/capture.jsonl.zst: it began before mtp0-a had ended (check sequence); get the original files" in found
    )


Edit = Callable[[list[dict[str, Any]]], None]


def shift_all(records: list[dict[str, Any]]) -> None:
    for record in records:
        shifted(record, 86_400)


def shift_wall(records: list[dict[str, Any]]) -> None:
    for record in records[len(records) // 2 :]:
        for name in ("t0_wall_ns", "end_wall_ns", "at_wall_ns"):
            if name in record:
                record[name] += 7200 * 10**9


def first_of(records: list[dict[str, Any]], kind: str, of: str = "suite") -> dict[str, Any]:
    number = next(r["n"] for r in records if r["kind"] == "begin" and r["for"] == of)
    return next(record for record in records if record["kind"] == kind and record["n"] == number)


def faster(records: list[dict[str, Any]]) -> None:
    """Every read at half its time, and the ends with them: the rate doubles."""
    for record in records:
        if record["kind"] == "reads":
            record["after_ns"] = [value // 2 for value in record["after_ns"]]
            record["lag_ns"] = [value // 2 for value in record["lag_ns"]]
        if record["kind"] == "end":
            spent = record["end_ns"] // 2
            record["end_ns"] = spent
            for name in ("end_wall_ns", "end_mono_ns"):
                record[name] -= spent
            record["connected_ns"] //= 2
            record["sent_ns"] //= 2


def later_first_token(records: list[dict[str, Any]]) -> None:
    """Only the streams' inner times: the first token late and the rest in a hurry, the end where it was."""
    for number in [r["n"] for r in records if r["kind"] == "begin" and r["for"] == "suite"]:
        mine = [record for record in records if record["kind"] == "reads" and record["n"] == number]
        taken = 0
        for record in mine:
            first = 1 if record is mine[0] else 0
            halves = [value // 2 for value in record["after_ns"][first:]]
            taken += sum(record["after_ns"][first:]) - sum(halves)
            record["after_ns"][first:] = halves
        mine[0]["after_ns"][0] += taken


def swapped_answers(records: list[dict[str, Any]]) -> None:
    """Two questions of the suite change places, so that each has the other's answer."""
    one, other = [r for r in records if r["kind"] == "begin" and r["for"] == "suite"][:2]
    for name in ("name", "request_id", "request"):
        one[name], other[name] = other[name], one[name]


def read_after_end(records: list[dict[str, Any]]) -> None:
    first_of(records, "end")["end_ns"] //= 2


def end_moved(records: list[dict[str, Any]]) -> None:
    first_of(records, "end")["end_mono_ns"] -= 20 * 10**9


def end_beyond_the_next(records: list[dict[str, Any]]) -> None:
    first_of(records, "end")["end_mono_ns"] += 3 * 10**9


def other_address(records: list[dict[str, Any]]) -> None:
    request = first_of(records, "begin")["request"]
    request["text"] = request["text"].replace("Host: 127.0.0.1:", "Host: 127.0.0.2:", 1)


def other_request(records: list[dict[str, Any]]) -> None:
    request = first_of(records, "begin")["request"]
    request["text"] = request["text"].replace("X-Request-Id: bench-", "X-Request-Id: other-", 1)


def other_time_of_answer(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["kind"] == "reads" and "text" in record and '"created":' in record["text"]:
            before, _, after = record["text"].partition('"created":')
            record["text"] = f'{before}"created":{int(after[:10]) - 5000}{after[10:]}'


def other_process(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["kind"] == "control" and record["path"] == "/metrics":
            record["body"] = record["body"].replace(
                "process_start_time_seconds 1.79607", "process_start_time_seconds 1.79507"
            )


EDITS: list[tuple[Edit, str, str]] = [
    (shift_all, "place", "the stop of the server is 86"),
    (shift_wall, "clocks", "its wall and monotonic clocks part by 7200 s while it ran"),
    (faster, "durations", "its answers took "),
    (later_first_token, "durations", "its streams took "),
    (swapped_answers, "answers", "names the request cmpl-bench-"),
    (read_after_end, "order", "a read of "),
    (end_beyond_the_next, "order", " began before "),
    (other_address, "requests", "was sent to another address than "),
    (other_request, "requests", "isn't the one that is recorded as bench-"),
    (other_time_of_answer, "answers", "s outside of its exchange"),
    (other_process, "process", "is of a process begun -"),
]


@pytest.mark.parametrize(("edit", "check", "words"), EDITS, ids=[edit.__name__ for edit, _, _ in EDITS])
def test_edited_capture_under_a_manifest_written_anew(tmp_path: Path, edit: Edit, check: str, words: str) -> None:
    campaign = recorded.copy("tiny", tmp_path)
    path = campaign / "attempts" / SUITE
    records = lines_of(path)
    edit(records)
    write_lines(path, records)
    found = problems_of(campaign)
    assert any(
        problem.startswith("mtp0-a/") and words in problem and f"(check {check})" in problem for problem in found
    ), found


def in_stream(records: list[dict[str, Any]], pattern: str, new: Callable[[re.Match[str]], str]) -> None:
    """One place of the first suite answer, by as many characters: sizes and chunks stay right."""
    number = next(r["n"] for r in records if r["kind"] == "begin" and r["for"] == "suite")
    for record in records:
        if record["kind"] == "reads" and record["n"] == number and re.search(pattern, record.get("text", "")):
            changed = re.sub(pattern, new, record["text"], count=1)
            assert len(changed) == len(record["text"]) and changed != record["text"]
            record["text"] = changed
            return
    raise AssertionError(f"no {pattern} in the stream")


def other_id(records: list[dict[str, Any]]) -> None:
    in_stream(records, r'"token_ids":\[(\d\d)(\d)\]', lambda m: f'"token_ids":[{m[1]}{(int(m[2]) + 1) % 10}]')


def id_gone(records: list[dict[str, Any]]) -> None:
    in_stream(records, r'"token_ids":\[(\d+)\]', lambda m: f'"token_ids":[{" " * len(m[1])}]')


def id_gone_from_usage_too(records: list[dict[str, Any]]) -> None:
    id_gone(records)
    in_stream(
        records, r'"total_tokens":755,"completion_tokens":512', lambda _: '"total_tokens":754,"completion_tokens":511'
    )


def another_client_in_metrics(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record.get("name") == "metrics-after":
            record["body"] = re.sub(r"(generation_tokens_total\{.*\}) 6657.0", r"\1 6664.0", record["body"])


def cached_prompt(records: list[dict[str, Any]]) -> None:
    in_stream(records, r'"cached_tokens":0\}\}', lambda _: '"cached_tokens":1}}')


FORGED: list[tuple[Edit, str]] = [
    (other_id, "G1"),
    (id_gone, "stream"),
    (id_gone_from_usage_too, "workload"),
    (another_client_in_metrics, "fresh"),
    (cached_prompt, "cache-zero"),
]


def test_an_end_by_another_clock_leaves_a_row_without_a_number(tmp_path: Path) -> None:
    """As a clock looks that was set in mid-answer, which may have happened; nothing is gained by it."""
    campaign = recorded.copy("tiny", tmp_path)
    path = campaign / "attempts" / SUITE
    records = lines_of(path)
    end_moved(records)
    write_lines(path, records)
    assert problems_of(campaign) == []
    evidence = derive(campaign)
    assert evidence.status in (Status.INVALID, Status.WITHHELD, Status.REJECTED)
    assert [row.reason for row in evidence.attempts[0].rows if not row.complete] == ["clock-step"]


@pytest.mark.parametrize(("edit", "gate"), FORGED, ids=[edit.__name__ for edit, _ in FORGED])
def test_edited_ids_fail_a_gate_when_everything_else_is_computed_anew(tmp_path: Path, edit: Edit, gate: str) -> None:
    """The forger derives evidence.json and the manifest anew: what follows from his bytes is no longer passed."""
    campaign = recorded.copy("tiny", tmp_path)
    path = campaign / "attempts" / SUITE
    records = lines_of(path)
    edit(records)
    write_lines(path, records)
    repaired(campaign)
    evidence = json.loads((campaign / "evidence.json").read_text())
    assert evidence["status"] not in ("passed", "started"), evidence["conclusion"]
    gates = [*evidence["gates"], *(one for attempt in evidence["attempts"] for one in attempt["gates"])]
    assert gate in {one["name"] for one in gates if not one["passed"]}, evidence["reasons"]
    evidence["status"], evidence["withheld"], evidence["exit_code"] = "passed", False, 0
    (campaign / "evidence.json").write_bytes(store.dump_json(evidence))
    store.write_manifest(campaign)
    assert any(problem.startswith("evidence.json: status is 'passed'") for problem in verify(campaign).problems)


def test_edited_log_and_server_record(tmp_path: Path) -> None:
    campaign = recorded.copy("tiny", tmp_path)
    log = campaign / "attempts/mtp3-a" / store.LOG
    line = next(line for line in log.read_bytes().splitlines(keepends=True) if b'"POST /v1/completions' in line)
    log.write_bytes(log.read_bytes().replace(line, b"", 1))
    assert problems_of(campaign) == [
        "mtp3-a/server.log: it tells of 28 answers at /v1/completions, ours were 29 (check log); get the original files"
    ]
    record = campaign / "attempts/mtp0-b" / store.SERVER
    raw = json.loads(record.read_text())
    raw["applied"]["started_at"] = "2026-11-30T20:00:00Z"
    record.write_text(json.dumps(raw))
    first = problems_of(campaign)[0]
    assert first.startswith("mtp0-b/server.json: the start of the server is ")
    assert "s before the start of the attempt (check place)" in first


@pytest.mark.parametrize("framing", ["http", "body"])
def test_an_answer_of_another_status_than_200_is_genuine(tmp_path: Path, framing: Literal["http", "body"]) -> None:
    campaign = recorded.copy("tiny", tmp_path)
    log = campaign / "attempts/mtp3-a" / store.LOG
    said = b'"POST /v1/completions HTTP/1.1" '
    log.write_bytes(log.read_bytes().replace(said + b"200 OK", said + b"503 Service Unavailable", 1))
    events = journal.load(campaign)
    files = load_attempts(campaign, events)
    item = next(item for item in files if item.label == "mtp3-a")
    assert item.capture is not None
    first = next(exchange for _, exchange in item.capture.exchanges if b"POST /v1/completions" in exchange.request)
    assert [problem for problem in cross_checks(load_start(events), events, files) if "(check log)" in problem]
    if framing == "http":
        first.data = first.data.replace(b"HTTP/1.1 200 OK", b"HTTP/1.1 503 XX", 1)
    else:
        first.framing, first.status = framing, 503
    assert cross_checks(load_start(events), events, files) == []


def test_a_wall_clock_set_forward_in_a_canary_is_genuine(tmp_path: Path) -> None:
    """The server's own sum of durations is by the wall clock, so it grows by the step."""
    campaign, step_s = recorded.copy("tiny", tmp_path), 60
    path = campaign / "attempts" / SUITE
    records, genuine = lines_of(path), lines_of(path)
    number = next(r["n"] for r in records if r["kind"] == "begin" and r["for"] == "canary" and r["stage"] == "after")
    place = next(at for at, r in enumerate(records) if r["kind"] == "end" and r["n"] == number)
    total = re.compile(r"^(vllm:e2e_request_latency_seconds_sum\S* )(\S+)$", re.MULTILINE)
    grown = 0
    for record in records[place:]:
        for name in ("t0_wall_ns", "end_wall_ns", "at_wall_ns"):
            if name in record:
                record[name] += step_s * 10**9
        if record.get("name") == "metrics-after":
            record["body"], grown = total.subn(lambda m: f"{m[1]}{float(m[2]) + step_s}", record["body"])
    assert grown == 1
    write_lines(path, records)
    assert problems_of(campaign) == []
    # The same sum without a step is still an answer that came sooner than the server was done with it.
    for record, other in zip(genuine, records, strict=True):
        if record.get("name") == "metrics-after":
            record["body"] = other["body"]
    write_lines(path, genuine)
    assert any("(check durations)" in problem for problem in problems_of(campaign))


def test_every_check_is_shown_to_find_something() -> None:
    assert {check for _, check, _ in EDITS} | {"log", "once", "sequence"} == {*CHECKS, "clocks", "once", "sequence"}
