"""``run_measurements``: which entry is of which configuration, and what the evidence gives for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import EvidenceError
from harness.publish.family_cells import MEASURED, REJECTED
from harness.publish.family_draft import ABSENT, Draft
from harness.publish.family_measured import (
    Material,
    Measured,
    counts,
    quality_scope,
    workload_of,
)
from harness.publish.family_text import Node, decimals, walk
from harness.publish.family_words import Key, entry_key

RATE_DECIMALS, MS_DECIMALS = 3, 2
"""Of the seed's numbers; a file's own come first"""
SPREAD_LIMIT = 0.01


@dataclass(frozen=True)
class Rounding:
    """How many decimals a family file writes its numbers with."""

    rates: int
    ms: int

    def sentence(self) -> str:
        """One sentence without its full stop."""
        return (
            f"rates are rounded to {self.rates} decimals and milliseconds to {self.ms}, as the file's own numbers are"
        )


def rounding_of(text: str, root: Node) -> Rounding:
    """From the numbers that stand in the file; the seed's where there are none."""
    metrics = ("run_measurements", "*", "metrics")
    return Rounding(
        decimals(text, walk(root, *metrics, "decode_tok_s", "*"), RATE_DECIMALS),
        decimals(text, walk(root, *metrics, "ttft_ms", "*"), MS_DECIMALS),
    )


def entry_id(key: Key) -> str:
    """The id of a new entry, from its configuration: the same one every time."""
    head = "" if key.draft_head == "n/a" else f"-{_slug(key.draft_head)}"
    graph = "graph" if key.graph == "on" else "nograph"
    return f"{_slug(key.revision)}-tp{key.tp}-mtp{key.mtp}-{graph}{head}-{_digest(key)}"


def _slug(words: str) -> str:
    kept = (c if c.isalnum() or c == "." else " " for c in words.lower().replace("'", ""))
    return "-".join("".join(kept).split())


def _digest(key: Key) -> str:
    """Tells apart what the readable part of an id leaves out: runtime, suite, context, KV type, quantization."""
    import hashlib

    said = "\n".join(map(str, (key.runtime, key.suite, key.context, key.kv, key.quantization)))
    return hashlib.sha256(said.encode()).hexdigest()[:6]


def match(entries: Sequence[dict[str, Any]], groups: Mapping[Key, Sequence[Measured]]) -> dict[Key, int]:
    """Index of the entry of each configuration; one without an entry is left out.

    By the id a new entry gets, then by the whole configuration, and then by the evidence an entry cites when exactly
    one word of its configuration differs: so that a configuration edited by hand is found and named.
    """
    found: dict[Key, int] = {}

    def free(at: int) -> bool:
        return at not in found.values()

    own = [entry_key(entry) for entry in entries]
    for key in groups:
        named = [at for at, entry in enumerate(entries) if entry["id"] == entry_id(key)]
        if named:
            found[key] = named[0]
    for key in groups:
        equal = [at for at, known in enumerate(own) if known == key and free(at)]
        if key not in found and equal:
            found[key] = equal[0]
    for key, group in groups.items():
        paths = {item.evidence for item in group}
        near = [
            at
            for at, known in enumerate(own)
            if free(at) and _apart(known, key) == 1 and paths & set(_listed(entries[at].get("evidence")))
        ]
        if key not in found and len(near) == 1:
            found[key] = near[0]
    return found


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [item for item in value or [] if isinstance(item, str)]


def _apart(left: Key, right: Key) -> int:
    names = left.__dataclass_fields__
    return sum(getattr(left, name) != getattr(right, name) for name in names)


def measurements(draft: Draft, material: Material, rounding: Rounding) -> dict[str, int]:
    """Bring the entries to what the evidence gives. Returns how many campaigns stand behind each entry, by its id."""
    entries = draft.file["run_measurements"]
    places = match(entries, material.measured)
    behind: dict[str, int] = {}
    for key, group in material.measured.items():
        at = places.get(key)
        if at is None:
            at = len(draft.doc["run_measurements"])
            draft.put(("run_measurements", at), _new_entry(key, group, rounding), "measured, and the file has no entry")
        else:
            _update(draft, ("run_measurements", at), key, group, rounding)
        entry = draft.doc["run_measurements"][at]
        behind[entry["id"]] = len(group)
        draft.notes += _notes(entry["id"], group)
    _rejected(draft, material)
    for at, entry in enumerate(entries):
        if entry["id"] not in behind and ("run_measurements", at, "state") not in draft.derived:
            draft.no_evidence["run_measurements", at] = "no campaign of its configuration was given"
            _refuse_doubled(entry, material.measured)
    return behind


def _refuse_doubled(entry: dict[str, Any], groups: Mapping[Key, Sequence[Measured]]) -> None:
    """Raises EvidenceError: beside what was measured no typed figure of the same configuration may stand."""
    if entry_key(entry) in groups:
        raise EvidenceError(
            f"run_measurements[{entry['id']}] is a second entry of a configuration that was given, and no evidence "
            "stands behind it; remove it from the family file"
        )


