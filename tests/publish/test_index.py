"""What the list reads, and that its index is never more than a cache. Python's own audit events count the opens."""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evidence import journal, store
from harness.evidence.schema import Status
from harness.publish import index
from harness.publish.index import Entry, list_campaigns
from harness.publish.index_file import INDEX, SCHEMA
from tests.publish import made
from tests.publish.listings import listing, strict, write_imported

_opened: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _opened.append(Path(os.fsdecode(arguments[0])).name)


sys.addaudithook(_watch)


@contextmanager
def opens() -> Iterator[list[str]]:
    """Names of the files that are opened meanwhile, by anyone in this process."""
    global _opened  # noqa: PLW0603
    found: list[str] = []
    _opened = found
    try:
        yield found
    finally:
        _opened = None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made.write(strict(), tmp_path / "strict")
    withheld = made.ladder({1: [50, 60, 61], 8: [300, 310, 311]}, status=Status.WITHHELD)
    made.write(withheld, tmp_path / "ladder")
    return tmp_path


def test_names_are_the_ones_of_the_store() -> None:
    assert (index.EVIDENCE, index.JOURNAL) == (store.EVIDENCE, journal.NAME)
    assert set(index.STATUSES) - {"imported", "broken", "unreadable"} == {status.value for status in Status}
    assert set(index.TYPES) == {field.name for field in fields(Entry)} - {"directory"}


def test_entries_newest_first(home: Path) -> None:
    write_imported(home / "lab")
    assert listing(home).entries == [
        Entry(
            "ladder",
            "withheld",
            kind="ladder",
            lane="simulated",
            depth=0,
            tensor_parallel=1,
            center=310.5,
            of="c8",
            marks=("withheld",),
            gates="exact 27/27",
            date="2026-09-02T10:00:00.000+00:00",
        ),
        Entry(
            "strict",
            "passed",
            kind="strict",
            lane="simulated",
            depth=3,
            tensor_parallel=1,
            center=pytest.approx(202.0, rel=1e-6),  # type: ignore[arg-type]
            of="mtp3",
            gates="G1 12/12",
            date="2026-09-01T10:00:00.000+00:00",
        ),
        Entry(
            "lab",
            "imported",
            kind="imported",
            lane="R/M",
            depth=3,
            tensor_parallel=1,
            center=177.29,
            of="mtp3",
            marks=("claimed",),
            gates="G1 12/12 claimed",
            date="2026-08-01",
        ),
    ]


def test_a_context_profile_shows_its_longest_measured_context(tmp_path: Path) -> None:
    base = strict().model_dump(mode="json", by_alias=True)
    points = [
        {"label": label, "depth": depth, "context": context, "tok_s": rate}
        for label, depth in (("mtp0", 0), ("mtp3", 3))
        for context, rate in ((2048, 90.0 + depth), (8192, 70.0 + depth), (32768, None))
    ]
    raw = {**base, "schema": "b70-bench.depth/1", "kind": "depth", "points": points}
    (tmp_path / "x").mkdir()
    attempts = raw.pop("attempts")
    # in our order, and in one in which the points come after the attempts
    for text in ({**raw, "attempts": attempts}, {**base, **raw}):
        (tmp_path / "x" / store.EVIDENCE).write_bytes(store.dump_json(text))
        (entry,) = listing(tmp_path).entries
        assert (entry.kind, entry.center, entry.of) == ("depth", 73.0, "at 8192")


def test_simulated_and_withheld_stand_beside_the_number(tmp_path: Path) -> None:
    made.write(strict(simulated=True, status=Status.WITHHELD), tmp_path / "x")
    (entry,) = listing(tmp_path).entries
    assert entry.center is not None and entry.marks == ("simulated", "withheld")


def test_the_second_listing_opens_no_evidence(home: Path) -> None:
    with opens() as first:
        one = listing(home)
    assert first.count(store.EVIDENCE) == one.read == 2
    with opens() as second:
        two = listing(home)
    assert two.entries == one.entries
    assert two.read == 0 and second == [INDEX]


def test_only_the_head_is_read(tmp_path: Path) -> None:
    path = made.write(strict(), tmp_path / "big") / store.EVIDENCE
    size = path.stat().st_size
    head = path.read_bytes().index(b'\n "attempts": ')
    assert size > 2 * index.HEAD > index.HEAD > head
    whole = listing(tmp_path).entries
    with path.open("r+b") as file:  # beyond what has to be read there is garbage
        file.truncate(index.HEAD)
        file.truncate(size)
    assert listing(tmp_path).entries == whole
    assert whole[0].status == "passed"


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(
        path.read_bytes().replace(b'"passed"', b'"broken"').replace(b'"status": "broken"', b'"status": "invalid"', 1)
    )
    other.replace(path)


