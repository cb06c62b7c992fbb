"""Memory of a card that is still in use when a server should start: waited for, then nothing is measured beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness import host_guard
from harness.evidence import store
from harness.evidence.derive import derive
from harness.evidence.verify import verify
from tests.bench import campaign_of
from tests.card_host import CardHost, card_host, measure
from tests.host.trees import memory_in_use
from tests.test_host_guard import failed


def held_between(host: CardHost, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """A campaign in which the first server's memory stays in use."""
    monkeypatch.setattr(host_guard, "WAIT_S", 0.6)

    def at(label: str, index: int) -> None:
        if (label, index) == ("mtp0-a", 3):
            memory_in_use(host.tree, 0, 29 * 2**30)

    return measure(host, at=at, **changes)


def test_a_card_that_is_still_held_stops_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 80: the workers of a removed container hold the card. Nothing is measured beside them; then it goes on."""
    with card_host(tmp_path) as host:
        evidence = held_between(host, monkeypatch)
        first, second = evidence["attempts"]
        assert (first["status"], second["status"], evidence["exit_code"]) == ("complete", "invalid", 2)
        assert second["rows"] == [] and second["server"]["applied"] is None, "nothing was started"
        assert second["error"].startswith("mtp0-b: 0000:03:00.0 still holds 29.0 GiB after ")
        assert "so no server is started beside it" in second["error"]
        assert second["server"]["host"]["memory"]["cards"][0]["used_bytes"] == 29 * 2**30
        assert verify(campaign_of(tmp_path)).problems == []
        memory_in_use(host.tree, 0, 0)
        again = measure(host, resume=campaign_of(tmp_path))
    assert [attempt["status"] for attempt in again["attempts"]] == ["complete", "invalid", "complete"]
    assert failed(again) == set() and verify(campaign_of(tmp_path)).problems == []


def test_a_card_that_is_held_at_first_is_waited_for(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:
        memory_in_use(host.tree, 0, 29 * 2**30)

        def at(label: str, text: str) -> None:
            if text.startswith("waiting for the cards' memory"):
                memory_in_use(host.tree, 0, 0)

        evidence = measure(host, stage=at)
    assert verify(campaign_of(tmp_path)).problems == []
    memory = [attempt["server"]["host"]["memory"] for attempt in evidence["attempts"]]
    assert [check["cards"][0]["used_bytes"] for check in memory] == [0, 0]
    assert memory[0]["waited_s"] > 0.4 and failed(evidence) == set()
    assert [check["cards"][0]["source"] for check in memory] == ["debugfs"] * 2
    assert_not_fresh_if_held(campaign_of(tmp_path))


def assert_not_fresh_if_held(directory: Path) -> None:
    """No launcher of ours starts a server then; evidence that says it was held all the same can't pass."""
    path = directory / "attempts/mtp0-b" / store.SERVER
    record = json.loads(path.read_text())
    record["host"]["memory"]["cards"][0]["used_bytes"] = 29 * 2**30
    path.write_text(json.dumps(record))
    store.write_manifest(directory)
    assert verify(directory).problems
    (second,) = [attempt for attempt in derive(directory).attempts if attempt.label == "mtp0-b"]
    (gate,) = [gate for gate in second.gates if gate.name == "fresh"]
    assert gate.failures == ["mtp0-b: before its start, card 0000:03:00.0 still holds 29.0 GiB"]
