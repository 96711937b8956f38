"""Bytes at every level of the memory, by operand, counted from the programs of the kernels of a call.

    memory, L2         what crosses between them and what cores ask of L2, in whole sectors
    L1, L0A, L0B, L0C  tiles without what fills up their last fractals
    UB                 tiles, and what vector instructions read and write of them

Every instruction says what it touches (`touched_bytes`); how often each comes the walk of its nest says, and
equal cores are counted as one. A tile belongs to the tensor that it was copied from; one that is computed, to
the tensor that it goes to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.instructions.cube import Mmad
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.results import KernelTraffic, LevelBytes
from ascendsim.profile import Profile
from ascendsim.profile.schema import LEVELS
from ascendsim.program.instruction import PIPES, Instruction
from ascendsim.program.places import Slot, bare
from ascendsim.program.program import NestProgram, Program
from ascendsim.timing.compiled_phase import memory_reads

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.program.kernel import Kernel

# Bytes of no single operand: dirty ones that leave L2, and tiles that go nowhere.
ANY = "any"


@default_arithmetic
def kernel_traffic(result: KernelResult, profile: Profile) -> KernelTraffic:
    """Count the bytes of a timed kernel.

    Of bytes that L2 does not hold, those that come are those of a tensor; those that leave are dirty bytes of
    any. An atomic add is a write.
    """
    kernel = result.kernel
    sizes: dict[tuple[str, str, bool], int] = defaultdict(int)
    macs: Counter[str] = Counter()
    held = {"L2": (sum(tensor.size_bytes for tensor in kernel.tensors.values()), profile.l2.capacity_bytes)}
    for program, cores in _programs(kernel):
        for made, times, touched in _counted(program, profile):
            for level, operand, written, size in touched:
                sizes[level, operand, written] += cores * times * size
            if isinstance(made, Mmad):
                macs[made.compute_dtype] += cores * times * made.m * made.k * made.n
        for buffer, size in program.buffer_bytes.items():
            if (level := bare(buffer)) in LEVELS:
                most = held.get(level, (0, 0))[0]
                held[level] = max(most, size), profile.buffers[level].capacity_bytes
    for tensor, size in memory_reads(kernel, profile, result.l2_start).items():
        sizes["memory", tensor, False] = size
    sizes["memory", ANY, True] = result.bytes["memory_write"]
    return KernelTraffic(result.name, tuple(_moves(sizes, kernel)), held, dict(macs))


def _programs(kernel: Kernel) -> Iterator[tuple[Program, int]]:
    """Yield each program, and the number of cores that run it."""
    for phase in kernel.phases:
        for work, cores in phase.folded():
            yield work.build(), len(cores)


def _counted(program: Program, profile: Profile) -> Iterator[tuple[Instruction, int, list[_Touched]]]:
    """Yield instructions, how often each comes on a core, and what one of them touches."""
    counted = program.counted()
    tiles = _tiles(counted, ring_of if isinstance(program, NestProgram) else attrgetter("index"))
    for (made, times), own in zip(counted, tiles, strict=True):
        yield made, times, list(_touched(made, own, profile))


def _moves(sizes: Mapping[tuple[str, str, bool], int], kernel: Kernel) -> Iterator[LevelBytes]:
    for level in LEVELS:
        operands = dict.fromkeys(operand for at, operand, _ in sizes if at == level)
        for operand in operands:
            tensor = kernel.tensors.get(operand)
            read, written = (sizes.get((level, operand, way), 0) for way in (False, True))
            if read or written:
                yield LevelBytes(level, operand, read, written, tensor.size_bytes if tensor else 0)


class _Tile:
    """Something in a place: the tensor that it was copied from, else the tile that it becomes a part of.

    `stored` are the tensors to which it goes as it is: one of several where the nest has a choice.
    """

    __slots__ = ("owner", "part_of", "stored")

    def __init__(self, owner: str = "") -> None:
        self.owner, self.part_of = owner, self
        self.stored: set[str] = set()

    @property
    def used(self) -> bool:
        """Whether it is known whose it is, so that whatever comes next is another tile."""
        return bool(self.owner or self.stored) or self.part_of is not self

    @property
    def tensor(self) -> str:
        """The tensor that it belongs to."""
        if not self.owner:
            self.owner = ANY  # of tiles that are made of each other
            self.owner = "+".join(sorted(self.stored)) or self.part_of.tensor
        return self.owner


def _tiles(
    counted: Sequence[tuple[Instruction, int]], place_of: Callable[[Slot], Hashable]
) -> list[list[_Tile]]:
    """Return the tiles that each instruction reads and writes.

    All are gone through twice: in a loop what stands first may read what the last one has written.
    """
    held: dict[Hashable, _Tile] = {}
    found: list[list[_Tile]] = []
    for _ in range(2):
        found = [_uses(made, held, place_of) for made, _ in counted]
    return found


def _uses(
    made: Instruction, held: dict[Hashable, _Tile], place_of: Callable[[Slot], Hashable]
) -> list[_Tile]:
    """Return the tiles that an instruction reads and writes, and note what it leaves in its places."""
    reads = [held.setdefault(place_of(slot), _Tile()) for slot in made.reads]
    tensor = made.gm.tensor.name if made.gm is not None else ""
    for tile in reads:
        tile.stored.update([tensor] * bool(tensor))
    # What is not read in full, or is added to, stays what it is.
    sources = [tile for tile, size in zip(reads, _bytes_of(made), strict=False) if size]
    copied = sources[0].owner if len(sources) == 1 else tensor
    for slot in made.writes:
        place, kept = place_of(slot), slot in made.reads
        # Zeros are a part of what is copied between them; of forms of one emitter one comes for another.
        if not kept and held.get(place, _USED).used:
            held[place] = _Tile()
        target = held[place]
        target.owner = target.owner or copied
        for tile in reads:
            if tile is not target:
                tile.part_of = target
    return reads + [held[place_of(slot)] for slot in made.writes]


_USED = _Tile(ANY)


def _bytes_of(made: Instruction) -> tuple[int, ...]:
    """Return `touched_bytes`; whole slots of an instruction that is no `Command`."""
    known: tuple[int, ...] = getattr(made, "touched_bytes", ())
    return known or tuple([slot.size_bytes for slot in (*made.reads, *made.writes)])


def ring_of(slot: Slot) -> Hashable:
    """Return the place of a slot in a nest: all tiles of a ring are alike."""
    return slot.buffer, slot.name.partition("[")[0]


class _Touched(NamedTuple):
    level: str
    operand: str
    written: bool
    size: int


def _touched(made: Instruction, tiles: Sequence[_Tile], profile: Profile) -> Iterator[_Touched]:
    """Yield what an instruction reads and writes at each level."""
    uses = [*((slot, False) for slot in made.reads), *((slot, True) for slot in made.writes)]
    for (slot, written), tile, size in zip(uses, tiles, _bytes_of(made), strict=True):
        if (level := bare(slot.buffer)) in LEVELS and size:
            yield _Touched(level, tile.tensor, written, size)
    if made.gm is not None and (moved := made.cost(profile).traffic) is not None:
        yield _Touched("L2", moved.tensor.name, moved.kind != "read", moved.bytes)


def bytes_by_pipe(kernel: Kernel, profile: Profile) -> dict[str, int]:
    """Return the bytes that each pipe moves in all cores of a kernel.

    Of MTE2, MTE3 and FIX what they move from and to L2; of MTE1 what they bring into L0.
    """
    found: Counter[str] = Counter()
    for program, cores in _programs(kernel):
        for made, times, touched in _counted(program, profile):
            for level, _, written, size in touched:
                if level == "L2" or (made.pipe == "MTE1" and written):
                    found[made.pipe] += cores * times * size
    return {pipe: found[pipe] for pipe in PIPES if found[pipe]}
