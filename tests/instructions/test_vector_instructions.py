"""Does each instruction of the vector core mean and cost what it says, those of Winograd too?"""

import runpy
from pathlib import Path

import numpy as np
import pytest

from ascendsim import load_profile
from ascendsim.errors import ProgramError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.instructions.elementwise import (
    Binary,
    Cast,
    Compare,
    MulAdd,
    Select,
    UbOperand,
    Unary,
    ub_cycles,
)
from ascendsim.instructions.relayout import Rearrange
from ascendsim.instructions.rowwise import BinaryRows, Brcb, ReduceRows
from ascendsim.instructions.vector import (
    Add,
    AddLanes,
    AddRows,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
    SumPixels,
    vector_cost,
)
from ascendsim.instructions.winograd import (
    BIG_STEPS,
    SMALL_STEPS,
    TAPS_STEPS,
    ToPoints,
    ToTaps,
    big_line,
    in_plane,
    small_line,
    taps_line,
)
from ascendsim.numerics.accumulation import MathSettings
from ascendsim.program.instruction import Cost, Traffic
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase, unknown_costs
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import ProgramBuilder
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.toy_machines import MATH, counted, memory, put, toy_split

# --- Does each instruction of the vector core mean and cost what it says? ------------------------------
# Costs are reckoned by hand from the round figures of the toy products (`toy_machines.py`): both ways
# between GM and UB 64 bytes a cycle after 4 cycles, visible 100 (in) and 50 (out) later; a vector
# instruction takes 2 cycles and then, for each 256 bytes, 1 (unary, cast), 2 (binary) or, for each row, 3
# (reduce); vector and cube clock are the same unless a test says otherwise.

TOY = toy_split()
A, B = Slot("UB", 4096, "a", 0), Slot("UB", 4096, "b", 1)


# --- between GM and UB


def test_a_copy_to_ub_takes_the_slice_in_the_asked_shape():
    x = GmTensor("x", (3, 4), "float16", 2)
    mem = memory(x=counted(3, 4))
    copy = CopyGmToUb(A, Gm(x, (slice(1, 3), slice(0, 2))), 8, (4,))
    copy.execute(mem)
    assert mem.tile(A).tolist() == [5, 6, 9, 10]
    # a read takes whole sectors of 128 bytes of L2
    assert copy.cost(TOY) == Cost(4, 100, Traffic(x, "read", 128, 64))
    assert (copy.pipe, copy.reads, copy.writes) == ("MTE2", (), (A,))


def test_a_copy_to_gm_stores_in_the_shape_of_the_slice_and_the_format_of_the_tensor():
    y = GmTensor("y", (2, 3), "float16", 2, "output")
    mem = memory(y=counted(2, 3))
    put(mem, A, [2049, 1, 2, 3])  # 2049 is a tie in float16 and goes to the even 2048
    copy = CopyUbToGm(Gm(y, (slice(0, 2), slice(1, 3))), A, 8)
    copy.execute(mem)
    assert mem.gm["y"].tolist() == [[1, 2048, 1], [4, 2, 3]]
    assert copy.cost(TOY) == Cost(4, 50, Traffic(y, "write", 8, 64))
    assert (copy.pipe, copy.reads, copy.writes) == ("MTE3", (A,), ())


def test_an_atomic_copy_adds_in_float32():
    y = GmTensor("y", (3,), "float32", 4, "output")
    mem = memory(y=np.array([2.0**24, 1, np.inf], np.float32))
    put(mem, A, [1, 1, -np.inf])
    copy = CopyUbToGm(Gm(y, (slice(0, 3),)), A, 12, atomic=True)
    with np.errstate(invalid="ignore"):
        copy.execute(mem)
    assert mem.gm["y"][:2].tolist() == [2.0**24, 2]  # the one is half an ulp and is lost
    assert np.isnan(mem.gm["y"][2])
    assert copy.cost(TOY).traffic.kind == "atomic"
    assert copy.shape != CopyUbToGm(Gm(y, (slice(0, 3),)), A, 12).shape


# --- element by element


@pytest.mark.parametrize(("does", "due"), [("Add", 6), ("Sub", -2), ("Mul", 8), ("Max", 4), ("Min", 2)])
def test_two_tiles_are_combined(does, due):
    mem = memory()
    put(mem, A, [2.0] * 130)
    put(mem, B, [4.0] * 130)
    made = Binary(Slot("UB", 4096, "c", 2), A, B, does, 130)
    made.execute(mem)
    assert mem.tile(made.dst).tolist() == [due] * 130
    assert made.cost(TOY) == vector_cost(TOY, "binary", 3)
    assert (made.pipe, made.reads, made.writes) == ("V", (A, B), (made.dst,))


