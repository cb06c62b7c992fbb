"""Corners of ``wire`` and ``measure`` that hardly a server leads to, each taken once for real."""

import gc
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BenchError, EvidenceError
from harness.measure.selftest import Point, Proxy
from harness.wire import capture as capture_module
from harness.wire.capture import Control, Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.chunks import Stream, words
from harness.wire.completion import Reason, parse_completion
from harness.wire.exchange import Ending, Exchange, level_reads
from harness.wire.http import decode_response
from harness.wire.library import _Watch
from harness.wire.scheduling import NORMAL, prompt_wakeups
from harness.wire.sse import Event, SseDecoder, SseError
from harness.wire.transport import Clock, Deadlines, SocketTransport
from harness.wire.workers import Spread, _receive, _work
from tests.wire.build import DONE, GOOD, HEAD, chunk, chunked, event, exchange, parse, usage
from tests.wire.scripted import Handed, request, send, serving

# platforms and schedulers


def test_without_kernel_times_the_users_clock_is_taken_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([request, send(b"".join(chunked(GOOD)))]) as server:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(sys, "platform", "darwin")
            transport = SocketTransport("127.0.0.1", server.port)
        read = transport.exchange(server.request())
    assert transport.timestamp_source == "user-space clock"
    assert parse_completion(read).complete and read.at_ns == read.user_ns and not any(read.kernel)


def test_a_platform_without_real_time_scheduling_reads_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setscheduler", raising=False)
    with prompt_wakeups() as scheduling:
        assert scheduling == NORMAL and not gc.isenabled()
    assert gc.isenabled()


def test_a_garbage_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with prompt_wakeups():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


# bytes


def test_half_a_surrogate_as_stream_id_is_one_id_and_printable() -> None:
    halves = [piece.replace(b"cmpl-1", b"\\ud800") for piece in GOOD]
    got = parse(halves)
    assert got.complete and got.stream_id == "\\ud800"
    other = parse([*halves[:2], GOOD[2], *halves[3:]])
    assert other.reason is Reason.MANY_STREAM_IDS


def test_an_error_that_nests_at_the_edge_of_what_can_be_read_has_words_or_none() -> None:
    """What the decoder still reads, the encoder may not write: it stands a few calls deeper."""
    reasons = set()
    for depth in range(600, sys.getrecursionlimit() + 20):
        stream = Stream()
        stream.take(Event(1, "message", '{"error":' + "[" * depth + "]" * depth + "}"))
        ((reason, said),) = stream.faults.items()
        assert said.isprintable() and len(said) <= 300
        reasons.add(reason)
    assert reasons == {Reason.ERROR_EVENT, Reason.BAD_JSON}


def test_a_long_page_in_many_pieces_is_quoted_in_part() -> None:
    head = HEAD.replace(b"200 OK", b"503 Service Unavailable")
    got = parse_completion(exchange(chunked([b"busy " * 100] * 40, head=head)))
    assert got.reason is Reason.HTTP_STATUS and got.detail.startswith("HTTP 503: busy busy") and len(got.detail) == 300
    assert parse_completion(exchange(chunked([b"bu", b"sy"], head=head))).detail == "HTTP 503: busy"


def test_bytes_without_a_recorded_read_count_as_the_last_ones() -> None:
    whole = exchange(chunked(GOOD))
    whole.sizes, whole.at_ns = whole.sizes[:2], whole.at_ns[:2]
    whole.user_ns, whole.kernel = whole.user_ns[:2], whole.kernel[:2]
    response = decode_response(whole)
    assert response.complete and response.body[-1][0] == whole.end_ns
    assert parse_completion(whole).token_ids == (5, 6, 7, 8)


def test_bytes_without_any_recorded_read_have_no_first_one() -> None:
    whole = exchange([b"".join(chunked(GOOD))])
    whole.sizes, whole.at_ns, whole.user_ns, whole.kernel = [], [], [], []
    got = parse_completion(whole)
    assert got.complete and got.first_byte_ns is None and got.end_ns == whole.end_ns


