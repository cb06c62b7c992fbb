"""What an attempt's files say of one another: an editor of one of them must change all that this compares.

``derive`` recomputes every figure from the captured bytes; these checks ask whether the bytes can be what a server of
this campaign sent at that time. docs/integrity.md lists what each one catches, and what none of them can.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from harness.evidence import journal
from harness.evidence.fresh import counters
from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import AttemptStatus, Start
from harness.wire.capture import Capture, Tag, find_control
from harness.wire.completion import clock_fault
from harness.wire.exchange import Exchange
from harness.wire.http import decode_response

TOLERANCE_S = 5.0
"""Between clocks of one host, of which some tell whole seconds and the start of a process is rounded"""
MOST_STEP_S = 3600.0
"""Between the wall and the monotonic clock; the files of another boot differ by more"""
READING_S = 5.0
"""Between two clocks that are read one after the other by a thread that may be held up"""
SHARE, EACH_S = 0.02, 0.02
"""What a client's durations may be shorter than the server's, of the sum and for each request"""
STREAM_SHARE, STREAM_EACH_S = 0.15, 0.25
"""The same from the first event on: a busy client, or a proxy, may see that one late and all others in time"""
DURATIONS = "vllm:e2e_request_latency_seconds"
DECODING = "vllm:request_decode_time_seconds"
STARTED = re.compile(r"^process_start_time_seconds (\d+(?:\.\d+)?(?:e[+]?\d+)?)$", re.MULTILINE)
HEAD = 8192
"""Bytes of an answer in which its first event stands"""
ANSWER_ID, CREATED = re.compile(rb'"id":"([^"]{1,200})"'), re.compile(rb'"created":(\d{9,11})[,}]')
REQUEST_ID, HOST = re.compile(rb"\r\nX-Request-Id: ([^\r\n]*)", re.IGNORECASE), re.compile(rb"\r\nHost: ([^\r\n]*)")


@dataclass(frozen=True)
class Window:
    """When an attempt ran, seconds since the epoch, by the journal."""

    start: float
    end: float | None
    offsets: tuple[float, ...] = ()
    """wall less monotonic clock at both, where the journal has the other one too"""


def cross_checks(start: Start, events: Sequence[journal.Event], files: Sequence[AttemptFiles]) -> list[str]:
    """The first contradiction that each check finds in each attempt, one sentence each. Pure."""
    found: list[str] = []
    windows = _windows(events)
    for item in files:
        if item.capture is None:
            continue
        step = _step(item.capture)
        if step > MOST_STEP_S:
            found.append(
                f"{item.directory}/capture.jsonl.zst: its wall and monotonic clocks part by {step:.0f} s while it ran "
                "(check clocks); parts of it are of another run, get the original"
            )
            continue
        window = windows.get(item.directory)
        # Also where the clock was set before the first request, or after the last one.
        step = max(step, min(MOST_STEP_S, _spread([*_offsets(item.capture), *(window.offsets if window else ())])))
        for name, check in CHECKS.items():
            problem = next(check(item, window, step + TOLERANCE_S), None)
            if problem is not None:
                found.append(f"{item.directory}/{problem} (check {name}); get the original files")
    return [*found, *_between(start, events, files)]


def _windows(events: Sequence[journal.Event]) -> dict[str, Window]:
    found: dict[str, Window] = {}
    for event in events:
        moment = _seconds(event.at)
        if moment is None:
            continue
        told = () if event.monotonic_ns is None else (moment - event.monotonic_ns / 1e9,)
        if event.event == "attempt-started":
            found[event.directory] = Window(moment, None, told)
        elif event.event == "attempt-ended" and event.directory in found:
            begun = found[event.directory]
            found[event.directory] = Window(begun.start, moment, begun.offsets + told)
    return found


def _seconds(text: str) -> float | None:
    """Seconds since the epoch of an ISO 8601 time with its zone; None for what is none."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _offsets(capture: Capture) -> list[float]:
    """Wall less monotonic clock, seconds, at both ends of every exchange."""
    pairs = [(item.t0_wall_ns, item.t0_mono_ns) for _, item in capture.exchanges]
    pairs += [(item.end_wall_ns, item.end_mono_ns) for _, item in capture.exchanges]
    return [(wall - mono) / 1e9 for wall, mono in pairs]


