"""Run the tests of a module on its mutants, each in a forked child that may take so much time and no more.

A mutant inside a function is put into a child that has loaded everything and collected the tests, which takes some
50 ms; one of a constant, a class or a default is loaded anew, with all that imports it. A child that doesn't end the
test it is in within :data:`PATIENCE` times what the test takes unchanged, and :data:`LEAST_S`, is killed: the mutant
hangs, which would end a test run too.
"""

import contextlib
import json
import os
import resource
import select
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from tests.mutation.loading import announce, install, patch
from tests.mutation.mutants import Mutant
from tests.mutation.table import Tests

LEAST_S = 10.0
PATIENCE = 20.0
UNKNOWN_S = 5.0
"""What is taken as unchanged for loading and collecting"""
MEMORY = 4 << 30
"""Bytes of address space of a child"""
NO_FIT = 77
"""Exit code of a child whose functions can't take the mutant"""
TICK_S = 0.5


@dataclass
class Seen:
    """What came of one child."""

    code: int | None = None
    """0 when every test passed, None when it was killed for hanging"""
    test: str = ""
    """the last that began: the one that failed or hung"""
    words: str = ""
    """of the failure"""
    seconds: dict[str, float] = field(default_factory=dict)
    """of each test that ended"""


class Watched:
    """A pytest plugin for the child: quick tests first, tells of each, and ends the process at a failure."""

    def __init__(self, seconds: dict[str, float], without: Sequence[str]) -> None:
        self.told = -1
        """the pipe it tells through"""
        self._seconds, self._without = seconds, without

    def _tell(self, **what: object) -> None:
        os.write(self.told, json.dumps(what).encode() + b"\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(word in item.nodeid for word in self._without)]
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell(test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tell(words=report.longreprtext[-2000:])
            os._exit(1)  # what the test left open ends with it

    def pytest_runtest_logfinish(self) -> None:
        self._tell(ended=True)


class Stem(Watched):
    """For the process that children are forked from: once it has collected, it does ``then`` in place of the tests."""

    def __init__(self, seconds: dict[str, float], without: Sequence[str], then: Callable[[pytest.Session], None]):
        super().__init__(seconds, without)
        self._then = then

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._then(session)
        return True


def run_module(
    module: str, tests: Tests, source: str, chosen: Sequence[Mutant], report: Callable[[Mutant, Seen], None]
) -> None:
    """Report of each of ``chosen``. Raises RuntimeError where the tests don't pass on the module as it is."""

    def unchanged(told: int) -> int:
        return _pytest(tests, Watched({}, tests.without), told)

    baseline = _child(unchanged, {})
    if baseline.code != 0 or not baseline.seconds:
        raise RuntimeError(f"{module} as it is: {baseline.test} ended with {baseline.code}\n{baseline.words}")
    seconds = baseline.seconds

    def anew(mutant: Mutant) -> Seen:
        def load(told: int) -> int:
            announce(module, mutant.index)
            install(module, mutant.index)
            return _pytest(tests, Watched(seconds, tests.without), told)

        return _child(load, seconds)

    def patched(session: pytest.Session, mutant: Mutant) -> Seen:
        def put(told: int) -> int:
            announce(module, mutant.index)
            if not patch(module, mutant.index, source):
                return NO_FIT
            stem.told = told
            for item, after in zip(session.items, [*session.items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            return 0

        return _child(put, seconds)

    def in_functions(session: pytest.Session) -> None:
        for mutant in chosen:
            if mutant.in_function:
                seen = patched(session, mutant)
                # What the tests' modules computed while they were loaded is the unchanged module's: look again.
                report(mutant, anew(mutant) if seen.code in (0, NO_FIT) else seen)

    stem = Stem(seconds, tests.without, in_functions)
    if pid := os.fork():
        if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            raise RuntimeError(f"{module}: collecting its tests ended with {code}")
    else:
        _end_with(lambda: _pytest(tests, stem, -1))
    for mutant in chosen:
        if not mutant.in_function:
            report(mutant, anew(mutant))


def _pytest(tests: Tests, plugin: Watched, told: int) -> int:
    plugin.told = told
    words = ["-s", "--noconftest", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:xdist"]
    return int(pytest.main([*words, *tests.files], plugins=[plugin]))


def _end_with(work: Callable[[], int]) -> NoReturn:
    code = 1
    try:
        code = work()
    finally:
        os._exit(code)


def _child(work: Callable[[int], int], expected: dict[str, float]) -> Seen:
    """Do ``work`` in a forked child, with a pipe that it tells through."""
    ours, theirs = os.pipe()
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as room:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
            os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = room
            most_s = round(LEAST_S + PATIENCE * (sum(expected.values()) or 60 * UNKNOWN_S))
            resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            _end_with(lambda: work(theirs))
        os.close(theirs)
        try:
            return _watch(pid, ours, expected)
        finally:
            os.close(ours)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what it started


def _watch(pid: int, told: int, expected: dict[str, float]) -> Seen:
    """Follow a child to its end."""
    seen, rest, since = Seen(), b"", time.monotonic()
    while True:
        data = os.read(told, 1 << 16) if select.select([told], [], [], TICK_S)[0] else None
        now = time.monotonic()
        if data:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                said = json.loads(line)
                seen.test = said.get("test", seen.test)
                seen.words = said.get("words", seen.words)
                if "ended" in said:
                    seen.seconds[seen.test] = now - since
                since = now
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            seen.code = None if code == -signal.SIGXCPU else code
            return seen
        if now - since > LEAST_S + PATIENCE * expected.get(seen.test, UNKNOWN_S):
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return seen
        if data == b"":
            time.sleep(0.001)  # it is about to end
