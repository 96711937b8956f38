"""What L2 holds, decided in one pass over a kernel before it is timed.

The pass walks the transfers of all cores in issue order, in step: the first of every core, the second of
every core, and so on. L2 is a stack of tiles with the one touched last on top; what lies deeper than the
capacity has gone, a tile in part if it lies across the edge. So a larger L2 never misses more.

- **Tiles** are the slices of GM that transfers name. A read brings in what is missing. A write takes its
  place without a read and leaves the tile dirty; an atomic add reads what it adds to. A tensor that is not
  `cached` is looked up but not kept.
- **Many cores, one tile.** The pass knows one core of each group of equal cores, so its tiles stand for
  those of the group. Where all cores together touch more of a tensor than it has, they touch the same bytes:
  each byte is touched by `sharing` of them on average. Then the tiles of a tensor count for no more bytes
  than it has; bytes that are missing come once for all that share them, and each of these cores waits for
  them. Nobody is the first: so equal cores stay equal, and folding changes no cycle.
- **Write-back** happens in the background: of the bytes that enter L2 in a phase, each pushes out the same
  part of the dirty bytes that the phase pushes out. What is dirty at the end of the kernel stays.
- **Between phases** (and runs) tiles are cut differently. Of what was there only the amount is kept, per
  tensor; it goes first, from all tensors alike, and is found by a walk that comes in the same order, so at
  the end of the walk.
- **Start.** Cold: empty. Warm: as the same kernel leaves it that began cold. A warm kernel that fits misses
  nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.costing import CostBook, PricedProgram
from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.l2_stack import Change, Stack, Tile
from ascendsim.program import Gm, GmTensor, Kernel, Traffic

if TYPE_CHECKING:
    from ascendsim.profile import Profile

L2_STARTS = ("warm", "cold")


class Outcome(NamedTuple):
    """What L2 makes of a piece of traffic, as parts of its bytes.

    `fetched` of them come from main memory for it, `readers` cores waiting for the same; `pushed_out` as many
    dirty bytes go to main memory to make room.
    """

    fetched: Fraction | int = 0
    pushed_out: Fraction | int = 0
    readers: int = 1

    @property
    def uses_memory(self) -> bool:
        """Whether any byte crosses the link to main memory."""
        return bool(self.fetched or self.pushed_out)


HIT = Outcome()
# Instruction -> what L2 makes of its traffic, where that is not a plain hit.
Outcomes = Mapping[int, Outcome]
# Number of equal cores and the program of one of them.
Group = tuple[int, PricedProgram]


@dataclass(frozen=True, slots=True)
class L2Account:
    """For each phase and group of equal cores the outcomes, and the kernel's bytes by source."""

    outcomes: tuple[tuple[Outcomes, ...], ...]
    bytes: Mapping[str, int]


def account(kernel: Kernel, profile: Profile, l2_start: str = "warm") -> L2Account:
    """Build and price the programs of a kernel, and decide what L2 makes of their traffic.

    Raises   AscendSimError for an unknown `l2_start`; ProgramError for traffic of a tensor that the kernel
             does not list
    """
    book = CostBook(profile)
    phases = [
        [(len(cores), book.price(work.build(), work.core.kind)) for work, cores in phase.folded()]
        for phase in kernel.phases
    ]
    return account_of(phases, kernel, profile, l2_start)


def account_of(
    phases: Sequence[Sequence[Group]], kernel: Kernel, profile: Profile, l2_start: str
) -> L2Account:
    """Decide what L2 makes of the traffic of programs already priced, group by group."""
    if l2_start not in L2_STARTS:
        raise AscendSimError(f"l2_start is {l2_start!r}; it must be one of {', '.join(L2_STARTS)}")
    moved = _bytes_moved(phases, kernel)
    capacity = profile.l2.capacity_bytes
    sizes = [tensor.size_bytes for tensor in kernel.tensors.values() if tensor.cached]
    if l2_start == "warm" and sum(sizes) <= capacity and len(sizes) == len(kernel.tensors):
        outcomes: tuple[tuple[Outcomes, ...], ...] = tuple(tuple({} for _ in groups) for groups in phases)
        return L2Account(outcomes, moved | {"memory": 0, "memory_read": 0, "memory_write": 0})
    walks = [_Walk(groups) for groups in phases]
    stack = Stack(capacity)
    if l2_start == "warm":
        for walk in walks:
            walk.run(stack)
        stack.forget_bytes()
    outcomes = tuple(walk.run(stack) for walk in walks)
    memory = stack.read_bytes + stack.written_bytes
    by_memory = {"memory": memory, "memory_read": stack.read_bytes, "memory_write": stack.written_bytes}
    return L2Account(outcomes, moved | by_memory)


def _bytes_moved(phases: Sequence[Sequence[Group]], kernel: Kernel) -> dict[str, int]:
    """Return the bytes that the cores move through L2."""
    moved = {"l2_read": 0, "l2_write": 0}
    for groups in phases:
        for cores, priced in groups:
            for (_, traffic), count in priced.traffic.items():
                if traffic.tensor.name not in kernel.tensors:
                    raise ProgramError(
                        f"kernel {kernel.name} moves bytes of {traffic.tensor.name}, which is not among its "
                        f"tensors {', '.join(kernel.tensors)}; add it to Kernel.tensors"
                    )
                moved["l2_read" if traffic.kind == "read" else "l2_write"] += cores * count * traffic.bytes
    return moved


