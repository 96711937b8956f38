"""Is a matrix product the ordered sum to the bit, whatever the plan?"""

from dataclasses import replace
from itertools import product as product_of
from math import ceil

import ml_dtypes
import numpy as np
import pytest

from ascendsim import MatmulProblem, MatmulTiling, Tiling, estimate_matmul
from ascendsim import matmul as matmul_of
from ascendsim.errors import AscendSimError, CapacityError, ConfigError, ShapeError, UnsupportedError
from ascendsim.instructions.cube import Submatrix
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.casts import decode, encode, hf32, round_to
from tests.helpers.toy_machines import toy_split

# Format of the operands, product, cubeMathType (3: HF32) and the accumulation that the cube must show.
COMPUTE = [
    ("float16", "910B", 0, "block:16:RNE"),
    ("bfloat16", "910B", 0, "block:16:RNE"),
    ("float32", "910B", 0, "block:4:RNE"),
    ("float32", "910B", 3, "block:8:RNE"),
    ("float32", "910_95", 0, "seq:RNE"),
    ("float32", "910_95", 3, "block:8:RNE"),
    ("hifloat8", "910_95", 0, "block:32:RNE"),
    ("float8_e4m3fn", "910_95", 0, "block:32:RNE"),
    ("float8_e5m2", "910_95", 0, "block:32:RNE"),
]
EVERY_COMPUTE = pytest.mark.parametrize(("fmt", "product", "math", "model"), COMPUTE)
TURNS = pytest.mark.parametrize(("turn_a", "turn_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
ONE_COPY = {f"{buffer}_buffers": 1 for buffer in ("al1", "bl1", "al0", "bl0", "cl0")}
# Tails for m, n and k of (35, 91, 41) under every one of them; k0 divides 32 in every format.
PLANS = [
    Tiling(16, 16, 32),
    Tiling(16, 16, 32, **ONE_COPY),
    Tiling(16, 32, 32, 2, 1, used_cores=3),
    Tiling(32, 16, 32, 1, 3, single_core_m=64, single_core_n=32, used_cores=2, panels="columns"),
    Tiling(16, 16, 32, 3, 3, single_core_m=48, single_core_n=48, cl0_buffers=2, bl1_buffers=1),
    Tiling(24, 20, 96, swizzle=2, used_cores=4, al0_buffers=1),
    Tiling(16, 16, 96, single_core_m=32, single_core_n=48, reuse_l1=False),
]
# Products with a unit flag, with one accumulator and with two.
FLAGGED = [
    Tiling(16, 32, 32, unit_flag=True),
    Tiling(16, 32, 32, cl0_buffers=2, used_cores=3, unit_flag=True),
]
SIZES = (35, 91, 41)
WIDTHS = {("910B", 3): 11, ("910_95", 3): 10}


def operands(fmt, m, k, n, batch=None, seed=0):
    """Make stored operands whose products differ by up to 2^16, so that the order of the sum shows."""
    random = np.random.default_rng(seed)
    front = () if batch is None else (batch,)
    made = []
    for shape in ((m, k), (k, n)):
        scale = 2.0 ** random.integers(-4, 5, front + shape)
        made.append(stored((random.standard_normal(front + shape) * scale).astype(np.float32), fmt))
    return made


def stored(values, fmt):
    return encode(round_to(values, fmt), fmt)


def turned(array, turn):
    """Lay a matrix down the other way round."""
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if turn else array


def bits(result):
    values = getattr(result.output, "codes", result.output)
    return values.shape, values.tobytes()


def plan_of(result):
    return result.kernels[-1].kernel.facts["plan"].tiling


def multiplied(array, fmt, product, math):
    """Return what the cube multiplies, in float32: HF32 of a matrix product rounds ties away."""
    values = decode(array, fmt)
    width = WIDTHS.get((product, math))
    return hf32(values, width, "RNA") if width else values


def ordered_sum(a, b, model, base_k):
    """Return the accumulators by definition: one cube product after another for slices of base_k."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(0, a.shape[1], base_k):
        c = accumulate_twin(model, a[:, first : first + base_k], b[first : first + base_k], c)
    return c


def expected(a, b, compute, result):
    fmt, product, math = compute
    left, right = (multiplied(array, fmt, product, math) for array in (a, b))
    return ordered_sum(left, right, AccumulationModel.parse(result.accumulation), plan_of(result).base_k)


# --- bits


@EVERY_COMPUTE
def test_the_result_is_the_ordered_sum_to_the_bit(fmt, product, math, model):
    a, b = operands(fmt, 18, 75, 19)
    plan = Tiling(16, 16, 32, used_cores=2)
    # A seed has the instructions executed; else the whole product is made at once.
    for tiling, order in product_of((None, plan), ("program", 1)):
        options = {"cube_math_type": math, "out_dtype": "float32", "tiling": tiling, "order": order}
        result = matmul_of(a, b, product=product, **options)
        want = expected(a, b, (fmt, product, math), result)
        assert result.accumulation.startswith(model)
        np.testing.assert_array_equal(result.output.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("model", ["exact-mmad:RNE", "align:32:F24:RZ", "seq:RNE"])
@pytest.mark.parametrize("base_k", [16, 48])
def test_each_slice_of_the_plan_is_one_cube_product(model, base_k):
    a, b = operands("float16", 5, 91, 6)
    options = {"accumulation": model, "out_dtype": "float32", "tiling": Tiling(16, 16, base_k, 2, 1)}
    result = matmul_of(a, b, **options)
    np.testing.assert_array_equal(result.output, expected(a, b, ("float16", "910B", 0), result))
    assert bits(matmul_of(a, b, order=1, **options)) == bits(result)


@EVERY_COMPUTE
@pytest.mark.parametrize("batch", [None, 2])
def test_without_timing_there_are_the_bits_of_the_instructions(fmt, product, math, model, batch):
    a, b = operands(fmt, 18, 75, 19, batch=batch)
    options = {"cube_math_type": math, "product": product, "accumulation": model}
    assert bits(matmul_of(a, b, **options, timing=False)) == bits(matmul_of(a, b, **options, order=1))


def test_without_timing_there_are_the_same_bits_and_no_cycles():
    a, b = operands("float32", 18, 75, 19, batch=2)
    untimed = matmul_of(a, b, cube_math_type=2, timing=False)
    assert bits(untimed) == bits(matmul_of(a, b, cube_math_type=2))
    assert untimed.overflowed == ()
    assert matmul_of(a * 1e5, b, cube_math_type=2, product="910", timing=False).overflowed == ("cast_a",)
    with pytest.raises(ConfigError, match=r"cycles is not known.*timing=False"):
        _ = untimed.cycles


def test_these_operands_tell_orders_and_slices_apart():
    a, b = operands("float16", 5, 91, 6)
    left, right = decode(a, "float16"), decode(b, "float16")
    block, exact = AccumulationModel.parse("block:16:RNE"), AccumulationModel.parse("exact-mmad:RNE")
    forwards = ordered_sum(left, right, block, 96)
    backwards = ordered_sum(left[:, ::-1], right[::-1], block, 96)
    assert (forwards != backwards).any()
    assert (ordered_sum(left, right, exact, 16) != ordered_sum(left, right, exact, 48)).any()


@pytest.mark.parametrize(
    ("fmt", "product", "kind"),
    [
        ("float16", "910B", np.float16),
        ("bfloat16", "910B", ml_dtypes.bfloat16),
        ("bfloat16", "910_95", ml_dtypes.bfloat16),
        ("float8_e5m2", "910_95", ml_dtypes.float8_e5m2),
    ],
)
def test_the_result_is_rounded_once_to_nearest_even(fmt, product, kind):
    a, b = operands(fmt, 18, 40, 19)
    wide = matmul_of(a, b, product=product, out_dtype="float32").output
    narrow = matmul_of(a, b, product=product)
    assert narrow.output.dtype == kind
    assert bits(narrow)[1] == wide.astype(kind).tobytes()


@pytest.mark.parametrize("product", ["910", "910B", "910_95"])
def test_every_way_out_of_the_cube_gives_the_sum(product):
    # 910 has no path from L0C to GM: results leave through UB.
    a, b = operands("float16", 35, 48, 41)
    result = matmul_of(a, b, product=product, accumulation="block:16:RNE")
    want = expected(a, b, ("float16", product, 0), result)
    assert bits(result)[1] == want.astype(np.float16).tobytes()


def test_float32_with_cube_math_type_2_is_the_product_of_the_halves():
    a, b = operands("float32", 18, 40, 19)
    result = matmul_of(a, b, cube_math_type=2)
    halves = matmul_of(a.astype(np.float16), b.astype(np.float16), out_dtype="float32")
    assert bits(result) == bits(halves)
    assert len(result.kernels) == 3
    assert len(halves.kernels) == 1


@pytest.mark.parametrize(("product", "width"), [("910B", 11), ("910_95", 10)])
def test_hf32_rounds_a_tie_of_an_operand_away_from_zero(product, width):
    # Halfway between 1 and its neighbour 1 + 2^-width; ties to even would give 1.
    a, b = np.float32([[-1 - 2.0 ** -(width + 1)]]), np.float32([[1]])
    assert matmul_of(a, b, product=product, cube_math_type=3).output == -1 - 2.0**-width


@EVERY_COMPUTE
def test_the_error_stays_below_the_sum_of_the_roundings(fmt, product, math, model):
    # Every block ends with one rounding of at most 2^-24 of the running sum, which is at most |a| |b|. The
    # products and the sums inside a block are exact; float64 and second order stay within one percent.
    a, b = operands(fmt, 33, 130, 17, seed=3)
    result = matmul_of(a, b, product=product, cube_math_type=math, out_dtype="float32")
    left, right = (multiplied(array, fmt, product, math).astype(np.float64) for array in (a, b))
    block = int(model.split(":")[1]) if model.startswith("block") else 1
    bound = 1.01 * ceil(130 / block) * 2.0**-24 * (abs(left) @ abs(right))
    assert (abs(result.output - left @ right) <= bound).all()


# --- layouts, batches, plans, orders


@TURNS
@pytest.mark.parametrize(
    ("fmt", "product"), [("float16", "910B"), ("float32", "910B"), ("bfloat16", "910_95")]
)
def test_a_matrix_that_lies_the_other_way_round_gives_the_same_bits(fmt, product, turn_a, turn_b):
    a, b = operands(fmt, *SIZES)
    plain = matmul_of(a, b, product=product)
    laid = matmul_of(
        turned(a, turn_a), turned(b, turn_b), transpose_a=turn_a, transpose_b=turn_b, product=product
    )
    assert bits(laid) == bits(plain)


def test_a_view_counts_as_the_matrix_it_shows():
    a, b = operands("float16", *SIZES)
    wide = np.zeros((35, 200), np.float16)
    wide[:, 10:192:2] = a
    assert bits(matmul_of(wide[:, 10:192:2], turned(b, 1).T)) == bits(matmul_of(a, b))


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (16, 16, 16), (17, 1, 15), (1, 33, 1), (15, 17, 16), (31, 64, 33)]
)
@pytest.mark.parametrize("fmt", ["float16", "float32"])
def test_tails_of_every_axis(sizes, fmt):
    a, b = operands(fmt, *sizes)
    result = matmul_of(a, b, out_dtype="float32", tiling=Tiling(16, 16, 16, used_cores=2))
    np.testing.assert_array_equal(result.output, expected(a, b, (fmt, "910B", 0), result))


@TURNS
def test_a_batch_is_its_products_one_by_one(turn_a, turn_b):
    a, b = operands("float16", 18, 40, 19, batch=3)
    flags = {"transpose_a": turn_a, "transpose_b": turn_b}
    whole = matmul_of(turned(a, turn_a), turned(b, turn_b), **flags, tiling=PLANS[4])
    for one in range(3):
        assert whole.output[one].tobytes() == matmul_of(a[one], b[one]).output.tobytes()


@TURNS
@pytest.mark.parametrize("plan", [*PLANS, *FLAGGED])
def test_no_plan_changes_the_bits(plan, turn_a, turn_b):
    # In the default model blocks of 16 tile every slice here, so all plans mean one order.
    a, b = operands("float16", *SIZES)
    flags = {"transpose_a": turn_a, "transpose_b": turn_b}
    result = matmul_of(turned(a, turn_a), turned(b, turn_b), **flags, tiling=plan)
    assert plan_of(result) == plan
    assert bits(result) == bits(matmul_of(a, b))


@pytest.mark.parametrize(
    ("product", "plan"),
    [
        *((product, plan) for product in ("910", "910B") for plan in PLANS),
        *((product, plan) for product in ("910B", "910_95") for plan in FLAGGED),
    ],
)
def test_every_legal_order_gives_the_bits_of_program_order(plan, product):
    a, b = operands("float16", *SIZES, batch=2)
    options = {"tiling": replace(plan, used_cores=2), "product": product}
    program = bits(matmul_of(a, b, **options))
    for order in ("arrival", *range(5)):
        assert bits(matmul_of(a, b, order=order, **options)) == program


def test_one_base_block_is_the_default_block_of_a_core():
    plan = Tiling(32, np.int64(48), 16)
    assert (plan.block_m, plan.block_n) == (32, 48)
    assert plan == Tiling(32, 48, 16)
    assert Tiling(32, 48, 16, single_core_m=64).block_m == 64


def test_the_former_tiling_still_makes_one_and_says_what_replaces_it():
    with pytest.warns(DeprecationWarning, match=r"use ascendsim\.Tiling, where keep_pieces is reuse_l1"):
        former = MatmulTiling(16, 32, 64, 2, 3, 32, 64, swizzle=2, keep_pieces=False)
    sizes = {"single_core_m": 32, "single_core_n": 64, "swizzle": 2}
    assert former == Tiling(16, 32, 64, 2, 3, **sizes, reuse_l1=False)


@pytest.mark.parametrize(("values", "fields"), [((16,) * 99, {}), ((16, 32), {"base_n": 48})])
def test_the_former_tiling_takes_each_field_once(values, fields):
    # The second 32 or 48: neither may be dropped in silence.
    twice = pytest.raises(TypeError, match="too many values, or some twice")
    with pytest.warns(DeprecationWarning, match="MatmulTiling goes"), twice:
        MatmulTiling(*values, **fields)


# --- a piece of a matrix on its way to L0


@pytest.mark.parametrize("transposed", [False, True])
def test_a_block_is_a_slice_of_the_matrix_or_its_transpose(transposed):
    matrix = np.arange(7 * 9, dtype=np.float32).reshape(7, 9)
    block = Submatrix(2, 3, 4, 5, transposed, 2)
    out = np.empty(block.matrix_shape(), np.float32)
    block.matrix(None, turned(matrix, transposed), out)
    np.testing.assert_array_equal(out, matrix[2:5, 4:9])


@pytest.mark.parametrize(
    ("buffer", "itemsize", "cycles"),
    [
        # 17 rows take 32, 20 columns of the reduction 40 bytes take 64: 2048 bytes at 256 per cycle.
        ("L0A", 2, 8),
        # 17 of the reduction 34 bytes take 64, 20 columns take 32: 2048 bytes at 128 per cycle.
        ("L0B", 2, 16),
        # 80 bytes take 96: 32 x 96 / 256.
        ("L0A", 4, 12),
        # 17 bytes take 32: 32 x 32 / 128.
        ("L0B", 1, 8),
    ],
)
def test_a_block_moves_whole_fractals(buffer, itemsize, cycles):
    assert Submatrix(3, 17, 5, 20, False, itemsize).cycles(toy_split(), buffer) == cycles


# --- refusals

HALF = np.ones((32, 32), np.float16)


@pytest.mark.parametrize(
    ("a", "b", "error", "words"),
    [
        (HALF, HALF[:16], ShapeError, r"a \(32, 32\) has inner size 32, but b \(16, 32\) has 16"),
        (HALF, HALF[0], ShapeError, r"b \(32,\); both must be matrices"),
        (HALF[None], np.stack([HALF, HALF]), ShapeError, "batches of equally many"),
        (HALF[:, :0], HALF[:0], ShapeError, "k is 0; it must be a positive integer"),
        (HALF, HALF.astype(np.float32), UnsupportedError, "a is float16 and b float32"),
        (HALF.astype(np.float64), HALF.astype(np.float64), UnsupportedError, "float64"),
        (HALF.astype(np.int16), HALF.astype(np.int16), UnsupportedError, "'int16' is not .* int8$"),
    ],
)
def test_operands_that_do_not_fit_are_refused_with_what_was_got(a, b, error, words):
    assert issubclass(error, AscendSimError)
    with pytest.raises(error, match=words):
        matmul_of(a, b)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("layout", "nd", r"layout is 'nd'; it must be one of "),
        ("layout", None, r"layout is None; it must be one of "),
        ("m", 0, "m is 0; it must be a positive integer"),
        ("batch", 1.5, "batch is 1.5; it must be a positive integer"),
        ("transpose_a", 2, "transpose_a is 2; it must be true or false"),
        ("shared_a", "no", "shared_a is 'no'; it must be true or false"),
    ],
)
def test_a_problem_that_is_none_names_its_field(field, value, words):
    with pytest.raises(ShapeError, match=f"matmul: {words}"):
        MatmulProblem(**{"m": 16, "k": 16, "n": 16, field: value})


def test_a_wrong_inner_size_names_the_flag_that_turned_it():
    with pytest.raises(ShapeError, match=r"inner size 32, but b .* has 16, transpose_b"):
        matmul_of(HALF, HALF[:, :16], transpose_b=True)


@pytest.mark.parametrize(
    ("fmt", "product", "words"),
    [
        ("hifloat8", "910B", "needs hifloat8 in the cube of 910B2, which multiplies float16, bfloat16"),
        ("float8_e4m3fn", "910B", "needs float8_e4m3fn in the cube of 910B2"),
        ("bfloat16", "910", "needs bfloat16 in the cube of 910A, which multiplies float16"),
        ("float32", "910", "needs float32 in the cube of 910A"),
    ],
)
def test_a_format_that_the_cube_does_not_multiply_is_refused(fmt, product, words):
    with pytest.raises(UnsupportedError, match=words):
        estimate_matmul(MatmulProblem(16, 16, 16), fmt, product=product)
    a, b = operands(fmt, 16, 16, 16)
    with pytest.raises(UnsupportedError, match=words):
        matmul_of(a, b, product=product)


@pytest.mark.parametrize("name", ["hf32", "hf32_11", "hf32_10"])
def test_the_name_of_hf32_leads_to_the_way_to_get_it(name):
    problem = MatmulProblem(16, 16, 16)
    with pytest.raises(
        UnsupportedError, match=f"no tensor is {name}, .*; pass float32 with cube_math_type=3"
    ):
        estimate_matmul(problem, name)
    assert estimate_matmul(problem, "float32", cube_math_type=3).compute_dtype == "hf32_11"


def test_every_format_that_a_refusal_lists_is_taken():
    with pytest.raises(UnsupportedError, match="which multiplies ") as refused:
        estimate_matmul(MatmulProblem(16, 16, 16), "hifloat8")
    listed = str(refused.value).partition("which multiplies ")[2].split(", ")
    assert listed == ["float16", "bfloat16", "float32", "hf32 (float32 with cube_math_type 3)", "int8"]
    for name in (listed[0], listed[1], listed[2], listed[4]):
        assert estimate_matmul(MatmulProblem(16, 16, 16), name).compute_dtype == name


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cube_math_type": 7}, UnsupportedError, "cube_math_type is 7; it must be one of 0 "),
        ({"order": "x"}, ConfigError, "order is 'x'"),
        ({"transpose_a": "no"}, ShapeError, "transpose_a is 'no'; it must be true or false"),
        ({"out_dtype": "float61"}, UnsupportedError, "'float61' is not a supported format"),
        ({"out_dtype": "int32"}, UnsupportedError, "'int32' is not a supported format"),
        ({"out_dtype": "hf32_11"}, UnsupportedError, "no tensor is hf32_11, .*; take float32"),
        ({"tiling": (16, 16, 16)}, ConfigError, "it must be a Tiling, .* or None"),
        ({"tiling": Tiling(16, 16, 20)}, ConfigError, "base_k is 20, .* multiple of 16; take 32"),
        ({"tiling": Tiling(16, 16, 16, used_cores=25)}, ConfigError, "is 25, but 910B2 has 24 cores"),
    ],
)
def test_an_option_without_a_meaning_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        matmul_of(HALF, HALF, **options)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "16", None])
def test_a_size_of_a_plan_is_a_positive_integer(value):
    with pytest.raises(ConfigError, match=r"base_m is .*; it must be a positive integer"):
        Tiling(value, 16, 16)


@pytest.mark.parametrize("name", ["reuse_l1", "unit_flag"])
def test_a_switch_of_a_plan_is_yes_or_no(name):
    with pytest.raises(ConfigError, match=f"{name} is 1; it must be True or False"):
        Tiling(16, 16, 16, **{name: 1})


@pytest.mark.parametrize(
    ("plan", "buffer", "need", "capacity"),
    [
        # Two copies of 128 rows by 32 slices of 64, 2 bytes each.
        (Tiling(128, 128, 64, 32, 32), "L1", 2 * 128 * 32 * 64 * 2, 524288),
        # a's two copies of 64 x 64 fit; b's of 256 columns by 16 slices of 64 come on top.
        (Tiling(64, 256, 64, 1, 16), "L1", 2 * (64 * 64 + 256 * 1024) * 2, 524288),
        (Tiling(256, 16, 128), "L0A", 2 * 256 * 128 * 2, 65536),
        (Tiling(16, 256, 128), "L0B", 2 * 256 * 128 * 2, 65536),
        (Tiling(256, 256, 16), "L0C", 256 * 256 * 4, 131072),
        # One such tile fits, two do not.
        (Tiling(128, 256, 16, cl0_buffers=2), "L0C", 2 * 128 * 256 * 4, 131072),
    ],
)
def test_a_plan_that_does_not_fit_names_buffer_need_and_capacity(plan, buffer, need, capacity):
    with pytest.raises(
        CapacityError, match=f"^tiling of matmul: {buffer} of 910B2 holds {capacity} bytes.* need to {need};"
    ):
        estimate_matmul(MatmulProblem(512, 4096, 512), tiling=plan)


def test_a_plan_that_just_fits_is_taken():
    # L0A: 2 x 128 x 128 x 2 = 65536 bytes; L0C: 128 x 256 x 4 = 131072; L0B alike with one copy of 256.
    plan = Tiling(128, 256, 128, bl0_buffers=1)
    assert estimate_matmul(MatmulProblem(512, 512, 512), tiling=plan).cycles > 0
