"""--stream-canary: one prompt once more and not as a stream: one that loses its end can't pass for whole."""

import json
from collections.abc import Mapping, Sequence

from harness.evidence.loading import AttemptFiles
from harness.evidence.schema import AttemptStatus, StreamCanary
from harness.measure.gates import Gate
from harness.measure.identity import divergence
from harness.measure.rows import Row
from harness.wire.http import decode_response
from harness.workloads import strict
from harness.workloads.canaries import ids_of

STAGE = "stream"
"""Of the canary, in its tag"""


def chosen(rows: Sequence[Row]) -> Row | None:
    """The row whose prompt is asked once more: one that ended by itself, where no count shows that an id was lost."""
    whole = [row for row in rows if row.complete]
    return next((row for row in whole if row.finish_reason == "stop"), whole[0] if whole else None)


def stream_canary(files: AttemptFiles, rows: Sequence[Row], model: str) -> StreamCanary | None:
    """What came of it; None where it was not asked."""
    asked = files.capture.of_kind("canary", STAGE) if files.capture is not None else []
    if not asked:
        return None
    tag, exchange = asked[-1]
    row = next((item for item in rows if item.prompt_id == tag.name), None)
    wanted = chosen(rows)
    _, _, sent = exchange.request.partition(b"\r\n\r\n")
    response = decode_response(exchange)
    body = b"".join(piece for _, piece in response.body) if response.status == 200 and response.complete else None
    ids = ids_of(body)
    if row is None or wanted is None or row.prompt_id != wanted.prompt_id or len(asked) > 1:
        problem = "it was not asked once, of the prompt that it is to be asked of"
    elif not _is_request(sent, row, model):
        problem = "the request that was sent isn't the prompt's"
    elif isinstance(ids, str):
        problem = f"it {ids}"
    else:
        problem = _cached(body)
    if row is None or isinstance(ids, str):
        return StreamCanary(prompt_id=tag.name, exact=False, tokens=None, divergence=None, problem=problem)
    at = divergence(row.prompt_id, row.token_ids, ids)
    exact = at is None and not problem
    return StreamCanary(prompt_id=tag.name, exact=exact, tokens=len(ids), divergence=at, problem=problem)


def _is_request(sent: bytes, row: Row, model: str) -> bool:
    try:
        body = json.loads(sent)
    except (ValueError, RecursionError):
        return False
    prompt = body.get("prompt") if isinstance(body, dict) else None
    return (
        isinstance(prompt, str)
        and strict.sha256(prompt) == row.prompt_sha256
        and body == strict.whole_body(prompt, model)
    )


def _cached(body: bytes | None) -> str:
    """Why the answer may be of a cache; empty when it is not."""
    usage = json.loads(body or b"{}").get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    if type(cached) is not int:
        return "it has no cached_tokens"
    return f"it took {cached} prompt tokens from a cache" if cached else ""


def with_stream_canary(gate: Gate, found: StreamCanary | None, status: AttemptStatus) -> Gate:
    """The ``canaries`` gate of a server that was to be asked once more, with what came of it."""
    label = gate.subject
    if found is None:
        said = [f"{label}: the stream canary was not asked"] if status is AttemptStatus.COMPLETE else []
    elif found.problem:
        said = [f"{label}: stream canary {found.prompt_id}: {found.problem}"]
    elif found.divergence is not None:
        said = [
            f"{label}: stream canary: the stream left the same prompt's whole answer, {found.divergence.sentence()}"
        ]
    else:
        said = []
    notes = list(gate.notes)
    if found is not None and not said:
        notes.append(f"stream canary: {found.prompt_id} once more, not as a stream, gave the same {found.tokens} ids")
    failures = [*gate.failures, *said]
    return gate.model_copy(update={"failures": failures, "passed": not failures, "notes": notes})
