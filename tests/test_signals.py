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


class Finalizer:
    """What its signal raises, Python drops."""

    def __del__(self) -> None:
        send(signal.SIGINT)


def test_an_exception_that_python_drops_is_raised_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    guard = SignalGuard()
    with guard.installed(), guard.quiet():
        with pytest.raises(Interrupted, match="SIGINT"), guard.listening():
            Finalizer()
            steps = ["still measuring"]
        guard.check()
    assert steps == ["still measuring"] and capsys.readouterr().err == ""


def test_after_a_dropped_exception_the_next_check_or_signal_is_raised() -> None:
    for after in (lambda guard: guard.check(), lambda guard: send(signal.SIGTERM)):
        guard = SignalGuard()
        with guard.installed():
            Finalizer()
            with pytest.raises(Interrupted):
                after(guard)
            send(signal.SIGTERM)


def test_what_else_python_drops_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("unheard")

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_type))
    hook = sys.unraisablehook
    with SignalGuard().installed():
        Broken()
    assert told == [ValueError] and sys.unraisablehook is hook


def test_no_library_makes_an_error_of_its_own_of_it() -> None:
    with SignalGuard().installed(), pytest.raises(Interrupted, match="SIGTERM"):
        try:
            send(signal.SIGTERM)
        except Exception as error:  # as docker's client does around its first request
            raise LookupError("the engine can't be reached") from error


def test_quiet_is_what_it_was_after_an_interrupt_within() -> None:
    guard = SignalGuard()
    with guard.installed():
        with guard.quiet():
            with pytest.raises(Interrupted), guard.listening():
                send(signal.SIGTERM)
            assert guard._quiet == 1
        assert guard._quiet == 0
