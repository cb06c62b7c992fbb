"""Fields of any imported file that say nothing, or what no one can follow: null, another machine's path, superseded."""

import re
from collections import Counter

from harness.evidence.imported import NamedField
from harness.publish.lab_draft import Draft
from harness.publish.lab_read import Document, walk

MOST = 200
"""named fields of one file and kind"""

_PATH = re.compile(r"(?<![\w.<>/:…\-])/(?!(?:model|dev|opt|workspace|proc|sys|tmp/|v1)\b)(?:[\w.\-]+/)+[\w.\-]*")

_WHY_NULL = {
    "compilation_config": (
        "null, so nothing shows which graphs were captured: the setting is a server argument and was looked for "
        "among the container's variables"
    ),
    "runtime_env.QUANTIZATION": (
        "null, because quantization is a server argument and no variable of the container; the value isn't recorded"
    ),
}
_WHY_NULL_ENDING = {
    "token_ids": "null, so the complete answer isn't here and no identity gate can be derived from it",
    "elapsed_s": "null, so the rates over the whole answer can't be derived",
}


def name_fields(doc: Document, draft: Draft) -> None:
    """Append the file's null fields, paths of other machines and fields that call themselves superseded."""
    nulls: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    paths: dict[str, None] = {}
    for name, value in walk(doc.data):
        seen[name] += 1
        if value is None:
            nulls[name] += 1
        elif isinstance(value, str):
            if _PATH.search(value):
                paths[name] = None
            if value.startswith("SUPERSEDED"):
                draft.stale(doc.name, name, "says of itself that it is superseded")
    for name, count in list(nulls.items())[:MOST]:
        draft.null_fields.append(NamedField(file=doc.name, field=name, why=_why_null(name, count, seen[name])))
    for name in list(paths)[:MOST]:
        draft.stale(doc.name, name, "names an absolute path of another machine, which can't be followed from here")
    for what, found in (("null fields", nulls), ("paths of other machines", paths)):
        if len(found) > MOST:
            draft.unknown.append(f"{doc.name}: {len(found) - MOST} more {what} are not named")


def _why_null(name: str, count: int, total: int) -> str:
    why = _WHY_NULL.get(name) or _WHY_NULL_ENDING.get(name.rsplit(".", 1)[-1]) or "null: nothing is recorded here"
    return why if total == 1 else f"{why} ({count} of {total})"
