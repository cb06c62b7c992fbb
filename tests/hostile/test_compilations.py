"""Case 41: what a log tells of compilations inside of the measured window is counted and shown."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.evidence.compilations import NOT_OURS, compilations, compile_notes
from harness.evidence.derive import derive
from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import AttemptStatus, CompileLines, LogMark, ServerRecord
from harness.evidence.verify import verify
from harness.wire.capture import load_capture
from tests.bench import bench, campaign_of, evidence_of, strict, write_launcher
from tests.ladders import ladder, launcher
from tests.recorded import campaign

LINE = b"Triton kernel JIT compilation during inference: kernel. This causes a latency spike\n"
OTHER = b"another line\n"


def of(log: bytes, marks: Sequence[tuple[str, int, bool]], *, ended: bool = True) -> CompileLines | None:
    """What is said of a log with these marks, on the server of a recorded campaign."""
    evidence = evidence_of(campaign("tiny"))
    record = ServerRecord.model_validate(evidence["attempts"][0]["server"])
    kept = [LogMark(stage=stage, lines=lines, caught_up=caught) for stage, lines, caught in marks]
    status = AttemptStatus.COMPLETE if ended else AttemptStatus.INVALID
    record = record.model_copy(update={"log_marks": kept})
    return compilations(AttemptFiles("mtp0-a", "mtp0-a", status, "", None, record, log))


MARKS = [("", 2, True), ("sequential", 4, True), ("pass 1", 6, True)]


def test_41_a_line_belongs_to_the_stage_in_which_the_log_grew() -> None:
    told = of(LINE * 7, MARKS)
    assert told is not None and (told.during, told.outside, told.unknown) == ({"sequential": 2, "pass 1": 2}, 3, 0)
    assert told.lines == [LINE.decode().strip()] * 4


def test_41_a_line_whose_time_is_not_known_is_unknown() -> None:
    told = of(LINE * 7, [("", 2, False), ("suite", 5, True)])
    assert told is not None and (told.during, told.outside, told.unknown) == ({}, 4, 3)
    told = of(LINE * 7, [("", 2, True), ("suite", 5, False)])
    assert told is not None and (told.during, told.outside, told.unknown) == ({"suite": 3}, 2, 2)
    told = of(LINE * 7, [("", 2, True)], ended=False)
    assert told is not None and (told.during, told.outside, told.unknown) == ({}, 2, 5)


def test_41_without_marks_nothing_is_said() -> None:
    assert of(LINE * 7, []) is None


@given(
    st.lists(st.booleans(), max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
)
def test_41_every_line_is_counted_once(lines: list[bool], marks: list[tuple[int, bool]], ended: bool) -> None:
    log = b"".join(LINE if compiles else OTHER for compiles in lines)
    placed = [(f"pass {place}" if place else "", at, caught) for place, (at, caught) in enumerate(sorted(marks))]
    told = of(log, placed, ended=ended)
    assert told is not None and sum(told.during.values()) + told.outside + told.unknown == sum(lines)
    if not all(caught for _, _, caught in placed) or not ended:
        assert told.outside + told.unknown >= sum(lines[: placed[0][1]])


def test_41_recorded_campaigns_without_marks_keep_their_bytes() -> None:
    for name in ("tiny", "ladder0"):
        folder = campaign(name)
        assert verify(folder).problems == []
        assert all(attempt.compile_lines is None for attempt in derive(folder).attempts)


def test_41_a_compilation_while_it_is_measured_is_counted_shown_and_the_row_is_cold(tmp_path: Path) -> None:
    done = strict(tmp_path, write_launcher(tmp_path, "jit:300"))
    folder = campaign_of(tmp_path)
    evidence = evidence_of(folder)
    assert verify(folder).problems == [] and done.err == ""
    for attempt in evidence["attempts"]:
        told = attempt["compile_lines"]
        assert told["during"] == {"suite": 1} and told["unknown"] == 0, "one batch size, one line"
        assert told["outside"] == 2, "what it compiled at its start"
        assert [mark["stage"] for mark in attempt["server"]["log_marks"]] == ["", "suite"]
        assert all(mark["caught_up"] for mark in attempt["server"]["log_marks"])
        cold = [row["prompt_id"] for row in attempt["rows"] if any(w.startswith("cold:") for w in row["warnings"])]
        first = attempt["rows"][0]
        assert first["prompt_id"] in cold, "on a busy machine another may be, too"
        assert first["ttft_ms"] > 300 > attempt["median_ttft_ms"]
        said = (
            f"- {attempt['directory']}: its log tells of 1 compilation while it was measured (suite 1), first: Triton"
        )
        assert said in done.out
        assert f"- {attempt['directory']}: {first['prompt_id']} is cold, TTFT" in done.out
    assert bench("report", folder, "--out", tmp_path / "page.html", cwd=tmp_path).code == 0
    page = (tmp_path / "page.html").read_text()
    assert "its log tells of 1 compilation while it was measured (suite 1), first: Triton kernel JIT" in page


def test_41_a_ladder_says_in_which_pass_and_the_warm_up_takes_it(tmp_path: Path) -> None:
    done, evidence = ladder(tmp_path, launcher(tmp_path, "--fault", "jit:80"), rungs="2,4", passes=3)
    (attempt,) = evidence["attempts"]
    told = attempt["compile_lines"]
    assert told["unknown"] == 0 and told["during"] == {"sequential": 1, "pass 1": 3}, "sizes 1, then 2, 3, 4"
    assert [mark["stage"] for mark in attempt["server"]["log_marks"]] == [
        "",
        "sequential",
        "pass 1",
        "pass 2",
        "pass 3",
    ]
    assert "(sequential 1, pass 1 3; none in a published rate)" in done.out
    rungs = {rung["rung"]: rung for rung in evidence["rungs"]}
    assert all(rung["warm_up_tok_s"] < rung["tok_s"] for rung in rungs.values()), (
        "the center is over passes 2 and later"
    )


def test_41_the_log_of_a_server_of_others_is_unknown(tmp_path: Path) -> None:
    told = CompileLines(during={}, outside=0, unknown=0, lines=[], note=NOT_OURS)
    record = ServerRecord.model_validate(evidence_of(campaign("tiny"))["attempts"][0]["server"])
    plan = record.requested.model_copy(update={"engine": "attach"})
    record = record.model_copy(update={"requested": plan, "log_marks": [LogMark(stage="", lines=0, caught_up=False)]})
    files = AttemptFiles("mtp0-a", "mtp0-a", AttemptStatus.COMPLETE, "", None, record, LINE)
    assert compilations(files) == told
    assert compile_notes([]) == []


def test_41_looks_and_marks_are_in_the_capture(tmp_path: Path) -> None:
    ladder(tmp_path, launcher(tmp_path), rungs="2", passes=1)
    (path,) = campaign_of(tmp_path).glob("attempts/*/capture.jsonl.zst")
    names = [control.name for control in load_capture(path).controls if control.path == "/metrics"]
    assert [name for name in names if not name.startswith("running ")] == [
        "metrics-before",
        "metrics-suite-start",
        "sequential-end",
        "pass-end",
        "metrics-suite-end",
        "metrics-after",
    ]
