"""Answers that left their oracle → where, by which ids, in what words, how often, and by what margin. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.measure.identity import divergence
from harness.publish.margins import Frozen, Margin, Said, margin_of, named, told

SCHEMA = "b70-bench.explanation/1"
BATCH, SEQUENTIAL = "batch", "sequential"
"""Groups of a ladder's comparisons; those of a strict campaign are its gates G1, G2 and G3"""


@dataclass(frozen=True)
class Answer:
    """One answer: its ids and the text of each chunk. ``pieces`` is empty where only the ids are known."""

    ids: tuple[int, ...]
    pieces: tuple[tuple[int, str], ...] = ()
    """(how many ids, the text that came with them) in order"""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for _, text in self.pieces)


@dataclass(frozen=True)
class Stage:
    """Where two answers to one prompt were compared."""

    group: str
    label: str
    """``mtp3-a vs mtp0-a``, ``sequential``, ``c4 pass 2``"""
    slot: str = ""
    """of a ladder: a prompt may stand in several slots of one batch"""
    rung: int | None = None
    number: int | None = None
    """pass, from 1"""


@dataclass(frozen=True)
class Compared:
    """Two answers to one prompt that may differ."""

    prompt: str
    prompt_ids: tuple[int, ...] | None
    stage: Stage
    against: str
    """whose answer ``oracle`` is: mtp0-a, own sequential answer, …"""
    oracle: Answer
    other: Answer


class Seen(Frozen):
    """How often a site was met among the comparisons of one group."""

    group: str
    times: int
    asked: int


class Site(Frozen):
    """A place where answers left their oracle, over all attempts, passes and rungs."""

    prompt: str
    index: int
    """first unequal id, from 0"""
    oracle_id: int | None
    """null when the oracle's answer had ended"""
    other_id: int | None
    oracle_text: str | None
    """of the id; null when no chunk and no server gave it alone"""
    other_text: str | None
    against: list[str]
    """whose answer was the oracle"""
    seen: list[Seen]
    passes: list[int]
    passes_asked: list[int]
    rungs: list[int]
    rungs_asked: list[int]
    places: list[int]
    """every index at which this prompt left its oracle; one alone: always the same prompt and index"""
    stages: list[str]
    before: str | None
    """text that both answers share; null where no chunk boundary tells it"""
    before_ids: int
    """ids that ``before`` covers; fewer than index where the chunks don't cut there"""
    oracle_after: str | None
    """what follows, the id itself first"""
    other_after: str | None
    prefix: list[int] | None
    """prompt ids and the oracle's ids before the site; null when the prompt's ids are not recorded"""
    prompt_ids: int
    """how many of ``prefix`` are the prompt's"""
    margin: Margin | None
    """decoded where the asked server came to the site by the oracle's own ids, else in one piece; null when no server
    was asked"""
    margin_in_one_piece: Margin | None
    """after the exact prefix as a prompt"""
    sentence: str


class Explanation(Frozen):
    """All sites of one campaign, the most frequent first."""

    campaign_id: str
    kind: str
    status: str
    simulated: bool
    compared: int
    """comparisons of two answers to one prompt"""
    near_tie_nats: float
    asked: str | None
    """the server that gave the margins; null when none was asked"""
    sites: list[Site]
    problems: list[str]
    """why a server could not be asked, one sentence each"""
    notes: list[str]


