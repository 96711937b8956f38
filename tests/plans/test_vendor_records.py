"""Are the plans those that the vendor's unit tests expect, and do they fit on any layer?"""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem
from ascendsim.errors import CapacityError, ShapeError, UnsupportedError
from ascendsim.ops.tiling.vendor.layer import LayerSizes, Machine, align, rows_touched
from ascendsim.ops.tiling.vendor.operators import plan_of_layer
from ascendsim.profile import load_profile
from tests.helpers.outside_records import (
    GRADIENTS,
    PRODUCTS,
    agreement,
    expected,
    gated,
    layer_of,
    layouts_of,
    machine_of,
    problem_of,
    profile_of,
    records,
)
from tests.helpers.slow_tilings import chosen_plan, operators_plan

# --- Are the plans those that the vendor's unit tests expect? ------------------------------------------
# The outside data has two kinds of record: "unit_test", what the rules of the operators give, and
# "runtime_kb", tilings that were tuned by hand. Base block and used cores must be equal; how far other
# fields agree is counted.

FAMILIES = [("dX", "arch22"), ("dW", "arch22"), ("dX", "arch35"), ("dW", "arch35")]
ARCHS = {"arch22": "2201", "arch35": "3510"}
# No rule is known for grouped grad_input on arch22: the vendor's closed library tiles it.
CLOSED = {"group_depth_g320_k2", "group_depth_g320_k2_f32"}


def plan_of(record):
    deterministic = bool(record.get("deterministic"))
    dtype = record["dtype"].split("|")[0]
    return plan_of_layer(
        layer_of(record),
        machine_of(record),
        GRADIENTS[record["op"]],
        dtype,
        ARCHS[record["arch"]],
        deterministic=deterministic,
    )


@cache
def planned(data_dir, op, arch, kind="unit_test"):
    """Return (plan, record) of all successful records that some rule is known for."""
    return [
        (plan_of(record), record)
        for record in records(data_dir, op, arch, kind)
        if record["success"] and record["case"] not in CLOSED
    ]


@pytest.mark.parametrize(
    ("op", "arch", "count"),
    [("dX", "arch22", 9), ("dW", "arch22", 21), ("dX", "arch35", 42), ("dW", "arch35", 14)],
)
def test_base_blocks_and_cores_are_the_operators(data_dir, op, arch, count):
    found = planned(data_dir, op, arch)
    assert len(found) == count
    assert not {record["case"] for plan, record in found if gated(plan) != expected(record)}


def test_further_fields_agree(data_dir):
    # Fields beside the base block, of all records of an operator together: (equal, said by the record).
    found = {key: agreement(planned(data_dir, *key)) for key in FAMILIES}
    for key in FAMILIES:
        assert all(equal == said for equal, said in found[key].values()), (key, found[key])


AXES = {0: "", 1: "batch_depth", 2: "height"}
TAPS = {"all": "all", "C04": "c04", "one kh per pass": "kh", "one kh,kw per pass": "khkw"}


def test_the_last_round_of_grad_weight_is_cut_along_the_axis_that_records_say(data_dir):
    records = list(planned(data_dir, "dW", "arch35"))
    assert len(records) == 14
    for plan, record in records:
        assert plan.stream_axis == AXES[record["expected"]["streamkType"]], record["case"]


def test_templates_of_grad_input_are_those_that_records_say(data_dir):
    records = list(planned(data_dir, "dX", "arch35"))
    assert len(records) == 42
    for plan, record in records:
        key, said = record["tiling_key_fields"], record["expected"]
        assert plan.taps == TAPS[key["taps"]], record["case"]
        assert plan.kernel_split == (key["kernel_split"] or "").lower(), record["case"]
        assert (plan.group_merge > 1) == key["group_merge"], record["case"]
        assert (plan.strategy == "full_load") == bool(said["enableFullLoad"]), record["case"]
        single = (plan.al1_buffers, plan.bl1_buffers) == (1, 1)
        assert (plan.kernel_split == "hw" and single) == bool(said["kSCoutFullLoad"]), record["case"]


@pytest.mark.parametrize(("op", "arch"), FAMILIES)
def test_a_problem_is_the_layer_that_a_record_says(data_dir, op, arch):
    # A ConvProblem has one padding for both ends of depth, and one grad_output for its sizes.
    beyond = {
        "conv3d_dw_v2_dilation",  # pads 1 and 2 in depth
        "aclnnConvolutionBackward_3DDW_SplitW_001",  # pads 4 and 5 in depth
        "aclnnConvolutionBackward_3DDW_ShrinkBaseBlock",  # 3 channels of grad_output, of weight 1
    }
    seen = set()
    for _, record in planned(data_dir, op, arch):
        try:
            problem = problem_of(record)
        except ShapeError:
            seen.add(record["case"])
            continue
        hf32 = record["hf32"]
        layer = LayerSizes.of(problem, "hf32" if hf32 else record["dtype"], layouts=layouts_of(record))
        assert layer == layer_of(record), record["case"]
    assert seen == beyond & {record["case"] for _, record in planned(data_dir, op, arch)}


NESTS = {"dX": "dgrad", "dW": "wgrad"}
# The records whose kernels or rows are too large for plain nests, and the nests that run their plans.
LARGE = {
    "conv3d_dx_tiling_hk_wi_1": ("dgrad_passes", "kh"),
    "conv3d_dx_split_k_NCDHW_1": ("dgrad_passes", "kh"),
    "conv3d_dx_split_k_NDHWC_DHWCN_fp32": ("dgrad_passes", "khkw"),
    "aclnnConvolutionBackward_3DDW_StrideHMax": ("wgrad_taps", "khkw"),
    "aclnnConvolutionBackward_3DDW_StrideWMax": ("wgrad_taps", "khkw"),
    "aclnnConvolutionBackward_3DDW_StrideWMax_NDHWC": ("wgrad_taps", "khkw"),
    "aclnnConvolutionBackward_2DDW_SplitKernelOnKStartPtExceedLimit": ("wgrad_taps", "khkw"),
}


