"""Evidence made by hand from real rows, for what only reads evidence."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.evidence import derive, store
from harness.evidence.ladder_schema import LadderEvidence, OracleFacts
from harness.evidence.schema import Attempt, Evidence, ServerRecord, Start, Status
from harness.host.facts import Fact, Host
from harness.launch.server import Applied
from harness.measure import rates
from harness.measure.gates import Gate
from harness.measure.ladder import Batch, summarise_rung
from harness.measure.rows import Row, attempt_median
from harness.plan import ServerPlan
from tests.evidence import ladders, test_derive
from tests.measure.factory import make_row
from tests.measure.test_ladder import exact_rung

FACTS = {
    "hostname": "rig",
    "cpu_model": "cpu",
    "cpu_threads": 2,
    "memory_bytes": 1 << 34,
    "kernel": "6.1",
    "boot_id": "boot-1",
    "cards": ["0000:03:00.0"],
}


def host(**changes: Any) -> Host:
    return Host(facts={name: Fact(state="measured", value=value) for name, value in (FACTS | changes).items()})


def applied(plan: ServerPlan, label: str, env: Mapping[str, str] | None = None) -> Applied:
    return Applied(
        server_id=f"id of {label}",
        image_id="sha256:image",
        entrypoint=[],
        arguments=plan.arguments,
        env={**plan.env, **(env or {})},
        image_env={"PATH": env["PATH"]} if env and "PATH" in env else {},
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


@cache
def row_at(index: int, speed: float) -> Row:
    """Row ``index`` at ``speed`` tokens/s; one object for all, which nobody may change."""
    return make_row(index, step_ns=round(1e9 / speed))


def rows_at(speeds: Sequence[float]) -> list[Row]:
    """The twelve rows, row i at ``speeds[i % len]`` tokens/s."""
    return [row_at(index, speeds[index % len(speeds)]) for index in range(12)]


def attempt(start: Start, label: str, rows: Sequence[Row], env: Mapping[str, str] | None = None) -> Attempt:
    plan = next(server for server in start.plan.servers if server.label == label)
    record = ServerRecord(label=label, requested=plan, applied=applied(plan, label, env))
    medians = rates.class_medians([(row.prompt_class, row.tok_s_1_100 or 0.0) for row in rows])
    return test_derive.attempt(
        label,
        attempt_median(rows),
        rows=list(rows),
        server=record,
        class_medians=medians,
        median_ttft_ms=rates.median_ttft_ms([row.ttft_ms for row in rows]),
    )


def strict(
    speeds: Mapping[str, Sequence[float]],
    *,
    name: str = "c",
    simulated: bool = False,
    status: Status = Status.PASSED,
    env: Mapping[str, str] | None = None,
    change: Callable[[Start], Start] = lambda start: start,
    rows: Callable[[str, list[Row]], list[Row]] = lambda label, rows: rows,
    **changes: Any,
) -> Evidence:
    """A strict campaign whose server ``label`` gives ``speeds[label]`` tokens/s, prompt by prompt."""
    depth = max(int(label[3]) for label in speeds)
    start = test_derive.start_of(depth).model_copy(update={"campaign_id": name, "simulated": simulated, "host": host()})
    start = change(start)
    found = {label: attempt(start, label, rows(label, rows_at(values)), env) for label, values in speeds.items()}
    gates = [Gate(name="G1", subject="mtp0-a vs mtp0-b", passed=True, failures=[], exact=12, total=12)]
    fields: dict[str, Any] = {
        "campaign_id": name,
        "kind": "strict",
        "status": status,
        "exit_code": 0,
        "conclusion": "made by hand",
        "simulated": simulated,
        "withheld": status is not Status.PASSED,
        "reasons": [],
        "start": start,
        "started_at": "2026-09-01T10:00:00.000+00:00",
        "ended_at": "2026-09-01T10:20:00.000+00:00",
        "resumed": [],
        "pairs": derive._pairs(start, found),
        "gates": gates,
        "attempts": list(found.values()),
        "unknown": [],
    }
    return Evidence(**{**fields, **changes})


def ladder(
    passes: Mapping[int, Sequence[float]],
    *,
    name: str = "l",
    status: Status = Status.PASSED,
    change: Callable[[Start], Start] = lambda start: start,
    batches: Callable[[list[Batch]], list[Batch]] = lambda batches: batches,
    **changes: Any,
) -> LadderEvidence:
    """A ladder at MTP0 whose rung r had ``passes[r]`` tokens/s, the warm-up first."""
    plan = ladders.ladder_plan(rungs=sorted(passes), passes=max(map(len, passes.values())))
    start = ladders.start_of(0, plan).model_copy(update={"campaign_id": name, "simulated": False, "host": host()})
    start = change(start)
    sent = batches(
        [
            exact_rung(users, number=number, rate=rate)
            for users, values in sorted(passes.items())
            for number, rate in enumerate(values, 1)
        ]
    )
    rungs = [
        summarise_rung(users, [batch for batch in sent if batch.rung == users], [], captured=None)
        for users in sorted(passes)
    ]
    record = ServerRecord(
        label="mtp0", requested=start.plan.servers[-1], applied=applied(start.plan.servers[-1], "mtp0")
    )
    fields: dict[str, Any] = {
        "campaign_id": name,
        "kind": "ladder",
        "status": status,
        "exit_code": 0,
        "conclusion": "made by hand",
        "classification": None,
        "scope": "",
        "simulated": False,
        "withheld": status is not Status.PASSED,
        "reasons": [],
        "start": start,
        "started_at": "2026-09-02T10:00:00.000+00:00",
        "ended_at": None,
        "resumed": [],
        "passes_done": plan.passes,
        "rungs": rungs,
        "oracle": OracleFacts(source="own"),
        "gates": [],
        "attempts": [ladders.attempt("mtp0", *sent, server=record)],
        "unknown": [],
    }
    return LadderEvidence(**{**fields, **changes})


def write(evidence: Evidence | LadderEvidence, folder: Path) -> Path:
    """``folder`` with evidence.json in the bytes that a campaign would write."""
    folder.mkdir(parents=True)
    (folder / store.EVIDENCE).write_bytes(store.dump_json(evidence.model_dump(mode="json", by_alias=True)))
    return folder
