"""Whole campaigns against a hostile server that runs already (``--engine attach``): sections B, C and D."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import LaunchError
from harness.evidence.attempts import request_body
from harness.evidence.schema import Evidence
from harness.evidence.verify import verify
from harness.launch.attach import AttachedServer, parse_url
from harness.launch.control import ControlClient
from harness.sender import Access, Sender
from harness.session import Session
from harness.strict_work import StrictWork
from harness.suites import load_suite
from harness.wire.capture import load_capture
from harness.wire.transport import Deadlines
from tests.bench import ROOT, bench, campaign_of, evidence_of, gate_of
from tests.hostile.server import MODEL, Engine, Script, engine, good_answer
from tests.recorded import campaign
from tests.wire.build import DONE, ERROR, GOOD, chunk, chunked, page, usage
from tests.wire.scripted import PATIENCE_S, Peer, Step, hold, meet, reset, send

ATTACH = ("--mtp", "0", "--engine", "attach", "--launcher", "attach", "--url")


def whole(pieces: list[bytes], **options: bool) -> Step:
    """An answer at once."""
    return send(b"".join(chunked(pieces, **options)))


def good(number: int, **options: Any) -> Script:
    """A whole answer with a stream id of its own, in one write a token."""
    return [send(write) for write in good_answer(stream_id=f"cmpl-{number}", **options)]


STEADY = pytest.mark.xdist_group("steady")
"""One worker measures it, for all of these"""


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Path, Any]:
    """(server, campaign, evidence) of a suite whose answers are all good. The environment has a dead proxy, and the
    address is ``localhost``, which resolves to ::1 first where nothing listens."""
    home = tmp_path_factory.mktemp("steady")
    with engine(lambda body, number: good(number)) as server:
        bench("strict", *ATTACH, f"http://localhost:{server.port}", cwd=home)
    folder = campaign_of(home)
    assert verify(folder).problems == []
    return server, folder, evidence_of(folder)


@STEADY
def test_61_62_a_dead_proxy_and_an_ambiguous_name_are_no_obstacle(steady: tuple[Engine, Path, Any]) -> None:
    _, _, evidence = steady
    (attempt,) = evidence["attempts"]
    assert len(attempt["rows"]) == 12 and all(row["complete"] for row in attempt["rows"])
    assert gate_of(evidence, "stream")["passed"] and gate_of(evidence, "canaries")["passed"]


@STEADY
def test_40_every_model_call_that_the_server_saw_is_listed(steady: tuple[Engine, Path, Any]) -> None:
    server, folder, _ = steady
    listed: Counter[tuple[str, str]] = Counter()
    for path in folder.glob("attempts/*/capture.jsonl.zst"):
        for _, exchange in load_capture(path).exchanges:
            target = exchange.request.split(b" ", 2)[1].decode()
            listed[target, json.dumps(request_body(exchange), sort_keys=True)] += 1
    assert server.calls() == listed and listed.total() == 1 + 8 + 3 + 12 + 8 + 3


@STEADY
def test_39_nothing_asked_before_the_suite_stands_in_it(steady: tuple[Engine, Path, Any]) -> None:
    server, _, _ = steady
    measured = [body["prompt"] for _, body in server.asked if body.get("stream")]
    others = [json.dumps(body) for _, body in server.asked if not body.get("stream")]
    assert len(set(measured)) == len(measured) == 12
    assert not any(prompt[:60] in other for prompt in measured for other in others)


@STEADY
def test_43_55_requests_come_one_at_a_time_and_their_gaps_are_recorded(steady: tuple[Engine, Path, Any]) -> None:
    server, _, evidence = steady
    assert server.at_once == 1
    assert evidence["attempts"][0]["client"]["gap_between_requests_max_ms"] > 0


@STEADY
def test_an_attached_server_is_never_fresh(steady: tuple[Engine, Path, Any]) -> None:
    _, _, evidence = steady
    assert evidence["status"] == "withheld" and evidence["exit_code"] == 1
    assert "never fresh" in gate_of(evidence, "fresh")["failures"][0]


THREE = [chunk([5], "a", prompt_ids=[1, 2, 3]), chunk([6, 7], "b c", finish="stop"), usage(3), DONE]
STRIKES: list[tuple[str, Script, str | None]] = [
    ("a good one", good(0), None),
    ("an error event after some ids", [whole([*GOOD[:2], ERROR, DONE])], "error-event"),
    ("a reset", [whole(GOOD[:2], last=False), reset], "connection-reset"),
    ("null ids", [whole([chunk(None, "a"), chunk(None, "b", finish="stop"), usage(2), DONE])], "ids-missing"),
    ("done without finish", [whole([*GOOD[:2], usage(3), DONE])], "finish-missing"),
    ("finish without done", [whole(GOOD[:4])], "done-missing"),
    ("no usage", [whole([*GOOD[:3], DONE])], "usage-missing"),
    ("two usages", [whole([*GOOD[:3], usage(4), usage(5), DONE])], "usage-conflict"),
    ("an id that is lost", [whole([*GOOD[:3], usage(5), DONE])], "usage-ids-mismatch"),
    ("words after done", [whole([*GOOD, *GOOD])], "after-done"),
    ("stopped after three", [whole(THREE)], None),
    ("another kind", [send(b"".join(page("200 OK", "text/html", b"<html>")))], "not-event-stream"),
]


def test_27_to_46_twelve_prompts_are_struck_by_twelve_faults(tmp_path: Path) -> None:
    with engine(lambda body, number: STRIKES[number][1]) as server:
        done = bench("strict", *ATTACH, server.url, cwd=tmp_path)
    assert verify(campaign_of(tmp_path)).problems == []
    evidence = evidence_of(campaign_of(tmp_path))
    (attempt,) = evidence["attempts"]
    assert done.err == "" and done.code == evidence["exit_code"] == 1
    assert [row["reason"] for row in attempt["rows"]] == [reason for _, _, reason in STRIKES]
    assert sum(body.get("stream", False) for _, body in server.asked) == 12, "none is asked again"
    assert attempt["class_balanced_median"] is attempt["median_ttft_ms"] is None and attempt["class_medians"] == {}
    assert evidence["pairs"][0]["center"] is None, "no median over the survivors"
    failures = gate_of(evidence, "stream")["failures"]
    for row in attempt["rows"]:
        said = [failure for failure in failures if f": {row['prompt_id']} is incomplete ({row['reason']})" in failure]
        assert len(said) == (0 if row["complete"] else 1)
    early = attempt["rows"][10]
    assert any(f"{early['prompt_id']} has 3 ids" in said for said in gate_of(evidence, "workload")["failures"])


# a ladder

USERS, SLOTS = 48, 8


def throttled() -> Callable[[dict[str, Any], int], Script]:
    """First every slot alone; then nothing until all connections stand, and eight at a time from there on."""
    together, places = threading.Barrier(USERS), threading.Semaphore(SLOTS)

    def take(peer: Peer) -> None:
        assert places.acquire(timeout=PATIENCE_S)

    def script(body: dict[str, Any], number: int) -> Script:
        start = int(hashlib.sha256(body["prompt"].encode()).hexdigest(), 16) % 1000
        writes = good_answer(128, start=start, stream_id=f"cmpl-{number}", finish="length")
        if number < USERS:
            return [send(b"".join(writes))]
        return [meet(together), take, *(send(write) for write in writes), lambda peer: places.release()]

    return script


def test_53_to_56_a_rung_of_a_server_that_throttles(tmp_path: Path) -> None:
    with engine(throttled()) as server:
        bench("ladder", *ATTACH, server.url, "--rungs", str(USERS), "--passes", "1", cwd=tmp_path)
    assert verify(campaign_of(tmp_path)).problems == []
    assert server.at_once == USERS, "all of them arrived, and not one more"
    assert server.peak - USERS in (0, 1), "beside them at most one connection that looks at /metrics"
    evidence = evidence_of(campaign_of(tmp_path))
    (batch,) = evidence["attempts"][0]["batches"]
    requests = batch["requests"]
    assert (len(requests), batch["exact"]) == (USERS, USERS)
    last = max(item["last_byte_ms"] for item in requests)
    assert batch["aggregate_tok_s_wall"] == pytest.approx(128 * USERS / last * 1e3), "tokens by wall, not rate by users"
    assert all(item["ttft_ms"] > 0 and item["released_ms"] >= item["asked_release_ms"] == 0 for item in requests)
    assert batch["release_error_max_ms"] == max(item["released_ms"] for item in requests), "the spread of the arrivals"
    waits = sorted(item["ttft_ms"] for item in requests)
    assert waits[-1] > waits[0], "the server's queue is in the TTFT"
    (rung,) = evidence["rungs"]
    assert rung["tok_s"] is None and rung["warm_up_tok_s"] == batch["aggregate_tok_s_wall"], "one pass is the warm-up"


def test_45_an_ignored_ignore_eos_makes_the_rung_invalid(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Script:
        assert body["ignore_eos"] is True and body["max_tokens"] == 128
        return [whole(THREE)] if number % 2 else good(number, ids=128, start=7, finish="length")

    with engine(script) as server:
        done = bench("ladder", *ATTACH, server.url, "--rungs", "2", "--passes", "1", cwd=tmp_path)
    evidence = evidence_of(campaign_of(tmp_path))
    (batch,) = evidence["attempts"][0]["batches"]
    assert done.code == 1 and evidence["rungs"][0]["withheld"]
    assert sorted(str(item["reason"]) for item in batch["requests"]) == ["None", "ignore-eos-not-honoured"]
    assert batch["aggregate_tok_s_wall"] is None


# a server that hangs, without the patience of a real campaign


class Quiet:
    """A watcher of rows; see harness.watching.Watcher."""

    def row(self, label: str, row: object, total: int) -> None:
        """Nothing."""


def run_suite(url: str, folder: Path, deadlines: Deadlines) -> None:
    """The strict suite on a server that is there, by a recorded campaign's plan. Raises LaunchError when it fails."""
    start = Evidence.model_validate(evidence_of(campaign("tiny"))).start
    changes = {"engine": "attach", "url": url, "served_model_name": MODEL, "image": None, "image_id": None}
    plan, endpoint = start.plan.servers[0].model_copy(update=changes), parse_url(url)
    suite = load_suite(str(ROOT / "suites" / "strict-v1.json"))
    (folder / "log").touch()
    sender = Sender(endpoint, Access(deadlines), folder / "capture.jsonl.zst", {"label": plan.label})
    control = ControlClient(endpoint, record=sender.record)
    try:
        session = Session(plan, AttachedServer(endpoint), sender, control, folder / "log", lambda text: None)
        StrictWork(suite, start.suite, Quiet()).run(session)  # type: ignore[arg-type]
    finally:
        control.close()
        sender.capture.close()


