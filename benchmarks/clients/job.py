"""What every client is asked to do, what it hands over, and the figures made of that."""

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

HOST = "127.0.0.1"
PATH = "/v1/completions"

_CREATED = re.compile(rb'"created_ns":(\d+)')


@dataclass(frozen=True)
class Job:
    """``rounds`` times ``streams`` requests at once, of ``tokens`` ids each, to a source with a known schedule."""

    port: int
    streams: int
    rounds: int
    tokens: int
    ids_per_event: int
    ttft_us: int
    warm_rounds: int = 1
    """rounds before these, in no figure"""

    @property
    def events(self) -> int:
        """Events with ids that the measured rounds must bring."""
        return self.streams * self.rounds * math.ceil(self.tokens / self.ids_per_event)

    def body(self) -> bytes:
        """The request's body."""
        fields: dict[str, Any] = {"model": "source", "prompt": "Count.", "max_tokens": self.tokens, "temperature": 0}
        fields |= {"seed": 42, "ignore_eos": True, "return_token_ids": True}
        return json.dumps(fields | {"stream": True, "stream_options": {"include_usage": True}}).encode()


@dataclass(slots=True)
class Heard:
    """One stream as its client handed it over: bytes, each piece with the wall time it has for the client's user."""

    t0_ns: int
    """wall time just before the call that sends the request"""
    pieces: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """One stream, parsed. Event i arrived at ``at_ns[i]`` and was sent at ``created_ns[i]``, both wall time."""

    t0_ns: int
    at_ns: list[int]
    created_ns: list[int]
    ids: list[int]
    complete: bool
    """the usage agrees with the ids, and [DONE] came"""


class Client(Protocol):
    """One client. ``round`` does the streams of one round; ``parse`` is outside of the measured reading."""

    timestamps: str
    """what its timestamps are"""
    version: str

    def round(self) -> list[Any]:
        """Open all streams of one round, and read them to their ends."""

    def parse(self, heard: Any) -> Stream:
        """One of ``round``'s streams, parsed: what wasn't done while it was open."""

    def close(self) -> None:
        """Close what is open."""


def stamps(data: bytes) -> list[int]:
    """``created_ns`` of each event that has ids, in order; the usage event behind them has one too."""
    return [int(value) for value in _CREATED.findall(data)][:-1]


class Events:
    """The events of one body without HTTP framing, parsed as its pieces come, as the peers' users do it.

    An event has the time of the piece that completed it.
    """

    def __init__(self, t0_ns: int) -> None:
        self._stream = Stream(t0_ns, [], [], [], False)
        self._pending = b""
        self._told: int | None = None
        self._done = False

    def feed(self, at_ns: int, piece: bytes) -> None:
        """The next piece, and when it was handed out."""
        *events, self._pending = (self._pending + piece).split(b"\n\n")
        stream = self._stream
        for event in events:
            data = event.removeprefix(b"data: ")
            if data == b"[DONE]":
                self._done = True
                continue
            value = json.loads(data)
            if value.get("usage"):
                self._told = value["usage"]["completion_tokens"]
            for choice in value["choices"]:
                stream.ids += choice["token_ids"]
                stream.at_ns.append(at_ns)
                stream.created_ns.append(value["created_ns"])

    def stream(self) -> Stream:
        """What came."""
        self._stream.complete = self._done and self._told == len(self._stream.ids)
        return self._stream


def parse_pieces(heard: Heard) -> Stream:
    """The same of pieces that were kept."""
    events = Events(heard.t0_ns)
    for at, piece in heard.pieces:
        events.feed(at, piece)
    return events.stream()


def parsed(stream: Stream) -> Stream:
    """For a client that parses as it reads."""
    return stream


def percentile(values: Sequence[float], q: float) -> float | None:
    """Nearest rank: the smallest value that at least ``q`` of 1 of them don't exceed; None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """p50, p99, extremes and count."""
    ends = (min(values), max(values)) if values else (None, None)
    middle = percentile(values, 0.5), percentile(values, 0.99)
    return {"p50": middle[0], "p99": middle[1], "min": ends[0], "max": ends[1], "count": len(values)}


def figures(
    job: Job, rounds: Sequence[Sequence[Stream]], ids: Sequence[int], cpu_s: tuple[float, float]
) -> dict[str, Any]:
    """The figures of one client at one concurrency; ``cpu_s`` is the CPU time of reading and of parsing, seconds."""
    streams = [stream for each in rounds for stream in each]
    right = [stream for stream in streams if stream.ids == list(ids) and stream.complete]
    events = sum(len(stream.at_ns) for stream in right)
    walls = [max(stream.at_ns[-1] for stream in each) - min(stream.t0_ns for stream in each) for each in rounds]
    seconds = sum(walls) / 1e9
    firsts = [(stream.at_ns[0], stream.created_ns[0], stream.t0_ns) for stream in right]
    releases = [(max(s.t0_ns for s in each) - min(s.t0_ns for s in each)) / 1e6 for each in rounds]
    gaps = [(b - a) / 1e6 for s in right for a, b in zip(s.at_ns, s.at_ns[1:], strict=False)]
    late = [(at - sent) / 1e3 for s in right for at, sent in zip(s.at_ns, s.created_ns, strict=True)]
    return {
        "job": asdict(job),
        "events": events,
        "events_lost": job.events - events,
        "streams_incomplete": job.streams * job.rounds - len(right),
        "wall_s": seconds,
        "events_per_s": events / seconds,
        "events_per_read": events / max(1, sum(len(set(stream.at_ns)) for stream in right)),
        "cpu_read_us_per_event": cpu_s[0] * 1e6 / job.events,
        "cpu_parse_us_per_event": cpu_s[1] * 1e6 / job.events,
        "cpu_read_share_of_a_core": cpu_s[0] / seconds,
        "ttft_ms": spread([(at - t0) / 1e6 for at, _, t0 in firsts]),
        "ttft_error_ms": spread([(at - t0) / 1e6 - job.ttft_us / 1e3 for at, _, t0 in firsts]),
        "ttft_error_to_stamp_ms": spread([(at - sent) / 1e6 for at, sent, _ in firsts]),
        "timestamp_error_us": spread(late),
        "gap_ms": spread(gaps),
        "release_spread_ms": statistics.median(releases),
    }