def test_a_tile_changes_in_place_and_half_rounds_to_even():
    mem = memory()
    put(mem, A, [2048.0, 1.0])
    made = Unary(A, A, "Adds", 2, "float16", 1.0)
    made.execute(mem)
    assert mem.tile(A).tolist() == [2048, 2]
    assert made.cost(TOY) == vector_cost(TOY, "unary", 1)


# Cases of the sample on banks of UB: sources and target; cycles beside one a repeat that the rules give, and
# those that were measured, each less case 1.
SAMPLE = {
    1: ((0, 0x10100), 0x20000, 0, 0),
    2: ((0, 0x4000), 0x10000, 64, 65.8),
    3: ((0, 0x10000), 0x14100, 64, 65.8),
    4: ((0, 0x10100), 0x4000, 0, 0),
    5: ((0, 0x10100), 0x4020, 63, 50.4),
    6: ((0, 0x10100), 0x10100, 0, 0),
    7: (((0, 0, 1), 0x10100), 0x10100, 32, 44.2),
    8: (((0, 0, 8), 0x10100), 0x10100, 0, 0),
}
UNEXPLAINED = {5, 7}


@pytest.mark.parametrize("case", SAMPLE)
def test_banks_of_ub_take_what_was_measured_but_for_two_cases(case):
    sources, target, more, measured = SAMPLE[case]
    operands = [UbOperand(*at) if isinstance(at, tuple) else UbOperand(at) for at in sources]
    assert ub_cycles(operands, UbOperand(target), 64) == 64 + more
    assert (abs(more - measured) > 10) == (case in UNEXPLAINED)


def test_addresses_are_charged_where_all_are_known_and_the_product_has_these_banks():
    own, other = load_profile("910B2"), load_profile("950PR_9599")
    free = [Slot("UB", 16384, str(at), number, at) for number, at in enumerate((0x20000, 0, 0x10100))]
    shared = [*free[:2], Slot("UB", 16384, "b", 3, 0x10000)]
    unknown = [*free[:2], Slot("UB", 16384, "b", 3)]
    of = [Binary(*slots, "Add", 4096) for slots in (free, shared, unknown)]
    assert [made.cost(own).cycles for made in of] == [64, 128, 128]
    assert len({made.shape for made in of}) == 3
    assert len({made.cost(other) for made in of}) == 1


# --- fill, cast, add


def test_the_bytes_of_a_fill_are_those_of_whole_elements():
    widths = [Fill(A, (2, 4), size).width(0, (2, 4)) for size in (8, 16, 32, 33, 36)]
    assert widths == [1, 2, 4, 0, 0]


def test_fill_writes_plus_zero():
    mem = memory()
    put(mem, A, [-1, np.nan])
    Fill(A, (2, 2), 16).execute(mem)
    assert mem.tile(A).tobytes() == bytes(16)


@pytest.mark.parametrize(("size", "cycles"), [(1, 3), (256, 3), (257, 4), (1024, 6)])
def test_fill_costs_one_repeat_for_each_256_bytes(size, cycles):
    assert Fill(A, (size,), size).cost(TOY).cycles == cycles


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float16", 1 + 2.0**-11, 1.0),  # a tie goes to the even significand
        ("float16", 1 + 3 * 2.0**-11, 1 + 2.0**-9),
        ("float16", 65520.0, np.inf),  # the tie above the largest value goes to the next power of two
        ("bfloat16", 1 + 2.0**-8, 1.0),
        ("bfloat16", 1 + 2.0**-8 + 2.0**-20, 1 + 2.0**-7),
        ("float32", 0.1, np.float32(0.1)),
    ],
)
def test_cast_rounds_to_nearest_even(dtype, value, expected):
    mem = memory()
    put(mem, A, [value])
    Cast(B, A, dtype, 1, 4).execute(mem)
    assert mem.tile(B)[0] == expected
    assert mem.tile(A)[0] == np.float32(value)  # the source stays


def test_cast_overflows_as_the_settings_of_the_kernel_say():
    mem = memory(MathSettings(MATH.accumulation, overflow="saturate"))
    put(mem, A, [1e6, -np.inf, np.nan])
    Cast(B, A, "float16", 3, 4).execute(mem)
    assert mem.tile(B).tolist() == [65504, -65504, 0]


def test_cast_costs_one_repeat_for_each_256_bytes_of_the_wider_side():
    assert Cast(B, A, "float16", 64, 4).cost(TOY).cycles == 2 + 1  # 64 float32 are 256 bytes
    assert Cast(B, A, "float16", 65, 4).cost(TOY).cycles == 2 + 2
    assert Cast(B, A, "float16", 128, 2).cost(TOY).cycles == 2 + 1


