"""One measured prompt as it stands in evidence: the completion and the rates of contract section 3."""

import itertools
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from harness.measure import rates
from harness.wire.completion import Completion
from harness.wire.exchange import Exchange

BURST_DIFFERENCE = 0.015
"""difference of the published and the burst-exact rate above which a row is warned about (contract section 3)"""
COLD_FACTOR = 5.0
"""a row whose TTFT exceeds this many times the median of the attempt's rows is marked cold"""


class Row(BaseModel):
    """A row of an attempt. Times are milliseconds after t0 unless named otherwise; what can't be computed is null."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    index: int
    """position in the suite file, from 0"""
    prompt_id: str
    prompt_class: str
    prompt_sha256: str
    """sha256 of the prompt's UTF-8 bytes"""
    request_id: str
    """X-Request-Id that was sent"""
    complete: bool
    """whether the row is complete (contract section 3); only then may it enter a median"""
    reason: str | None
    """the one reason code of an incomplete row"""
    detail: str
    """one sentence for the reason"""
    stream_id: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    """usage.prompt_tokens"""
    completion_tokens: int | None
    """usage.completion_tokens"""
    cached_tokens: int | None
    """usage.prompt_tokens_details.cached_tokens; null when the server didn't say"""
    prompt_token_ids: list[int] | None
    token_ids: list[int]
    chunks: list[tuple[int, int]]
    """(arrival in nanoseconds after t0, ids in the chunk) for each chunk that brought ids"""
    text: str
    first_byte_ms: float | None
    first_event_ms: float | None
    ttft_ms: float | None
    """arrival of the first id after t0"""
    end_ms: float
    """arrival of the last byte after t0"""
    ids_per_chunk: float | None
    """len(token_ids) / number of chunks"""
    tok_s_1_100: float | None
    """published metric, tokens/s: 99 / (o[99] - o[0])"""
    tok_s_burst_exact: float | None
    """ours, tokens/s: (n_J - n_1) / (t_J - t_1), J the first chunk with n_J >= 100"""
    tok_s_1_100_after_ttft: float | None
    """legacy name, tokens/s: 100 / (o[99] - o[0])"""
    tok_s_after_ttft_full: float | None
    """legacy name, tokens/s: completion_tokens / (end - first)"""
    tok_s_wall_full: float | None
    """legacy name, tokens/s: completion_tokens / end, t0 being the start"""
    clock_step_ms: float
    """change of the wall-monotonic offset during the request"""
    lag_p99_us: float | None
    """99th percentile of user time - kernel time over the row's reads, microseconds (below 100 reads the maximum);
    null without kernel times"""
    reads: int
    """number of reads that returned bytes"""
    warnings: list[str]
    """named warnings, each ``name: sentence``"""


def build_row(
    *,
    index: int,
    prompt_id: str,
    prompt_class: str,
    prompt_sha256: str,
    request_id: str,
    completion: Completion,
    exchange: Exchange,
) -> Row:
    """The row of one request (contract section 3).

    Rates are arithmetic on ids and times and are given whenever these allow it, also for an incomplete row; whether
    a row may enter a median is ``complete``. Warnings: the completion's notes, ``burst-difference``,
    ``merged-first-read`` and ``no-rate``. ``lag_p99_us`` is over the kernel-stamped reads, and is their maximum when
    there are fewer than 100.
    """
    usage = completion.usage
    tokens = usage.completion_tokens if usage else None
    offsets = rates.token_offsets(completion.chunk_ns, completion.chunk_sizes)
    chunks = list(zip(completion.chunk_ns, completion.chunk_sizes, strict=True))
    chunks_s = [(ns / 1e9, size) for ns, size in chunks]
    published, burst_exact = rates.tok_s_1_100(offsets), rates.tok_s_burst_exact(chunks_s)
    first_s, end_s = rates.ttft(offsets), completion.end_ns / 1e9
    return Row(
        index=index,
        prompt_id=prompt_id,
        prompt_class=prompt_class,
        prompt_sha256=prompt_sha256,
        request_id=request_id,
        complete=completion.complete,
        reason=completion.reason.value if completion.reason else None,
        detail=_scalar_values(completion.detail),
        stream_id=None if completion.stream_id is None else _scalar_values(completion.stream_id),
        finish_reason=None if completion.finish_reason is None else _scalar_values(completion.finish_reason),
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=tokens,
        cached_tokens=usage.cached_tokens if usage else None,
        prompt_token_ids=None if completion.prompt_token_ids is None else list(completion.prompt_token_ids),
        token_ids=list(completion.token_ids),
        chunks=chunks,
        text=_scalar_values(completion.text),
        first_byte_ms=_ms(completion.first_byte_ns),
        first_event_ms=_ms(completion.first_event_ns),
        ttft_ms=_ms(completion.chunk_ns[0]) if chunks else None,
        end_ms=completion.end_ns / 1e6,
        ids_per_chunk=len(completion.token_ids) / len(chunks) if chunks else None,
        tok_s_1_100=published,
        tok_s_burst_exact=burst_exact,
        tok_s_1_100_after_ttft=rates.tok_s_1_100_after_ttft(offsets),
        tok_s_after_ttft_full=rates.tok_s_after_ttft_full(tokens, first_s, end_s),
        tok_s_wall_full=rates.tok_s_wall_full(tokens, 0.0, end_s),
        clock_step_ms=exchange.clock_step_ns / 1e6,
        lag_p99_us=rates.p99_or_max(kernel_lags_us(exchange)),
        reads=sum(size > 0 for size in exchange.sizes),
        warnings=[_scalar_values(note) for note in completion.notes] + _rate_warnings(offsets, chunks_s),
    )


