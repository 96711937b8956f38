"""Are the float64 gradients the gradients of the convolution?"""

from itertools import product

import numpy as np
import pytest

import ascendsim.ops.reference.float64 as module
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.float64 import gradients_float64


def forward(problem, big_or_small, weight):
    """The convolution by its definition, term by term: output for an input of the problem's shape."""
    output = np.zeros((problem.batch, problem.grad_output[1], *problem.output_size))
    x = big_or_small.reshape(*big_or_small.shape[:2], *problem.input_size)
    w = weight.reshape(*weight.shape[:2], *problem.kernel)
    small_c, big_c = problem.small_channels, problem.big_channels
    places = product(
        range(problem.batch),
        range(problem.groups * small_c),
        range(big_c),
        *(range(size) for size in problem.small_size),
        *(range(size) for size in problem.kernel),
    )
    for n, s, b, *rest in places:
        at, tap = rest[:3], rest[3:]
        there = [
            a * stride + t * dilation - pad[0]
            for a, t, stride, dilation, pad in zip(
                at, tap, problem.strides, problem.dilations, problem.pads, strict=True
            )
        ]
        if not all(0 <= p < size for p, size in zip(there, problem.big_size, strict=True)):
            continue
        big_at = (n, s // small_c * big_c + b, *there)
        small_at = (n, s, *at)
        if problem.transposed:
            output[big_at] += x[small_at] * w[(s, b, *tap)]
        else:
            output[small_at] += x[big_at] * w[(s, b, *tap)]
    return output.reshape(problem.grad_output)


PROBLEMS = [
    ConvProblem((2, 3, 5, 4), (2, 3, 3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    ConvProblem((1, 4, 5, 5), (6, 2, 2, 2), padding=(0, 1, 2, 0), groups=2),
    ConvProblem((2, 2, 4), (3, 2, 3), stride=2, padding=1),
    ConvProblem((1, 2, 3, 4, 3), (2, 2, 2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1)),
    ConvProblem((1, 4, 3, 3), (4, 1, 2, 3), stride=2, output_padding=1, transposed=True, groups=2),
    ConvProblem((2, 2, 3, 3), (2, 3, 3, 3), padding=1, transposed=True),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients_are_derivatives_of_the_definition(problem):
    # The convolution is linear in input and in weight, so with integers (exact in float64)
    # <grad_output, conv(e, weight)> is grad_input at e, and likewise for weight.
    rng = np.random.default_rng(5)
    x = rng.integers(-4, 5, problem.input).astype(float)
    w = rng.integers(-4, 5, problem.weight).astype(float)
    dy = rng.integers(-4, 5, problem.grad_output).astype(float)
    dx, dw, db = gradients_float64(problem, dy, x, w)
    for made, shape, output in (
        (dx, problem.input, lambda e: forward(problem, e, w)),
        (dw, problem.weight, lambda e: forward(problem, x, e)),
    ):
        assert made.shape == shape
        for flat in rng.choice(made.size, size=min(12, made.size), replace=False):
            unit = np.zeros(made.size)
            unit[flat] = 1
            assert made.flat[flat] == np.vdot(dy, output(unit.reshape(shape)))
    assert np.array_equal(db, dy.sum(axis=(0, *range(2, dy.ndim))))


def test_batch_chunks_do_not_change_the_result(monkeypatch):
    problem = ConvProblem((5, 2, 4, 4), (3, 2, 3, 3), padding=1)
    rng = np.random.default_rng(1)
    tensors = [
        rng.integers(-9, 9, s).astype(float) for s in (problem.grad_output, problem.input, problem.weight)
    ]
    whole = gradients_float64(problem, *tensors)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)  # one image at a time
    for one, other in zip(whole, gradients_float64(problem, *tensors), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, False), (False, False, True)])
def test_masked_gradients_are_none(mask):
    problem = ConvProblem((1, 1, 3, 3), (1, 1, 2, 2))
    made = gradients_float64(
        problem, np.ones((1, 1, 2, 2)), np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), mask
    )
    assert tuple(gradient is not None for gradient in made) == mask


def test_16_bit_tensors_and_infinities_pass():
    problem = ConvProblem((1, 1, 2, 2), (1, 1, 1, 1))
    dy = np.array([[[[np.inf, 1], [2, -1]]]], dtype=np.float16)
    dx, dw, _ = gradients_float64(
        problem, dy, np.zeros((1, 1, 2, 2), np.float16), np.ones((1, 1, 1, 1), np.float16)
    )
    assert np.array_equal(dx, dy.astype(float))
    assert np.isnan(dw).all()  # inf * 0


def test_the_main_job_counts_its_ones():
    # Every pixel inside meets 128 channels under 9 taps; every channel sums 4 images of 28 x 28.
    problem = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), padding=1)
    tensors = [np.ones(s, np.float16) for s in (problem.grad_output, problem.input, problem.weight)]
    dx, _, db = gradients_float64(problem, *tensors)
    assert dx[0, 0, 5, 5] == 128 * 9
    assert db[0] == 4 * 28 * 28
