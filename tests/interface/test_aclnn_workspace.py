"""What does the first phase answer, and how much workspace does it ask for?"""

import resource
import time
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import Tiling
from ascendsim.aclnn import AclnnError, AclTensor
from ascendsim.aclnn.interface import LARGEST, planned_sizes
from ascendsim.errors import CapacityError
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.vendor import workspace
from ascendsim.ops.tiling.vendor.layer import LayerSizes, VendorPlan
from tests.helpers.calls import arguments_of, changed, conv, first_phase, tbc
from tests.helpers.slow_tilings import ARCH22, ARCH35

# --- What does the first phase answer, and how much workspace does it ask for? -------------------------

SMALL = conv((2, 3, 5, 6), (4, 3, 3, 3), groups=1)
SYSTEM = 16 * 2**20


def refusal(call, arguments=None, **options):
    """Return (status, number of the check) of a call that the first phase refuses."""
    with pytest.raises(AclnnError) as caught:
        first_phase(call, arguments, **options)
    return caught.value.status, caught.value.check.partition(" ")[0]


def beside(call, arguments=None, **options):
    """Return the bytes of the workspace beside the system's share."""
    return first_phase(call, arguments or arguments_of(call, arrays=False), **options)[0] - SYSTEM


def without_bias(call):
    return changed(call, {"output_mask": (True, True, False)})


# grad_output (2, 4, 5, 6), input (2, 3, 5, 6), weight (4, 3, 3, 3). Packed, channels fill groups of C0 = 8 in
# float32: 2 images of 30 pixels; 9 taps, 8 x 8 channels.
IMAGES, TAPS = 2 * 30 * 8 * 4, 9 * 8 * 8 * 4


def test_each_change_of_layout_counts():
    # grad_input: from grad_output and weight; grad_weight: from grad_output, which is there, and input.
    assert beside(changed(SMALL, {"output_mask": (True, False, False)})) == 2 * IMAGES + TAPS
    assert beside(changed(SMALL, {"output_mask": (False, True, False)})) == 2 * IMAGES + TAPS
    assert beside(without_bias(SMALL)) == 3 * IMAGES + 2 * TAPS


def test_the_sums_of_each_image_count():
    # Two images are added apart, four channels each, in float32.
    assert beside(changed(SMALL, {"output_mask": (False, False, True)})) == 2 * 4 * 4


def test_each_cast_of_an_input_counts():
    half = without_bias(changed(SMALL, {"cube_math_type": 2}))
    # In float16 C0 is 16: twice the channels of half the size. grad_weight is made in float32 all the same:
    # 16 rows of 9 x 16 columns. What grad_input is before its cast is float16, row after row.
    inputs = (2 * 4 * 30 + 2 * 3 * 30 + 4 * 3 * 9) * 2
    packed = 3 * (2 * 30 * 16 * 2) + 9 * 16 * 16 * 2 + 16 * 9 * 16 * 4
    assert beside(half) == inputs + packed + 2 * 3 * 30 * 2


def test_grad_weight_in_float32_counts_where_it_is_cast():
    call = without_bias(changed(SMALL, {f"{name}.dtype": "float16" for name in SMALL.tensors}))
    packed = 3 * (2 * 30 * 16 * 2) + 9 * 16 * 16 * 2 + 16 * 9 * 16 * 4
    assert beside(call) == packed + 4 * 3 * 9 * 4
    assert beside(changed(call, {"grad_weight.dtype": "float32"})) == packed


@pytest.mark.parametrize("mask", [(True, True, True), (False, False, False)])
def test_each_contiguous_copy_counts(mask):
    # The operator makes its inputs contiguous whatever is asked for.
    call = changed(SMALL, {"output_mask": mask})
    strided = changed(call, {"input.strides": (180, 60, 12, 2), "weight.strides": (1, 4, 36, 12)})
    given = arguments_of(call, arrays=False)
    for name in ("input", "weight"):
        about = getattr(strided, name)
        given[name] = AclTensor(about.shape, about.dtype, about.format, about.strides)
    assert beside(call, given) - beside(call) == (2 * 3 * 30 + 4 * 3 * 9) * 4


