"""Every command that reads evidence, on evidence from anyone: a sentence or a result, and nothing else happens."""

import hashlib
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from harness.cli import main
from harness.console import console
from harness.errors import BenchError
from harness.evidence import journal, store
from harness.evidence.derive import derive
from harness.evidence.schema import Start
from harness.evidence.verify import verify
from harness.screen import one_line, printable
from tests import recorded
from tests.bench import Done, bench, command, environment

NASTY = "\x1b]0;owned\x07\x1b[2J\x1b[1A\x9b31m\u202egnp\u2066 [/red] [link=http://x]y[/link] :smile:\r"
SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
SECONDS = 120
EXAMPLES = int(os.environ.get("BENCH_HOSTILE_EXAMPLES", "8"))
"""For each command; a longer run is asked for with the variable"""
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal or a reader's eye would obey; a line's end and a tab are not among it"""


@contextmanager
def limited() -> Iterator[None]:
    """A hang is a failure of this test, not of the whole run."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"the command went on for more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def typed(*words: str | Path, cwd: Path) -> Done:
    """``bench WORDS`` in this process, to the bytes it writes; an exception but SystemExit comes out."""
    kept = sys.stdout, sys.stderr, sys.argv, Path.cwd()
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdout, sys.stderr = (io.TextIOWrapper(stream, encoding="utf-8") for stream in (out, err))
    sys.argv = ["bench", *map(str, words)]
    os.chdir(cwd)
    try:
        with limited():
            main()
        raise AssertionError("main ends with SystemExit")
    except SystemExit as ended:
        code = ended.code
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            stream.detach()
        sys.stdout, sys.stderr, sys.argv = kept[:3]
        os.chdir(kept[3])
    assert isinstance(code, int)
    return Done(code, out.getvalue().decode(), err.getvalue().decode())


