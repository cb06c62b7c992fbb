"""Whether two campaigns measured one configuration: every difference by name, and which of them was declared.

A comparison of unlike things is the oldest way of being wrong (contract section 9, 1 and 9), so a difference is data:
it is the declared subject, or undeclared. What is unknown on a side is a difference too, never taken for equal.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import ServerRecord
from harness.plan import CACHE_VARIABLES, SPECULATIVE_FLAG, ServerPlan
from harness.publish.configuration import Configuration, configuration_of

VARIABLE = "env:"
SUBJECTS = ("image", "depth", "classpad", "tp", "host")
"""What --vary takes, beside env:NAME"""
HOST_FACTS = ("hostname", "cpu_model", "cpu_threads", "memory_bytes", "kernel", "boot_id", "cards")
"""Which every campaign has: absent is unknown"""
VOLATILE = frozenset({"memory_available_bytes"})
"""Readings of the moment, which say nothing of how a host is set up"""
VOLATILE_OF_CARDS = (
    "energy_joules",
    "temperature_package_c",
    "temperature_vram_c",
    "fan_rpm",
    "frequency_actual_mhz",
    "frequency_requested_mhz",
    "throttled",
    "throttle_reasons",
)
OF_THE_TOOL = frozenset({"python"})
"""Said as a note, not as the host's"""
SHAPE = ("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens")
OF_NO_SERVER = frozenset({*CACHE_VARIABLES, "HOME", "TMPDIR", "HOSTNAME"})
"""Variables that say where a server ran, not how"""
UNKNOWN, UNSET = "unknown", "unset"


@dataclass(frozen=True)
class Difference:
    """One thing in which A and B are unlike."""

    name: str
    a: str
    b: str
    vary: tuple[str, ...] = ()
    """the --vary names that declare it, the usual one first; empty: nothing may declare it"""

    def sentence(self) -> str:
        """``environment: VLLM_X is '1' in A and '0' in B``."""
        return f"{self.name} is {self.a} in A and {self.b} in B"


@dataclass(frozen=True)
class Likeness:
    """How far A and B are one configuration."""

    subject: list[Difference]
    """declared with --vary"""
    undeclared: list[Difference]
    idle: list[str]
    """declared with --vary, but equal: the knob reached neither or both"""
    notes: list[str]
    """versions of this tool and its dependencies, and what else may matter"""


def check_names(vary: Sequence[str]) -> None:
    """Raises UsageError for a name that --vary doesn't know."""
    for name in vary:
        if name not in SUBJECTS and not re.fullmatch(rf"{VARIABLE}\w+", name):
            raise UsageError(f"--vary {name} is nothing that can vary; use one of {', '.join(SUBJECTS)}, env:NAME")


def likeness(a: AnyEvidence, b: AnyEvidence, vary: Sequence[str]) -> Likeness:
    """Every difference of two campaigns, sorted into declared and not. Raises UsageError as ``check_names``."""
    check_names(vary)
    found = list(dict.fromkeys(_differences(a, b)))
    names = set(vary)
    subject = [item for item in found if names & set(item.vary)]
    reached = {name for item in subject for name in item.vary}
    return Likeness(
        subject=subject,
        undeclared=[item for item in found if not names & set(item.vary)],
        idle=[name for name in dict.fromkeys(vary) if name not in reached],
        notes=list(_notes(a, b)),
    )


def depth_pairs(a: AnyEvidence, b: AnyEvidence) -> list[tuple[int, int]]:
    """Which depth of A stands beside which of B: each that both have, and the measured ones where they differ."""
    depths = [list(dict.fromkeys(server.depth for server in item.start.plan.servers)) for item in (a, b)]
    pairs = [(depth, depth) for depth in depths[0] if depth in depths[1]]
    measured = (a.start.plan.depth, b.start.plan.depth)
    return pairs if measured in pairs else [*pairs, measured]


def _differences(a: AnyEvidence, b: AnyEvidence) -> Iterator[Difference]:
    one, two = configuration_of(a), configuration_of(b)
    yield from _of_campaigns(a, b, one, two)
    yield from _of_images(one, two)
    yield from _of_models(a, b, one, two)
    yield from _of_hosts(a, b)
    for left, right in depth_pairs(a, b):
        yield from _of_servers(a, b, left, right)


