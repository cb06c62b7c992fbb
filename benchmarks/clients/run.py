"""One client in this process, which has no other work, so that CPU time and memory are the client's own.

``python -m benchmarks.clients.run MODULE JOB`` with the job as JSON; prints the figures as JSON, or ``{"absent": …}``
for a client that isn't installed.
"""

import importlib
import json
import resource
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.clients.job import Client, Job, figures
from benchmarks.source import expected_ids


def cpu_s() -> float:
    """User and system time of all threads of this process, seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory_mib(name: str) -> float:
    """VmRSS or VmHWM (its peak), MiB. ru_maxrss would hold the parent's peak from before the exec."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(name: str, job: Job) -> dict[str, object]:
    """Measure one client."""
    try:
        module = importlib.import_module(f"benchmarks.clients.{name}")
    except ModuleNotFoundError as error:
        return {"absent": f"{error.name} is not installed"}
    before_mib = memory_mib("VmRSS")
    client: Client = module.Client(job)
    for _ in range(job.warm_rounds):
        client.round()
    start = cpu_s()
    heard = [client.round() for _ in range(job.rounds)]
    read = cpu_s()
    peak_mib = memory_mib("VmHWM")
    rounds = [[client.parse(stream) for stream in each] for each in heard]
    parsed = cpu_s()
    client.close()
    result = figures(job, rounds, expected_ids(job.tokens), (read - start, parsed - read))
    result |= {"memory_at_start_mib": before_mib, "memory_peak_reading_mib": peak_mib}
    return result | {"memory_peak_mib": memory_mib("VmHWM"), "timestamps": client.timestamps, "version": client.version}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Job(**json.loads(sys.argv[2])))))
