"""Campaigns against the real simulated server: each fault ends in its status, its exit code and its sentence."""

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.verify import verify
from tests.bench import (
    Done,
    bench,
    campaign_of,
    evidence_of,
    gate_of,
    running,
    servers_left,
    strict,
    wait_for_line,
    write_launcher,
)

PATH = re.compile(r"(?<![\w.<>/:-])/(?:home|root|tmp|mnt)/")


def run(tmp_path: Path, *faults: str, depth: int = 0, **launcher: Any) -> tuple[Done, Any]:
    """A campaign with ``faults``, ended and verified; (command, evidence)."""
    words = [word for fault in faults for word in ("--fault", fault)]
    done = strict(tmp_path, write_launcher(tmp_path, **launcher), *words, depth=depth)
    assert done.err == ""
    campaign = campaign_of(tmp_path)
    assert verify(campaign).problems == []
    assert servers_left(campaign) == []
    assert not (campaign / "caches").exists()
    return done, evidence_of(campaign)


def test_passed_campaign(passed: Path, passed_output: Done) -> None:
    evidence = evidence_of(passed)
    assert (evidence["status"], evidence["exit_code"], evidence["withheld"]) == ("passed", 0, False)
    assert evidence["reasons"] == []
    assert [attempt["label"] for attempt in evidence["attempts"]] == ["mtp0-a", "mtp0-b", "mtp3-a", "mtp3-b"]
    assert {attempt["status"] for attempt in evidence["attempts"]} == {"complete"}
    assert [(g["name"], g["subject"], g["exact"], g["total"]) for g in evidence["gates"]] == [
        ("G1", "mtp0-a vs mtp0-b", 12, 12),
        ("G2", "mtp3-a vs mtp3-b", 12, 12),
        ("G3", "mtp3-a vs mtp0-a", 12, 12),
        ("G3", "mtp3-b vs mtp0-a", 12, 12),
    ]
    names = ["workload", "stream", "cache-zero", "canaries", "degenerate", "fresh", "client", "host"]
    for attempt in evidence["attempts"]:
        assert [gate["name"] for gate in attempt["gates"]] == names
        assert all(gate["passed"] for gate in attempt["gates"])
        assert [check["name"] for check in attempt["canaries_after"]["checks"]] == [
            "repeat",
            "arithmetic",
            "copy",
            "json",
        ]
    base, arm = evidence["pairs"]
    assert (base["name"], base["acceptance_rate"], arm["name"]) == ("mtp0", None, "mtp3")
    assert base["center"] == (base["a"] + base["b"]) / 2
    assert arm["center"] > 2 * base["center"]
    assert 0.5 < arm["acceptance_rate"] < 0.9 and 2.5 < arm["mean_acceptance_length"] < 4
    assert len({attempt["server"]["applied"]["server_id"] for attempt in evidence["attempts"]}) == 4
    assert "simulated" in evidence["start"]["lane_title"].lower() and evidence["simulated"] is True
    assert evidence["conclusion"].startswith("SIMULATED, no measurement: MTP3 TP1 on fast: ")
    assert passed_output.out.splitlines()[-1] == f"next: bench verify experiments/{passed.name}"


def test_nothing_of_this_host_stands_in_evidence(passed: Path) -> None:
    for name in ("evidence.json", "journal.jsonl", "suite.json", "manifest.json"):
        text = (passed / name).read_text()
        assert str(passed.parents[1]) not in text, name
        assert not PATH.search(text), (name, PATH.search(text))


