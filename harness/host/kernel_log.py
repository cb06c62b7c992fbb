"""This boot's kernel log since a campaign began, from the journal, from dmesg or from a file (contract section 8).

What can't be read whole is unknown, never clean: no permission, no command, another boot, lines lost at its start.
"""

import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.host.faults import FaultLine, KernelLine, Moment, is_after, plain, scan
from harness.host.kernel_lines import parse_lines

MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 60.0
MARGIN_S = 60
"""The journal is asked for so much more than is needed; the lines' own monotonic time decides."""
EARLY_S = 300
"""A log whose first line is older than this after the boot is whole."""
AGAIN = "the host has been started again since, and its log with it"
DRIFT = 1e-4
"""The kernel's line stamps and CLOCK_MONOTONIC drift apart by less than this; a line in doubt counts as ours."""


@dataclass(frozen=True)
class KernelLog:
    """Lines since the start of the campaign, or of the boot."""

    state: Literal["measured", "unknown"]
    """measured only when every line is there: then no fault means none"""
    lines: tuple[KernelLine, ...]
    """what could be read, also where the state is unknown"""
    source: str
    """journal, dmesg or file; empty when there was none"""
    why: str = ""
    """of unknown, a sentence"""

    def faults(self) -> list[FaultLine]:
        """Faults in the lines. An empty list is clean only when the state is measured."""
        return scan(self.lines)


def boot_id(proc: Path = Path("/proc")) -> str:
    """Of the running kernel; empty when it can't be read."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def now(proc: Path = Path("/proc")) -> Moment:
    """This moment, to be given to ``read_kernel_log`` later."""
    return Moment(boot_id=boot_id(proc), monotonic_ns=time.monotonic_ns(), realtime_ns=time.time_ns())


def read_kernel_log(
    since: Moment | None = None,
    *,
    file: Path | None = None,
    journalctl: str = "journalctl",
    dmesg: str = "dmesg",
    proc: Path = Path("/proc"),
    max_bytes: int = MAX_BYTES,
    timeout_s: float = TIMEOUT_S,
) -> KernelLog:
    """The log since ``since`` (None: the whole boot), from ``file``, else the journal, else dmesg. Never raises.

    The first source that gives the whole of it is taken; else the one that gave most, with all their reasons.
    """
    here = boot_id(proc)
    if since is not None and (not here or not since.boot_id):
        return KernelLog("unknown", (), "", "this host doesn't tell one boot from another")
    if since is not None and since.boot_id != here:
        return KernelLog("unknown", (), "", AGAIN)
    if since is not None:
        # The wall clock may have been set in between, or the host asleep: lines are dated by the clock of then and by
        # that of today, so the earlier of both moments begins the campaign.
        elapsed = time.monotonic_ns() - since.monotonic_ns
        since = since.model_copy(update={"realtime_ns": min(since.realtime_ns, time.time_ns() - elapsed)})
    if file is not None:
        return _of_file(file, since, here, max_bytes)
    read = _Reader(since, here.replace("-", ""), max_bytes, timeout_s)
    tried = [read.journal(journalctl)]
    if tried[0].state == "unknown":
        tried.append(read.dmesg(dmesg))
    best = next((log for log in tried if log.state == "measured"), None)
    if best is not None:
        return best
    most = max(tried, key=lambda log: len(log.lines))
    return KernelLog("unknown", most.lines, most.source, "; ".join(log.why for log in tried))


@dataclass(frozen=True)
class _Reader:
    since: Moment | None
    boot: str
    max_bytes: int
    timeout_s: float

    def journal(self, program: str) -> KernelLog:
        """A user without the right to read it is given an empty journal: so ask for any line of this boot first."""
        common = ["-k", "-b", "-o", "json", "--all", "--no-pager", "--quiet"]
        last, why = self._run([program, *common, "-n", "1"])
        if not why and not last.strip():
            why = "it shows no kernel line of this boot; join the group systemd-journal or adm"
        if why:
            return KernelLog("unknown", (), "journal", f"journal: {why}")
        after = [] if self.since is None else [f"--since=@{self.since.realtime_ns // 10**9 - MARGIN_S}"]
        data, why = self._run([program, *common, *after])
        parsed = parse_lines(data, boot=self.boot)
        if not why and parse_lines(last, boot=self.boot).foreign:
            why = "its lines are of another boot"
        if not why and parsed.unreadable:
            why = f"{parsed.unreadable} of its lines can't be read"
        if not why and self.since is None and not _early(parsed.lines):
            why = "it doesn't reach back to the boot"
        lines = tuple(line for line in parsed.lines if is_after(line, self.since))
        return KernelLog("unknown" if why else "measured", lines, "journal", f"journal: {why}" if why else "")

    def dmesg(self, program: str) -> KernelLog:
        """``--raw`` gives the kernel's own stamps, so that no wall clock comes in."""
        data, why = self._run([program, "--raw"])
        lines = parse_lines(data).lines
        if not why and not lines:
            why = "it shows no line"
        kept, lost = _since(lines, self.since)
        if not why and lost:
            why = "its first lines are gone from the kernel's ring"
        return KernelLog("unknown" if why else "measured", kept, "dmesg", f"dmesg: {why}" if why else "")

    def _run(self, argv: list[str]) -> tuple[bytes, str]:
        """Output, and why it isn't whole."""
        program = shutil.which(argv[0])
        if program is None:
            return b"", "there is no such command"
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    [program, *argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=env
                )
            except OSError as error:
                return b"", error.strerror or str(error)
            with process:
                data, why = self._collect(process)
                if why:
                    process.kill()
            errors.seek(0)
            said = plain(errors.read(2000).decode("utf-8", "replace"))
        if not why and process.returncode:
            why = said or f"it ended with exit code {process.returncode}"
        return data, why

    def _collect(self, process: "subprocess.Popen[bytes]") -> tuple[bytes, str]:
        assert process.stdout is not None
        data, deadline = bytearray(), time.monotonic() + self.timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                return bytes(data), f"it gave no end within {self.timeout_s:g} s"
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return bytes(data), ""
            data += piece
            if len(data) > self.max_bytes:
                return bytes(data[: data.rfind(b"\n") + 1]), f"it is larger than {self.max_bytes >> 20} MiB"


