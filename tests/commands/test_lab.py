"""``bench import`` and ``bench export`` as a user calls them, and verify and show of what was imported."""

import json
from pathlib import Path

from tests.bench import bench
from tests.publish.labs import LAB, campaign_root, lab_file, write
from tests.recorded import campaign


def test_import_verify_show(tmp_path: Path) -> None:
    campaign_root(tmp_path / "root")
    done = bench("import", "root", "-o", "in", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "48 rows re-derived" in done.out
    assert "G3 12/12 (mtp3-b vs mtp0-a, re-derived)" in done.out
    verified = bench("verify", "in", cwd=tmp_path)
    assert verified.code == 0 and verified.out.startswith("in verifies: 12 source files by sha256")
    shown = bench("show", "in", cwd=tmp_path)
    assert shown.code == 0 and "mtp3-a" in shown.out
    told = json.loads(bench("verify", "in", "--json", cwd=tmp_path).out)
    assert told == {"ok": True, "problems": [], "status": "imported", "files": 12}
    (tmp_path / "in" / "sources" / "mtp0-a" / "strict" / "canaries.json").write_text("{}")
    broken = bench("verify", "in", cwd=tmp_path)
    assert broken.code == 1
    assert "sources/mtp0-a/strict/canaries.json isn't the file that was imported" in broken.out.splitlines()[0]
    refused = bench("show", "in", cwd=tmp_path)
    assert refused.code == 1 and refused.out == "" and "isn't the file that was imported" in refused.sentence


def test_the_labs_folder_shows_null_and_stale_fields_by_name(tmp_path: Path) -> None:
    lab_file("README.md")
    done = bench("import", LAB, "-o", "in", "--asked", "VLLM_XPU_FP8_BLOCK_W8A16=0", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    lines = [line.strip() for line in done.out.splitlines()]
    for start in (
        "null fields of qwen35-9b-w4a16-20260912-r304-strict-result.json:",
        "compilation_config: null",
        "runtime_env.QUANTIZATION: null",
        "stale fields of qwen35-9b-w4a16-20260912-r304-strict-result.json:",
        "runtime_env.VLLM_XPU_FP8_BLOCK_W8A16: is 1",
        "class code: 111.0183483740926 tokens/s re-derived",
        "container-inspect.extract.json: environment variable VLLM_XPU_FP8_BLOCK_W8A16 was asked as '0' and runs",
        "container-inspect.extract.json: the memory limit is 12 GiB and memory+swap 20 GiB: refused",
        "README.md: not JSON, left out",
    ):
        assert any(line.startswith(start) for line in lines), start
    data = json.loads(bench("import", LAB, "-o", "in2", "--json", cwd=tmp_path).out)
    assert len(data["imports"]) == 8 and data["left_out"] == {"README.md": "not JSON, left out"}


def test_import_refuses_in_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"a": 1e999}')
    write(tmp_path / "other.json", {"hello": [1]})
    for words, why in (
        (("bad.json",), "too large a number"),
        (("other.json",), "no format that bench knows"),
        (("bad.json", "--asked", "nonsense"), "too large a number"),
    ):
        done = bench("import", *words, "-o", "in", cwd=tmp_path)
        assert done.code == 64 and why in done.sentence
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".cache")) == [
        "bad.json",
        "other.json",
    ]
    campaign_root(tmp_path / "root")
    assert "is no NAME=VALUE" in bench("import", "root", "-o", "in", "--asked", "x", cwd=tmp_path).sentence


def test_export_and_import_again(tmp_path: Path) -> None:
    done = bench("export", campaign("tiny"), "-o", "out", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "written: out/localmaxxing.json" in done.out and "next: bench import out" in done.out
    assert "note: localmaxxing: hfId, quantization unknown" in done.out
    again = bench("import", "out", "-o", "in", cwd=tmp_path)
    assert again.code == 0 and (tmp_path / "in" / "result" / "evidence.json").is_file()
    assert "attestation.json: JSON of no format that bench knows, left out" in again.out


def test_export_refuses_what_may_not_be_published(tmp_path: Path) -> None:
    done = bench("export", campaign("ties"), "--format", "package", "-o", "p.json", cwd=tmp_path)
    assert done.code == 1 and done.out.startswith("refused: package: a gate failed: G3 of mtp3-a vs mtp0-a")
    assert not (tmp_path / "p.json").exists()
    told = json.loads(bench("export", campaign("ties"), "-o", "all", "--json", cwd=tmp_path).out)
    assert told["refused"].keys() == {"attestation", "package", "localmaxxing"} and len(told["written"]) == 5
    wrong = bench("export", campaign("ties"), "--format", "poem", "-o", "p.json", cwd=tmp_path)
    assert wrong.code == 64 and "there is no format 'poem'" in wrong.sentence