def test_each_permutation_of_conv_tbc_counts():
    # time 7, batch 2, 3 and 4 channels, 3 taps, pad 1: 7 steps out; a row of pixels for each image.
    call = tbc(time=7, batch=2, channels=3, taps=3, made=4, pad=1)
    in_rows = (7 * 2 * 4 + 7 * 2 * 3 + 3 * 3 * 4) * 4  # inputs permuted
    made = (7 * 2 * 3 + 3 * 3 * 4) * 4  # gradients, before they are permuted back
    packed = 3 * (2 * 7 * 8 * 4) + 2 * (3 * 8 * 8 * 4)
    assert beside(call) == in_rows + made + packed + 2 * 4 * 4  # and the sums of two images


def test_what_a_kernel_keeps_for_itself_counts():
    # Deterministic sums of grad_weight are kept apart on 910_95: every part of the split reduction is there.
    # Under a plan of our own search: what the operator's plans ask for is in test_aclnn_workspace.py.
    call = conv((4, 16, 40, 40), (16, 16, 3, 3), groups=1, dtype="float16", mask=(False, True, False))
    _, executor = first_phase(call, product="910_95", options={"tiling": "search"})
    (kernel,) = (k for k in executor.run(executor.workspace_size).kernels if k.name == "grad_weight")
    (parts,) = (t for t in kernel.kernel.tensors.values() if t.role == "workspace")
    assert parts.size_bytes == kernel.plan.tiling.k_split * 16 * 144 * 4 > 0
    # The cube reads and writes row after row: besides there is only grad_weight in float32 before its cast.
    assert executor.workspace_size == SYSTEM + parts.size_bytes + 16 * 144 * 4


def test_a_kernel_that_reads_rows_itself_needs_no_copy_of_them():
    # grad_output, input and weight are as the user has them, and grad_input is written as it is returned.
    call = conv((2, 12, 9, 10), (20, 12, 3, 3), groups=1, dtype="float16", mask=(True, False, False))
    assert beside(call, product="910_95") == 0
    # Cast before (float32 in float16), they are tensors of their own: 20 x 9 x 10, 20 x 12 x 9 numbers, and
    # grad_input, 12 x 9 x 10, until its cast.
    wide = conv((2, 12, 9, 10), (20, 12, 3, 3), groups=1, mask=(True, False, False))
    narrow = changed(wide, {"cube_math_type": 2})
    assert beside(narrow, product="910_95") == 2 * (2 * 20 * 9 * 10 + 20 * 12 * 9 + 2 * 12 * 9 * 10)


def test_zeros_to_which_cores_add_need_no_room_of_their_own():
    # 3-D on the 910B: MemSet clears the packed grad_weight itself, 3 x 32 x 9 x 16 numbers, which TransData
    # brings back to rows before the Cast; the operands are packed before.
    call = conv((1, 16, 4, 8, 8), (32, 16, 3, 3, 3), groups=1, dtype="float16", mask=(False, True, False))
    packed = 2 * (16 * 4 * 8 * 8 + 32 * 4 * 8 * 8)
    assert beside(call) == packed + 2 * (4 * 3 * 32 * 9 * 16)


def test_options_that_change_kernels_change_the_workspace():
    plan = {"grad_weight": Tiling(16, 16, 16, k_split=3, used_cores=3)}
    call = changed(SMALL, {"output_mask": (False, True, False)})
    atomic, apart = (
        beside(call, options={"tiling": plan, "deterministic": one_order}) for one_order in (False, True)
    )
    # Three parts; channels fill groups of C0 = 8.
    assert apart - atomic == 3 * 8 * 9 * 8 * 4


def test_nothing_asked_for_is_the_systems_share():
    assert beside(changed(SMALL, {"output_mask": (False, False, False)})) == 0
    assert beside(conv((0, 4, 6, 7), (6, 4, 3, 3), groups=1)) == 0


@pytest.mark.parametrize("call", [SMALL, tbc(), conv()], ids=["2d", "tbc", "3d"])
def test_shapes_alone_are_enough_for_the_first_phase(call):
    assert first_phase(call, arguments_of(call, arrays=False))[0] == first_phase(call)[0]


def test_checks_come_before_everything_else():
    assert refusal(changed(SMALL, {"stride": (0, 1)})) == (161002, "11")
    assert refusal(changed(SMALL, {"input": None})) == (161001, "1")
    assert refusal(changed(tbc(), {"pad": -1})) == (161002, "5")


@pytest.mark.parametrize("product", ["310B", "310", "Ascend310B1"])
def test_products_without_a_profile_are_answered_by_the_rules(product):
    assert refusal(SMALL, product=product) == (161002, "3a")
    assert refusal(tbc(), product=product) == (161002, "1a")


