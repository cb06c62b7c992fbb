"""A family file's own words for what a campaign ran on: revision id, quantization, runtime, draft head, workload."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import UsageError
from harness.publish.configuration import Configuration, argument

LAB_SUITE = "df03f49d36c36d2b8ac4cd117b7cb2e42c74878af1f6926690ebb89eeccd47ac"
"""sha256 of the suite that a workload sentence without a suite's name means: the lab's own"""
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SUITE = re.compile(r"suite \S+ \(sha256 ([0-9a-f]{8,64})\)")
_IMAGE = re.compile(r"image ([0-9a-f]{8,64})")
SUITE_DIGITS = 12


@dataclass(frozen=True)
class Key:
    """What decides whether two measurements are of one configuration, in the family's words.

    The suite is part of it: the same server reads other rates on other prompts (contract section 9, item 5).
    """

    revision: str
    quantization: str
    runtime: str
    """CLASSPAD stands in these words"""
    tp: int
    mtp: int
    graph: str
    kv: str
    context: int
    draft_head: str
    suite: str
    """the first digits of its sha256"""

    def selectors(self, variant: str | None = None) -> dict[str, Any]:
        """What a coverage view's axes and fixed selectors may name."""
        return {
            "revision": self.revision,
            "variant": variant or self.quantization,
            "quantization": self.quantization,
            "runtime": self.runtime,
            **self.config(),
        }

    def config(self) -> dict[str, Any]:
        """The ``config`` of an entry, in the seed's order."""
        return {
            "tp": self.tp,
            "mtp": self.mtp,
            "graph": self.graph,
            "kv": self.kv,
            "configured_max_context_tokens": self.context,
            "draft_head": self.draft_head,
        }

    def base(self) -> "Key":
        """The same at MTP0."""
        return replace(self, mtp=0, draft_head="n/a")

    def words(self) -> str:
        """A few words for a person."""
        return f"{self.quantization} TP{self.tp} MTP{self.mtp} on {self.runtime}"


def entry_key(entry: dict[str, Any]) -> Key:
    """The configuration that an entry of ``run_measurements`` says it has."""
    config = entry["config"]
    named = _SUITE.search(entry.get("workload", ""))
    return Key(
        revision=entry["revision"],
        quantization=entry["quantization"],
        runtime=entry["runtime"],
        tp=config["tp"],
        mtp=config["mtp"],
        graph=config.get("graph", ""),
        kv=config.get("kv", ""),
        context=config.get("configured_max_context_tokens", 0),
        draft_head=config.get("draft_head", ""),
        suite=(named.group(1) if named else LAB_SUITE)[:SUITE_DIGITS],
    )


def selectors_of(entry: dict[str, Any]) -> dict[str, Any]:
    """What a coverage view's axes and fixed selectors find in an entry."""
    return {**{key: value for key, value in entry.items() if isinstance(value, str)}, **entry["config"]}


def key_of(family: dict[str, Any], found: Configuration, depth: int, campaign: str) -> Key:
    """A campaign's configuration at one of its depths, in the family's words. Raises UsageError for another model."""
    revision = revision_of(family, found, campaign)
    return Key(
        revision=revision,
        quantization=quantization_of(family, revision, found),
        runtime=runtime_of(family, found),
        tp=found.tensor_parallel,
        mtp=depth,
        graph=found.graph,
        kv=found.kv,
        context=found.context,
        draft_head=found.draft_head if depth else "n/a",
        suite=found.suite_sha256[:SUITE_DIGITS],
    )


def revision_of(family: dict[str, Any], found: Configuration, campaign: str) -> str:
    """The id of the weight revision that a campaign served. Raises UsageError when it is none of the family's."""
    if found.model_sha256 is None:
        raise UsageError(
            f"{campaign} doesn't record which weights it served, so it belongs to no revision; leave it out"
        )
    for known in family["weight_revisions"]:
        published = found.model_revision is not None and (known.get("repository"), known.get("revision")) == (
            found.model_repository,
            found.model_revision,
        )
        pinned = known.get("model_sha256")
        if pinned == found.model_sha256 or (published and pinned is None):
            return str(known["id"])
    name = found.model_repository or "the model whose files have sha256"
    raise UsageError(
        f"{campaign} served {name} {found.model_revision or found.model_sha256}, which is none of the family's "
        "weight_revisions; add it there by hand, or leave the campaign out"
    )


def quantization_of(family: dict[str, Any], revision: str, found: Configuration) -> str:
    """The family's word for a revision's weights: its packets' and entries', else a dimension in its label."""
    named = [item for item in [*family["packets"], *family["run_measurements"]] if item["revision"] == revision]
    votes = Counter(str(item["quantization"]) for item in named)
    if votes:
        return votes.most_common(1)[0][0]
    known = next(item for item in family["weight_revisions"] if item["id"] == revision)
    text = f"{known['id']} {known.get('label', '')}".casefold()
    said = [word for word in family["dimensions"].get("weight_quantization", []) if str(word).casefold() in text]
    return str(said[0]) if len(said) == 1 else own_quantization(found)


def own_quantization(found: Configuration) -> str:
    """The server's own word, where a family has none yet: ``--quantization``, else ``--dtype``."""
    if found.quantization != "none":
        return found.quantization
    return argument(list(found.arguments), "--dtype") or "none"


def runtime_of(family: dict[str, Any], found: Configuration) -> str:
    """The family's words for an image and its CLASSPAD mode; new words when it has none.

    Words mean the image whose id they name first after "image". They mean CLASSPAD=1 when they speak of CLASSPAD at all
    and don't say CLASSPAD=0: that mode is what such an image is for.
    """
    known = [*family["dimensions"].get("runtime", []), *(item["runtime"] for item in family["run_measurements"])]
    for words in (str(word) for word in known):
        image = _IMAGE.search(words)
        known_image = image and (found.image_id or "").removeprefix("sha256:").startswith(image.group(1))
        if known_image and ("CLASSPAD" in words and "CLASSPAD=0" not in words) == found.classpad:
            return words
    return own_runtime(found)


def own_runtime(found: Configuration) -> str:
    """``vLLM 0.32.0 (vllm-cpu image 9c29a461)``"""
    xpu = "XPU " if found.environment.get("VLLM_TARGET_DEVICE") == "xpu" else ""
    what = f"{found.lane}, {found.engine} engine"
    if found.image_id:
        image = found.image or "unnamed"
        name = image.upper() if re.fullmatch(r"r\d+[a-z]?", image) else image
        what = f"{name} image {found.image_id.removeprefix('sha256:')[:8]}"
    mode = ", CLASSPAD=1" if found.classpad else ""
    return f"vLLM {xpu}{found.vllm or 'of unknown version'} ({what}{mode})"


def number(count: int) -> str:
    """Twelve and below in words."""
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def workload(
    *, prompts: int, classes: int, suite_id: str, suite_sha256: str, servers: int, hosts: int, repeat_canary: bool
) -> str:
    """The workload sentence of a strict entry; the lab's own suite goes without a name, as on its page."""
    named = "" if suite_sha256 == LAB_SUITE else f" {suite_id} (sha256 {suite_sha256[:SUITE_DIGITS]})"
    sentence = (
        f"strict {prompts}-prompt {number(classes)}-class suite{named} over the completions API, 512-token cap, cache "
        f"zero, class-balanced median tok/s over tokens 1-100 after TTFT, {number(servers)} fresh servers"
    )
    sentence += f" on {number(hosts)} hosts" if hosts > 1 else ""
    return f"{sentence}, repeat canary alone" if repeat_canary else sentence
