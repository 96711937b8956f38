"""A time below which no legal tiling of a gradient comes, and the pipe that says so.

What a plan with base blocks of m x n x k cannot avoid, spread evenly over the cores that serve best:

M      every fractal product, and the head of each Mmad
MTE1   both operands of each Mmad: the left one again for each block of columns, the right one for each block
       of rows; the head of each load
MTE2   each operand from L2 once, by all cores together
FIX    the result to L2 once, likewise

Of all base blocks that L0 holds, in one copy each, the one that needs least counts. Left out is where plans
differ besides: first tiles and the last one, which nothing hides, rounds that are not even, tiles of L1 that
come again, cores that want a link at one time, zeros and sums of parts. So no plan need be at the bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from ascendsim.instructions.cube import FRACTAL_BYTES, FRACTAL_ROWS, fractal_pixels, round_up, row_spans
from ascendsim.ops.plan import even_parts
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.blocks import ACCUMULATOR_BYTES
from ascendsim.ops.tiling.legal_space import BaseSizes
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor


class Bound(NamedTuple):
    """The least microseconds of a gradient's own kernel, its launch included; `pipe` is what says so."""

    time_us: float
    pipe: str


def least_time(request: PlanRequest) -> Bound:
    """Return the time below which no plan of `dgrad`, or of `wgrad`, comes, L2 warm."""
    # Groups that the product's operator computes as one are one here, too.
    gemm, profile = request.gemm, request.profile
    work = _DgradWork(gemm, profile) if isinstance(gemm, DgradGemm) else _WgradWork(gemm, profile)
    moved = {
        "MTE2": sum(tensor.size_bytes for tensor in work.operands)
        / float(profile.links["l2_read"].total_bytes_per_cycle),
        "FIX": gemm.output.size_bytes / float(profile.links["l2_write"].total_bytes_per_cycle),
    }
    found = [_on_cores(work.cycles(base), moved, profile) for base in work.bases()]
    return min(found, key=lambda bound: bound.time_us)


def _on_cores(spread: dict[str, float], moved: dict[str, float], profile: Profile) -> Bound:
    """Return the least time on any number of cores: each costs a part of the launch."""
    bounds = []
    for cores in range(1, profile.cores.cube + 1):
        pipes = {pipe: cycles / cores for pipe, cycles in spread.items()} | moved
        pipe = max(pipes, key=lambda name: pipes[name])
        cycles = profile.scalar.start_cycles + pipes[pipe]
        bounds.append(Bound(profile.launch_us(cores) + cycles / profile.clock.cube_mhz, pipe))
    return min(bounds, key=lambda bound: bound.time_us)


