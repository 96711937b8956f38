"""Is grad_weight of wide kernels that lie side by side that of one tap, whose channels are (channel, tap)?

Stride = kernel >= 8, as where a network embeds patches of images.
"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, convolution_backward, estimate
from ascendsim.ops.problems.folded import Patches
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import assert_same_bits, call_of, draw

# 3 images of 2 x 3 patches of 8 x 9 pixels.
PATCHES = ConvProblem((3, 5, 16, 27), (20, 5, 8, 9), (8, 9))
LINE = ConvProblem((2, 6, 24), (20, 6, 8), 8)
VOLUME = ConvProblem((2, 2, 2, 16, 8), (24, 2, 1, 8, 8), (1, 8, 8))
ONLY = {"output_mask": (False, True, False)}


def patches_of(problem, product="910B"):
    return Patches.of(problem, load_profile(product))


def called(p, dtype="float16", data="wide", **options):
    rng = np.random.default_rng(5)
    tensors = [draw(rng, shape, dtype, data) for shape in (p.grad_output, p.input, p.weight)]
    given = [values.astype(dtype) for values in tensors]
    attributes = [p.grad_output[1]], p.stride, p.padding, p.dilation, False, (0,) * p.rank, p.groups
    made = convolution_backward(*given, *attributes, (False, True, False), 0, **options)
    return made, tensors


# --- which gradients


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95"])
def test_taps_become_channels_and_placements_pixels(product):
    found = patches_of(PATCHES, product)
    # 5 channels x 72 taps.
    assert found.problem == ConvProblem((3, 360, 2, 3), (20, 360, 1, 1))
    assert found.split == (3, 5, 1, 1, 2, 8, 3, 9)


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem((3, 5, 14, 16), (20, 5, 7, 8), (7, 8)),  # 7 taps along H
        replace(PATCHES, input=(3, 5, 17, 27)),  # a row is left over
        replace(PATCHES, stride=(7, 9), input=(3, 5, 15, 27)),  # kernels overlap
        replace(PATCHES, padding=(1, 0), input=(3, 5, 14, 27)),
        replace(PATCHES, weight=(20, 1, 8, 9), groups=5),
        replace(PATCHES, input=(3, 5, 8, 9)),  # one placement: a matrix product
        ConvProblem((3, 20, 2, 3), (20, 5, 8, 9), (8, 9), transposed=True),
        ConvProblem((3, 5, 16, 27), (20, 5, 1, 1)),
    ],
    ids=str,
)
def test_other_kernels_are_taken_as_they_are(problem):
    assert patches_of(problem) is None


def test_older_products_take_them_as_they_are():
    assert patches_of(PATCHES, "310P") is None
    assert patches_of(PATCHES, "910") is None


# --- bits


@pytest.mark.parametrize("product", ["910_95", "910B"])
@pytest.mark.parametrize("data", ["wide", "special"])
@pytest.mark.parametrize("problem", [PATCHES, LINE, VOLUME], ids=["patches", "line", "volume"])
def test_the_bits_are_those_of_the_same_product_on_patches_cut_by_hand(problem, data, product):
    made, (a, x, _) = called(problem, data=data, product=product)
    untimed, _ = called(problem, data=data, product=product, timing=False)
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
    call = call_of(PATCHES, profile=load_profile(product), deterministic=True)
    made, tensors = called(PATCHES, product=product, deterministic=True)
    due = reference_gradients(call, *tensors, mask=(False, True, False))["grad_weight"]
    assert_same_bits(np.asarray(made.grad_weight, np.float32), due, "grad_weight")


def test_a_plan_of_ones_own_is_one_of_the_single_tap():
    own = {"grad_weight": Tiling(16, 48, 16, used_cores=2)}
    made, tensors = called(PATCHES, product="910_95", tiling=own, deterministic=True)
    call = call_of(PATCHES, profile=load_profile("910_95"), tilings=own, deterministic=True)
    due = reference_gradients(call, *tensors, mask=(False, True, False))["grad_weight"]
    assert_same_bits(np.asarray(made.grad_weight, np.float32), due, "grad_weight")


def test_both_gradients_of_a_call_are_those_of_single_ones():
    p = PATCHES
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
    types = [kernel.kernel.op_type for kernel in estimate(PATCHES, product="910_95", **ONLY).kernels]
    assert types == ["Transpose", "Conv3DBackpropFilterV2", "Cast"]
    types = [kernel.kernel.op_type for kernel in estimate(PATCHES, product="910B", **ONLY).kernels]
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
    one = patches_of(PATCHES).problem
    [first, *_] = [k for k in estimate(PATCHES, product="910_95", **ONLY).kernels if k.plan]
    [other] = [k for k in estimate(one, product="910_95", **ONLY).kernels if k.plan]
    assert first.cycles == other.cycles


@pytest.mark.parametrize("product", ["910B", "910_95"])
def test_one_engine_says_what_the_other_does(product):
    told = [estimate(PATCHES, product=product, engine=name, **ONLY).cycles for name in ("compiled", "simpy")]
    assert told[0] == told[1]
