"""``bench list`` as it is typed: filters, exact output for what is small, and nothing that makes it fall over."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import main
from harness.evidence.schema import Status
from harness.publish.index_file import INDEX
from tests.bench import Done, bench
from tests.publish import made
from tests.recorded import campaign

Typed = Callable[..., Done]
RECORDED = ("tiny", "ties", "ladder0", "ladder3ties")


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """``bench list WORDS`` in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["bench", "list", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """``experiments`` with what real vLLM gave, and one simulated campaign."""
    folder = tmp_path / "experiments"
    for name in RECORDED:
        (folder / name).mkdir(parents=True)
        shutil.copyfile(campaign(name) / "evidence.json", folder / name / "evidence.json")
    speeds = {"mtp0-a": [100.0], "mtp0-b": [100.0]}
    made.write(made.strict(speeds, simulated=True, status=Status.WITHHELD), folder / "practice")
    return tmp_path


def directories(done: Done) -> list[str]:
    """The last column, without head and footer."""
    assert done.code == 0 and done.err == ""
    lines = done.out.splitlines()
    end = next(at for at, line in enumerate(lines) if " campaigns" in line)
    return [line.split()[-1] for line in lines[1:end]]


def test_the_table_of_real_campaigns(home: Path) -> None:
    done = bench("list", cwd=home)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["date", "(UTC)", "status", "kind", "lane", "MTP", "TP", "center", "gates", "directory"]
    rows = {line.split()[-1]: line for line in lines[1:6]}
    assert set(rows) == {*RECORDED, "practice"}
    for name in RECORDED:
        evidence = json.loads((campaign(name) / "evidence.json").read_text())
        plan = evidence["start"]["plan"]
        words = rows[name].split()
        assert words[:5] == [*evidence["started_at"][:16].split("T"), evidence["status"], plan["kind"], plan["lane"]]
        assert words[5:7] == [str(plan["depth"]), str(plan["tensor_parallel"])]
        assert ("(withheld)" in rows[name]) == evidence["withheld"]
        value = evidence["pairs"][-1]["center"] if plan["kind"] == "strict" else evidence["rungs"][-1]["tok_s"]
        assert f"{value:.2f} tokens/s" in rows[name]
    assert "G1 12/12, G2 12/12, G3 12/12 12/12" in rows["tiny"]
    assert "G3 2/12 FAILED 2/12 FAILED" in rows["ties"]
    assert "mtp0 100.00 tokens/s (simulated, withheld)" in rows["practice"]
    dates = [line[:16] for line in lines[1:6]]
    assert dates == sorted(dates, reverse=True)
    first = lines[1].split()[-1]
    assert lines[6:] == [
        "5 campaigns",
        "nothing here was verified: the table repeats what each evidence.json says",
        f"next: bench verify experiments/{first}",
    ]
    assert bench("list", cwd=home).out == done.out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--status", "passed"], {"tiny", "ladder0"}),
        (["--status", "withheld", "--status", "passed"], {*RECORDED, "practice"}),
        (["--kind", "ladder"], {"ladder0", "ladder3ties"}),
        (["--lane", "simulated"], {"practice"}),
        (["--lane", "simulated", "--lane", "tiny-cpu", "--mtp", "0"], {"practice", "ladder0"}),
        (["--mtp", "3"], {"tiny", "ties", "ladder3ties"}),
        (["--tp", "2"], set()),
        (["--since", "2026-09-02"], set(RECORDED)),
        (["--since", "2026-09-01T10:00:00"], {*RECORDED, "practice"}),
        (["--since", "2026-09-01T12:00:01+02:00"], set(RECORDED)),
        (["--mtp", "0", "--kind", "strict", "--status", "withheld"], {"practice"}),
    ],
)
def test_filters(typed: Typed, home: Path, words: list[str], found: set[str]) -> None:
    done = typed(*words)
    assert set(directories(done)) == found
    hidden = f"{len(found)} of 5 campaigns" if len(found) < 5 else "5 campaigns"
    assert hidden in done.out.splitlines()
    told = json.loads(typed(*words, "--json").out)
    assert {item["directory"] for item in told["campaigns"]} == found and told["hidden"] == 5 - len(found)


def test_json_keeps_numbers_with_their_unit_and_marks(typed: Typed, home: Path) -> None:
    told = json.loads(typed("--json", "--lane", "simulated").out)
    assert told["verified"] is False and told["other_directories"] == 0
    (practice,) = told["campaigns"]
    assert practice["center"] == {
        "value": pytest.approx(100.0),
        "unit": "tokens/s",
        "of": "mtp0",
        "marks": ["simulated", "withheld"],
    }
    assert practice["status"] == "withheld" and practice["date"] == "2026-09-01T10:00:00.000+00:00"


def test_what_is_broken_is_a_row(typed: Typed, home: Path) -> None:
    (home / "experiments" / "torn").mkdir()
    (home / "experiments" / "torn" / "evidence.json").write_bytes(b'{"schema": ')
    (home / "experiments" / "notes").mkdir()
    (home / "experiments" / "circle").symlink_to("circle")
    done = typed()
    assert done.code == 0
    rows = [line for line in done.out.splitlines() if line.startswith("–")]
    assert [row.split()[1] for row in rows] == ["broken", "unreadable"]
    assert rows[0].endswith("torn: evidence.json is not whole JSON") and "circle: it can't be read (" in rows[1]
    assert "7 campaigns, 2 of all can't be read; 1 other directories hold none" in done.out.splitlines()
    assert "torn" in typed("--status", "broken").out and "torn" not in typed("--mtp", "3").out


def test_an_unfinished_one_is_said_to_perhaps_run(typed: Typed, home: Path) -> None:
    speeds = {"mtp0-a": [100.0], "mtp0-b": [100.0]}
    made.write(made.strict(speeds, status=Status.INTERRUPTED), home / "experiments" / "z")
    assert "started and interrupted are also said of a campaign that still runs" in typed().out
    assert "still runs" not in typed("--status", "passed").out


def test_an_empty_directory(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    lines = typed().out.splitlines()
    assert lines[1] == "0 campaigns" and lines[-1] == "next: bench strict --launcher simulated"
    assert not (tmp_path / "experiments" / INDEX).exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere is not a directory; give the directory that campaigns are kept in"),
        (["experiments/tiny"], "experiments/tiny is itself a campaign; look at it with bench show, or list the one"),
        (["--status", "good"], "there is no status 'good'; use one of started, passed, withheld, rejected, invalid,"),
        (["--since", "yesterday"], "--since yesterday is no date; write for example --since 2026-09-12"),
    ],
)
def test_wrong_request_is_one_sentence_and_64(typed: Typed, home: Path, words: list[str], sentence: str) -> None:
    done = typed(*words)
    assert (done.code, done.out) == (64, "") and done.sentence.startswith(sentence)
