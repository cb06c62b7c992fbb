"""One campaign that passed, measured once for all workers of a test run."""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from harness.cli import main
from tests.bench import Done, Typed, campaign_of, evidence_of, strict, write_launcher

# How long an example takes says how busy the machine is, nothing more.
settings.register_profile("bench", deadline=None)
settings.load_profile("bench")


def pytest_configure() -> None:
    """Signals that this run was told to ignore (nohup, a shell's background) would be ignored by what tests start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            # SIGHUP still doesn't end the run; a process that it starts has the default again.
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else _unheard)


def _unheard(number: int, frame: object) -> None:
    """For a signal that the run itself ignores."""


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module", autouse=True)
def alone_with_its_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that start containers or real vLLM servers run one after the other: two such servers starve each other.

    A lock of ours and not a group of the workers', which pytest 9.2 doesn't hand on.
    """
    mine = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    if not any(item.get_closest_marker(name) for item in mine for name in ("docker", "vllm")):
        yield
        return
    with (shared_folder(tmp_path_factory) / "servers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


STEPS_US = (3200, 12_800)
"""Of the first and the second try: the longer the gap between tokens, the less the client's lag matters"""


@pytest.fixture(scope="session")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``experiments/NAME`` of a depth-3 campaign with status passed; never to be changed, see ``tampered``.

    Where the machine is so busy that the ``client`` gate alone says no, it is measured again with slower servers.
    """
    shared = shared_folder(tmp_path_factory)
    with (shared / "passed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = shared / "passed"
        if not home.exists():
            _measure(shared)
        return campaign_of(home)


def _measure(shared: Path) -> None:
    for step_us in STEPS_US:
        home = shared / f"passing-{step_us}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        done = strict(home, write_launcher(home, step_us=step_us), depth=3)
        (home / "output.txt").write_text(done.out)
        (home / "errors.txt").write_text(done.err)
        if done.code == 0:
            home.rename(shared / "passed")
            return
        gates = [gate for attempt in evidence_of(campaign_of(home))["attempts"] for gate in attempt["gates"]]
        assert {gate["name"] for gate in gates if not gate["passed"]} == {"client"}, done.out
    pytest.skip("this machine is too busy for a client gate to pass")


@pytest.fixture
def passed_output(passed: Path) -> Done:
    """What its command printed."""
    home = passed.parents[1]
    return Done(0, (home / "output.txt").read_text(), (home / "errors.txt").read_text())


@pytest.fixture
def tampered(passed: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes copies of the passed campaign that a test may damage."""
    count = 0

    def copy() -> Path:
        nonlocal count
        count += 1
        return Path(shutil.copytree(passed, tmp_path / f"copy-{count}" / passed.name))

    return copy


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """``bench WORDS`` in ``tmp_path`` without a process of its own, which would cost a second of imports each time."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["bench", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capsys.readouterr())

    return run
