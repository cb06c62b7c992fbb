"""Asking a server for log-probabilities after an exact token-id prefix: a running one, or a fresh one by a plan.

Nothing of it enters the campaign that is explained: the servers' files live in a temporary directory.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.attempt import Attempt, Surroundings
from harness.errors import BenchError, Interrupted, UsageError
from harness.evidence import store
from harness.evidence.fresh import counters
from harness.evidence.schema import AttemptStatus, ModelFacts, Start
from harness.host.flight import not_applicable
from harness.host.kernel_log import now
from harness.host.lock import Locks, card_locks
from harness.host.model_files import called, check_model_directory, list_files, read_files
from harness.host.roots import Roots
from harness.host_guard import HostGuard, Note, watch
from harness.lanes import Image, Lane, load_lane
from harness.launch.attach import parse_url
from harness.launch.control import ControlClient
from harness.launch.engines import create_engine
from harness.launch.server import Engine, ImageFacts
from harness.measure.gates import undeclared
from harness.plan import SPECULATIVE_FLAG, ServerPlan
from harness.questions import KIND, Asked, Asker, Question
from harness.sender import Access, Sender
from harness.session import Session
from harness.signals import SignalGuard
from harness.watching import Watcher
from harness.wire.transport import Deadlines

CARDS = "ZE_AFFINITY_MASK"
"""Chooses the cards on every lane that has some (contract section 2)"""
PATIENT = Deadlines(first_byte_s=900.0)
"""An answer that isn't streamed has its first byte at its end, and nothing is timed here"""


def ask_url(
    url: str,
    questions: Sequence[Question],
    model: str,
    top: int,
    *,
    secret_headers: tuple[tuple[str, str], ...] = (),
    deadlines: Deadlines | None = None,
) -> Asked:
    """Ask a server that runs already. Raises UsageError for what is no URL."""
    try:
        endpoint = parse_url(url)
    except UsageError as error:
        raise UsageError(str(error).replace("--url", "--ask")) from None
    asked = Asked(endpoint.url)
    asked.notes.append(
        f"{endpoint.url} runs already, so nothing shows that it is the recorded oracle; it is, as far as it prefers "
        "the recorded ids"
    )
    with tempfile.TemporaryDirectory(prefix="bench-explain-") as folder:
        access = Access(deadlines or PATIENT, secret_headers)
        sender = Sender(endpoint, access, Path(folder) / store.CAPTURE, {"label": KIND})
        control = ControlClient(endpoint, record=sender.record, headers=dict(secret_headers))
        try:
            control.get("metrics-before", "/metrics")
            found = counters(sender.controls, "metrics-before")
            if not isinstance(found, str) and found.speculative:
                asked.notes.append(f"{endpoint.url} speculates (spec_decode metrics), so it is no MTP0 oracle")
            Asker(sender, asked, model, top).ask(questions)
        finally:
            control.close()
            sender.capture.close()
    return asked


@dataclass
class AskingWork:
    """What is done on a fresh server: the questions, nothing else."""

    asked: Asked
    questions: Sequence[Question]
    top: int

    def run(self, session: Session) -> None:
        """Ask everything. Never raises for an answer."""
        session.stage(f"log-probabilities at {len(self.questions)} places")
        Asker(session.sender, self.asked, session.plan.served_model_name, self.top).ask(self.questions)


def oracle_plan(start: Start) -> ServerPlan:
    """The recorded MTP0 server; where the campaign had none of its own, its server without speculation.

    Raises UsageError for a campaign that started no server.
    """
    servers = start.plan.servers
    if servers[0].engine == "attach":
        raise UsageError(
            f"{start.campaign_id} measured a server of somebody else, so there is no plan to start one by; give a "
            "running server with --ask URL"
        )
    base = next((plan for plan in servers if plan.depth == 0), None)
    if base is None:
        measured = servers[-1]
        base = measured.model_copy(
            update={
                "depth": 0,
                "arguments": undeclared(measured.arguments, frozenset({SPECULATIVE_FLAG})),
                "env": {name: value for name, value in measured.env.items() if name not in start.depth_env},
            }
        )
    return base.model_copy(update={"label": "mtp0-explain"})


