"""Ladders made by hand for the tests of evidence."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.evidence.ladder import ORACLE_LABEL
from harness.evidence.ladder_attempts import (
    BATCH,
    SEQUENTIAL,
)
from harness.evidence.ladder_schema import LadderAttempt, Sequential
from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import AttemptStatus, ServerRecord, Start, SuiteFacts
from harness.host.facts import Fact, Host, Tool
from harness.lanes import load_lane
from harness.launch.server import Applied
from harness.plan import CampaignPlan, LadderPlan, ServerPlan, server_plan
from harness.suites import load_suite
from harness.wire.capture import Capture, Tag
from harness.wire.exchange import Exchange
from harness.wire.request import http_request
from harness.workloads.ladder import Slot, ladder_body, slots, stage_name
from tests.measure.test_ladder import exact_rung
from tests.wire.build import DONE, chunk, chunked, exchange, usage

ROOT = Path(__file__).resolve().parents[2]
SUITE = load_suite(str(ROOT / "suites" / "ladder-v1.json"), need_classes=False)
SLOTS = slots(SUITE, 4, verbatim=False)
HOST = Host(facts={})
IDS = tuple(1000 + place % 50 for place in range(128))
OTHER = (*IDS[:39], 411, *IDS[40:])


def ladder_plan(**changes: Any) -> LadderPlan:
    values: dict[str, Any] = {
        "rungs": [1, 2, 4],
        "passes": 3,
        "stagger_ms": 0.0,
        "verbatim": False,
        "shape": "ladder",
        "ceiling": 64,
        "workers": 1,
        "direct": False,
        "oracle": None,
    }
    return LadderPlan(**values | changes)


def server(label: str, depth: int) -> ServerPlan:
    return server_plan(
        load_lane("simulated"), label=label, depth=depth, tensor_parallel=1, shape="ladder", engine="simulated"
    )


def start_of(depth: int = 0, plan: LadderPlan | None = None) -> Start:
    servers = [server(f"mtp{depth}", depth)]
    if depth and (plan is None or plan.oracle is None):
        servers.insert(0, server(ORACLE_LABEL, 0))
    campaign = CampaignPlan(
        kind="ladder",
        lane="simulated",
        engine="simulated",
        suite_id=SUITE.suite_id,
        suite_sha256=SUITE.sha256,
        depth=depth,
        tensor_parallel=1,
        ladder=plan or ladder_plan(),
        servers=servers,
    )
    fact = Fact(state="unknown")
    return Start(
        campaign_id="c",
        lane_title="t",
        simulated=True,
        plan=campaign,
        plan_sha256=campaign.sha256(),
        suite=SuiteFacts(id=SUITE.suite_id, version=1, sha256=SUITE.sha256, prompts=[]),
        image=None,
        model=None,
        host=HOST,
        tool=Tool(version="0", commit=fact, dirty=fact, dependencies={}),
        command="bench ladder",
        depth_env=[],
    )


def answered(
    slot: Slot, ids: Sequence[int] = IDS, *, cached: Any = 0, released_ns: int | None = None, **options: Any
) -> Exchange:
    """A whole answer of ``slot``: 4 ids a chunk, each 10 ms."""
    pieces = [chunk(ids[:1], "a", prompt_ids=[1, 2])]
    pieces += [
        chunk(ids[at : at + 4], "b", finish="length" if at + 4 >= len(ids) else None) for at in range(1, len(ids), 4)
    ]
    found = exchange(chunked([*pieces, usage(len(ids), cached=cached), DONE]), **options)
    body = json.dumps(ladder_body(slot.text, "simulated"), ensure_ascii=False).encode()
    found.request = http_request("/v1/completions", body, host="127.0.0.1", port=1)
    found.released_ns = released_ns
    return found


def captured_of(label: str, entries: Sequence[tuple[Tag, Exchange]]) -> AttemptFiles:
    capture = Capture(header={"label": label, "timestamp_source": "SO_TIMESTAMPNS"}, exchanges=list(entries))
    return AttemptFiles(label, label, AttemptStatus.INTERRUPTED, "", capture, None, b"")


def sequential(ids: Sequence[int] = IDS, count: int = 4, **options: Any) -> list[tuple[Tag, Exchange]]:
    return [(Tag(SEQUENTIAL, slot.id, "seq"), answered(slot, ids, **options)) for slot in SLOTS[:count]]


def rung(users: int, number: int, ids: Sequence[int] = IDS, *, sent: int | None = None) -> list[tuple[Tag, Exchange]]:
    stage = stage_name(users, number)
    return [(Tag(BATCH, slot.id, stage), answered(slot, ids, released_ns=0)) for slot in SLOTS[: sent or users]]


def attempt(
    directory: str, *batches: Any, status: AttemptStatus = AttemptStatus.COMPLETE, **changes: Any
) -> LadderAttempt:
    values: dict[str, Any] = {
        "label": directory.split(".")[0],
        "directory": directory,
        "status": status,
        "error": "",
        "depth": 0,
        "server": None,
        "sequential": Sequential(slots=4, answered=4, problems=[], warnings=[]),
        "batches": list(batches),
        "clients": [],
        "canaries_before": None,
        "canaries_after": None,
        "pulses": len(batches),
        "pulse_problems": [],
        "acceptance": None,
        "client": None,
        "gates": [],
    }
    return LadderAttempt(**values | changes)


def whole(*numbers: int, rate: float = 100.0) -> list[Any]:
    return [exact_rung(users, number=number, rate=rate) for number in numbers for users in (1, 2, 4)]


def complete(label: str, *batches: list[tuple[Tag, Exchange]], directory: str = "", **options: Any) -> AttemptFiles:
    """A whole server without canaries or scrapes, so that its own gates fail and those between servers can be read."""
    entries = [*sequential(**options), *(entry for batch in batches for entry in batch)]
    found = captured_of(label, entries)
    applied = Applied(
        server_id=f"id of {directory or label}",
        image_id="image",
        entrypoint=[],
        arguments=server(label, 3).arguments if label == "mtp3" else server(label, 0).arguments,
        env={},
        image_env={},
        mounts=[],
        devices=[],
        group_add=[],
        cap_add=[],
        security_opt=[],
        ulimits={},
        ipc=None,
        shm_size=None,
        memory=None,
        memory_swap=None,
        ports=[],
        privileged=False,
        restart_count=0,
        started_at="",
    )
    record = ServerRecord(label=label, requested=server(label, 3 if label == "mtp3" else 0), applied=applied)
    return AttemptFiles(label, directory or label, AttemptStatus.COMPLETE, "", found.capture, record, b"")
