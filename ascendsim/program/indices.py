"""The numbers of a loop nest: indices of axes, sums of them, tables looked up at them.

They are known when the nest is walked, as sums of registers (`walk.py`). What an instruction costs follows
from the class of each of its indices; an axis says which class that is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.program.reserved import Ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.int64]


class Axis:
    """Indices from 0 to `extent` - 1, of which those with equal `costs` cost the same.

    costs   by index the number of its class of costs; None: an index only says where, and all cost the same
    """

    # What most axes have, so that these are made fast. Of each class the first index that belongs to it.
    costs: Words | None = None
    first_of: Sequence[int] = (0,)

    def __init__(self, extent: int, costs: Sequence[int] | None = None) -> None:
        self.extent = extent
        if costs is not None:
            if len(costs) != extent:
                raise ProgramError(f"an axis of {extent} indices has {len(costs)} costs; give one for each")
            known: dict[int, int] = {}
            numbers = [known.setdefault(cost, len(known)) for cost in costs]
            if len(known) > 1:
                self.costs = np.array(numbers, np.int64)
                self.first_of = [numbers.index(number) for number in range(len(known))]

    @classmethod
    def of(cls, extent: int | Axis) -> Axis:
        """Return an axis as it is, or one whose indices only say where."""
        return extent if isinstance(extent, Axis) else cls(extent)


def alike(told: Sequence[Hashable]) -> list[int]:
    """Return a number for each of some things, equal ones for equal things."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(each, len(known)) for each in told]


class Number:
    """A number of a nest that is known when the nest is walked: a sum of registers."""

    # Of an index of an axis with classes of costs its class. Of a slot the first one of its ring.
    cost: Number | None = None
    ring = -1

    def __init__(self, terms: dict[int, int], const: int, axis: Axis, text: str) -> None:
        self._terms, self.const, self.axis, self.text = terms, const, axis, text

    @property
    def terms(self) -> dict[int, int]:
        """The factor of each register."""
        return self._terms

    def __add__(self, other: Number | int) -> Number:
        if isinstance(other, int):
            if other < 0:
                raise ProgramError(f"{self.text} + {other}: numbers of a nest are not below 0")
            extent, text = self.axis.extent + max(other, 0), f"{self.text} + {other}" if other else self.text
            moved = Number(self.terms, self.const + other, Axis(extent), text)
            moved.ring = self.ring
            return moved
        terms = dict(self.terms)
        for register, factor in other.terms.items():
            terms[register] = terms.get(register, 0) + factor
        extent = self.axis.extent + other.axis.extent - 1
        moved = Number(terms, self.const + other.const, Axis(extent), f"{self.text} + {other.text}")
        moved.ring = max(self.ring, other.ring)
        return moved

    def __mul__(self, factor: int) -> Number:
        terms = {register: each * factor for register, each in self.terms.items()}
        extent = (self.axis.extent - 1) * factor + 1
        return Number(terms, self.const * factor, Axis(extent), f"{self.text} * {factor}")

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        """Refuse to be compared: Python would go on with one answer for all tasks and indices.

        Raises   ProgramError
        """
        raise ProgramError(
            f"{self.text} is known only when the nest is walked; make a table of the condition by index, and "
            "take steps where it is not 0: with nest.when(table[index])"
        )

    def __bool__(self) -> bool:
        """Refuse, as `__eq__` does."""
        return self == 0

    __hash__ = object.__hash__

    def words(self) -> list[int]:
        """Return it as the walk reads it."""
        words = [self.const, 0]
        for register, factor in self.terms.items():
            if factor:
                words += register, factor
        words[1] = len(words) // 2 - 1
        return words


class TileNumber(Number):
    """The first slot of a tile of a ring."""

    def __init__(self, register: int, ring: Ring, text: str) -> None:
        super().__init__({register: 1}, 0, Axis(ring.first + len(ring.slots)), text)
        self._ring, self.ring = ring, ring.first

    @property
    def turn(self) -> Number:
        """The number of the tile in its ring, whose tiles are of one slot.

        Raises   ProgramError for others
        """
        if self._ring.width > 1:
            raise ProgramError(f"turn of {self.text}: only tiles of one slot are numbered")
        return Number(self.terms, -self._ring.first, Axis(self._ring.count), f"turn of {self.text}")


class Table:
    """Numbers by index: `table[i, j]`; `look` looks it up at some indices."""

    def __init__(self, look: Callable[[tuple[Number, ...]], Number], name: str) -> None:
        self._look, self._name = look, name

    def __getitem__(self, at: Number | tuple[Number, ...]) -> Number:
        given = at if isinstance(at, tuple) else (at,)
        look = self._look(given)
        look.text = f"{self._name}[{texts(given)}]"
        return look


class Span(NamedTuple):
    """Indices of an axis from `first` on, so many of them."""

    first: Number | int
    length: Number | int
    axis: Axis
    text: str


class Spans:
    """Runs of indices that follow each other: `spans[i]` are those of run i."""

    def __init__(self, first: Table, count: Table, axis: Axis, name: str) -> None:
        self._first, self._count, self._axis, self._name = first, count, axis, name

    def __getitem__(self, at: Number) -> Span:
        return Span(self._first[at], self._count[at], self._axis, f"{self._name}[{at.text}]")


def number_of(value: Number | int) -> Number:
    """Return a number as it is, or one that is always the same."""
    return value if isinstance(value, Number) else Number({}, value, Axis(value + 1), str(value))


def texts(numbers: Sequence[Number | int]) -> str:
    """Return what numbers are called, in a row."""
    return ", ".join([each.text if isinstance(each, Number) else str(each) for each in numbers])


def mixed(numbers: Sequence[Number], extents: Sequence[int]) -> Number:
    """Return the one number that tells some numbers below these extents."""
    terms: dict[int, int] = {}
    const, factor = 0, 1
    for number, extent in zip(reversed(numbers), reversed(extents), strict=True):
        const += number.const * factor
        for register, each in number.terms.items():
            terms[register] = terms.get(register, 0) + each * factor
        factor *= extent
    return Number(terms, const, Axis(max(1, factor)), "")


def unmixed(mixed: int, extents: Sequence[int]) -> list[int]:
    """Return the numbers that a number tells."""
    found = []
    for extent in reversed(extents):
        mixed, own = divmod(mixed, extent)
        found.append(own)
    return found[::-1]
