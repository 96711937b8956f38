"""Is grad_weight by Winograd defined as it should be: the right sums, the right roundings, how far off?"""

from fractions import Fraction

import numpy as np
import pytest

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.winograd import big_line, in_plane, small_line, taps_line
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import Clusters
from ascendsim.ops.reference.ordered import ordered_wgrad, reduction_of
from ascendsim.ops.reference.winograd import winograd_wgrad
from ascendsim.ops.schedules.base import WgradOrder, WinogradBlock
from tests.helpers.conv_cases import assert_same_bits, tensors_of
from tests.helpers.winograd_cases import PROBLEMS, order_of

SEQ, BLOCK = AccumulationModel.parse("seq:RNE"), AccumulationModel.parse("block:16:RNE")
U = Fraction(1, 2**24)


def by_definition(problem, tensors, order=None, model=BLOCK):
    reduce = reduction_of(model, problem.macs)
    sides = tensors["grad_output"], tensors["input"]
    return winograd_wgrad(problem, *sides, order or order_of(problem), reduce)


# --- the identity


def test_four_products_make_three_taps_of_two_pixels():
    # By hand: s1 + s2 = 2 (d0 x2 + d1 x1), s1 - s2 = 2 (d0 x1 + d1 x2), and so on; fractions are exact.
    rng = np.random.default_rng(0)
    d, x = ([Fraction(int(v), 7) for v in rng.integers(-99, 99, size)] for size in (2, 4))
    products = [a * b for a, b in zip(small_line(*d), big_line(*x), strict=True)]
    assert taps_line(*products) == tuple(d[0] * x[tap] + d[1] * x[tap + 1] for tap in range(3))


def test_sixteen_make_nine_taps_of_a_plane():
    rng = np.random.default_rng(1)
    d, x = ([[Fraction(int(v)) for v in row] for row in rng.integers(-99, 99, (n, n))] for n in (2, 4))
    points = zip(in_plane(small_line, d), in_plane(big_line, x), strict=True)
    products = [[a * b for a, b in zip(*rows, strict=True)] for rows in points]
    made = in_plane(taps_line, products)
    for a, b in np.ndindex(3, 3):
        assert made[a][b] == sum(d[i][j] * x[i + a][j + b] for i in range(2) for j in range(2))


def test_a_tile_goes_down_its_columns_first():
    # Point (1, 1) of two by two pixels is the sum of all. Down the columns first: (2^24 + 0) + (1 + 1). Along
    # the rows first it would be (2^24 + 1) + (0 + 1), where both sums with 2^24 are ties and go to 2^24.
    tile = np.array([[2**24, 1], [0, 1]], np.float32)
    assert in_plane(small_line, tile)[1][1] == 2**24 + 2
    assert in_plane(small_line, tile.T)[1][1] == 2**24


# --- clusters


@pytest.mark.parametrize(
    ("size", "shape", "count"),
    [
        ((16, 16), (4, 8, 2, 1), 2),  # 8 x 8 tiles: 2 x 1 of 4 x 8, and 4 x 1 of 2 x 16
        ((4, 32), (2, 16, 1, 1), 1),  # 2 x 16 tiles: 1 x 2 of 4 x 8, and one of 2 x 16
        ((7, 7), (4, 8, 1, 1), 1),  # 4 x 4 tiles: one of 4 x 8
        ((1, 33), (2, 16, 1, 2), 2),  # 1 x 17 tiles: 1 x 3 of 4 x 8, and 1 x 2 of 2 x 16
    ],
    ids=str,
)
def test_of_two_shapes_of_a_cluster_that_is_taken_which_needs_fewer(size, shape, count):
    found = Clusters.of(3, size)
    assert (found.rows, found.columns, found.down, found.across) == shape
    assert found.of_image == count
    assert len(found) == 3 * count


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_pixel_of_the_small_side_lies_in_one_tile(name):
    problem = PROBLEMS[name]
    clusters, (height, width) = order_of(problem).clusters, problem.small_size[1:]
    met = np.zeros((problem.batch, height + 32, width + 32), int)
    for number in range(len(clusters)):
        cluster = clusters.at(number)
        for row, column in clusters.tiles(cluster):
            met[cluster.image, row : row + 2, column : column + 2] += 1
    assert (met[:, :height, :width] == 1).all()


