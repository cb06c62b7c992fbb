"""The bare exchange: its endings as evidence spells them, its clocks, and reads that a signal cut in two."""

import pytest

from harness.wire.exchange import Ending, Exchange, level_reads


def test_endings_are_spelled_as_in_evidence() -> None:
    """These words stand in captures that were written already."""
    assert [ending.value for ending in Ending] == [
        "closed",
        "done",
        "reset",
        "connect-failed",
        "connect-timeout",
        "send-failed",
        "first-byte-timeout",
        "idle-timeout",
        "total-timeout",
        "interrupted",
    ]


def test_an_exchange_that_has_not_begun_says_nothing() -> None:
    fresh = Exchange(b"x", 7, 5, Ending.INTERRUPTED)
    assert (fresh.detail, fresh.data, fresh.sizes, fresh.at_ns, fresh.user_ns, fresh.kernel) == (
        "",
        b"",
        [],
        [],
        [],
        [],
    )
    assert (fresh.end_ns, fresh.cpu_ns, fresh.worker, fresh.end_wall_ns, fresh.end_mono_ns) == (0, 0, 0, 0, 0)
    assert (fresh.scheduling, fresh.framing, fresh.status, fresh.headers) == ("unknown", "http", None, [])
    assert (fresh.connected_ns, fresh.sent_ns, fresh.released_ns) == (None, None, None)


def test_the_step_is_what_the_wall_clock_moved_more_than_the_other() -> None:
    moved = Exchange(b"", 1000, 10, Ending.CLOSED, end_wall_ns=1900, end_mono_ns=600)
    assert moved.clock_step_ns == 310
    assert Exchange(b"", 1000, 10, Ending.CLOSED, end_wall_ns=1590, end_mono_ns=600).clock_step_ns == 0


@pytest.mark.parametrize(
    ("sizes", "times", "data", "kept"),
    [
        ([2, 3], [1, 2], b"abcde", 2),
        ([2, 3], [1, 2], b"abcdefgh", 2),
        ([2, 3], [1, 2, 3], b"abcdefgh", 2),
        ([2, 3], [1], b"abcde", 1),
        ([2, 3], [1, 2], b"abcd", 1),
        ([2, 3], [1, 2], b"a", 0),
        ([2, 3], [1, 2], b"ab", 1),
        ([], [], b"abc", 0),
    ],
)
def test_only_whole_reads_are_kept(sizes: list[int], times: list[int], data: bytes, kept: int) -> None:
    for short in range(4):
        columns = [list(times), list(times), [True] * len(times), list(sizes)]
        cut = Exchange(b"", 0, 0, Ending.INTERRUPTED, data=data)
        cut.user_ns, cut.at_ns, cut.kernel, cut.sizes = columns  # type: ignore[assignment]
        if short < 3 and len(columns[short]) > kept:
            del columns[short][kept:]
        level_reads(cut)
        assert cut.sizes == sizes[:kept] and cut.data == data[: sum(sizes[:kept])]
        assert (cut.user_ns, cut.at_ns, cut.kernel) == (times[:kept], times[:kept], [True] * kept)
