"""An operand format, an accumulation model and an output format as one value, and gradients under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.arguments import items, refusal
from ascendsim.errors import ConfigError, ShapeError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.ordered import ordered_dgrad, reduction_of
from ascendsim.ops.reference.ordered_wgrad import ordered_wgrad
from ascendsim.ops.schedules.order import DgradOrder, WgradOrder
from ascendsim.studies.arithmetic.formats import StudyFormat, format_of, quantise, require_rounding
from ascendsim.studies.arithmetic.gpus import GPUS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Floats = NDArray[np.float32]

GRADIENTS = ("grad_input", "grad_weight")
C0 = 16  # channels that are neighbours in the reduction of grad_input


@dataclass(frozen=True)
class Math:
    """Say with which arithmetic gradients are computed.

    operands       format of grad_output, input and weight (`formats`)
    accumulation   text of a model, or the name of a GPU (`gpus`)
    output         format of the gradients
    rounding       of operands and gradients: "nearest" or "stochastic"
    seed           of stochastic rounding
    Raises         ConfigError, UnsupportedError for a value without a meaning
    """

    operands: str = "float16"
    accumulation: str = "block:16:RNE"
    output: str = "float32"
    rounding: str = "nearest"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values without a meaning."""
        require_rounding(self.rounding, self.seed)
        if not isinstance(self.accumulation, str):
            rule = "the text of a model, such as block:16:RNE, or the name of a GPU"
            raise refusal("accumulation", self.accumulation, rule)
        _ = self.model, self.operand_format, self.output_format

    @property
    def model(self) -> AccumulationModel:
        """The accumulation model."""
        gpu = GPUS.get(self.accumulation)
        if gpu is None and self.accumulation.startswith("nvidia"):
            known = ", ".join(GPUS)
            raise ConfigError(f"accumulation: no GPU {self.accumulation!r} is known; there are {known}")
        model = AccumulationModel.parse(gpu.model if gpu else self.accumulation)
        if not model.resolved:
            raise ConfigError(f"accumulation is {self.accumulation}; say the number that cube_k stands for")
        return model

    @property
    def operand_format(self) -> StudyFormat:
        """The format of the operands."""
        return format_of(self.operands)

    @property
    def output_format(self) -> StudyFormat:
        """The format of the gradients."""
        return format_of(self.output)

    @property
    def is_study(self) -> bool:
        """Whether some of it is no product's: a format, a rounding, or a GPU's sums."""
        formats = self.operand_format, self.output_format
        return (
            not all(fmt.product for fmt in formats) or self.rounding != "nearest" or self.accumulation in GPUS
        )

    def __str__(self) -> str:
        """Return it in words."""
        rounding = "" if self.rounding == "nearest" else f", rounded by chance (seed {self.seed})"
        study = " (a study)" if self.is_study else ""
        return f"{self.operands}, {self.accumulation}, {self.output}{rounding}{study}"


def operands_of(
    problem: ConvProblem, tensors: Mapping[str, Float64], math: Math, gradient: str
) -> tuple[Floats, Floats]:
    """Return the two tensors that a gradient multiplies, in their format.

    Blocks of a shared scale lie along the reduction: the channels of the small side for grad_input, the last
    axis of the images for grad_weight.
    """
    fmt, seed = math.operand_format, 4 * math.seed
    grad = tensors["grad_output"]
    if gradient == "grad_weight":
        x = tensors["input"]
        return (
            quantise(grad, fmt, grad.ndim - 1, math.rounding, seed),
            quantise(x, fmt, x.ndim - 1, math.rounding, seed + 1),
        )
    weight = tensors["weight"]
    # grad_output has its channels second; of a weight the first axis is the small side's.
    axis = 1 if problem.transposed else 0
    return (
        quantise(grad, fmt, 1, math.rounding, seed + 2),
        quantise(weight, fmt, axis, math.rounding, seed + 3),
    )


def accumulators(problem: ConvProblem, gradient: str, operands: tuple[Floats, Floats], math: Math) -> Floats:
    """Return a gradient in float32, as it is before its output format.

    Order    as on the product, but free of plans: one Mmad for each kernel depth of grad_input, and for each
             image of grad_weight
    """
    reduce = reduction_of(math.model, problem.macs)
    with np.errstate(all="ignore"):
        if gradient == "grad_input":
            channels = problem.big_channels if problem.transposed else problem.small_channels
            taps = problem.kernel[1] * problem.kernel[2]
            order = DgradOrder(C0, (-(-channels // C0) * taps,))
            return ordered_dgrad(problem, *operands, order, reduce)
        pixels = problem.small_size[1] * problem.small_size[2]
        return ordered_wgrad(problem, *operands, WgradOrder(((0, pixels),), pixels), reduce)


def checked(problem: ConvProblem, tensors: Mapping[str, NDArray[np.float64]]) -> dict[str, Float64]:
    """Return grad_output, input and weight in float64.

    Raises   ShapeError for one that is missing or of another shape, ConfigError for what is no problem, no
             tensors by name, or no numbers
    """
    if not isinstance(problem, ConvProblem):
        raise refusal("precision: problem", problem, "ConvProblem(input=..., weight=...)")
    if not isinstance(tensors, Mapping):
        rule = '{"grad_output": ..., "input": ..., "weight": ...}'
        raise refusal("precision: tensors", tensors, rule)
    found = {}
    for name in ("grad_output", "input", "weight"):
        want = getattr(problem, name)
        given = tensors.get(name)
        found[name] = _float64(given, f"precision: {name}")
        if given is None or found[name].shape != want:
            got = "missing" if given is None else f"of shape {found[name].shape}"
            raise ShapeError(f"precision: {name} is {got}; the problem needs {want}")
    return found


def _float64(given: object, what: str) -> Float64:
    """Return numbers of any kind in float64."""
    try:
        return np.asarray(given, np.float64)
    except (MemoryError, TypeError, ValueError):
        raise refusal(what, given, "an array of numbers") from None


def require_gradients(gradients: Sequence[str]) -> None:
    """Refuse names of gradients that are no product of two tensors.

    Raises   ConfigError
    """
    named = items(gradients)
    if named is None or not all(isinstance(name, str) and name in GRADIENTS for name in named):
        raise refusal("precision: gradients", gradients, f"a list of some of {', '.join(GRADIENTS)}")


def require_maths(maths: Sequence[Math]) -> None:
    """Refuse what is no list of arithmetics.

    Raises   ConfigError
    """
    named = items(maths)
    if named is None or not all(isinstance(math, Math) for math in named):
        raise refusal("precision: maths", maths, "a list of Math(operands, accumulation, output)")
