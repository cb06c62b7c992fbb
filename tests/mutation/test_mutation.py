"""The mutation run: what it changes, what it sees, and that its record speaks of code that is there."""

import ast
import json
import subprocess
import sys

import pytest

from tests.mutation.loading import ROOT, path_of
from tests.mutation.mutants import mutants, mutated
from tests.mutation.record import entry, load, stale
from tests.mutation.table import TESTS


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("x = a < b", ["a <= b"]),
        ("x = a == b is c", ["a != b is c", "a == b is not c"]),
        ("x = a + b * c", ["a + b / c", "a - b * c"]),
        ("x = a and not b", ["a and b", "a or not b"]),
        ("x = 2", ["3"]),
        ("x = True", ["False"]),
        ("x = (0.5, b'ab', b'', '', 'word', '[a:')", None),
        ("x = 'two words'", []),
        ("x = f'{1} words'", []),
        ("x = -y", ["y"]),
        ("x = a if b else c", ["a if not b else c"]),
        ("x = [a for a in b if c]", ["[a for a in b if not c]"]),
        ("x = zip(a, b, strict=True)", []),
        ("x = min(a)", ["max(a)"]),
        ("x: int = 2", ["3"]),
        ("__all__ = ['word']", []),
    ],
)
def test_each_kind_of_change_in_an_expression(source: str, changes: list[str] | None) -> None:
    found = mutants(source)
    texts = [ast.unparse(_value(source, mutant.index)) for mutant in found]
    if changes is None:
        changes = [
            "(0.56, b'ab', b'', '', 'word', '[a:')",
            "(0.5, b'', b'', '', 'word', '[a:')",
            "(0.5, b'ab', b'~', '', 'word', '[a:')",
            "(0.5, b'ab', b'', '~', 'word', '[a:')",
            "(0.5, b'ab', b'', '', '', '[a:')",
            "(0.5, b'ab', b'', '', 'word', '')",
        ]
    assert texts == changes


def _value(source: str, index: int) -> ast.expr:
    return _changed(source, index).body[0].value  # type: ignore[attr-defined, no-any-return]


def _changed(source: str, index: int) -> ast.Module:
    from tests.mutation.mutants import _Changer

    changer = _Changer(index)
    return ast.fix_missing_locations(changer.visit(ast.parse(source)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("body", "change", "instead"),
    [
        ("a.b = c", "assignment left out", "pass"),
        ("a[b] = c", "assignment left out", "pass"),
        ("a += b", "assignment left out", "pass"),
        ("a()", "call left out", "pass"),
        ("raise a", "raise left out", "pass"),
        ("del a", "del left out", "pass"),
        ("return a", "return None", "return None"),
        ("while a:\n break", "break -> continue", "while a:\n continue"),
        ("while a:\n continue", "continue -> break", "while a:\n break"),
        ("if a:\n pass", "if -> if not", "if not a:\n pass"),
    ],
)
def test_each_kind_of_change_of_a_statement(body: str, change: str, instead: str) -> None:
    def whole(text: str) -> str:
        return "def f():\n '''Said.'''\n" + "\n".join(f" {line}" for line in text.splitlines())

    (mutant,) = mutants(whole(body))
    assert (mutant.change, mutant.in_function) == (change, True)
    assert ast.unparse(_changed(whole(body), 0)) == ast.unparse(ast.parse(whole(instead)))


def test_a_default_and_a_decorator_are_made_when_the_module_is_loaded() -> None:
    found = mutants("@d(frozen=True)\ndef f(a=1, *, b=2) -> 'Word':\n return 3\n")
    assert [(mutant.change, mutant.in_function) for mutant in found] == [
        ("True -> False", False),
        ("1 -> 2", False),
        ("2 -> 3", False),
        ("3 -> 4", True),
        ("return None", True),
    ]


def test_mutants_alike_are_told_apart_and_edits_elsewhere_move_none() -> None:
    source = "x = 1 + 1\ny = 1 + 1\n"
    keys = [mutant.key for mutant in mutants(source)]
    assert keys[:3] == [("x = 1 + 1", "1 -> 2", 1), ("x = 1 + 1", "1 -> 2", 2), ("x = 1 + 1", "Add -> Sub", 1)]
    assert len(set(keys)) == len(keys) == 6
    assert [mutant.key for mutant in mutants(f"z = 7\n\n{source}")][1:] == keys


def test_code_of_a_mutant_keeps_its_lines() -> None:
    space: dict[str, object] = {}
    exec(mutated("\n\nx = 3\n", 0, "file.py"), space)
    assert space["x"] == 4 and mutated("\n\nx = 3\n", 0, "file.py").co_filename == "file.py"


ROOMS = ("harness/measure", "harness/wire")


def test_every_module_of_the_two_rooms_has_its_tests() -> None:
    names = {
        f"{room.replace('/', '.')}.{path.stem}"
        for room in ROOMS
        for path in (ROOT / room).glob("*.py")
        if mutants(path.read_text())
    }
    assert names == set(TESTS)
    assert all((ROOT / file).is_file() for tests in TESTS.values() for file in tests.files)


@pytest.mark.parametrize("module", sorted(TESTS))
def test_explained_survivors_are_mutants_of_code_that_is_there(module: str) -> None:
    explained = load().get(module, {})
    assert stale(explained, mutants(path_of(module).read_text())) == []
    assert all(len(why.split()) > 3 for why in explained.values())


def test_no_other_module_is_explained() -> None:
    assert set(load()) <= set(TESTS)


def test_an_entry_is_read_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = mutants("x = b'\\r' + '\"ä' + b'\\r'\n")
    path = tmp_path / "explained.toml"
    path.write_text("".join(entry("harness.wire.sse", mutant) for mutant in found))
    assert load(path) == {"harness.wire.sse": {mutant.key: "" for mutant in found}}


SCRIPT = """
import json, sys
from tests.mutation import running
from tests.mutation.loading import path_of
from tests.mutation.mutants import mutants
from tests.mutation.table import Tests

running.LEAST_S = 2.0
module, source = "tests.mutation.example", path_of("tests.mutation.example").read_text()
def report(mutant, seen):
    sys.stdout.write(json.dumps([mutant.line, mutant.change, seen.code, seen.test.rpartition("::")[2]]) + "\\n")
    sys.stdout.flush()
sys.stdout.flush()
running.run_module(module, Tests("mutation/example"), source, mutants(source), report)
"""


def test_mutants_are_killed_survive_or_hang() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    ends = {(line, change): (code, test) for line, change, code, test in found}
    assert len(ends) == len(mutants(path_of("tests.mutation.example").read_text())) == 7
    assert ends.pop(("LIMIT = 10", "10 -> 11")) == (0, "test_total")
    assert ends.pop(("count += 1", "assignment left out")) == (None, "test_total")
    assert set(ends.values()) == {(1, "test_total")}
