"""Ratios, intervals, verdicts, answers and marks of two campaigns, made by hand so that the truth is known."""

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.errors import UsageError
from harness.evidence.schema import AttemptStatus, Evidence, Status
from harness.measure.gates import Gate
from harness.measure.ladder import Batch
from harness.measure.rows import Row
from harness.publish.campaigns import Campaign
from harness.publish.compare import Comparison, as_json, compare, like, refusal
from harness.publish.compare_text import comparison_text
from tests.measure.factory import SUITE, make_row
from tests.measure.test_ladder import away, batch, request
from tests.publish import made

CLASSES = list(dict.fromkeys(name for _, name, _ in SUITE))
PROMPTS = [name for name, _, _ in SUITE]


def strict(a: float, b: float, base: float = 100.0, **options: Any) -> Evidence:
    """A campaign whose measured servers give ``a`` and ``b`` tokens/s on every prompt."""
    speeds = {"mtp0-a": [base], "mtp0-b": [base], "mtp3-a": [a], "mtp3-b": [b]}
    return made.strict(speeds, **options)


def compared(a: Any, b: Any, fail_below: float | None = None, vary: Sequence[str] = ()) -> Comparison:
    one, two = Campaign(Path("a"), a), Campaign(Path("b"), b)
    return compare(one, two, like(one, two, vary), fail_below)


def text_of(found: Comparison) -> str:
    said = io.StringIO()
    console = Console(width=400, file=said)
    for part in comparison_text(found, "bench x"):
        console.print(part)
    return said.getvalue()


def test_a_difference_larger_than_the_spread() -> None:
    found = compared(strict(199.8, 200.2), strict(206.9, 207.1, name="d"))
    base, measured = found.pairs
    assert (base.name, measured.name) == ("mtp0", "mtp3")
    assert base.center.ratio is not None and base.center.ratio.value == 1.0
    assert base.verdict == (
        "mtp0: no difference larger than the spread of a pair (0.0%): B is 1.000 times A (95 % 1.000 to 1.000)"
    )
    assert measured.center.a == pytest.approx(200.0, rel=1e-6) and measured.center.b == pytest.approx(207, rel=1e-6)
    assert measured.verdict == (
        "mtp3: B is 1.035 times A (95 % 1.033 to 1.037), larger than the spread of a pair (0.2%)"
    )
    assert (measured.servers_a, measured.servers_b) == (2, 2)
    assert [figure.name for figure in measured.classes] == CLASSES
    assert [figure.name for figure in measured.prompts] == PROMPTS
    for figure in [*measured.classes, *measured.prompts]:
        assert figure.ratio is not None and figure.ratio.value == pytest.approx(1.035, rel=1e-4)
    assert measured.ttft.unit == "ms" and measured.ttft.ratio is not None and measured.ttft.ratio.value == 1.0


def test_no_difference_larger_than_the_spread() -> None:
    found = compared(strict(190, 210), strict(198, 214, name="d"))
    assert found.pairs[1].verdict.startswith(
        "mtp3: no difference larger than the spread of a pair (10.0%): B is 1.030 times A (95 % 0.94"
    )


def test_an_interval_that_holds_one_is_said() -> None:
    speeds = {"mtp0-a": [100.0, 140, 70], "mtp0-b": [100.0, 140, 70]}
    other = {"mtp0-a": [104.0, 130, 90], "mtp0-b": [104.0, 130, 90]}
    verdict = compared(made.strict(speeds), made.strict(other, name="d")).pairs[0].verdict
    assert "larger than the spread of a pair (0.0%), but the interval holds 1" in verdict


@given(st.lists(st.floats(20.0, 500.0), min_size=4, max_size=4), st.integers(0, 3))
@settings(max_examples=5)
def test_the_ratio_is_that_of_the_evidences_own_centers(speeds: list[float], shift: int) -> None:
    values = [speeds[shift:] + speeds[:shift], speeds, speeds[::-1], [value * 1.1 for value in speeds]]
    a = made.strict(dict(zip(("mtp0-a", "mtp0-b"), values[:2], strict=True)))
    b = made.strict(dict(zip(("mtp0-a", "mtp0-b"), values[2:], strict=True)), name="d")
    (pair,) = compared(a, b).pairs
    assert (pair.center.a, pair.center.b) == (a.pairs[0].center, b.pairs[0].center)
    ratio = pair.center.ratio
    assert ratio is not None and pair.center.a is not None and pair.center.b is not None
    assert ratio.value == pytest.approx(pair.center.b / pair.center.a, rel=1e-12)
    assert ratio.low is not None and ratio.high is not None and ratio.low <= ratio.high
    assert compared(a, b) == compared(a, b)


