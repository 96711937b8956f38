"""Is grad_input of kernels that lie side by side a matrix product whose axes are permuted?

Stride = kernel, as in the embedding of image patches: every pixel of grad_input meets one tap.
"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.twins import accumulate_twin
from ascendsim.numerics.formats.casts import round_to
from ascendsim.ops.matmul import estimate_matmul
from ascendsim.ops.problems.convolution import as_multiplied
from ascendsim.ops.problems.folded import gradient_product
from ascendsim.ops.problems.products import MatmulProblem
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import assert_same_bits, draw

# 3 images of 4 x 5 patches of 3 x 4 pixels.
PATCHES = ConvProblem((3, 5, 12, 20), (40, 5, 3, 4), (3, 4))
LINE = ConvProblem((2, 6, 24), (20, 6, 4), 4)
VOLUME = ConvProblem((2, 4, 4, 9, 6), (24, 4, 2, 3, 3), (2, 3, 3))
ONLY = {"output_mask": (True, False, False)}


def product_of(problem, product="910B", gradient="grad_input"):
    return gradient_product(problem, gradient, "float16", load_profile(product))


def called(p, dtype, math=0, data="wide", **options):
    rng = np.random.default_rng(5)
    tensors = [draw(rng, shape, dtype, data) for shape in (p.grad_output, p.input, p.weight)]
    given = [values.astype(dtype) for values in tensors]
    attributes = [p.grad_output[1]], p.stride, p.padding, p.dilation, False, (0,) * p.rank, p.groups
    made = convolution_backward(*given, *attributes, (True, False, False), math, **options)
    return made, tensors


# --- which gradients


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95"])
def test_patches_multiply_the_taps_of_all_channels_and_the_patches_of_each_image(product):
    # 5 channels x 12 taps, 40 channels out, 4 x 5 patches; the weights serve all 3 images.
    wanted = MatmulProblem(60, 40, 20, 3, transpose_a=True, shared_a=True)
    assert product_of(PATCHES, product).problem == wanted
    assert product_of(PATCHES, product, "grad_weight") is None


@pytest.mark.parametrize(
    ("stride", "products"),
    # 910_95 computes strides of 2 along both axes, and along D alone, by its own kernel.
    [((2, 2), ("910B",)), ((1, 2), ("910B", "910_95")), ((3, 3), ("910B", "910_95")), ((2, 1, 1), ("910B",))],
)
def test_small_strides_are_a_product_by_generation(stride, products):
    size = tuple(4 * step for step in stride)
    p = ConvProblem((2, 4, *size), (16, 4, *stride), stride)
    assert tuple(name for name in ("910B", "910_95") if product_of(p, name)) == products


@pytest.mark.parametrize(
    "problem",
    [
        replace(PATCHES, input=(3, 5, 13, 20)),  # a row is left over
        replace(PATCHES, stride=(3, 3)),  # kernels overlap
        replace(PATCHES, stride=(4, 4), input=(3, 5, 15, 20)),  # a row between kernels
        replace(PATCHES, padding=(1, 0), input=(3, 5, 13, 20)),
        replace(PATCHES, weight=(40, 1, 3, 4), groups=5),
        ConvProblem((3, 40, 4, 5), (40, 5, 3, 4), (3, 4), transposed=True),
    ],
    ids=str,
)
def test_other_strided_calls_are_convolutions(problem):
    assert product_of(problem) is None


def test_older_products_make_a_convolution_of_patches():
    assert product_of(PATCHES, "310P") is None
    assert product_of(PATCHES, "910") is None


# --- bits


def by_definition(p, a, w, base_k, model):
    """Return the accumulators, patch by patch: weights x grad_output in slices of base_k."""
    sums = np.empty((p.batch, p.input[1], *p.big_size), np.float32)
    columns = w.reshape(len(w), -1).T
    for image in range(p.batch):
        for at in np.ndindex(p.small_size):
            right = a.reshape(p.batch, len(w), *p.small_size)[(image, slice(None), *at)][:, None]
            total = np.zeros((len(columns), 1), np.float32)
            for first in range(0, len(right), base_k):
                part = slice(first, first + base_k)
                total = accumulate_twin(model, columns[:, part], right[part], total)
            place = [slice(i * k, (i + 1) * k) for i, k in zip(at, p.kernel, strict=True)]
            sums[(image, slice(None), *place)] = total.reshape(p.input[1], *p.kernel)
    return sums


@pytest.mark.parametrize("product", ["910_95", "910B"])
@pytest.mark.parametrize(
    ("dtype", "math", "compute", "data"),
    [("float16", 0, "float16", "wide"), ("float32", 3, "hf32", "wide"), ("float16", 0, "float16", "special")],
)
@pytest.mark.parametrize("problem", [PATCHES, LINE, VOLUME], ids=["patches", "line", "volume"])
def test_the_bits_are_those_of_the_ordered_sum_of_each_patch(problem, dtype, math, compute, data, product):
    made, (a, _, w) = called(problem, dtype, math, data, product=product)
    untimed, _ = called(problem, dtype, math, data, product=product, timing=False)
    assert made.plans["grad_input"].schedule == "matmul"
    a, w = (as_multiplied(values, compute, load_profile(product), "RNA") for values in (a, w))
    base_k, model = made.plans["grad_input"].tiling.base_k, AccumulationModel.parse(made.accumulation)
    with np.errstate(all="ignore"):
        sums = by_definition(problem, a, w, base_k, model)
        want = round_to(sums, dtype).reshape(problem.input)
    for found in (made, untimed):
        got = np.asarray(found.grad_input, np.float32)
        if data == "wide":
            assert_same_bits(got, want, "grad_input")
        # What is too large for float16 is the largest number on some products.
        assert np.array_equal(np.isnan(got), np.isnan(want))
        small = np.isfinite(want) & np.isfinite(got)
        assert np.array_equal(got[small], want[small])


@pytest.mark.parametrize("order", [0, "arrival"])
def test_any_order_of_execution_and_any_threads_give_the_same_bits(order):
    one, other = (called(PATCHES, "float16", product="910B", order=how)[0] for how in ("program", order))
    four, _ = called(PATCHES, "float16", product="910B", timing=False, threads=4)
    assert np.array_equal(one.grad_input, other.grad_input)
    assert np.array_equal(one.grad_input, four.grad_input)


# --- kernels


@pytest.mark.parametrize(("product", "batch", "kind"), [("910B", 3, "Batch"), ("910_95", 1, "")])
def test_a_transpose_follows_the_product_and_no_tensor_changes_its_layout(product, batch, kind):
    p = replace(PATCHES, input=(batch, *PATCHES.input[1:]))
    kernels = [kernel.kernel for kernel in estimate(p, product=product, **ONLY).kernels]
    assert [kernel.op_type for kernel in kernels] == [f"{kind}MatMul", "Transpose"]
    assert [kernel.name for kernel in kernels] == ["grad_input", "transpose_grad_input"]


def test_float32_on_16_bits_is_cast_around_both():
    kernels = estimate(PATCHES, "float32", 2, product="910B", **ONLY).kernels
    assert [k.kernel.op_type for k in kernels] == ["Cast", "Cast", "BatchMatMul", "Transpose", "Cast"]


def test_as_many_tiles_are_multiplied_as_the_plan_cuts():
    result = estimate(PATCHES, product="910B", **ONLY)
    t, product = result.plans["grad_input"].tiling, result.kernels[0]
    work = product.kernel.phases[0].work
    done = sum(one.build().pipes.count("M") for one in work)
    # 60 rows, 20 columns and a reduction of 40, for each of 3 images.
    assert done == 3 * -(-60 // t.base_m) * -(-20 // t.base_n) * -(-40 // t.base_k)


def test_a_tile_of_weights_that_stays_serves_the_next_image():
    # One tile each, on one core: weights of 40 rows of 512 bytes come once, grad_output for every image.
    shared = MatmulProblem(256, 40, 32, 3, transpose_a=True, shared_a=True)
    options = {"product": "910B", "tiling": {"base_m": 256, "base_n": 32, "base_k": 48, "used_cores": 1}}
    once = estimate_matmul(shared, **options).kernels[0].bytes["l2_read"]
    thrice = estimate_matmul(replace(shared, shared_a=False), **options).kernels[0].bytes["l2_read"]
    assert thrice - once == 2 * 40 * 512


@pytest.mark.parametrize("problem", [PATCHES, VOLUME], ids=["patches", "volume"])
def test_one_engine_says_what_the_other_does(problem):
    told = [estimate(problem, product="910B", engine=name, **ONLY).cycles for name in ("compiled", "simpy")]
    assert told[0] == told[1]


def test_patches_take_a_small_part_of_what_the_convolution_takes():
    # The convolution multiplies 255 zeros beside each pixel of a patch of 16 x 16, the product none.
    p = ConvProblem((1, 3, 64, 64), (64, 3, 16, 16), 16)
    product, convolution = (
        estimate(p, product="910_95", tiling=how, **ONLY).time_us for how in ("product", "search")
    )
    assert product * 3 < convolution
