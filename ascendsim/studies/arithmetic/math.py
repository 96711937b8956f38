"""An operand format, an accumulation model and an output format as one value, and gradients under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ConfigError, ShapeError, items, refusal, whole
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.metrics import ErrorMetrics, error_metrics
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.orders import DgradOrder, WgradOrder
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.ops.reference.ordered import ordered_dgrad, ordered_wgrad, reduction_of
from ascendsim.studies.arithmetic.formats import StudyFormat, format_of, quantise, require_rounding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A tensor core with operands of one kind: its model, and where that is from.

    fraction   bits of a result's fraction, the rest of which is cut off
    """

    model: str
    source: str
    confidence: str
    fraction: int = 23


_MMA_SIM = "MMA-Sim (models held to devices by random bit patterns)"
_BOTH = f"{_MMA_SIM}; block: also FPRev (USENIX ATC 2025)"
_FP22 = "float32 with 13 fraction bits in sums and results: SageAttention2 (Ada, Hopper)"
_BLOCK_DERIVED = "F measured by others, block derived"
_VOLTA = Gpu("align:4:F23:RZ:acc", _BOTH, "measured by others")
_AMPERE = Gpu("align:8:F24:RZ:acc", _BOTH, "measured by others")
_ADA = Gpu("align:8:F24:RZ:acc", f"{_MMA_SIM}; 16 products of an instruction in two halves", _BLOCK_DERIVED)
_ADA_FP8 = Gpu(
    "align:16:F13:RZ:acc",
    f"{_MMA_SIM}; 32 products of an instruction in two halves; {_FP22}",
    _BLOCK_DERIVED,
    13,
)
_HOPPER = Gpu("align:16:F25:RZ:acc", _BOTH, "measured by others")
_HOPPER_FP8 = Gpu(
    "align:32:F13:RZ:acc",
    f"{_FP22}; about 14 bits: DeepSeek-V3; block: the 32 products of an instruction",
    _BLOCK_DERIVED,
    13,
)
_BLACKWELL = Gpu("align:16:F25:RZ:acc", f"{_MMA_SIM}; block: as Hopper", _BLOCK_DERIVED)


def _halves(gpu: Gpu) -> dict[str, Gpu]:
    return dict.fromkeys(("float16", "bfloat16"), gpu)


def _eights(gpu: Gpu) -> dict[str, Gpu]:
    return dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), gpu)


# By the format of the operands, which has a part of the device to itself.
GPUS: dict[str, dict[str, Gpu]] = {
    "nvidia-v100": {"float16": _VOLTA},
    "nvidia-a100": _halves(_AMPERE),
    "nvidia-a2": _halves(_AMPERE),
    "nvidia-l40s": _halves(_ADA) | _eights(_ADA_FP8),
    "nvidia-h100": _halves(_HOPPER) | _eights(_HOPPER_FP8),
    "nvidia-b200": _halves(_BLACKWELL),
}


GRADIENTS = ("grad_input", "grad_weight")
DRAWS = 6  # of chance: for two operands of two gradients, and for the gradients
C0 = 16  # channels that are neighbours in the reduction of grad_input