def test_add_rounds_each_element_once_and_keeps_its_operand():
    mem = memory()
    put(mem, A, [2.0**24, 1, -0.0, 1])
    put(mem, B, [1, 2, -0.0, -1])
    add = Add(A, B, 4)
    add.execute(mem)
    assert mem.tile(A).tolist() == [2.0**24, 3, 0, 0]
    assert np.signbit(mem.tile(A)).tolist() == [False, False, True, False]
    assert mem.tile(B).tolist() == [1, 2, 0, -1]
    assert (add.pipe, add.reads, add.writes) == ("V", (A, B), (A,))


def test_add_costs_one_binary_repeat_for_each_64_elements():
    assert Add(A, B, 64).cost(TOY).cycles == 2 + 2
    assert Add(A, B, 65).cost(TOY).cycles == 2 + 4


# --- sums over lanes


def test_elements_are_added_to_lanes_64_at_a_time():
    mem = memory()
    put(mem, A, np.zeros((2, 64)))
    put(mem, B, counted(2, 150))  # 64 + 64 + 22
    AddLanes(A, B, 2, 150).execute(mem)
    lanes = mem.tile(A)
    assert lanes[0, 0] == 1 + 65 + 129
    assert lanes[0, 21] == 22 + 86 + 150
    assert lanes[0, 22] == 23 + 87  # the short last group leaves lane 22 alone
    assert lanes[1, 0] == 151 + 215 + 279


def test_lanes_go_on_from_what_they_hold_and_round_at_every_step():
    mem = memory()
    put(mem, A, np.full((1, 64), 2.0**24))
    put(mem, B, np.ones((1, 128)))
    AddLanes(A, B, 1, 128).execute(mem)
    assert set(mem.tile(A).ravel()) == {2.0**24}  # each one is lost; added first they would not be


def test_a_short_row_alone_goes_to_the_first_lanes():
    mem = memory()
    put(mem, A, np.zeros((1, 64)))
    put(mem, B, counted(1, 3))
    AddLanes(A, B, 1, 3).execute(mem)
    assert mem.tile(A)[0, :4].tolist() == [1, 2, 3, 0]


def test_each_64_elements_of_a_row_wait_for_those_before():
    # 3 rows of ceil(100 / 64) = 2 groups: twice an instruction of 3 repeats (2 + 6), and a latency between.
    assert AddLanes(A, B, 3, 100).cost(TOY).cycles == 2 * 8 + 10
    # One group waits for nothing. Of 16 bits its 5 repeats are cast before: 2 + 5.
    assert AddLanes(A, B, 5, 1).cost(TOY).cycles == 2 + 10
    assert AddLanes(A, B, 5, 1, 2).cost(TOY).cycles == 2 + 10 + 7


def test_lanes_are_added_by_halves():
    values = np.zeros(64, np.float32)
    values[[0, 32, 16, 48]] = 2.0**24, 1, 1, 1
    mem = memory()
    put(mem, A, [values])
    SumLanes(B, A, 1).execute(mem)
    # lanes 0 + 32: 2^24 + 1 is a tie and stays; 16 + 48 is 2, and 2^24 + 2 is exact
    assert mem.tile(B).tolist() == [2.0**24 + 2]


def test_sums_of_lanes_have_one_value_for_each_row():
    mem = memory()
    put(mem, A, counted(3, 64))
    SumLanes(B, A, 3).execute(mem)
    first = 64 * 65 // 2  # 1 + ... + 64
    assert mem.tile(B).tolist() == [first, first + 64 * 64, first + 128 * 64]


def test_summing_lanes_costs_one_reduction_for_each_row():
    assert SumLanes(B, A, 5).cost(TOY).cycles == 2 + 5 * 3


# --- short rows of many images


def test_rows_are_added_to_a_sum_one_after_the_other():
    mem = memory()
    put(mem, A, [2.0**24, 1])
    put(mem, B, [[1, 1], [1, 2]])
    add = AddRows(A, B, 2, 2)
    add.execute(mem)
    assert mem.tile(A).tolist() == [2.0**24, 4]  # each one is lost; their sum would not be
    assert (add.reads, add.writes) == ((A, B), (A,))
    # a row of 65 elements: a cast and an addition of two repeats, (2 + 2) + (2 + 4) cycles, and 10 until the
    # sum is there for the next row
    assert AddRows(A, B, 3, 65).cost(TOY) == Cost(3 * 10 + 2 * 10, 10)


def test_few_pixels_are_added_as_if_they_were_64_lanes():
    mem = memory()
    put(mem, A, [2.0**24, 1, 1, 1, 5, 6, 7, 8])
    SumPixels(B, A, 2, 4).execute(mem)
    # lanes 2 and 3 meet 0 and 1: (2^24 + 1) + (1 + 1), where the first one is lost
    assert mem.tile(B).tolist() == [2.0**24 + 2, 26]
    assert SumPixels(B, A, 5, 4).cost(TOY).cycles == 2 + 5 * 3


