"""The user's functions: gradients with cycles, or cycles alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.models import AccumulationModel
from ascendsim.ops.compute_type import compute_dtype
from ascendsim.ops.conv_problem import ConvProblem
from ascendsim.ops.lowering import Call, Step, lower
from ascendsim.ops.results import ConvolutionBackwardResult, Estimate, KernelResult
from ascendsim.ops.summary import summarise
from ascendsim.ops.tiling.plan import Tiling
from ascendsim.profile import Profile, load_profile
from ascendsim.timing import time_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Mask = Sequence[bool]
Tilings = Tiling | Mapping[str, Tiling] | None
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")

NOTES = (
    "Layout conversions between NCHW and NC1HWC0 (TransData kernels) are not part of the cycles.",
    "Tilings are this simulator's own; the product's operators choose their own.",
)


@dataclass(frozen=True)
class Options:
    """The keywords that `convolution_backward` and `estimate` share.

    product        name of a product or variant, path of a TOML file, or a loaded Profile
    accumulation   name of an accumulation model; None: the product's default for the compute dtype
    tiling         a Tiling for the one cube gradient asked for, or {"grad_input": ..., "grad_weight": ...}
    deterministic  add the parts of grad_weight in a fixed order; None: the product's default
    output_dtypes  formats of the three gradients; None: those of input, weight and grad_output
    l2_start       "warm" (tensors that fit are in L2 when a kernel starts) or "cold"
    """

    product: str | Path | Profile = "910B"
    accumulation: str | AccumulationModel | None = None
    tiling: Tilings = None
    deterministic: bool | None = None
    output_dtypes: Sequence[str | None] | None = None
    l2_start: str = "warm"


def convolution_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Sequence[int] | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
    output_mask: Mask,
    cube_math_type: int,
    *,
    product: str | Path | Profile = "910B",
    accumulation: str | AccumulationModel | None = None,
    tiling: Tilings = None,
    deterministic: bool | None = None,
    order: str | int = "program",
    output_dtypes: Sequence[str | None] | None = None,
    l2_start: str = "warm",
) -> ConvolutionBackwardResult:
    """Compute the gradients of a convolution bit for bit, and the cycles they take.

    Shapes   input (N, C, H, W), weight (Cout, C, Kh, Kw), grad_output (N, Cout, Ho, Wo); bias_sizes (Cout,)
    Types    numpy arrays of float16, bfloat16 (ml_dtypes) or float32; they may differ
    Order    of execution: "program", "arrival" (as timed; matters for atomic adds) or a seed
    Returns  gradients in the asked formats (None where masked), and one record for each kernel
    Raises   ShapeError, UnsupportedError, ConfigError, CapacityError: all AscendSimError
    Source   operator page of aclnnConvolutionBackward; positions as torch.ops.aten.convolution_backward
    """
    from ascendsim.functional import run_kernel
    from ascendsim.numerics.casts import decode, encode

    given = {"grad_output": grad_output, "input": input, "weight": weight}
    arrays = {name: _array(name, value) for name, value in given.items()}
    problem = ConvProblem(
        arrays["input"].shape,
        arrays["weight"].shape,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )
    problem.check_grad_output(arrays["grad_output"].shape)
    mask = _mask(output_mask)
    if mask[2] and bias_sizes is not None and tuple(bias_sizes) != (problem.grad_output[1],):
        raise ShapeError(
            f"convolution_backward: bias_sizes is {tuple(bias_sizes)}, but grad_output has "
            f"{problem.grad_output[1]} channels"
        )
    formats = {name: lookup_dtype(array.dtype).name for name, array in arrays.items()}
    options = Options(product, accumulation, tiling, deterministic, output_dtypes, l2_start)
    call = _call(problem, formats, cube_math_type, mask, options)
    tensors = {name: decode(array, formats[name]) for name, array in arrays.items()}
    results = []
    for step in lower(call, mask):
        results.append(_timed(step, call, options, folded=order != "arrival"))
        gm = step.bind(tensors)
        run_kernel(step.kernel, gm, order=order, timeline=results[-1].timeline)
        tensors.update(step.collect(gm))
    gradients: dict[str, Any] = {
        name: encode(tensors[name], call.dtypes[name]) if wanted else None
        for name, wanted in zip(GRADIENTS, mask, strict=True)
    }
    named = order if isinstance(order, str) else f"seed {order}"
    return ConvolutionBackwardResult(**_common(call, results), **gradients, order=named)


def estimate(
    problem: ConvProblem,
    dtype: str | Sequence[str] = "float16",
    cube_math_type: int = 0,
    *,
    product: str | Path | Profile = "910B",
    output_mask: Mask = (True, True, True),
    accumulation: str | AccumulationModel | None = None,
    tiling: Tilings = None,
    deterministic: bool | None = None,
    output_dtypes: Sequence[str | None] | None = None,
    l2_start: str = "warm",
) -> Estimate:
    """Estimate the cycles of a call without tensors.

    Types    `dtype` is the format of all three inputs, or one for each of grad_output, input, weight
    Returns  one record for each kernel
    Raises   as `convolution_backward`
    """
    names = (dtype,) * 3 if isinstance(dtype, str) else tuple(dtype)
    if len(names) != 3:
        raise ConfigError(f"estimate: dtype has {len(names)} names {names}; it needs one, or three")
    formats = {
        name: lookup_dtype(given).name
        for name, given in zip(("grad_output", "input", "weight"), names, strict=True)
    }
    mask = _mask(output_mask)
    options = Options(product, accumulation, tiling, deterministic, output_dtypes, l2_start)
    call = _call(problem, formats, cube_math_type, mask, options)
    results = [_timed(step, call, options, folded=True) for step in lower(call, mask)]
    return Estimate(**_common(call, results))


def _call(
    problem: ConvProblem,
    formats: dict[str, str],
    cube_math_type: int,
    mask: tuple[bool, bool, bool],
    options: Options,
) -> Call:
    """Resolve everything that fixes the kernels."""
    product = options.product
    profile = product if isinstance(product, Profile) else load_profile(product)
    compute = compute_dtype(
        (formats["grad_output"], formats["input"], formats["weight"]), cube_math_type, profile
    )
    model = options.accumulation
    if model is None:
        model = profile.accumulation[compute]
    if isinstance(model, str):
        model = AccumulationModel.parse(model)
    wanted = tuple(options.output_dtypes or (None, None, None))
    if len(wanted) != 3:
        raise ConfigError(f"output_dtypes has {len(wanted)} entries {wanted}; it needs three, None: default")
    defaults = (formats["input"], formats["weight"], formats["grad_output"])
    outputs = {
        name: lookup_dtype(chosen or default).name
        for name, chosen, default in zip(GRADIENTS, wanted, defaults, strict=True)
    }
    deterministic = options.deterministic
    return Call(
        problem,
        profile,
        compute,
        {**formats, **outputs},
        model.resolve(profile.cube.rates[compute].block_k),
        profile.deterministic_default if deterministic is None else bool(deterministic),
        _tilings(options.tiling, mask),
    )


def _tilings(tiling: Tilings, mask: tuple[bool, bool, bool]) -> dict[str, Tiling]:
    """Return the user's plans by gradient."""
    if tiling is None:
        return {}
    if isinstance(tiling, Tiling):
        wanted = [name for name, asked in zip(GRADIENTS[:2], mask[:2], strict=True) if asked]
        if len(wanted) != 1:
            raise ConfigError(
                f"tiling is one Tiling, but the call computes {' and '.join(wanted) or 'no cube gradient'}; "
                'pass {"grad_input": ..., "grad_weight": ...}'
            )
        return {wanted[0]: tiling}
    unknown = set(tiling) - set(GRADIENTS[:2])
    if unknown:
        raise ConfigError(f"tiling has keys {sorted(unknown)}; it takes grad_input and grad_weight")
    return dict(tiling)