def test_tie_fails_g3_on_both_servers_and_keeps_the_speeds(tmp_path: Path) -> None:
    done, evidence = run(tmp_path, "tie:3", depth=3)
    assert (done.code, evidence["status"], evidence["withheld"]) == (1, "withheld", True)
    exact = {(g["name"], g["subject"]): (g["exact"], g["total"], g["passed"]) for g in evidence["gates"]}
    assert exact == {
        ("G1", "mtp0-a vs mtp0-b"): (12, 12, True),
        ("G2", "mtp3-a vs mtp3-b"): (12, 12, True),
        ("G3", "mtp3-a vs mtp0-a"): (9, 12, False),
        ("G3", "mtp3-b vs mtp0-a"): (9, 12, False),
    }
    for gate in evidence["gates"][2:]:
        assert [d["first_divergence_token_zero_based"] for d in gate["divergences"]] == [57, 57, 57]
        assert all(d["left_id"] != d["right_id"] for d in gate["divergences"])
        assert {d["left_length"] for d in gate["divergences"]} == {110}
    assert all(pair["center"] > 0 for pair in evidence["pairs"])
    assert "G3 9/12 (mtp3-a vs mtp0-a)" in done.out and "(withheld)" in done.out
    assert "differs at token 57" in done.out


def test_unstable_base_is_rejected_after_two_servers(tmp_path: Path) -> None:
    done, evidence = run(tmp_path, "unstable:2", depth=3)
    assert (done.code, evidence["status"]) == (1, "rejected")
    assert [attempt["label"] for attempt in evidence["attempts"]] == ["mtp0-a", "mtp0-b"]
    assert [(g["name"], g["exact"], g["total"]) for g in evidence["gates"]] == [("G1", 10, 12)]
    assert evidence["pairs"][0]["center"] > 0, "a failed gate never deletes a speed"
    assert "rejected: MTP3 TP1 on fast: rejected, the base is not repeat-exact" in done.out


@pytest.mark.parametrize(
    ("fault", "gate", "sentence"),
    [
        ("cached-tokens", "cache-zero", "took 16 prompt tokens from a cache"),
        ("cached-missing", "cache-zero", "has no cached_tokens; start the server with --enable-prompt-tokens-details"),
        ("garbage", "degenerate", "has the id 0 in 110 of its 110 places"),
        ("short:60", "workload", "has 60 ids, fewer than 100"),
        ("bad-canary", "canaries", "canary arithmetic before the suite: the answer does not contain the number 4183"),
    ],
)
def test_gate_that_fails_withholds_the_number(tmp_path: Path, fault: str, gate: str, sentence: str) -> None:
    done, evidence = run(tmp_path, fault, ids=None if fault.startswith("short") else 110)
    # A row below 100 ids can't be compared either, and then the base is not exact.
    assert (done.code, evidence["status"]) == (1, "rejected" if fault == "short:60" else "withheld")
    found = gate_of(evidence, gate)
    assert not found["passed"]
    assert any(sentence in failure for failure in found["failures"]), found["failures"]
    assert all(failure.startswith("mtp0-a: ") for failure in found["failures"])
    assert set(found["failures"]) <= set(evidence["reasons"])


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no-done", "done-missing"),
        ("no-finish", "finish-missing"),
        ("no-usage", "usage-missing"),
        ("null-ids", "ids-missing"),
        ("drops-id", "usage-ids-mismatch"),
        ("error-event", "error-event"),
    ],
)
def test_broken_stream_has_a_reason_and_no_median(tmp_path: Path, fault: str, reason: str) -> None:
    done, evidence = run(tmp_path, fault)
    assert (done.code, evidence["status"]) == (1, "invalid")
    attempt = evidence["attempts"][0]
    assert attempt["status"] == "complete" and len(attempt["rows"]) == 12
    assert {row["reason"] for row in attempt["rows"]} == {reason}
    assert not any(row["complete"] for row in attempt["rows"])
    assert attempt["class_balanced_median"] is None and attempt["median_ttft_ms"] is None
    assert evidence["pairs"][0]["center"] is None
    assert not gate_of(evidence, "stream")["passed"]
    assert f"is incomplete ({reason})" in done.out


@pytest.mark.parametrize("fault", ["left-open", "chunks-cut"])
def test_odd_but_whole_stream_is_good(tmp_path: Path, fault: str) -> None:
    _, evidence = run(tmp_path, fault)
    failed = {g["name"] for a in evidence["attempts"] for g in [*a["gates"], *evidence["gates"]] if not g["passed"]}
    assert failed <= {"client"}, "how fast this machine is, is not the question here"
    assert all(row["complete"] and len(row["token_ids"]) == 110 for a in evidence["attempts"] for row in a["rows"])
    assert evidence["pairs"][0]["center"] > 0


