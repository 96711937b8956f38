"""Checks 1 to 14 of aclnnConvolutionBackward, of each argument by itself, before shapes are compared."""

from __future__ import annotations

from functools import partial

from ascendsim.rules.checked import (
    EIGHT_BITS,
    NULL,
    Check,
    CheckedConvolution,
    contiguous_outputs,
    cube_math,
    listed,
    more_precise,
)
from ascendsim.rules.typed import GRADIENTS, INPUTS

ATTRIBUTES = ("stride", "padding", "dilation", "output_padding", "output_mask")


def null_inputs(c: CheckedConvolution) -> str | None:
    """Find a null pointer among the inputs; biasSizes counts where the rules say so, after weight."""
    # The operator itself looks at bias_sizes only in an empty call; the pages want it in every call.
    also = tuple(name for name in ("bias_sizes",) if name in c.rules.never_null)
    for name in (*INPUTS, *also, *ATTRIBUTES):
        if getattr(c.call, name) is None:
            return f"{name} is null; it must be given"
    return None


def mask_length(c: CheckedConvolution) -> str | None:
    """Find a mask that has not three values; the operator answers it as a null pointer."""
    if len(c.mask) == 3:
        return None
    return f"output_mask has {len(c.mask)} values; it needs three, for grad_input, grad_weight, grad_bias"


def null_outputs(c: CheckedConvolution) -> str | None:
    """Find a null output that is asked for, or that the rules want in any case."""
    for name, wanted in zip(GRADIENTS, c.mask, strict=True):
        if c.optional(name) is None and (wanted or name in c.rules.never_null):
            why = "output_mask asks for it" if wanted else "these rules want it whatever output_mask says"
            return f"{name} is null, but {why}"
    return None


def product(c: CheckedConvolution) -> str | None:
    """Find a product that is not supported at all."""
    if c.product in c.rules.products:
        return None
    return f"{c.product} does not support convolution backward; supported are {listed(c.rules.products)}"


def allowed_dtypes(c: CheckedConvolution) -> tuple[str, ...]:
    """Return the dtypes that tensors may have on this product."""
    # The operator of the 910_95 lists float8_e4m3fn, but not for transposed calls.
    special = c.rules.dtypes_transposed if c.call.transposed else {}
    return special.get(c.product, c.rules.dtypes[c.product])


def input_dtypes(c: CheckedConvolution) -> str | None:
    """Find an input whose dtype is not in the product's list."""
    return next((bad for name in INPUTS if (bad := _dtype_problem(c, name))), None)


def output_dtype(c: CheckedConvolution, name: str) -> str | None:
    """Find an output, asked for or not, whose dtype is not in the list or not that of its tensor."""
    tensor = c.optional(name)
    if tensor is None:
        return None
    if bad := _dtype_problem(c, name):
        return bad
    # Page 004 ties an output to two tensors, other pages to one, and 910B of the operator to none: it casts.
    sources = c.rules.output_dtypes[c.product].get(name, ())
    wanted = [c.tensor(source).dtype for source in sources]
    # The operator compares gradWeight with weight only where weight is wider than 8 bits.
    if not wanted or (name == "grad_weight" and wanted[0] in EIGHT_BITS):
        return None
    if tensor.dtype == more_precise(wanted):
        return None
    rule = " and ".join(f"{s} is {d}" for s, d in zip(sources, wanted, strict=True))
    what = f"the more precise, {more_precise(wanted)}" if len(set(wanted)) > 1 else "the same"
    return f"{name} is {tensor.dtype}, but {rule}; it must be {what}"


def _dtype_problem(c: CheckedConvolution, name: str) -> str | None:
    dtype, allowed = c.tensor(name).dtype, allowed_dtypes(c)
    if dtype in allowed:
        return None
    kind = "transposed " if c.call.transposed and c.product in c.rules.dtypes_transposed else ""
    return f"{name} is {dtype}; {kind}calls on {c.product} take {listed(allowed)}"


def eight_bits(c: CheckedConvolution) -> str | None:
    """Find 8-bit tensors where they are not allowed, or in company they may not have."""
    eight = {name: dtype for name, dtype in c.dtypes.items() if dtype in EIGHT_BITS}
    if not eight:
        return None
    rule = c.rules.eight_bit
    # The only 8-bit kernel that is shipped computes grad_input of a transposed convolution.
    fits = c.call.transposed and c.mask[0]
    if rule.needs_transposed_grad_input == "always" and not fits:
        return _needs_transposed(eight)
    # A hole of the operator: it looks at these dtypes only where both outputs are given.
    both = c.call.grad_input is not None and c.call.grad_weight is not None
    # It does not look at grad_bias here; check 30 does.
    seen = {name: dtype for name, dtype in eight.items() if name != "grad_bias"}
    if rule.needs_transposed_grad_input == "both outputs" and both and any(c.mask[:2]) and not fits and seen:
        return _needs_transposed(seen)
    if rule.uniform == "inputs" and set(eight) & set(INPUTS) and len(set(c.input_dtypes)) > 1:
        return f"grad_output, input and weight are {listed(c.input_dtypes)}; 8-bit inputs must be alike"
    if rule.uniform == "by gradient":
        return (_eight_for_grad_input(c) if c.mask[0] else None) or (
            _eight_for_grad_weight(c) if c.mask[1] else None
        )
    return None


def _needs_transposed(eight: dict[str, str]) -> str:
    name, dtype = next(iter(eight.items()))
    return f"{name} is {dtype}; 8-bit tensors need transposed and output_mask[0]"


