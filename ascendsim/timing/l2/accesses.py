"""The transfers of one phase in issue order, the tiles that they touch, and what L2 makes of each."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ascendsim.program.instruction import Traffic
from ascendsim.program.places import Gm, GmTensor
from ascendsim.timing.costing import PricedProgram
from ascendsim.timing.l2.lru import Residency, Stack

Share = Fraction | int


class Outcome(NamedTuple):
    """What L2 makes of a piece of traffic, as parts of its bytes.

    `fetched` of them cross the link from main memory for this core, which waits for `readers` times as many:
    the others cross for those that wait for the same. `pushed_out` as many dirty bytes leave on the way.
    The part `together` is read by several cores in one step.
    """

    fetched: Share = 0
    pushed_out: Share = 0
    readers: Share = 1
    together: Share = 0

    @property
    def uses_memory(self) -> bool:
        """Whether any byte crosses the link to main memory."""
        return bool(self.fetched or self.pushed_out)


HIT = Outcome()
# Instruction -> what L2 makes of its traffic, where that is not a plain hit.
Outcomes = Mapping[int, Outcome]
# Number of equal cores and the program of one of them.
Group = tuple[int, PricedProgram]


class Slice:
    """A slice of a tensor that transfers name, and the tiles that it stands for.

    The slice itself is `known`. Of a group of equal cores only the slice of one is; the others may have
    slices like it of their own, in one tile for each group.
    """

    __slots__ = ("bytes", "cores", "known", "own", "tensor")

    def __init__(self, tensor: GmTensor, size_bytes: int) -> None:
        self.tensor = tensor
        self.bytes = size_bytes
        self.cores: dict[int, int] = {}
        self.known = Residency(tensor.name, size_bytes)
        self.own: dict[int, Residency] = {}


class _Transfer(NamedTuple):
    group: int
    instruction: int
    slice: Slice
    traffic: Traffic


class _Access(NamedTuple):
    """Transfers that touch a tile together, and how many cores of each transfer's group do.

    `readers` of them wait for the same bytes.
    """

    tile: Residency
    readers: Share
    transfers: tuple[_Transfer, ...]
    cores: tuple[Share, ...]


class _Stay:
    """The time for which a tile stays in L2 after bytes of it were fetched: who has found them there."""

    __slots__ = ("cores", "fetched", "found", "groups")

    def __init__(self, fetched: int) -> None:
        self.fetched = fetched
        self.cores: Share = 0
        self.groups: set[int] = set()
        self.found: list[tuple[_Transfer, Share, Share]] = []

    def join(self, touch: _Access) -> None:
        """Let those of a touch join that are not here yet."""
        for transfer, cores in zip(touch.transfers, touch.cores, strict=True):
            if transfer.group not in self.groups:
                self.groups.add(transfer.group)
                self.cores += cores
                self.found.append((transfer, cores, touch.readers))


class PhaseAccesses:
    """One phase: all its transfers in step, the first of every core, then the second of every core, ..."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._cores = [cores for cores, _ in groups]
        slices: dict[Hashable, Slice] = {}
        self._lanes = [list(_transfers(group, *work, slices)) for group, work in enumerate(groups)]
        self._apart = cut(list(slices.values()))
        self._tiles = [tile for part in slices.values() for tile in (part.known, *part.own.values())]
        self._ends: dict[str, int] = {}
        for tile in self._tiles:
            self._ends[tile.tensor] = self._ends.get(tile.tensor, 0) + tile.size
        self._touched: dict[tuple[str, tuple[int, ...]], tuple[tuple[Share, ...], Share]] = {}
        self._accesses: list[_Access] = []
        for step in range(max((len(lane) for lane in self._lanes), default=0)):
            self._accesses += self._step([lane[step] for lane in self._lanes if step < len(lane)])

    def _step(self, transfers: list[_Transfer]) -> Iterator[_Access]:
        """Yield the accesses of one step: those of one slice together, then of those like it."""
        together: dict[tuple[int, str], list[_Transfer]] = {}
        for transfer in transfers:
            together.setdefault((id(transfer.slice), transfer.traffic.kind), []).append(transfer)
        for same in together.values():
            part = same[0].slice
            cores, total = self._touching(part.tensor.name, tuple([transfer.group for transfer in same]))
            yield _Access(part.known, total, tuple(same), cores)
            for transfer in same if part.own else ():
                if transfer.group in part.own:
                    others = (self._cores[transfer.group] - 1) * self._apart[part.tensor.name]
                    yield _Access(part.own[transfer.group], 1, (transfer,), (others,))

    def _touching(self, tensor: str, groups: tuple[int, ...]) -> tuple[tuple[Share, ...], Share]:
        """Return how many cores of each group touch the known slice that these groups name, and their sum."""
        key = tensor, groups
        if key not in self._touched:
            apart = self._apart[tensor]
            cores = tuple([1 + (self._cores[group] - 1) * (1 - apart) for group in groups])
            self._touched[key] = cores, sum(cores)
        return self._touched[key]

    def run(self, stack: Stack) -> tuple[Outcomes, ...]:
        """Send the phase through L2 and return what it makes of the traffic, group by group."""
        stack.begin()
        for tile in self._tiles:
            tile.resident = tile.dirty = 0
        walked = dict.fromkeys(self._ends, 0)
        last: dict[int, _Stay | None] = {}
        stays: list[_Stay] = []
        pushed = 0
        for touch in self._accesses:
            tile, traffic = touch.tile, touch.transfers[0].traffic
            if id(tile) not in last:
                last[id(tile)] = None
                stack.find(tile, self._ends[tile.tensor], walked[tile.tensor])
                walked[tile.tensor] += tile.size
            fetched, through = stack.touch(tile, traffic)
            pushed += through + stack.make_room()
            stay = last[id(tile)]
            if fetched:
                stay = last[id(tile)] = _Stay(fetched)
                stays.append(stay)
            if stay is not None and traffic.kind != "write":
                stay.join(touch)
        return self._outcomes(stays, pushed)

    def _outcomes(self, stays: Sequence[_Stay], pushed: int) -> tuple[Outcomes, ...]:
        """Say what every transfer meets, the mean over the cores of its group."""
        made = self.together()
        if pushed:
            self._push(pushed, made)
        # Equal outcomes are one object, here and below: timing looks them up by identity. Both sides are
        # kept, so that no identity is used twice.
        known: dict[Hashable, tuple[Outcome, Outcome]] = {}
        for stay in stays:
            for transfer, cores, readers in stay.found:
                moved = self._cores[transfer.group] * transfer.slice.bytes
                mine = made[transfer.group]
                before = mine.get(transfer.instruction, HIT)
                key = id(before), stay.fetched, cores, moved, stay.cores, readers
                if key not in known:
                    part = Fraction(stay.fetched * cores, moved) / stay.cores
                    known[key] = before, _both(before, part, readers)
                mine[transfer.instruction] = known[key][1]
        return made

    def together(self) -> tuple[dict[int, Outcome], ...]:
        """Say which bytes are read by several cores in one step, as if all of them were in L2."""
        made: tuple[dict[int, Outcome], ...] = tuple({} for _ in self._cores)
        known: dict[tuple[Share, int], Outcome] = {}
        for touch in self._accesses:
            if touch.readers > 1 and touch.transfers[0].traffic.kind == "read":
                for transfer, cores in zip(touch.transfers, touch.cores, strict=True):
                    key = cores, self._cores[transfer.group]
                    outcome = known.get(key)
                    if outcome is None:
                        outcome = known[key] = Outcome(together=_whole(Fraction(*key)))
                    made[transfer.group][transfer.instruction] = outcome
        return made

    def _push(self, pushed: int, made: tuple[dict[int, Outcome], ...]) -> None:
        """Let transfers carry what is pushed out: the reads, or the writes if more is written."""
        moved = {"read": 0, "write": 0}
        for lane in self._lanes:
            for transfer in lane:
                size = self._cores[transfer.group] * transfer.slice.bytes
                moved[_direction(transfer.traffic)] += size
        carrier = "read" if moved["read"] >= moved["write"] else "write"
        part = Fraction(pushed, moved[carrier])
        known: dict[int, tuple[Outcome, Outcome]] = {}
        for lane, mine in zip(self._lanes, made, strict=True):
            for transfer in lane:
                if _direction(transfer.traffic) == carrier:
                    before = mine.get(transfer.instruction, HIT)
                    if id(before) not in known:
                        known[id(before)] = before, before._replace(pushed_out=part)
                    mine[transfer.instruction] = known[id(before)][1]


