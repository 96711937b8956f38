"""Which product a case was measured on, and which kind a vector instruction is, by what sources call them."""

import re
from functools import cache

from ascendsim.profile import list_products

# What sources write instead of a variant's name, first match wins. The frequency of the A3 runs is told by
# their own counters: at 1800 MHz the cube would have been busy for less than its products take.
SPELLINGS = (
    (r"first-generation 910", "910B_old_1001"),
    (r"A3 \(910_93, 24 cores", "910_9391"),
    (r"950PR|950 \(dav-3510|A5/950|^950\b", "950PR_9589"),
    (r"910_95 / Ascend 950 table", "950PR_9589"),
    (r"A2/A3 \(24 AIC", "910B1"),
    (r"910B4-class", "910B4"),
    (r"910B3-class", "910B3"),
)
# Kinds of vector instructions; first match wins.
VECTOR_KINDS = (
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


@cache
def variant_of(chip: str) -> str | None:
    """Return the variant that a case ran on, None if the text names none of ours."""
    for pattern, variant in SPELLINGS:
        if re.search(pattern, chip):
            return variant
    known = [variant for product in list_products() for variant in product.variants]
    # The longest first: 910B4-1 is not a 910B4.
    for variant in sorted(known, key=len, reverse=True):
        bare = re.sub(r"^950(PR|DT)", "950(PR|DT)?", variant)
        if re.search(rf"(?<![0-9A-Za-z]){bare}(?![0-9A-Za-z])", chip.replace("Ascend", "")):
            return variant
    return None


def vector_kind(name: str) -> str:
    """Return the kind of a vector instruction, "binary" if it names three operands, else "unary"."""
    for pattern, kind in VECTOR_KINDS:
        if re.match(pattern, name):
            return kind
    return "binary" if name.count("_") >= 3 else "unary"
