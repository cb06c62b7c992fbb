"""An attempt's server as one side of a gate between servers (contract section 4)."""

from collections.abc import Sequence

from harness.evidence.schema import ServerRecord, Start
from harness.measure.gates import Arm
from harness.measure.rows import Row
from harness.plan import ServerPlan


def arm_of(start: Start, label: str, server: ServerRecord | None, plan: ServerPlan, rows: Sequence[Row] = ()) -> Arm:
    """What a gate must know of the server beside its answers; what isn't recorded is empty."""
    applied = server.applied if server is not None else None
    readiness = server.readiness if server is not None else None
    image_id = (applied.image_id if applied is not None else None) or ""
    if not image_id and plan.engine != "attach" and readiness is not None and readiness.version:
        image_id = f"{plan.engine}:{readiness.version}"
    return Arm(
        label=label,
        rows=rows,
        server_id=applied.server_id if applied is not None else "",
        image_id=image_id,
        suite_sha256=start.suite.sha256,
        environment=applied.env if applied is not None else {},
        arguments=applied.arguments if applied is not None else [],
        depth=plan.depth,
    )
