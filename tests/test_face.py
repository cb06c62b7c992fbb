"""What a person sees: the live table, plain lines and JSON lines, fed with a real campaign's evidence."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.evidence.derive import derive
from harness.evidence.schema import AttemptStatus, Evidence, Status
from harness.face import JsonFace, LiveFace, PlainFace
from harness.measure.gates import Gate
from harness.summary import gate_words, number, short, summary
from tests.bench import Done

COMMAND = "bench strict --mtp 3"


@pytest.fixture(scope="module")
def evidence(passed: Path) -> Evidence:
    found = derive(passed)
    assert isinstance(found, Evidence)
    return found


def play(face: Any, evidence: Evidence, directory: Path, *, to_the_end: bool = True) -> None:
    """Tell a face what the campaign told the one that was there."""
    face.campaign(directory, evidence.start, [])
    for attempt in evidence.attempts:
        face.attempt(attempt.label, attempt.directory)
        face.stage(attempt.label, "starting, 1 s, 3 KiB of log")
        face.stage(attempt.label, "starting, 2 s, 4 KiB of log")
        for row in attempt.rows:
            face.stage(attempt.label, f"prompt {row.index + 1}/12 {row.prompt_id}")
            face.row(attempt.label, row, 12)
        if not to_the_end:
            return
        face.attempt_ended(attempt.label, "complete", "")
    for gate in evidence.gates:
        face.gate(gate)
    face.ended(evidence, directory)


def plain(evidence: Evidence, directory: Path, command: str = COMMAND) -> str:
    out = io.StringIO()
    play(PlainFace(out, command), evidence, directory)
    return out.getvalue()


def shown(evidence: Evidence, directory: Path, width: int = 160) -> str:
    console = Console(file=io.StringIO(), record=True, width=width)
    for part in summary(evidence, directory, COMMAND):
        console.print(part)
    return console.export_text()


def test_plain_lines(evidence: Evidence, passed: Path) -> None:
    text = plain(evidence, passed)
    lines = text.splitlines()
    assert lines[0] == "SIMULATED, no measurement: Fast simulated server, TP1, MTP depth 3"
    assert lines[1] == f"campaign {passed.name}: mtp0-a, mtp0-b, mtp3-a, mtp3-b"
    rows = [line for line in lines if re.match(r"mtp\d-[ab]: +\d+/12 ", line)]
    assert len(rows) == 48
    row = r"mtp0-a:  1/12 restore-drill: 110 tokens, \d+\.\d\d tokens/s, TTFT \d+\.\d ms \(simulated\)"
    assert re.fullmatch(row, rows[0])
    assert sum(line.startswith("mtp0-a: starting") for line in lines) == 1, "counting stages are said once"
    assert "G3 12/12 (mtp3-b vs mtp0-a)" in lines
    assert "\x1b" not in text, "no colour where there is no terminal"


def test_real_output_of_a_pipe_has_no_colour_either(passed_output: Done) -> None:
    assert "\x1b" not in passed_output.out and passed_output.err == ""
    assert max(map(len, passed_output.out.splitlines()[:-20])) < 160


def test_summary_has_units_and_fits(evidence: Evidence, passed: Path) -> None:
    text = shown(evidence, passed)
    base = next(line for line in text.splitlines() if line.startswith("│ mtp0"))
    cells = [cell.strip() for cell in base.strip("│").split("│")]
    assert re.fullmatch(r"\d+\.\d\d tokens/s", cells[1]) and re.fullmatch(r"\d+\.\d\d tokens/s", cells[3])
    assert re.fullmatch(r"\d+\.\d\d%", cells[4])
    assert re.fullmatch(r"\d+\.\d / \d+\.\d ms", cells[6])
    assert cells[7] == "–", "no acceptance without drafts"
    arm = next(line for line in text.splitlines() if line.startswith("│ mtp3"))
    assert re.search(r"\d\d\.\d%, \d\.\d\d tokens/step", arm)
    assert "SIMULATED: these numbers are no measurement of any card" in text
    assert "gates: G1 12/12 (mtp0-a vs mtp0-b)" in text
    assert "withheld" not in text
    assert text.rstrip().splitlines()[-1].startswith("next: bench verify ")


def changed(evidence: Evidence, **fields: Any) -> Evidence:
    return evidence.model_copy(update=fields)


def test_withheld_number_is_marked_where_it_stands(evidence: Evidence, passed: Path) -> None:
    gone = changed(evidence, status=Status.WITHHELD, withheld=True, exit_code=1, reasons=["G3: a differs at token 57"])
    text = shown(gone, passed)
    assert text.count("tokens/s (withheld)") == 2
    assert "- G3: a differs at token 57" in text
    assert "withheld: MTP3 TP1 on fast: speeds are recorded, but the number is withheld" in text


def test_many_reasons_are_counted_and_logs_cut(evidence: Evidence, passed: Path) -> None:
    log = "mtp0-a: the server has ended with exit code 1; its last log lines:\nline one\n\nRuntimeError: " + "x" * 300
    reasons = [log, *(f"reason {number}" for number in range(20))]
    dead = [attempt.model_copy(update={"status": AttemptStatus.INVALID}) for attempt in evidence.attempts[:1]]
    text = shown(changed(evidence, status=Status.INVALID, exit_code=2, reasons=reasons, attempts=dead), passed)
    assert "- mtp0-a: the server has ended with exit code 1\n  its log ends with: RuntimeError: xxx" in text
    assert "line one" not in text
    assert "- and 9 more in evidence.json" in text
    assert max(map(len, text.splitlines())) <= 160
    assert text.rstrip().splitlines()[-1].startswith(f"next: {COMMAND} --resume ")


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        ("", [""]),
        ("one", ["one"]),
        ("a; its last log lines:\nb\nc", ["a", "its log ends with: c"]),
        ("y" * 200, ["y" * 149 + "…"]),
        ("\n \n", [""]),
    ],
)
def test_reason_in_short(reason: str, lines: list[str]) -> None:
    assert short(reason) == lines


def test_figures() -> None:
    assert [number(None), number(1.0), number(1.005, "ms", 1), number(0.0, "tokens/s")] == [
        "–",
        "1.00",
        "1.0 ms",
        "0.00 tokens/s",
    ]
    failed = Gate(name="fresh", subject="x", passed=False, failures=["no"])
    assert gate_words(failed) == "fresh FAILED"
    assert gate_words(Gate(name="fresh", subject="x", passed=True, failures=[])) == "fresh passed"
    assert gate_words(Gate(name="G1", subject="x", passed=False, failures=["no"], exact=9, total=12)) == "G1 9/12"


def live(evidence: Evidence, passed: Path, *, to_the_end: bool) -> tuple[LiveFace, Console]:
    console = Console(file=io.StringIO(), record=True, width=160, force_terminal=True, color_system="standard")
    face = LiveFace(console, COMMAND)
    try:
        play(face, evidence, passed, to_the_end=to_the_end)
    finally:
        face.close()
    return face, console


def test_live_table_in_the_middle(evidence: Evidence, passed: Path) -> None:
    face, _ = live(evidence, passed, to_the_end=False)
    console = Console(file=io.StringIO(), record=True, width=160)
    console.print(face._draw())
    text = console.export_text()
    assert "SIMULATED, no measurement · Fast simulated server · TP1 · MTP depth 3" in text
    running = next(line for line in text.splitlines() if "mtp0-a" in line)
    assert "12/12" in running and "1320" in running and re.search(r"\d+\.\d\d tokens/s", running)
    assert running.rstrip(" │").endswith(" s"), "with its time"
    assert "waiting" in next(line for line in text.splitlines() if "mtp3-b" in line)
    assert "gates so far: none yet" in text and "time left: unknown yet" in text


def test_note_before_the_table_is_not_lost() -> None:
    console = Console(file=io.StringIO(), record=True, width=160, force_terminal=True)
    face = LiveFace(console, COMMAND)
    face.note("no card under the xe driver: running the simulated server, which measures nothing")
    face.close()
    assert "no card under the xe driver" in console.export_text()


def test_live_table_gives_way_to_the_summary(evidence: Evidence, passed: Path) -> None:
    _, console = live(evidence, passed, to_the_end=True)
    styled = console.export_text(styles=True, clear=False)
    assert "\x1b[" in styled, "a terminal has colours"
    text = console.export_text()
    assert "passed: SIMULATED, no measurement: MTP3 TP1 on fast" in text
    assert "next: bench verify " in text


def test_live_face_shows_gates_and_time_left(evidence: Evidence, passed: Path) -> None:
    face = LiveFace(Console(file=io.StringIO(), width=160, force_terminal=True), COMMAND)
    play(face, evidence, passed, to_the_end=False)
    face.attempt_ended("mtp0-a", "complete", "")
    face.gate(evidence.gates[0])
    face.note("reading model.safetensors, 5.2 GiB")
    face.close()
    console = Console(file=io.StringIO(), record=True, width=160)
    console.print(face._draw())
    text = console.export_text()
    assert "gates so far: G1 12/12" in text
    assert re.search(r"time left: about \d+ s", text)
    assert "reading model.safetensors, 5.2 GiB" in text


def test_json_lines_are_whole_and_have_no_nan(evidence: Evidence, passed: Path) -> None:
    out = io.StringIO()
    play(JsonFace(out), evidence, passed)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in out.getvalue().splitlines()]
    assert lines[-1]["event"] == "ended" and lines[-1]["simulated"] is True
    assert [pair["name"] for pair in lines[-1]["pairs"]] == ["mtp0", "mtp3"]
    assert [line["exact"] for line in lines if line["event"] == "gate"] == [12, 12, 12, 12]
