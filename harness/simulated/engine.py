"""The engine: which requests run, when each makes its next step, and which ids the step gives."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import random

from harness.simulated.loop import Loop
from harness.simulated.metrics import Counters
from harness.simulated.model import EOS
from harness.simulated.settings import Settings

TIE_WINDOW_NS = 1_000_000
ARRIVALS_KEPT = 1024

OnStep = Callable[[list[int], str | None], bool]


def _falls(rate: float) -> bool:
    return random() < rate  # noqa: S311 - how a tie falls is no secret


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the engine."""

    prompt_tokens: int
    ids: Iterator[tuple[int, float]]
    """(id, draw) per position, endless"""
    max_tokens: int
    ignore_eos: bool
    stop_after: int | None
    """end with ``stop`` after so many ids, whatever they are"""
    on_step: OnStep
    """called with the ids of a step and the finish reason; false = nothing more is to happen (the request stays)"""
    arrived_ns: int = 0
    """wall clock at which the request came"""
    tied_ids: Callable[[], Iterator[tuple[int, float]]] | None = None
    """the answer it gives instead when a tie falls the other way; None = it has no tie site"""
    warming: Callable[[int], int] | None = None
    """batch size → nanoseconds that it waits for a compilation; None = it waits for none"""
    loses_end: bool = False
    """fault ``loses-end``: an answer that ends with ``stop`` lacks its last id"""
    made: int = 0
    due_ns: int = 0
    gone: bool = False


class Engine:
    """Runs up to ``max_num_seqs`` requests, the others wait.

    A request that starts at time s gives its first id at s + ttft and makes step i at s + ttft + i × step, on a fixed
    schedule: a late step doesn't delay those after it. A step lasts longer, the more requests run.
    """

    def __init__(self, settings: Settings, loop: Loop, counters: Counters) -> None:
        self._settings = settings
        self._loop = loop
        self._counters = counters
        self._running: set[Sequence] = set()
        self._waiting: deque[Sequence] = deque()
        self._arrivals: deque[int] = deque(maxlen=ARRIVALS_KEPT)

    @property
    def busy(self) -> bool:
        """Whether a request runs or waits."""
        return bool(self._running or self._waiting)

    @property
    def next_place(self) -> int:
        """How many requests will be in the engine, running or waiting, once another has come."""
        return len(self._running) + len(self._waiting) + 1

    def submit(self, sequence: Sequence) -> None:
        """Take a request: it starts now, or when a running one ends."""
        self._waiting.append(sequence)
        self._arrivals.append(sequence.arrived_ns)
        self._admit()

    def remove(self, sequence: Sequence, reason: str) -> None:
        """End a request early; ``reason`` is the label it is counted under. Does nothing if it has ended."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        else:
            return
        sequence.gone = True
        self._counters.finished[reason] += 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._settings.max_num_seqs:
            sequence = self._waiting.popleft()
            self._running.add(sequence)
            sequence.due_ns = time.monotonic_ns() + self._settings.ttft_ns
            if sequence.warming is not None:
                sequence.due_ns += sequence.warming(len(self._running))
            self._loop.at(sequence.due_ns, lambda sequence=sequence: self._step(sequence))  # type: ignore[misc]
        self._counters.running, self._counters.waiting = len(self._running), len(self._waiting)

    def _step(self, sequence: Sequence) -> None:
        if sequence.gone:
            return
        if not sequence.made:
            self._counters.prompt_tokens += sequence.prompt_tokens
            if sequence.tied_ids is not None and self._crowded(sequence) and _falls(self._settings.tie_rate):
                sequence.ids = sequence.tied_ids()
        ids = self._emit(sequence)
        finish = None
        for position, token in enumerate(ids):
            place = sequence.made + position + 1
            if (token == EOS and not sequence.ignore_eos) or place == sequence.stop_after:
                finish = "stop"
            elif place == sequence.max_tokens:
                finish = "length"
            if finish:
                lost = sequence.loses_end and finish == "stop"
                del ids[position + (0 if lost else 1) :]
                break
        sequence.made += len(ids)
        self._counters.generation_tokens += len(ids)
        if finish:
            # Counted before the last bytes leave: whoever has read them finds them in /metrics.
            self.remove(sequence, finish)
        if sequence.on_step(ids, finish) and not finish:
            load = 1 + self._settings.batch_slope * (len(self._running) - 1)
            sequence.due_ns += round(self._settings.step_ns * load)
            self._loop.at(sequence.due_ns, lambda: self._step(sequence))

    def _crowded(self, sequence: Sequence) -> bool:
        """Whether another request came within a millisecond of this one, so that their prefills shared a batch."""
        near = sum(abs(other - sequence.arrived_ns) < TIE_WINDOW_NS for other in self._arrivals)
        return near > 1

    def _emit(self, sequence: Sequence) -> list[int]:
        """The ids of one step: prefill gives one, a decode step one and the accepted drafts before it.

        As in vLLM, drafts beyond the end of the answer count as accepted although their ids are thrown away.
        """
        token, draw = next(sequence.ids)
        ids = [token]
        if sequence.made and self._settings.depth:
            self._counters.drafts += 1
            for position in range(self._settings.depth):
                if draw >= self._settings.acceptance:
                    break
                self._counters.accepted_per_position[position] += 1
                token, draw = next(sequence.ids)
                ids.append(token)
        return ids
