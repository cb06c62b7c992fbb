"""Who is shown what happens: the events of a campaign, as a face receives them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Start
from harness.measure.gates import Gate
from harness.measure.ladder import Batch
from harness.measure.rows import Row


class Watcher(Protocol):
    """Receives every event; never raises."""

    def campaign(self, directory: Path, start: Start, done: Sequence[str]) -> None:
        """It begins, or goes on with ``done`` labels finished before."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def attempt(self, label: str, directory: str) -> None:
        """An attempt begins."""

    def stage(self, label: str, text: str) -> None:
        """What it is doing now."""

    def row(self, label: str, row: Row, total: int) -> None:
        """A suite prompt was answered."""

    def batch(self, label: str, batch: Batch, passes: int) -> None:
        """A rung of a ladder was measured."""

    def attempt_ended(self, label: str, status: str, error: str) -> None:
        """It ended, its server is stopped."""

    def gate(self, gate: Gate) -> None:
        """A gate between attempts was derived."""

    def ended(self, evidence: AnyEvidence, directory: Path) -> None:
        """The campaign is over and its evidence written."""
