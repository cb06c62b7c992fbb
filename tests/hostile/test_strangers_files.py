"""Every file that a user names and a stranger may have written: one sentence that names it, exit code 64, in bounds.

Each place where a file is read × each way in which a file can be wrong; the command runs as a user types it.
"""

import gc
import json
import os
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.strangers import MAX_DEPTH, parse_json, read_given, read_toml
from tests import recorded
from tests.bench import Done, Typed, write_launcher
from tests.hostile.given import (
    EVERY,
    JSON,
    TOML,
    Setup,
    config,
    model_dir,
    site,
    text,
)

SECONDS = 20.0
"""For any of them; the machine may be busy"""
GROWTH = 1 << 30
"""Bytes of memory that reading one may take at most"""


def bounded(typed: Typed, words: list[str | Path]) -> Done:
    """The command, which must end soon and take no memory to speak of."""
    gc.collect()
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    done = typed(*words)
    assert time.monotonic() - begun < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH
    return done


def refused(typed: Typed, setup: Setup, folder: Path, spoil: Callable[[Path], None], code: int = 64) -> str:
    path, words = setup(folder)
    path.unlink(missing_ok=True)
    spoil(path)
    done = bounded(typed, words)
    assert done.code == code, done
    assert path.name in done.sentence, done.sentence
    assert len(done.sentence) < 600
    return done.sentence


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


def folder_instead(path: Path) -> None:
    path.mkdir()


def huge(path: Path) -> None:
    """A sparse file: nobody has to read it to know."""
    with path.open("wb") as file:
        file.truncate(1 << 34)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


@pytest.mark.parametrize("spoil", [fifo, device, loop, folder_instead, huge, dangling], ids=lambda one: one.__name__)
@pytest.mark.parametrize("place", EVERY)
def test_what_is_no_file_of_a_sane_size(
    place: str, spoil: Callable[[Path], None], typed: Typed, tmp_path: Path
) -> None:
    if place == "index" and spoil is not huge:
        pytest.skip("a listing of the directory refuses it, see tests/host/test_model_files.py")
    if place == "published result" and spoil is folder_instead:
        pytest.skip("a directory of published files may be given")
    path, words = EVERY[place](tmp_path)
    path.unlink(missing_ok=True)
    spoil(path)
    done = bounded(typed, words)
    assert done.code == 64, done
    assert path.name in done.sentence or path.parent.name in done.sentence, done.sentence


