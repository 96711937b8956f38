"""Is a product of int8 matrices the exact sum in int32, whatever the plan, and are its cycles possible?"""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from ascendsim import MatmulProblem, Tiling, estimate_matmul, load_profile
from ascendsim import matmul as matmul_of
from ascendsim.errors import CapacityError, ConfigError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation import IntegerSum, MathSettings
from ascendsim.timing.kernel import time_kernel
from tests.helpers.oracles_timing import check_gm
from tests.house.test_layers import modules_after
from tests.operators.test_matmul import PLANS, SIZES, TURNS, turned
from tests.operators.test_matmul_cycles import PROBLEMS, by_core

# 910 and 310P have no path from L0C to GM: results leave through UB.
PRODUCTS = ["910", "310P", "910B", "910_93", "910_95"]
EVERY_PRODUCT = pytest.mark.parametrize("product", PRODUCTS)
# 131072 products of (-128)^2 = 2^14 are 2^31, one more than int32 holds; in 128 slices.
LONG = 131072
LONG_PLAN = Tiling(16, 16, 1024)


def operands(m, k, n, batch=None, seed=0):
    """Make operands from the whole range of int8, with both ends more often than not."""
    random = np.random.default_rng(seed)
    front = () if batch is None else (batch,)
    made = []
    for shape in ((*front, m, k), (*front, k, n)):
        values = random.integers(-128, 128, shape)
        made.append(np.where(random.random(shape) < 0.3, -128, values).astype(np.int8))
    return made


def exact(a, b):
    """Return the product in Python's own integers."""
    return a.astype(object) @ b.astype(object)


def wrapped(values):
    """Return whole numbers modulo 2^32, as int32 reads them."""
    return ((values + 2**31) % 2**32 - 2**31).astype(np.int32)


def same(result, want):
    assert result.output.dtype == np.int32
    np.testing.assert_array_equal(result.output, want, strict=True)


# --- values


@EVERY_PRODUCT
def test_the_result_is_the_exact_sum_on_every_product(product):
    a, b = operands(*SIZES)
    result = matmul_of(a, b, product=product)
    assert (result.compute_dtype, result.accumulation) == ("int8", "int32:wrap")
    same(result, wrapped(exact(a, b)))


def test_sums_that_float32_cannot_hold_are_exact():
    # 2^14 * 2048 + 1 = 2^25 + 1, which needs 26 bits; float32 has 24.
    a, b = np.full((1, 2049), -128, np.int8), np.full((2049, 1), -128, np.int8)
    a[0, -1] = b[-1, 0] = 1
    assert matmul_of(a, b).output[0, 0] == 2**25 + 1


@TURNS
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("product", ["910", "910B"])
def test_no_plan_and_no_layout_changes_the_result(product, plan, turn_a, turn_b):
    a, b = operands(*SIZES)
    flags = {"transpose_a": turn_a, "transpose_b": turn_b}
    laid = turned(a, turn_a), turned(b, turn_b)
    result = matmul_of(*laid, **flags, product=product, tiling=replace(plan, used_cores=2))
    same(result, wrapped(exact(a, b)))


@pytest.mark.parametrize("plan", PLANS)
@EVERY_PRODUCT
def test_every_legal_order_gives_the_sum(product, plan):
    a, b = operands(*SIZES, batch=2)
    options = {"tiling": replace(plan, used_cores=2), "product": product}
    for order in ("program", "arrival", 0, 1):
        same(matmul_of(a, b, order=order, **options), wrapped(exact(a, b)))


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (16, 32, 16), (17, 1, 15), (1, 33, 1), (15, 31, 16), (31, 65, 33)]
)
def test_tails_of_every_axis(sizes):
    a, b = operands(*sizes)
    same(matmul_of(a, b, tiling=Tiling(16, 16, 32, used_cores=2)), wrapped(exact(a, b)))


def test_a_view_counts_as_the_matrix_it_shows():
    a, b = operands(*SIZES)
    wide = np.zeros((35, 200), np.int8)
    wide[:, 10:192:2] = a
    same(matmul_of(wide[:, 10:192:2], turned(b, 1).T), wrapped(exact(a, b)))


@pytest.mark.parametrize("product", ["310P", "910B"])
def test_every_instruction_touches_what_it_declares_and_c_is_written_once(product):
    a, b = operands(*SIZES, batch=2)
    (result,) = matmul_of(a, b, product=product, tiling=replace(PLANS[4], used_cores=2)).kernels
    gm = {"a": a.astype(np.int32), "b": b.astype(np.int32)}
    run_kernel(result.kernel, gm, order=5)
    np.testing.assert_array_equal(gm["c"], wrapped(exact(a, b)))
    assert (check_gm(result.kernel)["c"] == 1).all()


