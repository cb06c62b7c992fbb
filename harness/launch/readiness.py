"""Waiting until a server is ready, by the ladder of contract section 2; each rung asks more than the one before."""

import json
import time
from collections.abc import Callable

from harness.errors import FreshnessError, LaunchError
from harness.launch.control import ControlClient
from harness.launch.server import Record, RunningServer, ServerState
from harness.plan import ServerPlan
from harness.wire.capture import Control

POLL_S = 1.0
LAST_LINES = 12


class Readiness(Record):
    """How a server became ready. Seconds are after its start."""

    health_s: float
    """first /health 200"""
    ready_s: float
    """after the one-token request"""
    models: list[str]
    version: str | None
    owns_port: bool | None
    """whether the listening socket was seen to be this server's; null where the engine can't know"""


def last_lines(log: bytes, count: int = LAST_LINES) -> str:
    """The end of a server's log, for an error message."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n".join(line[:300] for line in lines[-count:])


def dead_sentence(state: ServerState, log: bytes) -> str:
    """One sentence for a server that was seen to have ended, with its last log lines below."""
    tail = last_lines(log)
    return f"{state.sentence()}; its last log lines:\n{tail}" if tail else state.sentence()


def wait_ready(
    server: RunningServer,
    plan: ServerPlan,
    control: ControlClient,
    *,
    read_log: Callable[[], bytes],
    ask_one_token: Callable[[], str | None],
    progress: Callable[[str], None],
    poll_s: float = POLL_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> Readiness:
    """Wait for running → /health → the model's name → /version → one token.

    ``ask_one_token`` sends the disclosed request and returns None, or a sentence for its failure. Raises LaunchError
    (dead, stalled, too late, engine without answers) or FreshnessError (somebody else's server answers).
    """
    started = monotonic()
    grown_at, size = started, -1
    while True:
        now = monotonic()
        state = server.state()
        if not state.running:
            raise LaunchError(f"{plan.label}: {dead_sentence(state, read_log())}")
        health = control.get("health", keep=False)
        if health.status == 200:
            break
        written = server.log_bytes()
        if written != size:
            size, grown_at = written, now
        waited = f"{now - started:.0f} s"
        if now - started > plan.limits.ready_s:
            raise LaunchError(
                f"{plan.label}: not ready within {plan.limits.ready_s:g} s (/health: {_answer(health)}); its last log "
                f"lines:\n{last_lines(read_log())}"
            )
        if now - grown_at > plan.limits.stall_s:
            raise LaunchError(
                f"{plan.label}: stalled, no new log line for {plan.limits.stall_s:g} s and not ready after {waited}; "
                f"its last log lines:\n{last_lines(read_log())}"
            )
        progress(f"starting, {waited}, {max(written, 0) / 1024:.0f} KiB of log")
        time.sleep(poll_s)
    health_s = monotonic() - started
    control.get("health")
    owns = server.owns_port()
    if owns is False:
        raise FreshnessError(
            f"{plan.label}: port {server.endpoint.port} answers, but not from the server that was started; stop the "
            "server that holds it, or choose another --port"
        )
    models = _models(control.get("models"), plan)
    version = _version(control.get("version"))
    progress("asking for one token")
    problem = ask_one_token()
    state = server.state()
    if not state.running:
        raise LaunchError(f"{plan.label}: {dead_sentence(state, read_log())}")
    if problem is not None:
        raise LaunchError(f"{plan.label}: healthy, but its first token never came: {problem}")
    return Readiness(health_s=health_s, ready_s=monotonic() - started, models=models, version=version, owns_port=owns)


def _answer(control: Control) -> str:
    return control.error or f"HTTP {control.status}"


def _models(control: Control, plan: ServerPlan) -> list[str]:
    try:
        models = [str(item["id"]) for item in json.loads(control.body)["data"]]
    except (ValueError, KeyError, TypeError):
        raise LaunchError(f"{plan.label}: /v1/models gave no list of models ({_answer(control)})") from None
    if plan.served_model_name not in models:
        raise FreshnessError(
            f"{plan.label}: the server on this port serves {', '.join(models) or 'nothing'}, not "
            f"{plan.served_model_name}; it isn't ours"
        )
    return models


def _version(control: Control) -> str | None:
    try:
        return str(json.loads(control.body)["version"])
    except (ValueError, KeyError, TypeError):
        return None
