"""One attempt: a fresh server is started, proven, worked on, and ended, whatever happens (contract section 2)."""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import EvidenceError, FreshnessError, Interrupted, LaunchError, RecordError
from harness.evidence import store
from harness.evidence.schema import AttemptStatus, ServerRecord
from harness.evidence.sentences import answer_without_paths, log_without_paths, without_paths
from harness.hidden import masked, masked_bytes
from harness.host.flight import told
from harness.host.memory import wait_for_memory
from harness.host.telemetry import Telemetry
from harness.host_guard import HostGuard
from harness.launch import proof
from harness.launch.control import ControlClient
from harness.launch.readiness import POLL_S, wait_ready
from harness.launch.server import LOG_UNWRITABLE, Engine, ImageFacts, Places, RunningServer
from harness.plan import ServerPlan
from harness.redact import home_roles
from harness.sender import Access, Sender
from harness.session import Session, Work
from harness.signals import SignalGuard
from harness.unwritable import unwritable
from harness.watching import Watcher
from harness.wire.capture import Control
from harness.wire.capture_writer import CaptureWriter
from harness.wire.masking import mask_capture

SIMULATED_POLL_S = 0.1
"""The embedded server starts in a moment; every other one is asked each second (contract section 2)"""
CACHES = "caches"
"""Folder of the campaign under which each server has its cache directory while it lives"""


@dataclass(frozen=True)
class Surroundings:
    """What an attempt needs from its campaign."""

    engine: Engine
    image: ImageFacts | None
    campaign_id: str
    directory: Path
    """of the campaign"""
    model: Path | None
    port: int | None
    vllm: str | None
    min_mem_available: int | None
    access: Access
    direct: bool
    """ask the container at its own address instead of its published port"""
    watcher: Watcher
    guard: SignalGuard
    host: HostGuard

    def roles(self) -> dict[str, str]:
        """Host paths and what stands for them in evidence."""
        known = {str(self.directory): "<campaign>", str(Path.home()): "<home>"}
        return known if self.model is None else {**known, str(self.model): "<model>"}

    def places(self) -> list[str]:
        """The same paths without the home of a user whom every container has, too: masked in what a server sent."""
        own = [place for place in self.roles() if place.count("/") > 1]
        return sorted(own, key=len, reverse=True)


def mask_killed(folder: Path) -> None:
    """What a killed run could not do any more: no secret stays in the files of its last attempt. Raises RecordError."""
    log = folder / store.LOG
    with contextlib.suppress(FileNotFoundError, EvidenceError):
        mask_capture(folder / store.CAPTURE)
    with contextlib.suppress(FileNotFoundError):
        whole = log.read_bytes()
        if (clean := masked_bytes(whole)) != whole:
            store.write_atomic(log, clean)


