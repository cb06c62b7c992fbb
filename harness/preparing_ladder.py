"""Options → the ladder's part of a plan, and the oracle answers that an earlier campaign lends it (contract 5)."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import EvidenceError, UsageError
from harness.evidence.ladder import ORACLE_LABEL, ladder_label, lent_answers
from harness.evidence.ladder_attempts import answers_sha256, load_answers
from harness.evidence.store import dump_json
from harness.lanes import EngineName, Lane
from harness.measure.gates import undeclared
from harness.plan import HIGH_SHAPE, SPECULATIVE_FLAG, LadderPlan, ServerPlan
from harness.suites import Suite
from harness.workloads.ladder import slots

if TYPE_CHECKING:
    from harness.preparing import LadderOptions, Options


def ladder_servers(
    options: "Options", ladder: "LadderOptions", engine: EngineName
) -> list[tuple[str, int, str | None]]:
    """(label, depth, url): the MTP0 oracle where depth > 0 and no --oracle lends one, then the measured server."""
    measured = (ladder_label(options.depth), options.depth, options.url)
    if options.proxy is not None or any((url or "").startswith("https:") for url in (options.url, options.oracle_url)):
        raise UsageError(
            "a ladder holds its requests at a barrier on sockets of its own, so it measures neither over https nor "
            "through a proxy; give an http URL without --proxy, or use bench strict"
        )
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


def take_oracle(
    directory: Path,
    server: ServerPlan,
    suite: Suite,
    ladder: "LadderOptions",
    *,
    depth_env: frozenset[str],
    model_sha256: str | None,
) -> bytes:
    """The MTP0 answers of another campaign, as oracle.json. Raises UsageError unless they fit this ladder's server.

    ``depth_env`` are variables that may differ with the depth; ``model_sha256`` is None where the model wasn't read.
    """
    name = directory.name or str(directory)
    try:
        evidence, answers = lent_answers(directory)
    except EvidenceError as error:
        raise UsageError(f"--oracle {name}: {error}") from None
    theirs = evidence.start.plan
    if theirs.depth != 0 or evidence.exit_code == 2:
        raise UsageError(f"--oracle {name} is no finished MTP0 ladder ({evidence.status}); give one that is")
    servers = [gate for attempt in evidence.attempts for gate in attempt.gates]
    if not all(gate.passed for gate in servers):
        failed = next(gate.name for gate in servers if not gate.passed)
        raise UsageError(f"--oracle {name} has a failed gate ({failed}), so its answers are no oracle; give another")
    if theirs.suite_sha256 != suite.sha256 or theirs.ladder is None or theirs.ladder.verbatim != ladder.verbatim:
        raise UsageError(f"--oracle {name} asked other prompts; give a ladder of the same suite and mode")
    base = theirs.servers[-1]
    for what, ours, other in (
        ("model", model_sha256, theirs.model_sha256 if model_sha256 is not None else None),
        ("image", server.image_id, base.image_id),
        ("tensor parallel", server.tensor_parallel, base.tensor_parallel),
        ("shape", _shape(server), _shape(base)),
        ("environment", _environment(server, depth_env), _environment(base, depth_env)),
        ("set of arguments", _arguments(server), _arguments(base)),
    ):
        if ours != other:
            said = f"{_beyond(other, ours)}, here {_beyond(ours, other)}"
            raise UsageError(f"--oracle {name} has another {what} ({said}); give one of the same")
    missing = [slot.id for slot in slots(suite, max(ladder.rungs), verbatim=ladder.verbatim) if slot.id not in answers]
    if missing:
        raise UsageError(f"--oracle {name} has no answer of {missing[0]}; give a ladder with as many slots")
    return dump_json({slot: list(ids) for slot, ids in sorted(answers.items())})


def _beyond(one: object, other: object) -> object:
    """What ``one`` has and ``other`` lacks, where both are lists; else ``one``."""
    if isinstance(one, list) and isinstance(other, list):
        return [word for word in one if word not in other]
    return one


def _environment(server: ServerPlan, depth_env: frozenset[str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(server.env.items()) if name not in depth_env]


def _arguments(server: ServerPlan) -> list[str]:
    """Without what a depth adds, and without the faults that a simulated server plays."""
    return undeclared(server.arguments, frozenset({SPECULATIVE_FLAG, "--fault"}))


def _shape(server: ServerPlan) -> list[str]:
    """The sizes among a server's arguments."""
    flags = ("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens")
    words = server.arguments
    return [words[place + 1] for place, word in enumerate(words[:-1]) if word in flags]
