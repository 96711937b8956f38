"""The gradients of a whole call without instructions, from the user's tensors to the formats asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.formats.casts import round_to
from ascendsim.ops.gradients.bias import bias_gradient
from ascendsim.ops.gradients.filters import filter_gradient
from ascendsim.ops.gradients.images import image_gradient
from ascendsim.ops.gradients.orders import adds_atomically, can_follow
from ascendsim.ops.lowering.call import Call, Mask, vector_overflow
from ascendsim.ops.schedules.vector.channel_sums import bias_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ascendsim.ops.schedules.base import Schedule

    Floats = NDArray[np.float32]


class Gradients:
    """What a call makes of its tensors, gradient by gradient.

    Shapes   tensors: float32 carriers of grad_output, input and weight in the call's layout; so are results
    order    of execution, which matters to parts of a reduction that are added as they arrive
    """

    def __init__(self, call: Call, tensors: Mapping[str, Floats], order: str | int) -> None:
        self._call, self._order = call, order
        self._given = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        self._operands: dict[tuple[str, str], Floats] = {}

    def possible(self, wanted: Mask) -> Mask:
        """Return which of the wanted gradients can be made here; the executor has to make the others."""
        image = wanted[0] and can_follow(self._call, "grad_input", self._image, self._order)
        filter_ = wanted[1] and can_follow(self._call, "grad_weight", self._filter, self._order)
        return image, filter_, wanted[2]

    def make(self, mask: Mask) -> dict[str, Floats]:
        """Return the gradients of a mask, of which `possible` is true, on the grids of the call's formats."""
        makers = {
            "grad_input": self._grad_input,
            "grad_weight": self._grad_weight,
            "grad_bias": self._grad_bias,
        }
        # Inf and NaN are results here, as on the device; numpy would warn of them.
        with np.errstate(all="ignore"):
            return {
                name: self._cast(make(), self._call.dtypes[name])
                for asked, (name, make) in zip(mask, makers.items(), strict=True)
                if asked
            }

    @cached_property
    def _image(self) -> Schedule:
        return self._call.schedule("grad_input")

    @cached_property
    def _filter(self) -> Schedule:
        return self._call.schedule("grad_weight")

    def _grad_input(self) -> Floats:
        """Return grad_input as it leaves the kernel of the product."""
        call, gemm = self._call, self._image.gemm
        a, w = (self._operand(name, "grad_input") for name in ("grad_output", "weight"))
        sums = image_gradient(call.problem, gemm, self._image.order(), call.accumulation, a, w)
        return round_to(sums, gemm.output.dtype, overflow=call.math("grad_input").overflow)

    def _grad_weight(self) -> Floats:
        """Return grad_weight as it leaves the kernel of the product, or squeezed through float16."""
        call, order = self._call, self._filter.order()
        a, x = (self._operand(name, "grad_weight") for name in ("grad_output", "input"))
        atomic = adds_atomically(self._filter, order)
        sums = filter_gradient(call.problem, self._filter.gemm, order, call.accumulation, a, x, atomic=atomic)
        return self._cast(sums, "float16") if call.squeezed else sums

    def _grad_bias(self) -> Floats:
        """Return grad_bias in the format of grad_output."""
        call, given = self._call, self._given["grad_output"]
        parts = bias_parts(call.profile, *given.shape[:2])
        return self._cast(bias_gradient(given, parts), call.dtypes["grad_output"])

    def _operand(self, name: str, gradient: str) -> Floats:
        """Return a tensor on the grid that the cube multiplies: cast to its storage format, then to HF32."""
        call = self._call
        ties = call.math(gradient).hf32_ties
        # Both products read grad_output, as a rule with the same rounding.
        if (name, ties) not in self._operands:
            stored = self._given[name]
            if call.dtypes[name] != call.storage.name:
                stored = self._cast(stored, call.storage.name)
            self._operands[name, ties] = call.multiplied(stored, gradient)
        return self._operands[name, ties]

    def _cast(self, values: Floats, target: str) -> Floats:
        """Return what a vector kernel makes of values in another format."""
        return round_to(values, target, overflow=vector_overflow(self._call.profile, target))