@pytest.mark.parametrize("product", ["no such", None, 7, "missing.toml", b"910B"])
def test_an_unknown_product_is_an_answer_too(product):
    assert refusal(SMALL, product=product) == (161002, "0")


@pytest.mark.parametrize("rules", ["no such", None, 7, "missing.toml", [1]])
def test_an_unknown_rule_set_is_an_answer_too(rules):
    assert refusal(SMALL, rules=rules) == (161002, "0")


def test_an_array_of_another_dtype():
    given = arguments_of(SMALL)
    given["weight"] = AclTensor(given["weight"].array.astype(np.float64), "float32", "NCHW")
    assert refusal(SMALL, given) == (161002, "0")
    given["weight"] = AclTensor(given["weight"].array, "float64", "NCHW")
    assert refusal(SMALL, given) == (161002, "4")  # it is what it says, and that is not supported


@pytest.mark.parametrize(
    ("strides", "fine"), [((90, 30, 6, 1), True), ((1, 1, 1, 1), False), ((90, 30, 6, 2), False)]
)
def test_strides_beside_an_array_must_be_its_own(strides, fine):
    given = arguments_of(SMALL)
    given["input"] = AclTensor(given["input"].array, "float32", "NCHW", strides)
    if fine:
        first_phase(SMALL, given)
    else:
        assert refusal(SMALL, given) == (161002, "0")


@pytest.mark.parametrize("strides", [(1,), "ab", 5, (None,) * 4])
def test_strides_that_are_none(strides):
    given = arguments_of(SMALL)
    given["input"] = AclTensor(given["input"].array, "float32", "NCHW", strides)
    assert refusal(SMALL, given) == (161002, "0")


def test_strides_of_one_element_axes_do_not_matter():
    call = conv((1, 3, 5, 6), (4, 3, 3, 3), groups=1)
    given = arguments_of(call)
    given["input"] = AclTensor(given["input"].array, "float32", "NCHW", (5, 30, 6, 1))
    first_phase(call, given)


@pytest.mark.parametrize("value", [np.ones((2, 3, 5, 6), np.float32), [1, 2], 5, "tensor"])
def test_an_input_that_is_no_acltensor(value):
    given = arguments_of(SMALL)
    given["input"] = value
    assert refusal(SMALL, given) == (161002, "0")


TOO_LARGE = [
    conv((1, 1, 2**31 - 2), (1, 1, 3), groups=1, dtype="float16"),  # one endless row
    conv((1, 1, 5 * 10**6, 1, 1), (1, 1, 1, 1, 1), groups=1, padding=0, dtype="float16"),  # slices
    conv((1, 1, 10**6, 1, 1), (1, 1, 10**5, 1, 1), groups=1, padding=0, dtype="float16"),  # depth pairs
    conv((2**62, 2, 2), (4, 1, 1), groups=2, padding=0, dtype="float16"),  # elements
    conv((1, 1, 1), (1, 1, 1), groups=1, padding=2**30, dtype="float16"),  # padding
    conv((1, 1, 1, 1, 1), (1, 1, 1, 1, 1), groups=1, padding=(2**20, 0, 0), dtype="float16"),  # in depth
    conv((1, 2**40, 1, 1), (16, 2**40, 1, 1), groups=1, padding=0, dtype="float16"),  # channels
    conv((1, 2**40, 1, 1), (2**40, 16, 1, 1), groups=1, padding=0, transposed=True, dtype="float16"),
    conv((1, 2**19, 1, 1), (2**19, 2**19, 1, 1), groups=1, padding=0, dtype="float16"),  # tiles
    conv((1, 2**19, 2**9, 2**9), (1, 2**19, 1, 1), groups=1, padding=0, dtype="float16"),  # of one image
    conv((1, 2**26, 1), (2**26, 32, 1), groups=2**21, padding=0, dtype="float16"),  # of groups
]
LARGE = [
    conv((2**32, 64, 7, 7), (64, 64, 3, 3), groups=1, dtype="float16"),  # bytes
    conv((2**31 - 2, 1, 1), (1, 1, 1), groups=1, padding=0, dtype="float16"),  # images
    conv((1, 2**27, 1, 1), (1, 2**27, 1, 1), groups=1, padding=0, dtype="float16"),  # channels
    conv((1, 16, 2000, 2000), (16, 16, 900, 900), groups=1, padding=0, dtype="float16"),  # taps
    conv((1, 2**21, 1), (2**21, 1, 1), groups=2**21, padding=0, dtype="float16"),  # groups
    conv((10**6, 1, 5, 5, 5), (1, 1, 5, 5, 5), groups=1, padding=0, dtype="float16"),  # images in depth
]


