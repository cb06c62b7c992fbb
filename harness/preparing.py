"""Options → plan: what is checked, looked up and resolved before the first server of a campaign (contract 2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.data import find
from harness.errors import BenchError, UsageError
from harness.evidence import store
from harness.evidence.schema import ModelFacts
from harness.host.model_files import check_model_directory, checked_files, read_files
from harness.host.roots import Roots
from harness.lanes import EngineName, Image, Lane, load_image, load_lane
from harness.launch.engines import create_engine
from harness.launch.server import Engine, ImageFacts, Places
from harness.models import LoadedManifest, combined_sha256, load_manifest
from harness.plan import (
    HIGH_SHAPE,
    CampaignPlan,
    ServerPlan,
    check_choice,
    check_image,
    oracle_differences,
    server_plan,
    strict_labels,
)
from harness.preparing_context import SUITE_ID, ContextOptions, context_plan, context_servers, texts_facts
from harness.preparing_ladder import ladder_plan, ladder_servers, take_oracle
from harness.redact import hide_arguments, hide_environment
from harness.simulated.faults import parse_faults
from harness.strangers import real
from harness.suites import Suite, load_suite
from harness.wire.transport import Deadlines
from harness.workloads.ladder import LOW_CEILING, check_passes, shape_for

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
    model_manifest: str | None = None
    """name or path; the launcher's own where it is None"""
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
    """None for another kind than ladder"""
    context: ContextOptions | None = None
    """None where no prompts of token ids are sent"""
    stream_canary: bool = False
    roots: Roots = field(default_factory=Roots)
    """where the host is read"""


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
    suite: Suite | None
    """null where texts are sent instead"""
    suite_path: Path | None
    model: ModelFacts | None
    plan: CampaignPlan
    oracle: bytes | None = None
    """oracle.json for a ladder that takes its MTP0 answers from an earlier campaign"""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """what prompts of token ids are made of, by name"""


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
    ladder, asked = options.ladder, options.context
    alone = asked is not None and asked.kind != "strict"
    suite_path = None if alone else find("suites", options.suite, ".json")
    suite = None if suite_path is None else load_suite(str(suite_path), need_classes=ladder is None)
    shape: str = "strict" if ladder is None else shape_for(ladder.rungs)
    if ladder is not None:
        check_passes(ladder.rungs, ladder.passes)
    context, texts = None, dict[str, bytes]()
    if asked is not None:
        shape = "depth" if asked.kind == "depth" else shape
        context, texts = context_plan(lane, shape, options.depth, asked)
    if ladder is not None and shape == HIGH_SHAPE and not dry:
        note(f"c{max(ladder.rungs)} is above {LOW_CEILING} users, so all rungs run on the shape {shape}")
    image_name = options.image or (lane.images[0] if lane.images else None)
    image_file = load_image(image_name) if image_name is not None and name == "docker" else None
    check_image(lane, image_file, classpad=options.classpad, depth=options.depth)
    if name != "attach" and lane.model.directory_needed and options.model_dir is None:
        raise UsageError(f"launcher {lane.name} serves a model from a directory; give it with --model-dir")
    if options.model_dir is not None and name != "attach":
        check_model_directory(options.model_dir)
    manifest = model_manifest(options, lane, name)
    engine = create_engine(name)
    image = engine.image(image_file) if image_file is not None and not dry else None
    model = None
    if options.model_dir is not None and name != "attach":
        model = model_facts(lane, options.model_dir, note, manifest) if not dry else None
    given = [
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
        for label, depth, url in _servers(options, name)
    ]
    for server in given:
        hide_environment(server.env)
        hide_arguments(server.arguments)
    servers = [server.recorded() for server in given]
    oracle = None
    if ladder is not None and ladder.oracle is not None and suite is not None:
        oracle = take_oracle(
            ladder.oracle,
            servers[-1],
            suite,
            ladder,
            depth_env=oracle_differences(lane)[0],
            model_sha256=None if model is None else model.sha256,
        )
    sent = texts_facts(context.texts) if suite is None and context is not None else None
    plan = CampaignPlan(
        kind=asked.kind if asked is not None else "strict" if ladder is None else "ladder",
        lane=lane.name,
        engine=name,
        suite_id=suite.suite_id if suite is not None else SUITE_ID,
        suite_sha256=suite.sha256 if suite is not None else sent.sha256 if sent is not None else "",
        depth=options.depth,
        tensor_parallel=options.tensor_parallel,
        model_sha256=None if model is None else model.sha256,
        ladder=None if ladder is None else ladder_plan(lane, ladder, shape, oracle),
        context=context,
        stream_canary=options.stream_canary,
        servers=servers,
    )
    return Prepared(lane, engine, image_file, image, suite, suite_path, model, plan, oracle, texts)


