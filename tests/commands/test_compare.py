"""``bench compare`` on real campaigns: what vLLM's CPU backend answered, and two short ones of the simulated server."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import main
from tests.bench import Done, bench, campaign_of, strict, write_launcher
from tests.recorded import campaign, copy

Typed = Callable[..., Done]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """``bench compare WORDS`` in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["bench", "compare", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capsys.readouterr())

    return run


def test_a_real_campaign_is_itself(tmp_path: Path) -> None:
    tiny = campaign("tiny")
    done = bench("compare", tiny, tiny, "--fail-below", "0.98", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("A  tiny: MTP3 TP1 on tiny-cpu: 275.32 tokens/s")
    assert "subject: none; nothing was declared to differ" in lines
    verdicts = [line for line in lines if line.startswith(("mtp0: no", "mtp3: no"))]
    assert [line.split(" (95 %")[0] for line in verdicts] == [
        "mtp0: no difference larger than the spread of a pair (15.7%): B is 1.000 times A",
        "mtp3: no difference larger than the spread of a pair (29.5%): B is 1.000 times A",
    ]
    assert "note: A and B are one campaign" in lines
    assert lines[-1].startswith("next: bench report ")
    assert "withheld" not in done.out and "simulated" not in done.out


def test_a_limit_that_is_missed_is_exit_1(typed: Typed) -> None:
    tiny = campaign("tiny")
    done = typed(tiny, tiny, "--fail-below", "1.01", "--json")
    assert done.code == 1 and done.err == ""
    told = json.loads(done.out)
    assert told["fail_below"]["sentences"][1].startswith("mtp3: 1.0000 is below 1.01 (95 %")
    assert told["fail_below"]["exit_code"] == 1 and told["like"] is True
    evidence = json.loads((tiny / "evidence.json").read_text())
    for pair, recorded in zip(told["pairs"], evidence["pairs"], strict=True):
        assert (pair["center"]["a"], pair["center"]["b"]) == (recorded["center"], recorded["center"])
        assert pair["center"]["ratio"]["value"] == 1.0
        assert (pair["identity"]["equal"], pair["identity"]["total"]) == (12, 12)
        assert len(pair["prompts"]) == 12 and len(pair["classes"]) == 6


def test_other_weights_are_refused_with_64(typed: Typed) -> None:
    done = typed(campaign("tiny"), campaign("ties"))
    assert done.code == 64
    (line,) = done.out.splitlines()
    assert line.startswith("- model sha256 is ") and " in A and " in line
    assert done.sentence.startswith("A and B are unlike: model sha256 is ")
    assert done.sentence.endswith("; compare them with --anyway")
    assert "B /" not in done.out


def test_anyway_puts_the_differences_on_top(typed: Typed) -> None:
    done = typed(campaign("tiny"), campaign("ties"), "--anyway")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "UNLIKE: A and B are not one configuration; shown because of --anyway"
    assert lines[1].startswith("- model sha256 is ")
    rows = [line.split("│") for line in lines if line.startswith("│") and " tokens/s" in line]
    assert len(rows) == 2 * (1 + 6 + 12)
    # A passed and B is withheld: no number of B and no ratio stands without it
    assert all("withheld" not in row[2] for row in rows)
    assert all("withheld" in row[3] and "withheld" in row[4] and "withheld" in row[5] for row in rows)
    assert next(line for line in lines if line.startswith("│ G3 ")).split("│")[2:4] == [
        " 12/12 passed ",
        " 2/12 FAILED  ",
    ]
    assert any("larger than the spread of a pair" in line and line.endswith("(B withheld)") for line in lines)


def test_depth_of_real_ladders(typed: Typed) -> None:
    a, b = campaign("ladder0"), campaign("ladder3ties")
    refused = typed(a, b)
    assert refused.code == 64 and "--vary depth" in refused.sentence and "in 3 things" in refused.sentence
    assert len(refused.out.splitlines()) == 3
    done = typed(a, b, "--vary", "depth", "--anyway")
    assert done.code == 0 and "subject: MTP depth is 0 in A and 3 in B; argument --speculative-config" in done.out
    rows = [line for line in done.out.splitlines() if line.startswith("│ c")]
    ladders = [json.loads((path / "evidence.json").read_text()) for path in (a, b)]
    rungs = [row for row in rows if "tokens/s" in row]
    assert len(rungs) == len(ladders[0]["rungs"])
    for row, one, two in zip(rungs, ladders[0]["rungs"], ladders[1]["rungs"], strict=True):
        assert f"{one['tok_s']:.2f} tokens/s" in row and f"{two['tok_s']:.2f} tokens/s (withheld)" in row
        assert f" {one['exact']}/{one['total']} " in row and f" {two['exact']}/{two['total']} " in row
        assert "withheld in B" in row


def test_evidence_that_does_not_verify_is_not_compared(typed: Typed, tmp_path: Path) -> None:
    changed = copy("tiny", tmp_path)
    text = (changed / "evidence.json").read_text()
    (changed / "evidence.json").write_text(text.replace('"center": 275', '"center": 375'))
    done = typed(campaign("tiny"), changed)
    assert (done.code, done.out) == (1, "")
    assert done.sentence.startswith("tiny does not verify: evidence.json ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere", "nowhere"], "nowhere is not a directory; give the directory of a campaign"),
        (["tiny", "ladder0"], "A is strict and B is ladder; give two strict campaigns or two ladders"),
        (["tiny", "tiny", "--vary", "speed"], "--vary speed is nothing that can vary; use one of image, depth,"),
        (["tiny", "tiny", "--fail-below", "nan"], "--fail-below nan is no ratio; write for example --fail-below 0.98"),
        (["tiny", "tiny", "--fail-below", "0"], "--fail-below 0.0 is no ratio; write for example --fail-below 0.98"),
    ],
)
def test_wrong_request_is_one_sentence_and_64(typed: Typed, words: list[str], sentence: str) -> None:
    found = [campaign(word) if word in ("tiny", "ladder0") else word for word in words]
    done = typed(*found)
    assert (done.code, done.out) == (64, "") and done.sentence.startswith(sentence)


