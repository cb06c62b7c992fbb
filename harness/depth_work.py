"""Prompts of token ids on one server: the long-context profile and the boundary probes (contract section 7)."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from harness.errors import LaunchError, UsageError
from harness.evidence import journal
from harness.evidence.attempts import canary_requests
from harness.evidence.context_attempts import answer_of, capture_kind
from harness.evidence.prompts import PROMPTS, control_name, dump_prompts, first_other, ids_of, load_prompts, tokenized
from harness.evidence.store import write_atomic
from harness.plan import ContextPlan
from harness.session import Session
from harness.watching import Watcher
from harness.wire.capture import Tag, find_control
from harness.workloads.context import (
    REPEAT_SHARE,
    context_body,
    context_request_id,
    cut,
    needs,
    piece_bytes,
    pieces,
    repeated_share,
    tokenize_body,
)
from harness.workloads.strict import PATH


class PromptBook:
    """The prompts of a campaign: built by its first server's /tokenize, and the same for every other one."""

    def __init__(self, directory: Path, plan: ContextPlan, texts: Mapping[str, bytes]) -> None:
        self._directory, self._texts = directory, texts
        self.plan = plan

    def of(self, session: Session) -> dict[str, tuple[int, ...]]:
        """Prompt id → token ids, as this server reads the texts too.

        Raises UsageError for a text that is too short or repeats itself, LaunchError for a server that doesn't tokenize
        or gives other ids than the campaign's first one: then nothing could be compared.
        """
        label = session.plan.label
        for name, count in needs(self.plan.prompts).items():
            session.stage(f"tokenizing {name}")
            self._ask(session, name, count)
        ids = tokenized(session.sender.controls, self.plan)
        if isinstance(ids, str):
            raise LaunchError(f"{label}: {ids}")
        kept = load_prompts(self._directory, journal.load(self._directory), self.plan)
        if kept is None:
            for name, found in ids.items():
                share = repeated_share(found)
                if share > REPEAT_SHARE:
                    raise UsageError(
                        f"text {name} repeats itself: {share:.0%} of its passages had come before within the "
                        f"{len(found)} tokens that are needed; give unrepeated text with --texts"
                    )
            data = dump_prompts(ids)
            write_atomic(self._directory / PROMPTS, data)
            event = journal.Event(
                at=journal.now_utc(), event="prompts-kept", label=label, sha256=hashlib.sha256(data).hexdigest()
            )
            journal.append(self._directory, event)
        else:
            other = first_other(kept, ids)
            if other is not None:
                raise LaunchError(
                    f"{label}: its /tokenize disagrees with the prompts of this campaign ({other}), so its answers "
                    "couldn't be compared; give both servers the same tokenizer and start anew"
                )
        return cut(self.plan.prompts, ids)

    def _ask(self, session: Session, name: str, count: int) -> None:
        """Piece by piece, up to ``count`` ids; the answers stand in the capture."""
        limit, got = piece_bytes(self.plan.max_model_len), 0
        for number, piece in enumerate(pieces(self._texts[name].decode(), limit)):
            body = tokenize_body(piece, session.plan.served_model_name)
            ids = ids_of(session.control.post(control_name(name, number), "/tokenize", body))
            if isinstance(ids, str):
                raise LaunchError(
                    f"{session.plan.label}: /tokenize {ids}, so prompts of exactly so many tokens can't be built"
                )
            got += len(ids)
            if got >= count:
                return
        raise UsageError(
            f"text {name} gives {got} tokens on {session.plan.label}'s tokenizer and {count} are needed; give more "
            "text with --texts, or fewer --depths"
        )


def ask_prompts(session: Session, book: PromptBook, kind: str, watcher: Watcher | None) -> tuple[int, int | None]:
    """Ask every prompt of the plan, alone and in order; (requests, tokens received, None where an answer didn't say).

    ``kind`` is depth or probe. Raises LaunchError when the server dies of one, or serves another context.
    """
    refuse_other_context(session, book.plan)
    prompts, model, of_capture = book.of(session), session.plan.served_model_name, capture_kind(kind)
    counts: list[int | None] = []
    for number, prompt in enumerate(book.plan.prompts):
        session.stage(f"prompt {number + 1}/{len(book.plan.prompts)} {prompt.id}")
        ids = prompts[prompt.id]
        tag = Tag(of_capture, prompt.id, request_id=context_request_id(kind, number, prompt.id))
        exchange = session.sender.post(tag, PATH, context_body(ids, prompt.max_tokens, model), stream=True)
        row = answer_of(tag, exchange, number, prompt, ids, model).row
        if watcher is not None:
            watcher.row(session.plan.label, row, len(book.plan.prompts))
        counts.append(row.completion_tokens)
        if not row.complete:
            session.check_alive(row.reason or "", f"{prompt.id} is invalid ({row.reason}): {row.detail}")
    known = [count for count in counts if count is not None]
    return len(counts), sum(known) if len(known) == len(counts) else None


def refuse_other_context(session: Session, plan: ContextPlan) -> None:
    """A context is full only where the server's own max-model-len is the planned one. Raises LaunchError."""
    control = find_control(session.sender.controls, "models")
    try:
        served = None if control is None else json.loads(control.body)["data"][0]["max_model_len"]
    except (ValueError, KeyError, TypeError, LookupError):
        served = None
    if isinstance(served, int) and served != plan.max_model_len:
        raise LaunchError(
            f"{session.plan.label}: the server's max_model_len is {served}, the prompts were planned for "
            f"{plan.max_model_len}; correct [shapes.{plan.shape}] of the launcher"
        )


class ContextWork:
    """Canaries, every prompt of the plan, canaries. See harness.session.Work."""

    def __init__(self, kind: str, book: PromptBook, watcher: Watcher) -> None:
        self._kind, self._book, self._watcher = kind, book, watcher

    def run(self, session: Session) -> None:
        """See harness.session.Work."""
        session.canaries("before")
        session.scrape("metrics-suite-start")
        session.mark_log("")
        sent, tokens = ask_prompts(session, self._book, self._kind, self._watcher)
        session.scrape("metrics-suite-end")
        session.mark_log("prompts")
        session.canaries("after")
        requests = sent + 2 * len(canary_requests(session.plan))
        session.settle(requests, None if tokens is None else tokens + session.sender.canary_tokens)
