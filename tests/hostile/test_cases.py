"""The table of cases is whole, and every test it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.hostile.beyond import BEYOND
from tests.hostile.cases import KINDS, SECTIONS
from tests.hostile.host_cases import HOST_SECTIONS
from tests.hostile.page import PAGE, page

LISTED = {**SECTIONS, **HOST_SECTIONS}
ALL = [case for cases in (*LISTED.values(), *BEYOND.values()) for case in cases]

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT.parent / "shared" / "hostile-cases.md"


@cache
def functions(path: str) -> frozenset[str]:
    """Test functions of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_test_that_is_named_is_there() -> None:
    named = [test for case in ALL for test in case.shown]
    named += [test for tests in KINDS.values() for test in tests]
    missing = [test for test in named if test.partition("::")[2] not in functions(test.partition("::")[0])]
    assert missing == [] and all(case.shown for case in ALL)


def test_numbers_ascend_and_are_unique() -> None:
    numbers = [case.number for cases in LISTED.values() for case in cases]
    assert numbers == sorted(set(numbers)) and len(numbers) == 79


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.hostile.page writes it"


def test_the_table_has_every_case_of_the_list() -> None:
    if not LIST.is_file():
        pytest.skip("the list of hostile cases is not beside this checkout")
    found: dict[str, list[int]] = {}
    section = ""
    for line in LIST.read_text().splitlines():
        if heading := re.match(r"### ([A-Z])\.", line):
            section = heading[1]
        elif case := re.match(r"(\d+)\. ", line):
            found.setdefault(section, []).append(int(case[1]))
    assert {name: [case.number for case in cases] for name, cases in LISTED.items()} == found
