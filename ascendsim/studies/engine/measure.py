"""Time one point."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.plan import Plan
from ascendsim.studies.engine.plans import plan_of, plan_values
from ascendsim.studies.engine.point import Point


@dataclass(frozen=True)
class Answer:
    """What timing a point gave, as the JSON in which it is kept: so a kept answer and a new one are alike.

    text   {"records": those of `Estimate.to_records`, "plans": by gradient}, or {"reason": why there is none}
    """

    text: str

    @cached_property
    def _read(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.text)
        return read

    @property
    def reason(self) -> str:
        """Why the point could not be timed; "" where it was."""
        return str(self._read.get("reason", ""))

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record for each kernel; none where there is a reason."""
        return list(self._read.get("records", []))

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plans that were followed, by gradient."""
        return {name: plan_of(values) for name, values in self._read.get("plans", {}).items()}

    @property
    def cycles(self) -> int:
        """Cycles of all kernels of the cube clock, without launches."""
        return sum(record["cycles"] for record in self.records)

    @property
    def time_us(self) -> float:
        """Microseconds of all kernels, launches included."""
        return float(sum(record["time_us"] for record in self.records))


def measure(point: Point) -> Answer:
    """Time a point; a mistake of the user's, or a plan that does not fit, is the reason of its answer."""
    try:
        result = estimate(
            point.problem,
            point.dtype,
            point.cube_math_type,
            output_mask=point.gradients,
            product=point.profile,
            l2_start=point.l2_start,
            tiling=point.tiling,
        )
    except AscendSimError as error:
        return Answer(json.dumps({"reason": f"{type(error).__name__}: {error}"}))
    plans = {kernel.name: plan_values(kernel.plan) for kernel in result.kernels if kernel.plan is not None}
    return Answer(json.dumps({"records": result.to_records(), "plans": plans}, separators=(",", ":")))
