"""``bench report`` as a process: what it writes, what it refuses, and what it leaves behind when it fails."""

import json
from pathlib import Path

import pytest

from tests.bench import bench
from tests.publish.pages import stored, taken_apart
from tests.recorded import campaign, copy


def files(folder: Path) -> list[str]:
    """What lies in a folder that is also the home, where Matplotlib keeps its list of fonts."""
    return sorted(path.name for path in folder.iterdir() if path.name not in (".cache", ".config"))


def test_one_file_is_written_and_the_next_command_named(tmp_path: Path) -> None:
    done = bench("report", campaign("tiny"), "-o", "page.html", "--title", "A <b>title</b>", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert files(tmp_path) == ["page.html"]
    lines = done.out.splitlines()
    assert lines[0].startswith("page.html: ") and lines[0].endswith(" KiB, one file that needs no network")
    assert lines[1] == f"- {stored('tiny')['campaign_id']}: passed, 275.32 tokens/s"
    assert lines[2] == f"next: bench promote --family FILE {campaign('tiny')}"
    html = (tmp_path / "page.html").read_text()
    assert "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>" in html
    center = next(figure for figure in taken_apart(html).figures if figure.field == "pairs.mtp3.center")
    assert center.value == str(stored("tiny")["pairs"][1]["center"])


def test_an_older_page_is_replaced_and_json_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    done = bench("report", campaign("ladder3ties"), "--out", "page.html", "--json", cwd=tmp_path)
    said = json.loads(done.out)
    assert done.code == 0 and said["page"] == "page.html"
    assert said["bytes"] == (tmp_path / "page.html").stat().st_size > 50_000
    name = stored("ladder3ties")["campaign_id"]
    assert said["campaigns"] == [{"id": name, "kind": "ladder", "status": "withheld"}]
    assert said["with_a_number_to_quote"] == []


def test_evidence_that_does_not_verify_leaves_the_old_page_and_nothing_else(tmp_path: Path) -> None:
    spoiled = copy("ladder0", tmp_path)
    text = (spoiled / "evidence.json").read_text()
    (spoiled / "evidence.json").write_text(text.replace('"tok_s": 808.6', '"tok_s": 908.6', 1))
    (tmp_path / "page.html").write_text("old")
    done = bench("report", spoiled, "-o", "page.html", cwd=tmp_path)
    assert done.code == 1 and done.out == ""
    assert done.sentence.startswith("ladder0 does not verify: evidence.json isn't the file that was recorded")
    assert (tmp_path / "page.html").read_text() == "old"
    assert files(tmp_path) == ["ladder0", "page.html"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["gone", "-o", "no/where/page.html"],
            "no/where/page.html can't be written (No such file or directory); choose",
        ),
        (["gone", "-o", "."], ". is a directory; give the file to write with --out, for example page.html"),
        (["gone", "-o", "page.html"], "gone is not a directory; give the directory of a campaign"),
        (
            ["gone", "-o", "gone/page.html"],
            "gone/page.html would lie inside gone, whose files are sealed; choose another",
        ),
        (["gone", "-o", "page.html", "--bandwidth", "608"], "--bandwidth is for the projection; add --manifest FILE"),
        (["gone", "-o", "page.html", "--manifest", "no.json"], "no model manifest named 'no.json'"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_64(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = bench("report", *words, cwd=tmp_path)
    assert (done.code, done.out) == (64, "")
    assert done.sentence.startswith(sentence), done.sentence
    assert files(tmp_path) == []


def test_needs_a_campaign_and_a_page(tmp_path: Path) -> None:
    assert bench("report", "-o", "page.html", cwd=tmp_path).code == 64
    assert bench("report", "gone", cwd=tmp_path).code == 64
