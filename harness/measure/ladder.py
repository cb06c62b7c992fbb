"""Arithmetic of a concurrency ladder: rates, exactness, bounds, minority shares, sites (contract section 5). Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from harness.measure import rates
from harness.measure.identity import Divergence, divergence
from harness.measure.intervals import divergence_upper_bound


class Frozen(BaseModel):
    """Base of the ladder's results."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Request(Frozen):
    """One request of one batch. Times are milliseconds after the barrier unless named otherwise."""

    slot: str
    prompt_sha256: str
    complete: bool
    reason: str | None
    detail: str
    tokens: int
    """ids received"""
    ids_sha256: str
    """of the id array as compact JSON: equal hashes are equal answers"""
    cached_tokens: int | None
    asked_release_ms: float
    released_ms: float
    """when the request was really handed to the kernel, after the barrier"""
    ttft_ms: float | None
    """first id, after the request's own release"""
    first_id_ms: float | None
    last_byte_ms: float
    exact_own: bool
    """equal to the same server's sequential answer, whole array"""
    exact_mtp0: bool | None
    """equal to the MTP0 oracle's sequential answer; null when the server is its own oracle"""
    divergence: Divergence | None
    """from the MTP0 oracle where there is one, else from the server's own sequential answer"""
    degenerate: bool
    warnings: list[str]

    @property
    def exact(self) -> bool:
        """Equal to every oracle there is."""
        return self.complete and self.exact_own and self.exact_mtp0 is not False


class Arrivals(Frozen):
    """When one request's ids came, for the batch's rates: (milliseconds after the barrier, ids) per chunk."""

    chunks: list[tuple[float, int]]
    last_byte_ms: float


class Batch(Frozen):
    """One rung in one pass."""

    rung: int
    number: int
    """pass, from 1; pass 1 is the warm-up"""
    requests: list[Request]
    aggregate_tok_s_wall: float | None
    """sum of completion tokens / (last byte - barrier), prefill and ramp included; null with an incomplete request"""
    steady_tok_s: float | None
    """ours: tokens that came between the last first token and the first finish, per second; null without such a span"""
    exact: int
    """requests equal to every oracle"""
    exact_own: int
    exact_mtp0: int | None
    copy_groups: int
    """groups of identical prompts in the batch with at least two requests"""
    copy_groups_disagreeing: int
    lag_p99_us: float | None
    cpu_share: float | None
    """of one core, while the batch's streams were open"""
    cpu_us_per_read: float | None
    reads: int
    coalesced_reads: int
    """reads that brought more than one event"""
    release_error_max_ms: float
    """largest difference of a real release from the asked one"""


class RungClient(Frozen):
    """The client's own truth at one rung, over all its passes on one server (contract section 6)."""

    rung: int
    reads: int
    lag_p99_us: float | None
    """maximum below 100 reads; null without kernel times"""
    median_gap_ms: float | None
    """between the chunks of one stream"""
    cpu_share: float | None
    """of one core, of the busiest client process"""
    failures: list[str]
    """why the client may have been the bottleneck; empty when it wasn't"""


class Site(Frozen):
    """A place where an answer left its oracle."""

    slot: str
    index: int
    """first unequal id, from 0"""
    oracle_id: int | None
    other_id: int | None
    times: int


class Rung(Frozen):
    """One number of concurrent users, over all passes."""

    rung: int
    captured: bool | None
    """whether it ran in captured graphs; null without graphs"""
    passes: int
    tok_s: float | None
    """published rate: median of aggregate_tok_s_wall over passes >= 2; null with one pass"""
    steady_tok_s: float | None
    """median over passes >= 2"""
    warm_up_tok_s: float | None
    """aggregate_tok_s_wall of pass 1, in no published number"""
    tok_s_per_pass: list[float | None]
    """aggregate_tok_s_wall in pass order, the warm-up first"""
    exact_per_pass: list[int]
    """requests equal to every oracle, in pass order"""
    exact: int
    """over all passes"""
    exact_own: int
    exact_mtp0: int | None
    total: int
    divergence_bound: float
    """one-sided 95 % upper bound of the divergence rate, from 0 to 1"""
    minority_share: float | None
    """min%: among identical or repeated requests, the share not in the majority, from 0 to 1; null without repeats"""
    copy_groups: int
    copy_groups_disagreeing: int
    sites: list[Site]
    withheld: bool
    """a request missed in some pass: not plotted, rate and count stand in the scope sentence"""
    why: list[str]
    """what withholds it, one sentence each"""


def batch_rates(arrivals: Sequence[Arrivals]) -> tuple[float | None, float | None]:
    """(aggregate_tok_s_wall, steady_tok_s) of one batch, tokens/s."""
    tokens = sum(size for item in arrivals for _, size in item.chunks)
    last = max((item.last_byte_ms for item in arrivals), default=0.0)
    aggregate = tokens / (last / 1e3) if last > 0 and tokens else None
    firsts = [item.chunks[0][0] for item in arrivals if item.chunks]
    ends = [item.chunks[-1][0] for item in arrivals if item.chunks]
    if len(firsts) != len(arrivals) or not firsts:
        return aggregate, None
    start, end = max(firsts), min(ends)
    if end <= start:
        return aggregate, None
    within = sum(size for item in arrivals for at, size in item.chunks if start < at <= end)
    return aggregate, within / ((end - start) / 1e3)


