"""The transfers of a phase as numbers: a lane for each group of equal cores, with traffics and slices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.instruction import Traffic
from ascendsim.program.places import Gm
from ascendsim.timing.costing import PricedProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A team of cores as L2 needs it: how many equal ones, and the program of one of them.
Group = tuple[int, PricedProgram]


class Lane(NamedTuple):
    """The transfers of one group of `cores` equal cores, in issue order.

    Shapes   `traffics` and `slices` (transfers)
    Types    `traffics` int32, numbers of `PhaseLanes.traffics`; `slices` int64, any numbers: equal ones name
             the same slice of global memory, and each belongs to one tensor
    """

    cores: int
    traffics: NDArray[np.int32]
    slices: NDArray[np.int64]


class PhaseLanes(NamedTuple):
    """All transfers of one phase; `traffics` are the distinct ones that its lanes name by number."""

    traffics: tuple[Traffic, ...]
    lanes: tuple[Lane, ...]


def lanes_of(groups: Sequence[Group]) -> PhaseLanes:
    """Return the transfers of priced programs; slices are numbered in the order in which they are met."""
    traffics: dict[Traffic, int] = {}
    slices: dict[Hashable, int] = {}
    lanes = tuple([_lane(cores, priced, traffics, slices) for cores, priced in groups])
    return PhaseLanes(tuple(traffics), lanes)


def _lane(
    cores: int, priced: PricedProgram, traffics: dict[Traffic, int], slices: dict[Hashable, int]
) -> Lane:
    """Return the transfers of one program; give new traffics and slices the next numbers."""
    newest: dict[str, int] = {}
    numbers: list[int] = []
    named: list[int] = []
    # Equal prices are one object, so its identity finds the number without looking at the figures.
    known: dict[int, int] = {}
    instructions, prices = priced.program.instructions, priced.prices
    for index in priced.moving:
        traffic = prices[index].traffic
        assert traffic is not None
        number = known.get(id(traffic))
        if number is None:
            number = known[id(traffic)] = traffics.setdefault(traffic, len(traffics))
        place = _place(instructions[index].gm)
        if place is None:
            place = next_place(traffic, newest)
        numbers.append(number)
        # Slices that overlap but differ count as two: to find what they have in common takes time for each
        # pair. `slices.py` corrects the sum of their bytes.
        named.append(slices.setdefault((traffic.tensor.name, place), len(slices)))
    return Lane(cores, np.array(numbers, np.int32), np.array(named, np.int64))


def next_place(traffic: Traffic, newest: dict[str, int]) -> tuple[int, int]:
    """Return the slice of a transfer that names none: it goes on through its tensor, and then again."""
    begin = newest.get(traffic.tensor.name, 0)
    if begin + traffic.bytes > traffic.tensor.size_bytes:
        begin = 0
    newest[traffic.tensor.name] = begin + traffic.bytes
    return begin, traffic.bytes


def _place(gm: Gm | None) -> Hashable:
    """Return the slice of a tensor as something that can be compared."""
    if gm is None:
        return None
    return tuple([comparable(part) for part in gm.index])


def comparable(part: Any) -> Hashable:
    """Return a part of an index as something that can be compared and hashed."""
    # Slices can be hashed from Python 3.12 on; the package runs on 3.11.
    return (part.start, part.stop, part.step) if isinstance(part, slice) else part
