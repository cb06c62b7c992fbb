"""The ``host`` gate: no fault of the cards in the campaign's time, or "unknown" said aloud (contract 4 and 8)."""

from harness.evidence.schema import HostRecord, ServerRecord
from harness.host.facts import Host
from harness.host.flight import LogCheck, told
from harness.measure.gates import Gate

NAME = "host"


def is_fault(gate: Gate) -> bool:
    """Whether this is the host gate, and it failed: that counts also where a server ended early."""
    return gate.name == NAME and not gate.passed


def host_gate(label: str, host: Host, server: ServerRecord | None) -> Gate:
    """Of one attempt. Evidence from before the kernel log was read knows only whether there was a card."""
    record = server.host if server is not None else None
    if record is None:
        cards = host.facts.get("cards")
        absent = cards is not None and cards.state == "not applicable"
        note = f"not applicable ({cards.note})" if absent and cards is not None else "unknown (not read)"
        return Gate(name=NAME, subject=label, passed=True, failures=[], notes=[f"kernel log: {note}"])
    checks = [record.before, *([] if record.after is None else [record.after])]
    failures = [f"{label}: the kernel log has {said}" for check in checks for said in _faults(check)]
    return Gate(name=NAME, subject=label, passed=not failures, failures=failures, notes=_notes(record))


def _faults(check: LogCheck) -> list[str]:
    said = told(check.faults)
    return [*said, f"{check.more} more faults"] if check.more else said


def _notes(record: HostRecord) -> list[str]:
    before, after = record.before, record.after
    if before.state == "not applicable":
        return [f"kernel log: not applicable ({before.why})"]
    notes = []
    if record.boot.faults:
        count = len(record.boot.faults) + record.boot.more
        passed = ", ".join(probe.name for probe in record.probes if probe.passed) or "no probe"
        faults = "1 fault" if count == 1 else f"{count} faults"
        notes.append(f"kernel log: {faults} on this boot before the campaign; passed since: {passed}")
    for when, check in (("before the campaign", record.boot), ("before the server", before), ("while it ran", after)):
        if check is None:
            notes.append(f"kernel log: unknown (not read {when})")
        elif check.state == "unknown":
            notes.append(f"kernel log: unknown ({when}: {check.why})")
    if not notes or all("unknown" not in note for note in notes):
        notes.append(f"kernel log: read whole from {before.source}")
    return notes
