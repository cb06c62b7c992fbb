"""What a directory of campaigns holds, quickly and unverified: the head of each evidence.json, and a derived index.

``.bench-index.json`` is a cache and nothing else. An entry counts only while size, times and inode of its evidence.json
are what they were when it was read; the file is rebuilt when it is missing, damaged or of another version, and a
directory that can't be written has none. Only the standard library is imported: a list must be quick.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.publish.index_file import READ, json_object, load_index, write_index

EVIDENCE, JOURNAL = "evidence.json", "journal.jsonl"
HEAD = 32 * 1024
"""Bytes read at a time, until the attempts begin"""
MAX_FILE = 256 * 1024 * 1024
SETTLED_NS = 1_000_000_000
"""A file changed less than this ago isn't indexed: within one tick of its clock it could change again unseen"""
CUT, SERVERS, AFTER_START = b'\n "attempts": ', b',\n   "servers": ', b'\n "started_at": '
"""Where, in a file as we write it, the attempts begin, the planned servers, and what follows the start. Nothing inside
a value can look like one of them: a newline in a string is escaped, and inner keys stand further to the right."""
LONGEST = 80
STATUSES = ("started", "passed", "withheld", "rejected", "invalid", "interrupted", "imported", "broken", "unreadable")
"""Of contract section 4, then what this list says of directories that hold something else"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory as the list shows it. Texts are printable and short."""

    directory: str
    """its name"""
    status: str
    """one of STATUSES"""
    kind: str | None = None
    lane: str | None = None
    depth: int | None = None
    tensor_parallel: int | None = None
    center: float | None = None
    """tokens/s: center of the pair of the greatest depth, rate of a ladder's greatest rung or of the longest context"""
    of: str | None = None
    """what the center is of: mtp3, c64, ``at 32768``"""
    marks: tuple[str, ...] = ()
    """what must stand beside the center: simulated, withheld, claimed, re-derived"""
    gates: str = ""
    date: str | None = None
    """UTC start, ISO 8601; null where nothing says when"""
    problem: str = ""
    """why it is broken or unreadable, one sentence"""


@dataclass(frozen=True)
class Listing:
    """What a directory holds, the newest first."""

    entries: list[Entry]
    others: int
    """directories that hold no campaign"""
    read: int
    """entries that were read from their own files; the rest came from the index"""


def list_campaigns(directory: Path, *, now_ns: int | None = None) -> Listing:
    """Every campaign and import directly below ``directory``. Raises OSError when ``directory`` itself can't be read.

    What is wrong with one of them is in its entry, never an exception.
    """
    known, kept = load_index(directory), dict[str, Any]()
    now_ns = time.time_ns() if now_ns is None else now_ns
    entries, others, read = list[Entry](), 0, 0
    with os.scandir(directory) as found:
        names = sorted(item.name for item in found if _may_be_campaign(item))
    folder = os.fspath(directory)
    for name in names:
        # Ten thousand times, so texts and not Paths.
        path = f"{folder}/{name}/{EVIDENCE}"
        key = _key(path)
        before = known.get(name)
        entry = _from_index(name, before[1]) if key and before and before[0] == key else None
        fresh = entry is None
        if entry is None:
            read += 1
            entry = _entry(f"{folder}/{name}", name)
        if entry is None:
            others += 1
            continue
        entries.append(entry)
        if key and entry.status != "unreadable" and now_ns - max(key[1], key[2]) > SETTLED_NS:
            kept[name] = [key, _indexed(entry)] if fresh else before
    if kept != known:
        write_index(directory, kept)
    entries.sort(key=lambda entry: (_moment(entry.date), entry.directory), reverse=True)
    return Listing(entries, others, read)


def _may_be_campaign(item: os.DirEntry[str]) -> bool:
    try:
        return not item.name.startswith(".") and item.is_dir()
    except OSError:  # a link that leads round in a circle
        return True


def _moment(date: str | None) -> float:
    return 0.0 if (moment := parse_date(date)) is None else moment.timestamp()


def parse_date(text: str | None) -> datetime | None:
    """An ISO 8601 date or time with its zone, UTC without one; None when it is none."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _key(path: str) -> list[int] | None:
    """Size, change times and inode of a regular file; None when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino] if stat.S_ISREG(found.st_mode) else None


def printable(text: object) -> str:
    """One line that a terminal shows as it is, at most LONGEST characters."""
    line = str(text)
    if not line.isprintable():
        line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _shown(name: str) -> str:
    return name if name.isprintable() else printable(name)


