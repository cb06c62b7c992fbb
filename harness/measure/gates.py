"""The gates that follow from rows alone (contract section 4): named checks, each failure in one sentence.

A gate is always derived from rows. None passes on no rows, and none trusts a stored verdict.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from harness.measure import rates
from harness.measure.identity import MIN_IDS, Divergence, compare_rows
from harness.measure.rows import Row

CAP = 512
"""max_tokens of the strict suite"""
MIN_CLASSES = 5
DEGENERATE_TAIL = 64
"""a row whose last so many ids are one id is degenerate"""
CLOCK_STEP_MS = 0.5
LAG_SHARE = 0.1
"""largest share of the median inter-chunk gap that the client's lag p99 may be (contract section 6)"""
CPU_SHARE = 0.8
"""largest share of one core that the client may use (contract section 6)"""
SPECULATIVE_OPTION = "--speculative-config"


class Gate(BaseModel):
    """One gate's verdict with everything it rests on."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """the gate of contract section 4"""
    subject: str
    """the attempt's label, or both labels: "mtp3-a vs mtp0-a" """
    passed: bool
    failures: list[str]
    """one sentence each: what, where, figures"""
    exact: int | None = None
    """prompts with equal complete arrays; null for a gate that compares nothing"""
    total: int | None = None
    """prompts compared"""
    divergences: list[Divergence] = []
    notes: list[str] = []
    """figures, warnings and unknowns that leave the verdict alone"""

    @model_validator(mode="after")
    def _verdict_follows_from_failures(self) -> Self:
        if self.passed != (not self.failures):
            raise ValueError(
                f"gate {self.name} of {self.subject} says passed={self.passed} with {len(self.failures)} failures;"
                " derive it again from the rows"
            )
        return self


def _gate(name: str, label: str, rows: Sequence[Row], failures: Sequence[str], notes: Sequence[str] = ()) -> Gate:
    if not rows:
        failures = ["there is no row", *failures]
    said = [f"{label}: {failure}" for failure in failures]
    return Gate(name=name, subject=label, passed=not said, failures=said, notes=list(notes))


