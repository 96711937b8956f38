"""Do operands and accumulators lie where the kernels look for them, inside the memory they are given?"""

import math

import numpy as np
import pytest

from ascendsim.numerics.compiled.extents import extent, measure_side_by_side
from ascendsim.numerics.compiled.packing import (
    aligned,
    fill_low_halves,
    fill_magnitudes,
    give_back,
    pack,
    packed_size,
    singles_for,
    whole_panels,
)
from ascendsim.numerics.compiled.panel_rounding import RNE, Rounding
from ascendsim.numerics.compiled.panels import LANES, ROWS
from ascendsim.numerics.compiled.workspace import KernelModel, memory_for, prepare

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


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("block", [1, 2, 1 << 30])
def test_a_workspace_fits_into_its_memory(m, k, n, block):
    # Nothing checks an offset: with blocks of one product and low halves, this is the most a kernel may use.
    a, b = operands(m, k, n)
    memory = memory_for(a, b, 7)
    memory.doubles[:] = memory.singles[:] = np.nan
    how = Rounding(RNE, False, 0.0)
    work = prepare(a, b, memory, KernelModel(block, how, False, how, True))
    packed = work.a_low - work.a
    assert work.b_extents + 2 * groups(n, LANES) * work.blocks <= memory.doubles.size
    assert work.a_single + packed <= memory.spare
    padded = groups(m, ROWS) * ROWS * groups(n, LANES) * LANES
    assert memory.spare + padded + 7 <= memory.singles.size
    # Parts in their order, each with room for what it holds.
    starts = [work.result, work.start, work.flags, work.limbs, work.a, work.b, work.a_low, work.b_low]
    starts += [work.a_extents, work.b_extents]
    assert starts == sorted(starts)
    assert work.b_extents - work.a_extents == 2 * groups(m, ROWS) * work.blocks
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