def test_parts_take_all_clusters_in_order():
    clusters = Clusters.of(3, (14, 14))  # 7 x 7 tiles: 2 clusters an image, 6 in all
    assert [list(clusters.part(part, 2)) for part in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert [list(clusters.part(part, 4)) for part in range(4)] == [[0, 1], [2, 3], [4, 5], []]
    assert clusters.at(3) == (1, 1, 0)


# --- the definition


@pytest.mark.parametrize("name", PROBLEMS)
def test_sums_of_integers_are_those_of_the_direct_sum(name):
    # Integers this small are exact in any sum, halves of them too, so that only the identity is left.
    problem = PROBLEMS[name]
    tensors = tensors_of(problem, "float32", "integers")
    pixels = problem.small_size[1] * problem.small_size[2]
    direct = WgradOrder(((0, pixels),), 16)
    reduce = reduction_of(BLOCK, problem.macs)
    want = ordered_wgrad(problem, tensors["grad_output"], tensors["input"], direct, reduce)
    assert_same_bits(by_definition(problem, tensors) + 0, want + 0)


def rounded(exact):
    """Round a fraction to float32, nearest even, within its normal range."""
    if not exact:
        return Fraction(0)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (exponent - 23)
    return round(exact / unit) * unit  # Python rounds a fraction to even


class Rounded:
    """A float32 number as a fraction whose every sum is rounded by hand."""

    def __init__(self, value):
        self.value = Fraction(value)

    def __add__(self, other):
        return Rounded(rounded(self.value + other.value))

    def __sub__(self, other):
        return Rounded(rounded(self.value - other.value))

    def __neg__(self):
        return Rounded(-self.value)

    def __truediv__(self, number):
        return Rounded(rounded(self.value / number))


def tile_of(image, row, column, size):
    height, width = image.shape
    places = [[(row + i, column + j) for j in range(size)] for i in range(size)]
    return [
        [Rounded(float(image[y, x]) if 0 <= y < height and 0 <= x < width else 0) for y, x in line]
        for line in places
    ]


def in_fractions(problem, small, big, clusters):
    """Return one element's taps: clusters one after the other, 16 products to a rounding."""
    sums = [[Fraction(0)] * 4 for _ in range(4)]
    pads = problem.pads[1][0], problem.pads[2][0]
    for number in clusters:
        cluster = order_of(problem).clusters.at(number)
        pairs = []
        for row, column in order_of(problem).clusters.tiles(cluster):
            left = in_plane(small_line, tile_of(small[cluster.image], row, column, 2))
            at = row - pads[0], column - pads[1]
            pairs.append((left, in_plane(big_line, tile_of(big[cluster.image], *at, 4))))
        for i, j in np.ndindex(4, 4):
            for first in (0, 16):
                exact = sum(a[i][j].value * b[i][j].value for a, b in pairs[first : first + 16])
                sums[i][j] = rounded(sums[i][j] + exact)
    return in_plane(taps_line, [[Rounded(value) for value in row] for row in sums])


def test_every_sum_is_rounded_as_fractions_say():
    problem = ConvProblem((2, 2, 9, 7), (1, 2, 3, 3), 1, 1)
    tensors = tensors_of(problem, "float32", "wide")
    made = by_definition(problem, tensors)
    clusters = order_of(problem).clusters
    assert len(clusters) == 4  # 5 x 4 tiles an image: two clusters of 4 x 8, of which 20 tiles are real
    for channel in range(2):
        sides = tensors["grad_output"][:, 0], tensors["input"][:, channel]
        want = in_fractions(problem, *sides, range(len(clusters)))
        got = [[Fraction(float(v)) for v in row] for row in made[0, channel]]
        assert got == [[one.value for one in row] for row in want]


def test_parts_are_brought_to_taps_and_then_added():
    problem = ConvProblem((3, 2, 9, 7), (1, 2, 3, 3), 1, 1)
    tensors = tensors_of(problem, "float32", "wide")
    cut = order_of(problem, 3, (WinogradBlock(0, 1, 1, 1),))
    made = by_definition(problem, tensors, cut)
    # Channel 0 is not in the block. Of channel 1: two of six clusters each.
    assert_same_bits(made[:, :1], by_definition(problem, tensors)[:, :1])
    sides = tensors["grad_output"][:, 0], tensors["input"][:, 1]
    parts = [in_fractions(problem, *sides, run) for run in ([0, 1], [2, 3], [4, 5])]
    for i, j in np.ndindex(3, 3):
        want = parts[0][i][j] + parts[1][i][j] + parts[2][i][j]
        assert Fraction(float(made[0, 1, i, j])) == want.value


# --- how far off


def error_and_bound(problem, tensors, model, roundings):
    """Return the largest |error| / bound of an element, both exact.

    With u = 2^-24 every rounding is a factor of at most 1 + u. A term of a tap goes through two of them on
    each side (columns, rows), `roundings` in its reduction and four on the way to taps: two of each line. So
    it is off by at most (1 + u)^(8 + roundings) - 1 times the sum of all magnitudes along its way, which is
    what the lines make of magnitudes with every minus a plus.
    """
    made = by_definition(problem, tensors, model=model)
    clusters, pads = order_of(problem).clusters, (problem.pads[1][0], problem.pads[2][0])
    worst = Fraction(0)
    for a, b in np.ndindex(problem.small_channels, problem.big_channels):
        small, big = tensors["grad_output"][:, a], tensors["input"][:, b]
        exact = [[Fraction(0)] * 3 for _ in range(3)]
        sizes = [[Fraction(0)] * 4 for _ in range(4)]
        for number in range(len(clusters)):
            cluster = clusters.at(number)
            for row, column in clusters.tiles(cluster):
                d = tile_of(small[cluster.image], row, column, 2)
                x = tile_of(big[cluster.image], row - pads[0], column - pads[1], 4)
                d, x = ([[one.value for one in line] for line in tile] for tile in (d, x))
                for i, j in np.ndindex(3, 3):
                    exact[i][j] += sum(d[k][m] * x[i + k][j + m] for k in range(2) for m in range(2))
                ways = in_plane(plus_small, magnitudes(d)), in_plane(plus_big, magnitudes(x))
                for i, j in np.ndindex(4, 4):
                    sizes[i][j] += ways[0][i][j] * ways[1][i][j]
        scale = in_plane(plus_taps, sizes)
        for i, j in np.ndindex(3, 3):
            bound = ((1 + U) ** (8 + roundings) - 1) * scale[i][j]
            worst = max(worst, abs(Fraction(float(made[a, b, i, j])) - exact[i][j]) / bound)
    return worst


def magnitudes(tile):
    return [[abs(one) for one in row] for row in tile]


def plus_small(s0, s1):
    return s0, s0 + s1, s0 + s1, s1


def plus_big(s0, s1, s2, s3):
    return s0 + s2, s1 + s2, s2 + s1, s1 + s3


def plus_taps(s0, s1, s2, s3):
    half = (s1 + s2) / 2
    return s0 + half, half, half + s3


@pytest.mark.parametrize("data", ["normal", "wide"])
@pytest.mark.parametrize(("model", "each"), [(SEQ, 32), (BLOCK, 2)], ids=["seq", "block"])
def test_the_error_keeps_to_its_bound(model, each, data):
    problem = ConvProblem((2, 1, 9, 7), (1, 1, 3, 3), 1, 1)
    tensors = tensors_of(problem, "float32", data)
    # A cluster adds 32 products one by one, or 16 to a rounding.
    worst = error_and_bound(problem, tensors, model, each * len(order_of(problem).clusters))
    assert 0 < worst <= 1


def test_a_value_that_is_not_finite_spoils_taps_that_do_not_read_it():
    # Directly, only tap (2, 0) reads the last row's first pixel. In its own tile that is in points (3, 0)
    # alone, of which tap (2, 0) is made; but the tile below, all beyond grad_output, has it in its second
    # row, so in points (1, 0), (2, 0) and (3, 0), and multiplies it by zero: NaN in all taps of column 0.
    problem = ConvProblem((1, 1, 4, 4), (1, 1, 3, 3))
    tensors = {"grad_output": np.ones((1, 1, 2, 2), np.float32), "input": np.ones((1, 1, 4, 4), np.float32)}
    tensors["input"][0, 0, 3, 0] = np.inf
    with np.errstate(invalid="ignore"):
        made = by_definition(problem, tensors)[0, 0]
    assert np.isnan(made[:, 0]).all()
    assert (made[:, 1:] == 4).all()
