"""Rates that rank tilings: cycles of single instructions, and the base blocks that L0 holds.

A bound counts, for the busiest core, the cycles of MTE1, M, MTE2 and FIX and takes the largest as if they
overlapped perfectly, plus what cannot overlap. It only ranks tilings; the cycles that are reported come from
the timing executor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ascendsim.cube.fixpipe import CopyL0cToUb, Fixpipe
from ascendsim.cube.mmad import Mmad, spacing_needed
from ascendsim.cube.movers import LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import TileRead, round_up
from ascendsim.errors import CapacityError
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.profile import Profile
from ascendsim.program.instruction import Cost
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.vector.instructions import CopyUbToGm

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulGemm

Found = TypeVar("Found")
SUM_BYTES = 4  # L0C adds in float32


@dataclass(frozen=True)
class Rates:
    """The figures that rank tilings: costs of instructions, and the bytes for each cycle of one core."""

    profile: Profile
    compute_dtype: str
    cores: int
    _known: dict[Hashable, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def load_bytes_per_cycle(self) -> float:
        """GM to L1 with all cores loading."""
        # Cores that load in step have equal parts of the link in timing, so the bound must not be kinder.
        path = self.profile.paths["GM_L1"].bytes_per_cycle
        return min(float(path), float(self.profile.links["l2_read"].total_bytes_per_cycle) / self.cores)

    @cached_property
    def store_bytes_per_cycle(self) -> float:
        """L0C outwards with all cores storing."""
        name = "L0C_GM" if self.profile.has_path("L0C", "GM") else "L0C_UB"
        path = float(self.profile.paths[name].bytes_per_cycle)
        return min(path, float(self.profile.links["l2_write"].total_bytes_per_cycle) / self.cores)

    def mmad(self, m: int, k: int, n: int) -> int:
        """Cycles of one Mmad, with the barrier that a small tile needs before the next."""
        return self._once(("mmad", m, k, n), lambda: self._mmad(m, k, n))

    def _mmad(self, m: int, k: int, n: int) -> int:
        spacing = self.profile.cube.mmad_latency_cycles if spacing_needed(self.profile, m, n) else 0
        instruction = Mmad(NOWHERE, NOWHERE, NOWHERE, m, k, n, self.compute_dtype, True)
        return spacing + instruction.cost(self.profile).cycles

    def load_left(self, read: TileRead, arriving: int = 0) -> int:
        """Cycles of one load into L0A, while so many bytes arrive in L1."""
        load = LoadL0A(NOWHERE, NOWHERE, read, arriving)
        return self._once(("L0A", read, arriving), lambda: load.cost(self.profile).cycles)

    def load_right(self, read: TileRead) -> int:
        """Cycles of one load into L0B."""
        load = LoadL0B(NOWHERE, NOWHERE, read)
        return self._once(("L0B", read), lambda: load.cost(self.profile).cycles)

    def copy(
        self, gemm: MatmulGemm, tensor: GmTensor, piece: tuple[int, int], turned: bool
    ) -> tuple[float, float]:
        """Cycles for which a copy of a matrix's piece into L1 holds MTE2, and until it has arrived."""
        return self._once((tensor, piece, turned), lambda: self._copy(gemm, tensor, piece, turned))

    def _copy(
        self, gemm: MatmulGemm, tensor: GmTensor, piece: tuple[int, int], turned: bool
    ) -> tuple[float, float]:
        extent = piece[::-1] if turned else piece
        line_bytes = self.profile.l2.line_bytes
        cost = gemm.copy_to_l1(NOWHERE, Gm(tensor, ()), extent, line_bytes).cost(self.profile)
        held = self._held(cost)
        # Only the next reader waits for the latency; the pipe itself goes on with the next copy.
        latency = cost.latency_cycles + self.profile.links["l2_read"].latency_cycles
        return held, max(held, cost.pace_cycles) + latency

    def store(self, tensor: GmTensor, m: int, n: int) -> float:
        """Cycles of a base block on its way out of L0C, with all cores writing."""
        return self._once(("store", tensor, m, n), lambda: self._store(tensor, m, n))

    def _store(self, tensor: GmTensor, m: int, n: int) -> float:
        size = m * n * tensor.itemsize
        if self.profile.has_path("L0C", "GM"):
            return self._held(Fixpipe(Gm(tensor, ()), NOWHERE, size).cost(self.profile))
        # Through UB, piece by piece: the slower of both ways, once both are under way.
        out = self._held(CopyL0cToUb(NOWHERE, NOWHERE, 0, n, tensor.dtype, m * n).cost(self.profile))
        return max(out, self._held(CopyUbToGm(Gm(tensor, ()), NOWHERE, size).cost(self.profile)))

    def _held(self, cost: Cost) -> float:
        """Cycles that an instruction holds its pipe, with an equal part of the link for every core."""
        cycles: float = cost.cycles
        if cost.traffic is not None:
            moved = cost.traffic
            link = self.profile.links["l2_read" if moved.kind == "read" else "l2_write"]
            rate = min(float(link.total_bytes_per_cycle) / self.cores, float(moved.peak_bytes_per_cycle))
            cycles += max(moved.bytes, float(moved.occupied_bytes)) / rate
        return max(cycles, cost.least_cycles)

    def _once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Find the cycles of one shape, once: a search asks for a few shapes some thousand times."""
        if key not in self._known:
            self._known[key] = find()
        found: Found = self._known[key]
        return found


# Costs do not depend on which slots an instruction names.
NOWHERE = Slot("L1", 0, "nowhere", 0)


class BaseBlock(NamedTuple):
    """A base block that fits in L0: its sizes, its L0C copies, and the longest reduction of one Mmad."""

    m: int
    n: int
    copies: int
    k: int


def base_block(profile: Profile, itemsize: int, m: int, n: int, unit: int) -> BaseBlock | None:
    """Return the base block of m x n with as long a reduction, in units, as fits; None if none does."""
    l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
    rows, columns = round_up(m, profile.cube.m0), round_up(n, profile.cube.n0)
    copies = min(2, l0c // (rows * columns * 4))
    # Halves, as MTE1 fills one copy while M reads the other; one copy would make them take turns.
    k = min(l0a // 2 // (rows * itemsize), l0b // 2 // (columns * itemsize)) // unit * unit
    return BaseBlock(m, n, copies, k) if copies and k else None


def nothing_fits(sliding: Sliding, profile: Profile, base_k: int) -> CapacityError:
    """Return the error for a convolution of which not even the smallest tile fits: the first short buffer.

    base_k   the least reduction of one Mmad, in elements
    """
    m0, n0, size = profile.cube.m0, profile.cube.n0, sliding.itemsize
    # As the search takes them: results in one copy, operands in two.
    needs = {
        "L0C": (m0 * n0 * SUM_BYTES, f"{m0} x {n0} sums of {SUM_BYTES} bytes need"),
        "L0A": (2 * m0 * base_k * size, f"{m0} x {base_k} elements of {size} bytes in two copies need"),
        "L0B": (2 * n0 * base_k * size, f"{base_k} x {n0} elements of {size} bytes in two copies need"),
    }
    for buffer, (need, what) in needs.items():
        holds = profile.buffers[buffer].capacity_bytes
        if need > holds:
            return CapacityError(
                f"no tile of this convolution fits in {buffer} of {profile.variant}: {what} {need} bytes, "
                f"and {buffer} holds {holds}",
                buffer,
            )
    need = 2 * sliding.tile_bytes(16, Taps(0, 1, 0, 1, 0, 1), in_row=True)
    return CapacityError(
        f"no tile of this convolution fits in L1 of {profile.variant}: one tap of 16 pixels in two copies "
        f"needs {need} bytes, the other operand more beside it, and L1 holds "
        f"{profile.buffers['L1'].capacity_bytes}",
        "L1",
    )
