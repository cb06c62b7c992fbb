"""``bench explain``: for each divergence where, by which ids, in what words, how often, and by what margin."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli_options import ApiKeyEnv, JsonOption, ModelDir, ServedName, Vllm, api_key_header, out_json
from harness.errors import ExitCode, UsageError
from harness.strangers import real

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from harness.publish.explain import Explanation, Site
    from harness.publish.margins import Margin
    from harness.questions import Asked

FRESH = "fresh"
TEXT_WIDTH = 72
"""Characters of a text shown on either side of a site"""


def explain(
    directory: Annotated[Path, typer.Argument(help="A campaign directory.")],
    ask: Annotated[
        str | None,
        typer.Option(help="Ask for margins: URL of a running MTP0 server, or fresh to start one by the recorded plan."),
    ] = None,
    model_dir: ModelDir = None,
    top: Annotated[int, typer.Option(help="Log-probabilities to ask for at each site.", min=2, max=20)] = 5,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the explanation as JSON.")] = None,
    vllm: Vllm = None,
    served_model_name: ServedName = None,
    api_key_env: ApiKeyEnv = None,
    json_: JsonOption = False,
) -> None:
    """Say for each divergence where, by which ids and by what margin answers differ."""
    from harness.evidence.store import dump_json, write_atomic
    from harness.hidden import masked_bytes
    from harness.publish.answers import comparisons
    from harness.publish.campaigns import open_campaign
    from harness.publish.explain import SCHEMA, Explanation, sites, vocabulary, with_margins
    from harness.publish.margins import NEAR_TIE
    from harness.unwritable import OUTPUT

    _check_options(ask, model_dir=model_dir, vllm=vllm, served_model_name=served_model_name, api_key_env=api_key_env)
    if out is not None and real(out).is_relative_to(real(directory)):
        raise UsageError(f"--out {out.name} is inside the campaign, whose files are evidence; choose another place")
    if out is not None and not real(out).parent.is_dir():
        raise UsageError(f"--out {out}: its directory doesn't exist; make it, or choose another place")
    campaign = open_campaign(directory)
    evidence = campaign.evidence
    compared = comparisons(campaign)
    words = vocabulary(compared.sources)
    found = sites(compared.differing, compared.asked, words)
    asked: Asked | None = None
    if ask is not None and found:
        model = served_model_name or evidence.start.plan.servers[0].served_model_name
        asked = _ask(
            ask,
            campaign,
            found,
            model,
            top,
            model_dir=model_dir,
            vllm=vllm,
            headers=api_key_header(api_key_env),
            quiet=json_,
        )
        found = with_margins(found, asked.said, asked.decoded, words)
    explanation = Explanation(
        campaign_id=evidence.campaign_id,
        kind=evidence.kind,
        status=evidence.status,
        simulated=evidence.simulated,
        compared=sum(map(len, compared.asked.values())),
        near_tie_nats=NEAR_TIE,
        asked=None if asked is None else asked.by,
        sites=found,
        problems=[] if asked is None else asked.problems,
        notes=[] if asked is None else asked.notes,
    )
    dumped = {"schema": SCHEMA, **explanation.model_dump(mode="json")}
    if out is not None:
        write_atomic(out, masked_bytes(dump_json(dumped)), advice=OUTPUT)
    if json_:
        out_json(dumped)
    else:
        from harness.console import console

        _print(console(width=None if sys.stdout.isatty() else 150), explanation, directory)
    raise typer.Exit(ExitCode.INFRASTRUCTURE if explanation.problems else ExitCode.OK)


def _check_options(ask: str | None, **given: object) -> None:
    """Options that would be without effect. Raises UsageError."""
    fits = {"model_dir": ask == FRESH, "vllm": ask == FRESH}
    for name, value in given.items():
        if value is not None and not fits.get(name, ask not in (None, FRESH)):
            needed = f"--ask {FRESH}" if name in fits else "--ask URL"
            raise UsageError(f"--{name.replace('_', '-')} goes with {needed}; add it, or leave it out")


def _ask(
    ask: str,
    campaign: Any,
    found: "list[Site]",
    model: str,
    top: int,
    *,
    model_dir: Path | None,
    vllm: str | None,
    headers: tuple[tuple[str, str], ...],
    quiet: bool,
) -> "Asked":
    from harness.asking import ask_fresh, ask_url
    from harness.questions import questions_of

    questions = questions_of(found)
    if ask != FRESH:
        return ask_url(ask, questions, model, top, secret_headers=headers)
    import io

    from harness.face import PlainFace

    # What is under way is no part of the explanation: it goes where it doesn't mix with it.
    watcher = PlainFace(io.StringIO() if quiet else sys.stderr, "bench explain")
    return ask_fresh(campaign.evidence.start, questions, top, watcher=watcher, model_dir=model_dir, vllm=vllm)


def _print(console: "Console", explanation: "Explanation", directory: Path) -> None:
    from rich.text import Text

    simulated = "SIMULATED, no measurement: " if explanation.simulated else ""
    head = f"{simulated}{explanation.campaign_id} ({explanation.kind}, {explanation.status})"
    if not explanation.sites:
        said = f"no divergence in {explanation.compared} comparisons of complete token-id arrays"
        console.print(Text(f"{head}: {said}." if explanation.compared else f"{head}: there is nothing to compare."))
        console.print(Text(f"next: bench show {directory}"), soft_wrap=True)
        return
    prompts = {site.prompt for site in explanation.sites}
    console.print(
        Text(
            f"{head}: {len(explanation.sites)} sites in {len(prompts)} prompts, among {explanation.compared} "
            "comparisons of complete token-id arrays"
        ),
        soft_wrap=True,
    )
    pairs = Counter(frozenset((site.oracle_id, site.other_id)) for site in explanation.sites)
    pair, times = pairs.most_common(1)[0]
    if times > 1:
        names = " and ".join("the end" if x is None else str(x) for x in sorted(pair, key=lambda x: x or -1))
        console.print(
            Text(f"the ids {names} stand against each other at {times} of the {len(explanation.sites)} sites")
        )
    console.print(_table(explanation))
    for site in explanation.sites:
        for line in _block(site):
            console.print(Text(line), soft_wrap=True)
    for note in explanation.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    if explanation.asked is not None and not explanation.problems:
        console.print(
            Text(
                f"margins: log-probability of the oracle's id less that of the other, asked of {explanation.asked}; up "
                f"to {explanation.near_tie_nats:g} nat is a near tie"
            ),
            soft_wrap=True,
        )
    for problem in explanation.problems:
        console.print(Text(f"not asked: {problem}"), soft_wrap=True)
    console.print(Text(f"next: {_next(explanation, directory)}"), soft_wrap=True)


def _table(explanation: "Explanation") -> "RenderableType":
    from rich.table import Table

    from harness.publish.explain import how_often

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("prompt", "token", "oracle → other", "how often", "always there", "margin"):
        table.add_column(name, justify="right" if name == "token" else "left", overflow="fold")
    for site in explanation.sites:
        oracle, other = ("the end" if x is None else str(x) for x in (site.oracle_id, site.other_id))
        always = "yes" if len(site.places) == 1 else f"no, {len(site.places)} places"
        table.add_row(site.prompt, str(site.index), f"{oracle} → {other}", how_often(site), always, _short_margin(site))
    return table


def _short_margin(site: "Site") -> str:
    if site.margin is None:
        return "not asked"
    if site.margin.gap is not None:
        return f"{site.margin.kind}, {site.margin.gap:.4g}"
    return site.margin.kind if site.margin.at_least is None else f"{site.margin.kind}, > {site.margin.at_least:.4g}"


def _block(site: "Site") -> list[str]:
    """One site in a few lines, nothing in them that moves a terminal's cursor."""
    lines = ["", site.sentence]
    lines.append(f"  against  {', '.join(site.against)}")
    if site.before is None:
        lines.append("  before   unknown: no chunk of either answer is recorded with its text")
    else:
        cut = "" if site.before_ids == site.index else f"  (the chunks cut the texts at token {site.before_ids})"
        lines.append(f"  before   {_quoted(site.before, last=True)}{cut}")
    for name, token, text, after in (
        ("oracle", site.oracle_id, site.oracle_text, site.oracle_after),
        ("other", site.other_id, site.other_text, site.other_after),
    ):
        if token is None:
            lines.append(f"  {name:7}  the answer had ended")
        else:
            word = "text unknown" if text is None else _quoted(text)
            follows = "unknown" if after is None else _quoted(after)
            lines.append(f"  {name:7}  {token} {word}, reads on {follows}")
    if site.margin is not None:
        lines.append(f"  margin   {site.margin.sentence}")
        lines += _likeliest(site.margin)
        if site.margin_in_one_piece is not None and site.margin.way == "decoded":
            lines.append(f"  at once  {site.margin_in_one_piece.sentence} (all ids before the site read in one piece)")
            lines += _likeliest(site.margin_in_one_piece)
    elif site.prefix is None:
        lines.append("  margin   can't be asked: the prompt's ids are not recorded")
    return lines


