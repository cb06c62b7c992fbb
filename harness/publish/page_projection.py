"""A stated ceiling beside what was measured, set apart from everything that was."""

from collections.abc import Sequence

from harness.evidence.imported import ImportedEvidence
from harness.evidence.ladder_schema import AnyEvidence
from harness.evidence.schema import Evidence
from harness.models import Manifest
from harness.publish.compare_held import NO_VERDICT, held, held_why
from harness.publish.page_across import UNIT, Placed, held_chip
from harness.publish.page_view import (
    Block,
    Cell,
    Chip,
    Facts,
    Part,
    Row,
    Section,
    Sentences,
    byte_words,
    numbers,
    share,
    table,
)
from harness.publish.projection import Projection, projection_of


def projection_section(placed: Sequence[Placed], manifest: Manifest | None, bandwidth: float | None) -> Section:
    """A stated ceiling beside what was measured, apart from all that was."""
    title, lead = "How much faster could it get?", "A stated ceiling: the bytes of a step over the memory's bandwidth."
    if manifest is None:
        said = "No projection: it needs the bytes that a step reads. Give the model's manifest with --manifest FILE."
        return Section("projection", title, (Sentences((said,), "muted"),), lead, projected=True)
    blocks: list[Block] = []
    for item in placed:
        if isinstance(item.evidence, ImportedEvidence):
            continue
        found = projection_of(item.evidence, manifest, bandwidth)
        if isinstance(found, str):
            blocks.append(Sentences((f"{item.evidence.campaign_id}: no projection, because {found}.",), "muted"))
        else:
            blocks += [block for projection in found for block in _projection(item, item.evidence, projection)]
    nothing = Sentences(("No campaign of bench's own was given to project beside.",), "muted")
    return Section("projection", title, tuple(blocks) or (nothing,), lead, projected=True)


def _projection(item: Placed, evidence: AnyEvidence, found: Projection) -> tuple[Block, ...]:
    """The measured rate and its share carry whatever keeps the rate from being published."""
    path, n = f"projection.{found.pair}", numbers("simulated" if evidence.simulated else "")
    word = held(evidence) or ("" if evidence.simulated or not item.why else NO_VERDICT)
    marked: tuple[Part, ...] = (" ", held_chip(word)) if word else ()
    head = ("pair", "ceiling, projected", "measured", "share of the ceiling", "bytes a step", "tokens a step")
    cells: tuple[Cell, ...] = (
        found.pair.upper(),
        (numbers("")(f"{path}.ceiling_tok_s", found.ceiling_tok_s, 1), UNIT, " ", Chip(found.label, "warn")),
        "–"
        if found.measured_tok_s is None
        else (n(_measured_path(evidence, found), found.measured_tok_s), UNIT, *marked),
        (share(n, f"{path}.share", found.share, 1), *(marked if found.share is not None else ())),
        byte_words(found.bytes_per_step.total),
        n(f"{path}.tokens_per_step", found.tokens_per_step),
    )
    row = Row(cells, "bad" if word else "plain", campaign=evidence.campaign_id)
    parts = Facts(
        tuple((name.replace("_", " "), byte_words(size)) for name, size in found.bytes_per_step.model_dump().items())
    )
    said: tuple[Block, ...] = ()
    if item.why or word:
        because = "; ".join(item.why) or held_why(evidence)
        said = (Sentences((f"The rate beside this ceiling is not to be published: {because}.",), "bad"),)
    return (table(head, [row], evidence.campaign_id), *said, parts, Sentences(tuple(found.assumptions), "muted"))


def _measured_path(evidence: AnyEvidence, found: Projection) -> str:
    """Where the measured rate stands: the center, or server a where the pair has no center."""
    pairs = evidence.pairs if isinstance(evidence, Evidence) else []
    whole = any(pair.name == found.pair and pair.center is not None for pair in pairs)
    return f"pairs.{found.pair}.{'center' if whole else 'a'}"