def test_answer_in_one_read_has_no_rate_and_is_no_verdict(tmp_path: Path) -> None:
    done, evidence = run(tmp_path, "one-read")
    assert gate_of(evidence, "stream")["passed"] and gate_of(evidence, "G1")["exact"] == 12
    assert evidence["pairs"][0]["center"] is None
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert any("has no rate, so there is no median" in reason for reason in evidence["reasons"])
    refused = bench(
        *("strict", "--mtp", "0", "--launcher", tmp_path / "fast.toml", "--fault", "one-read"),
        *("--resume", campaign_of(tmp_path)),
        cwd=tmp_path,
    )
    assert refused.code == 64 and "there is nothing to resume" in refused.sentence


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("engine-dies", "error-event, the server sent the error: EngineCore encountered an issue"),
        ("engine-vanishes", "connection-reset"),
    ],
)
def test_engine_that_dies_leaves_no_verdict_and_a_way_on(tmp_path: Path, fault: str, words: str) -> None:
    done, evidence = run(tmp_path, fault, depth=3)
    assert (done.code, evidence["status"]) == (2, "invalid")
    (attempt,) = evidence["attempts"]
    assert (attempt["label"], attempt["status"]) == ("mtp0-a", "invalid")
    assert len(attempt["rows"]) == 3 and [row["complete"] for row in attempt["rows"]] == [True, True, False]
    assert words in attempt["error"] and "the server has ended with exit code" in attempt["error"]
    assert "its last log lines:" in attempt["error"]
    assert f"next: bench strict --mtp 3 --launcher {tmp_path / 'fast.toml'} --fault {fault} --resume exp" in done.out


@pytest.mark.parametrize(
    ("fault", "limits", "words"),
    [
        ("never-ready", {"ready_s": 1.5}, "mtp0-a: not ready within 1.5 s (/health: HTTP 503); its last log lines:"),
        ("silent-start", {"stall_s": 1.5}, "mtp0-a: stalled, no new log line for 1.5 s and not ready after"),
        ("dies-at-start", {}, "mtp0-a: the server has ended with exit code 1; its last log lines:"),
        ("wrong-model", {}, "mtp0-a: the server on this port serves simulated-other, not simulated; it isn't ours"),
    ],
)
def test_server_that_does_not_start(tmp_path: Path, fault: str, limits: dict[str, Any], words: str) -> None:
    done, evidence = run(tmp_path, fault, **limits)
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert evidence["attempts"][0]["rows"] == []
    assert evidence["reasons"][0].startswith(words)
    assert words.removesuffix("; its last log lines:") in done.out
    assert evidence["attempts"][0]["server"]["stop"]["gone"] is True


def test_error_sentence_keeps_no_path_of_the_host(tmp_path: Path) -> None:
    """A server that dies with a traceback, whose paths would otherwise stand in evidence."""
    launcher = write_launcher(tmp_path)
    launcher.write_text(launcher.read_text().replace('"--ttft-ms"', '"--weird", "/opt/site/er/file.py", "--ttft-ms"'))
    done = strict(tmp_path, launcher)
    assert done.code == 2
    evidence = evidence_of(campaign_of(tmp_path))
    error = evidence["attempts"][0]["error"]
    assert error.startswith("mtp0-a: the server has ended with exit code 64; its last log lines:\n")
    assert error.endswith("unrecognized arguments: --weird <path>/file.py")
    assert "--weird /opt/site/er/file.py" in done.out, "the terminal shows it whole"


def test_depth_that_never_reached_the_server_is_found_before_the_first_prompt(tmp_path: Path) -> None:
    done, evidence = run(tmp_path, "spec-off", depth=1)
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert [(a["label"], a["status"], len(a["rows"])) for a in evidence["attempts"]] == [
        ("mtp0-a", "complete", 12),
        ("mtp0-b", "complete", 12),
        ("mtp1-a", "invalid", 0),
    ]
    words = "mtp1-a: the server reports no spec_decode metrics, so MTP depth 1 never reached it"
    assert words in evidence["reasons"] and words in done.out


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("warm-cache", "the log tells of a compiled graph that was in the cache (1 times)"),
        ("foreign-request", "the server had answered 2 requests before the suite, ours was 1"),
    ],
)
def test_what_a_ready_server_shows_is_refused_before_the_first_prompt(
    tmp_path: Path, fault: str, sentence: str
) -> None:
    done, evidence = run(tmp_path, fault)
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert [(a["label"], a["status"], len(a["rows"])) for a in evidence["attempts"]] == [("mtp0-a", "invalid", 0)]
    assert f"mtp0-a: {sentence}" in evidence["reasons"]