def _unlike(name: str, a: object, b: object, *vary: str) -> Iterator[Difference]:
    if a != b:
        yield Difference(name, str(a), str(b), vary)


def _of_campaigns(a: AnyEvidence, b: AnyEvidence, one: Configuration, two: Configuration) -> Iterator[Difference]:
    plans = (a.start.plan, b.start.plan)
    yield from _unlike("kind", one.kind, two.kind)
    yield from _unlike("measurement version", plans[0].measurement_version, plans[1].measurement_version)
    yield from _unlike("lane", one.lane, two.lane)
    yield from _unlike("engine", one.engine, two.engine)
    yield from _unlike("suite", f"{one.suite_id} {one.suite_sha256[:12]}", f"{two.suite_id} {two.suite_sha256[:12]}")
    yield from _unlike("MTP depth", one.depth, two.depth, "depth")
    yield from _unlike("tensor parallel", one.tensor_parallel, two.tensor_parallel, "tp")
    yield from _unlike("CLASSPAD", one.classpad, two.classpad, "classpad")
    ladders = [plan.ladder for plan in plans]
    if ladders[0] is not None and ladders[1] is not None:
        for name in ("verbatim", "stagger_ms", "workers", "direct", "shape", "ceiling"):
            yield from _unlike(f"ladder {name}", getattr(ladders[0], name), getattr(ladders[1], name))


def _of_images(one: Configuration, two: Configuration) -> Iterator[Difference]:
    """An engine without images is known by the version that its servers answered; an attached server by nothing."""
    ids = []
    for side in (one, two):
        by_version = side.vllm if side.engine != "attach" else None
        ids.append(side.image_id or (f"version {by_version}" if by_version else UNKNOWN))
    yield from _unlike("image", one.image, two.image, "image")
    if ids[0] != ids[1] or UNKNOWN in ids:
        yield Difference("image id", ids[0], ids[1], ("image",))
    yield from _unlike("server version", one.vllm or UNKNOWN, two.vllm or UNKNOWN, "image")


def _of_models(a: AnyEvidence, b: AnyEvidence, one: Configuration, two: Configuration) -> Iterator[Difference]:
    hashes = []
    for evidence, side in ((a, one), (b, two)):
        nothing = "none" if side.engine == "simulated" else UNKNOWN
        hashes.append(side.model_sha256 or evidence.start.plan.model_sha256 or nothing)
    if hashes[0] != hashes[1] or UNKNOWN in hashes:
        yield Difference("model sha256", hashes[0][:12], hashes[1][:12])


def _of_hosts(a: AnyEvidence, b: AnyEvidence) -> Iterator[Difference]:
    blind = _blind_facts(a, b)
    for name in (*HOST_FACTS, *_more_facts(a, b)):
        one, two = _fact(a, name), _fact(b, name)
        if one != two or (UNKNOWN in (one, two) and name not in blind):
            yield Difference(f"host {name}", one, two, ("host",))


def _fact(evidence: AnyEvidence, name: str) -> str:
    fact = evidence.start.host.facts.get(name)
    return UNKNOWN if fact is None else str(fact.value) if fact.state == "measured" else fact.state


def _more_facts(a: AnyEvidence, b: AnyEvidence) -> list[str]:
    """What else either side recorded of its host, of its cards and of Docker, but for readings of the moment."""
    names = dict.fromkeys([*a.start.host.facts, *b.start.host.facts])
    left_out = VOLATILE | OF_THE_TOOL | {*HOST_FACTS}
    return [
        name
        for name in names
        if name not in left_out and not (name.startswith("card ") and name.rpartition(" ")[2] in VOLATILE_OF_CARDS)
    ]


def _blind_facts(a: AnyEvidence, b: AnyEvidence) -> list[str]:
    """What neither side could read in one and the same boot: a note, because no other host is behind it.

    Firmware, for one, is told by what only root may read. Over two boots it may have changed, so there it is a
    difference.
    """
    boots = [evidence.start.host.value("boot_id") for evidence in (a, b)]
    if boots[0] is None or boots[0] != boots[1]:
        return []
    return [name for name in _more_facts(a, b) if _fact(a, name) == _fact(b, name) == UNKNOWN]


