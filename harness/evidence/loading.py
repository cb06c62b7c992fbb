"""A campaign directory's journal and attempts, loaded and checked for shape; what they mean is derived elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from harness.errors import EvidenceError
from harness.evidence import journal, store
from harness.evidence.schema import AttemptStatus, ServerRecord, Start
from harness.host.telemetry import Sample, load_series
from harness.wire.capture import Capture, load_capture

MAX_LOG = 512 * 1024 * 1024
MAX_SERVER = 16 * 1024 * 1024
MAX_TELEMETRY = 512 * 1024 * 1024


@dataclass(frozen=True)
class AttemptFiles:
    """What an attempt's directory holds, loaded."""

    label: str
    directory: str
    status: AttemptStatus
    error: str
    capture: Capture | None
    server: ServerRecord | None
    log: bytes
    telemetry: list[Sample] | None = None
    """in order of time; None where it was not recorded"""


def ending(events: Sequence[journal.Event]) -> journal.Event | None:
    """The campaign's end; None while it runs, was killed, or was resumed and hasn't ended again."""
    last = next((event for event in reversed(events) if event.event in ("campaign-ended", "campaign-resumed")), None)
    return last if last is not None and last.event == "campaign-ended" else None


def load_start(events: Sequence[journal.Event]) -> Start:
    """The campaign's start from its journal. Raises EvidenceError."""
    try:
        start = Start.model_validate(events[0].start)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise EvidenceError(f"{journal.NAME}: {where}: {first['msg'].lower()}; get the original file") from None
    if start.plan.sha256() != start.plan_sha256:
        raise EvidenceError(f"{journal.NAME}: plan_sha256 isn't the hash of the plan; the plan was edited")
    return start


def load_attempts(directory: Path, events: Sequence[journal.Event]) -> list[AttemptFiles]:
    """Every attempt the journal names, in order; one without an end was interrupted."""
    found: dict[str, AttemptFiles] = {}
    for event in events:
        if event.event not in ("attempt-started", "attempt-ended"):
            continue
        if "/" in event.directory or event.directory in ("", ".", ".."):
            raise EvidenceError(
                f"{journal.NAME} names the attempt directory {event.directory!r}; get the original file"
            )
        ended = event.event == "attempt-ended"
        if ended and event.directory not in found:
            raise EvidenceError(f"{journal.NAME} ends attempt {event.directory}, which never started")
        try:
            status = AttemptStatus(event.status) if ended else AttemptStatus.INTERRUPTED
        except ValueError:
            raise EvidenceError(f"{journal.NAME} has an attempt status {event.status!r}; get the original") from None
        found[event.directory] = _load_attempt(directory, event, status)
    return list(found.values())


def _load_attempt(directory: Path, event: journal.Event, status: AttemptStatus) -> AttemptFiles:
    folder = directory / store.ATTEMPTS / event.directory
    capture_path, server_path, log_path = folder / store.CAPTURE, folder / store.SERVER, folder / store.LOG
    for path in (folder, capture_path, server_path, log_path, folder / store.TELEMETRY):
        if path.is_symlink() or (path.exists() and path.is_file() == (path == folder)):
            raise EvidenceError(
                f"attempts/{path.relative_to(folder.parent).as_posix()} is a link or a device; a campaign holds "
                "regular files only, remove it"
            )
    capture: Capture | None = None
    if capture_path.exists() and not (status is AttemptStatus.INTERRUPTED and capture_path.stat().st_size == 0):
        capture = load_capture(capture_path)
        if capture.header.get("label") != event.label:
            raise EvidenceError(
                f"{event.directory}/{store.CAPTURE} is the capture of {capture.header.get('label')}; get the original"
            )
    server: ServerRecord | None = None
    if server_path.exists():
        try:
            server = ServerRecord.model_validate(store.read_json(server_path, MAX_SERVER))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise EvidenceError(f"{event.directory}/{store.SERVER}: {where}: {first['msg'].lower()}") from None
        if server.label != event.label:
            raise EvidenceError(f"{event.directory}/{store.SERVER} is the record of {server.label}; get the original")
    if status is AttemptStatus.COMPLETE and (capture is None or server is None or not log_path.exists()):
        raise EvidenceError(f"attempt {event.directory} ended complete, but a file of it is missing; get the original")
    log = b""
    if log_path.exists():
        if log_path.stat().st_size > MAX_LOG:
            raise EvidenceError(f"{event.directory}/{store.LOG} is larger than {MAX_LOG >> 20} MiB")
        log = log_path.read_bytes()
    telemetry = _load_telemetry(folder / store.TELEMETRY, event.directory)
    return AttemptFiles(event.label, event.directory, status, event.error, capture, server, log, telemetry)


def _load_telemetry(path: Path, directory: str) -> list[Sample] | None:
    if not path.exists():
        return None
    if path.stat().st_size > MAX_TELEMETRY:
        raise EvidenceError(f"{directory}/{store.TELEMETRY} is larger than {MAX_TELEMETRY >> 20} MiB")
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            return load_series(lines)
    except EvidenceError as error:
        raise EvidenceError(f"{directory}/{store.TELEMETRY}: {error}") from None
