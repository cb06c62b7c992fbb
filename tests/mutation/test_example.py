"""Tests of ``example.py``, which leave it a mutant."""

from tests.mutation.example import total


def test_total() -> None:
    assert total(0) == 0
    assert total(4) == 10
