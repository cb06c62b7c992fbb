"""Findings about the host: kernel, memory, swap, kernel log, port, and the model directory."""

import os
import socket
from pathlib import Path

from harness.doctor_lines import Line, failure, ok, skipped, unknown, warning
from harness.errors import BenchError
from harness.host.facts import Host
from harness.host.flight import told
from harness.host.kernel_log import KernelLog
from harness.host.model_files import Progress, called, check, check_model_directory, list_files
from harness.lanes import Lane
from harness.models import LoadedManifest

MOST = 20
"""lines of one kind; a wedged card and a wrong directory have many"""


def kernel_line(host: Host) -> Line:
    """Which kernel, and on which machine."""
    return ok(
        "host", f"{host.value('hostname')}, kernel {host.value('kernel')}, {host.value('cpu_model') or 'CPU unknown'}"
    )


def memory_lines(host: Host, lane: Lane) -> list[Line]:
    """What is available against what the launcher waits for, and swap."""
    there, wanted = host.value("memory_available_bytes"), lane.min_mem_available
    if there is None:
        found = [
            unknown(
                "memory", host.facts["memory_available_bytes"].note, "look at /proc/meminfo", needed=wanted is not None
            )
        ]
    elif wanted is not None and there < wanted:
        found = [
            failure(
                "memory",
                f"{there / 2**30:.1f} GiB are available, launcher {lane.name} waits for {wanted / 2**30:.1f} GiB",
                "end other programs",
            )
        ]
    else:
        need = "" if wanted is None else f", launcher {lane.name} waits for {wanted / 2**30:.1f} GiB"
        found = [ok("memory", f"{there / 2**30:.1f} GiB are available{need}")]
    swap = host.value("swap_bytes")
    if swap is None:
        return [*found, unknown("swap", host.facts["swap_bytes"].note)]
    if swap and lane.card_env is not None:
        do = (
            "nothing for containers, ours never swap; for --engine process: swapoff -a, because swapping makes xe fault"
        )
        return [*found, warning("swap", f"{swap / 2**30:.1f} GiB", do)]
    return [*found, ok("swap", f"{swap / 2**30:.1f} GiB" if swap else "none")]


def log_lines(log: KernelLog, lane: Lane) -> list[Line]:
    """Faults of the cards on this boot."""
    name = "kernel log"
    if lane.card_env is None:
        return [skipped(name, f"launcher {lane.name} uses no card")]
    faults = log.faults()
    do = "start the host again; a campaign probes the cards first, and is refused when that fails"
    lines = [failure(name, sentence, do) for sentence in told(faults[:MOST])]
    if len(faults) > MOST:
        lines.append(failure(name, f"{len(faults) - MOST} more faults", do))
    if log.state == "unknown":
        lines.append(
            unknown(
                name,
                log.why,
                "run bench doctor as root once, or join the group systemd-journal, or give --kernel-log FILE",
            )
        )
    return lines or [ok(name, f"no fault of the cards on this boot, read from {log.source}")]


def port_line(port: int | None) -> Line:
    """Whether a server can be published there."""
    if port is None:
        return ok("port", "each server takes a free one")
    try:
        with socket.create_server(("127.0.0.1", port)):
            return ok("port", f"{port} is free")
    except OSError as error:
        return failure(
            "port",
            f"{port} can't be used ({os.strerror(error.errno or 0)})",
            "end what listens there, or choose another --port",
        )


def model_lines(lane: Lane, directory: Path | None, manifest: LoadedManifest | None, progress: Progress) -> list[Line]:
    """The model directory against its manifest: sizes, sha256, dangling links."""
    name = "model"
    if not lane.model.directory_needed:
        return [skipped(name, f"launcher {lane.name} needs no model directory")]
    if directory is None:
        return [unknown(name, "no --model-dir is given, so it was not looked at", "give --model-dir DIR")]
    try:
        check_model_directory(directory)
        if manifest is None:
            problems = list(list_files(directory).problems.values())
        else:
            problems = check(directory, manifest.manifest, progress)
    except BenchError as error:
        return [failure(name, str(error), "give the directory of the weights")]
    do = "get the right files" if manifest is None else f"get the files that {manifest.name} names"
    lines = [failure(name, problem, do) for problem in problems[:MOST]]
    if len(problems) > MOST:
        lines.append(failure(name, f"{len(problems) - MOST} more files", do))
    if manifest is None:
        lines.append(
            warning(
                name,
                f"{called(directory)} has no manifest, so nobody says what its files should be",
                "write one with bench model pin DIR, and give --model-manifest FILE",
            )
        )
    if manifest is None or lines:
        return lines
    count = len(manifest.manifest.files)
    return [ok(name, f"{called(directory)} is what {manifest.name} says: {count} files by size and sha256")]
