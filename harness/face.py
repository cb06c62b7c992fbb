"""What a person sees of a campaign: a live table on a terminal, plain lines elsewhere, JSON lines for machines."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.console import console
from harness.evidence.context_schema import ContextEvidence
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.schema import Start
from harness.measure.gates import Gate
from harness.measure.ladder import Batch
from harness.measure.rates import median
from harness.measure.rows import Row
from harness.summary import SIMULATED_MARK, gate_words, number, summary

WIDTH = 160
"""Columns of plain output"""


@dataclass
class _Seen:
    """What the face knows of one server."""

    stage: str = "waiting"
    directory: str = ""
    rows: list[Row] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    total: int = 12
    started: float = 0.0
    ended: float | None = None
    status: str = ""

    def rate(self) -> float | None:
        """Median of the rows so far, for orientation only."""
        return median(row.tok_s_1_100 for row in self.rows if row.tok_s_1_100 is not None)


class PlainFace:
    """One line for each thing that happened; what a log or a pipe gets."""

    def __init__(self, out: TextIO, command: str) -> None:
        self._console = console(file=out, highlight=False, width=WIDTH, no_color=True, force_terminal=False)
        self._command = command
        self._stage: dict[str, str] = {}
        self._mark = ""
        """stands behind every number of a simulated campaign"""

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def campaign(self, directory: Path, start: Start, done: Sequence[str]) -> None:
        """See harness.watching.Watcher."""
        plan = start.plan
        simulated = "SIMULATED, no measurement: " if start.simulated else ""
        self._mark = SIMULATED_MARK if start.simulated else ""
        self._say(f"{simulated}{start.lane_title}, TP{plan.tensor_parallel}, MTP depth {plan.depth}")
        self._say(f"campaign {directory.name}: {', '.join(server.label for server in plan.servers)}")
        if done:
            self._say(f"already complete: {', '.join(done)}")

    def note(self, text: str) -> None:
        """See harness.watching.Watcher."""
        self._say(text)

    def attempt(self, label: str, directory: str) -> None:
        """See harness.watching.Watcher."""
        self._say(f"{label}: fresh server (attempts/{directory})")

    def stage(self, label: str, text: str) -> None:
        """Said once for each kind of stage; the counting ones would fill a log."""
        kind = text.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
        if self._stage.get(label) != kind and kind != "prompt":
            self._say(f"{label}: {text}")
        self._stage[label] = kind

    def row(self, label: str, row: Row, total: int) -> None:
        """See harness.watching.Watcher."""
        place = f"{label}: {row.index + 1:2}/{total} {row.prompt_id}"
        if row.complete:
            ttft = number(row.ttft_ms, "ms", 1)
            self._say(
                f"{place}: {len(row.token_ids)} tokens, {number(row.tok_s_1_100, 'tokens/s')}, TTFT {ttft}{self._mark}"
            )
        else:
            self._say(f"{place}: INVALID, {row.reason}: {row.detail}")

    def batch(self, label: str, batch: Batch, passes: int) -> None:
        """See harness.watching.Watcher."""
        rate = number(batch.aggregate_tok_s_wall, "tokens/s", 1)
        warm = " (warm-up)" if batch.number == 1 else ""
        place = f"{label}: pass {batch.number}/{passes}{warm} c{batch.rung}"
        self._say(f"{place}: {rate}, {batch.exact}/{len(batch.requests)} exact{self._mark}")

    def attempt_ended(self, label: str, status: str, error: str) -> None:
        """See harness.watching.Watcher."""
        self._say(f"{label}: {status}{': ' + error if error else ''}")

    def gate(self, gate: Gate) -> None:
        """See harness.watching.Watcher."""
        self._say(f"{gate_words(gate)} ({gate.subject})")

    def ended(self, evidence: AnyEvidence, directory: Path) -> None:
        """See harness.watching.Watcher."""
        for part in summary(evidence, directory, self._command):
            self._console.print(part, soft_wrap=isinstance(part, Text))


class JsonFace:
    """One JSON object a line, and the evidence's summary as the last."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _say(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"event": event, **fields}, ensure_ascii=False, allow_nan=False) + "\n")
        self._out.flush()

    def campaign(self, directory: Path, start: Start, done: Sequence[str]) -> None:
        """See harness.watching.Watcher."""
        servers = [server.label for server in start.plan.servers]
        self._say("campaign", id=start.campaign_id, directory=str(directory), servers=servers, done=list(done))

    def note(self, text: str) -> None:
        """See harness.watching.Watcher."""
        self._say("note", text=text)

    def attempt(self, label: str, directory: str) -> None:
        """See harness.watching.Watcher."""
        self._say("attempt", label=label, directory=directory)

    def stage(self, label: str, text: str) -> None:
        """See harness.watching.Watcher."""
        self._say("stage", label=label, text=text)

    def row(self, label: str, row: Row, total: int) -> None:
        """See harness.watching.Watcher."""
        self._say(
            "row",
            label=label,
            index=row.index,
            total=total,
            prompt_id=row.prompt_id,
            complete=row.complete,
            reason=row.reason,
            tokens=len(row.token_ids),
            tok_s_1_100=row.tok_s_1_100,
            ttft_ms=row.ttft_ms,
        )

    def batch(self, label: str, batch: Batch, passes: int) -> None:
        """See harness.watching.Watcher."""
        self._say(
            "batch",
            label=label,
            rung=batch.rung,
            number=batch.number,
            passes=passes,
            aggregate_tok_s_wall=batch.aggregate_tok_s_wall,
            exact=batch.exact,
            total=len(batch.requests),
        )

    def attempt_ended(self, label: str, status: str, error: str) -> None:
        """See harness.watching.Watcher."""
        self._say("attempt-ended", label=label, status=status, error=error)

    def gate(self, gate: Gate) -> None:
        """See harness.watching.Watcher."""
        self._say("gate", **gate.model_dump(mode="json"))

    def ended(self, evidence: AnyEvidence, directory: Path) -> None:
        """See harness.watching.Watcher."""
        pairs, rungs, classification = list[dict[str, Any]](), list[dict[str, Any]](), None
        points, probes = list[dict[str, Any]](), list[dict[str, Any]]()
        if isinstance(evidence, LadderEvidence):
            rungs, classification = [rung.model_dump(mode="json") for rung in evidence.rungs], evidence.classification
        elif isinstance(evidence, ContextEvidence):
            points = [point.model_dump(mode="json") for point in evidence.points]
            probes = [probe.model_dump(mode="json") for probe in evidence.probes]
        else:
            pairs = [pair.model_dump(mode="json") for pair in evidence.pairs]
        self._say(
            "ended",
            status=evidence.status,
            exit_code=evidence.exit_code,
            conclusion=evidence.conclusion,
            classification=classification,
            simulated=evidence.simulated,
            withheld=evidence.withheld,
            reasons=evidence.reasons,
            pairs=pairs,
            rungs=rungs,
            points=points,
            probes=probes,
            directory=str(directory),
        )


