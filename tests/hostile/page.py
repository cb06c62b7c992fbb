"""``python -m tests.hostile.page`` writes docs/reliability.md from the tables of cases."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tests.hostile.beyond import BEYOND, NOT_COVERED
from tests.hostile.case import Case
from tests.hostile.cases import KINDS, SECTIONS
from tests.hostile.host_cases import HOST_SECTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
TITLES = {
    "A": "First token and token accounting",
    "B": "Server-sent events and HTTP",
    "C": "Warm-up, caches, lengths",
    "D": "Hangs, death, connections",
    "E": "Statistics, files, crashes",
    "F": "Identity of outputs",
    "G": "Containers and host",
}
HEAD = (
    "# What was tried, and what came of it\n\nEvery fault below is played by a real socket server, a real container, a "
    "real signal or a real file system, never by patching the code under test. Tests whose file ends with `_docker` "
    "need a Docker engine, those with `_vllm` a real vLLM; both run in `.ci/run`. `tests/hostile/test_cases.py` holds "
    "this page, its tables and the tests together; `python -m tests.hostile.page` writes it.\n\n"
)
TABLE = "| fault | outcome | shown by |\n| --- | --- | --- |\n"


def shown(tests: Iterable[str]) -> str:
    """Files once, the tests of each behind it."""
    parts = [test.partition("::") for test in tests]
    by_file = groupby(sorted(parts, key=lambda part: [p[0] for p in parts].index(part[0])), key=lambda part: part[0])
    return "; ".join(
        f"`{path.removeprefix('tests/')}`: {', '.join(f'`{name}`' for _, _, name in group)}" for path, group in by_file
    )


def line(case: Case) -> str:
    number = f"{case.number}. " if case.number else ""
    title, expect = (text.replace("|", r"\|").replace("<", "&lt;") for text in (case.title, case.expect))
    return f"| {number}{title} | {expect} | {shown(case.shown)} |\n"


def page() -> str:
    """The whole text."""
    parts = [HEAD]
    for letter, cases in {**SECTIONS, **HOST_SECTIONS}.items():
        parts += [f"## {letter}. {TITLES[letter]}\n\n", TABLE, *map(line, cases), "\n"]
    for title, cases in BEYOND.items():
        parts += [f"## {title}\n\n", TABLE, *map(line, cases), "\n"]
    parts += ["## Properties\n\n", "| what holds for every case | shown by |\n| --- | --- |\n"]
    parts += [f"| {title} | {shown(tests)} |\n" for title, tests in KINDS.items()]
    parts += ["\n## Not covered\n\n", *(f"- {item}.\n" for item in NOT_COVERED)]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
