"""All legal tilings of one gradient, without making them; a time below which none of them comes.

The bound is what a plan with base blocks of m x n x k cannot avoid, spread evenly over the cores:

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
from itertools import product
from random import Random
from typing import NamedTuple

from ascendsim.errors import CapacityError, ConfigError, is_bool, refusal, shown, whole
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, ROW_BYTES, Gathering, round_up, row_spans
from ascendsim.ops.plan import Tiling, even_parts
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.schedules.blocks import ACCUMULATOR_BYTES
from ascendsim.ops.tiling.legal_space import (
    COPIES,
    NO_GRID,
    BaseSizes,
    CellGrid,
    DgradSpace,
    Footprint,
    L1Cut,
    Space,
    WgradSpace,
)
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.profile import Profile, load_profile
from ascendsim.program.places import GmTensor

# So many draws in a row that do not fit make it worth counting whether anything does.
PATIENCE = 10_000


def legal_tilings(
    problem: ConvProblem, gradient: str, profile: Profile | str, dtype: str = "float16", *, hf32: bool = False
) -> LegalTilings:
    """Return all tilings of one gradient that its usual schedule, `dgrad` or `wgrad`, can follow.

    gradient   "grad_input" or "grad_weight"
    profile    a loaded Profile, or the name of a product
    dtype      the format of the operands on the cube; hf32: float32 that it rounds to HF32

    Raises     ConfigError for another gradient, UnsupportedError for a format that the cube does not multiply
    """
    profile = profile if isinstance(profile, Profile) else load_profile(profile)
    if not isinstance(problem, ConvProblem):
        raise ConfigError(f"legal_tilings: problem is {shown(problem)}; it must be a ConvProblem")
    if not is_bool(hf32):
        raise refusal("legal_tilings: hf32", hf32, "true or false")
    return LegalTilings(space_of(PlanRequest(problem, gradient, "hf32" if hf32 else dtype, profile)))


def space_of(request: PlanRequest) -> Space:
    """Return the cuts of a gradient of a convolution, its groups merged as for a plan."""
    kind = DgradSpace if request.gradient == "grad_input" else WgradSpace
    space: Space = kind(request.gemm, request.profile)
    space.group_merge = request.merge
    return space


class LegalTilings:
    """The legal tilings of one gradient: counted, listed in order, drawn, asked for.

    A tiling is legal if the schedule accepts it, if every buffer holds the largest tiles of all operands at
    once, and if it says what runs: `Schedule.canonical` shortens nothing. Listed are the fields below; values
    that mean the same plan, or nothing, are left out:

    base_m, base_n, base_k
                   whole fractals of 16 pixels and groups of C0, up to the sizes of the product. The schedule
                   also takes other numbers of pixels for grad_input, where the rest of a fractal is wasted.
                   No longer than what cuts them anyway: a part of the reduction, and a row of the image
                   where blocks, or runs of grad_weight, stay inside rows, as L1 does not hold more
    step_ka, step_kb
                   the least for each box of taps that a tile in L1 can hold; of grad_weight both are equal,
                   up to one image
    al1_buffers, bl1_buffers, al0_buffers, bl0_buffers, cl0_buffers
                   1 or 2
    k_split        grad_input: up to the groups of channels; grad_weight: up to the cores, and to the runs of
                   pixels. More parts are accepted, and wait for a core or are empty
    pixel_dim, n_dim
                   of grad_input: none, or even parts of all pixels, up to the cores, one of which ends inside
                   an image, alone or times each number of parts of the column blocks. Other grids, of whole
                   images and base blocks, are left out
    used_cores     up to the cores, and to the tasks or cells: more would get none
    group_merge    as many as the product's operator takes as one

    Some that are listed still mean the same plan, as finding them takes a look at every task: copies that no
    second tile comes for, slices that base_k cuts alike, rows that end runs of different lengths, and even
    parts that ranges of whole blocks make, too.

    `len()` and `count` are exact. Base blocks and what L1 holds of them are gone through; copies in L0 and
    cores are multiplied, not listed. That takes seconds for a layer of ResNet-50.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._reads = schedule_named(space.schedule).obeyed()

    @cached_property
    def count(self) -> int:
        """The number of legal tilings."""
        return self._space.count()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Tiling]:
        space = self._space
        for base in space.bases():
            for cut, footprint in space.cuts(base):
                most = space.ways(footprint) or (0, 0, 0)
                copies = product(*(COPIES[:each] for each in most))
                for l0, cores in product(copies, range(1, space.most_cores(footprint.tasks) + 1)):
                    yield self._tiling(cut, l0, cores)

    def __contains__(self, tiling: object) -> bool:
        if not isinstance(tiling, Tiling) or not set(tiling.set_fields()) <= self._reads:
            return False
        space, t = self._space, tiling
        if t.group_merge != space.group_merge or t.batch_dim or t.m_dim or t.k_dim:
            return False
        base, grid = BaseSizes(t.base_m, t.base_n, t.base_k), CellGrid(t.pixel_dim, t.n_dim)
        copies = (t.al1_buffers, t.bl1_buffers)
        if not all(size in legal for size, legal in zip(base, space.sizes, strict=True)):
            return False
        if t.k_split not in space.splits_of(t.base_k) or not set(copies) <= set(COPIES):
            return False
        steps = (t.step_ka, t.step_kb)
        if steps not in space.steps(t.base_k, t.k_split):
            return False
        if grid != NO_GRID and grid not in space.grids(base):
            return False
        footprint = space.footprint(L1Cut(base, t.k_split, steps, copies, grid))
        most = footprint and space.ways(footprint)
        if footprint is None or most is None or t.used_cores > space.most_cores(footprint.tasks):
            return False
        l0 = t.al0_buffers, t.bl0_buffers, t.cl0_buffers
        return all(copies <= held for copies, held in zip(l0, most, strict=True))

    def sample(self, count: int, seed: int = 0) -> list[Tiling]:
        """Draw `count` legal tilings; equal seeds draw equal ones.

        Every field is drawn uniformly over its legal values, given the fields that these depend on (k_split
        on base_k, the steps on both, the cores on the tasks); half of them have no even parts. What no buffer
        holds is drawn anew as a whole. So fields are uniform where buffers do not decide, and large blocks
        are as rare as they fit.

        Raises   CapacityError if nothing fits; ConfigError for a count or a seed that is none
        """
        for name, given in (("count", count), ("seed", seed)):
            if (number := whole(given)) is None or number < 0:
                raise refusal(f"LegalTilings.sample: {name}", given, "a whole number from 0 on")
        rng = Random(whole(seed))
        found: list[Tiling] = []
        missed = 0
        while len(found) < count:
            drawn = self._draw(rng)
            missed = 0 if drawn else missed + 1
            if drawn:
                found.append(drawn)
            elif missed == PATIENCE and not self.count:
                raise CapacityError(
                    f"no tiling of schedule {self._space.schedule} fits into the buffers of "
                    f"{self._space.profile.variant}"
                )
        return found

    def _draw(self, rng: Random) -> Tiling | None:
        """Draw a tiling; None if it does not fit."""
        space = self._space
        if not all(space.held):
            return None
        base = BaseSizes(*(rng.choice(sizes) for sizes in space.held))
        k_split = rng.choice(space.splits_of(base.k))
        l1, l0 = (rng.choice(COPIES), rng.choice(COPIES)), tuple(rng.choice(COPIES) for _ in range(3))
        # Most draws end here: two sizes of three are often too large for L0.
        if not self._fits(space.least(base), l0):
            return None
        # Cells are many more than none of them, which so is drawn as often as any.
        grid, grids = NO_GRID, space.grids(base)
        if grids and rng.random() < 0.5:
            grid = rng.choice(grids)
        cut = L1Cut(base, k_split, rng.choice(space.steps(base.k, k_split)), l1, grid)
        footprint = space.footprint(cut)
        if footprint is None or not self._fits(footprint, l0):
            return None
        return self._tiling(cut, l0, rng.randint(1, space.most_cores(footprint.tasks)))

    def _fits(self, footprint: Footprint, copies: tuple[int, ...]) -> bool:
        most = self._space.ways(footprint)
        return most is not None and all(each <= held for each, held in zip(copies, most, strict=True))

    def _tiling(self, cut: L1Cut, l0: tuple[int, ...], cores: int) -> Tiling:
        (m, n, k), (ka, kb), (al1, bl1), (al0, bl0, cl0) = cut.base, cut.steps, cut.copies, l0
        sizes = m, n, k, ka, kb, al1, bl1, al0, bl0, cl0
        merge, (pixel_dim, n_dim) = self._space.group_merge, cut.grid
        return Tiling(*sizes, cut.k_split, cores, group_merge=merge, pixel_dim=pixel_dim, n_dim=n_dim)


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
        law, deep = self.profile.load3d[buffer], Gathering.of(self.profile, buffer, self.s.itemsize).step
        spans = row_spans(0, self.s.pixels, self.s.out_size[1], deep)
        cycles = sum(count * law.fractal_cycles(stride, rows) for rows, count in spans.items())
        return Fraction(ROW_BYTES * cycles * deep, law.fractal_bytes)

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