def _entry(directory: str, name: str) -> Entry | None:
    """What one directory says of itself; None when it holds no campaign."""
    shown = _shown(name)
    try:
        path = f"{directory}/{EVIDENCE}"
        raw = _read_head(path) or _read_start(f"{directory}/{JOURNAL}")
        if raw is None:
            return None
        try:
            return _described(raw, shown)
        except KeyError:  # written in another order: what is missing may stand after the attempts
            return _described(_read_head(path, whole=True) or raw, shown)
    except OSError as error:
        return Entry(shown, "unreadable", problem=printable(f"it can't be read ({error.strerror})"))
    except (ValueError, RecursionError) as error:
        return Entry(shown, "broken", problem=printable(error))
    except (KeyError, TypeError, AttributeError, LookupError) as error:
        return Entry(shown, "broken", problem=printable(f"{EVIDENCE} lacks a field or has another type there: {error}"))


def _read_head(path: str, *, whole: bool = False) -> dict[str, Any] | None:
    """evidence.json without its attempts, or whole where it isn't written as ours are; None when there is none.

    Raises OSError, and ValueError for what is no JSON object.
    """
    try:
        handle = os.open(path, READ)
    except FileNotFoundError:
        return None
    with open(handle, "rb", buffering=0) as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{EVIDENCE} is no regular file")
        data = b""
        for piece in _pieces(file):
            # The cut may lie across two pieces: look again from a little before the new one.
            begin, data = max(0, len(data) - 32), data + piece
            cut = data.find(CUT, begin)
            if cut >= 0 and not whole:
                head = json_object(_without_servers(data[:cut].rstrip().removesuffix(b",") + b"}"))
                head = head or json_object(data[:cut].rstrip().removesuffix(b",") + b"}")
                if head is not None:
                    return head
                data += b"".join(_pieces(file))
                break
    found = json_object(data)
    if found is None:
        raise ValueError(f"{EVIDENCE} is not whole JSON")
    return found


def _without_servers(head: bytes) -> bytes:
    """The head without what its start says of servers, model and host: most of it, and nothing a list shows."""
    servers, after = head.find(SERVERS), head.find(AFTER_START)
    return head if not 0 < servers < after else head[:servers] + b"}}," + head[after:]


def _pieces(file: Any) -> Iterator[bytes]:
    total = 0
    while piece := file.read(HEAD):
        total += len(piece)
        if total > MAX_FILE:
            raise ValueError(f"{EVIDENCE} is larger than {MAX_FILE >> 20} MiB")
        yield piece


def _read_start(path: str) -> dict[str, Any] | None:
    """A campaign that has no evidence yet, from the first line of its journal; None without a journal."""
    try:
        handle = os.open(path, READ)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{JOURNAL} is no regular file")
        event = json_object(file.readline(MAX_FILE))
    if event is None or not isinstance(event.get("start"), dict):
        raise ValueError(f"{JOURNAL} does not begin with the start of a campaign, and there is no {EVIDENCE}")
    start = event["start"]
    return {
        "schema": "b70-bench.evidence/1",
        "kind": start["plan"]["kind"],
        "status": "started",
        "simulated": start["simulated"],
        "withheld": True,
        "start": start,
        "started_at": event["at"],
        "pairs": [],
        "rungs": [],
        "points": [],
        "gates": [],
    }


def _described(raw: dict[str, Any], name: str) -> Entry:
    """The entry of a file's head. Raises ValueError, KeyError or TypeError for what isn't as ours are."""
    schema = raw.get("schema")
    if not isinstance(schema, str) or not re.fullmatch(r"b70-bench\.[a-z-]+/1", schema):
        raise ValueError(f"{EVIDENCE} has schema {schema!r}, which this version doesn't read")
    if raw.get("kind") == "imported":
        return _imported(raw, name)
    plan, status = raw["start"]["plan"], raw["status"]
    if status not in STATUSES[:6]:
        raise ValueError(f"{EVIDENCE} has status {status!r}, which is none of ours")
    if parse_date(_text(raw["started_at"])) is None:
        raise ValueError(f"{EVIDENCE} has started_at {raw['started_at']!r}, which is no date")
    kind, depth = _text(raw["kind"]), _whole(plan["depth"])
    center, of = _center(raw, kind, depth)
    marks = [word for word in ("simulated", "withheld") if raw[word] is not False]
    return Entry(
        name,
        status,
        kind=kind,
        lane=_text(plan["lane"]),
        depth=depth,
        tensor_parallel=_whole(plan["tensor_parallel"]),
        center=center,
        of=of,
        marks=tuple(marks),
        gates=_gates(raw),
        date=_text(raw["started_at"]),
    )