# --- the ends of int32


@pytest.mark.parametrize("product", ["910", "910B"])
@pytest.mark.parametrize(
    ("model", "ends"),
    [
        # 2^31 is -2^31 modulo 2^32; one product less is 2^31 - 2^14.
        (None, [-(2**31), 2**31 - 2**14]),
        ("int32:wrap", [-(2**31), 2**31 - 2**14]),
        ("int32:saturate", [2**31 - 1, 2**31 - 2**14]),
    ],
)
def test_the_first_sum_beyond_int32_and_the_last_within(product, model, ends):
    a = np.full((2, LONG), -128, np.int8)
    a[1, 0] = 0
    result = matmul_of(
        a, np.full((LONG, 1), -128, np.int8), product=product, accumulation=model, tiling=LONG_PLAN
    )
    assert result.output[:, 0].tolist() == ends
    assert result.accumulation == (model or "int32:wrap")


def test_wrapping_goes_round_and_comes_back():
    # 64 products more take the sum to 2^31 + 2^20, then 256 of -2^13 to 2^31 - 2^20.
    a = np.full((1, LONG + 320), -128, np.int8)
    b = np.full((LONG + 320, 1), -128, np.int8)
    b[LONG + 64 :] = 64
    same(matmul_of(a, b, tiling=LONG_PLAN), np.int32([[2**31 - 2**20]]))


def test_saturation_is_final_for_what_has_been_lost():
    # The first slices reach 2^31 - 1 and stay there; what follows is 192 products of -2^13.
    a = np.full((1, LONG + 1024 + 192), -128, np.int8)
    b = np.full((LONG + 1024 + 192, 1), -128, np.int8)
    b[LONG + 1024 :] = 64
    result = matmul_of(a, b, accumulation="int32:saturate", tiling=LONG_PLAN)
    assert result.output[0, 0] == 2**31 - 1 - 192 * 2**13


def test_the_lower_end_saturates_as_well():
    # -128 * 127 * 132105 = -2147498880, below -2^31 by 15232.
    a, b = np.full((1, 132105), -128, np.int8), np.full((132105, 1), 127, np.int8)
    assert matmul_of(a, b, accumulation="int32:saturate").output[0, 0] == -(2**31)
    assert matmul_of(a, b).output[0, 0] == 2**31 - 15232


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_a_sum_is_printed_as_it_is_read(overflow):
    model = IntegerSum(overflow)
    assert str(model) == f"int32:{overflow}"
    assert IntegerSum.parse(str(model)) == model
    assert MathSettings(model).carrier == "int32"


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_one_cube_product_is_the_sum_in_whole_numbers(overflow):
    random = np.random.default_rng(1)
    a, b = (random.integers(-128, 128, shape).astype(np.int32) for shape in ((9, 40), (40, 7)))
    c = random.integers(-(2**31), 2**31, (9, 7)).astype(np.int32)
    c[0], c[1] = 2**31 - 1, -(2**31)  # sums of either sign leave on either side
    total = exact(a, b) + c.astype(object)
    want = wrapped(total) if overflow == "wrap" else total.clip(-(2**31), 2**31 - 1).astype(np.int32)
    assert (want != total).any()
    IntegerSum(overflow).accumulate(a, b, c)
    np.testing.assert_array_equal(c, want)


def test_one_cube_product_may_be_longer_than_float32_counts():
    # As above 2^25 + 1, but in one product.
    a, b, c = (
        np.full((1, 2049), -128, np.int32),
        np.full((2049, 1), -128, np.int32),
        np.zeros((1, 1), np.int32),
    )
    a[0, -1] = b[-1, 0] = 1
    IntegerSum().accumulate(a, b, c)
    assert c[0, 0] == 2**25 + 1


# --- cycles


@EVERY_PRODUCT
@pytest.mark.parametrize("problem", PROBLEMS)
def test_cycles_are_no_fewer_than_products_and_bytes_take(product, problem):
    (kernel,) = estimate_matmul(problem, "int8", product=product).kernels
    profile, p = load_profile(product), problem
    links = {name: link.total_bytes_per_cycle for name, link in profile.links.items()}
    # One byte for an element of a and b, four for one of c.
    assert kernel.bytes["l2_read"] >= p.batch * (p.m + p.n) * p.k
    assert kernel.bytes["l2_write"] == p.batch * p.m * p.n * 4
    assert kernel.cycles >= p.macs / (8192 * kernel.cores_used)
    assert kernel.cycles >= kernel.bytes["l2_read"] / links["l2_read"]
    assert kernel.cycles >= kernel.bytes["l2_write"] / links["l2_write"]


