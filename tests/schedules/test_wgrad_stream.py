"""Does stream-K cut the last round of grad_weight alone, with the bits of the order that it implies?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import (
    assert_each_class_is_missed,
    assert_same_bits,
    blocks_dealt,
    call_of,
    outcomes_of,
    run,
    segments_of,
    tensors_of,
)
from tests.helpers.oracles_timing import assert_as_declared
from tests.helpers.toy_machines import toy_split, toy_unified

ONLY_WEIGHT = (False, True, False)
ROOM = {"buffers.L1.capacity_bytes": 65536, "buffers.L0B.capacity_bytes": 4096, "cores.cube": 4}
SPLIT, UNIFIED = toy_split(**ROOM, **{"cores.vector": 8}), toy_unified(**ROOM)
# 48 rows and 32 channels of 9 taps: 3 x 2 tasks of 16 x 144 for 4 cores. Four go first, two are left over,
# each in two parts: of two images, or of 2 of 4 rows.
PROBLEM = ConvProblem((2, 24, 4, 8), (40, 24, 3, 3), 1, 1)
BY_IMAGES = Tiling(
    *(16, 48, 16, 2, 2),
    single_core_m=16,
    single_core_n=144,
    used_cores=4,
    mapping="interleaved",
    task_order="m n d group",
    k_split=2,
    stream_axis="batch_depth",
)
BY_ROWS = replace(BY_IMAGES, stream_axis="height")
PROBLEMS = [
    PROBLEM,
    ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
    ConvProblem((1, 18, 4, 5, 5), (18, 18, 2, 1, 2)),
    ConvProblem((1, 40, 30), (24, 20, 3), groups=2),
    ConvProblem((1, 16, 1, 5, 5), (16, 16, 2, 1, 1), padding=(3, 0, 0)),  # parts that meet padding alone
    # So do whole kernel depths: of the last round of two tasks the second, or the only one of it.
    ConvProblem((1, 16, 1, 5, 5), (32, 16, 3, 1, 1), padding=(1, 0, 0)),
    ConvProblem((1, 16, 1, 5, 5), (16, 16, 5, 1, 1), padding=(2, 0, 0)),
]


def planned(tiling=BY_IMAGES, problem=PROBLEM, profile=SPLIT, *, deterministic=True, dtype="float16"):
    """A call whose grad_weight is made by stream-K."""
    call = call_of(problem, dtype, profile=profile, deterministic=deterministic)
    return replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_stream", tiling)})


def dealt(tiling, problem=PROBLEM):
    """The base blocks of each core; part 2 is the whole."""
    return blocks_dealt(planned(tiling, problem))


def test_only_the_last_round_is_cut():
    # Six tasks in order: (row 0, column 0), (0, 144), (16, 0), ... A task is 3 base blocks of 48 columns.
    cores = dealt(BY_IMAGES)
    assert [blocks[0] for blocks in cores] == [(2, 0, 0), (2, 0, 144), (2, 16, 0), (2, 16, 144)]
    # Tasks 4 and 5 are left: part 0 and 1 of each, one on every core.
    assert [blocks[3] for blocks in cores] == [(0, 32, 0), (1, 32, 0), (0, 32, 144), (1, 32, 144)]
    assert [len(blocks) for blocks in cores] == [6] * 4


def test_parts_are_images_or_rows():
    images = planned(BY_IMAGES).schedule("grad_weight").tasks
    assert [[run for _, _, run in segments_of(images, 0, part)] for part in (0, 1)] == [
        [(0, 0, 32)],
        [(1, 0, 32)],
    ]
    rows = planned(BY_ROWS).schedule("grad_weight").tasks
    assert [[run for _, _, run in segments_of(rows, 0, part)] for part in (0, 1)] == [
        [(0, 0, 16), (1, 0, 16)],
        [(0, 16, 16), (1, 16, 16)],
    ]
    # The whole is cut by L1 alone: 2 slices of 16 pixels.
    assert [run for _, _, run in segments_of(rows, 0, rows.whole)] == [(0, 0, 32), (1, 0, 32)]


@pytest.mark.parametrize("changes", [{"k_split": 1}, {"stream_axis": ""}], ids=str)
def test_parts_and_axis_go_together(changes):
    with pytest.raises(ConfigError, match="parts need an axis, and an axis needs parts"):
        planned(replace(BY_IMAGES, **changes)).schedule("grad_weight")


def test_rows_that_l1_does_not_hold_are_not_cut():
    # Ranges of 32 pixels may lie in two rows of 4,001, of which 64 KiB of L1 hold not one.
    long = ConvProblem((1, 16, 2, 4001), (16, 16, 3, 3), 1, 1)
    with pytest.raises(ConfigError, match=r"whole rows of the image, .* do not fit in L1.* cut its rows"):
        planned(BY_ROWS, long).schedule("grad_weight").dealt()


def test_more_parts_than_cores_are_refused():
    with pytest.raises(ConfigError, match="2 tasks in 3 parts each, but the plan uses 4 cores"):
        planned(replace(BY_IMAGES, k_split=3)).schedule("grad_weight")


def test_the_last_round_is_that_of_the_cores_of_the_plan():
    # On four of eight cores the six tasks are two rounds all the same; eight cores would have only one, of
    # which twelve parts were too many.
    wide = toy_split(**ROOM | {"cores.cube": 8, "cores.vector": 16})
    call = planned(BY_IMAGES, profile=wide)
    assert blocks_dealt(call) == dealt(BY_IMAGES)
    tensors = tensors_of(PROBLEM, data="wide")
    made, _ = run(call, tensors, mask=ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


LINE = ConvProblem((3, 20, 50), (24, 20, 3), 1, 1)
# Rows of 21, 16 and 19 pixels; strips of 8 leave 5, none and 3 for the last one.
STRIPPED = [
    ConvProblem((2, 24, 4, 21), (40, 24, 3, 3), 1, 1),
    ConvProblem((1, 20, 9, 31), (16, 20, 3, 2), (2, 1), (1, 0), (1, 15)),
    ConvProblem((2, 16, 2, 5, 19), (16, 16, 2, 3, 3), 1, (0, 1, 1)),
    ConvProblem((1, 20, 6, 40), (24, 20, 3, 3), (1, 2), (1, 2)),
    LINE,
]
WHOLE = replace(BY_IMAGES, k_split=1, stream_axis="")
in_strips = pytest.mark.parametrize("problem", STRIPPED, ids=str)
by_axis = pytest.mark.parametrize("tiling", [BY_IMAGES, BY_ROWS, WHOLE], ids=["images", "rows", "whole"])


@pytest.mark.parametrize("tiling", [BY_IMAGES, WHOLE], ids=["parts", ""])
def test_tiles_of_a_line_end_where_its_strips_end(tiling):
    # 50 columns in strips of 24, each in tiles of up to 2 slices of 16: 24 and 24 and 2, where without
    # strips a tile has 32.
    schedule = planned(replace(tiling, strip_w=24), LINE).schedule("grad_weight")
    assert schedule.order().ranges == ((0, 24), (24, 24), (48, 2))
    assert planned(tiling, LINE).schedule("grad_weight").order().ranges == ((0, 32), (32, 18))


def test_strips_of_several_rows_are_reduced_one_after_the_other():
    # 4 rows of 21 columns in strips of 8: 32 pixels each, a tile of 2 slices of 16; the last one has 4 x 5.
    tasks = planned(replace(WHOLE, strip_w=8), STRIPPED[0]).schedule("grad_weight").tasks
    assert tasks.ranges_of_image == [(0, 32), (32, 32), (64, 20)]
    # Columns 16 to 20 of all rows, and under three columns of taps those from 15 on: 21 is padding.
    run = segments_of(tasks, 0, tasks.whole)[2][2][1:]
    assert tasks.left_place(run) == (slice(0, 4), slice(16, 21))
    assert tasks.tile(run, tasks.column_blocks[0].box)[2:4] == (slice(0, 4), slice(15, 21))
    # Two rows a part, three strips each.
    rows = planned(replace(BY_ROWS, strip_w=8), STRIPPED[0]).schedule("grad_weight").tasks
    assert [run[1:] for _, _, run in segments_of(rows, 0, 1) if not run[0]] == [(16, 16), (48, 16), (74, 10)]


def test_a_run_inside_a_strip_takes_the_rows_that_it_touches():
    # 9 rows in strips of 5: 16 pixels are 3 rows and one pixel, the next ones begin at pixel 16, in row 3.
    tiling = replace(WHOLE, strip_w=5, step_ka=1, step_kb=1)
    tasks = planned(tiling, ConvProblem((1, 16, 9, 12), (16, 16, 1, 1))).schedule("grad_weight").tasks
    first, second, *_ = [run[1:] for _, _, run in segments_of(tasks, 0, tasks.whole)]
    assert (first, second) == ((0, 16), (16, 16))
    assert tasks.left_tiles(np.array([first, second])).tolist() == [[0, 20], [15, 20]]
    assert tasks.left_place((15, 20)) == (slice(3, 7), slice(0, 5))


def test_columns_fit_beside_every_strip():
    # 32 pixels are 4 rows of the first strip of 8 columns, under 3 x 3 taps at most 6 x 10 pixels of input.
    # Of the last one, a column wide, they are 32 rows: 33 x 2 pixels, the others lie in the padding. Of the
    # two groups of channels that four columns touch those are 3,840 and 4,224 bytes; L1 has 4,096 a copy.
    small = toy_split(**{**ROOM, "buffers.L1.capacity_bytes": 10240}, **{"cores.vector": 8})

    def columns(width):
        problem = ConvProblem((1, 32, 40, width), (16, 32, 3, 3), 1, 1)
        schedule = planned(replace(WHOLE, base_n=64, strip_w=8), problem, small).schedule("grad_weight")
        assert all(schedule.program(tasks).instructions for tasks in schedule.dealt())
        return {(block.groups, block.box.channels) for block in schedule.tasks.column_blocks}

    assert columns(9) == {(3, 1)}
    # Of 18 columns of a strip alone blocks of four begin at 0, 4, 8, 12 and 16: the third one touches both.
    assert columns(8) == {(4, 1), (4, 2), (2, 1)}


@by_axis
@in_strips
def test_strips_have_the_bits_of_their_order(problem, tiling):
    call = planned(replace(tiling, strip_w=8), problem)
    tensors = tensors_of(problem, data="special")
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])
    without = Gradients(call, tensors, "program")
    assert without.possible(ONLY_WEIGHT) == ONLY_WEIGHT
    assert_same_bits(without.make(ONLY_WEIGHT)["grad_weight"], want["grad_weight"])


@in_strips
def test_strips_of_integers_add_up_to_the_same(problem):
    tensors = tensors_of(problem, data="integers")
    made, _ = run(planned(replace(BY_ROWS, strip_w=8), problem), tensors, mask=ONLY_WEIGHT)
    want, _ = run(planned(WHOLE, problem), tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


@by_axis
@in_strips
def test_engines_agree_on_strips(problem, tiling):
    kernel = kernel_of(replace(tiling, strip_w=8), problem)
    assert time_kernel(kernel, SPLIT).cycles == time_kernel(kernel, SPLIT, folded=False).cycles


@in_strips
def test_every_instruction_on_strips_touches_what_it_declares(problem):
    assert_as_declared(planned(replace(BY_ROWS, strip_w=8), problem), tensors_of(problem), ONLY_WEIGHT)


def test_a_missing_class_of_waits_in_strips_is_found():
    call = planned(replace(WHOLE, strip_w=8), STRIPPED[0])
    tensors = tensors_of(STRIPPED[0], data="integers")
    assert_each_class_is_missed(partial(outcomes_of, call, tensors, gradient="grad_weight"))


def test_an_axis_is_one_of_two():
    with pytest.raises(ConfigError, match="stream_axis is 'width'"):
        replace(BY_IMAGES, stream_axis="width")


@pytest.mark.parametrize("tiling", [BY_IMAGES, BY_ROWS], ids=["images", "rows"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_bits_are_those_of_its_order(problem, tiling):
    call, tensors = planned(tiling, problem), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("sums", ["in order", "tree"])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("tiling", [BY_IMAGES, BY_ROWS], ids=["images", "rows"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients_without_instructions_have_the_same_bits(problem, tiling, deterministic, sums):
    profile = replace(SPLIT, generation=SPLIT.generation._replace(deterministic_sum=sums))
    call, tensors = planned(tiling, problem, profile, deterministic=deterministic), tensors_of(problem)
    without = Gradients(call, tensors, "program")
    assert without.possible(ONLY_WEIGHT) == ONLY_WEIGHT
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(without.make(ONLY_WEIGHT)["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=str)
def test_unified_cores_add_in_the_same_order(problem):
    call, tensors = planned(problem=problem, profile=UNIFIED), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("order", ["program", "arrival", 5])
def test_no_order_of_arrival_changes_a_bit(order):
    # Not even where a call leaves the order open: the product's kernel has none to leave.
    call, tensors = planned(BY_ROWS, deterministic=False), tensors_of(PROBLEM, data="wide")
    assert not call.schedule("grad_weight").atomic
    made, _ = run(call, tensors, order, ONLY_WEIGHT)
    want = reference_gradients(planned(BY_ROWS, deterministic=False), **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


def test_a_tree_adds_in_another_order_than_one_after_the_other():
    # One task in 4 parts of an image each: ((0 + 1) + 2) + 3, or (0 + 1) + (2 + 3).
    problem = ConvProblem((4, 16, 3, 4), (16, 16, 1, 1))
    tiling = replace(BY_IMAGES, base_n=16, single_core_n=16, k_split=4)
    tensors = tensors_of(problem, "float32")
    found = {}
    for sums in ("in order", "tree"):
        profile = replace(SPLIT, generation=SPLIT.generation._replace(deterministic_sum=sums))
        call = planned(tiling, problem, profile, dtype="float32")
        made, _ = run(call, tensors, mask=ONLY_WEIGHT)
        want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
        assert_same_bits(made["grad_weight"], want["grad_weight"])
        found[sums] = made["grad_weight"]
    assert (found["tree"] != found["in order"]).any()


def kernel_of(tiling=BY_IMAGES, problem=PROBLEM):
    return lower(planned(tiling, problem), ONLY_WEIGHT).kernels[0]


def test_vector_cores_add_the_blocks_of_the_last_round_alone():
    kernel = kernel_of()
    compute, sums = kernel.phases
    counts = Counter(
        type(step).__name__
        for phase in (compute, sums)
        for work in phase.work
        for step in work.build().instructions
    )
    # 4 whole tasks of 3 blocks go straight to the result, 2 x 2 parts of 3 to the workspace: no atomic add.
    assert counts["Fixpipe"] == 4 * 3 + 2 * 2 * 3
    # 6 blocks of 16 x 48 float32, of which UB of 4 KiB holds 1 KiB, 5 rows: 4 pieces, one addition each.
    assert counts["Add"] == 6 * 4


@pytest.mark.parametrize("tiling", [BY_IMAGES, BY_ROWS], ids=["images", "rows"])
@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=str)
def test_engines_agree_and_folded_cores_are_alike(problem, tiling):
    kernel = kernel_of(tiling, problem)
    assert time_kernel(kernel, SPLIT).cycles == time_kernel(kernel, SPLIT, folded=False).cycles
