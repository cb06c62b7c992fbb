"""The order of servers and gates of a strict campaign, its resume and its end (contract 2 to 4)."""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from harness.attempt import Attempt, Surroundings, Watcher
from harness.data import find
from harness.errors import BenchError, ExitCode, Interrupted, UsageError
from harness.evidence import journal, store
from harness.evidence.derive import derive
from harness.evidence.schema import (
    AttemptStatus,
    Evidence,
    FileEntry,
    ModelFacts,
    Start,
    Status,
    SuiteFacts,
    SuitePrompt,
)
from harness.host.facts import Host, host_facts, tool_facts
from harness.host.lock import Locks, card_locks
from harness.lanes import EngineName, Image, Lane, load_image, load_lane
from harness.launch.engines import create_engine
from harness.launch.server import Engine, ImageFacts, Places
from harness.measure.gates import Gate
from harness.plan import (
    CampaignPlan,
    ServerPlan,
    canonical_json,
    check_choice,
    check_image,
    oracle_differences,
    server_plan,
    strict_labels,
)
from harness.signals import SignalGuard
from harness.simulated.faults import parse_faults
from harness.suites import Suite, load_suite
from harness.wire.transport import Deadlines


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    launcher: str
    depth: int
    tensor_parallel: int
    engine: EngineName | None = None
    image: str | None = None
    suite: str = "strict-v1"
    model_dir: Path | None = None
    classpad: bool = False
    cards: str | None = None
    site_env: Mapping[str, str] = field(default_factory=dict)
    out: Path = Path("experiments")
    port: int | None = None
    vllm: str | None = None
    url: str | None = None
    oracle_url: str | None = None
    served_model_name: str | None = None
    faults: Sequence[str] = ()
    secret_headers: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    command: str = "bench strict"


