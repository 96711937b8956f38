"""The checks of aclnnConvTbcBackward, in order; grad_output is what the vendor calls self."""

from __future__ import annotations

from ascendsim.rules.cube_math import cube_math_problem, promote
from ascendsim.rules.limits import first_exceeded
from ascendsim.rules.order import INNER, INVALID, NULL, Check, listed
from ascendsim.rules.view import GRADIENTS
from ascendsim.rules.view import CheckedTbc as Checked

INPUTS = ("grad_output", "input", "weight", "bias")


def null_pointers(v: Checked) -> str | None:
    """Find a tensor that is not there."""
    for name in (*INPUTS, *GRADIENTS):
        if v.optional(name) is None:
            return f"{name} is null"
    return None


def product(v: Checked) -> str | None:
    """Find a product that is not supported at all."""
    if v.product in v.rules.products:
        return None
    return f"{v.product} does not support conv_tbc backward; supported are {listed(v.rules.products)}"


def dtypes(v: Checked) -> str | None:
    """Find a tensor whose dtype is not in the product's list; bias has a list of its own."""
    for name in (*INPUTS, *GRADIENTS):
        lists = v.rules.bias_dtypes if name == "bias" else v.rules.dtypes
        if v.tensor(name).dtype not in lists[v.product]:
            return f"{name} is {v.tensor(name).dtype}; {v.product} takes {listed(lists[v.product])}"
    return None


def equal_inputs(v: Checked) -> str | None:
    """Find inputs of different dtypes, where the page wants one."""
    kinds = [v.tensor(name).dtype for name in INPUTS]
    if not v.rules.equal_inputs or len(set(kinds)) == 1:
        return None
    return f"grad_output, input, weight and bias are {listed(kinds)}; they must be equal"


def formats(v: Checked) -> str | None:
    """Find a format that is not allowed."""
    for name in ("grad_output", "input", "weight", "grad_input", "grad_weight", "bias", "grad_bias"):
        allowed = v.rules.bias_formats if "bias" in name else v.rules.formats
        if v.tensor(name).format not in allowed:
            return f"{name} has format {v.tensor(name).format}; it must be {listed(allowed)}"
    return None


def empty_tensors(v: Checked) -> str | None:
    """Find an empty tensor where there may be none."""
    names = {"refused": INPUTS, "only beside grad_output": ("grad_output",), "allowed": ()}[v.rules.empty]
    for name in names:
        if v.tensor(name).is_empty:
            return f"{name} {v.tensor(name).shape} is empty"
    return None


def shapes(v: Checked) -> str | None:
    """Find ranks, channels, pad or outputs that do not fit each other."""
    for name, rank in (*((name, 3) for name in INPUTS[:3]), ("bias", 1)):
        if v.tensor(name).rank != rank:
            return f"{name} {v.tensor(name).shape} has rank {v.tensor(name).rank}; it must be {rank}"
    time, batch, channels = v.tensor("input").shape
    taps, taken, given = v.tensor("weight").shape
    if channels != taken:
        return f"input has {channels} channels, but weight.shape[1] is {taken}; they must be equal"
    if v.tensor("bias").shape != (given,):
        return f"bias is {v.tensor('bias').shape}, but weight.shape[2] is {given}; they must be equal"
    if v.call.pad < 0:
        return f"pad is {v.call.pad}; it must be at least 0"
    steps = time + 2 * v.call.pad + 1 - taps
    if v.tensor("grad_output").shape != (steps, batch, given):
        return (
            f"grad_output is {v.tensor('grad_output').shape}, but input {time}, pad {v.call.pad} and kernel "
            f"{taps} give ({steps}, {batch}, {given})"
        )
    for name, like in zip(GRADIENTS, ("input", "weight", "bias"), strict=True):
        if v.tensor(name).shape != v.tensor(like).shape:
            return (
                f"{name} is {v.tensor(name).shape}, but {like} is {v.tensor(like).shape}; they must be equal"
            )
    return None


def stated_limits(v: Checked) -> str | None:
    """Find a size above a limit that answers 161002."""
    return first_exceeded(v, INVALID)


def cube_math(v: Checked) -> str | None:
    """Find a cubeMathType that is not allowed for these inputs on this product."""
    table = v.rules.cube_math.get(v.product, {})
    return cube_math_problem(v.input_dtypes, promoted_dtype(v), v.cube_math_type, table)


def promoted_dtype(v: Checked) -> str:
    """Return the common dtype of self, input and weight."""
    return promote(v.input_dtypes, "float32")


def output_dtypes(v: Checked) -> str | None:
    """Find an output that has not the dtype of its tensor, where the rules want that."""
    for name in GRADIENTS:
        for source in v.rules.output_dtypes[v.product].get(name, ()):
            if v.tensor(name).dtype != v.tensor(source).dtype:
                return (
                    f"{name} is {v.tensor(name).dtype}, but {source} is {v.tensor(source).dtype}; "
                    "they must be equal"
                )
    return None


def inner_operators(v: Checked) -> str | None:
    """Find what the inner convolution refuses."""
    return first_exceeded(v, INNER)


TBC_CHECKS = (
    Check("1", "null pointers", null_pointers, NULL),
    Check("1a", "product", product),
    Check("2", "dtypes", dtypes),
    Check("2a", "equal dtypes", equal_inputs),
    Check("3", "formats", formats),
    Check("4", "empty tensors", empty_tensors),
    Check("5", "shapes", shapes),
    Check("5a", "stated limits", stated_limits),
    Check("6", "cube_math_type", cube_math),
    Check("7", "dtypes of the outputs", output_dtypes),
    Check("8", "inner operators", inner_operators, INNER),
)