def test_a_read_that_was_only_half_kept_is_dropped() -> None:
    cut = Exchange(b"", 0, 0, Ending.INTERRUPTED, data=b"abcde", sizes=[3, 2, 4], at_ns=[1, 2, 3], user_ns=[1, 2, 3, 4])
    cut.kernel = [True, True, True]
    level_reads(cut)
    assert (cut.data, cut.sizes, cut.at_ns, cut.user_ns, cut.kernel) == (b"abcde", [3, 2], [1, 2], [1, 2], [True] * 2)


def test_what_h11_says_does_not_depend_on_the_cut() -> None:
    for data in (b"\r\n\r\nx", b"\rHTTP/1.1 200 OK\r\n\r\n", b"".join(chunked(GOOD))[:-7] + b"\rx\r\n"):
        said = {
            parse_completion(exchange([data[:place], data[place:]] if place else [data])).detail
            for place in range(len(data))
        }
        assert len(said) == 1, said


def test_an_event_of_done_and_nothing_else_has_its_time() -> None:
    got = parse([event({"id": "cmpl-1", "choices": []}), DONE])
    assert got.reason is Reason.NO_TOKENS and got.first_event_ns is not None and got.chunk_ns == ()


# captures with limits


def _captured(path: Path, count: int = 3) -> Path:
    writer, rng = CaptureWriter(path, {}), random.Random(1)
    for number in range(count):
        # Hardly compressible, so that a line is longer than a block of zstd.
        writer.whole(Tag("suite", f"p{number}"), exchange(chunked([chunk([5], rng.randbytes(200_000).hex())])))
    writer.control(Control("health", "/health", 1, 200, ""))
    writer.close()
    return path


