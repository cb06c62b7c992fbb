"""``bench import``: published results of the lab → a directory with their bytes and what follows from them.

``sources/`` holds every file byte for byte, ``evidence.json`` what ``derive_import`` makes of them, ``manifest.json``
the sha256 of both. Everything is derived again from ``sources/`` whenever the directory is opened.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import BenchError, EvidenceError, UsageError
from harness.evidence import store
from harness.evidence.imported import ImportedEvidence, ImportedSuite, SourceFile
from harness.evidence.sentences import without_paths
from harness.publish import lab_attempt, lab_beside, lab_family, lab_fields, lab_ladder, lab_result, lab_stale
from harness.publish.lab_draft import Draft
from harness.publish.lab_formats import ATTEMPT, UNKNOWN, format_of
from harness.publish.lab_read import MAX_BYTES, Document, get, items, mapping, parse, text
from harness.publish.lab_words import cleaned, conclusion
from harness.redact import is_secret
from harness.strangers import read_given
from harness.suites import load_suite

SOURCES = "sources"
ASKED = "asked.json"
MAX_FILES = 500
MAX_TOTAL = 512 << 20
MAX_LEVELS = 6
UNJUDGEABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a file of a known format may still provoke where a field of it is of another kind than ever seen"""


@dataclass
class Group:
    """Files that become one import."""

    name: str
    documents: list[Document] = field(default_factory=list)


@dataclass
class Given:
    """What was found under the given paths."""

    groups: list[Group] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    """files that become nothing, and why"""


def read_document(path: Path, name: str) -> Document:
    """One file. Raises UsageError."""
    raw = read_given(path, MAX_BYTES, "file", "get the original file, or leave it out")
    data = parse(name, raw)
    return Document(name, path, len(raw), hashlib.sha256(raw).hexdigest(), data, format_of(data))


def gather(paths: Sequence[Path]) -> Given:
    """Files and directories → groups: everything that belongs to strict attempts under one path is one import, every
    other result is one of its own, suites go with the attempt that used them. Raises UsageError.
    """
    given = Given()
    for path in paths:
        if path.is_dir():
            _gather_directory(path, given)
        elif path.is_file():
            document = read_document(path, path.name)
            if document.format == UNKNOWN:
                raise UsageError(
                    f"{path.name} has no format that bench knows; see bench import --help for the known ones"
                )
            given.groups.append(Group(_stem(document), [document]))
        else:
            raise UsageError(f"{path.name or path} does not exist; give a published file or a directory of them")
    if not given.groups:
        raise UsageError(
            "nothing under the given paths has a format that bench knows; give the lab's published JSON files"
        )
    return given


def _gather_directory(path: Path, given: Given) -> None:
    documents, total = [], 0
    for file in _files(path):
        name = file.relative_to(path).as_posix()
        if file.suffix != ".json":
            given.unknown[name] = "not JSON, left out"
            continue
        document = read_document(file, name)
        total += document.bytes
        if total > MAX_TOTAL:
            raise UsageError(
                f"{path.name} holds more than {MAX_TOTAL >> 20} MiB; give the files that are to be imported"
            )
        if document.format == UNKNOWN:
            given.unknown[name] = "JSON of no format that bench knows, left out"
        else:
            documents.append(document)
    attempt = Group("strict-attempt", [item for item in documents if item.format in ATTEMPT])
    suites = [item for item in documents if item.format == "suite"]
    used = {text(get(item.data, "suite_sha256")) for item in attempt.documents}
    attempt.documents += [item for item in suites if attempt.documents and item.sha256 in used]
    rest = Group("suites", [item for item in suites if item not in attempt.documents])
    others = [item for item in documents if item.format not in (*ATTEMPT, "suite")]
    given.groups += [group for group in (attempt, rest) if group.documents]
    given.groups += [Group(_stem(item), [item]) for item in others]


def _files(path: Path) -> list[Path]:
    found: list[Path] = []
    level = [path]
    for _ in range(MAX_LEVELS):
        try:
            entries = sorted(entry for folder in level for entry in folder.iterdir() if not entry.name.startswith("."))
        except OSError as error:
            raise UsageError(f"{path.name} can't be read ({error.strerror}); check its permissions") from None
        level = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
        found += [entry for entry in entries if entry.is_file() and not entry.is_symlink()]
        if len(found) > MAX_FILES:
            raise UsageError(f"{path.name} holds more than {MAX_FILES} files; give the ones that are to be imported")
    for entry in found:
        if not entry.name.isprintable():
            raise UsageError(f"{path.name} holds the file {entry.name!a}, whose name can't be printed; rename it")
    return sorted(found)


