"""Reads as they came, taken apart: their times by the kernel, or by the clock where it gave none."""

import socket
import struct
from collections.abc import Iterator

import pytest

from harness.wire.connection import Connection
from harness.wire.exchange import Ending, Exchange
from tests.wire.build import GOOD, chunked

T0 = 1_700_000_000_500_000_000
Ancillary = list[tuple[int, int, bytes]]


def stamp(ns: int) -> Ancillary:
    """What SO_TIMESTAMPNS puts beside a read that arrived ``ns`` after t0."""
    return [(socket.SOL_SOCKET, 35, struct.pack("@ll", *divmod(T0 + ns, 1_000_000_000)))]


@pytest.fixture
def connection() -> Iterator[Connection]:
    near, far = socket.socketpair()
    with near, far:
        yield Connection(0, near, Exchange(b"", T0, 0, Ending.INTERRUPTED), b"")


@pytest.mark.parametrize(
    ("stamps", "at_ns"),
    [
        ([stamp(10), stamp(600_000_000)], [10, 600_000_000]),
        ([stamp(10), []], [10, 700_000_000]),
        ([[], stamp(600_000_000)], [25, 600_000_000]),
        ([[], []], [25, 700_000_000]),
    ],
)
def test_a_read_without_a_stamp_has_the_time_at_which_it_returned(
    connection: Connection, stamps: list[Ancillary], at_ns: list[int]
) -> None:
    connection.raw = [(b"ab", stamps[0], T0 + 25), (b"cde", stamps[1], T0 + 700_000_000)]
    connection.take_apart()
    found = connection.exchange
    assert (found.at_ns, found.user_ns, found.sizes) == (at_ns, [25, 700_000_000], [2, 3])
    assert found.kernel == [bool(item) for item in stamps]
    assert (connection.parts, connection.raw) == ([b"ab", b"cde"], [])
    connection.take_apart()
    assert found.at_ns == at_ns, "nothing is taken apart twice"


def test_an_end_is_judged_once_for_the_bytes_there_are(connection: Connection) -> None:
    whole = chunked(GOOD)
    for read in whole[:-1]:
        connection.raw.append((read, [], T0))
        connection.received += len(read)
    seen = []
    for _ in range(2):
        seen.append(connection.seems_ended())
    connection.raw.append((whole[-1], [], T0))
    assert connection.seems_ended() is seen[0], "not looked at again before there is more"
    connection.received += len(whole[-1])
    assert connection.seems_ended() and connection.judged == len(b"".join(whole))
    assert connection.parts == [b"".join(whole)]


def test_a_connection_begins_with_nothing(connection: Connection) -> None:
    found = connection
    assert (found.sent, found.received, found.noted, found.judged, found.last_ns) == (0, 0, 0, 0, 0)
    assert (found.connected, found.open, found.held, found.maybe_ended) == (False, True, False, False)
    assert (found.broken, found.raw, found.parts) == ("", [], [])
    assert not found.seems_ended()
