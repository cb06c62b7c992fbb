"""The command line as a process: exit codes, one sentence for what is wrong, exact output for what is small."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from harness import __version__
from tests.bench import Done, Typed, bench, campaign_of, strict, write_launcher
from tests.test_plan import BASE_ENV, CACHES, DRAFT_ENV, SITE, variables

B70 = ("--launcher", "qwen35-4b-w4a16")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def site_file(folder: Path, env: dict[str, str]) -> Path:
    path = folder / "site.toml"
    path.write_text("[env]\n" + "".join(f'{name} = "{value}"\n' for name, value in env.items()))
    return path


def test_version(tmp_path: Path) -> None:
    assert bench("--version", cwd=tmp_path) == Done(0, f"b70-bench {__version__}\n", "")


def test_help_lists_the_commands(tmp_path: Path) -> None:
    asked, needed = bench("--help", cwd=tmp_path), bench(cwd=tmp_path)
    assert (asked.code, asked.err, needed.code, needed.out) == (0, "", 64, "")
    for text in (asked.out, needed.err):
        assert text.startswith("Usage: bench [OPTIONS] COMMAND [ARGS]...")
        for command in ("strict", "verify", "schema", "list", "catalog"):
            assert f"  {command} " in text
    done = bench("strict", "--help", cwd=tmp_path)
    assert done.code == 0 and "--resume" in done.out and "--dry-run" in done.out


def test_list(tmp_path: Path) -> None:
    done = bench("catalog", cwd=tmp_path)
    assert done.code == 0
    assert done.out.splitlines()[:2] == [
        "launchers: attach, qwen35-4b-w4a16, simulated, tiny-cpu, tiny-cpu-compiled",
        "images: r276, r293, r294b, r304, vllm-cpu",
    ]
    told = json.loads(bench("catalog", "--json", cwd=tmp_path).out)
    assert "strict-v1" in told["suites"] and "tie" in told["faults"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--launcher", "nope"], "no launcher named 'nope': give the path of a .toml file or one of attach, qwen35"),
        (["--launcher", "./no.toml"], "launcher path './no.toml' does not exist: give a .toml file or one of"),
        ([*B70, "--image", "r999"], "no image named 'r999': give the path of a .toml file or one of r276, r293"),
        (["--launcher", "simulated", "--suite", "nope"], "no suite named 'nope': give the path of a .json file or one"),
        (["--launcher", "simulated", "--engine", "warp"], "there is no engine 'warp'; use one of docker, process, att"),
        (["--launcher", "simulated", "--engine", "docker"], "launcher simulated has no engine docker; use one of sim"),
        ([*B70, "--mtp", "9"], "launcher qwen35-4b-w4a16 has no MTP depth 9; use one of 0, 1, 2, 3, 4, 5, 6"),
        ([*B70, "--tp", "4"], "launcher qwen35-4b-w4a16 has no TP4; use one of 1, 2"),
        ([*B70, "--fault", "tie:3"], "--fault is for the simulated server; leave it out, or use --launcher simulated"),
        (["--launcher", "simulated", "--card", "0"], "launcher simulated has no cards to choose; leave --card out"),
        (
            ["--launcher", "simulated", "--classpad"],
            "launcher simulated starts no image, so --classpad can't be proven",
        ),
        (
            ["--launcher", "simulated", "--url", "http://x"],
            "--url and --oracle-url go with --engine attach; add it, or",
        ),
        (["--launcher", "attach"], "the attach engine measures a server that runs already; give its --url"),
        (["--launcher", "simulated", "--resume", "nowhere"], "nowhere is no campaign directory (it has no journal.jso"),
        (["--launcher", "simulated", "--site", "no.toml"], "site file no.toml can't be read ("),
        (["--launcher", "simulated", "--api-key-env", "NO_SUCH"], "the variable NO_SUCH is empty; put the API key in"),
        ([*B70], "launcher qwen35-4b-w4a16 serves a model from a directory; give it with --model-dir"),
        ([*B70, "--model-dir", "gone", "--engine", "process"], "model directory gone doesn't exist; give the director"),
    ],
)
def test_wrong_request_is_one_sentence_and_64(typed: Typed, tmp_path: Path, words: list[str], sentence: str) -> None:
    done = typed("strict", *words)
    assert (done.code, done.out) == (64, "")
    assert done.sentence.startswith(sentence), done.sentence
    assert list(tmp_path.iterdir()) == [], "nothing was started or made"


def test_wrong_option_is_64(typed: Typed) -> None:
    for words in (["strict", "--tpyo"], ["nope"], ["strict", "--mtp", "x"], ["strict", "--port", "0"], ["verify"]):
        done = typed(*words)
        assert done.code == 64, words
        assert done.out == "" and "Error" in done.err


def test_unknown_fault_lists_the_known(typed: Typed, tmp_path: Path) -> None:
    done = typed("strict", "--launcher", "simulated", "--fault", "nope")
    assert done.code == 64
    assert done.err.startswith("bench: --fault nope: there is no fault 'nope'; use one of\n")


def test_classpad_on_an_image_without_it_names_the_one_that_has_it(typed: Typed, tmp_path: Path, model: Path) -> None:
    done = typed("strict", *B70, "--image", "r276", "--classpad", "--model-dir", model)
    assert done.code == 64
    assert done.sentence == "image R276 has no classpad, which --classpad needs; use --image r293"


def test_tp2_without_the_site_file_names_the_variables(typed: Typed, tmp_path: Path, model: Path) -> None:
    done = typed("strict", *B70, "--tp", "2", "--model-dir", model, "--dry-run")
    assert done.code == 64
    for name in SITE:
        assert name in done.sentence
    assert done.sentence.endswith("write them into a [env] table of a TOML file and give it with --site")


def test_device_selector_in_the_site_file(typed: Typed, tmp_path: Path, model: Path) -> None:
    site = site_file(tmp_path, {"ONEAPI_DEVICE_SELECTOR": "level_zero:1"})
    done = typed("strict", *B70, "--site", site, "--model-dir", model, "--dry-run")
    assert done.code == 64
    assert done.sentence.startswith("ONEAPI_DEVICE_SELECTOR and ZE_AFFINITY_MASK are applied one after the other")


@pytest.mark.parametrize("text", ["x = 1", "[env]\na = 1\n", "[env]\n[more]\n", "= ", ""])
def test_odd_site_file(typed: Typed, tmp_path: Path, text: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    done = typed("strict", "--launcher", "simulated", "--site", "site.toml")
    assert done.code == 64 and done.sentence.startswith("site file site.toml ")


def test_swap_in_a_launcher_file(typed: Typed, tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path)
    container = '\n[container]\nshm_size = "8g"\nmemory = "12g"\nmemory_swap = "20g"\n'
    launcher.write_text(launcher.read_text() + container)
    done = strict(tmp_path, launcher)
    assert done.code == 64
    assert "container.memory_swap (21474836480) must equal container.memory (12884901888)" in done.sentence


def test_model_directories_that_are_none(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = typed("strict", *B70, "--engine", "process", "--model-dir", "empty")
    assert done.code == 64
    assert done.sentence == "model directory empty has no config.json; give the directory of the weights"
    (tmp_path / "empty" / "config.json").write_text("{}")
    (tmp_path / "empty" / "model.safetensors").symlink_to("/no/where")
    done = typed("strict", *B70, "--engine", "process", "--model-dir", "empty")
    assert done.code == 64
    assert done.sentence == ("model file model.safetensors is a dangling link; download the file or remove the link")


def test_out_below_a_file_is_64(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = strict(tmp_path, write_launcher(tmp_path), "--out", "file/here")
    assert (done.code, done.out) == (64, "")
    assert "here" in done.sentence and "choose another --out" in done.sentence


def test_verify_of_no_directory_is_64(typed: Typed, tmp_path: Path) -> None:
    done = typed("verify", "nowhere")
    assert done.code == 64 and done.sentence == "nowhere is not a directory; give the directory of a campaign"
    done = typed("verify", ".")
    assert done.code == 1 and "has no journal.jsonl; give the directory of a campaign" in done.out


@pytest.mark.parametrize("what", ["evidence", "server", "launcher", "image"])
def test_schema_is_json_schema(typed: Typed, tmp_path: Path, what: str) -> None:
    done = typed("schema", what)
    assert (done.code, done.err) == (0, "")
    schema = json.loads(done.out)
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    known, seen = schema.get("$defs", {}), []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                seen.append(node["$ref"])
                assert node["$ref"].removeprefix("#/$defs/") in known
            if isinstance(node.get("properties"), dict):
                assert set(node.get("required", [])) <= set(node["properties"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)
    if what == "evidence":
        assert seen and "tokens/s" in schema["$defs"]["Row"]["properties"]["tok_s_1_100"]["description"]
        assert schema["properties"]["schema"]["const"] == "b70-bench.evidence/1"


def test_unknown_schema(typed: Typed, tmp_path: Path) -> None:
    done = typed("schema", "nope")
    assert done.code == 64 and done.sentence.startswith("there is no schema 'nope'; use one of evidence")


def test_json_lines(tmp_path: Path) -> None:
    done = strict(tmp_path, write_launcher(tmp_path), "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds[0] == "campaign" and kinds[-1] == "ended"
    assert kinds.count("row") == 24 and kinds.count("attempt") == kinds.count("attempt-ended") == 2
    assert lines[0]["servers"] == ["mtp0-a", "mtp0-b"]
    ended = lines[-1]
    assert ended["exit_code"] == done.code and ended["simulated"] is True
    assert ended["directory"] == str(campaign_of(tmp_path))
    assert [row["index"] for row in lines if row["event"] == "row"] == [*range(12), *range(12)]


def dry_run(typed: Typed, model: Path, *words: str | Path) -> list[Any]:
    done = typed("strict", *B70, "--model-dir", model, "--dry-run", "--json", *words)
    assert done.code == 0, done.err
    # Notes ("image not checked") are lines of their own; the plans come last, as one list.
    text = done.out[done.out.index("\n[\n") + 1 :] if not done.out.startswith("[") else done.out
    found = json.loads(text)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("classpad", [False, True])
@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("depth", [0, 3])
def test_dry_run_shows_the_servers_of_the_contract(
    typed: Typed, tmp_path: Path, model: Path, depth: int, tensor_parallel: int, classpad: bool
) -> None:
    words: list[str | Path] = ["--mtp", str(depth), "--tp", str(tensor_parallel)]
    words += ["--classpad", "--image", "r293"] if classpad else []
    words += ["--site", site_file(tmp_path, SITE)] if tensor_parallel == 2 else []
    found = dry_run(typed, model, *words)
    labels = ["mtp0-a", "mtp0-b", *([f"mtp{depth}-a", f"mtp{depth}-b"] if depth else [])]
    assert [item["plan"]["label"] for item in found] == labels
    for item in found:
        plan, command = item["plan"], shlex.split(item["command"])
        expected = variables(BASE_ENV) | CACHES | {"ZE_AFFINITY_MASK": "0,1" if tensor_parallel == 2 else "0"}
        expected["VLLM_XPU_FP16_LINEAR_CLASSPAD"] = "1" if classpad else "0"
        expected["VLLM_SERVER_DEV_MODE"] = "1"  # the one addition: /server_info, by the launcher's dev_mode
        expected |= variables(DRAFT_ENV) if plan["depth"] else {}
        expected |= SITE if tensor_parallel == 2 else {}
        assert plan["env"] == expected
        assert ("--speculative-config" in plan["arguments"]) == (plan["depth"] > 0)
        assert command[:2] == ["docker", "run"]
        given = {
            word.split("=", 1)[0]: word.split("=", 1)[1]
            for flag, word in itertools.pairwise(command)
            if flag in ("-e", "--env")
        }
        assert {name: value for name, value in given.items() if name not in CACHES} == {
            name: value for name, value in expected.items() if name not in CACHES
        }
        assert {given[name] for name in CACHES} == {value.replace("<cache>", "/cache") for value in CACHES.values()}
        tail = command[command.index("--served-model-name") - 2 :]
        wanted = [word.replace("<model>", "/model").replace("<port>", "8000") for word in plan["arguments"]]
        assert tail == wanted
        assert "--privileged" not in command
        # one value for memory and memory + swap
        text = " ".join(command)
        assert text.count(str(12 * 2**30)) == 2 or text.count("12g") == 2, text
    assert not (tmp_path / "experiments").exists()


def test_dry_run_as_text(tmp_path: Path, model: Path) -> None:
    done = bench("strict", *B70, "--model-dir", model, "--dry-run", "--mtp", "3", cwd=tmp_path)
    assert done.code == 0
    heads = [line for line in done.out.splitlines() if line.startswith("# mtp")]
    assert heads == [
        "# mtp0-a: MTP depth 0, TP1, engine docker",
        "# mtp0-b: MTP depth 0, TP1, engine docker",
        "# mtp3-a: MTP depth 3, TP1, engine docker",
        "# mtp3-b: MTP depth 3, TP1, engine docker",
    ]
    assert done.out.count("\ndocker run ") == 4
    assert "#   ZE_AFFINITY_MASK=0\n" in done.out


def test_recorded_command_keeps_no_path_and_no_password(tmp_path: Path) -> None:
    launcher = write_launcher(tmp_path, "dies-at-start")
    words = [f"--out={tmp_path}/experiments", "--proxy", "http://user:secret@127.0.0.1:9"]
    strict(tmp_path, launcher, *words)
    journal = (campaign_of(tmp_path) / "journal.jsonl").read_text()
    start = json.loads(journal.splitlines()[0])["start"]
    assert start["command"] == (
        "bench strict --mtp 0 --launcher fast.toml --out=experiments --proxy 'http://<dropped>@127.0.0.1:9'"
    )
    assert "secret" not in journal


def test_one_wrong_request_as_a_process(tmp_path: Path) -> None:
    assert bench("strict", *B70, "--mtp", "9", cwd=tmp_path) == Done(
        64, "", "bench: launcher qwen35-4b-w4a16 has no MTP depth 9; use one of 0, 1, 2, 3, 4, 5, 6\n"
    )


def test_options_of_a_real_server_never_fall_back_to_the_simulated_one(tmp_path: Path, model: Path) -> None:
    if Path("/sys/bus/pci/drivers/xe").is_dir():
        pytest.skip("this host has cards")
    done = bench("strict", "--model-dir", model, "--dry-run", cwd=tmp_path)
    assert (
        done.code == 64 and "--model-dir is for a real server, and no card is under the xe driver here" in done.sentence
    )
