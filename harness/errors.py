"""The tree of errors a user can meet, each with the exit code of contract section 4.

Every message is one sentence that says what is wrong, where, and what to do.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (contract section 4)."""

    OK = 0
    """all gates passed, or the command did what was asked"""
    GATE_FAILED = 1
    """a gate failed; the evidence is written"""
    INFRASTRUCTURE = 2
    """no verdict: the host, the engine or the server failed, or the result is inconclusive"""
    USAGE = 64
    """the command line or an input file is wrong"""


class BenchError(Exception):
    """Root of the errors that end a command with one sentence instead of a traceback."""

    exit_code = ExitCode.INFRASTRUCTURE


class UsageError(BenchError):
    """A wrong option, launcher, image, suite or model: nothing was started."""

    exit_code = ExitCode.USAGE


class EvidenceError(BenchError):
    """A campaign directory that can't be read, or that isn't what it says."""

    exit_code = ExitCode.GATE_FAILED


class RecordError(BenchError):
    """A file of a campaign that can't be written: the disk is full or read-only, or the directory has gone."""


class LaunchError(BenchError):
    """A server that couldn't be started, never became ready, or died."""


class FreshnessError(LaunchError):
    """What runs isn't what was asked, or isn't fresh: found before the first measured prompt."""


class Interrupted(BaseException):
    """The user or the system ended the command (SIGINT, SIGTERM, SIGHUP).

    Like KeyboardInterrupt no Exception: it comes wherever the process just is, and neither a library that turns every
    Exception into one of its own nor a step of ours that notes a BenchError and goes on may keep it.
    """

    exit_code = ExitCode.INFRASTRUCTURE
