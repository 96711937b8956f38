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

from ascendsim.arguments import whole
from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode, encode, round_to
from ascendsim.numerics.formats.dtypes import DTYPES, find
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.convolution_backward import convolution_backward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, Mask, vector_overflow
from ascendsim.ops.options.call import CallOptions, Options, Product, require_known
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile
from ascendsim.rules import load_rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
    from ascendsim.studies.records import JudgedGradient
    from ascendsim.torch.layers import Layer


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


@dataclass(frozen=True)
class Record:
    """One pass of one layer: how often it ran, what it costs each time, how exact it was.

    layer     its name, direction, convolution and formats
    setting   what it was simulated with
    calls     times that it ran
    estimate  cycles and times of its kernels, on contiguous tensors; None where it was refused. Casts into
              the `operands` of a setting and the addition of a forward's bias are not among them
    errors    for each call that was judged, its results ("output", or the gradients) against float64 ones
              of the tensors as torch had them
    refused   why the interface refuses it, where torch has computed it instead; None: it was simulated
    """

    layer: Layer
    setting: Setting
    calls: int
    estimate: Estimate | None
    errors: tuple[tuple[JudgedGradient, ...], ...]
    refused: str | None

    @property
    def cycles(self) -> int:
        """Cube-clock cycles of one call; 0 where it was refused."""
        return self.estimate.cycles if self.estimate else 0

    @property
    def time_us(self) -> float:
        """Microseconds of one call, launches included; 0 where it was refused."""
        return self.estimate.time_us if self.estimate else 0.0


HEADS = ("layer", "pass", "calls", "in the cube", "cycles", "us", "mean relative error")


def table(records: Sequence[Record]) -> str:
    """Return the records as lines of text: costs of one call, errors of the last that was judged; the sum."""
    rows = [HEADS, *(_row(record) for record in records)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    lines = [
        "  ".join(
            cell.rjust(width) if head in ("calls", "cycles", "us") else cell.ljust(width)
            for head, cell, width in zip(HEADS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    passes = {
        direction: sum(record.time_us for record in records if record.layer.direction == direction)
        for direction in ("forward", "backward")
    }
    times = ", ".join(f"{direction} {time:.2f} us" for direction, time in passes.items())
    return "\n".join([*lines, f"one call of each: {times}, launches included"])


def _row(record: Record) -> tuple[str, ...]:
    first = (record.layer.name, record.layer.direction, str(record.calls))
    if record.estimate is None:
        return (*first, "(torch)", "", "", f"refused: {record.refused}")
    judged = record.errors[-1] if record.errors else ()
    errors = ", ".join(f"{one.name} {one.errors.mere:.1e}" for one in judged)
    return (*first, record.estimate.compute_dtype, f"{record.cycles:,}", f"{record.time_us:.2f}", errors)


# HF32 is how the cube reads float32: no tensor is stored in it.
OPERANDS = tuple(known for known in DTYPES if not known.name.startswith("hf32"))
# What results have in common with torch's tensors, whatever is asked for.
_TAKEN_OVER = {"output_dtypes": "the formats", "output_strides": "the places"}
# Each once, as a refusal lists them.
_OPTIONS = tuple(name for name in CallOptions.__annotations__ if name not in ("product", *_TAKEN_OVER))
NAMES = ("product", "cube_math_type", "operands", *_OPTIONS)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Setting:
    """The machine and the arithmetic of a convolution, for both passes.

    product         name of a product or variant, path of a TOML file, or a loaded Profile
    cube_math_type  0 to 3, the interface's cubeMathType
    operands        format into which grad_output, input and weight are rounded before the cube takes them,
                    such as "hifloat8", which torch has not; None: as they are
    options         other keywords of `convolution_backward`: accumulation, rules, tiling, deterministic, ...

    Raises          ConfigError, UnsupportedError for a value without a meaning; TypeError for another keyword
    """

    product: Profile
    cube_math_type: int
    operands: str | None
    options: FrozenMap[str, Any]

    def __init__(
        self,
        product: Product = Options.product,
        cube_math_type: int = 0,
        *,
        operands: str | None = None,
        **options: Any,
    ) -> None:
        for name, what in _TAKEN_OVER.items():
            if name in options:
                raise ConfigError(f"Setting: {name} is not taken; results have {what} of torch's tensors")
        require_known("Setting", options, NAMES)
        if whole(cube_math_type) is None:
            raise ConfigError(f"Setting: cube_math_type is {cube_math_type!r}; it must be 0, 1, 2 or 3")
        checked = Options(product=product, **options)
        load_rules(checked.rules)
        values = {
            "product": checked.profile,
            "cube_math_type": cube_math_type,
            "operands": None if operands is None else find(operands, OPERANDS).name,
            "options": FrozenMap[str, Any](options),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        # A whole profile would fill pages.
        told = {"product": self.product.variant, "cube_math_type": self.cube_math_type}
        told |= {"operands": self.operands} if self.operands else {}
        return f"Setting({', '.join(f'{name}={value!r}' for name, value in (told | self.options).items())})"

    def but(self, **changes: Any) -> Setting:
        """Return the setting with other values for some keywords."""
        known = {"product": self.product, "cube_math_type": self.cube_math_type, "operands": self.operands}
        return Setting(**{**known, **self.options, **changes})