def kernel_lags_us(exchange: Exchange) -> list[float]:
    """User time - kernel time of each kernel-stamped read, microseconds (contract section 6)."""
    stamped = zip(exchange.user_ns, exchange.at_ns, exchange.kernel, strict=True)
    return [(user - at) / 1e3 for user, at, kernel in stamped if kernel]


def chunk_gaps_ms(rows: Sequence[Row]) -> list[float]:
    """Gaps between the arrivals of one row's chunks, milliseconds, over all rows; chunks of one instant are one."""
    gaps: list[float] = []
    for row in rows:
        times = list(dict.fromkeys(ns for ns, _ in row.chunks))
        gaps += [(later - earlier) / 1e6 for earlier, later in itertools.pairwise(times)]
    return gaps


def mark_cold(rows: Sequence[Row]) -> list[Row]:
    """The rows, with a warning ``cold`` on each whose TTFT exceeds 5 times the median TTFT of all rows.

    The first request of a fresh server often pays a compilation; the median of twelve bears it, a mean would not.
    """
    middle = rates.median(row.ttft_ms for row in rows if row.ttft_ms is not None)
    return [_with_cold(row, middle) for row in rows]


def attempt_median(rows: Sequence[Row]) -> float | None:
    """Class-balanced median of tok_s_1_100, tokens/s (contract section 3).

    None when there is no row, a row is incomplete, or a row has no rate: never a median over the survivors.
    """
    values: list[tuple[str, float]] = []
    for row in rows:
        if not row.complete or row.tok_s_1_100 is None:
            return None
        values.append((row.prompt_class, row.tok_s_1_100))
    return rates.class_balanced_median(rates.class_medians(values))


def _with_cold(row: Row, middle: float | None) -> Row:
    others = [warning for warning in row.warnings if not warning.startswith("cold:")]
    if middle and row.ttft_ms is not None and row.ttft_ms > COLD_FACTOR * middle:
        others.append(
            f"cold: TTFT {row.ttft_ms:.1f} ms is more than {COLD_FACTOR:g} times the median {middle:.1f} ms of the"
            " attempt's rows"
        )
    return row if others == row.warnings else row.model_copy(update={"warnings": others})


def _rate_warnings(offsets: Sequence[float], chunks_s: Sequence[tuple[float, int]]) -> list[str]:
    published, burst_exact = rates.tok_s_1_100(offsets), rates.tok_s_burst_exact(chunks_s)
    if published is None:
        if len(offsets) < rates.WINDOW_IDS:
            return [f"no-rate: tok_s_1_100 is null because the row has {len(offsets)} of {rates.WINDOW_IDS} ids"]
        return ["no-rate: tok_s_1_100 is null because the first 100 ids came at one instant"]
    warnings = []
    if burst_exact is not None and abs(published / burst_exact - 1) > BURST_DIFFERENCE:
        warnings.append(
            f"burst-difference: tok_s_1_100 {published:.2f} is {100 * (published / burst_exact - 1):+.1f} % off"
            f" tok_s_burst_exact {burst_exact:.2f}"
        )
    # Two chunks that leave the server a step apart and arrive as good as together shorten both windows alike, so the
    # two rates agree and only the gap shows it.
    times = [time for time, _ in rates.bursts(chunks_s) if time <= offsets[rates.WINDOW_IDS - 1]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    usual = rates.median(gaps)
    if usual is not None and gaps[0] < usual / 2 and (usual - gaps[0]) / (times[-1] - times[0]) > BURST_DIFFERENCE:
        warnings.append(
            f"merged-first-read: the second chunk came {gaps[0] * 1e3:.2f} ms after the first where the median gap is"
            f" {usual * 1e3:.2f} ms, so tok_s_1_100 {published:.2f} may read"
            f" {100 * (usual - gaps[0]) / (times[-1] - times[0]):.1f} % high"
        )
    return warnings


def _ms(ns: int | None) -> float | None:
    """Milliseconds after t0; None before it, which only a clock that was set can say."""
    return None if ns is None or ns < 0 else ns / 1e6


def _scalar_values(text: str) -> str:
    r"""Text without lone surrogates, which JSON's ``\ud800`` may bring and which no UTF-8 file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