def in_place(path: Path) -> None:
    """Same size, same inode, same modification time: only the change time tells."""
    before = path.stat()
    text = path.read_bytes().replace(b'"tensor_parallel": 1', b'"tensor_parallel": 2')
    assert len(text) == before.st_size
    with path.open("r+b") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"lane": "simulated"', b'"lane": "another lane"'))


def cut_short(path: Path) -> None:
    os.truncate(path, 100)


@pytest.mark.parametrize("change", [replaced, in_place, longer, cut_short])
def test_what_has_changed_is_read_again(home: Path, change: Callable[[Path], None]) -> None:
    before = {entry.directory: entry for entry in listing(home).entries}
    change(home / "strict" / store.EVIDENCE)
    again = listing(home)
    after = {entry.directory: entry for entry in again.entries}
    assert again.read == 1
    assert after["ladder"] == before["ladder"] and after["strict"] != before["strict"]


def test_a_campaign_that_went_leaves_the_index(home: Path) -> None:
    listing(home)
    (home / "strict").rename(home / "moved")
    assert {entry.directory for entry in listing(home).entries} == {"moved", "ladder"}
    assert set(json.loads((home / INDEX).read_text())["entries"]) == {"moved", "ladder"}
    for path in (home / "moved", home / "ladder"):
        (path / store.EVIDENCE).unlink()
    assert listing(home).entries == []


def test_what_was_written_a_moment_ago_is_not_indexed(home: Path) -> None:
    newest = max((home / name / store.EVIDENCE).stat().st_ctime_ns for name in ("strict", "ladder"))
    for _ in range(2):
        assert list_campaigns(home, now_ns=newest + 1000).read == 2
    assert list_campaigns(home, now_ns=newest + 2 * index.SETTLED_NS).read == 2
    assert list_campaigns(home, now_ns=newest + 2 * index.SETTLED_NS).read == 0


def broken_indexes() -> list[bytes]:
    entry = {"status": "passed"}
    return [
        b"",
        b"{",
        b"[1, 2]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": "b70-bench.index/0", "entries": {}}',
        b'{"schema": "b70-bench.index/1", "entries": []}',
        b'{"schema": "b70-bench.index/1", "entries": {"strict": 4, "ladder": [1, 2, 3]}}',
        json.dumps({"schema": SCHEMA, "entries": {"strict": [[1], entry], "ladder": [None, entry]}}).encode(),
    ]


@pytest.mark.parametrize("data", broken_indexes())
def test_an_index_that_cannot_be_used_is_rebuilt(home: Path, data: bytes) -> None:
    want = listing(home).entries
    good = (home / INDEX).read_bytes()
    (home / INDEX).write_bytes(data)
    assert listing(home).entries == want
    assert (home / INDEX).read_bytes() == good and listing(home).read == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("status", "fine"), ("center", "fast"), ("marks", [1]), ("depth", 1.5), ("gates", None), ("more", 1)],
)
def test_an_entry_of_another_shape_is_read_again(home: Path, name: str, value: Any) -> None:
    want = listing(home).entries
    raw = json.loads((home / INDEX).read_text())
    raw["entries"]["strict"][1][name] = value
    (home / INDEX).write_text(json.dumps(raw))
    again = listing(home)
    assert again.entries == want and again.read == 1
    assert listing(home).read == 0


def test_an_index_that_is_no_file_is_left_alone(home: Path) -> None:
    want = listing(home).entries
    (home / INDEX).unlink()
    os.mkfifo(home / INDEX)
    assert listing(home).entries == want
    assert not [path.name for path in home.iterdir() if path.name.endswith(".tmp")]


def test_a_directory_that_cannot_be_written_has_no_index(home: Path) -> None:
    (home / INDEX).mkdir()  # a rename onto it fails for root too
    assert len(listing(home).entries) == 2
    assert listing(home).read == 2
    assert sorted(path.name for path in home.iterdir()) == [INDEX, "ladder", "strict"]


def test_the_index_is_small_and_names_no_path(home: Path) -> None:
    listing(home)
    text = (home / INDEX).read_text()
    assert str(home) not in text and len(text) < 1000
    assert stat.S_IMODE((home / INDEX).stat().st_mode) & 0o600 == 0o600


def damaged() -> dict[str, bytes]:
    good = store.dump_json(strict().model_dump(mode="json", by_alias=True))
    return {
        "empty": b"",
        "half": good[:500],
        "array": b"[]",
        "deep": b"[" * 200_000,
        "latin": b'{"kind": "\xe9"}',
        "other schema": good.replace(b"b70-bench.evidence/1", b"b70-bench.evidence/7"),
        "other status": good.replace(b'"status": "passed"', b'"status": "splendid"', 1),
        "no plan": good.replace(b'  "plan": {', b'  "plans": {', 1),
        "text for a number": good.replace(b'   "depth": 3,', b'   "depth": "3",', 1),
        "huge rate": good.replace(b'"center": ', b'"center": 9e99, "c": '),
        "no date": good.replace(b'"started_at": "2026', b'"started_at": "soon', 1),
        "null": b"null",
    }


