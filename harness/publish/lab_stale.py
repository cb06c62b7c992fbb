"""Fields of a b70-lab.result.v1 that contradict the rest of their file, or are words in place of a measurement."""

import re
from collections.abc import Mapping
from typing import Any

from harness.measure import rates
from harness.publish.lab_draft import Draft, config_words, count_of, quoted
from harness.publish.lab_read import Document, get, items, mapping, number, text
from harness.publish.lab_result import CLASS_BALANCED

_VARIABLES = {
    "GRAPH": "VLLM_XPU_ENABLE_XPU_GRAPH",
    "DRAFT_HEAD": "VLLM_XPU_DRAFT_LM_HEAD_INT4",
    "PAD": "VLLM_XPU_W4A16_DETERMINISM_PAD",
    "CLASSPAD": "VLLM_XPU_FP16_LINEAR_CLASSPAD",
    "QUANT": "QUANTIZATION",
}
"""words of campaign_config and the variables they set"""
_WORDS = ("identity_claim", "notes", "oracle_root")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)B(?![\w])")
_QUANT = re.compile(r"w4a16|fp8|int4|w8a16", re.I)
_PAIR = re.compile(r"strict pair (\d{1,9}\.\d{1,20})/(\d{1,9}\.\d{1,20})")


def name_stale(doc: Document, draft: Draft) -> None:
    """Append every field of the file that its other fields contradict or can't support."""
    data, words = doc.data, config_words(text(get(doc.data, "campaign_config")))
    _environment(doc, draft, words)
    _status(doc, draft, words)
    _figures(doc, draft)
    _outputs(doc, draft)
    _unrecorded(doc, draft)
    for name in _WORDS:
        if " " in text(get(data, name)):
            draft.stale(doc.name, name, "a sentence, no measurement: nothing in this file can be checked against it")
    _replication(doc, draft)
    _ratios(doc, draft)
    _overtaken(doc, draft)


def is_fp8_switch_elsewhere(name: str, value: Any, served: str) -> bool:
    """An FP8 switch that is on where the weights are no FP8."""
    return "FP8" in name and value not in (None, "", "0") and bool(served) and "fp8" not in served.lower()


def _environment(doc: Document, draft: Draft, words: Mapping[str, str]) -> None:
    environment = mapping(get(doc.data, "runtime_env"))
    model = mapping(get(doc.data, "model"))
    served = f"{text(model.get('hf_id'))} {text(model.get('served_as'))} {words.get('QUANT', '')}".strip()
    for name, value in environment.items():
        if is_fp8_switch_elsewhere(name, value, served):
            draft.stale(
                doc.name,
                f"runtime_env.{name}",
                f"is {quoted(value)} though the model is {quoted(text(model.get('hf_id')))} with "
                f"QUANT={words.get('QUANT', 'unknown')}: a switch of an FP8 lane that this one should have off",
            )
    for word, variable in _VARIABLES.items():
        if word not in words:
            continue
        if variable not in environment:
            if environment:
                draft.unknown.append(
                    f"{doc.name}: campaign_config asks {word}={words[word]}, and runtime_env has no {variable}"
                )
        elif environment[variable] != words[word]:
            draft.stale(
                doc.name,
                f"runtime_env.{variable}",
                f"is {quoted(environment[variable])} where campaign_config says {word}={quoted(words[word])}",
            )
    graphs = words.get("GRAPH") == "1" or "graph capture" in text(get(doc.data, "status"))
    if "compilation_config" in mapping(doc.data) and get(doc.data, "compilation_config") is None and graphs:
        draft.stale(
            doc.name, "compilation_config", "is null though campaign_config or status says that graphs were captured"
        )


def _unrecorded(doc: Document, draft: Draft) -> None:
    """What the model is said to be served with, and no variable shows."""
    environment = mapping(get(doc.data, "runtime_env"))
    if "shortlist" in text(get(doc.data, "model", "served_as")) and not any(
        "SHORTLIST" in name for name in environment
    ):
        draft.stale(
            doc.name, "model.served_as", "speaks of a draft shortlist, and runtime_env records no variable of one"
        )


