"""``bench model``, the manifest of a campaign, and the projection that ``bench show`` prints beside it."""

import json
from pathlib import Path

import pytest

from harness.evidence.schema import ModelFacts
from harness.evidence.verify import verify
from harness.host.model_files import pin
from tests.bench import Done, Typed, bench, campaign_of, evidence_of, strict, write_launcher
from tests.model_dirs import CONFIG, write_model
from tests.recorded import campaign

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_model(tmp_path / "weights")


def test_pin_then_check_then_a_changed_byte(weights: Path, tmp_path: Path) -> None:
    done = bench("model", "pin", "weights", "-o", "m.json", "--repository", "o/n", "--revision", "r", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    manifest = json.loads((tmp_path / "m.json").read_text())
    assert (manifest["schema"], manifest["repository"], manifest["revision"]) == ("b70-bench.model/1", "o/n", "r")
    size = sum(path.stat().st_size for path in weights.iterdir()) / 1000
    assert f"m.json: 2 files, {size:.2f} kB, sha256 {manifest['sha256']}" in done.out
    assert "next: bench model check weights m.json" in done.out
    same = bench("model", "check", "weights", "m.json", cwd=tmp_path)
    assert (same.code, same.err) == (0, "")
    assert same.out == f"weights is what m.json says: 2 files, {size:.2f} kB, sha256 {manifest['sha256']}\n"
    with (weights / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    other = bench("model", "check", "weights", "m.json", cwd=tmp_path)
    assert (other.code, other.err) == (1, "")
    first, second = other.out.splitlines()
    assert first == "weights isn't what m.json says:"
    assert second.startswith("- model.safetensors has other content: sha256 ")
    told = json.loads(bench("model", "check", "weights", "m.json", "--json", cwd=tmp_path).out)
    assert not told["ok"] and len(told["problems"]) == 1


def test_pin_as_json_writes_nothing_unless_told(typed: Typed, weights: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    printed = typed("model", "pin", weights, "--json")
    assert json.loads(printed.out) == pin(weights).as_json()
    assert sorted(tmp_path.iterdir()) == before
    assert typed("model", "pin", weights).code == 0
    assert json.loads((tmp_path / "weights.model.json").read_text()) == pin(weights).as_json()


def test_what_can_not_be_pinned_is_one_sentence(typed: Typed, weights: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        done: Done = typed("model", "pin", *words)
        assert (done.code, done.out) == (64, "")
        return done.sentence

    (tmp_path / "there.json").write_text("")
    assert refused("weights", "-o", "there.json").startswith("there.json exists already")
    assert refused("weights", "-o", "weights/m.json").startswith("m.json would stand inside the directory")
    assert refused("weights", "-o", "no/m.json").startswith("no is no directory")
    assert refused("gone").startswith("model directory gone doesn't exist")
    (weights / "x").symlink_to("nowhere")
    assert refused("weights") == "model file x is a dangling link; download the file or remove the link"
    assert not (tmp_path / "weights.model.json").exists()


def test_a_campaign_says_which_manifest_its_model_was_checked_against(weights: Path, tmp_path: Path) -> None:
    assert bench("model", "pin", "weights", "-o", "m.json", "--repository", "o/n", cwd=tmp_path).code == 0
    launcher = write_launcher(tmp_path)
    words = ("--model-dir", weights, "--model-manifest", "m.json")
    done = strict(tmp_path, launcher, *words)
    assert (done.code in (0, 1), done.err) == (True, "")  # 1 on a machine too busy for the client's gate
    directory = campaign_of(tmp_path)
    model = evidence_of(directory)["start"]["model"]
    loaded = json.loads((tmp_path / "m.json").read_text())
    assert model["sha256"] == loaded["sha256"] and model["files"] == loaded["files"]
    assert (model["repository"], len(model["manifest_sha256"])) == ("o/n", 64)
    assert verify(directory).ok
    shown = bench("show", directory, "--manifest", "m.json", cwd=tmp_path)
    assert shown.code == done.code and "no projection: the memory bandwidth of this host isn't known" in shown.out
    # The same directory with one byte changed starts no server.
    with (weights / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    refused = strict(tmp_path, launcher, *words)
    assert refused.code == 64
    assert refused.sentence.startswith("model directory weights isn't what m.json says: model.safetensors has other")
    assert campaign_of(tmp_path) == directory


def test_a_launcher_can_name_the_manifest(weights: Path, tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path)
    (tmp_path / "m.json").write_text(json.dumps(pin(weights, revision="there").as_json()))
    text = launcher.read_text().replace("[model]\n", '[model]\nmanifest = "m.json"\nrevision = "here"\n')
    launcher.write_text(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = strict(elsewhere, launcher, "--model-dir", weights)
    assert other.code == 64
    assert other.sentence.startswith("model manifest m.json is of revision there, launcher fast serves here")
    launcher.write_text(text.replace('revision = "here"\n', ""))
    (weights / "extra.txt").write_text("x")
    extra = strict(elsewhere, launcher, "--model-dir", weights)
    assert extra.code == 64
    assert extra.sentence.startswith("model directory weights isn't what m.json says: extra.txt is not in the manifest")


def test_a_manifest_without_its_directory_is_refused(tmp_path: Path) -> None:
    done = strict(tmp_path, write_launcher(tmp_path), "--model-manifest", "m.json")
    assert (done.code, done.sentence.split(";")[0]) == (64, "--model-manifest says what --model-dir must hold")


def test_evidence_from_before_manifests_keeps_its_bytes() -> None:
    recorded = evidence_of(campaign("tiny"))["start"]["model"]
    assert "manifest_sha256" not in recorded
    assert ModelFacts.model_validate(recorded).model_dump(mode="json", by_alias=True) == recorded
    checked = ModelFacts.model_validate({**recorded, "manifest_sha256": "a" * 64})
    assert checked.model_dump(mode="json")["manifest_sha256"] == "a" * 64
    result = verify(campaign("tiny"))
    assert result.ok, result.problems


def test_show_prints_the_projection_under_the_numbers(typed: Typed, tmp_path: Path) -> None:
    model = SHARED / "vllm-cpu" / "tiny-qwen35"
    if not model.is_dir():
        pytest.skip("the shared folder is not here")
    (tmp_path / "m.json").write_text(json.dumps(pin(model).as_json()))
    done = typed("show", campaign("tiny"), "--manifest", "m.json", "--bandwidth", "20")
    assert (done.code, done.err) == (0, "")
    numbers, projected = done.out.split("ceiling of memory bandwidth: projected, not measured")
    assert "ceiling" not in numbers and "burst-exact" in numbers
    assert "20 GB/s a card, as given" in projected and "mtp3" in projected
    unknown = typed("show", campaign("tiny"), "--manifest", "m.json")
    assert unknown.out == numbers + (
        "no projection: the memory bandwidth of this host isn't known, and there is no default; give --bandwidth GB/s\n"
    )
    plain = typed("show", campaign("tiny"))
    assert plain.out == numbers


def test_show_refuses_half_a_projection(typed: Typed, weights: Path, tmp_path: Path) -> None:
    alone = typed("show", campaign("tiny"), "--bandwidth", "20")
    assert (alone.code, alone.sentence.split(";")[0]) == (
        64,
        "--bandwidth is for a projection, which needs --manifest",
    )
    (tmp_path / "m.json").write_text(json.dumps(pin(weights).as_json()))
    zero = typed("show", campaign("tiny"), "--manifest", "m.json", "--bandwidth", "0")
    assert zero.code == 64 and zero.sentence.startswith("--bandwidth is in GB/s of one card")
    other = typed("show", campaign("tiny"), "--manifest", "m.json", "--bandwidth", "20")
    assert other.code == 0 and "no projection: the manifest is of other files" in other.out


def test_the_schema_of_a_manifest_is_printed(typed: Typed, tmp_path: Path) -> None:
    schema = json.loads(typed("schema", "model").out)
    assert "sha256" in schema["properties"] and CONFIG["model_type"] not in json.dumps(schema)
