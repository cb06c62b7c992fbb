"""Questions for the margins at a place of an answer, and whom to ask."""

from collections.abc import Sequence

from harness.questions import Question
from harness.suites import load_suite
from tests.bench import ROOT
from tests.simulated.rig import Sim


def url_of(sim: Sim) -> str:
    return f"http://127.0.0.1:{sim.port}"


LADDER = load_suite(str(ROOT / "suites" / "ladder-v1.json"), need_classes=False)


def after(*prompt: int, before: Sequence[int] = (), wanted: Sequence[int] = ()) -> Question:
    return Question(prompt, tuple(before), frozenset(wanted))