def test_answers_that_are_equal_and_answers_that_are_not() -> None:
    def other(label: str, rows: list[Row]) -> list[Row]:
        if label != "mtp3-b":
            return rows
        ids = [*rows[4].token_ids]
        ids[57] = 9
        return [*rows[:4], make_row(4, token_ids=ids), *rows[5:]]

    found = compared(strict(200, 200), strict(200, 200, name="d", rows=other))
    assert [(pair.identity.equal, pair.identity.total) for pair in found.pairs] == [(12, 12), (11, 12)]
    (said,) = found.pairs[1].identity.differences
    assert said.startswith(f"{PROMPTS[4]} differs at token 57: ") and said.endswith("mtp3-a of A against mtp3-b of B")
    assert "11/12" in text_of(found) and said in text_of(found)


def test_other_prompts_give_no_interval_and_no_equal_answer() -> None:
    def renamed(label: str, rows: list[Row]) -> list[Row]:
        return [row.model_copy(update={"prompt_sha256": "0" * 64}) for row in rows]

    found = compared(strict(200, 200), strict(220, 220, name="d", rows=renamed))
    center = found.pairs[1].center
    assert center.ratio is not None and center.ratio.low is None
    assert center.ratio.value == pytest.approx(1.1, rel=1e-6) and center.why.startswith("the prompts differ")
    assert found.pairs[1].classes == found.pairs[1].prompts == []
    assert found.pairs[1].identity.equal == 0 and "another prompt text" in found.pairs[1].identity.differences[0]


def test_a_pair_that_is_not_whole_has_no_ratio() -> None:
    whole = strict(200, 200)
    part = strict(210, 210, name="d")
    gone = [item.model_copy(update={"status": AttemptStatus.INTERRUPTED}) for item in part.attempts[3:]]
    pair = part.pairs[1].model_copy(update={"b": None, "center": None, "spread": None})
    changes = {"attempts": [*part.attempts[:3], *gone], "pairs": [part.pairs[0], pair], "status": Status.INTERRUPTED}
    found = compared(whole, part.model_copy(update=changes), fail_below=0.9)
    assert found.pairs[1].center.ratio is None and found.pairs[1].servers_b == 1
    assert found.pairs[1].verdict == (
        "mtp3: no ratio, B has no such value, because a pair of complete attempts is missing"
    )
    assert found.fail_below is not None and found.fail_below.exit_code == 2
    assert found.pairs[0].center.marks_b == ["interrupted"]


def test_depths_that_differ_stand_beside_each_other() -> None:
    a = strict(200, 200)
    b = made.strict({"mtp0-a": [100], "mtp0-b": [100], "mtp2-a": [180], "mtp2-b": [180]}, name="d")
    found = compared(a, b, vary=["depth"])
    assert [pair.name for pair in found.pairs] == ["mtp0", "mtp3 in A, mtp2 in B"]
    ratio = found.pairs[1].center.ratio
    assert ratio is not None and ratio.value == pytest.approx(0.9, rel=1e-6)
    assert found.undeclared == [] and "subject: MTP depth is 3 in A and 2 in B" in text_of(found)


MARKS = [
    ({"simulated": True}, {}, "A simulated"),
    ({}, {"status": Status.WITHHELD}, "B withheld"),
    ({"status": Status.REJECTED}, {"simulated": True, "status": Status.INVALID}, "A rejected, B simulated, B invalid"),
]


@pytest.mark.parametrize(("one", "two", "said"), MARKS)
def test_marks_stand_wherever_a_number_stands(one: Any, two: Any, said: str) -> None:
    found = compared(strict(200, 202, **one), strict(210, 212, name="d", **two), fail_below=0.98)
    for pair in found.pairs:
        assert pair.verdict.endswith(f"({said})")
        for figure in [pair.center, pair.ttft, *pair.classes, *pair.prompts]:
            assert figure.mark() == f" ({said})"
    assert found.fail_below is not None
    figures = [line for line in found.fail_below.sentences if line.startswith("mtp")]
    assert len(figures) == 2 and all(line.endswith(f"({said})") for line in figures)
    words = {word.split()[1] for word in said.split(", ")}
    lines = [line for line in text_of(found).splitlines() if line.startswith("│") and " tokens/s" in line]
    assert len(lines) == 2 * (1 + 6 + 12)
    for line in lines:
        assert all(word in line.split("│")[4] for word in words), line
        assert all(word in line.split("│")[5] for word in words), line
    told = as_json(found)
    assert told["pairs"][1]["center"]["marks_a"] + told["pairs"][1]["center"]["marks_b"]


