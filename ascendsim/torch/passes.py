"""One convolution's forward and backward as calls of the simulator's door, on arrays.

The forward of a convolution is the grad_input of another one with the same weight: of a transposed one for a
plain convolution, and the other way round. The same kernels make both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError, shown, whole
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import cuts_off, decode, encode, round_to
from ascendsim.numerics.dtypes import DTYPES, find
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.convolution_backward import PlannedBackward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Mask
from ascendsim.ops.lowering.formats import vector_overflow
from ascendsim.ops.operands import Operand
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import Options, options_of, order_given, require_known, thread_count
from ascendsim.ops.options.keywords import CallOptions
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.problems.views import View
from ascendsim.profile import Profile
from ascendsim.rules import load_rules

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from ascendsim.ops.options.keywords import Product
    from ascendsim.ops.results import ConvolutionBackwardResult, Estimate


OUTPUT_ALONE = (True, False, False)
# A pass that ran is estimated, whatever its size.
ANY_SIZE = FrozenMap[str, Any]({"most_instructions": None, "most_bytes": None})


@dataclass(frozen=True)
class PassCall:
    """One call of the door.

    dtypes       formats of grad_output, input and weight
    grad_weight  format of grad_weight; None: the format of weight
    """

    problem: ConvProblem
    dtypes: tuple[str, str, str]
    mask: Mask
    grad_weight: str | None = None


@lru_cache(maxsize=256)
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


def parts_of(layer: LayerPass, setting: Setting) -> tuple[PassCall, ...]:
    """Return the calls of a pass of a convolution.

    Raises   as `mirrored`
    """
    if layer.direction == "forward":
        input, weight = layer.dtypes
        return forward_parts(layer.convolution, (input, weight), setting)
    grad_output, input, weight = layer.dtypes
    return backward_parts(layer.convolution, (grad_output, input, weight), layer.mask, setting)


def forward_parts(problem: ConvProblem, dtypes: tuple[str, str], setting: Setting) -> tuple[PassCall, ...]:
    """Return the calls of a forward pass; `dtypes` are those of input and weight."""
    kinds = dtypes if setting.operands is None else (setting.operands,) * 2
    # The mirror's "input" is this convolution's output: it has the format of what goes in.
    return (PassCall(mirrored(problem), (kinds[0], kinds[0], kinds[1]), OUTPUT_ALONE),)


def backward_parts(
    problem: ConvProblem, dtypes: tuple[str, str, str], mask: Mask, setting: Setting
) -> tuple[PassCall, ...]:
    """Return the calls of a backward pass; `dtypes` are those of grad_output, input and weight."""
    operands = setting.operands
    if operands is None:
        return (PassCall(problem, dtypes, mask),)
    # Rounded for the cube alone: vector cores sum grad_bias from grad_output as it came.
    products = PassCall(problem, (operands,) * 3, (*mask[:2], False), grad_weight=dtypes[2])
    bias = PassCall(problem, dtypes, (False, False, mask[2]))
    return tuple(part for part in (products, bias) if any(part.mask))


def costs(parts: Sequence[PassCall], setting: Setting) -> Estimate:
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
            **(_options(part, setting) | ANY_SIZE),
        )
        for part in parts
    ]
    return reduce(lambda first, more: replace(first, kernels=first.kernels + more.kernels), found)


def _options(part: PassCall, setting: Setting) -> dict[str, Any]:
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


def run(
    part: PassCall, grad_output: Any, input: Any, weight: Any, setting: Setting
) -> ConvolutionBackwardResult:
    """Run the call: the only place that does. It times nothing; `costs` has the cycles.

    Raises   as `convolution_backward`
    """
    given = dict(zip(INPUTS, (grad_output, input, weight), strict=True))
    stored, cut = as_stored(given, part.dtypes, setting)
    operands = {name: Operand.of(values, name) for name, values in stored.items()}
    part.problem.check_grad_output(operands["grad_output"].view.shape)
    planned = _planned(part, setting, tuple(operand.view.strides for operand in operands.values()))
    result = planned.run(operands, setting.order, timing=False, threads=setting.threads)
    return replace(result, overflowed=_and(result.overflowed, cut))


def summed(problem: ConvProblem, grad_output: Any, setting: Setting) -> tuple[Any, tuple[str, ...]]:
    """Return the grad_bias of `run_backward` where it alone is asked for, and the kernels that overflowed."""
    (part,) = backward_parts(problem, _names(*(grad_output,) * 3), (False, False, True), setting)
    shapes = problem.grad_output, problem.input, problem.weight
    strides = tuple(View.row_major(shape).strides for shape in shapes)
    return _planned(part, setting, strides).summed(grad_output)


@lru_cache(maxsize=256)  # some for each layer of a large network
def _planned(part: PassCall, setting: Setting, strides: tuple[tuple[int, ...], ...]) -> PlannedBackward:
    kept: Any = {"output_dtypes": (None, part.grad_weight, None), "product": setting.product}
    options = options_of("convolution_backward", _options(part, setting) | kept)
    p = part.problem
    made = compress((p.input, p.weight, p.grad_output[1:2]), part.mask)
    options.require_room(p.grad_output, p.input, p.weight, *made)
    given: Any = part.dtypes, setting.cube_math_type, part.mask, dict(zip(INPUTS, strides, strict=True))
    return PlannedBackward(options, *planned_call(p, options, *given))


def _and(known: Collection[str] | None, more: Collection[str]) -> tuple[str, ...]:
    """Return the kernels that overflowed, with some more."""
    return tuple(sorted({*(known or ()), *more}))


def as_stored(
    tensors: Mapping[str, Any], dtypes: Iterable[str], setting: Setting
) -> tuple[dict[str, Any], set[str]]:
    """Return tensors in their formats, rounded once as a Cast kernel of the product rounds; None stays None.

    Returns  them by name, and the kernels that saturated a value
    """
    made, cut = dict(tensors), set[str]()
    for (name, values), wanted in zip(tensors.items(), dtypes, strict=True):
        given = None if values is None else lookup_dtype(values.dtype)
        if given is not None and given.name != wanted:
            carrier, overflow = decode(values, given), vector_overflow(setting.product, wanted)
            if overflow != "ieee" and cuts_off(carrier, wanted):
                cut.add(f"cast_{name}")
            made[name] = encode(round_to(carrier, wanted, overflow=overflow), wanted)
    return made, cut


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
    try:
        output = np.zeros(problem.grad_output, input.dtype)
    except (MemoryError, ValueError):
        raise ShapeError(
            f"convolution: the output of shape {problem.grad_output} needs more memory than there is; take "
            "smaller tensors or less padding"
        ) from None
    result = run(part, input, output, weight, setting)
    more = None if bias is None else bias.reshape(-1, *(1,) * problem.rank)
    made, cut = with_addend(result.grad_input, more, lookup_dtype(input.dtype).name, setting)
    return replace(result, grad_input=made, overflowed=_and(result.overflowed, cut))


def with_addend(
    made: Any, more: Any, name: str, setting: Setting, alpha: float = 1, beta: float = 1
) -> tuple[Any, set[str]]:
    """Return alpha x product + beta x addend in a format, and the kernel that saturated a value, if it did.

    made, more   a product, and what is added to it; None: nothing
    Rounding     float32 after each operation of vector cores, then once to the format
    Zero         an alpha or beta of 0 leaves its term out, with its Inf and NaN
    """
    if more is not None or alpha != 1:
        with np.errstate(over="ignore", invalid="ignore"):
            product = decode(made, lookup_dtype(made.dtype)) if alpha else np.zeros(made.shape, np.float32)
            # A factor of 1 changes nothing, and takes a pass.
            made = product if alpha == 1 else product * np.float32(alpha)
            if more is not None and beta != 0:
                addend = decode(more, lookup_dtype(more.dtype))
                made = made + (addend if beta == 1 else addend * np.float32(beta))
    stored, cut = as_stored({"add_bias": made}, (name,), setting)
    return stored["add_bias"], {"add_bias"} if cut else cut


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
    gradients = first.grad_input, first.grad_weight, last.grad_bias
    own = kinds[1], kinds[2], kinds[0]
    made, cut = as_stored(dict(zip(GRADIENTS, gradients, strict=True)), own, setting)
    known = chain.from_iterable(one.overflowed or () for one in results)
    return replace(first, **made, overflowed=_and(set(known), cut))


def _names(*arrays: Any) -> tuple[Any, ...]:
    return tuple(lookup_dtype(array.dtype).name for array in arrays)


# HF32 is how the cube reads float32: no tensor is stored in it.
OPERANDS = tuple(known for known in DTYPES if not known.name.startswith("hf32"))
# What results have in common with torch's tensors, whatever is asked for.
_TAKEN_OVER = {"output_dtypes": "the formats", "output_strides": "the places"}
# Each once, as a refusal lists them.
_OPTIONS = tuple(name for name in CallOptions.__annotations__ if name not in ("product", *_TAKEN_OVER))
NAMES = ("product", "cube_math_type", "operands", "order", "threads", *_OPTIONS)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Setting:
    """The machine and the arithmetic of a convolution, for both passes.

    product         name of a product or variant, path of a TOML file, or a loaded Profile
    cube_math_type  0 to 3, the interface's cubeMathType
    operands        format into which grad_output, input and weight are rounded before the cube takes them,
                    such as "hifloat8", which torch has not; None: as they are
    order           in which kernels are executed: "program", "arrival" or a seed, each of which may add the
                    parts of a gradient in another order, as runs of the device do
    threads         that share a call; the bits do not depend on their number
    options         other keywords of `convolution_backward`: accumulation, rules, tiling, deterministic, ...

    Raises          ConfigError, UnsupportedError for a value without a meaning; TypeError for another keyword
    """

    product: Profile
    cube_math_type: int
    operands: str | None
    order: str | int
    threads: int
    options: FrozenMap[str, Any]

    def __init__(
        self,
        product: Product = Options.product,
        cube_math_type: int = 0,
        *,
        operands: str | None = None,
        order: str | int = "program",
        threads: int = 1,
        **options: Any,
    ) -> None:
        for name, what in _TAKEN_OVER.items():
            if name in options:
                raise ConfigError(f"Setting: {name} is not taken; results have {what} of torch's tensors")
        require_known("Setting", options, NAMES)
        if whole(cube_math_type) is None:
            raise ConfigError(f"Setting: cube_math_type is {shown(cube_math_type)}; it must be 0, 1, 2 or 3")
        checked = Options(product=product, **options)
        load_rules(checked.rules)
        values = {
            "product": checked.profile,
            "cube_math_type": cube_math_type,
            "operands": None if operands is None else find(operands, OPERANDS).name,
            "order": order_given(order),
            "threads": thread_count(threads, timing=False),
            "options": FrozenMap[str, Any](options),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        # A whole profile would fill pages.
        told = {"product": self.product.variant, "cube_math_type": self.cube_math_type}
        usual = {"operands": None, "order": "program", "threads": 1}
        told |= {name: own for name, value in usual.items() if (own := getattr(self, name)) != value}
        return f"Setting({', '.join(f'{name}={value!r}' for name, value in (told | self.options).items())})"

    def but(self, **changes: Any) -> Setting:
        """Return the setting with other values for some keywords."""
        names = [one.name for one in fields(self) if one.name != "options"]
        return Setting(**{name: getattr(self, name) for name in names} | self.options | changes)


UNNAMED = "(no module)"
OUTPUT = ("output",)


@dataclass(frozen=True)
class LayerPass:
    """One pass of one layer, as a filter sees it.

    name       path of the module in the outermost one that was called, such as "features.0"; the second and
               later convolutions that one module calls itself have "#1", "#2" behind it
    direction  "forward" or "backward"
    problem    shapes and attributes of the convolution; or the shape of a matrix product
    dtypes     formats of input and weight, of a backward of grad_output before them; or of both factors
    results    what is asked for: "output", or some of "grad_input", "grad_weight", "grad_bias"
    """

    name: str
    direction: str
    problem: ConvProblem | MatmulProblem
    dtypes: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def convolution(self) -> ConvProblem:
        """The problem of a pass that is no matrix product."""
        return cast("ConvProblem", self.problem)

    @property
    def mask(self) -> Mask:
        """The mask of the three gradients that are asked for."""
        grad_input, grad_weight, grad_bias = (name in self.results for name in GRADIENTS)
        return grad_input, grad_weight, grad_bias


class LayerNames:
    """Follows which module runs, and remembers whose weight is whose, for the backward pass."""

    def __init__(self) -> None:
        self._running: list[_Running] = []
        self._paths: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._of_weights: dict[Any, str] = {}
        self._hooks: list[Any] = []

    def watch(self) -> None:
        """Begin to follow modules."""
        self._hooks.append(register_module_forward_pre_hook(self._begins))
        # Also where a module fails: a script may catch that and go on.
        self._hooks.append(register_module_forward_hook(self._ends, always_call=True))

    def stop(self) -> None:
        """Stop following modules."""
        while self._hooks:
            self._hooks.pop().remove()
        self._running.clear()

    @property
    def in_module(self) -> bool:
        """Whether a module is running."""
        return bool(self._running)

    def forward(self, weight: torch.Tensor) -> str:
        """Name the convolution with this weight that is running."""
        name = self.running()
        self._of_weights[_key(weight)] = name
        return name

    def running(self) -> str:
        """Name what is running, anew for each."""
        return self._running[-1].next_name() if self._running else UNNAMED

    def backward(self, weight: torch.Tensor) -> str:
        """Name the convolution with this weight, as its forward was named."""
        # The tensor itself is another object by now, and under autocast never was the parameter.
        return self._of_weights.get(_key(weight), UNNAMED)

    def _begins(self, module: Any, _arguments: Any) -> None:
        if not self._running:
            self._name_all(module)
        self._running.append(_Running(self._paths.get(module, type(module).__name__)))

    def _ends(self, _module: Any, _arguments: Any, _output: Any) -> None:
        if self._running:
            self._running.pop()

    def _name_all(self, root: Any) -> None:
        """Give each module under a root the name that it has there, unless it has one."""
        taken = set(self._paths.values())
        for path, module in root.named_modules():
            if module in self._paths:
                continue
            name = first = path or type(root).__name__
            number = 1
            while name in taken:
                number += 1
                name = f"{first} ({number})"
            self._paths[module] = name
            taken.add(name)


class _Running:
    """A module in its forward, and how many convolutions it has called itself."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0

    def next_name(self) -> str:
        self._count += 1
        return self._name if self._count == 1 else f"{self._name}#{self._count - 1}"


def _key(weight: torch.Tensor) -> Any:
    return weight.data_ptr(), tuple(weight.shape), weight.dtype