@pytest.fixture(scope="module")
def two_arms(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short simulated campaigns whose servers differ in one variable."""
    found = []
    for value in ("1", "0"):
        home = tmp_path_factory.mktemp("arm")
        launcher = write_launcher(home, step_us=300)
        launcher.write_text(launcher.read_text() + f'\n[env]\nVLLM_X = "{value}"\n')
        done = strict(home, launcher)
        assert done.err == "", done.err
        found.append(campaign_of(home))
    return found


def test_a_variable_as_the_subject(typed: Typed, two_arms: list[Path]) -> None:
    a, b = two_arms
    refused = typed(a, b)
    assert refused.code == 64
    assert refused.out == "- environment: VLLM_X is '1' in A and '0' in B\n"
    assert refused.sentence == (
        "A and B are unlike: environment: VLLM_X is '1' in A and '0' in B; declare what is meant to differ "
        "(--vary env:VLLM_X), or compare them with --anyway"
    )
    done = typed(a, b, "--vary", "env:VLLM_X")
    assert (done.code, done.err) == (0, "")
    assert "subject: environment: VLLM_X is '1' in A and '0' in B" in done.out and "UNLIKE" not in done.out
    rows = [line for line in done.out.splitlines() if line.startswith("│") and " tokens/s" in line]
    assert len(rows) == 1 + 6 + 12 and all(row.count("simulated") == 4 for row in rows)
    assert any("12/12" in row for row in rows)
    assert typed(a, b, "--vary", "env:VLLM_X", "--fail-below", "100").code in (1, 2)


def test_a_knob_that_reached_neither_is_refused(typed: Typed, two_arms: list[Path]) -> None:
    done = typed(two_arms[0], two_arms[0], "--vary", "env:VLLM_X")
    assert (done.code, done.sentence) == (
        64,
        "env:VLLM_X was declared with --vary and is equal in A and B; correct --vary, or give --anyway",
    )


def test_a_refusal_as_json(typed: Typed, two_arms: list[Path]) -> None:
    done = typed(*two_arms, "--json")
    assert done.code == 64
    told = json.loads(done.out)
    assert told["like"] is False and "pairs" not in told
    assert [(item["name"], item["vary"]) for item in told["undeclared"]] == [("environment: VLLM_X", ["env:VLLM_X"])]


def test_two_simulated_campaigns_pass_a_limit_and_say_so(typed: Typed, two_arms: list[Path]) -> None:
    done = typed(*two_arms, "--vary", "env:VLLM_X", "--fail-below", "0.01")
    # A busy machine's client withholds even so short a campaign; then it passes no limit either.
    a, b = (json.loads((path / "evidence.json").read_text())["status"] for path in two_arms)
    assert done.code == (1 if b != "passed" else 2 if a != "passed" else 0)
    assert "- SIMULATED: A and B are both simulated, so this is no measurement of any card" in done.out.splitlines()


def test_wrong_answers_pass_no_limit_and_the_help_says_so(typed: Typed) -> None:
    a, b = campaign("tiny"), campaign("ties")
    done = typed(a, b, "--anyway", "--fail-below", "0.01", "--json")
    told = json.loads(done.out)["fail_below"]
    assert done.code == told["exit_code"] == 1
    assert told["sentences"][0].startswith("a gate of B failed (G3 of mtp3-a vs mtp0-a, G3 of mtp3-b vs mtp0-a); ")
    # A that is withheld holds nothing to B
    assert typed(b, a, "--anyway", "--fail-below", "0.01").code == 2
    ladders = typed(campaign("ladder0"), campaign("ladder3ties"), "--anyway", "--fail-below", "0.0001")
    assert ladders.code == 1 and "- a gate of B failed (oracle of " in ladders.out
    text = " ".join(re.sub(r"[^\w.,;:()/'-]+", " ", typed("--help").out).split())
    for words in ("Exit 1 when a gate of B failed", "Exit 2, no verdict: a side is invalid", "it says SIMULATED"):
        assert words in text
