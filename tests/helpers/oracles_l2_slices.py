"""The slices of GM that the transfers of a phase name, and how many bytes of L2 they stand for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ascendsim.program.instruction import Traffic
from ascendsim.program.places import Gm, GmTensor
from ascendsim.timing.times import PricedProgram
from tests.helpers.oracles_l2_stack import Residency

Share = Fraction | int


class Slice:
    """A slice of a tensor that transfers name, and the residencies that it stands for.

    The slice itself is `known`. Of a group of equal cores only the slice of one is; the others may have
    slices like it of their own, in one residency for each group.
    """

    __slots__ = ("bytes", "cores", "known", "own", "tensor")

    def __init__(self, tensor: GmTensor, size_bytes: int) -> None:
        self.tensor = tensor
        self.bytes = size_bytes
        self.cores: dict[int, int] = {}
        self.known = Residency(tensor.name, size_bytes)
        self.own: dict[int, Residency] = {}


class SliceTransfer(NamedTuple):
    """A transfer as L2 sees it: whose it is, the slice that it names, and its traffic."""

    group: int
    instruction: int
    slice: Slice
    traffic: Traffic


def transfers_of(
    group: int, cores: int, priced: PricedProgram, slices: dict[Hashable, Slice]
) -> Iterator[SliceTransfer]:
    """Yield the transfers of a group in issue order and note the slices that they name."""
    newest: dict[str, int] = {}
    instructions = priced.program.instructions
    for index in priced.moving:
        traffic = priced.prices[index].traffic
        assert traffic is not None
        name = traffic.tensor.name
        place = _place(instructions[index].gm)
        if place is None:
            # It does not say where, so it goes on through the tensor, and begins again at its end.
            begin = newest.get(name, 0)
            if begin + traffic.bytes > traffic.tensor.size_bytes:
                begin = 0
            newest[name] = begin + traffic.bytes
            place = begin, traffic.bytes
        # Slices that overlap but differ count as two: to find what they have in common takes time for each
        # pair. `cut` corrects the sum of their bytes.
        key = name, place
        if key not in slices:
            slices[key] = Slice(traffic.tensor, traffic.bytes)
        slices[key].cores[group] = cores
        yield SliceTransfer(group, index, slices[key], traffic)


def cut(slices: Sequence[Slice]) -> dict[str, Share]:
    """Give residencies their sizes; return by tensor which part of the unknown slices is no known one.

    Slices that are not known lie apart as far as the tensor is large enough for them beside the known ones;
    for the rest they are the known ones. Known slices of more bytes than there are overlap, so each counts
    for its part of what there is.
    """
    # The pass knows the program of one core of a group. Where the others read follows from how much there is
    # to read: equal cores that cut a tensor among them fill it; if it is too small for that, they share it.
    sizes: dict[str, int] = {}
    known: dict[str, int] = {}
    others: dict[str, int] = {}
    for part in slices:
        name = part.tensor.name
        sizes[name] = part.tensor.size_bytes
        known[name] = known.get(name, 0) + part.bytes
        others[name] = others.get(name, 0) + part.bytes * (sum(part.cores.values()) - len(part.cores))
    apart: dict[str, Share] = {
        name: whole(Fraction(max(0, min(others[name], size - known[name])), others[name] or 1))
        for name, size in sizes.items()
    }
    for part in slices:
        name = part.tensor.name
        # At least a byte: what has none is never missed.
        if known[name] > sizes[name]:
            part.known.size = max(1, part.bytes * sizes[name] // known[name])
        if apart[name]:
            for group, cores in part.cores.items():
                if cores > 1:
                    part.own[group] = Residency(name, max(1, int(part.bytes * (cores - 1) * apart[name])))
    return apart


def whole(share: Fraction) -> Share:
    """Return a share as an int where it is one; ints are faster."""
    return int(share) if share.denominator == 1 else share


def _place(gm: Gm | None) -> Hashable:
    """Return the slice of a tensor as something that can be compared."""
    if gm is None:
        return None
    # Slices can be hashed from Python 3.12 on; the package runs on 3.11.
    return tuple([(i.start, i.stop, i.step) if isinstance(i, slice) else i for i in gm.index])