@EVERY_PRODUCT
def test_folding_equal_cores_changes_no_cycle(product):
    (kernel,) = estimate_matmul(PROBLEMS[1], "int8", product=product).kernels
    folded, unfolded = (
        time_kernel(kernel.kernel, load_profile(product), folded=flag) for flag in (True, False)
    )
    assert (folded.cycles, folded.bytes) == (unfolded.cycles, unfolded.bytes)
    assert by_core(folded) == by_core(unfolded)


@EVERY_PRODUCT
def test_the_cube_takes_32_of_the_reduction_at_a_time(product):
    # One tile of 64 x 64, k 100 in slices of 64 and 36, which takes 64: 2 products of 16 fractals by 2 k0,
    # each 16 * 16 * 32 / 8192 = 1 cycle.
    plan = Tiling(64, 64, 64)
    (kernel,) = estimate_matmul(MatmulProblem(64, 100, 64), "int8", product=product, tiling=plan).kernels
    head = load_profile(product).cube.mmad_head_cycles
    assert kernel.busy["M"] == 2 * ceil(head + 16 * 2)


def test_an_estimate_needs_the_cycles_of_the_run():
    a, b = operands(100, 200, 60)
    run = matmul_of(turned(a, 1), b, transpose_a=True)
    told = estimate_matmul(MatmulProblem(100, 200, 60, transpose_a=True), np.int8)
    assert (told.cycles, told.time_us) == (run.cycles, run.time_us)


@EVERY_PRODUCT
def test_a_large_product_of_bytes_is_faster_than_one_of_halves(product):
    byte, half = (estimate_matmul(PROBLEMS[0], fmt, product=product).cycles for fmt in ("int8", "float16"))
    assert byte < half


def test_an_l0_tile_holds_twice_as_many_bytes_as_halves():
    # L0A: 2 copies of 128 x 256 bytes are all 65536 of it; the same of halves are twice as many.
    plan = Tiling(128, 128, 256)
    assert estimate_matmul(MatmulProblem(512, 512, 512), "int8", tiling=plan).cycles > 0
    with pytest.raises(CapacityError, match=r"^tiling of matmul: L0A of "):
        estimate_matmul(MatmulProblem(512, 512, 512), "float16", tiling=plan)


def test_an_estimate_of_int8_loads_no_compiler():
    code = "import ascendsim; ascendsim.estimate_matmul(ascendsim.MatmulProblem(16, 32, 16), 'int8')"
    assert not modules_after(code) & {"numba", "ml_dtypes", "matplotlib", "rich"}


# --- refusals

ONES = np.ones((32, 32), np.int8)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"out_dtype": "float16"}, UnsupportedError, "out_dtype is float16, but .* come out as int32"),
        ({"out_dtype": "int8"}, UnsupportedError, "out_dtype is int8, but .* come out as int32"),
        ({"accumulation": "block:16:RNE"}, ConfigError, "int32:wrap or int32:saturate, got 'block:16:RNE'"),
        ({"accumulation": "int32:round"}, ConfigError, "int32:wrap or int32:saturate, got 'int32:round'"),
        ({"accumulation": "int32"}, ConfigError, "int32:wrap or int32:saturate, got 'int32'"),
        ({"tiling": Tiling(16, 16, 16)}, ConfigError, "base_k is 16, .* multiple of 32; take 32"),
        ({"cube_math_type": 7}, UnsupportedError, "cube_math_type is 7; it must be one of 0 "),
    ],
)
def test_an_option_without_a_meaning_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        matmul_of(ONES, ONES, **options)
    with pytest.raises(error, match=words):
        estimate_matmul(MatmulProblem(32, 32, 32), "int8", **options)


def test_int32_may_be_asked_for():
    assert matmul_of(ONES, ONES, out_dtype="int32").output.tobytes() == matmul_of(ONES, ONES).output.tobytes()


def test_bytes_of_two_kinds_are_refused():
    with pytest.raises(UnsupportedError, match="a is int8 and b uint8; both must be of one format"):
        matmul_of(ONES, ONES.astype(np.uint8))


def test_an_overflow_has_one_of_two_names():
    with pytest.raises(ConfigError, match="got 'int32:clip'"):
        IntegerSum("clip")