def test_an_unmarked_comparison_has_no_mark() -> None:
    text = text_of(compared(strict(200, 202), strict(210, 212, name="d")))
    assert "B / A" in text and not any(word in text for word in ("simulated", "withheld", "UNLIKE"))


def gate(name: str, passed: bool, exact: int | None = None) -> Gate:
    return Gate(
        name=name,
        subject="x vs y",
        passed=passed,
        failures=[] if passed else ["it failed"],
        exact=exact,
        total=None if exact is None else 12,
    )


def test_gates_side_by_side() -> None:
    a, b = strict(200, 200), strict(200, 200, name="d", gates=[gate("G1", True, 12), gate("G3", False, 2)])
    rows = {row.name: (row.a, row.b) for row in compared(a, b).gates}
    assert rows["G1 x vs y"] == ("–", "12/12 passed") and rows["G3 x vs y"] == ("–", "2/12 FAILED")
    assert rows["G1 mtp0-a vs mtp0-b"] == ("12/12 passed", "–")
    assert rows["stream, each server"] == ("4/4 passed", "4/4 passed")
    broken = b.attempts[0].model_copy(update={"gates": [gate("stream", False)]})
    worse = b.model_copy(update={"attempts": [broken, *b.attempts[1:]]})
    assert {row.name: row.b for row in compared(a, worse).gates}["stream, each server"] == "3/4 FAILED"


@pytest.mark.parametrize(("limit", "code"), [(0.98, 1), (0.95, 1), (math.nextafter(0.9, 0), 0), (0.5, 0)], ids=str)
def test_fail_below_asks_every_point_estimate(limit: float, code: int) -> None:
    slower = strict(180, 180, name="d")
    found = compared(strict(200, 200), slower, fail_below=limit)
    ratio = found.pairs[1].center.ratio
    assert ratio is not None and ratio.value == pytest.approx(0.9, rel=1e-6)
    assert found.fail_below is not None
    want = 1 if ratio.value < limit else 0
    assert found.fail_below.exit_code == want and (limit in (0.98, 0.95)) == (code == 1)
    assert len(found.fail_below.sentences) == 2


FAILED = {"status": Status.WITHHELD, "gates": [gate("G3", False, 2)]}
ATTACHED = {
    "change": lambda start: start.model_copy(update={"plan": start.plan.model_copy(update={"engine": "attach"})})
}
LIMITS: list[tuple[Any, Any, int, str]] = [
    ({}, {}, 0, "mtp0: "),
    ({}, FAILED, 1, "a gate of B failed (G3 of x vs y); its speed may not be published, so no ratio passes"),
    ({}, {"gates": [gate("G3", False, 2)]}, 1, "a gate of B failed (G3 of x vs y); "),
    ({}, {"status": Status.WITHHELD}, 1, "B is withheld: made by hand; its speed may not be published"),
    ({}, {"status": Status.REJECTED}, 1, "B is rejected: made by hand; its speed may not be published"),
    ({}, {"status": Status.INVALID}, 2, "B is invalid, so it has no verdict and neither has this comparison"),
    ({}, FAILED | {"status": Status.INVALID}, 2, "B is invalid, so it has no verdict"),
    ({"status": Status.INTERRUPTED}, {}, 2, "A is interrupted, so it has no verdict"),
    (ATTACHED, {}, 2, "A was measured on a server that bench did not start"),
    ({}, ATTACHED, 2, "B was measured on a server that bench did not start"),
    ({}, FAILED | ATTACHED, 1, "a gate of B failed (G3 of x vs y); "),
    ({"simulated": True}, {}, 2, "A is simulated and B is measured, so their ratio says nothing"),
    ({}, {"simulated": True}, 2, "B is simulated and A is measured, so their ratio says nothing"),
    ({"simulated": True}, {"simulated": True}, 0, "SIMULATED: A and B are both simulated"),
    ({"simulated": True}, FAILED | {"simulated": True}, 1, "a gate of B failed (G3 of x vs y); "),
    (FAILED, {}, 2, "A's own gates failed, so there is no speed to hold B to"),
]


