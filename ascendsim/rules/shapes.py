"""Checks 16 to 27 of aclnnConvolutionBackward: the fit of the shapes, and calls with an empty tensor."""

from __future__ import annotations

from ascendsim.rules.checked import (
    CUBE_MATH_TYPES,
    EIGHT_BITS,
    INNER,
    Check,
    CheckedConvolution,
    inner_limits,
    listed,
    stated_limits,
)
from ascendsim.rules.model import ABSENT


def ranks(c: CheckedConvolution) -> str | None:
    """Find tensors of different rank."""
    found = [c.tensor(name).rank for name in ("grad_output", "input", "weight")]
    if len(set(found)) == 1:
        return None
    return f"grad_output, input and weight have ranks {listed(found)}; they must be equal"


def empty_inputs(c: CheckedConvolution) -> str | None:
    """Find an empty grad_output or weight; what may be empty has been let through before."""
    # An empty input goes on: it has rules of its own at 27.
    for name in ("grad_output", "weight"):
        if c.tensor(name).is_empty:
            rule = f"{name} {c.tensor(name).shape} is empty; none of its extents may be 0"
            # On these products an empty input or weight has gone elsewhere: grad_output is empty alone.
            alone = c.product in c.rules.empty.products
            return f"{rule} unless input or weight is empty, too" if alone else rule
    return None


def output_shapes(c: CheckedConvolution) -> str | None:
    """Find a gradInput or gradWeight that is not shaped like its tensor, asked for or not."""
    for name, like in (("grad_input", "input"), ("grad_weight", "weight")):
        tensor = c.optional(name)
        # A buffer that is given is checked even if the mask does not ask for it.
        if tensor is not None and tensor.shape != c.tensor(like).shape:
            return f"{name} is {tensor.shape}, but {like} is {c.tensor(like).shape}; they must be equal"
    return None


def grad_bias_shape(c: CheckedConvolution) -> str | None:
    """Find a gradBias that is not one value for each channel of grad_output."""
    bias, channels = c.optional("grad_bias"), c.tensor("grad_output").shape[1]
    if bias is None or bias.shape == (channels,):
        return None
    return f"grad_bias is {bias.shape}; it must be ({channels},), the channels of grad_output"


def stride_and_dilation_lengths(c: CheckedConvolution) -> str | None:
    """Find a stride or dilation that has not one value for each spatial axis."""
    for name in ("stride", "dilation"):
        if bad := _length_problem(c, name, (c.rank - 2,)):
            return bad
    return None


def padding_lengths(c: CheckedConvolution) -> str | None:
    """Find a padding or outputPadding of a wrong length; 2-D padding may have one value for each side."""
    # Four pads are a 2-D speciality; 3-D with six is refused.
    two = c.rank == 4
    return _length_problem(c, "padding", (2, 4) if two else (c.rank - 2,)) or _length_problem(
        c, "output_padding", c.rules.output_padding.lengths_2d if two else (c.rank - 2,)
    )


def _length_problem(c: CheckedConvolution, name: str, lengths: tuple[int, ...]) -> str | None:
    values = c.numbers(name)
    if len(values) in lengths:
        return None
    return f"{name} has {len(values)} values {values}; rank {c.rank} needs {' or '.join(map(str, lengths))}"


def bias_sizes(c: CheckedConvolution) -> str | None:
    """Find biasSizes that do not say the channels of the bias, where the page wants them in any case."""
    # The operator never compares it outside empty calls: the vendor's own tests pass [1] for 2048 channels.
    if c.rules.bias_sizes != "always":
        return None
    weight, groups = c.tensor("weight"), c.call.groups
    wanted = weight.shape[1] * groups if c.call.transposed else weight.shape[0]
    rule = "weight.shape[1] * groups" if c.call.transposed else "weight.shape[0]"
    return bias_sizes_problem(c, wanted, rule)


def bias_sizes_problem(c: CheckedConvolution, wanted: int, rule: str) -> str | None:
    """Compare biasSizes with the number of channels they must say."""
    values = c.call.bias_sizes
    if values is not None and tuple(values) == (wanted,):
        return None
    return f"bias_sizes is {values}; it must be ({wanted},), that is {rule}"


def channels(c: CheckedConvolution) -> str | None:
    """Find channels that do not agree with weight and groups."""
    weight, groups = c.tensor("weight").shape, c.call.groups
    big, small = c.big.shape[1], c.small.shape[1]
    if small != weight[0]:
        return f"{c.small_name} has {small} channels, but weight.shape[0] is {weight[0]}; they must be equal"
    # groups follow from the channels, so this is their check as well.
    if weight[1] == 0 or big != weight[1] * groups:
        return (
            f"{c.big_name} has {big} channels, but weight.shape[1] * groups is {weight[1]} * {groups}; "
            "they must be equal"
        )
    return None


