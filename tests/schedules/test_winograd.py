"""When is grad_weight computed by Winograd, by which plan, and is it defined as it should be?"""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ascendsim import estimate, load_profile
from ascendsim.aclnn.interface import asked_by_operator
from ascendsim.errors import ConfigError
from ascendsim.instructions.winograd import big_line, in_plane, small_line, taps_line
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.orders import Clusters, WgradOrder, WinogradBlock
from ascendsim.ops.reference.call import winograd_wgrad
from ascendsim.ops.reference.ordered import ordered_wgrad, reduction_of
from ascendsim.ops.tiling.vendor.arch35.wgrad import takes_winograd
from ascendsim.ops.tiling.vendor.layer import LayerSizes, Layouts
from ascendsim.ops.tiling.vendor.operators import plan_of_layer
from ascendsim.workloads import load_workload, workload_names
from tests.helpers.conv_cases import PROBLEMS, assert_same_bits, call_of, order_of, tensors_of
from tests.helpers.outside_records import layer_of, machine_of, records
from tests.helpers.slow_tilings import chosen_plan, operators_plan

# -------------------------------------------------------------------------------------------------------
# Is grad_weight by Winograd defined as it should be: the right sums, the right roundings, how far off?
# -------------------------------------------------------------------------------------------------------

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


# --- When does the operator of 910_95 compute grad_weight by Winograd, and by which plan? --------------

PR = load_profile("950PR_9589")
WIDE = ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 1, 1)


def taken(problem, dtype="float32", *, hf32=False, **options):
    return takes_winograd(LayerSizes.of(problem, "hf32" if hf32 else dtype, **options))


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (WIDE, True),  # 256 / 64 = 4 blocks of channels on both sides, 4 * 4 = 16 together: just enough
        (ConvProblem((1, 255, 16, 16), (256, 255, 3, 3), 1, 1), False),  # 3 * 4 blocks
        (ConvProblem((1, 1024, 16, 16), (64, 1024, 3, 3), 1, 1), True),  # 1 * 16
        (replace(WIDE, stride=2), False),
        (replace(WIDE, dilation=2, padding=2), False),
        (ConvProblem((1, 256, 16, 16), (256, 256, 1, 1)), False),
        (replace(WIDE, padding=(1, 2, 1, 1)), False),
        (replace(WIDE, padding=(2, 3)), True),  # unequal along two axes, equal on both ends of each
        (replace(WIDE, input=(1, 256, 80, 80), padding=8), True),
        (replace(WIDE, input=(1, 256, 80, 80), padding=9), False),
        (ConvProblem((1, 512, 16, 16), (512, 256, 3, 3), 1, 1, groups=2), False),
        (ConvProblem((1, 256, 2, 16, 16), (256, 256, 1, 3, 3), 1, (0, 1, 1)), False),
        (ConvProblem((1, 256, 1, 16, 16), (256, 256, 1, 3, 3), 1, (0, 1, 1)), True),
        (ConvProblem((1, 256, 1, 16, 16), (256, 256, 3, 3, 3), 1, 1), False),
        (replace(WIDE, transposed=True), True),
        (replace(WIDE, input=(1, 256, 7, 7)), True),  # of 4 x 4 tiles 3 x 3 are not all padding
        (replace(WIDE, input=(1, 256, 6, 7)), True),  # 2 x 3 of 3 x 4
        (replace(WIDE, input=(1, 256, 6, 6)), False),  # 2 x 2 of 3 x 3
        (replace(WIDE, input=(1, 256, 3, 31)), False),  # 1 x 15 of 2 x 16
    ],
    ids=str,
)
def test_each_condition_on_the_shapes_counts(problem, expected):
    assert taken(problem) == expected


def test_so_does_each_condition_on_formats_and_layouts():
    assert not taken(WIDE, hf32=True)
    assert not taken(WIDE, "float16")
    assert not taken(WIDE, layouts=Layouts("NDHWC", "NCDHW", "NDHWC"))


def test_a_large_batch_of_tiles_is_left_to_the_direct_sum():
    # 512,000 tiles of 2 x 2 are the most: 8000 images of 8 x 8 tiles, the last ones half full.
    at_most = replace(WIDE, input=(8000, 256, 15, 15))
    assert taken(at_most)
    assert not taken(replace(at_most, input=(8001, 256, 15, 15)))