def _likeliest(margin: "Margin") -> list[str]:
    said = [
        f"{item.id} {'' if item.text is None else _quoted(item.text) + ' '}{item.logprob:.4f}" for item in margin.top
    ]
    return [f"  top {len(said):<4} {'  '.join(said)}"]


def _quoted(text: str, *, last: bool = False) -> str:
    """Bounded, with every character that isn't printable escaped; the end of it for ``last``, else the beginning."""
    cut = text[-TEXT_WIDTH:] if last else text[:TEXT_WIDTH]
    shown = "".join(
        char if char.isprintable() and char not in "\\'" else char.encode("unicode_escape").decode() for char in cut
    ).replace("'", "\\'")
    before, behind = ("…" if last and cut != text else ""), ("…" if not last and cut != text else "")
    return f"{before}'{shown}'{behind}"


def _next(explanation: "Explanation", directory: Path) -> str:
    if explanation.problems:
        return f"bench explain {directory} --ask URL, with a running MTP0 server of the same model"
    if explanation.asked is None:
        return f"bench explain {directory} --ask fresh (or --ask URL) for the margins"
    if explanation.kind == "ladder":
        return f"bench ties {directory} -o ties.json, then bench ladder --suite ties.json --verbatim for their rates"
    return f"bench show {directory}, or bench ladder with the same launcher to see the same ties under load"