def groups_divide(c: CheckedConvolution) -> str | None:
    """Find groups that do not divide the channels of the small side."""
    rule = c.rules.groups_divide
    # Where the operator does not look, the inner operators do, and answer 561103 instead.
    if c.product not in rule.products or (rule.only_depthwise and c.big.shape[1] != c.call.groups):
        return None
    return indivisible(c)


def indivisible(c: CheckedConvolution) -> str | None:
    """Find groups that do not divide the channels of the small side, whatever the product."""
    small, groups = c.small.shape[1], c.call.groups
    # 0 channels divide by anything, but make no group.
    if small >= groups and small % groups == 0:
        return None
    return f"{c.small_name} has {small} channels, which {groups} groups do not divide"


def depthwise_3d(c: CheckedConvolution) -> str | None:
    """Find a grouped 3-D bfloat16 call that is not depthwise with one filter each (page 004)."""
    concerned = (
        c.product in c.rules.depthwise_3d_bfloat16
        and (c.rank, c.call.transposed, c.tensor("input").dtype) == (5, False, "bfloat16")
        and c.call.groups > 1
    )
    both = c.tensor("grad_output").shape[1], c.tensor("input").shape[1]
    if not concerned or both == (c.call.groups, c.call.groups):
        return None
    return (
        f"groups is {c.call.groups}, grad_output and input have {listed(both)} channels; "
        "3-D bfloat16 with groups needs all three equal"
    )


def relation(c: CheckedConvolution) -> str | None:
    """Find sizes that are not those of a convolution, for ranks where the rules look."""
    return unrelated(c) if c.rank in c.rules.related_ranks else None


def unrelated(c: CheckedConvolution) -> str | None:
    """Find a kernel larger than the padded big side, or a small side of a wrong size."""
    for axis, name in enumerate(c.axes):
        # Said apart, since a negative number of placements would explain nothing.
        if c.room(axis) < 0:
            return (
                f"along {name} the dilated kernel spans {c.span(axis)}, more than {c.big_name} with padding, "
                f"{c.room(axis) + c.span(axis)}"
            )
    for axis, name in enumerate(c.axes):
        got, want = c.small.shape[2 + axis], c.placements(axis)
        if got != want:
            return size_problem(c, axis, name, got, want)
    return None


def size_problem(c: CheckedConvolution, axis: int, name: str, got: int, want: int) -> str:
    """Give the size the small side must have along an axis, with the numbers of the rule."""
    before, after = c.pads(axis)
    return (
        f"{c.small_name} is {got} along {name}, but {c.big_name} {c.big.shape[2 + axis]}, padding "
        f"{before}+{after}, kernel {c.tensor('weight').shape[2 + axis]}, dilation "
        f"{c.numbers('dilation')[axis]}, stride {c.numbers('stride')[axis]} give {want}"
    )


def batch(c: CheckedConvolution) -> str | None:
    """Find different batches, where the rules compare them."""
    return unequal_batch(c) if c.rules.batch else None


def unequal_batch(c: CheckedConvolution) -> str | None:
    """Find different batches."""
    a, b = c.tensor("grad_output").shape[0], c.tensor("input").shape[0]
    return None if a == b else f"grad_output has batch {a}, input {b}; they must be equal"


SHAPE_CHECKS = (
    Check("16", "ranks", ranks),
    Check("17", "empty tensors", empty_inputs),
    Check("18", "shapes of the outputs", output_shapes),
    Check("19", "shape of grad_bias", grad_bias_shape),
    Check("20", "lengths of stride and dilation", stride_and_dilation_lengths),
    Check("21", "lengths of padding and output_padding", padding_lengths),
    Check("21a", "bias_sizes", bias_sizes),
    Check("22", "channels and groups", channels),
    Check("23", "groups divide", groups_divide),
    Check("23a", "3-D bfloat16 groups", depthwise_3d),
    Check("24", "relation of the sizes", relation),
    Check("24a", "batch", batch),
    Check("24b", "stated limits", stated_limits),
)


def three_dimensions(c: CheckedConvolution) -> str | None:
    """Find a 3-D call on a product that has none."""
    if c.rank != 5 or c.product in c.rules.products_3d:
        return None
    return f"input has rank 5, but {c.product} supports 1-D and 2-D only"


