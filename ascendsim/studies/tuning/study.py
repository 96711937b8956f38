"""Tune one gradient, and say why the best plan is faster and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.ops.traffic import bytes_by_pipe
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.engine.point import NOTHING, StudyPoint, changes_text
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.sweep import hashable, moved_together, studied, variables
from ascendsim.studies.tuning.records import (
    Beside,
    BufferUse,
    Course,
    CyclesPart,
    ReachedTime,
    Started,
    TilingAnswer,
    TilingQuestion,
)
from ascendsim.studies.tuning.search import tune, unmade
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of, waits_of
from ascendsim.studies.verdicts import judged
from ascendsim.timing.critical_path import critical_path, cycles_by_pipe
from ascendsim.timing.timeline import Occupied, Timeline, occupied, stages

# Parts of the longer plan's time in which what buffers hold is averaged: as many as a picture shows apart.
BINS = 200
Moves = Sequence[Mapping[str, Any]]
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

    Raises   AscendSimError where the product's own plan cannot be timed, or multiplies nothing
    """
    changes = dict(question.changes)
    profile = load_profile(question.product, overrides=changes or None)
    tuner = Tuner(question, engine, budget, compute_dtype_of(question, engine.limits))
    usual, best = tune(tuner)
    found = list(tuner.trials.values())
    full = sum(len(trial.times_us) == len(question.starts) for trial in found)
    refused = sum(bool(trial.reason) for trial in found)
    tried = {"timed": full, "pruned": len(found) - full - refused, "refused": refused}
    mhz, name = profile.clock.cube_mhz, question.gradient
    waits, courses = [], []
    for start in question.starts:
        sides = ({**engine.limits, "tiling": {name: trial.plan}} for trial in (usual, best))
        before, after = (_timed(question, profile, start, own) for own in sides)
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
    return weighed(answer, tuner), tuner


def weighed(answer: TilingAnswer, tuner: Tuner) -> TilingAnswer:
    """Return the answer with what the best plan is worth, and on which figures it hangs whether it wins."""
    if answer.keeps:
        return answer
    reason = unmade(answer.best.plan, answer.question.problem, answer.usual.plan)
    answer = replace(answer, reaches=reached_times(answer, tuner), unmade=reason)
    return _doubted(answer, tuner) if answer.question.doubt else answer


def reached_times(answer: TilingAnswer, tuner: Tuner) -> tuple[ReachedTime, ...]:
    """Return the times of both plans: kernel, call, deterministic call, and all gradients of the layer.

    What cannot be timed under the best plan is left out.
    """
    asked: dict[tuple[str, str], tuple[StudyPoint, StudyPoint]] = {}
    for start in answer.question.starts:
        usual, best = (tuner.point(start, trial.plan) for trial in (answer.usual, answer.best))
        # Whatever else a call does is planned as the product plans it.
        product = replace(usual, tiling="product")
        asked["call", start] = usual, best
        if not answer.question.deterministic:
            in_order = replace(product, deterministic=True), replace(best, deterministic=True)
            asked["deterministic call", start] = in_order
        every = (True, True, True)
        asked["training step", start] = replace(product, gradients=every), replace(best, gradients=every)
    points = [point for pair in asked.values() for point in pair]
    found = [timed for _, timed in tuner.engine.answer(points, tuner.budget)]
    rows = []
    for at, (what, start) in enumerate(asked):
        if what == "call":
            times = answer.usual.times_us[start], answer.best.times_us[start]
            rows.append(ReachedTime("kernel", start, *times))
        before, after = found[2 * at : 2 * at + 2]
        if before is not None and after is not None and not (before.reason or after.reason):
            rows.append(ReachedTime(what, start, before.time_us, after.time_us))
    return tuple(rows)


@default_arithmetic
def _doubted(answer: TilingAnswer, tuner: Tuner) -> TilingAnswer:
    """Move each figure with a range to both ends, on both plans, and judge by the start that saves least."""
    left: set[str] = set()

    def gains(moves: Moves) -> list[float | None]:
        return _savings(answer, tuner, moves, left)

    # Figures of one source move together.
    figures = {one.name: one.figures[one.name] for one in variables(tuner.profile)}
    verdict = judged(gains, figures, answer.least, answer.question.margin)
    # Ends for which no trial was left; those between are no loss, as a value farther away stands for them.
    untried = len(left & set(verdict.untimed))
    deciding = {condition.figure: figures[condition.figure] for condition in verdict.conditions}
    even = judged(gains, deciding, answer.least).conditions if deciding else ()
    return replace(answer, verdict=verdict, even=even, untried=untried)


def _savings(answer: TilingAnswer, tuner: Tuner, moves: Moves, left: set[str]) -> list[float | None]:
    """Return the part that the best plan saves with figures moved, under the start that saves least.

    None where it cannot be timed; a move that was not tried is added to `left`
    """
    plans = answer.usual.plan, answer.best.plan
    moved = variables(tuner.profile)
    told = [{path: hashable(value) for path, value in moved_together(move, moved).items()} for move in moves]
    sides = [(start, plan) for start in answer.question.starts for plan in plans]
    points = [tuner.point(start, plan, move) for move in told for start, plan in sides]
    found = [timed for _, timed in tuner.engine.answer(points, tuner.budget)]
    savings: list[float | None] = []
    for at, move in enumerate(moves):
        own = found[at * len(sides) :][: len(sides)]
        if any(timed is None for timed in own):
            left.add(changes_text(move))
        times = [timed.planned_us for timed in own if timed is not None and not timed.reason]
        pairs = zip(times[::2], times[1::2], strict=True) if len(times) == len(sides) else ()
        savings.append(min((1 - best / usual for usual, best in pairs), default=None))
    return savings


@default_arithmetic
def set_beside(
    question: TilingQuestion,
    tiling: Any = None,
    schedule: str | type | None = None,
    limits: Mapping[str, Any] = NOTHING,
) -> Beside:
    """Time a plan of the user's, whole or in part, beside the usual one.

    tiling     as a call takes it for one gradient; None: that of the rules
    schedule   a loop nest by name or class; None: that of the plan
    limits     what a call may have at most, as the keywords of `estimate`
    Raises     AscendSimError where one of both cannot be timed, or multiplies nothing
    """
    profile, name = load_profile(question.product), question.gradient
    own: dict[str, Any] = {"tiling": tiling if tiling is None else {name: tiling}}
    own |= {"schedule": schedule if schedule is None else {name: schedule}}
    starts, plans = [], {}
    for start in question.starts:
        sides = [_timed(question, profile, start, {**limits, **more}) for more in ({}, own)]
        starts.append(_started(question, profile, start, *sides))
        plans = {when: side.plans[name] for when, side in zip(("usual", "given"), sides, strict=True)}
    return Beside(question, *studied(profile), plans["usual"], plans["given"], tuple(starts))


def _timed(question: TilingQuestion, profile: Profile, start: str, own: Mapping[str, Any]) -> Estimate:
    if not question.problem.met_macs:
        told = f"{question.gradient} of {question.title}: all taps meet padding alone; ask of another layer"
        raise ConfigError(f"study tiling: {told}")
    asked: dict[str, Any] = {"output_mask": question.gradients, "deterministic": question.deterministic}
    options = {"product": profile, "l2_start": start, **asked, **own}
    return estimate(question.problem, question.dtype, question.cube_math_type, **options)


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
