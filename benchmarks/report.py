"""The benchmark's figures as a table for the terminal, a table for the README, and the goals they are held to."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

COLUMNS = (
    "client",
    "streams",
    "events/s",
    "CPU µs per event",
    "and parsing after",
    "TTFT error p50 / p99, ms",
    "timestamp error p50 / p99, ms",
    "memory, MiB",
    "events lost",
)

GOAL_STREAMS = "128"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _pair(values: Mapping[str, float | None] | None, scale: float, digits: int) -> str:
    if not values or values.get("p50") is None:
        return "–"
    return " / ".join(_number((values[q] or 0.0) / scale, digits) for q in ("p50", "p99"))


def _cells(name: str, streams: str, figures: Mapping[str, Any], *, first_token: bool) -> list[str]:
    if "failed" in figures:
        return [name, streams, f"failed: {figures['failed']}", *["–"] * (len(COLUMNS) - 3)]
    lost = figures.get("events_lost")
    return [
        name,
        streams,
        _number(figures["events_per_s"], 0),
        _number(figures.get("cpu_read_us_per_event"), 1),
        _number(figures.get("cpu_parse_us_per_event"), 1),
        _pair(figures.get("ttft_error_ms"), 1, 2) if first_token else "–",
        _pair(figures.get("timestamp_error_us"), 1000, 3),
        _number(figures.get("memory_peak_mib"), 0),
        "–" if lost is None else f"{lost:,}",
    ]


def rows(result: Mapping[str, Any]) -> Iterable[list[str]]:
    """All rows: the scheduled runs by number of streams, then full speed, then what wasn't measured."""
    clients = result["clients"]
    for streams in map(str, result["settings"]["concurrency"]):
        for name, client in clients.items():
            if streams in client["scheduled"]:
                yield _cells(name, streams, client["scheduled"][streams], first_token=True)
    if result["many_streams"]:
        yield _cells("ours", str(result["settings"]["many_streams"]), result["many_streams"], first_token=True)
    for name, client in clients.items():
        if client["full_speed"]:
            streams = f"{result['settings']['full_speed_streams']}, full speed"
            yield _cells(name, streams, client["full_speed"], first_token=False)
    for name, client in clients.items():
        if client["state"] != "measured":
            yield [name, "–", f"{client['state']}: {client['note']}", *["–"] * (len(COLUMNS) - 3)]


def ratios(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """How many times ours each peer's CPU per event is at 128 streams: while streams are open, and with all parsing."""
    found: dict[str, dict[str, float]] = {"streams open": {}, "with parsing": {}}
    ours = result["clients"]["ours"]["scheduled"].get(GOAL_STREAMS, {})
    for name, client in result["clients"].items():
        theirs = client["scheduled"].get(GOAL_STREAMS, {})
        if name != "ours" and "cpu_read_us_per_event" in theirs and "cpu_read_us_per_event" in ours:
            read, all_ = (
                [
                    figures["cpu_read_us_per_event"] + extra * figures["cpu_parse_us_per_event"]
                    for figures in (theirs, ours)
                ]
                for extra in (0, 1)
            )
            found["streams open"][name], found["with parsing"][name] = read[0] / read[1], all_[0] / all_[1]
    return found


def goals(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What our client is held to at 128 streams and 12,000 events/s; ``met`` is null where that wasn't measured."""
    if result["settings"]["quick"]:
        return []
    ours = result["clients"]["ours"]["scheduled"].get(GOAL_STREAMS, {})
    full = result["clients"]["ours"]["full_speed"] or {}

    def quantile(name: str, q: str) -> float | None:
        value = ours.get(name, {}).get(q)
        return None if value is None else abs(value)

    cpu = ratios(result)["streams open"]
    stamp = quantile("timestamp_error_us", "p99")
    many = result["many_streams"] or {}
    held: list[tuple[str, float | None, str, float]] = [
        ("CPU per event, times below httpx", cpu.get("httpx"), ">=", 8),
        ("CPU per event, times below aiohttp", cpu.get("aiohttp"), ">=", 4),
        ("TTFT error p50, ms", quantile("ttft_error_ms", "p50"), "<=", 1),
        ("TTFT error p99, ms", quantile("ttft_error_ms", "p99"), "<=", 3),
        ("timestamp error p99, ms", None if stamp is None else stamp / 1000, "<=", 0.2),
        ("events lost at 128 streams", ours.get("events_lost"), "<=", 0),
        ("events/s at full speed", full.get("events_per_s"), ">=", 50_000),
        ("events lost at full speed", full.get("events_lost"), "<=", 0),
        ("events lost with 512 streams open at once", many.get("events_lost"), "<=", 0),
    ]
    return [
        {"goal": name, "value": value, "bound": f"{sign} {bound:g}", "met": _met(value, sign, bound)}
        for name, value, sign, bound in held
    ]


def _met(value: float | None, sign: str, bound: float) -> bool | None:
    if value is None:
        return None
    return value >= bound if sign == ">=" else value <= bound


def table(result: Mapping[str, Any]) -> Table:
    """For the terminal."""
    shown = Table(title="Clients against one source of known schedule", title_justify="left")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if number == 0 else "right")
    for cells in rows(result):
        shown.add_row(*cells)
    return shown


def goal_table(result: Mapping[str, Any]) -> Table:
    """The goals, for the terminal."""
    shown = Table(title="Goals of our client", title_justify="left")
    for column in ("goal", "bound", "measured", ""):
        shown.add_column(column)
    words = {True: "met", False: "missed", None: "not measured"}
    for goal in result["goals"]:
        shown.add_row(goal["goal"], goal["bound"], _number(goal["value"], 2), words[goal["met"]])
    return shown


def markdown(result: Mapping[str, Any]) -> str:
    """For the README: the table, and how to read it."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- |" + " ---: |" * (len(COLUMNS) - 1)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows(result)]
    schedule, host = result["settings"]["schedule"], result["host"]
    versions = [f"{name} {client['version']}" for name, client in result["clients"].items() if client["version"]]
    settings = result["settings"]
    lines += [
        "",
        f"Source in {result['source']} ({result['source_scheduling']}): first event {schedule['ttft_us'] / 1e3:g} ms "
        f"after the request, then one each {schedule['gap_us'] / 1e3:g} ms, {settings['tokens']} a stream, "
        f"{settings['rounds']} rounds after a warm one, the median of {settings['repeats']} runs. "
        f"{host['cpu_threads']} processors ({host['cpu_model']}), {result['date'][:10]}, load "
        f"{result['load_before']:.1f} before the start. {', '.join(versions)}.",
        "TTFT error: what the client reads less the schedule's. Timestamp error: an event's time in the client less "
        "the wall time stamped into it before its write. CPU: user and system time of the client's process while "
        "streams are open; the peers parse as they read, as their users do, ours keeps the bytes and parses after.",
    ]
    return "\n".join(lines)
