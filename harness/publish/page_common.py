"""What a strict campaign and a ladder say alike: gates, servers, client, host, unknowns, how to check it all."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.evidence.compilations import compile_notes
from harness.evidence.context_schema import ContextAttempt
from harness.evidence.ladder_schema import AnyEvidence, LadderAttempt, LadderEvidence
from harness.evidence.schema import Attempt, ServerRecord, Start
from harness.host.facts import Fact
from harness.measure.gates import Gate
from harness.publish.page_view import (
    Block,
    Cell,
    Chip,
    Code,
    Command,
    Facts,
    Fold,
    Numbers,
    Part,
    Row,
    Section,
    Sentences,
    Tone,
    byte_words,
    share,
    table,
)

STATUS_TONES: Mapping[str, Tone] = {"passed": "good", "withheld": "bad", "rejected": "bad", "invalid": "bad"}
MANY = 8
"""Sentences that are shown before the rest is folded away"""


def verdict(gate: Gate) -> tuple[Part, ...]:
    """``G1`` with its verdict."""
    return (Chip("passed", "good") if gate.passed else Chip("failed", "bad"),)


def counted(n: Numbers, path: str, gate: Gate) -> Cell:
    """``12/12``, or a dash where nothing is counted."""
    if gate.exact is None or gate.total is None:
        return "–"
    return (n(f"{path}.exact", gate.exact, 0), "/", n(f"{path}.total", gate.total, 0))


def sentences(items: Sequence[str], tone: Tone, more: str) -> tuple[Block, ...]:
    """All of them, the first few unfolded."""
    if len(items) <= MANY:
        return (Sentences(tuple(items), tone),) if items else ()
    rest = Fold(f"{len(items) - MANY} more {more}", (Sentences(tuple(items[MANY:]), tone),))
    return (Sentences(tuple(items[:MANY]), tone), rest)


def gates_section(evidence: AnyEvidence, n: Numbers) -> Section:
    """Gates between servers with their counts, gates of each server, every failure, every note."""
    attempts: Sequence[Attempt | LadderAttempt | ContextAttempt] = evidence.attempts
    rows = [
        Row(
            (gate.name, gate.subject, verdict(gate), counted(n, f"gates.{at}", gate)), "plain" if gate.passed else "bad"
        )
        for at, gate in enumerate(evidence.gates)
    ]
    blocks: list[Block] = []
    if rows:
        blocks.append(table(("gate", "compares", "verdict", "equal"), rows, "Between servers", left=(0, 1, 2)))
    elif isinstance(evidence, LadderEvidence) and evidence.oracle.source == "own":
        blocks.append(
            Sentences(("At MTP0 the server is its own oracle: there is no other server to compare.",), "muted")
        )
    else:
        blocks.append(Sentences(("No gate between servers: not enough of them ran to the end.",), "muted"))
    names = list(dict.fromkeys(gate.name for attempt in attempts for gate in attempt.gates))
    of_servers = []
    for attempt in attempts:
        found = {gate.name: gate for gate in attempt.gates}
        cells = tuple(verdict(found[name]) if name in found else "–" for name in names)
        of_servers.append(Row((attempt.directory, Chip(attempt.status, _attempt_tone(attempt.status)), *cells)))
    if of_servers:
        every = tuple(range(len(names) + 2))
        blocks.append(table(("server", "attempt", *names), of_servers, "Of each server", left=every))
    blocks += sentences(evidence.reasons, "bad", "reasons")
    gates = [*evidence.gates, *(gate for attempt in attempts for gate in attempt.gates)]
    notes = [f"{gate.name}, {gate.subject}: {note}" for gate in gates for note in gate.notes]
    if notes:
        blocks.append(Fold(f"{len(notes)} notes that leave the verdicts alone", (Sentences(tuple(notes), "muted"),)))
    lead = (
        "A gate is re-derived from the captured answers each time this page is made. Equal means whole arrays of ids."
    )
    return Section("gates", "Gates", tuple(blocks), lead)


def _attempt_tone(status: str) -> Tone:
    return "good" if status == "complete" else "bad"


def environment_rows(server: ServerRecord) -> tuple[Row, ...]:
    """Requested against applied, both directions, every variable."""
    applied = server.applied
    if applied is None:
        return ()
    asked, runs, rows = server.requested.env, applied.env, []
    for name in sorted({*asked, *runs}):
        left, right = asked.get(name), runs.get(name)
        if left is not None and left == right:
            said, tone = Chip("as asked", "good"), "plain"
        elif left is None and applied.image_env.get(name) == right:
            said, tone = Chip("image's own", "muted"), "muted"
        elif left is None:
            said, tone = Chip("not asked for", "bad"), "bad"
        elif right is None:
            said, tone = Chip("never arrived", "bad"), "bad"
        else:
            said, tone = Chip("differs", "bad"), "bad"
        rows.append(Row((Code(name), _or_dash(left), _or_dash(right), said), _tone(tone)))
    return tuple(rows)


def _tone(word: str) -> Tone:
    tones: Mapping[str, Tone] = {"bad": "bad", "muted": "muted"}
    return tones.get(word, "plain")


def _or_dash(value: str | None) -> Cell:
    return "–" if value is None else Code(value)


def servers_section(evidence: AnyEvidence) -> Section:
    """Requested against applied of every server; servers with the same table share it."""
    groups: dict[tuple[tuple[Row, ...], tuple[str, ...], tuple[str, ...]], list[str]] = {}
    blocks: list[Block] = []
    lives = []
    for attempt in evidence.attempts:
        server = attempt.server
        if server is None:
            lives.append(Row((attempt.directory, "no record", *["–"] * 5), "bad"))
            continue
        lives.append(_life(attempt.directory, server))
        applied = None if server.applied is None else tuple(server.applied.arguments)
        key = (environment_rows(server), tuple(server.requested.arguments), applied or ())
        groups.setdefault(key, []).append(attempt.directory)
        if server.differences:
            blocks += sentences([f"{attempt.directory}: {item}" for item in server.differences], "bad", "differences")
    head = ("server", "started as", "vLLM", "ready", "cache before", "cache after", "stopped")
    blocks.insert(0, table(head, lives, "Each on a fresh server", left=(0, 1, 2, 6)))
    for (rows, asked, applied), labels in groups.items():
        blocks.append(_requested(", ".join(labels), rows, asked, applied))
    if not any(attempt.server and attempt.server.differences for attempt in evidence.attempts):
        checked = any(attempt.server and attempt.server.applied for attempt in evidence.attempts)
        said = "No server differs from what was asked." if checked else "No server could be read back."
        blocks.insert(1, Sentences((said,), "good" if checked else "warn"))
    blocks += sentences(compile_notes(evidence.attempts), "warn", "notes")
    return Section("servers", "Requested against applied", tuple(blocks), "What was asked for, and what really ran.")


def _life(label: str, server: ServerRecord) -> Row:
    ready, stop = server.readiness, server.stop
    cache = [
        "–" if item is None else f"{item.entries} files, {byte_words(item.bytes)}"
        for item in (server.cache_before, server.cache_after)
    ]
    applied = "unknown" if server.applied is None else server.applied.server_id[:12]
    stopped = "–" if stop is None else f"{stop.seconds:.1f} s{', killed' if stop.killed else ''}"
    version = "–" if ready is None or ready.version is None else ready.version
    waited = "–" if ready is None else f"{ready.ready_s:.1f} s"
    return Row((label, Code(applied), version, waited, cache[0], cache[1], stopped), "bad" if server.error else "plain")


def _requested(labels: str, rows: tuple[Row, ...], asked: tuple[str, ...], applied: tuple[str, ...]) -> Fold:
    differing = sum(row.tone == "bad" for row in rows)
    same = f"{differing} differ" if differing else "none differs"
    blocks: list[Block] = []
    if rows:
        head = ("variable", "requested", "applied", "")
        blocks.append(table(head, rows, "Environment", left=(0, 1, 2, 3)))
    else:
        blocks.append(Sentences(("The environment could not be read back.",), "warn"))
    arguments: list[tuple[str, Cell]] = [("requested", Code(" ".join(asked)))]
    if applied and applied != asked:
        arguments.append(("applied", Code(" ".join(applied))))
    elif applied:
        arguments.append(("applied", "the same"))
    blocks.append(Facts(tuple((f"arguments, {name}", value) for name, value in arguments)))
    return Fold(f"{labels}: {len(rows)} variables, {same}", tuple(blocks), open=bool(differing))


def client_section(evidence: AnyEvidence, n: Numbers) -> Section:
    """Whether the client saw what the server sent, when it did."""
    rows = []
    for attempt in evidence.attempts:
        client, path = attempt.client, f"attempts.{attempt.directory}.client"
        if client is not None:
            rows.append(
                Row(
                    (
                        attempt.directory,
                        client.timestamp_source,
                        client.scheduling,
                        n(f"{path}.reads", client.reads, 0),
                        n(f"{path}.lag_p50_us", client.lag_p50_us, 0, "µs"),
                        n(f"{path}.lag_p99_us", client.lag_p99_us, 0, "µs"),
                        share(n, f"{path}.cpu_share", client.cpu_share, 1),
                        n(f"{path}.clock_step_max_ms", client.clock_step_max_ms, 3, "ms"),
                    )
                )
            )
    head = ("server", "timestamps", "scheduling", "reads", "lag p50", "lag p99", "CPU of a core", "clock step")
    blocks: list[Block] = [table(head, rows, left=(0, 1, 2))] if rows else []
    if not rows:
        blocks.append(Sentences(("Not recorded.",), "warn"))
    return Section("client", "The client's own truth", tuple(blocks))


def _fact(fact: Fact) -> Cell:
    if fact.state != "measured":
        return (Chip(fact.state, "warn" if fact.state == "unknown" else "muted"), f" {fact.note}")
    if isinstance(fact.value, list):
        return ", ".join(map(str, fact.value)) or "none"
    return str(fact.value)


def host_section(start: Start) -> Section:
    """Host, image, model, tool."""
    facts: list[tuple[str, Cell]] = []
    for name, fact in start.host.facts.items():
        value: Any = fact.value
        if name.endswith("_bytes") and isinstance(value, int):
            facts.append((name.removesuffix("_bytes").replace("_", " "), byte_words(value)))
        else:
            facts.append((name.replace("_", " "), _fact(fact)))
    image: list[tuple[str, Cell]] = [("image", "none: the server isn't started from an image")]
    if start.image is not None:
        image = [("image", start.image.name), ("id", Code(start.image.id))]
        image += [("digest", Code(digest)) for digest in start.image.repo_digests]
        image += [(f"label {name}", Code(value)) for name, value in start.image.labels.items()]
        image.append(("storage driver", start.image.storage_driver))
    model: list[tuple[str, Cell]] = [("model", "none: no directory of weights was served")]
    if start.model is not None:
        size = sum(file.size for file in start.model.files)
        model = [
            ("model", start.model.repository or "repository not named"),
            ("revision", Code(start.model.revision) if start.model.revision else "not named"),
            ("files", f"{len(start.model.files)}, {byte_words(size)}"),
            ("sha256", Code(start.model.sha256)),
        ]
    tool: list[tuple[str, Cell]] = [
        ("bench", start.tool.version),
        ("commit", (*_parts(_fact(start.tool.commit)), " ", *_dirty(start.tool.dirty))),
        *((name, version) for name, version in start.tool.dependencies.items()),
    ]
    blocks: tuple[Block, ...] = (
        Facts(tuple(facts)),
        Facts(tuple(image)),
        Facts(tuple(model)),
        Fold(f"Measured with bench {start.tool.version}", (Facts(tuple(tool)),)),
    )
    return Section("host", "Host, image, model", blocks)


def _parts(cell: Cell) -> tuple[Part, ...]:
    return cell if isinstance(cell, tuple) else (cell,)


def _dirty(fact: Fact) -> tuple[Part, ...]:
    if fact.state != "measured":
        return (Chip("dirty: unknown", "warn"),)
    return (Chip("with uncommitted changes", "warn"),) if fact.value else (Chip("clean", "good"),)


def unknown_section(evidence: AnyEvidence) -> Section:
    """What could not be found out, telemetry among it."""
    items = list(evidence.unknown)
    if all(attempt.power_use is None for attempt in evidence.attempts):
        items.append("telemetry (power, frequency, temperature of a card): not recorded")
    lead = "Unknown is never clean: each of these could hide a difference."
    return Section(
        "unknown", "What is unknown", (Sentences(tuple(items) or ("Nothing that bench looks for.",), "warn"),), lead
    )


def check_section(evidence: AnyEvidence) -> Section:
    """How anyone can get the same numbers out of the same bytes."""
    start = evidence.start
    items: list[tuple[str, Cell]] = [
        ("campaign", Code(evidence.campaign_id)),
        ("plan sha256", Code(start.plan_sha256)),
        ("suite", f"{start.suite.id} version {start.suite.version}"),
        ("suite sha256", Code(start.suite.sha256)),
        ("measured by", Code(start.command)),
        ("started", evidence.started_at),
        ("ended", evidence.ended_at or "it did not end"),
    ]
    items += [("resumed", at) for at in evidence.resumed]
    lead = (
        "Every number above follows from captured bytes. Take the campaign's directory and let bench derive them again:"
    )
    return Section(
        "check", "Check it yourself", (Command(f"bench verify {evidence.campaign_id}"), Facts(tuple(items))), lead
    )
