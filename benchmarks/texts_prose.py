"""Technical paragraphs from ``prose/templates/paragraphs.txt``: consistent figures, no sentence twice.

The file has word lists (``@name: a | b``) and kinds of paragraph (``# name``), each a row of places divided by ``-``
with one alternative sentence a line. ``{low..high}`` is a number with the decimals of ``low``; ``{name}`` is a word or
figure that stays the same throughout the paragraph. A quality has its unit after ``in``.
"""

import re
from pathlib import Path

from benchmarks.texts_random import Source

FOLDER = Path(__file__).resolve().parent / "prose"
TEMPLATES = FOLDER / "templates" / "paragraphs.txt"
SLOT = re.compile(r"\{([^{}]+)\}")
TITLES = {
    "procedure": "A trial",
    "description": "A machine described",
    "comparison": "Two variants compared",
    "fault": "A fault and its cause",
    "calculation": "An estimate",
    "upkeep": "A plan of upkeep",
    "interface": "An interface",
    "survey": "A survey",
}

Words = dict[str, list[str]]
Kinds = dict[str, list[list[str]]]


def handwritten() -> str:
    """The essays, in the order of their file names."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.txt")))


def templates() -> tuple[Words, Kinds]:
    """Word lists by name, and for each kind of paragraph its places with their alternatives."""
    words: Words = {}
    kinds: Kinds = {}
    places: list[list[str]] = []
    for line in TEMPLATES.read_text(encoding="utf-8").splitlines():
        if line.startswith("@"):
            name, _, values = line[1:].partition(": ")
            words[name] = values.split(" | ")
        elif line.startswith("# "):
            places = kinds[line[2:]] = [[]]
        elif line == "-":
            places.append([])
        elif line:
            places[-1].append(line)
    return words, kinds


def paragraphs(source: Source, size: int) -> str:
    """Headed paragraphs of at least ``size`` bytes together."""
    words, kinds = templates()
    used: set[str] = set()
    parts: list[str] = []
    written = 0
    while written < size:
        for kind in source.some(list(kinds), len(kinds)):
            facts = figures(source, words)
            sentences = []
            for place in kinds[kind]:
                tried = (fill(source, template, facts) for template in source.some(place, len(place)))
                sentence = next(text for text in tried if text not in used)
                used.add(sentence)
                sentences.append(sentence)
            parts.append(
                f"{TITLES[kind]}: {facts['thing']}, {facts['place']}, {facts['serial']}\n\n{' '.join(sentences)}\n"
            )
            written += len(parts[-1]) + 1
            if written >= size:
                break
    return "\n".join(parts)


def figures(source: Source, words: Words) -> dict[str, str]:
    """The words and figures of one paragraph; those that depend on others are computed."""
    facts = {name: source.pick(values) for name, values in words.items()}
    facts["quality"], _, facts["unit"] = facts["quality"].partition(" in ")
    for name in ("part", "crew", "cause"):
        facts[f"{name}2"] = source.pick([value for value in words[name] if value != facts[name]])
    facts["crew_cap"] = facts["crew"][0].upper() + facts["crew"][1:]
    facts["cause_short"] = source.pick(["dust", "frost", "damp", "vibration", "salt", "direct sun", "stray current"])
    before = source.real(21, 940, 1)
    after = round(before * source.real(0.41, 0.96, 3), 1)
    total, bad = source.whole(130, 2900), source.whole(4, 61)
    service, busy_share = source.whole(11, 240), source.real(0.31, 0.93, 3)
    rate = int(86_400 * busy_share / service)
    facts |= {
        "serial": source.code(),
        "code": source.code(),
        "before": str(before),
        "after": str(after),
        "difference": f"{before - after:.1f}",
        "percent": f"{100 * (before - after) / before:.1f}",
        "ratio": f"{after / before:.3f}",
        "low": f"{before * source.real(0.88, 0.985, 3):.1f}",
        "high": f"{before * source.real(1.02, 1.19, 3):.1f}",
        "total": str(total),
        "bad": str(bad),
        "good": str(total - bad),
        "service": str(service),
        "rate": str(rate),
        "rate_small": str(source.whole(9, 120)),
        "busy": f"{rate * service / 3600:.2f}",
        "util": f"{100 * rate * service / 86_400:.1f}",
        "place_rate": str(source.pick([1200, 2400, 4800, 9600, 19200, 38400, 57600, 115200])),
    }
    return facts


def fill(source: Source, template: str, facts: dict[str, str]) -> str:
    """The sentence, with an article that suits the word after it and a capital at its beginning."""

    def value(slot: re.Match[str]) -> str:
        low, dots, high = slot[1].partition("..")
        if not dots:
            return facts[slot[1]]
        digits = len(low.partition(".")[2])
        return f"{source.real(float(low), float(high), digits):.{digits}f}"

    text = re.sub(r"(\ba|^A) (?=[aeio])", r"\1n ", SLOT.sub(value, template))
    return text[0].upper() + text[1:]
