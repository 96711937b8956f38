"""Has a product whose elements lie anywhere the bits of its Mmads, however many threads share it?"""

import ctypes
import mmap
import sys
from itertools import pairwise
from threading import Barrier, get_ident
from time import sleep

import numpy as np
import pytest

from ascendsim.numerics import factor as module
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.compiled import gathered_kernels as kernels
from ascendsim.numerics.compiled.accumulate import accumulate, prepared, product_of, products_of
from ascendsim.numerics.compiled.turned import (
    narrowed,
    on_half_grid,
    rounded_halves,
    turn_to,
    turned,
    widened,
)
from ascendsim.numerics.factor import (
    ALONE,
    LEAST,
    Cuts,
    Factor,
    FactorRange,
    Threads,
    Values,
    cuts_of,
    is_known,
)
from tests.helpers.format_samples import CLASSES, same_bits, tile

# --- Does a product whose elements lie anywhere have the bits of its Mmads, one after the other? -------
# Expected is `accumulate`, which is held to the exact definitions elsewhere, called once for each Mmad.

# Those with a kernel of their own, those without, and those that see where an Mmad ends.
OWN = ("seq:RNE", "seq-muladd:RNE", "block:16:RNE", "block:4:RNE", "block:7:RNE", "block:1:RNE")
OTHERS = (
    "tree:8:adjacent:RNE",
    "block:8:RZ",
    "align:4:F24:RZ:acc",
    "fp16-acc(block:8:RNE)",
    "block:4:RNE+saturate",
    "seq:RNE+ftz-in:-14",
    "block:8:RNE+ftz-acc",
    "exact-mmad:RNE",
    "exact-mmad:RZ",
)
M, N, K = 12, 64, 83


def parse(text):
    return AccumulationModel.parse(text)


def by_rows(matrix):
    """Lay a matrix (lines, steps) out line after line."""
    lines, steps = matrix.shape
    return Factor(Values(matrix.ravel()), np.arange(lines) * steps, np.arange(steps))


def by_steps(matrix):
    """The same step after step."""
    lines, steps = matrix.shape
    return Factor(Values(matrix.T.ravel()), np.arange(lines), np.arange(steps) * lines)


