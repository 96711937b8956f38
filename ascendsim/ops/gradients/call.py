"""The gradients of a whole call without instructions, from the user's tensors to the formats asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.quick_casts import HALF
from ascendsim.ops.gradients.bias import bias_gradient
from ascendsim.ops.gradients.dilated import spread
from ascendsim.ops.gradients.filters import filter_gradient
from ascendsim.ops.gradients.followed import Followed, followed
from ascendsim.ops.gradients.formats import Formats
from ascendsim.ops.gradients.images import image_gradient
from ascendsim.ops.gradients.orders import adds_atomically
from ascendsim.ops.gradients.products import product_gradient
from ascendsim.ops.gradients.winograd import winograd_gradient
from ascendsim.ops.lowering.call import Call, Mask
from ascendsim.ops.lowering.layouts import block_diagonal, diagonal_blocks, with_channels
from ascendsim.ops.schedules.base import WinogradOrder
from ascendsim.ops.schedules.vector.channel_sums import bias_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ascendsim.ops.gradients.planes import Pixels
    from ascendsim.ops.problems.folded import GradientProduct

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Values = NDArray[Any]


class Gradients:
    """What a call makes of its tensors, gradient by gradient.

    Shapes   tensors: grad_output, input and weight in the call's layout; so are results
    Types    float32 carriers; or those of binary16 as they are stored, and then results in binary16 as well:
             they are converted as they are laid out, and take no passes of their own
    order    of execution, which matters to parts of a reduction that are added as they arrive
    threads  that share the work; the results do not depend on their number
    """

    def __init__(
        self, call: Call, tensors: Mapping[str, Values], order: str | int, threads: Threads = ALONE
    ) -> None:
        self._call, self._order, self._threads = call, order, threads
        self._formats = Formats(call, tensors, threads)
        # grad_output as grad_input has laid it out, by how its ties go to HF32.
        self._laid_out: dict[str, Mapping[int, Pixels]] = {}

    def possible(self, wanted: Mask) -> Mask:
        """Return which of the wanted gradients can be made here; the executor has to make the others."""
        image, filter_ = wanted[0] and self._image.possible, wanted[1] and self._filter.possible
        return image, filter_, wanted[2]

    def make(self, mask: Mask) -> dict[str, Values]:
        """Return the gradients of a mask, of which `possible` is true, on the grids of the call's formats."""
        makers = {
            "grad_input": self._grad_input,
            "grad_weight": self._grad_weight,
            "grad_bias": self._grad_bias,
        }
        # Inf and NaN are results here, as on the device; numpy would warn of them.
        with np.errstate(all="ignore"):
            return {
                name: self._formats.returned(name, *make())
                for asked, (name, make) in zip(mask, makers.items(), strict=True)
                if asked
            }

    @cached_property
    def _image(self) -> Followed:
        return followed(self._call, "grad_input", self._order)

    @cached_property
    def _filter(self) -> Followed:
        return followed(self._call, "grad_weight", self._order)

    def _grad_input(self) -> tuple[Values, str]:
        """Return grad_input as it leaves the kernel of the product, and its format."""
        call, formats, math = self._call, self._formats, self._image.math
        if product := call.as_product("grad_input"):
            return self._product(product, self._image, "grad_input")
        gemm = self._image.schedule.gemm
        a, w = formats.image("grad_output", math), formats.image("weight", math)
        problem, factor, dilated = call.problem_of("grad_input"), call.merge_of("grad_input"), call.dilated
        if dilated and dilated.spreads == "grad_output":
            a = spread(a, dilated)
        if folded := call.folded("grad_input"):
            a = folded.rows_of(a)
        a, w = with_channels(a, problem.grad_output[1]), block_diagonal(w, call.problem, factor)
        order, model, made = self._image.additions, call.accumulation, gemm.output.dtype
        to_halves = made == HALF and formats.may_be_halves("grad_input", math.overflow)
        operands = a, w, self._threads
        sums, laid_out = image_gradient(problem, gemm, order, model, *operands, to_halves=to_halves)
        as_given = not dilated and not folded
        if "grad_weight" in call.plans and as_given and factor == call.merge_of("grad_weight"):
            # With other groups merged, or pixels spread, it would read other images.
            self._laid_out[math.hf32_ties] = laid_out
        sums = with_channels(sums, call.problem.input[1])
        if dilated and dilated.spreads == "grad_input":
            sums = spread(sums, dilated)
        if folded:
            sums = np.ascontiguousarray(folded.lines_of(sums))
        return formats.leaving(sums, "grad_input", made, math), made

    def _grad_weight(self) -> tuple[Values, str]:
        """Return grad_weight as it leaves the kernel of the product, or squeezed through float16."""
        call, schedule, order = self._call, self._filter.schedule, self._filter.additions
        gemm, math, formats = schedule.gemm, self._filter.math, self._formats
        if product := call.as_product("grad_weight"):
            return self._product(product, self._filter, "grad_weight")
        take = formats.operand if isinstance(order, WinogradOrder) else formats.image
        a, x = take("grad_output", math), take("input", math)
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
                to_halves=formats.may_be_halves("grad_weight", formats.overflow(HALF)),
            )
        made, sums = gemm.output.dtype, diagonal_blocks(sums, call.problem, factor)
        sums = sums.reshape(call.problem.weight)
        return (formats.cast(sums, made, HALF), HALF) if call.squeezed else (sums, made)

    def _product(self, product: GradientProduct, how: Followed, gradient: str) -> tuple[Values, str]:
        """Return a gradient that is one matrix product as it leaves the kernel, and its format."""
        operands = {name: self._formats.operand(name, how.math) for name in (product.left, product.right)}
        model = self._call.accumulation
        sums = product_gradient(product, how.additions, model, operands, self._threads)
        made, shape = how.schedule.gemm.c.dtype, self._call.shape_of(gradient)
        # Long rows of products end beyond those that were asked for; a gradient has none between its own.
        sums = np.ascontiguousarray(sums).reshape(shape)
        return self._formats.leaving(sums, gradient, made, how.math), made

    def _grad_bias(self) -> tuple[Floats, str]:
        """Return grad_bias in the format of grad_output."""
        call, given = self._call, self._formats.carrier("grad_output")
        parts = bias_parts(call.profile, *given.shape[:2])
        made = call.dtypes["grad_output"]
        return self._formats.cast(bias_gradient(given, parts), "float32", made), made
