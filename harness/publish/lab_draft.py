"""What the readers of the lab's formats collect, and the words that several of them need."""

import re
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.imported import (
    Basis,
    Figure,
    ImportedDepthPoint,
    ImportedGate,
    ImportedLadder,
    ImportedRow,
    ImportedServer,
    ImportedSuite,
    NamedField,
)
from harness.measure import rates
from harness.publish.lab_read import Document, get, number, text
from harness.suites import CLASS_BY_ID

COUNT = re.compile(r"\b(\d{1,7})/(\d{1,7})\b")
_LABEL = re.compile(r"\bmtp(\d{1,2})-([a-z])\b")
_TP = re.compile(r"\bTP=?(\d)\b")


@dataclass
class Draft:
    """An ImportedEvidence that grows file by file."""

    simulated: bool = False
    not_publishable: list[str] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=lambda: dict(CLASS_BY_ID))
    """class by id of every prompt that a whole attempt has: the strict suite's, or those of the suite that was used"""
    model: dict[str, Any] = field(default_factory=dict)
    image_id: str | None = None
    image: str | None = None
    runtime: str | None = None
    suite_sha256: str | None = None
    hosts: list[str] = field(default_factory=list)
    host_names: set[str] = field(default_factory=set)
    """never in evidence: replaced wherever they stand"""
    environment: dict[str, str | None] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    servers: dict[str, ImportedServer] = field(default_factory=dict)
    rows: list[ImportedRow] = field(default_factory=list)
    ids: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """complete id arrays by server and prompt"""
    centers: dict[str, Figure] = field(default_factory=dict)
    spreads: dict[str, float] = field(default_factory=dict)
    suites: list[ImportedSuite] = field(default_factory=list)
    gates: list[ImportedGate] = field(default_factory=list)
    ladders: list[ImportedLadder] = field(default_factory=list)
    depth_points: list[ImportedDepthPoint] = field(default_factory=list)
    null_fields: list[NamedField] = field(default_factory=list)
    stale_fields: list[NamedField] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def stale(self, file: str, name: str, why: str) -> None:
        """A field that contradicts another one, or that nothing here can check."""
        self.stale_fields.append(NamedField(file=file, field=name, why=why))

    def read_marks(self, doc: Document) -> None:
        """What forbids to publish a file's figures, whatever its format: it is simulated, or its writer may not."""
        if get(doc.data, "simulated") not in (None, False):
            self.simulated = True
            self.problems.append(f"{doc.name}: it is simulated: nothing in it is a measurement")
        said = get(doc.data, "not_publishable")
        for reason in said if isinstance(said, list) else [said] if said else []:
            self.not_publishable.append(f"{doc.name}: {text(reason) or quoted(reason)}")
            self.problems.append(f"{doc.name}: its writer may not publish it: {text(reason) or quoted(reason)}")

    def claim_gate(self, name: str, subject: str, value: Any) -> None:
        """A gate as ``12/12`` says it; never a pass of ours."""
        counts = count_of(value)
        self.gates.append(
            ImportedGate(
                name=name,
                subject=subject,
                basis=Basis.CLAIMED,
                exact=counts[0] if counts else None,
                total=counts[1] if counts else None,
                passed=counts[0] == counts[1] if counts else None,
            )
        )

    def add_pair(self, arm: str, a: str, b: str, file: str) -> None:
        """Center and spread of two servers; the center keeps the basis of the weaker one."""
        sides = [self.servers[name].class_balanced_median for name in (a, b)]
        if sides[0] is None or sides[1] is None:
            return
        left, right = sides[0], sides[1]
        rederived = left.basis is right.basis is Basis.REDERIVED
        self.centers.setdefault(
            arm,
            Figure(
                value=rates.center(left.value, right.value),
                basis=Basis.REDERIVED if rederived else Basis.CLAIMED,
                file=file,
                field=f"mean of {a} and {b}",
            ),
        )
        spread = rates.spread(left.value, right.value)
        if spread is not None:
            self.spreads[arm] = spread
            if spread > 0.01:
                self.problems.append(
                    f"{arm}: the servers {left.value:.3f} and {right.value:.3f} are {spread:.2%} apart, above 1 %: "
                    "quote all servers, and measure another pair"
                )


def claimed(value: Any, file: str, name: str) -> Figure | None:
    """A number that stands in a file; None for what is none."""
    found = number(value)
    return None if found is None else Figure(value=found, basis=Basis.CLAIMED, file=file, field=name)


def count_of(value: Any) -> tuple[int, int] | None:
    """``12/12`` at the start of a text → (12, 12); None for anything else or an impossible count."""
    found = COUNT.match(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    exact, total = int(found[1]), int(found[2])
    return (exact, total) if 0 <= exact <= total and total else None


def label_of(*texts: str) -> tuple[str, int] | None:
    """The first ``mtp3-a`` in the texts with its depth."""
    for value in texts:
        if found := _LABEL.search(value):
            return found[0], int(found[1])
    return None


def tensor_parallel_of(*texts: str) -> int | None:
    """The first ``TP2`` or ``TP=2``; None when nothing says it, or when the texts disagree inside one."""
    for value in texts:
        said = {int(found) for found in _TP.findall(value)}
        if len(said) == 1:
            return said.pop()
    return None


def config_words(value: str) -> dict[str, str]:
    """``LANE=… TP=1 mask=0`` → a dict."""
    return dict(word.split("=", 1) for word in value.split() if "=" in word)


def quoted(value: Any, limit: int = 60) -> str:
    """A value of a file inside a sentence."""
    said = value if isinstance(value, str) else repr(value)
    return said if len(said) <= limit else said[:limit] + "…"
