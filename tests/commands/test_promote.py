"""``bench promote`` as it is typed: exit codes, one sentence for what is wrong, and a file left alone."""

import json
import shutil
from pathlib import Path

import pytest

from harness.data import find
from tests.bench import Typed, bench
from tests.recorded import copy


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return copy("tiny", tmp_path)


def test_new_then_check_then_an_edit_by_hand(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    done = typed("promote", "--new", "f.json", tiny)
    assert (done.code, done.err) == (0, "") and "written from the template, with 2 measured" in done.out
    assert "bench promote --family f.json" in done.out and "--check" in done.out
    path = tmp_path / "f.json"
    before = path.read_bytes()
    done = typed("promote", "--family", "f.json", "tiny", "--check")
    assert done.code == 0 and done.out.startswith("f.json is what the evidence gives: 2 configurations re-derived")
    assert path.read_bytes() == before

    text = before.decode()
    rate = json.loads(text)["run_measurements"][1]["metrics"]["decode_tok_s"][1]
    path.write_text(text.replace(f"     {rate}\n", "     999.999\n", 1), "utf-8")
    edited = path.read_bytes()
    done = typed("promote", "--family", "f.json", "tiny", "--check")
    name = json.loads(text)["run_measurements"][1]["id"]
    line = f"  run_measurements[{name}].metrics.decode_tok_s[1]: 999.999 in the file, {rate} by the evidence"
    assert done.code == 1 and line in done.out and "to bring it up to date: bench promote" in done.out
    assert path.read_bytes() == edited, "--check changes nothing"
    done = typed("promote", "--family", "f.json", "tiny")
    assert done.code == 0 and "is now what the evidence gives" in done.out and line in done.out
    assert path.read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["f.json", "tiny"]


def test_a_typed_entry_beside_a_measured_one_is_refused(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    typed("promote", "--new", "f.json", tiny)
    path = tmp_path / "f.json"
    family = json.loads(path.read_bytes())
    made_up = json.loads(json.dumps(family["run_measurements"][1]))
    made_up |= {"id": "made-up", "metrics": made_up["metrics"] | {"decode_tok_s": [999.0, 999.0]}}
    family["run_measurements"].append(made_up)
    path.write_text(json.dumps(family, indent=1), "utf-8")
    before = path.read_bytes()
    for words in (["--check"], []):
        done = typed("promote", "--family", "f.json", tiny, *words)
        assert done.code == 1 and "run_measurements[made-up] is a second entry" in done.sentence
        assert path.read_bytes() == before


def test_a_file_keeps_its_mode(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    typed("promote", "--new", "f.json", tiny)
    path = tmp_path / "f.json"
    for mode in (0o600, 0o664):
        path.write_text(path.read_text("utf-8").replace('"G1 12/12"', '"G1 13/12"'), "utf-8")
        path.chmod(mode)
        assert "is now what the evidence gives" in typed("promote", "--family", "f.json", "tiny").out
        assert path.stat().st_mode & 0o777 == mode


def test_json_for_a_machine(typed: Typed, tiny: Path) -> None:
    made = json.loads(typed("promote", "--new", "f.json", tiny, "--json").out)
    assert (made["created"], made["written"], made["changes"]) == (True, True, [])
    path = Path("f.json")
    path.write_text(
        path.read_text("utf-8").replace('"quality_scope": "G1 12/12"', '"quality_scope": "G1 13/12"'), "utf-8"
    )
    done = typed("promote", "--family", "f.json", "tiny", "--check", "--json")
    said = json.loads(done.out)
    assert done.code == 1 and (said["ok"], said["written"]) == (False, False)
    (quality,) = [item for item in said["changes"] if item["field"].endswith(".quality_scope")]
    assert (quality["file"], quality["evidence"]) == ("G1 13/12", "G1 12/12")
    assert said["grades"][0]["rule"] == "B" and "summary" in said["kept"] and "3 decimals" in said["rounding"]


def test_evidence_that_does_not_verify_is_refused(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    typed("promote", "--new", "f.json", tiny)
    before = (tmp_path / "f.json").read_bytes()
    evidence = tiny / "evidence.json"
    evidence.write_text(evidence.read_text("utf-8").replace('"passed": true', '"passed": false', 1), "utf-8")
    done = typed("promote", "--family", "f.json", "tiny")
    assert done.code == 1 and "tiny does not verify" in done.err and done.err.count("\n") == 1
    assert (tmp_path / "f.json").read_bytes() == before


@pytest.mark.parametrize("name", ["ties", "ladder3ties"])
def test_a_failed_gate_is_refused(typed: Typed, tmp_path: Path, tiny: Path, name: str) -> None:
    copy(name, tmp_path)
    done = typed("promote", "--new", "f.json", tiny, name)
    assert (done.code, done.out) == (1, "") and f"{name}: a gate failed" in done.err and "--rejected" in done.err
    assert not (tmp_path / "f.json").exists()


def test_a_rejected_cell_with_its_counts(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    copy("ties", tmp_path)
    assert typed("promote", "--new", "f.json", tiny, "--rejected", "ties").code == 0
    labels = [
        cell["label"] for cell in json.loads(Path("f.json").read_text("utf-8"))["coverage_views"][0]["cells"].values()
    ]
    assert labels[-1] == "rejected: not equal to the MTP0 oracle (G3 2/12)"
    assert typed("promote", "--family", "f.json", "tiny", "--rejected", "ties", "--check").code == 0
    done = typed("promote", "--family", "f.json", "--rejected", "tiny")
    assert done.code == 64 and "tiny passed its gates" in done.err


def test_paths_are_those_of_the_repository_and_never_the_machine_s(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    repository = tmp_path / "repo"
    (repository / ".git").mkdir(parents=True)
    (repository / "families").mkdir()
    (repository / "experiments").mkdir()
    shutil.move(tiny, repository / "experiments" / "tiny")
    typed("promote", "--new", "repo/families/f.json", "repo/experiments/tiny")
    text = (repository / "families" / "f.json").read_text("utf-8")
    assert json.loads(text)["run_measurements"][0]["evidence"] == "experiments/tiny/evidence.json"
    (tmp_path / "elsewhere").mkdir()
    typed("promote", "--new", "elsewhere/f.json", "repo/experiments/tiny")
    text = (tmp_path / "elsewhere" / "f.json").read_text("utf-8")
    assert json.loads(text)["run_measurements"][0]["evidence"] == "tiny/evidence.json" and str(tmp_path) not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny"], "give either --family FILE"),
        (["--family", "a.json", "--new", "b.json", "tiny"], "give either --family FILE"),
        (["--new", "new.json", "--check", "tiny"], "leave --check out with --new"),
        (["--family", "a.json"], "there is no evidence to promote"),
        (["--family", "none.json", "tiny"], "none.json is not a file"),
        (["--new", "b.json", "nowhere"], "nowhere is not a directory"),
        (["--new", "a.json", "tiny"], "a.json exists already"),
        (["--new", "no/where.json", "tiny"], "the folder of where.json isn't there"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(typed: Typed, tiny: Path, words: list[str], said: str) -> None:
    Path("a.json").write_text("{}", "utf-8")
    done = typed("promote", *words)
    assert (done.code, done.out) == (64, "") and said in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ("[1]", "has format None"),
        ('{"format": "another"}', "has format 'another'"),
        ('{"format": "neural-download-model-family-v1"}', "'id': field required"),
        ("[" * 100_000, "nests too deeply"),
        (" " * (9 << 20), "is larger than 8 MiB"),
    ],
)
def test_a_stranger_s_file_is_untouched(typed: Typed, tiny: Path, content: str, said: str) -> None:
    path = Path("a.json")
    path.write_text(content, "utf-8")
    done = typed("promote", "--family", "a.json", tiny)
    assert (done.code, done.out) == (64, "") and said in done.err and done.err.count("\n") == 1
    assert path.read_text("utf-8") == content


def test_a_family_of_another_model_is_untouched(typed: Typed, tmp_path: Path, tiny: Path) -> None:
    typed("promote", "--new", "f.json", tiny)
    path = tmp_path / "f.json"
    path.write_text(path.read_text("utf-8").replace('"model_sha256": "', '"model_sha256": "00'), "utf-8")
    before = path.read_bytes()
    done = typed("promote", "--family", "f.json", "tiny")
    assert done.code == 64 and "none of the family's weight_revisions" in done.err and path.read_bytes() == before


def test_the_template_is_found_from_anywhere(tmp_path: Path) -> None:
    assert json.loads(find("families", "template", ".json").read_text("utf-8"))["run_measurements"] == []
    copy("tiny", tmp_path)
    assert bench("promote", "--new", "f.json", "tiny", cwd=tmp_path).code == 0


def test_help_says_what_it_does(tmp_path: Path) -> None:
    done = bench("promote", "--help", cwd=tmp_path)
    assert done.code == 0 and all(word in done.out for word in ("--family", "--new", "--rejected", "--check", "--json"))
