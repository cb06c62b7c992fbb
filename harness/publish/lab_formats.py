"""Which of the lab's formats a JSON document is."""

from typing import Any

from harness.publish.lab_beside import COMPARISON
from harness.publish.lab_family import FORMAT
from harness.publish.lab_read import get, items, mapping, text
from harness.publish.lab_result import SCHEMA

UNKNOWN = "unknown"
ATTEMPT = ("performance", "campaign-identity", "canaries", "comparison", "container-inspect")
"""what lies around one strict attempt"""
KNOWN = (SCHEMA, *ATTEMPT, "ladder", "ladder-rungs", "family", "suite")


def format_of(data: Any) -> str:
    """The format's name, or ``unknown``."""
    schema = text(get(data, "schema"))
    if schema == SCHEMA:
        return SCHEMA
    if schema == COMPARISON:
        return "comparison"
    if schema == "b70-bench.asked/1":
        return "asked"
    if text(get(data, "format")) == FORMAT:
        return "family"
    if "strict-attempt" in schema or (get(data, "performance_contract") and get(data, "suite_sha256")):
        return "campaign-identity"
    rows = items(get(data, "rows"))
    if rows and any(get(row, "prompt_id") for row in rows) and (get(data, "summary") or get(data, "published_summary")):
        return "performance"
    if mapping(get(data, "repeat_8x")) or (isinstance(get(data, "pass_all"), bool) and "arithmetic" in mapping(data)):
        return "canaries"
    container = data[0] if isinstance(data, list) and data else data
    if mapping(get(container, "HostConfig")) and mapping(get(container, "Config")):
        return "container-inspect"
    if items(get(data, "batches")) and get(items(get(data, "batches"))[0], "concurrency") is not None:
        return "ladder"
    if items(get(data, "r224_matrix", "columns")) or any(
        mapping(get(arm, "tok_s")) for block in mapping(data).values() for arm in mapping(block).values()
    ):
        return "ladder-rungs"
    if text(get(data, "suite_id")) and items(get(data, "prompts")):
        return "suite"
    return UNKNOWN
