"""journal.jsonl: appended line by line, loaded whatever a kill left of its end."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import BenchError, EvidenceError
from harness.evidence import journal
from harness.evidence.journal import Event

START = Event(at="2026-01-01T00:00:00.000+00:00", event="campaign-started", start={"plan": {"servers": []}})
ATTEMPT = Event(at="2026-01-01T00:00:01.000+00:00", event="attempt-started", label="mtp0-a", directory="mtp0-a")
ENDED = Event(at="2026-01-01T00:00:02.000+00:00", event="campaign-ended", status="ended", error="Ünïcode\n\u2028line")


def written(folder: Path, *events: Event) -> bytes:
    for event in events:
        journal.append(folder, event)
    return (folder / journal.NAME).read_bytes()


def test_events_come_back_in_order(tmp_path: Path) -> None:
    data = written(tmp_path, START, ATTEMPT, ENDED)
    assert journal.load(tmp_path) == [START, ATTEMPT, ENDED]
    assert data.count(b"\n") == 3 and "label" not in json.loads(data.splitlines()[0]), "defaults stand for themselves"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(cut=st.integers(min_value=0, max_value=10_000))
def test_any_prefix_loads_as_the_whole_lines_in_it(tmp_path: Path, cut: int) -> None:
    """A kill in mid-write leaves a prefix: what was whole is there, and nothing else."""
    for path in tmp_path.iterdir():
        path.unlink()
    data = written(tmp_path, START, ATTEMPT, ENDED)
    kept = data[: cut % (len(data) + 1)]
    (tmp_path / journal.NAME).write_bytes(kept)
    lines = kept.count(b"\n")
    if lines == 0:
        with pytest.raises(EvidenceError, match=r"has no whole line: nothing was recorded before .*; start anew"):
            journal.load(tmp_path)
    else:
        assert journal.load(tmp_path) == [START, ATTEMPT, ENDED][:lines]
        journal.append(tmp_path, ENDED)
        assert journal.load(tmp_path) == [*[START, ATTEMPT, ENDED][:lines], ENDED]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", r"journal.jsonl line 2 is no journal line \(Invalid JSON"),
        ('{"at":"x","event":"party"}', "line 2 is no journal line"),
        ('{"at":"x","event":"attempt-ended","more":1}', r"line 2 is no journal line \(Extra inputs are not permitted"),
        ("", "line 2 is no journal line"),
        ("\udcff", "line 2 is no journal line"),
    ],
)
def test_line_that_is_none(tmp_path: Path, line: str, words: str) -> None:
    written(tmp_path, START)
    with (tmp_path / journal.NAME).open("ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(EvidenceError, match=words):
        journal.load(tmp_path)


def test_journal_that_is_absent_too_large_or_without_a_start(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=f"{tmp_path.name} has no journal.jsonl; give the directory of a campaign"):
        journal.load(tmp_path)
    with pytest.raises(BenchError, match=r"^journal.jsonl can't be written \(No such file or directory\); its dir"):
        journal.append(tmp_path, ATTEMPT)
    (tmp_path / journal.NAME).write_text(ATTEMPT.model_dump_json(exclude_defaults=True) + "\n")
    with pytest.raises(EvidenceError, match="doesn't begin with the start of a campaign"):
        journal.load(tmp_path)
    with (tmp_path / journal.NAME).open("wb") as file:
        file.truncate(journal.MAX_BYTES + 1)
    with pytest.raises(EvidenceError, match="larger than 64 MiB"):
        journal.load(tmp_path)


def test_journal_that_can_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).mkdir()
    with pytest.raises(BenchError, match=r"^journal.jsonl can't be written \(Is a directory\); free space or choose"):
        journal.append(tmp_path, START)


def test_moments_are_utc() -> None:
    assert journal.now_utc().endswith("+00:00")
