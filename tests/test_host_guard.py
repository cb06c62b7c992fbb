"""Whole campaigns on a written host with cards: faults, an unreadable log, probes that are needed, telemetry."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BenchError, Interrupted
from harness.evidence import journal, store
from harness.evidence.loading import AttemptFiles, load_attempts
from harness.evidence.power_use import power_use, rung_power, telemetry_unknown, window_of
from harness.evidence.schema import Evidence
from harness.evidence.verify import verify
from harness.host.faults import Moment
from harness.host.flight import LogCheck
from harness.host.kernel_log import AGAIN
from harness.host.telemetry import Sample
from harness.host_guard import HostGuard, watch
from harness.lanes import load_lane
from harness.launch.server import ImageFacts
from harness.preparing import LadderOptions
from harness.wire.exchange import Exchange
from tests.bench import campaign_of, gate_of
from tests.card_host import WATTS, CardHost, card_host, launcher, measure, still_host
from tests.host.fault_lines import BENIGN, FIRST
from tests.ladders import SHAPES
from tests.launch.conftest import tiny_plan

CARD = "0000:03:00.0"
S = 1_000_000_000


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A campaign without a fault; never to be changed."""
    with card_host(tmp_path_factory.mktemp("cards")) as host:
        host.say(BENIGN)
        evidence = measure(host)
        return campaign_of(host.home), evidence


def failed(evidence: Any) -> set[str]:
    """Gates that failed, but for the one that says how busy this machine is."""
    gates = [gate for attempt in evidence["attempts"] for gate in attempt["gates"]]
    return {gate["name"] for gate in gates if not gate["passed"]} - {"client"}


def test_no_fault(measured: tuple[Path, Any]) -> None:
    directory, evidence = measured
    assert failed(evidence) == set()
    assert gate_of(evidence, "host")["notes"] == ["kernel log: read whole from file"]
    record = evidence["attempts"][1]["server"]["host"]
    assert record["cards"] == [CARD]
    states = [record[name]["state"] for name in ("boot", "before", "after")]
    assert states == ["measured"] * 3
    first, second = (item["server"]["host"] for item in evidence["attempts"])
    assert first["before"]["since"] == evidence["start"]["moment"]
    # No moment of the campaign lies between two checks.
    assert second["before"]["since"] == first["after"]["at"]
    assert not any("kernel log" in line or "telemetry: " in line for line in evidence["unknown"])
    assert verify(directory).problems == []


def test_host_facts_of_every_card(measured: tuple[Path, Any]) -> None:
    facts = measured[1]["start"]["host"]["facts"]
    assert facts["cards"]["value"] == [CARD, "0000:83:00.0"]
    for card in facts["cards"]["value"]:
        assert facts[f"card {card} power_cap_watts"] == {"state": "measured", "value": 290.0, "note": "power1_cap"}
        assert facts[f"card {card} bar_full"]["value"] is True
        assert facts[f"card {card} guc_version"]["state"] == "unknown"
    assert f"host fact card {CARD} guc_version: unknown" in measured[1]["unknown"]


def assert_measured_or_said(attempt: Any, evidence: Any) -> None:
    """The written host and its reader are threads on a machine that may be busy: unknown then, and said."""
    use = attempt["power_use"]
    power = use["power"]
    for note in use["notes"]:
        assert f"{attempt['label']}: energy: unknown ({note})" in evidence["unknown"]
    assert (power["joules"] is None) == bool(use["notes"])
    if power["joules"] is not None:
        assert power["joules"] == pytest.approx(power["mean_watts"] * power["seconds"])
        assert power["tokens_per_joule"] == pytest.approx(power["tokens"] / power["joules"])
        assert power["joules"] > 0
    assert power["throttled"] in ("no", "unknown")


def test_telemetry_in_evidence(measured: tuple[Path, Any]) -> None:
    directory, evidence = measured
    for attempt in evidence["attempts"]:
        power = attempt["power_use"]["power"]
        (card,) = power["cards"]
        (other,) = attempt["power_use"]["other_cards"]
        assert (card["card"], other["card"]) == (CARD, "0000:83:00.0")
        assert power["tokens"] == sum(row["completion_tokens"] for row in attempt["rows"]) == 12 * 110
        assert_measured_or_said(attempt, evidence)
        lines = (directory / "attempts" / attempt["label"] / store.TELEMETRY).read_text().splitlines()
        assert json.loads(lines[0])["cards"] == [CARD, "0000:83:00.0"]
        # It runs before the first and after the last request.
        assert len(lines) - 1 > card["samples"] + other["samples"]


