"""Are gradients judged by the float64 ones of the same stored tensors?"""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward
from ascendsim.numerics.formats.casts import encode, round_to
from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.studies.sweep import float64_references, judge

PROBLEM = ConvProblem((1, 16, 4, 4), (16, 16, 1, 1))
ALL = (True, True, True)


def tensors(name="float16", seed=0):
    random = np.random.default_rng(seed)
    shapes = (PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
    drawn = (random.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return tuple(encode(round_to(values, name), dtype(name)) for values in drawn)


def backward(stored, mask=ALL, cube_math_type=0, **options):
    bias = [PROBLEM.grad_output[1]] if mask[2] else None
    return convolution_backward(*stored, bias, 1, 0, 1, False, 0, 1, mask, cube_math_type, **options)


@pytest.fixture(scope="module")
def judged():
    stored = tensors()
    result = backward(stored)
    return result, judge(result, float64_references(PROBLEM, *stored, ALL))


def test_every_gradient_is_judged_once(judged):
    result, gradients = judged
    assert [gradient.name for gradient in gradients] == ["grad_input", "grad_weight", "grad_bias"]
    for gradient in gradients:
        made = getattr(result, gradient.name)
        assert gradient.shape == made.shape
        assert gradient.stored == "float16"
        assert gradient.sha256 == hashlib.sha256(made.tobytes()).hexdigest()
        assert gradient.errors.count == made.size
        assert 0 < gradient.errors.mere < 2**-10


def test_a_masked_gradient_is_left_out():
    stored, mask = tensors(), (True, False, False)
    references = float64_references(PROBLEM, *stored, mask)
    assert references["grad_weight"] is None
    assert references["grad_bias"] is None
    assert [gradient.name for gradient in judge(backward(stored, mask), references)] == ["grad_input"]


def test_the_references_are_those_of_the_tensors_as_stored():
    # A 1x1 kernel without padding: grad_input is the product of weight^T and grad_output at each position.
    stored = tensors("bfloat16")
    grad_output, _, weight = (tensor.astype(np.float64) for tensor in stored)
    references = float64_references(PROBLEM, *stored, ALL)
    expected = np.einsum("nohw,oi->nihw", grad_output, weight[:, :, 0, 0])
    np.testing.assert_allclose(references["grad_input"], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(references["grad_bias"], grad_output.sum(axis=(0, 2, 3)), atol=1e-12)


def test_references_serve_every_result_of_the_same_tensors(judged):
    result, gradients = judged
    stored = tensors()
    references = float64_references(PROBLEM, *stored, ALL)
    for product in ("910B", "910_93"):
        assert len(judge(backward(stored, product=product), references)) == 3
    assert judge(result, references) == gradients


def test_a_wrong_element_is_found(judged):
    result, gradients = judged
    weight = result.grad_weight.copy()
    weight[0, 0] = 2 * np.abs(weight).max() + 1
    wrong = judge(replace(result, grad_weight=weight), float64_references(PROBLEM, *tensors(), ALL))
    assert wrong[0] == gradients[0]
    assert wrong[1].errors.max_abs > 1
    assert wrong[1].sha256 != gradients[1].sha256
    assert not all(verdict.passed for verdict in wrong[1].errors.verdicts)


def test_equal_bits_have_equal_digests_and_others_do_not(judged):
    result, _ = judged
    one = replace(result, grad_input=None, grad_weight=None, grad_bias=np.array([0.0], np.float16))
    other = replace(one, grad_bias=np.array([-0.0], np.float16))
    exact = {"grad_bias": np.array([0.0])}
    digests = [judge(made, exact)[0].sha256 for made in (one, one, other)]
    assert digests[0] == digests[1] != digests[2]


def test_hifloat8_is_judged_by_its_codes():
    stored = tensors("hifloat8")
    # By the pages, 8-bit tensors have grad_input of transposed convolutions alone; the cube multiplies all.
    result = backward(stored, product="910_95", rules="hardware")
    gradients = judge(result, float64_references(PROBLEM, *stored, ALL))
    assert {gradient.stored for gradient in gradients} == {"hifloat8"}
    assert gradients[0].sha256 == hashlib.sha256(result.grad_input.codes.tobytes()).hexdigest()


def test_hf32_is_judged_by_the_steps_of_its_operands_but_for_the_bias():
    stored = tensors("float32")
    result = backward(stored, cube_math_type=1)
    assert result.compute_dtype.startswith("hf32")
    gradients = judge(result, float64_references(PROBLEM, *stored, ALL))
    formats = {gradient.name: gradient.errors.dtype for gradient in gradients}
    assert formats == {
        "grad_input": result.compute_dtype,
        "grad_weight": result.compute_dtype,
        "grad_bias": "float32",
    }
    assert {gradient.stored for gradient in gradients} == {"float32"}
    # HF32 keeps 11 bits of each operand: far more than a step of float32, but few of its own.
    assert gradients[0].errors.max_ulp < 2**8
