"""Every event accounted for: the source's ledger of a round against what its capture holds.

``python -m benchmarks.loads.account CAPTURE`` reads the ledger's lines as JSON from its input, prints an Account.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.clients.job import percentile, stamps
from benchmarks.source import Sent, expected_ids
from harness.wire.capture import Capture, load_capture
from harness.wire.completion import parse_completion
from harness.wire.exchange import Exchange

EARLY_NS = 500_000
"""By how much an event may arrive before the stamp in it: the two clocks are one"""
TOLD = 10


@dataclass
class Account:
    """Sums over the streams of one round."""

    streams: int = 0
    whole: int = 0
    """complete in the capture, whole in the ledger"""
    events_sent: int = 0
    events_captured: int = 0
    lost: int = 0
    doubled: int = 0
    moved: int = 0
    """streams whose ids all came, in another order"""
    early: int = 0
    """events that arrived before they were sent"""
    bytes_sent: int = 0
    bytes_captured: int = 0
    writes: int = 0
    reads: int = 0
    capture_loaded: int = 1
    late_ms: dict[str, float | None] = field(default_factory=dict)
    """arrival less the stamp of the event's own write"""
    problems: list[str] = field(default_factory=list)
    """the first of them"""

    @property
    def right(self) -> bool:
        """Every event accounted for."""
        return not (self.problems or self.lost or self.doubled or self.moved or self.early)


def compare(sent: Sequence[int], got: Sequence[int]) -> tuple[int, int, bool]:
    """(lost, doubled, moved): ids missing, ids too many, and whether only their order differs."""
    if list(sent) == list(got):
        return 0, 0, False
    missing, extra = Counter(sent), Counter(got)
    lost, doubled = (missing - extra).total(), (extra - missing).total()
    return lost, doubled, not lost and not doubled


def _stream(account: Account, name: str, exchange: Exchange, ledger: dict[str, Sent], late: list[float]) -> None:
    completion = parse_completion(exchange)
    account.reads += len(exchange.sizes)
    account.bytes_captured += len(exchange.data)
    account.events_captured += len(completion.chunk_ns)
    sent = ledger.pop(completion.stream_id or "", None)
    if sent is None:
        account.problems.append(f"{name}: stream {completion.stream_id} is not in the ledger, or twice in the capture")
        return
    asked = json.loads(exchange.request.partition(b"\r\n\r\n")[2])["max_tokens"]
    lost, doubled, moved = compare(expected_ids(sent.ids), completion.token_ids)
    account.lost, account.doubled, account.moved = account.lost + lost, account.doubled + doubled, account.moved + moved
    created = stamps(exchange.data)
    delays = [exchange.t0_wall_ns + at - made for at, made in zip(completion.chunk_ns, created, strict=False)]
    account.early += sum(delay < -EARLY_NS - abs(exchange.clock_step_ns) for delay in delays)
    late += [delay / 1e6 for delay in delays]
    said = {
        f"asked for {asked} ids, the source understood {sent.tokens}": asked == sent.tokens,
        f"incomplete: {completion.detail}": completion.complete,
        "the source did not end it": sent.whole,
        f"{sent.events} events sent, {len(completion.chunk_ns)} captured": sent.events == len(completion.chunk_ns),
        f"{sent.sent_bytes} bytes sent, {len(exchange.data)} captured": sent.sent_bytes == len(exchange.data),
        "the events' own times aren't in order": len(created) == sent.events and created == sorted(created),
    }
    wrong = [sentence for sentence, good in said.items() if not good]
    account.whole += not wrong
    account.problems += [f"{name}: {sentence}" for sentence in wrong]


def account_for(capture: Capture, lines: Sequence[Sent]) -> Account:
    """One round."""
    account, ledger, late = Account(), {f"cmpl-{sent.serial}": sent for sent in lines}, list[float]()
    for sent in lines:
        account.events_sent += sent.events
        account.bytes_sent += sent.sent_bytes
        account.writes += sent.writes
    names = Counter(tag.request_id for tag, _ in capture.exchanges)
    account.problems += [f"{name} stands {times} times in the capture" for name, times in names.items() if times > 1]
    if capture.truncated:
        account.problems.append("the capture is cut short")
    for tag, exchange in capture.exchanges:
        account.streams += 1
        _stream(account, tag.request_id, exchange, ledger, late)
    for sent in ledger.values():
        account.lost += sent.ids
        account.problems.append(f"stream {sent.serial} of the source, {sent.events} events, is not in the capture")
    account.late_ms = {"p50": percentile(late, 0.5), "p99": percentile(late, 0.99), "max": max(late, default=None)}
    del account.problems[TOLD:]
    return account


def main() -> None:
    """One round's."""
    lines = [Sent(**line) for line in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(asdict(account_for(load_capture(Path(sys.argv[1])), lines))))


if __name__ == "__main__":
    main()
