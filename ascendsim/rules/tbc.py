"""The checks of aclnnConvTbcBackward, in order; grad_output is what the vendor calls self."""

from __future__ import annotations

from ascendsim.rules.checked import (
    INNER,
    NULL,
    Check,
    CheckedTbc,
    contiguous_outputs,
    cube_math,
    inner_limits,
    listed,
    stated_limits,
)
from ascendsim.rules.typed import GRADIENTS

INPUTS = ("grad_output", "input", "weight", "bias")


def null_pointers(c: CheckedTbc) -> str | None:
    """Find a tensor that is not there."""
    for name in (*INPUTS, *GRADIENTS):
        if c.optional(name) is None:
            return f"{name} is null; it must be given"
    return None


def product(c: CheckedTbc) -> str | None:
    """Find a product that is not supported at all."""
    if c.product in c.rules.products:
        return None
    return f"{c.product} does not support conv_tbc backward; supported are {listed(c.rules.products)}"


def dtypes(c: CheckedTbc) -> str | None:
    """Find a tensor whose dtype is not in the product's list; bias has a list of its own."""
    for name in (*INPUTS, *GRADIENTS):
        # bias lends grad_bias its shape and dtype; no kernel reads its values, and the operator takes
        # bfloat16 everywhere.
        lists = c.rules.bias_dtypes if name == "bias" else c.rules.dtypes
        if c.tensor(name).dtype not in lists[c.product]:
            return f"{name} is {c.tensor(name).dtype}; {c.product} takes {listed(lists[c.product])}"
    return None


def equal_inputs(c: CheckedTbc) -> str | None:
    """Find inputs of different dtypes, where the page wants one."""
    kinds = [c.tensor(name).dtype for name in INPUTS]
    if not c.rules.equal_inputs or len(set(kinds)) == 1:
        return None
    return f"grad_output, input, weight and bias are {listed(kinds)}; they must be equal"


def formats(c: CheckedTbc) -> str | None:
    """Find a format that is not allowed."""
    for name in ("grad_output", "input", "weight", "grad_input", "grad_weight", "bias", "grad_bias"):
        allowed = c.rules.bias_formats if "bias" in name else c.rules.formats
        if c.tensor(name).format not in allowed:
            return f"{name} has format {c.tensor(name).format}; it must be {listed(allowed)}"
    return None


def empty_tensors(c: CheckedTbc) -> str | None:
    """Find an empty tensor where there may be none."""
    # Page 003 says both yes (parameter table) and no (note): a rule set has to choose.
    names = {"refused": INPUTS, "only beside grad_output": ("grad_output",), "allowed": ()}[c.rules.empty]
    for name in names:
        if c.tensor(name).is_empty:
            return f"{name} {c.tensor(name).shape} is empty; none of its extents may be 0"
    return None


def shapes(c: CheckedTbc) -> str | None:
    """Find ranks, channels, pad or outputs that do not fit each other."""
    for name, rank in (*((name, 3) for name in INPUTS[:3]), ("bias", 1)):
        if c.tensor(name).rank != rank:
            return f"{name} {c.tensor(name).shape} has rank {c.tensor(name).rank}; it must be {rank}"
    time, batch, channels = c.tensor("input").shape
    # Unlike other layouts, the taps come first and the output channels last.
    taps, taken, given = c.tensor("weight").shape
    if channels != taken:
        return f"input has {channels} channels, but weight.shape[1] is {taken}; they must be equal"
    if c.tensor("bias").shape != (given,):
        return f"bias is {c.tensor('bias').shape}, but weight.shape[2] is {given}; they must be equal"
    if c.call.pad < 0:
        return f"pad is {c.call.pad}; it must be at least 0"
    # Stride and dilation are 1: as many placements as the padded steps leave beside the kernel.
    steps = time + 2 * c.call.pad + 1 - taps
    if c.tensor("grad_output").shape != (steps, batch, given):
        return (
            f"grad_output is {c.tensor('grad_output').shape}, but input {time}, pad {c.call.pad} and kernel "
            f"{taps} give ({steps}, {batch}, {given})"
        )
    for name, like in zip(GRADIENTS, ("input", "weight", "bias"), strict=True):
        if c.tensor(name).shape != c.tensor(like).shape:
            return (
                f"{name} is {c.tensor(name).shape}, but {like} is {c.tensor(like).shape}; they must be equal"
            )
    return None


def output_dtypes(c: CheckedTbc) -> str | None:
    """Find an output that has not the dtype of its tensor, where the rules want that."""
    for name in GRADIENTS:
        for source in c.rules.output_dtypes[c.product].get(name, ()):
            if c.tensor(name).dtype != c.tensor(source).dtype:
                return (
                    f"{name} is {c.tensor(name).dtype}, but {source} is {c.tensor(source).dtype}; "
                    "they must be equal"
                )
    return None


TBC_CHECKS = (
    Check("1", "null pointers", null_pointers, NULL),
    Check("1a", "product", product),
    Check("2", "dtypes", dtypes),
    Check("2a", "equal dtypes", equal_inputs),
    Check("3", "formats", formats),
    Check("3a", "contiguous outputs", contiguous_outputs),
    Check("4", "empty tensors", empty_tensors),
    Check("5", "shapes", shapes),
    Check("5a", "stated limits", stated_limits),
    Check("6", "cube_math_type", cube_math),
    Check("7", "dtypes of the outputs", output_dtypes),
    Check("8", "inner operators", inner_limits, INNER),
)