def _stem(document: Document) -> str:
    stem = document.name.rsplit("/", 1)[-1].removesuffix(".json").removesuffix(".extract")
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in stem)
    return kept.strip(".-")[:80] or "import"


def write_imports(given: Given, out: Path, asked: dict[str, str]) -> list[Path]:
    """One group becomes ``out`` itself, several its subdirectories; whole or not at all. Raises UsageError."""
    if out.exists():
        raise UsageError(f"{out.name} exists already; choose another --out, or remove it first")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent} is not a directory; create it first, or choose another --out")
    if asked and not any(_ran(group) for group in given.groups):
        raise UsageError("--asked is held against what ran, and no container-inspect is among the files; leave it out")
    single = len(given.groups) == 1
    names = _unique([group.name for group in given.groups])
    try:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            whole = Path(folder) / "import"
            for group, name in zip(given.groups, names, strict=True):
                _write_one(group, whole if single else whole / name, asked if _ran(group) else {})
            whole.rename(out)
    except OSError as error:
        raise UsageError(f"{out.name} can't be written ({error.strerror}); choose another --out") from None
    return [out] if single else [out / name for name in names]


def _ran(group: Group) -> bool:
    return any(item.format == "container-inspect" for item in group.documents)


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def _write_one(group: Group, directory: Path, asked: dict[str, str]) -> None:
    for document in group.documents:
        target = directory / SOURCES / document.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(document.path, target)
    if asked:
        store.write_atomic(
            directory / SOURCES / ASKED, store.dump_json({"schema": "b70-bench.asked/1", "environment": asked})
        )
    try:
        evidence = derive_import(directory / SOURCES)
    except UNJUDGEABLE as error:
        raise UsageError(f"{group.name} can't be judged ({type(error).__name__}); leave its files out") from None
    store.write_atomic(directory / store.EVIDENCE, store.dump_json(evidence.model_dump(mode="json", by_alias=True)))
    store.write_manifest(directory)


def derive_import(sources: Path) -> ImportedEvidence:
    """Everything that follows from the files under ``sources``, in order of their names. Raises UsageError."""
    files = _files(sources)
    documents = [read_document(path, path.relative_to(sources).as_posix()) for path in files]
    draft = Draft()
    for item in documents:
        if item.format == "asked":
            draft.asked = {
                name: value
                for name, value in mapping(get(item.data, "environment")).items()
                if isinstance(value, str) and not is_secret(name)
            }
    _read_all(documents, draft)
    identity = hashlib.sha256("".join(f"{item.name}\0{item.sha256}\n" for item in documents).encode()).hexdigest()
    named = next(
        (item for item in documents if item.format not in ("asked", "suite")), documents[0] if documents else None
    )
    evidence = ImportedEvidence(
        import_id=f"{'import' if named is None else _stem(named)}-{identity[:8]}",
        conclusion="",
        simulated=draft.simulated,
        not_publishable=list(dict.fromkeys(draft.not_publishable)),
        sources=[
            SourceFile(name=item.name, bytes=item.bytes, sha256=item.sha256, format=item.format) for item in documents
        ],
        model=draft.model,
        image_id=draft.image_id,
        image=draft.image,
        runtime=draft.runtime,
        suite_sha256=draft.suite_sha256,
        hosts=list(dict.fromkeys(draft.hosts)),
        environment={name: value for name, value in sorted(draft.environment.items()) if not is_secret(name)},
        asked=draft.asked,
        servers=list(draft.servers.values()),
        centers=draft.centers,
        spreads=draft.spreads,
        rows=draft.rows,
        suites=draft.suites,
        gates=draft.gates,
        ladders=draft.ladders,
        depth_points=draft.depth_points,
        null_fields=draft.null_fields,
        stale_fields=draft.stale_fields,
        problems=list(dict.fromkeys(draft.problems)),
        unknown=list(dict.fromkeys(draft.unknown)),
    )
    evidence.conclusion = conclusion(evidence)
    return cleaned(evidence, draft.host_names)


ORDER = ("performance", "campaign-identity", "canaries", "container-inspect", "comparison")
"""Rows first: what other files say is compared with them"""


