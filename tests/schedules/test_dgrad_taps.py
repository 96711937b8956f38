"""Is a grad_input by rows of taps, single taps or four channels a tap made with the bits of its order?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ascendsim import estimate
from ascendsim.errors import ConfigError
from ascendsim.instructions.cube import Im2col, Mmad, TapRows, Window
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.options.budget import reckoned_instructions
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.reference.call import any_dgrad, reference_gradients
from ascendsim.ops.reference.ordered import reduction_of
from ascendsim.profile import load_profile
from ascendsim.program.walk import alike
from tests.helpers.both_engines import assert_engines_agree, time_kernel
from tests.helpers.conv_cases import (
    SPLIT,
    UNIFIED,
    assert_each_class_is_missed,
    assert_ordered,
    assert_ordered_without_instructions,
    assert_same_bits,
    call_of,
    outcomes_of,
    run,
    steps_of,
    tensors_of,
)
from tests.helpers.oracles_timing import assert_as_declared
from tests.helpers.slow_tilings import chosen_plan
from tests.helpers.toy_machines import toy_split

# -------------------------------------------------------------------------------------------------------
# Is a grad_input by rows of taps, or by single ones, made with the bits of its order, and no empty pass?
# -------------------------------------------------------------------------------------------------------

TOY = toy_split(**{"cores.cube": 5, "cores.vector": 10, "buffers.L1.capacity_bytes": 65536})
ONLY_INPUT = (True, False, False)
# Tasks of 32 pixels by 16 channels; two windows of 3 taps in a tile of weights, one in one of grad_output.
IN_TURN = Tiling(
    *(16, 16, 16, 3, 6), used_cores=4, single_core_m=32, mapping="interleaved", task_order="batch group d m n"
)
PROBLEMS = {
    "3x3": ConvProblem((2, 40, 8, 9), (40, 40, 3, 3), 1, 1),
    "strided": ConvProblem((2, 20, 9, 13), (36, 20, 3, 3), (3, 2), 1),
    "stride beyond the kernel": ConvProblem((1, 16, 11, 9), (20, 16, 2, 2), (5, 4)),
    "taps apart": ConvProblem((3, 16, 7, 6), (20, 16, 3, 3), 1, 9, 9),
    "one tile in a row": ConvProblem((1, 16, 2, 40), (16, 16, 1, 3), 2, (0, 5), (1, 5)),
    "depth": ConvProblem((1, 16, 4, 6, 5), (36, 16, 2, 3, 3), (2, 1, 1), (0, 1, 1)),
    "groups": ConvProblem((2, 32, 6, 6), (40, 16, 3, 2), 2, 1, groups=2),
    "line": ConvProblem((2, 16, 50), (20, 16, 7), 3, 2),
    # Tiles of 16, 16 and 8 pixels, of which each reads the one pixel that there is.
    "one pixel": ConvProblem((1, 16, 40, 1), (20, 16, 40, 1)),
}
SEGMENTS = replace(IN_TURN, k_split=2, single_core_k=32)
LOOPS = ("kh", "khkw")
everywhere = pytest.mark.parametrize("name", PROBLEMS)
both = pytest.mark.parametrize("loop", LOOPS)


def planned(problem, loop, tiling=IN_TURN, profile=TOY, dtype="float16", **options):
    """A call whose grad_input has a loop over taps outside of its products."""
    call = call_of(problem, dtype, profile=profile, **options)
    plan = Plan("dgrad_passes", replace(tiling, tap_loop=loop))
    return replace(call, plans=call.plans | {"grad_input": plan})


def kernel_of(name, loop, tiling=IN_TURN):
    nodes = lower(planned(PROBLEMS[name], loop, tiling), ONLY_INPUT).kernels
    return next(node for node in nodes if node.name == "grad_input")


@pytest.mark.parametrize("nest", ["dgrad_shares", "kh", "khkw", "dgrad_split"])
@everywhere
def test_what_is_known_by_the_kind_of_a_tile_is_that_of_each_tile(name, nest):
    plan = Plan("dgrad_passes", replace(IN_TURN, tap_loop=nest)) if nest in LOOPS else Plan(nest, IN_TURN)
    if nest == "dgrad_split":
        plan = replace(plan, tiling=replace(IN_TURN, kernel_split="hw", step_ka=9, step_kb=9))
    call = call_of(PROBLEMS[name], profile=TOY)
    try:
        tasks = replace(call, plans=call.plans | {"grad_input": plan}).schedule("grad_input").tasks
    except ConfigError:
        assert nest == "dgrad_split"  # not every stride splits
        return
    for cut in getattr(tasks, "cuts", [tasks]):
        boxes = list({box[1:]: box for box in cut.left_boxes if box.groups}.values())
        if not boxes:
            continue  # pixels that meet no tap
        tiles = [[cut.tile(run, box) for box in boxes] for run in cut.pixel_tiles]
        assert cut.left_bytes.tolist() == [max(tile.l1_bytes for tile in own) for own in tiles]
        places = [
            [(tile.rows, tile.cols) if tile.rows and tile.cols else (slice(0, 0),) * 2 for tile in own]
            for own in tiles
        ]
        assert cut.windows.tolist() == [
            [[number for own in both for number in (own.start, own.stop - own.start)] for both in each]
            for each in places
        ]
        shapes = [
            (run[1], *[tile._replace(rows=None, cols=None) for tile in own])
            for run, own in zip(cut.pixel_tiles, tiles, strict=True)
        ]
        assert cut.pixel_shapes.tolist() == alike(shapes)


@pytest.mark.parametrize("loop", [*LOOPS, ""])
@pytest.mark.parametrize("sizes", [((40, 48), (400, 48)), ((1, 480), (1, 4800))])
def test_no_more_image_tiles_are_made_for_a_larger_image(sizes, loop, monkeypatch):
    made, tile = [], Sliding.tile
    monkeypatch.setattr(Sliding, "tile", lambda *asked: made.append(asked) or tile(*asked))
    counts = []
    for size in sizes:
        problem = ConvProblem((1, 16, *size), (16, 16, 3, 3), 1, 1)
        call, plan = call_of(problem, profile=TOY), Plan("dgrad_shares", IN_TURN)
        call = planned(problem, loop) if loop else replace(call, plans=call.plans | {"grad_input": plan})
        made.clear()
        [kernel] = [each for each in lower(call, ONLY_INPUT).kernels if each.name == "grad_input"]
        assert reckoned_instructions(kernel)
        counts.append(len(made))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("data", ["wide", "special"])
@both
@everywhere
def test_the_bits_are_those_of_its_order(name, loop, data):
    # Inf and NaN tell what is multiplied by a zero, and what is left out.
    call, tensors = planned(PROBLEMS[name], loop), tensors_of(PROBLEMS[name], data=data)
    assert_ordered(call, tensors, "grad_input")


@both
@pytest.mark.parametrize("name", ["3x3", "strided", "depth"])
def test_segments_of_channels_are_added_one_after_the_other(name, loop):
    # 36 and 40 channels are segments of 32 and one more group.
    call, tensors = planned(PROBLEMS[name], loop, SEGMENTS), tensors_of(PROBLEMS[name], data="special")
    assert len(call.schedule("grad_input").order().parts) == 2
    assert_ordered(call, tensors, "grad_input")


@both
@everywhere
def test_sums_of_integers_are_those_of_all_taps(name, loop):
    # Integers are added exactly in any order, and a pass that is left out has only zeros to add.
    tensors = tensors_of(PROBLEMS[name], data="integers")
    made, _ = run(planned(PROBLEMS[name], loop), tensors, mask=ONLY_INPUT)
    want, _ = run(call_of(PROBLEMS[name], profile=TOY), tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@both
def test_unified_cores_insert_zeros_on_the_way(loop):
    problem = PROBLEMS["strided"]
    call, tensors = planned(problem, loop, replace(IN_TURN, used_cores=3), UNIFIED), tensors_of(problem)
    assert_ordered(call, tensors, "grad_input")


def test_rows_before_channels_are_another_order():
    # The same products, of which an accumulation model takes 16 at a time in another order: sums differ.
    problem = PROBLEMS["3x3"]
    tensors = tensors_of(problem, "float32")
    calls = [planned(problem, loop, dtype="float32") for loop in LOOPS]
    usual = Plan("dgrad_shares", IN_TURN)
    calls.append(replace(calls[0], plans=calls[0].plans | {"grad_input": usual}))
    made = [reference_gradients(call, **tensors, mask=ONLY_INPUT)["grad_input"] for call in calls]
    assert (made[0] != made[1]).any()
    assert (made[0] != made[2]).any()


@pytest.mark.parametrize("tiling", [IN_TURN, SEGMENTS], ids=["whole", "segments"])
@both
@everywhere
def test_gradients_without_instructions_have_the_same_bits(name, loop, tiling):
    problem = PROBLEMS[name]
    # Of 16 to 32 channels there is one segment, which is the whole.
    parts = -(-problem.small_channels // 32)
    call = planned(problem, loop, replace(tiling, k_split=min(parts, tiling.k_split)))
    tensors = tensors_of(problem, data="special")
    assert_ordered_without_instructions(call, tensors, "grad_input")


def test_a_pass_that_reads_padding_alone_is_left_out():
    # Taps 9 pixels apart over 7 x 6 pixels: one of nine reads any. The 42 pixels are tiles of 16, 16 and 10
    # in tasks of 32; 20 channels are two groups, of which a tile in L1 holds one row of taps of a group.
    by_row, by_tap = (
        Counter(type(step).__name__ for step in steps_of(kernel_of("taps apart", loop))) for loop in LOOPS
    )
    tiles = 3 * 3  # of three images
    assert by_row["Fixpipe"] == tiles
    assert by_row["Mmad"] == tiles * 2 * 3  # a row of three taps, for each group
    # Tiles end where one of the 7 rows of an image ends, and where a task does.
    rows = 3 * len({*range(0, 42, 6), 32})
    assert (by_tap["Fixpipe"], by_tap["Mmad"]) == (rows, rows * 2)


def test_what_no_tap_reads_is_never_multiplied_and_stays_zero():
    # Rows 2 to 4, 7 to 9 of 11 meet no tap of two at a stride of 5; tiles of a row are 9 pixels.
    kernel = kernel_of("stride beyond the kernel", "khkw")
    assert kernel.phases[0].name != "compute"
    written = {step.dst.index[4].start // 9 for step in steps_of(kernel) if type(step).__name__ == "Fixpipe"}
    assert written == {0, 1, 5, 6}


def test_a_row_of_taps_needs_no_rows_around_its_pixels():
    # 16 pixels of 9 columns lie in two or three rows, and three rows of taps reach two rows further.
    def most(schedule):
        cut = schedule.tasks
        return max(cut.tile(run, box).window.rows for run in cut.pixel_tiles for box in cut.left_boxes)

    call = planned(PROBLEMS["3x3"], "kh")
    usual = replace(
        call, plans=call.plans | {"grad_input": Plan("dgrad_shares", replace(IN_TURN, step_ka=9))}
    )
    assert most(call.schedule("grad_input")) == 3
    assert most(usual.schedule("grad_input")) == 5


@both
@pytest.mark.parametrize("name", ["strided", "one tile in a row", "depth", "groups"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name, loop):
    assert_as_declared(planned(PROBLEMS[name], loop), tensors_of(PROBLEMS[name]), ONLY_INPUT)


def outcomes(loop, hazards):
    """Return the different results of random orders with some classes of waits; a failure counts as one."""
    problem = PROBLEMS["strided"]
    return outcomes_of(planned(problem, loop), tensors_of(problem, data="integers"), hazards)


@both
def test_a_missing_class_of_waits_is_found(loop):
    assert_each_class_is_missed(partial(outcomes, loop))


@both
@everywhere
def test_engines_agree_and_folded_cores_are_alike(name, loop):
    kernel = kernel_of(name, loop)
    assert time_kernel(kernel, TOY).cycles == time_kernel(kernel, TOY, folded=False).cycles


@pytest.mark.parametrize(
    ("problem", "loop"),
    [
        (PROBLEMS["3x3"], ""),
        (ConvProblem((1, 16, 9, 9), (16, 16, 3, 3), 2, 1, transposed=True), "kh"),
    ],
)
def test_what_it_cannot_do_is_refused(problem, loop):
    with pytest.raises(ConfigError, match=r"tap_loop is .*; dgrad_passes takes kh or khkw"):
        planned(problem, loop).schedule("grad_input")


def test_the_product_takes_it_for_taps_too_far_apart_for_load3d():
    # A gap of 260 pixels does not fit in a byte: between rows of taps, and between the taps of a row.
    layer, device = ConvProblem((1, 32, 12, 12), (64, 32, 3, 3), 1, 250, 250), load_profile("950PR_9589")
    assert chosen_plan(layer, "grad_input", "float16", device).schedule == "dgrad_shares"
    for far, loop in (((260, 250), "kh"), ((250, 260), "khkw"), ((260, 260), "khkw")):
        plan = chosen_plan(replace(layer, padding=far, dilation=far), "grad_input", "float16", device)
        assert (plan.schedule, plan.tiling.tap_loop, plan.instead) == ("dgrad_passes", loop, "")


def test_the_nest_alone_takes_a_row_of_taps_at_a_time():
    layer, device = ConvProblem((2, 32, 12, 12), (64, 32, 3, 3), 1, 1), load_profile("950PR_9589")
    for asked in ({"schedule": "dgrad_passes"}, {"tiling": {"grad_input": {"schedule": "dgrad_passes"}}}):
        made = estimate(layer, product=device, output_mask=ONLY_INPUT, **asked).plans["grad_input"]
        assert (made.schedule, made.tiling.tap_loop) == ("dgrad_passes", "kh")


# --- Is a grad_input of few channels computed with four of them a tap, with the bits of its order? -----

NEW = load_profile("950PR_9589")
# Slices of 4 and of 8 taps of 4 channels; tasks of 32 pixels by 16 channels.
C04_IN_TURN = Tiling(
    *(16, 16, 16, 9, 9), used_cores=4, single_core_m=32, mapping="interleaved", task_order="batch group d m n"
)
C04_PROBLEMS = {
    "three channels": ConvProblem((2, 20, 8, 9), (3, 20, 3, 3), 1, 1),
    "one channel": ConvProblem((1, 40, 7, 6), (1, 40, 3, 3), 1, 1),
    "four channels": ConvProblem((1, 16, 6, 10), (4, 16, 2, 4), 1, 0),
    "one tap": ConvProblem((3, 16, 5, 5), (2, 16, 1, 1)),
    "groups": ConvProblem((2, 32, 6, 6), (6, 16, 3, 3), 1, 1, groups=2),
    "depth": ConvProblem((1, 16, 3, 6, 5), (3, 16, 2, 3, 3), 1, (0, 1, 1)),
}


def planned_c04(problem, tiling=C04_IN_TURN, profile=TOY, dtype="float16", **options):
    """A call whose grad_input takes four channels a tap."""
    call = call_of(problem, dtype, profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_input": Plan("dgrad_c04", tiling)})


def kernel_of_c04(problem, **options):
    nodes = lower(planned_c04(problem, **options), ONLY_INPUT).kernels
    return next(node for node in nodes if node.name == "grad_input")


def instructions(kernel):
    return Counter(
        type(step).__name__
        for phase in kernel.phases
        for work in phase.work
        for step in work.build().instructions
    )


@pytest.mark.parametrize("base_k", [16, 32])
@pytest.mark.parametrize("name", C04_PROBLEMS)
def test_the_bits_are_those_of_its_order_c04(name, base_k):
    call = planned_c04(C04_PROBLEMS[name], replace(C04_IN_TURN, base_k=base_k))
    tensors = tensors_of(C04_PROBLEMS[name], data="wide")
    assert_ordered(call, tensors, "grad_input")


@pytest.mark.parametrize("name", C04_PROBLEMS)
def test_gradients_without_instructions_have_the_same_bits_c04(name):
    call, tensors = planned_c04(C04_PROBLEMS[name]), tensors_of(C04_PROBLEMS[name], data="special")
    assert_ordered_without_instructions(call, tensors, "grad_input")


def test_a_block_of_the_reduction_holds_four_taps_and_not_one():
    # The same numbers in the same order, of which an accumulation model takes 16 at a time: sums differ.
    problem = C04_PROBLEMS["three channels"]
    own, usual = planned_c04(problem, replace(C04_IN_TURN, base_k=32)), call_of(problem, profile=TOY)
    orders = [call.schedule("grad_input").order() for call in (own, usual)]
    # 9 taps in Mmads of 8 and 1, of which the last one has 4 products.
    assert (orders[0].c0, orders[0].slices) == (4, (8, 1))
    given = tensors_of(problem)
    reduce = reduction_of(own.accumulation, problem.macs)
    sums = [any_dgrad(problem, given["grad_output"], given["weight"], order, reduce) for order in orders]
    assert 0 < np.count_nonzero(sums[0] != sums[1]) < sums[0].size


def test_both_gradients_of_a_call_have_their_own_layout_of_grad_output():
    call = planned_c04(C04_PROBLEMS["three channels"])
    tensors = tensors_of(C04_PROBLEMS["three channels"])
    made, _ = run(call, tensors, mask=(True, True, False))
    want = reference_gradients(call, **tensors, mask=(True, True, False))
    for gradient in ("grad_input", "grad_weight"):
        assert_same_bits(made[gradient], want[gradient])


def test_the_product_takes_it_for_few_channels_and_needs_fewer_products():
    problem = ConvProblem((1, 64, 32, 32), (3, 64, 3, 3), 1, 1)
    plan = chosen_plan(problem, "grad_input", "float16", NEW)
    assert (plan.schedule, plan.chosen_by, plan.instead) == ("dgrad_c04", "product", "")
    # 9 taps of 4 channels are 36 products, 48 in whole fractals: one Mmad for each base block.
    assert plan.tiling.base_k == 48
    made = instructions(kernel_of_c04(problem, tiling=plan.tiling, profile=NEW))
    blocks = 1024 // plan.tiling.base_m * (64 // plan.tiling.base_n)
    assert made["Mmad"] == made["LoadL0A"] == made["LoadL0B"] == made["Fixpipe"] == blocks
    # Wide operands, strides and more channels are not for it.
    for other, dtype in ((problem, "float32"), (replace(problem, weight=(5, 64, 3, 3)), "float16")):
        assert chosen_plan(other, "grad_input", dtype, NEW).schedule == "dgrad_shares"


def test_four_taps_of_four_channels_take_the_cycles_of_one_of_sixteen():
    # 32 pixels of one row: two fractals for each 32 bytes of the reduction.
    few, many = (
        Im2col(Window(1, 4, 40, 0, 0, 32, (2, 2), (1, 1), (1, 1), c0), 0, 32, 0, pairs, 2)
        for c0, pairs in ((4, 4), (16, 1))
    )
    assert few.cycles(NEW, "L0A") == many.cycles(NEW, "L0A")
    five = few._replace(groups=5)
    assert five.cycles(NEW, "L0A") == many._replace(groups=2).cycles(NEW, "L0A")
    # Weights lie in the order in which they are added: one command.
    taps = TapRows(9, True, 0, 9, 4, 16, 2)
    assert taps.load2d_commands(NEW) == 1
    assert taps.cycles(NEW, "L0B") == TapRows(9, True, 0, 3, 16, 16, 2).cycles(NEW, "L0B")


@pytest.mark.parametrize("name", ["three channels", "four channels", "depth"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot_c04(name):
    assert_as_declared(planned_c04(C04_PROBLEMS[name]), tensors_of(C04_PROBLEMS[name]), ONLY_INPUT)


def outcomes_c04(hazards):
    """Return the different results of random orders with some classes of waits; a failure counts as one."""
    problem = C04_PROBLEMS["three channels"]
    return outcomes_of(planned_c04(problem), tensors_of(problem, data="integers"), hazards)


def test_a_missing_class_of_waits_is_found_c04():
    assert_each_class_is_missed(outcomes_c04)


@pytest.mark.parametrize("name", ["three channels", "groups", "depth"])
def test_engines_agree_and_folded_cores_are_alike_c04(name):
    kernel = kernel_of_c04(C04_PROBLEMS[name])
    assert time_kernel(kernel, TOY).cycles == time_kernel(kernel, TOY, folded=False).cycles


@pytest.mark.parametrize(
    ("problem", "dtype", "profile", "why"),
    [
        (ConvProblem((1, 16, 6, 6), (5, 16, 3, 3), 1, 1), "float16", TOY, "grad_input of 5 channels"),
        (C04_PROBLEMS["three channels"], "float32", TOY, "channels of 16 bits"),
        (ConvProblem((1, 16, 9, 9), (3, 16, 3, 3), 2, 1), "float16", TOY, "stride and dilation 1"),
        (ConvProblem((1, 16, 9, 9), (3, 16, 3, 3), 1, 1, 2), "float16", TOY, "stride and dilation 1"),
        (C04_PROBLEMS["three channels"], "float16", load_profile("910B2"), "as they lie"),
    ],
)
def test_what_it_cannot_do_is_refused_c04(problem, dtype, profile, why):
    with pytest.raises(ConfigError, match=why):
        planned_c04(problem, profile=profile, dtype=dtype).schedule("grad_input")


# --- Kernels of 25 to 121 taps: are their nests as small as their tiles are different, and right? ------

# Blocks that begin anywhere in a row, gaps between pixels, groups, kernel depths, tiles in the padding.
MANY_PROBLEMS = [
    ConvProblem((1, 3, 64, 58), (64, 3, 7, 7), stride=2, padding=3),
    ConvProblem((2, 16, 23, 23), (64, 16, 5, 5), padding=2),
    ConvProblem((1, 8, 30, 30), (32, 4, 6, 6), padding=5, groups=2),
    ConvProblem((1, 16, 6, 14, 14), (32, 16, 2, 5, 5), padding=2),
    ConvProblem((1, 4, 61, 19), (96, 4, 11, 11), stride=4, padding=2),
]
PRODUCTS = ("910B2", "910_9382", "950PR_9589")


def kernel_of_many(problem, product):
    made = [result.kernel for result in estimate(problem, product=product, output_mask=ONLY_INPUT).kernels]
    (kernel,) = [kernel for kernel in made if kernel.name == "grad_input"]
    return kernel


def programs_of(kernel):
    (phase,) = [phase for phase in kernel.phases if phase.name == "compute"]
    return [work.build() for work in phase.work]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("problem", MANY_PROBLEMS, ids=str)
def test_products_cost_by_their_sizes_alone(problem, product):
    # However many taps there are, and wherever in a row a block begins: a product has a cost for each m, k
    # and n, as the first one into its accumulator and as another.
    programs = programs_of(kernel_of_many(problem, product))
    made = {each[3:] for program in programs for each in program.instructions if isinstance(each, Mmad)}
    heights, depths, widths = ({sizes[axis] for sizes in made} for axis in range(3))
    for program in programs:
        forms = [own.instruction[3:] for own in program.nest.forms if isinstance(own.instruction, Mmad)]
        assert len(forms) == len(set(forms)) == len(heights) * len(depths) * len(widths) * 2


@pytest.mark.parametrize("problem", MANY_PROBLEMS[:3], ids=str)
def test_engines_agree(problem):
    assert_engines_agree([kernel_of_many(problem, "910B2")], load_profile("910B2"))


@pytest.mark.parametrize("problem", MANY_PROBLEMS[1:4], ids=str)
def test_bits_are_those_of_the_definition(problem):
    call, tensors = call_of(problem, profile=SPLIT), tensors_of(problem, data="wide")
    assert_ordered(call, tensors, "grad_input")
