"""Signals as one exception, that waits where it must. Real signals to this process."""

import os
import signal
import sys
import threading

import pytest

from harness.errors import Interrupted
from harness.signals import SIGNALS, SignalGuard


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_becomes_an_exception(number: signal.Signals) -> None:
    with SignalGuard().installed(), pytest.raises(Interrupted, match=f"^interrupted by {number.name}$"):
        send(number)


def test_only_the_first_one_counts() -> None:
    guard = SignalGuard()
    with guard.installed():
        with pytest.raises(Interrupted):
            send(signal.SIGINT)
        send(signal.SIGTERM)
        send(signal.SIGHUP)
        guard.check()


def test_signal_waits_while_quiet() -> None:
    guard, steps = SignalGuard(), []
    with guard.installed():
        with guard.quiet():
            send(signal.SIGTERM)
            steps.append("still here")
            with guard.quiet():
                send(signal.SIGINT)
            steps.append("and here")
        with pytest.raises(Interrupted, match="SIGTERM"):
            guard.check()
        guard.check()
    assert steps == ["still here", "and here"]


def test_listening_hears_what_waited_first() -> None:
    guard = SignalGuard()
    with guard.installed(), guard.quiet():
        send(signal.SIGHUP)
        with pytest.raises(Interrupted, match="SIGHUP"), guard.listening():
            raise AssertionError("not reached")


def test_listening_hears_and_is_quiet_again() -> None:
    guard, cleaned = SignalGuard(), False
    with guard.installed(), guard.quiet():
        try:
            with guard.listening():
                send(signal.SIGINT)
                raise AssertionError("not reached")
        except Interrupted:
            send(signal.SIGINT)
            cleaned = True
    assert cleaned


def test_handlers_come_back() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    guard = SignalGuard()
    with guard.installed():
        assert all(signal.getsignal(number) == guard._receive for number in SIGNALS)
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_in_another_thread_nothing_is_touched() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    seen: list[object] = []

    def work() -> None:
        with SignalGuard().installed():
            seen.append({number: signal.getsignal(number) for number in SIGNALS})

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalGuard().installed():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            send(signal.SIGHUP)
            with pytest.raises(Interrupted, match="SIGTERM"):
                send(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_exception_that_python_drops_is_raised_at_the_end() -> None:
    class Finalizer:
        def __del__(self) -> None:
            send(signal.SIGINT)  # what its handler raises is printed and dropped

    guard = SignalGuard()
    heard: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda args: heard.append(args.exc_type)
    try:
        with guard.installed(), guard.quiet(), pytest.raises(Interrupted, match="SIGINT"), guard.listening():
            Finalizer()
            heard.append("still measuring")
    finally:
        sys.unraisablehook = hook
    assert heard == [Interrupted, "still measuring"]


def test_quiet_is_what_it_was_after_an_interrupt_within() -> None:
    guard = SignalGuard()
    with guard.installed():
        with guard.quiet():
            with pytest.raises(Interrupted), guard.listening():
                send(signal.SIGTERM)
            assert guard._quiet == 1
        assert guard._quiet == 0
