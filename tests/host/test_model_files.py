"""Real directories: hashed, described, and checked against a manifest."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BenchError, ExitCode, UsageError
from harness.host.model_files import check, checked_files, list_files, pin, read_files, read_header
from harness.model_shape import Tensor
from harness.models import Manifest
from tests.model_dirs import SHAPES, tensors, write_model, write_safetensors

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "weights")


def test_every_file_has_its_size_and_sha256(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "x.txt").write_bytes(b"x" * (3 << 20))
    files = read_files(folder)
    assert [file.name for file in files] == ["config.json", "model.safetensors", "sub/x.txt"]
    for file in files:
        data = (folder / file.name).read_bytes()
        assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_progress_is_told_to_the_end(folder: Path) -> None:
    told: list[tuple[str, int, int]] = []
    read_files(folder, lambda *said: told.append(said))
    ends = {name: (done, size) for name, done, size in told}
    assert ends and all(done == size for done, size in ends.values())


def test_a_cache_of_links_is_pinned_as_its_files(folder: Path, tmp_path: Path) -> None:
    before = pin(folder)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (folder / "model.safetensors").rename(blobs / "0123")
    (folder / "model.safetensors").symlink_to("../blobs/0123")
    assert pin(folder) == before
    assert check(folder, before) == []


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda at: at.symlink_to("nowhere"), "x is a dangling link; download the file or remove the link"),
        (lambda at: at.symlink_to("x"), "x can't be read"),
        (lambda at: at.symlink_to("/"), "x is a link to a folder"),
        (os.mkfifo, "x is a pipe, socket or device, not a file"),
        (lambda at: at.symlink_to("/dev/null"), "x is a pipe, socket or device, not a file"),
        (lambda at: at.symlink_to("/proc/self/mem"), "x can't be read (Input/output error)"),
    ],
)
def test_what_is_no_readable_file_is_refused(folder: Path, make: Any, sentence: str) -> None:
    manifest = pin(folder)
    make(folder / "x")
    for run in (lambda: pin(folder), lambda: checked_files(folder, manifest, "m.json")):
        with pytest.raises(UsageError) as refused:
            run()
        assert "\n" not in str(refused.value)
        assert sentence in str(refused.value) or "x is not in the manifest" in str(refused.value)
    with pytest.raises(UsageError, match=r"model file x ") as refused:
        pin(folder)
    assert sentence in str(refused.value)


def test_a_name_that_is_no_text_is_refused(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"")
    with pytest.raises(UsageError, match="not UTF-8"):
        pin(folder)


def test_a_directory_that_can_not_be_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model directory gone doesn't exist"):
        pin(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"model directory empty has no config\.json"):
        pin(tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_bytes(b"")
    with pytest.raises(UsageError, match=r"model directory other has no config\.json"):
        pin(tmp_path / "other")


def test_a_directory_that_changes_while_it_is_read_is_no_result(folder: Path) -> None:
    manifest = pin(folder)

    def grow(name: str, done: int, size: int) -> None:
        if name == "model.safetensors" and done == size:
            with (folder / name).open("ab") as file:
                file.write(b"x")

    def add(name: str, done: int, size: int) -> None:
        if name == "model.safetensors" and done == size:
            (folder / "late.txt").write_text("late")

    for meddle, name in ((add, "late.txt"), (grow, "model.safetensors")):
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        for run in (lambda: pin(folder, progress=meddle), lambda: check(folder, manifest, meddle)):  # noqa: B023
            with pytest.raises(BenchError, match=f"model file {name} changed while it was read") as told:
                run()
            assert told.value.exit_code is ExitCode.INFRASTRUCTURE
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
        shutil.rmtree(copy)


def test_check_names_each_missing_extra_and_changed_file(folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_text(name)
    manifest = pin(folder)
    assert check(folder, manifest) == []
    (folder / "a").unlink()
    (folder / "b").write_text("x")
    (folder / "c").write_text("longer")
    (folder / "d").write_text("d")
    (folder / "e").symlink_to("nowhere")
    found = check(folder, manifest)
    assert [line.split(":")[0] for line in found] == [
        "a is missing from the directory",
        "b has other content",
        "c has 6 bytes, the manifest says 1",
        "d is not in the manifest",
        "model file e is a dangling link; download the file or remove the link",
    ]
    with pytest.raises(UsageError, match=r"weights isn't what m\.json says: a is missing .*\(3 more differ\)"):
        checked_files(folder, manifest, "m.json")


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(tmp_path_factory: pytest.TempPathFactory, place: int, bit: int) -> None:
    folder = write_model(tmp_path_factory.mktemp("flip") / "weights")
    manifest = pin(folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(data)
    (line,) = check(folder, manifest)
    assert line.startswith("model.safetensors has other content: sha256 ")
    with pytest.raises(UsageError, match=r"says: model\.safetensors has other content"):
        checked_files(folder, manifest, "m.json")


def test_an_edited_account_of_a_step_is_found(folder: Path) -> None:
    whole = pin(folder).as_json()
    whole["weights"]["bytes_by_role"]["layers"]["BF16"] //= 2
    (line,) = check(folder, Manifest.model_validate(whole))
    assert line.startswith("what a step reads isn't what the files say")


def test_only_files_of_the_index_are_counted(folder: Path) -> None:
    before = pin(folder)
    write_safetensors(folder / "consolidated.safetensors", {"model.layers.0.x": ("BF16", (64,))})
    both = pin(folder).weights
    assert before.weights is not None and both is not None and both.tensors == before.weights.tensors + 1
    index = {"weight_map": dict.fromkeys(SHAPES, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert pin(folder).weights == before.weights
    index["weight_map"]["lm_head.weight"] = "gone.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match=r"gone\.safetensors is named in model\.safetensors\.index\.json and missing"):
        pin(folder)


def test_without_safetensors_there_are_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.bin")
    manifest = pin(folder)
    assert manifest.weights is None and "no safetensors file" in manifest.missing["weights"]


def test_a_header_is_read(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", SHAPES)
    assert read_header(tmp_path / "x.safetensors") == tensors(SHAPES)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "its header would be 0 bytes of 0"),
        (b"\xff" * 8, "its header would be"),
        ((9).to_bytes(8, "little") + b"not json!", "its header is not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "its header is no JSON object"),
        ((2).to_bytes(8, "little") + b"{}x", "it holds 1 bytes of data and names 0"),
    ],
)
def test_a_header_that_can_not_be_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_header(path)
    assert str(refused.value).startswith("model file x.safetensors is no whole safetensors file (")
    assert why in str(refused.value)


@given(cut=st.integers(0, 2_000_000))
def test_a_file_that_is_cut_anywhere_is_not_whole(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.safetensors"
    write_safetensors(path, SHAPES)
    with path.open("r+b") as file:
        file.truncate(cut % path.stat().st_size)
    with pytest.raises(UsageError, match="no whole safetensors file"):
        read_header(path)


ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["BF16", "F4", 3, None]),
        "shape": st.lists(st.integers(-2, 2**70) | st.booleans(), max_size=3) | st.none(),
        "data_offsets": st.lists(st.integers(-2, 2**70) | st.none(), max_size=3) | st.integers(),
    },
)


@given(header=st.dictionaries(st.text(max_size=5), ENTRY | st.none() | st.integers(), max_size=3), data=st.binary())
def test_any_header_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.safetensors"
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    try:
        found: list[Tensor] = read_header(path)
    except UsageError as error:
        assert "no whole safetensors file" in str(error)
    else:
        assert sum(tensor.bytes for tensor in found) == len(data)


def test_the_tiny_model_is_described_whole() -> None:
    model = SHARED / "vllm-cpu" / "tiny-qwen35"
    if not model.is_dir():
        pytest.skip("the shared folder is not here")
    manifest = pin(model)
    assert manifest.missing == {} and manifest.weights is not None
    assert manifest.weights.total("embedding") == 686 * 128 * 2
    assert set(manifest.weights.bytes_by_role) == {"embedding", "layers", "mtp"}
    shape = manifest.architecture
    assert (shape.layers, shape.full_attention_layers, shape.linear_attention_layers) == (4, 1, 3)
    assert list(list_files(model).files) == [file.name for file in manifest.files]
