"""The strict suite on one server: canaries, twelve prompts in file order, canaries (contract section 3).

With ``--stream-canary`` one prompt is asked once more and not as a stream, with ``--probes`` the boundary probes are:
after the prompts and before the last canaries. Neither enters a rate.
"""

from harness.depth_work import PromptBook, ask_prompts
from harness.evidence.attempts import answer_body, canary_requests, row_of
from harness.evidence.schema import SuiteFacts
from harness.evidence.stream_canary import STAGE, chosen
from harness.measure.rows import Row
from harness.session import Session
from harness.suites import Suite
from harness.watching import Watcher
from harness.wire.capture import Tag
from harness.workloads import strict


class StrictWork:
    """See harness.session.Work."""

    def __init__(
        self,
        suite: Suite,
        facts: SuiteFacts,
        watcher: Watcher,
        probes: PromptBook | None = None,
        *,
        stream_canary: bool = False,
    ) -> None:
        self._suite, self._facts, self._watcher, self._probes = suite, facts, watcher, probes
        self._stream_canary = stream_canary
        self._rows: list[Row] = []

    def run(self, session: Session) -> None:
        """See harness.session.Work."""
        session.canaries("before")
        session.scrape("metrics-suite-start")
        session.mark_log("")
        tokens = self._prompts(session)
        session.scrape("metrics-suite-end")
        session.mark_log("suite")
        sent = len(self._suite.prompts) + 2 * len(canary_requests(session.plan))
        if self._stream_canary:
            sent += self._once_more(session)
        if self._probes is not None:
            asked, generated = ask_prompts(session, self._probes, "probe", None)
            sent += asked
            tokens = None if tokens is None or generated is None else tokens + generated
        session.canaries("after")
        session.settle(sent, None if tokens is None else tokens + session.sender.canary_tokens)

    def _prompts(self, session: Session) -> int | None:
        """Each prompt once; the tokens received, None when an answer didn't say."""
        prompts, counts = self._suite.prompts, list[int | None]()
        for number, prompt in enumerate(prompts):
            session.stage(f"prompt {number + 1}/{len(prompts)} {prompt.id}")
            request_id = strict.request_id(self._suite, number, prompt.id)
            body = strict.strict_body(prompt.text, session.plan.served_model_name)
            tag = Tag("suite", prompt.id, request_id=request_id)
            exchange = session.sender.post(tag, strict.PATH, body, stream=True)
            row = row_of(tag, exchange, number, self._facts)
            self._rows.append(row)
            self._watcher.row(session.plan.label, row, len(prompts))
            counts.append(row.completion_tokens)
            if not row.complete:
                session.check_alive(row.reason or "", _sentence(row))
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _once_more(self, session: Session) -> int:
        """The stream canary; how many requests it was. Its tokens are counted with the canaries'."""
        row = chosen(self._rows)
        if row is None:
            return 0
        prompt = next(item for item in self._suite.prompts if item.id == row.prompt_id)
        session.stage(f"stream canary {prompt.id}")
        tag = Tag("canary", prompt.id, STAGE, f"{row.request_id}-whole")
        exchange = session.sender.post(tag, strict.PATH, strict.whole_body(prompt.text, session.plan.served_model_name))
        if answer_body(exchange) is None:
            session.check_alive("canary", f"the stream canary {prompt.id} was not answered")
        return 1


def _sentence(row: Row) -> str:
    # A detail of the wire begins with the reason's own word.
    reason = row.reason or ""
    return f"{row.prompt_id}: {row.detail if row.detail.startswith(reason) else f'{reason}, {row.detail}'}"