# 2-D calls lose the same precision silently; only 3-D ones are refused.
def squeezed_grad_weight(c: CheckedConvolution) -> str | None:
    """Find a grouped 3-D grad_weight in float32 that the operator would squeeze through float16."""
    grad_weight = c.optional("grad_weight")
    concerned = c.product in c.rules.squeezed_grad_weight and c.rank == 5 and c.mask[1] and c.call.groups > 1
    if not concerned or grad_weight is None or grad_weight.dtype != "float32":
        return None
    if c.cube_math_type != 2 and c.promoted_dtype == "float32":
        return None
    what = (
        f"cube_math_type 2 ({CUBE_MATH_TYPES[2]})" if c.cube_math_type == 2 else f"{c.promoted_dtype} inputs"
    )
    return f"grad_weight is float32 with {c.call.groups} groups in 3-D; {what} cannot give it"


def wide_grad_bias(c: CheckedConvolution) -> str | None:
    """Find an 8-bit grad_bias that is asked for."""
    bias = c.optional("grad_bias")
    if c.product not in c.rules.wide_grad_bias or not c.mask[2] or bias is None:
        return None
    return f"grad_bias is {bias.dtype}; no kernel sums into 8 bits" if bias.dtype in EIGHT_BITS else None


def inner_operators(c: CheckedConvolution) -> str | None:
    """Find what no inner operator computes: no convolution, no kernel for the dtypes, or above a limit."""
    # The operator leaves these to shape inference, whose failure it turns into 561103. The simulator asks
    # whatever the mask wants, since it has no kernel for shapes that are no convolution.
    return unrelated(c) or unequal_batch(c) or indivisible(c) or missing_kernel(c) or inner_limits(c)


def missing_kernel(c: CheckedConvolution) -> str | None:
    """Find dtypes for which the product has no kernel."""
    # Page 004 forgot to forbid what the cube of the 310P cannot do: that call is well formed and fails
    # inside.
    if c.compute_dtype == ABSENT:
        return (
            f"the cube of {c.product} computes {c.promoted_dtype} with no cube_math_type {c.cube_math_type}"
        )
    eight = sorted(set(c.input_dtypes) & set(EIGHT_BITS))
    if not eight or c.rules.eight_bit.kernels == "all":
        return None
    if c.mask[1]:
        # hifloat8 passes check 8 with a float32 grad_weight, but no kernel for it is registered.
        return f"no kernel computes grad_weight of {eight[0]}"
    if c.mask[0] and not (c.call.transposed and eight == ["hifloat8"]):
        how = "" if c.call.transposed else ", not transposed"
        return f"no kernel computes grad_input of {eight[0]}{how}"
    return None


INNER_CHECKS = (
    Check("28", "3-D", three_dimensions),
    Check("29", "grouped float32 grad_weight", squeezed_grad_weight),
    Check("30", "8-bit grad_bias", wide_grad_bias, INNER),
    Check("31", "inner operators", inner_operators, INNER),
)


def empty_bias_sizes(c: CheckedConvolution) -> str | None:
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
def empty_channels(c: CheckedConvolution) -> str | None:
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


def empty_grad_bias_shape(c: CheckedConvolution) -> str | None:
    """Say how grad_bias differs from one value for each channel that weight makes; None if it does not.

    The channels are those of weight, as an empty grad_output may have none.
    """
    bias, weight = c.optional("grad_bias"), c.tensor("weight").shape
    made = weight[1] * c.call.groups if c.call.transposed else weight[0]
    if bias is None or bias.shape == (made,):
        return None
    return f"grad_bias is {bias.shape}; it must be ({made},), the channels that weight makes"


# Products that do not skip the checks of shapes come here with nothing but items 1 and 2 left open.
FIRST_EMPTY_CHECKS = (
    Check("27.1", "empty: bias_sizes", empty_bias_sizes),
    Check("27.2", "empty: N or C of input", input_n_or_c),
)
EMPTY_CHECKS = (
    *FIRST_EMPTY_CHECKS,
    Check("27.3", "empty: lengths", lengths),
    Check("27.4", "empty: groups", groups),
    Check("27.5", "empty: channels", empty_channels),
    Check("27.6", "empty: weight and sizes", weight_and_sizes),
)
# What page 000 says of every call, and the operator looks at in none that is empty.
RELATED_EMPTY_CHECKS = (
    Check("27.7", "empty: shape of grad_output", related),
    Check("27.8", "empty: bias_sizes of weight", bias_sizes),
    Check("27.9", "empty: stated limits", stated_limits),
    # A gradient is one of its tensor: it is as large, or as empty.
    Check("27.10", "empty: shapes of the outputs", output_shapes),
    Check("27.11", "empty: shape of grad_bias", empty_grad_bias_shape),
    Check("31", "inner operators", inner_limits, INNER),
)
