"""Long-context profile and boundary probes on real vLLM servers with a tiny model: prompts of exact length, exact."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.data import find
from tests.e2e.bench import Bench, Benches, assert_verifies, containers, failed_but_for_load
from tests.e2e.conftest import START_S, model

pytestmark = [pytest.mark.vllm, pytest.mark.docker]

DEPTHS = [512, 1024, 2048]
CLASSES = ["technical-prose", "python-code", "structured-documents"]


def campaign(docker_client: Any, out: Path, command: str, launcher: str = "tiny-cpu") -> Iterator[Bench]:
    """``bench depth`` or ``bench probe`` at depth 3, finished. B70_BENCH_SITE names the site file of a busy machine."""
    site = os.environ.get("B70_BENCH_SITE")
    arguments = ["--launcher", launcher, "--model-dir", str(model("tiny-qwen35")), "--mtp", "3"]
    benches = Benches(docker_client)
    try:
        found = benches(out, *arguments, *(["--site", site] if site else []), command=command)
        found.finish(2 * START_S + 600)
        yield found
    finally:
        benches.close()


@pytest.fixture(scope="module")
def profile(real_vllm: None, docker_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from campaign(docker_client, tmp_path_factory.mktemp("depth") / "experiments", "depth")


@pytest.fixture(scope="module")
def probes(real_vllm: None, docker_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from campaign(docker_client, tmp_path_factory.mktemp("probe") / "experiments", "probe")


def test_every_depth_is_exact_and_verifies(profile: Bench) -> None:
    evidence = profile.evidence
    assert failed_but_for_load(evidence) == []
    (gate,) = evidence["gates"]
    assert (gate["name"], gate["exact"], gate["total"], gate["passed"]) == ("context", 9, 9, True)
    for label, exact in (("mtp0", None), ("mtp3", 3)):
        found = [point for point in evidence["points"] if point["label"] == label]
        assert [(point["context"], point["exact"]) for point in found] == [(tokens, exact) for tokens in DEPTHS]
        assert all(point["ttft_ms"] > 0 for point in found)
        assert all(not point["withheld"] or point["why"] == [f"client of {label} failed"] for point in found)
        # Where the machine is so busy that 100 ids come in one read, their row has no rate, says so, and gives none.
        attempt = next(item for item in evidence["attempts"] if item["label"] == label)
        unrated = {row["prompt_tokens"] for row in attempt["rows"] if row["tok_s_1_100"] is None}
        assert {point["context"] for point in found if not point["tok_s"]} == unrated
    assert_verifies(profile.directory, evidence["status"])


def test_the_servers_counted_exactly_those_prompts(profile: Bench) -> None:
    for attempt in profile.evidence["attempts"]:
        assert attempt["server"]["cache_before"]["entries"] == 0
        assert [row["prompt_tokens"] for row in attempt["rows"]] == [tokens for tokens in DEPTHS for _ in CLASSES]
        assert [row["prompt_class"] for row in attempt["rows"]] == CLASSES * 3
        assert {len(row["token_ids"]) for row in attempt["rows"]} == {128}
        assert attempt["echoed"] == 9, "the server returned the ids that were sent"
    base, arm = profile.evidence["attempts"]
    assert base["acceptance"] is None and 0.3 < arm["acceptance"]["rate"] < 0.99


SHORT = [(tokens, what) for tokens, what in ((2, "2"), (3, "K"), (4, "1+K"), (5, "2+K")) for _ in CLASSES]


def test_every_boundary_that_may_be_asked_is_exact_and_verifies(probes: Bench) -> None:
    evidence = probes.evidence
    assert failed_but_for_load(evidence) == []
    found = [probe for probe in evidence["probes"] if probe["label"] == "mtp3"]
    assert [(probe["tokens"], probe["what"]) for probe in found] == SHORT
    assert all(probe["exact"] and probe["problems"] == [] for probe in found)
    (gate,) = evidence["gates"]
    assert (gate["name"], gate["exact"], gate["total"], gate["passed"]) == ("probes", 12, 12, True)
    assert (evidence["status"], evidence["exit_code"]) == ("passed", 0)
    assert_verifies(probes.directory, "passed")


def test_what_was_not_asked_is_said(probes: Bench) -> None:
    """The engine of this backend dies of both, so the launcher leaves them out: unknown, never clean."""
    assert "boundary probes 1, full: unknown (launcher tiny-cpu leaves them out)" in probes.evidence["unknown"]


def asked_all_the_same(folder: Path, *left_out: str) -> str:
    """The launcher with another list of probes that it leaves out."""
    text = find("launchers", "tiny-cpu", ".toml").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("probes_left_out"))
    path = folder / "tiny-cpu.toml"
    path.write_text(text.replace(line, f"probes_left_out = {list(left_out)}"))
    return str(path)


def test_the_end_of_a_full_context_is_found_to_kill_a_server_that_drafts(
    real_vllm: None, docker_client: Any, tmp_path: Path
) -> None:
    """A real fault that no strict suite sees: MTP0 answers, at depth 3 the engine dies in the last steps."""
    launcher = asked_all_the_same(tmp_path, "1")
    for found in campaign(docker_client, tmp_path / "experiments", "probe", launcher):
        evidence = found.evidence
        assert (evidence["status"], evidence["exit_code"]) == ("invalid", 2)
        assert [attempt["status"] for attempt in evidence["attempts"]] == ["complete", "invalid"]
        assert evidence["attempts"][1]["error"].startswith("mtp3: probe-full-")
        base, drafting = (
            [probe for probe in evidence["probes"] if (probe["label"], probe["what"]) == (label, "full")]
            for label in ("mtp0", "mtp3")
        )
        assert [probe["problems"] for probe in base] == [[]] * 4, "MTP0 fills its context four times"
        assert (
            drafting
            and drafting[-1]["exact"] is False
            and drafting[-1]["problems"] == ["it is incomplete (error-event)"]
        )
        assert all(probe["exact"] for probe in drafting[:-1]), "which fill it dies of hangs on where its steps fall"
        assert_verifies(found.directory, "invalid")
        assert containers(docker_client, found.out) == []


def test_nothing_is_left(profile: Bench, probes: Bench, docker_client: Any) -> None:
    assert containers(docker_client, profile.out) == containers(docker_client, probes.out) == []
