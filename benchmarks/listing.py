"""How long ``bench list`` takes over ten thousand campaigns: a first listing, and one with the index of the first.

    python -m benchmarks.listing CAMPAIGN [COUNT]

CAMPAIGN is a real campaign directory; its evidence.json is multiplied in a temporary directory, each copy a file of its
own with its own name and date, as large as the original. Beyond its first 48 KiB a copy is a hole, so that ten thousand
fit on a disk; a listing reads 32.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = (sys.executable, "-c", "from harness.cli import main; main()")


def multiply(campaign: Path, count: int, to: Path, *, real: int = 48 * 1024) -> None:
    """``count`` campaign directories with the evidence of one; each is a hole after ``real`` bytes."""
    text = (campaign / "evidence.json").read_bytes()
    name = json.loads(text)["campaign_id"].encode()
    for number in range(count):
        mine = b"%04d-01-01T000000Z-copy" % (1000 + number % 9000) + name[-8:] + b"-%d" % number
        copy = re.sub(rb'("started_at": ")\d{4}', rb"\g<1>%04d" % (1000 + number % 9000), text.replace(name, mine))
        folder = to / mine.decode()
        folder.mkdir()
        with (folder / "evidence.json").open("wb") as file:
            file.write(copy[:real])
            file.truncate(len(copy))
        past = time.time_ns() - 10**12
        os.utime(folder / "evidence.json", ns=(past, past))


def timed(directory: Path, *words: str) -> tuple[float, float, int]:
    """(seconds of a whole process, CPU seconds of it, bytes it printed)."""
    begin, used = time.perf_counter(), cpu_s()
    done = subprocess.run([*BENCH, "list", str(directory), *words], capture_output=True, check=True)
    return time.perf_counter() - begin, cpu_s() - used, len(done.stdout)


def cpu_s() -> float:
    """Of the processes that have ended: on a busy machine the better measure."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the seconds."""
    campaign, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        multiply(campaign, count, Path(folder))
        for what in ("first listing", "second listing", "second listing, filtered to none"):
            seconds, cpu, size = timed(Path(folder), *(["--lane", "none"] if what.endswith("none") else []))
            sys.stdout.write(f"{what} of {count} campaigns: {seconds:.2f} s ({cpu:.2f} s CPU), {size} bytes printed\n")


if __name__ == "__main__":
    main()