def in_runs(matrix, run=8):
    """The same with steps in runs, of which the last ones come first; what a short run lacks is a NaN."""
    lines, steps = matrix.shape
    runs = -(-steps // run)
    filled = np.full((lines, runs * run), np.nan, np.float32)
    filled[:, :steps] = matrix
    values = filled.reshape(lines, runs, run)[::-1, ::-1].ravel()
    places = (np.arange(runs)[::-1, None] * run + np.arange(run)).ravel()[:steps]
    return Factor(Values(values), np.arange(lines)[::-1] * runs * run, places, run)


LAYS = (by_rows, by_steps, in_runs)


def one_by_one(model, a, b, ends, c):
    """Add the Mmads of a product (m, k) x (k, n) to c, each by itself."""
    for first, last in pairwise([0, *ends]):
        accumulate(model, a[:, first:last].copy(), b[first:last].copy(), c)
    return c


@pytest.mark.parametrize("data", CLASSES)
@pytest.mark.parametrize("grid", ["fp16", "fp32", "bf16"])
@pytest.mark.parametrize("model", OWN)
def test_hard_operands_and_any_accumulators_give_the_bits_of_single_mmads(model, grid, data):
    model = parse(model)
    a, b, c = tile(data, grid, M, K, N)
    ends = np.array([16, 32, 41, 80, K])
    left, right = LAYS[len(data) % 3](a), LAYS[len(grid + data) % 3](b.T.copy())
    want = one_by_one(model, a, b, ends, c.copy())
    cuts = cuts_of(model, ends, 32)
    prepared(model, left, right, cuts).add(FactorRange(0, M), FactorRange(0, N), Cuts.of([cuts]), c[None])
    assert same_bits(c, want)


@pytest.mark.parametrize("run", [4, 8, 16, 12])
@pytest.mark.parametrize("model", OWN)
def test_steps_in_runs_of_any_length_give_the_bits_of_single_mmads(model, run):
    # A run of 4 or 12 is copied by fours, one of 8 by eights, one of 16 by sixteens; of the last run three
    # steps are there, and NaN behind them. Only blocks of whole runs are measured run by run.
    model = parse(model)
    a, b, c = tile("wide", "fp16", M, 2 * 48 + 3, N)
    ends = np.array([48, 96, 99])
    want = one_by_one(model, a, b, ends, c.copy())
    cuts = cuts_of(model, ends, 48)
    product = prepared(model, in_runs(a, run), by_rows(b.T.copy()), cuts)
    product.add(FactorRange(0, M), FactorRange(0, N), Cuts.of([cuts]), c[None])
    assert same_bits(c, want)


@pytest.mark.parametrize("odd", [2.0**60, 2.0**-60, 2.0**-149, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("model", ["block:16:RNE", "block:7:RNE"])
@pytest.mark.parametrize("lay", LAYS)
def test_what_is_known_of_accumulators_holds_from_piece_to_piece(lay, model, odd):
    # Twelve pieces, whose sums go far beyond what one proof at the start could cover. The fourth has one
    # operand that spoils what was known, the seventh takes all sums back to zero and below their old unit.
    model, rng = parse(model), np.random.default_rng(3)
    a, b = (
        rng.standard_normal(shape).astype(np.float16).astype(np.float32) for shape in ((M, 336), (336, N))
    )
    a[5, 90] = odd
    a[:, 168:196], b[168:196] = -a[:, 140:168], b[140:168]
    a[:, 196:224] *= np.float32(2.0**-20)
    ends = np.arange(28, 337, 28)
    want = one_by_one(model, a, b, ends, np.zeros((M, N), np.float32))
    assert same_bits(product_of(model, lay(a), lay(b.T.copy()), ends), want)


def test_no_kernel_is_compiled_anew_for_places_that_nobody_may_write():
    # As reductions hand them out that are remembered.
    a, b, _ = tile("wide", "fp16", M, 32, N)
    model, ends = parse("block:16:RNE"), np.array([32])
    factors = by_rows(a), by_steps(b.T.copy())
    want = product_of(model, *factors, ends)
    for one in factors:
        one.steps.flags.writeable = False
    assert same_bits(product_of(model, *factors, ends), want)
    assert not any(one.steps.flags.writeable for one in factors)
    known = kernels._blocks.__wrapped__.signatures
    assert known
    assert not [kinds for kinds in known if "readonly" in str(kinds)]


@pytest.mark.parametrize("model", ["block:8:RNE", "block:16:RNE"])
@pytest.mark.parametrize("begin", [-0.0, 0.0])
@pytest.mark.parametrize("lay", LAYS)
def test_a_sum_of_nothing_but_minus_zeros_keeps_its_sign(lay, begin, model):
    # All products are -0 but three, -2^-151, each of which rounds to -0: also where a +0 was before.
    a, b = np.full((M, 160), -0.0, np.float32), np.full((160, N), 1.0, np.float32)
    for step, (row, column) in {0: (1, 0), 47: (2, 33), 70: (3, 63)}.items():
        a[row, step], b[step], b[step, column] = -(2.0**-76), 0.0, 2.0**-75
    ends, c = np.array([160]), np.full((M, N), begin, np.float32)
    want = one_by_one(parse(model), a, b, ends, c.copy())
    assert np.all(want == 0)
    assert np.all(np.signbit(want[[1, 2, 3], [0, 33, 63]]))
    assert np.all(np.signbit(want)) == (begin == 0.0 and np.signbit(begin))
    for most in (32, 160):
        cuts, found = cuts_of(parse(model), ends, most), c.copy()
        prepared(parse(model), lay(a), lay(b.T.copy()), cuts).add(
            FactorRange(0, M), FactorRange(0, N), Cuts.of([cuts]), found[None]
        )
        assert same_bits(found, want)


@pytest.mark.parametrize("model", ["block:8:RNE", "block:16:RNE"])
@pytest.mark.parametrize("power", [-149, -148, 60, 62, 64])
def test_sums_at_both_ends_of_the_singles_round_as_everywhere(model, power):
    # At -149 and -148, products are odd multiples of that power of two, below 2^22 of it: sums of subnormals
    # and of the smallest normal singles. From 60 on the first half of the products is positive and adds up to
    # some 2^(power + 64.6), the others are negative: an infinity on the way stays.
    rng, size = np.random.default_rng(7), (M, 96)
    high = power > 0
    signs = np.where(np.arange(96) < 48, 1.0, -1.0) if high else rng.choice([-1.0, 1.0], size)
    a = np.ldexp(signs * (2 * rng.integers(0, 1024, size) + 1), (power - 1) if high else power // 2)
    b = np.ldexp(2.0 * rng.integers(0, 1024, (96, N)) + 1, 40 if high else power - power // 2)
    a, b = a.astype(np.float32), b.astype(np.float32)
    ends = np.array([32, 96])
    want = one_by_one(parse(model), a, b, ends, np.zeros((M, N), np.float32))
    assert np.any(np.isinf(want)) == (power == 64)
    for lay in LAYS:
        assert same_bits(product_of(parse(model), lay(a), lay(b.T.copy()), ends), want)


@pytest.mark.parametrize("lay", LAYS)
def test_a_piece_is_as_large_as_all_its_blocks_together(lay):
    # Six blocks of 16, each 2^52, which a double holds together with a 1. Not so all of them: the fourth adds
    # 2^30 + 1 to 2^54, which is just above the middle between two singles, whose unit is 2^31 there.
    a, b = np.zeros((M, 96), np.float32), np.zeros((96, N), np.float32)
    a[:, ::16], b[::16] = 2.0**26, 2.0**26
    a[:, 49:51], b[49], b[50] = [16.0, 1.0], 2.0**26, 1.0
    found = product_of(parse("block:16:RNE"), lay(a), lay(b.T.copy()), np.array([96]))
    assert np.all(found == 6 * 2.0**52 + 2.0**31)


@pytest.mark.parametrize("odd", [(), (3,), (1, 2, 7), range(12)])
@pytest.mark.parametrize("lay", LAYS)
def test_sums_that_no_bound_proves_exact_round_as_exact_ones(lay, odd):
    # Rows are so far apart that no double holds multiples of all of them. In each piece all go up by 2^24 + 1
    # of their size, a tie that is rounded down, and back by 2^24; in odd pieces the fifth has 2^-40 more,
    # which a double loses, so that it is rounded up.
    model, size = parse("block:16:RNE"), np.ldexp(1.0, 12 * np.arange(M) - 66)
    a, b = np.zeros((M, 12, 96), np.float32), np.ones((12 * 96, N), np.float32)
    a[:, :, 0], a[:, :, 1], a[:, :, 16] = (size[:, None] * step for step in (2.0**24, 1.0, -(2.0**24)))
    a[5, list(odd), 2] = size[5] * 2.0**-40
    a, ends = a.reshape(M, -1), np.array([12 * 96])
    want = one_by_one(model, a, b, ends, np.zeros((M, N), np.float32))
    assert [bool(np.any(row)) for row in want] == [bool(odd) and row == 5 for row in range(M)]
    assert same_bits(product_of(model, lay(a), lay(b.T.copy()), ends), want)


@pytest.mark.parametrize("lay", LAYS)
def test_what_is_seen_of_accumulators_counts_their_last_place(lay):
    # The first Mmad leaves 1 + 2^-23. The other's products go up to 9 x 2^27 and back to 3 x 2^27: beside the
    # larger a double holds no 2^-23, and without it 16 + 2^-23 above the smaller is a tie, which goes down.
    terms = np.float32([1, 2.0**-23, 9 * 2.0**27, -6 * 2.0**27, 15])
    a, b = np.tile(terms, (M, 1)), np.ones((5, N), np.float32)
    found = product_of(parse("block:16:RNE"), lay(a), lay(b.T.copy()), np.array([2, 5]))
    assert np.all(found == 3 * 2.0**27 + 32)


@pytest.mark.parametrize("blocks", [34, 41, 60])
@pytest.mark.parametrize("lay", LAYS)
def test_subnormal_sums_may_grow_by_rounding_alone(lay, blocks):
    # Each product is 2^-150 and 2^-196 more, since 8384513 x 8392705 = 2^46 + 1. Three are one and a half
    # units of the subnormal singles, which round to two: sums outgrow the bound of what was added, up to
    # where a double holds no 2^-196 any more. The last product is alone: that bit alone says that half a unit
    # is rounded up.
    left, right = np.float32(8384513 * 2.0**-98), np.float32(8392705 * 2.0**-98)
    assert float(left) * float(right) == 2.0**-150 + 2.0**-196
    steps = 3 * blocks + 1
    a, b = np.full((M, steps), left), np.full((steps, N), right)
    found = product_of(parse("block:3:RNE"), lay(a), lay(b.T.copy()), np.array([steps]))
    assert np.all(found == np.float32((2 * blocks + 1) * 2.0**-149))


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("model", ["block:2:RNE", "block:3:RNE", "block:4:RNE"])
def test_pieces_of_few_steps_end_a_block_where_the_mmad_does(model, length):
    # Down to one product, and to one block and a product: no next block begins there.
    model = parse(model)
    a, b, c = tile("normal", "fp16", M, length, N)
    want = one_by_one(model, a, b, np.array([length]), c.copy())
    cuts = np.array([0, length])
    prepared(model, by_rows(a), by_steps(b.T.copy()), cuts).add(
        FactorRange(0, M), FactorRange(0, N), Cuts.of([cuts]), c[None]
    )
    assert same_bits(c, want)


@pytest.mark.parametrize("model", OWN + OTHERS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 40), (5, 33, 7), (600, 3, 34)])
def test_a_product_of_any_size_begins_at_zero(shape, model):
    (m, n, k), model, rng = shape, parse(model), np.random.default_rng(5)
    a, b = (rng.standard_normal(size).astype(np.float16).astype(np.float32) for size in ((m, k), (k, n)))
    ends = np.unique([*rng.integers(1, k + 1, 3), k])
    want = one_by_one(model, a, b, ends, np.zeros((m, n), np.float32))
    for lay in LAYS:
        assert same_bits(product_of(model, lay(a), lay(b.T.copy()), ends), want)


@pytest.mark.parametrize("data", CLASSES)
@pytest.mark.parametrize("model", [*OWN, "tree:8:halves:RNE"])
def test_sums_that_begin_do_not_see_what_was_there(model, data):
    # More rows than are added at once, two products, and NaN where their sums will be.
    model, m = parse(model), 520
    a, b, _ = tile(data, "fp16", m, K, N)
    ends, firsts = ([16, 48, K - 3], [K]), (0, K - 3)
    each = [(first, np.array(own) - first) for first, own in zip(firsts, ends, strict=True)]
    cuts = Cuts.of([first + cuts_of(model, own, 32) for first, own in each])
    found = np.full((2, m, N), np.nan, np.float32)
    product = prepared(model, by_rows(a), by_steps(b.T.copy()), cuts.places)
    product.add(FactorRange(0, m), FactorRange(0, N), cuts, found, begins=True)
    for sums, (first, own) in zip(found, each, strict=True):
        steps, zeros = slice(first, first + own[-1]), np.zeros((m, N), np.float32)
        want = one_by_one(model, a[:, steps], b[steps], own, zeros)
        assert same_bits(sums, want)


def test_a_product_without_a_piece_beside_one_with_some_is_zero():
    a, b, _ = tile("normal", "fp16", M, K, N)
    for counts in ([0, 1], [1, 0]):
        found = products_of(parse("seq:RNE"), by_rows(a), by_steps(b.T.copy()), np.array([K]), counts)
        assert np.all(found[counts.index(0)] == 0)
        assert not np.any(found[counts.index(1)] == 0)


@pytest.mark.parametrize("model", ["seq:RNE", "block:16:RNE", "tree:8:halves:RNE"])
def test_rows_and_columns_can_be_added_apart(model):
    model = parse(model)
    a, b, c = tile("normal", "fp16", 16, K, 96)
    ends = np.array([48, K])
    whole, parts = c.copy(), c.copy()
    cuts = cuts_of(model, ends, 32)
    product = prepared(model, by_rows(a), by_steps(b.T.copy()), cuts)
    product.add(FactorRange(0, 16), FactorRange(0, 96), Cuts.of([cuts]), whole[None])
    for rows, columns in (
        (FactorRange(8, 16), FactorRange(0, 64)),
        (FactorRange(0, 8), FactorRange(0, 96)),
        (FactorRange(8, 16), FactorRange(64, 96)),
    ):
        product.add(rows, columns, Cuts.of([cuts]), parts[None])
    assert same_bits(parts, whole)


@pytest.mark.parametrize("model", ["seq:RNE", "block:16:RNE", "tree:8:halves:RNE"])
@pytest.mark.parametrize("shape", [(70, 33), (9, 300), (3, 5)])
def test_the_bits_do_not_depend_on_the_number_of_threads(shape, model):
    (m, n), model = shape, parse(model)
    a, b, _ = tile("normal", "fp16", m, K, n)
    ends = np.array([48, K])
    want = product_of(model, by_rows(a), by_steps(b.T.copy()), ends)
    for count in (2, 3, 7):
        with Threads(count) as threads:
            assert same_bits(product_of(model, by_rows(a), by_steps(b.T.copy()), ends, threads), want)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 40), (3, 33, 17), (0, 4, 4), (2, 0, 3)])
