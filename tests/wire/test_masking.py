"""A capture with stars for what it must not keep: wherever it stands, and nothing else changed."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from harness import hidden
from harness.errors import RecordError
from harness.hidden import hide
from harness.wire import capture_writer as capture_module
from harness.wire.capture import Capture, Control, Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Exchange
from harness.wire.masking import mask_capture
from tests.wire.build import GOOD, chunked, exchange
from tests.wire.test_capture_writer import disk_of, records

SECRET = "zqSecret-of-a-test"
STARS = "*" * len(SECRET)
HOME = "/data/people/zq"


@pytest.fixture(autouse=True)
def one_secret() -> Iterator[None]:
    """Known for the test alone: what one hides would be hidden in all that follow."""
    kept = dict(hidden._forms), list(hidden._forms_of_bytes)
    hide([SECRET])
    yield
    hidden._forms.clear()
    hidden._forms.update(kept[0])
    hidden._forms_of_bytes[:] = kept[1]


def plain(**changes: object) -> Exchange:
    found = exchange(chunked(GOOD), framing="body", status=200, headers=[("x-a", "b"), ("x-c", "d")])
    return replace(found, **changes)  # type: ignore[arg-type]


def written(path: Path, exchanges: list[Exchange], *controls: Control) -> Capture:
    writer = CaptureWriter(path, {"label": "x"})
    for number, item in enumerate(exchanges):
        writer.whole(Tag("suite", f"p{number}"), item)
    for control in controls:
        writer.control(control)
    writer.close()
    return load_capture(path)


CONTROL = Control("health", "/health", 1, 200, "body", "error")
PLACES: dict[str, Callable[[str], tuple[Exchange, Control]]] = {
    "request": lambda word: (plain(request=f"POST / {word}".encode()), CONTROL),
    "answer": lambda word: (plain(data=plain().data[: -len(word)] + word.encode()), CONTROL),
    "detail": lambda word: (plain(detail=f"no {word}"), CONTROL),
    "header": lambda word: (plain(headers=[("x-a", "b"), (f"x-{word}", word)]), CONTROL),
    "body of a control answer": lambda word: (plain(), replace(CONTROL, body=f"a {word} b")),
    "error of a control answer": lambda word: (plain(), replace(CONTROL, error=f"a {word} b")),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_goes_from_wherever_it_stands(place: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    told, control = PLACES[place](SECRET)
    other = plain(data=b"\xff" + plain().data[1:])  # not UTF-8, and so written otherwise
    before = written(path, [exchange(chunked(GOOD)), told, other], CONTROL, control)
    assert SECRET in repr(before)
    assert mask_capture(path)
    found, control = PLACES[place](STARS)
    assert load_capture(path) == written(tmp_path / "stars", [exchange(chunked(GOOD)), found, other], CONTROL, control)
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
    assert zstandard.get_frame_parameters(path.read_bytes()).has_checksum
    assert mask_capture(path) is False, "once is enough"


@pytest.mark.parametrize("place", ["request", "answer", "body of a control answer", "error of a control answer"])
def test_a_path_of_this_host_goes_too(place: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    told, control = PLACES[place](HOME)
    written(path, [told], control)
    assert not mask_capture(path)
    assert mask_capture(path, [HOME])
    assert HOME not in repr(load_capture(path))


def test_where_there_is_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert mask_capture(tmp_path / "capture.jsonl.zst") is False
    (tmp_path / "capture.jsonl.zst").touch()
    assert not mask_capture(tmp_path / "capture.jsonl.zst")
    assert not mask_capture(tmp_path)


def test_a_capture_that_cannot_be_replaced_stays_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    told, control = PLACES["answer"](SECRET)
    written(path, [told], control)
    kept = path.read_bytes()
    (tmp_path / f".capture.jsonl.zst.{os.getpid()}.tmp").mkdir()
    with pytest.raises(RecordError, match=r"capture\.jsonl\.zst can't be written \(Is a directory\)"):
        mask_capture(path)
    assert path.read_bytes() == kept


def test_a_capture_that_was_cut_short_is_masked_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "x"})
    writer.tags = [Tag("suite", "p0")]
    told, _ = PLACES["answer"](SECRET)
    writer.begin(told, 0)
    writer.drain(told, 0)
    assert mask_capture(path)
    found = load_capture(path)
    assert found.exchanges[0][1].data == told.data.replace(SECRET.encode(), STARS.encode())
    writer.close()


def test_a_disk_that_is_full_leaves_the_capture_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl.zst"
    told, control = PLACES["answer"](SECRET)
    written(path, [told], control)
    kept = path.read_bytes()
    with disk_of(100), pytest.raises(RecordError, match=r"capture\.jsonl\.zst can't be written \(File too large\)"):
        mask_capture(path)
    assert path.read_bytes() == kept and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("reads", [1, 2, 32 * 1024])
def test_a_secret_that_reads_cut_goes_from_every_line(
    reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also inside a character: such a line is base64 before, and must not be beside its text afterwards."""
    monkeypatch.setattr(capture_module, "RECORD_READS", reads)
    secret = "zqS\u00e9cret"
    hide([secret])
    path = tmp_path / "capture.jsonl.zst"
    told = exchange([b"a", b"zqS\xc3", b"\xa9cr", b"et and more", b"!"])
    written(path, [told, told])
    assert mask_capture(path)
    stars = b"a" + b"*" * len(secret.encode()) + b" and more!"
    assert [found.data for _, found in load_capture(path).exchanges] == [stars, stars]
    lines = [record for record in records(path) if record["kind"] == "reads"]
    assert all("text" in record and "base64" not in record for record in lines)
    assert len(lines) == 2 * -(-5 // reads)
