"""Do kernels run as many products and blocks as their plans say, in the slots that are counted?"""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.schedules.blocks import ReductionSteps, begins_of
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_each_class_is_missed, call_of, outcomes_of, tensors_of
from tests.helpers.toy_machines import toy_split
from tests.plans.test_product_tiling import KINDS, counts, kernel_of
from tests.plans.test_product_tiling import planned as planned_kinds

# -------------------------------------------------------------------------------------------------------
# Do the operators' kernels count the slots of L1, call for tiles ahead, clear slots as they are said to?
# -------------------------------------------------------------------------------------------------------
# Figures of the toy: a copy of 512 bytes into L1 takes 12 cycles and arrives 100 later, a flag takes 10.

COUNTING = toy_split(**{"cores.cube": 1, "cores.vector": 2})
AHEAD = replace(COUNTING, generation=COUNTING.generation._replace(loads_ahead=True))
# Three images of 16 pixels, 16 channels on both sides, one tap: an image is one tile of either operand, 512
# bytes each, and a product of one fractal.
IMAGES = ConvProblem((3, 16, 4, 4), (16, 16, 1, 1))
BLOCK = Tiling(16, 16, 16, used_cores=1)
STREAM = replace(BLOCK, task_order="group d m n", mapping="interleaved")
SHARES = replace(BLOCK, task_order="batch group d m n", mapping="interleaved")


def planned(profile, problem, gradient, tiling, schedule):
    call = call_of(problem, "float16", profile=profile, deterministic=True)
    return replace(call, plans=call.plans | {gradient: Plan(schedule, tiling)})


def core_of(profile, problem, gradient, tiling, schedule):
    """The one core of a gradient, as both engines time it."""
    call = planned(profile, problem, gradient, tiling, schedule)
    mask = gradient == "grad_input", gradient == "grad_weight", False
    [kernel] = [node for node in lower(call, mask).nodes if getattr(node, "name", "") == gradient]
    timeline = time_kernel(kernel, profile, l2_start="warm")
    [compute] = [phase for phase in timeline.phases if phase.name == "compute"]
    return compute.cores[0]


def steps(core, kind, ring=""):
    """The places in a program of some instructions, of those that write a slot of a ring."""
    return [
        at
        for at, made in enumerate(core.program.instructions)
        if type(made).__name__ == kind and (not ring or made.writes[0].name.startswith(ring))
    ]


def slots(core, ring):
    """The slots that copies fill, in order."""
    return [
        core.program.instructions[at].writes[0].name.removeprefix(ring)
        for at in steps(core, "CopyGmToL1", ring)
    ]


def test_steps_of_reductions():
    # Two reductions of 5 and 2 steps; tiles serve 2, 2, 1 and 2 steps.
    own = ReductionSteps([7, 7, 8, 8, 9, 7, 7], begins_of([5, 2]))
    assert own.chunk.tolist() == [0, 0, 1, 1, 2, 0, 0]
    assert own.chunks.tolist() == [3, 3, 3, 3, 3, 1, 1]
    # The next tile's first step; after the last tile of a reduction comes none, and that one stays.
    assert own.next.tolist() == [2, 2, 4, 4, 4, 5, 5]
    assert own.follow
    assert not ReductionSteps([0, 0], [True, True]).follow


@pytest.mark.parametrize("copies", [1, 2])
def test_one_tile_a_reduction_meets_the_slot_of_the_one_before(copies):
    tiling = replace(STREAM, al1_buffers=copies, bl1_buffers=copies)
    core = core_of(COUNTING, IMAGES, "grad_weight", tiling, "wgrad_stream")
    # The right tile comes first. Its copy (12) arrives (100), a flag (10), its load into L0B (2 + 512 / 64),
    # a flag: 142 cycles from one image to the next.
    assert [core.start[at] for at in steps(core, "CopyGmToL1", "B1")] == [1, 143, 285]
    # Behind it the left one (12 + 12 + 100 + 10), its load (2 + 512 / 256) and its latency (10), a flag, an
    # Mmad (2 + 1) and its latency (20), a flag, Fixpipe (8 + 1024 / 64) and its latency (40).
    assert core.done[-1] == 285 + 134 + 4 + 10 + 10 + 3 + 20 + 10 + 24 + 40


