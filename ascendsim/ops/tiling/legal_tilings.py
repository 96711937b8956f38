"""All legal tilings of one gradient, without making them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from ascendsim.errors import CapacityError, ConfigError, is_bool, refusal, shown, whole
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.schedules.base import schedule_named
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

# So many draws in a row that do not fit make it worth counting whether anything does.
PATIENCE = 10_000


def legal_tilings(
    problem: ConvProblem,
    gradient: str,
    profile: Profile | str,
    dtype: str = "float16",
    *,
    hf32: bool = False,
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

    A tiling is legal if the schedule accepts it, and if every buffer holds the largest tiles of all operands
    at once. Listed are the fields below; values that mean the same plan, or nothing, are left out:

    base_m, base_n, base_k
                   whole fractals of 16 pixels and groups of C0, up to the sizes of the product. The schedule
                   also takes other numbers of pixels for grad_input, where the rest of a fractal is wasted.
                   Left out: blocks longer than what cuts them anyway, such as a row of the image
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
        if t.k_split not in space.splits or not set(copies) <= set(COPIES):
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

        Every field is drawn uniformly over its legal values, given the fields that these depend on (the steps
        on base_k and k_split, the cores on the tasks); half of them have no even parts. What no buffer holds
        is drawn anew as a whole. So fields are uniform where buffers do not decide, and large blocks are as
        rare as they fit.

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
        base = BaseSizes(*(rng.choice(sizes) for sizes in space.sizes))
        k_split = rng.choice(space.splits)
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
