"""Choose a plan: enumerate base blocks, keep the legal ones, take the one with the least bound on its cycles.

The bound counts, for the busiest core, the cycles of MTE1, M, MTE2 and FIX and takes the largest as if they
overlapped perfectly, plus what cannot overlap. It only ranks plans; the cycles that are reported come from
the timing executor. The real operators choose differently (their rules are a later step).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.mmad import Mmad, spacing_needed
from ascendsim.cube.movers import LoadL0A, LoadL0B
from ascendsim.cube.views import Im2col, TileRead, round_up
from ascendsim.ops.plan import even_parts
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile


@dataclass(frozen=True)
class Rates:
    """What ranks plans: the costs of instructions, and the bytes for each cycle of one core."""

    profile: Profile
    compute_dtype: str
    cores: int
    _known: dict[Hashable, int] = field(default_factory=dict, compare=False)

    @property
    def load_bytes_per_cycle(self) -> float:
        """GM to L1 with all cores loading."""
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

    def load_left(self, view: TileRead) -> int:
        """Cycles of one load into L0A."""
        return self._cycles(LoadL0A(NOWHERE, NOWHERE, view))

    def load_right(self, view: TileRead) -> int:
        """Cycles of one load into L0B."""
        return self._cycles(LoadL0B(NOWHERE, NOWHERE, view))

    def _cycles(self, instruction: Mmad | LoadL0A | LoadL0B) -> int:
        """Ask the instruction itself, once for each shape."""
        key = type(instruction), instruction.shape
        if key not in self._known:
            self._known[key] = instruction.cost(self.profile).cycles
        return self._known[key]


# Costs do not depend on which slots an instruction names.
NOWHERE = Slot("L1", 0, "nowhere", 0)


def im2col_read(sliding: Sliding, pixels: int, groups: int) -> Im2col:
    """Return the im2col view of the first pixels of an image."""
    tile = sliding.tile(0, min(pixels, sliding.pixels), Taps(0, 1, 0, 1, 0, 1))
    return Im2col(tile.window, 0, pixels, 0, groups, sliding.itemsize)


class BaseBlock(NamedTuple):
    """A base block that fits in L0: its sizes, its L0C copies, and the longest reduction of one Mmad."""

    m: int
    n: int
    copies: int
    k: int


def blocks(
    profile: Profile, itemsize: int, sizes: tuple[int, int], steps: tuple[int, int, int]
) -> Iterator[BaseBlock]:
    """Yield the base blocks that L0A, L0B and L0C hold, both operands in two copies.

    `sizes` are the whole m and n, `steps` the units of m, n and k.
    """
    capacity = {name: profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C")}
    cube = profile.cube
    for m in even_parts(sizes[0], steps[0], MOST_M):
        for n in even_parts(sizes[1], steps[1], MOST_N):
            fits_m, fits_n = round_up(m, cube.m0), round_up(n, cube.n0)
            copies = min(2, capacity["L0C"] // (fits_m * fits_n * 4))
            k = min(capacity["L0A"] // 2 // (fits_m * itemsize), capacity["L0B"] // 2 // (fits_n * itemsize))
            if copies and k >= steps[2]:
                yield BaseBlock(m, n, copies, k // steps[2] * steps[2])


# The largest base sizes tried: a larger m or n leaves no room for a useful k in L0A or L0B of any product.
MOST_M = 512
MOST_N = 512


def slices(total: int, most: int, step: int) -> int:
    """Return the slice length, a multiple of `step` and at most `most`, that cuts `total` most evenly."""
    count = ceil(total / most)
    return min(most, round_up(ceil(total / count), step))


def nothing_fits(sliding: Sliding, profile: Profile) -> str:
    """Return the message for a convolution of which not even the smallest tile fits in L1."""
    need = 2 * sliding.tile_bytes(16, Taps(0, 1, 0, 1, 0, 1), in_row=True)
    return (
        f"no tile of this convolution fits in L1 of {profile.variant}: one tap of 16 pixels in two copies "
        f"needs {need} bytes, and L1 holds {profile.buffers['L1'].capacity_bytes}"
    )