def compare(
    slot: str, ids: Sequence[int], own: Sequence[int] | None, mtp0: Sequence[int] | None
) -> tuple[bool, bool | None, Divergence | None]:
    """(exact_own, exact_mtp0, divergence) of one answer against the sequential answers of its slot."""
    from_own = divergence(slot, ids, own or ())
    if mtp0 is None:
        return from_own is None, None, from_own
    from_mtp0 = divergence(slot, ids, mtp0)
    return from_own is None, from_mtp0 is None, from_mtp0 or from_own


def copy_groups(requests: Sequence[Request]) -> tuple[int, int]:
    """(groups of identical prompts with at least two requests, those whose answers differ) in one batch."""
    groups: dict[str, list[str]] = defaultdict(list)
    for item in requests:
        groups[item.prompt_sha256].append(item.ids_sha256)
    repeated = [answers for answers in groups.values() if len(answers) > 1]
    return len(repeated), sum(len(set(answers)) > 1 for answers in repeated)


def minority_share(batches: Sequence[Batch]) -> float | None:
    """min%: over requests with the same prompt, in one batch or over passes, the share not in the majority."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for batch in batches:
        for item in batch.requests:
            groups[item.prompt_sha256][item.ids_sha256] += 1
    repeated = [counts for counts in groups.values() if counts.total() > 1]
    total = sum(counts.total() for counts in repeated)
    if not total:
        return None
    return sum(counts.total() - counts.most_common(1)[0][1] for counts in repeated) / total


def sites(batches: Sequence[Batch]) -> list[Site]:
    """Where answers left their oracle, the most frequent first."""
    found: Counter[tuple[str, int, int | None, int | None]] = Counter()
    for batch in batches:
        for item in batch.requests:
            if item.divergence is not None and not item.exact:
                at = item.divergence
                found[item.slot, at.first_divergence_token_zero_based, at.right_id, at.left_id] += 1
    ranked = sorted(found.items(), key=lambda entry: (-entry[1], entry[0][0], entry[0][1]))
    return [
        Site(slot=slot, index=index, oracle_id=oracle, other_id=other, times=times)
        for (slot, index, oracle, other), times in ranked
    ]


def published_rate(rates_by_pass: Mapping[int, float | None]) -> float | None:
    """Median over passes >= 2 (pass 1 is the warm-up); None when one of them has no rate or there is none."""
    shown = [value for number, value in rates_by_pass.items() if number >= 2]
    if not shown or any(value is None for value in shown):
        return None
    return rates.median(value for value in shown if value is not None)


def summarise_rung(
    rung: int,
    batches: Sequence[Batch],
    clients: Sequence[RungClient],
    *,
    captured: bool | None,
    beside: Sequence[Batch] = (),
) -> Rung:
    """All passes of one rung → its rate, exactness and whether it may be shown. Raises ValueError without a batch.

    ``batches`` are one for each pass, in order; ``beside`` are those that enter no figure (the warm-up of a server that
    went on with a resumed campaign, a pass that was cut short), in which a miss withholds the rung all the same.
    """
    requests = [item for batch in batches for item in batch.requests]
    exact = sum(item.exact for item in requests)
    has_mtp0 = any(item.exact_mtp0 is not None for item in requests)
    groups, disagreeing = sum(b.copy_groups for b in batches), sum(b.copy_groups_disagreeing for b in batches)
    why = []
    if exact != len(requests):
        why.append(f"c{rung}: {exact}/{len(requests)} answers equal their oracle")
    incomplete = [item for item in requests if not item.complete]
    if incomplete:
        why.append(f"c{rung}: {len(incomplete)} requests are incomplete, the first {incomplete[0].reason}")
    uncached = [item for item in requests if item.cached_tokens != 0]
    if uncached:
        why.append(f"c{rung}: {len(uncached)} requests have no cached_tokens of 0")
    if any(item.degenerate for item in requests):
        why.append(f"c{rung}: a degenerate answer, the server is poisoned")
    for batch in beside:
        if batch.exact != len(batch.requests):
            why.append(
                f"c{rung}: {batch.exact}/{len(batch.requests)} answers equal their oracle in a pass {batch.number} "
                "that enters no figure (cut short, or the warm-up after a resume)"
            )
    why += [failure for client in clients for failure in client.failures]
    return Rung(
        rung=rung,
        captured=captured,
        passes=len(batches),
        tok_s=published_rate({batch.number: batch.aggregate_tok_s_wall for batch in batches}),
        steady_tok_s=published_rate({batch.number: batch.steady_tok_s for batch in batches}),
        warm_up_tok_s=next((batch.aggregate_tok_s_wall for batch in batches if batch.number == 1), None),
        tok_s_per_pass=[batch.aggregate_tok_s_wall for batch in batches],
        exact_per_pass=[batch.exact for batch in batches],
        exact=exact,
        exact_own=sum(item.exact_own for item in requests),
        exact_mtp0=sum(item.exact_mtp0 is True for item in requests) if has_mtp0 else None,
        total=len(requests),
        divergence_bound=divergence_upper_bound(len(requests) - exact, len(requests)),
        minority_share=minority_share(batches),
        copy_groups=groups,
        copy_groups_disagreeing=disagreeing,
        sites=sites(batches),
        withheld=bool(why),
        why=why,
    )


def withheld_sentence(rungs: Sequence[Rung]) -> str:
    """``Measured but withheld: c24 1354.9 (95/96), …``; empty when every rung is shown."""
    missed = [rung for rung in rungs if rung.withheld]
    if not missed:
        return ""
    parts = [
        f"c{rung.rung} {'–' if rung.tok_s is None else f'{rung.tok_s:.1f}'} ({rung.exact}/{rung.total})"
        for rung in missed
    ]
    return f"Measured but withheld: {', '.join(parts)}"
