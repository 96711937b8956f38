"""Is grad_weight on 910B planned as the library does: grids, tiles, cycles, and what the host adds?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.ops.tiling.vendor.arch22.library import LibraryGrid, _factors, _grids, _moved, _share, library
from ascendsim.ops.tiling.vendor.arch22.library_tiles import (
    LibraryCosts,
    LibraryShare,
    LibrarySizes,
    LibraryTile,
    cycles,
    least_cycles,
    lines,
    tiles,
)
from ascendsim.ops.tiling.vendor.layer import LayerSizes, Machine
from tests.helpers.outside_records import differences, layer_of, machine_of, records, vectors, vectors_2d
from tests.helpers.slow_tilings import ARCH22, base, layer, rows, square

PARTS = ("batch", "n", "m", "k")


def sizes(given, flat=False, machine=ARCH22):
    return LibrarySizes.of(given, machine, images=given.groups * given.batch, flat=flat)


# --- plans that are known


def test_plans_of_images_are_the_librarys(data_dir):
    found = vectors_2d(data_dir)
    assert len(found) == 60
    for at, record in found:
        problem = ConvProblem(record["input"], record["weight"], record["stride"], record["padding"])
        machine = Machine.of(load_profile("910B2"))._replace(cores=record["cores"])
        plan = library(LayerSizes.of(problem, record["compute_dtype"]), machine, flat=True)
        said = {f"{axis}_dim": parts for axis, parts in plan.grid}
        made = {name: said.get(name, getattr(plan, name, None)) for name in record["expected"]}
        assert made == record["expected"], at


def test_plans_of_volumes_are_the_librarys(data_dir):
    found = [(at, one) for at, one in vectors(data_dir, "dW", "arch22") if one["strategy"] == "library"]
    assert len(found) == 36
    for at, record in found:
        plan = library(layer_of(record), machine_of(record), deterministic=bool(record["deterministic"]))
        assert not differences(plan, record), at


def test_what_the_host_hands_over_is_what_unit_tests_expect(data_dir):
    # Those of a kernel without basic blocks, but for the one on 20 cores that a grid takes.
    found = [one for one in records(data_dir, "dW", "arch22") if one["success"] and one["tiling_key"] == 0]
    assert len(found) == 8
    for record in found:
        if record["case"] == "26_b16":
            continue
        plan = library(layer_of(record), machine_of(record))
        told = {**dict(plan.host), "stepM": plan.step_m, "stepN": plan.step_n}
        told |= {"stepKa": plan.step_ka, "stepKb": plan.step_kb}
        # Of a kernel of 336 depths the bound is that of a longer strip of columns than the kernel takes.
        beyond = {"bl1Bound"} if record["case"] == "conv3d_dilation_kernel2_test" else set()
        wrong = {name for name, value in told.items() if record["expected"][name] != value}
        assert wrong == beyond, record["case"]


@pytest.mark.parametrize(
    ("problem", "block", "grid", "steps"),
    # Measured kernels of AlexNet in HF32, whose counters are those of these plans.
    [
        (ConvProblem((32, 64, 27, 27), (192, 64, 5, 5), 1, 2), (192, 160, 32), (2, 2, 1, 6), 4),
        (ConvProblem((32, 384, 13, 13), (256, 384, 3, 3), 1, 1), (128, 192, 32), (2, 2, 2, 3), 2),
    ],
)
def test_measured_kernels_have_the_plan_that_their_counters_tell_of(problem, block, grid, steps):
    plan = library(LayerSizes.of(problem, "hf32"), ARCH22, flat=True)
    assert (base(plan), tuple(dict(plan.grid)[axis] for axis in PARTS)) == (block, grid)
    assert (plan.step_ka, plan.step_kb, plan.al1_buffers, plan.bl1_buffers, plan.cl0_buffers) == (
        *(steps, steps, 2, 2, 1),
    )


# --- grids


@pytest.mark.parametrize(
    ("extent", "cores", "parts"),
    [
        # 16 has five divisors itself: rich, so that its own divisors are taken, and those of 24 cores.
        (64, 24, (1, 2, 3, 4, 6, 8, 12, 16, 24)),
        # 25 has 1, 5 and 25, none with more than four divisors: those of 32 instead, up to 25, and of 24.
        (25, 24, (1, 2, 3, 4, 6, 8, 12, 16, 24)),
        (25, 20, (1, 2, 4, 5, 8, 10, 16, 20)),
        # Short axes are as they are.
        (14, 20, (1, 2, 4, 5, 7, 10, 14)),
        # Divisors beyond the cores make no axis rich: 27 cores would see 27, with four divisors, too few.
        (27, 20, (1, 2, 4, 5, 8, 10, 16, 20)),
    ],
)
def test_parts_of_an_axis(extent, cores, parts):
    assert _factors(extent, cores) == parts


@pytest.mark.parametrize(
    ("extent", "parts", "length"),
    [
        (46, 2, 24),  # 23 is prime; 46 counts as 64, so that 24 of up to 32 is the first with a rich divisor
        (22, 3, 8),  # up to 8 any length will do
        (26, 2, 14),  # 13 is prime, 14 has 2, 7 and itself: four divisors
        (13, 1, 13),  # a short axis has nothing to move to
        (67, 1, 68),  # 67 is prime; 68 has 34, with four divisors
        (268, 2, 135),  # 134 is twice a prime above 64; 135 has 45, with six divisors
        (268, 1, 268),  # 4 has three divisors and 67 has two: more than four together
        # 131 is prime and above 128, so that there are only the three of 4; 525 has 35 with four divisors and
        # 105 with eight.
        (524, 1, 525),
    ],
)
def test_lengths_that_divide_badly_are_moved(extent, parts, length):
    assert _moved(extent, parts, 24) == length


def test_grids_that_leave_a_fifth_idle_are_not_looked_at_if_images_could_keep_all_busy():
    # One fractal of either side and one group of pixels: only images can be cut.
    def cells(batch):
        return library(layer((batch, 16, 1, 1), (16, 16, 1, 1)), ARCH22, flat=True).used_cores

    # 25 images on 24 cores, then two for one core: as long as 13 on two each, but no grid has 13 parts.
    assert cells(24) == 24
    # 16 parts of two are fewer than 20 cells; 24 parts take two images each as well.
    assert cells(25) == 24
    # Below 24 images any grid will do, the first of equal ones: 17 count as 32, and 12 parts take two each.
    assert cells(17) == 12


def test_blocks_of_a_grid_may_be_asked_for():
    given = square(64, 64, 28, batch=32)
    assert library(given, ARCH22, flat=True, cells=6).used_cores == 6
    # One image of one pixel, and of one block on either side, is one cell.
    single = layer((1, 16, 1, 1), (16, 16, 1, 1))
    assert library(single, ARCH22, flat=True, cells=2) is None


# --- tiles


@pytest.mark.parametrize(
    ("columns", "taps", "found"),
    # Of a window of 9: whole ones never cut one, 3 lie in one, 5 may begin in one and end in the next. 9 are
    # one, 18 two. 12 touch two and a third, beginning anywhere: four lines. 6 of windows of 4, in steps of
    # 6, begin or end with a window: three.
    [(3, 9, 1), (5, 9, 2), (9, 9, 1), (18, 9, 2), (12, 9, 4), (6, 4, 3), (7, 1, 7)],
)
def test_lines_of_channels_under_columns(columns, taps, found):
    assert lines(columns, taps) == found


# 64 channels of 16 x 16 pixels under 9 taps, 128 of grad_output: 8 and 36 blocks, 16 groups of pixels.
LAYER = rows(16, 16, 64, 128, 1, 3)
SHARE = LibraryShare(1, 1, 8, 36, 16, 36, 8, 36)
STREAMED = LibraryTile(4, 6, 4, 1, 1, 8, 8, 2, 2)
# A Mmad: 4 x 4 x 6 fractals and 20. MTE1: 16 fractals of 512 bytes at 256 a cycle and 20 and 2 x 4 cycles of
# load2d; 24 fractals at 512 / 4 bytes a cycle, rows of 16 having no switch, and 42.
MMAD, LOAD_A, LOAD_B = 4 * 4 * 6 + 20, 32 + 20 + 8, 96 + 42
STEP = LOAD_A + LOAD_B
# 128 pixels: 32 fractals; 10 rows of one line of 16 channels, each 512 bytes.
COPY_A, COPY_B = 300 + 32 * 512 // 96, 300 + 10 * 512 // 96
FIX = 24 * (4 + 8)


def test_cycles_of_commands():
    assert LibraryCosts.of(sizes(LAYER), STREAMED) == (MMAD, LOAD_A, LOAD_B, COPY_A, COPY_B, FIX)
    assert LibraryCosts.of(sizes(LAYER), STREAMED).step == STEP


@pytest.mark.parametrize(
    ("changed", "load_b"),
    [
        # Twice the stride and 2 cycles at 2, 4 and 8; 28 bytes a cycle at others.
        ({"stride": (1, 1, 2)}, 42 + 24 * 512 // (512 // 6)),
        ({"stride": (1, 1, 3)}, 42 + 24 * 512 // 28),
        # 16 pixels of rows of 8 begin one more, as 15 / 8; of rows of 7 two more, and 16 / 7.
        ({"input": (1, 16, 8), "output": (1, 16, 8)}, 42 + 24 * 512 // (512 // 5)),
        ({"input": (1, 16, 7), "output": (1, 16, 7)}, 42 + 24 * 512 // (512 // 6)),
    ],
)
def test_cycles_of_load3d(changed, load_b):
    assert LibraryCosts.of(sizes(LAYER._replace(**changed)), STREAMED).load_b == load_b


def test_cycles_of_4_bytes():
    # A Mmad of float32 takes twice its fractals, of HF32 once. Both operands come by load3d.
    slow, fast = (
        LibraryCosts.of(sizes(LAYER._replace(itemsize=4, true_fp32=true)), STREAMED) for true in (True, False)
    )
    assert (slow.mmad, fast.mmad) == (2 * 96 + 20, 96 + 20)
    assert (slow.load_a, slow.load_b) == (32 + 42, 96 + 42)
    # 8 groups are 64 pixels: 4 rows, and two more under the kernel. Nothing else is counted otherwise.
    assert (slow.copy_a, slow.copy_b) == (COPY_A, 300 + 6 * 512 // 96)


@pytest.mark.parametrize(("width", "packets"), [(16, 1), (31, 5), (27, 3), (13, 3), (56, 4), (7, 2)])
def test_rows_of_the_image_come_in_packets(width, packets):
    # 31 are 16, 8, 4 and 3: 16 + 8 + 4 + 3. 27 are 16, 8 and 3; 13 are 8, 4 and 1; 56 are 3 x 16 and 8.
    assert sizes(square(16, 16, width)).line == {31: 4}.get(width, packets)


def test_one_tap_at_unit_steps_comes_by_load2d_in_images_alone():
    given, tile = rows(16, 16, 64, 128, 1), LibraryTile(4, 2, 4, 1, 1, 8, 8)
    flat, deep = (LibraryCosts.of(sizes(given, flat), tile) for flat in (True, False))
    # 20, 2 x 512 bytes at 256, and 8 fractals at 128; 2 x 8 fractals of memory.
    assert (flat.load_b, flat.copy_b) == (20 + 4 + 32, 300 + 16 * 512 // 96)
    # As load3d: 8 rows of two lines of channels.
    assert (deep.load_b, deep.copy_b) == (42 + 32, 300 + 2 * 8 * 512 // 96)
    # Of 7 x 7 pixels one row is 112 elements, which 256 hold.
    small = rows(7, 7, 64, 128, 1)
    assert sizes(small, True).right_bytes(1, 3) == -(-4 * 7 * 16 // 256) * 256 * 3 * 2
    assert sizes(small).right_bytes(1, 3) == 4 * 7 * 16 * 3 * 2


def test_rows_that_no_window_of_an_image_touches_are_left_out():
    apart = layer((4, 64, 29, 28), (64, 64, 1, 3), (2, 1), (0, 0))
    close = layer((4, 64, 15, 28), (64, 64, 1, 3), (1, 1), (0, 0))
    assert library(apart, ARCH22, flat=True) == library(close, ARCH22, flat=True)
    # Padding, or an operator of volumes, reads them.
    assert sizes(apart, True).rows(4) < sizes(apart).rows(4)
    padded = apart._replace(pads=((0, 0), (0, 0), (1, 1)))
    assert sizes(padded, True).rows(4) == sizes(apart).rows(4)


def test_patterns_of_tiles():
    # L1 holds all of both operands: 8 x 16 fractals and 16 rows of 16 pixels of 4 lines of channels.
    assert list(tiles(sizes(LAYER), SHARE, found=False)) == [
        # grad_output whole: m 8, then k up to 64 / 8 and n up to 64 / 8 that divide 16 and 36; all columns in
        # L1 as well, six at a time.
        LibraryTile(8, 6, 8, 1, 6, 16, 16),
        # Input whole: n up to 32, k up to 64 / 18, m up to 128 / 18, and all rows in two blocks.
        LibraryTile(4, 18, 2, 2, 2, 16, 16),
        # Neither: n up to 16, m up to 128 / 12, the same the other way; k up to 64 / 12. L1 then has all rows
        # of grad_output, so that only the third of the columns has a second copy.
        LibraryTile(8, 12, 4, 1, 1, 16, 16, 1, 2),
    ]
    # Of two images no operand is whole.
    (streamed,) = tiles(sizes(LAYER), SHARE._replace(images=2), found=False)
    assert streamed == LibraryTile(8, 12, 4, 1, 1, 16, 16, 2, 2)


def test_a_prime_share_that_l0_cannot_hold_is_left_out_once_there_is_another():
    # 17 groups of pixels, of which 17 x 8 fractals are more than 64.
    s, share = sizes(rows(17, 16, 64, 128, 2, 3)), SHARE._replace(images=2, k=17)
    assert [tile.k for tile in tiles(s, share, found=False)] == [1]
    assert not list(tiles(s, share, found=True))


def test_the_longer_chunk_is_lowered_until_the_other_divides_it():
    # 98 rows of 64 pixels, each a slice of 4 groups: 2 KiB of one block of grad_output, 32 KiB of 16 channel
    # blocks of input. Beside one slice L1 of 192 KiB holds 5 rows, and 2 divides 98; beside those 64 slices
    # of grad_output, and 49 divides 98. Of the divisors of 98 below, 14 is the first that 2 divides.
    s = sizes(rows(98, 64, 256, 16, 32), machine=ARCH22._replace(l1=192 * 1024))
    (tile,) = tiles(s, LibraryShare(2, 1, 1, 16, 392, 16, 1, 16), found=False)
    assert tile[:7] == (1, 16, 4, 1, 1, 14 * 4, 2 * 4)


@pytest.mark.parametrize(
    ("share", "tile", "expected"),
    [
        # Neither operand whole: 2 x 6 blocks of two chunks, whose copies take longer than their two steps.
        (SHARE, STREAMED, 12 * (2 * (COPY_A + COPY_B) + FIX)),
        # Only one copy of either: nothing is hidden.
        (SHARE, STREAMED._replace(copies_b=1), 12 * (2 * (COPY_A + COPY_B + 2 * STEP) + FIX)),
        # Three images have no whole operand, however long the chunk.
        (
            SHARE._replace(images=3),
            STREAMED._replace(left_k=16, right_k=16),
            12 * (3 * (300 + 64 * 512 // 96 + 300 + 16 * 512 // 96) + FIX),
        ),
        # A chunk of grad_output for each half of one of input: 4 commands and a step beside the inner copy,
        # 8 beside the outer.
        (
            SHARE._replace(images=2),
            STREAMED._replace(left_k=4),
            12 * (2 * 2 * max(COPY_B, 2 * max(300 + 16 * 512 // 96, STEP)) + FIX),
        ),
        # All pixels of both, a third of the columns at a time: 6 blocks of 4 steps hide no copy of input.
        (
            SHARE,
            LibraryTile(4, 6, 4, 2, 2, 16, 16, 1, 1),
            300 + 128 * 512 // 96 + 3 * (300 + 2 * 16 * 512 // 96 + 4 * (4 * STEP + FIX)),
        ),
    ],
)
def test_cycles_of_a_share(share, tile, expected):
    assert cycles(sizes(LAYER), share, tile) == expected


def test_60_commands_in_the_queue_hide_no_copy():
    # Four load2d a step of 4 groups, 14 steps and 15; two images, so that no operand is whole.
    for steps, hidden in ((14, True), (15, False)):
        k = 4 * steps
        share, s = LibraryShare(2, 1, 4, 1, k, 1, 4, 1), sizes(rows(k, 16, 16, 64, 2))
        tile = LibraryTile(4, 1, 4, 1, 1, k, k, 2, 2)
        copies = 600 + 4 * k * 512 // 96 + k * 512 // 96
        work = steps * max(16 + 20, 32 + 28 + 16 + 42)
        both = max(copies, work) if hidden else copies + work
        assert cycles(s, share, tile) == 2 * both + 4 * 12


def test_what_is_paid_for_counts_channels_of_4_bytes_in_eights():
    # 64 channels: 4 blocks of 16, but 8 groups of C0, and 9 taps of each.
    share = _share(sizes(LAYER._replace(itemsize=4)), LibraryGrid(1, 1, 1, 1, 2, 1, 1))
    assert (share.n, share.paid_n) == (2 * 9, 4 * 9)


# --- what the host makes of it


def test_copies_that_have_nothing_to_hold_are_dropped():
    # One image of 8 rows of 16 pixels on one core: all pixels in one chunk.
    plan = library(layer((1, 16, 1, 8, 16), (16, 16, 1, 1, 1)), ARCH22._replace(cores=1))
    assert (plan.step_ka * plan.base_k, plan.al1_buffers, plan.bl1_buffers) == (128, 1, 1)
    assert dict(plan.host)["singleCoreHo"] == 8


@pytest.mark.parametrize(
    ("given", "parts"),
    # Kernel depths count as channels, unless groups, gaps or a fixed order keep them apart.
    [({}, (1, 24)), ({"deterministic": True}, (24, 1))],
)
def test_kernel_depths_are_channels_unless_kept_apart(given, parts):
    volume = layer((1, 16, 24, 1, 16), (16, 16, 24, 1, 1), dtype="float32")
    host = dict(library(volume, ARCH22, **given).host)
    assert (host["dkDim"], host["nDim"]) == parts
    assert host["singleCoreDk"] == 1


def test_groups_are_merged_until_they_fill_blocks():
    plan = library(layer((4, 32, 8, 8), (32, 4, 3, 3), 1, 1, groups=8), ARCH22)
    assert plan.group_merge == 4
    alone = replace(plan, group_merge=1)
    # What is left are two groups of 16 channels.
    merged = layer((4, 32, 8, 8), (32, 16, 3, 3), 1, 1, groups=2)
    assert alone == library(merged, ARCH22)


@pytest.mark.parametrize(
    "given",
    [
        square(48, 80, 14, batch=3, dtype="float32"),
        square(130, 64, 9, stride=2),
        layer((2, 48, 5, 9, 20), (64, 24, 3, 3, 2), 1, 1, groups=2),
    ],
)
def test_grids_that_are_passed_over_are_no_better(given):
    s, taken = sizes(given.merged(given.merge_factor(16))), library(given, ARCH22)
    shares = [_share(s, grid) for grid in _grids(s)]
    made = [(cycles(s, share, tile), share, tile) for share in shares for tile in tiles(s, share, found=True)]
    assert all(cost >= least_cycles(s, share) for cost, share, _ in made)
    # The plan is the first of the fewest cycles, though most grids were not looked at.
    _, _, best = min(made, key=lambda one: one[0])
    assert base(taken) == (16 * best.m, 16 * best.n, best.k * s.unit)
