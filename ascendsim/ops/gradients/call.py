"""The gradients of a whole call without instructions, from the user's tensors to the formats asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.quick_casts import rounded
from ascendsim.ops.gradients.bias import bias_gradient
from ascendsim.ops.gradients.dilated import spread
from ascendsim.ops.gradients.filters import filter_gradient
from ascendsim.ops.gradients.followed import Followed, followed
from ascendsim.ops.gradients.images import image_gradient
from ascendsim.ops.gradients.orders import adds_atomically
from ascendsim.ops.gradients.products import product_gradient
from ascendsim.ops.gradients.winograd import winograd_gradient
from ascendsim.ops.lowering.call import Call, Mask, vector_overflow
from ascendsim.ops.lowering.layouts import block_diagonal, diagonal_blocks, with_channels
from ascendsim.ops.problems.hf32 import as_multiplied
from ascendsim.ops.schedules.order import WinogradOrder
from ascendsim.ops.schedules.vector.channel_sums import bias_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.settings import MathSettings
    from ascendsim.ops.gradients.planes import Pixels
    from ascendsim.ops.problems.as_product import GradientProduct

    Floats = NDArray[np.float32]


class Gradients:
    """What a call makes of its tensors, gradient by gradient.

    Shapes   tensors: float32 carriers of grad_output, input and weight in the call's layout; so are results
    order    of execution, which matters to parts of a reduction that are added as they arrive
    threads  that share the work; the results do not depend on their number
    """

    def __init__(
        self, call: Call, tensors: Mapping[str, Floats], order: str | int, threads: Threads = ALONE
    ) -> None:
        self._call, self._order, self._threads = call, order, threads
        self._given = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        self._operands: dict[tuple[str, str], Floats] = {}
        # grad_output as grad_input has laid it out, by how its ties go to HF32.
        self._laid_out: dict[str, Mapping[int, Pixels]] = {}

    def possible(self, wanted: Mask) -> Mask:
        """Return which of the wanted gradients can be made here; the executor has to make the others."""
        image, filter_ = wanted[0] and self._image.possible, wanted[1] and self._filter.possible
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
                name: self._cast(*make(), self._call.dtypes[name])
                for asked, (name, make) in zip(mask, makers.items(), strict=True)
                if asked
            }

    @cached_property
    def _image(self) -> Followed:
        return followed(self._call, "grad_input", self._order)

    @cached_property
    def _filter(self) -> Followed:
        return followed(self._call, "grad_weight", self._order)

    @cached_property
    def _image_math(self) -> MathSettings:
        return self._call.math("grad_input")

    def _grad_input(self) -> tuple[Floats, str]:
        """Return grad_input as it leaves the kernel of the product, and its format."""
        call, gemm, math = self._call, self._image.schedule.gemm, self._image_math
        if product := call.as_product("grad_input"):
            return self._product(product, self._image, math, call.problem.input)
        a, w = (self._operand(name, math) for name in ("grad_output", "weight"))
        problem, factor, dilated = call.problem_of("grad_input"), call.merge_of("grad_input"), call.dilated
        if dilated and dilated.spreads == "grad_output":
            a = spread(a, dilated)
        if folded := call.folded("grad_input"):
            a = folded.rows_of(a)
        a, w = with_channels(a, problem.grad_output[1]), block_diagonal(w, call.problem, factor)
        order, model = self._image.additions, call.accumulation
        sums, laid_out = image_gradient(problem, gemm, order, model, a, w, self._threads)
        as_given = not dilated and not folded
        if "grad_weight" in call.plans and as_given and factor == call.merge_of("grad_weight"):
            # With other groups merged, or pixels spread, it would read other images.
            self._laid_out[math.hf32_ties] = laid_out
        sums = with_channels(sums, call.problem.input[1])
        if dilated and dilated.spreads == "grad_input":
            sums = spread(sums, dilated)
        if folded:
            sums = np.ascontiguousarray(folded.lines_of(sums))
        made = gemm.output.dtype
        return rounded(sums, made, math.overflow, threads=self._threads), made

    def _grad_weight(self) -> tuple[Floats, str]:
        """Return grad_weight as it leaves the kernel of the product, or squeezed through float16."""
        call, schedule, order = self._call, self._filter.schedule, self._filter.additions
        gemm = schedule.gemm
        math = call.math("grad_weight")
        if product := call.as_product("grad_weight"):
            return self._product(product, self._filter, math, call.problem.weight)
        a, x = (self._operand(name, math) for name in ("grad_output", "input"))
        problem, factor = call.problem_of("grad_weight"), call.merge_of("grad_weight")
        if patches := call.patches:
            x = np.ascontiguousarray(x.reshape(patches.split).transpose(patches.axes)).reshape(problem.input)
        if folded := call.folded("grad_weight"):
            a, x = folded.rows_of(a), folded.rows_of(x)
        a, x = with_channels(a, problem.grad_output[1]), with_channels(x, problem.input[1])
        if isinstance(order, WinogradOrder):
            sums = winograd_gradient(problem, order, call.accumulation, a, x, self._threads)
        else:
            sums = filter_gradient(
                problem,
                gemm,
                order,
                call.accumulation,
                a,
                x,
                atomic=adds_atomically(schedule, order),
                threads=self._threads,
                laid_out=None if patches else self._laid_out.get(math.hf32_ties),
            )
        made, sums = gemm.output.dtype, diagonal_blocks(sums, call.problem, factor)
        sums = sums.reshape(call.problem.weight)
        return (self._cast(sums, made, "float16"), "float16") if call.squeezed else (sums, made)

    def _product(
        self, product: GradientProduct, how: Followed, math: MathSettings, shape: tuple[int, ...]
    ) -> tuple[Floats, str]:
        """Return a gradient that is one matrix product as it leaves the kernel, and its format."""
        operands = {name: self._operand(name, math) for name in (product.left, product.right)}
        model = self._call.accumulation
        sums = product_gradient(product, how.additions, model, operands, self._threads)
        made = how.schedule.gemm.c.dtype
        return rounded(sums.reshape(shape), made, math.overflow, threads=self._threads), made

    def _grad_bias(self) -> tuple[Floats, str]:
        """Return grad_bias in the format of grad_output."""
        call, given = self._call, self._given["grad_output"]
        parts = bias_parts(call.profile, *given.shape[:2])
        made = call.dtypes["grad_output"]
        return self._cast(bias_gradient(given, parts), "float32", made), made

    def _operand(self, name: str, math: MathSettings) -> Floats:
        """Return a tensor on the grid that the cube multiplies: cast to its storage format, then to HF32."""
        # Both products read grad_output, as a rule with the same rounding.
        key = name, math.hf32_ties
        if key not in self._operands:
            call = self._call
            values = self._cast(self._given[name], call.dtypes[name], call.storage.name)
            multiplied = as_multiplied(values, call.compute_dtype, call.profile, math.hf32_ties)
            self._operands[key] = multiplied
        return self._operands[key]

    def _cast(self, values: Floats, given: str, target: str) -> Floats:
        """Return what a vector kernel makes of values in another format; there is none for the same one."""
        if target == given:
            return values
        overflow = vector_overflow(self._call.profile, target)
        return rounded(values, target, overflow, threads=self._threads)
