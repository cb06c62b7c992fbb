"""A seeded source of choices that gives the same answers on every Python: only ``Random.random`` is promised stable."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Source:
    """Choices, numbers and identifiers in a fixed order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._given: set[str] = set()

    def pick(self, among: Sequence[T]) -> T:
        """One of ``among``."""
        return among[int(self._random.random() * len(among))]

    def some(self, among: Sequence[T], count: int) -> list[T]:
        """``count`` different ones of ``among``, in the order drawn."""
        left = list(among)
        return [left.pop(int(self._random.random() * len(left))) for _ in range(count)]

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self._random.random() * (high - low + 1))

    def real(self, low: float, high: float, digits: int) -> float:
        """A number of ``digits`` decimals."""
        return round(low + self._random.random() * (high - low), digits)

    def chance(self, of: float) -> bool:
        """True in a share ``of`` all calls."""
        return self._random.random() < of

    def letters(self, alphabet: str, length: int) -> str:
        """``length`` letters, each drawn for itself."""
        return "".join(self.pick(alphabet) for _ in range(length))

    def code(self) -> str:
        """Something like ``QM-4071``, never the same twice."""
        while True:
            code = f"{self.letters('BCDFGHJKLMNPQRSTVWXZ', self.whole(2, 4))}-{self.whole(1000, 9999)}"
            if code not in self._given:
                self._given.add(code)
                return code

    def hexadecimal(self, length: int) -> str:
        """Lower-case digits of base 16."""
        return self.letters("0123456789abcdef", length)
