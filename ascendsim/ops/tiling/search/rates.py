"""Rates that rank tilings: cycles of single instructions, and the base blocks that L0 holds.

A bound counts, for the busiest core, the cycles of MTE1, M, MTE2 and FIX and takes the largest as if they
overlapped perfectly, plus what cannot overlap. It only ranks tilings; the cycles that are reported come from
the timing executor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from ascendsim.cube.fixpipe import CopyL0cToUb, Fixpipe
from ascendsim.cube.mmad import Mmad, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import Im2col, TileRead, round_up
from ascendsim.ops.plan import even_parts
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.profile import Profile
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.vector.instructions import CopyUbToGm


@dataclass(frozen=True)
class Rates:
    """The figures that rank tilings: costs of instructions, and the bytes for each cycle of one core."""

    profile: Profile
    compute_dtype: str
    cores: int
    _known: dict[Hashable, float] = field(default_factory=dict, compare=False)

    @property
    def load_bytes_per_cycle(self) -> float:
        """GM to L1 with all cores loading."""
        # Cores that load in step have equal parts of the link in timing, so the bound must not be kinder.
        path = self.profile.paths["GM_L1"].bytes_per_cycle
        return min(float(path), float(self.profile.links["l2_read"].total_bytes_per_cycle) / self.cores)

    @property
    def store_bytes_per_cycle(self) -> float:
        """L0C outwards with all cores storing."""
        name = "L0C_GM" if self.profile.has_path("L0C", "GM") else "L0C_UB"
        path = float(self.profile.paths[name].bytes_per_cycle)
        return min(path, float(self.profile.links["l2_write"].total_bytes_per_cycle) / self.cores)

    def mmad(self, m: int, k: int, n: int) -> int:
        """Cycles of one Mmad, with the barrier that a small tile needs before the next."""
        spacing = self.profile.cube.mmad_latency_cycles if spacing_needed(self.profile, m, n) else 0
        return spacing + self._cycles(Mmad(NOWHERE, NOWHERE, NOWHERE, m, k, n, self.compute_dtype, True))

    def load_left(self, read: TileRead, arriving: int = 0) -> int:
        """Cycles of one load into L0A, while so many bytes arrive in L1."""
        return self._cycles(LoadL0A(NOWHERE, NOWHERE, read, arriving))

    def load_right(self, read: TileRead) -> int:
        """Cycles of one load into L0B."""
        return self._cycles(LoadL0B(NOWHERE, NOWHERE, read))

    def copy(
        self, gemm: MatmulGemm, tensor: GmTensor, piece: tuple[int, int], turned: bool
    ) -> tuple[float, float]:
        """Cycles for which a copy of a matrix's piece into L1 holds MTE2, and until it has arrived."""
        extent = piece[::-1] if turned else piece
        line_bytes = self.profile.l2.line_bytes
        instruction = gemm.copy_to_l1(NOWHERE, tensor, 0, (0, 0), extent, line_bytes)
        held, cost = self._held(instruction), instruction.cost(self.profile)
        # Only the next reader waits for the latency; the pipe itself goes on with the next copy.
        latency = cost.latency_cycles + self.profile.links["l2_read"].latency_cycles
        return held, max(held, cost.pace_cycles) + latency

    def store(self, tensor: GmTensor, m: int, n: int) -> float:
        """Cycles of a base block on its way out of L0C, with all cores writing."""
        if self.profile.has_path("L0C", "GM"):
            return self._held(Fixpipe(Gm(tensor, ()), NOWHERE, m * n * tensor.itemsize))
        # Through UB, piece by piece: the slower of both ways, once both are under way.
        out = self._held(CopyL0cToUb(NOWHERE, NOWHERE, 0, n, tensor.dtype, m * n))
        return max(out, self._held(CopyUbToGm(Gm(tensor, ()), NOWHERE, m * n * tensor.itemsize)))

    def _held(self, instruction: CopyGmToL1 | CopyL0cToUb | CopyUbToGm | Fixpipe) -> float:
        """Cycles that an instruction holds its pipe, with an equal part of the link for every core."""
        key = type(instruction), instruction.shape
        if key not in self._known:
            cost = instruction.cost(self.profile)
            cycles: float = cost.cycles
            if cost.traffic is not None:
                moved = cost.traffic
                link = self.profile.links["l2_read" if moved.kind == "read" else "l2_write"]
                rate = min(float(link.total_bytes_per_cycle) / self.cores, float(moved.peak_bytes_per_cycle))
                cycles += max(moved.bytes, float(moved.occupied_bytes)) / rate
            self._known[key] = max(cycles, cost.least_cycles)
        return self._known[key]

    def _cycles(self, instruction: Mmad | LoadL0A | LoadL0B) -> int:
        """Ask the instruction itself, once for each shape."""
        # A search asks for a few shapes some thousand times. A cost depends on nothing but the shape.
        key = type(instruction), instruction.shape
        if key not in self._known:
            self._known[key] = instruction.cost(self.profile).cycles
        return int(self._known[key])


