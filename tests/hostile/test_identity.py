"""Section F where no other test shows a case whole: rungs of many users, arms that go wrong from the first id."""

import pytest

from harness.measure.gates import identity_gate
from harness.measure.ladder import sites, summarise_rung
from tests.measure.factory import make_rows, replace_row
from tests.measure.test_gates import make_arm
from tests.measure.test_ladder import ORACLE, away, batch, exact_rung, request


@pytest.mark.parametrize("slot", [0, 31, 63])
def test_72_one_flipped_id_in_one_of_64_slots_withholds_the_rung(slot: int) -> None:
    answers = [request(f"a-c{number:03d}") for number in range(64)]
    answers[slot] = request(f"a-c{slot:03d}", away(57))
    passes = [exact_rung(64, number=1), batch(answers, 2)]
    rung = summarise_rung(64, passes, [], captured=True)
    assert passes[1].exact == 63
    assert rung.withheld and rung.why == ["c64: 127/128 answers equal their oracle"]
    assert (rung.exact, rung.total) == (127, 128)
    (site,) = sites(passes)
    assert (site.slot, site.index, site.times) == (f"a-c{slot:03d}", 57, 1)
    assert rung.tok_s == 100.0, "a rate is withheld, never deleted"


def test_73_a_rung_inherits_no_verdict() -> None:
    """Divergence only above c40: the rungs below it stay shown, those above are each withheld for their own answers."""
    verdicts = {}
    for users in (8, 32, 40, 48, 64):
        answers = [request(f"a-c{n:03d}", away(5) if users > 40 and n == 0 else ORACLE) for n in range(users)]
        rung = summarise_rung(users, [exact_rung(users, number=1), batch(answers, 2)], [], captured=True)
        verdicts[users] = rung.withheld
    assert verdicts == {8: False, 32: False, 40: False, 48: True, 64: True}


def test_74_an_arm_that_differs_from_the_first_id_fails_with_its_evidence() -> None:
    base, arm = make_rows(), make_rows()
    for index, row in enumerate(arm):
        arm = replace_row(arm, index, token_ids=[row.token_ids[0], *(token + 1 for token in row.token_ids[1:])])
    gate = identity_gate("G1", make_arm(rows=base), make_arm("mtp0-b", rows=arm))
    assert (gate.passed, gate.exact, gate.total) == (False, 0, 12)
    assert [found.first_divergence_token_zero_based for found in gate.divergences] == [1] * 12
    assert all(found.left_id != found.right_id for found in gate.divergences)


def test_76_two_servers_that_say_nothing_are_not_equal() -> None:
    empty = make_rows(count=0)
    gate = identity_gate("G1", make_arm(rows=empty), make_arm("mtp0-b", rows=empty))
    assert (gate.passed, gate.exact) == (False, 0)


def test_77_an_oracle_that_is_the_arm_s_own_server_is_none() -> None:
    rows = make_rows()
    gate = identity_gate("G1", make_arm(rows=rows), make_arm("mtp0-b", rows=rows, server_id="server-mtp0-a"))
    assert not gate.passed and any("are the same server" in failure for failure in gate.failures)