@pytest.mark.parametrize("op", GRADIENTS)
def test_a_call_follows_every_plan_of_910_95(data_dir, op):
    found, beyond = {}, 0
    for told, record in planned(data_dir, op, "arch35"):
        try:
            problem = problem_of(record)
        except ShapeError:
            beyond += 1
            continue
        more = {"hf32": record["hf32"], "layouts": layouts_of(record)}
        made = chosen_plan(problem, GRADIENTS[op], record["dtype"], profile_of(record), **more)
        assert (made.chosen_by, made.tiling.base_m) == ("product", told.base_m), record["case"]
        if made.tiling.tap_loop:
            found[record["case"]] = made.schedule, made.tiling.tap_loop
    # Two records of grad_weight are no convolutions of ours.
    assert beyond == (2 if op == "dW" else 0)
    assert found == {case: nest for case, nest in LARGE.items() if nest[0].startswith(NESTS[op])}


def test_strips_take_whole_rows_of_grad_output(data_dir):
    # Of the strips that are as wide as planned and of the last one the one that asks for more.
    asked = []
    for plan, record in planned(data_dir, "dW", "arch35"):
        width, strip = record["ncdhw"]["dy"][4], record["expected"]["splitWo"]
        if strip == width:
            continue
        pixels = plan.step_ka * plan.base_k
        widths = {min(strip, width), width % strip} - {0}
        most = max(align(rows_touched(pixels, columns) * columns) for columns in widths)
        asked.append((plan.base_m * most, record["expected"]["al1Bound"]))
    assert asked == [(15360, 15360), (512, 512)]


def test_a_tile_of_one_tap_has_a_pixel_of_input_for_each_of_grad_output(data_dir):
    told = [(plan, one) for plan, one in planned(data_dir, "dW", "arch35") if plan.taps == "khkw"]
    assert len(told) == 5
    for plan, record in told:
        width, channels = record["ncdhw"]["dy"][4], align(record["ncdhw"]["x"][1])
        pixels = rows_touched(plan.step_ka * plan.base_k, width) * width
        assert record["expected"]["bl1Bound"] == pixels * channels


def outcome(record):
    """Return why a record that the operator refuses is refused here, too: the error, or what it is beyond."""
    if record["soc"] == "8888":
        return "no such product"
    try:
        problem = problem_of(record)
    except ShapeError:
        return "no convolution"
    try:
        profile = profile_of(record)
        operators_plan(problem, GRADIENTS[record["op"]], record["dtype"], profile, hf32=record["hf32"])
    except (CapacityError, UnsupportedError) as refused:
        return type(refused).__name__
    return "planned"


def test_what_the_operator_refuses_is_refused(data_dir):
    refused = [record for key in FAMILIES for record in records(data_dir, *key) if not record["success"]]
    assert {record["case"]: outcome(record) for record in refused} == {
        # One expanded row of grad_output is 255 x 255 pixels: 2 MB of one C0 group.
        "Conv3d_bp_input_exceed_l1_size": "CapacityError",
        # A stride of 64, where load3d steps 63 at most.
        "Conv3d_bp_filter_no_support_dma_flag": "UnsupportedError",
        # 8 bits, which only grad_input takes.
        "conv_stdit_01_hifp8": "UnsupportedError",
        "conv3d_dx_22_soc_version_invalid": "no such product",
        # Sizes that contradict each other, empty tensors, a stride over batch or channels, negative padding.
        "Conv3d_bp_input_not_fit_conv_formula": "no convolution",
        "Conv3d_bp_input_strides_batch_invalid": "no convolution",
        "Conv3d_bp_input_strides_c_invalid": "no convolution",
        "test_group_upper_bound": "no convolution",
        "conv3d_dw_v2_w0": "no convolution",
        "conv3d_dx_filter_c_shape_zero_failed": "no convolution",
        "conv3d_dx_filter_channel_not_divisible_y_channel": "no convolution",
        "conv3d_dx_out_backprop_shape_dim_invalid": "no convolution",
        "aclnnConvolutionBackward_3DDW_CheckWoShapeErr": "no convolution",
    }


def test_grouped_grad_input_of_arch22_says_that_no_rule_is_known(data_dir):
    grouped = [record for record in records(data_dir, "dX", "arch22") if record["case"] in CLOSED]
    assert len(grouped) == 2
    for record in grouped:
        profile = load_profile(PRODUCTS["arch22"])
        with pytest.raises(UnsupportedError, match="closed library"):
            operators_plan(problem_of(record), "grad_input", record["dtype"], profile)


def test_how_many_tuned_tilings_the_rules_hit(data_dir):
    # No aim, a figure: hand-tuned tilings are what the rules do not give.
    hits = {
        key: sum(gated(plan) == expected(record) for plan, record in planned(data_dir, *key, "runtime_kb"))
        for key in (("dX", "arch35"), ("dW", "arch35"))
    }
    assert hits == {("dX", "arch35"): 2, ("dW", "arch35"): 0}


# -------------------------------------------------------------------------------------------------------
# Does a product's plan fit its buffers, and do its tasks make all of the result, whatever the layer?
# -------------------------------------------------------------------------------------------------------
# The needs are counted here from the shapes, element by element where that is possible, not by the
# planner's formulas.

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
    layer, machine = LayerSizes.of(problem, dtype), Machine.of(profile)
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
    layer, machine = LayerSizes.of(problem, dtype), Machine.of(profile)
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
