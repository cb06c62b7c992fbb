"""What may be said of imported results: one sentence, and no host, user, path or control character of a stranger."""

from typing import Any

from harness.evidence.imported import Basis, ImportedEvidence
from harness.evidence.sentences import without_paths

LONGEST = 600
"""characters of one text"""


def conclusion(evidence: ImportedEvidence) -> str:
    """One sentence: what is here and on which basis."""
    said = []
    for arm, figure in evidence.centers.items():
        spread = evidence.spreads.get(arm)
        more = "" if spread is None else f", spread {spread:.2%}"
        said.append(f"{arm} {figure.value:.2f} tokens/s ({figure.basis}{more})")
    if not said:
        for server in evidence.servers:
            if server.class_balanced_median is not None:
                figure = server.class_balanced_median
                said.append(f"{server.label} {figure.value:.2f} tokens/s ({figure.basis})")
    rederived = sum(row.tok_s_1_100 is not None for row in evidence.rows)
    if rederived:
        said.append(f"{rederived} rows re-derived")
    rungs = [rung for ladder in evidence.ladders for rung in ladder.rungs]
    if rungs:
        withheld, unsaid = sum(r.withheld is True for r in rungs), sum(r.withheld is None for r in rungs)
        said.append(
            f"{len(rungs)} rungs of {len(evidence.ladders)} ladders claimed, {withheld} of them withheld, "
            f"{unsaid} without a word on exactness"
        )
    if evidence.depth_points:
        said.append(f"{len(evidence.depth_points)} points of a depth profile (claimed)")
    said += [f"suite {suite.suite_id} with {suite.prompts} prompts" for suite in evidence.suites]
    gates = [gate for gate in evidence.gates if gate.basis is Basis.REDERIVED and gate.name in ("G1", "G2", "G3")]
    said += [f"{gate.name} {gate.exact}/{gate.total} re-derived" for gate in gates]
    shown = "; ".join(said[:8]) or "no figure"
    more = f"; and {len(said) - 8} more" if len(said) > 8 else ""
    if evidence.not_publishable:
        more += "; its writer may not publish it"
    simulated = "SIMULATED, no measurement: " if evidence.simulated else ""
    return f"{simulated}Imported: {shown}{more}."


def cleaned(evidence: ImportedEvidence, host_names: set[str]) -> ImportedEvidence:
    """The same without paths, host names and characters that a terminal or a page could stumble over."""
    names = sorted((name for name in host_names if len(name) > 2), key=len, reverse=True)
    raw = evidence.model_dump(mode="json", by_alias=True)
    sources = raw.pop("sources")
    return ImportedEvidence.model_validate({**_tree(raw, names), "sources": sources})


def _tree(value: Any, names: list[str]) -> Any:
    if isinstance(value, str):
        return clean_text(value, names)
    if isinstance(value, dict):
        return {clean_text(str(key), names): _tree(child, names) for key, child in value.items()}
    return [_tree(child, names) for child in value] if isinstance(value, list) else value


def clean_text(value: str, names: list[str]) -> str:
    """One text: printable, bounded, paths by ``<path>``, hosts by ``<host>``."""
    whole = value[: 4 * LONGEST].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    printable = "".join(letter if letter.isprintable() else "\ufffd" for letter in whole)
    for name in names:
        printable = printable.replace(name, "<host>")
    found = without_paths(printable, {})
    return found if len(found) <= LONGEST else found[:LONGEST] + "…"
