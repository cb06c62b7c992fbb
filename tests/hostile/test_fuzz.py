"""The fuzzer within bounds; what once crashed is in its corpus and is played here again for ever."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import ROOT
from tests.hostile import fuzz
from tests.hostile.mutate import exchange_of, mutated, parts, recut, shortened
from tests.wire.build import GOOD, chunked

SHARES = 4
"""Pieces of the run, so that several workers share it"""
EXECUTIONS = 1000
"""In each"""


@pytest.mark.parametrize("share", range(SHARES))
def test_no_bytes_break_the_way_to_a_row(share: int) -> None:
    found = fuzz.run(1000 + share, executions=EXECUTIONS)
    assert found.crashes == []
    assert found.outcomes.total() == found.executions == EXECUTIONS
    assert found.outcomes["complete"] > EXECUTIONS // 50, "mutants that stay whole are tried too"
    assert len(found.outcomes) > 15, "and end in many ways"


@pytest.mark.parametrize("path", sorted(fuzz.CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_everything_in_the_corpus_ends_well(path: Path) -> None:
    data, rng = path.read_bytes(), random.Random(path.stem)
    for _ in range(20):
        fuzz.check(exchange_of(rng, data), rng)


@pytest.mark.parametrize("seed", range(3))
def test_an_endless_line_is_held_in_its_limit(seed: int) -> None:
    """Buffered are at most the 16 MiB of the limit, one read, and the eighth by which a growing buffer runs ahead."""
    assert fuzz.line_memory(random.Random(seed)) <= fuzz.LINE_BYTES


def test_recorded_answers_are_shortened_to_whole_ones() -> None:
    seeds = [seed for seed in fuzz.seeds() if b"server: uvicorn" in seed and b"text/event-stream" in seed]
    assert len(seeds) >= 6
    for seed in seeds:
        completion = fuzz.parse_completion(recut(random.Random(1), exchange_of_whole(seed)))
        assert completion.complete, completion.detail
        assert shortened(seed, 100) == seed


def exchange_of_whole(data: bytes) -> fuzz.Exchange:
    """One whose clocks are steady and whose end is an end of file."""
    for number in range(1000):
        exchange = exchange_of(random.Random(number), data)
        if exchange.ending == "closed" and exchange.framing == "http" and exchange.clock_step_ns == 0:
            return exchange
    raise AssertionError("no draw was steady")


def test_a_mutation_is_its_seeds_alone_and_changes_something() -> None:
    data = b"".join(chunked(GOOD))
    assert parts(data)[2] == "chunked" and b"".join(parts(data)[1]).count(b"data: ") == len(GOOD)
    made = [mutated(random.Random(seed), data, data) for seed in range(200)]
    assert made == [mutated(random.Random(seed), data, data) for seed in range(200)]
    assert len(set(made)) > 150


def test_the_program_says_what_it_did_and_keeps_what_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.bin").write_bytes(b"".join(chunked(GOOD)))
    words = [sys.executable, "-m", "tests.hostile.fuzz", "--seconds", "0.5", "--seed", "3", "--corpus", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("seed 3: ") and " executions, 0 crashes" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["good.bin"]

    # A parser that fails is stood in for by one: the fuzzer itself is under test here.
    def broken(exchange: fuzz.Exchange) -> fuzz.Completion:
        raise RuntimeError(f"{len(exchange.data)} bytes")

    monkeypatch.setattr(fuzz, "parse_completion", broken)
    found = fuzz.run(3, executions=2, corpus=tmp_path, keep=tmp_path)
    assert len(found.crashes) == 2 and "RuntimeError" in found.crashes[0] and "execution 0" in found.crashes[0]
    assert len(list(tmp_path.glob("crash-*.bin"))) == 2