@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [("MAX_TOTAL", 8000, "decompresses to more than"), ("MAX_LINE", 500, "has a line over")],
)
def test_a_capture_beyond_a_limit_is_refused(
    limit: str, value: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _captured(tmp_path / "capture.jsonl.zst")
    assert len(load_capture(path).exchanges) == 3
    monkeypatch.setattr(capture_module, limit, value)
    with pytest.raises(EvidenceError, match=words):
        load_capture(path)


@pytest.mark.parametrize(("limit", "value"), [("MAX_EXCHANGES", 3), ("MAX_READS", 5)])
def test_more_exchanges_or_reads_than_a_campaign_has_are_refused(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _captured(tmp_path / "capture.jsonl.zst")
    monkeypatch.setattr(capture_module, limit, value)
    with pytest.raises(EvidenceError, match="exchanges or"):
        load_capture(path)
    assert len(load_capture(_captured(tmp_path / "small.zst", 1)).exchanges) == 1


# a connection that stands when its time is already over


def test_a_connection_that_stands_after_its_time_is_shut_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(20)
        watch = _Watch(exchange([]), Clock())
        watch._end(Ending.TOTAL_TIMEOUT, "0.1 s in all")
        watch._end(Ending.DONE, "a later verdict changes nothing")
        assert watch.verdict == (Ending.TOTAL_TIMEOUT, "0.1 s in all")
        watch.follow("connection.connect_tcp.complete", {"return_value": Handed(ours)})
        assert theirs.recv(1) == b"", "the other side sees the end"


# client processes


def test_a_worker_connects_waits_for_the_barrier_and_hands_everything_back() -> None:
    """The body of a client process, run here: its parent is a thread."""
    ours, theirs = multiprocessing.Pipe()
    got: list[Any] = []

    def parent() -> None:
        got.append(ours.recv())
        ours.send(([server.request()] * 2, [0, 0]))
        got.append(ours.recv())
        ours.send(0)
        got.append(ours.recv())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=parent, daemon=True)
    try:
        with serving([request, send(b"".join(chunked(GOOD)))]) as server:
            thread.start()
            spread = Spread("127.0.0.1", server.port, 2, Deadlines())
            _work(spread, 1, theirs)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "Ctrl-C is the parent's to hear"
            thread.join(20)
    finally:
        signal.signal(signal.SIGINT, before)
        ours.close()
        theirs.close()
    started, connected, exchanges = got
    assert started == connected == [] and [item.worker for item in exchanges] == [1, 1]
    assert all(parse_completion(item).complete for item in exchanges)


def test_a_worker_that_does_not_connect_in_time_is_named() -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(name="reader-1")
    with ours, theirs, pytest.raises(BenchError, match=r"client worker reader-1 did not connect within 0\.05 s"):
        _receive(process, ours, 0.05, "connect")


def test_a_worker_whose_parent_has_gone_ends_without_a_word() -> None:
    ours, theirs = multiprocessing.Pipe()
    before = signal.getsignal(signal.SIGINT)
    try:
        ours.close()
        _work(Spread("127.0.0.1", 1, 2, Deadlines()), 0, theirs)
    finally:
        signal.signal(signal.SIGINT, before)
        theirs.close()


# the self-test's figures


def test_figures_of_the_self_test_are_finite_or_null() -> None:
    point: dict[str, Any] = dict.fromkeys(Point.model_fields, None)
    point |= {"users": 1, "events": 10, "lost": 0, "coalesced": 0}
    assert Point.model_validate(point).lag_p99_us is None
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite"):
            Point.model_validate({**point, "lag_p99_us": wrong})
        with pytest.raises(ValueError, match="finite"):
            Proxy(published_p50_us=wrong, direct_p50_us=1.0, added_p50_us=1.0)


@pytest.mark.parametrize(("length", "kept"), [(299, 299), (300, 300), (301, 300)])
def test_a_servers_words_are_three_hundred_characters_at_most(length: int, kept: int) -> None:
    said = words("x" * length)
    assert len(said) == kept and said.endswith("…") is (length > kept)
    assert words("a\x1b[2J\r\nb\u2028c") == "a [2J b c"


@pytest.mark.parametrize(("sizes", "noted"), [([5, 3], True), ([4, 4], False), ([4, 3], False), ([8], False)])
def test_a_burst_is_more_than_half_of_at_least_eight_ids(sizes: list[int], noted: bool) -> None:
    pieces = [chunk([7] * size, "x") for size in sizes]
    pieces += [chunk([], "", finish="stop"), usage(sum(sizes)), DONE]
    assert any(note.startswith("burst-read: ") for note in parse(pieces).notes) is noted


def test_a_choice_without_an_index_is_the_first_one() -> None:
    assert parse([piece.replace(b'"index": 0, ', b"") for piece in GOOD]).complete


def test_a_clock_step_is_told_in_milliseconds() -> None:
    got = parse(GOOD, clock_step_ns=600_000)
    assert got.detail == "the wall clock moved by 0.600 ms against the monotonic clock"


def test_what_came_behind_a_lost_segment_is_no_clock_step() -> None:
    """Found under load: a socket that is full drops a segment, and those behind it keep their own times."""
    at_ms = [10.0 * place for place in range(1, len(chunked(GOOD)) + 1)]
    at_ms[3] -= 15.0
    late = exchange(chunked(GOOD), at_ms=at_ms)
    late.user_ns[3] = late.user_ns[2] + 5_000
    got = parse_completion(late)
    assert got.complete and list(got.chunk_ns) == sorted(got.chunk_ns), "what was behind it was there with it"
    assert got.end_ns == max(late.at_ns)
    late.user_ns[3] = late.user_ns[2] - 600_000
    assert parse_completion(late).detail == "a read came 0.600 ms before what was before it, by the wall clock"
    early = exchange(chunked(GOOD), at_ms=[-1.0, *at_ms[1:]])
    assert parse_completion(early).reason is Reason.CLOCK_STEP


@pytest.mark.parametrize(("size", "taken"), [(20, True), (21, False)])
def test_the_limit_counts_each_event_anew(size: int, taken: bool) -> None:
    decoder = SseDecoder(max_bytes=20)
    assert len(decoder.feed(b"data: first\n\n", 1)) == 1
    line = b"data: " + b"x" * (size - 6) + b"\n\n"
    if taken:
        assert len(decoder.feed(line, 2)) == 1
    else:
        with pytest.raises(SseError, match="longer than 20 bytes"):
            decoder.feed(line, 2)
