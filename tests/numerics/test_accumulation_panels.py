"""Do panels compute what numpy computes, and do operands lie where the kernels look for them?"""

import math
import operator

import numba
import numpy as np
import pytest

from ascendsim.numerics.compiled import panels
from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.packing import (
    Scratch,
    aligned,
    fill_low_halves,
    fill_magnitudes,
    give_back,
    pack,
    packed_size,
    reach_and_unit,
    singles_for,
    stripe_reach_and_unit,
    whole_panels,
)
from ascendsim.numerics.compiled.panel_rounding import (
    RNE,
    Rounding,
    columns,
    put,
    rows,
    scalar_bits,
    scalar_float,
    store,
    tile,
)
from ascendsim.numerics.compiled.panels import LANES, ROWS
from ascendsim.numerics.compiled.workspace import (
    KernelModel,
    bound,
    extent,
    measure,
    measure_columns,
    measure_side_by_side,
    memory_for,
    prepare,
    sums_of_four,
)

# --- Do panels compute what numpy computes, element by element, and comparisons say no to NaN? ---------

PANEL = ROWS * LANES
# Every pair of these stands somewhere in the two arrays below: zeros of both signs, subnormals of two widths,
# a tie of a conversion, numbers that a single cannot hold, infinities, NaN.
VALUES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.0**-149,
    -(2.0**-1074),
    1 + 2.0**-24,
    65520.0,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
]
PAIRS = np.array([(x, y) for x in VALUES for y in VALUES])
FIRST, SECOND = (np.resize(PAIRS[:, side], (-(-len(PAIRS) // PANEL) * PANEL)) for side in (0, 1))


def per_panel(operation, result, *operands):
    """Apply a compiled operation on panels to whole arrays."""
    compute = numba.njit(operation)

    @numba.njit
    def run(target, x, y, z):
        for at in range(0, x.size, PANEL):
            store(compute(tile(x, at, LANES), tile(y, at, LANES), tile(z, at, LANES)), target, at, LANES)

    target = np.empty(operands[0].shape, result)
    run(target, *operands, *operands[-1:] * (3 - len(operands)))
    return target


def same(found, expected):
    """Compare bits; all NaN are equal."""
    word = np.dtype(f"i{found.itemsize}")
    nan = np.isnan(found) & np.isnan(expected) if found.dtype.kind == "f" else np.zeros(found.shape, bool)
    return bool(np.all((found.view(word) == expected.view(word)) | nan))


@pytest.mark.parametrize("symbol", [operator.add, operator.sub, operator.mul])
@pytest.mark.parametrize("element", [np.float32, np.float64])
@np.errstate(all="ignore")
def test_arithmetic_is_that_of_ieee_in_the_width_of_the_operands(symbol, element):
    x, y = FIRST.astype(element), SECOND.astype(element)
    assert same(per_panel(lambda x, y, _z: symbol(x, y), element, x, y), symbol(x, y))


@np.errstate(all="ignore")
def test_a_fused_step_rounds_once():
    # (1 + u)(1 - u) - 1 = -u^2, which a rounded product loses: for u = 2^-23 that is 1.
    u = np.float32(2.0**-23)
    x, y, z = (np.full(PANEL, v, np.float32) for v in (1 + u, 1 - u, -1))
    assert per_panel(lambda x, y, z: panels.fma(x, y, z), np.float32, x, y, z)[0] == -(u * u)
    assert (x * y + z)[0] == 0


COMPARISONS = {
    "lt": (lambda x, y, z: panels.select(x < y, x, z), lambda x, y: x < y),
    "equal": (lambda x, y, z: panels.select(panels.equal(x, y), x, z), lambda x, y: x == y),
    # Ordered: where one is NaN they do not differ, though they are not equal either.
    "differs": (
        lambda x, y, z: panels.select(panels.differs(x, y), x, z),
        lambda x, y: (x != y) & ~np.isnan(x) & ~np.isnan(y),
    ),
    "nonzero": (
        lambda x, _y, z: panels.select(panels.nonzero(x), x, z),
        lambda x, _y: (x != 0) & ~np.isnan(x),
    ),
}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("element", [np.float32, np.float64])
@np.errstate(all="ignore")
def test_comparisons_are_false_where_an_operand_is_nan(name, element):
    compiled, definition = COMPARISONS[name]
    x, y, other = FIRST.astype(element), SECOND.astype(element), np.full(FIRST.shape, 7, element)
    assert same(per_panel(compiled, element, x, y, other), np.where(definition(x, y), x, other))


CONVERSIONS = {
    "to_single": (panels.to_single, np.float32, np.float64),
    "absolute": (panels.absolute, np.float64, np.float64),
    "truncated": (panels.truncated, np.float64, np.float64),
    "widen": (panels.widen, np.float64, np.float32),
}
NUMPY = {"to_single": np.float32, "absolute": np.abs, "truncated": np.trunc, "widen": np.float64}


@pytest.mark.parametrize("name", CONVERSIONS)
@np.errstate(all="ignore")
def test_conversions_are_those_of_numpy(name):
    operation, result, element = CONVERSIONS[name]
    x = FIRST.astype(element)
    assert same(per_panel(lambda x, _y, _z: operation(x), result, x), NUMPY[name](x))


def test_integers_are_cut_toward_zero_and_come_back_exactly():
    x = np.resize(np.array([0.0, -0.0, 0.99, -0.99, 1.5, -2.5, 2.0**31 - 128, -(2.0**31)], np.float32), PANEL)
    there = per_panel(lambda x, _y, _z: panels.to_integer(x), np.int32, x)
    assert there.tolist() == [math.trunc(v) for v in x.tolist()]
    back = per_panel(lambda x, _y, _z: panels.integer_to_double(x), np.float64, there)
    assert back.tolist() == there.tolist()


def test_bits_and_masks_are_seen_as_integers():
    x = np.resize(np.array([0.0, -0.0, 1.0, -1.0, math.inf], np.float64), PANEL)
    bits = x.view(np.int64)
    assert same(per_panel(lambda x, _y, _z: panels.as_bits(x), np.int64, x), bits)
    assert same(per_panel(lambda x, _y, _z: panels.as_float(x), np.float64, bits), x)
    ones = per_panel(lambda x, _y, _z: panels.as_ones(panels.negative(x), x), np.int64, bits)
    assert ones.tolist() == np.signbit(x).tolist()


@numba.njit
def any_nonzero(x):
    return panels.any_lane(panels.nonzero(tile(x, 0, LANES)))


@pytest.mark.parametrize("place", [0, 1, LANES - 1, LANES, PANEL - 1])
def test_any_lane_sees_every_place(place):
    x = np.zeros(PANEL, np.float32)
    assert not any_nonzero(x)
    x[place] = 1
    assert any_nonzero(x)


@numba.njit
def outer_product(a, b, target):
    store(rows(a, 1) * columns(b, 2), target, 3, LANES + 5)


def test_rows_columns_and_tiles_lie_where_they_are_said_to():
    # Offsets and strides that are no multiple of anything: vectors need no alignment.
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal(ROWS + 1).astype(np.float32), rng.standard_normal(LANES + 2).astype(np.float32)
    target = np.full(3 + ROWS * (LANES + 5), np.float32(9))
    outer_product(a, b, target)
    body = target[3:].reshape(ROWS, LANES + 5)
    assert np.array_equal(body[:, :LANES], a[1:, None] * b[2:])
    assert (target[:3] == 9).all()
    assert (body[:, LANES:] == 9).all()


@numba.njit
def bits_and_back(x):
    return scalar_bits(x), scalar_float(scalar_bits(x))


@pytest.mark.parametrize("value", [np.float32(-0.0), np.float64(1.5), np.float32(2.0**-149)])
def test_scalars_keep_their_bits(value):
    bits, back = bits_and_back(value)
    assert bits == value.view(f"i{value.itemsize}")
    assert back == value


# -------------------------------------------------------------------------------------------------------
# Do operands and accumulators lie where the kernels look for them, inside the memory they are given?
# -------------------------------------------------------------------------------------------------------

SHAPES = [(1, 1, 1), (ROWS, 3, LANES), (ROWS + 1, 5, LANES - 1), (2 * ROWS - 1, 2, 2 * LANES + 1), (3, 40, 2)]


def operands(m, k, n):
    rng = np.random.default_rng(m + k + n)
    return rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


def groups(count, unit):
    return math.ceil(count / unit)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_operands_are_packed_line_by_line_with_zeros_around(m, k, n):
    a, b = operands(m, k, n)
    target = singles_for(a, b)
    target[:] = np.nan
    first, second, end = pack(a, b, target, 1)
    assert (target.ctypes.data + first * target.itemsize) % 64 == 0
    # Group g, line t, row r of a is a[g ROWS + r, t]: that is a, padded and with its axes turned round.
    rows = np.zeros((groups(m, ROWS) * ROWS, k), np.float32)
    rows[:m] = a
    packed = target[0, first:second].reshape(-1, k, ROWS)
    assert np.array_equal(packed, rows.reshape(-1, ROWS, k).transpose(0, 2, 1))
    columns = np.zeros((k, groups(n, LANES) * LANES), np.float32)
    columns[:, :n] = b
    packed = target[0, second:end].reshape(-1, k, LANES)
    assert np.array_equal(packed, columns.reshape(k, -1, LANES).transpose(1, 0, 2))
    assert end - first <= packed_size(m, k, n)
    assert np.isnan(target[0, :first]).all()
    assert np.isnan(target[0, end:]).all()


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_accumulators_are_whole_panels_and_come_back_unharmed(m, k, n):
    del k
    c = np.arange(m * n, dtype=np.float32).reshape(m, n)
    spare = np.full((1, 2 + (m + ROWS) * (n + LANES)), np.float32(-1))
    cells = whole_panels(c, spare, 2)
    assert (cells.rows % ROWS, cells.columns % LANES) == (0, 0)
    in_place = m % ROWS == 0 and n % LANES == 0
    assert (cells.values is c or cells.values.ctypes.data == c.ctypes.data) == in_place
    size = cells.rows * cells.columns
    panel = cells.values.reshape(-1)[cells.first : cells.first + size].reshape(cells.rows, cells.columns)
    assert np.array_equal(panel[:m, :n], c)
    assert panel.sum() == c.sum()  # zeros around
    panel += 1
    expected = np.arange(m * n, dtype=np.float32).reshape(m, n) + 1
    give_back(cells, c)
    assert np.array_equal(c, expected)


@pytest.mark.parametrize("columns", [LANES + 1, 3 * LANES - 1])
def test_accumulators_beside_whole_panels_are_copied_alone(columns):
    c = np.arange(ROWS * columns, dtype=np.float32).reshape(ROWS, columns)
    skipped, spare = columns // LANES * LANES, np.full((1, 4 * LANES * ROWS), np.float32(-1))
    cells = whole_panels(c, spare, 2, skipped)
    # Accumulator (i, j) is at first + i columns + j for every j that has not been left out.
    assert (cells.first + skipped, cells.rows, cells.columns) == (2, ROWS, LANES)
    copied = spare[0, 2 : 2 + ROWS * LANES].reshape(ROWS, LANES)
    assert np.array_equal(copied[:, : columns - skipped], c[:, skipped:])
    assert copied.sum() == c[:, skipped:].sum()
    copied += 1
    expected = c.copy()
    expected[:, skipped:] += 1
    give_back(cells, c, skipped)
    assert np.array_equal(c, expected)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("block", [1, 2, 1 << 30])
def test_a_workspace_fits_into_its_memory(m, k, n, block, monkeypatch):
    # Nothing checks an offset: with blocks of one product and low halves, this is the most a kernel may use.
    a, b = operands(m, k, n)
    # Memory that was lent before may be larger than what is asked for here.
    monkeypatch.setattr("ascendsim.numerics.compiled.workspace.SCRATCH", Scratch())
    memory = memory_for(a, b, 7)
    memory.doubles[:] = memory.singles[:] = np.nan
    how = Rounding(RNE, False, 0.0)
    work = prepare(a, b, memory, KernelModel(block, how, False, how, True))
    packed = work.a_low - work.a
    assert work.b_whole + 2 * groups(n, LANES) <= memory.doubles.size
    assert work.a_single + packed <= memory.spare
    padded = groups(m, ROWS) * ROWS * groups(n, LANES) * LANES
    assert memory.spare + padded + 7 <= memory.singles.size
    # Parts in their order, each with room for what it holds.
    starts = [work.result, work.start, work.flags, work.limbs, work.a, work.b, work.a_low, work.b_low]
    starts += [work.a_extents, work.b_extents, work.a_whole, work.b_whole]
    assert starts == sorted(starts)
    assert work.b_extents - work.a_extents == 2 * groups(m, ROWS) * work.blocks
    assert work.a_whole - work.b_extents == 2 * groups(n, LANES) * work.blocks
    assert work.b_whole - work.a_whole == 2 * groups(m, ROWS)
    assert work.blocks == groups(k, block)
    assert work.b_low - work.a_low == work.b - work.a
    assert memory.singles[0, work.a_single] == -1


def test_extents_are_measured_per_group_and_block():
    a = np.arange(1, 11, dtype=np.float32).reshape(2, 5)
    b = np.array([[1], [-6], [4], [4], [0.5]], np.float32)
    how = Rounding(RNE, False, 0.0)
    work = prepare(a, b, memory_for(a, b), KernelModel(2, how, False, how, False))
    found = work.doubles[0, work.a_extents : work.b_extents].reshape(3, 2)
    # Columns 0 and 1, 2 and 3, and 4 of both rows (and zeros): 1 + 2 and 6 + 7, 3 + 4 and 8 + 9, 5 and 10.
    assert found.tolist() == [[13, 1], [17, 1], [10, 1]]
    found = work.doubles[0, work.b_extents :][:6].reshape(3, 2)
    assert found.tolist() == [[6, 1], [4, 4], [0.5, 0.5]]
    # Of all three as one: sums of rows add up, of columns the largest counts.
    assert work.doubles[0, work.a_whole :][:2].tolist() == [13 + 17 + 10, 1]
    assert work.doubles[0, work.b_whole :][:2].tolist() == [6, 0.5]
    largest, finest = extent(a, 0, 0)
    assert (largest, finest) == (0, math.inf)


@pytest.mark.parametrize("row", range(ROWS))
def test_the_largest_of_the_sums_of_rows_counts(row):
    values = np.zeros((1, 3 * ROWS + 4))
    for step, value in enumerate([1.0, -2.0, 4.0]):
        values[0, step * ROWS + row] = value
    # Two steps, then the one that is left, each with the lowest bit of any of its values.
    measure_side_by_side(values, 0, 3 * ROWS, 2 * ROWS, 3 * ROWS)
    assert values[0, 3 * ROWS :].tolist() == [3, 1, 4, 4]
    values[0, row] = np.nan
    measure_side_by_side(values, 0, 3 * ROWS, 2 * ROWS, 3 * ROWS)
    assert values[0, 3 * ROWS] == math.inf


def on_a_grid(count, scale, special=()):
    """Return singles, as doubles, whose sums are exact: few bits, zeros and powers of two among them."""
    rng = np.random.default_rng(count)
    values = rng.integers(-64, 65, count) * 2.0 ** rng.integers(-3, 4, count) * scale
    values[rng.permutation(count)[: len(special)]] = special
    return values.reshape(1, -1)


# One vector, one panel, what is over behind a panel, too short for one; scales among the subnormal singles.
@pytest.mark.parametrize("steps", [1, 2, ROWS - 1, ROWS, ROWS + 1, 16, 19])
@pytest.mark.parametrize("scale", [1.0, 2.0**-140, 2.0**110])
@pytest.mark.parametrize("special", [(), (math.inf,), (-math.inf, math.nan)])
def test_columns_are_measured_on_vectors_as_one_by_one(steps, scale, special):
    # Two blocks and a half.
    size = (2 * steps + (steps + 1) // 2) * LANES
    values = on_a_grid(size + 5, scale, special)
    found, expected = np.full((2, 1, 6), np.nan)
    measure(values, 5, size, steps * LANES, expected, 0)
    measure_columns(values, 5, size, steps * LANES, found, 0)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("steps", [LANES // ROWS, 16, 2 * LANES, 5])
@pytest.mark.parametrize("scale", [1.0, 2.0**-140, 2.0**110])
@pytest.mark.parametrize("special", [(), (math.inf,), (-math.inf, math.nan)])
def test_rows_are_measured_on_vectors_as_one_by_one(steps, scale, special):
    size = (2 * steps + 3) * ROWS
    values = np.concatenate([on_a_grid(size, scale, special), np.full((1, 6), np.nan)], axis=1)
    measure_side_by_side(values, 0, size, steps * ROWS, size)
    for block, found in enumerate(values[0, size:].reshape(3, 2).tolist()):
        begin, stop = block * steps * ROWS, min((block + 1) * steps * ROWS, size)
        largest = max(bound(total) for total in sums_of_four(values, begin, stop))
        assert found == [largest, extent(values, begin, stop)[1]]


@kernel
def look(cells, count, found):
    reach, unit = stripe_reach_and_unit(cells, 0, count, LANES)
    put(found, 0, reach)
    put(found, 1, unit)
    for panel in range(count):
        reach, unit = reach_and_unit(tile(cells, panel * ROWS * LANES, LANES))
        put(found, 2 * panel + 2, reach)
        put(found, 2 * panel + 3, unit)


@pytest.mark.parametrize("special", [(), (-0.0,), (math.inf,), (math.nan,)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 2.0**-145])
def test_panels_below_each_other_are_looked_at_as_one_by_one(scale, special):
    cells = on_a_grid(3 * ROWS * LANES, scale).astype(np.float32)
    cells[0, : ROWS * LANES] = 0
    cells[0, 2 * ROWS * LANES - len(special) : 2 * ROWS * LANES] = special
    found = np.empty((1, 8))
    look(cells, 3, found)
    (reach, unit), *each = found.reshape(4, 2).tolist()
    assert each[0] == [0, math.inf]
    assert unit == min(unit for _, unit in each)
    assert not reach < math.inf if not np.isfinite(cells).all() else reach == max(size for size, _ in each)


def test_low_halves_and_magnitudes_follow_the_operands():
    values = [1 + 2.0**-12, -(1 + 2.0**-23), 1 + 2.0**-11, 3 * 2.0**-149, math.inf, -math.inf, math.nan, -0.0]
    doubles = np.array([values + [np.nan] * 8])
    fill_low_halves(doubles, 0, 8, 8)
    # What the twelve lower bits are worth; a small subnormal is all low half; Inf and NaN have none.
    assert doubles[0, 8:].tolist() == [2.0**-12, -(2.0**-23), 0, 3 * 2.0**-149, 0, 0, 0, 0]
    singles = np.empty((1, 8), np.float32)
    fill_magnitudes(doubles, 0, 8, singles, 0)
    assert np.array_equal(singles[0], np.abs(np.array(values, np.float32)), equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_next_cache_line_is_at_most_one_away(dtype):
    array = np.empty((1, 100), dtype)
    for offset in range(20):
        found = aligned(array, offset)
        assert 0 <= (found - offset) * array.itemsize < 64
        assert (array.ctypes.data + found * array.itemsize) % 64 == 0
