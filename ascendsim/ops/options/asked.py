"""A convolution backward as it is asked: what the interface decides of it, and what fixes its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, ShapeError, items, shown, truth, whole
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call
from ascendsim.ops.operands import spread
from ascendsim.ops.options.call import Options
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.views import View
from ascendsim.rules import ConvolutionBackwardCall, Decision, TensorDescription, resolve

if TYPE_CHECKING:
    import numpy as np

    from ascendsim.numerics.dtypes import DType

    Format = str | type | DType | np.dtype[Any]


def input_views(problem: ConvProblem, strides: Mapping[str, Sequence[int]] | None) -> dict[str, View]:
    """Return where the elements of the inputs lie; whether strides fit is for the rules to say.

    Raises   ConfigError for anything but some inputs' strides by name
    """
    given = {} if strides is None else strides
    own = {name: items(steps) for name, steps in given.items()} if isinstance(given, Mapping) else None
    if own is None or None in own.values():
        raise ConfigError(
            f"estimate: strides is {shown(strides)}; it must be like {{'input': (512, 16, 4, 1)}}"
        )
    unknown = own.keys() - set(INPUTS)
    if unknown:
        raise ConfigError(
            f"estimate: strides has keys {sorted(map(shown, unknown))}; it takes {', '.join(INPUTS)}"
        )
    shapes = dict(zip(INPUTS, (problem.grad_output, problem.input, problem.weight), strict=True))
    return {
        name: View(shape, own.get(name, View.row_major(shape).strides) or ())
        for name, shape in shapes.items()
    }


def strides_in_order(strides: Mapping[str, Sequence[int]]) -> tuple[Sequence[int] | None, ...]:
    """Return the strides of the three gradients in their order; None where there are none."""
    return tuple(strides.get(name) for name in GRADIENTS)


def output_views(
    strides: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, View]:
    """Return where the elements of those gradients lie that have strides, one for each axis.

    Raises   ShapeError where two elements would lie in one place
    """
    views = {name: View(shapes[name], steps) for name, steps in strides.items()}
    for name, view in views.items():
        if view.shares_places:
            raise ShapeError(
                f"output_strides: {name} of shape {view.shape} and strides {view.strides} has elements in "
                "the same place; each needs one of its own"
            )
    return views


Mask = Sequence[bool]


def planned_call(
    problem: ConvProblem,
    options: Options,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    output_mask: Mask = (True, True, True),
    strides: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Decision, Call]:
    """Return the interface's decision on a call without tensors, and the call that fixes its kernels.

    Raises   as `estimate`
    """
    if not isinstance(problem, ConvProblem):
        raise ConfigError(
            f"estimate: problem is {shown(problem)}; it must be ConvProblem(input=..., weight=...)"
        )
    views = input_views(problem, strides)
    described = [
        TensorDescription(view.shape, name, strides=view.strides)
        for view, name in zip(views.values(), formats_of_three(dtype), strict=True)
    ]
    p = problem
    attributes = p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups
    asked = asked_call(described, None, attributes, p.rank, output_mask, cube_math_type)
    # A ConvProblem is never empty, so there is always a product to plan.
    decision = decide(asked, options)
    views |= output_views(options.wanted_strides, gradient_shapes(asked))
    return decision, options.call(problem, decision, views)


def asked_call(
    described: Sequence[TensorDescription | None],
    bias_sizes: Sequence[int] | None,
    attributes: tuple[Any, ...],
    axes: int,
    output_mask: Mask,
    cube_math_type: int,
) -> ConvolutionBackwardCall:
    """Return the call as the interface takes it, with one number for each axis where one stands for all."""
    *sizes, transposed, output_padding, groups = attributes
    *sizes, output_padding = (spread(value, axes) for value in (*sizes, output_padding))
    last = transposed, output_padding, groups, output_mask, cube_math_type
    in_order: tuple[Any, ...] = (*described, bias_sizes, *sizes, *last)
    return ConvolutionBackwardCall(*in_order)


def without_bias(bias_sizes: Any, output_mask: Any) -> bool:
    """Return whether bias_sizes is the [0] that torch's autograd passes for a layer without bias."""
    # The interface itself wants the channels in any case; what else is in the mask is for the rules to say.
    mask_is_known = isinstance(output_mask, Sequence) and len(output_mask) == 3
    if not mask_is_known or truth(output_mask[2]) is not False:
        return False
    return isinstance(bias_sizes, Sequence) and len(bias_sizes) == 1 and whole(bias_sizes[0]) == 0


def decide(asked: ConvolutionBackwardCall, options: Options) -> Decision:
    """Check a call by the rule set, with the outputs that a caller would have made, masked or not.

    Raises   AclnnError with the status that the interface would answer; ConfigError for strides of tensors
             that lie packed
    """
    outputs = options.wanted_dtypes, strides_in_order(options.wanted_strides)
    full = asked.with_usual_outputs(*outputs)
    decision = resolve(full, options.asked_product, options.rules)
    options.refuse_strides(full, decision)
    return decision


def formats_of_three(dtype: Format | Sequence[Format]) -> tuple[str, ...]:
    """Return the formats of grad_output, input and weight.

    Raises   ConfigError unless there is one for all or one for each, UnsupportedError for unknown ones
    """
    # A name is a sequence too, of letters.
    several = isinstance(dtype, Sequence) and not isinstance(dtype, str)
    given = items(dtype) if several else (dtype,) * 3
    if given is None or len(given) != 3:
        count = "too many" if given is None else len(given)
        raise ConfigError(f"estimate: dtype has {count} names {shown(dtype)}; it needs one, or three")
    if any(name is None for name in given):
        raise ConfigError(f"estimate: dtype is {shown(dtype)}; it must be a format such as float16, or three")
    return tuple(lookup_dtype(name).name for name in given)


def problem_of(asked: ConvolutionBackwardCall, decision: Decision) -> ConvProblem:
    """Return the convolution of an accepted call; the shapes rule over output_padding, as in the operator."""
    grad_output, input, weight = _shapes(asked)
    # Plain numbers, which the rules have found them to be; True would be equal to 1.
    sizes = [tuple(map(index, given or ())) for given in (asked.stride, asked.padding, asked.dilation)]
    last = bool(asked.transposed), decision.output_padding, index(asked.groups)
    problem = _known(input, weight, *sizes, *last)
    problem.check_grad_output(grad_output)
    return problem


_known = lru_cache(maxsize=256)(ConvProblem)  # the same calls come in every step of a training run


def gradient_shapes(asked: ConvolutionBackwardCall) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the three gradients of an accepted call."""
    grad_output, input, weight = _shapes(asked)
    return dict(zip(GRADIENTS, (input, weight, (grad_output[1],)), strict=True))


def _shapes(asked: ConvolutionBackwardCall) -> list[tuple[int, ...]]:
    """Return the shapes of grad_output, input and weight; an accepted call has all of them."""
    return [tensor.shape for tensor in (asked.grad_output, asked.input, asked.weight) if tensor is not None]
