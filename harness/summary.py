"""The closing summary of a campaign, as a person reads it: numbers with units, gates, reasons, the next command."""

import re
import shlex
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from harness.errors import ExitCode
from harness.evidence.compilations import cold_notes, compile_notes
from harness.evidence.context_schema import ContextEvidence
from harness.evidence.derive import verdict
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.looks import look_notes, looked
from harness.evidence.schema import AttemptStatus, Evidence, Pair, Status
from harness.measure.gates import Gate
from harness.measure.selftest import SelfTest

SIMULATED_MARK = " (simulated)"
LINE = 150
"""Characters of a reason that the summary shows"""


def number(value: float | None, unit: str = "", digits: int = 2) -> str:
    """A figure with its unit, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}{' ' + unit if unit else ''}"


def gate_words(gate: Gate) -> str:
    """``G1 12/12`` or ``fresh passed``."""
    if gate.total is not None:
        return f"{gate.name} {gate.exact}/{gate.total}"
    return f"{gate.name} {'passed' if gate.passed else 'FAILED'}"


def summary(evidence: AnyEvidence, directory: Path, command: str) -> list[RenderableType]:
    """The closing summary: the numbers, the gates, why a number is withheld, what is unknown, the next command."""
    if isinstance(evidence, LadderEvidence):
        parts = ladder_table(evidence)
    elif isinstance(evidence, ContextEvidence):
        parts = probes_table(evidence) if evidence.kind == "probe" else points_table(evidence)
    else:
        parts = pairs_table(evidence)
    return [*parts, *_verdict(evidence, directory, command)]


def pairs_table(evidence: Evidence) -> list[RenderableType]:
    """Both servers of each pair."""
    parts: list[RenderableType] = []
    withheld = evidence.withheld
    mark = SIMULATED_MARK if evidence.simulated else ""
    table = Table(title=f"strict suite, class-balanced median of tokens 1 to 100{mark}", title_justify="left")
    for name in ("pair", "server a", "server b", "center", "spread", "burst-exact", "TTFT a / b", "acceptance"):
        table.add_column(name, justify="left" if name == "pair" else "right")
    for pair in evidence.pairs:
        table.add_row(*_pair_cells(pair, withheld=withheld))
    parts.append(table)
    return parts


def ladder_table(evidence: LadderEvidence) -> list[RenderableType]:
    """Every rung; a withheld one says so, its rate stands beside its count."""
    plan = evidence.start.plan.ladder
    passes, mark = 0 if plan is None else plan.passes, SIMULATED_MARK if evidence.simulated else ""
    table = Table(title=f"ladder, {passes} passes, aggregate tokens/s{mark}", title_justify="left")
    names = ("users", "at once", "graphs", "rate", "steady", "warm-up", "exact", "own", "bound 95 %", "min%", "shown")
    for name in names:
        table.add_column(name, justify="left" if name in ("graphs", "shown") else "right")
    for rung in evidence.rungs:
        graphs = {True: "captured", False: "not captured", None: "–"}[rung.captured]
        seen = looked(evidence.attempts, rung.rung)
        table.add_row(
            f"c{rung.rung}",
            "–" if seen is None else str(seen[1].peak),
            graphs,
            number(rung.tok_s, "", 1),
            number(rung.steady_tok_s, "", 1),
            number(rung.warm_up_tok_s, "", 1),
            f"{rung.exact}/{rung.total}",
            f"{rung.exact_own}/{rung.total}",
            f"{rung.divergence_bound:.3%}",
            "–" if rung.minority_share is None else f"{rung.minority_share:.2%}",
            Text("withheld", style="red") if rung.withheld else Text("yes", style="green"),
        )
    parts: list[RenderableType] = [table, Text(evidence.scope)]
    if evidence.start.self_test is not None:
        parts.append(Text(self_test_line(evidence.start.self_test)))
    missed = [(rung, site) for rung in evidence.rungs for site in rung.sites]
    for rung, site in missed[:8]:
        where = f"c{rung.rung} {site.slot} at token {site.index}"
        parts.append(Text(f"- {where}: {site.oracle_id} in the oracle, {site.other_id} here, {site.times} times"))
    if len(missed) > 8:
        parts.append(Text(f"- and {len(missed) - 8} more sites in evidence.json"))
    return parts


def points_table(evidence: ContextEvidence) -> list[RenderableType]:
    """Every server at every context: the median of the classes, each class, and the count that decides."""
    mark = SIMULATED_MARK if evidence.simulated else ""
    table = Table(title=f"long-context profile, tokens 1 to 100, tokens/s{mark}", title_justify="left")
    classes = list(dict.fromkeys(item.prompt_class for point in evidence.points for item in point.classes))
    for name in ("context", "server", "median", "burst-exact", "TTFT", *classes, "exact", "shown"):
        table.add_column(name, justify="left" if name in ("server", "shown") else "right")
    for point in sorted(evidence.points, key=lambda item: (item.context, item.depth)):
        rates = {item.prompt_class: item.tok_s for item in point.classes}
        table.add_row(
            str(point.context),
            point.label,
            number(point.tok_s),
            number(point.tok_s_burst_exact),
            number(point.ttft_ms, "ms", 1),
            *(number(rates.get(name)) for name in classes),
            "–" if point.exact is None else f"{point.exact}/{point.total}",
            Text("withheld", style="red") if point.withheld else Text("yes", style="green"),
        )
    return [table, Text(evidence.scope)]


def probes_table(evidence: ContextEvidence) -> list[RenderableType]:
    """Every boundary probe of the measured server against the oracle; of the oracle alone where there is no other."""
    mark = SIMULATED_MARK if evidence.simulated else ""
    table = Table(title=f"boundary probes, K = {evidence.start.plan.depth}{mark}", title_justify="left")
    for name in ("prompt tokens", "which", "text", "generated", "server", "against MTP0"):
        table.add_column(name, justify="right" if name in ("prompt tokens", "generated") else "left")
    measured = f"mtp{evidence.start.plan.depth}"
    labels = {probe.label for probe in evidence.probes}
    for probe in evidence.probes:
        if probe.label == measured or measured not in labels:
            said = {True: "exact", False: "not comparable", None: "–"}[probe.exact]
            if probe.problems:
                said = probe.problems[0]
            if probe.divergence is not None:
                at = probe.divergence
                said = f"differs at token {at.first_divergence_token_zero_based}: {at.left_id} against {at.right_id}"
            if probe.degenerate is not None:
                said += f"; {probe.degenerate}"
            text = Text(said, style="red" if probe.exact is False else "")
            table.add_row(str(probe.tokens), probe.what, probe.prompt_class, str(probe.max_tokens), probe.label, text)
    return [table, Text(evidence.scope)]


def _verdict(evidence: AnyEvidence, directory: Path, command: str) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if evidence.gates:
        gates = Text("gates: ")
        for gate in evidence.gates:
            gates.append(f"{gate_words(gate)} ({gate.subject})  ", style="green" if gate.passed else "red")
        parts.append(gates)
    parts.append(_server_gates(evidence))
    if evidence.simulated:
        parts.append(Text("SIMULATED: these numbers are no measurement of any card", style="bold yellow"))
    for reason in evidence.reasons[:12]:
        parts.append(Text("- " + "\n  ".join(short(reason)), style="red"))
    if len(evidence.reasons) > 12:
        parts.append(Text(f"- and {len(evidence.reasons) - 12} more in evidence.json", style="red"))
    for note in _notes(evidence):
        parts.append(Text("- " + "\n  ".join(short(note)), style="yellow"))
    colour = {Status.PASSED: "bold green", Status.INTERRUPTED: "bold yellow"}.get(evidence.status, "bold red")
    said = evidence.conclusion
    if isinstance(evidence, Evidence) and evidence.status is not Status.PASSED:
        said = verdict(evidence)
    parts.append(Text(f"{evidence.status}: {said}", style=colour))
    if evidence.unknown:
        parts.append(Text(f"unknown: {len(evidence.unknown)} facts, named in evidence.json", style="dim"))
    parts.append(Text(f"next: {next_command(evidence, directory, command)}"))
    return parts


def _notes(evidence: AnyEvidence) -> list[str]:
    """What a person should know of the numbers, whatever the verdict."""
    if isinstance(evidence, LadderEvidence):
        return look_notes(evidence.attempts) + compile_notes(evidence.attempts)
    if isinstance(evidence, ContextEvidence):
        return compile_notes(evidence.attempts)
    pairs = [note for pair in evidence.pairs for note in pair.notes]
    return pairs + compile_notes(evidence.attempts) + cold_notes(evidence.attempts)


def short(reason: str) -> list[str]:
    """A reason in one line, or in two where a log follows it: of that only the end, the whole is in evidence.json."""
    first, *rest = [line.strip() for line in reason.splitlines() if line.strip()] or [""]
    lines = [first.removesuffix("; its last log lines:"), *([f"its log ends with: {rest[-1]}"] if rest else [])]
    return [line if len(line) <= LINE else f"{line[: LINE - 1]}…" for line in lines]


def _pair_cells(pair: Pair, *, withheld: bool) -> list[str]:
    mark = " (withheld)" if withheld and pair.center is not None else ""
    accepted = "–"
    if pair.acceptance_rate is not None:
        accepted = f"{pair.acceptance_rate:.1%}, {number(pair.mean_acceptance_length)} tokens/step"
    return [
        pair.name,
        number(pair.a, "tokens/s"),
        number(pair.b, "tokens/s"),
        number(pair.center, "tokens/s") + mark,
        "–" if pair.spread is None else f"{pair.spread:.2%}",
        number(pair.burst_exact_center, "tokens/s"),
        f"{number(pair.ttft_a_ms, '', 1)} / {number(pair.ttft_b_ms, 'ms', 1)}",
        accepted,
    ]


def _server_gates(evidence: AnyEvidence) -> Text:
    text = Text("each server: ")
    names: dict[str, list[bool]] = {}
    for attempt in evidence.attempts:
        if attempt.status is not AttemptStatus.INTERRUPTED:
            for gate in attempt.gates:
                names.setdefault(gate.name, []).append(gate.passed)
    for name, verdicts in names.items():
        text.append(f"{name} {sum(verdicts)}/{len(verdicts)}  ", style="green" if all(verdicts) else "red")
    return text


def next_command(evidence: AnyEvidence, directory: Path, command: str) -> str:
    """What a person would type next; ``command`` is what they typed, which evidence keeps without its paths."""
    shown = _relative(directory)
    done = {attempt.label for attempt in evidence.attempts if attempt.status is AttemptStatus.COMPLETE}
    left = len(done) < len(evidence.start.plan.servers)
    if left and evidence.exit_code == ExitCode.INFRASTRUCTURE:
        return command if " --resume" in command else f"{command} --resume {shlex.quote(shown)}"
    return f"bench verify {shlex.quote(shown)}"


def _relative(directory: Path) -> str:
    try:
        return str(directory.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(directory)


def self_test_line(result: SelfTest) -> str:
    """The self-test in one line: its largest number of streams, and Docker's port proxy where it was measured."""
    point = result.points[-1]
    line = (
        f"client self-test at {point.users} streams: {point.lost} of {point.events + point.lost} events lost, "
        f"{number(point.cpu_us_per_event, 'µs', 1)} CPU an event, TTFT {number(point.ttft_error_p50_ms, 'ms')} late, "
        f"timestamps p99 {number(point.timestamp_error_p99_us, 'µs', 0)} late"
    )
    if result.proxy is not None:
        line += f"; Docker's port proxy adds {number(result.proxy.added_p50_us, 'µs', 0)}"
    return line