def _figures(group: Sequence[Measured], rounding: Rounding) -> dict[str, list[float]]:
    """All servers of all campaigns, in order of date."""
    return {
        "decode_tok_s": [round(value, rounding.rates) for item in group for value in item.rates],
        "ttft_ms": [round(value, rounding.ms) for item in group for value in item.ttft_ms],
    }


def _centers(group: Sequence[Measured], rounding: Rounding) -> dict[str, list[float]]:
    """One center a campaign."""
    return {"decode_tok_s": [round(item.center, rounding.rates) for item in group]}


def _paths(group: Sequence[Measured]) -> str | list[str]:
    paths = [item.evidence for item in group]
    return paths[0] if len(paths) == 1 else paths


def _new_entry(key: Key, group: Sequence[Measured], rounding: Rounding) -> dict[str, Any]:
    """An entry in the seed's order of keys. ``center`` is ours: the seed's entries have none, and get none."""
    return {
        "id": entry_id(key),
        "state": MEASURED,
        "revision": key.revision,
        "variant": key.quantization,
        "quantization": key.quantization,
        "runtime": key.runtime,
        "config": key.config(),
        "profile_id": f"strict-completions-{group[0].suite_id}",
        "measurement_class": "strict fresh-server pair",
        "promotion_status": _status(key),
        "quality_scope": quality_scope(group),
        "workload": workload_of(group),
        "metrics": dict(_figures(group, rounding)),
        "center": _centers(group, rounding),
        "evidence": _paths(group),
    }


def _status(key: Key) -> str:
    """``promotion_status`` of a measured entry; a person may say more in its place."""
    return "measured" if key.mtp else "measured, MTP0 oracle"


def _update(draft: Draft, path: tuple[str | int, ...], key: Key, group: Sequence[Measured], rounding: Rounding) -> None:
    """The derived fields of an entry that stands. ``center`` is brought up to date where it is, and not added."""
    entry = draft.file["run_measurements"][path[1]]
    derived: dict[str, Any] = {
        "state": MEASURED,
        "revision": key.revision,
        "quantization": key.quantization,
        "runtime": key.runtime,
        "quality_scope": quality_scope(group),
        "workload": workload_of(group),
        "evidence": _paths(group),
    }
    for name, value in derived.items():
        draft.put((*path, name), value)
    for name, value in key.config().items():
        draft.put((*path, "config", name), value)
    if entry.get("promotion_status") == REJECTED:
        draft.put((*path, "promotion_status"), _status(key), "no gate of its configuration failed")
    for name, figures in _figures(group, rounding).items():
        draft.put((*path, "metrics", name), figures, f"servers of {', '.join(item.campaign for item in group)}")
    if entry.get("center", ABSENT) is not ABSENT:
        draft.put((*path, "center"), _centers(group, rounding))


def _notes(entry: str, group: Sequence[Measured]) -> list[str]:
    found = []
    for item in group:
        if item.spread > SPREAD_LIMIT:
            a, b = item.rates
            found.append(
                f"run_measurements[{entry}]: the two servers of {item.campaign} are {item.spread:.1%} apart "
                f"({a:.2f} and {b:.2f} tokens/s); measure another pair"
            )
    hosts = len({item.host for item in group})
    if hosts > 1:
        found.append(
            f"run_measurements[{entry}]: its campaigns ran on {hosts} hosts; that is no reproduction by itself"
        )
    return found


def _rejected(draft: Draft, material: Material) -> None:
    """An entry of a rejected configuration keeps its speed, loses its state, and shows the counts."""
    for at, entry in enumerate(draft.file["run_measurements"]):
        key, path = entry_key(entry), ("run_measurements", at)
        group = material.rejected_depth.get(key) or material.rejected_base.get(key)
        if not group and not (key.mtp and key.base() in material.rejected_base):
            continue
        _unpromoted(draft, path, entry)
        if group:
            draft.put((*path, "state"), REJECTED, "a gate of its configuration failed")
            draft.put((*path, "quality_scope"), quality_scope(group))
        elif key.mtp and (base := material.rejected_base.get(key.base())):
            draft.put((*path, "state"), REJECTED, "its base gate failed")
            draft.put((*path, "quality_scope"), f"base gate failed: G1 {counts(base, 'G1')}")


def _unpromoted(draft: Draft, path: tuple[str | int, ...], entry: dict[str, Any]) -> None:
    """A rejected entry isn't promoted as measured; what a person wrote of it is kept and named."""
    said = entry.get("promotion_status")
    if said is None:
        return
    if str(said).startswith(("measured", REJECTED)):
        draft.put((*path, "promotion_status"), REJECTED, "its configuration is rejected")
    else:
        draft.no_evidence[*path, "promotion_status"] = f"{said!a} is of a rejected configuration; correct it by hand"
