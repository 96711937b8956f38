"""Legal tilings near what somebody asks for, each in one spelling: what means the same plan is one point."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ascendsim.ops.plan import Plan, Tiling, even_parts
from ascendsim.ops.tiling.legal.space import NO_GRID, Base, Cut, Grid
from ascendsim.ops.tiling.legal.tilings import space_of
from ascendsim.ops.tiling.request import PlanRequest

# Base sizes above hold no useful reduction in L0 of any product; of a reduction, no L0A holds more.
MOST = {"m": 1024, "n": 1024, "k": 1024}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a tiling should be like; what does not fit is made smaller.

    reduction_a, reduction_b  of the part that an L1 tile of the left and the right operand holds
    copies                    of the tiles in L1 (left, right) and in L0A, L0B, L0C
    grid                      even parts of all pixels and parts of the columns, if any
    """

    base: Base
    k_split: int
    reduction_a: int
    reduction_b: int
    copies: tuple[int, ...]
    grid: Grid = NO_GRID

    @classmethod
    def of(cls, tiling: Tiling) -> Wish:
        """Return the wish for just this tiling."""
        t = tiling
        copies = (t.al1_buffers, t.bl1_buffers, t.al0_buffers, t.bl0_buffers, t.cl0_buffers)
        base = Base(t.base_m, t.base_n, t.base_k)
        # Of other grids there are no plans here: their base blocks are dealt in ranges.
        grid = Grid(t.pixel_dim, t.n_dim) if t.pixel_dim else NO_GRID
        return cls(base, t.k_split, t.step_ka * t.base_k, t.step_kb * t.base_k, copies, grid)


class Tilings:
    """The tilings of one gradient under its usual loop nest, found by what is wished for."""

    def __init__(self, request: PlanRequest) -> None:
        self.space = space_of(request)
        self.sizes = tuple(
            tuple(sorted(even_parts(legal[-1], legal.step, most)))
            for legal, most in zip(self.space.sizes, MOST.values(), strict=True)
        )

    def plan(self, wish: Wish) -> Plan | None:
        """Return the legal plan nearest to a wish; None where its base block or split is none."""
        space, base = self.space, wish.base
        if not all(size in legal for size, legal in zip(base, space.sizes, strict=True)):
            return None
        if wish.k_split not in space.splits or space.ways(space.least(base)) is None:
            return None
        grid = self._grid(wish)
        if grid is None:
            return None
        for steps in self._steps(wish):
            cut = Cut(base, wish.k_split, steps, (wish.copies[0], wish.copies[1]), grid)
            footprint = space.footprint(cut)
            most = footprint and space.ways(footprint)
            if footprint is None or most is None:
                continue
            l0 = [min(copies, held) for copies, held in zip(wish.copies[2:], most, strict=True)]
            # As many cores as the longest core's share needs: one more would only share the links.
            rounds = -(-footprint.tasks // space.most_cores(footprint.tasks))
            cores = max(1, -(-footprint.tasks // rounds))
            al0, bl0, cl0 = l0
            tiling = Tiling(
                *(*base, *steps, *cut.copies, al0, bl0, cl0),
                k_split=wish.k_split,
                used_cores=cores,
                group_merge=space.group_merge,
                pixel_dim=grid.pixel_dim,
                n_dim=grid.n_dim,
            )
            return Plan(space.schedule, tiling)
        return None

    def _grid(self, wish: Wish) -> Grid | None:
        """Return the cells nearest to the wish; None where its even parts are those of whole blocks."""
        asked = wish.grid
        if not asked.pixel_dim:
            return NO_GRID
        # Where columns have fewer blocks than parts: fewer parts, or as many cells by more parts of pixels.
        near = [
            grid
            for grid in self.space.grids(wish.base)
            if grid.cells == asked.cells or (grid.pixel_dim == asked.pixel_dim and grid.n_dim <= asked.n_dim)
        ]
        cores = self.space.profile.cores.cube
        return max(near, key=lambda grid: (grid == asked, min(grid.cells, cores), grid.n_dim), default=None)

    def balanced(self, base: Base) -> list[Grid]:
        """Return the grids that give every core as much: of few column parts, side by side or in turns."""
        cores = self.space.profile.cores.cube
        made = []
        for grid in self.space.grids(base):
            columns = max(1, grid.n_dim)
            beside = columns <= 3 and grid.pixel_dim == cores // columns
            if beside or (grid.pixel_dim == cores and columns == -(-self.space.gemm.columns // base.n)):
                made.append(grid)
        return made

    def longest(self, wish: Wish) -> Wish:
        """Return the wish with the longest block that L0 holds in as many copies."""
        for m in reversed(self.space.sizes[0][: MOST["m"] // 16]):
            base = wish.base._replace(m=m)
            footprint = self.space.footprint(Cut(base, wish.k_split, (1, 1), (1, 1), wish.grid))
            most = footprint and self.space.ways(footprint)
            if most and all(held >= copies for held, copies in zip(most, wish.copies[2:], strict=True)):
                return replace(wish, base=base)
        return wish

    def _steps(self, wish: Wish) -> list[tuple[int, int]]:
        """Return the steps that mean different tiles, the largest up to the wish first."""
        k = wish.base.k
        asked = max(1, wish.reduction_a // k), max(1, wish.reduction_b // k)
        known = self.space.steps(k, wish.k_split)
        # A step between two that are listed means the lower one's tiles, and is no point of its own.
        firsts, seconds = ({step[at] for step in known} for at in (0, 1))
        top = (_floor(firsts, asked[0]), _floor(seconds, asked[1]))
        below = [step for step in known if step[0] <= top[0] and step[1] <= top[1]]
        return sorted(below, key=lambda step: (-step[0] * step[1], step))


def _floor(listed: set[int], asked: int) -> int:
    return max((step for step in listed if step <= asked), default=min(listed))