def test_configuration_that_is_not_the_asked_one_is_refused_before_the_first_prompt(tmp_path: Path) -> None:
    """The launcher believes that its server compiles, and hands it an argument that says otherwise."""
    launcher = tmp_path / "eager.toml"
    text = (Path(__file__).parents[1] / "launchers" / "simulated.toml").read_text(encoding="utf-8")
    launcher.write_text(text.replace("arguments = [", 'arguments = ["--enforce-eager", '))
    done = bench("strict", "--mtp", "0", "--launcher", launcher, cwd=tmp_path)
    evidence = evidence_of(campaign_of(tmp_path))
    assert (done.code, evidence["status"], evidence["attempts"][0]["rows"]) == (2, "invalid", [])
    assert "mtp0-a: the server's enforce_eager is True, asked was to compile" in evidence["reasons"]
    proof = evidence["attempts"][0]["proof"]
    assert proof["resolved"]["sources"] == ["/server_info"] and proof["resolved"]["enforce_eager"] is True
    assert "dtype" in proof["resolved"]["unknown"], "what the server does not show is unknown by name"


class Healthy(BaseHTTPRequestHandler):
    """A stale server: healthy, and not ours."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stale() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


def test_port_that_another_server_holds(tmp_path: Path, stale: int) -> None:
    done, evidence = run_port(tmp_path, stale)
    words = f"port {stale} on 127.0.0.1 is already taken by another server; stop it or choose another --port"
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert evidence["reasons"] == [words]
    assert f"mtp0-a: invalid: {words}" in done.out


def run_port(tmp_path: Path, port: int) -> tuple[Done, Any]:
    done = strict(tmp_path, write_launcher(tmp_path), "--port", str(port))
    return done, evidence_of(campaign_of(tmp_path))


def test_chosen_port_is_used_by_every_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    _, evidence = run_port(tmp_path, port)
    assert [attempt["status"] for attempt in evidence["attempts"]] == ["complete", "complete"]
    assert evidence["gates"][0]["passed"]


def test_directory_of_a_running_campaign_is_locked(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path, step_us=20_000)
    with running("strict", "--mtp", "0", "--launcher", launcher, cwd=tmp_path) as first:
        wait_for_line(first, "1/12 ")
        campaign = campaign_of(tmp_path)
        second = strict(tmp_path, launcher, "--resume", campaign)
        assert second.code == 2
        assert second.sentence == (
            f"{campaign.name} is in use by another campaign (unnamed); wait for it, or stop it first"
        )


def test_file_system_that_takes_no_more_ends_in_one_sentence(tmp_path: Path) -> None:
    """A limit on file size stands for the full disk: evidence.json grows beyond it, captures do not."""
    launcher = write_launcher(tmp_path)
    words = ["strict", "--mtp", "0", "--launcher", str(launcher)]
    done = limited(tmp_path, words, 40_000)
    assert done.code == 2
    assert done.sentence.startswith(
        "evidence.json can't be written (File too large); free space or choose another --out"
    )
    campaign = campaign_of(tmp_path)
    assert servers_left(campaign) == []
    again = bench(*words, "--resume", campaign, cwd=tmp_path)
    evidence = evidence_of(campaign)
    assert [a["status"] for a in evidence["attempts"]] == ["complete", "complete"], again.out


def limited(cwd: Path, words: list[str], size: int) -> Done:
    import resource
    import subprocess

    from tests.bench import command, environment

    done = subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(cwd),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)),
    )
    return Done(done.returncode, done.stdout, done.stderr)