def _status(doc: Document, draft: Draft, words: Mapping[str, str]) -> None:
    data, status = doc.data, text(get(doc.data, "status"))
    depth = get(data, "speculative_config", "num_speculative_tokens")
    checks: list[tuple[str, str, Any, Any]] = [
        ("speculative_config.num_speculative_tokens", "campaign_config DEPTH", str(depth), words.get("DEPTH")),
        ("image_id", "campaign_config image", text(get(data, "image_id")), words.get("image")),
    ]
    if found := re.search(r"MTP depth (\d+)", status):
        checks.append(("status", "speculative_config", f"depth {found[1]}", f"depth {depth}"))
    if found := re.search(r"\(TP(\d)\)", status):
        checks.append(("status", "campaign_config TP", found[1], words.get("TP")))
        cards = re.search(r"\b(one|\d+) B70s?\b", status)
        if cards:
            checks.append(("status", "its own TP", "1" if cards[1] == "one" else cards[1], found[1]))
    repository = text(get(data, "model", "hf_id"))
    for pattern in (_SIZE, _QUANT):
        said, real = pattern.search(status), pattern.search(repository)
        if said and real:
            checks.append(("status", "model.hf_id", said[0].lower(), real[0].lower()))
    name = text(get(data, "campaign_id"))
    if (lane := words.get("LANE")) and name:
        checks.append(("campaign_id", "campaign_config LANE", lane if lane in name else name, lane))
    ghcr, image = text(get(data, "image_ghcr")), text(get(data, "image_id"))
    if "@" in ghcr and image:
        checks.append(("image_ghcr", "image_id", ghcr.split("@")[1].split()[0], image))
    for name, against, here, there in checks:
        if here and there and here not in ("None", there):
            draft.stale(doc.name, name, f"says {quoted(here)} where {against} says {quoted(there)}")


def _figures(doc: Document, draft: Draft) -> None:
    evidence, centers = mapping(get(doc.data, "performance_evidence")), mapping(get(doc.data, "centers"))
    pair = _PAIR.search(text(get(doc.data, "status")))
    for name, center in centers.items():
        arm, value = name.split("_")[0], number(center)
        sides = [number(get(evidence.get(f"{arm}-{side}"), CLASS_BALANCED)) for side in "ab"]
        if value is None:
            continue
        if sides[0] is None or sides[1] is None:
            draft.stale(
                doc.name, f"centers.{name}", f"no server of {arm} stands in this file, so the center can't be derived"
            )
            continue
        mean = rates.center(sides[0], sides[1])
        if abs(mean - value) > 1e-4:
            draft.stale(doc.name, f"centers.{name}", f"is {value} where its servers give {mean:.6f}")
        rounded = [side for side in sides if side is not None and side == round(side, 4)]
        if len(rounded) == 2 and mean != value:
            more = f"; status has them as {pair[1]} and {pair[2]}" if pair else ""
            draft.stale(
                doc.name,
                f"performance_evidence.{arm}-*",
                f"is rounded to 4 decimals, so its mean {mean:.6f} is not the center {value!r}{more}",
            )
        if pair and arm != "mtp0":
            for side, said in zip(sides, pair.groups(), strict=True):
                if side is not None and abs(side - float(said)) > 1e-4:
                    draft.stale(doc.name, "status", f"says {said} where performance_evidence says {side}")


def _outputs(doc: Document, draft: Draft) -> None:
    """The hashes are of texts, so they support G2 and prove nothing; where they contradict it, that is named."""
    outputs = {name: items(value) for name, value in mapping(get(doc.data, "output_sha256")).items()}
    if not outputs:
        return
    gates = mapping(get(doc.data, "gates_passed"))
    for name, said in gates.items():
        counts, labels = count_of(said), name.partition(" ")[2].split(" vs ")
        if counts is None or len(labels) != 2:
            continue
        left, right = (outputs.get(label) for label in labels)
        if left is None or right is None:
            draft.stale(
                doc.name,
                f"gates_passed.{name}",
                f"{said} is claimed and output_sha256 has no answers of "
                f"{' or '.join(label for label in labels if label not in outputs)}: it can't be derived from this file",
            )
        elif (equal := sum(a == b for a, b in zip(left, right, strict=False))) != counts[0]:
            draft.stale(
                doc.name, f"gates_passed.{name}", f"says {said} where {equal} of the {len(left)} text hashes are equal"
            )
    draft.stale(
        doc.name,
        "output_sha256",
        "hashes of answer texts, where identity is of whole token-id arrays; no array stands here",
    )


