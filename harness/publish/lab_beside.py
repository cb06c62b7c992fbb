"""The files beside a performance.json: campaign-identity, canaries, comparisons, container-inspect."""

from typing import Any

from harness.evidence.imported import Basis, Figure, ImportedGate, ImportedServer
from harness.plan import CACHE_VARIABLES
from harness.publish.lab_attempt import gate_name
from harness.publish.lab_draft import Draft, claimed, label_of, quoted
from harness.publish.lab_read import Document, boolean, get, integer, items, mapping, number, text
from harness.publish.lab_stale import is_fp8_switch_elsewhere
from harness.redact import environment_of, is_secret

COMPARISON = "neural.download.strict-attempt-output-comparison.v1"
_REASONING = ("Thinking Process", "<think>")


def read_identity(doc: Document, draft: Draft) -> None:
    """campaign-identity.json: which suite, which profile, which contract."""
    data = doc.data
    draft.suite_sha256 = draft.suite_sha256 or text(get(data, "suite_sha256")) or None
    schema, profile = text(get(data, "schema")), text(get(data, "profile"))
    for word in ("qwen38", "fp8"):
        if word in schema and profile and word not in profile:
            draft.stale(
                doc.name, "schema", f"names {word} where the profile is {quoted(profile)}: a template of another model"
            )
            break
    suite = text(get(data, "suite"))
    if suite and profile and suite.rstrip("/").split("/")[-2:-1] and "qwen36" in suite and "qwen36" not in profile:
        draft.stale(
            doc.name, "suite", "stands in the folder of another model; only suite_sha256 says which suite it was"
        )
    contract = mapping(get(data, "performance_contract"))
    asked = {
        "max_tokens": 512,
        "metric_events": 100,
        "metric_intervals": 99,
        "cached_tokens_required": 0,
        "temperature": 0,
    }
    for name, value in asked.items():
        if name in contract and contract[name] != value:
            draft.problems.append(
                f"{doc.name}: performance_contract.{name} is {quoted(contract[name])}, ours is {value}"
            )


def read_canaries(doc: Document, draft: Draft) -> None:
    """canaries.json: claimed; an answer that starts as reasoning and is cut can't be judged again."""
    data = mapping(doc.data)
    passed = {name: boolean(get(value, "pass")) for name, value in data.items() if isinstance(value, dict)}
    label = label_of(doc.name) or label_of(*draft.servers)
    said = boolean(data.get("pass_all"))
    right = sum(value is True for value in passed.values())
    draft.gates.append(
        ImportedGate(
            name="canaries",
            subject=label[0] if label else doc.name,
            basis=Basis.CLAIMED,
            exact=right,
            total=len(passed),
            passed=said,
        )
    )
    if said is not None and passed and said != (right == len(passed)):
        draft.stale(doc.name, "pass_all", f"is {said} where {right} of {len(passed)} canaries passed")
    for name, value in data.items():
        for field in ("raw", "sample"):
            answer = text(get(value, field))
            if answer.startswith(_REASONING):
                draft.stale(
                    doc.name,
                    f"{name}.{field}",
                    f"is reasoning, cut at {len(answer)} characters: the answer that was judged isn't here",
                )


def read_comparison(doc: Document, draft: Draft, documents: list[Document]) -> None:
    """A comparison of two attempts: the gate and both medians are claims."""
    data = doc.data
    labels = []
    for side in ("left", "right"):
        part = mapping(get(data, side))
        known = label_of(text(part.get("attempt")), text(part.get("profile")))
        label, depth = known or (f"{doc.name} {side}", None)
        labels.append((label, depth))
        figure = claimed(part.get("class_balanced_median_tok_s"), doc.name, f"{side}.class_balanced_median_tok_s")
        _compare_server(doc, draft, side, label, depth, figure)
        for gate, field in (("canaries", "canaries_passed"), ("cache-zero", "cached_tokens_all_zero")):
            if not any((item.name, item.subject) == (gate, label) for item in draft.gates):
                draft.gates.append(
                    ImportedGate(
                        name=gate,
                        subject=label,
                        basis=Basis.CLAIMED,
                        exact=None,
                        total=None,
                        passed=boolean(part.get(field)),
                    )
                )
        _artifacts(doc, draft, side, label, mapping(part.get("artifacts")), documents)
    (a, left), (b, right) = labels
    gate, first, second = ("identity", a, b) if left is None or right is None else gate_name(a, b, (left, right))
    comparison = mapping(get(data, "comparison"))
    exact, total = integer(comparison.get("exact_prompts")), integer(comparison.get("total_prompts"))
    word = boolean(comparison.get("complete_token_arrays_exact"))
    if exact is not None and total is not None and word is not None and word != (exact == total > 0):
        draft.stale(doc.name, "comparison.complete_token_arrays_exact", f"is {word} where {exact} of {total} are exact")
    draft.gates.append(
        ImportedGate(
            name=gate,
            subject=f"{first} vs {second}",
            basis=Basis.CLAIMED,
            exact=exact,
            total=total,
            passed=word if exact is None or total is None else exact == total > 0,
        )
    )
    draft.suite_sha256 = draft.suite_sha256 or text(get(data, "suite_sha256")) or None
    if text(get(data, "suite_sha256")) not in ("", draft.suite_sha256):
        draft.problems.append(f"{doc.name}: its suite is another one than campaign-identity's")


