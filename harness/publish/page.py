"""Evidence → one self-contained HTML page: no script, no network, everything from the evidence escaped."""

from collections.abc import Sequence
from dataclasses import replace

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness import __version__
from harness.errors import UsageError
from harness.evidence.context_schema import ContextEvidence
from harness.evidence.imported import ImportedEvidence
from harness.evidence.ladder_schema import AnyEvidence, LadderEvidence
from harness.models import Manifest
from harness.publish import plots
from harness.publish.campaigns import Campaign, Imported
from harness.publish.configuration import why_unpublishable
from harness.publish.page_across import (
    Placed,
    context_section,
    coverage_section,
    depth_section,
    ladders_section,
    names,
)
from harness.publish.page_common import (
    STATUS_TONES,
    check_section,
    client_section,
    gates_section,
    host_section,
    servers_section,
    unknown_section,
)
from harness.publish.page_context import context_hero, context_sections
from harness.publish.page_imported import imported_view
from harness.publish.page_ladder import ladder_hero, ladder_sections
from harness.publish.page_projection import projection_section
from harness.publish.page_strict import strict_hero, strict_sections
from harness.publish.page_telemetry import Samples, samples_of, telemetry_section
from harness.publish.page_view import CampaignView, Chip, Mark, PageView, Section, Sentences, all_aloud, aloud, numbers

TITLE = "Benchmark report"


def render(view: PageView) -> str:
    """The page as HTML. What isn't a drawing is escaped."""
    loader = PackageLoader("harness.publish", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["kind_of"] = lambda block: type(block).__name__
    # Both are files of this package; drawings escape what they are given.
    css = Markup(plots.STYLE + environment.loader.get_source(environment, "page.css")[0])  # type: ignore[union-attr]  # noqa: S704
    environment.filters["drawing"] = Markup
    return environment.get_template("page.html.j2").render(page=view, css=css)


def page_view(
    sources: Sequence[Campaign | Imported],
    *,
    title: str | None = None,
    manifest: Manifest | None = None,
    bandwidth: float | None = None,
) -> PageView:
    """Everything the page says of ``sources``, in their order. Raises UsageError when one is given twice or none is.

    ``manifest`` of the served model and ``bandwidth`` of one card, bytes/s, are for the projection alone.
    """
    if not sources:
        raise UsageError("there is nothing to report; give at least one campaign directory")
    views, placed, seen = [], [], set[str]()
    named = names([source.evidence for source in sources if isinstance(source, Campaign)])
    for at, source in enumerate(sources, 1):
        evidence, anchor = source.evidence, f"c{at}"
        name = evidence.import_id if isinstance(evidence, ImportedEvidence) else evidence.campaign_id
        if name in seen:
            raise UsageError(f"{name} was given twice; give each campaign once")
        seen.add(name)
        if isinstance(evidence, ImportedEvidence):
            views.append(imported_view(evidence, anchor, source.directory.name))
            placed.append(Placed(evidence, anchor, name))
        else:
            why = tuple(why_unpublishable(evidence))
            views.append(campaign_view(evidence, anchor, named[name], why, samples_of(source.directory, evidence)))
            placed.append(Placed(evidence, anchor, named[name], why))
    together = [coverage_section(placed), depth_section(placed), ladders_section(placed), context_section(placed)]
    marked = sum(view.simulated for view in views)
    return PageView(
        title=title or (views[0].title if len(views) == 1 else TITLE),
        campaigns=tuple(views),
        across=tuple(section for section in together if not _empty(section)),
        after=(projection_section(placed, manifest, bandwidth), *(item for item in together if _empty(item))),
        tool=__version__,
        simulated="none" if not marked else "all" if marked == len(views) else "some",
    )


def _empty(section: Section) -> bool:
    """Whether a section only says that there is nothing."""
    return all(isinstance(block, Sentences) and block.tone == "muted" for block in section.blocks)


def campaign_view(evidence: AnyEvidence, anchor: str, name: str, why: Sequence[str], samples: Samples) -> CampaignView:
    """One campaign from its verdict to how it is checked.

    ``name`` tells it from the other campaigns of the page; ``why``: why no number of it may be published;
    ``samples``: telemetry of its attempts.
    """
    mark: Mark = "simulated" if evidence.simulated else ""
    n, plan = numbers(mark), evidence.start.plan
    if isinstance(evidence, LadderEvidence):
        hero, own = ladder_hero(evidence, n, why), ladder_sections(evidence, n, mark, f"{anchor}-")
    elif isinstance(evidence, ContextEvidence):
        hero, own = context_hero(evidence, n, why), context_sections(evidence, n, mark, f"{anchor}-")
    else:
        hero, own = strict_hero(evidence, n, why), strict_sections(evidence, n, mark, f"{anchor}-", why)
    sections = [
        gates_section(evidence, n),
        *own,
        servers_section(evidence),
        host_section(evidence.start),
        client_section(evidence, n),
        telemetry_section(evidence, samples, n, mark, f"{anchor}-"),
        unknown_section(evidence),
        check_section(evidence),
    ]
    under = f"{evidence.kind} · {evidence.started_at[:16].replace('T', ' ')} UTC · {name}"
    hero = replace(hero, under=under, scope=aloud(hero.scope, simulated=evidence.simulated))
    if evidence.simulated:
        sections = [replace(item, blocks=all_aloud(item.blocks)) for item in sections]
    return CampaignView(
        id=evidence.campaign_id,
        anchor=anchor,
        title=f"{evidence.start.lane_title}, MTP{plan.depth}, TP{plan.tensor_parallel}",
        kind=evidence.kind,
        status=Chip(evidence.status, STATUS_TONES.get(evidence.status, "warn")),
        conclusion=aloud(evidence.conclusion, simulated=evidence.simulated),
        hero=hero,
        sections=tuple(sections),
        simulated=evidence.simulated,
    )
