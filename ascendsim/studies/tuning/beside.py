"""A plan of the user's own beside the one of a call by default: both are timed, nothing is tuned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.sweep import ranged_figures
from ascendsim.studies.tuning.courses import course_of
from ascendsim.studies.tuning.records import Beside, Part, Started, TilingQuestion
from ascendsim.studies.tuning.waits import waits_of
from ascendsim.timing.moved import bytes_by_pipe


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
        profile.variant,
        profile.content.hex(),
        len(ranged_figures(profile)),
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


def _parts(sides: list[dict[str, int]]) -> tuple[Part, ...]:
    return tuple(
        Part(name, sides[0].get(name, 0), sides[1].get(name, 0))
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if any(side.get(name) for side in sides)
    )


def _moved(kernel: KernelResult, profile: Profile) -> dict[str, int]:
    memory = {"from memory": kernel.bytes["memory_read"], "to memory": kernel.bytes["memory_write"]}
    return bytes_by_pipe(kernel.kernel, profile) | memory