def test_blocks_are_dealt_in_turn_and_those_of_the_last_round_are_cut():
    # 4 x 4 blocks on 32 cores, so 2 parts of each; 8 x 8 tiles are 2 clusters, one for each part.
    found = operators_plan(WIDE, "grad_weight", "float32", PR)
    assert (found.strategy, found.base_m, found.base_n, found.base_k) == ("winograd", 64, 64, 32)
    assert (found.tasks, found.used_cores, found.mapping) == (16, 32, "interleaved")
    assert (found.stream_ways, found.stream_axis) == (2, "clusters")
    # 4 x 6 blocks are more than half of the cores, 8 x 8 fill two rounds, 4 x 10 leave 8: 4 parts each.
    for channels, ways in ((384, 1), (512, 1), (640, 4)):
        wider = ConvProblem((32, channels, 16, 16), (256 if channels != 512 else 512, channels, 3, 3), 1, 1)
        assert operators_plan(wider, "grad_weight", "float32", PR).stream_ways == ways


def test_no_more_parts_than_clusters():
    # 7 x 7 pixels are one cluster an image; 16 blocks would have two parts, and there is one image.
    small = replace(WIDE, input=(1, 256, 7, 7))
    assert operators_plan(small, "grad_weight", "float32", PR).stream_ways == 1
    assert operators_plan(replace(small, input=(2, 256, 7, 7)), "grad_weight", "float32", PR).stream_ways == 2


@pytest.mark.parametrize(("buffer", "size"), [("L0C", 131072), ("L1", 131072)])
def test_a_machine_that_does_not_hold_its_blocks_takes_the_direct_sum(buffer, size):
    small = load_profile("950PR_9589", {f"buffers.{buffer}.capacity_bytes": size})
    assert operators_plan(WIDE, "grad_weight", "float32", small).strategy == "stream_k"


def test_a_machine_with_half_of_l1_has_one_copy_of_each_operand():
    # 16 points x 32 tiles x 64 channels of 4 bytes are 128 KiB.
    half = load_profile("950PR_9589", {"buffers.L1.capacity_bytes": 262144})
    found = operators_plan(WIDE, "grad_weight", "float32", half)
    assert (found.al1_buffers, found.bl1_buffers) == (1, 1)
    options = {"product": half, "output_mask": (False, True, False)}
    assert estimate(WIDE, "float32", **options).cycles > 0


def test_a_call_takes_it_by_default_and_says_so():
    only = (False, True, False)
    r = estimate(WIDE, "float32", product="950PR_9589", output_mask=only)
    plan = r.plans["grad_weight"]
    assert (plan.schedule, plan.chosen_by, plan.instead) == ("wgrad_winograd", "product", "")
    [note] = [kernel.kernel.note for kernel in r.kernels if kernel.name == "grad_weight"]
    assert note.startswith("grad_weight is made by Winograd, F(2x2, 3x3)")
    assert not any("not modelled" in said for said in (*r.notes, note))
    # 16 products a tile of 2 x 2 pixels, of all pairs of channels; the direct sum has 36.
    [macs] = [kernel.macs for kernel in r.kernels if kernel.name == "grad_weight"]
    assert macs * 36 == WIDE.macs * 16
    hf32 = estimate(WIDE, "float32", 3, product="950PR_9589", output_mask=only)
    assert hf32.plans["grad_weight"].schedule == "wgrad_stream"


