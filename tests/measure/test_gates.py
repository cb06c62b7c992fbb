import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.measure.gates import (
    Arm,
    Gate,
    cache_zero_gate,
    client_gate,
    degenerate_gate,
    identity_gate,
    stream_gate,
    workload_gate,
)
from harness.measure.rows import Row
from harness.wire.completion import Reason
from tests.measure.factory import SUITE, make_ids, make_row, make_rows, replace_row

MTP = ["--speculative-config", '{"method":"qwen3_5_mtp","num_speculative_tokens":3}']
BASE = ["--model", "/model", "--max-num-seqs", "1"]


def make_arm(label: str = "mtp0-a", **changes: Any) -> Arm:
    fields: dict[str, Any] = {
        "label": label,
        "rows": make_rows(),
        "server_id": f"server-{label}",
        "image_id": "sha256:01",
        "suite_sha256": "ab" * 32,
        "environment": {"PYTHONHASHSEED": "0"},
        "arguments": BASE,
        "depth": 0,
    }
    return Arm(**(fields | changes))


def mtp3_arm(**changes: Any) -> Arm:
    fields: dict[str, Any] = {
        "depth": 3,
        "arguments": [*BASE, *MTP],
        "environment": {"PYTHONHASHSEED": "0", "DRAFT_HEAD": "1"},
    }
    return make_arm("mtp3-a", **(fields | changes))


def g3(left: Arm, right: Arm) -> Gate:
    return identity_gate(
        "G3",
        left,
        right,
        allowed_env=frozenset({"DRAFT_HEAD"}),
        allowed_args=frozenset({"--speculative-config"}),
        expected_total=12,
    )


def all_row_gates(rows: list[Row]) -> list[Gate]:
    return [
        workload_gate("mtp0-a", rows, SUITE),
        stream_gate("mtp0-a", rows),
        cache_zero_gate("mtp0-a", rows),
        degenerate_gate("mtp0-a", rows),
        client_gate("mtp0-a", rows, [20.0] * 100, [10.0] * 100, 0.1, "kernel"),
    ]


def test_a_good_attempt_passes_every_gate() -> None:
    gates = all_row_gates(make_rows())
    assert [gate.name for gate in gates] == ["workload", "stream", "cache-zero", "degenerate", "client"]
    assert [gate.failures for gate in gates] == [[]] * 5
    assert all(gate.passed and gate.subject == "mtp0-a" for gate in gates)


def test_no_gate_passes_on_no_rows() -> None:
    gates = [*all_row_gates([]), workload_gate("mtp0-a", [], [])]
    gates += [identity_gate(name, make_arm(rows=[]), make_arm("mtp0-b", rows=[])) for name in ("G1", "G2", "G3")]
    assert not any(gate.passed for gate in gates)
    assert all(gate.failures for gate in gates)


def test_a_verdict_that_its_failures_contradict_is_refused() -> None:
    for passed, failures in ((True, ["x"]), (False, [])):
        with pytest.raises(ValidationError, match="derive it again from the rows"):
            Gate(name="stream", subject="mtp0-a", passed=passed, failures=failures)


def failures_of(gate: Gate) -> str:
    assert not gate.passed
    assert all(failure.startswith(f"{gate.subject}: ") for failure in gate.failures)
    return "\n".join(gate.failures)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt_sha256": "00" * 32}, "prompt-02 was sent as text 000000000000 where the suite has"),
        ({"prompt_sha256": SUITE[3][2]}, "two prompts have the text"),
        ({"prompt_class": "prose"}, "prompt-02 has class prose where the suite has operations"),
        ({"prompt_id": "prompt-03"}, "prompt-03 ran 2 times"),
        ({"prompt_id": "prompt-03"}, "prompt-02 did not run"),
        ({"prompt_id": "stray"}, "stray ran and isn't in the suite"),
        ({"request_id": "bench-test-03-prompt-03"}, "request id bench-test-03-prompt-03 was sent twice"),
        ({"index": 5}, "prompt-02 is marked as place 5 and stands at 2"),
        ({"token_ids": make_ids(2, 99)}, "prompt-02 has 99 ids, fewer than 100"),
        ({"token_ids": make_ids(2, 513)}, "prompt-02 has 513 ids, more than the cap of 512"),
        ({"finish_reason": "length"}, "prompt-02 ended by length at 128 ids, so its cap wasn't 512"),
    ],
)
def test_workload_finds_one_wrong_row(changes: dict[str, Any], said: str) -> None:
    assert said in failures_of(workload_gate("mtp0-a", replace_row(make_rows(), 2, **changes), SUITE))