@pytest.mark.parametrize("call", LARGE, ids=lambda call: "x".join(map(str, call.input.shape)))
def test_a_large_call_of_small_images_is_planned_at_once(call):
    started = time.process_time()
    size, _ = first_phase(call, arguments_of(call, arrays=False), rules="hardware")
    assert size >= 16 * 2**20
    assert time.process_time() - started < 1


def test_the_first_phase_takes_no_longer_for_more_images():
    seconds = {}
    for batch in (10, 10**6):
        call = conv((batch, 16, 4, 4), (16, 16, 3, 3), groups=1, dtype="float16")
        first_phase(call, arguments_of(call, arrays=False))  # loads what it needs
        started = time.process_time()
        first_phase(call, arguments_of(call, arrays=False))
        seconds[batch] = time.process_time() - started
    assert seconds[10**6] < seconds[10] + 0.5  # to deal out a million images takes ten


AT_THE_LIMIT = {
    "a volume of 150,000 slices": conv(
        (1, 16, 150_000, 3, 3), (16, 16, 1, 3, 3), groups=1, padding=(0, 1, 1), dtype="float16"
    ),
    "a series of 2^24 steps": tbc(time=2**24, batch=1, channels=16, taps=3, made=16, dtype="float16"),
    "an image of 2^25 pixels": conv((1, 16, 2**13, 2**12), (16, 16, 3, 3), groups=1, dtype="float16"),
}


@pytest.mark.parametrize("call", AT_THE_LIMIT.values(), ids=AT_THE_LIMIT)
def test_the_largest_calls_that_are_planned_take_little(call):
    peak, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    first_phase(call, arguments_of(call, arrays=False))
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**20  # KiB


@pytest.mark.parametrize("product", ["910_95", "910B", "910"])
@pytest.mark.parametrize("rows", [1, 2**14])
def test_as_many_channels_as_are_planned_take_little_on_every_product(product, rows):
    # 2^28 columns of one row, or 2^22 columns of 2^14 rows, are 2^20 tiles, the most that are planned.
    columns = 2**28 // max(1, rows // 256)
    call = conv((1, columns, 1, 1), (rows, columns, 1, 1), groups=1, padding=0, dtype="float16")
    peak, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    first_phase(call, arguments_of(call, arrays=False), product=product)
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**20  # KiB


@pytest.mark.parametrize("call", TOO_LARGE, ids=lambda call: "x".join(map(str, call.input.shape)))
def test_a_call_too_large_to_plan_is_refused_at_once(call):
    started = time.monotonic()
    with pytest.raises(AclnnError, match="limit of the simulator") as caught:
        first_phase(call, arguments_of(call, arrays=False), rules="hardware")
    assert caught.value.status == 561103
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    "problem",
    [
        # ResNet-50's first layer at a batch of 2048, the widest depthwise layer of MobileNet at 256, a large
        # kernel over many channels, a long video
        ConvProblem((2048, 3, 224, 224), (64, 3, 7, 7), 2, 3),
        ConvProblem((256, 96, 112, 112), (96, 1, 3, 3), 1, 1, groups=96),
        ConvProblem((64, 384, 56, 56), (384, 1, 31, 31), 1, 15, groups=384),
        ConvProblem((1, 256, 120, 130, 130), (256, 256, 4, 4, 4)),
    ],
    ids=lambda problem: "x".join(map(str, problem.input)),
)
def test_real_layers_are_within_the_limits_of_planning(problem):
    for (what, most), value in zip(LARGEST.items(), planned_sizes(problem), strict=True):
        assert value <= most, what


def test_what_no_kernel_can_be_made_for_is_an_inner_failure():
    # 30 000 rows of stride 100 in one tap do not fit into L1 in any tile.
    call = conv((1, 16, 4, 4), (16, 16, 2, 2), groups=1, transposed=True, stride=10_000, padding=0)
    assert refusal(call, arguments_of(call, arrays=False), rules="hardware") == (561103, "31")


def test_a_tensor_shows_what_it_is():
    assert repr(AclTensor((1, 2), "FLOAT", "ND")) == "AclTensor((1, 2), 'FLOAT', 'ND', strides=None)"
    assert repr(AclTensor(None, None)) == "AclTensor(None, None, None, strides=None)"


