"""What may be asked of one ready server: canaries, scrapes, signs of life; a Work says what is measured on it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.errors import FreshnessError, LaunchError
from harness.evidence.attempts import answer_body, canary_requests
from harness.evidence.fresh import NO_COMPILATION, counters, known_before_prompts
from harness.evidence.schema import LogMark, ServerRecord
from harness.launch.control import ControlClient
from harness.launch.proof import NO_CENSUS
from harness.launch.readiness import dead_sentence
from harness.launch.server import RunningServer
from harness.measure.metrics import restarted, settled
from harness.plan import ServerPlan
from harness.sender import Sender
from harness.wire.capture import Tag
from harness.wire.completion import Reason
from harness.workloads import strict

SETTLE_S = 5.0
"""How long the server's counters may lag behind its answers"""
MARK_S = 1.0
"""How long the copy of a server's log may lag behind a scrape's answer"""
SCRAPED = b'"GET /metrics HTTP/1.1" 200'
DEATH_WATCH_S = 3.0
"""How long a server is watched after an answer that broke off before the next prompt is sent to it"""

HANGS = frozenset({Reason.IDLE_TIMEOUT, Reason.FIRST_BYTE_TIMEOUT, Reason.TOTAL_TIMEOUT})
"""After these a server isn't asked again: every prompt would wait as long"""

WHOLE = frozenset(
    {
        Reason.AFTER_DONE,
        Reason.IDS_MISSING,
        Reason.FINISH_MISSING,
        Reason.FINISH_UNEXPECTED,
        Reason.DONE_MISSING,
        Reason.USAGE_MISSING,
        Reason.USAGE_CONFLICT,
        Reason.USAGE_IDS_MISMATCH,
        Reason.CLOCK_STEP,
    }
)
"""Answers that came to their own end: no sign of a dying server, so one look at it is enough"""


