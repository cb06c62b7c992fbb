"""A boot with a fault, and real containers: probed before anything starts, and refused when a probe doesn't pass.

The probes are the very programs that a card gets; the launcher's servers run on the CPU, so they do too.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Benches, assert_verifies, containers, failed_but_for_load
from tests.e2e.conftest import QuickLane
from tests.host.fault_lines import FIRST

pytestmark = pytest.mark.docker


def faulted(quick: QuickLane, tmp_path: Path, *, memory: str) -> list[str]:
    """Options of a lane with cards, and a kernel log with a fault of a moment ago."""
    words = quick()
    lane = quick.folder / "lane.toml"
    text = lane.read_text().replace('canaries = "chat"', 'canaries = "chat"\ncard_env = "ZE_AFFINITY_MASK"')
    lane.write_text(text.replace('memory = "256m"', f'memory = "{memory}"'))
    log = tmp_path / "kern.log"
    log.write_text(f"[    0.000000] Linux version 7.0.0\n[{time.monotonic() - 5:12.6f}] {FIRST}\n")
    # An index that no campaign of this machine has a lock for.
    return [*words, "--kernel-log", str(log), "--card", "77"]


def test_probes_pass_and_the_campaign_goes_on(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *faulted(quick, tmp_path, memory="2g"), "--mtp", "0")
    assert campaign.finish(240) in (0, 1)
    evidence = campaign.evidence
    assert failed_but_for_load(evidence) == []
    for attempt in evidence["attempts"]:
        host = attempt["server"]["host"]
        assert [fault["what"] for fault in host["boot"]["faults"]] == ["fault response"]
        (probe,) = host["probes"]
        assert (probe["name"], probe["passed"], probe["told"]["name"]) == ("compute on card 77 (cpu)", True, "cpu")
        (gate,) = [gate for gate in attempt["gates"] if gate["name"] == "host"]
        assert gate["passed"]
        said = "kernel log: 1 fault on this boot before the campaign; passed since: compute on card 77 (cpu)"
        assert gate["notes"][0] == said
    assert containers(docker_client, campaign.out) == []
    assert_verifies(campaign.directory, evidence["status"])


def test_a_probe_that_does_not_pass_refuses_the_campaign(
    bench: Benches, docker_client: Any, quick: QuickLane, tmp_path: Path
) -> None:
    campaign = bench(tmp_path / "out", *faulted(quick, tmp_path, memory="24m"), "--mtp", "0", plain=True)
    assert campaign.finish(240) == 2
    (sentence,) = campaign.stderr.splitlines()
    assert "the probe compute on card 77 (cpu) has not passed: " in sentence
    assert sentence.endswith("; start the host again, then this campaign")
    assert list(campaign.out.iterdir()) == [], "nothing was started"
