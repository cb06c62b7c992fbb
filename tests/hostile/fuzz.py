"""A fuzzer over the whole path bytes → Exchange → Completion → Row.

    python -m tests.hostile.fuzz --seconds 60 [--seed N] [--corpus DIR]

Any bytes must end in *complete* or in exactly one reason, in any cut the same, never in an exception, and a line never
in more memory than its limit. What breaks that is kept in the corpus, which the tests play again for ever. Exit code 1
when something broke.
"""

import argparse
import gc
import hashlib
import random
import sys
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.evidence.attempts import answer_body
from harness.measure import gates
from harness.measure.identity import compare_rows
from harness.measure.rows import Row, attempt_median, build_row, chunk_gaps_ms, mark_cold
from harness.wire.capture import load_capture
from harness.wire.completion import PRECEDENCE, Completion, parse_completion
from harness.wire.exchange import Exchange
from harness.wire.sse import MAX_BYTES, SseDecoder, SseError
from harness.workloads import canaries
from tests.hostile.mutate import exchange_of, mutated, recut, shortened
from tests.recorded import FOLDER

CORPUS = Path(__file__).parent / "corpus"
EVENTS = 12
"""Of a recorded answer, besides its ending: more only costs executions"""
LINE_EVERY = 4000
"""One execution in so many feeds a line without end and measures the memory"""
READ = 65_536
LINE_BYTES = 16_000_000
"""What a line may cost: its limit, the eighth by which a growing buffer runs ahead, and one read with its copies"""


def seeds(corpus: Path = CORPUS) -> list[bytes]:
    """Everything in the corpus, and the beginnings of answers that real vLLM servers gave."""
    found = [path.read_bytes() for path in sorted(corpus.glob("*.bin"))]
    for path in sorted(FOLDER.glob("*/attempts/*/capture.jsonl.zst"))[:4]:
        exchanges = load_capture(path).exchanges
        found += [
            shortened(exchange.data, EVENTS) for _, exchange in exchanges if b'"stream":true' in exchange.request
        ][:3]
        found += [exchange.data for tag, exchange in exchanges if tag.kind == "canary"][:1]
    return found


def row_of(completion: Completion, exchange: Exchange) -> Row:
    """The row of a measured request."""
    return build_row(
        index=0,
        prompt_id="fuzzed",
        prompt_class="code",
        prompt_sha256="0" * 64,
        request_id="bench-fuzz",
        completion=completion,
        exchange=exchange,
    )


def said(completion: Completion) -> tuple[object, ...]:
    """What the bytes say, times left out."""
    got = completion
    ids = (got.token_ids, got.chunk_sizes, got.prompt_token_ids, got.text, got.usage)
    return (got.reason, got.detail, got.status, got.stream_id, got.finish_reason, *ids)


def check(exchange: Exchange, rng: random.Random) -> Completion:
    """One execution. Raises whatever is wrong."""
    completion = parse_completion(exchange)
    assert completion.complete == (completion.reason is None) == (completion.detail == "")
    assert completion.complete or completion.reason in PRECEDENCE
    assert len(completion.detail) <= 700 and completion.detail.isprintable(), "one line that moves no cursor"
    assert len(completion.chunk_ns) == len(completion.chunk_sizes) and all(completion.chunk_sizes)
    assert sum(completion.chunk_sizes) == len(completion.token_ids)
    assert list(completion.chunk_ns) == sorted(completion.chunk_ns)
    if completion.complete:
        usage = completion.usage
        assert completion.status == 200 and completion.finish_reason in ("stop", "length")
        assert usage is not None and usage.completion_tokens == len(completion.token_ids) > 0
    assert said(parse_completion(recut(rng, exchange))) == said(completion), "another cut says something else"

    row = row_of(completion, exchange)
    assert Row.model_validate_json(row.model_dump_json()) == row
    rows = mark_cold([row, row])
    attempt_median(rows)
    for gate in (
        gates.stream_gate("fuzz", rows),
        gates.cache_zero_gate("fuzz", rows),
        gates.degenerate_gate("fuzz", rows),
    ):
        assert gate.passed == (not gate.failures)
    assert completion.complete or not gates.stream_gate("fuzz", [row]).passed
    compare_rows([row], [row])
    lags = [0.0] if row.lag_p99_us is None else [row.lag_p99_us]
    gates.client_gate("fuzz", [row], lags, chunk_gaps_ms([row]), 0.1, "SO_TIMESTAMPNS")
    body = answer_body(exchange)
    for asked in (canaries.repeat_canaries("m"), canaries.chat_canaries("m")):
        canaries.judge(asked, [body] * len(asked)).model_dump_json()
    return completion


