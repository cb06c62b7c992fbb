"""What a family file shows of its entries: dimensions, views and coverage cells with their labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.publish.family_draft import Draft
from harness.publish.family_measured import Material, rejected_label
from harness.publish.family_words import Key, entry_key, selectors_of

MEASURED, REJECTED, MISSING = "lab-measured", "rejected", "missing"
NOT_MEASURED = "not measured"
WITHHELD = "withheld: a gate of its campaign failed at another depth"
NOT_RUN = "not run: base gate failed"
_DIMENSIONS = {"weight_revision": "revision", "weight_quantization": "quantization", "runtime": "runtime"}
"""Name in ``dimensions`` → key of an entry; every other dimension has the name of a key of ``config``"""


def measured_entries(draft: Draft) -> list[dict[str, Any]]:
    """Entries whose number may be shown."""
    return [entry for entry in draft.doc["run_measurements"] if entry["state"] == MEASURED]


def merged(known: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Both, each value once: an ascending list of numbers stays one, any other keeps its order."""
    values = [*known, *(value for value in dict.fromkeys(found) if value not in known)]
    numbers = all(isinstance(value, int | float) for value in values)
    return sorted(values) if numbers and list(known) == sorted(known) else values


def dimensions(draft: Draft, material: Material) -> None:
    """Every value that a measurement has stands in its dimension; a value that none has is said to have no evidence."""
    entries = measured_entries(draft)
    claimed = {
        (name, value): path
        for path, evidence in material.imported
        for server in evidence.servers
        for name, value in (("tp", server.tensor_parallel), ("mtp", server.depth))
    }
    for name, known in draft.file["dimensions"].items():
        key = _DIMENSIONS.get(name, name)
        found = [value for entry in entries if (value := selectors_of(entry).get(key)) is not None]
        path = ("dimensions", name)
        draft.put(path, merged(known, found), "what measurements have")
        for at, value in enumerate(draft.doc["dimensions"][name]):
            if value not in found:
                by = claimed.get((name, value)) if isinstance(value, int) else None
                said = f", {by} claims it" if by else ""
                draft.no_evidence[*path, at] = f"no measurement has {value!a}{said}"


def views(draft: Draft) -> None:
    """The entries of a series are those of one configuration, in order of its x (``x_from: config.mtp``)."""
    entries = {entry["id"]: entry for entry in measured_entries(draft)}
    fallen = {entry["id"] for entry in draft.doc["run_measurements"] if entry["state"] == REJECTED}
    shown: set[str] = set()
    for at, view in enumerate(draft.file["views"]):
        for number, series in enumerate(view["series"]):
            path = ("views", at, "series", number, "measurement_ids")
            known = [entries[name] for name in series["measurement_ids"] if name in entries]
            head, _, x = series.get("x_from", "").partition(".")
            if head == "config" and known and x in entry_key(known[0]).config():
                own = _without(known[0], x)
                of_it = [entry for entry in entries.values() if _without(entry, x) == own]
                of_it.sort(key=lambda entry: entry["config"].get(x, 0))
                draft.put(path, [entry["id"] for entry in of_it], "the entries of its configuration")
                shown |= {entry["id"] for entry in of_it}
            else:
                left = [name for name in series["measurement_ids"] if name not in fallen]
                if left != series["measurement_ids"]:
                    draft.put(path, left, "a rejected speed is not plotted")
                draft.no_evidence[path] = "none of its entries is a measured one, or its x isn't of config"
    draft.notes += [
        f"run_measurements[{name}] stands in no view; add a series for it" for name in entries if name not in shown
    ]


def _without(entry: Mapping[str, Any], x: str) -> dict[str, Any]:
    """An entry's configuration without what changes along the x axis (with the depth, its draft head too)."""
    key = entry_key(dict(entry))
    own = {**key.selectors(entry.get("variant")), "suite": key.suite}
    for name in (x, *(("draft_head",) if x == "mtp" else ())):
        own.pop(name, None)
    return own


def coverage(draft: Draft, material: Material) -> None:
    """The cells of every coverage view: measured, rejected and missing ones."""
    for at, view in enumerate(draft.file["coverage_views"]):
        _View(draft, material, ("coverage_views", at), view).fill()