def _timed(step: Step, call: Call, options: Options, *, folded: bool) -> KernelResult:
    timeline = time_kernel(step.kernel, call.profile, folded=folded, l2_start=options.l2_start)
    return summarise(step.kernel, call.profile, timeline)


def _common(call: Call, results: list[KernelResult]) -> dict[str, Any]:
    """Return the fields that every result has."""
    return {
        "product": call.profile.product,
        "variant": call.profile.variant,
        "compute_dtype": call.operand.name,
        "accumulation": str(call.accumulation),
        "kernels": tuple(results),
        "notes": NOTES,
    }


def _mask(output_mask: Mask) -> tuple[bool, bool, bool]:
    values = tuple(bool(value) for value in output_mask)
    if len(values) != 3:
        raise ShapeError(
            f"convolution_backward: output_mask has {len(values)} values {values}; it needs three, for "
            "grad_input, grad_weight and grad_bias"
        )
    return values


def _array(name: str, value: Any) -> NDArray[Any]:
    """Return the user's tensor as an array of a supported format."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype == np.float64 or array.dtype == object:
        raise UnsupportedError(
            f"convolution_backward: {name} has dtype {array.dtype}; cast it to float32, float16 or bfloat16 "
            "first, so that the rounding is yours"
        )
    return array
