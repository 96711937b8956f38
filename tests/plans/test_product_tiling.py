"""Are the products' plans executed, and does each field mean in a nest what it means in the plan?"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.instructions.movers import CopyGmToL1
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.tiling.vendor.layer import Layouts
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.slow_tilings import chosen_plan, nest_plan, operators_plan
from tests.plans.test_vendor_records import CHANGED, changed, problems

# -------------------------------------------------------------------------------------------------------
# Are the products' plans executed: the kind that is chosen, its bits, and the instructions that show it?
# -------------------------------------------------------------------------------------------------------

FEW = {"cores.cube": 4, "cores.vector": 8}
ARCH22, ARCH35 = load_profile("910B2", FEW), load_profile("950PR_9599", FEW)
ARCH35_WITH = {
    size: load_profile("950PR_9599", {**FEW, "buffers.L1.capacity_bytes": size})
    for size in (49152, 131072, 524288)
}
SHORT_L1 = ARCH35_WITH[49152]
TWO_CORES = load_profile("950PR_9599", {"cores.cube": 2})
B2, B3 = load_profile("910B2"), load_profile("910B3")
MASKS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def conv(channels, out, size, kernel=3, batch=1, stride=1, depth=1):
    """A convolution with square kernels that are padded to keep sizes; with depth, of two taps along it."""
    pad, shape = kernel // 2, (size, size)
    if depth == 1:
        return ConvProblem((batch, channels, *shape), (out, channels, kernel, kernel), stride, pad)
    deep = (out, channels, 2, kernel, kernel)
    return ConvProblem((batch, channels, depth, *shape), deep, (1, stride, stride), (0, pad, pad))


# One depth, so that four of five kernel depths lie in the padding: five tasks for four cores.
PADDED = ConvProblem((4, 16, 1, 9, 9), (16, 16, 5, 3, 3), 1, (2, 1, 1))
# Two blocks of columns at three kernel depths, of which the middle one meets the image: in the last round are
# the second block's middle and last one.
HALF_PADDED = ConvProblem((4, 32, 1, 9, 9), (16, 32, 3, 3, 3), 1, 1)
# Strategies that count their tasks one by one.
TASKS = ("basic_block", "basic_mk", "basic_nk", "basic_mn")
# (gradient, product, dtype, problem, strategy of the product, what else tells its kind)
KINDS = {
    "arch22 weights resident": (
        *("grad_input", ARCH22, "float16", conv(32, 160, 12, kernel=1, batch=2)),
        *("basic_block", {"bl1_buffers": 1, "mapping": "contiguous", "kernel_split": ""}),
    ),
    "arch22 both streamed": (
        *("grad_input", ARCH22, "bfloat16", conv(24, 32, 9, depth=3)),
        *("basic_block", {"al1_buffers": 2, "bl1_buffers": 2}),
    ),
    "arch22 zeros inserted": (
        *("grad_input", ARCH22, "float16", conv(16, 16, 11, stride=2)),
        *("basic_block", {"kernel_split": ""}),
    ),
    "arch22 grid of cores": (
        *("grad_input", ARCH22, "float32", conv(16, 16, 18, batch=2)),
        *("core_grid", {"grid": (("d", 1), ("batch", 2), ("m", 2), ("n", 1))}),
    ),
    "arch35 small shape": (
        *("grad_input", ARCH35, "float16", conv(32, 48, 10)),
        *("small_shape", {"mapping": "interleaved"}),
    ),
    "arch35 weights resident": (
        *("grad_input", ARCH35, "float16", conv(16, 16, 8, batch=12)),
        *("full_load", {"mapping": "interleaved"}),
    ),
    "arch35 segments": (
        # Two tasks, which two cores share evenly.
        *("grad_input", TWO_CORES, "float32", conv(32, 2080, 5, kernel=1, batch=2)),
        *("inner_product", {"k_segment": 2048}),
    ),
    "arch35 split along both axes": (
        *("grad_input", ARCH35, "float16", conv(32, 272, 25, stride=2)),
        *("kernel_split_hw", {"kernel_split": "hw", "bl1_buffers": 2}),
    ),
    "arch35 split with whole operands": (
        *("grad_input", ARCH35, "float16", conv(16, 32, 24, 4, batch=2, stride=2)),
        *("kernel_split_full", {"kernel_split": "hw", "al1_buffers": 1, "bl1_buffers": 1}),
    ),
    "arch35 split along H": (
        *("grad_input", ARCH35, "bfloat16", ConvProblem((1, 16, 12, 32), (16, 16, 3, 2), (2, 3), 1)),
        *("kernel_split_h", {"kernel_split": "h"}),
    ),
    "arch35 blocks that fill L0C": (
        *("grad_input", ARCH35, "float16", conv(48, 16, 6, batch=12)),
        *("inner_product", {"mapping": "interleaved", "cl0_buffers": 2}),
    ),
    "arch35 a row of taps at a time": (
        # Gaps between rows of taps that load3d cannot say.
        *("grad_input", ARCH35, "float16", ConvProblem((2, 16, 12, 12), (32, 16, 3, 3), 1, *2 * [(260, 1)])),
        *("inner_product", {"taps": "kh", "zero_first": True}),
    ),
    "arch35 a tap at a time": (
        # 1024 pixels lie in three rows of 600, which for 16 channels take 57,600 bytes.
        *("grad_input", SHORT_L1, "float16", ConvProblem((1, 16, 4, 600), (32, 16, 2, 3), 1, 1)),
        *("inner_product", {"taps": "khkw", "zero_first": True}),
    ),
    "arch22 rows and pixels": (
        *("grad_weight", ARCH22, "float16", conv(64, 32, 12, kernel=1, batch=2)),
        *("basic_mk", {"split": "mk"}),
    ),
    "arch22 columns and pixels": (
        *("grad_weight", ARCH22, "bfloat16", conv(32, 64, 12, kernel=1, batch=2)),
        *("basic_nk", {"split": "nk"}),
    ),
    "arch22 rows and columns": (
        *("grad_weight", ARCH22, "float16", conv(256, 160, 6, kernel=1, batch=2, stride=2)),
        *("basic_mn", {"split": "mn"}),
    ),
    "arch22 library in depth": (
        *("grad_weight", ARCH22, "float32", conv(16, 16, 9, depth=3)),
        *("library", {"split": "grid"}),
    ),
    "arch22 library": (
        *("grad_weight", ARCH22, "float32", conv(16, 16, 12, batch=2)),
        *("library", {"split": "grid"}),
    ),
    "arch22 library with parts of the columns at all kernel depths": (
        # Two groups' 576 columns at each of three kernel depths, in halves.
        *("grad_weight", ARCH22, "float16", ConvProblem((1, 128, 5, 9, 7), (64, 64, 3, 3, 3), groups=2)),
        *("library", {"single_core_n": 288}),
    ),
    "arch22 library with images in uneven parts": (
        # Six images and depths in parts of four and two.
        *("grad_weight", ARCH22, "float32", ConvProblem((3, 64, 2, 7, 7), (32, 32, 1, 2, 2), groups=2)),
        *("library", {"split": "grid"}),
    ),
    "arch22 deterministic": (
        *("grad_weight", ARCH22, "float16", conv(16, 32, 24)),
        *("basic_det", {"stream_ways": 4, "stream_axis": "height", "mapping": "contiguous"}),
    ),
    "arch35 stream-K": (
        *("grad_weight", ARCH35, "float16", conv(32, 48, 10, batch=4)),
        *("stream_k", {"stream_ways": 2, "stream_axis": "batch_depth", "mapping": "interleaved"}),
    ),
    "arch35 strips of a line": (
        *("grad_weight", ARCH35, "float16", ConvProblem((1, 16, 600), (16, 16, 3), 1, 1)),
        *("stream_k", {"strip_w": 128}),
    ),
    "arch35 strips of several rows": (
        *("grad_weight", ARCH35, "float16", ConvProblem((1, 16, 3, 600), (16, 16, 3, 3), 1, 1)),
        *("stream_k", {"strip_w": 128, "stream_ways": 3, "stream_axis": "height"}),
    ),
    "arch35 taps too far apart": (
        # 64 rows from one output pixel to the next, where load3d steps 63 at most.
        *("grad_weight", ARCH35, "float16", ConvProblem((2, 16, 130, 9), (32, 16, 2, 3), (64, 1), 1)),
        *("stream_k", {"taps": "khkw", "stream_ways": 2, "stream_axis": "batch_depth"}),
    ),
    "arch35 last round of padding alone": (
        *("grad_weight", ARCH35, "float16", PADDED),
        *("stream_k", {"tasks": 5, "stream_ways": 4, "stream_axis": "batch_depth"}),
    ),
    "arch35 last round with padding among its tasks": (
        *("grad_weight", ARCH35, "float16", HALF_PADDED),
        *("stream_k", {"tasks": 6, "stream_ways": 2, "stream_axis": "batch_depth"}),
    ),
    "arch22 grid of 20 cores": (
        *("grad_weight", B3, "bfloat16", conv(32, 8, 16, batch=5)),
        *("core_grid", {"split": "grid"}),
    ),
}


def planned(name):
    """Return the call of a kind under the product's plan, and the plan in the product's terms."""
    gradient, profile, dtype, problem, *_ = KINDS[name]
    fixed = {"deterministic": "deterministic" in name}
    told = operators_plan(problem, gradient, dtype, profile, **fixed)
    plan = nest_plan(problem, gradient, dtype, profile, **fixed)
    return call_of(problem, dtype, profile=profile, tilings={gradient: plan}, **fixed), told


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name][4] in TASKS])
def test_there_are_as_many_tasks_as_the_product_counts(name):
    gradient, *_ = KINDS[name]
    call, told = planned(name)
    schedule = call.schedule(gradient)
    if gradient == "grad_weight":
        assert len(set(schedule.units.tolist())) == told.tasks
    assert len(schedule.dealt()) == told.used_cores


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_names_the_rule_that_made_it(name):
    call, told = planned(name)
    assert call.plans[KINDS[name][0]].rule == told.strategy == KINDS[name][4]


def kernel_of(name):
    gradient, *_ = KINDS[name]
    [kernel] = [kernel for kernel in lower(planned(name)[0], MASKS[gradient]).kernels if kernel.macs]
    return kernel


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_is_chosen(name):
    *_, strategy, marks = KINDS[name]
    told = planned(name)[1]
    assert told.strategy == strategy
    assert {field: getattr(told, field) for field in marks} == marks


@pytest.mark.parametrize("name", KINDS)
def test_the_bits_are_those_of_its_order(name):
    gradient, _, dtype, problem, *_ = KINDS[name]
    call, tensors = planned(name)[0], tensors_of(problem, dtype)
    made, arrivals = run(call, tensors, "arrival", MASKS[gradient])
    want = reference_gradients(call, **tensors, mask=MASKS[gradient], arrivals=arrivals)
    assert_same_bits(made[gradient], want[gradient])


@pytest.mark.parametrize("name", KINDS)
def test_engines_agree(name):
    assert time_kernel(kernel_of(name), KINDS[name][1]).cycles > 0


def test_a_grid_deals_columns_and_images_as_the_host_code_does():
    call, told = planned("arch22 library with parts of the columns at all kernel depths")
    grid = dict(told.grid)
    assert (grid["kd"], grid["n"]) == (1, 2)
    schedule = call.schedule("grad_weight")
    first = np.array([block.first_column for block in schedule.tasks.column_blocks])
    for tasks in schedule.dealt():
        assert {*tasks["depth"].tolist()} == {0, 1, 2}
        assert len({*(first[tasks["column"]] // 288).tolist()}) == 1
    call, told = planned("arch22 library with images in uneven parts")
    assert dict(told.host)["singleCoreBatch"] == 4
    # Two groups of two parts; images and depths have one share of pixels each.
    cores = call.schedule("grad_weight").dealt()
    assert [len(np.unique(tasks["part"])) for tasks in cores] == [4, 2, 4, 2]


def counts(name):
    """Return how many instructions of each kind all cores run while they multiply, and on how many cores."""
    [phase] = [phase for phase in kernel_of(name).phases if phase.name == "compute"]
    found = Counter(
        type(instruction).__name__ for work in phase.work for instruction in work.build().instructions
    )
    return found, len(phase.work)


def test_resident_weights_are_copied_once_a_core():
    # 144 pixels of 12 rows are one block, for which half of L0A, 16384 elements, holds 112 of k; n is 32. A
    # task is a whole image, so two cores have one each: an image and the weights, 2 slices of 160 channels.
    found, cores = counts("arch22 weights resident")
    assert cores == 2
    assert (found["CopyGmToL1"], found["Mmad"], found["Fixpipe"]) == (2 * 2, 2 * 2, 2)


def test_inserted_zeros_are_cleared_before_they_are_copied():
    found, _ = counts("arch22 zeros inserted")
    assert found["FillL1"] == found["CopyGmToL1"] - 1  # all but the weights


def test_whole_operands_are_copied_once():
    # 24 x 24 pixels under 4 x 4 taps are four phases of 12 x 12 pixels and 2 x 2 taps, in one task an image:
    # the tile of grad_output, which all of them read, and the weights of each.
    found, cores = counts("arch35 split with whole operands")
    assert cores == 2
    assert found["CopyGmToL1"] == 2 * (1 + 4)


def test_a_line_is_worked_on_strip_by_strip():
    # 600 columns are 4 strips of 128 and one of 88, each less than a slice of 336: one tile of either operand
    # and one product.
    found, _ = counts("arch35 strips of a line")
    assert (found["CopyGmToL1"], found["Mmad"], found["Fixpipe"]) == (2 * 5, 5, 1)


def test_a_grid_gives_each_core_one_task():
    # 18 x 18 pixels in two parts of 9 rows, two images: 4 cores with 162 pixels of 16 channels each, which
    # are one base block.
    found, cores = counts("arch22 grid of cores")
    assert (cores, found["Fixpipe"]) == (4, 4)


def test_interleaved_tasks_leave_no_core_without_work():
    # 12 images on 4 cores: three each, in turn.
    gradient, *_ = KINDS["arch35 weights resident"]
    dealt = planned("arch35 weights resident")[0].schedule(gradient).dealt()
    assert [sorted({task.image for task in tasks}) for tasks in dealt] == [
        [0, 4, 8],
        [1, 5, 9],
        [2, 6, 10],
        [3, 7, 11],
    ]


def test_every_base_block_of_a_basic_plan_is_added_to_zeros():
    # Two images meet in each element of the result, whatever axes are cut besides: no block may be written.
    for name in ("arch22 rows and pixels", "arch22 columns and pixels", "arch22 rows and columns"):
        kernel = kernel_of(name)
        [compute] = [phase for phase in kernel.phases if phase.name == "compute"]
        fixpipes = [
            instruction
            for work in compute.work
            for instruction in work.build().instructions
            if type(instruction).__name__ == "Fixpipe"
        ]
        assert all(fixpipe.atomic for fixpipe in fixpipes)
        assert [phase.name for phase in kernel.phases] == ["compute"]
        around = lower(planned(name)[0], MASKS["grad_weight"]).kernels
        [at] = [number for number, one in enumerate(around) if one.macs]
        assert around[at - 1].op_type == "MemSet"
        assert set(around[at - 1].tensors) < set(kernel.tensors)


@st.composite
def large_problems(draw):
    """Draw a convolution with long rows, or with steps, gaps or padding beyond what one load3d can say."""
    height, width = draw(st.integers(1, 12)), draw(st.sampled_from((5, 40, 530, 700)))
    axes = []
    for size in (height, width):
        kernel, gap = draw(st.integers(1, 4)), draw(st.sampled_from((1, 3, 260)))
        padding = draw(st.sampled_from((0, 1, 150, 300)))
        # At least one output pixel.
        padding = max(padding, -(-((kernel - 1) * gap + 1 - size) // 2))
        axes.append((kernel, draw(st.sampled_from((1, 2, 70))), padding, gap))
    kernels, strides, paddings, gaps = zip(*axes, strict=True)
    inputs, outputs = draw(st.sampled_from((3, 40, 130))), draw(st.sampled_from((5, 48, 200)))
    batch = draw(st.integers(1, 2))
    return ConvProblem((batch, inputs, height, width), (outputs, inputs, *kernels), strides, paddings, gaps)


def require_built(problem, gradient, dtype, profile):
    """Check that a product's plan, if it has one, deals every base block and fits in the buffers."""
    try:
        plan = nest_plan(problem, gradient, dtype, profile)
    except (CapacityError, UnsupportedError):
        return
    call = call_of(problem, dtype, profile=profile, tilings={gradient: plan})
    # Asking for the work deals all base blocks, and refuses what leaves one out; a program refuses what does
    # not fit.
    [phase] = [phase for phase in call.schedule(gradient).phases() if phase.name == "compute"]
    assert len(phase.work) <= profile.cores.cube
    built = [work.build() for work in (phase.work[0], phase.work[-1])]
    assert any(program.instructions for program in built) or plan.tiling.tap_loop