def _since(lines: Iterable[KernelLine], since: Moment | None) -> tuple[tuple[KernelLine, ...], bool]:
    """Lines that are or may be after ``since``, and whether lines before them may have been lost."""
    kept = list(lines)
    if since is None:
        return tuple(kept), not _early(kept)
    slack_ns = int(10**9 + since.monotonic_ns * DRIFT)
    begin = since.model_copy(
        update={
            "monotonic_ns": max(0, since.monotonic_ns - slack_ns),
            "realtime_ns": since.realtime_ns - slack_ns,
        }
    )
    timed = next((line for line in kept if line != KernelLine(line.text)), None)
    # A log that begins after the campaign did has lost what stood before, unless it begins with the boot.
    lost = timed is None or (is_after(timed, begin) and not _early([timed]))
    return tuple(line for line in kept if is_after(line, begin)), lost


def _early(lines: Iterable[KernelLine]) -> bool:
    first = next((line for line in lines if line != KernelLine(line.text)), None)
    if first is None:
        return False
    if first.monotonic_us is not None:
        return first.monotonic_us <= EARLY_S * 10**6
    assert first.realtime_us is not None
    return first.realtime_us / 1e6 <= _boot_realtime_s() + EARLY_S


def _boot_realtime_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _of_file(path: Path, since: Moment | None, here: str, max_bytes: int) -> KernelLog:
    """A saved log, or one that a daemon writes. It must have been written since, or it can't tell of the campaign."""

    def unknown(why: str, lines: tuple[KernelLine, ...] = ()) -> KernelLog:
        return KernelLog("unknown", lines, "file", f"file {path.name}: {why}")

    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not path.is_file():
                return unknown("it is no file")
            cut = status.st_size > max_bytes
            file.seek(max(0, status.st_size - max_bytes))
            data = file.read(max_bytes)
    except OSError as error:
        return unknown(error.strerror or str(error))
    if cut:
        data = data[data.find(b"\n") + 1 :]
    boot_s = _boot_realtime_s()
    parsed = parse_lines(data, boot=here.replace("-", ""), not_before_us=int((boot_s - 1) * 1e6))
    kept, lost = _since(parsed.lines, since)
    begin_s = boot_s if since is None else since.realtime_ns / 1e9
    if not parsed.lines:
        return unknown("it has no line of this boot")
    if not parsed.timed:
        return unknown("none of its lines has a time", kept)
    if status.st_mtime < begin_s - 1:
        return unknown("it was last written before the campaign began" if since else "it is of an earlier boot", kept)
    if parsed.unreadable:
        return unknown(f"{parsed.unreadable} of its lines can't be read", kept)
    if lost:
        return unknown("it doesn't reach back to the " + ("campaign's start" if since else "boot"), kept)
    return KernelLog("measured", kept, "file")
