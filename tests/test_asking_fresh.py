"""``bench explain --ask fresh``: margins of a fresh server by the recorded plan, as a user types it."""

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from harness.asking import ask_fresh, check_model, oracle_plan
from harness.errors import UsageError
from harness.evidence.derive import derive
from harness.evidence.schema import ModelFacts, Start
from harness.face import PlainFace
from harness.host.model_files import read_files
from harness.models import combined_sha256
from harness.questions import Asked
from tests.bench import Done, bench, campaign_of, command, environment, evidence_of, strict, write_launcher
from tests.ladders import ladder, launcher
from tests.questions import LADDER, after, url_of
from tests.simulated.rig import free_port, ready

# a fresh server by the recorded plan


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(home, a strict campaign whose speculating servers leave the oracle at two prompts)."""
    home = tmp_path_factory.mktemp("tied")
    done = strict(home, write_launcher(home), "--fault", "tie:2", depth=3)
    assert done.code == 1, done.out
    return home, campaign_of(home)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(home, an MTP0 ladder whose crowded answers leave their own sequential answer)."""
    home = tmp_path_factory.mktemp("crowded")
    ladder(home, launcher(home, "--tie-rate", "1"))
    return home, campaign_of(home)


def servers_with(word: str) -> list[int]:
    """Processes of the simulated server that have ``word`` in their environment or arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            if b"harness.simulated" in words and word.encode() in words:
                found.append(int(entry.name))
    return found


def start_of(campaign: Path) -> Start:
    return derive(campaign).start


def test_strict_explained_by_a_fresh_server_that_is_gone_afterwards(tied: tuple[Path, Path], tmp_path: Path) -> None:
    home, campaign = tied
    before = {path: path.read_bytes() for path in campaign.rglob("*") if path.is_file()}
    inside = {"TMPDIR": str(tmp_path)}
    done = bench("explain", campaign, "--ask", "fresh", "-o", "why.json", "--json", cwd=home, env=inside)
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert told == json.loads((home / "why.json").read_text())
    assert told["schema"] == "b70-bench.explanation/1" and told["problems"] == []
    assert told["compared"] == 4 * 12 and told["simulated"]
    gate = next(item for item in evidence_of(campaign)["gates"] if item["name"] == "G3")
    rows = {row["prompt_id"]: row for row in evidence_of(campaign)["attempts"][0]["rows"]}
    assert {site["prompt"] for site in told["sites"]} == {item["prompt_id"] for item in gate["divergences"]}
    assert len(told["sites"]) == 2
    for site in told["sites"]:
        row = rows[site["prompt"]]
        assert site["index"] == 57 and site["seen"] == [{"group": "G3", "times": 2, "asked": 2}]
        assert site["prefix"] == row["prompt_token_ids"] + row["token_ids"][:57]
        assert site["oracle_id"] == row["token_ids"][57] == site["margin"]["chosen"]
        assert row["text"] == site["before"] + site["oracle_after"] and site["before_ids"] == 57
        assert (site["margin"]["kind"], site["margin"]["gap"], site["margin"]["way"]) == ("exact tie", 0, "decoded")
    assert servers_with(str(tmp_path)) == [] == list(tmp_path.iterdir())
    assert {path: path.read_bytes() for path in campaign.rglob("*") if path.is_file()} == before


def test_a_person_reads_the_table_the_blocks_and_the_next_command(tied: tuple[Path, Path]) -> None:
    home, campaign = tied
    done = bench("explain", campaign, "--ask", "fresh", cwd=home)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith(f"SIMULATED, no measurement: {campaign.name} (strict, withheld): 2 sites in 2 prompts")
    assert lines[1].split() == ["prompt", "token", "oracle", "→", "other", "how", "often", "always", "there", "margin"]
    assert all("in 2 of 2 comparisons of G3" in line and "exact tie, 0" in line for line in lines[2:4])
    assert (
        done.out.count("  margin   exact tie (gap 0), 2 ids stand level at the top; the asked") == 2
        and done.out.count("  before   …'") == 2
    )
    assert "note: SIMULATED: the margins are those of the simulated server" in done.out
    assert lines[-1].startswith(f"next: bench show {campaign}")
    assert "mtp0-explain: starting" in done.err and "mtp0-explain: stopping" in done.err
    assert all(char.isprintable() or char == "\n" for char in done.out)


def test_without_asking_the_margin_is_the_next_command(tied: tuple[Path, Path]) -> None:
    home, campaign = tied
    done = bench("explain", campaign, cwd=home)
    assert (done.code, done.err) == (0, "")
    assert "not asked" in done.out and done.out.endswith("--ask fresh (or --ask URL) for the margins\n")


def test_a_running_server_that_is_another_model_is_not_the_oracle(tied: tuple[Path, Path], tmp_path: Path) -> None:
    home, campaign = tied
    with ready(tmp_path / "log", "--seed-text", "other weights") as other:
        done = bench("explain", campaign, "--ask", url_of(other), "--json", cwd=home)
    told = json.loads(done.out)
    assert done.code == 0 and all(site["margin"]["disagrees"] for site in told["sites"])
    assert all("is not the recorded oracle" in site["margin"]["sentence"] for site in told["sites"])


def test_the_rest_is_printed_when_nobody_can_be_asked(tied: tuple[Path, Path]) -> None:
    home, campaign = tied
    done = bench("explain", campaign, "--ask", f"http://127.0.0.1:{free_port()}", cwd=home)
    assert done.code == 2 and done.err == ""
    assert "in 2 of 2 comparisons of G3" in done.out and "\nnot asked: http://127.0.0.1:" in done.out


def test_ladder_sites_by_rung_and_pass_with_near_ties(crowded: tuple[Path, Path]) -> None:
    home, campaign = crowded
    done = bench("explain", campaign, "--ask", "fresh", "--json", cwd=home)
    assert (done.code, done.err) == (0, "")
    told, evidence = json.loads(done.out), evidence_of(campaign)
    counted = {
        (site["slot"], site["index"], site["oracle_id"], site["other_id"]): 0
        for rung in evidence["rungs"]
        for site in rung["sites"]
    }
    for rung in evidence["rungs"]:
        for site in rung["sites"]:
            counted[site["slot"], site["index"], site["oracle_id"], site["other_id"]] += site["times"]
    found = {
        (site["prompt"], site["index"], site["oracle_id"], site["other_id"]): site["seen"][0]["times"]
        for site in told["sites"]
    }
    assert found == counted != {}
    for site in told["sites"]:
        assert site["against"] == ["own sequential answer"]
        assert (1 not in site["rungs"] and site["rungs_asked"][0] == 1) or site["rungs_asked"] in ([2, 4], [4])
        assert len(site["places"]) == 1
        assert (site["margin"]["kind"], site["margin"]["gap"]) == ("near tie", 0.0625)
        assert not site["margin"]["disagrees"]


def test_a_lent_oracle_and_prompts_word_for_word(tmp_path: Path) -> None:
    """The oracle's texts are not recorded here, and slots of one text are one prompt."""
    path = launcher(tmp_path, "--tie-rate", "1")
    ladder(tmp_path, path, "--verbatim", "--stagger-ms", "5", rungs="1,10", passes=1)
    lender = campaign_of(tmp_path)
    lender = lender.rename(tmp_path / lender.name)
    ladder(tmp_path, path, "--verbatim", "--oracle", lender, depth=3, rungs="1,10", passes=1)
    done = bench("explain", campaign_of(tmp_path), "--ask", "fresh", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    told, bases = json.loads(done.out), {prompt.id for prompt in LADDER.prompts}
    assert told["sites"] != [] and {site["prompt"] for site in told["sites"]} <= bases
    assert sum(seen["times"] for site in told["sites"] for seen in site["seen"]) > len(told["sites"])
    for site in told["sites"]:
        assert site["against"] == ["lent MTP0 oracle", "own sequential answer"]
        assert 0 < site["before_ids"] <= site["index"] and site["other_after"] is not None
        assert (site["margin"]["kind"], site["margin"]["way"]) == ("near tie", "decoded")
        assert site["oracle_after"] is None, "only the oracle's ids were lent"


def test_no_divergence_is_said(tmp_path: Path) -> None:
    _, evidence = ladder(tmp_path, launcher(tmp_path), rungs="1", passes=1)
    campaign = campaign_of(tmp_path)
    done = bench("explain", campaign, "--ask", "fresh", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"{evidence['campaign_id']} (ladder, " in done.out
    assert "no divergence in 1 comparisons of complete token-id arrays." in done.out.replace("\n", " ")


def test_a_server_that_never_gets_ready_is_a_problem_and_is_gone(tied: tuple[Path, Path]) -> None:
    _, campaign = tied
    start = start_of(campaign)
    base = start.plan.servers[0]
    broken = base.model_copy(update={"arguments": [*base.arguments, "--no-such-option"]})
    plan = start.plan.model_copy(update={"servers": [broken]})
    with Path("/dev/null").open("w") as out:
        asked: Asked = ask_fresh(
            start.model_copy(update={"plan": plan}), [after(300, 301)], 5, watcher=PlainFace(out, "bench explain")
        )
    assert asked.said == {} and len(asked.problems) == 1
    assert asked.problems[0].startswith("mtp0-explain: the server has ended with exit code 64")
    assert servers_with("--no-such-option") == []


def test_a_signal_stops_the_fresh_server_and_the_rest_is_printed(tied: tuple[Path, Path], tmp_path: Path) -> None:
    home, campaign = tied
    words, inside = command("explain", campaign, "--ask", "fresh"), {**environment(home), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=home, env=inside, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("mtp0-explain: starting")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "Traceback" not in err
    assert "in 2 of 2 comparisons of G3" in out
    assert "\nnot asked: mtp0-explain: interrupted by SIGTERM\n" in out
    assert servers_with(str(tmp_path)) == [] == list(tmp_path.iterdir())


# the plan, the model, the options


def test_a_ladder_without_an_oracle_server_asks_its_own_without_speculation(tied: tuple[Path, Path]) -> None:
    start = start_of(tied[1])
    assert oracle_plan(start).arguments == start.plan.servers[0].arguments
    measured = start.plan.servers[-1]
    measured = measured.model_copy(update={"env": {**measured.env, "DRAFT": "1"}})
    lent = start.model_copy(
        update={"plan": start.plan.model_copy(update={"servers": [measured]}), "depth_env": ["DRAFT"]}
    )
    plan = oracle_plan(lent)
    assert plan.depth == 0 and "--speculative-config" not in plan.arguments
    assert plan.arguments == start.plan.servers[0].arguments and plan.env == start.plan.servers[0].env
    attached = start.plan.servers[0].model_copy(update={"engine": "attach"})
    with pytest.raises(UsageError, match="give a running server with --ask URL"):
        oracle_plan(start.model_copy(update={"plan": start.plan.model_copy(update={"servers": [attached]})}))


def test_another_model_is_refused_by_the_file_that_differs(tmp_path: Path) -> None:
    model = tmp_path / "weights"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.bin").write_bytes(b"12345")
    files = read_files(model)
    facts = ModelFacts(repository=None, revision=None, files=files, sha256=combined_sha256(files))
    said: list[str] = []
    check_model(facts, model, said.append)
    for name, content, why in (
        ("model.bin", b"12346", "model.bin has another sha256"),
        ("model.bin", b"123456", "model.bin has another size than the 5 bytes recorded"),
        ("model.bin", None, "model.bin was recorded and is missing"),
        ("more.bin", b"", "more.bin is there and was not recorded"),
    ):
        (model / "model.bin").write_bytes(b"12345")
        if content is None:
            (model / name).unlink()
        else:
            (model / name).write_bytes(content)
        with pytest.raises(UsageError, match=f"weights is not the model that was measured \\({why}\\)"):
            check_model(facts, model, said.append)
    assert said == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model-dir", "x"), "--model-dir goes with --ask fresh; add it, or leave it out"),
        (("--ask", "http://h:1", "--vllm", "x"), "--vllm goes with --ask fresh; add it, or leave it out"),
        (
            ("--ask", "fresh", "--served-model-name", "x"),
            "--served-model-name goes with --ask URL; add it, or leave it out",
        ),
        (("--ask", "somewhere"), "--ask needs http:// or https:// and a host; write for example http://127.0.0.1:8000"),
    ],
)
def test_usage(tied: tuple[Path, Path], words: tuple[str, ...], sentence: str) -> None:
    home, campaign = tied
    done: Done = bench("explain", campaign, *words, cwd=home)
    assert (done.code, done.sentence) == (64, sentence)


def test_nothing_is_written_into_the_campaign(tied: tuple[Path, Path]) -> None:
    home, campaign = tied
    done = bench("explain", campaign, "-o", campaign / "why.json", cwd=home)
    assert done.code == 64 and "is inside the campaign" in done.sentence
    assert not (campaign / "why.json").exists()


def test_evidence_that_does_not_verify_is_not_explained(tied: tuple[Path, Path], tmp_path: Path) -> None:
    _, campaign = tied
    copied = tmp_path / campaign.name
    copied.mkdir()
    for name in ("journal.jsonl", "evidence.json", "manifest.json"):
        (copied / name).write_bytes((campaign / name).read_bytes())
    done = bench("explain", copied, cwd=tmp_path)
    assert done.code == 1 and "does not verify" in done.sentence
    done = bench("explain", tmp_path / "nowhere", cwd=tmp_path)
    assert done.code == 64 and "is not a directory" in done.sentence