def test_the_workspace_that_the_operator_asks_for_holds_what_its_kernel_keeps():
    call = call_of(WIDE, "float32", profile=PR)
    [kernel] = lower(call, (False, True, False)).kernels
    asked = asked_by_operator(call, "grad_weight", kernel.op_type)
    # Each of two clusters has 16 points x 32 tiles x 256 channels. Both sides are re-laid. A place of
    # 64 x 64 x 9 for each of 32 cores.
    points, sides, parts = 2 * 16 * 32 * 256 * 4, 2 * 256 * 256 * 4, 32 * 64 * 64 * 9 * 4
    assert asked == points + sides + parts
    own = {name: tensor.size_bytes for name, tensor in kernel.tensors.items() if tensor.role == "workspace"}
    # The places of the parts are as large as all of grad_weight here, where 16 blocks have 2 parts each.
    assert sorted(own.values()) == sorted([points, sides // 2, sides // 2, 2 * 256 * 256 * 9 * 4])
    assert sum(own.values()) == asked


def test_the_recorded_plan_is_one_by_winograd(data_dir):
    everything = json.loads((data_dir / "tilings.json").read_text())["records"]
    found = [record for record in everything if (record.get("tiling_key_fields") or {}).get("winograd")]
    assert [record["case"] for record in found] == ["conv3d_bp_filter_wino_fp32_3x3"]
    layer, machine = layer_of(found[0]), machine_of(found[0])
    assert takes_winograd(layer)
    plan = plan_of_layer(layer, machine, "grad_weight", "float32", "3510")
    # Its base sizes do not fit in L0, as its own validation says; cores and copies in L0 are what is left.
    expected = found[0]["expected"]
    assert found[0]["validation"] == ["L0A", "L0B"]
    assert (plan.used_cores, plan.cl0_buffers) == (expected["usedCoreNum"], expected["cl0Pbuffer"])
    assert (plan.al0_buffers, plan.bl0_buffers) == (expected["al0Pbuffer"], expected["bl0Pbuffer"])
    # The record has 8 of 16 rows a part, which is one of two clusters.
    assert plan.stream_ways == expected["ho"] // expected["singleCoreHo"]
    # No other record of this operator is one, and none of them is taken for one.
    others = records(data_dir, "dW", "arch35")
    assert len(others) > 10
    assert not any(takes_winograd(layer_of(record)) for record in others)


@pytest.mark.parametrize(
    ("given", "schedule", "sizes"),
    [
        ({"base_m": 32}, "wgrad_winograd", (32, 64, 32)),
        ({"al1_buffers": 1}, "wgrad_winograd", (64, 64, 32)),
        # 128 channels at 16 points leave room for 32 in L0C: 128 * 32 * 16 * 4 bytes are 256 KiB.
        ({"base_m": 128}, "wgrad_winograd", (128, 32, 32)),
        # A Mmad of 16 tiles is none that Winograd has: the operator's plan of the direct sum takes its place.
        ({"base_k": 16}, "wgrad_stream", (256, 144, 16)),
        ({"cl0_buffers": 2}, "wgrad_stream", (128, 144, 32)),
    ],
    ids=str,
)
def test_a_part_of_a_plan_is_filled_in_by_the_nest_that_knows_it(given, schedule, sizes):
    options = {"product": "950PR_9589", "output_mask": (False, True, False)}
    r = estimate(WIDE, "float32", tiling={"grad_weight": given}, **options)
    found = r.plans["grad_weight"]
    assert found.schedule == schedule
    assert (found.tiling.base_m, found.tiling.base_n, found.tiling.base_k) == sizes


@pytest.mark.parametrize("name", ["wgrad", "wgrad_stream"])
def test_another_nest_takes_no_sizes_of_winograd(name):
    options = {"product": "950PR_9589", "output_mask": (False, True, False)}
    found = estimate(WIDE, "float32", schedule=name, **options).plans["grad_weight"]
    direct = operators_plan(WIDE, "grad_weight", "float32", PR, by_winograd=False)
    assert direct.strategy == "stream_k"
    assert found.schedule == name
    # Columns are (channel, tap) there, and no channels at 16 points.
    winograd = estimate(WIDE, "float32", **options).plans["grad_weight"].tiling
    assert (found.tiling.base_m, found.tiling.base_n) != (winograd.base_m, winograd.base_n)


def test_winograd_takes_no_sizes_of_another_nest():
    # 64 channels are one block: the operator takes the direct sum, with other base sizes.
    layer = ConvProblem((8, 64, 28, 28), (64, 64, 3, 3), 1, 1)
    options = {"product": "950PR_9589", "output_mask": (False, True, False)}
    assert estimate(layer, "float32", **options).plans["grad_weight"].schedule == "wgrad_stream"
    found = estimate(layer, "float32", schedule="wgrad_winograd", **options).plans["grad_weight"]
    assert (found.tiling.base_k, found.tiling.step_ka, found.tiling.cl0_buffers) == (32, 1, 1)
    given = {"grad_weight": {"base_k": 16}}
    with pytest.raises(ConfigError, match="base_k is 16; by Winograd it is 32"):
        estimate(layer, "float32", schedule="wgrad_winograd", tiling=given, **options)


def test_every_float32_grad_weight_of_the_networks_runs_under_the_operators_plan():
    plans = [
        chosen_plan(ConvProblem(**layer.problem_options(batch)), "grad_weight", "float32", PR)
        for name in workload_names()
        for layer in load_workload(name).convolutions
        for batch in (1, 32)
    ]
    assert not [plan.instead for plan in plans if plan.instead]
    schedules = [plan.schedule for plan in plans]
    # The figures of docs/plans.md.
    assert (schedules.count("wgrad_winograd"), len(schedules)) == (16, 228)