def test_a_sum_of_minus_zeros_alone_is_plus_zero_beside_the_other_lanes():
    mem = memory()
    put(mem, A, [-0.0] * 4)
    SumPixels(B, A, 1, 4).execute(mem)
    assert not np.signbit(mem.tile(B)).any()
    put(mem, A, [[-0.0] * 64])
    SumLanes(B, A, 1).execute(mem)  # all 64 lanes hold it here
    assert np.signbit(mem.tile(B)).all()


# --- elements that lie scattered


def test_rearranging_keeps_the_elements_and_costs_the_bytes_that_they_took():
    mem = memory()
    put(mem, A, counted(2, 3))
    rearrange = Rearrange(B, A, 257)
    rearrange.execute(mem)
    assert mem.tile(B).tolist() == counted(2, 3).tolist()
    mem.tile(A).fill(0)
    assert mem.tile(B)[0, 0] == 1  # a copy
    assert rearrange.cost(TOY) == Cost(2 + 2, 10)  # a repeat of 1 for each 256 bytes


# --- shapes


@pytest.mark.parametrize(
    "instruction",
    [
        Fill(A, (8,), 32),
        Cast(A, B, "float16", 8, 4),
        Add(A, B, 8),
        AddLanes(A, B, 2, 64),
        SumLanes(A, B, 2),
        AddRows(A, B, 2, 8),
        SumPixels(A, B, 2, 8),
        Rearrange(A, B, 32),
    ],
    ids=lambda instruction: type(instruction).__name__,
)
def test_the_slots_of_an_instruction_do_not_change_its_shape(instruction):
    other = instruction._replace(dst=Slot("UB", 64, "c", 2))
    assert other != instruction
    assert (other.shape, other.cost(TOY)) == (instruction.shape, instruction.cost(TOY))


# --- clocks and waits


def test_cycles_of_a_slower_vector_clock_are_rounded_up_once():
    slow = toy_split(**{"clock.vector_mhz": 800})
    # (2 + 3) vector cycles = 6.25 cube cycles
    assert Fill(A, (192,), 768).cost(slow).cycles == 7


def test_results_of_the_vector_unit_show_after_its_latency():
    # 10 vector cycles in the toy; at 800 MHz they are 12.5 cycles of the cube clock
    for instruction in (Fill(A, (1,), 4), Cast(B, A, "float16", 1, 4), Add(A, B, 1), SumLanes(B, A, 1)):
        assert instruction.cost(TOY).latency_cycles == 10
        assert instruction.cost(toy_split(**{"clock.vector_mhz": 800})).latency_cycles == 13


def test_vector_instructions_declare_what_they_touch():
    for instruction, reads, writes in (
        (Fill(A, (1,), 4), (), (A,)),
        (Cast(B, A, "float16", 1, 4), (A,), (B,)),
        (AddLanes(A, B, 1, 64), (A, B), (A,)),
        (SumLanes(B, A, 1), (A,), (B,)),
    ):
        assert (instruction.pipe, instruction.reads, instruction.writes) == ("V", reads, writes)


def test_a_kind_without_a_figure_is_told():
    with pytest.raises(UnsupportedError, match=r"repeat_cycles\.multiply is no figure .* it has unary, "):
        vector_cost(TOY, "multiply", 1)


# --- what softmax, norms, gradients of activations and optimisers are made of

C, D = Slot("UB", 4096, "c", 2), Slot("UB", 4096, "d", 3)


@pytest.mark.parametrize("does", ["Div", "Sqrt", "Reciprocal", "Rsqrt", "Ln", "Exp", "Abs", "Relu"])
def test_every_half_rounds_once(does):
    # float64 holds 53 bits, more than twice the 11 of a half and two: its quotient or root may round again
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    x = x[np.isfinite(x)]
    y = np.random.default_rng(0).permutation(x)
    mem = memory(MathSettings(MATH.accumulation))
    put(mem, A, x)
    put(mem, B, y)
    binary = does == "Div"
    made = Binary(C, A, B, does, x.size, "float16") if binary else Unary(C, A, does, x.size, "float16")
    assert made.told[0].slots == ((A, B, C) if binary else (A, C))
    one, two = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        made.execute(mem)
        due = {
            "Div": lambda: one / two,
            "Sqrt": lambda: np.sqrt(one),
            "Reciprocal": lambda: 1 / one,
            "Rsqrt": lambda: 1 / np.sqrt(one),
            "Ln": lambda: np.log(one),
            "Exp": lambda: np.exp(one),
            "Abs": lambda: np.abs(one),
            "Relu": lambda: np.where(one > 0, one, 0),
        }[does]()
        due = due.astype(np.float16).astype(np.float32)
    assert np.array_equal(mem.tile(C), due, equal_nan=True)