@pytest.mark.parametrize(
    ("raised", "says"),
    [(MemoryError(), "its kernels do not fit into memory"), (CapacityError("no tile fits"), "no tile fits")],
)
@pytest.mark.parametrize(("call", "check"), [(SMALL, "31 (inner operators)"), (tbc(), "8 (inner operators)")])
def test_a_call_that_cannot_be_lowered_is_an_inner_failure(monkeypatch, call, check, raised, says):
    def fail(*_):
        raise raised

    monkeypatch.setattr("ascendsim.ops.lowering.kernels.lower", fail)
    monkeypatch.setattr("ascendsim.ops.convolution_backward.append_gradients", fail)
    with pytest.raises(AclnnError) as caught:
        first_phase(call, arguments_of(call, arrays=False))
    assert (caught.value.status, caught.value.check) == (561103, check)
    assert says in str(caught.value)


# -------------------------------------------------------------------------------------------------------
# How much workspace do the operators of 910B and 910_95 ask for, beside the tensors between kernels?
# -------------------------------------------------------------------------------------------------------
# 910B2: 24 cores with 128 KiB of L0C each; 950PR_9589: 32 cores with 256 KiB.

INPUT, WEIGHT = (True, False, False), (False, True, False)


def beside_formulas(input, weight, mask, product, dtype="float16", stride=1, **options):
    """Return the workspace of one gradient, padded by 1, without what the runtime takes."""
    call = conv(input, weight, stride, groups=1, dtype=dtype, mask=mask)
    return first_phase(call, arguments_of(call, arrays=False), product=product, **options)[0] - SYSTEM


def layer(input, weight, stride=1, padding=1, dtype="float16"):
    return LayerSizes.of(ConvProblem(input, weight, stride, padding), dtype)


# --- grad_input of the 910B


def test_rows_of_ncdhw_want_a_tile_of_l0c_for_every_core():
    # Two planes are packed: grad_output, 3 x 74 x 75 pixels of 16 channels, and 27 taps of 16 x 16.
    packed = 2 * 3 * 74 * 75 * 16 + 2 * 27 * 16 * 16
    found = beside_formulas((1, 16, 3, 74, 75), (16, 16, 3, 3, 3), INPUT, "910B2")
    assert found == packed + 24 * 131072


def test_an_output_in_groups_of_channels_wants_none():
    # float32 is unpacked by another kernel: grad_output, weight and grad_input, packed (C0 = 8), no more.
    images, taps = 4 * 3 * 9 * 8 * 8, 4 * 27 * 8 * 8
    assert beside_formulas((1, 8, 3, 9, 8), (8, 8, 3, 3, 3), INPUT, "910B2", "float32") == 2 * images + taps


def test_the_older_kernel_is_not_known_to_want_any():
    # 9 x 8 pixels: Conv3DBackpropInput. 20 and 24 channels fill two groups of 16.
    found = beside_formulas((1, 20, 3, 9, 8), (24, 20, 3, 3, 3), INPUT, "910B2")
    assert found == 2 * 3 * 9 * 8 * 32 + 2 * 27 * 32 * 32


# --- grad_input of the 910_95


def test_weights_that_are_turned_first_lie_there_as_a_whole():
    # 24 x 27 taps x 20 channels, filled to 32, of 2 bytes.
    turned = layer((1, 20, 3, 9, 8), (24, 20, 3, 3, 3))
    plan = VendorPlan("inner_product", 16, 16, 16, transpose_first=True)
    expected = 24 * 27 * 32 * 2
    assert workspace.turned_weights(turned) == expected
    assert workspace.operator_workspace(plan, turned, ARCH35, "grad_input", "3510") == expected


def test_phases_of_a_split_kernel_are_interleaved_there_for_every_core():
    # Stride 2, input 40 x 40: phases of 20 x 20, tiles of 10 rows of 20 (32 of them kept) and 32 channels;
    # 4 phases of 2 bytes on 32 cores.
    assert (
        beside_formulas((2, 32, 40, 40), (32, 32, 3, 3), INPUT, "910_95", stride=2)
        == 32 * 4 * 10 * 32 * 32 * 2
    )


def test_phases_that_ub_holds_want_none():
    # Input 64 x 64: phases of 32 x 32, whose rows are whole fractals.
    assert beside_formulas((2, 32, 64, 64), (32, 32, 4, 4), INPUT, "910_95", stride=2) == 0