class _Touch(NamedTuple):
    """One transfer of a group: which tile, and as part of which tensor."""

    group: int
    instruction: int
    tile: Tile
    traffic: Traffic


class _Walk:
    """The transfers of one phase in issue order, and the tiles that they touch."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._cores = [cores for cores, _ in groups]
        named: dict[Hashable, tuple[GmTensor, int]] = {}
        lanes = [
            list(_touched(number, priced, named, cores)) for number, (cores, priced) in enumerate(groups)
        ]
        self._ends: dict[str, int] = {}
        for tensor, size in named.values():
            self._ends[tensor.name] = self._ends.get(tensor.name, 0) + size
        # How many cores touch each byte of a tensor, on average.
        self._sharing = {
            tensor.name: max(Fraction(1), Fraction(self._ends[tensor.name], max(1, tensor.size_bytes)))
            for tensor, _ in named.values()
        }
        self._tiles = {
            key: Tile(tensor.name, max(1, int(size / self._sharing[tensor.name])))
            for key, (tensor, size) in named.items()
        }
        self._ends = dict.fromkeys(self._ends, 0)
        for tile in self._tiles.values():
            self._ends[tile.tensor] += tile.size
        self._touches = [
            _Touch(group, index, self._tiles[key], traffic) for group, index, key, traffic in _in_step(lanes)
        ]

    def run(self, stack: Stack) -> tuple[Outcomes, ...]:
        """Send the phase through L2 and return what it makes of the traffic, group by group."""
        stack.begin()
        for tile in self._tiles.values():
            tile.resident = tile.dirty = 0
        walked = dict.fromkeys(self._ends, 0)
        met: set[int] = set()
        changes: list[Change] = []
        pushed = entered = 0
        for touch in self._touches:
            tile = touch.tile
            if id(tile) not in met:
                met.add(id(tile))
                stack.find(tile, self._ends[tile.tensor], walked[tile.tensor])
                walked[tile.tensor] += tile.size
            change = stack.touch(tile, touch.traffic)
            pushed += stack.make_room()
            entered += change.entered
            changes.append(change)
        return self._outcomes(changes, Fraction(pushed, max(1, entered)))

    def _outcomes(self, changes: Sequence[Change], pushed_per_byte: Fraction) -> tuple[Outcomes, ...]:
        """Say what every transfer meets, as parts of its bytes."""
        made: tuple[dict[int, Outcome], ...] = tuple({} for _ in self._cores)
        known: dict[tuple[Change, str, int], Outcome] = {}
        for touch, change in zip(self._touches, changes, strict=True):
            if not any(change):
                continue
            key = change, touch.tile.tensor, touch.tile.size
            outcome = known.get(key)
            if outcome is None:
                outcome = known[key] = self._outcome(touch.tile, change, pushed_per_byte)
            if outcome.uses_memory:
                made[touch.group][touch.instruction] = outcome
        return made

    def _outcome(self, tile: Tile, change: Change, pushed_per_byte: Fraction) -> Outcome:
        sharing = self._sharing[tile.tensor]
        whole = tile.size * sharing
        pushed = change.entered * pushed_per_byte + change.written_through
        return Outcome(change.fetched / whole, pushed / whole, min(int(sharing), sum(self._cores)))


def _touched(
    number: int, priced: PricedProgram, named: dict[Hashable, tuple[GmTensor, int]], cores: int
) -> Iterator[tuple[int, int, Hashable, Traffic]]:
    """Yield (group, instruction, tile, traffic) of every transfer; note new tiles with their chip bytes."""
    walked: dict[str, int] = {}
    for index, instruction in enumerate(priced.program.instructions):
        traffic = priced.prices[index].traffic
        if traffic is None:
            continue
        name = traffic.tensor.name
        place = _place(instruction.gm)
        if place is None:
            # It does not say where, so it walks on through the tensor, and begins again at its end.
            begin = walked.get(name, 0)
            if begin + traffic.bytes > traffic.tensor.size_bytes:
                begin = 0
            walked[name] = begin + traffic.bytes
            place = begin, traffic.bytes
        key = number, name, place
        if key not in named:
            named[key] = traffic.tensor, cores * traffic.bytes
        yield number, index, key, traffic


def _in_step(lanes: list[list[Any]]) -> Iterator[Any]:
    """Yield the first of every lane, then the second of every lane, and so on."""
    for step in range(max((len(lane) for lane in lanes), default=0)):
        for lane in lanes:
            if step < len(lane):
                yield lane[step]


def _place(gm: Gm | None) -> Hashable:
    """Return the slice of a tensor as something that can be compared."""
    if gm is None:
        return None
    return tuple([(i.start, i.stop, i.step) if isinstance(i, slice) else i for i in gm.index])