# Costs do not depend on which slots an instruction names.
NOWHERE = Slot("L1", 0, "nowhere", 0)


def im2col_read(sliding: Sliding, pixels: int, groups: int) -> Im2col:
    """Return the im2col read of the first pixels of an image."""
    tile = sliding.tile(0, min(pixels, sliding.pixels), Taps(0, 1, 0, 1, 0, 1))
    return Im2col(tile.window, 0, pixels, 0, groups, sliding.itemsize)


class BaseBlock(NamedTuple):
    """A base block that fits in L0: its sizes, its L0C copies, and the longest reduction of one Mmad."""

    m: int
    n: int
    copies: int
    k: int


# The largest base sizes tried: a larger m or n leaves no room for a useful k in L0A or L0B of any product.
MOST_M = 512
MOST_N = 512


def blocks(
    profile: Profile, itemsize: int, sizes: tuple[int, int], units: tuple[int, int, int]
) -> Iterator[BaseBlock]:
    """Yield the base blocks that L0A, L0B and L0C hold, both operands in two copies.

    `sizes` are the whole m and n, `units` those of m, n and k.
    """
    # Only sizes that cut the whole evenly: a small block at the edge takes the cycles of a large one.
    for m in even_parts(sizes[0], units[0], MOST_M):
        for n in even_parts(sizes[1], units[1], MOST_N):
            block = base_block(profile, itemsize, m, n, units[2])
            if block is not None:
                yield block


def base_block(profile: Profile, itemsize: int, m: int, n: int, unit: int) -> BaseBlock | None:
    """Return the base block of m x n with as long a reduction, in units, as fits; None if none does."""
    l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
    rows, columns = round_up(m, profile.cube.m0), round_up(n, profile.cube.n0)
    copies = min(2, l0c // (rows * columns * 4))
    # Halves, as MTE1 fills one copy while M reads the other; one copy would make them take turns.
    k = min(l0a // 2 // (rows * itemsize), l0b // 2 // (columns * itemsize)) // unit * unit
    return BaseBlock(m, n, copies, k) if copies and k else None


def even_slice(total: int, most: int, unit: int) -> int:
    """Return the slice length, a multiple of `unit` and at most `most`, that cuts `total` most evenly."""
    return min(most, round_up(ceil(total / ceil(total / most)), unit))


def nothing_fits(sliding: Sliding, profile: Profile) -> str:
    """Return the message for a convolution of which not even the smallest tile fits in L1."""
    need = 2 * sliding.tile_bytes(16, Taps(0, 1, 0, 1, 0, 1), in_row=True)
    return (
        f"no tile of this convolution fits in L1 of {profile.variant}: one tap of 16 pixels in two copies "
        f"needs {need} bytes, and L1 holds {profile.buffers['L1'].capacity_bytes}"
    )