class _View:
    """One coverage view."""

    def __init__(self, draft: Draft, material: Material, path: tuple[str | int, ...], view: dict[str, Any]) -> None:
        self.draft, self.material, self.path, self.view = draft, material, path, view
        self.row, self.column = view["row_axis"]["key"], view["column_axis"]["key"]
        self.fixed: dict[str, Any] = view["fixed_selectors"]
        self.entries = [entry for entry in measured_entries(draft) if _fits(selectors_of(entry), self.fixed)]

    def fill(self) -> None:
        """Derive its rows, columns and cells."""
        rejected = [*self.material.rejected_base, *self.material.rejected_depth]
        there = [selectors_of(entry) for entry in self.entries]
        there += [own for key in rejected if _fits(own := self._selectors(key), self.fixed)]
        axes = (("rows", self.row), ("columns", self.column))
        for name, key in axes:
            found = [own[key] for own in there if key in own]
            self.draft.put((*self.path, name), merged(self.view[name], found), "what measurements have")
        now: Any = self.draft.doc
        for part in self.path:
            now = now[part]
        for row in now["rows"]:
            for column in now["columns"]:
                self._cell(f"{row}:{column}", {**self.fixed, self.row: row, self.column: column})

    def _selectors(self, key: Key) -> dict[str, Any]:
        """Of a rejected configuration, by the variant its entry has, where there is one."""
        of_it = [entry for entry in self.draft.doc["run_measurements"] if entry_key(entry) == key]
        return key.selectors(of_it[0].get("variant") if of_it else None)

    def _cell(self, name: str, wanted: dict[str, Any]) -> None:
        path = (*self.path, "cells", name)
        known: dict[str, Any] | None = self.view["cells"].get(name)
        rejected = self._rejected(wanted)
        matching = [entry for entry in self.entries if _fits(selectors_of(entry), wanted)]
        if matching:
            # An entry of a rejected configuration is no measured one, so this one is of another that fits the cell.
            self._measured(path, known, matching)
            if rejected is not None:
                self.draft.notes.append(
                    f"{self.draft.name(path)} is also that of another configuration, {rejected['label']}"
                )
        elif rejected is not None:
            self.draft.put(path, rejected)
        elif known is not None and known["state"] == MISSING and known["label"] != NOT_MEASURED:
            self.draft.no_evidence[path] = f"nothing given shows {known['label']!a}"
        else:
            self.draft.put(path, {"state": MISSING, "label": NOT_MEASURED}, "no measured entry is of this cell")

    def _rejected(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        for groups in (self.material.rejected_depth, self.material.rejected_base):
            for key, group in groups.items():
                if _fits(self._selectors(key), wanted):
                    paths = [item.evidence for item in group]
                    evidence = paths[0] if len(paths) == 1 else paths
                    return {"state": MISSING, "label": rejected_label(group), "evidence": evidence}
                if groups is self.material.rejected_depth and _fits(self._selectors(key.base()), wanted):
                    return {"state": MISSING, "label": WITHHELD}
        if wanted.get("mtp", 0) != 0:
            base = {**wanted, "mtp": 0}
            if any(_fits(self._selectors(key), base) for key in self.material.rejected_base):
                return {"state": MISSING, "label": NOT_RUN}
        return None

    def _measured(
        self, path: tuple[str | int, ...], known: dict[str, Any] | None, matching: list[dict[str, Any]]
    ) -> None:
        entry = next((item for item in matching if known and item["id"] == known.get("evidence_id")), matching[0])
        others = [item["id"] for item in matching if item is not entry]
        if others:
            self.draft.notes.append(f"{self.draft.name(path)} shows {entry['id']}; {', '.join(others)} fit it too")
        label = cell_label(entry)
        if label is None:
            self.draft.no_evidence[path] = f"{entry['id']} has no decode rate"
            return
        cell = dict(known) if known and known["state"] == MEASURED else {}
        cell |= {"state": MEASURED, "label": label, "evidence_id": entry["id"]}
        packet = packet_of(self.draft.doc["packets"], entry)
        cell |= {} if packet is None else {"packet_id": packet}
        why = label_difference(known["label"], entry) if known else ""
        for key in list(cell):
            if not known or known.get("state") != MEASURED:
                self.draft.put(path, cell)
                return
            self.draft.put((*path, key), cell[key], why if key == "label" else "")


def _fits(own: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(key in own and own[key] == value for key, value in wanted.items())


def packet_of(packets: Sequence[dict[str, Any]], entry: dict[str, Any]) -> str | None:
    """The packet that an entry's weights and card count belong to."""
    own = (entry["revision"], entry["quantization"])
    for packet in packets:
        if (packet["revision"], packet["quantization"]) == own and entry["config"]["tp"] in packet["topologies"]:
            return str(packet["id"])
    return None


def center_of(entry: dict[str, Any]) -> float | None:
    """Mean of all servers of an entry, tokens/s: that of its campaigns' centers, since each has two servers."""
    rates: list[float] = entry["metrics"].get("decode_tok_s", [])
    return sum(rates) / len(rates) if rates else None


def cell_label(entry: dict[str, Any]) -> str | None:
    """``D177.29``: the center (contract section 9, item 19), and of how many campaigns where there are several."""
    center = center_of(entry)
    if center is None:
        return None
    campaigns = len(entry["metrics"]["decode_tok_s"]) // 2
    return f"D{center:.2f}" if campaigns < 2 else f"D{center:.2f} (mean of {campaigns} centers)"


def label_difference(label: str, entry: dict[str, Any]) -> str:
    """What the lab's rule, known by name, shows instead of the center; empty when the label isn't by that rule."""
    center, rates = center_of(entry), entry["metrics"].get("decode_tok_s", [])
    if center is None or label == cell_label(entry) or label != f"D{rates[0]:.2f}":
        return ""
    return f"label shows the first server {rates[0]:.2f}; the center is {center:.2f}"
