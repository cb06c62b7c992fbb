"""A ladder on one server: every slot alone, then passes over the rungs with a canary after each (contract 5)."""

from collections.abc import Sequence

from harness.errors import LaunchError
from harness.evidence.attempts import answer_body, canary_requests
from harness.evidence.ladder_attempts import BATCH, PULSE, SEQUENTIAL, Answers, derive_batch, is_degenerate, problem_of
from harness.plan import LadderPlan
from harness.session import Session
from harness.suites import Suite
from harness.watching import Watcher
from harness.wire.capture import Tag
from harness.wire.completion import parse_completion
from harness.workloads import strict
from harness.workloads.canaries import judge_pulse, pulse
from harness.workloads.ladder import Slot, ladder_body, ladder_request_id, stage_name


class SequentialWork:
    """The MTP0 oracle: canaries, every slot alone, canaries. See harness.session.Work."""

    def __init__(self, suite: Suite, slots: Sequence[Slot], watcher: Watcher) -> None:
        self._suite, self._slots, self._watcher = suite, slots, watcher
        self.answers: dict[str, tuple[int, ...]] = {}
        self._sent = 0
        self._tokens: int | None = 0

    def run(self, session: Session) -> None:
        """See harness.session.Work."""
        session.canaries("before")
        session.scrape("metrics-suite-start")
        session.mark_log("")
        self.sequential(session)
        session.sender.look("sequential-end")
        session.mark_log("sequential")
        self.batches(session)
        session.scrape("metrics-suite-end")
        session.canaries("after")
        tokens = None if self._tokens is None else self._tokens + session.sender.canary_tokens
        session.settle(self._sent + 2 * len(canary_requests(session.plan)), tokens)

    def batches(self, session: Session) -> None:
        """Nothing for the oracle."""

    def sequential(self, session: Session) -> None:
        """Each slot alone, in order. Raises LaunchError when the server dies of one."""
        for number, slot in enumerate(self._slots, 1):
            session.stage(f"sequential oracle {number}/{len(self._slots)}")
            tag = Tag(SEQUENTIAL, slot.id, "seq", ladder_request_id(self._suite, "seq", slot))
            body = ladder_body(slot.text, session.plan.served_model_name)
            completion = parse_completion(session.sender.post(tag, strict.PATH, body, stream=True))
            self._count(completion.usage.completion_tokens if completion.usage is not None else None)
            problem = problem_of(completion)
            if problem is not None:
                session.check_alive(completion.reason or "", f"{slot.id}: {problem}")
            elif is_degenerate(completion.token_ids):
                raise LaunchError(f"{session.plan.label}: {slot.id}: a degenerate answer; the server is poisoned")
            else:
                self.answers[slot.id] = completion.token_ids

    def _count(self, tokens: int | None) -> None:
        self._sent += 1
        self._tokens = None if tokens is None or self._tokens is None else self._tokens + tokens


class LadderWork(SequentialWork):
    """The measured server: the oracle's work with passes over the rungs in between."""

    def __init__(
        self,
        suite: Suite,
        slots: Sequence[Slot],
        watcher: Watcher,
        *,
        plan: LadderPlan,
        first_pass: int,
        mtp0: Answers | None,
    ) -> None:
        super().__init__(suite, slots, watcher)
        self._plan, self._mtp0 = plan, mtp0
        # A fresh server's first pass is a warm-up, also when earlier passes were measured on another one.
        self._passes = [*([1] if first_pass > 1 else []), *range(first_pass, plan.passes + 1)]
        self._first_pulse: bytes | None = None

    def batches(self, session: Session) -> None:
        """Passes in order, rungs ascending. Raises LaunchError for a server that died or is poisoned."""
        for number in self._passes:
            for rung in self._plan.rungs:
                session.stage(f"pass {number}/{self._plan.passes}, c{rung}")
                self._batch(session, rung, number)
                self._pulse(session, rung, number)
            session.sender.look("pass-end")
            session.mark_log(f"pass {number}")

    def _batch(self, session: Session, rung: int, number: int) -> None:
        stage, slots = stage_name(rung, number), self._slots[:rung]
        tags = [Tag(BATCH, slot.id, stage, ladder_request_id(self._suite, stage, slot)) for slot in slots]
        bodies = [ladder_body(slot.text, session.plan.served_model_name) for slot in slots]
        releases = [round(index * self._plan.stagger_ms * 1e6) for index in range(rung)]
        with session.sender.looks(stage) as looks:
            exchanges = session.sender.post_batch(tags, strict.PATH, bodies, releases)
        session.sender.looked(looks)
        sent = list(zip(tags, exchanges, strict=True))
        by_id = {slot.id: slot for slot in slots}
        batch = derive_batch(rung, number, sent, by_id, session.plan, self._plan, self.answers, self._mtp0)
        for request in batch.requests:
            self._count(request.tokens if request.complete else None)
        self._watcher.batch(session.plan.label, batch, self._plan.passes)
        broken = next((request for request in batch.requests if not request.complete), None)
        if broken is not None:
            session.check_alive(broken.reason or "", f"{broken.slot} at c{rung}: {broken.detail}")
        poisoned = next((request for request in batch.requests if request.degenerate), None)
        if poisoned is not None:
            raise LaunchError(
                f"{session.plan.label}: {poisoned.slot} at c{rung} in pass {number}: a degenerate answer; "
                "the server is poisoned and isn't asked again"
            )

    def _pulse(self, session: Session, rung: int, number: int) -> None:
        plan = session.plan
        request = pulse(plan.served_model_name, plan.canaries, enable_thinking=plan.canary_thinking)
        stage = stage_name(rung, number)
        exchange = session.sender.post(Tag(PULSE, stage, stage), request.path, request.body)
        self._sent += 1
        body = answer_body(exchange)
        if body is None:
            session.check_alive("canary", f"the canary after c{rung} in pass {number} was not answered")
        problem = judge_pulse(plan.canaries, body, self._first_pulse)
        self._first_pulse = self._first_pulse or body
        if problem is not None:
            raise LaunchError(
                f"{plan.label}: the canary after c{rung} in pass {number}: {problem}; the server is poisoned and isn't "
                "asked again"
            )
