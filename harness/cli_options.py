"""The options that several commands share, and what their values mean."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.errors import UsageError
from harness.hidden import hide

JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


Launcher = Annotated[
    str | None,
    typer.Option(help="Launcher name or TOML file. Without it: the B70 lane where there is a card, else simulated."),
]
EngineOption = Annotated[
    str | None, typer.Option(help="docker, process, attach or simulated; the launcher's own by default.")
]
Depth = Annotated[int, typer.Option("--mtp", help="MTP depth; 0 measures the base alone.", min=0)]
Cards = Annotated[int, typer.Option("--tp", help="Tensor parallel over that many cards.", min=1)]
ImageOption = Annotated[str | None, typer.Option(help="Image name or TOML file (r276, r293, …).")]
SuiteOption = Annotated[str, typer.Option(help="Suite name or JSON file.")]
ModelDir = Annotated[Path | None, typer.Option(help="Directory of the weights.")]
ModelManifest = Annotated[
    str | None, typer.Option(help="Manifest the weights must match, from bench model pin; name or JSON file.")
]
Classpad = Annotated[bool, typer.Option("--classpad", help="CLASSPAD=1; needs an image that has it.")]
Card = Annotated[str | None, typer.Option(help="Card numbers, for example 0 or 0,1.")]
Site = Annotated[Path | None, typer.Option(help="TOML file whose [env] table is right for this host only.")]
Out = Annotated[Path, typer.Option(help="Where campaigns are kept.")]
Port = Annotated[int | None, typer.Option(help="Host port; a free one by default.", min=1, max=65535)]
Vllm = Annotated[str | None, typer.Option(help="The vllm executable, for --engine process.")]
Url = Annotated[str | None, typer.Option(help="A running server, for --engine attach.")]
OracleUrl = Annotated[str | None, typer.Option(help="Its MTP0 oracle, for --engine attach.")]
ServedName = Annotated[str | None, typer.Option(help="The model's name at an attached server.")]
ApiKeyEnv = Annotated[str | None, typer.Option(help="Variable that holds an attached server's API key.")]
Proxy = Annotated[str | None, typer.Option(help="Proxy to an attached server; none is taken otherwise.")]
Fault = Annotated[list[str] | None, typer.Option(help="Play a fault, simulated server only; repeatable.")]
Resume = Annotated[Path | None, typer.Option(help="Go on with an interrupted campaign.")]
StreamCanary = Annotated[
    bool, typer.Option("--stream-canary", help="One prompt once more and not as a stream, on each server.")
]
Texts = Annotated[
    Path | None, typer.Option(help="Directory of technical-prose.txt, python-code.txt, structured-documents.txt.")
]
KernelLog = Annotated[
    Path | None, typer.Option(help="Kernel log file to look for faults in, instead of the journal and dmesg.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be started, and start nothing.")]
EXPERIMENTS = Path("experiments")


def choose_launcher(
    launcher: str | None, engine: str | None, needs_card: Mapping[str, object] | None = None
) -> tuple[str, str]:
    """The launcher and, when it was chosen here, one sentence that says so.

    ``needs_card`` are options that only mean something where a real server is started. Raises UsageError when one was
    given and no card is here: the simulated server in its place would measure nothing and take hours to be noticed.
    """
    if launcher is not None:
        return launcher, ""
    if engine == "attach":
        return "attach", ""
    from harness.host.facts import host_facts

    cards = host_facts().value("cards")
    if cards:
        return "qwen35-4b-w4a16", f"launcher qwen35-4b-w4a16, because this host has {len(cards)} card(s) under xe"
    given = [option for option, value in (needs_card or {}).items() if value]
    if given:
        raise UsageError(
            f"{given[0]} is for a real server, and no card is under the xe driver here; load the driver, or name what "
            "to start with --launcher"
        )
    return "simulated", "no card under the xe driver: running the simulated server, which measures nothing"


def engine_name(engine: str | None) -> Any:
    """The engine that ``--engine`` names. Raises UsageError."""
    known = ("docker", "process", "attach", "simulated")
    if engine is not None and engine not in known:
        raise UsageError(f"there is no engine {engine!r}; use one of {', '.join(known)}")
    return engine


def site_environment(path: Path | None) -> dict[str, str]:
    """The [env] table of ``--site``. Raises UsageError."""
    if path is None:
        return {}
    from harness.strangers import read_toml

    table = read_toml(path, "site file")
    env = table.get("env")
    if set(table) != {"env"} or not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise UsageError(f"site file {path.name} must hold one [env] table of strings and nothing else; correct it")
    wrong = next((name for name in env if not name or "=" in name), None)
    if wrong is not None:
        raise UsageError(f"site file {path.name} has the variable {wrong!r}, which is no name; correct it")
    return env


def api_key_header(variable: str | None) -> tuple[tuple[str, str], ...]:
    """The header that carries an API key, from the variable ``--api-key-env`` names. Raises UsageError."""
    if variable is None:
        return ()
    value = os.environ.get(variable)
    if not value:
        raise UsageError(f"the variable {variable} is empty; put the API key into it, or leave --api-key-env out")
    hide([value])
    return (("Authorization", f"Bearer {value}"),)


def typed_command() -> str:
    """The command line as it was typed."""
    return shlex.join(["bench", *sys.argv[1:]])


def recorded_command(paths: list[Path | None]) -> str:
    """The command line as evidence keeps it: host paths by their last part, no password of a URL."""
    from harness.redact import Redactor

    known = {str(path): path.name for path in paths if path is not None}
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        value = known.get(value, value.rsplit("/", 1)[-1] if value.startswith(("/", "~", ".")) else value)
        words.append(f"{option}{equals}{value}")
    return shlex.join(["bench", *Redactor().arguments(words)])


def out_json(value: Any) -> None:
    """Print JSON for machines: strict, indented, UTF-8."""
    import json

    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
