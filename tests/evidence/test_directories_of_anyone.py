"""What a directory from anyone may hold: other schemas, names that lead elsewhere, things that are no files, bombs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from harness.errors import EvidenceError
from harness.evidence import journal, store
from harness.evidence.verify import verify
from harness.wire.capture import MAX_EXCHANGES, load_capture
from tests import recorded
from tests.bench import ROOT
from tests.evidence.tampering import write_lines


@pytest.mark.parametrize(("of", "file"), [("evidence", "evidence.json"), ("manifest", "manifest.json")])
@pytest.mark.parametrize("version", ["2", "0", "99", ""])
def test_newer_and_older_schemas(tmp_path: Path, of: str, file: str, version: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / file
    raw = json.loads(path.read_text())
    raw["schema"] = raw["schema"].rpartition("/")[0] + f"/{version}"
    path.write_bytes(store.dump_json(raw))
    if of == "evidence":
        store.write_manifest(campaign)
    (problem,) = verify(campaign).problems
    assert problem.startswith(f"{file} ")
    assert "schema" in problem or "is no manifest of this version" in problem


def test_newer_server_record_capture_and_journal(tmp_path: Path) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    for file, old, new, words in (
        (store.SERVER, "b70-bench.server/1", "b70-bench.server/2", "mtp0/server.json: schema: input should be"),
        (store.CAPTURE, "", "", "capture.jsonl.zst isn't a b70-bench.capture/1 file; use the version that wrote it"),
    ):
        path = campaign / "attempts/mtp0" / file
        whole = path.read_bytes()
        if file == store.CAPTURE:
            write_lines(path, [{"kind": "header", "format": "b70-bench.capture/2", "label": "mtp0"}])
        else:
            path.write_text(path.read_text().replace(old, new))
        store.write_manifest(campaign)
        found = verify(campaign).problems
        assert found[0].startswith(words), found
        path.write_bytes(whole)
    path = campaign / journal.NAME
    path.write_text(path.read_text().replace('"event": "attempt-started"', '"event": "attempt-begun"'))
    store.write_manifest(campaign)
    assert (
        verify(campaign).problems[0].startswith("journal.jsonl line 2 is no journal line (Input should be 'campaign-s")
    )


def replaced(campaign: Path, old: str, new: str) -> None:
    path = campaign / journal.NAME
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    store.write_manifest(campaign)


@pytest.mark.parametrize("directory", ["../../../etc", "..", ".", "", "/etc", "mtp0/../mtp0", "nul\\u0000", "x" * 300])
def test_attempt_directory_that_leads_elsewhere(tmp_path: Path, directory: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    replaced(campaign, '"directory": "mtp0"', f'"directory": "{directory}"')
    found = verify(campaign).problems
    assert found and not any("\n" in problem for problem in found)
    assert any("journal.jsonl" in problem or "attempt" in problem or "records" in problem for problem in found), found


@pytest.mark.parametrize(
    "file", ["journal.jsonl", "evidence.json", "manifest.json", "suite.json", "attempts/mtp0/capture.jsonl.zst", "more"]
)
@pytest.mark.parametrize("kind", ["pipe", "link out", "link to itself", "socket", "directory"])
def test_things_that_are_no_files(tmp_path: Path, file: str, kind: str) -> None:
    """None is opened: a pipe without a writer would wait for ever."""
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / file
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link out":
        path.symlink_to("/etc/hostname")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mknod(path, 0o140644)
    found = verify(campaign).problems
    if (file, kind) != ("more", "directory"):
        assert found and path.name in found[0], found
    if kind != "directory":
        assert found[0] == f"{file} is a link or a device; a campaign holds regular files only, remove it"


def test_more_files_than_a_campaign_has(tmp_path: Path) -> None:
    for number in range(store.MAX_FILES + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(EvidenceError, match="there are more than 20000 files; this is no campaign directory"):
        store.campaign_files(tmp_path)
    with (tmp_path / "0").open("wb") as file:
        file.truncate(store.MAX_FILE + 1)
    with pytest.raises(EvidenceError, match="0 is larger than 2 GiB; it is no evidence of ours"):
        store.campaign_files(tmp_path)


LIMITED = """
import resource, sys
limit = int(sys.argv[2]) << 20
from pathlib import Path
from harness.evidence.verify import verify
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print("\\n".join(verify(Path(sys.argv[1])).problems))
"""


def limited(campaign: Path, mebibytes: int = 3072) -> list[str]:
    """``verify`` in a process that may have so much memory; its sentences."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, campaign, str(mebibytes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
    return done.stdout.splitlines()