def _renamed(lane: Lane, name: str) -> Lane:
    return lane.model_copy(update={"served_model_name": name})


def _servers(options: Options, engine: EngineName) -> list[tuple[str, int, str | None]]:
    """(label, depth, url) of every server, in order."""
    if options.ladder is not None:
        return ladder_servers(options, options.ladder, engine)
    if options.context is not None and options.context.kind != "strict":
        return context_servers(options, engine)
    if engine != "attach":
        return [(label, depth, None) for label, depth in strict_labels(options.depth)]
    arm = (f"mtp{options.depth}-a", options.depth, options.url)
    if options.oracle_url is None:
        return [arm]
    if options.depth == 0:
        return [arm, ("mtp0-b", 0, options.oracle_url)]
    return [("mtp0-a", 0, options.oracle_url), arm]


def model_manifest(options: Options, lane: Lane, engine: EngineName) -> LoadedManifest | None:
    """The manifest that the model directory must match, of --model-manifest or the launcher. Raises UsageError."""
    if options.model_manifest is not None and (options.model_dir is None or engine == "attach"):
        raise UsageError("--model-manifest says what --model-dir must hold; give both, or leave it out")
    named = options.model_manifest or (lane.model.manifest if options.model_dir is not None else None)
    if named is None or engine == "attach":
        return None
    loaded = load_manifest(named)
    for what in ("repository", "revision"):
        asked, pinned_to = getattr(lane.model, what), getattr(loaded.manifest, what)
        if asked is not None and pinned_to is not None and asked != pinned_to:
            raise UsageError(
                f"model manifest {loaded.name} is of {what} {pinned_to}, launcher {lane.name} serves {asked}; "
                "give the manifest of that model"
            )
    return loaded


def model_facts(lane: Lane, directory: Path, note: Note, loaded: LoadedManifest | None = None) -> ModelFacts:
    """Sizes and sha256 of every file of the model directory, checked against a manifest where there is one.

    Raises UsageError for a directory that can't be a model's or that isn't what the manifest says, BenchError for one
    that changes while it is read.
    """

    def progress(name: str, done: int, size: int) -> None:
        if done == 0 and size > 1 << 30:
            note(f"reading {name}, {size / 2**30:.1f} GiB")

    if loaded is None:
        files, repository, revision = read_files(directory, progress), lane.model.repository, lane.model.revision
    else:
        files = checked_files(directory, loaded.manifest, loaded.name, progress)
        repository = lane.model.repository or loaded.manifest.repository
        revision = lane.model.revision or loaded.manifest.revision
    return ModelFacts(
        repository=repository,
        revision=revision,
        files=files,
        sha256=combined_sha256(files),
        manifest_sha256=None if loaded is None else loaded.sha256,
    )


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
    campaign = real(options.out) / name
    log = campaign / store.ATTEMPTS / label / store.LOG
    return Places(name, model, campaign / "caches" / label, log, options.port, options.vllm)


def campaign_name(plan: CampaignPlan) -> str:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    pad = "-classpad" if plan.servers[0].classpad else ""
    return f"{moment}-{plan.lane}-{plan.kind}-tp{plan.tensor_parallel}-mtp{plan.depth}{pad}"
