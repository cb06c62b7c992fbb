"""The host's side of a campaign: kernel log around every server, probes after a fault, telemetry (contract 8)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import BenchError, LaunchError
from harness.evidence.schema import HostRecord
from harness.host.card_memory import WAIT_S, wait_for_cards
from harness.host.faults import Moment
from harness.host.flight import LogCheck, Seen, check_log, key, not_applicable, told
from harness.host.kernel_log import AGAIN, now
from harness.host.roots import Roots
from harness.host.sysfs import xe_devices
from harness.host.telemetry import Telemetry
from harness.lanes import Lane
from harness.launch.probed import ProbeResult
from harness.launch.server import ImageFacts
from harness.plan import ServerPlan

Note = Callable[[str], None]


@dataclass
class HostGuard:
    """Looks at the host around each server; ``watch`` makes it."""

    roots: Roots
    cards: list[str] | None
    """PCI addresses of the cards that the servers are given; None where they use none"""
    boot: LogCheck
    since: Moment
    """what the next check begins at"""
    probes: list[ProbeResult] = field(default_factory=list)
    lost: str = ""
    """of a log that is gone with its boot: why, until the next check has recorded it"""
    _seen: Seen = field(default_factory=set)

    def before(self) -> HostRecord:
        """The record of a server that is about to start."""
        check = self._check()
        return HostRecord(cards=self.cards, boot=self.boot, probes=self.probes, before=check)

    def memory(self, record: HostRecord, progress: Callable[[str], None]) -> HostRecord:
        """The same once the memory of its cards was free, or as long as was waited for that."""
        if not self.cards:
            return record
        check = wait_for_cards(self.cards, self.roots, progress, wait_s=WAIT_S)
        return record.model_copy(update={"memory": check})

    def after(self, record: HostRecord, telemetry: Telemetry | None) -> HostRecord:
        """The same once it has ended and its telemetry was stopped."""
        errors = [] if telemetry is None else list(telemetry.series().errors)
        return record.model_copy(update={"after": self._check(), "telemetry": errors})

    def telemetry(self, file: Path) -> Telemetry | None:
        """Not yet started; None where there is no card."""
        return None if not self.cards else Telemetry(self.roots.sys, file=file)

    def _check(self) -> LogCheck:
        if self.boot.state == "not applicable":
            return self.boot
        here = now(self.roots.proc).boot_id
        again = here not in ("", self.since.boot_id)
        # Every line of a later boot came after what was looked at in an earlier one.
        check = check_log(self.roots, None if again else self.since, known=self._seen)
        lost = AGAIN if again else self.lost
        self.lost = ""
        if check.at is not None and check.at.boot_id == here:
            self.since = check.at
        if not lost:
            return check
        return check.model_copy(update={"state": "unknown", "why": "; ".join(filter(None, (lost, check.why)))})


def cards_of(lane: Lane, plan: ServerPlan, roots: Roots) -> list[str] | None:
    """Addresses of the cards in the plan's mask, an index in the order of addresses; None where none is used."""
    mask = plan.env.get(lane.card_env) if lane.card_env is not None else None
    if mask is None:
        return None
    try:
        known = list(xe_devices(roots.sys))
    except OSError:
        return []
    return [known[int(index)] for index in mask.split(",") if int(index) < len(known)]


def watch(
    lane: Lane,
    plan: ServerPlan,
    image: ImageFacts | None,
    roots: Roots,
    note: Note,
    *,
    campaign: str,
    begun: Moment | None = None,
) -> HostGuard:
    """Look at the boot, and refuse one with a fault unless every probe passes. ``begun`` is of a resumed campaign.

    Raises BenchError in one sentence; nothing was started then but probes.
    """
    cards = cards_of(lane, plan, roots)
    moment = now(roots.proc)
    since, lost = moment if begun is None else begun, ""
    if begun is not None and begun.boot_id != moment.boot_id:
        since, lost = moment, f"between the runs: {AGAIN}"
    if plan.engine == "attach":
        why = "the server was started by somebody else, maybe on another host"
        unread = _none(lane) if cards is None else LogCheck(state="unknown", why=why)
        return HostGuard(roots, None, unread, since, lost=lost)
    if cards is None:
        return HostGuard(roots, None, _none(lane), since)
    boot = check_log(roots, None)
    guard = HostGuard(roots, cards, boot, since, lost=lost)
    if lost:
        note(f"kernel log between the runs: unknown ({AGAIN})")
    # What the log said before the first server isn't this campaign's; what came since an interrupted one began is.
    guard._seen.update(map(key, boot.faults))
    if begun is not None:
        guard._seen -= set(map(key, check_log(roots, begun).faults))
    if boot.faults:
        guard.probes = _probe(lane, plan, image, boot, note, campaign, cards)
    return guard


def _none(lane: Lane) -> LogCheck:
    return not_applicable(f"launcher {lane.name} uses no card")


def _probe(
    lane: Lane,
    plan: ServerPlan,
    image: ImageFacts | None,
    boot: LogCheck,
    note: Note,
    campaign: str,
    cards: Sequence[str],
) -> list[ProbeResult]:
    count = len(boot.faults) + boot.more
    faults = "a fault" if count == 1 else f"{count} faults"
    what = f"this boot's kernel log has {faults} of the cards ({told(boot.faults)[0][:200]})"
    advice = "start the host again, then this campaign"
    if plan.engine != "docker" or image is None or lane.card_env is None:
        raise BenchError(f"{what}, and no probe can run without a container of an image; {advice}")
    from harness.launch.docker import connect
    from harness.launch.probes import card_probes, run_probe

    note(f"{what}: the cards are probed before anything is started")
    try:
        probes = card_probes(plan, lane.card_env, image_env=image.env, cards=cards)
        client = connect()
    except LaunchError as error:
        raise BenchError(f"{what}, and no probe can run ({error})") from None
    found = []
    for probe in probes:
        note(f"probe: {probe.name}, at most {probe.call.timeout_s:g} s")
        found.append(run_probe(client, image.id, probe, campaign=campaign))
        if not found[-1].passed:
            raise BenchError(f"{what}, and the probe {probe.name} has not passed: {found[-1].why}; {advice}")
    note(f"{_passed(found)}; the campaign goes on, and its evidence says so")
    return found


def _passed(probes: Sequence[ProbeResult]) -> str:
    return ", ".join(f"{probe.name} passed" for probe in probes)
