"""How the gradients of a call are made, remembered from call to call.

A training run makes the same backward calls in every step. Which loop nest stands behind a gradient, in which
order it adds, whether that can be followed without instructions, and its arithmetic: all this is worked out
once for equal calls.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ascendsim.numerics.accumulation.models import MathSettings
from ascendsim.ops.gradients.orders import can_follow
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.known import told_of
from ascendsim.ops.schedules.base import Schedule


class Followed(NamedTuple):
    """The loop nest of a gradient, the order of its additions, and whether the bits follow from that.

    math   the arithmetic of the kernel on the cube
    """

    schedule: Schedule
    additions: Any
    possible: bool
    math: MathSettings


def followed(call: Call, gradient: str, order: str | int) -> Followed:
    """Return how a gradient is made.

    order   of execution: "program", "arrival" or a seed
    """
    told = told_of(call)
    asked = _Asked(told, gradient, order, call)
    return _found(asked) if told is None else _remembered(asked)


@dataclass(frozen=True)
class _Asked:
    """All that the answer follows from."""

    told: Hashable
    gradient: str
    order: str | int
    call: Call = field(compare=False)


def _found(asked: _Asked) -> Followed:
    call, gradient = asked.call, asked.gradient
    schedule = call.schedule(gradient)
    possible = can_follow(call, gradient, schedule, asked.order)
    return Followed(schedule, schedule.order(), possible, call.math(gradient))


# Two gradients for each layer of a large network that differs from others.
_remembered = lru_cache(maxsize=64)(_found)