def snapshot(directory: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time and hash."""
    return {
        path.relative_to(directory).as_posix(): (
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(directory.rglob("*"))
    }


def commands(name: str, directory: Path, aside: Path, number: int) -> list[str | Path]:
    """The words of one command that reads ``directory``."""
    other = recorded.campaign("ladder0")
    return {
        "verify": ["verify", directory],
        "verify --json": ["verify", directory, "--json"],
        "show": ["show", directory],
        "explain": ["explain", directory],
        "explain --json": ["explain", directory, "--json"],
        "compare": ["compare", directory, other, "--anyway"],
        "compare --json": ["compare", other, directory, "--anyway", "--json"],
        "list": ["list", directory.parent],
        "list --json": ["list", directory.parent, "--json"],
        "report": ["report", directory, "-o", aside / f"{number}.html"],
        "export": ["export", directory, "-o", aside / f"{number}-export"],
        "import": ["import", directory, "-o", aside / f"{number}-import"],
        "ties": ["ties", directory, "-o", aside / f"{number}-ties.json"],
        "show an import": ["show", directory],
    }[name]


NAMES = (
    "verify", "verify --json", "show", "explain", "explain --json", "compare", "compare --json",
    "list", "list --json", "report", "export", "import", "ties",
)  # fmt: skip


def judged(name: str, directory: Path, aside: Path, number: int = 0) -> Done:
    """Run a command and check what holds whatever it was given."""
    before = snapshot(directory)
    done = typed(*commands(name, directory, aside, number), cwd=aside)
    assert done.code in (0, 1, 2, 64), (name, done)
    assert "Traceback" not in done.out + done.err, (name, done)
    assert RAW.search(done.out + done.err) is None, (name, done)
    if name.endswith("--json") and done.code == 0:
        json.loads(done.out)
    assert snapshot(directory) == before, f"{name} wrote into the campaign"
    return done


# -- what a stranger changes ---------------------------------------------------------------------------------------

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from([NASTY, SCRIPT, "", "\ud800", "x" * 5000, "../../etc/passwd", "nul\x00", "1e999", "-0", "NaN"])
    | st.text(max_size=20)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
) | st.integers(1, 3000).map(lambda depth: json.loads("[" * depth + "]" * depth) if depth < 900 else 10**300)


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of every node below the root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from nodes(item, (*path, key))


def mutate(value: Any, data: st.DataObject) -> None:
    """One node is replaced, removed, doubled, or gets a neighbour."""
    path = data.draw(st.sampled_from(list(nodes(value))))
    for part in path[:-1]:
        value = value[part]
    act = data.draw(st.sampled_from(["replace", "replace", "remove", "add", "double"]))
    if act == "replace":
        value[path[-1]] = data.draw(values)
    elif act == "remove":
        del value[path[-1]]
    elif isinstance(value, list):
        value.insert(path[-1], value[path[-1]] if act == "double" else data.draw(values))
    else:
        value[data.draw(st.text(max_size=6))] = value[path[-1]] if act == "double" else data.draw(values)


def written(value: Any) -> bytes:
    """As a stranger writes JSON: NaN and half characters are no reason not to."""
    return (json.dumps(value, indent=1) + "\n").encode()


FILES = ("evidence.json", "manifest.json", "suite.json", store.SERVER, store.CAPTURE, journal.NAME)
BASES = ("ladder0", "ladder0", "ladder3ties", "tiny")
"""Campaigns to damage; the quick one twice"""


def damage(directory: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(directory.rglob(data.draw(st.sampled_from(FILES))))))
    if path.name == store.CAPTURE:
        with path.open("rb") as file:
            lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
        at = data.draw(st.integers(0, len(lines) - 1))
        record = [json.loads(lines[at])]
        mutate(record, data)
        lines[at : at + 1] = [json.dumps(item).encode() for item in record]
        path.write_bytes(zstandard.ZstdCompressor(level=1).compress(b"".join(line + b"\n" for line in lines)))
    elif path.name == journal.NAME:
        events = [json.loads(line) for line in path.read_text().splitlines()]
        mutate(events, data)
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    else:
        value = json.loads(path.read_text())
        mutate(value, data)
        path.write_bytes(written(value))


def repair(directory: Path) -> None:
    """What a forger would do, as far as it can be done: the plan's hash, evidence.json, the manifest."""
    path = directory / journal.NAME
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        lines = path.read_text().splitlines(keepends=True)
        first = json.loads(lines[0])
        first["start"]["plan_sha256"] = Start.model_validate(first["start"]).plan.sha256()
        path.write_text("".join([json.dumps(first) + "\n", *lines[1:]]))
    with suppress(BenchError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        evidence = derive(directory).model_dump(mode="json", by_alias=True)
        (directory / store.EVIDENCE).write_bytes(store.dump_json(evidence))
    with suppress(BenchError, ValueError):
        store.write_manifest(directory)


@pytest.mark.parametrize("name", NAMES)
def test_any_node_of_any_json_file(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("fuzz")
    runs = iter(range(10**6))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        derandomize="BENCH_HOSTILE_EXAMPLES" not in os.environ,
    )
    @given(data=st.data())
    def fuzz(data: st.DataObject) -> None:
        number = next(runs)
        directory = recorded.copy(data.draw(st.sampled_from(BASES)), home / str(number))
        for _ in range(data.draw(st.integers(1, 3))):
            damage(directory, data)
        if data.draw(st.booleans()):
            repair(directory)
        judged(name, directory, home, number)
        shutil.rmtree(directory)

    fuzz()


def planted(name: str, tmp_path: Path, text: str) -> Path:
    """A campaign that verifies and holds ``text`` wherever a free text may stand."""
    directory = recorded.copy(name, tmp_path)
    path = directory / journal.NAME
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    start = lines[0]["start"]
    for field in ("campaign_id", "lane_title", "command"):
        start[field] += text
    start["plan"]["lane"] += text
    start["unknown"] = [f"a thing {text} is unknown"]
    start["tool"]["version"] += text
    start["image"]["labels"][text] = text
    for server in start["plan"]["servers"]:
        server["env"][f"X{text}"] = text
    for fact in start["host"]["facts"].values():
        fact["note"] = f"{fact.get('note', '')}{text}"
    for line in lines[1:]:
        line["error"] = text if line["event"] == "campaign-ended" else ""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for record in directory.glob("attempts/*/server.json"):
        raw = json.loads(record.read_text())
        raw["error"] = text
        raw["differences"] = [f"asked {text}, got {text}"]
        raw["stop"]["note"] = text
        raw["readiness"]["version"] = text
        raw["requested"]["env"][f"X{text}"] = text
        raw["applied"]["env"][f"Y{text}"] = text
        raw["image"]["labels"][text] = text
        record.write_bytes(written(raw))
    repair(directory)
    assert verify(directory).problems == []
    return directory


def test_escape_sequences_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    directory = planted("ladder0", tmp_path / "a", NASTY)
    aside = tmp_path / "aside"
    aside.mkdir()
    seen = 0
    for number, name in enumerate(NAMES):
        done = judged(name, directory, aside, number)
        seen += "\\u001b]0;owned\\u0007" in done.out + done.err
    assert seen >= 4


def test_on_a_real_terminal(tmp_path: Path) -> None:
    """Colours of our own pass there, and nothing of the evidence's."""
    directory = planted("ladder0", tmp_path, NASTY)
    for words in (("show", directory), ("verify", directory), ("report", directory, "-o", tmp_path / "p.html")):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            command(*words), cwd=tmp_path, stdin=follower, stdout=follower, stderr=follower,
            env={**environment(tmp_path), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50"},
        )  # fmt: skip
        os.close(follower)
        said = b""
        with suppress(OSError):  # the terminal is gone when its last user is
            while piece := os.read(leader, 65536):
                said += piece
        os.close(leader)
        process.wait(timeout=SECONDS)
        text = re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).replace("\r\n", "\n")
        assert "owned" in text
        assert RAW.search(text) is None, text[:2000]


def test_script_stays_text_in_the_report(tmp_path: Path) -> None:
    for name in ("ladder0", "tiny"):
        directory = planted(name, tmp_path / name, SCRIPT)
        page = tmp_path / f"{name}.html"
        done = typed("report", directory, "-o", page, cwd=tmp_path)
        assert done.code == 0, done
        html = page.read_text()
        assert "&lt;script&gt;" in html
        assert "<script" not in html and "<img" not in html and "onerror=alert(1)>" not in html


def test_script_and_escapes_in_the_drawing_of_show(tmp_path: Path) -> None:
    directory = planted("ladder0", tmp_path, SCRIPT + NASTY)
    done = typed("show", directory, "--svg", tmp_path / "s.svg", cwd=tmp_path)
    assert done.code in (0, 1, 2) and RAW.search(done.out) is None
    drawn = (tmp_path / "s.svg").read_text()
    assert "<script" not in drawn and "\x1b" not in drawn


def test_a_line_of_a_stranger_is_no_line_of_ours(tmp_path: Path) -> None:
    """Else a name could say *verifies* below the sentence that says it doesn't."""
    directory = recorded.copy("ladder0", tmp_path)
    (directory / "x\ntiny verifies: passed\nchecked: all").touch()
    done = bench("verify", directory, cwd=tmp_path)
    assert done.code == 1 and done.out.count("\n") == 1
    assert "x\\u000atiny verifies: passed" in done.out


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("list", "import"))])
def test_things_that_are_no_files_are_never_waited_for(name: str, tmp_path: Path) -> None:
    for file in ("evidence.json", "journal.jsonl", "manifest.json", "attempts/mtp0/server.log"):
        directory = recorded.copy("ladder0", tmp_path / file)
        (directory / file).unlink()
        os.mkfifo(directory / file)
        done = judged(name, directory, tmp_path)
        # What a command doesn't need, it doesn't look at: ties of a ladder come from its captures alone.
        assert done.code in (1, 64) and (name == "ties" or "is a link or a device" in done.out + done.err), done