def test_workload_accepts_exactly_100_and_exactly_the_cap() -> None:
    rows = [make_row(0, count=100), make_row(1, count=512), *make_rows()[2:]]
    assert rows[1].finish_reason == "length"
    assert workload_gate("mtp0-a", rows, SUITE).passed


def test_workload_finds_order_subsets_and_screening_runs() -> None:
    rows = make_rows()
    swapped = [rows[1], rows[0], *rows[2:]]
    assert "prompt-01 ran at place 0, where the suite has prompt-00" in failures_of(
        workload_gate("mtp0-a", swapped, SUITE)
    )
    assert "prompt-11 did not run" in failures_of(workload_gate("mtp0-a", rows[:-1], SUITE))
    assert "the prompts have 1 classes, fewer than 5" in failures_of(workload_gate("mtp0-a", rows[:1], SUITE[:1]))
    assert "max_tokens was 128 where the suite asks for 512" in failures_of(
        workload_gate("mtp0-a", rows, SUITE, max_tokens=128)
    )


@pytest.mark.parametrize("reason", list(Reason))
def test_stream_names_the_reason_of_an_incomplete_row(reason: Reason) -> None:
    rows = [*make_rows()[:-1], make_row(11, reason=reason)]
    said = failures_of(stream_gate("mtp0-a", rows))
    assert said == f"mtp0-a: prompt-11 is incomplete ({reason.value}): the row is invalid as {reason.value}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_ids": [], "completion_tokens": 0, "chunks": []}, "has no ids"),
        ({"finish_reason": None}, "has finish_reason None"),
        ({"finish_reason": "abort"}, "has finish_reason abort"),
        ({"completion_tokens": 127}, "has 128 ids where usage counts 127"),
        ({"completion_tokens": None}, "has 128 ids where usage counts None"),
        ({"chunks": [(5, 127)]}, "has 128 ids and 127 in its chunks"),
        ({"stream_id": None}, "has no stream id"),
        ({"clock_step_ms": -0.6}, "saw a clock step of -0.600 ms"),
    ],
)
def test_stream_does_not_trust_a_row_that_is_called_complete(changes: dict[str, Any], said: str) -> None:
    rows = replace_row(make_rows(), 0, **changes)
    assert f"prompt-00 is called complete and {said}" in failures_of(stream_gate("mtp0-a", rows))


def test_stream_fails_a_complete_row_that_has_a_reason() -> None:
    rows = replace_row(make_rows(), 0, reason="stream-cut")
    assert "prompt-00 is incomplete (stream-cut)" in failures_of(stream_gate("mtp0-a", rows))


def test_stream_ids_are_one_per_row() -> None:
    rows = replace_row(make_rows(), 1, stream_id="cmpl-0")
    assert "2 rows have the stream id cmpl-0" in failures_of(stream_gate("mtp0-a", rows))


def test_stream_passes_a_small_clock_step_and_notes_warnings() -> None:
    rows = replace_row(make_rows(), 1, clock_step_ms=0.5, warnings=["cold: TTFT was long"])
    gate = stream_gate("mtp0-a", rows)
    assert gate.passed
    assert gate.notes == ["prompt-01: cold: TTFT was long"]


