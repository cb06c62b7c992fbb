"""What the self-test found, as it stands in evidence (contract section 6). Measured by harness.selftest."""

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """Base of the self-test's results."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Point(Result):
    """The client at one number of streams. The truth is the source's: first token 50 ms after the request arrived,
    then one event each 10 ms, each stamped with the wall clock just before its own write."""

    users: int
    events: int
    """received"""
    lost: int
    """events of the schedule that never came; must be 0"""
    events_per_s: float | None
    cpu_us_per_event: float | None
    ttft_error_p50_ms: float | None
    """first id after the request's release, less 50 ms"""
    ttft_error_max_ms: float | None
    timestamp_error_p50_us: float | None
    """our time of an event less its created_ns"""
    timestamp_error_p99_us: float | None
    """maximum below 100 events"""
    lag_p99_us: float | None
    """user time less kernel time of a read; maximum below 100 reads"""
    coalesced: int
    """events that shared a read with another"""


class Proxy(Result):
    """What Docker's own port proxy adds on this host, from one container reached both ways."""

    published_p50_us: float
    """event time less created_ns through the published port"""
    direct_p50_us: float
    """the same at the container's own address"""
    added_p50_us: float


class SelfTest(Result):
    """``bench selftest``."""

    timestamp_source: str
    scheduling: str
    points: list[Point]
    proxy: Proxy | None
    """null where no container was measured"""
    proxy_note: str
    """why it is null, or what it means"""
