"""Exchanges that end because of us: a sink that fails, a signal, anywhere. Real sockets and signals."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import harness.wire.transport as transport_module
from harness.errors import Interrupted
from harness.wire.capture import Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.completion import parse_completion
from harness.wire.exchange import Ending, Exchange
from harness.wire.transport import NoSink, SocketTransport
from tests.hostile.test_races import WHOLE
from tests.wire.asking import Began, consistent
from tests.wire.build import GOOD, chunked
from tests.wire.scripted import Told, act, half_close, hold, request, send, serving, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")


class Failing(NoSink):
    """A sink whose disk is full from some call on."""

    def __init__(self, when: str) -> None:
        self.when = when
        self.ended: list[Ending] = []

    def begin(self, exchange: Exchange, number: int) -> None:
        if self.when == "begin" and number == 2:
            raise OSError(28, "No space left on device")

    def drain(self, exchange: Exchange, number: int) -> None:
        if self.when == "drain" and exchange.data:
            raise OSError(28, "No space left on device")

    def end(self, exchange: Exchange, number: int) -> None:
        self.ended.append(exchange.ending)
        if self.when in ("end", "drain"):
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("when", ["begin", "drain", "end"])
def test_a_sink_that_fails_leaves_no_connection_open(when: str) -> None:
    answer = send(b"".join(chunked(GOOD[:1], last=False)))
    last = [half_close] if when == "end" else []
    sink = Failing(when)
    with serving([request, answer, *last, hold]) as server:
        transport = SocketTransport("127.0.0.1", server.port, sink=sink, drain_s=0.0)
        with pytest.raises(OSError, match="No space"):
            transport.exchange_all([server.request()] * 3)
    # leaving the block shows that the server saw every connection closed
    assert len(sink.ended) == 3
    assert sink.ended.count(Ending.INTERRUPTED) >= 2


def test_a_signal_ends_all_and_the_capture_says_so(tmp_path: Path) -> None:
    def stop(number: int, frame: object) -> None:
        raise Interrupted("interrupted by SIGUSR1")

    before = signal.signal(signal.SIGUSR1, stop)
    told = Told(GOOD[0])
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {})
    writer.tags = [Tag("suite", "a"), Tag("suite", "b")]

    class Both(NoSink):
        def begin(self, exchange: Exchange, number: int) -> None:
            writer.begin(exchange, number)

        def drain(self, exchange: Exchange, number: int) -> None:
            writer.drain(exchange, number)
            told.drain(exchange, number)

        def end(self, exchange: Exchange, number: int) -> None:
            writer.end(exchange, number)

    part = b"".join(chunked(GOOD[:1], last=False))
    kill = act(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        with serving([request, send(part), wait(told.seen), kill, hold], [request, hold]) as server:
            transport = SocketTransport("127.0.0.1", server.port, sink=Both(), drain_s=0.0)
            with pytest.raises(Interrupted):
                transport.exchange_all([server.request()] * 2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    writer.close()
    capture = load_capture(path)
    assert not capture.truncated
    assert [exchange.ending for _, exchange in capture.exchanges] == [Ending.INTERRUPTED] * 2
    assert [exchange.detail for _, exchange in capture.exchanges] == ["we stopped reading"] * 2
    assert sorted(exchange.data for _, exchange in capture.exchanges) == [b"", part]
    assert parse_completion(max((e for _, e in capture.exchanges), key=lambda e: e.data)).token_ids == (5,)


class _Stop(BaseException):
    """What a signal handler raises."""


def _interrupted_after(calls: int, path: Path) -> bool:
    """One captured exchange with an exception after so many calls, as a signal's handler raises it; whether it came."""
    files = {transport_module.__file__, sys.modules[CaptureWriter.__module__].__file__}
    left = calls

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename in files:  # type: ignore[attr-defined]
            left -= 1
            if left == 0:
                raise _Stop

    writer = CaptureWriter(path, {})
    writer.tags = [Tag("suite", "a")]
    came = False
    cut = b"".join(chunked(GOOD[:2], last=False))
    with serving([request, send(cut), half_close, hold]) as server:
        transport = SocketTransport("127.0.0.1", server.port, sink=writer, drain_s=0.0)
        wire = server.request()
        try:
            sys.setprofile(profile)
            transport.exchange(wire)
        except _Stop:
            came = True
        finally:
            sys.setprofile(None)
    writer.close()
    capture = load_capture(path)
    for _, exchange in capture.exchanges:
        assert consistent(exchange)
        assert cut.startswith(exchange.data)
        assert came or (exchange.ending, exchange.data) == (Ending.CLOSED, cut)
    assert came or len(capture.exchanges) == 1
    return came


def test_an_interruption_anywhere_leaves_a_capture_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of files; the disk isn't what is tried here
    policy = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    calls = 1
    while _interrupted_after(calls, tmp_path / f"{calls}.zst"):
        calls += 1
        assert policy is None or os.sched_getscheduler(0) == policy
    assert calls > 50


class Interrupting(list[int]):
    """A list to which nothing can be added, because a signal comes."""

    def __iadd__(self, values: Any) -> Any:
        if self:
            raise KeyboardInterrupt
        self.extend(values)
        return self


@pytest.mark.parametrize("name", ["at_ns", "kernel", "user_ns", "sizes"])
def test_a_signal_while_reads_are_noted_leaves_whole_reads(name: str) -> None:
    ended: list[Exchange] = []

    class Handing(Began):
        def begin(self, exchange: Exchange, number: int) -> None:
            setattr(exchange, name, Interrupting())

        def end(self, exchange: Exchange, number: int) -> None:
            ended.append(exchange)

    sink = Handing()
    script = [request, send(WHOLE[:40]), wait(sink.seen), send(WHOLE[40:]), hold]
    with serving(script) as server, pytest.raises(KeyboardInterrupt):
        SocketTransport("127.0.0.1", server.port, sink=sink, drain_s=0.0).exchange(server.request())
    (found,) = ended
    assert (found.ending, found.data) == (Ending.INTERRUPTED, WHOLE[:40]) and consistent(found)