def test_49_a_server_that_hangs_is_asked_no_further_and_its_bytes_are_kept(tmp_path: Path) -> None:
    cut = b"".join(good_answer()[:41])
    with engine(lambda body, number: [send(cut), hold]) as server:
        with pytest.raises(LaunchError, match=r"mtp0-a: the server hangs \(\S+: idle-timeout after \d+ bytes and 40 "):
            run_suite(server.url, tmp_path, Deadlines(first_byte_s=20, idle_s=0.4))
        assert sum(body.get("stream", False) for _, body in server.asked) == 1
    ((_, kept),) = load_capture(tmp_path / "capture.jsonl.zst").of_kind("suite")
    assert kept.data == cut


def test_49_a_server_that_breaks_off_and_is_unhealthy_is_dead(tmp_path: Path) -> None:
    with engine(lambda body, number: [whole(GOOD[:2], last=False)]) as server:
        server.healthy = False
        with pytest.raises(LaunchError, match=r"truncated-body, .*; the engine is dead \(/health: 503\)"):
            run_suite(server.url, tmp_path, Deadlines())


def test_36_a_server_that_is_busy_is_not_asked_again_behind_our_back(tmp_path: Path) -> None:
    busy = b"".join(page("503 Service Unavailable", "text/plain", b"busy", "Retry-After: 0"))

    def script(body: dict[str, Any], number: int) -> Script:
        return [send(busy)] if number == 0 else good(number)

    with engine(script) as server:
        run_suite(server.url, tmp_path, Deadlines())
    captured = load_capture(tmp_path / "capture.jsonl.zst").of_kind("suite")
    assert len(captured) == 12 and sum(body.get("stream", False) for _, body in server.asked) == 12
    assert captured[0][1].data == busy and b"busy" not in captured[1][1].data
