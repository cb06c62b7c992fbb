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
    Launcher,
    ModelDir,
    OracleUrl,
    Out,
    Port,
    Proxy,
    Resume,
    ServedName,
    Site,
    SuiteOption,
    Url,
    Vllm,
    api_key_header,
    choose_launcher,
    engine_name,
    recorded_command,
    site_environment,
    typed_command,
)
from harness.errors import BenchError, EvidenceError, ExitCode, UsageError

if TYPE_CHECKING:
    from harness.preparing import LadderOptions, Options
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
    model_dir: ModelDir = None,
    classpad: Classpad = False,
    card: Card = None,
    site: Site = None,
    out: Out = EXPERIMENTS,
    port: Port = None,
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
    _campaign(dict(locals()), ladder=None)


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
    classpad: Classpad = False,
    card: Card = None,
    site: Site = None,
    out: Out = EXPERIMENTS,
    port: Port = None,
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

    given = dict(locals())
    asked = LadderOptions(parse_rungs(rungs), passes, stagger_ms, verbatim, oracle, client_workers, direct)
    _campaign(given, ladder=asked)


@app.command()
def selftest(
    users: Annotated[str, typer.Option(help="Streams at once, ascending.")] = "1,16,64",
    image: Annotated[
        str | None, typer.Option(help="Also measure Docker's port proxy, in a container of this image.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Measure this machine's own client against a source whose schedule is known."""
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
        _out_json(result.model_dump(mode="json"))
    else:
        from rich.console import Console

        for part in self_test_table(result):
            Console().print(part)
    raise typer.Exit(ExitCode.GATE_FAILED if any(point.lost for point in result.points) else ExitCode.OK)


def _campaign(given: dict[str, Any], *, ladder: "LadderOptions | None") -> None:
    """Run a campaign with the options of ``strict`` or ``ladder`` and leave with its exit code."""
    from harness import campaign, preparing

    chosen, why = choose_launcher(given["launcher"], given["engine"])
    paths = [given[name] for name in ("model_dir", "site", "out", "resume", "oracle") if given.get(name) is not None]
    vllm = [Path(given["vllm"])] if given["vllm"] else []
    options = preparing.Options(
        launcher=chosen,
        depth=given["mtp"],
        tensor_parallel=given["tp"],
        engine=engine_name(given["engine"]),
        image=given["image"],
        suite=given["suite"],
        model_dir=given["model_dir"],
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
        command=recorded_command([*paths, *vllm]),
        ladder=ladder,
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


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(help="A campaign directory.")],
    json_: JsonOption = False,
) -> None:
    """Re-derive every number and gate of a campaign from the captured bytes."""
    from harness.evidence.verify import headline
    from harness.evidence.verify import verify as check

    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    result = check(directory)
    if json_:
        _out_json(
            {
                "ok": result.ok,
                "problems": result.problems,
                "status": None if result.evidence is None else result.evidence.status,
                "files": result.files,
                "rows": result.rows,
                "token_ids": result.ids,
                "gates": result.gates,
            }
        )
    else:
        typer.echo(f"{directory.name} {headline(result)}")
        for problem in result.problems[1:20]:
            typer.echo(f"- {problem}")
        if result.ok:
            typer.echo(
                f"checked: {result.files} files by sha256, {result.rows} rows, {result.ids} token ids, "
                f"{result.gates} gates re-derived"
            )
    raise typer.Exit(ExitCode.OK if result.ok else ExitCode.GATE_FAILED)


@app.command()
def show(
    directory: Annotated[Path, typer.Argument(help="A campaign directory.")],
    svg: Annotated[Path | None, typer.Option(help="Also draw it as an SVG file.")] = None,
) -> None:
    """Print a campaign's closing summary again, after re-deriving it; nothing that doesn't verify is shown."""
    from rich.console import Console

    from harness.evidence.verify import headline
    from harness.evidence.verify import verify as check
    from harness.summary import drawn, summary

    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a campaign")
    result = check(directory)
    if not result.ok or result.evidence is None:
        raise EvidenceError(f"{directory.name} {headline(result)}")
    console = Console(record=svg is not None, width=None if sys.stdout.isatty() else 150)
    for part in summary(result.evidence, directory, result.evidence.start.command):
        console.print(part)
    if svg is not None:
        try:
            svg.write_text(drawn(console, directory.name), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{svg.name} can't be written ({error.strerror}); choose another --svg") from None
    raise typer.Exit(result.evidence.exit_code)


@app.command()
def ties(
    directory: Annotated[Path, typer.Argument(help="The campaign directory of a ladder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The suite file to write; it must not exist.")],
) -> None:
    """Write the prompts whose answers left their oracle as a suite, for --suite FILE --verbatim."""
    from harness.evidence.store import dump_json, write_atomic
    from harness.evidence.ties import tie_suite

    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give the directory of a ladder")
    if out.exists():
        raise UsageError(f"{out.name} exists already; choose another --out, or remove it first")
    suite = tie_suite(directory)
    write_atomic(out, dump_json(suite))
    typer.echo(f"{out}: {len(suite['prompts'])} prompts that left their oracle in {directory.name}")


@app.command()
def schema(
    what: Annotated[str, typer.Argument(help="evidence, ladder, server, launcher or image.")] = "evidence",
) -> None:
    """Print the JSON Schema of a file format."""
    from harness.evidence.ladder_schema import LadderEvidence
    from harness.evidence.schema import Evidence, ServerRecord
    from harness.lanes import Image, Lane

    models: dict[str, Any] = {
        "evidence": Evidence,
        "ladder": LadderEvidence,
        "server": ServerRecord,
        "launcher": Lane,
        "image": Image,
    }
    if what not in models:
        raise UsageError(f"there is no schema {what!r}; use one of {', '.join(models)}")
    _out_json(models[what].model_json_schema(by_alias=True))


@app.command(name="list")
def list_(
    json_: JsonOption = False,
) -> None:
    """List the launchers, images, suites and simulated faults that are known."""
    from harness.data import names
    from harness.simulated.faults import FAULTS

    known = {
        "launchers": names("launchers", ".toml"),
        "images": names("images", ".toml"),
        "suites": names("suites", ".json"),
    }
    if json_:
        _out_json({**known, "faults": dict(FAULTS)})
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

    if json_:
        return face.JsonFace(sys.stdout)
    if sys.stdout.isatty():
        from rich.console import Console

        return face.LiveFace(Console(), typed_command())
    return face.PlainFace(sys.stdout, typed_command())


def _print_dry_run(options: "Options", watcher: "Watcher", *, json_: bool) -> None:
    from harness.preparing import dry_run

    found = dry_run(options, watcher.note)
    if json_:
        _out_json([{"plan": plan.model_dump(mode="json"), "command": command} for plan, command in found])
        return
    for plan, command in found:
        typer.echo(f"# {plan.label}: MTP depth {plan.depth}, TP{plan.tensor_parallel}, engine {plan.engine}")
        if plan.image is not None:
            typer.echo(f"#   image {plan.image} {plan.image_id or ''}".rstrip())
        for name, value in sorted(plan.env.items()):
            typer.echo(f"#   {name}={value}")
        typer.echo(f"{command}\n")


def _out_json(value: Any) -> None:
    import json

    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def main() -> None:
    """Entry point: one sentence and the right exit code for everything that can be foreseen."""
    try:
        code = app(standalone_mode=False)
    except BenchError as error:
        typer.echo(f"bench: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("bench: interrupted", err=True)
        sys.exit(ExitCode.INFRASTRUCTURE)
    except Exception as error:
        # Typer's own usage errors, by shape: whether they come from click or from its copy depends on the version.
        if hasattr(error, "format_message") and hasattr(error, "show"):
            error.show()
            sys.exit(ExitCode.USAGE)
        raise
    sys.exit(code if isinstance(code, int) else ExitCode.OK)
