"""What a command needn't, it doesn't import. Not timed: sys.modules of a fresh process tells."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("numpy", "scipy", "docker", "httpx", "zstandard", "rich.live", "prometheus_client", "h11", "requests")
OURS = ("harness.campaign", "harness.lanes", "harness.evidence.schema", "harness.measure.rows")
"""pydantic is not among them by itself: some versions of Typer import it"""

LOOK = """
import sys
sys.argv = {words!r}
from harness.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded:", *(name for name in {heavy!r} if name in sys.modules))
"""


def loaded(*words: str) -> list[str]:
    code = LOOK.format(words=["bench", *words], heavy=(*HEAVY, *OURS))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


def test_import_of_the_command_line_is_light() -> None:
    code = f"import sys, harness.cli; print(*(name for name in {(*HEAVY, *OURS, 'pydantic')!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("strict", "--help"), ("verify", "--help"), ("catalog",)]
)
def test_small_commands_are_light(words: tuple[str, ...]) -> None:
    assert loaded(*words) == []


def test_schema_needs_no_network_and_no_docker() -> None:
    found = loaded("schema", "launcher")
    assert not {"docker", "requests", "scipy"} & set(found)