class CampaignWatcher(Watcher, Protocol):
    """Who is shown what a campaign does."""

    def campaign(self, directory: Path, start: Start, done: Sequence[str]) -> None:
        """It begins, or goes on with ``done`` labels finished before."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def gate(self, gate: Gate) -> None:
        """A gate between attempts was derived."""

    def ended(self, evidence: Evidence, directory: Path) -> None:
        """The campaign is over and its evidence written."""


@dataclass(frozen=True)
class Prepared:
    """Everything checked and resolved before the first server."""

    lane: Lane
    engine: Engine
    image_file: Image | None
    image: ImageFacts | None
    suite: Suite
    suite_path: Path
    model: ModelFacts | None
    plan: CampaignPlan


def prepare(options: Options, watcher: CampaignWatcher, *, dry: bool = False) -> Prepared:
    """Files → plan. Raises UsageError for what is wrong in the request, LaunchError for what the host lacks.

    ``dry`` leaves out what needs the host: the image is not looked up and the model is not read.
    """
    lane = load_lane(options.launcher)
    name = options.engine or lane.engine
    check_choice(lane, engine=name, depth=options.depth, tensor_parallel=options.tensor_parallel)
    if options.faults and name != "simulated":
        raise UsageError("--fault is for the simulated server; leave it out, or use --launcher simulated")
    parse_faults(list(options.faults))
    if name == "attach" and options.url is None:
        raise UsageError("the attach engine measures a server that runs already; give its --url")
    if name != "attach" and (options.url or options.oracle_url):
        raise UsageError("--url and --oracle-url go with --engine attach; add it, or leave them out")
    suite_path = find("suites", options.suite, ".json")
    suite = load_suite(str(suite_path))
    image_name = options.image or (lane.images[0] if lane.images else None)
    image_file = load_image(image_name) if image_name is not None and name == "docker" else None
    check_image(lane, image_file, classpad=options.classpad, depth=options.depth)
    if name != "attach" and lane.model.directory_needed and options.model_dir is None:
        raise UsageError(f"launcher {lane.name} serves a model from a directory; give it with --model-dir")
    engine = create_engine(name)
    image = engine.image(image_file) if image_file is not None and not dry else None
    model = None
    if options.model_dir is not None and name != "attach":
        model = model_facts(lane, options.model_dir, watcher) if not dry else None
    servers = [
        server_plan(
            lane if options.served_model_name is None else _renamed(lane, options.served_model_name),
            label=label,
            depth=depth,
            tensor_parallel=options.tensor_parallel,
            shape="strict",
            engine=name,
            image=image_file,
            image_id=None if image is None else image.id,
            classpad=options.classpad,
            cards=options.cards,
            site_env=options.site_env,
            url=url,
            extra_arguments=[word for fault in options.faults for word in ("--fault", fault)],
        )
        for label, depth, url in _servers(options, name)
    ]
    plan = CampaignPlan(
        kind="strict",
        lane=lane.name,
        engine=name,
        suite_id=suite.suite_id,
        suite_sha256=suite.sha256,
        depth=options.depth,
        tensor_parallel=options.tensor_parallel,
        model_sha256=None if model is None else model.sha256,
        servers=servers,
    )
    return Prepared(lane, engine, image_file, image, suite, suite_path, model, plan)


def _renamed(lane: Lane, name: str) -> Lane:
    return lane.model_copy(update={"served_model_name": name})


def _servers(options: Options, engine: EngineName) -> list[tuple[str, int, str | None]]:
    if engine != "attach":
        return [(label, depth, None) for label, depth in strict_labels(options.depth)]
    arm = (f"mtp{options.depth}-a", options.depth, options.url)
    if options.oracle_url is None:
        return [arm]
    if options.depth == 0:
        return [arm, ("mtp0-b", 0, options.oracle_url)]
    return [("mtp0-a", 0, options.oracle_url), arm]


def model_facts(lane: Lane, directory: Path, watcher: CampaignWatcher) -> ModelFacts:
    """Sizes and sha256 of every file of the model directory. Raises UsageError for one that can't be a model."""
    if not directory.is_dir():
        raise UsageError(f"model directory {directory.name} doesn't exist; give the directory of the weights")
    if not (directory / "config.json").is_file():
        raise UsageError(f"model directory {directory.name} has no config.json; give the directory of the weights")
    files = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file() or path.is_symlink()):
        name = path.relative_to(directory).as_posix()
        if not path.exists():
            raise UsageError(f"model file {name} is a dangling link; download the file or remove the link")
        size = path.stat().st_size
        if size > 1 << 30:
            watcher.note(f"reading {name}, {size / 2**30:.1f} GiB")
        try:
            files.append(FileEntry(name=name, size=size, sha256=store.sha256_file(path)))
        except OSError as error:
            raise UsageError(f"model file {name} can't be read ({error.strerror}); check its permissions") from None
    digest = hashlib.sha256(canonical_json([[f.name, f.size, f.sha256] for f in files]).encode()).hexdigest()
    return ModelFacts(repository=lane.model.repository, revision=lane.model.revision, files=files, sha256=digest)


def dry_run(options: Options, watcher: CampaignWatcher) -> list[tuple[ServerPlan, str]]:
    """For each server: its plan and the equivalent command line, nothing started."""
    prepared = prepare(options, watcher, dry=True)
    image = None
    if prepared.image_file is not None:
        try:
            image = prepared.engine.image(prepared.image_file)
        except BenchError as error:
            watcher.note(f"image not checked: {error}")
    model = options.model_dir.resolve() if options.model_dir is not None else None
    name = _campaign_name(prepared.plan)
    return [
        (plan, prepared.engine.command(plan, _places(options, name, plan.label, model), image))
        for plan in prepared.plan.servers
    ]


def _places(options: Options, name: str, label: str, model: Path | None) -> Places:
    campaign = options.out.resolve() / name
    log = campaign / store.ATTEMPTS / label / store.LOG
    return Places(name, model, campaign / "caches" / label, log, options.port, options.vllm)


def _campaign_name(plan: CampaignPlan) -> str:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    pad = "-classpad" if plan.servers[0].classpad else ""
    return f"{moment}-{plan.lane}-{plan.kind}-tp{plan.tensor_parallel}-mtp{plan.depth}{pad}"


