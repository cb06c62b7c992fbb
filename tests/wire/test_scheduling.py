"""How the reading thread is scheduled: ahead of others where the system lets it, and as before afterwards."""

import gc
import os

import pytest

from harness.wire.scheduling import NORMAL, REALTIME, prompt_wakeups

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="the system has no scheduling policies")


def allowed() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("name", "priority"), [("SCHED_OTHER", 0), ("SCHED_BATCH", 0), ("SCHED_RR", 2)])
def test_a_thread_is_real_time_within_and_what_it_was_afterwards(name: str, priority: int) -> None:
    at_first, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        realtime = allowed()
        if priority and not realtime:
            pytest.skip("this user may not be scheduled in real time")
        os.sched_setscheduler(0, getattr(os, name), os.sched_param(priority))
        with prompt_wakeups() as obtained:
            assert obtained == (REALTIME if realtime else NORMAL)
            assert (os.sched_getscheduler(0) == os.SCHED_RR) is realtime
            assert not gc.isenabled()
        assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) == (getattr(os, name), priority)
        assert gc.isenabled()
    finally:
        os.sched_setscheduler(0, at_first, parameters)


def test_they_are_spelled_as_in_evidence() -> None:
    assert (NORMAL, REALTIME) == ("normal", "SCHED_RR")
