"""The ``bench`` command: parse, call, print, exit code. Nothing is measured here; heavy imports come late."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import (
    EXPERIMENTS,
    ApiKeyEnv,
    Card,
    Cards,
    Classpad,
    Depth,
    DryRun,
    EngineOption,
    Fault,
    ImageOption,
    JsonOption,
    KernelLog,
    Launcher,
    ModelDir,
    ModelManifest,
    OracleUrl,
    Out,
    Port,
    Proxy,
    Resume,
    ServedName,
    Site,
    StreamCanary,
    SuiteOption,
    Texts,
    Url,
    Vllm,
    api_key_header,
    choose_launcher,
    engine_name,
    out_json,
    recorded_command,
    site_environment,
    typed_command,
)
from harness.commands import campaigns, clean, compare, doctor, explain, judge, lab, model, promote, report, seal
from harness.errors import BenchError, ExitCode, Interrupted, UsageError
from harness.screen import guard
from harness.signals import SignalGuard

if TYPE_CHECKING:
    from harness.preparing import LadderOptions, Options
    from harness.preparing_context import ContextOptions
    from harness.watching import Watcher

app = typer.Typer(
    name="bench",
    help="Benchmark vLLM on Intel Arc Pro B70: outputs equal, or the number is withheld.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def strict(
    mtp: Depth = 3,
    tp: Cards = 1,
    launcher: Launcher = None,
    engine: EngineOption = None,
    image: ImageOption = None,
    suite: SuiteOption = "strict-v1",
    probes: Annotated[
        bool, typer.Option("--probes", help="Boundary probes after the suite, as bench probe asks them.")
    ] = False,
    stream_canary: StreamCanary = False,
    texts: Texts = None,
    model_dir: ModelDir = None,
    model_manifest: ModelManifest = None,
    classpad: Classpad = False,
    card: Card = None,
    site: Site = None,
    out: Out = EXPERIMENTS,
    port: Port = None,
    kernel_log: KernelLog = None,
    vllm: Vllm = None,
    url: Url = None,
    oracle_url: OracleUrl = None,
    served_model_name: ServedName = None,
    api_key_env: ApiKeyEnv = None,
    proxy: Proxy = None,
    fault: Fault = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json_: JsonOption = False,
) -> None:
    """Strict 12-prompt suite on fresh servers: mtp0-a, mtp0-b, mtpD-a, mtpD-b, with gates G1 to G3."""
    from harness.preparing_context import ContextOptions

    if texts is not None and not probes:
        raise UsageError("--texts says what the boundary probes are made of; add --probes, or leave it out")
    _campaign(dict(locals()), context=ContextOptions("strict", texts=texts) if probes else None)


@app.command()
def ladder(
    mtp: Depth = 0,
    tp: Cards = 1,
    rungs: Annotated[str, typer.Option(help="Concurrent users, ascending.")] = "1,2,4,8,16,32,64",
    passes: Annotated[int, typer.Option(help="Passes over the rungs; pass 1 is the warm-up.", min=1, max=1000)] = 4,
    stagger_ms: Annotated[float, typer.Option(help="Request i starts i times this after the barrier.", min=0.0)] = 0.0,
    verbatim: Annotated[bool, typer.Option("--verbatim", help="Prompts word for word, repeated over slots.")] = False,
    oracle: Annotated[
        Path | None, typer.Option(help="A finished MTP0 ladder that lends its sequential answers.")
    ] = None,
    client_workers: Annotated[int, typer.Option(help="Client processes; one carries some hundred streams.", min=1)] = 1,
    direct: Annotated[
        bool, typer.Option("--direct", help="The container's own address, around Docker's proxy.")
    ] = False,
    launcher: Launcher = None,
    engine: EngineOption = None,
    image: ImageOption = None,
    suite: SuiteOption = "ladder-v1",
    model_dir: ModelDir = None,
    model_manifest: ModelManifest = None,
    classpad: Classpad = False,
    card: Card = None,
    site: Site = None,
    out: Out = EXPERIMENTS,
    port: Port = None,
    kernel_log: KernelLog = None,
    vllm: Vllm = None,
    url: Url = None,
    oracle_url: OracleUrl = None,
    served_model_name: ServedName = None,
    api_key_env: ApiKeyEnv = None,
    proxy: Proxy = None,
    fault: Fault = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json_: JsonOption = False,
) -> None:
    """Concurrency ladder: every answer compared with its sequential oracle, and that with MTP0's."""
    from harness.preparing import LadderOptions
    from harness.workloads.ladder import parse_rungs

    asked = LadderOptions(parse_rungs(rungs), passes, stagger_ms, verbatim, oracle, client_workers, direct)
    _campaign(dict(locals()), ladder=asked)