def test_our_own_nest_takes_turns():
    one, two = (
        core_of(COUNTING, IMAGES, "grad_weight", replace(BLOCK, al1_buffers=n, bl1_buffers=n), "wgrad")
        for n in (1, 2)
    )
    assert slots(two, "B1") == ["[0]", "[1]", "[0]"]
    assert two.done[-1] < one.done[-1]


# Images of 48 pixels: three tiles a reduction.
THREE = ConvProblem((2, 16, 4, 12), (16, 16, 1, 1))


def test_an_odd_number_of_tiles_shares_a_slot_across_the_border():
    core = core_of(COUNTING, THREE, "grad_weight", STREAM, "wgrad_stream")
    assert slots(core, "B1") == slots(core, "A1") == ["[0]", "[1]", "[0]"] * 2
    # The second image's first tile waits for the load of the first image's last one, and a flag.
    copies, loads = steps(core, "CopyGmToL1", "B1"), steps(core, "LoadL0B")
    assert core.start[copies[3]] == core.end[loads[2]] + 10
    in_turn = core_of(COUNTING, THREE, "grad_weight", BLOCK, "wgrad")
    assert slots(in_turn, "B1") == ["[0]", "[1]"] * 3


def test_even_numbers_of_tiles_take_turns_all_the_same():
    even = ConvProblem((2, 16, 4, 8), (16, 16, 1, 1))
    counted = core_of(COUNTING, even, "grad_weight", STREAM, "wgrad_stream")
    assert slots(counted, "B1") == ["[0]", "[1]"] * 2


def test_the_next_block_of_a_task_takes_the_next_slot():
    # Two row tiles of one task, of one tile each: the left tiles lie in both slots, and each is brought again
    # for every image; the right one of an image is there for the second block.
    rows = ConvProblem((1, 16, 4, 4), (48, 16, 1, 1))
    tiling = replace(STREAM, single_core_m=32)
    core = core_of(COUNTING, rows, "grad_weight", tiling, "wgrad_stream")
    # The third row tile is the first of the second task.
    assert slots(core, "A1") == ["[0]", "[1]", "[0]"]
    assert slots(core, "B1") == ["[0]"]


def test_strips_of_columns_begin_anew():
    # Strips of 8 columns x 4 rows: 2 tiles each, but the last one of 4 columns has one.
    strips = ConvProblem((1, 16, 4, 20), (16, 16, 1, 1))
    core = core_of(COUNTING, strips, "grad_weight", replace(STREAM, strip_w=8), "wgrad_stream")
    assert slots(core, "B1") == ["[0]", "[1]", "[0]", "[1]", "[0]"]
    last = ConvProblem((1, 16, 4, 12), (16, 16, 1, 1))
    core = core_of(COUNTING, last, "grad_weight", replace(STREAM, strip_w=4), "wgrad_stream")
    assert slots(core, "B1") == ["[0]", "[0]", "[0]"]


# 16 channels under three kernel depths, of which a depth meets as many as reach an image.
DEEP = ConvProblem((1, 16, 3, 4, 4), (16, 16, 3, 1, 1), padding=(1, 0, 0))


def test_kernel_depths_of_grad_input_meet_one_slot_where_it_counts_and_two_in_turn():
    counted, turns = (
        core_of(profile, DEEP, "grad_input", SHARES, "dgrad_shares") for profile in (COUNTING, AHEAD)
    )
    # Seven pairs of depths; a tile that is there stays.
    assert set(slots(counted, "A1")) == set(slots(counted, "B1")) == {"[0]"}
    assert set(slots(turns, "A1")) == {"[0]", "[1]"}
    assert counted.done[-1] > turns.done[-1]


def test_tiles_of_a_reduction_of_three_are_brought_again_for_each_block():
    # 48 channels of grad_output: three tiles of each operand; two column tiles in the task. The middle one of
    # the image's would still lie in its slot.
    wide = ConvProblem((1, 32, 4, 4), (48, 32, 1, 1))
    core = core_of(COUNTING, wide, "grad_input", replace(SHARES, single_core_n=32), "dgrad_shares")
    assert slots(core, "A1") == ["[0]", "[1]", "[0]"] * 2
    # The second column tile counts on from three.
    assert slots(core, "B1") == ["[0]", "[1]", "[0]", "[1]", "[0]", "[1]"]


