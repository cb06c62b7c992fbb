"""Case 56: what a server runs at once stands beside what it was asked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest

from harness.evidence.looks import counts_of, look_name, rung_looks
from harness.launch.server import Endpoint
from harness.looks import EVERY_S, MOST, Looks
from harness.wire.capture import Control, load_capture
from tests.bench import bench, campaign_of, until
from tests.ladders import ladder, launcher, without_client


def look(running: float, waiting: float, stage: str = "c032-p01", status: int | None = 200) -> Control:
    body = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
    return Control(look_name(stage), "/metrics", 1, status, body)


def test_56_the_peak_is_over_all_looks_and_their_engines() -> None:
    two = Control(look_name("c032-p01"), "/metrics", 1, 200, look(3, 1).body + look(4, 0).body)
    assert counts_of(two) == (7, 1)
    (found,) = rung_looks([look(2, 0), two, look(0, 0), look(31, 0, "c064-p01")], {32: ["c032-p01", "c032-p02"]})
    assert (found.rung, found.looks, found.peak, found.waiting, found.note) == (32, 2, 7, 1, "")


def test_56_a_look_that_says_nothing_counts_for_nothing() -> None:
    assert counts_of(look(8, 1, status=503)) is None and counts_of(look(8, 1, status=None)) is None
    (found,) = rung_looks([look(8, 24, status=None)], {32: ["c032-p01"]})
    assert (found.looks, found.peak, found.waiting, found.note) == (0, None, None, "")
    assert rung_looks([look(8, 24, "c016-p01")], {32: ["c032-p01"]}) == []


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ([(8, 24), (8, 16), (8, 8), (8, 0)], True),
        ([(8, 24), (32, 0), (32, 0)], False),
        ([(5, 27), (20, 12), (20, 0)], False),
        ([(8, 24)], False),
        ([(20, 0), (20, 0)], False),
    ],
)
def test_56_a_server_that_keeps_a_queue_is_named_and_one_that_takes_all_in_is_not(
    seen: list[tuple[int, int]], named: bool
) -> None:
    (found,) = rung_looks([look(*counts) for counts in seen], {32: ["c032-p01"]})
    assert bool(found.note) is named
    if named:
        assert found.note.startswith("c32: the server ran 8 of 32 requests at a time at most, and up to 24 waited")


def test_56_a_server_that_runs_four_of_sixteen_is_named_and_its_rate_is_tokens_by_wall(tmp_path: Path) -> None:
    path = launcher(tmp_path, step_us=4000)
    path.write_text(path.read_text().replace("max_num_seqs = 64", "max_num_seqs = 4"))
    done, evidence = ladder(tmp_path, path, rungs="4,16", passes=2)
    (attempt,) = evidence["attempts"]
    four, sixteen = attempt["rung_looks"]
    assert (four["peak"], four["waiting"], four["note"]) == (4, 0, "")
    assert (sixteen["peak"], sixteen["waiting"]) == (4, 12)
    assert f"- {attempt['directory']}: {sixteen['note']}" in done.out.replace("\n  ", " ")
    assert sixteen["note"].startswith("c16: the server ran 4 of 16 requests at a time at most, and up to 12 waited")
    for batch in attempt["batches"]:
        last = max(item["last_byte_ms"] for item in batch["requests"])
        assert batch["aggregate_tok_s_wall"] == pytest.approx(128 * batch["rung"] / last * 1e3)
        assert len(batch["requests"]) == batch["rung"], "all were asked"
    assert without_client(evidence["reasons"]) == []
    assert bench("report", campaign_of(tmp_path), "--out", tmp_path / "page.html", cwd=tmp_path).code == 0
    page = (tmp_path / "page.html").read_text()
    assert "ran at once" in page and "c16: the server ran 4 of 16 requests at a time at most" in page


def test_56_looks_are_few_and_keep_only_two_gauges(tmp_path: Path) -> None:
    ladder(tmp_path, launcher(tmp_path, step_us=8000), rungs="4", passes=2)
    (path,) = campaign_of(tmp_path).glob("attempts/*/capture.jsonl.zst")
    controls = load_capture(path).controls
    for stage in ("c004-p01", "c004-p02"):
        looks = [control for control in controls if control.name == look_name(stage)]
        assert 2 <= len(looks) <= MOST
        starts = [control.at_wall_ns / 1e9 for control in looks]
        assert all(later - earlier >= EVERY_S - 0.01 for earlier, later in pairwise(starts))
        assert all(
            line.startswith(("vllm:num_requests_running ", "vllm:num_requests_waiting "))
            for control in looks
            for line in control.body.splitlines()
        )


class _Metrics(BaseHTTPRequestHandler):
    """/metrics that says what ``answer`` holds, or never answers."""

    answer: ClassVar[bytes | None] = b""
    asked: ClassVar[list[str]] = []
    free: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        type(self).asked.append(str(self.headers.get("Authorization")))
        if self.answer is None:
            self.free.wait(20)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@contextmanager
def metrics(answer: bytes | None) -> Iterator[Endpoint]:
    _Metrics.answer, _Metrics.asked = answer, []
    _Metrics.free.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Metrics)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Endpoint("127.0.0.1", server.server_address[1])
    finally:
        _Metrics.free.set()
        server.shutdown()
        server.server_close()
        thread.join()


TEXT = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="/srv/secret/model"} 7.0
vllm:num_requests_running{engine="1",model_name="/srv/secret/model"} 1.0
vllm:num_requests_waiting{engine="0",model_name="/srv/secret/model"} 24.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 24.0
vllm:generation_tokens_total{engine="0"} 5.0
"""


def test_56_a_look_reads_two_gauges_of_all_engines_and_no_path() -> None:
    with metrics(TEXT) as endpoint, Looks(endpoint, (("Authorization", "Bearer x"),), "c032-p01") as looks:
        until(lambda: looks.controls)
    (first, *_) = looks.controls
    assert counts_of(first) == (8, 24) and "secret" not in first.body and "generation" not in first.body
    assert set(_Metrics.asked) == {"Bearer x"}


def test_56_a_server_that_does_not_answer_a_look_stops_nothing() -> None:
    with metrics(None) as endpoint:
        with Looks(endpoint, (), "c032-p01") as looks:
            until(lambda: _Metrics.asked)
        _Metrics.free.set()
    assert [control.status for control in looks.controls] == [None] and looks.controls[0].error
    assert all(thread.name != "looks" for thread in threading.enumerate()), "its thread is gone"


def test_56_nobody_there_is_said_in_the_look() -> None:
    with metrics(TEXT) as endpoint:
        pass
    with Looks(endpoint, (), "c032-p01") as looks:
        until(lambda: looks.controls)
    assert looks.controls[0].status is None and "Error" in looks.controls[0].error