@pytest.mark.parametrize("name", ["list", "list --json", "import"])
def test_pipes_in_a_directory_that_is_listed(name: str, tmp_path: Path) -> None:
    for file in ("evidence.json", "journal.jsonl", "manifest.json"):
        directory = recorded.copy("ladder0", tmp_path / file)
        (directory / file).unlink()
        os.mkfifo(directory / file)
        judged(name, directory, tmp_path)


def test_printable_keeps_what_is_read_and_nothing_that_acts() -> None:
    said = "Ωß 中文 عربي 👩‍👩‍👧 5 µs\u202f±\u00a02 ─│█ tab\t\n"
    assert printable(said) == said
    assert printable("\x1b[0m\x9b\u202e\ud800\U000e0041\x7f\r") == (
        "\\u001b[0m\\u009b\\u202e\\ud800\\udb40\\udc41\\u007f\\u000d"
    )
    assert one_line("a\nb\tc") == "a\\u000ab\\u0009c"


@given(st.text())
def test_printable_is_safe_final_and_means_the_same_inside_json(text: str) -> None:
    shown = printable(text)
    assert RAW.search(shown) is None
    assert printable(shown) == shown
    quoted = json.dumps(text, ensure_ascii=False)
    assert json.loads(printable(quoted)) == json.loads(quoted)


def test_markup_of_a_stranger_is_text() -> None:
    from rich.table import Table

    stream = io.StringIO()
    screen = console(file=stream, width=200, force_terminal=True)
    table = Table()
    table.add_column("[bold]x")
    table.add_row("[/] [red]y :smile:" + NASTY)
    screen.print(table, "[/nothing]")
    said = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert "[/] [red]y :smile:\\u001b]0;owned" in said and "[/nothing]" in said
    assert RAW.search(said) is None