class _Work(ABC):
    """The equal matrix products that make a gradient: one for each group, image and pair of depths.

    units     of m, n and k, by which base blocks are cut
    """

    def __init__(self, gemm: DgradGemm | WgradGemm, profile: Profile) -> None:
        self.gemm, self.profile, self.s = gemm, profile, gemm.sliding

    units: tuple[int, int, int]
    operands: tuple[GmTensor, ...]

    def bases(self) -> Iterator[BaseSizes]:
        """Yield base blocks, of those that cut a side alike the smallest, with the longest k beside it."""
        held = {name: self.profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C")}
        size = self.s.itemsize
        most = [round_up(extent, unit) for extent, unit in zip(self.gemm.sizes, self.units, strict=True)]
        for m in even_parts(self.gemm.sizes[0], self.units[0], most[0]):
            for n in even_parts(self.gemm.sizes[1], self.units[1], most[1]):
                k = min(held["L0A"] // (m * size), held["L0B"] // (n * size)) // self.units[2] * self.units[2]
                if k and m * n * ACCUMULATOR_BYTES <= held["L0C"]:
                    yield BaseSizes(m, n, min(k, most[2]))

    def cycles(self, base: BaseSizes) -> dict[str, float]:
        """Return the cycles of M and MTE1, of all cores together."""
        cube, (m, n, k) = self.profile.cube, self.gemm.sizes
        rate = cube.rate(self.gemm.compute_dtype)
        blocks = -(-m // base.m), -(-n // base.n)
        products = blocks[0] * blocks[1] * -(-k // base.k)
        fractals = -(-m // cube.m0) * -(-n // cube.n0) * -(-k // rate.k0)
        multiplied = fractals * Fraction(cube.m0 * cube.n0 * rate.k0) / Fraction(rate.macs_per_cycle)
        return {
            "M": float(self.gemm.count * (multiplied + products * cube.mmad_head_cycles)),
            "MTE1": float(self.gemm.count * self.loads(blocks, products)),
        }

    @abstractmethod
    def loads(self, blocks: tuple[int, int], products: int) -> Fraction:
        """Return the cycles of MTE1 for one of the products, cut into blocks along m and n."""

    def patches(self, buffer: str, stride: int) -> Fraction:
        """Return the cycles of load3d for one (channel group, tap) of all pixels of an image."""
        law, deep = self.profile.load3d[buffer], fractal_pixels(buffer, self.s.itemsize)
        spans = row_spans(0, self.s.pixels, self.s.out_size[1], deep)
        cycles = sum(count * law.fractal_cycles(stride, rows) for rows, count in spans.items())
        return Fraction(FRACTAL_BYTES * cycles * deep, law.fractal_bytes * FRACTAL_ROWS)

    def head(self, buffer: str) -> int:
        """Return the cycles of a load3d beside its fractals."""
        return self.profile.paths[f"L1_{buffer}"].head_cycles + self.profile.load3d[buffer].command_cycles


class _DgradWork(_Work):
    """Pixels x channels, added up over (channel, tap)."""

    gemm: DgradGemm

    def __init__(self, gemm: DgradGemm, profile: Profile) -> None:
        super().__init__(gemm, profile)
        s = gemm.sliding
        self.units = FRACTAL_ROWS, s.c0, s.c0
        self.operands = gemm.source, gemm.weights

    def loads(self, blocks: tuple[int, int], products: int) -> Fraction:
        """Return the patches again for each block of columns, the weights for each block of pixels."""
        plain, rate = self.profile.load2d, self.profile.paths["L1_L0B"].bytes_per_cycle
        each = Fraction(self.s.itemsize) / Fraction(rate)
        if self.gemm.backwards:
            each += Fraction(plain.turned_block_cycles) / FRACTAL_ROWS**2
        weights = self.gemm.sizes[1] * self.gemm.sizes[2] * each
        patches = self.gemm.all_taps.groups * self.patches("L0A", self.s.stride[1])
        return blocks[1] * patches + blocks[0] * weights + products * (self.head("L0A") + plain.head_cycles)


class _WgradWork(_Work):
    """Channels x (channel, tap), added up over pixels."""

    gemm: WgradGemm

    def __init__(self, gemm: WgradGemm, profile: Profile) -> None:
        super().__init__(gemm, profile)
        s = gemm.sliding
        self.units = s.c0, s.c0, max(FRACTAL_ROWS, profile.cube.rate(gemm.compute_dtype).k0)
        self.operands = gemm.small, gemm.big

    def loads(self, blocks: tuple[int, int], products: int) -> Fraction:
        """Return grad_output again for each block of columns, the patches for each block of rows."""
        patches = self.gemm.all_taps.groups * self.patches("L0B", self.s.stride[1])
        if self.profile.load3d["L0A"].transposes:
            law, groups = self.profile.load3d["L0A"], self.gemm.sizes[0] // self.s.c0
            each = law.turned(-(-self.s.pixels // FRACTAL_ROWS), self.s.itemsize) or self.patches("L0A", 1)
            turned, head = groups * each, self.head("L0A")
        else:
            rate = Fraction(self.profile.paths["L1_L0A"].bytes_per_cycle)
            turned = self.gemm.sizes[0] * self.gemm.sizes[2] * self.s.itemsize / rate
            head = self.profile.load2d.head_cycles
        return blocks[1] * turned + blocks[0] * patches + products * (head + self.head("L0B"))
