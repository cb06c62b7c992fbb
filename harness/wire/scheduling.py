"""How the reading thread is scheduled while streams are open: ahead of ordinary ones, collecting no garbage."""

import contextlib
import gc
import os
from collections.abc import Iterator

NORMAL, REALTIME = "normal", "SCHED_RR"


@contextlib.contextmanager
def prompt_wakeups() -> Iterator[str]:
    """The reading thread runs ahead of ordinary ones while streams are open, where the system lets it.

    It sleeps between reads, so the server loses nothing; without it a busy server delays the reads it feeds. Kernel
    times don't depend on it, the lag of contract section 6 does. Gives the scheduling that was obtained.
    """
    # A collection of garbage would stop the reading for milliseconds; nothing here makes cycles.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _realtime() as scheduling:
            yield scheduling
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def _realtime() -> Iterator[str]:
    if not hasattr(os, "sched_setscheduler"):
        yield NORMAL
        return
    before, parameters, scheduling = os.sched_getscheduler(0), os.sched_getparam(0), NORMAL
    try:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
            scheduling = REALTIME
        yield scheduling
    finally:
        os.sched_setscheduler(0, before, parameters)