@pytest.mark.parametrize("name", damaged())
def test_a_broken_file_is_a_row_that_says_so(home: Path, name: str) -> None:
    (home / "bad").mkdir()
    (home / "bad" / store.EVIDENCE).write_bytes(damaged()[name])
    for _ in range(2):  # read, and from the index
        found = {entry.directory: entry for entry in listing(home).entries}
        assert found["bad"].status == "broken" and found["bad"].problem
        assert found["bad"].center is None and found["strict"].status == "passed"


def test_what_is_no_regular_file_does_not_hang(home: Path) -> None:
    for name, target in (("pipe", store.EVIDENCE), ("started", journal.NAME)):
        (home / name).mkdir()
        os.mkfifo(home / name / target)
    (home / "folder" / store.EVIDENCE).mkdir(parents=True)
    (home / "circle").symlink_to("circle")
    (home / "dangling").symlink_to("nowhere")
    found = {entry.directory: entry.status for entry in listing(home).entries}
    assert found == {
        "strict": "passed",
        "ladder": "withheld",
        "pipe": "broken",
        "started": "broken",
        "folder": "unreadable",
        "circle": "unreadable",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_without_permission_is_a_row(home: Path) -> None:
    (home / "strict").chmod(0)
    try:
        found = {entry.directory: entry for entry in listing(home).entries}
    finally:
        (home / "strict").chmod(0o755)
    assert found["strict"].status == "unreadable" and "ermission" in found["strict"].problem


def test_directories_without_a_campaign_are_counted(home: Path) -> None:
    (home / "notes").mkdir()
    (home / ".git").mkdir()
    (home / "file").write_text("x")
    found = listing(home)
    assert found.others == 1 and len(found.entries) == 2


def test_a_campaign_that_has_only_started(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    start = strict().start
    event = journal.Event(
        at="2026-09-03T00:00:00.000+00:00", event="campaign-started", start=start.model_dump(mode="json")
    )
    journal.append(tmp_path / "new", event)
    for _ in range(2):
        found = listing(tmp_path)
        (entry,) = found.entries
        assert (entry.status, entry.kind, entry.depth, entry.center) == ("started", "strict", 3, None)
        assert found.read == 1  # it has no evidence that could tell that nothing changed
    (tmp_path / "new" / journal.NAME).write_bytes(b'{"event": "campaign-started"}\n')
    assert listing(tmp_path).entries[0].status == "broken"


def test_terminal_codes_of_a_name_are_not_printed(home: Path) -> None:
    (home / "strict").rename(home / "bad\x1b[31mname")
    (home / "ladder").rename(home / os.fsdecode(b"bad\xff"))
    for _ in range(2):
        assert all(entry.directory.isprintable() for entry in listing(home).entries)


@given(text=st.text(max_size=200))
def test_printable_is_one_short_line(text: str) -> None:
    shown = index.printable(text)
    assert shown.isprintable() and len(shown) <= index.LONGEST
    if text.isprintable() and len(text) <= index.LONGEST:
        assert shown == text


@pytest.mark.parametrize("reason", ['x\n "attempts": [', 'y,\n   "servers": [', '"started_at": ', '\\n "attempts": ""'])
def test_text_inside_a_value_never_looks_like_a_cut(tmp_path: Path, reason: str) -> None:
    made.write(strict(reasons=[reason], conclusion=reason), tmp_path / "x")
    (entry,) = listing(tmp_path).entries
    assert entry.status == "passed" and entry.depth == 3 and not entry.problem


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_file_written_in_another_way_is_read_whole(tmp_path: Path, indent: int | None) -> None:
    path = made.write(strict(), tmp_path / "x") / store.EVIDENCE
    want = listing(tmp_path).entries
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({"attempts": raw.pop("attempts"), **raw}, indent=indent))
    assert listing(tmp_path).entries == want


@pytest.mark.parametrize("padding", range(-40, 60, 7))
def test_the_cut_may_lie_across_two_reads(tmp_path: Path, padding: int) -> None:
    path = made.write(strict(), tmp_path / "x") / store.EVIDENCE
    head = path.read_bytes().index(b'\n "attempts": ')
    path.unlink()
    made_longer = strict(reasons=["r" * (index.HEAD - head + padding)])
    path.write_bytes(store.dump_json(made_longer.model_dump(mode="json", by_alias=True)))
    (entry,) = listing(tmp_path).entries
    assert entry.status == "passed" and entry.center == pytest.approx(202.0, rel=1e-6)