def test_relu_has_no_negative_zero_and_keeps_nan():
    mem = memory()
    put(mem, A, [-0.0, -1, 2, np.nan])
    Unary(B, A, "Relu", 4).execute(mem)
    assert [str(value) for value in mem.tile(B)] == ["0.0", "0.0", "2.0", "nan"]


MEASURED = load_profile("910B2")


@pytest.mark.parametrize(
    ("made", "cycles", "elsewhere"),
    [
        # 8 repeats of 256 bytes, at what MSKPP measured of a 910B1; and at the figures of the toy after its
        # head of 2, where a comparison is not known
        (Unary(C, A, "Sqrt", 512), 16, 2 + 32),
        (Unary(C, A, "Ln", 1024, "float16"), 32, 2 + 32),
        (Unary(C, A, "Rsqrt", 512), 8, 2 + 8),
        (Binary(C, A, B, "Div", 512), 32, 2 + 32),
        (Binary(C, A, B, "Div", 1024, "float16"), 4 + 32, 2 + 32),
        (MulAdd(C, A, None, 512), 16, 2 + 16),
        (MulAdd(C, A, B, 512), 48, 2 + 32),
        (Compare(C, A, B, "LT", 2048), 64, 2 + 64),
        (Compare(C, A, None, "LT", 2048), 32, 2 + 32),
        (Select(D, C, A, B, 512), 16, 2 + 16),
        # 8 rows of one repeat; of two: a binary instruction and its latency before
        (ReduceRows(B, A, None, "Sum", 8, 64), 24, 2 + 24),
        (ReduceRows(B, A, None, "Max", 8, 40), 56, 2 + 24),
        (ReduceRows(B, A, C, "Sum", 8, 128), 16 + 20 + 24, 2 + 16 + 10 + 2 + 24),
        (ReduceRows(B, A, None, "Sum", 8, 128, "float16"), 56, 2 + 56),
        (Brcb(B, A, 64), 8, 2 + 8),
        (BinaryRows(C, A, B, "Sub", 4, 128), 16, 2 + 16),
        (BinaryRows(C, A, B, "Div", 8, 8), 32, 2 + 32),  # each row begins a repeat
    ],
)
def test_what_they_cost(made, cycles, elsewhere):
    assert made.pipe == "V"
    profile = load_profile("910B2", overrides={"clock.cube_mhz": MEASURED.clock.vector_mhz})
    assert made.cost(profile) == Cost(cycles, MEASURED.vector.latency_cycles)
    assert made.cost(TOY) == Cost(elsewhere, 10)


def test_an_unknown_cost_is_named():
    unknown = [made.cost_unknown(TOY) for made in (Compare(C, A, B, "LT", 8), Unary(C, A, "Rsqrt", 8))]
    unknown.append(ReduceRows(B, A, None, "Max", 8, 64).cost_unknown(TOY))
    assert unknown == [
        "Compare on toy-split, here as other binary instructions",
        "Rsqrt on toy-split, here as other unary instructions",
        "Max of rows on toy-split, here as Sum",
    ]
    known = Compare(C, A, B, "LT", 8), Unary(C, A, "Rsqrt", 8), ReduceRows(B, A, None, "Max", 8, 64)
    assert [made.cost_unknown(MEASURED) for made in (*known, Add(A, B, 8))] == [""] * 4


def test_a_product_and_its_sum_round_once_each():
    # (1 + 2**-10) ** 2 loses its last bit, 2**-20, in float16
    mem = memory()
    for slot, value in ((A, 1 + 2**-10), (B, 1 + 2**-10), (C, -1 - 2**-9)):
        put(mem, slot, [value])
    MulAdd(C, A, B, 1, "float16").execute(mem)
    assert mem.tile(C).tolist() == [0]
    put(mem, C, [1.0])
    MulAdd(C, A, None, 1, "float32", 2.0).execute(mem)
    assert mem.tile(C).tolist() == [3 + 2**-9]
    assert MulAdd(C, A, B, 1).reads == (C, A, B)