def _replication(doc: Document, draft: Draft) -> None:
    said = {
        name: float(found[1])
        for name in ("campaign_id", "question")
        if (found := re.search(r"(\d{1,6}(?:\.\d{1,6})?)% spread", text(get(doc.data, name))))
    }
    for arm, spread in draft.spreads.items():
        for name, percent in said.items():
            if spread > 0.01 and abs(percent / 100 - spread) > 5e-4:
                draft.stale(
                    doc.name,
                    name,
                    f"says {percent} % spread; |a - b| / center of {arm} is {spread:.2%}: theirs is over one server",
                )
    statement = text(get(doc.data, "finding", "statement"))
    if found := re.search(r"operating number .*? is (\d{1,9}(?:\.\d{1,9})?)", statement):
        every = [
            number(get(server, "class_balanced_median_tok_s"))
            for server in items(get(doc.data, "measurements", "depth3"))
        ]
        known = [value for value in every if value is not None]
        if known and abs(sum(known) / len(known) - float(found[1])) > 0.1:
            why = (
                f"{found[1]} leaves out one of {len(known)} servers with clean gates; "
                f"the mean of all is {sum(known) / len(known):.2f}"
            )
            draft.stale(doc.name, "finding.statement", why)
            draft.problems.append(f"{doc.name}: the operating number {why}: a selection between valid servers")
            for name, value in mapping(get(doc.data, "scaling")).items():
                if found[1] in text(value):
                    draft.stale(doc.name, f"scaling.{name}", f"rests on {found[1]}, which leaves out a valid server")


def _ratios(doc: Document, draft: Draft) -> None:
    for at, row in enumerate(items(get(doc.data, "table"))):
        for name, value in mapping(row).items():
            over = re.fullmatch(r"(tp\d)_over_(tp\d)_(\w+)", name)
            if over is None:
                continue
            top, base = number(get(row, f"{over[1]}_{over[3]}")), number(get(row, f"{over[2]}_{over[3]}"))
            said = number(value)
            if top and base and said and abs(top / base - said) > 0.0051:
                draft.stale(doc.name, f"table[{at}].{name}", f"says {said} where the row gives {top / base:.4f}")
    for name, value in mapping(get(doc.data, "findings")).items():
        if text(value):
            draft.stale(
                doc.name, f"findings.{name}", "a sentence, no measurement: the cases behind it are not in this file"
            )


def _overtaken(doc: Document, draft: Draft) -> None:
    """What a later block of the same file has overtaken."""
    data = doc.data
    if mapping(get(data, "REPLICATED")) and text(get(data, "next")).startswith("Replicate"):
        draft.stale(doc.name, "next", "asks for a replication that stands under REPLICATED")
    doses = items(get(data, "THE_COST_IS_1_PERCENT_NOT_14", "dose_response_mtp0_c64"))
    if not doses:
        return
    cost = re.search(r"-(\d{1,6}(?:\.\d{1,6})?)%", text(get(data, "measurement", "cost")))
    if cost:
        best = min((abs(value) for row in doses if (value := number(get(row, "cost_pct"))) is not None), default=None)
        if best is not None and float(cost[1]) > best:
            why = f"is the cost of one stagger; the table of staggers has exactness at -{best:g} %"
            draft.stale(doc.name, "measurement.cost", why)
            for name in ("how_much_to_believe.throughput_caveat", "the_practical_lever.combines_with_the_c16_result"):
                outer, inner = name.split(".")
                if re.search(r"14\.2%|1474", text(get(data, outer, inner))):
                    draft.stale(doc.name, name, f"rests on measurement.cost, which {why}")
    limits = text(get(data, "how_much_to_believe", "not_tested_elsewhere"))
    if "only 25 ms" in limits or "full suite is unmeasured" in limits:
        draft.stale(
            doc.name,
            "how_much_to_believe.not_tested_elsewhere",
            "calls other staggers and the full suite unmeasured, which stand further down in the same file",
        )
    if "25 ms" in text(get(data, "headline")):
        draft.stale(doc.name, "headline", "names 25 ms, where the table of staggers has the same exactness at 5 ms")
    arms = {text(get(arm, "admission")): number(get(arm, "tok_s")) for arm in items(get(data, "measurement", "arms"))}
    for at, row in enumerate(doses):
        here, there = number(get(row, "tok_s")), arms.get(text(get(row, "admission")))
        if here is not None and there is not None and here != there:
            draft.stale(
                doc.name,
                f"THE_COST_IS_1_PERCENT_NOT_14.dose_response_mtp0_c64[{at}].tok_s",
                f"is {here} where measurement.arms has {there} for the same admission: two campaigns under one name",
            )