@settings(max_examples=40, deadline=None)
@given(
    problems(), st.sampled_from(CHANGED), st.sampled_from(["float16", "float32"]), st.sampled_from([*MASKS])
)
def test_whatever_is_planned_can_be_built(problem, product, dtype, gradient):
    require_built(problem, gradient, dtype, changed(*product))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    large_problems(),
    st.sampled_from((49152, 131072, 524288)),
    st.sampled_from(["float16", "float32"]),
    st.sampled_from([*MASKS]),
)
def test_whatever_is_planned_of_large_layers_can_be_built(problem, l1, dtype, gradient):
    require_built(problem, gradient, dtype, ARCH35_WITH[l1])


def test_a_plan_without_a_loop_nest_is_refused():
    with pytest.raises(UnsupportedError, match="blocks that end inside a group of 32 channels"):
        nest_plan(conv(16, 32, 16), "grad_input", "hifloat8", ARCH35)


# 25 pairs of image and depth for 24 cores; with a dilation in depth it is the library's.
ODD = ConvProblem((5, 97, 7, 43, 43), (195, 97, 3, 3, 3), 1, 1, 2)


def test_images_are_not_dealt_to_more_cores_than_get_any():
    # 24 parts of 25 pairs would be two each, for 13 cores; 21 of 24 are used: 7 parts of channels, 3 depths.
    plan = nest_plan(ODD, "grad_weight", "float16", load_profile("910B2"))
    assert plan.tiling.batch_dim == 1
    assert plan.tiling.used_cores == 21


