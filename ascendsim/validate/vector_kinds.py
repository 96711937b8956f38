"""Which kind of vector instruction a name such as `VADD_FP16_FP16_FP16` is."""

from __future__ import annotations

import re

# First match wins; what matches none is "binary" if it names three operands, else "unary".
_KINDS = (
    (r"VDIV_FP16", "divide_16bit"),
    (r"VDIV", "divide"),
    (r"V(EXP|LN|SQRT)_FP16", "exp"),
    (r"V(EXP|LN|SQRT)", "exp_32bit"),
    (r"VMLA_FP16_FP16_FP32", "multiply_add_widening"),
    (r"V(MLA|MADD)", "multiply_add"),
    (r"VSH[LR]", "shift"),
    (r"V(ADDS|MAXS|MINS)_U?INT", "scalar_integer"),
    (r"VCADD_FP16", "reduce_add_16bit"),
    (r"VCADD", "reduce_add_32bit"),
    (r"VCG\w+_FP16", "reduce_group_16bit"),
    (r"VCG", "reduce_group_32bit"),
    (r"VC(MAX|MIN)", "reduce_extreme"),
    (r"VCMPVS", "compare_scalar_to_mask"),
    (r"VCMPV", "compare_to_mask"),
    (r"VMRGSORT", "sort"),
    (r"VGATHERB", "gather_block"),
    (r"VGATHER_U?(INT|FP)16", "gather_16bit"),
    (r"VGATHER", "gather_32bit"),
    (r"VREDUCEV2", "filter"),
    (r"VREDUCE_|VCMP_", "binary"),
    (r"VCONVVDEQ", "dequantise"),
    (r"V(ADDS|MULS|MAXS|MINS|LRELU)_", "unary"),
    (r"V(ADD|SUB|MUL)\w*CONV", "binary"),
    (r"VCONV", "cast"),
    (r"VTRANS|VNCHWCONV", "transpose"),
)


def vector_kind(name: str) -> str:
    """Return the kind of a vector instruction, one of the keys of `vector.repeat_cycles`."""
    for pattern, kind in _KINDS:
        if re.match(pattern, name):
            return kind
    return "binary" if name.count("_") >= 3 else "unary"