BYTES = {
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "latin-1": b'{"a": "caf\xe9"}',
    "nul bytes": b"\0" * 100,
    "empty": b"",
    "binary": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("what", BYTES)
@pytest.mark.parametrize("place", [name for name in EVERY if name not in ("index", "text")])
def test_wrong_encodings(place: str, what: str, typed: Typed, tmp_path: Path) -> None:
    if place == "config.json" and what == "utf-16":
        pytest.skip("json reads UTF-16, and so does whoever loads the model")
    refused(typed, EVERY[place], tmp_path, lambda path: void(path.write_bytes(BYTES[what])))


def void(_result: object) -> None:
    """A write returns a count that nobody wants."""


def test_texts_of_another_encoding(typed: Typed, tmp_path: Path) -> None:
    said = refused(typed, text, tmp_path, lambda path: void(path.write_bytes(b"caf\xe9 " * 10_000)))
    assert "is not UTF-8 (byte 3)" in said


BAD_JSON = {
    "deep": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "deeper than levels": "[" * (MAX_DEPTH + 50) + "]" * (MAX_DEPTH + 50),
    "digits": '{"version": ' + "9" * 100_000 + "}",
    "NaN": '{"version": NaN}',
    "infinity": '{"version": -Infinity}',
    "beyond a double": '{"version": 1e999}',
    "key twice": '{"schema": "x", "schema": "y"}',
    "half a character": '{"suite_id": "\\ud800", "schema": "\\ud800"}',
    "a list": "[1, 2]",
    "a word": '"text"',
    "other fields": '{"colour": "red"}',
    "cut": '{"suite_id": "x", ',
    "two documents": "{}{}",
}


@pytest.mark.parametrize("what", BAD_JSON)
@pytest.mark.parametrize("place", JSON)
def test_json_that_is_not_strict_or_not_ours(place: str, what: str, typed: Typed, tmp_path: Path) -> None:
    refused(typed, JSON[place], tmp_path, lambda path: void(path.write_text(BAD_JSON[what])))


BAD_TOML = {
    "deep": "a = " + "[" * 50_000 + "]" * 50_000,
    "deeper than levels": "a = " + "[" * (MAX_DEPTH + 20) + "]" * (MAX_DEPTH + 20),
    "tables": "[" + ".".join(["a"] * 3000) + "]\n",
    "digits": "schema = " + "9" * 100_000,
    "key twice": "schema = 1\nschema = 1",
    "table twice": "[env]\n[env]\n",
    "other fields": 'colour = "red"',
    "not toml": "{{{",
    "nul": 'title = "a\\u0000b"',
    "date": "title = 1979-05-27",
    "large": "# " + "x" * (300 * 1024),
}


@pytest.mark.parametrize("what", BAD_TOML)
@pytest.mark.parametrize("place", TOML)
def test_toml_that_is_not_ours(place: str, what: str, typed: Typed, tmp_path: Path) -> None:
    refused(typed, TOML[place], tmp_path, lambda path: void(path.write_text(BAD_TOML[what])))


LANE_EDITS = {
    "nan limit": ("ready_s = 20", "ready_s = nan"),
    "infinite limit": ("stall_s = 10", "stall_s = inf"),
    "negative limit": ("stop_s = 5", "stop_s = -5"),
    "endless limit": ("stop_s = 5", "stop_s = 1e300"),
    "huge shape": ("max_model_len = 1024", "max_model_len = 99999999999999999999999"),
    "zero shape": ("max_num_seqs = 1\n", "max_num_seqs = 0\n"),
    "a date among settings": ("[model]", "[compilation]\nx = 1979-05-27\n[model]"),
    "nan among settings": ("[model]", "[compilation]\nx = nan\n[model]"),
    "nul in a variable": ("[model]", '[env]\nX = "a\\u0000b"\n[model]'),
    "equals sign in a name": ("[model]", '[env]\n"A=B" = "x"\n[model]'),
    "no name": ("[model]", '[env]\n"" = "x"\n[model]'),
    "nul in an argument": ("arguments = [", 'arguments = ["\\u0000", '),
    "memory beyond 64 bits": ("[model]", '[container]\nshm_size = "1g"\nmemory = 99999999999999999999\n[model]'),
    "memory in other digits": ("[model]", '[container]\nshm_size = "²g"\nmemory = "1g"\n[model]'),
}


@pytest.mark.parametrize("what", LANE_EDITS)
def test_values_of_a_launcher_that_nothing_can_use(what: str, typed: Typed, tmp_path: Path) -> None:
    old, new = LANE_EDITS[what]
    path = write_launcher(tmp_path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    done = bounded(typed, ["strict", "--mtp", "0", "--launcher", path, "--dry-run"])
    assert done.code == 64 and path.name in done.sentence, done


@pytest.mark.parametrize("name", ["", "A=B", "\\u0000"])
def test_variables_of_a_site_file_that_are_none(name: str, typed: Typed, tmp_path: Path) -> None:
    said = refused(typed, site, tmp_path, lambda path: void(path.write_text(f'[env]\n"{name}" = "x"\n')))
    assert said.startswith("site file site.toml ")


@pytest.mark.parametrize("value", ["9" * 300, "9" * 4000, "1e308", "-1", '"x"', "[1]", "{}", "true", "null", "NaN"])
@pytest.mark.parametrize("field", ["hidden_size", "vocab_size", "num_hidden_layers", "num_key_value_heads", "head_dim"])
def test_values_of_a_models_config(field: str, value: str, typed: Typed, tmp_path: Path) -> None:
    """A sentence, or a manifest that says what it doesn't know: never a traceback."""
    path, words = config(tmp_path)
    whole = {"model_type": "qwen3", "hidden_size": 8, "vocab_size": 9, "num_hidden_layers": 2, "head_dim": 4}
    whole |= {"num_attention_heads": 2, "num_key_value_heads": 1, "torch_dtype": "bfloat16"}
    path.write_text(json.dumps({**whole, field: "@"}).replace('"@"', value))
    done = bounded(typed, words)
    assert done.code in (0, 64), done
    if done.code:
        assert "config.json" in done.sentence


HEADERS = {
    "longer than the file": struct.pack("<Q", 1 << 40) + b"{}",
    "no json": struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc",
    "deep": struct.pack("<Q", 40_000) + b'{"a":' * 8_000,
    "a list": struct.pack("<Q", 2) + b"[]",
    "short": b"\x01\x02",
    "digits": struct.pack("<Q", 100_008) + b'{"a":   ' + b"9" * 99_999 + b"}",
}


@pytest.mark.parametrize("what", HEADERS)
def test_headers_of_safetensors_files(what: str, typed: Typed, tmp_path: Path) -> None:
    folder = model_dir(tmp_path)
    (folder / "model.safetensors").write_bytes(HEADERS[what])
    done = bounded(typed, ["model", "pin", folder, "-o", tmp_path / "out.json"])
    assert done.code == 64 and "model.safetensors is no whole safetensors file" in done.sentence, done


SHAPES = ["[99999999999999999999999999999999]", "[-1]", "[1.5]", '"x"', "null", "[" * 500 + "]" * 500, "[0]", "[true]"]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_tensors_of_impossible_shapes(shape: str, typed: Typed, tmp_path: Path) -> None:
    folder = model_dir(tmp_path)
    header = f'{{"x": {{"dtype": "BF16", "shape": {shape}, "data_offsets": [0, 16]}}}}'.encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)
    done = bounded(typed, ["model", "pin", folder, "-o", tmp_path / "out.json"])
    assert done.code == 64 and "model.safetensors" in done.sentence, done


@pytest.mark.parametrize("spoil", [fifo, device, loop, huge, dangling], ids=lambda one: one.__name__)
@pytest.mark.parametrize("file", ["journal.jsonl", "suite.json", "attempts/mtp0/capture.jsonl.zst", "evidence.json"])
def test_oracle_directory_of_a_stranger(file: str, spoil: Callable[[Path], None], typed: Typed, tmp_path: Path) -> None:
    oracle = recorded.copy("ladder0", tmp_path)
    (oracle / file).unlink()
    spoil(oracle / file)
    words = ["ladder", "--mtp", "3", "--oracle", oracle, "--launcher", write_launcher(tmp_path), "--dry-run"]
    done = bounded(typed, words)
    assert done.code == 64, done
    assert done.sentence.startswith(f"--oracle {oracle.name}") or "launcher" in done.sentence, done.sentence


@pytest.mark.parametrize("spoil", [fifo, device, loop, huge, folder_instead], ids=lambda one: one.__name__)
def test_directory_a_command_is_run_in(spoil: Callable[[Path], None], typed: Typed, tmp_path: Path) -> None:
    """Whether it is a checkout of this project is looked up in a file that may be anybody's."""
    spoil(tmp_path / "pyproject.toml")
    assert bounded(typed, ["catalog"]).code == 0


@pytest.mark.parametrize("spoil", [fifo, device, loop, dangling], ids=lambda one: one.__name__)
def test_seal_beside_a_campaign(spoil: Callable[[Path], None], typed: Typed, tmp_path: Path) -> None:
    key = tmp_path / "me.key"
    assert typed("seal", "--new-key", key).code == 0
    spoil(tmp_path / "seal.json")
    words = ["verify", recorded.campaign("ladder0"), "--seal", tmp_path / "seal.json", "--signed-by", f"{key}.pub"]
    done = bounded(typed, words)
    assert done.code == 1 and "seal.json" in done.out + done.err, done


@pytest.mark.parametrize("spoil", [fifo, device, huge, folder_instead, loop], ids=lambda one: one.__name__)
def test_kernel_log_of_a_stranger(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    """Unknown, never waited for and never clean."""
    from harness.host.kernel_log import read_kernel_log

    spoil(tmp_path / "kern.log")
    found = read_kernel_log(None, file=tmp_path / "kern.log")
    assert found.state == "unknown"


@pytest.mark.parametrize(
    "words",
    [
        ("report", "DIR", "-o", "LOOP"),
        ("explain", "DIR", "-o", "LOOP"),
        ("export", "DIR", "-o", "LOOP"),
        ("ties", "DIR", "-o", "LOOP"),
        ("show", "DIR", "--svg", "LOOP"),
        ("promote", "DIR", "--new", "LOOP"),
        ("import", "DIR", "-o", "LOOP"),
        ("seal", "DIR", "--key", "KEY", "-o", "LOOP"),
        ("seal", "--new-key", "LOOP"),
        ("model", "pin", "WEIGHTS", "-o", "LOOP"),
        ("model", "pin", "LOOP"),
        ("verify", "LOOP"),
        ("list", "LOOP"),
    ],
    ids=" ".join,
)
def test_links_that_lead_round_in_a_circle(words: tuple[str, ...], typed: Typed, tmp_path: Path) -> None:
    """As what is read, and as what is to be written: a link is then replaced, as every file is, and not followed."""
    loop(tmp_path / "round")
    assert typed("seal", "--new-key", tmp_path / "me.key").code == 0
    given = {"DIR": recorded.campaign("ladder0"), "LOOP": tmp_path / "round", "KEY": tmp_path / "me.key"}
    given["WEIGHTS"] = model_dir(tmp_path)
    done = bounded(typed, [given.get(word, word) for word in words])
    assert done.code in (0, 1, 2, 64), done
    assert done.code != 0 or ("LOOP" not in words[1:2] and words[:2] != ("model", "pin")) or "WEIGHTS" in words


def test_a_link_to_a_good_file_is_followed(typed: Typed, tmp_path: Path) -> None:
    """A user's own links are theirs: model directories are full of them."""
    real = write_launcher(tmp_path)
    link = tmp_path / "link.toml"
    link.symlink_to(real)
    assert typed("strict", "--mtp", "0", "--launcher", link, "--dry-run").code == 0


@pytest.mark.parametrize("place", TOML)
def test_a_byte_order_mark_is_no_fault(place: str, tmp_path: Path) -> None:
    path = tmp_path / f"{place}.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b'name = "x"\n')
    assert read_toml(path, "launcher file") == {"name": "x"}


def test_names_that_no_file_has(tmp_path: Path) -> None:
    for name in ("nul\0", "x" * 300, ""):
        with pytest.raises(UsageError, match=r"can't be read|is no regular file"):
            read_given(tmp_path / name, 10, "file")


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """The size that was told is no promise: /proc tells none at all."""
    with pytest.raises(UsageError, match="is larger than"):
        read_given(Path("/proc/self/environ"), 0, "file")
    assert read_given(Path("/proc/self/status"), 1 << 20, "file").startswith(b"Name:")


def test_strict_json_takes_what_is_json() -> None:
    def refuse(why: str) -> None:
        raise AssertionError(why)

    for value in ({}, [], "a\u2028b", 10**300, 1.5, None, [[[[[]]]]], {"a": {"b": 1}}):
        assert parse_json(json.dumps(value).encode(), refuse) == value  # type: ignore[arg-type]