class LiveFace:
    """A table that is redrawn in place: a row per server, the gates so far, the time left."""

    def __init__(self, screen: Console, command: str) -> None:
        self._console = screen
        self._command = command
        self._seen: dict[str, _Seen] = {}
        self._gates: list[Gate] = []
        self._notes: list[str] = []
        self._title = ""
        # Last: it draws once while it is made.
        self._live = Live(console=screen, refresh_per_second=5, transient=True, get_renderable=self._draw)

    def campaign(self, directory: Path, start: Start, done: Sequence[str]) -> None:
        """See harness.watching.Watcher."""
        plan = start.plan
        simulated = "SIMULATED, no measurement · " if start.simulated else ""
        self._title = f"{simulated}{start.lane_title} · TP{plan.tensor_parallel} · MTP depth {plan.depth}"
        of_context = plan.context is not None and plan.kind != "strict"
        total = len(plan.context.prompts) if of_context and plan.context else len(start.suite.prompts)
        for server in plan.servers:
            kept = server.label in done
            self._seen[server.label] = _Seen(stage="kept" if kept else "waiting", total=total)
        self._live.start()

    def note(self, text: str) -> None:
        """See harness.watching.Watcher."""
        if self._live.is_started:
            self._notes.append(text)
        else:
            self._console.print(Text(text))

    def attempt(self, label: str, directory: str) -> None:
        """See harness.watching.Watcher."""
        seen = self._seen[label]
        seen.directory, seen.started, seen.stage = directory, time.monotonic(), "starting"

    def stage(self, label: str, text: str) -> None:
        """See harness.watching.Watcher."""
        self._seen[label].stage = text

    def row(self, label: str, row: Row, total: int) -> None:
        """See harness.watching.Watcher."""
        self._seen[label].rows.append(row)

    def batch(self, label: str, batch: Batch, passes: int) -> None:
        """See harness.watching.Watcher."""
        self._seen[label].batches.append(batch)

    def attempt_ended(self, label: str, status: str, error: str) -> None:
        """See harness.watching.Watcher."""
        seen = self._seen[label]
        seen.stage, seen.status, seen.ended = status, status, time.monotonic()

    def gate(self, gate: Gate) -> None:
        """See harness.watching.Watcher."""
        self._gates.append(gate)

    def ended(self, evidence: AnyEvidence, directory: Path) -> None:
        """See harness.watching.Watcher."""
        self.close()
        self._console.print(Group(*summary(evidence, directory, self._command)))

    def close(self) -> None:
        """Give the terminal back; idempotent."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        table = Table(title=self._title, title_justify="left", expand=False)
        for name, justify in (("server", "left"), ("doing", "left"), ("prompts", "right"), ("tokens", "right")):
            table.add_column(name, justify="right" if justify == "right" else "left")
        table.add_column("median so far, or last rung", justify="right")
        table.add_column("time", justify="right")
        for label, seen in self._seen.items():
            tokens = sum(len(row.token_ids) for row in seen.rows)
            tokens += sum(request.tokens for batch in seen.batches for request in batch.requests)
            rate, answered = number(seen.rate(), "tokens/s"), f"{len(seen.rows)}/{seen.total}"
            if seen.batches:
                last = seen.batches[-1]
                rate = f"c{last.rung} {number(last.aggregate_tok_s_wall, 'tokens/s', 1)}"
                answered = f"{last.exact}/{len(last.requests)} exact"
            spent = (seen.ended or time.monotonic()) - seen.started if seen.started else None
            style = {"complete": "green", "invalid": "red", "interrupted": "yellow"}.get(seen.status, "")
            table.add_row(
                Text(label),
                Text(seen.stage, style=style),
                answered,
                str(tokens) if tokens else "–",
                rate,
                "–" if spent is None else f"{spent:.0f} s",
            )
        gates = Text("gates so far: ")
        for gate in self._gates:
            gates.append(f"{gate_words(gate)}  ", style="green" if gate.passed else "red")
        if not self._gates:
            gates.append("none yet")
        left = self._left()
        lines: list[RenderableType] = [
            table,
            gates,
            Text(f"time left: {'unknown yet' if left is None else f'about {left:.0f} s'}"),
        ]
        return Group(*lines, *(Text(note, style="dim") for note in self._notes[-3:]))

    def _left(self) -> float | None:
        """From the mean of the servers that ended and the share of the one that runs."""
        spans = [s.ended - s.started for s in self._seen.values() if s.ended is not None and s.started]
        if not spans:
            return None
        mean = sum(spans) / len(spans)
        running = [s for s in self._seen.values() if s.started and s.ended is None]
        waiting = [s for s in self._seen.values() if s.stage == "waiting"]
        spent = sum(time.monotonic() - s.started for s in running)
        return max(0.0, mean * (len(waiting) + len(running)) - spent)
