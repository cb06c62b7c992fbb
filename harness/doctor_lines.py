"""What ``bench doctor`` says of one thing: its state, what was found, and what to do."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.errors import ExitCode

State = Literal["ok", "warning", "failure", "unknown", "not applicable"]


@dataclass(frozen=True)
class Line:
    """One finding."""

    name: str
    state: State
    what: str
    """what was found"""
    do: str = ""
    """what to do; empty where nothing is to be done"""
    needed: bool = False
    """unknown counts as a failure, because no campaign can do without it"""

    @property
    def bad(self) -> bool:
        """A campaign on this host would fail, or couldn't be trusted."""
        return self.state == "failure" or (self.needed and self.state == "unknown")

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def ok(name: str, what: str) -> Line:
    """Nothing to do."""
    return Line(name, "ok", what)


def warning(name: str, what: str, do: str) -> Line:
    """A campaign runs, and somebody should know this."""
    return Line(name, "warning", what, do)


def failure(name: str, what: str, do: str) -> Line:
    """A campaign would fail, or couldn't be trusted."""
    return Line(name, "failure", what, do)


def unknown(name: str, what: str, do: str = "", *, needed: bool = False) -> Line:
    """It can't be told; that is never clean."""
    return Line(name, "unknown", what, do, needed)


def skipped(name: str, why: str) -> Line:
    """The launcher doesn't need it."""
    return Line(name, "not applicable", why)


def exit_code(lines: Iterable[Line]) -> ExitCode:
    """2 when a line is a failure, or unknown and needed; else 0, warnings included.

    The command failed no gate, so 1 is never its answer.
    """
    return ExitCode.INFRASTRUCTURE if any(line.bad for line in lines) else ExitCode.OK
