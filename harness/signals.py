"""SIGINT, SIGTERM and SIGHUP as one exception, that waits while a server is being stopped."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from harness.errors import Interrupted

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class SignalGuard:
    """Turns the first signal into Interrupted in the main thread; ``quiet`` holds it back."""

    def __init__(self) -> None:
        self._quiet = 0
        self._pending: str | None = None
        self._raised = False
        self._heard = ""
        """name of the signal that was raised as an exception"""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._quiet:
            self._pending = self._pending or name
        elif not self._raised:
            self._raised, self._heard = True, name
            raise Interrupted(f"interrupted by {name}")

    def _drop(self, args: "sys.UnraisableHookArgs", hook: Callable[["sys.UnraisableHookArgs"], object]) -> None:
        """Python drops what is raised in a finalizer: then that signal waits, and a second one is raised."""
        if not isinstance(args.exc_value, Interrupted):
            hook(args)
        elif self._raised:
            self._raised, self._pending = False, self._heard

    @contextlib.contextmanager
    def installed(self) -> Iterator["SignalGuard"]:
        """Handle signals inside; the handlers from before come back after. Outside the main thread: does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        # What the caller has ignored stays ignored: nohup, and jobs that a script put into the background.
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        hook = sys.unraisablehook
        before = {number: signal.signal(number, self._receive) for number in heard}
        sys.unraisablehook = lambda args: self._drop(args, hook)
        try:
            yield self
        finally:
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Signals that come inside wait for :meth:`check`."""
        before, self._quiet = self._quiet, self._quiet + 1
        try:
            yield
        finally:
            self._quiet = before

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Inside a :meth:`quiet` context: signals are heard again, one that has waited first.

        Raises Interrupted at its end for a signal whose exception never came out.
        """
        before, heard = self._quiet, self._heard
        try:
            self._quiet = 0
            self.check()
            yield
            self.check()
            if self._heard != heard:
                raise Interrupted(f"interrupted by {self._heard}")
        finally:
            self._quiet = before

    def check(self) -> None:
        """Raise Interrupted for a signal that came while quiet, or whose exception was dropped."""
        if self._pending is not None and not self._raised:
            self._raised, self._heard = True, self._pending
            raise Interrupted(f"interrupted by {self._pending}")
