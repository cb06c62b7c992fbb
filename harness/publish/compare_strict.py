"""Two strict campaigns, depth by depth: centers, TTFT, classes, prompts, and whether their answers are equal."""

from collections.abc import Sequence

from harness.evidence import schema
from harness.evidence.schema import Attempt, AttemptStatus, Evidence
from harness.measure import rates
from harness.measure.bootstrap import Middle, Ratio, class_balanced, median_of_prompts, ratio_of_tables, seed_of
from harness.measure.identity import compare_rows
from harness.measure.rows import Row
from harness.publish.compare_held import marks_of
from harness.publish.compared import Compared, Identity, Pair, verdict
from harness.publish.likeness import depth_pairs


def compare_strict(a: Evidence, b: Evidence) -> list[Pair]:
    """Each depth that both measured, and the measured ones where they differ."""
    return [_Depth(a, b, left, right).pair() for left, right in depth_pairs(a, b)]


class _Depth:
    """One depth of A beside one of B."""

    def __init__(self, a: Evidence, b: Evidence, left: int, right: int) -> None:
        self._ids = (a.campaign_id, b.campaign_id)
        self._marks = (marks_of(a), marks_of(b))
        self._pairs = (_pair_of(a, left), _pair_of(b, right))
        self._attempts = (_attempts_of(a, left), _attempts_of(b, right))
        self.name = f"mtp{left}" if left == right else f"mtp{left} in A, mtp{right} in B"
        self._rows = [[{row.prompt_id: row for row in item.rows} for item in side] for side in self._attempts]
        self._prompts = self._common()

    def _common(self) -> list[Row]:
        """One row for each prompt that every server of both sides answered, in A's order; empty when sides differ."""
        tables = [*self._rows[0], *self._rows[1]]
        if not self._rows[0] or not self._rows[1]:
            return []
        first = tables[0]
        same = [row for name, row in first.items() if all(_same_prompt(row, table.get(name)) for table in tables[1:])]
        return same if all(len(table) == len(same) for table in tables) else []

    def pair(self) -> Pair:
        a, b = self._pairs
        spreads = (a.spread if a else None, b.spread if b else None)
        center = self._figure(
            self.name,
            (a.center if a else None, b.center if b else None),
            "tokens/s",
            self._ratio("center", self._prompts, class_balanced),
        )
        ttfts = tuple(
            rates.center(found.ttft_a_ms, found.ttft_b_ms)
            if found is not None and found.ttft_a_ms is not None and found.ttft_b_ms is not None
            else None
            for found in self._pairs
        )
        ttft = self._figure(
            f"{self.name} TTFT",
            (ttfts[0], ttfts[1]),
            "ms",
            self._ratio("ttft", self._prompts, median_of_prompts, ttft=True),
        )
        return Pair(
            name=self.name,
            servers_a=len(self._attempts[0]),
            servers_b=len(self._attempts[1]),
            spread_a=spreads[0],
            spread_b=spreads[1],
            center=center,
            ttft=ttft,
            classes=self._classes(),
            prompts=[self._mean_of(row.prompt_id, [row]) for row in self._prompts],
            identity=self._identity(),
            verdict=verdict(center, spreads, "a pair"),
        )

    def _classes(self) -> list[Compared]:
        names = dict.fromkeys(row.prompt_class for row in self._prompts)
        return [self._mean_of(name, [row for row in self._prompts if row.prompt_class == name]) for name in names]

    def _mean_of(self, name: str, prompts: Sequence[Row]) -> Compared:
        """Median of some prompts on each server, averaged over the servers of a side."""
        values = []
        for side in self._tables(prompts, ttft=False):
            medians = [middle for line in side if (middle := rates.median(line)) is not None]
            values.append(sum(medians) / len(medians))
        return self._figure(
            name, (values[0], values[1]), "tokens/s", self._ratio(name, prompts, median_of_prompts, one_class=True)
        )

    def _tables(self, prompts: Sequence[Row], *, ttft: bool) -> list[list[list[float]]]:
        """Servers by prompts of each side."""
        return [
            [
                [
                    float((row.ttft_ms if ttft else row.tok_s_1_100) or 0.0)
                    for row in (table[p.prompt_id] for p in prompts)
                ]
                for table in side
            ]
            for side in self._rows
        ]

    def _ratio(
        self, name: str, prompts: Sequence[Row], middle: Middle, *, ttft: bool = False, one_class: bool = False
    ) -> Ratio | None:
        if not prompts:
            return None
        a, b = self._tables(prompts, ttft=ttft)
        classes = ["all" if one_class else row.prompt_class for row in prompts]
        seed = seed_of(*self._ids, self.name, name)
        return ratio_of_tables(a, b, classes, middle, seed)

    def _figure(self, name: str, values: tuple[float | None, float | None], unit: str, ratio: Ratio | None) -> Compared:
        why = ""
        if values[0] is None or values[1] is None:
            sides = " and ".join(side for side, value in zip("AB", values, strict=True) if value is None)
            why, ratio = f"{sides} has no such value, because a pair of complete attempts is missing", None
        elif ratio is None:
            why = "the prompts differ, so there is no interval"
            ratio = Ratio(value=values[1] / values[0], low=None, high=None)
        return Compared(
            name=name,
            a=values[0],
            b=values[1],
            unit=unit,
            ratio=ratio,
            marks_a=self._marks[0],
            marks_b=self._marks[1],
            why=why,
        )

    def _identity(self) -> Identity:
        """A prompt is equal when it is on each server of A against each server of B (contract section 4)."""
        names = list(dict.fromkeys(name for side in self._rows for table in side for name in table))
        equal, said = 0, []
        for name in names:
            sentence = self._first_difference(name)
            equal += sentence is None
            said += [] if sentence is None else [sentence]
        return Identity(equal=equal, total=len(names), differences=said)

    def _first_difference(self, name: str) -> str | None:
        for one, left in zip(self._attempts[0], self._rows[0], strict=True):
            for two, right in zip(self._attempts[1], self._rows[1], strict=True):
                rows = [[table[name]] if name in table else [] for table in (left, right)]
                found = compare_rows(rows[0], rows[1])
                if found.exact != 1:
                    what = [item.sentence() for item in found.divergences] or found.problems
                    return f"{what[0]}: {one.label} of A against {two.label} of B"
        return None if self._rows[0] and self._rows[1] else f"{name} has no complete server on a side"


def _same_prompt(row: Row, other: Row | None) -> bool:
    return (
        other is not None
        and (row.prompt_sha256, row.prompt_class) == (other.prompt_sha256, other.prompt_class)
        and other.tok_s_1_100 is not None
        and other.ttft_ms is not None
    )


def _pair_of(evidence: Evidence, depth: int) -> schema.Pair | None:
    return next((pair for pair in evidence.pairs if pair.depth == depth), None)


def _attempts_of(evidence: Evidence, depth: int) -> list[Attempt]:
    """The complete attempts of a depth with a median, the last one of each label."""
    latest = {attempt.label: attempt for attempt in evidence.attempts if attempt.depth == depth}
    return [
        attempt
        for attempt in latest.values()
        if attempt.status is AttemptStatus.COMPLETE and attempt.class_balanced_median is not None
    ]