@pytest.mark.parametrize(
    ("gradient", "schedule", "tiling", "order"),
    [
        ("grad_input", "dgrad_shares", SHARES, ["A1", "B1", "A0", "B0"]),
        ("grad_weight", "wgrad_stream", STREAM, ["B1", "A1", "B0", "A0"]),
    ],
)
def test_tiles_are_called_for_in_the_order_of_the_kernels(gradient, schedule, tiling, order):
    # Three tiles of 16 channels, or of 16 pixels.
    problem = ConvProblem((1, 16, 4, 4), (48, 16, 1, 1)) if gradient == "grad_input" else THREE
    for profile, ahead in ((COUNTING, False), (AHEAD, True)):
        core = core_of(profile, problem, gradient, tiling, schedule)
        made = [
            step.writes[0].name[:2] for step in core.program.instructions if step.pipe in ("MTE2", "MTE1")
        ]
        near, far = order[:2], order[2:]
        one = near * 2 + far + near + far + far if ahead else (near + far) * 3
        assert made == one * (len(made) // len(one))


def test_nothing_is_called_for_ahead_into_the_only_slot():
    for copies in ((1, 2), (2, 1), (1, 1)):
        tiling = replace(STREAM, al1_buffers=copies[0], bl1_buffers=copies[1])
        core = core_of(AHEAD, THREE, "grad_weight", tiling, "wgrad_stream")
        # Each tile is brought once, and no load finds its slot overwritten.
        assert len(steps(core, "CopyGmToL1")) == 2 * 3 * 2


def test_a_slot_is_cleared_as_a_whole_before_a_copy_that_leaves_gaps():
    # A stride of 2 over 7 x 7 pixels: tiles of 16 of them, and of one, of which the largest tells the slot.
    strided = ConvProblem((1, 16, 7, 7), (16, 16, 3, 3), 2, 1)
    room = toy_split(**{"cores.cube": 1, "cores.vector": 2, "buffers.L1.capacity_bytes": 65536})
    core = core_of(room, strided, "grad_input", replace(SHARES, step_ka=9, step_kb=9), "dgrad_shares")
    made = core.program.instructions
    fills = steps(core, "FillL1")
    assert fills
    largest = max(slot.size_bytes for slot in core.program.slots if slot.name.startswith("A1"))
    assert {made[at].bytes for at in fills} == {largest}
    for at in fills:
        assert [type(step).__name__ for step in made[at : at + 3]] == ["FillL1", "PipeBarrier", "CopyGmToL1"]
        assert made[at + 1].pipe == "MTE2"
        # All that MTE2 has begun is over before the barrier, which takes a cycle.
        earlier = [core.done[i] for i in range(at + 1) if made[i].pipe == "MTE2"]
        assert core.start[at + 1] == max(earlier)
        assert core.start[at + 2] >= core.end[at + 1] == core.start[at + 1] + 1
    # Products of our own nest clear what a tile has alone, and do not wait.
    own = core_of(room, strided, "grad_input", BLOCK, "dgrad")
    assert not [step for step in own.program.instructions if step.pipe == "MTE2" and step.drains]


@pytest.mark.parametrize(
    ("size", "small"),
    # 39 x 64 = 2496 and 40 x 64 = 2560 elements; both are 3 x 4 fractals, of which ten are enough.
    [((3, 13), True), ((4, 10), False)],
)
def test_the_cube_rests_after_products_of_fewer_than_2560_elements(size, small):
    room = {"L1": 65536, "L0A": 8192, "L0B": 8192, "L0C": 65536}
    buffers = {f"buffers.{name}.capacity_bytes": size for name, size in room.items()}
    profile = toy_split(**{"cores.cube": 1, "cores.vector": 2}, **buffers)
    problem = ConvProblem((1, 64, *size), (48, 64, 1, 1))
    tiling = replace(SHARES, base_m=48, base_n=64)
    core = core_of(profile, problem, "grad_input", tiling, "dgrad_shares")
    kinds = [type(step).__name__ for step in core.program.instructions if step.pipe == "M"]
    assert kinds == ["Mmad", "PipeBarrier"] * 3 if small else ["Mmad"] * 3


@pytest.mark.parametrize("profile", [COUNTING, AHEAD], ids=["counting", "ahead"])
@pytest.mark.parametrize(
    ("gradient", "schedule", "tiling", "problem"),
    [
        ("grad_input", "dgrad_shares", SHARES, ConvProblem((2, 16, 4, 4), (48, 16, 1, 1))),
        ("grad_input", "dgrad_shares", SHARES, DEEP),
        ("grad_weight", "wgrad_stream", STREAM, THREE),
    ],
    ids=["channels", "depths", "pixels"],
)
def test_a_missing_wait_is_seen(profile, gradient, schedule, tiling, problem):
    call, tensors = planned(profile, problem, gradient, tiling, schedule), tensors_of(problem, seed=3)
    assert_each_class_is_missed(
        lambda hazards: outcomes_of(call, tensors, hazards, orders=8, gradient=gradient)
    )


def test_places_are_those_of_a_parity():
    # Three column tiles of a task, of three tiles a reduction each.
    core = core_of(
        COUNTING,
        ConvProblem((1, 48, 4, 4), (48, 48, 1, 1)),
        "grad_input",
        replace(SHARES, single_core_n=48),
        "dgrad_shares",
    )
    want = [f"[{(tile * 3 + j) % 2}]" for tile in range(3) for j in range(3)]
    assert np.array_equal(slots(core, "B1"), want)


# --- Does every kind of a product's plan run as many products and base blocks as its sizes say? --------
# Of each kind one small layer, where it is chosen (`KINDS`). Three things are counted over all cores:
# Mmads, Fixpipes, and the multiplications of all Mmads together, which no plan may make more or less of.

# (Mmads, Fixpipes) of a kind.
COUNTS = {
    # Two images are a block each, whose 160 channels are slices of 112 and 48.
    "arch22 weights resident": (4, 2),
    # Three depths are a block each, and meet 1, 2 and 1 kernel depths: 4 x 9 x 32 in slices of 144.
    "arch22 both streamed": (8, 3),
    # One block; 144 with its zeros in slices of 48.
    "arch22 zeros inserted": (3, 1),
    # Two images in two parts; 9 x 16 in slices of 24.
    "arch22 grid of cores": (24, 4),
    # 100 pixels are blocks of 60 and 40; 9 x 48 in slices of 240, five rows of taps.
    "arch35 small shape": (4, 2),
    "arch35 weights resident": (12, 12),  # twelve images; 9 x 16 are one slice
    # Two images, in segments of 2048 and 32 channels: in slices of 256 these are 8 and one.
    "arch35 segments": (18, 4),
    # Four phases with 1, 2, 2 and 4 taps of 272 channels: in slices of 64 these are 5, 9, 9 and 17.
    "arch35 split along both axes": (40, 4),
    # Two images of four phases; 4 taps x 32 channels are slices of 96 and 32.
    "arch35 split with whole operands": (16, 8),
    # Phases with one and two rows of two taps: 32 and 64, in slices of 32 on which both end.
    "arch35 split along H": (3, 2),
    "arch35 blocks that fill L0C": (12, 12),  # twelve images; one slice
    # Two images are a block each. Of three rows of taps one reads pixels: 3 taps x 32 channels are a slice.
    "arch35 a row of taps at a time": (2, 2),
    # Four rows are tiles of 256, 256 and 88 pixels; six taps of 32 channels, a slice each.
    "arch35 a tap at a time": (72, 12),
    # Two images of 144 pixels, one slice each, added atomically.
    "arch22 rows and pixels": (2, 2),
    "arch22 columns and pixels": (2, 2),
    # Two images of 9 pixels; 256 columns are two blocks.
    "arch22 rows and columns": (4, 4),
    # Two depths at two kernel depths; 81 pixels in slices of 48.
    "arch22 library in depth": (8, 4),
    # Two images of 144 pixels are slices of 48 each; 144 columns are one block.
    "arch22 library": (6, 2),
    # Two groups, 3 x 3 pairs of depths that meet, two halves of 288 columns; 35 pixels are one slice.
    "arch22 library with parts of the columns at all kernel depths": (36, 36),
    # Two groups, three images of two depths; 36 pixels are one slice, 32 x 4 columns one block.
    "arch22 library with images in uneven parts": (12, 12),
    # One task in four parts of six rows; 144 pixels in slices of 112.
    "arch22 deterministic": (8, 4),
    # 288 columns are two tasks in two parts of two images; 100 pixels are a slice.
    "arch35 stream-K": (8, 4),
    "arch35 strips of a line": (5, 1),  # four strips of 128 columns and one of 88
    # Three parts of a row each: four strips of 128 columns are slices of 112 and 16, one of 88 is one.
    "arch35 strips of several rows": (27, 3),
    # Two tasks of rows in two parts of an image each: six taps, each 27 pixels behind zeros.
    "arch35 taps too far apart": (48, 24),
    # Of five kernel depths one meets the image: a whole task, four images of 81 pixels.
    "arch35 last round of padding alone": (4, 1),
    # One whole task of four images, and one in two parts of two.
    "arch35 last round with padding among its tasks": (8, 3),
    # Five images in four parts of four rows: 64 pixels are a slice, 288 columns blocks of 256 and 32.
    "arch22 grid of 20 cores": (40, 40),
}


def whole(channels, unit):
    """Return channels in whole groups."""
    return -(-channels // unit) * unit


def multiplications(name):
    """Multiplications of all Mmads: whole groups of channels, every tap that the plan takes."""
    gradient, _, dtype, p, *_ = KINDS[name]
    c0 = 8 if dtype == "float32" else 16
    # Rows of grad_input of 4 bytes come out in pairs of groups.
    small, big = (whole(channels, max(c0, 16)) for channels in (p.small_channels, p.big_channels))
    pairs, taps = len(p.depths_met), prod(p.kernel[1:])
    if gradient == "grad_weight":
        # Tap by tap a block begins with a product of C0 zeros; of two parts of a whole each does.
        zeros = 2 * c0 if name == "arch35 taps too far apart" else 0
        return p.groups * (p.batch * pairs * prod(p.small_size[1:]) + zeros) * small * big * taps
    split = planned_kinds(name)[1].kernel_split
    # Pixels x taps along H and W: a split one meets a tap where pixel + padding - tap is a whole stride.
    steps = [step if axis in split else 1 for axis, step in zip("hw", p.strides[1:], strict=True)]
    met = [
        sum((pixel + before - tap) % step == 0 for pixel in range(size) for tap in range(extent))
        for size, extent, step, (before, _) in zip(
            p.big_size[1:], p.kernel[1:], steps, p.pads[1:], strict=True
        )
    ]
    if planned_kinds(name)[1].taps == "kh":
        # A row of taps is left out if no pixel of an image, which is one tile here, reads any under it.
        reach, before, gap = range(p.small_size[1]), p.pads[1][0], p.dilations[1]
        read = [{row + before - tap * gap for row in range(p.big_size[1])} for tap in range(p.kernel[1])]
        met[0] = p.big_size[1] * sum(not rows.isdisjoint(reach) for rows in read)
    return p.batch * pairs * prod(met) * small * big


def test_every_kind_is_counted():
    assert COUNTS.keys() == KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_the_products_and_blocks_of_its_sizes(name):
    found, _ = counts(name)
    assert (found["Mmad"], found["Fixpipe"]) == COUNTS[name]


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_multiplied_twice_or_left_out(name):
    [compute] = [phase for phase in kernel_of(name).phases if phase.name == "compute"]
    made = [
        instruction.m * instruction.k * instruction.n
        for work in compute.work
        for instruction in work.build().instructions
        if type(instruction).__name__ == "Mmad"
    ]
    assert sum(made) == multiplications(name)


@pytest.mark.parametrize("name", KINDS)
def test_no_product_is_longer_than_base_k(name):
    told = planned_kinds(name)[1]
    [compute] = [phase for phase in kernel_of(name).phases if phase.name == "compute"]
    sizes = {
        (instruction.m, instruction.k, instruction.n)
        for work in compute.work
        for instruction in work.build().instructions
        if type(instruction).__name__ == "Mmad"
    }
    assert all(m <= told.base_m and k <= told.base_k and n <= told.base_n for m, k, n in sizes)
