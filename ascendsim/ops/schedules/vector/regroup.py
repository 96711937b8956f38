"""Schedule of the change between weights of one group and of many, both in the cube's layout (TransData).

    for each group, kernel depth, run of lanes and taps that is mine:
        GM -> UB            MTE2
        turn                V
        UB -> GM            MTE3    into zeros that a MemSet has written before

The channels of each group begin a new C0 there, or where the group lies in a merged one. Lanes are the
channels along C0. Whole blocks move with all of their taps; a part of a block is moved for one tap at a time.
That, one move after the other, is an assumption: the vendor's loops are published nowhere. Two measured
kernels bear out that the time goes with groups and taps, not with bytes.

    weights     one (1, KD, C1, T, C0, columns)   many (merged, KD, C1, T, C0, columns), read by grad_input
    gradients   one (1, KD, rows, C1, T, C0)      many (merged, KD, rows, C1, T, C0), as grad_weight is made

One group has the channels of B along C0 and of all S beside them; so have many, but for weights whose
channels of S are added up (`reduces_small`): these have B beside them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import CapacityError
from ascendsim.frozen import cached_property
from ascendsim.instructions.relayout import Turn, TurnTile
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.ops.problems.convolution import C0_BYTES, groups_of
from ascendsim.ops.schedules.vector.elementwise import runs, vector_cores
from ascendsim.ops.schedules.vector.relayout import Index, part
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram
from ascendsim.program.walk import Axis, alike

if TYPE_CHECKING:
    from ascendsim.program.places import CoreMemory


class Move(NamedTuple):
    """A part of the weights of one group: lanes along C0, channels `across` them, and taps of a depth."""

    group: int
    depth: int
    lanes: range
    across: range
    taps: range


@dataclass(frozen=True)
class Regroup:
    """A change between weights of one group and of many.

    groups         of the convolution; `factor` of them make a merged one
    small, big     channels of one group, S and B
    splits         True: from one group to many; False: back
    gradient       whether it is one of a grad_weight; else of weights
    reduces_small  along C0 many groups have the channels of S
    """

    one: GmTensor
    many: GmTensor
    groups: int
    factor: int
    small: int
    big: int
    splits: bool
    gradient: bool = False
    reduces_small: bool = False

    @property
    def recipe(self) -> Hashable:
        """A key of the change, besides its tensors."""
        channels = self.groups, self.factor, self.small, self.big
        return Regroup, *channels, self.splits, self.gradient, self.reduces_small

    @property
    def source(self) -> GmTensor:
        """The tensor that is read."""
        return self.one if self.splits else self.many

    @property
    def target(self) -> GmTensor:
        """The tensor that is written, where a MemSet has been before."""
        return self.many if self.splits else self.one

    @property
    def c0(self) -> int:
        """Lanes of a block."""
        return self.one.shape[5 if self.gradient else 4]

    @property
    def taps(self) -> int:
        """Taps of a kernel depth."""
        return self.one.shape[4 if self.gradient else 3]

    @property
    def _lanes(self) -> tuple[int, int]:
        """Channels of a group along C0 of many groups, and across."""
        return (self.small, self.big) if self.reduces_small else (self.big, self.small)

    def whole(self, move: Move) -> bool:
        """Return whether the lanes of a move are whole blocks on both sides."""
        return (move.group % self.factor * self._lanes[0] + move.lanes.start) % self.c0 == 0 and (
            len(move.lanes) % self.c0 == 0
        )

    def moves(self, most_bytes: int, *, at_once: bool = False) -> Iterator[Move]:
        """Yield all moves of at most `most_bytes` each.

        at_once   every move has all taps, whatever its lanes are

        Raises   CapacityError if not even one tap of a block of lanes fits
        """
        across = self._lanes[1]
        # With S along C0 a move reads all of B, filled up to whole groups.
        beside = groups_of(self.big, self.c0) * self.c0 if self.reduces_small else 1
        fitting = most_bytes // (self.one.itemsize * beside)
        if fitting < self.c0:
            raise CapacityError(
                f"regrouping weights: a block of {self.c0} lanes with {beside} channels beside each takes "
                f"{self.c0 * beside * self.one.itemsize} bytes, and half of UB has {most_bytes}; "
                "use fewer channels in a group"
            )
        for group in range(self.groups):
            for run in self._runs(group, fitting):
                wide = across if self.reduces_small else max(1, min(across, fitting // len(run)))
                size = len(run) * (1 if self.reduces_small else wide)
                first = Move(group, 0, run, range(across), range(self.taps))
                taps = fitting // size if at_once or self.whole(first) else 1
                for depth in range(self.one.shape[1]):
                    for some in runs(range(across), wide):
                        for own in runs(range(self.taps), max(1, taps)):
                            yield Move(group, depth, run, some, own)

    def _runs(self, group: int, most: int) -> Iterator[range]:
        """Cut the lanes of a group at the blocks of both sides; whole blocks stay together, up to so many."""
        c0, (count, _) = self.c0, self._lanes
        base, at = group % self.factor * count, 0
        if base % c0 == 0:
            at = count // c0 * c0
            yield from runs(range(at), most // c0 * c0)
        while at < count:
            # Of one group, too, blocks end, unless its lanes are other channels.
            left = c0 - (base + at) % c0
            stop = min(count, at + (left if self.reduces_small else min(left, c0 - at % c0)))
            yield range(at, stop)
            at = stop

    def sides(self, move: Move) -> tuple[Index, Index]:
        """Return where a move reads, and where it writes."""
        group, depth, lanes, across, taps = move
        merged, place = divmod(group, self.factor)
        count, beside = self._lanes
        c1, c0 = self._blocks(place * count + lanes.start, len(lanes))
        others = _moved(across, place * beside)
        of_all = _moved(lanes if self.reduces_small else across, group * self.small)
        own = (slice(None), slice(None)) if self.reduces_small else self._blocks(lanes.start, len(lanes))
        many: Index = (merged, depth, c1, part(taps), c0, others)
        one: Index = (0, depth, own[0], part(taps), own[1], of_all)
        if self.gradient:
            many, one = (
                (merged, depth, others, c1, part(taps), c0),
                (0, depth, of_all, own[0], part(taps), own[1]),
            )
        return (one, many) if self.splits else (many, one)

    def _blocks(self, first: int, count: int) -> tuple[slice, slice]:
        """Return groups of C0 and lanes of them: whole groups, or a part of one."""
        group, lane = divmod(first, self.c0)
        if lane == 0 and count % self.c0 == 0:
            return slice(group, group + count // self.c0), slice(0, self.c0)
        return slice(group, group + 1), slice(lane, lane + count)

    def turn(self, move: Move) -> Turn:
        """Return the exchange of a move's axes: none, unless S comes to lie along C0."""
        lanes, taps = len(move.lanes), len(move.taps)
        blocks = (lanes // self.c0, self.c0) if self.whole(move) else (1, lanes)
        if self.reduces_small:
            groups = groups_of(self.big, self.c0)
            read, made = (groups, taps, self.c0, lanes), (blocks[0], taps, blocks[1])
            split, merged = (groups, taps, self.c0, *blocks), (*made, groups * self.c0)
            return Turn(read, split, (3, 1, 4, 0, 2), merged, (*made, self.big))
        shape: tuple[int, ...] = (blocks[0], taps, blocks[1], len(move.across))
        if self.gradient:
            shape = (len(move.across), blocks[0], taps, blocks[1])
        return Turn(shape, shape, (0, 1, 2, 3), shape, shape)

    def parts(self, move: Move) -> int:
        """Return the number of partial blocks that a move writes; none if its blocks are whole."""
        return 0 if self.whole(move) else len(move.across) * len(move.taps)

    def extents(self, move: Move) -> tuple[int, ...]:
        """Return a key of the cost of a move."""
        return len(move.lanes), len(move.across), len(move.taps), self.whole(move)


def _moved(own: range, by: int) -> slice:
    return slice(own.start + by, own.stop + by)


def regroup(profile: Profile, change: Regroup) -> Phase:
    """Return the phase that writes the weights of all groups among zeros.

    Raises   CapacityError if UB does not hold a block of lanes of one tap
    """
    half = profile.buffers["UB"].capacity_bytes // 2
    return Phase("regroup", Deferred(partial(_work, profile, change, half)), partial(_at_once, change), True)


def _at_once(change: Regroup, memory: CoreMemory) -> None:
    """Write the weights of all groups: what the programs make, sooner."""
    source = memory.array(change.source)
    for move in change.moves(change.one.size_bytes + change.many.size_bytes, at_once=True):
        read, write = change.sides(move)
        memory.store(Gm(change.target, write), change.turn(move).turned(source[read]), atomic=False)


def _work(profile: Profile, change: Regroup, half: int) -> tuple[CoreWork, ...]:
    """Return the work of every core: equal runs of moves, on as few cores as that takes."""
    cores, programs = vector_cores(profile), _RegroupPrograms(profile, change, half)
    moves = programs.moves
    shares = runs(range(len(moves)), max(1, -(-len(moves) // len(cores))))
    return tuple(
        CoreWork(core, tuple([change.extents(moves[at]) for at in share]), partial(programs.of, share))
        for core, share in zip(cores, shares, strict=False)
    )


@dataclass(frozen=True, eq=False)
class _RegroupPrograms:
    """The programs of the cores, which share a nest."""

    profile: Profile
    change: Regroup
    half: int

    def of(self, share: range) -> NestProgram:
        """Return the program of a core that has these moves."""
        return NestProgram(self._nest, np.array(share)[:, None])

    @cached_property
    def moves(self) -> list[Move]:
        """All moves, group after group."""
        return list(self.change.moves(self.half))

    @cached_property
    def _nest(self) -> RegroupNest:
        return RegroupNest(self.profile, self.change, self.moves)


class RegroupNest(Nest):
    """Moves, one after the other: nothing overlaps."""

    def __init__(self, profile: Profile, change: Regroup, moves: list[Move]) -> None:
        super().__init__(profile, "regroup")
        self.change, self.moves = change, moves
        kinds = [change.extents(move) for move in moves]
        largest = {kind: change.turn(move) for kind, move in zip(kinds, moves, strict=True)}
        elements = max([max(prod(turn.padded), prod(turn.kept)) for turn in largest.values()])
        blocks = groups_of(elements * change.one.itemsize, C0_BYTES)
        (tile,) = self.slots("UB", blocks * C0_BYTES, "tile")
        (move,) = self.task(move=Axis(len(moves), alike(kinds)))
        for make in (self.fetch, self.turn, self.leave):
            self.emit(make, [tile], [move])

    def fetch(self, tile: Slot, move: int) -> CopyGmToUb:
        """Bring the weights of a move into UB."""
        change, own = self.change, self.moves[move]
        shape = change.turn(own).padded
        place = Gm(change.source, change.sides(own)[0])
        return CopyGmToUb(tile, place, prod(shape) * change.one.itemsize, shape)

    def turn(self, tile: Slot, move: int) -> TurnTile:
        """Turn them in place, and parts of blocks to their lanes."""
        change, own = self.change, self.moves[move]
        return TurnTile(tile, tile, change.turn(own), change.one.itemsize, 0, change.parts(own))

    def leave(self, tile: Slot, move: int) -> CopyUbToGm:
        """Bring them to their places."""
        change, own = self.change, self.moves[move]
        size = prod(change.turn(own).kept) * change.one.itemsize
        place = Gm(change.target, change.sides(own)[1])
        return CopyUbToGm(place, tile, size, False, change.parts(own))
