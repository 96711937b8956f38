"""What a reader of a result must know of single kernels, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Call

# Generations whose operator has been read; older ones lower convolutions in other ways.
OPERATORS: Final = ("2201", "3510")
WINOGRAD_PAD: Final = 8
WINOGRAD_CHANNELS: Final = 64
WINOGRAD_BLOCKS: Final = 16
WINOGRAD_TILES: Final = 512_000


def squeezed(gradient: str, through: str, asked: str) -> str:
    """Say that a gradient passes through a narrower format on its way out; nothing where it loses nothing."""
    # float32 is what sums are held in, so a cast from it is the one rounding that the asked format needs.
    if through in ("float32", asked):
        return ""
    return (
        f"{gradient} passes through {through} on its way to {asked}, as in the shipped operator: what "
        f"{through} does not hold is lost. The rule set hardware converts it once."
    )


def merges(call: Call, gradient: str) -> str:
    """Say what merged groups of grad_input do to values that are not finite; nothing of other gradients."""
    merge = min(call.merge_of(gradient), call.problem.groups)
    # The blocks of grad_weight beside the diagonal are dropped, and their values with them.
    if gradient != "grad_input" or merge == 1:
        return ""
    return (
        f"grad_input takes {merge} groups as one, whose weights have zeros beside the diagonal, as in the "
        "shipped operator: Inf or NaN in grad_output of one of them is NaN in grad_input of all (0 x Inf). "
        "A plan with group_merge 1 keeps groups apart."
    )


def not_modelled(call: Call, gradient: str) -> str:
    """Say where the product's operator computes a gradient in a way that has other bits; else nothing.

    Source   public ops-nn at e5c3fa932, as read: the operator's interface code and its Winograd tiling
    """
    if call.profile.npu_arch not in OPERATORS:
        return ""
    if gradient == "grad_weight" and call.profile.npu_arch == "3510" and _may_be_winograd(call):
        return (
            "The operator may compute this grad_weight by Winograd (float32, 3x3, stride 1), which rounds "
            "elsewhere; that is not modelled yet: the bits are those of the direct sum."
        )
    if not call.as_product(gradient) and _may_be_matmul(call, gradient):
        ties = " and in HF32 rounds ties away from zero" if call.compute_dtype == "hf32" else ""
        return (
            f"The operator may compute {gradient} of these shapes by a matrix product, which cuts the "
            f"reduction in its own way{ties}; here a convolution kernel makes it, and the bits are its own."
        )
    return ""


def _may_be_winograd(call: Call) -> bool:
    """Tell whether a grad_weight meets the conditions on shapes; the share of whole tiles is left out."""
    p = call.problem
    formats = {call.dtypes[name] for name in ("grad_output", "input", "grad_weight")}
    plain = p.groups == 1 and set(p.strides) == set(p.dilations) == {1} and p.kernel == (1, 3, 3)
    even = all(before == after <= WINOGRAD_PAD for before, after in p.pads)
    _, height, width = p.small_size
    tiles = p.batch * -(-height // 2) * -(-width // 2)
    blocks = (p.small_channels // WINOGRAD_CHANNELS) * (p.big_channels // WINOGRAD_CHANNELS)
    return (
        call.compute_dtype == "float32"
        and formats == {"float32"}
        and p.rank == 2
        and plain
        and even
        and tiles <= WINOGRAD_TILES
        and blocks >= WINOGRAD_BLOCKS
    )


def _may_be_matmul(call: Call, gradient: str) -> bool:
    """Tell whether a gradient has the shapes of a matrix product."""
    p = call.problem
    if p.transposed or p.groups > 1 or any(map(any, p.pads)) or set(p.dilations) != {1}:
        return False
    # One placement of the kernel, or one tap and nothing between: both gradients are one matrix product.
    newest = call.profile.npu_arch == "3510"
    if p.kernel == p.big_size or (newest and p.batch == 1 and p.kernel == p.strides == (1, 1, 1)):
        return True
    # Placements side by side: grad_input is a matrix product and a permutation.
    return gradient == "grad_input" and p.kernel == p.strides and max(p.strides) > 1
