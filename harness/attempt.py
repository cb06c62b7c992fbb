"""One attempt: a fresh server, canaries, suite, canaries, and the server's end, whatever happens (contract 2, 3)."""

import contextlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import BenchError, FreshnessError, Interrupted, LaunchError
from harness.evidence import store
from harness.evidence.attempts import answer_body, canary_requests, row_of
from harness.evidence.fresh import counters
from harness.evidence.schema import AttemptStatus, ServerRecord, SuiteFacts
from harness.evidence.sentences import without_paths
from harness.host.memory import wait_for_memory
from harness.launch import proof
from harness.launch.control import ControlClient
from harness.launch.readiness import POLL_S, dead_sentence, wait_ready
from harness.launch.server import Endpoint, Engine, ImageFacts, Places, RunningServer
from harness.measure.metrics import settled
from harness.measure.rows import Row
from harness.plan import ServerPlan
from harness.signals import SignalGuard
from harness.suites import Suite
from harness.wire.capture import CaptureWriter, Control, Tag
from harness.wire.completion import Reason
from harness.wire.exchange import Exchange
from harness.wire.library import LibraryTransport
from harness.wire.transport import Deadlines, SocketTransport, http_request
from harness.workloads import strict

SETTLE_S = 5.0
"""How long the server's counters may lag behind its answers"""
DEATH_WATCH_S = 3.0
"""How long a server is watched after an answer that broke off before the next prompt is sent to it"""
SIMULATED_POLL_S = 0.1
"""The embedded server starts in a moment; every other one is asked each second (contract section 2)"""
CACHES = "caches"
"""Folder of the campaign under which each server has its cache directory while it lives"""

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


class Watcher(Protocol):
    """Who is shown what happens."""

    def attempt(self, label: str, directory: str) -> None:
        """An attempt begins."""

    def stage(self, label: str, text: str) -> None:
        """What it is doing now."""

    def row(self, label: str, row: Row, total: int) -> None:
        """A suite prompt was answered."""

    def attempt_ended(self, label: str, status: str, error: str) -> None:
        """It ended, its server is stopped."""


@dataclass(frozen=True)
class Surroundings:
    """What an attempt needs from its campaign."""

    engine: Engine
    image: ImageFacts | None
    suite: Suite
    facts: SuiteFacts
    campaign_id: str
    directory: Path
    """of the campaign"""
    model: Path | None
    port: int | None
    vllm: str | None
    min_mem_available: int | None
    deadlines: Deadlines
    secret_headers: tuple[tuple[str, str], ...]
    proxy: str | None
    watcher: Watcher
    guard: SignalGuard

    def roles(self) -> dict[str, str]:
        """Host paths and what stands for them in evidence."""
        known = {str(self.directory): "<campaign>", str(Path.home()): "<home>"}
        return known if self.model is None else {**known, str(self.model): "<model>"}