def vocabulary(answers: Iterable[Answer]) -> dict[int, str]:
    """Id → text, from chunks that brought one id, where nothing of an earlier id could be held back.

    A server keeps the bytes of an unfinished character back, so a chunk after one without text says nothing of its id;
    an id that had two different texts is left out.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for answer in answers:
        start, clean = 0, True
        for size, text in answer.pieces:
            alone = size == 1 and bool(text)
            if alone and clean:
                found[answer.ids[start]].add(text)
            clean = alone
            start += size
    return {token: next(iter(texts)) for token, texts in found.items() if len(texts) == 1}


def around(oracle: Answer, other: Answer, index: int, words: Mapping[int, str]) -> tuple[str | None, int]:
    """(text before ``index`` that both share, ids it covers): the longest that chunks, or known ids, cut there."""
    best: tuple[str | None, int] = (None, 0)
    for answer in (oracle, other):
        if not answer.pieces:
            continue
        covered, text = 0, ""
        for size, piece in answer.pieces:
            if covered + size > index:
                break
            covered, text = covered + size, text + piece
        rest = [words.get(token) for token in answer.ids[covered:index]]
        longer = text + "".join(word for word in rest if word is not None)
        if None not in rest and answer.text.startswith(longer):
            covered, text = index, longer
        if best[0] is None or covered > best[1]:
            best = text, covered
    return best


def _after(answer: Answer, before: str | None) -> str | None:
    if before is None or not answer.pieces or not answer.text.startswith(before):
        return None
    return answer.text[len(before) :]


def sites(compared: Sequence[Compared], asked: Mapping[str, Sequence[Stage]], words: Mapping[int, str]) -> list[Site]:
    """Every place where answers differ. ``asked`` are all comparisons of a prompt, those that were equal included."""
    groups: dict[tuple[str, int, int | None, int | None], list[Compared]] = defaultdict(list)
    for item in compared:
        at = divergence(item.prompt, item.other.ids, item.oracle.ids)
        if at is not None:
            groups[item.prompt, at.first_divergence_token_zero_based, at.right_id, at.left_id].append(item)
    places: dict[str, set[int]] = defaultdict(set)
    for prompt, index, _, _ in groups:
        places[prompt].add(index)
    found = [_site(key, items, asked[key[0]], sorted(places[key[0]]), words) for key, items in groups.items()]
    return sorted(found, key=lambda site: (-sum(seen.times for seen in site.seen), site.prompt, site.index))


def _site(
    key: tuple[str, int, int | None, int | None],
    items: Sequence[Compared],
    asked: Sequence[Stage],
    places: list[int],
    words: Mapping[int, str],
) -> Site:
    prompt, index, oracle_id, other_id = key
    stages = list(dict.fromkeys(item.stage for item in items))
    groups = list(dict.fromkeys(stage.group for stage in stages))
    seen = [
        Seen(
            group=group,
            times=sum(stage.group == group for stage in stages),
            asked=sum(stage.group == group for stage in asked),
        )
        for group in groups
    ]
    first = items[0]
    before, covered = around(first.oracle, first.other, index, words)
    prefix = None if not first.prompt_ids else [*first.prompt_ids, *first.oracle.ids[:index]]
    site = Site(
        prompt=prompt,
        index=index,
        oracle_id=oracle_id,
        other_id=other_id,
        oracle_text=None if oracle_id is None else words.get(oracle_id),
        other_text=None if other_id is None else words.get(other_id),
        against=list(dict.fromkeys(item.against for item in items)),
        seen=seen,
        passes=_sorted(stage.number for stage in stages),
        passes_asked=_sorted(stage.number for stage in asked),
        rungs=_sorted(stage.rung for stage in stages),
        rungs_asked=_sorted(stage.rung for stage in asked),
        places=places,
        stages=[f"{stage.label}, {stage.slot}" if stage.slot else stage.label for stage in stages],
        before=before,
        before_ids=covered,
        oracle_after=_after(first.oracle, before),
        other_after=_after(first.other, before),
        prefix=prefix,
        prompt_ids=len(first.prompt_ids or ()),
        margin=None,
        margin_in_one_piece=None,
        sentence="",
    )
    return site.model_copy(update={"sentence": site_sentence(site)})


def _sorted(values: Iterable[int | None]) -> list[int]:
    return sorted({value for value in values if value is not None})


def site_sentence(site: Site) -> str:
    """``always retiring-engineer at token 39, 413 → 411, in 4 of 4 passes``, or that it is one of several places."""
    oracle, other = ("the end" if x is None else str(x) for x in (site.oracle_id, site.other_id))
    where = f"{site.prompt} at token {site.index}, {oracle} → {other}"
    if len(site.places) == 1:
        head = f"always {where}"
    else:
        others = ", ".join(map(str, site.places))
        head = f"not always the same: {where}, one of {len(site.places)} places ({others})"
    return f"{head}, {how_often(site)}"


def how_often(site: Site) -> str:
    """In how many passes, answers or comparisons."""
    parts = []
    for seen in site.seen:
        if seen.group == BATCH:
            rungs = " ".join(f"c{rung}" for rung in site.rungs)
            passes = f"in {len(site.passes)} of {len(site.passes_asked)} passes"
            parts.append(f"{passes} ({rungs}; {seen.times} of {seen.asked} answers)")
        elif seen.group == SEQUENTIAL:
            parts.append("in the sequential answer" if seen.asked == 1 else f"in {seen.times} sequential answers")
        else:
            parts.append(f"in {seen.times} of {seen.asked} comparisons of {seen.group}")
    return " and ".join(parts)


def with_margins(
    found: Sequence[Site],
    said: Mapping[tuple[int, ...], Said],
    decoded: Mapping[tuple[int, ...], Said],
    words: Mapping[int, str],
) -> list[Site]:
    """The sites with the margins a server gave, and the texts of ids that only its answer told.

    Both are by prefix: ``said`` after it in one piece, ``decoded`` where the server came there by the same ids.
    ``words`` are the texts that chunks told; they come before a server's.
    """
    made = []
    for site in found:
        answer = said.get(tuple(site.prefix or ()))
        if answer is None or site.prefix is None:
            made.append(site)
            continue
        again = decoded.get(tuple(site.prefix))
        texts = {item.id: item.text for item in (*answer.named, *answer.top) if item.text is not None} | dict(words)
        answer = named(answer, texts)
        again = None if again is None else named(again, texts)
        in_one_piece = margin_of(site.oracle_id, site.other_id, answer)
        best = in_one_piece if again is None else margin_of(site.oracle_id, site.other_id, again, "decoded")
        update = {
            "margin": told(best, in_one_piece),
            "margin_in_one_piece": in_one_piece,
            "oracle_text": None if site.oracle_id is None else texts.get(site.oracle_id),
            "other_text": None if site.other_id is None else texts.get(site.other_id),
        }
        made.append(site.model_copy(update=update))
    return made
