"""A load run as tables, for the terminal and for a page."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

ACCOUNT = (
    "client's path",
    "rounds",
    "streams",
    "minutes open",
    "events sent",
    "captured",
    "lost",
    "doubled",
    "out of order",
    "writes",
    "reads",
    "capture, MiB",
    "arrival less send p50 / p99 / max, ms",
)
GROWTH = ("measured", "first", "last", "second third", "last third", "slope a round", "let pass", "grows")
NAMES = {
    "descriptors": "descriptors",
    "threads": "threads",
    "children": "child processes",
    "source_descriptors": "the source's descriptors",
    "blocks": "memory blocks of Python in use",
    "in_use": "malloc's memory in use, KiB",
    "rss": "resident memory after a round, KiB",
    "peak": "its peak in a round, KiB",
}
SUMMED = (
    *("streams", "whole", "events_sent", "events_captured", "lost", "doubled", "moved", "early"),
    *("bytes_sent", "bytes_captured", "writes", "reads"),
)


def _sums(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {name: sum(row["account"][name] for row in rows) for name in SUMMED}
    total |= {"rounds": len(rows), "capture_bytes": sum(row["capture_bytes"] for row in rows)}
    total |= {name: sum(row[name] for row in rows) for name in ("open_s", "cpu_s", "stops", "stopped_s")}
    late = [row["account"]["late_ms"] for row in rows]
    total["late_ms"] = {
        "p50": statistics.median(item["p50"] or 0 for item in late),
        "p99": statistics.median(item["p99"] or 0 for item in late),
        "max": max(item["max"] or 0 for item in late),
    }
    return total


def totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sums by path, and of all; of delays the median of each round's percentile."""
    paths = dict.fromkeys(row["path"] for row in rows)
    found = {path: _sums([row for row in rows if row["path"] == path]) for path in paths}
    return found | {"all": _sums(rows)}


def _account_rows(result: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            path,
            str(total["rounds"]),
            f"{total['streams']:,}",
            f"{total['open_s'] / 60:.1f}",
            f"{total['events_sent']:,}",
            f"{total['events_captured']:,}",
            *(f"{total[name]:,}" for name in ("lost", "doubled", "moved", "writes", "reads")),
            f"{total['capture_bytes'] / 2**20:,.0f}",
            " / ".join(f"{total['late_ms'][name]:,.2f}" for name in ("p50", "p99", "max")),
        ]
        for path, total in result["totals"].items()
    ]


def _growth_rows(result: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            NAMES[item["name"]],
            *(f"{item[name]:,.0f}" for name in ("first", "last", "second_third", "last_third")),
            "–" if item["slope"] is None else f"{item['slope']:+,.1f}",
            f"{item['bound']:,.1f}",
            "yes" if item["grows"] else "no",
        ]
        for item in result["growth"]
    ]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def account_table(result: Mapping[str, Any]) -> Table:
    """Every event."""
    return _table("Events", ACCOUNT, _account_rows(result))


def growth_table(result: Mapping[str, Any]) -> Table:
    """Round by round."""
    warm, rounds = result["settings"]["warm"], len(result["rounds"])
    return _table(
        f"After each of {max(0, rounds - warm)} rounds, the first {warm} not counted", GROWTH, _growth_rows(result)
    )


def markdown(result: Mapping[str, Any]) -> str:
    """Both tables and what they were measured on."""
    lines = []
    for columns, rows in ((ACCOUNT, _account_rows(result)), (GROWTH, _growth_rows(result))):
        lines += ["| " + " | ".join(columns) + " |", "| --- |" + " ---: |" * (len(columns) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        lines.append("")
    host, total = result["host"], result["totals"]["all"]
    lines.append(
        f"Source in {result['source']}, {host['cpu_threads']} processors ({host['cpu_model']}), {result['date'][:10]}, "
        f"load {result['load_before']:.1f} before the start; the reader was stopped {total['stops']:,} times, "
        f"{total['stopped_s']:,.0f} s in all."
    )
    return "\n".join(lines)
