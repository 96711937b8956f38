"""Are the cycles by which the library ranks tilings of grad_weight on 910B those of its published model?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.vendor.arch22.costs import (
    Share,
    Tile,
    cycles,
    fix_cycles,
    least_cycles,
    left_bytes,
    right_bytes,
    step_cycles,
)
from ascendsim.ops.tiling.vendor.arch22.wgrad_library import _filled
from ascendsim.ops.tiling.vendor.library.wgrad_cells import Grid, GridCells
from tests.helpers.vendor_layers import ARCH22, base, plan, rows

# 64 channels of 16 x 16 pixels under 9 taps, 128 of grad_output: 36 and 8 fractals, and 16 of pixels.
LAYER = rows(16, 16, 64, 128, 1, 3)
SHARE, TILE = Share(LAYER, 8, 36, 16), Tile(4, 6, 4, step=2)
# A load into L1: bytes at 96 a cycle, and 300.
LEFT = 64 * 128 * 2 / 96 + 300
# 128 pixels are 8 rows, so 10 of input under 3 taps; 6 groups of 16 columns cut two windows of 9.
RIGHT = 10 * 16 * 32 * 2 / 96 + 300
# MTE1: 16 fractals of 512 bytes at 256 a cycle with 20 for each of 4 commands; 24 in 4 cycles each, and 42.
STEP = 16 * 2 + 4 * 20 + 24 * 4 + 42
# 24 fractals of 1024 bytes, read at 256 and written at 128 a cycle.
FIX = 24 * 4 + 24 * 8


def test_bytes_of_tiles():
    assert left_bytes(SHARE, TILE, 2) == 64 * 128 * 2
    assert right_bytes(SHARE, TILE, 2) == 10 * 16 * 32 * 2
    # The whole share has no more pixels than it has, and input no more rows.
    assert right_bytes(SHARE, TILE, 9) == 16 * 16 * 32 * 2
    # 9 groups are one window, 10 two.
    assert right_bytes(SHARE, replace(TILE, n=9), 2) == 10 * 16 * 16 * 2
    assert right_bytes(SHARE, replace(TILE, n=10), 2) == 10 * 16 * 48 * 2


@pytest.mark.parametrize(
    ("changed", "tile", "expected"),
    [
        ({}, TILE, STEP),
        # As many commands as the shorter side has fractals.
        ({}, replace(TILE, m=2), 8 * 2 + 2 * 20 + 24 * 4 + 42),
        ({}, replace(TILE, k=2), 8 * 2 + 2 * 20 + 12 * 4 + 42),
        # Strides of 2, 4 and 8: twice the stride and 2; others: 512 bytes at 28 a cycle.
        ({"stride": (1, 1, 2)}, TILE, 112 + 24 * 6 + 42),
        ({"stride": (1, 1, 4)}, TILE, 112 + 24 * 10 + 42),
        ({"stride": (1, 1, 8)}, TILE, 112 + 24 * 18 + 42),
        ({"stride": (1, 1, 3)}, TILE, 112 + 24 * 512 / 28 + 42),
        # 16 pixels touch two rows of 24, or of 8; three of 7, one row switch and two.
        ({"output": (1, 16, 24)}, TILE, 112 + 24 * 5 + 42),
        ({"output": (1, 16, 8)}, TILE, 112 + 24 * 5 + 42),
        ({"output": (1, 16, 7)}, TILE, 112 + 24 * 7 + 42),
        # The cube: one cycle for 16 x 16 x 16, and 20, where loads take less.
        ({}, Tile(16, 16, 1), 16 * 16 + 20),
        # float32 has two groups of C0 in 16 pixels, and takes twice the cycles unless it is HF32.
        ({"itemsize": 4}, Tile(8, 8, 1), 8 * 2 * 2 + 20 * 2 + 16 * 4 + 42),
        ({"itemsize": 4, "true_fp32": True}, Tile(8, 8, 1), 8 * 2 * 8 * 2 + 20),
    ],
)
def test_cycles_of_a_step(changed, tile, expected):
    assert step_cycles(replace(SHARE, layer=LAYER._replace(**changed)), tile) == pytest.approx(expected)


def test_cycles_of_a_share():
    assert fix_cycles(TILE) == FIX
    # 2 x 6 blocks, each of two chunks of two steps: loads take longer than the steps that they hide behind.
    assert LEFT + RIGHT > 2 * STEP > RIGHT
    assert cycles(SHARE, TILE) == pytest.approx(12 * (2 * (LEFT + RIGHT) + FIX))
    assert least_cycles(SHARE, TILE) == 12 * (4 * STEP + FIX)


@pytest.mark.parametrize(("steps", "hidden"), [(14, True), (15, False)])
def test_60_commands_in_the_queue_leave_loads_in_the_open(steps, hidden):
    # Four load2d a step, so 56 and 60; two chunks of 64 x 16 pixels a step, of 16 channels under one tap.
    share = Share(rows(16, 4 * 2 * steps, 16, 64, 1), 4, 1, 16)
    tile = Tile(4, 1, 4, step=steps)
    loads = 64 * 64 * steps * 2 / 96 + 300 + right_bytes(share, tile, steps) / 96 + 300
    # A Mmad: 16 fractals and four commands; four of 16 pixels, in 4 cycles each and as many as they
    # begin rows more.
    compute = steps * step_cycles(share, tile)
    chunk = max(loads, compute) if hidden else loads + compute
    assert cycles(share, tile) == pytest.approx(2 * chunk + fix_cycles(tile))


@pytest.mark.parametrize(("resident", "comes"), [("a", RIGHT), ("b", LEFT)])
def test_what_stays_is_loaded_once_for_its_strip(resident, comes):
    whole_left, whole_right = 64 * 256 * 2 / 96 + 300, 16 * 16 * 32 * 2 / 96 + 300
    once = 2 * whole_left if resident == "a" else 6 * whole_right
    found = cycles(SHARE, replace(TILE, resident=resident))
    assert found == pytest.approx(once + 12 * (2 * max(comes, 2 * STEP) + FIX))


def test_a_whole_reduction_hides_no_load_and_shares_its_window():
    # All four slices at a time: nothing comes meanwhile. Three fractals of columns are a third of a window.
    tile = Tile(4, 3, 4, step=4)
    left, right = 64 * 256 * 2 / 96 + 300, 16 * 16 * 32 * 2 / 96 + 300
    step, fix = 16 * 2 + 4 * 20 + 12 * 4 + 42, 12 * 4 + 12 * 8
    assert cycles(SHARE, tile) == pytest.approx(24 * (left + right / 3 + 4 * step + fix))


@pytest.mark.parametrize(
    ("resident", "needs"),
    # Slices of 16 pixels: 2048 bytes of grad_output each, and 1024 for each row of input, two more than
    # slices, of 16 in all. By number of slices, all 16 in one copy, fewer in two but for what stays.
    [
        ("", {16: 32768 + 16384, 4: 2 * (8192 + 6144), 2: 2 * (4096 + 4096), 1: 2 * (2048 + 3072)}),
        ("a", {16: 32768 + 16384, 4: 32768 + 2 * 6144, 2: 32768 + 2 * 4096, 1: 32768 + 2 * 3072}),
        ("b", {16: 32768 + 16384, 4: 2 * 8192 + 16384, 2: 2 * 4096 + 16384, 1: 2 * 2048 + 16384}),
    ],
)
def test_the_longest_chunk_fits_to_the_last_byte(resident, needs):
    tile = Tile(4, 6, 1, resident=resident)
    shorter = [*list(needs)[1:], 0]
    for (step, need), less in zip(needs.items(), shorter, strict=True):
        at, below = (_filled(SHARE, tile, ARCH22._replace(l1=l1)) for l1 in (need, need - 1))
        assert at == replace(tile, step=step)
        assert below == (replace(tile, step=less) if less else None)


@pytest.mark.parametrize("l1", [524288, 262144, 131072])
@pytest.mark.parametrize(("channels", "out"), [(16, 256), (256, 16), (64, 64)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_chunks_are_as_long_as_l1_holds(kernel, channels, out, l1):
    # float32, 24 images of 28 x 28 pixels: one for each core, or parts of their rows.
    given = rows(28, 28, channels, out, 24, kernel, dtype="float32")
    found = plan(given, "grad_weight", ARCH22._replace(l1=l1), "float32")
    m, n, k = (size // 16 for size in base(found))
    share = Share(given, found.single_core_m // 16, found.single_core_n // 16, found.single_core_k // 28)

    def need(step):
        # A whole reduction comes once, and so does what stays; anything else in two copies.
        copies = 1 if step == slices else 2
        left, right = left_bytes(share, tile, step), right_bytes(share, tile, step)
        whole_left, whole_right = left_bytes(share, tile, slices), right_bytes(share, tile, slices)
        return {
            "a": whole_left + copies * right, "b": copies * left + whole_right, "": copies * (left + right)
        }[found.resident]  # fmt: skip

    tile, slices = Tile(m, n, k), share.k // k
    longer = [step for step in range(found.step_ka + 1, slices + 1) if slices % step == 0]
    assert found.step_ka == found.step_kb
    assert slices % found.step_ka == 0
    assert need(found.step_ka) <= l1
    assert all(need(step) > l1 for step in longer)
    once = 1 if found.step_ka == slices else 2
    copies = {"a": (1, once), "b": (once, 1), "": (once, once)}[found.resident]
    assert (found.al1_buffers, found.bl1_buffers) == copies


@pytest.mark.parametrize(
    ("pixels", "width"),
    # 5 pixels, two apart, under 3 taps with a gap each: 4 x 2 + 2 x 2 + 1. No more than there are.
    [(0, 64), (5, 13), (30, 63), (31, 64)],
)
def test_a_part_of_a_row_needs_the_columns_under_its_taps(pixels, width):
    line = ConvProblem((1, 16, 1, 64), (16, 16, 1, 3), (1, 2), (0, 1), (1, 2))
    cells = GridCells(WgradGemm.of(line, "float16"), load_profile("910B2"))
    cell = cells.of(Grid(1, 1, 1, 1))
    assert cells.window_bytes(cell, 3, pixels) == width * 16 * 2
