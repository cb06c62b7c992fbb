"""Evidence by hand for the tests of the plots, and ways to look into an SVG."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from harness.evidence.schema import Attempt, AttemptStatus
from harness.measure import rates
from harness.measure.ladder import Batch, Request, Rung
from harness.measure.rows import Row

SVG = "{http://www.w3.org/2000/svg}"


def row(
    prompt_id: str = "p",
    chunks: Sequence[tuple[int, int]] = ((20_000_000, 1), (40_000_000, 3)),
    *,
    ids: Sequence[int] | None = None,
    prompt_class: str = "code",
    complete: bool = True,
) -> Row:
    offsets = rates.token_offsets([ns for ns, _ in chunks], [size for _, size in chunks])
    return Row(
        index=0,
        prompt_id=prompt_id,
        prompt_class=prompt_class,
        prompt_sha256="0" * 64,
        request_id="r",
        complete=complete,
        reason=None if complete else "stream-cut",
        detail="",
        stream_id=None,
        finish_reason="length",
        prompt_tokens=9,
        completion_tokens=len(offsets),
        cached_tokens=0,
        prompt_token_ids=[1],
        token_ids=list(range(len(offsets))) if ids is None else list(ids),
        chunks=list(chunks),
        text="",
        first_byte_ms=None,
        first_event_ms=None,
        ttft_ms=chunks[0][0] / 1e6 if chunks else None,
        end_ms=chunks[-1][0] / 1e6 if chunks else 0.0,
        ids_per_chunk=None,
        tok_s_1_100=rates.tok_s_1_100(offsets),
        tok_s_burst_exact=None,
        tok_s_1_100_after_ttft=None,
        tok_s_after_ttft_full=None,
        tok_s_wall_full=None,
        clock_step_ms=0.0,
        lag_p99_us=None,
        reads=1,
        warnings=[],
    )


def long_row(
    prompt_id: str, *, step_ms: float = 6.0, start_ms: float = 30.0, burst: int = 4, prompt_class: str = "code"
) -> Row:
    count = 512 // burst
    chunks = [(int((start_ms + step_ms * burst * at) * 1e6), burst) for at in range(count)]
    return row(prompt_id, chunks, prompt_class=prompt_class)


def attempt(label: str, rows: Sequence[Row]) -> Attempt:
    found = rates.class_medians([(r.prompt_class, r.tok_s_1_100) for r in rows if r.tok_s_1_100 is not None])
    return Attempt(
        label=label,
        directory=label,
        status=AttemptStatus.COMPLETE,
        error="",
        depth=0,
        server=None,
        rows=list(rows),
        canaries_before=None,
        canaries_after=None,
        acceptance=None,
        client=None,
        class_medians=dict(found),
        class_balanced_median=None,
        class_balanced_median_burst_exact=None,
        median_ttft_ms=None,
        ids_per_chunk=None,
        gates=[],
    )


def rung(users: int, tok_s: float | None, exact: int, total: int) -> Rung:
    return Rung(
        rung=users,
        captured=None,
        passes=4,
        tok_s=tok_s,
        steady_tok_s=None,
        warm_up_tok_s=None,
        tok_s_per_pass=[],
        exact_per_pass=[],
        exact=exact,
        exact_own=exact,
        exact_mtp0=None,
        total=total,
        divergence_bound=1.0,
        minority_share=None,
        copy_groups=0,
        copy_groups_disagreeing=0,
        sites=[],
        withheld=exact != total,
        why=[],
    )


def batch(users: int, number: int, ttfts: Sequence[float | None]) -> Batch:
    requests = [
        Request(
            slot=f"s{at}",
            prompt_sha256="0",
            complete=True,
            reason=None,
            detail="",
            tokens=128,
            ids_sha256="0",
            cached_tokens=0,
            asked_release_ms=0.0,
            released_ms=0.0,
            ttft_ms=value,
            first_id_ms=value,
            last_byte_ms=1.0,
            exact_own=True,
            exact_mtp0=None,
            divergence=None,
            degenerate=False,
            warnings=[],
        )
        for at, value in enumerate(ttfts)
    ]
    return Batch(
        rung=users,
        number=number,
        requests=requests,
        aggregate_tok_s_wall=None,
        steady_tok_s=None,
        exact=users,
        exact_own=users,
        exact_mtp0=None,
        copy_groups=0,
        copy_groups_disagreeing=0,
        lag_p99_us=None,
        cpu_share=None,
        cpu_us_per_read=None,
        reads=0,
        coalesced_reads=0,
        release_error_max_ms=0.0,
    )


LADDER = [rung(1, 95.8, 4, 4), rung(2, 183.1, 8, 8), rung(24, 1354.9, 95, 96), rung(32, 1624.5, 128, 128)]


def words_of(svg: str) -> str:
    """All text of the picture."""
    return " ".join(ET.fromstring(svg).itertext())


def points_of(svg: str, kind: str) -> list[tuple[str, str, str]]:
    """(users, rate, exact/all) of a ladder's points of this kind."""
    found = [item for item in ET.fromstring(svg).iter() if item.get("class") == f"point {kind}"]
    return [(item.attrib["data-users"], item.attrib["data-rate"], item.attrib["data-exact"]) for item in found]


def joins_of(svg: str) -> list[str]:
    """The series of each straight piece between two neighbours."""
    piece = r'd="M [\d.]+ [\d.]+ L [\d.]+ [\d.]+"[^>]*stroke: var\(--(series-\d)[^>]*stroke-width: 1\.4'
    return sorted(re.findall(piece, svg))
