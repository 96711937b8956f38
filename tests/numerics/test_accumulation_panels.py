"""Do panels compute what numpy computes, element by element, and comparisons say no to NaN?"""

import math
import operator

import numba
import numpy as np
import pytest

from ascendsim.numerics.compiled import panels
from ascendsim.numerics.compiled.panel_rounding import columns, rows, scalar_bits, scalar_float, store, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS

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
