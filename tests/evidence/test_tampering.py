"""Edits that a forger repairs as far as he can: each is refused, and the sentence says what and where."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import zstandard
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harness.errors import EvidenceError
from harness.evidence import journal, store
from harness.evidence.crosscheck import CHECKS, cross_checks
from harness.evidence.derive import derive
from harness.evidence.loading import load_attempts, load_start
from harness.evidence.schema import Status
from harness.evidence.verify import verify
from harness.wire.capture import MAX_EXCHANGES, load_capture
from tests import recorded

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("tiny", "ties", "ladder0", "ladder3ties")
SEED = 20261130
SUITE = "mtp0-a/capture.jsonl.zst"


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a capture."""
    with path.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read()
    return [json.loads(line) for line in data.splitlines()]


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """What an editor of a capture does: the same records, one of them changed."""
    text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    path.write_bytes(zstandard.ZstdCompressor(level=1, write_checksum=True).compress(text.encode()))


def repaired(campaign: Path) -> list[str]:
    """What ``verify`` says after the editor has derived evidence.json anew and written the manifest anew."""
    (campaign / "evidence.json").write_bytes(store.dump_json(derive(campaign).model_dump(mode="json", by_alias=True)))
    store.write_manifest(campaign)
    return verify(campaign).problems


def problems_of(campaign: Path) -> list[str]:
    """The cross-checks alone, of files that nothing else would refuse."""
    events = journal.load(campaign)
    return cross_checks(load_start(events), events, load_attempts(campaign, events))


def shifted(record: dict[str, Any], seconds: float) -> None:
    for name in ("t0_wall_ns", "t0_mono_ns", "end_wall_ns", "end_mono_ns", "at_wall_ns"):
        if name in record:
            record[name] += int(seconds * 1e9)


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