def run_strict(options: Options, watcher: CampaignWatcher, *, resume: Path | None = None) -> Evidence:
    """Measure a whole strict campaign, or go on with one. Returns its evidence; raises BenchError.

    Whatever ends it, every server of ours is gone and everything recorded so far is in the directory.
    """
    guard = SignalGuard()
    with guard.installed():
        prepared = prepare(options, watcher)
        directory = _new_directory(options, prepared) if resume is None else resume
        if not directory.is_dir():
            raise UsageError(f"campaign directory {directory.name} doesn't exist; give the one that was interrupted")
        locks = [directory, *card_locks(_cards(prepared))]
        with Locks(locks):
            if resume is None:
                start = _start(options, prepared, directory.name)
                store.write_atomic(directory / store.SUITE, prepared.suite_path.read_bytes())
                dumped = start.model_dump(mode="json")
                journal.append(directory, journal.Event(at=journal.now_utc(), event="campaign-started", start=dumped))
                done: list[str] = []
            else:
                start, done = _resumable(directory, prepared)
                journal.append(directory, journal.Event(at=journal.now_utc(), event="campaign-resumed"))
            watcher.campaign(directory, start, done)
            return _run(options, prepared, start, directory, done, watcher, guard)


def _new_directory(options: Options, prepared: Prepared) -> Path:
    base = _campaign_name(prepared.plan)
    for number in range(1, 1000):
        directory = options.out / (base if number == 1 else f"{base}.{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BenchError(
                f"{options.out.name} can't hold a campaign ({error.strerror}); choose another --out"
            ) from None
        return directory.resolve()
    raise BenchError(f"{options.out.name} holds a thousand campaigns of this second; choose another --out")


def _cards(prepared: Prepared) -> str | None:
    variable = prepared.lane.card_env
    return None if variable is None else prepared.plan.servers[0].env.get(variable)


def _start(options: Options, prepared: Prepared, campaign_id: str) -> Start:
    suite, host = prepared.suite, host_facts()
    prompts = [SuitePrompt(id=item.id, prompt_class=item.prompt_class, sha256=item.sha256) for item in suite.prompts]
    return Start(
        campaign_id=campaign_id,
        lane_title=prepared.lane.title,
        simulated=prepared.plan.engine == "simulated",
        plan=prepared.plan,
        plan_sha256=prepared.plan.sha256(),
        suite=SuiteFacts(id=suite.suite_id, version=suite.version, sha256=suite.sha256, prompts=prompts),
        image=prepared.image,
        model=prepared.model,
        host=host,
        tool=tool_facts(),
        command=options.command,
        depth_env=sorted(oracle_differences(prepared.lane)[0]),
        unknown=_unknown(prepared, host),
    )


def _unknown(prepared: Prepared, host: Host) -> list[str]:
    found = []
    if prepared.plan.engine in ("docker", "process") and prepared.lane.model.directory_needed:
        found.append("model: its files were hashed, but no manifest says what they should be")
    if prepared.plan.engine == "attach":
        found.append("image, environment and caches: unknown (attached server)")
    if host.facts["cards"].state != "not applicable":
        found.append("telemetry: not recorded")
    return found


def _resumable(directory: Path, prepared: Prepared) -> tuple[Start, list[str]]:
    """The recorded start and the labels that are complete. Raises UsageError when there is nothing to go on with."""
    evidence = derive(directory)
    if evidence.start.plan_sha256 != prepared.plan.sha256():
        raise UsageError(
            f"{directory.name} was measured by another plan ({_first_difference(evidence.start.plan, prepared.plan)}); "
            "resume with the options it was started with, or start anew"
        )
    verdicts = (Status.PASSED, Status.WITHHELD, Status.REJECTED)
    done = {attempt.label: attempt for attempt in evidence.attempts if attempt.status is AttemptStatus.COMPLETE}
    finished = evidence.status in verdicts or len(done) == len(evidence.start.plan.servers)
    if evidence.ended_at is not None and finished:
        raise UsageError(f"{directory.name} has ended ({evidence.status}), there is nothing to resume; start anew")
    if evidence.ended_at is not None and evidence.exit_code == ExitCode.GATE_FAILED:
        raise UsageError(
            f"{directory.name} has a failed gate ({evidence.status}); its numbers stay withheld, start anew"
        )
    return evidence.start, list(done)


