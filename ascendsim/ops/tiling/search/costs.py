"""Costs of the instructions of a convolution, for arrays of their sizes at once.

A search asks for the costs of some thousand instructions. Here they are the same integers that each
instruction gives by itself, in the arithmetic of whole arrays; the slow ranking in the tests asks the
instructions one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ascendsim.errors import CapacityError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import (
    FRACTAL_ROWS,
    ROW_BYTES,
    Gathering,
    Mmad,
    TileRead,
    round_up,
    spacing_needed,
    whole_rows,
)
from ascendsim.instructions.fixpipe import CopyL0cToUb, Fixpipe
from ascendsim.instructions.movers import LoadL0A, LoadL0B
from ascendsim.instructions.vector import CopyUbToGm
from ascendsim.ops.plan import even_parts
from ascendsim.ops.problems.sliding import Sliding, Taps
from ascendsim.profile import Profile
from ascendsim.program.instruction import Cost
from ascendsim.program.places import Gm, GmTensor, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """Return the error for a convolution whose smallest tile does not fit: it names the first short buffer.

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


# Integers, one for each candidate; a single one stands for all.
Ints: TypeAlias = Any


class BaseBlocks(NamedTuple):
    """Base blocks that fit in L0: their sizes, their L0C copies, and the longest reduction of one Mmad."""

    m: Ints
    n: Ints
    copies: Ints
    k: Ints


class TapBox(NamedTuple):
    """Extents of boxes of taps: channel groups, kernel rows and columns."""

    channels: Ints
    rows: Ints
    cols: Ints


# The largest base sizes tried: a larger m or n leaves no room for a useful k in L0A or L0B of any product.
MOST_M = 512
MOST_N = 512