def test_matrices_are_turned_whatever_their_size(shape):
    matrices = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert np.array_equal(turned(matrices), matrices.transpose(0, 2, 1))
    read_only = matrices[:, ::-1]
    read_only.flags.writeable = False
    assert np.array_equal(turned(read_only), read_only.transpose(0, 2, 1))


def test_columns_go_to_the_places_that_are_named():
    # Two matrices of two rows and three columns, which begin at 1, 4 and 7.
    matrices = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    target = np.zeros((2, 9), np.float32)
    turn_to(matrices, np.array([1, 4, 7]), target)
    assert target.tolist() == [[0, 1, 4, 0, 2, 5, 0, 3, 6], [0, 7, 10, 0, 8, 11, 0, 9, 12]]


def test_whole_squares_go_to_the_places_that_are_named():
    # 20 columns of 37 rows: two squares of 16, and what is over on both sides; columns from the last to the
    # first, with a gap of 3 between them.
    matrices = np.arange(2 * 37 * 20, dtype=np.float32).reshape(2, 37, 20) + 1
    places = np.arange(20)[::-1] * 40 + 5
    target = np.zeros((2, 5 + 20 * 40), np.float32)
    turn_to(matrices, places, target)
    for matrix, made in zip(matrices, target, strict=True):
        for column, place in enumerate(places):
            assert np.array_equal(made[place : place + 37], matrix[:, column])
    assert np.count_nonzero(target) == matrices.size  # nothing else is touched