@pytest.mark.parametrize(
    ("cached", "said"), [(None, "prompt-07 has no cached_tokens"), (16, "prompt-07 took 16 prompt tokens from a cache")]
)
def test_cache_zero_fails_on_missing_as_on_any_other_number(cached: int | None, said: str) -> None:
    assert said in failures_of(cache_zero_gate("mtp0-a", replace_row(make_rows(), 7, cached_tokens=cached)))


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([0] * 128, "has the id 0 in 128 of its 128 places"),
        ([9] * 65 + make_ids(0, 63), "has the id 9 in 65 of its 128 places"),
        ([*make_ids(0, 448), *[9] * 64], "ends in 64 times the id 9"),
        ([], "has no ids"),
    ],
)
def test_degenerate_output_is_a_failure(ids: list[int], said: str) -> None:
    assert said in failures_of(degenerate_gate("mtp0-a", replace_row(make_rows(), 0, token_ids=ids)))


@pytest.mark.parametrize("ids", [[9] * 64 + make_ids(0, 64), [*make_ids(0, 448), 8, *[9] * 63]])
def test_exactly_half_and_63_at_the_end_are_not_degenerate(ids: list[int]) -> None:
    assert degenerate_gate("mtp0-a", replace_row(make_rows(), 0, token_ids=ids)).passed


def client(lags: list[float], gaps: list[float], cpu: float | None = 0.1) -> Gate:
    return client_gate("mtp0-a", make_rows(), lags, gaps, cpu, "kernel")


def test_client_lag_is_held_to_a_tenth_of_the_median_gap() -> None:
    assert client([2000.0] * 200, [20.0] * 5).passed
    assert client([20.0] * 199 + [9000.0], [20.0] * 5).passed
    assert client([20.0] * 190 + [9000.0] * 10, [20.0] * 5).failures == [
        "mtp0-a: the client's lag p99 of 9000.0 µs exceeds a tenth of the median inter-chunk gap 20.000 ms"
    ]
    assert "largest lag of 2000.1 µs" in failures_of(client([20.0, 2000.1], [20.0]))
    assert not client([20.0] * 200, [0.0]).passed


def test_client_cpu_is_held_to_four_fifths_of_a_core() -> None:
    assert client([20.0], [20.0], 0.8).passed
    assert "the client used 0.93 of a core, more than 0.8" in failures_of(client([20.0], [20.0], 0.93))
    assert not client([20.0], [20.0], math.nan).passed
    assert not client([math.nan], [20.0]).passed


def test_what_the_client_could_not_measure_is_said() -> None:
    gate = client_gate("mtp0-a", make_rows(), [], [20.0], None, "user")
    assert gate.passed
    assert gate.notes == [
        "timestamps: user",
        "client lag: unknown (no read has a kernel time)",
        "client CPU: unknown",
    ]
    assert any("bound unknown (no inter-chunk gap)" in note for note in client([20.0], []).notes)


def test_identity_of_two_fresh_servers() -> None:
    gate = identity_gate("G1", make_arm(), make_arm("mtp0-b"), expected_total=12)
    assert (gate.passed, gate.name, gate.subject, gate.exact, gate.total) == (True, "G1", "mtp0-a vs mtp0-b", 12, 12)
    gate = g3(mtp3_arm(), make_arm())
    assert (gate.passed, gate.subject, gate.exact, gate.total) == (True, "mtp3-a vs mtp0-a", 12, 12)
    assert gate.notes == ["declared difference: environment DRAFT_HEAD"]


