"""How do zeros come between pixels: by a kernel beside a grad_input, or on their way into L1?"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.functional import run_kernel
from ascendsim.instructions.cube import Window
from ascendsim.instructions.movers import CopyGmToL1, FillL1, Placement
from ascendsim.instructions.relayout import CopyUbToL1, FractalsToL1, SpreadPixels
from ascendsim.instructions.vector import CopyGmToUb, Fill
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.problems.folded import Dilated, kernel_problem
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.schedules.vector.dilation import DilationTensors, ZeroInsertion, dilation
from ascendsim.ops.schedules.vector.dilation import insertion_pieces as pieces
from ascendsim.profile import load_profile
from ascendsim.program.instruction import Cost
from ascendsim.program.kernel import Kernel
from ascendsim.program.nest import Nest
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.conv_cases import MODES, Case, assert_same_bits, check_bits
from tests.helpers.oracles_timing import check_gm
from tests.helpers.slow_tilings import chosen_plan
from tests.helpers.toy_machines import toy_split, toy_unified

# -------------------------------------------------------------------------------------------------------
# Is a strided grad_input of the older operators made with stride 1, its pixels spread by a kernel beside
# it?
# -------------------------------------------------------------------------------------------------------
# Where its pixels go is checked by hand here.

# UB of 4 KiB: a piece is 1 KiB, 32 pixels.
SMALL = {"buffers.UB.capacity_bytes": 4096}
SPLIT = toy_split(**{"cores.cube": 2, "cores.vector": 4, **SMALL})
UNIFIED = toy_unified(**{"cores.cube": 3, **SMALL})
ONE_TAP = ConvProblem((2, 20, 9, 8), (24, 20, 1, 1), (2, 3))
PADDED = ConvProblem((1, 20, 9, 8), (24, 20, 1, 1), (2, 3), (1, 2))
LARGE = ConvProblem((2, 20, 11, 13), (24, 20, 3, 2), (3, 4), (1, 0))
LINE = ConvProblem((2, 20, 23), (24, 20, 5), 4, 2)
POINT = ConvProblem((2, 20, 23), (24, 20, 1), 4)
GROUPED = ConvProblem((1, 8, 9, 8), (8, 2, 1, 1), 2, groups=4)
PROBLEMS = [ONE_TAP, PADDED, LARGE, LINE, POINT, GROUPED]
GRAD_INPUT = (True, False, False)


def dilated(problem, dtype="float16", product="910B"):
    return Dilated.of(problem, dtype, load_profile(product))


# --- what is spread, and where to


def test_where_the_pixels_of_one_tap_go():
    # Stride (2, 3), no padding: small pixel (i, j) is image pixel (2 i, 3 j). Of 9 x 8 pixels 5 x 3 are met.
    found = dilated(ONE_TAP)
    assert found.spreads == "grad_input"
    assert found.problem == replace(ONE_TAP, input=(2, 20, 5, 3), stride=1)
    small = np.arange(1, 16, dtype=np.float32).reshape(1, 1, 5, 3)
    made = found.spread(small)
    assert made.shape == (1, 1, 9, 8)
    assert np.array_equal(made[:, :, ::2, ::3], small)
    assert np.count_nonzero(made) == 15


def test_pixels_that_meet_padding_are_dropped():
    # Pads of 1 and 2: (9 + 2 - 1) // 2 + 1 = 6 rows, (8 + 4 - 1) // 3 + 1 = 4 columns; row i is image row
    # 2 i - 1, so that rows -1 and (i = 5) 9 are outside, and column j is 3 j - 2: -2 is, 7 is not.
    found = dilated(PADDED)
    small = np.arange(1, 25, dtype=np.float32).reshape(1, 1, 6, 4)
    made = found.spread(small)
    assert np.array_equal(made[0, 0, 1::2, 1::3], small[0, 0, 1:5, 1:4])
    assert np.count_nonzero(made) == 4 * 3


def test_a_large_stride_spreads_grad_output_to_what_stride_one_needs():
    # Stride 1 over 11 + 2 - 3 + 1 = 11 rows and 13 - 2 + 1 = 12 columns; with the strides 3, 4 only rows
    # 0, 3, 6, 9 and columns 0, 4, 8 of these: (11 + 2 - 3) // 3 + 1 = 4 and (13 - 2) // 4 + 1 = 3.
    found = dilated(LARGE)
    assert found.spreads == "grad_output"
    assert found.problem == replace(LARGE, stride=1)
    assert found.problem.grad_output[2:] == found.size == (11, 12)
    assert LARGE.grad_output[2:] == (4, 3)
    small = np.arange(1, 13, dtype=np.float32).reshape(1, 1, 4, 3)
    made = found.spread(small)
    assert np.array_equal(made[0, 0, 0:10:3, 0:9:4], small[0, 0])
    assert np.count_nonzero(made) == 12


@pytest.mark.parametrize(
    ("problem", "dtype", "product", "spreads"),
    [
        (LARGE, "float16", "910B", "grad_output"),
        (LARGE, "hf32", "910_93", "grad_output"),
        (LARGE, "float16", "310P", "grad_output"),
        (LARGE, "float16", "910", "grad_output"),
        (LARGE, "bfloat16", "910B", None),  # the operator leaves bfloat16 to the kernel
        (LARGE, "float16", "910_95", None),  # whose operators change nothing around their kernel
        (ONE_TAP, "bfloat16", "910B", "grad_input"),
        (replace(ONE_TAP, stride=1), "float16", "910B", None),
        (replace(LARGE, stride=2), "float16", "910B", None),
        (ConvProblem((1, 16, 9, 9, 9), (16, 16, 3, 3, 3), 3), "float32", "910B", None),
        (ConvProblem((1, 16, 4, 4), (16, 16, 3, 3), 3, transposed=True), "float16", "910B", None),
    ],
    ids=str,
)
def test_which_calls_have_a_dilation(problem, dtype, product, spreads):
    found = dilated(problem, dtype, product)
    assert (found.spreads if found else None) == spreads
    profile = load_profile(product)
    assert kernel_problem(problem, "grad_weight", dtype, profile) is problem
    assert max(kernel_problem(problem, "grad_input", dtype, profile).strides) == 1 or not found


# --- the kernel


def kernel_of(found, planes, small, profile, itemsize=2):
    dtype = {2: "float16", 4: "float32"}[itemsize]
    source = GmTensor.of("pixels", (planes, *small, 32 // itemsize), dtype)
    target = GmTensor.of("spread", (planes, *found.size, 32 // itemsize), dtype, "output")
    phase = dilation(profile, DilationTensors(source, target, found.step, found.first))
    math = MathSettings(AccumulationModel("exact"))
    return Kernel("dilation", (phase,), {"pixels": source, "spread": target}, math)


@pytest.mark.parametrize(("profile", "itemsize", "order"), [(SPLIT, 2, "program"), (UNIFIED, 4, 0)])
@pytest.mark.parametrize("planes", [1, 7])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_each_pixel_comes_to_its_place_and_every_place_is_written_once(
    problem, planes, itemsize, profile, order
):
    # 7 planes of 4 or 3 cores are whole planes, 1 plane is cut into rows, and rows of 12 pixels in pieces of
    # 32 pixels are several at a time.
    found = dilated(problem)
    small = (1, 1, *problem.grad_output[2:])[-2:]
    kernel = kernel_of(found, planes, small, profile, itemsize)
    assert set(np.unique(check_gm(kernel)["spread"])) == {1}
    values = (np.arange(planes * np.prod(small) * 32 // itemsize) % 2039 + 1).astype(np.float32)
    given = values.reshape(kernel.tensors["pixels"].shape)
    gm = {"pixels": given}
    run_kernel(kernel, gm, order=order)
    flat = found._replace(size=found.size)
    expected = flat.spread(given.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert np.array_equal(gm["spread"].reshape(expected.shape), expected)


def test_a_row_that_is_longer_than_a_piece_is_cut():
    # 4 KiB of UB: pieces of 1 KiB, 32 pixels of 32 bytes; 100 columns are 4 pieces.
    found = dilated(ConvProblem((1, 16, 1, 100), (16, 16, 1, 1), (1, 3)))
    kernel = kernel_of(found, 1, (1, 34), SPLIT)
    [work] = kernel.phases[0].work
    steps = [(type(step).__name__, step) for step in work.build().instructions]
    assert [name for name, _ in steps].count("CopyUbToGm") == 4
    # A piece comes while the one before is spread, and leaves while the next one is.
    assert len({step.dst for name, step in steps if name == "CopyGmToUb"}) == 2
    assert len({step.src for name, step in steps if name == "CopyUbToGm"}) == 2
    gm = {"pixels": np.ones((1, 1, 34, 16), np.float32)}
    run_kernel(kernel, gm)
    assert gm["spread"].reshape(100, 16).sum(axis=1).tolist() == [16.0 * (at % 3 == 0) for at in range(100)]


@pytest.mark.parametrize("product", ["910B2", "910A", "310P3"])
def test_equal_cores_may_stand_for_each_other(product):
    profile = load_profile(product)
    kernel = kernel_of(dilated(LARGE), 97, LARGE.grad_output[2:], profile)
    folded, each = (measure_kernel(kernel, profile, folded=way, l2_start="warm") for way in (True, False))
    assert folded.cycles == each.cycles


def test_all_bytes_of_a_result_leave_and_no_zero_comes_in():
    # 2 x 2 planes (24 of 16 channels are two groups): 4 x 4 x 3 pixels of 32 bytes come in, 4 x 11 x 12
    # leave.
    kernels = estimate(LARGE, product="910B2", output_mask=GRAD_INPUT).kernels
    [kernel] = (kernel for kernel in kernels if kernel.kernel.op_type == "Dilation")
    assert kernel.bytes["l2_write"] == 4 * 11 * 12 * 32
    # Sectors of L2 are as large as four pixels: a little more may be fetched than asked for.
    assert 4 * 4 * 3 * 32 <= kernel.bytes["l2_read"] <= 4 * 4 * 3 * 32 + 48 * 128


# --- the call


def older(profile):
    """Return the toy as a product whose operators change layouts, with room in UB for fractals."""
    ub = profile.buffers["UB"]._replace(capacity_bytes=32768)
    generation = profile.generation._replace(changes_layouts=True)
    return replace(profile, generation=generation, buffers={**profile.buffers, "UB": ub})


@pytest.mark.parametrize(
    ("problem", "product", "expected"),
    [
        (ONE_TAP, "910B", "TransData TransData Conv2DBackpropInput Dilation TransData"),
        (POINT, "910", "TransData TransData Conv2DBackpropInput Dilation TransData"),
        (LARGE, "910B", "TransData Dilation TransData Conv2DBackpropInput TransData"),
        (LINE, "310P", "TransData Dilation TransData Conv2DBackpropInput TransData"),
        (LARGE, "910_95", "Conv3DBackpropInputV2"),
    ],
    ids=str,
)
def test_the_kernels_of_the_call_in_order(problem, product, expected):
    kernels = estimate(problem, product=product, output_mask=GRAD_INPUT).kernels
    assert [kernel.kernel.op_type for kernel in kernels] == expected.split()


def test_grad_weight_reads_grad_output_as_it_is():
    kernels = estimate(LARGE, product="910B").kernels
    reads = {kernel.name: set(kernel.kernel.tensors) for kernel in kernels}
    assert "grad_output NDC1HWC0 dilated" in reads["grad_input"]
    assert "grad_output NDC1HWC0" in reads["grad_weight"]
    assert "grad_output NDC1HWC0 dilated" not in reads["grad_weight"]


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_bits_are_those_of_the_definition_in_every_order(problem, profile):
    check_bits(Case(problem, data="special", profile=older(profile)), "program", 0, "arrival")


@pytest.mark.parametrize(("dtype", "math"), MODES)
def test_the_bits_of_every_format(dtype, math):
    for problem in (ONE_TAP, LARGE):
        check_bits(Case(problem, dtype, math, data="wide", profile=older(SPLIT)))


@pytest.mark.parametrize("problem", [ONE_TAP, PADDED, LARGE, LINE, GROUPED], ids=str)
@pytest.mark.parametrize("product", ["910B", "310P"])
def test_without_cycles_the_bits_are_the_same(problem, product):
    rng = np.random.default_rng(5)
    p = problem
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in (p.grad_output, p.input, p.weight)]
    attributes = None, p.stride, p.padding, p.dilation, False, (0,) * p.rank, p.groups, (True, True, False), 0
    slow, quick = (
        convolution_backward(*tensors, [p.grad_output[1]], *attributes[1:], product=product, timing=timing)
        for timing in (True, False)
    )
    assert_same_bits(slow.grad_input.astype(np.float32), quick.grad_input.astype(np.float32))
    assert_same_bits(slow.grad_weight.astype(np.float32), quick.grad_weight.astype(np.float32))


def test_a_pixel_that_no_tap_meets_is_zero_whatever_the_weights_are():
    # Inf x 0 is NaN in a kernel that multiplies zeros between the pixels; Dilation writes them.
    p = ConvProblem((1, 16, 4, 4), (16, 16, 1, 1), 2)
    weight = np.full(p.weight, np.inf, np.float16)
    ones = np.ones(p.grad_output, np.float16)
    made = convolution_backward(
        *(ones, np.ones(p.input, np.float16), weight, [16], 2, 0, 1, False, 0, 1, GRAD_INPUT, 0),
        product="910B",
    ).grad_input
    assert np.isinf(made[:, :, ::2, ::2]).all()
    assert not made[:, :, 1::2].any()
    assert not made[:, :, :, 1::2].any()


def test_the_plan_is_that_of_the_convolution_with_stride_one():
    for product in ("910B2", "910A", "310P3"):
        profile = load_profile(product)
        for problem in (ONE_TAP, LARGE):
            inner = kernel_problem(problem, "grad_input", "float16", profile)
            of = "grad_input", "float16", profile
            assert chosen_plan(problem, *of) == chosen_plan(inner, *of)


def test_a_plan_of_ones_own_is_taken():
    plan = {"base_m": 16, "base_n": 16, "base_k": 16}
    found = estimate(LARGE, product="910B", output_mask=GRAD_INPUT, tiling=plan)
    assert found.plans["grad_input"].tiling.base_m == 16


def test_one_engine_says_what_the_other_does():
    for problem in (ONE_TAP, LARGE):
        told = [estimate(problem, product="910B2", engine=engine).cycles for engine in ("compiled", "simpy")]
        assert told[0] == told[1]


# --- Do zeros between pixels come into L1 through UB as by a strided copy, and what does it cost? ------
# Costs are reckoned by hand from the round figures of the toy product with unified cores
# (`toy_machines.py`): a vector instruction takes 2 cycles and 1 for each 256 bytes; UB to L1 64 bytes a
# cycle after 4, visible 10 later.

TOY = toy_unified(**{"buffers.L1.capacity_bytes": 1 << 20})
C0 = 16
A, B, L1 = Slot("UB", 4096, "a", 0), Slot("UB", 4096, "b", 1), Slot("L1", 8192, "tile", 2)


def memory(**gm):
    return CoreMemory(gm, MathSettings(AccumulationModel.parse("block:16:RNE")), {})


def tile_of(channels, taken, steps, offsets, extra):
    """Make a tile whose image lines lie at offset + i * step, with `extra` ones behind the last."""
    sizes = [
        at + (count - 1) * step + 1 + more
        for count, step, at, more in zip(taken, steps, offsets, extra, strict=True)
    ]
    window = Window(channels, *sizes, 0, 0, 1, (1, 1), (1, 1), (1, 1), C0)
    placement = Placement(*offsets, *steps)
    rows, cols = (slice(0, count) for count in taken)
    size = channels * sizes[0] * sizes[1] * 32
    return ImageTile(window, 0, rows, cols, placement, True, 0, size)


tiles = st.builds(
    tile_of,
    st.integers(1, 3),
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


# --- pieces


def test_a_piece_knows_which_rows_of_the_image_lie_in_it():
    # 7 rows of one pixel with step 2: image rows 0, 1, 2, 3 lie in rows 0, 2, 4, 6. Three rows of 32 bytes a
    # piece: rows 0 to 2 hold image rows 0 and 1, rows 3 to 5 image row 2 in their middle, row 6 image row 3.
    tile = tile_of(1, (4, 1), (2, 1), (0, 0), (0, 0))
    found = [(piece.rows, piece.source_rows, piece.at) for piece in pieces(tile, 96)]
    assert found == [
        (range(3), range(2), (0, 0)),
        (range(3, 6), range(2, 3), (1, 0)),
        (range(6, 7), range(3, 4), (0, 0)),
    ]


@given(tile=tiles, most=st.integers(1, 40).map(lambda pixels: 32 * pixels))
def test_pieces_cover_a_tile_once_and_never_take_more_than_they_may(tile, most):
    w = tile.window
    seen = np.zeros((w.channels, w.rows, w.cols), int)
    for piece in pieces(tile, most):
        box = piece.channels, piece.rows, piece.cols
        seen[np.ix_(*box)] += 1
        assert 32 * np.prod([len(part) for part in box]) <= most
    assert (seen == 1).all()


def test_a_piece_is_as_many_whole_channel_groups_as_fit():
    # 2 x 2 pixels of 32 bytes: 128 bytes a group, so 300 bytes hold two of three groups.
    tile = tile_of(3, (2, 2), (1, 1), (0, 0), (0, 0))
    assert [piece.channels for piece in pieces(tile, 300)] == [range(2), range(2, 3)]


# --- the way through UB


@given(tile=tiles)
@settings(deadline=None)
def test_a_tile_is_the_one_that_a_strided_copy_makes(tile):
    shape = 1, 1, 1, tile.window.channels, tile.rows.stop, tile.cols.stop, C0
    image = GmTensor("image", shape, "float16", 2)
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    plain, through_ub = memory(image=values), memory(image=values)
    FillL1(L1, tile.l1_bytes, tile.window.tile_shape).execute(plain)
    whole = Gm(image, (0, 0, 0, slice(None), tile.rows, tile.cols))
    CopyGmToL1(L1, whole, 0, (), tile.window, tile.placement).execute(plain)

    program, slot = through(tile, image)
    for instruction in program.instructions:
        instruction.execute(through_ub)
    np.testing.assert_array_equal(through_ub.tile(slot), plain.tile(L1))


def through(tile, image):
    """The program that brings tiles through UB, of which one is told, and the slot where it arrives."""
    nest = Nest(TOY)
    nest.task(own=1)
    [slot] = nest.slots("L1", 8192, "tile")
    whole = slice(0, tile.window.channels)
    # The only one of its images, pixels and boxes of taps; no index before it tells it.
    at = [nest.let(0, name) for name in ("group", "image", "depth", "pixels", "box")]
    ZeroInsertion(nest).load(slot, image, at, lambda pixels, box: tile, [whole])  # noqa: ARG005 - there is one
    return NestProgram(nest, np.zeros((1, 1))), slot


def test_pieces_take_half_of_ub_and_leave_the_other_half_to_results():
    # 4096 bytes: an eighth is 512, and there are two pieces and two of pixels.
    nest = Nest(TOY)
    ZeroInsertion(nest)
    assert nest.room("UB") == 2048


IMAGE = GmTensor("image", (1, 1, 1, 3, 2, 2, C0), "float16", 2)


def test_a_tile_goes_from_pipe_to_pipe():
    program, _ = through(tile_of(1, (2, 2), (2, 2), (0, 0), (0, 0)), IMAGE)
    kinds = [(type(i), i.pipe) for i in program.instructions]
    assert kinds == [(Fill, "V"), (CopyGmToUb, "MTE2"), (SpreadPixels, "V"), (CopyUbToL1, "MTE3")]


def moved(tile):
    """Return kind and bytes of the instructions of a tile."""
    program, _ = through(tile, IMAGE)
    return [(type(i), i.bytes) for i in program.instructions if not isinstance(i, SpreadPixels)]


def test_a_tile_moves_the_pixels_that_it_takes_and_all_that_it_has():
    # Three channel groups of one row of 2 pixels, 32 bytes each, which stand in 5 of them.
    tile = tile_of(3, (1, 2), (1, 3), (0, 0), (0, 1))
    assert moved(tile) == [(Fill, 480), (CopyGmToUb, 192), (CopyUbToL1, 480)]


def test_a_piece_without_a_pixel_of_the_image_is_zeros():
    # 512 bytes a piece hold two rows of 8 pixels. Row 0 has the first row of the image, row 4 the second:
    # the piece of rows 2 and 3 has none.
    tile = tile_of(1, (2, 2), (4, 7), (0, 0), (0, 0))
    assert moved(tile) == [
        *[(Fill, 512), (CopyGmToUb, 64), (CopyUbToL1, 512)],
        *[(Fill, 512), (CopyUbToL1, 512)],
        *[(Fill, 256), (CopyGmToUb, 64), (CopyUbToL1, 256)],
    ]


def test_a_tile_without_a_pixel_of_the_image_has_no_pieces():
    # It is cleared in L1.
    tile = tile_of(3, (1, 2), (1, 3), (0, 0), (0, 1))._replace(rows=None, cols=None)
    assert moved(tile) == []


# --- instructions


def test_pixels_are_spread_between_zeros():
    mem = memory()
    mem.new_tile(A, (1, 3, 4, 1)).fill(0)
    mem.new_tile(B, (1, 2, 2, 1))[...] = np.array([1, 2, 3, 4], np.float32).reshape(1, 2, 2, 1)
    spread = SpreadPixels(A, B, 1, 2, 2, 32, (0, 1), (2, 2))
    spread.execute(mem)
    assert mem.tile(A)[0, :, :, 0].tolist() == [[0, 1, 0, 2], [0, 0, 0, 0], [0, 3, 0, 4]]
    # Four pixels of 32 bytes are read and written; of the zeros none is read.
    assert spread.touched_bytes == (0, 4 * 32, 4 * 32)


@pytest.mark.parametrize(("channels", "rows", "cols", "cycles"), [(1, 1, 8, 3), (1, 1, 9, 4), (2, 3, 9, 24)])
def test_spreading_costs_a_command_for_each_row_of_each_group(channels, rows, cols, cycles):
    # 8 pixels of 32 bytes are one repeat: 2 + 1 cycles; 9 are two: 2 + 2. Six rows of them take 24.
    spread = SpreadPixels(A, B, channels, rows, cols, 32, (0, 0), (2, 2))
    assert spread.cost(TOY).cycles == cycles
    assert (spread.pipe, spread.reads, spread.writes) == ("V", (A, B), (A,))


def test_a_piece_reaches_l1_at_the_rate_of_its_path():
    shape = 1, 2, 2, C0
    # 4 + ceil(65 / 64) = 6 cycles
    assert CopyUbToL1(L1, A, 65, shape, (0, 0, 0), True).cost(TOY) == Cost(6, 10)
    assert CopyUbToL1(L1, A, 64, shape, (0, 0, 0), True).cost(TOY) == Cost(5, 10)
    assert FractalsToL1(L1, A, 65, (2, 2), (0, 0)).cost(TOY) == Cost(6, 10)


def test_pieces_of_a_matrix_come_to_their_places():
    mem = memory()
    # The first row of two, then the second: what begins the tile comes first.
    for number, row in enumerate(([1, 2], [3, 4])):
        mem.new_tile(A, (1, 2))[...] = np.array([row], np.float32)
        FractalsToL1(L1, A, 8, (2, 2), (number, 0)).execute(mem)
    assert mem.tile(L1).tolist() == [[1, 2], [3, 4]]


def test_the_first_piece_begins_the_tile_and_the_others_leave_it():
    mem = memory()
    for number, row in enumerate(([1, 2], [3, 4])):
        mem.new_tile(A, (1, 1, 2, 1))[...] = np.array(row, np.float32).reshape(1, 1, 2, 1)
        CopyUbToL1(L1, A, 64, (1, 2, 2, 1), (0, number, 0), number == 0).execute(mem)
    assert mem.tile(L1)[:, 0].tolist() == [1, 2, 3, 4, 0]
