"""One measured prompt as it stands in evidence: the completion and the rates of contract section 3."""

from pydantic import BaseModel, ConfigDict


class Row(BaseModel):
    """A row of an attempt. Times are milliseconds after t0 unless named otherwise; what can't be computed is null."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

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
    """99th percentile of user time - kernel time over the row's reads, microseconds; null without kernel times"""
    reads: int
    """number of reads that returned bytes"""
    warnings: list[str]
    """named warnings, each ``name: sentence``"""