def _read_all(documents: Iterable[Document], draft: Draft) -> None:
    every = list(documents)
    readers: dict[str, Any] = {
        "performance": lab_attempt.read_performance,
        "campaign-identity": lab_beside.read_identity,
        "canaries": lab_beside.read_canaries,
        "container-inspect": lab_beside.read_inspect,
        "b70-lab.result.v1": lab_result.read_result,
        "family": lab_family.read_family,
        "ladder-rungs": lab_ladder.read_rungs,
        "ladder": lab_ladder.read_ladder,
    }
    _used_suite(every, draft)
    for item in sorted(every, key=lambda item: ORDER.index(item.format) if item.format in ORDER else len(ORDER)):
        draft.read_marks(item)
        if item.format == "comparison":
            lab_beside.read_comparison(item, draft, every)
        elif item.format == "suite":
            _read_suite(item, draft, every)
        elif item.format in readers:
            readers[item.format](item, draft)
        if item.format == "b70-lab.result.v1":
            lab_stale.name_stale(item, draft)
        if item.format != "asked":
            lab_fields.name_fields(item, draft)
    lab_attempt.identity_between(draft)
    for arm in dict.fromkeys(label.rpartition("-")[0] for label in draft.servers):
        if arm not in draft.centers and {f"{arm}-a", f"{arm}-b"} <= draft.servers.keys():
            draft.add_pair(arm, f"{arm}-a", f"{arm}-b", draft.servers[f"{arm}-a"].label)


def _used_suite(documents: Sequence[Document], draft: Draft) -> None:
    """The prompts of the suite that the attempts name, where it is here with a class for each."""
    named = {said for item in documents if item.format in ATTEMPT and (said := text(get(item.data, "suite_sha256")))}
    for item in documents:
        if item.format == "suite" and named == {item.sha256}:
            prompts = load_suite(str(item.path.resolve()), need_classes=False).prompts
            if all(prompt.prompt_class for prompt in prompts):
                draft.prompts = {prompt.id: prompt.prompt_class for prompt in prompts}


def _read_suite(doc: Document, draft: Draft, documents: Sequence[Document]) -> None:
    suite = load_suite(str(doc.path.resolve()), need_classes=False)
    classes: dict[str, int] = {}
    for prompt in suite.prompts:
        if prompt.prompt_class:
            classes[prompt.prompt_class] = classes.get(prompt.prompt_class, 0) + 1
    draft.suites.append(
        ImportedSuite(
            file=doc.name,
            suite_id=suite.suite_id,
            version=suite.version,
            sha256=suite.sha256,
            prompts=len(suite.prompts),
            classes=classes,
        )
    )
    for item in documents:
        sent = [text(value) for value in items(get(item.data, "all_rows", "prompt_sha256s"))]
        if item.format == "performance" and sent and sent != [prompt.sha256 for prompt in suite.prompts]:
            draft.problems.append(f"{item.name}: the prompts that were sent are not those of {doc.name}")


def verify_import(directory: Path) -> tuple[list[str], ImportedEvidence | None]:
    """(what differs, one sentence each, the changed file first; the evidence as derived now). Never raises."""
    problems: list[str] = []
    evidence: ImportedEvidence | None = None
    try:
        recorded = mapping(get(store.read_json(directory / store.MANIFEST), "files"))
        present = store.build_manifest(directory)["files"]
        for name, entry in recorded.items():
            if name not in present:
                problems.append(f"{name} is in the manifest and missing from the directory")
            elif present[name] != entry:
                problems.append(
                    f"{name} isn't the file that was imported: its sha256 or size differs from the manifest's"
                )
        problems += [f"{name} is not in the manifest" for name in present if name not in recorded]
        evidence = derive_import(directory / SOURCES)
        if store.read_json(directory / store.EVIDENCE) != evidence.model_dump(mode="json", by_alias=True):
            problems.append("evidence.json says something else than its sources give")
    except BenchError as error:
        problems.append(without_paths(str(error), {}))
    except UNJUDGEABLE as error:
        problems.append(f"the sources can't be judged ({type(error).__name__}); import them again")
    return problems, evidence


def rederive_import(directory: Path) -> ImportedEvidence:
    """The evidence of an imported directory, derived now. Raises EvidenceError when a file or a value differs."""
    problems, evidence = verify_import(directory)
    if problems or evidence is None:
        raise EvidenceError(f"{directory.name} DOES NOT VERIFY: {problems[0] if problems else 'it has no sources'}")
    return evidence