def test_matrices_go_to_the_goals_that_are_named():
    # Three matrices of 2 rows and 2 columns: the second first, the first last, 2 between the columns of each.
    matrices = np.arange(1, 13, dtype=np.float32).reshape(3, 2, 2)
    target = np.zeros(20, np.float32)
    turn_to(matrices, np.array([0, 4]), target, goals=np.array([14, 0, 6]))
    assert target.tolist() == [5, 7, 0, 0, 6, 8, 9, 11, 0, 0, 10, 12, 0, 0, 1, 3, 0, 0, 2, 4]


@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (9, 128), (15, 16), (16, 17), (128, 9), (17, 1)])
def test_parts_of_squares_touch_nothing_else(rows, columns):
    # Of 3 matrices the one in the middle, whose neighbours are there to be touched, with gaps in the target.
    given = np.arange(3 * rows * columns, dtype=np.float32).reshape(3, rows, columns) + 1
    places = np.arange(columns) * (rows + 3) + 7
    target = np.zeros(columns * (rows + 3) + 40, np.float32)
    turn_to(given[1:2], places, target, goals=np.array([5]))
    for column, place in enumerate(places):
        assert np.array_equal(target[5 + place : 5 + place + rows], given[1, :, column])
    assert np.count_nonzero(target) == rows * columns


