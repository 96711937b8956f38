"""How much workspace do the operators of 910B and 910_95 ask for, beside the tensors between kernels?

910B2: 24 cores with 128 KiB of L0C each; 950PR_9589: 32 cores with 256 KiB.
"""

from dataclasses import replace

from ascendsim import Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.vendor import operators as workspace
from ascendsim.ops.tiling.vendor.layer import Layer, VendorPlan
from tests.helpers.aclnn_calls import arguments_of, first_phase
from tests.helpers.rules_calls import conv
from tests.helpers.vendor_layers import ARCH22, ARCH35

SYSTEM = 16 * 2**20
INPUT, WEIGHT = (True, False, False), (False, True, False)


def beside(input, weight, mask, product, dtype="float16", stride=1, **options):
    """Return the workspace of one gradient, padded by 1, without what the runtime takes."""
    call = conv(input, weight, stride, groups=1, dtype=dtype, mask=mask)
    return first_phase(call, arguments_of(call, arrays=False), product=product, **options)[0] - SYSTEM


def layer(input, weight, stride=1, padding=1, dtype="float16"):
    return Layer.of(ConvProblem(input, weight, stride, padding), dtype)


# --- grad_input of the 910B


def test_rows_of_ncdhw_want_a_tile_of_l0c_for_every_core():
    # Two planes are packed: grad_output, 3 x 74 x 75 pixels of 16 channels, and 27 taps of 16 x 16.
    packed = 2 * 3 * 74 * 75 * 16 + 2 * 27 * 16 * 16
    found = beside((1, 16, 3, 74, 75), (16, 16, 3, 3, 3), INPUT, "910B2")
    assert found == packed + 24 * 131072


def test_an_output_in_groups_of_channels_wants_none():
    # float32 is unpacked by another kernel: grad_output, weight and grad_input, packed (C0 = 8), no more.
    images, taps = 4 * 3 * 9 * 8 * 8, 4 * 27 * 8 * 8
    assert beside((1, 8, 3, 9, 8), (8, 8, 3, 3, 3), INPUT, "910B2", "float32") == 2 * images + taps


def test_the_older_kernel_is_not_known_to_want_any():
    # 9 x 8 pixels: Conv3DBackpropInput. 20 and 24 channels fill two groups of 16.
    found = beside((1, 20, 3, 9, 8), (24, 20, 3, 3, 3), INPUT, "910B2")
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
    assert beside((2, 32, 40, 40), (32, 32, 3, 3), INPUT, "910_95", stride=2) == 32 * 4 * 10 * 32 * 32 * 2


def test_phases_that_ub_holds_want_none():
    # Input 64 x 64: phases of 32 x 32, whose rows are whole fractals.
    assert beside((2, 32, 64, 64), (32, 32, 4, 4), INPUT, "910_95", stride=2) == 0


def test_sums_of_a_reduction_in_segments_are_those_of_an_image_for_each_core_that_works():
    # 32784 channels are cut in two. 8 x 8 pixels are one task: 32 channels x 64 pixels of float32.
    assert beside((1, 32, 8, 8), (32784, 32, 1, 1), INPUT, "910_95") == 1 * 32 * 64 * 4


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
    found = beside((1, 16, 3, 74, 75), (16, 16, 3, 3, 3), WEIGHT, "910B2", options=fixed)
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
    found = beside((4, 16, 40, 40), (16, 16, 3, 3), WEIGHT, "910_95")
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
    found = beside((4, 16, 40, 40), (16, 16, 3, 3), WEIGHT, "910_95", options=options)
    assert found == 2 * 16 * 144 * 4 + 16 * 144 * 4


def test_a_plan_with_several_steps_asks_for_all_of_them():
    plan = VendorPlan("kernel_split", 208, 32, 64, single_core_m=200, through_gm=True)
    stepped = layer((2, 32, 40, 40), (32, 32, 3, 3), stride=2)
    both = replace(plan, transpose_first=True)
    found = [workspace.operator_workspace(p, stepped, ARCH35, "grad_input", "3510") for p in (plan, both)]
    assert found[1] - found[0] == 32 * 9 * 32 * 2
