"""Re-derive a campaign from its captured bytes and name the first thing that differs: nothing stored is trusted."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import BenchError
from harness.evidence import journal, store
from harness.evidence.crosscheck import cross_checks
from harness.evidence.derive import derive
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.evidence.last_write import MOMENTS, WRITTEN_AFTER, last_write_failed
from harness.evidence.loading import load_attempts, load_start
from harness.evidence.prompts import PROMPTS, TEXTS
from harness.evidence.schema import Evidence, Status
from harness.screen import one_line
from harness.suites import load_suite

SMALL_JSON = 16 * 1024 * 1024
"""Bytes; a manifest or a server record that is larger is none"""


@dataclass
class Verification:
    """What was found. ``problems`` empty means that every number and gate follows from the captured bytes."""

    problems: list[str] = field(default_factory=list)
    evidence: AnyEvidence | None = None
    """as derived now; None when it can't be derived"""
    files: int = 0
    rows: int = 0
    ids: int = 0
    gates: int = 0
    cut_off: bool = False
    """killed between its end in the journal and its last manifest: judged as not ended"""

    @property
    def ok(self) -> bool:
        """Nothing differs."""
        return not self.problems


def verify(directory: Path) -> Verification:
    """Check the manifest, the suite, and everything in evidence.json. Never raises for what a directory holds.

    A campaign that was killed (no end in its journal) is checked as far as its last written evidence goes. So is one
    that was killed between its end in the journal and its last manifest: it counts as not ended.
    """
    result = Verification()
    try:
        store.campaign_files(directory)  # first: nothing is opened that isn't a regular file
        events = journal.load(directory)
        ended = events[-1].event == "campaign-ended"
        _judge(directory, events, events, result, ended=ended)
        if ended and result.problems and len(events) > 1 and _was_cut_off(directory):
            result.problems, result.cut_off = [], True
            _judge(directory, events, events[:-1], result, ended=False)
    except BenchError as error:
        result.problems.append(str(error))
    except MemoryError:
        result.problems.append("the records need more memory than there is; they are no evidence of ours")
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # A record that loads and makes no sense; which file it is stands in the manifest's problems before this one.
        result.problems.append(f"the records can't be judged ({type(error).__name__}: {error}); get the original files")
    result.problems = [one_line(problem) for problem in result.problems]
    return result


