"""A hypothesis strategy for whole calls: every dimension of the interface, small sizes."""

from hypothesis import assume
from hypothesis import strategies as st

from ascendsim.errors import ShapeError
from ascendsim.ops.problems.convolution import ConvProblem
from tests.helpers.operator_calls import LAYS, ApiCall, plain

FLOATS = ("float16", "bfloat16", "float32")
SPLIT_PRODUCTS = ("910B", "910_93", "910_95")
OLD_PRODUCTS = ("310P", "910")
MODELS = (
    None,
    "seq:RNE",
    "block:cube_k:RZ",
    "block-add:cube_k:RNE:RNE",
    "tree:8:adjacent:RNE",
    "align:cube_k:F24:RZ:acc",
    "exact:RNE",
    "exact-mmad:RNE",
)


@st.composite
def problems(draw, ranks=(1, 2, 3)):
    """Draw a convolution: dims, transposed, groups, stride, padding (2 and 4), dilation, output_padding."""
    rank = draw(st.sampled_from(ranks))
    transposed = draw(st.booleans())
    kernel, stride, dilation, padding = (
        draw(st.tuples(*[values] * rank))
        for values in (st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2))
    )
    sizes = draw(st.tuples(*[st.integers(1, 7 if rank < 3 else 4)] * rank))
    if rank == 2 and draw(st.booleans()):
        padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    spare = tuple(draw(st.integers(0, s - 1)) if transposed else 0 for s in stride)
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 5)))
    # depthwise and beyond: one channel a group on either side, or several on one of them
    small, big = (draw(st.sampled_from((1, 1, 2, 3, 17))) for _ in range(2))
    batch = draw(st.integers(1, 3))
    weight = (groups * small, big, *kernel)
    input_channels = groups * (small if transposed else big)
    try:
        return ConvProblem(
            (batch, input_channels, *sizes), weight, stride, padding, dilation, transposed, spare, groups
        )
    except ShapeError:
        assume(False)
        raise


@st.composite
def types(draw, product):
    """Draw the formats of the inputs, equal or mixed, and a cube_math_type that the pages support."""
    if product in OLD_PRODUCTS:
        names = draw(st.sampled_from((("float16",) * 3, ("float32",) * 3, ("float16", "float32", "float16"))))
        return names, draw(st.sampled_from((1, 2) if "float32" in names else (0, 1, 2, 3)))
    equal = st.sampled_from(FLOATS).map(lambda name: (name,) * 3)
    names = draw(st.one_of(equal, st.tuples(*[st.sampled_from(FLOATS)] * 3)))
    return names, draw(st.sampled_from((0, 1, 3) if set(names) == {"bfloat16"} else (0, 1, 2, 3)))


@st.composite
def eight_bit_types(draw):
    """Draw one of the 8-bit formats for all tensors: 910_95, rule set "hardware"."""
    name = draw(st.sampled_from(("hifloat8", "float8_e4m3fn", "float8_e5m2")))
    return (name,) * 3, 0


@st.composite
def calls(draw):
    """Draw a call that the documented rules (or, for 8 bits, the hardware) accept."""
    product = draw(st.sampled_from((*SPLIT_PRODUCTS, *OLD_PRODUCTS)))
    problem = draw(problems((1, 2) if product in OLD_PRODUCTS else (1, 2, 3)))
    eight_bit = product == "910_95" and draw(st.integers(0, 3)) == 0
    names, cube_math_type = draw(eight_bit_types() if eight_bit else types(product))
    # The pages tie grad_input to input and grad_bias to grad_output; grad_weight is free.
    weights = (*FLOATS, None) if product in SPLIT_PRODUCTS else ("float16", "float32", None)
    return ApiCall(
        problem,
        names,
        cube_math_type,
        product,
        draw(st.tuples(*[st.booleans()] * 3)),
        (None, None if eight_bit else draw(st.sampled_from(weights)), None),
        draw(st.tuples(*[st.sampled_from((plain, *LAYS))] * 3)),
        draw(st.sampled_from((None, True, False))),
        accumulation=draw(st.sampled_from(MODELS)),
        rules="hardware" if eight_bit else "documented",
        seed=draw(st.integers(0, 999)),
    )