def copied(measured: tuple[Path, Any], tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(measured[0], tmp_path / measured[0].name))


def test_an_edited_sample_is_found(measured: tuple[Path, Any], tmp_path: Path) -> None:
    directory = copied(measured, tmp_path)
    path = directory / "attempts/mtp0-a" / store.TELEMETRY
    lines = path.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1])
    mid = json.loads(lines[len(lines) // 2])
    mid[8] = True  # throttled
    lines[len(lines) // 2] = json.dumps(mid) + "\n"
    assert len(last) == len(mid)
    path.write_text("".join(lines))
    problems = verify(directory).problems
    assert problems[0].startswith("attempts/mtp0-a/telemetry.jsonl isn't the file that was recorded")
    store.write_manifest(directory)  # even with a manifest that fits
    assert any("power_use" in problem and "throttled" in problem for problem in verify(directory).problems)


def test_telemetry_that_is_taken_away_is_found(measured: tuple[Path, Any], tmp_path: Path) -> None:
    directory = copied(measured, tmp_path)
    (directory / "attempts/mtp0-a" / store.TELEMETRY).unlink()
    store.write_manifest(directory)
    assert "power_use" in verify(directory).problems[0]


def test_a_fault_taken_out_of_the_record_is_found(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:

        def at(label: str, index: int) -> None:
            if (label, index) == ("mtp0-a", 5):
                host.say(FIRST)

        evidence = measure(host, at=at)
    assert (evidence["status"], evidence["exit_code"], evidence["withheld"]) == ("withheld", 1, True)
    gate = gate_of(evidence, "host")
    assert not gate["passed"]
    (failure,) = gate["failures"]
    assert failure.startswith("mtp0-a: the kernel log has fault response") and FIRST in failure
    assert [item["label"] for item in evidence["attempts"]] == ["mtp0-a"], "no server is started after a fault"
    assert evidence["attempts"][0]["class_balanced_median"] > 0, "a failed gate never deletes a speed"
    directory = campaign_of(tmp_path)
    assert verify(directory).problems == []
    path = directory / "attempts/mtp0-a" / store.SERVER
    record = json.loads(path.read_text())
    record["host"]["after"]["faults"] = []
    path.write_bytes(store.dump_json(record))
    store.write_manifest(directory)
    assert verify(directory).problems != []


def test_an_unreadable_log_is_unknown_and_said_aloud(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:
        evidence = measure(host, replace(host.roots, kernel_log=tmp_path / "absent.log"))
    gate = gate_of(evidence, "host")
    assert gate["passed"]
    assert [note.split(": ", 1)[1] for note in gate["notes"]] == [
        "unknown (before the campaign: file absent.log: No such file or directory)",
        "unknown (before the server: file absent.log: No such file or directory)",
        "unknown (while it ran: file absent.log: No such file or directory)",
    ]
    assert sum("kernel log: unknown" in line for line in evidence["unknown"]) == 6
    assert failed(evidence) == set()


def test_another_boot_is_unknown(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\n")
    boot = proc / "sys/kernel/random/boot_id"
    boot.write_text("11111111-1111-1111-1111-111111111111\n")
    with card_host(tmp_path) as host:

        def at(label: str, index: int) -> None:
            if (label, index) == ("mtp0-a", 3):
                boot.write_text("22222222-2222-2222-2222-222222222222\n")

        evidence = measure(host, replace(host.roots, proc=proc), at=at)
    notes = gate_of(evidence, "host")["notes"]
    again = "the host has been started again since, and its log with it"
    assert notes == [f"kernel log: unknown (while it ran: {again})"]


OLD = Moment(boot_id="11111111-1111-1111-1111-111111111111", monotonic_ns=10**15, realtime_ns=1)
RESET = "xe 0000:03:00.0: [drm] GT0: engine reset: engine_class=ccs"


def test_a_guard_of_another_boot_finds_the_fault_of_this_one(tmp_path: Path) -> None:
    host = still_host(tmp_path)
    guard = HostGuard(host.roots, [CARD], LogCheck(state="measured"), OLD)
    host.say(RESET)
    record = guard.before()
    assert [fault.what for fault in record.before.faults] == ["engine reset"]
    assert (record.before.state, record.before.why) == ("unknown", AGAIN), "once, and then it is measured again"
    after = guard.after(record, None).after
    assert after is not None and (after.state, after.faults, after.since) == ("measured", [], record.before.at)


def test_a_campaign_resumed_after_a_reboot_looks_at_the_new_boot(tmp_path: Path) -> None:
    host = still_host(tmp_path)
    lane = load_lane(str(launcher(tmp_path)))
    plan = tiny_plan("docker", env={"ZE_AFFINITY_MASK": "0"})
    notes: list[str] = []
    guard = watch(lane, plan, None, host.roots, notes.append, campaign="c", begun=OLD)
    assert notes == [f"kernel log between the runs: unknown ({AGAIN})"]
    first = guard.before()
    assert (first.before.state, first.before.faults) == ("unknown", [])
    assert first.before.why == f"between the runs: {AGAIN}"
    host.say(RESET)
    after = guard.after(first, None).after
    assert after is not None
    assert (after.state, after.since, [fault.what for fault in after.faults]) == (
        "measured",
        first.before.at,
        ["engine reset"],
    )
    assert guard.before().before.state == "measured"


def test_a_boot_with_a_fault_on_which_no_probe_reaches_the_card(tmp_path: Path) -> None:
    host = still_host(tmp_path)
    host.say(RESET)
    lane = load_lane(str(launcher(tmp_path)))
    plan = tiny_plan("docker", env={"ZE_AFFINITY_MASK": "0"}, container=load_lane("qwen35-4b-w4a16").container)
    image = ImageFacts(name="x", id="x", repo_digests=[], storage_driver="x", labels={}, entrypoint=[], env={})
    with pytest.raises(BenchError, match=r"no probe can run .*VLLM_TARGET_DEVICE is not set"):
        watch(lane, plan, image, host.roots, lambda text: None, campaign="c")


def refused(host: CardHost, **changes: Any) -> str:
    with pytest.raises(BenchError) as caught:
        measure(host, **changes)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_boot_with_a_fault_is_refused_where_no_probe_can_run(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:
        host.say(FIRST)
        said = refused(host)
    assert "this boot's kernel log has a fault of the cards (fault response" in said
    assert "no probe can run without a container of an image; start the host again" in said
    assert not (tmp_path / "experiments").exists(), "nothing was started"


def first_attempt(directory: Path) -> tuple[AttemptFiles, list[Exchange]]:
    """Of a campaign: what it holds, and its measured exchanges."""
    files = load_attempts(directory, journal.load(directory))[0]
    assert files.capture is not None
    return files, [exchange for _, exchange in files.capture.of_kind("suite")]


def drawing(files: AttemptFiles, exchanges: list[Exchange], *watts: float) -> AttemptFiles:
    """The same, its telemetry one of cards that drew so much, read every quarter of a second from long before on."""
    window = window_of(exchanges)
    assert window is not None
    start, end = window[0] - S, window[1] + S
    every = range(start, end, S // 4)
    cards = dict(zip((CARD, "0000:83:00.0"), watts, strict=True))
    telemetry = [
        Sample(at, card, round((at - start) / 1000 * power), throttled=False)
        for at in every
        for card, power in cards.items()
    ]
    return replace(files, telemetry=telemetry)


def test_energy_of_a_server_from_its_samples(measured: tuple[Path, Any]) -> None:
    files, exchanges = first_attempt(measured[0])
    use = power_use(drawing(files, exchanges, *WATTS), exchanges, 1320)
    assert use is not None and use.notes == []
    assert use.power.mean_watts == pytest.approx(WATTS[0])
    assert use.power.joules == pytest.approx(WATTS[0] * use.power.seconds)
    assert use.power.tokens_per_joule == pytest.approx(1320 / (WATTS[0] * use.power.seconds))
    assert [card.mean_watts for card in use.other_cards] == [pytest.approx(WATTS[1])]


def test_a_card_that_the_server_was_not_given_drew_more(measured: tuple[Path, Any]) -> None:
    files, exchanges = first_attempt(measured[0])
    use = power_use(drawing(files, exchanges, 5.0, 100.0), exchanges, 1320)
    assert use is not None
    assert (use.power.joules, use.power.mean_watts, use.power.tokens_per_joule) == (None, None, None)
    (note,) = use.notes
    assert note.startswith("0000:83:00.0 drew more than a card that this server was given")
    attempt = Evidence.model_validate(measured[1]).attempts[0]
    told = telemetry_unknown([attempt.model_copy(update={"power_use": use})])
    assert f"mtp0-a: energy: unknown ({note})" in told


def test_energy_of_rungs_from_their_samples(measured: tuple[Path, Any]) -> None:
    files, exchanges = first_attempt(measured[0])
    batches = {(1, 1): exchanges[:3], (1, 2): exchanges[3:6], (2, 1): exchanges[6:9], (2, 2): exchanges[9:]}
    tokens = dict.fromkeys(batches, 330)
    rungs = rung_power(drawing(files, exchanges, *WATTS), batches, tokens)
    assert [(rung.rung, rung.passes, rung.tokens) for rung in rungs] == [(1, [2], 330), (2, [2], 330)]
    for rung in rungs:
        assert rung.mean_watts == pytest.approx(WATTS[0])
        assert rung.joules == pytest.approx(WATTS[0] * rung.seconds)
    (doubtful, _) = rung_power(drawing(files, exchanges, 5.0, 100.0), batches, tokens)
    assert (doubtful.joules, doubtful.mean_watts, doubtful.tokens_per_joule) == (None, None, None)
    assert "drew more" in doubtful.notes[0]


def test_a_throttled_card_is_said(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:

        def at(label: str, index: int) -> None:
            host.tree.throttle(0, *(["pl1"] if 3 <= index <= 9 else []))

        evidence = measure(host, at=at)
    card = evidence["attempts"][0]["power_use"]["power"]["cards"][0]
    assert card["throttled"] == "yes" and card["throttle_reasons"].get("pl1", 0) > 0


def test_a_lane_without_cards_is_not_applicable(passed: Path) -> None:
    evidence = json.loads((passed / "evidence.json").read_text())
    for attempt in evidence["attempts"]:
        assert attempt["server"]["host"]["cards"] is None
        assert "power_use" not in attempt
    assert gate_of(evidence, "host")["notes"] == ["kernel log: not applicable (launcher fast uses no card)"]
    assert not any("telemetry" in line for line in evidence["unknown"])


LADDER = LadderOptions(rungs=(1, 2), passes=2)


def ladder(host: CardHost, **changes: Any) -> Any:
    path = launcher(host.home, step_us=600, ids=None)
    path.write_text(path.read_text() + SHAPES)
    return measure(host, path=path, suite="ladder-v1", ladder=LADDER, **changes)


def test_power_of_each_rung_of_a_ladder(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:
        evidence = ladder(host)
    (attempt,) = evidence["attempts"]
    assert [rung["rung"] for rung in attempt["rung_power"]] == [1, 2]
    for rung in attempt["rung_power"]:
        assert rung["passes"] == [2], "the warm pass is in no figure"
        assert rung["tokens"] == 128 * rung["rung"]
        if rung["joules"] is None:
            assert rung["notes"], "unknown has a reason"
        else:
            assert rung["tokens_per_joule"] == pytest.approx(rung["tokens"] / rung["joules"])
        assert rung["throttled"] in ("no", "unknown"), rung
    assert_measured_or_said(attempt, evidence)
    assert gate_of(evidence, "host", "mtp0")["passed"]
    assert verify(campaign_of(tmp_path)).problems == []


def test_a_fault_on_the_oracle_server_withholds_a_ladder(tmp_path: Path) -> None:
    with card_host(tmp_path) as host:

        def at(label: str, rung: int) -> None:
            if (label, rung) == ("mtp0-oracle", 0):
                host.say(FIRST)

        evidence = ladder(host, depth=3, at=at)
    assert [attempt["label"] for attempt in evidence["attempts"]] == ["mtp0-oracle"]
    assert (evidence["status"], evidence["exit_code"], evidence["withheld"]) == ("withheld", 1, True)
    assert any(FIRST in reason for reason in evidence["reasons"])
    assert verify(campaign_of(tmp_path)).problems == []


def test_a_fault_of_an_interrupted_run_fails_the_resumed_campaign(tmp_path: Path) -> None:
    """It was on this boot before the resume, so probes would be needed; none can run here."""
    with card_host(tmp_path) as host:

        def at(label: str, index: int) -> None:
            if (label, index) == ("mtp0-b", 2):
                host.say(FIRST)
                raise Interrupted("interrupted by a test")

        path = launcher(host.home, step_us=600)
        evidence = measure(host, at=at, path=path)
        assert evidence["status"] == "interrupted"
        said = refused(host, path=path, resume=campaign_of(tmp_path))
    assert "this boot's kernel log has a fault of the cards" in said
    assert verify(campaign_of(tmp_path)).problems == []