@pytest.mark.parametrize(("one", "two", "code", "said"), LIMITS)
@pytest.mark.parametrize("faster", [1.0, 3.0])
def test_a_speed_passes_only_where_the_gates_and_the_verdicts_do(
    one: Any, two: Any, code: int, said: str, faster: float
) -> None:
    a, b = strict(200, 202, **one), strict(200 * faster, 202 * faster, 100 * faster, name="d", **two)
    found = compared(a, b, fail_below=0.98)
    assert found.fail_below is not None and found.fail_below.exit_code == code
    assert found.fail_below.sentences[0].startswith(said)
    assert as_json(found)["fail_below"] == {"limit": 0.98, "exit_code": code, "sentences": found.fail_below.sentences}
    assert all(f"- {sentence}" in text_of(found) for sentence in found.fail_below.sentences)


def test_a_replaced_servers_gate_says_nothing_of_b() -> None:
    b = strict(200, 202, name="d")
    broken = b.attempts[0].model_copy(update={"gates": [gate("stream", False)]})
    resumed = b.model_copy(update={"attempts": [broken, *b.attempts]})
    found = compared(strict(200, 202), resumed, fail_below=0.98)
    assert found.fail_below is not None and found.fail_below.exit_code == 0
    last = compared(strict(200, 202), b.model_copy(update={"attempts": [broken, *b.attempts[1:]]}), fail_below=0.98)
    assert last.fail_below is not None and last.fail_below.exit_code == 1


def test_a_slower_b_beside_a_simulated_a_is_no_verdict() -> None:
    found = compared(strict(200, 202, simulated=True), strict(100, 101, name="d"), fail_below=0.98)
    assert found.fail_below is not None and found.fail_below.exit_code == 2


def test_a_ladder_with_a_miss_never_passes_a_limit() -> None:
    b = made.ladder(RATES, name="m", batches=missed, status=Status.WITHHELD)
    found = compared(made.ladder(RATES), b, fail_below=0.5)
    assert found.fail_below is not None and found.fail_below.exit_code == 1


def test_an_attached_side_is_marked() -> None:
    found = compared(strict(200, 202), strict(200, 202, name="d", **ATTACHED))
    assert all(pair.center.marks_b == ["attached"] for pair in found.pairs) and found.b.marks == ["attached"]


def test_fail_below_says_when_the_interval_does_not_exclude_the_limit() -> None:
    found = compared(strict(190, 210), strict(186, 206, name="d"), fail_below=0.99)
    assert found.fail_below is not None and found.fail_below.exit_code == 1
    assert "is below 0.99" in found.fail_below.sentences[1]
    assert "the interval holds 0.99" in found.fail_below.sentences[1]
    assert "holds" not in found.fail_below.sentences[0]


def test_the_base_alone_may_fail_it() -> None:
    found = compared(strict(200, 200), strict(200, 200, base=90, name="d"), fail_below=0.98)
    assert found.fail_below is not None and found.fail_below.exit_code == 1


def test_exactly_at_the_limit_is_not_below() -> None:
    found = compared(strict(200, 200), strict(200, 200, name="d"), fail_below=1.0)
    assert found.fail_below is not None and found.fail_below.exit_code == 0


def test_differences_are_the_headline_of_what_is_compared_anyway() -> None:
    a, b = strict(200, 200, env={"VLLM_X": "1"}), strict(200, 200, name="d", env={"VLLM_X": "0"})
    found = compared(a, b, vary=["tp"])
    lines = text_of(found).splitlines()
    assert lines[0].startswith("UNLIKE: A and B are not one configuration")
    assert lines[1].strip() == "- environment: VLLM_X is '1' in A and '0' in B"
    assert lines[2].strip() == "- tp was declared to vary and is equal in A and B"
    assert refusal(like(Campaign(Path("a"), a), Campaign(Path("b"), b), ["tp"])) == [
        "environment: VLLM_X is '1' in A and '0' in B",
        "tp was declared with --vary and is equal in A and B: the same arm twice",
    ]
    told = as_json(found)
    assert told["undeclared"] == [
        {
            "name": "environment: VLLM_X",
            "a": "'1'",
            "b": "'0'",
            "vary": ["env:VLLM_X"],
            "sentence": "environment: VLLM_X is '1' in A and '0' in B",
        }
    ]
    json.dumps(told, allow_nan=False)


def test_two_servers_are_said_to_be_two() -> None:
    assert "an interval over servers is what two can give" in text_of(compared(strict(1, 1), strict(1, 1, name="d")))


RATES = {1: [40.0, 50.0, 50.5], 8: [200.0, 300.0, 310.0]}


