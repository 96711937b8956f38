"""Which gradients are made as matrix products, or as those of one folded image, and how?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, Plan, Tiling, convolution_backward, estimate, read_plans, write_plans
from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.casts import round_to
from ascendsim.ops.lowering.kernels import grad_input_type
from ascendsim.ops.matmul import estimate_matmul, matmul
from ascendsim.ops.problems import folded
from ascendsim.ops.problems.convolution import as_multiplied
from ascendsim.ops.problems.folded import Folded, gradient_product, kernel_problem
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import GRADIENTS, assert_same_bits, call_of, draw, run, tensors_of

# -------------------------------------------------------------------------------------------------------
# Are gradients whose shapes are those of a matrix product made by one, as the products' interface has it?
# -------------------------------------------------------------------------------------------------------

WHOLE = ConvProblem((5, 20, 3, 4), (24, 20, 3, 4))
DEEP = ConvProblem((3, 8, 2, 3, 4), (24, 8, 2, 3, 4), 2)
LENGTH = ConvProblem((5, 20, 7), (24, 20, 7))
TAP = ConvProblem((1, 20, 9, 7), (24, 20, 1, 1))
POINT = ConvProblem((1, 20, 5, 4, 3), (24, 20, 1, 1, 1))
PROBLEMS = [WHOLE, DEEP, LENGTH, TAP, POINT]


def product_of(problem, gradient="grad_input", dtype="float16", product="910_95"):
    found = gradient_product(problem, gradient, dtype, load_profile(product))
    return found and found.problem


def types(problem, product="910_95", **options):
    return [kernel.kernel.op_type for kernel in estimate(problem, product=product, **options).kernels]


def called(problem, dtype="float16", data="wide", math=0, **options):
    """Run a call on random tensors; return its result and the carriers of the tensors."""
    rng, p = np.random.default_rng(3), problem
    tensors = [draw(rng, shape, dtype, data) for shape in (p.grad_output, p.input, p.weight)]
    given = [values.astype(np.float16) if dtype == "float16" else values for values in tensors]
    zeros = (0,) * p.rank
    attributes = [p.grad_output[1]], p.stride, p.padding, p.dilation, False, zeros, p.groups, (True,) * 3
    return convolution_backward(*given, *attributes, math, **options), tensors


# --- which gradients


def test_a_kernel_as_large_as_the_image_multiplies_batches_and_channels():
    # 5 images, 24 channels out, 20 x 3 x 4 = 240 columns.
    for product in ("910B", "910_93", "910_95"):
        assert product_of(WHOLE, product=product) == MatmulProblem(5, 24, 240)
        assert product_of(WHOLE, "grad_weight", product=product) == MatmulProblem(
            24, 5, 240, transpose_a=True
        )


def test_one_tap_of_a_single_image_multiplies_channels_and_pixels():
    # 9 x 7 = 63 pixels.
    assert product_of(TAP) == MatmulProblem(20, 24, 63, transpose_a=True)
    assert product_of(TAP, "grad_weight") == MatmulProblem(24, 63, 20, transpose_b=True)


@pytest.mark.parametrize(
    ("problem", "product"),
    [
        (TAP, "910B"),
        (WHOLE, "310P"),
        (WHOLE, "910"),
        (replace(TAP, input=(2, 20, 9, 7)), "910_95"),
        (replace(TAP, stride=2), "910_95"),
        (replace(TAP, padding=1), "910_95"),
        (replace(WHOLE, input=(5, 20, 4, 4)), "910B"),
        (replace(WHOLE, padding=(1, 0)), "910B"),
        (replace(WHOLE, input=(5, 20, 2, 4), padding=(1, 0, 0, 0)), "910B"),
        (ConvProblem((5, 20, 5, 4), (24, 20, 3, 4), dilation=(2, 1)), "910B"),
        (ConvProblem((5, 20, 3, 4), (24, 10, 3, 4), groups=2), "910B"),
        (ConvProblem((5, 20, 1, 1), (20, 24, 3, 4), transposed=True), "910B"),
    ],
    ids=str,
)
def test_other_calls_are_convolutions(problem, product):
    assert product_of(problem, product=product) is None
    assert product_of(problem, "grad_weight", product=product) is None


def test_a_single_image_goes_to_a_matrix_product_up_to_128_mib():
    # Two bytes each: 16 x pixels, 16 x pixels and 16 x 16 weights; 2097144 x 32 x 2 + 512 is 2^27.
    at_most = ConvProblem((1, 16, 2097144), (16, 16, 1))
    assert (16 + 16) * 2097144 * 2 + 16 * 16 * 2 == 2**27
    assert product_of(at_most)
    assert product_of(replace(at_most, input=(1, 16, 2097145))) is None
    assert product_of(at_most, dtype="float32") is None


# --- bits


def by_definition(p, gradient, tensors, plan, compute, product):
    """Return the accumulators of a gradient: einsum over what lies where, in Mmads of base_k."""
    # A matrix product rounds ties away from zero to HF32; convolution kernels round them to even.
    profile = load_profile(product)
    a, x, w = (as_multiplied(values, compute, profile, "RNA") for values in tensors)
    if p.batch == 1 and gradient == "grad_input":
        left, right = w.reshape(w.shape[:2]).T, a.reshape(a.shape[1], -1)
    elif p.batch == 1:
        left, right = a.reshape(a.shape[1], -1), x.reshape(x.shape[1], -1).T
    elif gradient == "grad_input":
        left, right = a.reshape(a.shape[:2]), w.reshape(len(w), -1)
    else:
        left, right = a.reshape(a.shape[:2]).T, x.reshape(len(x), -1)
    model, total = AccumulationModel.parse(plan["model"]), np.zeros((len(left), right.shape[1]), np.float32)
    for first in range(0, left.shape[1], plan["base_k"]):
        part = slice(first, first + plan["base_k"])
        total = accumulate_twin(model, left[:, part], right[part], total)
    return total


@pytest.mark.parametrize("product", ["910_95", "910B"])
@pytest.mark.parametrize(("dtype", "math", "compute"), [("float16", 0, "float16"), ("float32", 3, "hf32")])
@pytest.mark.parametrize("problem", PROBLEMS, ids=["whole", "deep", "length", "tap", "point"])
def test_the_bits_are_those_of_the_ordered_sum(problem, dtype, math, compute, product):
    if product == "910B" and problem in (TAP, POINT):
        pytest.skip("one tap of a single image is a convolution there")
    made, tensors = called(problem, dtype, math=math, product=product)
    untimed, _ = called(problem, dtype, math=math, product=product, timing=False)
    for gradient in GRADIENTS[:2]:
        assert made.plans[gradient].schedule == "matmul"
        plan = {"model": made.accumulation, "base_k": made.plans[gradient].tiling.base_k}
        sums = by_definition(problem, gradient, tensors, plan, compute, product)
        for found in (made, untimed):
            got = getattr(found, gradient)
            want = round_to(sums, dtype).reshape(got.shape)
            assert_same_bits(np.asarray(got, np.float32), want, gradient)


def test_hf32_ties_go_away_from_zero_where_a_convolution_takes_them_to_even():
    # HF32 has 11 bits behind the point on the 910B: 1 + 2^-12 lies half-way, so one product by 1 tells.
    p = ConvProblem((1, 8, 1, 1), (8, 8, 1, 1))
    one, tie = np.ones(p.grad_output, np.float32), np.zeros(p.weight, np.float32)
    tie[0, 0] = 1 + 2.0**-12
    given = one, np.ones(p.input, np.float32), tie, [8], 1, 0, 1, False, 0, 1, (True, False, False), 3
    by_matmul, by_convolution = (
        convolution_backward(*given, product="910B", tiling=tiling).grad_input.flat[0]
        for tiling in ("product", "search")
    )
    assert by_matmul == 1 + 2.0**-11
    assert by_convolution == 1


def test_infinite_and_not_a_number_come_through():
    made, tensors = called(WHOLE, data="special", product="910_95")
    plan = {"model": made.accumulation, "base_k": made.plans["grad_input"].tiling.base_k}
    with np.errstate(all="ignore"):
        sums = by_definition(WHOLE, "grad_input", tensors, plan, "float16", "910_95")
        want = round_to(sums, "float16").reshape(made.grad_input.shape)
    got = made.grad_input.astype(np.float32)
    # The largest finite products may overflow, which a product's own rules decide; the rest must agree.
    finite = np.isfinite(want) & np.isfinite(got)
    assert np.array_equal(np.isnan(want), np.isnan(got))
    assert np.array_equal(got[finite], want[finite])
    assert np.isnan(got).any()


@pytest.mark.parametrize("order", [0, "arrival"])
def test_any_order_of_execution_gives_the_same_bits(order):
    one, other = (called(TAP, product="910_95", order=how)[0] for how in ("program", order))
    for gradient in GRADIENTS:
        assert np.array_equal(getattr(one, gradient), getattr(other, gradient), equal_nan=True)


def test_many_threads_give_the_same_bits():
    one, four = (called(TAP, product="910_95", timing=False, threads=count)[0] for count in (1, 4))
    assert np.array_equal(one.grad_weight, four.grad_weight, equal_nan=True)


# --- kernels


def test_the_kernels_of_the_call_in_order():
    # No tensor changes its layout; only grad_weight, made in float32, is cast.
    assert types(WHOLE, "910B") == ["ReduceSum", "MatMul", "MatMul", "Cast"]
    assert types(TAP) == ["ReduceSum", "MatMul", "MatMul", "Cast"]
    assert types(TAP, dtype="float32") == ["ReduceSum", "MatMul", "MatMul"]
    assert types(WHOLE, "910B", dtype="float32", cube_math_type=2) == [
        *("ReduceSum", "Cast", "Cast", "Cast", "MatMul", "Cast", "MatMul")
    ]


def test_the_cycles_are_those_of_the_same_matrix_product():
    p = ConvProblem((1, 256, 28, 28), (128, 256, 1, 1))
    only = estimate(p, product="950PR_9589", output_mask=(True, False, False), l2_start="warm")
    [kernel] = only.kernels
    problem = MatmulProblem(256, 128, 28 * 28, transpose_a=True)
    plan = only.plans["grad_input"]
    [same] = estimate_matmul(problem, product="950PR_9589", tiling=plan, l2_start="warm").kernels
    assert kernel.cycles == same.cycles


def test_the_result_is_that_of_the_matrix_product_itself():
    made, (a, _, w) = called(TAP, product="910_95")
    left, right = w.reshape(24, 20).astype(np.float16), a.reshape(24, 63).astype(np.float16)
    same = matmul(left, right, transpose_a=True, product="910_95").output
    assert np.array_equal(made.grad_input.reshape(20, 63), same)


def test_one_engine_says_what_the_other_does():
    for problem, product in ((WHOLE, "910B"), (TAP, "910_95")):
        told = [estimate(problem, product=product, engine=engine).cycles for engine in ("compiled", "simpy")]
        assert told[0] == told[1]


# --- plans


def test_a_plan_of_ones_own_makes_a_convolution():
    for own in ({"tiling": {"base_m": 32}}, {"tiling": "search"}, {"schedule": "dgrad"}):
        found = estimate(TAP, product="910_95", output_mask=(True, False, False), **own)
        assert [kernel.kernel.op_type for kernel in found.kernels] == ["Conv3DBackpropInputV2"]


def test_the_plan_that_was_taken_can_be_given_back(tmp_path):
    found = estimate(TAP, product="910_95")
    again = estimate(TAP, product="910_95", tiling=found.plans)
    assert [kernel.cycles for kernel in found.kernels] == [kernel.cycles for kernel in again.kernels]
    path = tmp_path / "plans.toml"
    write_plans(path, found.plans)
    assert read_plans(path).plans == found.plans
    assert estimate(TAP, product="910_95", tiling=path).cycles == found.cycles


def test_a_plan_of_matrix_products_is_refused_where_there_is_none():
    plan = Plan("matmul", Tiling(16, 16, 16, 1, 1))
    with pytest.raises(ConfigError, match="makes matmul"):
        estimate(TAP, product="910B", tiling={"grad_input": plan}, output_mask=(True, False, False))


# -------------------------------------------------------------------------------------------------------
# Are the gradients of many lines made as those of one image whose rows they are, between Transposes?
# -------------------------------------------------------------------------------------------------------
# Only 910_95 does so, of batches of 1500 to 4096. Kernels that are executed here are of small batches, for
# which the least one is lowered.

NEW, OLD = load_profile("950PR_9599", {"cores.cube": 4, "cores.vector": 8}), load_profile("910B2")
LINES = ConvProblem((2048, 20, 30), (24, 20, 3), 2, 1)
FOLDED_GRADIENTS = ("grad_input", "grad_weight")
# Small ones, folded once the least batch is 2: strides, gaps, groups that are merged, kernels side by side.
SMALL = {
    "plain": ConvProblem((5, 20, 13), (24, 20, 3), 1, 1),
    "strided": ConvProblem((3, 18, 16), (40, 18, 4), 2, 1),
    "dilated": ConvProblem((4, 16, 15), (16, 16, 3), 1, 2, 2),
    "grouped": ConvProblem((3, 24, 9), (24, 4, 3), 1, 1, groups=6),
    "side by side": ConvProblem((3, 6, 32), (20, 6, 8), 8),
}


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(folded, "LEAST_BATCH", 2)


# --- which


@pytest.mark.parametrize(("batch", "folds"), [(1499, False), (1500, True), (4096, True), (4097, False)])
@pytest.mark.parametrize("gradient", FOLDED_GRADIENTS)
def test_batches_of_1500_to_4096_lines_are_folded(batch, folds, gradient):
    p = replace(LINES, input=(batch, 20, 30))
    found = Folded.of(p, gradient, NEW)
    assert (found is not None) is folds
    # Lines of 30 pixels in 20 channels are the rows of one image; a kernel of one row meets one line alone.
    expected = ConvProblem((1, 20, batch, 30), (24, 20, 1, 3), (1, 2), (0, 1)) if folds else p
    assert kernel_problem(p, gradient, "float16", NEW) == expected


@pytest.mark.parametrize(
    ("problem", "profile"),
    [
        (LINES, OLD),
        (ConvProblem((2048, 20, 3, 30), (24, 20, 1, 3)), NEW),  # images of three rows
        (ConvProblem((2048, 20, 30), (20, 24, 3), transposed=True), NEW),
    ],
    ids=["910B", "2-D", "transposed"],
)
def test_others_are_not(problem, profile):
    assert not any(Folded.of(problem, gradient, profile) for gradient in FOLDED_GRADIENTS)


def test_the_image_has_the_macs_of_the_lines():
    assert Folded.of(LINES, "grad_input", NEW).problem.macs == LINES.macs


# --- the graph


def kernels(problem, mask=(True, True, True), dtype="float16", **options):
    made = estimate(problem, dtype, product="910_95", output_mask=mask, **options)
    return [(kernel.name, kernel.kernel.op_type) for kernel in made.kernels]


def test_each_gradient_stands_between_its_transposes():
    assert kernels(LINES) == [
        ("grad_bias", "ReduceSum"),
        ("transpose_grad_output", "Transpose"),
        ("grad_input", "Conv3DBackpropInputV2"),
        ("transpose_grad_input", "Transpose"),
        ("transpose_grad_output_2", "Transpose"),
        ("transpose_input", "Transpose"),
        ("grad_weight", "Conv3DBackpropFilterV2"),
        ("cast_grad_weight", "Cast"),
    ]
    assert [name for name, _ in kernels(LINES, (True, False, False))] == [
        *("transpose_grad_output", "grad_input", "transpose_grad_input")
    ]
    assert [kind for _, kind in kernels(LINES, (False, True, False), "float32")] == [
        *("Transpose", "Transpose", "Conv3DBackpropFilterV2")
    ]


def test_a_transpose_moves_the_tensor_once_each_way():
    [kernel] = [
        kernel
        for kernel in estimate(LINES, product="910_95", output_mask=(True, False, False)).kernels
        if kernel.name == "transpose_grad_input"
    ]
    # Each of the 2048 x 20 lines of 30 halves is written once, wherever it was read from.
    assert kernel.bytes["l2_write"] == 2048 * 20 * 30 * 2
    assert kernel.kernel.facts["shape"] == (2048, 20, 30)


def test_the_plan_is_that_of_the_image():
    image = Folded.of(LINES, "grad_input", NEW).problem
    mask = (True, False, False)
    lines, rows = (
        estimate(p, product="910_95", output_mask=mask).plans["grad_input"] for p in (LINES, image)
    )
    assert lines == rows


def test_short_lines_are_worth_their_transposes(monkeypatch):
    # Seven pixels fill less than half of a fractal of 16 rows; all lines one after the other fill them all.
    short = ConvProblem((2048, 128, 7), (128, 128, 3), 1, 1)
    made = estimate(short, product="910_95", output_mask=(True, False, False))
    monkeypatch.setattr(folded, "LEAST_BATCH", 4000)
    apart = estimate(short, product="910_95", output_mask=(True, False, False))
    assert [kernel.name for kernel in apart.kernels] == ["grad_input"]
    assert 2 * made.cycles < apart.cycles


# --- bits


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", SMALL)
def test_the_bits_are_those_of_its_order(name, dtype):
    problem = SMALL[name]
    call, tensors = call_of(problem, dtype, profile=NEW), tensors_of(problem, dtype)
    assert call.folded("grad_input")
    assert bool(call.folded("grad_weight")) is (name != "side by side")
    made = run(call, tensors, "arrival", (True, True, False))[0]
    want = reference_gradients(call, **tensors, mask=(True, True, False))
    for gradient in FOLDED_GRADIENTS:
        assert_same_bits(made[gradient], want[gradient])


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("name", SMALL)
def test_gradients_without_instructions_have_the_same_bits(name):
    p = SMALL[name]
    tensors = [values.astype(np.float16) for values in tensors_of(p, "float16").values()]
    rest = [p.grad_output[1]], p.stride, p.padding, p.dilation, False, 0, p.groups, (True, True, True), 0
    timed, made = (convolution_backward(*tensors, *rest, product=NEW, timing=way) for way in (True, False))
    for gradient in FOLDED_GRADIENTS:
        assert getattr(made, gradient).tobytes() == getattr(timed, gradient).tobytes()
        assert getattr(made, gradient).shape == (p.input if gradient == "grad_input" else p.weight)


@pytest.mark.usefixtures("small_batches")
def test_small_integers_are_the_gradients_of_the_lines():
    # Exact sums have no order: the definition on the lines themselves, no image in sight.
    p = SMALL["plain"]
    rng = np.random.default_rng(3)
    g, x, w = (rng.integers(-3, 4, shape).astype(np.float16) for shape in (p.grad_output, p.input, p.weight))
    made = convolution_backward(g, x, w, [24], 1, 1, 1, False, 0, 1, (True, True, True), 0, product=NEW)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1)))
    wide, weight = np.zeros(padded.shape), np.zeros(w.shape)
    for tap in range(3):
        seen = slice(tap, tap + p.grad_output[2])
        wide[:, :, seen] += np.einsum("nol,oc->ncl", g.astype(float), w[:, :, tap].astype(float))
        weight[:, :, tap] = np.einsum("nol,ncl->oc", g.astype(float), padded[:, :, seen])
    assert np.array_equal(made.grad_input, wide[:, :, 1:-1])
    assert np.array_equal(made.grad_weight, weight)


@pytest.mark.usefixtures("small_batches")
def test_engines_agree():
    from ascendsim.ops.lowering.kernels import lower

    for kernel in lower(call_of(SMALL["strided"], profile=NEW), (True, True, False)).kernels:
        assert time_kernel(kernel, NEW).cycles > 0
    assert grad_input_type(call_of(SMALL["strided"], profile=NEW)) == "Conv3DBackpropInputV2"