def _step(capture: Capture) -> float:
    """How far the wall clock was set while the capture was written, seconds."""
    return _spread(_offsets(capture))


def _spread(offsets: Sequence[float]) -> float:
    return max(offsets) - min(offsets) if offsets else 0.0


def _groups(capture: Capture) -> Iterator[list[tuple[Tag, Exchange]]]:
    """Exchanges that were open together: a batch of a ladder, else one."""
    group: list[tuple[Tag, Exchange]] = []
    for tag, exchange in capture.exchanges:
        together = group and tag.kind == "batch" and (group[-1][0].kind, group[-1][0].stage) == (tag.kind, tag.stage)
        if group and not together:
            yield group
            group = []
        group.append((tag, exchange))
    if group:
        yield group


def _order(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """Times of one exchange, and of one after the other, by the monotonic clock."""
    assert item.capture is not None
    for tag, exchange in item.capture.exchanges:
        # A held stream is connected before its start: before zero.
        begin = [] if exchange.released_ns is not None else [0]
        if clock_fault(exchange) is not None:
            continue  # these times are by a clock that was set meanwhile, and its row says so
        told = [moment for moment in (exchange.connected_ns, exchange.sent_ns) if moment is not None]
        steps = [*begin, *told, exchange.end_ns]
        reads = exchange.user_ns
        if steps != sorted(steps) or any(later < earlier for earlier, later in pairwise(reads)):
            yield f"capture.jsonl.zst: the times of {tag.name} don't follow one another"
        if reads and (reads[0] < 0 or reads[-1] > exchange.end_ns):
            yield f"capture.jsonl.zst: a read of {tag.name} lies outside of its exchange"
        if abs(exchange.end_mono_ns - exchange.t0_mono_ns - exchange.end_ns) > READING_S * 1e9:
            yield f"capture.jsonl.zst: the length of {tag.name} isn't the time between its start and its end"
    last: tuple[int, str] | None = None
    for group in _groups(item.capture):
        first = min(exchange.t0_mono_ns for _, exchange in group)
        if last is not None and first < last[0]:
            yield f"capture.jsonl.zst: {group[0][0].name} began before {last[1]} had ended"
        last = max((exchange.end_mono_ns, tag.name) for tag, exchange in group)


def _place(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """Journal's start ≤ server's start ≤ what was asked ≤ server's stop ≤ journal's end, by the wall clock."""
    assert item.capture is not None
    if window is None or (window.end is not None and window.end < window.start):
        return  # the clock was set back in between: the journal shows it, and the other clock is checked by order
    moments: list[tuple[float, str]] = [(window.start, "journal.jsonl: the start of the attempt")]
    if item.server is not None and item.server.applied is not None:
        started = _seconds(item.server.applied.started_at)
        if started is not None:
            moments.append((started, "server.json: the start of the server"))
    asked = [(exchange.t0_wall_ns / 1e9, tag.name) for tag, exchange in item.capture.exchanges]
    asked += [(control.at_wall_ns / 1e9, control.name) for control in item.capture.controls if control.at_wall_ns]
    ended = [(exchange.end_wall_ns / 1e9, tag.name) for tag, exchange in item.capture.exchanges]
    if asked:
        at, name = min(asked)
        moments.append((at, f"capture.jsonl.zst: {name}"))
    if ended:
        at, name = max(ended)
        moments.append((at, f"capture.jsonl.zst: the end of {name}"))
    if item.server is not None and item.server.stop is not None:
        stopped = _seconds(item.server.stop.asked_at)
        if stopped is not None:
            moments.append((stopped, "server.json: the stop of the server"))
    if window.end is not None:
        moments.append((window.end, "journal.jsonl: the end of the attempt"))
    for (earlier, before), (later, after) in pairwise(moments):
        if later < earlier - tolerance:
            file, _, what = after.partition(": ")
            yield f"{file}: {what} is {earlier - later:.0f} s before {before.partition(': ')[2]}"


def _requests(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """The request that was sent names the id it is recorded under; all went to one address."""
    assert item.capture is not None
    hosts: dict[bytes, str] = {}
    for tag, exchange in item.capture.exchanges:
        head = exchange.request.partition(b"\r\n\r\n")[0]
        named = REQUEST_ID.search(head)
        if exchange.framing == "http" and tag.request_id and (named is None or named[1].decode() != tag.request_id):
            yield f"capture.jsonl.zst: the request of {tag.name} isn't the one that is recorded as {tag.request_id}"
        host = HOST.search(head)
        if host is not None:
            hosts.setdefault(host[1], tag.name)
    names = list(hosts.values())
    if len(names) > 1:
        yield f"capture.jsonl.zst: {names[1]} was sent to another address than {names[0]}"


def _answers(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """An answer names its own request, and a time between its start and its end by the server's clock."""
    assert item.capture is not None
    mine = item.server is not None and item.server.requested.engine != "attach"
    for tag, exchange in item.capture.exchanges:
        head = exchange.data[:HEAD]
        named, created = ANSWER_ID.search(head), CREATED.search(head)
        known = named[1].decode("utf-8", "replace") if named is not None else ""
        if "bench-" in known and tag.request_id not in known:
            yield f"capture.jsonl.zst: the answer to {tag.name} names the request {known[:80]}"
        if created is not None and mine and clock_fault(exchange) is None:
            at, first, last = int(created[1]), exchange.t0_wall_ns / 1e9, exchange.end_wall_ns / 1e9
            if not first - tolerance <= at <= last + tolerance:
                off = at - first if at < first else at - last
                yield f"capture.jsonl.zst: the answer to {tag.name} was created {off:+.0f} s outside of its exchange"


def _process(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """/metrics tells when the server's process began: not before its container, not after it was asked."""
    assert item.capture is not None
    if item.server is None or item.server.applied is None or item.server.requested.engine == "attach":
        return
    started = _seconds(item.server.applied.started_at)
    for control in item.capture.controls:
        said = STARTED.search(control.body) if control.path == "/metrics" else None
        if said is not None and started is not None:
            began = float(said[1])
            if not started - tolerance <= began <= control.at_wall_ns / 1e9 + tolerance:
                off = began - started
                yield f"capture.jsonl.zst: {control.name} is of a process begun {off:+.0f} s from the server's start"


def _log(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """Where the server's log has a line for each request, it has one for each that had status 200, and no other."""
    assert item.capture is not None
    if item.status is not AttemptStatus.COMPLETE:
        return
    paths = {exchange.request[:200].split(b" ", 2)[1] for _, exchange in item.capture.exchanges if exchange.request}
    for path in sorted(paths):
        lines = item.log.count(b'"POST ' + path + b' HTTP/1.1" 200')
        if not lines:
            continue
        asked = [x for _, x in item.capture.exchanges if x.request.startswith(b"POST " + path + b" ")]
        statuses = [decode_response(exchange).status for exchange in asked]
        # The server may have answered a request whose answer we never saw.
        sent, unseen = statuses.count(200), statuses.count(None)
        if not sent <= lines <= sent + unseen:
            yield f"server.log: it tells of {lines} answers at {path.decode('utf-8', 'replace')[:80]}, ours were {sent}"


def _durations(item: AttemptFiles, window: Window | None, tolerance: float) -> Iterator[str]:
    """The server's own sums of durations: no answer can reach a client sooner than the server was done with it."""
    capture = item.capture
    assert capture is not None
    for first, last in (("metrics-suite-start", "metrics-suite-end"), ("metrics-before", "metrics-after")):
        scrapes = find_control(capture.controls, first), find_control(capture.controls, last)
        if scrapes[0] is None or scrapes[1] is None or item.status is not AttemptStatus.COMPLETE:
            continue
        before, after = counters(capture.controls, first), counters(capture.controls, last)
        if isinstance(before, str) or isinstance(after, str):
            continue
        between = [x for _, x in capture.exchanges if scrapes[0].at_wall_ns <= x.t0_wall_ns <= scrapes[1].at_wall_ns]
        told = _told(before.totals, after.totals, DURATIONS, len(between))
        took = sum(exchange.end_ns for exchange in between) / 1e9
        # The server takes these by the wall clock: one that was set forward lengthens every request open then.
        each = EACH_S + tolerance - TOLERANCE_S
        if told is not None and took < told * (1 - SHARE) - each * len(between):
            yield f"capture.jsonl.zst: its answers took {took:.2f} s together, by the server's {last} {told:.2f} s"
        told = _told(before.totals, after.totals, DECODING, len(between))
        streams = [exchange for exchange in between if b'"stream":true' in exchange.request[-4096:]]
        if told is not None and len(streams) == len(between):
            took = sum(map(_streamed_s, streams))
            if took < told * (1 - STREAM_SHARE) - STREAM_EACH_S * len(between):
                yield f"capture.jsonl.zst: its streams took {took:.2f} s together, by the server's {last} {told:.2f} s"


def _told(before: Mapping[str, float], after: Mapping[str, float], name: str, n: int) -> float | None:
    """A histogram's sum between two scrapes, seconds; None where it isn't told of just these requests."""
    if f"{name}_sum" not in after:
        return None
    counted = after.get(f"{name}_count", 0.0) - before.get(f"{name}_count", 0.0)
    return after[f"{name}_sum"] - before.get(f"{name}_sum", 0.0) if n and round(counted) == n else None


def _streamed_s(exchange: Exchange) -> float:
    """From the read with the first event to the last one, seconds."""
    first = exchange.data.find(b"data:") if exchange.framing == "body" else _first_event(exchange.data)
    place = 0
    for at, size in zip(exchange.at_ns, exchange.sizes, strict=True):
        place += size
        if place > first:
            return (exchange.at_ns[-1] - at) / 1e9
    return 0.0


def _first_event(data: bytes) -> int:
    return data.find(b"data:", max(0, data.find(b"\r\n\r\n")))


Check = Callable[[AttemptFiles, Window | None, float], Iterator[str]]
CHECKS: dict[str, Check] = {
    "order": _order,
    "place": _place,
    "requests": _requests,
    "answers": _answers,
    "process": _process,
    "log": _log,
    "durations": _durations,
}
"""By the name that a sentence gives; ``clocks``, ``once`` and ``sequence`` stand beside them"""


def _between(start: Start, events: Sequence[journal.Event], files: Sequence[AttemptFiles]) -> Iterator[str]:
    """Between attempts: no server and no answer twice, and one attempt after the other."""
    servers: dict[str, str] = {}
    answers: dict[bytes, str] = {}
    for item in files:
        if item.server is None or item.server.requested.engine == "attach":
            continue  # a server of others may give out an id again, and is one server by design
        if item.server.applied is not None and item.server.applied.server_id:
            known = servers.setdefault(item.server.applied.server_id, item.directory)
            if known != item.directory:
                yield (
                    f"{item.directory}/server.json: its server is the one of {known} (check once); "
                    "get the original files"
                )
        for tag, exchange in [] if item.capture is None else item.capture.exchanges:
            named, here = ANSWER_ID.search(exchange.data[:HEAD]), f"{item.directory}/{tag.name}"
            if named is None or b"bench-" in named[1]:
                continue
            place = answers.setdefault(named[1], here)
            if place != here:
                yield (
                    f"{item.directory}/capture.jsonl.zst: the answer to {tag.name} is the one of {place} (check once); "
                    "get the original files"
                )
                break
    yield from _sequence(start, events, files)


def _sequence(start: Start, events: Sequence[journal.Event], files: Sequence[AttemptFiles]) -> Iterator[str]:
    """Attempts that one run of the command made stand one after the other on its monotonic clock."""
    runs: dict[str, int] = {}
    run = 0
    for event in events:
        run += event.event == "campaign-resumed"
        if event.event == "attempt-started":
            runs[event.directory] = run
    last: dict[int, tuple[int, str]] = {}
    if start.moment is not None:
        last[0] = (start.moment.monotonic_ns, "the start of the campaign")
    for item in files:
        if item.capture is None or not item.capture.exchanges or item.directory not in runs:
            continue
        run = runs[item.directory]
        begin = min(exchange.t0_mono_ns for _, exchange in item.capture.exchanges)
        end = max(exchange.end_mono_ns for _, exchange in item.capture.exchanges)
        if run in last and begin < last[run][0]:
            yield (
                f"{item.directory}/capture.jsonl.zst: it began before {last[run][1]} (check sequence); "
                "get the original files"
            )
        last[run] = (end, f"{item.directory} had ended")
