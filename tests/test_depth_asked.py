"""``bench depth`` that was asked for what can't be done, and against servers that somebody else started."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.verify import verify
from tests.bench import bench, campaign_of, evidence_of, servers_left
from tests.contexts import launcher, options, texts
from tests.simulated.rig import Sim, ready

# usage


def test_a_text_with_too_few_tokens_names_the_class_and_both_counts(tmp_path: Path) -> None:
    path = launcher(tmp_path)
    words = options("depth", tmp_path, path, 0)
    (tmp_path / "texts" / "python-code.txt").write_text("abcde " * 100)
    done = bench(*words, "--depths", "200", cwd=tmp_path)
    assert done.code == 64
    assert re.fullmatch(
        r"text python-code gives \d+ tokens on mtp0's tokenizer and 200 are needed; give more text with --texts, or "
        r"fewer --depths",
        done.sentence,
    )
    campaign = campaign_of(tmp_path)
    assert servers_left(campaign) == [] and verify(campaign).problems == []


def test_a_text_that_repeats_itself_is_refused(tmp_path: Path) -> None:
    words = options("depth", tmp_path, launcher(tmp_path), 0)
    text = tmp_path / "texts" / "structured-documents.txt"
    text.write_text(text.read_text()[:300] * 20)
    done = bench(*words, "--depths", "256", cwd=tmp_path)
    assert done.code == 64
    assert re.match(r"text structured-documents repeats itself: \d\d% of its passages", done.sentence)


def wrong_bytes(folder: Path) -> None:
    (folder / "python-code.txt").write_bytes(b"ab \xff" * 200)


def too_short(folder: Path) -> None:
    (folder / "technical-prose.txt").write_text("few words")


def gone(folder: Path) -> None:
    (folder / "structured-documents.txt").unlink()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (wrong_bytes, "text python-code.txt is not UTF-8 (byte 3); save it as UTF-8"),
        (
            too_short,
            "text technical-prose.txt has 9 bytes, so at most as many tokens, and 64 are needed; give more text with "
            "--texts, or fewer --depths",
        ),
        (
            gone,
            "text structured-documents.txt can't be read (No such file or directory); --texts names a directory with "
            "technical-prose.txt, python-code.txt, structured-documents.txt",
        ),
    ],
)
def test_a_wrong_text_is_refused_before_anything_starts(
    tmp_path: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    words = options("depth", tmp_path, launcher(tmp_path), 0)
    spoil(tmp_path / "texts")
    done = bench(*words, "--depths", "64", cwd=tmp_path)
    assert (done.code, done.sentence) == (64, sentence)
    assert not (tmp_path / "experiments").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--depths", "128,64"), "--depths 128,64 must ascend from 1 on, each once; sort the list"),
        (
            ("--depths", "400"),
            "a context of 400 tokens and 128 more don't fit into the launcher's max-model-len of 512",
        ),
    ],
)
def test_wrong_depths_are_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = bench(*options("depth", tmp_path, launcher(tmp_path), 0), *words, cwd=tmp_path)
    assert done.code == 64 and done.sentence.startswith(said)


def test_a_launcher_without_that_shape_is_refused(tmp_path: Path) -> None:
    path = launcher(tmp_path)
    path.write_text(path.read_text().partition("[shapes.depth]")[0])
    done = bench(*options("depth", tmp_path, path, 0), cwd=tmp_path)
    said = "launcher fast has no [shapes.depth] table; add one to measure depth on it"
    assert (done.code, done.sentence) == (64, said)


def test_a_dry_run_shows_both_servers_and_starts_none(tmp_path: Path) -> None:
    words = options("depth", tmp_path, launcher(tmp_path), 3)
    done = bench(*words, "--dry-run", cwd=tmp_path)
    assert done.code == 0
    assert re.findall(r"^# (\w+): MTP depth (\d)", done.out, re.MULTILINE) == [("mtp0", "0"), ("mtp3", "3")]
    assert not (tmp_path / "experiments").exists()


# attached servers


def attached(tmp_path: Path, base: Sim, drafting: Sim, *words: str) -> tuple[Any, Any]:
    urls = ["--url", f"http://127.0.0.1:{drafting.port}", "--oracle-url", f"http://127.0.0.1:{base.port}"]
    launch = ["--launcher", "attach", "--served-model-name", "simulated", *urls]
    given = ["--texts", texts(tmp_path / "texts"), "--depths", "64"]
    done = bench("depth", "--mtp", "3", *launch, *given, *words, cwd=tmp_path)
    return done, evidence_of(campaign_of(tmp_path))


def test_attached_servers_are_compared_and_never_pass(tmp_path: Path) -> None:
    size = ("--max-model-len", "33024")
    with ready(tmp_path / "a", "--depth", "0", *size) as base, ready(tmp_path / "b", "--depth", "3", *size) as drafting:
        done, evidence = attached(tmp_path, base, drafting)
    assert done.code != 0 and evidence["status"] != "passed" and evidence["withheld"]
    assert [point["exact"] for point in evidence["points"]] == [None, 3]
    assert all(f"fresh of {point['label']} failed" in point["why"] for point in evidence["points"])


def test_an_attached_server_of_another_context_is_refused(tmp_path: Path) -> None:
    with ready(tmp_path / "a", "--depth", "0") as base, ready(tmp_path / "b", "--depth", "3") as drafting:
        done, evidence = attached(tmp_path, base, drafting)
    assert (done.code, evidence["status"]) == (2, "invalid")
    assert evidence["reasons"][0].startswith(
        "mtp0: the server's max_model_len is 1024, the prompts were planned for 33"
    )


def test_an_attached_server_that_drafts_needs_its_oracle(tmp_path: Path) -> None:
    words = ["--launcher", "attach", "--url", "http://127.0.0.1:9", "--texts", texts(tmp_path / "texts")]
    done = bench("depth", "--mtp", "3", *words, "--depths", "64", cwd=tmp_path)
    said = "an attached server of MTP depth 3 needs its MTP0 oracle to compare with; give --oracle-url"
    assert (done.code, done.sentence) == (64, said)