def _first_difference(recorded: CampaignPlan, asked: CampaignPlan) -> str:
    left, right = recorded.model_dump(mode="json"), asked.model_dump(mode="json")
    for key in left:
        if key != "servers" and left[key] != right[key]:
            return f"{key}: {left[key]} then, {right[key]} now"
    for one, other in zip(recorded.servers, asked.servers, strict=False):
        before, now = one.model_dump(mode="json"), other.model_dump(mode="json")
        for key in before:
            if before[key] != now[key]:
                return f"{one.label}.{key}: {_short(before[key])} then, {_short(now[key])} now"
    return "other servers"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 200 else text[:200] + "…"


def _run(
    options: Options,
    prepared: Prepared,
    start: Start,
    directory: Path,
    done: Sequence[str],
    watcher: CampaignWatcher,
    guard: SignalGuard,
) -> Evidence:
    around = Surroundings(
        engine=prepared.engine,
        image=prepared.image,
        suite=prepared.suite,
        facts=start.suite,
        campaign_id=start.campaign_id,
        directory=directory,
        model=options.model_dir.resolve() if options.model_dir is not None else None,
        port=options.port,
        vllm=options.vllm,
        min_mem_available=prepared.lane.min_mem_available,
        deadlines=options.deadlines,
        secret_headers=options.secret_headers,
        proxy=options.proxy,
        watcher=watcher,
        quiet=guard.quiet,
    )
    status, error = "ended", ""
    shown: set[tuple[str, str]] = set()
    try:
        for plan in prepared.plan.servers:
            ending = _attempt(plan, around, directory) if plan.label not in done else None
            guard.check()
            evidence = _write(directory)
            _show_gates(evidence, shown, watcher)
            if ending is not None:
                status, error = ending
                break
            # The base isn't repeat-exact: nothing that follows could be compared with it (contract section 4).
            if any(gate.name == "G1" and not gate.passed for gate in evidence.gates):
                break
    except Interrupted as interruption:
        status, error = Status.INTERRUPTED, str(interruption)
    except BaseException as failure:
        with guard.quiet(), contextlib.suppress(BenchError, OSError):
            _end(directory, "ended", f"{type(failure).__name__}: {failure}")
        raise
    with guard.quiet():
        evidence = _end(directory, status, error)
    watcher.ended(evidence, directory)
    return evidence


def _attempt(plan: ServerPlan, around: Surroundings, directory: Path) -> tuple[str, str] | None:
    """One attempt in a directory of its own; None when it is complete, else how the campaign ends."""
    name = _attempt_directory(directory, plan.label)
    around.watcher.attempt(plan.label, name)
    _journal(directory, "attempt-started", plan.label, name)
    status, error = AttemptStatus.INVALID, "the harness failed"
    try:
        status, error = Attempt(plan, name, around).run()
    finally:
        with around.quiet():
            _journal(directory, "attempt-ended", plan.label, name, status, error)
            around.watcher.attempt_ended(plan.label, status, error)
    if status is AttemptStatus.COMPLETE:
        return None
    return (Status.INTERRUPTED if status is AttemptStatus.INTERRUPTED else "ended"), error


def _show_gates(evidence: Evidence, shown: set[tuple[str, str]], watcher: CampaignWatcher) -> None:
    for gate in evidence.gates:
        if (gate.name, gate.subject) not in shown:
            shown.add((gate.name, gate.subject))
            watcher.gate(gate)


def _attempt_directory(directory: Path, label: str) -> str:
    """``mtp0-a``, or ``mtp0-a.2`` and so on after an attempt that ended early: nothing recorded is overwritten."""
    number = 1
    while (directory / store.ATTEMPTS / (label if number == 1 else f"{label}.{number}")).exists():
        number += 1
    return label if number == 1 else f"{label}.{number}"


def _journal(
    directory: Path, event: journal.EventName, label: str, name: str, status: str = "", error: str = ""
) -> None:
    moment = journal.now_utc()
    entry = journal.Event(at=moment, event=event, label=label, directory=name, status=status, error=error)
    journal.append(directory, entry)


def _write(directory: Path) -> Evidence:
    evidence = derive(directory)
    store.write_atomic(directory / store.EVIDENCE, store.dump_json(evidence.model_dump(mode="json", by_alias=True)))
    store.write_manifest(directory)
    return evidence


def _end(directory: Path, status: str, error: str) -> Evidence:
    event = journal.Event(at=journal.now_utc(), event="campaign-ended", status=status, error=error)
    journal.append(directory, event)
    return _write(directory)