def test_a_tile_in_l1_serves_all_slices_that_it_holds():
    plan = nest_plan(ODD, "grad_weight", "float16", B2)
    slices = -(-plan.tiling.single_core_k // plan.tiling.base_k)
    assert copies_of_input(ODD, plan) == -(-slices // plan.tiling.step_kb) < slices
    assert copies_of_input(ODD, replace(plan, tiling=replace(plan.tiling, step_kb=1))) == slices


def copies_of_input(problem, plan):
    """Return how many tiles of input the first core of a grad_weight copies for its first base block."""
    call = call_of(problem, profile=B2, tilings={"grad_weight": plan})
    work = next(
        w for phase in call.schedule("grad_weight").phases() for w in phase.work if w.core.kind == "cube"
    )
    count = 0
    for instruction in work.build().instructions:
        if instruction.pipe == "FIX":
            return count
        count += isinstance(instruction, CopyGmToL1) and instruction.src.tensor.name.startswith("input")
    raise AssertionError("a base block leaves by Fixpipe")


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_images_with_a_depth_axis_are_planned_as_volumes(gradient):
    # The interface goes by the rank: of five axes it launches the 3-D kernel, however many depths there are.
    volume = ConvProblem((2, 64, 1, 64, 96), (64, 64, 1, 3, 3), padding=(0, 1, 1))
    image = ConvProblem((2, 64, 64, 96), (64, 64, 3, 3), padding=1)
    of = gradient, "float16", B2
    assert chosen_plan(volume, *of) == replace(nest_plan(volume, *of), chosen_by="product")
    assert chosen_plan(image, *of).schedule != chosen_plan(volume, *of).schedule


def test_the_choice_follows_the_layouts_and_the_direction():
    # With channels last the operator splits the kernel along H alone.
    strided, of = conv(64, 64, 32, stride=2, batch=16), ("grad_input", "float16", load_profile("950PR_9599"))
    last = Layouts(*["NDHWC"] * 3)
    made = chosen_plan(strided, *of, layouts=last)
    assert made == replace(nest_plan(strided, *of, layouts=last), chosen_by="product")
    assert (made.tiling.kernel_split, chosen_plan(strided, *of).tiling.kernel_split) == ("h", "hw")
    # Forwards it never takes basic blocks.
    deep, of = conv(256, 256, 32, depth=8, batch=4), ("grad_input", "float16", B2)
    made = chosen_plan(deep, *of, transposed_forward=True)
    assert made == replace(nest_plan(deep, *of, transposed_forward=True), chosen_by="product")
    assert made != chosen_plan(deep, *of)


# -------------------------------------------------------------------------------------------------------
# Do nests get the fields of a product's plan as they mean them: copies, depths, segments, what stays?
# -------------------------------------------------------------------------------------------------------

FIELDS_B2, PR = load_profile("910B2"), load_profile("950PR_9589")


def fields(problem, gradient, profile, dtype="float16"):
    return nest_plan(problem, gradient, dtype, profile).tiling


@pytest.mark.parametrize(
    ("problem", "copies"),
    [
        # A copy of grad_output, and of the weights for each of four phases: of the only kernel depth, or of
        # the one at which the only depth of grad_output is met.
        (ConvProblem((2, 16, 2, 24, 24), (32, 16, 1, 4, 4), (1, 2, 2), (0, 1, 1)), (1, 4)),
        (ConvProblem((2, 16, 1, 24, 24), (32, 16, 3, 4, 4), (1, 2, 2), 1), (1, 4)),
    ],
)
def test_copies_of_whole_operands_of_a_split_kernel(problem, copies):
    told = operators_plan(problem, "grad_input", "float16", PR)
    assert (told.kernel_split, told.al1_buffers, told.bl1_buffers) == ("hw", 1, 1)
    tiling = fields(problem, "grad_input", PR)
    assert (tiling.al1_buffers, tiling.bl1_buffers) == copies


@pytest.mark.parametrize(
    ("batch", "depths", "parts"),
    # Images alone keep 32 cores busy: all four depths in a task. 16 images leave two depths for each. With 8
    # there is one, which is what nests take without being told.
    [(32, 4, 1), (16, 2, 2), (8, 1, 0)],
)
def test_depths_of_a_task_of_grad_input(batch, depths, parts):
    problem = ConvProblem((batch, 16, 4, 8, 16), (32, 16, 1, 1, 1))
    told = operators_plan(problem, "grad_input", "float16", PR)
    assert (told.strategy, told.single_core_d) == ("full_load", depths)
    assert fields(problem, "grad_input", PR).depth_dim == parts


@pytest.mark.parametrize(
    ("channels", "segments"), [(224, (1, 0)), (225, (2, 224)), (448, (2, 224)), (449, (3, 224))]
)
def test_segments_of_a_long_reduction(channels, segments):
    # float32 from 2048 / 9 channels on, 224 in each segment: 28 groups of 8 are 2016 of k, 29 are 2088. 32
    # images are a task for each core.
    tiling = fields(ConvProblem((32, 96, 9, 9), (channels, 96, 3, 3), 1, 1), "grad_input", PR, "float32")
    assert (tiling.k_split, tiling.single_core_k) == segments


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        # Half of L0 holds 256 of k beside 32 pixels, of which rows of taps take 240. Windows of 72 make that
        # 288, which are 36864 bytes.
        (ConvProblem((32, 32, 5, 5), (256, 32, 3, 3), 1, 1), "slices of 36864 bytes"),
        # 2048 / 625 taps are three channels, less than a group of 8.
        (ConvProblem((32, 32, 25, 25), (64, 32, 25, 25), 5, 12), "segments that end inside a group of 8"),
    ],
)
def test_segments_that_no_nest_takes_are_refused_with_the_reason(layer, words):
    assert operators_plan(layer, "grad_input", "float32", PR).k_segment
    with pytest.raises(UnsupportedError, match=words):
        fields(layer, "grad_input", PR, "float32")
