"""Options → the ladder's part of a plan, and the oracle answers that an earlier campaign lends it (contract 5)."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.evidence.ladder import ORACLE_LABEL, ladder_label, lent_answers
from harness.evidence.ladder_attempts import answers_sha256, load_answers
from harness.evidence.store import dump_json
from harness.lanes import EngineName, Lane
from harness.plan import HIGH_SHAPE, LadderPlan, ServerPlan
from harness.suites import Suite
from harness.workloads.ladder import slots

if TYPE_CHECKING:
    from harness.preparing import LadderOptions, Options


def ladder_servers(
    options: "Options", ladder: "LadderOptions", engine: EngineName
) -> list[tuple[str, int, str | None]]:
    """(label, depth, url): the MTP0 oracle where depth > 0 and no --oracle lends one, then the measured server."""
    measured = (ladder_label(options.depth), options.depth, options.url)
    if options.depth == 0 or ladder.oracle is not None:
        return [measured]
    if engine == "attach" and options.oracle_url is None:
        raise UsageError(
            f"an attached ladder at MTP depth {options.depth} needs its MTP0 oracle; give --oracle-url or --oracle DIR"
        )
    return [(ORACLE_LABEL, 0, options.oracle_url), measured]


def ladder_plan(lane: Lane, ladder: "LadderOptions", shape: str, oracle: bytes | None) -> LadderPlan:
    """What the ladder sends; the capture ceiling is the compilation config's."""
    compilation = {} if lane.eager else (lane.compilation or {})
    if shape == HIGH_SHAPE and compilation:
        compilation = compilation | (lane.compilation_high or {})
    ceiling = compilation.get("max_cudagraph_capture_size")
    return LadderPlan(
        rungs=list(ladder.rungs),
        passes=ladder.passes,
        stagger_ms=ladder.stagger_ms,
        verbatim=ladder.verbatim,
        shape=shape,
        ceiling=ceiling if isinstance(ceiling, int) else None,
        workers=ladder.workers,
        direct=ladder.direct,
        oracle=None if oracle is None else answers_sha256(load_answers(oracle)),
    )


def take_oracle(directory: Path, server: ServerPlan, suite: Suite, ladder: "LadderOptions") -> bytes:
    """The MTP0 answers of another campaign, as oracle.json. Raises UsageError unless they fit this ladder's server."""
    name = directory.name or str(directory)
    evidence, answers = lent_answers(directory)
    theirs = evidence.start.plan
    if theirs.depth != 0 or evidence.exit_code == 2:
        raise UsageError(f"--oracle {name} is no finished MTP0 ladder ({evidence.status}); give one that is")
    if theirs.suite_sha256 != suite.sha256 or theirs.ladder is None or theirs.ladder.verbatim != ladder.verbatim:
        raise UsageError(f"--oracle {name} asked other prompts; give a ladder of the same suite and mode")
    for what, ours, other in (
        ("image", server.image_id, theirs.servers[0].image_id),
        ("tensor parallel", server.tensor_parallel, theirs.servers[0].tensor_parallel),
        ("shape", _shape(server), _shape(theirs.servers[0])),
    ):
        if ours != other:
            raise UsageError(f"--oracle {name} has another {what} ({other}, here {ours}); give one of the same")
    missing = [slot.id for slot in slots(suite, max(ladder.rungs), verbatim=ladder.verbatim) if slot.id not in answers]
    if missing:
        raise UsageError(f"--oracle {name} has no answer of {missing[0]}; give a ladder with as many slots")
    return dump_json({slot: list(ids) for slot, ids in sorted(answers.items())})


def _shape(server: ServerPlan) -> list[str]:
    """The sizes among a server's arguments."""
    flags = ("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens")
    words = server.arguments
    return [words[place + 1] for place, word in enumerate(words[:-1]) if word in flags]
