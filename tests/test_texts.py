"""The shipped texts that prompts of a known depth are cut from: long, unrepeated, well-formed, ours."""

import ast
import configparser
import csv
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import make_texts
from benchmarks.texts_prose import handwritten

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("technical-prose.txt", "structured-documents.txt", "python-code.txt")
WINDOW = 200
FENCE = re.compile(r"^```(\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def text(name: str) -> str:
    return (ROOT / "texts" / name).read_bytes().decode()


def repeated(whole: str, window: int = WINDOW) -> str | None:
    """The first stretch of ``window`` characters that occurs a second time, at any place."""
    seen: set[int] = set()
    for start in range(len(whole) - window + 1):
        key = hash(whole[start : start + window])
        if key in seen and whole.find(piece := whole[start : start + window]) < start:
            return piece
        seen.add(key)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_long_plain_and_unrepeated(name: str) -> None:
    whole = text(name)
    assert len(whole.encode()) >= 165_000
    assert sum(not letter.isascii() for letter in whole) < len(whole) / 500
    assert repeated(whole) is None


@pytest.mark.parametrize("apart", [0, 1, 5000])
def test_a_repeated_stretch_is_found_wherever_it_lies(apart: int) -> None:
    whole = text(NAMES[0])[:9000]
    stretch, between = whole[123 : 123 + WINDOW], whole[4000 : 4000 + apart]
    assert repeated(whole[:3000] + between[: WINDOW - 1] + stretch + whole[3000:]) is not None
    assert repeated(whole[:3000] + stretch[1:-1] + whole[3000:]) is None


def test_no_sentence_of_the_prose_occurs_twice() -> None:
    sentences = re.split(r"(?<=[.?!])\s+", text(NAMES[0]))
    assert [sentence for sentence, count in Counter(sentences).items() if count > 1] == []


def test_most_of_the_prose_is_written_by_hand() -> None:
    whole = text(NAMES[0])
    assert whole.startswith(handwritten())
    assert len(handwritten()) > len(whole) / 2
    assert not re.search(r"[{}]", whole[len(handwritten()) :]), "a template's slot was not filled"


def test_no_article_of_the_prose_clashes_with_its_noun() -> None:
    assert re.findall(r"\ba [aeio]\w+", text(NAMES[0])[len(handwritten()) :]) == []


def test_every_structured_block_parses_in_its_own_notation() -> None:
    blocks = FENCE.findall(text(NAMES[1]))
    kinds = Counter(language for language, _ in blocks)
    assert len(kinds) >= 10
    assert text(NAMES[1]).count("```") == 2 * len(blocks)
    for language, body in blocks:
        match language:
            case "json":
                assert json.loads(body)
            case "jsonl":
                assert all(json.loads(line)["trace"] for line in body.splitlines())
            case "toml":
                assert tomllib.loads(body)["package"]
            case "xml":
                assert len(ElementTree.fromstring(body)) >= 3
            case "ini":
                parser = configparser.ConfigParser()
                parser.read_string(body)
                assert len(parser.sections()) >= 3
            case "csv":
                rows = list(csv.reader(body.splitlines(), delimiter=";" if ";" in body else ","))
                assert len(rows) > 5
                assert {len(row) for row in rows} == {len(rows[0])}


def test_the_sums_of_the_orders_are_right() -> None:
    orders = [json.loads(body) for language, body in FENCE.findall(text(NAMES[1])) if '"total_cents"' in body]
    assert len(orders) > 5
    for order in orders:
        assert order["total_cents"] == sum(line["count"] * line["cents"] for line in order["lines"])


def test_every_module_of_the_code_is_whole() -> None:
    head, *parts = re.split(r"^# module: (harness[\w.]*)\n", text(NAMES[2]), flags=re.MULTILINE)
    modules = dict(zip(parts[::2], parts[1::2], strict=True))
    assert head == ""
    assert len(modules) == len(parts) / 2 > 20
    for name, source in modules.items():
        assert ast.parse(source, name).body


def test_the_generator_makes_the_same_bytes() -> None:
    assert make_texts.prose() == text(NAMES[0])
    assert make_texts.structured() == text(NAMES[1])


def test_another_process_makes_the_same_bytes() -> None:
    """Hash seeds and imports differ there."""
    program = "import sys; from benchmarks import make_texts as m; sys.stdout.write(m.prose() + m.structured())"
    made = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert made.stdout.decode() == text(NAMES[0]) + text(NAMES[1])
