"""Checks 16 to 24 of aclnnConvolutionBackward: the fit of the shapes."""

from __future__ import annotations

from ascendsim.rules.checked import CheckedConvolution
from ascendsim.rules.common import stated_limits
from ascendsim.rules.order import Check, listed


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
    """Say what the small side should be along an axis, with the numbers of the rule."""
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
