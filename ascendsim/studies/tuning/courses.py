"""How a gradient runs under two plans: its stages, its critical path, what its buffers hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.profile import Profile
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.tuning.records import BufferUse, Course, Part
from ascendsim.timing.critical_path import critical_path, cycles_by_pipe
from ascendsim.timing.occupied import Occupied, occupied
from ascendsim.timing.stages import stages
from ascendsim.timing.timeline import Timeline

# Parts of the longer plan's time in which what buffers hold is averaged: as many as a picture shows apart.
BINS = 200
OTHERS = "other kernels"


def course_of(start: str, gradient: str, before: Estimate, after: Estimate, profile: Profile) -> Course:
    """Return how both plans run; stages and causes each add up to the cycles of the gradient's kernels.

    Counted are those of `waits_of`: the product, and the kernels that come of its plan as one part.
    """
    results = before, after
    products = [next(kernel for kernel in side.kernels if kernel.name == gradient) for side in results]
    longer = max(kernel.cycles for kernel in products)
    held = [_buffers(kernel.timeline, longer, profile) for kernel in products]
    return Course(
        start,
        _parts(results, products, stage_cycles),
        _parts(results, products, path_cycles),
        longer,
        held[0],
        held[1],
    )


def stage_cycles(timeline: Timeline) -> dict[str, int]:
    """Return entry, fill, steady and drain of a product."""
    found = stages(timeline)
    assert found is not None, f"{timeline.kernel} multiplies, so that there is a first product"
    return found._asdict()


def path_cycles(timeline: Timeline) -> dict[str, int]:
    """Return the cycles of the critical path by pipe and cause; they add up to those of the kernel."""
    return cycles_by_pipe(critical_path(timeline))


def _parts(
    results: Sequence[Estimate],
    products: Sequence[KernelResult],
    cycles_of: Callable[[Timeline], Mapping[str, int]],
) -> tuple[Part, ...]:
    sides = []
    for result, product in zip(results, products, strict=True):
        others = sum(kernel.cycles for kernel in planned(result)) - product.cycles
        sides.append({**cycles_of(product.timeline), **({OTHERS: others} if others else {})})
    names = [name for name in dict.fromkeys([*sides[0], *sides[1]]) if name != OTHERS]
    names += [OTHERS] if any(OTHERS in side for side in sides) else []
    return tuple(Part(name, sides[0].get(name, 0), sides[1].get(name, 0)) for name in names)


def _buffers(timeline: Timeline, longer: int, profile: Profile) -> tuple[BufferUse, ...]:
    return tuple(_use(one, timeline.cycles, longer, profile) for one in occupied(timeline))


def _use(one: Occupied, cycles: int, longer: int, profile: Profile) -> BufferUse:
    curve = held_curve(one.levels, longer, BINS)
    return BufferUse(
        one.buffer,
        profile.buffers[one.buffer].capacity_bytes,
        one.reserved_bytes,
        tuple((tile.name, tile.copies, tile.size_bytes) for tile in one.tiles),
        one.most_bytes,
        byte_cycles(one.levels) / max(cycles, 1),
        curve,
    )


def byte_cycles(levels: Sequence[tuple[int, int]]) -> int:
    """Return the sum over all cycles of the bytes that are held; nothing is held after the last change."""
    spans = pairwise(levels)
    return sum(held * (after - cycle) for (cycle, held), (after, _) in spans)


def held_curve(levels: Sequence[tuple[int, int]], cycles: int, bins: int) -> tuple[float, ...]:
    """Return the mean bytes held in each of `bins` equal parts of so many cycles."""
    if not levels:
        return (0.0,) * bins
    # Byte-cycles so far are a line with a corner at each change; the parts take differences of it.
    times = np.array([cycle for cycle, _ in levels], dtype=float)
    held = np.array([size for _, size in levels], dtype=float)
    so_far = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(times))])
    edges = np.linspace(0, cycles, bins + 1)
    return tuple((np.diff(np.interp(edges, times, so_far)) * bins / cycles).tolist())
