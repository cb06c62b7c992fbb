"""The self-test's figures as they stand in evidence."""

from typing import Any

import pytest
from pydantic import ValidationError

from harness.measure.selftest import Point, Proxy, SelfTest

POINT: dict[str, Any] = {
    "users": 1,
    "events": 10,
    "lost": 0,
    "events_per_s": 1.0,
    "cpu_us_per_event": None,
    "ttft_error_p50_ms": 0.1,
    "ttft_error_max_ms": 0.2,
    "timestamp_error_p50_us": 1.0,
    "timestamp_error_p99_us": 2.0,
    "lag_p99_us": None,
    "coalesced": 0,
}
WHOLE: dict[str, Any] = {
    "timestamp_source": "SO_TIMESTAMPNS",
    "scheduling": "normal",
    "points": [POINT],
    "proxy": {"published_p50_us": 3.0, "direct_p50_us": 2.0, "added_p50_us": 1.0},
    "proxy_note": "",
}


def test_what_is_written_loads_again() -> None:
    found = SelfTest.model_validate(WHOLE)
    assert found.model_dump() == WHOLE and SelfTest.model_validate_json(found.model_dump_json()) == found


def test_nothing_in_it_is_changed_afterwards_or_comes_beside() -> None:
    found = SelfTest.model_validate(WHOLE)
    with pytest.raises(ValidationError, match="frozen"):
        found.points[0].lost = 1  # type: ignore[misc]
    for stray in ({**WHOLE, "stray": 1}, {**WHOLE, "points": [{**POINT, "stray": 1}]}):
        with pytest.raises(ValidationError, match="Extra inputs"):
            SelfTest.model_validate(stray)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_figures_are_finite_or_null(wrong: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Point.model_validate({**POINT, "lag_p99_us": wrong})
    with pytest.raises(ValidationError, match="finite"):
        Proxy(published_p50_us=wrong, direct_p50_us=1.0, added_p50_us=1.0)
