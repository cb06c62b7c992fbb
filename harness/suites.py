"""Suite files → typed prompts. A suite is identified by the sha256 of its bytes (contract section 3)."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.data import find, shown
from harness.errors import UsageError
from harness.strangers import parse_json, read_given

MAX_BYTES = 1 << 20
"""a larger suite file is refused, bytes"""

CLASS_BY_ID = {
    "incident-retrospective": "operations",
    "release-plan": "operations",
    "bug-report-synthesis": "operations",
    "benchmark-analysis": "analysis",
    "architecture-tradeoff": "analysis",
    "performance-hypotheses": "analysis",
    "code-review": "code",
    "sql-debugging": "code",
    "customer-email": "prose",
    "decision-memo": "prose",
    "technical-guide": "documentation",
    "risk-register": "structured-writing",
}
"""Classes of the lab's strict suite, whose format has no class field: fixed by prompt id (contract section 3)."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of a suite. ``prompt_class`` is empty only in a suite loaded without classes."""

    id: str
    text: str
    prompt_class: str
    sha256: str
    """sha256 of the text's UTF-8 bytes, hexadecimal"""


@dataclass(frozen=True)
class Suite:
    """A suite file. ``name`` is the file's name without folder and extension, so that no path enters evidence."""

    suite_id: str
    version: int
    name: str
    sha256: str
    """sha256 of the file's bytes, hexadecimal"""
    prompts: tuple[Prompt, ...]
    """in file order"""


class _PromptEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(min_length=1, max_length=100)
    prompt: str
    prompt_class: str | None = Field(default=None, alias="class", min_length=1, max_length=100)


class _SuiteFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    suite_id: str = Field(min_length=1, max_length=100)
    version: int = Field(ge=0)
    description: str = ""
    metric: str = ""
    source: dict[str, Any] | None = None
    """where the lab's tie-site suites came from; not read"""
    prompts: list[_PromptEntry] = Field(min_length=1)


def load_suite(name_or_path: str, *, need_classes: bool = True) -> Suite:
    """Load and check a suite by name or path.

    A prompt's class is its ``class`` field, else that of its id in the lab's suite. With ``need_classes`` (the strict
    suite) a prompt without either is an error; ladder suites have none and load with ``need_classes=False``.
    Raises UsageError, one sentence, for a file that is missing, larger than 1 MiB, not strict JSON, of another shape,
    or with an empty prompt, an id twice or a prompt text twice.
    """
    path = find("suites", name_or_path, ".json")
    raw = read_given(path, MAX_BYTES, "suite", "split it into smaller suites, or give another.")
    checked = _parse(path, raw)
    if not checked.suite_id.isprintable():
        _refuse(path, f"its suite_id {shown(checked.suite_id)} has a control character: remove it")
    prompts: list[Prompt] = []
    for entry in checked.prompts:
        prompt_class = entry.prompt_class or CLASS_BY_ID.get(entry.id, "")
        if not entry.prompt.strip():
            _refuse(path, f"the prompt {shown(entry.id)} is empty: write its text or remove it")
        if not entry.id.isprintable() or not prompt_class.isprintable():
            _refuse(path, f"the id or class of prompt {shown(entry.id)} has a control character: remove it")
        if need_classes and not prompt_class.strip():
            _refuse(path, f'the prompt {shown(entry.id)} has no class: add a "class" field to it')
        try:
            sha256 = hashlib.sha256(entry.prompt.encode()).hexdigest()
        except UnicodeEncodeError:
            _refuse(path, f"the prompt {shown(entry.id)} has half of a surrogate pair, which can't be sent: remove it")
        prompts.append(Prompt(entry.id, entry.prompt, prompt_class, sha256))
    if twice := _repeated([prompt.id for prompt in prompts]):
        _refuse(path, f"the id {shown(twice)} stands more than once: give each prompt an id of its own")
    if twice := _repeated([prompt.sha256 for prompt in prompts]):
        ids = " and ".join(shown(prompt.id) for prompt in prompts if prompt.sha256 == twice)
        _refuse(path, f"the prompts {ids} have the same text: a suite sends each text once, so change or remove one")
    return Suite(checked.suite_id, checked.version, path.stem, hashlib.sha256(raw).hexdigest(), tuple(prompts))


def _parse(path: Path, raw: bytes) -> _SuiteFile:
    document = parse_json(raw, lambda why: _refuse(path, f"{why}: correct it"))
    try:
        return _SuiteFile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:120]
        field = f"field {shown(where)}" if where else "the document"
        _refuse(
            path, f"{field} is wrong ({first['msg']}): a suite is suite_id, version and prompts of id, class, prompt"
        )


def _repeated(values: list[str]) -> str | None:
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _refuse(path: Path, why: str) -> NoReturn:
    raise UsageError(f"suite {shown(str(path))} is refused because {why}.")
