"""Time one point."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ascendsim.errors import AscendSimError, BudgetError, ConfigError, StoppedError
from ascendsim.frozen import FrozenMap, cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.layers import estimate_layer
from ascendsim.ops.many import L2Left, estimate_behind, left_by_call
from ascendsim.ops.plan import Plan
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.profile import Profile
from ascendsim.studies.engine.point import NETWORK, NOTHING, Before, StudyPoint, plan_of, plan_values
from ascendsim.studies.records import Spent, parts_us

# What a kernel leaves in L2 follows from these and from its plan. Calls before keep the plans of the product
# with its own speeds, as a change of speed is asked about one call.
SIZES = ("buffers.", "cores.", "cube.", "generation.", "l2.")
# A network's layers on some products; each is kept with the tensors that L2 holds, a few dozen numbers.
KEPT = 1024


def left_before(point: StudyPoint) -> L2Left:
    """Return the data in L2 that the calls before a point have left, under the product's own plans.

    Raises   AscendSimError where one of them cannot be planned
    """
    sizes = FrozenMap[str, Any](
        {path: value for path, value in point.changes.items() if path.startswith(SIZES)}
    )
    try:
        profile = replace(point, changes=sizes).profile
    except ConfigError:
        profile = point.profile  # these figures go only with the others
    return _left(_MachineKey(profile.content, profile), point.dtype, point.cube_math_type, point.before)


@dataclass(frozen=True)
class _MachineKey:
    content: bytes
    profile: Profile = field(compare=False)


@lru_cache(maxsize=KEPT)
def _left(machine: _MachineKey, dtype: str, cube_math_type: int, before: tuple[Before, ...]) -> L2Left:
    if not before:
        return L2Left()
    *others, (problem, gradients) = before
    left = _left(machine, dtype, cube_math_type, tuple(others))
    call = problem, dtype, cube_math_type
    return left_by_call(left, *call, output_mask=gradients, product=machine.profile)


# Why a point has no times whose cycles exceed the bound that it was asked with.
STOPPED = "slower than its bound"


@dataclass(frozen=True)
class PointAnswer:
    """The timing of a point, as the JSON in which it is kept: so a kept answer and a new one are alike.

    text   {"records": those of `Estimate.to_records`, "plans": by gradient, "layouts": names of the kernels
           that change a layout, "parts": microseconds of `PARTS`}, or {"reason": why there is none}; with
           "slower_than" where a bound is why, and "budget" where a budget is, which says nothing of the call
    """

    text: str

    @cached_property
    @default_arithmetic
    def _read(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.text)
        return read

    @property
    def reason(self) -> str:
        """Why the point could not be timed; "" where it was."""
        return str(self._read.get("reason", ""))

    @property
    def stopped(self) -> bool:
        """Whether it takes more cycles than the bound that it was asked with."""
        return "slower_than" in self._read

    @property
    def lasting(self) -> bool:
        """Whether it answers the point whatever budget a call has."""
        return "budget" not in self._read

    @property
    def layout_cycles(self) -> int:
        """Cycles of the kernels on which no plan has a say: changes of layout."""
        layouts = self._read.get("layouts", [])
        return sum(int(row["cycles"]) for row in self.records if row["kernel"] in layouts)

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record for each kernel; none where there is a reason."""
        return list(self._read.get("records", []))

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plans that were followed, by gradient."""
        return {name: plan_of(values) for name, values in self._read.get("plans", {}).items()}

    @property
    def parts_us(self) -> tuple[float, ...]:
        """Microseconds of each of `PARTS`, which add up to the time."""
        return tuple(self._read["parts"])

    @property
    def cycles(self) -> int:
        """Cycles of all kernels of the cube clock, without launches."""
        return sum(record["cycles"] for record in self.records)

    @property
    @default_arithmetic
    def time_us(self) -> float:
        """Microseconds of all kernels, launches included."""
        return float(sum(record["time_us"] for record in self.records))

    @property
    @default_arithmetic
    def planned_us(self) -> float:
        """Microseconds with launches, of the kernels on which a plan has a say: no changes of layout."""
        layouts = self._read.get("layouts", [])
        return float(sum(row["time_us"] for row in self.records if row["kernel"] not in layouts))


def planned(result: Estimate) -> tuple[KernelResult, ...]:
    """Return the kernels on which a plan has a say: the products, and what comes of their plans.

    Which tensors change their layout (TransData) the product decides: every plan needs the same changes.
    """
    return tuple(kernel for kernel in result.kernels if kernel.kernel.op_type != "TransData")


def _spent(kernel: KernelResult, profile: Profile) -> Spent:
    """Return the parts of a kernel's time: launch, entry and core."""
    entry, mhz = kernel.times.entry_cycles, profile.clock.cube_mhz
    times = profile.launch_us(kernel.kernel.blocks), entry / mhz, (kernel.cycles - entry) / mhz
    return Spent(kernel.kernel.op_type, bool(kernel.macs), *times)


@default_arithmetic
def measure(point: StudyPoint, limits: Mapping[str, Any] = NOTHING) -> PointAnswer:
    """Time a point as `estimate_point` does; a mistake, or a plan that does not fit, is given as reason."""
    try:
        result = estimate_point(point, limits)
    except StoppedError:
        return PointAnswer(json.dumps({"slower_than": point.stop_above, "reason": STOPPED}))
    except BudgetError as error:
        return PointAnswer(json.dumps({"budget": True, "reason": str(error)}))
    except AscendSimError as error:
        return PointAnswer(json.dumps({"reason": str(error)}))
    plans = {kernel.name: plan_values(kernel.plan) for kernel in result.kernels if kernel.plan is not None}
    counted = {kernel.name for kernel in planned(result)}
    layouts = [kernel.name for kernel in result.kernels if kernel.name not in counted]
    values: dict[str, Any] = {"records": result.to_records(), "plans": plans, "layouts": layouts}
    spent = (_spent(kernel, point.profile) for kernel in result.kernels)
    values["parts"] = list(parts_us(spent).values())
    return PointAnswer(json.dumps(values, separators=(",", ":")))


def estimate_point(point: StudyPoint, limits: Mapping[str, Any] = NOTHING) -> Estimate:
    """Return the call of a point, timed.

    limits   what a call may have at most, as the keywords of `estimate`

    Raises   AscendSimError where it cannot be timed; StoppedError where it is slower than its bound
    """
    call = point.problem, point.dtype, point.cube_math_type
    said: Any = {"output_mask": point.gradients, "product": point.profile, "tiling": point.tiling}
    said |= {"deterministic": point.deterministic, **limits}
    if point.l2_start == NETWORK:
        # A call in a network is timed to its end: a bound spares time and moves no answer.
        return estimate_behind(left_before(point), *call, **said)
    return estimate_layer(*call, **said, l2_start=point.l2_start, stop_above=point.stop_above)