def _center(raw: dict[str, Any], kind: str, depth: int) -> tuple[float | None, str | None]:
    if kind == "strict":
        found = [(pair["center"], _text(pair["name"])) for pair in raw["pairs"] if pair["depth"] == depth]
    elif kind == "ladder":
        found = [(rung["tok_s"], f"c{_whole(rung['rung'])}") for rung in raw["rungs"] if rung["tok_s"] is not None]
    elif kind == "depth":
        points = [point for point in raw["points"] if point["depth"] == depth and point["tok_s"] is not None]
        found = [(point["tok_s"], f"at {_whole(point['context'])}") for point in points]
    else:
        found = []
    return (_rate(found[-1][0]), found[-1][1]) if found else (None, None)


def _gates(raw: dict[str, Any]) -> str:
    """``G1 12/12, G3 12/12 2/12 FAILED``: the gates between servers, and a ladder's exact answers."""
    counts: dict[str, str] = {}
    for gate in raw["gates"]:
        said = "–" if gate.get("total") is None else f"{_whole(gate['exact'])}/{_whole(gate['total'])}"
        said += "" if gate["passed"] is True else " FAILED"
        name = _text(gate["name"])
        counts[name] = f"{counts[name]} {said}" if name in counts else said
    rungs = raw.get("rungs") or []
    if rungs:
        exact, total = (sum(_whole(rung[name]) for rung in rungs) for name in ("exact", "total"))
        counts["exact"] = f"{exact}/{total}"
    return printable(", ".join(f"{name} {said}" for name, said in counts.items()))


def _imported(raw: dict[str, Any], name: str) -> Entry:
    """Results of others. A claimed gate is no gate of ours, and says so."""
    depths = [item["depth"] for item in raw["servers"] if item["depth"] is not None]
    cards = {item["tensor_parallel"] for item in raw["servers"]}
    arm, figure = list(raw["centers"].items())[-1] if raw["centers"] else (None, None)
    gates = {
        f"{_text(gate['name'])} {gate['exact']}/{gate['total']} {_text(gate['basis'])}"
        for gate in raw["gates"]
        if gate["total"] is not None
    }
    marks = ["simulated"] if raw.get("simulated", False) is not False else []
    marks += ["withheld"] if raw.get("not_publishable", []) != [] else []
    stamp = re.match(r"\d{4}-\d{2}-\d{2}", _text(raw["import_id"]))
    return Entry(
        name,
        "imported",
        kind="imported",
        lane=None if raw["model"].get("repository") is None else _text(raw["model"]["repository"]),
        depth=max(map(_whole, depths), default=None),
        tensor_parallel=_whole(found) if len(cards) == 1 and (found := next(iter(cards))) is not None else None,
        center=None if figure is None else _rate(figure["value"]),
        of=arm,
        marks=(*marks, *(() if figure is None else (_text(figure["basis"]),))),
        gates=printable(", ".join(sorted(gates))),
        date=stamp.group() if stamp and parse_date(stamp.group()) else None,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:20]!r} where a text is expected")
    return printable(value)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:20]!r} where a whole number is expected")
    return value


def _rate(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise TypeError(f"{str(value)[:20]!r} where tokens/s are expected")
    return float(value)


def _indexed(entry: Entry) -> dict[str, Any]:
    return {name: list(entry.marks) if name == "marks" else getattr(entry, name) for name in TYPES}


NONE = type(None)
TYPES: dict[str, tuple[type, ...]] = {"center": (float, NONE), "marks": (list,)}
TYPES |= dict.fromkeys(("status", "gates", "problem"), (str,)) | dict.fromkeys(
    ("kind", "lane", "of", "date"), (str, NONE)
)
TYPES |= dict.fromkeys(("depth", "tensor_parallel"), (int, NONE))
"""Every field of an entry but its name, as JSON keeps it"""


def _from_index(name: str, said: Any) -> Entry | None:
    """An entry as the index keeps it; None when it isn't what this version wrote."""
    if not isinstance(said, dict) or said.keys() != TYPES.keys():
        return None
    if not all(isinstance(said[key], types) for key, types in TYPES.items()):
        return None
    if said["status"] not in STATUSES or not all(isinstance(mark, str) for mark in said["marks"]):
        return None
    return Entry(_shown(name), **{**said, "marks": tuple(said["marks"])})
