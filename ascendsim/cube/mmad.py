"""The cube unit: one matrix product accumulated in L0C."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.loads import round_up
from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Command, Cost
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


class _Mmad(NamedTuple):
    dst: Slot
    a: Slot
    b: Slot
    m: int
    k: int
    n: int
    compute_dtype: str
    first: bool


class Mmad(_Mmad, Command):
    """Add one cube product to an accumulator tile, bit for bit under the kernel's accumulation model.

    Shapes   a (m, k), b (k, n), c (m, n)
    Types    a, b of `compute_dtype` (a rate key of the profile); c float32, of int8 int32
    Pipe     M
    Cost     head + ceil(m/m0) ceil(n/n0) ceil(k/k0) fractal products, each m0 n0 k0 / macs_per_cycle cycles;
             the result is visible mmad_latency later. k is the outermost loop: the first piece of the result
             is ready when all but the last k0 have been added
    Source   AscendC Mmad page and cube performance summary; products 32 deep on 910B2 for the order of loops
    """

    __slots__ = ()
    pipe = "M"
    gm = None

    @property
    def reads(self) -> tuple[Slot, ...]:
        """Both operands, and the accumulator unless this product begins it."""
        return (self.a, self.b) if self.first else (self.a, self.b, self.dst)

    @property
    def writes(self) -> tuple[Slot, ...]:
        """The accumulator."""
        return (self.dst,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.m, self.k, self.n, self.compute_dtype

    def execute(self, memory: CoreMemory) -> None:
        """Accumulate; the first product of a tile begins with zero.

        Raises   ProgramError if a slot holds a tile of another shape: something overwrote it too early
        """
        # The first product begins the tile: the device starts from zero and does not read what L0C holds.
        if self.first:
            memory.new_tile(self.dst, (self.m, self.n)).fill(0)
        a, b, c = memory.tile(self.a), memory.tile(self.b), memory.accumulator(self.dst)
        # A slot that was overwritten too early would give wrong numbers without a word, were shapes equal;
        # where they differ, that is seen here.
        if (a.shape, b.shape, c.shape) != ((self.m, self.k), (self.k, self.n), (self.m, self.n)):
            raise ProgramError(
                f"Mmad of {self.m} x {self.k} x {self.n} finds {self.a!r} {a.shape}, {self.b!r} {b.shape} "
                f"and {self.dst!r} {c.shape}: a wait is missing"
            )
        memory.add_product(self.dst, a, b)

    def cost(self, profile: Profile) -> Cost:
        """Return head, product cycles and result latency."""
        cube = profile.cube
        rate = cube.rates[self.compute_dtype]
        # The cube multiplies whole fractals, whatever of them the tile uses.
        padded = round_up(self.m, cube.m0) * round_up(self.n, cube.n0) * round_up(self.k, rate.k0)
        cycles = -(-padded // rate.macs_per_cycle)
        passes = -(-self.k // rate.k0)
        # The slices of k are added to the whole tile one after another. So while the last one is added, the
        # tile is finished fractal by fractal, and whoever trails this product may begin.
        lead = -(-padded * (passes - 1) // (passes * rate.macs_per_cycle))
        head = cube.mmad_head_cycles
        return Cost(head + cycles, cube.mmad_latency_cycles, lead_cycles=head + lead)


def spacing_needed(profile: Profile, m: int, n: int) -> bool:
    """Return whether products that add to one (m, n) tile need a barrier between them.

    Source   AscendC Mmad page: below `same_l0c_spacing_cycles` fractals the accumulator comes back too late
    """
    cube = profile.cube
    return -(-m // cube.m0) * -(-n // cube.n0) < cube.same_l0c_spacing_cycles


def is_small(profile: Profile, m: int, n: int) -> bool:
    """Return whether the operators' kernels let the cube come to rest after a product of m x n elements.

    They count elements, and the device fractals, of which a tile may fill the last ones in part.
    """
    cube = profile.cube
    return m * n < cube.same_l0c_spacing_cycles * cube.m0 * cube.n0


class _PipeBarrier(NamedTuple):
    on: str


class PipeBarrier(_PipeBarrier, Command):
    """Let a pipe deliver all its results before the next instruction on it starts.

    Cost     one cycle once the pipe has drained
    """

    __slots__ = ()
    drains = True

    @property
    def pipe(self) -> str:
        """The pipe that drains."""
        return self.on

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.on

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return one cycle."""
        # What it really costs is the waiting: `drains` lets it start when all results of the pipe are there.
        del profile
        return Cost(1)
