"""The reasons as evidence spells them, and that each has a place in the order of precedence."""

from harness.wire.reason import PRECEDENCE, Reason

SPELLED = [
    "connect-failed",
    "connect-timeout",
    "send-failed",
    "first-byte-timeout",
    "idle-timeout",
    "total-timeout",
    "connection-reset",
    "interrupted",
    "bad-http",
    "http-status",
    "not-event-stream",
    "content-encoding",
    "error-event",
    "line-too-long",
    "bad-utf8",
    "bad-json",
    "bad-event",
    "many-choices",
    "many-stream-ids",
    "after-done",
    "truncated-body",
    "stream-cut",
    "no-tokens",
    "ids-missing",
    "finish-missing",
    "finish-unexpected",
    "done-missing",
    "usage-missing",
    "usage-conflict",
    "usage-ids-mismatch",
    "clock-step",
]


def test_reasons_are_spelled_and_ordered_as_in_evidence() -> None:
    """These words stand in evidence that was written already; the order decides which one a row gets."""
    assert [reason.value for reason in PRECEDENCE] == SPELLED


def test_every_reason_has_one_place_in_the_order() -> None:
    assert len(set(PRECEDENCE)) == len(PRECEDENCE) == len(Reason)
