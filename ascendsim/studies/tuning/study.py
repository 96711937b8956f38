"""Tune one gradient, and say why the best plan is faster and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.plan import Plan
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.sweep import ends, hashable, ranged_figures, studied
from ascendsim.studies.tuning.records import (
    Beside,
    BufferUse,
    Course,
    CyclesPart,
    Started,
    TilingAnswer,
    TilingQuestion,
)
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of, waits_of
from ascendsim.timing.critical_path import critical_path, cycles_by_pipe
from ascendsim.timing.timeline import Occupied, Timeline, occupied, stages
from ascendsim.timing.times import bytes_by_pipe

# Parts of the longer plan's time in which what buffers hold is averaged: as many as a picture shows apart.
BINS = 200
OTHERS = "other kernels"


def course_of(start: str, gradient: str, before: Estimate, after: Estimate, profile: Profile) -> Course:
    """Return the runs of both plans; stages and causes each add up to the cycles of the gradient's kernels.

    Counted are those of `waits_of`: the product, and the kernels that come of its plan as one part.
    """
    results = before, after
    products = [next(kernel for kernel in side.kernels if kernel.name == gradient) for side in results]
    longer = max(kernel.cycles for kernel in products)
    held = [_buffers(kernel.timeline, longer, profile) for kernel in products]
    return Course(
        start,
        _course_parts(results, products, stage_cycles),
        _course_parts(results, products, path_cycles),
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


def _course_parts(
    results: Sequence[Estimate],
    products: Sequence[KernelResult],
    cycles_of: Callable[[Timeline], Mapping[str, int]],
) -> tuple[CyclesPart, ...]:
    sides = []
    for result, product in zip(results, products, strict=True):
        others = sum(kernel.cycles for kernel in planned(result)) - product.cycles
        sides.append({**cycles_of(product.timeline), **({OTHERS: others} if others else {})})
    names = [name for name in dict.fromkeys([*sides[0], *sides[1]]) if name != OTHERS]
    names += [OTHERS] if any(OTHERS in side for side in sides) else []
    return tuple(CyclesPart(name, sides[0].get(name, 0), sides[1].get(name, 0)) for name in names)


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
    """Return the mean bytes held in each of `bins` equal parts of `cycles` cycles."""
    if not levels:
        return (0.0,) * bins
    # Byte-cycles so far are a line with a corner at each change; the parts take differences of it.
    times = np.array([cycle for cycle, _ in levels], dtype=float)
    held = np.array([size for _, size in levels], dtype=float)
    so_far = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(times))])
    edges = np.linspace(0, cycles, bins + 1)
    return tuple((np.diff(np.interp(edges, times, so_far)) * bins / cycles).tolist())


@default_arithmetic
def study_tiling(question: TilingQuestion, engine: Engine, budget: Budget) -> tuple[TilingAnswer, Tuner]:
    """Answer what beats the product's plan; the tuner holds every plan that was tried.

    Raises   AscendSimError where the product's own plan cannot be timed
    """
    changes = dict(question.changes)
    profile = load_profile(question.product, overrides=changes or None)
    tuner = Tuner(question, engine, budget, compute_dtype_of(question))
    usual, best = tune(tuner)
    found = list(tuner.trials.values())
    full = sum(len(trial.times_us) == len(question.starts) for trial in found)
    refused = sum(bool(trial.reason) for trial in found)
    tried = {"timed": full, "pruned": len(found) - full - refused, "refused": refused}
    mhz, name = profile.clock.cube_mhz, question.gradient
    waits, courses = [], []
    for start in question.starts:
        before, after = (_estimate(question, profile, trial.plan, start) for trial in (usual, best))
        waits.append(waits_of(start, name, before, after, mhz))
        courses.append(course_of(start, name, before, after, profile))
    answer = TilingAnswer(
        question,
        *studied(profile),
        usual,
        best,
        tuple(waits),
        tuple(courses),
        FrozenMap(tried),
        cut=budget.cut,
    )
    if question.doubt and best.plan != usual.plan:
        answer = _doubted(answer, tuner)
    return answer, tuner


def _estimate(question: TilingQuestion, profile: Profile, plan: Plan, start: str) -> Estimate:
    return estimate(
        question.problem,
        question.dtype,
        question.cube_math_type,
        output_mask=question.gradients,
        product=profile,
        tiling={question.gradient: plan},
        l2_start=start,
    )


def _doubted(answer: TilingAnswer, tuner: Tuner) -> TilingAnswer:
    """Time both plans at both ends of each assumed figure, and name those at which the best is slower."""
    points = {}
    for path, figure in ranged_figures(tuner.profile).items():
        for end in dict.fromkeys(map(hashable, ends(figure))):
            if end == hashable(figure.value):
                continue
            for start in answer.question.starts:
                for trial in (answer.usual, answer.best):
                    points[path, end, start, trial.plan] = tuner.point(start, trial.plan, {path: end})
    outcome = tuner.engine.answer(list(points.values()), tuner.budget)
    times: dict[tuple[str, object, str], dict[Plan, float]] = {}
    untried = set()
    for (path, end, start, plan), (_, found) in zip(points, outcome, strict=True):
        if found is None:
            untried.add((path, end, start))
        elif not found.reason:
            times.setdefault((path, end, start), {})[plan] = found.planned_us
    both = {place: row for place, row in times.items() if len(row) == 2}
    lost = [
        f"{path}={end}, L2 {start}"
        for (path, end, start), row in both.items()
        if row[answer.best.plan] >= row[answer.usual.plan]
    ]
    return replace(answer, ends=len(both), lost=tuple(lost), untried=len(untried))


@default_arithmetic
def set_beside(question: TilingQuestion, tiling: Any = None, schedule: str | type | None = None) -> Beside:
    """Time a plan of the user's, whole or in part, beside the usual one.

    tiling     as a call takes it for one gradient; None: that of the rules
    schedule   a loop nest by name or class; None: that of the plan
    Raises     AscendSimError where one of both cannot be timed
    """
    profile, name = load_profile(question.product), question.gradient
    own: dict[str, Any] = {"tiling": tiling if tiling is None else {name: tiling}}
    own |= {"schedule": schedule if schedule is None else {name: schedule}}
    starts, plans = [], {}
    for start in question.starts:
        sides = [_timed(question, profile, start, more) for more in ({}, own)]
        starts.append(_started(question, profile, start, *sides))
        plans = {when: side.plans[name] for when, side in zip(("usual", "given"), sides, strict=True)}
    return Beside(
        question,
        *studied(profile),
        plans["usual"],
        plans["given"],
        tuple(starts),
    )


def _timed(question: TilingQuestion, profile: Profile, start: str, own: Mapping[str, Any]) -> Estimate:
    call = question.problem, question.dtype, question.cube_math_type
    return estimate(*call, output_mask=question.gradients, product=profile, l2_start=start, **own)


def _started(
    question: TilingQuestion, profile: Profile, start: str, before: Estimate, after: Estimate
) -> Started:
    name, sides = question.gradient, (before, after)
    products = [next(kernel for kernel in side.kernels if kernel.name == name) for side in sides]
    first_us, second_us = (sum(kernel.time_us for kernel in planned(side)) for side in sides)
    busy = [{pipe: round(cycles) for pipe, cycles in kernel.busy.items()} for kernel in products]
    moved = [_moved(kernel, profile) for kernel in products]
    return Started(
        start,
        (first_us, second_us),
        waits_of(start, name, before, after, profile.clock.cube_mhz),
        course_of(start, name, before, after, profile),
        _parts(busy),
        _parts(moved),
    )


def _parts(sides: list[dict[str, int]]) -> tuple[CyclesPart, ...]:
    return tuple(
        CyclesPart(name, sides[0].get(name, 0), sides[1].get(name, 0))
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if any(side.get(name) for side in sides)
    )


def _moved(kernel: KernelResult, profile: Profile) -> dict[str, int]:
    memory = {"from memory": kernel.bytes["memory_read"], "to memory": kernel.bytes["memory_write"]}
    return bytes_by_pipe(kernel.kernel, profile) | memory
