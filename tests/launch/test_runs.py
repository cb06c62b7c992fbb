"""A process that ran, told from every later one: real processes."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.launch import guard
from harness.launch.runs import is_alive, mark

TELL = "from harness.launch.runs import mark; import sys; print(mark(), flush=True); sys.stdin.read()"


def test_this_process_runs() -> None:
    assert is_alive(mark()) is True


def test_a_process_runs_until_it_has_ended_even_as_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", TELL], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        run = process.stdout.readline().strip()
        assert run.split(" ")[2] == str(process.pid)
        assert is_alive(run) is True
        process.kill()
        process.stdout.read()  # its end: from now on it is a zombie, because nobody has waited for it
        while (entry := guard.stat(process.pid)) is not None and entry.alive:
            pass
        assert guard.stat(process.pid) is not None
        assert is_alive(run) is False
        process.wait()
    assert is_alive(run) is False


@pytest.mark.parametrize(
    ("place", "change", "verdict"),
    [
        (0, lambda _: "00000000-0000-0000-0000-000000000000", False),  # the host was started again
        (1, lambda _: "pid:[1]", None),  # another container's numbers
        (3, lambda ticks: str(int(ticks) + 1), False),  # the number was given to a later process
        (2, lambda _: "99999999999", None),
        (0, lambda _: "?", None),
        (3, lambda _: "?", None),
        (2, lambda _: "²", None),
    ],
)
def test_each_part_of_the_mark_counts(place: int, change: Callable[[str], str], verdict: bool | None) -> None:
    words = mark().split(" ")
    words[place] = change(words[place])
    assert is_alive(" ".join(words)) is verdict


@given(st.text())
def test_a_label_that_is_no_mark_tells_nothing(text: str) -> None:
    assert is_alive(text) is None