@dataclass(frozen=True)
class Math:
    """Say with which arithmetic gradients are computed.

    operands       format of grad_output, input and weight (`formats`)
    accumulation   text of a model, or the name of a GPU (`GPUS`), which has a model for some operands
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
    def gpu(self) -> Gpu | None:
        """The tensor core that multiplies the operands; None where a model is named."""
        named = GPUS.get(self.accumulation)
        if named is None:
            if self.accumulation.startswith("nvidia"):
                known = ", ".join(GPUS)
                raise ConfigError(f"accumulation: no GPU {self.accumulation!r} is known; there are {known}")
            return None
        # A power of two for the whole tensor moves no bit of a product's fraction.
        kind = self.operand_format.text.removeprefix("scaled(").removesuffix(")")
        if kind not in named:
            raise ConfigError(
                f"accumulation: sums of {self.accumulation} are known for operands in {', '.join(named)}, "
                f"not in {self.operands}; take one of these, or the text of a model"
            )
        return named[kind]

    @property
    def model(self) -> AccumulationModel:
        """The accumulation model."""
        gpu = self.gpu
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
    fmt, seed = math.operand_format, DRAWS * math.seed
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
            sums = ordered_dgrad(problem, *operands, order, reduce)
        else:
            pixels = problem.small_size[1] * problem.small_size[2]
            sums = ordered_wgrad(problem, *operands, WgradOrder(((0, pixels),), pixels), reduce)
    if math.gpu is None or math.gpu.fraction == 23:
        return sums
    # Only at the end: a sum that goes on is aligned, which cuts off no less.
    kept = np.uint32(0xFFFFFFFF << (23 - math.gpu.fraction) & 0xFFFFFFFF)
    return (sums.view(np.uint32) & kept).view(np.float32)


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
        # Before it is read: a range of a billion is converted number by number.
        if isinstance(given, Sequence) and len(given) != want[0]:
            raise ShapeError(f"precision: {name} has {len(given)} parts; the problem needs {want}")
        found[name] = _as_float64(given, f"precision: {name}")
        if given is None or found[name].shape != want:
            got = "missing" if given is None else f"of shape {found[name].shape}"
            raise ShapeError(f"precision: {name} is {got}; the problem needs {want}")
    return found


def _as_float64(given: object, what: str) -> Float64:
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
    """Refuse values that are no list of arithmetics.

    Raises   ConfigError
    """
    named = items(maths)
    if named is None or not all(isinstance(math, Math) for math in named):
        raise refusal("precision: maths", maths, "a list of Math(operands, accumulation, output)")


@dataclass(frozen=True, slots=True)
class Judged:
    """One gradient under one arithmetic.

    errors      against float64 of the tensors as they were given, in steps of float32
    different   share of elements whose float32 bits, in the output format, differ from the first arithmetic's
    """

    math: str
    gradient: str
    errors: ErrorMetrics
    different: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """The sources of the error of one gradient: relative L2 norms against float64.

    total          of the result, against float64 of the tensors as they were given
    operands       error by rounding the operands alone: float64 of the rounded ones
    accumulation   error that the sums add
    output         error that the output format adds
    of_terms       the largest error of accumulation over the sum of the magnitudes of its terms
    """

    math: str
    gradient: str
    total: float
    operands: float
    accumulation: float
    output: float
    of_terms: float


@default_arithmetic
def spread(
    problem: ConvProblem,
    tensors: Mapping[str, Any],
    maths: Sequence[Math],
    gradients: Sequence[str] = GRADIENTS,
) -> tuple[Judged, ...]:
    """Compute gradients under several arithmetics, and say how far each is from float64 and from the first.

    tensors    grad_output, input and weight, of any floating type; each arithmetic rounds them itself
    Raises     ShapeError for tensors that do not fit the problem, ConfigError for another gradient
    """
    require_gradients(gradients)
    require_maths(maths)
    given, judged = checked(problem, tensors), []
    for gradient in gradients:
        exact = _float64(problem, given, gradient)
        sizes = _float64(problem, {name: np.abs(values) for name, values in given.items()}, gradient)
        first = None
        for math in maths:
            sums = accumulators(problem, gradient, operands_of(problem, given, math, gradient), math)
            made = _written(sums, math, gradient)
            first = made if first is None else first
            same = (made.view(np.uint32) == first.view(np.uint32)) | (np.isnan(made) & np.isnan(first))
            errors = error_metrics(made, exact, "float32", sizes)
            judged.append(Judged(str(math), gradient, errors, 1 - float(same.mean())))
    return tuple(judged)


@default_arithmetic
def attribute(
    problem: ConvProblem, tensors: Mapping[str, Any], math: Math, gradients: Sequence[str] = GRADIENTS
) -> tuple[Attribution, ...]:
    """Part the error of each gradient into what operands, accumulation and output format make.

    The three parts add up to the error, element by element; their norms need not.

    Raises   as `spread`
    """
    require_gradients(gradients)
    require_maths((math,))
    given, parts = checked(problem, tensors), []
    for gradient in gradients:
        exact = _float64(problem, given, gradient)
        rounded = operands_of(problem, given, math, gradient)
        names = ("grad_output", "weight" if gradient == "grad_input" else "input")
        as_read = {**given, **{name: x.astype(np.float64) for name, x in zip(names, rounded, strict=True)}}
        exact_of_rounded = _float64(problem, as_read, gradient)
        sums = accumulators(problem, gradient, rounded, math).astype(np.float64)
        made = _written(sums.astype(np.float32), math, gradient).astype(np.float64)
        sizes = _float64(problem, {name: np.abs(values) for name, values in as_read.items()}, gradient)
        steps = (made - exact, exact_of_rounded - exact, sums - exact_of_rounded, made - sums)
        norm = float(np.linalg.norm(exact)) or 1.0
        worst = np.abs(sums - exact_of_rounded) / np.where(sizes == 0, 1.0, sizes)
        total, by_operands, by_sums, by_output = (float(np.linalg.norm(step)) / norm for step in steps)
        found = Attribution(
            str(math), gradient, total, by_operands, by_sums, by_output, float(worst.max(initial=0.0))
        )
        parts.append(found)
    return tuple(parts)


def _float64(problem: ConvProblem, tensors: Mapping[str, Float64], gradient: str) -> Float64:
    """Return a gradient in float64."""
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    made = gradients_float64(problem, tensors["grad_output"], tensors["input"], tensors["weight"], mask)
    found: Float64 = made[GRADIENTS.index(gradient)]
    return found


def _written(sums: NDArray[np.float32], math: Math, gradient: str) -> NDArray[np.float32]:
    seed = DRAWS * math.seed + 4 + GRADIENTS.index(gradient)
    # Along the last axis: a shared scale of an output is one that its reader would find.
    return quantise(sums.astype(np.float64), math.output_format, sums.ndim - 1, math.rounding, seed)


Leaf = int | str
MOST = 1 << 20
Tree = Leaf | tuple["Tree", ...]


def reduction_tree(model: str | AccumulationModel, products: int, mmad: int | None = None) -> Tree:
    """Return the tree of one reduction.

    products   of the reduction
    mmad       of them in each Mmad; None: all
    Raises     ConfigError for a model whose block is no number yet, or for fewer than one product
    """
    model = AccumulationModel.parse(model) if isinstance(model, str) else model
    if not isinstance(model, AccumulationModel):
        raise refusal("reduction tree: model", model, "the text of a model, or a model")
    counts = []
    for name, number in (("products", products), ("mmad", products if mmad is None else mmad)):
        # More leaves than anyone can look at.
        if (count := whole(number)) is None or count > MOST:
            raise refusal(f"reduction tree: {name}", number, f"a whole number from 1 to {MOST}")
        counts.append(count)
    products, mmad = counts
    if not model.resolved or products < 1 or mmad < 1:
        raise ConfigError(
            f"reduction tree: model {model}, {products} products, {mmad} in an Mmad; the block of the model "
            "must be a number, and both others 1 or more"
        )
    if model.kind == "exact":
        return ("c", *range(products)) if products > 1 else ("c", 0)
    tree: Tree = "c"
    for first in range(0, products, mmad):
        for block in _blocks(model, range(first, min(first + mmad, products))):
            tree = _added(model, tree, block)
    return tree


def _blocks(model: AccumulationModel, numbers: range) -> Iterator[range]:
    """Yield the products that meet before a rounding; chains take them one by one."""
    size = {"seq": 1, "seq-muladd": 1, "exact-mmad": len(numbers)}.get(model.kind) or int(model.block)
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _added(model: AccumulationModel, tree: Tree, block: range) -> Tree:
    if model.kind == "block-add" and len(block) > 1:
        return tree, tuple(block)
    if model.kind == "tree":
        return tree, _pairs(list(block), int(model.block), model.pairing)
    return (tree, *block)


def _pairs(leaves: list[int], size: int, pairing: str) -> Tree:
    """Return the tree over a block; missing leaves are zeros, which change no number, and are left out."""
    nodes: list[Tree | None] = [*leaves, *[None] * (size - len(leaves))]
    while len(nodes) > 1:
        half = len(nodes) // 2
        sides = (nodes[0::2], nodes[1::2]) if pairing == "adjacent" else (nodes[:half], nodes[half:])
        nodes = [_pair(left, right) for left, right in zip(*sides, strict=True)]
    (root,) = nodes
    assert root is not None
    return root


def _pair(left: Tree | None, right: Tree | None) -> Tree | None:
    if left is None or right is None:
        return left if right is None else right
    return left, right


def as_text(tree: Tree) -> str:
    """Return a tree in brackets: (((c 0) 1) 2)."""
    return f"({' '.join(map(as_text, tree))})" if isinstance(tree, tuple) else str(tree)


def as_dot(tree: Tree, name: str = "reduction") -> str:
    """Return a tree in the language of Graphviz."""
    lines = [f'digraph "{name}" {{']
    _draw(tree, lines)
    return "\n".join([*lines, "}"]) + "\n"


def _draw(tree: Tree, lines: list[str]) -> str:
    own = f"n{len(lines)}"
    label = "+" if isinstance(tree, tuple) else str(tree)
    lines.append(f'  {own} [label="{label}"];')
    for below in tree if isinstance(tree, tuple) else ():
        lines.append(f"  {own} -> {_draw(below, lines)};")
    return own
