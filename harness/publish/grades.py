"""Evidence grades of a packet, A to D, with their reasons.

The letters say how much of what a packet claims was measured, never how fast or how good the model is:

- **D**, claimed only: for at least one claimed card count nothing shows a fresh-server pair with all its gates. A
  number without gates is a number someone typed.
- **C**: one fresh-server pair with all gates passed on every card count that is claimed. One pair shows that two
  servers agree once; two agreeing servers were called exact before and weren't (contract section 9, item 6).
- **B**: two fresh-server pairs with all gates passed on every card count that is claimed: two pairs of one
  configuration, or the MTP0 pair and the depth-D pair of one campaign, of which the second is also compared with the
  first (G3).
- **A**: B, and a clean-host replay: the packet's own steps, on a host that had none of it, gave its numbers again. No
  evidence records that (a campaign knows its host, not how the host came to be), so nothing grants A by default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LETTERS = ("A", "B", "C", "D")
PAIRS_FOR_B = 2
NO_REPLAY = "A needs a clean-host replay, and no evidence records one"
_WORDS = {0: "no fresh-server pair", 1: "one fresh-server pair", 2: "two fresh-server pairs"}


@dataclass(frozen=True)
class Grade:
    """A letter and why it isn't a better one."""

    letter: str
    reasons: tuple[str, ...]
    """one sentence without its full stop each"""


def pairs_in_words(count: int) -> str:
    """``two fresh-server pairs``"""
    return _WORDS.get(count, f"{count} fresh-server pairs")


def grade(pairs: Mapping[int, int], claimed: Sequence[int], *, clean_host_replay: bool = False) -> Grade:
    """The grade of a packet that claims ``claimed`` card counts, from its gated pairs by card count (see the module).

    ``pairs`` counts fresh-server pairs whose gates all passed. A packet that claims no card count is D.
    """
    counted = {cards: pairs.get(cards, 0) for cards in sorted(set(claimed))}
    reasons = [f"TP{cards}: {pairs_in_words(count)} with all gates passed" for cards, count in counted.items()]
    least = min(counted.values(), default=0)
    if not counted:
        return Grade("D", ("it claims no card count",))
    if least == 0:
        return Grade("D", (*reasons, "a claimed card count without a gated pair is claimed only"))
    if least < PAIRS_FOR_B:
        return Grade("C", (*reasons, "B needs two pairs on every claimed card count"))
    if not clean_host_replay:
        return Grade("B", (*reasons, NO_REPLAY))
    return Grade("A", (*reasons, "and a clean-host replay"))


def basis(found: Grade, day: str) -> str:
    """The sentence that stands as a grade's basis when no person wrote one. ``day`` is that of the newest evidence."""
    return f"{BASIS_PREFIX}{found.letter}: {'; '.join(found.reasons)}. Newest evidence of {day}."


BASIS_PREFIX = "By rule "
"""How ``basis`` begins; a basis that begins otherwise is a person's sentence"""