def test_a_flipped_id_fails_with_place_ids_and_lengths() -> None:
    rows = make_rows(count=512)
    left, right = list(rows[6].token_ids), list(rows[6].token_ids)
    left[57], right[57] = 4711, 815
    gate = g3(mtp3_arm(rows=replace_row(rows, 6, token_ids=left)), make_arm(rows=replace_row(rows, 6, token_ids=right)))
    assert gate.failures == ["G3 mtp3-a vs mtp0-a: prompt-06 differs at token 57: 4711 against 815 (512 and 512 ids)"]
    assert (gate.exact, gate.total) == (11, 12)
    assert gate.divergences[0].first_divergence_token_zero_based == 57


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"server_id": "server-mtp0-a"}, "mtp0-a and mtp0-b are the same server"),
        ({"server_id": ""}, "a server has no id"),
        ({"image_id": "sha256:02"}, "mtp0-a has image sha256:01 and mtp0-b has sha256:02"),
        ({"image_id": ""}, "the image of mtp0-b is unknown"),
        ({"suite_sha256": "cd" * 32}, "has suite abab"),
        ({"suite_sha256": ""}, "the suite of mtp0-b is unknown"),
        ({"environment": {"PYTHONHASHSEED": "1"}}, "PYTHONHASHSEED is '0' for mtp0-a and '1' for mtp0-b"),
        ({"environment": {}}, "PYTHONHASHSEED is '0' for mtp0-a and unset for mtp0-b"),
        ({"arguments": [*BASE[:-1], "2"]}, "the server arguments differ at 3: 1 for mtp0-a and 2 for mtp0-b"),
        ({"arguments": [*BASE, "--enforce-eager"]}, "differ at 4: nothing for mtp0-a and --enforce-eager for mtp0-b"),
        ({"arguments": [*BASE, *MTP]}, "mtp0-b has depth 0 and a speculative config, so it is no oracle"),
        ({"arguments": [*BASE, f"--speculative-config={MTP[1]}"]}, "mtp0-b has depth 0 and a speculative config"),
        ({"depth": 3}, "mtp0-a has depth 0 and mtp0-b 3, which isn't declared"),
        ({"rows": make_rows()[:-1]}, "prompt-11 is missing on the right side"),
        ({"rows": make_rows(count=99)}, "prompt-00 has 99 ids on the right side, fewer than 100"),
    ],
)
def test_identity_needs_two_servers_of_one_configuration(changes: dict[str, Any], said: str) -> None:
    gate = identity_gate("G1", make_arm(), make_arm("mtp0-b", **changes))
    assert not gate.passed
    assert all(failure.startswith("G1 mtp0-a vs mtp0-b: ") for failure in gate.failures)
    assert said in "\n".join(gate.failures)


def test_g3_allows_only_the_declared_difference() -> None:
    assert not g3(mtp3_arm(environment={"PYTHONHASHSEED": "0", "CLASSPAD": "1"}), make_arm()).passed
    assert not g3(mtp3_arm(arguments=[*BASE, *MTP, "--enforce-eager"]), make_arm()).passed
    assert g3(mtp3_arm(arguments=[BASE[0], BASE[1], f"{MTP[0]}={MTP[1]}", *BASE[2:]]), make_arm()).passed
    assert not g3(mtp3_arm(arguments=[*BASE, f"{MTP[0]}={MTP[1]}", "stray"]), make_arm()).passed
    assert not identity_gate("G3", mtp3_arm(), make_arm()).passed
    assert "neither mtp3-a nor mtp2-a has depth 0" in "\n".join(
        g3(mtp3_arm(), make_arm("mtp2-a", depth=2, arguments=[*BASE, *MTP])).failures
    )


def test_both_arms_without_one_prompt_are_found_by_the_expected_total() -> None:
    rows = make_rows()[:-1]
    gate = identity_gate("G1", make_arm(rows=rows), make_arm("mtp0-b", rows=rows), expected_total=12)
    assert gate.failures == ["G1 mtp0-a vs mtp0-b: 11 prompts were compared where the suite has 12"]


@given(st.integers(0, 11), st.integers(0, 127), st.integers(1, 9), st.booleans())
def test_no_changed_id_passes_an_identity_gate(index: int, at: int, by: int, cut: bool) -> None:
    rows = make_rows()
    changed = list(rows[index].token_ids)
    if cut:
        del changed[max(at, 100) :]
    else:
        changed[at] += by
    gate = g3(mtp3_arm(rows=replace_row(rows, index, token_ids=changed)), make_arm(rows=rows))
    assert not gate.passed
    assert (gate.exact, gate.total, len(gate.divergences)) == (11, 12, 1)
    assert gate.divergences[0].first_divergence_token_zero_based == (max(at, 100) if cut else at)


@given(st.sets(st.integers(0, 11), max_size=12))
def test_an_attempt_passes_only_when_all_twelve_ran(missing: set[int]) -> None:
    rows = [row for row in make_rows() if row.index not in missing]
    assert workload_gate("mtp0-a", rows, SUITE).passed == (not missing)