@pytest.mark.parametrize(
    ("does", "due"),
    [("LT", 0b001), ("LE", 0b011), ("GT", 0b100), ("GE", 0b110), ("EQ", 0b010), ("NE", 0b1101)],
)
def test_a_mask_selects(does, due):
    mem = memory()
    put(mem, A, [1, 2, 3, np.nan])
    put(mem, B, [2, 2, 2, np.nan])
    Compare(C, A, B, does, 4).execute(mem)
    bits = [due >> at & 1 for at in range(4)]
    assert mem.tile(C).tolist() == bits
    Compare(D, A, None, does, 4, scalar=2.0).execute(mem)
    assert mem.tile(D).tolist() == bits
    Select(D, C, A, B, 4).execute(mem)
    assert mem.tile(D)[:3].tolist() == [
        each if bit else 2 for each, bit in zip([1, 2, 3], bits, strict=False)
    ]
    Select(D, C, A, None, 4, scalar=-7.0).execute(mem)
    assert mem.tile(D)[0] == (1 if bits[0] else -7)
    assert Compare(C, A, B, does, 4).tile_bytes((9,), 1) == 2


def reduced(rows, does, lanes, dtype):
    """What `ReduceRows` means, number by number: the definition, slow."""
    numeric = np.dtype(dtype).type

    def both(a, b):
        return numeric(a + b) if does == "Sum" else (max if does == "Max" else min)(a, b)

    made = []
    for row in rows:
        row = [numeric(each) for each in row]
        nothing = {"Sum": -0.0, "Max": -np.inf, "Min": np.inf}[does]
        row += [numeric(nothing)] * (-len(row) % lanes)
        first = row[:lanes]
        for at in range(lanes, len(row), lanes):
            first = [both(a, b) for a, b in zip(first, row[at : at + lanes], strict=True)]
        while len(first) > 1:
            half = len(first) // 2
            first = [both(a, b) for a, b in zip(first[:half], first[half:], strict=True)]
        made.append(float(first[0]))
    return made


@pytest.mark.parametrize("does", ["Sum", "Max", "Min"])
@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 64), ("float16", 128)])
@pytest.mark.parametrize("columns", [1, 63, 64, 129, 300])
def test_rows_are_reduced_as_the_definition_says(does, dtype, lanes, columns):
    mem = memory()
    rows = np.random.default_rng(columns).standard_normal((3, columns)).astype(dtype).astype(np.float32)
    put(mem, A, rows)
    ReduceRows(B, A, C if columns > lanes else None, does, 3, columns, dtype).execute(mem)
    assert mem.tile(B).tolist() == reduced(rows, does, lanes, dtype)


@pytest.mark.parametrize("columns", [1, 63, 64, 65])
def test_lanes_beyond_the_end_of_a_row_leave_its_sum_as_it_is(columns):
    # -0 plus +0 is +0, so that of a row of -0 other lanes would show.
    mem = memory()
    put(mem, A, np.full((2, columns), -0.0))
    ReduceRows(B, A, C, "Sum", 2, columns).execute(mem)
    assert np.signbit(mem.tile(B)).all()


def test_wide_rows_need_a_scratch_tile():
    mem = memory()
    put(mem, A, np.ones((2, 65)))
    with pytest.raises(ProgramError, match="give it a slot of 512 bytes"):
        ReduceRows(B, A, None, "Sum", 2, 65).execute(mem)


def test_rows_take_a_number_each_or_one_row():
    mem = memory()
    put(mem, A, [[1, 2, 3], [4, 5, 6]])
    put(mem, B, [10, 20])
    Brcb(C, B, 2).execute(mem)
    assert mem.tile(C).tolist() == [[10] * 8, [20] * 8]
    BinaryRows(D, A, C, "Add", 2, 3).execute(mem)
    assert mem.tile(D).tolist() == [[11, 12, 13], [24, 25, 26]]
    put(mem, B, [1, 2, 4])
    BinaryRows(D, A, B, "Div", 2, 3, along="columns").execute(mem)
    assert mem.tile(D).tolist() == [[1, 1, 0.75], [4, 2.5, 1.5]]


EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "13_softmax_norm_and_adam.py"))