@app.command()
def depth(
    mtp: Depth = 3,
    tp: Cards = 1,
    depths: Annotated[
        str | None, typer.Option(help="Prompt tokens, ascending; the launcher's own by default, 2048 to 32768.")
    ] = None,
    texts: Texts = None,
    launcher: Launcher = None,
    engine: EngineOption = None,
    image: ImageOption = None,
    model_dir: ModelDir = None,
    model_manifest: ModelManifest = None,
    classpad: Classpad = False,
    card: Card = None,
    site: Site = None,
    out: Out = EXPERIMENTS,
    port: Port = None,
    kernel_log: KernelLog = None,
    vllm: Vllm = None,
    url: Url = None,
    oracle_url: OracleUrl = None,
    served_model_name: ServedName = None,
    api_key_env: ApiKeyEnv = None,
    proxy: Proxy = None,
    fault: Fault = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json_: JsonOption = False,
) -> None:
    """Long-context profile: prompts of exactly so many tokens, three content classes, against an MTP0 server."""
    from harness.preparing_context import ContextOptions
    from harness.workloads.context import parse_depths

    asked = ContextOptions("depth", None if depths is None else parse_depths(depths), texts)
    _campaign(dict(locals()), context=asked)


@app.command()
def probe(
    mtp: Depth = 3,
    tp: Cards = 1,
    texts: Texts = None,
    launcher: Launcher = None,
    engine: EngineOption = None,
    image: ImageOption = None,
    model_dir: ModelDir = None,
    model_manifest: ModelManifest = None,
    classpad: Classpad = False,
    card: Card = None,
    site: Site = None,
    out: Out = EXPERIMENTS,
    port: Port = None,
    kernel_log: KernelLog = None,
    vllm: Vllm = None,
    url: Url = None,
    oracle_url: OracleUrl = None,
    served_model_name: ServedName = None,
    api_key_env: ApiKeyEnv = None,
    proxy: Proxy = None,
    fault: Fault = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json_: JsonOption = False,
) -> None:
    """Boundary probes at MTP depth K: prompts of 1, 2, K, 1+K, 2+K tokens and a full context, against MTP0."""
    from harness.preparing_context import ContextOptions

    _campaign(dict(locals()), context=ContextOptions("probe", texts=texts))