@pytest.mark.parametrize(("of", "file"), [("evidence", "evidence.json"), ("manifest", "manifest.json")])
@pytest.mark.parametrize("version", ["2", "0", "99", ""])
def test_newer_and_older_schemas(tmp_path: Path, of: str, file: str, version: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / file
    raw = json.loads(path.read_text())
    raw["schema"] = raw["schema"].rpartition("/")[0] + f"/{version}"
    path.write_bytes(store.dump_json(raw))
    if of == "evidence":
        store.write_manifest(campaign)
    (problem,) = verify(campaign).problems
    assert problem.startswith(f"{file} ")
    assert "schema" in problem or "is no manifest of this version" in problem


def test_newer_server_record_capture_and_journal(tmp_path: Path) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    for file, old, new, words in (
        (store.SERVER, "b70-bench.server/1", "b70-bench.server/2", "mtp0/server.json: schema: input should be"),
        (store.CAPTURE, "", "", "capture.jsonl.zst isn't a b70-bench.capture/1 file; use the version that wrote it"),
    ):
        path = campaign / "attempts/mtp0" / file
        whole = path.read_bytes()
        if file == store.CAPTURE:
            write_lines(path, [{"kind": "header", "format": "b70-bench.capture/2", "label": "mtp0"}])
        else:
            path.write_text(path.read_text().replace(old, new))
        store.write_manifest(campaign)
        found = verify(campaign).problems
        assert found[0].startswith(words), found
        path.write_bytes(whole)
    path = campaign / journal.NAME
    path.write_text(path.read_text().replace('"event": "attempt-started"', '"event": "attempt-begun"'))
    store.write_manifest(campaign)
    assert (
        verify(campaign).problems[0].startswith("journal.jsonl line 2 is no journal line (Input should be 'campaign-s")
    )


def replaced(campaign: Path, old: str, new: str) -> None:
    path = campaign / journal.NAME
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    store.write_manifest(campaign)


@pytest.mark.parametrize("directory", ["../../../etc", "..", ".", "", "/etc", "mtp0/../mtp0", "nul\\u0000", "x" * 300])
def test_attempt_directory_that_leads_elsewhere(tmp_path: Path, directory: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    replaced(campaign, '"directory": "mtp0"', f'"directory": "{directory}"')
    found = verify(campaign).problems
    assert found and not any("\n" in problem for problem in found)
    assert any("journal.jsonl" in problem or "attempt" in problem or "records" in problem for problem in found), found


@pytest.mark.parametrize(
    "file", ["journal.jsonl", "evidence.json", "manifest.json", "suite.json", "attempts/mtp0/capture.jsonl.zst", "more"]
)
@pytest.mark.parametrize("kind", ["pipe", "link out", "link to itself", "socket", "directory"])
def test_things_that_are_no_files(tmp_path: Path, file: str, kind: str) -> None:
    """None is opened: a pipe without a writer would wait for ever."""
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / file
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link out":
        path.symlink_to("/etc/hostname")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mknod(path, 0o140644)
    found = verify(campaign).problems
    if (file, kind) != ("more", "directory"):
        assert found and path.name in found[0], found
    if kind != "directory":
        assert found[0] == f"{file} is a link or a device; a campaign holds regular files only, remove it"


def test_more_files_than_a_campaign_has(tmp_path: Path) -> None:
    for number in range(store.MAX_FILES + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(EvidenceError, match="there are more than 20000 files; this is no campaign directory"):
        store.campaign_files(tmp_path)
    with (tmp_path / "0").open("wb") as file:
        file.truncate(store.MAX_FILE + 1)
    with pytest.raises(EvidenceError, match="0 is larger than 2 GiB; it is no evidence of ours"):
        store.campaign_files(tmp_path)


LIMITED = """
import resource, sys
limit = int(sys.argv[2]) << 20
from pathlib import Path
from harness.evidence.verify import verify
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print("\\n".join(verify(Path(sys.argv[1])).problems))
"""


def limited(campaign: Path, mebibytes: int = 3072) -> list[str]:
    """``verify`` in a process that may have so much memory; its sentences."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, campaign, str(mebibytes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
    return done.stdout.splitlines()


def bomb(path: Path, parts: Callable[[], Any]) -> None:
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as stream:
        for part in parts():
            stream.write(part)


HEADER = b'{"kind":"header","format":"b70-bench.capture/1","label":"mtp0"}\n'


BEGIN = (
    '{"kind":"begin","n":0,"for":"suite","name":"x","stage":"","request_id":"",'
    '"t0_wall_ns":0,"t0_mono_ns":0,"request":{"text":""}}\n'
)


def zeros() -> Any:
    return (b"0" * (1 << 20) for _ in range(4096))


def exchanges() -> Any:
    yield HEADER
    line = BEGIN.replace('"n":0', '"n":%d')
    for start in range(0, MAX_EXCHANGES + 1000, 1000):
        yield "".join(line % number for number in range(start, start + 1000)).encode()


def reads() -> Any:
    yield HEADER
    yield BEGIN.encode()
    many = b",".join([b"0"] * 1_000_000)
    for _ in range(11):
        yield b'{"kind":"reads","n":0,"after_ns":[%b],"lag_ns":[%b],"size":[%b],"kernel":true,"text":""}\n' % (
            many,
            many,
            many,
        )


def deep() -> Any:
    yield HEADER
    yield b"[" * (1 << 20) + b"]" * (1 << 20) + b"\n"


def long_number() -> Any:
    yield HEADER
    yield b'{"kind":"control","name":"x","path":"","at_wall_ns":' + b"9" * (1 << 20) + b"}\n"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (zeros, "capture.jsonl.zst has a line over 64 MiB; it's no capture of ours"),
        (exchanges, f"capture.jsonl.zst has more than {MAX_EXCHANGES} exchanges or 4000000 reads"),
        (reads, f"capture.jsonl.zst has more than {MAX_EXCHANGES} exchanges or 4000000 reads"),
        (deep, "capture.jsonl.zst line 2 is not a capture record (RecursionError"),
        (long_number, "capture.jsonl.zst line 2 is not a capture record (ValueError"),
    ],
    ids=["zeros", "ten million rows", "eleven million reads", "deep", "long number"],
)
def test_bomb_in_a_capture(tmp_path: Path, parts: Callable[[], Any], words: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / "attempts/mtp0" / store.CAPTURE
    bomb(path, parts)
    assert path.stat().st_size < 8 << 20
    store.write_manifest(campaign)
    found = limited(campaign)
    assert len(found) == 1 and found[0].startswith(words), found


@pytest.mark.parametrize("file", ["evidence.json", "manifest.json", "attempts/mtp0/server.json", "journal.jsonl"])
@pytest.mark.parametrize("what", ["lists", "deep", "number", "sparse"])
def test_bomb_in_a_json_file(tmp_path: Path, file: str, what: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / file
    size = 12 << 20
    data = {
        "lists": b"[" + b",".join([b"[]"] * (size // 3)) + b"]",
        "deep": b'{"a":' * (size // 10) + b"1" + b"}" * (size // 10),
        "number": b'{"a":' + b"9" * size + b"}",
        "sparse": b"{",
    }[what]
    path.write_bytes(data + b"\n")
    if what == "sparse":
        os.truncate(path, 1 << 30)
    if file != "manifest.json":
        store.write_manifest(campaign)
    found = limited(campaign)
    assert found and path.name in found[0], found


def test_whole_campaign_needs_no_more_than_that() -> None:
    assert limited(recorded.campaign("tiny")) == [""]


def test_capture_with_the_most_that_is_allowed_loads(tmp_path: Path) -> None:
    path = tmp_path / store.CAPTURE
    bomb(path, lambda: [HEADER])
    assert load_capture(path).exchanges == []