def _repeated(values: Sequence[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def workload_gate(
    label: str, rows: Sequence[Row], suite_prompts: Sequence[tuple[str, str, str]], max_tokens: int = CAP
) -> Gate:
    """``workload``: the whole suite ran as section 3 says.

    ``suite_prompts`` are (id, class, sha256 of the prompt) in file order, ``max_tokens`` is the cap that was sent.
    Passes when the cap is 512, every prompt of the suite ran once and in file order with its own text and class,
    hashes and request ids are unique, there are at least 5 classes, and each row has 100 to 512 ids, a row that
    ended by length exactly 512.
    """
    failures = [] if max_tokens == CAP else [f"max_tokens was {max_tokens} where the suite asks for {CAP}"]
    suite_ids = [prompt_id for prompt_id, _, _ in suite_prompts]
    row_ids = [row.prompt_id for row in rows]
    failures += [f"{name} stands twice in the suite" for name in _repeated(suite_ids)]
    failures += [f"{name} ran {row_ids.count(name)} times" for name in _repeated(row_ids)]
    failures += [f"{name} did not run" for name in suite_ids if name not in row_ids]
    failures += [f"{name} ran and isn't in the suite" for name in dict.fromkeys(row_ids) if name not in suite_ids]
    if not failures and row_ids != suite_ids:
        at = next(i for i, (a, b) in enumerate(zip(row_ids, suite_ids, strict=True)) if a != b)
        failures.append(f"{row_ids[at]} ran at place {at}, where the suite has {suite_ids[at]}")
    failures += [
        f"{row.prompt_id} is marked as place {row.index} and stands at {at}"
        for at, row in enumerate(rows)
        if row.index != at
    ]
    known = {prompt_id: (cls, sha256) for prompt_id, cls, sha256 in suite_prompts}
    for row in rows:
        cls, sha256 = known.get(row.prompt_id, (row.prompt_class, row.prompt_sha256))
        if row.prompt_sha256 != sha256:
            failures.append(
                f"{row.prompt_id} was sent as text {row.prompt_sha256[:12]} where the suite has {sha256[:12]}"
            )
        if row.prompt_class != cls:
            failures.append(f"{row.prompt_id} has class {row.prompt_class} where the suite has {cls}")
        failures += _length_failures(row, max_tokens)
    failures += [f"two prompts have the text {sha256[:12]}" for sha256 in _repeated([r.prompt_sha256 for r in rows])]
    failures += [f"request id {name} was sent twice" for name in _repeated([row.request_id for row in rows])]
    classes = {row.prompt_class for row in rows}
    if len(classes) < MIN_CLASSES:
        failures.append(f"the prompts have {len(classes)} classes, fewer than {MIN_CLASSES}")
    return _gate("workload", label, rows, failures)


def _length_failures(row: Row, cap: int) -> list[str]:
    ids = len(row.token_ids)
    if ids < MIN_IDS:
        return [f"{row.prompt_id} has {ids} ids, fewer than {MIN_IDS}"]
    if ids > cap:
        return [f"{row.prompt_id} has {ids} ids, more than the cap of {cap}"]
    if row.finish_reason == "length" and ids != cap:
        return [f"{row.prompt_id} ended by length at {ids} ids, so its cap wasn't {cap}"]
    return []


def stream_gate(label: str, rows: Sequence[Row]) -> Gate:
    """``stream``: every row is complete (section 3) and every answer has a stream id of its own.

    What the row still shows is checked again rather than taken from ``complete``. Row warnings become notes.
    """
    failures = []
    for row in rows:
        if not row.complete or row.reason is not None:
            detail = f": {row.detail}" if row.detail else ""
            failures.append(f"{row.prompt_id} is incomplete ({row.reason or 'no reason given'}){detail}")
        else:
            failures += [f"{row.prompt_id} is called complete and {fault}" for fault in _stream_faults(row)]
    ids = [row.stream_id for row in rows if row.stream_id]
    failures += [f"{ids.count(name)} rows have the stream id {name}" for name in _repeated(ids)]
    notes = [f"{row.prompt_id}: {warning}" for row in rows for warning in row.warnings]
    return _gate("stream", label, rows, failures, notes)


def _stream_faults(row: Row) -> list[str]:
    ids, in_chunks = len(row.token_ids), sum(size for _, size in row.chunks)
    checks = [
        (ids == 0, "has no ids"),
        (row.finish_reason not in ("stop", "length"), f"has finish_reason {row.finish_reason}"),
        (row.completion_tokens != ids, f"has {ids} ids where usage counts {row.completion_tokens}"),
        (in_chunks != ids, f"has {ids} ids and {in_chunks} in its chunks"),
        (not row.stream_id, "has no stream id"),
        (abs(row.clock_step_ms) > CLOCK_STEP_MS, f"saw a clock step of {row.clock_step_ms:.3f} ms"),
    ]
    return [said for failed, said in checks if failed]


def cache_zero_gate(label: str, rows: Sequence[Row]) -> Gate:
    """``cache-zero``: cached_tokens is the integer 0 on every row; a missing one is a failure (section 3)."""
    failures = []
    for row in rows:
        if row.cached_tokens is None:
            failures.append(
                f"{row.prompt_id} has no cached_tokens; start the server with --enable-prompt-tokens-details"
            )
        elif row.cached_tokens != 0:
            failures.append(f"{row.prompt_id} took {row.cached_tokens} prompt tokens from a cache")
    return _gate("cache-zero", label, rows, failures)


def degenerate_gate(label: str, rows: Sequence[Row]) -> Gate:
    """``degenerate``: no row has one id in more than half of it, or one id alone in its last 64 (section 3)."""
    found = [(row.prompt_id, degeneration(row.token_ids)) for row in rows]
    return _gate("degenerate", label, rows, [f"{name} {how}" for name, how in found if how is not None])


def degeneration(ids: Sequence[int]) -> str | None:
    """How an answer is degenerate, as the end of a sentence; None when it isn't (section 3)."""
    if not ids:
        return "has no ids"
    most, count = Counter(ids).most_common(1)[0]
    if 2 * count > len(ids):
        return f"has the id {most} in {count} of its {len(ids)} places"
    if len(ids) >= DEGENERATE_TAIL and len(set(ids[-DEGENERATE_TAIL:])) == 1:
        return f"ends in {DEGENERATE_TAIL} times the id {ids[-1]}"
    return None


def client_gate(
    label: str,
    rows: Sequence[Row],
    lags_us: Sequence[float],
    gaps_ms: Sequence[float],
    cpu_share: float | None,
    timestamp_source: str,
) -> Gate:
    """``client``: the client was not the bottleneck (section 6).

    ``lags_us`` are user time - kernel time of all kernel-stamped reads in microseconds, ``gaps_ms`` the gaps between
    the chunks of one row in milliseconds, ``cpu_share`` the client's CPU seconds per second. Fails when the lag's p99
    (below 100 reads its maximum) exceeds a tenth of the median gap, or the CPU use exceeds 0.8 of a core. What wasn't
    measured is noted as unknown, never as within bounds.
    """
    failures, notes = [], [f"timestamps: {timestamp_source}"]
    try:
        lag_us, gap_ms = rates.p99_or_max(lags_us), rates.median(gaps_ms)
    except ValueError as error:
        return _gate("client", label, rows, [str(error)], notes)
    what = "lag p99" if len(lags_us) >= 100 else "largest lag"
    if lag_us is None:
        notes.append("client lag: unknown (no read has a kernel time)")
    elif gap_ms is None:
        notes.append(
            f"client lag: {what} {lag_us:.1f} µs over {len(lags_us)} reads; bound unknown (no inter-chunk gap)"
        )
    else:
        notes.append(f"client lag: {what} {lag_us:.1f} µs over {len(lags_us)} reads, median gap {gap_ms:.3f} ms")
        # "not <=" so that a NaN fails.
        if not lag_us <= LAG_SHARE * gap_ms * 1e3:
            failures.append(
                f"the client's {what} of {lag_us:.1f} µs exceeds a tenth of the median inter-chunk gap {gap_ms:.3f} ms"
            )
    if cpu_share is None:
        notes.append("client CPU: unknown")
    else:
        notes.append(f"client CPU: {cpu_share:.2f} of a core")
        if not cpu_share <= CPU_SHARE:
            failures.append(f"the client used {cpu_share:.2f} of a core, more than {CPU_SHARE:g}")
    return _gate("client", label, rows, failures, notes)


@dataclass(frozen=True)
class Arm:
    """One side of an identity gate: an attempt and the server that answered it."""

    label: str
    rows: Sequence[Row]
    server_id: str
    """id of the container or process, different for every fresh server"""
    image_id: str
    suite_sha256: str
    environment: Mapping[str, str]
    arguments: Sequence[str]
    depth: int
    """MTP depth; 0 has no speculative config"""


def identity_gate(
    name: str,
    left: Arm,
    right: Arm,
    *,
    allowed_env: frozenset[str] = frozenset(),
    allowed_args: frozenset[str] = frozenset(),
    expected_total: int | None = None,
) -> Gate:
    """``G1`` ``G2`` ``G3``: complete arrays equal between two servers that differ only as declared (section 4).

    ``allowed_env`` are variables and ``allowed_args`` options (``--speculative-config``; the value after it belongs to
    it) that may differ; G1 and G2 declare none. ``expected_total`` is the number of prompts of the suite. Fails unless
    the servers are two, suite, image and everything undeclared are equal, and every array is, whole.
    """
    failures = setup_failures(left, right, allowed_env, allowed_args)
    comparison = compare_rows(left.rows, right.rows)
    failures += comparison.problems
    failures += [found.sentence() for found in comparison.divergences]
    if expected_total is not None and comparison.total != expected_total:
        failures.append(f"{comparison.total} prompts were compared where the suite has {expected_total}")
    if comparison.exact != comparison.total and not failures:  # pragma: no cover - compare_rows names every miss; a net
        failures.append(f"{comparison.exact} of {comparison.total} arrays are equal")
    notes = [
        f"declared difference: environment {variable}"
        for variable in sorted(allowed_env)
        if left.environment.get(variable) != right.environment.get(variable)
    ]
    return Gate(
        name=name,
        subject=f"{left.label} vs {right.label}",
        passed=not failures,
        failures=[f"{name} {left.label} vs {right.label}: {failure}" for failure in failures],
        exact=comparison.exact,
        total=comparison.total,
        divergences=comparison.divergences,
        notes=notes,
    )


def setup_failures(left: Arm, right: Arm, allowed_env: frozenset[str], allowed_args: frozenset[str]) -> list[str]:
    """Why the two servers aren't two servers of one configuration."""
    failures = []
    if not left.server_id or not right.server_id:
        failures.append("a server has no id, so it isn't shown that there were two")
    elif left.server_id == right.server_id:
        failures.append(f"{left.label} and {right.label} are the same server {left.server_id[:12]}")
    for what, a, b in (("suite", left.suite_sha256, right.suite_sha256), ("image", left.image_id, right.image_id)):
        if not a or not b:
            failures.append(f"the {what} of {left.label if not a else right.label} is unknown")
        elif a != b:
            failures.append(f"{left.label} has {what} {a} and {right.label} has {b}")
    for name in sorted({*left.environment, *right.environment} - allowed_env):
        a_value, b_value = left.environment.get(name), right.environment.get(name)
        if a_value != b_value:
            failures.append(
                f"{name} is {_or_unset(a_value)} for {left.label} and {_or_unset(b_value)} for {right.label}"
            )
    a_args, b_args = undeclared(left.arguments, allowed_args), undeclared(right.arguments, allowed_args)
    if a_args != b_args:
        at = next((i for i, (a, b) in enumerate(zip(a_args, b_args, strict=False)) if a != b), None)
        place = min(len(a_args), len(b_args)) if at is None else at
        a_word, b_word = (args[place] if place < len(args) else "nothing" for args in (a_args, b_args))
        failures.append(
            f"the server arguments differ at {place}: {a_word} for {left.label} and {b_word} for {right.label}"
        )
    for arm in (left, right):
        if arm.depth == 0 and any(word.split("=")[0] == SPECULATIVE_OPTION for word in arm.arguments):
            failures.append(f"{arm.label} has depth 0 and a speculative config, so it is no oracle")
    if left.depth != right.depth and SPECULATIVE_OPTION not in allowed_args:
        failures.append(f"{left.label} has depth {left.depth} and {right.label} {right.depth}, which isn't declared")
    if left.depth != right.depth and 0 not in (left.depth, right.depth):
        failures.append(f"neither {left.label} nor {right.label} has depth 0, so neither is an oracle")
    return failures


def _or_unset(value: str | None) -> str:
    return "unset" if value is None else repr(value)


def undeclared(arguments: Sequence[str], allowed: frozenset[str]) -> list[str]:
    """The arguments without the allowed options and their values."""
    kept: list[str] = []
    drop_value = False
    for word in arguments:
        if word.split("=")[0] in allowed:
            drop_value = "=" not in word
        elif drop_value and not word.startswith("--"):
            drop_value = False
        else:
            drop_value = False
            kept.append(word)
    return kept
