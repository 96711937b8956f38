"""Data parallel training: a device for each share of the images, and the all-reduce of the gradients.

Each device has two streams: one runs the calls of the backward pass, the last layer first, the other sends
gradients over the link, one layer's after the other's. A layer's gradients can go when its call has ended.
All times are whole cycles of the cube clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush
from math import prod
from typing import NamedTuple

from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.devices_records import (
    DeviceRing,
    DevicesAnswer,
    DevicesQuestion,
    LayerShare,
    ParallelStep,
)
from ascendsim.studies.engine.point import NOTHING, StudyPoint
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.hardware.gains import Asking
from ascendsim.studies.hardware.records import StudiedLayer

# A link is sought in whole megabytes a second, up to a thousand times what is built.
MOST_MB_PER_S = 10**9


class BackwardCall(NamedTuple):
    """One call of the backward pass on every device: its cycles, and the bytes of gradients that it makes."""

    cycles: int
    gradient_bytes: int


def simulated(shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int) -> int:
    """Return the cycle in which the last call and the last all-reduce have ended, event by event.

    The plain definition; `overlapped` is held to it.
    """
    ends: list[tuple[int, str, int]] = []
    waiting, sending, now = list[int](), False, 0
    if shares:
        heappush(ends, (shares[0].cycles, "call", 0))
    while ends:
        now, what, at = heappop(ends)
        if what == "call":
            waiting.append(at)
            if at + 1 < len(shares):
                heappush(ends, (now + shares[at + 1].cycles, "call", at + 1))
        else:
            sending = False
        if waiting and not sending:
            first = waiting.pop(0)
            sending = True
            heappush(ends, (now + ring.cycles(shares[first].gradient_bytes, mhz), "send", first))
    return now


def overlapped(shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int) -> int:
    """Return what `simulated` returns, in one pass."""
    ended = free = 0
    for share in shares:
        ended += share.cycles
        free = max(free, ended) + ring.cycles(share.gradient_bytes, mhz)
    return free


def in_turn(shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int) -> int:
    """Return the cycles of a step whose all-reduce begins when the last call has ended."""
    return sum(share.cycles + ring.cycles(share.gradient_bytes, mhz) for share in shares)


def needed_link(
    shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int, most: Fraction, *, overlap: bool
) -> Fraction | None:
    """Return the slowest link in GB/s, of whole MB/s, that adds at most a part `most` of the step's cycles.

    None   where no link does: latencies alone take longer
    """
    calls, course = sum(share.cycles for share in shares), overlapped if overlap else in_turn

    def enough(mb_per_s: int) -> bool:
        step = course(shares, ring._replace(gb_per_s=Fraction(mb_per_s, 1000)), mhz)
        return step - calls <= most * step

    low, high = 0, MOST_MB_PER_S
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, 1000)


@default_arithmetic
def study_devices(
    question: DevicesQuestion, engine: Engine, budget: Budget
) -> tuple[DevicesAnswer, list[StudyPoint]]:
    """Answer how much of a step the all-reduce takes, and return the points that were timed, for a table.

    Raises   ConfigError as `DevicesQuestion.ring`, for a layer that cannot be timed, and where time or trials
             are used up
    """
    from ascendsim.profile.records import ranged_figures

    profile = load_profile(question.product)
    ring, asking = question.ring(profile), Asking(engine, budget)
    call = question.product, NOTHING, question.dtype, question.cube_math_type
    points = {
        (layer, start): StudyPoint(
            layer.problem, *call, layer.gradients, start, label=f"{layer.name}, {start}"
        )
        for start in question.starts
        for layer in question.layers
    }
    answers = asking(points)
    for (layer, _), answer in answers.items():
        if answer.reason:
            raise ConfigError(f"layer {layer.name} on {profile.variant}: {answer.reason}")
    steps = tuple(
        _step(question, start, [answers[layer, start].time_us for layer in question.layers], ring, profile)
        for start in question.starts
    )
    about = profile.variant, profile.content.hex(), len(ranged_figures(profile))
    return DevicesAnswer(question, *about, ring, steps), list(points.values())


def _step(
    question: DevicesQuestion, start: str, times: Sequence[float], ring: DeviceRing, profile: Profile
) -> ParallelStep:
    mhz = profile.clock.cube_mhz
    rows, shares = [], list[BackwardCall]()
    for layer, time_us in zip(question.layers, times, strict=True):
        size = gradient_bytes(layer, question.dtype)
        rows.append(LayerShare(layer.name, layer.count, time_us, size, ring.cycles(size, mhz) / mhz))
        shares += [BackwardCall(round(time_us * mhz), size)] * layer.count
    # The last layer first: equal layers stand where the first of them does.
    shares.reverse()
    calls = sum(share.cycles for share in shares)
    alone, step = in_turn(shares, ring, mhz), overlapped(shares, ring, mhz)
    together, apart = (
        needed_link(shares, ring, mhz, question.most, overlap=overlap) for overlap in (True, False)
    )
    return ParallelStep(
        start,
        calls / mhz,
        (alone - calls) / mhz,
        (step - calls) / mhz,
        (alone - calls) / alone,
        (step - calls) / step,
        None if together is None else float(together),
        None if apart is None else float(apart),
        tuple(rows),
    )


def gradient_bytes(layer: StudiedLayer, dtype: str) -> int:
    """Return the bytes of a layer's gradients that all devices need the sum of, in the tensors' format."""
    problem, (_, weight, bias) = layer.problem, layer.gradients
    if isinstance(problem, ConvProblem):
        made = problem.grad_output[1]
    elif problem.kind == "matmul":
        return 0  # both are of activations
    else:
        made = problem.grad_output[-1]
    return (weight * prod(problem.weight) + bias * made) * lookup_dtype(dtype).itemsize