def test_sums_of_a_reduction_in_segments_are_those_of_an_image_for_each_core_that_works():
    # 32784 channels are cut in two. 8 x 8 pixels are one task: 32 channels x 64 pixels of float32.
    assert beside_formulas((1, 32, 8, 8), (32784, 32, 1, 1), INPUT, "910_95") == 1 * 32 * 64 * 4


def test_sums_of_float32_are_added_in_the_result():
    plan = VendorPlan("inner_product", 64, 32, 240, k_segment=3632)
    wide = layer((1, 32, 8, 8), (4096, 32, 3, 3), dtype="float32")
    assert workspace.operator_workspace(plan, wide, ARCH35, "grad_input", "3510") == 0


# --- grad_weight of the 910B


def test_deterministic_parts_are_those_of_a_task_for_each_core_that_works():
    # 3 tasks (kernel depths) of 16 x 144 in 8 parts: 24 cores. Beside them, packed: both operands, and
    # grad_weight in float32 twice: in groups of channels, and row after row before its cast.
    packed = 2 * (2 * 3 * 74 * 75 * 16) + 2 * 4 * (3 * 16 * 144)
    fixed = {"deterministic": True}
    found = beside_formulas((1, 16, 3, 74, 75), (16, 16, 3, 3, 3), WEIGHT, "910B2", options=fixed)
    assert found == packed + 24 * 16 * 144 * 4


def test_deterministic_base_blocks_lie_there_twice_for_every_core():
    # Two blocks of 128 x 256 in float32 for each of 24 cores.
    plan = VendorPlan("library", 128, 256, 64)
    flat = layer((1, 16, 8, 8), (16, 16, 3, 3))
    found = workspace.operator_workspace(plan, flat, ARCH22, "grad_weight", "2201", deterministic=True)
    assert found == 2 * 4 * 128 * 256 * 24


def test_parts_that_are_added_as_they_arrive_want_none():
    plan = VendorPlan("library", 128, 256, 64)
    flat = layer((1, 16, 8, 8), (16, 16, 3, 3))
    assert workspace.operator_workspace(plan, flat, ARCH22, "grad_weight", "2201") == 0


# --- grad_weight of the 910_95


def test_stream_k_wants_two_tiles_of_l0c_for_every_core():
    # Beside them: grad_weight in float32 before its cast.
    found = beside_formulas((4, 16, 40, 40), (16, 16, 3, 3), WEIGHT, "910_95")
    assert found == 2 * 32 * 262144 + 16 * 144 * 4


def test_a_last_round_that_is_full_wants_none():
    plan = VendorPlan("stream_k", 128, 144, 64, used_cores=32, tasks=64)
    flat = layer((1, 16, 8, 8), (16, 16, 3, 3))
    assert workspace.operator_workspace(plan, flat, ARCH35, "grad_weight", "3510") == 0


def test_winograd_wants_one_operand_transformed_both_in_groups_and_a_block_for_every_core():
    # float32, 256 and 128 channels, 16 x 20 pixels. Tiles of 2 x 2: 8 x 10 of them, in clusters of 4 x 8
    # (2 x 2 clusters) or 2 x 16 (4 x 1): 4. Each has 32 tiles at 16 points, of 256 channels and 3 images.
    wide = layer((3, 128, 16, 20), (256, 128, 3, 3), dtype="float32")
    transformed = 3 * (256 * 4) * (16 * 32) * 4
    relaid = 3 * 16 * 20 * (128 + 256) * 4
    assert workspace.winograd_workspace(wide, ARCH35) == transformed + relaid + 64 * 64 * 9 * 4 * 32


# --- which kernels


def test_a_tiling_of_the_users_own_counts_what_its_kernel_keeps():
    # Two parts of 16 x 144, of float32, and no tile of L0C.
    own = {"grad_weight": Tiling(16, 144, 16, k_split=2, used_cores=2)}
    options = {"tiling": own, "deterministic": True}
    found = beside_formulas((4, 16, 40, 40), (16, 16, 3, 3), WEIGHT, "910_95", options=options)
    assert found == 2 * 16 * 144 * 4 + 16 * 144 * 4


def test_a_plan_with_several_steps_asks_for_all_of_them():
    plan = VendorPlan("kernel_split", 208, 32, 64, single_core_m=200, through_gm=True)
    stepped = layer((2, 32, 40, 40), (32, 32, 3, 3), stride=2)
    both = replace(plan, transpose_first=True)
    found = [workspace.operator_workspace(p, stepped, ARCH35, "grad_input", "3510") for p in (plan, both)]
    assert found[1] - found[0] == 32 * 9 * 32 * 2