def _was_cut_off(directory: Path) -> bool:
    try:
        return last_write_failed(directory)
    except (BenchError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return False


def _judge(
    directory: Path, written: list[journal.Event], events: list[journal.Event], result: Verification, *, ended: bool
) -> None:
    """``events``: those that are judged; ``written``: all of them, up to any of which evidence may stand there."""
    result.problems += _check_manifest(directory, result, _unfinished(events), ended=ended)
    result.problems += _check_suite(directory, events)
    result.problems += _check_texts(directory, events)
    files = load_attempts(directory, events)
    derived = result.evidence = derive(directory, events, files)
    result.rows, result.ids = _counted(derived)
    result.gates = len(derived.gates) + sum(len(attempt.gates) for attempt in derived.attempts)
    result.problems += _check_evidence(directory, written, derived, ended=ended)
    result.problems += cross_checks(load_start(events), events, files)


def _counted(derived: AnyEvidence) -> tuple[int, int]:
    """(measured answers, their token ids), probes among them."""
    if isinstance(derived, LadderEvidence):
        requests = [item for attempt in derived.attempts for batch in attempt.batches for item in batch.requests]
        return len(requests), sum(item.tokens for item in requests)
    rows = [row for attempt in derived.attempts for row in attempt.rows]
    if isinstance(derived, Evidence):
        rows += [row for attempt in derived.attempts for row in attempt.probes]
    return len(rows), sum(len(row.token_ids) for row in rows)


def _unfinished(events: list[journal.Event]) -> set[str]:
    """Attempt directories without an end: a kill left them, and the manifest may not know them."""
    started = {event.directory for event in events if event.event == "attempt-started"}
    return started - {event.directory for event in events if event.event == "attempt-ended"}


def _check_manifest(directory: Path, result: Verification, unfinished: set[str], *, ended: bool) -> list[str]:
    path = directory / store.MANIFEST
    if not path.exists():
        return ["manifest.json is missing, so no file can be checked"] if ended else []
    raw = store.read_json(path, SMALL_JSON)
    present = store.build_manifest(directory)
    result.files = len(present["files"])
    recorded = raw.get("files") if isinstance(raw, dict) else None
    if not isinstance(recorded, dict) or raw.get("schema") != present["schema"]:
        return ["manifest.json is no manifest of this version; get the original file"]
    problems = []
    for name, entry in recorded.items():
        if name not in present["files"]:
            problems.append(f"{name} is in the manifest and missing from the directory")
        elif present["files"][name] != entry and not (not ended and _has_grown(directory, name, entry)):
            problems.append(f"{name} isn't the file that was recorded: its sha256 or size differs from the manifest's")
    for name in present["files"]:
        parts = name.split("/")
        late = not ended and (name in (journal.NAME, store.EVIDENCE, PROMPTS) or parts[0] == store.ATTEMPTS)
        if name not in recorded and not (late or (len(parts) > 1 and parts[1] in unfinished)):
            problems.append(f"{name} is in the directory and not in the manifest")
    if not problems and ended and path.read_bytes() != store.dump_json(present):
        problems.append("manifest.json isn't the file that was written: its bytes differ")
    return problems


def _has_grown(directory: Path, name: str, entry: Any) -> bool:
    """Whether a file of an unfinished campaign differs from the manifest as it may: a journal only gets longer."""
    if name != journal.NAME:
        return name == store.EVIDENCE  # which is compared with what the captures give
    try:
        size = int(entry["bytes"])
        return bool(hashlib.sha256((directory / name).read_bytes()[:size]).hexdigest() == entry["sha256"])
    except (KeyError, TypeError, ValueError):
        return False


def _check_suite(directory: Path, events: list[journal.Event]) -> list[str]:
    start = load_start(events)
    if start.plan.kind in ("depth", "probe"):
        return []
    path = directory / store.SUITE
    if not path.is_file():
        return [f"{store.SUITE} is missing, so the prompts can't be checked"]
    if hashlib.sha256(path.read_bytes()).hexdigest() != start.suite.sha256 or start.suite.sha256 != (
        start.plan.suite_sha256
    ):
        return [f"{store.SUITE} isn't the suite that was sent: its sha256 differs from the plan's"]
    suite = load_suite(str(path.resolve()), need_classes=start.plan.kind != "ladder")
    mine = [(prompt.id, prompt.prompt_class, prompt.sha256) for prompt in suite.prompts]
    if mine != [(item.id, item.prompt_class, item.sha256) for item in start.suite.prompts]:
        return [f"{journal.NAME} lists other prompts than {store.SUITE} holds"]
    return []


def _check_texts(directory: Path, events: list[journal.Event]) -> list[str]:
    """The texts that prompts of token ids were made of; their ids are checked where the answers are derived."""
    start = load_start(events)
    context = start.plan.context
    if context is None:
        return []
    problems = []
    for name, sha256 in context.texts.items():
        if name != Path(name).name:
            problems.append(f"{journal.NAME} names a text {_show(name)}, which leads out of {TEXTS}/")
            continue
        path = directory / TEXTS / f"{name}.txt"
        if not path.is_file():
            problems.append(f"{TEXTS}/{path.name} is missing, so the prompts can't be checked")
        elif store.sha256_file(path) != sha256:
            problems.append(
                f"{TEXTS}/{path.name} isn't the text that was asked with: its sha256 differs from the plan's"
            )
    if start.plan.kind != "strict" and (
        start.suite.sha256 != start.plan.suite_sha256
        or context.texts != {item.id: item.sha256 for item in start.suite.prompts}
    ):
        problems.append(f"{journal.NAME} lists other texts than the plan has")
    return problems


def _check_evidence(directory: Path, events: list[journal.Event], derived: AnyEvidence, *, ended: bool) -> list[str]:
    path = directory / store.EVIDENCE
    if not path.exists():
        return [f"{store.EVIDENCE} is missing; the captures are there, run --resume"] if ended else []
    fresh = _dumped(derived)
    written = store.dump_json(fresh)
    if path.stat().st_size == len(written) and path.read_bytes() == written:
        return []
    # The parser needs many times the file's size, so a file far larger than what is derived isn't parsed.
    stored = store.read_json(path, max(SMALL_JSON, 4 * len(written)))
    if not isinstance(stored, dict) or stored.get("schema") != fresh["schema"]:
        schema = stored.get("schema") if isinstance(stored, dict) else stored
        return [f"{store.EVIDENCE} has schema {_show(schema)}, this version reads {fresh['schema']}"]
    if ended:
        found = first_difference(stored, fresh, "")
        return [] if found is None else [f"{store.EVIDENCE}: {found}"]
    # What a killed run left is as old as the end of an attempt or of a run before it; see last_write.MOMENTS.
    ends = [number for number, event in enumerate(events, 1) if event.event in WRITTEN_AFTER]
    moments, found = ends[-MOMENTS - 1 :][::-1], None
    for moment in moments:
        found_then = first_difference(stored, _dumped(derive(directory, events[:moment])), "")
        if found_then is None:
            return []
        found = found or found_then
    return [f"{store.EVIDENCE}: {found or f'it is there, and no attempt of {journal.NAME} has ended'}"]


def _dumped(evidence: AnyEvidence) -> dict[str, Any]:
    return evidence.model_dump(mode="json", by_alias=True)


def first_difference(stored: Any, derived: Any, where: str) -> str | None:
    """The first path at which two JSON values differ, as a sentence; None when they are equal."""
    if isinstance(stored, dict) and isinstance(derived, dict):
        for key in [*derived, *(key for key in stored if key not in derived)]:
            here = f"{where}.{key}" if where else str(key)
            if key not in stored:
                return f"{here} is missing, the captured bytes give {_show(derived[key])}"
            if key not in derived:
                return f"{here} is {_show(stored[key])}, which no version of ours writes"
            found = first_difference(stored[key], derived[key], here)
            if found is not None:
                return found
        return None
    if isinstance(stored, list) and isinstance(derived, list):
        for index, (left, right) in enumerate(zip(stored, derived, strict=False)):
            found = first_difference(left, right, f"{where}[{index}]")
            if found is not None:
                return found
        if len(stored) != len(derived):
            return f"{where} has {len(stored)} entries, the captured bytes give {len(derived)}"
        return None
    if type(stored) is not type(derived) or stored != derived:
        return f"{where} is {_show(stored)}, the captured bytes give {_show(derived)}"
    return None


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:120] + "…"


def headline(result: Verification) -> str:
    """One sentence for a person."""
    evidence = result.evidence
    if not result.ok or evidence is None:
        return f"does not verify: {result.problems[0]}" if result.problems else "does not verify"
    if result.cut_off:
        return "verifies as far as it goes: it was cut off while its last evidence was written, --resume completes it"
    if evidence.status in (Status.INTERRUPTED, Status.STARTED) and evidence.ended_at is None:
        return f"verifies as far as it goes: {evidence.conclusion}"
    return f"verifies: {evidence.status}, {evidence.conclusion.splitlines()[0]}"
