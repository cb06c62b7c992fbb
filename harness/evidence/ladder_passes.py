"""Which server's batch counts for each pass of a ladder that may have been resumed (contract section 5)."""

from collections.abc import Sequence

from harness.evidence.ladder_schema import LadderAttempt
from harness.evidence.schema import AttemptStatus
from harness.measure.ladder import Batch, Rung, RungClient, summarise_rung
from harness.plan import LadderPlan
from harness.workloads.ladder import captured


class Passes:
    """The passes of the measured servers, in the order in which these ran.

    A pass is whole when every rung of it was measured on one server, and counts where it was whole first. The warm-up
    that a resumed campaign repeats and a pass that was cut short and measured again enter no figure; a miss in them
    withholds their rung.
    """

    def __init__(self, plan: LadderPlan, attempts: Sequence[LadderAttempt]) -> None:
        self._plan, self._attempts = plan, attempts
        self._whole: dict[int, LadderAttempt] = {}
        self._home: dict[int, LadderAttempt] = {}
        for number in range(1, plan.passes + 1):
            for attempt in attempts:
                measured = {batch.rung for batch in attempt.batches if batch.number == number}
                if measured and number not in self._whole:
                    self._home[number] = attempt
                if measured == set(plan.rungs):
                    self._whole.setdefault(number, attempt)

    @property
    def done(self) -> int:
        """Whole passes from pass 1 on, without a hole."""
        done = 0
        while done + 1 in self._whole:
            done += 1
        return done

    def rungs(self, depth: int, clients: Sequence[RungClient]) -> list[Rung]:
        """What is said of each rung that was measured."""
        made = []
        for rung in self._plan.rungs:
            counted, beside = self._split(rung)
            if counted:
                seen = [client for client in clients if client.rung == rung]
                on = captured(rung, depth, self._plan.ceiling)
                made.append(summarise_rung(rung, counted, seen, captured=on, beside=beside))
        return made

    def _split(self, rung: int) -> tuple[list[Batch], list[Batch]]:
        """(one batch for each pass, in order; the others)."""
        counted, beside = list[Batch](), list[Batch]()
        for attempt in self._attempts:
            for batch in attempt.batches:
                if batch.rung == rung:
                    (counted if self._home.get(batch.number) is attempt else beside).append(batch)
        return sorted(counted, key=lambda batch: batch.number), beside

    def unproven(self) -> list[str]:
        """One sentence for each server that didn't reach its end and whose passes count."""
        found = []
        for attempt in self._attempts:
            numbers = [number for number, home in self._whole.items() if home is attempt]
            if numbers and attempt.status is not AttemptStatus.COMPLETE:
                ended = "was interrupted" if attempt.status is AttemptStatus.INTERRUPTED else "failed"
                which = f"pass {numbers[0]} was" if len(numbers) == 1 else f"passes {numbers[0]} to {numbers[-1]} were"
                found.append(
                    f"{attempt.directory}: {which} measured on a server that {ended}: its exclusive use is not proven"
                )
        return found