@pytest.mark.skipif(sys.platform != "linux", reason="locks a page of memory by a call of Linux")
def test_the_last_part_of_a_square_reads_nothing_behind_its_matrix():
    # The matrix ends with its page, and to read the next one would end the process.
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    locked = ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 0)
    assert locked == 0
    last = np.frombuffer(memory, np.float32, 9 * 5, page - 9 * 5 * 4).reshape(1, 9, 5)
    last[:] = np.arange(45).reshape(9, 5)
    assert np.array_equal(turned(last), last.transpose(0, 2, 1))


def test_a_product_without_mmads_is_zero():
    empty = np.zeros(0, np.int64)
    a, b = (Factor(Values(np.ones(3, np.float32)), np.arange(lines), empty) for lines in (2, 3))
    assert product_of(parse("seq:RNE"), a, b, empty).tolist() == [[0, 0, 0], [0, 0, 0]]


# --- where a reduction may be cut


@pytest.mark.parametrize(
    ("model", "ends", "most", "cuts"),
    [
        # A chain has no blocks: pieces of 10 anywhere.
        ("seq:RNE", [7, 25], 10, [0, 10, 20, 25]),
        # Full blocks of 8 end at 24 only with the second Mmad: all one run, in pieces of 2 blocks.
        ("block:8:RNE", [8, 24, 30], 20, [0, 16, 30]),
        # The Mmad that ends at 12 breaks off a block, the next one begins there.
        ("block:8:RNE", [12, 28, 30], 20, [0, 12, 28, 30]),
        # A block longer than a piece is a piece.
        ("tree:32:adjacent:RNE", [64], 20, [0, 32, 64]),
        # What looks at the accumulators at the end of an Mmad gets the Mmads.
        ("seq:RNE+saturate", [7, 25], 10, [0, 7, 25]),
        # Mmads that are blocks stay whole, however long.
        ("exact-mmad:RNE", [7, 25], 10, [0, 7, 25]),
        # An Mmad of nothing ends nothing.
        ("block:8:RNE", [8, 8, 12, 12, 20, 20], 8, [0, 8, 12, 20]),
    ],
)
def test_pieces_end_where_it_makes_no_difference(model, ends, most, cuts):
    assert cuts_of(parse(model), np.array(ends), most).tolist() == cuts