@pytest.mark.parametrize("name", EXAMPLE["KERNELS"])
@pytest.mark.parametrize("order", ["program", 1])
def test_kernels_of_a_training_step_are_right_and_take_equal_cycles_on_both_engines(name, order):
    _, in_numpy, _, written = EXAMPLE["KERNELS"][name]
    kernel, tensors = EXAMPLE["kernel_of"](name, MEASURED)
    due = in_numpy(*tensors.values())
    run_kernel(kernel, tensors, order=order)
    for each, values in zip(written.split(), due, strict=True):
        assert np.array_equal(tensors[each].view(np.uint32), values.view(np.uint32))
    cycles = {measure_kernel(kernel, MEASURED, engine=engine).cycles for engine in ("simpy", "compiled")}
    assert len(cycles) == 1
    assert ("banks" in unknown_costs(kernel, MEASURED)) == (name in ("softmax", "layer norm"))


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (Unary(C, A, "Sqrt", 511), "says elements = 511"),
        (Binary(C, A, B, "Div", 512, "float16"), "says dtype float16 = 2"),
        (MulAdd(C, A, None, 511), "says elements = 511"),
        (Compare(C, A, B, "LT", 8), "says elements = 8"),
        (Select(C, B, A, None, 512), "says bits = 1"),
        (ReduceRows(C, A, None, "Sum", 4, 64), "does not fit its tiles"),
        (ReduceRows(C, A, D, "Sum", 4, 128), "declared as 256"),
        (Brcb(D, A, 512), "declared as 256"),
        (BinaryRows(C, A, B, "Sub", 8, 64), "says along rows = 64"),
        (BinaryRows(C, A, B, "Sub", 8, 64, along="columns"), "does not fit its tiles"),
    ],
)
def test_what_they_say_is_checked(made, refused):
    x = GmTensor.of("x", (512,), "float32")
    builder = ProgramBuilder(MEASURED)
    slots = [*builder.slots("UB", 16384, "tile", 3), *builder.slots("UB", 256, "small")]
    for slot in slots[:3]:
        builder.add(CopyGmToUb.of(slot, Gm(x, ())))
    builder.add(made._make(slots[each.index] if isinstance(each, Slot) else each for each in made))
    work = CoreWork(Core("vector", 0), "all", builder.build)
    kernel = Kernel("k", (Phase("p", (work,)),), {"x": x}, MATH)
    with pytest.raises(ProgramError, match=refused):
        run_kernel(kernel, {"x": np.ones(512, np.float32)})


def test_a_checked_run_takes_what_is_selected_into_a_tile_of_its_own():
    x, y = GmTensor.of("x", (64,), "float32"), GmTensor.of("y", (64,), "float32", "output")

    def kernel(room):
        builder = ProgramBuilder(MEASURED)
        [given], [mask], [taken] = (
            builder.slots("UB", size, name) for name, size in (("x", 256), ("mask", 32), ("taken", room))
        )
        builder.add(CopyGmToUb.of(given, Gm(x, ())))
        builder.add(Compare(mask, given, None, "GT", 64, scalar=5.0))
        builder.add(Select(taken, mask, given, None, 64, scalar=-1.0))
        builder.add(CopyUbToGm.of(Gm(y, ()), taken))
        work = CoreWork(Core("vector", 0), "all", builder.build)
        return Kernel("k", (Phase("p", (work,)),), {"x": x, "y": y}, MATH)

    gm = {"x": np.arange(64, dtype=np.float32)}
    run_kernel(kernel(256), gm)
    assert np.array_equal(gm["y"], np.where(gm["x"] > 5, gm["x"], -1))
    with pytest.raises(ProgramError, match="declared as 128"):
        run_kernel(kernel(128), {"x": gm["x"]})


# --- Do the transforms of Winograd mean, touch and cost what they say? ---------------------------------
# A vector instruction of the toy product takes 2 cycles and then 2 for each 256 bytes (binary).

RNG = np.random.default_rng(0)
LINES = {True: small_line, False: big_line}


def to_points(small, tile_shape, tiles, begin=(0, 0)):
    return ToPoints(A, B, small, tile_shape, tiles, begin)


def points_of(step, pixels):
    mem = memory()
    put(mem, B, pixels)
    step.execute(mem)
    return mem.tile(A)


@pytest.mark.parametrize(("small", "window", "size"), [(True, (4, 6), 2), (False, (6, 8), 4)])
def test_each_tile_of_each_channel_goes_through_the_lines(small, window, size):
    pixels = RNG.standard_normal((2, *window, 8)).astype(np.float32)
    made = points_of(to_points(small, pixels.shape, (2, 3)), pixels)
    assert made.shape == (2, 16, 6, 8)
    for group, row, column, channel in np.ndindex(2, 2, 3, 8):
        tile = pixels[group, 2 * row : 2 * row + size, 2 * column : 2 * column + size, channel]
        want = np.array(in_plane(LINES[small], tile)).reshape(-1)
        assert (made[group, :, 3 * row + column, channel] == want).all()
    assert to_points(small, pixels.shape, (2, 3)).touched_bytes == (pixels.nbytes, made.nbytes)


def test_what_lies_outside_of_the_image_is_zero():
    # A window of 6 x 6 that begins a row above and two columns beside the image, and ends a row below it.
    pixels = RNG.standard_normal((1, 4, 3, 8)).astype(np.float32)
    whole = np.zeros((1, 6, 6, 8), np.float32)
    whole[:, 1:5, 2:5] = pixels
    made = points_of(to_points(False, pixels.shape, (2, 2), (1, 2)), pixels)
    assert (made == points_of(to_points(False, whole.shape, (2, 2)), whole)).all()


