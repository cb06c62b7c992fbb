"""A server that is not gone after its stop: what is left of it would be measured with the next one."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.verify import verify
from harness.launch.server import Engine, RunningServer, StopRecord
from harness.preparing import Options, Prepared, prepare
from tests.bench import campaign_of, servers_left, write_launcher
from tests.card_host import card_host, measure


class Staying:
    """A real server; of its stop it tells that something is left, as an engine does that couldn't remove it."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def stop(self) -> StopRecord:
        return self._server.stop().model_copy(update={"gone": False, "note": "the container could not be removed"})


@dataclass
class StayingEngine:
    """The real engine, with such servers."""

    engine: Engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def start(self, *of_server: Any) -> Staying:
        return Staying(self.engine.start(*of_server))


def test_no_further_server_is_started_beside_one_that_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staying(options: Options, note: Any) -> Prepared:
        prepared = prepare(options, note)
        return replace(prepared, engine=StayingEngine(prepared.engine))

    monkeypatch.setattr("harness.campaign.prepare", staying)
    with card_host(tmp_path) as host:
        evidence = measure(host, path=write_launcher(tmp_path))
    assert [(a["label"], a["status"]) for a in evidence["attempts"]] == [("mtp0-a", "complete")]
    assert (evidence["status"], evidence["exit_code"]) == ("invalid", 2)
    assert any(
        reason.startswith("mtp0-a: its server was not gone after its stop, so no further server is started beside it; ")
        and "bench clean" in reason
        for reason in evidence["reasons"]
    ), evidence["reasons"]
    assert verify(campaign_of(tmp_path)).problems == []
    assert servers_left(campaign_of(tmp_path)) == []
