"""Which kernels does a product run for a call, and where would its operator compute other bits?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConfigError, ConvProblem, Tiling, convolution_backward, estimate
from ascendsim.ops.lowering.kernels import grad_input_type, grad_weight_type, lower
from ascendsim.ops.running import execute
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import takes_basic_blocks
from ascendsim.ops.tiling.vendor.layer import LayerSizes
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import call_of
from tests.helpers.toy_machines import toy_split

# --- Which kernels does a product run for a call, in which order, and what does CANN call them? --------
# The orders are those of the interface's own code, product by product. A profiler of an AlexNet step on the
# 910B2 shows as many TransData of each tensor as these say: grad_output is changed once for each gradient.

FLAT = ConvProblem((1, 20, 9, 8), (24, 20, 3, 3), 1, 1)
DEEP = ConvProblem((1, 20, 3, 9, 8), (24, 20, 3, 3, 3), 1, 1)
LINE = ConvProblem((1, 20, 9), (24, 20, 3), 1, 1)
BIAS, CAST, CHANGE = "ReduceSum", "Cast", "TransData"
INPUT_2D, WEIGHT_2D = "Conv2DBackpropInput", "Conv2DBackpropFilter"
INPUT_V2, WEIGHT_V2 = "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"
FIRST_2D = [BIAS, CHANGE, CHANGE, INPUT_2D, CHANGE, CHANGE, CHANGE]
ALL_2D = [*FIRST_2D, WEIGHT_2D, CHANGE, CAST]
# The lines of the one image are cut, and their parts added to zeros.
ALL_CUT = [*FIRST_2D, "MemSet", WEIGHT_2D, CHANGE, CAST]


TOY = toy_split()
SPLIT = replace(TOY, generation=TOY.generation._replace(changes_layouts=True, writes_rows_in_3d=True))


# A plan that fits any layer; what a kernel is called does not hang on it.
ANY = {"grad_input": Tiling(16, 16, 16), "grad_weight": Tiling(16, 16, 16)}


def types(problem, product, dtype="float16", **options):
    return [kernel.kernel.op_type for kernel in estimate(problem, dtype, product=product, **options).kernels]


@pytest.mark.parametrize("product", ["910B", "910_93", "310P", "910"])
@pytest.mark.parametrize("problem", [FLAT, LINE], ids=["2-D", "1-D"])
def test_in_2d_both_gradients_change_layouts_on_both_sides(problem, product):
    assert types(problem, product) == (ALL_CUT if problem is FLAT else ALL_2D)


@pytest.mark.parametrize("problem", [FLAT, LINE, DEEP], ids=["2-D", "1-D", "3-D"])
def test_the_950_changes_no_layout(problem):
    assert types(problem, "910_95") == [BIAS, INPUT_V2, WEIGHT_V2, CAST]
    assert types(problem, "910_95", "float32") == [BIAS, INPUT_V2, WEIGHT_V2]


@pytest.mark.parametrize("product", ["910B", "910_93"])
def test_in_3d_a_16_bit_grad_input_is_written_as_rows_and_a_float32_one_is_not(product):
    before, after = [BIAS, CHANGE, CHANGE], [CHANGE, CHANGE, "MemSet"]
    # 20 x 9 columns are fewer than the basic block of the newer kernel wants, the image smaller than 5500.
    older = [*before, "Conv3DBackpropInput", *after, "Conv3DBackpropFilter", CHANGE, CAST]
    assert types(DEEP, product) == older
    assert types(DEEP, product, "float32") == [*before, INPUT_V2, CHANGE, *after, WEIGHT_V2, CHANGE]


def test_casts_come_before_the_changes_of_their_tensors_and_after_those_of_the_gradients():
    # float32 tensors multiplied in float16; the results are float32 again. All three casts come first.
    found = types(FLAT, "910B", "float32", cube_math_type=2)
    before = [BIAS, CAST, CAST, CAST, CHANGE, CHANGE, INPUT_2D, CHANGE, CAST]
    assert found == [*before, CHANGE, CHANGE, "MemSet", WEIGHT_2D, CHANGE]


@pytest.mark.parametrize("product", ["910B", "910_93"])
def test_in_3d_casts_stand_around_the_changes_of_layout_too(product):
    # A float16 grad_input is written as rows, so that its cast follows at once.
    found = types(DEEP, product, "float32", cube_math_type=2)
    before = [BIAS, CAST, CAST, CAST, CHANGE, CHANGE, "Conv3DBackpropInput", CAST]
    assert found == [*before, CHANGE, CHANGE, "MemSet", "Conv3DBackpropFilter", CHANGE]


@pytest.mark.parametrize("problem", [FLAT, DEEP], ids=["2-D", "3-D"])
def test_on_the_950_casts_stand_around_the_gradients_and_nothing_else_does(problem):
    # float32 tensors multiplied in float16. grad_weight leaves in float32, so that no cast follows it.
    found = types(problem, "910_95", "float32", cube_math_type=2)
    assert found == [BIAS, CAST, CAST, CAST, INPUT_V2, CAST, WEIGHT_V2]


@pytest.mark.parametrize("product", ["310P", "910"])
def test_unified_cores_cast_float32_tensors_to_float16_first(product):
    found = types(FLAT, product, "float32", cube_math_type=1)
    before = [BIAS, CAST, CAST, CAST, CHANGE, CHANGE, INPUT_2D, CHANGE, CAST]
    # Cores share the lines of the one image, and add their parts to zeros.
    assert found == [*before, CHANGE, CHANGE, "MemSet", WEIGHT_2D, CHANGE]


def test_a_deterministic_2d_grad_weight_is_made_by_the_3d_kernel_of_the_910b():
    found = types(FLAT, "910B", output_mask=(False, True, False), deterministic=True)
    assert found == [CHANGE, CHANGE, WEIGHT_V2, CHANGE, CAST]


@pytest.mark.parametrize(
    ("problem", "forward", "filter_"),
    [
        (ConvProblem((1, 20, 9, 8), (20, 24, 3, 3), 1, 1, transposed=True), "Conv2D", WEIGHT_2D),
        (ConvProblem((1, 20, 9), (20, 24, 3), 1, 1, transposed=True), "Conv2D", WEIGHT_2D),
    ],
    ids=["2-D", "1-D"],
)
def test_the_grad_input_of_a_transposed_convolution_is_a_forward_one(problem, forward, filter_):
    # Its grad_weight is the same kernel, with input and grad_output in each other's place.
    changes = [CHANGE, CHANGE, forward, CHANGE, CHANGE, CHANGE, filter_, CHANGE, CAST]
    assert types(problem, "910B") == [BIAS, *changes]


def test_the_same_in_3d_and_on_the_950():
    deep = ConvProblem((1, 20, 3, 9, 8), (20, 24, 3, 3, 3), 1, 1, transposed=True)
    # The 910_95 brings lines and images into a view of five axes, and so to the same kernels.
    flat = ConvProblem((1, 20, 9, 8), (20, 24, 3, 3), 1, 1, transposed=True)
    line = ConvProblem((1, 20, 9), (20, 24, 3), 1, 1, transposed=True)
    for problem in (deep, flat, line):
        assert types(problem, "910_95") == [BIAS, "Conv3DV2", WEIGHT_V2, CAST]
    found = types(deep, "910B", output_mask=(True, False, False))
    assert found == [CHANGE, CHANGE, "Conv3DV2"]


def test_each_kernel_has_a_name_of_its_own():
    names = [kernel.name for kernel in estimate(FLAT, product="910B").kernels]
    assert names == [
        "grad_bias",
        "transdata_grad_output",
        "transdata_weight",
        "grad_input",
        "transdata_grad_input",
        "transdata_grad_output_2",
        "transdata_input",
        "memset_grad_weight",
        "grad_weight",
        "transdata_grad_weight",
        "cast_grad_weight",
    ]


def test_only_the_kernels_of_the_wanted_gradients_run():
    assert types(FLAT, "910B", output_mask=(False, False, True)) == [BIAS]
    assert types(FLAT, "910B", output_mask=(True, False, False)) == ALL_CUT[1:5]
    assert types(FLAT, "910B", output_mask=(False, True, False)) == ALL_CUT[5:]


def test_the_time_of_a_call_is_that_of_all_its_kernels():
    found = estimate(FLAT, product="910B")
    assert found.time_us == sum(kernel.time_us for kernel in found.kernels)
    changes = [kernel for kernel in found.kernels if kernel.kernel.op_type == CHANGE]
    assert len(changes) == 6
    assert all(kernel.cycles > 0 for kernel in changes)


@pytest.mark.parametrize(
    ("problem", "options", "expected"),
    [
        (FLAT, {}, WEIGHT_2D),
        (FLAT, {"deterministic": True}, WEIGHT_V2),
        (DEEP, {"deterministic": True}, WEIGHT_V2),
        (DEEP, {"dtype": "float32"}, WEIGHT_V2),
        (ConvProblem((1, 20, 3, 9, 8), (24, 20, 1, 1, 1)), {}, WEIGHT_V2),  # one tap: a basic block
        (ConvProblem((1, 128, 3, 9, 8), (128, 128, 1, 3, 3)), {}, WEIGHT_V2),  # 9 taps, 128 rows
        (ConvProblem((1, 128, 3, 9, 8), (112, 128, 1, 3, 3)), {}, "Conv3DBackpropFilter"),  # 112 rows
        (ConvProblem((1, 128, 3, 9, 8), (113, 128, 1, 3, 3)), {}, WEIGHT_V2),  # 128 in whole fractals
        (ConvProblem((1, 16, 3, 9, 8), (128, 16, 1, 2, 2)), {}, "Conv3DBackpropFilter"),  # 64 columns
        (ConvProblem((1, 16, 3, 9, 8), (128, 16, 2, 2, 2)), {}, WEIGHT_V2),  # of two depths 128
        (ConvProblem((1, 128, 3, 9, 8), (128, 128, 1, 2, 3)), {}, "Conv3DBackpropFilter"),  # 6 taps
        (ConvProblem((1, 20, 3, 9, 8), (24, 20, 3, 3, 3), 1, 1, 2), {}, WEIGHT_V2),  # dilation
        (ConvProblem((1, 20, 3, 9, 8), (24, 10, 3, 3, 3), groups=2), {}, WEIGHT_V2),
    ],
)
def test_the_kernel_of_grad_weight(problem, options, expected):
    assert grad_weight_type(call_of(problem, profile=SPLIT, **options)) == expected


@pytest.mark.parametrize("rows", [96, 100, 113, 128])
@pytest.mark.parametrize("channels", [3, 16, 40, 128])
@pytest.mark.parametrize(
    "kernel", [(1, 1, 1), (1, 2, 2), (2, 2, 2), (3, 3, 3), (1, 2, 3), (2, 4, 4), (1, 5, 5)]
)
def test_the_newer_kernel_of_grad_weight_is_named_where_basic_blocks_are_planned(rows, channels, kernel):
    # One group in 16 bits, without dilation: nothing else asks for it.
    p = ConvProblem((1, channels, 4, 9, 8), (rows, channels, *kernel))
    blocks = takes_basic_blocks(LayerSizes.of(p, "float16"))
    newer = grad_weight_type(call_of(p, profile=SPLIT, tilings=ANY)) == WEIGHT_V2
    assert newer is blocks


LARGE = (1, 16, 3, 74, 75)  # 5550 pixels


@pytest.mark.parametrize(
    ("problem", "options", "expected"),
    [
        (FLAT, {}, INPUT_2D),
        (DEEP, {}, "Conv3DBackpropInput"),
        (DEEP, {"dtype": "float32"}, INPUT_V2),
        (ConvProblem((1, 20, 3, 9, 8), (24, 10, 3, 3, 3), groups=2), {}, INPUT_V2),
        (ConvProblem(LARGE, (16, 16, 3, 3, 3), 1, 1), {}, INPUT_V2),
        (ConvProblem(LARGE, (16, 16, 3, 4, 3), 1, 1), {}, INPUT_V2),  # a kernel of 4
        (ConvProblem(LARGE, (16, 16, 3, 5, 3), 1, 1), {}, "Conv3DBackpropInput"),  # of 5
        (ConvProblem(LARGE, (16, 16, 3, 3, 3), 2, 1), {}, INPUT_V2),  # stride 2
        (ConvProblem(LARGE, (16, 16, 3, 3, 3), 3, 1), {}, "Conv3DBackpropInput"),  # 3
        (ConvProblem(LARGE, (16, 16, 3, 3, 3), 1, 2), {}, INPUT_V2),  # padding 2
        (ConvProblem(LARGE, (16, 16, 3, 4, 4), 1, 3), {}, "Conv3DBackpropInput"),  # 3
        (ConvProblem((1, 16, 85, 74, 75), (16, 16, 3, 3, 3), 1, 1), {}, INPUT_V2),  # 85 deep
        (ConvProblem((1, 16, 86, 74, 75), (16, 16, 3, 3, 3), 1, 1), {}, "Conv3DBackpropInput"),  # 86
        (ConvProblem((1, 16, 3, 100, 55), (16, 16, 3, 3, 3), 1, 1), {}, INPUT_V2),  # 5500 pixels
        (ConvProblem((1, 16, 3, 73, 75), (16, 16, 3, 3, 3), 1, 1), {}, "Conv3DBackpropInput"),  # 5475
        # Windows of 4 rows of 1025 pixels are more than 4096, whatever else holds.
        (
            ConvProblem((1, 16, 1, 8, 1025), (16, 16, 1, 3, 3), 1, 1),
            {"dtype": "float32"},
            "Conv3DBackpropInput",
        ),
        (ConvProblem((1, 16, 1, 8, 1024), (16, 16, 1, 3, 3), 1, 1), {"dtype": "float32"}, INPUT_V2),
        (ConvProblem((1, 5, 6, 7), (5, 3, 3, 2), transposed=True), {}, "Conv2D"),
        (ConvProblem((1, 5, 6, 7, 8), (5, 3, 3, 2, 2), transposed=True), {}, "Conv3DV2"),
    ],
)
def test_the_kernel_of_grad_input(problem, options, expected):
    assert grad_input_type(call_of(problem, profile=SPLIT, **options)) == expected


def test_merged_groups_are_cleared_and_picked_out_by_the_kernel_of_the_950_itself():
    # Two groups as one, two images added on two cores: all of that is in a workspace of the kernel, of which
    # its vector cores write what belongs to single groups, so that no MemSet comes before it.
    problem = ConvProblem((2, 16, 5, 6), (16, 8, 3, 3), padding=1, groups=2)
    plan = {"grad_weight": Tiling(16, 16, 16, batch_dim=2, group_merge=2)}
    call = call_of(problem, profile=load_profile("910_95"), tilings=plan)
    kernels = lower(call, (False, True, False)).kernels
    assert [kernel.op_type for kernel in kernels] == [WEIGHT_V2, CAST]
    assert [phase.name for phase in kernels[0].phases] == ["zero fill", "compute", "diagonal blocks"]


def test_infinite_values_come_through_a_change_of_layout():
    # A conversion of the 310P would saturate it to 65504.
    profile = load_profile("310P")
    kernel = lower(call_of(FLAT, profile=profile), (True, False, False)).kernels[0]
    given = np.zeros((1, 24, 9, 8), np.float32)
    given[0, 3, 1, 2] = np.inf
    gm = {"grad_output": given}
    execute(kernel, profile, gm)
    assert np.argwhere(np.isinf(gm["grad_output NDC1HWC0"])).tolist() == [[0, 0, 0, 0, 10, 3]]


def test_the_note_on_rows_is_there_where_no_kernel_changes_layouts():
    told = "read and write tensors row after row"
    assert any(told in note for note in estimate(FLAT, product="910_95").notes)
    assert not any(told in note for note in estimate(FLAT, product="910B").notes)
    [grad_input] = [
        kernel for kernel in estimate(DEEP, product="910B").kernels if kernel.name == "grad_input"
    ]
    assert "row after row" in grad_input.kernel.note


def test_a_copy_of_a_strided_input_is_called_contiguous():
    p = ConvProblem((1, 4, 6, 6), (16, 4, 3, 3))
    wide = np.ones((1, 4, 6, 12), np.float16)
    grad_output, weight = np.ones(p.grad_output, np.float16), np.ones(p.weight, np.float16)
    attributes = [16], p.stride, p.padding, p.dilation, False, (0, 0), 1, (False, True, False), 0
    made = convolution_backward(grad_output, wide[..., ::2], weight, *attributes, product="910_95")
    assert [kernel.kernel.op_type for kernel in made.kernels] == ["Contiguous", WEIGHT_V2, CAST]
    assert "Contiguous" not in made.notes


GROUPED = ConvProblem((2, 48, 9, 9), (48, 1, 3, 3), 1, 1, groups=48)
TRANSPOSED = ConvProblem((2, 16, 9, 9), (16, 8, 3, 3), 2, 1, transposed=True)


@pytest.mark.parametrize("product", ["910B", "310P", "910_95"])
@pytest.mark.parametrize("problem", [FLAT, GROUPED, TRANSPOSED], ids=["plain", "groups", "transposed"])
def test_packed_tensors_need_no_change_of_layout_and_give_the_same_bits(problem, product):
    pick = np.random.default_rng(3)
    shapes = problem.grad_output, problem.input, problem.weight
    tensors = [pick.standard_normal(shape).astype(np.float16) for shape in shapes]
    attributes = problem.stride, problem.padding, problem.dilation, problem.transposed
    asked = None, *attributes, problem.output_padding, problem.groups, (True, True, False), 0
    plain, packed = (
        convolution_backward(*tensors, *asked, product=product, layout=layout)
        for layout in ("NCHW", "NC1HWC0")
    )
    assert CHANGE not in [kernel.kernel.op_type for kernel in packed.kernels]
    assert packed.time_us < plain.time_us if product != "910_95" else packed.time_us == plain.time_us
    for name in ("grad_input", "grad_weight"):
        assert getattr(packed, name).tobytes() == getattr(plain, name).tobytes()
    assert any("NC1HWC0" in note for note in packed.notes)


@pytest.mark.parametrize("product", ["910B", "910_93", "310P", "910"])
@pytest.mark.parametrize(("taps", "stride"), [(1, 2), (1, 3), (3, 3)])
@pytest.mark.parametrize("groups", [1, 4])
def test_packed_tensors_are_dilated_as_others_are(product, taps, stride, groups):
    problem = ConvProblem((2, 8, 7, 9), (12, 8 // groups, taps, taps), stride, taps // 2, groups=groups)
    pick = np.random.default_rng(4)
    shapes = problem.grad_output, problem.input, problem.weight
    tensors = [pick.standard_normal(shape).astype(np.float16) for shape in shapes]
    asked = None, stride, taps // 2, 1, False, 0, groups, (True, True, False), 0
    plain, packed = (
        convolution_backward(*tensors, *asked, product=product, layout=layout)
        for layout in ("NCHW", "NC1HWC0")
    )
    for made in (plain, packed):
        assert [kernel.kernel.op_type for kernel in made.kernels].count("Dilation") == 1
    assert CHANGE not in [kernel.kernel.op_type for kernel in packed.kernels]
    for name in ("grad_input", "grad_weight"):
        assert getattr(packed, name).tobytes() == getattr(plain, name).tobytes()


@pytest.mark.parametrize("batch", [0, 1])
def test_packed_gradients_have_no_strides_in_an_empty_call_either(batch):
    tensors = [np.ones(shape, np.float16) for shape in ((batch, 6, 4, 4), (batch, 4, 6, 6), (6, 4, 3, 3))]
    asked = None, 1, 0, 1, False, 0, 1, (True, True, False), 0
    where = {"rules": "hardware", "output_strides": {"grad_weight": (1, 6, 72, 24)}}
    convolution_backward(*tensors, *asked, **where)
    with pytest.raises(ConfigError, match=r"no strides, but those of grad_weight .* are \(1, 6, 72, 24\)"):
        convolution_backward(*tensors, *asked, **where, layout="NC1HWC0")


def test_what_a_layout_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="layout is 'NHWC'; it must be one of NCHW, NC1HWC0"):
        estimate(FLAT, layout="NHWC")
    steps = {"input": (1440, 1, 160, 20)}
    with pytest.raises(ConfigError, match="whose tensors have no strides"):
        estimate(FLAT, layout="NC1HWC0", strides=steps)


# --- Does a result say where the product's operator would compute other bits than ours? ----------------


def notes(problem, dtype="float32", product="910_95", **options):
    result = estimate(problem, dtype, product=product, **options)
    return [note for note in result.notes if note.startswith("The operator may compute")]


@pytest.mark.parametrize("product", ["910B", "910_95"])
def test_one_placement_of_the_kernel_is_told_where_a_search_makes_a_convolution_of_it(product):
    whole = ConvProblem((4, 8, 5, 3), (6, 8, 5, 3))
    assert not notes(whole, "float16", product)
    told = notes(whole, "float16", product, tiling="search")
    assert [note.split()[4] for note in told] == ["grad_input", "grad_weight"]
    assert not any("HF32" in note for note in told)
    in_hf32 = notes(whole, "float32", product, cube_math_type=3, tiling="search")
    assert all("in HF32 rounds ties away" in note for note in in_hf32)
    assert not notes(replace(whole, input=(4, 8, 6, 3)), "float16", product)
    assert not notes(replace(whole, input=(4, 8, 4, 3), padding=(1, 0, 0, 0)), "float16", product)


def test_one_tap_is_one_for_a_single_image_of_950():
    tap = ConvProblem((1, 8, 5, 3), (6, 8, 1, 1))
    assert not notes(tap)
    assert len(notes(tap, tiling="search")) == 2
    assert not notes(tap, product="910B", tiling="search")
    assert not notes(replace(tap, input=(2, 8, 5, 3)), tiling="search")


def test_one_tap_of_more_than_128_mib_is_a_convolution_of_the_operator_too():
    # 64 channels in and out of 2 bytes: weights of 8 KiB, and 256 bytes a pixel. 524,256 pixels are 128 MiB.
    most = ConvProblem((1, 64, 128, 4095), (64, 64, 1, 1))
    assert (2 * 64 * 128 * 4095 + 64 * 64) * 2 <= 2**27
    told = notes(most, "float16", tiling="search", output_mask=(True, False, False))
    assert [note.split()[4] for note in told] == ["grad_input"]
    wider = replace(most, input=(1, 64, 128, 4096))
    assert not notes(wider, "float16", tiling="search", output_mask=(True, False, False))


def test_placements_side_by_side_make_grad_input_a_matrix_product():
    patches = ConvProblem((2, 8, 8, 8), (6, 8, 2, 2), 2)
    assert not notes(patches, "float16", "910B")
    # By a search, and where a row is left over, it is a convolution here.
    for note in notes(patches, "float16", "910B", tiling="search"):
        assert note.split()[4] == "grad_input"
    (note,) = notes(replace(patches, input=(2, 8, 9, 8)), "float16", "910B")
    assert note.split()[4] == "grad_input"
    assert not notes(replace(patches, stride=1), "float16", "910B")
    # 910_95 has a kernel for a stride of 2 along both axes.
    assert not notes(patches, tiling="search")
    assert len(notes(replace(patches, weight=(6, 8, 4, 4), stride=4), tiling="search")) == 1


def test_generations_whose_operator_was_not_read_say_nothing():
    assert not notes(ConvProblem((4, 8, 5, 3), (6, 8, 5, 3)), "float16", "310P")
