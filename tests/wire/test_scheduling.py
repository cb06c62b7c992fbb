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


@pytest.mark.parametrize("name", ["SCHED_OTHER", "SCHED_BATCH"])
def test_a_thread_is_real_time_within_and_what_it_was_afterwards(name: str) -> None:
    at_first, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        realtime = allowed()
        os.sched_setscheduler(0, getattr(os, name), os.sched_param(0))
        with prompt_wakeups() as obtained:
            assert obtained == (REALTIME if realtime else NORMAL)
            assert (os.sched_getscheduler(0) == os.SCHED_RR) is realtime
            assert not gc.isenabled()
        assert os.sched_getscheduler(0) == getattr(os, name)
        assert gc.isenabled()
    finally:
        os.sched_setscheduler(0, at_first, parameters)


def test_they_are_spelled_as_in_evidence() -> None:
    assert (NORMAL, REALTIME) == ("normal", "SCHED_RR")
