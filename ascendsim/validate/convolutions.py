"""Measured convolution gradients against their estimates; the tilings are this simulator's own."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AscendSimError, DataError, ShapeError, UnsupportedError
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.validate.cells import refuse_beyond_memory, whole_number, whole_of
from ascendsim.validate.compare import Case
from ascendsim.validate.counters import active_cycles, kernel_case
from ascendsim.validate.products import Overrides, profile_of
from ascendsim.validate.rows import Row, Unusable, l2_start_of

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile

GROUPS = (
    ("msi-alex", "AlexNet, HF32"),
    ("hpm-resnet50_16", "ResNet-50, batch 16"),
    ("cb-dw3d", "3-D grad_weight with its layout kernels"),
)
NOTE = "tiling inferred: this simulator's choice"
SPATIAL = ("D", "H", "W")
FORMATS = ("float16", "bfloat16", "float32")


def is_convolution(row: Row) -> bool:
    """Tell whether a row measured one gradient of a convolution."""
    return row.op.startswith(("Conv2DBackprop", "Conv3DBackprop"))


def convolution_case(row: Row, variant: str, overrides: Overrides = ()) -> Case | Unusable:
    """Estimate one measured gradient and compare."""
    if row.us is None:
        return Unusable(row.id, "gives no time")
    if "SHAPES NOT IN THE TRACE" in row.notes:
        return Unusable(row.id, "its sizes are inferred, not measured")
    profile = profile_of(variant, overrides)
    try:
        problem = _problem(row)
        kernel = _kernel(row, problem, profile)
    except AscendSimError as error:
        return Unusable(row.id, f"its geometry cannot be used: {error}")
    mhz = profile.clock.cube_mhz
    counters = {pipe: cycles / mhz for pipe, cycles in active_cycles(kernel.timeline).items()}
    return kernel_case(row, "convolution", GROUPS, variant, kernel.time_us, counters, NOTE)


def _kernel(row: Row, problem: ConvProblem, profile: Profile) -> KernelResult:
    """Return the gradient's own kernel."""
    wanted = "grad_weight" if "Filter" in row.op else "grad_input"
    dtype = {"hf32": "float32"}.get(row.dtype, row.dtype)
    math_type = 3 if row.math_mode.startswith("HF32") else 0
    if dtype not in FORMATS or (dtype != "float32" and dtype not in profile.cube.rates):
        raise UnsupportedError(
            f"operands of {row.dtype or 'no format'} are not convolved on {profile.variant}"
        )
    if dtype not in profile.cube.rates:
        dtype = "float16"  # where the cube has no float32 its operands are cast before
    result = estimate(
        problem,
        dtype,
        math_type,
        product=profile,
        output_mask=(wanted == "grad_input", wanted == "grad_weight", False),
        l2_start=l2_start_of(row),
        rules="hardware",
    )
    return next(kernel for kernel in result.kernels if kernel.name.startswith(wanted))


def _problem(row: Row) -> ConvProblem:
    """Return the problem of a row, whichever way it spells its geometry.

    Raises   DataError if a size is missing or none, ShapeError if they do not fit
    """
    sizes, window = row.sizes, row.window
    axes = [axis for axis in SPATIAL if f"{axis}i" in sizes]
    big = [whole_of(sizes, f"{axis}i") for axis in axes]
    small = [whole_of(sizes, f"{axis}o") for axis in axes]
    kernel = [whole_of(sizes, f"K{axis.lower()}") for axis in axes]
    stride = _each(window.get("stride"), "stride", axes)
    dilation = _each(window.get("dilation", 1), "dilation", axes)
    batch, channels, out = (whole_of(sizes, key) for key in ("N", "Cin", "Cout"))
    refuse_beyond_memory(batch * max(channels * prod(big), out * prod(small)))
    groups = whole_number(window.get("groups", 1), "groups")
    pads = _told_pads(window.get("pad"), axes, big, small, kernel, stride, dilation) or [
        _pads(big[i], small[i], kernel[i], stride[i], dilation[i]) for i in range(len(axes))
    ]
    if len(axes) == 2:
        padding: Sequence[int] = (*pads[0], *pads[1])
    elif all(before == after for before, after in pads):
        padding = [before for before, _ in pads]
    else:
        raise ShapeError(f"3-D padding {pads} differs between the sides")
    problem = ConvProblem(
        (batch, channels, *big),
        (out, channels // groups, *kernel),
        stride,
        padding,
        dilation,
        groups=groups,
    )
    if problem.grad_output[2:] != tuple(small):
        raise ShapeError(f"an output of {small} does not follow from an input of {big}")
    return problem


def _told_pads(told: Any, axes: Sequence[str], *sizes_of_axes: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the padding that the source tells, one value an axis or two, if it fits the sizes.

    Raises   DataError if one is no whole number
    """
    if not isinstance(told, list) or len(told) not in (len(axes), 2 * len(axes)):
        return None
    told = [whole_number(pad, "padding", least=0) for pad in told]
    twice = len(told) == 2 * len(axes)
    pads = [(told[2 * i], told[2 * i + 1]) if twice else (told[i], told[i]) for i in range(len(axes))]
    for (before, after), (big, small, kernel, stride, dilation) in zip(
        pads, zip(*sizes_of_axes, strict=True), strict=True
    ):
        if (big + before + after - (kernel - 1) * dilation - 1) // stride + 1 != small:
            return None
    return pads


def _each(value: Any, name: str, axes: Sequence[str]) -> list[int]:
    """Return one value for each axis.

    Raises   DataError for anything but one positive whole number, or one for each axis
    """
    parts = value if isinstance(value, list) else [value] * len(axes)
    if len(parts) != len(axes):
        raise DataError(f"its {name} is {value!r}; it must be one value, or one for each of {len(axes)} axes")
    return [whole_number(part, name) for part in parts]


def _pads(big: int, small: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding in front and behind that makes the sizes fit, the smaller half in front.

    The sizes say what the padding is in all, up to what the last step of the stride leaves over; sources
    spell it in ways that do not always agree with them.
    """
    total = max(0, (small - 1) * stride + (kernel - 1) * dilation + 1 - big)
    return total // 2, total - total // 2
