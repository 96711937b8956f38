"""The neighbours of a plan: one thing changed, and what that asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ascendsim.ops.plan import Plan
from ascendsim.ops.schedules.catalogue import SCHEDULES, schedule_named
from ascendsim.ops.tiling.legal.space import NO_GRID
from ascendsim.studies.tuning.space import Tilings, Wish


def neighbours(plan: Plan, tilings: Tilings) -> list[Plan]:
    """Return the plans one step away, each once: in base block, split, tiles of L1, copies or loop nest."""
    wish = Wish.of(plan.tiling)
    found = [tilings.plan(wished) for wished in _wishes(wish, tilings)]
    same_nest = [replace(near, schedule=plan.schedule) for near in found if near is not None]
    own = tilings.plan(wish)
    other_nests = [replace(own, schedule=name) for name in nests_of(tilings.space.schedule)] if own else []
    return [near for near in dict.fromkeys((*same_nest, *other_nests)) if near != plan]


def nests_of(usual: str) -> tuple[str, ...]:
    """Return the usual loop nest of a gradient, and those like it that only order its tasks otherwise."""
    kind = schedule_named(usual)
    others = {name: schedule_named(name) for name in SCHEDULES}
    alike = [name for name, other in others.items() if issubclass(other, kind) and other.reads <= kind.reads]
    return (usual, *(name for name in alike if name != usual))


def _wishes(wish: Wish, tilings: Tilings) -> Iterator[Wish]:
    for axis, sizes in zip(("m", "n", "k"), tilings.sizes, strict=True):
        for size in _near(getattr(wish.base, axis), sizes, tilings.space.sizes["mnk".index(axis)].step):
            yield replace(wish, base=wish.base._replace(**{axis: size}))
    # Two sides at once: a block that grows along m has to shrink along n to fit.
    for m in _near(wish.base.m, tilings.sizes[0], 16):
        for n in _near(wish.base.n, tilings.sizes[1], 16):
            yield replace(wish, base=wish.base._replace(m=m, n=n))
    split = wish.k_split
    for other in dict.fromkeys((split - 1, split + 1, split // 2, 2 * split)):
        yield replace(wish, k_split=max(1, other))
    for factor_a, factor_b in ((1, 2), (2, 1), (2, 2), (1, 0.5), (0.5, 1), (0.5, 0.5), (64, 64)):
        longer = int(wish.reduction_a * factor_a), int(wish.reduction_b * factor_b)
        yield replace(wish, reduction_a=longer[0], reduction_b=longer[1])
    for place, copies in enumerate(wish.copies):
        turned = 1 if copies == 2 else 2
        yield replace(wish, copies=(*wish.copies[:place], turned, *wish.copies[place + 1 :]))
    yield from _evenly(wish, tilings)
    # One tile at a time leaves twice the room for each of them.
    yield replace(wish, copies=(1, 1, *wish.copies[2:]), reduction_a=2 * wish.reduction_a)


def _evenly(wish: Wish, tilings: Tilings) -> Iterator[Wish]:
    """Yield the wish with even parts of all pixels, as long blocks of which as fit cut images freely."""
    if wish.grid.pixel_dim:
        yield replace(wish, grid=NO_GRID)
    for grid in tilings.balanced(wish.base):
        for k in (wish.base.k, wish.base.k // 2 // 16 * 16):
            cut = replace(wish, base=wish.base._replace(k=max(16, k)), grid=grid)
            yield cut
            yield tilings.longest(cut)


def _near(size: int, sizes: tuple[int, ...], unit: int) -> list[int]:
    """Return sizes near one: even cuts on both sides, twice and half, a unit more or less."""
    below = [other for other in sizes if other < size][-2:]
    above = [other for other in sizes if other > size][:2]
    others = (2 * size, size // 2 // unit * unit, size + unit, size - unit)
    return [other for other in dict.fromkeys((*below, *above, *others)) if other > 0]