@pytest.mark.parametrize(
    ("small", "steps", "window"), [(True, SMALL_STEPS, (8, 16)), (False, BIG_STEPS, (10, 18))]
)
def test_a_transform_costs_a_repeat_for_each_step_and_64_elements(small, steps, window):
    # 3 groups x 32 tiles x 8 channels are 12 times 64 elements.
    whole = to_points(small, (3, *window, 8), (4, 8))
    assert whole.cost(TOY).cycles == 2 + 2 * 12 * steps
    # Part of the window lies outside: clearing it takes a repeat for each 64 of its elements.
    less = to_points(small, (3, window[0] - 1, window[1], 8), (4, 8), (1, 0))
    cleared = -(-3 * window[0] * window[1] * 8 // 64)
    assert less.cost(TOY).cycles == 2 + 2 * (12 * steps + cleared)
    assert whole.shape != less.shape


def test_steps_are_those_that_the_lines_have():
    # Two pixels to four points: s0 as it is, a sum, a difference and a change of sign: two columns without
    # the first (it stays where it is), four rows with it. Four to four: four sums for eight lines. Four sums
    # to three taps: six for four columns and three rows.
    assert (SMALL_STEPS, BIG_STEPS, TAPS_STEPS) == (2 * 3 + 4 * 4, 4 * 4 + 4 * 4, 4 * 6 + 3 * 6)


def sums_and_slots(rows, columns):
    mem = memory()
    slots = tuple(Slot("UB", 4096, f"sums {at}", 1 + at) for at in range(16))
    sums = RNG.standard_normal((16, rows, columns)).astype(np.float32)
    for slot, values in zip(slots, sums, strict=True):
        put(mem, slot, values)
    return mem, slots, sums


@pytest.mark.parametrize("turned", [False, True])
def test_sums_become_taps_in_the_layout_of_weights(turned):
    mem, slots, sums = sums_and_slots(16, 8)
    step = ToTaps(A, slots, 16, 8, 8, turned)
    step.execute(mem)
    made = mem.tile(A)
    for row, column in np.ndindex(16, 8):
        taps = np.array(in_plane(taps_line, sums[:, row, column].reshape(4, 4))).reshape(-1)
        small, big = (column, row) if turned else (row, column)
        # Of a row: group of 8 channels of the big side, tap, channel.
        got = made[small].reshape(-1, 9, 8)[big // 8, :, big % 8]
        assert (got == taps).all()
    assert (step.pipe, step.reads, step.writes, step.gm) == ("V", slots, (A,), None)
    assert step.touched_bytes == (*[own.nbytes for own in sums], made.nbytes)


def test_taps_cost_a_repeat_for_each_step_and_more_where_they_are_turned():
    # 16 x 8 elements are two repeats of 64.
    _, slots, _ = sums_and_slots(16, 8)
    plain, turned = (ToTaps(A, slots, 16, 8, 8, flag) for flag in (False, True))
    assert plain.cost(TOY).cycles == 2 + 2 * 2 * TAPS_STEPS
    transpose = toy_split().vector.instruction_cycles("transpose", 9 * 2)
    assert turned.cost(TOY).cycles == plain.cost(TOY).cycles + transpose
    assert plain.shape != turned.shape


def test_cycles_of_the_vector_clock_become_those_of_the_cube_once():
    # On the 950PR both clocks are one: a head of 23, 32 steps of 16 repeats.
    cost = to_points(False, (4, 10, 18, 8), (4, 8)).cost(load_profile("950PR_9589"))
    assert cost.cycles == 23 + 32 * 16


def differing(make, values):
    """Commands with each of some values for each field, all others as the first."""
    first = {name: listed[0] for name, listed in values.items()}
    return [make(**first | {name: value}) for name, listed in values.items() for value in listed]


@pytest.mark.parametrize(
    "commands",
    [
        differing(
            lambda **said: ToPoints(A, B, begin=(0, 0), **said),
            {
                "small": [False, True],
                "tile_shape": [
                    (2, 10, 18, 8),
                    (3, 10, 18, 8),
                    (2, 9, 18, 8),
                    (2, 10, 17, 8),
                    (2, 10, 18, 16),
                ],
                "tiles": [(4, 8), (3, 8), (4, 7), (8, 4)],
            },
        ),
        differing(
            lambda **said: ToTaps(A, (B,) * 16, c0=8, **said),
            {"rows": [16, 32, 64], "columns": [8, 16, 40], "turned": [False, True]},
        ),
    ],
    ids=["points", "taps"],
)
def test_commands_of_one_shape_cost_the_same(commands):
    """The engines time one command for all of a shape."""
    costs = {}
    for command in commands:
        assert costs.setdefault(command.shape, command.cost(TOY)) == command.cost(TOY)
    # The fields above are all that a cost follows from, and each value of one makes another.
    assert len(set(costs.values())) > 4
