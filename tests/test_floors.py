"""The house has floors, and imports run down only; what is called pure knows no clock, socket or file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "harness"
FILES = sorted(path for path in ROOT.rglob("*.py") if "_data" not in path.parts)

FLOORS: list[set[str]] = [
    {"errors", "data", "signals", "screen", "hidden", "redact", "strangers", "unwritable"},
    {"lanes", "plan", "suites", "models", "model_shape", "wire"},
    {"measure", "workloads", "host", "launch"},
    {"evidence", "publish", "selftest"},
    {"attempt", "session", "sender", "strict_work", "ladder_work", "depth_work", "watching", "campaign"},
    {"cli", "cli_options", "commands", "face", "summary", "__main__"},
]
"""From the ground up, by the first part of a module's name; other modules at the top stand with campaign."""
CAMPAIGN = 4
PURE = (
    "wire/sse",
    "wire/completion",
    "wire/chunks",
    "wire/http",
    "wire/reason",
    "wire/exchange",
    "measure/*",
    "workloads/*",
    "evidence/schema",
    "evidence/attempts",
    "evidence/fresh",
    "evidence/sentences",
    "publish/projection",
    "model_shape",
)
"""Functions of their arguments alone"""
EFFECTS = {
    *("time", "datetime", "socket", "select", "selectors", "asyncio", "threading", "multiprocessing", "signal"),
    *("os", "pathlib", "shutil", "tempfile", "subprocess", "fcntl", "io", "sys", "random", "secrets", "uuid"),
    *("httpx", "docker", "urllib", "http", "requests", "rich", "typer", "logging"),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, at the top or inside a function, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: imports are absolute"
            module = node.module or ""
            if module == "harness" or (ROOT / module.removeprefix("harness.").replace(".", "/")).is_dir():
                yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno


def rooms(path: Path) -> list[tuple[str, int]]:
    """Rooms of the house that a file imports from."""
    found = [(name.split("."), line) for name, line in imports(path) if name.split(".")[0] == "harness"]
    return [(parts[1], line) for parts, line in found if len(parts) > 1 and not parts[1].startswith("__")]


def floor(room: str) -> int:
    return next((level for level, names in enumerate(FLOORS) if room in names), CAMPAIGN)


def test_there_are_files() -> None:
    assert len(FILES) > 60
    assert {name_of(path).split("/")[0] for path in FILES} >= {"cli", "campaign", "wire", "measure", "simulated"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_down_only(path: Path) -> None:
    own = name_of(path).split("/")[0]
    for room, line in rooms(path):
        if own == "simulated":
            assert room in ("simulated", "errors"), f"{name_of(path)}:{line}: the server knows nothing of its client"
        elif room == "simulated":
            names = {name for name, at in imports(path) if at == line}
            assert names == {"harness.simulated.faults"}, f"{name_of(path)}:{line}: only its list of faults"
        else:
            assert floor(room) <= floor(own), f"{name_of(path)}:{line} imports {room}, which stands above it"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_rooms_of_the_middle_floor_do_not_know_each_other(path: Path) -> None:
    own = name_of(path).split("/")[0]
    if own in FLOORS[2] or own == "wire":
        for room, line in rooms(path):
            assert room == own or floor(room) < floor(own), f"{name_of(path)}:{line} imports {room}"


def pure_files() -> list[Path]:
    return [path for path in FILES if any(path.relative_to(ROOT).with_suffix("").match(glob) for glob in PURE)]


@pytest.mark.parametrize("path", pure_files(), ids=name_of)
def test_pure_modules_touch_nothing(path: Path) -> None:
    for name, line in imports(path):
        assert name.split(".")[0] not in EFFECTS, f"{name_of(path)}:{line} imports {name}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "print", "input", "exec", "eval"), f"{name_of(path)}:{node.lineno}"


def test_every_pure_name_is_there() -> None:
    found = {name_of(path) for path in pure_files()}
    assert {glob for glob in PURE if "*" not in glob} <= found
    assert len(found) > 15
