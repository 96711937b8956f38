"""What the instructions of a convolution cost, for arrays of their sizes at once.

A search asks for the costs of some thousand instructions. Here they are the same integers that each
instruction gives by itself, in the arithmetic of whole arrays; the slow ranking in the tests asks the
instructions one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ascendsim.cube.load3d import FRACTAL_BYTES, FRACTAL_ROWS, fractal_pixels
from ascendsim.cube.tile_reads import round_up
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import even_parts
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.tiling.search.rates import Rates
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Integers, one for each candidate; a single one stands for all.
Ints: TypeAlias = Any


class Blocks(NamedTuple):
    """Base blocks that fit in L0: their sizes, their L0C copies, and the longest reduction of one Mmad."""

    m: Ints
    n: Ints
    copies: Ints
    k: Ints


class Box(NamedTuple):
    """Extents of boxes of taps: channel groups, kernel rows and columns."""

    channels: Ints
    rows: Ints
    cols: Ints


# The largest base sizes tried: a larger m or n leaves no room for a useful k in L0A or L0B of any product.
MOST_M = 512
MOST_N = 512


def blocks(
    profile: Profile,
    itemsize: int,
    sizes: tuple[int, int],
    units: tuple[int, int, int],
    most_m: int = MOST_M,
) -> Blocks:
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
    return Blocks(np.broadcast_to(m, k.shape)[fits], np.broadcast_to(n, k.shape)[fits], copies[fits], k[fits])


def even_slices(total: int, most: Ints, unit: int) -> Ints:
    """Return the slice lengths, multiples of `unit` and at most `most`, that cut `total` most evenly."""
    return np.minimum(most, round_up(-(-total // -(-total // most)), unit))


@dataclass(frozen=True)
class Costs:
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
    def _added_up(self) -> dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return {}

    def _by_fractals(self, buffer: str, stride: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cycles of a fractal by its rows less one, and of the first 0, 1, 2, ... fractals of an image."""
        if (buffer, stride) not in self._added_up:
            law, deep = self.rates.profile.load3d[buffer], self._deep(buffer)
            fractals = np.array([law.fractal_cycles(stride, rows) for rows in range(1, deep + 1)])
            # Longer than any load: a row in L0 has 32 bytes and more.
            longest = self.rates.profile.buffers[buffer].capacity_bytes // 32
            first, width = np.arange(0, longest, deep), self.sliding.out_size[1]
            total = np.cumsum([0, *fractals[(first + deep - 1) // width - first // width]])
            self._added_up[buffer, stride] = fractals, total
        return self._added_up[buffer, stride]

    def _deep(self, buffer: str) -> int:
        return fractal_pixels(buffer, self.sliding.itemsize)

    def load_image(self, pixels: Ints, groups: Ints) -> Ints:
        """Cycles of one load3d of the first pixels of an image, so many (channel group, tap) pairs."""
        return self._load3d(self.image_buffer, self.sliding.stride[1], pixels, groups)

    def load_turned(self, pixels: Ints, groups: Ints) -> Ints:
        """Cycles of so many channel groups of grad_output, the first pixels of an image, turned into L0A."""
        law = self.rates.profile.load3d["L0A"]
        if law.transposes:
            each = law.turned(1, self.sliding.itemsize)
            if not each:
                return self._load3d("L0A", 1, pixels, groups)
            data = -(-(-(-pixels // FRACTAL_ROWS) * groups * each.numerator) // each.denominator)
            return self.rates.profile.paths["L1_L0A"].head_cycles + data + law.command_cycles
        elements = groups * self.sliding.c0 * round_up(pixels, FRACTAL_ROWS)
        # A command repeats along the pixels or along the groups, whichever are more.
        return self.load_plain("L0A", elements, np.minimum(groups, -(-pixels // FRACTAL_ROWS)))

    def load_weights(self, rows: Ints, columns: Ints, *, backwards: bool, taps: int) -> Ints:
        """Cycles of so many rows, (channel group, tap, c0), and columns of the weights into L0B."""
        elements, turned = (
            rows * round_up(columns, FRACTAL_ROWS),
            self.rates.profile.load2d.turned_block_cycles,
        )
        if backwards and turned:
            blocks = Fraction(turned) / (FRACTAL_ROWS * FRACTAL_ROWS)
            return self.load_plain("L0B", elements, 1, blocks)
        return self.load_plain("L0B", elements, rows // self.sliding.c0 if backwards and taps > 1 else 1)

    def _load3d(self, buffer: str, stride: int, pixels: Ints, groups: Ints) -> Ints:
        profile, width = self.rates.profile, self.sliding.out_size[1]
        law, (fractals, added_up) = profile.load3d[buffer], self._by_fractals(buffer, stride)
        deep = self._deep(buffer)
        whole, rest = pixels // deep, pixels % deep
        # The last fractal may be short, and then goes over the ends of fewer rows.
        rows = (pixels - 1) // width - whole * deep // width
        cycles = added_up[whole] + (rest > 0) * fractals[rows * (rest > 0)]
        data = -(-(cycles * groups * (FRACTAL_BYTES * deep)) // (law.fractal_bytes * FRACTAL_ROWS))
        commands = law.commands(-(-pixels // FRACTAL_ROWS), groups)
        return profile.paths[f"L1_{buffer}"].head_cycles + data + law.command_cycles * commands

    def load_plain(self, buffer: str, elements: Ints, commands: Ints, more: Fraction = Fraction(0)) -> Ints:
        """Cycles of one load of whole fractals by so many commands of load2d; `more` for each element."""
        rate, plain = self.rates.profile.paths[f"L1_{buffer}"].bytes_per_cycle, self.rates.profile.load2d
        each = Fraction(self.sliding.itemsize) / Fraction(rate) + more
        data = -(-elements * each.numerator // each.denominator)
        return np.maximum(plain.head_cycles + (commands - 1) * plain.issue_cycles + data, plain.least_cycles)

    def tile_bytes(self, pixels: Ints, box: Box) -> Ints:
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