def check_model(model: ModelFacts, directory: Path, note: Note) -> None:
    """The directory must hold the recorded files, byte for byte. Raises UsageError naming the first that differs."""

    def progress(name: str, done: int, size: int) -> None:
        if done == 0 and size > 1 << 30:
            note(f"reading {name}, {size / 2**30:.1f} GiB")

    check_model_directory(directory)
    listing = list_files(directory)
    recorded = {entry.name: entry for entry in model.files}
    # Names and sizes first: reading weights takes minutes.
    for name in sorted({*listing.files, *recorded}):
        if name not in recorded:
            raise _other_model(directory, f"{name} is there and was not recorded")
        if name not in listing.files:
            raise _other_model(directory, f"{name} was recorded and is missing")
        if listing.files[name][2] != recorded[name].size:
            raise _other_model(directory, f"{name} has another size than the {recorded[name].size} bytes recorded")
    for found in read_files(directory, progress, listing):
        if found.sha256 != recorded[found.name].sha256:
            raise _other_model(directory, f"{found.name} has another sha256")


def _other_model(directory: Path, why: str) -> UsageError:
    return UsageError(
        f"model directory {called(directory)} is not the model that was measured ({why}); give the directory of the "
        "same weights"
    )


def _image(engine: Engine, recorded: ImageFacts | None) -> ImageFacts | None:
    """The recorded image on this host, by its id or digests. Raises LaunchError when it isn't there."""
    if recorded is None:
        return None
    digests = [digest.rpartition("@")[2] for digest in recorded.repo_digests]
    pin: Mapping[str, Any] = {
        "schema": 1,
        "name": recorded.name,
        "title": recorded.name,
        "ids": [recorded.id, *digests],
        "version": "",
        "entrypoint": recorded.entrypoint,
        "obtain": "load the image that was measured, or give a running server with --ask URL",
    }
    return engine.image(Image.model_validate(pin))


def _lane(name: str, plan: ServerPlan) -> Lane | None:
    """The launcher, for what a plan doesn't hold: the memory that must be free, and how cards are named.

    None for one that isn't known here, whose servers are given no card. Raises UsageError where they are.
    """
    try:
        return load_lane(name)
    except UsageError:
        if CARDS in plan.env:
            raise
        return None


def _host(lane: Lane | None, plan: ServerPlan, image: ImageFacts | None, note: Note, campaign: str) -> HostGuard:
    """Who looks at the host around the server, as in a campaign. Raises BenchError for a host that can't be used."""
    roots = Roots()
    if lane is None:
        return HostGuard(
            roots, None, not_applicable("the launcher isn't known here, and uses no card"), now(roots.proc)
        )
    return watch(lane, plan, image, roots, note, campaign=campaign)


def ask_fresh(
    start: Start,
    questions: Sequence[Question],
    top: int,
    *,
    watcher: Watcher,
    model_dir: Path | None = None,
    vllm: str | None = None,
) -> Asked:
    """Start an MTP0 server by the recorded plan, ask it, and stop it, whatever happens.

    Raises UsageError before anything is started: for a missing or another model, or a campaign without a plan to start
    by. What fails later is a problem in the result.
    """
    plan = oracle_plan(start)
    needs_model = any("<model>" in word for word in plan.arguments)
    if needs_model and model_dir is None:
        raise UsageError(f"{start.campaign_id} served a model from a directory; give the same one with --model-dir")
    asked = Asked(f"a fresh MTP0 server by the plan of {start.campaign_id}")
    if plan.engine == "simulated":
        asked.notes.append("SIMULATED: the margins are those of the simulated server, which measures nothing")
    guard = SignalGuard()
    with guard.installed(), tempfile.TemporaryDirectory(prefix="bench-explain-", ignore_cleanup_errors=True) as folder:
        try:
            if needs_model and model_dir is not None:
                if start.model is None:
                    raise UsageError(f"{start.campaign_id} has no record of its model's files; use --ask URL")
                check_model(start.model, model_dir, watcher.note)
            with Locks(card_locks(plan.env.get(CARDS))):
                engine, lane = create_engine(plan.engine), _lane(start.plan.lane, plan)
                image, name = _image(engine, start.image), f"explain-{start.campaign_id}"
                around = Surroundings(
                    engine=engine,
                    image=image,
                    campaign_id=name,
                    directory=Path(folder).resolve(),
                    model=model_dir.resolve() if model_dir is not None else None,
                    port=None,
                    vllm=vllm,
                    min_mem_available=None if lane is None else lane.min_mem_available,
                    access=Access(PATIENT),
                    direct=False,
                    watcher=watcher,
                    guard=guard,
                    host=_host(lane, plan, image, watcher.note, name),
                )
                status, error = Attempt(plan, plan.label, around, AskingWork(asked, questions, top)).run()
                if status is not AttemptStatus.COMPLETE:
                    asked.problems.append(error)
            guard.check()
        except UsageError:
            raise
        except (BenchError, Interrupted) as failure:  # what the records say is told all the same
            asked.problems.append(str(failure))
    return asked
