"""Margins asked of real servers over real sockets: the simulated one that runs, and a fresh one by a recorded plan."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from harness.asking import ask_fresh, ask_url, check_model, oracle_plan
from harness.errors import UsageError
from harness.evidence.derive import derive
from harness.evidence.schema import ModelFacts, Start
from harness.face import PlainFace
from harness.host.model_files import read_files
from harness.models import combined_sha256
from harness.publish.margins import NEAR_TIE
from harness.questions import Asked, Question, margin_body, read_said
from harness.suites import load_suite
from tests.bench import ROOT, Done, bench, campaign_of, command, environment, evidence_of, strict, write_launcher
from tests.ladders import ladder, launcher
from tests.simulated.rig import PROMPTS, Sim, free_port, ready


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    with ready(tmp_path_factory.mktemp("sim") / "log") as running:
        yield running


def url_of(sim: Sim) -> str:
    return f"http://127.0.0.1:{sim.port}"


def answered(sim: Sim, prompt: str) -> tuple[list[int], list[int]]:
    """(prompt ids, ids of the answer)."""
    answer = sim.stream(prompt, max_tokens=120)
    return answer.choices[0]["prompt_token_ids"], answer.ids


LADDER = load_suite(str(ROOT / "suites" / "ladder-v1.json"), need_classes=False)


def after(*prompt: int, before: Sequence[int] = (), wanted: Sequence[int] = ()) -> Question:
    return Question(prompt, tuple(before), frozenset(wanted))


# a running server


def test_the_server_continues_the_exact_prefix(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[0])
    questions = [after(*prompt, before=ids[:index]) for index in (0, 1, 57, 99)]
    asked = ask_url(url_of(sim), questions, "simulated", 5)
    assert asked.problems == [] and set(asked.said) == set(asked.decoded) == {item.prefix for item in questions}
    for item in questions:
        said = asked.said[item.prefix]
        assert said.chosen == ids[len(item.before)]
        assert len(said.top) == 5
        assert [one.logprob for one in said.top] == sorted((one.logprob for one in said.top), reverse=True)
        assert asked.decoded[item.prefix] == said, "the simulated model rounds nothing"
    assert "runs already" in asked.notes[0]


def test_a_server_that_leaves_the_ids_before_the_place_did_not_decode_them(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[1])
    strange = after(*prompt, before=[*ids[:5], ids[5] + 1, *ids[6:9]])
    asked = ask_url(url_of(sim), [strange], "simulated", 3)
    assert asked.problems == [] and set(asked.said) == {strange.prefix} and asked.decoded == {}


def test_ids_that_tie_are_exactly_level_and_named(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[3])
    place = after(*prompt, before=ids[:57])
    said = ask_url(url_of(sim), [place], "simulated", 5).said[place.prefix]
    level = [item for item in said.top if item.logprob == said.top[0].logprob]
    assert len(level) == 2 and ids[57] in {item.id for item in level}
    assert 0 < level[0].logprob - said.top[2].logprob <= NEAR_TIE
    texts = {item.id: item.text for item in said.top}
    assert sum(text is not None for text in texts.values()) >= 3
    for token, text in texts.items():
        status, body = sim.post("/detokenize", {"tokens": [token]})
        assert status == 200 and text in (None, body["prompt"])


def test_an_id_below_the_top_is_asked_for_by_name(sim: Sim) -> None:
    prompt, ids = answered(sim, PROMPTS[2])
    place = after(*prompt, before=ids[:30], wanted=(ids[30], 5))
    asked = ask_url(url_of(sim), [place], "simulated", 2)
    for said in (asked.said[place.prefix], asked.decoded[place.prefix]):
        assert [item.id for item in said.named] == [5] and len(said.top) == 2
        assert said.named[0].logprob < said.top[-1].logprob


def test_a_server_that_speculates_is_said_to_be_no_oracle(tmp_path: Path) -> None:
    with ready(tmp_path / "log", "--depth", "3") as speculating:
        asked = ask_url(url_of(speculating), [after(300, 301)], "simulated", 2)
    assert "speculates (spec_decode metrics), so it is no MTP0 oracle" in asked.notes[1]
    assert len(asked.said) == 1


def test_nobody_there_is_a_problem() -> None:
    asked = ask_url(f"http://127.0.0.1:{free_port()}", [after(1, 2), after(3, 4)], "simulated", 5)
    assert asked.said == {}
    (problem,) = asked.problems
    assert "can't be asked (connect-failed: " in problem


def test_a_refusal_is_told_in_the_servers_words(sim: Sim) -> None:
    asked = ask_url(url_of(sim), [after(300, 301)], "another", 5)
    assert asked.said == {} and "HTTP 404, The model `another` does not exist" in asked.problems[0]
    asked = ask_url(url_of(sim), [after(*[300] * 1024), after(300, 301)], "simulated", 5)
    assert len(asked.problems) == 1 and "maximum context length is 1024" in asked.problems[0]
    assert list(asked.said) == [(300, 301)], "one question that can't be answered doesn't end the others"


def test_what_is_no_url_is_usage() -> None:
    with pytest.raises(UsageError, match=r"^--ask needs http:// or https://"):
        ask_url("localhost:8000", [after(1)], "simulated", 5)


# servers that answer otherwise


@contextmanager
def serving(*bodies: object) -> Iterator[str]:
    """A server that gives each POST the next of ``bodies`` (or of (status, body)), the last one for ever."""
    left = list(bodies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            given = left.pop(0) if len(left) > 1 else left[0]
            status, answer = given if isinstance(given, tuple) else (200, given)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def body(top: object, chosen: object = (7,), prompt: Sequence[int] | None = (1, 2)) -> dict[str, Any]:
    choice: dict[str, Any] = {"token_ids": chosen, "logprobs": {"top_logprobs": [top]}}
    return {"choices": [choice | ({} if prompt is None else {"prompt_token_ids": list(prompt)})]}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"choices": []}, "holds no log-probabilities by token id"),
        (body(None), "holds no log-probabilities by token id"),
        ([1], "holds no log-probabilities by token id"),
        (body({"token_id:7": "much"}), "holds no log-probabilities by token id"),
        (body({" the": -0.5}), "otherwise than by token id"),
        (body({}), "otherwise than by token id"),
        (body({"token_id:7": float("nan")}), "no finite number"),
        (body({"token_id:7": -0.5}, prompt=(1, 3)), "read other prompt ids than were sent"),
    ],
)
def test_an_answer_of_another_shape_is_a_problem(answer: object, sentence: str) -> None:
    with serving(answer) as url:
        asked = ask_url(url, [after(1, 2), after(1, 3)], "m", 2)
    assert asked.said == {} and len(asked.problems) == 1 and sentence in asked.problems[0]


def test_names_that_fit_two_ids_name_none() -> None:
    by_id = body({"token_id:7": -0.5, "token_id:8": -0.5, "token_id:9": -2.0})
    with serving(by_id, body({" a": -0.5, " b": -2.0})) as url:
        collided = ask_url(url, [after(1, 2)], "m", 3).said[1, 2]
    assert [(item.id, item.text) for item in collided.top] == [(7, None), (8, None), (9, None)]
    with serving(by_id, body({" a": -0.5, "\ufffd": -0.5, " c": -2.0})) as url:
        named = ask_url(url, [after(1, 2)], "m", 3).said[1, 2]
    assert [(item.id, item.text) for item in named.top] == [(7, " a"), (8, None), (9, " c")]


def test_the_likeliest_stand_first_however_the_server_lists_them() -> None:
    with serving(body({"token_id:9": -0.5, "token_id:7": -0.25, "token_id:8": -0.5}, prompt=None)) as url:
        said = ask_url(url, [after(1, 2)], "m", 3).said[1, 2]
    assert [item.id for item in said.top] == [7, 8, 9] and said.chosen == 7


def test_the_question_is_the_suites_greedy_one() -> None:
    asked = margin_body((1, 2), "m", 5)
    assert asked["prompt"] == [1, 2]
    assert (asked["max_tokens"], asked["temperature"], asked["seed"], asked["logprobs"]) == (1, 0, 42, 5)
    assert asked["return_token_ids"] and asked["return_tokens_as_token_ids"]


def test_a_field_that_an_older_server_refuses_leaves_the_bound() -> None:
    refused = {"error": {"message": "unknown field"}}
    with serving(body({"token_id:7": -0.5}), (400, refused), body({" a": -0.5})) as url:
        asked = ask_url(url, [after(1, 2, wanted=(7, 9))], "m", 1)
    assert asked.problems == [] and asked.said[1, 2].named == []
    assert [item.text for item in asked.said[1, 2].top] == [" a"]


def test_only_the_ids_of_the_answer_decide_whether_it_came_there() -> None:
    raw = json.dumps(
        {"choices": [{"token_ids": [5, 6, 7], "logprobs": {"top_logprobs": [{}, {}, {"token_id:7": -0.5}]}}]}
    ).encode()
    said = read_said(raw, (1, 2), (5, 6))
    assert said is not None and said.chosen == 7
    assert read_said(raw, (1, 2), (5, 5)) is None


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


def test_the_simulated_server_refuses_what_it_has_no_log_probabilities_for(sim: Sim) -> None:
    for fields in ({"max_tokens": 1, "stream": True}, {"max_tokens": 1, "logprobs": 21}):
        status, answer = sim.post("/v1/completions", {"prompt": [300], "logprobs": 5} | fields)
        assert status == 400 and answer["error"]["param"] == "logprobs"
    assert sim.get("/health")[0] == 200