@dataclass
class Session:
    """One ready server during an attempt."""

    plan: ServerPlan
    server: RunningServer
    sender: Sender
    control: ControlClient
    log: Path
    stage: Callable[[str], None]
    """says what is being done"""
    log_marks: list[LogMark] = field(default_factory=list)
    """of the server's record"""
    survived: set[str] = field(default_factory=set)
    """kinds of broken answers after which the server was seen to live on"""

    def scrape(self, name: str) -> None:
        """Record /metrics under a name."""
        self.control.get(name, "/metrics")

    def mark_log(self, stage: str) -> None:
        """Note how long the log is, right after a scrape; ``stage`` ended here (empty: the first one begins).

        Where the log has a line for each scrape, the copy is complete once it has this one's, too.
        """
        asked = sum(control.path == "/metrics" and control.status == 200 for control in self.sender.controls)
        deadline = time.monotonic() + MARK_S
        while True:
            log = self.log.read_bytes()
            told = log.count(SCRAPED)
            if not 0 < told < asked or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.log_marks.append(LogMark(stage=stage, lines=log.count(b"\n"), caught_up=0 < told >= asked))

    def ask_one_token(self) -> str | None:
        """The disclosed request that ends the wait for readiness; a sentence when it failed."""
        model = self.plan.served_model_name
        exchange = self.sender.post(Tag("ready", "one-token"), strict.PATH, strict.ready_body(model))
        body = answer_body(exchange)
        try:
            tokens = json.loads(body)["usage"]["completion_tokens"] if body is not None else None
        except (ValueError, KeyError, TypeError):
            tokens = None
        if tokens == 1:
            return None
        said = exchange.data[-300:].decode("utf-8", "replace")
        return f"{exchange.ending.value} {exchange.detail} {said}".strip()

    def refuse_stale_depth(self) -> None:
        """What /metrics already shows before the first measured prompt. Raises FreshnessError for another depth."""
        plan, found = self.plan, counters(self.sender.controls, "metrics-before")
        if isinstance(found, str):
            return
        if plan.depth == 0 and found.speculative:
            raise FreshnessError(f"{plan.label}: an MTP0 server reports spec_decode metrics, so it speculates")
        if plan.depth and not found.speculative and plan.engine != "attach":
            raise FreshnessError(
                f"{plan.label}: the server reports no spec_decode metrics, so MTP depth {plan.depth} never reached it"
            )

    def refuse_other_server(self, record: ServerRecord) -> None:
        """Every proof that a ready server can give before the first measured prompt. Raises FreshnessError."""
        if changed := self.server.changed():
            raise FreshnessError(f"{self.plan.label}: {changed}")
        deadline = time.monotonic() + SETTLE_S
        while found := known_before_prompts(record, self.sender.controls, self.log.read_bytes()):
            if not _may_come(found) or time.monotonic() > deadline:
                raise FreshnessError(f"{self.plan.label}: {found[0]}")
            time.sleep(0.25)  # the log's copy may be a moment behind the server

    def canaries(self, stage: str) -> None:
        """One round, ``stage`` before or after what is measured. Raises LaunchError when the server dies of it."""
        requests = canary_requests(self.plan)
        for number, request in enumerate(requests, 1):
            self.stage(f"canaries {stage} the suite, {number}/{len(requests)}")
            exchange = self.sender.post(Tag("canary", request.name, stage), request.path, request.body)
            if answer_body(exchange) is None:
                self.check_alive("canary", "a canary was not answered")

    def check_alive(self, kind: str, what: str) -> None:
        """After a broken answer (``kind`` is its reason): go on only with a server that lives. Raises LaunchError."""
        label, server = self.plan.label, self.server
        if kind in HANGS:
            state = server.state()
            said = "" if state.running and not state.error else f"; {dead_sentence(state, self.log.read_bytes())}"
            raise LaunchError(f"{label}: the server hangs ({what}){said}")
        brief = kind in WHOLE or kind in self.survived
        deadline = time.monotonic() + (0.0 if brief else DEATH_WATCH_S)
        while True:
            state = server.state()
            if not state.running:
                raise LaunchError(f"{label}: {what}; {dead_sentence(state, self.log.read_bytes())}")
            if changed := server.changed():
                raise LaunchError(f"{label}: {what}; {changed}")
            health = self.control.get("health", keep=False)
            if health.status != 200 and server.state().running:
                self.control.get("health")
                raise LaunchError(f"{label}: {what}; the engine is dead (/health: {health.error or health.status})")
            if health.status == 200 and time.monotonic() >= deadline:
                self.survived.add(kind)
                return
            time.sleep(0.2)

    def settle(self, requests: int, tokens: int | None) -> None:
        """Scrape until the server has counted everything, for a few seconds at most; the last scrape is kept.

        ``requests`` and ``tokens`` are what was sent and came back since metrics-before (tokens None when unsaid).
        """
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.scrape("metrics-after")
            before = counters(self.sender.controls, "metrics-before")
            after = counters(self.sender.controls, "metrics-after")
            if isinstance(before, str) or isinstance(after, str):
                return
            if again := restarted(before, after):
                raise LaunchError(f"{self.plan.label}: {again}")
            if tokens is None:
                return
            if settled(before, after, requests=requests, tokens=tokens) or time.monotonic() > deadline:
                return
            time.sleep(0.25)

    def refuse_dead(self) -> None:
        """Raises LaunchError when the server has ended, or is no longer the one that was started."""
        state = self.server.state()
        if not state.running:
            raise LaunchError(f"{self.plan.label}: {dead_sentence(state, self.log.read_bytes())}")
        if changed := self.server.changed():
            raise LaunchError(f"{self.plan.label}: {changed}")


def _may_come(found: list[str]) -> bool:
    """Whether a log that goes on could still prove it: nothing contradicts yet, only something is missing."""
    return all(sentence in (NO_COMPILATION, NO_CENSUS) for sentence in found)


class Work(Protocol):
    """What is measured on a server that is ready."""

    def run(self, session: Session) -> None:
        """Ask everything, canaries and scrapes included. Raises LaunchError when the server fails."""
