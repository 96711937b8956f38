"""Does each instruction of the cube core mean and cost what it says?

Costs are reckoned by hand from the round figures of the toy products (`toy_machines.py`): GM_L1 64 bytes a
cycle after 4 cycles, 100 until visible; L1_L0A 256 and L1_L0B 128 after 2, visible 10 later; L0C_GM 64 after
8, visible 40 later; cube 16x16x16 products a cycle in float16, 16x16x4 in float32, head 2, visible 20 later.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ascendsim import load_profile
from ascendsim.errors import ProgramError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import (
    Im2col,
    Mmad,
    Submatrix,
    TapRows,
    Transposed,
    Window,
    row_spans,
)
from ascendsim.instructions.fixpipe import (
    CopyL0cToL1,
    CopyL0cToUb,
    CopyL1ToBt,
    CopyL1ToFb,
    Fixpipe,
    ReadOut,
    StallCube,
)
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B, Placement
from ascendsim.numerics.accumulation import AccumulationModel, IntegerSum, MathSettings
from ascendsim.program.instruction import Cost, Traffic
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase, unknown_costs
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Slot
from ascendsim.program.program import ProgramBuilder, program_of
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.toy_machines import MATH, counted, memory, put, toy_split, toy_unified

TOY = toy_split()
A1, A0, B0, C0 = (Slot(buffer, 4096, buffer, i) for i, buffer in enumerate(("L1", "L0A", "L0B", "L0C")))
UB = Slot("UB", 4096, "out", 4)
C1 = Slot("L0C", 0, "READ", 5)


# --- GM to L1


def test_copy_to_l1_takes_the_slice_in_the_asked_shape():
    x = GmTensor("x", (3, 4), "float16", 2)
    mem = memory(x=counted(3, 4))
    CopyGmToL1(A1, Gm(x, (slice(1, 3), slice(0, 2))), 8, (4, 1)).execute(mem)
    assert mem.tile(A1).tolist() == [[5], [6], [9], [10]]


def test_copy_to_l1_costs_head_traffic_and_latency():
    x = GmTensor("x", (3, 4), "float16", 2)
    copy = CopyGmToL1(A1, Gm(x, (0,)), 8, (4,))
    # a read takes whole sectors of 128 bytes of L2
    assert copy.cost(TOY) == Cost(4, 100, Traffic(x, "read", 128, 64))
    assert copy._replace(bytes=129).cost(TOY).traffic.bytes == 256
    assert copy._replace(bytes=130, rows=2).cost(TOY).traffic.bytes == 256  # two runs of 65
    assert (copy.pipe, copy.reads, copy.writes) == ("MTE2", (), (A1,))


def window(rows, cols, *, c0=2, **changes):
    """Make a window of one channel group on rows x cols pixels without padding."""
    plain = Window(1, rows, cols, 0, 0, 1, (1, 1), (1, 1), (1, 1), c0)
    return plain._replace(**changes)


def test_an_image_tile_is_flat_with_a_last_row_of_zeros():
    x = GmTensor("x", (1, 2, 3, 2), "float16", 2)  # one channel group, 2 x 3 pixels, C0 = 2
    mem = memory(x=counted(1, 2, 3, 2))
    CopyGmToL1(A1, Gm(x, (slice(None),)), 24, (), window(2, 3)).execute(mem)
    assert mem.tile(A1).tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [0, 0]]


def test_a_strided_copy_leaves_the_zeros_of_the_fill_between_pixels():
    x = GmTensor("x", (1, 2, 2, 1), "float16", 2)
    mem = memory(x=counted(1, 2, 2, 1))
    w = window(4, 5, c0=1)
    FillL1(A1, 40, w.tile_shape).execute(mem)
    CopyGmToL1(A1, Gm(x, (slice(None),)), 8, (), w, Placement(1, 0, 2, 3)).execute(mem)
    assert mem.tile(A1)[:-1].reshape(4, 5).tolist() == [
        [0, 0, 0, 0, 0],
        [1, 0, 0, 2, 0],
        [0, 0, 0, 0, 0],
        [3, 0, 0, 4, 0],
    ]


def test_clearing_l1_costs_its_bytes_at_the_rate_of_the_write_port():
    # 4 + ceil(65 / 64) = 6 cycles, and no traffic
    assert FillL1(A1, 65, (65, 1)).cost(TOY) == Cost(6)
    assert FillL1(A1, 64, (64, 1)).cost(TOY) == Cost(5)


# --- load3d


def load(slot, view):
    return LoadL0A(A0, A1, view) if slot is A0 else LoadL0B(B0, A1, view)


def test_load3d_gathers_patches_with_stride_dilation_and_padding():
    # 4 x 4 pixels 1..16, kernel 2 x 2 with dilation 2, stride 2, one row and column of padding:
    # output (y, x) under tap (i, j) reads pixel (2y + 2i - 1, 2x + 2j - 1); outside lies zero.
    mem = memory()
    w = window(4, 4, c0=1, top=1, left=1, out_width=2, kernel=(2, 2), stride=(2, 2), dilation=(2, 2))
    put(mem, A1, [*[[v] for v in range(1, 17)], [0]])
    load(A0, Im2col(w, 0, 4, 0, 4, 2)).execute(mem)
    assert mem.tile(A0).tolist() == [
        [0, 0, 0, 6],  # (-1, -1) (-1, 1) (1, -1) (1, 1)
        [0, 0, 6, 8],  # (-1, 1) (-1, 3) (1, 1) (1, 3)
        [0, 6, 0, 14],
        [6, 8, 14, 16],
    ]


def test_load3d_takes_a_range_of_pixels_and_of_channel_groups_and_taps():
    # 2 channel groups of C0 = 2 on 1 x 3 pixels, kernel 1 x 2: columns (c1, tap, c0)
    mem = memory()
    w = window(1, 3, channels=2, out_width=2, kernel=(1, 2))
    put(mem, A1, [*counted(6, 2), [0, 0]])  # rows 0..2: group 0, rows 3..5: group 1
    view = Im2col(w, 1, 1, 1, 2, 2)  # pixel 1; tap 1 of group 0, then tap 0 of group 1
    assert view.matrix_shape() == (1, 4)
    load(B0, view).execute(mem)
    assert mem.tile(B0).tolist() == [[5, 6, 9, 10]]


@pytest.mark.parametrize(
    ("offset", "pixels", "width", "spans"),
    [
        (0, 16, 16, {1: 1}),
        (1, 16, 16, {2: 1}),
        (0, 32, 16, {1: 2}),
        (0, 17, 16, {1: 2}),  # 16 in the first row, a short fractal of one in the second
        (0, 16, 5, {4: 1}),  # pixels 0..15 lie in rows 0..3
        (4, 16, 5, {4: 1}),  # 4..19: rows 0..3
        (0, 40, 28, {1: 2, 2: 1}),  # 0..15, 16..31 over the end of row 0, 32..39
    ],
)
def test_fractals_are_counted_by_the_rows_they_span(offset, pixels, width, spans):
    assert row_spans(offset, pixels, width) == spans


@pytest.mark.parametrize(
    ("stride", "width", "pixels", "into_a", "into_b"),
    [
        # a fractal in one row: 2 cycles per stride; into L0B 2 more
        (1, 16, 16, 2, 4),
        (2, 16, 16, 4, 6),
        # two rows: 2 + 2 switches
        (1, 8, 16, 4, 6),
        # sixteen rows: never more than 16
        (1, 1, 16, 16, 18),
        # a stride without the fast way: 16 whatever the rows
        (3, 16, 16, 16, 18),
        # two fractals, the second with 1 pixel, in a row of its own
        (1, 16, 17, 4, 8),
    ],
)
def test_load3d_costs_by_stride_and_row_switches(stride, width, pixels, into_a, into_b):
    w = window(64, 64, c0=16, out_width=width, stride=(1, stride))
    view = Im2col(w, 0, pixels, 0, 3, 2)  # three (channel group, tap) pairs
    assert load(A0, view).cost(TOY) == Cost(2 + 3 * into_a, 10)
    assert load(B0, view).cost(TOY) == Cost(2 + 3 * into_b, 10)


@pytest.mark.parametrize(
    ("width", "pixels", "into_a", "into_b"),
    [
        # Sixteen pixels in one row: into L0A a fractal for each of four groups, into L0B two for each two.
        (16, 16, 4 * 2, 4 * 4),
        # Rows of 8: a fractal of 16 pixels has two of them (2 + 2), those of 8 lie in one each.
        (8, 16, 4 * 4, 4 * 4),
        # Rows of 12: two in 16 pixels; of those of 8 the second has 8..11 and 12..15, 2 + 2 + 2.
        (12, 16, 4 * 4, 2 * 4 + 2 * 6),
    ],
)
def test_fractals_of_four_bytes_are_eight_pixels_deep_in_l0b(width, pixels, into_a, into_b):
    view = Im2col(window(64, 64, c0=8, out_width=width), 0, pixels, 0, 4, 4)
    assert load(A0, view).cost(TOY) == Cost(2 + into_a, 10)
    assert load(B0, view).cost(TOY) == Cost(2 + into_b, 10)


def test_turned_fractals_of_four_bytes_take_their_own():
    profile = toy_split(**{"load3d.L0A.transposes": True, "load3d.L0A.turned_cycles": 3.5})
    # 40 pixels are 3 fractals, of 3 groups: nine of 3.5 cycles, rounded up; of 2 bytes 2 each, in one row.
    assert load(A0, Transposed(3, 0, 40, 8, 4, 0, 64)).cost(profile) == Cost(2 + 32, 10)
    assert load(A0, Transposed(3, 0, 40, 16, 2, 0, 64)).cost(profile) == Cost(2 + 18, 10)
    # Where the product's file has no such figure, the law of the others holds for them too.
    plain = toy_split(**{"load3d.L0A.transposes": True})
    assert load(A0, Transposed(3, 0, 40, 8, 4, 0, 64)).cost(plain) == Cost(2 + 18, 10)


def test_a_turned_tile_may_be_a_part_of_what_lies_in_l1():
    mem = memory()
    put(mem, A1, counted(6, 2).reshape(3, 2, 2))  # 3 groups of 2 channels, 2 pixels
    load(A0, Transposed(1, 0, 2, 2, 2, first_channel=1)).execute(mem)
    assert mem.tile(A0).tolist() == [[5, 7], [6, 8]]


def test_the_cost_of_load3d_depends_on_where_in_a_row_it_begins():
    w = window(8, 32, out_width=32)
    # pixels 20..35: 12 in row 0, 4 in row 1: two rows, 2 + 2 cycles
    assert load(A0, Im2col(w, 20, 16, 0, 1, 2)).cost(TOY).cycles == 2 + 4
    assert Im2col(w, 20, 16, 0, 1, 2).shape != Im2col(w, 16, 16, 0, 1, 2).shape
    assert Im2col(w, 32 + 16, 16, 0, 1, 2).shape == Im2col(w, 16, 16, 0, 1, 2).shape


def test_a_command_of_load3d_has_cycles_of_its_own():
    # 40 pixels are 3 fractals, of 5 (channel group, tap) pairs: 15 of 2 cycles each in rows of 64 pixels.
    view = Im2col(window(64, 64, c0=16, out_width=64), 0, 40, 0, 5, 2)
    for covers, commands in (("matrix", 1), ("line", 3)):  # a line runs along the five
        profile = toy_split(**{"load3d.L0A.command_cycles": 7, "load3d.L0A.command_covers": covers})
        assert load(A0, view).cost(profile) == Cost(2 + 15 * 2 + commands * 7, 10)
        assert load(B0, view).cost(profile) == load(B0, view).cost(TOY)  # a law for each buffer
    few_groups = view._replace(groups=2)
    assert load(A0, few_groups).cost(profile) == Cost(2 + 6 * 2 + 2 * 7, 10)  # now along the pixels


# --- load2d


def test_weights_are_read_forwards_or_backwards():
    # 2 channel groups of 3 taps, C0 = 1, one column: rows 1..6
    mem = memory()
    put(mem, A1, counted(6, 1))
    load(B0, TapRows(3, False, 0, 6, 1, 1, 2)).execute(mem)
    assert mem.tile(B0).ravel().tolist() == [1, 2, 3, 4, 5, 6]
    load(B0, TapRows(3, True, 0, 6, 1, 1, 2)).execute(mem)
    assert mem.tile(B0).ravel().tolist() == [3, 2, 1, 6, 5, 4]
    load(B0, TapRows(3, True, 2, 3, 1, 1, 2)).execute(mem)  # the third to the fifth of these
    assert mem.tile(B0).ravel().tolist() == [1, 6, 5]


def test_weight_rows_keep_their_c0_channels_together():
    mem = memory()
    put(mem, A1, counted(2, 6))  # 2 taps, C0 = 2, 3 columns
    view = TapRows(2, True, 0, 2, 2, 3, 2)
    assert view.matrix_shape() == (4, 3)
    load(B0, view).execute(mem)
    assert mem.tile(B0).tolist() == [[7, 8, 9], [10, 11, 12], [1, 2, 3], [4, 5, 6]]


def test_weights_cost_whole_fractals_at_the_rate_of_the_path():
    # 3 groups of C0 = 16 rows, 17 columns padded to 32: 3 * 16 * 32 * 2 bytes = 3072 bytes, 128 a cycle
    assert load(B0, TapRows(9, True, 0, 3, 16, 17, 2)).cost(TOY) == Cost(2 + 24, 10)
    assert load(A0, TapRows(9, True, 0, 3, 16, 17, 2)).cost(TOY) == Cost(2 + 12, 10)


def test_the_transposed_view_makes_channels_rows():
    mem = memory()
    put(mem, A1, counted(2, 3, 2))  # 2 channel groups, 3 pixels, C0 = 2
    view = Transposed(2, 1, 2, 2, 2)
    assert view.matrix_shape() == (4, 2)
    load(A0, view).execute(mem)
    # group 0: pixel 1 is (3, 4), pixel 2 is (5, 6); group 1: (9, 10), (11, 12)
    assert mem.tile(A0).tolist() == [[3, 5], [4, 6], [9, 11], [10, 12]]


def test_the_transposed_view_costs_whole_fractals():
    # 2 groups * 16 channels * 32 (17 pixels padded) * 2 bytes = 2048, 256 a cycle into L0A
    assert load(A0, Transposed(2, 5, 17, 16, 2)).cost(TOY) == Cost(2 + 8, 10)


def test_the_transposed_view_may_take_load3d():
    profile = toy_split(**{"load3d.L0A.transposes": True, "load3d.L0A.command_cycles": 7})
    # 17 pixels from the tenth of a row of 20: 16 in two rows, 2 + 2 cycles, and one more, 2; of 3 groups.
    view = Transposed(3, 5, 17, 16, 2, 10, 20)
    assert load(A0, view).cost(profile) == Cost(2 + 3 * (4 + 2) + 7, 10)
    assert load(A0, view._replace(place=0, width=0)).cost(profile) == Cost(2 + 3 * (2 + 2) + 7, 10)


def test_weights_that_are_turned_over_pay_for_every_block():
    profile = toy_split(**{"load2d.turned_block_cycles": 10.5, "load2d.issue_cycles": 7})
    # 3 taps of C0 = 16, 32 columns: 3072 bytes at 128 a cycle, and 6 blocks of 16 x 16.
    view = TapRows(9, True, 0, 3, 16, 17, 2)
    assert load(B0, view).cost(profile) == Cost(2 + 24 + 63, 10)
    assert load(B0, view._replace(backwards=False)).cost(profile) == Cost(2 + 24, 10)
    # C0 = 8 in float32: half of two blocks of 16 x 16, of 1024 bytes each.
    assert load(B0, TapRows(9, True, 0, 1, 8, 32, 4)).cost(profile) == Cost(2 + 8 + 11, 10)  # 10.5 rounded up


def test_a_part_of_a_plain_matrix_is_read_as_it_lies_or_transposed():
    # 3 x 4 numbered 1 to 12; rows 1 and 2 of columns 2 and 3, then of the transpose the same places.
    mem = memory()
    put(mem, A1, counted(3, 4))
    load(A0, Submatrix(1, 2, 2, 2, False, 2)).execute(mem)
    assert mem.tile(A0).tolist() == [[7, 8], [11, 12]]
    load(A0, Submatrix(1, 2, 1, 2, True, 2)).execute(mem)
    assert mem.tile(A0).tolist() == [[6, 10], [7, 11]]


def test_a_part_of_a_plain_matrix_costs_the_same_wherever_it_lies():
    here, there, wider = (Submatrix(at, 2, at, 2 + more, False, 2) for at, more in ((0, 0), (5, 0), (0, 1)))
    assert here.shape == there.shape != wider.shape
    assert here.load2d_commands(TOY) == 0  # one load3d


def test_a_load3d_that_turns_pixels_over_pays_for_no_command_of_load2d():
    own = {"load2d.head_cycles": 50, "load2d.issue_cycles": 30}
    plain, turning = toy_split(**own), toy_split(**own, **{"load3d.L0A.transposes": True})
    view = Transposed(3, 5, 17, 16, 2, 10, 20)
    # A command for each of two fractals of pixels; one for each group would be three. 12 cycles of data.
    assert [view.load2d_commands(profile) for profile in (plain, turning)] == [2, 0]
    assert load(A0, view).cost(plain) == Cost(50 + 30 + 12, 10)
    assert load(A0, view).cost(turning) == Cost(2 + 3 * (4 + 2), 10)


def test_a_plain_load_pays_for_every_command():
    profile = replace(TOY, load2d=TOY.load2d._replace(head_cycles=5, issue_cycles=3, least_cycles=20))
    # 4 groups of 16 rows and 16 columns of float16 are 2048 bytes: 8 cycles into L0A
    forwards, backwards = (TapRows(9, back, 0, 4, 16, 16, 2) for back in (False, True))
    assert load(A0, forwards).cost(profile) == Cost(20, 10)  # one command: 5 + 8 is less than the least
    assert load(A0, backwards).cost(profile) == Cost(5 + 3 * 3 + 8, 10)  # every tap a command of its own
    # Turned pixels: a command goes along pixels or from group to group. 4 groups of 40 pixels are 3 fractals
    # each: 3 commands, and 6144 bytes at 256 a cycle; of 16 pixels one command brings all groups.
    assert load(A0, Transposed(4, 0, 40, 16, 2)).cost(profile) == Cost(5 + 2 * 3 + 24, 10)
    assert load(A0, Transposed(2, 0, 40, 16, 2)).cost(profile) == Cost(5 + 3 + 12, 10)
    assert load(A0, Transposed(4, 0, 16, 16, 2)).cost(profile) == Cost(20, 10)
    # load3d is one command with the head of the path
    w = window(64, 64, out_width=16)
    assert load(A0, Im2col(w, 0, 16, 0, 4, 2)).cost(profile) == load(A0, Im2col(w, 0, 16, 0, 4, 2)).cost(TOY)


def test_a_load_rounds_its_cycles_up_once():
    # 8 channels, 16 pixels, float32: 512 bytes at 768 a cycle are two thirds of a cycle
    quick = toy_split(**{"paths.L1_L0A.bytes_per_cycle": 768})
    assert load(A0, Transposed(1, 0, 16, 8, 4)).cost(quick).cycles == 2 + 1
    assert Transposed(1, 0, 16, 8, 4).cycles(quick, "L0A") == Fraction(2, 3)


def test_loads_read_l1_and_write_l0_on_mte1():
    view = Transposed(1, 0, 16, 16, 2)
    for instruction, slot in ((load(A0, view), A0), (load(B0, view), B0)):
        assert (instruction.pipe, instruction.reads, instruction.writes) == ("MTE1", (A1,), (slot,))


# --- Mmad


def mmad(m, k, n, dtype="float16", *, first=True):
    return Mmad(C0, A0, B0, m, k, n, dtype, first)


def test_mmad_begins_at_zero_or_adds():
    mem = memory()
    put(mem, A0, [[1, 2], [3, 4]])
    put(mem, B0, [[1, 0, 2], [0, 1, 1]])
    mmad(2, 2, 3).execute(mem)
    assert mem.tile(C0).tolist() == [[1, 2, 4], [3, 4, 10]]
    mmad(2, 2, 3, first=False).execute(mem)
    assert mem.tile(C0).tolist() == [[2, 4, 8], [6, 8, 20]]


def test_mmad_rounds_as_the_model_of_the_kernel_says():
    # 2^24 + 1 + 1: one block of 16 is exact, products one by one are lost
    values = [[2.0**12, 1.0, 1.0]]
    for model, expected in (("block:16:RNE", 2.0**24 + 2), ("seq:RNE", 2.0**24)):
        mem = CoreMemory({}, MathSettings(AccumulationModel.parse(model)), {})
        put(mem, A0, values)
        put(mem, B0, np.transpose(values))
        mmad(1, 3, 1).execute(mem)
        assert mem.tile(C0).tolist() == [[expected]]


def test_mmad_refuses_tiles_of_other_shapes():
    mem = memory()
    put(mem, A0, [[1, 2]])
    put(mem, B0, [[1, 0, 2]])
    with pytest.raises(
        ProgramError, match=r"Mmad of 1 x 2 x 3 finds .* \(1, 2\), .* \(1, 3\) .* wait is missing"
    ):
        mmad(1, 2, 3).execute(mem)


def test_mmad_reads_the_accumulator_unless_it_begins_it():
    assert mmad(1, 1, 1).reads == (A0, B0)
    assert mmad(1, 1, 1, first=False).reads == (A0, B0, C0)
    assert mmad(1, 1, 1).writes == (C0,)


@pytest.mark.parametrize(
    ("dtype", "m", "k", "n", "cycles"),
    [
        ("float16", 16, 16, 16, 1),
        ("float16", 1, 1, 1, 1),  # a fractal is never cut
        ("float16", 17, 16, 16, 2),
        ("float16", 16, 17, 16, 2),
        ("float16", 16, 16, 17, 2),
        ("float16", 128, 64, 128, 256),  # 8 * 4 * 8 fractal products
        # float32: fractal k0 = 8, 4 k a cycle: 2 cycles for each fractal product
        ("float32", 16, 8, 16, 2),
        ("float32", 16, 1, 16, 2),
        ("float32", 32, 20, 16, 12),  # 2 * 3 fractal products
        ("hf32", 32, 20, 16, 6),  # the same fractals at 8 k a cycle
    ],
)
def test_mmad_costs_head_and_fractal_products(dtype, m, k, n, cycles):
    cost = mmad(m, k, n, dtype).cost(TOY)
    assert cost._replace(lead_cycles=0) == Cost(2 + cycles, 20)


@pytest.mark.parametrize(
    ("dtype", "m", "k", "n", "lead"),
    [
        ("float16", 16, 16, 16, 0),  # one k0: pieces come from the first cycle on
        ("float16", 128, 64, 128, 192),  # the last of four k0 takes 64 of 256 cycles
        ("float16", 16, 17, 32, 2),  # two k0 of two fractals
        ("float32", 32, 20, 16, 8),  # three k0 of two fractals of 2 cycles
    ],
)
def test_the_first_piece_of_a_product_is_ready_when_the_last_k0_begins(dtype, m, k, n, lead):
    assert mmad(m, k, n, dtype).cost(TOY).lead_cycles == 2 + lead


# --- out of L0C


def test_fixpipe_converts_and_writes_channel_groups():
    # 2 pixels, 4 channels in groups of C0 = 2; 2049 needs 12 bits and rounds to 2048 in float16
    y = GmTensor("y", (2, 3, 2), "float16", 2, "output")
    mem = memory(y=np.zeros((2, 3, 2), np.float32))
    put(mem, C0, [[1, 2, 3, 2049], [5, 6, 7, 8]])
    Fixpipe(Gm(y, (slice(0, 2), slice(1, 3))), C0, 16, 2).execute(mem)
    assert mem.gm["y"].tolist() == [[[0, 0], [1, 2], [5, 6]], [[0, 0], [3, 2048], [7, 8]]]


def test_fixpipe_writes_a_plain_matrix_or_adds_to_it():
    y = GmTensor("y", (2, 3), "float32", 4, "output")
    mem = memory(y=counted(2, 3))
    put(mem, C0, [[10, 20], [30, 40]])
    place = Gm(y, (slice(0, 2), slice(1, 3)))
    Fixpipe(place, C0, 16, atomic=True).execute(mem)
    assert mem.gm["y"].tolist() == [[1, 12, 23], [4, 35, 46]]
    Fixpipe(place, C0, 16).execute(mem)
    assert mem.gm["y"].tolist() == [[1, 10, 20], [4, 30, 40]]


def test_fixpipe_costs_head_traffic_and_latency():
    y = GmTensor("y", (8,), "float32", 4, "output")
    plain, added = (Fixpipe(Gm(y, (slice(0, 8),)), C0, 32, atomic=atomic) for atomic in (False, True))
    assert plain.cost(TOY) == Cost(8, 40, Traffic(y, "write", 32, 64))
    assert added.cost(TOY) == Cost(8, 40, Traffic(y, "atomic", 32, 64))
    assert plain.shape != added.shape
    assert (plain.pipe, plain.reads, plain.writes) == ("FIX", (C0,), ())


def test_fixpipe_reads_l0c_before_it_writes():
    # 2 bytes leave for 4 that are read at 128 a cycle: 1/64 + 1/64 of a cycle for each byte, or 1/32 + 1/64
    unit = TOY.fixpipe._replace(
        read_bytes_per_cycle=128, matrix_least_cycles=50, channel_split_bytes_per_cycle=32
    )
    profile = replace(TOY, fixpipe=unit)
    y = GmTensor("y", (32,), "float16", 2, "output")

    def cost(c0):
        return Fixpipe(Gm(y, (slice(0, 32),)), C0, 64, c0).cost(profile)

    assert cost(16) == Cost(8, 40, Traffic(y, "write", 64, 32))
    assert cost(8) == Cost(8, 40, Traffic(y, "write", 64, Fraction(64, 3)))  # fractals are cut in two
    assert cost(0) == Cost(8, 40, Traffic(y, "write", 64, 32), 50)  # a plain matrix takes 50 at least


def test_a_tile_is_read_out_of_l0c_and_then_written():
    # 64 elements: 256 bytes of L0C at 128 a cycle, then 128 bytes of float16 at the path's 64; both in one
    # are 4. The last piece of 512 bytes is read in 4.
    profile = replace(TOY, fixpipe=TOY.fixpipe._replace(unit_flag_bytes=512, read_bytes_per_cycle=128))
    y = GmTensor("y", (64,), "float16", 2, "output")
    reading = ReadOut(C1, C0, 64)
    assert (reading.trails, reading.reads, reading.writes) == (True, (C0,), (C1,))
    assert reading.cost(profile) == Cost(2, piece_cycles=4)
    place = Gm(y, (slice(0, 64),))
    whole, writing = (Fixpipe(place, C1, 128, read_out=flag) for flag in (False, True))
    assert whole.shape != writing.shape
    assert (whole.cost(profile).traffic.peak_bytes_per_cycle, 128 // 4) == (32, 32)
    assert writing.cost(profile).traffic.peak_bytes_per_cycle == 64
    # Where no rate of reading is known by itself the writing has all of it.
    assert reading.cost(TOY) == Cost(0)


def test_what_is_read_out_stays_when_the_next_product_comes():
    mem = memory()
    put(mem, C0, [[1, 2], [3, 4]])
    ReadOut(C1, C0, 4).execute(mem)
    put(mem, C0, [[9, 9], [9, 9]])
    assert mem.tile(C1).tolist() == [[1, 2], [3, 4]]


def test_columns_of_an_accumulator_go_to_ub_converted():
    mem = memory()
    put(mem, C0, [[1, 2, 3, 2049], [5, 6, 7, 8]])
    CopyL0cToUb(UB, C0, 2, 2, "float16", 4).execute(mem)
    assert mem.tile(UB).tolist() == [[3, 2048], [7, 8]]
    CopyL0cToUb(UB, C0, 0, 4, "float16", 8, 2).execute(mem)
    assert mem.tile(UB).tolist() == [[[1, 2], [5, 6]], [[3, 2048], [7, 8]]]


def test_leaving_l0c_through_ub_costs_float32_bytes_on_the_pipe_of_the_path():
    # 33 elements are 132 bytes of float32: 2 cycles at 128 bytes a cycle, whatever they become
    copy = CopyL0cToUb(UB, C0, 0, 3, "float16", 33, pipe="V")
    assert copy.cost(toy_unified()) == Cost(8 + 2, 10)
    assert (copy.pipe, copy.reads, copy.writes) == ("V", (C0,), (UB,))


def test_the_cube_stands_still_for_a_share_of_the_reads_of_l0c():
    # 33 elements are 132 bytes of float32: 33 / 32 cycles at 128 bytes a cycle, a quarter of them begun.
    stall = StallCube(33)
    stall.execute(memory())
    assert (stall.pipe, stall.reads, stall.writes) == ("M", (), ())
    assert stall.cost(toy_unified(**{"paths.L0C_UB.m_stall_share": 0.25})) == Cost(1)
    assert StallCube(1024).cost(toy_unified(**{"paths.L0C_UB.m_stall_share": 0.25})) == Cost(8)
    assert StallCube(1024).cost(toy_unified()) == Cost(0)


def test_a_barrier_drains_its_pipe_and_touches_nothing():
    barrier = PipeBarrier("M")
    barrier.execute(memory())
    assert (barrier.pipe, barrier.drains, barrier.reads, barrier.writes) == ("M", True, (), ())
    assert barrier.cost(TOY) == Cost(1)


# --- what Fixpipe does on the way, L0C to L1, the bias table


FB, BT, L1 = (Slot(buffer, 4096, buffer, i) for i, buffer in enumerate(("FB", "BT", "L1"), 6))
INT8 = MathSettings(IntegerSum.parse("int32:wrap"))


def finished(value, relu, scale, dtype):
    """What Fixpipe makes of one number: the definition, in fractions."""
    if math.isnan(value):
        return 0.0 if dtype == "int8" else value
    if relu and value <= 0:
        value = 0.0
    if scale is not None:
        fraction, exponent = math.frexp(scale)
        cut = math.trunc(Fraction(fraction) * 2048)  # the point stands behind a hidden bit: 11 in all
        product = Fraction(float(np.float32(value))) * Fraction(cut) * Fraction(2) ** (exponent - 11)
        value = float(np.float32(float(product)))
    if dtype == "int8":
        return float(max(-128, min(127, round(value))))
    return float(np.float32(value).astype(np.float16)) if dtype == "float16" else value


VALUES = [-300.0, -2.5, -1.5, -0.0, 0.5, 1.5, 2049.0, np.nan]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("dtype", "scale"), [("int8", 0.3), ("int8", 1.0), ("float16", 1.00048828125), ("float16", None)]
)
def test_fixpipe_finishes_each_value_as_the_definition_says(relu, dtype, scale):
    y = GmTensor.of("y", (1, len(VALUES)), dtype, "output")
    mem = memory(y=np.zeros(y.shape, np.float32))
    put(mem, C0, [VALUES])
    Fixpipe(Gm(y, ()), C0, y.size_bytes, relu=relu, scale=scale).execute(mem)
    due = [finished(value, relu, scale, dtype) for value in VALUES]
    assert np.array_equal(mem.gm["y"][0], due, equal_nan=True)
    # the same to L1
    CopyL0cToL1(L1, C0, len(VALUES), dtype, relu, scale).execute(mem)
    assert np.array_equal(mem.tile(L1)[0], due, equal_nan=True)


def test_columns_have_scales_of_their_own():
    # 13 bits of each are not looked at; 1.5 is 0x3fc00000
    mem = memory()
    put(mem, L1, np.array([0x3FC01FFF, 0x3F000000], np.uint32).view(np.float32))
    CopyL1ToFb(FB, L1, 2).execute(mem)
    put(mem, C0, [[1, 5], [3, 7]])
    CopyL0cToL1(L1, C0, 4, "int8", scale=FB).execute(mem)
    assert mem.tile(L1).tolist() == [[2, 2], [4, 4]]  # ties to even


def test_sums_of_int8_leave_as_int8_or_in_half():
    a, b = (GmTensor.of(name, (4, 4), "int8") for name in "ab")
    scale = GmTensor("scale", (4,), "uint64", 8)
    h, q = GmTensor.of("h", (4, 4), "float16", "output"), GmTensor.of("q", (4, 4), "int8", "output")
    builder = ProgramBuilder(load_profile("910B2"))
    sizes = {"L1": 32, "L0A": 512, "L0B": 512, "L0C": 64, "FB": 64}
    one, two, table = (builder.slots("L1", size, name)[0] for size, name in ((32, "a"), (32, "b"), (32, "s")))
    left, right, sums, scales = (builder.slots(name, sizes[name], name)[0] for name in [*sizes][1:])
    for slot, tensor in ((one, a), (two, b), (table, scale)):
        builder.add(CopyGmToL1(slot, Gm(tensor, ()), tensor.size_bytes, tensor.shape))
    builder.add(CopyL1ToFb(scales, table, 4))
    builder.add(LoadL0A(left, one, Submatrix(0, 4, 0, 4, False, 1)))
    builder.add(LoadL0B(right, two, Submatrix(0, 4, 0, 4, False, 1)))
    builder.add(Mmad(sums, left, right, 4, 4, 4, "int8", True))
    builder.add(Fixpipe(Gm(h, ()), sums, 32, scale=scales))
    builder.add(Fixpipe(Gm(q, ()), sums, 16, scale=scales))
    work = CoreWork(Core("cube", 0), "all", builder.build)
    tensors = {tensor.name: tensor for tensor in (a, b, scale, h, q)}
    kernel = Kernel("k", (Phase("p", (work,)),), tensors, INT8)
    x = np.arange(16, dtype=np.int32).reshape(4, 4) * 7 - 50
    gm = {"a": x, "b": x.T.copy(), "scale": np.full(4, 0.125, np.float32).view(np.int32)}
    run_kernel(kernel, gm)
    assert np.array_equal(gm["h"], (x @ x.T * np.float32(0.125)).astype(np.float16))
    assert np.array_equal(gm["q"], np.rint(x @ x.T * 0.125).clip(-128, 127))
    cycles = {
        measure_kernel(kernel, builder.profile, engine=engine).cycles for engine in ("simpy", "compiled")
    }
    assert len(cycles) == 1
    assert "scales of Fixpipe" in unknown_costs(kernel, builder.profile)


@pytest.mark.parametrize(
    ("settings", "dtype", "scale", "refused"),
    [
        (MATH, "int8", None, "int8 of float32 without a scale"),
        (MATH, "int32", 2.0, "int32 of float32 with a scale"),
        (INT8, "float16", None, "float16 of int32 without a scale"),
        (INT8, "int32", 2.0, "int32 of int32 with a scale"),
    ],
)
def test_formats_that_no_fixpipe_makes_are_refused(settings, dtype, scale, refused):
    y = GmTensor.of("y", (1, 1), dtype, "output")
    mem = memory(settings, y=np.zeros((1, 1), settings.carrier))
    mem.new_tile(C0, (1, 1)).fill(1)
    with pytest.raises(ProgramError, match=refused):
        Fixpipe(Gm(y, ()), C0, 4, scale=scale).execute(mem)


@pytest.mark.parametrize(
    ("product", "settings", "dtype", "makes"),
    [
        ("910B2", MATH, "float16", "int8 on 910B2"),
        ("910B2", MATH, "float32", "int8 on 910B2"),
        ("910B2", INT8, "bfloat16", "int8, float16 on 910B2"),
        ("950PR_9589", MATH, "float16", ""),
        ("950PR_9589", MATH, "hifloat8", ""),
        ("950PR_9589", INT8, "bfloat16", ""),
        ("910B2", INT8, "float16", ""),
    ],
)
def test_scales_lead_to_the_formats_that_a_product_makes(product, settings, dtype, makes):
    y = GmTensor.of("y", (1, 1), dtype, "output")
    mem = memory(settings, y=np.zeros((1, 1), np.float32))
    mem.profile = load_profile(product)
    mem.new_tile(C0, (1, 1)).fill(3)
    fixpipe = Fixpipe(Gm(y, ()), C0, y.size_bytes, scale=2.0)
    if makes:
        with pytest.raises(ProgramError, match=f"with a scale; it makes {makes}$"):
            fixpipe.execute(mem)
    else:
        fixpipe.execute(mem)
        assert mem.gm["y"] == 6


@pytest.mark.parametrize("model", ["exact:RNE", "block:16:RNE", "seq:RNE"])
def test_a_product_begins_with_the_bias(model):
    rng = np.random.default_rng(0)
    mem = memory(MathSettings(AccumulationModel.parse(model)))
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((3, 32), (32, 5)))
    bias = rng.standard_normal(5, np.float32) * 1e4
    put(mem, A0, a)
    put(mem, B0, b)
    put(mem, BT, bias)
    first = Mmad(C0, A0, B0, 3, 32, 5, "float16", True, BT)
    assert first.reads == (A0, B0, BT)
    first.execute(mem)
    first._replace(first=False, bias=None).execute(mem)
    if model == "exact:RNE":
        due = bias.astype(np.float64) + 2 * (a @ b)
        assert np.array_equal(mem.tile(C0), due.astype(np.float32))
    else:
        # the bias is what another product has left there
        other = memory(mem.math)
        put(other, A0, a)
        put(other, B0, b)
        put(other, C0, np.broadcast_to(bias, (3, 5)))
        for _ in range(2):
            Mmad(C0, A0, B0, 3, 32, 5, "float16", False).execute(other)
        assert np.array_equal(mem.tile(C0), other.tile(C0))
    with pytest.raises(ProgramError, match="give it to the first product"):
        first._replace(first=False).execute(mem)


def test_the_ways_beside_the_operands_cost_their_paths():
    profile = load_profile("910B2")
    assert CopyL0cToL1(L1, C0, 1024, "float16").cost(profile) == Cost(16, 20)
    assert CopyL0cToL1(L1, C0, 1024, "int8").cost(profile) == Cost(16, 20)
    assert CopyL0cToL1(L1, C0, 1024, "float32").cost(profile) == Cost(32, 20)
    assert CopyL1ToBt(BT, L1, 256).cost(profile) == Cost(32, 20, least_cycles=3)
    assert CopyL1ToFb(FB, L1, 256).cost(profile) == Cost(15 + 64, 20)
    assert (CopyL1ToBt(BT, L1, 1).pipe, CopyL1ToFb(FB, L1, 1).pipe) == ("MTE1", "FIX")
    with pytest.raises(UnsupportedError, match="has no path L1_BT"):
        CopyL1ToBt(BT, L1, 256).cost(TOY)


@pytest.mark.parametrize(
    ("product", "dtype"), [("910B2", "int8"), ("950PR_9589", "hifloat8"), ("950PR_9589", "float8_e4m3fn")]
)
def test_as_many_elements_of_8_bits_as_of_16_leave_for_gm_in_a_cycle(product, dtype):
    profile = load_profile(product)
    half, narrow = (GmTensor.of("y", (1, 64), each, "output") for each in ("float16", dtype))
    rates = [
        Fixpipe(Gm(y, ()), C0, y.size_bytes).cost(profile).traffic.peak_bytes_per_cycle
        for y in (half, narrow)
    ]
    assert rates[0] == 2 * rates[1]


def fused(profile):
    """Two products, the second of the first: relu(x w + bias) v."""
    m, k, n, o = 32, 32, 48, 16
    shapes = {"x": (m, k), "w": (k, n), "bias": (n,), "v": (n, o)}
    tensors = {name: GmTensor.of(name, shape, "float16") for name, shape in shapes.items()}
    tensors["bias"] = GmTensor.of("bias", (n,), "float32")
    tensors["y"] = GmTensor.of("y", (m, o), "float32", "output")
    builder = ProgramBuilder(profile)
    at = {name: builder.slots("L1", tensors[name].size_bytes, name)[0] for name in shapes}
    [hidden] = builder.slots("L1", m * n * 2, "hidden")
    [left], [right] = builder.slots("L0A", 4096, "left"), builder.slots("L0B", 4096, "right")
    [sums], [table] = builder.slots("L0C", m * n * 4, "sums"), builder.slots("BT", n * 4, "bias")
    for name, slot in at.items():
        builder.add(CopyGmToL1(slot, Gm(tensors[name], ()), tensors[name].size_bytes, tensors[name].shape))
    builder.add(CopyL1ToBt(table, at["bias"], n))
    for of, rows, columns, by, bias in ((at["x"], k, n, at["w"], table), (hidden, n, o, at["v"], None)):
        builder.add(LoadL0A(left, of, Submatrix(0, m, 0, rows, False, 2)))
        builder.add(LoadL0B(right, by, Submatrix(0, rows, 0, columns, False, 2)))
        builder.add(Mmad(sums, left, right, m, rows, columns, "float16", True, bias))
        if bias is not None:
            builder.add(CopyL0cToL1(hidden, sums, m * n, "float16", relu=True))
    builder.add(Fixpipe(Gm(tensors["y"], ()), sums, m * o * 4))
    work = CoreWork(Core("cube", 0), "all", builder.build)
    return Kernel("fused", (Phase("all", (work,)),), tensors, MATH)


@pytest.mark.parametrize("order", ["program", 1, 2])
def test_a_product_of_a_product_never_leaves_the_core(order):
    profile = load_profile("910B2")
    kernel = fused(profile)
    rng = np.random.default_rng(1)
    gm = {
        name: rng.integers(-3, 4, kernel.tensors[name].shape).astype(np.float32)
        for name in ("x", "w", "bias", "v")
    }
    run_kernel(kernel, gm, order=order)
    assert np.array_equal(gm["y"], np.maximum(gm["x"] @ gm["w"] + gm["bias"], 0) @ gm["v"])
    cycles = {measure_kernel(kernel, profile, engine=engine).cycles for engine in ("simpy", "compiled")}
    assert len(cycles) == 1
    said = unknown_costs(kernel, profile)
    assert said == (
        "not published: reading the bias table, here nothing; reading L0C before writing L1, here no cycles "
        "beside the rate of the path; ReLU and scales of Fixpipe, here nothing beside the conversion"
    )


@pytest.mark.parametrize(
    ("kind", "changes", "refused"),
    [
        (CopyL1ToBt, {"elements": 47}, "says elements = 47"),
        (CopyL1ToBt, {"dst": 0}, "reserve it in BT"),
        (CopyL0cToL1, {"elements": 100}, "says elements = 100"),
        (CopyL0cToL1, {"dtype": "float32"}, "declared as 3072"),
        (CopyL0cToL1, {"dtype": "int8"}, "int8 of float32 without a scale"),
        (CopyL0cToL1, {"scale": 2.0}, "float16 of float32 with a scale; it makes int8 on 910B2"),
    ],
)
def test_what_they_say_is_checked(kind, changes, refused):
    profile = load_profile("910B2")
    kernel = fused(profile)
    [work] = kernel.phases[0].work
    given = work.build()
    said = {key: given.slots[0] if key == "dst" else value for key, value in changes.items()}
    made = [each._replace(**said) if type(each) is kind else each for each in given.instructions]
    program = program_of(made, given.slots, given.buffer_bytes, given.hazards, {}, profile)
    kernel = replace(kernel, phases=(Phase("all", (work._replace(build=lambda: program),)),))
    gm = {name: np.ones(kernel.tensors[name].shape, np.float32) for name in ("x", "w", "bias", "v")}
    with pytest.raises(ProgramError, match=refused):
        run_kernel(kernel, gm)


# --- shapes, by which costs are looked up


def test_equal_shapes_cost_the_same():
    w = window(9, 30, out_width=30, stride=(2, 2))
    views = [Im2col(w, first, pixels, 0, 2, 2) for first in range(60) for pixels in (1, 16, 17, 40)]
    views += [TapRows(3, back, first, 2, 16, 20, 2) for back in (False, True) for first in range(4)]
    views += [
        Transposed(2, first, pixels, 16, 2, place, 30)
        for first in range(4)
        for pixels in (1, 16, 17)
        for place in (0, 15, 29)
    ]
    own = {"load3d.L0A.transposes": True, "load3d.L0A.command_cycles": 7, "load2d.turned_block_cycles": 3}
    for profile in (TOY, toy_split(**own)):
        prices = {}
        for view in views:
            for slot in (A0, B0):
                instruction = load(slot, view)
                price = instruction.cost(profile)
                assert prices.setdefault((type(instruction), instruction.shape), price) == price