def self_test_table(result: SelfTest) -> list[RenderableType]:
    """``bench selftest``: a row per number of streams, then what Docker's port proxy adds."""
    table = Table(title=f"self-test, {result.timestamp_source}, {result.scheduling}", title_justify="left")
    for name in ("streams", "events/s", "lost", "CPU/event", "TTFT error", "timestamp error p50 / p99", "lag p99"):
        table.add_column(name, justify="right")
    for point in result.points:
        table.add_row(
            str(point.users),
            number(point.events_per_s, "", 0),
            str(point.lost),
            number(point.cpu_us_per_event, "µs", 1),
            number(point.ttft_error_p50_ms, "ms"),
            f"{number(point.timestamp_error_p50_us, '', 0)} / {number(point.timestamp_error_p99_us, 'µs', 0)}",
            number(point.lag_p99_us, "µs", 0),
        )
    proxy = result.proxy
    said = result.proxy_note if proxy is None else f"{proxy.added_p50_us:+.0f} µs at the median; {result.proxy_note}"
    return [table, Text(f"Docker's port proxy: {said}")]


def drawn(console: Console, title: str) -> str:
    """What a recording console has printed, as SVG without anything from outside: a monospace font of the reader's."""
    fonts = re.compile(r"@font-face \{.*?\n    \}\n", re.DOTALL)
    return fonts.sub("", console.export_svg(title=title)).replace("Fira Code", "ui-monospace, Menlo, Consolas")