class Attempt:
    """Runs once. ``run`` returns how it ended; its files are complete when it does."""

    def __init__(self, plan: ServerPlan, directory: str, around: Surroundings, work: Work) -> None:
        self.plan = plan
        self._work = work
        self._around = around
        self._folder = around.directory / store.ATTEMPTS / directory
        self._cache = around.directory / CACHES / directory
        self._record = ServerRecord(label=plan.label, requested=plan)
        self._capture: CaptureWriter | None = None
        self._server: RunningServer | None = None
        self._control: ControlClient | None = None
        self._telemetry: Telemetry | None = None

    def run(self) -> tuple[AttemptStatus, str]:
        """(status, error sentence). Raises BenchError only after the server is gone and all that could be is kept.

        RecordError when a file of it couldn't be written, the first one: nothing can be concluded without it.
        """
        status, error, unwritten = AttemptStatus.INVALID, "", list[RecordError]()
        # Signals wait but for the places where one may come: between a start and its stop no server can be forgotten.
        with self._around.guard.quiet():
            self._make_folder()
            try:
                self._look()
                self._save()
                server = self._server = self._start()
                with self._around.guard.listening():
                    self._measure(server)
                status = AttemptStatus.COMPLETE
            except Interrupted as interruption:
                status, error = AttemptStatus.INTERRUPTED, f"{self.plan.label}: {interruption}"
            except LaunchError as failure:
                error = str(failure)
            except RecordError as failure:
                error = f"{self.plan.label}: {failure}"
                unwritten.append(RecordError(error))
            except OSError as failure:
                path = Path(str(failure.filename)) if failure.filename else self._folder
                unwritten.append(unwritable(path, failure, label=self.plan.label))
                error = str(unwritten[0])
            finally:
                unwritten += self._end(error)
        if unwritten:
            raise unwritten[0]
        if status is AttemptStatus.COMPLETE and self._record.error:  # its end alone went wrong
            return AttemptStatus.INVALID, self._record.error
        return status, error

    def _make_folder(self) -> None:
        # Not with its parents: a campaign's directory that somebody removed isn't made anew.
        try:
            self._folder.parent.mkdir(exist_ok=True)
            self._folder.mkdir()
        except OSError as error:
            raise unwritable(self._folder, error, label=self.plan.label) from None

    def _look(self) -> None:
        """The host before the server; telemetry runs from here to the server's end. Raises LaunchError for a fault."""
        record = self._record.host = self._around.host.before()
        if record.before.faults:
            said = told(record.before.faults)[0][:200]
            raise LaunchError(
                f"{self.plan.label}: the kernel log has a fault of the cards since the campaign began ({said}), so no "
                "further server is started; start anew, which probes the cards first"
            )
        with self._around.guard.listening():
            record = self._record.host = self._around.host.memory(record, self._stage)
        if record.memory is not None and record.memory.held:
            raise LaunchError(
                f"{self.plan.label}: {record.memory.held[0]} after {record.memory.waited_s:.0f} s, so no server is "
                "started beside it; end what holds it (bench clean removes what is left of ours), then resume"
            )
        self._telemetry = self._around.host.telemetry(self._folder / store.TELEMETRY)
        if self._telemetry is not None:
            self._telemetry.start()

    def _stage(self, text: str) -> None:
        self._around.watcher.stage(self.plan.label, text)

    def _save(self) -> None:
        data = self._record.model_dump(mode="json", by_alias=True)
        store.write_atomic(self._folder / store.SERVER, masked_bytes(store.dump_json(data)))

    def _start(self) -> RunningServer:
        """Start the server; a signal waits until it is known, so that it will be stopped."""
        around = self._around
        if around.min_mem_available is not None:
            with around.guard.listening():
                wait_for_memory(around.min_mem_available, self._stage, meminfo=around.host.roots.meminfo)
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
        endpoint = (server.direct_endpoint() if around.direct else None) or server.endpoint
        sender = Sender(endpoint, around.access, self._folder / store.CAPTURE, {"label": plan.label})
        self._capture = sender.capture
        self._control = control = ControlClient(
            server.endpoint,
            record=lambda answer: sender.record(self._reduced(answer)),
            headers=dict(around.access.secret_headers),
        )
        session = Session(plan, server, sender, control, log, self._stage, self._record.log_marks)
        self._record.readiness = wait_ready(
            server,
            plan,
            control,
            read_log=log.read_bytes,
            ask_one_token=session.ask_one_token,
            progress=self._stage,
            poll_s=SIMULATED_POLL_S if plan.engine == "simulated" else POLL_S,
        )
        if plan.dev_mode:
            control.get("server-info")
        self._record.within = server.within(plan)
        self._save()
        session.scrape("metrics-before")
        session.refuse_stale_depth()
        session.refuse_other_server(self._record)
        self._work.run(session)
        session.refuse_dead()

    def _reduced(self, answer: Control) -> Control:
        body = masked(answer_without_paths(answer.body, self._around.roles()))
        return replace(answer, body=body, error=masked(answer.error))

    def _reduce_log(self) -> None:
        """A process on the host logs the host's paths; a container only those it was told, and its own are nobody's."""
        path = self._folder / store.LOG
        log = path.read_bytes()
        roles = self._around.roles()
        if self.plan.engine == "docker":
            roles = {place: role for place, role in roles.items() if role != "<home>"} | home_roles()
        reduced = log_without_paths(log, roles, generic=self.plan.engine != "docker")
        reduced = masked_bytes(reduced, self._around.places())
        if reduced != log:
            store.write_atomic(path, reduced)

    def _mask_capture(self) -> None:
        with contextlib.suppress(EvidenceError):  # cut short by a full disk, which is told already
            mask_capture(self._folder / store.CAPTURE, self._around.places())

    def _list_cache(self, cache: Path) -> None:
        self._record.cache_before = store.list_caches(cache)

    def _end(self, error: str) -> list[RecordError]:
        """Stop the server and finish every file; a full disk must not keep the server alive. What it left unwritten."""
        unwritten = list[RecordError]()
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            self._stage("stopping")
            stop = self._server.stop()
            self._record.stop = stop
            self._record.inspect = self._server.last_inspect() or self._record.inspect
            self._keep(self._reduce_log, store.LOG, unwritten)
            if stop.note.startswith(LOG_UNWRITABLE):
                unwritten.append(RecordError(f"{self.plan.label}: {stop.note}"))
            if stop.state.running is None and not stop.gone and not error:
                error = (
                    f"{self.plan.label}: the end of its server is unknown, because {stop.state.error}; start Docker "
                    "again, then --resume, which removes what is left"
                )
        if self._telemetry is not None:
            self._telemetry.stop()
        if self._record.host is not None:
            self._record.host = self._around.host.after(self._record.host, self._telemetry)
        self._record.error = without_paths(error, self._around.roles())
        if self._record.cache_before is not None:
            with contextlib.suppress(OSError):
                self._record.cache_after = store.list_caches(self._cache)
        # Before what is written last, which may need its room; a container that may be there still writes into it.
        if self._record.stop is None or self._record.stop.gone or self.plan.engine != "docker":
            shutil.rmtree(self._cache, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._cache.parent.rmdir()
        if self._capture is not None:
            self._keep(self._capture.close, store.CAPTURE, unwritten)
            self._keep(self._mask_capture, store.CAPTURE, unwritten)
        self._keep(self._save, store.SERVER, unwritten)
        return unwritten

    def _keep(self, write: Callable[[], None], name: str, unwritten: list[RecordError]) -> None:
        """Write one file of the attempt, or note that it can't be."""
        try:
            write()
        except RecordError as error:
            unwritten.append(RecordError(f"{self.plan.label}: {error}"))
        except OSError as error:
            unwritten.append(unwritable(self._folder / name, error, label=self.plan.label))
