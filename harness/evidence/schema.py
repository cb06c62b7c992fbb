"""What stands in evidence.json. Every value in it follows from the journal, the captures and the server records."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from harness.host.card_memory import MemoryCheck
from harness.host.facts import Host, Tool
from harness.host.faults import Moment
from harness.host.flight import LogCheck
from harness.launch.probed import ProbeResult
from harness.launch.readiness import Readiness
from harness.launch.resolved import Resolved
from harness.launch.server import Applied, ImageFacts, StopRecord, Within
from harness.measure.gates import Gate
from harness.measure.identity import Divergence
from harness.measure.metrics import Acceptance
from harness.measure.power import CardPower, Power
from harness.measure.rows import Row
from harness.measure.selftest import SelfTest
from harness.models import FileEntry
from harness.plan import CampaignPlan, ServerPlan
from harness.workloads.canaries import CanaryVerdict

SCHEMA = "b70-bench.evidence/1"


class Status(StrEnum):
    """Of a campaign (contract section 4)."""

    STARTED = "started"
    PASSED = "passed"
    WITHHELD = "withheld"
    """speeds are recorded, but a gate failed: no number may be published"""
    REJECTED = "rejected"
    """G1 failed: the base isn't repeat-exact"""
    INVALID = "invalid"
    """an attempt has an invalid row, or a server failed: no verdict"""
    INTERRUPTED = "interrupted"


class AttemptStatus(StrEnum):
    """Of one attempt."""

    COMPLETE = "complete"
    """the whole suite and both rounds of canaries were sent, and the server was stopped"""
    INVALID = "invalid"
    """ended early by the server or the host"""
    INTERRUPTED = "interrupted"


class Model(BaseModel):
    """Base of everything in evidence.json."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, protected_namespaces=(), ser_json_inf_nan="strings"
    )


def as_recorded(dumped: dict[str, Any], *later: str) -> dict[str, Any]:
    """Without fields of ``later`` versions that hold nothing: evidence from before them must keep its bytes."""
    return {name: value for name, value in dumped.items() if name not in later or value not in (None, [])}


class CacheListing(Model):
    """What one server's cache directory held."""

    entries: int
    """files in all six caches"""
    bytes: int
    folders: dict[str, int]
    """files by cache folder"""


class HostRecord(Model):
    """The host before, while and after one server ran (contract section 8)."""

    cards: list[str] | None
    """PCI addresses of the cards it was given, by their index in the order of addresses; null: it uses none"""
    boot: LogCheck
    """the whole boot, before the first server of this run of the command"""
    probes: list[ProbeResult]
    """why it went on although this boot has faults; empty where it has none"""
    before: LogCheck
    """since the campaign began, or since the check after the server before this one"""
    after: LogCheck | None = None
    """since ``before``; null when the harness was killed"""
    telemetry: list[str] = []
    """what failed while telemetry was written, one sentence each"""
    memory: MemoryCheck | None = None
    """of its cards before it started; null where it uses none, and in records from before it was read"""

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_recorded(handler(self), "memory")


class LogMark(Model):
    """How far the copy of a server's log was: at the first measured request, and at the end of each stage."""

    stage: str
    """which ended there; empty for the first one"""
    lines: int
    """whole lines of server.log by then"""
    caught_up: bool
    """the server's own line for the scrape just before stood in the copy, so that nothing from before was missing"""


class ServerRecord(Model):
    """server.json of an attempt: one server's life, written as it happens; paths by role, secrets dropped by name."""

    schema_version: Literal["b70-bench.server/1"] = Field("b70-bench.server/1", alias="schema")
    label: str
    requested: ServerPlan
    image: ImageFacts | None = None
    applied: Applied | None = None
    inspect: dict[str, Any] = {}
    """the engine's own last description of the server"""
    differences: list[str] = []
    """requested against applied, one sentence each; empty when equal"""
    within: Within | None = None
    """what its process was given, read when it was ready; null in records from before it was read"""
    cache_before: CacheListing | None = None
    """null where the engine has no cache directory of ours (attach)"""
    cache_after: CacheListing | None = None
    readiness: Readiness | None = None
    stop: StopRecord | None = None
    error: str = ""
    """why the attempt ended early; empty when it didn't"""
    host: HostRecord | None = None
    """null in records from before it was kept"""
    log_marks: list[LogMark] = []
    """in order; empty in records from before they were kept"""

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_recorded(handler(self), "host", "within", "log_marks")


