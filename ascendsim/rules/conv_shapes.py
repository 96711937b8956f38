"""Checks 16 to 24 of aclnnConvolutionBackward: whether the shapes fit each other."""

from __future__ import annotations

from ascendsim.rules.limits import first_exceeded
from ascendsim.rules.order import INVALID, Check, listed
from ascendsim.rules.view import CheckedConvolution as Checked


def ranks(v: Checked) -> str | None:
    """Find tensors of different rank."""
    a, b, c = (v.tensor(name).rank for name in ("grad_output", "input", "weight"))
    return (
        None if a == b == c else f"grad_output, input and weight have ranks {a}, {b}, {c}; they must be equal"
    )


def empty_inputs(v: Checked) -> str | None:
    """Find an empty grad_output or weight; what may be empty has been let through before."""
    for name in ("grad_output", "weight"):
        if v.tensor(name).is_empty:
            return f"{name} {v.tensor(name).shape} is empty"
    return None


def output_shapes(v: Checked) -> str | None:
    """Find a gradInput or gradWeight that is not shaped like its tensor, asked for or not."""
    for name, like in (("grad_input", "input"), ("grad_weight", "weight")):
        tensor = v.optional(name)
        if tensor is not None and tensor.shape != v.tensor(like).shape:
            return f"{name} is {tensor.shape}, but {like} is {v.tensor(like).shape}; they must be equal"
    return None


def grad_bias_shape(v: Checked) -> str | None:
    """Find a gradBias that is not one value for each channel of grad_output."""
    bias, channels = v.optional("grad_bias"), v.tensor("grad_output").shape[1]
    if bias is None or bias.shape == (channels,):
        return None
    return f"grad_bias is {bias.shape}; it must be ({channels},), the channels of grad_output"


def stride_and_dilation_lengths(v: Checked) -> str | None:
    """Find a stride or dilation that has not one value for each spatial axis."""
    for name in ("stride", "dilation"):
        if bad := _length_problem(v, name, (v.rank - 2,)):
            return bad
    return None


def padding_lengths(v: Checked) -> str | None:
    """Find a padding or outputPadding of a wrong length; 2-D padding may have one value for each side."""
    two = v.rank == 4
    return _length_problem(v, "padding", (2, 4) if two else (v.rank - 2,)) or _length_problem(
        v, "output_padding", v.rules.output_padding.lengths_2d if two else (v.rank - 2,)
    )


def _length_problem(v: Checked, name: str, lengths: tuple[int, ...]) -> str | None:
    values = v.numbers(name)
    if len(values) in lengths:
        return None
    return f"{name} has {len(values)} values {values}; rank {v.rank} needs {' or '.join(map(str, lengths))}"


def bias_sizes(v: Checked) -> str | None:
    """Find biasSizes that do not say the channels of the bias, where the page wants them in any case."""
    if v.rules.bias_sizes != "always":
        return None
    weight, groups = v.tensor("weight"), v.call.groups
    wanted = weight.shape[1] * groups if v.call.transposed else weight.shape[0]
    rule = "weight.shape[1] * groups" if v.call.transposed else "weight.shape[0]"
    return bias_sizes_problem(v, wanted, rule)


def bias_sizes_problem(v: Checked, wanted: int, rule: str) -> str | None:
    """Compare biasSizes with the number of channels they must say."""
    values = v.call.bias_sizes
    if values is not None and tuple(values) == (wanted,):
        return None
    return f"bias_sizes is {values}; it must be ({wanted},), that is {rule}"


def channels(v: Checked) -> str | None:
    """Find channels that do not agree with weight and groups."""
    weight, groups = v.tensor("weight").shape, v.call.groups
    big, small = v.big.shape[1], v.small.shape[1]
    if small != weight[0]:
        return f"{v.small_name} has {small} channels, but weight.shape[0] is {weight[0]}; they must be equal"
    if weight[1] == 0 or big != weight[1] * groups:
        return (
            f"{v.big_name} has {big} channels, but weight.shape[1] * groups is {weight[1]} * {groups}; "
            "they must be equal"
        )
    return None


def groups_divide(v: Checked) -> str | None:
    """Find groups that do not divide the channels of the small side."""
    rule = v.rules.groups_divide
    if v.product not in rule.products or (rule.only_depthwise and v.big.shape[1] != v.call.groups):
        return None
    return indivisible(v)


def indivisible(v: Checked) -> str | None:
    """Find groups that do not divide the channels of the small side, whatever the product."""
    small, groups = v.small.shape[1], v.call.groups
    if small >= groups and small % groups == 0:
        return None
    return f"{v.small_name} has {small} channels, which {groups} groups do not divide"


def depthwise_3d(v: Checked) -> str | None:
    """Find a grouped 3-D bfloat16 call that is not depthwise with one filter each (page 004)."""
    concerned = (
        v.product in v.rules.depthwise_3d_bfloat16
        and (v.rank, v.call.transposed, v.tensor("input").dtype) == (5, False, "bfloat16")
        and v.call.groups > 1
    )
    both = v.tensor("grad_output").shape[1], v.tensor("input").shape[1]
    if not concerned or both == (v.call.groups, v.call.groups):
        return None
    return (
        f"groups is {v.call.groups}, grad_output and input have {listed(both)} channels; "
        "3-D bfloat16 with groups needs all three equal"
    )


def relation(v: Checked) -> str | None:
    """Find sizes that are not those of a convolution, for ranks where the rules look."""
    return unrelated(v) if v.rank in v.rules.related_ranks else None


def unrelated(v: Checked) -> str | None:
    """Find a kernel larger than the padded big side, or a small side of a wrong size."""
    for axis, name in enumerate(v.axes):
        if v.room(axis) < 0:
            return (
                f"along {name} the dilated kernel spans {v.span(axis)}, more than {v.big_name} with padding, "
                f"{v.room(axis) + v.span(axis)}"
            )
    for axis, name in enumerate(v.axes):
        got, want = v.small.shape[2 + axis], v.placements(axis)
        if got != want:
            before, after = v.pads(axis)
            return (
                f"{v.small_name} is {got} along {name}, but {v.big_name} {v.big.shape[2 + axis]}, padding "
                f"{before}+{after}, kernel {v.tensor('weight').shape[2 + axis]}, dilation "
                f"{v.numbers('dilation')[axis]}, stride {v.numbers('stride')[axis]} give {want}"
            )
    return None


def batch(v: Checked) -> str | None:
    """Find different batches, where the rules compare them."""
    return unequal_batch(v) if v.rules.batch else None


def unequal_batch(v: Checked) -> str | None:
    """Find different batches."""
    a, b = v.tensor("grad_output").shape[0], v.tensor("input").shape[0]
    return None if a == b else f"grad_output has batch {a}, input {b}; they must be equal"


def stated_limits(v: Checked) -> str | None:
    """Find a size or attribute above a limit that answers 161002."""
    return first_exceeded(v, INVALID)


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