def test_only_kinds_that_have_been_thought_about_are_known():
    assert all(is_known(parse(model)) for model in OWN + OTHERS)
    assert not is_known(parse("exact:RNE"))
    assert not is_known(parse("block:cube_k:RNE"))


@pytest.mark.parametrize("threads", [Threads(1), Threads(2)], ids=["one", "two"])
@pytest.mark.parametrize("model", [*OWN, "tree:8:adjacent:RNE", "exact-mmad:RNE"])
def test_products_that_follow_each_other_have_the_bits_of_each_alone(model, threads):
    model = parse(model)
    a, b, _ = tile("wide", "fp16", 7, K, 40)
    # Mmads of 16, 25, none, 3 and 39 products, and a product without any at both ends and in between.
    parts = [[], [16, 25], [], [3], [39], []]
    ends = np.cumsum([length for part in parts for length in part])
    for lay in LAYS:
        counts = [len(part) for part in parts]
        together = products_of(model, lay(a), lay(b.T.copy()), ends, counts, threads)
        assert together.shape == (6, 7, 40)
        first = 0
        for part, made in zip(parts, together, strict=True):
            last = first + sum(part)
            alone = one_by_one(
                model,
                a[:, first:last],
                b[first:last],
                np.cumsum(part, dtype=int),
                np.zeros((7, 40), np.float32),
            )
            assert same_bits(made, alone)
            first = last


# --- Do threads that share work do all of it, each part once, and does nobody see how many there are? --


