"""What was said once is never changed in place."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from harness.measure.metrics import Counters
from harness.wire.capture import Control, Tag
from harness.wire.chunks import Usage
from harness.wire.transport import Clock, Deadlines
from harness.wire.workers import Spread
from tests.wire.build import GOOD, parse

VALUES: list[tuple[Any, str]] = [
    (Clock(), "wall_ns"),
    (Control("health", "/health", 1, 200, ""), "status"),
    (Counters({}, {}, {}), "totals"),
    (Deadlines(), "total_s"),
    (Spread("127.0.0.1", 1, 1, Deadlines()), "host"),
    (Tag("suite", "p"), "name"),
    (Usage(1, 2, 0), "cached_tokens"),
    (parse(GOOD), "reason"),
]


@pytest.mark.parametrize(("value", "name"), VALUES, ids=lambda item: type(item).__name__)
def test_it_is_frozen(value: Any, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, getattr(value, name))