class ModelFacts(Model):
    """The weights that were served."""

    repository: str | None
    """as the launcher file names it, else the manifest"""
    revision: str | None
    files: list[FileEntry]
    sha256: str
    """over the sorted list of (name, size, sha256)"""
    manifest_sha256: str | None = None
    """of the manifest file that every file was checked against before the first server; null when there was none"""

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the manifest where there was none: evidence from before manifests must keep its bytes."""
        dumped: dict[str, Any] = handler(self)
        if dumped.get("manifest_sha256", "") is None:
            del dumped["manifest_sha256"]
        return dumped


class SuitePrompt(Model):
    """One prompt's place in the suite, without its text."""

    id: str
    prompt_class: str
    sha256: str
    """of the prompt's UTF-8 bytes"""


class SuiteFacts(Model):
    """Which suite was sent; its bytes stand in suite.json of the campaign."""

    id: str
    version: int
    sha256: str
    """of the file's bytes"""
    prompts: list[SuitePrompt]


class Start(Model):
    """Everything known when a campaign starts; the first line of the journal."""

    campaign_id: str
    lane_title: str
    simulated: bool
    """true: nothing in this campaign is a measurement of a card"""
    plan: CampaignPlan
    plan_sha256: str
    suite: SuiteFacts
    image: ImageFacts | None
    model: ModelFacts | None
    host: Host
    tool: Tool
    command: str
    """the command line, paths reduced to roles"""
    depth_env: list[str]
    """variables that may differ between a depth-D server and its oracle"""
    unknown: list[str] = []
    """what this campaign could not find out, one sentence each"""
    self_test: SelfTest | None = None
    """of this machine's client, before the first server of a ladder; null in a strict campaign"""
    moment: Moment | None = None
    """when it started, on both clocks of its boot; null in evidence from before it was kept"""

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_recorded(handler(self), "moment")


class CensusLine(Model):
    """One shape of the CLASSPAD census (contract section 2); with two cards each worker says its own."""

    shape: str
    """``<N>x<K>``"""
    dtype: str
    verdict: str
    """``classpad``, or a fallback, which fails the proof"""
    line: str


class ServerProof(Model):
    """What a server's own words say of it; what of it contradicts the plan stands in the ``fresh`` gate."""

    resolved: Resolved
    compiled: int
    """lines of the log that tell of a compilation"""
    loaded: int
    """lines that tell of a compiled graph in a cache, taken or not"""
    compilation: Literal["fresh", "not fresh", "not applicable", "unknown"]
    classpad: list[CensusLine]
    """every line of the census, in order"""


class ClientFacts(Model):
    """The client's own truth over the suite's reads (contract section 6)."""

    timestamp_source: str
    scheduling: str
    """of the reading thread: SCHED_RR where the system allows it, else normal"""
    reads: int
    kernel_stamped: int
    """reads with a kernel time"""
    lag_p50_us: float | None
    lag_p99_us: float | None
    """maximum when there are fewer than 100 reads"""
    lag_max_us: float | None
    cpu_s: float
    """CPU seconds of the reading thread while streams were open"""
    wall_s: float
    cpu_share: float | None
    cpu_us_per_read: float | None
    clock_step_max_ms: float
    gap_between_requests_max_ms: float | None
    """longest pause between the end of one suite request and the start of the next"""


class PowerUse(Model):
    """What the cards drew and did over the measured window, from telemetry.jsonl (contract section 8)."""

    power: Power
    """of the cards this server was given"""
    other_cards: list[CardPower]
    """of this host that it wasn't given"""
    notes: list[str]
    """what is unknown, one sentence each"""


