"""``verify`` against a real campaign that someone has changed: it fails, and says where."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import store
from harness.evidence.derive import derive
from harness.evidence.verify import Verification, first_difference, headline, verify
from tests.bench import bench, evidence_of

Copy = Callable[[], Path]
SEED = 20261130
SAMPLE = 60


def repair(campaign: Path) -> None:
    """What a forger would do: write the manifest anew."""
    store.write_manifest(campaign)


def write_evidence(campaign: Path, evidence: Any) -> None:
    (campaign / "evidence.json").write_bytes(store.dump_json(evidence))


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all numbers and booleans."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers(item, (*path, index))
    elif isinstance(value, int | float):
        yield path


def shown(path: tuple[Any, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def change(value: Any, path: tuple[Any, ...]) -> None:
    """Change the number at ``path`` by little; a boolean is turned round."""
    for part in path[:-1]:
        value = value[part]
    old = value[path[-1]]
    value[path[-1]] = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int) else old * 1.0001 + 1e-9


def test_untouched_campaign_verifies(passed: Path) -> None:
    found = verify(passed)
    assert found.problems == [] and found.ok
    assert (found.files, found.rows, found.ids, found.gates) == (15, 48, 48 * 110, 36)
    assert headline(found).startswith("verifies: passed, SIMULATED, no measurement: MTP3 TP1 on fast: ")


def test_verify_command(passed: Path, tampered: Copy, tmp_path: Path) -> None:
    done = bench("verify", passed, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first.startswith(f"{passed.name} verifies: passed, ")
    assert second == "checked: 15 files by sha256, 48 rows, 5280 token ids, 36 gates re-derived"

    campaign = tampered()
    log = campaign / "attempts" / "mtp3-b" / "server.log"
    log.write_bytes(log.read_bytes()[:-1])
    done = bench("verify", campaign, cwd=tmp_path)
    words = (
        "attempts/mtp3-b/server.log isn't the file that was recorded: its sha256 or size differs from the manifest's"
    )
    assert (done.code, done.out) == (1, f"{campaign.name} does not verify: {words}\n")
    told = json.loads(bench("verify", campaign, "--json", cwd=tmp_path).out)
    assert (told["ok"], told["problems"]) == (False, [words])


def test_any_flipped_byte_of_any_file_is_found_and_the_file_named(passed: Path, tampered: Copy) -> None:
    chance = random.Random(SEED)
    campaign = tampered()
    names = list(store.campaign_files(passed))
    assert len(names) == 16
    for name in names:
        path = campaign / name
        whole = path.read_bytes()
        # Whether the damage is in a head, a middle or an end: each may be read by another part of the loader.
        offsets = {0, len(whole) - 1, chance.randrange(len(whole)), chance.randrange(len(whole))}
        for offset in offsets:
            data = bytearray(whole)
            data[offset] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            found = verify(campaign)
            assert not found.ok, (name, offset)
            # Of a flipped hash nobody can say whether it or its file is the one that was changed: both are named.
            told = "manifest" if name == store.MANIFEST else name.rsplit("/", 1)[-1]
            assert any(told in problem for problem in found.problems), (name, offset, found.problems)
        path.write_bytes(whole)
    assert verify(campaign).ok


def test_any_changed_number_is_named_by_its_path(passed: Path, tampered: Copy) -> None:
    """The manifest is repaired, so only the derivation from the captured bytes can tell."""
    campaign, whole = tampered(), evidence_of(passed)
    every = list(numbers(whole))
    always = [path for path in every if path[0] in ("pairs", "gates", "exit_code", "simulated", "withheld")]
    assert len(always) > 30
    rest = [path for path in every if path not in set(always)]
    derived = derive(campaign).model_dump(mode="json", by_alias=True)
    assert first_difference(whole, derived, "") is None
    for path in [*always, *random.Random(SEED).sample(rest, SAMPLE)]:
        forged = copy.deepcopy(whole)
        change(forged, path)
        problem = first_difference(json.loads(store.dump_json(forged)), derived, "")
        assert problem is not None and problem.startswith(f"{shown(path)} is "), (path, problem)
    for path in random.Random(SEED + 1).sample(every, 6):
        forged = copy.deepcopy(whole)
        change(forged, path)
        write_evidence(campaign, forged)
        repair(campaign)
        (problem,) = verify(campaign).problems
        assert problem.startswith(f"evidence.json: {shown(path)} is "), problem


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", "withheld"), ("conclusion", "MTP3: 9999 tokens/s"), ("ended_at", None), ("started_at", "2020-01-01")],
)
def test_changed_words_are_named(passed: Path, tampered: Copy, field: str, value: Any) -> None:
    campaign = tampered()
    write_evidence(campaign, {**evidence_of(passed), field: value})
    repair(campaign)
    (problem,) = verify(campaign).problems
    assert problem.startswith(f"evidence.json: {field} is {value!r}, the captured bytes give ")


def test_stored_verdict_of_a_gate_is_not_believed(passed: Path, tampered: Copy) -> None:
    """Rows that differ stay a failed G3, whatever the file says of it."""
    campaign, evidence = tampered(), evidence_of(passed)
    evidence["gates"][2]["failures"] = ["never"]
    write_evidence(campaign, evidence)
    repair(campaign)
    (problem,) = verify(campaign).problems
    assert problem == "evidence.json: gates[2].failures has 1 entries, the captured bytes give 0"


def test_added_removed_and_renamed_files(passed: Path, tampered: Copy) -> None:
    campaign = tampered()
    (campaign / "attempts" / "mtp0-a" / "note.txt").write_text("hello")
    assert verify(campaign).problems == ["attempts/mtp0-a/note.txt is in the directory and not in the manifest"]
    for name in store.campaign_files(passed):
        campaign = tampered()
        (campaign / name).unlink()
        found = verify(campaign).problems
        assert any(name.rsplit("/", 1)[-1] in problem for problem in found), (name, found)
    campaign = tampered()
    (campaign / "suite.json").rename(campaign / "suite2.json")
    found = verify(campaign).problems
    assert found[:2] == [
        "suite.json is in the manifest and missing from the directory",
        "suite2.json is in the directory and not in the manifest",
    ]
    campaign = tampered()
    (campaign / "attempts" / "mtp3-b").rename(campaign / "attempts" / "mtp3-c")
    assert any("attempts/mtp3-b/capture.jsonl.zst" in problem for problem in verify(campaign).problems)


def test_links_and_devices_are_no_evidence(tampered: Copy, tmp_path: Path) -> None:
    campaign = tampered()
    log = campaign / "attempts" / "mtp0-a" / "server.log"
    elsewhere = log.rename(tmp_path / "server.log")
    log.symlink_to(elsewhere)
    (problem,) = verify(campaign).problems
    assert problem.startswith("attempts/mtp0-a/server.log is a link or a device")
    campaign = tampered()
    (campaign / "more").symlink_to(tmp_path)
    assert verify(campaign).problems[0].startswith("more is a link or a device")


@pytest.mark.parametrize("name", ["capture.jsonl.zst", "server.json", "server.log"])
def test_files_swapped_between_attempts(tampered: Copy, name: str) -> None:
    """With manifest and even evidence written anew: a capture says itself whose it is, a server record too."""
    campaign = tampered()
    one, other = (campaign / "attempts" / label / name for label in ("mtp0-a", "mtp0-b"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    if first != second:
        assert verify(campaign).problems
    repair(campaign)
    problems = verify(campaign).problems
    if name == "capture.jsonl.zst":
        assert problems == ["mtp0-a/capture.jsonl.zst is the capture of mtp0-b; get the original"]
    elif name == "server.json":
        assert problems == ["mtp0-a/server.json is the record of mtp0-b; get the original"]
    # Logs of two like servers carry no name; what evidence takes from them (the compile proof) is the same.


def test_truncated_evidence(tampered: Copy) -> None:
    campaign = tampered()
    path = campaign / "evidence.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    repair(campaign)
    (problem,) = verify(campaign).problems
    assert problem.startswith("evidence.json is not whole JSON (")


def test_evidence_of_another_schema_version(passed: Path, tampered: Copy) -> None:
    campaign = tampered()
    write_evidence(campaign, {**evidence_of(passed), "schema": "b70-bench.evidence/99"})
    repair(campaign)
    assert verify(campaign).problems == [
        "evidence.json has schema 'b70-bench.evidence/99', this version reads b70-bench.evidence/1"
    ]
    (campaign / "evidence.json").write_text("[1]\n")
    repair(campaign)
    assert "has schema" in verify(campaign).problems[0]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_no_numbers(tampered: Copy, constant: str) -> None:
    campaign = tampered()
    path = campaign / "evidence.json"
    text = path.read_text()
    at = text.index('"center": ') + len('"center": ')
    path.write_text(text[:at] + constant + text[text.index(",", at) :])
    repair(campaign)
    assert verify(campaign).problems == [
        f"evidence.json is not whole JSON ({constant} is not JSON); get the original file"
    ]


def test_integer_where_a_float_was_and_the_other_way(passed: Path, tampered: Copy) -> None:
    """1 and 1.0 and true are equal for Python and other bytes for a reader."""
    derived = derive(passed).model_dump(mode="json", by_alias=True)
    evidence = evidence_of(passed)
    evidence["exit_code"] = 0.0
    assert first_difference(evidence, derived, "") == "exit_code is 0.0, the captured bytes give 0"
    evidence["exit_code"] = False
    assert first_difference(evidence, derived, "") == "exit_code is False, the captured bytes give 0"


def test_reformatted_manifest_and_another_suite(passed: Path, tampered: Copy) -> None:
    campaign = tampered()
    manifest = json.loads((campaign / "manifest.json").read_text())
    (campaign / "manifest.json").write_text(json.dumps(manifest))
    assert verify(campaign).problems == ["manifest.json isn't the file that was written: its bytes differ"]
    (campaign / "manifest.json").write_text("{}")
    assert verify(campaign).problems[0] == "manifest.json is no manifest of this version; get the original file"

    campaign = tampered()
    suite = json.loads((campaign / "suite.json").read_text())
    suite["prompts"][0]["prompt"] += " Thanks."
    (campaign / "suite.json").write_text(json.dumps(suite))
    repair(campaign)
    assert "suite.json isn't the suite that was sent: its sha256 differs from the plan's" in verify(campaign).problems


def test_journal_without_its_end_is_not_an_unfinished_campaign(tampered: Copy) -> None:
    """Else a cut would turn a campaign that is checked whole into one that is checked as far as it goes."""
    campaign = tampered()
    path = campaign / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    first, second = verify(campaign).problems
    assert first.startswith("journal.jsonl isn't the file that was recorded")
    assert second.startswith("evidence.json: status is 'passed', the captured bytes give 'interrupted'")
    repair(campaign)
    assert verify(campaign).problems == [second]


def test_edited_plan(tampered: Copy) -> None:
    campaign = tampered()
    path = campaign / "journal.jsonl"
    path.write_text(path.read_text().replace('"--max-num-seqs", "1"', '"--max-num-seqs", "2"', 1))
    repair(campaign)
    assert verify(campaign).problems == ["journal.jsonl: plan_sha256 isn't the hash of the plan; the plan was edited"]


def test_directory_that_is_no_campaign(tmp_path: Path) -> None:
    found = verify(tmp_path)
    assert found.problems == [f"{tmp_path.name} has no journal.jsonl; give the directory of a campaign"]
    assert headline(found) == f"does not verify: {found.problems[0]}"
    assert headline(Verification()) == "does not verify"
