"""Are the gradients of kernels that lie side by side matrix products of permuted axes?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, convolution_backward, estimate
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.casts import round_to
from ascendsim.ops.matmul import estimate_matmul
from ascendsim.ops.problems.convolution import as_multiplied
from ascendsim.ops.problems.folded import Patches, gradient_product
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import assert_same_bits, call_of, draw

# --- Is grad_input of kernels that lie side by side a matrix product whose axes are permuted? ----------
# Stride = kernel, as in the embedding of image patches: every pixel of grad_input meets one tap.

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


# -------------------------------------------------------------------------------------------------------
# Is grad_weight of wide kernels that lie side by side that of one tap, whose channels are (channel, tap)?
# -------------------------------------------------------------------------------------------------------
# Stride = kernel >= 8, as where a network embeds patches of images.

# 3 images of 2 x 3 patches of 8 x 9 pixels.
WEIGHTS_PATCHES = ConvProblem((3, 5, 16, 27), (20, 5, 8, 9), (8, 9))
WEIGHTS_LINE = ConvProblem((2, 6, 24), (20, 6, 8), 8)
WEIGHTS_VOLUME = ConvProblem((2, 2, 2, 16, 8), (24, 2, 1, 8, 8), (1, 8, 8))
WEIGHTS_ONLY = {"output_mask": (False, True, False)}


def patches_of(problem, product="910B"):
    return Patches.of(problem, load_profile(product))


def called_weights(p, dtype="float16", data="wide", **options):
    rng = np.random.default_rng(5)
    tensors = [draw(rng, shape, dtype, data) for shape in (p.grad_output, p.input, p.weight)]
    given = [values.astype(dtype) for values in tensors]
    attributes = [p.grad_output[1]], p.stride, p.padding, p.dilation, False, (0,) * p.rank, p.groups
    made = convolution_backward(*given, *attributes, (False, True, False), 0, **options)
    return made, tensors


# --- which gradients


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95"])
def test_taps_become_channels_and_placements_pixels(product):
    found = patches_of(WEIGHTS_PATCHES, product)
    # 5 channels x 72 taps.
    assert found.problem == ConvProblem((3, 360, 2, 3), (20, 360, 1, 1))
    assert found.split == (3, 5, 1, 1, 2, 8, 3, 9)


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem((3, 5, 14, 16), (20, 5, 7, 8), (7, 8)),  # 7 taps along H
        replace(WEIGHTS_PATCHES, input=(3, 5, 17, 27)),  # a row is left over
        replace(WEIGHTS_PATCHES, stride=(7, 9), input=(3, 5, 15, 27)),  # kernels overlap
        replace(WEIGHTS_PATCHES, padding=(1, 0), input=(3, 5, 14, 27)),
        replace(WEIGHTS_PATCHES, weight=(20, 1, 8, 9), groups=5),
        replace(WEIGHTS_PATCHES, input=(3, 5, 8, 9)),  # one placement: a matrix product
        ConvProblem((3, 20, 2, 3), (20, 5, 8, 9), (8, 9), transposed=True),
        ConvProblem((3, 5, 16, 27), (20, 5, 1, 1)),
    ],
    ids=str,
)
def test_other_kernels_are_taken_as_they_are(problem):
    assert patches_of(problem) is None


def test_older_products_take_them_as_they_are():
    assert patches_of(WEIGHTS_PATCHES, "310P") is None
    assert patches_of(WEIGHTS_PATCHES, "910") is None


# --- bits


@pytest.mark.parametrize("product", ["910_95", "910B"])
@pytest.mark.parametrize("data", ["wide", "special"])
@pytest.mark.parametrize(
    "problem", [WEIGHTS_PATCHES, WEIGHTS_LINE, WEIGHTS_VOLUME], ids=["patches", "line", "volume"]
)
def test_the_bits_are_those_of_the_same_product_on_patches_cut_by_hand(problem, data, product):
    made, (a, x, _) = called_weights(problem, data=data, product=product)
    untimed, _ = called_weights(problem, data=data, product=product, timing=False)
    # Every patch as a pixel of so many channels, in plain loops.
    one = patches_of(problem, product).problem
    whole = x.reshape(problem.batch, problem.input[1], *problem.big_size)
    cut = np.empty((problem.batch, one.input[1], *problem.small_size), np.float32)
    for at in np.ndindex(problem.small_size):
        place = [slice(i * k, (i + 1) * k) for i, k in zip(at, problem.kernel, strict=True)]
        cut[(slice(None), slice(None), *at)] = whole[(..., *place)].reshape(problem.batch, -1)
    given = [values.astype(np.float16) for values in (a, cut.reshape(one.input), np.zeros(one.weight))]
    attributes = [one.grad_output[1]], one.stride, one.padding, one.dilation, False, (0,) * one.rank, 1
    direct = convolution_backward(
        *given, *attributes, (False, True, False), 0, product=product, tiling=made.plans
    )
    assert direct.plans == made.plans
    for found in (made, untimed):
        got = np.asarray(found.grad_weight, np.float32).reshape(one.weight)
        assert_same_bits(got, np.asarray(direct.grad_weight, np.float32), "grad_weight")


@pytest.mark.parametrize("product", ["910_95", "910B"])
def test_the_bits_are_those_of_the_ordered_definition(product):
    call = call_of(WEIGHTS_PATCHES, profile=load_profile(product), deterministic=True)
    made, tensors = called_weights(WEIGHTS_PATCHES, product=product, deterministic=True)
    due = reference_gradients(call, *tensors, mask=(False, True, False))["grad_weight"]
    assert_same_bits(np.asarray(made.grad_weight, np.float32), due, "grad_weight")


def test_a_plan_of_ones_own_is_one_of_the_single_tap():
    own = {"grad_weight": Tiling(16, 48, 16, used_cores=2)}
    made, tensors = called_weights(WEIGHTS_PATCHES, product="910_95", tiling=own, deterministic=True)
    call = call_of(WEIGHTS_PATCHES, profile=load_profile("910_95"), tilings=own, deterministic=True)
    due = reference_gradients(call, *tensors, mask=(False, True, False))["grad_weight"]
    assert_same_bits(np.asarray(made.grad_weight, np.float32), due, "grad_weight")


def test_both_gradients_of_a_call_are_those_of_single_ones():
    p = WEIGHTS_PATCHES
    rng = np.random.default_rng(1)
    given = [
        draw(rng, shape, "float16", "wide").astype(np.float16) for shape in (p.grad_output, p.input, p.weight)
    ]
    attributes = [20], p.stride, p.padding, p.dilation, False, (0, 0), 1
    for options in ({}, {"tiling": "search"}, {"tiling": "search", "timing": False}):
        masks = (True, True, True), (True, False, False), (False, True, False)
        both, images, weights = (
            convolution_backward(*given, *attributes, mask, 0, product="910_95", **options) for mask in masks
        )
        assert np.array_equal(both.grad_input, images.grad_input)
        assert np.array_equal(both.grad_weight, weights.grad_weight)


# --- kernels


def test_a_transpose_of_input_comes_first():
    types = [
        kernel.kernel.op_type
        for kernel in estimate(WEIGHTS_PATCHES, product="910_95", **WEIGHTS_ONLY).kernels
    ]
    assert types == ["Transpose", "Conv3DBackpropFilterV2", "Cast"]
    types = [
        kernel.kernel.op_type for kernel in estimate(WEIGHTS_PATCHES, product="910B", **WEIGHTS_ONLY).kernels
    ]
    # The library of 910B deals the images to cores, which add to zeros.
    assert types == [
        "Transpose",
        "TransData",
        "TransData",
        "MemSet",
        "Conv2DBackpropFilter",
        "TransData",
        "Cast",
    ]


def test_the_kernel_is_that_of_the_single_tap():
    # With L2 warm: in a training step the Transpose leaves its patches there, and forward leaves no input.
    one, how = patches_of(WEIGHTS_PATCHES).problem, {"product": "910_95", "l2_start": "warm", **WEIGHTS_ONLY}
    [first, *_] = [k for k in estimate(WEIGHTS_PATCHES, **how).kernels if k.plan]
    [other] = [k for k in estimate(one, **how).kernels if k.plan]
    assert first.cycles == other.cycles


@pytest.mark.parametrize("product", ["910B", "910_95"])
def test_one_engine_says_what_the_other_does_weights(product):
    told = [
        estimate(WEIGHTS_PATCHES, product=product, engine=name, **WEIGHTS_ONLY).cycles
        for name in ("compiled", "simpy")
    ]
    assert told[0] == told[1]