class CompileLines(Model):
    """Lines of server.log that tell of a just-in-time compilation, by when they came (harness.launch.jit)."""

    during: dict[str, int]
    """by stage of what was measured: suite, prompts, sequential, pass 1, …; a stage without any is left out"""
    outside: int
    """before the first measured request, or after the last answer"""
    unknown: int
    """of which that can't be told, because the copy of the log was not known to be complete at a mark"""
    lines: list[str]
    """the first ones of ``during``, shortened"""
    note: str = ""
    """why nothing is known; empty where something is"""


class StreamCanary(Model):
    """One prompt of the suite once more, after it and not as a stream: --stream-canary."""

    prompt_id: str
    """the first one whose stream ended by itself, else the first"""
    exact: bool
    """the same ids as its stream, whole arrays"""
    tokens: int | None
    """ids of the answer; null when it has none"""
    divergence: Divergence | None
    """the stream's ids are the left ones"""
    problem: str
    """why it can't be compared, or isn't the request that was to be sent; empty when it was"""


class Attempt(Model):
    """One suite with its canaries on one server."""

    label: str
    directory: str
    """under attempts/"""
    status: AttemptStatus
    error: str
    depth: int
    server: ServerRecord | None
    rows: list[Row]
    canaries_before: CanaryVerdict | None
    canaries_after: CanaryVerdict | None
    acceptance: Acceptance | None
    """between the first and the last suite request; null at MTP0 or when /metrics didn't say"""
    client: ClientFacts | None
    class_medians: dict[str, float]
    """tokens/s by prompt class, of tok_s_1_100; empty when a row is invalid or the attempt did not complete"""
    class_balanced_median: float | None
    """tokens/s; null when a row is invalid or the attempt did not complete"""
    class_balanced_median_burst_exact: float | None
    """tokens/s, of tok_s_burst_exact; ours"""
    median_ttft_ms: float | None
    """plain median of the prompts, milliseconds; null when a row is invalid or the attempt did not complete"""
    ids_per_chunk: float | None
    """over all rows"""
    probes: list[Row] = []
    """boundary probes after the suite (contract section 7); they enter no rate"""
    power_use: PowerUse | None = None
    """from the first suite request to the end of the last; null where telemetry was not recorded"""
    proof: ServerProof | None = None
    """null in evidence from before it was derived, and where the server never became ready"""
    compile_lines: CompileLines | None = None
    """null where no mark of the log was recorded"""
    stream_canary: StreamCanary | None = None
    """null where it was not asked"""
    gates: list[Gate]

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_recorded(handler(self), "probes", "power_use", "proof", "compile_lines", "stream_canary")


class Pair(Model):
    """Two attempts of one configuration (contract section 3)."""

    name: str
    """mtp0, mtp3, …"""
    depth: int
    a: float | None
    """class-balanced median of server a, tokens/s"""
    b: float | None
    center: float | None
    """arithmetic mean of a and b, tokens/s"""
    spread: float | None
    """|a - b| / center"""
    burst_exact_center: float | None
    """the same of tok_s_burst_exact, tokens/s"""
    ttft_a_ms: float | None
    ttft_b_ms: float | None
    acceptance_rate: float | None
    """mean of both servers, from 0 to 1"""
    mean_acceptance_length: float | None
    """mean of both servers"""
    notes: list[str]


class Evidence(Model):
    """evidence.json of a campaign."""

    schema_version: Literal["b70-bench.evidence/1"] = Field("b70-bench.evidence/1", alias="schema")
    campaign_id: str
    kind: Literal["strict"]
    status: Status
    exit_code: int
    conclusion: str
    """one sentence: the number, or why there is none"""
    simulated: bool
    withheld: bool
    """true: no number of this campaign may be published"""
    reasons: list[str]
    """every failure of every gate, and every error, one sentence each"""
    start: Start
    started_at: str
    """UTC"""
    ended_at: str | None
    """UTC; null while it runs or when it was killed"""
    resumed: list[str]
    """UTC times at which it was resumed"""
    pairs: list[Pair]
    gates: list[Gate]
    """gates between attempts: G1, G2, G3, and probes where they were asked for"""
    attempts: list[Attempt]
    unknown: list[str]
    """what could not be found out, one sentence each; unknown is never clean"""