def _server(evidence: AnyEvidence, depth: int) -> tuple[ServerPlan | None, ServerRecord | None]:
    """The plan of the first server of a depth, and the record of the first that really ran at that depth."""
    plan = next((item for item in evidence.start.plan.servers if item.depth == depth), None)
    ran = [item.server for item in evidence.attempts if item.depth == depth and item.server and item.server.applied]
    return plan, ran[0] if ran else None


def _of_servers(a: AnyEvidence, b: AnyEvidence, left: int, right: int) -> Iterator[Difference]:
    """Environment as applied, arguments and container as asked for (which the ``fresh`` gate ties to what ran)."""
    (plan_a, ran_a), (plan_b, ran_b) = _server(a, left), _server(b, right)
    if plan_a is None or plan_b is None:
        return
    depth_env = {*a.start.depth_env, *b.start.depth_env} if left != right else set[str]()
    tp = plan_a.tensor_parallel != plan_b.tensor_parallel
    classpad = plan_a.classpad != plan_b.classpad
    one, two = _environment(plan_a, ran_a), _environment(plan_b, ran_b)
    brought = {name for ran in (ran_a, ran_b) if ran and ran.applied for name in ran.applied.image_env}
    for name in sorted(one.keys() | two.keys()):
        vary = [f"{VARIABLE}{name}"]
        if name in depth_env:
            vary.insert(0, "depth")
        elif name in brought and name not in plan_a.env and name not in plan_b.env:
            vary.insert(0, "image")
        elif tp and name.startswith(("CCL_", "FI_", "ZE_AFFINITY_MASK")):
            vary.insert(0, "tp")
        elif classpad and name.endswith("_CLASSPAD"):
            vary.insert(0, "classpad")
        yield from _unlike(f"environment: {name}", _value(one, name), _value(two, name), *vary)
    options = [_options(plan.arguments) for plan in (plan_a, plan_b)]
    for name in sorted(options[0].keys() | options[1].keys()):
        word = f"shape {name}" if name in SHAPE else f"argument {name}"
        of = {"--tensor-parallel-size": "tp", SPECULATIVE_FLAG: "depth" if left != right else ""}.get(name, "")
        said = [_value(side, name) for side in options]
        yield from _unlike(word, said[0], said[1], *([of] if of else []))
    boxes = [plan.container.model_dump() if plan.container is not None else {} for plan in (plan_a, plan_b)]
    for name in sorted(boxes[0].keys() | boxes[1].keys()):
        yield from _unlike(f"container {name}", boxes[0].get(name), boxes[1].get(name))


def _environment(plan: ServerPlan, ran: ServerRecord | None) -> dict[str, str]:
    env = ran.applied.env if ran is not None and ran.applied is not None else plan.env
    return {name: value for name, value in env.items() if name not in OF_NO_SERVER}


def _value(said: Mapping[str, str], name: str) -> str:
    return repr(said[name]) if name in said else UNSET


def _options(words: Sequence[str]) -> dict[str, str]:
    """Server arguments by option; the order of options says nothing, that of repeated ones does."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = f"{found[name]} {value}".strip() if name in found else value
        else:
            found[name] = f"{found.get(name, '')} {word}".strip()
    return found


def _notes(a: AnyEvidence, b: AnyEvidence) -> Iterator[str]:
    if a.campaign_id == b.campaign_id:
        yield "A and B are one campaign"
    yield from (f"host {name} is unknown in A and B" for name in _blind_facts(a, b))
    one, two = a.start.tool, b.start.tool
    commits = [tool.commit.value or tool.commit.state for tool in (one, two)]
    said: list[tuple[str, object, object]] = [
        ("bench version", one.version, two.version),
        ("bench commit", str(commits[0])[:12], str(commits[1])[:12]),
        ("python", a.start.host.value("python"), b.start.host.value("python")),
    ]
    for name in sorted(one.dependencies.keys() | two.dependencies.keys()):
        said.append((name, one.dependencies.get(name, "absent"), two.dependencies.get(name, "absent")))
    yield from (f"{name} is {left} in A and {right} in B" for name, left, right in said if left != right)
    plans = (a.start.plan.ladder, b.start.plan.ladder)
    if plans[0] is not None and plans[1] is not None:
        for name in ("rungs", "passes"):
            left, right = (getattr(plan, name) for plan in plans)
            if left != right:
                yield f"{name} are {left} in A and {right} in B: only what both have is compared"
