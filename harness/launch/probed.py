"""What a probe of the cards found; see harness.launch.probes."""

from typing import Any

from pydantic import Field

from harness.launch.server import Record


class ProbeResult(Record):
    """One probe."""

    name: str
    """compute on card 0 (xpu), all-reduce over 2 cards (xpu)"""
    passed: bool
    seconds: float
    why: str = ""
    """why it failed, a sentence; empty when it passed"""
    told: dict[str, Any] = Field(default_factory=dict)
    """what the program said of its device, backend and version of torch"""