def test_ladders_rung_by_rung() -> None:
    b = {1: [10.0, 55.0, 55.5], 4: [1.0, 2.0], 8: [1.0, 299.0, 309.0]}
    found = compared(made.ladder(RATES), made.ladder(b, name="m"), fail_below=0.98)
    assert [rung.rung for rung in found.rungs] == [1, 8]
    first, last = found.rungs
    assert (first.rate.a, first.rate.b) == (50.25, 55.25)  # the warm-up is in no figure
    assert (first.passes_a, first.exact_a, first.exact_b) == (2, "3/3", "3/3")
    assert first.rate.ratio is not None
    assert (first.rate.ratio.low, first.rate.ratio.high) == pytest.approx((55 / 50.5, 55.5 / 50))
    assert first.verdict == "c1: B is 1.100 times A (95 % 1.089 to 1.110), larger than the spread of the passes (1.0%)"
    assert last.verdict.startswith("c8: no difference larger than the spread of the passes (3.3%): B is 0.997 times A")
    assert (last.identity.equal, last.identity.total) == (8, 8)
    assert found.fail_below is not None and found.fail_below.exit_code == 0
    assert "rungs are [1, 8] in A and [1, 4, 8] in B: only what both have is compared" in found.notes
    assert "nothing of other servers" in text_of(found)


def missed(batches: list[Batch]) -> list[Batch]:
    """One answer of the last batch leaves its oracle."""
    last = batches[-1]
    slots = [request(item.slot) for item in last.requests]
    slots[0] = request(last.requests[0].slot, away(39))
    return [*batches[:-1], batch(slots, last.number, last.aggregate_tok_s_wall)]


def test_a_withheld_rung_is_marked_and_its_neighbour_is_not() -> None:
    b = made.ladder(RATES, name="m", batches=missed, status=Status.WITHHELD)
    found = compared(made.ladder(RATES), b)
    first, last = found.rungs
    assert first.rate.marks_b == [] and first.verdict.endswith(")") and "withheld" not in first.verdict
    assert last.withheld_b and not last.withheld_a and last.rate.marks_b == ["withheld"]
    assert (last.exact_a, last.exact_b) == ("24/24", "23/24")
    assert last.verdict.endswith("(B withheld)")
    assert (last.identity.equal, last.identity.total) == (7, 8)
    assert last.identity.differences[0].endswith("gave 1 answers in A and 2 in B, 1 of them in both")
    line = next(line for line in text_of(found).splitlines() if line.startswith("│ c8"))
    assert "withheld in B" in line and "310" not in line.split("│")[4]


def test_a_gate_that_failed_marks_every_rung() -> None:
    b = made.ladder(RATES, name="m", status=Status.WITHHELD, gates=[gate("oracle", False)])
    assert [rung.rate.marks_b for rung in compared(made.ladder(RATES), b).rungs] == [["withheld"], ["withheld"]]
    assert [rung.withheld_b for rung in compared(made.ladder(RATES), b).rungs] == [True, True]
    c = made.ladder(RATES, name="m", status=Status.INTERRUPTED)
    assert [rung.rate.marks_b for rung in compared(made.ladder(RATES), c).rungs] == [["interrupted"]] * 2


def test_one_pass_after_the_warm_up_knows_no_spread() -> None:
    one = {1: [40.0, 50.0]}
    found = compared(made.ladder(one), made.ladder({1: [40.0, 51.0]}, name="m"))
    assert found.rungs[0].verdict == (
        "c1: B is 1.020 times A (no interval); the spread of the passes is unknown on a side, so nothing says whether "
        "that is a difference"
    )


def test_the_warm_up_alone_has_no_rate() -> None:
    found = compared(made.ladder({1: [40.0]}), made.ladder(RATES, name="m"), fail_below=0.9)
    assert found.rungs[0].verdict == "c1: no ratio, A has no published rate, which takes passes 2 and later"
    assert found.fail_below is not None and found.fail_below.exit_code == 2


def test_ladders_without_a_rung_in_common() -> None:
    found = compared(made.ladder({1: [40.0, 50.0]}), made.ladder({8: [40.0, 50.0]}, name="m"), fail_below=0.9)
    assert found.rungs == [] and found.fail_below is not None and found.fail_below.exit_code == 2


def test_kinds_without_a_common_figure_are_refused() -> None:
    one, two = Campaign(Path("a"), strict(1, 1)), Campaign(Path("b"), made.ladder(RATES))
    with pytest.raises(UsageError, match="A is strict and B is ladder; give two strict campaigns or two ladders"):
        like(one, two, [])
