"""The gradients of a whole call without instructions, from the user's tensors to the formats asked for.

How each gradient is made is remembered from call to call: a training run makes the same calls in every step.
What cannot be followed here, such as an order of the user's, is for the executor.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.numerics.casts import HALF
from ascendsim.numerics.compiled.accumulate import planned_matrices
from ascendsim.numerics.compiled.turned import lane_sums
from ascendsim.numerics.factor import ALONE, Threads, Values, is_known
from ascendsim.ops.gradients.filters import filter_gradient, winograd_gradient
from ascendsim.ops.gradients.images import image_gradient
from ascendsim.ops.gradients.layouts import Formats, PixelPlanes
from ascendsim.ops.lowering.call import Call, Mask, told_of
from ascendsim.ops.lowering.layouts import block_diagonal, diagonal_blocks, with_channels
from ascendsim.ops.problems.orders import DgradOrder, MatmulOrder, WgradOrder, WinogradOrder
from ascendsim.ops.reference.ordered import LANES, add_in_order
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.vector.channel_sums import bias_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.folded import GradientProduct

    Floats = NDArray[np.float32]
    Elements = NDArray[Any]
    Places = NDArray[np.int64]


# What is read here, by `image_gradient`, `filter_gradient` and `winograd_gradient`.
_KNOWN: dict[type[Any], set[str]] = {
    DgradOrder: {"c0", "slices", "parts", "axes", "phases", "phase_parts", "tap_loop", "tiles"},
    MatmulOrder: {"base_k"},
    WgradOrder: {"ranges", "base_k", "k_split", "tree", "arrivals", "grid", "stream", "strip_w"},
    WinogradOrder: {"clusters", "parts", "streamed"},
}


def can_follow(call: Call, gradient: str, schedule: Schedule, order: str | int) -> bool:
    """Return whether the bits of a gradient follow from the order of its schedule.

    order   of execution: "program", "arrival" or a seed, which matters to parts that are added atomically
    """
    model = call.accumulation
    if not isinstance(model, AccumulationModel) or not is_known(model):
        return False
    wanted: tuple[type[Any], ...] = (DgradOrder,) if gradient == "grad_input" else (WgradOrder, WinogradOrder)
    if call.as_product(gradient):
        wanted = (MatmulOrder,)
    found: Any = schedule.order()
    if type(found) not in wanted or says_more(found, _KNOWN[type(found)]):
        return False
    if not adds_atomically(schedule, found):
        return True
    return order == "program" and found.arrivals is None and _parts_come_in_order(schedule)


def says_more(order: Any, known: Collection[str]) -> bool:
    """Return whether an order says anything in other fields: whether one does not stand at its default.

    A field that comes later has a default under which orders are what they were without it.
    """
    return any(
        getattr(order, field.name) != field.default for field in fields(order) if field.name not in known
    )


def adds_atomically(schedule: Schedule, order: Any) -> bool:
    """Return whether parts of the reduction are added as they arrive; those of stream-K never are."""
    if getattr(order, "stream", None) is not None:
        return False
    return schedule.sums == "atomic" and getattr(order, "k_split", 1) > 1


def _parts_come_in_order(schedule: Schedule) -> bool:
    """Return whether core after core every element gets part 0 first, then part 1, and so on."""
    # A schedule whose tasks say nothing of parts may add them in any order.
    parts = [getattr(task, "part", None) for tasks in schedule.dealt() for task in tasks]
    return None not in parts and parts == sorted(parts)  # type: ignore[type-var]


class Followed(NamedTuple):
    """The loop nest of a gradient, the order of its additions, and whether the bits follow from that.

    math   the arithmetic of the kernel on the cube
    """

    schedule: Schedule
    additions: Any
    possible: bool
    math: MathSettings


def followed(call: Call, gradient: str, order: str | int) -> Followed:
    """Return the maker of a gradient.

    order   of execution: "program", "arrival" or a seed
    """
    told = told_of(call)
    asked = _GradientsKey(told, gradient, order, call)
    return _found(asked) if told is None else _remembered(asked)


@dataclass(frozen=True)
class _GradientsKey:
    """A key of all inputs of a maker."""

    told: Hashable
    gradient: str
    order: str | int
    call: Call = field(compare=False)


def _found(asked: _GradientsKey) -> Followed:
    call, gradient = asked.call, asked.gradient
    schedule = call.schedule(gradient)
    possible = can_follow(call, gradient, schedule, asked.order)
    return Followed(schedule, schedule.order(), possible, call.math(gradient))


# Two gradients for each layer of a large network that differs from others.
_remembered = lru_cache(maxsize=64)(_found)


def product_gradient(
    product: GradientProduct,
    order: MatmulOrder,
    model: AccumulationModel,
    operands: Mapping[str, Floats],
    threads: Threads = ALONE,
) -> Floats:
    """Return the accumulators of left x right, added in slices of base_k, in the order of the gradient.

    operands   tensors of the call by name, on the grid that the cube multiplies, of any shape
    """
    p = product.problem
    left, right = (Values(operands[name]) for name in (product.left, product.right))
    # All images in one go: the columns of one, then those of the next.
    turned_over = p.transpose_a, not p.transpose_b
    planned = planned_matrices(model, (p.m, p.k, p.n), turned_over, order.base_k, p.batch)
    sums: Floats = planned.made(left, right, threads)[0]
    if not product.axes:
        return sums
    by_image = sums.reshape(p.m, p.batch, p.n).swapaxes(0, 1)
    return np.ascontiguousarray(by_image.reshape(product.result).transpose(product.axes))


class Gradients:
    """The gradients of a call, computed one by one from its tensors.

    Shapes   tensors: grad_output, input and weight in the call's layout; so are results
    Types    float32 carriers; or those of binary16 as they are stored, and then results in binary16 as well:
             they are converted as they are laid out, and take no passes of their own
    order    of execution, which matters to parts of a reduction that are added as they arrive
    threads  that share the work; the results do not depend on their number
    """

    def __init__(
        self, call: Call, tensors: Mapping[str, Elements], order: str | int, threads: Threads = ALONE
    ) -> None:
        self._call, self._order, self._threads = call, order, threads
        self._formats = Formats(call, tensors, threads)
        # grad_output as grad_input has laid it out, by how its ties go to HF32.
        self._laid_out: dict[str, Mapping[int, PixelPlanes]] = {}

    def possible(self, wanted: Mask) -> Mask:
        """Return which of the wanted gradients can be made here; the executor has to make the others."""
        image, filter_ = wanted[0] and self._image.possible, wanted[1] and self._filter.possible
        return image, filter_, wanted[2]

    def make(self, mask: Mask) -> dict[str, Elements]:
        """Return the gradients of a mask that is `possible`, on the grids of the call's formats."""
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

    @property
    def overflowed(self) -> tuple[str, ...]:
        """Kernels so far whose conversions cut off a value: NaN, Inf, or one that is too large."""
        return tuple(sorted(self._formats.overflowed))

    @cached_property
    def _image(self) -> Followed:
        return followed(self._call, "grad_input", self._order)

    @cached_property
    def _filter(self) -> Followed:
        return followed(self._call, "grad_weight", self._order)

    def _grad_input(self) -> tuple[Elements, str]:
        """Return grad_input as it leaves the kernel of the product, and its format."""
        call, formats, math = self._call, self._formats, self._image.math
        if product := call.as_product("grad_input"):
            return self._product(product, self._image, "grad_input")
        gemm = self._image.schedule.gemm
        a, w = formats.image("grad_output", math), formats.image("weight", math)
        problem, factor, dilated = call.problem_of("grad_input"), call.merge_of("grad_input"), call.dilated
        if dilated and dilated.spreads == "grad_output":
            a = dilated.spread(a)
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
            sums = dilated.spread(sums)
        if folded:
            sums = np.ascontiguousarray(folded.lines_of(sums))
        return formats.leaving(sums, "grad_input", made, math), made

    def _grad_weight(self) -> tuple[Elements, str]:
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
        return (formats.cast("grad_weight", sums, made, HALF), HALF) if call.squeezed else (sums, made)

    def _product(self, product: GradientProduct, how: Followed, gradient: str) -> tuple[Elements, str]:
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
        batch, channels = given.shape[:2]
        parts, made = bias_parts(call.profile, batch, channels), call.dtypes["grad_output"]
        ends = [batch * part // parts for part in range(parts + 1)]
        images = given.reshape(batch, channels, -1)
        sums = [lane_sums(images, range(*own), LANES) for own in pairwise(ends)]
        return self._formats.cast("grad_bias", add_in_order(sums), "float32", made), made