def _both(outcome: Outcome, fetched: Share, readers: Share) -> Outcome:
    """Add fetched bytes to an outcome; a core waits for all that it waits for."""
    total = outcome.fetched + fetched
    waited = outcome.fetched * outcome.readers + fetched * readers
    return outcome._replace(fetched=_whole(Fraction(total)), readers=_whole(Fraction(waited) / total))


def cut(slices: Sequence[Slice]) -> dict[str, Share]:
    """Give tiles their sizes; return by tensor which part of the unknown slices is apart from the known.

    Slices that are not known lie apart as far as the tensor is large enough for them beside the known ones;
    for the rest they are the known ones. Known slices of more bytes than there are overlap, so each counts
    for its part of what there is.
    """
    sizes: dict[str, int] = {}
    known: dict[str, int] = {}
    others: dict[str, int] = {}
    for part in slices:
        name = part.tensor.name
        sizes[name] = part.tensor.size_bytes
        known[name] = known.get(name, 0) + part.bytes
        others[name] = others.get(name, 0) + part.bytes * (sum(part.cores.values()) - len(part.cores))
    apart: dict[str, Share] = {
        name: _whole(Fraction(max(0, min(others[name], size - known[name])), others[name] or 1))
        for name, size in sizes.items()
    }
    for part in slices:
        name = part.tensor.name
        if known[name] > sizes[name]:
            part.known.size = max(1, part.bytes * sizes[name] // known[name])
        if apart[name]:
            for group, cores in part.cores.items():
                if cores > 1:
                    part.own[group] = Residency(name, max(1, int(part.bytes * (cores - 1) * apart[name])))
    return apart


def _whole(share: Fraction) -> Share:
    """Return a share as an int where it is one; ints are faster."""
    return int(share) if share.denominator == 1 else share


def _transfers(
    group: int, cores: int, priced: PricedProgram, slices: dict[Hashable, Slice]
) -> Iterator[_Transfer]:
    """Yield the transfers of a group and note the slices that they name."""
    walked: dict[str, int] = {}
    instructions = priced.program.instructions
    for index in priced.moving:
        traffic = priced.prices[index].traffic
        assert traffic is not None
        name = traffic.tensor.name
        place = _place(instructions[index].gm)
        if place is None:
            # It does not say where, so it walks on through the tensor, and begins again at its end.
            begin = walked.get(name, 0)
            if begin + traffic.bytes > traffic.tensor.size_bytes:
                begin = 0
            walked[name] = begin + traffic.bytes
            place = begin, traffic.bytes
        key = name, place
        if key not in slices:
            slices[key] = Slice(traffic.tensor, traffic.bytes)
        slices[key].cores[group] = cores
        yield _Transfer(group, index, slices[key], traffic)


def _direction(traffic: Traffic) -> str:
    return "read" if traffic.kind == "read" else "write"


def _place(gm: Gm | None) -> Hashable:
    """Return the slice of a tensor as something that can be compared."""
    if gm is None:
        return None
    return tuple([(i.start, i.stop, i.step) if isinstance(i, slice) else i for i in gm.index])