def _compare_server(
    doc: Document, draft: Draft, side: str, label: str, depth: int | None, figure: Figure | None
) -> None:
    known = draft.servers.get(label)
    if known is None:
        draft.servers[label] = ImportedServer(
            label=label, depth=depth, tensor_parallel=None, class_balanced_median=figure, ttft_ms=None
        )
    elif known.class_balanced_median and figure and known.class_balanced_median.value != figure.value:
        draft.stale(
            doc.name,
            f"{side}.class_balanced_median_tok_s",
            f"is {figure.value!r} where {known.class_balanced_median.file} gives {known.class_balanced_median.value!r}",
        )


def _artifacts(doc: Document, draft: Draft, side: str, label: str, artifacts: Any, documents: list[Document]) -> None:
    """The comparison names the files it was made of by sha256."""
    formats = {"performance": "performance", "identity": "campaign-identity", "canaries": "canaries"}
    for name, entry in artifacts.items():
        said = text(get(entry, "sha256"))
        here = [item for item in documents if item.format == formats.get(name)]
        mine = [item for item in here if (label_of(_label_text(item)) or (None,))[0] in (label, None)]
        if not said or not mine:
            continue
        whole = {item.sha256 for item in mine} | {text(get(item.data, "original_sha256")) for item in mine}
        if said not in whole:
            draft.stale(
                doc.name,
                f"{side}.artifacts.{name}.sha256",
                f"is not that of {mine[0].name}: the comparison was made of other bytes than the file beside it",
            )


def _label_text(doc: Document) -> str:
    run = mapping(get(doc.data, "run")) or mapping(doc.data)
    return " ".join([text(run.get("model")), text(get(doc.data, "attempt")), doc.name])


def read_inspect(doc: Document, draft: Draft) -> None:
    """container-inspect: what really ran. Requested against applied, and what the contract refuses in a container."""
    container = mapping(doc.data[0] if isinstance(doc.data, list) and doc.data else doc.data)
    config, host = mapping(container.get("Config")), mapping(container.get("HostConfig"))
    arguments = [text(word) for word in items(container.get("Args"))]
    environment = environment_of([text(line) for line in items(config.get("Env")) if text(line)])
    draft.environment |= {name: value for name, value in environment.items() if not is_secret(name)}
    image = text(container.get("Image"))
    if draft.image_id and image and image != draft.image_id:
        draft.problems.append(f"{doc.name}: the container ran image {image}, the run names {draft.image_id}")
    draft.image_id = draft.image_id or image or None
    _requested(doc, draft, environment, arguments)
    memory, swap = number(host.get("Memory")), number(host.get("MemorySwap"))
    if memory is None or memory != swap or memory == 0:
        draft.problems.append(
            f"{doc.name}: the memory limit is {_gib(memory)} and memory+swap {_gib(swap)}: refused, they must be equal "
            "because a container that may swap makes the xe driver fault"
        )
    groups = [text(group) for group in items(host.get("GroupAdd"))]
    if any(not group.isdigit() for group in groups):
        draft.problems.append(
            f"{doc.name}: group_add has {', '.join(groups)}, where a numeric gid is asked: the image may lack it"
        )
    missing = [name for name in CACHE_VARIABLES if name not in environment]
    if missing:
        draft.problems.append(
            f"{doc.name}: {len(missing)} of six compile-cache variables are not set ({', '.join(missing)}), "
            "so empty caches are not shown"
        )
    masks = [name for name in ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR") if name in environment]
    if len(masks) == 2:
        draft.problems.append(
            f"{doc.name}: {' and '.join(masks)} are both set; applied one after the other, so use the first alone"
        )
    if boolean(host.get("Privileged")):
        draft.problems.append(f"{doc.name}: the container is privileged")
    restarts = integer(container.get("RestartCount"))
    if restarts:
        draft.problems.append(
            f"{doc.name}: the container was restarted {restarts} times, so it is not one fresh server"
        )


def _gib(value: float | None) -> str:
    return "none" if not value else f"{value / 2**30:g} GiB"


def _requested(doc: Document, draft: Draft, environment: dict[str, str], arguments: list[str]) -> None:
    """By ``--asked``; without it, switches that contradict what is served are taken as asked off."""
    for name, asked in sorted(draft.asked.items()):
        applied = environment.get(name)
        if applied != asked:
            runs = "the container has none" if applied is None else f"runs as {applied!r}"
            draft.problems.append(f"{doc.name}: environment variable {name} was asked as {asked!r} and {runs}")
    served = " ".join([*arguments, text(draft.model.get("repository")), text(draft.model.get("served_as"))])
    served = served if "compressed-tensors" in served or "w4a16" in served.lower() else ""
    for name, value in sorted(environment.items()):
        if name not in draft.asked and is_fp8_switch_elsewhere(name, value, served):
            draft.problems.append(
                f"{doc.name}: environment variable {name} runs as {value!r} on a W4A16 server, where it should be off; "
                "no file here says what was asked, give --asked to hold it against that"
            )
            draft.stale(
                doc.name, f"Config.Env {name}", f"is {value} on a W4A16 server with --quantization compressed-tensors"
            )