def blocks(
    profile: Profile, itemsize: int, sizes: tuple[int, int], units: tuple[int, int, int], most_m: int = MOST_M
) -> BaseBlocks:
    """Return the base blocks that L0A, L0B and L0C hold, both operands in two copies; n fastest.

    `sizes` are the whole m and n, `units` those of m, n and k; no block has more than `most_m` rows.
    """
    # Only sizes that cut the whole evenly: a small block at the edge takes the cycles of a large one.
    m: Ints = np.array(even_parts(sizes[0], units[0], min(MOST_M, most_m)))[:, None]
    n: Ints = np.array(even_parts(sizes[1], units[1], MOST_N))[None, :]
    l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
    rows, columns = round_up(m, profile.cube.m0), round_up(n, profile.cube.n0)
    copies = np.minimum(2, l0c // (rows * columns * 4))
    # Halves, as MTE1 fills one copy while M reads the other; one copy would make them take turns.
    k = np.minimum(l0a // 2 // (rows * itemsize), l0b // 2 // (columns * itemsize)) // units[2] * units[2]
    fits = (copies > 0) & (k > 0)
    return BaseBlocks(
        np.broadcast_to(m, k.shape)[fits], np.broadcast_to(n, k.shape)[fits], copies[fits], k[fits]
    )


def even_slices(total: int, most: Ints, unit: int) -> Ints:
    """Return the slice lengths, multiples of `unit` and at most `most`, that cut `total` most evenly."""
    return np.minimum(most, round_up(-(-total // -(-total // most)), unit))


@dataclass(frozen=True)
class SearchCosts:
    """Cycles of the instructions of one convolution, and bytes of its tiles; arguments may be arrays.

    `image_buffer` is where load3d brings the patches of the image: "L0A" or "L0B".
    """

    rates: Rates
    sliding: Sliding
    image_buffer: str

    @cached_property
    def _mmad(self) -> tuple[int, int, int, int, int, int, int]:
        cube = self.rates.profile.cube
        rate = cube.rates[self.rates.compute_dtype]
        head, per = cube.mmad_head_cycles, rate.macs_per_cycle
        return cube.m0, cube.n0, rate.k0, per, head, cube.mmad_latency_cycles, cube.same_l0c_spacing_cycles

    def mmad(self, m: Ints, k: Ints, n: Ints) -> Ints:
        """Cycles of one Mmad, with the barrier that a small tile needs before the next."""
        m0, n0, k0, per_cycle, head, latency, spacing = self._mmad
        fractals = -(-m // m0) * -(-n // n0)
        products = fractals * -(-k // k0) * (m0 * n0 * k0)
        return head + -(-products // per_cycle) + latency * (fractals < spacing)

    @cached_property
    def _added_up(self) -> dict[tuple[str, int, int], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return {}

    def _by_fractals(
        self, buffer: str, stride: int, deep: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cycles of a step of `deep` pixels by its rows less one, and of the first 0, 1, ... of an image."""
        if (buffer, stride, deep) not in self._added_up:
            law = self.rates.profile.load3d[buffer]
            fractals = np.array([law.fractal_cycles(stride, rows) for rows in range(1, deep + 1)])
            # Longer than any load: a row in L0 has 32 bytes and more.
            longest = self.rates.profile.buffers[buffer].capacity_bytes // 32
            first, width = np.arange(0, longest, deep), self.sliding.out_size[1]
            total = np.cumsum([0, *fractals[(first + deep - 1) // width - first // width]])
            self._added_up[buffer, stride, deep] = fractals, total
        return self._added_up[buffer, stride, deep]

    def load_image(self, pixels: Ints, groups: Ints) -> Ints:
        """Cycles of one load3d of the first pixels of an image, so many (channel group, tap) pairs."""
        profile, size = self.rates.profile, self.sliding.itemsize
        if self.image_buffer == "L0A":
            groups = whole_rows(profile, groups, size)
        steps = Gathering.of(profile, self.image_buffer, size)
        return self._load3d(self.image_buffer, self.sliding.stride[1], pixels, groups, steps)

    def load_turned(self, pixels: Ints, groups: Ints) -> Ints:
        """Cycles of so many channel groups of grad_output, the first pixels of an image, turned into L0A."""
        law = self.rates.profile.load3d["L0A"]
        steps = Gathering.turned(self.rates.profile, self.sliding.itemsize)
        filled = round_up(pixels, steps.whole)
        if law.transposes:
            each = law.turned(1, self.sliding.itemsize)
            if not each:
                return self._load3d("L0A", 1, pixels, groups, steps)
            data = -(-(filled // FRACTAL_ROWS * groups * each.numerator) // each.denominator)
            return self.rates.profile.paths["L1_L0A"].head_cycles + data + law.command_cycles
        elements = groups * self.sliding.c0 * filled
        # A command repeats along the pixels or along the groups, whichever are more.
        return self.load_plain("L0A", elements, np.minimum(groups, -(-pixels // FRACTAL_ROWS)))

    def load_weights(self, rows: Ints, columns: Ints, *, backwards: bool, taps: int) -> Ints:
        """Cycles of so many rows, (channel group, tap, c0), and columns of the weights into L0B."""
        profile = self.rates.profile
        whole = round_up(rows, profile.cube.depth(self.sliding.itemsize))
        elements, turned = whole * round_up(columns, profile.cube.n0), profile.load2d.turned_block_cycles
        if backwards and turned:
            blocks = Fraction(turned) / (FRACTAL_ROWS * FRACTAL_ROWS)
            return self.load_plain("L0B", elements, 1, blocks)
        return self.load_plain("L0B", elements, rows // self.sliding.c0 if backwards and taps > 1 else 1)

    def _load3d(self, buffer: str, stride: int, pixels: Ints, groups: Ints, steps: Gathering) -> Ints:
        profile, width, deep = self.rates.profile, self.sliding.out_size[1], steps.step
        law, (fractals, added_up) = profile.load3d[buffer], self._by_fractals(buffer, stride, deep)
        whole, rest = pixels // deep, pixels % deep
        # The last fractal may be short, and then goes over the ends of fewer rows.
        rows = (pixels - 1) // width - whole * deep // width
        cycles = added_up[whole] + (rest > 0) * fractals[rows * (rest > 0)]
        if steps.whole > deep:
            cycles = cycles + steps.empty(pixels) * fractals[0]
        data = -(-(cycles * groups * (ROW_BYTES * deep)) // law.fractal_bytes)
        commands = law.commands(-(-pixels // max(FRACTAL_ROWS, steps.whole)), groups)
        return profile.paths[f"L1_{buffer}"].head_cycles + data + law.command_cycles * commands

    def load_plain(self, buffer: str, elements: Ints, commands: Ints, more: Fraction = Fraction(0)) -> Ints:
        """Cycles of one load of whole fractals by so many commands of load2d; `more` for each element."""
        rate, plain = self.rates.profile.paths[f"L1_{buffer}"].bytes_per_cycle, self.rates.profile.load2d
        each = Fraction(self.sliding.itemsize) / Fraction(rate) + more
        data = -(-elements * each.numerator // each.denominator)
        return np.maximum(plain.head_cycles + (commands - 1) * plain.issue_cycles + data, plain.least_cycles)

    def tile_bytes(self, pixels: Ints, box: TapBox) -> Ints:
        """Return the largest L1 need of tiles of so many pixels, of whole rows."""
        s, (height, width) = self.sliding, self.sliding.out_size
        even = (pixels % width == 0) | (width % pixels == 0)
        spanned = np.where(even, -(-pixels // width), np.where(pixels > width, pixels // width + 2, 2))
        out_rows = np.minimum(spanned, height)
        out_cols = np.where(out_rows == 1, np.minimum(pixels, width), width)
        return (
            self._reach(0, out_rows, box.rows)
            * self._reach(1, out_cols, box.cols)
            * (box.channels * (s.c0 * s.itemsize))
        )

    def _reach(self, axis: int, outputs: Ints, taps: Ints) -> Ints:
        s = self.sliding
        reach = (outputs - 1) * s.stride[axis] + ((taps - 1) * s.dilation[axis] + 1)
        return np.maximum(1, np.minimum(reach, (s.image_size[axis] - 1) * s.insert[axis] + 1))