def bomb(path: Path, parts: Callable[[], Any]) -> None:
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as stream:
        for part in parts():
            stream.write(part)


HEADER = b'{"kind":"header","format":"b70-bench.capture/1","label":"mtp0"}\n'


BEGIN = (
    '{"kind":"begin","n":0,"for":"suite","name":"x","stage":"","request_id":"",'
    '"t0_wall_ns":0,"t0_mono_ns":0,"request":{"text":""}}\n'
)


def zeros() -> Any:
    return (b"0" * (1 << 20) for _ in range(4096))


def exchanges() -> Any:
    yield HEADER
    line = BEGIN.replace('"n":0', '"n":%d')
    for start in range(0, MAX_EXCHANGES + 1000, 1000):
        yield "".join(line % number for number in range(start, start + 1000)).encode()


def reads() -> Any:
    yield HEADER
    yield BEGIN.encode()
    many = b",".join([b"0"] * 1_000_000)
    for _ in range(11):
        yield b'{"kind":"reads","n":0,"after_ns":[%b],"lag_ns":[%b],"size":[%b],"kernel":true,"text":""}\n' % (
            many,
            many,
            many,
        )


def deep() -> Any:
    yield HEADER
    yield b"[" * (1 << 20) + b"]" * (1 << 20) + b"\n"


def long_number() -> Any:
    yield HEADER
    yield b'{"kind":"control","name":"x","path":"","at_wall_ns":' + b"9" * (1 << 20) + b"}\n"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (zeros, "capture.jsonl.zst has a line over 64 MiB; it's no capture of ours"),
        (exchanges, f"capture.jsonl.zst has more than {MAX_EXCHANGES} exchanges or 4000000 reads"),
        (reads, f"capture.jsonl.zst has more than {MAX_EXCHANGES} exchanges or 4000000 reads"),
        (deep, "capture.jsonl.zst line 2 is not a capture record (RecursionError"),
        (long_number, "capture.jsonl.zst line 2 is not a capture record (ValueError"),
    ],
    ids=["zeros", "ten million rows", "eleven million reads", "deep", "long number"],
)
def test_bomb_in_a_capture(tmp_path: Path, parts: Callable[[], Any], words: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / "attempts/mtp0" / store.CAPTURE
    bomb(path, parts)
    assert path.stat().st_size < 8 << 20
    store.write_manifest(campaign)
    found = limited(campaign)
    assert len(found) == 1 and found[0].startswith(words), found


@pytest.mark.parametrize("file", ["evidence.json", "manifest.json", "attempts/mtp0/server.json", "journal.jsonl"])
@pytest.mark.parametrize("what", ["lists", "deep", "number", "sparse"])
def test_bomb_in_a_json_file(tmp_path: Path, file: str, what: str) -> None:
    campaign = recorded.copy("ladder0", tmp_path)
    path = campaign / file
    size = 12 << 20
    data = {
        "lists": b"[" + b",".join([b"[]"] * (size // 3)) + b"]",
        "deep": b'{"a":' * (size // 10) + b"1" + b"}" * (size // 10),
        "number": b'{"a":' + b"9" * size + b"}",
        "sparse": b"{",
    }[what]
    path.write_bytes(data + b"\n")
    if what == "sparse":
        os.truncate(path, 1 << 30)
    if file != "manifest.json":
        store.write_manifest(campaign)
    found = limited(campaign)
    assert found and path.name in found[0], found


def test_whole_campaign_needs_no_more_than_that() -> None:
    assert limited(recorded.campaign("tiny")) == [""]


def test_capture_with_the_most_that_is_allowed_loads(tmp_path: Path) -> None:
    path = tmp_path / store.CAPTURE
    bomb(path, lambda: [HEADER])
    assert load_capture(path).exchanges == []
