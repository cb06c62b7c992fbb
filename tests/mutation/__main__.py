"""``python -m tests.mutation``: which mutants does no test notice? 0 when every survivor is explained."""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Threads of a library would not come through a fork.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

from hypothesis import HealthCheck, settings

from tests.mutation.loading import ROOT, path_of
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.record import entry, load, stale
from tests.mutation.running import Seen, run_module
from tests.mutation.table import TESTS

LIBRARIES = ("h11", "httpx", "numpy", "prometheus_client.parser", "pydantic", "scipy.special", "zstandard", "rich")
"""Loaded once for all children"""


def main(words: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="wire.sse, …; all when left out")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", type=Path, help="file for one JSON line for each mutant")
    parser.add_argument("--resume", action="store_true", help="leave out what the record holds already")
    options = parser.parse_args(words)
    os.chdir(ROOT)
    modules = [f"harness.{name.removeprefix('harness.')}" for name in options.modules] or sorted(TESTS)
    if strangers := [name for name in modules if name not in TESTS]:
        parser.error(f"{', '.join(strangers)} is not in the table")
    for name in LIBRARIES:
        importlib.import_module(name)
    settings.register_profile(
        "mutation", deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("mutation")
    with tempfile.TemporaryDirectory() as room:
        record = options.record or Path(room) / "record.jsonl"
        if not (options.resume and record.is_file()):
            record.write_text("")
        tried = {_name(item) for item in _read(record)}
        workers = [_worker(modules, record, tried, number, options.jobs) for number in range(options.jobs)]
        ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
        found = _read(record)
    return max([_tell(modules, found), *map(abs, ended)])


Item = dict[str, Any]
Name = tuple[str, str, str, int]


def _read(record: Path) -> list[Item]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def _name(item: Item) -> Name:
    return item["module"], item["line"], item["change"], item["nth"]


def _worker(modules: Sequence[str], record: Path, tried: set[Name], number: int, jobs: int) -> int:
    """The process of one worker, which has every ``jobs``-th mutant."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        with record.open("a", buffering=1) as file:
            for module in modules:
                began, source = time.monotonic(), path_of(module).read_text()
                left = [mutant for mutant in mutants(source) if (module, *mutant.key) not in tried]
                mine = left[number::jobs]

                def report(mutant: Mutant, seen: Seen, module: str = module) -> None:
                    end = "survived" if seen.code == 0 else "hung" if seen.code is None else "killed"
                    what = {"module": module, "line": mutant.line, "change": mutant.change, "nth": mutant.nth}
                    what |= {"at": mutant.line_number, "index": mutant.index, "end": end, "code": seen.code}
                    file.write(json.dumps(what | {"by": seen.test}) + "\n")

                if mine:
                    run_module(module, TESTS[module], source, mine, report)
                sys.stderr.write(f"{module}: {len(mine)} mutants in {time.monotonic() - began:.0f} s\n")
        code = 0
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
    finally:
        os._exit(code)


def _tell(modules: Sequence[str], found: Sequence[Item]) -> int:
    explained, news = load(), 0
    ends: Counter[str] = Counter()
    for module in modules:
        mine = {_name(item)[1:]: item for item in found if item["module"] == module}
        known, present = explained.get(module, {}), mutants(path_of(module).read_text())
        here = Counter(str(item["end"]) for item in mine.values())
        survivors = [mutant for mutant in present if mine.get(mutant.key, {}).get("end") == "survived"]
        new = [mutant for mutant in survivors if mutant.key not in known]
        # A test's patience on a busy machine kills one now and then that lives on a quiet one.
        killed = [key for key in known if mine.get(key, {}).get("end") in ("killed", "hung")]
        gone = stale(known, present)
        sys.stdout.write(
            f"{module}: {len(mine)} mutants, {here['killed']} killed, {here['hung']} hung, "
            f"{len(survivors) - len(new)} survive for a known reason, {len(new)} new survivors\n"
        )
        sys.stdout.writelines(f"\n# line {mutant.line_number}\n{entry(module, mutant)}" for mutant in new)
        sys.stdout.writelines(f"explained, and killed this time: {key}\n" for key in killed)
        sys.stdout.writelines(f"explained, and not there: {key}\n" for key in gone)
        news += len(new) + len(gone)
        ends += here
    sys.stdout.write(
        f"{sum(ends.values())} mutants: {', '.join(f'{count} {end}' for end, count in sorted(ends.items()))}\n"
    )
    return 1 if news else 0


if __name__ == "__main__":
    sys.exit(main())