def line_memory(rng: random.Random) -> int:
    """Most bytes that the decoder holds for a line without end, in reads of up to 64 KiB; it must refuse the line."""
    lead = rng.choice([b"data: ", b": ", b"", b'data: {"choices":[{"text":"'])
    piece = rng.choice([b"x", b"\xc3\xa9", b"[", b"\\u0041", b" "]) * (READ // 8)
    decoder = SseDecoder()
    gc.collect()
    tracemalloc.start()
    try:
        decoder.feed(lead, 0)
        for _ in range(4 * MAX_BYTES // len(piece)):
            decoder.feed(piece[: rng.randrange(1, len(piece) + 1)], 0)
        raise AssertionError("a line without end was taken")
    except SseError:
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass
class Found:
    """What a run found."""

    executions: int = 0
    lines: int = 0
    """endless lines among them"""
    line_bytes: int = 0
    """most memory for one"""
    outcomes: Counter[str] = field(default_factory=Counter)
    """complete, or the reason"""
    crashes: list[str] = field(default_factory=list)
    """one traceback each"""


def run(
    seed: int,
    *,
    executions: int | None = None,
    seconds: float | None = None,
    corpus: Path = CORPUS,
    keep: Path | None = None,
) -> Found:
    """Fuzz for so many executions or seconds; what crashes is written to ``keep``."""
    pool, found = seeds(corpus), Found()
    deadline = None if seconds is None else time.monotonic() + seconds
    while (executions is None or found.executions < executions) and (deadline is None or time.monotonic() < deadline):
        # Each execution has a seed of its own, so that one can be played again alone.
        rng = random.Random(f"{seed}.{found.executions}")
        found.executions += 1
        data = mutated(rng, rng.choice(pool), rng.choice(pool))
        try:
            completion = check(exchange_of(rng, data), rng)
            found.outcomes[completion.reason.value if completion.reason else "complete"] += 1
            if deadline is not None and found.executions % LINE_EVERY == 0:
                found.lines += 1
                found.line_bytes = max(found.line_bytes, line_memory(rng))
                assert found.line_bytes <= LINE_BYTES, "a line cost more memory than it may"
        except Exception:  # noqa: BLE001 - whatever comes is what is looked for
            found.crashes.append(f"seed {seed}, execution {found.executions - 1}\n{traceback.format_exc()}")
            if keep is not None:
                (keep / f"crash-{hashlib.sha256(data).hexdigest()[:12]}.bin").write_bytes(data)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """The program. 0 when nothing broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn, and said, when left out")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where answers are read and crashes kept")
    options = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    found = run(seed, seconds=options.seconds, corpus=options.corpus, keep=options.corpus)
    sys.stderr.writelines(f"{crash}\n" for crash in found.crashes)
    ends = ", ".join(f"{name} {count}" for name, count in found.outcomes.most_common())
    lines = f"; {found.lines} endless lines, at most {found.line_bytes / 2**20:.1f} MiB each" if found.lines else ""
    sys.stdout.write(f"seed {seed}: {found.executions} executions, {len(found.crashes)} crashes{lines}\n{ends}\n")
    return 1 if found.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
