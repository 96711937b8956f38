"""Calls behind others: what those have left in L2, found once for all calls that ask for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.sequences import L2Left, left_by_call
from ascendsim.profile import Profile
from ascendsim.studies.engine.point import Before, Point

# What a kernel leaves in L2 follows from these and from its plan. Calls before keep the plans of the product
# with its own speeds, as a change of speed is asked about one call.
SIZES = ("buffers.", "cores.", "cube.", "generation.", "l2.")
# A network's layers on some products; each is kept with the tensors that L2 holds, a few dozen numbers.
KEPT = 1024


def left_before(point: Point) -> L2Left:
    """Return what the calls before a point have left, under the plans that the product chooses for them.

    Raises   AscendSimError where one of them cannot be planned
    """
    sizes = FrozenMap[str, Any](
        {path: value for path, value in point.changes.items() if path.startswith(SIZES)}
    )
    try:
        profile = replace(point, changes=sizes).profile
    except ConfigError:
        profile = point.profile  # these figures go only with the others
    return _left(_Machine(profile.content, profile), point.dtype, point.cube_math_type, point.before)


@dataclass(frozen=True)
class _Machine:
    content: bytes
    profile: Profile = field(compare=False)


@lru_cache(maxsize=KEPT)
def _left(machine: _Machine, dtype: str, cube_math_type: int, before: tuple[Before, ...]) -> L2Left:
    if not before:
        return L2Left()
    *others, (problem, gradients) = before
    left = _left(machine, dtype, cube_math_type, tuple(others))
    call = problem, dtype, cube_math_type
    return left_by_call(left, *call, output_mask=gradients, product=machine.profile)
