"""Does a product's plan fit its buffers, and do its tasks make all of the result, whatever the layer?

The needs are counted here from the shapes, element by element where that is possible, not by the planner's
formulas.
"""

from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem
from ascendsim.errors import CapacityError, ShapeError, UnsupportedError
from ascendsim.ops.tiling.vendor.layer import Layer, Machine
from ascendsim.profile import load_profile
from tests.helpers.requests import operators_plan

SIZES = st.sampled_from([1, 3, 8, 14, 16, 31, 56, 66])
CHANNELS = st.sampled_from([1, 3, 16, 24, 64, 130, 512])


@st.composite
def problems(draw):
    """Draw convolutions of one to three taps along each axis, with strides, padding, gaps and depth."""
    depth = draw(st.sampled_from([1, 1, 3]))
    kernel = (
        draw(st.sampled_from([1, 2])) if depth > 1 else 1,
        *draw(st.tuples(*[st.sampled_from([1, 2, 3, 4])] * 2)),
    )
    stride = (1, *draw(st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 2)))
    dilation = (1, *draw(st.tuples(*[st.sampled_from([1, 1, 2])] * 2)))
    padding = (0, *(draw(st.integers(0, k // 2)) for k in kernel[1:]))
    shape = (draw(st.sampled_from([1, 2, 5])), draw(CHANNELS), depth, draw(SIZES), draw(SIZES))
    try:
        return ConvProblem(shape, (draw(CHANNELS), shape[1], *kernel), stride, padding, dilation)
    except ShapeError:
        return ConvProblem((1, 16, 1, 8, 8), (16, 16, 1, 1, 1))


# Products of both generations, with fewer cores and smaller buffers: (variant, cores, L1, L0C).
CHANGED = [
    ("910B2", 24, 524288, 131072),
    ("910B2", 5, 262144, 131072),
    ("910B3", 20, 524032, 65536),
    ("910B3", 1, 524288, 262144),
    ("950PR_9599", 32, 524288, 262144),
    ("950PR_9599", 12, 262144, 262144),
    ("950PR_9599", 36, 524288, 131072),
]


@cache
def changed(name, cores, l1, l0c):
    """Return a product with so many cores and bytes."""
    sizes = {"buffers.L1.capacity_bytes": l1, "buffers.L0C.capacity_bytes": l0c}
    return load_profile(name, {"cores.cube": cores, **sizes})


def plan_or_none(problem, gradient, profile, dtype, **more):
    """Return the plan, or None where the operator takes no such layer."""
    try:
        return operators_plan(problem, gradient, dtype, profile, **more)
    except (CapacityError, UnsupportedError):
        return None


def image_rows(layer, first, pixels):
    """Return the rows of the expanded grad_output that a run of pixels of grad_input reads under all taps."""
    width, reach = layer.input[2], layer.spans[1] - 1
    # Row y of grad_input reads rows y - reach + pad ... y + pad, as far as there are any.
    top, bottom = first // width, (first + pixels - 1) // width
    low = max(top + layer.pads[1][0] - reach, 0)
    high = min(bottom + layer.pads[1][0], (layer.output[1] - 1) * layer.stride[1])
    return max(0, high - low + 1)


def window_rows(layer, first, pixels):
    """Return the rows of input that a run of pixels of grad_output reads under all taps."""
    width = layer.output[2]
    top, bottom = first // width, (first + pixels - 1) // width
    low = max(top * layer.stride[1] - layer.pads[1][0], 0)
    high = min(bottom * layer.stride[1] - layer.pads[1][0] + layer.spans[1], layer.input[1])
    return max(0, high - low)


def require_l0(plan, machine, itemsize):
    """Check that both copies of a tile fit in L0A, L0B and L0C."""
    assert 2 * plan.base_m * plan.base_k * itemsize <= machine.l0a
    assert 2 * plan.base_n * plan.base_k * itemsize <= machine.l0b
    assert plan.cl0_buffers * plan.base_m * plan.base_n * 4 <= machine.l0c
    assert plan.base_m % 16 == plan.base_n % 16 == 0
    assert 1 <= plan.used_cores <= machine.cores
    # Cores beyond the tasks turn weights, or add parts.
    beyond = plan.transpose_first or plan.strategy == "stream_k"
    assert plan.used_cores <= plan.tasks * plan.stream_ways or beyond


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(CHANGED), st.sampled_from(["float16", "bfloat16", "float32"]))
# 256 pixels beside 144 channels are 144 KiB of sums, of which this L0C holds 128.
@example(
    ConvProblem((1, 130, 1, 31, 31), (1, 130, 1, 2, 2), (1, 2, 2)),
    ("950PR_9599", 36, 524288, 131072),
    "float16",
)
def test_grad_input_fits(problem, product, dtype):
    profile = changed(*product)
    plan = plan_or_none(problem, "grad_input", profile, dtype)
    if plan is None:
        return
    layer, machine = Layer.of(problem, dtype), Machine.of(profile)
    require_l0(plan, machine, layer.itemsize)
    if plan.kernel_split or plan.taps != "all":
        return  # their tiles hold another image than the layer's own
    window = layer.taps * layer.c0
    left = -(-plan.step_ka * plan.base_k // window) * layer.c0 * layer.output[2] * layer.stride[2]
    starts = range(0, layer.in_pixels, plan.base_m)
    rows = max(image_rows(layer, first, min(plan.base_m, layer.in_pixels - first)) for first in starts)
    right = -(-plan.step_kb * plan.base_k // window) * window * plan.base_n
    elements = plan.al1_buffers * left * rows + plan.bl1_buffers * right
    assert elements * layer.itemsize <= machine.l1


@settings(max_examples=150, deadline=None)
@given(
    problems(), st.sampled_from(CHANGED), st.sampled_from(["float16", "bfloat16", "float32"]), st.booleans()
)
# 5 cores have 12 rows of 55 pixels each, 660 of the 672 that 14 slices of 48 would hold.
@example(ConvProblem((1, 64, 1, 56, 56), (24, 64, 1, 1, 2)), ("910B2", 5, 262144, 131072), "float32", False)
def test_grad_weight_fits(problem, product, dtype, deterministic):
    profile = changed(*product)
    plan = plan_or_none(problem, "grad_weight", profile, dtype, deterministic=deterministic)
    if plan is None:
        return
    layer, machine = Layer.of(problem, dtype), Machine.of(profile)
    require_l0(plan, machine, layer.itemsize)
    if plan.strip_w or plan.taps != "all":
        return  # their tiles hold a part of each row
    left_k, right_k = plan.step_ka * plan.base_k, plan.step_kb * plan.base_k
    # A core of a grid goes through whole rows of its own, other plans through all pixels.
    share = plan.single_core_k if plan.mapping == "grid" else layer.out_pixels
    runs = [
        (first, min(right_k, begin + share - first, layer.out_pixels - first))
        for begin in range(0, layer.out_pixels, share)
        for first in range(begin, min(begin + share, layer.out_pixels), right_k)
    ]
    rows = max(window_rows(layer, first, pixels) for first, pixels in runs)
    window = layer.taps * layer.c0
    # A run of columns touches the channel groups from that of its first to that of its last. Runs begin anew
    # with each task, whose columns are whole windows.
    of_task = plan.single_core_n or layer.ci1 * window
    groups = max(
        (min(first + plan.base_n, of_task) - 1) // window - first // window + 1
        for first in range(0, of_task, plan.base_n)
    )
    left = left_k * plan.base_m
    right = rows * layer.input[2] * min(groups, layer.ci1) * layer.c0
    assert (plan.al1_buffers * left + plan.bl1_buffers * right) * layer.itemsize <= machine.l1
