"""Which tests judge the mutants of which module, and which of their words leave a test out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tests:
    """``room/name``: tests/room/test_name.py. A test whose name holds one of ``without`` is left out."""

    names: str
    without: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """Their paths."""
        return [
            f"tests/{room}/test_{name}.py" for room, _, name in (item.partition("/") for item in self.names.split())
        ]


_ANSWERS = "wire/completion wire/completion_endings wire/completion_events"
_CAPTURES = "wire/capture_writer wire/capture_limits wire/capture wire/capture_damaged wire/frozen hostile/corners"
_SOCKETS = (
    "wire/connection wire/transport_exactly wire/frozen wire/transport wire/transport_endings "
    "wire/transport_interrupted wire/barrier wire/poller hostile/races"
)

TESTS: dict[str, Tests] = {
    "harness.measure.bootstrap": Tests("measure/exactly measure/bootstrap"),
    "harness.measure.gates": Tests("measure/gates measure/bounds measure/exactly"),
    "harness.measure.identity": Tests("measure/identity measure/bounds measure/gates"),
    "harness.measure.intervals": Tests("measure/intervals"),
    "harness.measure.ladder": Tests("measure/ladder measure/bounds measure/exactly"),
    "harness.measure.metrics": Tests("measure/metrics wire/frozen"),
    "harness.measure.power": Tests("measure/power measure/exactly"),
    "harness.measure.rates": Tests("measure/rates measure/bounds"),
    "harness.measure.rows": Tests("measure/rows measure/bounds"),
    "harness.measure.selftest": Tests("measure/selftest"),
    "harness.wire.answer_end": Tests("wire/answer_end"),
    "harness.wire.capture": Tests(_CAPTURES),
    "harness.wire.capture_writer": Tests(_CAPTURES),
    "harness.wire.chunks": Tests(f"{_ANSWERS} wire/frozen wire/properties hostile/corners"),
    "harness.wire.completion": Tests(f"{_ANSWERS} wire/frozen wire/properties hostile/corners"),
    "harness.wire.connection": Tests(_SOCKETS),
    "harness.wire.exchange": Tests(f"wire/exchange {_ANSWERS}"),
    "harness.wire.http": Tests("wire/http wire/regular hostile/corners"),
    "harness.wire.library": Tests("wire/library_exactly wire/library wire/library_proxies hostile/corners"),
    "harness.wire.masking": Tests("wire/masking"),
    "harness.wire.poller": Tests("wire/poller wire/barrier"),
    "harness.wire.reason": Tests(f"wire/reason {_ANSWERS}"),
    "harness.wire.request": Tests("wire/request"),
    "harness.wire.scheduling": Tests("wire/scheduling hostile/corners"),
    # The time of a machine that does other things too says nothing of a mutant.
    "harness.wire.sse": Tests(f"wire/sse {_ANSWERS} hostile/corners", without=("linear",)),
    "harness.wire.transport": Tests(_SOCKETS),
    "harness.wire.workers": Tests("wire/workers wire/frozen hostile/corners"),
}
"""Every module of the two rooms that holds code"""