class Attempt:
    """Runs once. ``run`` returns how it ended; its files are complete when it does."""

    def __init__(self, plan: ServerPlan, directory: str, around: Surroundings) -> None:
        self.plan = plan
        self._around = around
        self._folder = around.directory / store.ATTEMPTS / directory
        self._cache = around.directory / CACHES / directory
        self._record = ServerRecord(label=plan.label, requested=plan)
        self._capture: CaptureWriter | None = None
        self._server: RunningServer | None = None
        self._control: ControlClient | None = None
        self._survived: set[str] = set()
        """kinds of broken answers after which the server was seen to live on"""

    def run(self) -> tuple[AttemptStatus, str]:
        """(status, error sentence). Raises Interrupted or BenchError only after the server is gone and all is kept."""
        status, error = AttemptStatus.INVALID, ""
        # Signals wait but for the places where one may come: between a start and its stop no server can be forgotten.
        with self._around.guard.quiet():
            self._folder.mkdir(parents=True)
            try:
                self._save()
                server = self._server = self._start()
                with self._around.guard.listening():
                    self._measure(server)
                status = AttemptStatus.COMPLETE
            except Interrupted as interruption:
                status, error = AttemptStatus.INTERRUPTED, f"{self.plan.label}: {interruption}"
            except LaunchError as failure:
                error = str(failure)
            except OSError as failure:
                error = (
                    f"{self.plan.label}: its record can't be written ({failure.strerror or failure}); free space or "
                    "choose another --out, then --resume"
                )
            finally:
                self._end(error)
        return status, error

    def _stage(self, text: str) -> None:
        self._around.watcher.stage(self.plan.label, text)

    def _save(self) -> None:
        data = self._record.model_dump(mode="json", by_alias=True)
        store.write_atomic(self._folder / store.SERVER, store.dump_json(data))

    def _start(self) -> RunningServer:
        """Start the server; a signal waits until it is known, so that it will be stopped."""
        around = self._around
        if around.min_mem_available is not None:
            with around.guard.listening():
                wait_for_memory(around.min_mem_available, self._stage)
        log = self._folder / store.LOG
        log.touch()
        places = Places(
            campaign_id=around.campaign_id,
            model=around.model,
            cache=self._cache,
            log=log,
            port=around.port,
            vllm=around.vllm,
            cache_made=self._list_cache,
        )
        self._stage("starting")
        return around.engine.start(self.plan, places, around.image)

    def _measure(self, server: RunningServer) -> None:
        plan, around, log = self.plan, self._around, self._folder / store.LOG
        self._record.applied = server.applied()
        self._record.inspect = server.last_inspect()
        self._record.image = around.image
        if plan.engine != "attach":
            self._record.differences = proof.differences(plan, self._record.applied, around.image)
        self._save()
        if self._record.differences:
            raise FreshnessError(f"{plan.label}: what runs isn't what was asked: {self._record.differences[0]}")
        sender = Sender(server.endpoint, around, self._folder / store.CAPTURE, {"label": plan.label})
        self._capture = sender.capture
        self._control = control = ControlClient(
            server.endpoint, record=sender.record, headers=dict(around.secret_headers)
        )
        self._record.readiness = wait_ready(
            server,
            plan,
            control,
            read_log=log.read_bytes,
            ask_one_token=lambda: self._ask_one_token(sender),
            progress=self._stage,
            poll_s=SIMULATED_POLL_S if plan.engine == "simulated" else POLL_S,
        )
        if plan.dev_mode:
            control.get("server-info")
        self._save()
        control.get("metrics-before", "/metrics")
        self._refuse_stale_depth(sender)
        self._canaries(sender, "before")
        control.get("metrics-suite-start", "/metrics")
        sent, tokens = self._suite(sender)
        control.get("metrics-suite-end", "/metrics")
        self._canaries(sender, "after")
        self._settle(control, sender, sent + 2 * len(canary_requests(plan)), tokens)
        state = server.state()
        if not state.running:
            raise LaunchError(f"{plan.label}: {dead_sentence(server, log.read_bytes())}")

    def _list_cache(self, cache: Path) -> None:
        self._record.cache_before = store.list_caches(cache)

    def _ask_one_token(self, sender: "Sender") -> str | None:
        exchange = sender.post(Tag("ready", "one-token"), strict.PATH, strict.ready_body(self.plan.served_model_name))
        body = answer_body(exchange)
        try:
            tokens = json.loads(body)["usage"]["completion_tokens"] if body is not None else None
        except (ValueError, KeyError, TypeError):
            tokens = None
        if tokens == 1:
            return None
        said = exchange.data[-300:].decode("utf-8", "replace")
        return f"{exchange.ending.value} {exchange.detail} {said}".strip()

    def _refuse_stale_depth(self, sender: "Sender") -> None:
        """What /metrics already shows before the first measured prompt: another depth, or another client."""
        found = counters(sender.controls, "metrics-before")
        if isinstance(found, str):
            return
        if self.plan.depth == 0 and found.speculative:
            raise FreshnessError(f"{self.plan.label}: an MTP0 server reports spec_decode metrics, so it speculates")
        if self.plan.depth and not found.speculative and self.plan.engine != "attach":
            raise FreshnessError(
                f"{self.plan.label}: the server reports no spec_decode metrics, so MTP depth {self.plan.depth} never "
                "reached it"
            )

    def _canaries(self, sender: "Sender", stage: str) -> None:
        requests = canary_requests(self.plan)
        for number, request in enumerate(requests, 1):
            self._stage(f"canaries {stage} the suite, {number}/{len(requests)}")
            tag = Tag("canary", request.name, stage)
            exchange = sender.post(tag, request.path, request.body)
            if answer_body(exchange) is None:
                self._check_alive(None)

    def _suite(self, sender: "Sender") -> tuple[int, int | None]:
        """Send the suite in file order, each prompt once; (requests, tokens received or None when unsaid)."""
        around, counts = self._around, list[int | None]()
        for number, prompt in enumerate(around.suite.prompts):
            self._stage(f"prompt {number + 1}/{len(around.suite.prompts)} {prompt.id}")
            request_id = strict.request_id(around.suite, number, prompt.id)
            body = strict.strict_body(prompt.text, self.plan.served_model_name)
            tag = Tag("suite", prompt.id, request_id=request_id)
            exchange = sender.post(tag, strict.PATH, body, stream=True)
            row = row_of(tag, exchange, number, around.facts)
            around.watcher.row(self.plan.label, row, len(around.suite.prompts))
            counts.append(row.completion_tokens)
            if not row.complete:
                self._check_alive(row)
        known = [count for count in counts if count is not None]
        return len(counts), sum(known) if len(known) == len(counts) else None

    def _check_alive(self, row: Row | None) -> None:
        """After a broken answer: go on only with a server that lives. Raises LaunchError."""
        server, control, what, kind = self._server, self._control, "a canary was not answered", "canary"
        if server is None or control is None:
            return
        if row is not None:
            kind = row.reason or ""
            # A detail of the wire begins with the reason's own word.
            what = f"{row.prompt_id}: {row.detail if row.detail.startswith(kind) else f'{kind}, {row.detail}'}"
            if kind in HANGS:
                raise LaunchError(f"{self.plan.label}: the server hangs ({what})")
        brief = kind in WHOLE or kind in self._survived
        deadline = time.monotonic() + (0.0 if brief else DEATH_WATCH_S)
        while True:
            if not server.state().running:
                log = (self._folder / store.LOG).read_bytes()
                raise LaunchError(f"{self.plan.label}: {what}; {dead_sentence(server, log)}")
            health = control.get("health", keep=False)
            if health.status != 200 and server.state().running:
                control.get("health")
                raise LaunchError(
                    f"{self.plan.label}: {what}; the engine is dead (/health: {health.error or health.status})"
                )
            if health.status == 200 and time.monotonic() >= deadline:
                self._survived.add(kind)
                return
            time.sleep(0.2)

    def _settle(self, control: ControlClient, sender: "Sender", requests: int, tokens: int | None) -> None:
        """Scrape until the server has counted everything, for a few seconds at most; the last scrape is kept."""
        canary_tokens = sender.canary_tokens
        deadline = time.monotonic() + SETTLE_S
        while True:
            control.get("metrics-after", "/metrics")
            before = counters(sender.controls, "metrics-before")
            after = counters(sender.controls, "metrics-after")
            if isinstance(before, str) or isinstance(after, str) or tokens is None:
                return
            if settled(before, after, requests=requests, tokens=tokens + canary_tokens):
                return
            if time.monotonic() > deadline:
                return
            time.sleep(0.25)

    def _end(self, error: str) -> None:
        """Stop the server and finish every file; a full disk must not keep the server alive."""
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            self._stage("stopping")
            stop = self._server.stop()
            self._record.stop = stop
            self._record.inspect = self._server.last_inspect() or self._record.inspect
        self._record.error = without_paths(error, self._around.roles())
        with contextlib.suppress(OSError, BenchError):
            if self._record.cache_before is not None:
                self._record.cache_after = store.list_caches(self._cache)
            self._save()
        if self._capture is not None:
            with contextlib.suppress(OSError):
                self._capture.close()
        shutil.rmtree(self._cache, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._cache.parent.rmdir()


class Sender:
    """Sends model calls to one server, every one of them into its capture."""

    def __init__(self, endpoint: Endpoint, around: Surroundings, path: Path, header: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._around = around
        self._library = endpoint.tls or around.proxy is not None
        source = LibraryTransport.timestamp_source
        if not self._library:
            transport = SocketTransport(
                endpoint.host, endpoint.port, deadlines=around.deadlines, secret_headers=around.secret_headers
            )
            source = transport.timestamp_source
        self.capture = CaptureWriter(path, {**header, "timestamp_source": source})
        self.controls: list[Control] = []
        self.canary_tokens = 0

    def post(self, tag: Tag, path: str, body: Mapping[str, object], *, stream: bool = False) -> Exchange:
        """One POST over a new connection; parsed by nobody here."""
        endpoint, around = self._endpoint, self._around
        raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        request = http_request(
            endpoint.base_path + path,
            raw,
            host=endpoint.host,
            port=endpoint.port,
            request_id=tag.request_id or None,
            accept="text/event-stream" if stream else "application/json",
        )
        self.capture.tags = [tag]
        if self._library:
            library = LibraryTransport(
                deadlines=around.deadlines,
                sink=self.capture,
                secret_headers=around.secret_headers,
                proxy=around.proxy,
            )
            exchange = library.exchange(request, url=endpoint.url + path)
        else:
            exchange = SocketTransport(
                endpoint.host,
                endpoint.port,
                deadlines=around.deadlines,
                sink=self.capture,
                secret_headers=around.secret_headers,
            ).exchange(request)
        if tag.kind == "canary":
            self.canary_tokens += _tokens(exchange)
        return exchange

    def record(self, control: Control) -> None:
        """Keep a control answer, in the capture and at hand."""
        self.controls.append(control)
        self.capture.control(control)


def _tokens(exchange: Exchange) -> int:
    body = answer_body(exchange)
    try:
        count = json.loads(body)["usage"]["completion_tokens"] if body is not None else 0
    except (ValueError, KeyError, TypeError):
        return 0
    return count if isinstance(count, int) else 0
