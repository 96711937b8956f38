"""One convolution's forward and backward as calls of the simulator's door, on arrays.

The forward of a convolution is the grad_input of another one with the same weight: of a transposed one for a
plain convolution, and the other way round. The same kernels make both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ShapeError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode, encode, round_to
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.convolution_backward import convolution_backward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, Mask, vector_overflow
from ascendsim.ops.problems.convolution import ConvProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
    from ascendsim.torch.layers import Layer
    from ascendsim.torch.setting import Setting

OUTPUT_ALONE = (True, False, False)


@dataclass(frozen=True)
class Part:
    """One call of the door.

    dtypes       formats of grad_output, input and weight
    grad_weight  format of that gradient; None: that of weight
    """

    problem: ConvProblem
    dtypes: tuple[str, str, str]
    mask: Mask
    grad_weight: str | None = None


def mirrored(problem: ConvProblem) -> ConvProblem:
    """Return the convolution whose grad_input is the forward of this one.

    Raises   UnsupportedError for an output_padding that no kernel of a forward leaves over
    """
    p = problem
    spare: Any = 0
    if not p.transposed:
        # What the last step of the kernel does not reach: a transposed convolution calls it output_padding.
        axes = zip(p.input_size, p.pads, p.dilations, p.kernel, p.strides, p.output_size, strict=True)
        left = [size + sum(pad) - d * (k - 1) - 1 - (made - 1) * s for size, pad, d, k, s, made in axes]
        spare = left[3 - p.rank :]
    other = ConvProblem(
        p.grad_output, p.weight, p.stride, p.padding, p.dilation, not p.transposed, spare, p.groups
    )
    if other.grad_output != p.input:
        raise UnsupportedError(
            f"ascendsim.torch: output_padding is {p.output_padding} with stride {p.stride}; the forward of a "
            "transposed convolution is simulated for output_padding below the stride"
        )
    return other


def parts_of(layer: Layer, setting: Setting) -> tuple[Part, ...]:
    """Return the calls of a pass of a layer.

    Raises   as `mirrored`
    """
    if layer.direction == "forward":
        input, weight = layer.dtypes
        return forward_parts(layer.problem, (input, weight), setting)
    grad_output, input, weight = layer.dtypes
    return backward_parts(layer.problem, (grad_output, input, weight), layer.mask, setting)


def forward_parts(problem: ConvProblem, dtypes: tuple[str, str], setting: Setting) -> tuple[Part, ...]:
    """Return the calls of a forward pass; `dtypes` are those of input and weight."""
    kinds = dtypes if setting.operands is None else (setting.operands,) * 2
    # The mirror's "input" is this convolution's output: it has the format of what goes in.
    return (Part(mirrored(problem), (kinds[0], kinds[0], kinds[1]), OUTPUT_ALONE),)


def backward_parts(
    problem: ConvProblem, dtypes: tuple[str, str, str], mask: Mask, setting: Setting
) -> tuple[Part, ...]:
    """Return the calls of a backward pass; `dtypes` are those of grad_output, input and weight."""
    operands = setting.operands
    if operands is None:
        return (Part(problem, dtypes, mask),)
    # Rounded for the cube alone: vector cores sum grad_bias from grad_output as it came.
    products = Part(problem, (operands,) * 3, (*mask[:2], False), grad_weight=dtypes[2])
    bias = Part(problem, dtypes, (False, False, mask[2]))
    return tuple(part for part in (products, bias) if any(part.mask))


def costs(parts: Sequence[Part], setting: Setting) -> Estimate:
    """Estimate the cycles of a pass.

    Raises   as `estimate`
    """
    found = [
        estimate(
            part.problem,
            part.dtypes,
            setting.cube_math_type,
            output_mask=part.mask,
            output_dtypes=(None, part.grad_weight, None),
            product=setting.product,
            **_options(part, setting),
        )
        for part in parts
    ]
    return reduce(lambda first, more: replace(first, kernels=first.kernels + more.kernels), found)


def _options(part: Part, setting: Setting) -> dict[str, Any]:
    """Return the options of a call: of plans and nests by gradient those that it makes.

    A setting serves all layers, and the first one of a network has no grad_input.
    """
    made = {name for name, wanted in zip(GRADIENTS, part.mask, strict=True) if wanted}
    options = dict(setting.options)
    for name in ("tiling", "schedule"):
        given = options.get(name)
        if isinstance(given, Mapping) and given.keys() <= set(GRADIENTS):
            options[name] = {gradient: given[gradient] for gradient in given if gradient in made} or None
    return options


def run(part: Part, grad_output: Any, input: Any, weight: Any, setting: Setting) -> ConvolutionBackwardResult:
    """Call the door: the only place that does. Nobody reads its cycles, `costs` has them.

    Raises   as `convolution_backward`
    """
    p, options = part.problem, _options(part, setting)
    given = (grad_output, input, weight)
    stored = [as_stored(values, name, setting) for values, name in zip(given, part.dtypes, strict=True)]
    return convolution_backward(
        stored[0],
        stored[1],
        stored[2],
        None,
        p.stride,
        p.padding,
        p.dilation,
        p.transposed,
        p.output_padding,
        p.groups,
        part.mask,
        setting.cube_math_type,
        output_dtypes=(None, part.grad_weight, None),
        product=setting.product,
        **options,
    )


def as_stored(values: Any, name: str, setting: Setting) -> Any:
    """Return values in a format, rounded once as a Cast kernel of the product rounds."""
    if lookup_dtype(values.dtype).name == name:
        return values
    carrier = decode(values, lookup_dtype(values.dtype))
    return encode(round_to(carrier, name, overflow=vector_overflow(setting.product, name)), name)


@default_arithmetic
def run_forward(
    problem: ConvProblem, input: NDArray[Any], weight: NDArray[Any], bias: Any, setting: Setting
) -> ConvolutionBackwardResult:
    """Return the result whose grad_input is the output of a convolution.

    Types    the output has the format of `input`, whatever the operands are rounded to
    Bias     is added to the product in float32 and the sum rounded once, as an addition of its own after the
             kernel would do; in 16 bits the product itself has been rounded before
    Raises   ShapeError for a bias of another length than the channels; as `mirrored` and `run`
    """
    channels = problem.grad_output[1]
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"convolution: bias has shape {bias.shape}; the output needs ({channels},)")
    (part,) = forward_parts(problem, _names(input, weight), setting)
    # The door looks at its shape and format only: no gradient that is asked for reads it.
    output = np.zeros(problem.grad_output, input.dtype)
    result = run(part, input, output, weight, setting)
    made = result.grad_input
    if bias is not None:
        product, more = (decode(values, lookup_dtype(values.dtype)) for values in (made, bias))
        with np.errstate(over="ignore", invalid="ignore"):
            made = product + more.reshape(-1, *(1,) * problem.rank)
    own = lookup_dtype(input.dtype).name
    return replace(result, grad_input=as_stored(made, own, setting))


def run_backward(
    problem: ConvProblem,
    grad_output: NDArray[Any],
    input: NDArray[Any],
    weight: NDArray[Any],
    mask: Mask,
    setting: Setting,
) -> ConvolutionBackwardResult:
    """Return the gradients, in the formats of input, weight and grad_output, None where masked."""
    given = grad_output, input, weight
    kinds = _names(*given)
    results = [run(part, *given, setting) for part in backward_parts(problem, kinds, mask, setting)]
    first, last = results[0], results[-1]
    made = (first.grad_input, first.grad_weight, last.grad_bias)
    own = (kinds[1], kinds[2], kinds[0])
    grad_input, grad_weight, grad_bias = (
        None if values is None else as_stored(values, name, setting)
        for values, name in zip(made, own, strict=True)
    )
    return replace(first, grad_input=grad_input, grad_weight=grad_weight, grad_bias=grad_bias)


def _names(*arrays: Any) -> tuple[Any, ...]:
    return tuple(lookup_dtype(array.dtype).name for array in arrays)
