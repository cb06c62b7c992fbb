"""SIGKILL at a hundred random points of a campaign on real containers: nothing is lost, nothing is left, it goes on.

The points are drawn over the whole life of ``bench strict``, of its ``--resume`` and of ``bench clean``: uniform in
time, and after the n-th line of output, file event or Docker event plus a moment, which hits what is short (a rename
before its sync, a container between its creation and its start).

B70_BENCH_KILL_SEED (printed) draws the same points again, B70_BENCH_KILL_POINTS says how many of a strict campaign,
B70_BENCH_KILL_LADDER_POINTS how many of a ladder, B70_BENCH_KILL_WORKERS how many campaigns run at once, and
B70_BENCH_KILL_TABLE names a file for the counts as JSON.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import BENCH, Bench
from tests.e2e.crashes import (
    END_S,
    Case,
    Kind,
    Point,
    Striker,
    Tree,
    assert_goes_on,
    assert_recorded,
    campaign_below,
    command,
    docker_events,
    hashes,
    journal_events,
    stage_of,
)

pytestmark = pytest.mark.docker

POINTS = int(os.environ.get("B70_BENCH_KILL_POINTS", "100"))
LADDER_POINTS = int(os.environ.get("B70_BENCH_KILL_LADDER_POINTS", "12"))
SEED = int(os.environ.get("B70_BENCH_KILL_SEED") or random.SystemRandom().randrange(10**6))
WORKERS = int(os.environ.get("B70_BENCH_KILL_WORKERS", "3"))
KINDS: tuple[Kind, ...] = ("moment", "line", "file", "docker")
WEIGHTS = (35, 20, 30, 15)
IMPORT_S = 0.8
"""What a ``bench clean`` of its own takes longer than one in a fork"""
SUBJECTS = {"start": 70, "resume": 20, "clean": 10}
"""What is killed: a campaign, its resume, or the clean-up after it"""


@dataclass(frozen=True)
class Life:
    """Of a campaign that nobody disturbs: how long it takes, and how many events it has."""

    seconds: float
    lines: int
    files: int
    dockers: int
    clean_s: float

    def draw(self, dice: random.Random) -> Point:
        (kind,) = dice.choices(KINDS, WEIGHTS)
        if kind == "moment":
            return Point(kind, dice.uniform(0, self.seconds))
        count = {"line": self.lines, "file": self.files, "docker": self.dockers}[kind]
        # At once, or after a time of any order from ten microseconds to a third of a second.
        return Point(kind, dice.randint(1, count), dice.choice([0.0, 10 ** dice.uniform(-5, -0.5)]))


@dataclass
class Outcome:
    """One point."""

    number: int
    subject: str
    kind: str = ""
    point: str = ""
    stage: str = ""
    verified: str = ""
    """status that was recorded at the kill; empty where nothing was"""
    went_on: str = ""
    """resume, start anew, or nothing to go on with"""
    client_only: bool = False
    """the campaign ended with every gate passed but ``client``"""
    redrawn: int = 0
    """points before it that came after the end of the process"""
    fault: str = ""


class KillCase(Case):
    """With kills."""

    def kill(self, point: Point, *words: str) -> tuple[Bench, bool]:
        """Whether it was killed: not where it had ended before, or where there was nothing left to resume."""
        bench, code = Striker(self.client, self.out, point).strike(lambda: self.start(*words))
        assert code in (-signal.SIGKILL, 0, 1) or (words and "nothing to resume" in bench.stderr), bench.stderr
        return bench, code == -signal.SIGKILL

    def kill_a_clean(self, seconds: float) -> bool:
        directory = campaign_below(self.out)
        if directory is None:
            return False
        words = [BENCH, "clean", directory.name, "--out", str(self.out)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.returncode == -signal.SIGKILL


@dataclass(frozen=True)
class Kills:
    """What is killed, and where it may run."""

    client: Any
    image: str
    home: Path
    command: str
    options: tuple[str, ...] = ()

    def case(self, name: str) -> KillCase:
        home = self.home / name
        return KillCase(self.client, home, self.image, command=self.command, options=self.options)


def life_of(kills: Kills) -> Life:
    """Measured with as many at once as will run later."""

    def undisturbed(number: int) -> Life:
        case = kills.case(f"life-{number}")
        tree, files, since, begun = Tree(case.out), 0, time.time(), time.monotonic()
        bench = case.start()
        while bench.running():
            files += tree.news(0.2)
        seconds = time.monotonic() - begun
        tree.close()
        assert_goes_on(bench, bench.finish(END_S), {})
        dockers = docker_events(kills.client, bench.pid, since, time.time(), 1000)
        begun = time.monotonic()
        case.clean()
        return Life(seconds, len(bench.events), files, dockers, time.monotonic() - begun + IMPORT_S)

    with ThreadPoolExecutor(WORKERS) as pool:
        lives = list(pool.map(undisturbed, range(WORKERS)))
    first = lives[0]
    seconds = sum(life.seconds for life in lives) / len(lives)
    return Life(seconds, first.lines, first.files, first.dockers, first.clean_s)


def strike(case: KillCase, life: Life, dice: random.Random, outcome: Outcome) -> bool:
    """One point, and everything that must hold after it. False where the process had ended before the point."""
    point = life.draw(dice)
    outcome.kind, outcome.point = point.kind, str(point)
    words: list[str] = []
    if outcome.subject == "resume":
        bench, killed = case.kill(Point("moment", dice.uniform(0.2 * life.seconds, life.seconds)))
        directory = campaign_below(case.out)
        if not killed or not journal_events(directory):
            return False
        words = ["--resume", str(directory)]
    bench, killed = case.kill(point, *words)
    if not killed:
        return False
    directory = campaign_below(case.out)
    outcome.stage = stage_of(bench.events, directory)
    outcome.verified = assert_recorded(bench, directory)
    kept = {} if directory is None else hashes(directory)
    if outcome.subject == "clean":
        after_s = dice.uniform(0, 0.8 * life.clean_s)
        outcome.point = f"clean {after_s:.3f} s, after {point}"
        if not case.kill_a_clean(after_s):
            return False
        assert assert_recorded(bench, directory) == outcome.verified
    # A resume needs no clean before it, and leaves nothing for one.
    if outcome.subject == "clean" or dice.random() < 0.7:
        case.clean()
    goes_on(case, outcome, kept)
    found = case.clean()
    assert [item for item in found if item["what"] != "half-written files"] == [], "a resume ends what was left"
    return True


def goes_on(case: KillCase, outcome: Outcome, kept: dict[str, str]) -> None:
    directory = campaign_below(case.out)
    if outcome.verified in ("passed", "withheld"):
        assert directory is not None
        outcome.went_on = "it had ended"
        bench = case.start("--resume", str(directory))
        code = bench.finish(END_S)
        if code == 64:
            assert "nothing to resume" in bench.stderr
        code = int(bench.evidence["exit_code"])
    elif outcome.verified:
        outcome.went_on = "resume"
        bench = case.start("--resume", str(directory))
        code = bench.finish(END_S)
    else:
        if directory is not None:  # it was left in its place, or nobody cleaned
            case.clean()
        assert campaign_below(case.out) is None
        outcome.went_on, kept = "start anew", {}
        bench = case.start()
        code = bench.finish(END_S)
    outcome.client_only = assert_goes_on(bench, code, kept)


def run_point(number: int, kills: Kills, life: Life) -> Outcome:
    dice = random.Random(f"{SEED}-{number}")
    (subject,) = dice.choices(list(SUBJECTS), list(SUBJECTS.values()))
    outcome = Outcome(number, subject)
    while True:
        case = kills.case(f"{number}-{outcome.redrawn}")
        try:
            if strike(case, life, dice, outcome):
                return outcome
        except Exception:  # noqa: BLE001 - one point's fault must not hide the others'
            outcome.fault = traceback.format_exc()
            sys.stdout.write(f"point {number} ({outcome.subject}, {outcome.point})\n{outcome.fault}\n")  # at once
            sys.stdout.flush()
            return outcome
        finally:
            if not outcome.fault:
                case.close()
        outcome.redrawn += 1


def table(outcomes: list[Outcome], life: Life) -> dict[str, Any]:
    done = [outcome for outcome in outcomes if not outcome.fault]
    return {
        "seed": SEED,
        "undisturbed": asdict(life),
        "points": len(outcomes),
        "faults": len(outcomes) - len(done),
        "drawn after the end, and drawn again": sum(outcome.redrawn for outcome in outcomes),
        "killed": dict(Counter(outcome.subject for outcome in outcomes)),
        "kind": dict(Counter(outcome.kind for outcome in outcomes)),
        "stage": dict(Counter(outcome.stage for outcome in outcomes).most_common()),
        "verified as": dict(Counter(outcome.verified or "nothing recorded" for outcome in done)),
        "went on by": dict(Counter(outcome.went_on for outcome in done)),
        "ended": dict(Counter("all gates but client" if outcome.client_only else "passed" for outcome in done)),
    }


def assert_nothing_is_lost(kills: Kills, points: int) -> None:
    begun, life = time.monotonic(), life_of(kills)
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [pool.submit(run_point, number, kills, life) for number in range(points)]
        outcomes = [job.result() for job in jobs]
    command.close()
    counts = table(outcomes, life) | {"seconds": round(time.monotonic() - begun)}
    sys.stdout.write(json.dumps(counts, indent=1, ensure_ascii=False) + "\n")
    path = os.environ.get("B70_BENCH_KILL_TABLE")
    if path:
        each = [asdict(outcome) for outcome in outcomes]
        Path(path).write_text(json.dumps({**counts, "each": each}, indent=1, ensure_ascii=False) + "\n")
    faults = [f"point {item.number} ({item.subject}, {item.point})\n{item.fault}" for item in outcomes if item.fault]
    assert not faults, f"seed {SEED}, {len(faults)} of {points}:\n" + "\n".join(faults)


def test_kill_9_at_random_points(docker_client: Any, simulated_image: str, tmp_path: Path) -> None:
    assert_nothing_is_lost(Kills(docker_client, simulated_image, tmp_path, "strict"), POINTS)


def test_kill_9_at_random_points_of_a_ladder(docker_client: Any, simulated_image: str, tmp_path: Path) -> None:
    options = ("--rungs", "1,2", "--passes", "2")
    assert_nothing_is_lost(Kills(docker_client, simulated_image, tmp_path, "ladder", options), LADDER_POINTS)