@pytest.fixture
def sharing_everything(monkeypatch):
    """Share arrays of any size."""
    monkeypatch.setattr(module, "LEAST", 0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_come_in_the_order_of_the_tasks(count):
    with Threads(count) as threads:
        assert threads.run(divmod, [(7, 2), (9, 4), (5, 5), (8, 3)]) == [(3, 1), (2, 1), (1, 0), (2, 2)]
        assert threads.run(divmod, []) == []


def test_tasks_run_at_once():
    # Each of two tasks waits until the other one has begun.
    meeting = Barrier(2)
    with Threads(2) as threads:
        threads.run(meeting.wait, [(30,), (30,)])


@pytest.mark.parametrize(("count", "tasks"), [(1, 3), (2, 1)])
def test_what_needs_no_thread_runs_in_the_one_that_calls(count, tasks):
    with Threads(count) as threads:
        assert threads.run(lambda _: get_ident(), [(n,) for n in range(tasks)]) == [get_ident()] * tasks


def slow_name(_):
    sleep(0.02)  # so long that another thread would take the next task
    return get_ident()


def test_threads_are_begun_once_and_end_with_their_context():
    with Threads(2) as threads:
        first, *others = threads.run(slow_name, [(0,)] * 4)
        assert first == get_ident()
        # The calling thread is one of the two.
        assert set(others) == set(threads.run(slow_name, [(0,)] * 2)[1:])
        assert len(set(others)) == 1
    with pytest.raises(RuntimeError, match="shutdown"):
        threads.run(divmod, [(1, 1), (1, 1)])


@pytest.mark.parametrize("count", [1, 3])
def test_the_error_of_the_first_task_that_fails_is_raised(count):
    with Threads(count) as threads, pytest.raises(ZeroDivisionError):
        threads.run(divmod, [(1, 1), (1, 0), (1, "")])


@pytest.mark.parametrize(
    ("count", "size", "unit", "parts"),
    [
        (2, 10, 1, [(0, 5), (5, 10)]),
        # Three units of 4 for two threads: one and two; the last unit is short.
        (2, 10, 4, [(0, 4), (4, 10)]),
        # Two units for three threads: one has none.
        (3, 8, 4, [(0, 4), (4, 8)]),
        (1, 10, 4, [(0, 10)]),
        (2, 3, 4, [(0, 3)]),
        (2, 0, 4, []),
    ],
)
def test_parts_are_whole_units_that_follow_each_other(count, size, unit, parts):
    assert [(part.start, part.stop) for part in Threads(count).parts(size, unit)] == parts


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_part_is_made_by_somebody(count):
    with Threads(count) as threads:
        made = threads.share(lambda part: list(range(part.start, part.stop)), 10, 4)
    assert len(made) == count
    assert [number for part in made for number in part] == list(range(10))


def test_only_long_moves_are_shared():
    threads = Threads(2)
    assert threads.for_moving(LEAST) is threads
    assert threads.for_moving(LEAST - 1) is ALONE


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.usefixtures("sharing_everything")
def test_matrices_are_turned_alike_by_any_number_of_threads(count):
    matrices = np.arange(4 * 33 * 20, dtype=np.float32).reshape(4, 33, 20) + 1
    # Columns from the last to the first, with a gap of 3 between them.
    places, target = np.arange(20)[::-1] * 36, np.zeros((4, 20 * 36), np.float32)
    with Threads(count) as threads:
        assert np.array_equal(turned(matrices, threads), matrices.transpose(0, 2, 1))
        turn_to(matrices, places, target, threads)
    for column, place in enumerate(places):
        assert np.array_equal(target[:, place : place + 33], matrices[:, :, column])
    assert np.count_nonzero(target) == matrices.size  # nothing else is touched


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.usefixtures("sharing_everything")
def test_halves_are_converted_alike_by_any_number_of_threads(count):
    # Some panels and a part of one, with values that are off the grid of binary16.
    values = np.random.default_rng(0).standard_normal(1500).astype(np.float32)
    halves = values.astype(np.float16)
    on_grid = halves.astype(np.float32)
    with Threads(count) as threads:
        assert np.array_equal(widened(halves, threads), on_grid)
        assert np.array_equal(on_half_grid(values, threads), on_grid)
        assert np.array_equal(rounded_halves(values, threads), halves)
        assert np.array_equal(narrowed(on_grid, threads), halves)
        # One value off the grid is seen in whichever part it lies.
        for place in (0, 700, 1400, 1499):
            off = on_grid.copy()
            off[place] = 2049.0
            assert narrowed(off, threads) is None