@app.command()
def selftest(
    users: Annotated[str, typer.Option(help="Streams at once, ascending.")] = "1,16,64",
    image: Annotated[
        str | None, typer.Option(help="Also measure Docker's port proxy, in a container of this image.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Measure this machine's own client against a source whose schedule is known."""
    from harness.console import console
    from harness.selftest.run import self_test
    from harness.summary import self_test_table
    from harness.workloads.ladder import parse_rungs

    proxy = None
    if image is not None:
        from harness.lanes import load_image
        from harness.selftest.proxy import measure_proxy

        found = load_image(image)

        def proxy() -> Any:
            return measure_proxy(found)

    said = (lambda text: None) if json_ else typer.echo
    result = self_test(users=parse_rungs(users, "--users"), proxy=proxy, progress=said)
    if json_:
        out_json(result.model_dump(mode="json"))
    else:
        for part in self_test_table(result):
            console().print(part)
    raise typer.Exit(ExitCode.GATE_FAILED if any(point.lost for point in result.points) else ExitCode.OK)


def _campaign(
    given: dict[str, Any], *, ladder: "LadderOptions | None" = None, context: "ContextOptions | None" = None
) -> None:
    """Run a campaign with the options of its command and leave with its exit code."""
    from harness import campaign, preparing
    from harness.host.roots import Roots

    only_real = {f"--{name.replace('_', '-')}": given[name] for name in ("image", "model_dir", "site", "vllm")}
    chosen, why = choose_launcher(given["launcher"], given["engine"], only_real)
    of_paths = ("model_dir", "site", "out", "resume", "oracle", "texts", "kernel_log")
    paths = [given[name] for name in of_paths if given.get(name) is not None]
    paths += [Path(given[name]) for name in ("vllm", "model_manifest") if given.get(name)]
    options = preparing.Options(
        launcher=chosen,
        depth=given["mtp"],
        tensor_parallel=given["tp"],
        engine=engine_name(given["engine"]),
        image=given["image"],
        suite=given.get("suite", ""),
        model_dir=given["model_dir"],
        model_manifest=given.get("model_manifest"),
        classpad=given["classpad"],
        cards=given["card"],
        site_env=site_environment(given["site"]),
        out=given["out"],
        port=given["port"],
        vllm=given["vllm"],
        url=given["url"],
        oracle_url=given["oracle_url"],
        served_model_name=given["served_model_name"],
        faults=given["fault"] or [],
        secret_headers=api_key_header(given["api_key_env"]),
        proxy=given["proxy"],
        command=recorded_command([*paths]),
        roots=Roots(kernel_log=given["kernel_log"]),
        ladder=ladder,
        context=context,
        stream_canary=given.get("stream_canary", False),
    )
    watcher = _face(given["json_"])
    if why:
        watcher.note(why)
    try:
        if given["dry_run"]:
            _print_dry_run(options, watcher, json_=given["json_"])
            return
        evidence = campaign.run_campaign(options, watcher, resume=given["resume"])
    finally:
        close = getattr(watcher, "close", None)
        if close is not None:
            close()
    raise typer.Exit(evidence.exit_code)


for _command in (judge.verify, judge.show, judge.ties, explain.explain, compare.compare, report.report, seal.seal):
    app.command()(_command)
app.command()(promote.promote)
app.command(name="import")(lab.import_)
app.command()(lab.export)
app.command(name="list")(campaigns.list_)
app.command()(judge.schema)
app.add_typer(model.model, name="model")
app.command()(doctor.doctor)
app.command()(clean.clean)


@app.command()
def catalog(json_: JsonOption = False) -> None:
    """List the launchers, images, suites, texts and simulated faults that are known."""
    from harness.data import names
    from harness.simulated.faults import FAULTS

    known = {
        "launchers": names("launchers", ".toml"),
        "images": names("images", ".toml"),
        "suites": names("suites", ".json"),
        "texts": names("texts", ".txt"),
    }
    if json_:
        out_json({**known, "faults": dict(FAULTS)})
        return
    for kind, found in known.items():
        typer.echo(f"{kind}: {', '.join(found)}")
    typer.echo("faults of the simulated server:")
    for name, line in FAULTS.items():
        typer.echo(f"  {name:18} {line}")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from harness import __version__

        typer.echo(f"b70-bench {__version__}")
        raise typer.Exit


def _face(json_: bool) -> "Watcher":
    from harness import face
    from harness.console import console

    if json_:
        return face.JsonFace(sys.stdout)
    if sys.stdout.isatty():
        return face.LiveFace(console(), typed_command())
    return face.PlainFace(sys.stdout, typed_command())


def _print_dry_run(options: "Options", watcher: "Watcher", *, json_: bool) -> None:
    from harness.preparing import dry_run

    found = dry_run(options, watcher.note)
    if json_:
        out_json([{"plan": plan.model_dump(mode="json"), "command": command} for plan, command in found])
        return
    for plan, command in found:
        typer.echo(f"# {plan.label}: MTP depth {plan.depth}, TP{plan.tensor_parallel}, engine {plan.engine}")
        if plan.image is not None:
            typer.echo(f"#   image {plan.image} {plan.image_id or ''}".rstrip())
        for name, value in sorted(plan.env.items()):
            typer.echo(f"#   {name}={value}")
        typer.echo(f"{command}\n")


def main() -> None:
    """Entry point: one sentence and the right exit code for everything that can be foreseen."""
    guard()
    try:
        with SignalGuard().installed():
            code = app(standalone_mode=False)
    except (BenchError, Interrupted) as error:
        typer.echo(f"bench: {error}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        # Typer's own usage errors, by shape: whether they come from click or from its copy depends on the version.
        if hasattr(error, "format_message") and hasattr(error, "show"):
            error.show()
            sys.exit(ExitCode.USAGE)
        raise
    sys.exit(code if isinstance(code, int) else ExitCode.OK)
