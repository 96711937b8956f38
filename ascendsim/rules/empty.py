"""Check 27 of aclnnConvolutionBackward: calls with an empty tensor, item by item."""

from __future__ import annotations

from ascendsim.rules.checked import INNER, Check, CheckedConvolution, inner_limits, stated_limits
from ascendsim.rules.shapes import bias_sizes as bias_sizes_by_page
from ascendsim.rules.shapes import (
    bias_sizes_problem,
    output_shapes,
    padding_lengths,
    ranks,
    size_problem,
    stride_and_dilation_lengths,
    unequal_batch,
)


def bias_sizes(c: CheckedConvolution) -> str | None:
    """Find biasSizes that do not say the channels of a gradient that is asked for."""
    if not c.mask[2]:
        return None
    if c.call.transposed:
        wanted, rule = c.tensor("weight").shape[1] * c.call.groups, "weight.shape[1] * groups"
    else:
        wanted, rule = c.tensor("grad_output").shape[1], "grad_output.shape[1]"
    return bias_sizes_problem(c, wanted, rule)


def input_n_or_c(c: CheckedConvolution) -> str | None:
    """Find an input with neither N nor C of zero, where that is what makes a call empty."""
    shape = c.tensor("input").shape
    # The operator asks this only of calls that want grad_input, the pages of all.
    if c.rules.empty.needs_n_or_c == "grad_input" and not c.mask[0]:
        return None
    return None if 0 in shape[:2] else f"input is {shape}; in a call with empty tensors its N or C must be 0"


def lengths(c: CheckedConvolution) -> str | None:
    """Find an attribute of a wrong length, or a weight of another rank."""
    if bad := stride_and_dilation_lengths(c) or padding_lengths(c):
        return bad
    rank = c.tensor("weight").rank
    # The operator does not look, and would read past the end of the shorter shape.
    return None if rank == c.rank else f"weight has rank {rank}, input {c.rank}; they must be equal"


def groups(c: CheckedConvolution) -> str | None:
    """Find groups that do not divide weight.shape[0]."""
    first, count = c.tensor("weight").shape[0], c.call.groups
    return f"weight.shape[0] is {first}, which {count} groups do not divide" if first % count else None


# An empty channel axis is fine if both sides say so: nothing is reduced, and zeros are right.
def channels(c: CheckedConvolution) -> str | None:
    """Find channels of the big side that do not agree with weight and groups; zero goes with zero."""
    # The operator does not ask this of an empty batch.
    if c.call.transposed and c.tensor("input").shape[0] == 0:
        return None
    big, own, count = c.big.shape[1], c.tensor("weight").shape[1], c.call.groups
    if (big, own) == (0, 0) or (own and big == own * count):
        return None
    return (
        f"{c.big_name} has {big} channels, but weight.shape[1] * groups is {own} * {count}; "
        "they must be equal"
    )


def weight_and_sizes(c: CheckedConvolution) -> str | None:
    """Find a weight that does not go with input, or a kernel that does not fit into it."""
    first, own = c.tensor("weight").shape[0], c.tensor("input").shape[1]
    if first == 0 and (c.call.transposed or c.rules.empty.weight_n_positive):
        return "weight.shape[0] is 0; it must be above 0"
    if c.call.transposed:
        if first == own:
            return None
        return f"weight.shape[0] is {first}, but input has {own} channels; they must be equal"
    for axis, name in enumerate(c.axes):
        before, after = c.pads(axis)
        if c.rules.empty.four_pads == "axis number":
            # The operator indexes the pads by the number of the axis even where there are four of them.
            before = after = c.numbers("padding")[axis]
        # A kernel of 0 taps spans 1 - dilation and fits anywhere.
        padded = c.tensor("input").shape[2 + axis] + before + after
        if padded < c.span(axis):
            return (
                f"along {name} the dilated kernel spans {c.span(axis)}, more than input with padding, "
                f"{padded}"
            )
    return None


def related(c: CheckedConvolution) -> str | None:
    """Find a grad_output that does not follow from the rest; any axis of it may be 0."""
    return _related_batch_and_channels(c) or _related_sizes(c)


def _related_batch_and_channels(c: CheckedConvolution) -> str | None:
    # "Where input is empty, N, C, D, H and W of 0 are supported" (page 000, gradOutput).
    if bad := ranks(c) or (unequal_batch(c) if c.tensor("grad_output").shape[0] else None):
        return bad
    weight, count = c.tensor("weight").shape, c.call.groups
    wanted = weight[1] * count if c.call.transposed else weight[0]
    got = c.tensor("grad_output").shape[1]
    if got in (wanted, 0):
        return None
    rule = f"weight.shape[1] * groups is {wanted}" if c.call.transposed else f"weight.shape[0] is {wanted}"
    return f"grad_output has {got} channels, but {rule}; they must be equal, or 0"


def _related_sizes(c: CheckedConvolution) -> str | None:
    for axis, name in enumerate(c.axes):
        got, want = c.small.shape[2 + axis], c.placements(axis)
        # Of a kernel without taps, and transposed of an input without pixels, a convolution makes nothing.
        # The page supports them, and no size of grad_output is right.
        nothing = c.tensor("weight").shape[2 + axis] == 0 or (c.call.transposed and got == 0)
        free = nothing or c.tensor("grad_output").shape[2 + axis] == 0
        if got != want and not free:
            return size_problem(c, axis, name, got, want)
    return None


def grad_bias_shape(c: CheckedConvolution) -> str | None:
    """Find a grad_bias that is not one value for each channel of weight; grad_output may have none."""
    bias, weight = c.optional("grad_bias"), c.tensor("weight").shape
    made = weight[1] * c.call.groups if c.call.transposed else weight[0]
    if bias is None or bias.shape == (made,):
        return None
    return f"grad_bias is {bias.shape}; it must be ({made},), the channels that weight makes"


# Products that do not skip the checks of shapes come here with nothing but items 1 and 2 left open.
FIRST_EMPTY_CHECKS = (
    Check("27.1", "empty: bias_sizes", bias_sizes),
    Check("27.2", "empty: N or C of input", input_n_or_c),
)
EMPTY_CHECKS = (
    *FIRST_EMPTY_CHECKS,
    Check("27.3", "empty: lengths", lengths),
    Check("27.4", "empty: groups", groups),
    Check("27.5", "empty: channels", channels),
    Check("27.6", "empty: weight and sizes", weight_and_sizes),
)
# What page 000 says of every call, and the operator looks at in none that is empty.
RELATED_EMPTY_CHECKS = (
    Check("27.7", "empty: shape of grad_output", related),
    Check("27.8", "empty: bias_sizes of weight", bias_sizes_by_page),
    Check("27.9", "empty: stated limits", stated_limits),
    # A gradient is one of its tensor: it is as large, or as empty.
    Check("27.10", "empty: shapes of the outputs", output_shapes),
    Check("27.11", "empty: shape of grad_bias", grad_bias_shape),
    Check("31", "inner operators", inner_limits, INNER),
)
