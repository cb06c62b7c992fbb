"""The campaign directory: whole files or none, a manifest of all of them, listings of caches."""

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BenchError, EvidenceError
from harness.evidence import store


def test_readers_see_the_old_or_the_new_file_and_nothing_between(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    versions = [bytes([65 + number]) * 200_000 for number in range(20)]
    store.write_atomic(path, versions[0])
    seen: set[bytes] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for version in versions:
        store.write_atomic(path, version)
    over.set()
    reader.join()
    assert seen and seen <= set(versions)
    assert path.read_bytes() == versions[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


def test_file_that_can_not_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "evidence.json").mkdir()
    (tmp_path / "evidence.json" / "inside").touch()
    with pytest.raises(BenchError, match=r"^evidence.json can't be written \(.+\); free space or choose another --out"):
        store.write_atomic(tmp_path / "evidence.json", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]
    with pytest.raises(BenchError, match="No such file or directory"):
        store.write_atomic(tmp_path / "absent" / "evidence.json", b"x")


def test_nan_never_reaches_a_file() -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.dump_json({"rate": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        store.dump_json([float("inf")])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(json_values)
def test_what_is_dumped_is_read_back(value: object) -> None:
    try:
        data = store.dump_json(value)
    except UnicodeEncodeError:
        return  # half of a surrogate pair; rows replace them before they come here
    assert json.loads(data) == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not whole JSON"),
        (b'{"a": ', "is not whole JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"\xff\xfe", "is not whole JSON"),
        (b"[" * 200_000, "is not whole JSON"),
    ],
)
def test_json_that_is_none(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "server.json"
    path.write_bytes(data)
    with pytest.raises(EvidenceError, match=words):
        store.read_json(path)


def test_json_that_is_absent_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"server.json can't be read \(No such file or directory\)"):
        store.read_json(tmp_path / "server.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(store.MAX_JSON + 1)
    with pytest.raises(EvidenceError, match=r"huge.json is larger than 256 MiB"):
        store.read_json(tmp_path / "huge.json")


def test_manifest_names_every_file_but_itself_and_what_is_not_kept(tmp_path: Path) -> None:
    files = {"evidence.json": b"e", "attempts/mtp0-a/server.log": b"", "attempts/mtp0-a/caches/x": b"kept"}
    passing = {"caches/mtp0-a/vllm/graph.bin": b"c", ".evidence.json.123.tmp": b"t", "manifest.json": b"m"}
    for name, data in {**files, **passing}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    manifest = store.build_manifest(tmp_path)
    assert manifest["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in sorted(files.items())
    }
    store.write_manifest(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text()) == manifest
    assert store.build_manifest(tmp_path) == manifest


@pytest.mark.parametrize("kind", ["file link", "folder link", "dangling link", "pipe"])
def test_only_regular_files_are_evidence(tmp_path: Path, kind: str) -> None:
    campaign, odd = tmp_path / "campaign", tmp_path / "campaign" / "odd"
    campaign.mkdir()
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        target = {"file link": "/etc/hostname", "folder link": str(tmp_path), "dangling link": "/no/where"}[kind]
        odd.symlink_to(target)
    with pytest.raises(EvidenceError, match=r"^odd is a link or a device"):
        store.campaign_files(campaign)


def test_cache_listing_counts_every_file(tmp_path: Path) -> None:
    listing = store.list_caches(tmp_path / "absent")
    assert (listing.entries, listing.bytes) == (0, 0)
    assert set(listing.folders) == {"vllm", "xdg", "inductor", "triton", "neo", "sycl"}
    for name, size in (("vllm/a/b", 3), ("neo/x", 5), ("tmp/leak", 7), ("loose", 11)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "link").symlink_to("/no/where")
    listing = store.list_caches(tmp_path)
    assert listing.entries == 5 and listing.bytes >= 26
    counted = {name: count for name, count in listing.folders.items() if count}
    assert counted == {"vllm": 1, "neo": 1, "tmp": 1, ".": 1, "triton": 1}
