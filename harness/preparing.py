"""Options → plan: what is checked, looked up and resolved before the first server of a campaign (contract 2)."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.data import find
from harness.errors import BenchError, UsageError
from harness.evidence import store
from harness.evidence.schema import FileEntry, ModelFacts
from harness.lanes import EngineName, Image, Lane, load_image, load_lane
from harness.launch.engines import create_engine
from harness.launch.server import Engine, ImageFacts, Places
from harness.plan import (
    HIGH_SHAPE,
    CampaignPlan,
    ServerPlan,
    canonical_json,
    check_choice,
    check_image,
    oracle_differences,
    server_plan,
    strict_labels,
)
from harness.preparing_ladder import ladder_plan, ladder_servers, take_oracle
from harness.simulated.faults import parse_faults
from harness.suites import Suite, load_suite
from harness.wire.transport import Deadlines
from harness.workloads.ladder import LOW_CEILING, shape_for

Note = Callable[[str], None]
"""Called with something a person should know"""


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
    ladder: "LadderOptions | None" = None
    """None for the strict suite"""


@dataclass(frozen=True)
class LadderOptions:
    """What ``bench ladder`` asked for beyond that."""

    rungs: tuple[int, ...]
    passes: int
    stagger_ms: float = 0.0
    verbatim: bool = False
    oracle: Path | None = None
    """directory of a finished MTP0 ladder of the same shape"""
    workers: int = 1
    direct: bool = False


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
    oracle: bytes | None = None
    """oracle.json for a ladder that takes its MTP0 answers from an earlier campaign"""


def prepare(options: Options, note: Note, *, dry: bool = False) -> Prepared:
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
    ladder = options.ladder
    suite = load_suite(str(suite_path), need_classes=ladder is None)
    shape = "strict" if ladder is None else shape_for(ladder.rungs)
    if ladder is not None and shape == HIGH_SHAPE and not dry:
        note(f"c{max(ladder.rungs)} is above {LOW_CEILING} users, so all rungs run on the shape {shape}")
    image_name = options.image or (lane.images[0] if lane.images else None)
    image_file = load_image(image_name) if image_name is not None and name == "docker" else None
    check_image(lane, image_file, classpad=options.classpad, depth=options.depth)
    if name != "attach" and lane.model.directory_needed and options.model_dir is None:
        raise UsageError(f"launcher {lane.name} serves a model from a directory; give it with --model-dir")
    if options.model_dir is not None and name != "attach":
        check_model_directory(options.model_dir)
    engine = create_engine(name)
    image = engine.image(image_file) if image_file is not None and not dry else None
    model = None
    if options.model_dir is not None and name != "attach":
        model = model_facts(lane, options.model_dir, note) if not dry else None
    servers = [
        server_plan(
            lane if options.served_model_name is None else _renamed(lane, options.served_model_name),
            label=label,
            depth=depth,
            tensor_parallel=options.tensor_parallel,
            shape=shape,
            engine=name,
            image=image_file,
            image_id=None if image is None else image.id,
            classpad=options.classpad,
            cards=options.cards,
            site_env=options.site_env,
            url=url,
            extra_arguments=[word for fault in options.faults for word in ("--fault", fault)],
        )
        for label, depth, url in (_servers(options, name) if ladder is None else ladder_servers(options, ladder, name))
    ]
    oracle = None
    if ladder is not None and ladder.oracle is not None:
        oracle = take_oracle(
            ladder.oracle,
            servers[-1],
            suite,
            ladder,
            depth_env=oracle_differences(lane)[0],
            model_sha256=None if model is None else model.sha256,
        )
    plan = CampaignPlan(
        kind="strict" if ladder is None else "ladder",
        lane=lane.name,
        engine=name,
        suite_id=suite.suite_id,
        suite_sha256=suite.sha256,
        depth=options.depth,
        tensor_parallel=options.tensor_parallel,
        model_sha256=None if model is None else model.sha256,
        ladder=None if ladder is None else ladder_plan(lane, ladder, shape, oracle),
        servers=servers,
    )
    return Prepared(lane, engine, image_file, image, suite, suite_path, model, plan, oracle)


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


def check_model_directory(directory: Path) -> None:
    """Raises UsageError for a path that can't hold a model's weights."""
    if not directory.is_dir():
        raise UsageError(f"model directory {directory.name} doesn't exist; give the directory of the weights")
    if not (directory / "config.json").is_file():
        raise UsageError(f"model directory {directory.name} has no config.json; give the directory of the weights")


def model_facts(lane: Lane, directory: Path, note: Note) -> ModelFacts:
    """Sizes and sha256 of every file of the model directory. Raises UsageError for one that can't be a model."""
    check_model_directory(directory)
    files = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file() or path.is_symlink()):
        name = path.relative_to(directory).as_posix()
        if not path.exists():
            raise UsageError(f"model file {name} is a dangling link; download the file or remove the link")
        size = path.stat().st_size
        if size > 1 << 30:
            note(f"reading {name}, {size / 2**30:.1f} GiB")
        try:
            files.append(FileEntry(name=name, size=size, sha256=store.sha256_file(path)))
        except OSError as error:
            raise UsageError(f"model file {name} can't be read ({error.strerror}); check its permissions") from None
    digest = hashlib.sha256(canonical_json([[f.name, f.size, f.sha256] for f in files]).encode()).hexdigest()
    return ModelFacts(repository=lane.model.repository, revision=lane.model.revision, files=files, sha256=digest)


def dry_run(options: Options, note: Note) -> list[tuple[ServerPlan, str]]:
    """For each server: its plan and the equivalent command line, nothing started."""
    prepared = prepare(options, note, dry=True)
    image = None
    if prepared.image_file is not None:
        try:
            image = prepared.engine.image(prepared.image_file)
        except BenchError as error:
            note(f"image not checked: {error}")
            image = pinned(prepared.image_file)
    model = options.model_dir.resolve() if options.model_dir is not None else None
    name = campaign_name(prepared.plan)
    return [
        (plan, prepared.engine.command(plan, _places(options, name, plan.label, model), image))
        for plan in prepared.plan.servers
    ]


def pinned(image: Image) -> ImageFacts | None:
    """What the image file pins, for a command line on a host that lacks the image; None for one told by its label."""
    if not image.ids:
        return None
    return ImageFacts(
        name=image.name,
        id=image.ids[0],
        repo_digests=[],
        storage_driver="unknown",
        labels={},
        entrypoint=image.entrypoint,
        env={},
    )


def _places(options: Options, name: str, label: str, model: Path | None) -> Places:
    campaign = options.out.resolve() / name
    log = campaign / store.ATTEMPTS / label / store.LOG
    return Places(name, model, campaign / "caches" / label, log, options.port, options.vllm)


def campaign_name(plan: CampaignPlan) -> str:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    pad = "-classpad" if plan.servers[0].classpad else ""
    return f"{moment}-{plan.lane}-{plan.kind}-tp{plan.tensor_parallel}-mtp{plan.depth}{pad}"