def _eight_for_grad_input(c: CheckedConvolution) -> str | None:
    # The operator wants one 8-bit format throughout, grad_bias included.
    concerned = c.present(*INPUTS, "grad_input", "grad_bias")
    kinds = {tensor.dtype for _, tensor in concerned}
    if not kinds & set(EIGHT_BITS) or len(kinds) == 1:
        return None
    shown = listed(f"{name} {tensor.dtype}" for name, tensor in concerned)
    return f"grad_input of 8-bit tensors needs one dtype everywhere, got {shown}"


def _eight_for_grad_weight(c: CheckedConvolution) -> str | None:
    kinds = {name: t.dtype for name, t in c.present(*INPUTS, "grad_weight", "grad_bias")}
    eight = set(kinds.values()) & set(EIGHT_BITS)
    if not eight:
        return None
    # No kernel follows in any case: what is found here decides only between 161002 and 561103.
    if eight != {"hifloat8"}:
        return f"grad_weight cannot be had from {listed(sorted(eight - {'hifloat8'}))}"
    wanted = {name: "float32" if name == "grad_weight" else "hifloat8" for name in kinds}
    for name, dtype in kinds.items():
        if dtype != wanted[name]:
            return f"{name} is {dtype}; grad_weight of hifloat8 tensors needs {wanted[name]} there"
    if c.call.transposed and any(c.numbers("output_padding")):
        return f"output_padding is {c.numbers('output_padding')}; grad_weight of hifloat8 needs zeros"
    if c.call.groups != 1:
        return f"groups is {c.call.groups}; grad_weight of hifloat8 needs 1"
    return None


def formats(c: CheckedConvolution) -> str | None:
    """Find a storage format that does not fit the rank of its tensor, or a rank that no format fits."""
    for name, tensor in c.present(*INPUTS, "grad_input", "grad_weight"):
        allowed = c.rules.formats.get(tensor.rank)
        if allowed is None:
            ranks = listed(sorted(c.rules.formats))
            return f"{name} has rank {tensor.rank}; it must be one of {ranks}"
        if tensor.format not in allowed:
            return f"{name} of rank {tensor.rank} has format {tensor.format}; it must be {listed(allowed)}"
    return None


def equal_formats(c: CheckedConvolution) -> str | None:
    """Find tensors of different formats where the page wants equal ones."""
    # Only pages say so. The operator lets NCL and ND stand side by side, and reads ND of rank 3 as NCL.
    for group in c.rules.equal_formats:
        there = c.present(*group)
        if len({tensor.format for _, tensor in there}) > 1:
            shown = listed(f"{name} {tensor.format}" for name, tensor in there)
            return f"formats differ: {shown}; they must be equal"
    return None


def grad_bias_format(c: CheckedConvolution) -> str | None:
    """Find a gradBias that is not ND."""
    # The operator looks on three products, and not at transposed calls; pages want ND everywhere.
    rule, bias = c.rules.grad_bias_format, c.optional("grad_bias")
    applies = c.product in rule.products and (rule.transposed_too or not c.call.transposed)
    if bias is None or not applies or bias.format == "ND":
        return None
    return f"grad_bias has format {bias.format}; it must be ND"


def attribute_values(c: CheckedConvolution) -> str | None:
    """Find a stride or dilation below 1 or a padding below 0."""
    for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
        if min(c.numbers(name), default=least) < least:
            return f"{name} is {c.numbers(name)}; every value must be at least {least}"
    return None


def output_padding_values(c: CheckedConvolution) -> str | None:
    """Find an outputPadding out of its range; lengths are not known to agree yet."""
    rule, values, strides = c.rules.output_padding, c.numbers("output_padding"), c.numbers("stride")
    if not c.call.transposed and rule.zero_unless_transposed:
        if any(values):
            return f"output_padding is {values}; it must be zeros where the convolution is not transposed"
        return None
    if min(values, default=0) < 0:
        return f"output_padding is {values}; every value must be at least 0"
    # From the stride on, it would mean one more placement of the kernel; 1-D and 2-D are bound by pages
    # alone.
    bound = c.call.transposed and c.rank in rule.below_stride_ranks
    # Lengths are only checked at 20 and 21; the operator would read past the end of the shorter array.
    if bound and any(value >= stride for value, stride in zip(values, strides, strict=False)):
        return f"output_padding is {values}; every value must be below the stride, {strides}"
    return None


def groups(c: CheckedConvolution) -> str | None:
    """Find groups below 1."""
    return f"groups is {c.call.groups}; it must be at least 1" if c.call.groups < 1 else None


ARGUMENT_CHECKS = (
    Check("1", "null inputs", null_inputs, NULL),
    Check("2", "length of output_mask", mask_length, NULL),
    Check("3", "null outputs", null_outputs, NULL),
    Check("3a", "product", product),
    Check("4", "dtypes of the inputs", input_dtypes),
    Check("5", "dtype of grad_input", partial(output_dtype, name="grad_input")),
    Check("6", "dtype of grad_weight", partial(output_dtype, name="grad_weight")),
    Check("7", "dtype of grad_bias", partial(output_dtype, name="grad_bias")),
    Check("8", "8-bit tensors", eight_bits),
    Check("9", "formats", formats),
    Check("9a", "equal formats", equal_formats),
    Check("10", "format of grad_bias", grad_bias_format),
    Check("10a", "contiguous outputs", contiguous_outputs),
    Check("11", "stride, padding, dilation", attribute_values),
    Check("12", "output_padding", output_padding_values),
    Check("13", "groups", groups),
    Check("14", "cube_math_type", cube_math),
)
