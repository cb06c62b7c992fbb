"""The real ``bench`` command as a process, with a launcher whose simulated servers answer in seconds."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

LAUNCHER = """
schema = 1
name = "fast"
title = "Fast simulated server"
engine = "simulated"
engines = ["simulated"]
served_model_name = "simulated"
tensor_parallel = [1, 2]
mtp_depths = [0, 1, 2, 3]
speculative_method = "mtp"
canaries = "chat"
dev_mode = true
arguments = {arguments}

[model]
directory_needed = false

[shapes.strict]
max_model_len = 1024
max_num_seqs = 1
max_num_batched_tokens = 1024

[limits]
ready_s = {ready_s}
stall_s = {stall_s}
stop_s = 5
gone_s = 5
"""


def write_launcher(
    folder: Path, *faults: str, step_us: int = 150, ids: int | None = 110, ready_s: float = 20, stall_s: float = 10
) -> Path:
    """A launcher file with simulated servers that give ``ids`` tokens an answer, one each ``step_us``."""
    words = ["--step-us", str(step_us), "--ttft-ms", "2"]
    for fault in [*faults, *([] if ids is None else [f"short:{ids}"])]:
        words += ["--fault", fault]
    path = folder / "fast.toml"
    path.write_text(LAUNCHER.format(arguments=json.dumps(words), ready_s=ready_s, stall_s=stall_s))
    return path


def environment(home: Path) -> dict[str, str]:
    """A user's environment without anything of this machine's user, and with a proxy that nobody must take."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }


def command(*words: str | Path) -> list[str]:
    return [str(Path(sys.executable).with_name("bench")), *map(str, words)]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line on stderr, without the command's name."""
        assert self.err.startswith("bench: ") and self.err.count("\n") == 1, self.err
        return self.err.removeprefix("bench: ").rstrip()


Typed = Callable[..., Done]
"""``bench WORDS`` in this process; see the fixture ``typed``"""


def bench(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120) -> Done:
    """Run ``bench WORDS`` to its end."""
    done = subprocess.run(
        command(*words),
        cwd=cwd,
        env={**environment(cwd), **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def strict(cwd: Path, launcher: Path, *words: str | Path, depth: int = 0, **changes: Any) -> Done:
    """``bench strict`` with a launcher file."""
    return bench("strict", "--mtp", str(depth), "--launcher", launcher, *words, cwd=cwd, **changes)


def campaign_of(cwd: Path) -> Path:
    """The one campaign under ``experiments``."""
    (found,) = sorted((cwd / "experiments").iterdir())
    return found


def evidence_of(campaign: Path) -> Any:
    return json.loads((campaign / "evidence.json").read_text())


def gate_of(evidence: Any, name: str, label: str = "mtp0-a") -> Any:
    """The gate ``name`` of an attempt, or the first one of that name between attempts."""
    if name in ("G1", "G2", "G3"):
        return next(gate for gate in evidence["gates"] if gate["name"] == name)
    attempt = next(item for item in evidence["attempts"] if item["label"] == label)
    return next(gate for gate in attempt["gates"] if gate["name"] == name)


def servers_left(campaign: Path) -> list[int]:
    """Processes that have this campaign's caches in their environment: its servers."""
    needle = f"{campaign}/caches/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and needle in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Poll with a deadline; the wait is never what makes a test right."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


@contextmanager
def running(*words: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """``bench WORDS`` while it runs; killed at the end if it still does."""
    process = subprocess.Popen(
        command(*words), cwd=cwd, env=environment(cwd), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> str:
    """Read its output up to a line that matches."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if re.search(pattern, line):
            return line
    raise AssertionError(f"no line matches {pattern}: {''.join(seen)}")
